"""`arranger forecast`, run as a user runs it on a log file."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.events.file_log import FileLog
from arranger.model.job import Dependency, Stage
from arranger.replay.forecast.starts import forecast
from arranger.workers.deciding.forecaster import news
from tests.commands import Run, to_file
from tests.unit.replay_worlds import gpu_job, with_room_rules
from tests.unit.test_forecast import guessing
from tests.unit.test_forecast import world as cluster
from tests.world import World


def crowded() -> World:
    """A node of 4 GPUs: `first` says that it ends after 100 s, and two jobs wait for it."""
    of = with_room_rules(preemption=None)
    gpu_job(of, "first", 4, expected_s=100)
    of.settle()
    gpu_job(of, "second", 4, priority=9, expected_s=50)
    of.settle()
    gpu_job(of, "third", 4)
    of.settle()
    return of


@pytest.fixture
def world() -> World:
    return crowded()


@pytest.fixture
def log(world: World, tmp_path: Path) -> list[str]:
    return to_file(world.entries, tmp_path / "run.log")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    done = Run(capsys, "forecast", *arguments)
    assert done.status == 0, done.err
    return done.out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(run(capsys, *arguments, "-o", "json"))


def test_each_waiting_job_has_its_start_and_its_range(
    world: World, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, *log)
    assert [one["job"] for one in found["jobs"]] == ["default/second", "default/third"]
    assert [one["expected_ms"] - world.now_ms for one in found["jobs"]] == [100_000, 150_000]
    assert found["jobs"][0]["why"] is None and found["waiting"] == 2
    out = run(capsys, *log)
    assert "1m40s" in out and "2m30s" in out and "if no jobs, nodes or failures come" in out
    rows = run(capsys, *log, "-o", "csv").splitlines()
    assert rows[0] == "queue_position,job,expected_ms,earliest_ms,latest_ms,why_unknown,guess" and len(rows) == 3


def test_one_job_can_be_asked_for(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["job"] for one in answer(capsys, "default/third", *log)["jobs"]] == ["default/third"]
    assert [one["queue_position"] for one in answer(capsys, "third", *log)["jobs"]] == [2]
    wrong = Run(capsys, "forecast", "thirt", *log)
    assert wrong.status == 1 and "did you mean third?" in wrong.err


def test_a_job_that_does_not_wait_to_start_has_no_forecast_and_is_told_why(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_job(world, "stopped", 1)
    world.job("stopped", leader=None, workers=1, suspend=True)
    world.job("wrong", invalid="spec.priority", created=world.now_ms)
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    for name, said in {
        "nope": "there is no job 'nope' at offset",
        "first": "job default/first doesn't wait to start: it runs already",
        "wrong": "job default/wrong doesn't wait to start: it has failed",
        "stopped": "job default/stopped doesn't wait to start: it is suspended",
    }.items():
        wrong = Run(capsys, "forecast", name, *log)
        assert (wrong.status, wrong.err[: len("arranger: ") + len(said)]) == (1, f"arranger: {said}")
    behind = Run(capsys, "forecast", "third", "--first", "1", *log)
    assert behind.status == 1 and "job 'third' is behind the first 1 waiting job" in behind.err


def test_one_looks_as_far_as_asked_and_at_so_many_jobs(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    second, third = answer(capsys, *log, "--until", "2m")["jobs"]
    assert (second["expected_ms"] is not None, third["expected_ms"], third["why"]) == (True, None, "Later")
    out = run(capsys, *log, "--first", "1")
    assert "default/third" not in out and "1 job behind them left out" in out


def test_jobs_of_which_nothing_is_known_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = with_room_rules(preemption=None)
    gpu_job(of, "first", 4)
    of.settle()
    of.pass_time(60)
    gpu_job(of, "second", 4)
    of.settle()
    log = to_file(of.entries, tmp_path / "run.log")
    out = run(capsys, *log)
    assert "nothing is known of the end of default/first" in out and "LATEST" not in out
    assert "  a guess: jobs that may never end hold room\n" in out
    assert answer(capsys, *log)["endless"] == ["default/first"]


def test_a_cluster_without_waiting_jobs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(with_room_rules().entries, tmp_path / "run.log")
    assert run(capsys, *log) == "no job waits to start\n"
    assert answer(capsys, *log)["jobs"] == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--points", "3"], "--points needs --score"),
        (["--score", "--at", "5"], "--at can't be used with --score"),
        (["--score", "second"], "a job can't be used with --score"),
    ],
)
def test_options_that_do_not_go_together(
    flags: list[str], said: str, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Run(capsys, "forecast", *log, *flags)
    assert wrong.status == 2 and said in wrong.err


def test_before_everything_is_listed_there_is_no_forecast(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Run(capsys, "forecast", *log, "--at", "2")
    assert wrong.status == 1 and "not everything had been listed yet" in wrong.err


# --- score -------------------------------------------------------------------------------------------------------


def history(tmp_path: Path, *, early_s: int) -> list[str]:
    """`first` ends so many seconds earlier than it said, and `second` starts then."""
    of = crowded()
    of.pass_time(10)
    of.job("unrelated", leader=None, workers=1, suspend=True)
    of.pass_time(90 - early_s)
    for uid in [*of.state.jobs["uid-first"].bound.values()]:
        of.change_pod(uid, phase="Succeeded", ready=False)
    of.settle()
    assert of.state.jobs["uid-second"].placements
    return to_file(of.entries, tmp_path / "run.log")


def test_the_score_has_the_error_by_how_far_away_the_start_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = history(tmp_path, early_s=20)
    found = answer(capsys, "--score", "--points", "4", *log)
    rows = {row["horizon"]: row for row in found["horizons"]}
    assert rows["less than 10 min"]["number"] > 0
    assert rows["less than 10 min"]["median_ms"] == rows["less than 10 min"]["p90_ms"] == 20_000
    assert rows["less than 10 min"]["inside"] == rows["less than 10 min"]["number"]
    assert found["made_again"] and found["waiting"] > 0  # `third` hasn't started
    out = run(capsys, "--score", "--points", "4", *log)
    assert "20.0s" in out and "100%" in out and "forecasts made again at" in out
    rows = run(capsys, "--score", *log, "-o", "csv").splitlines()
    assert rows[0] == "horizon,number,median_ms,p90_ms,inside,open_ended"


def test_exact_ends_have_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--score", *history(tmp_path, early_s=0))
    assert found["total"]["number"] > 0 and found["total"]["p90_ms"] == 0


def test_a_log_in_which_nothing_started_has_no_score(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "no forecast has come true yet" in run(capsys, "--score", *log)


# --- forecasts in the log ----------------------------------------------------------------------------------------


def test_explain_and_the_score_read_the_forecasts_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = crowded()
    third = of.state.jobs["uid-third"]
    second = of.state.jobs["uid-second"]
    of.say(k.StartForecast(third.uid, third.version, of.now_ms + 150_000, of.now_ms + 15_000, 0))
    of.say(k.StartForecast(second.uid, second.version, of.now_ms + 70_000, of.now_ms + 10_000, of.now_ms + 75_000))
    of.pass_time(80)
    for uid in [*of.state.jobs["uid-first"].bound.values()]:
        of.change_pod(uid, phase="Succeeded", ready=False)
    of.settle()
    log = to_file(of.entries, tmp_path / "run.log")
    found = answer(capsys, "--score", *log)
    assert (found["made_again"], found["total"]["number"], found["waiting"]) == (False, 1, 1)
    assert (found["total"]["median_ms"], found["total"]["inside"]) == (10_000, 0)
    early = next(entry.last for entry in of.entries if isinstance(entry.batch.events[0], k.StartForecast))
    told = Run(capsys, "explain", "third", *log, "--at", str(early))
    assert "forecast" in told.out and "jobs that may never end hold room" in told.out
    listed = Run(capsys, "events", *log)
    assert "StartForecast" in listed.out and "to an unknown time" in listed.out and ", likely from " in listed.out


class Late:
    """A clock, some time after the last event of a log."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def test_an_answer_about_the_end_of_a_live_log_is_of_now(
    world: World, log: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    last_ms, end = world.state.time_ms, str(world.state.offset)
    monkeypatch.setattr("arranger.cli.inputs.reading.SystemClock", lambda: Late(last_ms + 30_000))
    of_file = answer(capsys, *log)
    explained = Run(capsys, "explain", *log, "second").out
    monkeypatch.setattr(FileLog, "live", True)
    found = answer(capsys, *log)
    assert (of_file["time_ms"], found["time_ms"]) == (last_ms, last_ms + 30_000)
    assert [one["expected_ms"] for one in found["jobs"]] == [one["expected_ms"] for one in of_file["jobs"]]
    assert "1m10s" in run(capsys, *log) and "1m40s" not in run(capsys, *log)
    assert answer(capsys, *log, "--at", end) == of_file, "the same point gives the same answer at any time"
    assert Run(capsys, "explain", *log, "--at", end, "second").out == explained
    late = Run(capsys, "explain", *log, "second")
    assert ", for 30.0s" in late.out.splitlines()[0] and ", for 30.0s" not in explained and "last event" not in late.err
    supposed = Run(capsys, "what-if", *log, "-o", "json").json
    assert supposed["time_ms"] == last_ms + 30_000
    # As the API asks: about the end, also where that is a cycle, and not about that cycle.
    now = f"{end}@{last_ms + 30_000}"
    assert Run(capsys, "what-if", *log, "--at", now, "-o", "json").json == supposed
    told = Run(capsys, "explain", *log, "second", "-o", "json").json
    assert Run(capsys, "explain", *log, "second", "--at", now, "-o", "json").json == told


