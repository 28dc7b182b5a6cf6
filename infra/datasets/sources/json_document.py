"""One JSON document: a list of objects, or an object whose `data` is one. Read whole, as JSON must be.

Many publishers name JSON Lines `.json`; a file whose first line is an object of its own is read as such.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from infra.datasets.cells import shown
from infra.datasets.numbers import parse_json_float
from infra.datasets.rows import SourceRow
from infra.datasets.sources.jsonl import read_jsonl, unique_keys
from infra.datasets.sources.regular_file import require_regular_file
from schemas.errors import DatasetError

_SEVERAL_DOCUMENTS: Final = "Extra data"
"""What Python's parser says of text behind a whole document."""


def read_json_document(path: Path) -> Iterator[SourceRow]:
    """Yield the list's entries; one that is no object comes as a row with a problem.

    Raises:
        DatasetError: the file cannot be read, is no JSON, or holds no list.
    """
    require_regular_file(path)
    entries = _read_list(path)
    if entries is None:
        yield from read_jsonl(path)
        return
    for number, value in enumerate(entries, start=1):
        if isinstance(value, dict):
            yield SourceRow(number, cast("dict[str, object]", value))
        else:
            yield SourceRow(number, {}, f'is {shown(value)}, expected an object such as {{"question": ...}}')


def _read_list(path: Path) -> list[object] | None:
    """Return the entries; None where the file holds one object per line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        document: object = json.loads(text, object_pairs_hook=unique_keys, parse_float=parse_json_float)
    except OSError as exc:
        raise DatasetError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except json.JSONDecodeError as exc:
        if exc.msg == _SEVERAL_DOCUMENTS and exc.doc.lstrip().startswith("{") and "\n" in exc.doc[: exc.pos]:
            return None
        raise DatasetError(f"{path}: is not JSON: {exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise DatasetError(f"{path}: is not JSON: {exc}") from exc
    if isinstance(document, dict):
        keys = cast("dict[str, object]", document)
        if isinstance(keys.get("data"), list):
            return cast("list[object]", keys["data"])
        seen = f"an object with the keys {', '.join(map(repr, list(keys)[:8])) or '(none)'}"
        raise DatasetError(f'{path}: holds {seen}, expected a list of objects or {{"data": [...]}}')
    if not isinstance(document, list):
        raise DatasetError(f'{path}: holds {shown(document)}, expected a list of objects or {{"data": [...]}}')
    return cast("list[object]", document)
