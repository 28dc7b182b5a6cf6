"""Real workers that are killed, stopped, starved of memory or poisoned: the same command ends well, and says so."""

import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from infra.engines.stand_in import is_poisoned
from tests.support.engine_environment import CHECKPOINT, ENGINE_PYTHON, require_engine
from tests.support.evaluation_commands import CONFIG, SUMS, Command, num_finished, only_run, own_cores, samples_of
from tests.support.prefect_server import prefect_server

pytestmark = [pytest.mark.needs_engine, pytest.mark.needs_prefect, pytest.mark.timeout(900)]

Evaluate = Callable[..., Command]
WORKER = "tasks.inference.worker"
ONE_AT_A_TIME = "rollout.max_concurrent_rollouts=1"
NUM_ITEMS = 40
"""Two samples each."""


@pytest.fixture
def evaluate(environment: dict[str, str], api: str, tmp_path: Path) -> Iterator[Evaluate]:
    """Starts commands whose engine is the stand-in unless `overrides` take that back."""
    require_engine()
    started: list[Command] = []

    def start(backend: str, *overrides: str, size: int = NUM_ITEMS, stand_in: bool = True, **variables: str) -> Command:
        config = tmp_path / "config.yaml"
        config.write_text(CONFIG)
        command = Command(
            tmp_path,
            [
                "evaluate",
                str(config),
                f"actor.path={CHECKPOINT}",
                f"cluster.fileroot={tmp_path / 'out'}",
                f"rollout.backend={backend}",
                "rollout.max_concurrent_rollouts=8",
                f"valid_dataset.path={SUMS}",
                f"valid_dataset.limit={size}",
                *(["engine.stand_in.step_s=0.01"] if stand_in else []),
                *overrides,
            ],
            environment | {"PREFECT_API_URL": api} | variables,
            cores=own_cores()[: None if stand_in else 1],  # two threads of an engine on a busy machine spin
        )
        started.append(command)
        return command

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def worker_at_work(command: Command, fileroot: Path) -> psutil.Process:
    """Wait for the first finished samples and return a worker that has a specification."""
    command.wait_for(lambda: (fileroot / "runs").is_dir() and num_finished(fileroot) >= 4)
    at_work = [
        process for process in command.children(WORKER) if any(str(fileroot) in word for word in process.cmdline())
    ]
    return (at_work or command.children(WORKER))[0]


def memory_of_one_sequence(trial: Command, fileroot: Path) -> int:
    """Address space in bytes of the worker of a command that was told ONE_AT_A_TIME; the command ends with that."""
    used = worker_at_work(trial, fileroot).memory_info().vms
    trial.signal_group(signal.SIGINT)
    return used


def limited_python(folder: Path, limit_bytes: int) -> Path:
    """An engine.python whose processes may not take more address space than that."""
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit (util-linux) to limit the workers' memory")
    path = folder / "limited python"
    path.write_text(f'#!/bin/sh\nexec prlimit --as={limit_bytes} -- {ENGINE_PYTHON} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("number", "words", "batch_sizes", "settings"),
    [
        (signal.SIGKILL, "was killed by SIGKILL", {4, 8}, ()),
        (signal.SIGSEGV, "was killed by SIGSEGV", {8}, ()),
        (
            signal.SIGSTOP,
            "is hung: no step of its engine in 8 s (rollout.hang_timeout)",
            {8},
            ("rollout.hang_timeout=8",),
        ),
    ],
)
def test_a_worker_that_is_lost_is_started_again_at_what_it_left(
    evaluate: Evaluate,
    tmp_path: Path,
    number: signal.Signals,
    words: str,
    batch_sizes: set[int],
    settings: tuple[str, ...],
) -> None:
    command = evaluate("vllm:d1", "engine.stand_in.step_s=0.03", *settings)
    worker_at_work(command, tmp_path / "out").send_signal(number)
    summary = command.summary()
    samples = samples_of(summary)
    assert set(samples.column("attempt").to_pylist()) == {1, 2}
    assert set(samples.column("batch_size").to_pylist()) == batch_sizes
    assert (summary.num_failed, summary.num_attempts, summary.num_resumed) == (0, 2, 0)
    assert summary.differences == (f"replica 0 was started again at batch size {min(batch_sizes)}",)
    assert words in command.messages
    assert only_run(tmp_path / "out").read_state().attempts[1].reason.startswith(f"replica 0 {words}")


