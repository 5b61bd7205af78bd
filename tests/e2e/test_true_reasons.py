"""Situations with a cause that is known because the test brought it about: kubectl, `explain` and the console name it.

All run at once on one embedded cluster, each on nodes and in a namespace of its own. A row says what to do, and the
words that must name the cause. "kubectl" is the job's message, its conditions or one of its Events.
"""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
import yaml

from arranger.cli.main import main
from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.e2e.harness import EmbeddedKube, Kubelets, eventually, fleet, kubelets
from tests.servers import MERGE, REPOSITORY, real_redis
from tests.unit.queue_table import GPU, queue

Object = dict[str, Any]

#: How long a cause may take to be named, in seconds: nobody judges times here.
PATIENCE_S = 150.0


class Stage:
    """The running cluster, as a row uses it: what it applies is in the row's namespace."""

    def __init__(self, kube: EmbeddedKube, running: Kubelets, namespace: str) -> None:
        self.kube, self.kubelets, self.namespace = kube, running, namespace

    def apply(self, *objects: Object) -> None:
        for each in objects:
            each["metadata"].setdefault("namespace", self.namespace)
        self.kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def kubectl(self, *arguments: str) -> str:
        return self.kube.kubectl("-n", self.namespace, *arguments).stdout

    def refused(self, item: Object) -> str:
        """What kubectl says when it doesn't apply the object."""
        item["metadata"].setdefault("namespace", self.namespace)
        return self.kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(item), check=False).stderr

    def get(self, path: str) -> Object:
        found: Object = self.kube.request("GET", path)[1]
        return found

    def job(self, name: str) -> Object:
        return self.get(f"/apis/arranger.dev/v1/namespaces/{self.namespace}/tyjobs/{name}")

    def status(self, name: str) -> Object:
        return self.job(name).get("status") or {}

    def pods(self, name: str) -> list[Object]:
        found: list[Object] = self.get(
            f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=arranger.dev/job={name}"
        )["items"]
        return found

    def staged(self, name: str, stage: str) -> None:
        eventually(
            f"{name} is {stage}, not {self.status(name)}",
            lambda: self.status(name).get("stage") == stage,
            within_s=PATIENCE_S,
        )

    def ready(self, name: str, workers: int) -> None:
        eventually(
            f"{workers} workers of {name} are ready",
            lambda: len(self.pods(name)) == workers and self.status(name).get("readyWorkers") == workers,
            within_s=PATIENCE_S,
        )

    def evict(self, pod: str) -> None:
        named = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named}
        self.kube.request("POST", f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction", eviction)

    def kubectl_words(self, name: str) -> str:
        """What kubectl shows of the job: message, conditions, Events."""
        status = self.status(name)
        events = self.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        told = [event["message"] for event in events if event["involvedObject"]["name"] == name]
        return "\n".join(
            [status.get("message", ""), *(c.get("message", "") for c in status.get("conditions", ())), *told]
        )


def template(
    gpus: int = 0, cpu: str = "100m", *, spec: Object | None = None, resource: str = GPU, **notes: object
) -> Object:
    """A pod's template; `notes` are annotations of the simulated kubelet."""
    requests = {"cpu": cpu} | ({resource: str(gpus)} if gpus else {})
    limits = {resource: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "registry.example/trainer:1",
        "resources": {"requests": requests, "limits": limits},
    }
    annotations = {f"sandbox.arranger.dev/{key.replace('_', '-')}": str(value) for key, value in notes.items()}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], **(spec or {})}}


def tyjob(
    name: str = "job",
    *,
    leader: Object | None = None,
    workers: Object | None = None,
    count: int = 1,
    of_set: Object | None = None,
    **spec: Any,
) -> Object:
    """A TYJob of a leader, of `count` workers, or of both."""
    sets = [{"name": "w", "counts": count, "minCount": count, "template": workers, **(of_set or {})}] if workers else []
    led = {"leader": {"name": "learner", "template": leader}} if leader else {}
    least = {} if workers else {"minWorkersNum": 0}
    metadata = {"name": name}
    return {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": metadata,
        "spec": {**led, "workerSets": sets, **least, **spec},
    }


def on(pool: str, **more: Any) -> Object:
    """What a pod's spec says to run on the nodes of a pool."""
    return {"nodeSelector": {"pool": pool}, **more}


