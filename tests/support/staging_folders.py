"""What a publisher that is to be killed has staged."""

import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path


def wait_for_owner(staging: Path, publisher: BaseProcess) -> None:
    """Return once a staging folder names its process: what has no name yet is removed after a week, not at once."""
    deadline = time.monotonic() + 60
    while publisher.is_alive() and time.monotonic() < deadline:
        with suppress(FileNotFoundError):  # published meanwhile
            if any(path.stat().st_size for path in staging.glob("*/owner.json")):
                return
        time.sleep(0.005)
