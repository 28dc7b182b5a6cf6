r"""Where a completion states its answer.

Sources are tried in the configured order and the first that yields one decides. Every pattern is bounded or anchored,
so that a hostile megabyte costs linear time; only the last part of a very long completion is read.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from schemas.grading import AnswerSource
from tasks.grading.exact import GoldKind, choice_letter, exact_value
from tasks.grading.markup import MAX_ANSWER_CHARS, match_brace, simplify_markup, unwrap

_TAIL_CHARS: Final = 100_000
"""Answers stand at the end; what lies further back is not read."""
_MAX_BOXES: Final = 32
_NEAR_END_CHARS: Final = 400
_MAX_BARE_CHARS: Final = 200

_BOX: Final = re.compile(r"(?:boxed|\x08oxed|\\fbox|\\framebox)\s{0,8}")
_UNBRACED: Final = re.compile(r"[^\s$\\{}.,;]+")
_BETWEEN_BOXES: Final = re.compile(r"(?:[\s,;$\\)(.]|\band\b|\bor\b|\\q?quad|\\text\s?\{\s?(?:and|or)\s?\})*")
_TAG_OPEN: Final = re.compile(r"<answer>", re.IGNORECASE)
_TAG: Final = re.compile(r"<answer>(.{0,2000}?)</answer>", re.IGNORECASE | re.DOTALL)
_HASH: Final = re.compile(r"^[ \t]*####[ \t]*(\S[^\n]{0,200})$", re.MULTILINE)
_PHRASE: Final = re.compile(
    r"(?:\banswers?\b[^\n.:=：]{0,60}?(?:\bis\b|\bare\b|[:=：])|\bréponse\b[^\n.:=]{0,30}?(?:\best\b|:)"
    r"|答案(?:是|为|[:：])|^[ \t]*(?:\*\*)?A(?:ns)?(?:\*\*)?[ \t]?[:：])[\s*:：]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END: Final = re.compile(r"\n|[.!?](?=\s|$)|。|<\|")
_FORMULA: Final = re.compile(
    r"\$\$([^$]{1,1000})\$\$|\$([^$\n]{1,1000})\$|\\\((.{1,1000}?)\\\)|\\\[(.{1,1000}?)\\\]", re.DOTALL
)
_NUMBER_TOKEN: Final = re.compile(
    r"(?<![A-Za-z_\\\d.])(?:(?<![\w)\]}])[-−])?(?:\\[dt]?frac\{-?\d{1,30}\}\{\d{1,30}\}"
    r"|[$€£¥]?\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)(?:\.\d{1,400})?(?:\\?%)?"
    r"|[$€£¥]?\d{1,400}(?!\d)(?:\.\d{1,400}(?!\d))?(?:/\d{1,30}(?![\d/]))?(?:\\?%)?|\.\d{1,400})"
)
_ARITHMETIC: Final = re.compile(r"[\d\s+\-*/().^]{1,200}|[+-]?\d{1,30},\d{1,30}")
_ALTERNATIVE: Final = re.compile(r"\bor\s{1,8}$")
_OPERATOR: Final = re.compile(r"\s*[-+*/=^(\\×÷]")
_CHOICE_AT_START: Final = re.compile(r"\s*\(?([A-J](?:(?=[).:,。，\n]|[^\x00-\x7f])|$)|[B-HJ](?=\s))")
_CHOICE_AT_END: Final = re.compile(r"(?:^|[\s(*])([A-HJ])[)*.\s]{0,4}$")
_CHOICE_WORD: Final = re.compile(r"(?<![A-Za-z'’])\(?([A-HJ])\)?(?![A-Za-z'’])")
_SPECIAL: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>(?:user)?|</s>")
_WORDS: Final = re.compile(r"[A-Za-z]{3,}")
_COMMAND: Final = re.compile(r"\\[a-zA-Z]+")
_LIST: Final = re.compile(r"[,;]|\band\b|\bor\b")
_THINK_OPEN: Final = "<think>"
_THINK_CLOSE: Final = "</think>"


class Absence(StrEnum):
    """Why no answer was found."""

    NONE = "none"
    """The text states none."""
    CUT = "cut"
    """The text ends inside its reasoning or inside its answer."""
    UNREADABLE = "unreadable"
    """The text ends by itself with a box that never closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What extraction knows of the problem."""

    kind: GoldKind
    """How the gold is compared."""
    is_list: bool = False
    """Whether the gold has several members: then boxes that stand side by side are read together."""


def strip_reasoning(text: str, *, starts_inside: bool = False) -> str | None:
    """Return what follows the reasoning, or None when the text ends before its reasoning does.

    `starts_inside`: the prompt has opened `<think>` already.
    """
    closed = text.rfind(_THINK_CLOSE)
    opened = text.rfind(_THINK_OPEN)
    if opened > closed or (starts_inside and closed < 0):
        return None
    return text[closed + len(_THINK_CLOSE) :] if closed >= 0 else text


def find_answer(text: str, question: Question, sources: Sequence[AnswerSource], *, was_cut: bool) -> str | Absence:
    """Return the answer that `text` (reasoning stripped) states, as it is written there, or why there is none.

    `was_cut`: the completion ended at its length limit. Then an answer counts only when something follows it, and the
    last number of unfinished arithmetic is no answer.
    """
    text = text[-_TAIL_CHARS:]
    for source in sources:
        if source == "last_number" and was_cut:
            continue
        found = _FINDERS[source](text, question)
        if isinstance(found, Absence):
            return Absence.CUT if was_cut else found
        if found is None:
            continue
        answer, end = found
        if was_cut and source in ("hash", "phrase") and not text[end:].strip():
            return Absence.CUT
        if unwrap(answer[:MAX_ANSWER_CHARS]):
            return answer
    return Absence.CUT if was_cut else Absence.NONE


_Found: TypeAlias = tuple[str, int] | Absence | None


def _find_boxed(text: str, question: Question) -> _Found:
    """Return the content of the last box that holds something; an unclosed last box credits no earlier one."""
    matches = list(_BOX.finditer(text))
    contents: list[str] = []
    answer_end = following = len(text)
    for match in reversed(matches[-_MAX_BOXES:]):
        content, end = _box_content(text, match.end())
        if content is None:
            if contents:
                break
            return Absence.UNREADABLE
        if not content.strip():
            continue
        if contents and not _BETWEEN_BOXES.fullmatch(text, end, following):
            break
        if not contents:
            answer_end = end
        contents.append(content)
        following = match.start()
        if not question.is_list:
            break
    return (", ".join(reversed(contents)), answer_end) if contents else None


def _box_content(text: str, start: int) -> tuple[str | None, int]:
    if start < len(text) and text[start] == "{":
        end = match_brace(text, start)
        return (None, start) if end is None else (text[start + 1 : end], end + 1)
    match = _UNBRACED.match(text, start)
    return ("", start) if match is None else (match.group(), match.end())


def _find_tag(text: str, question: Question) -> _Found:
    del question
    opening = _last_match(_TAG_OPEN, text)
    match = _TAG.match(text, opening.start()) if opening else None
    return None if match is None else (match[1], match.end())


def _find_hash(text: str, question: Question) -> _Found:
    """Return what follows the last `####`; a Markdown heading of four signs is none."""
    for match in reversed(list(_HASH.finditer(text))):
        line = match[1].strip()
        if question.kind is GoldKind.NUMBER:
            if exact_value(line) is not None:
                return line, match.end(1)
        elif not text[match.end() :].strip():
            return line, match.end(1)
    return None


def _find_phrase(text: str, question: Question) -> _Found:
    last = _last_match(_PHRASE, text)
    if last is None:
        return None
    start = last.end()
    formula = _FORMULA.match(text, start)
    begin = formula.end() if formula else start
    sentence_end = _SENTENCE_END.search(text, begin)
    end = sentence_end.start() if sentence_end else len(text)
    clause = text[start : min(end, start + MAX_ANSWER_CHARS)]
    answer = _reduce_clause(clause, question)
    if answer is None and not _NUMBER_TOKEN.search(text, end):
        answer = clause  # words instead of a number, and nothing better behind them
    return None if answer is None else (answer, end)


def _reduce_clause(clause: str, question: Question) -> str | None:
    """Return the answer inside a clause such as `12 apples because ...` or `$x$ is $5$`."""
    if question.kind is GoldKind.CHOICE:
        match = _CHOICE_AT_START.match(unwrap(clause)) or _CHOICE_WORD.search(clause)
        return match[1] if match else clause
    if question.kind is GoldKind.NUMBER:
        return _stated_number(clause)
    if question.kind is GoldKind.SYMBOLIC:
        formulas = _formulas(clause)
        if formulas:
            return ", ".join(formulas) if question.is_list else formulas[-1]
    return clause


def _find_last(text: str, question: Question) -> _Found:
    """Return a completion that is nothing but an answer, else the last number or formula, by the kind of the gold."""
    bare = _SPECIAL.sub("", text).strip()
    is_bare = len(bare) <= _MAX_BARE_CHARS and "\n" not in unwrap(bare)
    found: str | None = None
    if question.kind is GoldKind.NUMBER:
        found = bare if is_bare and _ARITHMETIC.fullmatch(bare) else _last_number(bare)
    elif question.kind is GoldKind.CHOICE:
        match = _CHOICE_AT_START.match(bare) or _CHOICE_AT_END.search(bare[-80:])
        found = bare if is_bare and choice_letter(bare) else match[1] if match else None
    elif question.kind is GoldKind.SYMBOLIC:
        formulas = _formulas(text[-2 * MAX_ANSWER_CHARS :])
        if is_bare and not (formulas and _WORDS.search(_FORMULA.sub(" ", bare))):
            found = bare
        elif formulas:
            found = ", ".join(formulas) if question.is_list and is_bare else formulas[-1]
    elif is_bare:
        found = bare
    return None if not found else (found, len(text))


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match, looking near the end first: there it nearly always is."""
    for start in (max(0, len(text) - _NEAR_END_CHARS), 0):
        last = deque(pattern.finditer(text, start), maxlen=1)
        if last or start == 0:
            break
    return last[0] if last else None


