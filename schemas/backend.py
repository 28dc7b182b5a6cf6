"""The backend grammar: which engine generates, on how many replicas, each over how many GPUs.

    backend   = engine [ "[" NAME "]" ] ":" dimension+
    engine    = "vllm" | "sglang" | "transformers" | "openai"
    NAME      = a letter or "_", then letters, digits, "_", "-" or "."
    dimension = ("d" | "t" | "p") NUMBER              each at most once, in any order; an omitted one is 1
    NUMBER    = 1 … 65536 without leading zeros

d = replicas (data parallel), t = GPUs that share each layer (tensor parallel), p = GPUs that share the stack of layers
(pipeline parallel). AReaL's inference backends are of this form.
"""

import difflib
import re
from dataclasses import dataclass
from typing import Final, get_args

from schemas.errors import ConfigError
from schemas.inference import EngineName

ENGINES: Final[tuple[EngineName, ...]] = tuple(name for name in get_args(EngineName) if name != "stand_in")
"""The engines that the grammar knows; engine.stand_in replaces any of them."""

MAX_DIMENSION: Final = 65_536
"""No cluster has more GPUs than this along one dimension; beyond it a number is a slip of the finger."""

BACKEND_PATTERN: Final = (
    rf"^({'|'.join(ENGINES)})(\[[A-Za-z_][A-Za-z0-9_.\-]*\])?:"
    r"(?!.*d.*d)(?!.*t.*t)(?!.*p.*p)([dtp][1-9][0-9]{0,4})+$"
)
"""The grammar for a JSON schema, so that a form refuses another text; the largest number is left to the parser."""

_EXAMPLE: Final = "vllm:d4t2 (4 replicas of 2 GPUs)"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HEAD: Final = re.compile(r"(?P<engine>[^:\[\]]*)(?:\[(?P<name>[^\]]*)\])?")
_DIMENSION: Final = re.compile(r"([A-Za-z])([0-9]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A parsed backend; `str()` gives the canonical form, which parses to an equal one."""

    engine: EngineName
    """Which engine adapter generates."""
    name: str | None = None
    """A label that AReaL allows in brackets; None when there is none."""
    data_parallel: int = 1
    """Replicas: whole copies of the model, each with its own share of the samples."""
    tensor_parallel: int = 1
    """GPUs that share each layer of one replica."""
    pipeline_parallel: int = 1
    """GPUs that share the stack of layers of one replica."""

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica takes."""
        return self.tensor_parallel * self.pipeline_parallel

    def __str__(self) -> str:
        name = "" if self.name is None else f"[{self.name}]"
        parallel = f"d{self.data_parallel}"
        if self.tensor_parallel != 1:
            parallel += f"t{self.tensor_parallel}"
        if self.pipeline_parallel != 1:
            parallel += f"p{self.pipeline_parallel}"
        return f"{self.engine}{name}:{parallel}"


def parse_backend(text: str) -> Backend:
    """Return the backend that `text` spells.

    Raises:
        ConfigError: the text is not of the grammar; the message names the value, what is allowed and the next step.
    """
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    head, colon, dimensions = text.partition(":")
    if not colon:
        raise ConfigError(_without_colon(text, shown))
    match = _HEAD.fullmatch(head)
    if match is None:
        raise _refused(shown, f"{head!r} is not an engine", f"one of {', '.join(ENGINES)}, then an optional [NAME]")
    name: str | None = match["name"]
    if name is not None and not _NAME.fullmatch(name):
        raise _refused(shown, f"the name {name!r} is not allowed", "a letter or _, then letters, digits, _ - or .")
    sizes = _parse_dimensions(dimensions, shown)
    return Backend(
        engine=_parse_engine(match["engine"], shown),
        name=name,
        data_parallel=sizes.get("d", 1),
        tensor_parallel=sizes.get("t", 1),
        pipeline_parallel=sizes.get("p", 1),
    )


def _parse_engine(text: str, shown: str) -> EngineName:
    for engine in ENGINES:
        if text == engine:
            return engine
    near = difflib.get_close_matches(text.lower(), ENGINES, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise _refused(shown, f"there is no engine {text!r}{meant}", f"one of {', '.join(ENGINES)}")


def _parse_dimensions(text: str, shown: str) -> dict[str, int]:
    if not text:
        raise _refused(shown, "no dimension follows the colon", "at least one of d, t, p with a number, such as d1")
    sizes: dict[str, int] = {}
    position = 0
    while position < len(text):
        match = _DIMENSION.match(text, position)
        if match is None:
            raise _refused(shown, f"{text[position:][:20]!r} is not a dimension", "d, t or p, each with a number")
        letter, digits = match[1], match[2]
        if letter not in "dtp":
            raise _refused(
                shown,
                f"there is no dimension {letter!r}",
                "d (replicas), t (tensor parallel), p (pipeline parallel); training dimensions do not apply",
            )
        if letter in sizes:
            raise _refused(shown, f"the dimension {letter!r} is given twice", "each of d, t, p at most once")
        sizes[letter] = _parse_size(letter, digits, shown)
        position = match.end()
    return sizes


def _parse_size(letter: str, digits: str, shown: str) -> int:
    allowed = f"a whole number from 1 to {MAX_DIMENSION} without leading zeros"
    seen = f"{letter}{digits[:12]}"
    if not digits or digits[0] == "0" or len(digits) > len(str(MAX_DIMENSION)) or int(digits) > MAX_DIMENSION:
        raise _refused(shown, f"{seen!r} has no usable size", allowed)
    return int(digits)


def _without_colon(text: str, shown: str) -> str:
    dotted = re.fullmatch(rf"({'|'.join(ENGINES)})\.([dtp0-9]+)", text)
    if dotted:
        return f"backend {shown!r}: engine and dimensions are parted by a colon; write {dotted[1]}:{dotted[2]}"
    if re.fullmatch(r"(?:[A-Za-z][0-9]+)+", text):
        return f"backend {shown!r}: no engine; allowed: one of {', '.join(ENGINES)}; write for instance vllm:{shown}"
    return (
        f"backend {shown!r}: no colon; allowed: ENGINE:DIMENSIONS with ENGINE one of {', '.join(ENGINES)}; "
        f"write for instance {_EXAMPLE}"
    )


def _refused(shown: str, problem: str, allowed: str) -> ConfigError:
    return ConfigError(f"backend {shown!r}: {problem}; allowed: {allowed}; write for instance {_EXAMPLE}")
