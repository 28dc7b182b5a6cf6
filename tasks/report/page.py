"""report.html of a run: metrics, drift and consistency on one page that needs no network.

Everything that comes from a dataset, a checkpoint or a model is escaped by the template.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tasks.degeneration.report
import tasks.regression.report
from infra.files.atomic import write_text_atomically
from schemas.consistency import ConsistencyReport
from schemas.degeneration import DegenerationReport
from schemas.drift import DriftCheck, OutputDrift
from schemas.regression import RegressionReport
from schemas.stand_in import is_dummy
from schemas.summary import RunSummary
from tasks.drift.plots import plot_feature
from tasks.drift.report import describe_status, name_verdict, tabulate_features
from tasks.report.metrics_table import headline_metrics, tabulate_metrics

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE: Final = "page.html.jinja"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What the guards of a run found; None where one was off or did not apply."""

    drift: DriftCheck | None = None
    outputs: OutputDrift | None = None
    consistency: ConsistencyReport | None = None
    regression: RegressionReport | None = None
    degeneration: DegenerationReport | None = None


NO_GUARDS: Final = Guards()


def write_page(path: Path, summary: RunSummary, guards: Guards, *, provenance: Sequence[tuple[str, str]]) -> None:
    """Write the page of a run to `path`, whole or not at all; `provenance`: what shaped the numbers, by name.

    Raises:
        StoreError: the disk refused.
    """
    write_text_atomically(path, render_page(summary, guards, provenance=provenance))


def render_page(summary: RunSummary, guards: Guards, *, provenance: Sequence[tuple[str, str]]) -> str:
    """Return the HTML of a run's page."""
    report = guards.drift.report if guards.drift else None
    features = report.features if report else ()
    return _template().render(
        summary=summary,
        is_dummy=is_dummy(summary.engine),
        metrics=tabulate_metrics(headline_metrics(summary.metrics)),
        drift=guards.drift,
        drift_verdict=name_verdict(guards.drift) if guards.drift else "",
        drift_status=describe_status(guards.drift) if guards.drift else "",
        features=tabulate_features(features),
        plots=[plot_feature(feature) for feature in features if feature.drifted and feature.bars],
        outputs=guards.outputs,
        output_table=tabulate_features(guards.outputs.features if guards.outputs else ()),
        consistency=guards.consistency,
        regression=guards.regression,
        regression_table=tasks.regression.report.tabulate(guards.regression),
        degeneration=guards.degeneration,
        degeneration_table=tasks.degeneration.report.tabulate(guards.degeneration),
        provenance=provenance,
    )


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(_TEMPLATE)