@dataclass
class Row:
    """`cause` brings it about for the job that it names; what `named` matches must be in all three places, and what
    `never` matches in none. `nodes` are the pool of the row's own."""

    name: str
    cause: Callable[[Stage], None]
    named: str
    never: str = ""
    job: str = "job"
    nodes: tuple[NodeTemplate, ...] = ()
    #: Where else than in all three: kubectl alone for what is refused before it is a job.
    places: tuple[str, ...] = field(default=("kubectl", "explain", "console"))


def pool(name: str, count: int = 1, **template: Any) -> tuple[NodeTemplate, ...]:
    labels = {"pool": name, **template.pop("labels", {})}
    return tuple(NodeTemplate(f"{name}-{number}", labels=labels, **template) for number in range(count))


ROWS: list[Row] = []


def row(named: str, *nodes: NodeTemplate, **more: Any) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    def add(cause: Callable[[Stage], None]) -> Callable[[Stage], None]:
        ROWS.append(Row(cause.__name__.strip("_").replace("_", "-"), cause, named, nodes=nodes, **more))
        return cause

    return add


# --- no node for it ----------------------------------------------------------------------------------------


@row(r"tpu-v9")
def no_node_has_the_resource(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(1, resource="example.com/tpu-v9")))


@row(r"nvidia\.com/gpus.*nvidia\.com/gpu\b", *pool("typo", gpus=8))
def a_resource_is_misspelt(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(1, resource="nvidia.com/gpus")))


@row(r"insufficient cpu \(needs 500")
def more_cpu_than_any_node_has(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(cpu="500")))


@row(r"insufficient nvidia\.com/gpu \(needs 8, at most 4 free\)", *pool("few", gpus=4))
def more_gpus_than_are_free(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(8, spec=on("few"))))


@row(r"(?i)node ?selector|don't match")
def no_node_has_the_label(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(spec={"nodeSelector": {"disk": "nvme-of-nobody"}})))


@row(
    r"taint dedicated=vision",
    *pool("tainted", taints=({"key": "dedicated", "value": "vision", "effect": "NoSchedule"},)),
)
def a_taint_keeps_it_away(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(spec=on("tainted"))))


@row(r"cordoned", *pool("closed"))
def the_node_is_cordoned(stage: Stage) -> None:
    stage.kubectl("cordon", "closed-0")
    stage.apply(tyjob(workers=template(spec=on("closed"))))


@row(r"not ready", *pool("down"))
def the_node_is_not_ready(stage: Stage) -> None:
    stage.kubelets.set_ready("down-0", ready=False)
    stage.apply(tyjob(workers=template(spec=on("down"))))


@row(r"(?i)host port", *pool("ports"))
def the_host_port_is_taken(stage: Stage) -> None:
    def of_port() -> Object:
        made = template(spec=on("ports"))
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return made

    stage.apply(tyjob("first", workers=of_port()))
    stage.staged("first", "Running")
    stage.apply(tyjob(workers=of_port()))