def _formulas(text: str) -> list[str]:
    return [next(group for group in match.groups() if group) for match in _FORMULA.finditer(text)]


def _stated_number(clause: str) -> str | None:
    """Return the number that the clause after "the answer is" states: the one it begins with, else its last."""
    clause = clause.strip()
    first = _NUMBER_TOKEN.match(clause.lstrip("*$(["))
    if first is not None and not _OPERATOR.match(first.string, first.end()):
        return clause if exact_value(unwrap(clause)) is not None else first.group()
    return _last_number(clause)


def _last_number(text: str) -> str | None:
    """Return the last number of a text, or its last formula where no number follows that."""
    if len(text) <= MAX_ANSWER_CHARS and exact_value(unwrap(text)) is not None:
        return text
    tail = text[-2 * MAX_ANSWER_CHARS :]
    formula = _last_match(_FORMULA, tail)
    if formula is not None and not _NUMBER_TOKEN.search(tail, formula.end()):
        content = next(group for group in formula.groups() if group)
        if _is_formula(content):
            return content.rpartition("=")[2]
    last = _last_match(_NUMBER_TOKEN, text)
    if last is None or _ALTERNATIVE.search(text, max(0, last.start() - 12), last.start()):
        return None  # "5 or 0" offers a choice and states no answer
    return last.group()


