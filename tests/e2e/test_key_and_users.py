"""A log with a key, and a Redis user for each Deployment, as deploy/redis-users and docs/operations.md have them: what
one user's password lets somebody write, without the key, moves no job, and everybody says where it is."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.codec import encode_snapshot
from arranger.events.log import Position, StoredSnapshot
from arranger.events.log_keys import UNKEYED
from arranger.events.redis_log import RedisLog
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.sandbox.nodes import NodeTemplate
from arranger.workers.members.ticks import Ticker
from tests.contract.test_redis_users import CLUSTER, LOG, client_of, make_users, url
from tests.contract.test_signed_log import FIRST, KEYED, appended
from tests.e2e.harness import (
    Fleet,
    Worker,
    apply,
    arranger,
    await_stage,
    eventually,
    fleet,
    job,
    kubelets,
    pods_of,
    status_of,
)
from tests.servers import RealKube, RealRedis

#: Redis user → the roles of its Deployment.
DEPLOYMENTS = {
    "watcher": ("watcher",),
    "decider": ("controller", "scheduler", "maintenance"),
    "applier": ("applier",),
}
DROPPED = 'arranger_ticks_dropped_total{tick="cycle"}'


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def start(workers: Fleet, server: RealRedis, user: str) -> Worker:
    (worker,) = workers.start(DEPLOYMENTS[user], redis_url=url(server, user))
    return worker


@asynccontextmanager
async def reading(server: RealRedis) -> AsyncIterator[RedisLog]:
    log = RedisLog(url(server, "reader"), CLUSTER, read_only=True, keys=KEYED)
    await log.open()
    yield log
    await log.close()


async def stored(server: RealRedis, uid: str) -> JobRecord | None:
    """The job as the newest snapshot has it."""
    async with reading(server) as log:
        newest = await log.newest_snapshot()
    return snapshot.restore(newest.content).jobs.get(uid) if newest is not None else None


async def forge_end(server: RealRedis, job: JobRecord) -> Position:
    """As an applier's user without the key: append that a job has succeeded. Returns the position before it."""
    ended = k.StageDecided(job.uid, job.version, 0, Stage.SUCCEEDED, StageReason.AS_RECORDED)
    made = k.Batch("forger", 1, time.time_ns() // 1_000_000, (ended,))
    return await appended(url(server, "applier"), CLUSTER, made)


async def take_away(server: RealRedis, before: Position) -> None:
    """As the runbook says, of an entry that nothing follows."""
    async with redis.asyncio.Redis.from_url(server.url) as client:
        assert await client.xdel(LOG + "log", f"{before.offset + 1}-0") == 1
        await client.hset(LOG + "meta", mapping={"end": before.offset, "chain": before.chain})


async def forge_snapshot(server: RealRedis) -> None:
    """As a decider's user without the key: another state of the cluster at the end of the log."""
    async with reading(server) as log, client_of(server, "decider") as client:
        at = await log.end()
        content = snapshot.encode(State(epoch=at.epoch, offset=at.offset, cluster="forged"))
        await client.hset(LOG + "snapshots", str(at.offset), encode_snapshot(StoredSnapshot(at, content)))


async def forge_tick(server: RealRedis) -> bool:
    async with client_of(server, "decider") as client:
        return await Ticker(client, cluster=CLUSTER, clock=SystemClock(), keys=UNKEYED).push("cycle")


def problem_of(worker: Worker) -> str:
    """What the process says of its fold; empty while all is well."""
    _, body = worker.get("/readyz")
    check = json.loads(body)["checks"]["fold"]
    return "" if check["ok"] else check["reason"]


def test_what_a_user_writes_without_the_key_moves_nothing_and_everybody_says_where_it_is(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    make_users(redis)
    node = NodeTemplate("node-1", cpu="16")
    with (
        kubelets(kube, node),
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path, log_key=FIRST) as workers,
    ):
        watcher, decider, applier = (start(workers, redis, user) for user in DEPLOYMENTS)
        apply(kube, job("train", workers=2))
        await_stage(kube, "Running", "train")
        uid = kube.request("GET", "/apis/arranger.dev/v1/namespaces/default/tyjobs/train")[1]["metadata"]["uid"]
        pods = {pod["metadata"]["uid"] for pod in pods_of(kube, "train")}
        train = eventually("a snapshot has the job", lambda: run(stored(redis, uid)))

        before = run(forge_end(redis, train))
        offset = before.offset + 1
        for worker in (watcher, decider, applier):
            eventually(f"{worker.name} says where", lambda of=worker: f"offset {offset}" in problem_of(of))
            assert worker.metrics()["arranger_forged_offset"] == offset
        told = arranger("status", "--log", url(redis, "reader"), ARRANGER_LOG_KEY=FIRST)
        assert told.returncode == 1 and f"offset {offset} isn't authentic" in " ".join(told.stdout.split())
        apply(kube, job("late", workers=1))
        time.sleep(2.0)
        assert {pod["metadata"]["uid"] for pod in pods_of(kube, "train")} == pods
        assert status_of(kube, "train")["stage"] == "Running"
        assert not pods_of(kube, "late")

        run(take_away(redis, before))
        await_stage(kube, "Running", "train", "late")
        assert {pod["metadata"]["uid"] for pod in pods_of(kube, "train")} == pods

        dropped = decider.metrics()[DROPPED]
        eventually("a forged tick is in the queue", lambda: run(forge_tick(redis)))
        eventually("it was dropped", lambda: decider.metrics()[DROPPED] > dropped)

        run(forge_snapshot(redis))
        applier.kill()
        second = start(workers, redis, "applier")
        assert not problem_of(second)
        apply(kube, job("last", workers=1))
        await_stage(kube, "Running", "train", "late", "last")
        assert {pod["metadata"]["uid"] for pod in pods_of(kube, "train")} == pods
