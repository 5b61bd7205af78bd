"""Workers beyond a quorum use reserved room too, and are the first to leave it."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind
from arranger.lifecycle.desired import desired_status
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.queue import Preemption
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import expand
from tests.unit.test_guests import NODE, small, world
from tests.unit.test_preemption import CONFIG, GPU, running
from tests.world import World, shape


def lending(**config: object) -> World:
    """As `world`, with a fifth node, of 2 GPUs, on which the quorum of a job of six workers runs."""
    of = world(**config)
    of.node("n4", cpu=64, gpus=2)
    of.job("wide", workers=6, worker=GPU, min_workers=2, equals=True)
    of.settle()
    return of


def ends(of: World, name: str) -> None:
    of.job(name, workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)


def leave(of: World) -> k.Preempted:
    """The decision by which guests leave once the job in front can start."""
    ends(of, "runs")
    events: list[k.Event] = []
    for _ in range(20):
        events += (found := of.cycle())
        if not (found or of.control() or of.apply()):
            break
    [decision] = [event for event in events if isinstance(event, k.Preempted)]
    validate(of.state)
    return decision


def test_a_running_job_grows_into_reserved_room() -> None:
    of = lending()
    wide = of.state.jobs["uid-wide"]
    assert len(wide.placements) == 6 and wide.slots.hosts == ()
    assert {wide.placements[slot] for slot in wide.slots.lent} <= {f"n{number}" for number in range(4)}
    assert set(wide.slots.lent.values()) == {("uid-big",)} and len(wide.slots.lent) == 4
    [told] = [one["message"] for one in desired_status(of.state, wide)["conditions"] if one["type"] == "Guest"]
    assert told.startswith("4 of its pods are in room that is reserved for job default/big, and give")
    validate(of.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(of.state))) == of.digest()


def test_nobody_grows_in_the_way_of_who_can_start_once_guests_have_left_that_grow_elsewhere() -> None:
    """The job in front takes its room as soon as its pods were tried: what guests get elsewhere changes nothing."""
    of = world(dry_run=True)
    small(of, "guest", 31, priority=2)
    of.node("n5", cpu=64, gpus=1)
    late = of.job("late", workers=2, worker=GPU, min_workers=1, equals=True, priority=1)
    of.settle()
    assert list(late.placements.values()) == ["n5"]
    ends(of, "runs")
    while of.control() or of.apply():
        pass
    guest = of.state.jobs["uid-guest"]
    assert guest.slots.hosts == ("uid-big",) and len(guest.placements) == 31
    of.node("n4", cpu=64, gpus=2)
    of.job("guest", workers=33, worker=GPU, min_workers=31, equals=True, priority=2)
    placed = [event for event in of.cycle() if isinstance(event, k.Placed)]
    assert [event.job_uid for event in placed] == ["uid-guest"] and not placed[0].hosts


def test_it_loses_only_these_workers_once_the_job_in_front_can_start() -> None:
    of = lending()
    wide = of.state.jobs["uid-wide"]
    lent, attempt = {*wide.slots.lent}, wide.attempt
    [victim] = leave(of).victims
    assert victim.kind == PreemptionKind.GUEST_SURPLUS and {*expand(victim.pods)} == lent
    assert (wide.stage, wide.attempt, {*wide.placements.values()}) == (Stage.RUNNING, attempt, {"n4"})
    assert wide.slots.lent == {}
    of.settle()
    assert of.state.jobs["uid-big"].stage == Stage.RUNNING and len(wide.placements) == 2
    validate(of.state)


def test_the_job_in_front_is_promised_its_start_without_them() -> None:
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False, deadline_s=1000)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9)
    of.settle()
    promised = of.state.reservations["uid-big"].decided
    of.node("n4", cpu=64, gpus=2)
    of.job("wide", workers=6, worker=GPU, min_workers=2, equals=True)
    of.settle()
    assert len(of.state.jobs["uid-wide"].slots.lent) == 4
    of.pass_time(31)
    of.settle()
    again = of.state.reservations["uid-big"].decided
    assert (again.start_ms, again.awaits) == (promised.start_ms, ("uid-runs",)) and promised.start_ms


def test_a_guest_gets_more_than_its_quorum_and_loses_that_first() -> None:
    of = world()
    guest = small(of, "guest", 3)
    of.job("guest", workers=35, worker=GPU, min_workers=3, equals=True)
    of.settle()
    assert guest.slots.hosts == ("uid-big",) and len(guest.placements) == 31
    of.node("n4", cpu=64, gpus=4)
    of.settle()
    assert len(guest.placements) == 35
    decision = leave(of)
    assert {victim.kind for victim in decision.victims} == {PreemptionKind.GUEST_SURPLUS}
    assert guest.stage == Stage.RUNNING and guest.quorum_placed()
    assert {*guest.placements.values()} == {"n4"}


def test_a_job_whose_quorum_needs_such_a_worker_by_now_leaves_as_a_whole() -> None:
    of = lending()
    wide = of.state.jobs["uid-wide"]
    of.job("wide", workers=6, worker=GPU, min_workers=4, equals=True)
    of.settle()
    assert len(wide.slots.lent) == 4
    kinds = [victim.kind for victim in leave(of).victims]
    assert kinds == [PreemptionKind.GUEST] and wide.stage in (Stage.RESCHEDULING, Stage.PENDING)
    of.settle()
    validate(of.state)


def test_workers_stay_where_nobody_has_a_reservation_any_more() -> None:
    of = lending()
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9, suspend=True)
    of.settle()
    wide = of.state.jobs["uid-wide"]
    assert wide.slots.lent == {} and len(wide.placements) == 6
    validate(of.state)


def test_a_job_that_is_not_preemptible_does_not_grow_there() -> None:
    of = world()
    of.node("n4", cpu=64, gpus=2)
    of.job("wide", workers=6, worker=GPU, min_workers=2, equals=True, preemptible=False)
    of.settle()
    of.pass_time(31)  # numbers are recorded again after a while
    of.settle()
    wide = of.state.jobs["uid-wide"]
    assert len(wide.placements) == 2 and wide.waits is not None
    assert "it can't be a guest in reserved room" in shortage_text(wide.waits.shortage)


def test_workers_of_a_job_that_ends_in_time_may_stay() -> None:
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False, deadline_s=1000)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9)
    of.settle()
    of.node("n4", cpu=64, gpus=2)
    wide = of.job("wide", workers=6, worker=GPU, min_workers=2, equals=True, deadline_s=60, preemptible=False)
    of.settle()
    assert len(wide.placements) == 6 and wide.slots.lent == {}
    long = of.job("long", workers=6, worker=GPU, min_workers=2, equals=True, deadline_s=5000)
    of.settle()
    assert len(long.placements) == 6 and long.slots.hosts == ("uid-big",)


def test_turn_by_turn_it_grows_there_as_well() -> None:
    of = world()
    of.config = msgspec.structs.replace(of.config, queue_policy="DRF")
    of.node("n4", cpu=64, gpus=2)
    for name in ("wide", "wider"):
        of.job(name, workers=10, worker=GPU, min_workers=1, equals=True)
    of.settle()
    assert [len(of.state.jobs[f"uid-{name}"].placements) for name in ("wide", "wider")] == [10, 10]
    validate(of.state)


def test_lent_room_is_no_room_for_who_preempts_its_job() -> None:
    """A job of a higher priority may take the quorum's room, and none that is reserved."""
    of = lending()
    high = of.job("high", workers=1, worker=NODE, min_workers=1, equals=True, priority=8, preemptible=False)
    of.settle()
    assert high.stage == Stage.PENDING
    two = of.job("two", workers=2, worker=GPU, min_workers=2, equals=True, priority=8, preemptible=False)
    of.settle()
    assert two.stage == Stage.RUNNING and {*two.placements.values()} == {"n4"}
    validate(of.state)


