"""The page that plays a log without a server: its facts are those of the other commands, and nothing ends it early."""

import base64
import hashlib
import json
import random
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from arranger.cli.rendering.playback_page import document, facts, facts_of, shown
from arranger.events.log import Entry
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.state import State
from arranger.replay.console.playback import Playback, PlaybackIndex, PointExplainer, TooLong
from arranger.replay.explain.answer import Explanation
from arranger.replay.reading.describe import label
from arranger.web.naming import named
from tests.commands import Run, to_file
from tests.servers import REPOSITORY
from tests.unit.replay_worlds import contended, crowded, first_config, preempting
from tests.unit.test_histories import HISTORIES, read
from tests.world import World, shape

LOG = HISTORIES / "demo.log"
PAGE = REPOSITORY / "docs" / "replay.html"
LOGS = ("demo.log", "room-for-what-matters.log")


def play(entries: list[Entry], *, most: int = 200, job: str = "") -> tuple[Playback, list[Explanation]]:
    index = PlaybackIndex(State(), job)
    for entry in entries:
        index.feed(entry)
    told: list[Explanation] = []
    explaining = PointExplainer(State(), first_config(entries), index.to_explain(most), told.append)
    for entry in entries:
        explaining.feed(entry)
    explaining.finish()
    return index.playback(), told


def built(tmp_path: Path) -> Path:
    """A folder with what the console's build makes, in short."""
    (tmp_path / "replay.js").write_text("document.title = 1 < 2;\n")
    (tmp_path / "replay.css").write_text("body { margin: 0 }\n")
    return tmp_path


# --- the facts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_at_every_point_a_job_is_as_explain_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, entries = read(HISTORIES / name)
    playback, _ = play(entries)
    chance, tried = random.Random(7), 0
    for job in playback.jobs:
        steps = [step for step in job.steps if playback.texts[step.stage]]
        for step in chance.sample(steps, min(4, len(steps))):
            run = Run(capsys, "explain", job.job, "--at", str(step.at), "--log", str(HISTORIES / name), "-o", "json")
            standing, interval = run.json["standing"], run.json["intervals"][-1]
            words = tuple(playback.texts[number] for number in (step.stage, step.waiting_for, step.message))
            assert words == (standing["stage"], interval["waiting_for"], standing["message"])
            assert (step.pods_placed, step.pods_desired) == (standing["pods_placed"], standing["pods_desired"])
            assert step.time_ms == run.json["time_ms"]
            tried += 1
    assert tried > 15


