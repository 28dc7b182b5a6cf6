"""What is remembered of batch sizes that ran out of memory, so that the next run starts where the last one arrived.

One small file per kind of run in `{fileroot}/batch_sizes/`; removing one forgets it. Two runs that write at once leave
what either of them found: both are sizes that worked or are about to be tried. It is a hint: what cannot be read or
written, as it is another user's, say, is said and done without.
"""

import hashlib
import logging
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from infra.files.atomic import make_folder, write_text_atomically
from schemas.base import Model
from schemas.errors import StoreError

_FOLDER: Final = "batch_sizes"

logger = logging.getLogger(__name__)


class RunKind(Model):
    """What decides how much memory a sequence takes and how much there is."""

    architecture: str
    """Of the weights."""
    num_parameters: int | None
    """Of the weights; None where the checkpoint does not say."""
    engine: str
    """The adapter."""
    device: str
    """What it computes on, in words."""
    gpus_per_replica: int
    """GPUs that share the weights."""
    memory: str | None
    """What a scheduler is asked for; None for its default, and where there is none."""
    memory_ratio: float | None
    """Share of the device's memory; None for the engine's default."""
    dtype: str
    """Of the weights in memory."""
    token_budget: int
    """Context length in tokens, rounded up to a power of two."""


class WorkingSize(Model):
    """One file: the size to start at, which is below the configured one."""

    kind: RunKind
    """What it holds for, for people."""
    batch_size: int = Field(ge=1)
    """Most sequences at once."""
    num_clean_runs: int = Field(default=0, ge=0)
    """Runs in a row that completed at that size."""


class BatchSizeMemory:
    """The remembered size of one kind of run, below one fileroot."""

    def __init__(self, fileroot: Path, kind: RunKind, *, configured: int, grow_after: int) -> None:
        """`configured`: the largest size wanted; `grow_after`: clean runs after which twice the size is tried."""
        digest = hashlib.blake2b(kind.model_dump_json().encode(), digest_size=8).hexdigest()
        self._path = fileroot / _FOLDER / f"{digest}.json"
        self._kind = kind
        self.configured = configured
        self._grow_after = grow_after
        self._smallest = configured

    def starting_size(self) -> int:
        """Return the batch size to start at."""
        known = self._read()
        if known is None:
            return self.configured
        growth = 2 if known.num_clean_runs >= self._grow_after else 1
        return min(self.configured, growth * known.batch_size)

    def shrank(self, batch_size: int) -> None:
        """Note that a replica ran out of memory with more than `batch_size`; the smallest of them all is kept."""
        self._smallest = min(self._smallest, batch_size)
        self._write(WorkingSize(kind=self._kind, batch_size=self._smallest))

    def completed(self, batch_size: int) -> None:
        """Note that a run completed, all at `batch_size`."""
        known = self._read()
        if known is None or batch_size < known.batch_size:
            return
        if batch_size > known.batch_size and batch_size == self.configured:
            self._forget()
        elif batch_size == known.batch_size:
            self._write(known.model_copy(update={"num_clean_runs": known.num_clean_runs + 1}))
        else:
            self._write(WorkingSize(kind=self._kind, batch_size=batch_size, num_clean_runs=1))

    def _read(self) -> WorkingSize | None:
        try:
            return WorkingSize.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            why = exc.errors()[0]["msg"] if isinstance(exc, ValidationError) else exc.strerror
            logger.warning(
                "%s holds no batch size that can be read (%s): remove it, it is found again", self._path, why
            )
            return None

    def _forget(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as exc:
            logger.warning("%s cannot be removed (%s): make its folder writable", self._path, exc.strerror)

    def _write(self, size: WorkingSize) -> None:
        try:
            make_folder(self._path.parent)
            write_text_atomically(self._path, size.model_dump_json(indent=2) + "\n")
        except StoreError as exc:
            logger.warning("the batch size that works is not remembered: %s", exc)