def _is_formula(text: str) -> bool:
    """Whether the text between two dollar signs is mathematics, and not the words between two prices."""
    return not _WORDS.search(_COMMAND.sub("", re.sub(r"\\text\w*\s?\{[^{}]{0,200}\}", "", text)))


_FINDERS: Final[dict[AnswerSource, Callable[[str, Question], _Found]]] = {
    "boxed": _find_boxed,
    "tag": _find_tag,
    "hash": _find_hash,
    "phrase": _find_phrase,
    "last_number": _find_last,
}


def describe_gold(gold: str, kind: GoldKind) -> Question:
    """Return what extraction needs to know of a gold answer."""
    simplified = simplify_markup(gold)
    is_list = kind is GoldKind.SYMBOLIC and bool(_LIST.search(simplified))
    return Question(kind=kind, is_list=is_list)


def find_gold(gold: str) -> str:
    """Return the answer inside a gold that comes as a sentence or in boxes (all of them), else the gold itself."""
    if "boxed" in gold or "fbox" in gold:
        starts = [match.end() for match in _BOX.finditer(gold)]
        contents = [content for content, _ in (_box_content(gold, start) for start in starts) if content]
        return ", ".join(contents) or gold
    if "answer" in gold.casefold() and (match := _PHRASE.search(gold)) is not None:
        return unwrap(gold[match.end() :]) or gold
    return gold
