"""One checkpoint, one evaluation: from landed to published, failed or vanished, whoever dies in between.

Each step is on disk before the next one begins, and each may be the last of this process:

    identify   landed.json gets the digests of the model
    claim      owners/: nobody else is at an evaluation of these weights
    look       published already? being made by somebody? then there is nothing to do
    run        record.json says `running`, then the attempt is launched
    settle     record.json says how it ended; what was published is done, whatever else was said
    release    the weights are let go

A process that dies leaves `running` with a dead owner: the next one claims, looks, and resumes the run that was left.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Literal

from infra.checkpoints import inspect_checkpoint
from infra.fileroot.watch_folder import WatchFolder
from infra.ownership.run_ownership import RunOwnership
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError, MilepostError, TransientError
from schemas.watch import EvaluationRecord, LandedCheckpoint
from tasks.checkpoint.resolution import find_base, find_tokenizer, identify_checkpoint
from tasks.watching.evaluation_key import evaluation_key
from tasks.watching.launching import EvaluationEnd, EvaluationLauncher, EvaluationOrder, RunningEvaluation, cause_of
from tasks.watching.published import EvaluatedModel, find_published, is_being_made, num_finished

_POLL_S: Final = 0.2
_STOP_S: Final = 30.0
"""Seconds that a stopped attempt has to end: it cancels jobs and closes its journals."""
_LONGEST_WAIT_S: Final = 3600.0
_MAX_DOUBLINGS: Final = 32

Settlement = Literal["done", "failed", "away", "impossible", "settled", "elsewhere", "later", "vanished", "stopped"]
"""failed: this attempt. away: this attempt too, as what it needs is not there. settled: before, by somebody. elsewhere:
another process is at it. later: its next attempt is not due yet."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation that each checkpoint is to get."""

    config: EvaluationConfig
    """Its configuration; the checkpoint in it stands for all."""
    folder: WatchFolder
    """What is known of it."""

    @property
    def fileroot(self) -> Path:
        """Where runs and store are."""
        return self.config.cluster.folder


def make_evaluation(config: EvaluationConfig) -> Evaluation:
    """Return the evaluation that a configuration stands for, whatever checkpoint it names."""
    if config.tokenizer_path == config.actor.path:  # `${actor.path}`: each checkpoint's own
        config = config.model_copy(update={"tokenizer_path": None})
    fileroot = Path(os.path.realpath(config.cluster.folder))
    cluster = config.cluster.model_copy(update={"fileroot": str(fileroot)})
    folder = WatchFolder(path=fileroot / "watch" / evaluation_key(config))
    return Evaluation(config=config.model_copy(update={"cluster": cluster}), folder=folder)


def identify(evaluation: Evaluation, landed: LandedCheckpoint) -> LandedCheckpoint:
    """Return the checkpoint with the digests of its model, or as vanished; either is on disk.

    Raises:
        CheckpointError: the weights cannot be read now.
        StoreError: the folder cannot be read or written.
    """
    model = _hold(evaluation, landed)
    if model is not None:
        tokenizer_path = evaluation.config.tokenizer_path
        report = inspect_checkpoint(
            model,
            tokenizer_folder=find_tokenizer(tokenizer_path) if tokenizer_path else None,
            allow_pickle_weights=True,
        )
        try:
            identity = identify_checkpoint(report, cache_file=evaluation.fileroot / "cache" / "weight_digests.json")
        except CheckpointError as exc:
            if evaluation.folder.is_untouched(landed):
                raise  # what is held is what was linked: it can be read another time
            logger.warning("%s", exc)
        else:
            digests = {"weight_digest": identity.weight_digest, "identity_digest": identity.digest}
            found = landed.model_copy(update=digests)
            evaluation.folder.update_landed(found)
            return found
    return _vanish(evaluation, landed)


