"""The columns of `samples` that metrics need, as numpy arrays in one order: by item_id, then repeat.

Owns reading and checking; must not compute a metric. The order makes every sum the same to the last bit whatever the
order of the rows. A column that is absent is unknown: None here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import DistributedEvaluationError
from schemas.run import RunIdentity
from schemas.states import FinishReason, Verdict
from tasks.metrics.voting import ABSTAINS, normalise_answer

if TYPE_CHECKING:
    import pyarrow.dataset as pads

SampleTable: TypeAlias = "pa.Table | pads.Dataset"
"""Samples in memory, or in Parquet, of which only the columns that metrics need are read."""

VERDICT_CODES: Final[Mapping[str, int]] = {verdict: code for code, verdict in enumerate(Verdict)}
"""What stands for a verdict in arrays; -1 for none."""
IS_SCORED: Final = np.array([*(verdict.is_scored for verdict in Verdict), False])
"""Whether it is a verdict on the model, by its code."""
IDENTITY_COLUMNS: Final = tuple(RunIdentity.model_fields)
_MEASURED: Final = (
    "item_id",
    "repeat",
    "subsets",
    "cluster_id",
    "verdict",
    "score",
    "answer",
    "finish_reason",
    "num_completion_tokens",
    "reward",
)


class Coded(NamedTuple):
    """A text column as codes into its distinct values; -1 where null."""

    codes: IntArray
    values: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """Samples by item and repeat; arrays of shape `(num_samples,)` unless said otherwise."""

    num_items: int
    item: IntArray
    """Index of the item, ascending; items are in order of item_id."""
    first_row: IntArray
    """First sample of each item, `(num_items,)`."""
    cluster: IntArray | None
    """Index of the cluster of each item, `(num_items,)`; None where every item stands alone."""
    scored: BoolArray
    """Whether the sample has a verdict on the model."""
    correct: BoolArray
    """Whether it is scored and correct."""
    score: FloatArray
    """Score in [0, 1]; NaN where not scored."""
    verdict: IntArray | None
    """One of VERDICT_CODES, -1 where null."""
    answer: IntArray | None
    """Code of the normalised answer, `ABSTAINS` without one."""
    truncated: FloatArray | None
    """1 where the completion was cut, else 0; NaN without a completion."""
    length: FloatArray | None
    """Tokens of the completion; NaN without one."""
    reward: FloatArray | None
    """Training reward; NaN without one."""
    subsets: "pa.ChunkedArray[Any] | None"
    """Strata of each sample in the order of the table, to be taken by `row`."""
    row: IntArray
    """Where each sample stands in the table."""
    identity: dict[str, str | int | None]
    """The value that all rows share, by column."""

    @property
    def n_samples(self) -> int:
        """Most samples planned for one item; 0 without any."""
        return int(np.bincount(self.item, minlength=1).max())


def read_columns(samples: SampleTable) -> SampleColumns:
    """Read and order the columns of samples of one run.

    Raises:
        DistributedEvaluationError: no item_id, neither verdict nor score, a verdict that does not exist, an
            (item_id, repeat) that occurs twice, or rows of several runs.
    """
    table = _project(samples)
    item, num_items = _items(table)
    repeat = _repeats(table, item)
    row = np.lexsort((repeat, item))
    item, repeat = item[row], repeat[row]
    _require_unique(table, row, item, repeat)
    unordered = read_verdicts(table)
    verdict = None if unordered is None else unordered[row]
    scored, correct, score = _scores(table, row, verdict)
    first_row = np.searchsorted(item, np.arange(num_items))
    return SampleColumns(
        num_items=num_items,
        item=item,
        first_row=first_row,
        cluster=_clusters(table, row[first_row]),
        scored=scored,
        correct=correct,
        score=score,
        verdict=verdict,
        answer=_answers(table, row),
        truncated=_truncations(table, row, verdict),
        length=_numbers(table, "num_completion_tokens", row),
        reward=_numbers(table, "reward", row),
        subsets=table.column("subsets") if "subsets" in table.column_names else None,
        row=row,
        identity=_identity(table),
    )


def code_text(table: pa.Table, name: str) -> Coded:
    """Return a column of text (or of anything that casts to it) as codes."""
    # Offsets of large_string are 64 bit wide: distinct answers of a million samples may exceed 2 GiB together.
    # In one piece: encoding chunk by chunk repeats all that was seen before in every chunk's dictionary.
    text = table.column(name).cast(pa.large_string()).combine_chunks()
    encoded = cast("pa.DictionaryArray[Any, Any]", text.dictionary_encode())
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(codes, [str(value) for value in encoded.dictionary.to_pylist()])


def _clusters(table: pa.Table, rows: IntArray) -> IntArray | None:
    """Return the cluster of each item, numbered by its first item; one without a name is a cluster of its own."""
    if "cluster_id" not in table.column_names:
        return None
    codes, values = code_text(table, "cluster_id")
    codes = codes[rows]
    if (codes < 0).all():
        return None
    codes = np.where(codes < 0, len(values) + np.arange(len(codes)), codes)
    _, first, label = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[label].astype(np.int64)


def _project(samples: SampleTable) -> pa.Table:
    present = set(samples.schema.names)
    wanted = [name for name in (*IDENTITY_COLUMNS, *_MEASURED) if name in present]
    if isinstance(samples, pa.Table):
        return samples.select(wanted)
    return samples.to_table(columns=wanted)


def _items(table: pa.Table) -> tuple[IntArray, int]:
    if "item_id" not in table.column_names:
        raise DistributedEvaluationError(
            "samples have no column item_id, without which repeats cannot be told from items; "
            f"they have {', '.join(table.column_names)}"
        )
    codes, values = code_text(table, "item_id")
    if (codes < 0).any():
        raise DistributedEvaluationError(
            f"{int((codes < 0).sum())} samples have no item_id: publish nothing of this run"
        )
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.array(sorted(range(len(values)), key=values.__getitem__), dtype=np.int64)] = np.arange(len(values))
    return rank[codes], len(values)


def _repeats(table: pa.Table, item: IntArray) -> IntArray:
    """Return the repeats; numbered by row where the column is absent."""
    if "repeat" in table.column_names:
        return table.column("repeat").cast(pa.int64()).to_numpy().astype(np.int64)
    return np.arange(len(item))


def _require_unique(table: pa.Table, row: IntArray, item: IntArray, repeat: IntArray) -> None:
    twice = np.flatnonzero((item[1:] == item[:-1]) & (repeat[1:] == repeat[:-1]))
    if len(twice):
        name = table.column("item_id")[int(row[twice[0]])].as_py()
        raise DistributedEvaluationError(
            f"{len(twice)} samples occur more than once, first item_id={name!r} repeat={int(repeat[twice[0]])}; "
            "each (item_id, repeat) may occur once: merge the shards again"
        )


def read_verdicts(table: pa.Table) -> IntArray | None:
    """Return each sample's code of VERDICT_CODES, -1 where null; None where the column is absent.

    Raises:
        DistributedEvaluationError: a verdict that does not exist.
    """
    if "verdict" not in table.column_names:
        return None
    codes, values = code_text(table, "verdict")
    unknown = sorted(set(values) - VERDICT_CODES.keys())
    if unknown:
        raise DistributedEvaluationError(f"verdict {unknown[0]!r} does not exist; there are {', '.join(VERDICT_CODES)}")
    return np.array([*(VERDICT_CODES[value] for value in values), -1], dtype=np.int64)[codes]


def _scores(table: pa.Table, row: IntArray, verdict: IntArray | None) -> tuple[BoolArray, BoolArray, FloatArray]:
    """Return scored, correct and score; verdicts decide where there are any, a missing score follows from them."""
    score = _numbers(table, "score", row)
    if verdict is None:
        if score is None:
            raise DistributedEvaluationError("samples have neither verdict nor score: grade them first")
        scored = ~np.isnan(score)
        return scored, scored & (score >= 1), score
    scored = IS_SCORED[verdict]
    correct = verdict == VERDICT_CODES[Verdict.CORRECT]
    if score is None:
        score = np.full(len(verdict), np.nan)
    score = np.where(np.isnan(score), correct.astype(np.float64), score)
    return scored, correct, np.where(scored, score, np.nan)


def _answers(table: pa.Table, row: IntArray) -> IntArray | None:
    if "answer" not in table.column_names:
        return None
    codes, values = code_text(table, "answer")
    code_of: dict[str, int] = {}
    merged = [code_of.setdefault(normalise_answer(value), len(code_of)) for value in values]
    return np.array([*merged, ABSTAINS], dtype=np.int64)[codes][row]


def _truncations(table: pa.Table, row: IntArray, verdict: IntArray | None) -> FloatArray | None:
    if "finish_reason" not in table.column_names:
        return None
    codes, values = code_text(table, "finish_reason")
    is_cut = np.array([*(float(value == FinishReason.LENGTH) for value in values), np.nan])
    cut = is_cut[codes][row]
    if verdict is not None:
        # An answer that never left its <think> was cut too, although the engine saw an ordinary end.
        cut[(verdict == VERDICT_CODES[Verdict.TRUNCATED]) & ~np.isnan(cut)] = 1.0
    return cut


def _numbers(table: pa.Table, name: str, row: IntArray) -> FloatArray | None:
    if name not in table.column_names:
        return None
    numbers = table.column(name).cast(pa.float64()).to_numpy()  # null becomes NaN
    return numbers.astype(np.float64, copy=False)[row]


def _identity(table: pa.Table) -> dict[str, str | int | None]:
    identity: dict[str, str | int | None] = {}
    for name in IDENTITY_COLUMNS:
        if name in table.column_names:
            values = pc.unique(table.column(name)).to_pylist()
            if len(values) > 1:
                raise DistributedEvaluationError(
                    f"samples of several runs: {name} is {values[0]!r} and {values[1]!r}; aggregate one run at a time"
                )
            identity[name] = values[0] if values else None
    return identity
