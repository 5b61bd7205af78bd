"""Segments of the log that would end before they begin, in every command that takes one."""

import asyncio
from pathlib import Path

import pytest

from arranger.events.file_log import FileLog
from tests.commands import Run, to_file
from tests.servers import REPOSITORY
from tests.unit.replay_worlds import contended, crowded


@pytest.mark.parametrize("points", [("9", "5"), ("2026-01-02T00:00Z", "2026-01-01T00:00Z")])
@pytest.mark.parametrize(
    "command",
    ["waits", "preemptions", "events", "verify", "bisect --job large --placed", "forecast --score", "export"],
)
def test_a_segment_that_ends_before_it_begins_is_refused(
    command: str, points: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(contended().entries, tmp_path / "run.log")
    last = "--until" if command == "export" else "--to"
    file = ("--to", str(tmp_path / "part.log")) if command == "export" else ()
    done = Run(capsys, *command.split(), *log, "--from", points[0], last, points[1], *file)
    assert done.status == 2 and f"--from is after {last}" in done.err
    assert not (tmp_path / "part.log").exists()


@pytest.mark.parametrize("command", ["waits", "preemptions", "events", "verify", "forecast --score"])
def test_a_segment_from_the_end_on_is_that_of_the_last_event(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = REPOSITORY / "tests" / "histories" / "demo.log"
    log, last = ("--log", str(file)), asyncio.run(FileLog(file).end()).offset
    from_last, from_end, whole = (
        Run(capsys, *command.split(), *log, "-o", "json", *more)
        for more in (("--from", str(last)), ("--from", "end"), ())
    )
    assert (from_end.status, from_end.out) == (from_last.status, from_last.out) != (whole.status, whole.out)
    beyond = Run(capsys, *command.split(), *log, "--from", str(last + 1))
    assert beyond.status and f"the log has no offset {last + 1} yet, it ends at {last}" in beyond.err


def test_a_time_after_the_last_event_that_a_program_names_begins_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = contended().entries
    log, time_ms = to_file(entries, tmp_path / "run.log"), entries[-1].batch.time_ms
    until = f"{entries[-1].last}@{time_ms}"
    assert Run(capsys, "waits", *log, "--from", "1s ago", "--to", until).status == 0


def test_an_export_of_two_files_says_which_are_given_and_what_names_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(crowded().entries, tmp_path / "log")
    page = ("--html", str(tmp_path / "x.html"))
    both = "--to FILE and --html FILE are both given, and only one file can be made"
    said = Run(capsys, "export", *log, "--from", "1h ago", "--to", "2h ago", *page)
    assert said.status == 2 and f"{both}; --to names a file: for the end of the part, use --until '2h ago'" in said.err
    said = Run(capsys, "export", *log, "--to", str(tmp_path / "x.log"), *page)
    assert said.status == 2 and both in said.err and "--until" not in said.err
    assert "one of --to FILE and --html FILE is needed" in Run(capsys, "export", *log).err
