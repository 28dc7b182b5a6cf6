"""The stand-in engine: its specification, requests to it, and what it answers."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.engines.base import Generation, GenerationRequest
from infra.engines.selection import open_engine
from schemas.identity import prompt_hash
from schemas.inference import EngineSpec
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInSpec

SAMPLING = SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=1000, eos_token_ids=(0,))


GOLD = "4217"


def prompt(number: int) -> list[int]:
    return [1, 2, number]


def engine_spec(folder: Path, *, num_items: int = 4, batch_size: int = 8, **settings: Any) -> EngineSpec:
    path = folder / "prompts.parquet"
    hashes = [prompt_hash(prompt(number)) for number in range(num_items)]
    pq.write_table(pa.table({"prompt_hash": hashes, "gold": [GOLD] * num_items}), path)
    return EngineSpec(
        engine="stand_in",
        model_path=folder,
        dtype="auto",
        max_model_len=2048,
        batch_size=batch_size,
        seed=1,
        stand_in=StandInSpec(answers_path=path, **{"step_s": 0.0, **settings}),
    )


def complete(spec: EngineSpec, requests: list[GenerationRequest]) -> list[Generation]:
    engine = open_engine(spec, SAMPLING, 1)
    for request in requests:
        engine.add(request)
    done: list[Generation] = []
    while engine.num_unfinished:
        done += engine.step()
    return sorted(done, key=lambda each: int(each.request_id))


def requests(num_items: int, **changes: Any) -> list[GenerationRequest]:
    fields: dict[str, Any] = {"seed": 5, **changes}
    return [
        GenerationRequest(request_id=str(number), prompt_token_ids=prompt(number), **fields)
        for number in range(num_items)
    ]
