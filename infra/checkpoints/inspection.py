"""inspect_checkpoint: which trainer's layout a folder has and whether it can be evaluated, by metadata alone.

Owns the registry of layouts; each layout is one file beside this one. Reads names, sizes, JSON files and safetensors
headers, never a weight, so that a folder of any size takes milliseconds.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints import huggingface
from infra.checkpoints.global_step import find_global_step
from infra.checkpoints.options import InspectionOptions
from schemas.checkpoint import CheckpointReport


class Layout(NamedTuple):
    """One way in which trainers lay out a checkpoint."""

    name: str
    recognises: Callable[[Sequence[str]], bool]
    """From the names in the folder alone."""
    inspect: Callable[[Path, InspectionOptions], CheckpointReport]
    """Reads the folder; may raise OSError when files vanish."""


LAYOUTS: Final = (Layout("huggingface", huggingface.recognises, huggingface.inspect),)
"""Every layout that is known, the more specific first."""

_MAX_NAMES: Final = 5


def inspect_checkpoint(
    path: Path | str, *, tokenizer_folder: Path | None = None, allow_pickle_weights: bool = False
) -> CheckpointReport:
    """Return what a checkpoint folder holds and each reason why it cannot be evaluated; never raises for its content.

    `tokenizer_folder` is where tokenizer and chat template are, when not in the checkpoint. `allow_pickle_weights`
    accepts .bin weights, which can run code when they are loaded.
    """
    folder = Path(path)
    options = InspectionOptions(tokenizer_folder=tokenizer_folder, allow_pickle_weights=allow_pickle_weights)
    try:
        if not folder.exists():
            return _refuse(folder, f"{folder}: there is nothing at this path; check actor.path")
        if not folder.is_dir():
            return _refuse(folder, f"{folder}: this is a file; name the folder that holds config.json and the weights")
        names = sorted(entry.name for entry in folder.iterdir())
        for layout in LAYOUTS:
            if layout.recognises(names):
                return layout.inspect(folder, options)
    except OSError as exc:
        advice = (
            "check the permissions of the folder and its files"
            if isinstance(exc, PermissionError)
            else "it may be being written or rotated away: try again when the trainer has saved"
        )
        problem = f"{folder}: cannot be read ({exc.strerror}: {exc.filename}); {advice}"
        return CheckpointReport(path=folder, status="incomplete", layout="", global_step=None, problems=(problem,))
    return _refuse(folder, _describe_unknown(folder, names))


def _refuse(folder: Path, problem: str) -> CheckpointReport:
    step = find_global_step(folder) if folder.is_dir() else None
    return CheckpointReport(path=folder, status="not_a_checkpoint", layout="", global_step=step, problems=(problem,))


def _describe_unknown(folder: Path, names: Sequence[str]) -> str:
    if not names:
        return f"{folder}: the folder is empty; name the folder that holds config.json and the weights"
    inner = [name for name in names if (folder / name / "config.json").is_file()]
    if inner:
        listed = ", ".join(inner[-_MAX_NAMES:])
        return f"{folder}: holds checkpoint folders ({listed}) and is none itself; name one of them"
    listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    return f"{folder}: no config.json and no weights (found: {listed}); layouts known: huggingface"
