"""The validation set of a run: items from their source, rendered for one model."""

import logging
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from infra.datasets.loading import CheckGolds, load_dataset
from infra.handover import Handover
from infra.tokenizer import ChatTokenizer
from infra.tokenizer.files import digest_chat_template, digest_tokenizer, find_chat_template
from schemas.chat import THINKING
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.dataset import EvalItem, LoadedDataset
from schemas.errors import ChatTemplateError, ConfigError
from schemas.validation_set import PromptOrigin, ValidationSet
from tasks.drift.profiles import tabulate
from tasks.grading.golds import check_golds
from tasks.grading.reward_function import check_function, function_data, plausible_call
from tasks.validation_set.few_shot import load_examples
from tasks.validation_set.prompts import (
    PromptLimits,
    choose_max_model_len,
    limit_context,
    render_prompts,
)
from tasks.validation_set.refused_rows import keep_refused_rows, refused_rows_kept
from tasks.validation_set.versions import find_current_version, load_version

logger = logging.getLogger(__name__)


_checked: Final[Handover[ValidationSet]] = Handover()
"""What `check_validation_set` loaded, until a flow of this process takes it."""


def check_validation_set(config: EvaluationConfig, report: CheckpointReport, tokenizer_folder: Path) -> None:
    """Load the validation set and keep it for the next call of `load_validation_set`, which would do the same again.

    Raises:
        DatasetError, ConfigError, CheckpointError: as `load_validation_set`.
    """
    _checked.keep(config, _load(config, report, tokenizer_folder, _origin(config, report, tokenizer_folder)))


def load_validation_set(config: EvaluationConfig, report: CheckpointReport, tokenizer_folder: Path) -> ValidationSet:
    """Load the items, check that they can be graded, and render their prompts.

    Raises:
        DatasetError: the source cannot be read, or a row cannot be graded.
        StoreError: the current version of the set (`refresh.pool`) cannot be read or was changed.
        ConfigError: `max_new_tokens` leaves no room for a prompt; `reward_fn` does not fit the data.
        CheckpointError: no tokenizer or no chat template.
    """
    origin = _origin(config, report, tokenizer_folder)
    loaded = _checked.take(config)
    if loaded is None or loaded.origin != origin:
        loaded = _load(config, report, tokenizer_folder, origin)
    _tell(loaded)
    return loaded


def _origin(config: EvaluationConfig, report: CheckpointReport, tokenizer_folder: Path) -> PromptOrigin:
    """Ask before anything is read: if it is replaced in between, no later call takes what was rendered."""
    return PromptOrigin(
        digest_tokenizer(tokenizer_folder),
        digest_chat_template(find_chat_template(tokenizer_folder)),
        report.context_length,
        report.num_embeddings,
        find_current_version(config),
    )


def _check_stop_tokens(stop_token_ids: Sequence[int], report: CheckpointReport) -> None:
    """Check that the model can make each token that ends a completion."""
    num_rows = report.num_embeddings
    unknown = [] if num_rows is None else [each for each in stop_token_ids if each >= num_rows]
    if unknown:
        raise ConfigError(
            f"gconfig.stop_token_ids holds {unknown[0]}, and the model's embedding has {num_rows} rows: "
            "it can never be made; remove it or name ids of this tokenizer"
        )


def _load(
    config: EvaluationConfig, report: CheckpointReport, tokenizer_folder: Path, origin: PromptOrigin
) -> ValidationSet:
    generation = config.generation
    _check_stop_tokens(generation.stop_token_ids, report)
    limits = PromptLimits(
        context_length=limit_context(
            context_length=report.context_length,
            configured=config.max_model_len,
            max_new_tokens=generation.max_new_tokens,
        ),
        max_new_tokens=generation.max_new_tokens,
        max_prompt_tokens=config.valid_dataset.max_length,
        num_embeddings=report.num_embeddings,
        media_token_ids=report.media_token_ids or (),
    )
    with closing(_open_tokenizer(config, tokenizer_folder)) as tokenizer:
        context = limits.context_length
        longest = None if context is None else context * tokenizer.longest_token_chars
        dataset = load_graded(config, max_prompt_chars=longest)
        examples = load_examples(config)
        completes = config.prompt.format == "completion"
        render = None if examples is None else partial(examples.render, tokenizer=tokenizer, is_completion=completes)
        with _architecture_named(report):
            prompts = render_prompts(dataset, tokenizer, limits=limits, render=render)
            default = tokenizer.default_flag(THINKING, dataset.items[0].messages)
    return ValidationSet(
        name=dataset.name,
        version=dataset.version,
        prompts=prompts,
        rows=tabulate(dataset.items),
        max_model_len=choose_max_model_len(
            context_length=report.context_length,
            configured=config.max_model_len,
            longest_prompt_tokens=prompts.longest_prompt_tokens,
            max_new_tokens=generation.max_new_tokens,
        ),
        origin=origin,
        num_skipped_rows=len(dataset.skipped),
        notes=(*dataset.notes, *_describe_prompts(config, default)),
    )


