"""Further inputs of the kinds in `tests/reported_cases.py`, from what the documents promise and from threads of others.

What is right was written down before any of them was tried. Those with `live` are decided on a real API server, too.
"""

import copy
from collections.abc import Mapping
from typing import Any

from tests.reported_cases import (
    GPU,
    LAST,
    LONG_AGO,
    RECENTLY,
    WITHIN_GRACE,
    YESTERDAY,
    Case,
    Hang,
    Objects,
    gpus,
    job,
    node,
    pod_spec,
    queue,
    runtime_class,
    stranger,
)

#: A quarter of an hour of grace has ten minutes left.
IN_TEN_MINUTES = "2026-01-01T00:20:00Z"


def limit_range(name: str, *, namespace: str = "default", **amounts: Mapping[str, str]) -> Objects:
    item = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name, "namespace": namespace}}
    return [item | {"spec": {"limits": [{"type": "Container", **amounts}]}}]


def bare(**resources: Mapping[str, str]) -> dict[str, Any]:
    """A pod whose container names only these requests or limits."""
    return {"containers": [{"name": "c", "image": "example.com/x:1", "resources": resources}]}


def worker_set(name: str, count: int, of_pods: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "counts": count, "template": {"spec": dict(of_pods)}, **more}


def of_sets(name: str, *sets: Mapping[str, Any], **spec: Any) -> Objects:
    """A TYJob that waits, of these worker sets."""
    metadata = {"name": name, "namespace": "default", "uid": f"job-{name}", "creationTimestamp": LAST}
    kind = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": metadata}
    return [kind | {"spec": {"workerSets": list(sets), **spec}}]


def resized(
    asks: str, granted: str, has: str, *, state: str = "", reason: str = "", at: str = "n1", **status: Any
) -> Objects:
    """A pod of others in the middle of a resize in place, of its cpu."""
    conditions = [{"type": state, "status": "True", "reason": reason}] if state else []
    of_container = {"name": "c", "allocatedResources": {"cpu": granted}, "resources": {"requests": {"cpu": has}}}
    return stranger(
        "resized",
        at,
        0,
        spec={**pod_spec(0, asks), "nodeName": at},
        status={"phase": "Running", "conditions": conditions, "containerStatuses": [of_container], **status},
    )


def saved(objects: Objects, at: str) -> Objects:
    """The same job with a checkpoint."""
    objects[0]["metadata"]["annotations"] = {"arranger.dev/last-checkpoint": at}
    return objects


def preempted(objects: Objects) -> Objects:
    """The job had nodes since yesterday, was preempted, and waits."""
    status = {
        "stage": "Rescheduling",
        "scheduleState": "Unscheduled",
        "startTime": YESTERDAY,
        "conditions": [
            {"type": "Scheduled", "status": "False", "lastTransitionTime": RECENTLY},
            {"type": "Preempted", "status": "True", "reason": "Preempted", "lastTransitionTime": RECENTLY},
        ],
    }
    return [objects[0] | {"status": status}]


_ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"alone": "yes"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def alone(name: str, count: int, **spec: Any) -> Objects:
    """A gang of pods each of which wants a node without another one of this kind."""
    template = {"metadata": {"labels": {"alone": "yes"}}, "spec": {**pod_spec(1), "affinity": _ANTI_AFFINITY}}
    return of_sets(name, {"name": "w", "counts": count, "minCount": count, "template": template}, **spec)


def waiting_pod(
    name: str, count: int, *, scheduler: str = "arranger", labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"pod-{name}",
        "labels": dict(labels or {}),
        "creationTimestamp": LAST,
    }
    spec = {**pod_spec(count), "schedulerName": scheduler}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _group(name: str, least: int) -> dict[str, str]:
    of = "pod-group.scheduling.sigs.k8s.io"
    return {f"{of}/name": name, f"{of}/min-available": str(least)}


def led(name: str, at: str, leader: str, *, workers: int = 1) -> Objects:
    """A job that runs on one node; `leader` is the phase of its leader's pod."""
    objects = job(name, 7, workers, on=[at] * workers)
    objects[0]["spec"]["leader"] = {"name": "head", "template": {"spec": pod_spec(1)}}
    objects[0]["status"]["allocations"] = [{"node": at, "leader": True, "workers": [{"set": "w", "indices": "0"}]}]
    head = copy.deepcopy(objects[1])
    head["metadata"] |= {"name": f"{name}-head-0", "uid": f"pod-{name}-head-0"}
    head["metadata"]["labels"] |= {"arranger.dev/role": "leader"}
    del head["metadata"]["labels"]["arranger.dev/worker-set"]
    head["spec"] = {**pod_spec(1), "nodeName": at}
    head["status"] = ended(leader)
    return [objects[0], head, *objects[1:]]


def ended(phase: str) -> dict[str, Any]:
    terminated = {"exitCode": int(phase == "Failed"), "finishedAt": RECENTLY}
    return {"phase": phase, "containerStatuses": [{"name": "c", "state": {"terminated": terminated}}]}


def ended_worker(objects: Objects, index: int) -> Objects:
    objects[1 + index]["status"] = ended("Succeeded")
    return objects


def hung_worker(objects: Objects, index: int) -> Objects:
    objects[1 + index]["metadata"] |= {"deletionTimestamp": LONG_AGO, "deletionGracePeriodSeconds": 30}
    return objects


def deleted(objects: Objects) -> Objects:
    """The TYJob waits for its finalizer; its pods are still there."""
    objects[0]["metadata"] |= {"deletionTimestamp": LAST, "finalizers": ["foregroundDeletion"]}
    return objects


