"""The published runs of trainings as points over steps: what the report over checkpoints draws.

Owns which runs belong to it, which of them are on one line, and where on the axis they stand.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.dataset as pads

from infra.fileroot.run_names import complete_run_name
from infra.store import Store
from schemas.errors import ConfigError
from schemas.stand_in import DUMMY_ENGINE
from schemas.store import PublishedRun
from schemas.summary import WHOLE_SET, MetricValue

_DECIDING: Final = (
    "valid_dataset",
    "gconfig",
    "eval_gconfig",
    "chat",
    "prompt",
    "workflow",
    "workflow_kwargs",
    "reward_fn",
    "grading",
)
"""Sections of the configuration by which the runs of two lines may differ."""
_UNINTERESTING: Final = ("valid_dataset.path", "grading.timeout_s", "grading.num_processes")
"""Values there that decide no number: the dataset is named and has a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The runs of one training on one dataset with the same settings, in order of training."""

    name: str
    """What tells the line from the others: trial, experiment where there are several, and settings that differ."""
    dataset: str
    """Name of the dataset."""
    runs: tuple[PublishedRun, ...]
    """At least one."""

    @property
    def latest(self) -> PublishedRun:
        """The run that training came to last."""
        return self.runs[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One metric of one run, over the whole dataset."""

    series: Series
    """The line that it is on."""
    run: PublishedRun
    """The run that measured it."""
    position: int
    """Place on the axis: the training step, or the place in order of training where steps are unknown."""
    metric: MetricValue
    """Estimate with its interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEvent:
    """What an alert said about one checkpoint."""

    dataset: str
    """Dataset that it was noticed on."""
    kind: str
    """Name of the event without its prefix, such as `drift.detected`."""
    position: int
    """Place on the axis."""
    checkpoint: str
    """Checkpoint as the user named it."""
    message: str
    """What happened, how much, against what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything that the report over checkpoints shows, but for what it compares."""

    series: tuple[Series, ...]
    """Lines, by dataset and name."""
    points: tuple[Point, ...]
    """Points of all metrics."""
    events: tuple[TrainingEvent, ...]
    """Alerts, each cause once."""
    has_steps: bool
    """Whether positions are training steps."""

    @property
    def datasets(self) -> list[str]:
        """Names of the datasets."""
        return list(dict.fromkeys(series.dataset for series in self.series))

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments."""
        return sorted({run.experiment_name for run in self.runs})

    @property
    def runs(self) -> list[PublishedRun]:
        """All runs, by line."""
        return [run for series in self.series for run in series.runs]


def read_overview(store: Store, names: Sequence[str]) -> Overview:
    """Return the runs that `names` mean, as lines.

    Args:
        store: Where they are published.
        names: Names of runs, parts of such, or experiments; empty: all experiments. Of an experiment, runs that repeat
            one another or grade one another again count once.

    Raises:
        ConfigError: a name means nothing, or nothing is published.
        StoreError: the store cannot be read.
    """
    runs = _select(store, names)
    lines = _to_series(runs, _settings(store, runs))
    has_steps = all(run.global_step is not None for run in runs)
    positions = _positions(lines, has_steps=has_steps)
    events = _read_events(store, positions)
    return Overview(series=lines, points=_read_points(store, lines, positions), events=events, has_steps=has_steps)


def _select(store: Store, names: Sequence[str]) -> list[PublishedRun]:
    published = {run.run_id: run for run in store.runs()}
    latest = [run for run in published.values() if run.superseded_by is None]
    if not published:
        raise ConfigError(f"no run is published in {store.root}: start one with `milepost evaluate CONFIG`")
    experiments = {run.experiment_name for run in latest}
    selected: dict[str, PublishedRun] = {}
    for name in names or sorted(experiments):
        if name in experiments:
            selected |= {run.run_id: run for run in latest if run.experiment_name == name}
            continue
        run_id = complete_run_name(store.root.parent, name)
        if run_id not in published:
            near = get_close_matches(name, [*experiments, *published], n=3)
            advice = f"; nearest: {', '.join(near)}" if near else ""
            raise ConfigError(
                f"{name!r} is neither a published run nor an experiment in {store.root}{advice}; "
                f"experiments there: {', '.join(sorted(experiments))}"
            )
        selected[run_id] = published[run_id]
    return list(selected.values())


