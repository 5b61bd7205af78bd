"""Who held the room that a job waited for is told moment by moment: parts of a wait sum to the whole, whoever came and
went, and whoever of them doesn't count for the job."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.state import State
from arranger.replay.ledger.causes import Cause
from arranger.replay.ledger.waits import WaitLedger
from arranger.replay.reading.history import Point, Span
from tests.unit.replay_worlds import gpu_job, histories, with_room_rules
from tests.unit.test_guests import small
from tests.unit.test_preemption import CONFIG, GPU, running
from tests.world import World, shape

#: Pods for the two kinds of nodes.
OF_A, OF_B = ({"kind": "a"}, {"kind": "b"})


def fed(entries: list[Entry], begin_ms: int = 0, end_ms: int = 0) -> WaitLedger:
    """The account of a log, or of the window from one time to another."""
    span = Span(Point(time_ms=begin_ms), Point(time_ms=end_ms)) if end_ms else Span()
    ledger = WaitLedger(State(), span, CycleConfig())
    for entry in entries:
        if not span.last.before(entry):
            ledger.feed(entry)
    ledger.finish(end_ms)
    return ledger


def waited(ledger: WaitLedger, job: str = "") -> dict[tuple[str, str, str], int]:
    """(Job, cause, holder) → for how many milliseconds; of one job, or of all."""
    return {
        (of.waiter.job, of.cause.value, of.holder.job if of.holder is not None else ""): of.wait_ms
        for of in ledger.lines
        if job in ("", of.waiter.job)
    }


def held(of: World, job: str) -> dict[str, int]:
    """Holder → for how many milliseconds a job waited for its room; "" for nobody's."""
    return {holder: wait_ms for (_, _, holder), wait_ms in waited(fed(of.entries), job).items()}


def in_windows(of: World, job: str, *bounds_ms: int) -> dict[tuple[str, str, str], int]:
    """As `waited`, for the windows between these times together."""
    found: dict[tuple[str, str, str], int] = {}
    for begin_ms, end_ms in pairwise(bounds_ms):
        for key, wait_ms in waited(fed(of.entries, begin_ms, end_ms), job).items():
            found[key] = found.get(key, 0) + wait_ms
    return found


def ends(of: World, name: str) -> None:
    job = of.state.jobs[f"uid-{name}"]
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.settle()


def hosting() -> World:
    """Four nodes of 8 GPUs. `tmp` and `block` use one GPU each, and `big` needs all nodes and has them reserved."""
    of = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(4):
        of.node(f"n{number}", cpu=64, gpus=8)
    running(of, "tmp", 1, priority=9, preemptible=False)
    running(of, "block", 1, priority=9, preemptible=False)
    of.pass_time(1)
    whole = shape(cpu=1, gpus=8)
    of.job("big", workers=4, worker=whole, min_workers=4, equals=True, priority=9, created=of.now_ms)
    of.settle()
    assert "uid-big" in of.state.reservations
    return of


@pytest.mark.parametrize("guests", [0, 1, 24])
def test_who_has_ended_is_not_charged_for_the_time_of_a_guest(guests: int) -> None:
    of = hosting()
    began_ms = of.now_ms
    of.pass_time(6)
    ends(of, "tmp")
    if guests:
        assert small(of, "guest", guests).slots.hosts == ("uid-big",)
    of.pass_time(43)
    of.node("n9", cpu=1)
    assert held(of, "default/big") == {"default/tmp": 3_000, "default/block": 46_000}
    whole = waited(fed(of.entries), "default/big")
    for cut_ms in (2_000, 6_000, 7_000, 30_000):
        parts = in_windows(of, "default/big", began_ms, began_ms + cut_ms, of.now_ms)
        assert parts == pytest.approx(whole, abs=2)


def test_a_guest_that_leaves_and_one_that_comes_change_nothing() -> None:
    of = hosting()
    began_ms = of.now_ms
    small(of, "guest", 20)
    of.pass_time(10)
    ends(of, "guest")
    of.pass_time(4)
    ends(of, "tmp")
    of.pass_time(10)
    small(of, "other", 24)
    of.pass_time(20)
    of.node("n9", cpu=1)
    assert held(of, "default/big") == {"default/tmp": 7_000, "default/block": 37_000}
    whole, bounds_ms = waited(fed(of.entries), "default/big"), (0, 5_000, 12_000, 20_000, 25_000, 44_000)
    parts = in_windows(of, "default/big", *(began_ms + at_ms for at_ms in bounds_ms))
    assert parts == pytest.approx(whole, abs=6)


def test_a_guest_counts_for_all_but_its_host() -> None:
    of = hosting()
    small(of, "guest", 30)
    of.pass_time(10)
    of.job("late", workers=4, worker=GPU, min_workers=4, equals=True, priority=1)
    of.settle()
    of.pass_time(32)
    of.node("n9", cpu=1)
    assert held(of, "default/late") == {"default/tmp": 1_000, "default/block": 1_000, "default/guest": 30_000}
    assert held(of, "default/big") == {"default/tmp": 21_000, "default/block": 21_000}


