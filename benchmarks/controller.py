"""One controller process: how many stages of jobs it decides in a second, from the events that it reads itself.

The product's own controller, follower and writer in one event loop, with the log in memory and in a real Redis. What a
watcher and a scheduler would have said stands in the log before the clock starts; the controller folds it, decides,
appends, and folds its own decisions: Running and Succeeded. Only accepted decisions count; the time is all that the
thread takes meanwhile, so a busy machine changes little.
"""

import asyncio
import gc
import time
from collections.abc import Iterator

import msgspec
import redis.asyncio

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.log import Log
from arranger.events.redis_log import RedisLog
from arranger.metrics import Metrics
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState
from arranger.model.pod import PodOwner, PodShape
from arranger.projections.state import Changes
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.workers.deciding.controller import Controller
from arranger.workers.flow.cancelling import end
from arranger.workers.log.follower import Follower
from arranger.workers.log.writer import Writer
from arranger.workers.members.membership import Membership
from benchmarks.report import Figure
from benchmarks.workload import TOLD_MS, History, uid
from tests.memory_log import MemoryLog
from tests.parts import parts
from tests.servers import real_redis

_TARGET = 5_000
_WORKERS = 2
_BATCH = 100
_CPU = (("cpu", 100),)


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    jobs = 200 if quick else 10_000
    memory = asyncio.run(_decide(MemoryLog(), jobs))
    what = f"{jobs:,} jobs of 1+{_WORKERS}, {memory.decisions:,} decisions"
    figures = [_figure("log in memory", memory.thread_s, memory, note=what)]
    with real_redis() as server:
        in_redis = asyncio.run(_decide(RedisLog(server.url, "default"), jobs))
    note = "real Redis; the process's own time"
    figures.append(_figure("log in Redis", in_redis.thread_s, in_redis, note=note))
    rate = in_redis.decisions / in_redis.wall_s
    return [*figures, Figure(name="  by the clock", value=rate, unit="decisions/s", note="Redis on the same machine")]


def _figure(name: str, taken_s: float, found: "_Decided", *, note: str) -> Figure:
    return Figure(name=name, value=found.decisions / taken_s, unit="decisions/s", at_least=_TARGET, note=note)


class _Decided(msgspec.Struct):
    """How many decisions were accepted, and what they took of the thread and by the clock."""

    decisions: int = 0
    thread_s: float = 0.0
    wall_s: float = 0.0


#: How many decisions each job has had after each phase.
_DECIDED = (0, 0, 1, 2)


class _Done:
    """Listens to the fold until so many decisions on stages were accepted."""

    def __init__(self) -> None:
        self.accepted = 0
        self._desired = 0
        self._reached = asyncio.Event()

    def changed(self, changes: Changes) -> None:
        """Count them."""
        self.accepted += sum(v.accepted and v.kind == "StageDecided" for v in changes.verdicts)
        if self.accepted >= self._desired:
            self._reached.set()

    def epoch_began(self) -> None:
        """Nothing was counted before."""

    async def reach(self, count: int) -> None:
        """Wait until so many were accepted in all."""
        self._desired = count
        self._reached.clear()
        if self.accepted < count:
            await self._reached.wait()


async def _decide(log: Log, jobs: int) -> _Decided:
    """Let a controller decide in phases; what lies between them isn't counted."""
    system = SystemClock()
    metrics = Metrics(system)
    follower = Follower(log, clock=system, metrics=metrics, reader="controller")
    await follower.start()
    unused = redis.asyncio.Redis()  # a membership of one, which never asks
    membership = Membership(unused, cluster="default", member_id="one", roles=("controller",), clock=system)
    controller = Controller(parts(follower=follower, membership=membership, clock=system, metrics=metrics))
    done = _Done()
    follower.listen(controller)
    follower.listen(done)
    outside = Writer(follower, name="outside", clock=system, metrics=metrics)
    found = _Decided()
    for decided, phase in zip(_DECIDED, _phases(follower, jobs), strict=True):
        for events in phase:
            await outside.append(events)
        gc.collect()
        tasks = [asyncio.create_task(follower.run()), asyncio.create_task(controller.run())]
        began_s, thread_s = time.perf_counter(), time.thread_time()
        await done.reach(decided * jobs)
        found.wall_s += time.perf_counter() - began_s
        found.thread_s += time.thread_time() - thread_s
        await end(tasks)
        while await follower._step(wait_s=0.0):
            pass
    await log.close()
    found.decisions = done.accepted
    return found


def _phases(follower: Follower, jobs: int) -> Iterator[list[list[k.Event]]]:
    """What the outside says before each decision, in batches as a watcher would append them."""
    history = History()
    nodes = history.nodes(max(1, jobs * (1 + _WORKERS) // 100))
    shape = PodShape(_CPU)
    history.jobs(jobs, _WORKERS, leader=shape, worker=shape)
    history.listed()
    said = [list(batch.events) for batch in history.batches[1:]]
    state = history.state()
    config = CycleConfig(versions=VERSIONS)
    yield [*said, list(take_cycle(state, config, TOLD_MS))]
    del state, nodes
    for seen in (_leaders_run, _workers_are_ready, _leaders_succeed):
        events = list(seen(follower, history.terms[k.Watched.POD], jobs))
        yield [events[begin : begin + _BATCH] for begin in range(0, len(events), _BATCH)]


def _leaders_run(follower: Follower, term: int, jobs: int) -> Iterator[k.Event]:
    for number in range(jobs):
        yield _pod(follower, term, number, 0, phase="Pending")
        yield _pod(follower, term, number, 0, phase="Running")


def _workers_are_ready(follower: Follower, term: int, jobs: int) -> Iterator[k.Event]:
    for number in range(jobs):
        for index in range(_WORKERS):
            yield _pod(follower, term, number, 1 + index, phase="Pending")
            yield _pod(follower, term, number, 1 + index, phase="Running")


def _leaders_succeed(follower: Follower, term: int, jobs: int) -> Iterator[k.Event]:
    for number in range(jobs):
        yield _pod(follower, term, number, 0, phase="Succeeded")


def _pod(follower: Follower, term: int, number: int, slot: int, *, phase: str) -> k.PodSeen:
    """A pod of job `number`; place 0 is the leader's, the others the workers'."""
    job = follower.state.jobs[uid("job", number)]
    assert job.schedule_state == ScheduleState.SUCCEED
    leader = slot == 0
    key = (0, 0) if leader else (1, slot - 1)
    owner = PodOwner(job.uid, 0, "learner" if leader else "actors", leader, key[1])
    pod_number = number * (1 + _WORKERS) + slot
    running = phase == "Running"
    return k.PodSeen(
        term, "default", f"{job.seen.name}-{owner.group_name}-{key[1]}", uid("pod", pod_number), phase,
        job.placements[key], phase, _CPU, owner, running, False, ip="10.0.0.1" if phase != "Pending" else "",
    )  # fmt: skip
