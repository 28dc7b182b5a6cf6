"""Rules that rewrite a gold into an answer of the same meaning."""

import re
from fractions import Fraction
from typing import Final

from benchmarks.answers.forms import (
    BASE_NAMES,
    BASED,
    Kinds,
    as_inequalities,
    list_members,
    read_ratio,
    read_time,
    split_terms,
    with_fraction,
    with_integer,
    write_fraction,
)

RIGHT_KINDS: Final = Kinds(is_right=True)


@RIGHT_KINDS.add("boxes", "math", is_completion=True)
def _wrapped(gold: str) -> list[str]:
    return [
        rf"Thus $\boxed{{{gold}}}$.",
        rf"\[ \boxed{{ {gold} }} \]",
        rf"\fbox{{{gold}}}",
        rf"So \boxed{{{gold}}}. I have boxed the answer; there are 3 steps.",
    ]


@RIGHT_KINDS.add("prose and tags", "math", is_completion=True)
def _told(gold: str) -> list[str]:
    return [
        f"We add 2 and 3. The answer is ${gold}$.",
        f"Therefore, the final answer is ${gold}$. I hope it is correct.",
        f"Step 1: 7.\nAnswer: ${gold}$",
        f"<answer>${gold}$</answer>",
        f"<answer>The answer is ${gold}$.</answer>",
        f"The answer is ${gold}$ (see step 3).",
        f"The answer is ${gold}$, because 7 is prime.",
    ]


@RIGHT_KINDS.add("Markdown", "math", is_completion=True)
def _marked(gold: str) -> list[str]:
    return [
        f"**Answer:** ${gold}$",
        f"**Answer: ${gold}$**",
        f"The answer is **${gold}$**.",
        f"### Final Answer: **${gold}$**",
        f"The answer is <b>${gold}$</b>.",
        f"The answer is *${gold}$*, as shown in step 2.",
    ]


@RIGHT_KINDS.add("sentences about a number", "gsm8k", is_completion=True)
@with_integer
def _spoken_number(number: int) -> list[str]:
    return [
        f"The answer is {number} apples.",
        f"She pays 7 and then 8, so the total is {number}.",
        f"The answer is {number} (6 of them were red).",
        f"The answer is {number}, not {number + 1} as one may think.",
        f"#### {number}",
        f"That makes ${number:,}.",
        f"**{number}**",
        f"The answer is {number} - the discount was 8.",
    ]


@RIGHT_KINDS.add("fraction commands, spacing", "math")
def _spaced(gold: str) -> list[str]:
    if "frac" not in gold or r"\left" in gold:
        return []
    spaced = gold.replace(",", r",\ ").replace("(", r"\left( ").replace(")", r" \right)")
    return [gold.replace(r"\frac", r"\dfrac"), gold.replace(r"\frac", r"\tfrac "), spaced]


@RIGHT_KINDS.add("fraction as a decimal", "math")
@with_fraction
def _decimal(value: Fraction) -> list[str]:
    digits = next((n for n in range(9) if (value * 10**n).denominator == 1), None)
    return [] if digits is None else [f"{float(value):.{digits}f}"]


@RIGHT_KINDS.add("fraction otherwise written", "math")
@with_fraction
def _other_fractions(value: Fraction) -> list[str]:
    above, below = value.numerator, value.denominator
    return [
        f"{above}/{below}",
        rf"\frac{{{3 * above}}}{{{3 * below}}}",
        rf"x = {write_fraction(value)}",
        rf"\frac{{{-above}}}{{{-below}}}",
    ]


@RIGHT_KINDS.add("repeating decimals", "fractions")
@with_fraction
def _repeating(value: Fraction) -> list[str]:
    r"""Write a fraction as `w.f\overline{p}` by long division; only where the period is short."""
    whole, rest = divmod(abs(value.numerator), value.denominator)
    digits, seen = "", dict[int, int]()
    while rest and rest not in seen and len(digits) < 12:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, value.denominator)
        digits += str(digit)
    if rest not in seen:
        return []
    fixed, period = digits[: seen[rest]], digits[seen[rest] :]
    sign = "-" if value < 0 else ""
    dotted = (
        [] if len(period) > 1 else [rf"{sign}{whole}.{fixed}\dot{{{period}}}", f"{sign}{whole}.{fixed}{period * 4}..."]
    )
    return [rf"{sign}{whole}.{fixed}\overline{{{period}}}", f"{sign}{whole}.{fixed}({period})", *dotted]


