"""A snapshot forgets no field: equal digests don't show that, because they come from the same list as the snapshot."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from arranger.events.kinds import PodGroupSeen, PriorityClassSeen, Watched
from arranger.model.decayed_usage import DecayedUsage
from arranger.model.job import Dependency
from arranger.model.pod import GroupKind, PodTraits
from arranger.model.provisioning import HOLDS_FOR_LABEL
from arranger.model.queue import NonPreemptible
from arranger.projections import snapshot
from arranger.projections.cluster.device_table import DeviceTable
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.cluster.volume_table import VolumeTable
from arranger.projections.jobs.parts import BackOffs, JobTimes, LeaderRecord, SetRecord, SlotTable
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import QueueUse
from arranger.projections.state import State
from tests.projected import NODE_CACHES, NODE_PARTS, OF_PROCESS, differences, nodes_of
from tests.random_worlds import LONG, Step, live_through, steps
from tests.unit import test_devices as devices
from tests.unit import test_job_devices as job_devices
from tests.unit import test_preemption as room
from tests.values import fields, filled
from tests.world import World, shape

JOB, SET = "uid-ppo", "actor"


def some_state() -> State:
    """A node, and a job on it of a leader and a worker set."""
    world = World()
    world.node("n1", cpu=8)
    world.job("ppo", workers=[(SET, 2, shape(cpu=1))], min_workers=2)
    world.settle()
    assert world.state.jobs[JOB].slots.nodes
    world.state.jobs[JOB].sets[SET] = SetRecord(spent=1)
    return world.state


#: Each object of a state whose fields are known, and where it is.
PARTS: dict[type[Any], Callable[[State], Any]] = {
    State: lambda state: state,
    QueueUse: lambda state: state.queue_use,
    VolumeTable: lambda state: state.volumes,
    DeviceTable: lambda state: state.devices,
    JobRecord: lambda state: state.jobs[JOB],
    SlotTable: lambda state: state.jobs[JOB].slots,
    LeaderRecord: lambda state: state.jobs[JOB].leader,
    SetRecord: lambda state: state.jobs[JOB].sets[SET],
    JobTimes: lambda state: state.jobs[JOB].times,
    BackOffs: lambda state: state.jobs[JOB].back_offs,
}

#: Fields that hold other parts, which have their own rows.
HOLDERS = {
    State: {"nodes", "jobs", "queue_use", "volumes", "devices"},
    JobRecord: {"slots", "leader", "sets", "times", "back_offs"},
}

#: Fields that follow from the rest of the state: a snapshot doesn't have them, and whoever restores it makes them.
FOLLOWS = {
    State: {
        *("pods_of", "repelling", "deleting", "finished", "named", "dependents", "with_rules", "awaiting", "takers"),
        "placeholders",
    },
    QueueUse: {"own", "non_preemptible", "others", "others_total", "time_ms"},
    DeviceTable: {"holders", "reserved", "own", "of_slots"},
    SlotTable: {"ready", "ready_counts", "not_running", "names"},
}

EVERY = [
    (part, name)
    for part in PARTS
    for name in fields(part)
    if name not in HOLDERS.get(part, ()) and name not in OF_PROCESS.get(part, ())
]


def another(kind: type[Any], name: str, value: Any) -> Any:
    """Another value of a field."""
    if isinstance(value, bool):
        return not value
    if name == "pod_groups":
        return {"some-name": filled(PodGroupSeen, pick=[*GroupKind].index(GroupKind.COSCHEDULING))}
    if name == "plain":
        return {Watched.PRIORITY_CLASS: {"some-name": filled(PriorityClassSeen)}}
    if name == "decayed":
        return {"some-name": DecayedUsage(7, {"cpu": 7})}
    return filled(fields(kind)[name])


@pytest.mark.parametrize(("kind", "name"), EVERY, ids=lambda of: of if isinstance(of, str) else of.__name__)
def test_a_snapshot_has_each_field_or_it_follows_from_the_others(kind: type[Any], name: str) -> None:
    state = some_state()
    before, part = snapshot.encode(state), PARTS[kind](state)
    setattr(part, name, another(kind, name, getattr(part, name)))
    is_there = snapshot.encode(state) != before
    assert is_there == (name not in FOLLOWS.get(kind, ())), f"{kind.__name__}.{name}"


@pytest.mark.parametrize("name", ["facts", "uids", "versions", "down_ms", "holders", "used", "_elsewhere"])
def test_a_snapshot_has_all_of_each_node(name: str) -> None:
    state = some_state()
    before, row = snapshot.encode(state), state.nodes.rows["n1"]
    part = getattr(state.nodes, name)
    part[row] = {
        "facts": state.nodes.facts[row].__class__(allocatable=(), ready=False, cordoned=True),
        "uids": "another",
        "versions": "another",
        "_elsewhere": {"example.com/odd": 7},
    }.get(name, 7)
    assert snapshot.encode(state) != before


def test_the_comparison_knows_every_part_of_a_table_of_nodes() -> None:
    assert vars(NodeTable()).keys() == NODE_PARTS | NODE_CACHES
    assert not NODE_PARTS & NODE_CACHES


@settings(max_examples=80, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(history=steps())
@example(history=list(LONG))
def test_a_restored_state_is_the_same_field_by_field(history: list[Step]) -> None:
    state = live_through(history).state
    assert [*differences(state, snapshot.restore(snapshot.encode(state)))] == []


def held_back() -> World:
    """A job that waits for another, a pod that is being deleted, one of a group that has ended, and a placeholder."""
    world = World()
    world.node("n1", cpu=8)
    world.job("later", after=(Dependency("ppo"),))
    world.pod("leaves", "n1", deleting=True)
    world.pod_asking("ended", "n1", group="group", phase="Succeeded")
    world.pod("holds", "", traits=PodTraits(((HOLDS_FOR_LABEL, "uid-later"),)))
    return world


def awaiting_room() -> World:
    world = room.world()
    room.running(world, "low", 4, priority=1)
    room.waiting(world, "high", 4, priority=9)
    world.cycle()
    return world


def keeping_from_borrowing() -> World:
    """A queue that limits jobs which can't be preempted, with one of them."""
    there = World()
    there.node("n1")
    there.queue("rl", deserved=(("cpu", 9000),), non_preemptible=NonPreemptible.WITHIN_DESERVED)
    there.job("kept", of_queue="rl", preemptible=False)
    there.cycle()
    return there


