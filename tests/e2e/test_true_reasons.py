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
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    stage.apply(tyjob(workers=template(ready_seconds=7200)))


@row(r"leader is started first|waits for.*(leader|address)|leader's pod")
def the_leader_has_not_started_yet(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(start_seconds=7200), workers=template()))


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


@row(r"restarted \d+ times?, (the last time )?after .*exit code 7 of container main")
def its_learner_fails_at_each_start(stage: Stage) -> None:
    failing = template(run_seconds=0.3, exit_code=7, spec={"restartPolicy": "OnFailure"})
    stage.apply(tyjob(leader=failing, restartLimit=100))


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


# The cordon may be known later than the eviction.
@row(r"drained-0 .*(cordoned|drained)|evicted through the API, as a drain does \(node drained-0\)", *pool("drained"))
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


# --- found by an adversary ----------------------------------------------------------------------------------


def wants(name: str, gpus: int, of_pool: str, *, count: int = 1, pod: Object | None = None, **spec: Any) -> Object:
    """A job of equals with so many GPUs each, on the nodes of a pool."""
    return tyjob(name, workers=template(gpus, spec=on(of_pool, **(pod or {}))), count=count, **spec)


def also(named: str, *nodes: NodeTemplate, **more: Any) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """A row for which the console isn't asked: it shows the answer of `explain`, and asking takes seconds."""
    return row(named, *nodes, **{"places": ("kubectl", "explain"), **more})


def finalizer(stage: Stage, path: str) -> None:
    """Nobody takes this finalizer away."""
    stage.kube.request("PATCH", path, {"metadata": {"finalizers": ["example.com/keep"]}}, content_type=MERGE)


@also(r"required node affinity doesn't match")
def no_node_matches_the_affinity(stage: Stage) -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["mars"]}]}]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    stage.apply(tyjob(workers=template(spec={"affinity": {"nodeAffinity": needed}})))


@also(r"insufficient pods \(needs 1, at most 0 free\)", *pool("pods-full", pods=2))
def the_node_takes_no_more_pods(stage: Stage) -> None:
    stage.apply(wants("first", 0, "pods-full", count=2))
    stage.staged("first", "Running")
    stage.apply(wants("job", 0, "pods-full"))


@also(r"insufficient ephemeral-storage", *pool("no-disk", ephemeral_storage=""))
def the_node_tells_of_no_local_storage(stage: Stage) -> None:
    asked = template(spec=on("no-disk"))
    asked["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "10Gi"
    stage.apply(tyjob(workers=asked))


@also(r"3 of 4 required pods fit", *pool("in-part", gpus=8))
def there_is_room_for_a_part_of_the_gang(stage: Stage) -> None:
    stage.apply(wants("first", 2, "in-part"))
    stage.staged("first", "Running")
    stage.apply(wants("job", 2, "in-part", count=4))


@also(
    r"not preemptible: \S+/first|NotPreemptible\W+jobs\W+\S+/first",
    *pool("steady", gpus=8),
    never=r"what others may give isn't enough|TooLittle|not of lower priority|NotLower",
    places=("explain",),
)
def who_has_the_room_is_not_preemptible(stage: Stage) -> None:
    stage.apply(wants("first", 8, "steady", priority=1, preemptible=False))
    stage.staged("first", "Running")
    stage.apply(wants("job", 8, "steady", priority=9))


@also(
    r"not of lower priority in its queue: \S+/first|NotLower\W+jobs\W+\S+/first",
    *pool("equal", gpus=8),
    never=r"what others may give isn't enough|TooLittle|not preemptible|NotPreemptible",
    places=("explain",),
)
def who_has_the_room_is_of_equal_priority(stage: Stage) -> None:
    stage.apply(wants("first", 8, "equal"))
    stage.staged("first", "Running")
    stage.apply(wants("job", 8, "equal"))


@also(
    r"kept for the minRuntimeSeconds of the queue.*/first|TooYoung\W+jobs\W+\S+/first",
    *pool("young", gpus=8),
    places=("explain",),
)
def who_has_the_room_keeps_it_for_a_least_time(stage: Stage) -> None:
    stage.apply(queue("keeps-it", minRuntimeSeconds=3600))
    stage.apply(wants("first", 8, "young", priority=1, queue="keeps-it"))
    stage.staged("first", "Running")
    stage.apply(wants("job", 8, "young", priority=9, queue="keeps-it"))


@also(r"even an empty cluster of these nodes can't hold it|doesn't fit even an empty", *pool("two-only", 2, gpus=8))
def it_needs_more_nodes_than_there_are(stage: Stage) -> None:
    stage.apply(wants("job", 8, "two-only", count=3))


@also(r"host port 8080 taken", *pool("one-port"))
def its_own_pods_want_the_same_port(stage: Stage) -> None:
    asked = template(spec=on("one-port"))
    asked["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    stage.apply(tyjob(workers=asked, count=2))


@also(r"insufficient cpu \(needs 40, at most 32 free\)", *pool("init"))
def an_init_container_asks_for_more_than_a_node_has(stage: Stage) -> None:
    first = {"name": "first", "image": "any", "resources": {"requests": {"cpu": "40"}}}
    stage.apply(wants("job", 0, "init", pod={"initContainers": [first]}))


@also(r"quota gpus has too little requests\.nvidia\.com/gpu", *pool("gpu-quota", gpus=8))
def the_quota_of_gpus_is_too_small(stage: Stage) -> None:
    spec = {"hard": {"requests.nvidia.com/gpu": "1"}}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": spec})
    eventually("the quota is known", lambda: "limits" not in stage.kubectl("get", "quota", "gpus"), within_s=PATIENCE_S)
    stage.apply(wants("job", 2, "gpu-quota"))


@also(r"must specify limits\.cpu", *pool("no-limits", gpus=8))
def a_quota_wants_limits_that_its_pods_lack(stage: Stage) -> None:
    spec = {"hard": {"limits.cpu": "10"}}
    stage.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "wants-limits"}, "spec": spec})
    stage.apply(wants("job", 2, "no-limits"))


