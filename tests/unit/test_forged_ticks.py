"""A client that can write to Redis can forge rq jobs: none of them calls anything, and good ticks still run."""

import asyncio
import json
import logging
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from rq.serializers import JSONSerializer

from arranger.clock import SystemClock
from arranger.workers.jobs.table_jobs import TableJob
from arranger.workers.members.tick_jobs import queue_name
from arranger.workers.members.ticks import Ticker, TickLoop
from tests.members import connected
from tests.servers import RealRedis
from tests.unit.test_ticks import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TICK = "arranger.workers.members.ticks.handle_tick"
HERE = "tests.unit.test_forged_ticks"

#: What a forged job has called in this process.
called: list[object] = []


def canary(*arguments: object, **named: object) -> None:
    """What a forged job names."""
    called.append((arguments, named))


class Canary:
    """An object whose method a forged job names."""

    def __init__(self, *arguments: object) -> None:
        called.append(arguments)

    def sing(self, *arguments: object) -> None:
        """A method."""
        called.append(arguments)

    @classmethod
    def sing_all(cls, *arguments: object) -> None:
        """A class method."""
        called.append(arguments)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    called.clear()
    yield
    called.clear()


def data(function: Any, arguments: Any, *, instance: Any = None, named: Any = None) -> bytes:
    return zlib.compress(json.dumps([function, instance, arguments, named or {}]).encode())


def good(cluster: str, **more: Any) -> dict[str, Any]:
    """The hash of a good tick, changed in one way."""
    return {
        "created_at": "2026-11-20T00:00:00.000000Z",
        "data": data(TICK, [cluster, "cycle"]),
        "origin": queue_name(cluster, "cycle"),
        "status": "queued",
        "timeout": 120,
        "result_ttl": 0,
        "failure_ttl": 300,
        **more,
    }


def pickled(file: Path) -> bytes:
    """A pickle that creates the file when it is read."""
    return b"cos\nsystem\n(S'touch " + str(file).encode() + b"'\ntR."


