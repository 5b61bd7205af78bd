"""Workers that end while their job goes on: replaced alone, on which node, at whose expense, and given up when."""

from collections.abc import Callable

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import NodeLeft, NodeTrouble
from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_pods, desired_status, orphans
from arranger.messages.decisions import replaced_text, stage_text
from arranger.model.job import (
    CleanPodPolicy,
    Replacement,
    RestartEvent,
    RestartPolicy,
    RestartScope,
    ScheduleState,
    Stage,
)
from arranger.model.node import Taint
from arranger.model.pod import FAILURES_KEPT, ContainerEnd, PodTimes, Toleration
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.unit.replay_worlds import explained
from tests.world import World, shape, starting

LEADER = (0, 0)


def running(*, nodes: int = 2, cpu: float = 3, **job: object) -> tuple[World, JobRecord]:
    """A leader and three workers of 1 cpu on nodes n1, n2 …; Running."""
    world = World()
    for number in range(1, nodes + 1):
        world.node(f"n{number}", cpu=cpu)
    record = world.job("ppo", **{"workers": 3, "min_workers": 1, **job})  # type: ignore[arg-type]
    world.settle()
    assert record.stage == Stage.RUNNING
    return world, record


def fail(world: World, job: JobRecord, *indices: int, **more: object) -> list[str]:
    """These workers' pods fail; their UIDs."""
    uids = [job.bound[(1, index)] for index in indices]
    for uid in uids:
        world.change_pod(uid, **{"phase": "Failed", "ready": False, **more})
    return uids


#: Seconds before failed workers come again a first time.
FIRST_S = 10.0


def later(world: World, seconds: float = FIRST_S) -> None:
    world.pass_time(seconds)
    world.settle()
    validate(world.state)


def decided(world: World) -> k.WorkersReplaced:
    decision = world.control()[0]
    assert isinstance(decision, k.WorkersReplaced)
    return decision


def restarts(world: World, job: JobRecord) -> tuple[int, int]:
    """What the status shows in total and what of it is of pods that are gone."""
    of_set = desired_status(world.state, job)["workers"][0]
    return of_set["restarts"], of_set["restartsOfEarlierPods"]


def test_a_failed_worker_is_replaced_alone_on_its_node_and_counted_once() -> None:
    world, job = running()
    node = job.placements[(1, 1)]
    fail(world, job, 1)
    later(world)
    assert (job.stage, job.attempt, job.placements[(1, 1)]) == (Stage.RUNNING, 0, node)
    assert world.state.pods[job.bound[(1, 1)]].phase == "Running"
    assert restarts(world, job) == (1, 1) and job.spent == {"actors": 1}


def test_the_old_pod_goes_before_the_new_one_comes_because_both_have_one_name() -> None:
    world, job = running()
    [uid] = fail(world, job, 1)
    world.pass_time(FIRST_S)
    decided(world)
    desired = desired_pods(world.state, job)
    assert [pod.uid for pod in desired.delete] == [uid] and desired.create == []
    world.change_pod(uid, deleting=True)
    desired = desired_pods(world.state, job)
    assert (desired.delete, desired.create) == ([], [])
    world.pod_gone(uid)
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [(1, 1)] and not job.retired


def test_the_room_of_a_replaced_worker_is_held_while_its_old_pod_goes() -> None:
    world, job = running(nodes=1, cpu=4)
    fail(world, job, 1)
    assert world.used("n1") == 3000
    world.pass_time(FIRST_S)
    decided(world)
    assert world.used("n1") == 4000
    other = world.job("other")
    world.cycle()
    assert not other.placements


def test_a_worker_whose_room_was_taken_meanwhile_goes_elsewhere() -> None:
    world, job = running(cpu=4)
    assert set(job.placements.values()) == {"n1"}
    fail(world, job, 1)
    world.pod("stranger", "n1", cpu=1)
    world.pass_time(FIRST_S)
    [worker] = decided(world).workers
    assert worker.how == "Elsewhere" and (1, 1) not in job.placements
    assert job.schedule_state == ScheduleState.PARTLY
    world.settle()
    assert job.placements[(1, 1)] == "n2" and job.schedule_state == ScheduleState.SUCCEED
    assert job.spent == {"actors": 1}
    validate(world.state)


def test_a_worker_fails_over_from_a_node_that_is_cordoned_or_not_ready() -> None:
    for trouble in ({"cordoned": True}, {"ready": False}):
        world, job = spread_over(3)
        world.node("n4", cpu=1)
        fail(world, job, 0)
        world.node("n2", cpu=1, **trouble)  # type: ignore[arg-type]
        later(world)
        assert job.placements[(1, 0)] == "n4" and job.stage == Stage.RUNNING


@pytest.mark.parametrize("effect", ["NoSchedule", "", "NoExecute"])
def test_pods_that_tolerate_a_cordon_come_to_a_cordoned_node_and_stay(effect: str) -> None:
    tolerant = shape(cpu=1, tolerations=[Toleration("node.kubernetes.io/unschedulable", "Exists", "", effect)])
    world = World()
    world.node("n1", cpu=2, cordoned=True)
    job = world.job("ppo", leader=tolerant, worker=tolerant, workers=1)
    world.settle()
    assert (job.stage == Stage.RUNNING) == (effect != "NoExecute")
    if effect != "NoExecute":
        fail(world, job, 0)
        later(world)
        assert job.placements[(1, 0)] == "n1" and job.stage == Stage.RUNNING
    validate(world.state)


def test_room_that_went_between_decision_and_log_makes_the_decision_void() -> None:
    world, job = running(nodes=1, cpu=4)
    [uid] = fail(world, job, 1)
    version = job.version
    world.pod("stranger", "n1", cpu=1)
    kept = k.EndedWorker(k.Slot(1, 1), uid, "SameNode", True)
    world.say(k.WorkersReplaced(job.uid, version, 0, (kept,), ()))
    assert "lacks cpu" in world.verdict("WorkersReplaced").reason and job.bound[(1, 1)] == uid
    validate(world.state)


