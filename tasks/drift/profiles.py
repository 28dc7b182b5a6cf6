"""Frozen profiles: the rows that later ones are compared with, one file per version of a dataset.

    {fileroot}/validation_sets/{dataset}/profiles/{version}.parquet    rows in PROFILE_SCHEMA, their digest beside them
    {fileroot}/validation_sets/{dataset}/reference.json                the first version that was frozen
    {fileroot}/validation_sets/{dataset}/reference.{kind}.json         the same for another file format

Owns these files: written once, whole, and never changed. A profile keeps as many rows as there are, for a large
reference is what makes small shifts visible.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from infra.datasets.conversation import problem_text
from infra.datasets.digests import unordered_digest
from infra.files.atomic import make_folder, write_table_atomically, write_text_atomically
from schemas.base import Model
from schemas.dataset import EvalItem
from schemas.errors import DatasetError, StoreError
from schemas.expectations.contract import DatasetProfile
from schemas.tables import PROFILE_SCHEMA, conform
from tasks.drift.features import read_subsets

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGEST: Final = b"milepost.rows_digest"
_MAX_VALUES: Final = 200
"""A subset key with more values is no closed set, whatever its counts say."""


class Rows(NamedTuple):
    """Rows to compare, and what they are called."""

    version: str
    """Name of a stored version of the dataset, else the digest."""
    digest: str
    """Over the rows, whatever their order, hex."""
    table: pa.Table
    """In PROFILE_SCHEMA."""


class _Reference(Model):
    """reference.json."""

    version: str
    """Version whose profile is the reference."""
    kind: str | None = None
    """What its data was kept in, such as `csv`; None where an earlier version of Milepost did not say."""


class ProfileStore(NamedTuple):
    """The profiles of one dataset."""

    root: Path
    """The dataset's folder."""

    def first(self, kind: str | None = None) -> str | None:
        """Return the version that was frozen first; None before that.

        `kind`: what the data is kept in; data of this name in another kind of file has a reference of its own.

        Raises:
            StoreError: the file that names it cannot be read.
        """
        usual = self._read_reference("reference.json")
        if usual is None or kind is None or usual.kind in (None, kind):
            return usual and usual.version
        own = self._read_reference(f"reference.{kind}.json")
        return own and own.version

    def _read_reference(self, name: str) -> _Reference | None:
        path = self.root / name
        try:
            return _Reference.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            raise StoreError(f"{path} cannot be read; remove it to freeze a reference anew: {exc}") from exc

    def has(self, version: str) -> bool:
        """Whether a version has a profile."""
        return self.path(version).exists()

    def path(self, version: str) -> Path:
        """Return where a version's profile is kept."""
        return self.root / "profiles" / f"{version}.parquet"

    def freeze(self, rows: Rows, kind: str | None = None) -> None:
        """Keep `rows` as the profile of their version, unless it has one: it never changes.

        The first rows of a `kind` of file become the reference of that kind.

        Raises:
            StoreError: the disk refused.
        """
        path = self.path(rows.version)
        if not path.exists():
            make_folder(path.parent)
            metadata = {**(PROFILE_SCHEMA.metadata or {}), _DIGEST: rows.digest.encode()}
            write_table_atomically(path, rows.table.replace_schema_metadata(metadata))
        if self.first(kind) is None:
            name = "reference.json" if self.first() is None else f"reference.{kind}.json"
            write_text_atomically(
                self.root / name, _Reference(version=rows.version, kind=kind).model_dump_json() + "\n"
            )

    def read(self, version: str) -> Rows:
        """Return a version's profile.

        Raises:
            DatasetError: there is none, it cannot be read, or it was changed after it was frozen.
        """
        import pyarrow.parquet as pq

        path = self.path(version)
        try:
            with pq.ParquetFile(path) as file:
                table = file.read()
            rows = conform(table, PROFILE_SCHEMA)
        except (OSError, pa.ArrowInvalid, StoreError) as exc:
            raise DatasetError(
                f"{path} cannot be read; restore it, or remove it together with reference.json to freeze the next "
                f"evaluation's rows: {exc}"
            ) from exc
        kept, found = (table.schema.metadata or {}).get(_DIGEST, b"none").decode(), digest_rows(rows)
        if kept != found:
            raise DatasetError(
                f"{path} was changed after it was frozen: its digest is {found}, expected {kept}. Restore it, or "
                "remove it together with reference.json to freeze the next evaluation's rows"
            )
        return Rows(version=version, digest=found, table=rows)


def tabulate(items: Sequence[EvalItem]) -> pa.Table:
    """Return one row per item in PROFILE_SCHEMA."""
    return pa.table(
        {
            "item_id": [item.item_id for item in items],
            "prompt": [problem_text(item) for item in items],
            "answer": [item.gold or None for item in items],
            "subset": [[f"{key}={value}" for key, value in sorted(item.subsets.items())] for item in items],
            "grader": [item.grader for item in items],
        },
        schema=PROFILE_SCHEMA,
    )


def name_rows(table: pa.Table) -> Rows:
    """Return rows of no stored version; their digest is their name."""
    digest = digest_rows(table)
    return Rows(version=digest, digest=digest, table=table)


def digest_rows(table: pa.Table) -> str:
    """Return the 128-bit hex digest of rows, whatever their order."""

    def digests() -> "Iterator[str]":
        columns = [table.column(name).to_pylist() for name in PROFILE_SCHEMA.names]
        for cells in zip(*columns, strict=True):
            # of texts, lists of them and None, twice as fast as JSON; escapes what UTF-8 has no bytes for
            yield blake2b(ascii(cells).encode(), digest_size=16).hexdigest()

    return unordered_digest(digests())


def describe_profile(table: pa.Table) -> DatasetProfile:
    """Return what the data contract needs to know of a reference with at least one row."""
    lengths = [len(prompt) for prompt in table.column("prompt").to_pylist() if prompt is not None]
    counts = {name: Counter(values) for name, values in read_subsets(table).items()}
    return DatasetProfile(
        min_prompt_length=min(lengths, default=0),
        max_prompt_length=max(lengths, default=0),
        has_answers=table.column("answer").null_count == 0,
        value_sets={
            name: tuple(sorted(seen))
            for name, seen in counts.items()
            if min(seen.values()) > 1 and len(seen) <= _MAX_VALUES
        },
    )
