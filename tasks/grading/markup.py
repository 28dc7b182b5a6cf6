"""Answers as people and models write them, brought to one plain LaTeX form without reading their meaning.

Every function is linear in the length of its input: completions are untrusted and may be a megabyte long.
"""

import re
from functools import lru_cache
from typing import Final

MAX_ANSWER_CHARS: Final = 2000
"""Longest text that is treated as an answer: the longest gold of the public sets has under 300 characters."""

_CHARACTERS: Final = str.maketrans(
    {chr(0xFF01 + offset): chr(0x21 + offset) for offset in range(94)}
    | {
        "\u2212": "-",
        "\u2013": "-",
        "\u00d7": r"\times ",
        "\u00f7": "/",
        "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u221a": r"\sqrt",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2260": r"\ne ",
        "\u222a": r"\cup ",
        "\u2229": r"\cap ",
        "\u2208": r"\in ",
        "\u00b1": r"\pm ",
        "\u00b0": r"^\circ ",
        "\u00b2": "^2",
        "\u00b3": "^3",
        "\u211d": r"\mathbb{R} ",
        "\u2205": r"\emptyset ",
        "\u27e8": r"\langle ",
        "\u27e9": r"\rangle ",
        "\u2236": ":",
        "\u2248": r"\approx ",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
        "\u3002": ".",
        "\u3000": " ",
        "\u200b": None,
        "\ufeff": None,
    }
    | {
        letter: rf"\frac{{{numerator}}}{{{denominator}}}"
        for letter, numerator, denominator in (
            ("\u00bd", 1, 2), ("\u2153", 1, 3), ("\u2154", 2, 3), ("\u00bc", 1, 4), ("\u00be", 3, 4), ("\u2155", 1, 5),
            ("\u2156", 2, 5), ("\u2157", 3, 5), ("\u2158", 4, 5), ("\u2159", 1, 6), ("\u215a", 5, 6), ("\u215b", 1, 8),
            ("\u215c", 3, 8), ("\u215d", 5, 8), ("\u215e", 7, 8),
        )
    }
)  # fmt: skip
_SPECIAL_TOKEN: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>|</s>|<eos>|<end_of_turn>")
_DOUBLED_BACKSLASH: Final = re.compile(r"\\\\(?=[a-zA-Z%$!,;:{}(\[])")
_FONT: Final = re.compile(r"\\(?:text(?:bf|it|rm|normal|sf|tt)|math(?:rm|bf|it|sf|bb)|mbox|hbox)\s*(?=\{)")
_OPERATOR_NAME: Final = re.compile(r"\\operatorname\*?\s*\{\s*([A-Za-z]{1,12})\s*\}")
_CONSTANT: Final = re.compile(r"\\(?:math(?:rm|it|bf)|text(?:rm|it)?)\s*\{\s*([ei])\s*\}")
_FRACTION: Final = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_UNIT_FRACTION: Final = re.compile(
    r"\\frac\s*\{\s*\\text\s*\{([^{}]{1,20})\}\s*\}\s*\{\s*\\text\s*\{([^{}]{1,20})\}\s*(\^\s*(?:\d|\{\d\}))?\s*\}"
)
r"""A unit such as `\frac{\text{m}}{\text{s}^2}`."""
_SIZING: Final = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle)(?![a-zA-Z])\.?")
_NEGATIVE_SPACE: Final = re.compile(r"(?<!\\)\\!\s*")
_BRACED_COMMA: Final = re.compile(r"\s*\{\s*,\s*\}\s*")
_SPACED_THOUSANDS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:\\[,;: ]\s?\d{3})+(?![\d])")
_SPACE: Final = re.compile(r"(?<!\\)\\(?:[,;:> ]|q?quad(?![a-zA-Z])|enspace(?![a-zA-Z])|thinspace(?![a-zA-Z]))|~")
_BRACED_COLON: Final = re.compile(r"\s*\{\s*:\s*\}\s*|\\colon(?![a-zA-Z])\s*")
_REALS: Final = re.compile(r"\\(?:mathbb|Bbb|mathbf)\s*(?:\{\s*R\s*\}|R)(?!\s*[\^_+*])|\\(?:R|reals)(?![a-zA-Z^])")
_EMPTY_SET: Final = re.compile(r"\\(?:varnothing|empty)(?![a-zA-Z])")
_DEGREE: Final = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])")
_ANGLE: Final = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)\s*(?:\^\s*(?:\d|\{\s*-?\d\s*\}))?)\s*"
    r"(?:\{\s*(\d{1,6}(?:\.\d{1,6})?)\s*DEGREE\s*\}|(\d{1,6}(?:\.\d{1,6})?)\s*DEGREE|(\([^()]{1,60}\)))".replace(
        "DEGREE", f"(?:{_DEGREE.pattern})"
    )
)
r"""A trigonometric function of degrees: `\sin 30^\circ`, `\cos{60^\circ}`, `\tan^2(x + 45^\circ)`."""
_NUMBER_OF_DEGREES: Final = re.compile(rf"(\d{{1,6}}(?:\.\d{{1,6}})?)\s*(?:{_DEGREE.pattern})")
_PLAIN_IN_TEXT: Final = re.compile(r"(?<![\w}^\\])\\text\s*\{\s*([^{}A-Za-z\\]{0,200}\d[^{}A-Za-z\\]{0,200}?)\s*\}")
r"""Mathematics in words' clothes: `\text{(3, 5)}`."""
_DOLLAR: Final = re.compile(r"\\?\$")
_SCIENTIFIC: Final = re.compile(r"(?<![\w.\\}])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,6})(?![\w.])")
_LEADING_POINT: Final = re.compile(r"(?<![\w.})\]])\.(?=\d)")
_ROOT_SIGN: Final = re.compile(r"\u221a\s?(\d+(?:\.\d+)?)")
_PLAIN_PI: Final = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_ROOT_CALL: Final = re.compile(r"\\?\bsqrt\s*\(|\\sqrt\s*\(")
_LEAD_IN: Final = re.compile(
    r"\\text\s*\{(?:\s|the|final|answer|answers|result|value|total|is|are|equals|:|=)*\}\s*(?:[=:]\s*)?(?=\S)",
    re.IGNORECASE,
)
_RELATIONS: Final = ((r"\leqslant", r"\le"), (r"\geqslant", r"\ge"), (r"\leq", r"\le"), (r"\geq", r"\ge"))
_PAIRS: Final = (
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("**", "**"),
    ("__", "__"),
    ("*", "*"),
    ("_", "_"),
    ("`", "`"),
    ('"', '"'),
)
_TAGS: Final = re.compile(r"</?(?:b|strong|i|em|u|mark|code|span|p|h[1-6])>|<br ?/?>", re.IGNORECASE)
_LONE_EMPHASIS: Final = re.compile(r"(?<![\^{*])\*{1,3}$")
r"""Stars behind an answer whose opening stars stand before the words around it; `z^*` keeps its own."""
_TRAILING: Final = " \t\r\n.,;:\u3002\uff0c"


