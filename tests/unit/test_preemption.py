"""Jobs that give room to others: who does, what is decided, and what becomes of both."""

from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, Victim
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.messages.decisions import stage_text
from arranger.model.config import CycleConfig
from arranger.model.job import CleanPodPolicy, ScheduleState, Stage
from arranger.model.pod import HostPort, PodRules
from arranger.model.queue import Preemption, PreemptionMode, QueueState
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, compact
from arranger.replay.explain.awaited import What, awaited
from arranger.replay.explain.room_words import takes_none_text
from arranger.replay.explain.taken_room import TakesNone
from arranger.scheduling import NoRoomKind, why_no_room
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.room.vacating import grace_ms
from tests.reasons import lacking_quota
from tests.world import World, shape

CONFIG = CycleConfig(versions=VERSIONS, refusal_avoid_ms=60_000, preemption=Preemption(), room_bound_ms=60_000)
GPU = shape(cpu=1, gpus=1)
SMALL = shape(cpu=1)


def world(nodes: int = 1, *, gpus: int = 4, cpu: int = 16, **config: object) -> World:
    of = World(config=msgspec.structs.replace(CONFIG, **config))
    for number in range(nodes):
        of.node(f"n{number}", cpu=cpu, gpus=gpus)
    return of


def running(of: World, name: str, workers: int, *, least: int | None = None, **spec: object) -> JobRecord:
    """A job of workers with a GPU each, and no leader, that runs."""
    least = workers if least is None else least
    job = of.job(name, workers=workers, worker=GPU, min_workers=least, equals=True, **spec)  # type: ignore[arg-type]
    of.settle()
    assert job.stage == Stage.RUNNING
    of.pass_time(10)
    return job


def waiting(of: World, name: str, workers: int, **spec: object) -> JobRecord:
    return of.job(name, workers=workers, worker=GPU, min_workers=workers, equals=True, **spec)  # type: ignore[arg-type]


def preempted(of: World) -> k.Preempted | None:
    """The decision of the next cycle, with its verdict."""
    found = [event for event in of.cycle() if isinstance(event, k.Preempted)]
    if found:
        assert of.verdict("Preempted").accepted, of.verdict("Preempted").reason
        validate(of.state)
    return found[0] if found else None


def test_a_job_of_higher_priority_takes_the_room_of_a_whole_job() -> None:
    of = world()
    low = running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None
    [victim] = decision.victims
    assert (victim.job_uid, victim.kind, decision.placed.job_uid) == (low.uid, PreemptionKind.PRIORITY, high.uid)
    assert (low.stage, low.decided.reason if low.decided else None) == (Stage.RESCHEDULING, StageReason.PREEMPTED)
    assert (high.stage, high.schedule_state, len(high.placements)) == (Stage.PENDING, ScheduleState.SUCCEED, 4)
    of.control()
    assert high.stage == Stage.PENDING  # the pods of the other are still there
    of.settle()
    assert (high.stage, high.slots.room, low.stage) == (Stage.RUNNING, None, Stage.RESCHEDULING)
    assert low.spent == {} and low.leader.restarts == 0


def test_a_job_whose_leader_has_no_node_has_no_surplus() -> None:
    """Without its leader it has no quorum to which workers could be surplus: the log would reject the decision (seed
    39000569 of the simulation)."""
    of = world()
    low = of.job("low", leader=SMALL, workers=4, worker=GPU, min_workers=1, priority=1)
    of.settle()
    of.pass_time(10)
    del low.slots.nodes[0, 0]
    assert low.stage == Stage.RUNNING and len(low.placements) == 4 and not low.quorum_placed()
    waiting(of, "high", 2, priority=9)
    victims = [victim for event in of.cycle() if isinstance(event, k.Preempted) for victim in event.victims]
    assert PreemptionKind.SURPLUS not in [victim.kind for victim in victims]


def test_a_process_that_remembers_looks_again_once_a_job_has_run_for_long_enough() -> None:
    """Nothing but time passes (seed 57 of the simulation)."""
    of = world()
    of.queue("default", min_runtime_s=60)
    low = running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    cycles = Cycles()
    while events := cycles.take(of.state, of.config, of.now_ms):
        of.say(*events)
    assert low.stage == Stage.RUNNING and of.verdict("Waits").accepted
    of.pass_time(60)
    assert any(isinstance(event, k.Preempted) for event in cycles.take(of.state, of.config, of.now_ms))


def test_no_third_job_gets_the_room() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    third = waiting(of, "third", 1, priority=5)
    of.settle()
    assert (high.stage, third.stage) == (Stage.RUNNING, Stage.PENDING)


def test_surplus_goes_first_from_the_lowest_priority_and_the_highest_index() -> None:
    of = world(nodes=2)
    one = running(of, "one", 4, least=1, priority=2)
    other = running(of, "other", 4, least=1, priority=1)
    high = waiting(of, "high", 2, priority=9)
    decision = preempted(of)
    assert decision is not None
    [victim] = decision.victims
    assert (victim.job_uid, victim.kind) == (other.uid, PreemptionKind.SURPLUS)
    assert sorted(other.placements) == [(1, 0), (1, 1)]
    assert (other.stage, len(one.placements)) == (Stage.RUNNING, 4)
    of.settle()
    assert (high.stage, other.stage, other.attempt) == (Stage.RUNNING, Stage.RUNNING, 0)


