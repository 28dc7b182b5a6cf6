"""Differences that need no algebra are certain, and agreement is never claimed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grading.numeric import closed_form_value, differ_for_sure, shape_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"3\sqrt{13}", 3 * math.sqrt(13)),
        (r"\frac{3\sqrt3}{4}", 3 * math.sqrt(3) / 4),
        (r"1+2\sqrt{3}", 1 + 2 * math.sqrt(3)),
        (r"11 \sqrt{5} + 11", 11 * math.sqrt(5) + 11),
        (r"-\frac{\pi}{6}", -math.pi / 6),
        (r"\sqrt[3]{8}", 2.0),
        (r"\frac{\sqrt2}2", math.sqrt(2) / 2),
        (r"2^{-3}\cdot 16", 2.0),
        (r"-2^2", -4.0),
        (r"\frac12\pi", math.pi / 2),
    ],
)
def test_closed_forms_have_their_value(text: str, value: float) -> None:
    assert closed_form_value(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["x", "3i", r"1\frac{4}{5}\sqrt{2}", r"\sqrt{-1}", r"\frac{1}{0}", "2^", r"1\pm\sqrt{2}", "50%", "(1,2)", ""],
)
def test_everything_else_has_none(text: str) -> None:
    assert closed_form_value(text) is None


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("5", "number"),
        ("(2,3)", "collection"),
        (r"\left[ \frac{\pi^2}{8}, \frac{5 \pi^2}{4} \right]", "collection"),
        (r"x \in [-2,7]", "collection"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "matrix"),
        ("(1,234)", None),
        (r"\{2, 2\}", None),
        ("(a)(b)", None),
        ("f(x, y) = 3", None),
    ],
)
def test_shapes_are_named_only_where_sure(text: str, shape: str | None) -> None:
    assert shape_of(text) == shape


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 20))
def test_equal_roots_never_differ_and_unequal_ones_do(first: int, second: int, factor: int) -> None:
    assert not differ_for_sure(rf"{factor}\sqrt{{{first}}}", rf"\sqrt{{{first * factor**2}}}")
    assert differ_for_sure(rf"\sqrt{{{first}}}", rf"\sqrt{{{second}}}") is (first != second)


@given(st.text(alphabet=r"0123456789\sqrtfacpi{}()[]^+-*/., ", max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    value = closed_form_value(text)
    assert value is None or math.isfinite(value)
    assert differ_for_sure(text, text) is False
