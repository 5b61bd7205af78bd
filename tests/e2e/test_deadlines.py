"""Deadlines and restarts that are true whatever happens meanwhile, end to end on both clusters: processes and Redis are
away, jobs are preempted, and pods are deleted by hand."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, await_stage, eventually, job, pod_template, pods_of, stages, status_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one node with 8 cpu."""
    with cluster_of(request, tmp_path, NodeTemplate("node-1", cpu="8")) as running:
        yield running


def never_restarted(run_s: float) -> dict[str, Any]:
    template = pod_template(run_s=run_s)
    template["spec"]["restartPolicy"] = "Never"
    return template


def with_deadline(name: str, run_s: float, deadline_s: int, *, leader: bool) -> dict[str, Any]:
    """A job that ends with its leader, or with its two workers, after `run_s`."""
    made = job(name, workers=2, least=0 if leader else 2, activeDeadlineSeconds=deadline_s)
    if leader:
        made["spec"]["leader"]["template"] = never_restarted(run_s)
    else:
        del made["spec"]["leader"]
        made["spec"]["workerSets"][0]["template"] = never_restarted(run_s)
    return made


def freeze_processes(cluster: Cluster) -> Callable[[], None]:
    (worker,) = cluster.fleet.workers.values()
    worker.freeze()
    return worker.thaw


def stall_redis(cluster: Cluster) -> Callable[[], None]:
    cluster.redis.daemon.freeze()
    return cluster.redis.daemon.thaw


@pytest.mark.parametrize("away", [freeze_processes, stall_redis])
def test_what_ended_in_time_while_nobody_looked_has_succeeded(
    cluster: Cluster, away: Callable[[Cluster], Callable[[], None]]
) -> None:
    kube, deadline_s = cluster.kube, 8
    apply(
        kube,
        with_deadline("led", 4.0, deadline_s, leader=True),
        with_deadline("equals", 4.0, deadline_s, leader=False),
        with_deadline("too-long", 60.0, deadline_s, leader=False),
    )
    await_stage(kube, "Running", "led", "equals", "too-long")
    back = away(cluster)
    try:
        time.sleep(deadline_s + 3.0)
    finally:
        back()
    eventually("all have ended", lambda: set(stages(kube).values()) <= {"Succeeded", "Failed"}, within_s=60)
    assert stages(kube) == {"led": "Succeeded", "equals": "Succeeded", "too-long": "Failed"}
    assert "activeDeadlineSeconds is 8" in status_of(kube, "too-long")["message"]


def test_a_deadline_in_a_quiet_cluster_is_met_within_seconds(cluster: Cluster) -> None:
    apply(cluster.kube, with_deadline("late", 600.0, 3, leader=True))
    await_stage(cluster.kube, "Failed", "late")
    active = re.match(r"it was active for (\d+) s", status_of(cluster.kube, "late")["message"])
    assert active is not None and 3 <= int(active[1]) < 15


def test_a_preempted_job_has_its_deadline_anew(cluster: Cluster) -> None:
    kube = cluster.kube
    low = with_deadline("low", 600.0, 8, leader=False)
    low["spec"] |= {"priority": 2}
    low["spec"]["workerSets"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    apply(kube, low)
    await_stage(kube, "Running", "low")
    high = with_deadline("high", 12.0, 600, leader=False)
    high["spec"] |= {"priority": 8}
    high["spec"]["workerSets"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    apply(kube, high)
    await_stage(kube, "Running", "high")
    await_stage(kube, "Succeeded", "high")
    assert stages(kube)["low"] != "Failed"
    await_stage(kube, "Running", "low")
    await_stage(kube, "Failed", "low")
    assert status_of(kube, "low")["message"].startswith("it was active for ")


@pytest.mark.parametrize(("scope", "attempt"), [("Set", 0), ("Job", 1)])
def test_a_deleted_member_restarts_the_others(cluster: Cluster, scope: str, attempt: int) -> None:
    kube = cluster.kube
    made = job("gang", workers=2, least=2)
    made["spec"]["workerSets"][0]["restart"] = {"scope": scope}
    apply(kube, made)
    await_stage(kube, "Running", "gang")
    before = {pod["metadata"]["uid"] for pod in pods_of(kube, "gang")}
    kube.kubectl("delete", "pod", "gang-actors-1")

    def restarted() -> bool:
        pods = pods_of(kube, "gang")
        workers = {pod["metadata"]["uid"] for pod in pods if "actors" in pod["metadata"]["name"]}
        return len(pods) == 3 and not workers & before and status_of(kube, "gang")["ready"] == "2/2"

    eventually("both workers began again", restarted)
    status = status_of(kube, "gang")
    assert (status["attempt"], status["stage"], status["restarts"]) == (attempt, "Running", 0)