@RIGHT_KINDS.add("integer otherwise written", "gsm8k")
@with_integer
def _other_integers(n: int) -> list[str]:
    grouped = f"{n:,}".replace(",", "{,}")
    return [f"{n}.0", f"{n}.00", rf"\frac{{{2 * n}}}{{2}}", f"x = {n}", f"+{n}" if n > 0 else f"{n}/1", grouped]


@RIGHT_KINDS.add("units", "gsm8k")
@with_integer
def _units(number: int) -> list[str]:
    return [
        rf"{number} \text{{ cm}}",
        f"{number} meters",
        rf"{number}\text{{ apples}}",
        rf"{number}^\circ",
        rf"{number} \text{{ square feet}}",
    ]


@RIGHT_KINDS.add("units of both", "lengths")
def _same_unit(gold: str) -> list[str]:
    number, _ = gold.split(maxsplit=1)
    return [number, rf"{int(number) / 100} \text{{ m}}", f"{10 * int(number)} mm", f"{number} centimeters"]


@RIGHT_KINDS.add("degrees", "math")
def _degrees(gold: str) -> list[str]:
    signs = ("", "°", " degrees", r"^{\circ}", r"\text{ degrees}")
    return [gold.replace(r"^\circ", sign) for sign in signs] if r"^\circ" in gold else []


@RIGHT_KINDS.add("currency", "gsm8k")
@with_integer
def _currency(n: int) -> list[str]:
    return [rf"\${n}", f"{n}€", f"{n} EUR", rf"{n} \text{{ dollars}}", rf"{n:,}\$", f"€{n}", f"USD {n}"]


@RIGHT_KINDS.add("percent", "gsm8k")
@with_integer
def _percent(n: int) -> list[str]:
    return [rf"{n}\%", f"{n} percent", rf"{n}\text{{ percent}}"]