def test_a_decision_on_another_pod_than_the_place_has_is_void() -> None:
    world, job = running()
    for worker in (
        k.EndedWorker(k.Slot(1, 1), "another", "Elsewhere", False),
        k.EndedWorker(k.Slot(0, 0), job.bound[LEADER], "Elsewhere", False),
        k.EndedWorker(k.Slot(1, 9), "", "GivenUp", False),
    ):
        world.say(k.WorkersReplaced(job.uid, job.version, 0, (worker,), ()))
        assert not world.verdict("WorkersReplaced").accepted
    twice = k.EndedWorker(k.Slot(1, 1), job.bound[(1, 1)], "Elsewhere", False)
    world.say(k.WorkersReplaced(job.uid, job.version, 0, (twice, twice), ()))
    assert not world.verdict("WorkersReplaced").accepted and len(job.bound) == 4


def test_failed_workers_wait_for_news_of_the_leader_whose_failure_is_another_attempts() -> None:
    world, job = running(restart_limit=1)
    fail(world, job, 0, 1, 2)
    assert world.control() == []
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False)
    world.settle()
    world.wait_for_back_offs()
    world.settle()
    assert (job.stage, job.attempt, job.spent, job.slots.given_up) == (Stage.RUNNING, 1, {}, {})


def test_replacements_in_one_set_back_off() -> None:
    world, job = running(restart_limit=9)
    waited = []
    for _ in range(6):
        [uid] = fail(world, job, 0)
        since = world.now_ms
        while world.state.pods[uid].phase == "Failed" and uid == job.bound.get((1, 0)):
            later(world, 1)
        waited.append((world.now_ms - since) // 1000)
    assert waited == [10, 20, 40, 80, 160, 300]
    later(world, 601)
    fail(world, job, 0)
    later(world)
    assert world.state.pods[job.bound[(1, 0)]].phase == "Running", "no failures for a while: the first of a row"


def twice(world: World, job: JobRecord, index: int) -> str:
    """A worker fails twice, the second time with this pod."""
    for _ in range(2):
        [uid] = fail(world, job, index)
        later(world, 100)
    return uid


def test_a_worker_over_its_limit_is_given_up_and_the_job_goes_on_without() -> None:
    world, job = running(restart_limit=1)
    fail(world, job, 0)
    later(world)
    uid = twice(world, job, 2)
    assert job.slots.given_up == {(1, 2): None} and (1, 2) not in job.placements
    assert (job.stage, job.schedule_state, job.pods_desired()) == (Stage.RUNNING, ScheduleState.SUCCEED, 3)
    assert world.state.pods[uid].phase == "Failed", "its log can be read"
    of_set = desired_status(world.state, job)["workers"][0]
    assert (of_set["failed"], of_set["givenUp"], of_set["restarts"]) == (1, "2", 2)
    world.pod_gone(uid)
    later(world, 1000)
    assert (1, 2) not in job.bound and job.stage == Stage.RUNNING


def test_eight_workers_that_fail_once_each_under_a_limit_of_three_are_all_replaced() -> None:
    world, job = running(cpu=10, workers=8, min_workers=8, restart_limit=3)
    for _ in range(3):
        fail(world, job, *range(8))
        later(world, 1000)
        assert (job.stage, job.attempt, len(job.bound), job.slots.given_up) == (Stage.RUNNING, 0, 9, {})
    assert desired_status(world.state, job)["workers"][0]["restartsByIndex"] == "0-7:3"
    fail(world, job, 5)
    later(world, 1000)
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided) == "1 worker is given up (restartLimit is 3) and minWorkersNum is 8"


def test_each_set_has_a_limit_of_its_own() -> None:
    world = World()
    world.node("n1", cpu=9)
    sets = [("actors", 2, shape(cpu=1)), ("eval", 2, shape(cpu=1))]
    job = world.job("ppo", workers=sets, min_workers=1, restart_limit=1, restart={"eval": RestartPolicy(limit=0)})
    world.settle()
    for slot in ((1, 0), (2, 0)):
        world.change_pod(job.bound[slot], phase="Failed", ready=False)
    later(world)
    assert job.slots.given_up == {(2, 0): None} and job.spent == {"actors": 1}


def test_restarts_after_the_window_count_anew() -> None:
    world, job = running(restart={"actors": RestartPolicy(limit=1, window_s=600)})
    for pause_s in (700, 700, 100):
        fail(world, job, 0)
        later(world, pause_s)
        assert not job.slots.given_up
    fail(world, job, 0)
    later(world)
    assert job.slots.given_up == {(1, 0): None}


def test_without_a_window_restarts_count_within_the_attempt() -> None:
    world, job = running(restart_limit=1)
    fail(world, job, 0)
    later(world)
    assert job.slots.charged.keys() == {(1, 0)}
    world.pod_gone(job.bound[LEADER])
    world.settle()
    assert job.attempt == 1 and not job.slots.charged
    fail(world, job, 0)
    later(world, 100)
    assert (job.stage, job.slots.given_up) == (Stage.RUNNING, {})


# --- what a failure restarts ----------------------------------------------------------------------------------------

SET, JOB = [RestartPolicy(scope, limit=1, own_limit=True) for scope in (RestartScope.SET, RestartScope.JOB)]


def test_a_set_is_restarted_as_a_whole_on_its_nodes() -> None:
    """The room of the workers that go on is theirs until their pods are gone, also on full nodes."""
    world, job = running(cpu=2, restart={"actors": SET})
    before, leader, nodes = dict(job.bound), job.bound[LEADER], dict(job.placements)
    fail(world, job, 1)
    world.pass_time(FIRST_S)
    decision = decided(world)
    assert [(worker.slot.index, worker.how) for worker in decision.workers] == [
        (0, Replacement.RESTARTED), (1, Replacement.SAME_NODE), (2, Replacement.RESTARTED)]  # fmt: skip
    said = replaced_text(decision.causes, job.spec)
    assert said == f"workers replaced: failed: actors 1 (node {nodes[(1, 1)]}); 2 other workers of actors restarted too"
    validate(world.state)
    wanted = desired_pods(world.state, job)
    assert {pod.uid for pod in wanted.delete} == {uid for slot, uid in before.items() if slot != LEADER}
    assert wanted.create == [], "the names are taken"
    world.change_pod(before[(1, 0)], phase="Failed", deleting=True, ready=False)  # it ends because it is deleted
    assert not world.control()
    world.pod_gone(before[(1, 0)])
    later(world, 1)
    assert job.bound[LEADER] == leader and len(job.bound) == 4
    assert all(world.state.pods[uid].phase == "Running" for uid in job.bound.values())
    assert (job.placements, job.stage, job.attempt) == (nodes, Stage.RUNNING, 0)
    assert job.spent == {"actors": 1} and job.slots.charged.keys() == {(1, 1)} and not job.retired
    assert not world.control()


