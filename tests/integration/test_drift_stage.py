"""check-drift as the flow runs it: real files, a real great-expectations suite in a real process."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from infra.datasets.digests import dataset_version, item_digest
from infra.fileroot.validation_sets import VersionStore, dataset_folder
from schemas.config import EvaluationConfig
from schemas.dataset import ChatMessage, EvalItem
from schemas.drift import DriftCheck
from schemas.errors import DatasetError
from schemas.expectations.contract import RuleResult
from schemas.refresh import VersionDraft, VersionOrigin
from schemas.tables import DRIFT
from schemas.training_position import TrainingPosition
from tasks.drift.plots import plot_feature
from tasks.drift.profiles import name_rows, tabulate
from tasks.drift.report import summarise, to_drift_table
from tasks.drift.stage import check_drift, freeze_reference

NOW = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
IDENTITY = dict.fromkeys(
    ("run_id", "experiment_name", "trial_name", "checkpoint", "weight_digest", "dataset", "dataset_version"), "x"
)


def item(number: int, prompt: str, *, gold: str = "7", **subsets: str) -> EvalItem:
    message = ChatMessage(role="user", content=prompt)
    return EvalItem(item_id=f"i{number}", messages=(message,), gold=gold, subsets=subsets)


def make_items(count: int, *, start: int = 0, level: str = "easy") -> list[EvalItem]:
    """Sums whose numbers go round, so that any two ranges are one population."""
    return [
        item(number, f"What is {number % 17} plus {number % 23}?", gold=str(number % 17 + number % 23), level=level)
        for number in range(start, start + count)
    ]


def make_config(fileroot: Path, **drift: object) -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {
            "cluster": {"fileroot": str(fileroot)},
            "actor": {"path": "checkpoint"},
            "valid_dataset": {"path": "sums.jsonl"},
            "drift": drift,
        }
    )


def check(
    config: EvaluationConfig, items: Sequence[EvalItem], *, step: int | None = None, hours: float = 0
) -> DriftCheck:
    return check_drift(
        config,
        name_rows(tabulate(items)),
        position=TrainingPosition(global_step=step),
        now=NOW + timedelta(hours=hours),
    )


def broken(result: DriftCheck) -> dict[str, RuleResult]:
    assert result.violated == any(not rule.holds for rule in result.contract)
    return {rule.name: rule for rule in result.contract if not rule.holds}


def test_from_the_first_check_to_an_alarm(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    first = check(config, make_items(300))
    assert (first.status, first.drifted, first.violated, first.report) == ("frozen", False, False, None)
    again = check(config, make_items(300)[::-1], hours=5)
    assert again == first.model_copy(update={"status": "unchanged"})
    assert "5.0 hours ago" in summarise(again, now=NOW + timedelta(hours=5))
    grown = check(config, make_items(300) + make_items(200, start=300))
    assert (grown.status, grown.drifted, grown.violated) == ("checked", False, False)
    assert [rule.name for rule in grown.contract] == [
        "the columns are there",
        "item_id is set",
        "item_id is unique",
        "prompt is set",
        "prompt has a usual length",
        "answer is set",
        "answer can be graded",
        "subset:level has a known value",
    ]
    changed = check(config, make_items(300) + make_items(40, start=300, level="<b>hard"))
    assert changed.alarmed
    assert changed.report is not None
    drifted = [feature for feature in changed.report.features if feature.drifted]
    assert [feature.name for feature in drifted] == ["subset:level"]
    rule = broken(changed)["subset:level has a known value"]
    assert (rule.num_violations, rule.num_rows) == (40, 340)
    assert rule.item_ids == tuple(f"i{number}" for number in range(300, 320))
    assert "**drift**" in summarise(changed, now=NOW)
    assert "\\<b\\>hard" in summarise(changed, now=NOW)
    table = to_drift_table(changed, IDENTITY)
    assert table.schema == DRIFT
    assert set(table.column("kind").to_pylist()) == {"number", "category", "text", "contract"}
    assert sum(table.column("drifted").to_pylist()) == 2
    ElementTree.fromstring(plot_feature(drifted[0]))  # it is well-formed, whatever the labels
    assert "&lt;b&gt;hard" in plot_feature(drifted[0])


def test_the_contract_names_the_rows(tmp_path: Path) -> None:
    reference = make_items(100)
    bad = [
        item(100, "What?" * 200, level="easy"),
        item(101, "What is 7 plus 0?", gold="\\frac{1", level="easy"),
        item(101, "What is 8 plus 0?", gold="", level="easy"),
    ]
    config = make_config(tmp_path)
    check(config, reference)
    result = broken(check(config, reference + bad))
    assert {name: rule.item_ids for name, rule in result.items()} == {
        "item_id is unique": ("i101", "i101"),
        "prompt has a usual length": ("i100",),
        "answer is set": ("i101",),
        "answer can be graded": ("i101",),
    }
    assert "cannot be read" in result["answer can be graded"].details


def test_between_two_checks_the_last_result_is_shown(tmp_path: Path) -> None:
    config = make_config(tmp_path, freq_steps=100, freq_hours=24)
    assert check(config, make_items(50), step=0).status == "frozen"
    assert check(config, make_items(60), step=99, hours=23).status == "not_due"
    assert check(config, make_items(60), step=100).status == "checked"
    assert check(config, make_items(60), step=150).status == "unchanged"


def draft_version(items: Sequence[EvalItem], parent: str | None) -> VersionDraft:
    return VersionDraft(
        dataset="sums",
        content_digest=dataset_version(items),
        parent=parent,
        origin=VersionOrigin(reason="a test", created_at=NOW, position=TrainingPosition()),
        prompt_suffix=None,
        system_prompt=None,
        draw=None,
        item_digests={item.item_id: item_digest(item) for item in items},
    )


def test_a_refreshed_version_has_a_reference_of_its_own(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    plain, harder = make_items(300), make_items(300) + make_items(100, start=300, level="hard")
    frozen = check(config, plain)
    versions = VersionStore(dataset_folder(tmp_path, "sums"))
    source = versions.publish_first(draft_version(plain, None), plain)
    result = check(config, harder)
    assert (result.drifted, result.reference_version) == (True, frozen.reference_version)
    refreshed = versions.publish(draft_version(harder, source.version), harder).manifest.version
    freeze_reference(config, name_rows(tabulate(harder)), refreshed)
    result = check(config, harder)
    assert (result.status, result.drifted, result.reference_version) == ("checked", False, refreshed)
    versions.rollback(source.version)
    assert check(config, harder).reference_version == frozen.reference_version


def test_a_profile_that_was_edited_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    check(config, make_items(30))
    (profile,) = tmp_path.glob("validation_sets/sums*/profiles/*.parquet")
    table = pq.read_table(profile)
    pq.write_table(table.slice(1), profile)
    with pytest.raises(DatasetError, match=r"was changed after it was frozen: its digest is \w+, expected"):
        check(config, make_items(40))
    profile.write_bytes(b"no parquet")
    with pytest.raises(DatasetError, match="cannot be read; restore it, or remove it together"):
        check(config, make_items(40))
    profile.unlink()
    (profile.parents[1] / "reference.json").unlink()
    assert check(config, make_items(40)).status == "frozen"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own.jsonl", "", "drift.reference: .*own.jsonl"),
        ("own.jsonl", '{"text": "What?", "label": 3}\n', "drift.reference: .*text"),
        ("absent.jsonl", None, "drift.reference: .*absent.jsonl"),
    ],
)
def test_a_reference_that_cannot_be_used_is_named(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=message):
        check(make_config(tmp_path, reference=str(tmp_path / name)), make_items(5))


def test_a_reference_of_ones_own_is_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f'{{"question": "Name a prime above {n}.", "answer": "#### {n}"}}\n' for n in range(80)))
    result = check(make_config(tmp_path, reference=str(path)), make_items(80))
    assert result.status == "checked"
    assert result.drifted
    assert not (tmp_path / "validation_sets" / "sums" / "profiles").exists()


def test_nothing_to_compare_and_features_that_fail_are_the_users_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DatasetError, match="there are no rows to compare"):
        check(make_config(tmp_path), [])
    (tmp_path / "own_features.py").write_text("def fails(prompt):\n    print('noise')\n    raise ValueError('no')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=r"own_features\.fails raised ValueError on row 1"):
        check(make_config(tmp_path, features=["own_features.fails"]), make_items(5))
