"""A job's life as shown by kubectl, both on a real API server and on the embedded cluster."""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, cluster_of
from tests.e2e.harness import (
    MERGE,
    PODS,
    TYJOBS,
    Kubelets,
    apply,
    arranger,
    await_stage,
    eventually,
    finish_leader,
    job,
    kubectl_process,
    pod_template,
    pods_of,
    status_of,
)
from tests.servers import KubeServer

WAIT = ("--timeout=120s",)


@dataclass
class Scene:
    """One process with all roles on a cluster of two nodes."""

    kube: KubeServer
    kubelets: Kubelets
    redis_url: str

    def kubectl(self, *arguments: str) -> str:
        return self.kube.kubectl(*arguments).stdout

    def columns(self, name: str, *, wide: bool = False) -> dict[str, str]:
        """The row that `kubectl get` prints: column → cell."""
        return self.kube.columns(f"{TYJOBS}/{name}", wide=wide)

    def printed(self, name: str, *flags: str) -> dict[str, str]:
        """The same, printed by kubectl."""
        head, row = self.kubectl("get", "tyj", name, *flags).splitlines()
        starts = [found.start() for found in re.finditer(r"\S+(?: \S+)*", head)]
        ends = [*starts[1:], max(len(head), len(row))]
        return {head[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)}

    def phases(self, name: str) -> dict[str, str]:
        """Name → phase of the job's pods."""
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods_of(self.kube, name)}

    def probe(self, pod: str, *, ready: bool) -> None:
        """Let a pod's readiness probe succeed or fail."""
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-11-20T00:00:00Z"}
        body = {"status": {"conditions": [condition]}}
        code, answer = self.kube.request("PATCH", f"{PODS}/{pod}/status", body, content_type=MERGE)
        assert code == 200, answer

    def forget(self, name: str) -> None:
        """Delete a job and wait until its pods are deleted, so that the next test has room."""
        self.kubectl("delete", "tyj", name, *WAIT)
        eventually(f"the pods of {name} are gone", lambda: not pods_of(self.kube, name))


@pytest.fixture(scope="module", params=BOTH)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    nodes = [NodeTemplate("node-1", cpu="8"), NodeTemplate("node-2", cpu="8", labels={"pool": "b"})]
    with cluster_of(request, tmp_path_factory.mktemp("life"), *nodes) as cluster:
        yield Scene(cluster.kube, cluster.kubelets, cluster.redis_url)


def test_get_shows_our_columns(scene: Scene) -> None:
    apply(scene.kube, job("shown", priority=7))
    scene.kubectl("wait", "tyj/shown", "--for=condition=Running", *WAIT)
    eventually("both workers are ready", lambda: scene.columns("shown")["READY"] == "2/2")
    row = scene.printed("shown")
    assert list(row) == ["NAME", "STAGE", "READY", "GPUS", "POSITION", "STARTED", "AGE"]
    assert (row["STAGE"], row["GPUS"], row["POSITION"]) == ("Running", "0", "")
    assert re.fullmatch(r"\d+s", row["STARTED"])
    wide = scene.printed("shown", "-o", "wide")
    steady = {name: cell for name, cell in wide.items() if name not in ("STARTED", "AGE")}
    assert steady.items() <= scene.columns("shown", wide=True).items() and {*row} == {*scene.columns("shown")}
    assert (wide["SCHEDULE"], wide["PRIORITY"]) == ("ScheduledSucceed", "7")
    leader = next(p for p in pods_of(scene.kube, "shown") if p["metadata"]["name"] == "shown-learner-0")
    assert leader["status"]["podIP"] in wide.values()
    assert {"RESTARTS", "MESSAGE"} <= set(wide)
    described = scene.kubectl("describe", "tyj", "shown")
    assert "Running: the leader runs and enough workers are ready" in described.partition("Events:")[2]
    status = json.loads(scene.kubectl("get", "tyj", "shown", "-o", "json"))["status"]
    assert status["observedGeneration"] == 1 and status["totalWorkers"] == status["readyWorkers"] == 2
    scene.forget("shown")


