"""What `milepost status` says of a folder of checkpoints, asked in this process: a command of its own takes seconds."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from flows.cli import app


def watch_status(config: Path, root: Path, *overrides: str) -> dict[str, Any]:
    """The JSON object of `milepost status CONFIG ROOT OVERRIDES`."""
    done = CliRunner().invoke(app, ["status", str(config), str(root), *overrides, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found
