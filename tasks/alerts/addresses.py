"""Where the address of a target is kept: in an environment variable, or in a Secret block of the Prefect server."""

import os
from typing import Final

DEPLOYED_PREFIX: Final = "milepost-alert-"
"""Begin of the names of the Secret blocks into which `milepost deploy` puts what environment variables hold."""


def name_block(secret: str) -> str:
    """Return the name of the Secret block that holds an address; `secret`: as in the configuration."""
    source, _, name = secret.partition(":")
    return name if source == "block" else DEPLOYED_PREFIX + name.lower().replace("_", "-")


def find_in_environment(secret: str) -> str:
    """Return the address that this process's environment holds; empty where it holds none."""
    source, _, name = secret.partition(":")
    return os.environ.get(name, "").strip() if source == "env" else ""
