"""The reconciler: what is wanted (checkpoints x evaluations) minus what is settled is work, as much at once as allowed.

Keeps nothing that is not on disk or seen again at the next look, so that it may end at any moment, and several may run.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from infra.trainer.announcements import SPOOL
from schemas.config import config_to_yaml
from schemas.errors import CheckpointError, MilepostError, StoreError, TransientError
from schemas.watch import EvaluationRecord, LandedCheckpoint, WatchOutcome
from tasks.watching.launching import EvaluationLauncher
from tasks.watching.observation import Observation, Observer, WholeCheckpoint, describe_landed
from tasks.watching.root import describe_unreadable, make_observer
from tasks.watching.selection import newest_of_each_training, select_checkpoints
from tasks.watching.settling import Evaluation, Settlement, identify, is_being_evaluated, settle, settled_record
from tasks.watching.status import list_given_up
from tasks.watching.warnings import WatchWarnings

_TICK_S: Final = 0.25
"""Between two looks at whether a trainer has announced something, and at what is due."""
_END_S: Final = 35.0
"""Seconds that threads have to end: a stopped attempt takes up to 30; what else they wait for is resumable."""

logger = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Watched:
    """An evaluation with what is known of its checkpoints."""

    evaluation: Evaluation
    observer: Observer
    landed: dict[str, LandedCheckpoint] = field(default_factory=dict[str, LandedCheckpoint])
    settled: set[str] = field(default_factory=set[str])
    """Marks of which nothing more is to be done."""
    is_warned: bool = False
    """Whether it was said that weights cannot be held."""

    @property
    def selected(self) -> list[LandedCheckpoint]:
        """What is wanted, the first first."""
        return select_checkpoints(list(self.landed.values()), self.evaluation.config, now=_now())


@dataclass(frozen=True, slots=True)
class _Item:
    """One checkpoint of one evaluation."""

    watched: _Watched
    mark: str

    @property
    def landed(self) -> LandedCheckpoint:
        return self.watched.landed[self.mark]

    @property
    def key(self) -> tuple[str, str]:
        return (self.watched.evaluation.folder.key, self.mark)


class Reconciler:
    """Watches one root for some evaluations."""

    def __init__(
        self,
        root: Path,
        evaluations: Sequence[Evaluation],
        launcher: EvaluationLauncher,
        *,
        on_landed: Callable[[Evaluation, LandedCheckpoint], None] = lambda _evaluation, _landed: None,
        on_given_up: Callable[[Evaluation, LandedCheckpoint, EvaluationRecord], bool] = (
            lambda _evaluation, _landed, _record: True
        ),
    ) -> None:
        """Take what to watch.

        Args:
            root: folder of the checkpoints, as `find_root` returns it.
            evaluations: what each checkpoint gets; the first one's section `watch` says how many at once.
            launcher: runs them.
            on_landed: called in another thread when a checkpoint's weights have been read, and again whenever its
                evaluation is taken up.
            on_given_up: called in another thread when there is no other attempt at an evaluation, until it returns True
                to one watcher; and each time that one turns out to be impossible to launch.

        Raises:
            CheckpointError: tokenizer_path cannot be used.
        """
        self._root = root
        self._launcher = launcher
        self._on_landed = on_landed
        self._on_given_up = on_given_up
        self._watched = [_Watched(evaluation, make_observer(root, evaluation)) for evaluation in evaluations]
        self._settings = evaluations[0].config.watch
        self._rest_s = max(self._settings.poll_s, self._settings.retry_after_s)
        self._is_once = False
        self._seen_at = 0.0
        self._is_settling = False
        self._stopping = threading.Event()
        self._wake = SimpleQueue[None]()
        self._lock = threading.Lock()
        self._slots: dict[tuple[str, str], threading.Thread] = {}
        self._reader: threading.Thread | None = None
        self._aside: dict[tuple[str, str], float] = {}
        self._warnings = WatchWarnings(root)
        self._paused_until = 0.0
        self._hindrance = ""
        self._num_done = 0
        self._num_failed = 0

    def run(self, *, once: bool = False, is_patient: bool = True) -> WatchOutcome:
        """Watch until stopped; with `once`, until all that can be done now has been tried one time.

        What has to rest for `settle_s`, so that it is known to be finished or never to be, can be done now.

        Raises:
            CheckpointError: the root cannot be read, and the caller is not patient.
            StoreError: the fileroot cannot be written, or holds a file that cannot be read.
        """
        for watched in self._watched:
            watched.evaluation.folder.prepare(config_to_yaml(watched.evaluation.config))
        if once:
            self._is_once, self._rest_s = True, float("inf")
        for watched in self._watched:  # all of them live by now
            watched.evaluation.folder.release_silent()
        try:
            settled_at = time.monotonic() + max(one.evaluation.config.watch.settle_s for one in self._watched)
            announced = self._announced_ns()
            self._look(is_patient=is_patient)
            looked_at = time.monotonic()
            while not self._stopping.is_set():
                self._refill()
                is_idle = not self._slots and self._reader is None
                if self._is_once and is_idle and (not self._is_settling or self._seen_at >= settled_at):
                    break
                with suppress(Empty):  # no Event: one that waits in Python code loses its lock to a second signal
                    self._wake.get(timeout=_TICK_S)
                now = time.monotonic()
                is_due = now - looked_at >= self._settings.poll_s or self._seen_at < settled_at <= now
                if is_due or self._announced_ns() != announced:
                    announced = self._announced_ns()
                    self._look_again()
                    looked_at = time.monotonic()
        finally:
            self.stop()
        num_open = sum(not _is_over(item) for item in self._open_items())
        return WatchOutcome(
            root=self._root,
            num_done=self._num_done,
            num_failed=self._num_failed + self._warnings.num_broken,
            num_open=num_open,
            num_unusable=self._warnings.num_unusable,
            given_up=tuple(chain(*(list_given_up(one.evaluation, one.selected) for one in self._watched))),
        )

    def stop(self) -> None:
        """Stop the evaluations that do not outlive this process, and wait a while for their ends; all is resumable."""
        self._stopping.set()
        self._wake.put(None)
        deadline = time.monotonic() + _END_S
        for thread in self._slots.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _announced_ns(self) -> int:
        try:
            return (self._root / SPOOL).stat().st_mtime_ns
        except OSError:
            return 0

    def _look_again(self) -> None:
        """Look, and go on when a disk is full or a file is broken: what is not done now is done later."""
        try:
            self._look(is_patient=True)
        except (MilepostError, OSError) as exc:
            logger.warning("%s", exc)

    def _look(self, *, is_patient: bool) -> None:
        """See what is there now."""
        self._seen_at, self._is_settling = time.monotonic(), False
        looks: list[Observation] = []
        for watched in self._watched:
            watched.evaluation.folder.show_life()
            unreadable = self._read_landed(watched)
            try:
                # one that vanished may have been out of sight: it is looked at when it is back
                usable = {mark for mark, one in watched.landed.items() if one.is_usable}
                seen = watched.observer.look(usable | unreadable)
            except OSError as exc:
                problem = describe_unreadable(self._root, exc)
                if not is_patient:
                    raise CheckpointError(problem) from exc
                self._warnings.warn_of_unreadable(problem)
                return
            looks.append(seen)
            self._is_settling |= not all(one.has_rested for one in seen.pending)
            for whole in seen.whole:
                self._land(watched, whole)
            for gone in seen.gone:
                if gone.folder is not None and gone.folder.mark not in watched.landed:
                    self._note_vanished(watched, describe_landed(gone.found, gone.folder, number=0, now=_now()))
            self._let_go(watched)
        self._warnings.warn_of_unusable(looks)
        if not any(watched.landed for watched in self._watched):
            self._warnings.warn_of_empty(looks)

    def _read_landed(self, watched: _Watched) -> set[str]:
        """Learn what other watchers, or earlier ones, have found, and what somebody has had forgotten.

        Returns the marks of those that cannot be read.
        """
        folder = watched.evaluation.folder
        marks, model_keys = folder.marks(), folder.model_keys()
        for mark in watched.landed.keys() - marks:
            del watched.landed[mark]
            watched.settled.discard(mark)
        for mark in tuple(watched.settled):
            known = watched.landed.get(mark)
            if known is None or known.model_key not in model_keys:
                watched.settled.discard(mark)
        unreadable: set[str] = set()
        for mark in marks - watched.landed.keys():
            try:
                landed = folder.read_landed(mark)
            except StoreError as exc:
                unreadable.add(mark)
                self._warnings.warn_of_broken(exc)
                continue
            if landed.path.is_relative_to(self._root):
                watched.landed[mark] = landed
        return unreadable

    def _land(self, watched: _Watched, whole: WholeCheckpoint) -> None:
        folder = watched.evaluation.folder
        number = 1 + max((one.number for one in watched.landed.values()), default=0)
        landed = describe_landed(whole.found, whole.state, number=number, now=_now())
        try:
            reason = folder.land(landed, whole.report, signature=whole.state.signature)
        except FileNotFoundError:
            if not landed.path.exists():
                self._note_vanished(watched, landed)
            return  # else it is being saved again: the next look finds it as it is then
        except OSError as exc:
            logger.warning("%s cannot be linked (%s); the next look tries again", landed.path, exc)
            return
        if reason is not None and not watched.is_warned:
            watched.is_warned = True
            logger.warning("%s", reason)
        watched.landed[landed.mark] = folder.read_landed(landed.mark)
        logger.info("%s has landed (%s, step %s)", landed.path, landed.layout, landed.position.global_step)

    def _let_go(self, watched: _Watched) -> None:
        """Release the weights of what is settled, and of what is not wanted and will not be."""
        selected = watched.selected
        for landed in selected:
            if landed.mark not in watched.settled:
                with suppress(StoreError):  # what is open is settled next, where it is told
                    _note_settled(watched, landed)
        usable = [landed for landed in watched.landed.values() if not landed.is_vanished]
        # the newest may yet turn out to be the end of an epoch, or of training
        kept = {landed.mark for landed in selected} | newest_of_each_training(usable)
        for landed in usable:
            may_be_read = landed.weight_digest is None and self._reader is not None
            was_wanted = may_be_read or _Item(watched, landed.mark).key in self._slots  # a moment ago
            if landed.mark in kept or was_wanted:
                continue
            try:
                if not is_being_evaluated(watched.evaluation, landed):
                    watched.evaluation.folder.release_model(landed)
            except StoreError as exc:
                self._warnings.warn_of_broken(exc)

    def _note_vanished(self, watched: _Watched, landed: LandedCheckpoint) -> None:
        logger.warning("%s was removed before it was whole", landed.path)
        vanished = landed.model_copy(update={"is_vanished": True, "number": 0, "model_name": ""})
        watched.evaluation.folder.land(vanished, None)
        watched.landed[landed.mark] = watched.evaluation.folder.read_landed(landed.mark)

    def _open_items(self) -> list[_Item]:
        """Return what is wanted and not settled: the first of each evaluation, then the second of each, and so on."""
        queues = [
            [_Item(watched, one.mark) for one in watched.selected if one.mark not in watched.settled]
            for watched in self._watched
        ]
        return [item for item in chain.from_iterable(zip_longest(*queues)) if item is not None]

    def _refill(self) -> None:
        """Start what is due and there is room for. Weights are read for one evaluation more than run at once."""
        self._slots = {key: thread for key, thread in self._slots.items() if thread.is_alive()}
        if self._reader is not None and not self._reader.is_alive():
            self._reader = None
        now, num_ready = time.monotonic(), len(self._slots)
        for item in self._open_items():
            if num_ready > self._settings.max_concurrent:
                break
            if item.key in self._slots or now < self._aside.get(item.key, 0.0):
                continue
            num_ready += 1
            if item.landed.weight_digest is None:
                if self._reader is None:
                    self._reader = self._start(item, self._identify, daemon=True)
            elif len(self._slots) < self._settings.max_concurrent and now >= self._paused_until:
                self._aside[item.key] = float("inf") if self._is_once else now + self._settings.poll_s
                self._slots[item.key] = self._start(item, self._settle, daemon=False)

    def _start(self, item: _Item, work: Callable[[_Item], None], *, daemon: bool) -> threading.Thread:
        """Have work done on an item in another thread; if it fails, the item is left alone for a while."""

        def run() -> None:
            try:
                work(item)
            except Exception as exc:  # whatever it is: else `once` would end well with work undone
                with self._lock:
                    self._num_failed += 1
                self._aside[item.key] = time.monotonic() + self._rest_s
                logger.warning("%s", exc, exc_info=not isinstance(exc, MilepostError))
            finally:
                self._wake.put(None)

        # in the caller's context: a Prefect run takes the log lines of its own threads only
        thread = threading.Thread(target=copy_context().run, args=(run,), name="watch", daemon=daemon)
        thread.start()
        return thread

    def _identify(self, item: _Item) -> None:
        found = identify(item.watched.evaluation, item.landed)
        item.watched.landed[item.mark] = found
        if not found.is_vanished:
            self._on_landed(item.watched.evaluation, found)

    def _settle(self, item: _Item) -> None:
        evaluation = item.watched.evaluation
        self._on_landed(evaluation, item.landed)  # whoever read the weights may have died before, or met no server
        try:
            ending: Settlement = settle(evaluation, item.landed, self._launcher, clock=_now, stopping=self._stopping)
        except TransientError as exc:
            self._pause(str(exc))
            return
        with self._lock:
            self._num_done += ending == "done"
            self._num_failed += ending in ("failed", "away", "impossible")
            if ending in ("away", "impossible") and not self._is_once:  # the others need the same, as a rule
                self._paused_until = time.monotonic() + self._rest_s
            self._hindrance = ""
        landed = item.watched.landed[item.mark] = evaluation.folder.read_landed(item.mark)
        record = _note_settled(item.watched, landed)
        if ending == "impossible" and (waiting := evaluation.folder.read_record(landed.model_key or "")):
            self._on_given_up(evaluation, landed, waiting)
        if record is not None and item.mark not in item.watched.settled:
            if self._on_given_up(evaluation, landed, record):
                evaluation.folder.note_told(record)
                item.watched.settled.add(item.mark)
            else:
                self._aside[item.key] = time.monotonic() + self._rest_s

    def _pause(self, hindrance: str) -> None:
        """Launch nothing for a while, whatever the checkpoint: what launches is out of reach."""
        with self._lock:
            self._num_failed += 1
            self._paused_until = time.monotonic() + self._rest_s
            if hindrance != self._hindrance:
                logger.warning("%s; no evaluation is launched until that is over", hindrance)
            self._hindrance = hindrance


def _is_over(item: _Item) -> bool:
    """Whether there is no other attempt, although that is not told yet."""
    try:
        return settled_record(item.watched.evaluation, item.landed) is not None
    except StoreError:
        return False


def _note_settled(watched: _Watched, landed: LandedCheckpoint) -> EvaluationRecord | None:
    """Return how a checkpoint's evaluation has ended, if it has, and let its weights go.

    One that is done is remembered; one that was given up stays open until that is told.
    """
    record = settled_record(watched.evaluation, landed)
    if record is not None:
        watched.evaluation.folder.release_model(landed)
        if record.state == "done" or watched.evaluation.folder.is_told(record):
            watched.settled.add(landed.mark)
    return record
