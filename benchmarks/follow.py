"""Observations taken in by a worker whose roles are on: from the log's bytes to the fold, with those who look at it.

The product's own follower, controller and applier in one event loop, with the log in memory: decoding, checking the
chain, folding, and the looks of controller and applier at every job that an observation touches. The observations are
further sightings of the pods of running jobs in mixed order, each of another readiness than the one before. The cluster
takes the statuses that follow, and keeps nothing. The time is that of the thread, from the first entry to the last.
"""

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import redis.asyncio

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.kube.cluster import Object, Resource
from arranger.metrics import Metrics
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.pod import PodOwner, PodShape
from arranger.model.stages import StageReason
from arranger.projections.state import Changes
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.workers.applying.applier import Applier
from arranger.workers.deciding.controller import Controller
from arranger.workers.flow.cancelling import end
from arranger.workers.log.follower import Follower
from arranger.workers.members.membership import Membership
from benchmarks.report import Figure
from benchmarks.workload import TOLD_MS, History
from tests.memory_log import MemoryLog
from tests.parts import parts

_TARGET = 100_000
_WORKERS = 99
_BATCH = 500
_CPU = (("cpu", 100),)
#: A prime, so that pods of all jobs are mixed.
_STRIDE = 7_919
_SETTLE_S = 2.0


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    jobs, sightings = (5, 1_000) if quick else (500, 200_000)
    history, pods = _running(jobs)
    note = f"{sightings:,} sightings of {len(pods):,} pods of {jobs} jobs"
    found = []
    for roles in (("controller",), ("applier",), ("controller", "applier")):
        rate = asyncio.run(_take_in(history, pods, sightings, roles))
        found.append(Figure(name="+".join(roles), value=rate, unit="events/s", at_least=_TARGET, note=note))
        note = ""
    return found


def _running(jobs: int) -> tuple[History, list[k.PodSeen]]:
    """The history of jobs that run with all their pods, and these."""
    history = History()
    history.nodes(max(1, jobs * (1 + _WORKERS) // 100 + 1))
    shape = PodShape(_CPU)
    history.jobs(jobs, _WORKERS, leader=shape, worker=shape)
    history.listed()
    history.say(*take_cycle(history.state(), CycleConfig(versions=VERSIONS), TOLD_MS))
    term, pods = history.terms[k.Watched.POD], []
    for job in history.state().jobs.values():
        for (group, index), node in job.placements.items():
            owner = PodOwner(job.uid, 0, "actors" if group else "learner", not group, index)
            name = f"{job.seen.name}-{owner.group_name}-{index}"
            pods.append(
                k.PodSeen(term, "default", name, name, "1", node, "Running", _CPU, owner, True, False, ip="10.0.0.1")
            )
    for batch in _batches(pods):
        history.say(*batch)
    jobs_there, ready = history.state().jobs.values(), StageReason.WORKERS_READY
    history.say(*(k.StageDecided(job.uid, job.version, 0, Stage.RUNNING, ready) for job in jobs_there))
    return history, pods


def _batches(events: Sequence[k.PodSeen]) -> Iterator[Sequence[k.PodSeen]]:
    for begin in range(0, len(events), _BATCH):
        yield events[begin : begin + _BATCH]


async def _take_in(history: History, pods: Sequence[k.PodSeen], sightings: int, roles: tuple[str, ...]) -> float:
    """Observations a second."""
    log, clock = MemoryLog(), SystemClock()
    metrics = Metrics(clock)
    epoch = (await log.open()).epoch
    for batch in history.batches[1:]:  # the log has begun its epoch itself
        await log.append(batch, epoch=epoch)
    follower = Follower(log, clock=clock, metrics=metrics, reader="+".join(roles))
    await follower.start()
    working = [role.run() for role in _roles(follower, roles, clock, metrics)]
    tasks = [asyncio.create_task(work) for work in working]
    await clock.sleep(_SETTLE_S)  # the first statuses of all jobs
    for seq, batch in enumerate(_batches([_again(pods, number) for number in range(sightings)]), start=1):
        await log.append(k.Batch("watcher", seq, TOLD_MS, tuple(batch)), epoch=epoch)
    gc.collect()
    until = (await log.end()).offset
    first = follower.state.offset
    began_s = time.thread_time()
    tasks.append(asyncio.create_task(follower.run()))
    await follower.folded(epoch, until)
    taken_s = time.thread_time() - began_s
    await end(tasks)
    return (until - first) / taken_s


def _again(pods: Sequence[k.PodSeen], number: int) -> k.PodSeen:
    pod = pods[number * _STRIDE % len(pods)]
    ready = number // len(pods) % 2 == 1
    return msgspec.structs.replace(pod, ready=ready, resource_version=str(2 + number))


def _roles(
    follower: Follower, roles: tuple[str, ...], clock: SystemClock, metrics: Metrics
) -> Iterator[Controller | Applier]:
    unused = redis.asyncio.Redis()  # a membership of one, which never asks
    one = Membership(unused, cluster="default", member_id="one", roles=roles, clock=clock)
    known = parts(cluster=_Cluster(), follower=follower, membership=one, clock=clock, metrics=metrics)
    made: list[Controller | Applier] = []
    if "controller" in roles:
        made.append(Controller(known))
    if "applier" in roles:
        made.append(Applier(known))
    for role in made:
        follower.listen(role)
        role.changed(Changes(jobs=dict.fromkeys(follower.state.jobs)))
        yield role


class _Cluster:
    """An API server that takes statuses and Events after a while; nothing else is asked of it here."""

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any], **asked: Any) -> Object:
        await asyncio.sleep(0.005)
        return {}

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        await asyncio.sleep(0.005)
        return {"metadata": {"resourceVersion": "2"}}
