"""Segments of the log that would end before they begin, in every command that takes one."""

from pathlib import Path

import pytest

from tests.commands import Run, to_file
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
