"""`groupSize`: worker groups are placed, restarted and given up whole, and their pods are told of them."""

import json
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.manifests import pod_manifest
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.lifecycle.members import members_text
from arranger.messages.decisions import replaced_text, scaled_text, stage_text
from arranger.model.job import PlacedPods, Replacement, RestartPolicy, RestartScope, ScheduleState, Slot, Stage
from arranger.model.tyjob import job_spec
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.placement_explanations import CycleObserver
from arranger.replay.reading.edits import changed
from arranger.replay.what_if.one_cycle import Variation, vary
from arranger.scheduling.cycle import take_cycle
from tests.unit.tyjob_table import tyjob_with
from tests.world import Edited, World, shape

LEADER, SERVE = (0, 0), 1
GPU, HEAD = shape(cpu=1, gpus=1), shape(cpu=1, selector={"role": "head"})
GROUP = RestartPolicy(RestartScope.GROUP, limit=1)
#: Three worker groups of two GPUs each, of which one is needed.
SPEC: dict[str, Any] = {
    "leader": shape(cpu=1),
    "workers": [("serve", 6, GPU)],
    "group_sizes": {"serve": 2},
    "minimums": {"serve": 2},
    "restart": {"serve": GROUP},
}


def cluster(*gpus: int) -> World:
    """Nodes n0, n1 … with so many GPUs."""
    world = World()
    for number, of_node in enumerate(gpus):
        world.node(f"n{number}", cpu=16, gpus=of_node)
    return world


def running(*gpus: int, **more: Any) -> tuple[World, JobRecord]:
    """The job, running on these nodes, with its leader on another one."""
    world = cluster(*gpus)
    world.node("head", cpu=1, labels={"role": "head"})
    job = world.job("vllm", **{**SPEC, "leader": HEAD, **more})
    world.settle()
    assert job.stage == Stage.RUNNING
    return world, job


def placed(job: JobRecord, group: int = SERVE) -> list[int]:
    """The indices of the workers of a set that have nodes."""
    return sorted(index for number, index in job.placements if number == group)


def fail(world: World, job: JobRecord, index: int, **more: Any) -> str:
    uid = job.bound[(SERVE, index)]
    world.change_pod(uid, **{"phase": "Failed", "ready": False, **more})
    return uid


def decided(world: World) -> k.WorkersReplaced:
    [decision] = world.control()
    assert isinstance(decision, k.WorkersReplaced) and world.verdict("WorkersReplaced").accepted
    validate(world.state)
    return decision


def hows(decision: k.WorkersReplaced) -> dict[int, Replacement]:
    return {worker.slot.index: worker.how for worker in decision.workers}


def later(world: World, seconds: float = 10.0) -> None:
    world.pass_time(seconds)
    world.settle()
    validate(world.state)


# --- placement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "found"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (6, 6)])
def test_worker_groups_get_nodes_whole_or_not_at_all(gpus: int, found: int) -> None:
    world = cluster(*[1] * gpus)
    job = world.job("vllm", **SPEC)
    world.settle()
    assert placed(job) == list(range(found)) and job.stage == (Stage.RUNNING if found else Stage.PENDING)
    status = desired_status(world.state, job)
    if found in (2, 4) and gpus > found:
        one = "1 of 4 further pods of serve fit; beside it, serve: 0 of 3 nodes fit"
        three = "3 of 4 further pods of serve fit; beside them, serve: 0 of 5 nodes fit"
        assert status["message"].startswith(one if found == 2 else three)


@pytest.mark.parametrize("policy", ["Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity",
                                    "FragmentGradient"])  # fmt: skip
def test_each_policy_places_worker_groups_whole(policy: str) -> None:
    for gpus in (3, 5):
        world = cluster(2, gpus - 2)
        job = world.job("vllm", **SPEC, policy=policy)
        world.settle()
        assert placed(job) == ([] if policy == "Gang" else list(range(gpus - 1)))


def test_a_quorum_of_workers_rounds_up_to_whole_worker_groups() -> None:
    for gpus, found in ((3, []), (4, [0, 1, 2, 3])):
        world = cluster(gpus)
        job = world.job("vllm", **{**SPEC, "minimums": {}, "min_workers": 3})
        world.settle()
        assert placed(job) == found
    world = cluster(3)
    job = world.job("vllm", **{**SPEC, "minimums": {}, "min_workers": 3})
    world.cycle()
    assert job.waits is not None and job.waits.shortage.infeasible, "two whole worker groups never fit"


