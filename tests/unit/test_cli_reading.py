"""Where a command begins to read a log of which the beginning was trimmed."""

from pathlib import Path

import pytest

from arranger.cli.inputs import progress
from arranger.cli.inputs.reading import begin_early, feed, position_before
from arranger.events.kinds import JobSeen, Watched
from arranger.replay.reading.history import Point
from tests.commands import Run, to_file
from tests.unit.replay_worlds import crowded
from tests.unit.test_maintenance import Scene


async def test_a_snapshot_behind_which_events_were_trimmed_is_no_beginning() -> None:
    scene = Scene(every_events=10, keep_events=5)
    await scene.begin()
    for _ in range(3):
        await scene.fill(10)
        await scene.maintenance.maintain()
    marks = [mark.offset for mark in await scene.log.snapshot_marks()]
    start = await scene.log.start()
    assert marks[0] < start.offset < marks[-1], "some snapshots are older than what is left of the log"
    for asked in (None, marks[0], marks[-1]):
        state, position = await begin_early(scene.log, asked)
        assert position.offset >= start.offset
        await feed(scene.log, position, lambda entry: True, until=Point(), doing="reading")
        assert set(state.terms) == set(Watched)
    for point in (None, Point(offset=marks[0]), Point(offset=marks[-1])):
        assert (await position_before(scene.log, point)).offset >= start.offset


def test_of_a_job_that_came_later_it_is_said_when(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = crowded()
    log = to_file(world.entries, tmp_path / "log")
    came = next(
        offset
        for entry in world.entries
        for offset, event in enumerate(entry.batch.events, start=entry.first)
        if isinstance(event, JobSeen) and event.name == "big"
    )
    said = f"the log has no job 'big' up to that point (it has it from event {came} on)\n"
    assert Run(capsys, "explain", "big", *log, "--at", "5").err.endswith(said)
    assert Run(capsys, "bisect", "--job", "big", "--fits", *log, "--to", "5").err.endswith(said)
    assert Run(capsys, "explain", "big", *log, "--at", str(came)).status == 0
    assert "was it refused" in Run(capsys, "explain", "nobody", *log, "--at", "5").err


def test_an_unknown_job_may_be_in_the_log_of_the_demo_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(crowded().entries, tmp_path / "log")
    assert "log.before" not in Run(capsys, "explain", "nobody", *log).err
    (tmp_path / "log.before").touch()
    assert f"; the log before this one is {tmp_path / 'log.before'})" in Run(capsys, "explain", "nobody", *log).err


def test_long_work_says_how_far_it_is_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_A_LINE_S", 0)
    with progress.progress("explaining", 2, worth=3) as moved:
        moved(1)
    assert capsys.readouterr().err == ""
    with progress.progress("explaining", 3_000, worth=3) as moved:
        moved(1)
        moved(1_999)
    assert capsys.readouterr().err == "arranger: explaining: 1 of 3,000\narranger: explaining: 2,000 of 3,000\n"


def test_a_program_hears_by_lines_of_json_how_far_long_work_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_A_JSON_LINE_S", 0)
    monkeypatch.setenv("ARRANGER_PROGRESS_LINES", "1")
    with progress.progress("folding", 200, first=1_000) as moved:
        moved(50)
    with progress.progress("", 3) as moved:
        moved(3)
    assert capsys.readouterr().err == (
        '{"arranger":"progress","percent":25,"offset":1050}\n{"arranger":"progress","percent":100,"offset":0}\n'
    )
