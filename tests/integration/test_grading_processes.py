"""Grading by real processes: hangs, deaths and hostile text cost the sample that causes them and no other."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from schemas.grading import GradingConfig
from schemas.states import Verdict
from tasks.grading.golds import check_golds
from tasks.grading.grader import Grader, GradeRequest, grade_answers
from tasks.grading.jobs import Job, encode
from tasks.grading.pool import GradingPool, process_environment

HANGING = r"(x+y+z+w+v)^{400}"
EQUAL = Job("compare", r"\sqrt{8}", r"2\sqrt{2}")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(GradingConfig(num_processes=2, timeout_s=60.0)) as shared:
        yield shared


def is_correct(grader: Grader, answer: str, gold: str) -> bool:
    (grade,) = grader.grade([GradeRequest(completion=rf"So \boxed{{{answer}}}.", gold=gold)])
    assert grade.score is not None, grade
    return grade.verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"[1,2]", r"1\le x\le 2"),
        (r"1 \leq x \leq 2", "[1,2]"),
        (r"x \in [-2,7]", "[-2,7]"),
        (r"\sqrt{117}", r"3\sqrt{13}"),
        ("3*sqrt(13)", r"3\sqrt{13}"),
        (r"\sqrt2", r"\sqrt{2}"),
        ("1.4142135623730951", r"\sqrt{2}"),
        (r"1+\sqrt{19}, 1-\sqrt{19}", r"1 \pm \sqrt{19}"),
        ("-2,1", "1,-2"),
        ("x**2 + 2*x + 1", "(x+1)^2"),
        (r"\begin{bmatrix} -2 \\ -14 \end{bmatrix}", r"\begin{pmatrix} -2 \\ -14 \end{pmatrix}"),
        (r"1-\frac{1}{\mathrm{e}}", r"\frac{e-1}{e}"),
        ("1/2004!", r"\frac{1}{2004!}"),
        (r"\frac{\sqrt{3}}{3} \approx 0.577", r"\frac{1}{\sqrt{3}}"),
        ("2x+3", "y = 2x + 3"),
        (r"\frac{1}{3}(1+1)", "2/3"),
        ("-5i + 6", "6 - 5i"),
        ("14.0 - 1.0i", "14-i"),
        ("1x+1y", "x+y"),
        ("x^{2.0}", "x^2"),
        ("0.5x", r"\frac{x}{2}"),
        (r"1\sqrt{2}", r"\sqrt 2"),
        (r"1:\sqrt{3}:2", r"\sqrt3:3:2\sqrt3"),
        (r"\sqrt{1/n}", r"\frac1{\sqrt n}"),
        (r"\sqrt{\frac{a}{b}}", r"\frac{\sqrt a}{\sqrt b}"),
        (r"x<\sqrt{2} \text{ or } x>\sqrt{8}", r"(-\infty,\sqrt2)\cup(2\sqrt2,\infty)"),
    ],
)
def test_equal_mathematics_is_correct(grader: Grader, answer: str, gold: str) -> None:
    assert is_correct(grader, answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1331 and 1728", "1728"),
        (r"1331 \text{ and } 1728", "1728"),
        (r"4\sqrt(2)", "4"),
        ("4", r"4\sqrt(2)"),
        ("1/2004!", "1/2005!"),
        ("0", "1/2004!"),
        (r"10^{-8}\pi", r"2\cdot 10^{-8}\pi"),
        ("(1,2)", "[1,2]"),
        ("(2,1)", "(1,2)"),
        (r"1 + \frac{1}{e}", r"1 - \frac{1}{e}"),
        ("x=1", "y=1"),
        ("32, 349", "32349"),
        (r"x \leq 5", r"x \geq 5"),
        (r"1 \pm \sqrt{19}", r"\pm \sqrt{19}"),
        ("2x", "x"),
        (r"1:\sqrt{2}:2", r"1:\sqrt3:2"),
        ("x", r"\sqrt{x^2}"),
        ("|x|", "x"),
        (r"\sqrt{\frac{1}{n^2}}", r"\frac{1}{n}"),
        (r"C \text{ or } D", "C"),
        (r"\begin{pmatrix}1 & 2 \\ 3 & 5\end{pmatrix}", r"\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}"),
    ],
)
def test_different_mathematics_is_wrong(grader: Grader, answer: str, gold: str) -> None:
    assert not is_correct(grader, answer, gold)


def test_an_answer_that_nobody_can_read_is_unparsed(grader: Grader) -> None:
    (grade,) = grader.grade([GradeRequest(completion=r"\boxed{\frac{x}{}^^}", gold="x+1")])
    assert (grade.verdict, grade.score) == (Verdict.UNPARSED, 0.0)


def test_golds_are_parsed_before_a_run() -> None:
    golds = [r"3\sqrt{13}", "(3,4]", r"\frac{1}{", "x^", "p - q", r"\frac{1}{"]
    reasons = check_golds(golds)
    assert [reason is None for reason in reasons] == [True, True, False, False, True, False]


def test_one_gold_is_checked_with_processes_of_its_own() -> None:
    assert check_golds([r"\{1\pm\sqrt{5},-2\}"]) == [None]


def test_a_hung_comparison_times_out_alone_and_is_still_counted() -> None:
    completions = [rf"\boxed{{{HANGING}}}", *[r"\boxed{\sqrt{8}}"] * 8, r"\boxed{\int_0^1 e^{x^{x^x}} dx}"]
    golds = ["x+1", *[rf"2\sqrt{{2}}+{k}-{k}" for k in range(8)], "x+1"]
    config = GradingConfig(timeout_s=2.0, num_processes=2)
    with Grader(config) as grader:
        (reply,) = grader.pool.run([Job("compare", HANGING, "x+1")])
        assert (reply.outcome, reply.reason) == ("timeout", "no verdict within 2 s")
        requests = [GradeRequest(completion=text, gold=gold) for text, gold in zip(completions, golds, strict=True)]
        grades = grader.grade([*requests, GradeRequest(completion=completions[-1], gold=r"2\sqrt{2}")])
    assert [grade.verdict for grade in grades[1:9]] == [Verdict.CORRECT] * 8
    assert [(grade.verdict, grade.score) for grade in (grades[0], *grades[9:])] == [(Verdict.WRONG, 0.0)] * 3


def kill_busiest_child(bystanders: set[int], killed: list[int]) -> None:
    """Kill the first child of a supervisor, other than the bystanders, that has computed for half a second."""
    deadline, at_first = time.monotonic() + 60, dict[int, float]()
    while time.monotonic() < deadline and not killed:
        for supervisor in psutil.Process().children():
            if supervisor.pid in bystanders or "tasks.grading.worker" not in supervisor.cmdline():
                continue
            for child in supervisor.children():
                used_s = child.cpu_times().user
                if used_s - at_first.setdefault(child.pid, used_s) > 0.5:
                    child.kill()
                    killed.append(child.pid)
                    return
        time.sleep(0.05)


def test_a_process_that_dies_costs_one_comparison() -> None:
    killed: list[int] = []
    bystanders = {process.pid for process in psutil.Process().children()}
    with GradingPool(num_processes=1, timeout_s=60.0) as pool:
        assert pool.run([EQUAL])[0].outcome == "correct"
        killer = threading.Thread(target=kill_busiest_child, args=(bystanders, killed))
        killer.start()
        replies = pool.run([Job("compare", HANGING, "x+1"), EQUAL, EQUAL, EQUAL])
        killer.join()
    assert killed
    assert replies[0].outcome == "crashed"
    assert replies[0].reason == "the grading process died: signal 9"
    assert [reply.outcome for reply in replies[1:]] == ["correct"] * 3


def test_a_lost_supervisor_is_replaced() -> None:
    with GradingPool(num_processes=1) as pool:
        bystanders = {process.pid for process in psutil.Process().children()}
        pool.run([EQUAL])
        for child in psutil.Process().children():
            if child.pid not in bystanders:
                child.kill()
                child.wait()
        assert pool.run([EQUAL] * 3) == [("correct", None, None)] * 3


def test_a_child_that_hangs_ends_with_its_supervisor() -> None:
    command = [sys.executable, "-P", "-m", "tasks.grading.worker", "--num-processes", "1", "--timeout-s", "60"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=process_environment()) as started:
        assert started.stdin is not None
        started.stdin.write(encode(0, Job("compare", HANGING, "x+1")))
        started.stdin.flush()
        deadline = time.monotonic() + 60
        while not (children := psutil.Process(started.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started.kill()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def test_closing_ends_every_process() -> None:
    bystanders = {process.pid for process in psutil.Process().children()}
    pool = GradingPool(num_processes=2)
    pool.run([EQUAL] * 4)
    supervisors = [process for process in psutil.Process().children() if process.pid not in bystanders]
    family = [process for supervisor in supervisors for process in (supervisor, *supervisor.children())]
    assert len(family) >= 2
    pool.close()
    _, alive = psutil.wait_procs([p for p in family if p.is_running()], timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_grading_works_in_a_thread() -> None:
    verdicts: list[Verdict] = []

    def work() -> None:
        verdicts.extend(grade.verdict for grade in grade_answers([r"\boxed{\sqrt{8}}"], [r"2\sqrt{2}"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert verdicts == [Verdict.CORRECT]


def test_grading_processes_do_not_import_prefect() -> None:
    listing = "import sys, tasks.grading.worker as w; w.symbolic.warm_up(); print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    assert "math_verify" in loaded
    assert not {"prefect", "torch", "vllm", "reasoning_gym"} & set(loaded)


def gym_request(name: str, entry: dict[str, object], completion: str) -> GradeRequest:
    data = json.dumps({"task": name, "entry": entry})
    return GradeRequest(completion=completion, gold=str(entry["answer"]), grader="reasoning_gym", grader_data=data)


def test_a_task_s_own_scorer_decides_and_never_evaluates_code(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    hostile = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    countdown: dict[str, object] = {
        "question": "?",
        "answer": "3*4+1",
        "metadata": {"numbers": [3, 4, 1], "target": 13},
    }
    queens: dict[str, object] = {"question": "?", "answer": "Q", "metadata": {"valid_answers": ["Q"]}}
    with Grader(GradingConfig(num_processes=1, timeout_s=60.0)) as grader:
        grades = grader.grade(
            [
                GradeRequest(completion=r"\boxed{\sqrt{8}}", gold=r"2\sqrt{2}"),
                gym_request("countdown", countdown, "<answer>3*4 + 1</answer>"),
                gym_request("countdown", countdown, f"<answer>{hostile}</answer>"),
                gym_request("n_queens", queens, f"<answer>{hostile}</answer>"),
                gym_request("no_such_task", {"answer": "a b"}, "<answer>c d</answer>"),
            ]
        )
    assert [grade.verdict for grade in grades] == [
        Verdict.CORRECT,
        Verdict.CORRECT,
        Verdict.UNPARSED,
        Verdict.UNPARSED,
        Verdict.CRASHED,
    ]
    assert grades[-1].score is None
    assert not marker.exists()
