"""What is asked of a model: the prompts of a dataset, rendered for one tokenizer and chat template."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from schemas.inference import PlannedItem, RefusedItem

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompts:
    """The prompts of a dataset."""

    table: "pa.Table"
    """PROMPT_SCHEMA, one row per item in the dataset's order, refused ones included."""
    items: tuple[PlannedItem, ...]
    """The items that fit, in the dataset's order."""
    refused: tuple[RefusedItem, ...]
    """The items that do not, each with the numbers."""
    longest_prompt_tokens: int
    """Length of the longest prompt that fits."""
    injected: tuple[str, ...]
    """Ids of the items whose text spells a special token such as <|im_end|>, which the tokenizer takes for one."""


class PromptOrigin(NamedTuple):
    """What beside the configuration decides the prompts, and which of them fit."""

    tokenizer_digest: str
    chat_template_digest: str
    context_length: int | None
    num_embeddings: int | None
    stored_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSet:
    """What is asked."""

    name: str
    """Name of the dataset."""
    version: str
    """Digest of its items."""
    prompts: RenderedPrompts
    """Every prompt, and which of them cannot be asked."""
    rows: "pa.Table"
    """PROFILE_SCHEMA, one row per item before it was rendered: what a check of drift compares."""
    max_model_len: int
    """Context length to provision, in tokens."""
    origin: PromptOrigin
    """What the prompts were rendered with."""
    num_skipped_rows: int
    """Rows of the source left out because they cannot be used (`valid_dataset.invalid_rows: skip`)."""
    notes: tuple[str, ...]
    """What a user should know of how the data was read."""