@also(r"maxWaiting", *pool("few-wait", gpus=8))
def as_many_jobs_wait_as_the_queue_allows(stage: Stage) -> None:
    stage.apply(queue("one-waits", maxWaiting=1), wants("first", 8, "few-wait"))
    stage.staged("first", "Running")
    stage.apply(wants("second", 8, "few-wait", queue="one-waits"))
    time.sleep(1.5)  # the jobs of a queue are counted by their times, in whole seconds
    stage.apply(wants("job", 8, "few-wait", queue="one-waits"))


@also(
    r"guarantees of other queues leave too little example\.com/gg", *pool("promised", resources={"example.com/gg": "8"})
)
def what_is_free_is_guaranteed_to_others(stage: Stage) -> None:
    stage.apply(queue("owns-gg", guarantee={"example.com/gg": 6}))
    stage.apply(tyjob(workers=template(4, spec=on("promised"), resource="example.com/gg")))


@also(r"queue wide-parent has too little nvidia\.com/gpu|capability of queue wide-parent", *pool("parent", gpus=8))
def the_queue_above_its_own_may_not_use_more(stage: Stage) -> None:
    stage.apply(queue("wide-parent", capability={GPU: 4}), queue("below-it", parent="wide-parent"))
    stage.apply(wants("first", 3, "parent", queue="below-it"))
    stage.staged("first", "Running")
    stage.apply(wants("job", 2, "parent", queue="below-it"))


@also(r"queue keepers has too little nvidia\.com/gpu for jobs that can't be preempted", *pool("kept", gpus=8))
def it_cannot_be_preempted_and_its_queue_deserves_less(stage: Stage) -> None:
    stage.apply(queue("keepers", deserved={GPU: 4}, nonPreemptible="WithinDeserved"))
    stage.apply(wants("first", 3, "kept", queue="keepers", preemptible=False))
    stage.staged("first", "Running")
    stage.apply(wants("job", 2, "kept", queue="keepers", preemptible=False))


@also(r"insufficient nvidia\.com/gpu \(needs 8, at most 7 free\)", *pool("shrunk", gpus=8))
def a_gpu_of_the_node_is_gone(stage: Stage) -> None:
    less = {"status": {"allocatable": {GPU: "7"}}}
    stage.kube.request("PATCH", "/api/v1/nodes/shrunk-0/status", less, content_type=MERGE)
    stage.apply(wants("job", 8, "shrunk"))


@also(r"insufficient cpu \(needs 1, at most \d+m free\)", *pool("foreign"))
def a_pod_of_others_uses_the_node(stage: Stage) -> None:
    container = {"name": "main", "image": "any", "resources": {"requests": {"cpu": "31500m"}}}
    spec = {"nodeName": "foreign-0", "containers": [container]}
    stage.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec})
    stage.apply(tyjob(workers=template(cpu="1", spec=on("foreign"))))


@also(r"the pods it must join \(affinity\)", *pool("lonely", gpus=8))
def the_pods_that_it_must_join_do_not_exist(stage: Stage) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    stage.apply(wants("job", 1, "lonely", pod={"affinity": {"podAffinity": needed}}))


