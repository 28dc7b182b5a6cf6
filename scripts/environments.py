"""Makes the environments at the root of the repository, and again only what changed.

    .cache/tools     uv, by pip                                  requirements/tools.txt
    .venv            the controller, or with the test tools      requirements/controller.txt or dev.txt
    .venv-engine     the engine, for the CPU or for CUDA         requirements/engine-cpu.txt or engine-cuda.txt

Standard library only. A stamp inside an environment says what it was made from; it is removed before the first change
and written after the last one, so that an interrupted set-up is never taken for a finished one.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import system_packages

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".cache" / "tools"
CONTROLLER = ROOT / ".venv"
ENGINE = ROOT / ".venv-engine"
REQUIREMENTS = ROOT / "requirements"
GPU_FOLDER = Path("/proc/driver/nvidia/gpus")
PYTHON = platform.python_version()  # sys.version also changes with a security update that keeps every package valid
STAMP = "milepost-setup.json"

EngineKind = Literal["cpu", "cuda"]


class EnvironmentSetupError(Exception):
    """An environment could not be made; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an environment is made from."""

    folder: Path
    """Where the environment lies."""
    requirements: Path
    """The compiled file: names, versions, hashes."""
    installs_milepost: bool = False
    """Whether Milepost itself is installed, editable, so that its command exists."""
    sources: tuple[Path, ...] = field(default=())
    """Further files whose change renews the environment."""

    def digest(self) -> str:
        """Hex digest over everything that decides what is in the environment."""
        hasher = hashlib.sha256(f"{ROOT} {Path(sys.executable).resolve()} {PYTHON}".encode())
        for file in (self.requirements, *self.sources):
            hasher.update(file.read_bytes())
        if self.installs_milepost:
            hasher.update(json.dumps(_packaging(), sort_keys=True).encode())
        return hasher.hexdigest()


def _packaging() -> dict[str, object]:
    """The tables of pyproject.toml that shape the installed command; settings of linters do not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return {
        "build-system": project.get("build-system"),
        "project": project.get("project"),
        "setuptools": project.get("tool", {}).get("setuptools"),
    }


def controller_recipe(*, with_test_tools: bool) -> Recipe:
    """The controller's environment; with the test tools it is a superset in the same folder."""
    name = "dev.txt" if with_test_tools else "controller.txt"
    return Recipe(folder=CONTROLLER, requirements=REQUIREMENTS / name, installs_milepost=True)


def engine_recipe(kind: EngineKind) -> Recipe:
    """The engine's environment."""
    return Recipe(folder=ENGINE, requirements=REQUIREMENTS / f"engine-{kind}.txt")


def engine_kind() -> EngineKind:
    """`MILEPOST_ENGINE` where it is set, else `cuda` where this machine shows an NVIDIA GPU.

    Raises:
        EnvironmentSetupError: the setting has another value.
    """
    setting = os.environ.get("MILEPOST_ENGINE", "")
    if setting in ("cpu", "cuda"):
        return setting
    if setting:
        raise EnvironmentSetupError(
            f"MILEPOST_ENGINE must be cpu or cuda, got {setting!r}; unset it to let it be found"
        )
    if GPU_FOLDER.is_dir() and any(entry.name[0].isdigit() for entry in GPU_FOLDER.iterdir()):
        return "cuda"
    if shutil.which("nvidia-smi") is None:
        return "cpu"
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return "cuda" if listing.returncode == 0 and listing.stdout.startswith("GPU ") else "cpu"


def is_current(recipe: Recipe) -> bool:
    """Whether the environment was finished from exactly this recipe."""
    return (recipe.folder / "bin" / "python").exists() and _read_stamp(recipe.folder).digest == recipe.digest()


def has_test_tools() -> bool:
    """Whether the controller's environment was last made with the test tools."""
    return _read_stamp(CONTROLLER).requirements == "dev.txt"


class Stamp(NamedTuple):
    """What a finished environment says of itself; empty texts where it was not finished."""

    digest: str = ""
    requirements: str = ""
    python: str = ""


