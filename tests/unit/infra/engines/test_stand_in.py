"""The try-out engine behaves like an engine: queue, batch, seeds, lengths, and answers right at the set rate."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.engines.base import GenerationRequest, RequestRefusedError
from infra.engines.selection import open_engine
from infra.engines.stand_in import is_poisoned
from schemas.errors import EngineError
from schemas.identity import prompt_hash
from schemas.inference import EngineSpec
from schemas.states import FinishReason
from tests.support.stand_in_engine import GOLD, SAMPLING, complete, engine_spec, prompt, requests


def test_answers_are_right_at_the_set_rate_and_lengths_have_the_set_mean(tmp_path: Path) -> None:
    spec = engine_spec(tmp_path, num_items=4000, accuracy=0.3, mean_tokens=20)
    done = complete(spec, requests(4000))
    assert len(done) == 4000
    assert np.mean([f"{{{GOLD}}}" in each.text for each in done]) == pytest.approx(0.3, abs=0.03)
    assert np.mean([len(each.token_ids) for each in done]) == pytest.approx(20, rel=0.05)


def test_a_completion_depends_on_prompt_and_seed_alone(tmp_path: Path) -> None:
    def outcome(batch_size: int, **changes: Any) -> list[tuple[str, tuple[int, ...]]]:
        done = complete(engine_spec(tmp_path, batch_size=batch_size), requests(4, **changes))
        return [(each.text, each.token_ids) for each in done]

    assert outcome(1) == outcome(8)
    assert outcome(8) != outcome(8, seed=6)
    greedy = SAMPLING.model_copy(update={"temperature": 0.0})
    assert outcome(8, sampling=greedy) == outcome(8, sampling=greedy, seed=6)


def test_a_completion_without_room_is_cut_before_its_answer(tmp_path: Path) -> None:
    short = SAMPLING.model_copy(update={"max_new_tokens": 2})
    (done,) = complete(engine_spec(tmp_path, accuracy=1), requests(1, sampling=short))
    assert (done.finish_reason, len(done.token_ids)) == (FinishReason.LENGTH, 2)
    assert GOLD not in done.text


def test_logprobs_come_when_asked_for(tmp_path: Path) -> None:
    (told,) = complete(engine_spec(tmp_path), requests(1, with_logprobs=True))
    (silent,) = complete(engine_spec(tmp_path), requests(1))
    assert silent.logprobs is None
    assert told.logprobs is not None
    assert told.mean_logprob == pytest.approx(np.mean(told.logprobs))
    assert len(told.logprobs) == len(told.token_ids)


def test_a_batch_takes_its_steps(tmp_path: Path) -> None:
    spec = engine_spec(tmp_path, step_s=0.001, mean_tokens=20)
    (done,) = complete(spec, requests(1))
    assert done.latency_s >= 0.001 * len(done.token_ids)


def in_a_process(spec: EngineSpec, *, more_memory_bytes: int = 1 << 40) -> subprocess.Popen[str]:
    """Generates one sample per item in a process of its own, which says how many it made."""
    code = (
        f"import resource, sys; sys.path[:0] = {sys.path!r}\n"
        "from tests.support.stand_in_engine import EngineSpec, complete, requests\n"
        f"spec = EngineSpec.model_validate_json({spec.model_dump_json()!r})\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (now + {more_memory_bytes},) * 2)\n"
        "print(len(complete(spec, requests(20))))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("batch_size", "fits"), [(20, False), (4, True)])
def test_memory_is_really_taken_and_its_want_is_told_as_such(tmp_path: Path, batch_size: int, fits: bool) -> None:
    spec = engine_spec(tmp_path, num_items=20, batch_size=batch_size, sequence_bytes=1 << 26)
    output, errors = in_a_process(spec, more_memory_bytes=900 << 20).communicate(timeout=120)
    if fits:
        assert output.strip() == "20", errors
    else:
        assert "EngineOutOfMemoryError: stand_in ran out of memory with batch_size 20" in errors


def test_a_deadly_item_kills_its_process_and_a_hanging_one_stops_it(tmp_path: Path) -> None:
    keys = [prompt_hash(prompt(number)) for number in range(1000)]
    rate = np.mean([is_poisoned(key, "deadly", 0.1) for key in keys])
    assert rate == pytest.approx(0.1, abs=0.04)
    deadly = in_a_process(engine_spec(tmp_path, deadly_item_rate=0.2))
    assert deadly.communicate(timeout=120)[0] == ""
    assert deadly.returncode == -signal.SIGSEGV
    hanging = in_a_process(engine_spec(tmp_path, hanging_item_rate=0.2))
    with pytest.raises(subprocess.TimeoutExpired):
        hanging.communicate(timeout=5)
    hanging.kill()
    assert hanging.communicate()[0] == ""


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    engine = open_engine(engine_spec(tmp_path), SAMPLING, 1)
    with pytest.raises(RequestRefusedError, match="2048 tokens; allowed: 1 to max_model_len - 1, 2047"):
        engine.add(GenerationRequest(request_id="0", prompt_token_ids=[1] * 2048, seed=0))
    spec = engine_spec(tmp_path)
    (tmp_path / "prompts.parquet").unlink()
    with pytest.raises(EngineError, match="cannot be read for golds"):
        open_engine(spec, SAMPLING, 1)