def settle(
    evaluation: Evaluation,
    landed: LandedCheckpoint,
    launcher: EvaluationLauncher,
    *,
    clock: Callable[[], datetime],
    stopping: threading.Event,
) -> Settlement:
    """Bring an identified checkpoint's evaluation as far as it goes now.

    Raises:
        TransientError: nothing can be launched now; it is as if this had not been called.
        StoreError: the folder, the store or a run cannot be read or written.
    """
    key = landed.model_key or ""
    before = evaluation.folder.read_record(key)
    if before is not None and (hindrance := _hindrance(before, clock())) is not None:
        return hindrance
    being_made = partial(
        is_being_made, evaluation.fileroot, _model_of(landed), key=evaluation.folder.key, stopping=stopping
    )
    # each claim leaves files behind: none is made while what an ended watcher has launched goes on
    if before is not None and before.state == "running" and evaluation.folder.is_interrupted(key) and being_made():
        return "elsewhere"
    ownership = evaluation.folder.claim(key, stopping=stopping)
    if ownership is None:
        return "elsewhere"
    try:
        record = evaluation.folder.read_record(key) or _new_record(landed, clock())
        if (hindrance := _hindrance(record, clock())) is not None:
            return hindrance
        if _publish_known(evaluation, record, clock):
            return "done"
        if being_made():
            return "elsewhere"
        return _attempt(evaluation, landed, record, launcher, _Watch(ownership, clock, stopping))
    finally:
        ownership.release()


def _new_record(landed: LandedCheckpoint, now: datetime) -> EvaluationRecord:
    return EvaluationRecord(
        weight_digest=landed.weight_digest or "",
        identity_digest=landed.identity_digest,
        path=landed.path,
        series=secrets.token_hex(4),
        began_at=now,
    )


def _model_of(one: LandedCheckpoint | EvaluationRecord) -> EvaluatedModel:
    return EvaluatedModel(one.weight_digest or "", one.model_key or "")


def settled_record(evaluation: Evaluation, landed: LandedCheckpoint) -> EvaluationRecord | None:
    """Return how a checkpoint's evaluation ended, well or given up; None while it has not.

    Raises:
        StoreError: its record cannot be read.
    """
    record = None if landed.model_key is None else evaluation.folder.read_record(landed.model_key)
    return record if record is not None and record.is_settled else None


def is_being_evaluated(evaluation: Evaluation, landed: LandedCheckpoint) -> bool:
    """Whether another watcher's attempt may still read the weights that are held for it.

    Raises:
        StoreError: that cannot be told now.
    """
    if landed.model_key is None or evaluation.folder.held_model(landed) is None:
        return False
    record = evaluation.folder.read_record(landed.model_key)
    is_running = record is not None and record.state == "running"
    return is_running and not evaluation.folder.is_interrupted(landed.model_key)


def _hindrance(record: EvaluationRecord, now: datetime) -> Literal["settled", "later"] | None:
    if record.is_settled:
        return "settled"
    return "later" if record.not_before is not None and now < record.not_before else None


@dataclass(frozen=True, slots=True)
class _Watch:
    """What an attempt goes by."""

    ownership: RunOwnership
    clock: Callable[[], datetime]
    stopping: threading.Event


def _attempt(
    evaluation: Evaluation,
    landed: LandedCheckpoint,
    record: EvaluationRecord,
    launcher: EvaluationLauncher,
    watch: _Watch,
) -> Settlement:
    model = _hold(evaluation, landed)
    if model is None:
        _vanish(evaluation, landed)
        return "vanished"
    record = record.model_copy(update={"state": "running", "path": landed.path, "started_at": watch.clock()})
    evaluation.folder.write_record(record)
    actor = evaluation.config.actor.model_copy(update={"path": str(landed.path), "pinned_path": str(model)})
    order = EvaluationOrder(
        name=f"{evaluation.folder.key}-{record.model_key}-{record.series}{record.num_attempts + 1}",
        config=evaluation.config.model_copy(update={"actor": actor}),
        folder=evaluation.folder.result_folder(record.model_key),
    )
    logger.info("evaluating %s (step %s)", landed.path, landed.position.global_step)
    try:
        running = launcher.launch(order)
    except TransientError as exc:
        evaluation.folder.write_record(record.model_copy(update={"state": "waiting", "error": str(exc)}))
        raise
    except MilepostError as exc:
        end = EvaluationEnd(error=str(exc), cause=cause_of(type(exc).__name__))
        return _note_end(evaluation, record, end, watch.clock())

    def stop() -> None:
        running.stop()

    watch.ownership.call_on_loss(stop)
    end = _wait(running, watch.stopping)
    if end is None or watch.ownership.is_lost:
        return "stopped"
    if _publish_known(evaluation, record, watch.clock):
        return "done"
    if watch.stopping.is_set():
        return "stopped"
    if not evaluation.folder.is_untouched(landed):
        _vanish(evaluation, landed)
        changes = {"state": "waiting", "error": end.error, "num_outages": record.num_outages + 1}
        evaluation.folder.write_record(record.model_copy(update=changes))
        return "vanished"
    return _note_end(evaluation, record, end, watch.clock())