def unwrap(text: str) -> str:
    """Return `text` without the delimiters, emphasis, HTML tags and closing punctuation around it."""
    if "</" in text:
        text = _TAGS.sub(" ", text)
    for _ in range(6):  # real answers nest at most three deep: **$\boxed{5}$**.
        before = text
        text = text.strip()
        if text and text[0].isalnum() and text[-1].isalnum():
            break
        while text and text[-1] in _TRAILING and not text.endswith(("\\,", "\\;", "\\:")):
            text = text[:-1]
        text = _LONE_EMPHASIS.sub("", text.removesuffix("\\")) if text[:1] != "*" else text.removesuffix("\\")
        for opening, closing in _PAIRS:
            if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
                inner = text[len(opening) : -len(closing)]
                if opening[0] not in inner or opening.startswith("\\"):
                    text = inner
        if text == before:
            break
    return text


def match_brace(text: str, start: int, opening: str = "{", closing: str = "}") -> int | None:
    r"""Return the index of the brace that closes the one at `start`, or None; `\{` and `\}` do not count."""
    depth, position = 0, start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        if character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None


def _join_thousands(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match.group())


def _as_radians(match: re.Match[str]) -> str:
    name, *braced, bracket = match.groups()
    if bracket is None:
        return rf"{name}(\frac{{{braced[0] or braced[1]}\pi}}{{180}})"
    return name + _NUMBER_OF_DEGREES.sub(r"\\frac{\1\\pi}{180}", bracket)


def _brace_roots(text: str) -> str:
    """Turn `sqrt(x)` and `\\sqrt(x)` into `\\sqrt{x}`."""
    for _ in range(16):
        match = _ROOT_CALL.search(text)
        if match is None:
            break
        opening = match.end() - 1
        end = match_brace(text, opening, "(", ")")
        if end is None:
            break
        text = f"{text[: match.start()]}\\sqrt{{{text[opening + 1 : end]}}}{text[end + 1 :]}"
    return text


@lru_cache(maxsize=8192)
def simplify_markup(text: str) -> str:
    """Return one LaTeX form of an answer: fonts, sizing, spacing, currency, degrees and unicode signs are resolved.

    Meaning is kept as it is: nothing is added, ordered or evaluated.
    """
    if "\u221a" in text:
        text = _ROOT_SIGN.sub(r"\\sqrt{\1}", text)
    text = _SPECIAL_TOKEN.sub(" ", text.translate(_CHARACTERS))
    if not any(block in text for block in ("matrix", "array", "cases")):
        text = _DOUBLED_BACKSLASH.sub(r"\\", text)
    text = _BRACED_COLON.sub(":", _BRACED_COMMA.sub(",", unwrap(text)))
    if "\\" in text:
        text = _REALS.sub(r"(-\\infty,\\infty)", text)
        text = _OPERATOR_NAME.sub(r"\\\1 ", _CONSTANT.sub(r"{\1}", text))
        text = _FRACTION.sub(r"\\frac", _FONT.sub(r"\\text", text))
        text = _UNIT_FRACTION.sub(r"\\text{\1/\2}\3", text)
        text = _EMPTY_SET.sub(r"\\emptyset ", _SIZING.sub("", text))
        text = text.replace(r"\langle", "(").replace(r"\rangle", ")")
        text = _PLAIN_IN_TEXT.sub(r"\1", _ANGLE.sub(_as_radians, text))
        text = _SPACED_THOUSANDS.sub(_join_thousands, _NEGATIVE_SPACE.sub("", text))
        text = _DEGREE.sub("", _SPACE.sub(" ", text)).replace(r"\%", "%")
        for long_form, short_form in _RELATIONS:
            text = text.replace(long_form, short_form)
        text = _LEAD_IN.sub("", text, count=1)
    if "pi" in text:
        text = _PLAIN_PI.sub(r"\\pi ", text)
    text = _DOLLAR.sub("", text).replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ")
    text = _LEADING_POINT.sub("0.", _SCIENTIFIC.sub(r"\1\\times 10^{\2}", text))
    return unwrap(_brace_roots(text))


@lru_cache(maxsize=8192)
def comparison_key(text: str) -> str:
    """Return the simplified form without any white space: two answers with one key are written alike."""
    return "".join(simplify_markup(text).split()).replace(r"\text", "")
