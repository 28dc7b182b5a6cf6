"""What tests ask about processes."""

import psutil


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended: one that nobody has waited for yet has."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
