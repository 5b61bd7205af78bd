"""What jobs gained as guests in reserved room, and what that cost, as `arranger preemptions` says it."""

import pytest

from arranger.cli.rendering.ledger_page import Preemptions
from arranger.model.config import CycleConfig
from arranger.projections.state import State
from arranger.replay.ledger.guests import StayEnd
from arranger.replay.ledger.preemptions import PreemptionLedger, by_queue
from arranger.replay.ledger.waits import WaitLedger
from arranger.replay.reading.history import Point, Span
from tests.unit.replay_worlds import explained
from tests.unit.test_guests import small, world
from tests.unit.test_preemption import GPU, running
from tests.world import World, shape


def ledger(of: World, span: Span | None = None) -> PreemptionLedger:
    found = PreemptionLedger(State(), span or Span(), CycleConfig())
    for entry in of.entries:
        found.feed(entry)
    return found


def ends(of: World, name: str) -> None:
    of.job(name, workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    of.settle()


def test_a_guest_that_leaves_has_what_it_used_and_lost_and_when_its_host_began() -> None:
    of = world()
    small(of, "short", 2)
    of.pass_time(100)
    small(of, "late", 4)
    ends(of, "short")
    of.pass_time(60)
    ends(of, "runs")
    found = ledger(of)
    short, late, *_ = found.guests
    assert (short.job, short.hosts, short.end, short.lost_ms) == ("default/short", ("default/big",), StayEnd.ENDED, 0)
    assert short.gpu_ms == 2 * (short.until_ms - short.time_ms) >= 200_000
    assert (late.end, late.gpu_ms) == (StayEnd.LEFT, 4 * (late.until_ms - late.time_ms))
    [taken] = [one for one in found.found if one.taking.offset == late.preemption]
    assert taken.taking.job == "default/big" and late.lost_ms == taken.taking.harm_ms > 0
    [queue] = by_queue(found.found, found.guests)
    assert queue.guest_ms == sum(stay.gpu_ms for stay in found.guests)
    answer = Preemptions(found.found, found.guests, 600_000).json()
    assert answer["guests"][1]["end"] == "Left" and answer["guests"][1]["host_began_ms"] == taken.gained_ms
    assert answer["guests"][0]["host_began_ms"] is None


def test_a_guest_without_a_leader_whose_workers_have_finished_has_ended() -> None:
    """Its last pod gives its node up before the job has ended."""
    of = world()
    guest = small(of, "short", 2)
    for uid in list(guest.bound.values()):
        of.pass_time(10)
        of.change_pod(uid, phase="Succeeded", ready=False)
    of.settle()
    [stay] = ledger(of).guests
    assert guest.ended and stay.end == StayEnd.ENDED


def test_a_guest_whose_host_has_no_reservation_any_more_stays() -> None:
    of = world()
    guest = small(of, "guest", 4)
    of.pass_time(50)
    of.job("big", workers=1, worker=GPU, min_workers=1, equals=True, priority=9)
    of.settle()
    [stay] = ledger(of).guests
    assert guest.placements and not guest.slots.hosts
    assert stay.end == StayEnd.STAYS and stay.gpu_ms >= 4 * 50_000


@pytest.mark.parametrize("ended_before", [False, True], ids=["with the reservation", "after it"])
def test_a_guest_whose_room_a_third_job_takes_does_not_stay(
    ended_before: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    of = world()
    small(of, "guest", 20, priority=1)
    of.pass_time(50)
    if ended_before:
        of.job_gone(of.state.jobs["uid-big"])
        assert ledger(of).guests[0].end == StayEnd.STAYS
    of.job("hi", workers=3, worker=shape(cpu=1, gpus=8), min_workers=3, equals=True, priority=20)
    of.settle()
    found = ledger(of)
    [stay] = found.guests
    assert (stay.end, stay.taken_by, stay.lost_ms) == (StayEnd.TAKEN, "default/hi", 0)
    Preemptions(found.found, found.guests, 600_000).print(everything=False)
    assert "left: its room went to default/hi" in capsys.readouterr().out


def test_a_guest_that_is_there_is_counted_up_to_the_end_and_one_from_before_the_span_is_not() -> None:
    of = world()
    small(of, "guest", 4)
    of.pass_time(50)
    [stay] = ledger(of).guests
    assert (stay.end, stay.until_ms, stay.gpu_ms) == (None, 0, 4 * (of.state.time_ms - stay.time_ms))
    late = PreemptionLedger(of.state, Span(Point(offset=of.entries[-1].last)), of.config)
    assert late.guests == []


def test_the_list_has_guests_though_nobody_had_to_leave(capsys: pytest.CaptureFixture[str]) -> None:
    of = world()
    small(of, "guest", 4)
    found = ledger(of)
    Preemptions(found.found, found.guests, 600_000).print(everything=False)
    told = capsys.readouterr().out
    assert "default/guest" in told and "default/big" in told and "is there" in told and "BENEFICIARY" not in told


def test_a_job_waits_for_those_whose_end_it_needs_and_not_for_its_guests() -> None:
    """A guest leaves as soon as the job can start. Others wait for its end, as for that of any job."""
    of = world()
    small(of, "guest", 30)
    of.pass_time(100)
    of.job("late", workers=4, worker=GPU, min_workers=4, equals=True, priority=1)
    of.settle()
    of.pass_time(50)
    of.node("n9", cpu=1)
    assert waited(of, "big") == {("Room", "default/runs"): 150_000}
    assert waited(of, "late").keys() == {("Room", "default/runs"), ("Room", "default/guest")}


def test_pods_that_were_lent_reserved_room_are_not_held_against_the_job_that_has_it_reserved() -> None:
    of = World(config=world().config)
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False)
    elastic = running(of, "elastic", 1)
    of.pass_time(1)
    of.job("big", workers=4, worker=shape(cpu=1, gpus=8), min_workers=4, equals=True, created=of.now_ms)
    of.settle()
    of.pass_time(100)
    of.job("elastic", workers=21, worker=GPU, min_workers=1, equals=True, generation=2)
    of.settle()
    of.pass_time(100)
    of.node("n9", cpu=1)
    assert len(elastic.slots.lent) == 20 and not elastic.slots.hosts
    assert waited(of, "big") == {("Room", "default/elastic"): 100_000, ("Room", "default/runs"): 100_000}


def waited(of: World, name: str) -> dict[tuple[str, str], int]:
    """(cause, holder) → for how many milliseconds a job waited."""
    found = WaitLedger(State(), Span(), CycleConfig())
    for entry in of.entries:
        found.feed(entry)
    found.finish()
    lines = [line for line in found.lines if line.waiter.job == f"default/{name}"]
    return {(str(of.cause), of.holder.job if of.holder is not None else ""): of.wait_ms for of in lines}


def test_room_is_reserved_until_the_reservation_ends_and_not_until_another_reason_is_recorded() -> None:
    of = world()
    small(of, "steady", 2, preemptible=False)
    of.pass_time(50)
    of.job_gone(of.state.jobs["uid-big"])
    of.pass_time(3)
    of.node("n9", cpu=1)
    kept, then = explained(of.entries, "steady").intervals[-2:]
    assert "reserved for a job ahead of it" in kept.waiting_for and kept.until_ms - kept.since_ms == 50_000
    assert then.waiting_for.endswith("a scheduling cycle is to look at what isn't reserved any more")
    assert waited(of, "steady") == {("Reservation", "default/big"): 50_000, ("Scheduler", ""): 3_000}


def test_what_else_is_in_the_way_stays_there_when_a_reservation_ends() -> None:
    of = world()
    of.node("n4", cpu=64, gpus=8, cordoned=True)
    small(of, "steady", 2, preemptible=False)
    of.pass_time(50)
    of.job_gone(of.state.jobs["uid-big"])
    of.pass_time(3)
    of.node("n9", cpu=1)
    then = explained(of.entries, "steady").intervals[-1]
    assert then.waiting_for == "nodes for its quorum: cordoned" and then.until_ms - then.since_ms == 3_000