def test_a_running_job_below_its_quorum_says_so_everywhere(scene: Scene) -> None:
    apply(scene.kube, job("thin", workers=2, minWorkersNum=2))
    scene.kubectl("wait", "tyj/thin", "--for=condition=Ready", *WAIT)
    ready = {one["type"]: one for one in status_of(scene.kube, "thin")["conditions"]}["Ready"]
    assert (ready["reason"], ready["status"]) == ("QuorumReady", "True")
    scene.probe("thin-actors-1", ready=False)
    scene.kubectl("wait", "tyj/thin", "--for=condition=Ready=false", *WAIT)
    said = "running below its quorum: 1 of 2 workers is ready"
    wide, status = scene.columns("thin", wide=True), status_of(scene.kube, "thin")
    told = {one["type"]: one["message"] for one in status["conditions"]}
    assert (wide["STAGE"], wide["READY"], wide["MESSAGE"]) == ("Running", "1/2", said)
    assert told["Ready"] == told["Running"] == status["message"] == said
    explained = arranger("explain", "thin", "--log", scene.redis_url, "-o", "json")
    assert json.loads(explained.stdout)["standing"]["message"] == said
    scene.probe("thin-actors-1", ready=True)
    scene.kubectl("wait", "tyj/thin", "--for=condition=Ready", *WAIT)
    assert scene.columns("thin", wide=True)["READY"] == "2/2"
    scene.forget("thin")


def test_watch_and_wait_follow_a_job_to_its_end(scene: Scene) -> None:
    apply(scene.kube, job("earlier", suspend=True))
    watching = kubectl_process(scene.kube, "get", "tyj", "-w", "--output-watch-events")
    try:
        assert watching.stdout is not None
        assert any(" earlier " in line for line in watching.stdout)  # kubectl has begun to watch
        apply(scene.kube, job("followed", run_s=2))
        scene.kubectl("wait", "tyj/followed", "--for=condition=Scheduled", *WAIT)
        scene.kubectl("wait", "tyj/followed", "--for=condition=Finished", *WAIT)
        assert scene.columns("followed")["READY"] == "2/2", "what it had"
        scene.kubectl("wait", "tyj/followed", "--for=condition=Succeeded", *WAIT)
        assert status_of(scene.kube, "followed")["completionTime"]
        eventually("its pods are cleaned", lambda: scene.phases("followed") == {})
        scene.kubectl("delete", "tyj", "followed", *WAIT)
        seen: list[str] = []
        for line in watching.stdout:
            seen.append(line)
            if line.startswith("DELETED"):
                break
    finally:
        watching.kill()
        watching.wait()
    stages = [line.split()[2] for line in seen if " followed " in line and len(line.split()) > 4]
    in_order = [stage for stage, _ in itertools.groupby(stages)]
    assert in_order[in_order.index("Starting") :] == ["Starting", "Running", "Succeeded"], seen
    scene.forget("earlier")


def test_a_user_ends_a_job_by_terminating(scene: Scene) -> None:
    apply(scene.kube, job("stopped"))
    await_stage(scene.kube, "Running", "stopped")
    scene.kubectl("patch", "tyj", "stopped", "--type=merge", "-p", '{"spec":{"terminating":true}}')
    scene.kubectl("wait", "tyj/stopped", "--for=condition=Succeeded", *WAIT)
    assert "terminating" in status_of(scene.kube, "stopped")["message"]
    eventually("its pods are cleaned", lambda: scene.phases("stopped") == {})
    scene.forget("stopped")


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("All", {}),
        (None, {}),
        ("Running", {"kept-learner-0": "Succeeded"}),
        ("None", {"kept-learner-0": "Succeeded", "kept-actors-0": "Running", "kept-actors-1": "Running"}),
    ],
)
def test_the_clean_pod_policy_says_which_pods_stay(scene: Scene, policy: str | None, left: dict[str, str]) -> None:
    apply(scene.kube, job("kept", cleanPodPolicy=policy))
    await_stage(scene.kube, "Running", "kept")
    finish_leader(scene.kube, "kept")
    await_stage(scene.kube, "Succeeded", "kept")
    eventually(f"{left} are left", lambda: scene.phases("kept") == left)
    # Later events don't change that: another job goes through all the same steps.
    apply(scene.kube, job("other", workers=0, run_s=0.5))
    await_stage(scene.kube, "Succeeded", "other")
    assert scene.phases("kept") == left
    assert status_of(scene.kube, "kept").get("allocations", []) == []
    scene.forget("other")
    scene.forget("kept")


