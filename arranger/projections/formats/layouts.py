"""Layouts of snapshots: those that this program reads, and the bridges from earlier ones to the present one.

A bridge is to a snapshot what an upcast is to an event: one function from one layout to the next, kept for at least one
release after the layout changed. It works on the parts of a snapshot (the fields of `StateImage`, each still encoded),
so it costs almost nothing where a layout only gained fields: decoding the parts adds their defaults.
No layout before the present one was released, so there is no bridge yet. `tests/unit/test_layouts.py` shows one, from a
layout that it invents.

Rule for new fields
-------------------
Two processes of one version may be at the same offset, where one folded the whole log and the other began with a
bridged snapshot. Both judge all later decisions and must judge them equally. Therefore a new field must have the same
value in both:

- Either no entry of an earlier version changes the field: the fold sets it only from a new kind of event, or from a new
  event field whose default leaves it unchanged. Then the default is right in a bridged snapshot.
- Or the bridge computes the value from the old layout, with exactly the same result as the fold.

A field violates the rule if the fold sets it from older entries and a bridge leaves it at its default.
`tests/unit/test_layouts.py` folds a log both ways and compares the bytes.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from arranger.errors import LogError

#: The layout that is written. It rises with every change of a snapshot's content, at most once per release, and needs a
#: bridge from the previous layout. The first release has 11: versions before it, which were never released, wrote
#: layouts up to 10. Their snapshots are refused by their number, and they see ours as those of a later version.
LAYOUT = 11

#: The fields of a snapshot, each still encoded. The first is always the number of the layout.
Parts = list[msgspec.Raw]

_Found = TypeVar("_Found")

_parts = msgspec.msgpack.Decoder(Parts)
_number = msgspec.msgpack.Decoder(int)


class UnusableSnapshot(LogError):
    """The snapshot's layout isn't supported, or the snapshot is damaged or inconsistent."""


class NewerSnapshot(UnusableSnapshot):
    """The snapshot is valid but has the layout of a later version, which runs or ran here."""


#: Layout → the function that converts it to the next one. `tests/unit/test_layouts.py` has an example.
_BRIDGES: dict[int, Callable[[Parts], Parts]] = {}

#: The supported layouts.
READ = (*sorted(_BRIDGES), LAYOUT)


def layout_of(content: bytes) -> int:
    """The layout of a snapshot. Raises `UnusableSnapshot` if it can't be decoded."""
    return _layout(decoded(_parts, content))


def present(content: bytes) -> bytes:
    """The snapshot in the present layout: unchanged, or converted by the bridges; fields with defaults may be missing.

    Raises `UnusableSnapshot`, and `NewerSnapshot` for a layout after the present one.
    """
    parts = decoded(_parts, content)
    layout = _layout(parts)
    if layout == LAYOUT:
        return content
    if layout > LAYOUT:
        raise NewerSnapshot(f"the snapshot has layout {layout}, this program reads up to layout {LAYOUT}")
    if layout not in _BRIDGES:
        raise UnusableSnapshot(f"the snapshot has layout {layout}, this program reads layouts from {READ[0]}")
    try:
        for step in range(layout, LAYOUT):
            parts = _BRIDGES[step](parts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, ValueError) as err:
        raise undecodable(err) from err
    return msgspec.msgpack.encode(parts)


def decoded(decoder: msgspec.msgpack.Decoder[_Found], content: bytes) -> _Found:
    """What a decoder makes of a snapshot. Raises `UnusableSnapshot`."""
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise undecodable(err) from err


def _layout(parts: Parts) -> int:
    try:
        return _number.decode(parts[0])
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as err:
        raise undecodable(err) from err


def undecodable(err: Exception) -> UnusableSnapshot:
    """The error for bytes that are not a snapshot."""
    return UnusableSnapshot(f"the snapshot can't be decoded: {err}")
