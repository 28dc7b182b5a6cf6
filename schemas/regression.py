"""Whether a checkpoint is worse than earlier ones of its training: what the check found."""

from typing import Literal

from schemas.base import Model
from schemas.comparison import Comparison


class RegressionCheck(Model):
    """The run against one earlier run; undefined numbers are None."""

    against: Literal["previous", "best"]
    """Which earlier checkpoint: the one before it in training, or the one with the highest accuracy."""
    run_id: str
    """The run of that checkpoint."""
    checkpoint: str
    """Checkpoint of the other run, as the user named it."""
    global_step: int | None
    """Training step of the checkpoint; None when unknown."""
    value: float
    """The metric now, over the items that both have."""
    against_value: float
    """The metric there, over the same items."""
    difference: float
    """Value now minus value there."""
    ci_low: float | None
    """Lower end of its 95% interval."""
    ci_high: float | None
    """Upper end of it."""
    num_items: int
    """Items that both have."""
    p_value: float
    """Chance of such a drop where there is none (one-sided)."""
    level: float
    """What that has to be below: this look's share of the false alarms that the whole training may have."""
    config_differs: bool = False
    """Whether the two checkpoints have another config.json or other EOS ids, beside other weights."""
    is_regression: bool
    """Whether the drop is significant and large enough to count."""


class RegressionReport(Model):
    """regression.json: a run against the earlier ones."""

    metric: str
    """What is compared: `mean score`, each item counted once."""
    minimum_effect: float
    """Smallest drop that counts."""
    num_looks: int
    """Runs of other checkpoints so far, on the same problems, which share the false alarms."""
    checks: tuple[RegressionCheck, ...]
    """One for each earlier run it is compared with."""

    @property
    def has_regressed(self) -> bool:
        """Whether it is worse than any of them."""
        return any(check.is_regression for check in self.checks)


class GateResult(Model):
    """What `milepost gate` found: a run against one other."""

    run_id: str
    """The run that is judged."""
    against: str
    """The run that it is held against."""
    comparison: Comparison
    """Comparison of the two."""
    p_value: float
    """Chance of such a drop where there is none (one-sided)."""
    level: float
    """What that has to be below."""
    minimum_effect: float
    """Smallest drop that counts."""
    has_regressed: bool
    """Whether the drop is significant and large enough to count: the gate failed."""
