"""Stage changes reach a webhook once each and in order for each job, whatever receiver, senders and log go through."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio
from aiohttp import web

from arranger.cli.main import main
from arranger.clock import SystemClock
from arranger.events.log import Entry, StoredSnapshot
from arranger.events.redis_log import RedisLog
from arranger.feeds import webhook
from arranger.feeds.following import Cursor, Following
from arranger.feeds.outbox import Outbox
from arranger.feeds.webhook import Delivery, Filling
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.workers.flow.cancelling import end
from tests.servers import RealRedis
from tests.world import World

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

STAGE, DELETED, GAP = "dev.arranger.tyjob.stage.v1", "dev.arranger.tyjob.deleted.v1", "dev.arranger.gap.v1"
Event = dict[str, Any]


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(8):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


class Receiver:
    """An HTTP server that records what it was sent. `answer` gives the status for the number of a request, and the
    status 0 stands for a connection that breaks after the event was taken."""

    def __init__(self) -> None:
        self.answer: Callable[[int], int] = lambda _: 204
        self.headers: dict[str, str] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.taken: list[Event] = []
        self.requests: list[tuple[float, web.BaseRequest]] = []
        self.url = ""

    @property
    def distinct(self) -> list[Event]:
        """What is left for a receiver that drops IDs that it has seen, in the order of arrival."""
        found: dict[tuple[str, str], Event] = {}
        for event in self.taken:
            found.setdefault((event["source"], event["id"]), event)
        return list(found.values())

    def changes(self) -> dict[str, list[str]]:
        """Job → its stages, in the order of arrival; `-` for its deletion."""
        found: dict[str, list[str]] = {}
        for event in self.distinct:
            if event["type"] != GAP:
                stage = event["data"]["stage"] if event["type"] == STAGE else "-"
                found.setdefault(event["subject"], []).append(stage)
        return found

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((time.monotonic(), request))
        status = self.answer(len(self.requests))
        await self.gate.wait()
        event = await request.json()
        if status in (0, 204):
            self.taken.append(event)
        if status == 0:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=status or 204, headers=self.headers)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
    try:
        yield receiver
    finally:
        receiver.gate.set()
        await runner.cleanup()


class Scene:
    """A log in Redis that has what happens in a world, and senders that read it."""

    def __init__(self, server: RealRedis, cluster: str, receiver: Receiver) -> None:
        self.server, self.cluster, self.receiver = server, cluster, receiver
        self.world = World()
        self.log = RedisLog(server.url, cluster)
        self.client = redis.asyncio.Redis.from_url(server.url)
        self.outbox = Outbox(self.client, cluster)
        self.epoch = 0
        self._seq = 0

    async def write(self, entries: list[Entry] | None = None) -> None:
        """Append what the log lacks of the world."""
        last = await self.log.open()
        self.epoch = last.epoch
        for entry in [one for one in self.world.entries if one.first > last.offset] if entries is None else entries:
            await self.log.append(entry.batch, epoch=self.epoch)

    async def trim(self) -> None:
        """Store a snapshot at the end, and trim everything before it."""
        last = await self.log.end()
        self.world.state.epoch = last.epoch
        await self.log.put_snapshot(StoredSnapshot(last, snapshot.encode(self.world.state)))
        await self.log.trim(last.offset + 1, epoch=last.epoch)

    @asynccontextmanager
    async def sending(self, **delivery: Any) -> AsyncIterator[Metrics]:
        """A sender that stops at once afterwards, as if it was killed."""
        clock = SystemClock()
        metrics = Metrics(clock)
        log = RedisLog(self.server.url, self.cluster, read_only=True)
        filling = Filling(self.outbox, cluster=self.cluster, clock=clock, metrics=metrics)
        sender = Delivery(self.outbox, self.receiver.url, clock=clock, metrics=metrics, **{"first_s": 0.01, **delivery})
        tasks = [asyncio.create_task(work) for work in (Following(log, filling, clock).run(), sender.run())]
        try:
            yield metrics
        finally:
            assert not any(task.done() for task in tasks)
            await end(tasks)
            await log.close()

    async def caught_up(self) -> None:
        """Wait until the cursor is at the end of the log."""
        last = await self.log.end()

        async def there() -> bool:
            return await self.outbox.cursor() == Cursor(last.epoch, last.offset)

        await until(there)

    async def delivered(self) -> None:
        await self.caught_up()
        await until(self.has_delivered)

    async def has_delivered(self) -> bool:
        return bool(self.receiver.requests) and not await self.outbox.waiting()


@asynccontextmanager
async def scene_of(server: RealRedis, cluster: str) -> AsyncIterator[Scene]:
    async with receiving() as receiver:
        scene = Scene(server, cluster, receiver)
        try:
            yield scene
        finally:
            await scene.log.close()
            await scene.client.aclose()


def live(world: World, names: str) -> None:
    """Jobs that start, run, fail, start again and end; the last one is deleted while it runs."""
    world.node("n1", cpu=64)
    for name in names:
        world.job(name, workers=2)
    world.settle()
    for name in names:
        job = world.state.jobs[f"uid-{name}"]
        world.change_pod(job.bound[(0, 0)], phase="Failed")
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    for name in names[:-1]:
        job = world.state.jobs[f"uid-{name}"]
        world.change_pod(job.bound[(0, 0)], phase="Succeeded")
    world.settle()
    world.job_gone(world.state.jobs[f"uid-{names[-1]}"])


def stages(world: World) -> dict[str, list[str]]:
    """Job → its stages, as the fold has them after each entry of a world; `-` for its deletion."""
    again, found, there = World(), dict[str, list[str]](), dict[str, str]()
    for entry in world.entries[len(again.entries) :]:
        again.fold(entry)
        now = {f"{job.seen.namespace}/{job.seen.name}": str(job.stage) for job in again.state.jobs.values()}
        for name in there.keys() | now.keys():
            if there.get(name) != now.get(name):
                found.setdefault(name, []).append(now.get(name, "-"))
        there = now
    return found


def flaky(number: int) -> int:
    """Refuses now and then, and loses the answer now and then."""
    return {3: 503, 5: 0, 6: 429}.get(number % 7, 204)


async def test_each_change_arrives_once_and_in_order_at_a_receiver_that_fails_now_and_then(
    redis_server: RealRedis, cluster: str
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        scene.receiver.answer = flaky
        await scene.write([])
        async with scene.sending():
            await scene.delivered()
            live(scene.world, "abcdefgh")
            await scene.write()
            await scene.delivered()
    expected = stages(scene.world)
    assert len(expected) == 8 and expected["default/a"][:3] == ["Pending", "Starting", "Running"]
    assert scene.receiver.changes() == expected
    assert len(scene.receiver.taken) > len(scene.receiver.distinct)  # duplicates came


async def test_senders_that_are_killed_and_run_side_by_side_change_nothing_of_that(
    redis_server: RealRedis, cluster: str
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        scene.receiver.answer = flaky
        await scene.write([])
        async with scene.sending():
            await scene.delivered()
        live(scene.world, "abcdefgh")
        entries = scene.world.entries[1:]  # the log has begun itself
        parts = [entries[at : at + 20] for at in range(0, len(entries), 20)]
        for part in parts:
            await scene.write(part)
            async with scene.sending(), scene.sending():
                await asyncio.sleep(0.1)
        async with scene.sending():
            await scene.delivered()
    assert scene.receiver.changes() == stages(scene.world)
    assert len(scene.receiver.taken) > len(scene.receiver.distinct)


async def test_a_receiver_that_hangs_holds_up_neither_the_cursor_nor_the_log_and_loses_nothing(
    redis_server: RealRedis, cluster: str
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        async with scene.sending():
            await scene.delivered()
            scene.receiver.gate.clear()
            live(scene.world, "abc")
            await scene.write()
            await scene.caught_up()
        await scene.trim()  # nobody waits for the receiver
        scene.receiver.gate.set()
        async with scene.sending() as metrics:
            await scene.delivered()
            await asyncio.sleep(0)
    assert scene.receiver.changes() == stages(scene.world)
    assert [event["type"] for event in scene.receiver.distinct].count(GAP) == 1  # the beginning
    assert metrics.webhook_gaps._value.get() == 0


async def test_after_a_trimmed_log_the_gap_is_told_and_then_every_present_stage(
    redis_server: RealRedis, cluster: str
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        async with scene.sending():
            await scene.delivered()
        began = (await scene.log.end()).offset
        live(scene.world, "abc")
        await scene.write()
        await scene.trim()
        count = len(scene.receiver.taken)
        async with scene.sending() as metrics:
            await scene.delivered()
            through = (await scene.log.end()).offset
            gap, *rest = scene.receiver.taken[count:]
            assert gap["type"] == GAP
            assert gap["data"] == {
                "epoch": scene.epoch, "offset": through, "after": {"epoch": scene.epoch, "offset": began},
            }  # fmt: skip
            assert {event["subject"]: event["data"]["stage"] for event in rest} == {
                "default/a": "Succeeded", "default/b": "Succeeded",
            }  # fmt: skip
            assert all(event["data"]["repeated"] for event in rest)
            assert metrics.webhook_gaps._value.get() == 1
            scene.world.job("later")
            await scene.write()
            await scene.delivered()
        assert scene.receiver.distinct[-1]["data"]["stage"] == "Pending"


async def test_a_new_epoch_is_a_gap_and_its_jobs_are_told(redis_server: RealRedis, cluster: str) -> None:
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        async with scene.sending():
            await scene.delivered()
            before = Cursor(scene.epoch, (await scene.log.end()).offset)
            begun = await scene.log.begin_epoch(lost=scene.epoch, reason="test", time_ms=time.time_ns() // 1_000_000)
            live(scene.world, "ab")
            for entry in scene.world.entries[1:]:
                await scene.log.append(entry.batch, epoch=begun.epoch)
            await scene.delivered()
        gap = scene.receiver.distinct[1]
    assert gap["data"]["after"] == {"epoch": before.epoch, "offset": before.offset}
    assert (gap["type"], gap["data"]["epoch"], gap["data"]["offset"]) == (GAP, begun.epoch, 0)
    assert scene.receiver.changes() == stages(scene.world)


async def test_an_event_has_the_attributes_of_the_specification(redis_server: RealRedis, cluster: str) -> None:
    async with scene_of(redis_server, cluster) as scene:
        live(scene.world, "ab")
        await scene.write()
        async with scene.sending(token=lambda: "word"):
            await scene.delivered()
        ended = scene.receiver.distinct[-1]
        _, request = scene.receiver.requests[-1]
    assert request.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["Authorization"] == "Bearer word"
    data = ended.pop("data")
    last = scene.world.state.offset
    assert ended == {
        "specversion": "1.0",
        "id": f"{scene.epoch}-{last}-uid-a-present",
        "source": f"/arranger/clusters/{cluster}",
        "type": STAGE,
        "time": ended["time"],
        "datacontenttype": "application/json",
        "subject": "default/a",
        "partitionkey": "uid-a",
    }
    assert data == {
        "epoch": scene.epoch, "offset": last, "uid": "uid-a", "namespace": "default", "name": "a", "stage": "Succeeded",
        "attempt": 1, "reason": "LeaderSucceeded", "message": data["message"], "repeated": True,
    }  # fmt: skip


@pytest.mark.parametrize(("asked", "least_s"), [({}, 0.0), ({"Retry-After": "1"}, 1.0), ({"Retry-After": "soon"}, 0.0)])
async def test_a_try_waits_as_long_as_the_receiver_asks(
    redis_server: RealRedis, cluster: str, asked: dict[str, str], least_s: float
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        scene.receiver.headers = asked
        scene.receiver.answer = lambda number: 429 if number == 1 else 204
        await scene.write([])
        async with scene.sending() as metrics:
            await scene.delivered()
        (first_s, _), (second_s, _) = scene.receiver.requests
    assert least_s <= second_s - first_s < least_s + 0.5
    assert metrics.webhook_events.labels("failed")._value.get() == 1


@pytest.mark.parametrize("status", [301, 400, 401, 410])
async def test_no_other_answer_than_success_lets_an_event_go(
    redis_server: RealRedis, cluster: str, status: int
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        scene.receiver.headers = {"Location": scene.receiver.url}
        scene.receiver.answer = lambda number: status if number < 3 else 204
        await scene.write([])
        async with scene.sending() as metrics:
            await scene.delivered()
        assert len(scene.receiver.requests) == 3 and len(scene.receiver.taken) == 1
    assert metrics.webhook_events.labels("delivered")._value.get() == 1


@pytest.fixture
def small_outbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(webhook, "WAITING_MOST", 5)
    yield 5


async def test_a_full_outbox_holds_the_cursor_until_there_is_room(
    redis_server: RealRedis, cluster: str, small_outbox: int
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        async with scene.sending():
            await scene.delivered()
            scene.receiver.gate.clear()
            began = await scene.log.end()
            live(scene.world, "abcd")
            for entry in [one for one in scene.world.entries if one.first > began.offset]:
                await scene.log.append(entry.batch, epoch=scene.epoch)
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.2)
            held = await scene.outbox.cursor()
            assert held is not None and held.offset < (await scene.log.end()).offset
            assert await scene.outbox.waiting() >= small_outbox
            scene.receiver.gate.set()
            await scene.delivered()
    assert scene.receiver.changes() == stages(scene.world)


async def test_a_log_that_is_trimmed_past_a_full_outbox_is_a_gap_for_a_sender_that_runs(
    redis_server: RealRedis, cluster: str, small_outbox: int
) -> None:
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        async with scene.sending() as metrics:
            await scene.delivered()
            scene.receiver.gate.clear()
            live(scene.world, "abcd")
            for entry in scene.world.entries[1:]:
                await scene.log.append(entry.batch, epoch=scene.epoch)
                await asyncio.sleep(0.005)
            await scene.trim()
            scene.receiver.gate.set()
            await scene.delivered()
            assert metrics.webhook_gaps._value.get() == 2
        gaps = [number for number, event in enumerate(scene.receiver.distinct) if event["type"] == GAP]
        assert len(gaps) == 2
        after = scene.receiver.distinct[gaps[1] + 1 :]
        assert {event["subject"]: event["data"]["stage"] for event in after} == {
            "default/a": "Succeeded", "default/b": "Succeeded", "default/c": "Succeeded",
        }  # fmt: skip


async def test_a_cursor_behind_the_end_of_the_log_waits_for_the_epoch_that_replaces_it(
    redis_server: RealRedis, cluster: str
) -> None:
    """After a fail-over that lost the tail, nothing is told of entries that may come to nothing."""
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        last = await scene.log.end()
        await scene.outbox.put(None, Cursor(last.epoch, last.offset + 7), [])
        async with scene.sending():
            await asyncio.sleep(0.2)
            assert await scene.outbox.waiting() == 0 and not scene.receiver.requests
            await scene.log.begin_epoch(lost=last.epoch, reason="test", time_ms=time.time_ns() // 1_000_000)
            await scene.delivered()
    assert [event["type"] for event in scene.receiver.distinct] == [GAP]


async def test_the_command_delivers_until_sigterm(redis_server: RealRedis, cluster: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("word\n")
    async with scene_of(redis_server, cluster) as scene:
        await scene.write([])
        (tmp_path / "url").write_text(scene.receiver.url + "\n")
        words = ["webhook", f"file:{tmp_path / 'url'}", "--token-file", str(tmp_path / "token"), "--http-port", "0"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "arranger.cli.main", *words, "--redis", redis_server.url, "--cluster", cluster),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        listening = json.loads(await process.stderr.readline())
        await until(scene.has_delivered)
        async with aiohttp.ClientSession(listening["url"]) as session:

            async def ready() -> bool:
                async with session.get("/readyz") as answer:
                    return answer.status == 200

            await until(ready)
            async with session.get("/metrics") as answer:
                assert 'arranger_webhook_events_total{result="delivered"} 1.0' in await answer.text()
        process.terminate()
        assert await process.wait() == 0
        assert scene.receiver.requests[0][1].headers["Authorization"] == "Bearer word"


@pytest.mark.parametrize("words", [["webhook"], ["webhook", "receiver"], ["webhook", "file:/nowhere"]])
def test_a_webhook_that_is_none_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words, prog_name="arranger") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
