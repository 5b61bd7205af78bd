"""The log's encoding: every kind comes back as it went in, and nothing that can't be read is skipped."""

import enum
import functools
import types
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.errors import DamagedEntry, UnknownEvent
from arranger.events import kinds
from arranger.events.codec import (
    Codec,
    StoredEntry,
    decode_batch,
    decode_snapshot,
    encode_batch,
    encode_snapshot,
    verified,
    verified_run,
)
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.log import Position, StoredSnapshot
from arranger.events.log_keys import next_chain

KINDS = get_args(kinds.Event)


@functools.cache  # most of the time that an example takes is that of making its strategy
def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field with this annotation may hold."""
    plain = {
        str: st.text(max_size=12),
        int: st.integers(-(2**63), 2**63 - 1),
        bool: st.booleans(),
        type(None): st.none(),
    }
    if hint in plain:
        return plain[hint]
    if get_origin(hint) is types.UnionType:
        return st.one_of([values_of(one) for one in get_args(hint)])
    if get_origin(hint) is tuple:
        members = get_args(hint)
        if members[-1] is Ellipsis:
            return st.lists(values_of(members[0]), max_size=3).map(tuple)
        return st.tuples(*(values_of(one) for one in members))
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    fields = get_type_hints(hint)
    return st.builds(hint, **{field: values_of(fields[field]) for field in hint.__struct_fields__})


def batch(*events: Any, seq: int = 1) -> Batch:
    return Batch("writer", seq, 1_000, events)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_kind_comes_back_as_it_went_in(kind: type[Any], data: st.DataObject) -> None:
    written = batch(data.draw(values_of(kind)))  # the next test has several events in a batch

    read = decode_batch(encode_batch(written), 1)

    assert read == written
    assert [type(event) for event in read.events] == [type(event) for event in written.events]


@given(st.lists(st.one_of([values_of(kind) for kind in KINDS]), min_size=1, max_size=8))
def test_a_batch_of_mixed_kinds_comes_back_and_equal_batches_are_equal_bytes(events: list[Any]) -> None:
    written = batch(*events)
    assert decode_batch(encode_batch(written), 1) == written
    assert encode_batch(decode_batch(encode_batch(written), 1)) == encode_batch(written)


def test_the_tag_of_every_kind_is_its_name_and_version() -> None:
    for kind in KINDS:
        name, _, version = kind.__struct_config__.tag.partition(".")
        assert name == kind.__name__
        assert version.isdigit()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_an_unknown_kind_is_named_with_its_own_offset(index: int) -> None:
    events: list[Any] = [["ObjectGone.1", "node", 1, "", "n", "u"]] * 3
    events[index] = ["NodeVanished.7", 1]
    payload = msgspec.msgpack.encode(["w", 1, 0, events])

    with pytest.raises(UnknownEvent, match=r"NodeVanished\.7") as raised:
        decode_batch(payload, 100)

    assert raised.value.offset == 100 + index


def test_an_unknown_version_of_a_known_kind_is_unknown() -> None:
    with pytest.raises(UnknownEvent, match=r"ObjectGone\.2"):
        decode_batch(msgspec.msgpack.encode(["w", 1, 0, [["ObjectGone.2", "node", 1, "", "n", "u"]]]), 1)


def seen(faults: object) -> bytes:
    fields = [3, "default", "j", "uid", "7", 1, 0, False, None, faults, ""]
    return msgspec.msgpack.encode(["w", 1, 0, [["ObjectGone.1", "node", 1, "", "n", "u"], ["JobSeen.1", *fields]]])


def test_a_fault_of_an_unknown_kind_is_unknown_at_its_own_offset() -> None:
    with pytest.raises(UnknownEvent, match=r"JobSeen\.1.*TooBlue") as raised:
        decode_batch(seen([["spec.leader", "Required"], ["spec.priority", "TooBlue"]]), 100)
    assert raised.value.offset == 101


def test_a_known_kind_with_a_wrong_field_is_damage_at_its_own_offset() -> None:
    payload = msgspec.msgpack.encode(
        ["w", 1, 0, [["ObjectGone.1", "node", 1, "", "n", "u"], ["ObjectGone.1", "node", 1, "", "n", 5]]]
    )
    with pytest.raises(DamagedEntry, match=r"ObjectGone\.1") as raised:
        decode_batch(payload, 100)
    assert not isinstance(raised.value, UnknownEvent)
    assert raised.value.offset == 101


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        msgspec.msgpack.encode(["w", 1, 0, []]),
        msgspec.msgpack.encode(["w", 1, 0, [5]]),
        msgspec.msgpack.encode(["w", 1, 0, [["ObjectGone.1"]]]),
        msgspec.msgpack.encode({"writer": "w"}),
        encode_batch(batch(ObjectGone(Watched.NODE, 1, "", "n", "u")))[:-1],
        encode_batch(batch(ObjectGone(Watched.NODE, 1, "", "n", "u"))) + b"\x00",
    ],
)
def test_what_is_no_batch_is_damage_at_its_first_offset(payload: bytes) -> None:
    with pytest.raises(DamagedEntry) as raised:
        decode_batch(payload, 7)
    assert raised.value.offset == 7


@given(st.data())
def test_altered_bytes_are_read_as_a_batch_or_refused_with_an_offset(data: st.DataObject) -> None:
    payload = bytearray(
        encode_batch(batch(ObjectGone(Watched.POD, 1, "default", "p", "u"), ObjectGone(Watched.NODE, 2, "", "n", "u")))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_batch(bytes(payload), 5)
    except DamagedEntry as damage:
        assert damage.offset in (5, 6)


@pytest.mark.parametrize("impossible", [batch(), batch(ObjectGone(Watched.NODE, 1, "", "n", "u"), seq=0)])
def test_a_batch_without_events_or_sequence_number_is_not_written(impossible: Batch) -> None:
    with pytest.raises(ValueError, match="batch"):
        encode_batch(impossible)


class Old(msgspec.Struct, frozen=True, array_like=True, tag="Moved.1"):
    """A kind as it once was: the distance in inches."""

    inches: int


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="Moved.2"):
    """The same kind now: the distance in micrometres."""

    micrometres: int


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="Kept.1"):
    """A kind that only got a field."""

    name: str
    weight: int = 1


class Moves(msgspec.Struct, array_like=True):
    """A batch of these kinds."""

    writer: str
    seq: int
    time_ms: int
    events: tuple[Moved | Kept, ...]


@pytest.fixture
def codec() -> Codec:
    upcasts: dict[type[Any], Any] = {Old: lambda old: Moved(old.inches * 25_400)}
    return Codec(Moves, upcasts)


def test_old_versions_are_raised_to_the_present_one_in_their_places(codec: Codec) -> None:
    payload = msgspec.msgpack.encode(["w", 1, 0, [["Kept.1", "a"], ["Moved.1", 2], ["Moved.2", 5]]])
    events: tuple[Any, ...] = codec.decode(payload, 1).events
    assert events == (Kept("a"), Moved(50_800), Moved(5))


def test_a_field_added_at_the_end_has_its_default_in_events_without_it(codec: Codec) -> None:
    payload = msgspec.msgpack.encode(["w", 1, 0, [["Kept.1", "a"], ["Kept.1", "b", 3]]])
    events: tuple[Any, ...] = codec.decode(payload, 1).events
    assert events == (Kept("a", 1), Kept("b", 3))


def test_a_version_without_an_upcast_is_unknown(codec: Codec) -> None:
    with pytest.raises(UnknownEvent, match=r"Moved\.3") as raised:
        codec.decode(msgspec.msgpack.encode(["w", 1, 0, [["Moved.1", 2], ["Moved.3", 2]]]), 10)
    assert raised.value.offset == 11


def test_a_damaged_old_version_is_damage(codec: Codec) -> None:
    with pytest.raises(DamagedEntry, match=r"Moved\.1"):
        codec.decode(msgspec.msgpack.encode(["w", 1, 0, [["Moved.1", "far"]]]), 1)


def test_the_chain_is_the_sha1_of_what_came_before_and_the_payload() -> None:
    assert next_chain("", b"abc") == "a9993e364706816aba3e25717850c26c9cd0d89d"
    assert next_chain("ab", b"c") == next_chain("", b"abc")
    assert next_chain(next_chain("", b"1"), b"2") != next_chain(next_chain("", b"2"), b"1")


def stored_run(count: int) -> list[StoredEntry]:
    """Entries of two events each, from offset 1."""
    run, chain = [], ""
    for number in range(count):
        payload = encode_batch(
            batch(
                ObjectGone(Watched.NODE, 1, "", f"n{number}", "u"),
                ObjectGone(Watched.NODE, 2, "", f"n{number}", "u"),
                seq=number + 1,
            )
        )
        chain = next_chain(chain, payload)
        run.append(StoredEntry(2 * number + 2, 2, chain, payload))
    return run


def test_a_sound_run_is_verified_with_its_offsets() -> None:
    entries = verified_run(stored_run(3), Position(1, 0, ""))
    assert [(entry.first, entry.last) for entry in entries] == [(1, 2), (3, 4), (5, 6)]


def test_a_missing_a_swapped_and_a_shortened_entry_are_damage_where_they_are_met() -> None:
    first, second, third = stored_run(3)
    after_first = Position(1, 2, first.chain)
    swapped = StoredEntry(second.last, 2, third.chain, third.payload)
    short = StoredEntry(second.last - 1, 1, second.chain, second.payload)
    for wrong in (third, swapped, short):
        assert verified_run([first, wrong], Position(1, 0, ""))[-1].last == 2
        with pytest.raises(DamagedEntry) as raised:
            verified(wrong, after_first)
        assert raised.value.offset == 3


@given(st.binary(max_size=200))
def test_a_snapshot_comes_back_with_its_position(content: bytes) -> None:
    snapshot = StoredSnapshot(Position(7, 9, "ab"), content)
    assert decode_snapshot(encode_snapshot(snapshot), 9) == snapshot


def test_a_damaged_snapshot_is_refused_with_its_offset() -> None:
    written = bytearray(encode_snapshot(StoredSnapshot(Position(7, 9, "ab"), b"content" * 100)))
    written[-1] ^= 1
    with pytest.raises(DamagedEntry) as raised:
        decode_snapshot(bytes(written), 9)
    assert raised.value.offset == 9
