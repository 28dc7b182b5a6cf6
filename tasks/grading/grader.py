"""Grades completions: finds each answer, decides it at once where that is certain, else by killable processes.

A failure of grading (timeout, crashed) never becomes a score; an outcome of the model (wrong, no answer, unparsed,
truncated) is a 0.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import Final, Self

from schemas.dataset import GraderName
from schemas.errors import ConfigError
from schemas.grading import Grade, GradingConfig
from schemas.states import FinishReason, Verdict
from tasks.grading import procedural
from tasks.grading.exact import GoldKind, classify_gold, compare_exactly
from tasks.grading.extraction import Absence, describe_gold, find_answer, find_gold, strip_reasoning
from tasks.grading.jobs import DIED, Job, Reply
from tasks.grading.limits import why_too_hard
from tasks.grading.markup import MAX_ANSWER_CHARS, comparison_key, unwrap
from tasks.grading.numeric import differ_for_sure, is_numeric
from tasks.grading.pool import GradingPool
from tasks.grading.statements import Question

_CHUNK: Final = 4096
"""Samples in hand at once: memory stays bounded whatever the number of samples."""
_MAX_REMEMBERED: Final = 20_000
"""Replies kept, so that repeats of an item across chunks are compared once."""
_SOLVED_AT: Final = 0.999
"""A partial-credit score from here on is `correct`: scorers return sums of floats."""
_KEPT_ANSWER_CHARS: Final = 4 * MAX_ANSWER_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRequest:
    """One sample to grade."""

    completion: str | None
    """What the model wrote; None when generation failed."""
    gold: str
    """The dataset's answer, not parsed."""
    finish_reason: FinishReason | None = None
    """Why the completion ended; None counts as its own end."""
    grader: GraderName = "math"
    """As in schemas.dataset.EvalItem."""
    grader_data: str = ""
    """As in schemas.dataset.EvalItem: for reasoning_gym {"task": ..., "entry": {...}} as JSON; for a reward function
    the arguments of its call, as tasks.grading.reward_function.describe_call writes them."""
    starts_in_reasoning: bool = False
    """Whether the prompt itself has opened <think>, as some chat templates do."""


