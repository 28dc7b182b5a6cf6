"""A real worker on the real model: all work done once, nothing lost or left behind when it or its controller dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.files.log_files import log_tail
from infra.launchers.local import LocalLauncher
from schemas.errors import EngineError, EngineOutOfMemoryError, WorkerError
from schemas.identity import prompt_hash, sample_seed
from schemas.inference import EngineName, EngineSpec, SampleRecord, WorkerSpec
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInSpec
from schemas.states import FinishReason, WorkerOutcome
from schemas.tables import PROMPT_SCHEMA, WORK_SCHEMA
from tasks.inference.exchange.journal import JournalFollower, finished_samples, read_journal
from tasks.inference.exchange.worker_files import read_heartbeat, read_result
from tasks.inference.replicas.supervision import run_replica
from tests.support.engine_environment import CHECKPOINT, ENGINE_PYTHON, IM_END, ROOT, chat_token_ids, require_engine
from tests.support.processes import is_alive
from tests.support.worker_launch import PATIENCE_S, launch

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(1500)]

"""A loaded machine takes a minute to import vLLM."""


@pytest.fixture(autouse=True)
def _engine() -> None:
    require_engine()


def prepare(
    folder: Path, engine: EngineName, *, num_items: int = 6, repeats: int = 2, tokens: int = 6, **changes: object
) -> WorkerSpec:
    """Write prompts and work for a worker in `folder`, the last item's prompt being too long."""
    rows = [
        {
            "item_id": f"item-{number}",
            "prompt_hash": prompt_hash(ids),
            "prompt": "",
            "token_ids": ids,
            "gold": "",
            "grader": "math",
            "grader_data": "",
            "subsets": [],
        }
        for number in range(num_items)
        for ids in [chat_token_ids(f"Say {number}.") if number < num_items - 1 else [300] * 200]
    ]
    work = [{"item_id": f"item-{number}", "repeat": repeat} for number in range(num_items) for repeat in range(repeats)]
    output = folder / "replica 0"
    output.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA), folder / "prompts.parquet")
    pq.write_table(pa.Table.from_pylist(work, schema=WORK_SCHEMA), output / "work.parquet")
    spec = EngineSpec(engine=engine, model_path=CHECKPOINT, dtype="float32", max_model_len=128, batch_size=4, seed=7)
    return WorkerSpec(
        run_id="run",
        replica=0,
        attempt=1,
        engine=spec.model_copy(update=changes),
        sampling=SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=tokens, eos_token_ids=(IM_END,)),
        seed=7,
        prompts_path=folder / "prompts.parquet",
        work_path=output / "work.parquet",
        output_dir=output,
        num_threads=1,
        heartbeat_interval_s=0.5,
    )


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_a_worker_makes_all_its_work_once_and_a_refused_request_is_a_record(tmp_path: Path, engine: EngineName) -> None:
    spec = prepare(tmp_path, engine)
    result = run_replica(spec, LocalLauncher(), launch(tmp_path))
    records = list(read_journal(spec.output_dir))
    assert sorted((each.item_id, each.repeat) for each in records) == sorted(
        (f"item-{number}", repeat) for number in range(6) for repeat in range(2)
    )
    made = [each for each in records if each.item_id != "item-5"]
    for each in made:
        check_made(each)
    refused = [each for each in records if each.item_id == "item-5"]
    assert {(each.finish_reason, each.completion, each.num_completion_tokens) for each in refused} == {(None, "", 0)}
    assert all("200" in (each.error or "") for each in refused)
    assert result.outcome is WorkerOutcome.COMPLETED
    assert result.num_done == 12
    assert result.num_completion_tokens == sum(each.num_completion_tokens for each in records)
    assert result.facts is not None
    assert result.facts.dtype == "float32"
    assert result.startup_s is not None
    assert result.first_token_s is not None
    assert result.generate_s is not None
    assert result.startup_s < result.first_token_s < result.startup_s + result.generate_s + 1
    assert [path.name for path in (spec.output_dir / "segments").iterdir()] == ["00000.parquet"]


def check_made(each: SampleRecord) -> None:
    ids = chat_token_ids(f"Say {each.item_id[5:]}.")
    assert (each.prompt_hash, each.num_prompt_tokens) == (prompt_hash(ids), len(ids))
    assert each.seed == sample_seed(7, each.item_id, each.repeat)
    assert each.finish_reason in FinishReason
    assert 1 <= each.num_completion_tokens <= 6
    assert each.mean_logprob is not None
    assert each.error is None
    assert (each.batch_size, each.replica, each.attempt) == (4, 0, 1)


CONTROLLER = """
import sys
from pathlib import Path
from infra.launchers.local import LocalLauncher
from tasks.inference.replicas.supervision import run_replica
from tasks.inference.exchange.worker_files import read_spec
from tests.support.worker_launch import launch
folder = Path(sys.argv[1])
run_replica(read_spec(folder / "given.json"), LocalLauncher(), launch(folder))
"""


