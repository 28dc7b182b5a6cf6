"""The process that validates: `python -m tasks.drift.validation [FEATURE...]`, the user's own features first.

It reads a ValidationRequest from standard input and writes a ValidationReply to standard output, both JSON. It is a
process of its own because great-expectations takes seconds to import, in which nothing else of an interpreter runs,
and because the user's features are foreign code.
"""

import gc
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from infra.machine.python_code import claim_stdout
from schemas.base import Model
from schemas.drift import DriftConfig, DriftOutcome, DriftReport
from schemas.errors import UserInputError
from schemas.expectations.contract import Rule, RuleResult, build_contract
from tasks.drift.profiles import describe_profile
from tasks.drift.user_features import load_feature
from tasks.grading.golds import check_golds

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation

_NUM_NAMED: Final = 20
_DRIFT: Final = "no drift"


class ValidationRequest(Model):
    """What to compare."""

    reference: Path
    """Parquet file in PROFILE_SCHEMA, its subsets split into columns: great-expectations would pickle lists, which
    takes seconds, to tell batches apart."""
    current: Path
    """The same."""
    config: DriftConfig
    """Tests and their thresholds."""


class ValidationReply(Model):
    """What was found, or why nothing was."""

    report: DriftReport | None = None
    """The comparison."""
    contract: tuple[RuleResult, ...] = ()
    """The rules of the contract."""
    error: str = ""
    """The message for the user; empty when there is a report."""


def validate(request: ValidationRequest) -> ValidationReply:
    """Check the current rows against the contract of the reference and for drift: one suite, one run."""
    reference, current = pq.read_table(request.reference), pq.read_table(request.current)
    if not reference.num_rows:
        return ValidationReply(error=f"{request.reference}: the reference has no rows, expected at least one")
    rules = build_contract(describe_profile(reference))
    results = _run_suite(rules, request, _with_checked_golds(reference, current))
    outcome = DriftOutcome.model_validate_json(results[_DRIFT].result["observed_value"])
    return ValidationReply(
        report=outcome.report,
        contract=tuple(_read_result(rule, results[rule.name], current.num_rows) for rule in rules),
        error=outcome.error,
    )


def _with_checked_golds(reference: pa.Table, current: pa.Table) -> pa.Table:
    """Add why a gold cannot be graded.

    Golds that the reference has too are left out: mathematics takes milliseconds each, and whoever loads a validation
    set or draws from a pool looks at them anyway.
    """
    known = set(reference.column("answer").to_pylist())
    golds = [
        gold if grader == "math" and gold not in known else None
        for gold, grader in zip(current.column("answer").to_pylist(), current.column("grader").to_pylist(), strict=True)
    ]
    new = sorted({gold for gold in golds if gold is not None})
    reasons = dict(zip(new, check_golds(new), strict=True))
    problems = pa.array([reasons.get(gold) for gold in golds], pa.string())
    return current.append_column("gold_problem", problems)


def _run_suite(
    rules: Sequence[Rule], request: ValidationRequest, rows: pa.Table
) -> dict[str, "ExpectationValidationResult"]:
    """Return the result of each rule, and of the drift, by name."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from tasks.drift.expectation import ExpectNoDrift

    # Fresh and in memory: threads that shared one context got each other's values.
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows.to_pandas()})
    suite = gx.ExpectationSuite(name="contract and drift")
    for rule in rules:
        suite.add_expectation(_to_expectation(rule))
    suite.add_expectation(
        ExpectNoDrift(reference=str(request.reference), config=request.config.model_dump_json(), meta={"name": _DRIFT})
    )
    validated = batch.validate(
        suite,
        result_format={
            "result_format": "SUMMARY",
            "unexpected_index_column_names": ["item_id"],
            "partial_unexpected_count": _NUM_NAMED,
        },
    )
    by_name: dict[str, ExpectationValidationResult] = {}
    for result in validated.results:
        if result.expectation_config is not None:
            by_name[str((result.expectation_config.meta or {})["name"])] = result
    return by_name


def _to_expectation(rule: Rule) -> "Expectation":
    from great_expectations.expectations.core.expect_column_value_lengths_to_be_between import (
        ExpectColumnValueLengthsToBeBetween,
    )
    from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
    from great_expectations.expectations.core.expect_column_values_to_be_null import ExpectColumnValuesToBeNull
    from great_expectations.expectations.core.expect_column_values_to_be_unique import ExpectColumnValuesToBeUnique
    from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
    from great_expectations.expectations.core.expect_table_columns_to_match_set import ExpectTableColumnsToMatchSet

    meta = {"name": rule.name}
    column = rule.column or ""
    match rule.kind:
        case "columns":
            return ExpectTableColumnsToMatchSet(column_set=list(rule.columns), exact_match=False, meta=meta)
        case "not_null":
            return ExpectColumnValuesToNotBeNull(column=column, meta=meta)
        case "null":
            return ExpectColumnValuesToBeNull(column=column, meta=meta)
        case "unique":
            return ExpectColumnValuesToBeUnique(column=column, meta=meta)
        case "text_length":
            return ExpectColumnValueLengthsToBeBetween(
                column=column, min_value=rule.low, max_value=rule.high, meta=meta
            )
        case "value_set":
            return ExpectColumnValuesToBeInSet(column=column, value_set=list(rule.values), meta=meta)


def _read_result(rule: Rule, result: "ExpectationValidationResult", num_rows: int) -> RuleResult:
    found = result.result
    named = [str(place["item_id"]) for place in found.get("partial_unexpected_index_list") or []]
    seen = [str(value)[:60] for value in dict.fromkeys(found.get("partial_unexpected_list") or [])][:3]
    return RuleResult(
        name=rule.name,
        holds=bool(result.success),
        num_rows=num_rows,
        num_violations=int(found.get("unexpected_count") or 0),
        item_ids=tuple(named[:_NUM_NAMED]),
        details=f"seen: {', '.join(map(repr, seen))}" if seen else "",
    )


def main() -> None:
    """Answer one request."""
    reply_to = os.fdopen(claim_stdout(), "w", encoding="utf-8")  # whatever the user's features print
    warnings.simplefilter("ignore")  # great-expectations imports modules that Python calls deprecated
    gc.disable()  # the process ends in seconds; passes over what the import makes take a tenth of them
    try:
        for path in sys.argv[1:]:
            load_feature(path)  # one that is not there is told before seconds of import
        importlib.import_module("great_expectations")  # while the request is written
        reply = validate(ValidationRequest.model_validate_json(sys.stdin.buffer.read()))
    except UserInputError as exc:
        reply = ValidationReply(error=str(exc))
    with reply_to:
        reply_to.write(reply.model_dump_json())


if __name__ == "__main__":
    main()