FORGED: dict[str, Any] = {
    "os.system": lambda cluster, file: good(cluster, data=data("os.system", [f"touch {file}"])),
    "builtins.eval": lambda cluster, file: good(cluster, data=data("builtins.eval", [f"open({str(file)!r}, 'w')"])),
    "a function of ours": lambda cluster, _: good(cluster, data=data(f"{HERE}.canary", [cluster, "cycle"])),
    "a class": lambda cluster, _: good(cluster, data=data(f"{HERE}.Canary", [cluster, "cycle"])),
    "a class method": lambda cluster, _: good(cluster, data=data(f"{HERE}.Canary.sing_all", [cluster, "cycle"])),
    "a method of an instance": lambda cluster, _: good(
        cluster, data=data("sing", [cluster, "cycle"], instance=f"{HERE}.Canary")
    ),
    "handle_tick of an instance": lambda cluster, _: good(cluster, data=data(TICK, [cluster, "cycle"], instance="x")),
    "another attribute of the same module": lambda cluster, _: good(
        cluster, data=data("arranger.workers.members.ticks.sync_client", ["redis://x", "cycle"])
    ),
    "named arguments": lambda cluster, _: good(
        cluster, data=data(TICK, [], named={"cluster": cluster, "tick": "cycle"})
    ),
    "named arguments too": lambda cluster, _: good(cluster, data=data(TICK, [cluster, "cycle"], named={"x": 1})),
    "three arguments": lambda cluster, _: good(cluster, data=data(TICK, [cluster, "cycle", "x"])),
    "arguments that are no strings": lambda cluster, _: good(cluster, data=data(TICK, [[cluster], {"a": "cycle"}])),
    "another cluster's": lambda _, __: good("another", data=data(TICK, ["another", "cycle"])),
    "another tick": lambda cluster, _: good(cluster, data=data(TICK, [cluster, "stop"])),
    "a tick of another queue": lambda cluster, _: good(cluster, data=data(TICK, [cluster, "maintenance"])),
    "a success callback": lambda cluster, _: good(cluster, success_callback_name=f"{HERE}.canary"),
    "a failure callback": lambda cluster, _: good(cluster, failure_callback_name=f"{HERE}.canary", timeout=1),
    "a stopped callback": lambda cluster, _: good(cluster, stopped_callback_name=f"{HERE}.canary", status="stopped"),
    "webhooks": lambda cluster, _: good(cluster, webhooks='[{"url": "http://127.0.0.1:9/", "job_status": "finished"}]'),
    "dependencies": lambda cluster, _: good(cluster, dependency_ids='["other"]', dependency_id="other"),
    "retries": lambda cluster, _: good(cluster, number_of_retries=3, retries_left=3, retry_intervals="[0]"),
    "repeats": lambda cluster, _: good(cluster, repeats_left=3, repeat_intervals="[0]"),
    "meta": lambda cluster, _: good(cluster, meta=f'{{"job_class": "{HERE}.Canary"}}'),
    "a serializer": lambda cluster, _: good(cluster, serializer="pickle"),
    "a group": lambda cluster, _: good(cluster, group_id="x"),
    "a result": lambda cluster, _: good(cluster, result='"x"'),
    "a pickle": lambda cluster, file: good(cluster, data=zlib.compress(pickled(file))),
    "a pickle as meta": lambda cluster, file: good(cluster, meta=pickled(file)),
    "a pickle as result": lambda cluster, file: good(cluster, result=pickled(file)),
    "one that has run": lambda cluster, _: good(cluster, status="finished"),
    "one with a status that there isn't": lambda cluster, _: good(cluster, status="x"),
    "one with a time that there isn't": lambda cluster, _: good(cluster, created_at="x"),
    "no JSON": lambda cluster, _: good(cluster, data=b"\xff\x00"),
    "deep JSON": lambda cluster, _: good(cluster, data=zlib.compress(b"[" * 4000)),
    "large when unpacked": lambda cluster, _: good(cluster, data=zlib.compress(b" " * 50_000_000)),
    "large": lambda cluster, _: good(cluster, description="x" * 1_000_000),
    "many fields": lambda cluster, _: good(cluster, **{f"field{number}": "x" for number in range(1000)}),
    "no data": lambda cluster, _: {"origin": queue_name(cluster, "cycle")},
    "a string": lambda _, __: "a string where a hash should be",
}


class Scene:
    """A tick loop on a real Redis, and someone who writes there as he likes."""

    def __init__(self, server: RealRedis, cluster: str) -> None:
        self.redis = redis.Redis.from_url(server.url)
        self.cluster = cluster
        self.runs = 0
        self.dropped: Counter[str] = Counter()
        self._forged = 0

    async def cycle(self) -> None:
        """The handler."""
        self.runs += 1

    def forge(self, content: Any, *, job_id: str | bytes = "") -> None:
        """Put a job into the queue, past everything that Arranger does."""
        self._forged += 1
        job_id = job_id or f"{self.cluster}-forged-{self._forged}"
        key = b"rq:job:" + (job_id.encode() if isinstance(job_id, str) else job_id)
        if isinstance(content, str):
            self.redis.set(key, content, ex=300)
        elif content:
            self.redis.hset(key, mapping=content)
        self.redis.rpush(f"rq:queue:{queue_name(self.cluster, 'cycle')}", job_id)

    def working(self, server: RealRedis, loop: Any) -> TickLoop:
        """The tick loop, which counts what it drops."""

        def count(tick: str) -> None:
            self.dropped[tick] += 1

        return TickLoop(
            server.url, cluster=self.cluster, member_id="m1", handlers={"cycle": self.cycle}, loop=loop, dropped=count
        )