ANY = RestartEvent.POD_ENDED


def versions_of(world: World, job: JobRecord) -> dict[tuple[int, int], str]:
    """The version of each slot's pod."""
    return {slot: world.state.pods[uid].resource_version for slot, uid in job.bound.items()}


def created_since(world: World, job: JobRecord, versions: dict[tuple[int, int], str]) -> set[tuple[int, int]]:
    """The slots whose pods are others than then: in a world, pods of one name have one UID."""
    return {slot for slot, version in versions_of(world, job).items() if versions[slot] != version}


def test_a_deleted_worker_restarts_its_set_on_its_nodes_and_none_is_counted() -> None:
    """However it went: by `kubectl delete`, an eviction, or a drain."""
    world, job = running(cpu=2, restart={"actors": msgspec.structs.replace(SET, event=ANY)})
    before, nodes, versions = dict(job.bound), dict(job.placements), versions_of(world, job)
    world.change_pod(before[(1, 1)], deleting=True)
    assert not world.control() and not desired_pods(world.state, job).delete, "it hasn't ended yet"
    world.pod_gone(before[(1, 1)])
    validate(world.state)
    assert {pod.uid for pod in desired_pods(world.state, job).delete} == {before[(1, 0)], before[(1, 2)]}
    said = replaced_text(job.replaced.causes, job.spec)
    assert said == "workers replaced: deleted: actors 1; 2 other workers of actors restarted too"
    world.settle()
    validate(world.state)
    assert created_since(world, job, versions) == {(1, 0), (1, 1), (1, 2)}
    assert (job.placements, job.stage, job.attempt, job.spent) == (nodes, Stage.RUNNING, 0, {})


def test_a_deleted_worker_restarts_the_whole_job_where_its_policy_says_so() -> None:
    world, job = running(restart={"actors": msgspec.structs.replace(JOB, event=ANY)})
    world.pod_gone(job.bound[(1, 1)])
    assert not desired_pods(world.state, job).create, "it isn't created again in this attempt"
    world.settle()
    validate(world.state)
    assert (job.stage, job.attempt, job.spent, job.deleted) == (Stage.RUNNING, 1, {}, ())
    decision = next(of for of, _ in job.steps if of.reason == "WorkerEnded")
    assert decision.back_off_ms == 0
    assert stage_text(decision) == "the pod of worker actors-1 was deleted; the whole job is restarted"


@pytest.mark.parametrize("scope", [SET, JOB])
def test_a_deleted_worker_is_only_created_again_where_failed_pods_alone_restart_others(scope: RestartPolicy) -> None:
    world, job = running(restart={"actors": scope})
    versions = versions_of(world, job)
    world.pod_gone(job.bound[(1, 1)])
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 0)
    assert created_since(world, job, versions) == {(1, 1)}


@pytest.mark.parametrize("scope", [SET, JOB])
def test_a_finished_worker_that_is_deleted_restarts_nothing(scope: RestartPolicy) -> None:
    world, job = running(restart={"actors": msgspec.structs.replace(scope, event=ANY)})
    uid = job.bound[(1, 1)]
    world.change_pod(uid, phase="Succeeded", ready=False)
    world.pod_gone(uid)
    assert not job.retired and not job.deleted


@pytest.mark.parametrize("scope", [SET, JOB])
def test_a_drained_worker_restarts_the_others_too(scope: RestartPolicy) -> None:
    world, job = running(restart={"actors": msgspec.structs.replace(scope, event=ANY)})
    versions = versions_of(world, job)
    node = job.placements[(1, 1)]
    world.node("further", cpu=9)
    world.node(node, cpu=3, cordoned=True)
    world.pod_gone(job.bound[(1, 1)])
    world.settle()
    validate(world.state)
    again = created_since(world, job, versions)
    assert again >= {(1, 0), (1, 1), (1, 2)} and (LEADER in again) == (scope is JOB)
    assert job.placements[(1, 1)] != node and job.stage == Stage.RUNNING


def test_an_edit_while_a_set_is_restarted_keeps_its_nodes() -> None:
    world, job = running(cpu=2, restart={"actors": SET})
    nodes = dict(job.placements)
    fail(world, job, 1)
    world.pass_time(FIRST_S)
    decided(world)
    world.job("ppo", workers=3, min_workers=1, priority=9, generation=2, restart={"actors": SET})
    validate(world.state)
    later(world, 1)
    assert job.placements == nodes and len(job.bound) == 4 and job.attempt == 0


def test_an_evicted_worker_restarts_its_set_too_and_costs_nothing() -> None:
    world, job = running(restart={"actors": SET})
    fail(world, job, 1, reason="Evicted")
    hows = {worker.slot.index: worker.how for worker in decided(world).workers}
    assert hows == {0: Replacement.RESTARTED, 1: Replacement.ELSEWHERE, 2: Replacement.RESTARTED}
    assert not job.slots.charged


@pytest.mark.parametrize("under_pressure", [True, False])
def test_an_evicted_worker_is_replaced_alone_and_keeps_off_its_node_while_that_is_under_pressure(
    under_pressure: bool,
) -> None:
    """No eviction is counted, and none is remembered of the node: what keeps pods off is the taint of Kubernetes."""
    world, job = running(nodes=1, restart_limit=0)
    for times in range(1, 6):
        node = job.placements[(1, 1)]
        pressure = [Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule")] if under_pressure else []
        world.node(node, cpu=4, taints=pressure)
        other = f"further-{times}"
        world.node(other, cpu=1)
        fail(world, job, 1, reason="Evicted")
        [worker] = decided(world).workers
        assert (worker.slot.index, worker.how) == (1, Replacement.ELSEWHERE)
        if not under_pressure:
            world.node(other, cpu=0)
        later(world)
        assert job.placements[(1, 1)] == (other if under_pressure else node)
        assert (job.stage, job.attempt, job.slots.charged, job.slots.given_up) == (Stage.RUNNING, 0, {}, {})


def test_an_evicted_worker_of_the_quorum_takes_the_job_to_a_new_attempt_and_costs_nothing() -> None:
    world, job = running(min_workers=3, restart_limit=0)
    fail(world, job, 1, reason="Evicted")
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts, job.slots.charged) == (Stage.RUNNING, 1, 0, {})
    assert any(of.reason == "WorkersLost" for of, _ in job.steps)


