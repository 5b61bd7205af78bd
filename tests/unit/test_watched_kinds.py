"""Every kind of object that is watched is known wherever objects are: observed, compared, told and forgotten again."""

from typing import Any, get_args

import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.kube.sources import SOURCES
from arranger.projections import fold
from arranger.projections.fold import apply_entry
from arranger.projections.observed import objects
from arranger.projections.state import Changes, State
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.workers.watching import observed
from arranger.workers.watching.observed import known, projected
from tests.values import filled

TERM = filled(int)

#: Each observation of an object that isn't its deletion, as an event of each kind that is watched.
SEEN: dict[k.Watched, Any] = {
    kind: event
    for each in get_args(observed.Seen)
    for event in (filled(each, pick) for pick in range(8))
    if (kind := k.watch_of(event))
}
EVERY = sorted(k.Watched)


def after(*events: k.Event) -> State:
    """The state after some events of the current terms."""
    state = State(terms=dict.fromkeys(k.Watched, TERM))
    apply_entry(state, Entry(1, len(events), "", k.Batch("role@member", 1, 1_000, events)), Changes())
    return state


def unknown() -> list[str]:
    """The kinds that a table doesn't have, with the table."""
    tables = {
        "observations": {*SEEN},
        "names": {*k.SEEN},
        "sources": {*SOURCES},
        "tables of objects": {*objects.KINDS, k.Watched.NODE, k.Watched.POD, k.Watched.JOB},
        "deletions": {*fold._FORGET},
    }
    return [f"{kind.name} isn't among the {name}" for name, of in tables.items() for kind in EVERY if kind not in of]


def test_every_watched_kind_is_in_every_table_of_them() -> None:
    assert unknown() == []


@pytest.mark.parametrize("kind", EVERY)
def test_what_is_observed_is_known_then_and_gone_after_its_deletion(kind: k.Watched) -> None:
    seen = SEEN[kind]
    nothing, there = after(), after(seen)
    assert not known(nothing, seen) and known(there, seen)
    [(uid, gone)] = projected(there, kind, TERM)
    assert (uid, gone) == (seen.uid, k.gone(seen, TERM)) and k.watch_of(gone) == kind
    left = after(seen, gone)
    assert projected(left, kind, TERM) == [] and not known(left, seen)


@pytest.mark.parametrize("kind", EVERY)
def test_a_deletion_is_exported_with_the_names_that_its_object_has(kind: k.Watched) -> None:
    names, batch = Pseudonyms(), k.Batch("role@member", 1, 1_000, (SEEN[kind], k.gone(SEEN[kind], TERM)))
    names.batch(batch)
    names.begin()
    seen, gone = names.batch(batch).events
    assert gone == k.gone(seen, TERM)


@pytest.mark.parametrize("kind", EVERY)
def test_a_deletion_has_the_name_of_its_kind_of_object(kind: k.Watched) -> None:
    seen, gone = (k.kind_of(event) for event in (SEEN[kind], k.gone(SEEN[kind], TERM)))
    assert gone == f"{seen.removesuffix('Seen')}Gone"


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind in k.OPTIONAL])
def test_of_a_kind_whose_watch_is_refused_nothing_is_known(kind: k.Watched) -> None:
    left = after(SEEN[kind], k.WatchRefused(kind, TERM, 403))
    assert projected(left, kind, TERM) == [] and not known(left, SEEN[kind])


def test_a_kind_that_a_table_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SOURCES, k.Watched.CLAIM)
    monkeypatch.setattr(objects, "KINDS", tuple(kind for kind in objects.KINDS if kind != k.Watched.QUOTA))
    monkeypatch.delitem(fold._FORGET, k.Watched.QUEUE)
    assert unknown() == [
        "CLAIM isn't among the sources", "QUOTA isn't among the tables of objects", "QUEUE isn't among the deletions",
    ]  # fmt: skip


def test_a_kind_whose_deletion_is_folded_by_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fold._FORGET, k.Watched.QUOTA, fold._only_recorded)
    with pytest.raises(AssertionError):
        test_what_is_observed_is_known_then_and_gone_after_its_deletion(k.Watched.QUOTA)
