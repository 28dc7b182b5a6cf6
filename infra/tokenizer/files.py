"""What a tokenizer's folder says about itself in JSON: special tokens, chat template, digests.

Reads files only. Rendering is infra.tokenizer.template's, token ids are infra.tokenizer.chat's.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from infra.files.regular_files import advise, open_regular, read_regular
from schemas.errors import CheckpointError

JsonObject = Mapping[str, object]

SPECIAL_TOKEN_NAMES: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""The named tokens that a chat template may use."""

VOCABULARY_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
    "tiktoken.model",
    "qwen.tiktoken",
)
"""Files of which a tokenizer has at least one."""

COMPANION_FILES: Final = ("merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")
"""Files that complete a vocabulary."""

TOKENIZER_FILES: Final = frozenset({*VOCABULARY_FILES, *COMPANION_FILES, "chat_template.jinja", "chat_template.json"})
"""Every file that belongs to a tokenizer."""

_VOLATILE_KEYS: Final = frozenset(
    {"chat_template", "name_or_path", "_name_or_path", "is_local", "local_files_only", "transformers_version"}
)
"""Keys of tokenizer_config.json that say where or by what it was saved, or that have a digest of their own."""


class ChatTemplate(NamedTuple):
    """A chat template and where it was found."""

    text: str
    file: Path


def ends_as_json(path: Path) -> bool:
    """Tell whether a file ends as a JSON object does: a large one that is cut short is told apart at once.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def read_json_object(path: Path) -> JsonObject:
    """Return the JSON object in `path`.

    Raises:
        CheckpointError: it cannot be read, is not JSON, or is not an object.
    """
    try:
        value: object = json.loads(read_regular(path).decode("utf-8"))
    except FileNotFoundError as exc:
        raise CheckpointError(f"{path.name}: the file is not there; save it again or wait until it is written") from exc
    except OSError as exc:
        raise CheckpointError(f"{path.name}: cannot be read ({exc.strerror}); {advise(exc)}") from exc
    except (ValueError, RecursionError) as exc:
        raise CheckpointError(
            f"{path.name}: not valid JSON ({exc}); save it again or wait until it is written"
        ) from exc
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name}: holds a JSON {type(value).__name__}, expected an object; save it again")
    return cast("JsonObject", value)


def read_optional_json(path: Path) -> JsonObject:
    """Return the JSON object in `path`, empty when there is no such file.

    Raises:
        CheckpointError: as `read_json_object`, absence apart.
    """
    return read_json_object(path) if path.exists() else {}


def read_special_tokens(folder: Path) -> dict[str, str]:
    """Return the named special tokens, such as {"bos_token": "<s>"}; tokenizer_config.json wins over the older map.

    Raises:
        CheckpointError: one of the two files cannot be read.
    """
    older = read_optional_json(folder / "special_tokens_map.json")
    tokens = {**older, **read_optional_json(folder / "tokenizer_config.json")}
    named = {name: token_content(tokens.get(name)) for name in SPECIAL_TOKEN_NAMES}
    return {name: content for name, content in named.items() if content is not None}


def token_content(value: object) -> str | None:
    """Return the text of a token given as text or as a serialised AddedToken."""
    if isinstance(value, dict):
        value = cast("JsonObject", value).get("content")
    return value if isinstance(value, str) else None


def read_token_id(folder: Path, content: str) -> int | None:
    """Return the id of an added or special token, None when no file of the folder names it.

    The large vocabulary is not read: a special token stands among the added tokens.

    Raises:
        CheckpointError: a file cannot be read.
    """
    decoder = read_optional_json(folder / "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(decoder, dict):
        for token_id, token in cast("JsonObject", decoder).items():
            if token_content(token) == content and token_id.isdecimal():
                return int(token_id)
    for token in _read_added_tokens(folder / "tokenizer.json"):
        if token_content(token) == content and isinstance(token_id := token.get("id"), int):
            return token_id
    added = read_optional_json(folder / "added_tokens.json").get(content)
    return added if isinstance(added, int) else None


def find_chat_template(folder: Path) -> ChatTemplate | None:
    """Return the folder's default chat template, None when it has none.

    chat_template.jinja wins over chat_templates/, tokenizer_config.json and the processor's chat_template.json.

    Raises:
        CheckpointError: a file cannot be read, or there are several named templates and none is called `default`.
    """
    file = folder / "chat_template.jinja"
    if file.exists():
        return ChatTemplate(_read_template(file), file)
    named = {path.stem: path for path in sorted((folder / "chat_templates").glob("*.jinja"))}
    if named:
        chosen = _choose_default(named, folder / "chat_templates")
        return ChatTemplate(_read_template(chosen), chosen)
    for name in ("tokenizer_config.json", "chat_template.json"):
        text = _template_in(read_optional_json(folder / name).get("chat_template"), folder / name)
        if text is not None:
            return ChatTemplate(text, folder / name)
    return None


def digest_tokenizer(folder: Path) -> str:
    """Return the 128-bit hex digest of the tokenizer's files, wherever and by whatever they were saved.

    Raises:
        CheckpointError: a file cannot be read.
    """
    digest = hashlib.sha256(b"milepost-tokenizer\x00")
    for name in sorted((*VOCABULARY_FILES, *COMPANION_FILES)):
        path = folder / name
        if not path.is_file():
            continue
        if name == "tokenizer_config.json":
            kept = {key: value for key, value in read_json_object(path).items() if key not in _VOLATILE_KEYS}
            content = json.dumps(kept, sort_keys=True).encode()
        else:
            content = _read_bytes(path)
        digest.update(f"{name}\x00{len(content)}\x00".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def digest_chat_template(template: ChatTemplate | None) -> str:
    """Return the 128-bit hex digest of the template's text; of the empty text where there is none."""
    return hashlib.sha256(b"milepost-template\x00" + (template.text if template else "").encode()).hexdigest()[:32]


