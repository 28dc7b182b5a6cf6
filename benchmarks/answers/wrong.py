"""Rules that turn a gold into an answer near it that is wrong."""

import re
from fractions import Fraction
from typing import Final

from benchmarks.answers.forms import (
    BASE_NAMES,
    BASED,
    TUPLE,
    Kinds,
    as_inequalities,
    list_members,
    read_ratio,
    read_time,
    split_terms,
    with_fraction,
    with_integer,
    write_fraction,
    write_inequality,
)

WRONG_KINDS: Final = Kinds(is_right=False)


@WRONG_KINDS.add("another integer", "gsm8k")
@with_integer
def _near_integer(number: int) -> list[str]:
    return [
        str(number + 1),
        str(number * 10) if number else "10",
        f"{number}.5",
        rf"\frac{{{number}}}{{3}}" if number else "1",
    ]


@WRONG_KINDS.add("another unit", "lengths")
def _other_unit(gold: str) -> list[str]:
    number, _ = gold.split(maxsplit=1)
    return [rf"{number} \text{{ m}}", f"{number} km", rf"{number}\text{{ inches}}", str(int(number) + 1)]


@WRONG_KINDS.add("scale words instead", "gsm8k")
@with_integer
def _scaled_instead(n: int) -> list[str]:
    return [rf"{n} \text{{ million}}", f"{n} thousand", rf"{n} \text{{ tenths}}", f"{n} hundred"] if n else []


@WRONG_KINDS.add("a hedge between two", "gsm8k", is_completion=True)
@with_integer
def _hedged(number: int) -> list[str]:
    return [
        f"The answer is {number} or {number + 1}.",
        rf"\boxed{{{number} \text{{ or }} {number + 1}}}",
        f"It is either {number + 1} or {number}",
        rf"\boxed{{{number}, {number + 1}}}",
        f"<answer>{number} or {number + 3}</answer>",
    ]


@WRONG_KINDS.add("the right one in a remark", "gsm8k", is_completion=True)
@with_integer
def _other_said(number: int) -> list[str]:
    return [
        f"The answer is {number + 1} (not {number}).",
        rf"\boxed{{{number}}} is wrong, so \boxed{{{number + 1}}}",
        f"The answer is {number + 2} = {number} + 2.",
        rf"\boxed{{{number}}}</think> \boxed{{{number + 1}}}",
        f"The answer is **{number + 1}**, since {number} is too small.",
    ]


@WRONG_KINDS.add("another fraction", "math")
@with_fraction
def _near_fractions(value: Fraction) -> list[str]:
    rounded = f"{float(value):.2f}" if (value * 100).denominator > 1 else "0.013"
    return [
        write_fraction(value + 1),
        write_fraction(-value),
        write_fraction(value * 10),
        write_fraction(1 / value) if abs(value) != 1 else "7",
        rounded,
    ]


@WRONG_KINDS.add("a decimal cut off", "fractions")
@with_fraction
def _cut_off(value: Fraction) -> list[str]:
    return [f"{float(value):.3f}", f"{float(value):.1f}"] if (value * 1000).denominator > 1 else []


@WRONG_KINDS.add("another term", "math")
def _other_terms(gold: str) -> list[str]:
    terms = split_terms(gold)
    if len(terms) < 2:
        return []
    first = terms[0].lstrip("+")
    flipped = first[1:] if first.startswith("-") else "-" + first
    return [gold + "+1", flipped + "".join(terms[1:]), "".join(terms[:-1])]


@WRONG_KINDS.add("another root", "math")
def _other_root(gold: str) -> list[str]:
    match = re.search(r"\\sqrt\{?(\d+)\}?", gold)
    if match is None or list_members(gold):
        return []
    return [
        gold.replace(match.group(), rf"\sqrt{{{int(match[1]) + 1}}}"),
        gold.replace(match.group(), match[1]),
        "-" + gold.lstrip("-") if not gold.startswith("-") and r"\pm" not in gold else gold[1:],
    ]


@WRONG_KINDS.add("another tuple", "math")
def _swapped(gold: str) -> list[str]:
    match = TUPLE.fullmatch(gold.replace(" ", "").replace(r"\left", "").replace(r"\right", ""))
    members = match[1].split(",") if match else []
    if len(members) < 2 or members == members[::-1] or any("infty" in member for member in members):
        return []
    return [
        "(" + ",".join(reversed(members)) + ")",
        "(" + ",".join([*members, "0"]) + ")",
        "(" + ",".join([*members[:-1], "99"]) + ")",
    ]


