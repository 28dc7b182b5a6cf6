"""From the section `valid_dataset` to items ready for planning: unique ids, parseable golds, non-empty prompts.

Every row is looked at before anything is refused, so that one run shows all that is to be mended.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.datasets.adapters.detection import choose_adapter
from infra.datasets.cells import has_cell, shown
from infra.datasets.conversation import choose_suffix, compose
from infra.datasets.defects import Defects
from infra.datasets.digests import cluster_name, content_id, dataset_version
from infra.datasets.media import find_media
from infra.datasets.naming import dataset_name
from infra.datasets.rows import Adapter, Problem, Row, Source, SourceRow
from infra.datasets.sources import folder, hub, local_file, reasoning_gym_tasks
from schemas.dataset import ChatMessage, EvalItem, LoadedDataset
from schemas.errors import DatasetError
from schemas.paths import expand_user
from schemas.valid_dataset import ValidDatasetConfig

logger = logging.getLogger(__name__)

CheckGolds = Callable[[Sequence[str]], Sequence[str | None]]
"""For each gold, why it cannot be parsed, or None when it can."""

_ADVICE = (
    "Nothing was launched. Mend the rows, name the right columns (valid_dataset.columns), leave out problems without "
    "an answer by their gold (valid_dataset.exclude_golds), or leave out and count every such row "
    "(valid_dataset.invalid_rows=skip)"
)

_MAX_CHARS: Final = 2**31
"""Of all problems together: a compressed file of some kB can hold more text than the memory does."""


@dataclass(slots=True, kw_only=True)
class _Reading:
    """What one pass over the rows has found; `numbers` are the rows of `items`."""

    defects: Defects
    keeps_rows: bool
    max_prompt_chars: int | None
    num_chars: int = 0
    """Characters of all problems read."""
    items: list[EvalItem] = field(default_factory=list[EvalItem])
    numbers: list[int] = field(default_factory=list[int])
    content_ids: list[str] = field(default_factory=list[str])
    """Digest of the problem and gold of each of `items`."""
    num_rows: int = 0
    num_excluded: int = 0


def load_dataset(
    config: ValidDatasetConfig,
    *,
    seed: int,
    check_golds: CheckGolds,
    keeps_rows: bool = False,
    max_prompt_chars: int | None = None,
) -> LoadedDataset:
    """Return the items that `config` names, validated.

    Args:
        config: The section `valid_dataset`.
        seed: The run's seed; procedural tasks draw from it unless their path has a seed of its own.
        check_golds: The grader's word on golds; asked once, with every distinct gold. Procedural golds are not asked
            for: their own task grades them.
        keeps_rows: Whether the items bring the rows that they were made of.
        max_prompt_chars: Longest problem that the model can take; a longer one is refused as it is read.

    Raises:
        DatasetError: the source cannot be read, has no rows, or has rows that cannot be graded; names the rows.
    """
    if config.path.startswith(reasoning_gym_tasks.PREFIX):
        return _build(config, reasoning_gym_tasks.load_tasks(config, seed=seed), notes=())
    source = open_source(config)
    reading = _read(config, source.rows, keeps_rows=keeps_rows, max_prompt_chars=max_prompt_chars)
    _check_ids(reading)
    _check_parseable(reading, check_golds)
    items = _usable_items(config, reading)
    notes = source.notes
    if reading.num_excluded:
        notes += (f"{reading.num_excluded:,} rows left out: their gold is in valid_dataset.exclude_golds",)
    items, num_repeated = _cluster_repeated(items)
    if num_repeated:
        notes += (f"{num_repeated:,} rows ask what another row asks: they count as one cluster in error bars",)
    return _build(config, items, notes).model_copy(update={"skipped": reading.defects.rows})


def load_candidates(config: ValidDatasetConfig, *, seed: int) -> list[EvalItem]:
    """Return items to choose from, with the rows that they were made of: neither ids nor golds are checked.

    Raises:
        DatasetError: the source cannot be read, or has rows that are no problems.
    """
    if config.path.startswith(reasoning_gym_tasks.PREFIX):
        return reasoning_gym_tasks.load_tasks(config, seed=seed)
    reading = _read(config, open_source(config).rows, keeps_rows=True)
    items = _usable_items(config, reading)
    if len(reading.defects):
        logger.warning("%s: %d rows cannot be used and are left out", config.path, len(reading.defects))
    return items


def open_source(config: ValidDatasetConfig) -> Source:
    """Return the rows of a file, folder or hub dataset as they are.

    Raises:
        DatasetError: there is no such source, or it is of no known kind.
    """
    try:
        path = expand_user(config.path)
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as exc:  # a name too long, a folder that may not be entered
        raise DatasetError(f"{config.path!r} cannot be looked at: {exc}; correct valid_dataset.path") from exc
    if is_folder:
        return folder.open_folder(path, config)
    if is_there:
        return local_file.open_file(path, config)
    if hub.is_hub_id(config.path) and path.suffix.lower() not in local_file.READERS:
        return hub.open_hub_dataset(config)
    raise local_file.missing_path_error(path)


def _read(
    config: ValidDatasetConfig, rows: Iterator[SourceRow], *, keeps_rows: bool, max_prompt_chars: int | None = None
) -> _Reading:
    reading = _Reading(defects=Defects(config.path), keeps_rows=keeps_rows, max_prompt_chars=max_prompt_chars)
    adapter: Adapter | None = None
    unseen: dict[str, str] = {}
    for row in rows:
        reading.num_rows += 1
        if row.problem:
            reading.defects.add(row.number, row.problem)
            continue
        if adapter is None:
            adapter = _choose_adapter(config, row.values)
            unseen = dict(adapter.optional)
        unseen = {column: key for column, key in unseen.items() if not has_cell(row.values, column)}
        _read_row(config, row, adapter, reading)
        if reading.num_chars > _MAX_CHARS:
            raise DatasetError(
                f"{config.path}: the problems up to row {row.number:,} have more than {_MAX_CHARS:,} characters "
                "together; set valid_dataset.limit"
            )
        if len(reading.items) == config.limit:
            break
    if unseen:
        column, key = next(iter(unseen.items()))
        raise DatasetError(f"{config.path}: column {column!r} ({key}) is in none of the {reading.num_rows:,} rows read")
    return reading


def _choose_adapter(config: ValidDatasetConfig, first_row: Row) -> Adapter:
    try:
        return choose_adapter(config, first_row)
    except DatasetError as exc:
        media = find_media(first_row)
        hint = f"; {_describe_media(media)}" if media is not None else ""
        raise DatasetError(f"{config.path}: {exc}{hint}") from None


def _describe_media(column: str) -> str:
    return f"column {column!r} holds an image, audio or video, which no workflow sends to the model"


def _read_row(config: ValidDatasetConfig, row: SourceRow, adapter: Adapter, reading: _Reading) -> None:
    media = find_media(row.values)
    if media is not None:
        reading.defects.add(row.number, _describe_media(media))
        return
    try:
        problem = adapter.read(row.values)
        if problem.gold in config.exclude_golds:
            reading.num_excluded += 1
            return
        _count_chars(problem, reading)
        digest = content_id(problem.turns, problem.gold)
    except DatasetError as exc:
        reading.defects.add(row.number, str(exc))
        return
    item = EvalItem(
        item_id=problem.item_id or digest,
        messages=compose(problem.turns, config=config, default_suffix=adapter.prompt_suffix),
        gold=problem.gold,
        subsets=problem.subsets,
        cluster_id=None if problem.cluster is None else cluster_name(problem.cluster),
        solution=problem.solution,
        prompt_suffix=choose_suffix(config, adapter.prompt_suffix),
        row=_as_json(row.values) if reading.keeps_rows else "",
    )
    reading.items.append(item)
    reading.numbers.append(row.number)
    reading.content_ids.append(digest)


def _count_chars(problem: Problem, reading: _Reading) -> None:
    num_chars = sum(len(turn.content) for turn in problem.turns)
    reading.num_chars += num_chars
    if reading.max_prompt_chars is not None and num_chars > reading.max_prompt_chars:
        raise DatasetError(
            f"its problem has {num_chars:,} characters, the model's context holds at most {reading.max_prompt_chars:,} "
            "(of its longest token alone)"
        )


def _as_json(row: Row) -> str:
    """Return a row as JSON; what JSON has no form for, such as a date, as its text."""
    return json.dumps(dict(row), default=str)


def _check_ids(reading: _Reading) -> None:
    first: dict[str, int] = {}
    for place, item in enumerate(reading.items):
        earlier = first.setdefault(item.item_id, place)
        if earlier != place:
            reading.defects.add(reading.numbers[place], _describe_repetition(reading, earlier, place))


def _describe_repetition(reading: _Reading, earlier: int, place: int) -> str:
    row, named = reading.numbers[earlier], reading.items[place].item_id
    if reading.content_ids[earlier] != reading.content_ids[place]:
        return f"has the id {shown(named)} of row {row}; ids must be unique"
    has_id = "" if named == reading.content_ids[place] else f" and has its id {shown(named)}"
    return f"is the same problem as row {row}{has_id}; to ask each problem several times, set gconfig.n_samples"


def _check_parseable(reading: _Reading, check_golds: CheckGolds) -> None:
    golds = list(dict.fromkeys(item.gold for item in reading.items))
    reasons = {gold: reason for gold, reason in zip(golds, check_golds(golds), strict=True) if reason is not None}
    if not reasons:
        return
    for item, number in zip(reading.items, reading.numbers, strict=True):
        if item.gold in reasons:
            reading.defects.add(number, f"gold {shown(item.gold)} cannot be graded: {reasons[item.gold]}")


def _usable_items(config: ValidDatasetConfig, reading: _Reading) -> list[EvalItem]:
    """Return the items of the rows without a defect.

    Raises:
        RefusedRowsError: a row has one, and `invalid_rows` is `refuse`; or every row has.
        DatasetError: there is no row, or none is left.
    """
    if not reading.num_rows:
        raise DatasetError(f"{config.path}: the dataset is empty, expected at least one row")
    if config.invalid_rows == "refuse" or len(reading.defects) == reading.num_rows:
        reading.defects.raise_if_any(reading.num_rows, _ADVICE)
    pairs = zip(reading.items, reading.numbers, strict=True)
    items = [item for item, number in pairs if number not in reading.defects]
    if not items:
        raise DatasetError(
            f"{config.path}: all {reading.num_rows:,} rows are left out by valid_dataset.exclude_golds "
            f"{list(config.exclude_golds)} or valid_dataset.invalid_rows, expected at least one item"
        )
    return items


def _cluster_repeated(items: Sequence[EvalItem]) -> tuple[list[EvalItem], int]:
    """Put items that ask the same into one cluster, unless the data names clusters; return them, and how many do.

    Their answers are no independent evidence: thirty problems under 960 ids are thirty clusters.
    """
    by_question: dict[tuple[ChatMessage, ...], list[int]] = {}
    for place, item in enumerate(items):
        if item.cluster_id is None:
            by_question.setdefault(item.messages, []).append(place)
    clustered, num_repeated = list(items), 0
    for places in by_question.values():
        if len(places) > 1:
            num_repeated += len(places) - 1
            name = items[places[0]].item_id
            for place in places:
                clustered[place] = items[place].model_copy(update={"cluster_id": name})
    return clustered, num_repeated


def _build(config: ValidDatasetConfig, items: Sequence[EvalItem], notes: tuple[str, ...]) -> LoadedDataset:
    return LoadedDataset(name=dataset_name(config), version=dataset_version(items), items=tuple(items), notes=notes)
