"""Jobs that no node could ever hold are left out of cycles until something changes on which that depends. `test_kept`
compares the decisions with those of cycles that try each job."""

from collections.abc import Callable
from unittest import mock

import pytest

from arranger.events import kinds as k
from arranger.model.config import VERDICTS, CycleConfig
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.placer import Placer
from tests.world import World, shape

_CONFIG = CycleConfig(versions=VERSIONS, verdicts=VERDICTS)
_JOBS = 12


def crowd() -> World:
    """Jobs of two kinds, which ask for more GPUs than any node has."""
    world = World(config=_CONFIG)
    world.watch_quotas()
    world.node("n0", cpu=8, gpus=2)
    for number in range(_JOBS):
        world.job(f"large-{number}", leader=shape(cpu=1, gpus=10 + number % 2))
    return world


def taken(world: World, cycles: Cycles) -> tuple[tuple[k.Event, ...], int]:
    """The decisions of a cycle, which are folded, and how many quorums it tried to place."""
    cycles.note(world.touched)
    world.touched.clear()
    expected = take_cycle(world.state, _CONFIG, world.now_ms)
    with mock.patch.object(Placer, "quorum", autospec=True, side_effect=Placer.quorum) as tries:
        found = cycles.take(world.state, _CONFIG, world.now_ms)
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
    assert tries == 1 + 2 + 2, "before it, and after it has got its node"


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
    found, tries = taken(world, cycles)
    assert tries == _JOBS
    assert sum(isinstance(event, k.Waits) for event in found) == _JOBS


def test_nothing_is_decided_while_a_listing_is_under_way() -> None:
    world = crowd()
    cycles = known(world)
    world.state.listed[k.Watched.NODE] = False
    world.job("new", leader=shape(cpu=1))
    assert taken(world, cycles) == ((), 0)
