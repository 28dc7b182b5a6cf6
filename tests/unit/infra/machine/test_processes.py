"""Processes are ended, politely or not; another user's are named."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from infra.machine.processes import end_processes
from schemas.errors import SetupError

_NOBODY = 65534


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("grace_s", [0.0, 0.2])
def test_what_obeys_and_what_is_deaf_ends(sleeper: subprocess.Popen[bytes], grace_s: float) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    deaf = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    deaf.stdout.close()
    began = time.monotonic()
    end_processes([psutil.Process(sleeper.pid), psutil.Process(deaf.pid)], grace_s=grace_s)
    assert time.monotonic() - began < 10
    assert deaf.poll() is not None
    assert sleeper.poll() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_a_setup_error(sleeper: subprocess.Popen[bytes]) -> None:
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        try:
            end_processes([psutil.Process(sleeper.pid)], grace_s=0.0)
        except SetupError as exc:
            os.write(sender, str(exc).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(sender)
    with os.fdopen(receiver) as answer:
        assert f"process {sleeper.pid} is another user's" in answer.read()
    assert sleeper.poll() is None
