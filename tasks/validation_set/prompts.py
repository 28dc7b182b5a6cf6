"""Render a dataset's prompts, and decide which of them the context has room for.

A prompt depends on its item and the chat template alone. Nothing is cut: a prompt without room for `max_new_tokens`
after it is refused with the numbers, and its samples become `failed`, never a score.
"""

import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, cast

from infra.tokenizer import ChatTokenizer
from infra.tokenizer.chat import TokenIds
from schemas.dataset import EvalItem, LoadedDataset
from schemas.errors import ChatTemplateError, CheckpointError, ConfigError, DatasetError
from schemas.identity import prompt_hash
from schemas.inference import PlannedItem, RefusedItem
from schemas.validation_set import RenderedPrompts

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_SIZE: Final = 1024
"""Prompts tokenised at once: enough for every core, while their Python integers are few."""

_LENGTH_STEP: Final = 16
"""max_model_len is a multiple of it: the block of tokens in which engines provision their cache."""

Render = Callable[[Sequence[EvalItem]], list[str]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLimits:
    """What a prompt has to fit in; tokens."""

    context_length: int | None
    """Most tokens of prompt and completion together: what the model takes or, if less, what is configured; None when
    nothing says so."""
    max_new_tokens: int
    """Longest completion (gconfig.max_new_tokens)."""
    max_prompt_tokens: int | None = None
    """Longest prompt admitted (valid_dataset.max_length); None for any."""
    num_embeddings: int | None = None
    """Rows of the model's token embedding, which token ids are below; None where it is not known."""
    media_token_ids: tuple[int, ...] = ()
    """Tokens that stand for an image, a video or a sound, none of which is given to the model."""


def render_prompts(
    dataset: LoadedDataset, tokenizer: ChatTokenizer, *, limits: PromptLimits, render: Render | None = None
) -> RenderedPrompts:
    """Render and tokenise every item's conversation.

    `render` makes the texts of some items; by default the tokenizer renders their conversations.

    Raises:
        DatasetError: no item fits, or one holds text that is no Unicode.
        ChatTemplateError: the chat template refuses a conversation, or asks for an image.
        CheckpointError: a token is beyond the model's embedding.
    """
    import pyarrow as pa

    tables: list[pa.Table] = []
    planned: list[PlannedItem] = []
    refused: list[RefusedItem] = []
    for batch in _batches(dataset.items):
        prompts = render(batch) if render else tokenizer.render_all([item.messages for item in batch])
        _check_text(batch, prompts)
        token_ids = tokenizer.encode(prompts)
        hashes = [prompt_hash(ids) for ids in token_ids]
        for item, ids, digest in zip(batch, token_ids, hashes, strict=True):
            reason = _find_reason(len(ids), limits)
            if reason is None:
                planned.append(PlannedItem(item_id=item.item_id, prompt_hash=digest, num_prompt_tokens=len(ids)))
            else:
                refused.append(RefusedItem(item_id=item.item_id, prompt_hash=digest, reason=reason))
        tables.append(_to_table(batch, prompts, hashes, token_ids))
        _check_token_ids(tables[-1], tokenizer, limits)
        _check_media(tables[-1], tokenizer, limits)
    if not planned:
        raise DatasetError(_describe_none_fits(dataset, refused))
    return RenderedPrompts(
        table=pa.concat_tables(tables),
        items=tuple(planned),
        refused=tuple(refused),
        longest_prompt_tokens=max(item.num_prompt_tokens for item in planned),
        injected=_find_injected(dataset, tokenizer),
    )


def choose_max_model_len(
    *, context_length: int | None, configured: int | None, longest_prompt_tokens: int, max_new_tokens: int
) -> int:
    """Return the context length to provision, in tokens: as configured, else no more than this run can use.

    A shorter context costs nothing in the answers and leaves the engine more memory for its batch.

    Raises:
        ConfigError: max_new_tokens leaves no room for a prompt, or more is configured than the model takes.
    """
    limit = limit_context(context_length=context_length, configured=configured, max_new_tokens=max_new_tokens)
    if configured is not None:
        return configured
    needed = longest_prompt_tokens + max_new_tokens
    rounded = -(-needed // _LENGTH_STEP) * _LENGTH_STEP
    return rounded if limit is None else min(rounded, limit)


def limit_context(*, context_length: int | None, configured: int | None, max_new_tokens: int) -> int | None:
    """Return the most tokens that prompt and completion may have together; None when nothing says so.

    Raises:
        ConfigError: as `choose_max_model_len`; checked here before any prompt is rendered.
    """
    if context_length is not None and configured is not None and configured > context_length:
        raise ConfigError(
            f"max_model_len is {configured:,}, the model takes at most {context_length:,} (max_position_embeddings in "
            f"its config.json); set it to {context_length:,} or less, or leave it out"
        )
    limit = configured if configured is not None else context_length
    if limit is not None and max_new_tokens >= limit:
        source = "max_model_len as configured" if configured is not None else "max_position_embeddings of the model"
        raise ConfigError(
            f"gconfig.max_new_tokens must be below the context length {limit:,} ({source}), got {max_new_tokens:,}: no "
            f"token is left for the prompt; lower gconfig.max_new_tokens"
        )
    return limit


def _batches(items: Sequence[EvalItem]) -> Iterator[Sequence[EvalItem]]:
    for start in range(0, len(items), _BATCH_SIZE):
        yield items[start : start + _BATCH_SIZE]


def _to_table(
    items: Sequence[EvalItem], prompts: list[str], hashes: list[str], token_ids: Sequence[TokenIds]
) -> "pa.Table":
    """Return the rows of some items in PROMPT_SCHEMA."""
    import pyarrow as pa

    from schemas.tables import PROMPT_SCHEMA

    # Token ids go over as memory: as Python integers they take as long as the tokenising.
    offsets = array("i", accumulate((len(ids) for ids in token_ids), initial=0))
    values = array("i")
    for ids in token_ids:
        values.extend(ids)
    columns: list[Any] = [
        pa.array([item.item_id for item in items], pa.string()),
        pa.array(hashes, pa.string()),
        pa.array(prompts, pa.string()),
        pa.ListArray.from_arrays(_from_memory(offsets), _from_memory(values)),
        pa.array([item.gold for item in items], pa.string()),
        pa.array([item.grader for item in items], pa.string()),
        pa.array([item.grader_data for item in items], pa.string()),
        pa.array([list(item.subsets.items()) for item in items], PROMPT_SCHEMA.field("subsets").type),
        pa.array([item.cluster_id for item in items], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=PROMPT_SCHEMA)


def _from_memory(values: TokenIds) -> "pa.Int32Array":
    import pyarrow as pa

    buffers = [None, pa.py_buffer(values.tobytes())]
    return cast("pa.Int32Array", pa.Array.from_buffers(pa.int32(), len(values), buffers))


def _check_text(items: Sequence[EvalItem], prompts: Sequence[str]) -> None:
    """Refuse half a surrogate pair, which JSON can smuggle in and no tokenizer takes."""
    for item, prompt in zip(items, prompts, strict=True):
        try:
            prompt.encode()
        except UnicodeEncodeError as exc:
            raise DatasetError(
                f"item {item.item_id}: its prompt holds {exc.object[exc.start]!r}, half of a surrogate pair and no "
                f"character; mend the dataset's text"
            ) from exc


def _check_token_ids(table: "pa.Table", tokenizer: ChatTokenizer, limits: PromptLimits) -> None:
    """Refuse a tokenizer with tokens that the model has no embedding for: an engine would refuse or crash on each."""
    import pyarrow.compute as pc

    num_rows = limits.num_embeddings
    ids = table.column("token_ids")
    largest = pc.max(pc.list_flatten(ids)).as_py()
    if num_rows is None or largest is None or largest < num_rows:
        return
    row = next(number for number, own in enumerate(ids) if max(own.as_py() or [0]) >= num_rows)
    token_id = next(number for number in ids[row].as_py() if number >= num_rows)
    raise CheckpointError(
        f"item {table.column('item_id')[row].as_py()}: its prompt holds token {token_id} "
        f"({tokenizer.decode([token_id])!r}), and the model's embedding has {num_rows} rows (ids 0 to "
        f"{num_rows - 1}): tokenizer and chat template are of another model; set tokenizer_path to this model's own, "
        f"or save the model with resized embeddings"
    )


def _check_media(table: "pa.Table", tokenizer: ChatTokenizer, limits: PromptLimits) -> None:
    """Refuse a token that stands for an image: without one, an engine takes it for a word or fails."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not limits.media_token_ids:
        return
    ids = table.column("token_ids")
    found = pc.is_in(pc.list_flatten(ids), pa.array(limits.media_token_ids, pa.int32()))
    if not pc.any(found).as_py():
        return
    first = found.index(pa.scalar(True)).as_py()
    token_id: int = pc.list_flatten(ids)[first].as_py()
    row: int = pc.list_parent_indices(ids)[first].as_py()
    raise ChatTemplateError(
        f"item {table.column('item_id')[row].as_py()}: its prompt holds token {token_id} "
        f"({tokenizer.decode([token_id])!r}), which stands for an image, a video or a sound, and the model is given "
        f"text alone; leave out rows that need one, or set tokenizer_path to a folder with a template of text"
    )


def _find_reason(num_tokens: int, limits: PromptLimits) -> str | None:
    """Return why a prompt of this length is refused, None when it is not."""
    if num_tokens == 0:
        return "the prompt has 0 tokens; check the chat template"
    if limits.max_prompt_tokens is not None and num_tokens > limits.max_prompt_tokens:
        return (
            f"prompt {num_tokens:,} tokens > valid_dataset.max_length {limits.max_prompt_tokens:,}; raise "
            f"valid_dataset.max_length to admit it"
        )
    if limits.context_length is not None and num_tokens + limits.max_new_tokens > limits.context_length:
        room = limits.context_length - num_tokens
        advice = f"lower gconfig.max_new_tokens to {room:,} or less" if room > 0 else "no max_new_tokens makes it fit"
        return (
            f"prompt {num_tokens:,} tokens + max_new_tokens {limits.max_new_tokens:,} > context "
            f"{limits.context_length:,}; {advice}"
        )
    return None


def _describe_none_fits(dataset: LoadedDataset, refused: Sequence[RefusedItem]) -> str:
    return (
        f"none of the {len(refused):,} items of {dataset.name} can be generated; the first, {refused[0].item_id}: "
        f"{refused[0].reason}"
    )


def _find_injected(dataset: LoadedDataset, tokenizer: ChatTokenizer) -> tuple[str, ...]:
    """Return the items whose text spells special tokens, and warn of them: they may end a turn or open another."""
    found: list[str] = []
    spelt: set[str] = set()
    for item in dataset.items:
        tokens = {token for message in item.messages for token in tokenizer.special_tokens_in(message.content)}
        if tokens:
            found.append(item.item_id)
            spelt |= tokens
    if found:
        logger.warning(
            "%d items of %s spell special tokens in their text (%s; first item %s): the model sees them as such",
            len(found), dataset.name, ", ".join(sorted(spelt)[:5]), found[0],
        )  # fmt: skip
    return tuple(found)
