"""How tests start one worker of the engine environment."""

from pathlib import Path

from infra.launchers.placement import plan_placement
from tasks.inference.replicas.supervision import ReplicaLaunch
from tests.support.engine_environment import ENGINE_PYTHON
from tests.support.evaluation_commands import own_cores

PATIENCE_S = 400.0


def launch(folder: Path) -> ReplicaLaunch:
    (placement,) = plan_placement(1, 1, "cpu", cpu_ids=own_cores()[:1])
    return ReplicaLaunch(
        engine_python=ENGINE_PYTHON, placement=placement, log_path=folder / "log.txt", setup_timeout_s=PATIENCE_S
    )
