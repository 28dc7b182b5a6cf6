"""Numbers whose digits in the file a Python float does not hold: the digits are kept beside the float.

A JSON parser and Arrow both give floats. `0.12345678901234567890` and `1e23` lose digits on the way, a float32 0.1
gains some (0.10000000149011612), and a whole number beyond 2^53 may have been rounded before it was written.
"""

from decimal import Decimal, InvalidOperation
from typing import Final, Self

_EXACT_BELOW: Final = {64: 2.0**53, 32: 2.0**24, 16: 2.0**11}
"""Bits of a floating-point type to the first whole number that may stand for its neighbour too (IEEE 754)."""


class FileNumber(float):
    """A float with what its file says of its digits; the same as the float for everybody who does not ask."""

    __slots__ = ("digits",)

    digits: Decimal | None
    """The number as written; None where it may have been rounded before."""

    def __new__(cls, value: float, digits: Decimal | None) -> Self:
        """Return `value` with its digits."""
        number = super().__new__(cls, value)
        number.digits = digits
        return number


def parse_json_float(text: str) -> float:
    """Return a number of JSON text; a FileNumber where the float has other digits than the text.

    Raises:
        ValueError: its exponent is beyond what Python's decimals hold.
    """
    value = float(text)
    try:
        digits = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:60]} has an exponent that cannot be read") from None
    is_kept = abs(value) < _EXACT_BELOW[64] and Decimal(repr(value)) == digits
    return value if is_kept else FileNumber(value, digits)


def from_storage(value: float, shortest: str, bits: int) -> float:
    """Return a floating-point value of a typed file.

    Args:
        value: the value, widened to a Python float.
        shortest: the shortest decimal that its own type reads back as the value: `0.1` for a float32 of 0.1.
        bits: width of its type, 64, 32 or 16.
    """
    if abs(value) >= _EXACT_BELOW[bits]:
        return FileNumber(value, None)
    return value if bits == 64 else float(shortest)


def may_be_rounded(value: float) -> bool:
    """Whether digits of the number may have been lost: it stands alone and is a whole number beyond 2^53."""
    return value.digits is None if isinstance(value, FileNumber) else abs(value) >= _EXACT_BELOW[64]