def grade_answers(
    completions: Sequence[str], golds: Sequence[str], *, config: GradingConfig | None = None
) -> list[Grade]:
    """Grade each completion against the dataset answer at the same place; order is kept.

    Processes are started only when some comparison needs them, and ended before this returns. To grade in several
    calls, or samples that were cut by length, use `Grader`.

    Raises:
        ValueError: the two sequences differ in length.
    """
    if len(completions) != len(golds):
        raise ValueError(f"{len(completions)} completions but {len(golds)} golds: each completion needs its gold")
    with Grader(config) as grader:
        return list(
            grader.grade_stream(
                GradeRequest(completion=completion, gold=gold)
                for completion, gold in zip(completions, golds, strict=True)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A sample whose answer was found and whose verdict needs a process."""

    job: Job
    answer: str | None


class Grader:
    """Grades batches with one set of processes, started when first needed and ended by `close` or the `with` block."""

    def __init__(self, config: GradingConfig | None = None, *, function: str | None = None) -> None:
        """`function`: dotted path of the reward function that grades the requests whose grader is `function`."""
        self._config = config or GradingConfig()
        self._function = function
        self._pool = GradingPool(num_processes=self._config.num_processes, timeout_s=self._config.timeout_s)
        self._replies: dict[Job, Reply] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pool(self) -> GradingPool:
        """The processes, for `check_golds` to share."""
        return self._pool

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def grade(self, requests: Sequence[GradeRequest]) -> list[Grade]:
        """Return one grade per request, in order."""
        return list(self.grade_stream(requests))

    def grade_stream(self, requests: Iterable[GradeRequest]) -> Iterator[Grade]:
        """Yield one grade per request, in order, a few thousand at a time: memory does not grow with their number."""
        remaining = iter(requests)
        while chunk := list(islice(remaining, _CHUNK)):
            yield from self._grade_chunk(chunk)

    def _grade_chunk(self, requests: Sequence[GradeRequest]) -> list[Grade]:
        first = [self._decide(request) for request in requests]
        self._ask({grade.job for grade in first if isinstance(grade, _Pending)})
        return [
            _grade_of(self._replies[grade.job], grade.answer) if isinstance(grade, _Pending) else grade
            for grade in first
        ]

    def _ask(self, jobs: set[Job]) -> None:
        """Have every job answered that no earlier chunk has: one question, one verdict, whatever the order."""
        if len(self._replies) > _MAX_REMEMBERED:
            self._replies.clear()
        new = sorted(job for job in jobs if job not in self._replies)
        if new:
            replies = dict(zip(new, self._pool.run(new), strict=True))
            self._replies.update(replies | self._ask_again(replies))

    def _ask_again(self, replies: dict[Job, Reply]) -> dict[Job, Reply]:
        """Return the verdicts on answers that no comparison could finish: what a model writes is always counted.

        Against a number such an answer is wrong. Against other mathematics it is wrong where it differs at a few
        points, and unparsed where even they are out of reach; only one that agrees there stays without a verdict.
        """
        died = [
            job for job, reply in replies.items() if job.kind == "compare" and (reply.reason or "").startswith(DIED)
        ]
        replies = replies | dict(zip(died, self._pool.run(died), strict=True))  # the kernel may have taken any process
        lost = [job for job, reply in replies.items() if job.kind == "compare" and _is_lost(reply)]
        verdicts = {job: Reply("wrong") for job in lost if is_numeric(job.gold)}
        others = [job for job in lost if job not in verdicts]
        for job, reply in zip(others, self._pool.run([job._replace(kind="sample") for job in others]), strict=True):
            if reply.outcome == "wrong":
                verdicts[job] = reply
            elif reply.outcome == "unparsed" or _is_lost(reply):
                verdicts[job] = Reply("unparsed")
        return {job: replies[job] for job in died} | verdicts

    def _decide(self, request: GradeRequest) -> Grade | _Pending:
        """Find the answer and compare it as far as the fast path goes."""
        if request.completion is None:
            return Grade(verdict=Verdict.FAILED, answer=None, score=None, reason="no completion was generated")
        if request.grader == "function":
            return self._ask_function(request)
        text = strip_reasoning(request.completion, starts_inside=request.starts_in_reasoning)
        if text is None:
            return _zero(Verdict.TRUNCATED)
        task = _read_task(request.grader_data) if request.grader == "reasoning_gym" else None
        gold, question = _read_gold(request.gold)
        was_cut = request.finish_reason is FinishReason.LENGTH
        if task is None and _is_gold_itself(text, gold, question):
            return Grade(verdict=Verdict.CORRECT, answer=text.strip(), score=1.0)
        found = find_answer(text, question, self._config.answer_sources, was_cut=was_cut)
        if task is not None and found is Absence.NONE:
            found = _last_line(text) or found
        if isinstance(found, Absence):
            return _zero(_ABSENCES[found])
        if task is not None:
            return _decide_procedurally(task, found, question)
        return _decide_mathematically(found, gold)

    def _ask_function(self, request: GradeRequest) -> _Pending:
        if self._function is None:
            raise ConfigError("these samples are graded by a reward function; set reward_fn to its dotted path")
        return _Pending(job=Job("reward", "", request.grader_data, self._function), answer=None)


def _has_died(reply: Reply) -> bool:
    return reply.reason is not None and reply.reason.startswith(DIED)


def _is_lost(reply: Reply) -> bool:
    """Whether a job took too long, too much memory or its process; a lost supervisor is a fault of ours."""
    is_too_large = reply.outcome == "crashed" and (reply.reason or "").startswith("out of memory")
    return reply.outcome == "timeout" or is_too_large or _has_died(reply)


_ABSENCES: Final = {
    Absence.NONE: Verdict.NO_ANSWER,
    Absence.CUT: Verdict.TRUNCATED,
    Absence.UNREADABLE: Verdict.UNPARSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    name: str
    entry: str
    """As JSON."""


@lru_cache(maxsize=4096)
def _read_task(grader_data: str) -> _Task:
    data = json.loads(grader_data)
    return _Task(name=data["task"], entry=json.dumps(data["entry"]))


@lru_cache(maxsize=8192)
def _read_gold(gold: str) -> tuple[str, Question]:
    answer = find_gold(gold)
    return answer, describe_gold(answer, classify_gold(answer))


def _zero(verdict: Verdict, answer: str | None = None) -> Grade:
    return Grade(verdict=verdict, answer=answer, score=0.0)


def _last_line(text: str) -> str | None:
    """Return the last line that says something: puzzles are often answered without any announcement."""
    return next((line.strip() for line in reversed(text[-MAX_ANSWER_CHARS:].splitlines()) if unwrap(line)), None)


def _is_gold_itself(text: str, gold: str, question: Question) -> bool:
    """Whether a completion is the gold, letter for letter, though it mixes words and formulas."""
    return (
        question.kind is not GoldKind.NUMBER
        and len(text) <= MAX_ANSWER_CHARS
        and comparison_key(text) == comparison_key(gold)
    )


def _decide_mathematically(found: str, gold: str) -> Grade | _Pending:
    answer = found.strip()
    is_equal = compare_exactly(answer, gold)
    if is_equal is not None:
        verdict = Verdict.CORRECT if is_equal else Verdict.WRONG
        return Grade(verdict=verdict, answer=answer[:_KEPT_ANSWER_CHARS], score=float(is_equal))
    if len(answer) <= MAX_ANSWER_CHARS and differ_for_sure(answer, gold):
        return _zero(Verdict.WRONG, answer)
    if why_too_hard(answer) is not None:
        verdict = Verdict.WRONG if is_numeric(gold) else Verdict.UNPARSED
        return _zero(verdict, answer[:_KEPT_ANSWER_CHARS])
    return _Pending(job=Job("compare", answer, gold), answer=answer)


def _decide_procedurally(task: _Task, found: str, question: Question) -> Grade | _Pending:
    answer = procedural.plain_answer(found, is_number=question.kind is GoldKind.NUMBER)
    if len(answer) > MAX_ANSWER_CHARS:
        return _zero(Verdict.UNPARSED, answer[:_KEPT_ANSWER_CHARS])
    score = procedural.score_plainly(task.name, answer, task.entry)
    if score is not None:
        return _grade_of(Reply("scored", score=score), answer)
    return _Pending(job=Job("procedural", answer, task.entry, task.name), answer=answer)


def _grade_of(reply: Reply, answer: str | None) -> Grade:
    if reply.outcome == "rewarded" and reply.score is not None:
        verdict = Verdict.CORRECT if reply.score >= _SOLVED_AT else Verdict.WRONG
        return Grade(verdict=verdict, answer=None, score=min(1.0, max(0.0, reply.score)), reward=reply.score)
    if reply.outcome == "scored" and reply.score is not None:
        verdict = Verdict.CORRECT if reply.score >= _SOLVED_AT else Verdict.WRONG
        return Grade(verdict=verdict, answer=answer, score=reply.score)
    if reply.outcome in ("timeout", "crashed"):
        return Grade(verdict=Verdict(reply.outcome), answer=answer, score=None, reason=reply.reason)
    if reply.outcome == "bad_gold":
        return Grade(verdict=Verdict.FAILED, answer=answer, score=None, reason=reply.reason)
    return Grade(verdict=Verdict(reply.outcome), answer=answer, score=float(reply.outcome == "correct"))
