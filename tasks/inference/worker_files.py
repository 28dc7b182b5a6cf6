"""What worker and controller tell each other: the files in a worker's folder and its exit codes.

spec.json        written by the controller before the launch
facts.json       what the engine loaded, written once it has
canaries.jsonl   the canaries' answers, one line each (no samples: consistency of replicas reads them)
heartbeat.json   replaced by the worker once per interval
result.json      written by the worker as its last act; absent when it was killed
segments/        the journal (tasks/inference/journal.py)
"""

from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from infra.atomic import write_text_atomically
from schemas.errors import StoreError, WorkerError
from schemas.inference import CanaryRecord, EngineFacts, Heartbeat, WorkerResult, WorkerSpec
from schemas.states import WorkerOutcome

EXIT_CODES: Final = {
    WorkerOutcome.COMPLETED: 0,
    WorkerOutcome.OUT_OF_MEMORY: 64,
    WorkerOutcome.FAILED: 65,
    WorkerOutcome.CANCELLED: 66,
}
"""Clear of 1 and 2 (Python's own), of 126-127 (shells) and of 128 + signal: an exit code alone tells the outcome where
the disk had no room for a result."""


_CANARIES: Final = "canaries.jsonl"
Written = TypeVar("Written", EngineFacts, Heartbeat, WorkerResult)


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


def write_facts(folder: Path, facts: EngineFacts) -> None:
    """Write facts.json.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text_atomically(folder / "facts.json", facts.model_dump_json(indent=2) + "\n")


def read_facts(folder: Path) -> EngineFacts | None:
    """Return what the worker's engine loaded, None when it never did.

    Raises:
        WorkerError: the file is none.
    """
    return _read(folder / "facts.json", EngineFacts)


def append_canary(folder: Path, record: CanaryRecord) -> None:
    """Hand one canary's answer to the kernel: it survives this process.

    Raises:
        StoreError: the disk refused.
    """
    path = folder / _CANARIES
    try:
        with path.open("ab") as file:
            file.write(record.model_dump_json().encode() + b"\n")
    except OSError as exc:
        raise StoreError(f"cannot write {path} ({exc.strerror}): free space there and run the command again") from exc


def read_canaries(folder: Path) -> list[CanaryRecord]:
    """Return the canaries' answers; a line that the worker's death cut is left out.

    Raises:
        WorkerError: a whole line is none.
    """
    path = folder / _CANARIES
    try:
        data = path.read_bytes()
        return [CanaryRecord.model_validate_json(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as exc:
        raise WorkerError(f"{path} holds no canaries: {exc}") from exc


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
