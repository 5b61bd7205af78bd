"""Who took room from others and didn't start takes none again, until something about it has changed."""

from collections.abc import Callable

import msgspec
import pytest

from arranger.cli.rendering.ledger_page import Preemptions
from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind
from arranger.lifecycle.desired import desired_status, news_of
from arranger.messages.decisions import stage_text
from arranger.model.config import CycleConfig
from arranger.model.job import Slot, Stage
from arranger.model.pod import PodTimes
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.ledger.preemptions import PreemptionLedger
from arranger.replay.reading.history import Span
from arranger.scheduling.cycle import take_cycle
from tests.unit.test_preemption import preempted, running, waiting
from tests.unit.test_preemption import world as world_of_gpus
from tests.unit.test_replay_room import explained
from tests.world import World

WHY = "exceeded quota: compute, must specify limits.cpu"


def world(**config: object) -> World:
    """A node of 4 GPUs. Back-offs are long enough that others get the room meanwhile."""
    of = world_of_gpus(**config)  # type: ignore[arg-type]
    of.lifecycle = msgspec.structs.replace(of.lifecycle, back_off_ms=30_000)
    return of


def beneficiary(of: World, **spec: object) -> JobRecord:
    """A job that has just taken the room of another one, which has left it."""
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9, **spec)
    assert preempted(of) is not None
    leave(of, "low")
    assert high.stage == Stage.STARTING
    return high


def leave(of: World, name: str) -> None:
    """The pods of a job that was preempted go, and whoever waits for that starts. Nobody creates pods."""
    for pod in list(of.state.pods_of.get(f"uid-{name}", {}).values()):
        of.pod_gone(pod.uid)
    of.wait_for_late_pods()
    of.control()


def refuse(of: World, job: JobRecord) -> None:
    """The API server refuses the job's pods until it gives its nodes up."""
    slot = Slot(*next(iter(job.placements)))
    of.say(k.EffectFailed(job.uid, job.attempt, "create", slot, 403, "Forbidden", WHY, False, 1))
    of.pass_time(of.lifecycle.refused_ms / 1000)
    of.control()
    assert job.decided is not None and job.decided.reason == StageReason.QUORUM_REFUSED


def kubelets_refuse(of: World, job: JobRecord, reason: str = "UnexpectedAdmissionError") -> None:
    """The kubelets refuse all of its pods."""
    of.apply()
    assert len(job.bound) == 4
    for uid in list(job.bound.values()):
        of.change_pod(uid, phase="Failed", ready=False, reason=reason)
    of.control()


def takes_again(of: World, job: JobRecord) -> bool:
    """Whether the job takes room once its victim runs again and its back-off is over."""
    of.wait_for_late_pods()
    of.settle()
    assert not job.placements
    of.wait_for_back_offs()
    of.pass_time(60)
    return preempted(of) is not None


@pytest.mark.parametrize("pardoned", [False, True])
@pytest.mark.parametrize("fail", [refuse, kubelets_refuse])
def test_who_took_room_and_did_not_start_takes_none_again(
    fail: Callable[[World, JobRecord], None], *, pardoned: bool
) -> None:
    of = world()
    high = beneficiary(of)
    if pardoned:
        pardon(of, high)
    fail(of, high)
    if fail is kubelets_refuse and not pardoned:
        assert takes_again(of, high), "one kubelet refused it"
        leave(of, "low")
        fail(of, high)
    assert (high.stage, high.taken is not None and high.taken.ended is high.decided) == (Stage.RESCHEDULING, True)
    attempts = of.state.jobs["uid-low"].attempt
    for _ in range(8):
        assert not takes_again(of, high)
    low = of.state.jobs["uid-low"]
    assert low.stage == Stage.RUNNING and low.attempt == attempts
    validate(of.state)


def pardon(of: World, high: JobRecord) -> None:
    """One kubelet refuses the pods of a job that took room, and it takes that room again."""
    kubelets_refuse(of, high)
    assert takes_again(of, high)
    leave(of, "low")
    assert high.stage == Stage.STARTING


def test_whom_kubelets_of_several_nodes_refuse_takes_no_room_again() -> None:
    of = world()
    of.node("n1", cpu=16, gpus=4)
    running(of, "low", 8, priority=1)
    high = waiting(of, "high", 8, priority=9)
    assert preempted(of) is not None
    leave(of, "low")
    of.apply()
    for uid in list(high.bound.values()):
        of.change_pod(uid, phase="Failed", ready=False, reason="UnexpectedAdmissionError")
    of.control()
    assert high.taken is not None and high.taken.ended is high.decided
    assert not takes_again(of, high)


def test_a_refusal_before_the_room_was_taken_is_none_of_a_node_that_it_took() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    high.refusals["n0"] = of.state.time_ms - 1
    leave(of, "low")
    refuse(of, high)
    assert high.taken is not None and high.taken.ended is high.decided


