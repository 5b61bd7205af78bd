"""The accounts of a whole log: for what its jobs waited, and what preemptions cost and gained."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from arranger.cli.rendering.ledger_page import _CAUSES
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.node import Taint
from arranger.model.pod import Toleration
from arranger.model.stages import StageReason
from arranger.projections.state import Changes, State
from arranger.replay.ledger.accounts import shared_out
from arranger.replay.ledger.causes import Cause, causes_of
from arranger.replay.ledger.preemptions import PreemptionLedger, by_queue
from arranger.replay.ledger.waits import WaitLedger, quorum_gpus, rows_of
from arranger.replay.reading.gpus import gpu_totals
from arranger.replay.reading.history import Point, Span, advance
from tests.commands import Run, to_file
from tests.unit.replay_worlds import crowded, filled, gpu_job, histories, preempting, taken_on, with_room_rules
from tests.world import World, shape


def waits(entries: list[Entry], span: Span | None = None, as_of_ms: int = 0) -> WaitLedger:
    ledger = WaitLedger(State(), span or Span(), CycleConfig())
    for entry in entries:
        if not ledger._span.last.before(entry):
            ledger.feed(entry)
    ledger.finish(as_of_ms)
    return ledger


def causes(ledger: WaitLedger, job: str) -> dict[tuple[str, str], int]:
    """(Cause, holder) → the milliseconds that a job waited."""
    rows = rows_of([line for line in ledger.lines if line.waiter.job == f"default/{job}"], "job", "job")
    return {(row.cause.value, row.holder): row.wait_ms for row in rows}


def counted_apart(entries: list[Entry]) -> tuple[int, int]:
    """What all jobs waited, in milliseconds alone and times GPUs, entry by entry."""
    state, wait_ms, gpu_ms = State(), 0, 0
    for entry in entries:
        waiting = {job.uid: causes for job in state.jobs.values() if (causes := causes_of(state, job))}
        before_ms = state.time_ms
        gpus = sum(could_use(state, uid) for uid, causes in waiting.items() if causes != ((Cause.INFEASIBLE, 1),))
        advance(state, entry, Changes())
        if before_ms:
            wait_ms += (state.time_ms - before_ms) * len(waiting)
            gpu_ms += (state.time_ms - before_ms) * gpus
    return wait_ms, gpu_ms


def could_use(state: State, uid: str) -> int:
    spec = state.jobs[uid].valid_spec
    gpus = quorum_gpus(spec, whole=spec.pod_policy == "Gang")
    return gpus if gpus <= gpu_totals(state).gpus else 0


@given(histories())
@settings(max_examples=40)
def test_the_parts_sum_exactly_to_the_whole(entries: list[Entry]) -> None:
    ledger = waits(entries)
    for by in ("queue", "user", "namespace", "day", "job"):
        rows = rows_of(ledger.lines, by, "job")
        assert (sum(row.wait_ms for row in rows), sum(row.gpu_ms for row in rows)) == (ledger.wait_ms, ledger.gpu_ms)
    assert (ledger.wait_ms, ledger.gpu_ms) == counted_apart(entries)


def test_the_time_of_a_history_is_that_between_its_entries() -> None:
    for world in (crowded(), preempting()):
        ledger = waits(world.entries)
        assert (ledger.wait_ms, ledger.gpu_ms) == counted_apart(world.entries) != (0, 0)


def test_what_no_cluster_could_give_counts_no_gpu_time() -> None:
    world = with_room_rules(preemption=None, reservations=0)
    world.node("n2", cpu=16, gpus=4)
    world.job("huge", leader=shape(gpus=1 << 40), created=world.now_ms)
    world.job("wide", leader=shape(gpus=8), created=world.now_ms)  # fits these nodes together, and none of them
    world.cycle()
    world.pass_time(20)
    world.node("n3", cpu=16, gpus=8)
    ledger = waits(world.entries)
    assert causes(ledger, "huge") == causes(ledger, "wide") == {("Infeasible", ""): 20_000}
    assert (ledger.wait_ms, ledger.gpu_ms) == (40_000, 0)
    world.cycle()
    world.job("later", leader=shape(gpus=32), created=world.now_ms)
    world.pass_time(5)  # before a cycle looks at it
    world.node("n4", cpu=16, gpus=16)
    world.pass_time(5)
    world.node("n5", cpu=1)
    [later] = [line for line in waits(world.entries).lines if line.waiter.job == "default/later"]
    assert (later.cause, later.wait_ms, later.gpu_ms) == (Cause.SCHEDULER, 10_000, 32 * 5_000)


def test_a_whole_number_is_shared_out_exactly_and_in_order() -> None:
    assert shared_out(10, {"a": 1, "b": 1, "c": 1}) == {"a": 4, "b": 3, "c": 3}
    assert shared_out(2, {"a": 1, "b": 9}) == {"b": 2}
    assert shared_out(5, {}) == {}


def test_room_is_attributed_to_those_who_held_it_by_their_gpus() -> None:
    world = with_room_rules(preemption=None, reservations=0)
    gpu_job(world, "one", 1)
    gpu_job(world, "three", 3)
    world.settle()
    gpu_job(world, "late", 4)
    world.cycle()
    world.pass_time(100)
    world.node("n9", cpu=1)  # an entry at the end
    assert causes(waits(world.entries), "late") == {
        ("Room", "default/one"): 25_000,
        ("Room", "default/three"): 75_000,
    }
    [total] = {line.gpu_ms for line in waits(world.entries).lines if line.holder and line.holder.job == "default/three"}
    assert total == 300_000


def test_room_that_others_got_meanwhile_is_told_apart() -> None:
    world = with_room_rules(preemption=None, reservations=0)
    first = gpu_job(world, "first", 2)
    world.settle()
    world.pass_time(1)
    gpu_job(world, "large", 4, priority=1)
    world.cycle()
    world.pass_time(10)
    gpu_job(world, "second", 2)
    world.settle()
    world.say(k.StageDecided(first.uid, first.version, first.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.settle()
    world.pass_time(10)
    world.cycle()
    world.node("n9", cpu=1)
    found = causes(waits(world.entries), "large")
    assert found["Room", "default/first"] == 10_000 and found["Order", "default/second"] == 10_000


def test_reservations_cordons_and_preempted_room_are_causes_of_their_own() -> None:
    world = with_room_rules(preemption=None)
    gpu_job(world, "first", 2)
    world.settle()
    gpu_job(world, "large", 4, priority=9)
    gpu_job(world, "small", 1, priority=1)
    world.settle()
    world.pass_time(20)
    world.node("n2", cpu=16, gpus=4, cordoned=True)
    assert causes(waits(world.entries), "small") == {("Reservation", "default/large"): 20_000}
    assert causes(waits(preempting().entries), "high") == {("PreemptedRoom", ""): 7_000}


def test_free_room_that_is_kept_for_another_job_is_no_room_that_others_held() -> None:
    world = with_room_rules(preemption=None)
    world.node("n2", cpu=16, gpus=4)
    gpu_job(world, "full", 4)
    gpu_job(world, "half", 2)
    world.settle()
    world.pass_time(1)
    gpu_job(world, "large", 4, priority=9)
    world.cycle()
    world.pass_time(1)
    small = gpu_job(world, "small", 1, priority=1)
    world.cycle()
    reasons = world.state.jobs[small.uid].waits
    assert reasons is not None and len(reasons.shortage.reasons) == 2, "a full node, and one with room that is kept"
    world.pass_time(20)
    world.node("n9", cpu=1)
    assert causes(waits(world.entries), "small") == {("Reservation", "default/large"): 20_000}


def test_a_cause_has_one_name_where_jobs_and_where_accounts_are_told() -> None:
    for world in (crowded(), preempting()):
        told = {_CAUSES[line.cause] for line in waits(world.entries).lines}
        state, found = State(), set()
        for entry in world.entries:
            advance(state, entry, Changes())
            found |= {_CAUSES[cause] for job in state.jobs.values() for cause, _ in causes_of(state, job)}
        assert told <= found


def test_what_keeps_a_job_out_of_the_order_is_a_cause() -> None:
    world = with_room_rules()
    world.watch_queues()
    world.job("lost", leader=shape(cpu=1, gpus=1), of_queue="none")
    world.cycle()
    world.pass_time(30)
    world.node("n9", cpu=1)
    assert causes(waits(world.entries), "lost") == {("Queue", ""): 30_000}


def test_a_span_counts_only_what_is_within_it_and_days_are_divided_at_midnight() -> None:
    world = with_room_rules(preemption=None, reservations=0)
    gpu_job(world, "holder", 4)
    world.settle()
    gpu_job(world, "late", 4)
    world.cycle()
    for _ in range(3):
        world.pass_time(86_400)
        world.node("n9", cpu=1)
    whole = waits(world.entries)
    assert whole.wait_ms == 3 * 86_400_000
    days = {row.group: row.wait_ms for row in rows_of(whole.lines, "day", "queue")}
    assert len(days) == 4 and list(days.values())[1:3] == [86_400_000] * 2
    last = world.entries[-1].first
    part = waits(world.entries, Span(Point(offset=world.entries[-2].first), Point(offset=last)))
    assert part.wait_ms == 86_400_000


def test_time_counts_from_the_point_that_was_asked_for_and_not_from_the_next_event() -> None:
    """A quiet time has no events, and jobs wait through it."""
    world = with_room_rules(preemption=None, reservations=0)
    gpu_job(world, "holder", 4)
    world.settle()
    gpu_job(world, "late", 4)
    world.cycle()
    began_ms = world.now_ms
    world.pass_time(100)
    world.node("n9", cpu=1)
    since = Span(Point(time_ms=began_ms + 30_000))
    assert (waits(world.entries, since).begin_ms, waits(world.entries, since).wait_ms) == (began_ms + 30_000, 70_000)
    within = waits(world.entries[:-1], since, as_of_ms=began_ms + 50_000)
    assert (within.begin_ms, within.end_ms) == (began_ms + 30_000, began_ms + 50_000)
    assert causes(within, "late") == {("Room", "default/holder"): 20_000}


def four_nodes() -> World:
    """Four nodes of 4 GPUs, of which one is cordoned."""
    world = with_room_rules(preemption=None, reservations=0)
    for name in ("n2", "n3"):
        world.node(name, cpu=16, gpus=4)
    world.node("n4", cpu=16, gpus=4, cordoned=True)
    return world


def whole_nodes(world: World, name: str, workers: int) -> None:
    """A job whose pods fill a node each."""
    world.job(name, workers=workers, worker=shape(cpu=1, gpus=4), min_workers=workers, created=world.now_ms)


def test_nodes_that_are_full_of_the_jobs_own_pods_are_no_room_that_others_held() -> None:
    """In the plan, three of its pods fill three nodes. The cordoned node alone keeps the fourth out."""
    world = four_nodes()
    whole_nodes(world, "late", 4)
    world.cycle()
    world.pass_time(20)
    world.node("n9", cpu=1)
    assert causes(waits(world.entries), "late") == {("ClosedNodes", ""): 20_000}


def test_only_nodes_that_others_fill_count_beside_those_of_its_own_pods() -> None:
    world = four_nodes()
    gpu_job(world, "little", 1)
    world.settle()
    whole_nodes(world, "late", 4)
    world.cycle()
    world.pass_time(20)
    world.node("n9", cpu=1)
    assert causes(waits(world.entries), "late") == {
        ("ClosedNodes", ""): 10_000,
        ("Room", "default/little"): 10_000,
    }


def test_nodes_that_are_too_small_for_a_pod_are_no_room_that_others_held() -> None:
    world = with_room_rules(preemption=None, reservations=0)
    for number in range(5):
        world.node(f"cpu-{number}", cpu=64)
    world.node("n1", cpu=16, gpus=4, cordoned=True)
    world.pod("other", node="cpu-0", cpu=1)
    whole_nodes(world, "late", 1)
    world.cycle()
    world.pass_time(20)
    world.node("n9", cpu=1)
    assert causes(waits(world.entries), "late") == {("ClosedNodes", ""): 20_000}


def test_a_closed_node_that_others_fill_is_not_what_keeps_a_job_waiting() -> None:
    """Without the cordon it would be full, so a job was said to wait for a node to be opened that wouldn't help it."""
    world = with_room_rules(preemption=None, reservations=0)
    world.node("n2", cpu=16, gpus=4)
    for name in ("one", "two"):
        gpu_job(world, name, 4)
        world.settle()
    world.node("n2", cpu=16, gpus=4, cordoned=True)
    whole_nodes(world, "late", 1)
    world.cycle()
    world.pass_time(20)
    world.node("n9", cpu=1)
    found = causes(waits(world.entries), "late")
    assert {cause for cause, _ in found} == {"Room"} and sum(found.values()) == 20_000