def lead(
    of: World, *, sets: tuple[tuple[str, int], ...] = (("a", 6), ("b", 5)), least: int = 2, **spec: object
) -> JobRecord:
    """A job of a learner and sets of workers of two GPUs each that fills the nodes, and runs."""
    two = shape(cpu=1, gpus=2)
    job = of.job("lead", leader=two, workers=[(name, count, two) for name, count in sets], min_workers=least, **spec)  # type: ignore[arg-type]
    of.settle()
    assert job.stage == Stage.RUNNING and len(job.placements) == 4 * len(of.state.nodes.rows)
    of.pass_time(10)
    return job


def test_whichever_workers_free_a_node_leave_if_the_others_are_a_quorum() -> None:
    """By the highest index first, all but b0 on its node are surplus, and the whole job left."""
    of = world(nodes=2, gpus=8)
    job = lead(of)
    [node] = {job.placements[2, 0]}
    assert sorted(slot for slot, at in job.placements.items() if at == node) == [(1, 3), (1, 4), (1, 5), (2, 0)]
    high = of.job("high", workers=1, worker=shape(cpu=1, gpus=8), min_workers=1, equals=True, priority=7)
    decision = preempted(of)
    assert decision is not None
    assert [(victim.job_uid, victim.kind) for victim in decision.victims] == [(job.uid, PreemptionKind.SURPLUS)]
    assert sorted(job.placements) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    of.settle()
    assert (high.stage, job.stage, job.attempt) == (Stage.RUNNING, Stage.RUNNING, 0)


def test_a_queue_above_its_share_gives_whichever_workers_free_a_node() -> None:
    """Without its surplus the queue has no more than its share, so the whole job may not leave, and nobody did."""
    of = world(nodes=3, gpus=8)
    of.watch_queues()
    of.queue("ra", deserved=(("nvidia.com/gpu", 16),))
    of.queue("rb", deserved=(("nvidia.com/gpu", 8),))
    first = of.job("r1", workers=1, worker=shape(cpu=1, gpus=8), min_workers=1, equals=True, of_queue="ra")
    of.settle()
    two = shape(cpu=1, gpus=2)
    job = of.job("lead", leader=two, workers=[("a", 6, two), ("b", 5, two)], min_workers=2, of_queue="rb")
    of.settle()
    of.pass_time(10)
    assert (first.stage, job.stage, len(job.placements)) == (Stage.RUNNING, Stage.RUNNING, 8)
    of.job("r2", workers=1, worker=shape(cpu=1, gpus=8), min_workers=1, equals=True, of_queue="ra")
    decision = preempted(of)
    assert decision is not None
    assert [(victim.job_uid, victim.kind) for victim in decision.victims] == [(job.uid, PreemptionKind.SURPLUS)]
    assert sorted(job.placements) == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_equal_priority_takes_nothing() -> None:
    of = world()
    running(of, "low", 4, least=1, priority=5)
    waiting(of, "high", 4, priority=5)
    assert preempted(of) is None


@pytest.mark.parametrize("rule", ["config", "job", "queue"])
def test_preemption_may_be_forbidden(rule: str) -> None:
    never = Preemption(*[PreemptionMode.NEVER] * 3)
    of = world(preemption=None) if rule == "config" else world()
    of.watch_queues()
    if rule == "queue":
        of.queue("default", preemption=never)
    running(of, "low", 4, priority=1, preemptible=rule != "job")
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None


def reasons(of: World, job: JobRecord) -> list[tuple[NoRoomKind, list[str]]]:
    """Why a job takes no room, with the names of the jobs that each reason is about."""
    why = why_no_room(of.state, job, of.config, of.now_ms, lacks=None, infeasible=False, short=["nvidia.com/gpu"])
    return [(one.kind, [of.state.jobs[uid].seen.name for uid in one.jobs]) for one in why]


@pytest.mark.parametrize("way", ["queue", "config"])
@pytest.mark.parametrize("least", [4, 2])
def test_jobs_of_lower_priority_are_not_too_little_where_the_rules_forbid_to_take_them(way: str, least: int) -> None:
    never = Preemption(priority=PreemptionMode.NEVER)
    of = world(preemption=never) if way == "config" else world()
    of.queue("a", **({"preemption": never} if way == "queue" else {}))
    running(of, "low", 4, least=least, priority=1, of_queue="a")
    high = waiting(of, "high", 4, priority=9, of_queue="a")
    assert preempted(of) is None
    surplus = [(NoRoomKind.TOO_LITTLE, ["low"])] if least < 4 else []
    assert reasons(of, high) == [*surplus, (NoRoomKind.PRIORITY_NEVER, ["low"])]
    told = takes_none_text(TakesNone(NoRoomKind.PRIORITY_NEVER, ("low",), 0), lambda _: "")
    assert told == "spec.preemption.priority of its queue, or priority in the setting preemption, is Never: low"


def test_the_rule_of_the_own_queue_is_told_beside_what_another_queue_may_give() -> None:
    of = world(nodes=2)
    of.queue("a", preemption=Preemption(priority=PreemptionMode.NEVER), deserved=(("nvidia.com/gpu", 8),))
    of.queue("b")
    running(of, "theirs", 3, of_queue="b")
    running(of, "low", 5, priority=1, of_queue="a")
    high = waiting(of, "high", 8, priority=9, of_queue="a")
    assert preempted(of) is None
    assert (NoRoomKind.PRIORITY_NEVER, ["low"]) in reasons(of, high)
    assert all("low" not in names for kind, names in reasons(of, high) if kind == NoRoomKind.TOO_LITTLE)


