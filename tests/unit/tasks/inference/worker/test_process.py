"""A worker without an engine: what it reads, what it leaves, and how it is stopped while its main thread is busy."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.launchers.waiting import Order
from schemas.errors import WorkerError
from schemas.inference import EngineImport, EngineSpec, Heartbeat, WorkerResult, WorkerSpec
from schemas.sampling import SamplingSpec
from schemas.states import WorkerOutcome, WorkerPhase
from schemas.tables import PROMPT_SCHEMA, WORK_SCHEMA
from tasks.inference.exchange.worker_files import EXIT_CODES, WAIT, read_heartbeat, read_result, read_spec, write_spec
from tasks.inference.worker.process import PromptTable, Worker

ROOT = Path(__file__).resolve().parents[5]


def prompts(*item_ids: str) -> pa.Table:
    rows = [
        {
            "item_id": item_id,
            "prompt_hash": "",
            "prompt": item_id,
            "token_ids": [number, number + 1],
            "gold": "",
            "grader": "math",
            "grader_data": "",
            "subsets": [],
        }
        for number, item_id in enumerate(item_ids)
    ]
    return pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)


@pytest.fixture
def spec(tmp_path: Path) -> WorkerSpec:
    """A worker whose engine has no adapter: it gets as far as opening it."""
    pq.write_table(prompts("a", "b"), tmp_path / "prompts.parquet")
    work = [{"item_id": item_id, "repeat": repeat} for item_id in "ab" for repeat in range(2)]
    pq.write_table(pa.Table.from_pylist(work, schema=WORK_SCHEMA), tmp_path / "work.parquet")
    return WorkerSpec(
        run_id="run",
        replica=0,
        attempt=1,
        engine=EngineSpec(engine="openai", model_path=tmp_path, dtype="auto", max_model_len=64, batch_size=2, seed=0),
        sampling=SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=4, eos_token_ids=(2,)),
        seed=0,
        prompts_path=tmp_path / "prompts.parquet",
        work_path=tmp_path / "work.parquet",
        output_dir=tmp_path,
        heartbeat_interval_s=0.1,
    )


def test_prompts_are_found_by_item(spec: WorkerSpec) -> None:
    table = PromptTable(spec.prompts_path)
    assert table.token_ids("b") == [1, 2]
    with pytest.raises(WorkerError, match=r"'c'.*has 2 items"):
        table.token_ids("c")


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


WORKER = "from tasks.inference.worker.process import main; main()"


def test_a_worker_started_ahead_takes_its_work_from_stdin_and_ends_without(spec: WorkerSpec) -> None:
    engine = EngineImport(engine="openai", num_threads=1, strict=False)
    ahead = [start(WORKER, WAIT, engine.model_dump_json()) for _ in range(2)]
    order = Order(arguments=(str(write_spec(spec)),), cwd=spec.output_dir, log_path=spec.output_dir / "log")
    _, errors = ahead[0].communicate(order.model_dump_json().encode() + b"\n")
    assert ahead[0].returncode == EXIT_CODES[WorkerOutcome.FAILED], errors
    result = read_result(spec.output_dir)
    assert result is not None
    assert "engine 'openai' has no adapter" in result.message
    assert "worker failed: engine 'openai'" in (spec.output_dir / "log").read_text()
    assert (ahead[1].communicate(b"")[1], ahead[1].returncode) == (b"", 0)


def test_a_worker_that_cannot_open_its_engine_leaves_a_result_and_the_exit_code(spec: WorkerSpec) -> None:
    with start(WORKER, str(write_spec(spec))) as worker:
        _, errors = worker.communicate(timeout=60)
    result = read_result(spec.output_dir)
    assert worker.returncode == EXIT_CODES[WorkerOutcome.FAILED]
    assert result is not None
    assert result.outcome is WorkerOutcome.FAILED
    assert "openai" in result.message
    assert b"openai" in errors
    heartbeat = read_heartbeat(spec.output_dir)
    assert heartbeat is not None
    assert (heartbeat.phase, heartbeat.num_work, heartbeat.pid) == (WorkerPhase.FINISHED, 4, worker.pid)


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("malloc of size 64 failed")])
def test_want_of_memory_beside_the_engine_is_want_of_memory(
    spec: WorkerSpec, error: MemoryError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> PromptTable:
        raise error

    monkeypatch.setattr("tasks.inference.worker.process.PromptTable", fail)
    result = Worker(spec, time.monotonic()).run()
    assert result.outcome is WorkerOutcome.OUT_OF_MEMORY
    assert result.message == f"{type(error).__name__}: {error}"


def test_a_worker_without_a_readable_spec_says_so(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"run_id": 1}')
    with start(WORKER, str(tmp_path / "spec.json")) as worker:
        _, errors = worker.communicate(timeout=60)
    assert worker.returncode == EXIT_CODES[WorkerOutcome.FAILED]
    assert b"no worker spec" in errors
    with pytest.raises(WorkerError):
        read_spec(tmp_path / "spec.json")


BUSY = """
import hashlib, sys, threading, time
from pathlib import Path
from tasks.inference.worker.heartbeat import HeartbeatThread, call_when_asked_to_stop
from tasks.inference.worker.process import Worker
from tasks.inference.exchange.worker_files import read_spec
from tests.support.sample_records import record

