"""Times of day: `2:30`, `10:45 a.m.`, `15:00`, `3 PM`, `noon`. Two of them are equal when a clock shows them alike."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from tasks.grading.markup import simplify_markup

_HALF_DAY_S: Final = 12 * 3600

_PERIOD: Final = r"(?:([ap])\.?\s?m(?![a-z])\.?)"
_CLOCK: Final = re.compile(
    rf"(?:at\s)?(\d{{1,2}})(?::([0-5]\d))?(?::([0-5]\d))?\s*(?:o'?clock\s*)?(?:\(?{_PERIOD}\)?)?", re.IGNORECASE
)
"""Hour, minutes, seconds and the letter of a.m. or p.m.; what is a time of these, `clock_time` says."""
_TOKEN: Final = re.compile(
    rf"(?<![\d:.,])\d{{1,2}}(?::[0-5]\d){{1,2}}(?![:\d])(?:\s?{_PERIOD})?"
    rf"|(?<![\d:.,])\d{{1,2}}\s?{_PERIOD}|\b(?:noon|midnight)\b",
    re.IGNORECASE,
)
_NAMED: Final = {"noon": 12 * 3600, "midnight": 0}
_HINT: Final = re.compile(r"[:mM]|clock|noon", re.IGNORECASE)
_TEXT_COMMAND: Final = re.compile(r"\\text\s*\{([^{}]*)\}")


class ClockTime(NamedTuple):
    """A time of day."""

    seconds: int
    """Since midnight, or since midnight or noon where the half of the day is open."""
    is_half_known: bool
    """Whether the half of the day is known: by a.m. or p.m., or by an hour beyond 12."""
    has_period: bool
    """Whether a.m., p.m., noon or midnight is written: then it is a time for sure, and no ratio."""
    hour: int
    """The hour as written."""


@lru_cache(maxsize=8192)
def clock_time(text: str) -> ClockTime | None:
    """Return the time of day that `text` is; None for a ratio such as `2:3`, a bare hour, and everything else."""
    if len(text) > 80 or not _HINT.search(text):
        return None
    opened = " ".join(_TEXT_COMMAND.sub(r" \1 ", simplify_markup(text)).replace("{", "").replace("}", "").split())
    opened = opened.rstrip(" .")
    named = re.sub(r"^12(?::00)?\s", "", opened.lower())
    if named in _NAMED:
        return ClockTime(_NAMED[named], is_half_known=True, has_period=True, hour=12)
    match = _CLOCK.fullmatch(opened)
    if match is None or not (match[2] or match[4] or "clock" in opened):
        return None
    hour, period = int(match[1]), (match[4] or "").lower()
    if hour > 24 or (period and hour > 23):
        return None
    seconds = int(match[2] or 0) * 60 + int(match[3] or 0)
    if hour > 12 or hour == 0:
        return ClockTime(hour % 24 * 3600 + seconds, is_half_known=True, has_period=bool(period), hour=hour)
    seconds += hour % 12 * 3600 + (_HALF_DAY_S if period == "p" else 0)
    return ClockTime(seconds, is_half_known=bool(period), has_period=bool(period), hour=hour)


def has_period(text: str) -> bool:
    """Say whether `text` is a time with a.m. or p.m., noon or midnight: never a number with a unit."""
    time = clock_time(text)
    return time is not None and time.has_period


def find_times(text: str) -> list[tuple[str, int]]:
    """Return the times that stand in a text, with where each ends."""
    return [(match.group(), match.end()) for match in _TOKEN.finditer(text)]


def compare_times(answer: str, gold: str) -> bool | None:
    """Compare two times of day; None where one of them may be something else, such as a ratio.

    An open half of the day agrees with both: `3:30` equals `3:30 PM`. A whole hour equals its number: `7:00` equals 7.
    """
    of_gold, of_answer = clock_time(gold), clock_time(answer)
    if of_gold is not None and of_answer is not None:
        distance = of_gold.seconds - of_answer.seconds
        is_half_known = of_gold.is_half_known and of_answer.is_half_known
        return distance % (2 * _HALF_DAY_S if is_half_known else _HALF_DAY_S) == 0
    if of_gold is not None:
        return _is_hour(answer, of_gold) if of_gold.has_period or _is_hour(answer, of_gold) else None
    if of_answer is None:
        return None
    if _is_hour(gold, of_answer):
        return True
    return False if of_answer.has_period or ":0" in answer else None


def _is_hour(text: str, time: ClockTime) -> bool:
    return time.seconds % 3600 == 0 and simplify_markup(text).strip() == str(time.hour)
