"""Jobs that no node could ever hold are left out of cycles until something changes on which that depends. `test_kept`
compares the decisions with those of cycles that try each job."""

from collections.abc import Callable
from unittest import mock

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.search.placer import Placer
from tests.world import GIB, World, shape

_CONFIG = CycleConfig(versions=VERSIONS)
_JOBS = 12


def crowd() -> World:
    """Jobs of two kinds, which ask for more GPUs than any node has."""
    world = World(config=_CONFIG)
    world.watch_quotas()
    world.node("n0", cpu=8, gpus=2)
    for number in range(_JOBS):
        world.job(f"large-{number}", leader=shape(cpu=1, gpus=10 + number % 2))
    return world


def taken(world: World, cycles: Cycles, config: CycleConfig = _CONFIG) -> tuple[tuple[k.Event, ...], int]:
    """The decisions of a cycle, which are folded, and how many quorums it tried to place."""
    cycles.note(world.touched)
    world.touched.clear()
    expected = take_cycle(world.state, config, world.now_ms)
    with mock.patch.object(Placer, "quorum", autospec=True, side_effect=Placer.quorum) as tries:
        found = cycles.take(world.state, config, world.now_ms)
    assert found == expected
    if found:
        world.say(*found)
    return found, tries.call_count


def known(world: World) -> Cycles:
    """A process that knows from two cycles that nothing fits."""
    cycles = Cycles()
    assert taken(world, cycles)[1] == _JOBS
    assert taken(world, cycles)[1] == _JOBS
    return cycles


def placed(events: tuple[k.Event, ...]) -> list[str]:
    return [event.job_uid for event in events if isinstance(event, k.Placed)]


def test_only_a_new_job_and_one_of_each_kind_are_tried() -> None:
    world = crowd()
    cycles = known(world)
    new = world.job("new", leader=shape(cpu=1))
    found, tries = taken(world, cycles)
    assert placed(found) == [new.uid]
    assert tries == 1 + 2


_CHANGES: dict[str, tuple[Callable[[World], object], int]] = {
    "a node has enough": (lambda world: world.node("n1", cpu=8, gpus=10), 1),
    "a job asks for less": (lambda world: world.job("large-3", leader=shape(cpu=1, gpus=2)), 1),
    "a job is deleted": (lambda world: world.job_gone(world.state.find_job("default", "large-3")), 0),
    "a quota forbids it": (lambda world: world.quota("none", {"pods": 0}), 0),
}  # fmt: skip


@pytest.mark.parametrize("change", list(_CHANGES))
def test_something_changes_on_which_it_depends(change: str) -> None:
    world = crowd()
    cycles = known(world)
    act, jobs = _CHANGES[change]
    act(world)
    assert len(placed(taken(world, cycles)[0])) == jobs
    taken(world, cycles)


def test_it_is_given_up_in_time() -> None:
    world = crowd()
    cycles = known(world)
    world.pass_time(_CONFIG.infeasible_grace_ms / 1000 + 1)
    found, _ = taken(world, cycles)
    assert not any(isinstance(event, k.Waits) for event in found), "a node may have come that nobody has seen yet"
    world.hear()
    found, tries = taken(world, cycles)
    assert tries == _JOBS
    assert sum(isinstance(event, k.Waits) for event in found) == _JOBS


def test_where_some_pods_fit_the_reason_is_that_of_nodes_without_pods_whoever_comes() -> None:
    """Its leader would go to another node once x is placed, and back once y is."""
    world, cycles = World(config=_CONFIG), Cycles()
    world.node("a", cpu=8, memory=100 * GIB, labels={"n": "a"})
    world.node("b", cpu=10, memory=100 * GIB, labels={"n": "b"})
    world.pod("foreign", "a", memory=10 * GIB)
    job = world.job("h", leader=shape(cpu=1, memory=GIB), workers=5, worker=shape(cpu=4, memory=GIB), min_workers=5)
    [waits] = [event for event in taken(world, cycles)[0] if isinstance(event, k.Waits)]
    assert (waits.shortage.infeasible, waits.shortage.found, waits.shortage.asked) == (True, 4, 6)
    assert taken(world, cycles)[0] == ()
    world.pass_time(20)
    x = world.job("x", leader=shape(memory=40 * GIB, selector={"n": "b"}), priority=9)
    y = world.job("y", leader=shape(memory=60 * GIB, selector={"n": "a"}), priority=1)
    found, tries = taken(world, cycles)
    assert placed(found) == [x.uid, y.uid]
    assert not any(isinstance(event, k.Waits) for event in found) and tries == 3, job


