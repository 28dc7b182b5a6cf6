r"""Kinds of answers that were once read wrongly: each with look-alikes, right and wrong, and no grading process.

An answer that starts with `#` stands in a box; the others are whole completions.
"""

import pytest

from schemas.grading import Grade
from schemas.states import Verdict
from tasks.grading.golds import check_golds
from tasks.grading.grader import Grader, GradeRequest
from tasks.grading.rewriting import rewrite_expression, split_signs
from tasks.grading.symbolic import can_parse, compare_symbolically


def grade(answer: str, gold: str) -> Grade:
    is_boxed = answer.startswith("#") and not answer.startswith("##")
    completion = rf"So \boxed{{{answer[1:]}}}." if is_boxed else answer
    with Grader() as grader:
        (found,) = grader.grade([GradeRequest(completion=completion, gold=gold)])
        assert not grader.pool.is_started, "the fast path did not decide"
    return found


RIGHT = {
    "denied numbers": [
        ("The answer isn't 5. It is 6.", "6"),
        ("x is 6, not 5", "6"),
        ("It is 6 rather than 5, not 4", "6"),
        ("The answer is not B but C", "C"),
        ("The answer is $x+2$, not $x+1$", "x+2"),
        ("There are 5, isn't it", "5"),
        ("Don't worry: 5", "5"),
        ("It's not just 5", "5"),
    ],
    "areas": [
        ("#5 cm x 6 cm", "5 cm x 6 cm"),
        ("#5 cm x 6 cm", "30"),
        (r"#5 \text{ cm} \times 6 \text{ cm}", r"30 \text{ cm}^2"),
        ("#1.5 m by 2 m", "3"),
        ("#50 cm x 2 cm", r"0.01 \text{ m}^2"),
    ],
    "mathematics in text": [
        (r"#\text{(3, 5)}", "(3,5)"),
        ("#(3,5)", r"\text{(3, 5)}"),
        (r"#\mathrm{[3, 5)}", "[3,5)"),
        (r"#(\text{3}, \text{5})", "(3,5)"),
        (r"#\text{10:45}", "10:45"),
        (r"#\text{1/2}", "0.5"),
    ],
    "the plain word boxed": [
        (r"\boxed{42}. I have boxed the final answer above.", "42"),
        (r"\boxed{B} and that is all, so the boxed option is B", "B"),
        ("He bought 3 boxed lunches and 2 salads. That makes 5.", "5"),
        ("The number of unboxed items is 42", "42"),
        (r"Put it in \boxed and be done: 42", "42"),
        ("The gift-boxed set costs $42", "42"),
        (r"\boxed 42 apples", "42"),
        (r"\beginboxed{42}", "42"),
    ],
    "scale words": [
        (r"#2.5 \text{ million}", "2500000"),
        ("#5 thousand", "5000"),
        (r"#\$3 million", "3000000"),
        (r"#\$2.5M", "2500000"),
        (r"#12 \text{ million dollars}", "12000000"),
        ("#3 hundred thousand", "300000"),
        (r"#7 \text{ tenths}", "0.7"),
        ("#2 thirds", "2/3"),
        ("#5 factorial", "120"),
        ("#5 squared", "25"),
        (r"#25 \text{ centimeters squared}", "25"),
        ("#25 squared meters", "25"),
        ("#2 dozen", "24"),
        ("#2 dozen", "2"),
        ("#3 quarters", "3"),
        (r"#3 \text{ times}", "3"),
        ("The answer is 3 million people.", "3000000"),
        ("In all he sold 3 million of them.", "3000000"),
    ],
    "times": [
        (r"#10{:}45", "10:45"),
        (r"#\text{10:45 AM}", r"10:45 \text{ a.m.}"),
        ("#15:30", r"3:30 \text{ PM}"),
        ("#3:30", r"3:30 \text{ p.m.}"),
        ("#02:30", "2:30"),
        ("#10 AM", "10:00 AM"),
        ("#noon", "12:00 PM"),
        ("#5 o'clock", "5:00"),
        ("#7:00 PM", "7"),
        ("The train leaves at 10:45 AM.", r"10:45 \text{ a.m.}"),
        ("The answer is 10:45 in the morning.", "10:45"),
    ],
    "ratios": [
        ("#2:4:6", "1:2:3"),
        ("#4:6", "2:3"),
        (r"#2 \text{ to } 3", "2:3"),
        ("#2 : 3", "2:3"),
        (r"#\frac{1}{2}:1", "1:2"),
        ("#2:3", r"\frac23"),
    ],
    "repeating decimals": [
        (r"#0.\overline{3}", r"\frac13"),
        (r"#\frac13", r"0.\overline{3}"),
        (r"#0.1\overline{6}", "1/6"),
        (r"#0.\overline{142857}", r"\frac17"),
        (r"#0.\dot{3}", "1/3"),
        (r"#0.\dot{1}4285\dot{7}", "1/7"),
        (r"#0.\bar{6}", r"\frac23"),
        ("#0.(3)", "1/3"),
        ("#0.333...", "1/3"),
        (r"#-1.1666\ldots", "-7/6"),
        (r"#33.\overline{3}\%", "1/3"),
    ],
    "bases": [
        (r"#2516_{\text{eight}}", "2516_8"),
        ("#2516_{eight}", "2516_8"),
        ("The answer is 2516 in base 8.", "2516_8"),
        ("#(2516)_8", "2516_8"),
        (r"#2516 \text{ (base 8)}", "2516_8"),
        ("#2516_{base 8}", "2516_8"),
        ("#2516₈", "2516_8"),
        ("#1f_{16}", "1F_{16}"),
        ("#0x1F", "1F_{16}"),
        ("#101010 binary", "101010_2"),
        ("#42_{10}", "42"),
        ("#52_8", "42"),
    ],
    "sets": [
        (r"#\varnothing", r"\emptyset"),
        (r"#\text{no solution}", r"\emptyset"),
        (r"#(-\infty,\infty)", r"\mathbb R"),
        (r"#\mathbb{R}", r"(-\infty,\infty)"),
        (r"#\text{all real numbers}", r"\mathbb{R}"),
        (r"#x<0 \text{ or } x>2", r"(-\infty,0)\cup(2,\infty)"),
        (r"#(-\infty,0)\cup(2,\infty)", r"x<0 \text{ or } x>2"),
        (r"#x \ge 1, x \ne 2", r"[1,2)\cup(2,\infty)"),
        (r"#\{x \mid x>2\}", r"(2,\infty)"),
        (r"#(2,\infty)", r"\{ x \in \mathbb{R} : x > 2 \}"),
        (r"#\mathbb{R}\setminus\{3\}", r"x \neq 3"),
        (r"#(-\infty,-5)\cup(-5,5)\cup(5,\infty)", r"x \neq \pm 5"),
        (r"#x \neq 5, x\neq -5", r"x \neq \pm 5"),
        (r"#2>x\ge -1", "[-1,2)"),
        (r"#\langle1,2\rangle", "(1,2)"),
        ("#a<b<c", "c > b > a"),
        ("#b > a > c", "b>a>c"),
    ],
    "letter and value": [
        (r"#\textbf{(B)}\ 27", "27"),
        (r"#\text{B. } 27", "27"),
        (r"#\textbf{(B)}\ \frac{1}{2}", "0.5"),
        ("#(B) east", "east"),
        ("#C - something", "C"),
        ("#Option C", "C"),
        (r"#\text{Choice C}", "C"),
        ("The answer is Option (C).", "C"),
        ("The answer is for sure C, it can't be A or B", "C"),
        ("#27", "(B) 27"),
    ],
    "behind the answer": [
        ("The answer is 42 (see step 3)", "42"),
        ("The answer is 42 (6 times 7).", "42"),
        ("The answer is 42 = 6*7", "42"),
        ("The answer is $42 (the discount was $8).", "42"),
        ("The answer is 42 - the discount was 8", "42"),
        ("The answer is 42, up from 7.", "42"),
        ("The answer is 40 + 2 = 42.", "42"),
        ("The answer is 6*7 = 42.", "42"),
        ("The answer is 2/3 of 63 = 42.", "42"),
        ("The answer is 10% of 420, which is 42.", "42"),
        ("The answer is 42 of 60.", "42"),
        ("The answer is 42 of 60, as 42/60 = 0.7", "42"),
        ("The answer is 42 – 6 times 7", "42"),
        ("The answer is not 41 but 42.", "42"),
    ],
    "Markdown and tags": [
        ("The answer is **east**.", r"\text{east}"),
        ("**Answer: Evelyn**", r"\text{Evelyn}"),
        ("The answer is *east*.", r"\text{east}"),
        ("The answer is `east`.", r"\text{east}"),
        ("The answer is <b>east</b>.", r"\text{east}"),
        ("The answer is **east**, since the sun rises there.", r"\text{east}"),
        ("### Answer: **Evelyn**", r"\text{Evelyn}"),
        ("<answer>The answer is 42</answer>", "42"),
        ("<answer>She has 42 apples</answer>", "42"),
        ("<answer>**42**</answer>", "42"),
        ("<answer>The answer is east.</answer>", r"\text{east}"),
        ("<answer>I think it is (C)</answer>", "C"),
    ],
    "units of both": [
        (r"#1.5 \text{ m}", r"150 \text{ cm}"),
        (r"#6 \text{ ft}^2", r"864 \mbox{ inches}^2"),
        ("#90 minutes", "1.5 hours"),
        ("#15", r"15\mbox{ cm}^2"),
        (r"#0.054 \text{ dollars}", r"5.4 \text{ cents}"),
        ("#2 square meters", r"2 \text{ m}^2"),
    ],
    "roots and pi without LaTeX": [("#2√113", r"2√113 "), ("#pi", r"\pi"), ("#2 pi", r"2\pi")],
    "currency": [
        (f"#18{behind}", "18") for behind in ("€", " €", " EUR", r" \text{ euros}", r"\$", "£", r" US\$", " USD")
    ],
    "fractions in one sign, mixed numbers": [
        ("The answer is ½.", "0.5"),
        ("The answer is ¾ cup.", "3/4"),
        ("#1½", "1.5"),
        ("The answer is 2½ hours.", "2.5"),
        ("So it takes 2½ hours.", "2.5"),
        ("So it takes 2 1/2 hours.", "2.5"),
        ("In 2020 1/2 of them left", "1/2"),
        ("#### ⅔", "2/3"),
    ],
    "approximations": [
        (r"#\approx 3.14", "3.14"),
        ("#≈ 3.14", "3.14"),
        (r"#x \approx 3.14", "3.14"),
        ("#N ≈ 1000", "1000"),
        (r"#\approx \$3.50", "3.5"),
        (r"#\approx 50\%", "50"),
        (r"#\sim 42", "42"),
        (r"#\text{about } 42", "42"),
        (r"#\approx 17.12 \text{ ft}", "17.12"),
        (r"#\frac{9}{19} \approx 0.474", r"\frac{9}{19} \approx 0.474"),
    ],
    "units as fractions": [(r"#12\,\frac{\text{m}}{\text{s}}", "12"), (r"#12\ \frac{\mathrm{m}}{\mathrm{s}^2}", "12")],
    "names before the value": [
        (r"#\text{Total} = 12\text{ apples}", "12"),
        (r"#AB = 12 \text{ cm}", "12"),
    ],
    "boxes side by side": [
        (r"$x=\boxed{3}$ or $x=\boxed{5}$", "3,5"),
        (r"\boxed{x=3}, \boxed{x=5}", "x=3, x=5"),
    ],
    "a letter called correct": [
        ("Therefore, option D is correct.", "D"),
        ("So, choice (D) is the correct one.", "D"),
        ("Option A is incorrect. Option B is correct.", "B"),
        ("I believe **B** is the right choice.", "B"),
        ("Therefore, the correct option is D: Paris.", "D"),
        ("B is wrong because it is too large, so D is correct.", "D"),
        ("D is correct. A is wrong.", "D"),
    ],
    "references": [
        ("#336", r"336^\circ"),
        ("#70", "$70$"),
        ("#82", r"\boxed{82}"),
        ("#2", '["2"]'),
        (r"#\frac12", r"['$\\frac{1}{2}$']"),
        ("#17.1", r"\approx 17.1 \mathrm{ft}"),
        ("#17.08", r"\approx 17.1 \mathrm{ft}"),
        (r"#\sqrt{292}", r"x \approx 17.1"),
        (r"#\text{undefined}", "undefined"),
        (r"#\text{does not exist}", "undefined"),
    ],
}

