"""Faults of a cluster: jobs that Slurm or its users end, nodes and daemons that fail."""

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Final

import psutil

from benchmarks.faults.engines import SLURM_MEMORY_FAULT
from benchmarks.faults.fault import Fault
from benchmarks.faults.scene import Job, Scene
from infra.devcluster.cluster import DevCluster
from schemas.devcluster import DevClusterState

_SLOW: Final = ("engine.stand_in.step_s=0.08",)
"""Minutes instead of seconds: Slurm takes half a minute to see that a job's time is up or that a node is gone."""
_AWAY_S: Final = (60.0, 90.0)
"""A minute and more, as an upgrade or a failover takes; less than the two that a first submission waits."""
_PREEMPTED_S: Final = 10


def _with_a_job(act: Callable[[Scene, Job], None]) -> Callable[[Scene], bool]:
    """Return a fault that befalls one running job: `act` does it."""

    def inject(scene: Scene) -> bool:
        picked = scene.pick_job()
        if picked is None:
            return False
        act(scene, picked)
        return True

    return inject


def _kill_job(scene: Scene, job: Job) -> None:
    scene.ask("scancel", "--full", "--signal=KILL", job.job_id)


def _cancel_job(scene: Scene, job: Job) -> None:
    scene.ask("scancel", job.job_id)


def _end_time(scene: Scene, job: Job) -> None:
    scene.ask("scontrol", "update", f"JobId={job.job_id}", "EndTime=now+1second")


def _requeue(scene: Scene, job: Job) -> None:
    """Ask for what our jobs refuse: else two owners of retries would run a replica twice."""
    try:
        scene.ask("scontrol", "requeue", job.job_id)
    except subprocess.CalledProcessError:
        return
    raise RuntimeError(f"Slurm has requeued job {job.job_id}, which was submitted with --no-requeue")


def _preempt(scene: Scene, job: Job) -> None:
    """Let a job of a higher partition take all GPUs of the node for a while."""
    gpus = scene.ask("sinfo", "-h", "-N", "-n", job.node, "-o", "%G").split()[0].rpartition(":")[2].partition("(")[0]
    wanted = ["--partition=high", f"--nodelist={job.node}", f"--gres=gpu:{gpus}", "--mem=50M", "--output=/dev/null"]
    scene.ask("sbatch", "--parsable", "--job-name=preemptor", *wanted, f"--wrap=sleep {_PREEMPTED_S}")


def _set_down(scene: Scene, job: Job) -> None:
    scene.ask("scontrol", "update", f"NodeName={job.node}", "State=DOWN", "Reason=campaign")


def _kill_node_daemon(scene: Scene, job: Job) -> None:
    """Kill slurmd alone: the worker runs on while its job is given up, and a second copy of its work begins."""
    _daemon(scene, f"slurmd-{job.node}").kill()


def _resume_nodes(scene: Scene) -> None:
    cluster = _cluster(scene)
    for node, word in cluster.status().nodes.items():
        if "down" in word:
            scene.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")


def _restart(scene: Scene) -> None:
    """Start the daemons that are gone, and have the nodes back."""
    cluster = _cluster(scene)
    spec = cluster.spec()
    if spec is not None:
        cluster.up(spec)
    _resume_nodes(scene)


def _stop_for_a_while(name: str) -> Callable[[Scene], bool]:
    def inject(scene: Scene) -> bool:
        _daemon(scene, name).send_signal(scene.rng.choice([signal.SIGTERM, signal.SIGKILL]))
        time.sleep(scene.rng.uniform(*_AWAY_S))
        _restart(scene)
        return True

    return inject


def _daemon(scene: Scene, name: str) -> psutil.Process:
    state = DevClusterState.model_validate_json(_cluster(scene).paths.state.read_bytes())
    (daemon,) = (daemon for daemon in state.daemons if daemon.name == name)
    return psutil.Process(daemon.process.pid)


def _cluster(scene: Scene) -> DevCluster:
    if scene.world.cluster is None:
        raise RuntimeError("faults of a cluster need --scheduler slurm")
    return scene.world.cluster


FAULTS: Final = (
    Fault(name="job-sigkill", inject=_with_a_job(_kill_job), needs_worker=True),
    Fault(name="job-cancelled", inject=_with_a_job(_cancel_job), needs_worker=True),
    Fault(
        name="time-limit",
        inject=_with_a_job(_end_time),
        needs_worker=True,
        overrides=(*_SLOW, "scheduler.slurm.time=30"),
    ),
    Fault(name="preempted", inject=_with_a_job(_preempt), needs_worker=True),
    Fault(name="requeue-refused", inject=_with_a_job(_requeue), needs_worker=True),
    Fault(name="node-down", inject=_with_a_job(_set_down), needs_worker=True, heal=_resume_nodes),
    Fault(
        name="slurmd-sigkill", inject=_with_a_job(_kill_node_daemon), needs_worker=True, heal=_restart, overrides=_SLOW
    ),
    Fault(name="slurmctld-away", inject=_stop_for_a_while("slurmctld"), heal=_restart),
    Fault(name="slurmdbd-away", inject=_stop_for_a_while("slurmdbd"), heal=_restart),
    SLURM_MEMORY_FAULT,
)
"""On a cluster alone."""
