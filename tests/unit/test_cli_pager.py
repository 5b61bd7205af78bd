"""Long answers on a terminal go through a pager; short ones, and those that aren't on a terminal, don't."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from arranger.cli.main import _paged
from arranger.cli.rendering.pager import pager_command
from tests.commands import to_file
from tests.unit.replay_worlds import crowded


def on_terminal(arguments: list[str], *, lines: int, **environ: str) -> str:
    """What a command prints on a terminal of so many lines; a pager that marks every line stands in for less."""
    leader, follower = pty.openpty()
    known = {**os.environ, "COLUMNS": "200", "LINES": str(lines), "NO_COLOR": "1", "PAGER": "sed s/^/paged:/"}
    command = [sys.executable, "-m", "arranger.cli.main", *arguments]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**known, **environ}, close_fds=True
    )
    os.close(follower)
    said = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # its end, on Linux
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert process.wait() == 0, said
    return said.decode().replace("\r\n", "\n")


@pytest.fixture
def log(tmp_path: Path) -> list[str]:
    return to_file(crowded().entries, tmp_path / "run.log")


def test_what_is_longer_than_the_terminal_goes_through_the_pager_whole(log: list[str]) -> None:
    paged = on_terminal(["events", *log], lines=10)
    plain = on_terminal(["events", *log], lines=1000)
    assert "paged:" not in plain
    assert paged.splitlines() == [f"paged:{line}" for line in plain.splitlines()]


def test_json_is_paged_like_tables(log: list[str]) -> None:
    paged = on_terminal(["replay", *log, "-o", "json"], lines=10)
    assert paged.startswith("paged:{\n") and len(paged.splitlines()) > 50


def test_a_pager_named_cat_or_nothing_means_none(log: list[str]) -> None:
    for none in ("cat", ""):
        assert "paged:" not in on_terminal(["events", *log], lines=10, PAGER=none)


def test_who_leaves_the_pager_early_has_not_failed(log: list[str]) -> None:
    assert len(on_terminal(["events", *log], lines=2, PAGER="head -n 1").splitlines()) == 1


def test_the_pager_is_the_users_own() -> None:
    assert pager_command({"PAGER": "cat"}) == pager_command({"PAGER": ""}) == []
    assert pager_command({"PAGER": "sed -n p"}) == ["sed", "-n", "p"]
    assert pager_command({"PAGER": "no-such-pager-here"}) == []


def test_commands_that_follow_or_run_are_not_paged() -> None:
    assert _paged(["events", "--job", "a"]) and _paged(["what-if"])
    assert not _paged(["events", "--follow"]) and not _paged(["events", "-fo", "json"])
    assert not _paged(["demo"]) and not _paged(["run", "watcher"])
