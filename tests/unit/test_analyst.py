"""Analysts on a real Redis: each question is answered once, whatever becomes of those who work on it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from arranger.clock import SystemClock
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.metrics import Metrics
from arranger.web.questions import question_of
from arranger.workers.analysis import analyst as analyst_module
from arranger.workers.analysis.analyst import Analyst
from arranger.workers.analysis.work_queue import Work, WorkQueue, queue_of
from arranger.workers.parts import Answering
from tests.contract.test_signed_log import KEYED, OTHER
from tests.members import connected
from tests.servers import RealRedis
from tests.unit.test_forged_ticks import data, pickled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

#: What a test's command does, by the offset that it is asked about.
PROGRAM = """
import json, os, sys, time
at = next(word.partition("=")[2] for word in sys.argv if word.startswith("--at="))
with open(os.environ["BEGUN"], "a") as begun:
    begun.write(at + "\\n")
given = sys.stdin.buffer.read().decode()
if at == "1":
    print(json.dumps({"given": given}))
elif at == "2":
    print("remark", file=sys.stderr)
    print('{"arranger": "progress", "percent": 40, "offset": 7}', file=sys.stderr, flush=True)
    time.sleep(60)
elif at == "3":
    print("x" * (33 << 20))
elif at == "4":
    bytearray(4 << 30)
elif at == "5":
    print("no", file=sys.stderr)
    sys.exit(3)
else:
    print("{}")