def _read_stamp(folder: Path) -> Stamp:
    try:
        stamp = json.loads((folder / STAMP).read_text("utf-8"))
        return Stamp(str(stamp["digest"]), str(stamp["requirements"]), str(stamp["python"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Stamp()


def write_stamp(recipe: Recipe) -> None:
    """Says that the environment is finished; appears whole or not at all."""
    unfinished = recipe.folder / f".{STAMP}"
    stamp = Stamp(digest=recipe.digest(), requirements=recipe.requirements.name, python=PYTHON)
    unfinished.write_text(json.dumps(stamp._asdict(), indent=1), "utf-8")
    unfinished.replace(recipe.folder / STAMP)


def _run(command: Sequence[str | Path], *, env: dict[str, str] | None = None, step: str) -> None:
    """Runs one step; its output is shown only when it fails."""
    result = subprocess.run(
        [str(word) for word in command],
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        close_fds=False,  # the set-up's lock lives as long as the last process that writes into an environment
    )
    if result.returncode != 0:
        output = result.stdout.decode("utf-8", "replace").strip()
        raise EnvironmentSetupError(
            f"{step} failed (exit {result.returncode}):\n{output}\n"
            "The set-up needs the Python package registry, or a mirror that pip is configured for; then run make again."
        )


def install_system_packages(missing: Sequence[str]) -> None:
    """Installs what is missing, and says so; nothing missing, nothing done."""
    if missing:
        say(f"system packages: {' '.join(missing)}")
        system_packages.install(missing)


def parse_pip_settings(listing: str) -> dict[str, list[str]]:
    """Setting → its values, from `pip config list`: files come first, then :env:, which wins as it does in pip."""
    settings: dict[str, list[str]] = {}
    for line in listing.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            settings[key.rsplit(".", 1)[-1]] = value.strip("'\"").replace("\\n", " ").split()
    return settings


@dataclass(frozen=True, kw_only=True)
class Installer:
    """uv in its own small environment, reaching the registry the way pip is configured to."""

    executable: Path

    @classmethod
    def make(cls) -> "Installer":
        """Installs uv by pip where that was not done yet, after the system packages that it needs."""
        recipe = Recipe(folder=TOOLS, requirements=REQUIREMENTS / "tools.txt")
        if not is_current(recipe):
            install_system_packages(system_packages.missing_for_building())
            (TOOLS / STAMP).unlink(missing_ok=True)
            _run([sys.executable, "-m", "venv", "--clear", TOOLS], step="making .cache/tools")
            pip = [TOOLS / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
            _run([*pip, "--quiet", "--require-hashes", "-r", recipe.requirements], step="installing uv by pip")
            write_stamp(recipe)
        return cls(executable=TOOLS / "bin" / "uv")

    @cached_property
    def pip_settings(self) -> dict[str, list[str]]:
        """Registry settings of pip, from its files and its variables: uv reads neither."""
        command = [str(TOOLS / "bin" / "python"), "-m", "pip", "config", "list"]
        listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return parse_pip_settings(listing)

    @property
    def find_links(self) -> list[str]:
        """`--find-links` options for each wheel folder that pip is told of."""
        return [word for folder in self.pip_settings.get("find-links", []) for word in ("--find-links", folder)]

    @property
    def index_options(self) -> list[str]:
        """Options that make uv look where pip looks."""
        options: list[str] = []
        for url in self.pip_settings.get("index-url", [])[:1]:
            options += ["--default-index", url]
        for url in self.pip_settings.get("extra-index-url", []):
            options += ["--index", url]
        # Every file is known by its hash, so the best version may come from any of the indexes.
        return [*options, "--index-strategy", "unsafe-best-match"]

    def environment(self) -> dict[str, str]:
        """Variables for uv: never fetch an interpreter, wait as long for a slow mirror as pip would."""
        variables = dict(os.environ)
        variables.pop("VIRTUAL_ENV", None)
        variables.setdefault("UV_PYTHON_DOWNLOADS", "never")
        variables.setdefault("UV_HTTP_TIMEOUT", "180")
        for certificate in self.pip_settings.get("cert", [])[:1]:
            variables.setdefault("SSL_CERT_FILE", certificate)
        return variables

    def run(self, *words: str | Path, step: str) -> None:
        """One uv command."""
        _run([self.executable, *words], env=self.environment(), step=step)


def torch_options(installer: Installer, recipe: Recipe) -> list[str]:
    """Where torch's CPU build is found: in the wheel folder when there is one, else uv knows its index."""
    if recipe.requirements.name != "engine-cpu.txt":
        return []
    return installer.find_links or ["--torch-backend", "cpu"]


def build(installer: Installer, recipe: Recipe) -> None:
    """Makes the environment equal to its recipe: in place when it was finished, from nothing otherwise."""
    name, started = recipe.folder.name, time.monotonic()
    was_finished = (recipe.folder / "bin" / "python").exists() and _read_stamp(recipe.folder).python == PYTHON
    (recipe.folder / STAMP).unlink(missing_ok=True)
    if not was_finished:
        installer.run("venv", "--quiet", "--clear", "--python", sys.executable, recipe.folder, step=f"making {name}")
    python = recipe.folder / "bin" / "python"
    common = ["--python", python, *installer.index_options, "--build-constraints", REQUIREMENTS / "build.txt"]
    say(f"{name}: installing {recipe.requirements.name}")
    installer.run(
        # Bytecode now, not at every start: many machines tell Python not to write it, and then an engine's start takes
        # 7 s longer. It also keeps warnings of the compiler out of the tests, which turn them into errors.
        *("pip", "sync", "--require-hashes", "--compile-bytecode"),
        *common,
        *torch_options(installer, recipe),
        recipe.requirements,
        step=f"installing {recipe.requirements.name} into {name}",
    )
    if recipe.installs_milepost:
        installer.run(
            *("pip", "install", "--offline", "--no-deps", "--no-build-isolation", "--python", python, "-e", ROOT),
            step=f"installing Milepost into {name}",
        )
    write_stamp(recipe)
    say(f"{name}: ready in {time.monotonic() - started:.0f} s")


def say(line: str) -> None:
    """One line of progress."""
    print(f"[set-up] {line}", file=sys.stderr, flush=True)
