"""Texts of random words, and near-duplicates of them."""

import numpy as np


def made_texts(rng: np.random.Generator, count: int, num_words: int = 45) -> list[str]:
    vocabulary = np.array([f"word{number}" for number in range(3_000)])
    return [" ".join(rng.choice(vocabulary, num_words)) for _ in range(count)]


def edited(rng: np.random.Generator, text: str, num_words: int) -> str:
    words = text.split()
    for place in rng.choice(len(words), num_words, replace=False):
        words[place] = f"edit{rng.integers(10**9)}"
    return " ".join(words)