def tainted(*, tolerated: bool) -> dict[tuple[str, str], int]:
    """For what a job waited beside a node of `fill` and a tainted node, which a job that tolerates the taint fills or
    leaves free."""
    world = with_room_rules(preemption=None, reservations=0)
    taint = Taint("team", "a", "NoSchedule")
    world.node("n2", cpu=16, gpus=4, taints=[taint])
    gpu_job(world, "fill", 4)
    world.settle()
    if tolerated:
        own = shape(cpu=1, gpus=4, tolerations=[Toleration("team", "Equal", "a", "NoSchedule")])
        world.job("tol", workers=1, worker=own, min_workers=1, equals=True)
        world.settle()
    gpu_job(world, "late", 4)
    world.cycle()
    world.pass_time(20)
    world.node("n9", cpu=1)
    return causes(waits(world.entries), "late")


def test_who_fills_a_node_with_a_taint_holds_no_room_of_a_job_that_does_not_tolerate_it() -> None:
    """Without the taint the node would be full; and who is there holds no room that the job could use."""
    assert tainted(tolerated=True) == {("Room", "default/fill"): 20_000}


def test_a_free_node_with_a_taint_counts_as_one_with_a_cordon_does() -> None:
    assert tainted(tolerated=False) == {("Room", "default/fill"): 10_000, ("Taint", ""): 10_000}


