"""JSON Lines, split on LF alone.

U+2028, U+2029 and U+0085 stand unescaped inside real answers: `str.splitlines` and text-mode readers that follow it
would tear such a row in two. Bytes are split first and decoded after, so no character can end a line but LF.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from infra.datasets.cells import shown
from infra.datasets.numbers import parse_json_float
from infra.datasets.rows import SourceRow
from infra.datasets.sources.regular_file import require_regular_file
from schemas.errors import DatasetError

_BOM: Final = b"\xef\xbb\xbf"


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object of a JSON parser's pairs; of two equal keys JSON parsers keep the last in silence.

    Raises:
        ValueError: a key occurs twice.
    """
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return values


_DECODER: Final = json.JSONDecoder(object_pairs_hook=unique_keys, parse_float=parse_json_float)
"""One for all lines: making one costs as much as a short line."""


def read_jsonl(path: Path) -> Iterator[SourceRow]:
    """Yield one row per line that is not blank; a line that is no JSON object comes as a row with a problem.

    Raises:
        DatasetError: the file cannot be read, or is none.
    """
    require_regular_file(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(_BOM) if number == 1 else line
                if text.strip():
                    yield _read_line(number, text)
    except OSError as exc:
        raise DatasetError(f"{path}: cannot be read: {exc.strerror or exc}") from exc


def _read_line(number: int, line: bytes) -> SourceRow:
    try:
        value: object = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as exc:
        torn = (
            "" if line.endswith(b"\n") else "; the file ends in the middle of this line, as if its writer was stopped"
        )
        return SourceRow(number, {}, f"is not JSON ({exc}){torn}")
    if not isinstance(value, dict):
        return SourceRow(number, {}, f'is {shown(value)}, expected an object such as {{"question": ...}}')
    return SourceRow(number, cast("dict[str, object]", value))