def test_a_leader_killed_by_its_memory_limit_says_so_everywhere_and_leaves_its_pod(scene: Scene) -> None:
    killed = job("oom", workers=1, restartLimit=0, cleanPodPolicy=None)
    leader = pod_template(run_s=0.5, exit_code=137, exit_reason="OOMKilled")
    leader["spec"]["restartPolicy"] = "Never"
    killed["spec"]["leader"]["template"] = leader
    apply(scene.kube, killed)
    scene.kubectl("wait", "tyj/oom", "--for=condition=Finished", *WAIT)
    why = "OOMKilled, exit code 137 (SIGKILL) of container main"
    status = status_of(scene.kube, "oom")
    assert (status["stage"], status["message"]) == ("Failed", f"the leader failed ({why}) and restartLimit is 0")
    [failure] = status["lastFailures"]
    assert (failure["pod"], failure["exitCode"], failure["reason"]) == ("oom-learner-0", 137, "OOMKilled")
    assert failure["node"] in ("node-1", "node-2")
    eventually("an Event says it", lambda: why in scene.kubectl("describe", "tyj", "oom").partition("Events:")[2])
    explained = arranger("explain", "oom", "--log", scene.redis_url).stdout.splitlines()
    assert any(why in line for line in explained[:10]), explained
    eventually("only the pod that ended is left", lambda: scene.phases("oom") == {"oom-learner-0": "Failed"})
    scene.forget("oom")


def fail(scene: Scene, *names: str) -> None:
    """Let these pods fail now."""
    for name in names:
        scene.kube.request("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Failed"}}, content_type=MERGE)


def test_failed_pods_stay_for_their_logs_while_others_take_their_slots(scene: Scene) -> None:
    apply(scene.kube, job("crashed", workers=2, least=1, cleanPodPolicy=None, keepFailedPods=1))
    await_stage(scene.kube, "Running", "crashed")
    eventually("all run", lambda: len(scene.phases("crashed")) == 3)
    fail(scene, "crashed-actors-1")
    workers = {"crashed-actors-0": "Running", "crashed-actors-1": "Failed", "crashed-actors-1-f1": "Running"}
    eventually("the next worker runs", lambda: scene.phases("crashed") == {"crashed-learner-0": "Running", **workers})
    labels = "arranger.dev/job=crashed,arranger.dev/worker-set=actors,arranger.dev/index=1"
    assert "crashed-actors-1-f1" in scene.kubectl("get", "pods", "-l", labels)
    eventually("it is ready", lambda: scene.columns("crashed")["READY"] == "2/2")
    fail(scene, "crashed-actors-0", "crashed-learner-0")  # in this order: an earlier attempt's pods just go
    left = {
        **{"crashed-learner-0": "Failed", "crashed-learner-0-r1": "Running", "crashed-actors-0": "Failed"},
        **{"crashed-actors-0-r1": "Running", "crashed-actors-1-r1": "Running"},
    }
    eventually("the next attempt runs, and the newest failed pods stay", lambda: scene.phases("crashed") == left)
    finish_leader_of(scene, "crashed-learner-0-r1")
    scene.kubectl("wait", "tyj/crashed", "--for=condition=Finished", *WAIT)
    ended = {"crashed-learner-0": "Failed", "crashed-actors-0": "Failed"}
    eventually("they outlive the job's end", lambda: scene.phases("crashed") == ended)
    scene.forget("crashed")


