"""Stores of made-up trainings, for tests of what reads many runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.store import Store, open_store
from schemas.tables import ALERTS, METRICS, RUNS, SAMPLES
from tests.support.store_tables import filled

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = "gconfig:\n  n_samples: 1\n  temperature: {temperature}\nreward_fn: auto\n"


def publish_run(
    root: Path,
    run_id: str,
    *,
    right: int,
    of: int = 60,
    step: int | None = 0,
    events: tuple[str, ...] = (),
    temperature: float = 1.0,
    metrics: dict[str, float] | None = None,
    texts: dict[str, str] | None = None,
    **names: Any,
) -> Store:
    """Publish a run whose first `right` of `of` answers are right; `names`: its identity and columns of `runs`."""
    identity = {
        "run_id": run_id,
        "experiment_name": "exp",
        "trial_name": "a",
        "checkpoint": f"/ckpt/{step}",
        "weight_digest": f"w{step}",
        "global_step": step,
        "dataset": "gsm8k",
        "dataset_version": "v1",
    } | {name: names.pop(name) for name in list(names) if name in RUNS.names[:8]}
    counts = {"num_planned": of, "num_scored": of, "num_failed": 0}
    values = {"accuracy": right / of} | (metrics or {})
    samples = [
        identity
        | {
            "item_id": f"i{number}",
            "prompt_hash": f"h{number}",
            "gold": "1",
            "verdict": "correct" if number < right else "wrong",
            "score": float(number < right),
            "num_completion_tokens": 10 + number,
            "completion": f"<think>because</think>answer {number}",
        }
        | (texts or {})
        for number in range(of)
    ]
    store = open_store(root)
    tables = {
        "runs": [
            identity
            | counts
            | {
                "plan_key": run_id,
                "engine": "vllm",
                "finished_at": FIRST + timedelta(hours=step or 0),
                "config": CONFIG.format(temperature=temperature),
            }
            | names
        ],
        "samples": samples,
        "metrics": [
            identity | counts | {"subset": "all", "metric": name, "value": value, "ci_low": value, "ci_high": value}
            for name, value in values.items()
        ],
        "alerts": [
            identity
            | {
                "event": f"milepost.{event}",
                "event_id": f"{run_id}-{event}",
                "message": f"{event} <b>",
                "silenced": False,
            }
            for event in events
        ],
    }
    schemas = {"runs": RUNS, "samples": SAMPLES, "metrics": METRICS, "alerts": ALERTS}
    store.publish(
        run_id,
        identity["experiment_name"],
        {name: filled(schemas[name], rows) for name, rows in tables.items() if rows},
    )
    return store
