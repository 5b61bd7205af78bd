"""Kubernetes objects from files in the formats of `kubectl apply -f` and `kubectl get -o yaml`.

An input is YAML with any number of documents, JSON, Lists of either, a folder of such files, or `-` for standard input.
Every object comes with its file and line, so that errors can name them.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from arranger.convert import JOBS, QUEUES
from arranger.convert.reading import Loader
from arranger.errors import UsageError

STDIN = "-"

_ENDINGS = (".yaml", ".yml", ".json")


class FoundObject(msgspec.Struct, frozen=True):
    """An object, its kind and group ("" for the core group), and its file and line: `nodes.yaml:12`."""

    kind: str
    group: str
    item: dict[str, Any]
    where: str

    @property
    def converted(self) -> str:
        """The kind of what `arranger convert` makes of it; empty if it makes nothing."""
        of = (self.group, self.kind)
        return "TYJob" if of in JOBS else "Queue" if of in QUEUES else ""


def read_objects(names: Sequence[str]) -> Iterator[FoundObject]:
    """All objects in the named files, folders and standard input, in order. Lists are split into their items.

    Raises `UsageError`, which names file and line, for input that can't be read.
    """
    for name, content in contents(names):
        yield from _objects(name, content)


def contents(names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The contents of the named files, of those in folders and of standard input, each with its name. Raises
    `UsageError` for what can't be read."""
    if list(names).count(STDIN) > 1:
        raise UsageError("standard input (-) is named twice", hint="it can be read once")
    for name in names:
        if name == STDIN:
            yield "standard input", sys.stdin.buffer.read()
        else:
            for path in _files(Path(name)):
                yield str(path), _content(path)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS)
    if not found:
        raise UsageError(f"{path} has no file that ends in {', '.join(_ENDINGS)}", hint="name files or folders of them")
    return found


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UsageError(f"{path} can't be read: {problem.strerror}") from problem


def _objects(name: str, content: bytes) -> Iterator[FoundObject]:
    if content.lstrip()[:1] == b"{":
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # YAML may also begin with a brace, and its errors name the line
        else:
            yield from _taken_apart(value, name, [f"{name}: items[{i}]" for i in range(len(_items(value) or ()))])
            return
    loader = Loader(content)
    try:
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            if value is not None:
                yield from _taken_apart(value, _at(name, node), [_at(name, item) for item in _item_nodes(node)])
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{name}{line}: not valid YAML: {problem.problem or problem.context}") from problem
    except RecursionError as problem:
        raise UsageError(f"{name} is nested too deeply") from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise UsageError(f"{name} is not a text file with YAML or JSON: {problem}") from problem
    finally:
        loader.dispose()


def _at(name: str, node: yaml.Node) -> str:
    return f"{name}:{node.start_mark.line + 1}"


def _item_nodes(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "items" and isinstance(value, yaml.SequenceNode):
                return list(value.value)
    return []


def _items(value: Any) -> list[Any] | None:
    items = value.get("items") if isinstance(value, Mapping) else None
    return items if isinstance(items, list) else None


def _taken_apart(value: Any, where: str, origins: Sequence[str]) -> Iterator[FoundObject]:
    """The object, or the items of a List. Items may lack their kind, as in the API server's own responses."""
    kind, version = _kind_of(value, where)
    items = _items(value)
    if not kind.endswith("List") or items is None:
        yield FoundObject(kind, version.rpartition("/")[0], value, where)
        return
    for item, origin in zip(items, origins, strict=True):
        if isinstance(item, dict) and kind != "List":
            item = {"kind": kind.removesuffix("List"), "apiVersion": version} | item  # noqa: PLW2901
        yield from _taken_apart(item, origin, [origin] * len(_items(item) or ()))


def _kind_of(value: Any, where: str) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: this is a {_TYPES.get(type(value), 'value')}, not a Kubernetes object")
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise UsageError(f"{where}: kind is missing", hint="every Kubernetes object has a kind, such as Node")
    return kind, version if isinstance(version, str) else ""


_TYPES: dict[type, str] = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}
