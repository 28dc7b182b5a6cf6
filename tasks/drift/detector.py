"""Has what is asked changed? Reference and current rows, feature by feature.

Owns which features are tested and the decision: significant over all features (Holm) AND at least as large as the
floor; either alone is noise on small sets or blind on large ones. docs/drift.md has the rule and its measured rates.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from infra.arrays import FloatArray
from schemas.drift import Bar, DriftConfig, DriftReport, FeatureDrift
from schemas.errors import ConfigError, DatasetError
from tasks.drift import two_samples
from tasks.drift.features import ABSENT, COLUMNS, Features, extract_features
from tasks.drift.texts import TextTest, compare_texts
from tasks.drift.two_samples import Level
from tasks.drift.user_features import load_feature
from tasks.drift.vectors import compare_vectors

SHARE_FLOOR: Final = 0.3
"""Floor of a share of rows, as a part of drift.threshold: 3 points at 0.1."""
TEXT_FLOOR: Final = 0.2
"""Floor of the distance between the centroids of texts, as a part of drift.threshold."""

_NUM_TEXT_TESTS: Final = 3
_NUM_NAMED: Final = 3
_NUM_BARS: Final = 20
_MAX_NAME: Final = 60


def detect_drift(reference: pa.Table, current: pa.Table, *, config: DriftConfig | None = None) -> DriftReport:
    """Return how `current` differs from `reference` in each feature that both have.

    Args:
        reference: columns item_id, prompt and any of answer, subset (`key=value`, or a list of such), and
            num_prompt_tokens; an absent column is unknown, not an error. One row per problem.
        current: the same.
        config: level, floors and features of the user's own.

    Raises:
        DatasetError: a table without rows, tables that share no feature, or a column of a type that cannot be read.
        ConfigError: a feature of the user's own cannot be imported, fails on a row, or is constant.
    """
    config = config or DriftConfig()
    for side, table in (("reference", reference), ("current table", current)):
        if not table.num_rows:
            raise DatasetError(f"the {side} has no rows, expected at least one: nothing can be compared")
    user_features = {path: load_feature(path) for path in config.features}
    before, after = (extract_features(table, user_features) for table in (reference, current))
    _refuse_constants(config.features, before, after)
    tested = _test_all(before, after, config)
    if not tested:
        raise DatasetError(
            f"the tables share no feature: the reference has the columns {', '.join(reference.column_names)}, the "
            f"current one {', '.join(current.column_names)}; expected prompt or any of {', '.join(COLUMNS[1:])} in both"
        )
    decided = decide(tested, config.alpha)
    return DriftReport(
        drifted=any(feature.drifted for feature in decided),
        features=decided,
        num_reference=before.num_rows,
        num_current=after.num_rows,
        unknown=_one_sided(before, after, decided),
    )


def _test_all(before: Features, after: Features, config: DriftConfig) -> list[FeatureDrift]:
    numbers = [name for name in before.numbers if name in after.numbers]
    categories = _shared_categories(before, after)
    vectors = [name for name in before.vectors if name in after.vectors]
    has_texts = bool(before.prompts and after.prompts)
    num_features = len(numbers) + len(categories) + len(vectors) + has_texts * _NUM_TEXT_TESTS
    level = Level(alpha=config.alpha, num_features=max(num_features, 1))
    tested = [_test_numbers(name, before.numbers[name], after.numbers[name], level, config) for name in numbers]
    tested += [_test_categories(name, *counts, level, config) for name, counts in categories.items()]
    tested += [_test_vectors(name, before.vectors[name], after.vectors[name], level, config) for name in vectors]
    return tested + (_test_texts(before.prompts, after.prompts, level, config) if has_texts else [])


def _test_numbers(name: str, before: FloatArray, after: FloatArray, level: Level, config: DriftConfig) -> FeatureDrift:
    tested = two_samples.kolmogorov_smirnov(before, after)
    distances = two_samples.distances(*two_samples.decile_counts(before, after))
    return FeatureDrift(
        name=name,
        kind="number",
        test="Kolmogorov-Smirnov",
        statistic=tested.statistic,
        effect=two_samples.standardised_wasserstein(before, after),
        effect_floor=config.threshold,
        p_value=tested.p_value,
        drifted=False,
        underpowered=False,
        smallest_detectable=two_samples.smallest_shift(len(before), len(after), level.strict),
        **distances._asdict(),
        num_reference=len(before),
        num_current=len(after),
        details=f"median {np.median(before):.4g} -> {np.median(after):.4g}",
        bars=number_bars(before, after),
    )


def _test_categories(
    name: str, before: Counter[str], after: Counter[str], level: Level, config: DriftConfig
) -> FeatureDrift:
    names = sorted(before | after)
    reference, current = (np.array([counts[name] for name in names], np.int64) for counts in (before, after))
    tested = two_samples.permuted_chi_square(reference, current, level)
    unseen = two_samples.unseen_p_value(reference, current)
    # A category that the reference cannot have missed by luck is a change however few rows it has.
    is_new = 2 * unseen <= level.strict
    return FeatureDrift(
        name=name,
        kind="category",
        test="chi-square with permuted labels; categories never seen before, exactly",
        statistic=tested.statistic,
        effect=two_samples.total_variation(reference, current),
        effect_floor=0.0 if is_new else SHARE_FLOOR * config.threshold,
        p_value=min(1.0, 2 * min(tested.p_value, unseen)),
        drifted=False,
        underpowered=False,
        smallest_detectable=two_samples.smallest_move(reference, current, level.strict),
        **two_samples.distances(reference, current)._asdict(),
        num_reference=int(reference.sum()),
        num_current=int(current.sum()),
        details=_describe_categories(before, after),
        bars=tuple(
            Bar(label=name[:_MAX_NAME], reference=before[name] / before.total(), current=after[name] / after.total())
            for name in sorted(names, key=lambda name: (-before[name] - after[name], name))[:_NUM_BARS]
        ),
    )


def _test_vectors(name: str, before: FloatArray, after: FloatArray, level: Level, config: DriftConfig) -> FeatureDrift:
    if before.shape[1] != after.shape[1]:
        raise ConfigError(
            f"drift.features: {name} returned vectors of {before.shape[1]} numbers for the reference and of "
            f"{after.shape[1]} for the current rows; expected one length"
        )
    return FeatureDrift(
        name=name,
        kind="vector",
        test="distance of the centroids, permuted labels",
        **compare_vectors(before, after, level)._asdict(),
        effect_floor=TEXT_FLOOR * config.threshold,
        drifted=False,
        underpowered=False,
    )


def number_bars(before: FloatArray, after: FloatArray) -> tuple[Bar, ...]:
    """Return shares in bins of equal width; the outer bins take in the tails beyond the middle 98% of the values."""
    low, high = np.quantile(np.concatenate([before, after]), [0.01, 0.99])
    edges = np.unique(np.linspace(low, high, _NUM_BARS + 1))
    shares = [
        np.bincount(np.searchsorted(edges[1:-1], side, side="right"), minlength=max(len(edges) - 1, 1)) / len(side)
        for side in (before, after)
    ]
    labels = [f"{start:.4g} to {end:.4g}" for start, end in pairwise(edges)] or [f"{low:.4g}"]
    return tuple(
        Bar(label=label, reference=float(first), current=float(second))
        for label, first, second in zip(labels, *shares, strict=True)
    )


def _describe_categories(before: Counter[str], after: Counter[str]) -> str:
    """Name the categories never seen before, else those whose share changed most."""
    new = sorted((name for name in after if not before[name]), key=lambda name: (-after[name], name))
    if new:
        named = ", ".join(f"{name[:_MAX_NAME]!r} ({after[name]} rows)" for name in new[:_NUM_NAMED])
        rest = f" and {len(new) - _NUM_NAMED} more" if len(new) > _NUM_NAMED else ""
        return f"never seen before: {named}{rest}"
    shares = {name: (before[name] / before.total(), after[name] / after.total()) for name in before}
    moved = sorted(shares, key=lambda name: (-abs(shares[name][1] - shares[name][0]), name))
    return ", ".join(
        f"{name[:_MAX_NAME]!r} {shares[name][0]:.1%} -> {shares[name][1]:.1%}" for name in moved[:_NUM_NAMED]
    )


def _test_texts(before: Sequence[str], after: Sequence[str], level: Level, config: DriftConfig) -> list[FeatureDrift]:
    tests = compare_texts(before, after, level)

    def feature(name: str, test: str, outcome: TextTest, floor: float) -> FeatureDrift:
        return FeatureDrift(
            name=name,
            kind="text",
            test=f"{test}, permuted labels",
            **outcome._asdict(),
            details=", ".join(f"{bar.label!r} in {bar.reference:.1%} -> {bar.current:.1%}" for bar in outcome.bars),
            effect_floor=floor * config.threshold,
            drifted=False,
            underpowered=False,
            num_reference=tests.num_reference,
            num_current=tests.num_current,
        )

    return [
        feature("text", "distance of the TF-IDF centroids", tests.text, TEXT_FLOOR),
        feature("words", "largest change of a word's share", tests.words, SHARE_FLOOR),
        feature("near_copies", "rate of pairs that are near copies", tests.copies, SHARE_FLOOR),
    ]


def decide(tested: Sequence[FeatureDrift], alpha: float) -> tuple[FeatureDrift, ...]:
    """Mark the features that drifted, and those where a change of the floor's size could have gone unseen."""
    significant = two_samples.holm([1.0 if one.p_value is None else one.p_value for one in tested], alpha)
    decided: list[FeatureDrift] = []
    for one, is_significant in zip(tested, significant, strict=True):
        drifted = is_significant and one.effect is not None and one.effect > one.effect_floor
        could_miss = one.smallest_detectable is not None and one.smallest_detectable > one.effect_floor
        decided.append(one.model_copy(update={"drifted": drifted, "underpowered": could_miss and not drifted}))
    return tuple(decided)


