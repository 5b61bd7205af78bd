"""A pod fills a slot only with the slot's namespace, name and node, whatever is seen first.

Anyone who may create pods in some namespace can give them an owner reference and labels of any job. Such a pod takes
room like any other. It fills no slot, its address is told to nobody, and no worker deletes it.
"""

from collections.abc import Callable
from itertools import permutations

import pytest

from arranger.lifecycle.desired import Desired, desired_pods, orphans
from arranger.model.job import JobStatusSeen, PlacedPods, Stage
from arranger.model.pod import PodOwner
from arranger.projections import snapshot
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from tests.world import World

WORKER = (1, 0)
LEADER_OWNER = PodOwner("uid-ppo", 0, "learner", True, 0)
WORKER_OWNER = PodOwner("uid-ppo", 0, "actors", False, 0)
ALLOCATED = (PlacedPods("n1", 0, ((0, 0),)), PlacedPods("n2", 1, ((0, 0),)))

#: Pods that claim the leader's slot of `ppo` and are not its pod: as (name, namespace).
FORGED = {
    "another namespace": ("ppo-learner-0", "elsewhere"),
    "the name of another job": ("other-learner-0", "default"),
    "the name of another attempt": ("ppo-learner-0-r1", "default"),
    "the name of another slot": ("ppo-actors-0", "default"),
}


def forge(world: World, kind: str, *, node: str = "n1", owner: PodOwner = LEADER_OWNER) -> str:
    """See a forged pod on a node; answers its UID."""
    name, namespace = FORGED[kind]
    return world.pod(name, node, namespace=namespace, uid=f"forged-{node}", owner=owner, ip="6.6.6.6", cpu=1)


def is_nobodys(world: World, job: JobRecord, uid: str) -> bool:
    """Whether a pod holds its room and is no pod of the job's in any way."""
    desired = desired_pods(world.state, job)
    listed = uid in world.state.pods_of.get(job.uid, {})
    assert snapshot.encode(snapshot.restore(snapshot.encode(world.state))) == snapshot.encode(world.state)
    return (
        world.state.pods[uid].owner is None
        and not listed
        and uid not in job.bound.values()
        and uid not in {pod.uid for pod in (*desired.delete, *desired.force)}
    )


def two_nodes(*, listed: bool = True) -> World:
    world = World(listed=listed)
    world.node("n1", cpu=4)
    world.node("n2", cpu=4)
    return world


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_pod_seen_after_its_job_is_a_strangers(kind: str) -> None:
    world = two_nodes()
    job = world.job("ppo", workers=1, min_workers=1)
    world.cycle()
    world.control()
    uid = forge(world, kind, node=job.placements[LEADER])
    assert is_nobodys(world, job, uid)
    assert world.used(job.placements[LEADER]) == 3000  # the leader's room, the worker's, and the stranger's
    world.settle()
    assert (job.stage, job.leader.address) == (Stage.RUNNING, "10.0.0.0")
    assert uid in world.state.pods


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_pod_seen_before_its_job_is_a_strangers(kind: str) -> None:
    world = two_nodes()
    uid = forge(world, kind)
    job = world.job("ppo", workers=1, min_workers=1)
    assert is_nobodys(world, job, uid)
    world.settle()
    assert (job.stage, job.leader.address) == (Stage.RUNNING, "10.0.0.0")
    assert uid in world.state.pods


@pytest.mark.parametrize("order", list(permutations(["forged", "job", "pods"])))
@pytest.mark.parametrize("allocations", [ALLOCATED, ()], ids=["told", "untold"])
@pytest.mark.parametrize("kind", ["another namespace", "the name of another job"])
def test_a_forged_pod_is_adopted_by_no_job_in_a_new_epoch(
    order: tuple[str, ...], allocations: tuple[PlacedPods, ...], kind: str
) -> None:
    world = two_nodes(listed=False)
    status = JobStatusSeen("Running", "ScheduledSucceed", 0, 0, "10.0.0.1", allocations, 5, 0, "runs")
    steps: dict[str, Callable[[], object]] = {
        "forged": lambda: forge(world, kind),
        "job": lambda: world.job("ppo", workers=1, min_workers=1, status=status),
        "pods": lambda: [
            world.pod("ppo-learner-0", "n1", uid="leader", owner=LEADER_OWNER, ip="10.0.0.1", cpu=1),
            world.pod("ppo-actors-0", "n2", uid="worker", owner=WORKER_OWNER, cpu=1),
        ],
    }
    for step in order:
        steps[step]()
    world.list_all()
    job = world.state.jobs["uid-ppo"]
    assert job.bound == {LEADER: "leader", WORKER: "worker"}
    assert is_nobodys(world, job, "forged-n1")
    assert (world.used("n1"), world.used("n2")) == (2000, 1000)
    assert world.cycle() == () and world.control() == [] and world.apply() == 0