HUGE = [
    r"\binom{1000000}{500000}",
    "10^{10^{10}}",
    "((9!)!)!",
    r"999999 \choose 5",
    "2^{999999999}",
    "(" * 60,
    r"\sqrt{" * 50 + "2" + "}" * 50,
    "9" * 5000,
]

WRONG = {
    "denied numbers": [
        ("The answer isn't 5", "5"),
        ("I conclude that it isn’t $5$", "5"),
        ("n cannot be 5", "5"),
        ("It can't equal 5", "5"),
        ("So n != 5", "5"),
        ("x is 6, not 5", "5"),
        ("It is 6 rather than 5", "5"),
        ("The answer isn't B", "B"),
        ("The answer is not B but C", "B"),
    ],
    "areas": [
        ("#5 cm x 6 cm", "11"),
        ("#5 cm x 6 cm", "56"),
    ],
    "mathematics in text": [(r"#\text{-3}", "3")],
    "roots and pi without LaTeX": [("#2√13", r"2\sqrt{113}"), ("#8 pi", "8"), ("#√49", "49")],
    "units of both": [
        (r"#15 \text{ m}^2", r"15\mbox{ cm}^2"),
        (r"#864 \text{ square feet}", r"864 \mbox{ inches}^2"),
        ("#5 hours", "5 minutes"),
        (r"#5.4 \text{ dollars}", r"5.4 \text{ cents}"),
    ],
    "scale words": [
        ("#3 million", "3"),
        ("#2 billion", "2 million"),
        (r"#7 \text{ tenths}", "7"),
        ("#5 factorial", "5"),
        ("#5 squared", "5"),
        ("#2 thirds", "2"),
        ("#2 dozen eggs", "3"),
        ("The answer is 3 million people.", "3"),
        ("In all he sold 3 million of them.", "3"),
    ],
    "times and ratios": [
        ("#2:30", "3:45"),
        (r"#3:30 \text{ AM}", r"3:30 \text{ PM}"),
        (r"#10 \text{ PM}", r"10 \text{ AM}"),
        ("#7:30 PM", "7"),
        ("#4:02", "2"),
        ("#2:1:12", "1:2:3"),
        ("#3:2", "2:3"),
        ("#1:2", "1:2:3"),
        ("The train leaves at 10:45 PM.", r"10:45 \text{ a.m.}"),
    ],
    "repeating decimals": [(r"#0.\overline{3}", "0.3"), (r"#0.\overline{6}", "1/3")],
    "bases": [
        ("#4210_{six}", "4210_5"),
        ("#2516_9", "2516_8"),
        ("#2518_9", "2516_8"),
        ("The answer is 2516 in base 7.", "2516_8"),
        ("#42_8", "42"),
    ],
    "sets": [
        (r"#x<0 \text{ or } x\ge 2", r"(-\infty,0)\cup(2,\infty)"),
        (r"#x<0 \text{ and } x<2", r"(-\infty,0)\cup(2,\infty)"),
        (r"#x \neq 5", r"x \neq \pm 5"),
        (r"#x > 0", r"\mathbb{R}"),
        (r"#(1,2)\cup(2,3)", "1<x<3"),
        ("#a > b > c", "b > a > c"),
        (r"#\text{all real numbers}", r"\emptyset"),
    ],
    "letter and value": [
        ("#(B) 28", "27"),
        (r"#\textbf{(C)}", "(B) 27"),
        ("#28", "(B) 27"),
        ("#B - something", "C"),
    ],
    "references": [("#17.2", r"\approx 17.1 \mathrm{ft}"), ("#0", "undefined"), ("#3", '["2"]')],
    "behind the answer": [("The answer is 42 (see step 3)", "3"), ("The answer is 42 = 6*7", "7")],
    "nothing stated": [
        ("The answer is 5–6.", "5"),
        ("The answer is 2008–2010", "2010"),
        ("Neither A nor B is correct.", "B"),
        ("If B is correct, C would hold too.", "B"),
        ("Both A and B are correct, or B is the best", "A"),
        ("Option A is not correct.", "A"),
        ("Vitamin C is the best cure for it.", "C"),
        ("Since angle B is right, the legs are known.", "B"),
    ],
    "approximations": [(r"#\approx 3.14", "3.1"), ("#≈ 3", "4")],
    "fractions in one sign, mixed numbers": [("#1½", "1/2"), ("So it takes 2½ hours.", "2")],
    "too large against a number": [(rf"#{huge}", "5") for huge in HUGE],
}


