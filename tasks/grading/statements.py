"""What a clause or a text states as its answer, by the kind of the gold: a number, a letter, a time, a formula, words.

Every pattern is bounded or anchored: a hostile megabyte costs linear time.
"""

import re
from collections import deque
from dataclasses import dataclass
from typing import Final

from tasks.grading.exact import GoldKind
from tasks.grading.markup import MAX_ANSWER_CHARS, unwrap
from tasks.grading.numeric import closed_form_value
from tasks.grading.rationals import exact_value
from tasks.grading.texts import choice_letter
from tasks.grading.times import find_times

_NEAR_END_CHARS: Final = 400
_MAX_BARE_CHARS: Final = 200

FORMULA: Final = re.compile(
    r"\$\$([^$]{1,1000})\$\$|\$([^$\n]{1,1000})\$|\\\((.{1,1000}?)\\\)|\\\[(.{1,1000}?)\\\]", re.DOTALL
)
NUMBER_TOKEN: Final = re.compile(
    r"(?<![A-Za-z_\\\d.])(?:(?<![\w)\]}])[-−])?(?:\\[dt]?frac\s?(?:\{-?\d{1,30}\}|\d)\s?(?:\{\d{1,30}\}|\d)"
    r"|\d{0,9}\s?[\u00bc-\u00be\u2150-\u215e]|\d{1,3} \d{1,3}/\d{1,3}(?![\d/.])"
    r"|[$€£¥]?\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)(?:\.\d{1,400})?(?:\\?%)?"
    r"|[$€£¥]?\d{1,400}(?!\d)(?:\.\d{1,400}(?!\d))?(?:/\d{1,30}(?![\d/]))?(?:\\?%)?|\.\d{1,400})"
    r"(?:[ -]?(?:hundred|thousand|[mb]illion|trillion)s?\b)*"
)
r"""A fraction, a mixed number, one with thousands separators, a plain one with `/` or `%`; with words that scale it."""
_ARITHMETIC: Final = re.compile(r"[\d\s+\-*/().^]{1,200}|[+-]?\d{1,30},\d{1,30}")
_ALTERNATIVE: Final = re.compile(r"\bor\s{1,8}$")
_OPERATOR: Final = re.compile(
    r"\s{0,2}(?:[-+*/^×÷−]|\\(?:times|cdot|div)(?![A-Za-z]))\s{0,2}[$({\\]{0,2}[\d.√]|\((?=\d)|\\(?:sqrt|pi|frac)(?![A-Za-z])"
    r"|\s{1,2}(?:of|times|plus|minus|divided by|multiplied by)\s{1,2}[$({\\]{0,2}\d[^=\n(,;]{0,40}"
    r"(?:=|,?\s(?:which is|equals)\s)"
)
"""What shows that an expression goes on: an operator counts only with a number straight behind it, one in words only
before what it equals."""
_DENIED_BEFORE: Final = re.compile(
    r"(?:\b(?:not|never|cannot|rather than|instead of)|n['’]t)(?:\s{1,4}(?:be|equal(?:\s{1,4}to)?))?\s{1,4}[*$(]{0,3}$"
    r"|(?:≠|!=|\\neq?)\s{0,4}$",
    re.IGNORECASE,
)
"""What shows that the number behind it is no answer: "it isn't 5", "n cannot be 5"."""
_INSTEAD: Final = re.compile(r"(?:,\s{1,4}not|\brather than|\binstead of)\s{1,4}[*$(]{0,3}$", re.IGNORECASE)
"""What shows that the answer stands before a denied number: "6, not 5"."""
_MAX_DENIAL_CHARS: Final = 40
_DENIED: Final = re.compile(r"not\s{1,4}[*$(]{0,3}")
_CHOICES_BEHIND: Final = re.compile(r"\s{0,4}(?:[A-Za-z]{1,12}\s{1,4})?or\s{1,4}(?:[$(*]{0,3})[-−]?[\d.$]|[–—]\d")
"""A second number behind the first: "42 or 43" offers a choice, "42–43" a range."""
_REASON: Final = re.compile(r"\s[(–—]|,?\s(?:because|since|as|so|which|where)\s", re.IGNORECASE)
_SECOND_CHOICE: Final = re.compile(
    r"\)?\W{0,6}(?:\bor\b|\band\b|/|,)\W{0,6}(?:\b(?:option|choice)\b\W{0,4})?\(?[A-J]\)?(?![A-Za-z'’])"
)
"""A second letter beside the first, as in "C or D", "(A) and (B)", "C/D": nothing is stated."""
_FIRST_CHOICE: Final = re.compile(r"(?<![A-Za-z'’])\(?[A-J]\)?\W{0,6}(?:\bor\b|\band\b|/|,)\W{0,6}$")
_CHOICE_AT_START: Final = re.compile(r"\s*\(?([A-J](?:(?=[).:,。，\n]|[^\x00-\x7f])|$)|[B-HJ](?=\s))")
_CHOICE_JUDGED: Final = re.compile(
    r"(?<![A-Za-z'’])\(?([A-J])\)?\*{0,2}\s{1,2}(?:is|must be|would be)\s{1,2}(?:the\s{1,2})?(?:only\s{1,2})?"
    r"(?:correct|answer|(?:right|best)\s{1,2}(?:answer|choice|option|one))(?![\w-])"
    r"|\b(?:correct|right|best)\s{1,2}(?:option|choice)(?:\s{1,2}is)?\s{0,2}:?\s{0,2}[$*(]{0,4}([A-J])(?![A-Za-z'’])"
)
"""A letter that a sentence calls correct; an angle B may be right, and vitamin C the best cure."""
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|that|nor|neither|not)\s{1,2}(?:(?:option|choice)\s{1,2})?$", re.IGNORECASE
)
_CHOICE_AT_END: Final = re.compile(r"(?:^|[\s(*])([A-HJ])[)*.\s]{0,4}$")
_CHOICE_WORD: Final = re.compile(r"(?<![A-Za-z'’])\(?([A-HJ])\)?(?![A-Za-z'’])")
_SPECIAL: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>(?:user)?|</s>")
WORDS: Final = re.compile(r"[A-Za-z]{3,}")
COMMAND: Final = re.compile(r"\\[a-zA-Z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What extraction knows of the problem."""

    kind: GoldKind
    """How the gold is compared."""
    is_list: bool = False
    """Whether the gold has several members: then boxes that stand side by side are read together."""


def reduce_clause(clause: str, question: Question) -> str | None:
    """Return the answer inside a clause such as `12 apples because ...` or `$x$ is $5$`."""
    if question.kind is GoldKind.CHOICE:
        words = (match for match in _CHOICE_WORD.finditer(clause) if not _is_denied(clause, match.start()))
        match = _CHOICE_AT_START.match(unwrap(clause)) or next(words, None)
        return clause if match is None or _SECOND_CHOICE.match(match.string, match.end(1)) else match[1]
    if question.kind is GoldKind.TIME:
        times = find_times(clause)
        return times[0][0] if len(times) == 1 else clause
    if question.kind is GoldKind.NUMBER:
        return _stated_number(clause)
    if question.kind is GoldKind.SYMBOLIC:
        formulas = _formulas(clause, affirmed=True)
        if formulas:
            return ", ".join(formulas) if question.is_list else formulas[-1]
    if question.kind is GoldKind.TEXT:
        return _REASON.split(clause, maxsplit=1)[0] or clause
    return clause


def find_last_statement(text: str, question: Question) -> str | None:
    """Return a completion that is nothing but an answer, else the last number or formula, by the kind of the gold."""
    bare = _SPECIAL.sub("", text).strip()
    is_bare = len(bare) <= _MAX_BARE_CHARS and "\n" not in unwrap(bare)
    found: str | None = None
    if question.kind is GoldKind.NUMBER:
        found = bare if is_bare and _ARITHMETIC.fullmatch(bare) else _last_number(bare)
    elif question.kind is GoldKind.CHOICE:
        found = _last_choice(bare, is_bare=is_bare)
    elif question.kind is GoldKind.TIME:
        times = find_times(text[-MAX_ANSWER_CHARS:])
        found = times[-1][0] if times else bare if is_bare else None
    elif question.kind is GoldKind.SYMBOLIC:
        formulas = _formulas(text[-2 * MAX_ANSWER_CHARS :])
        if is_bare and not (formulas and WORDS.search(FORMULA.sub(" ", bare))):
            found = bare
        elif formulas and not _is_last_formula_denied(text):
            found = ", ".join(formulas) if question.is_list and is_bare else formulas[-1]
    elif is_bare:
        found = bare
    return found or None


def _last_choice(text: str, *, is_bare: bool) -> str | None:
    if is_bare and choice_letter(text):
        return text
    start, end = _CHOICE_AT_START.match(text), _CHOICE_AT_END.search(text[-80:])
    begins_sentence = start is not None and text[start.end(1) : start.end(1) + 1].isspace()
    if (begins_sentence or (start is None and end is None)) and (judged := _judged_choice(text)):
        return judged
    if start is not None:
        return None if _SECOND_CHOICE.match(text, start.end(1)) else start[1]
    if end is None or _FIRST_CHOICE.search(end.string[: end.start(1)]) or _is_denied(end.string, end.start(1)):
        return None
    return end[1]


def _judged_choice(text: str) -> str | None:
    """Return the letter that the last sentence of its kind calls correct."""
    match = last_match(_CHOICE_JUDGED, text)
    if match is None:
        return None
    before = text[max(0, match.start() - 40) : match.start()]
    return None if _UNSURE.search(before) or _FIRST_CHOICE.search(before) else match[1] or match[2]


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match, looking near the end first: there it nearly always is."""
    for start in (max(0, len(text) - _NEAR_END_CHARS), 0):
        last = deque(pattern.finditer(text, start), maxlen=1)
        if last or start == 0:
            break
    return last[0] if last else None


def _formulas(text: str, *, affirmed: bool = False) -> list[str]:
    """Return the formulas of a text; with `affirmed` without those that it says not to be the answer."""
    return [
        next(group for group in match.groups() if group)
        for match in FORMULA.finditer(text)
        if not (affirmed and _is_denied(text, match.start()))
    ]


def _stated_number(clause: str) -> str | None:
    """Return the number that the clause after "the answer is" states: the one it begins with, else its last."""
    clause = clause.strip()
    denied = _DENIED.match(clause)
    number = NUMBER_TOKEN.match(clause, denied.end()) if denied else None
    if number is not None and not NUMBER_TOKEN.search(clause, number.end()):
        return clause  # "not 5" states nothing, "not 5 but 6" does
    formula = FORMULA.match(clause)
    if formula is not None and not _goes_on(clause, formula.end()):
        value = next(group for group in formula.groups() if group).rpartition("=")[2]
        if closed_form_value(value) is not None:
            return value
    first = NUMBER_TOKEN.match(clause.lstrip("*$(["))
    if first is not None and _CHOICES_BEHIND.match(first.string, first.end()):
        return clause
    if first is not None and not _goes_on(first.string, first.end()):
        return clause if exact_value(unwrap(clause)) is not None else first.group()
    return _last_number(clause)


def _goes_on(text: str, position: int) -> bool:
    """Whether an expression continues at `position`, or another number is offered there."""
    return bool(_OPERATOR.match(text, position) or _CHOICES_BEHIND.match(text, position))


def _last_number(text: str, *, num_denials: int = 4) -> str | None:
    """Return the last number of a text, or its last formula where no number follows that."""
    if len(text) <= MAX_ANSWER_CHARS and exact_value(unwrap(text)) is not None:
        return text
    tail = text[-2 * MAX_ANSWER_CHARS :]
    formula = last_match(FORMULA, tail)
    if formula is not None and not NUMBER_TOKEN.search(tail, formula.end()):
        content = next(group for group in formula.groups() if group)
        if _is_denied(tail, formula.start()):
            return None
        if _is_formula(content):
            return content.rpartition("=")[2]
    last = last_match(NUMBER_TOKEN, text)
    if last is None or _ALTERNATIVE.search(text, max(0, last.start() - 12), last.start()):
        return None  # "5 or 0" offers a choice and states no answer
    if _is_denied(text, last.start()):
        instead = _INSTEAD.search(text[max(0, last.start() - _MAX_DENIAL_CHARS) : last.start()])
        if instead is None or not num_denials:
            return None
        return _last_number(text[: last.start() - len(instead.group())], num_denials=num_denials - 1)
    return last.group()


def _is_denied(text: str, position: int) -> bool:
    """Whether the words before a position say that what stands there is no answer."""
    return bool(_DENIED_BEFORE.search(text[max(0, position - _MAX_DENIAL_CHARS) : position]))


def _is_last_formula_denied(text: str) -> bool:
    last = last_match(FORMULA, text)
    return last is not None and _is_denied(text, last.start())


def _is_formula(text: str) -> bool:
    """Whether the text between two dollar signs is mathematics, and not the words between two prices."""
    return not WORDS.search(COMMAND.sub("", re.sub(r"\\text\w*\s?\{[^{}]{0,200}\}", "", text)))
