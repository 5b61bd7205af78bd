"""Pods that no TYJob owns and that name Arranger as their scheduler: placed, bound and counted like a job's pods."""

import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind, Victim
from arranger.messages.prerequisites import prerequisites_text
from arranger.model.config import CycleConfig
from arranger.model.job import PlacedPods, Replacement, ScheduleState, Slot, Stage
from arranger.model.pod import PodRules, PodTerm
from arranger.model.pods_to_place import SLOT, record_of
from arranger.model.queue import Preemption
from arranger.model.selectors import selector_of
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import JOBS
from arranger.projections.state import State
from arranger.replay.explain.awaited import awaited, awaited_text
from arranger.scheduling.cycle import VERSIONS, take_cycle
from tests.world import World, shape


def waiting(*, cpu: float = 4, **pod: object) -> tuple[World, JobRecord]:
    """A node `n1`, and the pod `web` that waits for a node."""
    world = World()
    world.node("n1", cpu=cpu)
    return world, world.pod_to_place("web", **pod)  # type: ignore[arg-type]


def test_a_pod_gets_a_node_by_a_cycle_and_is_bound_once_it_was_seen_there() -> None:
    world, pod = waiting(of=shape(cpu=3))
    world.cycle()
    assert (pod.stage, pod.placements, pod.schedule_state) == (Stage.STARTING, {SLOT: "n1"}, ScheduleState.SUCCEED)
    assert world.used("n1") == 3000, "the decision holds the room until the pod was seen there"
    validate(world.state)
    world.pod_to_place("web", "n1", of=shape(cpu=3))
    assert (pod.stage, pod.bound) == (Stage.RUNNING, {SLOT: "uid-web"})
    assert world.used("n1") == 3000, "the room is the pod's own now"
    validate(world.state)
    assert world.cycle() == () and world.control() == []


def test_every_cycle_with_pods_is_a_function_of_its_inputs() -> None:
    world, _ = waiting()
    again = snapshot.restore(snapshot.encode(world.state))
    assert take_cycle(again, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)
    world.cycle()
    assert snapshot.encode(snapshot.restore(snapshot.encode(world.state))) == snapshot.encode(world.state)


@pytest.mark.parametrize("node", ["", "n1"])
def test_nothing_remains_of_a_pod_that_is_gone(node: str) -> None:
    world, _ = waiting()
    world.cycle()
    if node:
        world.pod_to_place("web", node)
    world.pod_gone("uid-web")
    assert world.state.jobs == {} and world.used("n1") == 0 and world.state.queue_use.own == {}
    validate(world.state)


def test_an_ended_pod_uses_no_room_and_gets_no_other_node() -> None:
    world, _ = waiting()
    world.cycle()
    world.pod_to_place("web", "n1")
    world.change_pod("uid-web", phase="Succeeded")
    assert world.state.jobs == {} and world.used("n1") == 0
    validate(world.state)


def test_a_pod_that_another_scheduler_bound_first_uses_the_room_there() -> None:
    world, pod = waiting()
    world.cycle()
    world.node("n2")
    world.pod_to_place("web", "n2")
    assert (world.used("n1"), world.used("n2"), pod.placements) == (0, 1000, {SLOT: "n2"})
    validate(world.state)


def test_a_pod_without_room_waits_with_a_reason_and_never_fails() -> None:
    world, pod = waiting(cpu=2, of=shape(cpu=3))
    world.cycle()
    assert pod.waits is not None and pod.waits.shortage.infeasible
    world.pass_time(10 * world.config.infeasible_grace_ms / 1000)
    world.settle()
    assert (pod.stage, pod.schedule_state) == (Stage.PENDING, ScheduleState.UNSCHEDULED)
    world.node("n1", cpu=4)
    world.cycle()
    assert pod.placements == {SLOT: "n1"}


def test_a_gated_pod_gets_no_node_until_its_last_gate_is_gone() -> None:
    world, pod = waiting(gates=("example.com/quota",))
    assert world.cycle() == () and world.control() == []
    world.pod_to_place("web")
    world.cycle()
    assert pod.placements == {SLOT: "n1"}


def test_a_pod_with_resource_claims_gets_no_node_and_says_why() -> None:
    world, pod = waiting(claims=("gpu",))
    assert world.cycle() == () and world.control() == []
    assert prerequisites_text(world.state, pod) == (
        "can't be placed: it has 1 resource claim (gpu), and the setting devices is off; use extended resources"
    )
    assert (
        awaited_text(awaited(world.state, pod))
        == "nothing: the setting devices is off, so its resource claims get none"
    )


