"""Names of processes that stay true: a number alone may belong to another process by now.

Reads /proc, so Linux only.
"""

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from schemas.processes import ProcessIdentity

_START_FIELD: Final = 19
"""Index of `starttime` among the fields after the command's name in /proc/PID/stat (proc(5), field 22)."""
_STATE_FIELD: Final = 0
_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that this process gets when the thread that started it ends."""
_GONE: Final = frozenset("ZX")


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


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # the command's name stands in parentheses and may hold spaces and parentheses itself
    return text.rpartition(")")[2].split()
