r"""Where a completion states its answer.

Sources are tried in the configured order and the first that yields one decides. Every pattern is bounded or anchored,
so that a hostile megabyte costs linear time; only the last part of a very long completion is read.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from schemas.grading import AnswerSource
from tasks.grading.exact import GoldKind
from tasks.grading.markup import MAX_ANSWER_CHARS, match_brace, simplify_markup, unwrap
from tasks.grading.rationals import exact_value
from tasks.grading.statements import (
    COMMAND,
    FORMULA,
    NUMBER_TOKEN,
    WORDS,
    Question,
    find_last_statement,
    last_match,
    reduce_clause,
)
from tasks.grading.texts import choice_letter

_TAIL_CHARS: Final = 100_000
"""Answers stand at the end; what lies further back is not read."""
_MAX_BOXES: Final = 32

_BOX: Final = re.compile(r"(?:\\(?:begin)?boxed|\x08oxed|\\fbox|\\framebox)(?![A-Za-z])\s{0,8}")
r"""With the backslash, or the control character that `\b` has become: the plain word "boxed" is no box."""
_UNBRACED: Final = re.compile(r"(?:[A-J]|[^\s$\\{}.,;A-Za-z][^\s$\\{}.,;]*)(?![A-Za-z])")
"""What a box without braces holds: a number or a choice letter, and no word of the sentence around it."""
_BETWEEN_BOXES: Final = re.compile(
    r"(?:[\s,;$\\)(.]|\band\b|\bor\b|\\q?quad|\\text\s?\{\s?(?:and|or)\s?\}|\b[A-Za-z]\s?=\s?)*"
)
_TAG_OPEN: Final = re.compile(r"<answer>", re.IGNORECASE)
_TAG: Final = re.compile(r"<answer>(.{0,2000}?)</answer>", re.IGNORECASE | re.DOTALL)
_HASH: Final = re.compile(r"^[ \t]*####[ \t]*(\S[^\n]{0,200})$", re.MULTILINE)
_PHRASE: Final = re.compile(
    r"(?:\banswers?\b[^\n.:=：]{0,60}?(?:\bis\b|\bare\b|[:=：])|\bréponse\b[^\n.:=]{0,30}?(?:\best\b|:)"
    r"|答案(?:是|为|[:：])|^[ \t]*(?:\*\*)?A(?:ns)?(?:\*\*)?[ \t]?[:：])[\s*:：_`>#]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END: Final = re.compile(r"\n|[.!?](?=\s|$)|。|<\|")
_EMPHASIS: Final = re.compile(r"(\*{1,3}|_{1,2}|`)$")
_QUOTED_ITEM: Final = re.compile(r"\s*\[\s*([\"'])((?:(?!\1).)+)\1\s*\]\s*", re.DOTALL)
"""The text of a list with one quoted member, as some exporters write an answer."""
_LIST: Final = re.compile(r"[,;]|\band\b|\bor\b|\\pm(?![a-zA-Z])")
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
    opening = last_match(_TAG_OPEN, text)
    match = _TAG.match(text, opening.start()) if opening else None
    if match is None:
        return None
    return _reduce_content(match[1], question), match.end()


def _reduce_content(content: str, question: Question) -> str:
    """Return the answer inside a tag that holds a sentence; the content itself where it holds nothing else."""
    if not WORDS.search(COMMAND.sub("", content)) or len(unwrap(content)) <= 1:
        return content
    found = _find_phrase(content, question)
    is_sentence = exact_value(unwrap(content)) is None and choice_letter(content) is None
    if found is None and is_sentence and question.kind in (GoldKind.NUMBER, GoldKind.CHOICE, GoldKind.TIME):
        found = _find_last(content, question)
    return content if found is None or isinstance(found, Absence) else found[0]


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
    last = last_match(_PHRASE, text)
    if last is None:
        return None
    start = last.end()
    formula = FORMULA.match(text, start)
    begin = formula.end() if formula else start
    sentence_end = _SENTENCE_END.search(text, begin)
    end = sentence_end.start() if sentence_end else len(text)
    clause = text[start : min(end, start + MAX_ANSWER_CHARS)]
    emphasis = _EMPHASIS.search(last.group())
    if emphasis and (inside := clause.partition(emphasis[1]))[1] and inside[0].strip():
        clause = inside[0]
    answer = reduce_clause(clause, question)
    if answer is None and not NUMBER_TOKEN.search(text, end):
        answer = clause  # words instead of a number, and nothing better behind them
    return None if answer is None else (answer, end)


def _find_last(text: str, question: Question) -> _Found:
    found = find_last_statement(text, question)
    return None if found is None else (found, len(text))


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
    """Return the answer inside a gold that comes as a sentence, in boxes (all of them) or as the text of a list of one.

    Everything else is returned as it is.
    """
    if match := _QUOTED_ITEM.fullmatch(gold):
        gold = match[2].replace("\\\\", "\\")
    if "boxed" in gold or "fbox" in gold:
        starts = [match.end() for match in _BOX.finditer(gold)]
        contents = [content for content, _ in (_box_content(gold, start) for start in starts) if content]
        return ", ".join(contents) or gold
    if "answer" in gold.casefold() and (match := _PHRASE.search(gold)) is not None:
        return unwrap(gold[match.end() :]) or gold
    return gold
