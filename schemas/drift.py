"""Drift of a dataset, and of a model's outputs: its configuration section and what a check of it says."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from schemas.base import Model, Section
from schemas.expectations.contract import RuleResult
from schemas.training_position import TrainingPosition

FeatureKind = Literal["number", "category", "text", "vector", "output"]


class DriftConfig(Section):
    """Whether what is asked has changed since the reference was frozen."""

    enabled: bool = True
    """Whether drift is looked for at all. On: it costs seconds beside the generation, and none while the rows are
    those of the reference."""
    threshold: float = Field(default=0.1, gt=0, le=10)
    """Effect floor: smallest shift of a number that counts, in standard deviations of the reference. Shares of rows
    (categories, words, copies) must move by 0.3 of it, 3 points at the default; the text's centroid by 0.2 of it."""
    alpha: float = Field(default=0.01, ge=0.001, le=0.2)
    """Chance of a false alarm over all features together (Holm): at most one check in a hundred. Below 0.001 the label
    permutations would take minutes."""
    features: tuple[str, ...] = ()
    """Features of your own: dotted paths of functions that take a prompt and return a number, a category or a vector,
    such as `my_package.features.num_equations` or `my_package.features.embed`. They must be importable where the
    evaluation runs."""
    reference: str | None = Field(default=None, min_length=1)
    """Dataset to compare with, read like `valid_dataset.path`. None: the profile frozen with the version of the
    dataset in use."""
    freq_epochs: int | None = Field(default=None, ge=1)
    """Epochs of training between checks. With all three frequencies None every evaluation checks; else whichever falls
    due first does, and the last result is shown with its age in between."""
    freq_steps: int | None = Field(default=None, ge=1)
    """Training steps between checks. None: steps do not matter."""
    freq_hours: float | None = Field(default=None, gt=0)
    """Hours between checks. None: time does not matter."""


class Bar(Model):
    """A bin, category or word with its share of rows on both sides; what a plot of the feature shows."""

    label: str
    """Name of the category, or bounds of the bin."""
    reference: float
    """Share of the reference's rows, in [0, 1]."""
    current: float
    """Share of the current rows."""


class FeatureDrift(Model):
    """How one feature differs between reference and current rows. Undefined numbers are None."""

    name: str
    """What is compared: `prompt_length`, `subset:subject`, `answer_kind`, `text`, …"""
    kind: FeatureKind
    """Kind of comparison: as numbers, categories, texts or vectors; `output` for what a model made."""
    test: str
    """The test in words."""
    statistic: float | None
    """Value of the test's statistic."""
    effect: float | None
    """Size of the change, 0 for none: standard deviations of the reference for numbers, share of rows for categories,
    words and copies, distance of the centroids for the text and for vectors."""
    effect_floor: float
    """Smallest effect that counts."""
    p_value: float | None
    """Chance of such a statistic without drift."""
    drifted: bool
    """Whether it is significant over all features and above the floor."""
    underpowered: bool
    """Whether a change of the size of the floor could have gone unseen with these numbers of rows."""
    smallest_detectable: float | None
    """Smallest effect that would have been seen in four of five cases."""
    psi: float | None = None
    """Population stability index over deciles of the reference, or over categories. For information."""
    jensen_shannon: float | None = None
    """Jensen-Shannon distance over the same bins, base 2, in [0, 1]. For information."""
    kl: float | None = None
    """Kullback-Leibler divergence of the current rows from the reference over the same bins, nats. For information."""
    num_reference: int
    """Rows of the reference that have the feature."""
    num_current: int
    """Current rows that have it."""
    details: str = ""
    """What changed most, in words: medians, categories never seen before, words that came or went."""
    bars: tuple[Bar, ...] = ()
    """Reference against current, at most 20 of them."""


class DriftReport(Model):
    """Reference and current rows compared in every feature that both have."""

    drifted: bool
    """Whether any feature did."""
    features: tuple[FeatureDrift, ...]
    """One entry per feature, in a fixed order."""
    num_reference: int
    """Rows of the reference."""
    num_current: int
    """Current rows."""
    unknown: tuple[str, ...] = ()
    """Features that cannot be compared, each with the reason."""


class OutputDrift(Model):
    """What a model makes of the same problems, against an earlier checkpoint. It informs; it fails nothing."""

    baseline: str
    """The run compared with."""
    features: tuple[FeatureDrift, ...]
    """One entry per trait: response length, entropy, log-probability, answers withheld or cut."""


class DriftOutcome(Model):
    """A report, or why there is none."""

    report: DriftReport | None = None
    """The comparison."""
    error: str = ""
    """The message for the user; empty when there is a report."""


CheckStatus = Literal["frozen", "unchanged", "checked", "not_due"]


class DriftCheck(Model):
    """What the stage check-drift found, or had found when it last was due."""

    status: CheckStatus
    """`frozen`: the first check, which made the reference; `unchanged`: rows, reference and settings are those of the
    last check, and so is the rest; `checked`: they were compared; `not_due`: nothing was compared, the rest is the last
    result."""
    drifted: bool
    """Whether a feature drifted."""
    violated: bool
    """Whether a rule of the data contract is broken."""
    report: DriftReport | None
    """The comparison; None unless rows were compared."""
    contract: tuple[RuleResult, ...] = ()
    """The rules of the data contract; empty unless rows were compared."""
    dataset: str
    """Name of the dataset."""
    reference_version: str
    """Version of the rows compared with."""
    current_version: str
    """Version of the rows compared."""
    checked_at: datetime
    """Time of the check."""
    position: TrainingPosition
    """Position of training at that time."""
    settings: str
    """Digest of the settings that decide the result: others make a new check due."""

    @property
    def alarmed(self) -> bool:
        """Whether anybody should look."""
        return self.drifted or self.violated

    @property
    def drifted_features(self) -> tuple[str, ...]:
        """Names of the features that drifted."""
        return tuple(feature.name for feature in self.report.features if feature.drifted) if self.report else ()

    @property
    def broken_rules(self) -> tuple[str, ...]:
        """Names of the rules of the data contract that do not hold."""
        return tuple(rule.name for rule in self.contract if not rule.holds)
