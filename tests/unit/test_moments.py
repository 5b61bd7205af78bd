"""The console's questions: a moment is what the fold says, whatever way leads to it; the index misses nothing."""

import asyncio
import itertools
import json
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.cli.moments import _attended, serve, while_followed
from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Log, Position, entries
from arranger.events.redis_log import RedisLog
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.pod import gpus_of
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.replay.console import gantt as gantt_module
from arranger.replay.console import log_index, node_gantt
from arranger.replay.console import series as series_module
from arranger.replay.console.job_page import job_page
from arranger.replay.console.log_index import LogIndex
from arranger.replay.console.moment import gpus_held, moment, waits
from arranger.replay.console.series import SeriesIndex
from arranger.replay.console.snapshots import Snapshots, continuing
from arranger.replay.console.timeline import Thinned, TimelineIndex
from arranger.replay.reading.gpus import gpu_totals
from arranger.replay.reading.overview import overview
from arranger.replay.what_if.hypothesis import private_copy
from arranger.scheduling import queues_view
from arranger.web import damage
from arranger.web import moments as moments_module
from arranger.web.moment_process import MomentReply, MomentRequest
from arranger.web.moments import Moments
from arranger.web.refusals import Refusal
from tests.commands import to_file
from tests.members import connected, member
from tests.memory_log import DamagedLog, MemoryLog
from tests.servers import RealRedis
from tests.world import Edited, World, shape

HISTORIES = Path(__file__).parents[1] / "histories"
NAMES = ("room-for-what-matters.log", "a-job-that-waits.log", "demo.log")
_READ: dict[str, Sequence[Entry]] = {}


async def _entries(log: Log) -> Sequence[Entry]:
    await log.open()
    return [entry async for entry in entries(log, await log.start())]


def history(name: str) -> Sequence[Entry]:
    if name not in _READ:
        _READ[name] = asyncio.run(_entries(FileLog(HISTORIES / name)))
    return _READ[name]


def folded(of: Sequence[Entry], at: int) -> State:
    state = State(epoch=1)
    for entry in of:
        if entry.first > at:
            break
        apply_entry(state, entry, Changes())
    return state


def ask(log: Log, *questions: tuple[str, dict[str, str]]) -> list[Any]:
    """The answers when all of the log is indexed, and refusals."""

    async def answers() -> list[Any]:
        moments = Moments(log)
        following = asyncio.create_task(moments.follow())
        found: list[Any] = []
        async with asyncio.timeout(60):
            await moments.answer("timeline", {})
            while not moments.complete:  # noqa: ASYNC110  # the index tells nobody
                await asyncio.sleep(0.01)
            for name, values in questions:
                try:
                    found.append(json.loads((await moments.answer(name, values))[0]))
                except Refusal as problem:
                    found.append(problem)
        following.cancel()
        await asyncio.wait([following])
        return found

    return asyncio.run(answers())


def at_history(name: str, *questions: tuple[str, dict[str, str]]) -> list[Any]:
    return ask(FileLog(HISTORIES / name), *questions)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.floats(0, 1), min_size=3, max_size=6))
def test_a_moment_is_what_the_fold_of_the_log_says_in_any_order_of_questions(name: str, places: list[float]) -> None:
    of = history(name)
    points = [max(round(place * of[-1].last), 1) for place in places]
    found = at_history(name, *(("moment", {"at": str(at)}) for at in points))
    for at, answer in zip(points, found, strict=True):
        state = folded(of, at)
        seen = overview(state, CycleConfig())
        jobs = {f"{line.namespace}/{line.name}": line for line in seen.jobs}
        assert answer["at"] == seen.offset
        assert answer["time"] == seen.time_ms / 1000
        assert [node["name"] for node in answer["nodes"]] == [node.name for node in seen.nodes if node.present]
        assert [(job["stage"], job["podsPlaced"]) for job in answer["jobs"]] == [
            (jobs[job["job"]].stage, jobs[job["job"]].pods_placed) for job in answer["jobs"]
        ]
        assert len(answer["jobs"]) == len(seen.jobs)
        present = [node for node in seen.nodes if node.present]
        # Pods that leave and those that wait for their room both count on a node.
        used = [min(gpus_of(node.used.items()), gpus_of(node.allocatable.items())) for node in present]
        assert answer["totals"]["gpusUsed"] == sum(used)