def two_kinds() -> World:
    """A node of 4 GPUs of a kind that `large` needs as a whole, half of it used by `first` and half by `stays`; and one
    of another kind."""
    of = with_room_rules(preemption=None, reservations=0)
    of.node("n1", cpu=16, gpus=4, labels=OF_A)
    of.node("b1", cpu=64, gpus=32, labels=OF_B)
    for name in ("first", "stays"):
        selecting(of, name, 2, OF_A)
        of.settle()
    of.pass_time(1)
    selecting(of, "large", 4, OF_A)
    of.cycle()
    return of


def selecting(of: World, name: str, gpus: int, kind: dict[str, str]) -> None:
    own = shape(cpu=1, gpus=gpus, selector=kind)
    of.job(name, workers=1, worker=own, min_workers=1, equals=True, created=of.now_ms)


def test_who_comes_and_goes_on_other_nodes_changes_nothing() -> None:
    of = two_kinds()
    began_ms = of.now_ms
    of.pass_time(6)
    ends(of, "first")
    selecting(of, "other", 30, OF_B)
    of.settle()
    of.pass_time(20)
    ends(of, "other")
    of.pass_time(4)
    of.node("n9", cpu=1)
    assert held(of, "default/large") == {"default/first": 3_000, "default/stays": 27_000}
    whole = waited(fed(of.entries), "default/large")
    for cut_ms in (3_000, 6_000, 7_000, 27_000):
        parts = in_windows(of, "default/large", began_ms, began_ms + cut_ms, of.now_ms)
        assert parts == pytest.approx(whole, abs=2)


def test_time_in_which_only_nodes_of_another_kind_are_held_is_nobodys() -> None:
    """It waits until a cycle sees that its room is free; before, those were charged that had left."""
    of = two_kinds()
    selecting(of, "other", 30, OF_B)
    of.settle()
    began_ms = of.now_ms
    of.pass_time(6)
    for name in ("first", "stays"):
        job = of.state.jobs[f"uid-{name}"]
        of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.apply()
    of.pass_time(10)
    of.node("n9", cpu=1)
    assert held(of, "default/large") == {"default/first": 3_000, "default/stays": 3_000, "": 10_000}
    parts = in_windows(of, "default/large", began_ms, began_ms + 6_000, began_ms + 11_000, of.now_ms)
    assert parts == pytest.approx(waited(fed(of.entries), "default/large"), abs=3)


def test_nodes_that_are_closed_meanwhile_count_up_to_then() -> None:
    """`far` holds room on a node that is open to the job for a part of its time, and longer than the other one."""
    of = with_room_rules(preemption=None, reservations=0)
    gpu_job(of, "near", 4)
    of.settle()
    of.node("n2", cpu=16, gpus=4)
    gpu_job(of, "far", 4)
    of.settle()
    of.pass_time(1)
    gpu_job(of, "late", 4)
    of.cycle()
    began_ms = of.now_ms
    of.pass_time(10)
    of.node("n2", cpu=16, gpus=4, cordoned=True)
    of.pass_time(20)
    of.node("n9", cpu=1)
    assert held(of, "default/late") == {"default/near": 25_000, "default/far": 5_000}
    parts = in_windows(of, "default/late", began_ms, began_ms + 10_000, began_ms + 17_000, of.now_ms)
    assert parts == pytest.approx(waited(fed(of.entries), "default/late"), abs=3)


def beside_closed() -> World:
    """`late` waits for 4 GPUs: `near` has those of the open node, and `there` those of a closed one."""
    of = with_room_rules(preemption=None, reservations=0)
    gpu_job(of, "near", 4)
    of.settle()
    of.node("n2", cpu=16, gpus=4)
    gpu_job(of, "there", 4)
    of.settle()
    of.node("n2", cpu=16, gpus=4, cordoned=True)
    of.pass_time(1)
    gpu_job(of, "late", 4)
    of.cycle()
    return of


def leaves(of: World, name: str) -> None:
    """A job ends, and no cycle is taken."""
    job = of.state.jobs[f"uid-{name}"]
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    of.apply()