def test_workers_that_fail_with_their_leader_use_up_no_limit_of_the_job() -> None:
    world, job = running(restart_limit=9, restart={"actors": JOB})
    for attempt in (1, 2, 3):
        fail(world, job, 0, 1)
        world.change_pod(job.bound[LEADER], phase="Failed", ready=False)
        world.control()
        assert (job.stage, job.attempt, job.slots.charged) == (Stage.RESCHEDULING, attempt, {})
        world.wait_for_back_offs()
        world.settle()
    fail(world, job, 0)
    later(world)
    assert job.decided is not None and job.decided.reason == "WorkerEnded" and job.slots.charged.keys() == {(1, 0)}


def test_a_worker_may_restart_the_whole_job_and_fails_it_at_its_limit() -> None:
    world, job = running(restart={"actors": JOB})
    fail(world, job, 2)
    world.pass_time(FIRST_S)
    world.control()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RESCHEDULING, 1, 0) and job.decided is not None
    assert stage_text(job.decided) == "worker actors-2 ended (its containers failed); the whole job is restarted"
    assert job.not_before_ms > world.now_ms
    world.wait_for_back_offs()
    world.settle()
    assert job.stage == Stage.RUNNING and job.slots.charged.keys() == {(1, 2)}
    fail(world, job, 2)
    later(world)
    assert job.stage == Stage.FAILED
    assert (
        stage_text(job.decided)
        == "worker actors-2 failed (its containers failed) and workerSets[actors].restart.limit is 1"
    )


def test_a_worker_beyond_its_limit_fails_the_job_also_beside_one_within_it() -> None:
    world, job = running(restart={"actors": JOB})
    fail(world, job, 2)
    world.pass_time(FIRST_S)
    world.control()
    world.wait_for_back_offs()
    world.settle()
    fail(world, job, 0, 2)
    later(world)
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided).startswith("worker actors-2 failed (its containers failed) and workerSets[actors].")


def test_the_message_names_the_field_that_sets_the_limit() -> None:
    own = {"actors": RestartPolicy(limit=0, own_limit=True)}
    world, job = running(restart_limit=2, min_workers=3, restart=own)
    fail(world, job, 0)
    later(world)
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided) == (
        "1 worker is given up (workerSets[actors].restart.limit is 0) and minWorkersNum is 3"
    )


def test_when_too_many_are_given_up_for_the_minimum_the_job_fails() -> None:
    world, job = running(restart_limit=0, min_workers=2)
    fail(world, job, 0)
    later(world)
    assert job.stage == Stage.RUNNING and job.slots.given_up == {(1, 0): None}
    fail(world, job, 1)
    later(world)
    assert job.decided is not None and (job.stage, job.decided.reason) == (Stage.FAILED, "WorkersFailed")
    assert stage_text(job.decided) == "2 workers are given up (restartLimit is 0) and minWorkersNum is 2"
    assert desired_status(world.state, job)["workers"][0]["failed"] == 2


def test_container_restarts_eat_the_same_budget_and_a_worker_that_only_restarts_is_given_up_and_deleted() -> None:
    world, job = running(restart_limit=2)
    fail(world, job, 1)
    later(world)
    world.change_pod(job.bound[(1, 1)], restarts=1)
    later(world, 100)
    assert not job.slots.given_up and restarts(world, job) == (2, 1)
    uid = job.bound[(1, 1)]
    world.change_pod(uid, restarts=2, ready=False)
    later(world)
    assert job.slots.given_up == {(1, 1): None} and uid not in world.state.pods
    assert restarts(world, job) == (3, 3) and job.stage == Stage.RUNNING


def test_a_worker_that_finished_after_restarts_is_not_the_one_that_is_given_up() -> None:
    world, job = running(restart_limit=2)
    world.change_pod(job.bound[(1, 0)], restarts=3, phase="Succeeded", ready=False)
    world.change_pod(job.bound[(1, 1)], restarts=3)
    world.pass_time(FIRST_S)
    world.control()
    assert job.slots.given_up == {(1, 1): None} and (1, 0) in job.bound
    assert restarts(world, job)[0] == 6


def test_a_worker_that_is_given_up_or_restarted_with_others_was_not_restarted_itself() -> None:
    world, job = running(restart={"actors": SET})
    fail(world, job, 1)
    later(world)
    assert restarts(world, job) == (1, 1)
    fail(world, job, 1)
    later(world, 100)
    assert job.slots.given_up == {(1, 1): None} and restarts(world, job) == (1, 1)
    assert desired_status(world.state, job)["restarts"] == 1


def test_a_failure_that_restarts_the_whole_job_is_a_restart() -> None:
    world, job = running(restart={"actors": JOB})
    fail(world, job, 0, 2)
    later(world)
    assert job.attempt == 1 and restarts(world, job) == (2, 2)
    world.wait_for_back_offs()
    world.settle()
    fail(world, job, 0, reason="Evicted")
    later(world, 100)
    assert job.attempt == 2 and restarts(world, job) == (2, 2)


def test_a_lost_or_evicted_or_deleted_worker_costs_nothing() -> None:
    world, job = running(restart_limit=0)
    for _ in range(3):
        fail(world, job, 0, reason="Evicted")
        world.settle()
        [uid] = fail(world, job, 1, deleting=True)
        world.pod_gone(uid)
        world.settle()
    assert (job.stage, job.attempt, restarts(world, job), job.slots.given_up) == (Stage.RUNNING, 0, (0, 0), {})
    assert len(job.bound) == 4
    validate(world.state)


def test_a_worker_that_ends_well_because_its_node_shuts_down_is_replaced_and_one_that_finished_is_not() -> None:
    world, job = running(restart_limit=0)
    world.change_pod(job.bound[(1, 0)], phase="Succeeded", ready=False, reason="Terminated")
    world.change_pod(job.bound[(1, 1)], phase="Succeeded", ready=False)
    [worker] = decided(world).workers
    assert (worker.slot, worker.how, worker.counted) == (k.Slot(1, 0), "Elsewhere", False)


def test_the_room_of_a_deleted_worker_that_others_took_is_not_booked_twice() -> None:
    world, job = running(nodes=1, cpu=4)
    [uid] = fail(world, job, 1, deleting=True)
    world.pod("stranger", "n1", cpu=1)
    world.pod_gone(uid)
    assert world.used("n1") == 4000 and (1, 1) not in job.placements
    assert job.schedule_state == ScheduleState.PARTLY
    world.node("n2", cpu=1)
    world.settle()
    assert job.placements[(1, 1)] == "n2"