@pytest.mark.parametrize("name", NAMES)
def test_every_snapshot_goes_on_to_the_same_state_as_the_fold_and_stays_as_it_was(name: str) -> None:
    of = history(name)
    index = LogIndex(State(epoch=1), asyncio.run(_start(name)), None, Snapshots(most=24, gap=5))
    digests = {0: snapshot.digest(index.state)}
    for entry in of:
        index.feed(entry)
        digests[entry.last] = snapshot.digest(index.state)
    assert len(index.snapshots) > 5
    for last in list(digests)[:: len(digests) // 12]:
        kept = index.snapshots.nearest(last)
        assert kept is not None
        state = continuing(kept)
        for entry in of:
            if kept.position.offset < entry.first <= last:
                apply_entry(state, entry, Changes())
        assert snapshot.digest(state) == digests[last]
        assert snapshot.digest(continuing(kept)) == digests[kept.position.offset]
        assert moment(state) == moment(folded(of, last))


async def _start(name: str) -> Any:
    log = FileLog(HISTORIES / name)
    await log.open()
    return await log.start()


def test_a_copy_of_a_state_shares_no_table_that_the_fold_changes() -> None:
    state = State()
    copy = private_copy(state)
    shared = [of.name for of in fields(State) if getattr(copy, of.name) is getattr(state, of.name)]
    assert not [name for name in shared if isinstance(getattr(state, name), dict | list)]


def test_snapshots_are_bounded_in_number_and_memory() -> None:
    of = history(NAMES[0])
    few, small = Snapshots(most=8, gap=1), Snapshots(most_bytes=20_000, gap=1)
    for snapshots in (few, small):
        index = LogIndex(State(epoch=1), asyncio.run(_start(NAMES[0])), None, snapshots)
        for entry in of:
            index.feed(entry)
        first = snapshots.nearest(0)
        assert first is not None
        assert first.position.offset == 0
        assert snapshots.gap > 1
    assert len(few) <= 8
    assert small.cost_bytes <= 20_000 or len(small) <= 2


def test_the_timeline_counts_every_event_once_and_marks_what_went_wrong() -> None:
    of = history(NAMES[0])
    (found,) = at_history(NAMES[0], ("timeline", {"buckets": "7"}))
    assert (found["first"], found["last"], found["complete"]) == (1, of[-1].last, True)
    assert len(found["buckets"]) == 7
    assert sum(bucket["events"] for bucket in found["buckets"]) == of[-1].last
    events = {entry.first + number: one for entry in of for number, one in enumerate(entry.batch.events)}
    preempted = [mark["at"] for mark in found["marks"] if mark["kind"] == "preempted"]
    assert preempted
    assert all(isinstance(events[at], k.Preempted) for at in preempted)


async def test_pods_that_are_replaced_while_their_job_runs_on_are_marked() -> None:
    log = FileLog(HISTORIES / "demo.log")
    await log.open()
    state = State()
    index = TimelineIndex(state)
    for entry in await log.read(await log.start()):
        changes = Changes()
        apply_entry(state, entry, changes)
        index.note(entry, state, changes)
    marks = index.timeline(4, complete=True).marks
    assert [mark.subjects for mark in marks if mark.kind == "workersReplaced"] == [("default/loses-a-worker",)]


def test_cordons_and_jobs_that_start_again_are_marked() -> None:
    world = World()
    world.node("n1")
    job = world.job("train")
    world.settle()
    world.node("n1", cordoned=True)
    world.node("n1", cordoned=True, cpu=60)
    world.node("n1")
    world.change_pod(world.pods_of(job)[0, 0].uid, phase="Failed")
    world.settle()
    state = State(epoch=1)
    index = TimelineIndex(state)
    for entry in world.entries:
        changes = Changes()
        apply_entry(state, entry, changes)
        index.note(entry, state, changes)
    events = {entry.first + number: one for entry in world.entries for number, one in enumerate(entry.batch.events)}
    marks = index.timeline(4, complete=True).marks
    assert [(mark.kind, mark.subjects) for mark in marks] == [
        ("nodeCordoned", ("n1",)),
        ("podFailed", ("default/train",)),
        ("jobRescheduled", ("default/train",)),
    ]
    cordoned, _, again = (events[mark.at] for mark in marks)
    assert isinstance(cordoned, k.NodeSeen) and cordoned.facts.cordoned
    assert isinstance(again, k.StageDecided) and again.stage == Stage.RESCHEDULING


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=400), st.integers(4, 40))
def test_thinned_offsets_have_the_last_one_of_every_part_of_the_time(gaps_ms: list[int], most: int) -> None:
    """So a node that was lost in a quiet hour isn't forgotten for the sake of a busy one."""
    kept, times = Thinned(most), list(itertools.accumulate(gaps_ms))
    for offset, time_ms in enumerate(times):
        kept.add(offset, time_ms)
        assert len(kept.offsets) <= most
    if len(times) <= most:
        assert list(kept.offsets) == list(range(len(times)))
        return
    last = {(time_ms - times[0]) // kept._width_ms: offset for offset, time_ms in enumerate(times)}
    assert list(kept.offsets) == list(last.values())
    assert list(kept.times_ms) == [times[offset] for offset in kept.offsets]
    assert kept._width_ms <= max(4 * (times[-1] - times[0]) // most + 1, 1)


def test_decisions_are_stepped_through_one_by_one_in_both_directions() -> None:
    of, name = history(NAMES[0]), NAMES[0]
    state, accepted = State(epoch=1), []
    for entry in of:
        changes = Changes()
        apply_entry(state, entry, changes)
        made = [verdict.offset for verdict in changes.verdicts if verdict.accepted]
        accepted += [at for at in made if isinstance(entry.batch.events[at - entry.first], (k.Placed, k.Preempted))]
    after = [("decision", {"after": str(at)}) for at in [0, *accepted]]
    before = [("decision", {"before": str(at)}) for at in [*accepted, of[-1].last + 1]]
    *forward, end = at_history(name, *after)
    assert [one["at"] for one in forward] == accepted
    assert isinstance(end, Refusal)
    begin, *back = at_history(name, *before)
    assert [one["at"] for one in back] == accepted
    assert isinstance(begin, Refusal)


def test_bars_of_a_job_follow_each_other_and_say_why_it_waited() -> None:
    (found,) = at_history("a-job-that-waits.log", ("gantt", {}))
    assert found["left"] == 0
    bars = [bar for job in found["jobs"] for bar in job["bars"]]
    assert {bar["kind"] for bar in bars} == {"waiting", "running"}
    assert all(bar["cause"] for bar in bars if bar["kind"] == "waiting")
    assert all(bar["nodes"] and bar["cause"] is None for bar in bars if bar["kind"] == "running")
    for job in found["jobs"]:
        ends = [(bar["from"], bar["to"]) for bar in job["bars"]]
        assert all(before[1] <= later[0] for before, later in itertools.pairwise(ends))


@pytest.mark.parametrize(("at", "most"), [(150, 2_000), (230, 2_000), (476, 2_000), (230, 3)])
def test_jobs_that_wait_or_run_come_first_and_those_that_ended_long_ago_are_left_out(
    at: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gantt_module, "_JOBS", most)
    found, now = at_history(NAMES[0], ("gantt", {"to": str(at)}), ("moment", {"at": str(at)}))
    lasting = {job["job"] for job in now["jobs"] if job["waitCause"] or job["gpusHeld"]}
    names = [job["job"] for job in found["jobs"]]
    assert set(names[: len(lasting)]) >= lasting if len(names) >= len(lasting) else set(names) <= lasting
    ends = [job["bars"][-1]["to"] for job in found["jobs"][len(lasting) :]]
    assert ends == sorted(ends, reverse=True)
    assert (len(names) == most) == bool(found["left"])


@pytest.mark.parametrize("name", NAMES)
def test_a_node_has_the_bars_of_the_jobs_that_ran_there(name: str) -> None:
    jobs, nodes = at_history(name, ("gantt", {}), ("node-gantt", {}))
    of_jobs = {
        (one["job"], node, second)
        for one in jobs["jobs"]
        for bar in one["bars"]
        for node in bar["nodes"]
        for second in (bar["from"], bar["to"])
    }
    ran = {(nodes["jobs"][job], node["node"]) for node in nodes["nodes"] for job, *_ in node["bars"]}
    assert ran == {(job, node) for job, node, _ in of_jobs}
    for node in nodes["nodes"]:
        for job, begin, end, _ in node["bars"]:
            assert begin < end
            bars = [bar for one in jobs["jobs"] if one["job"] == nodes["jobs"][job] for bar in one["bars"]]
            held = [bar for bar in bars if node["node"] in bar["nodes"] and begin <= bar["from"] <= bar["to"] <= end]
            assert sum(bar["to"] - bar["from"] for bar in held) == pytest.approx(end - begin)


@pytest.mark.parametrize("name", NAMES)
def test_the_gpus_of_a_nodes_bars_are_those_that_its_jobs_hold_at_any_point(name: str) -> None:
    """Never more than the node has: each bar has lanes of its own."""
    of, chance = history(name), random.Random(2)
    points = [chance.randint(1, of[-1].last) for _ in range(12)]
    nodes, *moments = at_history(name, ("node-gantt", {}), *(("moment", {"at": str(at)}) for at in points))
    for now in moments:
        held = {
            node["name"]: {now["jobs"][job]["job"]: gpus for job, gpus in node["jobs"]}
            for node in now["nodes"]
            if node["jobs"]
        }
        bars = {
            node["node"]: {
                nodes["jobs"][job]: gpus
                for job, begin, end, gpus in node["bars"]
                if gpus and begin <= now["time"] < end
            }
            for node in nodes["nodes"]
        }
        assert {node: jobs for node, jobs in bars.items() if jobs} == held
        there = {node["node"]: node["gpus"] for node in nodes["nodes"]}
        assert all(sum(jobs.values()) <= there[node] for node, jobs in bars.items())


@pytest.mark.parametrize("name", NAMES)
def test_the_bars_of_a_run_say_how_it_ended(name: str) -> None:
    gantt, now = at_history(name, ("gantt", {}), ("moment", {}))
    stages = {job["job"]: job["stage"] for job in now["jobs"]}
    told = set()
    for job in gantt["jobs"]:
        for bar, later in itertools.pairwise(job["bars"]):
            again = bar["kind"] == "running" and later["kind"] == "waiting"
            same = bar["kind"] == later["kind"] == "running" and bar["attempt"] == later["attempt"]
            assert bar["outcome"] == ("Rescheduling" if again else later["outcome"] if same else ""), job["job"]
        last, stage = job["bars"][-1], stages.get(job["job"], "")
        if stage:
            assert last["outcome"] == (stage if stage in ("Succeeded", "Failed") else "")
        told |= {bar["outcome"] for bar in job["bars"]}
    assert "Succeeded" in told


def test_every_bar_of_a_run_says_how_that_ended_though_its_pods_ended_one_after_the_other() -> None:
    world, index = World(), gantt_module.GanttIndex()
    for number in range(2):
        world.node(f"n{number}", cpu=4, gpus=8)
    job = world.job("g", workers=2, worker=shape(cpu=1, gpus=8), min_workers=2, equals=True)
    world.settle()
    index.note(world.state, {job.uid: None})
    pods = sorted(job.bound.values())
    for uid in pods:
        world.pass_time(20)
        world.change_pod(uid, phase="Succeeded")
        index.note(world.state, {job.uid: None})
    world.settle()
    index.note(world.state, {job.uid: None})
    assert job.stage == Stage.SUCCEEDED
    [of] = index.gantt(0, world.now_ms, complete=True).jobs
    runs = [bar for bar in of.bars if bar.kind == "running"]
    assert [bar.gpus for bar in runs] == [16, 8] and [bar.outcome for bar in runs] == ["Succeeded"] * 2


def test_a_job_runs_on_whose_quorum_is_raised_above_its_workers() -> None:
    """It keeps its nodes and its stage, as explain and the ledger of waits say too, unless that lasts."""
    world, index, lines = World(), gantt_module.GanttIndex(), SeriesIndex()
    world.node("n", cpu=4)
    job = world.job("elastic", workers=5, min_workers=1, leader_service=True)
    for least in (1, 4, 1):
        world.say(msgspec.structs.replace(job.seen, spec=msgspec.structs.replace(job.valid_spec, min_workers=least)))
        world.settle()
        world.pass_time(4)
        index.note(world.state, {job.uid: None})
        lines.note(world.state, [job.uid])
        assert job.stage == Stage.RUNNING and job.quorum_placed() == (least == 1)
        assert moment(world.state).totals.jobs_running == 1 and moment(world.state).jobs[0].wait_cause is None
    [of] = index.gantt(0, world.now_ms, complete=True).jobs
    assert [(bar.kind, bar.outcome) for bar in of.bars] == [("running", "")]
    assert lines.series(9, world.state, complete=True).jobs_waiting[-1] == 0


def test_each_deleted_job_is_kept_though_another_one_has_its_name() -> None:
    """By its UID, from the offset on at which it is gone; also one that never waited nor ran."""
    world, index = World(), gantt_module.GanttIndex()
    world.node("n", cpu=4)
    deleted = list[tuple[str, int]]()
    for uid, name, faults in (("u1", "again", False), ("u2", "broken", True), ("u3", "again", False)):
        job = world.job(name, uid=uid)
        if faults:
            world.say(msgspec.structs.replace(job.seen, spec=None, faults=("wrong",), resource_version="9"))
        else:
            world.settle()
        index.note(world.state, {uid: None})
        world.pass_time(5)
        if uid == "u3":
            break
        world.job_gone(job)
        deleted.append((f"default/{name}", world.state.offset))
        index.note(world.state, {uid: None})
        world.pass_time(5)
    found = index.gantt(0, world.now_ms, complete=True)
    assert [(one.job, one.at) for one in found.deleted] == deleted and found.deleted_left == 0
    until = index.gantt(0, world.now_ms - 20_000, complete=True)
    assert [(one.job, one.at) for one in until.deleted] == deleted[:1]


def test_deleted_jobs_that_are_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt_module, "_JOBS", 1)
    (found,) = at_history(NAMES[0], ("gantt", {}))
    assert len(found["deleted"]) == 1 == found["deletedLeft"]


def test_old_bars_of_nodes_are_forgotten_and_those_that_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gantt, "_BARS", 10)
    spans = node_gantt.NodeSpans()
    state = State(epoch=1, time_ms=1_000)
    spans.note("steady", "default/steady", {"a": 2}, state)
    for number in range(100):
        state.time_ms = 2_000 + number * 1_000
        spans.note("u", "default/moving", {f"node-{number % 3}": 1}, state)
    found = spans.gantt(0, 200_000, complete=True)
    bars = [bar for node in found.nodes for bar in node.bars]
    assert len(bars) <= 10
    assert ("a", (node_gantt.NodeBar(found.jobs.index("default/steady"), 1.0, 200.0, 2),)) in [
        (node.node, node.bars) for node in found.nodes
    ]
    assert max(bar.begin for bar in bars) == 101.0


