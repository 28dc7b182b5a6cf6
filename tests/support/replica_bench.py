"""A replica whose worker is a script, or whose scheduler is one: what the tests of supervision share."""

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from infra.jobs.base import EndCause, JobState, JobStatus, LaunchSpec, Placement
from infra.launchers.local import LocalLauncher
from schemas.inference import EngineSpec, Heartbeat, WorkerResult, WorkerSpec
from schemas.progress import ReplicaProgress
from schemas.sampling import SamplingSpec
from schemas.states import WorkerOutcome, WorkerPhase
from tasks.inference.exchange.worker_files import EXIT_CODES
from tasks.inference.replicas.supervision import ReplicaLaunch, run_replica


def worker_spec(folder: Path) -> WorkerSpec:
    folder.mkdir(exist_ok=True)
    return WorkerSpec(
        run_id="run",
        replica=3,
        attempt=2,
        engine=EngineSpec(
            engine="vllm", model_path=folder, dtype="auto", max_model_len=64, batch_size=48, memory_ratio=0.6, seed=0
        ),
        sampling=SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=321, eos_token_ids=(2,)),
        seed=0,
        prompts_path=folder / "prompts.parquet",
        work_path=folder / "work.parquet",
        output_dir=folder,
    )


class Bench:
    """Runs a replica whose interpreter is a script: it gets the worker's arguments and does what the test says."""

    def __init__(self, folder: Path) -> None:
        self.spec = worker_spec(folder / "it's a $(folder)")
        self.log_path = folder / "logs" / "replica.log"
        self._program = folder / "python"
        self.launcher = LocalLauncher()
        self.progress: list[ReplicaProgress] = []
        self.stopping: threading.Event | None = None

    def run(
        self,
        code: str,
        *,
        setup_timeout_s: float = 60.0,
        hang_timeout_s: float | None = None,
        log_path: Path | None = None,
    ) -> WorkerResult:
        prelude = "import json, os, pathlib, sys, time\nfolder = pathlib.Path(sys.argv[-2]).parent\n"
        self._program.write_text(f"#!{sys.executable}\n{prelude}{code}\n")
        self._program.chmod(0o755)
        launch = ReplicaLaunch(
            engine_python=self._program,
            placement=Placement(num_gpus=0, num_cpus=1),
            log_path=log_path or self.log_path,
            setup_timeout_s=setup_timeout_s,
            hang_timeout_s=hang_timeout_s,
            poll_interval_s=0.05,
            stopping=self.stopping,
        )
        return run_replica(self.spec, self.launcher, launch, on_progress=self.tell)

    def tell(self, progress: ReplicaProgress) -> None:
        self.progress.append(progress)


def leave(outcome: WorkerOutcome, message: str = "") -> str:
    result = WorkerResult(outcome=outcome, message=message, num_done=5)
    return f"(folder / 'result.json').write_text({result.model_dump_json()!r}); os._exit({EXIT_CODES[outcome]})"


def beat(phase: WorkerPhase, num_done: int, now: float) -> str:
    heartbeat = Heartbeat(phase=phase, pid=1, time=now, num_done=num_done, num_work=9, batch_size=48)
    write = f"(folder / 'new').write_text({heartbeat.model_dump_json()!r})"
    return f"{write}; (folder / 'new').replace(folder / 'heartbeat.json')"


class ScriptedLauncher:
    """A scheduler that tells one status after the other, the last one for ever."""

    ends_with_controller = False

    def __init__(self, *statuses: JobStatus) -> None:
        self._statuses = list(statuses)
        self.submitted: list[LaunchSpec] = []
        self.is_cancelled = False

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        self.submitted += specs
        return [f"1_{number}" for number in range(len(specs))]

    def poll(self, job_id: str) -> JobStatus:
        return self._statuses[0]

    def wait(self, job_id: str, *, timeout_s: float) -> JobStatus:
        time.sleep(timeout_s)
        return self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]

    def cancel(self, job_id: str) -> JobStatus:
        self.is_cancelled = True
        return self._statuses[0]

    def end_earlier_jobs(self) -> int:
        return 0

    def close(self) -> None:
        return


def queued(reason: str) -> JobStatus:
    return JobStatus(state=JobState.PENDING, detail=reason)


def killed(cause: EndCause, detail: str) -> JobStatus:
    return JobStatus(state=JobState.KILLED, cause=cause, detail=detail)


def supervise(
    bench: Bench,
    launcher: ScriptedLauncher,
    *,
    setup_timeout_s: float = 60.0,
    max_queue_s: float | None = None,
    hang_timeout_s: float | None = None,
) -> WorkerResult:
    launch = ReplicaLaunch(
        engine_python=Path("/engine/python"),
        placement=Placement(num_gpus=1, num_cpus=1),
        log_path=bench.log_path,
        setup_timeout_s=setup_timeout_s,
        max_queue_s=max_queue_s,
        hang_timeout_s=hang_timeout_s,
        poll_interval_s=0.01,
    )
    return run_replica(bench.spec, launcher, launch, on_progress=bench.tell)
