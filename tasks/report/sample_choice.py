"""What a report shows of the samples: a stratified choice to read, and accuracy by length of the answer."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow.dataset as pads

from infra.store import Store
from tasks.report.sample_search import SHOWN_COLUMNS, name_checkpoint, read_verdicts, to_shown
from tasks.report.series import Overview, Series

NUM_SAMPLES: Final = 400
"""Samples that a self-contained file holds over all lines: about 2 MB of text."""
_MAX_LETTERS: Final = 12_000
"""Letters of one text that are kept; the whole text stays in the store."""
_NUM_BINS: Final = 6
_MAX_CHECKPOINTS: Final = 10
"""Checkpoints of a heatmap; of more, those evenly spread over training."""


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
                checkpoint=name_checkpoint(run),
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
    verdicts = read_verdicts(store, series, len(series.runs) - 1).to_pylist()
    strata: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in verdicts:
        strata[each["verdict"], each["flip"]].append(each)
    ordered = [sorted(members, key=_hash) for _, members in sorted(strata.items())]
    chosen = {(each["item_id"], each["repeat"]): each["flip"] for each in _even_choice(ordered, share)}
    wanted = pads.field("item_id").isin([item for item, _ in chosen])
    table = store.table("samples", run_id=series.latest.run_id).to_table(columns=list(SHOWN_COLUMNS), filter=wanted)
    found = {(row["item_id"], row["repeat"]): row for row in table.to_pylist(maps_as_pydicts="strict")}
    common = {"series": series.name, "checkpoint": name_checkpoint(series.latest)}
    return [to_shown(_cut_texts(found[key])) | common | {"flip": flip} for key, flip in sorted(chosen.items())]


def _even_choice(strata: Sequence[Sequence[dict[str, Any]]], share: int) -> list[dict[str, Any]]:
    """Return up to `share` members, from each stratum in turn until it is used up."""
    chosen: list[dict[str, Any]] = []
    for depth in range(max(map(len, strata), default=0)):
        for members in strata:
            if depth < len(members) and len(chosen) < share:
                chosen.append(members[depth])
        if len(chosen) >= share:
            break
    return chosen


def _hash(sample: dict[str, Any]) -> bytes:
    return blake2b(f"{sample['item_id']}:{sample['repeat']}".encode(), digest_size=8).digest()


def _cut_texts(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {name: _cut(sample[name]) for name in ("prompt", "completion", "gold", "answer", "error")}


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_LETTERS:
        return text
    half = _MAX_LETTERS // 2
    return f"{text[:half]}\n… {len(text) - _MAX_LETTERS:,} letters left out; the store has them …\n{text[-half:]}"
