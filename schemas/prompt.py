"""Section `prompt`: how an item is asked."""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Section

PromptFormat = Literal["chat", "completion"]


class FewShotConfig(Section):
    """Solved examples before each question."""

    n: int = Field(ge=1, le=64)
    """Examples before each question."""
    path: str | None = Field(default=None, min_length=1)
    """Source of the examples, as `valid_dataset.path` and with the same columns. None: `valid_dataset.path` itself."""
    split: str = Field(default="train", min_length=1)
    """Split of a folder or hub dataset that examples come from: `train`, so that no question of `test` is shown. A
    single local file has no split and is read whole; the question itself is never among its examples."""
    seed: int = Field(default=0, ge=0)
    """Seed of the choice. It is apart from the run's, so that other seeds sample other answers to the same prompts."""


class PromptConfig(Section):
    """How an item is asked: as a conversation, or as a text that goes on."""

    format: PromptFormat = "chat"
    """`chat`: a conversation by a chat template, as instruct models are trained. `completion`: a text without turns,
    for base models; it needs no chat template. `gconfig.stop` ends a completion that goes on with a next question."""
    template: str | None = Field(default=None, min_length=1)
    """Text of a Jinja template. With `completion` it reads `question`, the problem with its suffix, as in
    `Question: {{ question }} Answer:`; None is the question alone. With `chat` it reads `messages` and takes the place
    of the checkpoint's chat template; None is the checkpoint's own."""

    few_shot: FewShotConfig | None = None
    """Solved examples before each question. None: the question alone."""

    @model_validator(mode="after")
    def _asks_the_question(self) -> Self:
        wanted = "question" if self.format == "completion" else "messages"
        if self.template is not None and wanted not in self.template:
            raise ValueError(
                f"prompt.template does not read {wanted!r}, so that no problem would be asked; write "
                f"{'{{ question }}' if wanted == 'question' else 'a loop over messages'} into it"
            )
        return self