@pytest.fixture(scope="module")
def known() -> list[pa.Table]:
    """The samples of a run of 12 items without faults, once a test has made it."""
    return []


# with two replicas every item is a canary too, so that the bad one ends both workers before their first sample
@pytest.mark.parametrize(
    ("poison", "settings"),
    [("deadly", ["vllm:d2", "consistency.canaries=12"]), ("hanging", ["vllm:d1", "rollout.hang_timeout=6"])],
)
def test_an_item_that_kills_or_hangs_its_workers_is_set_aside_and_named(
    evaluate: Evaluate, known: list[pa.Table], poison: str, settings: list[str]
) -> None:
    if not known:
        known.append(samples_of(evaluate("vllm:d1", size=12).summary()))
    first = known[0]
    draws = {key: random.Random(f"{key} {poison}").random() for key in first.column("prompt_hash").unique().to_pylist()}
    rate = sorted(draws.values())[0] + 1e-9
    (bad,) = (key for key in draws if is_poisoned(key, poison, rate))  # type: ignore[arg-type]
    command = evaluate(*settings, f"engine.stand_in.{poison}_item_rate={rate!r}", size=12)
    summary = command.summary()
    samples = samples_of(summary)
    failed = samples.filter(pc.field("verdict") == "failed")
    assert set(failed.column("prompt_hash").to_pylist()) == {bad}
    assert failed.num_rows == summary.num_failed == 2
    (item_id,) = set(failed.column("item_id").to_pylist())
    (reason,) = set(failed.column("error").to_pylist())
    assert reason.startswith("set aside: it was alone in its engine when 2 workers ended: replica ")
    assert f"item {item_id} is set aside" in command.messages
    assert f"item {item_id} is set aside" in "\n".join(summary.differences)
    rest = samples.filter(pc.field("prompt_hash") != bad)
    expected = first.filter(pc.field("prompt_hash") != bad)
    for name in ("item_id", "repeat", "completion", "verdict"):
        assert rest.column(name).to_pylist() == expected.column(name).to_pylist(), name


def test_an_idle_replica_takes_over_the_work_of_one_that_hardly_moves(evaluate: Evaluate, tmp_path: Path) -> None:
    # steps are short: a worker that sleeps through its stops would not be slow
    quick = ("rollout.max_concurrent_rollouts=2", "engine.stand_in.mean_tokens=16")
    command = evaluate("vllm:d2", *quick, size=4 * NUM_ITEMS)
    slow = worker_at_work(command, tmp_path / "out")
    while command.process.poll() is None:  # a tenth of the pace
        for number, duration_s in ((signal.SIGSTOP, 0.9), (signal.SIGCONT, 0.1)):
            try:
                slow.send_signal(number)
            except psutil.NoSuchProcess:
                break
            time.sleep(duration_s)
        else:
            continue
        break
    samples = samples_of(command.summary())
    counts = sorted(samples.column("replica").to_pylist().count(replica) for replica in (0, 1))
    assert counts[0] < 4 * NUM_ITEMS * 2 / 3, counts
    assert sum(counts) == 8 * NUM_ITEMS


