"""One trial: a real command, a fault at a random moment, the same command until the run is published, the audit."""

import random
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.faults.audit import Audit, Sample, audit, published_samples
from benchmarks.faults.fault import Fault, Moment, await_moment, draw_moment
from benchmarks.faults.scene import Pace, Scene, World
from infra.engines.stand_in import is_poisoned
from schemas.errors import MilepostError
from schemas.identity import SampleKey

_PATIENCE_S: Final = 240.0
"""Longest time of one command: ten times what an undisturbed one takes."""
_MAX_COMMANDS: Final = 3
"""One that is disturbed, one that goes on; a third one is given but is a finding."""
_EXIT_CODES: Final = frozenset({0, 1, -2, -9, -15, 130, 143})
"""Published, failed, and ended by a signal, as a shell tells it or as the kernel does."""
_LOOK_S: Final = 0.05
_SETTINGS: Final = ("scheduler.slurm.poll_interval_s=0.5",)
"""A run of seconds cannot wait five for a look at the queue."""


class Reference(NamedTuple):
    """An undisturbed run."""

    samples: dict[SampleKey, Sample]
    pace: Pace


class Outcome(NamedTuple):
    """How a trial went."""

    fault: str
    seed: str
    moment: Moment | None
    """None where the settings alone brought the fault about, or where the command ended before it."""
    num_commands: int
    audit: Audit | None
    """None where files cannot be read."""
    problems: tuple[str, ...]
    """What else was not as it must be."""
    wall_s: float

    @property
    def is_sound(self) -> bool:
        """Whether every bound holds."""
        return not self.problems and self.audit is not None and self.audit.is_sound


def make_reference(world: World, folder: Path) -> Reference:
    """Run the plan undisturbed.

    Raises:
        SystemExit: it fails.
    """
    scene = Scene(world=world, folder=folder, rng=random.Random(0), overrides=[*_SETTINGS], pace=Pace(0.0, 0.0, 0))
    command = scene.start(f"vllm:d{world.replica_choices[-1]}")
    began, first, last, num_finished, address_space_bytes = time.monotonic(), 0.0, 0.0, 0, 0
    while command.is_running:
        if (found := scene.num_finished()) > num_finished:
            first, last, num_finished = first or time.monotonic(), time.monotonic(), found
        for worker in scene.workers():
            try:
                address_space_bytes = max(address_space_bytes, worker.memory_info().vms)
            except psutil.Error:
                continue
        time.sleep(_LOOK_S)
    if command.process.returncode or not num_finished:
        raise SystemExit(f"the undisturbed run failed:\n{command.messages}")
    pace = Pace(startup_s=first - began, end_s=time.monotonic() - last, address_space_bytes=address_space_bytes)
    return Reference(dict(published_samples(scene.fileroot)), pace)


def run_trial(fault: Fault, world: World, folder: Path, seed: str, reference: Reference) -> Outcome:
    """Do it all in `folder`, which exists and is empty."""
    began = time.monotonic()
    rng = random.Random(seed)
    scene = Scene(world=world, folder=folder, rng=rng, overrides=[*_SETTINGS, *fault.settings], pace=reference.pace)
    problems: list[str] = []
    moment, fault_at, counts = None, None, None
    with fault.surroundings(scene):
        try:
            moment, fault_at = _disturb(fault, scene)
            _finish(fault, scene, problems)
            counts = audit(scene.fileroot, _expected(fault, reference.samples), fault_at)
        except (MilepostError, OSError, RuntimeError, subprocess.CalledProcessError) as exc:
            problems.append(f"{type(exc).__name__}: {exc} {getattr(exc, 'stderr', '') or ''}".strip())
        finally:
            scene.end()
            fault.heal(scene)
    return Outcome(
        fault=fault.name,
        seed=seed,
        moment=moment,
        num_commands=len(scene.commands),
        audit=counts,
        problems=tuple(problems),
        wall_s=time.monotonic() - began,
    )


def _disturb(fault: Fault, scene: Scene) -> tuple[Moment | None, float | None]:
    """Give the command and do the fault; return when it came, as a moment and in Unix seconds."""
    choices, moment = scene.world.replica_choices, draw_moment(scene.rng)
    scene.start(f"vllm:d{scene.rng.choice(choices)}")
    if fault.inject is None or not await_moment(fault, moment, scene):
        return None, None
    fault_at = time.time()
    return (moment, fault_at) if fault.inject(scene) else (None, None)


def _finish(fault: Fault, scene: Scene, problems: list[str]) -> None:
    """Wait for the command, and give the same one again until the run is published."""
    choices = scene.world.replica_choices
    while True:
        command = scene.commands[-1]
        code = command.wait(_PATIENCE_S)
        number = len(scene.commands)
        if code is None:
            problems.append(f"command {number} did not end within {_PATIENCE_S:g} s")
        elif code not in _EXIT_CODES or (number > 1 and code != 0):
            problems.append(f"command {number} ended with exit code {code}: {_last_line(command.messages)}")
        if "Traceback" in command.messages:
            problems.append(f"command {number} shows a traceback")
        fault.heal(scene)
        if code == 0 or not scene.is_resumable() or number == _MAX_COMMANDS:
            return
        others = [choice for choice in choices if choice != choices[-1]] or list(choices)
        scene.start(f"vllm:d{scene.rng.choice(others if fault.changes_replicas else choices)}")


def _expected(fault: Fault, samples: Mapping[SampleKey, Sample]) -> dict[SampleKey, Sample | None]:
    """Return the samples of the undisturbed run, None in place of those that this fault makes impossible."""
    return {
        key: None
        if is_poisoned(sample.prompt_hash, "deadly", fault.deadly_rate)
        or is_poisoned(sample.prompt_hash, "hanging", fault.hanging_rate)
        else sample
        for key, sample in samples.items()
    }


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "(it said nothing)"
