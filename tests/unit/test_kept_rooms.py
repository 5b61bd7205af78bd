"""A process that keeps what it found in earlier cycles decides on room as one that begins anew, in random clusters.
What it knows of a job is always what the job is now."""

import random
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.model.pod import PodTimes
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.placing.kept import KeptRankings
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.room.vacating import Vacating
from arranger.scheduling.search.placer import Placer
from arranger.settings import Settings
from tests.world import World, shape

CONFIG = msgspec.structs.replace(Settings(min_runtime_s=0).cycle_config(VERSIONS), dry_run=False)
GPU = "nvidia.com/gpu"


def submit(world: World, rng: random.Random, number: int) -> None:
    pods = rng.randint(1, rng.choice([3, 6, 12]))
    world.job(
        f"job-{number}", workers=pods, worker=shape(cpu=1, gpus=rng.randint(0, 3)), min_workers=rng.randint(1, pods),
        leader=shape(cpu=2, gpus=rng.randint(0, 4)), priority=rng.randint(1, 6), of_queue=rng.choice("ab"),
        expected_s=rng.choice([None, rng.randint(5, 300)]), created=number,
    )  # fmt: skip


def decisions(events: tuple[k.Event, ...]) -> list[k.Event]:
    return [event for event in events if not isinstance(event, k.CycleTaken)]


def live_on(world: World, rng: random.Random) -> None:
    """Pods start, end and disappear, and time passes."""
    for uid, pod in sorted(world.state.pods.items()):
        if pod.phase == "Pending" and rng.random() < 0.8:
            world.change_pod(uid, phase="Running", ready=True, ip="10.0.0.1")
        elif pod.deleting:
            if rng.random() < 0.4:  # others hang
                world.pod_gone(uid)
        elif rng.random() < 0.03:
            world.pod_gone(uid)
        elif rng.random() < 0.1:
            world.change_pod(uid, deleting=True, times=PodTimes(leave_by_ms=world.now_ms + 1_000))
        elif rng.random() < 0.02:
            world.change_pod(uid, phase=rng.choice(["Succeeded", "Failed"]))
        elif rng.random() < 0.05:
            world.change_pod(uid, checkpoint_ms=world.now_ms)
    world.now_ms += rng.choice([500, 2_000, 11_000, 30_000])


@pytest.mark.parametrize("seed", range(4))
def test_kept_rooms_change_no_decision(seed: int) -> None:
    rng, world, cycles, taken = random.Random(seed), World(config=CONFIG), Cycles(), 0
    for number in range(rng.randint(3, 9)):
        world.node(f"n{number}", cpu=32, gpus=rng.choice([2, 4, 8]))
    for name in "ab":
        world.queue(name, deserved=((GPU, rng.randint(0, 10)),))
    for step in range(16):
        submit(world, rng, step)
        for _ in range(3):
            events = cycles.take(world.state, world.config, world.now_ms)
            if events:
                assert decisions(events) == decisions(take_cycle(world.state, world.config, world.now_ms))
                taken += sum(isinstance(event, k.Preempted | k.Reserved) for event in events)
                world.say(*events)
            if not (world.control() or world.apply() or events):
                break
        live_on(world, rng)
    assert taken


def helpful(state: State, now_ms: int) -> list[list[str]]:
    """For each job that waits, the nodes on which each single job could give it room, in order."""
    placer = Placer(state, CONFIG, BUILT_IN, time_ms=now_ms)
    vacating, jobs = Vacating(state, placer.placing), sorted(state.jobs.values(), key=lambda job: job.uid)
    holders = [job for job in jobs if job.placements]
    return [vacating.helpful_nodes(job, [(of, of.placements)]) for job in jobs if not job.placements for of in holders]


@pytest.mark.parametrize("seed", range(6))
def test_a_state_that_was_restored_leads_to_the_same_cycle(seed: int) -> None:
    """Its jobs, slots and nodes are in another order, and its rows and columns are others. So two schedulers agree,
    whichever snapshot each began with, and a cycle can be verified from any of them."""
    rng, world, taken = random.Random(seed), World(config=CONFIG), 0
    names = [f"n{number}" for number in range(rng.randint(3, 9))]
    for name in rng.sample(names, len(names)):
        world.node(name, cpu=32, gpus=rng.choice([2, 4, 8]))
    for name in "ab":
        world.queue(name, deserved=((GPU, rng.randint(0, 10)),))
    for step in range(16):
        submit(world, rng, step)
        for _ in range(3):
            events = take_cycle(world.state, world.config, world.now_ms)
            restored = snapshot.restore(snapshot.encode(world.state))
            assert events == take_cycle(restored, world.config, world.now_ms)
            assert helpful(world.state, world.now_ms) == helpful(restored, world.now_ms)
            taken += sum(isinstance(event, k.Preempted | k.Reserved) for event in events)
            if events:
                world.say(*events)
            if not (world.control() or world.apply() or events):
                break
        live_on(world, rng)
    assert taken


def facts(state: State, placer: Placer) -> dict[str, Any]:
    """All that a search asks of the jobs that have nodes."""
    found: dict[str, Any] = {}
    vacating, known = Vacating(state, placer.placing), placer.placing.jobs
    for job in state.jobs.values():
        if job.placements:
            of = known.of(job)
            parts = [of.part(of.slots), *(of.part((slot,)) for slot in of.slots)]
            rooms = [vacating.of_whole(job), *(vacating.of_job(job, (slot,), whole=False) for slot in of.slots)]
            losses = [(part.amounts, part.working, of.lost_ms(part, state.time_ms + 7)) for part in parts]
            levels = [(one.rooms.rows.tolist(), one.rooms.amounts.tolist(), one.queue, one.use) for one in rooms]
            found[job.uid] = (of.queue, of.began_ms, of.may_give, of.slots, losses, levels)
    found["sum"] = vacating.sum_of([job for job in state.jobs.values() if job.uid in found]).tolist()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_what_is_known_of_a_job_is_what_it_is_now(seed: int) -> None:
    rng, world, kept, jobs = random.Random(seed), World(config=CONFIG), KeptRankings(), dict[str, None]()
    for number in range(rng.randint(3, 9)):
        world.node(f"n{number}", cpu=32, gpus=rng.choice([2, 4, 8]))
    for name in "ab":
        world.queue(name, deserved=((GPU, rng.randint(0, 10)),))

    def compare() -> None:
        found = facts(world.state, Placer(world.state, CONFIG, BUILT_IN, time_ms=world.now_ms, kept=kept))
        assert found == facts(world.state, Placer(world.state, CONFIG, BUILT_IN, time_ms=world.now_ms))
        jobs.update(dict.fromkeys(found))

    for step in range(12):
        submit(world, rng, step)
        for _ in range(3):
            events = take_cycle(world.state, world.config, world.now_ms)
            if events:
                world.say(*events)
            compare()
            changed = world.control() or world.apply() or events
            compare()
            if not changed:
                break
        live_on(world, rng)
        compare()
    assert len(jobs) > 3
