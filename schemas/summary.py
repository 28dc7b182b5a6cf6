"""What an evaluation hands back to whoever started it."""

from pathlib import Path
from typing import Final

from schemas.base import Model
from schemas.consistency import ConsistencyVerdict
from schemas.gates import Gate
from schemas.run import RunIdentity

WHOLE_SET: Final = "all"
"""The subset that holds every item."""


class MetricValue(Model):
    """One row of the metrics table."""

    subset: str
    """`all`, else `key=value`."""
    metric: str
    """Name of the metric."""
    value: float | None
    """Estimate; None when undefined."""
    stderr: float | None
    """Standard error; None when undefined."""
    ci_low: float | None
    """Lower end of the 95% confidence interval."""
    ci_high: float | None
    """Upper end of the 95% confidence interval."""
    num_planned: int
    """Samples planned in the subset."""
    num_scored: int
    """Samples with a verdict on the model."""
    num_failed: int
    """Samples without one."""
    higher_is_better: bool | None
    """Direction of the metric; None when neither."""


class RunSummary(RunIdentity):
    """The outcome of a finished run; what `--json` prints."""

    run_dir: Path
    """Plan, attempts and logs of the run."""
    store: Path
    """Root of the Parquet tables."""
    metrics: tuple[MetricValue, ...]
    """Every metric of every subset."""
    num_planned: int
    """Samples planned."""
    num_scored: int
    """Samples with a verdict on the model."""
    num_failed: int
    """Samples without one."""
    num_skipped_rows: int = 0
    """Rows of the dataset left out because they cannot be used; no sample was planned for them."""
    num_attempts: int
    """Launches it took."""
    num_resumed: int
    """Samples taken over from earlier attempts."""
    wall_s: float
    """Seconds from the start of this command's run to publication."""
    engine_s: float | None
    """Seconds of generation, summed over replicas and attempts."""
    engine: str = ""
    """Engine that made the samples; `stand_in` made them up."""
    base_checkpoint: str | None = None
    """The model that a LoRA adapter was applied to; None for a whole model."""
    differences: tuple[str, ...] = ()
    """What changed between the attempts of the run (engine version, device, …)."""
    has_drifted: bool | None = None
    """Whether the dataset drifted or breaks its contract; None when that was not checked."""
    consistency: ConsistencyVerdict | None = None
    """Whether the replicas agree; None when they were not compared."""
    has_regressed: bool | None = None
    """Whether it is worse than an earlier checkpoint; None when there was none to compare with."""
    is_degenerate: bool | None = None
    """Whether its completions are not those of a working model; None when that was not checked."""

    @property
    def alarms(self) -> tuple[Gate, ...]:
        """The gates that this run does not pass."""
        found: dict[Gate, bool] = {
            "drift": self.has_drifted is True,
            "inconsistency": self.consistency == "disagree",
            "regression": self.has_regressed is True,
        }
        return tuple(gate for gate, is_raised in found.items() if is_raised)