def test_a_worker_whose_node_is_gone_with_its_pod_is_placed_elsewhere() -> None:
    world, job = running(cpu=4)
    world.node("n3", cpu=4)
    world.job("ppo", workers=6, min_workers=1)
    world.settle()
    lost = [slot for slot, node in job.placements.items() if node == "n2"]
    assert lost and job.placements[LEADER] == "n1"
    world.node_gone("n2")
    for slot in lost:
        world.pod_gone(job.bound[slot])
    world.settle()
    assert (job.stage, job.attempt, len(job.bound)) == (Stage.RUNNING, 0, 7)
    assert {job.placements[slot] for slot in lost} == {"n3"} and job.spent == {}


def test_an_update_of_a_replaced_pod_does_not_bring_it_back() -> None:
    world, job = running()
    [uid] = fail(world, job, 1)
    world.pass_time(FIRST_S)
    decided(world)
    world.change_pod(uid, message="again")
    assert (1, 1) not in job.bound and uid in job.retired


def test_the_last_failures_of_all_pods_are_told_the_newest_first_and_outlive_the_log() -> None:
    world, job = running(restart_limit=100)
    killed = ContainerEnd("main", 137, 0, "OOMKilled", "out of memory")
    for number in range(4):
        fail(world, job, 1, ended=ContainerEnd("main", number + 1, 0, "Error"))
        later(world, 1_000)
    world.change_pod(job.bound[(1, 2)], restarts=1, ended=ContainerEnd("main", 0, 9))
    world.pass_time(1)
    world.change_pod(job.bound[LEADER], restarts=1, ended=killed)
    world.change_pod(job.bound[LEADER], ip="10.1.1.1")  # the same failure, observed again
    status = desired_status(world.state, job)
    told = status["lastFailures"]
    assert told[0] == {
        "pod": "ppo-learner-0", "index": 0, "attempt": 0, "node": job.placements[LEADER], "time": told[0]["time"],
        "container": "main", "exitCode": 137, "reason": "OOMKilled", "message": "out of memory",
    }  # fmt: skip
    assert [(each.get("workerSet"), each["exitCode"], each.get("signal")) for each in told] == [
        (None, 137, None), ("actors", 0, 9), ("actors", 4, None), ("actors", 3, None), ("actors", 2, None),
    ]  # fmt: skip
    seen = job_status_seen(status, job.spec)
    assert seen is not None
    assert len(seen.failures) == FAILURES_KEPT
    new = World()
    new.pass_time(100_000)
    adopted = new.job("ppo", workers=3, min_workers=1, restart_limit=100, status=seen)
    assert desired_status(new.state, adopted)["lastFailures"] == told
    leader = world.state.pods[job.bound[LEADER]]
    new.pod(leader.name, leader.node, owner=leader.owner, phase="Running", restarts=1, ended=killed)
    assert desired_status(new.state, adopted)["lastFailures"] == told, "seen by the lost log, too"
    new.change_pod(adopted.bound[LEADER], restarts=2)
    assert desired_status(new.state, adopted)["lastFailures"][1] == told[0], "and again"


def test_what_was_spent_and_given_up_outlives_the_log() -> None:
    world, job = running(restart_limit=2)
    fail(world, job, 0, restarts=1)
    later(world)
    fail(world, job, 2, restarts=2)
    later(world)
    world.change_pod(job.bound[LEADER], restarts=1)
    status = desired_status(world.state, job)
    assert (status["restarts"], status["restartsOfEarlierPods"]) == (5, 0)
    assert status["workers"][0]["restartsByIndex"] == "0:2,2:3"
    new = World()
    new.node("n1", cpu=3)
    new.node("n2", cpu=3)
    for pod in world.state.pods.values():
        new.pod(pod.name, pod.node, owner=pod.owner, phase=pod.phase, restarts=pod.restarts, ip=pod.ip, cpu=1)
    again = new.job("ppo", workers=3, min_workers=1, restart_limit=2, status=job_status_seen(status, job.spec))
    assert (again.spent, again.slots.given_up) == ({"actors": 4}, {(1, 2): None}) == (job.spent, job.slots.given_up)
    assert again.placements == job.placements and again.bound.keys() == job.bound.keys()
    new.settle()
    shown = desired_status(new.state, again)
    assert {name: shown[name] for name in ("restarts", "workers")} == {n: status[n] for n in ("restarts", "workers")}
    validate(new.state)


def test_a_status_of_an_earlier_version_counts_as_the_leaders_restarts() -> None:
    seen = job_status_seen({"stage": "Running", "restarts": 2, "workers": [{"name": "actors", "restarts": 1}]}, None)
    assert seen is not None and (seen.restarts, seen.worker_restarts, seen.given_up) == (2, (), ())


def test_all_of_it_is_in_a_snapshot() -> None:
    world, job = running(restart_limit=1)
    twice(world, job, 2)
    fail(world, job, 1, reason="Evicted")
    world.control()
    assert job.slots.given_up and job.retired and job.spent and job.replaced
    restored = snapshot.restore(snapshot.encode(world.state))
    assert snapshot.digest(restored) == world.digest()
    assert restored.jobs[job.uid] == job


def test_a_worker_that_is_given_up_stays_so_in_the_next_attempt_and_a_gang_is_whole_without_it() -> None:
    world, job = running(restart_limit=1, policy="Gang", min_workers=1)
    twice(world, job, 1)
    assert job.slots.given_up == {(1, 1): None}
    world.pod_gone(job.bound[LEADER])
    world.settle()
    assert (job.stage, job.attempt, sorted(job.placements)) == (Stage.RUNNING, 1, [(0, 0), (1, 0), (1, 2)])
    twin = world.job("twin", workers=3, min_workers=1, restart_limit=1, policy="Gang")
    world.node("n3", cpu=8)
    world.settle()
    assert len(twin.bound) == 4


def test_counts_lowered_below_a_given_up_worker_and_raised_again_give_it_another_chance() -> None:
    world, job = running(restart_limit=0)
    fail(world, job, 2)
    later(world)
    assert job.slots.given_up == {(1, 2): None}
    world.job("ppo", workers=2, min_workers=1, restart_limit=0, generation=2)
    world.settle()
    world.job("ppo", workers=4, min_workers=1, restart_limit=0, generation=3)
    world.settle()
    assert len(job.bound) == 5 and not job.slots.given_up


