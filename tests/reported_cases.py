"""Inputs of the kinds that public bug reports of other schedulers show, as clusters: what is there, and what is right.

`tests/unit/test_reported_cases.py` asks `arranger simulate`, and `tests/e2e/test_reported_cases.py` real processes on a
real API server.

Each case says in a sentence what is right. Those with a thread restate what it reports, in our own words and for jobs
of ours; the others are of the same kinds and came to our own minds. Nobody who mended a fault wrote a case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"
Objects = list[dict[str, Any]]

#: The plan's time in every case, in milliseconds since 1970, and times around it.
NOW_MS = 1_767_226_201_000
LAST = "2026-01-01T00:10:00Z"
LONG_AGO = "2025-06-01T00:00:00Z"
WITHIN_GRACE = "2026-01-01T00:10:25Z"
RECENTLY = "2026-01-01T00:09:50Z"
YESTERDAY = "2025-12-31T00:00:00Z"


def node(
    name: str,
    gpus: int = 8,
    *,
    cpu: str = "64",
    labels: Mapping[str, str] | None = None,
    taints: Objects | None = None,
    **amounts: str,
) -> Objects:
    named = {key.replace("__", "/").replace("_", "."): value for key, value in amounts.items()}
    offer = {"cpu": cpu, "memory": "256Gi", "pods": "110"} | ({GPU: str(gpus)} if gpus >= 0 else {}) | named
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"node-{name}",
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            **({"spec": {"taints": taints}} if taints else {}),
            "status": {"allocatable": offer, "capacity": offer, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    ]


def pod_spec(gpus: int, cpu: str = "1", resource: str = GPU, **spec: Any) -> dict[str, Any]:
    devices = {resource: str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": cpu, **devices}, "limits": devices}
    return {"containers": [{"name": "c", "image": "example.com/x:1", "resources": resources}], **spec}


@dataclass
class Hang:
    """Pods that are being deleted: until when their grace lasts."""

    until: str


def job(
    name: str,
    gpus: int = 8,
    count: int = 1,
    *,
    on: Iterable[str] = (),
    phase: str = "Running",
    leaving: Hang | None = None,
    started: str = YESTERDAY,
    least: int | None = None,
    resource: str = GPU,
    cpu: str = "1",
    pod: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Objects:
    """A TYJob of `count` equal workers; one that runs `on` these nodes, with its pods, or one that waits."""
    of_pods = pod_spec(gpus, cpu, resource, **(pod or {}))
    workers = {
        "name": "w",
        "counts": count,
        "minCount": count if least is None else least,
        "template": {"spec": of_pods},
    }
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"job-{name}",
        "creationTimestamp": YESTERDAY if on else LAST,
    }
    item = {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": metadata,
        "spec": {"workerSets": [workers], **spec},
    }
    nodes = list(on)
    if not nodes:
        return [item]
    item["status"] = {
        "stage": "Running",
        "scheduleState": "ScheduledSucceed",
        "startTime": started,
        "allocations": [{"node": at, "workers": [{"set": "w", "indices": str(n)}]} for n, at in enumerate(nodes)],
        "conditions": [
            {"type": of, "status": "True", "lastTransitionTime": started} for of in ("Scheduled", "Running")
        ],
    }
    return [item, *(job_pod(name, n, at, of_pods, phase, leaving) for n, at in enumerate(nodes))]


def job_pod(name: str, index: int, at: str, spec: dict[str, Any], phase: str, leaving: Hang | None) -> dict[str, Any]:
    slot = {"job": name, "role": "worker", "index": str(index), "attempt": "0", "worker-set": "w"}
    owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": name, "uid": f"job-{name}", "controller": True}
    metadata: dict[str, Any] = {
        "name": f"{name}-w-{index}",
        "namespace": "default",
        "uid": f"pod-{name}-w-{index}",
        "labels": {f"arranger.dev/{key}": value for key, value in slot.items()},
        "ownerReferences": [owner],
    }
    if leaving:
        metadata |= {"deletionTimestamp": leaving.until, "deletionGracePeriodSeconds": 30}
    ready = [{"type": "Ready", "status": "True"}] if phase == "Running" and not leaving else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "nodeName": at},
        "status": {"phase": phase, "conditions": ready, "podIP": "10.0.0.1"},
    }


def stranger(
    name: str, at: str, gpus: int, *, leaving: Hang | None = None, phase: str = "Running", **more: Any
) -> Objects:
    """A pod that no TYJob owns; `more` replaces parts of it."""
    metadata: dict[str, Any] = {"name": name, "namespace": "others", "uid": f"pod-{name}"}
    if leaving:
        metadata |= {"deletionTimestamp": leaving.until, "deletionGracePeriodSeconds": 30}
    spec = {**pod_spec(gpus), "nodeName": at}
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}} | more]


def runtime_class(name: str, *, overhead: Mapping[str, str], selector: Mapping[str, str]) -> Objects:
    item = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
    return [item | {"overhead": {"podFixed": overhead}, "scheduling": {"nodeSelector": selector}}]


def queue(name: str, **spec: Any) -> Objects:
    return [{"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}]


def gpus(count: int) -> dict[str, str]:
    return {GPU: str(count)}


@dataclass
class Case:
    """A cluster, the thread that reports it ("" for our own), what is right, and the plan: the nodes of each job that
    waits (None: it gets none; a set: any of these, each pod one), and the jobs that give room."""

    name: str
    thread: str
    right: str
    objects: list[Objects]
    plan: dict[str, Any]
    give: set[str] | int = 0
    flags: tuple[str, ...] = ()
    #: Of the further cases: whether it is tried on a real API server.
    live: bool = False


CASES = [
    # --- room that comes by itself ---------------------------------------------------------------------------
    Case(
        "pods that have stopped but are not deleted yet",
        "kubernetes/kubernetes#96515",
        "a pod within its grace leaves by itself, so nobody else gives room",
        [
            node("n1"),
            node("n2"),
            job("leaves", on=["n1"], leaving=Hang(WITHIN_GRACE))[1:],
            job("low", on=["n2"], priority=2),
            job("high", priority=9),
        ],
        {},
        set(),
    ),
    Case(
        "pods that have succeeded",
        "kubernetes/kubernetes#9601",
        "a pod that has ended uses nothing, whatever its node lists",
        [
            node("n1"),
            node("n2"),
            stranger("done", "n1", 8, phase="Succeeded"),
            job("low", on=["n2"], priority=2),
            job("high", priority=9),
        ],
        {"high": {"n1"}},
        set(),
    ),
    Case(
        "a gang that two leaving pods make room for",
        "",
        "room that comes on several nodes counts for a gang as well",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            node("n4"),
            job("leaves", count=2, on=["n1", "n2"], leaving=Hang(WITHIN_GRACE))[1:],
            job("low", count=2, on=["n3", "n4"], priority=2),
            job("high", count=2, priority=9),
        ],
        {},
        set(),
    ),
    Case(
        "workers of a job whose pods have all ended",
        "",
        "a job whose pods have succeeded holds nothing, though its status still says Running",
        [
            node("n1"),
            node("n2"),
            job("over", on=["n1"], phase="Succeeded", priority=2),
            job("low", on=["n2"], priority=2),
            job("high", priority=9),
        ],
        {"high": {"n1"}},
        set(),
    ),
    # --- room that doesn't come ------------------------------------------------------------------------------
    Case(
        "a victim on the nominated node hangs",
        "kubernetes-sigs/kube-scheduler-simulator#271",
        "after its grace a pod that hangs is no reason to wait: others give room",
        [
            node("n1"),
            node("n2"),
            job("hangs", on=["n1"], leaving=Hang(LONG_AGO), priority=1),
            job("low", on=["n2"], priority=2),
            job("high", priority=9),
        ],
        {"high": {"n2"}},
        {"low"},
    ),
    Case(
        "only a part of the victims left",
        "kubernetes/kubernetes#66549",
        "a gang whose first victims hang takes the room that others still hold",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            job("hangs", on=["n1"], leaving=Hang(LONG_AGO), priority=1),
            job("low", count=2, on=["n2", "n3"], priority=2),
            job("high", count=2, priority=9),
        ],
        {"high": {"n2", "n3"}},
        {"low"},
    ),
    Case(
        "two jobs and two pods that hang",
        "",
        "no job waits for a pod that hangs, neither the first in line nor the second",
        [
            node("n1"),
            node("n2"),
            node("n3"),
            node("n4"),
            job("hangs", on=["n1"], leaving=Hang(LONG_AGO), priority=1),
            stranger("other", "n2", 8, leaving=Hang(LONG_AGO)),
            job("low1", on=["n3"], priority=2),
            job("low2", on=["n4"], priority=2),
            job("high1", priority=9),
            job("high2", priority=8),
        ],
        {"high1": {"n3", "n4"}, "high2": {"n3", "n4"}},
        {"low1", "low2"},
    ),
    Case(
        "room taken back for a queue while a pod of its own hangs",
        "",
        "a queue below its share gets its room back though a pod of its own hangs",
        [
            node("n1"),
            node("n2"),
            queue("mine", deserved=gpus(8)),
            queue("theirs", deserved=gpus(0)),
            job("hangs", on=["n1"], leaving=Hang(LONG_AGO), queue="theirs"),
            job("takes", on=["n2"], queue="theirs"),
            job("waits", queue="mine"),
        ],
        {"waits": {"n2"}},
        {"takes"},
    ),
    # --- what a node's pods hold beyond what it offers ---------------------------------------------------------
    Case(
        "a GPU is lost under a pod",
        "volcano-sh/volcano#1818",
        "a node of which a pod holds more than it offers takes no further pod",
        [node("n1", 6), job("holds", 8, on=["n1"], preemptible=False), job("six", 6)],
        {"six": None},
        set(),
    ),
    Case(
        "the GPU of a running pod is unhealthy",
        "kubernetes/kubernetes#92592",
        "the healthy GPU of a node may be the one that its pod has: a pod that needs one goes elsewhere",
        [node("n1", 1), node("n2", 2), job("holds", 1, on=["n1"]), job("one", 1)],
        {"one": {"n2"}},
        set(),
    ),
    Case(
        "a node that offers none of its GPUs",
        "NVIDIA/k8s-device-plugin#58",
        "what a node doesn't offer belongs to nobody's share, and others' shares stay what they are",
        [
            node("n1", 0),
            node("n2"),
            queue("a", deserved=gpus(8)),
            queue("b", deserved=gpus(8)),
            job("of-a", on=["n2"], queue="a"),
            job("of-b", queue="b"),
        ],
        {"of-b": None},
        set(),
    ),
    Case(
        "a device plugin restarts beside a guarantee",
        "kubernetes/kubernetes#120146",
        "GPUs that a pod holds on a node that reports none count as offered, so a guarantee has its room elsewhere",
        [
            node("n1", 0),
            node("n2"),
            node("n3"),
            queue("safe", guarantee=gpus(8)),
            queue("free"),
            job("holds", on=["n1"], queue="free"),
            job("small", 8, queue="free"),
        ],
        {"small": 1},
        set(),
    ),
    Case(
        "a node with less cpu than its pods hold",
        "",
        "the same holds for cpu: a queue that has exactly what it deserves gives nothing",
        [
            node("n1", 0, cpu="4"),
            node("n2", 0, cpu="8"),
            node("n3", 0, cpu="8"),
            queue("a", deserved={"cpu": "16"}),
            queue("b", deserved={"cpu": "4"}),
            queue("c", deserved={"cpu": "4"}),
            job("a1", 0, cpu="8", on=["n1"], queue="a"),
            job("a2", 0, cpu="8", on=["n2"], queue="a"),
            job("b1", 0, 2, cpu="4", on=["n3", "n3"], queue="b"),
            job("c1", 0, cpu="4", queue="c"),
        ],
        {"c1": {"n3"}},
        {"b1"},
    ),
    # --- topologies ------------------------------------------------------------------------------------------
    Case(
        "racks numbered in each zone",
        "red-hat-storage/ocs-operator#194",
        "a rack is a rack of its zone: equal numbers in two zones are two racks",
        [
            *(
                node(f"n{i}", 8 if i != 4 else 0, labels={"zone": "a" if i <= 3 else "b", "rack": str((i - 1) % 3)})
                for i in range(1, 7)
            ),
            job("pair", count=2, topology={"levels": ["rack", "zone"], "mode": "Required"}),
        ],
        {"pair": [{"n1", "n2"}, {"n1", "n3"}, {"n2", "n3"}, {"n5", "n6"}]},
        set(),
    ),
    Case(
        "a rack whose label is empty",
        "kubernetes/kubernetes#140308",
        "an empty value is a value: the nodes of that rack are one domain and no other's",
        [
            node("n1", labels={"rack": ""}),
            node("n2", labels={"rack": "a"}),
            node("n3", labels={"rack": "a"}),
            job("pair", count=2, topology={"levels": ["rack"], "mode": "Required"}),
        ],
        {"pair": {"n2", "n3"}},
        set(),
    ),
    Case(
        "two racks of one number with room for one pod each",
        "",
        "pods that must share a rack wait if the room is in two racks of one number, in two blocks",
        [
            node("n1", labels={"block": "east", "rack": "1"}),
            node("n2", labels={"block": "west", "rack": "1"}),
            job("pair", count=2, topology={"levels": ["rack", "block"], "mode": "Required"}),
        ],
        {"pair": None},
        set(),
    ),
    # --- who gives room, and when -----------------------------------------------------------------------------
    Case(
        "a job that has just begun",
        "kai-scheduler/KAI-Scheduler#136",
        "in a queue with minRuntimeSeconds, nobody gives room within the first minutes of its run",
        [
            node("n1"),
            queue("spares", minRuntimeSeconds=120),
            job("new", on=["n1"], started=RECENTLY, priority=2, queue="spares"),
            job("high", priority=9, queue="spares"),
        ],
        {"high": None},
        set(),
    ),
    Case(
        "a job that has run for a day",
        "",
        "who has run for long gives room as before",
        [node("n1"), job("old", on=["n1"], priority=2), job("high", priority=9)],
        {"high": {"n1"}},
        {"old"},
    ),
    Case(
        "the one who has run for long is chosen",
        "",
        "in such a queue, of two jobs of lower priority, the one that has just begun is spared",
        [
            node("n1"),
            node("n2"),
            queue("spares", minRuntimeSeconds=120),
            job("new", on=["n1"], started=RECENTLY, priority=1, queue="spares"),
            job("old", on=["n2"], priority=2, queue="spares"),
            job("high", priority=9, queue="spares"),
        ],
        {"high": {"n2"}},
        {"old"},
    ),
    # --- guests ----------------------------------------------------------------------------------------------
    Case(
        "a large gang waits for one endless job",
        "kai-scheduler/KAI-Scheduler#1969",
        "small jobs use the room that is kept for a gang until it can start",
        [
            *(node(f"n{i}") for i in range(1, 5)),
            job("endless", 1, on=["n1"], preemptible=False),
            job("gang", 8, 4, priority=9),
            job("small1", 1),
            job("small2", 1),
        ],
        {"gang": None, "small1": 1, "small2": 1},
        set(),
    ),
    Case(
        "a small job that can't be disturbed",
        "volcano-sh/volcano#4690",
        "who can't leave again doesn't go before a gang that waits for the same room",
        [
            *(node(f"n{i}") for i in range(1, 3)),
            job("endless", 1, on=["n1"], preemptible=False),
            job("gang", 8, 2, priority=9),
            job("small", 8, preemptible=False),
        ],
        {"gang": None, "small": None},
        set(),
    ),
    Case(
        "a gang that nobody may delay, by the earlier rule",
        "",
        "with backfill Known, a job whose end nobody knows doesn't start in room that is kept",
        [
            *(node(f"n{i}") for i in range(1, 3)),
            job("endless", 1, on=["n1"], preemptible=False),
            job("gang", 8, 2, priority=9),
            job("small", 8),
        ],
        {"gang": None, "small": None},
        set(),
        ("--backfill", "Known"),
    ),
    # --- what admission adds ------------------------------------------------------------------------------------
    Case(
        "nodes for a runtime class",
        "kai-scheduler/KAI-Scheduler#373",
        "the selector of a RuntimeClass is part of what a pod asks for",
        [
            node("n1"),
            node("n2", labels={"kata": "true"}),
            runtime_class("kata", overhead={"cpu": "500m"}, selector={"kata": "true"}),
            job("sandboxed", 1, pod={"runtimeClassName": "kata"}),
        ],
        {"sandboxed": {"n2"}},
        set(),
    ),
    Case(
        "the overhead of a runtime class",
        "kubernetes-sigs/kueue#119",
        "what a RuntimeClass adds to each pod counts before nodes are given",
        [
            node("n1", 0, cpu="4"),
            runtime_class("kata", overhead={"cpu": "500m"}, selector={}),
            job("plain", 0, cpu="4"),
            job("sandboxed", 0, cpu="4", pod={"runtimeClassName": "kata"}, priority=9),
        ],
        {"sandboxed": None, "plain": {"n1"}},
        set(),
    ),
    # --- resizes in place -------------------------------------------------------------------------------------
    Case(
        "a resize that can never be done",
        "kubernetes/kubernetes#122602",
        "what a kubelet calls infeasible isn't used: the pod holds what it was given",
        [
            node("n1", 0, cpu="4"),
            stranger(
                "resized",
                "n1",
                0,
                spec={**pod_spec(0, "10"), "nodeName": "n1"},
                status={
                    "phase": "Running",
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                    "containerStatuses": [
                        {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
                    ],
                },
            ),
            job("two", 0, cpu="2"),
        ],
        {"two": {"n1"}},
        set(),
    ),
    Case(
        "a resize that waits for room",
        "kubernetes/kubernetes#135107",
        "what a kubelet has deferred counts with the larger of what the pod asks for and what it has",
        [
            node("n1", 0, cpu="4"),
            stranger(
                "resized",
                "n1",
                0,
                spec={**pod_spec(0, "3"), "nodeName": "n1"},
                status={
                    "phase": "Running",
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
                    "containerStatuses": [
                        {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
                    ],
                },
            ),
            job("two", 0, cpu="2"),
        ],
        {"two": None},
        set(),
    ),
]


def is_right(expected: Any, got: Sequence[str]) -> bool:
    """Whether the nodes of a job's pods are as the plan of a case says."""
    match expected:
        case None:
            return not got
        case int():
            return len(got) == expected
        case set():
            return bool(got) and set(got) <= expected
        case list():
            return set(got) in expected
    raise TypeError(expected)
