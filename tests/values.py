"""Values made from the types of fields alone: for guards that have to know nothing of a field but that it is there."""

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

#: What each text holds: a name that is valid everywhere.
TEXT = "some-name"


def fields(kind: type[Any]) -> dict[str, Any]:
    """The fields of a struct or a dataclass with their types."""
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: hints[name] for name in kind.__struct_fields__}


def filled(hint: Any, pick: int = 0) -> Any:
    """A value of this type in which nothing is left out: each text has one, each number isn't 0, each container has an
    item, and each optional part is there. `pick` chooses the member of each enumeration and union."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        members = [each for each in arguments if each is not types.NoneType]
        return filled(members[pick % len(members)], pick)
    if origin is tuple:
        items = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(filled(each, pick) for each in items)
    if origin in (list, set, frozenset):
        return origin([filled(arguments[0], pick)])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {filled(arguments[0], pick): filled(arguments[1], pick)}
    plain = {str: TEXT, int: 7, float: 7.0, bool: True, bytes: b"7", types.NoneType: None, None: None}
    if hint in plain:
        return plain[hint]
    if issubclass(hint, enum.Enum):
        members = list(hint)
        return members[pick % len(members)]
    if issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint):
        return hint(**{name: filled(each, pick) for name, each in fields(hint).items()})
    raise TypeError(f"there is no way to make a value of {hint}")