def test_losing_too_many_workers_for_the_minimum_is_another_attempt_not_single_replacements() -> None:
    world, job = running(min_workers=3)
    fail(world, job, 1, reason="Evicted")
    world.control()
    assert job.decided is not None and (job.stage, job.decided.reason) == (Stage.RESCHEDULING, "WorkersLost")
    world.settle()
    assert (job.stage, job.attempt, job.spent) == (Stage.RUNNING, 1, {})


def test_workers_lost_while_others_are_given_up_count_for_the_minimum_too() -> None:
    world, job = running(nodes=4, cpu=1, min_workers=2, restart_limit=0)
    fail(world, job, 0)
    world.node(job.placements[(1, 1)], cpu=1, ready=False)
    world.pass_time(60)
    assert [worker.how for worker in decided(world).workers] == [Replacement.GIVEN_UP]
    world.settle()
    assert (job.stage, job.attempt, len(job.bound), len(job.slots.given_up)) == (Stage.RUNNING, 1, 3, 1)


def test_a_minimum_raised_above_what_is_not_given_up_fails_a_job_that_waits_for_its_next_attempt_too() -> None:
    """No cycle could ever place such a quorum, and each would try."""
    world, job = running(nodes=2, min_workers=1, restart_limit=0)
    fail(world, job, 0, 1)
    later(world)
    assert (job.stage, len(job.slots.given_up)) == (Stage.RUNNING, 2)
    world.pod_gone(job.bound[LEADER])
    world.control()
    assert job.stage == Stage.RESCHEDULING
    world.job("ppo", workers=3, min_workers=2, restart_limit=0, generation=2)
    for uid in [pod.uid for pod in world.state.pods_of[job.uid].values()]:
        world.pod_gone(uid)
    world.wait_for_late_pods()
    assert not [event for event in world.cycle() if isinstance(event, k.Placed)], "the log would reject it"
    world.control()
    assert job.decided is not None and (job.stage, job.decided.reason) == (Stage.FAILED, "WorkersFailed")
    assert "2 workers are given up (restartLimit is 0) and minWorkersNum is 2" in stage_text(job.decided)


# --- lost nodes ---------------------------------------------------------------------------------------------------


def spread_over(nodes: int, **job: object) -> tuple[World, JobRecord]:
    """A leader on n1 and a worker on each further node."""
    return running(nodes=nodes, cpu=1, **{"workers": nodes - 1, **job})


def test_workers_of_a_node_that_is_not_ready_are_replaced_after_the_grace_and_not_before() -> None:
    world, job = spread_over(3)
    world.node("n4", cpu=1)
    world.node("n3", cpu=1, ready=False)
    world.pass_time(59.999)
    assert world.control() == []
    world.pass_time(0.001)
    [worker] = decided(world).workers
    assert (worker.slot, worker.how, worker.counted) == (k.Slot(1, 1), "Elsewhere", False)
    world.settle()
    assert (job.stage, job.attempt, job.placements[(1, 1)], job.spent) == (Stage.RUNNING, 0, "n4", {})
    validate(world.state)


def test_a_node_that_flaps_within_the_grace_loses_nothing() -> None:
    world, job = spread_over(3)
    for _ in range(5):
        world.node("n3", cpu=1, ready=False)
        world.pass_time(50)
        assert world.control() == []
        world.node("n3", cpu=1)
        world.pass_time(50)
    assert job.stage == Stage.RUNNING and len(job.bound) == 3


def test_the_grace_counts_from_the_first_news_however_often_the_node_is_seen_again() -> None:
    world, job = spread_over(3)
    world.node("n4", cpu=1)
    for _ in range(6):
        world.node("n3", cpu=1, ready=False)
        world.pass_time(10)
    assert [worker.slot for worker in decided(world).workers] == [k.Slot(1, 1)]
    world.settle()
    assert job.placements[(1, 1)] == "n4"


def test_a_leader_on_a_lost_node_means_a_new_attempt_without_a_restart_counted() -> None:
    world, job = spread_over(2, restart_limit=0)
    world.node("n3", cpu=2)
    world.node("n1", cpu=1, ready=False)
    world.pass_time(60)
    world.control()
    assert job.decided is not None and (job.stage, job.decided.reason) == (Stage.RESCHEDULING, "NodeLost")
    assert stage_text(job.decided) == "the leader's node n1 has been not ready for 60 s; scheduled again"
    world.settle()
    assert (job.stage, job.attempt, job.leader.restarts) == (Stage.RUNNING, 1, 0)
    assert "n1" not in job.placements.values()


def test_too_many_workers_on_lost_nodes_mean_a_new_attempt() -> None:
    world, job = spread_over(3, min_workers=2)
    world.node("n4", cpu=1)
    world.node("n2", cpu=1, ready=False)
    world.pass_time(60)
    world.settle()
    assert (job.stage, job.attempt, job.spent) == (Stage.RUNNING, 1, {})


def test_pods_of_a_deleted_node_that_stay_listed_are_lost_after_the_grace() -> None:
    world, job = spread_over(3)
    world.node("n4", cpu=1)
    world.node_gone("n3")
    world.pass_time(59)
    assert world.control() == []
    later(world, 1)
    assert job.placements[(1, 1)] == "n4" and len(job.bound) == 3


def test_a_finished_worker_on_a_lost_node_is_not_run_again() -> None:
    world, job = spread_over(3)
    world.change_pod(job.bound[(1, 1)], phase="Succeeded", ready=False)
    world.node("n3", cpu=1, ready=False)
    world.pass_time(60)
    assert world.control() == []


def test_pods_that_go_on_a_lost_node_are_deleted_without_waiting_for_its_kubelet() -> None:
    world, job = spread_over(3)
    uid = job.bound[(1, 1)]
    world.node("n3", cpu=1, ready=False)
    world.pass_time(60)
    decided(world)
    world.change_pod(uid, deleting=True)
    desired = desired_pods(world.state, job)
    assert ([pod.uid for pod in desired.force], desired.delete) == ([uid], [])
    world.node("n3", cpu=1)
    desired = desired_pods(world.state, job)
    assert (desired.force, desired.delete) == ([], []), "its kubelet is back and will see to it"