@WRONG_KINDS.add("other ends of an interval", "math")
def _other_ends(gold: str) -> list[str]:
    if r"\infty" not in gold and r"\cup" not in gold:
        return []
    opened = gold.translate(str.maketrans("[]", "()"))
    closed = re.sub(r"\(\s*(?!-\\infty)", "[", gold) if opened == gold else opened
    flipped = as_inequalities(closed)[:1] if closed != gold else []
    return [each for each in (closed, *flipped, write_inequality(gold) and r"\mathbb{R}") if each and each != gold]


WRONG_KINDS.add("other ends of a union", "sets")(_other_ends)


@WRONG_KINDS.add("another list", "math")
def _other_list(gold: str) -> list[str]:
    members = list_members(gold)
    return [", ".join(members[:-1]), ", ".join([*members, "77"]), ", ".join([*members[:-1], "77"])] if members else []


@WRONG_KINDS.add("another matrix", "math")
def _other_matrix(gold: str) -> list[str]:
    changed = re.sub(r"(-?\d+)", lambda match: str(int(match[1]) + 1), gold, count=1)
    return [changed] if "pmatrix" in gold and changed != gold else []


@WRONG_KINDS.add("another base", "bases")
def _other_base(gold: str) -> list[str]:
    match = BASED.fullmatch(gold)
    if match is None:
        return []
    base = 9 if match[2] != "9" else 8
    return [
        f"{match[1]}_{base}",
        rf"{match[1]}_{{\text{{{BASE_NAMES[base]}}}}}",
        f"{int(match[1], int(match[2]))}",
        f"{match[1]}1_{match[2]}",
    ]


@WRONG_KINDS.add("another time", "times")
def _other_time(gold: str) -> list[str]:
    hour, minute, period = read_time(gold)
    other = "AM" if period == "PM" else "PM"
    return [
        rf"{hour}:{minute:02} \text{{ {other}}}",
        f"{hour}:{(minute + 15) % 60:02} {period}",
        f"{hour % 12 + 1}:{minute:02}",
        str(minute + 60),
    ]


@WRONG_KINDS.add("another ratio", "ratios")
def _other_ratio(gold: str) -> list[str]:
    members = read_ratio(gold)
    return [
        ":".join(map(str, each))
        for each in (members[::-1], [members[0] + 1, *members[1:]], [*members, 1])
        if each[0] * members[-1] != each[-1] * members[0] or len(each) != len(members)
    ]


@WRONG_KINDS.add("another letter", "letters", is_completion=True)
def _not_chosen(gold: str) -> list[str]:
    other = "B" if gold == "A" else chr(ord(gold) - 1)
    return [
        f"The answer is {gold} or {other}.",
        rf"\boxed{{{gold}, {other}}}",
        f"Either ({gold}) or ({other}).",
        f"The answer is {other}, not {gold}.",
        rf"\boxed{{\textbf{{({other})}}\ 27}}",
    ]


@WRONG_KINDS.add("letter before a wrong value", "gsm8k")
@with_integer
def _lettered_wrong(n: int) -> list[str]:
    return [rf"\textbf{{(B)}}\ {n + 1}", rf"\text{{(A) }} {n * 10 + 1}"]


@WRONG_KINDS.add("the right value denied", "gsm8k", is_completion=True)
@with_integer
def _denied(n: int) -> list[str]:
    return [f"It isn't {n}.", f"The answer is not {n}.", f"It is {n + 1}, not {n}.", f"It cannot be {n}."]


@WRONG_KINDS.add("another product in brackets", "gsm8k")
@with_integer
def _other_product(n: int) -> list[str]:
    return [f"{n // 2 + 1}(2)", f"{abs(n)}({abs(n) + 1})"] if abs(n) > 1 else []


@WRONG_KINDS.add("another tuple inside text", "math")
def _other_inside_text(gold: str) -> list[str]:
    members = gold.strip("()").split(",") if re.fullmatch(r"\(-?\d+(?:, ?-?\d+)+\)", gold) else []
    return [rf"\text{{({','.join(members[::-1])})}}"] if members != members[::-1] else []
