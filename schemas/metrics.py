"""Metrics: which are computed beside the ones that are always."""

from typing import Annotated

from pydantic import Field

from schemas.base import Model

SampleCount = Annotated[int, Field(ge=1, le=1_000_000)]


class MetricsConfig(Model):
    """Which k the metrics over several samples per item take."""

    pass_at_k: tuple[SampleCount, ...] | None = None
    """The k of pass@k, in samples; None for the powers of two up to n_samples and n_samples itself, which show how
    much further sampling would help. A k above n_samples is reported as undefined."""
    maj_at_k: tuple[SampleCount, ...] | None = None
    """The k of maj@k, in samples; None for n_samples, where it is above 1: the largest vote uses every sample."""
