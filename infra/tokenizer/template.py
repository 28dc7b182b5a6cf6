"""Chat templates: Jinja text from a checkpoint, rendered in a sandbox with what the field's templates expect.

The environment is the one that templates are written for (transformers' `apply_chat_template`): trimmed blocks, loop
controls, `raise_exception`, `strftime_now`, a `tojson` that escapes no HTML, and the `{% generation %}` tag. One thing
differs on purpose: `strftime_now` tells a fixed date, because a prompt must not depend on the day it is rendered.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from schemas.dataset import ChatMessage
from schemas.errors import CheckpointError

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.parser import Parser

TEMPLATE_DATE: Final = date(2024, 7, 26)
"""What `strftime_now` tells: the date that Llama 3's templates themselves fall back to."""


class MessageRenderer(Protocol):
    """Turns a conversation into the text that the model continues."""

    def __call__(self, messages: Sequence[ChatMessage]) -> str: ...


def compile_template(
    text: str, *, file: Path, special_tokens: Mapping[str, str], today: date = TEMPLATE_DATE
) -> MessageRenderer:
    """Return the renderer of a chat template; it always ends with the generation prompt.

    Raises:
        CheckpointError: the template has a syntax error; or, when rendering, refuses the conversation or fails.
    """
    import jinja2
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it is transparent."""

        tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as an instance attribute)

        def parse(self, parser: "Parser") -> "list[nodes.Node]":
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def strftime_now(layout: str) -> str:
        return datetime.combine(today, time()).strftime(layout)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    try:
        template = environment.from_string(
            text, globals={"raise_exception": raise_exception, "strftime_now": strftime_now}
        )
    except (jinja2.TemplateSyntaxError, RecursionError) as exc:
        line = f", line {exc.lineno}" if isinstance(exc, jinja2.TemplateSyntaxError) else ""
        raise CheckpointError(
            f"{file}{line}: the chat template does not parse ({exc}); mend it or set tokenizer_path to a folder with a "
            f"good one"
        ) from exc

    def render(messages: Sequence[ChatMessage]) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return template.render(
                messages=turns, tools=None, documents=None, add_generation_prompt=True, **special_tokens
            )
        except Exception as exc:  # a template is a program of the checkpoint: it may raise anything
            roles = ", ".join(message.role for message in messages)
            raise CheckpointError(
                f"{file}: the chat template failed on a conversation of the roles [{roles}]: {type(exc).__name__}: "
                f"{exc}; if it refuses a system turn, drop the system prompt, else set tokenizer_path to a folder with "
                f"a template that takes it"
            ) from exc

    return render


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which would change the prompt.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
