"""Complete lives of jobs on a real API server, as shown by kubectl: how each runs and ends, and its Events in order."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.collector import garbage_collector
from tests.e2e.harness import (
    PODS,
    TYJOBS,
    Kubelets,
    Worker,
    apply,
    await_stage,
    eventually,
    finish_leader,
    fleet,
    job,
    kubelets,
    pod_template,
    pods_of,
    status_of,
)
from tests.servers import MERGE, RealKube, real_redis

WAIT = "--timeout=60s"
STARTED = ["Accepted", "Scheduled", "WorkersReady"]
AGAIN = ["Scheduled", "WorkersReady"]


@dataclass
class Scene:
    """One process with all roles on a real API server, and the actions of users and machines there."""

    kube: RealKube
    kubelets: Kubelets
    worker: Worker

    def kubectl(self, *arguments: str) -> str:
        return self.kube.kubectl(*arguments).stdout

    def run(self, made: dict[str, Any]) -> str:
        """Apply a job, wait until it runs, and return its name."""
        name: str = made["metadata"]["name"]
        apply(self.kube, made)
        self.kubectl("wait", f"tyj/{name}", "--for=condition=Running", WAIT)
        return name

    def edit(self, name: str, **spec: Any) -> None:
        self.kubectl("patch", "tyj", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def story(self, name: str) -> list[str]:
        """The reasons of a job's Events, in kubectl's order, which is the server's."""
        chosen = f"fieldSelector=involvedObject.kind=TYJob,involvedObject.name={name}"
        events = self.kube.request("GET", f"/api/v1/namespaces/default/events?{chosen}")[1]["items"]
        return [event["reason"] for event in events]

    def told(self, name: str, story: list[str]) -> None:
        """Wait for the last reason, because Events follow the status that they report, and check the whole story."""
        self.tells(name, story[-1])
        assert self.story(name) == story, self.warnings()

    def tells(self, name: str, last: str) -> None:
        """Wait until the last Event of a job has this reason."""
        eventually(f"the story of {name} ends with {last}", lambda: self.story(name)[-1:] == [last])

    def warnings(self) -> list[dict[str, Any]]:
        """What the process warned of, such as an Event that the API server didn't take."""
        return [line for line in self.worker.log() if line.get("level") in ("warning", "error")]

    def pods(self, name: str) -> dict[str, str]:
        """The names and UIDs of a job's pods that aren't being deleted."""
        pods = [pod["metadata"] for pod in pods_of(self.kube, name)]
        return {pod["name"]: pod["uid"] for pod in pods if "deletionTimestamp" not in pod}

    def fail(self, pod: str) -> None:
        """Report a pod as failed, as a kubelet does."""
        self.kube.request("PATCH", f"{PODS}/{pod}/status", {"status": {"phase": "Failed"}}, content_type=MERGE)

    def gone(self, *names: str) -> None:
        """Wait until the TYJobs and their pods are deleted."""
        for name in names:
            eventually(
                f"{name} is gone", lambda name=name: self.kube.request("GET", f"{TYJOBS}/{name}", check=False)[0] == 404
            )  # type: ignore[misc]
            eventually(f"the pods of {name} are gone", lambda name=name: not pods_of(self.kube, name))  # type: ignore[misc]


