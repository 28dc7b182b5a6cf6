"""check-drift: what is asked now against the frozen reference, when a check is due.

Owns the order of things and the files of the last result; the comparing itself runs in a process of its own
(tasks/drift/validation.py).
"""

import subprocess
import sys
import tempfile
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pydantic import ValidationError

from infra.datasets.loading import load_candidates
from infra.datasets.naming import dataset_name, source_kind
from infra.fileroot.validation_sets import VersionStore, versions_of
from infra.files.atomic import make_folder, write_text_atomically
from infra.machine.python_code import child_environment, last_lines
from schemas.config import EvaluationConfig
from schemas.drift import DriftCheck
from schemas.errors import DatasetError, MilepostError
from schemas.training_position import TrainingPosition
from tasks.drift.cadence import is_due
from tasks.drift.features import split_subsets
from tasks.drift.profiles import ProfileStore, Rows, name_rows, tabulate
from tasks.drift.validation import ValidationReply, ValidationRequest

_LAST: Final = "drift.json"


def check_drift(config: EvaluationConfig, current: Rows, *, position: TrainingPosition, now: datetime) -> DriftCheck:
    """Return how `current` differs from the frozen reference and whether it keeps its contract.

    The first call freezes its rows as the reference. Nothing is compared when no check is due, or when rows,
    reference and settings are those of the last result.

    Args:
        config: Its section `drift` says how and how often; `drift.enabled` is the caller's to ask.
        current: What the configured source gives now: the pool where there is one, else the validation set.
        position: Of the checkpoint.
        now: With its time zone.

    Raises:
        DatasetError: no rows, a reference that cannot be read or was changed by hand, or a feature of the user's own
            that fails.
        MilepostError: the process that compares died.
        StoreError: the disk refused.
    """
    if not current.table.num_rows:
        raise DatasetError("check-drift: there are no rows to compare, expected at least one")
    versions = versions_of(config)
    reference, is_new = _find_reference(config, versions, current)
    settings = _digest_settings(config, reference, current)
    last = _read_last(versions.root)
    if last is not None:
        if last.settings == settings:
            return last.model_copy(update={"status": "unchanged"})
        if last.reference_version == reference.version and not is_due(config.drift, last, position=position, now=now):
            return last.model_copy(update={"status": "not_due"})
    # rows against themselves show nothing, except that the user's own features work
    is_skipped = is_new and not config.drift.features
    reply = ValidationReply() if is_skipped else _validate_apart(config, reference, current)
    check = DriftCheck(
        status="frozen" if is_new else "checked",
        drifted=reply.report is not None and reply.report.drifted,
        violated=not all(rule.holds for rule in reply.contract),
        report=reply.report,
        contract=reply.contract,
        dataset=dataset_name(config.valid_dataset),
        reference_version=reference.version,
        current_version=current.version,
        checked_at=now,
        position=position,
        settings=settings,
    )
    make_folder(versions.root)
    write_text_atomically(versions.root / _LAST, check.model_dump_json(indent=1) + "\n")
    return check


def freeze_reference(config: EvaluationConfig, rows: Rows, version: str) -> None:
    """Make `rows`, what a version of the validation set was drawn from, the reference of its evaluations.

    Raises:
        StoreError: the disk refused.
    """
    versions = versions_of(config)
    ProfileStore(versions.root).freeze(rows._replace(version=version), source_kind(config.valid_dataset))


def _find_reference(config: EvaluationConfig, versions: VersionStore, current: Rows) -> tuple[Rows, bool]:
    """Return the rows to compare with, and whether they were frozen just now."""
    if config.drift.reference is not None:
        return _load_reference(config, config.drift.reference), False
    profiles = ProfileStore(versions.root)
    version = _find_refreshed_version(versions)
    kind = source_kind(config.valid_dataset)
    name = profiles.first(kind) if version is None else version
    if name is not None and (version is None or profiles.has(name)):
        return profiles.read(name), False
    usual = profiles.first()
    if name is None and usual is not None and profiles.read(usual).digest == current.digest:
        return profiles.read(usual), False  # the same data in another format
    frozen = current._replace(version=name or current.digest)
    profiles.freeze(frozen, kind)
    return frozen, True


def _find_refreshed_version(versions: VersionStore) -> str | None:
    """Return the current version where it has a reference of its own: the first one is the source, and shares its."""
    version = versions.current()
    if version is None or versions.read_manifest(version).parent is None:
        return None
    return version


def _load_reference(config: EvaluationConfig, path: str) -> Rows:
    source = config.valid_dataset.model_copy(update={"path": path, "name": None, "limit": None})
    try:
        items = load_candidates(source, seed=config.seed)
    except DatasetError as exc:
        raise DatasetError(f"drift.reference: {exc}") from exc
    if not items:
        raise DatasetError(f"drift.reference: {path} has no rows, expected at least one")
    return name_rows(tabulate(items))


def _digest_settings(config: EvaluationConfig, reference: Rows, current: Rows) -> str:
    drift = config.drift.model_dump_json(include={"threshold", "alpha", "features"})
    return blake2b("\n".join((drift, reference.digest, current.digest)).encode(), digest_size=16).hexdigest()


def _read_last(folder: Path) -> DriftCheck | None:
    """Return the last result; None when there is none, or one of another version of Milepost."""
    try:
        return DriftCheck.model_validate_json((folder / _LAST).read_bytes())
    except (OSError, ValidationError):
        return None


def _validate_apart(config: EvaluationConfig, reference: Rows, current: Rows) -> ValidationReply:
    # one thread, as it may run beside the engine of another evaluation
    environment = child_environment(OMP_NUM_THREADS="1", GX_ANALYTICS_ENABLED="false")
    command = [sys.executable, "-P", "-m", "tasks.drift.validation", *config.drift.features]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory(prefix="milepost-drift-") as folder,
        # it imports while the rows are written
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process,
    ):
        paths = [Path(folder) / f"{side}.parquet" for side in ("reference", "current")]
        for path, rows in zip(paths, (reference, current), strict=True):
            pq.write_table(split_subsets(rows.table), path, compression="none")
        request = ValidationRequest(reference=paths[0], current=paths[1], config=config.drift)
        output, errors = process.communicate(request.model_dump_json().encode())
    if process.returncode:
        raise MilepostError(
            f"check-drift: the process that compares the rows ended with exit code {process.returncode}; set "
            f"drift.enabled=false to go without. Its last lines:\n{last_lines(errors)}"
        )
    reply = ValidationReply.model_validate_json(output)
    if reply.error:
        raise DatasetError(reply.error)
    return reply
