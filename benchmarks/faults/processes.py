"""Faults of processes: a worker or the controller that is killed, stopped or told to end."""

import os
import signal
from collections.abc import Callable
from typing import Final

from benchmarks.faults.fault import Fault
from benchmarks.faults.scene import Scene


def _to_a_worker(number: signal.Signals) -> Callable[[Scene], bool]:
    def inject(scene: Scene) -> bool:
        worker = scene.pick_worker()
        if worker is not None:
            worker.send_signal(number)
        return worker is not None

    return inject


def _to_the_controller(number: signal.Signals) -> Callable[[Scene], bool]:
    def inject(scene: Scene) -> bool:
        scene.commands[-1].process.send_signal(number)
        return True

    return inject


def _interrupt(scene: Scene) -> bool:
    """Do what Ctrl-C in a terminal does: every process of the command is told."""
    os.killpg(scene.commands[-1].process.pid, signal.SIGINT)
    return True


FAULTS: Final = (
    Fault(name="worker-sigkill", inject=_to_a_worker(signal.SIGKILL), needs_worker=True),
    Fault(name="worker-sigsegv", inject=_to_a_worker(signal.SIGSEGV), needs_worker=True),
    Fault(
        name="worker-sigstop",
        inject=_to_a_worker(signal.SIGSTOP),
        needs_worker=True,
        overrides=("rollout.hang_timeout=8", "rollout.setup_timeout=60"),
    ),
    Fault(name="controller-sigkill", inject=_to_the_controller(signal.SIGKILL)),
    Fault(name="controller-sigterm", inject=_to_the_controller(signal.SIGTERM)),
    Fault(name="controller-sigint", inject=_interrupt),
    Fault(name="other-replicas", inject=_to_the_controller(signal.SIGKILL), changes_replicas=True),
)
"""On this machine and on a cluster."""
