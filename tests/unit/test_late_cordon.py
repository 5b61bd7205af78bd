"""A drain cordons a node and evicts its pods. If the watch of nodes is later than that of pods, the eviction is known
from the pod alone: the decision on a leader that is gone, and `explain`, name it before anybody knows of the cordon."""

import pytest

from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import replaced_text, stage_text
from arranger.model.job import RestartEvent, RestartPolicy, RestartScope
from arranger.model.pod import DISRUPTED
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from tests.unit.replay_worlds import explained
from tests.unit.test_lifecycle_workers import LEADER, running
from tests.world import World

EVICTED = f"{DISRUPTED}: EvictionByEvictionAPI"


def leaves(world: World, job: JobRecord, reason: str = EVICTED) -> None:
    """The leader's pod is deleted, and is gone before its end is seen."""
    uid = job.bound[LEADER]
    world.change_pod(uid, deleting=True, ready=False, reason=reason)
    world.pod_gone(uid)


def decided_text(world: World, job: JobRecord) -> str:
    world.control()
    assert job.decided is not None and job.decided.reason == "LeaderLost"
    return stage_text(job.decided)


def test_an_evicted_leader_is_said_to_be_evicted_before_the_cordon_is_known() -> None:
    world, job = running()
    leaves(world, job)
    said = "the leader's pod is gone: it was evicted through the API, as a drain does (node n1); scheduled again"
    assert decided_text(world, job) == said
    assert said in desired_status(world.state, job)["message"]
    world.node("n1", cpu=3, cordoned=True)
    [lost] = explained(world.entries, "ppo").consequences
    assert lost.message == said
    assert [one.text for one in lost.causes] == [
        "pod ppo-learner-0 was evicted through the API, as a drain does",
    ]


def test_a_job_whose_leader_is_gone_is_not_said_to_wait_for_a_dry_run() -> None:
    """Before a controller has decided on it, a job that has lost its leader gets no further pods."""
    world, job = running(nodes=1, workers=4)
    leaves(world, job)
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None and not waiting.gets
    assert waiting.why == "its pods show that it is about to end, so it gets no more nodes"


def test_a_known_cordon_is_said_too() -> None:
    world, job = running()
    world.node("n1", cpu=3, cordoned=True)
    leaves(world, job)
    assert decided_text(world, job) == (
        "the leader's pod is gone: it was evicted through the API, as a drain does, and its node n1 is cordoned "
        "(drained); scheduled again"
    )


@pytest.mark.parametrize(
    ("reason", "how"),
    [
        ("", ""),
        ("Evicted", ""),
        (DISRUPTED, ": it was disrupted by Kubernetes (DisruptionTarget) (node n1)"),
        (f"{DISRUPTED}: Another", ": it was disrupted by Kubernetes (DisruptionTarget: Another) (node n1)"),
        (f"{DISRUPTED}: DeletionByTaintManager", ": it was deleted because of a taint of its node (node n1)"),
    ],
)
def test_what_else_the_pod_said_of_its_deletion(reason: str, how: str) -> None:
    world, job = running()
    leaves(world, job, reason)
    assert decided_text(world, job) == f"the leader's pod is gone{how}; scheduled again"


def test_the_reason_is_that_of_the_last_leader_and_is_in_snapshots() -> None:
    world, job = running()
    leaves(world, job)
    copy = snapshot.restore(snapshot.encode(world.state))
    assert copy.jobs[job.uid].leader.ended == job.leader.ended is not None
    world.control()
    assert job.leader.ended is None
    world.settle()
    world.pod_gone(job.bound[LEADER])
    assert decided_text(world, job) == "the leader's pod is gone; scheduled again"


# --- workers ------------------------------------------------------------------------------------------------------


def worker_leaves(scope: RestartScope, reason: str) -> tuple[World, JobRecord]:
    """A worker whose end restarts its set, or the whole job: its pod is deleted, and is gone before its end is seen."""
    world, job = running(restart={"actors": RestartPolicy(scope, 3, event=RestartEvent.POD_ENDED)})
    uid = job.bound[1, 1]
    world.change_pod(uid, deleting=True, ready=False, reason=reason)
    world.pod_gone(uid)
    return world, job


_HOWS = [
    ("", ""),
    ("Evicted", ""),
    (EVICTED, ": it was evicted through the API, as a drain does (node {})"),
    (f"{DISRUPTED}: DeletionByTaintManager", ": it was deleted because of a taint of its node (node {})"),
]


@pytest.mark.parametrize(("reason", "how"), _HOWS)
def test_an_evicted_worker_whose_end_restarts_the_job_is_said_to_be_evicted(reason: str, how: str) -> None:
    world, job = worker_leaves(RestartScope.JOB, reason)
    node = job.placements[1, 1]
    copy = snapshot.restore(snapshot.encode(world.state))
    assert copy.jobs[job.uid].disruptions == job.disruptions == ((((1, 1), reason),) if how else ())
    world.control()
    assert job.decided is not None and job.decided.reason == "WorkerEnded" and job.disruptions == ()
    said = f"the pod of worker actors-1 is gone{how.format(node)}" if how else "the pod of worker actors-1 was deleted"
    assert stage_text(job.decided) == f"{said}; the whole job is restarted"
    assert said in desired_status(world.state, job)["message"]
    [lost] = explained(world.entries, "ppo").consequences
    assert lost.message == stage_text(job.decided)


@pytest.mark.parametrize(("reason", "how"), _HOWS)
def test_an_evicted_worker_whose_end_restarts_its_set_is_said_to_be_evicted(reason: str, how: str) -> None:
    world, job = worker_leaves(RestartScope.SET, reason)
    in_brackets = f" ({how.removeprefix(': it ').removesuffix(' (node {})')})" if how else ""
    said = f"deleted: actors 1{in_brackets}; 2 other workers of actors restarted too"
    assert replaced_text(job.replaced.causes, job.spec) == f"workers replaced: {said}"
    assert snapshot.restore(snapshot.encode(world.state)).jobs[job.uid].replaced == job.replaced
