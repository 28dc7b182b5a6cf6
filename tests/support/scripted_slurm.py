"""A Slurm in memory that does what a test says: jobs run until somebody ends them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from infra.slurm.client import JobEnd, JobRecord, NodeRecord, StepEnd
from schemas.errors import TransientError
from schemas.slurm import SlurmJobState

AWAY = TransientError("Slurm does not answer")


def ended(state: SlurmJobState, code: int = 0, number: int = 0, *steps: StepEnd) -> JobEnd:
    return JobEnd(job=StepEnd(state=state, exit_code=code, signal=number), steps=steps)


class ScriptedSlurm:
    """`problem` is asked before each answer, with the question's name, for what goes wrong."""

    def __init__(self, *, max_array_size: int = 1001, submitted_as: SlurmJobState = SlurmJobState.RUNNING) -> None:
        self.records: dict[str, JobRecord] = {}
        self.ends: dict[str, JobEnd] = {}
        self.accounting: dict[str, JobEnd] | None = None
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.problem: Callable[[str], Exception | None] = lambda question: None
        self.last_state = SlurmJobState.CANCELLED
        self._max_array_size = max_array_size
        self._submitted_as = submitted_as

    def show(self, job: str, state: SlurmJobState, *, reason: str = "None", comment: str = "") -> None:
        self.records[job] = JobRecord(job_id=job, state=state, reason=reason, node="n1", comment=comment)

    def accept(self, comment: str, size: int) -> str:
        array = str(1 + len({job.partition("_")[0] for job in self.records}))
        for element in range(size):
            self.show(f"{array}_{element}", self._submitted_as, comment=comment)
        return array

    def submit(self, script: Path, options: Sequence[str], env: Mapping[str, str]) -> str:
        self._meet("submit")
        text = script.read_text()
        comment, last = re.search(r'--comment="(.*)"', text), re.search(r'--array="0-(\d+)"', text)
        assert comment
        assert last
        return self.accept(comment[1], int(last[1]) + 1)

    def rehearse(self, script: str, *, all_nodes_there: bool) -> None:
        self._meet("rehearse")

    def jobs(self, name: str) -> list[JobRecord]:
        self._meet("jobs")
        return list(self.records.values())

    def end_of(self, job_id: str) -> JobEnd | None:
        self._meet(f"end_of {job_id}")
        return self.ends.get(job_id)

    def accounted_ends(self, job_ids: Sequence[str]) -> dict[str, JobEnd] | None:
        self._meet("accounted_ends")
        return (
            None
            if self.accounting is None
            else {job: self.accounting[job] for job in job_ids if job in self.accounting}
        )

    def max_array_size(self) -> int:
        self._meet("max_array_size")
        return self._max_array_size

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._meet("cancel")
        self.cancelled += job_ids
        for job in set(job_ids) & set(self.records):
            self.records[job] = replace(self.records[job], state=self.last_state)

    def nodes(self) -> list[NodeRecord]:
        self._meet("nodes")
        return []

    def _meet(self, question: str) -> None:
        self.asked.append(question)
        if (problem := self.problem(question)) is not None:
            raise problem
