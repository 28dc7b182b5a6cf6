"""The stage check-consistency: compare the replicas of a run, keep what was found, and act on disagreement.

Reads journals, grades and what the workers said of themselves; so it comes before the samples are merged, and a replica
that is set aside leaves no trace in them.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.checkpoints.weight_sample import sample_weights
from infra.fileroot.run_directory import RunDirectory
from infra.files.atomic import write_table_atomically, write_text_atomically
from schemas.config import EvaluationConfig
from schemas.consistency import ConsistencyCheck, ConsistencyReport, ReplicaReport, WorkerName
from schemas.errors import ReplicasDisagreeError
from schemas.inference import CanaryRecord, EngineFacts
from schemas.run import RunIdentity
from schemas.states import WorkerOutcome
from schemas.tables import CONSISTENCY, SHARDS
from tasks.consistency.canaries import LOGPROB_TOLERANCES, compare_canaries
from tasks.consistency.checker import check_consistency
from tasks.consistency.facts import compare_facts
from tasks.inference.exchange.journal import read_tables
from tasks.inference.exchange.worker_files import read_canaries, read_facts, read_result
from tasks.inference.runs.session import RunSession

_KEYS: Final = ("item_id", "repeat", "replica", "attempt")
_GENERATED: Final = ("prompt_hash", "num_completion_tokens", "mean_logprob")
_GRADED: Final = ("verdict", "answer", "score")
_QUARANTINE: Final = "quarantine.json"

logger = logging.getLogger(__name__)


class _Worker(NamedTuple):
    """What one worker left in its folder, beside its samples."""

    facts: EngineFacts | None
    canaries: list[CanaryRecord]
    is_complete: bool


def check_run_consistency(config: EvaluationConfig, session: RunSession) -> ConsistencyReport:
    """Compare the replicas of a run whose samples are made and graded; write its tables `shards` and `consistency`.

    Raises:
        WorkerError, StoreError: what a worker left cannot be read, or the tables cannot be written.
    """
    record, settings = session.record, session.replicas.settings
    run, plan = record.run, record.plan
    samples = _read_samples(run)
    workers = {name: _read_worker(run, name) for name in _makers(samples)}
    facts = {name: worker.facts for name, worker in workers.items() if worker.facts is not None}
    pinned = sample_weights(settings.model_path, adapter=settings.adapter and settings.adapter.path)
    checks = compare_facts(facts, plan, weight_sample=pinned) if facts else []
    canaries = compare_canaries(
        {name: worker.canaries for name, worker in workers.items() if worker.canaries},
        tolerance=config.consistency.logprob_tolerance or _rounding(facts),
    )
    report = check_consistency(
        _only_finished(samples, [name for name, worker in workers.items() if worker.is_complete]),
        config=config.consistency,
        planned_prompts={item.item_id: item.prompt_hash for item in plan.items},
        earlier=checks if canaries is None else [*checks, canaries],
    )
    aside = _quarantined(run)
    rows = [*(each for each, _ in aside), *report.replicas]
    known = {**facts, **{each.name: own for each, own in aside}}
    write_table_atomically(run.shards_path, _shards_table(record.identity, rows, known))
    write_table_atomically(run.consistency_path, _checks_table(record.identity, report))
    return report


def settle_disagreement(config: EvaluationConfig, session: RunSession, report: ConsistencyReport) -> bool:
    """Do what consistency.on_violation says, and return whether a new attempt was begun that has to be generated.

    Raises:
        ReplicasDisagreeError: the replicas disagree and that fails the run, or nobody can say which to set aside.
    """
    if report.verdict != "disagree":
        if report.verdict == "cannot_tell" and len(report.replicas) > 1:
            logger.warning("consistency: %s", report.message)
        return False
    action = config.consistency.on_violation
    suspects = sorted({suspect for check in report.violations for suspect in check.suspects}, key=str)
    if action == "warn":
        logger.warning("the replicas disagree: %s", report.message)
        session.record.add_difference(f"the replicas disagree: {report.message}")
        return False
    if action == "quarantine" and 2 * len(suspects) < len(report.replicas):
        logger.warning("%s set aside, its samples are made again: %s", ", ".join(map(str, suspects)), report.message)
        avoided = _nodes_of_suspects_alone(session.record.run, report, suspects)
        for replica in report.replicas:
            if replica.name in suspects:
                _set_aside(session.record.run, replica)
        session.make_again(suspects, report.message, avoided_nodes=avoided)
        return True
    why = "; nobody can say which of them is wrong, so none can be set aside" if action == "quarantine" else ""
    raise ReplicasDisagreeError(
        f"the replicas disagree{why}: {report.message}. No metric is published, the samples are kept in "
        f"{session.record.run.path}. See the logs of the replicas named and their machines; then the same command with "
        "consistency.on_violation=quarantine makes their samples again elsewhere, with =warn it publishes all"
    )


def _nodes_of_suspects_alone(
    run: RunDirectory, report: ConsistencyReport, suspects: Sequence[WorkerName]
) -> frozenset[str]:
    """Return the machines on which all workers are suspects; one that served others well has another fault."""
    by_suspicion: dict[bool, set[str]] = {True: set(), False: set()}
    for replica in report.replicas:
        facts = read_facts(run.replica_dir(replica.attempt or 0, replica.number))
        if facts is not None and facts.node:
            by_suspicion[replica.name in suspects].add(facts.node)
    return frozenset(by_suspicion[True] - by_suspicion[False])


def _read_samples(run: RunDirectory) -> pa.Table:
    """Return the graded samples of all workers, without texts."""
    journal = [table.select([*_KEYS, *_GENERATED]) for table in read_tables(run.replica_dirs())]
    grades = pq.read_table(run.grades_path, columns=[*_KEYS, *_GRADED])
    if not journal:
        return grades.slice(0, 0)
    return pa.concat_tables(journal).join(grades, keys=list(_KEYS), join_type="inner")


def _makers(samples: pa.Table) -> list[WorkerName]:
    makers = samples.group_by(["attempt", "replica"]).aggregate([]).to_pylist()
    return [WorkerName(attempt=each[0], replica=each[1]) for each in sorted(tuple(row.values()) for row in makers)]


def _read_worker(run: RunDirectory, name: WorkerName) -> _Worker:
    folder = run.replica_dir(name.attempt or 0, name.replica)
    result = read_result(folder)
    is_complete = result is not None and result.outcome is WorkerOutcome.COMPLETED
    return _Worker(read_facts(folder), read_canaries(folder), is_complete)


def _rounding(facts: Mapping[WorkerName, EngineFacts]) -> float:
    """Return the tolerance of the coarsest dtype in use; where dtypes are mixed, that is named by itself."""
    return max((LOGPROB_TOLERANCES.get(each.dtype, 0.0) for each in facts.values()), default=0.0) or max(
        LOGPROB_TOLERANCES.values()
    )


def _only_finished(samples: pa.Table, complete: Sequence[WorkerName]) -> pa.Table:
    """Return the samples, those of workers that did not finish without measures: the short ones come first."""
    done = {(name.attempt, name.replica) for name in complete}
    makers = zip(samples.column("attempt").to_pylist(), samples.column("replica").to_pylist(), strict=True)
    is_complete = pa.array([maker in done for maker in makers], pa.bool_())
    for name in ("num_completion_tokens", "mean_logprob", *_GRADED):
        index = samples.column_names.index(name)
        column = samples.column(index)
        samples = samples.set_column(index, name, pc.if_else(is_complete, column, pa.scalar(None, column.type)))
    return samples


def _set_aside(run: RunDirectory, replica: ReplicaReport) -> None:
    folder = run.set_aside(replica.attempt or 0, replica.number)
    report = replica.model_copy(update={"is_quarantined": True})
    write_text_atomically(folder / _QUARANTINE, report.model_dump_json(indent=2) + "\n")


def _quarantined(run: RunDirectory) -> list[tuple[ReplicaReport, EngineFacts | None]]:
    """Return the reports of the workers that were set aside before; of one whose report was cut off by a kill, none."""
    paths = [folder / _QUARANTINE for folder in run.quarantined_dirs()]
    return [
        (ReplicaReport.model_validate_json(path.read_bytes()), read_facts(path.parent))
        for path in paths
        if path.exists()
    ]


def _shards_table(
    identity: RunIdentity, replicas: Sequence[ReplicaReport], facts: Mapping[WorkerName, EngineFacts | None]
) -> pa.Table:
    rows = []
    for replica in replicas:
        own = facts.get(replica.name)
        rows.append(
            identity.model_dump()
            | replica.model_dump(exclude={"number", "residuals"})
            | {"replica": replica.number, "residuals": list(replica.residuals.items())}
            | {
                "engine": own and own.engine,
                "dtype": own and own.dtype,
                "device": own and own.device,
                "node": (own and own.node) or None,
                "weight_sample": own and own.weight_sample,
                "versions": list(own.versions.items()) if own else [],
            }
        )
    return pa.Table.from_pylist(rows, schema=SHARDS)


def _checks_table(identity: RunIdentity, report: ConsistencyReport) -> pa.Table:
    outcome = {"agree": "passed", "disagree": "violated", "cannot_tell": "cannot_tell"}[report.verdict]
    verdict = ConsistencyCheck.model_validate(
        {"check": "verdict", "outcome": outcome, "decides": True, "message": report.message}
    )
    rows = [
        identity.model_dump() | check.model_dump(exclude={"suspects"}) | {"suspects": list(map(str, check.suspects))}
        for check in (verdict, *report.checks)
    ]
    return pa.Table.from_pylist(rows, schema=CONSISTENCY)
