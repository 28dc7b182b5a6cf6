"""Faults of engines: memory that does not suffice for the batch, items that kill or stop whoever generates them."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from benchmarks.faults.fault import Fault
from benchmarks.faults.scene import Scene

_SEQUENCE_BYTES: Final = 16 << 20
_FITTING_SEQUENCES: Final = 48
_TOO_LARGE: Final = (f"engine.stand_in.sequence_bytes={_SEQUENCE_BYTES}", "rollout.max_concurrent_rollouts=64")
"""A batch of 64 takes 1 GiB, which is more than the limits below leave it; half of it fits."""


@contextmanager
def _limited_address_space(scene: Scene) -> Generator[None]:
    """Let the workers be started by a program that limits them."""
    limit = scene.pace.address_space_bytes + _FITTING_SEQUENCES * _SEQUENCE_BYTES
    python = scene.folder / "limited-python"
    python.write_text(f'#!/bin/sh\nexec prlimit --as={limit} -- {scene.world.engine_python} "$@"\n')
    python.chmod(0o755)
    scene.overrides.append(f"engine.python={python}")
    yield


def _without_prlimit() -> str | None:
    return None if shutil.which("prlimit") else "there is no prlimit (util-linux) to limit the workers' memory"


FAULTS: Final = (
    Fault(
        name="out-of-memory",
        surroundings=_limited_address_space,
        overrides=_TOO_LARGE,
        unavailable=_without_prlimit,
    ),
    Fault(name="deadly-item", deadly_rate=0.01),
    Fault(name="hanging-item", hanging_rate=0.01, overrides=("rollout.hang_timeout=5",)),
)
"""On this machine and on a cluster."""
SLURM_MEMORY_FAULT: Final = Fault(name="slurm-out-of-memory", overrides=(*_TOO_LARGE, "scheduler.slurm.memory=900M"))
"""The same by a limit that the cluster keeps."""