def test_worker_groups_take_turns_with_other_jobs_under_drf() -> None:
    world = cluster(7)
    jobs = [world.job(name, **SPEC, queue="DRF") for name in ("one", "two")]
    world.settle()
    assert sorted(len(placed(job)) for job in jobs) == [2, 4], "the seventh GPU isn't half a worker group"


def test_a_quota_leaves_no_part_of_a_worker_group() -> None:
    world = cluster(8)
    world.quota("gpus", {"requests.nvidia.com/gpu": 3})
    job = world.job("vllm", **SPEC)
    world.settle()
    assert placed(job) == [0, 1]


def test_other_sets_fill_what_a_worker_group_leaves() -> None:
    world = cluster(3)
    job = world.job("mixed", **{**SPEC, "workers": [("serve", 4, GPU), ("actors", 3, GPU)], "min_workers": 3})
    world.settle()
    assert (placed(job), placed(job, 2)) == ([], []), "the quorum takes its further workers in the order of the sets"
    world.node("n1", cpu=4, gpus=2)
    world.settle()
    assert (placed(job), placed(job, 2)) == ([0, 1, 2, 3], [0])


class Watching(CycleObserver):
    """Keeps what a cycle shows."""

    def __init__(self) -> None:
        self.placed: list[int] = []
        self.short: list[int] = []

    def placing(self, *_: Any, indices: Any, chosen: Any, **__: Any) -> None:
        self.placed += indices[: sum(count for _, count in chosen)]

    def fell_short(self, _: Any, shortage: Any, **__: Any) -> None:
        self.short.append(shortage.found)


def test_an_observer_sees_only_what_stays_and_changes_nothing() -> None:
    world = cluster(5)
    world.job("vllm", **SPEC)
    watching = Watching()
    seen = take_cycle(world.state, world.config, world.now_ms, watching)
    assert seen == take_cycle(world.state, world.config, world.now_ms)
    assert (watching.placed, watching.short) == ([0, 0, 1, 2, 3], [3])


def test_a_placement_of_a_part_of_a_worker_group_is_rejected() -> None:
    world = cluster(8)
    job = world.job("vllm", **SPEC)
    for last, reason in (
        (2, "the worker group of slot (1, 2) is not whole: 2 pods needed"),
        (0, "the worker group of slot (1, 0) is not whole: 2 pods needed"),
        (3, ""),
    ):
        pods = (PlacedPods("n0", 0, ((0, 0),)), PlacedPods("n0", SERVE, ((0, last),)))
        cycle = k.CycleTaken(world.state.offset, world.now_ms, world.config)
        world.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.PARTLY, pods))
        assert world.verdict("Placed").reason == reason
    assert placed(job) == [0, 1, 2, 3]


# --- restarts -------------------------------------------------------------------------------------------------------


def test_a_failed_worker_restarts_its_worker_group_on_its_nodes_and_no_other() -> None:
    world, job = running(3, 3)
    before, nodes = dict(job.bound), dict(job.placements)
    fail(world, job, 3)
    world.pass_time(10)
    decision = decided(world)
    assert hows(decision) == {2: Replacement.RESTARTED, 3: Replacement.SAME_NODE}
    said = replaced_text(decision.causes, job.spec)
    assert said == f"workers replaced: failed: serve 3 (node {nodes[SERVE, 3]}); " + (
        "1 other worker of serve in the same worker groups"
    )
    desired = desired_pods(world.state, job)
    assert {pod.uid for pod in desired.delete} == {before[SERVE, 2], before[SERVE, 3]}
    world.pod_gone(before[SERVE, 3])
    assert desired_pods(world.state, job).create == [], "a worker group begins when all of its old pods are gone"
    world.pod_gone(before[SERVE, 2])
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [(SERVE, 2), (SERVE, 3)]
    later(world)
    assert (job.placements, job.attempt, job.stage) == (nodes, 0, Stage.RUNNING)
    assert len(job.bound) == 7
    assert job.slots.charged.keys() == {(SERVE, 3)} and not job.retired


def test_a_deleted_pod_restarts_its_worker_group() -> None:
    """Somebody deletes it, or a drain evicts it: the others lose their peer, and begin again with the next one."""
    world, job = running(3, 3)
    before, nodes = dict(job.bound), dict(job.placements)
    world.pod_gone(before[SERVE, 0])
    assert list(job.retired) == [before[SERVE, 1]]
    desired = desired_pods(world.state, job)
    assert ([pod.uid for pod in desired.delete], desired.create) == ([before[SERVE, 1]], [])
    later(world, 1)
    assert job.placements == nodes and not job.retired and not job.slots.charged
    assert len(job.bound) == 7


