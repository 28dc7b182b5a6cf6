"""The stages of inference: plan a run, run one replica, merge what the replicas made."""

import logging
from collections.abc import Callable
from datetime import datetime

import pyarrow.parquet as pq

from infra.provenance import collect_provenance
from schemas.config import EvaluationConfig
from schemas.errors import MilepostError, WorkerError
from schemas.inference import SamplingSpec, WorkerResult, WorkerSpec
from schemas.progress import ReplicaProgress
from schemas.validation_set import ValidationSet
from tasks.checkpoint.resolution import ResolvedCheckpoint
from tasks.inference.canaries import plan_canaries
from tasks.inference.journal import read_tables
from tasks.inference.layout import lay_out_replicas
from tasks.inference.merge import MergeCertificate, SampleMerger, merge_samples
from tasks.inference.planning import PlanSettings, default_batch_size, make_plan, planned_dtype
from tasks.inference.session import ReplicaSettings, RunSession, open_session
from tasks.inference.supervision import ReplicaLaunch, launch_spec, run_replica

logger = logging.getLogger(__name__)


def plan_run(
    config: EvaluationConfig, checkpoint: ResolvedCheckpoint, validation_set: ValidationSet, *, now: datetime
) -> RunSession:
    """Plan the run, take up its unfinished predecessor if there is one, and divide the work among the replicas.

    Raises:
        SetupError: the engine's environment is not there, or there are fewer devices than replicas.
        StoreError: the run folder cannot be made or read.
    """
    generation = config.generation
    engine_python, device, placements, engine_packages = lay_out_replicas(config)
    provenance = collect_provenance().model_copy(update={"engine_packages": engine_packages})
    plan = make_plan(
        identity=checkpoint.identity,
        dataset=validation_set.name,
        dataset_version=validation_set.version,
        items=validation_set.prompts.items,
        refused=validation_set.prompts.refused,
        settings=PlanSettings(
            seed=config.seed,
            n_samples=generation.n_samples,
            engine=config.engine_name,
            dtype=planned_dtype(
                config.actor.dtype, config.engine_name, strict=config.consistency.strict, on_gpu=device == "cuda"
            ),
            strict=config.consistency.strict,
            max_model_len=validation_set.max_model_len,
            sampling=SamplingSpec(
                temperature=generation.temperature,
                top_p=generation.top_p,
                top_k=generation.top_k,
                max_new_tokens=generation.max_new_tokens,
                min_new_tokens=generation.min_new_tokens,
                stop=generation.stop,
                eos_token_ids=checkpoint.report.eos_token_ids,
            ),
        ),
    )
    batch_size = config.rollout.max_concurrent_rollouts
    settings = ReplicaSettings(
        model_path=checkpoint.folder,
        batch_size=batch_size or default_batch_size(config.engine_name, on_gpu=device == "cuda"),
        engine_python=engine_python,
        device=device,
        placements=placements,
        canaries=plan_canaries(plan, config.consistency, num_replicas=len(placements)),
        max_queue_s=config.scheduler.slurm.max_queue_s,
    )
    session = open_session(
        config, plan, validation_set.prompts.table, global_step=checkpoint.report.global_step, now=now
    )
    with session.failure_recorded():
        session.start_attempt(config, settings, provenance)
    logger.info(
        "run %s: %d samples to make on %d x %s (%s)",
        session.run.run_id, plan.num_planned - session.num_resumed, len(placements), config.engine_name, device,
    )  # fmt: skip
    return session


def run_session_replica(
    spec: WorkerSpec,
    session: RunSession,
    *,
    setup_timeout_s: float,
    on_progress: Callable[[ReplicaProgress], None],
) -> WorkerResult:
    """Run one replica of a session to its end; stop it when the session is told to stop.

    Raises:
        MilepostError: as tasks.inference.supervision.run_replica.
    """

    def submit() -> list[str]:
        launches = [(each, _launch(each, session, setup_timeout_s)) for each in session.specs]
        return session.launcher.submit([launch_spec(each, session.launcher, launch) for each, launch in launches])

    try:
        job_id = session.job_of(spec.replica, submit)
        launch = _launch(spec, session, setup_timeout_s)
        return run_replica(spec, session.launcher, launch, on_progress=on_progress, job_id=job_id)
    except MilepostError as exc:
        if len(session.specs) > 1 and not session.stopping.is_set():
            # said at once: the other replicas go on, as what they finish is kept for the resumed run
            logger.warning("%s", exc)
        raise


def _launch(spec: WorkerSpec, session: RunSession, setup_timeout_s: float) -> ReplicaLaunch:
    if session.settings is None:
        raise WorkerError("the session has no attempt; start one before its replicas")
    return ReplicaLaunch(
        engine_python=session.settings.engine_python,
        placement=session.settings.placements[spec.replica],
        log_path=session.run.log_path(spec.attempt, spec.replica),
        setup_timeout_s=setup_timeout_s,
        max_queue_s=session.settings.max_queue_s,
        # what a cluster's nodes write is seen through a network file system
        poll_interval_s=0.2 if session.launcher.ends_with_controller else 1.0,
        stopping=session.stopping,
    )


def merge_run(session: RunSession) -> MergeCertificate:
    """Write samples.parquet of the run, every planned sample exactly once.

    Raises:
        MergeError: the certificate cannot be given; nothing is written.
    """
    run = session.run
    merger = SampleMerger(session.plan, pq.read_table(run.prompts_path), pq.read_table(run.grades_path))
    journal = read_tables(run.replica_dirs())
    return merge_samples(merger, journal, plan=session.plan, identity=session.identity, path=run.samples_path)