def _open_tokenizer(config: EvaluationConfig, folder: Path) -> ChatTokenizer:
    return ChatTokenizer.open(
        folder,
        chat_template=config.prompt.template,
        template_kwargs=config.chat.template_kwargs,
        is_completion=config.prompt.format == "completion",
    )


def _describe_prompts(config: EvaluationConfig, default: bool | None) -> list[str]:
    """Say how prompts are made where it is not by the checkpoint's own template alone, and whether the model thinks."""
    kwargs = config.chat.template_kwargs
    given = [f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in kwargs.items()]
    own = config.prompt.template is not None
    notes: list[str] = []
    if config.prompt.format == "completion":
        notes.append(f"prompts are text without turns (prompt.format){', by prompt.template' if own else ''}")
    elif own:
        notes.append("prompt.template takes the place of the checkpoint's chat template")
    if (shots := config.prompt.few_shot) is not None:
        source = shots.path or config.valid_dataset.path
        notes.append(f"{shots.n} examples of {source} before each question (prompt.few_shot)")
    notes += [f"the chat template renders with {', '.join(given)} (chat.template_kwargs)"] if given else []
    if default is not None:
        notes.append(
            f"the chat template takes {THINKING}, which is not set: it renders as with {str(default).lower()} "
            f"(chat.template_kwargs.{THINKING})"
        )
    return notes


@contextmanager
def _architecture_named(report: CheckpointReport) -> Generator[None]:
    """Say of a model that takes images too that it is one, where its template takes no text."""
    try:
        yield
    except ChatTemplateError as exc:
        if report.media_token_ids is None:
            raise
        raise ChatTemplateError(
            f"{report.architecture} takes images or sound too, and is asked by text alone here: {exc}"
        ) from exc


def load_graded(config: EvaluationConfig, *, max_prompt_chars: int | None = None) -> LoadedDataset:
    """Load the items with the grader that `reward_fn` names; a problem longer than `max_prompt_chars` is refused.

    Raises:
        DatasetError, ConfigError: as `load_validation_set`.
    """
    dataset = _load_items(config, max_prompt_chars)
    dataset = dataset.model_copy(update={"items": _with_grader(dataset.items, config)})
    if config.reward_function is not None:
        first = dataset.items[0]
        check_function(
            config.reward_function, plausible_call(first.messages[-1].content, first.gold, first.grader_data)
        )
    return dataset


def check_data(config: EvaluationConfig) -> None:
    """Read what every checkpoint is asked: the dataset and the examples.

    Raises:
        DatasetError, ConfigError: one of them cannot be read or graded, or there are too few examples.
    """
    load_graded(config)
    load_examples(config)


def choose_gold_check(config: EvaluationConfig) -> CheckGolds:
    """Return what says of golds whether they can be graded; a function of the user's own takes any."""
    return check_golds if config.reward_function is None else _accept_golds


def _load_items(config: EvaluationConfig, max_prompt_chars: int | None) -> LoadedDataset:
    """Load the current version of the validation set, or its source where there are no versions."""
    version = find_current_version(config)
    if version is not None:
        return load_version(config, version, choose_gold_check(config))
    with refused_rows_kept(config):
        dataset = load_dataset(
            config.valid_dataset,
            seed=config.seed,
            check_golds=choose_gold_check(config),
            keeps_rows=config.reward_function is not None,
            max_prompt_chars=max_prompt_chars,
        )
    if not dataset.skipped:
        return dataset
    kept = keep_refused_rows(config, dataset.skipped)
    note = f"{len(dataset.skipped):,} rows cannot be used and are left out (valid_dataset.invalid_rows=skip); {kept}"
    return dataset.model_copy(update={"notes": (*dataset.notes, note)})


def _accept_golds(golds: Sequence[str]) -> list[str | None]:
    return [None] * len(golds)


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
    if config.reward_function is not None:
        return tuple(
            item.model_copy(update={"grader": "function", "grader_data": function_data(item), "row": ""})
            for item in items
        )
    if any(item.grader != "reasoning_gym" for item in items):
        raise ConfigError(
            "reward_fn is 'reasoning_gym', but the dataset is not made of reasoning_gym tasks; set reward_fn=auto, or "
            "valid_dataset.path=reasoning_gym:<task>"
        )
    return tuple(items)
