"""Explaining a job of a long queue in a small, full cluster: a cycle, and the many cycles of `explain`.

Six nodes of 8 GPUs and three queues with shares. Twelve jobs run, some of them as guests in the room that is reserved
for the first job, and 140 more of several sizes and priorities wait. Whether a change would give one of them nodes is
tried in a cycle of its own, with the jobs before it. All times are the thread's own, the least of several.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from arranger.model.config import CycleConfig
from arranger.projections.state import State
from arranger.replay.explain.answer import explanation
from arranger.replay.explain.job_history import AskedJob, JobHistories
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.settings import Settings
from benchmarks.report import Figure
from tests.world import GIB, World, shape

_Answer = TypeVar("_Answer")
_NODES, _WAITING, _QUICK = 6, 140, 12
_TIMES = 3
_QUEUES = (("research", 3), ("serving", 2), ("batch", 1))
#: GPUs of a worker, workers, and how many of these are enough.
_SIZES = ((1, 1, 1), (2, 1, 1), (4, 2, 1), (8, 1, 1), (4, 3, 2), (2, 4, 4), (8, 4, 4), (1, 6, 2))
_PRIORITIES = (5, 5, 2, 7, 5, 8)


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    world = crowded(_QUICK if quick else _WAITING)
    waits = [job for job in world.state.jobs.values() if not job.placements]
    note = f"{_NODES} nodes, {len(waits)} waiting jobs"
    cycle_ms, _, _ = _least(lambda: take_cycle(world.state, world.config, world.now_ms))
    figures, equal = [Figure(name="a cycle", value=cycle_ms, unit="ms", at_most=100, note=note)], True
    for where, job in (("a third", waits[len(waits) // 3]), ("the end", waits[-1])):
        histories = JobHistories(State(), AskedJob(job.seen.name), world.config)
        for entry in world.entries:
            histories.feed(entry)
        histories.finish()
        story = histories.stories[job.uid]
        retaken = histories.retaken(job.uid, None)
        spent_ms, found, same = _least(partial(explanation, story, story.state.jobs[job.uid], retaken))
        tried = found.waiting.tried if found.waiting is not None else 0
        name, note = f"explain a job at {where} of the queue", f"{tried} changes tried"
        figures.append(Figure(name=name, value=spent_ms, unit="ms", note=note))
        equal = equal and same
    return [*figures, Figure(name="  equal answers each time", value=float(equal), at_least=1.0)]


def crowded(waiting: int) -> World:
    """The cluster, with so many waiting jobs."""
    config: CycleConfig = msgspec.structs.replace(Settings().cycle_config(VERSIONS), dry_run=False)
    world = World(config=config)
    for number in range(_NODES):
        world.node(f"gpu-{number}", cpu=96, memory=768 * GIB, gpus=8)
    for name, weight in _QUEUES:
        world.queue(name, weight=weight)
    for number in range(2 * _NODES):
        _submit(world, f"runs-{number}", number, (4, 1, 1), 5)
    world.settle()
    _submit(world, "first", 0, (8, 4, 4), 9)
    world.settle()
    reserved = {of.node for one in world.state.reservations.values() for of in one.decided.pods}
    there = [job for job in world.state.jobs.values() if not reserved.isdisjoint(job.placements.values())]
    for job in there[:3]:
        world.job_gone(job)
        for pod in world.pods_of(job).values():
            world.pod_gone(pod.uid)
    for number in range(3):
        _submit(world, f"guest-{number}", number, (4, 1, 1), 5)
    world.settle()
    for number in range(waiting):
        _submit(world, f"waits-{number}", number, _SIZES[number % len(_SIZES)], _PRIORITIES[number % len(_PRIORITIES)])
    world.settle()
    return world


def _submit(world: World, name: str, number: int, size: tuple[int, int, int], priority: int) -> None:
    gpus, workers, least = size
    world.pass_time(1)
    world.job(
        name, workers=workers, worker=shape(cpu=4, memory=16 * GIB, gpus=gpus), min_workers=least, equals=True,
        priority=priority, created=world.now_ms, of_queue=_QUEUES[number % len(_QUEUES)][0],
        expected_s=(None, 1_200, 3_600)[number % 3], user=f"user-{number % 5}",
    )  # fmt: skip


def _least(work: Callable[[], _Answer]) -> tuple[float, _Answer, bool]:
    """The least time of several, what was found, and whether that was the same each time."""
    least_ms, found = float("inf"), list[_Answer]()
    for _ in range(_TIMES):
        began_s = time.thread_time()
        found.append(work())
        least_ms = min(least_ms, 1000 * (time.thread_time() - began_s))
    return least_ms, found[0], all(of == found[0] for of in found)
