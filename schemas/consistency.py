"""Consistency of replicas: its configuration section and its report."""

from typing import Literal, NamedTuple

from pydantic import Field

from schemas.base import Model, Section

ConsistencyRule = Literal["residual", "absolute"]
ConsistencyVerdict = Literal["agree", "disagree", "cannot_tell"]
ViolationAction = Literal["fail", "warn", "quarantine"]
Measure = Literal["accuracy", "length", "no_answer_rate", "mean_logprob"]
CheckOutcome = Literal["passed", "violated", "cannot_tell"]


class ConsistencyConfig(Section):
    """Whether all replicas did the same work in the same way."""

    rule: ConsistencyRule = "residual"
    """What decides over shards: `residual` compares each replica with what chance allows; `absolute` takes any replica
    whose accuracy is more than `tolerance` from the mean, which at usual shard sizes is chance more often than not."""
    tolerance: float = Field(default=0.05, gt=0, le=1)
    """Largest distance of a replica's accuracy from the mean under the absolute rule, always shown. 0.05 is custom."""
    alpha: float = Field(default=0.001, gt=0, le=0.1)
    """Chance of a false alarm per run under the residual rule, over all replicas and measures together. One in a
    thousand, because an alarm stops a run."""
    max_undetected: float = Field(default=0.5, gt=0, le=1)
    """Largest difference in a replica's accuracy that may go unseen in the verdict `agree`; where shards are so small
    that a larger one could, the verdict is `cannot_tell`. 0.5 asks that a broken replica would have been noticed."""
    canaries: int | None = Field(default=None, ge=0, le=1000)
    """Problems that every replica answers first, greedily, to be compared token by token; never part of the metrics.
    They cost this many short completions per replica. None: 8, or as many as there are; none for a single replica."""
    canary_tokens: int = Field(default=64, ge=1, le=4096)
    """Longest completion of a canary. What differs between replicas differs within the first tokens."""
    logprob_tolerance: float | None = Field(default=None, gt=0)
    """Largest difference in the log-probability of a canary's token, nats. None: by dtype (docs/consistency.md)."""
    on_violation: ViolationAction = "fail"
    """What disagreement does: `fail` keeps the samples and publishes nothing, `warn` publishes with the verdict,
    `quarantine` has the samples of the named replica made again by the others."""
    strict: bool = False
    """Deterministic settings: a sample does not depend on what shares its batch. Slower (docs/consistency.md)."""


class WorkerName(NamedTuple):
    """One launch of one replica: what is compared with the others."""

    replica: int
    """Number of the replica, from 0."""
    attempt: int | None = None
    """In which launch of the run; None when unknown."""

    def __str__(self) -> str:
        return f"replica {self.replica}" + ("" if self.attempt is None else f" of attempt {self.attempt}")


class ConsistencyCheck(Model):
    """One comparison of the replicas."""

    check: str
    """What was compared, such as `weights`, `canaries`, `prompts` or `accuracy`."""
    outcome: CheckOutcome
    """What was found."""
    decides: bool
    """Whether the verdict rests on it; the others are shown."""
    suspects: tuple[WorkerName, ...] = ()
    """Replicas that differ from the others; several where it cannot be said which of them is wrong."""
    statistic: float | None = None
    """The largest residual, distance or difference; None where the comparison is one of equality."""
    threshold: float | None = None
    """What `statistic` was held against."""
    p_value: float | None = None
    """Chance of so large a statistic among replicas that agree, by permutation; None where it was not needed."""
    detectable: float | None = None
    """Difference of one replica in the measure's own unit that would have been seen with 80% power; None: unknown."""
    message: str
    """What was found, for people."""


class ReplicaReport(Model):
    """What one worker did, beside the others."""

    number: int
    """The replica."""
    attempt: int | None
    """The launch; None when unknown."""
    num_samples: int
    """Samples that the launch made."""
    num_items: int
    """Distinct items among these samples."""
    accuracy: float | None
    """Share of its scored samples that are correct, as the metric; None when unknown."""
    mean_length: float | None
    """Mean tokens of its completions; None when unknown."""
    no_answer_rate: float | None
    """Share of its scored samples that state no answer; None when unknown."""
    mean_logprob: float | None
    """Mean over samples of their mean log-probability, nats; None when unknown."""
    residuals: dict[Measure, float]
    """Standardised residual by measure: its distance from all, in standard deviations of chance."""
    problems: tuple[str, ...] = ()
    """What speaks against it; empty for a healthy replica."""
    is_quarantined: bool = False
    """Whether its samples were set aside and made again."""

    @property
    def name(self) -> WorkerName:
        """Replica and attempt of the worker."""
        return WorkerName(replica=self.number, attempt=self.attempt)


class ConsistencyReport(Model):
    """Whether the replicas agree, and everything that was looked at."""

    verdict: ConsistencyVerdict
    """`disagree` on any deciding violation; `cannot_tell` where nothing could have shown one."""
    message: str
    """The verdict in a sentence: who differs in what, or what could have been seen."""
    replicas: tuple[ReplicaReport, ...]
    """Every worker, by attempt and number."""
    checks: tuple[ConsistencyCheck, ...]
    """Every comparison, the usual culprits first."""
    detectable: float | None = None
    """Difference in one replica's accuracy that would have been seen with 80% power; None when unknown."""

    @property
    def violations(self) -> tuple[ConsistencyCheck, ...]:
        """The comparisons that led to `disagree`."""
        return tuple(check for check in self.checks if check.decides and check.outcome == "violated")
