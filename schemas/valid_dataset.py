"""The section `valid_dataset`: which problems are evaluated, and how a row becomes a prompt."""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Section

DatasetFormat = Literal["auto", "gsm8k", "math500", "aime", "columns"]
InvalidRows = Literal["refuse", "skip"]


_UNGENERATED_TYPES: Final = {"sft": "a loss", "rw": "a pairwise accuracy", "dpo": "a pairwise accuracy"}
"""Types of training data, and what a trainer evaluates on each."""


def _generated_type(value: str) -> str:
    if value in _UNGENERATED_TYPES:
        raise ValueError(
            f"a trainer evaluates {_UNGENERATED_TYPES[value]} on it, which this version does not compute; set "
            "valid_dataset.type=rl to have answers generated and graded"
        )
    return value


class ColumnMapping(Section):
    """Which columns of the data hold what; for data that no adapter knows.

    A dot leads into an object: `reward_model.ground_truth` is the key `ground_truth` of the column `reward_model`.
    """

    prompt: str | None = None
    """Column with the problem's text. Exactly one of `prompt` and `messages` is named."""
    messages: str | None = None
    """Column with a conversation, a list of {role, content} whose last turn is the user's."""
    gold: str
    """Column with the gold answer: text, a number, which is read as its shortest decimal form, or a list of one."""
    id: str | None = None
    """Column with a unique id; None names each item by a digest of its problem and gold."""
    subsets: tuple[str, ...] = ()
    """Columns whose values are strata: each value gets metrics of its own, as `column=value`."""
    cluster: str | None = None
    """Column that is equal in questions that belong together, such as the seed question of perturbed ones or the
    passage that several are about: error bars count them as one. None: each problem stands alone."""
    solution: str | None = None
    """Column with the worked solution; kept beside the sample, never shown to the model."""

    @model_validator(mode="after")
    def _one_source_of_the_prompt(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError(
                f"name exactly one of columns.prompt and columns.messages, got prompt={self.prompt!r} and "
                f"messages={self.messages!r}"
            )
        return self


class ValidDatasetConfig(Section):
    """Where the evaluation items come from and how they are asked."""

    path: str = Field(min_length=1)
    """A local .jsonl, .json, .parquet or .csv file; a local folder or hub id, read through `datasets`; or
    `reasoning_gym:<task>[+<task>...][?size=200&seed=1&...]`."""
    name: str | None = Field(default=None, min_length=1)
    """Name of the dataset in reports and the store; None takes it from `path`, so that moving a file into another
    folder does not rename the dataset."""
    type: Annotated[str, AfterValidator(_generated_type)] | None = Field(
        default=None, json_schema_extra={"allowed": "rl or null"}
    )
    """Kind of data, as training configurations give it: answers to problems of type `rl` are generated and graded."""
    split: str = Field(default="test", min_length=1)
    """Split of a folder or hub dataset: `test`, because evaluating on training data is what nobody means. A single
    local file has no split and is read whole."""
    hub_config: str | None = Field(default=None, min_length=1)
    """Configuration of a hub dataset that has several; None takes the only one, else `default` or `main`."""
    batch_size: int | None = Field(default=None, ge=1)
    """Batch size of the trainer's data loader, accepted so that its file runs unchanged; engines choose their own
    batch (`rollout.max_concurrent_rollouts`)."""
    max_length: int | None = Field(default=None, ge=1)
    """Longest rendered prompt in tokens; an item with a longer one is refused, never cut. None: what the model's
    context leaves beside `max_new_tokens`."""
    format: DatasetFormat = "auto"
    """Layout of a row. `auto` tells it from the columns; `columns` reads `columns`."""
    columns: ColumnMapping | None = None
    """The columns of data that no adapter knows."""
    prompt_suffix: str | None = None
    """Instruction appended to the problem as it is, line break included. None: the format's own, which asks for the
    final answer in \\boxed{}, the one place where an answer is found without guessing. Empty for none."""
    system_prompt: str | None = None
    """First turn of every conversation; None leaves it to the chat template, as the model was trained."""
    exclude_golds: tuple[str, ...] = ()
    """Rows whose gold is one of these texts are left out, such as `None` for problems without an answer. Empty by
    default: an item is never dropped in silence, an ungradable one is an error."""
    invalid_rows: InvalidRows = "refuse"
    """What happens when rows cannot be used (a gold that the grader cannot read, an empty prompt, a repeated problem,
    an image): `refuse` ends the command before anything is launched; `skip` leaves them out, counts them, and shows the
    count wherever the accuracy is shown. Both write every such row with its reason to `refused_rows/` in
    `cluster.fileroot`. `refuse` by default: what is left out changes what is measured."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first n items, exclusions apart; None for all. Rows after the last one taken are not read. Of these n,
    `invalid_rows: skip` may leave out some more whose golds cannot be graded."""

    @model_validator(mode="after")
    def _columns_belong_to_the_format(self) -> Self:
        if self.format == "columns" and self.columns is None:
            raise ValueError("format 'columns' needs columns.prompt and columns.gold; set them or use format: auto")
        if self.columns is not None and self.format not in ("auto", "columns"):
            raise ValueError(
                f"columns are read by format 'auto' or 'columns', got {self.format!r}; remove one of the two"
            )
        return self
