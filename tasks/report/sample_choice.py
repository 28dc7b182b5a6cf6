"""What a report shows of the samples: a stratified choice to read, and accuracy by length of the answer."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from infra.store import Store
from tasks.report.series import Overview, Series

NUM_SAMPLES: Final = 400
"""Samples that a self-contained file holds over all lines: about 2 MB of text."""
_MAX_LETTERS: Final = 12_000
"""Letters of one text that are kept; the whole text stays in the store."""
_NUM_BINS: Final = 6
_MAX_CHECKPOINTS: Final = 10
"""Checkpoints of a heatmap; of more, those evenly spread over training."""
_MIN_IN_CELL: Final = 1
_TEXTS: Final = ("prompt", "completion", "gold", "answer", "error")
_COLUMNS: Final = (
    "run_id",
    "checkpoint",
    "global_step",
    "dataset",
    "item_id",
    "repeat",
    "verdict",
    "score",
    "finish_reason",
    "num_completion_tokens",
    "subsets",
    "replica",
    *_TEXTS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin:
    """The samples of one run whose answers are about as long."""

    dataset: str
    """Name of the dataset."""
    series: str
    """Name of the line."""
    checkpoint: str
    """Step or name of the checkpoint."""
    place: int
    """Place of the checkpoint in order of training."""
    label: str
    """Range of lengths, tokens."""
    order: int
    """Place of the range, the shortest first."""
    accuracy: float
    """Mean score of these samples."""
    num_samples: int
    """Scored samples in it."""


def bin_lengths(store: Store, overview: Overview) -> list[LengthBin]:
    """Return accuracy by length for up to ten checkpoints of each line, in bins that the line's samples fill alike."""
    return [each for series in overview.series for each in _bin_series(store, series)]


def _bin_series(store: Store, series: Series) -> Iterator[LengthBin]:
    places = np.unique(np.linspace(0, len(series.runs) - 1, num=min(_MAX_CHECKPOINTS, len(series.runs))).round())
    chosen = [(int(place), series.runs[int(place)]) for place in places]
    measured: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for _, run in chosen:
        table = store.table("samples", run_id=run.run_id).to_table(columns=["num_completion_tokens", "score"])
        scored = table.drop_null()
        measured.append((scored["num_completion_tokens"].to_numpy(), scored["score"].to_numpy()))
    lengths = np.concatenate([length for length, _ in measured]) if measured else np.empty(0)
    if not len(lengths):
        return
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _NUM_BINS + 1)).round().astype(int))
    edges = edges if len(edges) > 1 else np.array([edges[0], edges[0] + 1])
    for (place, run), (length, score) in zip(chosen, measured, strict=True):
        bins = np.clip(np.searchsorted(edges, length, side="right") - 1, 0, len(edges) - 2)
        for number in np.unique(bins):
            inside = bins == number
            last = number == len(edges) - 2
            yield LengthBin(
                dataset=series.dataset,
                series=series.name,
                checkpoint=run.checkpoint if run.global_step is None else f"step {run.global_step}",
                place=place,
                label=f"{edges[number]}–{edges[number + 1] - (0 if last else 1)}",
                order=int(number),
                accuracy=float(score[inside].mean()),
                num_samples=int(inside.sum()),
            )


def choose_samples(store: Store, overview: Overview, *, num_samples: int = NUM_SAMPLES) -> list[dict[str, Any]]:
    """Return samples of the latest run of each line: as many of each verdict and flip as there are, up to even shares.

    A sample has flipped where the run before scored the same problem and repeat otherwise. The choice is a function of
    the samples alone: the first of each stratum in order of a hash of their ids.
    """
    share = max(1, num_samples // len(overview.series))
    return [sample for series in overview.series for sample in _choose(store, series, share)]


def _choose(store: Store, series: Series, share: int) -> list[dict[str, Any]]:
    light = ["item_id", "repeat", "verdict", "score"]
    samples = store.table("samples", run_id=series.latest.run_id)
    verdicts = samples.to_table(columns=light)
    before = (
        _scores(store.table("samples", run_id=series.runs[-2].run_id).to_table(columns=light))
        if len(series.runs) > 1
        else {}
    )
    strata: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    flips: dict[int, str] = {}
    for row, each in enumerate(verdicts.to_pylist()):
        flips[row] = _flip(before.get((each["item_id"], each["repeat"])), each["score"])
        strata[each["verdict"], flips[row]].append(row)
    keys = [f"{each['item_id']}:{each['repeat']}" for each in verdicts.select(["item_id", "repeat"]).to_pylist()]
    chosen = _even_choice([sorted(rows, key=lambda row: _hash(keys[row])) for _, rows in sorted(strata.items())], share)
    found = samples.take(pa.array(chosen), columns=list(_COLUMNS)).to_pylist(maps_as_pydicts="strict")
    return [_shown(sample, series, flips[row]) for row, sample in zip(chosen, found, strict=True)]


def _scores(table: pa.Table) -> dict[tuple[str, int], float | None]:
    return {(row["item_id"], row["repeat"]): row["score"] for row in table.to_pylist()}


def _flip(before: float | None, after: float | None) -> str:
    if before is None or after is None or before == after:
        return ""
    return "became right" if after > before else "became wrong"


def _even_choice(strata: Sequence[Sequence[int]], share: int) -> list[int]:
    """Return up to `share` rows, from each stratum in turn until it is used up."""
    chosen: list[int] = []
    for depth in range(max(map(len, strata), default=0)):
        for rows in strata:
            if depth < len(rows) and len(chosen) < share:
                chosen.append(rows[depth])
        if len(chosen) >= share:
            break
    return sorted(chosen)


def _hash(key: str) -> bytes:
    from hashlib import blake2b

    return blake2b(key.encode(), digest_size=8).digest()


def _shown(sample: dict[str, Any], series: Series, flip: str) -> dict[str, Any]:
    texts = {name: _cut(sample[name]) for name in _TEXTS}
    subsets = [f"{key}={value}" for key, value in sample.pop("subsets").items()]
    return sample | texts | {"series": series.name, "flip": flip, "subsets": subsets}


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_LETTERS:
        return text
    half = _MAX_LETTERS // 2
    return f"{text[:half]}\n… {len(text) - _MAX_LETTERS:,} letters left out; the store has them …\n{text[-half:]}"