def unready(objects: Objects) -> Objects:
    objects[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return objects


def grouped(objects: Objects, size: int) -> Objects:
    objects[0]["spec"]["workerSets"][0]["groupSize"] = size
    return objects


def also(objects: Objects, *sets: Mapping[str, Any]) -> Objects:
    """The job has these worker sets as well."""
    objects[0]["spec"]["workerSets"] += sets
    return objects


def without_requests(objects: Objects) -> Objects:
    """The template names no requests; its pods have them."""
    objects[0]["spec"]["workerSets"][0]["template"]["spec"] = bare()
    return objects


def important(pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pod["spec"] |= {"priority": 1000, **spec}
    return pod


FURTHER = [
    # --- room that comes, and room that doesn't ---------------------------------------------------------------
    Case(
        "a gang of which a part comes by itself",
        "",
        "what leaves by itself is counted, and others give only the rest: one node, of the lowest priority",
        [
            *(node(f"n{i}") for i in range(1, 5)),
            job("leaves", count=2, on=["n1", "n2"], leaving=Hang(WITHIN_GRACE))[1:],
            job("low", on=["n3"], priority=2),
            job("middle", on=["n4"], priority=3),
            job("high", count=3, priority=9),
        ],
        {},
        {"low"},
    ),
    Case(
        "a pod with a long grace",
        "kubernetes-sigs/kueue#6143",
        "a pod with a quarter of an hour of grace leaves within it, so nobody else gives room",
        [
            node("n1"),
            node("n2"),
            job("leaves", on=["n1"], leaving=Hang(IN_TEN_MINUTES))[1:],
            job("low", on=["n2"], priority=2),
            job("high", priority=9),
        ],
        {},
        set(),
    ),
    Case(
        "half of a node hangs",
        "kubernetes-sigs/kueue#6489",
        "beside a pod that hangs, the job of the lowest priority would give its room in vain: another one gives",
        [
            node("n1"),
            node("n2"),
            stranger("hangs", "n1", 4, leaving=Hang(LONG_AGO)),
            job("beside", 4, on=["n1"], priority=1),
            job("low", on=["n2"], priority=2),
            job("high", priority=9),
        ],
        {"high": {"n2"}},
        {"low"},
        live=True,
    ),
    Case(
        "a gang behind a pod that hangs",
        "kubernetes-sigs/kueue#6757",
        "a gang whose room a pod that hangs holds keeps nobody from the nodes beside it",
        [
            node("n1"),
            node("n2"),
            stranger("hangs", "n1", 1, leaving=Hang(LONG_AGO)),
            job("gang", count=2, priority=9),
            job("small"),
        ],
        {"gang": None, "small": {"n2"}},
        set(),
    ),
    Case(
        "one that could start at once behind one that can't",
        "kubernetes-sigs/kueue#6489",
        "the first in line waits for what can't come; the second takes the room that others may give",
        [
            node("n1", labels={"pool": "a"}),
            node("n2", labels={"pool": "b"}),
            stranger("hangs", "n1", 8, leaving=Hang(LONG_AGO)),
            job("low", on=["n2"], priority=1),
            job("first", priority=9, pod={"nodeSelector": {"pool": "a"}}),
            job("second", priority=8),
        ],
        {"first": None, "second": {"n2"}},
        {"low"},
    ),
    # --- nodes whose allocatable shrinks ------------------------------------------------------------------------
    Case(
        "a pod that needs no GPU on a node that has lost them",
        "volcano-sh/volcano#2999",
        "a node whose GPUs are gone takes pods that ask for none, such as the one that brings them back",
        [
            node("n1", 0, labels={"pool": "a"}),
            job("holds", on=["n1"]),
            job("brings", 0, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"brings": {"n1"}},
        set(),
        live=True,
    ),
    Case(
        "who leaves a node that has shrunk",
        "volcano-sh/volcano#2624",
        "with 3 of 4 GPUs left under two jobs of 2, room for 2 is there only once both have left",
        [
            node("n1", 3),
            job("a", 2, on=["n1"], priority=1),
            job("b", 2, on=["n1"], priority=1),
            job("high", 2, priority=9),
        ],
        {"high": {"n1"}},
        {"a", "b"},
        live=True,
    ),
    Case(
        "one of two leaves a node that has shrunk by one",
        "volcano-sh/volcano#2624",
        "with 3 of 4 GPUs left under jobs of 2 and 2, room for 1 is there once one of them has left",
        [
            node("n1", 3),
            job("a", 2, on=["n1"], priority=1),
            job("b", 2, on=["n1"], priority=2),
            job("high", 1, priority=9),
        ],
        {"high": {"n1"}},
        {"a"},
    ),
    Case(
        "a node that has shrunk, after its pod has ended",
        "volcano-sh/volcano#2348",
        "once the pod that held more than there is has ended, the node is used up to what it has",
        [node("n1", 7), stranger("over", "n1", 8, phase="Succeeded"), job("seven", 7), job("one", 1, priority=1)],
        {"seven": {"n1"}, "one": None},
        set(),
    ),
    Case(
        "a pod of others beyond what its node has",
        "",
        "what others hold on a node beyond its GPUs is taken from no other node, nor from what is left by a guarantee",
        [
            node("n1", 4),
            node("n2"),
            stranger("other", "n1", 8),
            queue("safe", guarantee=gpus(7)),
            queue("free"),
            job("one", 1, queue="free"),
        ],
        {"one": {"n2"}},
        set(),
    ),
    Case(
        "a capability that was lowered below what runs",
        "kubernetes-sigs/kueue#5176",
        "whoever runs keeps its nodes; the queue gets no more, and others do",
        [
            node("n1"),
            node("n2"),
            queue("small", capability=gpus(4)),
            queue("free"),
            job("runs", on=["n1"], queue="small"),
            job("more", 1, queue="small"),
            job("other", 1, queue="free"),
        ],
        {"more": None, "other": {"n2"}},
        set(),
    ),
    # --- guests, and surplus ------------------------------------------------------------------------------------
    Case(
        "further workers in reserved room",
        "volcano-sh/volcano#5650",
        "workers beyond the quorum of a job that runs use the nodes that a gang can't use yet",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 4)),
            node("n4", labels={"pool": "b"}),
            job("endless", 1, on=["n1"], preemptible=False),
            job("elastic", 8, 3, on=["n4"], least=1),
            job("gang", 8, 3, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": None, "elastic": [{"n2", "n3"}]},
        set(),
        live=True,
    ),
    Case(
        "further workers by the earlier rule",
        "",
        "with backfill Known, nodes that are kept for a gang get no worker whose end nobody knows",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 4)),
            node("n4", labels={"pool": "b"}),
            job("endless", 1, on=["n1"], preemptible=False),
            job("elastic", 8, 3, on=["n4"], least=1),
            job("gang", 8, 3, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": None, "elastic": None},
        set(),
        ("--backfill", "Known"),
    ),
    Case(
        "further workers where the gang can start",
        "ray-project/kuberay#5002",
        "the workers that no quorum needs leave for a gang of higher priority, and their job runs on",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 4)),
            node("n4", labels={"pool": "b"}),
            job("elastic", 8, 3, on=["n4", "n2", "n3"], least=1),
            job("gang", 8, 3, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": [{"n1", "n2", "n3"}]},
        set(),
        live=True,
    ),
    Case(
        "surplus before a job of a lower priority",
        "ray-project/kuberay#5002",
        "workers that no quorum needs leave before a whole job, though that has a lower priority",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            job("elastic", 8, 2, on=["n1", "n2"], least=1, priority=3),
            job("low", on=["n3"], priority=1),
            job("high", priority=9),
        ],
        {"high": {"n2"}},
        set(),
    ),
    Case(
        "a large group that can't ever fit",
        "kubernetes-retired/kube-batch#514",
        "12 cores never fit a cluster of 10: nothing is kept for them, not even from a job that can't be disturbed",
        [node("n1", 0, cpu="10"), job("large", 0, 3, cpu="4", priority=9), job("small", 0, cpu="3", preemptible=False)],
        {"large": None, "small": {"n1"}},
        set(),
    ),
    Case(
        "a group of which all but one would fit",
        "kubernetes-sigs/scheduler-plugins#713",
        "pods of a group that is too large for the cluster hold nothing while they wait",
        [
            node("n1"),
            node("n2"),
            [waiting_pod(f"p{i}", 8, labels=_group("train", 3)) for i in range(3)],
            job("small", priority=1, preemptible=False),
        ],
        {"small": 1},
        set(),
    ),
    Case(
        "who ends before the reserved time",
        "",
        "with times that are known, a job that can't be disturbed starts if it ends before, and waits if it doesn't",
        [
            node("n1"),
            node("n2"),
            job("runs", on=["n1"], started=RECENTLY, expectedRuntimeSeconds=7200, preemptible=False),
            job("gang", count=2, priority=9),
            job("long", 4, expectedRuntimeSeconds=86400, preemptible=False, priority=6),
            job("short", 4, activeDeadlineSeconds=600, preemptible=False),
        ],
        {"gang": None, "long": None, "short": {"n2"}},
        set(),
    ),
    # --- quorums ------------------------------------------------------------------------------------------------
    Case(
        "sets that wait for a set that doesn't fit",
        "volcano-sh/volcano#2302",
        "no worker gets a node that would only wait for another one without a node",
        [
            node("n1", 4),
            of_sets(
                "league",
                worker_set("main", 1, pod_spec(8)),
                worker_set("exploiters", 2, pod_spec(1), startAfter="main"),
                worker_set("matches", 4, pod_spec(1), startAfter="exploiters"),
                minWorkersNum=3,
            ),
        ],
        {"league": None},
        set(),
        live=True,
    ),
    Case(
        "a set that waits comes first in the list",
        "",
        "the set that others wait for belongs to the quorum wherever it stands: one of it, one of the other",
        [
            node("n1", 2),
            of_sets(
                "league",
                worker_set("matches", 4, pod_spec(1), startAfter="main"),
                worker_set("main", 1, pod_spec(1)),
                minWorkersNum=2,
            ),
        ],
        {"league": 2},
        set(),
    ),
    Case(
        "a worker group that others wait for",
        "",
        "half a worker group is none: what waits for it gets no nodes without all of it",
        [
            node("n1"),
            node("n2", 4),
            of_sets(
                "serve",
                worker_set("engine", 1, pod_spec(8), groupSize=2),
                worker_set("actors", 4, pod_spec(1), startAfter="engine"),
                minWorkersNum=3,
            ),
        ],
        {"serve": None},
        set(),
    ),
    Case(
        "two gangs that each want all nodes",
        "volcano-sh/volcano#3373",
        "of two gangs with one pod a node, one has all of its pods and the other none",
        [*(node(f"n{i}") for i in range(1, 4)), alone("one", 3, priority=6), alone("two", 3)],
        {"one": [{"n1", "n2", "n3"}], "two": None},
        set(),
    ),
    # --- topologies ---------------------------------------------------------------------------------------------
    Case(
        "a rack with GPUs and without places for pods",
        "kubernetes-sigs/kueue#4270",
        "the number of pods that a node takes counts in a rack as well",
        [
            node("n1", labels={"rack": "a"}, pods="1"),
            node("n2", labels={"rack": "a"}, pods="1"),
            node("n3", labels={"rack": "b"}),
            stranger("other", "n1", 0),
            job("pair", 4, 2, topology={"levels": ["rack"], "mode": "Required"}),
        ],
        {"pair": {"n3"}},
        set(),
    ),
    Case(
        "racks of one number, of which some have no block",
        "",
        "nodes without the wider label belong together, and to no block",
        [
            node("n1", labels={"rack": "1"}),
            node("n2", labels={"rack": "1", "block": "east"}),
            node("n3", labels={"rack": "1"}),
            job("pair", count=2, topology={"levels": ["rack", "block"], "mode": "Required"}),
        ],
        {"pair": [{"n1", "n3"}]},
        set(),
        live=True,
    ),
    Case(
        "worker groups in racks of one number",
        "",
        "a worker group has one rack of one block, and doesn't take the rest of a rack of the same number elsewhere",
        [
            node("n1", labels={"rack": "1", "block": "east"}),
            node("n2", labels={"rack": "1", "block": "east"}),
            node("n3", labels={"rack": "1", "block": "west"}),
            node("n4", labels={"rack": "1", "block": "north"}),
            of_sets(
                "serve",
                worker_set("engine", 2, pod_spec(8), groupSize=2, minCount=1),
                topology={"levels": ["rack", "block"], "mode": "Required", "within": "Group"},
            ),
        ],
        {"serve": [{"n1", "n2"}]},
        set(),
    ),
    Case(
        "a further worker beside a rack of the same number",
        "",
        "a worker that joins others goes to their rack and their block, not to a rack of that number elsewhere",
        [
            node("n1", labels={"rack": "1", "block": "east"}),
            node("n2", labels={"rack": "1", "block": "west"}),
            job("runs", count=2, least=1, on=["n1"], topology={"levels": ["rack", "block"], "mode": "Required"}),
        ],
        {"runs": None},
        set(),
    ),
    # --- what admission adds --------------------------------------------------------------------------------------
    Case(
        "nodes with a taint for a runtime class",
        "",
        "the tolerations of a RuntimeClass are part of its pods, and of no others",
        [
            node("n1", labels={"kata": "true"}, taints=[{"key": "kata", "effect": "NoSchedule"}]),
            [
                runtime_class("kata", overhead={"cpu": "250m"}, selector={"kata": "true"})[0]
                | {"scheduling": {"nodeSelector": {"kata": "true"}, "tolerations": [{"key": "kata"}]}}
            ],
            job("plain", 1, pod={"nodeSelector": {"kata": "true"}}, priority=9),
            job("sandboxed", 1, pod={"runtimeClassName": "kata"}),
        ],
        {"plain": None, "sandboxed": {"n1"}},
        set(),
        live=True,
    ),
    Case(
        "a template that contradicts its runtime class",
        "",
        "admission refuses a pod whose selector contradicts that of its RuntimeClass: it gets no node",
        [
            node("n1", labels={"kata": "true"}),
            node("n2", labels={"kata": "false"}),
            runtime_class("kata", overhead={"cpu": "250m"}, selector={"kata": "true"}),
            job("both", 1, pod={"runtimeClassName": "kata", "nodeSelector": {"kata": "false"}}),
        ],
        {"both": None},
        set(),
    ),
    Case(
        "a runtime class that nobody has made",
        "kubernetes-sigs/kueue#14274",
        "a job of a RuntimeClass that doesn't exist waits, takes no room, and keeps nobody from it",
        [
            node("n1"),
            node("n2"),
            job("low", on=["n1"], priority=1),
            job("missing", count=2, priority=9, pod={"runtimeClassName": "nobody"}),
            job("next", priority=5, preemptible=False),
        ],
        {"missing": None, "next": {"n2"}},
        set(),
    ),
    Case(
        "the overhead of a pod of others",
        "",
        "what a RuntimeClass has added to pods of others is used",
        [
            node("n1", 0, cpu="4"),
            stranger("other", "n1", 0, spec={**pod_spec(0, "2"), "nodeName": "n1", "overhead": {"cpu": "1"}}),
            job("two", 0, cpu="2", priority=9),
            job("one", 0, cpu="1"),
        ],
        {"two": None, "one": {"n1"}},
        set(),
    ),
    Case(
        "overhead beyond the capability of a queue",
        "kubernetes-sigs/kueue#119",
        "what a RuntimeClass adds counts against the limits of a queue",
        [
            node("n1", 0),
            queue("small", capability={"cpu": "4"}),
            runtime_class("kata", overhead={"cpu": "500m"}, selector={}),
            job("sandboxed", 0, cpu="4", pod={"runtimeClassName": "kata"}, queue="small", priority=9),
            job("plain", 0, cpu="4", queue="small"),
        ],
        {"sandboxed": None, "plain": {"n1"}},
        set(),
    ),
    Case(
        "an init container beside a sidecar, and overhead",
        "",
        "an init container counts beside the sidecars that run by then, and overhead comes on top",
        [
            node("n1", 0, cpu="4"),
            node("n2", 0, cpu="4250m", labels={"kata": "true"}),
            runtime_class("kata", overhead={"cpu": "250m"}, selector={}),
            runtime_class("more", overhead={"cpu": "251m"}, selector={}),
            *(
                of_sets(
                    name,
                    worker_set(
                        "w",
                        1,
                        {
                            "runtimeClassName": name,
                            "initContainers": [
                                {
                                    "name": "side",
                                    "image": "example.com/x:1",
                                    "restartPolicy": "Always",
                                    "resources": {"requests": {"cpu": "1"}},
                                },
                                {
                                    "name": "init",
                                    "image": "example.com/x:1",
                                    "resources": {"requests": {"cpu": "3"}},
                                },
                            ],
                            **bare(requests={"cpu": "1"}),
                        },
                    ),
                    priority=priority,
                )
                for name, priority in (("more", 9), ("kata", 5))
            ),
        ],
        {"more": None, "kata": {"n2"}},
        set(),
    ),
    Case(
        "requests that a LimitRange gives",
        "kubernetes-sigs/kueue#541",
        "two workers without requests of their own share no node if the default is above half of it",
        [
            node("n1", 0, cpu="6"),
            node("n2", 0, cpu="6"),
            limit_range("defaults", defaultRequest={"cpu": "4"}),
            of_sets("pair", worker_set("w", 2, bare(), minCount=2)),
        ],
        {"pair": [{"n1", "n2"}]},
        set(),
        live=True,
    ),
    Case(
        "requests that a LimitRange gives, in a queue",
        "kubernetes-sigs/kueue#541",
        "what a LimitRange gives counts against the capability of a queue",
        [
            node("n1", 0),
            limit_range("defaults", defaultRequest={"cpu": "4"}),
            queue("small", capability={"cpu": "6"}),
            of_sets("pair", worker_set("w", 2, bare(), minCount=2), queue="small", priority=9),
            of_sets("one", worker_set("w", 1, bare(), minCount=1), queue="small"),
        ],
        {"pair": None, "one": {"n1"}},
        set(),
    ),
    Case(
        "a container with limits alone beside a LimitRange",
        "kubernetes-sigs/kueue#15020",
        "a container that names a limit requests that, whatever default there is for requests",
        [
            node("n1", 0, cpu="4"),
            limit_range("defaults", defaultRequest={"cpu": "1"}),
            of_sets("first", worker_set("w", 1, bare(limits={"cpu": "3"})), priority=9),
            of_sets("second", worker_set("w", 1, bare(limits={"cpu": "3"}))),
        ],
        {"first": {"n1"}, "second": None},
        set(),
    ),
    Case(
        "a LimitRange that names only the most",
        "",
        "the API server takes the most as the default where a LimitRange names no other",
        [
            node("n1", 0, cpu="6"),
            node("n2", 0, cpu="6"),
            limit_range("most", max={"cpu": "4"}),
            of_sets("pair", worker_set("w", 2, bare(), minCount=2)),
        ],
        {"pair": [{"n1", "n2"}]},
        set(),
    ),
    Case(
        "a LimitRange of another namespace",
        "",
        "a LimitRange is for its own namespace",
        [
            node("n1", 0, cpu="6"),
            limit_range("defaults", namespace="others", defaultRequest={"cpu": "4"}),
            of_sets("pair", worker_set("w", 2, bare(), minCount=2)),
        ],
        {"pair": 2},
        set(),
    ),
    # --- resizes in place -----------------------------------------------------------------------------------------
    Case(
        "a resize down that waits for an earlier one up",
        "kubernetes/kubernetes#129532",
        "the largest counts of what a pod asks for, what it was granted, and what it has",
        [
            node("n1", 0, cpu="4"),
            resized("1", "3", "2", state="PodResizeInProgress"),
            job("two", 0, cpu="2", priority=9),
            job("one", 0, cpu="1"),
        ],
        {"two": None, "one": {"n1"}},
        set(),
    ),
    Case(
        "a resize that is being done",
        "",
        "what a kubelet has granted counts before the pod has it",
        [
            node("n1", 0, cpu="4"),
            resized("3", "3", "1", state="PodResizeInProgress"),
            job("two", 0, cpu="2", priority=9),
            job("one", 0, cpu="1"),
        ],
        {"two": None, "one": {"n1"}},
        set(),
    ),
    Case(
        "a resize up that can't be done, beside what is granted",
        "",
        "of a resize that is infeasible, what the pod was granted still counts",
        [
            node("n1", 0, cpu="4"),
            resized("10", "2", "1", state="PodResizePending", reason="Infeasible"),
            job("three", 0, cpu="3", priority=9),
            job("two", 0, cpu="2"),
        ],
        {"three": None, "two": {"n1"}},
        set(),
    ),
    # --- queues in queues -----------------------------------------------------------------------------------------
    Case(
        "the lowest priority of a queue above its share",
        "volcano-sh/volcano#2807",
        "of a queue above its share, the jobs of the lowest priority leave, and of these who loses the least",
        [
            node("n1"),
            queue("five", weight=5),
            queue("three", weight=3),
            *(
                job(f"low{i}", 1, on=["n1"], queue="three", priority=1, started=RECENTLY if i else YESTERDAY)
                for i in range(5)
            ),
            *(job(f"middle{i}", 1, on=["n1"], queue="three", priority=4, started=RECENTLY) for i in range(3)),
            job("high", 4, queue="five", priority=9),
        ],
        {"high": {"n1"}},
        {"low1", "low2", "low3", "low4"},
    ),
    Case(
        "a queue within a queue takes back what it deserves",
        "volcano-sh/volcano#4817",
        "what a queue below another one deserves is taken back from one that is above its share, of any priority",
        [
            node("n1"),
            node("n2"),
            queue("a", deserved=gpus(8)),
            queue("a1", parent="a", deserved=gpus(8)),
            queue("b", deserved=gpus(8)),
            queue("b1", parent="b", deserved=gpus(8)),
            job("old", on=["n1"], queue="b1", priority=9),
            job("new", on=["n2"], queue="b1", priority=9, started=RECENTLY),
            job("waits", queue="a1", priority=1),
        ],
        {"waits": {"n2"}},
        {"new"},
        live=True,
    ),
    Case(
        "a queue whose parent has its share takes from its sibling",
        "",
        "a queue below its share whose parent isn't takes from its sibling, and not from another parent",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            queue("a", deserved=gpus(8)),
            queue("a1", parent="a", deserved=gpus(4)),
            queue("a2", parent="a", deserved=gpus(4)),
            queue("b", deserved=gpus(16)),
            job("s1", 4, on=["n1"], queue="a2", priority=9),
            job("s2", 4, on=["n1"], queue="a2", priority=9, started=RECENTLY),
            job("b1", on=["n2"], queue="b", priority=1),
            job("b2", on=["n3"], queue="b", priority=1),
            job("waits", 4, queue="a1", priority=1),
        ],
        {"waits": {"n1"}},
        {"s2"},
    ),
    Case(
        "siblings below a parent that deserves something",
        "apache/yunikorn-core#937",
        "of two queues that deserve nothing of their own, the one above its part gives to the one below",
        [
            node("n1"),
            queue("parent", deserved=gpus(8)),
            queue("one", parent="parent"),
            queue("two", parent="parent"),
            job("one-old", 4, on=["n1"], queue="one"),
            job("one-new", 4, on=["n1"], queue="one", started=RECENTLY),
            job("waits", 4, queue="two"),
        ],
        {"waits": {"n1"}},
        {"one-new"},
    ),
    Case(
        "siblings, once one has given",
        "apache/yunikorn-core#937",
        "who has given room to its sibling doesn't take it back: both have their part",
        [
            node("n1"),
            queue("parent", deserved=gpus(8)),
            queue("one", parent="parent"),
            queue("two", parent="parent"),
            job("one-old", 4, on=["n1"], queue="one"),
            job("two-new", 4, on=["n1"], queue="two", started=RECENTLY),
            job("waits", 4, queue="one"),
        ],
        {"waits": None},
        set(),
    ),
    Case(
        "a queue above its share of what nobody asks for",
        "apache/yunikorn-core#1029",
        "a queue that is above its share of cpu, and within that of GPUs, gives nothing to who asks for GPUs alone",
        [
            node("n1", 4),
            node("n2", 4),
            queue("a", deserved={"cpu": "8", GPU: "4"}),
            queue("b", deserved=gpus(4)),
            job("a1", 2, on=["n1"], cpu="30", queue="a"),
            job("a2", 2, on=["n2"], cpu="30", queue="a"),
            job("waits", 4, cpu="0", queue="b"),
        ],
        {"waits": None},
        set(),
    ),
    Case(
        "a queue that has a limit and deserves nothing",
        "apache/yunikorn-core#636",
        "a limit is no claim: what such a queue uses above its part is taken back, and nothing of who deserves it",
        [
            node("n1"),
            node("n2"),
            queue("a", deserved=gpus(8)),
            queue("b", capability=gpus(16)),
            queue("c"),
            job("a1", on=["n1"], queue="a", priority=1, started=RECENTLY),
            job("b1", on=["n2"], queue="b", priority=9),
            job("waits", 4, queue="c"),
        ],
        {"waits": {"n2"}},
        {"b1"},
    ),
    Case(
        "a queue that would be above its part with the job",
        "apache/yunikorn-core#660",
        "nobody gives room for a job that would lift its own queue above its share",
        [
            node("n1"),
            node("n2"),
            queue("a", deserved=gpus(8)),
            queue("b", capability=gpus(16)),
            queue("c"),
            job("a1", on=["n1"], queue="a"),
            job("b1", on=["n2"], queue="b"),
            job("waits", 8, queue="c", priority=9),
        ],
        {"waits": None},
        set(),
    ),
    Case(
        "priorities that a queue above limits",
        "",
        "a job whose priority counts as that of others in its queue takes nothing from them",
        [
            node("n1"),
            queue("lab", maxPriority=2),
            queue("interns", parent="lab"),
            job("runs", on=["n1"], queue="interns", priority=3),
            job("boasts", queue="interns", priority=9),
        ],
        {"boasts": None},
        set(),
    ),
    Case(
        "a queue below one from which nobody may reclaim",
        "",
        "what a queue below one that isn't reclaimable uses above its share stays with it",
        [
            node("n1"),
            queue("fixed", reclaimable=False),
            queue("below", parent="fixed"),
            queue("mine", deserved=gpus(8)),
            job("takes", on=["n1"], queue="below"),
            job("waits", queue="mine"),
        ],
        {"waits": None},
        set(),
    ),
    # --- accelerators ---------------------------------------------------------------------------------------------
    Case(
        "the work that TPUs have done since a checkpoint",
        "",
        "of two jobs of one priority, the one that has just saved its state loses less, though it began earlier",
        [
            node("n1", -1, google_com__tpu="4"),
            node("n2", -1, google_com__tpu="4"),
            saved(job("saved", 4, on=["n1"], resource="google.com/tpu", priority=2), RECENTLY),
            job("unsaved", 4, on=["n2"], resource="google.com/tpu", priority=2, started="2025-12-31T22:00:00Z"),
            job("high", 4, resource="google.com/tpu", priority=9),
        ],
        {"high": {"n1"}},
        {"saved"},
        live=True,
    ),
    Case(
        "a pod with a network card and no GPU",
        "",
        "a network card is no accelerator: a pod that has one, and no GPU, keeps away from idle GPUs",
        [
            node("n1", rdma__hca="8"),
            node("n2", -1, rdma__hca="8"),
            job("cards", 1, resource="rdma/hca"),
        ],
        {"cards": {"n2"}},
        set(),
    ),
    Case(
        "a job of NPUs on a node that has lost one",
        "volcano-sh/volcano#1776",
        "devices of every kind that a node has lost under a pod are taken from no other node's share",
        [
            node("n1", -1, huawei_com__Ascend910="7"),
            node("n2", -1, huawei_com__Ascend910="8"),
            queue("a", deserved={"huawei.com/Ascend910": "8"}),
            queue("b", deserved={"huawei.com/Ascend910": "8"}),
            job("a1", on=["n1"], resource="huawei.com/Ascend910", queue="a"),
            job("b1", 4, on=["n2"], resource="huawei.com/Ascend910", queue="b"),
            job("b2", 4, resource="huawei.com/Ascend910", queue="b"),
        ],
        {"b2": {"n2"}},
        set(),
    ),
    # --- deadlines, and pods of others ----------------------------------------------------------------------------
    Case(
        "a deadline that would be over, of a job that was preempted",
        "kubernetes-sigs/jobset#1306",
        "a job that was preempted doesn't fail by the time since its start: it gets nodes again",
        [node("n1"), preempted(job("again", activeDeadlineSeconds=3600))],
        {"again": {"n1"}},
        set(),
    ),
    Case(
        "a pod that waits for another scheduler",
        "",
        "a pod that waits for kube-scheduler holds nothing and is placed by nobody here",
        [node("n1"), [waiting_pod("theirs", 8, scheduler="default-scheduler")], job("mine")],
        {"mine": {"n1"}},
        set(),
    ),
    # --- who leaves anyway ----------------------------------------------------------------------------------------
    Case(
        "a job that is being suspended",
        "",
        "what a suspended job still holds comes by itself",
        [
            node("n1"),
            node("n2"),
            job("stops", on=["n1"], suspend=True, priority=9),
            job("low", on=["n2"], priority=1),
            job("high", priority=9),
        ],
        {},
        set(),
        live=True,
    ),
    Case(
        "a job whose leader has finished",
        "",
        "a job ends with its leader: the room of its workers comes by itself, and nobody else gives any",
        [
            node("n1"),
            node("n2"),
            led("over", "n1", "Succeeded"),
            job("low", on=["n2"], priority=1),
            job("high", priority=9),
        ],
        {},
        set(),
    ),
    Case(
        "one of two workers has finished",
        "",
        "the room of a worker that has finished is free, and the job of the other runs on",
        [
            node("n1"),
            node("n2"),
            ended_worker(job("half", count=2, on=["n1", "n2"], priority=1), 0),
            job("high", priority=9),
        ],
        {"high": {"n1"}},
        set(),
    ),
    Case(
        "a job that is being deleted",
        "",
        "a job that somebody deletes leaves by itself, also before its pods are deleted",
        [
            node("n1"),
            node("n2"),
            deleted(job("goes", on=["n1"], priority=9)),
            job("low", on=["n2"], priority=1),
            job("high", priority=9),
        ],
        {},
        set(),
    ),
    Case(
        "a victim one of whose pods hangs",
        "",
        "of a job one of whose pods hangs, only the room of the others comes: a gang takes what it lacks elsewhere",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            hung_worker(job("half", count=2, on=["n1", "n2"], priority=1), 0),
            job("low", on=["n3"], priority=2),
            job("high", count=2, priority=9),
        ],
        {"high": [{"n2", "n3"}], "low": None},
        {"half", "low"},
        ("--cycles", "3"),
    ),
    Case(
        "a pod that hangs after its job has gone, and a limit",
        "",
        "a pod that hangs and whose job is gone holds its node, and nothing of its queue's capability",
        [
            node("n1"),
            node("n2"),
            queue("small", capability=gpus(8)),
            job("gone", on=["n1"], leaving=Hang(LONG_AGO), queue="small")[1:],
            job("next", queue="small"),
        ],
        {"next": {"n2"}},
        set(),
    ),
    # --- nodes that shrink, and victims ---------------------------------------------------------------------------
    Case(
        "a node on which a pod wouldn't fit though all left",
        "volcano-sh/volcano#2348",
        "nobody leaves a node that has lost so much that the pod wouldn't fit it even empty",
        [
            node("n1", 4),
            node("n2"),
            job("low", on=["n1"], priority=1),
            job("same", on=["n2"], priority=9),
            job("high", priority=9),
        ],
        {"high": None},
        set(),
    ),
    Case(
        "surplus on a node that has shrunk",
        "",
        "of 3 GPUs under two workers of 2, room for 1 is there once the worker that no quorum needs has left",
        [
            node("n1", 3),
            job("elastic", 2, 2, on=["n1", "n1"], least=1, priority=2),
            job("high", 1, priority=9),
        ],
        {"high": {"n1"}},
        set(),
    ),
    Case(
        "a node that isn't ready, beside a guarantee",
        "",
        "what a job holds on a node that isn't ready takes nothing from the room beside a guarantee elsewhere",
        [
            unready(node("n1")),
            node("n2"),
            queue("safe", guarantee=gpus(7)),
            queue("free"),
            job("holds", on=["n1"], queue="free", preemptible=False),
            job("one", 1, queue="free", priority=9),
            job("two", 1, queue="free"),
        ],
        {"one": {"n2"}, "two": None},
        set(),
    ),
    Case(
        "a gang for which a node reports no GPUs",
        "",
        "while a node reports none of its GPUs, nothing is kept for a gang that needs them",
        [node("n1", 0), node("n2"), job("gang", count=2, priority=9), job("small", preemptible=False)],
        {"gang": None, "small": {"n2"}},
        set(),
    ),
    # --- guests ---------------------------------------------------------------------------------------------------
    Case(
        "a further worker that has other room",
        "",
        "a worker beyond a quorum goes to reserved room only if there is no other",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 4)),
            node("n4"),
            node("n5"),
            job("endless", 1, on=["n1"], preemptible=False),
            job("elastic", 8, 2, on=["n4"], least=1),
            job("gang", 8, 3, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": None, "elastic": {"n5"}},
        set(),
    ),
    Case(
        "a job behind a gang that has other room",
        "",
        "a job doesn't become a guest while there is room for it that nobody waits for",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 4)),
            node("n4"),
            job("endless", 1, on=["n1"], preemptible=False),
            job("small", 8),
            job("gang", 8, 3, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": None, "small": {"n4"}},
        set(),
    ),
    Case(
        "further workers of a job that can't be disturbed",
        "",
        "a job that can't be disturbed gets no worker in room that is kept for another",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 4)),
            node("n4"),
            job("endless", 1, on=["n1"], preemptible=False),
            job("elastic", 8, 2, on=["n4"], least=1, preemptible=False),
            job("gang", 8, 3, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": None, "elastic": None},
        set(),
    ),
    Case(
        "further worker groups in reserved room",
        "",
        "a worker group in reserved room is whole, too",
        [
            *(node(f"n{i}", labels={"pool": "a"}) for i in range(1, 5)),
            node("n5", 16),
            job("endless", 1, on=["n1"], preemptible=False),
            grouped(job("elastic", 8, 2, on=["n5", "n5"], least=1), 2),
            job("gang", 8, 4, priority=9, pod={"nodeSelector": {"pool": "a"}}),
        ],
        {"gang": None, "elastic": 2},
        set(),
    ),
    Case(
        "a pod of others behind a gang",
        "",
        "a pod without a job is no guest: it gets no room that is kept",
        [
            node("n1"),
            node("n2"),
            job("endless", 1, on=["n1"], preemptible=False),
            job("gang", count=2, priority=9),
            [waiting_pod("single", 8)],
        ],
        {"gang": None, "pod:single": None},
        set(),
    ),
    # --- topologies, and who gives room ---------------------------------------------------------------------------
    Case(
        "room in one rack of a number",
        "",
        "room in two racks of one number is no room: the job of the lowest priority in one of them gives its own",
        [
            node("n1", labels={"rack": "1", "block": "east"}),
            node("n2", labels={"rack": "1", "block": "east"}),
            node("n3", labels={"rack": "1", "block": "west"}),
            node("n4", labels={"rack": "1", "block": "west"}),
            job("low", on=["n1"], priority=1, pod={"nodeSelector": {"block": "east"}}),
            job("middle", on=["n4"], priority=3),
            job("pair", count=2, topology={"levels": ["rack", "block"], "mode": "Required"}, priority=9),
        ],
        {"pair": [{"n1", "n2"}]},
        {"low"},
        live=True,
    ),
    Case(
        "a rack in which a pod hangs",
        "",
        "a pair takes room in the rack where it comes, though that costs two jobs of a higher priority",
        [
            node("n1", labels={"rack": "a"}),
            node("n2", labels={"rack": "a"}),
            node("n3", labels={"rack": "b"}),
            node("n4", labels={"rack": "b"}),
            stranger("hangs", "n1", 8, leaving=Hang(LONG_AGO)),
            job("low", on=["n2"], priority=1),
            job("third", on=["n3"], priority=3),
            job("fourth", on=["n4"], priority=4),
            job("pair", count=2, topology={"levels": ["rack"], "mode": "Required"}, priority=9),
        ],
        {"pair": [{"n3", "n4"}]},
        {"third", "fourth"},
    ),
    # --- queues ---------------------------------------------------------------------------------------------------
    Case(
        "a job of high priority in a queue that is full",
        "volcano-sh/volcano#4817",
        "in a queue that has all it may have, a job of a lower priority gives way, though nodes are free",
        [
            node("n1"),
            node("n2"),
            queue("small", capability=gpus(8)),
            job("low", on=["n1"], queue="small", priority=1),
            job("high", queue="small", priority=9),
        ],
        {"high": 1},
        {"low"},
    ),
    Case(
        "jobs that can't be disturbed, in a queue above its share",
        "",
        "a queue above its share keeps what its jobs with preemptible: false hold; the others give",
        [
            node("n1"),
            node("n2"),
            queue("mine", deserved=gpus(8)),
            queue("theirs"),
            job("stays", on=["n1"], queue="theirs", preemptible=False, priority=1),
            job("leaves", on=["n2"], queue="theirs", priority=9),
            job("waits", queue="mine"),
        ],
        {"waits": {"n2"}},
        {"leaves"},
    ),
    Case(
        "surplus of a job that can't be disturbed",
        "",
        "with preemptible: false, a job keeps the workers that no quorum needs, too",
        [
            node("n1"),
            node("n2"),
            job("elastic", count=2, least=1, on=["n1", "n2"], preemptible=False, priority=1),
            job("high", priority=9),
        ],
        {"high": None},
        set(),
    ),
    # --- what admission adds --------------------------------------------------------------------------------------
    Case(
        "the overhead of who gives room",
        "",
        "with a pod, the overhead of its RuntimeClass is free again",
        [
            node("n1", 0, cpu="4"),
            runtime_class("kata", overhead={"cpu": "500m"}, selector={}),
            job(
                "low",
                0,
                cpu="3500m",
                on=["n1"],
                pod={"runtimeClassName": "kata", "overhead": {"cpu": "500m"}},
                priority=1,
            ),
            job("high", 0, cpu="4", priority=9),
        ],
        {"high": {"n1"}},
        {"low"},
    ),
    Case(
        "a default that has gone",
        "",
        "what a pod got from a LimitRange it keeps when that is deleted",
        [
            node("n1", 0, cpu="6"),
            without_requests(job("runs", 0, cpu="4", on=["n1"])),
            job("four", 0, cpu="4", priority=9),
        ],
        {"four": {"n1"}},
        {"runs"},
    ),
    Case(
        "a default for an init container",
        "",
        "a LimitRange gives requests to init containers as well",
        [
            node("n1", 0, cpu="6"),
            node("n2", 0, cpu="6"),
            limit_range("defaults", defaultRequest={"cpu": "4"}),
            of_sets(
                "pair",
                worker_set(
                    "w",
                    2,
                    {**bare(requests={"cpu": "1"}), "initContainers": [{"name": "i", "image": "example.com/x:1"}]},
                    minCount=2,
                ),
            ),
        ],
        {"pair": [{"n1", "n2"}]},
        set(),
    ),
    Case(
        "a LimitRange that names the least",
        "",
        "where a LimitRange names only the least, that is what a container requests",
        [
            node("n1", 0, cpu="6"),
            node("n2", 0, cpu="6"),
            limit_range("least", min={"cpu": "4"}),
            of_sets("pair", worker_set("w", 2, bare(), minCount=2)),
        ],
        {"pair": [{"n1", "n2"}]},
        set(),
    ),
    Case(
        "two LimitRanges",
        "",
        "of two defaults the plan has the larger: the API server may take any of them",
        [
            node("n1", 0, cpu="6"),
            node("n2", 0, cpu="6"),
            limit_range("a", default={"cpu": "1"}),
            limit_range("b", default={"cpu": "4"}),
            of_sets("pair", worker_set("w", 2, bare(), minCount=2)),
        ],
        {"pair": [{"n1", "n2"}]},
        set(),
    ),
    Case(
        "a sidecar that was resized",
        "",
        "a sidecar counts with what it was granted, as other containers do",
        [
            node("n1", 0, cpu="4"),
            stranger(
                "resized",
                "n1",
                0,
                spec={
                    "nodeName": "n1",
                    **bare(requests={"cpu": "500m"}),
                    "initContainers": [
                        {
                            "name": "side",
                            "image": "example.com/x:1",
                            "restartPolicy": "Always",
                            "resources": {"requests": {"cpu": "500m"}},
                        }
                    ],
                },
                status={
                    "phase": "Running",
                    "initContainerStatuses": [
                        {
                            "name": "side",
                            "allocatedResources": {"cpu": "2500m"},
                            "resources": {"requests": {"cpu": "2"}},
                        }
                    ],
                },
            ),
            job("two", 0, cpu="2", priority=9),
            job("one", 0, cpu="1"),
        ],
        {"two": None, "one": {"n1"}},
        set(),
    ),
    Case(
        "a resize that an older kubelet calls infeasible",
        "kubernetes/kubernetes#126033",
        "before 1.33, a kubelet says in status.resize that a resize is infeasible: it counts in the same way",
        [
            node("n1", 0, cpu="4"),
            resized("10", "1", "1", resize="Infeasible"),
            job("two", 0, cpu="2"),
        ],
        {"two": {"n1"}},
        set(),
    ),
    Case(
        "a resize that an older kubelet has deferred",
        "",
        "what an older kubelet has deferred counts with what the pod asks for",
        [
            node("n1", 0, cpu="4"),
            resized("3", "1", "1", resize="Deferred"),
            job("two", 0, cpu="2"),
        ],
        {"two": None},
        set(),
    ),
    # --- pods that wait -------------------------------------------------------------------------------------------
    Case(
        "a pod of others with a high priority",
        "",
        "a pod that names Arranger takes room by its own priority",
        [
            node("n1"),
            job("low", on=["n1"], priority=1),
            [important(waiting_pod("single", 8))],
        ],
        {"pod:single": {"n1"}},
        {"low"},
    ),
    Case(
        "a pod of others that preempts nobody",
        "kubernetes/kubernetes#67671",
        "a pod whose preemptionPolicy is Never takes no room",
        [
            node("n1"),
            job("low", on=["n1"], priority=1),
            [important(waiting_pod("single", 8), preemptionPolicy="Never")],
        ],
        {"pod:single": None},
        set(),
    ),
    # --- several at once ------------------------------------------------------------------------------------------
    Case(
        "a pod that hangs on a node that has shrunk",
        "volcano-sh/volcano#2624",
        "where a pod hangs on all that a node has left, nobody gives room there",
        [
            node("n1", 4),
            node("n2", 4),
            stranger("hangs", "n1", 4, leaving=Hang(LONG_AGO)),
            job("beside", 4, on=["n1"], priority=1),
            job("low", 4, on=["n2"], priority=3),
            job("high", 4, priority=9),
        ],
        {"high": {"n2"}},
        {"low"},
    ),
    Case(
        "a pod whose grace has just ended",
        "",
        "for preemption_bound_s after its grace, a pod still counts as one that leaves",
        [
            node("n1"),
            node("n2"),
            job("leaves", on=["n1"], leaving=Hang(RECENTLY))[1:],
            job("low", on=["n2"], priority=1),
            job("high", priority=9),
        ],
        {},
        set(),
    ),
    Case(
        "who gives room to a runtime class",
        "",
        "with a RuntimeClass, those give room that are on its nodes, whatever priority others have elsewhere",
        [
            node("n1"),
            node("n2", labels={"kata": "true"}),
            runtime_class("kata", overhead={"cpu": "500m"}, selector={"kata": "true"}),
            job("elsewhere", on=["n1"], priority=1),
            job("there", on=["n2"], priority=3),
            job("high", priority=9, pod={"runtimeClassName": "kata"}),
        ],
        {"high": {"n2"}},
        {"there"},
    ),
    Case(
        "who gives room to requests that a LimitRange gives",
        "",
        "a job without requests of its own takes the room that its pods will ask for",
        [
            node("n1", 0, cpu="6"),
            limit_range("defaults", defaultRequest={"cpu": "4"}),
            job("low", 0, cpu="4", on=["n1"], priority=1),
            of_sets("high", worker_set("w", 1, bare()), priority=9),
        ],
        {"high": {"n1"}},
        {"low"},
    ),
    Case(
        "a LimitRange that gives GPUs",
        "",
        "a default of an extended resource counts as one of cpu does",
        [
            node("n1", 1),
            node("n2", -1),
            limit_range("defaults", default={GPU: "1"}),
            of_sets("first", worker_set("w", 1, bare()), priority=9),
            of_sets("second", worker_set("w", 1, bare())),
        ],
        {"first": {"n1"}, "second": None},
        set(),
    ),
    Case(
        "requests of a pod as a whole",
        "",
        "what a template requests for the whole pod counts, and overhead on top",
        [
            node("n1", 0, cpu="4"),
            runtime_class("kata", overhead={"cpu": "500m"}, selector={}),
            of_sets(
                "sandboxed",
                worker_set("w", 1, {**bare(), "resources": {"requests": {"cpu": "4"}}, "runtimeClassName": "kata"}),
                priority=9,
            ),
            of_sets("plain", worker_set("w", 1, {**bare(), "resources": {"requests": {"cpu": "4"}}})),
        ],
        {"sandboxed": None, "plain": {"n1"}},
        set(),
    ),
    Case(
        "a set in racks of one number",
        "",
        "with within: Set, a worker set has one rack of one block",
        [
            node("n1", labels={"rack": "1", "block": "east"}),
            node("n2", 4, labels={"rack": "1", "block": "east"}),
            node("n3", labels={"rack": "1", "block": "west"}),
            node("n4", 4, labels={"rack": "1", "block": "west"}),
            of_sets(
                "two",
                worker_set("a", 2, pod_spec(8), minCount=2),
                worker_set("b", 1, pod_spec(4), minCount=1),
                topology={"levels": ["rack", "block"], "mode": "Required", "within": "Set"},
            ),
        ],
        {"two": None},
        set(),
    ),
    Case(
        "surplus of a queue above its share",
        "ray-project/kuberay#5002",
        "from another queue, too, a job takes first what no quorum needs",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            queue("mine", deserved=gpus(8)),
            queue("theirs", deserved=gpus(16)),
            job("fixed", on=["n1"], queue="theirs", priority=1),
            job("elastic", count=2, least=1, on=["n2", "n3"], queue="theirs", priority=9),
            job("waits", queue="mine"),
        ],
        {"waits": {"n3"}},
        set(),
    ),
    Case(
        "a set that waits for one without workers",
        "",
        "workers that wait for a set without any worker would hold nodes for ever: they get none",
        [
            node("n1"),
            of_sets(
                "empty",
                worker_set("main", 0, pod_spec(1)),
                worker_set("others", 2, pod_spec(1), startAfter="main"),
                minWorkersNum=1,
            ),
        ],
        {"empty": None},
        set(),
    ),
    Case(
        "a set that others wait for, beside one that nobody waits for",
        "volcano-sh/volcano#2302",
        "the set that others wait for belongs to the quorum, though a third set alone has as many workers",
        [
            node("n1", 6),
            of_sets(
                "mixed",
                worker_set("large", 1, pod_spec(8)),
                worker_set("after", 4, pod_spec(1), startAfter="large"),
                worker_set("free", 2, pod_spec(1)),
                minWorkersNum=2,
            ),
        ],
        {"mixed": None},
        set(),
    ),
    Case(
        "a quorum that needs a set that waits for one that doesn't fit",
        "",
        "if the other sets are too few for the quorum, the job waits as a whole",
        [
            node("n1", 6),
            of_sets(
                "mixed",
                worker_set("large", 1, pod_spec(8)),
                worker_set("after", 4, pod_spec(1), startAfter="large"),
                worker_set("free", 1, pod_spec(1)),
                minWorkersNum=2,
            ),
        ],
        {"mixed": None},
        set(),
    ),
    Case(
        "further workers whose set waits for one without nodes, of a job that runs",
        "",
        "a job that runs gets no workers that could only wait, though there is room for them",
        [
            node("n1"),
            also(
                job("runs", 1, 1, on=["n1"]),
                worker_set("large", 1, pod_spec(16), minCount=0),
                worker_set("after", 2, pod_spec(1), minCount=0, startAfter="large"),
            ),
        ],
        {"runs": None},
        set(),
    ),
    Case(
        "a high priority in a queue that runs all that it may",
        "",
        "maxRunning counts jobs with nodes: one of a lower priority gives way to the one that matters more",
        [
            node("n1"),
            node("n2"),
            queue("one", maxRunning=1),
            job("low", on=["n1"], queue="one", priority=1),
            job("high", queue="one", priority=9),
        ],
        {"high": 1},
        {"low"},
    ),
    Case(
        "a limit above a queue that is full",
        "volcano-sh/volcano#4118",
        "the capability of a queue above counts: a job below another of its queues waits beside free nodes",
        [
            node("n1"),
            node("n2"),
            queue("top", capability=gpus(8)),
            queue("left", parent="top"),
            queue("right", parent="top"),
            job("runs", 6, on=["n1"], queue="left", preemptible=False),
            job("four", 4, queue="right", priority=9),
            job("two", 2, queue="right"),
        ],
        {"two": 1},
        set(),
    ),
]
