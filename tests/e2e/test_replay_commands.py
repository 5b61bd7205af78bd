"""The commands that read the log, run as by a user, on a log file and on a real Redis."""

import asyncio
import datetime
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.events.redis_log import RedisLog
from arranger.model.job import PlacedPods
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from tests.commands import Run, to_file, write
from tests.file_writer import FileWriter
from tests.servers import RealRedis
from tests.unit.replay_worlds import crowded, entry_with, forged, late_cycle
from tests.world import World, shape

CLUSTER = "replayed"


Writer = Callable[..., list[str]]


@pytest.fixture(params=["file", "redis"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    """Writes a world's entries to a file or to a real Redis, and returns the options for this log."""
    if request.param == "file":
        yield lambda entries, **options: to_file(entries, tmp_path / "run.log", **options)
        return
    server: RealRedis = request.getfixturevalue("redis_server")

    def to_redis(entries: list[Entry], **options: int) -> list[str]:
        asyncio.run(write(RedisLog(server.url, CLUSTER, now_ms=lambda: 1), entries, **options))
        return ["--log", server.url, "--cluster", CLUSTER]

    server.command("FLUSHDB")
    yield to_redis
    server.command("FLUSHDB")


def _with_other_node(entries: list[Entry]) -> tuple[int, tuple[k.Event, ...]]:
    """The number and the events of the last entry with a placement, with one node's name changed."""
    number = entry_with(entries, k.Placed, last=True)
    events = list(entries[number].batch.events)
    at = next(i for i, event in enumerate(events) if isinstance(event, k.Placed))
    placed = events[at]
    assert isinstance(placed, k.Placed)
    first = placed.pods[0]
    pods = (PlacedPods("n4" if first.node != "n4" else "n1", first.group, first.indices), *placed.pods[1:])
    events[at] = msgspec.structs.replace(placed, pods=pods)
    return number, tuple(events)


# --- verify ---------------------------------------------------------------------------------------------------


def test_verify_finds_every_cycle_identical(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    world = crowded()
    run = Run(capsys, "verify", *written(world.entries))
    assert run.status == 0, run.out + run.err
    assert run.out.endswith("every cycle is identical\n")


def test_verify_answers_in_json(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    world = crowded()
    run = Run(capsys, "verify", *written(world.entries), "-o", "json")
    assert run.status == 0
    assert run.json["cycles"] == run.json["identical"] > 3
    assert run.json["events_folded"] == world.state.offset
    assert run.json["sound"] is True and run.json["first_difference"] is None


def test_verify_names_the_cycle_of_a_forged_placement(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    entries = crowded().entries
    number, events = _with_other_node(entries)
    options = written(forged(entries, number, events))
    run = Run(capsys, "verify", *options)
    assert run.status == 1
    assert f"The first difference: the cycle at offset {entries[number].first}" in run.out
    assert "on job default/wide" in run.out
    found = Run(capsys, "verify", *options, "-o", "json").json["first_difference"]
    assert found["cycle"] == entries[number].first
    assert found["job"] == "default/wide" and list(found["fields"]) == ["pods"]


def test_verify_names_the_entry_where_one_byte_was_altered_and_verifies_what_comes_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = crowded().entries
    number = entry_with(entries, k.Placed, last=True)
    path = tmp_path / "run.log"
    options = to_file(entries, path)
    content = bytearray(path.read_bytes())
    at = content.index(b"\xa2n2", content.rindex(b"Placed.1"))
    content[at + 2] ^= 1
    path.write_bytes(content)
    run = Run(capsys, "verify", *options)
    assert run.status == 1
    assert f"log entry at offset {entries[number].first} can't be read" in run.err
    assert "1 identical, 0 different" in run.out and "every cycle is identical" not in run.out
    answer = Run(capsys, "verify", *options, "-o", "json").json
    assert answer["identical"] == 1 and str(entries[number].first) in answer["damage"]


def test_verify_tells_that_a_file_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that wasn't finished has cycles that are all identical, and isn't the whole log."""
    path = tmp_path / "run.log"
    options = to_file(crowded().entries, path)
    path.write_bytes(path.read_bytes()[:-5])
    last = crowded().entries[-1].first
    run = Run(capsys, "verify", *options)
    assert run.status == 1 and f"log entry at offset {last} can't be read: the file ends within it" in run.err
    assert "the last entry of log file" in run.err and "every cycle is identical" not in run.out
    assert str(last) in Run(capsys, "verify", *options, "-o", "json").json["damage"]
    assert Run(capsys, "verify", *options, "--to", str(last - 1)).status == 0
    assert "is cut off, and isn't read" in Run(capsys, "replay", *options).err


def test_verify_takes_a_stretch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = crowded().entries
    options = to_file(entries, tmp_path / "run.log")
    cycles = [entry.first for entry in entries if type(entry.batch.events[0]) is k.CycleTaken]
    run = Run(capsys, "verify", *options, "--from", str(cycles[1]), "--to", str(cycles[2]), "-o", "json")
    assert run.json["cycles"] == run.json["identical"] == 2


def test_verify_of_a_trimmed_log_says_what_it_could_not_reach(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = crowded().entries
    middle = entry_with(entries, k.Placed, last=True) + 1
    options = written(entries, snapshot_after=middle + 1, trim=entries[middle - 2].first)
    run = Run(capsys, "verify", *options)
    assert run.status == 0
    assert "not checked: 1 cycle before the oldest state in this log" in run.out
    answer = Run(capsys, "verify", *options, "-o", "json").json
    assert answer["out_of_reach"] == 1 and answer["identical"] == answer["cycles"] - 1 > 0


def test_verify_of_a_log_without_cycles_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "verify", *to_file(World().entries, tmp_path / "run.log"))
    assert run.status == 0 and "there is no cycle to verify" in run.out


# --- replay ---------------------------------------------------------------------------------------------------


def _digest_at(entries: list[Entry], offset: int) -> str:
    state = State()
    for entry in entries:
        if entry.first <= offset:
            apply_entry(state, entry, Changes())
    return snapshot.digest(state)


@pytest.mark.parametrize("snapshot_after", [0, 20])
def test_replay_comes_to_the_state_that_a_worker_had(
    written: Writer, capsys: pytest.CaptureFixture[str], snapshot_after: int
) -> None:
    entries = crowded().entries
    options = written(entries, snapshot_after=snapshot_after)
    for entry in entries[5::6]:
        run = Run(capsys, "replay", *options, "--at", str(entry.last), "--digest-only")
        assert run.out == f"{entry.last} {_digest_at(entries, entry.last)}\n"


def test_replay_shows_jobs_in_queue_order_and_the_use_of_nodes(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    world = crowded()
    options = written(world.entries)
    run = Run(capsys, "replay", "--all", *options)
    assert run.status == 0
    assert run.out.startswith(f"offset {world.state.offset} of epoch 1, ")
    assert run.out.splitlines()[1:4] == [
        "  jobs   6: 3 Pending, 2 Running, 1 Failed; 4 waiting for nodes",
        "  nodes  6: 5 take pods, 1 closed",
        "  GPUs   20: 16 used, 0 idle, 4 on closed nodes; 0 reserved for waiting jobs",
    ]
    jobs = [line.split()[1] for line in run.out.splitlines() if " default/" in line]
    assert jobs == [f"default/{name}" for name in ("big", "wide", "other", "never", "small", "wrong")]
    assert "n6    ready, taint dedicated=infra:NoSchedule" in run.out
    answer = Run(capsys, "replay", *options, "-o", "json").json
    assert answer["digest"] == snapshot.digest(world.state)
    assert answer["nodes"][0]["used"]["nvidia.com/gpu"] == 4
    assert sum(answer["totals"]["jobs"].values()) == len(answer["jobs"])


@pytest.mark.parametrize("columns", ["", "60", "100", "200"])
def test_replay_is_at_most_a_screen_and_says_how_to_see_the_rest(
    columns: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    for number in range(40):
        world.node(f"n{number:02}", gpus=1)
        world.job(f"j{number:02}", leader=shape(gpus=2 if number % 2 else 1))
    world.settle()
    options = to_file(world.entries, tmp_path / "run.log")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "30")
    shown = Run(capsys, "replay", *options).out.splitlines()
    assert len(shown) < 30 and any(line.startswith("  jobs   40: ") for line in shown[1:4])
    jobs, nodes = (sum(f"{of}{number:02} " in f"{line} " for line in shown for number in range(40)) for of in "jn")
    assert min(jobs, nodes) >= 4
    assert shown[-1] == f"{40 - jobs} of 40 jobs and {40 - nodes} of 40 nodes left out: --all shows them"
    everything = Run(capsys, "replay", "--all", *options).out
    assert all(f"default/j{number:02}" in everything and f"n{number:02}" in everything for number in range(40))
    assert "left out" not in everything and "…" not in everything
    assert len(Run(capsys, "replay", *options, "-o", "json").json["jobs"]) == 40


def test_replay_goes_to_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.node("n1")
    world.pass_time(3600)
    world.node("n2")
    options = to_file(world.entries, tmp_path / "run.log")
    run = Run(capsys, "replay", *options, "--at", "2023-11-14T22:13:30Z", "-o", "json")
    assert [node["name"] for node in run.json["nodes"]] == ["n1"]


def test_replay_beyond_the_end_says_where_the_log_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    run = Run(capsys, "replay", *to_file(world.entries, tmp_path / "run.log"), "--at", "9999")
    assert run.status == 1
    assert run.err.count("\n") == 1 and f"it ends at {world.state.offset}" in run.err


def test_replay_to_before_the_log_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = to_file(World().entries, tmp_path / "run.log")
    for words in (["replay"], ["explain", "j"]):
        run = Run(capsys, *words, *options, "--at", "0")
        assert run.status == 1 and "the log has no events up to that point (the log begins at offset 1, " in run.err


def test_replay_to_what_was_trimmed_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = crowded().entries
    options = to_file(entries, tmp_path / "run.log", snapshot_after=20, trim=entries[18].first)
    run = Run(capsys, "replay", *options, "--at", "3")
    assert run.status == 1 and "the log was trimmed up to offset" in run.err
    run = Run(capsys, "replay", *options, "--digest-only")
    assert run.out.endswith(_digest_at(entries, entries[-1].last) + "\n")


# --- events ---------------------------------------------------------------------------------------------------


def test_events_lists_a_job_with_verdicts(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    options = written(crowded().entries)
    run = Run(capsys, "events", *options, "--job", "wide")
    assert run.status == 0
    assert run.out.splitlines()[0].split() == ["OFFSET", "TIME", "KIND", "SUBJECT", "VERDICT", "TEXT"]
    assert [line.split()[3] for line in run.out.splitlines()[1:4]] == ["JobSeen", "Waits", "Placed"]
    lines = Run(capsys, "events", *options, "--job", "default/wide", "--kind", "placed", "-o", "json").lines
    assert [(line["kind"], line["verdict"]) for line in lines] == [("Placed", "accepted")]
    assert lines[0]["event"]["schedule_state"] == "ScheduledPartly"


def test_events_lists_a_stretch_and_from_a_snapshot_too(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    entries = crowded().entries
    options = written(entries, snapshot_after=20)
    first, last = entries[25].first, entries[30].last
    run = Run(capsys, "events", *options, "--from", str(first), "--to", str(last), "-o", "json")
    assert [line["offset"] for line in run.lines] == list(range(first, last + 1))


def test_events_without_a_match_says_so_beside_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = to_file(crowded().entries, tmp_path / "run.log")
    run = Run(capsys, "events", *options, "--job", "wide", "--kind", "NodeGone")
    assert (run.status, run.out, run.err) == (0, "", "arranger: no such events\n")


def test_events_of_a_job_that_nobody_knows_is_an_error_with_the_nearest_names(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    options = written(crowded().entries)
    run = Run(capsys, "events", *options, "--job", "default/smal")
    assert (run.status, run.out) == (1, "")
    assert run.err == "arranger: the log has no job 'default/smal' up to that point (did you mean default/small?)\n"
    run = Run(capsys, "events", *options, "--job", "team-a/small", "-o", "json")
    assert (run.status, run.out) == (1, "")


def test_events_of_a_queue_or_node_that_nobody_knows_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = crowded()
    world.queue("gone")
    world.queue_gone("gone")
    options = to_file(world.entries, tmp_path / "run.log")
    for name, said in (("--queue", "there is no queue 'nope'"), ("--node", "there is no node 'nope'")):
        run = Run(capsys, "events", *options, name, "nope")
        assert (run.status, run.out) == (1, "") and said in run.err
    run = Run(capsys, "events", *options, "--queue", "gone", "--kind", "JobSeen")
    assert (run.status, run.err) == (0, "arranger: no such events\n")


def test_events_of_a_pod_that_nobody_saw_is_an_error_with_the_nearest_names(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    options = written(crowded().entries)
    run = Run(capsys, "events", *options, "--pod", "wide-actor-1")
    assert (run.status, run.out) == (1, "")
    assert run.err.startswith("arranger: the log has no pod 'wide-actor-1' (did you mean wide-actors-1 or ")
    run = Run(capsys, "events", *options, "--pod", "default/wide-actor-1")
    assert run.status == 1 and "did you mean default/wide-actors-1 or " in run.err
    run = Run(capsys, "events", *options, "--pod", "unlike")
    assert (run.status, run.err) == (1, "arranger: the log has no pod 'unlike'\n")
    run = Run(capsys, "events", *options, "--pod", "wide-actors-1", "--kind", "NodeGone")
    assert (run.status, run.err) == (0, "arranger: no such events\n")


def test_a_job_whose_events_lie_outside_of_the_stretch_is_known_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = crowded()
    world.job_gone(world.state.jobs["uid-wide"])
    gone = world.state.offset
    world.node("n7")
    options = to_file(world.entries, tmp_path / "run.log", snapshot_after=len(world.entries) - 1)
    run = Run(capsys, "events", *options, "--job", "wide", "--to", "3")
    assert (run.status, run.err) == (0, "arranger: no such events\n")
    run = Run(capsys, "events", *options, "--job", "wide", "--from", str(gone + 1))
    assert (run.status, run.err) == (0, "arranger: no such events\n")


def test_events_follows_what_is_appended(tmp_path: Path) -> None:
    world = World()
    path = tmp_path / "run.log"
    to_file(world.entries, path)
    before = len(world.entries)
    command = [sys.executable, "-m", "arranger.cli.main", "events", "--log", str(path), "--follow", "-o", "json"]
    with subprocess.Popen([*command, "--kind", "NodeSeen", "--kind", "JobSeen"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            for name in ("n1", "n2"):
                world.node(name)
                asyncio.run(_append(path, world.entries[before:]))
                before = len(world.entries)
                assert json.loads(child.stdout.readline())["subject"] == name
        finally:
            child.kill()


async def _append(path: Path, entries: list[Entry]) -> None:
    log = FileWriter(path)
    await log.open()
    for entry in entries:
        await log.append(entry.batch, epoch=1)
    await log.close()


def test_following_up_to_a_point_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "events", *to_file(World().entries, tmp_path / "run.log"), "--follow", "--to", "3")
    assert run.status == 2 and "--follow" in run.err


# --- explain --------------------------------------------------------------------------------------------------


def test_explain_says_why_a_job_waits(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    options = written(crowded().entries)
    run = Run(capsys, "explain", "other", *options)
    assert run.status == 0
    for part in (
        "Why it waits: 0 of 1 required pods fit; learner: 0 of 6 nodes fit: 4 insufficient nvidia.com/gpu (needs 2, at "
        "most 0 free), 1 cordoned, ",
        "closest node  n1 (and 3 more like it): would take it with 2 more nvidia.com/gpu (needs 2, has 0 of 4 free)",
        "order         position 3 of 4 among the jobs that ask for nodes, by Priority",
        "start         at ",
        ": a guess by a forecast as of this point, because nothing is known of the end of default/small, default",
        "; likely not before ",
        "priority 8 against 5",
        "Decisions that took nvidia.com/gpu on nodes that it may use",
        "Time in each state",
    ):
        assert part in run.out
    answer = Run(capsys, "explain", "default/other", *options, "-o", "json").json
    assert run.out.startswith("default/other waits since 2023-11-14 ")
    assert answer["start"]["certainty"] == "Forecast" and answer["start"]["why"] == "Endless"
    short = answer["waiting"]["shortfall"]
    assert sum(count for _, count in short["reasons"]) == short["nodes"] == 6
    assert [taker["job"] for taker in answer["waiting"]["takers"]] == ["default/small", "default/wide"]


def test_explain_says_a_long_reason_once_and_of_when_a_message_is(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=1)
    world.node("n2", gpus=1)
    world.job("j", leader=shape(gpus=4))
    world.cycle()
    said = world.state.offset
    counted = "0 of 2 nodes fit: 2 insufficient nvidia.com/gpu (needs 4, at most 1 free)"
    world.node("n3", gpus=2)
    options = written(world.entries)
    run = Run(capsys, "explain", "j", *options, "--at", str(said))
    assert run.out.count(counted) == 1
    never = "even an empty cluster of these nodes can't hold it: 0 of 1 required pods fit; learner"
    assert f"message   {never}: as above" in run.out
    assert f"Unscheduled: {never}: as above" in run.out
    run = Run(capsys, "explain", "j", *options)
    assert f"{never}: {counted} (of offset {said})\n" in run.out


def test_explain_tells_what_is_older_than_the_job_and_who_freed_room(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("first", leader=shape(gpus=2))
    world.job("second", leader=shape(gpus=2))
    world.settle()
    placed = world.state.jobs["uid-second"]
    world.job("j", leader=shape(gpus=4))
    world.change_pod(placed.bound[0, 0], phase="Succeeded", ready=False)
    freed = world.state.offset
    world.control()
    run = Run(capsys, "explain", "j", *written(world.entries))
    assert (
        "What keeps it waiting (events before its creation): without this event, a cycle would give it nodes now\n"
        in run.out
    )
    assert f"freed it at offset {freed}\n" in run.out
    assert "holds it, since before this job was created\n" in run.out


def test_explain_shows_the_first_changes_of_a_kind_and_says_how_many_more_would_help(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    for number in range(6):
        world.node(f"n{number}", gpus=1, cordoned=True)
    world.job("j", leader=shape(gpus=1))
    options = written(world.entries)
    run = Run(capsys, "explain", "j", *options)
    assert run.out.count("uncordon n") == 4 and "2 more like these would help: --all\n" in run.out
    run = Run(capsys, "explain", "j", *options, "--all")
    assert run.out.count("uncordon n") == 6 and "more like these" not in run.out


def test_explain_of_a_failed_job_says_where_stands_what_would_have_helped(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("j", leader=shape(gpus=4))
    world.cycle()
    at = world.state.offset
    world.pass_time(3600)
    world.cycle()
    world.control()
    options = written(world.entries)
    run = Run(capsys, "explain", "j", *options, "--at", str(at))
    assert "it doesn't fit even an empty cluster of these nodes; the first cycle from " in run.out
    run = Run(capsys, "explain", "j", *options)
    assert "for nvidia.com/gpu; what would have helped: arranger explain j " in run.out
    first, remedy, helped, *_ = run.out.splitlines()
    assert (
        first.startswith("default/j failed at 20") and ", because even an empty cluster of these nodes can't " in first
    )
    assert remedy.startswith("  remedy    request less for a pod (a node offers at most 1 nvidia") and remedy.endswith(
        " submit the job again"
    )
    assert helped == (
        f"            tried at offset {at}, this would have given it 1 pod: "
        "learner asking for 1 nvidia.com/gpu instead of 4"
    )
    answer = Run(capsys, "explain", "j", *options, "-o", "json").json
    assert (answer["standing"]["reason"], answer["start"]) == ("Unschedulable", None)
    assert answer["would_have_helped"]["remedies"][0]["pods"] == 1


def test_what_would_have_helped_a_failed_job_is_of_the_wait_in_which_it_was_given_up(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=4, cordoned=True)
    job = world.job("j", leader=shape(gpus=4))
    world.settle()
    world.pass_time(7200)  # by far its longest wait
    world.node("n1", gpus=4)
    world.settle()
    assert job.placements
    world.node_gone("n1")
    world.node("n2", gpus=1)
    world.settle()
    world.pass_time(60)
    world.wait_for_back_offs()
    world.settle()
    assert not job.placements
    at = world.state.offset
    world.pass_time(3600)
    world.settle()
    answer = Run(capsys, "explain", "j", *written(world.entries), "-o", "json").json
    assert (answer["standing"]["stage"], answer["standing"]["reason"]) == ("Failed", "Unschedulable")
    helped = answer["would_have_helped"]
    assert helped["offset"] <= at and "node n1 back" in [one["text"] for one in helped["remedies"]]


def test_explain_says_that_a_reservation_promises_a_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Path(__file__).parents[1] / "histories" / "room-for-what-matters.log"
    run = Run(capsys, "explain", "wide", "--at", "405", "--log", str(log))
    [start] = [line for line in run.out.splitlines() if line.startswith("  start ")]
    assert start.endswith(": promised by its reservation") and ", in 26.3s" in start
    answer = Run(capsys, "explain", "wide", "--at", "405", "--log", str(log), "-o", "json").json["start"]
    assert (answer["certainty"], answer["latest_ms"], answer["why"]) == ("Promised", 0, None)


def test_explain_says_why_a_pod_is_where_it_is(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    options = written(crowded().entries)
    run = Run(capsys, "explain", "wide", *options, "--pod", "wide-actors-3")
    assert run.status == 0
    assert "Why wide-actors-3 is on n3: it scores 37.5000 against 18.7500 of n4" in run.out
    assert "SCORE" not in run.out
    assert "SCORE" in Run(capsys, "explain", "wide", *options, "--pod", "wide-actors-3", "--scores").out
    (of_pod,) = Run(capsys, "explain", "wide", *options, "--pod", "wide-actors-3", "-o", "json").json[
        "placement_explanations"
    ]
    assert [ranked["node"] for ranked in of_pod["ranking"]] == ["n3", "n4"]


def test_explain_at_an_earlier_point_knows_nothing_of_later(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = crowded().entries
    at = next(line.first for line in entries if type(line.batch.events[0]) is k.JobSeen)
    answer = Run(capsys, "explain", "small", *written(entries), "--at", str(at), "-o", "json").json
    assert answer["offset"] == at and answer["placement_explanations"] == []
    assert answer["waiting"]["why"] == "there is room for it now: the next scheduling cycle places it (5 pods)"


def test_explain_begins_at_a_snapshot_from_before_the_job(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    entries = crowded().entries
    options = written(entries, snapshot_after=12)
    answer = Run(capsys, "explain", "wide", *options, "-o", "json").json
    assert answer["began"] == entries[11].last
    assert answer["standing"]["pods_placed"] == 11 and len(answer["placement_explanations"]) == 4


@pytest.mark.parametrize("words", [["wide"], ["wide", "--pod", "wide-actors-3"], ["gone"]], ids=" ".join)
def test_explain_reads_a_log_without_snapshots_once(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = crowded()
    world.job_gone(world.job("gone"))
    options = to_file(world.entries, tmp_path / "run.log")
    read = FileLog.read_stored
    offsets: list[int] = []

    async def counting(self: FileLog, after: Position, *, limit: int = 1000) -> Any:
        found = await read(self, after, limit=limit)
        offsets.extend(entry.last for entry in found)
        return found

    monkeypatch.setattr(FileLog, "read_stored", counting)
    assert Run(capsys, "explain", *words, *options).status == 0
    assert offsets == [entry.last for entry in world.entries]


def test_explain_compares_a_pods_node_with_another(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    options = written(crowded().entries)
    compared = {}
    for node in ("n4", "n2", "n5", "n9"):
        (of_pod,) = Run(
            capsys, "explain", "wide", *options, "--pod", "wide-actors-3", "--node", node, "-o", "json"
        ).json["placement_explanations"]
        compared[node] = of_pod["compared"]
    assert (compared["n4"]["rank"], compared["n4"]["ranked"]["node"]) == (2, "n4")
    assert [compared[node]["refused"] for node in ("n2", "n5", "n9")] == [
        "insufficient nvidia.com/gpu (needs 1, 0 free)",
        "cordoned",
        "there was no such node then",
    ]


def test_explain_passes_over_snapshots_that_it_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = to_file(crowded().entries, tmp_path / "run.log")

    async def spoil() -> None:
        log = FileWriter(tmp_path / "run.log")
        await log.open()
        for entry in (await log.read(await log.start()))[11:13]:
            await log.put_snapshot(StoredSnapshot(Position(1, entry.last, entry.chain), msgspec.msgpack.encode([0])))
        await log.close()

    asyncio.run(spoil())
    run = Run(capsys, "explain", "wide", *options, "-o", "json")
    assert run.status == 0 and run.json["began"] == 0
    assert run.err.count("a snapshot isn't used: the snapshot has layout 0") == 1


def test_explain_offers_the_nearest_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = to_file(crowded().entries, tmp_path / "run.log")
    run = Run(capsys, "explain", "smal", *options)
    assert run.status == 1 and "did you mean default/small?" in run.err
    run = Run(capsys, "explain", "wide", "--pod", "wide-actor-3", *options)
    assert run.status == 1 and "did you mean wide-actors-3" in run.err


def test_explain_of_a_deleted_job_shows_it_as_it_was_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = crowded()
    world.job_gone(world.state.jobs["uid-wide"])
    options = to_file(world.entries, tmp_path / "run.log")
    run = Run(capsys, "explain", "wide", *options, "-o", "json")
    assert run.status == 0 and run.json["deleted"]["offset"] == world.state.offset
    assert run.json["standing"]["pods_placed"] == 11
    run = Run(capsys, "explain", "wide", *options)
    began = run.out.splitlines()[0]
    assert began.startswith("default/wide was deleted at ") and "; just before: " in began
    assert f"(offset {world.state.offset})" in began


@pytest.mark.parametrize("snapshot_after", [False, True])
def test_explain_of_a_job_that_was_deleted_while_it_waited_is_as_of_its_deletion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, snapshot_after: bool
) -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("first", leader=shape(gpus=1), expected_s=600)
    world.settle()
    job = world.job("withdrawn", leader=shape(gpus=1), created=world.now_ms)
    world.cycle()
    world.pass_time(90)
    other = world.job("other", leader=shape(gpus=1), created=world.now_ms)
    watch, term = k.Watched.JOB, world.terms[k.Watched.JOB]
    world.say(*(k.ObjectGone(watch, term, of.seen.namespace, of.seen.name, of.uid) for of in (other, job)))  # at once
    deleted = world.state.offset
    for number in range(201):  # too many for a forecast as of now
        world.job(f"later-{number}", leader=shape(gpus=1), suspend=True)
        world.job(f"later-{number}", leader=shape(gpus=1), generation=2)
    options = to_file(world.entries, tmp_path / "run.log")

    async def keep_state() -> None:
        log = FileWriter(tmp_path / "run.log")
        await log.open()
        last = (await log.read(await log.start(), limit=10_000))[-1]
        await log.put_snapshot(StoredSnapshot(Position(1, last.last, last.chain), snapshot.encode(world.state)))
        await log.close()

    if snapshot_after:
        asyncio.run(keep_state())
    run = Run(capsys, "explain", "withdrawn", *options)
    began = run.out.splitlines()[0]
    assert began.startswith("default/withdrawn was deleted at ") and began.endswith(", for 1m30s")
    assert f"(offset {deleted}); just before: waits since " in began
    answer = Run(capsys, "explain", "withdrawn", *options, "-o", "json").json
    assert answer["start"]["certainty"] == "Forecast"
    assert 0 < answer["start"]["expected_ms"] - answer["time_ms"] <= 510_000


def test_explain_of_a_job_that_came_and_went_at_once_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    seen = world.job("before").seen
    term = world.terms[k.Watched.JOB]
    seen = msgspec.structs.replace(seen, name="brief", uid="brief")
    world.say(seen, k.ObjectGone(k.Watched.JOB, term, "default", "brief", "brief"))
    run = Run(capsys, "explain", "brief", *to_file(world.entries, tmp_path / "run.log"))
    assert run.status == 1 and "arranger events --job brief" in run.err


def test_explain_asks_which_of_several_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    job = world.job("j", leader=shape(cpu=1))
    other = msgspec.structs.replace(job.seen, namespace="team-a", uid="another")
    world.say(other)
    options = to_file(world.entries, tmp_path / "run.log")
    run = Run(capsys, "explain", "j", *options)
    assert run.status == 2 and "default/j, team-a/j" in run.err
    assert Run(capsys, "explain", "j", "-n", "team-a", *options, "-o", "json").json["standing"]["uid"] == "another"
    assert Run(capsys, "explain", "default/j", "-n", "team-a", *options).status == 2


def test_explain_of_a_job_that_the_log_never_saw_asks_whether_it_was_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, "explain", "zzzz", *to_file(crowded().entries, tmp_path / "run.log"))
    assert run.status == 1
    assert "the log has no job 'zzzz' up to that point (was it refused at apply?" in run.err


def _ended_after_waiting() -> World:
    world = World()
    job = world.job("waits", leader=shape(gpus=1))
    late_cycle(world, world.cycle)
    world.say(job.seen)
    world.pass_time(30)
    world.node("n1", gpus=1)
    world.settle()
    world.pass_time(7)
    world.run_pod(world.state.jobs["uid-waits"], (0, 0), "n1", phase="Succeeded")
    world.control()
    return world


def test_explain_of_an_ended_job_speaks_of_the_past_and_of_what_it_waited_for(
    written: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    options = written(_ended_after_waiting().entries)
    run = Run(capsys, "explain", "waits", *options)
    assert run.out.startswith("default/waits succeeded at ")
    assert run.out.splitlines()[0].endswith(": the leader has finished; it waited 30.0s and ran 7.0s")
    assert "pods      it had 1; the job has ended, 1 of its pods still exists" in run.out
    assert "Why waits-learner-0 was on n1: " in run.out and " is on n1" not in run.out
    line = next(line for line in run.out.splitlines() if line.startswith("  waited"))
    said, _, command = line.partition(": ")
    assert said == "  waited    it waited 30.0s for nodes, of which there are none"
    assert command.startswith("arranger explain waits --log ")
    run = Run(capsys, *command.split()[1:])
    assert run.status == 0 and "can't hold it: 0 of 1 required pods fit" in run.out


def test_explain_leaves_out_what_changed_nothing_and_lists_it_when_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = to_file(_ended_after_waiting().entries, tmp_path / "run.log")
    run = Run(capsys, "explain", "waits", *options)
    assert "seen again" not in run.out and "superseded" not in run.out
    assert "1 decision about it took no effect because another scheduler's cycle came first: normal" in run.out
    assert "Decisions about it that took no effect" not in run.out
    assert run.out.endswith("\n2 events that changed nothing are not shown: --all\n")
    everything = Run(capsys, "explain", "waits", "--all", *options).out
    assert "seen again, with the same spec" in everything and "superseded by the cycle at offset" in everything
    assert "Decisions about it that took no effect" in everything and "not shown" not in everything
    answer = Run(capsys, "explain", "waits", *options, "-o", "json").json
    hidden = [moment["again"] or moment["superseded"] for moment in answer["timeline"]]
    assert hidden.count(True) == 2 and len(answer["rejected"]) == 1


# --- all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["events"], ["replay"], ["explain", "j"], ["verify"]], ids=lambda words: words[0])
def test_a_log_that_is_not_there_is_one_clear_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(capsys, *words, "--log", str(tmp_path / "none.log"))
    assert run.status == 2
    assert run.err == f"arranger: there is no log at {tmp_path / 'none.log'} (check the path)\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["replay", "--at"], ["explain", "j", "--at"], ["verify", "--from"]])
def test_a_point_that_is_none_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *words, "someday")
    assert run.status == 2 and "'someday' is not a point in the log; allowed: an offset" in run.err


@pytest.mark.parametrize("words", [["events"], ["replay"], ["explain", "wide"], ["verify"]], ids=lambda words: words[0])
def test_reading_writes_nothing_to_a_file(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = to_file(crowded().entries, tmp_path / "run.log", snapshot_after=20)
    before = _content(tmp_path)
    assert Run(capsys, *words, *options).status == 0
    assert _content(tmp_path) == before


def _content(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in folder.iterdir()
    }


@pytest.mark.parametrize("words", [["events"], ["replay"], ["explain", "wide"], ["verify"]], ids=lambda words: words[0])
def test_reading_writes_nothing_to_redis(
    words: list[str], redis_server: RealRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_server.command("FLUSHDB")
    asyncio.run(write(RedisLog(redis_server.url, CLUSTER, now_ms=lambda: 1), crowded().entries))
    before = _changes(redis_server)
    assert Run(capsys, *words, "--log", redis_server.url, "--cluster", CLUSTER).status == 0
    assert _changes(redis_server) == before
    redis_server.command("FLUSHDB")


def _changes(server: RealRedis) -> bytes:
    """The number of changes to the server's data since its start."""
    info = server.command("INFO", "persistence")
    return next(line for line in info.splitlines() if line.startswith(b"rdb_changes_since_last_save"))


@pytest.mark.parametrize("name", ["events", "replay", "explain", "verify"])
def test_the_help_has_a_worked_example_with_its_lines_kept(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, name, "--help")
    assert run.status == 0 and "\\b" not in run.out
    examples = [line for line in run.out.splitlines() if line.strip().startswith(f"arranger {name} ")]
    assert len(examples) >= 2 and any("--log run.log" in line for line in examples)


# --- what-if, diff, bisect ------------------------------------------------------------------------------------


def test_a_cycle_is_taken_with_something_otherwise(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(crowded().entries, snapshot_after=12)
    same = Run(capsys, "what-if", *log, "--at", "29", "-o", "json").json
    assert (same["cycle"], same["reproduced"], same["differences"]) == (27, True, [])
    other = Run(capsys, "what-if", *log, "--at", "29", "--policy", "LeaderFirst", "-o", "json").json
    assert [one["job"] for one in other["differences"]] == ["default/wide"]
    onward = Run(capsys, "what-if", *log, "--without", "wide", "--until", "1h", "-o", "json").json["until"]
    assert onward["asItWas"]["started"] == 0 and onward["whatIf"]["started"] == 2


def test_two_points_are_compared(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(crowded().entries, snapshot_after=12)
    found = Run(capsys, "diff", "26", "46", *log, "-o", "json").json
    assert {name for group in found["jobs"] for name in group["names"]} == {
        "default/big",
        "default/other",
        "default/wide",
    }
    assert [group["names"] for group in found["nodes"]] == [["n2"], ["n3", "n4"]]


def test_the_event_that_blocks_a_job_is_found(written: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(crowded().entries, snapshot_after=12)
    found = Run(capsys, "bisect", *log, "--job", "big", "--blocked", "-o", "json").json["found"]
    assert (found["event"]["offset"], found["event"]["subject"]) == (29, "default/wide")
    found = Run(capsys, "bisect", *log, "--policy", "LeaderFirst", "-o", "json").json["found"]
    assert found["cycle"] == 27


def test_a_trimmed_log_is_sought_from_the_oldest_state_that_it_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = crowded().entries
    number = entry_with(entries, k.Placed, last=True)
    log = to_file(entries, tmp_path / "run.log", snapshot_after=number + 1, trim=entries[number].last + 1)
    run = Run(capsys, "bisect", *log, "--job", "big", "--blocked")
    assert run.status == 1 and "the quorum of default/big doesn't fit: it always holds" in run.out
    run = Run(capsys, "bisect", *log, "--job", "big", "--waits", "-o", "json")
    assert run.status == 0 and run.json["from"] == entries[number].last + 1
    run = Run(capsys, "what-if", *log, "--at", str(entries[number].first))
    assert run.status == 1 and "trimmed" in run.err


def test_a_time_after_the_end_of_the_log_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = crowded().entries
    log = to_file(entries, tmp_path / "run.log")
    for words in (["replay"], ["explain", "wide"], ["what-if"]):
        run = Run(capsys, *words, *log, "--at", "2038-01-01T00:00:00")
        assert run.status == 0 and run.err.count("the log ends at ") == 1
        assert "before the requested time; this is its end" in run.err
    last = datetime.datetime.fromtimestamp(entries[-1].batch.time_ms / 1000, datetime.UTC)
    for at in (last.isoformat(), str(entries[-1].last)):
        assert Run(capsys, "replay", *log, "--at", at).err == ""


def test_replay_says_whose_else_use_a_node_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.node("n1", gpus=4)
    log = to_file(world.entries, tmp_path / "without.log")
    assert "not Arranger's" not in Run(capsys, "replay", *log).out
    world.pod("notebook", "n1", gpus=3)
    log = to_file(world.entries, tmp_path / "with.log")
    told = "1 pod that is not Arranger's also holds resources: default/notebook (3 nvidia.com/gpu on n1)"
    assert told in Run(capsys, "replay", *log).out
