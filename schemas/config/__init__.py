"""The configuration: the model, loading it from YAML and overrides, and showing it."""

from collections.abc import Sequence
from pathlib import Path

from schemas.config.loading import LoadedConfig as LoadedConfig
from schemas.config.loading import load_with_origins as load_with_origins
from schemas.config.rendering import config_digest as config_digest
from schemas.config.rendering import config_to_yaml as config_to_yaml
from schemas.config.rendering import describe_sampling as describe_sampling
from schemas.config.rendering import render_config as render_config
from schemas.evaluation import EvaluationConfig as EvaluationConfig
from schemas.evaluation import check_launchable as check_launchable


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> EvaluationConfig:
    """Return the configuration in the YAML file at `path` with `key.path=value` overrides, later ones winning.

    AReaL training configs load unchanged. `load_with_origins` tells in addition what was ignored and where each value
    came from.

    Raises:
        ConfigError: everything that is wrong with file, overrides and values, shown together.
    """
    return load_with_origins(path, overrides).config
