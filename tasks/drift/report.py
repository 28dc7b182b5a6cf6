"""A check of drift for the store and for people: rows of the table `drift`, and a page in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa

from infra.text.tables import TextTable, escape_markdown, format_number, shorten_digests, to_markdown
from schemas.drift import DriftCheck, FeatureDrift, OutputDrift
from schemas.expectations.contract import RuleResult
from schemas.tables import DRIFT

_STATUS: Final = {
    "frozen": "the reference was frozen: there was nothing to compare it with",
    "unchanged": "nothing has changed since the last check; its result is shown",
    "checked": "compared",
    "not_due": "no check was due: this is the last result",
}
_NUM_NAMED: Final = 3


def to_drift_table(check: DriftCheck, identity: Mapping[str, object], outputs: OutputDrift | None = None) -> pa.Table:
    """Return the rows of table `drift`: one per feature and one per rule of the contract.

    Args:
        check: What the stage returned.
        identity: The columns that all tables of a run share.
        outputs: Drift of what the model makes, where it was compared.
    """
    shared = {
        **identity,
        "status": check.status,
        "reference_version": check.reference_version,
        "current_version": check.current_version,
        "checked_at": check.checked_at,
    }
    features = check.report.features if check.report else ()
    rows = [shared | row for row in (*map(_feature_row, features), *map(_rule_row, check.contract))]
    if outputs is not None:
        runs = {"reference_version": outputs.baseline, "current_version": identity["run_id"]}
        rows += [shared | _feature_row(feature) | runs for feature in outputs.features]
    return pa.Table.from_pylist(rows, schema=DRIFT)


def _feature_row(feature: FeatureDrift) -> dict[str, object]:
    return feature.model_dump(exclude={"test", "bars"})


def _rule_row(rule: RuleResult) -> dict[str, object]:
    return {
        "kind": "contract",
        "name": rule.name,
        "drifted": not rule.holds,
        "num_current": rule.num_rows,
        "num_violations": rule.num_violations,
        "item_ids": list(rule.item_ids),
        "details": rule.details,
    }


def summarise(check: DriftCheck, *, now: datetime) -> str:
    """Return the page of a check; names and texts of the dataset are data and are escaped."""
    return "\n".join(_lines(check, now))


def name_verdict(check: DriftCheck) -> str:
    """Return whether there is drift, in two words or three; nothing is said of what was not compared."""
    if check.drifted:
        return "drift"
    return "nothing compared yet" if check.report is None else "no drift"


def _lines(check: DriftCheck, now: datetime) -> Iterator[str]:
    verdict = f"**{name_verdict(check)}**" if check.drifted else name_verdict(check)
    contract = ", **the data contract is broken**" if check.violated else ""
    yield f"## Dataset {escape_markdown(check.dataset)}: {verdict}{contract}"
    yield ""
    yield f"{describe_status(check)}, {_age(now - check.checked_at)} ago."
    if check.report is not None:
        yield (
            f"{check.report.num_current:,} rows ({shorten_digests(check.current_version)}) against "
            f"{check.report.num_reference:,} ({shorten_digests(check.reference_version)})."
        )
        yield f"\n{to_markdown(tabulate_features(check.report.features))}"
        yield from (f"- not compared: {escape_markdown(reason)}" for reason in check.report.unknown)
    yield from (f"- contract: {_describe_rule(rule)}" for rule in check.contract if not rule.holds)
    if check.contract and not check.violated:
        yield f"All {len(check.contract)} rules of the data contract hold."


def describe_findings(check: DriftCheck) -> str:
    """Return in one line what drifted, by how much, and which rules are broken."""
    features = check.report.features if check.report else ()
    found = [f"{each.name} by {_number(each.effect)} ({each.details})" for each in features if each.drifted]
    found += [f"rule broken: {_rule_line(rule)}" for rule in check.contract if not rule.holds]
    return f"{check.dataset}: {'; '.join(found)}; {check.current_version} against {check.reference_version}"


def describe_status(check: DriftCheck) -> str:
    """Return what was done, and when."""
    return f"{_status(check)}; {check.checked_at:%Y-%m-%d %H:%M %Z}"


def tabulate_features(features: Sequence[FeatureDrift]) -> TextTable:
    """Return a row per feature: effect and floor, p-value, verdict, distances, and what changed most."""
    header = ["feature", "effect", "floor", "p", "verdict", "PSI", "JS", "KL", "what changed most"]
    rows = [
        [
            feature.name,
            _number(feature.effect),
            _number(feature.effect_floor),
            _number(feature.p_value),
            _verdict(feature),
            *map(_number, (feature.psi, feature.jensen_shannon, feature.kl)),
            feature.details,
        ]
        for feature in features
    ]
    return TextTable(header=header, rows=rows)


def _verdict(feature: FeatureDrift) -> str:
    if feature.drifted:
        return "drift"
    if feature.underpowered:
        return f"none seen; below {_number(feature.smallest_detectable)} it could go unseen"
    return "none"


def _number(value: float | None) -> str:
    return format_number(value, ".3g")


def _describe_rule(rule: RuleResult) -> str:
    return escape_markdown(_rule_line(rule))


def _rule_line(rule: RuleResult) -> str:
    named = ", ".join(rule.item_ids[:_NUM_NAMED])
    rows = f", {rule.num_violations:,} of {rule.num_rows:,} rows do not: {named}" if rule.num_violations else ""
    return f"{rule.name} does not hold{rows}{'; ' if rule.details else ''}{rule.details}"


def _status(check: DriftCheck) -> str:
    if check.status == "unchanged" and check.report is None:
        return "the rows are still those of the reference"
    return _STATUS[check.status]


def _age(passed: timedelta) -> str:
    hours = passed / timedelta(hours=1)
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