def test_a_job_has_its_events_up_to_the_point_and_no_later_ones() -> None:
    (found,) = at_history(NAMES[0], ("gantt", {}))
    job = min(found["jobs"], key=lambda one: one["bars"][0]["from"])["job"]
    whole, early, none, unknown = at_history(
        NAMES[0],
        ("job", {"job": job}),
        ("job", {"job": job.partition("/")[2], "at": "60"}),
        ("job", {"job": job, "at": "1"}),
        ("job", {"job": "no-such-job"}),
    )
    assert [one["at"] for one in whole["life"]] == sorted(one["at"] for one in whole["life"])
    assert early["life"] == [one for one in whole["life"] if one["at"] <= 60]
    assert early["pods"]
    assert isinstance(none, Refusal)
    assert isinstance(unknown, Refusal)


def test_the_page_of_a_job_that_gave_room_names_the_job_that_took_it() -> None:
    (page,) = at_history(NAMES[0], ("job", {"job": "default/train", "at": "285"}))
    told = [one["words"] for one in page["life"] if one["kind"] == "Preempted"]
    assert told == [
        "gives room to default/hotfix (priority 8, its own is 3): Priority, 6 pods, 17.34 GPU seconds of work lost",
        "gives room to default/answer, whose queue takes back its share: "
        "Reclaim, 6 pods, 25.296 GPU seconds of work lost",
    ]


