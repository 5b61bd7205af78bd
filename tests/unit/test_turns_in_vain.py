"""Turns of jobs that surely get nothing, and searches for room that surely find none: cycles leave them out, and decide
the same as with them."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS, reserves_for, take_cycle, turns_to
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.queues.waiting import waiting_jobs
from arranger.scheduling.room.cycle_room import Room
from arranger.scheduling.room.preemption import PreemptionSearch
from arranger.settings import Settings
from tests.world import World, shape

GPU = "nvidia.com/gpu"
SHIPPED = msgspec.structs.replace(Settings(min_runtime_s=60).cycle_config(VERSIONS), dry_run=False)
#: Seeds of worlds, how many jobs may have reservations, and whether queues and namespaces have limits.
WORLDS = [(1, 1, False), (2, 2, False), (3, 1, True), (4, 3, True)]


def busy(seed: int, reservations: int, *, limited: bool) -> Iterator[World]:
    """A full cluster with a long queue, again and again as some jobs end and others come."""
    chance = random.Random(seed)
    world = World(config=msgspec.structs.replace(SHIPPED, reservations=reservations))
    for number in range(4):
        world.node(f"n{number}", cpu=32, gpus=8)
    world.queue("a", weight=3, deserved=((GPU, 12),))
    world.queue("b", weight=2, guarantee=((GPU, 4),) if limited else ())
    world.queue("c", capability=((GPU, 10),) if limited else ())
    world.queue("d", parent="a", max_running=2 if limited else None)
    if limited:
        world.quota("some", {"pods": 40})
    for number in range(1, 41):
        world.pass_time(15)
        workers = 4 if number % 11 == 0 else chance.choice((0, 1, 1, 2, 3))
        gpus = 8 if number % 11 == 0 else chance.choice((1, 2, 2, 4, 8))
        sets = [("eval", 1, shape(cpu=2, gpus=1)), ("actors", workers, shape(cpu=2, gpus=gpus))]
        world.job(
            f"job-{number}", leader=shape(cpu=1, gpus=number % 3 == 0), min_workers=max(workers - number % 2, 0),
            workers=sets if number % 7 == 0 and workers else workers, worker=shape(cpu=2, gpus=gpus),
            priority=9 if number % 11 == 0 else chance.choice((2, 5, 5, 7)), created=world.now_ms,
            of_queue=chance.choice("abcd"), preemptible=number % 6 != 0, expected_s=chance.choice((None, 300, 900)),
            deadline_s=60 if number % 10 == 0 else None, grace_s=900 if number % 13 == 0 else 30,
        )  # fmt: skip
        running = [job for job in world.state.jobs.values() if len(world.pods_of(job)) > 0]
        if number % 4 == 0 and running:
            ends = chance.choice(running)
            world.change_pod(next(iter(world.pods_of(ends).values())).uid, phase="Succeeded")
        yield world
        for _ in range(chance.choice((0, 1, 3))):
            world.cycle()
            world.control()
            world.apply()


def shown(tries: list[PlacementTry], uid: str) -> object:
    """What is told of a job's turn, and what the jobs before it got."""
    own = next((one for one in tries if one.job.uid == uid), None)
    placed = {one.job.uid: one.pieces for one in tries if one.pieces}
    return placed, own and (own.preempted, own.hosts, own.shortage, own.pieces)


def without_bounds(patch: pytest.MonkeyPatch) -> None:
    """All turns are taken, and all searches made."""
    patch.setattr(Room, "in_vain", lambda *_: False)
    patch.setattr(PreemptionSearch, "surely_lacks", lambda *_: False)
    patch.setattr(PreemptionSearch, "_lacks_without", lambda *_: False)


@pytest.mark.parametrize(("seed", "reservations", "limited"), WORLDS)
def test_a_cycle_decides_the_same_without_searches_that_surely_find_no_room(
    seed: int, reservations: int, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded steps of its searches are the same, too."""
    decided = 0
    for world in busy(seed, reservations, limited=limited):
        events = take_cycle(world.state, world.config, world.now_ms)
        with monkeypatch.context() as patch:
            without_bounds(patch)
            assert take_cycle(world.state, world.config, world.now_ms) == events
        decided += len(events)
    assert decided


@pytest.mark.parametrize(("seed", "reservations", "limited"), WORLDS)
def test_a_turn_is_the_same_without_the_turns_of_those_that_surely_get_nothing(
    seed: int, reservations: int, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = 0
    for number, world in enumerate(busy(seed, reservations, limited=limited)):
        if number % 10 != 9:
            continue
        state, config, now_ms = world.state, world.config, world.now_ms
        for at, job in enumerate(waiting_jobs(state, now_ms)):
            tries = turns_to(state, job.uid, config, now_ms, whole_job=at % 2 == 0)
            with monkeypatch.context() as patch:
                without_bounds(patch)
                every = turns_to(state, job.uid, config, now_ms, whole_job=at % 2 == 0)
            assert shown(tries, job.uid) == shown(every, job.uid)
            left_out += len(every) - len(tries)
    assert left_out or seed != 1


@pytest.mark.parametrize(("seed", "reservations", "limited"), WORLDS)
def test_a_job_gets_a_reservation_as_in_the_whole_cycle(seed: int, reservations: int, limited: bool) -> None:
    for number, world in enumerate(busy(seed, reservations, limited=limited)):
        if number % 8 != 7:
            continue
        events = take_cycle(world.state, world.config, world.now_ms)
        reserved = {of.job_uid for of in events if type(of).__name__ == "Reserved" and of.pods}
        for job in waiting_jobs(world.state, world.now_ms):
            assert reserves_for(world.state, job.uid, world.config, world.now_ms) == (job.uid in reserved)


def test_no_search_is_made_for_a_quorum_that_lacks_room_without_all_who_may_give_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None for the quorum once those have left who leave anyway, either: it costs as much as placing it."""
    world = World(config=msgspec.structs.replace(SHIPPED, reservations=0))
    world.node("n1", gpus=8)
    low = world.job("low", leader=shape(cpu=1, gpus=2), priority=1)
    high = world.job("high", leader=shape(cpu=1, gpus=6), priority=9)
    world.settle()
    assert low.placements and high.placements
    world.pass_time(600)
    searched = list[JobRecord]()
    search = PreemptionSearch._search
    monkeypatch.setattr(
        PreemptionSearch, "_search", lambda self, tried, find: searched.append(tried.job) or search(self, tried, find)
    )
    world.job("large", leader=shape(cpu=1, gpus=4), priority=5)
    world.cycle()
    assert not searched
    small = world.job("small", leader=shape(cpu=1, gpus=2), priority=5)
    world.cycle()
    assert searched == [small] and small.slots.room is not None