def test_an_evicted_worker_moves_its_whole_worker_group() -> None:
    world, job = running(2, 2, 2)
    fail(world, job, 0, reason="Evicted")
    decision = decided(world)
    assert hows(decision) == {0: Replacement.ELSEWHERE, 1: Replacement.ELSEWHERE}
    assert placed(job) == [2, 3, 4, 5]
    later(world)
    assert placed(job) == list(range(6)) and job.attempt == 0 and not job.slots.charged


def test_a_worker_group_that_lost_a_node_gives_up_its_other_nodes() -> None:
    world, job = running(1, 1, 1, 1, 1, 1)
    node = job.placements[SERVE, 4]
    for pod in [pod for pod in world.state.pods.values() if pod.node == node]:
        world.pod_gone(pod.uid)
    world.node_gone(node)
    world.settle()
    assert placed(job) == [0, 1, 2, 3] and job.attempt == 0, "five nodes hold two worker groups"
    world.node("n9", cpu=4, gpus=1)
    later(world)
    assert placed(job) == list(range(6))


def test_worker_groups_that_the_quorum_needs_are_placed_with_the_whole_job_again() -> None:
    world, job = running(2, 2, 2, minimums={"serve": 6})
    fail(world, job, 5, reason="Evicted")
    world.control()
    assert job.stage == Stage.RESCHEDULING and job.decided is not None
    assert stage_text(job.decided) == "2 workers were lost (Evicted), minCount of serve is 3; scheduled again"


def test_a_worker_beyond_its_limit_gives_its_worker_group_up() -> None:
    world, job = running(6)
    for _ in range(2):
        fail(world, job, 1)
        later(world, 60)
    assert set(job.slots.given_up) == {(SERVE, 0), (SERVE, 1)} and placed(job) == [2, 3, 4, 5]
    assert desired_status(world.state, job)["workers"][0]["givenUp"] == "0-1"
    assert world.verdict("WorkersReplaced").accepted and job.stage == Stage.RUNNING
    pods = {pod.name for pod in world.state.pods.values()}
    assert "vllm-serve-0" not in pods and "vllm-serve-1" in pods, "the pod that failed stays for its log"
    for index in (2, 4):
        for _ in range(2):
            if (SERVE, index) in job.bound:
                fail(world, job, index)
                later(world, 600)
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided) == "6 workers are given up (restartLimit is 1) and minCount of serve is 1"


def test_the_scope_set_restarts_all_worker_groups_and_moves_the_one_that_lost_a_worker() -> None:
    world, job = running(2, 2, 2, restart={"serve": RestartPolicy(RestartScope.SET, 1)})
    fail(world, job, 0, reason="Evicted")
    elsewhere, again = Replacement.ELSEWHERE, Replacement.RESTARTED
    assert hows(decided(world)) == {0: elsewhere, 1: elsewhere, 2: again, 3: again, 4: again, 5: again}
    later(world)
    assert placed(job) == list(range(6)) and len(job.bound) == 7


@pytest.mark.parametrize("ends", ["fails", "is deleted", "is evicted"])
def test_what_has_finished_of_a_worker_group_runs_again_with_the_others(ends: str) -> None:
    world, job = running(2, 2, 2, success=(SERVE,))
    for index in (0, 2):
        world.change_pod(job.bound[SERVE, index], phase="Succeeded", ready=False)
    assert set(job.slots.finished) == {(SERVE, 0), (SERVE, 2)} and job.quorum_ready
    assert not world.control() and not world.cycle(), "the others of a worker group go on"
    if ends == "is deleted":
        world.pod_gone(job.bound[SERVE, 1])
    else:
        fail(world, job, 1, reason="Evicted" if ends == "is evicted" else "")
    later(world)
    assert set(job.slots.finished) == {(SERVE, 2)} and placed(job) == [0, 1, 3, 4, 5]
    assert len(job.bound) == 6 and job.attempt == 0 and not job.retired
    for index in (0, 1, 3, 4, 5):
        world.change_pod(job.bound[SERVE, index], phase="Succeeded", ready=False)
    world.control()
    assert job.stage == Stage.SUCCEEDED


