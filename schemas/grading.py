"""Grading: its configuration and its result."""

from typing import Literal

from pydantic import Field

from schemas.base import Model, Section
from schemas.states import Verdict

AnswerSource = Literal["boxed", "tag", "hash", "phrase", "last_number"]
"""Where an answer may stand in a completion."""


class GradingConfig(Section):
    """How answers are found in completions and compared with the gold."""

    timeout_s: float = Field(default=10.0, gt=0, le=600)
    """CPU seconds that one comparison may take before its process is killed; most take milliseconds. Wall seconds for a
    reward function of your own."""
    num_processes: int | None = Field(default=None, ge=1, le=256)
    """Grading processes for what the exact fast path cannot decide; None for the cores at hand, at most 8."""
    answer_sources: tuple[AnswerSource, ...] = ("boxed", "tag", "hash", "phrase", "last_number")
    """Places of an answer, in search order: the last complete \\boxed{}, the last <answer> tag, the last `#### x`,
    the last "answer is x", and the last number (of a gold that is no number: the last formula, or a completion that is
    nothing but an answer). The first source that yields one decides."""


class Grade(Model):
    """The grader's word on one completion."""

    verdict: Verdict
    """What was decided."""
    answer: str | None
    """The answer that was found, as the completion has it; None when there is none."""
    score: float | None
    """1 or 0, or the fraction of a partial-credit grader; None when the verdict has no score."""
    reason: str | None = None
    """Reason for which there is no score; None when there is one."""
    reward: float | None = None
    """What the user's reward function returned; None where another grader decided."""
