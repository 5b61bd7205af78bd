"""Reserved room isn't idle: jobs behind use it as guests, and leave once the job with the reservation can start."""

from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, TakenBy
from arranger.lifecycle.desired import desired_status
from arranger.messages.shortages import shortage_text
from arranger.model.job import Slot, Stage
from arranger.model.pod import PodTimes
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import TakenRoom
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling import NoRoom, NoRoomKind, why_no_room
from arranger.scheduling.cluster import view
from arranger.scheduling.cycle import Cycles, _try_quorum, take_cycle
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.queues.waiting import waiting_jobs
from arranger.scheduling.room.cycle_room import Room
from arranger.scheduling.room.reservation_search import ReservationSearch
from arranger.scheduling.search.placer import Placer
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import CONFIG, GPU, running
from tests.world import World, shape

NODE = shape(cpu=1, gpus=8)


def world(**config: object) -> World:
    """Four nodes of 8 GPUs. One GPU is used by a job of which nobody knows when it ends, and a gang that needs all
    nodes waits."""
    of = World(
        config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True, **config)
    )
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9)
    of.settle()
    assert of.state.jobs["uid-big"].stage == Stage.PENDING and "uid-big" in of.state.reservations
    return of


def small(of: World, name: str, workers: int = 1, **spec: object) -> JobRecord:
    job = of.job(name, workers=workers, worker=GPU, min_workers=workers, equals=True, **spec)  # type: ignore[arg-type]
    of.settle()
    return job


def test_jobs_behind_use_the_room_until_the_job_in_front_can_start() -> None:
    of = world()
    one, two = small(of, "one"), small(of, "two", 4)
    assert (one.stage, two.stage) == (Stage.RUNNING, Stage.RUNNING)
    assert one.slots.hosts == two.slots.hosts == ("uid-big",)
    runs = of.state.jobs["uid-runs"]
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    of.settle()
    assert runs.stage == Stage.SUCCEEDED
    assert of.state.jobs["uid-big"].stage == Stage.RUNNING
    for job in (one, two):
        assert job.stage == Stage.RESCHEDULING and job.decided is not None
        assert job.decided.reason == StageReason.PREEMPTED and isinstance(job.decided.facts, TakenBy)
        assert job.decided.facts.guest and job.spent == {} and job.leader.restarts == 0
        assert job.not_before_ms <= of.now_ms
        [given] = explained(of.entries, job.seen.name).givings
        assert given.guest and given.taken_by == job.decided.facts
    validate(of.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(of.state))) == of.digest()


def test_just_those_guests_leave_that_the_job_needs_and_those_first_that_lose_the_least() -> None:
    of = world()
    of.node("n4", cpu=64, gpus=4)
    old = small(of, "old", 4)
    of.pass_time(100)
    young = small(of, "young", 8)
    assert old.slots.hosts or young.slots.hosts
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    events: list[k.Event] = []
    for _ in range(20):
        events += (found := of.cycle())
        if not (found or of.control() or of.apply()):
            break
    [decision] = [event for event in events if isinstance(event, k.Preempted)]
    assert {victim.kind for victim in decision.victims} == {PreemptionKind.GUEST}
    nodes = {pods.node for pods in decision.placed.pods}
    for victim in decision.victims:
        assert nodes & {pods.node for pods in victim.pods}, "who leaves makes room for the job"
    for job in (old, young):
        stays = job.uid not in {victim.job_uid for victim in decision.victims}
        assert (job.stage == Stage.RUNNING) == stays


