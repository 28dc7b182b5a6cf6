"""What `milepost doctor` says of a machine."""

from enum import StrEnum

from schemas.base import Model


class CheckStatus(StrEnum):
    """How one requirement stands."""

    OK = "ok"
    """Looked at and usable."""
    WARNING = "warning"
    """Usable with a loss that the detail names."""
    MISSING = "missing"
    """An evaluation would stop here."""


class Check(Model):
    """One line of the diagnosis."""

    name: str
    """What was looked at."""
    status: CheckStatus
    """Result of the check."""
    detail: str
    """What was seen, with versions and numbers."""
    fix: str = ""
    """Command or step that provides what is missing; empty when nothing is."""


class Diagnosis(Model):
    """What `milepost doctor` found."""

    checks: tuple[Check, ...]
    """One entry per requirement, in a fixed order."""
