"""Pods in a snapshot: one list for each field, with the pods in the order of their UIDs.

Most pods are like many others. What such pods have in common is written once, in the order of its first use, and a pod
refers to it by its index: so it is one object in the restored state, without a comparison for each pod. Lists are
decoded and made into pods in about half the time of pods one by one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import msgspec

from arranger.events.kinds import PodSeen
from arranger.events.sharing import shared_requests, shared_traits

#: The fields that are one object for equal pods, and what makes it the one that pods from a log have too.
_SHARED: dict[str, Callable[[Any], Any]] = {"requests": shared_requests, "traits": shared_traits}

#: Pods whose fields are gathered at once: few enough for the processor's cache, which halves the time.
_BLOCK = 256

_names = PodSeen.__struct_fields__


def _column(kind: Any, *, shared: bool) -> Any:
    return tuple[tuple[kind, ...], list[int]] if shared else list[kind]


_Columns: Any = msgspec.defstruct(
    "_Columns",
    [(field.name, _column(field.type, shared=field.name in _SHARED)) for field in msgspec.structs.fields(PodSeen)],
    frozen=True,
    array_like=True,
)


class PodColumns(_Columns):  # type: ignore[misc]  # its fields are those of `PodSeen`
    """The fields of pods. One that equal pods share has the different values, and the index of each pod's value."""


def columns_of(pods: Sequence[PodSeen]) -> PodColumns:
    """The columns of pods."""
    columns: list[list[Any]] = [[] for _ in _names]
    for begin in range(0, len(pods), _BLOCK):
        block = map(msgspec.structs.astuple, pods[begin : begin + _BLOCK])
        for column, part in zip(columns, zip(*block, strict=True), strict=True):
            column.extend(part)
    written = (_indexed(of) if name in _SHARED else of for name, of in zip(_names, columns, strict=True))
    return PodColumns(*written)


def pods_in(columns: PodColumns) -> list[PodSeen]:
    """The inverse of `columns_of`. Raises `IndexError` for an index without a value."""
    written = zip(_names, msgspec.structs.astuple(columns), strict=True)
    return list(map(PodSeen, *(_values(name, of) for name, of in written)))


def _indexed(column: Iterable[Any]) -> tuple[tuple[Any, ...], list[int]]:
    indexes: dict[Any, int] = defaultdict(count().__next__)
    each = [indexes[value] for value in column]
    return tuple(indexes), each


def _values(name: str, column: Any) -> Iterable[Any]:
    if name not in _SHARED:
        return column  # type: ignore[no-any-return]
    values, indexes = column
    return map([*map(_SHARED[name], values)].__getitem__, indexes)