@pytest.mark.parametrize("going", [False, True])
def test_pods_of_a_job_that_ended_or_is_gone_are_deleted_by_force_where_no_kubelet_is(going: bool) -> None:
    world, job = spread_over(3)
    uids = dict(job.bound)
    world.node("n2", cpu=1, ready=False)
    world.node("n3", cpu=1, ready=False)
    world.change_pod(uids[LEADER], phase="Succeeded", ready=False)
    world.control()
    assert job.ended
    world.pass_time(60)
    world.node("n3", cpu=1)
    lost = uids[(1, 0)]
    if going:
        world.change_pod(lost, deleting=True)
    world.hear()
    desired = desired_pods(world.state, job, now_ms=world.now_ms)
    assert [pod.uid for pod in desired.force] == [lost]
    assert {pod.uid for pod in desired.delete} == {uids[LEADER], uids[(1, 1)]}
    world.job_gone(job)
    left = orphans(world.state, job.uid, now_ms=world.now_ms)
    assert [pod.uid for pod in left.force] == [lost] and lost not in {pod.uid for pod in left.delete}


def test_what_the_clean_pod_policy_keeps_is_kept_on_a_lost_node_too() -> None:
    world, job = spread_over(3, clean=CleanPodPolicy.NONE)
    world.node("n2", cpu=1, ready=False)
    world.change_pod(job.bound[LEADER], phase="Succeeded", ready=False)
    world.control()
    world.pass_time(60)
    desired = desired_pods(world.state, job, now_ms=world.now_ms)
    assert (job.ended, desired.delete, desired.force) == (True, [], [])


def test_of_a_job_being_deleted_only_what_was_told_to_go_and_cannot_is_deleted_by_force() -> None:
    world, job = spread_over(3)
    gone, there = job.bound[(1, 0)], job.bound[(1, 1)]
    world.job("ppo", workers=2, min_workers=1, deleting=True)
    for node in ("n2", "n3"):
        world.node(node, cpu=1, ready=False)
    world.pass_time(60)
    world.change_pod(gone, deleting=True)
    world.hear()
    desired = desired_pods(world.state, job, now_ms=world.now_ms)
    assert ([pod.uid for pod in desired.force], desired.delete, desired.create) == ([gone], [], [])
    assert there not in {pod.uid for pod in desired.force}, "whoever keeps the pods of a deleted TYJob keeps them"


def test_since_when_a_node_is_down_is_in_a_snapshot_even_of_one_that_is_gone() -> None:
    world, _ = spread_over(3)
    world.node("n2", cpu=1, ready=False)
    world.pass_time(10)
    world.node_gone("n3")
    restored = snapshot.restore(snapshot.encode(world.state))
    for state in (world.state, restored):
        assert [state.nodes.down_for_ms(name, world.now_ms + 5) for name in ("n1", "n2", "n3")] == [-1, 10_005, 5]
    assert snapshot.digest(restored) == world.digest()


def test_a_leader_whose_decided_room_a_stranger_took_is_scheduled_again_and_never_created_there() -> None:
    world, job = starting(cpu=2, leader=shape(cpu=2))
    assert job.placements == {LEADER: "n1"}
    world.pod("stranger", "n1", cpu=1, times=PodTimes(0, world.now_ms, 0))
    assert desired_pods(world.state, job).create == []
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == ("Rescheduling", "RoomTaken")
    said = "the leader's node n1 has no room for it any more: pod default/stranger came there; scheduled again"
    assert stage_text(decision) == said
    world.node("n2", cpu=2)
    world.settle()
    assert (job.stage, job.placements, job.leader.restarts) == (Stage.RUNNING, {LEADER: "n2"}, 0)
    validate(world.state)


def test_a_node_that_has_become_smaller_is_no_room_that_a_pod_took() -> None:
    world = World()
    world.node("n1", cpu=3)
    world.pod("older", "n1", cpu=1, times=PodTimes(0, world.now_ms, 0))
    world.pass_time(60)
    world.job("ppo", leader=shape(cpu=2))
    world.cycle()
    world.node("n1", cpu=2)
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert stage_text(decision) == "the leader's node n1 has no room for it any more; scheduled again"
    (one,) = explained(world.entries, "ppo").consequences
    assert [cause.text for cause in one.causes] == ["node n1 offers less than before"]


def test_a_worker_whose_decided_room_is_gone_goes_elsewhere_alone() -> None:
    world, job = running(nodes=2, cpu=3)
    world.node("n3", cpu=1)
    slot = (1, 2)
    node = job.placements[slot]
    world.pod_gone(job.bound[slot])
    world.pod("stranger", node, cpu=3)
    assert world.state.nodes.has(node) and job.placements[slot] == node
    assert desired_pods(world.state, job).create == []
    world.settle()
    assert (job.stage, job.attempt, job.placements[slot], job.spent) == (Stage.RUNNING, 0, "n3", {})
    validate(world.state)


def test_a_worker_whose_room_is_gone_isnt_lost_because_its_node_went_down_a_moment_ago() -> None:
    world, job = running(nodes=2, cpu=3)
    world.node("n3", cpu=1)
    slot = (1, 2)
    node = job.placements[slot]
    world.pod_gone(job.bound[slot])
    world.pod("stranger", node, cpu=3)
    world.node(node, cpu=3, ready=False)
    [cause] = decided(world).causes
    assert cause.why == NodeLeft(node, NodeTrouble.NO_ROOM)


def test_of_two_jobs_taken_over_for_the_same_room_none_is_created_before_one_has_it() -> None:
    """After a lost tail the status of one job may name room that the other was given since."""
    lost = World()
    lost.node("n1", cpu=2)
    first = lost.job("first", leader=shape(cpu=2))
    lost.cycle()
    lost.control()
    status = job_status_seen(desired_status(lost.state, first), first.spec)
    assert status is not None
    world = World(listed=False)
    world.node("n1", cpu=2)
    jobs = [world.job(name, leader=shape(cpu=2), status=status) for name in ("first", "second")]
    world.list_all()
    assert [desired_pods(world.state, job).create for job in jobs] == [[], []]
    world.settle()
    world.wait_for_late_pods()
    world.settle()
    assert sorted(str(job.stage) for job in jobs) == ["Rescheduling", "Running"]
    validate(world.state)