@also(r"pods that refuse it \(anti-affinity\)", *pool("refused-by", gpus=8))
def pods_of_another_job_refuse_it(stage: Stage) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "loud"}}, "topologyKey": "kubernetes.io/hostname"}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    stage.apply(wants("first", 1, "refused-by", pod={"affinity": {"podAntiAffinity": needed}}))
    stage.staged("first", "Running")
    loud = template(1, spec=on("refused-by"))
    loud["metadata"]["labels"] = {"app": "loud"}
    stage.apply(tyjob(workers=loud))


@also(
    r"no label of-no-node \(topology spread\)",
    *pool("spread", gpus=8),
    never=r"what others may give isn't enough|TooLittle",
)
def no_node_has_the_label_of_its_spread(stage: Stage) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "of-no-node",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"arranger.dev/job": "job"}},
    }
    stage.apply(wants("job", 1, "spread", pod={"topologySpreadConstraints": [constraint]}))


@also(r"RuntimeClass kata-of-nobody, which doesn't exist")
def its_runtime_class_does_not_exist(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(spec={"runtimeClassName": "kata-of-nobody"})))


@also(r"waits for job first, which doesn't exist", *pool("left-alone"))
def the_job_before_it_is_deleted(stage: Stage) -> None:
    stage.apply(wants("first", 0, "left-alone"))
    stage.staged("first", "Running")
    stage.apply(wants("job", 0, "left-alone", after=[{"name": "first"}]))
    stage.kubectl("delete", "tyj", "first")


@also(r"w-0 couldn't start in 5 s on no-image-0 \(ImagePullBackOff\)", *pool("no-image"))
def the_image_of_a_worker_can_not_be_pulled(stage: Stage) -> None:
    pulls = template(spec=on("no-image"), fail="ImagePullBackOff")
    stage.apply(tyjob(leader=template(), workers=pulls, startGraceSeconds=5))


@also(r"w-0 wasn't ready in 4 s on slow-0", *pool("slow"))
def a_worker_does_not_become_ready_in_time(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(spec=on("slow"), ready_seconds=3600), startGraceSeconds=4))


@also(r"it was active for \d+ s, and activeDeadlineSeconds is 4", *pool("deadline"))
def its_deadline_passes_while_it_starts(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(spec=on("deadline"), start_seconds=3600), activeDeadlineSeconds=4))


@also(r"CrashLoopBackOff|container of job-learner-0 was restarted", *pool("crashes"))
def the_leader_crashes_again_and_again(stage: Stage) -> None:
    crashes = template(spec=on("crashes"), run_seconds=1, exit_code=3)
    stage.apply(tyjob(leader=crashes, workers=template(spec=on("crashes")), restartLimit=100))


@also(r"OOMKilled", *pool("memory"))
def a_worker_is_out_of_memory_too_often(stage: Stage) -> None:
    once = template(spec=on("memory", restartPolicy="Never"), run_seconds=1, exit_code=137, exit_reason="OOMKilled")
    stage.apply(tyjob(leader=template(), workers=once, restartLimit=0))


@also(r"0 of 2 further pods of \w+ fit", *pool("wider", gpus=8))
def it_is_scaled_beyond_the_room(stage: Stage) -> None:
    stage.apply(tyjob(workers=template(4, spec=on("wider")), count=2, of_set={"minCount": 1}))
    stage.ready("job", 2)
    stage.kubectl("scale", "tyj", "job", "--replicas=4")


@also(r"is being deleted, and a finalizer keeps it", *pool("kept-by"), places=("explain",))
def a_finalizer_keeps_the_deleted_job(stage: Stage) -> None:
    stage.apply(wants("job", 0, "kept-by"))
    stage.staged("job", "Running")
    finalizer(stage, f"/apis/arranger.dev/v1/namespaces/{stage.namespace}/tyjobs/job")
    stage.kubectl("delete", "tyj", "job", "--wait=false")


@also(r"job-learner-0 on hangs-0 is being deleted", *pool("hangs"))
def a_finalizer_keeps_the_leaders_pod(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(spec=on("hangs")), workers=template(spec=on("hangs"))))
    stage.staged("job", "Running")
    finalizer(stage, f"/api/v1/namespaces/{stage.namespace}/pods/job-learner-0")
    stage.kubectl("delete", "pod", "job-learner-0", "--wait=false")


@also(r"node lost-0 (of its pods )?is not ready", *pool("lost"), places=("explain",))
def the_node_of_a_running_worker_is_not_ready(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(), workers=template(spec=on("lost"))))
    stage.staged("job", "Running")
    stage.kubelets.set_ready("lost-0", ready=False)


