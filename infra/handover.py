"""What a check has worked out is handed to the stage that would work it out again, once and in this process."""

from typing import Generic, TypeVar

from schemas.config import EvaluationConfig

T = TypeVar("T")


class Handover(Generic[T]):
    """A place for one thing, made of one configuration. Whatever is taken or kept next replaces what was there."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._kept: tuple[EvaluationConfig, T] | None = None

    def keep(self, config: EvaluationConfig, made: T) -> None:
        """Hold what was made of `config`."""
        self._kept = (config, made)

    def look(self, config: EvaluationConfig) -> T | None:
        """Return what `take` would; it stays."""
        return self._kept[1] if self._kept is not None and self._kept[0] == config else None

    def take(self, config: EvaluationConfig) -> T | None:
        """Return what is held if it was made of `config`, else None; nothing is held afterwards."""
        found, self._kept = self.look(config), None
        return found
