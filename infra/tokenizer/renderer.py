"""Conversations to prompts by the checkpoint's chat template, in a child process that can be killed.

A template may loop for ever or build a string of any size; the child has limits that the kernel keeps
(`rendering_process`). One child renders all prompts of a dataset.
"""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

from infra.tokenizer.files import JsonObject
from schemas.chat import GIVEN_NAMES, TemplateValue
from schemas.dataset import ChatMessage
from schemas.errors import ChatTemplateError, CheckpointError, SetupError

TEMPLATE_DATE: Final = date(2024, 7, 26)
"""What `strftime_now` tells: the date that Llama 3's templates themselves fall back to."""
_LONGEST_S: Final = 900.0
"""Seconds until a child that does not use its core, as on a machine that swaps, is killed too."""
_MAX_ORDER_CHARS: Final = 1 << 23
"""Characters sent at once; the child holds them several times."""
_KEPT_VARIABLES: Final = (
    "PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "HOME", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE"
)  # fmt: skip
"""What of the environment a child needs, its packages found where this process finds them: nothing that a template
could be after."""
_PROGRAM: Final = Path(__file__).with_name("rendering_process.py")
"""Run as a file: what Milepost itself imports would take longer than the rendering."""
_MARK: Final = "2718281828"
"""Text that a template keeps as it is, whatever it trims or changes the case of."""
_TOO_MUCH: Final = "it was ended, as it takes more than 15 s of a core or 1 GiB of memory"


_Reply = dict[str, str | int | list[str] | None]


class TemplateRenderer:
    """Turns conversations into the text that the model continues. `close` ends its child, at the latest its own end."""

    variables: frozenset[str]
    """Names that the template reads, and that neither it nor the renderer defines."""

    def __init__(
        self,
        text: str,
        *,
        file: Path,
        special_tokens: Mapping[str, str],
        today: date = TEMPLATE_DATE,
        gives_question: bool = False,
    ) -> None:
        """Start the child and compile the template `text` of `file`.

        `gives_question`: it gets what the last turn says as `question` too.

        Raises:
            CheckpointError: it has a syntax error, or compiling takes too much time or memory.
            SetupError: no child can be started.
        """
        self._file = file
        self._as_parts: bool | None = None
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", os.fspath(_PROGRAM)], env=environment, text=True, encoding="ascii",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            raise SetupError(f"no process can be started to render {file}: {exc.strerror}; end other ones") from exc
        self._end = weakref.finalize(self, _end, self._child)
        order = {"template": text, "special_tokens": dict(special_tokens), "gives_question": gives_question}
        reply = next(self._exchange(order | {"date": datetime.combine(today, time()).isoformat()}, 1), None)
        if reply is not None and isinstance(names := reply.get("variables"), list):
            self.variables = frozenset(names).difference(special_tokens, GIVEN_NAMES, ["question"] * gives_question)
        if reply is None or "error" in reply:
            line = f", line {reply['line']}" if reply and reply.get("line") else ""
            reason = reply["error"] if reply else _TOO_MUCH
            self.close()
            raise CheckpointError(
                f"{file}{line}: the chat template does not parse ({reason}); mend it or set tokenizer_path to a folder "
                f"with a good one"
            )

    def render(
        self, conversations: Sequence[Sequence[ChatMessage]], kwargs: Mapping[str, TemplateValue] = MappingProxyType({})
    ) -> list[str]:
        """Return the prompt of each conversation; it ends with the generation prompt.

        `kwargs`: variables for the template, beside the conversation.

        Raises:
            ChatTemplateError: the template refuses a conversation, fails, leaves out what the user says, or takes too
                much time or memory.
        """
        texts: list[str] = []
        if self._as_parts is None and conversations:
            self._as_parts = self._wants_parts(conversations[0], kwargs)
        for order in _split(conversations, as_parts=bool(self._as_parts)):
            num_expected = len(texts) + len(order)
            for reply in self._exchange({"conversations": order, "kwargs": dict(kwargs)}, len(order)):
                if "error" in reply:
                    raise self._failure(conversations[len(texts)], str(reply["error"]))
                texts.append(str(reply["text"]))
            if len(texts) < num_expected:
                raise self._failure(conversations[len(texts)], _TOO_MUCH)
        return texts

    def close(self) -> None:
        """End the child."""
        self._end()

    def _wants_parts(self, conversation: Sequence[ChatMessage], kwargs: Mapping[str, TemplateValue]) -> bool:
        """Return whether the template reads what is said from a list of parts, as those of models with images may.

        Given plain text, such a template fails or renders a prompt without the question.

        Raises:
            ChatTemplateError: it renders conversations of these roles without what the user says.
        """
        asked = max((number for number, turn in enumerate(conversation) if turn.role == "user"), default=-1)
        marked = [
            turn.model_copy(update={"content": _MARK}) if turn is conversation[asked] else turn for turn in conversation
        ]
        replies: list[_Reply] = []
        for as_parts in (False, True):
            (order,) = _split([marked], as_parts=as_parts)
            replies += self._exchange({"conversations": order, "kwargs": dict(kwargs)}, 1)
            if replies and _MARK in str(replies[-1].get("text")):
                return as_parts
        if replies and "error" not in replies[0]:
            self.close()
            raise ChatTemplateError(
                f"{self._file}: the chat template renders a conversation of text without what the user says; set "
                f"tokenizer_path to a folder with a template that takes text"
            )
        return False  # it fails on the conversation itself too, and says why

    def _exchange(self, order: object, num_replies: int) -> Iterator[_Reply]:
        """Yield the replies to an order; fewer where the child was ended."""
        writer, reader = self._pipes()
        watch = threading.Timer(_LONGEST_S, self._child.kill)
        watch.daemon = True
        watch.start()
        try:
            with suppress(BrokenPipeError):
                writer.write(json.dumps(order) + "\n")
                writer.flush()
            for _ in range(num_replies):
                line = reader.readline()
                if not line.endswith("\n"):
                    return
                yield json.loads(line)
        finally:
            watch.cancel()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._child.stdin is None or self._child.stdout is None:
            raise SetupError("the process that renders chat templates has no pipes; this is a bug of Milepost")
        return self._child.stdin, self._child.stdout

    def _failure(self, conversation: Sequence[ChatMessage], reason: str) -> ChatTemplateError:
        self.close()
        roles = ", ".join(message.role for message in conversation)
        return ChatTemplateError(
            f"{self._file}: the chat template failed on a conversation of the roles [{roles}]: {reason}; if it refuses "
            f"a system turn, drop the system prompt, else set tokenizer_path to a folder with a template that takes it"
        )


def _split(conversations: Sequence[Sequence[ChatMessage]], *, as_parts: bool) -> Iterator[list[list[JsonObject]]]:
    """Yield orders that the child's memory has room for, however long the conversations."""
    order: list[list[JsonObject]] = []
    num_chars = 0
    for turns in conversations:
        order.append([{"role": turn.role, "content": _content(turn, as_parts=as_parts)} for turn in turns])
        num_chars += sum(len(turn.content) for turn in turns)
        if num_chars > _MAX_ORDER_CHARS:
            yield order
            order, num_chars = [], 0
    if order:
        yield order


def _content(turn: ChatMessage, *, as_parts: bool) -> object:
    return [{"type": "text", "text": turn.content}] if as_parts else turn.content


def _end(child: "subprocess.Popen[str]") -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not yet written is nobody's any more
                pipe.close()
