"""Where answers are found, and where none is."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.grading import GradingConfig
from tasks.grading.exact import classify_gold
from tasks.grading.extraction import Absence, describe_gold, find_answer, find_gold, strip_reasoning

SOURCES = GradingConfig().answer_sources


def find(text: str, gold: str = "42", *, was_cut: bool = False) -> str | Absence:
    return find_answer(text, describe_gold(gold, classify_gold(gold)), SOURCES, was_cut=was_cut)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So \boxed{42}.", "42"),
        (r"\boxed{41}, wait, so \boxed{42}", "42"),
        (r"\boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt{3}}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{42}", "42"),
        (r"\boxed 42 apples", "42"),
        ("\boxed{42}", "42"),
        (r"\boxed{42} I put it into \boxed{}.", "42"),
        ("<answer> 42 </answer>", " 42 "),
        ("16 - 3 = 13\n#### 42", "42"),
        ("The answer is 42.", "42"),
        ("the answer is 42 because 6*7 = 42 and 5+1 = 6", "42"),
        ("Final Answer: The largest $n$ is 42.", "42"),
        ("The answer is $x = 40 + 2 = 42$.", " 42"),
        ("**Answer:** 42", "42"),
        ("steps\nA: 42", "42"),
        ("Answer:\n\n 42", "42"),
        ("答案：42", "42"),
        ("We have 40 + 2 = 42 apples.", "42"),
        ("It costs $18 and then $42 in all", "$42"),
        (r"so it is $\sqrt{1764}$", r"\sqrt{1764}"),
        ("a total of 1,042 and 3/4", "3/4"),
        ("from 40 to 42<|im_end|>", "42"),
        ("The answer is not 42.", "not 42"),
    ],
)
def test_the_stated_answer_is_found(text: str, answer: str) -> None:
    assert find(text) == answer


@pytest.mark.parametrize(
    ("text", "gold", "answer"),
    [
        ("The answer is for sure D, it can't be A or B", "D", "D"),
        ("I think it's B", "B", "B"),
        ("The answer is not B", "B", "not B"),
        ("The answer is not $x+1$", "x+1", "not $x+1$"),
        ("The answer is $x+2$, not $x+1$", "x+1", "x+2"),
        ("B because it fits", "B", "B"),
        ("The answer is Evelyn.", r"\text{Evelyn}", "Evelyn"),
        (r"\boxed{1} and \boxed{2}", "1,2", "1, 2"),
        (r"\boxed{1} and \boxed{2}", "2", "2"),
        (r"Therefore $x \gt 5$ is the solution.", "x > 5", r"x \gt 5"),
        (r"The final answer is $(-\infty, 2)$. I hope it is correct.", r"(-\infty,2)", r"(-\infty, 2)"),
        ("2x + 3", "2x+3", "2x + 3"),
    ],
)
def test_the_gold_s_kind_says_what_to_look_for(text: str, gold: str, answer: str) -> None:
    assert find(text, gold) == answer


@pytest.mark.parametrize(
    ("text", "absence"),
    [
        ("", Absence.NONE),
        ("I cannot say.", Absence.NONE),
        (r"\boxed{}", Absence.NONE),
        ("5 or 42", Absence.NONE),
        ("The answer isn't 42", Absence.NONE),
        ("not 42" + ", not 42" * 9, Absence.NONE),
        (r"\boxed{41}. No: \boxed{42", Absence.UNREADABLE),
    ],
)
def test_no_answer_is_invented(text: str, absence: Absence) -> None:
    assert find(text) is absence


@pytest.mark.parametrize("text", [r"\boxed{41} or \boxed{4", "#### 4", "The answer is 4", "first 40 and then 4", ""])
def test_a_completion_cut_before_its_answer_ends_has_none(text: str) -> None:
    assert find(text, was_cut=True) is Absence.CUT


@pytest.mark.parametrize("text", [r"\boxed{42} which", "#### 42\nLet me", "The answer is 42. Then"])
def test_an_answer_stated_before_the_cut_counts(text: str) -> None:
    assert find(text, was_cut=True) == "42"


def test_a_markdown_heading_is_no_answer() -> None:
    assert find("#### Step 3: count\nThere are 42 of them") == "42"
    assert find("#### 3. Count them\nThere are 42 of them") == "42"


@pytest.mark.parametrize(
    ("text", "starts_inside", "rest"),
    [
        ("<think>a \\boxed{1}</think>b", False, "b"),
        ("a</think>b", False, "b"),
        ("a</think>b", True, "b"),
        ("b", False, "b"),
        ("<think>a \\boxed{1}", False, None),
        ("<think>a</think>b<think>c", False, None),
        ("still thinking", True, None),
    ],
)
def test_reasoning_is_put_aside_and_an_open_end_noticed(text: str, starts_inside: bool, rest: str | None) -> None:
    assert strip_reasoning(text, starts_inside=starts_inside) == rest


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("18", "18"),
        (r"So \[ \boxed{42} \]", "42"),
        (r"\boxed{1} papers and \boxed{2} bins", "1, 2"),
        ("answer is 0.6666667", "0.6666667"),
    ],
)
def test_a_gold_in_a_sentence_is_found(gold: str, answer: str) -> None:
    assert find_gold(gold) == answer


PIECES = st.sampled_from(
    [
        r"\boxed{",
        "}",
        "{",
        "$",
        r"\(",
        r"\)",
        r"\[",
        "answer is ",
        "Answer:",
        "####",
        " 5",
        "\n",
        "<answer>",
        r"\frac",
        ".",
        "-",
        ",",
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join), st.booleans(), st.sampled_from(["5", "x+1", "B", "east", "1,2"]))
def test_broken_markup_never_raises(text: str, was_cut: bool, gold: str) -> None:
    find(text, gold, was_cut=was_cut)


@pytest.mark.parametrize(
    "unit",
    [
        r"\boxed{",
        "{",
        "(",
        r"\(",
        r"\[",
        "$",
        "answer is ",
        "answer ",
        "A: ",
        "####",
        "#### 5\n",
        "1",
        "1,",
        "5 ",
        "-",
        "<answer>",
        "<think>",
        " ",
        ".",
        r"\frac{1}{",
        "a",
        "B is correct ",
        "5 of 5 ",
        "not 5 ",
        "½",
        r"x=\boxed{5} or ",
    ],
)
@pytest.mark.parametrize("gold", ["5", "x+1", "1,2", "B"])
def test_a_hostile_megabyte_is_read_in_moderate_time(unit: str, gold: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    find(text, gold)
    assert time.process_time() - start < 3.0
