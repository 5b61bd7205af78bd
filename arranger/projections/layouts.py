"""Layouts of snapshots: those that this program reads, and the bridges from earlier ones to the present one.

A bridge is to a snapshot what an upcast is to an event: one function from one layout to the next, kept for at least one
release after the layout changed. It works on the parts of a snapshot (the fields of `StateImage`, each still encoded),
so it costs almost nothing where a layout only gained fields: decoding the parts adds their defaults.
`tests/histories/snapshots` has snapshots of every supported layout, made by the versions that wrote it.

Rule for new fields
-------------------
Two processes of one version may be at the same offset, where one folded the whole log and the other began with a
bridged snapshot. Both judge all later decisions and must judge them equally. Therefore a new field must have the same
value in both:

- Either no entry of an earlier version changes the field: the fold sets it only from a new kind of event, or from a new
  event field whose default leaves it unchanged. Then the default is right in a bridged snapshot.
- Or the bridge computes the value from the old layout, with exactly the same result as the fold.

A field violates the rule if the fold sets it from older entries and a bridge leaves it at its default.
`tests/unit/test_layouts.py` folds each kept log both ways and compares the bytes.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from arranger.errors import LogError
from arranger.events.earlier import JobSeenV1, StageDecidedV1, WaitsV1, causes_of, job_seen, stage_decided, waits
from arranger.model.faults import Fault, FaultKind

#: The layout that is written. It rises with every change of a snapshot's content, at most once per release, and needs a
#: bridge from the previous layout.
LAYOUT = 8

#: The fields of a snapshot, each still encoded. The first is always the number of the layout.
Parts = list[msgspec.Raw]

#: The index of the jobs in a snapshot; each begins with its record.
_JOBS = 10
_Jobs = list[list[msgspec.Raw]]


class _Record7(msgspec.Struct):
    """The fields of a job's record that differ in layout 7."""

    seen: JobSeenV1
    decided: StageDecidedV1 | None
    steps: tuple[tuple[StageDecidedV1, int], ...]
    replacement: str
    waits: WaitsV1 | None = None
    refused: str = ""
    replacements: int = 0
    replacement_ms: int = 0
    spent: dict[str, int] = {}
    failing_since: dict[str, int] = {}
    replaced: dict[str, tuple[int, int]] = {}
    leaving: tuple[tuple[int, int], ...] = ()


#: Field of a record of layout 8 → its own fields, each with its name in layout 7.
_GROUPED_8 = {
    "leader": {"address": "leader_address", "restarts": "restarts", "ended": "leader_ended"},
    "times": {
        "stage_ms": "stage_since_ms",
        "scheduled_ms": "scheduled_since_ms",
        "waits_ms": "waits_since_ms",
        "infeasible_ms": "infeasible_since_ms",
        "short_ms": "short_since_ms",
        "start_ms": "start_ms",
        "completion_ms": "completion_ms",
        "turned": "turned",
    },
    "back_offs": {"attempt": "back_off", "further": "further_back_off", "held_back": "held_back"},
}


_Found = TypeVar("_Found")

_parts = msgspec.msgpack.Decoder(Parts)
_number = msgspec.msgpack.Decoder(int)


class UnusableSnapshot(LogError):
    """The snapshot's layout isn't supported, or the snapshot is damaged or inconsistent."""


class NewerSnapshot(UnusableSnapshot):
    """The snapshot is valid but has the layout of a later version, which runs or ran here."""


def _from_7(parts: Parts) -> Parts:
    """Layout 8 has facts instead of sentences, groups fields of a job in records of their own, and appends
    fields with defaults to the state."""
    jobs = [_job_from_7(*job) for job in msgspec.msgpack.decode(parts[_JOBS], type=_Jobs)]
    return [_raw(8), *parts[1:_JOBS], _raw(jobs), *parts[_JOBS + 1 :]]


def _job_from_7(record: msgspec.Raw, *slots: msgspec.Raw) -> list[msgspec.Raw]:
    old = msgspec.msgpack.decode(record, type=_Record7)
    fields = msgspec.msgpack.decode(record, type=dict[str, msgspec.Raw])
    for name, parts in _GROUPED_8.items():
        fields[name] = _raw({to: fields[of] for to, of in parts.items() if of in fields})
    fields["seen"] = _raw(job_seen(old.seen))
    changed = old.refused.partition(":")[0].split(", ") if old.refused else ()
    fields["refused"] = _raw([Fault(field, FaultKind.IMMUTABLE) for field in changed])
    fields["decided"] = _raw(stage_decided(old.decided) if old.decided is not None else None)
    fields["steps"] = _raw([(stage_decided(step), time_ms) for step, time_ms in old.steps])
    fields["waits"] = _raw(waits(old.waits) if old.waits is not None else None)
    fields["replaced"] = _raw((old.replacements, causes_of(old.replacement), old.replacement_ms))
    fields["sets"] = _raw({name: _set_from_7(old, name) for name in (old.spent | old.failing_since | old.replaced)})
    refused = slots[3:] or (_raw(()),)
    return [_raw(fields), *slots[:3], *refused, _raw(old.leaving)]


def _set_from_7(old: _Record7, name: str) -> dict[str, int]:
    in_a_row, replaced_ms = old.replaced.get(name, (0, 0))
    return {
        "spent": old.spent.get(name, 0),
        "failing_since_ms": old.failing_since.get(name, 0),
        "in_a_row": in_a_row,
        "replaced_ms": replaced_ms,
    }


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


#: Layout → the function that converts it to the next one.
_BRIDGES: dict[int, Callable[[Parts], Parts]] = {7: _from_7}

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
