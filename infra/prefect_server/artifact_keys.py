"""Keys of the artifacts in Prefect: one history per kind, experiment and dataset."""

import hashlib
import re
from typing import Final

_MAX_NAME: Final = 40
"""Characters of a name in a key: two names and a kind fit into one line of Prefect's page."""
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
"""What Prefect allows in no key, and dashes in a row."""


def artifact_key(kind: str, experiment: str, dataset: str) -> str:
    """Return `kind-experiment--dataset` in the letters of a Prefect key: lower-case letters, digits and dashes.

    No name has two dashes in a row here, so that they tell where the dataset begins: `a-b` on `c` is not `a` on `b-c`.
    """
    return f"{kind}-{_slug(experiment)}--{_slug(dataset)}"


def _slug(name: str) -> str:
    """A name that has to be changed or cut ends in a digest, so that `a_b` and `a.b` keep histories of their own."""
    slug = _OTHERS.sub("-", name.lower()).strip("-")
    if slug == name and 0 < len(slug) <= _MAX_NAME:
        return slug
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[: _MAX_NAME - 9].rstrip('-')}-{digest}".removeprefix("-")