def test_the_series_begins_with_the_first_events_rather_than_in_1970() -> None:
    series, log = at_history(NAMES[0], ("series", {"points": "500"}), ("timeline", {}))
    assert series["offsets"][0] >= 1
    assert series["times"][0] >= log["firstTime"]


def test_the_series_ends_with_the_present() -> None:
    of = history(NAMES[0])
    series, now = at_history(NAMES[0], ("series", {"points": "5"}), ("moment", {}))
    assert len(series["times"]) <= 5
    assert series["offsets"][-1] == of[-1].last == now["at"]
    for name in ("gpus", "gpusUsed", "gpusReserved", "gpusBesideUsed"):
        assert series[name][-1] == now["totals"][name]
    assert series["jobsRunning"][-1] == now["totals"]["jobsRunning"]
    assert {name: used[-1] for name, used in series["queues"].items() if used[-1]} == {
        queue["name"]: queue["used"] for queue in now["queues"] if queue["used"]
    }


def lines_of(state: State) -> dict[str, int]:
    """What the series has of a state."""
    use, left = gpu_totals(state), [job for job in state.jobs.values() if not job.ended]
    queues = queues_view(state).queues.values()
    totals = {f"queue {queue.name}": gpus_of(queue.used.items()) for queue in queues}
    own = {f"own of {queue.name}": gpus_of(queue.own_used.items()) for queue in queues}
    return {
        "gpus": use.gpus,
        "gpusUsed": use.used,
        "gpusIdle": use.idle,
        "gpusReserved": use.reserved,
        "gpusBesideUsed": use.beside_used,
        "jobsWaiting": sum(waits(job) for job in left),
        "jobsRunning": sum(job.quorum_placed() for job in left),
        **{name: gpus for name, gpus in (totals | own).items() if gpus},
    }


def lines_at(series: dict[str, Any], place: int) -> dict[str, int]:
    """What the series has at one of its places."""
    of_queues = {f"queue {name}": values[place] for name, values in series["queues"].items() if values[place]}
    of_queues |= {f"own of {name}": values[place] for name, values in series["queuesOwn"].items() if values[place]}
    names = ("gpus", "gpusUsed", "gpusIdle", "gpusReserved", "gpusBesideUsed", "jobsWaiting", "jobsRunning")
    return {**{name: series[name][place] for name in names}, **of_queues}


