"""`milepost evaluate` end to end, on real engines and a real Prefect server: what it publishes, what it survives."""

import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import duckdb
import polars
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import flows.evaluate
from flows.interruption import Interrupted
from schemas.states import RunStatus
from tasks.inference.exchange.worker_files import WAIT
from tests.support.engine_environment import CHECKPOINT, require_engine
from tests.support.evaluation_commands import (
    CONFIG,
    END_S,
    SUMS,
    Command,
    ended,
    keys,
    num_finished,
    only_run,
    own_cores,
    records_of,
    samples_of,
)
from tests.support.prefect_server import artifact_kind, ask_api

pytestmark = [pytest.mark.needs_engine, pytest.mark.needs_prefect, pytest.mark.timeout(1500)]

TWO_TASKS = ("valid_dataset.path=reasoning_gym:chain_sum+basic_arithmetic?size=8&seed=1", "valid_dataset.limit=null")
GREEDY = ("gconfig.temperature=0", "gconfig.n_samples=1", "gconfig.max_new_tokens=16")
SLOW = ("engine.stand_in.step_s=0.02",)
"""The stand-in, slow enough to be interrupted: a batch of four answers takes a second and more."""
TASKS = {
    "resolve-checkpoint",
    "load-validation-set",
    "check-drift",
    "plan-run",
    "run-inference-0",
    "grade",
    "check-consistency",
    "merge-samples",
    "compare-outputs",
    "aggregate-metrics",
    "check-regression",
    "check-degeneration",
    "publish",
}
Evaluate = Callable[..., Command]


@pytest.fixture(autouse=True, scope="module")
def _engine() -> None:
    require_engine()


@pytest.fixture
def evaluate(environment: dict[str, str], api: str, tmp_path: Path) -> Iterator[Evaluate]:
    """Starts commands that use the server of these tests, in `out` of the test's folder unless told otherwise."""
    yield from _starter(environment | {"PREFECT_API_URL": api}, tmp_path)


@pytest.fixture
def evaluate_alone(own_environment: dict[str, str], tmp_path: Path) -> Iterator[Evaluate]:
    """Starts commands that must bring a Prefect server of their own."""
    yield from _starter(own_environment, tmp_path, is_fresh=True)


@pytest.fixture
def evaluate_on_new_machine(environment: dict[str, str], tmp_path: Path) -> Iterator[Evaluate]:
    """The same on a machine that Prefect has never seen."""
    yield from _starter(environment | {"PREFECT_HOME": str(tmp_path / "no-prefect-yet")}, tmp_path, is_fresh=True)


def _starter(environment: dict[str, str], folder: Path, *, is_fresh: bool = False) -> Iterator[Evaluate]:
    started: list[Command] = []
    cores = own_cores()

    def start(engine: str, overrides: Sequence[str] = (), *, fileroot: Path = folder / "out", size: int = 8) -> Command:
        config = folder / "config.yaml"
        config.write_text(CONFIG)
        command = Command(
            folder,
            [
                "evaluate",
                str(config),
                f"actor.path={CHECKPOINT}",
                f"cluster.fileroot={fileroot}",
                f"rollout.backend={engine}",
                "rollout.max_concurrent_rollouts=4",
                f"valid_dataset.path={SUMS}",
                f"valid_dataset.limit={size}",
                *overrides,
            ],
            environment,
            is_fresh=is_fresh,
            # engine threads that outnumber free cores are ten times slower: as many cores as replicas, in turn
            cores=[cores[(len(started) + number) % len(cores)] for number in range(int(engine[-1]))],
        )
        started.append(command)
        return command

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def test_a_run_is_published_and_shown_and_replicas_change_nothing(evaluate: Evaluate, api: str, tmp_path: Path) -> None:
    first = evaluate("vllm:d1", [*GREEDY, *TWO_TASKS]).summary()
    assert (first.num_planned, first.num_failed, first.num_attempts, first.num_resumed) == (8, 0, 1, 0)
    samples = samples_of(first)
    for row in samples.select(
        ["completion_token_ids", "token_logprobs", "mean_logprob", "num_completion_tokens"]
    ).to_pylist():
        assert len(row["completion_token_ids"]) == len(row["token_logprobs"]) == row["num_completion_tokens"]
        assert fmean(row["token_logprobs"]) == pytest.approx(row["mean_logprob"], abs=1e-5)
    _check_metrics(first.store, samples)
    _check_readers(first.store, num_runs=1)
    _check_prefect(api, tmp_path / "out")

    second = evaluate("vllm:d2", [*GREEDY, *TWO_TASKS]).summary()
    assert second.run_id != first.run_id, "a finished run is not taken up again"
    assert (second.num_attempts, second.num_resumed) == (1, 0)
    again = samples_of(second)
    assert set(again.column("replica").to_pylist()) == {0, 1}
    for name in ("item_id", "seed", "prompt_hash", "completion", "verdict", "answer"):
        assert again.column(name).to_pylist() == samples.column(name).to_pylist(), name
    _check_readers(first.store, num_runs=2)


