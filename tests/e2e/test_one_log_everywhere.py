"""The state at any point equals the worker's state there: from stream and archive, the archive alone, and an export."""

import asyncio
import random
from pathlib import Path

from arranger.cli.inputs.reading import begin, feed
from arranger.cli.main import main
from arranger.clock import SystemClock
from arranger.events.blob_stores import FolderStore
from arranger.events.log import Log, StoredSnapshot
from arranger.events.open_log import open_log
from arranger.events.redis_log import RedisLog
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.projections.state import Changes
from arranger.replay.reading.history import Journey, Point
from arranger.workers.log.archive_writer import ArchiveWriter
from arranger.workers.log.follower import Follower
from arranger.workers.maintaining.archive_role import ArchiveRole
from tests.parts import parts
from tests.random_worlds import _STEPS, live_through
from tests.servers import RealRedis
from tests.world import World

CLUSTER = "everywhere"
POINTS = 200


class Alone:
    async def acquire(self) -> bool:
        return True


class Recorder:
    """Records the digest of a worker's state after every fold."""

    def __init__(self, follower: Follower) -> None:
        self.digests: dict[int, str] = {}
        self._follower = follower

    def changed(self, _: Changes) -> None:
        state = self._follower.state
        self.digests[state.offset] = snapshot.digest(state)

    def epoch_began(self) -> None:
        self.digests.clear()


def _world() -> World:
    """A world with about two thousand events."""
    chance = random.Random(11)
    names = sorted(_STEPS)
    return live_through([(chance.choice(names), chance.randrange(12), chance.randrange(12)) for _ in range(1100)])


async def _lived(url: str, folder: Path, world: World) -> dict[int, str]:
    """Append the world's log to Redis while it is followed, archived and trimmed. Returns the follower's digests."""
    log = RedisLog(url, CLUSTER, now_ms=lambda: 1)
    await log.open()
    clock = SystemClock()
    metrics = Metrics(clock)
    follower = Follower(RedisLog(url, CLUSTER), clock=clock, metrics=metrics, reader="test")
    recorder = Recorder(follower)
    follower.listen(recorder)
    await follower.start()
    archiving = ArchiveRole(
        parts(
            follower=follower,
            stream=log,
            lease=Alone(),
            clock=clock,
            metrics=metrics,
            settings={"archive_every_events": 150, "archive_every_s": 1e9},
        ),
        ArchiveWriter(FolderStore(folder / CLUSTER), every_events=150),
    )
    archived = 0
    for entry in world.entries[1:]:  # the log itself began its epoch
        await log.append(entry.batch, epoch=1)
        while await follower._step(wait_s=0.0):
            pass
        assert await archiving.once()
        if metrics.archived._value.get() > archived:
            content = snapshot.encode(follower.state)
            await log.put_snapshot(StoredSnapshot(follower.position, content))
            if archived:
                await log.trim(archived, epoch=1)
            archived = int(metrics.archived._value.get())
    for one in (log, follower.log):
        await one.close()
    return recorder.digests


async def _digest(log: Log, offset: int) -> str:
    point = Point(offset=offset)
    state, position = await begin(log, point)
    journey = Journey(state, point)
    await feed(log, position, journey.feed, until=point, doing="")
    return snapshot.digest(journey.state)


async def _compare(target: str, archive: str, digests: dict[int, str], points: list[int]) -> None:
    log = await open_log(target, CLUSTER, archive=archive)
    try:
        for offset in points:
            assert await _digest(log, offset) == digests[offset], f"offset {offset} from {target}"
    finally:
        await log.close()


def test_the_state_at_200_random_points_is_the_one_that_a_worker_had_there(
    redis_server: RealRedis, tmp_path: Path
) -> None:
    redis_server.command("FLUSHDB")
    folder, export = tmp_path / "archive", tmp_path / "run.arranger"
    digests = asyncio.run(_lived(redis_server.url, folder, _world()))
    log = ["--log", redis_server.url, "--cluster", CLUSTER, "--archive", str(folder)]
    assert main(["export", *log, "--to", str(export)], prog_name="arranger") == 0
    assert len([name for name in (folder / CLUSTER).iterdir() if name.suffix == ".events"]) > 5
    chance = random.Random(3)
    points = chance.sample(sorted(digests), POINTS)
    archived = asyncio.run(_end(str(folder)))
    asyncio.run(_compare(redis_server.url, str(folder), digests, points))
    asyncio.run(_compare(str(export), "", digests, points))
    asyncio.run(
        _compare(str(folder), "", digests, chance.sample([p for p in sorted(digests) if p <= archived], POINTS))
    )
    start = asyncio.run(_stream_start(redis_server.url))
    assert 0 < start < archived, "the stream was trimmed, and only what the archive has"
    redis_server.command("FLUSHDB")


async def _end(target: str) -> int:
    log = await open_log(target, CLUSTER)
    try:
        return (await log.end()).offset
    finally:
        await log.close()


async def _stream_start(url: str) -> int:
    log = await open_log(url, CLUSTER)
    try:
        return (await log.start()).offset
    finally:
        await log.close()
