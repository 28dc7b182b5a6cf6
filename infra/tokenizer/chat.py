"""ChatTokenizer: conversations to prompts to token ids, as the checkpoint's own tokenizer has it.

Token ids equal those of transformers' `apply_chat_template` for folders with a tokenizer.json, without its import of
two seconds. Text inside a message that spells a special token (`<|im_end|>`) becomes that token, as in transformers,
vLLM and the trainers: the numbers stay comparable. `special_tokens_in` finds such text so that a caller can report it.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from infra.tokenizer.files import (
    VOCABULARY_FILES,
    ChatTemplate,
    JsonObject,
    find_chat_template,
    read_optional_json,
    read_special_tokens,
    token_content,
)
from infra.tokenizer.renderer import TEMPLATE_DATE, TemplateRenderer
from schemas.chat import TemplateValue
from schemas.dataset import ChatMessage
from schemas.errors import ChatTemplateError, CheckpointError, ConfigError, SetupError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TokenIds: TypeAlias = "array[int]"
"""Token ids as 4-byte integers: a prompt of 1,000 tokens takes 4 kB, as a list of ints ten times that."""


_QUESTION_ALONE: Final = "{{ question }}"


class ChatTokenizer:
    """The chat template and the tokenizer of one folder. Make it with `open`."""

    def __init__(
        self,
        tokenizer: "Tokenizer",
        renderer: TemplateRenderer,
        template_kwargs: Mapping[str, TemplateValue],
        *,
        bos_token_id: int | None,
        adds_bos: bool,
    ):
        """Take opened parts; `adds_bos` says whether the tokenizer puts BOS before a plain text by itself."""
        self._tokenizer = tokenizer
        self._renderer = renderer
        self._template_kwargs = dict(template_kwargs)
        self._adds_bos = adds_bos
        self.bos_token_id = bos_token_id
        """The token that starts a text, None where the tokenizer has none."""
        added = tokenizer.get_added_tokens_decoder().values()
        self._special = _alternatives(token.content for token in added if token.special)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        chat_template: str | None = None,
        template_kwargs: Mapping[str, TemplateValue] = MappingProxyType({}),
        is_completion: bool = False,
        today: date = TEMPLATE_DATE,
    ) -> "ChatTokenizer":
        """Open the tokenizer of `folder`, with its own chat template unless another is given.

        Args:
            folder: holds the tokenizer.
            chat_template: text of the template, where it is not the folder's own.
            template_kwargs: variables that the template is given beside the conversation (`chat.template_kwargs`).
            is_completion: prompts are text without turns; the template gets it as `question`, and is that alone unless
                given.
            today: what the template's `strftime_now` tells; it is fixed, so that prompts are the same on every day.

        Raises:
            CheckpointError: no tokenizer, no chat template, or one that does not load.
            ConfigError: the template does not read one of `template_kwargs`.
            SetupError: the folder has no tokenizer.json, and transformers cannot convert what it has.
        """
        special = read_special_tokens(folder)
        text = _QUESTION_ALONE if is_completion and chat_template is None else chat_template
        template = find_chat_template(folder) if text is None else ChatTemplate(text, Path("prompt.template"))
        if template is None:
            raise CheckpointError(
                f"{folder / 'tokenizer_config.json'} holds no chat template, and {folder / 'chat_template.jinja'} is "
                f"not there; set prompt.format=completion for a base model, set tokenizer_path to a folder that has "
                f"one (the instruct model of the same family), or write the template that the model was trained with "
                f"to chat_template.jinja"
            )
        config = read_optional_json(folder / "tokenizer_config.json")
        tokenizer = _load(folder)
        _add_missing_special_tokens(tokenizer, special, config)
        tokenizer.no_truncation()  # a tokenizer.json saved in training may say to cut at its own max_length
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = config.get("split_special_tokens") is True
        bos = special.get("bos_token")
        bos_id = tokenizer.token_to_id(bos) if bos is not None else None
        renderer = TemplateRenderer(
            template.text, file=template.file, special_tokens=special, today=today, gives_question=is_completion
        )
        _check_template_kwargs(template_kwargs, renderer, template.file)
        adds_bos = _adds_bos(tokenizer, config, bos_id)
        return cls(tokenizer, renderer, template_kwargs, bos_token_id=bos_id, adds_bos=adds_bos)

    @cached_property
    def longest_token_chars(self) -> int:
        """Most characters that one token stands for; an upper bound, as a vocabulary spells bytes or characters."""
        return max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the prompt's text: every turn, then the opening of the assistant's.

        Raises:
            CheckpointError: the template refuses the conversation, or takes too much time or memory.
        """
        return self.render_all([messages])[0]

    def render_all(self, conversations: Sequence[Sequence[ChatMessage]]) -> list[str]:
        """Return the prompts of many conversations, as `render` does each."""
        return self._renderer.render(conversations, self._template_kwargs)

    def default_flag(self, name: str, messages: Sequence[ChatMessage]) -> bool | None:
        """Return with which value of the flag `name` the template renders `messages` as without it.

        None where the template does not read it, where it is given, or where neither or both values do so. The
        tokenizer cannot render any more where the template fails with a value.
        """
        if name not in self._renderer.variables or name in self._template_kwargs:
            return None
        kinds = ({}, {name: True}, {name: False})
        try:
            unset, on, off = (self._renderer.render([messages], self._template_kwargs | each)[0] for each in kinds)
        except ChatTemplateError:
            return None  # no flag, but text or a number
        return None if on == off or unset not in (on, off) else unset == on

    def close(self) -> None:
        """End the process that renders."""
        self._renderer.close()

    def encode(self, texts: Sequence[str]) -> list[TokenIds]:
        """Return the token ids of rendered prompts, all cores at work; each starts with at most one BOS.

        A BOS that the template rendered is kept. Where it rendered none and the tokenizer adds one by itself, one is
        put in front; where it rendered several, one stays.
        """
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._with_one_bos(array("i", encoding.ids)) for encoding in encodings]

    def special_tokens_in(self, text: str) -> tuple[str, ...]:
        """Return each special token that `text`, such as a dataset's problem, spells out, in order of appearance."""
        return tuple(self._special.findall(text)) if self._special is not None else ()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def _with_one_bos(self, token_ids: TokenIds) -> TokenIds:
        bos = self.bos_token_id
        if bos is None:
            return token_ids
        if not token_ids or token_ids[0] != bos:
            return array("i", [bos]) + token_ids if self._adds_bos else token_ids
        start = 0
        while start + 1 < len(token_ids) and token_ids[start + 1] == bos:
            start += 1
        return token_ids[start:]


