"""The stages of inference: plan a run, run one replica, merge what the replicas made."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import pyarrow.parquet as pq

from infra.engines.class_process import EngineEnvironment
from infra.fileroot.batch_sizes import BatchSizeMemory, RunKind
from infra.machine.gpus import Device
from infra.machine.provenance import collect_provenance
from infra.store import open_store
from schemas.checkpoint import CheckpointIdentity
from schemas.config import EvaluationConfig
from schemas.errors import MilepostError, TransientError
from schemas.inference import Plan, WorkerResult, WorkerSpec
from schemas.progress import ReplicaProgress
from schemas.provenance import Provenance
from schemas.states import WorkerOutcome
from schemas.validation_set import ValidationSet
from tasks.checkpoint.class_check import check_class
from tasks.checkpoint.resolution import ResolvedCheckpoint
from tasks.inference.exchange.journal import finished_samples, read_tables
from tasks.inference.exchange.worker_files import read_started
from tasks.inference.planning.layout import check_adapter, lay_out_replicas
from tasks.inference.planning.plan import PlanSettings, default_batch_size, make_plan, planned_dtype
from tasks.inference.planning.replica_spec import ReplicaSettings
from tasks.inference.planning.response_lengths import earlier_lengths
from tasks.inference.replicas.recovery import Recovery, WorkerEnd
from tasks.inference.replicas.supervision import ReplicaLaunch, WorkYielded, launch_spec, run_replica
from tasks.inference.runs.merge import MergeCertificate, SampleMerger, merge_samples
from tasks.inference.runs.open_run import open_run
from tasks.inference.runs.record import RunRecord
from tasks.inference.runs.replica_set import ReplicaSet
from tasks.inference.runs.session import RunSession
from tasks.inference.worker.canaries import plan_canaries

_SUBMIT_AGAIN_S: Final = 5.0
"""A launcher has waited for minutes before it says that a scheduler does not answer."""

logger = logging.getLogger(__name__)


def make_run_plan(
    config: EvaluationConfig,
    identity: CheckpointIdentity,
    eos_token_ids: tuple[int, ...],
    validation_set: ValidationSet,
    *,
    device: Device,
) -> Plan:
    """Return the plan of a run: everything that decides an answer goes into its key (docs/resuming.md lists it)."""
    generation, strict = config.generation, config.consistency.strict
    return make_plan(
        identity=identity,
        dataset=validation_set.name,
        dataset_version=validation_set.version,
        items=validation_set.prompts.items,
        refused=validation_set.prompts.refused,
        settings=PlanSettings(
            seed=config.seed,
            n_samples=generation.n_samples,
            engine=config.engine_name,
            dtype=planned_dtype(config.actor.dtype, config.engine_name, strict=strict, on_gpu=device == "cuda"),
            strict=strict,
            max_model_len=validation_set.max_model_len,
            sampling=generation.to_spec(eos_token_ids),
            stand_in=config.engine.stand_in,
            num_skipped_rows=validation_set.num_skipped_rows,
        ),
    )


def plan_run(
    config: EvaluationConfig, checkpoint: ResolvedCheckpoint, validation_set: ValidationSet, *, now: datetime
) -> RunSession:
    """Plan the run, take up its unfinished predecessor if there is one, and divide the work among the replicas.

    Raises:
        CheckpointError: the engine cannot apply the adapter, or the weights are not those of the model's class.
        SetupError: the engine's environment is not there, or there are fewer devices than replicas.
        StoreError: the run folder cannot be made or read.
    """
    check_adapter(config, checkpoint.report)
    engine_python, device, placements, engine_packages = lay_out_replicas(config)
    check_class(config, checkpoint.report, EngineEnvironment(engine_python, engine_packages))
    provenance = collect_provenance().model_copy(update={"engine_packages": engine_packages})
    plan = make_run_plan(config, checkpoint.identity, checkpoint.report.eos_token_ids, validation_set, device=device)
    memory = _batch_size_memory(config, checkpoint, plan, device=device, provenance=provenance)
    settings = ReplicaSettings(
        model_path=checkpoint.folder,
        adapter=checkpoint.adapter,
        batch_size=_starting_size(memory) if config.oom.shrink else memory.configured,
        engine_python=engine_python,
        device=device,
        placements=placements,
        canaries=plan_canaries(plan, config.consistency, num_replicas=len(placements)),
        lengths=earlier_lengths(open_store(config.cluster.folder), plan.dataset) if len(placements) > 1 else {},
        memory=memory if config.oom.shrink else None,
    )
    record = open_run(
        config,
        plan,
        validation_set.prompts.table,
        global_step=checkpoint.report.global_step,
        base=checkpoint.base_name,
        now=now,
    )
    session = RunSession(record, config, settings, provenance)
    logger.info(
        "run %s: %d samples to make on %d x %s (%s)",
        record.run.run_id, plan.num_planned - record.num_resumed, len(placements), config.engine_name, device,
    )  # fmt: skip
    return session


def run_to_end(
    spec: WorkerSpec, replicas: ReplicaSet, *, on_progress: Callable[[ReplicaProgress], None]
) -> WorkerResult:
    """Run one of the replicas to its end, with as many workers as that takes; stop it when they stop.

    Raises:
        MilepostError: as run_replica of tasks.inference.replicas.supervision, once its recovery knows no way on.
    """
    try:
        # what goes wrong here is the same for all replicas, and ends the run with its own words
        job_id = replicas.job_of(spec.replica, lambda: _submit(replicas.specs, replicas))
        with _told_at_once(replicas):
            return _run_workers(spec, replicas, job_id, on_progress)
    finally:
        replicas.board.end(spec.replica)


@contextmanager
def _told_at_once(replicas: ReplicaSet) -> Generator[None]:
    """Say what ends one of several replicas: the others go on, as what they finish is kept for the resumed run."""
    try:
        yield
    except MilepostError as exc:
        if len(replicas.specs) > 1 and not replicas.stopping.is_set():
            logger.warning("%s", exc)
        raise


def _run_workers(
    spec: WorkerSpec, replicas: ReplicaSet, job_id: str, on_progress: Callable[[ReplicaProgress], None]
) -> WorkerResult:
    config, replica = replicas.config, spec.replica
    recovery = Recovery(
        batch_size=spec.engine.batch_size, max_restarts=config.rollout.max_restarts, shrinks=config.oom.shrink
    )
    while True:
        launch = _launch(spec, replicas)
        try:
            return run_replica(spec, replicas.launcher, launch, on_progress=on_progress, job_id=job_id)
        except WorkYielded:
            if replicas.hand_out(replica):
                return WorkerResult(outcome=WorkerOutcome.COMPLETED, message="others made its work while it waited")
            following = recovery.again("nobody was left to take its work")
        except MilepostError as exc:
            if replicas.stopping.is_set():
                raise
            following = recovery.after(_end_of(spec, exc))
            logger.warning("replica %d goes on at batch size %d: %s", replica, following.batch_size, following.reason)
        again = replicas.start_again(replica, following)
        if again is None:
            return WorkerResult(outcome=WorkerOutcome.COMPLETED, message="its last worker died with all work done")
        spec, submitted = again, _submit_again(again, replicas)
        if submitted is None:
            return WorkerResult(outcome=WorkerOutcome.COMPLETED, message="others made its work while it waited")
        job_id = submitted


def _submit_again(spec: WorkerSpec, replicas: ReplicaSet) -> str | None:
    """Return the job of a replica that goes on; None where others took its work while the scheduler was away.

    That is waited for until the run stops.
    """
    while True:
        try:
            (job_id,) = _submit((spec,), replicas)
        except TransientError as exc:
            logger.warning("replica %d waits to be started again: %s", spec.replica, exc)
            if replicas.board.note_queued(spec.replica) and replicas.hand_out(spec.replica):
                return None
            if replicas.stopping.wait(_SUBMIT_AGAIN_S):
                raise
        else:
            return job_id


def _submit(specs: Sequence[WorkerSpec], replicas: ReplicaSet) -> list[str]:
    launches = [launch_spec(spec, replicas.launcher, _launch(spec, replicas)) for spec in specs]
    return replicas.launcher.submit(launches)


def _end_of(spec: WorkerSpec, error: MilepostError) -> WorkerEnd:
    finished = finished_samples([spec.output_dir])
    in_flight = [key for key in read_started(spec.output_dir) if key not in finished]
    return WorkerEnd(error=error, num_finished=len(finished), in_flight=in_flight)


def _launch(spec: WorkerSpec, replicas: ReplicaSet) -> ReplicaLaunch:
    config = replicas.config
    return ReplicaLaunch(
        engine_python=replicas.settings.engine_python,
        placement=replicas.settings.placements[spec.replica],
        log_path=replicas.record.run.log_path(spec.attempt, spec.replica),
        start=replicas.num_starts(spec.replica),
        exclude_nodes=tuple(sorted(replicas.avoided_nodes)),
        setup_timeout_s=config.rollout.setup_timeout,
        hang_timeout_s=config.rollout.hang_timeout,
        max_queue_s=config.scheduler.slurm.max_queue_s,
        board=replicas.board if spec.awaits_more else None,
        # what a cluster's nodes write is seen through a network file system
        poll_interval_s=0.2 if replicas.launcher.ends_with_controller else 1.0,
        stopping=replicas.stopping,
    )


def _batch_size_memory(
    config: EvaluationConfig, checkpoint: ResolvedCheckpoint, plan: Plan, *, device: Device, provenance: Provenance
) -> BatchSizeMemory:
    """Return what is remembered of runs that need as much memory for a sequence, and have as much of it."""
    slurm = config.scheduler.slurm
    # the nodes of a partition are alike, or told apart by a constraint; what this machine has says nothing of them
    place = (slurm.partition, slurm.constraint) if config.scheduler.type == "slurm" else provenance.gpus[:1]
    kind = RunKind(
        architecture=checkpoint.report.architecture or "",
        num_parameters=checkpoint.report.num_parameters,
        engine=config.engine_name,
        device=" ".join([device, *(str(getattr(each, "name", each)) for each in place)]),
        gpus_per_replica=config.backend.gpus_per_replica,
        memory=slurm.memory if config.scheduler.type == "slurm" else None,
        memory_ratio=config.memory_ratio,
        dtype=plan.dtype,
        token_budget=1 << (plan.max_model_len - 1).bit_length(),
    )
    configured = config.rollout.max_concurrent_rollouts
    return BatchSizeMemory(
        config.cluster.folder,
        kind,
        configured=configured or default_batch_size(config.engine_name, on_gpu=device == "cuda"),
        grow_after=config.oom.grow_after,
    )


def _starting_size(memory: BatchSizeMemory) -> int:
    size = memory.starting_size()
    if size < memory.configured:
        logger.info("batch size %d at first: earlier runs like it ran out of memory above (oom.grow_after)", size)
    return size


def merge_run(record: RunRecord) -> MergeCertificate:
    """Write samples.parquet of the run, every planned sample exactly once.

    Raises:
        MergeError: the certificate cannot be given; nothing is written.
    """
    run = record.run
    merger = SampleMerger(record.plan, pq.read_table(run.prompts_path), pq.read_table(run.grades_path))
    journal = read_tables(run.replica_dirs())
    return merge_samples(merger, journal, plan=record.plan, identity=record.identity, path=run.samples_path)
