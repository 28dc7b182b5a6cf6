"""Workers started before there is a plan: they import their engine while the controller imports Prefect and plans."""

from infra.launchers.placement import engine_threads
from schemas.config import EvaluationConfig
from schemas.inference import EngineImport
from tasks.inference.layout import checked_layout
from tasks.inference.supervision import start_waiting_worker


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
