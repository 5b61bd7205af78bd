"""The log in a file: torn ends, one writer, readers beside it, and nothing written when only reading."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from arranger.errors import DamagedEntry, LogError, NoLog, UsageError
from arranger.events.fence import CLAIM, Fence
from arranger.events.file_log import FileLog, copy_log
from arranger.events.kinds import Batch, ObjectGone, Watched
from arranger.events.log import Position, StoredSnapshot, entries
from arranger.events.open_log import open_log
from tests.file_writer import FileWriter
from tests.memory_log import MemoryLog

WRITER = """
import asyncio, sys
from pathlib import Path
from arranger.events.kinds import Batch, ObjectGone, Watched
from tests.file_writer import FileWriter

async def write():
    log = FileWriter(Path(sys.argv[1]))
    begun = await log.open()
    for seq in range(1, 301):
        await log.append(Batch("w", seq, seq, (ObjectGone(Watched.NODE, 1, "", "n", "u"),) * 7), epoch=begun.epoch)
    await log.close()

asyncio.run(write())
"""


def batch(seq: int, *, size: int = 1) -> Batch:
    return Batch(
        "w", seq, 1_000 + seq, tuple(ObjectGone(Watched.NODE, 1, "", f"n{seq}-{i}", "uid") for i in range(size))
    )


#: The cursor stored with each batch; the first claims the watch.
CURSOR = ["", "", "20", "30"]


async def written(path: Path, batches: int) -> Position:
    """A closed log with so many batches of one event; answers its start."""
    log = FileWriter(path)
    begun = await log.open()
    for seq in range(1, batches + 1):
        await log.append(batch(seq), epoch=begun.epoch, fence=Fence("nodes", CLAIM if seq == 1 else 2, CURSOR[seq]))
    await log.close()
    return Position(begun.epoch, 0, "")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_torn_last_record_is_not_read_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    origin = await written(path, 3)
    whole = path.read_bytes()
    for cut in (1, 5, 40, 60):
        path.write_bytes(whole[:-cut])
        reader = await open_log(str(path), "")
        assert [entry.last for entry in await reader.read(origin)] == [1, 2, 3]
        await reader.close()

        writer = FileWriter(path)
        await writer.open()
        assert (await writer.append(batch(3), epoch=origin.epoch, fence=Fence("nodes", 2, "30"))).first == 4
        await writer.close()
        assert path.read_bytes() == whole


async def test_zeros_at_the_end_are_a_torn_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    origin = await written(path, 2)
    with path.open("ab") as file:
        file.write(bytes(500))
    writer = FileWriter(path)
    assert (await writer.open()).offset == 3
    assert (await writer.append(batch(3), epoch=origin.epoch)).first == 4
    await writer.close()
    reader = await open_log(str(path), "")
    assert [entry.last async for entry in entries(reader, origin)] == [1, 2, 3, 4]
    await reader.close()


async def test_no_single_altered_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    origin = await written(path, 3)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        found = []
        with pytest.raises((LogError, UsageError)):
            reader = await open_log(str(path), "")
            async for entry in entries(reader, origin, until=4):
                found.append(entry.last)
            await reader.end()
        assert found == [1, 2, 3, 4][: len(found)]


async def test_who_has_appended_what_is_known_to_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    origin = await written(path, 3)
    log = FileWriter(path)
    await log.open()
    assert (await log.append(batch(3), epoch=origin.epoch)).duplicate
    await log.trim(100, epoch=origin.epoch)
    await log.close()
    again = FileWriter(path)
    await again.open()
    assert (await again.append(batch(3), epoch=origin.epoch)).duplicate
    assert (await again.append(batch(4), epoch=origin.epoch, fence=Fence("nodes", CLAIM))).cursor == "30"
    await again.close()


async def test_a_cursor_torn_off_with_its_record_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "log"
    origin = await written(path, 3)
    path.write_bytes(path.read_bytes()[:-1])
    writer = FileWriter(path)
    await writer.open()
    assert (await writer.append(batch(4), epoch=origin.epoch, fence=Fence("nodes", CLAIM))).cursor == "20"
    await writer.close()


async def test_a_second_writer_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    first, second = FileWriter(tmp_path / "log"), FileWriter(tmp_path / "log")
    await first.open()
    with pytest.raises(UsageError, match="being written by another process"):
        await second.open()
    await first.close()
    assert (await second.open()).offset == 1
    await second.close()


async def test_a_reader_follows_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    begun = Position((await written(path, 0)).epoch, 0, "")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(path), stderr=subprocess.PIPE)
    reader = await open_log(str(path), "")
    after, events = begun, 0
    while events < 2101:
        found = await reader.read(after, wait_s=60)
        assert found, (await process.communicate())[1].decode()
        events += sum(len(entry.batch.events) for entry in found)
        after = Position(after.epoch, found[-1].last, found[-1].chain)
    await process.communicate()
    assert process.returncode == 0
    assert after == await reader.end()
    await reader.close()


async def test_a_reader_follows_into_a_trimmed_file_and_notices_a_new_epoch(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await written(path, 3)
    writer, reader = FileWriter(path), await open_log(str(path), "")
    end = await writer.open()
    await writer.trim(3, epoch=end.epoch)
    await writer.append(batch(4), epoch=end.epoch)
    assert [entry.last for entry in await reader.read(end)] == [5]
    assert (await reader.start()).offset == 2
    for lost in range(end.epoch, end.epoch + 3):
        await writer.begin_epoch(lost=lost, reason="test", time_ms=0)
    assert (await reader.end()).epoch == end.epoch + 3
    assert names_in(tmp_path) == ["log", "log.lock", f"log.old-{end.epoch + 1}", f"log.old-{end.epoch + 2}"]
    for log in (writer, reader):
        await log.close()


async def test_reading_only_creates_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(UsageError, match="there is no log"):
        await open_log(str(path), "")
    assert names_in(tmp_path) == []
    await written(path, 1)
    path.with_name("log.lock").unlink()
    before = path.read_bytes()
    reader = await open_log(str(path), "")
    end = await reader.end()
    for write in (
        reader.append(batch(9), epoch=end.epoch),
        reader.begin_epoch(lost=end.epoch, reason="", time_ms=0),
        reader.put_snapshot(StoredSnapshot(end, b"")),
        reader.trim(9, epoch=end.epoch),
    ):
        with pytest.raises(LogError, match="reading only"):
            await write
    await reader.close()
    assert names_in(tmp_path) == ["log"]
    assert path.read_bytes() == before


async def test_a_file_that_is_no_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("what I did today\n")
    with pytest.raises(UsageError, match="no log file"):
        await open_log(str(path), "")
    assert path.read_text() == "what I did today\n"


async def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await open_log(str(tmp_path), "")


async def test_a_copy_of_a_damaged_log_is_not_made(tmp_path: Path) -> None:
    source = MemoryLog()
    begun = await source.open()
    await source.append(batch(1), epoch=begun.epoch)
    await source.append(batch(2), epoch=begun.epoch)
    source.home.stored[1], source.home.stored[2] = source.home.stored[2], source.home.stored[1]
    with pytest.raises(DamagedEntry):
        await copy_log(source, tmp_path / "log")
    assert names_in(tmp_path) == []


async def test_a_snapshot_that_is_being_written_or_was_just_removed_is_none(tmp_path: Path) -> None:
    """`copy_log` writes them after the log, while whoever follows that file begins with it."""
    path = tmp_path / "log"
    await written(path, 3)
    reader = FileLog(path)
    (tmp_path / "log.snapshot-2.new").write_bytes(b"half")
    (tmp_path / "log.snapshot-1").symlink_to(tmp_path / "gone")
    assert [mark.offset for mark in await reader.snapshot_marks()] == [1]
    assert await reader.newest_snapshot() is None
    await reader.close()


async def test_a_file_whose_head_is_being_written_is_no_log_yet(tmp_path: Path) -> None:
    """Another program, such as cp, needn't write it in one step."""
    path = tmp_path / "log"
    await written(path, 3)
    whole = path.read_bytes()
    head = 23 + int.from_bytes(whole[15:19], "big")
    reader = FileLog(path)
    await reader.open()
    for size in (0, 1, 14, 15, 20, 23, head - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(NoLog, match=f"log is {'cut off in its head' if size else 'empty'}: it has no log yet"):
            await reader.open()
    path.write_bytes(whole)
    assert (await reader.end()).offset == 4
    path.write_bytes(b"arranger lag")
    with pytest.raises(UsageError, match="no log file"):
        await reader.open()
