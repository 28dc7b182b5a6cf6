"""Reads configuration text: a YAML file with the line of every key, and `key.path=value` overrides.

Values are those of OmegaConf's loader: YAML 1.1 scalars, but `1e-5` is a number and dates stay text. Its `load` and
`from_dotlist` are not used, as they give neither the lines of keys nor text as it is written (`PYTHON_VERSION: 3.10`,
`trial_name: 0123`), and take `a: b # c` in an override for a mapping; so PyYAML's nodes are read here.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from schemas.config.keys import KeyPath, Tree, Value, takes_text
from schemas.errors import ConfigError

_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?)"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_FLOAT_TAG: Final = "tag:yaml.org,2002:float"
_DATE_TAG: Final = "tag:yaml.org,2002:timestamp"
_NULL_TAG: Final = "tag:yaml.org,2002:null"
_MAX_DEPTH: Final = 100
_MAX_VALUES: Final = 100_000


class ConfigYamlLoader(yaml.SafeLoader):
    """Safe YAML with `1e-5` as a number and without dates."""


class ConfigYamlDumper(yaml.SafeDumper):
    """Writes what `ConfigYamlLoader` reads back as the same value."""


def _adapt_resolvers(target: type[yaml.SafeLoader] | type[yaml.SafeDumper]) -> None:
    target.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_FLOAT_TAG, _DATE_TAG)]
        for first, resolvers in target.yaml_implicit_resolvers.items()
    }
    target.add_implicit_resolver(_FLOAT_TAG, re.compile(rf"(?:{_FLOAT.pattern})\Z"), list("-+0123456789."))


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Line breaks that YAML folds (U+0085, U+2028, \r) come back whole only from double quotes, where they are escaped.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_adapt_resolvers(ConfigYamlLoader)
_adapt_resolvers(ConfigYamlDumper)
ConfigYamlDumper.add_representer(str, _represent_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A configuration file as it is written: nothing interpolated, nothing validated."""

    name: str
    """The file as the user named it."""
    tree: Tree
    """Keys and values of the file."""
    lines: dict[KeyPath, int]
    """Line of each key, from 1."""
    texts: dict[KeyPath, str]
    """Each value that is not null as it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One `key.path=value` of the command line."""

    text: str
    """As typed."""
    path: KeyPath
    """Path of the key."""
    value: Value
    """Value of the key."""
    texts: dict[KeyPath, str]
    """Each value in it that is not null as it is written, by its path from the root."""


def read_source(path: Path) -> Source:
    """Return the YAML file at `path` with the line of every key.

    Raises:
        ConfigError: no such file, not a file, not readable, not UTF-8, not YAML, not a mapping, a key given twice.
    """
    text = _read_text(path)
    try:
        node = yaml.compose(text, Loader=ConfigYamlLoader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{path}{where}: not valid YAML: {exc.problem or exc.context}; mend the file") from exc
    except (yaml.YAMLError, RecursionError) as exc:
        raise ConfigError(f"{path}: not valid YAML: {exc}; mend the file") from exc
    if node is None:
        return Source(name=str(path), tree={}, lines={}, texts={})
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            f"{path}: holds a {_kind(node)}, expected a mapping of keys to values, such as `actor: {{path: …}}`"
        )
    reader = _NodeReader(str(path))
    return Source(name=str(path), tree=reader.mapping(node, ()), lines=reader.lines, texts=reader.texts)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder, expected a YAML file; name the file in it")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as exc:
        near = sorted(p.name for p in path.parent.glob("*.y*ml"))[:5] if path.parent.is_dir() else []
        beside = f"; beside it: {', '.join(near)}" if near else ""
        raise ConfigError(f"{path}: no such file{beside}; check the path of the configuration") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 text at byte {exc.start}; save the file as UTF-8") from exc
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path}: cannot be read: {exc}; check the path and its permissions") from exc


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "list"
    return "mapping" if isinstance(node, yaml.MappingNode) else "single value"


class _NodeReader:
    """Turns YAML nodes into plain values; notes the lines of keys and the text of values."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._constructor = ConfigYamlLoader("")
        self._num_values = 0
        self.lines: dict[KeyPath, int] = {}
        self.texts: dict[KeyPath, str] = {}

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> Tree:
        self._refuse_doubles(node)
        self._constructor.flatten_mapping(node)  # `<<: *base`; the keys of the mapping itself come last and win
        tree: Tree = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            tree[key] = self.value(value_node, (*path, key))
        return tree

    def value(self, node: yaml.Node, path: KeyPath) -> Value:
        self._num_values += 1
        if len(path) > _MAX_DEPTH or self._num_values > _MAX_VALUES:
            raise ConfigError(
                f"{self._name}, line {node.start_mark.line + 1}: more than {_MAX_DEPTH} levels or {_MAX_VALUES} "
                "values; mend the aliases that contain themselves or each other"
            )
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, str(i))) for i, item in enumerate(node.value)]
        if node.tag != _NULL_TAG:
            self.texts[path] = str(node.value)
            if takes_text(path):
                return self.texts[path]
        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError) as exc:
            where = f"{self._name}, line {node.start_mark.line + 1}"
            raise ConfigError(f"{where}: {node.value!r} is not a value of tag {node.tag}; quote it") from exc

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        raise ConfigError(f"{self._name}, line {node.start_mark.line + 1}: a key must be text, got a {_kind(node)}")

    def _refuse_doubles(self, node: yaml.MappingNode) -> None:
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = self._key(key_node), key_node.start_mark.line + 1
            if key in seen and key != "<<":
                raise ConfigError(
                    f"{self._name}, line {line}: the key {key!r} was already given in line {seen[key]}; remove one"
                )
            seen[key] = line


def parse_override(text: str) -> Override:
    """Return the override that `text` spells, its value typed as YAML.

    Plain text needs no quotes, whatever signs are in it; text that starts with a quote, `[` or `{` is YAML and must
    parse. Nothing after the `=` is the empty text.

    Raises:
        ConfigError: no `=`, an empty key, or quotes and brackets that do not close.
    """
    key, equals, raw = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"override {text!r}: expected key.path=value, such as gconfig.temperature=0.6")
    return _parse_value(text, raw.strip(), path)


def _parse_value(text: str, raw: str, path: KeyPath) -> Override:
    is_structured = raw[:1] in ("'", '"', "[", "{")
    plain = Override(text=text, path=path, value=raw, texts={path: raw})
    try:
        node = yaml.compose(raw, Loader=ConfigYamlLoader)
    except (yaml.YAMLError, RecursionError) as exc:
        if not is_structured:
            return plain
        problem = exc.problem if isinstance(exc, yaml.MarkedYAMLError) else str(exc)
        raise ConfigError(f"override {text!r}: the value is not valid YAML: {problem}; close it or quote it") from exc
    is_scalar = isinstance(node, yaml.ScalarNode) and node.value == raw
    if node is None or not (is_structured or is_scalar):
        return plain  # a comment sign, a colon, a tag or an anchor in plain text is part of the text
    reader = _NodeReader(f"override {text!r}")
    return Override(text=text, path=path, value=reader.value(node, path), texts=reader.texts)