def _check_template_kwargs(values: Mapping[str, TemplateValue], renderer: TemplateRenderer, file: Path) -> None:
    """Refuse a variable that the template does not read: it would change no prompt."""
    unread = next((name for name in values if name not in renderer.variables), None)
    if unread is None:
        return
    renderer.close()
    read = ", ".join(sorted(renderer.variables)) or "none but the conversation"
    raise ConfigError(
        f"chat.template_kwargs.{unread} is {values[unread]!r}, and the chat template of {file} reads no variable of "
        f"that name; it reads {read}; correct the name, or remove it"
    )


def _load(folder: Path) -> "Tokenizer":
    file = folder / "tokenizer.json"
    if not file.is_file():
        return _convert(folder)
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception as exc:  # the library raises bare Exception
        raise CheckpointError(f"{file}: does not load ({exc}); save the tokenizer again") from exc


def _convert(folder: Path) -> "Tokenizer":
    """Let transformers make a fast tokenizer out of tokenizer.model or vocab.json; it takes seconds to import."""
    if not any((folder / name).is_file() for name in VOCABULARY_FILES):
        # transformers would make up an empty vocabulary instead of refusing.
        raise CheckpointError(
            f"{folder}: no tokenizer (none of {', '.join(VOCABULARY_FILES)}); save it beside the weights with "
            f"save_pretrained, or set tokenizer_path to a folder that has one"
        )
    try:
        from transformers.models.auto.tokenization_auto import AutoTokenizer
    except ImportError as exc:
        raise SetupError(
            f"{folder}: no tokenizer.json, and transformers is not installed to convert what is there; install it or "
            f"save the tokenizer with save_pretrained from a machine that has it"
        ) from exc
    open_tokenizer = cast("Callable[..., object]", AutoTokenizer.from_pretrained)
    try:
        opened = open_tokenizer(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as exc:  # transformers raises whatever its converters raise
        raise CheckpointError(
            f"{folder}: no tokenizer.json, and transformers cannot make one ({type(exc).__name__}: {exc}); save the "
            f"tokenizer with save_pretrained, or set tokenizer_path to a folder that has one"
        ) from exc
    backend = getattr(opened, "backend_tokenizer", None)
    if backend is None:
        raise CheckpointError(
            f"{folder}: no tokenizer.json, and {type(opened).__name__} cannot be turned into one; set tokenizer_path "
            f"to a folder that has a tokenizer.json"
        )
    return cast("Tokenizer", backend)


def _add_missing_special_tokens(tokenizer: "Tokenizer", special: Mapping[str, str], config: JsonObject) -> None:
    """Make tokens special that only tokenizer_config.json calls so; ones outside the vocabulary stay plain text."""
    from tokenizers import AddedToken

    decoder = config.get("added_tokens_decoder")
    entries = cast("JsonObject", decoder).values() if isinstance(decoder, dict) else ()
    named = [*special.values(), *(content for entry in entries if (content := token_content(entry)) is not None)]
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    missing = [name for name in dict.fromkeys(named) if name not in known and tokenizer.token_to_id(name) is not None]
    if missing:
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in missing])


def _adds_bos(tokenizer: "Tokenizer", config: JsonObject, bos_id: int | None) -> bool:
    """Tell whether the tokenizer puts BOS before a plain text: its config says so, else its post-processor does so."""
    if bos_id is None:
        return False
    declared = config.get("add_bos_token")
    if isinstance(declared, bool):
        return declared
    ids = tokenizer.encode("a", add_special_tokens=True).ids
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    return ids != plain and ids[:1] == [bos_id]


def _alternatives(contents: Iterable[str]) -> re.Pattern[str] | None:
    names = sorted({name for name in contents if name}, key=len, reverse=True)
    return re.compile("|".join(re.escape(name) for name in names)) if names else None