def test_pods_that_were_lent_room_leave_the_rest_to_others() -> None:
    """They go once the job in front starts: its room is theirs until then, not room beside theirs."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    of.node("n0", cpu=64, gpus=16)
    running(of, "runs", 8, priority=9, preemptible=False)
    running(of, "first", 4, priority=9, preemptible=False)
    big = of.job("big", workers=12, worker=GPU, min_workers=12, equals=True, priority=9)
    of.settle()
    of.node("n1", cpu=64, gpus=2)
    wide = of.job("wide", workers=6, worker=GPU, min_workers=2, equals=True)
    of.settle()
    assert len(wide.slots.lent) == 4 and wide.slots.hosts == ()
    of.job("first", workers=4, worker=GPU, min_workers=4, equals=True, terminating=True)
    of.settle()
    more = of.job("more", workers=5, worker=GPU, min_workers=5, equals=True, preemptible=False)
    steady = of.job("steady", workers=4, worker=GPU, min_workers=4, equals=True, preemptible=False)
    of.settle()
    assert (more.stage, steady.stage, steady.slots.hosts) == (Stage.PENDING, Stage.RUNNING, ())
    ends(of, "runs")
    of.settle()
    assert (big.stage, steady.stage, len(wide.placements)) == (Stage.RUNNING, Stage.RUNNING, 2)
    validate(of.state)


def test_a_quorum_that_has_grown_gets_its_workers_there() -> None:
    of = world()
    of.node("n4", cpu=64, gpus=2)
    pair = running(of, "pair", 2)
    assert {*pair.placements.values()} == {"n4"}
    of.job("pair", workers=4, worker=GPU, min_workers=4, equals=True)
    of.settle()
    assert (pair.stage, {*pair.slots.lent}) == (Stage.RUNNING, {(1, 2), (1, 3)})
    assert [victim.kind for victim in leave(of).victims] == [PreemptionKind.GUEST]
    of.settle()
    validate(of.state)


def test_a_job_that_needs_no_pods_is_a_guest_with_all_that_it_gets() -> None:
    of = world()
    job = of.job("none", workers=4, worker=GPU, min_workers=0, equals=True)
    of.settle()
    assert (len(job.placements), job.slots.hosts) == (4, ("uid-big",))
    assert [victim.job_uid for victim in leave(of).victims] == [job.uid]
    assert job.placements == {} and job.stage == Stage.RESCHEDULING


def test_a_job_that_was_lent_a_worker_may_give_all_that_it_has_to_the_host() -> None:
    """The host is of a higher priority by now, and what was lent isn't enough for it."""
    config = CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True)
    world = World(config=config)
    two = shape(gpus=2)
    world.node("n0", gpus=2)
    low = world.job("low", equals=True, workers=2, worker=two, min_workers=1)
    world.settle()
    host = world.job("host", equals=True, workers=2, worker=two, min_workers=2, created=world.now_ms)
    world.cycle()
    world.node("n1", gpus=2)
    world.settle()
    assert [*low.slots.lent.values()] == [(host.uid,)]
    world.job("host", equals=True, workers=2, worker=two, min_workers=2, priority=9, generation=2)
    for _ in range(3):
        world.settle()
        world.pass_time(1)
    assert len(host.placements) == 2 and not low.placements


