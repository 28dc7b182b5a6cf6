"""Names that follow from the data alone: the id of an item that has none, its digest, and the version of a dataset.

All hash a sequence of texts, each as UTF-8 with its length before it: no two sequences share a form, and neither
machine nor file format enters.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

from infra.datasets.rows import Turn
from schemas.dataset import EvalItem

_DIGEST_BYTES: Final = 16
_ID_PERSON: Final = b"milepost-item"
_VERSION_PERSON: Final = b"milepost-dataset"
_CONTENT_PERSON: Final = b"milepost-content"
_CLUSTER_PERSON: Final = b"milepost-cluster"
_MAX_CLUSTER_CHARS: Final = 64
"""Each sample's row repeats the name; a seed question is longer."""


def content_id(turns: Iterable[Turn], gold: str) -> str:
    """Return the 128-bit hex digest of a problem as the data has it and its gold; no instruction of ours enters."""
    parts = [gold]
    for turn in turns:
        parts += turn
    return hashlib.blake2b(_join(parts), digest_size=_DIGEST_BYTES, person=_ID_PERSON).hexdigest()


def cluster_name(value: str) -> str:
    """Return what a cluster is called: the data's own word for it, a digest where that is a long text."""
    if len(value) <= _MAX_CLUSTER_CHARS:
        return value
    return hashlib.blake2b(value.encode(), digest_size=_DIGEST_BYTES, person=_CLUSTER_PERSON).hexdigest()


def item_digest(item: EvalItem) -> str:
    """Return the 128-bit hex digest of everything of an item that enters `dataset_version`."""
    return hashlib.blake2b(_join(_parts(item)), digest_size=_DIGEST_BYTES, person=_CONTENT_PERSON).hexdigest()


def dataset_version(items: Iterable[EvalItem]) -> str:
    """Return the 128-bit hex digest of every item in order: ids, conversations with their instructions, golds,
    graders, subsets, clusters and solutions."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=_VERSION_PERSON)
    for item in items:
        digest.update(_join(_parts(item)))
    return digest.hexdigest()


def unordered_digest(digests: Iterable[str]) -> str:
    """Return the 128-bit hex digest of several digests, whatever their order."""
    return hashlib.blake2b(_join(sorted(digests)), digest_size=_DIGEST_BYTES, person=_CONTENT_PERSON).hexdigest()


def _parts(item: EvalItem) -> Iterator[str | None]:
    yield from (item.item_id, item.gold, item.grader, item.grader_data, item.solution)
    yield str(len(item.messages))
    for message in item.messages:
        yield message.role
        yield message.content
    # an item that stands alone has the digest that it had before there were clusters
    yield str(len(item.subsets)) if item.cluster_id is None else f"{len(item.subsets)}, and a cluster"
    if item.cluster_id is not None:
        yield item.cluster_id
    for pair in sorted(item.subsets.items()):
        yield from pair


def _join(parts: Iterable[str | None]) -> bytes:
    return b"".join([b"~" if part is None else b"%d:%b" % (len(text := part.encode()), text) for part in parts])
