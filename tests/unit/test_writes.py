"""Whether Redis accepts a process's writes, by its appends and heartbeats, and by its memory."""

import asyncio
import random
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from arranger.errors import LogUnavailable, WritesRefused
from arranger.metrics import Metrics
from arranger.workers.members.writes import Writes
from tests.simulation.loop import SimulatedClock, VirtualLoop

FULL = WritesRefused("Redis can't do that now: OOM")
MIB = 2**20


class Server:
    """What a server says of its memory."""

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {"maxmemory": 0, "used_memory": 10 * MIB, "maxmemory_policy": "noeviction"}
        self.fails: Exception | None = None
        self.asked = 0

    async def info(self, section: str) -> dict[str, Any]:
        assert section == "memory"
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        return self.memory


class Scene:
    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(1))
        clock = SimulatedClock(self.loop)
        self.writes, self.server = Writes(Metrics(clock), clock), Server()

    def look(self, **memory: Any) -> bool:
        """Look a second later at a server with this memory; returns whether writes are refused."""
        self.server.memory |= memory

        async def later() -> None:
            await asyncio.sleep(1.0)
            server: Any = self.server
            await self.writes.look(server)

        self.loop.run_until_complete(later())
        return self.writes.problem is not None


@pytest.fixture
def scene() -> Any:
    made = Scene()
    yield made
    made.loop.close()


def test_a_full_server_is_known_to_a_process_whose_heartbeats_it_accepts(scene: Scene) -> None:
    assert not scene.look(maxmemory=100 * MIB, used_memory=99 * MIB)
    for _ in range(30):
        assert scene.look(used_memory=100 * MIB - 1000)
        scene.writes.taken()
        assert scene.look(used_memory=100 * MIB - 400_000)  # a client's buffers have gone
        scene.writes.taken()
        assert scene.writes.problem is not None
    assert scene.look(used_memory=98 * MIB)  # nothing was written since
    scene.writes.taken()
    assert scene.writes.problem is None


def test_what_is_not_counted_for_the_limit_makes_no_server_full(scene: Scene) -> None:
    assert not scene.look(maxmemory=100 * MIB, used_memory=101 * MIB, mem_not_counted_for_evict=5 * MIB)


def test_a_server_that_may_evict_is_full_once_it_refuses(scene: Scene) -> None:
    assert not scene.look(maxmemory=100 * MIB, used_memory=100 * MIB, maxmemory_policy="volatile-ttl")
    scene.writes.failed(FULL)
    assert scene.look()
    scene.writes.taken()
    assert scene.writes.problem is FULL


@pytest.mark.parametrize("trouble", ["READONLY", "OOM"])
def test_a_refusal_ends_with_a_write_that_is_accepted_after_memory_was_seen(scene: Scene, trouble: str) -> None:
    scene.writes.failed(WritesRefused(trouble))
    scene.writes.taken()
    assert scene.writes.problem is not None
    assert scene.look()
    scene.writes.taken()
    assert scene.writes.problem is None


def test_without_a_look_the_writes_alone_tell(scene: Scene) -> None:
    scene.writes.failed(LogUnavailable("Redis doesn't answer"))
    assert scene.writes.problem is None
    scene.writes.failed(FULL)
    scene.server.fails = RedisConnectionError("gone")
    assert scene.look()
    scene.writes.taken()
    assert scene.writes.problem is FULL
    scene.server.fails = NoPermissionError("this user has no permissions to run the 'info' command")
    assert scene.look()
    scene.writes.taken()
    assert scene.writes.problem is None


def test_the_memory_is_looked_at_once_a_second(scene: Scene) -> None:
    async def often() -> None:
        for _ in range(100):
            await asyncio.sleep(0.1)
            server: Any = scene.server
            await scene.writes.look(server)

    scene.loop.run_until_complete(often())
    assert 9 <= scene.server.asked <= 11
