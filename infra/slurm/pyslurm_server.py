"""Shows the queue by pyslurm: reads questions from stdin, one JSON object a line, and answers each with one.

    {"ask": "release"}               {"release": "22.5.3", "lacks": []}
    {"ask": "jobs", "name": "…"}     {"jobs": [{"id": 23, "array_id": 23, …}]}
    what cannot be answered          {"error": "Unable to contact slurm controller (connect failure)"}

A script that is run by its path, in a process of its own: pyslurm holds the interpreter's lock while it waits for
Slurm, and libslurm ends its process where it finds no slurm.conf. It imports nothing of Milepost.
"""

import importlib
import json
import os
import sys
from types import ModuleType
from typing import Final

_JOB_FIELDS: Final = (
    "id",
    "name",
    "user_id",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "state",
    "state_reason",
    "allocated_nodes",
    "comment",
)
"""Of pyslurm.Job; they have these names in 22.5, 23.11, 24.11 and 25.11."""


def main() -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libslurm prints must not look like an answer
    os.environ["SLURM_BITSTR_LEN"] = "0"  # else the elements of an array that wait are cut to 64 letters
    try:
        pyslurm = importlib.import_module("pyslurm")
    except Exception as exc:  # noqa: BLE001 - whatever is wrong with it is the answer
        pyslurm, error = None, f"{type(exc).__name__}: {exc}"
    else:
        error = ""
    for line in sys.stdin:
        answer = {"error": error} if pyslurm is None else _answer(pyslurm, json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)


def _answer(pyslurm: ModuleType, question: dict[str, str]) -> dict[str, object]:
    try:
        if question["ask"] == "release":
            lacks = [name for name in _JOB_FIELDS if not hasattr(pyslurm.Job, name)]
            return {"release": pyslurm.version(), "lacks": lacks}
        return {"jobs": _jobs(pyslurm, question["name"])}
    except Exception as exc:  # noqa: BLE001 - pyslurm's errors differ between releases
        return {"error": str(exc) or type(exc).__name__}


def _jobs(pyslurm: ModuleType, name: str) -> list[dict[str, object]]:
    """This user's jobs of that name."""
    jobs = pyslurm.Jobs.load().values()
    own = (job for job in jobs if job.name == name and job.user_id == os.getuid())
    return [{field: getattr(job, field) for field in _JOB_FIELDS} for job in own]


if __name__ == "__main__":
    main()
