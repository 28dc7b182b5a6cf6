"""A worker whose work may kill it: suspects one at a time, and what was set aside not at all. Engine: the stand-in."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.errors import WorkerError
from schemas.identity import SampleKey, prompt_hash
from schemas.inference import EngineSpec, SetAsideItem, WorkerSpec
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInSpec
from schemas.states import WorkerOutcome
from schemas.tables import PROMPT_SCHEMA
from tasks.inference.exchange.journal import finished_samples, read_journal
from tasks.inference.exchange.work_table import work_table
from tasks.inference.exchange.worker_files import (
    EXIT_CODES,
    StartedLog,
    claim_folder,
    read_result,
    read_started,
    write_spec,
)
from tests.support.checkpoint_folders import make_checkpoint

ROOT = Path(__file__).resolve().parents[5]
NUM_ITEMS = 12
TOKENS = [[1, 2, 3 + number] for number in range(NUM_ITEMS)]
DEADLINESS = [random.Random(f"{prompt_hash(ids)} deadly").random() for ids in TOKENS]
DEADLY = min(range(NUM_ITEMS), key=DEADLINESS.__getitem__)
"""The item that a rate just above its draw makes the only deadly one."""


def keys(numbers: Sequence[int]) -> list[SampleKey]:
    return [SampleKey(f"i{number}", 0) for number in numbers]


def run(folder: Path, order: Sequence[int], *, num_alone: int, set_aside: Sequence[int] = ()) -> int:
    """Run a worker on these items in a process of its own; return its exit code, negative for a signal."""
    rows = [
        {
            "item_id": f"i{number}",
            "prompt_hash": prompt_hash(ids),
            "prompt": "",
            "token_ids": ids,
            "gold": "1",
            "grader": "math",
            "grader_data": "",
            "subsets": [],
        }
        for number, ids in enumerate(TOKENS)
    ]
    prompts_path, work_path = folder / "prompts.parquet", folder / "work.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA), prompts_path)
    pq.write_table(work_table(keys(order)), work_path)
    model = folder / "model"
    model.mkdir()
    stand_in = StandInSpec(answers_path=prompts_path, step_s=0.0, deadly_item_rate=DEADLINESS[DEADLY] + 1e-9)
    spec = WorkerSpec(
        run_id="run",
        replica=0,
        attempt=1,
        engine=EngineSpec(
            engine="stand_in",
            model_path=make_checkpoint(model),
            dtype="auto",
            max_model_len=256,
            batch_size=4,
            seed=0,
            stand_in=stand_in,
        ),
        sampling=SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=9, eos_token_ids=(2,)),
        seed=0,
        prompts_path=prompts_path,
        work_path=work_path,
        num_alone=num_alone,
        set_aside=tuple(SetAsideItem(item_id=f"i{number}", reason="it killed two workers") for number in set_aside),
        output_dir=folder,
    )
    command = [sys.executable, "-c", "from tasks.inference.worker.process import main; main()", str(write_spec(spec))]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, timeout=120).returncode


def left_in_engine(folder: Path) -> list[SampleKey]:
    finished = finished_samples([folder])
    return [key for key in read_started(folder) if key not in finished]


OTHERS = [number for number in range(NUM_ITEMS) if number != DEADLY]
ORDER = [*OTHERS[:3], DEADLY, *OTHERS[3:]]


def test_a_death_leaves_the_names_of_all_that_were_in_the_engine(tmp_path: Path) -> None:
    assert run(tmp_path, ORDER, num_alone=0) == -11
    assert left_in_engine(tmp_path) == keys(ORDER[:5]), "one more than its batch has places"


def test_suspects_are_alone_in_the_engine(tmp_path: Path) -> None:
    assert run(tmp_path, ORDER, num_alone=5) == -11
    assert left_in_engine(tmp_path) == keys([DEADLY])
    assert finished_samples([tmp_path]) == set(keys(OTHERS[:3]))


def test_after_the_suspects_the_engine_is_filled(tmp_path: Path) -> None:
    order = [*OTHERS[:3], OTHERS[3], DEADLY, *OTHERS[4:]]
    assert run(tmp_path, order, num_alone=3) == -11
    assert left_in_engine(tmp_path) == keys(order[3:8])


def test_of_two_workers_in_one_folder_the_second_ends_and_changes_nothing(tmp_path: Path) -> None:
    assert claim_folder(tmp_path)
    assert run(tmp_path, OTHERS, num_alone=0) == EXIT_CODES[WorkerOutcome.CANCELLED]
    assert read_result(tmp_path) is None
    assert not (tmp_path / "segments").exists()


def test_what_was_set_aside_becomes_failed_samples_with_the_reason(tmp_path: Path) -> None:
    assert run(tmp_path, [DEADLY, *OTHERS], num_alone=1, set_aside=[DEADLY]) == 0
    result = read_result(tmp_path)
    assert result is not None
    assert (result.outcome, result.num_done) == (WorkerOutcome.COMPLETED, NUM_ITEMS)
    records = {record.item_id: record for record in read_journal(tmp_path)}
    failed = records.pop(f"i{DEADLY}")
    assert (failed.error, failed.completion, failed.finish_reason) == ("it killed two workers", "", None)
    assert all(record.error is None and record.num_completion_tokens for record in records.values())
    assert keys([DEADLY])[0] not in read_started(tmp_path), "its engine never had it"


def test_a_started_log_that_a_death_cut_is_read_up_to_there(tmp_path: Path) -> None:
    assert read_started(tmp_path) == []
    hostile = SampleKey('an "item"\n$(id) \u2028', 3)
    with StartedLog(tmp_path) as log:
        log.append(hostile)
        log.append(SampleKey("b", 0))
    path = tmp_path / "started.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert read_started(tmp_path) == [hostile][: whole[:cut].count(b"\n")]
    path.write_bytes(whole + b"\0" * 40 + b'", 1]\n')  # the machine lost its power
    assert read_started(tmp_path) == [hostile, SampleKey("b", 0)]
    path.write_bytes(whole + b'["c"]\n')
    with pytest.raises(WorkerError, match=r"started\.jsonl holds no samples"):
        read_started(tmp_path)
