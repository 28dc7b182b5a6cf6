"""report.html: what it says, and that nothing of a dataset or a checkpoint is taken for markup."""

from datetime import UTC, datetime
from pathlib import Path

from schemas.consistency import ConsistencyCheck, ConsistencyReport, ReplicaReport, WorkerName
from schemas.drift import Bar, DriftCheck, DriftReport, FeatureDrift
from schemas.expectations.contract import RuleResult
from schemas.summary import MetricValue, RunSummary
from schemas.training_position import TrainingPosition
from tasks.report.page import NO_GUARDS, Guards, render_page, write_page

HOSTILE = "<script>alert('x')</script>{{ 7 * 7 }}"


def summary() -> RunSummary:
    metric = MetricValue(
        subset=f"level={HOSTILE}",
        metric="accuracy",
        value=0.5,
        stderr=None,
        ci_low=None,
        ci_high=None,
        num_planned=4,
        num_scored=4,
        num_failed=0,
        higher_is_better=True,
    )
    return RunSummary(
        run_id="r1",
        experiment_name="e",
        trial_name="t",
        checkpoint=HOSTILE,
        weight_digest="0" * 32,
        global_step=7,
        dataset=HOSTILE,
        dataset_version="1" * 32,
        run_dir=Path("runs/r1"),
        store=Path("store"),
        metrics=(metric,),
        num_planned=4,
        num_scored=4,
        num_failed=0,
        num_attempts=1,
        num_resumed=0,
        wall_s=1.0,
        engine_s=1.0,
    )


def guards() -> Guards:
    feature = FeatureDrift(
        name=HOSTILE,
        kind="category",
        test="chi-squared",
        statistic=9.0,
        effect=0.4,
        effect_floor=0.03,
        p_value=1e-9,
        drifted=True,
        underpowered=False,
        smallest_detectable=0.1,
        num_reference=1000,
        num_current=200,
        details=HOSTILE,
        bars=(Bar(label=HOSTILE, reference=0.1, current=0.5),),
    )
    rule = RuleResult(name="item_id is unique", holds=False, num_rows=200, num_violations=1, item_ids=(HOSTILE,))
    drift = DriftCheck(
        status="checked",
        drifted=True,
        violated=True,
        report=DriftReport(drifted=True, features=(feature,), num_reference=1000, num_current=200, unknown=(HOSTILE,)),
        contract=(rule,),
        dataset=HOSTILE,
        reference_version="a",
        current_version="b",
        checked_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        position=TrainingPosition(),
        settings="s",
    )
    replica = ReplicaReport(
        number=1,
        attempt=2,
        num_samples=4,
        num_items=2,
        accuracy=None,
        mean_length=None,
        no_answer_rate=None,
        mean_logprob=None,
        residuals={},
        problems=(HOSTILE,),
    )
    check = ConsistencyCheck(
        check="canaries",
        outcome="violated",
        decides=True,
        suspects=(WorkerName(replica=1, attempt=2),),
        message=HOSTILE,
    )
    consistency = ConsistencyReport(verdict="disagree", message=HOSTILE, replicas=(replica,), checks=(check,))
    return Guards(drift=drift, consistency=consistency)


def test_the_findings_are_there_and_nothing_in_them_is_markup() -> None:
    page = render_page(summary(), guards(), provenance=[("vllm", HOSTILE)])
    assert "<script" not in page
    assert "49" not in page
    for words in ("Drift.", "The data contract is broken.", "disagree.", "replica 1 of attempt 2", "<svg", "step 7"):
        assert words in page


def test_what_was_not_looked_at_is_said() -> None:
    page = render_page(summary(), NO_GUARDS, provenance=[])
    assert "Not checked for drift" in page
    assert "Not compared." in page


def test_the_page_is_one_file_without_foreign_parts(tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", summary(), guards(), provenance=[])
    page = (tmp_path / "report.html").read_text("utf-8")
    assert not any(word in page for word in ("src=", "<link", "@import", "url("))