def test_an_answer_about_a_time_counts_up_to_that_time(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the log goes on after it, or is live: a file that has ended says nothing of later."""
    monkeypatch.setattr("arranger.cli.inputs.reading.SystemClock", lambda: Late(last_ms + 30_000))
    before_ms = world.state.time_ms
    world.now_ms += 60_000
    world.node("late")
    log, last_ms, between_ms = to_file(world.entries, tmp_path / "later.log"), world.state.time_ms, before_ms + 20_000
    assert before_ms < between_ms < last_ms

    def as_of(time_ms: int) -> list[int]:
        words = ("--at", datetime.fromtimestamp(time_ms / 1000, UTC).isoformat())
        explained = Run(capsys, "explain", *log, *words, "second", "-o", "json").json["time_ms"]
        waited = Run(capsys, "waits", *log, "--to", words[1], "-o", "json").json["end_ms"]
        return [answer(capsys, *log, *words)["time_ms"], explained, waited]

    assert as_of(between_ms) == [between_ms] * 3
    assert as_of(last_ms + 10_000) == [last_ms] * 3
    monkeypatch.setattr(FileLog, "live", True)
    assert as_of(last_ms + 10_000) == [last_ms + 10_000] * 3
    assert as_of(last_ms + 90_000) == [last_ms + 30_000] * 3, "not up to a time that is still to come"
    at = f"{world.state.offset}@{last_ms + 5_000}"
    assert answer(capsys, *log, "--at", at)["time_ms"] == last_ms + 5_000


def test_what_was_expected_by_now_and_did_not_come_is_expected_later(
    world: World, log: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = world.state.time_ms + 300_000
    monkeypatch.setattr("arranger.cli.inputs.reading.SystemClock", lambda: Late(now_ms))
    monkeypatch.setattr(FileLog, "live", True)
    assert all(one["expected_ms"] > now_ms for one in answer(capsys, *log)["jobs"])
    told = Run(capsys, "explain", *log, "third", "-o", "json")
    assert told.json["start"]["expected_ms"] > now_ms
    assert "the log's last event is of " in told.err and ", 5m00s ago; times are as of now" in told.err


def test_a_start_that_no_end_of_a_job_brings_has_its_own_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = with_room_rules(preemption=None)
    gpu_job(of, "first", 4)  # nothing is known of its end
    of.settle()
    gpu_job(of, "huge", 9)
    gpu_job(of, "third", 4)
    of.settle()
    found = {one["job"]: one["why"] for one in answer(capsys, *to_file(of.entries, tmp_path / "a.log"))["jobs"]}
    assert found == {"default/huge": "Infeasible", "default/third": "Endless"}


def test_what_waits_for_a_job_that_will_reach_its_deadline_has_no_start_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = with_room_rules(preemption=None)
    gpu_job(of, "prep", 1, expected_s=300, deadline_s=30)
    after = gpu_job(of, "train", 1, after=[Dependency("prep")])
    of.settle()
    told = news(of.state, forecast(of.state, of.config, of.now_ms, first=10))
    assert [(one.job_uid, one.expected_ms, one.latest_ms) for one in told] == [(after.uid, 0, 0)]
    of.say(*told)
    log = to_file(of.entries, tmp_path / "run.log")
    why = "job prep is expected to reach its deadline, and this job fails then"
    [row] = answer(capsys, *log)["jobs"]
    assert (row["expected_ms"], row["why"], row["failing"]) == (None, "DependencyOverdue", "prep")
    assert why in run(capsys, *log)
    assert f"  start         unknown: {why}\n" in Run(capsys, "explain", "train", *log).out
    of.pass_time(31)
    of.settle()
    assert after.stage == Stage.FAILED


@pytest.mark.parametrize("deadline_s", [100, None])
def test_jobs_that_may_never_end_are_named_only_where_a_start_waits_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], deadline_s: int | None
) -> None:
    """Behind a job with a deadline, the start of the only other job was called a guess because of its own end."""
    of = with_room_rules(preemption=None)
    gpu_job(of, "first", 4, deadline_s=deadline_s)
    of.settle()
    of.pass_time(5)
    gpu_job(of, "second", 4)
    of.settle()
    told = run(capsys, *to_file(of.entries, tmp_path / "run.log"))
    assert ("nothing is known of the end of" in told) == (deadline_s is None)


def test_a_guess_with_a_latest_time_is_marked_by_forecast_and_explain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = cluster(nodes=2, preemption=None)
    guessing(of)
    log = to_file(of.entries, tmp_path / "run.log")
    told = run(capsys, *log)
    assert "  a guess: it supposes that jobs end that may never end" in told
    assert "nothing is known of the end of default/forever: " in told
    rows = {row["job"]: row for row in answer(capsys, *log)["jobs"]}
    assert rows["default/second"]["guess"] and rows["default/second"]["latest_ms"]
    said = Run(capsys, "explain", "second", *log).out
    assert "a guess by a forecast as of this point, because nothing is known of the end of default/forever: " in said
    assert "; likely between " in said
    assert "; `arranger forecast` guesses " in Run(capsys, "explain", "first", *log).out


def test_a_number_without_an_upper_bound_and_an_unknown_node_are_said_so(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = Run(capsys, "forecast", *log, "--first", "0")
    assert told.status == 2 and "0 is not a whole number from 1 on" in told.err and "None" not in told.err
    told = Run(capsys, "explain", *log, "second", "--node", "node-9")
    assert told.status == 1 and "there is no node 'node-9'" in told.err