def test_samples_are_graded_again_without_an_engine(
    evaluate: Evaluate, environment: dict[str, str], api: str, tmp_path: Path
) -> None:
    rewarded = (*GREEDY, *TWO_TASKS, "engine.stand_in.step_s=0", "reward_fn=my_rewards.by_length")
    first = evaluate("vllm:d1", rewarded).failure(2, "my_rewards")
    assert "working directory" in first
    (tmp_path / "my_rewards.py").write_text(
        "def by_length(prompt, completions, prompt_ids, completion_ids, answer, metadata, **data):\n"
        "    assert prompt_ids and completion_ids\n"
        "    return len(completion_ids) / 100\n"
    )
    before = evaluate("vllm:d1", [*rewarded, "store.keep_tokens=false"]).summary()
    samples = samples_of(before)
    assert samples.column("completion_token_ids").null_count == 0  # the reward function reads them
    assert samples.column("token_logprobs").null_count == samples.num_rows
    assert samples.column("reward").to_pylist() == [
        n / 100 for n in samples.column("num_completion_tokens").to_pylist()
    ]
    assert "reward" in {row.metric for row in before.metrics}

    def regrade(*arguments: str) -> Command:
        command = ["regrade", *arguments, f"--fileroot={tmp_path / 'out'}"]
        return Command(tmp_path, command, environment | {"PREFECT_API_URL": api}, cores=[0])

    after = regrade(before.run_id, "reward_fn=auto").summary()
    assert after.run_id != before.run_id
    again = samples_of(after)
    assert again.column("reward").null_count == again.num_rows
    for name in ("item_id", "repeat", "completion", "seed", "attempt", "replica"):
        assert again.column(name).to_pylist() == samples.column(name).to_pylist(), name
    assert samples_of(before) == samples, "the old run stays as it was"
    runs = pyarrow.dataset.dataset(after.store / "runs").to_table().to_pylist()
    assert {run["run_id"]: run["regrade_of"] for run in runs} == {before.run_id: None, after.run_id: before.run_id}

    regrade(before.run_id, "gconfig.max_new_tokens=32").failure(2, "gconfig", "makes no sample")
    regrade("20200101-000000-none").failure(2, "milepost runs")


def _check_metrics(store: Path, samples: pa.Table) -> None:
    metrics = pyarrow.dataset.dataset(store / "metrics").to_table().to_pylist()
    values = {(row["subset"], row["metric"]): row for row in metrics}
    assert {subset for subset, _ in values} == {"all", "task=chain_sum", "task=basic_arithmetic"}
    verdicts = Counter(samples.column("verdict").to_pylist())
    accuracy = values["all", "accuracy"]
    assert accuracy["value"] == pytest.approx(verdicts["correct"] / accuracy["num_scored"])
    assert accuracy["num_scored"] + accuracy["num_failed"] == accuracy["num_planned"] == samples.num_rows
    assert accuracy["num_scored"] == pc.count(samples.column("score")).as_py()
    length = values["all", "response_length"]["value"]
    assert length == pytest.approx(pc.mean(samples.column("num_completion_tokens")).as_py())
    parts = [values[f"task={name}", "accuracy"]["num_planned"] for name in ("chain_sum", "basic_arithmetic")]
    assert sum(parts) == accuracy["num_planned"]


