"""Analysts as processes: users take turns, and a question whose analyst is killed is answered by the other one."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from arranger.clock import SystemClock
from arranger.events.log_keys import UNKEYED
from arranger.workers.analysis.work_queue import Work, WorkQueue
from tests.e2e.harness import Worker, eventually
from tests.e2e.test_archive_killed import Filling
from tests.members import connected
from tests.servers import RealRedis

pytestmark = pytest.mark.timeout(180)


def analyst(name: str, url: str, cluster: str, folder: Path) -> Worker:
    environment = {"ARRANGER_HEARTBEAT_S": "1", "ARRANGER_DRAIN_S": "5"}
    arguments = ["analyst", "--redis", url, "--cluster", cluster, "--http-port", "0"]
    worker = Worker(name, arguments, folder=folder, environment=environment)
    worker.start()
    return worker


def children(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(each.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(each.parent.name))
    return found


async def test_two_users_are_answered_in_turn_and_a_killed_analyst_loses_nothing(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(Filling(redis_server.url, cluster).append, 40)
    async with connected(redis_server) as client:
        queue = WorkQueue(client, cluster=cluster, clock=SystemClock(), keys=UNKEYED)

        async def ask(at: int, user: str) -> str:
            words = ["replay", "--output=json", f"--at={at}", "--"]
            return await queue.ask(words, user=user, kind="replay")

        async def ended(job_id: str) -> Work:
            while (found := await queue.work(job_id)) is None or found.state in ("waiting", "running"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return found

        ids = [await ask(10, "ann"), await ask(20, "ann"), await ask(30, "bob")]
        workers = [analyst("first", redis_server.url, cluster, tmp_path)]
        try:
            async with asyncio.timeout(60):
                found = [await ended(each) for each in ids]
            assert [one.state for one in found] == ["done"] * 3
            assert [one.user for one in sorted(found, key=lambda one: one.began_ms)] == ["ann", "bob", "ann"]
            for each in ids:
                answer = await queue.result(each)
                assert answer is not None and answer.status == 0 and b"{" in answer.out
            metrics = await asyncio.to_thread(workers[0].metrics)
            assert metrics['arranger_questions_total{kind="replay",result="done"}'] == 3

            killed = await ask(40, "bob")
            async with asyncio.timeout(30):
                while not (begun := await asyncio.to_thread(children, workers[0].pid)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            os.kill(begun[0], signal.SIGSTOP)  # so that it is being answered when its analyst dies
            workers[0].kill()
            os.kill(begun[0], signal.SIGKILL)
            began_s = time.monotonic()
            workers.append(analyst("second", redis_server.url, cluster, tmp_path))
            async with asyncio.timeout(90):
                after = await ended(killed)
            print("answered after", round(time.monotonic() - began_s, 1), file=sys.stderr)
            assert (after.state, after.tries) == ("done", 2)
            eventually("the metric", lambda: workers[1].metrics()["arranger_questions_retried_total"] == 1)
            assert workers[1].stop() == 0
            assert await queue.analysts() in (0, 1)  # the killed one is forgotten after 20 s
        finally:
            for worker in workers:
                worker.close()
