"""Documents of YAML or JSON with the line of each of their fields.

Stricter than YAML where YAML drops something: a key that is given twice is an error, and so is an alias that contains
itself. Aliases may not make a document larger than `MOST_VALUES`, and a key is always the text that is written there.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from arranger.errors import UsageError
from arranger.model.checks import below

#: The most values of a document, with what its aliases repeat.
MOST_VALUES = 2_000_000
_MERGE = "tag:yaml.org,2002:merge"


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the fast one if available
    """Loads YAML as Kubernetes reads it: a time is a string, 10:30 isn't a number, and 0o644 is one."""


_INT = re.compile(r"^(?:[-+]?0b[0-1_]+|[-+]?0o?[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_PATTERNS = {"tag:yaml.org,2002:int": _INT, "tag:yaml.org,2002:float": _FLOAT}
Loader.yaml_implicit_resolvers = {
    first: [(tag, _PATTERNS.get(tag, pattern)) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Unreadable(UsageError):
    """A file that isn't the YAML or JSON of Kubernetes objects; the message names file and line."""


class Document:
    """One object of a file. `value` is JSON; `line` finds the lines of its fields."""

    def __init__(self, file: str, value: Any, node: yaml.Node) -> None:
        self.file = file
        self.value = value
        self._node = node

    def line(self, path: str = "") -> int:
        """The line of a field, from 1, by its path such as `spec.tasks[0].name`; of what is above it if there is no
        such field. That of an object or a list is where its own key stands, if it has one."""
        node, found = self._node, self._node.start_mark.line
        while path:
            step = _step(node, path)
            if step is None:
                break
            found, node, path = step
        return int(found) + 1

    def items(self) -> "list[Document] | None":
        """The objects of a List, which may lack their kind; None for another object."""
        value = self.value
        kind, entries = (value.get("kind"), value.get("items")) if isinstance(value, dict) else (None, None)
        if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(entries, list):
            return None
        nodes: list[yaml.Node] = next((node.value for key, node in _pairs(self._node) if key.value == "items"), [])
        head = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
        return [
            Document(self.file, head | item if isinstance(item, dict) else item, node)
            for item, node in zip(entries, nodes, strict=True)
        ]


def documents(file: str, content: bytes) -> Iterator[Document]:
    """The documents of a file that aren't empty, Lists taken apart. Raises `Unreadable`."""
    try:
        loader = Loader(content)
        try:
            while loader.check_node():
                node = loader.get_node()
                document = Document(file, _Values(file, loader).of(node), node)
                if document.value is not None:
                    yield from _apart(document)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise Unreadable(f"{file}{line}: not valid YAML: {problem.problem or problem.context}") from problem
    except RecursionError as problem:
        raise Unreadable(f"{file} is nested too deeply") from problem
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as problem:
        raise Unreadable(f"{file} is not a text file with YAML or JSON: {problem}") from problem


def _apart(document: Document) -> Iterator[Document]:
    items = document.items()
    if items is None:
        yield document
    for item in items or ():
        yield from _apart(item)


def _pairs(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """The keys and values of a mapping, its own first, and then what it merges (`<<`)."""
    if not isinstance(node, yaml.MappingNode):
        return
    merged: list[yaml.Node] = []
    for key, value in node.value:
        if key.tag == _MERGE:
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        else:
            yield key, value
    for other in merged:
        yield from _pairs(other)


def _step(node: yaml.Node, path: str) -> tuple[int, yaml.Node, str] | None:
    """The line and the node of the first part of a path, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode):
        match = re.match(r"\[(\d+)\]", path)
        if match is None or int(match[1]) >= len(node.value):
            return None
        item = node.value[int(match[1])]
        return item.start_mark.line, item, path[match.end() :].removeprefix(".")
    matching = [
        (len(name), key, value)
        for key, value in _pairs(node)
        if path.startswith(name := below("", key.value)) and path[len(name) : len(name) + 1] in ("", ".", "[")
    ]
    if not matching:
        return None
    length, key, value = max(matching, key=lambda each: each[0])
    return key.start_mark.line, value, path[length:].removeprefix(".")


class _Values:
    """Makes JSON of the nodes of a document, each node once."""

    def __init__(self, file: str, loader: Any) -> None:
        self._file = file
        self._loader = loader
        #: By node, which equals itself alone: its value, and how many values it has with those that aliases repeat.
        #: None while it is being made.
        self._made: dict[yaml.Node, tuple[Any, int] | None] = {}

    def of(self, node: yaml.Node) -> Any:
        return self._of(node)[0]

    def _of(self, node: yaml.Node) -> tuple[Any, int]:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node), 1
        if node in self._made:
            made = self._made[node]
            if made is None:
                raise self._error(node, "an alias stands within what it refers to")
            return made
        self._made[node] = None
        made = self._list(node) if isinstance(node, yaml.SequenceNode) else self._record(node)
        if made[1] > MOST_VALUES:
            raise self._error(node, f"more than {MOST_VALUES} values, with what aliases repeat")
        self._made[node] = made
        return made

    def _list(self, node: yaml.SequenceNode) -> tuple[list[Any], int]:
        made = [self._of(each) for each in node.value]
        return [value for value, _ in made], 1 + sum(size for _, size in made)

    def _record(self, node: yaml.Node) -> tuple[dict[str, Any], int]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        total = 1
        for key, value in node.value:
            made, size = self._of(value)
            total += size
            if key.tag == _MERGE:
                for each in made if isinstance(made, list) else [made]:
                    if not isinstance(each, dict):
                        raise self._error(key, "<< must name a mapping")
                    merged = each | merged
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "the name of a field must be a text")
            if key.value in own:
                raise self._error(key, f"{key.value} is given twice, first in line {lines[key.value]}")
            own[key.value] = made
            lines[key.value] = key.start_mark.line + 1
        return merged | own, total

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        value = self._loader.construct_object(node)
        if value is not None and not isinstance(value, (str, int, float)):
            raise self._error(node, f"{node.tag} can't be in a Kubernetes object")
        return value

    def _error(self, node: yaml.Node, words: str) -> Unreadable:
        return Unreadable(f"{self._file}:{node.start_mark.line + 1}: {words}")


def kind_of(value: Any) -> tuple[str, str]:
    """Group and kind of an object; empty texts where it has none."""
    if not isinstance(value, dict):
        return "", ""
    kind, version = value.get("kind"), value.get("apiVersion")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    return group, kind if isinstance(kind, str) else ""