@pytest.fixture(scope="module")
def scene(kube_server: RealKube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        kube_server.clear()
        stack.callback(kube_server.clear)
        redis = stack.enter_context(real_redis())
        nodes = [NodeTemplate(f"node-{number}", cpu="16") for number in range(2)]
        machines = stack.enter_context(kubelets(kube_server, *nodes))
        folder: Path = tmp_path_factory.mktemp("story")
        workers = stack.enter_context(fleet(redis_url=redis.url, kube=kube_server, folder=folder, lost_node_s=2))
        (worker,) = workers.start()
        yield Scene(kube_server, machines, worker)


@pytest.fixture
def collected(scene: Scene) -> Iterator[None]:
    """What deleted TYJobs own is deleted at once. Elsewhere in this file, the applier deletes it in the end."""
    with garbage_collector(scene.kube):
        yield


def test_a_leader_that_fails_three_times_with_two_restarts_allowed_fails_its_job(scene: Scene) -> None:
    name = scene.run(job("unlucky", workers=1, restartLimit=2, keepFailedPods=0))
    for attempt in range(3):
        scene.fail(f"{name}-learner-0" + (f"-r{attempt}" if attempt else ""))
        if attempt < 2:
            eventually("a next attempt", lambda attempt=attempt: status_of(scene.kube, name)["attempt"] == attempt + 1)  # type: ignore[misc]
            scene.kubectl("wait", f"tyj/{name}", "--for=condition=Running", WAIT)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Failed", WAIT)
    status = status_of(scene.kube, name)
    assert (status["stage"], status["attempt"], status["restarts"]) == ("Failed", 2, 2)
    assert status["message"] == "the leader failed (its containers failed) and restartLimit is 2"
    scene.told(name, [*STARTED, *(["LeaderFailed", *AGAIN] * 2), "RestartLimit"])
    eventually("its pods are cleaned", lambda: not pods_of(scene.kube, name))


def test_workers_that_fail_are_replaced_alone_then_given_up_and_at_last_too_few_are_left(scene: Scene) -> None:
    name = scene.run(job("crowd", workers=2, restartLimit=1))
    eventually("both are ready", lambda: status_of(scene.kube, name)["ready"] == "2/2")
    before = scene.pods(name)
    scene.fail(f"{name}-actors-0")
    eventually("it is replaced", lambda: f"{name}-actors-0-f1" in scene.pods(name))
    eventually("it is ready", lambda: status_of(scene.kube, name)["readyWorkers"] == 2)
    assert before.items() < scene.pods(name).items(), "the others are the same, and the failed one stays"
    scene.fail(f"{name}-actors-0-f1")
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Failed", WAIT)
    status = status_of(scene.kube, name)
    assert status["message"] == "1 worker is given up (restartLimit is 1) and minWorkersNum is 2"
    assert (status["attempt"], status["restarts"], status["workers"][0]["givenUp"]) == (0, 1, "0")
    scene.told(name, [*STARTED, "WorkersReplaced", "WorkersGivenUp", "WorkersFailed"])


def test_a_job_outlives_the_nodes_that_are_deleted_under_it(scene: Scene) -> None:
    on_pool = job("mover", workers=1, least=0, restartLimit=0)
    for template in (on_pool["spec"]["leader"]["template"], on_pool["spec"]["workerSets"][0]["template"]):
        template["spec"]["nodeSelector"] = {"pool": "mover"}
    for number in range(2):
        scene.kubelets.add(NodeTemplate(f"mover-{number}", cpu="1", labels={"pool": "mover"}))
    name = scene.run(on_pool)
    eventually("its worker is ready", lambda: status_of(scene.kube, name)["ready"] == "1/1")

    def node_of(role: str) -> str:
        roles = {p["metadata"]["labels"]["arranger.dev/role"]: p["spec"]["nodeName"] for p in pods_of(scene.kube, name)}
        return roles.get(role, "")

    first, lost = node_of("leader"), node_of("worker")
    scene.kubelets.add(NodeTemplate("mover-2", cpu="1", labels={"pool": "mover"}))
    scene.kubectl("delete", "node", lost)
    eventually("its worker is elsewhere", lambda: node_of("worker") == "mover-2")
    eventually("and ready", lambda: status_of(scene.kube, name)["ready"] == "1/1")
    assert (status_of(scene.kube, name)["attempt"], node_of("leader")) == (0, first)
    scene.kubectl("delete", "node", first)
    eventually("a next attempt", lambda: status_of(scene.kube, name)["attempt"] == 1)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Running", WAIT)
    status = status_of(scene.kube, name)
    assert (node_of("leader"), status["restarts"], status["scheduleState"]) == ("mover-2", 0, "ScheduledPartly")
    finish_leader(scene.kube, name)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Succeeded", WAIT)
    scene.tells(name, "LeaderSucceeded")
    story = [reason for reason in scene.story(name) if reason != "FailedScheduling"]
    assert story == [*STARTED, "WorkersReplaced", "NodeLost", *AGAIN, "LeaderSucceeded"]


def test_nodes_are_drained_under_a_job_and_none_of_its_pods_comes_back_to_them(scene: Scene) -> None:
    on_pool = job("drained", workers=1, least=0, restartLimit=0)
    for template in (on_pool["spec"]["leader"]["template"], on_pool["spec"]["workerSets"][0]["template"]):
        template["spec"]["nodeSelector"] = {"pool": "drained"}
    for number in range(3):
        scene.kubelets.add(NodeTemplate(f"drained-{number}", cpu="1", labels={"pool": "drained"}))
    name = scene.run(on_pool)

    def nodes() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods_of(scene.kube, name)}

    eventually("its worker is ready", lambda: status_of(scene.kube, name)["ready"] == "1/1")
    first = nodes()
    scene.kubectl("drain", first[f"{name}-actors-0"], "--timeout=60s")
    [last] = {"drained-0", "drained-1", "drained-2"}.difference(first.values())
    eventually("its worker is elsewhere", lambda: nodes().get(f"{name}-actors-0") == last)
    eventually("and ready", lambda: status_of(scene.kube, name)["ready"] == "1/1")
    scene.kubectl("uncordon", first[f"{name}-actors-0"])
    scene.kubectl("drain", first[f"{name}-learner-0"], "--timeout=60s")
    eventually("a next attempt", lambda: status_of(scene.kube, name)["attempt"] == 1)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Running", WAIT)
    eventually("its worker is ready again", lambda: status_of(scene.kube, name)["ready"] == "1/1")
    assert first[f"{name}-learner-0"] not in nodes().values() and status_of(scene.kube, name)["restarts"] == 0
    finish_leader(scene.kube, name)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Succeeded", WAIT)
    scene.tells(name, "LeaderSucceeded")
    story = [reason for reason in scene.story(name) if reason != "FailedScheduling"]
    # The worker of the next attempt may get its node a cycle later than the leader.
    story = [reason for reason in story if reason != "FullyScheduled"]
    assert story == [*STARTED, "WorkersReplaced", "LeaderLost", *AGAIN, "LeaderSucceeded"]