@row(r"(?i)anti-affinity", *pool("alone"))
def its_pods_may_not_share_a_node(stage: Stage) -> None:
    term = {"labelSelector": {"matchLabels": {"arranger.dev/job": "job"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stage.apply(tyjob(workers=template(spec=on("alone", affinity=apart)), count=2))


@row(
    r"rack",
    *pool("racks", 2, gpus=4, labels={"rack": "r1"})[:1],
    NodeTemplate("racks-1", gpus=4, labels={"pool": "racks", "rack": "r2"}),
)
def no_rack_has_room_for_all(stage: Stage) -> None:
    stage.apply(
        tyjob(workers=template(4, spec=on("racks")), count=2, topology={"levels": ["rack"], "mode": "Required"})
    )


@row(r"label rack-of-nobody|no node .*rack-of-nobody|rack-of-nobody", *pool("unracked", gpus=4))
def the_label_of_the_rack_is_missing(stage: Stage) -> None:
    stage.apply(
        tyjob(workers=template(spec=on("unracked")), topology={"levels": ["rack-of-nobody"], "mode": "Required"})
    )


@row(
    r"2 no label rack \(topology\)",
    NodeTemplate("partly-0", gpus=8, labels={"pool": "partly", "rack": "r1"}),
    *pool("partly", 3, gpus=8)[1:],
)
def some_nodes_lack_the_label_of_the_rack(stage: Stage) -> None:
    stage.apply(
        tyjob(workers=template(8, spec=on("partly")), count=2, topology={"levels": ["rack"], "mode": "Required"})
    )


# --- limits and queues --------------------------------------------------------------------------------------


@row(r"quota tight")
def the_quota_of_its_namespace_is_used_up(stage: Stage) -> None:
    spec = {"hard": {"pods": "1"}}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"}, "spec": spec})
    stage.kube.request("PATCH", f"/api/v1/namespaces/{stage.namespace}/resourcequotas/tight/status",
                       {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}, content_type=MERGE)  # fmt: skip
    stage.apply(tyjob(workers=template(), count=2))


@row(r"queue nowhere, which doesn't exist")
def its_queue_does_not_exist(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), queue="nowhere"))


@row(r"queue shut, which is closed")
def its_queue_is_closed(stage: Stage) -> None:
    stage.apply(queue("shut", state="Closed"), tyjob(workers=template(), queue="shut"))


@row(r"queue orphan is below lost-parent, which doesn't exist")
def the_parent_of_its_queue_does_not_exist(stage: Stage) -> None:
    stage.apply(queue("orphan", parent="lost-parent"), tyjob(workers=template(), queue="orphan"))


@row(r"queue small.*capability|capability.*small")
def its_queue_may_not_use_more(stage: Stage) -> None:
    stage.apply(queue("small", capability={"cpu": "100m"}), tyjob(workers=template(cpu="200m"), queue="small"))


@row(r"can't use queue private")
def its_namespace_may_not_use_the_queue(stage: Stage) -> None:
    names = {"selector": {"matchLabels": {"team": "others"}}}
    stage.apply(queue("private", namespaces=names), tyjob(workers=template(), queue="private"))


@row(r"maxRunning")
def as_many_jobs_run_as_the_queue_allows(stage: Stage) -> None:
    stage.apply(queue("one-runs", maxRunning=1), tyjob("first", workers=template(), queue="one-runs"))
    stage.staged("first", "Running")
    stage.apply(tyjob(workers=template(), queue="one-runs"))


@row(r"PriorityClass urgent-of-nobody, which doesn't exist")
def its_priority_class_does_not_exist(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), priorityClassName="urgent-of-nobody"))


# --- waiting on purpose -------------------------------------------------------------------------------------


@row(r"suspended by spec\.suspend|suspended")
def the_user_has_suspended_it(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), suspend=True))


@row(r"waits for job first")
def it_waits_for_another_job(stage: Stage) -> None:
    stage.apply(tyjob("first", workers=template()), tyjob(workers=template(), after=[{"name": "first"}]))


@row(r"waits for job ghost, which doesn't exist")
def it_waits_for_a_job_that_does_not_exist(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), after=[{"name": "ghost"}]))


@row(r"other → job|job → other|waits for this one")
def two_jobs_wait_for_each_other(stage: Stage) -> None:
    stage.apply(
        tyjob("other", workers=template(), after=[{"name": "job"}]),
        tyjob(workers=template(), after=[{"name": "other"}]),
    )


@row(r"job first failed")
def the_job_before_it_failed(stage: Stage) -> None:
    stage.apply(
        tyjob(
            "first",
            leader=template(
                run_seconds=0.2,
                exit_code=1,
            ),
            restartLimit=0,
        )
    )
    stage.staged("first", "Failed")
    stage.apply(tyjob(workers=template(), after=[{"name": "first", "onFailure": "Fail"}]))


# --- pods that don't start ----------------------------------------------------------------------------------


@row(r"ImagePullBackOff")
def the_leaders_image_can_not_be_pulled(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(fail="ImagePullBackOff")))


@row(r"CreateContainerConfigError")
def a_secret_of_the_workers_is_missing(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(), workers=template(fail="CreateContainerConfigError")))


@row(r"UnexpectedAdmissionError", *pool("refuses"))
def the_kubelet_refuses_the_pod(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(fail="UnexpectedAdmissionError", spec=on("refuses"))))


@row(r"must specify|limits\.memory")
def the_api_server_refuses_its_pods(stage: Stage) -> None:
    spec = {"hard": {"limits.memory": "1Gi"}}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "strict"}, "spec": spec})
    stage.apply(tyjob(workers=template()))


@row(r"0 of 1 worker|until 1 worker .*is ready|enough ready workers")
def a_worker_is_not_ready_yet(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(ready_seconds=600)))


@row(r"leader is started first|waits for.*(leader|address)|leader's pod")
def the_leader_has_not_started_yet(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(start_seconds=600), workers=template()))