def told(of: World, job: str) -> dict[tuple[str, str], int]:
    """(Cause, holder) → milliseconds for which a job waited, which are those of windows too."""
    of.node("n9", cpu=1)
    began_ms, whole = of.state.jobs[f"uid-{job}"].times.stage_ms, waited(fed(of.entries), f"default/{job}")
    steps_ms = [began_ms + part * (of.now_ms - began_ms) // 5 for part in range(6)]
    assert in_windows(of, f"default/{job}", *steps_ms) == pytest.approx(whole, abs=6)
    return {(cause, holder): wait_ms for (_, cause, holder), wait_ms in whole.items()}


def test_a_closed_node_is_a_cause_from_when_it_has_room() -> None:
    of = beside_closed()
    of.pass_time(6)
    leaves(of, "there")
    of.pass_time(10)
    of.pod("other", "n2", gpus=4)
    of.pass_time(4)
    others = ("Room", "")  # who has pods of others isn't asked for by node
    assert told(of, "late") == {("Room", "default/near"): 13_000, others: 2_000, ("ClosedNodes", ""): 5_000}


def test_a_closed_node_with_room_is_a_cause_until_it_opens() -> None:
    of = beside_closed()
    leaves(of, "there")
    of.pass_time(10)
    of.node("n2", cpu=16, gpus=4)
    of.pass_time(4)
    assert told(of, "late") == {("Room", "default/near"): 9_000, ("ClosedNodes", ""): 5_000}


def test_who_has_left_an_open_node_beside_a_closed_one_is_nobody_up_to_the_next_cycle() -> None:
    """Its part of the wait isn't the closed node's, whenever a window begins."""
    of = beside_closed()
    leaves(of, "there")
    of.pass_time(10)
    leaves(of, "near")
    of.pass_time(4)
    assert told(of, "late") == {("Room", "default/near"): 5_000, ("Scheduler", ""): 2_000, ("ClosedNodes", ""): 7_000}


def test_while_no_node_is_closed_nothing_is_looked_at_for_each_event() -> None:
    of = beside_closed()
    of.node("n2", cpu=16, gpus=4)
    of.cycle()
    ledger, watched = WaitLedger(State(), Span(), CycleConfig()), []
    for entry in of.entries:
        ledger.feed(entry)
        watched.append(len(ledger._rooms._watched))
    assert ledger._open and max(watched) == 1 and watched[-1] == 0


def test_who_held_room_before_and_again_later_is_charged_for_each_time() -> None:
    of = with_room_rules(preemption=None, reservations=0)
    of.node("n2", cpu=16, gpus=2)
    comes = gpu_job(of, "comes", 2, priority=9)
    gpu_job(of, "stays", 2)
    of.settle()
    of.pass_time(1)
    gpu_job(of, "large", 6)
    of.cycle()
    of.pass_time(10)
    again = of.state.jobs[comes.uid]
    gpu_job(of, "comes", 2, suspend=True, priority=9, generation=2)
    of.settle()
    of.pass_time(8)
    gpu_job(of, "comes", 2, priority=9, generation=3)
    of.settle()
    of.pass_time(10)
    of.node("n9", cpu=1)
    assert again.placements
    found = waited(fed(of.entries), "default/large")
    assert found["default/large", "Room", "default/comes"] == 5_000
    assert found["default/large", "Order", "default/comes"] == 5_000


@st.composite
def guests(draw: st.DrawFn) -> list[Entry]:
    """Jobs run in the room that is reserved for `big` and beside it, and nodes are closed and opened."""
    of = hosting()
    for step in range(draw(st.integers(2, 8))):
        action = draw(st.sampled_from(["job", "job", "end", "node"]))
        running = [uid.removeprefix("uid-") for uid, job in of.state.jobs.items() if job.placements]
        if action == "job":
            small(of, f"j{step}", draw(st.integers(1, 20)), priority=draw(st.integers(1, 20)))
        elif action == "end" and running:
            ends(of, draw(st.sampled_from(running)))
        else:
            of.node(f"n{draw(st.integers(0, 3))}", cpu=64, gpus=8, cordoned=draw(st.booleans()))
            of.settle()
        of.pass_time(draw(st.integers(1, 40)))
    of.node("n9", cpu=1)
    return of.entries


@given(st.one_of(histories(), guests()), st.lists(st.integers(0, 100), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_windows_sum_to_the_whole_for_each_holder(entries: list[Entry], cuts: list[int]) -> None:
    times = [entry.batch.time_ms for entry in entries]
    first_ms, last_ms = min(times), max(times)
    bounds_ms = sorted({first_ms, last_ms, *(first_ms + (last_ms - first_ms) * cut // 100 for cut in cuts)})
    found: dict[tuple[str, str, str], int] = {}
    for begin_ms, end_ms in pairwise(bounds_ms):
        for key, wait_ms in waited(fed(entries, begin_ms, end_ms)).items():
            found[key] = found.get(key, 0) + wait_ms
    whole = waited(fed(entries))
    slack_ms = len(entries) + len(bounds_ms)  # a piece of time ends with an entry or a window, and each is rounded
    for key in found.keys() | whole.keys():
        if key[1] != Cause.SCHEDULER:  # a window doesn't know of jobs that are seen only after it
            assert abs(found.get(key, 0) - whole.get(key, 0)) <= slack_ms


def test_accounts_are_kept_only_as_long_as_somebody_waits() -> None:
    of = hosting()
    small(of, "guest", 20)
    of.pass_time(1)
    of.job_gone(of.state.jobs["uid-big"])
    of.node("n9", cpu=1)
    ledger, kept = WaitLedger(State(), Span(), CycleConfig()), []
    for entry in of.entries:
        ledger.feed(entry)
        kept.append(len(ledger._holdings._accounts))
    assert 0 < max(kept) <= 3 and kept[-1] == 0