def _to_series(runs: Iterable[PublishedRun], settings: Mapping[str, frozenset[str]]) -> tuple[Series, ...]:
    lines: defaultdict[tuple[str, str, str, bool, frozenset[str]], list[PublishedRun]] = defaultdict(list)
    for run in runs:
        lines[run.dataset, run.experiment_name, run.trial_name, run.is_dummy, settings[run.run_id]].append(run)
    several = len({experiment for _, experiment, *_ in lines}) > 1
    alike: defaultdict[tuple[str, str, str], list[frozenset[str]]] = defaultdict(list)
    for dataset, experiment, trial, _, chosen in lines:
        alike[dataset, experiment, trial].append(chosen)
    found: list[Series] = []
    for (dataset, experiment, trial, is_dummy, chosen), members in lines.items():
        own = sorted(chosen - frozenset.intersection(*alike[dataset, experiment, trial]))
        parts = [f"{experiment}/{trial}" if several else trial, *own, *([DUMMY_ENGINE] if is_dummy else [])]
        found.append(Series(name=", ".join(parts), dataset=dataset, runs=tuple(_in_training_order(members))))
    return tuple(sorted(found, key=lambda series: (series.dataset, series.name)))


def _in_training_order(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    published = sorted(runs, key=lambda run: run.finished_at)
    has_steps = all(run.global_step is not None for run in published)
    return sorted(published, key=lambda run: run.global_step or 0) if has_steps else published


def _positions(lines: Iterable[Series], *, has_steps: bool) -> dict[str, int]:
    """Return the place of each run on the axis, by run."""
    return {
        run.run_id: run.global_step if has_steps and run.global_step is not None else place
        for series in lines
        for place, run in enumerate(series.runs, start=1)
    }


def _settings(store: Store, runs: Sequence[PublishedRun]) -> dict[str, frozenset[str]]:
    """Return what each run was asked that differs from the defaults, by run, such as `gconfig.temperature=0.6`."""
    rows = _rows(store, "runs", [run.run_id for run in runs], ["run_id", "config"])
    return {row["run_id"]: _deciding_values(_deciding_text(row["config"])) for row in rows}


def _deciding_text(config: str) -> str:
    """Return those sections of a configuration's canonical YAML that two lines may differ by."""
    kept: list[str] = []
    is_kept = False
    for line in config.splitlines():
        if not line.startswith((" ", "-")):
            is_kept = line.partition(":")[0] in _DECIDING
        if is_kept:
            kept.append(line)
    return "\n".join(kept)


@cache
def _deciding_values(text: str) -> frozenset[str]:
    import yaml

    values = _flatten(yaml.safe_load(text) or {})
    defaults = _default_values()
    return frozenset(
        f"{key}={value}"
        for key, value in values.items()
        if key not in _UNINTERESTING and value is not None and value not in ([], {}) and defaults.get(key) != value
    )


@cache
def _default_values() -> dict[str, Any]:
    from schemas.config import EvaluationConfig

    fields = EvaluationConfig.model_fields
    defaults = {name: fields[name].get_default(call_default_factory=True) for name in _DECIDING if name in fields}
    return _flatten({name: _dumped(value) for name, value in defaults.items()})


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= _flatten(value, f"{name}.")
        else:
            found[name] = value
    return found


def _read_points(store: Store, lines: Iterable[Series], positions: Mapping[str, int]) -> tuple[Point, ...]:
    line_of = {run.run_id: (series, run) for series in lines for run in series.runs}
    rows = _rows(
        store, "metrics", list(line_of), ["run_id", *MetricValue.model_fields], pads.field("subset") == WHOLE_SET
    )
    by_run: defaultdict[str, list[MetricValue]] = defaultdict(list)
    for row in rows:
        by_run[row.pop("run_id")].append(MetricValue.model_construct(**row))
    return tuple(
        Point(series=line_of[run_id][0], run=line_of[run_id][1], position=positions[run_id], metric=metric)
        for run_id, metrics in by_run.items()
        for metric in metrics
    )


def _read_events(store: Store, positions: Mapping[str, int]) -> tuple[TrainingEvent, ...]:
    columns = ["run_id", "dataset", "checkpoint", "event", "event_id", "message"]
    causes = {row["event_id"]: row for row in _rows(store, "alerts", list(positions), columns)}
    events = (
        TrainingEvent(
            dataset=row["dataset"],
            kind=row["event"].removeprefix("milepost."),
            position=positions[row["run_id"]],
            checkpoint=row["checkpoint"],
            message=row["message"],
        )
        for row in causes.values()
    )
    return tuple(sorted(events, key=lambda event: (event.position, event.kind)))


def _rows(
    store: Store, table: str, run_ids: Sequence[str], columns: list[str], condition: pc.Expression | None = None
) -> list[dict[str, Any]]:
    wanted = pads.field("run_id").isin(run_ids)
    found = store.table(table).to_table(columns=columns, filter=wanted if condition is None else wanted & condition)
    return found.to_pylist()
