"""What users import: `from milepost import Evaluator, load_config, evaluate, open_store, compare`.

Each name is imported when it is first used, so that the trainer's hook (`Evaluator`, `EvaluatorConfig`, `FinetuneSpec`,
`CheckpointAnnouncer`) needs the standard library alone. The rest needs `pip install 'milepost[controller]'`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from milepost.packages import require_own_packages

if TYPE_CHECKING:
    from flows.evaluate import evaluate as evaluate
    from flows.evaluator import CheckpointAnnouncer as CheckpointAnnouncer
    from flows.evaluator import Evaluator as Evaluator
    from flows.evaluator import EvaluatorConfig as EvaluatorConfig
    from flows.evaluator import FinetuneSpec as FinetuneSpec
    from infra.checkpoints import inspect_checkpoint as inspect_checkpoint
    from infra.store import open_store as open_store
    from schemas.config import EvaluationConfig as EvaluationConfig
    from schemas.config import load_config as load_config
    from tasks.metrics.comparison import compare as compare

_SOURCES: Final = {
    "CheckpointAnnouncer": "flows.evaluator",
    "EvaluationConfig": "schemas.config",
    "Evaluator": "flows.evaluator",
    "EvaluatorConfig": "flows.evaluator",
    "FinetuneSpec": "flows.evaluator",
    "compare": "tasks.metrics.comparison",
    "evaluate": "flows.evaluate",
    "inspect_checkpoint": "infra.checkpoints",
    "load_config": "schemas.config",
    "open_store": "infra.store",
}
"""Public name to the module that defines it."""

__all__ = [
    "CheckpointAnnouncer",
    "EvaluationConfig",
    "Evaluator",
    "EvaluatorConfig",
    "FinetuneSpec",
    "compare",
    "evaluate",
    "inspect_checkpoint",
    "load_config",
    "open_store",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used.

    Raises:
        AttributeError: `name` is not public.
        ImportError: a package of the user's project has the name of one of Milepost's.
    """
    source = _SOURCES.get(name)
    if source is None:
        raise AttributeError(f"module 'milepost' has no attribute {name!r}; it has {', '.join(sorted(_SOURCES))}")
    require_own_packages()
    found: object = getattr(import_module(source), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_SOURCES})