@pytest.mark.parametrize("name", NAMES)
def test_the_series_is_what_the_fold_says_after_every_entry(name: str) -> None:
    (series,) = at_history(name, ("series", {"points": "32768"}))
    state = State(epoch=1)
    for entry in history(name):
        apply_entry(state, entry, Changes())
        place = bisect_right(series["offsets"], state.offset) - 1
        assert lines_at(series, place) == lines_of(state), f"after offset {state.offset}"


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(NAMES), st.integers(100, 600), st.integers(2, 64), st.integers(100, 300))
def test_a_thinned_series_has_true_samples_and_every_peak(name: str, kept: int, parts: int, points: int) -> None:
    index = LogIndex(State(epoch=1), asyncio.run(_start(name)), None, Snapshots())
    found = dict[int, dict[str, int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_module, "_SAMPLES", kept)
        patch.setattr(series_module, "_PARTS", parts)
        for entry in history(name):
            index.feed(entry)
            found[index.state.offset] = lines_of(index.state)
            assert len(index.series._samples) <= kept
        series = json.loads(msgspec.json.encode(index.series.series(points, index.state, complete=True)))
    assert len(series["offsets"]) <= points
    shown = {offset: lines_at(series, place) for place, offset in enumerate(series["offsets"])}
    assert shown == {offset: found[offset] for offset in shown}
    assert series["offsets"][-1] == index.state.offset
    for line in dict.fromkeys(line for one in found.values() for line in one):
        values, seen = [one.get(line, 0) for one in found.values()], [one.get(line, 0) for one in shown.values()]
        assert (min(seen), max(seen)) == (min(values), max(values)), line


_SAMPLES = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=300)


@settings(deadline=None)
@given(_SAMPLES, st.integers(20, 100))
def test_each_part_of_a_thinned_series_keeps_its_first_last_lowest_and_highest_values(
    steps: list[tuple[int, int, int]], most: int
) -> None:
    index, time_ms, samples = SeriesIndex(), 0, list[series_module._Sample]()
    index._peaks["q"] = 9
    for number, (gap_ms, used, of_queue) in enumerate(steps):
        time_ms += gap_ms
        values = series_module._Values(10, used, 10 - used, 0, 0, number % 3, 1)
        samples.append(
            series_module._Sample(time_ms, number, values, series_module._Queues({"q": of_queue}, {"q": used}))
        )
    kept, width_ms = index._thinned(samples, most, 0)
    assert len(kept) <= most
    if len(samples) <= most:
        assert kept == samples
        return

    def parts(of: list[series_module._Sample]) -> dict[int, list[series_module._Sample]]:
        groups = itertools.groupby(of, lambda one: (one.time_ms - samples[0].time_ms) // width_ms)
        return {number: list(group) for number, group in groups}

    whole, left = parts(samples), parts(kept)
    assert left.keys() == whole.keys()
    for number, part in whole.items():
        assert (left[number][0], left[number][-1]) == (part[0], part[-1])
        of_queues = (lambda one: one.queues.totals["q"]), (lambda one: one.queues.own["q"])
        for line in (*(lambda one, at=at: one.values[at] for at in range(7)), *of_queues):
            assert {min(map(line, left[number])), max(map(line, left[number]))} == {
                min(map(line, part)), max(map(line, part)),
            }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_idle_gpus_are_those_that_are_free_on_nodes_that_take_pods(name: str) -> None:
    (series,) = at_history(name, ("series", {"points": "12"}))
    at = [str(offset) for offset in series["offsets"]]
    moments = at_history(name, *(("moment", {"at": offset}) for offset in at))
    of_nodes = [sum(node["gpusFree"] for node in now["nodes"] if node["schedulable"]) for now in moments]
    assert series["gpusIdle"] == of_nodes
    assert any(series["gpusIdle"])


def test_no_idle_gpus_are_on_a_node_that_is_cordoned_or_lost() -> None:
    world = World()
    world.node("free", gpus=4)
    world.node("closed", gpus=4, cordoned=True)
    world.node("lost", gpus=4, ready=False)
    totals = gpu_totals(world.state)
    assert (totals.gpus, totals.idle) == (12, 4)


def test_the_priority_that_counts_stands_beside_that_of_the_job() -> None:
    world = World()
    world.queue("interns", max_priority=2)
    for name, own in (("high", 9), ("low", 1)):
        world.job(name, of_queue="interns", priority=own)
    jobs = {job.job: (job.priority, job.own_priority) for job in moment(world.state).jobs}
    assert jobs == {"default/high": (2, 9), "default/low": (1, 1)}
    for name, priorities in jobs.items():
        [uid] = [job.uid for job in world.state.jobs.values() if f"default/{job.seen.name}" == name]
        page = job_page(world.state, name, uid, [], 0)
        assert (page.priority, page.own_priority) == priorities


def test_a_queue_that_does_not_exist_has_no_weight_and_is_unusable() -> None:
    world = World()
    world.job("train", of_queue="nowhere")
    [queue] = [one for one in moment(world.state).queues if one.name == "nowhere"]
    assert (queue.weight, queue.state) == (0, "Unusable")


def test_a_point_beyond_the_end_is_refused_and_one_that_came_since_is_answered() -> None:
    of = history(NAMES[0])
    log = MemoryLog()

    async def answers() -> tuple[str, Any]:
        epoch = (await log.open()).epoch
        moments = Moments(log)
        following = asyncio.create_task(moments.follow())
        for entry in of[1:40]:
            last = await log.append(entry.batch, epoch=epoch)
        with pytest.raises(Refusal) as refused:
            await moments.answer("moment", {"at": str(last.last + 10_000)})
        found, _ = await moments.answer("moment", {"at": str(last.last)})
        following.cancel()
        await asyncio.wait([following])
        return str(refused.value), json.loads(found)

    said, found = asyncio.run(answers())
    assert "the log has no offset" in said
    assert found["at"] == asyncio.run(_end(log))


def test_after_an_entry_it_cannot_read_it_goes_on_with_the_next_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "LOOK_S", 0.01)
    of, log = history(NAMES[0]), DamagedLog()

    async def answers() -> str:
        epoch = (await log.open()).epoch
        moments = Moments(log)
        following = asyncio.create_task(moments.follow())
        for entry in of[1:20]:
            last = await log.append(entry.batch, epoch=epoch)
        await moments.answer("moment", {"at": str(last.last)})
        log.damaged = last.last + 1
        await log.append(of[20].batch, epoch=epoch)
        while not moments.problem:  # noqa: ASYNC110  # the index tells nobody
            await asyncio.sleep(0.01)
        await moments.answer("moment", {"at": str(last.last)})
        log.damaged = 0
        await log.begin_epoch(lost=epoch, reason="removed", time_ms=epoch + 1)
        while moments.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(Refusal) as refused:
            await moments.answer("moment", {"at": str(last.last)})
        following.cancel()
        await asyncio.wait([following])
        return str(refused.value)

    assert "it ends at 1" in asyncio.run(answers())


