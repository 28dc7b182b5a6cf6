"""What was planted in training data is found, with its kind, its place and the text that matched."""

import numpy as np
import pytest

from infra.datasets.texts import RowText
from schemas.dataset import ChatMessage, EvalItem
from tasks.refresh.contamination import Found, Problem, SearchLimits, TrainingSearch
from tasks.refresh.near_duplicates import NearDuplicates
from tasks.refresh.shingles import Vocabulary, normalise
from tests.support.made_texts import edited, made_texts


def make_problem(index: int, text: str) -> Problem:
    item = EvalItem(item_id=f"p{index:03}", messages=(ChatMessage(role="user", content=text),), gold="1")
    return Problem(item, text, normalise(text))


def search(
    problems: list[str], training: dict[str, list[str]], *, max_overlap: float = 0.0, wordless: bool = False
) -> Found:
    words = Vocabulary().hash_words(["" if wordless else normalise(text) for text in problems])
    similar = NearDuplicates(words, threshold=0.75)
    limits = SearchLimits(ngram=13, max_overlap=max_overlap)
    looking = TrainingSearch([make_problem(index, text) for index, text in enumerate(problems)], words, similar, limits)
    for source, texts in training.items():
        looking.look_through(source, [RowText(row, text) for row, text in enumerate(texts, 1)])
    return looking.finish()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Fifty problems and a thousand training texts, by chance of no likeness."""
    return made_texts(np.random.default_rng(17), 1_050)


def test_each_kind_is_found_where_it_was_planted(texts: list[str]) -> None:
    rng = np.random.default_rng(19)
    problems, training = texts[:50], texts[50:]
    words = problems[1].split()
    training[7] = f"  {problems[0].upper()}\n"
    training[9] = f"{training[9]} {' '.join(words[5:18])} {training[10]}"
    short = made_texts(rng, 1, num_words=25)[0]
    problems[2] = short
    # every 13-gram of 25 words holds the middle one
    training[11] = " ".join([*short.split()[:12], "otherwise", *short.split()[13:]])
    found = search(problems, {"a": training[:500], "b": training[500:]})
    assert np.flatnonzero(found.is_contaminated).tolist() == [0, 1, 2]
    exact, ngram, minhash = found.report.matches
    assert (exact.kind, exact.source, exact.row, exact.overlap) == ("exact", "a", 8, 1.0)
    assert (ngram.kind, ngram.source, ngram.row) == ("ngram", "a", 10)
    assert ngram.text == " ".join(words[5:18])
    assert ngram.overlap == pytest.approx(1 / 33)
    assert (minhash.kind, minhash.row) == ("minhash", 12)
    assert minhash.overlap == pytest.approx(20 / 26)


def test_nothing_is_found_where_nothing_was_planted(texts: list[str]) -> None:
    report = search(texts[:50], {"a": texts[50:]}).report
    assert (report.num_checked, report.num_training_rows, report.share_removed) == (50, 1_000, 0.0)
    assert report.matches == ()


def test_many_planted_near_duplicates_are_found() -> None:
    rng = np.random.default_rng(23)
    texts = made_texts(rng, 3_000)
    copies = [edited(rng, text, 1) for text in texts[:300]]
    found = search(texts[:1_000], {"a": [*texts[1_000:], *copies]}, max_overlap=0.9)
    assert found.is_contaminated[:300].sum() >= 298
    assert found.is_contaminated[300:].sum() == 0
    assert len(found.report.matches) == 20


def test_the_share_of_ngrams_that_may_occur_is_a_limit(texts: list[str]) -> None:
    problem = texts[0]
    training = {"a": [" ".join([*problem.split()[:23], *texts[60].split()])]}
    # 11 of 33 n-grams
    assert search([problem], training, max_overlap=0.32).report.num_ngram == 1
    assert search([problem], training, max_overlap=0.34).report.num_ngram == 0


def test_a_problem_without_words_is_found_as_it_is_only(texts: list[str]) -> None:
    training = {"a": [texts[0], f"{texts[1]} more"]}
    report = search(texts[:2], training, wordless=True).report
    assert (report.num_exact, report.num_ngram, report.num_minhash) == (1, 0, 0)


def test_equal_problems_are_all_found(texts: list[str]) -> None:
    found = search([texts[0], texts[1], texts[0]], {"a": [texts[0]]})
    assert found.is_contaminated.tolist() == [True, False, True]


def test_a_match_shows_at_most_200_characters(texts: list[str]) -> None:
    found = search([" ".join(texts[:9])], {"a": [" ".join(texts[:9])], "empty": []})
    assert len(found.report.matches[0].text) == 200
    assert found.report.training_data == ("a", "empty")


def test_nothing_to_look_for_is_no_contamination() -> None:
    report = search([], {"a": ["text"]}).report
    assert (report.num_checked, report.share_removed) == (0, None)
