"""The stored version of a validation set that an evaluation asks instead of its source.

Only a configuration with a pool (`refresh.pool`) has versions; without one the source is read each time.
"""

from infra.datasets.digests import dataset_version
from infra.datasets.loading import CheckGolds
from infra.fileroot.validation_sets import versions_of
from schemas.config import EvaluationConfig
from schemas.dataset import LoadedDataset
from schemas.errors import ConfigError, DatasetError
from schemas.refresh import VersionDraft


def find_current_version(config: EvaluationConfig) -> str | None:
    """Return the name of the version to ask; None when there is none yet or no pool is configured.

    Raises:
        StoreError: the pointer to the current version cannot be followed.
    """
    return versions_of(config).current() if config.refresh.pool else None


def load_version(config: EvaluationConfig, version: str, check_golds: CheckGolds) -> LoadedDataset:
    """Return the items of a version, the first `valid_dataset.limit` of them.

    Raises:
        StoreError: no such version, or its files were changed.
        ConfigError: it was drawn to be asked in another way.
        DatasetError: a gold cannot be graded.
    """
    stored = versions_of(config).read(version)
    require_same_prompts(config, stored.manifest)
    limit = config.valid_dataset.limit
    items = stored.items[:limit]
    by_math = [item for item in items if item.grader == "math"]
    for item, reason in zip(by_math, check_golds([item.gold for item in by_math]), strict=True):
        if reason is not None:
            raise DatasetError(
                f"version {version}: the gold of item {item.item_id} cannot be graded: {reason}; go back to another "
                "version with `milepost refresh CONFIG --rollback VERSION`"
            )
    digest = stored.manifest.content_digest if len(items) == len(stored.items) else dataset_version(items)
    note = f"version {version} ({stored.manifest.origin.reason}) is asked; {config.valid_dataset.path} is not read"
    return LoadedDataset(name=stored.manifest.dataset, version=digest, items=items, notes=(note,))


def require_same_prompts(config: EvaluationConfig, version: VersionDraft) -> None:
    """Return if the configuration asks as the version was drawn to be asked; its items hold their prompts.

    Raises:
        ConfigError: the instruction or the system prompt is another one.
    """
    for key in ("prompt_suffix", "system_prompt"):
        wanted, stored = getattr(config.valid_dataset, key), getattr(version, key)
        if wanted != stored:
            raise ConfigError(
                f"valid_dataset.{key} is {wanted!r}, but the versions of {version.dataset!r} ask with {stored!r}; "
                "set it back, or set valid_dataset.name to start versions of their own"
            )
