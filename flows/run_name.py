"""What tells an evaluation from others in the server's lists, and in the alert about its crash."""

from pathlib import Path
from typing import Final

from infra.plain_text import to_plain_line
from schemas.config import EvaluationConfig

_NAMED_FOLDERS: Final = 3
"""Of a checkpoint's path: trainers keep weights up to two folders below the one that names the step."""


def name_run(config: EvaluationConfig) -> str:
    """Return the end of the checkpoint's path, the dataset and the training: one line, the same for each attempt."""
    checkpoint = Path(config.actor.path)
    dataset = config.valid_dataset.name or config.valid_dataset.path.partition("?")[0]
    named = "/".join(checkpoint.parts[-_NAMED_FOLDERS:])
    return to_plain_line(f"{named} on {dataset} ({config.experiment_name}/{config.trial_name})")