def test_too_large_a_batch_is_halved_and_the_size_that_fits_is_where_the_next_run_starts(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    sequence_bytes = 384 << 20
    used = memory_of_one_sequence(evaluate("vllm:d1", ONE_AT_A_TIME), tmp_path / "out")
    python = limited_python(tmp_path, used + 3 * sequence_bytes)
    settings = (
        f"engine.stand_in.sequence_bytes={sequence_bytes}",
        f"engine.python={python}",
        "rollout.max_concurrent_rollouts=4",
    )
    command = evaluate("vllm:d1", *settings, size=12)
    samples = samples_of(command.summary())
    assert min(samples.column("batch_size").to_pylist()) == 2
    assert "goes on at batch size 2" in command.messages
    again = evaluate("vllm:d1", *settings, size=12)
    assert set(samples_of(again.summary()).column("batch_size").to_pylist()) == {2}
    assert "goes on at batch size" not in again.messages


def test_what_does_not_fit_alone_is_an_error_that_names_what_to_lower(evaluate: Evaluate, tmp_path: Path) -> None:
    python = limited_python(tmp_path, 8 << 30)
    settings = ("engine.stand_in.sequence_bytes=9000000000", "rollout.max_concurrent_rollouts=2")
    command = evaluate("vllm:d1", *settings, f"engine.python={python}", size=12)
    message = command.failure(1, "batch size 1", "lower gconfig.max_new_tokens", "goes on at batch size 1")
    assert "goes on at batch size 0" not in message
    evaluate("vllm:d1", size=12).summary()


def test_a_bug_surfaces_at_once(evaluate: Evaluate, tmp_path: Path) -> None:
    python = tmp_path / "python with a bug"
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import time\n"
        "sleep = time.sleep\n"
        "def fail(seconds):\n"
        "    if 0 < seconds < 1 and __import__('sys')._getframe(1).f_code.co_name == 'step':\n"
        "        raise RuntimeError('a bug of the engine, out of memory of what it should do')\n"
        "    sleep(seconds)\n"
        "time.sleep = fail\n"
    )
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec {ENGINE_PYTHON} "$@"\n')
    python.chmod(0o755)
    command = evaluate("vllm:d1", f"engine.python={python}")
    message = command.failure(1, "RuntimeError: a bug of the engine")
    assert "goes on" not in message
    assert len(only_run(tmp_path / "out").read_state().attempts) == 1


def starved(evaluate: Evaluate, folder: Path, backend: str, *, batch_size: int, spare_bytes: int, size: int) -> Command:
    """Start a real engine with `spare_bytes` beside what it takes for one sequence at a time."""
    long = f"valid_dataset.prompt_suffix={' Think carefully.' * 64}"  # of short prompts, many need hardly more than one
    settings = ("gconfig.max_new_tokens=8", "actor.dtype=float32", "vllm.max_model_len=2048", long)
    used = memory_of_one_sequence(evaluate(backend, ONE_AT_A_TIME, *settings, stand_in=False), folder / "out")
    python = limited_python(folder, used + spare_bytes)
    sizes = f"rollout.max_concurrent_rollouts={batch_size}"
    return evaluate(backend, sizes, *settings, f"engine.python={python}", size=size, stand_in=False)


def test_vllm_whose_cache_does_not_fit_is_loaded_with_a_smaller_one(evaluate: Evaluate, tmp_path: Path) -> None:
    # 94 MB of cache for each sequence of 2,048 tokens in float32
    command = starved(evaluate, tmp_path, "vllm:d1", batch_size=32, spare_bytes=2_000 << 20, size=8)
    samples = samples_of(command.summary())
    assert set(samples.column("batch_size").to_pylist()) == {16}
    assert "replica 0 goes on at batch size 16: replica 0 ran out of memory at batch size 32" in command.messages


def test_transformers_that_runs_out_while_it_generates_goes_on_with_fewer_at_once(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    # 32 prompts of 200 tokens take 1.1 GB more than one
    command = starved(evaluate, tmp_path, "transformers:d1", batch_size=32, spare_bytes=600 << 20, size=16)
    samples = samples_of(command.summary())
    assert max(samples.column("batch_size").to_pylist()) < 32
    assert "ran out of memory at batch size 32" in command.messages


def test_a_prefect_server_that_dies_costs_no_sample(
    evaluate: Evaluate, own_environment: dict[str, str], tmp_path: Path
) -> None:
    with prefect_server(own_environment, tmp_path) as server:
        command = evaluate(
            "vllm:d1", "engine.stand_in.step_s=0.05", PREFECT_API_URL=server.api, PREFECT_CLIENT_MAX_RETRIES="3"
        )
        worker_at_work(command, tmp_path / "out")
        server.end()
    messages = command.failure(1, "the Prefect server does not answer any more", "run the same command to go on")
    assert not re.search(r"prefect\.|logging to API|EventsWorker", messages), messages
    num_kept = num_finished(tmp_path / "out")
    summary = evaluate("vllm:d1").summary()
    assert (summary.num_resumed, summary.num_failed) == (num_kept, 0)
    assert samples_of(summary).column("attempt").to_pylist().count(1) == num_kept >= 4
