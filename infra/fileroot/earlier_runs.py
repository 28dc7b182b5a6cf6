"""The published runs of the same training that a run can be compared with, in order of training.

Owns which runs those are; compares nothing.
"""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from infra.fileroot.run_directory import RunDirectory, run_at
from infra.store import Store
from schemas.base import Model
from schemas.config import EvaluationConfig, load_config
from schemas.errors import StoreError, UserInputError
from schemas.inference import Plan
from schemas.run import RunIdentity
from schemas.stand_in import is_dummy
from schemas.store import PublishedRun

M = TypeVar("M", bound=Model)

_ALIKE = ("experiment_name", "trial_name", "dataset")


def find_siblings(
    store: Store, identity: RunIdentity, *, engine: str, any_version: bool = False, own_samples: bool = False
) -> list[PublishedRun]:
    """Return the runs of other weights of the same experiment, trial and dataset version, the last of each weights.

    They are in order of training step; where a step is unknown, in order of publication. Runs of the dummy engine have
    siblings among themselves alone.

    Args:
        store: Where they are published.
        identity: The run that they are to be compared with.
        engine: Its engine.
        any_version: Whether runs on other versions of the dataset belong to them.
        own_samples: Whether runs that graded the samples of others again are left out.

    Raises:
        StoreError: the store cannot be read.
    """
    names = _ALIKE if any_version else (*_ALIKE, "dataset_version")
    by_weights: dict[str, PublishedRun] = {}
    for run in store.runs():
        is_alike = all(getattr(run, name) == getattr(identity, name) for name in names)
        is_alike = is_alike and run.is_dummy == is_dummy(engine) and not (own_samples and run.regrade_of is not None)
        if is_alike and run.weight_digest != identity.weight_digest:
            by_weights.setdefault(run.weight_digest, run)
    published = sorted(by_weights.values(), key=lambda run: run.finished_at)
    has_steps = all(run.global_step is not None for run in published)
    return sorted(published, key=lambda run: run.global_step or 0) if has_steps else published


def select_earlier(siblings: list[PublishedRun], identity: RunIdentity) -> list[PublishedRun]:
    """Return those of `siblings` that training had come to before; all of them where steps are unknown."""
    step = identity.global_step
    return [run for run in siblings if step is None or run.global_step is None or run.global_step < step]


def is_sampled_alike(store: Store, run: PublishedRun, plan: Plan) -> bool:
    """Whether a run sampled as `plan` does, so that what differs is the model; not so when its folder is gone.

    Reads the run's plan.
    """
    try:
        earlier = run_directory(store, run).read_plan()
    except StoreError:
        return False
    is_set_alike = all(
        getattr(earlier, name) == getattr(plan, name)
        for name in ("sampling", "engine", "dtype", "n_samples", "tokenizer_digest", "chat_template_digest")
    )
    return is_set_alike and _is_asked_alike(earlier, plan)


def _is_asked_alike(earlier: Plan, plan: Plan) -> bool:
    """Whether prompts are made alike: other variables of the chat template, or another system prompt, change each."""
    hashes = {item.item_id: item.prompt_hash for item in earlier.items}
    common = [item for item in plan.items if item.item_id in hashes]
    return not common or any(hashes[item.item_id] == item.prompt_hash for item in common)


def is_graded_alike(store: Store, run: PublishedRun, config: EvaluationConfig) -> bool:
    """Whether a run was graded as `config` says; not so when its folder is gone.

    Reads the run's configuration.
    """
    try:
        before = load_config(run_directory(store, run).config_path)
    except UserInputError:
        return False  # gone, or of another version
    return (before.reward_fn, before.grading.answer_sources) == (config.reward_fn, config.grading.answer_sources)


def read_report(path: Path, kind: type[M]) -> M | None:
    """Return what a check of a run has written; None where the run was not checked, or by another version."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def describe_place(run_id: str, global_step: int | None) -> str:
    """Return where in training a run stands, for people."""
    return f"run {run_id}" if global_step is None else f"step {global_step}, run {run_id}"


def run_directory(store: Store, run: PublishedRun) -> RunDirectory:
    """Return the folder of a published run, which may be gone."""
    return run_at(store.root.parent, run.run_id)