@pytest.mark.parametrize("fail", [refuse, kubelets_refuse])
def test_an_attempt_that_kubelets_or_the_api_server_refuse_backs_off(fail: Callable[[World, JobRecord], None]) -> None:
    of = world()
    high = beneficiary(of)
    fail(of, high)
    assert high.back_offs.attempt.times == 1 and high.not_before_ms == of.state.time_ms + 30_000
    of.job_gone(of.state.jobs["uid-low"])
    waited = []
    for _ in range(3):
        of.wait_for_back_offs()
        of.wait_for_late_pods()
        of.pass_time(60)
        of.apply()
        of.cycle()
        of.control()
        assert high.stage == Stage.STARTING, "free room is open to it"
        fail(of, high)
        waited.append(high.not_before_ms - of.state.time_ms)
    assert waited == [60_000, 120_000, 240_000]


def edit(of: World, job: JobRecord) -> None:
    assert job.seen.spec is not None
    of.say(msgspec.structs.replace(job.seen, generation=job.seen.generation + 1))


def other_quota(of: World, job: JobRecord) -> None:
    of.quota("compute", hard={"pods": 10}, used={})


def other_node(of: World, job: JobRecord) -> None:
    of.node("n0", cpu=16, gpus=4, labels={"mended": "yes"})


def without_node(of: World, job: JobRecord) -> None:
    of.node_gone("n0")
    of.node("n0", cpu=16, gpus=4)


def suspend(of: World, job: JobRecord) -> None:
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.PENDING, StageReason.SUSPENDED))
    of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.PENDING, StageReason.RESUMED))


@pytest.mark.parametrize("change", [edit, other_quota, other_node, without_node, suspend])
def test_it_takes_room_again_once_something_has_changed(change: Callable[[World, JobRecord], None]) -> None:
    of = world()
    of.quota("compute", hard={"pods": 9}, used={})
    high = beneficiary(of)
    refuse(of, high)
    assert not takes_again(of, high)
    change(of, high)
    assert high.taken is None and preempted(of) is not None
    validate(of.state)


def test_what_is_used_of_a_quota_and_other_nodes_change_nothing() -> None:
    of = world()
    of.quota("compute", hard={"pods": 9}, used={})
    high = beneficiary(of)
    refuse(of, high)
    of.quota("compute", hard={"pods": 9}, used={"pods": 3})
    of.node("other", cpu=1)
    assert not takes_again(of, high)


def test_a_job_that_ran_may_take_room_again_whatever_becomes_of_it() -> None:
    of = world()
    high = beneficiary(of)
    of.settle()
    assert high.stage == Stage.RUNNING and high.taken is None
    kubelets_refuse(of, high)
    assert high.stage == Stage.RESCHEDULING
    assert takes_again(of, high)


def test_a_beneficiary_that_is_preempted_before_it_starts_has_not_taken_room_in_vain() -> None:
    of = world()
    high = beneficiary(of)
    waiting(of, "top", 4, priority=10)
    of.pass_time(10)
    assert preempted(of) is not None
    assert (high.preempted, high.taken) == (True, None)


def test_room_that_does_not_come_counts_until_a_pod_leaves() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    of.pass_time(200)
    of.control()
    assert high.decided is not None and high.decided.reason == StageReason.ROOM_NOT_FREED
    assert high.taken is not None and high.taken.ended is high.decided
    leave(of, "low")
    assert high.taken is None


def test_where_a_pod_hangs_others_give_room_instead_and_once() -> None:
    of = world(room_bound_ms=60_000)
    of.node("n1", cpu=16, gpus=4)
    for name, priority in (("hangs", 1), ("low", 2)):
        running(of, name, 4, priority=priority)
    high = waiting(of, "high", 4, priority=9)
    for other in ("low", None):
        event = preempted(of)
        assert event is not None and high.taken is not None
        for uid in list(of.state.pods_of[event.victims[0].job_uid]):
            of.change_pod(uid, deleting=True, times=PodTimes(leave_by_ms=of.now_ms + 30_000))
        of.pass_time(200)
        of.control()
        assert high.decided is not None and high.decided.reason == StageReason.ROOM_NOT_FREED
        assert (high.taken.in_vain is None) == (other is not None)
        of.wait_for_back_offs()
    assert (
        "one of the nodes that it got changes, or a pod leaves one of these; free"
        in desired_status(of.state, high)["message"]
    )
    assert of.state.jobs["uid-low"].preempted and not takes_again(of, high)


def test_surplus_taken_in_vain_counts_as_well() -> None:
    of = world()
    wide = running(of, "wide", 4, least=1, priority=1)
    high = waiting(of, "high", 3, priority=9)
    assert preempted(of) is not None
    for pod in [pod for pod in of.state.pods_of[wide.uid].values() if pod.uid in wide.retired]:
        of.pod_gone(pod.uid)
    of.wait_for_late_pods()
    of.control()
    refuse(of, high)
    assert not takes_again(of, high)
    assert len(wide.bound) == 4