WORLDS = (lambda: live_through(LONG), held_back, keeping_from_borrowing, awaiting_room, devices.busy, job_devices.busy)


def test_all_that_follows_is_made_again() -> None:
    states, made = [world().state for world in WORLDS], set()
    for state in states:
        assert [*differences(state, snapshot.restore(snapshot.encode(state)))] == []
        parts = [state, state.queue_use, state.devices, *(job.slots for job in state.jobs.values())]
        made |= {(type(part), name) for part in parts for name in FOLLOWS[type(part)] if getattr(part, name)}
    assert made == {(kind, name) for kind, names in FOLLOWS.items() for name in names}


def test_a_forgotten_field_is_noticed_though_the_digests_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    state = some_state()
    state.hear_all()
    monkeypatch.setattr(snapshot, "_SAME", tuple(name for name in snapshot._SAME if name != "heard"))
    monkeypatch.setattr(snapshot, "StateImage", partial(snapshot.StateImage, heard={}))
    restored = snapshot.restore(snapshot.encode(state))
    assert snapshot.digest(restored) == snapshot.digest(state)
    assert {found.partition("[")[0] for found in differences(state, restored)} == {"state.heard"}


def test_a_field_that_nobody_made_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    state = some_state()
    monkeypatch.setattr(SlotTable, "note", lambda *_: None)
    found = [*differences(state, snapshot.restore(snapshot.encode(state)))]
    paths = {each.partition("slots.")[2].partition("[")[0] for each in found}
    assert paths == {"ready", "ready_counts"}


def test_nodes_are_compared_whatever_rows_and_columns_they_have() -> None:
    tables = []
    for order in (("n1", "n2"), ("n2", "n1")):
        world = World()
        for name in order:
            world.node(name, cpu=4, **{f"example.com/{name}": 1})
        tables.append(world.state.nodes)
    one, other = ({name: of | {"version": ""} for name, of in nodes_of(table).items()} for table in tables)
    assert one == other and tables[0].rows != tables[1].rows