def start_controller(folder: Path, spec: WorkerSpec) -> subprocess.Popen[bytes]:
    (folder / "given.json").write_text(spec.model_dump_json())
    return subprocess.Popen([sys.executable, "-c", CONTROLLER, str(folder)], cwd=ROOT, stderr=subprocess.PIPE)


def wait_for_samples(spec: WorkerSpec, folder: Path, count: int) -> int:
    """Return the worker's process id once it has finished `count` samples."""
    follower = JournalFollower(spec.output_dir)
    seen = 0
    deadline = time.monotonic() + PATIENCE_S
    while seen < count:
        assert time.monotonic() < deadline, log_tail(folder / "log.txt")
        time.sleep(0.02)
        seen += sum(table.num_rows for table in follower.new_tables())
    heartbeat = read_heartbeat(spec.output_dir)
    assert heartbeat is not None
    return heartbeat.pid


def work_left(spec: WorkerSpec, folder: Path, attempt: int) -> WorkerSpec:
    """The specification of the next attempt, for what the earlier ones have not finished."""
    done = finished_samples(path for path in folder.iterdir() if (path / "segments").is_dir())
    left = [row for row in pq.read_table(spec.work_path).to_pylist() if (row["item_id"], row["repeat"]) not in done]
    output = folder / f"attempt {attempt}"
    output.mkdir()
    pq.write_table(pa.Table.from_pylist(left, schema=WORK_SCHEMA), output / "work.parquet")
    return spec.model_copy(
        update={"attempt": attempt, "output_dir": output, "work_path": output / "work.parquet"},
    )


def test_no_sample_is_lost_to_a_kill_of_the_worker_or_its_controller_and_none_is_made_again(tmp_path: Path) -> None:
    spec = prepare(tmp_path, "vllm", num_items=40, repeats=3, tokens=24)
    rows = pq.read_table(spec.work_path).to_pylist()
    controller = start_controller(tmp_path, spec)
    pid = wait_for_samples(spec, tmp_path, 5)
    time.sleep(int.from_bytes(os.urandom(1)) / 256)  # any moment of a step
    heartbeat = read_heartbeat(spec.output_dir)
    os.kill(pid, signal.SIGKILL)
    _, errors = controller.communicate(timeout=60)
    assert b"WorkerLostError" in errors
    assert b"SIGKILL" in errors
    assert heartbeat is not None
    done = finished_samples([spec.output_dir])
    # a heartbeat counts what was finished up to an interval ago: all of it is in the journal
    assert max(5, heartbeat.num_done) <= len(done) < len(rows)

    second = work_left(spec, tmp_path, 2)
    controller = start_controller(tmp_path, second)
    pid = wait_for_samples(second, tmp_path, 2)
    controller.kill()
    controller.communicate()
    began = time.monotonic()
    while is_alive(pid):
        assert time.monotonic() - began < 60.0
        time.sleep(0.02)
    result = read_result(second.output_dir)
    assert result is not None
    assert result.outcome is WorkerOutcome.CANCELLED
    assert len(finished_samples([second.output_dir])) >= 2

    third = work_left(second, tmp_path, 3)
    stand_in = StandInSpec(answers_path=spec.prompts_path, step_s=0, mean_tokens=4)
    engine = third.engine.model_copy(update={"engine": "stand_in", "stand_in": stand_in})
    third = third.model_copy(update={"engine": engine})
    run_replica(third, LocalLauncher(), launch(tmp_path))
    made = [each for attempt in (spec, second, third) for each in read_journal(attempt.output_dir)]
    assert sorted((each.item_id, each.repeat) for each in made) == sorted(
        (row["item_id"], row["repeat"]) for row in rows
    )


def test_a_worker_that_is_asked_to_stop_keeps_its_samples(tmp_path: Path) -> None:
    spec = prepare(tmp_path, "transformers", num_items=40, repeats=3, tokens=64)
    controller = start_controller(tmp_path, spec)
    pid = wait_for_samples(spec, tmp_path, 2)
    os.kill(pid, signal.SIGTERM)
    _, errors = controller.communicate(timeout=60)
    assert b"received SIGTERM" in errors
    assert len(finished_samples([spec.output_dir])) >= 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"memory_ratio": 1e-4}, EngineOutOfMemoryError),
        ({"dtype": "float31"}, EngineError),
        ({"model_path": ROOT / "schemas"}, EngineError),
    ],
)
def test_an_engine_that_cannot_start_says_why(
    tmp_path: Path, changes: dict[str, object], error: type[Exception]
) -> None:
    spec = prepare(tmp_path, "vllm", **changes)
    with pytest.raises(error) as caught:
        run_replica(spec, LocalLauncher(), launch(tmp_path))
    assert str(tmp_path / "log.txt") in str(caught.value)
    assert not isinstance(caught.value, WorkerError)


def test_a_worker_imports_in_the_engine_environment_without_its_engine_or_prefect() -> None:
    code = (
        "import sys, tasks.inference.worker.process\n"
        "loaded = {'vllm', 'torch', 'transformers', 'prefect', 'omegaconf'} & set(sys.modules)\n"
        "print(sorted(loaded))"
    )
    done = subprocess.run(
        [ENGINE_PYTHON, "-P", "-c", code],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