def test_a_forged_pod_of_an_earlier_attempt_holds_up_nothing() -> None:
    world = two_nodes()
    job = world.job("ppo")
    world.settle()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Evicted")
    forge(world, "another namespace", node="n2")
    world.settle()
    assert (job.stage, job.attempt) == (Stage.RUNNING, 1)


def test_a_stranger_that_ends_releases_its_room_and_changes_nothing_of_the_job() -> None:
    world = two_nodes()
    job = world.job("ppo")
    world.settle()
    before = (dict(job.placements), dict(job.bound), job.version)
    uid = forge(world, "another namespace")
    world.change_pod(uid, phase="Failed", owner=LEADER_OWNER, restarts=7)
    world.pod_gone(uid)
    assert (dict(job.placements), dict(job.bound), job.version) == before
    assert world.used("n1") + world.used("n2") == 1000


# --- the node ---------------------------------------------------------------------------------------------------------


def to_go(world: World, job: JobRecord) -> tuple[list[str], list[tuple[tuple[int, int], str]]]:
    desired: Desired = desired_pods(world.state, job)
    return [pod.uid for pod in (*desired.delete, *desired.force)], desired.create


def test_a_pod_of_an_earlier_decision_on_another_node_goes_before_the_decided_one_comes() -> None:
    world = two_nodes(listed=False)
    status = JobStatusSeen("Running", "ScheduledSucceed", 0, 0, "10.0.0.1", ALLOCATED, 5, 0, "runs")
    job = world.job("ppo", workers=1, status=status)
    world.pod("ppo-learner-0", "n1", uid="leader", owner=LEADER_OWNER, ip="10.0.0.1", cpu=1)
    world.pod("ppo-actors-0", "n1", uid="late", owner=WORKER_OWNER, cpu=1)
    world.list_all()
    assert (job.bound, job.placements[WORKER]) == ({LEADER: "leader"}, "n2")
    assert (world.used("n1"), world.used("n2")) == (2000, 1000)
    assert to_go(world, job) == (["late"], [])
    world.change_pod("late", deleting=True)
    assert to_go(world, job) == ([], [])
    world.pod_gone("late")
    assert to_go(world, job) == ([], [(WORKER, "n2")])
    world.settle()
    assert world.state.pods[job.bound[WORKER]].node == "n2"
    assert (world.used("n1"), world.used("n2")) == (1000, 1000)


def test_a_leader_on_another_node_than_decided_gives_no_address() -> None:
    world = two_nodes()
    job = world.job("ppo", workers=1)
    world.cycle()
    world.control()
    other = "n2" if job.placements[LEADER] == "n1" else "n1"
    world.pod("ppo-learner-0", other, uid="late", owner=LEADER_OWNER, ip="6.6.6.6", cpu=1)
    assert world.control() == []
    assert to_go(world, job) == (["late"], [])
    world.settle()
    assert (job.stage, job.attempt, job.leader.address) == (Stage.RUNNING, 0, "10.0.0.0")


def test_a_pod_without_a_node_under_the_name_of_a_slot_goes() -> None:
    world = two_nodes()
    job = world.job("ppo")
    world.cycle()
    world.control()
    world.pod("ppo-learner-0", "", uid="unbound", phase="Pending", owner=LEADER_OWNER, cpu=1)
    assert to_go(world, job) == (["unbound"], [])


def test_a_late_pod_on_the_node_that_was_decided_again_fills_its_slot() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=1)
    world.settle()
    world.job("ppo", workers=2, generation=2)
    world.cycle()
    world.job("ppo", workers=1, generation=3)
    world.job("ppo", workers=2, generation=4)
    late = world.pod("ppo-actors-1", "n1", owner=PodOwner("uid-ppo", 0, "actors", False, 1), cpu=1)
    assert (1, 1) not in job.bound
    world.cycle()
    world.change_pod(late, ready=False)
    assert job.bound[1, 1] == late


def test_pods_that_a_job_left_behind_are_still_found() -> None:
    world = two_nodes()
    job = world.job("ppo", workers=1)
    world.settle()
    pods = sorted(job.bound.values())
    world.job_gone(job)
    assert sorted(pod.uid for pod in orphans(world.state, job.uid).delete) == pods
