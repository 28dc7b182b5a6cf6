"""Section `chat`: how a conversation becomes the text that the model continues."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from schemas.base import Section

GIVEN_NAMES: Final = ("messages", "tools", "documents", "add_generation_prompt")
"""Variables of a chat template that follow from the conversation."""

THINKING: Final = "enable_thinking"
"""Flag by which templates of reasoning models open the answer with or without thinking."""

TemplateValue = bool | int | float | str
"""A value that a chat template is given."""


def _checked_names(values: dict[str, TemplateValue]) -> dict[str, TemplateValue]:
    for name in values:
        if name in GIVEN_NAMES:
            raise ValueError(f"{name} follows from the conversation and cannot be set; remove it")
        if not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a variable; allowed: letters, digits and _")
    return values


class ChatConfig(Section):
    """How a conversation becomes the text that the model continues."""

    template_kwargs: Annotated[dict[str, TemplateValue], AfterValidator(_checked_names)] = Field(
        default_factory=dict[str, TemplateValue],
        json_schema_extra={"allowed": "variables of the chat template, such as {enable_thinking: false}"},
    )
    """Variables that the chat template is given beside the conversation, as those of transformers'
    `apply_chat_template`. One that the template does not read is an error."""
