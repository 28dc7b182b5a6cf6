"""Refreshing the validation set: the section `refresh`, and the manifest that every version of the set carries."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from schemas.base import Model, Section
from schemas.training_position import TrainingPosition

RefreshTrigger = Literal["drift", "schedule", "drift_or_schedule", "command"]
MatchKind = Literal["exact", "ngram", "minhash"]


class RefreshConfig(Section):
    """Where new versions of the validation set come from, and when one is drawn."""

    pool: tuple[str, ...] = ()
    """Datasets that new items are drawn from, each a path as in `valid_dataset.path` and read the same way. Empty: the
    validation set is never refreshed and always read from its source. The seed of a `reasoning_gym:` path moves on by
    2^20 with each version, so that a version's problems are new."""
    size: int | None = Field(default=None, ge=1, le=10_000_000)
    """Items of a new version, anchors included. None: as many as the current version has, so that error bars keep
    their width."""
    stratify_by: tuple[str, ...] | None = None
    """Subset keys whose combined values are the strata. None: all keys of the pool; an empty list: one stratum."""
    anchor_ratio: float = Field(default=0.2, ge=0, lt=1)
    """Share of a new version that is kept from the current one, so that scores on the two can be linked. 200 of
    1,000 items link two runs that disagree on a fifth of them with a standard error of 3.2 points."""
    training_data: tuple[str, ...] = ()
    """Datasets that the model was trained on: what of the pool occurs in them is not drawn. Every text of a row is
    looked at, whatever its column; a folder or hub dataset is read from its split `train`. Empty: not checked, and the
    manifest says so."""
    ngram: int = Field(default=13, ge=3, le=100)
    """Words of the n-grams that are looked up in the training data; 13 as for GPT-3 (Brown et al. 2020, app. C)."""
    max_overlap: float = Field(default=0.0, ge=0, lt=1)
    """Share of an item's n-grams that may occur in the training data; above it the item counts as seen in training. 0
    refuses it for a single one, as for GPT-3: that costs 3 of the 1,319 problems of GSM8K's test set."""
    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Jaccard similarity of 3-word shingles from which two problems count as one. One changed word in 45 leaves 0.87,
    two 0.76."""
    on: RefreshTrigger = "drift"
    """Occasion at which an evaluation draws a new version by itself. `command`: never; only `milepost refresh` does."""
    freq_epochs: int | None = Field(default=None, ge=1)
    """Epochs between refreshes on schedule. None: epochs do not matter."""
    freq_steps: int | None = Field(default=None, ge=1)
    """Training steps between refreshes on schedule. None: steps do not matter."""
    freq_hours: float | None = Field(default=None, gt=0)
    """Hours between refreshes on schedule. None: time does not matter."""

    @field_validator("pool", "stratify_by", "training_data", mode="before")
    @classmethod
    def _accept_one_text(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _schedule_has_a_frequency(self) -> Self:
        has_frequency = any(each is not None for each in (self.freq_epochs, self.freq_steps, self.freq_hours))
        if self.is_scheduled and not has_frequency:
            raise ValueError(
                f"on is {self.on!r} but no frequency is set; set refresh.freq_epochs, refresh.freq_steps or "
                "refresh.freq_hours, or refresh.on=drift"
            )
        if has_frequency and not self.is_scheduled:
            raise ValueError(
                f"a frequency is set but on is {self.on!r}; set refresh.on to schedule or drift_or_schedule, or remove "
                "the frequency"
            )
        return self

    @property
    def is_scheduled(self) -> bool:
        """Whether time or training progress makes a refresh due."""
        return self.on in ("schedule", "drift_or_schedule")

    @property
    def is_drift_driven(self) -> bool:
        """Whether drift makes a refresh due."""
        return self.on in ("drift", "drift_or_schedule")


class PoolSource(Model):
    """One dataset of the pool as it was read."""

    path: str
    """As configured; a procedural one with the seed that it was drawn with."""
    num_items: int
    """Items read."""
    digest: str
    """Over its items, whatever their order."""


class StratumDraw(Model):
    """How many items one stratum gave."""

    stratum: dict[str, str]
    """Subset values of the stratum; empty for the one stratum of an unstratified draw."""
    wanted: int
    """Items that its share of the pool asks for beside the anchors."""
    had: int
    """Items of it that could be drawn, after duplicates and contaminated ones were removed."""
    drawn: int
    """Items drawn; as many as wanted, or no version is made."""


class ContaminationMatch(Model):
    """An item that occurs in the training data."""

    item_id: str
    """The item, of the pool or of the parent, which is not in the version."""
    kind: MatchKind
    """`exact`: a text of the row is the problem; `ngram`: it shares too many n-grams; `minhash`: it is nearly the
    same."""
    overlap: float
    """Share of the item's n-grams found in all training data, or the Jaccard similarity for `minhash`; 1 for
    `exact`."""
    source: str
    """Path of the training data."""
    row: int
    """Row of it, from 1: the first that matched."""
    text: str
    """What matched, in the item's words; cut after 200 characters."""