@also(r"job-w-0 was evicted through the API, as a drain does", *pool("emptied", 2), places=("explain",))
def the_node_of_a_worker_is_drained(stage: Stage) -> None:
    stage.apply(tyjob(leader=template(), workers=template(spec=on("emptied"))))
    stage.staged("job", "Running")
    worker = next(pod for pod in stage.pods("job") if pod["metadata"]["name"] == "job-w-0")
    stage.kubectl("cordon", worker["spec"]["nodeName"])
    stage.evict("job-w-0")


@also(r"whose queue below is below its share", *pool("reclaimed", resources={"example.com/rr": "8"}))
def a_queue_below_its_share_takes_its_room(stage: Stage) -> None:
    def has(name: str, amount: int, of_queue: str) -> Object:
        return tyjob(name, workers=template(amount, spec=on("reclaimed"), resource="example.com/rr"), queue=of_queue)

    stage.apply(queue("above"), queue("below"))
    stage.apply(has("job", 8, "above"))
    stage.staged("job", "Running")
    stage.apply(has("mine", 4, "below"))


@also(r"waits for 1 pod of 1 preempted job to leave", *pool("stays", gpus=8))
def the_pods_that_give_it_room_do_not_leave(stage: Stage) -> None:
    stage.apply(wants("low", 8, "stays", priority=1, pod={"terminationGracePeriodSeconds": 3600}))
    stage.staged("low", "Running")
    finalizer(stage, f"/api/v1/namespaces/{stage.namespace}/pods/low-w-0")
    stage.apply(wants("job", 8, "stays", priority=9))


@also(r"NodeClosed|node closes-0 is cordoned, before others had left it", *pool("closes", gpus=8))
def the_node_that_others_are_to_leave_is_cordoned(stage: Stage) -> None:
    stage.apply(wants("low", 8, "closes", priority=1, pod={"terminationGracePeriodSeconds": 3600}))
    stage.staged("low", "Running")
    finalizer(stage, f"/api/v1/namespaces/{stage.namespace}/pods/low-w-0")
    stage.apply(wants("job", 8, "closes", priority=9))
    waits = lambda: "to leave" in stage.status("job").get("message", "")  # noqa: E731
    eventually("it has nodes", waits, within_s=PATIENCE_S)
    stage.kubectl("cordon", "closes-0")


def big_one_waits(stage: Stage, of_pool: str) -> None:
    """A job on two nodes of 8 GPUs that waits for one GPU, beside a guest with two."""
    stage.apply(wants("runs", 1, of_pool, priority=9, preemptible=False))
    stage.staged("runs", "Running")
    stage.apply(wants("big", 8, of_pool, count=2, priority=5))
    waits = lambda: "fit" in stage.status("big").get("message", "")  # noqa: E731
    eventually("the large job waits", waits, within_s=PATIENCE_S)
    stage.apply(wants("low", 2, of_pool, priority=1))
    stage.staged("low", "Running")


@also(r"runs in room that is reserved for job \S+/big", *pool("guests", 2, gpus=8), job="low")
def a_guest_runs_beside_a_job_of_higher_priority(stage: Stage) -> None:
    big_one_waits(stage, "guests")


@also(
    r"2 insufficient nvidia\.com/gpu \(needs 8, at most 5 free\)|\"free\": 5",
    *pool("beside", 2, gpus=8),
    never=r"reserved for a job ahead of it|room is reserved",
)
def it_would_not_fit_as_a_guest_either(stage: Stage) -> None:
    big_one_waits(stage, "beside")
    stage.apply(wants("job", 8, "beside", count=2, priority=1))


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
    """What the console shows of a job, asked again until it has been worked out: also where the console says that it
    has no time for a question now, as on a machine that is busy with other tests."""
    deadline, refusal = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=90) as answer:
                if answer.status == 200:
                    return json.dumps(json.load(answer), ensure_ascii=False)
        except urllib.error.HTTPError as refused:
            if refused.code not in (429, 503, 504):
                raise
            refusal = str(refused)
        time.sleep(0.2)
    raise AssertionError(f"no answer: {address} {refusal}")


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
        settings: dict[str, Any] = {"image_grace_s": 3, "devices": "false", "reservations": 100}
        stack.enter_context(fleet(redis_url=redis.url, kube=kube, folder=folder, **settings)).start()
        kube.kubectl("create", "namespace", "refused")
        scene = Scene(kube, running, redis.url, stack.enter_context(console(redis.url)))

        def bring_about(of: Row) -> None:
            kube.kubectl("create", "namespace", of.name[:60])
            try:
                of.cause(scene.stage(of.name))
            except AssertionError as problem:
                scene.problems[of.name] = str(problem)

        with ThreadPoolExecutor(5) as executor:
            list(executor.map(bring_about, ROWS))
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


def test_there_are_eighty_of_them() -> None:
    assert len(ROWS) >= 80