async def run_forged(server: RealRedis, cluster: str, scene: Scene, *, drops: int) -> None:
    """Work off what was forged, and a good tick after it."""
    loop = scene.working(server, asyncio.get_running_loop())
    loop.start()
    try:
        async with connected(server) as client:
            ticker = Ticker(client, cluster=cluster, clock=SystemClock())
            async with asyncio.timeout(60):
                await until(lambda: scene.dropped["cycle"] >= drops)
                while not scene.runs:  # one tick waits at most: only once the forged are gone can one be pushed
                    await ticker.push("cycle")
                    await asyncio.sleep(0.01)
    finally:
        await loop.stop(drain_s=0.5)
    assert scene.dropped == Counter({"cycle": drops} if drops else {})


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_job_calls_nothing_and_is_dropped_and_told(
    redis_server: RealRedis, cluster: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    scene, file = Scene(redis_server, cluster), tmp_path / "canary"
    scene.forge(FORGED[name](cluster, file))
    await run_forged(redis_server, cluster, scene, drops=1)
    assert called == []
    assert not file.exists()
    assert scene.runs >= 1
    told = [record for record in caplog.records if record.message == "a job that isn't a tick was dropped"]
    assert [record.levelno for record in told] == [logging.ERROR]


async def test_many_forged_jobs_are_told_once_and_counted_each(
    redis_server: RealRedis, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(redis_server, cluster)
    for _ in range(50):
        scene.forge(good(cluster, data=data("os.system", ["true"])))
    await run_forged(redis_server, cluster, scene, drops=50)
    assert len([record for record in caplog.records if record.message == "a job that isn't a tick was dropped"]) == 1


async def test_ids_of_jobs_that_are_nothing_are_dropped(redis_server: RealRedis, cluster: str) -> None:
    scene = Scene(redis_server, cluster)
    scene.forge(None, job_id=b"\xff\xfe\x00")
    scene.forge(None, job_id="x" * 100_000)
    scene.forge(None, job_id="gone")  # a tick that nobody fetched has run out in the same way: nothing to tell
    await run_forged(redis_server, cluster, scene, drops=2)


async def test_a_tick_without_any_of_rqs_other_fields_is_handled(redis_server: RealRedis, cluster: str) -> None:
    """What callback fields say is nothing to us while they are empty: that is how rq writes them."""
    scene = Scene(redis_server, cluster)
    scene.forge(good(cluster, success_callback_name="", failure_callback_name="", group_id=""))
    await run_forged(redis_server, cluster, scene, drops=0)


async def test_nothing_is_called_that_rqs_registries_name(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    """rq cleans its registries when a worker begins, and calls what abandoned jobs name for their failure."""
    scene, file, queue = Scene(redis_server, cluster), tmp_path / "canary", queue_name(cluster, "cycle")
    for name, registry in (("abandoned", "wip"), ("deferred", "deferred"), ("scheduled", "scheduled")):
        job = f"{cluster}-{name}"
        forged = good(cluster, data=data("os.system", [f"touch {file}"]), failure_callback_name=f"{HERE}.canary")
        scene.redis.hset(f"rq:job:{job}", mapping=forged)
        scene.redis.zadd(f"rq:{registry}:{queue}", {f"{job}:execution": 1})
    imports = good(cluster, failure_callback_name="this.s")  # rq imports the module before it fails in a side thread
    scene.redis.hset(f"rq:job:{cluster}-imports", mapping=imports)
    scene.redis.zadd(f"rq:wip:{queue}", {f"{cluster}-imports:execution": 0})
    scene.redis.hset(f"rq:job:{cluster}-stuck", mapping=good(cluster, failure_callback_name=f"{HERE}.canary"))
    scene.redis.rpush(f"rq:queue:{queue}:intermediate", f"{cluster}-stuck")
    scene.redis.set(f"rq:queue:{queue}:intermediate:first_seen:{cluster}-stuck", 1.0)
    scene.redis.zadd(f"rq:wip:{queue}", {f"{cluster}-told:execution": 0})
    scene.redis.hset(f"rq:job:{cluster}-told", mapping=good(cluster))
    # rq would read this job, and put it into the queue that it names.
    scene.redis.sadd(f"rq:job:{cluster}-told:dependents", f"{cluster}-dependent")
    scene.redis.hset(f"rq:job:{cluster}-dependent", mapping=good(cluster, meta=pickled(file)))
    await run_forged(redis_server, cluster, scene, drops=2)
    scene.runs, scene.dropped = 0, Counter()
    for junk in (b"\xff\xfe", b"a:b:c", b"no job's"):
        scene.redis.zadd(f"rq:wip:{queue}", {junk: 1})
    await run_forged(redis_server, cluster, scene, drops=1)
    assert called == []
    assert not file.exists()
    assert "this" not in sys.modules


@pytest.mark.parametrize("registry", ["wip", "finished", "failed"])
async def test_a_registry_that_is_none_stops_no_tick(redis_server: RealRedis, cluster: str, registry: str) -> None:
    scene = Scene(redis_server, cluster)
    scene.redis.set(f"rq:{registry}:{queue_name(cluster, 'cycle')}", "no registry")
    await run_forged(redis_server, cluster, scene, drops=1)
    assert scene.redis.type(f"rq:{registry}:{queue_name(cluster, 'cycle')}") != b"string"


async def test_many_names_in_a_registry_are_settled_some_at_a_time(redis_server: RealRedis, cluster: str) -> None:
    scene, key = Scene(redis_server, cluster), f"rq:wip:{queue_name(cluster, 'cycle')}"
    scene.redis.zadd(key, {f"{cluster}-{number}:execution": 1 + number for number in range(1_000)})
    await run_forged(redis_server, cluster, scene, drops=0)
    assert scene.redis.zcard(key) == 0 or scene.redis.zcard(key) >= 900


async def test_dependents_of_a_good_tick_are_not_looked_at(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    scene, file = Scene(redis_server, cluster), tmp_path / "canary"
    scene.redis.sadd(f"rq:job:{cluster}-first:dependents", f"{cluster}-dependent")
    scene.redis.hset(f"rq:job:{cluster}-dependent", mapping=good(cluster, meta=pickled(file), status="deferred"))
    scene.forge(good(cluster), job_id=f"{cluster}-first")
    await run_forged(redis_server, cluster, scene, drops=0)
    assert not file.exists()
    assert scene.redis.hget(f"rq:job:{cluster}-dependent", "status") == b"deferred"


async def test_a_tick_runs_once_however_often_it_is_put_back(redis_server: RealRedis, cluster: str) -> None:
    scene, job_id = Scene(redis_server, cluster), f"{cluster}-one"
    for _ in range(3):
        scene.forge(good(cluster), job_id=job_id)
    loop = scene.working(redis_server, asyncio.get_running_loop())
    loop.start()
    await until(lambda: scene.dropped["cycle"] == 1)  # which removes it: then there is nothing left to be put back
    scene.forge(good(cluster), job_id=job_id)
    await until(lambda: scene.dropped["cycle"] == 2)
    await loop.stop(drain_s=0.5)
    assert scene.runs == 1


async def test_what_is_packed_behind_a_tick_isnt_unpacked(redis_server: RealRedis, cluster: str) -> None:
    scene, tick = Scene(redis_server, cluster), zlib.decompress(data(TICK, [cluster, "cycle"]))
    padded = zlib.compress(tick.ljust(5_000_000) + b"x")
    job = type("Tick", (TableJob,), {"duty": scene.working(redis_server, asyncio.get_running_loop())._duty})
    found = job("x", scene.redis, JSONSerializer)
    found.restore({b"data": padded, b"status": b"queued"})
    assert found.data == tick.ljust(1_024) and found.args == [cluster, "cycle"]


async def test_a_suspension_of_rqs_workers_holds_up_no_tick(own_redis: RealRedis, cluster: str) -> None:
    """`rq suspend` is for all that works on a Redis; a scheduler isn't stopped by a key that anybody may set."""
    scene = Scene(own_redis, cluster)
    scene.redis.set("rq:suspended", 1)
    await run_forged(own_redis, cluster, scene, drops=0)


async def test_commands_of_rq_are_not_heard(redis_server: RealRedis, cluster: str) -> None:
    scene = Scene(redis_server, cluster)
    await run_forged(redis_server, cluster, scene, drops=0)
    names = [key for key in scene.redis.scan_iter("rq:worker:m1*")]
    channels = [f"rq:pubsub:{name.decode().removeprefix('rq:worker:')}" for name in names]
    assert [scene.redis.publish(channel, '{"command": "shutdown"}') for channel in channels] == [0] * len(channels)