# --- failures -----------------------------------------------------------------------------------------------


@row(r"exit code 3")
def the_leader_exits_with_an_error(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(run_seconds=0.3, exit_code=3, spec={"restartPolicy": "Never"}), restartLimit=0))


@row(r"the leader has finished", never=r"below its quorum|BelowQuorum")
def the_leader_finishes_before_its_workers(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(run_seconds=1), workers=template(), count=2))
    while stage.status("job").get("stage") != "Succeeded":
        assert "BelowQuorum" not in json.dumps(stage.status("job"))
        time.sleep(0.01)


@row(r"OOMKilled")
def the_leader_is_out_of_memory(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(run_seconds=0.3, exit_code=137, exit_reason="OOMKilled"), restartLimit=1))


@row(r"exit code 5")
def a_worker_fails_too_often(stage: Stage) -> None:
    failing = template(run_seconds=0.3, exit_code=5, spec={"restartPolicy": "Never"})
    stage.apply(tyjob(leader=template(), workers=failing, restartLimit=0))


@row(r"active for \d+ s, and activeDeadlineSeconds is 2")
def it_was_active_for_too_long(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), activeDeadlineSeconds=2))


@row(r"spec\.terminating")
def the_user_ends_it(stage: Stage) -> None:
    stage.apply(tyjob(workers=template()))
    stage.staged("job", "Running")
    stage.kubectl("patch", "tyj", "job", "--type=merge", "-p", '{"spec": {"terminating": true}}')


@row(r"leader's pod is gone|leader's pod .*deleted", never=r"another client")
def the_leaders_pod_is_deleted(stage: Stage) -> None:
    stage.apply(tyjob(leader=template()))
    stage.staged("job", "Running")
    stage.kubectl("delete", "pod", stage.pods("job")[0]["metadata"]["name"])


@row(r"node leaves-0 .*gone|leaves-0", *pool("leaves"))
def the_leaders_node_is_deleted(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(spec=on("leaves"))))
    stage.staged("job", "Running")
    stage.kubectl("delete", "node", "leaves-0")


@row(r"drained-0 .*(cordoned|drained)", *pool("drained"))
def the_leaders_node_is_drained(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(spec=on("drained"))))
    stage.staged("job", "Running")
    stage.kubectl("cordon", "drained-0")
    stage.evict(stage.pods("job")[0]["metadata"]["name"])


@row(r"scaled from 3 to 1|counts of w 3 → 1|counts.*3.*1", never=r"another client")
def the_user_scales_it_down(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), count=3, of_set={"minCount": 1}))
    stage.staged("job", "Running")
    stage.kubectl("scale", "tyj", "job", "--replicas=1")


@row(r"scaled from 3 to 1", never=r"another client", places=("explain", "console"))
def the_user_scales_it_down_and_up(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), count=3, of_set={"minCount": 1}))
    stage.ready("job", 3)
    stage.kubectl("scale", "tyj", "job", "--replicas=1")
    eventually("they leave", lambda: len(stage.pods("job")) == 1, within_s=PATIENCE_S)
    stage.kubectl("scale", "tyj", "job", "--replicas=3")
    stage.ready("job", 3)


@row(r"job-w-1 was deleted by another client; replaced on \S+", places=("explain", "console"))
def a_worker_is_deleted_and_replaced(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), count=2, of_set={"minCount": 1}))
    stage.ready("job", 2)
    stage.kubectl("delete", "--wait=false", "pod", "job-w-1")


@row(r"job-w-1 was evicted through the API", never=r"another client", places=("explain", "console"))
def a_worker_is_evicted_and_replaced(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(), count=2, of_set={"minCount": 1}))
    stage.ready("job", 2)
    stage.evict("job-w-1")


# --- room for others ----------------------------------------------------------------------------------------


@row(r"preempted for job high|gives room to \S+/high", *pool("taken", gpus=8))
def a_job_of_higher_priority_takes_its_room(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(8, spec=on("taken")), priority=1))
    stage.staged("job", "Running")
    stage.apply(tyjob("high", workers=template(8, spec=on("taken")), priority=9))


@row(
    r"1 worker above the quorum was preempted for job high|gives room to \S+/high .*[Ss]urplus",
    *pool("surplus", gpus=8),
)
def a_job_of_higher_priority_takes_its_surplus(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(4, spec=on("surplus")), count=2, of_set={"minCount": 1}, priority=1))
    stage.ready("job", 2)
    stage.apply(tyjob("high", workers=template(4, spec=on("surplus")), priority=9))