def rows(table: dict[str, list[tuple[str, str]]]) -> list[object]:
    return [
        pytest.param(*pair, id=f"{kind}-{number}") for kind, pairs in table.items() for number, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("answer", "gold"), rows(RIGHT))
def test_a_right_answer_is_correct(answer: str, gold: str) -> None:
    assert grade(answer, gold).verdict is Verdict.CORRECT


@pytest.mark.parametrize(("answer", "gold"), rows(WRONG))
def test_a_look_alike_is_wrong(answer: str, gold: str) -> None:
    assert grade(answer, gold).score == 0.0


def test_every_gold_that_is_equated_is_accepted() -> None:
    golds = [gold for table in (RIGHT, WRONG) for pairs in table.values() for _, gold in pairs]
    golds += [r"\{y \mid y \ge 0\}", "c < a < b", r"x \approx 17.1 \mathrm{ft}"]
    reasons = dict(zip(golds, check_golds(golds), strict=True))
    assert {gold: reason for gold, reason in reasons.items() if reason} == {}


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("14.0 - 1.0i", "14 - i"),
        ("x^{2.0}+y^1", "x^{2}+y"),
        ("2.05x", r"\frac{205}{100}x"),
        ("1:2:3", r"(\frac{2}{1},\frac{3}{1})"),
        (r"\int_0^1 x dx", r"\int_0^1 x dx"),
        (r"\int_a^1 1x dx", r"\int_a^1 x dx"),
        (r"1 \pm \sqrt{19}", r"1 \pm \sqrt{19}"),
        (r"1\frac12", r"1\frac12"),
        (r"\frac1x+a_1x+a_{1i}", r"\frac1x+a_1x+a_{1i}"),
        ("11x+21i", "11x+21i"),
        ("2(3)", r"2 \cdot (3)"),
        ("(1)(-2)(3)", r"(1) \cdot (-2) \cdot (3)"),
        ("f(3)+x(3)+f_2(8)", "f(3)+x(3)+f_2(8)"),
        (r"\log_2(8)+\sin^2(3)+2(3,4)+(1,2)(3,4)", r"\log_2(8)+\sin^2(3)+2(3,4)+(1,2)(3,4)"),
    ],
)
def test_an_expression_is_rewritten_without_a_change_of_meaning(text: str, rewritten: str) -> None:
    assert rewrite_expression(text) == rewritten


