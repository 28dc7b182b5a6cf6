"""A file with its overrides as one tree that knows where each value was set.

OmegaConf's own merge and update are not used: they cannot set one entry of a list and name the key that is wrong,
replace a value on the way to a key without a word, and refuse a `${` that does not parse in sections that nobody reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.config.keys import KeyPath, Tree, Value
from schemas.config.source import Override, Source
from schemas.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTree:
    """File and overrides, nothing interpolated."""

    tree: Tree
    """Keys and values."""
    written: Tree
    """Keys with each value that is not null as the text that stands in file or override."""
    places: dict[KeyPath, int | Override]
    """Line of each key, or the override that set it or made it exist."""
    older: dict[KeyPath, KeyPath]
    """Keys that stand in the file under an older name."""
    problems: list[str]
    """Reasons for which overrides cannot be applied."""


def merge(source: Source, overrides: Sequence[Override]) -> MergedTree:
    """Return the tree of the file with the overrides in it; of two for one key, the later one wins."""
    tree, older = _with_older_model(source.tree)
    texts = source.texts | {new: source.texts[old] for new, old in older.items() if old in source.texts}
    places: dict[KeyPath, int | Override] = dict[KeyPath, int | Override](source.lines)
    problems: list[str] = []
    root: Value = tree
    for override in overrides:
        try:
            root = _with_value(root, override.path, 0, override.value)
        except ConfigError as exc:
            problems.append(f"override {override.text!r}: {exc}")
            continue
        texts |= override.texts
        depth = len(override.path)
        if not isinstance(override.value, dict):
            places = {path: place for path, place in places.items() if path[:depth] != override.path}
        places |= dict.fromkeys(_paths(override.value, override.path), override)
        for section in (override.path[:end] for end in range(1, depth)):
            place = places.get(section)
            if place is None or (isinstance(place, Override) and len(place.path) > len(section)):
                places[section] = override  # only overrides of keys in it make the section exist
    written = _as_written(root, (), texts)
    return MergedTree(tree=_tree(root), written=_tree(written), places=places, older=older, problems=problems)


def _with_older_model(tree: Tree) -> tuple[Tree, dict[KeyPath, KeyPath]]:
    """Older SFT configs call the section of the model `model`: read it as `actor` where there is none."""
    model = tree.get("model")
    if "actor" in tree or not isinstance(model, dict) or "path" not in model:
        return tree, {}
    return {**tree, "actor": model}, {("actor", key): ("model", key) for key in model}


def _with_value(node: Value, path: KeyPath, depth: int, value: Value) -> Value:
    """Return a copy of `node`, which stands at the first `depth` keys of `path`, with `value` at the end of `path`.

    Raises:
        ConfigError: the path leads through a value, or to an entry that a list does not have.
    """
    if depth == len(path):
        return _merged(node, value)
    key, below = path[depth], depth + 1
    if isinstance(node, list):
        if not (key.isdecimal() and int(key) < len(node)):
            raise ConfigError(f"{key!r} is not one of the list's {len(node)} entries; set the whole list")
        return [_with_value(item, path, below, value) if i == int(key) else item for i, item in enumerate(node)]
    if node is None:
        node = {}
    if not isinstance(node, dict):
        place = ".".join(path[:depth])
        raise ConfigError(f"{place} is the value {node!r}, not a section; set {place} itself")
    return node | {key: _with_value(node.get(key), path, below, value)}


def _merged(before: Value, after: Value) -> Value:
    if isinstance(before, dict) and isinstance(after, dict):
        return before | {key: _merged(before.get(key), value) for key, value in after.items()}
    return after


def _paths(value: Value, path: KeyPath) -> list[KeyPath]:
    """`path` and the paths of all keys below it."""
    below = value.items() if isinstance(value, dict) else ()
    return [path, *(found for key, item in below for found in _paths(item, (*path, key)))]


def _as_written(value: Value, path: KeyPath, texts: dict[KeyPath, str]) -> Value:
    if isinstance(value, dict):
        return {key: _as_written(item, (*path, key), texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_written(item, (*path, str(i)), texts) for i, item in enumerate(value)]
    return value if value is None else texts.get(path, value)


def _tree(value: Value) -> Tree:
    return value if isinstance(value, dict) else {}