def test_what_is_left_of_a_worker_group_is_released() -> None:
    """The room of a slot was taken while its pod was away."""
    world, job = running(2, 2, 2)
    node, uid = job.placements[SERVE, 3], job.bound[SERVE, 3]
    world.change_pod(uid, phase="Failed", ready=False)
    world.pod("stranger", node, amounts=(("nvidia.com/gpu", 1),))
    world.pod_gone(uid)
    assert placed(job) == [0, 1, 2, 4, 5], "no room is left"
    assert not world.cycle(), "a part of a worker group is not filled up"
    assert desired_pods(world.state, job).create == []
    assert hows(decided(world)) == {2: Replacement.ELSEWHERE}
    assert placed(job) == [0, 1, 4, 5]
    world.node("n9", cpu=4, gpus=1)
    later(world)
    assert placed(job) == list(range(6))


def test_refused_pods_give_up_the_nodes_of_their_worker_groups() -> None:
    world = cluster(6)
    job = world.job("vllm", **SPEC)
    world.cycle()
    world.control()
    world.run_pod(job, LEADER, "n0")
    for index in (0, 1, 2, 4):
        world.run_pod(job, (SERVE, index), "n0")
    world.control()
    assert job.stage == Stage.RUNNING
    for index in (3, 5):
        world.say(k.EffectFailed(job.uid, 0, "create", Slot(SERVE, index), 403, "Forbidden", "no quota", False, 1))
    world.pass_time(60)
    assert hows(decided(world)) == dict.fromkeys((2, 3, 4, 5), Replacement.ELSEWHERE)
    assert placed(job) == [0, 1]


@pytest.mark.parametrize(
    ("workers", "accepted"),
    [
        ({0: Replacement.SAME_NODE}, False),
        ({0: Replacement.SAME_NODE, 1: Replacement.RESTARTED}, True),
        ({0: Replacement.ELSEWHERE}, False),
        ({0: Replacement.ELSEWHERE, 1: Replacement.RESTARTED}, False),
        ({0: Replacement.ELSEWHERE, 1: Replacement.ELSEWHERE}, True),
        ({0: Replacement.GIVEN_UP, 1: Replacement.ELSEWHERE}, False),
        ({0: Replacement.GIVEN_UP}, False),
        ({0: Replacement.GIVEN_UP, 1: Replacement.GIVEN_UP}, True),
        ({0: Replacement.RESTARTED}, False),
    ],
)
def test_a_decision_on_a_part_of_a_worker_group_is_rejected(workers: dict[int, Replacement], accepted: bool) -> None:
    world, job = running(6)
    fail(world, job, 0)
    ended = tuple(
        k.EndedWorker(Slot(SERVE, index), job.bound[SERVE, index], how, False) for index, how in workers.items()
    )
    world.say(k.WorkersReplaced(job.uid, job.version, job.attempt, ended, ()))
    verdict = world.verdict("WorkersReplaced")
    assert verdict.accepted == accepted
    assert accepted or verdict.reason.startswith("the worker group of slot (1, 0) is not whole without slot (1, 1)")
    validate(world.state)


# --- readiness and scaling ------------------------------------------------------------------------------------------


def test_a_quorum_counts_worker_groups_that_are_ready_as_a_whole() -> None:
    world = cluster(6)
    job = world.job("vllm", **{**SPEC, "minimums": {"serve": 4}})
    world.cycle()
    world.control()
    world.run_pod(job, LEADER, "n0")
    for index in (0, 2, 4, 5):
        world.run_pod(job, (SERVE, index), "n0")
    assert not world.control()
    status = desired_status(world.state, job)
    assert status["message"] == "the leader runs; waits until 4 workers in whole worker groups (4 of serve) are ready"
    assert status["ready"] == "4/6"
    world.run_pod(job, (SERVE, 1), "n0")
    world.control()
    assert job.stage == Stage.RUNNING and job.quorum_ready
    world.change_pod(job.bound[SERVE, 5], ready=False)
    assert job.below_quorum and job.ready == [1, 0 + 4]
    message = desired_status(world.state, job)["message"]
    assert message.startswith("running below its quorum: 1 of 2 worker groups of set serve is ready")


def test_scaling_adds_and_removes_whole_worker_groups() -> None:
    world = cluster(8)
    edited = Edited(world, **SPEC)
    world.settle()
    job = edited.edit(workers=[("serve", 8, GPU)])
    world.settle()
    assert placed(job) == list(range(8))
    edited.edit(workers=[("serve", 2, GPU)])
    world.settle()
    assert placed(job) == [0, 1] and job.attempt == 0
    said = [scaled_text(of.sets, job.valid_spec) for of in job.times.scaled]
    assert said == ["serve scaled from 3 worker groups to 4 worker groups",
                    "serve scaled from 4 worker groups to 1 worker group"]  # fmt: skip