CLOSED = {
    "is cordoned": {"cordoned": True},
    "has the taint gpu=broken:NoExecute": {"taints": (Taint("gpu", "broken", "NoExecute"),)},
    "has the taint going:NoSchedule": {"taints": (Taint("going", "", "NoSchedule"),)},
}


@pytest.mark.parametrize("how", CLOSED)
def test_a_worker_that_is_evicted_from_a_closed_node_does_not_come_back_there(how: str) -> None:
    """Who drains a node would never be done with it; who taints it, NoExecute, would delete the pod for ever."""
    world, job = running(cpu=4)
    world.node("n1", cpu=4, **CLOSED[how])  # type: ignore[arg-type]
    assert world.control() == []
    uid = job.bound[(1, 1)]
    world.change_pod(uid, deleting=True)
    assert world.control() == []
    world.pod_gone(uid)
    assert desired_pods(world.state, job).create == []
    [worker] = decided(world).workers
    assert (worker.slot, worker.how, worker.counted) == (k.Slot(1, 1), "Elsewhere", False)
    assert replaced_text(job.replaced.causes, job.spec) == f"workers replaced: lost: actors 1 (node n1 {how})"
    world.settle()
    assert (job.stage, job.attempt, job.placements[(1, 1)], job.spent) == (Stage.RUNNING, 0, "n2", {})
    validate(world.state)


@pytest.mark.parametrize("how", CLOSED)
@pytest.mark.parametrize("scope", [RestartScope.WORKER, RestartScope.SET, RestartScope.JOB])
def test_what_happened_to_a_worker_without_a_failure_is_said(how: str, scope: RestartScope) -> None:
    world, job = running(cpu=4, restart={"actors": RestartPolicy(scope, 3)})
    world.node("n1", cpu=4, **CLOSED[how])  # type: ignore[arg-type]
    world.pod_gone(job.bound[(1, 1)])
    world.control()
    assert job.decided is not None
    if scope == RestartScope.JOB:
        assert stage_text(job.decided) == f"worker actors-1 was lost (node n1 {how}); the whole job is restarted"
    else:
        said = replaced_text(job.replaced.causes, job.spec)
        assert said.startswith(f"workers replaced: lost: actors 1 (node n1 {how})")


@pytest.mark.parametrize("how", CLOSED)
def test_what_happened_to_workers_that_the_quorum_needs_is_said(how: str) -> None:
    world, job = running(cpu=4, min_workers=3)
    world.node("n1", cpu=4, **CLOSED[how])  # type: ignore[arg-type]
    world.pod_gone(job.bound[(1, 1)])
    world.control()
    assert job.decided is not None
    assert stage_text(job.decided) == f"1 worker was lost (node n1 {how}), minWorkersNum is 3; scheduled again"


def test_a_failed_worker_on_a_node_that_was_tainted_since_is_replaced_elsewhere() -> None:
    world, job = running(cpu=4)
    world.node("n1", cpu=4, taints=(Taint("gpu", "broken", "NoSchedule"),))
    fail(world, job, 1)
    later(world)
    assert job.placements[(1, 1)] == "n2" and job.spent == {"actors": 1}


@pytest.mark.parametrize("taint", [Taint("advice", "", "PreferNoSchedule"), Taint("mine", "", "NoSchedule")])
def test_taints_that_keep_no_such_pod_off_close_nothing(taint: Taint) -> None:
    world, job = running(cpu=4, worker=shape(cpu=1, tolerations=(Toleration("mine", "Exists", "", ""),)))
    world.node("n1", cpu=4, taints=(taint,))
    world.pod_gone(job.bound[(1, 1)])
    assert world.control() == []
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [(1, 1)]


def test_a_place_on_a_node_that_flaps_stays_though_its_pod_is_not_there_yet() -> None:
    world, job = running(cpu=4)
    down = (
        Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
        Taint("node.kubernetes.io/not-ready", "", "NoExecute"),
    )
    world.node("n1", cpu=4, ready=False, taints=down)
    world.pod_gone(job.bound[(1, 1)])
    assert world.control() == []
    world.node("n1", cpu=4)
    world.settle()
    assert job.placements[(1, 1)] == "n1" and job.replaced.times == 0


@pytest.mark.parametrize("how", CLOSED)
def test_a_leader_whose_node_is_closed_before_its_pod_is_there_is_scheduled_again(how: str) -> None:
    world, job = starting(cpu=2, leader=shape(cpu=2))
    world.node("n1", cpu=2, **CLOSED[how])  # type: ignore[arg-type]
    assert desired_pods(world.state, job).create == []
    world.control()
    assert job.decided is not None and (job.stage, job.decided.reason) == (Stage.RESCHEDULING, "NodeClosed")
    assert stage_text(job.decided) == f"the leader's node n1 {how}; scheduled again"
    world.node("n2", cpu=2)
    world.settle()
    assert (job.stage, job.placements, job.leader.restarts) == (Stage.RUNNING, {LEADER: "n2"}, 0)


def _told_to_go(world: World, job: JobRecord) -> None:
    world.change_pod(job.bound[LEADER], deleting=True)


def _out_of_reach(world: World, job: JobRecord) -> None:
    world.node(job.placements[LEADER], cpu=4, ready=False)


@pytest.mark.parametrize("trouble", [_told_to_go, _out_of_reach])
def test_workers_that_fail_while_their_leader_goes_are_another_attempts(
    trouble: Callable[[World, JobRecord], None],
) -> None:
    """A learner may take minutes to save its state, and a node one to count as lost: its actors don't last as long."""
    world, job = running(cpu=4, restart_limit=0, min_workers=2)
    trouble(world, job)
    fail(world, job, 0, 1)
    world.change_pod(job.bound[(1, 2)], restarts=2)
    world.pass_time(30)
    assert world.control() == [] and desired_pods(world.state, job).delete == []
    world.pass_time(30)
    if not world.control():
        world.pod_gone(job.bound[LEADER])
    world.settle()
    assert (job.stage, job.attempt, job.slots.given_up) == (Stage.RUNNING, 1, {})


def test_workers_that_failed_are_answered_when_the_leaders_node_is_back() -> None:
    world, job = running(cpu=4)
    _out_of_reach(world, job)
    fail(world, job, 1)
    later(world, 20)
    assert job.spent == {}
    world.node("n1", cpu=4)
    later(world)
    assert (job.stage, job.attempt, job.spent) == (Stage.RUNNING, 0, {"actors": 1}) and len(job.bound) == 4
