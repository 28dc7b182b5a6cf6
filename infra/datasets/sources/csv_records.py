"""CSV as in RFC 4180: quoted fields may hold commas, quotes and line breaks. The first record names the columns."""

import csv
from collections.abc import Iterator
from pathlib import Path

from infra.datasets.rows import SourceRow
from infra.datasets.sources.regular_file import require_regular_file
from schemas.errors import DatasetError

_MAX_FIELD_CHARS = 2**31 - 1
"""The csv module's default of 131,072 characters is less than one long-context problem."""


def read_csv(path: Path) -> Iterator[SourceRow]:
    """Yield the records; one with more or fewer fields than the header comes as a row with a problem.

    Raises:
        DatasetError: the file cannot be read or decoded, a quote is not closed, or the header names a column twice.
    """
    require_regular_file(path)
    csv.field_size_limit(_MAX_FIELD_CHARS)
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            records = csv.reader(file, strict=True)
            header = _read_header(path, next(records, []))
            for number, record in enumerate((record for record in records if record), start=1):
                if len(record) == len(header):
                    yield SourceRow(number, dict(zip(header, record, strict=True)))
                else:
                    yield SourceRow(number, {}, f"has {len(record)} fields, expected {len(header)} as the header names")
    except OSError as exc:
        raise DatasetError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except csv.Error as exc:
        raise DatasetError(
            f"{path}: row {number + 1} is not CSV: {exc}; is a quote left open or the file cut?"
        ) from exc
    except UnicodeDecodeError as exc:
        raise DatasetError(f"{path}: is not UTF-8 after row {number}: {exc.reason}; save it as UTF-8") from exc


def _read_header(path: Path, header: list[str]) -> list[str]:
    twice = [name for position, name in enumerate(header) if name in header[:position]]
    if twice:
        raise DatasetError(f"{path}: the header names the column {twice[0]!r} twice; rename one")
    return header
