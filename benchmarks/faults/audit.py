"""What a disturbed run left, against an undisturbed one of the same plan: from published tables and all journals."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from infra.fileroot.run_directory import list_runs
from infra.store import open_store
from schemas.identity import SampleKey
from schemas.inference import SampleRecord
from schemas.states import Verdict
from tasks.inference.exchange.journal import read_journal

SAFE_AFTER_S: Final = 1.0
"""A sample that had been finished for longer must never be generated again."""


class Sample(NamedTuple):
    """What of a published sample may not depend on what happened to its run."""

    prompt_hash: str
    completion: str | None
    finish_reason: str | None
    seed: int
    verdict: str
    answer: str | None
    score: float | None


class Audit(NamedTuple):
    """Counts of samples; all but `num_extra` must be 0."""

    num_lost: int
    """Planned and not published."""
    num_duplicated: int
    """Published more than once."""
    num_wrong: int
    """Published and other than in the undisturbed run, or not planned."""
    num_extra: int
    """Journalled once more than needed, all attempts taken together."""
    num_late: int
    """Of these the ones whose first copy had been finished for more than a second, at the fault and when the next copy
    was begun."""

    @property
    def is_sound(self) -> bool:
        """Whether every bound holds."""
        return not (self.num_lost or self.num_duplicated or self.num_wrong or self.num_late)


def published_samples(fileroot: Path) -> list[tuple[SampleKey, Sample]]:
    """Return the samples of all published runs.

    Raises:
        StoreError: the store cannot be read.
    """
    columns = ["item_id", "repeat", *Sample._fields]
    rows = open_store(fileroot).table("samples").to_table(columns=columns).to_pylist()
    return [(SampleKey(row["item_id"], row["repeat"]), Sample(*(row[name] for name in Sample._fields))) for row in rows]


def audit(fileroot: Path, expected: Mapping[SampleKey, Sample | None], fault_at: float | None) -> Audit:
    """Compare the runs in `fileroot` with `expected`, where None stands for a sample that cannot be made.

    `fault_at`: Unix time in seconds of the fault; None where there was no such moment.

    Raises:
        StoreError: a journal or the store is damaged.
    """
    published = published_samples(fileroot)
    keys = {key for key, _ in published}
    num_extra, num_late = _count_made_again(fileroot, fault_at)
    return Audit(
        num_lost=len(expected.keys() - keys),
        num_duplicated=len(published) - len(keys),
        num_wrong=sum(not _is_as_expected(expected, key, sample) for key, sample in published),
        num_extra=num_extra,
        num_late=num_late,
    )


def _is_as_expected(expected: Mapping[SampleKey, Sample | None], key: SampleKey, sample: Sample) -> bool:
    if key not in expected:
        return False
    original = expected[key]
    return sample.verdict == Verdict.FAILED if original is None else sample == original


def _count_made_again(fileroot: Path, fault_at: float | None) -> tuple[int, int]:
    copies: defaultdict[SampleKey, list[SampleRecord]] = defaultdict(list)
    for record in _records(fileroot):
        copies[SampleKey(record.item_id, record.repeat)].append(record)
    num_extra = num_late = 0
    for records in copies.values():
        first, *again = sorted(records, key=lambda record: record.finished_at)
        num_extra += len(again)
        for record in again:
            begun_at = record.finished_at - record.latency_s
            known_until = begun_at if fault_at is None else min(fault_at, begun_at)
            num_late += first.finished_at < known_until - SAFE_AFTER_S
    return num_extra, num_late


def _records(fileroot: Path) -> Iterator[SampleRecord]:
    """Yield every generated sample of every attempt of every run."""
    for run in list_runs(fileroot):
        for folder in (*run.replica_dirs(), *run.quarantined_dirs()):
            yield from (record for record in read_journal(folder) if record.error is None)