def test_nobody_is_blamed_for_a_time_in_which_nobody_held_room() -> None:
    """The holder left, and the next cycle comes later."""
    world = with_room_rules(preemption=None, reservations=0)
    holder = gpu_job(world, "holder", 4)
    world.settle()
    gpu_job(world, "late", 4)
    world.cycle()
    world.pass_time(30)
    world.say(k.StageDecided(holder.uid, holder.version, holder.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.apply()
    world.pass_time(10)
    world.node("n9", cpu=1)
    assert causes(waits(world.entries), "late") == {("Room", "default/holder"): 30_000, ("Scheduler", ""): 10_000}


def test_who_held_room_doesnt_depend_on_where_the_account_begins_and_ends() -> None:
    """While one reason lasts, its holders change; parts of the time sum to the whole."""
    world = with_room_rules(preemption=None, reservations=0)
    world.node("n2", cpu=16, gpus=8)
    first = gpu_job(world, "first", 4)
    gpu_job(world, "stays", 8)
    world.settle()
    world.pass_time(1)
    began_ms = world.now_ms
    world.job("large", workers=1, worker=shape(cpu=1, gpus=8), min_workers=1, created=world.now_ms)
    world.cycle()
    world.pass_time(12)
    world.say(k.StageDecided(first.uid, first.version, first.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.apply()
    world.pass_time(12)
    gpu_job(world, "second", 4)
    world.settle()
    world.pass_time(12)
    world.node("n9", cpu=1)
    whole = causes(waits(world.entries), "large")
    assert whole == {
        ("Room", "default/stays"): 28_000,
        ("Room", "default/first"): 4_000,
        ("Order", "default/second"): 4_000,
    }
    parts: dict[tuple[str, str], int] = {}
    bounds_ms = (began_ms, began_ms + 5_000, began_ms + 20_000, began_ms + 30_000, world.now_ms)
    for begin_ms, end_ms in pairwise(bounds_ms):
        span = Span(Point(time_ms=begin_ms), Point(time_ms=end_ms))
        for key, wait_ms in causes(waits(world.entries, span, end_ms), "large").items():
            parts[key] = parts.get(key, 0) + wait_ms
    assert parts == pytest.approx(whole, abs=5)


def preemptions(world: World, span: Span | None = None) -> PreemptionLedger:
    ledger = PreemptionLedger(State(), span or Span(), CycleConfig())
    for entry in world.entries:
        ledger.feed(entry)
    return ledger


def test_a_job_that_is_gone_is_not_said_to_wait_still(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = preempting()
    world.job_gone(world.state.jobs["uid-low"])
    [one] = preemptions(world).found
    assert (one.again_ms, one.gone) == ({"uid-low": None}, {"uid-low": "Deleted"})
    log = to_file(world.entries, tmp_path / "victim.log")
    assert "  1 never: deleted" in Run(capsys, "preemptions", *log).out
    world = filled()
    world.cycle()
    world.job_gone(world.state.jobs["uid-high"])
    [one] = preemptions(world).found
    assert (one.gained_ms, one.gone) == (None, {"uid-high": "Deleted"})
    log = to_file(world.entries, tmp_path / "beneficiary.log")
    row = next(line for line in Run(capsys, "preemptions", *log).out.splitlines() if "default/high" in line)
    assert "  deleted  " in row and "not yet" in row


def test_a_preemption_is_followed_to_the_start_of_its_beneficiary_and_the_return_of_its_victims() -> None:
    world = preempting()
    [one] = preemptions(world).found
    assert (one.taking.job, one.taking.harm_ms, one.gained_ms) == ("default/high", 300_000, 7_000)
    assert one.again_ms == {"uid-low": None} and one.free_ms is None
    world.pass_time(50)
    high = world.state.jobs["uid-high"]
    world.say(k.StageDecided(high.uid, high.version, high.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.settle()
    [one] = preemptions(world).found
    assert one.again_ms == {"uid-low": 62_000}
    [of_queue] = by_queue([one], [])
    assert (of_queue.queue, of_queue.taken, of_queue.gave, of_queue.lost_ms) == ("default", 1, 2, 300_000)


def test_who_loses_room_before_others_have_left_it_does_not_wait_for_it_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = taken_on()
    lost, waits = preemptions(world).found
    assert (lost.taking.job, lost.taking.lost_ms - lost.taking.time_ms, lost.gained_ms) == (
        "default/middle",
        2_000,
        None,
    )
    assert (waits.taking.job, waits.taking.lost_ms, waits.gained_ms) == ("default/high", 0, None)
    world.settle()
    middle = world.state.jobs["uid-middle"]
    world.say(msgspec.structs.replace(middle.seen, spec=msgspec.structs.replace(middle.valid_spec, priority=10)))
    world.settle()
    first, _, again = preemptions(world).found
    assert (first.taking.lost_ms, first.gained_ms) == (lost.taking.lost_ms, None)
    assert (again.taking.job, again.gained_ms) == ("default/middle", 0)
    log = to_file(world.entries, tmp_path / "taken-on.log")
    rows = [line for line in Run(capsys, "preemptions", *log).out.splitlines() if " default/middle  " in line]
    assert "gave it back" in rows[0] and not any("  waits  " in row for row in rows)


def test_room_that_becomes_free_by_itself_is_seen() -> None:
    world = preempting()
    world.pass_time(20)
    world.node("n2", cpu=16, gpus=4)
    [one] = preemptions(world).found
    assert one.free_ms == world.now_ms - one.taking.time_ms


@pytest.mark.parametrize(("wait_s", "needless"), [(20, True), (200, False)])
def test_a_preemption_is_needless_if_waiting_would_have_cost_no_more_than_was_lost(
    wait_s: float, needless: bool
) -> None:
    """Within the ten minutes of the report, a wait of minutes saved more than the seconds of work that were lost."""
    world = preempting()
    world.pass_time(wait_s)
    world.node("n2", cpu=16, gpus=4)
    [one] = preemptions(world).found
    assert one.free_ms is not None and one.free_ms < 600_000 and one.taking.harm_ms == 300_000
    assert one.needless(600_000) == (one.gpus * one.free_ms <= 300_000) == needless
    assert not one.needless(1_000)


def test_of_a_preemption_whose_room_may_still_become_free_in_time_nobody_knows_whether_it_is_needless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was called not needless as soon as it was decided."""
    world = preempting()
    world.pass_time(1)
    world.node("n2", cpu=1)
    [one] = preemptions(world).found
    assert one.open(600_000) and not one.needless(600_000)
    assert not one.open(500), "the time that was asked about is over"
    told = Run(capsys, "preemptions", *to_file(world.entries, tmp_path / "early.log")).out
    assert "1 preemption, none of them needless as far as is known; of 1 it isn't known yet. " in told
    assert any(row.endswith("not yet") for row in told.splitlines())
    world.pass_time(one.taking.harm_ms / 1000)
    world.node("n3", cpu=1)
    [one] = preemptions(world).found
    assert not one.open(600_000), "by now, to wait would have cost more than was lost"


def test_preemptions_outside_of_the_span_are_left_out() -> None:
    world = preempting()
    assert preemptions(world, Span(Point(offset=world.state.offset))).found == []
    assert msgspec.to_builtins(preemptions(world).found) != []
