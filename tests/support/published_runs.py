"""What a watcher's evaluations have published."""

from pathlib import Path
from typing import Any

from infra.store import open_store


def runs(folder: Path) -> list[dict[str, Any]]:
    columns = ["run_id", "checkpoint", "weight_digest", "global_step"]
    return open_store(folder / "out").table("runs").to_table(columns=columns).to_pylist()