def test_nobody_is_asked_to_leave_in_vain() -> None:
    of = world()
    guest = small(of, "guest", 8)
    for _ in range(5):
        of.pass_time(31)
        assert not [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert guest.stage == Stage.RUNNING


def test_a_guest_of_equal_priority_gives_its_room_and_only_has_too_little_of_it() -> None:
    of = world()
    guest = small(of, "guest", 8, priority=9)
    assert guest.slots.hosts == ("uid-big",)
    waiting = explained(of.entries, "big").waiting
    assert waiting is not None
    found = {job: one.kind for one in waiting.takes_none for job in one.jobs}
    assert found == {"default/runs": NoRoomKind.NOT_LOWER, "default/guest": NoRoomKind.TOO_LITTLE}


def test_who_cannot_leave_again_is_no_guest() -> None:
    assert small(world(), "small", preemptible=False).stage == Stage.PENDING


def test_by_the_earlier_rule_there_are_no_guests() -> None:
    of = world()
    of.config = msgspec.structs.replace(of.config, guests=False)
    assert small(of, "small").stage == Stage.PENDING


def test_who_is_ended_before_the_reservation_begins_is_no_guest() -> None:
    """What a job only expects of itself doesn't count: it may run for longer, and then it would delay the start."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False, deadline_s=1000)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9)
    of.settle()
    short, long = small(of, "short", deadline_s=60), small(of, "long", deadline_s=5000)
    assert (short.stage, short.slots.hosts) == (Stage.RUNNING, ())
    assert (long.stage, long.slots.hosts) == (Stage.RUNNING, ("uid-big",))
    hopes, insists = small(of, "hopes", expected_s=60), small(of, "insists", expected_s=60, preemptible=False)
    assert (hopes.stage, hopes.slots.hosts) == (Stage.RUNNING, ("uid-big",))
    assert insists.stage == Stage.PENDING


def test_a_job_that_runs_for_longer_than_it_said_delays_no_start() -> None:
    """It had nodes until the end that it expected of itself, and kept them for as long as it ran."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False, deadline_s=100)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9)
    of.settle()
    overruns = small(of, "overruns", expected_s=60, priority=9)
    assert overruns.stage == Stage.RUNNING
    of.pass_time(101)
    of.settle()
    assert of.state.jobs["uid-big"].stage == Stage.RUNNING and not overruns.placements


def test_a_guest_is_told_whose_room_it_uses() -> None:
    of = world()
    guest = small(of, "guest")
    [condition] = [one for one in desired_status(of.state, guest)["conditions"] if one["type"] == "Guest"]
    assert condition["status"] == "True" and "reserved for job default/big" in condition["message"]
    of.job("big", workers=1, worker=GPU, min_workers=1, equals=True, priority=9)
    of.settle()
    assert not [one for one in desired_status(of.state, guest)["conditions"] if one["type"] == "Guest"]


def test_only_a_guest_of_a_job_leaves_for_it_as_a_guest() -> None:
    of = world()
    guest = small(of, "guest")
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    of.control()
    for _ in range(3):
        of.apply()
    events = take_cycle(of.state, of.config, of.now_ms, policies=of.policies)
    [decision] = [event for event in events if isinstance(event, k.Preempted)]
    guest.slots.hosts = ()
    of.say(*events)
    assert not of.verdict("Preempted").accepted and "no guest" in of.verdict("Preempted").reason
    assert decision.placed.job_uid == "uid-big"


@pytest.mark.parametrize("seed", range(3))
def test_a_process_that_remembers_decides_the_same(seed: int) -> None:
    of, cycles = world(), Cycles()
    for number in range(6):
        of.job(f"s{number}", workers=1 + (number + seed) % 4, worker=GPU, min_workers=1, equals=True)
        if number == 4:
            of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
        for _ in range(10):
            events = take_cycle(of.state, of.config, of.now_ms, policies=of.policies)
            assert cycles.take(of.state, of.config, of.now_ms) == events
            if events:
                of.say(*events)
            if not (events or of.control() or of.apply()):
                break
        of.pass_time(40)


def test_who_was_told_of_no_reservation_leaves_for_none() -> None:
    of = world()
    guest = small(of, "guest", 8)
    for number in range(4, 8):
        of.node(f"n{number}", cpu=64, gpus=8)
    of.settle()
    big = of.state.jobs["uid-big"]
    assert big.stage == Stage.RUNNING and guest.stage == Stage.RUNNING
    assert guest.slots.hosts == ()
    for number in range(4, 8):
        of.node_gone(f"n{number}")
    for uid in [*of.state.pods_of["uid-big"]]:
        of.pod_gone(uid)
    of.control()
    of.wait_for_late_pods()
    of.wait_for_back_offs()
    of.settle()
    assert "uid-big" in of.state.reservations and guest.stage == Stage.RUNNING
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    for _ in range(20):
        events = of.cycle()
        for event in events:
            assert not isinstance(event, k.Preempted) or event.victims[0].kind != PreemptionKind.GUEST
        if not (events or of.control() or of.apply()):
            break


def test_a_job_whose_host_lost_its_reservation_meanwhile_is_no_guest() -> None:
    of = world()
    of.job("late", workers=1, worker=GPU, min_workers=1, equals=True)
    events = take_cycle(of.state, of.config, of.now_ms, policies=of.policies)
    assert any(isinstance(event, k.Placed) and event.hosts for event in events)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9, suspend=True)
    of.control()
    assert not of.state.reservations
    of.say(*events)
    assert of.verdict("Placed").accepted and of.state.jobs["uid-late"].slots.hosts == ()


@pytest.mark.parametrize("guests", [0, 8])
def test_nobody_becomes_a_guest_in_the_cycle_in_which_the_job_in_front_can_start(guests: int) -> None:
    """By DRF, small jobs have their turns before the one with the reservation."""
    of = world(queue_policy="DRF")
    if guests:
        assert small(of, "guest", guests).slots.hosts
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    while not any(isinstance(event, k.StageDecided) for event in of.control()):
        of.apply()
    for pod in [pod for pod in of.state.pods.values() if "runs" in pod.name]:
        of.pod_gone(pod.uid)
    late = of.job("late", workers=1, worker=GPU, min_workers=1, equals=True)
    events = of.cycle()
    placed = [event.placed if isinstance(event, k.Preempted) else event for event in events]
    assert "uid-big" in [event.job_uid for event in placed if isinstance(event, k.Placed)]
    assert not late.placements


def test_nobody_becomes_a_guest_in_room_for_which_the_job_in_front_waits_anyway() -> None:
    of = world()
    runs = of.state.jobs["uid-runs"]
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, deleting=True)
    of.control()
    late = of.job("late", workers=1, worker=GPU, min_workers=1, equals=True)
    events = of.cycle()
    assert not late.placements, (runs.stage, events)


def test_an_unchanged_reservation_is_not_written_again_and_is_not_searched_for_in_each_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of, searches = world(), []
    search = ReservationSearch.find
    monkeypatch.setattr(ReservationSearch, "find", lambda self, job: searches.append(job) or search(self, job))
    written: list[k.Event] = []
    for number in range(180):  # half an hour in which something changes every ten seconds
        of.pass_time(10)
        of.priority_class(f"c{number}", number)
        if number % 30 == 0:
            small(of, f"guest{number}")
        for _ in range(3):
            written += of.cycle()
    assert not [event for event in written if isinstance(event, k.Reserved)]
    assert len(searches) <= 62, "each 30 s"
    assert len([job for job in of.state.jobs.values() if job.slots.hosts]) == 6
    validate(of.state)


