"""Section `prompt`: how an item is asked."""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Section

PromptFormat = Literal["chat", "completion"]


class PromptConfig(Section):
    """How an item is asked: as a conversation, or as a text that goes on."""

    format: PromptFormat = "chat"
    """`chat`: a conversation by a chat template, as instruct models are trained. `completion`: a text without turns,
    for base models; it needs no chat template. `gconfig.stop` ends a completion that goes on with a next question."""
    template: str | None = Field(default=None, min_length=1)
    """Text of a Jinja template. With `completion` it reads `question`, the problem with its suffix, as in
    `Question: {{ question }} Answer:`; None is the question alone. With `chat` it reads `messages` and takes the place
    of the checkpoint's chat template; None is the checkpoint's own."""

    @model_validator(mode="after")
    def _asks_the_question(self) -> Self:
        wanted = "question" if self.format == "completion" else "messages"
        if self.template is not None and wanted not in self.template:
            raise ValueError(
                f"prompt.template does not read {wanted!r}, so that no problem would be asked; write "
                f"{'{{ question }}' if wanted == 'question' else 'a loop over messages'} into it"
            )
        return self