@pytest.mark.parametrize("beside", ["log.snapshot-7.new", "log.snapshot-7"])
@pytest.mark.parametrize("between", [None, b"", b"arranger l", b"something else"])
def test_a_file_that_takes_the_place_of_the_log_is_followed_whatever_was_there_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: bytes | None, beside: str
) -> None:
    """A demo moves the file away, and writes its own log and then the snapshots there."""
    monkeypatch.setattr(moments_module, "_RETRY_S", 0.01)
    path, fresh = tmp_path / "log", tmp_path / "fresh"
    path.write_bytes((HISTORIES / NAMES[1]).read_bytes())
    fresh.write_bytes((HISTORIES / NAMES[0]).read_bytes())

    async def answers() -> Any:
        moments = Moments(FileLog(path))
        following = asyncio.create_task(moments.follow())
        async with asyncio.timeout(20):
            await moments.answer("timeline", {})
            if between is None:
                path.unlink()
            else:
                path.write_bytes(between)
            while not moments.problem:  # noqa: ASYNC110  # the index tells nobody
                await asyncio.sleep(0.01)
            (tmp_path / beside).write_bytes(b"half")
            fresh.replace(path)
            await asyncio.sleep(0.1)
            (tmp_path / beside).unlink()
            end = (await FileLog(path).open()).offset
            while (found := json.loads((await moments.answer("timeline", {}))[0]))["last"] != end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.wait([following])
        return found

    assert asyncio.run(answers())["last"] == history(NAMES[0])[-1].last


def test_an_empty_log_beside_snapshots_of_another_one_is_followed(tmp_path: Path) -> None:
    from arranger.events.file_log import _encode_head, _Head

    (tmp_path / "log").write_bytes(_encode_head(_Head(1, 0, "", {}, {})))
    (tmp_path / "log.snapshot-7").write_bytes(b"half")
    [found] = ask(FileLog(tmp_path / "log"), ("timeline", {}))
    assert found["last"] == 0


async def test_the_process_that_answers_ends_if_it_follows_the_log_no_more() -> None:
    """It is started again when it is asked next: else it would answer about an old log for ever."""

    async def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(while_followed(asyncio.sleep(60), failing()), 5)
    await asyncio.wait_for(while_followed(asyncio.sleep(0), asyncio.sleep(60)), 5)


def test_points_that_are_asked_while_the_log_grows_leave_no_trace_in_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_index, "Snapshots", partial(Snapshots, gap=25))
    log = MemoryLog()

    async def answers() -> list[tuple[int, Any]]:
        epoch, chance = (await log.open()).epoch, random.Random(7)
        moments, found = Moments(log), list[tuple[int, Any]]()
        following = asyncio.create_task(moments.follow())
        for entry in history(NAMES[0])[1:]:
            last = await log.append(entry.batch, epoch=epoch)
            for at in (chance.randint(max(1, last.last - 30), last.last), last.last):
                found.append((at, json.loads((await moments.answer("moment", {"at": str(at)}))[0])))
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait([following])
        return found

    found = asyncio.run(answers())
    told = asyncio.run(_entries(log))
    for at, answer in found[::7]:
        state = folded(told, at)
        assert answer == json.loads(msgspec.json.encode(moment(state)))


async def _end(log: Log) -> int:
    return (await log.end()).offset


def test_a_question_that_is_taken_back_ends_and_the_next_one_goes_on_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(_take_back(history(NAMES[0]), monkeypatch))


