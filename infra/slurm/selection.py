"""Which way of talking with Slurm is taken, and why."""

from importlib.util import find_spec
from typing import NamedTuple

from infra.slurm.cli import CliClient
from infra.slurm.client import SlurmClient
from infra.slurm.pyslurm_client import PyslurmClient
from schemas.errors import SetupError, TransientError
from schemas.slurm import ClientChoice


class SelectedClient(NamedTuple):
    """A way of talking with Slurm."""

    client: SlurmClient
    """Client that was selected."""
    reason: str
    """For people: which it is, and why."""


def select_client(choice: ClientChoice) -> SelectedClient:
    """Return the client that `scheduler.slurm.client` asks for; `auto` is pyslurm where it can be used.

    Raises:
        SetupError: pyslurm is asked for and cannot be used; says why and what to do.
    """
    commands = CliClient()
    if choice == "cli":
        return SelectedClient(commands, "Slurm's commands, as scheduler.slurm.client says")
    if choice == "auto" and find_spec("pyslurm") is None:  # the usual case costs no process
        return SelectedClient(commands, "Slurm's commands, as pyslurm is not installed")
    client = PyslurmClient(commands)
    try:
        release = client.check()
    except (SetupError, TransientError) as exc:
        client.close()
        if choice == "pyslurm":
            raise SetupError(f"scheduler.slurm.client is pyslurm: {exc}; or set it to auto or cli") from exc
        return SelectedClient(commands, f"Slurm's commands, as {exc}")
    return SelectedClient(client, f"pyslurm {release}, which matches the cluster")
