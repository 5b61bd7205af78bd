"""The replay tools on logs in which jobs gave room to others, and room was kept."""

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.reading.history import Journey, Point
from arranger.replay.reading.listing import Filter, Listing
from arranger.replay.reading.recording import Recording
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.hypothesis import job_gone, supposed
from arranger.replay.what_if.one_cycle import take_plan
from arranger.replay.what_if.utilisation import Meter, Utilisation
from tests.unit.replay_worlds import entry_with, explained, forged, gpu_job, preempting, verified, with_room_rules
from tests.world import World


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
    for asked in (Filter(job="low"), Filter(job="high"), Filter(pod="low-actors-0"), Filter(pod="wide-actors-1")):
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
    assert one.what == "Rescheduling" and one.message.endswith("200 GPU seconds of its work; no restart counted")
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


def test_the_kind_of_a_victim_is_in_the_event() -> None:
    world = preempting()
    [event] = [e for entry in world.entries for e in entry.batch.events if isinstance(e, k.Preempted)]
    assert {victim.kind for victim in event.victims} == {PreemptionKind.SURPLUS, PreemptionKind.PRIORITY}