@pytest.mark.usefixtures("collected")
def test_a_job_is_suspended_resumed_succeeds_and_goes_when_its_time_is_over(scene: Scene) -> None:
    name = scene.run(job("paused", workers=1))
    scene.edit(name, suspend=True)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Suspended", WAIT)
    eventually("its pods are gone", lambda: not pods_of(scene.kube, name))
    scene.edit(name, suspend=False)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Suspended=false", WAIT)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Running", WAIT)
    finish_leader(scene.kube, name)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Succeeded", WAIT)
    scene.tells(name, "LeaderSucceeded")
    described = scene.kubectl("describe", "tyj", name).partition("Events:")[2].splitlines()[3:]
    story = [*STARTED, "Suspended", "Resumed", *AGAIN, "LeaderSucceeded"]
    assert [line.split()[1] for line in described] == story, scene.warnings()
    scene.edit(name, ttlSecondsAfterFinished=1)
    scene.gone(name)
    scene.told(name, story)


@pytest.mark.usefixtures("collected")
def test_the_minimum_and_the_priority_of_a_running_job_can_be_changed(scene: Scene) -> None:
    name = scene.run(job("edited", workers=2, least=1, restartLimit=0))
    eventually("both are ready", lambda: status_of(scene.kube, name)["ready"] == "2/2")
    before = scene.pods(name)
    scene.edit(name, minWorkersNum=2)
    scene.edit(name, priority=9)
    scene.kubectl("wait", f"tyj/{name}", "--for=jsonpath={.status.observedGeneration}=3", WAIT)
    status = status_of(scene.kube, name)
    assert {one["observedGeneration"] for one in status["conditions"]} == {3}
    assert (status["stage"], scene.pods(name)) == ("Running", before)
    refused = scene.kube.kubectl(
        "patch", "tyj", name, "--type=merge", "-p", '{"spec":{"minWorkersNum":3}}', check=False
    )
    assert refused.returncode == 1 and "minWorkersNum" in refused.stderr
    # Before, one worker less was still a quorum; now it causes another attempt.
    evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
    scene.kube.request("PATCH", f"{PODS}/{name}-actors-1/status", evicted, content_type=MERGE)
    eventually("a next attempt", lambda: status_of(scene.kube, name)["attempt"] == 1)
    scene.kubectl("wait", f"tyj/{name}", "--for=condition=Running", WAIT)
    scene.told(name, [*STARTED, "WorkersLost", *AGAIN])
    scene.kubectl("delete", "tyj", name, WAIT)
    scene.gone(name)


# --- kubectl delete -----------------------------------------------------------------------------------------------


