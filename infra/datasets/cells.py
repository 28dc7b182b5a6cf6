"""From a cell of any file format to the text it stands for, the same text whatever the format.

Parquet, CSV and data frames disagree about types: a column of whole numbers with one gap arrives as floats, a CSV has
text alone. The rules here make the same rows equal.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Final, cast

from infra.datasets.numbers import FileNumber, may_be_rounded
from infra.datasets.rows import Row, Turn
from schemas.errors import DatasetError

_SHOWN_CHARS: Final = 60
_MAX_EXPONENT: Final = 400
"""Beyond every double; a number is written out in digits, and 1e999999999 would fill the memory with them."""
_ROLES: Final = ("system", "user", "assistant")


def shown(value: object) -> str:
    """Return a value as a message may show it: quoted, and cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known word most like `word` (case aside), else a full stop."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    match = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return f"; did you mean {by_lower[match[0]]!r}?" if match else "."


def column_names(row: Row) -> list[str]:
    """Return the columns of a row, and with dots what lies inside those that are objects."""
    names: list[str] = []
    for name, value in row.items():
        names.append(name)
        if isinstance(value, Mapping):
            names += [f"{name}.{inner}" for inner in column_names(cast("Row", value))]
    return names


def find_cell(row: Row, column: str) -> object:
    """Return what a column holds; a dot leads into an object, unless a column has that very name.

    Raises:
        KeyError: it is absent.
    """
    if column in row:
        return row[column]
    outer, dot, inner = column.partition(".")
    value = row.get(outer)
    if not dot or not isinstance(value, Mapping):
        raise KeyError(column)
    return find_cell(cast("Row", value), inner)


def has_cell(row: Row, column: str) -> bool:
    """Whether a row has a column."""
    try:
        find_cell(row, column)
    except KeyError:
        return False
    return True


def require_columns(present: Sequence[str], wanted: Mapping[str, str]) -> None:
    """Check that each wanted column is there; `wanted` maps a column to the key of the configuration that names it.

    Raises:
        DatasetError: one is not; names the columns present, the nearest one and the key to set.
    """
    for column, key in wanted.items():
        if column not in present:
            raise DatasetError(
                f"column {column!r} is not in the data{nearest(column, present)} Columns of the first row: "
                f"{', '.join(map(repr, present)) or 'none'}. Set {key} to the column that holds it"
            )


def as_text(value: object) -> str:
    """Return text as it is and a number in its shortest decimal form: 18 and 18.0 are both `18`, 1e-7 is `0.0000001`.

    A whole float is written as an integer because formats turn whole numbers into floats on their own (a column with a
    gap in Parquet or a data frame): the same rows must give the same golds, ids and version.

    Raises:
        DatasetError: the value is anything else (true, null, NaN, infinity, a list), or a floating-point number that
            may have lost digits before it was written.
    """
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise DatasetError(f"is {shown(value)}, expected text or a number")
    if isinstance(value, FileNumber) and value.digits is not None:
        value = value.digits
    if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
        raise DatasetError(f"is {value}, expected text or a finite number")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if may_be_rounded(value):
            raise DatasetError(
                f"is {value!r}, a floating-point number too large for its type to hold every digit; store it as an "
                "integer, a decimal or text"
            )
        value = Decimal(repr(value))
    if abs(value.adjusted()) > _MAX_EXPONENT:
        raise DatasetError(f"is {value}, expected an exponent of at most {_MAX_EXPONENT}")
    digits = format(value, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _encodable(text: str) -> str:
    """Return the text; JSON's escapes can spell half of a surrogate pair, which no tokenizer, digest or file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DatasetError("holds half of a surrogate pair, which is no character") from None
    return text


def _required(row: Row, column: str) -> object:
    try:
        return find_cell(row, column)
    except KeyError:
        raise DatasetError(f"column {column!r} is absent") from None


def _in_column(column: str, value: object) -> str:
    try:
        return as_text(value)
    except DatasetError as exc:
        raise DatasetError(f"column {column!r} {exc}") from None


def read_required(row: Row, column: str) -> str:
    """Return the column's text, outer white space removed.

    Raises:
        DatasetError: it is absent, empty, or neither text nor a number.
    """
    text = _in_column(column, _required(row, column)).strip()
    if not text:
        raise DatasetError(f"column {column!r} is empty")
    return text


def read_gold(row: Row, column: str) -> str:
    """Return the column's text; a list of one value is that value, as some publishers write every answer.

    Raises:
        DatasetError: as `read_required`, or a list of several values.
    """
    value = _required(row, column)
    if not isinstance(value, (list, tuple)):
        return read_required(row, column)
    values = cast("Sequence[object]", value)
    if len(values) != 1:
        raise DatasetError(f"column {column!r} is a list of {len(values)} values {shown(value)}, expected one gold")
    return read_required({column: values[0]}, column)


def read_prompt(row: Row, column: str) -> tuple[Turn, ...]:
    """Return the column as a conversation of one user turn, white space kept as the data has it.

    Raises:
        DatasetError: it is absent, not text, or blank.
    """
    value = _required(row, column)
    if isinstance(value, (list, tuple)):
        raise DatasetError(
            f"column {column!r} is {shown(value)}, expected text; name a column of {{role, content}} in "
            "valid_dataset.columns.messages"
        )
    if not isinstance(value, str):
        raise DatasetError(f"column {column!r} is {shown(value)}, expected text")
    if not value.strip():
        raise DatasetError(f"column {column!r} is an empty prompt")
    return (Turn("user", _in_column(column, value)),)


def read_optional(row: Row, column: str | None) -> str | None:
    """Return the column's text, or None when it is absent, null or empty (a CSV cannot tell these apart).

    Raises:
        DatasetError: it is neither text nor a number.
    """
    value = find_cell(row, column) if column is not None and has_cell(row, column) else None
    if value is None or value == "":
        return None
    if isinstance(value, float) and math.isnan(value):
        return None  # how data frames write a gap
    return _in_column(column or "", value)


def read_subsets(row: Row, columns: Iterable[str]) -> dict[str, str]:
    """Return the strata of a row; a gap puts the row into none. Raises DatasetError as `read_optional`."""
    subsets: dict[str, str] = {}
    for column in columns:
        value = find_cell(row, column) if has_cell(row, column) else None
        text = str(value).lower() if isinstance(value, bool) else read_optional(row, column)
        if text is not None and text.strip():
            subsets[column] = text.strip()
    return subsets


def read_messages(row: Row, column: str) -> tuple[Turn, ...]:
    """Return a column of {role, content} as a conversation.

    Raises:
        DatasetError: it is not a list of such turns, a role is unknown, the last turn is not the user's or is blank.
    """
    value = _required(row, column)
    if not isinstance(value, (list, tuple)) or not value:
        raise DatasetError(f"column {column!r} is {shown(value)}, expected a list of {{role, content}}")
    turns = tuple(_read_turn(turn, column) for turn in cast("Sequence[object]", value))
    if turns[-1].role != "user":
        raise DatasetError(f"column {column!r} ends with a turn of {turns[-1].role!r}, expected the user's")
    if not turns[-1].content.strip():
        raise DatasetError(f"column {column!r} ends with an empty prompt")
    return turns


def _read_turn(turn: object, column: str) -> Turn:
    fields = cast("Mapping[str, object]", turn) if isinstance(turn, Mapping) else {}
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES or not isinstance(content, str):
        raise DatasetError(
            f"column {column!r} holds the turn {shown(turn)}, expected a role of {', '.join(_ROLES)} and a text content"
        )
    return Turn(role, _in_column(column, content))
