"""What a refresh did, as Markdown: for the artifact, the console and the report."""

from collections.abc import Iterator, Mapping

from schemas.refresh import ContaminationReport, DrawReport, VersionManifest

_MAX_ROWS = 30


def summarise(manifest: VersionManifest, *, is_new: bool) -> str:
    """Return the page of a version. Texts of the dataset are shown as code, so that none of them is read as markup."""
    origin = manifest.origin
    return "\n".join(
        [
            f"## Validation set {_code(manifest.dataset)}: version {manifest.version}",
            "",
            f"{len(manifest.item_digests):,} items, {_code(origin.reason)}, {origin.created_at:%Y-%m-%d %H:%M %Z}."
            + ("" if is_new else " Another process made it at the same time."),
            *(_describe_draw(manifest.draw, manifest.parent or "") if manifest.draw is not None else ()),
        ]
    )


def _describe_draw(draw: DrawReport, parent: str) -> Iterator[str]:
    yield ""
    for source in draw.pool:
        yield f"- pool {_code(source.path)}: {source.num_items:,} items"
    yield f"- {len(draw.anchors):,} anchors kept from {parent}"
    yield (
        f"- left out: {draw.num_exact_duplicates:,} exact and {draw.num_near_duplicates:,} near duplicates, "
        f"{len(draw.refused_golds):,} golds that cannot be graded"
    )
    yield from ("", "| stratum | wanted | had | drawn |", "|---|---:|---:|---:|")
    for row in draw.strata[:_MAX_ROWS]:
        yield f"| {_name(row.stratum)} | {row.wanted:,} | {row.had:,} | {row.drawn:,} |"
    if len(draw.strata) > _MAX_ROWS:
        yield f"| {len(draw.strata) - _MAX_ROWS:,} more | | | |"
    yield from _describe_contamination(draw.contamination)


def _describe_contamination(report: ContaminationReport) -> Iterator[str]:
    yield ""
    if report.share_removed is None:
        yield "Not checked against training data: `refresh.training_data` is empty."
        return
    yield (
        f"{report.share_removed:.2%} of {report.num_checked:,} problems occur in {report.num_training_rows:,} rows of "
        f"training data and were removed: {report.num_exact:,} as they are, {report.num_ngram:,} by their n-grams, "
        f"{report.num_minhash:,} nearly the same."
    )
    if report.matches:
        yield from ("", "| item | found by | overlap | where | text |", "|---|---|---:|---|---|")
    for match in report.matches:
        yield (
            f"| {_code(match.item_id)} | {match.kind} | {match.overlap:.2f} | {_code(match.source)} row {match.row:,} "
            f"| {_code(match.text)} |"
        )


def _name(stratum: Mapping[str, str]) -> str:
    return _code(", ".join(f"{key}={value}" for key, value in stratum.items())) if stratum else "all"


def _code(text: str) -> str:
    """Return text as a code span in a table's cell: one line, neither backtick nor bar can end it."""
    return f"`{' '.join(text.split()).replace('`', chr(0x2BC)).replace('|', chr(0xA6))}`"