"""


class Scene:
    """Analysts of a cluster, and somebody who asks."""

    def __init__(self, server: RealRedis, cluster: str, folder: Path, queue: WorkQueue, keys: LogKeys) -> None:
        self.url, self.cluster, self.queue, self.keys = server.url, cluster, queue, keys
        self.redis = redis.Redis.from_url(server.url)
        self.metrics = Metrics(SystemClock())
        self.begun = folder / "begun"
        self.begun.touch()
        self.analysts: list[Analyst] = []

    def start(self, *, time_s: float = 30) -> Analyst:
        answering = Answering(
            program=(sys.executable, "-c", PROGRAM), environment={"BEGUN": str(self.begun)}, question_of=question_of,
            time_s=time_s, memory_bytes=1 << 30,
        )  # fmt: skip
        made = Analyst(
            self.url, cluster=self.cluster, member_id=f"m{len(self.analysts)}", answering=answering,
            loop=asyncio.get_running_loop(), keys=self.keys, clock=SystemClock(), metrics=self.metrics,
        )  # fmt: skip
        self.analysts.append(made)
        made.start()
        return made

    async def ask(self, at: int, *, given: bytes = b"", user: str = "ann") -> str:
        return await self.queue.ask(words(at, given=bool(given)), given=given, user=user, kind="what-if")

    async def ended(self, job_id: str, *states: str) -> Work:
        """The work once it has ended, or is in one of these states."""
        async with asyncio.timeout(60):
            while True:
                found = await self.queue.work(job_id)
                assert found is not None
                if found.state in (states or ("done", "failed", "cancelled")):
                    return found
                await asyncio.sleep(0.05)

    def lines(self) -> list[str]:
        return self.begun.read_text().split()


def words(at: int, *, given: bool = False) -> Sequence[str]:
    return ["what-if", "--output=json", f"--at={at}", *(["--with=-"] if given else []), "--"]


@contextlib.asynccontextmanager
async def scene_of(server: RealRedis, cluster: str, folder: Path, keys: LogKeys = UNKEYED) -> AsyncIterator[Scene]:
    async with connected(server) as client:
        scene = Scene(server, cluster, folder, WorkQueue(client, cluster=cluster, clock=SystemClock(), keys=keys), keys)
        try:
            yield scene
        finally:
            for each in scene.analysts:
                await each.stop(drain_s=0.1)


@pytest.mark.parametrize("keys", [UNKEYED, KEYED])
async def test_a_question_is_answered_with_its_input(
    redis_server: RealRedis, cluster: str, tmp_path: Path, keys: LogKeys
) -> None:
    async with scene_of(redis_server, cluster, tmp_path, keys) as scene:
        scene.start()
        job_id = await scene.ask(1, given=b"manifest")
        found = await scene.ended(job_id)
        answer = await scene.queue.result(job_id)
        assert answer is not None
        assert (found.state, found.percent, found.tries, found.worker) == ("done", 100, 1, "m0")
        assert (answer.out, answer.err, answer.status) == (b'{"given": "manifest"}\n', b"", 0)
        assert await scene.queue.analysts() == 1
        assert await scene.ask(1, given=b"manifest") == job_id  # and isn't run again
        await scene.ended(await scene.ask(6))
        assert scene.lines() == ["1", "6"]


async def test_what_the_command_refuses_is_an_answer(redis_server: RealRedis, cluster: str, tmp_path: Path) -> None:
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        scene.start()
        job_id = await scene.ask(5)
        assert (await scene.ended(job_id)).state == "done"
        answer = await scene.queue.result(job_id)
        assert answer is not None and (answer.out, answer.err, answer.status) == (b"", b"no\n", 3)


async def test_how_far_it_is_can_be_seen_and_it_can_be_taken_back(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        scene.start()
        job_id = await scene.ask(2)
        await scene.ended(job_id, "running")
        async with asyncio.timeout(20):
            while (found := await scene.queue.work(job_id)) is None or not found.percent:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        assert (found.percent, found.offset) == (40, 7)
        assert await scene.queue.cancel(job_id)
        assert (await scene.ended(job_id)).state == "cancelled"
        assert await scene.queue.result(job_id) is None


@pytest.mark.parametrize(("at", "reason"), [(2, "Timeout"), (3, "RequestEntityTooLarge")])
async def test_what_takes_too_much_fails(
    redis_server: RealRedis, cluster: str, tmp_path: Path, at: int, reason: str
) -> None:
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        scene.start(time_s=3)
        found = await scene.ended(await scene.ask(at))
        assert (found.state, found.reason) == ("failed", reason)


async def test_memory_is_limited(redis_server: RealRedis, cluster: str, tmp_path: Path) -> None:
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        scene.start()
        job_id = await scene.ask(4)
        await scene.ended(job_id)
        answer = await scene.queue.result(job_id)
        assert answer is not None and answer.status != 0 and b"MemoryError" in answer.err


async def test_an_analyst_that_stops_leaves_its_question_to_the_next(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        first = scene.start()
        job_id = await scene.ask(2)
        await scene.ended(job_id, "running")
        await first.stop(drain_s=0.1)
        found = await scene.ended(job_id, "waiting")
        assert found.tries == 0
        scene.start(time_s=2)
        assert (await scene.ended(job_id)).reason == "Timeout"
        assert scene.lines() == ["2", "2"]


async def test_a_question_whose_analysts_were_killed_is_begun_three_times_and_then_failed(
    redis_server: RealRedis, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed analyst leaves its job begun in rq's registry, and nobody who tells rq that it lives."""
    monkeypatch.setattr(analyst_module, "_TIDY_S", 1)
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        scene.start()
        job_id = await scene.ask(1)
        await scene.ended(job_id)
        await scene.analysts[0].stop()
        wip, record = f"rq:wip:{queue_of(cluster, 'interactive')}", f"arranger:{cluster}:work:{job_id}"
        for tries, state in ((1, "done"), (2, "done"), (3, "failed")):
            scene.redis.unlink(f"{record}:result")
            scene.redis.hset(record, mapping={"state": "running", "tries": tries})
            scene.redis.hset(f"rq:job:{job_id}", mapping={"status": "started"})
            scene.redis.zadd(wip, {f"{job_id}:execution": 1})
            analyst = scene.start()
            found = await scene.ended(job_id)
            await analyst.stop()
            assert (found.state, found.tries) == (state, min(tries + 1, 3))
        assert "were killed" in found.message
        assert scene.lines() == ["1", "1", "1"]


def good(cluster: str, **more: Any) -> dict[str, Any]:
    """The hash of a good question, changed in one way."""
    return {
        "created_at": "2026-11-20T00:00:00.000000Z",
        "data": data(QUESTION, arguments(cluster)),
        "origin": queue_of(cluster, "interactive"),
        "status": "queued",
        **more,
    }


