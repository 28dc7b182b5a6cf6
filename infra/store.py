"""The Parquet store: `{fileroot}/store/{table}/experiment_name=.../run_id=.../part-0.parquet`.

Owns the layout, and that a run appears whole or not at all; must not know how a row is made. Every file holds all its
columns, those of its folder names included, so that a reader sees them with or without Hive partitioning. Tables and
readers: docs/store.md.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from infra.files.atomic import make_private_root, sync_file, sync_folder, write_bytes_atomically, write_table_atomically
from infra.files.table_files import TableSource, write_table_file
from infra.ownership.staging import remove_abandoned, staging_folder
from schemas.errors import DistributedEvaluationError, StoreError
from schemas.paths import expand_user
from schemas.store import PublishedRun
from schemas.summary import WHOLE_SET
from schemas.tables import RUNS, TABLES

if TYPE_CHECKING:
    import pyarrow.dataset as pads

_FILE: Final = "part-0.parquet"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LOOKS_TYPED: Final = re.compile(r"[+-]?(\d+|0[xX][0-9a-fA-F]+)|\d+-\d+-\d+([ T][0-9:.+\-Z]*)?")
"""Names that DuckDB or pyarrow take for a number, a date or a time when they see no other."""
_UNTYPED: Final = "~schema"
"""Name that no experiment can have and no reader takes for a number."""
_MIN_FREE_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Store:
    """The tables of one fileroot. Reading one that does not exist yet finds them empty."""

    root: Path
    """The folder `store` of the fileroot."""

    def check_writable(self, *, min_free_bytes: int = _MIN_FREE_BYTES) -> None:
        """Make the store's folder and write to it for real: call it before work starts.

        Args:
            min_free_bytes: refuse a disk with less room than this, which could not hold the run.

        Raises:
            StoreError: it cannot be written, or the disk is full.
        """
        try:
            make_private_root(self.root)
            self._staging.mkdir(exist_ok=True)
            remove_abandoned(self._staging)
            with staging_folder(self._staging) as folder:
                write_bytes_atomically(folder / "probe", b"\0" * 4096)
            free_bytes = shutil.disk_usage(self.root).free
        except OSError as exc:
            raise self._cannot_write(exc) from exc
        if free_bytes < min_free_bytes:
            raise StoreError(
                f"{self.root} has {free_bytes / 2**20:.0f} MiB free, {min_free_bytes / 2**20:.0f} MiB are needed: "
                "free space there or point cluster.fileroot at another disk"
            )

    def publish(self, run_id: str, experiment_name: str, tables: Mapping[str, TableSource]) -> bool:
        """Make a run visible: all its tables are written aside, then renamed into place, `runs` last.

        Repeating it after a crash finishes the work; a run that is already visible is left as it is, for a published
        run never changes. Publishers of different runs do not meet.

        Args:
            run_id: letters, digits, `.`, `_` and `-`.
            experiment_name: the same letters.
            tables: rows by table name, `runs` among them.

        Returns:
            Whether this call made it visible; False when it was already.

        Raises:
            StoreError: a name that cannot be a folder, an unknown table, a column missing, or a disk that refuses.
            DistributedEvaluationError: rows of another run.
        """
        _require_names(run_id, experiment_name)
        unknown = sorted(set(tables) - set(TABLES))
        if unknown or "runs" not in tables:
            named = f"table {unknown[0]!r} does not exist" if unknown else "the table 'runs' is missing"
            raise StoreError(f"{named}; a run brings runs and any of {', '.join(TABLES)}")
        if self._file("runs", experiment_name, run_id).exists():
            remove_abandoned(self._staging)  # its publisher may have been killed before it cleaned up
            return False
        self.check_writable()
        try:
            with staging_folder(self._staging) as folder:
                for name, source in tables.items():
                    _stage(folder / name, source, TABLES[name], {"run_id": run_id, "experiment_name": experiment_name})
                if _LOOKS_TYPED.fullmatch(run_id) or _LOOKS_TYPED.fullmatch(experiment_name):
                    self._keep_names_text(tables)
                for name in sorted(tables, key=lambda table: table == "runs"):
                    self._rename(folder / name, self._file(name, experiment_name, run_id))
        except OSError as exc:
            raise self._cannot_write(exc) from exc
        return True

    def table(self, name: str, *, run_id: str | None = None) -> "pads.Dataset":
        """Return a table in its declared schema, over all visible runs or one; columns older files lack are null.

        Raises:
            StoreError: no such table, no such run, or a store that cannot be read.
        """
        import pyarrow.dataset as pads

        if name not in TABLES:
            raise StoreError(f"table {name!r} does not exist; the store has {', '.join(TABLES)}")
        visible = self._visible() if run_id is None else self._find(run_id)
        if run_id is not None and not visible:
            known = ", ".join(sorted(run for _, run in self._visible())[-5:]) or "none yet"
            raise StoreError(f"run {run_id!r} is not in {self.root}; the last runs there: {known}")
        files = [self._file(name, experiment, run) for experiment, run in visible]
        return pads.dataset([str(file) for file in files if file.exists()], schema=TABLES[name], format="parquet")

    def runs(self) -> list[PublishedRun]:
        """Return the visible runs, the last published first; each names the run that has taken its place, if any.

        Raises:
            StoreError: a file of the store cannot be read.
        """
        import pyarrow.dataset as pads

        of_interest = [name for name in PublishedRun.model_fields if name in RUNS.names]
        whole = (pads.field("metric") == "accuracy") & (pads.field("subset") == WHOLE_SET)
        try:
            rows = self.table("runs").to_table(columns=of_interest).to_pylist()
            metrics = self.table("metrics").to_table(columns=["experiment_name", "run_id", "value"], filter=whole)
        except (pa.ArrowInvalid, OSError) as exc:
            raise StoreError(f"{self.root} holds a file that cannot be read; move it away: {exc}") from exc
        accuracies = {(row["experiment_name"], row["run_id"]): row["value"] for row in metrics.to_pylist()}
        runs = [PublishedRun(**row, accuracy=accuracies.get((row["experiment_name"], row["run_id"]))) for row in rows]
        newest_first = sorted(runs, key=lambda run: (run.finished_at, run.run_id), reverse=True)
        last: dict[tuple[str, str, str], str] = {}
        for run in newest_first:
            last.setdefault((run.experiment_name, run.trial_name, run.plan_key), run.run_id)
        return [
            run.model_copy(update={"superseded_by": newest})
            if (newest := last[run.experiment_name, run.trial_name, run.plan_key]) != run.run_id
            else run
            for run in newest_first
        ]

    def latest_runs(self) -> list[PublishedRun]:
        """Return one run per model, dataset and settings, the last published first: what a curve has points of.

        Runs of one experiment, trial and plan_key are repetitions of one measurement, or it graded again; the one
        published last counts. The others stay in the store.

        Raises:
            StoreError: a file of the store cannot be read.
        """
        return [run for run in self.runs() if run.superseded_by is None]

    def run_names(self) -> list[str]:
        """Return the names of the visible runs.

        Raises:
            StoreError: the store cannot be read.
        """
        return [run for _, run in self._visible()]

    @property
    def _staging(self) -> Path:
        # Inside the store, hence on its file system, and under names that no *.parquet pattern matches.
        return self.root / ".staging"

    def _file(self, table: str, experiment_name: str, run_id: str) -> Path:
        return self.root / table / f"experiment_name={experiment_name}" / f"run_id={run_id}" / _FILE

    def _visible(self) -> list[tuple[str, str]]:
        """Return (experiment_name, run_id) of every run whose `runs` row is there, in order of name."""
        try:
            return sorted(
                (experiment, run)
                for experiment, folder in _partitions(self.root / "runs", "experiment_name=")
                for run, runs in _partitions(folder, "run_id=")
                if experiment != _UNTYPED and (runs / _FILE).exists()
            )
        except OSError as exc:
            raise StoreError(f"cannot read {self.root} ({exc.strerror}): check cluster.fileroot") from exc

    def _find(self, run_id: str) -> list[tuple[str, str]]:
        """Return (experiment_name, run_id) of one run, without listing the others; empty where it is not visible."""
        if not _NAME.fullmatch(run_id):
            return []
        experiments = [experiment for experiment, _ in _partitions(self.root / "runs", "experiment_name=")]
        return [(each, run_id) for each in sorted(experiments) if self._file("runs", each, run_id).exists()]

    def _keep_names_text(self, tables: Mapping[str, TableSource]) -> None:
        """Add a part without rows whose folder names are words.

        DuckDB and pyarrow guess the type of a folder's name from all the names they see: alone, the experiment 123
        would become a number (and clash with the column in the file), 2024-01-01 a date. One word makes them text.
        """
        for name in tables:
            part = self._file(name, _UNTYPED, _UNTYPED)
            if not part.exists():
                part.parent.mkdir(parents=True, exist_ok=True)
                write_table_atomically(part, TABLES[name].empty_table())

    def _rename(self, staged: Path, target: Path) -> None:
        make_private_root(self.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(target)
        # The names of new folders must survive a power cut as well as the file's.
        for folder in target.parents[:4]:
            sync_folder(folder)

    def _cannot_write(self, exc: OSError) -> StoreError:
        return StoreError(
            f"cannot write {self.root} ({exc.strerror or exc}): free space, make it writable or point "
            "cluster.fileroot elsewhere"
        )


def open_store(fileroot: Path | str) -> Store:
    """Return the store of a fileroot; nothing is made before something is published.

    Raises:
        StoreError: fileroot or its `store` is a file.
    """
    root = expand_user(fileroot).absolute() / "store"
    for folder in (root.parent, root):
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file: point cluster.fileroot at a folder")
    return Store(root)


def _require_names(run_id: str, experiment_name: str) -> None:
    for key, name in (("run_id", run_id), ("experiment_name", experiment_name)):
        if not _NAME.fullmatch(name):
            raise StoreError(f"{key} must be letters, digits, '.', '_' or '-', a letter or digit first; got {name!r}")


def _partitions(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    if folder.is_dir():
        for child in folder.iterdir():
            if child.name.startswith(prefix):
                yield child.name.removeprefix(prefix), child


def _stage(path: Path, source: TableSource, schema: pa.Schema, run: Mapping[str, str]) -> None:
    import pyarrow.parquet as pq

    num_rows = write_table_file(path, source, schema)
    if schema is RUNS and num_rows != 1:
        raise DistributedEvaluationError(f"a run has one row in runs, got {num_rows}")
    with pq.ParquetFile(path) as file:
        names = file.read(columns=list(run))
    for column, expected in run.items():
        strangers = [value for value in names.column(column).unique().to_pylist() if value != expected]
        if strangers:
            raise DistributedEvaluationError(f"rows of {column} {strangers[0]!r} among those of {expected!r}")
    with path.open("rb") as file:
        sync_file(file.fileno())
