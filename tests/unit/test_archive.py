"""The archive: what goes in comes out the same, in one log with the stream, and what is damaged or lacks is named."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.cli.inputs import reading
from arranger.clock import SystemClock
from arranger.errors import DamagedEntry, EntriesTrimmed, EpochLost, LogError, LogUnavailable, UsageError
from arranger.events import kinds as k
from arranger.events import segments
from arranger.events.archive import ArchiveLog
from arranger.events.blob_stores import BlobStore, FolderStore, RemoteStore
from arranger.events.codec import StoredEntry, encode_batch
from arranger.events.log import Entry, Log, Position, StoredSnapshot, entries
from arranger.events.log_keys import next_chain
from arranger.events.open_log import open_log
from arranger.events.segments import SegmentName, SnapshotName, encode_segment, encode_snapshot_file, parsed_name
from arranger.events.tiered_log import TieredLog
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.history import END
from arranger.workers.log.archive_writer import ArchiveWriter
from arranger.workers.log.follower import Follower
from arranger.workers.maintaining.archive_role import AGAIN_S, PERIOD_S, ArchiveRole
from arranger.workers.maintaining.layout_guard import LayoutGuard
from arranger.workers.maintaining.maintenance import Maintenance
from arranger.workers.members.membership import Member
from arranger.workers.members.problems import MemberProblem, MemberProblems, ProblemKind
from tests.members import HandClock
from tests.memory_log import MemoryHome, MemoryLog
from tests.parts import parts

TOLD_MS = 1_700_000_000_000


async def filled(count: int, *, seed: int = 1, trim: int = 0) -> MemoryLog:
    """A log with `count` batches of one to four events, of nodes that come and go."""
    log = MemoryLog(MemoryHome(), now_ms=lambda: TOLD_MS)
    begun = await log.open()
    chance = random.Random(seed)
    for seq in range(1, count + 1):
        names = [f"n{chance.randrange(99)}" for _ in range(chance.randint(1, 4))]
        batch = k.Batch(
            "w", seq, TOLD_MS + 10 * seq, tuple(k.ObjectGone(k.Watched.NODE, 1, "", name, "uid") for name in names)
        )
        await log.append(batch, epoch=begun.epoch)
    if trim:
        await log.trim(trim, epoch=begun.epoch)
    return log


def source_of(log: MemoryLog) -> Any:
    async def read(after: Position, limit: int) -> Sequence[StoredEntry]:
        return await log.read_stored(after, limit=limit)

    return read


async def archived(log: MemoryLog, blob_store: BlobStore, *, every: int = 20, until: int | None = None) -> int:
    """Archive what the archive hasn't got yet; answers how many stretches that were."""
    archive_writer = ArchiveWriter(blob_store, every_events=every)
    epoch = (await log.end()).epoch
    begin = await archive_writer.end(epoch) or await log.start()
    last = (await log.end()).offset if until is None else until
    return len([put async for put in archive_writer.archive(source_of(log), begin, last)])


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def segments_in(folder: Path) -> list[SegmentName]:
    names = [parsed_name(path.name) for path in files_in(folder)]
    return [name for name in names if isinstance(name, SegmentName)]


async def whole(log: Log) -> list[Entry]:
    return [entry async for entry in entries(log, await log.start())]


async def opened(blob_store: BlobStore, epoch: int | None = None) -> ArchiveLog:
    log = ArchiveLog(blob_store, epoch=epoch)
    await log.open()
    return log


# --- what is in it ---------------------------------------------------------------------------------------------


def test_a_name_says_what_is_in_the_file_and_is_read_back() -> None:
    for name in (SegmentName(1, 1, 20, 0, 5), SegmentName(TOLD_MS, 10**13, 10**13 + 4, 1, 2), SnapshotName(3, 4, 5)):
        assert parsed_name(name.file) == name
    assert parsed_name(SegmentName(1, 1, 20, 0, 5).file + ".0af3.part") is None
    assert parsed_name("notes.txt") is None