class ContaminationReport(Model):
    """Which items of the pool and of the parent occur in the training data: neither drawn nor kept as anchors."""

    training_data: tuple[str, ...]
    """Paths that were searched; empty when none is configured and nothing was checked."""
    num_training_rows: int
    """Rows searched."""
    num_checked: int
    """Items that were looked up: the parent's, and the pool's without copies."""
    num_exact: int
    """Items that are a text of the training data."""
    num_ngram: int
    """Other items whose n-grams occur there."""
    num_minhash: int
    """Other items that are nearly a text of the training data."""
    share_removed: float | None
    """Share of the checked items that were removed; None when nothing was checked."""
    matches: tuple[ContaminationMatch, ...]
    """The first 20 of them by id."""


class RefusedGold(Model):
    """An item that would have been drawn but whose gold cannot be graded."""

    item_id: str
    """The item."""
    reason: str
    """What the grader says of its gold."""


class VersionOrigin(Model):
    """Why, when and where in training a version was made."""

    reason: str
    """The source, drift with its features, the schedule, or a command."""
    created_at: datetime
    """Time of creation, with its time zone."""
    position: TrainingPosition
    """Of the checkpoint that was about to be evaluated."""


class DrawReport(Model):
    """How the items of a version were chosen."""

    seed: int
    """Seed of the draw: with parent and pool it decides the items."""
    pool: tuple[PoolSource, ...]
    """What the items were drawn from."""
    stratify_by: tuple[str, ...]
    """Subset keys of the strata."""
    strata: tuple[StratumDraw, ...]
    """Quota and yield of each stratum, anchors apart."""
    anchors: tuple[str, ...]
    """Ids of the items kept from the parent, sorted."""
    num_exact_duplicates: int
    """Items of the pool left out because another one, or an anchor, has the same text."""
    num_near_duplicates: int
    """Items left out because another one, or an anchor, is nearly the same."""
    contamination: ContaminationReport
    """What of pool and parent occurs in the training data."""
    refused_golds: tuple[RefusedGold, ...]
    """Items passed over while drawing because their gold cannot be graded."""


class VersionDraft(Model):
    """What is known of a version before it has a number."""

    dataset: str
    """Name of the dataset."""
    content_digest: str
    """Version digest of the items, as runs and samples carry it (`dataset_version`)."""
    parent: str | None
    """The version that it follows; None for the first, which is the source as it was."""
    origin: VersionOrigin
    """Reason for the version."""
    prompt_suffix: str | None
    """valid_dataset.prompt_suffix that the items are asked with."""
    system_prompt: str | None
    """valid_dataset.system_prompt that the items are asked with."""
    draw: DrawReport | None
    """Choice of the items; None for the source as it was."""
    item_digests: dict[str, str]
    """Digest of every item by its id, in the order of the version."""


class VersionManifest(VersionDraft):
    """manifest.json of a version: where each of its items came from and why. Never changed once written."""

    version: str
    """Name of the version: `v`, its number, and the first digits of the content digest."""
    number: int
    """From 1, in the order in which versions were made."""
    manifest_digest: str
    """Digest of everything else in this file, so that an edit is noticed."""


class RefreshOutcome(Model):
    """What a refresh did."""

    manifest: VersionManifest
    """The version that is current now."""
    is_new: bool
    """Whether this call made it; False when another process made it from the same parent at the same time."""
    summary: str
    """What happened, as Markdown."""
