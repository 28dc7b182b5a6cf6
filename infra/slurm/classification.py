"""What the end of a job means, in the order in which the signs can be trusted.

Want of memory comes first: it may show as FAILED on the job with only a step or a line of slurmstepd that says why.
"""

import re
from typing import Final

from infra.jobs.base import EndCause, JobState, JobStatus
from infra.slurm.client import JobEnd
from schemas.slurm import SlurmJobState

_FIRST_OWN_SIGNAL: Final = 32
"""From here on Slurm's numbers are no signals but reasons of its own."""
_OUT_OF_MEMORY_SIGNAL: Final = 125
_NO_LAUNCH_SIGNAL: Final = 53
"""slurmstepd could not open the job's output file or folder."""
_OUT_OF_MEMORY_WORDS: Final = re.compile(
    r"^(?:slurmstepd|srun): .*(?:oom[-_ ]kill|exceeded memory limit|out of memory)", re.IGNORECASE | re.MULTILINE
)
_TIME_STATES: Final = frozenset({SlurmJobState.TIMEOUT, SlurmJobState.DEADLINE})
_INFRASTRUCTURE_STATES: Final = frozenset(
    {
        SlurmJobState.BOOT_FAIL,
        SlurmJobState.LAUNCH_FAILED,
        SlurmJobState.NODE_FAIL,
        SlurmJobState.PREEMPTED,
        SlurmJobState.RECONFIG_FAIL,
        SlurmJobState.REVOKED,
    }
)
_SHELL_SIGNAL: Final = 128
"""A shell ends with this much more than the number of the signal that ended its command."""


def classify_end(end: JobEnd, words: str = "") -> JobStatus:
    """Return how a job ended; `words` is the end of what Slurm wrote into the job's output."""
    code, number = _code_and_signal(end)
    cause = _cause(end, words)
    detail = " ".join(part for part in (end.job.state.value, _reason(end.reason)) if part)
    if end.job.signal == _NO_LAUNCH_SIGNAL:
        detail += (
            f": {end.node or 'its node'} cannot write the run's folder; is cluster.fileroot shared with the nodes?"
        )
    if cause is EndCause.PROCESS and end.job.state is SlurmJobState.COMPLETED:
        return JobStatus(state=JobState.SUCCEEDED, exit_code=0, detail=detail)
    if cause is EndCause.PROCESS and number is None:
        return JobStatus(state=JobState.FAILED, exit_code=code, detail=detail)
    return JobStatus(state=JobState.KILLED, signal=number, cause=cause, detail=detail)


def _cause(end: JobEnd, words: str) -> EndCause:
    ends = (end.job, *end.steps)
    is_out_of_memory = any(
        each.state is SlurmJobState.OUT_OF_MEMORY or each.signal == _OUT_OF_MEMORY_SIGNAL for each in ends
    )
    if is_out_of_memory or _OUT_OF_MEMORY_WORDS.search(words):
        return EndCause.OUT_OF_MEMORY
    if end.job.state in _TIME_STATES:
        return EndCause.TIME_LIMIT
    if end.job.state in _INFRASTRUCTURE_STATES or end.job.signal == _NO_LAUNCH_SIGNAL:
        return EndCause.INFRASTRUCTURE
    if end.job.state is SlurmJobState.CANCELLED:
        return EndCause.USER
    return EndCause.PROCESS


def _code_and_signal(end: JobEnd) -> tuple[int, int | None]:
    """Return exit code and signal of the job's process, the latter None unless a signal ended it."""
    code, number = end.job.exit_code, end.job.signal
    if not number and code > _SHELL_SIGNAL:
        number = code - _SHELL_SIGNAL
    return code, number if 0 < number < _FIRST_OWN_SIGNAL else None


def _reason(reason: str) -> str:
    return "" if reason in ("", "None") else f"({reason})"
