"""Which run a person means: its name, a part of it that no other run has, its checkpoint, or its place in training."""

from pathlib import Path
from typing import Final

from infra.fileroot.run_directory import list_runs
from infra.store import Store, open_store
from schemas.errors import StoreError
from schemas.store import PublishedRun

RELATIVE_NAMES: Final = ("latest", "previous", "best", "step=N")
"""Names of places in training, all of them in the training of the run that was published last."""
_STEP: Final = "step="
_SHORTEST: Final = 4
"""Letters of a part; fewer are too soon those of another run."""
_NUM_SHOWN: Final = 5


def complete_run_name(fileroot: Path, text: str) -> str:
    """Return the name of the run that `text` means, else `text`: whoever looks it up says what there is.

    Args:
        fileroot: Folder of the runs.
        text: A run's name or a part of it; a checkpoint as it was named for its evaluation; or a place in the training
            (experiment, trial and dataset) of the run published last: `latest` is that run, `previous` the checkpoint
            before it, `best` the one with the highest accuracy, `step=N` the one of that step. Of several runs of one
            checkpoint, the last published counts.

    Raises:
        StoreError: several runs have it, no run has that place, or the store cannot be read.
    """
    if text in RELATIVE_NAMES or text.startswith(_STEP):
        return _find_in_training(open_store(fileroot), text).run_id
    names = {run.run_id for run in list_runs(fileroot)} | set(open_store(fileroot).run_names())
    if text in names or len(text) < _SHORTEST:
        return text
    found = sorted(name for name in names if text in name)
    if len(found) > 1:
        shown = ", ".join(found[-_NUM_SHOWN:])
        raise StoreError(f"{text!r} is part of {len(found)} runs' names; write more of one of them: {shown}")
    return found[0] if found else _find_checkpoint(open_store(fileroot), text) or text


def _find_checkpoint(store: Store, text: str) -> str | None:
    """Return the last run of a checkpoint; None where no run has it.

    Raises:
        StoreError: it was evaluated on several datasets.
    """
    runs = [run for run in store.runs() if run.checkpoint.rstrip("/") == text.rstrip("/")]
    last = {run.dataset: run for run in reversed(runs)}
    if len(last) > 1:
        shown = ", ".join(f"{run.run_id} on {dataset}" for dataset, run in sorted(last.items()))
        raise StoreError(f"{text!r} was evaluated on {len(last)} datasets; name one of the runs: {shown}")
    return runs[0].run_id if runs else None


def _find_in_training(store: Store, text: str) -> PublishedRun:
    published = store.runs()
    if not published:
        raise StoreError(f"no run is published in {store.root}, so none is {text!r}")
    latest = published[0]
    if text == "latest":
        return latest
    siblings = [run for run in published if _training_of(run) == _training_of(latest)]
    where = f"of {latest.experiment_name}/{latest.trial_name} on {latest.dataset}, whose last run is {latest.run_id},"
    if text == "best":
        alike = [run for run in siblings if run.dataset_version == latest.dataset_version]
        measured = [run for run in alike if run.accuracy is not None]
        if not measured:
            raise StoreError(f"no run {where} has an accuracy, so none is the best; name a run of `milepost runs`")
        return max(measured, key=lambda run: run.accuracy or 0.0)
    if text == "previous":
        others = [run for run in siblings if run.weight_digest != latest.weight_digest]
        steps = [run.global_step for run in others]
        if latest.global_step is not None and None not in steps:
            others = [run for run in others if (run.global_step or 0) < latest.global_step]
            others.sort(key=lambda run: run.global_step or 0, reverse=True)  # of one step, the last published first
        if not others:
            raise StoreError(f"there is no checkpoint before the last one {where.rstrip(',')}")
        return others[0]
    return _find_step(siblings, text, where)


def _training_of(run: PublishedRun) -> tuple[str, str, str, bool]:
    return run.experiment_name, run.trial_name, run.dataset, run.is_dummy


def _find_step(siblings: list[PublishedRun], text: str, where: str) -> PublishedRun:
    number = text.removeprefix(_STEP)
    if not number.isascii() or not number.isdigit():
        raise StoreError(f"{text!r} names no step; write step=N with a whole number, such as step=400")
    found = [run for run in siblings if run.global_step == int(number)]
    if not found:
        steps = sorted({run.global_step for run in siblings if run.global_step is not None})
        known = ", ".join(map(str, steps[-_NUM_SHOWN:])) or "none is known"
        raise StoreError(f"no run {where} is of step {int(number)}; its last steps: {known}")
    return found[0]