def arguments(cluster: str, told: Sequence[str] = words(1)) -> list[Any]:
    return [cluster, "interactive", list(told), "ann", "what-if", ""]


QUESTION = "arranger.workers.analysis.answer"
LONG = ["what-if", "--output=json", *["--without=" + "x" * 200] * 250, "--"]

FORGED: dict[str, Any] = {
    "os.system": lambda cluster, file: good(cluster, data=data("os.system", [f"touch {file}"])),
    "a pickle": lambda cluster, file: good(cluster, data=pickled(file)),
    "a pickle as meta": lambda cluster, file: good(cluster, meta=pickled(file)),
    "a callback": lambda cluster, _: good(cluster, success_callback_name="os.abort"),
    "dependencies": lambda cluster, _: good(cluster, dependency_ids='["other"]'),
    "another command": lambda cluster, _: good(cluster, data=data(QUESTION, arguments(cluster, ["run", "--"]))),
    "a log of its own": lambda cluster, file: good(
        cluster, data=data(QUESTION, arguments(cluster, ["what-if", "--output=json", f"--log={file}", "--"]))
    ),
    "a file": lambda cluster, file: good(
        cluster, data=data(QUESTION, arguments(cluster, ["what-if", "--output=json", f"--with={file}", "--"]))
    ),
    "other arguments": lambda cluster, _: good(cluster, data=data(QUESTION, [cluster, {"a": 1}])),
    "another cluster's": lambda cluster, _: good(cluster, data=data(QUESTION, arguments("another"))),
    "a tick": lambda cluster, _: good(
        cluster, data=data("arranger.workers.members.ticks.handle_tick", [cluster, "cycle"])
    ),
    "one of another queue": lambda cluster, _: good(cluster, origin=queue_of(cluster, "report")),
    "one that nobody asked": lambda cluster, _: good(cluster),
    "too many words": lambda cluster, _: good(cluster, data=data(QUESTION, arguments(cluster, ["x"] * 300))),
    "oversized": lambda cluster, _: good(cluster, description="x" * (1 << 20)),
    "a question with too many values": lambda cluster, _: good(cluster, data=data(QUESTION, arguments(cluster, LONG))),
}


async def test_forged_questions_run_nothing_and_are_dropped_and_counted(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    file = tmp_path / "canary"
    async with scene_of(redis_server, cluster, tmp_path) as scene:
        list_key = f"rq:queue:{queue_of(cluster, 'interactive')}"
        for number, name in enumerate(FORGED):
            scene.redis.hset(f"rq:job:{cluster}-{number}", mapping=FORGED[name](cluster, file))
            scene.redis.rpush(list_key, f"{cluster}-{number}")
        scene.start()
        await scene.ended(await scene.ask(1))
        assert scene.lines() == ["1"] and not file.exists()
        dropped = f'arranger_questions_dropped_total{{queue="interactive"}} {float(len(FORGED))}'
        assert dropped.encode() in scene.metrics.exposition()


@pytest.mark.parametrize("writer", [UNKEYED, OTHER])
async def test_a_question_without_a_signature_is_not_answered(
    redis_server: RealRedis, cluster: str, tmp_path: Path, writer: LogKeys
) -> None:
    async with scene_of(redis_server, cluster, tmp_path, KEYED) as scene, connected(redis_server) as client:
        await WorkQueue(client, cluster=cluster, clock=SystemClock(), keys=writer).ask(
            words(7), user="eve", kind="what-if"
        )
        scene.start()
        await scene.ended(await scene.ask(1))
        assert scene.lines() == ["1"]


async def test_a_question_that_was_answered_and_is_put_back_is_not_answered_again(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    async with scene_of(redis_server, cluster, tmp_path, KEYED) as scene:
        scene.start()
        job_id = await scene.ask(1)
        await scene.ended(job_id)
        scene.redis.hset(f"rq:job:{job_id}", "status", "queued")
        scene.redis.rpush(f"rq:queue:{queue_of(cluster, 'interactive')}", job_id)
        await scene.ended(await scene.ask(6))
        assert scene.lines() == ["1", "6"]