def test_room_that_a_guest_leaves_for_another_job_stays_reserved() -> None:
    """By its queue's share, a job behind may take room from a guest. What the guest leaves is its host's."""
    of = world()
    guest = small(of, "guest", 31, priority=1)
    assert guest.slots.hosts == ("uid-big",)
    of.pass_time(600)  # the reservation is revised, and the guest has had its least run time
    of.settle()
    behind = of.job("behind", workers=2, worker=GPU, min_workers=2, equals=True, priority=8, preemptible=False)
    of.settle()
    assert guest.stage == Stage.RUNNING and not behind.placements


def test_a_job_that_can_not_be_a_guest_is_told_for_whom_the_room_is_reserved_and_why_it_is_none() -> None:
    of = world()
    job = small(of, "steady", 2, preemptible=False)
    said = (
        "0 of 2 required pods fit; actors: 0 of 4 nodes fit: 4 reserved for a job ahead of it; "
        "it can't be a guest in reserved room, because it isn't preemptible"
    )
    assert desired_status(of.state, job)["message"] == f"{said}; room is reserved for job big of namespace default"
    waiting = explained(of.entries, "steady").waiting
    assert waiting is not None and waiting.why == said
    assert [one.job for one in waiting.reserved] == ["default/big"]
    assert [one.kind for one in waiting.takes_none] == [NoRoomKind.RESERVED]
    guest = "preemptible true instead of false, as a guest in reserved room, which leaves once that is needed"
    assert [(of.text, of.pods) for of in waiting.remedies if "preemptible" in of.text] == [(guest, 2)]
    assert waiting.shortfall is not None and waiting.shortfall.closest is not None
    assert waiting.shortfall.closest.text == "reserved for a job ahead of it"


def test_who_would_not_fit_as_a_guest_either_is_told_what_it_lacks_there() -> None:
    """The room of the job in front is open to it, so it isn't the reservation that keeps it out."""
    of = world()
    job = small(of, "wide", 32, priority=1)
    lacks = "actors: 0 of 4 nodes fit: 4 insufficient nvidia.com/gpu (needs 1, at most 0 free)"
    assert desired_status(of.state, job)["message"] == f"31 of 32 required pods fit; beside them, {lacks}"
    waiting = explained(of.entries, "wide").waiting
    assert waiting is not None and waiting.why.startswith("31 of 32 required pods fit; ") and not waiting.reserved


def test_who_is_not_preemptible_and_would_not_fit_as_a_guest_either_is_not_told_to_become_preemptible() -> None:
    of = world()
    job = small(of, "wide", 32, priority=1, preemptible=False)
    lacks = "0 of 32 required pods fit; actors: 0 of 4 nodes fit: 4 reserved for a job ahead of it"
    assert desired_status(of.state, job)["message"] == f"{lacks}; room is reserved for job big of namespace default"
    waiting = explained(of.entries, "wide").waiting
    assert waiting is not None and not [one for one in waiting.remedies if "preemptible" in one.text]


def test_room_that_a_guest_has_just_got_is_not_held_beside_it() -> None:
    """Of a node's 8 GPUs, 4 are used for an unknown time, and 6 are reserved, so 2 are held. The guest of 3 leaves when
    they are needed, so the fourth is free for anybody, already in the same cycle."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    of.node("n0", cpu=64, gpus=8)
    running(of, "runs", 4, priority=9, preemptible=False)
    of.job("big", workers=1, worker=shape(cpu=1, gpus=6), min_workers=1, equals=True, priority=9, preemptible=False)
    of.settle()
    guest = of.job("guest", workers=3, worker=GPU, min_workers=3, equals=True, priority=2)
    of.job("steady", workers=1, worker=GPU, min_workers=1, equals=True, priority=1, preemptible=False)
    placed = [event.job_uid for event in of.cycle() if isinstance(event, k.Placed)]
    assert guest.slots.hosts == ("uid-big",) and placed == ["uid-guest", "uid-steady"]


@pytest.mark.parametrize("together", [True, False])
def test_what_a_guest_of_two_leaves_counts_once(together: bool) -> None:
    of = World(config=msgspec.structs.replace(CONFIG, reservations=2, reservation_refresh_ms=30_000, guests=True))
    of.node("n0", cpu=64, gpus=16)
    running(of, "one", 8, priority=9, preemptible=False)
    running(of, "two", 4, priority=9, preemptible=False)
    for name, pods in (("first", 10), ("second", 6)):
        of.job(name, workers=pods, worker=GPU, min_workers=pods, equals=True, priority=9)
    of.settle()
    assert len(of.state.reservations) == 2
    guest = of.job("guest", workers=2, worker=GPU, min_workers=2, equals=True, priority=3)
    if not together:
        of.settle()
    steady = of.job("steady", workers=2, worker=GPU, min_workers=2, equals=True, preemptible=False)
    of.settle()
    assert guest.slots.hosts == ("uid-first", "uid-second")
    assert steady.stage == Stage.PENDING, "its room is reserved"


def two_reservations() -> World:
    """Two nodes of 8 GPUs, of which one is used for an unknown time; two jobs have them reserved."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=2, reservation_refresh_ms=30_000, guests=True))
    for pool in ("a", "b"):
        of.node(f"n-{pool}", cpu=64, gpus=8, labels={"pool": pool})
        one = shape(cpu=1, gpus=1, selector={"pool": pool})
        of.job(f"runs-{pool}", workers=1, worker=one, min_workers=1, equals=True, priority=10, preemptible=False)
    of.settle()
    of.pass_time(10)
    for pool, priority in (("a", 9), ("b", 8)):
        whole = shape(cpu=1, gpus=8, selector={"pool": pool})
        of.job(f"big-{pool}", workers=1, worker=whole, min_workers=1, equals=True, priority=priority)
    of.settle()
    assert list(of.state.reservations) == ["uid-big-a", "uid-big-b"]
    return of