def finish_leader_of(scene: Scene, pod: str) -> None:
    """Let this leader succeed now."""
    scene.kube.request("PATCH", f"{PODS}/{pod}/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE)


def uids(scene: Scene, name: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods_of(scene.kube, name)}


def test_a_job_without_its_trainers_waits_and_holds_nothing(scene: Scene) -> None:
    verl = job("verl", least=None, workers=2)
    verl["spec"] |= {"minWorkersNum": None}
    trainer = {"name": "trainer", "counts": 4, "minCount": 4, "template": pod_template(cpu="1")}
    trainer["template"]["spec"]["nodeSelector"] = {"pool": "trainers"}
    verl["spec"]["workerSets"] += [trainer]
    apply(scene.kube, verl)
    scene.kubelets.add(NodeTemplate("trainers-1", cpu="3", labels={"pool": "trainers"}))
    eventually("it says for what it waits", lambda: "trainer" in status_of(scene.kube, "verl").get("message", ""))
    assert (status_of(scene.kube, "verl")["stage"], scene.phases("verl")) == ("Pending", {})
    scene.kubelets.add(NodeTemplate("trainers-2", cpu="1", labels={"pool": "trainers"}))
    await_stage(scene.kube, "Running", "verl")
    eventually("all are ready", lambda: scene.columns("verl")["READY"] == "6/6")
    scene.forget("verl")
    scene.kubectl("delete", "node", "trainers-1", "trainers-2")


def test_eight_workers_that_fail_at_once_under_a_limit_of_three_are_all_replaced(scene: Scene) -> None:
    apply(scene.kube, job("eight", workers=8, restartLimit=3))
    await_stage(scene.kube, "Running", "eight")
    before = uids(scene, "eight")
    workers = [f"eight-actors-{index}" for index in range(8)]
    fail(scene, *workers)
    again = {f"{name}-f1": "Running" for name in workers}
    eventually("each has a new pod", lambda: again.items() <= scene.phases("eight").items())
    eventually("all are ready", lambda: scene.columns("eight")["READY"] == "8/8")
    stay = {f"eight-actors-{index}" for index in range(3)}
    eventually(
        "the first three stay, which the messages name",
        lambda: {pod for pod, phase in scene.phases("eight").items() if phase == "Failed"} == stay,
    )
    status = status_of(scene.kube, "eight")
    assert (status["stage"], status["attempt"]) == ("Running", 0)
    assert (status["workers"][0]["restartsByIndex"], "givenUp" in status["workers"][0]) == ("0-7:1", False)
    assert uids(scene, "eight")["eight-learner-0"] == before["eight-learner-0"]
    scene.forget("eight")


def test_a_worker_restarts_its_whole_set_and_nobody_else(scene: Scene) -> None:
    together = job("together", workers=3)
    together["spec"]["workerSets"][0]["restart"] = {"scope": "Set", "limit": 1}
    together["spec"]["workerSets"] += [{"name": "eval", "counts": 1, "template": pod_template(cpu="1")}]
    apply(scene.kube, together)
    await_stage(scene.kube, "Running", "together")
    eventually("all are ready", lambda: scene.columns("together")["READY"] == "4/4")
    before = uids(scene, "together")
    fail(scene, "together-actors-1")
    changed = {"together-actors-0", "together-actors-1-f1", "together-actors-2"}
    eventually(
        "the set has new pods",
        lambda: {n for n, uid in uids(scene, "together").items() if before.get(n) != uid} == changed,
    )
    eventually("all are ready", lambda: scene.columns("together")["READY"] == "4/4")
    status = status_of(scene.kube, "together")
    assert (status["stage"], status["attempt"], status["workers"][0]["restartsByIndex"]) == ("Running", 0, "1:1")
    scene.forget("together")


def on_pool(pool: str, **parts: Any) -> dict[str, Any]:
    """A job whose pods run on the nodes of a pool."""
    made = job(**parts)
    for template in (made["spec"]["leader"]["template"], made["spec"]["workerSets"][0]["template"]):
        template["spec"]["nodeSelector"] = {"pool": pool}
    return made


def test_a_drained_worker_that_restarts_its_job_is_not_said_to_have_failed(scene: Scene) -> None:
    for number in range(3):
        scene.kubelets.add(NodeTemplate(f"whole-{number}", cpu="1", labels={"pool": "whole"}))
    whole = on_pool("whole", name="whole", workers=1, least=1)
    whole["spec"]["workerSets"][0]["restart"] = {"scope": "Job"}
    apply(scene.kube, whole)
    await_stage(scene.kube, "Running", "whole")
    [node] = [pod["spec"]["nodeName"] for pod in pods_of(scene.kube, "whole") if "actors" in pod["metadata"]["name"]]
    scene.kubectl("drain", node, "--timeout=60s")
    eventually("it runs again", lambda: status_of(scene.kube, "whole")["attempt"] == 1)
    await_stage(scene.kube, "Running", "whole")
    said = f"Rescheduling: worker actors-0 was lost (node {node} is cordoned); the whole job is restarted"
    eventually("an Event says why", lambda: events_of(scene, "whole", "WorkerEnded") == [said])
    assert status_of(scene.kube, "whole")["restarts"] == 0
    scene.forget("whole")
    scene.kubectl("delete", "node", *(f"whole-{number}" for number in range(3)))


def test_workers_that_belong_together_wait_until_a_rack_has_room_for_all_of_them(scene: Scene) -> None:
    for number, cpu in enumerate(("4", "4", "4", "2")):
        labels = {"pool": "racks", "x.io/rack": f"r{number // 2}"}
        scene.kubelets.add(NodeTemplate(f"racks-{number}", cpu=cpu, labels=labels))
    racks = on_pool("racks", name="racks", workers=5, least=5)
    racks["spec"]["topology"] = {"levels": ["x.io/rack"], "within": "Set"}
    for each in racks["spec"]["workerSets"]:
        each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    apply(scene.kube, racks)
    lack = "no rack takes all 5 pods of actors (2 racks, at most 4 fit)"
    eventually("it says for what it waits", lambda: lack in status_of(scene.kube, "racks").get("message", ""))
    assert scene.phases("racks") == {}
    change = {"spec": {"topology": {"mode": "Preferred"}}}
    code, answer = scene.kube.request("PATCH", f"{TYJOBS}/racks", change, content_type=MERGE)
    assert code == 200, answer
    await_stage(scene.kube, "Running", "racks")
    change = {"spec": {"topology": None}}
    code, answer = scene.kube.request("PATCH", f"{TYJOBS}/racks", change, content_type=MERGE, check=False)
    assert code == 422 and "can't be changed once the job has started" in str(answer)
    scene.forget("racks")
    racks["spec"]["workerSets"][0]["counts"] = racks["spec"]["minWorkersNum"] = 4
    apply(scene.kube, racks)
    await_stage(scene.kube, "Running", "racks")
    actors = [pod["spec"]["nodeName"] for pod in pods_of(scene.kube, "racks") if "-actors-" in pod["metadata"]["name"]]
    assert sorted(actors) == ["racks-0", "racks-0", "racks-1", "racks-1"]
    scene.forget("racks")
    scene.kubectl("delete", "node", *(f"racks-{number}" for number in range(4)))


def test_an_elastic_job_fills_up_when_a_node_appears(scene: Scene) -> None:
    scene.kubelets.add(NodeTemplate("elastic-1", cpu="3", labels={"pool": "elastic"}))
    apply(scene.kube, on_pool("elastic", name="elastic", workers=5, least=1))
    await_stage(scene.kube, "Running", "elastic")
    eventually("two workers fit", lambda: scene.columns("elastic")["READY"] == "2/5")
    assert scene.columns("elastic", wide=True)["SCHEDULE"] == "ScheduledPartly"
    assert "cpu" in status_of(scene.kube, "elastic")["message"]
    scene.kubelets.add(NodeTemplate("elastic-2", cpu="8", labels={"pool": "elastic"}))
    eventually("all are ready", lambda: scene.columns("elastic")["READY"] == "5/5")
    assert scene.columns("elastic", wide=True)["SCHEDULE"] == "ScheduledSucceed"
    assert status_of(scene.kube, "elastic")["attempt"] == 0
    scene.forget("elastic")
    scene.kubectl("delete", "node", "elastic-1", "elastic-2")


def test_counts_are_raised_and_lowered_while_it_runs(scene: Scene) -> None:
    apply(scene.kube, job("sized", workers=2, least=1))
    await_stage(scene.kube, "Running", "sized")
    eventually("two are ready", lambda: scene.columns("sized")["READY"] == "2/2")
    before = {pod["metadata"]["uid"] for pod in pods_of(scene.kube, "sized")}
    sets = job("sized", workers=4, least=1)["spec"]["workerSets"]
    scene.kubectl("patch", "tyj", "sized", "--type=merge", "-p", json.dumps({"spec": {"workerSets": sets}}))
    eventually("four are ready", lambda: scene.columns("sized")["READY"] == "4/4")
    assert before <= {pod["metadata"]["uid"] for pod in pods_of(scene.kube, "sized")}
    sets[0]["counts"] = 1
    scene.kubectl("patch", "tyj", "sized", "--type=merge", "-p", json.dumps({"spec": {"workerSets": sets}}))
    eventually(
        "the first and the leader are left",
        lambda: scene.phases("sized") == {"sized-learner-0": "Running", "sized-actors-0": "Running"},
    )
    assert scene.columns("sized")["STAGE"] == "Running"
    scene.forget("sized")


def events_of(scene: Scene, name: str, reason: str) -> list[str]:
    """The messages of the Events with a reason, in the order of kubectl's listing."""
    listed = scene.kubectl("get", "events", f"--field-selector=involvedObject.name={name}", "-o", "json")
    return [event["message"] for event in json.loads(listed)["items"] if event["reason"] == reason]


def test_kubectl_scales_a_running_job_up_and_down(scene: Scene) -> None:
    apply(scene.kube, job("scaled", workers=2, least=1))
    await_stage(scene.kube, "Running", "scaled")
    eventually("two are ready", lambda: scene.columns("scaled")["READY"] == "2/2")
    before = uids(scene, "scaled")
    assert scene.kubectl("scale", "tyj/scaled", "--replicas=4") == "tyjob.arranger.dev/scaled scaled\n"
    eventually("four are ready", lambda: scene.columns("scaled")["READY"] == "4/4")
    assert before.items() <= uids(scene, "scaled").items()
    assert status_of(scene.kube, "scaled")["replicas"] == 4
    eventually("an Event", lambda: events_of(scene, "scaled", "Scaled") == ["actors scaled from 2 to 4"])
    scene.kubectl("scale", "tyj/scaled", "--replicas=1", "--current-replicas=4")
    left = {"scaled-learner-0", "scaled-actors-0"}
    eventually("the leader and the first are left", lambda: set(uids(scene, "scaled")) == left)
    assert uids(scene, "scaled").items() <= before.items()
    eventually("one is ready", lambda: scene.columns("scaled")["READY"] == "1/1")
    eventually("another Event", lambda: events_of(scene, "scaled", "Scaled")[1:] == ["actors scaled from 4 to 1"])
    refused = scene.kube.kubectl("scale", "tyj/scaled", "--replicas=0", check=False)
    assert refused.returncode == 1 and "must be at least 1, so that all worker sets" in refused.stderr
    status = status_of(scene.kube, "scaled")
    assert (status["stage"], status["attempt"]) == ("Running", 0)
    finish_leader_of(scene, "scaled-learner-0")
    scene.kubectl("wait", "tyj/scaled", "--for=condition=Finished", *WAIT)
    refused = scene.kube.kubectl("scale", "tyj/scaled", "--replicas=2", check=False)
    assert refused.returncode == 1 and "a job that has ended can't be scaled" in refused.stderr
    scene.forget("scaled")


def test_an_autoscaler_finds_the_number_and_the_pods_of_the_scaled_set(scene: Scene) -> None:
    sized = job("sized-by-replicas", workers=1, least=3, replicas=3, scaledSet="actors")
    del sized["spec"]["workerSets"][0]["counts"]
    sized["spec"]["workerSets"].insert(0, {"name": "critics", "counts": 1, "template": pod_template(cpu="1")})
    apply(scene.kube, sized)
    await_stage(scene.kube, "Running", "sized-by-replicas")
    eventually("four are ready", lambda: scene.columns("sized-by-replicas")["READY"] == "4/4")
    scale = json.loads(scene.kubectl("get", "tyj/sized-by-replicas", "--subresource=scale", "-o", "json"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    selected = scene.kubectl("get", "pods", "-l", scale["status"]["selector"], "-o", "name").split()
    assert selected == [f"pod/sized-by-replicas-actors-{index}" for index in range(3)]
    scene.forget("sized-by-replicas")


def test_a_job_waits_for_its_priority_class_and_its_pods_get_it(scene: Scene) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    apply(scene.kube, job("classed", workers=1, priorityClassName="urgent"))
    waits = "waits for PriorityClass urgent, which doesn't exist"
    eventually("it says for what it waits", lambda: waits in status_of(scene.kube, "classed").get("message", ""))
    assert (status_of(scene.kube, "classed")["stage"], scene.phases("classed")) == ("Pending", {})
    scene.kube.request("POST", classes, {"metadata": {"name": "urgent"}, "value": 100_000})
    await_stage(scene.kube, "Running", "classed")
    eventually("it is ready", lambda: scene.columns("classed")["READY"] == "1/1")
    assert scene.columns("classed", wide=True)["PRIORITY"] == "100000"
    specs = [pod["spec"] for pod in pods_of(scene.kube, "classed")]
    assert [(of["priorityClassName"], of["priority"]) for of in specs] == [("urgent", 100_000)] * 2
    scene.kubectl("delete", "priorityclass", "urgent")
    scene.forget("classed")
    both = job("both", priority=5, priorityClassName="urgent")
    made = scene.kube.kubectl("create", "-f", "-", stdin=json.dumps(both), check=False)
    assert made.returncode == 1 and "spec.priorityClassName: Invalid value: must not be given" in made.stderr


def test_a_job_waits_for_others_and_says_for_which(scene: Scene) -> None:
    apply(scene.kube, job("chained", workers=1, after=[{"name": "prep"}, {"name": "check", "onFailure": "Ignore"}]))
    missing = (
        "waits for job prep, which doesn't exist: create it, or edit spec.after; for job check, which doesn't exist"
    )
    eventually("it names both", lambda: missing in status_of(scene.kube, "chained").get("message", ""))
    apply(scene.kube, job("prep", workers=0, ttlSecondsAfterFinished=0), job("check", workers=0, restartLimit=0))
    await_stage(scene.kube, "Running", "prep", "check")
    eventually(
        "it says that they run",
        lambda: (
            status_of(scene.kube, "chained")["message"]
            == "waits for job prep, which is Running; for job check, which is Running"
        ),
    )
    assert (status_of(scene.kube, "chained")["stage"], scene.phases("chained")) == ("Pending", {})
    finish_leader(scene.kube, "prep")
    eventually("prep is deleted", lambda: scene.kube.request("GET", f"{TYJOBS}/prep", check=False)[0] == 404)
    eventually(
        "one is left", lambda: status_of(scene.kube, "chained")["message"] == "waits for job check, which is Running"
    )
    scene.kube.request("PATCH", f"{PODS}/check-learner-0/status", {"status": {"phase": "Failed"}}, content_type=MERGE)
    await_stage(scene.kube, "Running", "chained")
    assert status_of(scene.kube, "chained")["after"] == [
        {"name": "prep", "stage": "Succeeded"},
        {"name": "check", "stage": "Failed"},
    ]
    told = json.loads(scene.kubectl("get", "events", "-o", "json"))["items"]
    assert [e["message"] for e in told if e["reason"] == "WaitsForJobs"] == ["waits for job check"]
    edited = scene.kube.kubectl("patch", "tyj", "chained", "--type=merge", "-p", '{"spec": {"after": []}}', check=False)
    assert edited.returncode == 1 and "spec.after: Invalid value: can't be changed once" in edited.stderr
    apply(scene.kube, job("failing", workers=0, after=[{"name": "check"}]))
    eventually("it fails", lambda: status_of(scene.kube, "failing").get("stage") == "Failed")
    assert status_of(scene.kube, "failing")["message"] == "job check failed, which had to succeed first"
    scene.forget("chained")
    scene.kubectl("delete", "tyj", "check", "failing", *WAIT)
    itself = scene.kube.kubectl(
        "create", "-f", "-", stdin=json.dumps(job("itself", after=[{"name": "itself"}])), check=False
    )
    assert itself.returncode == 1 and "spec.after: Invalid value: a job can't wait for itself" in itself.stderr


def test_a_deleted_job_takes_its_pods_with_it(scene: Scene) -> None:
    apply(scene.kube, job("gone", workers=3))
    await_stage(scene.kube, "Running", "gone")
    assert len(scene.phases("gone")) == 4
    scene.kubectl("delete", "tyj", "gone", *WAIT)
    eventually("its pods are gone", lambda: scene.phases("gone") == {})
    assert scene.kubectl("get", "tyj", "--ignore-not-found", "gone") == ""


def test_a_job_made_again_under_its_name_is_another_job(scene: Scene) -> None:
    apply(scene.kube, job("again", workers=3))
    await_stage(scene.kube, "Running", "again")
    old = {pod["metadata"]["uid"] for pod in pods_of(scene.kube, "again")}
    scene.kubectl("delete", "tyj", "again", "--wait=false")
    eventually("the name is free", lambda: scene.kube.request("GET", f"{TYJOBS}/again", check=False)[0] == 404)
    apply(scene.kube, job("again", workers=2, run_s=3))
    uid = scene.kube.request("GET", f"{TYJOBS}/again")[1]["metadata"]["uid"]
    await_stage(scene.kube, "Running", "again")
    pods = pods_of(scene.kube, "again")
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods if pod["metadata"]["uid"] not in old} == {uid}
    scene.kubectl("wait", "tyj/again", "--for=condition=Succeeded", *WAIT)
    eventually("all pods are cleaned", lambda: scene.phases("again") == {})
    scene.forget("again")


def test_a_wrong_field_is_refused_at_apply(scene: Scene) -> None:
    made = scene.kube.kubectl("create", "-f", "-", stdin=json.dumps(job("wrong", priority=11)), check=False)
    assert made.returncode == 1
    assert "spec.priority" in made.stderr and "10" in made.stderr
