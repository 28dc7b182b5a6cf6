"""Runs of words and MinHash against plain sets, and planted near-duplicates found among many texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refresh.near_duplicates import NearDuplicates, jaccard
from tasks.refresh.shingles import HashRows, Vocabulary, find_boilerplate, hash_runs, normalise, split_words
from tests.support.made_texts import edited, made_texts

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), max_size=9).map(" ".join), max_size=8)


def words_of(texts: list[str]) -> HashRows:
    return Vocabulary().hash_words([normalise(text) for text in texts])


def shingles(texts: list[str], length: int = 3) -> HashRows:
    return hash_runs(words_of(texts), length)


def repeats(texts: list[str], threshold: float) -> list[bool]:
    return NearDuplicates(words_of(texts), threshold).find_repeats(range(len(texts))).tolist()


def runs_of(text: str, length: int) -> list[tuple[str, ...]]:
    words = split_words(normalise(text))
    if 0 < len(words) < length:
        return [tuple(words)]
    return [tuple(words[place : place + length]) for place in range(len(words) - length + 1)]


def test_words_unify_form_and_keep_signs() -> None:
    assert split_words(normalise("Ｗhat is (3+4)*2?  “Half”!")) == [
        "what",
        "is",
        "(",
        "3",
        "+",
        "4",
        ")",
        "*",
        "2",
        "half",
    ]
    assert split_words("数学abc 題") == ["数", "学", "abc", "題"]
    assert normalise("  Ａ\tb\nC ") == "a b c"
    assert normalise("3 - 4") != normalise("3 + 4")


@given(TEXTS, st.integers(1, 6))
def test_runs_are_equal_where_words_are(texts: list[str], length: int) -> None:
    rows = shingles(texts, length)
    expected = [run for text in texts for run in runs_of(text, length)]
    assert rows.counts.tolist() == [len(runs_of(text, length)) for text in texts]
    seen = dict(zip(rows.hashes.tolist(), expected, strict=True))
    assert len(seen) == len(set(expected))
    assert [seen[value] for value in rows.hashes.tolist()] == expected


@given(st.lists(st.text(max_size=40), max_size=4))
def test_words_of_any_text_are_those_that_it_is_split_into(texts: list[str]) -> None:
    forms = [normalise(text) for text in texts]
    together = Vocabulary().hash_words(forms)
    for index, form in enumerate(forms):
        alone = Vocabulary().hash_words(split_words(form)).hashes
        assert together.row(index).tolist() == alone.tolist()


@given(TEXTS, st.data())
def test_rows_are_taken_and_thinned_as_lists_are(texts: list[str], data: st.DataObject) -> None:
    rows = shingles(texts, 2)
    order = data.draw(st.permutations(range(len(texts))))
    taken = rows.take(np.array(order, dtype=np.int64))
    assert [taken.row(place).tolist() for place in range(len(order))] == [rows.row(index).tolist() for index in order]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows.hashes), max_size=len(rows.hashes))), bool)
    kept = rows.keep(mask)
    assert kept.counts.sum() == mask.sum()
    for index in range(len(texts)):
        part = slice(rows.starts[index], rows.starts[index + 1])
        assert kept.row(index).tolist() == rows.hashes[part][mask[part]].tolist()


def test_hashes_are_the_same_in_every_process() -> None:
    assert shingles(["one two three"]).hashes.tolist() == [7_354_385_226_557_867_198]


def test_other_texts_are_found_with_their_exact_similarity() -> None:
    rng = np.random.default_rng(5)
    texts = made_texts(rng, 2_000)
    copies = [edited(rng, text, index % 4) for index, text in enumerate(texts)]
    first, second = shingles(texts), shingles(copies)
    exact = {index: jaccard(first.row(index), second.row(index)) for index in range(2_000)}
    alike = {index: value for index, value in exact.items() if value >= 0.8}
    found = list(NearDuplicates(words_of(texts), 0.8).search(words_of(copies)))
    assert all(one.text == one.indexed and one.similarity == exact[one.text] for one in found)
    # a pair at the threshold is missed once in 500 times
    assert 0.997 * len(alike) <= len(found) <= len(alike)
    assert 950 < len(alike) < 1_550


def test_planted_near_duplicates_are_found_and_nothing_else() -> None:
    rng = np.random.default_rng(7)
    texts = made_texts(rng, 3_000)
    # one word of 45 leaves a similarity of 0.87
    texts += [edited(rng, texts[index], 1) for index in range(300)]
    texts += [edited(rng, texts[index], 8) for index in range(300, 600)]
    found = np.array(repeats(texts, 0.8))
    assert found[:3_000].sum() == 0
    assert found[3_000:3_300].sum() >= 298
    assert found[3_300:].sum() == 0


def test_a_family_of_copies_keeps_its_first() -> None:
    rng = np.random.default_rng(11)
    [text] = made_texts(rng, 1)
    family = [text, *(edited(rng, text, 1) for _ in range(9))]
    assert repeats(family, 0.7) == [False] + [True] * 9
    assert repeats(["", "", "a", "a"], 0.8) == [False, False, False, True]
    assert repeats([], 0.8) == []


def test_a_text_is_compared_with_what_stays_and_with_nothing_else() -> None:
    rng = np.random.default_rng(12)
    [text] = made_texts(rng, 1)
    other = edited(rng, text, 1)
    index = NearDuplicates(words_of([text, other, edited(rng, other, 1)]), 0.8)
    assert index.find_repeats([0, 1, 2]).tolist() == [False, True, False]
    assert index.find_repeats([2], beside=[0, 1]).tolist() == [True]
    assert index.find_repeats([2, 0]).tolist() == [False, False]


def test_wording_that_many_texts_share_does_not_make_them_alike() -> None:
    rng = np.random.default_rng(13)
    frame = " ".join(made_texts(rng, 1, num_words=60))
    texts = [f"{frame} {text}" for text in made_texts(rng, 100, num_words=6)]
    assert len(find_boilerplate(shingles(texts))) == pytest.approx(58, abs=1)
    assert sum(repeats(texts, 0.8)) == 0
    # twenty texts do not make wording common
    assert sum(repeats(texts[:20], 0.8)) == 19