def test_the_scale_counts_the_first_pods_of_worker_groups() -> None:
    world, job = running(6)
    status = desired_status(world.state, job)
    assert (status["replicas"], status["workers"][0]["total"]) == (3, 6)
    selector = dict(part.split("=") for part in status["selector"].split(","))
    manifest = pod_manifest(TYJOB, group=1, index=4, attempt=0, node="n", leader_address="a")
    labels = manifest["metadata"]["labels"]
    assert (
        labels["arranger.dev/worker-group"] == "2"
        and selector.items() - {("arranger.dev/job", "vllm")} <= labels.items()
    )
    other = pod_manifest(TYJOB, group=1, index=5, attempt=0, node="n", leader_address="a")["metadata"]["labels"]
    assert not selector.items() <= {**other, "arranger.dev/job": "vllm"}.items()


def test_what_if_a_node_is_lost_places_its_worker_groups_whole_again() -> None:
    world, job = running(1, 1, 2, 2)
    lost = job.placements[SERVE, 0]
    assert job.placements[SERVE, 1] != lost
    vary(world.state, Variation(without_nodes=(lost,)), world.now_ms)
    assert placed(job) == [2, 3, 4, 5] and not world.state.pods_of[job.uid].keys() & job.retired.keys()
    world.cycle()
    assert placed(job) == [2, 3, 4, 5], "a part of it would fit"
    world.node("n9", cpu=4, gpus=1)
    world.cycle()
    assert placed(job) == list(range(6))


# --- what the user says, and what pods are told ---------------------------------------------------------------------

TYJOB = tyjob_with({
    "metadata/namespace": "team", "metadata/uid": "u",
    "spec/workerSets/0": {"name": "serve", "groupSize": 2, "counts": 3, "minCount": 1,
                          "rendezvous": {"scope": "Group", "membersFile": True},
                          "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
})  # fmt: skip


def test_counts_and_minimums_are_in_worker_groups() -> None:
    [_, serve] = job_spec(TYJOB).groups
    assert (serve.count, serve.min_count, serve.group_size) == (6, 2, 2) and job_spec(TYJOB).min_workers == 2
    assert serve.restart == RestartPolicy(RestartScope.GROUP, 3)
    scaled = job_spec(tyjob_with({"spec/replicas": 4}, base=TYJOB))
    assert scaled.groups[1].count == 8
    assert changed(job_spec(TYJOB), scaled) == "serve counts 3 → 4"
    other = job_spec(tyjob_with({"spec/workerSets/0/groupSize": 3}, base=TYJOB))
    assert "serve groupSize 2 → 3" in changed(job_spec(TYJOB), other)


def test_a_pod_is_told_its_worker_group_and_meets_it() -> None:
    def told(index: int) -> dict[str, str]:
        manifest = pod_manifest(TYJOB, group=1, index=index, attempt=0, node="n", leader_address="a")
        assert manifest["spec"]["restartPolicy"] == "Never", "a kubelet would start one of a group again alone"
        return {variable["name"]: variable["value"] for variable in manifest["spec"]["containers"][0]["env"]}

    found = [told(index) for index in range(6)]
    assert [of["TYJOB_GROUP_INDEX"] + of["TYJOB_GROUP_RANK"] for of in found] == ["00", "01", "10", "11", "20", "21"]
    assert {(of["TYJOB_GROUP_SIZE"], of["NNODES"], of["TYJOB_WORKER_COUNT"]) for of in found} == {("2", "2", "6")}
    assert [of["NODE_RANK"] for of in found] == ["0", "1"] * 3
    assert [of["MASTER_ADDR"] for of in found] == [f"serve-{at}.job.team.svc" for at in (0, 0, 2, 2, 4, 4)]
    assert json.loads(found[0]["TYJOB_SETS"]) == [
        {"name": "serve", "count": 6, "minCount": 2, "groupSize": 2, "firstRank": 1}
    ]


def test_the_members_file_knows_worker_groups() -> None:
    world, job = running(6)
    [_, serve] = msgspec.json.decode(members_text(world.state, job))["sets"]
    assert (serve["groupSize"], serve["count"], serve["minCount"]) == (2, 6, 2)
