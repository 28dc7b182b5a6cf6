"""Renders a chat template, a program of the checkpoint, in a process of its own with little memory and time.

Run as a file, it imports Jinja alone. It reads JSON lines from stdin: first the template, then lists of conversations
with the variables that they are rendered with; and answers with one JSON line for each conversation, `{"text": …}` or
`{"error": …}`, and one for the template, `{"variables": …}` or `{"error": …}`.

The environment is the one that templates are written for (transformers' `apply_chat_template`): trimmed blocks, loop
controls, `raise_exception`, `strftime_now`, a `tojson` that escapes no HTML, and the `{% generation %}` tag. One thing
differs on purpose: `strftime_now` tells a fixed date, because a prompt must not depend on the day it is rendered.
"""

import json
import resource
import signal
import sys
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MEMORY_BYTES: Final = 1 << 30
"""Address space of the process; Jinja with a prompt of some megabytes needs a tenth of it."""
MAX_BATCH_S: Final = 15.0
"""Seconds of a core for a list of conversations; templates of the field take 0.1 ms for one."""
MAX_PROMPT_S: Final = 0.1
"""The same for each conversation in the list, in addition."""
MAX_PROMPT_CHARS: Final = 1 << 26
"""Longest prompt; no context takes a tenth of it."""


class GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as an instance attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return what stands in the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def main() -> None:
    """Answer until stdin ends; the kernel ends what takes too long or too much."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    signal.setitimer(signal.ITIMER_PROF, MAX_BATCH_S)
    try:
        template, variables = compile_template(order["template"], datetime.fromisoformat(order["date"]))
    except jinja2.TemplateSyntaxError as exc:
        answer(error=str(exc), line=exc.lineno)
        return
    except (RecursionError, MemoryError, OverflowError, ValueError) as exc:
        answer(error=f"{type(exc).__name__}: {exc}", line=None)
        return
    answer(variables=variables)
    for line in sys.stdin:
        batch: dict[str, Any] = json.loads(line)
        conversations: list[list[dict[str, Any]]] = batch["conversations"]
        values = order["special_tokens"] | batch["kwargs"]
        signal.setitimer(signal.ITIMER_PROF, MAX_BATCH_S + MAX_PROMPT_S * len(conversations))
        for turns in conversations:
            question = {"question": turns[-1]["content"]} if order["gives_question"] else {}
            render(template, turns, values | question)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.flush()


def compile_template(text: str, today: datetime) -> tuple[jinja2.Template, list[str]]:
    """Return the template and the variables that it reads; folding its constants may take any time."""

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    functions = {"raise_exception": raise_exception, "strftime_now": today.strftime}
    parsed = environment.parse(text)
    variables = meta.find_undeclared_variables(parsed) - environment.globals.keys() - functions.keys()
    return environment.from_string(parsed, globals=functions), sorted(variables)


def render(template: jinja2.Template, turns: list[dict[str, Any]], values: dict[str, Any]) -> None:
    """Answer with the text of one conversation; it ends with the generation prompt."""
    try:
        text = template.render(messages=turns, tools=None, documents=None, add_generation_prompt=True, **values)
    except Exception as exc:  # noqa: BLE001 - a template is a program of the checkpoint: it may raise anything
        answer(error=f"{type(exc).__name__}: {exc}"[:2000])
        return
    if len(text) > MAX_PROMPT_CHARS:
        answer(error=f"it makes a prompt of {len(text):,} characters, above {MAX_PROMPT_CHARS:,}")
    else:
        answer(text=text)


def answer(**fields: str | int | list[str] | None) -> None:
    """Write one line; ASCII alone, so that half a surrogate pair gets through."""
    sys.stdout.write(json.dumps(fields) + "\n")
    if not fields.get("text"):
        sys.stdout.flush()


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes <, > and & for HTML, which would change the prompt."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    main()
