"""The validation set of a run: items from their source, rendered for one model."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from infra.datasets.loading import load_dataset
from infra.tokenizer import ChatTokenizer
from infra.tokenizer.files import digest_chat_template, digest_tokenizer, find_chat_template
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


class PromptOrigin(NamedTuple):
    """What of a checkpoint decides its prompts, and which of them fit."""

    tokenizer_digest: str
    chat_template_digest: str
    context_length: int | None


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
    origin: PromptOrigin
    """What the prompts were rendered with."""
    notes: tuple[str, ...]
    """What a user should know of how the data was read."""


def load_validation_set(
    config: EvaluationConfig,
    report: CheckpointReport,
    tokenizer_folder: Path,
    *,
    checked: ValidationSet | None = None,
) -> ValidationSet:
    """Load the items, check that they can be graded, and render their prompts.

    `checked` is what an earlier call of the same process made of the same `config`. It is the result, unless the
    checkpoint was replaced since.

    Raises:
        DatasetError: the source cannot be read, or a row cannot be graded.
        ConfigError: `max_new_tokens` leaves no room for a prompt; `reward_fn` does not fit the data.
        CheckpointError: no tokenizer or no chat template.
    """
    # before the tokenizer is read: if it is replaced in between, the origin is the old one's and no later call takes it
    origin = PromptOrigin(
        digest_tokenizer(tokenizer_folder),
        digest_chat_template(find_chat_template(tokenizer_folder)),
        report.context_length,
    )
    if checked is not None and checked.origin == origin:
        _tell(checked)
        return checked
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
    prompts = render_prompts(dataset, tokenizer, limits=limits)
    loaded = ValidationSet(
        name=dataset.name,
        version=dataset.version,
        prompts=prompts,
        max_model_len=choose_max_model_len(
            context_length=report.context_length,
            configured=config.max_model_len,
            longest_prompt_tokens=prompts.longest_prompt_tokens,
            max_new_tokens=generation.max_new_tokens,
        ),
        origin=origin,
        notes=dataset.notes,
    )
    _tell(loaded)
    return loaded


def _tell(loaded: ValidationSet) -> None:
    """Log how the data was read and what of it cannot be asked."""
    for note in loaded.notes:
        logger.info("%s: %s", loaded.name, note)
    refused = loaded.prompts.refused
    for item in refused[:3]:
        logger.warning("item %s is not asked: %s", item.item_id, item.reason)
    if len(refused) > 3:
        logger.warning("%d items are not asked; their samples are failed", len(refused))


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