@row(r"held by|default/|room|insufficient nvidia\.com/gpu", *pool("held", gpus=8))
def another_job_has_the_room(stage: Stage) -> None:
    stage.apply(tyjob("first", workers=template(8, spec=on("held"))))
    stage.staged("first", "Running")
    stage.apply(tyjob(workers=template(8, spec=on("held"))))


# --- what kubectl refuses -----------------------------------------------------------------------------------


def test_what_kubectl_refuses_it_names(scene: "Scene") -> None:
    stage = scene.stage("refused")
    for item, named in (
        (tyjob(workers=template(), priority=11), r"spec\.priority.*(10|less than)"),
        (tyjob(workers=template(), priorty=3), r"priorty"),
        (tyjob(workers=template(), count=0), r"counts"),
        (tyjob(workers=template(), minWorkersNum=3), r"minWorkersNum"),
        (tyjob(workers=template(spec={"nodeName": "n1"})), r"nodeName"),
    ):
        assert re.search(named, stage.refused(item)), stage.refused(item)


# --- how they run -------------------------------------------------------------------------------------------


@dataclass
class Scene:
    """The cluster with all rows, and what is asked of it."""

    kube: EmbeddedKube
    kubelets: Kubelets
    redis: str
    console: str
    problems: dict[str, str] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        return Stage(self.kube, self.kubelets, name[:60])

    def words(self, of: Row, place: str) -> str:
        if place == "kubectl":
            return self.stage(of.name).kubectl_words(of.job)
        if place == "explain":
            return explained(self.redis, f"{of.name[:60]}/{of.job}")
        # The page of a job shows both answers.
        return "\n".join(
            asked(f"{self.console}/api/v1/{question}?job={of.name[:60]}/{of.job}") for question in ("job", "explain")
        )


def explained(redis: str, job: str) -> str:
    told = io.StringIO()
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("ARRANGER_", "KUBE"))}
    with mock.patch.dict(os.environ, bare, clear=True), contextlib.redirect_stdout(told):
        main(["explain", job, "--log", redis], prog_name="arranger")
    return told.getvalue()


def asked(address: str) -> str:
    """What the console shows of a job, asked again until it has been worked out."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(address, timeout=60) as answer:
            if answer.status == 200:
                return json.dumps(json.load(answer), ensure_ascii=False)
        time.sleep(0.2)
    raise AssertionError(f"no answer: {address}")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("reasons")
    nodes = [NodeTemplate("any-1"), *(node for of in ROWS for node in of.nodes)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_required())
        kube = EmbeddedKube(folder)
        stack.callback(kube.close)
        redis = stack.enter_context(real_redis())
        running = stack.enter_context(kubelets(kube, *nodes))
        settings = {"image_grace_s": 3, "devices": "false"}
        stack.enter_context(fleet(redis_url=redis.url, kube=kube, folder=folder, **settings)).start()
        kube.kubectl("create", "namespace", "refused")
        scene = Scene(kube, running, redis.url, stack.enter_context(console(redis.url)))
        for of in ROWS:
            kube.kubectl("create", "namespace", of.name[:60])
            try:
                of.cause(scene.stage(of.name))
            except AssertionError as problem:
                scene.problems[of.name] = str(problem)
        yield scene


@contextlib.contextmanager
def console(redis: str) -> Iterator[str]:
    argv = [sys.executable, "-m", "arranger.cli.main", "ui", "--no-browser", "--port=0", f"--log={redis}"]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://[^\s/]+", process.stdout.readline())
    assert found, "arranger ui printed no address"
    try:
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.mark.parametrize("of", ROWS, ids=lambda of: of.name)
@pytest.mark.real
def test_the_true_cause_is_named(of: Row, scene: Scene) -> None:
    assert of.name not in scene.problems, scene.problems[of.name]
    for place in of.places:
        last = ""

        def named(place: str = place) -> bool:
            nonlocal last
            last = scene.words(of, place)
            return re.search(of.named, last) is not None

        try:
            eventually(f"{place} names {of.named!r}", named, within_s=PATIENCE_S, every_s=0.5)
        except AssertionError as missing:
            raise AssertionError(f"{missing}; it says:\n{last[-3000:]}") from None
        assert not (of.never and re.search(of.never, last)), last


def test_there_are_forty_of_them() -> None:
    assert len(ROWS) >= 40