worker = Worker(read_spec(Path(sys.argv[1])), time.monotonic())
worker.journal.append(record(1))
worker.progress.num_done = 1
call_when_asked_to_stop(worker.abandon, with_controller="--stop-on-stdin-eof" in sys.argv, interval_s=0.1)
HeartbeatThread(
    worker.spec.output_dir, worker.progress, interval_s=0.1, sync=worker.journal.sync, give_up=worker.abandon
).start()
while True:  # native code that lets no Python signal handler run, as an engine's long step
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""


@pytest.fixture
def busy(spec: WorkerSpec) -> Iterator[subprocess.Popen[bytes]]:
    with start(BUSY, str(write_spec(spec)), "--stop-on-stdin-eof") as worker:
        deadline = time.monotonic() + 60
        while read_heartbeat(spec.output_dir) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield worker
        worker.kill()


def check_abandoned(worker: subprocess.Popen[bytes], spec: WorkerSpec, reason: str) -> None:
    worker.wait(timeout=60)
    result = read_result(spec.output_dir)
    assert worker.returncode == EXIT_CODES[WorkerOutcome.CANCELLED]
    assert result is not None
    assert (result.outcome, result.num_done) == (WorkerOutcome.CANCELLED, 1)
    assert reason in result.message
    assert (spec.output_dir / "segments" / "00000.jsonl").read_bytes().endswith(b"\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_busy_worker_with_its_samples_kept(
    busy: subprocess.Popen[bytes], spec: WorkerSpec, number: signal.Signals
) -> None:
    busy.send_signal(number)
    check_abandoned(busy, spec, number.name)


def test_the_end_of_input_ends_a_busy_worker(busy: subprocess.Popen[bytes], spec: WorkerSpec) -> None:
    assert busy.stdin is not None
    busy.stdin.close()
    check_abandoned(busy, spec, "the controller is gone")


PARENT = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdin=sys.stdin)
print(worker.pid, flush=True)
time.sleep(60)
"""


def test_an_orphan_ends_even_when_its_input_stays_open(spec: WorkerSpec) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-c", PARENT, BUSY, str(write_spec(spec)), "--stop-on-stdin-eof"]
    with subprocess.Popen(command, cwd=ROOT, stdin=reader, stdout=subprocess.PIPE) as parent:
        deadline = time.monotonic() + 60
        while read_heartbeat(spec.output_dir) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        parent.kill()
    result: WorkerResult | None = None
    while result is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        result = read_result(spec.output_dir)
    os.close(reader)
    os.close(writer)
    assert "another parent" in result.message


def test_a_heartbeat_reads_back_and_its_absence_or_ruin_is_none(tmp_path: Path) -> None:
    assert read_heartbeat(tmp_path) is None
    (tmp_path / "heartbeat.json").write_text(Heartbeat(phase=WorkerPhase.LOADING, pid=1, time=2.0).model_dump_json())
    assert read_heartbeat(tmp_path) == Heartbeat(phase=WorkerPhase.LOADING, pid=1, time=2.0)
    for text in ("", "{}", "\0" * 80):  # as a node leaves it that loses its power
        (tmp_path / "heartbeat.json").write_text(text)
        assert read_heartbeat(tmp_path) is None
