"""Rows that ask about an image, a sound or a film: no workflow sends one, and its text alone is another question.

Found by what is in the row: where a library keeps media (`{bytes, path}`), a column that is named for them and is not
empty, a file name with a suffix of theirs, or a part of a conversation that is no text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from infra.datasets.rows import Row

_NAMED: Final = re.compile(
    r"(?:.*_)?(image|img|picture|photo|figure|audio|sound|speech|video)s?(?:_?\d+|_(?:path|file|url|uri|bytes|base64|list)s?)?",
    re.IGNORECASE,
)
"""Names of columns that hold media: `image`, `images`, `decoded_image`, `image_3`, `video_path`."""
_MEDIA_FILE: Final = re.compile(
    r"[^\n]{0,500}\.(?:png|jpe?g|gif|webp|bmp|tiff?|svg|wav|mp3|flac|ogg|m4a|mp4|avi|mov|mkv|webm)(?:\?[^\s]*)?",
    re.IGNORECASE,
)
_DATA_URI: Final = re.compile(r"data:(?:image|audio|video)/", re.IGNORECASE)
_ABSENT: Final = frozenset({"", "none", "null", "nan", "[]", "{}"})
_PART_TYPES: Final = re.compile(r"(?:input_)?(?:image|audio|video)(?:_url|_file)?", re.IGNORECASE)
"""What a part of a conversation says it is: `image_url`, `input_audio`."""


def find_media(row: Row) -> str | None:
    """Return the name of a column that holds an image, audio or video; None where there is none."""
    return next((column for column, value in row.items() if _holds_media(column, value)), None)


def _holds_media(column: str, value: object) -> bool:
    if value is None or isinstance(value, (bool, int, float)):
        return False
    if isinstance(value, Mapping):
        return _is_media_object(cast("Mapping[str, object]", value))
    if isinstance(value, (list, tuple)):
        return any(_holds_media(column, inner) for inner in cast("Sequence[object]", value))
    is_named = _NAMED.fullmatch(column) is not None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return is_named
    if not isinstance(value, str):
        return is_named
    if _DATA_URI.match(value):
        return True
    return is_named and value.strip().lower() not in _ABSENT and (_is_file_or_bytes(value) or _is_plainly_named(column))


def _is_media_object(value: Mapping[str, object]) -> bool:
    if sorted(value) == ["bytes", "path"]:
        return value["bytes"] is not None or value["path"] is not None
    kind = value.get("type")
    if isinstance(kind, str) and _PART_TYPES.fullmatch(kind) and len(value) > 1:
        return True
    return any(_holds_media(name, inner) for name, inner in value.items())


def _is_plainly_named(column: str) -> bool:
    """Whether the name says nothing but that it holds media, so that any text in it is a name or a place of one."""
    return column.lower() in ("image", "images", "audio", "audios", "video", "videos")


def _is_file_or_bytes(text: str) -> bool:
    return _MEDIA_FILE.fullmatch(text.strip()) is not None or (len(text) > 200 and " " not in text.strip()[:200])