@pytest.mark.parametrize("name", LOGS)
def test_reasons_and_remedies_are_those_of_explain(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, entries = read(HISTORIES / name)
    _, explanations = play(entries)
    waiting = [one for one in explanations if one.waiting is not None and one.waiting.remedies]
    assert waiting
    for one in random.Random(7).sample(explanations, 8) + random.Random(7).sample(waiting, 4):
        at = ("--at", str(one.offset), "--log", str(HISTORIES / name))
        run, told = Run(capsys, "explain", one.standing.job, *at, "-o", "json"), shown(one)
        for key in ("standing", "consequences", "takings", "givings", "kept"):
            assert json.loads(json.dumps(told[key])) == run.json[key]
        assert (told["waiting"] is None) == (run.json["waiting"] is None)
        if told["waiting"] is not None:
            for key in ("why", "position", "blockers", "remedies", "in_queue", "takes_none"):
                assert json.loads(json.dumps(told["waiting"][key])) == run.json["waiting"][key]


@pytest.mark.parametrize("make", [crowded, contended, preempting])
def test_no_change_of_a_job_is_missed(make: Callable[[], World]) -> None:
    index = PlaybackIndex(State())
    for entry in make().entries:
        index.feed(entry)
        steps = {job.job: job.steps[-1] for job in index.playback().jobs}
        for job in index.state.jobs.values():
            assert steps[label(job)][2:] == index._step(job)[2:]


def moved() -> World:
    """A job gets another priority and another queue, its queues change, and a later one has its name."""
    world = World()
    world.node("n1", gpus=1)
    world.queue("a")
    world.queue("b", max_priority=4)
    for priority, queue in ((5, "a"), (6, "a"), (6, "b"), (6, "")):
        world.pass_time(1)
        world.job("train", leader=shape(gpus=1), priority=priority, of_queue=queue)
        world.settle()
    # The edits of a queue and of a namespace touch no job that has nodes.
    world.pass_time(1)
    world.namespace("default", queue="b")
    world.pass_time(1)
    world.queue("b", max_priority=3)
    world.pass_time(1)
    world.namespace("default", queue="a")
    world.pass_time(1)
    world.job_gone(world.state.jobs["uid-train"])
    world.pass_time(1)
    world.job("train", uid="uid-later", leader=shape(gpus=1), priority=2, of_queue="b")
    return world


def test_at_every_point_a_job_has_the_queue_and_the_priority_of_then() -> None:
    index, told = PlaybackIndex(State()), dict[int, tuple[str, int, int]]()
    for entry in moved().entries:
        index.feed(entry)
        for job in index.state.jobs.values():
            of = queue_of(index.state, job), counted_priority(index.state, job), job.valid_spec.priority
            told[entry.last] = of
    assert len(set(told.values())) == 6
    playback = index.playback()
    [train] = playback.jobs
    for at, of in told.items():
        step = [step for step in train.steps if step.at <= at][-1]
        assert (playback.texts[step.queue], step.priority, step.own_priority) == of
    gone = next(step for step in train.steps if not playback.texts[step.stage])
    assert (playback.texts[gone.queue], gone.priority, gone.own_priority) == ("a", 6, 6)
    # Its bars too: a queue is told of a bar where it isn't the job's last one.
    later, first = playback.gantt.jobs
    assert {bar.queue or later.queue for bar in later.bars} == {"b"}
    assert [queue for queue, _ in groupby(bar.queue or first.queue for bar in first.bars)] == [
        "a",
        "b",
        "default",
        "b",
        "a",
    ]


def test_longest_waits_are_explained_first() -> None:
    _, entries = read(LOG)
    _, [first, middle] = play(entries, most=1)
    assert (first.standing.job, first.standing.stage) == ("default/waits-its-turn", "Pending")
    assert first.waiting is not None and first.waiting.shortfall is not None
    # The page opens in the middle of the longest wait, and has the explanation for that point.
    assert (middle.standing.job, middle.standing.stage) == ("default/waits-its-turn", "Pending")
    assert middle.offset > first.offset and middle.waiting is not None and middle.waiting.shortfall is not None


def test_the_states_of_the_asked_job_are_explained_first() -> None:
    _, entries = read(LOG)
    playback, [first, *_] = play(entries, most=1, job="default/segment")
    assert (playback.job, first.standing.job) == ("default/segment", "default/segment")


def test_the_more_jobs_wait_the_fewer_states_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.node("n1", gpus=1)
    for number in range(30):
        world.job(f"j{number:02}", leader=shape(gpus=1), created=world.now_ms)
        world.pass_time(10)
        world.cycle()
    world.pass_time(10)
    world.node("n2", cpu=1)
    many = len(play(world.entries)[1])
    monkeypatch.setattr("arranger.replay.console.playback._WAITING", 40)
    few = play(world.entries)[1]
    assert 0 < len(few) < 15 < many
    monkeypatch.setattr("arranger.replay.console.playback._WAITING", 0)
    assert {one.standing.job for one in play(world.entries)[1]} == {"default/j01"}  # that which waits longest


def test_what_happened_has_decisions_and_changes_but_nothing_seen_again() -> None:
    _, entries = read(LOG)
    playback, _ = play(entries)
    kinds = {playback.texts[one.kind] for one in playback.happenings}
    assert {"JobSeen", "Placed", "Waits", "StageDecided"} <= kinds and "PodSeen" not in kinds
    assert not any("seen again" in playback.texts[one.words] for one in playback.happenings)
    taken = next(one for one in playback.happenings if playback.texts[one.kind] == "Preempted")
    assert {playback.jobs[number].job for number in taken.jobs} == {"default/segment", "default/sweep-2"}


def test_a_part_with_too_many_changes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.replay.console.playback.MOST", 3)
    with pytest.raises(TooLong, match="more than 3 changes up to offset"):
        play(crowded().entries)


# --- the page -----------------------------------------------------------------------------------------------------


def test_nothing_in_a_log_can_end_the_element_of_the_facts(tmp_path: Path) -> None:
    world, hostile = World(), "x</script><!--<script>alert(1)</script>\u2028"
    world.node("node-1", gpus=1)
    world.job(hostile, leader=shape(gpus=2))
    world.cycle()
    content = facts(*play(world.entries))
    page = document(content, folder=built(tmp_path)).decode()
    assert re.findall(r"<script[^>]*>", page) == [
        '<script type="application/json" id="facts">',
        '<script type="module">',
    ]
    assert page.count("</script>") == 2 and "<!--" not in page
    assert json.loads(facts_of(page.encode()))["playback"]["jobs"][0]["job"] == f"default/{hostile}"


def test_the_page_may_run_its_own_script_alone(tmp_path: Path) -> None:
    page = document(b"{}", folder=built(tmp_path)).decode()
    policy = re.search(r'content="(default-src[^"]*)"', page)
    style, script = re.search(r"<style>(.*?)</style>", page), re.search(r'<script type="module">(.*?)</script>', page)
    assert policy and style and script
    assert policy[1].startswith("default-src 'none'; ") and "unsafe" not in policy[1]
    for text, what in ((style[1], "style-src"), (script[1], "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{what} 'sha256-{digest}'" in policy[1]
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


def test_a_page_without_a_built_console_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="isn't built here") as refused:
        document(b"{}", folder=tmp_path)
    assert "make console" in str(refused.value)


def alike(committed: Any, fresh: Any) -> bool:
    """Whether two values are equal, but for fields that the first doesn't have: an answer may get further ones."""
    if isinstance(committed, dict) and isinstance(fresh, dict):
        return all(name in fresh and alike(value, fresh[name]) for name, value in committed.items())
    if isinstance(committed, list) and isinstance(fresh, list):
        return len(committed) == len(fresh) and all(map(alike, committed, fresh))
    return bool(committed == fresh)


def test_the_committed_page_plays_the_demo_of_today() -> None:
    _, entries = read(LOG)
    committed = PAGE.read_bytes()
    assert len(committed) <= 400_000
    found, fresh = json.loads(facts_of(committed)), json.loads(facts(*play(entries)))
    del found["version"]
    assert alike(found, fresh), "run make replay"
    assert found["explanations"].keys() == fresh["explanations"].keys()


def test_the_animated_picture_is_small_enough_for_a_first_screen() -> None:
    assert (PAGE.parent / "pictures" / "replay.gif").stat().st_size <= 1_500_000


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def page_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "static"
    folder.mkdir()
    monkeypatch.setattr("arranger.cli.rendering.playback_page.FOLDER", built(folder))


@pytest.mark.usefixtures("page_built")
def test_the_command_writes_a_page_of_any_span(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, log = tmp_path / "part.html", ("--log", str(LOG))
    run = Run(capsys, "export", *log, "--html", str(target), "--from", "60", "--until", "150", "-o", "json")
    assert run.status == 0, run.err
    assert run.json["bytes"] == target.stat().st_size and run.json["last"] in range(150, 160)
    found = json.loads(facts_of(target.read_bytes()))
    assert (found["playback"]["first"], found["playback"]["last"]) == (run.json["first"], run.json["last"])
    assert found["playback"]["firstMs"] == run.json["first_time_ms"]
    again = tmp_path / "again.html"
    assert Run(capsys, "export", *log, "--html", str(again), "--from", "60", "--until", "150").status == 0
    assert again.read_bytes() == target.read_bytes()
    text = Run(capsys, "export", *log, "--html", str(tmp_path / "whole.html"))
    assert re.search(r"whole.html: offsets 1 to 229 of epoch \d+, [\d,]+ bytes", text.out)


@pytest.mark.usefixtures("page_built")
def test_names_are_replaced_in_a_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "hashed.html"
    run = Run(capsys, "export", "--log", str(LOG), "--html", str(target), "--hash-names", "--job", "waits-its-turn")
    assert run.status == 0, run.err
    page = target.read_text()
    for name in ("waits-its-turn", "goes-first", "node-1", "actors"):
        assert name not in page
    alias = re.search(r"is called (\S+) in the file", run.out)
    assert alias and alias[1] in page
    assert json.loads(facts_of(target.read_bytes()))["playback"]["job"] == alias[1]


@pytest.mark.usefixtures("page_built")
def test_the_page_of_a_job_begins_with_the_oldest_job_that_competed_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=1)
    early = world.job("early", leader=shape(gpus=1))
    world.settle()
    world.job_gone(early)
    before = world.state.offset
    world.job("late", leader=shape(gpus=2), created=world.now_ms)
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    page, file = tmp_path / "late.html", tmp_path / "late.arranger"
    made = Run(capsys, "export", *log, "--job", "late", "--html", str(page), "-o", "json").json
    assert made["first"] == before + 1
    found = json.loads(facts_of(page.read_bytes()))
    assert [one["job"] for one in found["playback"]["jobs"]] == ["default/late"]
    assert [*found["explanations"]] == ["default/late"]
    # Other versions read a file without a snapshot, too.
    assert Run(capsys, "export", *log, "--job", "late", "--to", str(file), "-o", "json").json["first"] == 1


@pytest.mark.usefixtures("page_built")
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--html", "{there}"), 2, "already exists"),
        (("--html", "{folder}/no/x.html"), 2, "can't be written"),
        ((), 2, "one of --to FILE and --html FILE is needed"),
        (("--html", "{folder}/a", "--to", "{folder}/b"), 2, "--to FILE and --html FILE are both given"),
        (("--html", "{folder}/a", "--from", "1000"), 1, "offset"),
        (("--html", "{folder}/a", "--from", "100", "--until", "50"), 2, "--from is after --until"),
        (("--html", "{folder}/a", "--job", "waits-its-tern"), 1, "did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    words: tuple[str, ...], status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.html"
    there.touch()
    run = Run(capsys, "export", "--log", str(LOG), *(one.format(there=there, folder=tmp_path) for one in words))
    assert (run.status, said in run.err) == (status, True), run.err
    assert {path.name for path in tmp_path.iterdir()} <= {"there.html", "static"}


@pytest.mark.usefixtures("page_built")
def test_no_log_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "export", "--log", str(tmp_path / "none.log"), "--html", str(tmp_path / "x.html"))
    assert run.status != 0 and "none.log" in run.err


@pytest.mark.usefixtures("page_built")
def test_a_trimmed_log_is_played_from_its_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = preempting().entries
    half = len(entries) // 2
    log = to_file(entries, tmp_path / "run.log", snapshot_after=half)
    target = tmp_path / "late.html"
    run = Run(capsys, "export", *log, "--html", str(target), "--from", str(entries[half].first), "-o", "json")
    assert run.status == 0, run.err
    found = json.loads(facts_of(target.read_bytes()))["playback"]
    whole, _ = play(entries)
    assert found["first"] == entries[half].first and found["last"] == whole.last
    ends = {job["job"]: [found["texts"][number] for number in job["steps"][-1][2:5]] for job in found["jobs"]}
    assert ends == {job.job: [whole.texts[number] for number in job.steps[-1][2:5]] for job in whole.jobs}


def test_the_console_knows_the_names_of_the_facts() -> None:
    source = (REPOSITORY / "console" / "src" / "playback.ts").read_text()
    playback, told = play(crowded().entries)
    found = named(json.loads(facts(playback, told)))
    for name in (*found, *found["playback"]):
        assert re.search(rf"^ +{name}: ", source, re.MULTILINE), name
