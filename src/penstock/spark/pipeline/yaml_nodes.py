"""Typed access to the nodes of a YAML file; wrong values become problems with their line."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from penstock.spark.pipeline.model import Problem
from penstock.spark.pipeline.nearest import nearest_name, suggestion

_TAG = "tag:yaml.org,2002:"
_VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}:]*)(?::-([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_T = TypeVar("_T")
_AS_WRITTEN = frozenset(["str", "timestamp"])


@dataclass
class Document:
    """The file, its problems so far, and the environment variables that values may use."""

    text: str
    environment: Mapping[str, str]
    directory: Path = Path()
    """The directory that relative paths start from."""
    problems: list[Problem] = field(default_factory=list)
    merged_entries: dict[int, dict[str, tuple[Node, Node]]] = field(default_factory=dict)
    """The entries of mappings that others merge (`<<`), by the id of their node.

    Anchors that merge anchors several times would otherwise take exponential time.
    """

    def add(self, node: Node | None, where: str, message: str) -> None:
        line = None if node is None else node.start_mark.line + 1
        self.problems.append(Problem(line, where, message))

    def substitute(self, value: str, node: Node, where: str) -> str:
        """Replaces environment variables: `${NAME}`, `${NAME:-default}`; `$${` stands for `${`."""

        def replace_variable(match: re.Match[str]) -> str:
            if match[1]:
                return "${"
            name, default = match[2], match[3]
            if not _NAME.fullmatch(name):
                self.add(node, where, f"{match[0]} does not name an environment variable")
            elif name in self.environment:
                return self.environment[name]
            elif default is None:
                self.add(
                    node,
                    where,
                    f"the environment variable {name} is not set: set it, or give a default, as "
                    f"in ${{{name}:-default}}",
                )
            return default or ""

        return _VARIABLE.sub(replace_variable, value)

    def resolve_path(self, path: str) -> str:
        """Returns a path relative to the file's directory; URLs stay as they are."""
        if "://" in path or path.startswith("file:"):
            return path
        return os.path.normpath(self.directory / Path(path).expanduser())

    def resolve_database(self, url: str) -> str:
        """Returns the address of a database, with the path of an SQLite file resolved."""
        scheme, separator, path = url.partition(":///")
        is_sqlite = bool(separator) and scheme.split("+")[0] == "sqlite"
        if not is_sqlite or not path or path.startswith((":memory:", "/")):
            return url
        return f"{scheme}:///{self.resolve_path(path)}"


def compose(document: Document) -> MappingNode | None:
    """Returns the file as a tree; None, with a problem added, if it is no YAML mapping."""
    try:
        root = yaml.compose(document.text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        document.problems.append(_syntax_problem(error, document.text))
        return None
    except RecursionError:
        document.add(None, "file", "not readable as YAML: it is nested too deeply")
        return None
    if not isinstance(root, MappingNode):
        what = "is empty" if root is None else "is not a mapping of `key: value`"
        document.add(root, "file", f"the file {what}: it begins with `name: …`")
        return None
    return root


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, ReaderError):
        before = text.count("\n", 0, error.position)
        character = text[error.position]
        return Problem(before + 1, "file", f"{character!r} is not allowed in a text: remove it")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    reason = str(getattr(error, "problem", None) or error)
    number = None if mark is None else mark.line + 1
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or "'\\t'" in reason:
        return Problem(number, "file", "there is a tab: indent YAML with spaces only")
    if "mapping values are not allowed" in reason:
        reason = "a `:` is not expected here: put the value in quotes, or check the indentation"
    elif "expected <block end>" in reason:
        reason = "the indentation is not that of the lines above, or a quote is not closed"
    elif "found undefined alias" in reason:
        reason = f"{reason.removeprefix('found ')}: its anchor (&…) must come before it"
    elif "another document" in reason:
        reason = "found another document: a pipeline is one document"
    elif "could not find expected ':'" in reason:
        reason = "a `:` is missing after a key"
    elif "while scanning a quoted" in str(error) or "unexpected end of stream" in reason:
        reason = "a quote is never closed"
    return Problem(number, "file", f"not readable as YAML: {reason}")


