"""Every kind of event is known wherever events are read: none is missing from a table, and none stops a process."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections import fold
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.export import pseudonyms
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.reading import describe
from tests.values import fields, filled

KINDS = get_args(k.Event)
_EXPORT = "arranger/replay/export/pseudonyms.py"
#: As many as the largest enumeration in an event has members, so that each of them occurs.
PICKS = range(64)


def each(kind: type[Any]) -> Iterator[k.Event]:
    """Events of a kind in which nothing is left out, with each member of each enumeration."""
    for pick in PICKS:
        yield filled(kind, pick)


def folded(event: k.Event) -> State:
    """The state after an event of the current terms, with nothing before it."""
    state = State(terms=dict.fromkeys(k.Watched, filled(int)))
    apply_entry(state, Entry(1, 1, "", k.Batch("role@member", 1, 1_000, (event,))), Changes())
    return state


def exported(event: k.Event) -> k.Event:
    """The event without names. Where a rule for text or a sort of names is missing, it is said where that belongs."""
    names, batch = Pseudonyms(), k.Batch("role@member", 1, 1_000, (event,))
    try:
        names.batch(batch)
        names.begin()
        return names.batch(batch).events[0]
    except (KeyError, TypeError) as err:
        raise AssertionError(f"{type(event).__name__} lacks a NameOf, or a rule in {_EXPORT}: {err!r}") from err


def unknown() -> list[str]:
    """The kinds that a table doesn't have, with its file."""
    tables: dict[str, Any] = {
        "arranger/projections/fold.py": fold._APPLY,
        "arranger/replay/reading/describe.py": describe._WORDS,
    }
    observed = [kind for kind in get_args(k.Observation) if "term" in fields(kind) and "kind" not in fields(kind)]
    watched = {kind for kind in observed if any(k.watch_of(event) for event in each(kind))}
    return [
        *(f"{kind.__name__} isn't in {table}" for table, of in tables.items() for kind in KINDS if kind not in of),
        *(f"{kind.__name__} has no watch in arranger/events/kinds.py" for kind in observed if kind not in watched),
        *(f"{kind.__name__} is in {table} and no event" for table, of in tables.items() for kind in {*of} - {*KINDS}),
    ]


def test_every_kind_is_in_every_table_of_kinds() -> None:
    assert unknown() == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_can_be_folded_and_told_and_exported(kind: type[Any]) -> None:
    for event in each(kind):
        assert describe.describe(event, folded(event))
        assert type(exported(event)) is kind
        assert k.kind_of(event) in k.KIND_NAMES


def test_every_decision_and_outcome_belongs_to_its_job() -> None:
    of_no_job = [kind for kind in get_args(k.Decision | k.Outcome) if not describe.decided_for(filled(kind))]
    assert of_no_job == [k.CycleTaken]


def test_a_kind_without_a_handler_or_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(fold._APPLY, k.ObjectGone)
    monkeypatch.delitem(describe._WORDS, k.QuotaSeen)
    monkeypatch.delitem(k.WATCHED, k.QueueSeen)
    assert unknown() == [
        "ObjectGone isn't in arranger/projections/fold.py",
        "QuotaSeen isn't in arranger/replay/reading/describe.py",
        "QueueSeen has no watch in arranger/events/kinds.py",
    ]


def test_a_sort_of_name_without_a_prefix_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(pseudonyms._SORTS, "resourcequota")
    with pytest.raises(
        AssertionError, match=f"ObjectGone lacks a NameOf, or a rule in {_EXPORT}: KeyError\\('resourcequota'\\)"
    ):
        test_every_kind_can_be_folded_and_told_and_exported(k.ObjectGone)