def test_a_pod_whose_node_closes_before_it_is_bound_gets_another() -> None:
    world, pod = waiting()
    world.cycle()
    world.node("n1", cordoned=True)
    world.node("n2")
    (decided,) = world.control()
    assert isinstance(decided, k.StageDecided) and decided.reason == StageReason.NODE_CLOSED
    world.cycle()
    assert (pod.stage, pod.placements) == (Stage.STARTING, {SLOT: "n2"})
    world.pod_to_place("web", "n1")  # the first binding was under way
    assert (world.used("n1"), world.used("n2")) == (1000, 0)
    validate(world.state)


@pytest.mark.parametrize(("gone", "reason"), [(True, StageReason.NODE_LOST), (False, StageReason.ROOM_TAKEN)])
def test_a_pod_gives_up_a_node_that_is_gone_or_has_no_room(gone: bool, reason: StageReason) -> None:
    world, pod = waiting(cpu=1)
    world.cycle()
    if gone:
        world.node_gone("n1")
    else:
        world.pod("other", "n1", cpu=1)
    (decided,) = world.control()
    assert isinstance(decided, k.StageDecided) and (decided.reason, pod.placements) == (reason, {})
    validate(world.state)


def test_pods_and_jobs_share_one_order_by_priority() -> None:
    world = World()
    world.node("n1", cpu=2)
    low = world.pod_to_place("low", priority=1)
    job = world.job("ppo", leader=shape(cpu=1), priority=5)
    high = world.pod_to_place("high", priority=9)
    world.cycle()
    assert high.placements and job.placements and not low.placements


def test_the_oldest_of_equal_pods_comes_first() -> None:
    world = World()
    world.node("n1", cpu=1)
    younger = world.pod_to_place("a", created=2000)
    older = world.pod_to_place("b", created=1000)
    world.cycle()
    assert older.placements and not younger.placements


def test_a_pod_counts_in_its_queue_and_waits_for_its_limit() -> None:
    world = World()
    world.node("n1", cpu=8)
    world.queue("small", capability=(("cpu", 1000),))
    first = world.pod_to_place("a", of_queue="small", created=1)
    second = world.pod_to_place("b", of_queue="small", created=2)
    world.cycle()
    assert first.placements and not second.placements
    assert world.state.queue_use.own == {"small": {JOBS: 1, "cpu": 1000}}
    world.pod_to_place("a", "n1", of_queue="small", created=1)
    assert world.state.queue_use.own == {"small": {JOBS: 1, "cpu": 1000}}
    world.pod_gone("uid-a")
    world.cycle()
    assert second.placements


def test_a_resource_quota_doesnt_count_a_pod_again_that_exists() -> None:
    world, pod = waiting()
    world.quota("one", {"pods": 1}, {"pods": 1})
    world.cycle()
    assert pod.placements == {SLOT: "n1"}


def test_rules_about_other_pods_hold_among_pods_to_place() -> None:
    alone = PodTerm("kubernetes.io/hostname", selector_of({"matchLabels": {"app": "db"}}))
    of = shape(cpu=1, labels={"app": "db"}, rules=PodRules(anti_affinity=(alone,)))
    world = World()
    world.node("n1", labels={"kubernetes.io/hostname": "n1"})
    first, second = world.pod_to_place("db-0", of=of, created=1), world.pod_to_place("db-1", of=of, created=2)
    world.cycle()
    assert first.placements and not second.placements


def test_labels_of_arranger_are_only_those_that_a_pod_has() -> None:
    """A rule about the workers of jobs says nothing about other pods."""
    no_workers = PodTerm("kubernetes.io/hostname", selector_of({"matchLabels": {"arranger.dev/role": "worker"}}))
    world = World()
    world.node("n1", labels={"kubernetes.io/hostname": "n1"})
    world.pod_to_place("web", created=1)
    world.cycle()
    other = world.pod_to_place("shy", of=shape(cpu=1, rules=PodRules(anti_affinity=(no_workers,))))
    world.cycle()
    assert other.placements == {SLOT: "n1"}


def crowded() -> tuple[World, JobRecord]:
    """A running job of priority 5 that has all of `n1`, and preemption."""
    world = World(config=CycleConfig(versions=VERSIONS, preemption=Preemption()))
    world.node("n1", cpu=4)
    job = world.job("ppo", leader=shape(cpu=4), priority=5)
    world.settle()
    assert job.stage == Stage.RUNNING
    return world, job


def test_a_job_of_lower_priority_gives_room_to_a_pod() -> None:
    world, job = crowded()
    pod = world.pod_to_place("web", of=shape(cpu=2), priority=9)
    world.cycle()
    assert job.stage == Stage.RESCHEDULING and pod.placements == {SLOT: "n1"}
    assert (pod.stage, world.control()) == (Stage.PENDING, []), "it isn't bound while the other pods are there"
    world.apply()
    world.control()
    assert pod.stage == Stage.STARTING
    validate(world.state)