@pytest.mark.parametrize(("pool", "gpus", "hosts"), [
    ("b", 2, ["big-b"]),
    ("a", 2, ["big-a"]),
    ("", 2, ["big-a", "big-b"]),
])  # fmt: skip
def test_a_job_is_told_whose_reservation_keeps_it_out(pool: str, gpus: int, hosts: list[str]) -> None:
    of = two_reservations()
    asked = shape(cpu=1, gpus=gpus, selector={"pool": pool} if pool else None)
    job = of.job("steady", workers=1, worker=asked, min_workers=1, equals=True, preemptible=False)
    of.settle()
    more = " and 1 more" if len(hosts) > 1 else ""
    said = desired_status(of.state, job)["message"]
    assert said.endswith(f"; room is reserved for job {hosts[0]} of namespace default{more}")
    waiting = explained(of.entries, "steady").waiting
    assert waiting is not None and [one.job for one in waiting.reserved] == [f"default/{host}" for host in hosts]


def test_room_that_is_reserved_is_free_where_it_would_not_be_enough() -> None:
    of = world()
    of.job("wide", workers=1, worker=shape(cpu=1, gpus=9), min_workers=1, equals=True, preemptible=False)
    of.settle()
    waits = of.state.jobs["uid-wide"].waits
    assert waits is not None
    assert "insufficient nvidia.com/gpu (needs 9, at most 8 free)" in shortage_text(waits.shortage)
    assert not waits.shortage.no_guest


def test_who_left_for_a_job_is_not_its_guest_again_before_it_has_run() -> None:
    of = world()
    guest = small(of, "guest", 8)
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    big = of.state.jobs["uid-big"]
    while not big.placements:
        assert of.cycle() or of.control() or of.apply()
    assert big.slots.asked == ("uid-guest",) and not guest.placements
    assert snapshot.digest(snapshot.restore(snapshot.encode(of.state))) == of.digest()
    of.settle()
    assert big.stage == Stage.RUNNING and big.slots.asked == ()

    of = world()
    of.state.jobs["uid-big"].slots.asked = ("uid-again",)  # it lost the room before it ran
    again, other = small(of, "again"), small(of, "other")
    assert again.stage == Stage.PENDING and other.slots.hosts == ("uid-big",)


@pytest.mark.parametrize("why", ["in vain", "refused"])
def test_nothing_is_reserved_for_a_job_for_which_nobody_would_leave(why: str) -> None:
    of = world(dry_run=True)
    big = of.state.jobs["uid-big"]
    if why == "in vain":
        ended = k.StageDecided(big.uid, 1, 0, Stage.PENDING, StageReason.QUORUM_REFUSED)
        big.taken = TakenRoom(of.now_ms, ("n0",), ended)
    else:
        big.tried = k.PodsTried(big.uid, big.seen.generation, Slot(1, 0), 403)
    of.pass_time(31)
    assert small(of, "stays", preemptible=False).stage == Stage.RUNNING
    assert of.state.reservations == {}