def _shared_categories(before: Features, after: Features) -> dict[str, tuple[Counter[str], Counter[str]]]:
    """Return the counts of both sides. Where both have subsets, a key that one side never has is absent there."""
    shared: dict[str, tuple[Counter[str], Counter[str]]] = {}
    both_have_subsets = before.has_subsets and after.has_subsets
    for name in dict.fromkeys([*before.categories, *after.categories]):
        is_subset = name.startswith("subset") and both_have_subsets
        first, second = (
            side.categories.get(name) or Counter({ABSENT: side.num_rows} if is_subset else {})
            for side in (before, after)
        )
        if first and second:
            shared[name] = (first, second)
    return shared


def _refuse_constants(paths: Sequence[str], before: Features, after: Features) -> None:
    for path in paths:
        values: set[object] = set()
        for side in (before, after):
            values |= set(side.numbers.get(path, np.empty(0)).tolist()) | set(side.categories.get(path, ()))
            values |= set(map(tuple, side.vectors.get(path, np.empty((0, 1))).tolist()))
        if len(values) == 1:
            raise ConfigError(
                f"drift.features: {path} returned {values.pop()!r} for every row of both tables, so that it can tell "
                "nothing; mend the function or remove it"
            )


def _one_sided(before: Features, after: Features, tested: Sequence[FeatureDrift]) -> tuple[str, ...]:
    """Name the features that only one side has."""
    known = {feature.name for feature in tested}
    return tuple(
        f"{name}: only the {side} has values"
        for side, features in (("reference", before), ("current table", after))
        for name in features.names
        if name not in known
    )
