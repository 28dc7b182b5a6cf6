"""The usual culprits, before any statistics: what each replica loaded and runs, compared with the plan and the others.

A fact that the plan or the controller knows is held against that, so a single wrong replica of two is named; the others
are held against the majority.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from schemas.consistency import ConsistencyCheck, WorkerName
from schemas.inference import EngineFacts, Plan
from schemas.sampling import SamplingSpec


@dataclass(frozen=True, slots=True)
class _Fact:
    name: str
    read: Callable[[EngineFacts], str | None]
    """The value as it is compared; None when unknown."""
    expected: str | None = None
    """What it has to be; None where the majority says."""
    decides: bool = True


def compare_facts(
    facts: Mapping[WorkerName, EngineFacts], plan: Plan, *, weight_sample: str | None
) -> list[ConsistencyCheck]:
    """Return one check per fact, the likeliest culprits first.

    Args:
        facts: what each worker reported; those that never loaded an engine are absent.
        plan: what was planned.
        weight_sample: of the weights that the controller pinned; None when unknown.
    """
    return [_compare(fact, facts) for fact in _facts(plan, weight_sample)] + [_compare_versions(facts)]


def _facts(plan: Plan, weight_sample: str | None) -> tuple[_Fact, ...]:
    return (
        _Fact("weights", lambda facts: facts.weight_sample, weight_sample),
        _Fact("engine", lambda facts: facts.engine, plan.engine),
        _Fact("dtype", lambda facts: facts.dtype, None if plan.dtype == "auto" else plan.dtype),
        _Fact("tokenizer", lambda facts: facts.tokenizer_digest, plan.tokenizer_digest),
        _Fact("chat_template", lambda facts: facts.chat_template_digest, plan.chat_template_digest),
        _Fact("sampling", lambda facts: _spelled(facts.sampling), _spelled(plan.sampling)),
        # other kinds of GPU round in other ways, which is no fault, but the first thing to know when answers differ
        _Fact("device", lambda facts: facts.device, decides=False),
    )


def _compare(fact: _Fact, facts: Mapping[WorkerName, EngineFacts]) -> ConsistencyCheck:
    read = {worker: fact.read(each) for worker, each in facts.items()}
    values = {worker: value for worker, value in read.items() if value is not None}
    if not values or (fact.expected is None and len(values) < 2):
        return ConsistencyCheck(
            check=fact.name, outcome="cannot_tell", decides=fact.decides, message=f"{fact.name}: known of {len(values)}"
        )
    suspects, expected = _outliers(values, fact.expected)
    if not suspects:
        message = f"{fact.name}: the same for {len(values)} replicas ({expected})"
        return ConsistencyCheck(check=fact.name, outcome="passed", decides=fact.decides, message=message)
    first = suspects[0]
    against = f"expected {expected}" if expected is not None else "and no majority says which is right"
    return ConsistencyCheck(
        check=fact.name,
        outcome="violated",
        decides=fact.decides,
        suspects=tuple(suspects),
        message=(
            f"{fact.name} of {', '.join(map(str, suspects[:4]))}{' …' if len(suspects) > 4 else ''} differs: "
            f"{first} has {values[first]}, {against}"
        ),
    )


def _compare_versions(facts: Mapping[WorkerName, EngineFacts]) -> ConsistencyCheck:
    """Return whether the replicas of one attempt run the same packages; a resumed run names new ones by itself."""
    by_attempt: dict[int | None, dict[WorkerName, EngineFacts]] = {}
    for worker, each in facts.items():
        by_attempt.setdefault(worker.attempt, {})[worker] = each
    packages = ("vllm", "sglang", "torch", "transformers")
    fact = _Fact(
        "versions",
        lambda each: ", ".join(f"{name} {each.versions[name]}" for name in packages if name in each.versions) or None,
    )
    checks = [_compare(fact, group) for group in by_attempt.values()]
    return next(
        (check for check in checks if check.outcome == "violated"), checks[-1] if checks else _compare(fact, {})
    )


def _outliers(values: Mapping[WorkerName, str], expected: str | None) -> tuple[list[WorkerName], str | None]:
    """Return the workers that have another value than expected, and what was; in a tie all of them, and None."""
    if expected is None:
        ranked = Counter(values.values()).most_common(2)
        if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
            return list(values), None
        expected = ranked[0][0]
    return [worker for worker, value in values.items() if value != expected], expected


def _spelled(sampling: SamplingSpec | None) -> str | None:
    return sampling and sampling.model_dump_json()
