"""Whether what an engine computes are numbers: NaN weights, an overflow or a broken device make text all the same.

The rule (docs/resuming.md): a sample is broken when most of its tokens have no finite log-probability; it is `failed`
and has no score. A worker ends when most of its samples are, once it has made a few, or most of its canaries; what it
made is then made again. One log-probability that is not finite costs nothing but itself: it is null.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.engines.base import Generation
from schemas.errors import EngineError
from schemas.states import WorkerOutcome
from tasks.inference.exchange.journal import read_tables
from tasks.inference.exchange.worker_files import read_result

if TYPE_CHECKING:
    from infra.fileroot.run_directory import RunDirectory

BROKEN: Final = "the engine's numbers are broken"
"""First words of what is said of a broken sample: its journal is told by them."""
_FEWEST: Final = 8
"""Samples after which a worker need not go on to its end: fewer may be broken for a reason of their own."""


def describe_broken(generation: Generation) -> str | None:
    """Return what is wrong with a completion's numbers; None while most of its tokens have a log-probability."""
    num_tokens = len(generation.token_ids)
    if generation.broken_at is None or 2 * generation.num_broken <= num_tokens:
        return None
    token = generation.token_ids[generation.broken_at]
    return (
        f"{BROKEN}: {generation.num_broken} of {num_tokens} tokens have no finite log-probability, first token "
        f"{generation.broken_at} (id {token})"
    )


class NumbersCheck:
    """Counts the broken ones among a worker's completions."""

    def __init__(self, what: str) -> None:
        """`what`: samples or canaries, for people."""
        self._what = what
        self._num_made = self._num_broken = self._num_broken_tokens = 0
        self._first = ""

    def note(self, item_id: str, generation: Generation) -> str | None:
        """Count one completion and return what is wrong with it, if anything."""
        self._num_made += bool(generation.token_ids)
        broken = describe_broken(generation)
        if broken is not None:
            self._num_broken += 1
            self._num_broken_tokens += generation.num_broken
            self._first = self._first or f"item {item_id!r}: {broken.removeprefix(f'{BROKEN}: ')}"
        return broken

    def check(self, *, is_last: bool = False) -> None:
        """Return while most are sound, or too few were made to tell; `is_last`: there will be no more.

        Raises:
            EngineError: most are broken.
        """
        is_known = self._num_made >= _FEWEST or (is_last and self._num_broken_tokens > 1)
        if is_known and 2 * self._num_broken > self._num_made:
            raise EngineError(
                f"{BROKEN}, in {self._num_broken} of {self._num_made} {self._what}; {self._first}. None of them gets a "
                "score, and the same command makes them again. Look for NaN or infinite weights in the checkpoint, for "
                "a dtype that overflows (actor.dtype=bfloat16 or float32), and at the device"
            )


def set_aside_broken(run: "RunDirectory") -> int:
    """Have what workers with broken numbers made be made again; call it while no worker lives. Returns their number.

    A worker that completed has been checked by itself; one that was killed has not.

    Raises:
        StoreError: a journal is damaged, or the file system refuses.
    """
    broken = [folder for folder in _incomplete(run.replica_dirs()) if _is_mostly_broken(folder)]
    for folder in broken:
        run.set_aside_folder(folder)
    return len(broken)


def _incomplete(folders: Iterable[Path]) -> Iterable[Path]:
    for folder in folders:
        result = read_result(folder)
        if result is None or result.outcome is not WorkerOutcome.COMPLETED:
            yield folder


def _is_mostly_broken(folder: Path) -> bool:
    num_made = num_broken = 0
    for table in read_tables([folder]):
        num_made += sum(bool(tokens) for tokens in table.column("num_completion_tokens").to_pylist())
        num_broken += sum(str(error).startswith(BROKEN) for error in table.column("error").to_pylist())
    return 2 * num_broken > num_made
