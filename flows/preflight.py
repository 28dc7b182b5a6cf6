"""Everything about the input that can be refused in seconds, before Prefect is even imported."""

from collections.abc import Iterable
from contextlib import suppress

from pydantic import JsonValue

from infra.datasets.sources.reasoning_gym_tasks import PREFIX
from infra.files.new_folders import empty_folders_removed
from infra.store import open_store
from schemas.config import EvaluationConfig, check_launchable
from schemas.errors import SetupError, UserInputError
from tasks.checkpoint.resolution import inspect_source
from tasks.inference.planning.layout import check_adapter, check_layout
from tasks.inference.replicas.prewarm import start_checks
from tasks.validation_set.loading import check_data, check_validation_set


def check_inputs(config: EvaluationConfig) -> None:
    """Look at launcher, devices, store, checkpoint, tokenizer and dataset.

    A checkpoint that is gone is not looked at: the flow takes over what a killed run kept of it.

    Raises:
        UserInputError: one of them cannot be used; nothing was launched.
    """
    check_launchable(config)
    check_layout(config)
    with empty_folders_removed(config.cluster.folder, on=UserInputError):
        open_store(config.cluster.folder).check_writable()
        inspected = inspect_source(config)
        if inspected is not None:
            report, tokenizer_folder = inspected
            check_adapter(config, report)
            start_checks(config, report)
            check_validation_set(config, report, tokenizer_folder)


def check_layout_elsewhere(config: EvaluationConfig) -> None:
    """Look at what a cluster says to replicas that another process of its users will start, where it can be asked here.

    What this machine lacks, an engine or a GPU or Slurm, the other one may have.

    Raises:
        LaunchError: the cluster has no such partition, allows no such time, or the replicas do not fit into it.
    """
    with suppress(SetupError):
        check_layout(config)


def check_dataset_elsewhere(config: EvaluationConfig, deployed: Iterable[JsonValue]) -> None:
    """Read the dataset that runs of another process of this machine will read, whatever their checkpoints.

    `deployed`: configurations that the server holds. Problems that one of them makes by the same procedure were checked
    when it was deployed; a file may have changed since.

    Raises:
        DatasetError, ConfigError: the dataset cannot be read or graded.
    """
    section = config.model_dump(mode="json", exclude_defaults=True)["valid_dataset"]
    is_procedural = config.valid_dataset.path.startswith(PREFIX) and not config.refresh.pool
    is_known = any(isinstance(each, dict) and each.get("valid_dataset") == section for each in deployed)
    if not (is_procedural and is_known and config.reward_fn == "auto" and config.prompt.few_shot is None):
        check_data(config)
