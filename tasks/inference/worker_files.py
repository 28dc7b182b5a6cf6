"""What worker and controller tell each other: the files in a worker's folder and its exit codes.

spec.json        written by the controller before the launch
heartbeat.json   replaced by the worker once per interval
result.json      written by the worker as its last act; absent when it was killed
segments/        the journal (tasks/inference/journal.py)
"""

from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from infra.atomic import write_text_atomically
from schemas.errors import WorkerError
from schemas.inference import Heartbeat, WorkerResult, WorkerSpec
from schemas.states import WorkerOutcome

EXIT_CODES: Final = {
    WorkerOutcome.COMPLETED: 0,
    WorkerOutcome.OUT_OF_MEMORY: 64,
    WorkerOutcome.FAILED: 65,
    WorkerOutcome.CANCELLED: 66,
}
"""Clear of 1 and 2 (Python's own), of 126-127 (shells) and of 128 + signal: an exit code alone tells the outcome where
the disk had no room for a result."""


Written = TypeVar("Written", Heartbeat, WorkerResult)


def write_spec(spec: WorkerSpec) -> Path:
    """Write spec.json into the worker's folder and return its path.

    Raises:
        StoreError: the folder cannot be written.
    """
    path = spec.output_dir / "spec.json"
    write_text_atomically(path, spec.model_dump_json(indent=2) + "\n")
    return path


def read_spec(path: Path) -> WorkerSpec:
    """Return the spec at `path`.

    Raises:
        WorkerError: it is absent or of another version.
    """
    try:
        return WorkerSpec.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        raise WorkerError(f"{path} is no worker spec: {exc}") from exc


def write_heartbeat(folder: Path, heartbeat: Heartbeat) -> None:
    """Replace heartbeat.json. Not synced: it is worthless after a power cut.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary = folder / ".heartbeat.tmp"
    temporary.write_text(heartbeat.model_dump_json() + "\n", encoding="utf-8")
    temporary.replace(folder / "heartbeat.json")


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """Return the latest heartbeat, None before the first.

    Raises:
        WorkerError: the file is no heartbeat.
    """
    return _read(folder / "heartbeat.json", Heartbeat)


def write_result(folder: Path, result: WorkerResult) -> None:
    """Write result.json.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text_atomically(folder / "result.json", result.model_dump_json(indent=2) + "\n")


def read_result(folder: Path) -> WorkerResult | None:
    """Return how the worker ended, None when it has left no word.

    Raises:
        WorkerError: the file is no result.
    """
    return _read(folder / "result.json", WorkerResult)


def _read(path: Path, model: type[Written]) -> Written | None:
    """Return what the worker wrote to `path`, which is named for what it holds; None before it did."""
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as exc:
        raise WorkerError(f"{path} is no {path.stem}: {exc}") from exc
