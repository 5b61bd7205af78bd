"""The file in which a demo keeps its log: whoever follows it finds a whole log there at any time."""

from pathlib import Path
from typing import Any

import pytest

from arranger.cli.commands import demo
from arranger.events.file_log import FileLog, copy_log
from tests.memory_log import MemoryLog


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("links", [True, False])
async def test_the_earlier_log_stays_until_the_new_one_takes_its_place_and_beside_it_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    log, there = MemoryLog(), list[bool]()

    async def copied(source: Any, target: Path) -> Any:
        there.append(target.name in contents(tmp_path))
        return await copy_log(source, target)

    def refused(*_: object) -> None:
        raise PermissionError("no links on this file system")

    if not links:
        monkeypatch.setattr(demo.os, "link", refused)
    monkeypatch.setattr(demo, "RedisLog", lambda *_: log)
    monkeypatch.setattr(demo, "copy_log", copied)
    (tmp_path / "log").write_bytes(b"earlier")
    (tmp_path / "log.snapshot-7").write_bytes(b"earlier snapshot")
    (tmp_path / "log.before").write_bytes(b"oldest")
    (tmp_path / "log.before.snapshot-3").write_bytes(b"oldest snapshot")
    run = demo._Demo([], is_story=False, nodes=1, gpus=1, keep=False, folder=tmp_path)
    await run._keep_log("")
    assert there == [links]
    assert (await FileLog(tmp_path / "log").open()).offset == (await log.end()).offset
    beside = contents(tmp_path)
    del beside["log"]
    assert beside == {"log.before": b"earlier", "log.before.snapshot-7": b"earlier snapshot"}