def test_a_pod_that_must_not_preempt_waits() -> None:
    world, job = crowded()
    pod = world.pod_to_place("web", of=shape(cpu=2), priority=9, preempts=False)
    world.cycle()
    assert job.stage == Stage.RUNNING and not pod.placements


def test_a_pod_gives_room_to_nobody() -> None:
    world, pod = waiting(of=shape(cpu=4), priority=1)
    world.cycle()
    world.pod_to_place("web", "n1", of=shape(cpu=4), priority=1)
    job = world.job("ppo", leader=shape(cpu=4), priority=9)
    world.cycle()
    assert not job.placements and pod.stage == Stage.RUNNING


def test_no_decision_takes_a_pod_out_of_its_slot() -> None:
    world, pod = waiting()
    world.cycle()
    world.pod_to_place("web", "n1")
    job = world.job("ppo", leader=shape(cpu=100), priority=9)
    stage = k.StageDecided(pod.uid, pod.version, 0, Stage.RESCHEDULING, StageReason.NODE_LOST)
    worker = k.EndedWorker(Slot(*SLOT), "uid-web", Replacement.ELSEWHERE, False)
    replaced = k.WorkersReplaced(pod.uid, pod.version, 0, (worker,), ())
    pods = (PlacedPods("n1", 1, ((0, 0),)),)
    victim = Victim(pod.uid, pod.version, 0, PreemptionKind.PRIORITY, pods, 0)
    placed = k.Placed(job.uid, job.version, 0, ScheduleState.SUCCEED, (PlacedPods("n1", 0, ((0, 0),)),))
    world.say(stage)
    world.say(replaced)
    world.say(
        k.CycleTaken(world.state.offset, world.now_ms, world.config), k.Preempted(placed, (victim,), (), (), 1)
    )  # fmt: skip
    verdicts = world.verdicts[-4:]
    assert [of.kind for of in verdicts if not of.accepted] == ["StageDecided", "WorkersReplaced", "Preempted"]
    assert pod.bound == {SLOT: "uid-web"}
    validate(world.state)


def test_a_tyjob_of_the_same_name_is_another_job() -> None:
    world, pod = waiting()
    job = world.job("web", leader=shape(cpu=1))
    assert world.state.find_job("default", "web") is job
    assert world.state.find_job("default", record_of("web")) is pod


def test_a_resized_pod_holds_what_it_asks_for_now() -> None:
    world, pod = waiting()
    world.cycle()
    world.pod_to_place("web", of=shape(cpu=2))
    assert (world.used("n1"), world.state.queue_use.own["default"]["cpu"]) == (2000, 2000)
    world.pod_to_place("web", "n1", of=shape(cpu=2))
    world.pod_to_place("web", "n1", of=shape(cpu=3))
    assert (world.used("n1"), world.state.queue_use.own["default"]["cpu"]) == (3000, 3000)
    validate(world.state)
    assert pod.stage == Stage.RUNNING


def test_a_pod_that_is_being_deleted_without_a_node_gets_none() -> None:
    world, pod = waiting()
    world.cycle()
    world.pod_to_place("web", deleting=True)
    assert not pod.placements
    validate(world.state)
    world.wait_for_late_pods()
    assert world.cycle() == () and world.control() == [] and world.used("n1") == 0


def test_a_pod_of_another_scheduler_is_nobodys_to_place() -> None:
    world = World()
    world.node("n1")
    world.pod("web", phase="Pending", cpu=1)
    assert world.state.pods["uid-web"].asks is None
    assert world.state.jobs == {} and world.cycle() == ()


def test_a_new_epoch_finds_the_pods_that_run() -> None:
    world, _ = waiting()
    world.cycle()
    world.pod_to_place("web", "n1")
    later = World()
    later.node("n1", cpu=4)
    pod = later.pod_to_place("web", "n1")
    assert (pod.stage, pod.placements) == (Stage.RUNNING, {SLOT: "n1"}) and later.used("n1") == 1000
    assert isinstance(later.state, State) and later.state.queue_use.own == world.state.queue_use.own
    validate(later.state)


def test_a_forged_observation_may_give_a_pod_of_its_own_record_another_name() -> None:
    world = World()
    job = world.pod_to_place("p1", uid="u")
    world.pod_to_place("p0", uid="u", priority=3)
    assert world.state.jobs[job.uid].seen.name == "pod:p0"
    validate(world.state)
    world.pod_gone("u")
    validate(world.state)
