"""What `scheduling_spec` of training configs asks of the workers of generation, as `scheduler.slurm`.

Nothing is dropped on the way: a key that `scheduler.slurm` has no place for is named.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from schemas.backend import parse_backend
from schemas.config.keys import KeyPath, Tree, Value
from schemas.config.origins import Origins, show_value
from schemas.config.values import ValueReader
from schemas.errors import ConfigError

_SPECS: Final[tuple[KeyPath, ...]] = (("rollout", "scheduling_spec"), ("actor", "scheduling_spec"))
"""The spec of the inference servers, then the trainer's, which training takes where the first is not set."""
_NOT_SET: Final = (None, "", "null", "none", {}, [])
_WITHOUT_EFFECT: Final = frozenset({"container_type", "port_count", "ray_placement_strategy", "task_type"})
"""Keys that place no replica of ours and reach no environment."""
_RESOURCES: Final = frozenset({"cpu", "exclude", "gpu", "mem", "mount", "nodelist", "srun_additional_args"})
"""Keys that say where and on how much a worker runs, which a local replica does not ask for."""
_OF_TRAINER: Final = re.compile(r"python3? -m areal\.")
"""The command of a worker of the trainer; ours are started by a command of their own."""


@dataclass(slots=True)
class SlurmTerms:
    """`scheduler.slurm` as a `scheduling_spec` gives it."""

    values: Tree = field(default_factory=dict[str, Value])
    """Keys of `scheduler.slurm`."""
    unused: list[str] = field(default_factory=list[str])
    """Names of the keys that have no place there."""
    problems: list[str] = field(default_factory=list[str])
    """What is wrong with the values."""


def derive_slurm(values: Tree, reader: ValueReader, origins: Origins) -> tuple[list[str], list[str]]:
    """Fill in `scheduler.slurm` from the `scheduling_spec`; return what is wrong with it, and what of it is not used.

    Keys that `scheduler.slurm` sets go before it. Only jobs of Slurm ask for resources: with another scheduler, what
    reaches the environment of a worker is named, and nothing is taken over.
    """
    path = next((path for path in _SPECS if reader.lookup(path) not in _NOT_SET), None)
    spec = None if path is None else _engine_spec(reader.lookup(path, as_written=True))
    if path is None or spec is None:
        return [], []
    scheduler = values.get("scheduler")
    section: Tree = dict(scheduler) if isinstance(scheduler, dict) else {}
    if section.get("type") != "slurm":
        return [], [".".join((*path, name)) for name in spec if name not in _RESOURCES]
    present = section.get("slurm")
    slurm: Tree = dict(present) if isinstance(present, dict) else {}
    terms = _terms(spec, _gpus_per_replica(values), has_python=_is_set(values, "engine", "python"))
    for key, value in terms.values.items():
        if key not in slurm:
            slurm[key] = value
            origins.derived["scheduler", "slurm", key] = path
    values["scheduler"] = section | {"slurm": slurm}
    name = ".".join(path)
    problems = [f"{name} ({origins.of(path).detail}): {problem}" for problem in terms.problems]
    return problems, [f"{name}.{key}" for key in terms.unused]


def _engine_spec(value: Value) -> Tree | None:
    """The entry for inference engines, else the first, without what is not set or has no effect on evaluation."""
    entries = [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]
    engines = [entry for entry in entries if entry.get("task_type") == "engine"]
    if not entries:
        return None
    spec = (engines or entries)[0]
    return {
        name: setting
        for name, setting in spec.items()
        if setting not in _NOT_SET
        and name not in _WITHOUT_EFFECT
        and not (name == "cmd" and _OF_TRAINER.match(str(setting)))
    }


def _terms(spec: Tree, gpus: int, *, has_python: bool) -> SlurmTerms:
    """cpu and mem are per GPU, as training counts them."""
    terms = SlurmTerms()
    for name, value in spec.items():
        if name in ("cpu", "mem", "gpu"):
            _add_count(terms, name, value, gpus)
        elif name == "env_vars":
            terms.values["env"] = value
        elif name == "exclude":
            terms.values["exclude_nodes"] = list[Value](re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", str(value)))
        elif name == "nodelist" and "," not in str(value) and "[" not in str(value):
            terms.values["extra"] = [f"--nodelist={value}"]
        elif name == "image" and has_python:  # which is then a path inside of the image
            bind = f" --bind {spec['mount']}" if "mount" in spec else ""
            terms.values["container"] = f"apptainer exec --nv{bind} {value}"
        elif not (name == "mount" and "image" in spec and has_python):
            terms.unused.append(name)
    return terms


def _add_count(terms: SlurmTerms, name: str, value: Value, gpus: int) -> None:
    if not str(value).isdecimal():
        terms.problems.append(f"{name} is {show_value(value)}; allowed: a whole number, per GPU")
    elif name == "gpu":
        if int(str(value)) not in (0, 1, gpus):  # how many a replica has is said by rollout.backend
            terms.unused.append(name)
    elif int(str(value)):
        total = int(str(value)) * gpus
        terms.values["cpus_per_replica" if name == "cpu" else "memory"] = total if name == "cpu" else f"{total}G"


def _gpus_per_replica(values: Tree) -> int:
    rollout = values.get("rollout")
    try:
        return parse_backend(str(rollout["backend"])).gpus_per_replica if isinstance(rollout, dict) else 1
    except (ConfigError, KeyError):
        return 1  # the default, or refused on its own


def _is_set(values: Tree, section: str, key: str) -> bool:
    keys = values.get(section)
    return isinstance(keys, dict) and keys.get(key) not in _NOT_SET
