r"""Sets of real numbers in their many notations, brought to one: a union of intervals from left to right.

`x<0 \text{ or } x>2`, `(-\infty,0)\cup(2,\infty)`, `\{x \mid x<0 \lor x>2\}`, `x \ne 3`, `\mathbb{R}\setminus\{3\}`,
`\text{all real numbers}`, `\emptyset`. End points are closed forms of numbers; everything else is left to algebra.
"""

import math
import re
from functools import lru_cache
from typing import Final, NamedTuple

from tasks.grading.markup import simplify_markup
from tasks.grading.numeric import closed_form_value
from tasks.grading.rationals import exact_value
from tasks.grading.texts import plain_text

_APART: Final = 1e-4
_SAME: Final = 1e-12
_MAX_PARTS: Final = 12

_BUILDER: Final = re.compile(r"\\\{\s*(?P<condition>.+?)\s*\\\}", re.DOTALL)
_BUILDER_BAR: Final = re.compile(r"\s*(?:\\mid(?![a-zA-Z])|\\vert(?![a-zA-Z])|\||:)\s*")
_NAME: Final = r"[A-Za-z](?:_\{?\w\}?|\(x\))?"
_BUILDER_NAME: Final = re.compile(rf"({_NAME})\s*(?:\\in(?![a-zA-Z])\s*\(-\\infty,\\infty\))?")
_MEMBERSHIP: Final = re.compile(rf"^({_NAME})\s*\\in(?![a-zA-Z])\s*")
_REAL_SUFFIX: Final = re.compile(rf",\s*{_NAME}\s*\\in(?![a-zA-Z])\s*\(-\\infty,\\infty\)$")
_OR: Final = re.compile(r"\\text\s*\{\s*or\s*\}|\bor\b|\\(?:lor|vee)(?![a-zA-Z])|\\cup(?![a-zA-Z])")
_AND: Final = re.compile(r"\\text\s*\{\s*and\s*\}|\band\b|\\(?:land|wedge)(?![a-zA-Z])|\\cap(?![a-zA-Z])")
_RELATION: Final = re.compile(r"\\(?:le|ge|lt|gt|ne|neq)(?![a-zA-Z])|\\not\s*=|[<>=]")
_WITHOUT: Final = re.compile(
    r"\\(?:setminus|backslash|smallsetminus)(?![a-zA-Z])|\\text\s*\{\s*except\s*\}|(?<=\))\s*-\s*(?=\\\{)"
)
_INTERVAL: Final = re.compile(r"([(\[])\s*([^,;]+?)\s*[,;]\s*([^,;]+?)\s*([)\]])")
_FINITE: Final = re.compile(r"\\\{\s*([^{}|]*(?:\{[^{}]*\}[^{}|]*)*)\\\}")
_ALL_REALS: Final = frozenset(
    {"all real numbers", "all reals", "all real", "set of all real numbers", "any real number"}
)


class _Bound(NamedTuple):
    value: float
    text: str


class Piece(NamedTuple):
    """One interval; a single number has equal closed ends."""

    low: _Bound
    is_low_closed: bool
    high: _Bound
    is_high_closed: bool


class RealSet(NamedTuple):
    """A union of intervals from left to right, none of which touch."""

    pieces: tuple[Piece, ...]
    """Empty for the empty set."""
    name: str
    """The variable that was written, or nothing."""
    is_plain: bool
    """Whether it is written as one pair `(a, b)`, which may be a point as well."""


class _NotASetError(Exception):
    """The text is no set of this kind."""


_MINUS: Final = _Bound(-math.inf, r"-\infty")
_PLUS: Final = _Bound(math.inf, r"\infty")


def _bound(text: str) -> _Bound:
    text = text.strip()
    plain = text.replace(" ", "")
    if plain in (r"-\infty", r"\infty", r"+\infty"):
        return _MINUS if plain[0] == "-" else _PLUS
    value = closed_form_value(text)
    if value is None:
        raise _NotASetError
    return _Bound(value, text)


def _points(text: str) -> list[_Bound]:
    r"""Read `1, 2`, `\pm 5` and `\{1, 2\}`."""
    if match := _FINITE.fullmatch(text.strip()):
        text = match[1]
    bounds: list[_Bound] = []
    for part in text.split(","):
        signs = re.split(r"\\pm(?![a-zA-Z])", part)
        if len(signs) > 2:
            raise _NotASetError
        members = (
            [part] if len(signs) == 1 else [f"{signs[0]}+{signs[1]}".lstrip(" +"), f"{signs[0]}-{signs[1]}".strip()]
        )
        bounds.extend(_bound(member) for member in members)
    return bounds


