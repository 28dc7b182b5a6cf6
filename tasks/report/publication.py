"""Publish a run: its row in `runs`, its tables in the store, and the summary for whoever started it."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.files.table_files import TableSource
from infra.store import Store, open_store
from infra.text.tables import UNDEFINED
from schemas.config import EvaluationConfig, config_digest, config_to_yaml
from schemas.summary import WHOLE_SET, MetricValue, RunSummary
from schemas.tables import RUNS
from tasks.alerts.ledger import alert_folder, read_ledger, to_alert_table
from tasks.drift.report import to_drift_table
from tasks.inference.runs.merge import MergeCertificate
from tasks.inference.runs.record import RunRecord
from tasks.report.page import Guards, write_page


def publish_run(
    config: EvaluationConfig, record: RunRecord, certificate: MergeCertificate, guards: Guards
) -> RunSummary:
    """Put the tables of a run into the store, its page into its folder, and return its summary.

    Raises:
        StoreError: the store refuses; the same command publishes it again.
        WorkerError: another controller has taken the run over.
    """
    store = open_store(config.cluster.folder)
    metrics = tuple(
        MetricValue.model_validate({name: row[name] for name in MetricValue.model_fields})
        for row in pq.read_table(record.run.metrics_path).to_pylist()
    )
    tables: dict[str, TableSource] = {
        "runs": _runs_table(config, record, certificate),
        "samples": record.run.samples_path,
        "metrics": record.run.metrics_path,
    }
    tables["alerts"] = to_alert_table(read_ledger(alert_folder(config.cluster.folder)), record.identity)
    # a run that grades another's samples again has no replicas to compare
    compared = {"shards": record.run.shards_path, "consistency": record.run.consistency_path}
    tables |= {name: path for name, path in compared.items() if path.exists()}
    if guards.drift is not None:
        tables["drift"] = to_drift_table(guards.drift, record.identity.model_dump(), guards.outputs)
    summary = _summarise(record, store, metrics, guards)
    write_page(record.run.page_path, summary, guards, provenance=_provenance(record))
    record.require_ownership()
    store.publish(record.run.run_id, config.experiment_name, tables)
    record.complete()
    return summary


def _provenance(record: RunRecord) -> list[tuple[str, str]]:
    """Return what shaped the numbers, for people."""
    attempt = record.state.last_launch
    devices = sorted({fact.device for each in record.state.attempts for fact in each.engine_facts})
    return [
        *([("LoRA adapter on", record.state.base)] if record.state.base else []),
        ("engine", record.plan.engine),
        ("dtype", record.plan.dtype),
        ("devices", ", ".join(devices) or UNDEFINED),
        ("seed", str(record.plan.seed)),
        ("attempts", str(record.attempt)),
        *([("rows left out", f"{record.plan.num_skipped_rows:,}")] if record.plan.num_skipped_rows else []),
        *(("difference", text) for text in record.state.differences),
        *sorted(attempt.provenance.versions().items()),
    ]


def _summarise(record: RunRecord, store: Store, metrics: tuple[MetricValue, ...], guards: Guards) -> RunSummary:
    whole = next(row for row in metrics if row.subset == WHOLE_SET)
    identity = record.identity.model_dump()
    return RunSummary(
        **identity,
        run_dir=record.run.path,
        store=store.root,
        metrics=metrics,
        num_planned=whole.num_planned,
        num_scored=whole.num_scored,
        num_failed=whole.num_failed,
        num_skipped_rows=record.plan.num_skipped_rows,
        num_attempts=record.attempt,
        num_resumed=record.num_resumed,
        engine=record.plan.engine,
        base_checkpoint=record.state.base,
        wall_s=record.wall_s,
        engine_s=sum(attempt.engine_s for attempt in record.state.attempts),
        differences=record.state.differences,
        has_drifted=guards.drift.alarmed if guards.drift else None,
        consistency=guards.consistency.verdict if guards.consistency else None,
        has_regressed=guards.regression.has_regressed if guards.regression else None,
        is_degenerate=bool(guards.degeneration.raised) if guards.degeneration else None,
    )


def _runs_table(config: EvaluationConfig, record: RunRecord, certificate: MergeCertificate) -> pa.Table:
    state, plan = record.state, record.plan
    provenance = state.last_launch.provenance
    facts = [fact for attempt in state.attempts for fact in attempt.engine_facts]
    scored = _count_scored(record)
    row = record.identity.model_dump() | {
        "plan_key": plan.plan_key,
        "started_at": state.started_at,
        "finished_at": datetime.now(UTC),
        "wall_s": record.wall_s + sum(attempt.wall_s or 0.0 for attempt in state.attempts[:-1]),
        "engine_s": sum(attempt.engine_s for attempt in state.attempts),
        "num_attempts": record.attempt,
        "num_replicas": state.last_launch.num_replicas,
        "num_planned": plan.num_planned,
        "num_scored": scored,
        "num_failed": plan.num_planned - scored,
        "num_prompt_tokens": certificate.num_prompt_tokens,
        "num_completion_tokens": certificate.num_completion_tokens,
        "tokenizer_digest": plan.tokenizer_digest,
        "chat_template_digest": plan.chat_template_digest,
        "model_config_digest": plan.model_config_digest or None,
        "config_digest": config_digest(config),
        "seed": plan.seed,
        "n_samples": plan.n_samples,
        "engine": plan.engine,
        "dtype": ", ".join(sorted({fact.dtype for fact in facts})) or None,
        "device": ", ".join(sorted({fact.device for fact in facts})) or None,
        "milepost_version": provenance.milepost_version,
        "git_commit": provenance.git_commit,
        "git_dirty": provenance.git_dirty,
        "host": provenance.host,
        "operating_system": provenance.operating_system,
        "cpu_model": provenance.cpu_model,
        "num_cores": provenance.num_cores,
        "memory_bytes": provenance.memory_bytes,
        "gpus": [gpu.name for gpu in provenance.gpus],
        "versions": list(provenance.versions().items()),
        "differences": list(state.differences),
        "config": config_to_yaml(config),
        "base_checkpoint": state.base,
        "regrade_of": state.regrade_of,
        "num_skipped_rows": plan.num_skipped_rows,
    }
    return pa.Table.from_pylist([row], schema=RUNS)


def _count_scored(record: RunRecord) -> int:
    scores = pq.read_table(record.run.samples_path, columns=["score"]).column("score")
    count: int = pc.count(scores, mode="only_valid").as_py()
    return count
