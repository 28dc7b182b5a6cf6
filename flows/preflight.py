"""Everything about the input that can be refused in seconds, before Prefect is even imported."""

from infra.store import open_store
from schemas.config import EvaluationConfig, check_launchable
from tasks.checkpoint.resolution import inspect_source
from tasks.inference.layout import check_adapter, check_layout
from tasks.validation_set.loading import check_validation_set


def check_inputs(config: EvaluationConfig) -> None:
    """Look at launcher, devices, store, checkpoint, tokenizer and dataset.

    A checkpoint that is gone is not looked at: the flow takes over what a killed run kept of it.

    Raises:
        UserInputError: one of them cannot be used; nothing was launched.
    """
    check_launchable(config)
    check_layout(config)
    open_store(config.cluster.folder).check_writable()
    inspected = inspect_source(config)
    if inspected is not None:
        report, tokenizer_folder = inspected
        check_adapter(config, report)
        check_validation_set(config, report, tokenizer_folder)
