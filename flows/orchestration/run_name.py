"""What tells a run from others in the server's lists: its name, its tags, and what its last state says."""

import re
from pathlib import Path
from typing import Final

from infra.text.plain_text import to_plain_line
from infra.text.tables import UNDEFINED
from schemas.config import EvaluationConfig
from schemas.stand_in import DUMMY_ENGINE, is_dummy
from schemas.summary import WHOLE_SET, RunSummary
from schemas.watch import WatchOutcome
from tasks.report.metrics_table import format_estimate

_NAMED_FOLDERS: Final = 3
"""Of a checkpoint's path: trainers keep weights up to two folders below the one that names the step."""

_GREEK: Final = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|sigma|tau|upsilon|phi|chi"
    "|psi|omega"
)
_GENERATED: Final = re.compile(rf"[a-z]+-[a-z]+|(?:{_GREEK})\d{{0,3}}(?:--?[a-z]+){{0,3}}")
"""Names that Prefect makes up: two words; in its form a Greek letter, maybe numbered, and up to three words."""


def is_generated(name: str) -> bool:
    """Whether nobody gave a run this name: Prefect makes one up then."""
    return not name or _GENERATED.fullmatch(name) is not None


def name_run(config: EvaluationConfig) -> str:
    """Return the end of the checkpoint's path, the dataset and the training: one line, the same for each attempt."""
    checkpoint = Path(config.actor.path)
    dataset = config.valid_dataset.name or config.valid_dataset.path.partition("?")[0]
    named = "/".join(checkpoint.parts[-_NAMED_FOLDERS:])
    return to_plain_line(f"{named} on {dataset} ({config.experiment_name}/{config.trial_name})")


def name_root(root: str) -> str:
    """Return the end of the path of a folder of checkpoints."""
    return to_plain_line("/".join(Path(root).parts[-2:]))


def tag_run(config: EvaluationConfig, dataset: str) -> list[str]:
    """Return the tags by which the runs of a dataset and of a training are found."""
    return [to_plain_line(dataset), to_plain_line(f"{config.experiment_name}/{config.trial_name}")]


def describe_result(summary: RunSummary) -> str:
    """Return dataset, accuracy and training step of a published run, on one line."""
    found = next((row for row in summary.metrics if row.metric == "accuracy" and row.subset == WHOLE_SET), None)
    accuracy = UNDEFINED if found is None else format_estimate(found)
    step = "" if summary.global_step is None else f", step {summary.global_step:,}"
    made_up = f"{DUMMY_ENGINE}: " if is_dummy(summary.engine) else ""
    return to_plain_line(f"{made_up}{summary.dataset}: accuracy {accuracy}{step}")


def describe_outcome(outcome: WatchOutcome) -> str:
    """Return what a look at a folder of checkpoints did, and what is left."""
    counts = {
        "evaluated": outcome.num_done,
        "attempts failed": outcome.num_failed,
        "still to do": outcome.num_open,
        "given up": len(outcome.given_up),
        "unusable": outcome.num_unusable,
    }
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    is_idle = not (outcome.num_done or outcome.num_failed or outcome.num_open)
    return f"nothing due{f' ({said})' if said else ''}" if is_idle else said
