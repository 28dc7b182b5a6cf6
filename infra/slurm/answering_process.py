"""A child process that answers one line with one line: what it runs may hang or die without harm to this process."""

import os
import select
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from schemas.errors import TransientError

_CHUNK_BYTES: Final = 1 << 16
_WORDS_BYTES: Final = 500


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    words: IO[bytes]
    """What it wrote to stderr."""
    end: Callable[[], object]
    """Ends it and closes its files; happens by itself once nobody holds it any more."""


class AnsweringProcess:
    """The child is started when it is first asked, and again after it died or was too slow.

    It reads questions from its stdin and has to end where that ends: it does when this process ends, however it ends.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """`command` and `env` of the child."""
        self._command = command
        self._env = env
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def ask(self, question: str, *, timeout_s: float) -> str:
        """Return the answer to a question, both one line.

        Raises:
            TransientError: the child died or did not answer in time; it is ended, and the next question has another.
        """
        with self._lock:
            child = self._running_child()
            try:
                return _exchange(child.process, question, timeout_s)
            except (OSError, EOFError, TimeoutError) as exc:
                words = _last_words(child)
                self._end_child()
                raise TransientError(f"{Path(self._command[-1]).name}: {exc}{words}") from exc

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end_child()

    def _running_child(self) -> _Child:
        if self._child is not None and self._child.process.poll() is None:
            return self._child
        self._end_child()
        words = tempfile.TemporaryFile()  # noqa: SIM115 - it is read once the child has ended
        try:
            process = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, bufsize=0,
                start_new_session=True,  # Ctrl-C is for this process, which may have a question yet
            )  # fmt: skip
        except OSError as exc:
            words.close()
            raise TransientError(f"{self._command[0]} cannot be started: {exc}") from exc
        self._child = _Child(process, words, weakref.finalize(self, _end, process, words))
        return self._child

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


def _exchange(process: subprocess.Popen[bytes], question: str, timeout_s: float) -> str:
    if process.stdin is None or process.stdout is None:
        raise EOFError("it has no pipes")
    process.stdin.write(question.encode() + b"\n")
    deadline = time.monotonic() + timeout_s
    poller = select.poll()
    poller.register(process.stdout, select.POLLIN)
    answer = b""
    while not answer.endswith(b"\n"):
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
        if not chunk:
            raise EOFError("it ended without an answer")
        answer += chunk
    return answer.decode()


def _end(process: subprocess.Popen[bytes], words: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for file in (process.stdin, process.stdout, words):
        if file is not None:
            file.close()


def _last_words(child: _Child) -> str:
    with suppress(OSError):
        child.words.seek(max(0, child.words.seek(0, os.SEEK_END) - _WORDS_BYTES))
        if words := " ".join(child.words.read().decode("utf-8", "replace").split()):
            return f" ({words})"
    return ""