def _wait(running: RunningEvaluation, stopping: threading.Event) -> EvaluationEnd | None:
    """Return how an attempt ended; None where it goes on although this watcher stops."""
    while (end := running.poll()) is None:
        if stopping.wait(_POLL_S):
            break
    if end is None and running.stop():
        deadline = time.monotonic() + _STOP_S
        while (end := running.poll()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    return end


def _publish_known(evaluation: Evaluation, record: EvaluationRecord, clock: Callable[[], datetime]) -> bool:
    """Note a published run of these weights, if there is one."""
    run_id = find_published(evaluation.fileroot, _model_of(record), key=evaluation.folder.key)
    if run_id is None:
        return False
    changes = {"state": "done", "run_id": run_id, "finished_at": clock(), "error": None, "not_before": None}
    evaluation.folder.write_record(record.model_copy(update=changes))
    logger.info("%s is evaluated: run %s", record.path, run_id)
    return True


def _note_end(
    evaluation: Evaluation, record: EvaluationRecord, end: EvaluationEnd, now: datetime
) -> Literal["failed", "away", "impossible"]:
    """Note an attempt that published nothing: as a failure, unless an outage ended it.

    Of an attempt whose machine or process is gone nobody knows the reason, which may be the evaluation itself: only one
    that had finished samples, which are never made again, does not count.
    """
    num_samples = record.num_samples
    if end.cause == "lost":
        found = num_finished(evaluation.fileroot, _model_of(record), key=evaluation.folder.key)
        num_samples = max(num_samples, found)
    is_ahead = num_samples > record.num_samples
    is_outage = end.cause in ("away", "impossible") or is_ahead
    changed = record.model_copy(
        update={
            "num_failures": record.num_failures + (not is_outage),
            "num_outages": record.num_outages + is_outage,
            "num_idle": 0 if is_ahead else record.num_idle + 1,
            "num_samples": num_samples,
            "error": end.error or "it ended well, but published nothing",
        }
    )
    if end.cause == "unwanted":
        evaluation.folder.note_told(record)  # who put an end to it knows
    evaluation.folder.write_record(_decide(evaluation, changed, now, is_unwanted=end.cause == "unwanted"))
    return end.cause if end.cause in ("away", "impossible") else "failed"


def _decide(evaluation: Evaluation, record: EvaluationRecord, now: datetime, *, is_unwanted: bool) -> EvaluationRecord:
    """Return a record with what follows from its failures and outages: another attempt, or none."""
    watch = evaluation.config.watch
    if is_unwanted or record.num_failures >= watch.max_attempts:
        logger.error("%s: given up after %d attempts: %s", record.path, record.num_failures, record.error)
        return record.model_copy(update={"state": "failed", "finished_at": now, "not_before": None})
    num_doublings = min(max(record.num_idle - 1, 0), _MAX_DOUBLINGS)
    wait = timedelta(seconds=min(watch.retry_after_s * 2.0**num_doublings, _LONGEST_WAIT_S))
    logger.warning("%s: attempt %d failed, the next in %s: %s", record.path, record.num_attempts, wait, record.error)
    return record.model_copy(update={"state": "waiting", "not_before": now + wait})


def _hold(evaluation: Evaluation, landed: LandedCheckpoint) -> Path | None:
    """Return the folder that holds the weights, made again where they had been released; None when they are gone."""
    model = evaluation.folder.held_model(landed)
    if model is None:
        base_folder = find_base(evaluation.config.actor.base_path, allow_pickle_weights=True)
        report = inspect_checkpoint(landed.path, allow_pickle_weights=True, base_folder=base_folder)
        evaluation.folder.hold_again(landed, report)
        model = evaluation.folder.held_model(landed)
    return model if evaluation.folder.is_untouched(landed) else None


def _vanish(evaluation: Evaluation, landed: LandedCheckpoint) -> LandedCheckpoint:
    """Note that a checkpoint is gone, unless another watcher has evaluated it meanwhile and let its weights go."""
    known = evaluation.folder.read_landed(landed.mark)
    if settled_record(evaluation, known) is not None:
        return known
    logger.warning("%s was removed or rewritten before it could be evaluated", landed.path)
    vanished = landed.model_copy(update={"is_vanished": True})
    evaluation.folder.update_landed(vanished)
    evaluation.folder.release_model(landed)
    return vanished
