"""Runs commands as a user does, in this process, on logs written from a world's entries."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.main import main
from arranger.events.log import Entry, Log, Position, StoredSnapshot
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from tests.file_writer import FileWriter


async def write(log: Log, entries: Sequence[Entry], *, snapshot_after: int = 0, trim: int = 0) -> None:
    """Write the world's entries to a log, with a snapshot after `snapshot_after` entries, trimmed before `trim`."""
    epoch = (await log.open()).epoch
    state = State()
    for number, entry in enumerate(entries, start=1):
        if number > 1:  # the log itself began its epoch
            await log.append(entry.batch, epoch=epoch)
        apply_entry(state, entry, Changes())
        if number == snapshot_after:
            end = await log.end()
            await log.put_snapshot(StoredSnapshot(Position(epoch, end.offset, end.chain), snapshot.encode(state)))
    if trim:
        await log.trim(trim, epoch=epoch)
    await log.close()


def to_file(entries: Sequence[Entry], path: Path, *, begun_ms: int = 1, **options: int) -> list[str]:
    """Write the entries to a log file that began at a time, in milliseconds; returns the options that pass it to a
    command."""
    asyncio.run(write(FileWriter(path, now_ms=lambda: begun_ms), entries, **options))
    return ["--log", str(path)]


class Run:
    """The status and the output of one command."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.status = main(arguments, prog_name="arranger")
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err

    @property
    def json(self) -> Any:
        """The output as one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]
