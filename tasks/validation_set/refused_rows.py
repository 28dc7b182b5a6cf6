"""The rows of a dataset that cannot be used, each with its reason, in a file: a message shows the first few.

{fileroot}/refused_rows/{dataset}.jsonl    {"row": 12, "reason": "..."}, of the last time the dataset was read
"""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

from infra.datasets.naming import dataset_name
from infra.files.atomic import make_private_root, write_text_atomically
from schemas.config import EvaluationConfig
from schemas.errors import RefusedRowsError, StoreError
from schemas.valid_dataset import ValidDatasetConfig


@contextmanager
def refused_rows_kept(config: EvaluationConfig, section: ValidDatasetConfig | None = None) -> Generator[None]:
    """Write the rows that a dataset is refused for, and name the file in the error.

    `section`: how the dataset is read; `valid_dataset` of `config` unless given.
    """
    try:
        yield
    except RefusedRowsError as exc:
        kept = keep_refused_rows(config, exc.rows, section)
        raise RefusedRowsError(f"{exc}; {kept}", exc.rows) from exc


def keep_refused_rows(
    config: EvaluationConfig, rows: Sequence[tuple[int, str]], section: ValidDatasetConfig | None = None
) -> str:
    """Write the rows and return where, in words; a disk that refuses is said there and hides no other error."""
    folder = config.cluster.folder / "refused_rows"
    path = folder / f"{quote(dataset_name(section or config.valid_dataset), safe='')[:200]}.jsonl"
    lines = [json.dumps({"row": row, "reason": reason}, ensure_ascii=False) + "\n" for row, reason in rows]
    try:
        make_private_root(folder)
        write_text_atomically(path, "".join(lines))
    except (StoreError, OSError) as exc:
        return f"no file lists them: {exc}"
    return f"{path} lists them all"