def test_a_queue_that_only_surplus_puts_above_its_share_gives_none_where_the_rules_forbid_that() -> None:
    of = world()
    of.queue("a", preemption=Preemption(surplus=PreemptionMode.NEVER))
    of.queue("b")
    running(of, "theirs", 4, least=2, of_queue="b")
    mine = waiting(of, "mine", 2, of_queue="a")
    assert preempted(of) is None
    assert reasons(of, mine) == [(NoRoomKind.SURPLUS_NEVER, ["theirs"])]
    of.queue("a")
    assert preempted(of) is not None


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "stays"])
def test_no_job_is_lost_by_a_queue_that_only_one_that_ends_puts_above_its_share(ends: bool) -> None:
    of = world(nodes=2)
    of.queue("a", deserved=(("nvidia.com/gpu", 5),))
    of.queue("b", deserved=(("nvidia.com/gpu", 3),))
    over = running(of, "over", 3, of_queue="b", deadline_s=60 if ends else None)
    running(of, "beside", 1, of_queue="a")
    runs = running(of, "runs", 3, of_queue="b")
    of.pass_time(60)  # what the first one leaves isn't enough
    wide = of.job("wide", workers=1, worker=shape(cpu=1, gpus=4), min_workers=1, equals=True, of_queue="a")
    decision = preempted(of)
    if not ends:
        assert decision is not None and {victim.job_uid for victim in decision.victims} <= {over.uid, runs.uid}
        return
    assert decision is None
    assert (NoRoomKind.WITHIN_SHARE, ["over", "runs"]) in reasons(of, wide)


def test_the_rule_that_forbids_to_reclaim_is_told_by_its_name() -> None:
    of = world()
    of.queue("a", preemption=Preemption(reclaim=PreemptionMode.NEVER))
    of.queue("b")
    running(of, "theirs", 4, of_queue="b")
    mine = waiting(of, "mine", 2, of_queue="a")
    assert preempted(of) is None
    assert reasons(of, mine) == [(NoRoomKind.RECLAIM_NEVER, ["theirs"])]


def test_whoever_is_not_needed_is_spared() -> None:
    of = world(nodes=3)
    small = [running(of, f"s{number}", 1, priority=1) for number in range(4)]  # they share one node
    whole = running(of, "whole", 4, priority=2)
    running(of, "top", 4, priority=10)
    waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None
    nodes = {pods.node for pods in decision.placed.pods}
    assert len(nodes) == 1 or len(decision.victims) <= 4
    assert {victim.job_uid for victim in decision.victims} <= {of.uid for of in [*small, whole]}


def test_nobody_is_asked_on_a_node_that_cannot_be_freed() -> None:
    of = world(nodes=2)
    top = running(of, "top", 2, priority=10)
    vain = running(of, "vain", 2, priority=1)
    mid = running(of, "mid", 4, priority=2)
    assert set(top.placements.values()) == set(vain.placements.values()) != set(mid.placements.values())
    of.job("high", workers=1, worker=shape(cpu=1, gpus=4), min_workers=1, equals=True, priority=9)
    decision = preempted(of)
    assert decision is not None
    assert [victim.job_uid for victim in decision.victims] == [mid.uid]
    assert decision.spared == (), "it would be no help, so it isn't named as spared either"


