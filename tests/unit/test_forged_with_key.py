"""With a key, nothing is done for what somebody without it wrote into Redis, and everybody says where it is."""

import asyncio
import threading
import time
from collections import Counter

import pytest
import redis
import redis.asyncio
import rq.job
from rq.serializers import JSONSerializer

from arranger.clock import SystemClock
from arranger.errors import EpochLost
from arranger.events import kinds as k
from arranger.events.codec import encode_snapshot
from arranger.events.log import StoredSnapshot
from arranger.events.log_keys import NO_KEY, UNKEYED, LogKeys
from arranger.events.redis_log import RedisLog
from arranger.kube.cluster import PODS
from arranger.metrics import Metrics
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.workers.flow.cancelling import end
from arranger.workers.jobs.table_jobs import Duty, NoJob, TableJob
from arranger.workers.log.follower import Follower
from arranger.workers.members.tick_jobs import FUNCTION, queue_name, tick_job
from arranger.workers.members.ticks import Ticker, TickLoop
from tests.contract.test_signed_log import KEYED, OTHER, appended, forge, written
from tests.servers import RealRedis
from tests.unit.test_forged_log import Scene, applying

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]


async def forged_decision(server: RealRedis, scene: Scene, cluster: str, job: str) -> int:
    """Append "the job has ended" past Arranger's scripts, with everything right but the key; returns the offset."""
    version = scene.follower.state.jobs[job].version
    ended = k.StageDecided(job, version, 0, Stage.SUCCEEDED, StageReason.AS_RECORDED)
    made = k.Batch("forger", 1, time.time_ns() // 1_000_000, (ended,))
    return (await appended(server.url, cluster, made)).offset + 1


async def test_nothing_is_done_for_a_forged_decision_and_the_process_says_where_it_is(
    redis_server: RealRedis, cluster: str
) -> None:
    async with applying(RedisLog(redis_server.url, cluster, keys=KEYED)) as scene:
        job = await scene.begin()
        before = scene.store.collection(PODS).objects.copy()
        offset = await forged_decision(redis_server, scene, cluster, job)
        follower = scene.follower
        await scene.until(lambda: follower.forgery.entry is not None)
        assert follower.forgery.entry is not None and follower.forgery.entry.offset == offset
        assert not follower.fresh() and follower.stopped is None
        assert f"arranger_forged_offset {float(offset)}".encode() in follower._metrics.exposition()
        await asyncio.sleep(1.0)
        assert scene.store.collection(PODS).objects == before
        assert follower.state.offset == offset - 1
        assert follower.state.jobs[job].stage != Stage.SUCCEEDED


async def test_a_forged_decision_without_a_key_is_done_which_is_why_there_is_one(
    redis_server: RealRedis, cluster: str
) -> None:
    async with applying(RedisLog(redis_server.url, cluster)) as scene:
        job = await scene.begin()
        await forged_decision(redis_server, scene, cluster, job)
        await scene.until(lambda: scene.follower.state.jobs[job].stage == Stage.SUCCEEDED)


async def test_a_process_goes_on_after_the_log_was_removed_as_the_runbook_says(
    redis_server: RealRedis, cluster: str
) -> None:
    log = await written(redis_server, cluster)
    follower = Follower(log, clock=SystemClock(), metrics=Metrics(SystemClock()), reader="test")
    await follower.start()
    epoch = follower.state.epoch
    following = asyncio.create_task(follower.run())
    await forge(redis_server, cluster)
    await asyncio.wait_for(_until(lambda: follower.forgery.entry is not None), 20)
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        names = ("log", "meta", "writers", "cursors", "snapshots")
        await client.unlink(*(f"arranger:{{{cluster}}}:{name}" for name in names))
    await asyncio.wait_for(follower.until(lambda state: state.epoch > epoch), 30)
    await asyncio.wait_for(_until(lambda: follower.forgery.entry is None), 20)
    assert follower.state.offset == 1
    await end([following])
    await log.close()


async def test_a_process_that_starts_waits_at_a_forged_entry_and_goes_on_without_it(
    redis_server: RealRedis, cluster: str
) -> None:
    log = await written(redis_server, cluster)
    true_end = await log.end()
    offset = await forge(redis_server, cluster, OTHER)
    another = RedisLog(redis_server.url, cluster, keys=KEYED)
    follower = Follower(another, clock=SystemClock(), metrics=Metrics(SystemClock()), reader="test")
    starting = asyncio.create_task(follower.start())
    await asyncio.wait_for(_until(lambda: follower.forgery.entry is not None), 20)
    assert not starting.done() and follower.state.offset == offset - 1
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        await client.xdel(f"arranger:{{{cluster}}}:log", f"{offset}-0")
        meta = {"end": true_end.offset, "chain": true_end.chain}
        await client.hset(f"arranger:{{{cluster}}}:meta", mapping=meta)
    await asyncio.wait_for(starting, 30)
    assert follower.forgery.entry is None and follower.state.offset == true_end.offset
    with pytest.raises(EpochLost):  # Redis gives no ID twice
        await another.append(
            k.Batch("w", 99, time.time_ns() // 1_000_000, (k.ObjectGone(k.Watched.NODE, 1, "", "n", "u"),)),
            epoch=true_end.epoch,
        )
    await another.begin_epoch(lost=true_end.epoch, reason="test", time_ms=time.time_ns() // 1_000_000)
    assert await another.old_epochs() == [true_end.epoch]
    assert (await another.old_end(true_end.epoch))[1] == true_end.offset
    await log.close()
    await another.close()


async def test_a_process_begins_before_a_forged_snapshot(redis_server: RealRedis, cluster: str) -> None:
    log = await written(redis_server, cluster)
    at = await log.end()
    forged = State(epoch=at.epoch, offset=at.offset, cluster="forged")
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        content = encode_snapshot(StoredSnapshot(at, snapshot.encode(forged)))
        await client.hset(f"arranger:{{{cluster}}}:snapshots", str(at.offset), content)
    for keys, expected in ((KEYED, ""), (LogKeys(["a" * 32, NO_KEY]), "forged")):
        follower = Follower(
            RedisLog(redis_server.url, cluster, keys=keys),
            clock=SystemClock(),
            metrics=Metrics(SystemClock()),
            reader="test",
        )
        await follower.start()
        assert (follower.state.cluster, follower.state.offset) == (expected, at.offset)
        await follower.log.close()
    await log.close()


async def _until(holds: object) -> None:
    while not holds():  # type: ignore[operator]  # noqa: ASYNC110  # the fold wakes nobody while it waits
        await asyncio.sleep(0.05)


def read_by(keys: LogKeys, job: rq.job.Job, job_id: str = "") -> TableJob:
    """The tick as a worker with other keys takes it from Redis. Raises `NoJob` if it doesn't."""
    duty = Duty(
        cluster="c", queues={}, functions={FUNCTION: print}, keys=keys, clock=SystemClock(), stopping=threading.Event(),
        dropped=lambda tick, problem: None,
    )  # fmt: skip
    found = type("Tick", (TableJob,), {"duty": duty})(job_id or job.id, redis.Redis(), JSONSerializer)
    stored = {
        name.encode(): part if isinstance(part, bytes) else str(part).encode() for name, part in job.to_dict().items()
    }
    found.restore(stored | {b"status": b"queued"})
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("writer", "reader", "late_ms", "fault"),
    [
        (KEYED, KEYED, 0, None),
        (KEYED, KEYED, 290_000, None),
        (KEYED, KEYED, 310_000, "age"),
        (UNKEYED, KEYED, 0, "signature"),
        (OTHER, KEYED, 0, "signature"),
        (UNKEYED, LogKeys([NO_KEY, "a" * 32]), 0, None),
        (KEYED, LogKeys([NO_KEY, "a" * 32]), 0, None),
        (OTHER, LogKeys(["a" * 32, "b" * 32]), 0, None),
        (KEYED, UNKEYED, 0, "arguments"),
    ],
)
def test_a_tick_counts_with_a_signature_by_one_of_the_keys(
    writer: LogKeys, reader: LogKeys, late_ms: int, fault: str | None
) -> None:
    job = tick_job("c", "cycle", redis.Redis(), keys=writer, now_ms=1_000_000)
    if fault is None:
        read_by(reader, job).check(job.origin, 1_000_000 + late_ms)
        if reader.strict:
            with pytest.raises(NoJob):
                read_by(reader, job, "another")
    else:
        with pytest.raises(NoJob) as refused:
            read_by(reader, job).check(job.origin, 1_000_000 + late_ms)
        assert refused.value.fault == fault


async def test_a_worker_drops_ticks_without_a_signature_and_counts_them(redis_server: RealRedis, cluster: str) -> None:
    runs, dropped = Counter[str](), Counter[str]()

    async def cycle() -> None:
        runs["cycle"] += 1

    client = redis.asyncio.Redis.from_url(redis_server.url)
    ticks = TickLoop(
        redis_server.url, cluster=cluster, member_id="m", handlers={"cycle": cycle},
        loop=asyncio.get_running_loop(), dropped=lambda tick: dropped.update([tick]), keys=KEYED,
    )  # fmt: skip
    ticks.start()
    for number, keys in enumerate((UNKEYED, OTHER), 1):
        await Ticker(client, cluster=cluster, clock=SystemClock(), keys=keys).push("cycle")
        await asyncio.wait_for(_until(lambda expected=number: dropped["cycle"] == expected), 20)
    assert runs["cycle"] == 0
    await Ticker(client, cluster=cluster, clock=SystemClock(), keys=KEYED).push("cycle")
    await asyncio.wait_for(_until(lambda: runs["cycle"] == 1), 20)
    assert await client.llen(f"rq:queue:{queue_name(cluster, 'cycle')}") == 0
    await ticks.stop()
    await client.aclose()
