"""The replay tools on logs in which jobs gave room to others, and room was kept."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind
from arranger.model.job import Stage
from arranger.model.queue import Preemption, PreemptionMode
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.reading.history import Journey, Point
from arranger.replay.reading.listing import EventFilter, Listing
from arranger.replay.reading.recording import Recording
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.hypothesis import job_gone, supposed
from arranger.replay.what_if.one_cycle import take_plan
from arranger.replay.what_if.utilisation import Meter, Utilisation
from tests.unit.replay_worlds import (
    entry_with,
    explained,
    forged,
    gpu_job,
    preempting,
    taken_on,
    verified,
    with_room_rules,
)
from tests.unit.test_replay_continuation import read_on
from tests.world import World, shape

NEVER = Preemption(*[PreemptionMode.NEVER] * 3)


def test_a_log_with_preemptions_verifies_and_one_without_its_cycle_has_strays() -> None:
    world = preempting()
    report = verified(world.entries)
    assert report.first_difference is None and report.stray_decisions == 0
    at = entry_with(world.entries, k.Preempted)
    kept = tuple(event for event in world.entries[at].batch.events if not isinstance(event, k.CycleTaken))
    strays = verified(forged(world.entries, at, kept))
    assert strays.first_difference is not None and strays.first_difference.job == "default/high"
    assert strays.stray_decisions > 0


def test_the_events_of_a_job_and_a_pod_include_those_by_which_it_gives_room() -> None:
    world = preempting()
    for asked in (
        EventFilter(job="low"),
        EventFilter(job="high"),
        EventFilter(pod="low-actors-0"),
        EventFilter(pod="wide-actors-1"),
    ):
        listing = Listing(State(), asked)
        kinds = [line.kind for entry in world.entries for line in listing.feed(entry)]
        assert "Preempted" in kinds, asked


def test_the_plan_of_a_cycle_says_who_gives_room() -> None:
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    gpu_job(world, "high", 4, priority=9)
    plan, _ = take_plan(world.state, world.config, world.now_ms)
    [high] = plan.jobs
    assert (high.placed, high.waits, plan.pods, plan.quorums) == (4, "", 4, 1)
    assert high.room_from == ("default/low (Priority, 4 pods, 0 GPU seconds of work lost)",)
    without, _ = take_plan(world.state, msgspec.structs.replace(world.config, preemption=None), world.now_ms)
    assert without.jobs[0].placed == 0 and without.jobs[0].waits


def test_a_supposed_change_leaves_reservations_and_awaited_room_of_the_state_alone() -> None:
    world = with_room_rules(preemption=None)
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    high = gpu_job(world, "high", 4, priority=9)
    world.cycle()
    before = snapshot.encode(world.state)
    assert supposed(world.state, job_gone(high, world.state)).reservations == {}
    assert list(world.state.reservations) == [high.uid] and snapshot.encode(world.state) == before


def test_a_victim_is_told_by_whom_and_what_it_lost() -> None:
    world = preempting()
    [one] = [one for one in explained(world.entries, "low").consequences if one.reason == StageReason.PREEMPTED]
    assert one.what == "Rescheduling" and one.message.endswith(
        "200 GPU seconds of its work are lost; no restart counted"
    )
    [surplus] = [one for one in explained(world.entries, "wide").consequences if one.reason == StageReason.PREEMPTED]
    assert surplus.what == "Replaced" and surplus.message.startswith("1 worker above the quorum was preempted")


def test_the_placement_by_preemption_is_not_called_unexplained() -> None:
    explanation = explained(preempting().entries, "high")
    assert explanation.unexplained == 0 and explanation.standing.pods_placed == 3


def _continued(world: World, at: int, **config: object) -> Utilisation:
    """How it goes on after an offset with another configuration; jobs without an end run for ten minutes."""
    journey = Journey(State(), Point(offset=at))
    for entry in world.entries:
        if not journey.feed(entry):
            break
    state = journey.state
    recording = Recording(snapshot.restore(snapshot.encode(state)), begin_ms=state.time_ms)
    for entry in world.entries:
        if entry.first > state.offset:
            recording.feed(entry)
    recording.finish()
    future = Future(recording.observations, recording.intervals, 600_000)
    config_then = msgspec.structs.replace(world.config, **config)
    meter = Meter(None, state.time_ms)
    return Continuation(state, future, config_then, meter, begin_ms=state.time_ms, until_ms=None).run()


def test_the_continuation_preempts_or_does_not_and_every_job_ends() -> None:
    world = preempting()
    before = world.entries[entry_with(world.entries, k.Preempted)].first - 1
    as_it_was, without = _continued(world, before), _continued(world, before, preemption=None)
    assert as_it_was.starts["uid-high", 0] < without.starts["uid-high", 0]
    assert ("uid-low", 1) in as_it_was.starts and ("uid-low", 1) not in without.starts
    assert (as_it_was.ended, without.ended, as_it_was.waiting_at_end, without.waiting_at_end) == (3, 3, 0, 0)


def test_a_job_whose_nodes_others_leave_at_the_point_begins_when_it_did() -> None:
    """Pods above a quorum leave, too, though their job goes on; and nobody decides after the last one at the point."""
    world = preempting()
    decided, began, begun_ms = entry_with(world.entries, k.Preempted), 0, 0
    for number, entry in enumerate(world.entries):
        starts = [of for of in entry.batch.events if isinstance(of, k.StageDecided) and of.stage == Stage.STARTING]
        if any(of.job_uid == "uid-high" for of in starts):
            began, begun_ms = number, entry.batch.time_ms
    for entry in world.entries[decided:began]:
        state, future, _ = read_on(world.entries, entry.last)
        begin_ms = state.time_ms
        meter, until_ms = Meter(None, begin_ms), world.entries[-1].batch.time_ms
        Continuation(state, future, world.config, meter, begin_ms=begin_ms, until_ms=until_ms).run()
        high = state.jobs["uid-high"]
        assert (high.stage, high.times.stage_ms) == (Stage.STARTING, begun_ms), entry.last


def test_the_kind_of_a_victim_is_in_the_event() -> None:
    world = preempting()
    [event] = [e for entry in world.entries for e in entry.batch.events if isinstance(e, k.Preempted)]
    assert {victim.kind for victim in event.victims} == {PreemptionKind.SURPLUS, PreemptionKind.PRIORITY}


# --- explain ----------------------------------------------------------------------------------------------------


def test_a_beneficiary_is_told_who_gave_it_room_and_how_long_it_waited_for_it() -> None:
    [taken] = explained(preempting().entries, "high").takings
    assert [(of.job, of.kind, of.pods, of.lost_ms) for of in taken.victims] == [
        ("default/wide", PreemptionKind.SURPLUS, 1, 100_000),
        ("default/low", PreemptionKind.PRIORITY, 2, 200_000),
    ]
    assert (taken.begun_ms - taken.time_ms, taken.lost_ms, taken.harm_ms) == (7_000, 0, 300_000)


def test_who_loses_room_before_others_have_left_it_gave_it_back_whatever_becomes_of_it_later() -> None:
    world = taken_on()
    [taken] = explained(world.entries, "middle").takings
    lost_ms = taken.lost_ms - taken.time_ms
    assert (taken.begun_ms, lost_ms) == (0, 2_000)
    world.settle()
    middle = world.state.jobs["uid-middle"]
    high = world.state.jobs["uid-high"]
    world.say(msgspec.structs.replace(middle.seen, spec=msgspec.structs.replace(middle.valid_spec, priority=10)))
    world.settle()
    assert (middle.stage, high.stage) == (Stage.RUNNING, Stage.RESCHEDULING)
    first, again = explained(world.entries, "middle").takings
    assert (first.begun_ms, first.lost_ms) == (0, taken.lost_ms) and again.begun_ms and not again.lost_ms


def test_who_loses_room_before_others_have_left_it_gave_it_back_then_and_not_when_it_starts_elsewhere() -> None:
    world = taken_on()
    world.node("n2", cpu=16, gpus=4)
    world.pass_time(20)
    world.settle()
    assert world.state.jobs["uid-middle"].stage == Stage.RUNNING
    [taken] = explained(world.entries, "middle").takings
    assert (taken.begun_ms, taken.lost_ms - taken.time_ms) == (0, 2_000)


def test_a_victim_is_told_that_it_waits_again_and_when_it_had_nodes_again() -> None:
    world = preempting()
    [given] = explained(world.entries, "low").givings
    assert (given.to, given.to_priority, given.whole, given.again_ms) == ("default/high", 9, True, 0)
    high = world.state.jobs["uid-high"]
    world.say(k.StageDecided(high.uid, high.version, high.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    world.settle()
    [given] = explained(world.entries, "low").givings
    assert given.again_ms == world.now_ms
    [surplus] = explained(world.entries, "wide").givings
    assert not surplus.whole


def reserving(**of_first: object) -> World:
    """`large` waits for `first`, and `small` may not delay it."""
    world = with_room_rules(preemption=None)
    gpu_job(world, "first", 2, **of_first)
    world.settle()
    gpu_job(world, "large", 4, priority=9)
    gpu_job(world, "small", 1, priority=1)
    world.settle()
    return world


def test_a_reservation_is_told_with_what_it_waits_for_and_how_it_moved() -> None:
    world = reserving(expected_s=100)
    promised_ms = world.now_ms + 100_000
    kept = explained(world.entries, "large").kept
    assert kept is not None and (kept.start_ms, kept.awaits, kept.moved) == (promised_ms, ("default/first",), 0)
    world.pass_time(110)
    world.settle()
    kept = explained(world.entries, "large").kept
    assert kept is not None and (kept.first_ms, kept.start_ms) == (promised_ms, promised_ms + 100_000)
    assert (kept.moved, kept.outlived) == (1, ("default/first",))


def test_a_job_kept_from_reserved_room_is_told_whose_it_is_and_what_would_let_it_go_first() -> None:
    waiting = explained(reserving(expected_s=100).entries, "small").waiting
    assert waiting is not None and waiting.in_queue is not None
    assert [of.job for of in waiting.reserved] == ["default/large"]
    assert waiting.in_queue.kept_by == KeptBy.RESERVED
    said = "expectedRuntimeSeconds 90 (or less), set within 10 s, if it ends in that time"
    assert said in [of.text for of in waiting.remedies]


def test_a_run_time_that_is_offered_is_still_short_enough_once_somebody_has_set_it() -> None:
    world = reserving(expected_s=100)
    waiting = explained(world.entries, "small").waiting
    assert waiting is not None and any("expectedRuntimeSeconds 90" in of.text for of in waiting.remedies)
    world.pass_time(10)
    gpu_job(world, "small", 1, priority=1, expected_s=90)
    world.cycle()
    assert world.state.jobs["uid-small"].placements


@pytest.mark.parametrize(("later_s", "offered"), [(89, True), (90, False)])
def test_no_run_time_is_offered_that_nobody_could_set_in_time(later_s: int, *, offered: bool) -> None:
    world = reserving(expected_s=100)
    world.pass_time(later_s)
    gpu_job(world, "small", 1, priority=1)
    waiting = explained(world.entries, "small").waiting
    assert waiting is not None
    assert any("expectedRuntimeSeconds 1 (or less)" in of.text for of in waiting.remedies) is offered


def test_without_a_known_start_no_declared_run_time_helps() -> None:
    waiting = explained(reserving().entries, "small").waiting
    assert waiting is not None and waiting.reserved[0].start_ms == 0
    assert not any("expectedRuntimeSeconds" in of.text for of in waiting.remedies)


def reasons(world: World, name: str) -> dict[str, tuple[str, ...]]:
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return {str(of.kind): of.jobs for of in waiting.takes_none}


@pytest.mark.parametrize(
    ("low", "queue", "high", "kind"),
    [
        ({"priority": 5}, {}, {"priority": 5}, "NotLower"),
        ({"preemptible": False}, {}, {}, "NotPreemptible"),
        ({}, {"preemption": NEVER}, {}, "QueueNever"),
        ({}, {"min_runtime_s": 60}, {}, "TooYoung"),
        ({}, {}, {"workers": 5}, "Infeasible"),
    ],
)
def test_a_job_that_takes_no_room_is_told_why(
    low: dict[str, object], queue: dict[str, object], high: dict[str, object], kind: str
) -> None:
    world = with_room_rules()
    world.watch_queues()
    world.queue("default", **queue)
    gpu_job(world, "low", 4, **{"priority": 1, **low})
    world.settle()
    gpu_job(world, "high", **{"workers": 4, "priority": 9, **high})
    world.cycle()
    found = reasons(world, "high")
    assert list(found) == [kind]
    assert found[kind] == (() if kind in ("Infeasible", "QueueNever") else ("default/low",))


def test_room_that_is_off_and_room_that_is_too_little_are_told_apart() -> None:
    world = with_room_rules(preemption=NEVER)
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    gpu_job(world, "high", 4, priority=9)
    world.cycle()
    assert reasons(world, "high") == {"Off": ()}
    other = with_room_rules()
    gpu_job(other, "low", 1, priority=1)
    gpu_job(other, "top", 3, priority=10)
    other.settle()
    gpu_job(other, "high", 3, priority=9)
    other.cycle()
    assert reasons(other, "high") == {"TooLittle": ("default/low",), "NotLower": ("default/top",)}


def test_a_job_that_has_nothing_of_what_another_lacks_is_not_named() -> None:
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=9)
    world.job("no-gpus", leader=shape(cpu=1), priority=9)
    world.settle()
    assert world.state.jobs["uid-no-gpus"].placements
    gpu_job(world, "high", 4, priority=9)
    world.cycle()
    assert reasons(world, "high") == {"NotLower": ("default/low",)}


def test_a_queue_above_its_share_reclaims_nothing() -> None:
    world = with_room_rules()
    world.watch_queues()
    world.queue("a")
    world.queue("b")
    gpu_job(world, "of-a", 4, of_queue="a")
    world.settle()
    gpu_job(world, "of-b", 3, of_queue="b")
    world.cycle()
    assert reasons(world, "of-b") == {"AboveShare": ("default/of-a",)}


def test_before_the_cycle_runs_the_explanation_says_from_whom_it_takes_room() -> None:
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    gpu_job(world, "high", 4, priority=9)
    waiting = explained(world.entries, "high").waiting
    assert waiting is not None and waiting.gets == 4 and not waiting.takes_none
    assert waiting.why.startswith("the next scheduling cycle takes room for it (4 pods) from default/low")


def test_while_others_leave_the_job_waits_for_room() -> None:
    world = with_room_rules()
    gpu_job(world, "low", 4, priority=1)
    world.settle()
    gpu_job(world, "high", 4, priority=9)
    world.cycle()
    assert explained(world.entries, "high").intervals[-1].waiting_for == "others to leave its nodes"