@pytest.mark.parametrize("place", ["folder", "memory"])
async def test_what_was_archived_is_read_as_it_was(tmp_path: Path, place: str) -> None:
    log = await filled(100)
    blob_store: BlobStore = (
        FolderStore(tmp_path / "a") if place == "folder" else RemoteStore(f"memory://{tmp_path.name}/a")
    )
    assert await archived(log, blob_store) > 5
    archive = await opened(blob_store)
    assert (await archive.start(), await archive.end()) == (await log.start(), await log.end())
    assert await whole(archive) == await whole(log)
    after = await log.start()
    for entry in await whole(log):
        limit = entry.last % 7 + 1
        assert next(iter(await archive.read(after, limit=limit))) == entry
        assert (
            await archive.read_stored(after, limit=limit)
            == (await log.read_stored(after, limit=limit))[: len(await archive.read_stored(after, limit=limit))]
        )
        after = Position(after.epoch, entry.last, entry.chain)
    assert await archive.read(await archive.end()) == []
    await archive.close()


async def test_a_file_has_at_least_the_events_asked_for_and_its_name_tells_what_it_holds(tmp_path: Path) -> None:
    log = await filled(100)
    await archived(log, FolderStore(tmp_path))
    names = segments_in(tmp_path)
    told = {entry.last: entry.batch.time_ms for entry in await whole(log)}
    assert names[0].first == 1 and names[-1].last == (await log.end()).offset
    for name, following in zip(names, [*names[1:], None], strict=True):
        assert 20 <= name.last - name.first + 1 < 50
        assert name.last_time_ms == told[name.last]
        assert following is None or following.first == name.last + 1


async def test_every_stretch_ends_with_a_snapshot_of_the_state_there(tmp_path: Path) -> None:
    log = await filled(60)
    segments = await archived(log, FolderStore(tmp_path))
    archive = await opened(FolderStore(tmp_path))
    marks = await archive.snapshot_marks()
    assert len(marks) == segments
    state = State()
    for entry in await whole(log):
        apply_entry(state, entry, Changes())
        stored = await archive.newest_snapshot(at_most=entry.last)
        if entry.last in {mark.offset for mark in marks}:
            assert stored is not None and stored.position == Position(state.epoch, entry.last, entry.chain)
            assert stored.content == snapshot.encode(state)
            assert (entry.last, state.time_ms) in {(mark.offset, mark.time_ms) for mark in marks}
        assert (stored is None) == (entry.last < marks[0].offset)
    await archive.close()


async def test_positions_that_are_not_in_it_are_refused_as_a_log_does(tmp_path: Path) -> None:
    log = await filled(60, trim=30)
    await archived(log, FolderStore(tmp_path))
    archive = await opened(FolderStore(tmp_path))
    start, end = await archive.start(), await archive.end()
    first = (await archive.read(start))[0]
    with pytest.raises(EntriesTrimmed):
        await archive.read(Position(start.epoch, start.offset - 1, ""))
    for lost in (
        Position(end.epoch, end.offset + 1, ""),
        Position(end.epoch + 1, end.offset, end.chain),
        Position(first.last, first.last, "0" * 40),
        Position(start.epoch, first.last, "0" * 40),
    ):
        with pytest.raises(EpochLost):
            await archive.read(lost)
    for write in (
        archive.append(first.batch, epoch=1),
        archive.trim(9, epoch=1),
        archive.put_snapshot(StoredSnapshot(end, b"")),
        archive.begin_epoch(lost=1, reason="", time_ms=1),
    ):
        with pytest.raises(LogError, match="reading only"):
            await write
    await archive.close()


async def test_a_long_file_is_read_from_its_middle_once_it_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(400)
    await archived(log, FolderStore(tmp_path), every=400)
    assert len(segments_in(tmp_path)) > 1
    archive = await opened(FolderStore(tmp_path))
    found, epoch = await whole(archive), (await archive.end()).epoch
    number = random.Random(2).sample(range(len(found) - 1), 40)
    hashed: list[str] = []

    def counted(before: str, payload: bytes) -> str:
        hashed.append(before)
        return next_chain(before, payload)

    monkeypatch.setattr(segments, "next_chain", counted)
    for each in number:
        read = await archive.read(Position(epoch, found[each].last, found[each].chain), limit=1)
        assert read == found[each + 1 : each + 2]
        with pytest.raises(EpochLost):
            await archive.read(Position(epoch, found[each].last, "0" * 40), limit=1)
    assert len(hashed) <= 66 * len(number)
    await archive.close()


