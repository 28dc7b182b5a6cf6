"""One JSON document: a list of objects, or an object whose `data` is one. Read whole, as JSON must be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from infra.datasets.cells import shown
from infra.datasets.rows import SourceRow
from infra.datasets.sources.jsonl import unique_keys
from schemas.errors import DatasetError


def read_json_document(path: Path) -> Iterator[SourceRow]:
    """Yield the list's entries; one that is no object comes as a row with a problem.

    Raises:
        DatasetError: the file cannot be read, is no JSON, or holds no list.
    """
    for number, value in enumerate(_read_list(path), start=1):
        if isinstance(value, dict):
            yield SourceRow(number, cast("dict[str, object]", value))
        else:
            yield SourceRow(number, {}, f'is {shown(value)}, expected an object such as {{"question": ...}}')


def _read_list(path: Path) -> list[object]:
    try:
        document: object = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=unique_keys)
    except OSError as exc:
        raise DatasetError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except json.JSONDecodeError as exc:
        hint = "; if each line is an object of its own, name the file .jsonl" if exc.msg == "Extra data" else ""
        raise DatasetError(f"{path}: is not JSON: {exc}{hint}") from exc
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
