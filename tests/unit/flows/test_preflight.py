"""What `milepost deploy` refuses of a dataset before it registers anything."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from flows.preflight import check_dataset_elsewhere
from schemas.config import EvaluationConfig
from schemas.errors import UserInputError

GOOD = '{"question": "1+1", "answer": "2"}\n'
COLUMNS = {"prompt": "question", "gold": "answer"}
SUMS = "reasoning_gym:chain_sum?size=2&seed=1"


def make(folder: Path, dataset: dict[str, object], **keys: object) -> EvaluationConfig:
    (folder / "good.jsonl").write_text(GOOD)
    (folder / "bad.jsonl").write_text(GOOD + '{"question": "1+1", "answer": null}\n')
    document: dict[str, object] = {
        "actor": {"path": "no/such/checkpoint"},
        "cluster": {"fileroot": str(folder / "out")},
    }
    path = str(dataset["path"]).replace("HERE", str(folder))
    return EvaluationConfig.model_validate(document | {"valid_dataset": dataset | {"path": path}} | keys)


@pytest.mark.parametrize(
    ("dataset", "keys", "words"),
    [
        ({"path": "HERE/none.jsonl"}, {}, "does not exist"),
        ({"path": "HERE/bad.jsonl", "columns": COLUMNS}, {}, "row 2"),
        ({"path": "HERE/good.jsonl", "columns": {"prompt": "q", "gold": "answer"}}, {}, "'q' is not in the data"),
        ({"path": "reasoning_gym:chain_summ?size=2"}, {}, "no task 'chain_summ'"),
        ({"path": SUMS}, {"prompt": {"few_shot": {"n": 1, "path": "no/such.jsonl"}}}, "no/such.jsonl' does not exist"),
        ({"path": "HERE/good.jsonl", "columns": COLUMNS}, {"reward_fn": "no_such_module.f"}, "no_such_module"),
    ],
)
def test_a_dataset_that_no_evaluation_could_use_is_refused(
    tmp_path: Path, dataset: dict[str, object], keys: dict[str, object], words: str
) -> None:
    config = make(tmp_path, dataset, **keys)
    held: JsonValue = config.model_dump(mode="json", exclude_defaults=True)
    with pytest.raises(UserInputError, match=words) as refused:
        # a file is read again although the same configuration is deployed
        check_dataset_elsewhere(config, [] if "chain_summ?" in str(dataset["path"]) else [held])
    assert refused.value.exit_code == 2


def test_a_dataset_that_can_be_used_is_no_error_whatever_the_checkpoint(tmp_path: Path) -> None:
    check_dataset_elsewhere(make(tmp_path, {"path": "HERE/good.jsonl", "columns": COLUMNS}), [None, {}])
    sums = make(tmp_path, {"path": SUMS})
    check_dataset_elsewhere(sums, [{"valid_dataset": {"path": SUMS}}])
