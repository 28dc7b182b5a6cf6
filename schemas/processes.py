"""The name of a process that stays true after its end: a number alone may belong to another one by then."""

from schemas.base import Model


class ProcessIdentity(Model):
    """One process, for good: no other ever has the same."""

    host: str
    """Name of its machine, for people."""
    boot_id: str
    """The machine's id of its current boot; containers of one machine share it."""
    pid_namespace: str
    """Namespace of its number: containers number their processes apart."""
    pid: int
    """Process id within the namespace."""
    start_ticks: int
    """Start of the process, clock ticks since the boot."""