async def _take_back(of: Sequence[Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    moments = Moments(FileLog(HISTORIES / NAMES[0]))
    following = asyncio.create_task(moments.follow())
    await moments.answer("timeline", {})
    while not moments.complete:  # noqa: ASYNC110  # the index tells nobody
        await asyncio.sleep(0.01)
    monkeypatch.setattr(moments_module, "_SLICE_S", 0.0)
    folded_entries: list[int] = []
    advance = moments_module.advance

    def counted(state: State, entry: Entry, changes: Changes) -> None:
        folded_entries.append(entry.last)
        advance(state, entry, changes)

    monkeypatch.setattr(moments_module, "advance", counted)
    # Snapshots are few in a short log: this point is many entries behind one.
    at = max(range(1, of[-1].last), key=lambda offset: offset - _kept_before(moments, offset))
    requests, replies = asyncio.StreamReader(), list[MomentReply]()
    serving = asyncio.create_task(serve(requests, moments, replies.append))

    def say(number: int, name: str, **values: str) -> None:
        requests.feed_data(msgspec.json.encode(MomentRequest(number, name, values)) + b"\n")

    say(1, "moment", at=str(at))
    while len(folded_entries) < 3:  # noqa: ASYNC110  # the fold tells nobody
        await asyncio.sleep(0)
    say(1, "")
    while not replies:  # noqa: ASYNC110  # nor do replies
        await asyncio.sleep(0)
    given_up = list(folded_entries)
    assert (replies[0].number, replies[0].reason) == (1, "ServiceUnavailable")
    assert given_up[-1] < at
    say(2, "moment", at=str(at))
    say(2, "")
    say(3, "moment", at=str(at))
    while len(replies) < 3:  # noqa: ASYNC110  # nor do replies
        await asyncio.sleep(0)
    assert [(reply.number, reply.reason) for reply in replies[1:]] == [(2, "ServiceUnavailable"), (3, "")]
    assert json.loads(bytes(replies[2].answer)) == json.loads(msgspec.json.encode(moment(folded(of, at))))
    assert len(folded_entries) == len(dict.fromkeys(folded_entries)), "no entry is folded twice"
    serving.cancel()
    following.cancel()
    await asyncio.wait([serving, following])


def _kept_before(moments: Moments, offset: int) -> int:
    assert moments._index is not None
    kept = moments._index.snapshots.nearest(offset)
    assert kept is not None
    return kept.position.offset


class Hasty(FileLog):
    """A log that doesn't wait for entries, like an archive."""

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        return await super().read(after, limit=limit)


def test_a_log_that_does_not_wait_for_entries_leaves_time_for_questions() -> None:
    (found,) = ask(Hasty(HISTORIES / NAMES[0]), ("moment", {"at": "300"}))
    assert found["at"] >= 300


def test_the_index_goes_on_while_questions_never_cease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments_module, "_SLICE_S", 0.0)
    monkeypatch.setattr(moments_module, "_GIVE_WAY_S", 0.001)
    of = history(NAMES[0])

    async def answers() -> None:
        moments = Moments(FileLog(HISTORIES / NAMES[0]))
        following = asyncio.create_task(moments.follow())

        async def ask_on() -> None:
            while True:
                await moments.answer("moment", {"at": str(of[-1].last)})

        asking = [asyncio.create_task(ask_on()) for _ in range(2)]
        async with asyncio.timeout(30):
            await moments.answer("timeline", {})
            while not moments.complete:  # noqa: ASYNC110  # the index tells nobody
                await asyncio.sleep(0.01)
        for task in (*asking, following):
            task.cancel()
        await asyncio.wait([*asking, following])

    asyncio.run(answers())


class CountedLog(MemoryLog):
    """Counts reads."""

    reads = 0

    async def read(self, *given: Any, **more: Any) -> Sequence[Entry]:
        self.reads += 1
        return await super().read(*given, **more)


def test_a_job_page_is_of_the_latest_point_that_is_done_and_reads_only_what_is_new() -> None:
    of, log = history(NAMES[0]), CountedLog()

    async def answers() -> None:
        epoch = (await log.open()).epoch
        moments = Moments(log)
        following = asyncio.create_task(moments.follow())
        for entry in of[1:200]:
            last = await log.append(entry.batch, epoch=epoch)
        while not moments.complete:  # noqa: ASYNC110  # the index tells nobody
            await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.wait([following])
        first, _ = await moments.answer("job", {"job": "answer", "at": str(last.last)})
        for entry in of[200:]:
            end = await log.append(entry.batch, epoch=epoch)
        reads = log.reads
        content, final = await moments.answer("job", {"job": "answer", "at": str(end.last)})
        page, before = json.loads(content), json.loads(first)
        assert (page["at"], page["complete"], final) == (last.last, False, False)
        assert {**page, "complete": True} == before
        assert log.reads == reads
        with pytest.raises(Refusal) as refused:
            await moments.answer("job", {"job": "nobody", "at": str(end.last)})
        assert refused.value.reason == "ServiceUnavailable"

    asyncio.run(answers())


@pytest.mark.parametrize("name", NAMES)
def test_no_zoom_loses_a_decision_or_an_event(name: str) -> None:
    of, chance = history(name), random.Random(4)
    decided, times, state = list[int](), dict[int, int](), State(epoch=1)
    for entry in of:
        changes = Changes()
        apply_entry(state, entry, changes)
        times |= dict.fromkeys(range(entry.first, entry.last + 1), state.time_ms)
        made = [verdict.offset for verdict in changes.verdicts if verdict.accepted]
        decided += [at for at in made if isinstance(entry.batch.events[at - entry.first], (k.Placed, k.Preempted))]
    first_ms, last_ms = of[0].batch.time_ms, of[-1].batch.time_ms
    spans = [(first_ms - 1, last_ms + 1), (0, 10**15)]
    for wide_ms in (50, 1_000, 10_000):
        spans += [(begin, begin + wide_ms) for begin in (chance.randint(first_ms, last_ms) for _ in range(8))]
    asked = [("timeline", {"buckets": "40", "sinceMs": str(begin), "untilMs": str(end)}) for begin, end in spans]
    for (begin, end), found in zip(spans, at_history(name, *asked), strict=True):
        within = [at for at, time_ms in times.items() if begin <= time_ms <= end]
        buckets = found["buckets"]
        assert sum(bucket["events"] for bucket in buckets) == len(within)
        assert sum(bucket["decisions"] for bucket in buckets) == len(set(within) & set(decided))
        for bucket in buckets:  # exact to the millisecond
            assert bucket["at"] == max(
                (at for at, time_ms in times.items() if time_ms <= round(bucket["time"] * 1000)), default=0
            )
        assert all(begin <= mark["time"] * 1000 <= end for mark in found["marks"])


@pytest.mark.parametrize("name", NAMES)
def test_most_happened_where_no_other_point_has_more_jobs_that_wait_or_run(name: str) -> None:
    found, series = at_history(name, ("timeline", {}), ("series", {"points": "32768"}))
    busy = {
        at: (waiting + running, used)
        for at, waiting, running, used in zip(
            *(series[of] for of in ("offsets", "jobsWaiting", "jobsRunning", "gpusUsed")), strict=True
        )
    }
    assert found["stored"]
    assert busy[found["busiest"]] == max(busy.values())


@pytest.mark.parametrize("running", [False, True], ids=["all jobs have ended", "a job runs"])
async def test_a_log_in_redis_has_ended_once_nobody_works_on_it_and_nothing_runs(
    redis_server: RealRedis, cluster: str, *, running: bool
) -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("j", leader=shape(gpus=1))
    world.settle()
    if not running:
        world.job_gone(world.state.jobs["uid-j"])
    log = RedisLog(redis_server.url, cluster)
    epoch = (await log.open()).epoch
    for entry in world.entries[1:]:  # the log has begun its epoch itself
        await log.append(msgspec.structs.replace(entry.batch, time_ms=SystemClock().now_ms()), epoch=epoch)
    moments = Moments(log, partial(_attended, redis_server.url, cluster))
    following = asyncio.create_task(moments.follow())

    async def ended() -> bool:
        return bool(json.loads((await moments.answer("timeline", {}))[0])["stored"])

    try:
        async with asyncio.timeout(20), connected(redis_server) as client:
            while not moments.complete:  # noqa: ASYNC110  # the index tells nobody
                await asyncio.sleep(0.01)
            assert await ended() is not running
            await member(client, cluster, "host-1-77-a", "scheduler").join()
            assert not await ended()
    finally:
        following.cancel()
        await asyncio.wait([following])
        await log.close()


def test_a_zoomed_series_begins_with_what_was_so_then() -> None:
    (whole,) = at_history(NAMES[0], ("series", {"points": "32768"}))
    begin, end = (round(whole["times"][place] * 1000) for place in (len(whole["times"]) // 3, len(whole["times"]) // 2))
    (part,) = at_history(NAMES[0], ("series", {"points": "32768", "sinceMs": str(begin + 1), "untilMs": str(end)}))
    lasts = bisect_right(whole["times"], (begin + 1) / 1000) - 1
    for name in ("offsets", "gpusUsed", "jobsWaiting"):
        length = len(part[name])
        assert part[name] == whole[name][lasts : lasts + length]
    assert part["times"][0] * 1000 <= begin + 1 and part["times"][-1] * 1000 >= end


@pytest.mark.parametrize("name", NAMES)
def test_where_each_job_stands_is_what_replay_says_and_its_gpu_hours_add_up(name: str) -> None:
    of = history(name)
    points = range(1, of[-1].last + 1, 7)
    found = at_history(name, *(("standings", {"at": str(at)}) for at in points))
    state, held_ms, since_ms, answers = State(epoch=1), dict[str, int](), 0, iter(found)
    answer = next(answers)
    for entry in of:
        since_ms = since_ms or entry.batch.time_ms
        for uid, job in state.jobs.items():
            held = gpus_held(job) if not job.ended else 0
            held_ms[uid] = held_ms.get(uid, 0) + held * (entry.batch.time_ms - since_ms)
        since_ms = entry.batch.time_ms
        apply_entry(state, entry, Changes())
        while answer is not None and answer["at"] == entry.last:
            lines = {f"{line.namespace}/{line.name}": line for line in overview(state, CycleConfig()).jobs}
            assert {one["job"]: one["position"] for one in answer["jobs"]} == {
                job: line.queue for job, line in lines.items()
            }
            assert answer["waiting"] == sum(line.queue > 0 for line in lines.values())
            assert {one["job"]: one["gpuMs"] for one in answer["jobs"]} == {
                job: held_ms.get(line.uid, 0) for job, line in lines.items()
            }
            assert all(one["user"] for one in answer["jobs"])
            answer = next(answers, None)
    assert answer is None


def test_a_job_that_waits_is_expected_to_start_when_the_log_forecast_it(tmp_path: Path) -> None:
    world = World()
    world.node("node-1", gpus=2)
    world.job("first", leader=shape(gpus=2))
    world.cycle()
    late = world.job("late", leader=shape(gpus=2))
    world.say(k.StartForecast(late.uid, late.version, world.state.time_ms + 60_000, 0, 0))
    to_file(world.entries, tmp_path / "late.log")
    (found,) = ask(FileLog(tmp_path / "late.log"), ("standings", {}))
    assert [(one["job"], one["position"]) for one in found["jobs"]] == [("default/first", 0), ("default/late", 1)]
    assert found["jobs"][0]["expected"] is None
    assert found["jobs"][1]["expected"] == world.state.time_ms / 1000 + 60


def test_a_suspended_job_waits_for_its_user_and_did_not_have_to_start_again(tmp_path: Path) -> None:
    world = World()
    world.node("n1", gpus=4)
    of = Edited(world, leader=shape(gpus=2))
    world.settle()
    world.pass_time(60)
    of.edit(suspend=True)
    world.settle()
    world.pass_time(60)
    of.edit(suspend=False)
    world.settle()
    to_file(world.entries, tmp_path / "suspended.log")
    (gantt,) = ask(FileLog(tmp_path / "suspended.log"), ("gantt", {}))
    bars = [(bar["kind"], bar["cause"], bar["outcome"]) for bar in gantt["jobs"][0]["bars"]]
    assert bars == [("running", None, "Suspended"), ("waiting", "Suspended", ""), ("running", None, "")]


def test_an_unknown_job_has_the_names_beside_it_that_the_command_has() -> None:
    wrong, elsewhere, later, unlike = at_history(
        NAMES[0],
        *(("job", {"job": job, "at": at}) for job, at in (
            ("default/hotfx", "242"), ("other/hotfix", "242"), ("default/hotfx", "20"), ("default/nobody", "242"),
        )),
    )  # fmt: skip
    assert "(did you mean default/hotfix?)" in str(wrong)
    assert "(did you mean default/hotfix or default/fix?)" in str(elsewhere)
    assert "did you mean" not in f"{later} {unlike}"