_SEARCHING = msgspec.structs.replace(_CONFIG, search_steps=2_000)


def searched() -> World:
    """A gang of two worker sets that ten nodes can't hold, for which a cycle would search."""
    world = World(config=_SEARCHING)
    for number in range(10):
        world.node(f"n{number}", cpu=8)
    workers = [("a", 10, shape(cpu=6)), ("b", 10, shape(cpu=6))]
    world.job("h", leader=shape(cpu=1), workers=workers, min_workers=20, priority=1)
    return world


def test_nothing_is_searched_for_a_job_that_is_infeasible_as_recorded() -> None:
    world, cycles, config = searched(), Cycles(), _SEARCHING
    steps = []
    for _ in range(2):
        begun = taken(world, cycles, config)[0][0]
        assert isinstance(begun, k.CycleTaken)
        steps.append(begun.search_steps)
        assert taken(world, cycles, config)[0] == ()
        world.job("x", leader=shape(cpu=1), priority=9)
    assert steps[0] > 0 == steps[1]


def test_one_that_is_searched_for_again_lets_the_cycle_begin_anew() -> None:
    world, cycles, config = searched(), Cycles(), _SEARCHING
    taken(world, cycles, config)
    assert taken(world, cycles, config)[0] == ()
    for number in range(10, 20):
        world.node(f"n{number}", cpu=8)
        world.pod(f"p{number}", f"n{number}", cpu=4)
    found = taken(world, cycles, config)[0]
    [waits] = [event for event in found if isinstance(event, k.Waits)]
    assert waits.job_uid == "uid-h" and not waits.shortage.infeasible


def test_jobs_that_a_namespace_shuts_out_do_not_count_as_waiting_while_namespaces_are_listed_again() -> None:
    config = msgspec.structs.replace(_CONFIG, reasons_a_second=1)
    world, cycles = World(config=config), Cycles()
    world.node("n0", cpu=8, gpus=2)
    world.namespace("other")
    world.say(k.WatchRefused(k.Watched.NAMESPACE, world.terms[k.Watched.NAMESPACE], 403))
    foreign = world.pod("gpus", "n0", gpus=2)
    world.job("h", leader=shape(cpu=1, selector={"no": "no"}), namespace="other")
    waiting = world.job("w", leader=shape(cpu=4, gpus=2))
    for _ in range(3):
        taken(world, cycles, config)
        world.pass_time(0.01)
    world.terms[k.Watched.NAMESPACE] = world.say(k.WatchClaimed(k.Watched.NAMESPACE, "test"))
    world.namespace("other", queue="nowhere")
    world.pod_gone(foreign)
    world.pod("cpu", "n0", cpu=8)
    world.pass_time(1.5)
    found = taken(world, cycles, config)[0]
    assert [event.job_uid for event in found if isinstance(event, k.Waits)] == [waiting.uid]


def test_what_is_noted_of_a_job_does_not_grow() -> None:
    world = crowd()
    cycles = known(world)
    for number in range(30):
        world.pod("load", "n0", cpu=0.1 * number)
        world.pass_time(20)
        taken(world, cycles)
        taken(world, cycles)
    assert len(cycles._infeasible._given_up) <= _JOBS


def test_nothing_is_decided_while_a_listing_is_under_way() -> None:
    world = crowd()
    cycles = known(world)
    world.state.listed[k.Watched.NODE] = False
    world.job("new", leader=shape(cpu=1))
    assert taken(world, cycles) == ((), 0)