def _check_readers(store: Path, *, num_runs: int) -> None:
    pattern = f"{store}/samples/**/*.parquet"
    with duckdb.connect() as connection:
        counted = connection.sql(f"select count(*), count(distinct run_id) from '{pattern}'").fetchall()
    assert counted == [(8 * num_runs, num_runs)]
    assert polars.scan_parquet(f"{store}/samples").select(polars.len()).collect().item() == 8 * num_runs
    assert pyarrow.dataset.dataset(store / "runs").count_rows() == num_runs


def _check_prefect(api: str, fileroot: Path) -> None:
    (flow_run,) = [
        run
        for run in ask_api(api, "flow_runs/filter", {"sort": "START_TIME_DESC"})
        if run["parameters"]["config"]["cluster"]["fileroot"] == str(fileroot)
    ]
    assert flow_run["state_type"] == "COMPLETED"
    only = {"flow_runs": {"id": {"any_": [flow_run["id"]]}}}
    task_runs: list[dict[str, Any]] = []
    deadline = time.monotonic() + 120
    while len(task_runs) < len(TASKS) or any(run["state_type"] != "COMPLETED" for run in task_runs):
        assert time.monotonic() < deadline, [(run["name"], run["state_type"]) for run in task_runs]
        time.sleep(0.2)  # task runs reach the database through a queue
        task_runs = ask_api(api, "task_runs/filter", only)
    assert {run["name"] for run in task_runs if run["name"].startswith("run-inference")} == {"run-inference-0"}
    assert {_task_name(run["name"]) for run in task_runs} == TASKS
    artifacts = {artifact_kind(artifact["key"]): artifact for artifact in ask_api(api, "artifacts/filter", only)}
    assert (artifacts["replica-0"]["type"], artifacts["replica-0"]["data"]) == ("progress", 100.0)
    rows = json.loads(artifacts["metrics"]["data"])
    assert [row["subset"] for row in rows] == ["all", "task=basic_arithmetic", "task=chain_sum"]


def _task_name(run_name: str) -> str:
    return run_name if run_name.startswith("run-inference-") else run_name.rsplit("-", 1)[0]


def test_a_killed_command_takes_its_own_prefect_server_along_and_goes_on_where_it_was_with_other_replicas(
    evaluate: Evaluate, evaluate_alone: Evaluate, tmp_path: Path
) -> None:
    fileroot = tmp_path / "out"
    command = evaluate_alone("vllm:d1", SLOW, size=16)
    command.wait_for(lambda: num_finished(fileroot) >= 6)
    run = only_run(fileroot)
    seen = keys(records_of(run, 1))
    workers = command.children("tasks.inference.worker")
    helpers = psutil.Process(command.process.pid).children(recursive=True)
    assert len(workers) == 1
    assert len(command.children("flows.orchestration.local_server")) == 1
    time.sleep(1.0)
    command.process.kill()
    command.finish()
    assert ended(helpers, 60.0)  # one that imports its engine hears of it after that
    kept = keys(records_of(run, 1))
    assert seen <= kept
    assert len(kept) < 32
    assert run.read_state().status is RunStatus.RUNNING

    resumed = evaluate("vllm:d2", SLOW, size=16)
    summary = resumed.summary()
    assert summary.run_id == run.run_id
    assert (summary.num_attempts, summary.num_resumed, summary.num_planned) == (2, len(kept), 32)
    assert keys(records_of(run, 2)).isdisjoint(kept)
    assert "num_replicas 1 -> 2" in summary.differences
    assert "num_replicas 1 -> 2" in resumed.messages
    samples = samples_of(summary)
    assert set(samples.column("attempt").to_pylist()) == {1, 2}
    assert len(set(samples.column("seed").to_pylist())) == 32


def test_the_work_of_a_killed_worker_is_taken_up_by_another(evaluate: Evaluate, tmp_path: Path) -> None:
    fileroot = tmp_path / "out"
    command = evaluate("transformers:d1", ["gconfig.max_new_tokens=24", "gconfig.min_new_tokens=16"], size=6)
    command.wait_for(lambda: num_finished(fileroot) >= 2)
    (worker,) = command.children("tasks.inference.worker")
    assert WAIT in worker.cmdline(), "it was started anew, though it could have imported its engine meanwhile"
    worker.kill()
    summary = command.summary()
    assert "SIGKILL" in command.messages
    assert summary.num_attempts == 2
    assert summary.num_resumed == 0
    assert samples_of(summary).num_rows == 12
    first, second = (keys(records_of(only_run(fileroot), attempt)) for attempt in (1, 2))
    assert len(first) >= 2
    assert len(first) + len(second) == 12