def test_the_log_refuses_a_preemption_for_who_took_room_in_vain() -> None:
    of = world()
    high = beneficiary(of)
    refuse(of, high)
    taken, high.taken = high.taken, None
    of.wait_for_late_pods()
    of.settle()
    of.wait_for_back_offs()
    of.pass_time(60)
    events = take_cycle(of.state, of.config, of.now_ms)
    high.taken = taken
    of.say(*events)
    assert of.verdict("Preempted").reason == "it took room in vain, and nothing has changed since"


def test_the_mark_is_in_snapshots() -> None:
    of = world()
    high = beneficiary(of)
    refuse(of, high)
    copied = snapshot.restore(snapshot.encode(of.state))
    validate(copied)
    assert copied.jobs[high.uid].taken == high.taken
    assert copied.takers == of.state.takers == {high.uid: None}
    of.job_gone(high)
    assert of.state.takers == {}


def test_explain_says_why_it_takes_no_room() -> None:
    of = world()
    high = beneficiary(of)
    refuse(of, high)
    assert not takes_again(of, high)
    waits = explained(of.entries, "high").waiting
    assert waits is not None and [str(of.kind) for of in waits.takes_none] == ["InVain"]


def test_status_says_that_it_took_room_in_vain_and_what_would_change_that() -> None:
    of = world()
    high = beneficiary(of)
    refuse(of, high)
    said = desired_status(of.state, high)["message"]
    assert said.count(WHY) == 1 and "; it took room from others in vain, and takes no more until its spec" in said
    news = news_of(of.state, high)
    assert not takes_again(of, high)
    status = desired_status(of.state, high)
    shown = next(one["message"] for one in status["conditions"] if one["type"] == "Scheduled")
    for said in (status["message"], shown):
        assert said.startswith("0 of 4") and f"in vain (pods of its quorum are refused ({WHY})" in said
    news = news_of(of.state, high)
    edit(of, high)
    assert "in vain" not in desired_status(of.state, high)["message"] and news_of(of.state, high) != news


@pytest.mark.parametrize(("fail", "reason"), [(refuse, "QuorumRefused"), (kubelets_refuse, "WorkersLost")])
def test_the_list_of_preemptions_says_who_took_room_in_vain(
    fail: Callable[[World, JobRecord], None], reason: str
) -> None:
    of = world()
    fail(of, beneficiary(of))
    ledger = PreemptionLedger(State(), Span(), CycleConfig())
    for entry in of.entries:
        ledger.feed(entry)
    [found] = ledger.found
    assert found.vain is not None and found.vain.reason == reason
    [row] = Preemptions(ledger.found, ledger.guests, 600_000).json()["preemptions"]
    assert row["in_vain"] == reason and row["in_vain_because"] == stage_text(found.vain)


@pytest.mark.parametrize("reason", ["NodeClosed", "NodeLost"])
def test_who_lost_it_because_a_node_closed_has_not_taken_it_in_vain_in_the_list_either(reason: str) -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    of.node("n0", cpu=16, gpus=4, ready=reason == "NodeClosed", cordoned=reason == "NodeClosed")
    of.control()
    ledger = PreemptionLedger(State(), Span(), CycleConfig())
    for entry in of.entries:
        ledger.feed(entry)
    [found] = ledger.found
    assert high.decided is not None and high.decided.reason == reason and (found.vain, high.taken) == (None, None)
    [row] = Preemptions(ledger.found, ledger.guests, 600_000).json()["preemptions"]
    assert row["lost_ms"] and not row["in_vain"] and not row["in_vain_because"]
    assert "in vain" not in desired_status(of.state, high)["message"]


def test_no_log_takes_nodes_from_who_waits_without_having_lost_one() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    of.say(k.StageDecided(high.uid, high.version, high.attempt, Stage.PENDING, StageReason.NODE_LOST))
    assert of.verdict("StageDecided").reason == "it is Pending, and has lost no node that others were to leave"
    assert high.placements


def test_room_that_was_reclaimed_in_vain_counts_as_well() -> None:
    """Its queue is below its share, and the victim has the higher priority."""
    of = world()
    of.watch_queues()
    of.queue("poor", deserved={"nvidia.com/gpu": 1})
    of.queue("rich")
    for number in range(4):
        running(of, f"rich{number}", 1, priority=10, of_queue="rich")
    poor = waiting(of, "poor", 1, priority=1, of_queue="poor")
    decision = preempted(of)
    assert decision is not None
    [victim] = decision.victims
    assert victim.kind == PreemptionKind.RECLAIM
    leave(of, victim.job_uid.removeprefix("uid-"))
    refuse(of, poor)
    for _ in range(4):
        assert not takes_again(of, poor)
    assert all(of.state.jobs[f"uid-rich{number}"].stage == Stage.RUNNING for number in range(4))
