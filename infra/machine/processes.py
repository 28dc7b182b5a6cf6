"""Names of processes that stay true, as a number alone may belong to another process by now; and their end.

Reads /proc, so Linux only.
"""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.errors import SetupError
from schemas.processes import ProcessIdentity

if TYPE_CHECKING:
    import psutil

_START_FIELD: Final = 19
"""Index of `starttime` among the fields after the command's name in /proc/PID/stat (proc(5), field 22)."""
_STATE_FIELD: Final = 0
_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that this process gets when the thread that started it ends."""
_GONE: Final = frozenset("ZX")
_KILLED_END_S: Final = 15.0
"""Longest wait for a process that was killed; one that hangs in the kernel is left to it."""


def identify_process(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process that this one can see; None when it has ended."""
    fields = _stat_fields(pid)
    if fields is None or fields[_STATE_FIELD] in _GONE:
        return None
    return ProcessIdentity(
        host=socket.gethostname(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
        pid_namespace=str(Path("/proc/self/ns/pid").readlink()),
        pid=pid,
        start_ticks=int(fields[_START_FIELD]),
    )


def is_alive(process: ProcessIdentity) -> bool | None:
    """Whether the process runs; None when it is out of sight: on another machine or boot, or in another container."""
    own = identify_process(os.getpid())
    if own is None or (own.boot_id, own.pid_namespace) != (process.boot_id, process.pid_namespace):
        return None
    return identify_process(process.pid) == process


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent, whose number is given, ends; end it now if that has happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGKILL)


def end_processes(processes: "Sequence[psutil.Process]", *, grace_s: float) -> None:
    """Ask all of these to end, and kill those that have not after `grace_s` seconds; 0 kills at once.

    Raises:
        SetupError: one of them is another user's.
    """
    import psutil

    deaf = list(processes)
    if grace_s:
        for process in processes:
            _signal(process, signal.SIGTERM)
        _, deaf = psutil.wait_procs(processes, timeout=grace_s)
    for process in deaf:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(deaf, timeout=_KILLED_END_S)


def _signal(process: "psutil.Process", number: signal.Signals) -> None:
    import psutil

    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied as exc:
        raise SetupError(
            f"process {process.pid} is another user's and cannot be ended by this one: do the same as that user, or as "
            "root"
        ) from exc


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # the command's name stands in parentheses and may hold spaces and parentheses itself
    return text.rpartition(")")[2].split()
