"""Pods that hang in Terminating: they are named, and on a lost node no new attempt waits for them."""

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.kube.cluster import EVENTS
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.messages.decisions import stage_text
from arranger.messages.departures import hanging_text
from arranger.model.job import HANGS_AFTER_MS, RestartPolicy, RestartScope, Stage
from arranger.model.pod import PodTimes
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.sandbox.store import Store
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reporter import Reporter
from tests.unit.test_replay_room import explained
from tests.world import World, shape

GRACE_S = 30


def gang(*, workers: int = 2, nodes: int = 4) -> tuple[World, JobRecord]:
    """A running job of workers that restart together, each on a node of its own; half of the nodes are free."""
    world = World()
    for number in range(nodes):
        world.node(f"n{number}", gpus=8)
    restart = {"w": RestartPolicy(RestartScope.JOB, limit=3)}
    sets = [("w", workers, shape(gpus=8))]
    job = world.job("gang", workers=sets, minimums={"w": workers}, restart=restart, equals=True)
    world.settle()
    assert job.stage == Stage.RUNNING
    return world, job


def delete(world: World, uid: str) -> None:
    """Somebody deletes a pod, and its kubelet doesn't confirm it."""
    world.change_pod(uid, deleting=True, ready=False, times=PodTimes(world.now_ms + GRACE_S * 1000, 0, 0))


def lost(*, hangs: bool = True) -> tuple[World, JobRecord, str]:
    """The gang, after the node of its first worker was lost and the others have gone; the UID of the pod there."""
    world, job = gang()
    uid, node = job.bound[(1, 0)], job.placements[(1, 0)]
    delete(world, uid)
    world.node(node, gpus=8, ready=False)
    world.pass_time(world.lifecycle.node_lost_after_ms / 1000)
    world.control()
    assert job.stage == Stage.RESCHEDULING
    for pod in [pod for pod in world.state.pods.values() if pod.uid != uid or not hangs]:
        world.pod_gone(pod.uid)
    return world, job, uid


def message(world: World, job: JobRecord) -> str:
    return str(desired_status(world.state, job)["message"])


def test_a_pod_that_hangs_on_a_lost_node_holds_up_no_new_attempt() -> None:
    world, job, uid = lost()
    name = world.state.pods[uid].name
    [decision] = world.control()
    assert isinstance(decision, k.StageDecided)
    assert (decision.stage, decision.reason) == (Stage.RESCHEDULING, "PodsLeftBehind")
    assert stage_text(decision) == (
        f"pod {name} of its earlier attempt hangs on n0, which has not been ready for 60 s: it goes on without it"
    )
    assert (job.attempt, job.left_behind) == (1, (uid,))
    assert f"left behind: pod {name} on n0, which is not ready, is being deleted" in message(world, job)
    world.cycle()
    for index in range(2):
        world.run_pod(job, (1, index), job.placements[1, index])
    world.control()
    assert job.stage == Stage.RUNNING
    assert {world.state.pods[of].name for of in job.bound.values()} == {"gang-w-0-r1", "gang-w-1-r1"}
    assert uid not in job.bound.values() and "n0" not in job.placements.values()
    assert [pod.uid for pod in desired_pods(world.state, job).force] == [uid], "it is still to be deleted"
    validate(world.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(world.state))) == snapshot.digest(world.state)
    world.pod_gone(uid)
    assert job.left_behind == () and "left behind" not in message(world, job)


def test_a_pod_that_hangs_on_a_ready_node_is_waited_for_and_named() -> None:
    world, job, _ = lost()
    world.node("n0", gpus=8)  # its kubelet is back
    world.pass_time(3600)
    assert world.control() == [] and world.cycle() == ()
    named = "pod gang-w-0 on n0 is being deleted, with time to end until 20"
    assert f"the pods of the earlier attempt have to go first: {named}" in message(world, job)
    assert named in str(explained(world.entries, "gang").waiting)


@pytest.mark.parametrize("how", ["on a ready node", "not deleted yet"])
def test_the_log_refuses_to_leave_a_pod_behind_that_may_go_by_itself(how: str) -> None:
    world, job, uid = lost()
    base = job.version
    if how == "on a ready node":
        world.node("n0", gpus=8)
    else:
        world.change_pod(uid, deleting=False)
    world.say(k.StageDecided(job.uid, base, job.attempt, Stage.RESCHEDULING, "PodsLeftBehind"))  # type: ignore[arg-type]
    assert job.left_behind == () and "may go by itself" in world.verdict("StageDecided").reason


def test_before_its_grace_period_is_over_a_pod_on_a_lost_node_is_waited_for() -> None:
    world, _, uid = lost()
    world.change_pod(uid, times=PodTimes(world.now_ms + 5_000, 0, 0))
    assert world.control() == []
    world.pass_time(5)
    assert [type(of) for of in world.control()] == [k.StageDecided]


def test_a_worker_that_hangs_is_named_while_the_job_runs_without_it() -> None:
    world, job = gang()
    uid = job.bound[(1, 1)]
    delete(world, uid)
    said = message(world, job)
    assert said.startswith("running below its quorum: 1 of 2 workers of set w is ready, 1 of 2 workers is ready")
    assert "; pod gang-w-1 on n1 is being deleted, with time to end until 20" in said
    world.pass_time(GRACE_S + HANGS_AFTER_MS / 1000 - 1)
    assert hanging_text(world.state, job, world.now_ms) == ""
    world.pass_time(1)
    assert hanging_text(world.state, job, world.now_ms).startswith(
        "pod gang-w-1 on n1 is being deleted, with time to end"
    )


async def test_an_event_tells_once_of_a_pod_that_hangs() -> None:
    world, job = gang()
    delete(world, job.bound[(1, 1)])
    world.pass_time(GRACE_S + HANGS_AFTER_MS / 1000)
    store, told = Store(now=lambda: world.now_ms / 1000), ToldEvents()
    reporter = Reporter(DirectCluster(store), SystemClock())
    for _ in range(3):
        told.hanging = hanging_text(world.state, job, world.now_ms)
        await reporter.report(job, told)
    found = [
        msgspec.json.decode(item.raw) for item in store.page(EVENTS, Selection(), limit=100, continuation="").items
    ]
    [event] = [of for of in found if of["reason"] == "PodHangs"]
    assert event["message"].startswith("pod gang-w-1 on n1 is being deleted") and event["message"].endswith("it hangs")
    assert event["count"] == 1 and event["type"] == "Warning"