def in_every_stage(scene: Scene) -> dict[str, str]:
    """A job in each stage: stage → name."""
    slow = job("d-starting", workers=1)
    slow["spec"]["leader"]["template"] = pod_template(start_seconds=600)
    apply(
        scene.kube,
        job("d-pending", cpu="99"),
        slow,
        *[job(name, workers=1) for name in ("d-running", "d-rescheduling")],
        job("d-succeeded", workers=1, cleanPodPolicy="None"),
    )
    await_stage(scene.kube, "Running", "d-running", "d-rescheduling", "d-succeeded")
    finish_leader(scene.kube, "d-succeeded")
    held = {"metadata": {"finalizers": ["example.org/held"]}}
    scene.kube.request("PATCH", f"{PODS}/d-rescheduling-actors-0", held, content_type=MERGE)
    scene.fail("d-rescheduling-learner-0")
    found = {name.removeprefix("d-").capitalize(): name for name in
             ("d-pending", "d-starting", "d-running", "d-rescheduling", "d-succeeded")}  # fmt: skip
    for stage, name in found.items():
        await_stage(scene.kube, stage, name)
    eventually("the leader is there", lambda: pods_of(scene.kube, "d-starting"))
    return found


def test_a_job_can_be_deleted_in_every_stage_and_leaves_nothing(scene: Scene) -> None:
    jobs = in_every_stage(scene)
    scene.kubectl("delete", "tyj", *jobs.values(), WAIT)
    held = f"{PODS}/d-rescheduling-actors-0"
    eventually(
        "the held pod is told to go", lambda: "deletionTimestamp" in scene.kube.request("GET", held)[1]["metadata"]
    )
    scene.kube.request("PATCH", held, {"metadata": {"finalizers": None}}, content_type=MERGE)
    scene.gone(*jobs.values())
    # The names are free for other jobs.
    again = scene.run(job("d-rescheduling", workers=1))
    assert set(scene.pods(again)) == {"d-rescheduling-learner-0", "d-rescheduling-actors-0"}
    assert status_of(scene.kube, again)["attempt"] == 0
    scene.kubectl("delete", "tyj", again, WAIT)
    scene.gone(again)


def owned(scene: Scene, name: str) -> list[dict[str, Any]]:
    return [pod for pod in pods_of(scene.kube, name) if pod["metadata"].get("ownerReferences")]


def finalize(scene: Scene, name: str) -> None:
    """Remove the finalizer, as the garbage collector does after it has handled the pods."""
    scene.kube.request("PATCH", f"{TYJOBS}/{name}", {"metadata": {"finalizers": None}}, content_type=MERGE)


def test_a_job_deleted_in_the_foreground_waits_for_its_pods(scene: Scene) -> None:
    name = scene.run(job("fore", workers=1))
    scene.kubectl("delete", "tyj", name, "--cascade=foreground", "--wait=false")
    assert "deletionTimestamp" in scene.kube.request("GET", f"{TYJOBS}/{name}")[1]["metadata"]
    # No garbage collector runs here, so the test does its work.
    for pod in owned(scene, name):
        scene.kube.request("DELETE", f"{PODS}/{pod['metadata']['name']}")
    eventually("its pods are gone and no others come", lambda: not pods_of(scene.kube, name))
    finalize(scene, name)
    scene.gone(name)
    scene.told(name, STARTED)


def test_the_pods_of_a_job_deleted_with_cascade_orphan_run_on(scene: Scene) -> None:
    name = scene.run(job("parent", workers=1))
    before = scene.pods(name)
    scene.kubectl("delete", "tyj", name, "--cascade=orphan", "--wait=false")
    for pod in owned(scene, name):  # what the garbage collector does
        free = {"metadata": {"ownerReferences": None}}
        scene.kube.request("PATCH", f"{PODS}/{pod['metadata']['name']}", free, content_type=MERGE)
    finalize(scene, name)
    eventually("the TYJob is gone", lambda: scene.kube.request("GET", f"{TYJOBS}/{name}", check=False)[0] == 404)
    other = scene.run(job("after", workers=1))  # by then, all pending effects are done
    assert scene.pods(name) == before
    scene.kubectl("delete", "tyj", other, WAIT)
    scene.kubectl("delete", "pods", "-l", f"arranger.dev/job in ({name}, {other})", WAIT)
    scene.gone(other)
