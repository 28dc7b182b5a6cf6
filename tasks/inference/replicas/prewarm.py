"""What is started before there is a plan, while the controller imports Prefect: workers, which import their engine, and
the comparison of the checkpoint with its class."""

from infra.engines.class_process import EngineEnvironment
from infra.launchers.placement import engine_threads
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.inference import EngineImport
from tasks.checkpoint.class_check import start_class_check
from tasks.inference.planning.layout import checked_layout
from tasks.inference.replicas.supervision import start_waiting_worker


def start_workers(config: EvaluationConfig) -> None:
    """Start the workers that an evaluation of the checked `config` in this process will want, where that is here.

    Each ends when none of its launches adopts it, and with this process. Nothing of it fails an evaluation.
    """
    layout = checked_layout(config)
    if layout is None or config.scheduler.type != "local":
        return
    for placement in layout.placements:
        engine = EngineImport(
            engine=config.engine_name,
            num_threads=engine_threads(placement, layout.device),
            strict=config.consistency.strict,
        )
        start_waiting_worker(layout.engine_python, placement, engine)


def start_checks(config: EvaluationConfig, report: CheckpointReport) -> None:
    """Start the checks of a checkpoint that take seconds, once the layout is known; `plan_run` waits for them.

    Raises:
        CheckpointError: its weights are known not to be those of its class.
    """
    layout = checked_layout(config)
    if layout is not None:
        start_class_check(config, report, EngineEnvironment(layout.engine_python, layout.engine_packages))
