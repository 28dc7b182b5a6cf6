"""Features of the user's own, `drift.features`: functions of one prompt, named by dotted path.

Owns finding and calling them; what they return is checked here, so that a fault names the function and the row.
"""

import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from schemas.errors import ConfigError
from tasks.drift.two_samples import FloatArray

UserFeature = Callable[[str], object]
"""Takes a prompt, returns a number or a category."""


def load_feature(path: str) -> UserFeature:
    """Return the function at a dotted path.

    Raises:
        ConfigError: no such module or function, or the module fails.
    """
    if "" not in sys.path:
        sys.path.append("")  # the working directory, last: a file of the user's shadows no library
    module, _, name = path.rpartition(".")
    try:
        function: object = getattr(importlib.import_module(module), name)
    except Exception as exc:
        raise ConfigError(
            f"drift.features: {path!r} cannot be imported ({type(exc).__name__}: {exc}); expected "
            "package.module.function of a module in PYTHONPATH, installed beside Milepost, or in the working directory"
        ) from exc
    if not callable(function):
        raise ConfigError(f"drift.features: {path!r} is a {type(function).__name__}, expected a function")
    return cast("UserFeature", function)


def evaluate_feature(path: str, function: UserFeature, prompts: Sequence[str]) -> FloatArray | list[str]:
    """Return the value of each prompt: all numbers or all categories.

    Raises:
        ConfigError: the function raised, or returned something else than a finite number or a text.
    """
    values = [_value(path, function, prompt, row) for row, prompt in enumerate(prompts, start=1)]
    texts = [value for value in values if isinstance(value, str)]
    if texts and len(texts) < len(values):
        row = next(
            row for row, value in enumerate(values, start=1) if isinstance(value, str) != isinstance(values[0], str)
        )
        raise ConfigError(
            f"drift.features: {path} returned {values[0]!r} for row 1 and {values[row - 1]!r} for row {row}; expected "
            "numbers alone, or texts alone"
        )
    return texts or np.array(values, np.float64)


def _value(path: str, function: UserFeature, prompt: str, row: int) -> float | str:
    shown = f"row {row} ({prompt[:60]!r})"
    try:
        value = function(prompt)
    except Exception as exc:  # the function is not ours: whatever it raises is the user's to mend
        raise ConfigError(f"drift.features: {path} raised {type(exc).__name__} on {shown}: {exc}") from exc
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | np.number) and math.isfinite(value):
        return float(value)
    raise ConfigError(
        f"drift.features: {path} returned {value!r} for {shown}; expected a finite number or a text for every row"
    )
