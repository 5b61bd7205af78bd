"""A hypothesis is a copy: whatever is folded into it, the state that it is about stays as it is.

`tests/conftest.py` compares the state before and after each hypothesis of every test; here are the kinds of events that
may be supposed, on states in which much is connected: guests and their hosts, jobs that took room in vain, jobs that
others wait for.
"""

from collections.abc import Callable, Iterator
from unittest import mock

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.pod import RuntimeNeeds
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.what_if import hypothesis
from tests.busy_log import Busy
from tests.unit.test_taken_in_vain import beneficiary, refuse
from tests.unit.test_taken_in_vain import world as room_world
from tests.world import World, shape


def events(state: State) -> Iterator[tuple[k.Event, ...]]:
    """Each kind of event that a hypothesis may have, about each object of a state."""
    for job in [*state.jobs.values()]:
        if job.of_pods:
            continue
        yield hypothesis.job_gone(job, state)
        if job.spec is None:
            continue
        yield (hypothesis.job_seen(job, state, msgspec.structs.replace(job.valid_spec, suspend=True)),)
        yield (hypothesis.job_seen(job, state, msgspec.structs.replace(job.valid_spec, priority=1)),)
    for pod in [*state.pods.values()]:
        yield hypothesis.pods_gone(state, [pod])
        yield (hypothesis.retold(msgspec.structs.replace(pod, phase="Failed", ready=False), state),)
    for name, row in [*state.nodes.rows.items()]:
        if state.nodes.has(name):
            facts = state.nodes.facts[row]
            yield (hypothesis.node_seen(state, name, msgspec.structs.replace(facts, cordoned=not facts.cordoned)),)
            yield (k.ObjectGone(k.Watched.NODE, state.terms[k.Watched.NODE], "", name, state.nodes.uids[row]),)
    for name, queue in [*state.queues.items()]:
        if queue.spec is not None:
            yield (hypothesis.queue_seen(state, name, msgspec.structs.replace(queue.spec, max_running=1)),)
            yield (hypothesis.queue_gone(state, name),)


def suppose_each(state: State) -> int:
    """How many there are. Whether one changes the state is checked by `tests/conftest.py`."""
    return sum(1 for supposed in events(state) if hypothesis.supposed(state, supposed) is not state)


@pytest.mark.slow
def test_no_event_that_is_supposed_changes_a_busy_cluster() -> None:
    state, hosted = State(), 0
    for number, entry in enumerate(Busy().entries(150)):
        apply_entry(state, entry, Changes())
        guests = any(job.slots.hosts or job.slots.lent for job in state.jobs.values())
        if number % 60 == 0 or (guests and number % 12 == 0):
            hosted += guests
            suppose_each(state)
    assert hosted > 3


def said(of: World, act: Callable[[World], object]) -> tuple[k.Event, ...]:
    """The events of what would happen in a world."""
    told: list[k.Event] = []
    with mock.patch.object(of, "say", lambda *events: told.extend(events)):
        act(of)
    return tuple(told)


def test_none_changes_a_cluster_with_jobs_that_took_room_in_vain() -> None:
    of = room_world()
    of.quota("few", {"pods": 30})
    refuse(of, beneficiary(of))
    assert of.state.takers
    suppose_each(of.state)
    for act in (
        lambda of: of.quota("few", {"pods": 40}),
        lambda of: of.quota("other", {"pods": 40}),
        lambda of: of.quota_gone("few"),
    ):
        hypothesis.supposed(of.state, said(of, act))
    assert of.state.takers


def test_none_changes_a_cluster_whose_admission_adds_to_pods() -> None:
    of = World()
    of.node("n1", cpu=8)
    of.runtime_class("kata", RuntimeNeeds((("cpu", 100),)))
    of.priority_class("known", 3)
    of.limit_range("small", default={"memory": "1Gi"})
    of.namespace("default", team="a")
    of.queue("rl")
    boxed = msgspec.structs.replace(shape(cpu=1), runtime_class="kata")
    of.job("boxed", leader=boxed, workers=1, worker=shape(), min_workers=1)
    of.job("lost", leader=msgspec.structs.replace(shape(cpu=1), runtime_class="gvisor"))
    of.job("important", priority_class="unknown")
    of.settle()
    assert suppose_each(of.state) > 5
    for act in (
        lambda of: of.runtime_class("kata", RuntimeNeeds((("cpu", 300),))),
        lambda of: of.runtime_class("gvisor", RuntimeNeeds((("cpu", 300),))),
        lambda of: of.runtime_class_gone("kata"),
        lambda of: of.priority_class("unknown", 7),
        lambda of: of.priority_class_gone("known"),
        lambda of: of.limit_range("small", default={"memory": "3Gi"}),
        lambda of: of.limit_range_gone("small"),
        lambda of: of.namespace("default", queue="rl", team="b"),
        lambda of: of.namespace_gone("default"),
        lambda of: of.queue("rl", max_running=1),
    ):
        hypothesis.supposed(of.state, said(of, act))