def _read_added_tokens(path: Path) -> list[JsonObject]:
    """Return `added_tokens` of a tokenizer.json without parsing its vocabulary of megabytes, which follows it."""
    if not path.is_file():
        return []
    text = _read_bytes(path).decode("utf-8", errors="replace")
    key = '"added_tokens"'
    start = text.find(key)
    value: object = None
    if start >= 0:
        after = text[start + len(key) : start + len(key) + 64].lstrip()
        offset = text.find("[", start) if after.startswith(":") else -1
        if offset >= 0:
            try:
                value, _ = json.JSONDecoder().raw_decode(text, offset)
            except ValueError as exc:
                raise CheckpointError(f"{path.name}: not valid JSON ({exc}); save the tokenizer again") from exc
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", entry) for entry in entries if isinstance(entry, dict)]


def _choose_default(named: Mapping[str, Path], place: Path) -> Path:
    if "default" in named:
        return named["default"]
    raise CheckpointError(
        f"{place}: holds the chat templates {', '.join(sorted(named))} and none is called default; "
        f"copy the one to evaluate with to {place.parent / 'chat_template.jinja'}"
    )


def _template_in(value: object, file: Path) -> str | None:
    """Read the two forms of `chat_template`: the text, or a list of {"name": …, "template": …}."""
    if value is None or isinstance(value, str):
        return value or None
    named: dict[str, str] = {}
    for entry in cast("list[object]", value) if isinstance(value, list) else []:
        if isinstance(entry, dict):
            fields = cast("JsonObject", entry)
            name, text = fields.get("name"), fields.get("template")
            if isinstance(name, str) and isinstance(text, str):
                named[name] = text
    if "default" not in named:
        raise CheckpointError(
            f"{file}: chat_template is neither a text nor a list with a template named default "
            f"(found: {', '.join(sorted(named)) or type(value).__name__}); "
            f"put the one to evaluate with into {file.parent / 'chat_template.jinja'}"
        )
    return named["default"]


def _read_template(path: Path) -> str:
    try:
        return _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise CheckpointError(f"{path}: the chat template is not UTF-8 ({exc}); save it again") from exc


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as exc:
        raise CheckpointError(f"{path}: cannot be read ({exc.strerror}); {advise(exc)}") from exc