@pytest.mark.parametrize(
    ("text", "split"),
    [
        (r"\frac{-1 \pm \sqrt{5}}{2}", r"\frac{-1 + \sqrt{5}}{2}, \frac{-1 - \sqrt{5}}{2}"),
        (r"\frac{a \pm b}{c \mp d}", r"\frac{a + b}{c - d}, \frac{a - b}{c + d}"),
        (r"\frac{a \mp b}{c}", r"\frac{a - b}{c}, \frac{a + b}{c}"),
        (r"\{\frac{1 \pm i}{2}\}", r"\{\frac{1 + i}{2}, \frac{1 - i}{2}\}"),
        (r"\frac{\pm 1 \pm i}{2}", r"\frac{\pm 1 \pm i}{2}"),
        (r"(\pm 1, 0)", r"(\pm 1, 0)"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
    ],
)
def test_one_sign_of_both_kinds_is_two_expressions(text: str, split: str) -> None:
    assert split_signs(text) == split


@pytest.mark.parametrize(
    ("answer", "gold", "outcome"),
    [
        (r"x = \frac{-1 \pm \sqrt{5}}{2}", r"\frac{-1+\sqrt5}{2}, \frac{-1-\sqrt5}{2}", "correct"),
        (r"\frac{-1-\sqrt5}{2}, \frac{-1+\sqrt5}{2}", r"\frac{-1 \pm \sqrt{5}}{2}", "correct"),
        (r"-\frac12 \pm \frac{\sqrt5}{2}", r"\frac{-1 \pm \sqrt{5}}{2}", "correct"),
        (r"\sqrt{3 \pm 2\sqrt2}", r"\sqrt2+1,\sqrt2-1", "correct"),
        (r"\frac{-1+\sqrt5}{2}", r"\frac{-1 \pm \sqrt{5}}{2}", "wrong"),
        (r"\frac{1 \pm \sqrt{5}}{2}", r"\frac{-1 \pm \sqrt{5}}{2}", "wrong"),
        (r"\frac{1 \pm \sqrt{5}}{2}", r"\frac{1+\sqrt5}{2}", "wrong"),
        (r"\approx 3\pi", r"3\pi", "correct"),
        (r"\pi \approx 3.14", r"\pi", "correct"),
        ("5 cm x 6 cm", r"30 \text{ cm}", "wrong"),
        ("5 cm x 6 m", "30", "wrong"),
        ("30", "5 cm x 6 cm", "wrong"),
        (r"\text{(5, 3)}", "(3,5)", "wrong"),
        (r"\text{3, 5}", "35", "wrong"),
        (r"5\text{ 3}", "53", "wrong"),
        (r"x_{\text{1}}", "x_1", "correct"),
        ("2(3)", "6", "correct"),
        ("6", "2(3)", "correct"),
        ("2(-3)", "-6", "correct"),
        ("(1)(2)(3)", "6", "correct"),
        ("2(3)", "5", "wrong"),
        ("2(3)", "23", "wrong"),
        ("2(-3)", "-1", "wrong"),
        (r"\sin 30^\circ", "0.5", "correct"),
        (r"\sin(30°)", r"\frac12", "correct"),
        (r"\cos{60^{\circ}}", "0.5", "correct"),
        (r"2\sin 60^\circ", r"\sqrt3", "correct"),
        (r"\sin^2 30^\circ", r"\frac14", "correct"),
        (r"\cos(x+45^\circ)", r"\cos(x+\frac{\pi}{4})", "correct"),
        (r"\sin 20^\circ", r"\cos 70^\circ", "correct"),
        (r"\sin 30^\circ", "-0.5", "wrong"),
        (r"\sin 20^\circ", r"\cos 20^\circ", "wrong"),
        (r"\sin 30", "0.5", "wrong"),
        (r"\sin 20", r"\sin 20^\circ", "wrong"),
        (r"30^\circ", "30", "correct"),
        (r"(2, 30^\circ)", "(2,30)", "correct"),
    ],
)
def test_signs_and_approximations_are_read_for_algebra(answer: str, gold: str, outcome: str) -> None:
    """In this process: these are small enough."""
    assert can_parse(gold)
    assert compare_symbolically(answer, gold).outcome == outcome