async def test_archiving_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    log = await filled(100)
    await archived(log, FolderStore(tmp_path), until=(await log.read(await log.start()))[30].last)
    before = {path.name: path.read_bytes() for path in files_in(tmp_path)}
    await archived(log, FolderStore(tmp_path))
    assert before.items() <= {path.name: path.read_bytes() for path in files_in(tmp_path)}.items()
    archive = await opened(FolderStore(tmp_path))
    assert await whole(archive) == await whole(log)
    await archive.close()


async def test_two_that_archive_at_once_with_other_bounds_harm_nothing(tmp_path: Path) -> None:
    log = await filled(200)
    for every in (50, 20, 70, 23):
        archive_writer = ArchiveWriter(FolderStore(tmp_path), every_events=every)
        begin, end = await log.start(), await log.end()
        assert [put async for put in archive_writer.archive(source_of(log), begin, end.offset)]
        archive = await opened(FolderStore(tmp_path))
        assert await whole(archive) == await whole(log)
        await archive.close()


class Failing(FolderStore):
    """Fails at the n-th file, half written."""

    def __init__(self, folder: Path, fail_at: int) -> None:
        super().__init__(folder)
        self._left = fail_at

    def put(self, name: str, content: bytes) -> None:
        self._left -= 1
        if self._left == 0:
            (self.folder / f"{name}.dead.part").write_bytes(content[: len(content) // 2])
            raise LogUnavailable("the archive is away")
        super().put(name, content)


async def test_after_a_crash_at_any_file_archiving_goes_on_and_nothing_lacks(tmp_path: Path) -> None:
    log = await filled(60)
    for number in range(1, 12):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(LogUnavailable):
            await archived(log, Failing(folder, number))
        await archived(log, FolderStore(folder))
        archive = await opened(FolderStore(folder))
        assert await whole(archive) == await whole(log)
        for mark in await archive.snapshot_marks():
            stored = await archive.newest_snapshot(at_most=mark.offset)
            assert stored is not None and stored.position.offset == mark.offset
        await archive.close()


# --- damage ----------------------------------------------------------------------------------------------------


async def test_any_damaged_byte_is_noticed_and_the_file_named(tmp_path: Path) -> None:
    log = await filled(60)
    await archived(log, FolderStore(tmp_path))
    chance = random.Random(5)
    for path in files_in(tmp_path):
        content = path.read_bytes()
        for at in {0, 5, 30, len(content) - 1, *(chance.randrange(len(content)) for _ in range(25))}:
            path.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
            assert path.name in await _problem(tmp_path)
        path.write_bytes(content[:-1])
        assert path.name in await _problem(tmp_path)
        path.write_bytes(content)
    assert await _problem(tmp_path) == ""


async def _problem(folder: Path) -> str:
    """What is wrong, as reading everything finds it."""
    archive = ArchiveLog(FolderStore(folder))
    try:
        await archive.open()
        await whole(archive)
        for mark in await archive.snapshot_marks():
            await archive.newest_snapshot(at_most=mark.offset)
    except DamagedEntry as damage:
        return str(damage)
    finally:
        await archive.close()
    return ""


async def test_a_missing_stretch_is_named_after_what_is_before_it_was_read(tmp_path: Path) -> None:
    log = await filled(100)
    await archived(log, FolderStore(tmp_path))
    names = segments_in(tmp_path)
    (tmp_path / names[2].file).unlink()
    archive = await opened(FolderStore(tmp_path))
    read: list[Entry] = []
    with pytest.raises(DamagedEntry, match=f"lacks offsets {names[2].first} to {names[2].last}") as raised:
        async for entry in entries(archive, await archive.start()):
            read.append(entry)
    assert raised.value.offset == names[2].first
    assert read[-1].last == names[1].last
    await archive.close()


async def test_a_stretch_that_goes_while_it_is_read_is_named(tmp_path: Path) -> None:
    log = await filled(100)
    await archived(log, FolderStore(tmp_path))
    archive = await opened(FolderStore(tmp_path))
    last = archive.contents.segments[-1]
    (tmp_path / last.file).unlink()
    with pytest.raises(DamagedEntry, match=last.file):
        await whole(archive)
    await archive.close()


async def test_an_altered_entry_of_a_whole_file_is_found_by_its_chain(tmp_path: Path) -> None:
    log = await filled(40)
    begin = await log.start()
    stored = list(await log.read_stored(begin))
    altered = k.Batch(
        "w", 5, 1, tuple(k.ObjectGone(k.Watched.NODE, 1, "", "another", "uid") for _ in range(stored[5].count))
    )
    stored[5] = msgspec.structs.replace(stored[5], payload=encode_batch(altered))
    name, content = encode_segment(begin, stored, (1, 2))
    FolderStore(tmp_path).put(name, content)
    archive = await opened(FolderStore(tmp_path))
    with pytest.raises(DamagedEntry, match="chain"):
        await whole(archive)
    await archive.close()


# --- opening ---------------------------------------------------------------------------------------------------


async def test_an_archive_is_opened_by_its_folder_the_cluster_s_folder_or_a_url(tmp_path: Path) -> None:
    log = await filled(60)
    await archived(log, FolderStore(tmp_path / "prod"))
    url = f"memory://opened-{tmp_path.name}"
    await archived(log, RemoteStore(f"{url}/prod"))
    for target in (str(tmp_path), f"file://{tmp_path}", str(tmp_path / "prod"), url):
        archive = await open_log(target, "prod")
        assert await whole(archive) == await whole(log)
        await archive.close()
    for target in (str(tmp_path / "empty"), url):
        with pytest.raises(UsageError):
            await open_log(target, "staging")


async def test_the_newest_epoch_is_read_unless_another_is_asked_for(tmp_path: Path) -> None:
    log = await filled(30)
    first = await whole(log)
    await archived(log, FolderStore(tmp_path / "c"))
    old = (await log.end()).epoch
    await log.begin_epoch(lost=old, reason="test", time_ms=0)
    await archived(log, FolderStore(tmp_path / "c"))
    for epoch, found in ((None, await whole(log)), (old, first), (old + 1, await whole(log))):
        archive = await open_log(str(tmp_path), "c", epoch=epoch)
        assert await whole(archive) == found
        await archive.close()
    with pytest.raises(UsageError, match=f"it has {old}, {old + 1}"):
        await open_log(str(tmp_path), "c", epoch=7)


# --- together with the stream ----------------------------------------------------------------------------------


async def test_a_trimmed_log_and_its_archive_read_as_one(tmp_path: Path) -> None:
    log = await filled(100)
    everything = await whole(log)
    blob_store = FolderStore(tmp_path)
    await archived(log, blob_store, until=everything[60].last)
    await log.trim(everything[50].last, epoch=everything[0].batch.events[0].epoch)  # type: ignore[union-attr]
    joined = TieredLog(log, blob_store)
    assert await joined.start() == Position((await log.end()).epoch, 0, "")
    assert await whole(joined) == everything
    assert await joined.end() == await log.end()
    await joined.close()


async def test_it_is_read_as_one_while_it_is_archived_and_trimmed(tmp_path: Path) -> None:
    log = await filled(200)
    everything = await whole(log)
    blob_store = FolderStore(tmp_path)
    joined = TieredLog(log, blob_store)
    read: list[Entry] = []
    async for entry in entries(joined, await joined.start()):
        read.append(entry)
        if len(read) % 40 == 0:
            await archived(log, blob_store, until=everything[min(len(read) + 45, 199)].last)
            await log.trim(everything[min(len(read) + 40, 199)].last, epoch=joined_epoch(entry, everything))
    assert read == everything
    await joined.close()


async def test_an_archive_that_comes_later_and_that_of_another_epoch_are_found(tmp_path: Path) -> None:
    log = await filled(60)
    everything = await whole(log)
    epoch = joined_epoch(everything[0], everything)
    kept, blob_store = FolderStore(tmp_path / "copy"), FolderStore(tmp_path / "used")
    await archived(log, kept, until=everything[40].last)
    await log.trim(everything[30].last, epoch=epoch)
    joined = TieredLog(log, blob_store)
    assert await joined.start() == await log.start()
    shutil.copytree(tmp_path / "copy", tmp_path / "used", dirs_exist_ok=True)  # somebody restores it
    assert await whole(joined) == everything

    epoch = (await log.begin_epoch(lost=epoch, reason="a test", time_ms=TOLD_MS)).epoch
    for seq in range(1, 4):
        await log.append(k.Batch("w", seq, TOLD_MS, (k.ObjectGone(k.Watched.NODE, 1, "", "n", "u"),)), epoch=epoch)
    of_new = await whole(log)
    await archived(log, blob_store, until=of_new[2].last)
    await log.trim(of_new[1].last, epoch=epoch)
    assert await whole(joined) == of_new
    await joined.close()


def joined_epoch(_: Entry, everything: list[Entry]) -> int:
    begun = everything[0].batch.events[0]
    assert isinstance(begun, k.EpochBegun)
    return begun.epoch


async def test_a_gap_between_the_archive_and_the_stream_is_named(tmp_path: Path) -> None:
    log = await filled(100)
    everything = await whole(log)
    blob_store = FolderStore(tmp_path)
    await archived(log, blob_store, until=everything[30].last)
    await log.trim(everything[50].first, epoch=joined_epoch(everything[0], everything))
    joined = TieredLog(log, blob_store)
    found = rf"offsets {everything[30].last + 1} to {everything[49].last} were trimmed"
    with pytest.raises(DamagedEntry, match=found) as raised:
        await whole(joined)
    assert raised.value.offset == everything[30].last + 1
    start = await log.start()
    assert [entry async for entry in entries(joined, start)] == everything[50:]
    await joined.close()


async def test_what_the_stream_holds_is_read_while_the_archive_is_away(tmp_path: Path) -> None:
    class Away(FolderStore):
        def names(self) -> list[str]:
            raise LogUnavailable("the archive is away")

    log = await filled(100, trim=100)
    end = await log.end()
    await log.put_snapshot(StoredSnapshot(end, b"x"))
    joined = TieredLog(log, Away(tmp_path))
    assert [entry async for entry in entries(joined, await log.start())] == await whole(log)
    assert await joined.newest_snapshot() == StoredSnapshot(end, b"x")
    with pytest.raises(LogUnavailable):
        await joined.start()


# --- maintenance -----------------------------------------------------------------------------------------------


class Members:
    layout = snapshot.LAYOUT

    async def slowest_offset(self, epoch: int) -> int | None:
        return 1_000_000

    async def live(self) -> tuple[Member, ...]:
        return ()


class Alone:
    def __init__(self) -> None:
        self.mine = True

    async def acquire(self) -> bool:
        return self.mine


class OneEpoch(MemoryLog):
    async def old_epochs(self) -> list[int]:
        return []


class Scene:
    """A log that one process follows, maintains and archives."""

    def __init__(self, blob_store: BlobStore, *, every_events: int = 10, every_s: float = 3600) -> None:
        clock = SystemClock()
        self.metrics = Metrics(clock)
        self.log = OneEpoch(MemoryHome())
        self.alone = Alone()
        self.hands = HandClock()
        self.problems = MemberProblems(self.hands)
        self.follower = Follower(self.log, clock=clock, metrics=self.metrics, reader="test")
        archive_writer = ArchiveWriter(blob_store, every_events=every_events)
        known = parts(
            follower=self.follower,
            membership=Members(),
            clock=clock,
            metrics=self.metrics,
            settings={"snapshot_every_events": 5, "snapshot_every_s": 3600, "keep_events": 0, "upgrade_grace_s": 0},
        )
        self.maintenance = Maintenance(known, LayoutGuard(known), archive_writer)
        self.archiving = ArchiveRole(
            parts(
                follower=self.follower,
                stream=self.log,
                lease=self.alone,
                clock=self.hands,
                metrics=self.metrics,
                problems=self.problems,
                settings={"archive_every_events": every_events, "archive_every_s": every_s},
            ),
            archive_writer,
        )
        self._seq = 0

    async def begin(self) -> None:
        await self.follower.start()
        await self.say(*(k.WatchClaimed(kind, "w") for kind in k.Watched))
        terms = self.follower.state.terms
        await self.say(*(k.ListingEnded(kind, terms[kind], "1") for kind in k.Watched))

    async def say(self, *events: k.Event) -> None:
        self._seq += 1
        time_ms = SystemClock().now_ms()
        await self.log.append(k.Batch("w", self._seq, time_ms, events), epoch=self.follower.state.epoch)
        while await self.follower._step(wait_s=0.0):
            pass

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.say(k.EffectFailed(f"j{number}", 0, "create", None, 500, "", "", permanent=False))


async def test_nothing_is_trimmed_that_the_archive_lacks(tmp_path: Path) -> None:
    scene = Scene(FolderStore(tmp_path), every_events=50)
    await scene.begin()
    await scene.fill(5)
    await scene.archiving.once()
    await scene.maintenance.maintain()
    assert await scene.log.newest_snapshot() is not None
    assert (await scene.log.start()).offset == 0, "not enough for a stretch, so nothing may go"
    await scene.fill(20)
    await scene.archiving.once()
    archived_to = (await opened(FolderStore(tmp_path))).reach[1]
    await scene.fill(10)
    await scene.maintenance.maintain()
    assert 0 < (await scene.log.start()).offset < archived_to
    joined = TieredLog(scene.log, FolderStore(tmp_path))
    assert [entry.first for entry in await whole(joined)][-1] == scene.follower.state.offset


async def test_while_the_archive_is_away_nothing_is_trimmed_and_the_failure_is_counted(tmp_path: Path) -> None:
    class Away(FolderStore):
        def put(self, name: str, content: bytes) -> None:
            raise LogUnavailable("the archive is away")

    scene = Scene(Away(tmp_path))
    await scene.begin()
    await scene.fill(40)
    assert not await scene.archiving.once()
    await scene.maintenance.maintain()
    assert (await scene.log.start()).offset == 0
    assert scene.metrics.archiving.labels("failed")._value.get() == 1


async def test_two_processes_that_fail_in_turn_both_say_so_until_one_keeps_the_lease(tmp_path: Path) -> None:
    class Away(FolderStore):
        def put(self, name: str, content: bytes) -> None:
            raise LogUnavailable("the archive is away")

    scene = Scene(Away(tmp_path))
    await scene.begin()
    await scene.fill(40)
    for _ in range(5):
        assert not await scene.archiving.once()
        scene.hands.now_s += AGAIN_S
        scene.alone.mine = False  # the other one has the lease, and fails
        assert await scene.archiving.once()
        scene.hands.now_s += PERIOD_S
        scene.alone.mine = True
    assert not await scene.archiving.once()
    assert [problem.lasts_ms for problem in scene.problems.present()] == [175_000]
    assert b"arranger_archive_success_age_seconds 175.0" in scene.metrics.exposition()
    scene.alone.mine = False  # the other one keeps the lease, as who fails doesn't
    for _ in range(9):
        assert await scene.archiving.once() and scene.problems.present()
        scene.hands.now_s += PERIOD_S
    assert await scene.archiving.once() and scene.problems.present() == ()
    assert b"arranger_archive_success_age_seconds 0.0" in scene.metrics.exposition()


async def test_an_archive_that_fails_for_long_is_a_problem_until_a_round_ends_well(tmp_path: Path) -> None:
    class Away(FolderStore):
        away = True

        def put(self, name: str, content: bytes) -> None:
            if self.away:
                raise LogUnavailable("the archive is away")
            super().put(name, content)

    blob_store = Away(tmp_path)
    scene = Scene(blob_store)
    await scene.begin()
    await scene.fill(40)
    assert not await scene.archiving.once()
    scene.hands.now_s += 119
    assert not await scene.archiving.once() and scene.problems.present() == ()
    scene.hands.now_s += 1
    assert not await scene.archiving.once()
    assert scene.problems.present() == (
        MemberProblem(ProblemKind.ARCHIVE, lasts_ms=120_000, cause="the archive is away"),
    )
    assert b"arranger_archive_success_age_seconds 120.0" in scene.metrics.exposition()
    blob_store.away = False
    assert await scene.archiving.once() and scene.problems.present() == ()
    assert b"arranger_archive_success_age_seconds 0.0" in scene.metrics.exposition()


async def test_what_is_old_is_archived_though_it_is_little(tmp_path: Path) -> None:
    scene = Scene(FolderStore(tmp_path), every_events=1000, every_s=0.0)
    await scene.begin()
    await scene.fill(3)
    await scene.archiving.once()
    archive = await opened(FolderStore(tmp_path))
    assert await archive.end() == await scene.log.end()
    stored = await archive.newest_snapshot()
    assert stored is not None and snapshot.restore(stored.content).offset == scene.follower.state.offset
    files = files_in(tmp_path)
    await scene.archiving.once()
    assert files_in(tmp_path) == files, "nothing new, nothing written"


async def test_who_does_not_hold_the_lease_archives_nothing(tmp_path: Path) -> None:
    scene = Scene(FolderStore(tmp_path / "a"))
    scene.alone.mine = False
    await scene.begin()
    await scene.fill(40)
    assert await scene.archiving.once()
    assert not (tmp_path / "a").exists()


async def test_an_archive_that_was_set_up_late_begins_where_the_log_does(tmp_path: Path) -> None:
    scene = Scene(FolderStore(tmp_path))
    await scene.begin()
    await scene.fill(40)
    await scene.log.trim(20, epoch=scene.follower.state.epoch)
    await scene.archiving.once()
    archive = await opened(FolderStore(tmp_path))
    assert (await archive.start(), await archive.end()) == (await scene.log.start(), await scene.log.end())


async def test_segments_are_read_once_by_who_goes_from_point_to_point_and_kept_by_nobody_who_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(FolderStore):
        def read(self, name: str, count: int = -1) -> bytes:
            whole_files.extend([name] * (count < 0))
            return super().read(name, count)

    whole_files: list[str] = []
    await archived(await filled(100), FolderStore(tmp_path))
    archive = await opened(Counted(tmp_path))
    told = await whole(archive)
    assert sorted(whole_files) == [name.file for name in segments_in(tmp_path)]
    whole_files.clear()
    chance = random.Random(1)
    ends = [name.last for name in segments_in(tmp_path)]
    for entry in chance.choices([of for of in told if of.last not in ends], k=200):
        after = Position(archive.contents.epoch, entry.last, entry.chain)
        assert next(iter(await archive.read(after))) == told[told.index(entry) + 1]
    assert len(whole_files) == len(set(whole_files)) > 5
    monkeypatch.setattr("arranger.events.archive._KEPT_BYTES", 0)
    whole_files.clear()
    for entry in (told[0], told[-2], told[0], told[-2]):
        await archive.read(Position(archive.contents.epoch, entry.last, entry.chain))
    assert len(whole_files) >= 3, "one of them may be at hand from before"


async def test_who_comes_back_finds_what_was_read_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await archived(await filled(100), FolderStore(tmp_path))
    archive = await opened(FolderStore(tmp_path))
    archive.revisited = True
    told = await whole(archive)
    monkeypatch.setattr(archive, "_fetch", lambda name: pytest.fail(f"{name} is read again"))
    for entry in told[:-1]:
        after = Position(archive.contents.epoch, entry.last, entry.chain)
        assert next(iter(await archive.read(after))) == told[told.index(entry) + 1]


async def test_reading_ahead_gives_up_when_the_log_is_closed(tmp_path: Path) -> None:
    await archived(await filled(100), FolderStore(tmp_path))
    archive = await opened(FolderStore(tmp_path))
    await archive.read(await archive.start())
    await archive.close()
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        await whole(archive)


async def test_files_of_two_logs_that_only_look_alike_are_told_apart_by_the_chain(tmp_path: Path) -> None:
    log, other = await filled(60), await filled(60, seed=1)
    await archived(log, FolderStore(tmp_path / "a"))
    stored = list(await other.read_stored(await other.start()))
    forged = MemoryLog(MemoryHome(), now_ms=lambda: TOLD_MS)
    begun = await forged.open()
    for number, one in enumerate(stored[1:], 1):
        events = tuple(k.ObjectGone(k.Watched.NODE, 1, "", "another", "uid") for _ in range(one.count))
        await forged.append(k.Batch("w", number, TOLD_MS + 10 * number, events), epoch=begun.epoch)
    await archived(forged, FolderStore(tmp_path / "b"))
    names = segments_in(tmp_path / "a")
    assert names == segments_in(tmp_path / "b")
    (tmp_path / "b" / names[1].file).replace(tmp_path / "a" / names[1].file)
    assert f"{names[1].file} doesn't follow from {names[0].file}" in await _problem(tmp_path / "a")


async def test_snapshots_of_another_version_are_said_once_and_the_log_is_folded_from_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await filled(60)
    blob_store = FolderStore(tmp_path)
    await archived(log, blob_store)
    archive = await opened(blob_store)
    for mark in await archive.snapshot_marks():
        stored = await archive.newest_snapshot(at_most=mark.offset)
        assert stored is not None
        image = msgspec.structs.replace(snapshot.image_of(stored.content), layout=1)
        other = StoredSnapshot(stored.position, snapshot.encode_image(image))
        blob_store.put(*encode_snapshot_file(other, mark.time_ms or 0))
    for begin in (reading.begin(archive, END), reading.begin_without(archive, END, "n1")):
        state, position = await begin
        assert (state.offset, position.offset) == (0, 0)
        assert capsys.readouterr().err.count("layout 1") == 1
    await archive.close()
