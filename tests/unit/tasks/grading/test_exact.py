"""The fast path: what it decides is right, and what it cannot decide it leaves open."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grading.exact import GoldKind, classify_gold, compare_exactly
from tasks.grading.rationals import exact_value

RATIONALS = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**4)
INTEGERS = st.integers(-(10**12), 10**12)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("18", "18"),
        ("025", "25"),
        ("12345", r"12\,345"),
        (r"1{,}234", "1234"),
        ("1,234,567", "1234567"),
        ("11111111100", r"11,\! 111,\! 111,\! 100"),
        ("$1,000.99", "1000.99"),
        ("1000,99", "1000.99"),
        (r"\$32,\!348", "32348"),
        ("１２", "12"),
        ("42.", "42"),
        (r"185\ ".strip(), "185"),
        (r"\text{The answer is }42", "42"),
        ("1e5", "100000"),
        (r"1.5 \times 10^3", "1500"),
        ("10^{-2}", "0.01"),
        (r"\frac{9}{7}", r"\dfrac{9}{7}"),
        (r"\frac43", "4/3"),
        (r"\frac 59", r"\frac{5}{9}"),
        (r"\frac9{19}", "9/19"),
        (r"-\frac{1}{2}", "-0.5"),
        (r"1\frac{4}{5}", "1.8"),
        (r"137 \frac{1}{2}", "137.5"),
        ("1 4/5", r"\frac{9}{5}"),
        (".5", r"\frac{1}{2}"),
        ("0.333333", "1/3"),
        (r"\frac{10}{3}", "3.33333333"),
        (r"10\text{ cm}", "10"),
        (r"864 \mbox{ inches}^2", "864"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"),
        ("90 degrees", r"90^\circ"),
        ("74°", "74"),
        ("3 hours", "3"),
        ("x = 5", "5"),
        ("5", "x=5"),
        (r"50\%", "50"),
        (r"50\%", "0.5"),
        ("0.5", "50%"),
        ("50", "50 percent"),
        ("52", "52_8"),
        (r"\text{Evelyn}", "evelyn"),
        ("the ellipse", r"\text{ellipse}"),
        ("(C)", r"\text{(C)}"),
        ("C. 12", "C"),
        (r"\textbf{A}", "A"),
        ("D", "(D) Alina"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"p\,-\,q", "p - q"),
    ],
)
def test_equal_answers_are_equal_at_once(answer: str, gold: str) -> None:
    assert compare_exactly(answer, gold) is True


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1e-7", "2e-7"),
        ("0.00000001", "0.00000002"),
        ("17", "18"),
        ("0.33", "1/3"),
        ("5.001", "5"),
        ("0.0100001", "1/100"),
        ("100000000000", "99999999999"),
        ("2^{2025}", "3^{2025}"),
        ("52_9", "52_8"),
        ("42", "52_8"),
        (r"\text{silent}", r"\text{listen}"),
        (r"\text{west}", r"\text{east}"),
        ("D", "C"),
        (r"50\%", "5"),
    ],
)
def test_different_answers_differ_at_once(answer: str, gold: str) -> None:
    assert compare_exactly(answer, gold) is False


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"4\sqrt{2}", "4"),
        ("1331 and 1728", "1728"),
        ("32, 349", "32349"),
        ("2, 3", "3, 2"),
        ("x = 1", "y = 1"),
        ("3i", "3"),
        ("8 pi", "8"),
        (r"3\frac{5}{2}", "5.5"),
        ("10^{10^{10}}", "5"),
        ("9" * 500, "5"),
        ("2k", "2"),
    ],
)
def test_doubt_is_left_to_algebra(answer: str, gold: str) -> None:
    assert compare_exactly(answer, gold) is None


@given(RATIONALS)
def test_a_fraction_in_every_notation_has_one_value(value: Fraction) -> None:
    sign, above, below = "-" if value < 0 else "", abs(value.numerator), value.denominator
    for text in (
        f"{sign}{above}/{below}",
        rf"{sign}\frac{{{above}}}{{{below}}}",
        rf"$\dfrac{{{sign}{above}}}{{{below}}}$",
    ):
        found = exact_value(text)
        assert found is not None
        assert found.value == value


@given(RATIONALS, RATIONALS)
def test_fractions_agree_exactly_when_they_are_equal(first: Fraction, second: Fraction) -> None:
    assert compare_exactly(f"{first}", f"{second}") is (first == second)


@given(INTEGERS)
def test_thousands_and_zeros_do_not_change_an_integer(value: int) -> None:
    assert compare_exactly(f"{value:,}", str(value)) is True
    assert compare_exactly(f"{value}.00", str(value)) is True
    assert compare_exactly(f"{value:,}", str(value + 1)) is False


@given(st.text(max_size=60))
def test_whatever_is_written_equals_itself(text: str) -> None:
    assert compare_exactly(text, text) is True


@given(st.text(alphabet=r"0123456789.,-+/\frac{}()^_%$ xdegpi", max_size=2500), st.sampled_from(["5", "1/3", "x", "B"]))
def test_any_text_is_compared_without_an_error(answer: str, gold: str) -> None:
    assert compare_exactly(answer, gold) in (True, False, None)


@pytest.mark.parametrize(
    ("gold", "kind"),
    [
        ("18", GoldKind.NUMBER),
        (r"15\mbox{ cm}^2", GoldKind.NUMBER),
        (r"\text{(C)}", GoldKind.CHOICE),
        (r"\text{Evelyn}", GoldKind.TEXT),
        ("east", GoldKind.TEXT),
        ("yes", GoldKind.TEXT),
        ("Team: Red", GoldKind.TEXT),
        ("undefined", GoldKind.TEXT),
        ("10:45 AM", GoldKind.TIME),
        (r"0.\overline{3}", GoldKind.NUMBER),
        ("2.5 million", GoldKind.NUMBER),
        ("1:2:3", GoldKind.SYMBOLIC),
        (r"x \ne \pm 5", GoldKind.SYMBOLIC),
        ("p - q", GoldKind.SYMBOLIC),
        (r"\cot x", GoldKind.SYMBOLIC),
        ("(3,4]", GoldKind.SYMBOLIC),
        ("x=5", GoldKind.SYMBOLIC),
    ],
)
def test_golds_are_told_apart_by_their_form(gold: str, kind: GoldKind) -> None:
    assert classify_gold(gold) is kind
