"""A child that hangs or dies costs one question, and never outlives who asks."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from infra.slurm.answering_process import AnsweringProcess
from schemas.errors import TransientError

CHILD = """
import os, sys, time
for line in sys.stdin:
    word = line.strip()
    if word == "die":
        sys.exit("words of the dead")
    if word == "hang":
        time.sleep(100)
    if word == "long":
        print("x" * 1_000_000, flush=True)
        continue
    print(os.getpid() if word == "pid" else word, flush=True)
"""
LONG_S = 30.0


@pytest.fixture
def child() -> Iterator[AnsweringProcess]:
    child = AnsweringProcess([sys.executable, "-c", CHILD], os.environ)
    yield child
    child.close()


def test_questions_have_their_answers(child: AnsweringProcess) -> None:
    assert [child.ask(word, timeout_s=LONG_S).strip() for word in ("a", "b c", "日本")] == ["a", "b c", "日本"]
    assert len(child.ask("long", timeout_s=LONG_S)) == 1_000_001
    assert child.ask("pid", timeout_s=LONG_S) == child.ask("pid", timeout_s=LONG_S)


def test_one_that_dies_says_its_last_words_and_has_a_successor(child: AnsweringProcess) -> None:
    first = child.ask("pid", timeout_s=LONG_S)
    with pytest.raises(TransientError, match=r"ended without an answer.*words of the dead"):
        child.ask("die", timeout_s=LONG_S)
    assert child.ask("pid", timeout_s=LONG_S) != first


def test_one_that_died_between_two_questions_is_not_noticed(child: AnsweringProcess) -> None:
    process = psutil.Process(int(child.ask("pid", timeout_s=LONG_S)))
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert child.ask("still there", timeout_s=LONG_S).strip() == "still there"


def test_one_that_hangs_is_ended_when_the_time_is_up(child: AnsweringProcess) -> None:
    pid = int(child.ask("pid", timeout_s=LONG_S))
    began = time.monotonic()
    with pytest.raises(TransientError, match=r"no answer within 0\.2 s"):
        child.ask("hang", timeout_s=0.2)
    assert time.monotonic() - began < 10
    assert not psutil.pid_exists(pid)
    assert child.ask("again", timeout_s=LONG_S).strip() == "again"


def test_threads_take_turns(child: AnsweringProcess) -> None:
    answers: dict[str, str] = {}

    def ask(word: str) -> None:
        answers[word] = child.ask(word, timeout_s=LONG_S).strip()

    threads = [threading.Thread(target=ask, args=(f"w{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {word: word for word in answers}
    assert len(answers) == 20


def test_it_ends_with_whoever_holds_it() -> None:
    child = AnsweringProcess([sys.executable, "-c", CHILD], os.environ)
    pid = int(child.ask("pid", timeout_s=LONG_S))
    del child
    assert not psutil.pid_exists(pid)


def test_it_ends_when_its_parent_is_killed() -> None:
    parent = (
        "import os, sys, time\n"
        "from infra.slurm.answering_process import AnsweringProcess\n"
        f"child = AnsweringProcess([sys.executable, '-c', {CHILD!r}], os.environ)\n"
        "print(child.ask('pid', timeout_s=30), flush=True)\n"
        "time.sleep(100)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.kill()
        assert not psutil.wait_procs([child], timeout=LONG_S)[1]


def test_what_is_no_program_is_said() -> None:
    with pytest.raises(TransientError, match="cannot be started"):
        AnsweringProcess(["/no/program"], {}).ask("a", timeout_s=LONG_S)