@RIGHT_KINDS.add("scale words", "gsm8k")
@with_integer
def _scaled(number: int) -> list[str]:
    for name, size in (("million", 10**6), ("thousand", 1000)):
        if number and number % (size // 10) == 0:
            return [
                rf"{number / size:g} \text{{ {name}}}",
                f"{number / size:g} {name}",
                rf"\${number / size:g} \text{{ {name} dollars}}",
            ]
    return []


@RIGHT_KINDS.add("powers of ten", "gsm8k")
@with_integer
def _powers_of_ten(n: int) -> list[str]:
    return [rf"{n / 1000:.15g} \times 10^3", f"{n / 100:.15g}e2"] if n else []


@RIGHT_KINDS.add("words", "math")
def _words(gold: str) -> list[str]:
    word = gold.removeprefix(r"\text{").removesuffix("}").strip()
    return [word, word.upper(), rf"\textbf{{{word}}}", f"the {word}"] if word != gold and word.isalpha() else []


@RIGHT_KINDS.add("letter before the value", "math")
def _lettered(gold: str) -> list[str]:
    if r"\text" in gold or len(gold) > 40 or re.search(r"[=<>]|\\in|_", gold):
        return []
    return [rf"\textbf{{(B)}}\ {gold}", rf"\text{{(C) }} {gold}"]


@RIGHT_KINDS.add("choice letters", "letters", is_completion=True)
def _chosen(gold: str) -> list[str]:
    return [
        rf"\boxed{{\textbf{{({gold})}}\ 27}}",
        f"The answer is Option {gold}.",
        f"So the answer is ({gold}) 27.",
        f"**{gold}**",
        rf"\boxed{{\text{{{gold} - a value}}}}",
        f"I choose {gold}: it fits. The boxed option is {gold}",
    ]


@RIGHT_KINDS.add("commuted terms", "math")
def _commuted(gold: str) -> list[str]:
    terms = split_terms(gold)
    return (
        ["".join(term if term[0] in "+-" else "+" + term for term in reversed(terms)).removeprefix("+")]
        if len(terms) > 1
        else []
    )


@RIGHT_KINDS.add("expressions over themselves", "math")
def _expressions(gold: str) -> list[str]:
    if not split_terms(gold) and not re.fullmatch(r"\d*\\sqrt\{?\d+\}?", gold):
        return []
    return [rf"\frac{{2({gold})}}{{2}}", f"({gold})+0", rf"1\cdot({gold})"]


@RIGHT_KINDS.add("roots multiplied out", "math")
def _one_root(gold: str) -> list[str]:
    match = re.fullmatch(r"(\d+) ?\\sqrt\{?(\d+)\}?", gold)
    if match is None:
        return []
    factor, inside = int(match[1]), int(match[2])
    return [
        rf"\sqrt{{{factor**2 * inside}}}",
        rf"\sqrt{{{inside}}}\cdot {factor}",
        f"{factor}*sqrt({inside})",
        f"{factor}√{inside}",
    ]


@RIGHT_KINDS.add("typed without LaTeX", "math")
def _typed(gold: str) -> list[str]:
    if not re.search(r"[a-z^]", gold) or re.search(r"[=<>,]|\\(?!sqrt|frac|pi|cdot)", gold) or len(gold) > 40:
        return []
    typed = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", gold)
    typed = re.sub(r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)", typed).replace(r"\pi", "pi").replace("^", "**")
    return [] if "\\" in typed or re.search(r"[a-z0-9)] ?(?:sqrt|pi|\()|_", typed) else [typed]


RIGHT_KINDS.add("intervals as inequalities", "math")(as_inequalities)
RIGHT_KINDS.add("unions as inequalities", "sets")(as_inequalities)


@RIGHT_KINDS.add("order of a list", "math")
def _reordered(gold: str) -> list[str]:
    members = list_members(gold)[::-1]
    return [", ".join(members), rf"\{{{', '.join(members)}\}}", r" \text{ and } ".join(members)] if members else []


@RIGHT_KINDS.add("matrices", "math")
def _matrix(gold: str) -> list[str]:
    return [gold.replace("pmatrix", "bmatrix"), gold.replace(" ", "")] if "pmatrix" in gold else []


@RIGHT_KINDS.add("bases", "bases")
def _based(gold: str) -> list[str]:
    match = BASED.fullmatch(gold)
    if match is None:
        return []
    digits, base = match.groups()
    name = BASE_NAMES[int(base)]
    return [
        f"{digits}_{{{base}}}",
        rf"{digits}_{{\text{{{name}}}}}",
        rf"{digits} \text{{ in base }} {base}",
        f"({digits})_{base}",
        digits,
        rf"{digits}_{{\text{{base }}{base}}}",
    ]


@RIGHT_KINDS.add("times", "times")
def _same_time(gold: str) -> list[str]:
    hour, minute, period = read_time(gold)
    later = hour % 12 + (12 if period == "PM" else 0)
    return [
        rf"{hour}:{minute:02} \text{{ {period.lower()[0]}.m.}}",
        f"{hour}:{minute:02}",
        f"{later:02}:{minute:02}",
        f"{hour}{{:}}{minute:02} {period.lower()}",
    ]


@RIGHT_KINDS.add("ratios", "ratios")
def _same_ratio(gold: str) -> list[str]:
    members = read_ratio(gold)
    return [
        ":".join(str(3 * member) for member in members),
        " : ".join(map(str, members)),
        r" \text{ to } ".join(map(str, members)),
    ]


@RIGHT_KINDS.add("golds of the collected cases", "cases")
def _itself(gold: str) -> list[str]:
    return [] if re.search(r"boxed|answer|\$|\\$", gold) else [gold, f"${gold}$"]


@RIGHT_KINDS.add("another value denied", "gsm8k", is_completion=True)
@with_integer
def _other_denied(n: int) -> list[str]:
    return [f"It is {n}, not {n + 1}.", f"It isn't {n + 1}. It is {n}.", f"The answer is {n} rather than {n - 1}."]


@RIGHT_KINDS.add("products in brackets", "gsm8k")
@with_integer
def _bracketed_product(n: int) -> list[str]:
    return [f"{n // factor}({factor})" for factor in (2, 3, 5, -1) if n % factor == 0 and n // factor > 0]


@RIGHT_KINDS.add("tuples inside text", "math")
def _inside_text(gold: str) -> list[str]:
    return [rf"\text{{{gold}}}", rf"\mathrm{{{gold}}}"] if re.fullmatch(r"\(-?\d+(?:, ?-?\d+)+\)", gold) else []