def test_it_waits_for_pods_that_leave_anyway() -> None:
    of = world()
    low = running(of, "low", 4, priority=1)
    of.say(k.StageDecided(low.uid, low.version, low.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    other = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None
    of.settle()
    assert other.stage == Stage.RUNNING


def test_pods_that_were_never_seen_leave_nothing_for_a_second_job_of_the_same_cycle() -> None:
    """A decision can't name them as pods that leave."""
    of = world(gpus=5)
    for name, pods in (("low", 2), ("other", 3)):
        of.job(name, workers=pods, worker=GPU, min_workers=pods, equals=True, priority=1)
    of.cycle()
    of.control()
    of.pass_time(10)
    first, second = waiting(of, "first", 1, priority=9), waiting(of, "second", 3, priority=8)
    assert preempted(of) is not None
    assert all(verdict.accepted for verdict in of.verdicts)
    assert (len(first.placements), len(second.placements)) == (1, 0)


def test_pods_that_were_never_seen_do_not_count_in_their_queue_for_a_second_job_of_the_same_cycle() -> None:
    of = world(nodes=3)
    of.watch_queues()
    of.queue("a", capability=(("nvidia.com/gpu", 4),))
    of.job("low", workers=4, worker=GPU, min_workers=4, equals=True, priority=1, of_queue="a")
    of.cycle()
    of.control()
    of.pass_time(10)
    first = waiting(of, "first", 1, priority=9, of_queue="a")
    second = waiting(of, "second", 2, priority=8, of_queue="a")
    assert preempted(of) is not None
    assert all(verdict.accepted for verdict in of.verdicts)
    assert (len(first.placements), len(second.placements)) == (1, 2)
    validate(of.state)


def test_a_job_whose_quorum_grew_before_it_started_holds_nothing_until_all_of_it_fits() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 2, priority=9)
    assert preempted(of) is not None and high.placements and high.stage == Stage.PENDING
    of.job("high", workers=20, worker=GPU, min_workers=20, equals=True, priority=9)
    assert not high.placements and high.schedule_state == ScheduleState.UNSCHEDULED and high.slots.room is None
    validate(of.state)
    of.settle()
    assert not high.placements and high.stage == Stage.PENDING
    assert len(of.state.jobs["uid-low"].placements) == 4, "who gave the room has it again"


@pytest.mark.parametrize("edit", [{"priority": 8}, {"workers": 5, "min_workers": 2}, {"restart_limit": 9}])
def test_an_edited_job_still_waits_for_the_room_that_others_leave(edit: dict[str, Any]) -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    decided = preempted(of)
    before = desired_status(of.state, high)["message"]
    spec = {"workers": 4, "min_workers": 4, "worker": GPU, "equals": True, "priority": 9, "generation": 2}
    of.job("high", **(spec | edit))  # type: ignore[arg-type]
    validate(of.state)
    assert high.slots.room is decided is not None and high.placements
    assert desired_status(of.state, high)["message"] == before != ""
    assert awaited(of.state, high).what == What.ROOM
    for pod in list(of.state.pods_of["uid-low"].values()):
        of.pod_gone(pod.uid)
        assert high.uid in of.changes.jobs, "its controller looks at it"
    of.control()
    assert high.stage == Stage.STARTING


@pytest.mark.parametrize("spec", [{"suspend": True}, {"terminating": True}])
def test_it_waits_for_jobs_that_are_about_to_leave(spec: dict[str, bool]) -> None:
    of = world(nodes=2)
    running(of, "other", 4, priority=1)
    running(of, "low", 4, priority=2)
    waiting(of, "low", 4, priority=2, generation=2, **spec)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None
    of.settle()
    assert high.stage == Stage.RUNNING


def test_room_that_is_not_freed_in_time_is_given_back() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    of.pass_time(89)
    of.control()
    assert high.placements
    of.pass_time(2)
    of.control()
    assert not high.placements and high.decided is not None
    assert high.decided.reason == StageReason.ROOM_NOT_FREED
    assert stage_text(high.decided) == "pod default/low-actors-0 and 3 more didn't leave n0 in time; scheduled again"
    validate(of.state)
    of.settle()
    assert high.stage == Stage.RUNNING


@pytest.mark.parametrize("freed", [True, False])
def test_a_job_waits_for_the_port_of_its_victim_where_a_node_has_room_for_both(freed: bool) -> None:
    of = world(cpu=16)
    asked = shape(cpu=1, rules=PodRules(host_ports=(HostPort(8080),)))
    of.job("low", leader=asked, priority=1)
    of.settle()
    of.pass_time(10)
    high = of.job("high", leader=asked, priority=9)
    assert preempted(of) is not None
    of.control()
    assert high.stage == Stage.PENDING, "the kubelet would refuse its pod while the port is in use"
    if freed:
        of.settle()
        assert high.stage == Stage.RUNNING
    else:
        of.pass_time(100)
        of.control()
        assert high.decided is not None and high.decided.reason == StageReason.ROOM_NOT_FREED
        assert stage_text(high.decided).startswith("pod default/low-learner-0 didn't leave n0 in time")


@pytest.mark.parametrize(("how", "reason", "said"), [
    ({"cordoned": True}, "NodeClosed", "node n0 is cordoned, before others had left it; scheduled again"),
    ({"ready": False}, "NodeLost", "node n0 is not ready, before others had left it; scheduled again"),
    (None, "NodeLost", "node n0 is gone, before others had left it; scheduled again"),
])  # fmt: skip
def test_room_is_given_back_once_its_node_is_closed(how: dict[str, Any] | None, reason: str, said: str) -> None:
    of = world(nodes=2)
    running(of, "other", 4, priority=2)
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    (node,) = set(high.placements.values())
    if how is None:
        of.node_gone(node)
    else:
        of.node(node, cpu=16, gpus=4, **how)
    of.control()
    assert high.decided is not None and high.decided.reason == reason
    assert stage_text(high.decided) == said.replace("n0", node)
    assert (high.stage, high.taken) == (Stage.PENDING, None), "no fault of the job: it may take other room"
    validate(of.state)
    assert preempted(of) is not None
    of.settle()
    assert high.stage == Stage.RUNNING


def test_only_who_runs_where_a_job_may_run_is_named_as_giving_it_no_room() -> None:
    of = world(nodes=0)
    for pool in ("a", "b"):
        of.node(f"n-{pool}", cpu=16, gpus=4, labels={"pool": pool})
        each = shape(cpu=1, gpus=4, selector={"pool": pool})
        steady = of.job(
            f"in-{pool}", workers=1, worker=each, min_workers=1, equals=True, priority=1, preemptible=pool == "a"
        )
    of.settle()
    of.pass_time(10)
    there = shape(cpu=1, gpus=4, selector={"pool": "b"})
    high = of.job("high", workers=1, worker=there, min_workers=1, equals=True, priority=9)
    assert preempted(of) is None
    found = why_no_room(of.state, high, of.config, of.now_ms, lacks=None, infeasible=False)
    assert [(one.kind, one.jobs) for one in found] == [(NoRoomKind.NOT_PREEMPTIBLE, (steady.uid,))]
    of.job_gone(steady)
    of.node("n-b", cpu=16, gpus=2, labels={"pool": "b"})
    [why] = why_no_room(of.state, high, of.config, of.now_ms, lacks=None, infeasible=False)
    assert why.kind == NoRoomKind.NOBODY


def test_a_snapshot_has_the_room_that_a_job_waits_for() -> None:
    of = world()
    running(of, "low", 4, priority=1)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    content = snapshot.encode(of.state)
    again = snapshot.restore(content)
    assert again.awaiting == of.state.awaiting != {}
    assert snapshot.encode(again) == content


def test_a_queue_below_its_share_reclaims_from_one_above() -> None:
    of = world(nodes=2)
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    jobs = [running(of, f"a{number}", 2, priority=9, of_queue="a") for number in range(4)]
    mine = waiting(of, "mine", 4, priority=1, of_queue="b")
    decision = preempted(of)
    assert decision is not None
    assert [victim.kind for victim in decision.victims] == [PreemptionKind.RECLAIM] * 2
    of.settle()
    assert mine.stage == Stage.RUNNING
    assert sum(job.stage == Stage.RUNNING for job in jobs) == 2
    waiting(of, "more", 1, priority=1, of_queue="b")  # b has its share now
    assert preempted(of) is None


def test_surplus_in_free_room_costs_no_quorum() -> None:
    """Two queues whose quorums are within their shares took turns for ever: each lost its job once that had surplus."""
    of = World(config=CONFIG)
    for number, gpus in enumerate((1, 2, 5)):
        of.node(f"n{number}", cpu=16, gpus=gpus)
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    pairs = shape(cpu=1, gpus=2)
    mine = of.job("mine", workers=3, worker=pairs, min_workers=2, equals=True, of_queue="a")
    of.settle()
    assert len(mine.placements) == 3
    of.pass_time(10)
    other = of.job("other", workers=3, worker=pairs, min_workers=2, equals=True, of_queue="b")
    assert preempted(of) is None
    of.settle()
    assert (mine.stage, other.placements) == (Stage.RUNNING, {})


def test_a_queue_reclaims_nothing_for_workers_that_lift_it_above_its_share() -> None:
    """The first workers would be within the share, but they fit nowhere, and the others request more."""
    of = world(nodes=2, gpus=8)
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    for number in range(2):
        running(of, f"a{number}", 6, priority=9, of_queue="a")
    sets = [("small", 5, shape(cpu=1, gpus=1, selector={"zone": "none"})), ("large", 5, shape(cpu=1, gpus=2))]
    mine = of.job("mine", workers=sets, min_workers=5, priority=1, of_queue="b", equals=True)
    assert preempted(of) is None
    assert mine.placements == {}


@pytest.mark.parametrize(("nodes", "own", "workers"), [(2, 2, 4), (3, 3, 5)])
def test_jobs_of_the_own_queue_bring_it_down_to_its_share_before_others_are_asked(
    nodes: int, own: int, workers: int
) -> None:
    """They alone leave too little room, and without them the queue was said to be above its share, a half."""
    of = world(nodes)
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    low = [running(of, f"low{number}", 1, priority=1, of_queue="a") for number in range(own)]
    others = [running(of, f"b{number}", 1, priority=9, of_queue="b") for number in range(4 * nodes - own)]
    lower = of.job("lower", workers=3, worker=SMALL, min_workers=3, equals=True, priority=0, of_queue="a")
    of.settle()
    of.pass_time(10)
    mine = waiting(of, "mine", workers, priority=5, of_queue="a")
    decision = preempted(of)
    assert decision is not None
    of.settle()
    assert sorted(victim.kind for victim in decision.victims) == ["Priority"] * 2 + ["Reclaim"] * (workers - 2)
    assert (mine.stage, lower.stage) == (Stage.RUNNING, Stage.RUNNING)
    assert sum(job.stage == Stage.RUNNING for job in low) == own - 2
    assert sum(job.stage == Stage.RUNNING for job in others) == 4 * nodes - own - (workers - 2)


@pytest.mark.parametrize(
    ("room", "kind"), [("elsewhere", NoRoomKind.ABOVE_SHARE), ("too little", NoRoomKind.TOO_LITTLE)]
)
def test_nobody_leaves_only_to_bring_a_queue_down_to_its_share(room: str, kind: NoRoomKind) -> None:
    """A job of the own queue whose room helps nobody could start there again at once."""
    of = World(config=CONFIG)
    of.node("n0", cpu=16, gpus=2)
    of.node("n1", cpu=16, gpus=6)
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    low = running(of, "low", 2, priority=1, of_queue="a")
    each = {"worker": shape(cpu=1, gpus=3), "min_workers": 1, "workers": 1, "equals": True}
    others = [of.job(f"b{number}", of_queue="b", preemptible=not number, **each) for number in range(2)]  # type: ignore[arg-type]
    of.settle()
    of.pass_time(10)
    each["worker"] = shape(cpu=1 if room == "elsewhere" else 16, gpus=3)
    mine = of.job("mine", of_queue="a", priority=5, **each)  # type: ignore[arg-type]
    assert preempted(of) is None
    of.settle()
    assert (low.stage, mine.placements) == (Stage.RUNNING, {})
    why = why_no_room(of.state, mine, of.config, of.now_ms, lacks=None, infeasible=False, short=["nvidia.com/gpu"])
    assert [one.kind for one in why if others[0].uid in one.jobs] == [kind]


def organisation() -> World:
    """A queue of 16 of 32 GPUs with two below it, of 12 and 4; 8 GPUs are used by the smaller one."""
    of = World(config=CONFIG)
    of.node("n0", cpu=64, gpus=32)
    of.watch_queues()
    of.queue("org")
    of.queue("vision", parent="org", weight=3)
    of.queue("robots", parent="org")
    of.queue("batch")
    return of


def test_a_queue_above_the_jobs_own_is_named_that_would_be_above_its_share() -> None:
    """The other queue below the same parent can't bring it down to its share."""
    of = organisation()
    large = running(of, "large", 22, of_queue="batch")
    robots = running(of, "robots", 8, of_queue="robots", preemptible=False)
    mine = waiting(of, "mine", 12, of_queue="vision")
    assert preempted(of) is None
    of.settle()
    why = why_no_room(of.state, mine, of.config, of.now_ms, lacks=None, infeasible=False, short=["nvidia.com/gpu"])
    assert [(one.kind, one.jobs, one.above, one.resources) for one in why] == [
        (NoRoomKind.NOT_PREEMPTIBLE, (robots.uid,), "", ()),
        (NoRoomKind.ABOVE_SHARE, (large.uid,), "org", ("nvidia.com/gpu",)),
    ]
    _, above = why
    told = takes_none_text(TakesNone(above.kind, above.jobs, 0, above.above, above.resources), lambda _: "")
    assert told == "queue org would be above its share of nvidia.com/gpu, so nothing is reclaimed from uid-large"


@pytest.mark.parametrize("wrong", ["gone", "parent"])
def test_a_queue_that_does_not_exist_or_has_a_problem_gives_no_room_above_its_share(wrong: str) -> None:
    of = world()
    for name in ("rl", "vision"):
        of.queue(name, deserved=(("nvidia.com/gpu", 2),))
    theirs = running(of, "theirs", 4, of_queue="vision")
    if wrong == "gone":
        of.queue_gone("vision")
    else:
        of.queue("vision", parent="mistyped")
    mine = waiting(of, "mine", 2, of_queue="rl")
    assert preempted(of) is None
    [why] = why_no_room(of.state, mine, of.config, of.now_ms, lacks=None, infeasible=False, short=["nvidia.com/gpu"])
    assert (why.kind, why.jobs) == (NoRoomKind.UNUSABLE, (theirs.uid,))
    told = takes_none_text(TakesNone(why.kind, ("theirs",), 0), lambda _: "")
    assert told == "in queues that don't exist or have a problem, until that is mended: theirs"
    of.queue("vision", state=QueueState.CLOSED)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [theirs.uid]


def test_a_queue_below_the_same_parent_brings_it_down_to_its_share() -> None:
    """Otherwise a queue that uses nothing of its share could take nothing: its sibling alone has too little room, and
    with that the parent would be above its share."""
    of = organisation()
    batch = [running(of, f"batch{number}", 1, of_queue="batch") for number in range(22)]
    robots = [running(of, f"robots{number}", 1, of_queue="robots", priority=9) for number in range(8)]
    mine = waiting(of, "mine", 12, of_queue="vision")
    decision = preempted(of)
    assert decision is not None
    assert [victim.kind for victim in decision.victims] == ["Reclaim"] * 10
    of.settle()
    assert mine.stage == Stage.RUNNING
    assert sum(job.stage == Stage.RUNNING for job in robots) == 4
    assert sum(job.stage == Stage.RUNNING for job in batch) == 16
    of.settle()
    assert preempted(of) is None


def test_a_node_that_jobs_of_the_own_queue_and_another_free_together_is_tried_alone() -> None:
    """Those of the other queue that lose the least are on a node that can't be freed."""
    of = World(config=CONFIG)
    of.watch_queues()
    of.queue("a")
    of.queue("b")
    for node, queues in enumerate(("aabb", "abb")):
        of.node(f"n{node}", cpu=64, gpus=len(queues), labels={"node": f"n{node}"})
        for number, queue in enumerate(queues):
            there = shape(cpu=1, gpus=1, selector={"node": f"n{node}"})
            of.job(f"{queue}{node}{number}", equals=True, workers=1, min_workers=1, worker=there, of_queue=queue)
        of.settle()
        of.pass_time(10)
    of.job("mine", equals=True, workers=1, min_workers=1, worker=shape(cpu=1, gpus=3), of_queue="a", priority=9)
    decision = preempted(of)
    assert decision is not None
    assert sorted(victim.job_uid[:6] for victim in decision.victims) == ["uid-a0", "uid-a0", "uid-b0"]


def test_surplus_that_a_job_gave_is_not_counted_again_when_all_of_it_leaves() -> None:
    """Else a queue would seem to have come down to its share, and a job that is within its own would wait."""
    of = World(config=CONFIG)
    of.node("n0", cpu=64, gpus=24)
    of.watch_queues()
    of.queue("a")
    of.queue("b", deserved=(("nvidia.com/gpu", 9),))
    running(of, "elastic", 6, least=3, of_queue="a", priority=1)
    later = [running(of, f"later{number}", 3, of_queue="a", priority=2) for number in range(6)]
    mine = waiting(of, "mine", 9, of_queue="b")
    decision = preempted(of)
    assert decision is not None
    of.settle()
    assert mine.stage == Stage.RUNNING
    assert sum(job.stage == Stage.RUNNING for job in later) == 5


@pytest.mark.parametrize("limit", [{"max_running": 1}, {"capability": (("nvidia.com/gpu", 4),)}])
def test_a_limit_of_its_own_queue_is_met_by_jobs_of_lower_priority(limit: dict[str, object]) -> None:
    of = world(nodes=3)
    of.watch_queues()
    of.queue("a", **limit)
    low = running(of, "low", 4, priority=1, of_queue="a")
    other = running(of, "other", 4, priority=1)
    high = waiting(of, "high", 3, priority=9, of_queue="a")
    decision = preempted(of)
    assert decision is not None
    assert [victim.job_uid for victim in decision.victims] == [low.uid]
    of.settle()
    assert (high.stage, low.stage, other.stage) == (Stage.RUNNING, Stage.RESCHEDULING, Stage.RUNNING)


def test_a_superseded_victim_voids_the_decision() -> None:
    of = world()
    low = running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    events = of.cycle()
    decision = next(event for event in events if isinstance(event, k.Preempted))
    of.settle()
    again = msgspec.structs.replace(events[0], base=of.state.offset)
    of.say(again, decision)
    assert not of.verdict("Preempted").accepted
    assert low.uid and high.uid


def test_pods_that_their_ended_job_keeps_do_not_leave() -> None:
    of = world(nodes=2)
    ended = running(of, "ended", 4, priority=1, clean=CleanPodPolicy.NONE)
    low = running(of, "low", 4, priority=1)
    of.say(k.StageDecided(ended.uid, ended.version, ended.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    high = waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None, "it would wait for pods that run on"
    assert ([victim.job_uid for victim in decision.victims], decision.leaving) == ([low.uid], ())
    of.settle()
    assert high.stage == Stage.RUNNING


def test_a_restored_process_names_pods_that_leave_in_the_same_order() -> None:
    of = world(nodes=2)
    jobs = [running(of, name, 2, priority=1) for name in ("second", "first")]
    running(of, "low", 4, priority=1)
    for job in jobs:
        of.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    waiting(of, "high", 8, priority=9)
    events = take_cycle(of.state, of.config, of.now_ms)
    assert isinstance(events[1], k.Preempted) and len(events[1].leaving) == 4
    assert take_cycle(snapshot.restore(snapshot.encode(of.state)), of.config, of.now_ms) == events


def test_a_job_that_is_about_to_be_resumed_takes_no_room_yet() -> None:
    """A controller gives the nodes of a resumed job back, so the room would be taken in vain."""
    of = world()
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9, suspend=True)
    of.control()
    assert high.suspended
    waiting(of, "high", 4, priority=9, generation=2)
    assert preempted(of) is None
    of.control()
    assert preempted(of) is not None
    of.settle()
    assert high.stage == Stage.RUNNING


def test_room_of_pods_that_never_came_is_free_once_they_cannot_come_any_more() -> None:
    of = world()
    low = of.job("low", workers=4, worker=GPU, min_workers=4, equals=True, priority=1)
    of.cycle()
    assert (low.stage, low.bound) == (Stage.STARTING, {})  # the applier may be creating its pods
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is not None
    of.control()
    assert high.stage == Stage.PENDING
    of.pass_time(11)
    of.control()
    assert high.stage == Stage.STARTING, "nobody else writes anything into a quiet log"


def test_a_third_job_keeps_room_on_a_node_that_another_job_waits_for() -> None:
    """The node counts as overbooked until the victims have left, but what the third job has there is its own."""
    of = world()
    running(of, "low", 3, priority=1)
    third = of.job("third", leader=GPU, priority=5)
    of.cycle()
    assert (third.stage, third.bound) == (Stage.STARTING, {})
    high = waiting(of, "high", 3, priority=9)
    assert preempted(of) is not None
    of.control()
    assert third.stage == Stage.STARTING
    assert [slot for slot, _ in desired_pods(of.state, third).create] == [(0, 0)]
    of.settle()
    assert (third.stage, third.attempt, high.stage) == (Stage.RUNNING, 0, Stage.RUNNING)


@pytest.mark.parametrize("grace_s", [5, 30, 600])
def test_the_room_is_kept_for_the_longest_grace_period_of_the_pods_that_leave(grace_s: int) -> None:
    of = world()
    running(of, "low", 4, priority=1, grace_s=grace_s)
    waiting(of, "high", 4, priority=9, grace_s=1000)
    decision = preempted(of)
    assert decision is not None
    assert decision.until_ms - of.state.time_ms == grace_s * 1000 + CONFIG.room_bound_ms


def test_pods_that_leave_anyway_have_their_grace_period_too() -> None:
    of = world()
    slow = running(of, "slow", 2, priority=1, grace_s=200)
    running(of, "low", 2, priority=1, grace_s=10)
    of.say(k.StageDecided(slow.uid, slow.version, slow.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None and len(decision.leaving) == 2
    assert decision.until_ms - of.state.time_ms == 200_000 + CONFIG.room_bound_ms
    of.job_gone(slow)
    assert grace_ms(of.state, (), [of.state.pods[uid] for uid in decision.leaving]) == 30_000


def decisions(of: World) -> list[k.Preempted]:
    """All decisions of the next cycle that let a job take room. The fold accepts each."""
    found = [event for event in of.cycle() if isinstance(event, k.Preempted)]
    assert not [verdict.reason for verdict in of.verdicts if not verdict.accepted]
    validate(of.state)
    return found


def test_each_of_several_jobs_of_a_cycle_takes_only_what_it_needs() -> None:
    """Volcano takes one pod for each. The second job took two, the third three: none saw what the first had taken."""
    of = world(gpus=8)
    for number in range(8):
        running(of, f"low{number}", 1, priority=1)
    high = [waiting(of, f"high{number}", 1, priority=9) for number in range(3)]
    assert [len(decision.victims) for decision in decisions(of)] == [1, 1, 1]
    of.settle()
    assert all(job.stage == Stage.RUNNING for job in high)
    assert sum(job.stage == Stage.RUNNING for job in of.state.jobs.values()) == 8


def test_what_a_victim_leaves_beyond_its_taker_is_for_the_next_job_of_the_cycle() -> None:
    of = world()
    low, other = running(of, "low", 2, priority=1), running(of, "other", 2, priority=2)
    first, second = waiting(of, "first", 1, priority=9), waiting(of, "second", 1, priority=8)
    (decision,) = decisions(of)
    assert [victim.job_uid for victim in decision.victims] == [low.uid]
    of.settle()
    assert {first.stage, second.stage, other.stage} == {Stage.RUNNING}


def test_a_victim_that_is_all_that_its_queue_uses_frees_it_all() -> None:
    of = world(nodes=2)
    of.watch_queues()
    of.queue("default", capability=(("nvidia.com/gpu", 4),))
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None
    of.settle()
    assert high.stage == Stage.RUNNING


def test_a_job_that_the_guarantees_of_others_keep_out_takes_from_its_own_queue() -> None:
    of = world(nodes=2)
    of.watch_queues()
    of.queue("default")
    of.queue("kept", guarantee=(("nvidia.com/gpu", 4),))
    low = running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [low.uid]
    of.settle()
    assert (high.stage, low.stage) == (Stage.RUNNING, Stage.RESCHEDULING)


def test_a_running_job_without_any_nodes_takes_no_room() -> None:
    """Its stage is Running all the same, so its pods would be created before the others have left."""
    of = world(gpus=3, preemption=None)
    low = running(of, "low", 2, priority=1)
    sets = [("large", 1, shape(cpu=1, gpus=2)), ("small", 1, GPU)]
    job = of.job("two", workers=sets, min_workers=1, restart_limit=0, equals=True, priority=9)
    of.settle()
    of.change_pod(job.bound[2, 0], phase="Failed", ready=False)
    of.pass_time(40)
    of.settle()
    assert (job.stage, job.placements, job.slots.given_up) == (Stage.RUNNING, {}, {(2, 0): None})
    of.config = msgspec.structs.replace(of.config, preemption=Preemption())
    of.pass_time(40)
    assert preempted(of) is None
    placed = k.Placed(job.uid, job.version, 0, ScheduleState.SUCCEED, compact({(1, 0): "n0"}))
    victim = Victim(low.uid, low.version, 0, PreemptionKind.PRIORITY, compact(low.placements), 0)
    cycle = k.CycleTaken(of.state.offset, of.now_ms, of.config)
    of.say(cycle, k.Preempted(placed, (victim,), (), (), of.now_ms + 60_000))
    assert of.verdict("Preempted").reason == "it is Running"
    validate(of.state)


def test_a_later_job_of_the_same_cycle_counts_on_slots_to_which_no_pod_can_come() -> None:
    of = world(nodes=2)
    other = running(of, "other", 4, priority=2)
    low = of.job("low", workers=3, worker=GPU, leader=GPU, min_workers=3, priority=1)
    of.cycle()
    of.control()
    assert (low.stage, low.bound) == (Stage.STARTING, {})  # the workers have no pods before the leader has an address
    high, next_one = waiting(of, "high", 2, priority=9), waiting(of, "next", 1, priority=8)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [low.uid]
    assert len(high.placements) == 2 and other.stage == Stage.RUNNING
    of.cycle()
    assert len(next_one.placements) == 1


# --- lowered limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["capability", "maxRunning"])
def test_nobody_takes_room_for_a_queue_that_has_more_than_it_may(limit: str) -> None:
    """One small job would end all large ones."""
    of = world(nodes=2)
    of.queue("rl")
    for name in ("a", "b"):
        running(of, name, 4, of_queue="rl", priority=1)
    of.queue("rl", **({"capability": (("nvidia.com/gpu", 4),)} if limit == "capability" else {"max_running": 1}))
    small = waiting(of, "small", 1, of_queue="rl", priority=9)
    assert preempted(of) is None and not small.placements
    lacks = lacking_quota(small.waits)
    [why] = why_no_room(of.state, small, of.config, of.now_ms, lacks=lacks, infeasible=False)
    assert why.kind == NoRoomKind.OVER_LIMIT
    of.queue("rl", **({"capability": (("nvidia.com/gpu", 8),)} if limit == "capability" else {"max_running": 2}))
    assert preempted(of) is not None


@pytest.mark.parametrize("later", ["all together", "elsewhere"])
def test_siblings_on_the_node_that_becomes_free_bring_their_parent_down_to_its_share(later: str) -> None:
    """Those that lose the least work are on a node that can't be freed: the search is repeated on single nodes."""
    of = World(config=CONFIG)
    for number in range(3):
        of.node(f"n{number}", cpu=64, gpus=8, labels={"node": f"n{number}"})
    of.watch_queues()
    of.queue("research", deserved=(("nvidia.com/gpu", 16),))
    of.queue("nlp", parent="research", deserved=(("nvidia.com/gpu", 8),))
    of.queue("vision", parent="research", deserved=(("nvidia.com/gpu", 8),))
    of.queue("ops", deserved=(("nvidia.com/gpu", 8),))
    of.queue("product")
    jobs = {}
    where = ("v1 vision n0", "a1 product n0", "o ops n2", "v2 vision n1", "v3 vision n1")
    for name, queue, node in map(str.split, where):
        if name == "v2" and later == "elsewhere":
            of.pass_time(1200)
        jobs[name] = of.job(
            name, equals=True, workers=1, min_workers=1, of_queue=queue,
            worker=shape(cpu=1, gpus=8 if name == "o" else 4, selector={"node": node}),
        )  # fmt: skip
        of.settle()
        assert jobs[name].stage == Stage.RUNNING
    of.pass_time(10)
    mine = of.job("mine", equals=True, workers=1, min_workers=1, worker=shape(cpu=1, gpus=8), of_queue="nlp")
    decision = preempted(of)
    assert decision is not None
    assert len(decision.victims) == 2
    of.settle()
    assert mine.stage == Stage.RUNNING