@pytest.mark.parametrize(("number", "starter"), [(signal.SIGINT, "evaluate_alone"), (signal.SIGTERM, "evaluate")])
def test_an_interrupted_command_ends_and_leaves_nothing_running(
    request: pytest.FixtureRequest, tmp_path: Path, number: signal.Signals, starter: str
) -> None:
    fileroot = tmp_path / "out"
    command: Command = request.getfixturevalue(starter)("vllm:d1", SLOW, size=16)
    command.wait_for(lambda: num_finished(fileroot) >= 1)
    helpers = psutil.Process(command.process.pid).children(recursive=True)
    assert len(command.children("flows.orchestration.local_server")) == (starter == "evaluate_alone")
    assert len(command.children("tasks.inference.worker")) == 1
    took_s = command.signal_group(number)
    assert took_s < END_S
    command.failure(128 + number, f"interrupted by {number.name}", "run the same command to go on")
    assert ended(helpers)
    state = only_run(fileroot).read_state()
    assert (state.status, state.error) == (RunStatus.FAILED, "interrupted")
    assert list((fileroot / "pins").iterdir()) == []


def test_replicas_submitted_before_an_interruption_are_stopped_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, waited = threading.Event(), list[bool]()

    class Replica:
        _final_state = None

        def wait(self) -> None:
            waited.append(stopping.is_set())

    class Task:
        def with_options(self, **_options: str) -> "Task":
            return self

        def submit(self, spec: SimpleNamespace, _replicas: object) -> Replica:
            if spec.replica == 1:
                raise Interrupted(signal.SIGINT)
            return Replica()

    monkeypatch.setattr(flows.evaluate, "run_inference_task", Task())
    replicas = SimpleNamespace(specs=[SimpleNamespace(replica=number) for number in (0, 1)])
    session: Any = SimpleNamespace(record=None, replicas=replicas, stopping=stopping)
    config: Any = None
    with pytest.raises(Interrupted):
        flows.evaluate._generate_and_grade(config, session)
    assert waited == [True]


def test_two_commands_at_once_make_two_runs_on_a_machine_that_prefect_has_never_seen(
    evaluate_on_new_machine: Evaluate,
) -> None:
    commands = [evaluate_on_new_machine("vllm:d1", ["engine.stand_in.step_s=0"]) for _ in range(2)]
    first, second = (command.summary() for command in commands)
    assert first.run_id != second.run_id
    assert samples_of(first).column("seed").to_pylist() == samples_of(second).column("seed").to_pylist()
    assert pyarrow.dataset.dataset(first.store / "runs").count_rows() == 2
    assert not list((first.store / ".staging").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 80 MiB, of which the store wants 64 free at the start."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small tmpfs to fill")
    mount = ["mount", "-t", "tmpfs", "-o", "size=80m", "milepost-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is left of a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as exc:
                assert exc.errno == errno.ENOSPC  # noqa: PT017 - the end of the loop is what is wanted
    return filler


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(evaluate: Evaluate, small_disk: Path) -> None:
    fileroot = small_disk / "out"
    command = evaluate("vllm:d1", SLOW, size=16, fileroot=fileroot)
    command.wait_for(lambda: num_finished(fileroot) >= 2)
    filler = fill(small_disk)
    workers = command.children("tasks.inference.worker")
    command.failure(1, "the disk is full", str(fileroot))
    assert ended(workers)
    command = evaluate("vllm:d1", SLOW, size=16, fileroot=fileroot)
    command.failure(2, "MiB free, 64 MiB are needed", "cluster.fileroot")
    filler.unlink()
    summary = evaluate("vllm:d1", SLOW, size=16, fileroot=fileroot).summary()
    assert summary.num_attempts == 2
    assert summary.num_resumed >= 2
    assert samples_of(summary).num_rows == 32
