"""The validation set of a run: items from their source, rendered for one model."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.datasets.loading import load_dataset
from infra.tokenizer import ChatTokenizer
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.dataset import EvalItem
from schemas.errors import ConfigError
from tasks.grading.golds import check_golds
from tasks.validation_set.prompts import (
    PromptLimits,
    RenderedPrompts,
    choose_max_model_len,
    limit_context,
    render_prompts,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSet:
    """What is asked."""

    name: str
    """Name of the dataset."""
    version: str
    """Digest of its items."""
    prompts: RenderedPrompts
    """Every prompt, and which of them cannot be asked."""
    max_model_len: int
    """Context length to provision, in tokens."""


def load_validation_set(config: EvaluationConfig, report: CheckpointReport, tokenizer_folder: Path) -> ValidationSet:
    """Load the items, check that they can be graded, and render their prompts.

    Raises:
        DatasetError: the source cannot be read, or a row cannot be graded.
        ConfigError: `max_new_tokens` leaves no room for a prompt; `reward_fn` does not fit the data.
        CheckpointError: no tokenizer or no chat template.
    """
    generation = config.generation
    limits = PromptLimits(
        context_length=limit_context(
            context_length=report.context_length,
            configured=config.max_model_len,
            max_new_tokens=generation.max_new_tokens,
        ),
        max_new_tokens=generation.max_new_tokens,
        max_prompt_tokens=config.valid_dataset.max_length,
    )
    tokenizer = ChatTokenizer.open(tokenizer_folder)
    dataset = load_dataset(config.valid_dataset, seed=config.seed, check_golds=check_golds)
    dataset = dataset.model_copy(update={"items": _with_grader(dataset.items, config)})
    for note in dataset.notes:
        logger.info("%s: %s", dataset.name, note)
    prompts = render_prompts(dataset, tokenizer, limits=limits)
    for item in prompts.refused[:3]:
        logger.warning("item %s is not asked: %s", item.item_id, item.reason)
    if len(prompts.refused) > 3:
        logger.warning("%d items are not asked; their samples are failed", len(prompts.refused))
    return ValidationSet(
        name=dataset.name,
        version=dataset.version,
        prompts=prompts,
        max_model_len=choose_max_model_len(
            context_length=report.context_length,
            configured=config.max_model_len,
            longest_prompt_tokens=prompts.longest_prompt_tokens,
            max_new_tokens=generation.max_new_tokens,
        ),
    )


def _with_grader(items: Sequence[EvalItem], config: EvaluationConfig) -> tuple[EvalItem, ...]:
    """Return the items with the grader that `reward_fn` names; `auto` keeps what the dataset brings."""
    if config.reward_fn == "auto":
        return tuple(items)
    if config.reward_fn == "math":
        reasons = check_golds([item.gold for item in items])
        refused = next(((item, reason) for item, reason in zip(items, reasons, strict=True) if reason), None)
        if refused is not None:
            raise ConfigError(
                f"reward_fn is 'math', but the gold {refused[0].gold!r} of item {refused[0].item_id} {refused[1]}; "
                "set reward_fn=auto to grade by the dataset's own scorer"
            )
        return tuple(item.model_copy(update={"grader": "math", "grader_data": ""}) for item in items)
    if any(item.grader != "reasoning_gym" for item in items):
        raise ConfigError(
            "reward_fn is 'reasoning_gym', but the dataset is not made of reasoning_gym tasks; set reward_fn=auto, or "
            "valid_dataset.path=reasoning_gym:<task>"
        )
    return tuple(items)
