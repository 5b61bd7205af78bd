"""Who held what a waiting job lacked: also jobs whose pods are still to leave, and nobody who holds other resources."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections.cluster.nodes import PODS
from arranger.projections.jobs.records import JobRecord, holds, requests_of
from arranger.projections.state import State
from arranger.replay.explain.full_nodes import open_names
from arranger.replay.ledger.holdings import GPUS, OTHERS, Counting
from arranger.replay.ledger.waits import WaitLedger
from arranger.replay.reading.history import Span
from tests.unit.replay_worlds import GPU, explained, gpu_job, histories, with_room_rules
from tests.unit.test_who_held_room import fed, waited
from tests.world import World, shape


def full() -> tuple[World, JobRecord]:
    """`holder` has the four GPUs of the only node."""
    of = with_room_rules(preemption=None, reservations=0)
    holder = gpu_job(of, "holder", 4)
    of.settle()
    of.pass_time(10)
    return of, holder


def goes_on_leaving(of: World, job: JobRecord) -> None:
    """The pods of a job are deleted, and finalizers keep them."""
    for uid in list(of.state.pods_of.get(job.uid, ())):
        of.change_pod(uid, deleting=True)


def suspended(of: World, job: JobRecord) -> None:
    gpu_job(of, job.seen.name, 4, suspend=True, generation=2)
    of.control()
    assert not of.state.jobs[job.uid].placements
    goes_on_leaving(of, job)


def failed(of: World, job: JobRecord) -> None:
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.FAILED, StageReason.LEADER_FAILED))
    goes_on_leaving(of, job)


def restarting(of: World, job: JobRecord) -> None:
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.RESCHEDULING, StageReason.LEADER_FAILED))
    goes_on_leaving(of, job)


def deleted(of: World, job: JobRecord) -> None:
    goes_on_leaving(of, job)
    of.job_gone(job)


def held_from_now(of: World, name: str) -> dict[tuple[str, str], int]:
    """A job of a GPU comes and a cycle decides; (cause, holder) → for how many milliseconds it waits, ten seconds in
    all."""
    gpu_job(of, name, 1, priority=9)
    of.cycle()
    of.pass_time(10)
    of.node("n9", cpu=1)
    found = waited(fed(of.entries), f"default/{name}")
    return {(cause, holder): wait_ms for (_, cause, holder), wait_ms in found.items()}


@pytest.mark.parametrize("how", [suspended, failed, restarting, deleted])
@pytest.mark.parametrize("beside", [False, True])
def test_room_that_pods_still_have_is_held_by_the_job_whose_they_are(
    how: Callable[[World, JobRecord], None], *, beside: bool
) -> None:
    of, holder = full()
    if beside:  # it holds no GPU, so it is in nobody's way
        of.job("cpuonly", leader=shape(cpu=1))
        of.settle()
    how(of, holder)
    assert held_from_now(of, "next") == {("Room", "default/holder"): 10_000}


def test_explain_names_the_same_holder() -> None:
    of, holder = full()
    suspended(of, holder)
    held_from_now(of, "next")
    waiting = explained(of.entries, "next").waiting
    assert waiting is not None
    assert [(taker.job, taker.held) for taker in waiting.takers if taker.holds] == [("default/holder", {GPU: 4})]


def test_a_holder_stays_the_same_when_something_else_happens() -> None:
    of, holder = full()
    suspended(of, holder)
    gpu_job(of, "next", 1, priority=9)
    of.cycle()
    for number in range(5):
        of.pass_time(2)
        of.pod(f"foreign-{number}", "n1", cpu=1)
    assert waited(fed(of.entries), "default/next") == {("default/next", "Room", "default/holder"): 10_000}


def test_room_that_is_kept_for_pods_that_may_still_appear_is_held_by_their_job() -> None:
    of = with_room_rules(preemption=None, reservations=0)
    gpu_job(of, "holder", 4)
    of.cycle()
    of.control()  # pods are being created
    gpu_job(of, "holder", 4, suspend=True, generation=2)
    of.control()
    assert of.state.assumed
    gpu_job(of, "next", 1, priority=9)
    of.cycle()
    of.pass_time(5)
    of.node("n9", cpu=1)
    assert waited(fed(of.entries), "default/next") == {("default/next", "Room", "default/holder"): 5_000}


def test_who_has_the_cpu_that_a_job_of_gpus_lacks_is_asked_and_not_who_has_gpus() -> None:
    of = with_room_rules(preemption=None, reservations=0)
    of.job("trains", leader=shape(cpu=1, gpus=1))
    of.job("burns", leader=shape(cpu=15))
    of.settle()
    assert held_from_now(of, "next") == {("Room", "default/burns"): 150_000 // 16, ("Room", "default/trains"): 625}


def test_memory_is_a_resource_too() -> None:
    of = with_room_rules(preemption=None, reservations=0)
    of.node("n1", cpu=16, gpus=4, memory=8)
    of.job("trains", leader=shape(cpu=12))
    of.job("keeps", leader=shape(cpu=1, memory=8))
    of.settle()
    of.job("next", leader=shape(cpu=1, memory=1), created=of.now_ms)
    of.cycle()
    of.pass_time(10)
    of.node("n9", cpu=1)
    assert waited(fed(of.entries), "default/next") == {("default/next", "Room", "default/keeps"): 10_000}


def test_nodes_that_are_too_small_say_nothing_of_what_is_lacking() -> None:
    """Most nodes lack GPUs because they have none, and the one that has GPUs lacks cpu."""
    of = with_room_rules(preemption=None, reservations=0)
    of.node("n1", cpu=16, gpus=4, labels={"kind": "a"})
    gpu_job(of, "one", 1)
    of.job("burns", leader=shape(cpu=15, selector={"kind": "a"}))
    of.settle()
    for number in range(2, 6):
        of.node(f"n{number}", cpu=16)
    assert held_from_now(of, "next") == {("Room", "default/burns"): 150_000 // 16, ("Room", "default/one"): 625}


def by_hand(state: State, counting: Counting, names: frozenset[str] | None) -> dict[str, Counter[str]]:
    """Who holds how much of what counts, found from the state alone: its slots, its pods and those that may appear."""
    found: dict[str, Counter[str]] = {}
    for uid in {*state.jobs, *state.pods_of, *(pod.owner.job_uid for pod in state.assumed.values())}:
        job = state.jobs.get(uid)
        of = []
        if job is not None and job.spec is not None and uid != counting.apart:
            for slot, node in job.placements.items():
                if counting.apart not in (job.slots.hosts or job.slots.lent.get(slot, ())) or not counting.apart:
                    of.append((node, requests_of(job, slot)))
        filling = set(job.bound.values()) if job is not None else set()
        pods = state.pods_of.get(uid, {})
        of += [(pod.node, pod.requests) for pod in pods.values() if holds(pod) and pod.uid not in filling]
        of += [(pod.node, pod.requests) for pod in state.assumed.values() if pod.owner.job_uid == uid]
        where = {node for node, _ in of} | ({*job.placements.values()} if job is not None else set())
        if names is None or not names.isdisjoint(where):
            found[uid] = sum((Counter({**dict(requests), PODS: 1}) for _, requests in of), Counter[str]())
    return found


@st.composite
def comings_and_goings(draw: st.DrawFn) -> list[Entry]:
    """Jobs with GPUs and without come, are suspended, fail, start again and are deleted; their pods leave at once, late
    or never."""
    of = with_room_rules(preemption=None, reservations=0)
    of.node("n2", cpu=8, gpus=4)
    for step in range(draw(st.integers(2, 10))):
        action = draw(st.sampled_from(["job", "job", "cpu", "leave", "leave", "apply", "pod", "settle", "cycle"]))
        running = [job for job in of.state.jobs.values() if job.placements]
        if action == "job":
            gpu_job(of, f"j{step}", draw(st.integers(1, 6)), priority=draw(st.integers(1, 9)))
        elif action == "cpu":
            of.job(f"c{step}", leader=shape(cpu=draw(st.integers(1, 8))), created=of.now_ms)
        elif action == "leave" and running:
            how = draw(st.sampled_from([failed, restarting, deleted]))
            how(of, draw(st.sampled_from(running)))
        elif action == "apply":
            of.apply()
        elif action == "pod":
            of.pod(f"p{step}", "n1", cpu=1, gpus=draw(st.integers(0, 1)))
        elif action == "settle":
            of.settle()
        of.cycle()
        of.pass_time(draw(st.integers(1, 20)))
    of.node("n9", cpu=1)
    return of.entries


@given(st.one_of(histories(), comings_and_goings()))
@settings(max_examples=100, deadline=None)
def test_after_each_entry_accounts_have_what_each_job_holds_of_what_is_lacking(entries: list[Entry]) -> None:
    ledger = WaitLedger(State(), Span(), CycleConfig())
    for entry in entries:
        ledger.feed(entry)
        state = ledger.state
        for counting, kept in ledger._holdings._accounts.items():
            names = open_names(state.nodes, counting.shape) if counting.shape is not None else None
            told = {uid: of.amounts for uid, of in kept.account._held.items() if uid != OTHERS}
            amounts = {
                uid: tuple(sums[name] if name != GPUS else sums[GPU] for name in counting.resources)
                for uid, sums in by_hand(state, counting, names).items()
            }
            assert told == {uid: of for uid, of in amounts.items() if any(of)}


@given(st.one_of(histories(), comings_and_goings()))
@settings(max_examples=60, deadline=None)
def test_when_a_cycle_has_decided_somebody_holds_what_it_found_lacking(entries: list[Entry]) -> None:
    """So no time from then on counts as waiting for a cycle, until what was lacking is free."""
    ledger = WaitLedger(State(), Span(), CycleConfig())
    for entry in entries:
        ledger.feed(entry)
        if any(isinstance(event, k.CycleTaken) for event in entry.batch.events):
            waiting = [of.account for of in ledger._open.values() if of.account is not None]
            assert all(any(account._totals) for account in waiting)
