"""inspect_checkpoint: which trainer's layout a folder has and whether it can be evaluated, by metadata alone.

Reads names, sizes, JSON files and safetensors headers, never a weight, so that a folder of any size takes milliseconds.
Where a trainer puts its weights is in `layouts/`, what makes a model folder whole in `huggingface.py`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.checkpoints import adapter, huggingface
from infra.checkpoints.global_step import find_position
from infra.checkpoints.layouts.base import Contents, holds_weights, names_in
from infra.checkpoints.layouts.registry import LAYOUTS, Recognised, is_unfinished, layouts_of, recognise
from infra.checkpoints.options import InspectionOptions
from schemas.checkpoint import CheckpointReport

_MAX_NAMES: Final = 5
_NUM_PARENTS: Final = 3
"""Folders above a part of a save to look for the save in: trainers nest as in global_step_120/actor/huggingface."""


def inspect_checkpoint(
    path: Path | str,
    *,
    tokenizer_folder: Path | None = None,
    allow_pickle_weights: bool = False,
    base_folder: Path | None = None,
) -> CheckpointReport:
    """Return what a checkpoint folder holds and each reason why it cannot be evaluated; never raises for its content.

    `tokenizer_folder` is where tokenizer and chat template are, when not in the checkpoint. `allow_pickle_weights`
    accepts .bin weights, which can run code when they are loaded. `base_folder` holds the model that an adapter is
    applied to, in place of the one that it names. The report's `path` is where the weights are, which for some trainers
    is below the folder of the save.
    """
    folder = Path(path)
    options = InspectionOptions(
        tokenizer_folder=tokenizer_folder, allow_pickle_weights=allow_pickle_weights, base_folder=base_folder
    )
    try:
        if not folder.exists():
            return _refuse(folder, f"{folder}: there is nothing at this path; check actor.path")
        if not folder.is_dir():
            return _refuse(folder, f"{folder}: this is a file; name the folder that holds config.json and the weights")
        names = sorted(entry.name for entry in folder.iterdir())
        recognised = recognise(folder, frozenset(names))
        conversion = _enclosing_conversion(folder, frozenset(names))
        if conversion is not None:
            recognised = Recognised(conversion.layout, Contents(None, conversion.contents.conversion))
        if recognised is not None:
            return _inspect(folder, recognised, options)
    except OSError as exc:
        advice = (
            "check the permissions of the folder and its files"
            if isinstance(exc, PermissionError)
            else "it may be being written or rotated away: try again when the trainer has saved"
        )
        problem = f"{folder}: cannot be read ({exc.strerror}: {exc.filename}); {advice}"
        return CheckpointReport(path=folder, status="incomplete", layout="", global_step=None, problems=(problem,))
    return _refuse(folder, _describe_unknown(folder, names))


def _enclosing_conversion(folder: Path, names: frozenset[str]) -> Recognised | None:
    """Return the save that a folder without weights is a part of, where that is a dump: verl's `actor` for one."""
    if holds_weights(names):
        return None
    for above in list(folder.absolute().parents)[:_NUM_PARENTS]:
        recognised = recognise(above, names_in(above)) if any(layouts_of(above)) else None
        if recognised is not None and recognised.contents.conversion is not None:
            return recognised
    return None


def _inspect(folder: Path, recognised: Recognised, options: InspectionOptions) -> CheckpointReport:
    layout, contents = recognised
    if contents.model is not None:
        if adapter.is_adapter(contents.model):
            report = adapter.inspect(contents.model, options)
        else:
            report = huggingface.inspect(contents.model, options).report
        if is_unfinished(folder.name):
            problem = f"{folder.name}: its trainer has not finished it: it renames the folder when it has"
            report = report.model_copy(update={"status": "incomplete", "problems": (problem, *report.problems)})
        # the weights may be further down than a step is looked for
        step = find_position(folder).global_step if report.global_step is None else report.global_step
        return report.model_copy(update={"layout": layout.name, "global_step": step})
    if contents.conversion is not None:
        problem = (
            f"{folder}: holds the sharded dump of a trainer, which no engine loads; convert it where the trainer is "
            f"installed and evaluate what it makes:\n    {contents.conversion}"
        )
    else:
        problem = f"{folder}: holds no whole weights; wait until they are written, or name the folder that holds them"
    position = find_position(folder)
    return CheckpointReport(
        path=folder,
        status="incomplete" if contents.conversion is None else "needs_conversion",
        layout=layout.name,
        global_step=position.global_step,
        epoch=position.epoch,
        problems=(problem,),
    )


def _refuse(folder: Path, problem: str) -> CheckpointReport:
    step = find_position(folder).global_step if folder.is_dir() else None
    return CheckpointReport(path=folder, status="not_a_checkpoint", layout="", global_step=step, problems=(problem,))


def _describe_unknown(folder: Path, names: Sequence[str]) -> str:
    if not names:
        return f"{folder}: the folder is empty; name the folder that holds config.json and the weights"
    inner = [name for name in names if (folder / name / "config.json").is_file()]
    if inner:
        listed = ", ".join(inner[-_MAX_NAMES:])
        return f"{folder}: holds checkpoint folders ({listed}) and is none itself; name one of them"
    known = ", ".join(layout.name for layout in LAYOUTS)
    listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    return f"{folder}: no config.json and no weights (found: {listed}); layouts known: {known}"
