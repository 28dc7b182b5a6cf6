"""Features of the user's own, `drift.features`: functions of one prompt, named by dotted path.

Owns finding and calling them; what they return is checked here, so that a fault names the function and the row.
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from infra.arrays import FloatArray
from infra.machine.python_code import WHERE_FOUND, import_object
from schemas.errors import ConfigError

UserFeature = Callable[[str], object]
"""Takes a prompt, returns a number, a category or a vector (an embedding, say)."""


def load_feature(path: str) -> UserFeature:
    """Return the function at a dotted path.

    Raises:
        ConfigError: no such module or function, or the module fails.
    """
    try:
        function = import_object(path)
    except Exception as exc:
        raise ConfigError(
            f"drift.features: {path!r} cannot be imported ({type(exc).__name__}: {exc}); expected {WHERE_FOUND}"
        ) from exc
    if not callable(function):
        raise ConfigError(f"drift.features: {path!r} is a {type(function).__name__}, expected a function")
    return function


def evaluate_feature(path: str, function: UserFeature, prompts: Sequence[str]) -> FloatArray | list[str]:
    """Return the value of each prompt: numbers, shape `(n,)`, vectors, shape `(n, d)`, or categories.

    Raises:
        ConfigError: the function raised, or returned something else than finite numbers, texts, or vectors of one
            length.
    """
    values = [_value(path, function, prompt, row) for row, prompt in enumerate(prompts, start=1)]
    shapes = [_shape(value) for value in values]
    odd = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise ConfigError(
            f"drift.features: {path} returned {_shown(values[0])} for row 1 and {_shown(values[odd])} for row "
            f"{odd + 1}; expected numbers alone, texts alone, or vectors of one length"
        )
    texts = [value for value in values if isinstance(value, str)]
    return texts or np.array(values, np.float64)


def _shape(value: float | str | tuple[float, ...]) -> str | int:
    """Return what all values of a feature must have in common."""
    return len(value) if isinstance(value, tuple) else type(value).__name__


def _shown(value: float | str | tuple[float, ...]) -> str:
    return f"a vector of {len(value)}" if isinstance(value, tuple) else repr(value)


def _value(path: str, function: UserFeature, prompt: str, row: int) -> float | str | tuple[float, ...]:
    shown = f"row {row} ({prompt[:60]!r})"
    try:
        value = function(prompt)
    except Exception as exc:  # the function is not ours: whatever it raises is the user's to mend
        raise ConfigError(f"drift.features: {path} raised {type(exc).__name__} on {shown}: {exc}") from exc
    if isinstance(value, str):
        return value
    if _is_finite(value):
        return float(cast("float", value))
    if isinstance(value, list | tuple | np.ndarray) and len(value):
        entries = cast("Sequence[object]", value)
        if all(map(_is_finite, entries)):
            return tuple(float(cast("float", entry)) for entry in entries)
    raise ConfigError(
        f"drift.features: {path} returned {value!r:.80} for {shown}; expected a finite number, a text, or a "
        "vector of finite numbers for every row"
    )


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)
