"""Made-up problems whose population is known: what rates of false alarms and of power are measured on."""

import numpy as np
import pyarrow as pa

SUBJECTS = np.array(["algebra", "geometry", "number theory", "counting", "calculus", "probability", "logic"])
SHARES = [0.25, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05]
WORDS = np.array([f"word{number}" for number in range(3_000)])
FREQUENCIES = 1 / np.arange(1, len(WORDS) + 1)


def draw_problems(
    rng: np.random.Generator,
    num_rows: int,
    *,
    stretch: float = 1.0,
    new_subject: float = 0.0,
    new_words: float = 0.0,
    with_prompts: bool = True,
) -> pa.Table:
    """Return problems with log-normal lengths, Zipf's words, seven subjects and whole-number answers.

    Args:
        rng: source of the rows.
        num_rows: how many.
        stretch: factor of every length.
        new_subject: share of rows whose subject is one that no other population has.
        new_words: share of rows whose words are such.
        with_prompts: whether there is a column prompt; the texts are most of the time.
    """
    lengths = np.maximum(3, (rng.lognormal(np.log(45), 0.4, num_rows) * stretch).astype(int))
    subjects = SUBJECTS[rng.choice(len(SUBJECTS), p=SHARES, size=num_rows)].astype(object)
    subjects[rng.random(num_rows) < new_subject] = "topology"
    columns = {
        "item_id": [f"i{row}" for row in range(num_rows)],
        "answer": [str(int(answer)) for answer in np.exp(rng.normal(4, 1.5, num_rows))],
        "subset": [f"subject={subject}" for subject in subjects],
        "num_prompt_tokens": (lengths * 1.3).astype(int),
    }
    if with_prompts:
        is_new = rng.random(num_rows) < new_words
        drawn = np.split(rng.choice(WORDS, p=FREQUENCIES / FREQUENCIES.sum(), size=lengths.sum()), np.cumsum(lengths))
        columns["prompt"] = [
            " ".join(f"new{word}" for word in rng.choice(200, length)) if new else " ".join(words)
            for words, new, length in zip(drawn[:-1], is_new, lengths, strict=True)
        ]
    return pa.table(columns)
