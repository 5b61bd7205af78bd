"""A process that archives is killed again and again: archiving continues, and no event is missing or duplicated."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry, entries
from arranger.events.open_log import open_log
from arranger.events.redis_log import RedisLog
from arranger.events.segments import SegmentName, parsed_name
from tests.e2e.harness import REPOSITORY, Worker, arranger, eventually
from tests.servers import RealRedis

EVERY = 200
KILLS = 5


class Filling:
    """A growing log that remembers the appended batches."""

    def __init__(self, url: str, cluster: str) -> None:
        self._url = url
        self._cluster = cluster
        self._seq = 0
        self.appended: list[k.Batch] = []

    def append(self, batches: int) -> None:
        """Append batches. The first one completes the listings, so that snapshots are stored and the log is trimmed."""
        asyncio.run(self._append(batches))

    async def _append(self, batches: int) -> None:
        log = RedisLog(self._url, self._cluster)
        epoch = (await log.open()).epoch
        for _ in range(batches):
            self._seq += 1
            events: Sequence[k.Event] = [
                k.ObjectGone(k.Watched.NODE, 1, "", f"n{self._seq}-{number}", "uid") for number in range(7)
            ]
            if self._seq <= len(k.Watched):
                kind = list(k.Watched)[self._seq - 1]
                term = (await log.end()).offset + 1
                events = (k.WatchClaimed(kind, "w"), k.ListingBegun(kind, term), k.ListingEnded(kind, term, "1"))
            batch = k.Batch("w", self._seq, 1_700_000_000_000 + self._seq, tuple(events))
            await log.append(batch, epoch=epoch)
            self.appended.append(batch)
        await log.close()


async def _whole(url: str, cluster: str, archive: Path) -> list[Entry]:
    log = await open_log(url, cluster, archive=str(archive))
    try:
        return [entry async for entry in entries(log, await log.start())]
    finally:
        await log.close()


def _segments(folder: Path) -> list[SegmentName]:
    names = [parsed_name(path.name) for path in folder.iterdir()] if folder.exists() else []
    return sorted((name for name in names if isinstance(name, SegmentName)), key=lambda name: name.first)


def test_an_archiving_process_killed_at_any_moment_leaves_an_archive_that_goes_on(
    redis_server: RealRedis, cluster: str, tmp_path: Path
) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}/0"
    archive = tmp_path / "archive"
    folder = archive / cluster
    settings = {
        "ARRANGER_CLUSTER": cluster,
        "ARRANGER_LEASE_S": "2",
        "ARRANGER_HEARTBEAT_S": "0.5",
        "ARRANGER_SNAPSHOT_EVERY_S": "2",
        "ARRANGER_UPGRADE_GRACE_S": "0",
        "ARRANGER_KEEP_EVENTS": "1000",
        "ARRANGER_ARCHIVE_URL": str(archive),
        "ARRANGER_ARCHIVE_EVERY_EVENTS": str(EVERY),
    }
    arguments = ["maintenance", "--redis", url, "--http-port", "0"]
    worker = Worker("archiving", arguments, folder=tmp_path, environment=settings)
    filling = Filling(url, cluster)
    chance = random.Random(4)
    filling.append(700)
    try:
        for _ in range(KILLS):
            files = len(list(folder.glob("*")))
            worker.start()
            desired = files + chance.randint(1, 7)
            eventually(
                "more is archived", lambda desired=desired: len(list(folder.glob("*"))) >= desired, every_s=0.001
            )
            time.sleep(chance.random() / 20)
            worker.kill()
            filling.append(300)
        worker.start()
        events = sum(len(batch.events) for batch in filling.appended) + 1

        def all_there() -> bool:
            names = _segments(folder)
            return bool(names) and events - names[-1].last < EVERY

        eventually("the archive has caught up", all_there)
        eventually("the log is trimmed behind it", lambda: _start(url, cluster) > 1_000)
        worker.stop()
    finally:
        worker.close()
    names = _segments(folder)
    assert [name.first for name in names] == [1, *(name.last + 1 for name in names[:-1])], "no gap, nothing twice"
    found = asyncio.run(_whole(url, cluster, archive))
    assert [entry.batch for entry in found[1:]] == filling.appended


def _start(url: str, cluster: str) -> int:
    async def read() -> int:
        log = RedisLog(url, cluster, read_only=True)
        try:
            return (await log.start()).offset
        finally:
            await log.close()

    return asyncio.run(read())


#: Runs a command whose export is killed at one call, of the file's writer or of the system.
KILLED = """
import os, signal, sys
from arranger.cli.main import main
from arranger.events import blob_stores

where, at, arguments = getattr(blob_stores, sys.argv[1]), sys.argv[2], sys.argv[4:]
calls, real = iter(range(int(sys.argv[3]))), getattr(where, at)

def fatal(*given, **named):
    if next(calls, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)

setattr(where, at, fatal)
main(arguments, prog_name="arranger")
"""


@pytest.mark.parametrize(
    ("site", "there"),
    [
        (("ZipWriter", "put", "0"), False),
        (("ZipWriter", "put", "1"), False),
        (("os", "link", "0"), False),
        (("Path", "unlink", "0"), True),
    ],
    ids=["at its first file", "at its second", "before it is there", "when it is there"],
)
def test_an_export_killed_at_any_step_is_there_whole_or_not_at_all(
    redis_server: RealRedis, cluster: str, tmp_path: Path, site: tuple[str, str, str], there: bool
) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}/0"
    filling = Filling(url, cluster)
    filling.append(50)
    target = tmp_path / "log.arranger"
    command = ["export", "--log", url, "--cluster", cluster, "--to", str(target)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *site, *command], cwd=REPOSITORY, check=False)
    assert (killed.returncode, target.exists()) == (-signal.SIGKILL, there)
    kept, then = tmp_path / "kept.arranger", list(filling.appended)
    if there:
        target.rename(kept)
    filling.append(10)
    assert arranger(*command).returncode == 0
    assert _batches(target, cluster) == filling.appended
    assert not there or _batches(kept, cluster) == then
    assert len(list(tmp_path.glob("*.part"))) == 1, "what the killed one left"


def _batches(target: Path, cluster: str) -> list[k.Batch]:
    return [entry.batch for entry in asyncio.run(_whole(str(target), cluster, Path()))[1:]]
