"""What worker and controller tell each other: the files in a worker's folder and its exit codes.

spec.json        written by the controller before the launch
facts.json       what the engine loaded, written once it has
canaries.jsonl   the canaries' answers, one line each (no samples: consistency of replicas reads them)
claim            made by the worker that works here: a scheduler may have started the same one twice
started.jsonl    the samples handed to the engine, one line each: with the journal it tells which ones a death cut off
cut.json         written by the controller: the end of the work is given to another replica
more-0001.parquet   written by the controller: work of another replica, WORK_SCHEMA
no-more          written by the controller: nothing will be added
heartbeat.json   replaced by the worker once per interval
result.json      written by the worker as its last act; absent when it was killed
segments/        the journal (tasks/inference/exchange/journal.py)
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from infra.files.atomic import is_gone, write_table_atomically, write_text_atomically
from schemas.errors import StoreError, WorkerError
from schemas.identity import SampleKey
from schemas.inference import CanaryRecord, EngineFacts, Heartbeat, WorkCut, WorkerResult, WorkerSpec
from schemas.states import WorkerOutcome
from schemas.tables import WORK_SCHEMA, conform

EXIT_CODES: Final = {
    WorkerOutcome.COMPLETED: 0,
    WorkerOutcome.OUT_OF_MEMORY: 64,
    WorkerOutcome.FAILED: 65,
    WorkerOutcome.CANCELLED: 66,
}
"""Clear of 1 and 2 (Python's own), of 126-127 (shells) and of 128 + signal: an exit code alone tells the outcome where
the disk had no room for a result."""
WAIT: Final = "--wait"
"""Option of the worker: import an engine first, and take the other arguments from stdin."""
_FACTS: Final = "facts.json"
_CANARIES: Final = "canaries.jsonl"
_STARTED: Final = "started.jsonl"
_NO_MORE: Final = "no-more"
_KEY: Final = TypeAdapter(SampleKey)
Written = TypeVar("Written", EngineFacts, Heartbeat, WorkCut, WorkerResult)


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


def claim_folder(folder: Path) -> bool:
    """Make this process the one that works in a worker's folder; False when another one has.

    Raises:
        StoreError: the folder cannot be written.
    """
    path = folder / "claim"
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError as exc:
        raise _disk_refused(path, exc) from exc
    return True


def write_facts(folder: Path, facts: EngineFacts) -> None:
    """Write facts.json.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text_atomically(folder / _FACTS, facts.model_dump_json(indent=2) + "\n")


def has_loaded(folder: Path) -> bool:
    """Whether the engine is loaded, whatever the last heartbeat said."""
    return (folder / _FACTS).exists()


def read_facts(folder: Path) -> EngineFacts | None:
    """Return what the worker's engine loaded, None when it never did.

    Raises:
        WorkerError: the file is none.
    """
    return _read(folder / _FACTS, EngineFacts)


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
        raise _disk_refused(path, exc) from exc


def read_canaries(folder: Path) -> list[CanaryRecord]:
    """Return the canaries' answers; a line that the death of the worker or its machine cut is left out.

    Raises:
        WorkerError: a whole line is none.
    """
    path = folder / _CANARIES
    try:
        return [CanaryRecord.model_validate_json(line) for line in whole_lines(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as exc:
        raise WorkerError(f"{path} holds no canaries: {exc}") from exc


class StartedLog:
    """The worker's list of the samples that it has handed to its engine."""

    def __init__(self, folder: Path) -> None:
        """Open started.jsonl.

        Raises:
            StoreError: the folder cannot be written.
        """
        self._path = folder / _STARTED
        try:
            self._file = self._path.open("ab", buffering=0)
        except OSError as exc:
            raise _disk_refused(self._path, exc) from exc

    def append(self, key: SampleKey) -> None:
        """Hand one name to the kernel: it survives this process.

        Raises:
            StoreError: the disk refused.
        """
        try:
            self._file.write(json.dumps(key).encode() + b"\n")
        except OSError as exc:
            raise _disk_refused(self._path, exc) from exc

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()


def read_started(folder: Path) -> list[SampleKey]:
    """Return the samples that a worker handed to its engine, in order; a line that was cut is left out.

    Raises:
        WorkerError: a whole line names no sample.
    """
    path = folder / _STARTED
    try:
        return [_KEY.validate_json(line) for line in whole_lines(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as exc:
        raise WorkerError(f"{path} holds no samples: {exc}") from exc


def whole_lines(data: bytes) -> list[bytes]:
    """Return the lines of JSON, without their ends, that were written whole.

    What is not yet on the disk when a machine loses its power reads as zeros, and so may what another machine is
    writing. No line of JSON holds one: from the first on, nothing is there.
    """
    return data.partition(b"\0")[0].split(b"\n")[:-1]


def write_cut(folder: Path, cut: WorkCut) -> None:
    """Write cut.json.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text_atomically(folder / "cut.json", cut.model_dump_json() + "\n")


def read_cut(folder: Path) -> WorkCut | None:
    """Return the latest cut, None before the first.

    Raises:
        WorkerError: the file is none.
    """
    return _read(folder / "cut.json", WorkCut)


def give_more(folder: Path, number: int, rows: pa.Table) -> None:
    """Give a worker WORK_SCHEMA rows; `number` counts from 1.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_table_atomically(_more_path(folder, number), rows)


def read_more(folder: Path, number: int) -> pa.Table | None:
    """Return the rows that were given under that number, None while there are none.

    Raises:
        WorkerError: the file holds none.
    """
    path = _more_path(folder, number)
    if not path.exists():
        return None
    try:
        return conform(pq.read_table(path), WORK_SCHEMA)
    except (OSError, ValueError) as exc:
        raise WorkerError(f"{path} holds no work: {exc}") from exc


def end_work(folder: Path) -> None:
    """Tell a worker that nothing will be added.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_text_atomically(folder / _NO_MORE, "")


def work_has_ended(folder: Path) -> bool:
    """Whether the worker was told that nothing will be added."""
    return (folder / _NO_MORE).exists()


def write_heartbeat(folder: Path, heartbeat: Heartbeat) -> None:
    """Replace heartbeat.json. Not synced: it is worthless after a power cut.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary = folder / ".heartbeat.tmp"
    temporary.write_text(heartbeat.model_dump_json() + "\n", encoding="utf-8")
    temporary.replace(folder / "heartbeat.json")


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """Return the latest heartbeat, None before the first and where none can be read: a node that crashes leaves an
    empty file. Such a worker is not heard; how long that may be is for others to say."""
    try:
        return _read(folder / "heartbeat.json", Heartbeat)
    except WorkerError:
        return None


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


def _more_path(folder: Path, number: int) -> Path:
    return folder / f"more-{number:04d}.parquet"


def _disk_refused(path: Path, exc: OSError) -> StoreError:
    return StoreError(f"cannot write {path} ({exc.strerror}): free space there and run the command again")


def _read(path: Path, model: type[Written]) -> Written | None:
    """Return what was written to `path`, which is named for what it holds; None before it was, and now and then after:
    when it was replaced while it was read, the next look sees the new."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        if isinstance(exc, OSError) and is_gone(exc):
            return None
        raise WorkerError(f"{path} is no {path.stem}: {exc}") from exc
