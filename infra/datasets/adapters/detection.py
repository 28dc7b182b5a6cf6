"""Which adapter reads a dataset: the configured one, else the one that its columns and path show beyond doubt."""

from collections.abc import Sequence
from typing import Final

from infra.datasets.adapters import aime, gsm8k, mapped_columns, math500
from infra.datasets.cells import column_names, has_cell
from infra.datasets.rows import Adapter, Row
from schemas.errors import DatasetError
from schemas.valid_dataset import ColumnMapping, ValidDatasetConfig

_GSM_PLUS: Final = ColumnMapping(
    prompt="question",
    gold="answer",
    subsets=("perturbation_type",),
    cluster="seed_question",
    solution="solution",
)
_VERL: Final = ColumnMapping(messages="prompt", gold="reward_model.ground_truth", subsets=("data_source",))


def choose_adapter(config: ValidDatasetConfig, first_row: Row) -> Adapter:
    """Return the adapter for data whose first readable row is `first_row`.

    Raises:
        DatasetError: a column that the format needs is not there, or `auto` cannot tell the format.
    """
    columns = list(first_row)
    if config.columns is not None:
        return mapped_columns.adapter_for(column_names(first_row), config.columns)
    if config.format == "gsm8k":
        return gsm8k.adapter_for(columns)
    if config.format == "math500":
        return math500.adapter_for(columns)
    if config.format == "aime":
        return aime.adapter_for(columns)
    return _detect(config.path, columns, first_row)


def _detect(path: str, columns: Sequence[str], first_row: Row) -> Adapter:
    present = set(columns)
    lower = {column.lower() for column in columns}
    if {"question", "answer", "solution", "perturbation_type"} <= present:
        seeds = _GSM_PLUS.cluster if _GSM_PLUS.cluster in present else None
        return mapped_columns.adapter_for(columns, _GSM_PLUS.model_copy(update={"cluster": seeds}))
    if isinstance(first_row.get("prompt"), list) and has_cell(first_row, "reward_model.ground_truth"):
        return mapped_columns.adapter_for(column_names(first_row), _VERL)
    # The mark must be seen, or the path must say gsm8k: a bare question/answer pair may hold anything as its answer.
    if {"question", "answer"} <= present and (gsm8k.MARK in str(first_row["answer"]) or "gsm8k" in path.lower()):
        return gsm8k.adapter_for(columns)
    if "aime" in path.lower() and lower & {"problem", "question"} and lower & {"answer", "expected_answer"}:
        return aime.adapter_for(columns)
    if {"problem", "answer"} <= present:
        return math500.adapter_for(columns)
    raise DatasetError(
        f"the format cannot be told from the columns {', '.join(map(repr, columns)) or '(none)'}. Set "
        "valid_dataset.columns.prompt and valid_dataset.columns.gold to the columns with the problem and the gold "
        "answer, or valid_dataset.format to gsm8k, math500 or aime"
    )
