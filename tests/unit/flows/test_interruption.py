"""A signal ends a command with 128 + its number, even while a thread of it never ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.interruption import Interrupted, interruptible
from tests.support.processes import is_alive

ROOT = Path(__file__).resolve().parents[3]
STUCK = """
import subprocess, sys, threading, time
from flows.interruption import end_within
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid)
threading.Thread(target=time.sleep, args=(600,)).start()
end_within(0.5, 143)
"""


def signal_oneself(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


@pytest.fixture
def heeded(number: signal.Signals) -> Iterator[signal.Signals]:
    """The signal as a command in the foreground has it: a shell starts what it puts aside with SIGINT ignored."""
    before = signal.signal(number, signal.default_int_handler)
    yield number
    signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_raises_and_its_handler_is_put_back(heeded: signal.Signals) -> None:
    before = signal.getsignal(heeded)
    with pytest.raises(Interrupted) as caught, interruptible():
        signal_oneself(heeded)
    assert caught.value.exit_code == 128 + heeded
    assert str(caught.value) == heeded.name
    assert signal.getsignal(heeded) == before


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nothing_takes_an_interruption_for_a_failure() -> None:
    assert not issubclass(Interrupted, Exception)


def test_a_process_that_cannot_end_is_ended_with_its_children() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", STUCK], cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert done.returncode == 143, done.stderr
    assert time.monotonic() - began < 30
    child = int(done.stdout)
    # the kernel takes a moment to end what it was told to kill
    deadline = time.monotonic() + 30
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)
