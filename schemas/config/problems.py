"""Turns what pydantic refuses into lines for a user: key, value, origin, what is allowed, what to do next."""

from collections.abc import Callable, Collection

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from schemas.config.keys import KeyPath, KeySpec, find_spec, key_specs
from schemas.config.origins import Origin, show_value
from schemas.errors import ConfigError

_OUT_OF_RANGE = frozenset(
    {
        "finite_number",
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "string_too_short",
        "too_short",
    }
)


def describe_problems(
    exc: ValidationError, origin_of: Callable[[KeyPath], Origin], reported: Collection[KeyPath] = ()
) -> list[str]:
    """Return one line per wrong key of `exc`; `origin_of` tells where the value of a key came from.

    A key in `reported` has been described, and one whose value is `${…}` of a key with an error has that key's error.
    """
    errors = [(_path_of(error), error) for error in exc.errors(include_url=False)]
    wrong = {f"${{{'.'.join(path)}}}" for path, _ in errors}
    lines = (
        _describe(path, error, origin_of)
        for path, error in errors
        if path not in reported and origin_of(path).interpolation not in wrong
    )
    return list(dict.fromkeys(lines))  # of a key with several types, pydantic names each that does not fit


def raise_problems(problems: list[str], name: str) -> None:
    """Raise one error that shows all `problems` of the configuration called `name`; return when there are none.

    Raises:
        ConfigError: there are problems.
    """
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise ConfigError(f"{name}: {len(problems)} problems\n{lines}")


def _describe(path: KeyPath, error: ErrorDetails, origin_of: Callable[[KeyPath], Origin]) -> str:
    spec = find_spec(path)
    message = error["msg"].removeprefix("Value error, ")
    if spec is None:
        return message
    if error["type"] == "missing":
        return _missing(spec)
    shown = "" if spec.model is not None else f" = {show_value(error['input'])}"
    origin = origin_of(path)
    place = "" if origin.kind == "default" else f" ({origin})"
    if error["type"] == "value_error":
        problem = message
    elif error["type"] in _OUT_OF_RANGE:
        problem = "out of range"
    elif error["type"] == "literal_error":
        problem = "not one of the values"
    else:
        problem = f"expected {spec.type_name}"
    allowed = f"; allowed: {spec.allowed}" if spec.allowed and "allowed" not in problem else ""
    return f"{spec.dotted}{shown}{place}: {problem}{allowed}{_next_step(spec, message)}"


def _path_of(error: ErrorDetails) -> KeyPath:
    """The longest part of a pydantic location that is a key: positions in lists and names of validators fall away."""
    loc = tuple(str(part) for part in error["loc"])
    while loc and loc not in key_specs():
        loc = loc[:-1]
    return loc


def _missing(spec: KeySpec) -> str:
    wanted = spec
    if spec.model is not None:
        wanted = next(s for s in key_specs().values() if s.path[:-1] == spec.path and s.required)
    return f"{wanted.dotted} is missing: {wanted.meaning} Set it in the file, or add {wanted.dotted}=VALUE"


def _next_step(spec: KeySpec, message: str) -> str:
    if spec.model is not None or "write for instance" in message:
        return ""
    if spec.required:
        return f"; set {spec.dotted} in the file, or add {spec.dotted}=VALUE"
    default = show_value(spec.default).removeprefix('"').removesuffix('"')
    return f"; the default is {spec.dotted}={default}"