@pytest.mark.parametrize("needed", [2, 3, 4])
def test_a_job_that_was_lent_a_worker_keeps_its_quorum_if_its_other_surplus_is_enough(needed: int) -> None:
    config = CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True)
    world = World(config=config)
    two = shape(gpus=2)
    for number in range(needed):
        world.node(f"n{number}", gpus=2)
    low = world.job("low", equals=True, workers=needed + 1, worker=two, min_workers=1)
    world.settle()
    for number in range(needed - 1):
        world.node(f"later{number}", gpus=2)
        world.job(f"other{number}", leader=two, priority=9, preemptible=False, expected_s=1000)
    world.cycle()
    host = world.job("host", equals=True, workers=needed, worker=two, min_workers=needed, created=world.now_ms)
    world.cycle()
    world.node("lent", gpus=2)
    world.settle()
    assert len(low.placements) == needed + 1 and [*low.slots.lent.values()] == [(host.uid,)]
    world.job("host", equals=True, workers=needed, worker=two, min_workers=needed, priority=9, generation=2)
    for _ in range(3):
        world.settle()
        world.pass_time(1)
    assert (
        len(host.placements) == needed and len(low.placements) == 1 and (low.stage, low.attempt) == (Stage.RUNNING, 0)
    )


def test_a_guest_loses_the_workers_on_the_nodes_that_the_job_in_front_uses_whichever_they_are() -> None:
    """The host needs fewer nodes by now, and the guest's first worker is on one of them."""
    of = world()
    guest = of.job("guest", workers=[("a", 1, shape(cpu=64, gpus=1)), ("b", 23, GPU)], min_workers=1, equals=True)
    of.settle()
    assert guest.slots.hosts == ("uid-big",) and len(guest.placements) == 24
    full = of.state.jobs["uid-runs"].placements[1, 0]
    assert guest.placements[1, 0] != full
    of.job("big", workers=4, worker=NODE, min_workers=3, equals=True, priority=9, generation=2)
    of.settle()
    assert len(of.state.jobs["uid-big"].placements) == 3
    assert (guest.stage, guest.attempt) == (Stage.RUNNING, 0) and {*guest.placements.values()} == {full}
    validate(of.state)