@dataclass
class Part:
    """A mapping of the file, such as one source; `where` is its name in problems."""

    document: Document
    node: MappingNode
    where: str
    keys: Sequence[str]
    """The keys that it may have."""
    head: Node | None = None
    """The node whose line is the part's line: its name, if it has one."""
    _values: "dict[str, tuple[Node, Node]]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._values = entries(self.document, self.node, self.where)
        for name, (key, _) in self._values.items():
            if name not in self.keys:
                self.document.add(
                    key, f"{self.where}.{name}", f"unknown key {name}{suggestion(name, self.keys)}"
                )

    @property
    def line(self) -> int:
        return (self.head or self.node).start_mark.line + 1

    @property
    def lines(self) -> dict[str, int]:
        """The lines of all keys, and of all texts in lists: `required`, `required.user`."""
        lines: dict[str, int] = {}
        for name, (key, value) in self._values.items():
            lines[name] = key.start_mark.line + 1
            for item in value.value if isinstance(value, SequenceNode) else ():
                if isinstance(item, ScalarNode):
                    lines[f"{name}.{item.value}"] = item.start_mark.line + 1
        return lines

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Node | None:
        """Returns the value's node, or None."""
        entry = self._values.get(key)
        return None if entry is None else entry[1]

    def key(self, key: str) -> Node | None:
        """Returns the key's own node, which has its line, or None."""
        entry = self._values.get(key)
        return None if entry is None else entry[0]

    def add(self, key: str, message: str) -> None:
        where = f"{self.where}.{key}" if key else self.where
        self.document.add(self.key(key) or self.head or self.node, where, message)

    def text(
        self, key: str, *, required: bool = False, raw: bool = False, optional: bool = False
    ) -> str | None:
        """Returns a text. With `raw`, `${…}` is not replaced; with `optional`, it may be empty."""
        node = self.get(key)
        if node is None:
            if required:
                self.add("", f"{key} is missing")
            return None
        if optional and node.tag == f"{_TAG}null":
            return None
        return self._text(node, f"{self.where}.{key}", raw=raw)

    def path(self, key: str) -> str | None:
        """A path, relative to the file's directory."""
        path = self.text(key)
        return None if path is None else self.document.resolve_path(path)

    def database(self, key: str) -> str | None:
        """The address of a database."""
        url = self.text(key)
        return None if url is None else self.document.resolve_database(url)

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts; the file may have a single text instead."""
        node = self.get(key)
        if node is None:
            return ()
        where = f"{self.where}.{key}"
        items = node.value if isinstance(node, SequenceNode) else [node]
        texts = (self._text(item, where) for item in items)
        return tuple(text for text in texts if text is not None)

    def number(self, key: str) -> int | None:
        return self._convert(key, lambda text: int(text.replace("_", "")), "a whole number")

    def share(self, key: str) -> float | None:
        return self._convert(key, float, "a number such as 0.01")

    def flag(self, key: str) -> bool | None:
        value = self._convert(key, str.lower, "true or false")
        if value is None or value in ("true", "false"):
            return None if value is None else value == "true"
        self.add(key, f"{value} is neither true nor false")
        return None

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        value = self.text(key)
        if value is None or value in choices:
            return value
        similar = nearest_name(value, choices)
        advice = "" if similar is None else f": did you mean {similar}?"
        self.add(key, f"{value!r} is not one of {', '.join(choices)}{advice}")
        return None

    def settings(self, key: str) -> dict[str, str]:
        """Returns a mapping of texts; numbers, true and false need no quotes."""
        node = self.get(key)
        if node is None:
            return {}
        where = f"{self.where}.{key}"
        if not isinstance(node, MappingNode):
            self.add(key, "must be a mapping of names and values")
            return {}
        settings: dict[str, str] = {}
        for name, (_, value) in entries(self.document, node, where).items():
            text = self._text(value, f"{where}.{name}", scalars=True)
            if text is not None:
                settings[name] = text
        return settings

    def _convert(self, key: str, convert: "Callable[[str], _T]", what: str) -> "_T | None":
        node = self.get(key)
        if node is None:
            return None
        where = f"{self.where}.{key}"
        text = self._text(node, where, scalars=True)
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError:
            self.document.add(node, where, f"{text!r} is not {what}")
            return None

    def _text(
        self, node: Node, where: str, *, raw: bool = False, scalars: bool = False
    ) -> str | None:
        if not isinstance(node, ScalarNode):
            what = "a list" if isinstance(node, SequenceNode) else "a mapping"
            self.document.add(node, where, f"must be a text, not {what}")
            return None
        value: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind == "null":
            self.document.add(node, where, "is empty: give it a value, or leave the key out")
            return None
        if kind == "bool":
            if scalars and value.lower() in ("true", "false"):
                return value.lower()
            self.document.add(
                node,
                where,
                f"YAML reads {value} as {_yaml_bool(value)}: put it in quotes if it is a text"
                + (", or write true or false" if scalars else ""),
            )
            return None
        if kind in ("int", "float") and not scalars:
            self.document.add(
                node, where, f'must be a text, but {value} is a number: write "{value}"'
            )
            return None
        if kind not in _AS_WRITTEN and kind not in ("int", "float"):
            self.document.add(node, where, f"the tag {node.tag} is not supported")
            return None
        return value if raw else self.document.substitute(value, node, where)


def entries(
    document: Document, node: MappingNode, where: str, parents: tuple[MappingNode, ...] = ()
) -> dict[str, tuple[Node, Node]]:
    """Returns the keys and values, with merged ones (`<<`); a repeated key is a problem.

    `parents` are the mappings that the node is merged into.
    """
    parents = (*parents, node)
    own: dict[str, tuple[Node, Node]] = {}
    merged: dict[str, tuple[Node, Node]] = {}
    for key, value in node.value:
        if key.tag == f"{_TAG}merge":
            for item in value.value if isinstance(value, SequenceNode) else [value]:
                if any(item is parent for parent in parents):
                    document.add(key, where, "`<<` cannot merge a mapping into itself")
                elif isinstance(item, MappingNode):
                    if id(item) not in document.merged_entries:
                        merged_entries = entries(document, item, where, parents)
                        document.merged_entries[id(item)] = merged_entries
                    merged = {**document.merged_entries[id(item)], **merged}
            continue
        if not isinstance(key, ScalarNode):
            document.add(key, where, "a key must be a text")
            continue
        name = str(key.value)
        if key.tag == f"{_TAG}bool":
            document.add(
                key, f"{where}.{name}", f"YAML reads the key {name} as {_yaml_bool(name)}: quote it"
            )
        elif name in own:
            first = own[name][0].start_mark.line + 1
            message = f"{name} appears twice (first in line {first}): remove one of them"
            document.add(key, f"{where}.{name}", message)
        else:
            own[name] = (key, value)
    return {**merged, **own}


def environment() -> Mapping[str, str]:
    return os.environ


def _yaml_bool(text: str) -> str:
    return "true" if text.lower() in ("yes", "on", "true", "y") else "false"