def test_a_job_of_higher_priority_takes_the_place_of_a_guest() -> None:
    of = world()
    low = small(of, "low", 31, priority=1)
    same = of.job("same", workers=4, worker=GPU, min_workers=4, equals=True, priority=1)
    of.settle()
    assert (low.stage, same.stage) == (Stage.RUNNING, Stage.PENDING)
    high = of.job("high", workers=4, worker=GPU, min_workers=4, equals=True, priority=8)
    [decision] = [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert of.verdict("Preempted").accepted
    assert [(victim.job_uid, victim.kind) for victim in decision.victims] == [(low.uid, PreemptionKind.PRIORITY)]
    of.settle()
    assert (high.stage, high.slots.hosts) == (Stage.RUNNING, ("uid-big",))
    assert low.stage != Stage.RUNNING
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    of.settle()
    assert of.state.jobs["uid-big"].stage == Stage.RUNNING and high.stage == Stage.RESCHEDULING
    validate(of.state)


def test_nobody_leaves_for_a_job_that_can_not_be_a_guest() -> None:
    of = world()
    low = small(of, "low", 31, priority=1)
    of.job("high", workers=4, worker=GPU, min_workers=4, equals=True, priority=8, preemptible=False)
    of.settle()
    assert low.stage == Stage.RUNNING


def test_a_journal_that_grew_too_long_is_dropped_and_changes_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each job behind one that needs many nodes the rows of all of them were written down, twice: gigabytes in a
    cycle over 10,000 jobs on 5,000 nodes."""
    views, made = list[view.ClusterView](), view.ClusterView.__init__

    def kept(self: view.ClusterView, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        views.append(self)

    monkeypatch.setattr(view.ClusterView, "__init__", kept)

    def decided(most: int) -> tuple[tuple[k.Event, ...], int]:
        monkeypatch.setattr(view, "_JOURNAL", most)
        of = world()
        for number in range(40):
            pod = shape(cpu=1 + number // 2, gpus=1 + number % 4)
            of.job(f"small{number}", workers=1, worker=pod, min_workers=1, equals=True)
        views.clear()
        return tuple(take_cycle(of.state, of.config, of.now_ms)), max(len(one.journal) for one in views)

    (whole, written), (dropped, left) = decided(1 << 30), decided(20)
    assert any(isinstance(event, k.Placed) and event.hosts for event in whole)
    assert whole == dropped
    assert written > 100 and left <= 20


def six_nodes() -> World:
    """A queue deserves two of six nodes; two others deserve none."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(6):
        of.node(f"n{number}", cpu=64, gpus=8)
    of.queue("deserves", deserved=(("nvidia.com/gpu", 16),))
    for name in ("borrows", "third"):
        of.queue(name)
    return of


def borrowing(**more: object) -> tuple[World, JobRecord]:
    """A gang of all nodes has a reservation, above the share of its queue, and waits
    for a job of which nobody knows when it ends."""
    of = six_nodes()
    of.job("runs", of_queue="third", workers=1, worker=NODE, min_workers=1, equals=True)
    of.settle()
    big = of.job("big", of_queue="borrows", workers=6, worker=NODE, min_workers=6, equals=True)
    of.settle()
    assert "uid-big" in of.state.reservations
    return of, big


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_job_within_the_share_of_its_queue_is_no_guest_of_one_beyond_its_own(preemptible: bool) -> None:
    """36 of 48 GPUs were idle, and the guest of a team that used 4 of the 16 that it deserves lost its nodes."""
    of, big = borrowing()
    within = small(of, "within", 8, of_queue="deserves", created=9, preemptible=preemptible)
    assert (within.stage, within.slots.hosts) == (Stage.RUNNING, ())
    of.job("runs", of_queue="third", workers=1, worker=NODE, min_workers=1, equals=True, terminating=True)
    of.settle()
    assert within.stage == Stage.RUNNING and big.stage == Stage.PENDING


def test_a_job_beyond_the_share_of_its_queue_is_a_guest_as_before() -> None:
    of, _ = borrowing()
    beyond = small(of, "beyond", 32, of_queue="deserves", created=9)
    assert beyond.slots.hosts == ("uid-big",)


def test_workers_within_the_share_of_their_queue_are_not_lent_room_that_is_reserved_beyond_another() -> None:
    of, _ = borrowing()
    grows = of.job("grows", of_queue="deserves", created=9, workers=16, worker=GPU, min_workers=1, equals=True)
    of.settle()
    assert len(grows.placements) == 16 and not grows.slots.lent and not grows.slots.hosts


def all_awaited(*steady: int) -> World:
    """A gang of all nodes has a reservation, above the share of its queue, and waits for the ends of six jobs, of which
    the `steady` ones aren't preemptible."""
    of = six_nodes()
    for number in range(6):
        of.job(
            f"r{number}", of_queue="third", workers=1, worker=NODE, min_workers=1, equals=True, deadline_s=5000,
            preemptible=number not in steady,
        )  # fmt: skip
    of.settle()
    of.job("big", of_queue="borrows", workers=6, worker=NODE, min_workers=6, equals=True)
    of.settle()
    assert of.state.reservations["uid-big"].decided.start_ms
    return of


def test_a_job_within_its_share_reclaims_from_whom_one_beyond_its_own_waits_for() -> None:
    """Who is awaited gives no room to jobs behind, which kept a team from what it deserves until that job ended."""
    of = all_awaited()
    within = small(of, "within", 8, of_queue="deserves", created=9)
    assert within.stage == Stage.RUNNING


def test_who_comes_first_by_shares_isnt_told_that_a_reservation_keeps_whom_it_may_take_room_from() -> None:
    of = all_awaited(1, 2, 3, 4, 5)
    own = of.job("own", of_queue="deserves", workers=2, worker=NODE, min_workers=2, equals=True, created=9)
    of.settle()
    why = why_no_room(of.state, own, of.config, of.now_ms, lacks=None, infeasible=False)
    assert [(one.kind, one.jobs) for one in why] == [
        (NoRoomKind.TOO_LITTLE, ("uid-r0",)),
        (NoRoomKind.NOT_PREEMPTIBLE, ("uid-r1", "uid-r2", "uid-r3", "uid-r4", "uid-r5")),
    ]


def test_nobody_takes_room_from_jobs_that_are_no_guests_to_become_one() -> None:
    """Its host started in the room that these gave, and the guest lost its nodes 0.3 s after it had taken them."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(3):
        of.node(f"n{number}", cpu=64, gpus=4)
    for name in ("qa", "qc"):
        of.queue(name, deserved=(("nvidia.com/gpu", 6),))
    for name, of_queue, workers, priority in (("a1", "qa", 5, 5), ("l1", "qc", 3, 3), ("l2", "qc", 3, 3)):
        small(of, name, workers, of_queue=of_queue, priority=priority)
        of.pass_time(10)
    above = small(of, "above", 3, of_queue="qa", priority=5)
    assert above.uid in of.state.reservations
    high = small(of, "high", 7, of_queue="qc", priority=7)
    assert not high.placements and {of.state.jobs[f"uid-{name}"].attempt for name in ("l1", "l2")} == {0}


def leaving_beside_a_borrower() -> tuple[World, JobRecord]:
    """A gang of all nodes has a reservation, above the share of its queue. Five jobs run, and the pod of a sixth one is
    being deleted."""
    of = six_nodes()
    for number in range(6):
        of.job(f"r{number}", of_queue="third", workers=1, worker=NODE, min_workers=1, equals=True)
    of.settle()
    of.job("big", of_queue="borrows", workers=6, worker=NODE, min_workers=6, equals=True)
    of.settle()
    assert "uid-big" in of.state.reservations
    leaves = of.job("r5", of_queue="third", workers=1, worker=NODE, min_workers=1, equals=True, terminating=True)
    [pod] = of.pods_of(leaves).values()
    of.change_pod(pod.uid, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + 20_000))
    return of, leaves


def test_who_comes_first_by_shares_waits_for_room_that_pods_leave_in_a_borrowers_reservation() -> None:
    """It took a whole job's room, though the room that it would have got seconds later was enough."""
    of, leaves = leaving_beside_a_borrower()
    within = of.job("within", of_queue="deserves", workers=8, worker=GPU, min_workers=8, equals=True, created=9)
    assert not [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert [one.kind for one in why_not(of, within)] == [NoRoomKind.COMES]
    pods = list(of.pods_of(leaves).values())
    of.job_gone(leaves)
    for pod in pods:
        of.pod_gone(pod.uid)
    of.settle()
    assert within.stage == Stage.RUNNING and {of.state.jobs[f"uid-r{number}"].attempt for number in range(5)} == {0}


def test_room_that_pods_leave_does_not_come_for_whom_a_reservation_keeps_out() -> None:
    of, _ = leaving_beside_a_borrower()
    behind = of.job(
        "behind", of_queue="borrows", workers=8, worker=GPU, min_workers=8, equals=True, created=9, preemptible=False
    )
    of.cycle()
    assert not behind.placements and NoRoomKind.COMES not in [one.kind for one in why_not(of, behind)]


def why_not(of: World, job: JobRecord) -> tuple[NoRoom, ...]:
    return why_no_room(of.state, job, of.config, of.now_ms, lacks=None, infeasible=False)


def staying_guest(
    *, a: int = 16, b: int = 16, small_gpus: int = 0, limit: bool = False
) -> tuple[World, JobRecord, JobRecord]:
    """Four nodes, two queues that deserve so many GPUs, and a gang of three nodes with a reservation: it would lift
    queue b above its share. Its guest lifted queue a above its own as well, and doesn't any more. A smaller node has so
    many GPUs, too few for the gang. With a `limit`, there are more nodes, and the queues together may use four of them,
    which is kept for the gang."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(8 if limit else 4):
        of.node(f"n{number}", cpu=64, gpus=8)
    of.node("small", cpu=64, gpus=small_gpus)
    of.queue("both", capability=(("nvidia.com/gpu", 32),) if limit else ())
    for queue, gpus in (("a", a), ("b", b)):
        of.queue(queue, parent="both" if limit else "", deserved=(("nvidia.com/gpu", gpus),))

    def submit(name: str, queue: str, workers: int = 1, **spec: Any) -> JobRecord:
        return of.job(name, workers=workers, worker=NODE, min_workers=workers, equals=True, of_queue=queue, **spec)

    a1, _, b1 = (
        submit("a1", "a", preemptible=False),
        submit("a2", "a", preemptible=False),
        submit("b1", "b", preemptible=False),
    )
    of.settle()
    gang = submit("gang", "b", 3)
    of.settle()
    guest = submit("guest", "a")
    of.settle()
    assert guest.slots.hosts == (gang.uid,) and guest.stage == Stage.RUNNING
    for job in (a1, b1):
        of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
        of.settle()
    return of, gang, guest


def test_a_guest_that_keeps_its_queue_within_its_share_by_now_stays() -> None:
    """When it became one, its queue used more than its share. Now the host would lift its own above: the guest could
    take the room back at once."""
    of, gang, guest = staying_guest()
    assert guest.stage == Stage.RUNNING and guest.attempt == 0 and gang.stage == Stage.PENDING
    validate(of.state)


@pytest.mark.parametrize("limit", [False, True], ids=["room", "a limit"])
def test_nobody_becomes_a_guest_once_another_lets_the_host_start_because_guests_need_not_stay(limit: bool) -> None:
    """The first new guest lifts its queue above its share, so all of its guests leave for the gang in the next cycle.
    A second one got nodes in the same cycle, and was asked to leave at once."""
    of, gang, guest = staying_guest(limit=limit)
    new = [
        of.job(name, workers=1, worker=GPU, min_workers=1, equals=True, of_queue="a", created=of.now_ms // 1000)
        for name in ("new1", "new2")
    ]
    of.cycle()
    assert new[0].placements and new[0].slots.hosts == (gang.uid,) and not new[1].placements
    [preempted] = [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert preempted.placed.job_uid == gang.uid
    assert {victim.job_uid for victim in preempted.victims} == {guest.uid, new[0].uid}


def test_nobody_becomes_a_guest_once_workers_let_the_host_start_because_guests_need_not_stay() -> None:
    """A job keeps the queue of the guest within its share with its quorum, and lifts it above with its other workers.
    Once it had been asked who stays after the quorum, they went unnoticed, and a job of a third queue became a guest in
    the same cycle."""
    of, gang, guest = staying_guest(a=18, b=19, small_gpus=6)
    of.queue("c", deserved=(("nvidia.com/gpu", 1),))
    small(of, "c1", 2, of_queue="c", preemptible=False)
    grows = of.job("grows", workers=4, worker=GPU, min_workers=1, equals=True, of_queue="a")
    of.job("wide", workers=4, worker=NODE, min_workers=4, equals=True, of_queue="a", created=9)
    other = of.job("c2", workers=1, worker=NODE, min_workers=1, equals=True, of_queue="c")
    of.cycle()
    assert {*grows.placements.values()} == {"small"} and len(grows.placements) == 4 and not other.placements
    [preempted] = [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert (preempted.placed.job_uid, [victim.job_uid for victim in preempted.victims]) == (gang.uid, [guest.uid])


def test_what_a_guest_gets_in_a_cycle_counts_as_leaving_with_it() -> None:
    """Else the host seems to lack what its guest has just got, and another job becomes its guest for a moment."""
    of = world(dry_run=True)
    running(of, "more", 1, priority=10, preemptible=False)
    guest = of.job("guest", workers=31, worker=GPU, min_workers=1, equals=True, priority=8)
    of.settle()
    later = small(of, "later", priority=1)
    assert guest.slots.hosts == ("uid-big",) and len(guest.placements) == 30 and not later.placements
    guest = of.job("guest", workers=31, worker=GPU, min_workers=1, equals=True, priority=10)  # now it is in front
    for name in ("runs", "more"):
        job = of.state.jobs[f"uid-{name}"]
        of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.apply()
    of.cycle()
    assert len(guest.placements) == 31 and not later.placements


@pytest.mark.parametrize("both", [False, True], ids=["one reservation", "two"])
def test_nobody_starts_first_where_a_job_with_a_reservation_can_by_news_of_room(both: bool) -> None:
    """The turn of the other comes before, and the reservation is for another node."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(3):
        of.node(f"n{number}", cpu=64, gpus=8)
    of.queue("q", queue_policy="DRF")

    def submit(name: str, priority: int, gpus: int = 8, user: str = "") -> JobRecord:
        worker = shape(cpu=1, gpus=gpus)
        return of.job(
            name, workers=1, worker=worker, min_workers=1, equals=True, of_queue="q", priority=priority, user=user
        )

    runs = [submit(f"x{number}", 9, user="one") for number in range(3)]
    of.settle()
    names = [("high", 8, 8, "one"), ("low", 1, 4, "two")]
    for name in names:
        submit(*name)
        if not both:
            of.settle()
    of.settle()
    high, low = of.state.jobs["uid-high"], of.state.jobs["uid-low"]
    assert high.uid in of.state.reservations and not low.placements
    [reserved] = of.state.reservations[high.uid].decided.pods
    ended = next(job for job in runs if reserved.node not in job.placements.values())
    of.say(k.StageDecided(ended.uid, ended.version, ended.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.apply()
    of.cycle()
    assert high.placements and not low.placements


def test_a_job_that_runs_and_lost_its_nodes_asks_no_guest_and_doesnt_count_on_that() -> None:
    """Only a job that waits doesn't start before the others have left. It can't be told when this one gets nodes."""
    of = world()
    guest, big = small(of, "guest", 8), of.state.jobs["uid-big"]
    assert guest.slots.hosts == (big.uid,)
    big.stage = Stage.RUNNING
    of.job("runs", workers=1, worker=GPU, min_workers=1, equals=True, terminating=True)
    of.settle()
    of.pass_time(31)
    of.cycle()
    assert of.state.jobs["uid-runs"].ended and guest.placements and not big.placements
    decided = of.state.reservations[big.uid].decided
    assert (decided.start_ms, decided.awaits) == (0, (guest.uid,))


def of_nodes(count: int, gpus: int = 4) -> World:
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(count):
        of.node(f"n{number}", cpu=64, gpus=gpus)
    return of


def job_of(of: World, name: str, priority: int, workers: int = 1, gpus: int = 1, **spec: object) -> JobRecord:
    worker = shape(cpu=1, gpus=gpus)
    job = of.job(name, workers=workers, worker=worker, min_workers=workers, equals=True, priority=priority, **spec)  # type: ignore[arg-type]
    of.settle()
    return job


def preemptions(of: World) -> list[k.Preempted]:
    return [event for entry in of.entries for event in entry.batch.events if isinstance(event, k.Preempted)]


def test_guests_and_others_give_room_together() -> None:
    """A gang that needs all nodes can start once its guest of the same priority and a job of a lower one have left."""
    of = of_nodes(3)
    job_of(of, "runs", 9)
    low = job_of(of, "low", 3)
    of.pass_time(300)
    big = job_of(of, "big", 7, 3, 4)
    guest = job_of(of, "guest", 7)
    assert guest.slots.hosts == (big.uid,) and low.placements and not big.placements
    of.pass_time(300)
    job_of(of, "runs", 9, terminating=True)
    kinds = {victim.job_uid: victim.kind for victim in preemptions(of)[-1].victims}
    assert kinds == {guest.uid: PreemptionKind.GUEST, low.uid: PreemptionKind.PRIORITY}
    assert len(big.placements) == 3 and big.stage == Stage.RUNNING
    validate(of.state)


def test_who_takes_room_that_is_to_be_left_to_a_gang_before_it_is_its_guest() -> None:
    """Nobody knows when the gang starts, so room of a lower priority is taken behind it, and given back."""
    of = of_nodes(3)
    job_of(of, "runs", 9)
    low = [job_of(of, "one", 3), job_of(of, "two", 3), job_of(of, "three", 3), job_of(of, "four", 3, 2, 4)]
    assert all(job.placements for job in low)
    of.pass_time(300)
    big = job_of(of, "big", 7, 3, 4)
    assert of.state.reservations[big.uid].decided.start_ms == 0
    stays = job_of(of, "stays", 7, preemptible=False)
    behind = [job_of(of, "small", 7), job_of(of, "large", 7, 2, 4)]
    assert not stays.placements, "it can't be a guest, and is like the small one in all else"
    assert all(job.placements and job.slots.hosts == (big.uid,) for job in behind)
    of.pass_time(300)
    job_of(of, "runs", 9, terminating=True)
    assert len(big.placements) == 3 and big.stage == Stage.RUNNING
    assert not any(job.placements for job in behind)
    validate(of.state)


def test_who_cant_be_a_guest_takes_no_room_that_is_to_be_left_to_a_gang_before_it() -> None:
    of = of_nodes(4)
    holds, low = job_of(of, "holds", 8, 4, 3), job_of(of, "low", 5)
    of.pass_time(300)
    big = job_of(of, "big", 7, 4, 4)
    assert set(of.state.reservations[big.uid].decided.awaits) == {holds.uid, low.uid}
    stays = job_of(of, "stays", 6, preemptible=False)
    assert not stays.placements and low.placements and not preemptions(of)
    waiting = explained(of.entries, "stays").waiting
    assert waiting is not None
    assert [one.kind for one in waiting.takes_none] == [NoRoomKind.RESERVED], "three GPUs are free"


def test_a_reservation_waits_for_those_alone_whose_room_is_needed() -> None:
    """Jobs that use no GPU on its node, or less than is left over, aren't in its way."""
    of = of_nodes(1)
    for number in range(2):
        of.job(f"cpu{number}", workers=1, worker=shape(cpu=1), min_workers=1, equals=True, priority=9)
    first, second = job_of(of, "first", 9, gpus=1), job_of(of, "second", 9, gpus=3)
    of.settle()
    assert first.placements and second.placements
    small = job_of(of, "small", 7, gpus=3)
    awaited = of.state.reservations[small.uid].decided.awaits
    assert awaited == (second.uid,), "what the first one uses is left over"


def promised(deadline_s: int = 100) -> World:
    """As `world`, but the job that runs has a deadline, so the start is known."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "runs", 1, priority=9, preemptible=False, deadline_s=deadline_s)
    of.job("big", workers=4, worker=NODE, min_workers=4, equals=True, priority=9)
    of.settle()
    assert of.state.reservations["uid-big"].decided.start_ms
    return of


def test_who_cannot_leave_before_a_promised_start_is_no_guest() -> None:
    """A guest of a second would have held the whole gang up for its grace period, with all other GPUs idle."""
    of = promised()
    quick, slow = small(of, "quick"), small(of, "slow", grace_s=600)
    assert quick.slots.hosts == ("uid-big",) and slow.stage == Stage.PENDING
    why = "can't be a guest in reserved room, because that is needed before its grace period would be over"
    assert why in desired_status(of.state, slow)["message"]
    waiting = explained(of.entries, "slow").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.leaves_late
    of.pass_time(65)
    late, usual = small(of, "late", grace_s=45), small(of, "usual", grace_s=30)
    assert late.stage == Stage.PENDING and usual.slots.hosts == ("uid-big",)
    of.pass_time(40)
    of.settle()
    assert of.state.jobs["uid-big"].stage == Stage.RUNNING


def test_who_leaves_slowly_is_a_guest_until_an_unknown_start() -> None:
    assert small(world(), "slow", grace_s=600).slots.hosts == ("uid-big",)


@pytest.mark.parametrize(("grace_s", "lent"), [(600, False), (30, True)])
def test_no_further_worker_is_lent_room_that_it_could_not_leave_in_time(grace_s: int, lent: bool) -> None:
    of = promised()
    of.node("n4", cpu=64, gpus=1)
    elastic = of.job("elastic", workers=4, worker=GPU, min_workers=1, equals=True, grace_s=grace_s)
    of.settle()
    assert elastic.stage == Stage.RUNNING and elastic.slots.hosts == () and bool(elastic.slots.lent) == lent


def test_nobody_takes_a_guests_room_in_the_way_of_a_host_for_which_it_could_not_leave_in_time() -> None:
    """The guest is one of two hosts, and only the start of the other is unknown."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=2, reservation_refresh_ms=30_000, guests=True))
    of.node("n0", cpu=64, gpus=16)
    running(of, "one", 8, priority=9, preemptible=False, deadline_s=200)
    running(of, "two", 4, priority=9, preemptible=False)
    for name, pods in (("first", 10), ("second", 6)):
        of.job(name, workers=pods, worker=GPU, min_workers=pods, equals=True, priority=9)
    of.settle()
    starts = [of.state.reservations[f"uid-{name}"].decided.start_ms for name in ("first", "second")]
    assert starts[0] and not starts[1]
    guest = small(of, "guest", 4, priority=3)
    assert guest.slots.hosts == ("uid-first", "uid-second")
    of.pass_time(170)
    above = small(of, "above", 4, priority=5, grace_s=60)
    assert not above.placements and guest.stage == Stage.RUNNING
    assert small(of, "at-once", 4, priority=5, grace_s=0).slots.hosts == ("uid-first", "uid-second")


def test_what_a_job_is_told_of_reserved_room_is_not_known_of_an_equal_job_of_another_queue() -> None:
    """Both fail for the same reason, but who keeps room from them is asked for each: their queues may differ in that.
    It is no limit that is kept from them either, beside which nothing else would be tried."""
    of = two_reservations()
    asked = shape(cpu=1, gpus=2)
    jobs = [
        of.job(name, workers=1, worker=asked, min_workers=1, equals=True, of_queue=name, preemptible=False)
        for name in ("one", "other")
    ]
    placer = Placer(of.state, of.config, BUILT_IN, time_ms=of.now_ms)
    room = Room.of(of.state, placer, waiting_jobs(of.state, of.now_ms, by_qos=False))
    for host in ("uid-big-a", "uid-big-b"):
        _try_quorum(placer, of.state.jobs[host], room)
    room.reservations.begin(jobs[0])
    first = placer.quorum(jobs[0])
    assert first.shortage is not None and room.backfill.quorum(first) is None
    assert first.shortage.kept_by == ("uid-big-a", "uid-big-b") and first.shortage.no_guest
    assert not first.shortage.of_kept_limit
    for job in jobs:
        second = placer.quorum(job)
        assert second.shortage is not None and second.shortage.reasons == first.shortage.reasons
        assert second.shortage.kept_by == () and not second.shortage.no_guest
