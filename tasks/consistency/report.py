"""A comparison of the replicas as Markdown: for the artifact."""

from infra.text.tables import TextTable, escape_markdown, format_number, shorten_digests, to_markdown
from schemas.consistency import ConsistencyReport

_VERDICTS = {"agree": "they agree", "disagree": "**they disagree**", "cannot_tell": "nobody can tell"}


def summarise(report: ConsistencyReport) -> str:
    """Return the page of a report: verdict, what was compared, and every replica."""
    verdict = _VERDICTS[report.verdict]
    if report.verdict == "agree" and any(check.outcome == "cannot_tell" for check in report.checks):
        verdict += " in what could be compared"
    checks = [
        [check.check, check.outcome, "yes" if check.decides else "no", shorten_digests(check.message)]
        for check in report.checks
    ]
    replicas = [
        [
            str(replica.name),
            f"{replica.num_samples:,}",
            format_number(replica.accuracy),
            format_number(replica.mean_length, ".1f"),
            format_number(replica.no_answer_rate),
            shorten_digests("; ".join(replica.problems)),
        ]
        for replica in report.replicas
    ]
    return "\n".join(
        (
            f"## Replicas: {verdict}",
            "",
            escape_markdown(shorten_digests(report.message)),
            "",
            to_markdown(TextTable(["check", "outcome", "decides", "found"], checks)),
            to_markdown(TextTable(["who", "samples", "accuracy", "tokens", "no answer", "against it"], replicas)),
        )
    )
