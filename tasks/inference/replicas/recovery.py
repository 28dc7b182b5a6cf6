"""What to do when the worker of a replica ends before its work is done: as pure decisions.

Want of memory, which a death by SIGKILL is taken for, halves the batch, down to one sequence. A scheduler's end, a
death or a hang starts the same again, a bounded number of times without headway. An item that was alone in its engine
when two workers died, with no batch left to halve where memory may have been short, is set aside. Everything else, a
bug above all, is none of this module's business and ends the run.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from schemas.errors import EngineOutOfMemoryError, MilepostError, TransientError, WorkerError, WorkerLostError
from schemas.identity import SampleKey
from schemas.inference import SetAsideItem
from tasks.inference.planning.replica_spec import NextLaunch

_DEATHS: Final = 2
"""Workers that an item alone in its engine must have killed: one death may be anybody's fault."""
_MAX_SET_ASIDE: Final = 8
"""A replica on which more items than this kill their workers has another fault than its items."""
_MAX_STARTS: Final = 100
"""Of one replica by one command, however much headway it makes: each is a folder, and an entry of run.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnd:
    """What is known of a worker that did not complete."""

    error: MilepostError
    """Why, as tasks.inference.replicas.supervision.run_replica raised it."""
    num_finished: int
    """Samples it had finished."""
    in_flight: Sequence[SampleKey]
    """Samples that its engine had and did not finish, in the order in which they were started."""


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Follows one replica from launch to launch."""

    batch_size: int
    """That of the launch in progress."""
    max_restarts: int
    """Starts in a row that may finish nothing."""
    shrinks: bool
    """Whether want of memory makes the batch smaller."""
    _num_starts: int = 1
    _num_in_vain: int = 0
    _asks_canaries: bool = True
    _last_in_flight: frozenset[SampleKey] = frozenset()
    _suspects: tuple[SampleKey, ...] = ()
    _deaths: Counter[str] = field(default_factory=Counter[str])
    _set_aside: list[SetAsideItem] = field(default_factory=list[SetAsideItem])

    def after(self, end: WorkerEnd) -> NextLaunch:
        """Return how to go on.

        Raises:
            MilepostError: not at all; the error of the worker, with what was tried.
        """
        error = end.error
        if isinstance(error, EngineOutOfMemoryError):
            if not self._can_shrink:
                raise error
            return self._shrink(error)
        if isinstance(error, WorkerLostError):
            return self._after_loss(end, error)
        if isinstance(error, TransientError):
            self._count(end)
            return self.again(_first_line(error))
        raise error

    def again(self, reason: str, *, shrank: bool = False) -> NextLaunch:
        """Return the launch that goes on as things stand.

        Raises:
            WorkerError: the replica was started often enough.
        """
        if self._num_starts == _MAX_STARTS:
            raise WorkerError(f"{reason}\n(it was start {_MAX_STARTS} of this replica; the same command goes on)")
        self._num_starts += 1
        return NextLaunch(
            batch_size=self.batch_size,
            reason=reason,
            alone=self._suspects,
            set_aside=tuple(self._set_aside),
            shrank=shrank,
            asks_canaries=self._asks_canaries,
        )

    @property
    def _can_shrink(self) -> bool:
        return self.shrinks and self.batch_size > 1

    def _after_loss(self, end: WorkerEnd, error: WorkerLostError) -> NextLaunch:
        """Want of memory it may be as long as there is a batch to halve: until then it is no item's fault."""
        if not end.in_flight and not end.num_finished:  # while the engine loaded, or over a canary
            self._asks_canaries = False
        was_asked_for = len(end.in_flight) == 1 and tuple(end.in_flight) == self._suspects[:1]
        self._suspect(end.in_flight)
        if error.may_be_memory and self._can_shrink:
            item_id = end.in_flight[0].item_id if was_asked_for else None
            if item_id is None or self._deaths[item_id] + 1 < _DEATHS:
                self._deaths.update(() if item_id is None else (item_id,))
                return self._shrink(error)
        if len(end.in_flight) == 1:
            return self._blame(end, error)
        self._count(end)
        return self.again(_first_line(error))

    def _suspect(self, in_flight: Sequence[SampleKey]) -> None:
        """Note the sample that was alone in its engine, else those that were in the engines of two that died."""
        if len(in_flight) == 1:
            self._suspects = (*in_flight, *(other for other in self._suspects if other not in in_flight))
        else:
            self._suspects = tuple(key for key in in_flight if key in self._last_in_flight) or self._suspects
        self._last_in_flight = frozenset(in_flight) or self._last_in_flight

    def _blame(self, end: WorkerEnd, error: WorkerLostError) -> NextLaunch:
        (key,) = end.in_flight
        self._deaths[key.item_id] += 1
        if self._deaths[key.item_id] < _DEATHS:
            self._count(end)
            return self.again(_first_line(error))
        self._num_in_vain = 0
        if len(self._set_aside) == _MAX_SET_ASIDE:
            raise WorkerError(
                f"{error} {_MAX_SET_ASIDE} items were set aside before, and the workers die on: see the engine's "
                "installation, its GPU and its logs"
            ) from error
        reason = f"set aside: it was alone in its engine when {_DEATHS} workers ended: {_first_line(error)}"
        self._set_aside.append(SetAsideItem(item_id=key.item_id, reason=reason))
        self._suspects = tuple(other for other in self._suspects if other.item_id != key.item_id)
        return self.again(f"item {key.item_id} is {reason}")

    def _count(self, end: WorkerEnd) -> None:
        self._num_in_vain = 0 if end.num_finished else self._num_in_vain + 1
        if self._num_in_vain > self.max_restarts:
            times = f"{self._num_in_vain} starts in a row finished no sample, the limit being rollout.max_restarts"
            raise WorkerError(f"{end.error}\n({times} = {self.max_restarts})") from end.error

    def _shrink(self, error: MilepostError) -> NextLaunch:
        # the KV cache grows linearly with the batch: one halving clears most of it
        self.batch_size //= 2
        return self.again(_first_line(error), shrank=True)


def _first_line(error: MilepostError) -> str:
    return str(error).partition("\n")[0]