def _merge(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Sort the pieces and join those that overlap or touch."""
    merged: list[Piece] = []
    for piece in sorted(pieces, key=lambda each: (each.low.value, not each.is_low_closed)):
        if merged:
            last = merged[-1]
            gap = piece.low.value - last.high.value
            if gap < 0 or (abs(gap) <= _SAME and (piece.is_low_closed or last.is_high_closed)):
                ends = [(last.high, last.is_high_closed), (piece.high, piece.is_high_closed)]
                high, is_closed = max(ends, key=lambda end: (end[0].value, end[1]))
                merged[-1] = last._replace(high=high, is_high_closed=is_closed)
                continue
        merged.append(piece)
    return tuple(merged)


def _intersect(first: tuple[Piece, ...], second: tuple[Piece, ...]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for one in first:
        for other in second:
            low, is_low_closed = max(
                ((one.low, one.is_low_closed), (other.low, other.is_low_closed)),
                key=lambda end: (end[0].value, not end[1]),
            )
            high, is_high_closed = min(
                ((one.high, one.is_high_closed), (other.high, other.is_high_closed)),
                key=lambda end: (end[0].value, end[1]),
            )
            if low.value < high.value or (low.value == high.value and is_low_closed and is_high_closed):
                pieces.append(Piece(low, is_low_closed, high, is_high_closed))
    return _merge(pieces)


def _all_but(points: list[_Bound]) -> tuple[Piece, ...]:
    ends = sorted(points, key=lambda bound: bound.value)
    lows, highs = [_MINUS, *ends], [*ends, _PLUS]
    return tuple(Piece(low, False, high, False) for low, high in zip(lows, highs, strict=True))


class _Reader:
    """Reads one text; remembers the variable, of which there may be one only."""

    def __init__(self) -> None:
        self.name = ""
        self.is_plain = False

    def read(self, text: str) -> tuple[Piece, ...]:
        text = self._strip_membership(_REAL_SUFFIX.sub("", text.strip()))
        words = plain_text(text)
        if words in _ALL_REALS:
            return (Piece(_MINUS, False, _PLUS, False),)
        if text in (r"\emptyset", r"\{\}", r"\{ \}") or words == "no solution":
            return ()
        condition = self._builder_condition(text)
        if condition is not None:
            return self.read(condition)
        parts = _OR.split(text)
        if 1 < len(parts) <= _MAX_PARTS:
            return _merge([piece for part in parts for piece in self._read_part(part)])
        return self._read_part(text)

    def _strip_membership(self, text: str) -> str:
        match = _MEMBERSHIP.match(text)
        if match is None:
            return text
        self._meet(match[1])
        return text[match.end() :].strip()

    def _meet(self, name: str) -> None:
        if self.name not in ("", name):
            raise _NotASetError
        self.name = name

    def _builder_condition(self, text: str) -> str | None:
        r"""Return the condition of `\{x \mid condition\}`."""
        match = _BUILDER.fullmatch(text)
        if match is None:
            return None
        head, *rest = _BUILDER_BAR.split(match["condition"], maxsplit=1)
        name = _BUILDER_NAME.fullmatch(head.strip())
        if not rest or name is None:
            return None
        self._meet(name[1])
        return rest[0]

    def _read_part(self, text: str) -> tuple[Piece, ...]:
        text = self._strip_membership(text.strip().strip(",").strip())
        conditions = _AND.split(text)
        if len(conditions) > 1:
            return self._all_of(conditions)
        base, *removed = _WITHOUT.split(text)
        if removed:
            pieces = self.read(base)
            for part in removed:
                pieces = _intersect(pieces, _all_but(_points(part)))
            return pieces
        if _RELATION.search(text):
            return self._read_relations(text)
        if match := _INTERVAL.fullmatch(text):
            return (self._interval(match),)
        if _FINITE.fullmatch(text):
            return _merge([Piece(point, True, point, True) for point in _points(text)])
        raise _NotASetError

    def _interval(self, match: re.Match[str]) -> Piece:
        low, high = _bound(match[2]), _bound(match[3])
        if low.value >= high.value:
            raise _NotASetError
        self.is_plain = True
        return Piece(low, match[1] == "[" and low is not _MINUS, high, match[4] == "]" and high is not _PLUS)

    def _all_of(self, conditions: list[str]) -> tuple[Piece, ...]:
        first, *others = [self._read_part(condition) for condition in conditions]
        for other in others:
            first = _intersect(first, other)
        return first

    def _read_relations(self, text: str) -> tuple[Piece, ...]:
        r"""Read `1 < x \le 2`, `x \ne 3` and several of them with commas: all hold, or where that is empty any."""
        parts: list[str] = []
        for part in text.split(","):
            if _RELATION.search(part) or not parts:
                parts.append(part)
            else:
                parts[-1] += "," + part  # the second number of x \ne 1, 2
        conditions = [self._relation(part) for part in parts]
        together = conditions[0]
        for other in conditions[1:]:
            together = _intersect(together, other)
        return together or _merge([piece for condition in conditions for piece in condition])

    def _relation(self, text: str) -> tuple[Piece, ...]:
        signs = [match.group() for match in _RELATION.finditer(text)]
        sides = [side.strip() for side in _RELATION.split(text)]
        names = [position for position, side in enumerate(sides) if re.fullmatch(_NAME, side)]
        if len(names) != 1 or len(sides) not in (2, 3):
            raise _NotASetError
        self._meet(sides[names[0]])
        place = names[0]
        if signs[0] in (r"\ne", r"\neq", "=") or signs[0].startswith(r"\not"):
            if len(sides) != 2 or place != 0:
                raise _NotASetError
            points = _points(sides[1])
            return (
                _merge([Piece(point, True, point, True) for point in points]) if signs[0] == "=" else _all_but(points)
            )
        if len(sides) == 3 and place != 1:
            raise _NotASetError
        pieces: tuple[Piece, ...] = (Piece(_MINUS, False, _PLUS, False),)
        for position, sign in enumerate(signs):
            is_left = position + 1 == place  # the number stands left of the name
            bound = _bound(sides[position if is_left else position + 1])
            is_closed, points_left = sign in (r"\le", r"\ge"), sign in ("<", r"\lt", r"\le")
            if points_left == is_left:
                ray = Piece(bound, is_closed, _PLUS, False)
            else:
                ray = Piece(_MINUS, False, bound, is_closed)
            pieces = _intersect(pieces, (ray,))
        return pieces


@lru_cache(maxsize=8192)
def read_set(text: str) -> RealSet | None:
    """Return the set of real numbers that `text` describes, or None when it is no such set."""
    if len(text) > 400:
        return None
    reader = _Reader()
    try:
        pieces = reader.read(simplify_markup(text))
    except _NotASetError:
        return None
    is_one_interval = reader.is_plain and len(pieces) == 1 and not reader.name and not _is_unbounded(pieces[0])
    return RealSet(pieces, reader.name, is_one_interval and _OR.search(text) is None)


def _is_unbounded(piece: Piece) -> bool:
    return piece.low is _MINUS or piece.high is _PLUS


def _is_finite(numbers: RealSet) -> bool:
    return all(piece.low.value == piece.high.value for piece in numbers.pieces)


def compare_sets(answer: str, gold: str) -> bool | None:
    """Compare two sets; None where one is none, or where two end points need computer algebra.

    A pair `(a, b)` alone is a set only beside another notation of one.
    """
    of_gold, of_answer = read_set(gold), read_set(answer)
    if of_gold is None or of_answer is None or (of_gold.is_plain and of_answer.is_plain):
        return None
    if of_gold.name and of_answer.name and of_gold.name != of_answer.name:
        return None
    if (of_gold.is_plain or of_answer.is_plain) and (_is_finite(of_gold) or _is_finite(of_answer)):
        return None  # the pair may be a point or a list
    if len(of_gold.pieces) != len(of_answer.pieces):
        return False
    verdict: bool | None = True
    for one, other in zip(of_answer.pieces, of_gold.pieces, strict=True):
        if (one.is_low_closed, one.is_high_closed) != (other.is_low_closed, other.is_high_closed):
            return False
        for first, second in ((one.low, other.low), (one.high, other.high)):
            equal = _bounds_equal(first, second)
            if equal is False:
                return False
            verdict = verdict and equal
    return verdict


def _bounds_equal(first: _Bound, second: _Bound) -> bool | None:
    if math.isinf(first.value) or math.isinf(second.value):
        return first.value == second.value
    if abs(first.value - second.value) > _APART * max(abs(first.value), abs(second.value), _APART):
        return False
    one, other = exact_value(first.text), exact_value(second.text)
    if one is not None and other is not None:
        return one.value == other.value
    return True if first.text == second.text else None


def as_union(text: str) -> str | None:
    r"""Return a set as a union of intervals in LaTeX, `(-\infty,0)\cup(2,\infty)`, for computer algebra."""
    found = read_set(text)
    if found is None or found.is_plain:
        return None
    return r"\cup ".join(map(_piece_latex, found.pieces)) or r"\emptyset"


def _piece_latex(piece: Piece) -> str:
    if piece.low.value == piece.high.value:
        return rf"\{{{piece.low.text}\}}"
    opening, closing = "[" if piece.is_low_closed else "(", "]" if piece.is_high_closed else ")"
    return f"{opening}{piece.low.text},{piece.high.text}{closing}"
