"""Rows E and F: forged data in Redis or in the cluster doesn't make Arranger run code or delete foreign pods.

A client that can write to Redis can still do harm, because the log isn't signed. But no forged rq job runs code, and a
pod is deleted only if its live object names a TYJob as its owner.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import redis
import rq.job
import rq.serializers

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import eventually, job
from tests.servers import MERGE
from tests.trial.readings import log_events
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import create, tyjobs
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(4)]
#: Forged data takes effect within this time: the applier sweeps every five seconds.
_EFFECT_S = 12.0
#: Namespaces that precede ours in a listing.
STRANGERS = ("a-stranger", "b-stranger")
_LOG = "arranger:{default}:"

#: Appends a batch as any client could: the entry, its chain, and the record of the log's end.
_APPEND = """
local meta = redis.call('HMGET', KEYS[2], 'end', 'chain')
local chain = redis.sha1hex(meta[2] .. ARGV[1])
local finish = string.format('%.0f', tonumber(meta[1]) + tonumber(ARGV[2]))
redis.call('XADD', KEYS[1], finish .. '-0', 'p', ARGV[1], 'c', chain, 'n', ARGV[2])
redis.call('HSET', KEYS[2], 'end', finish, 'chain', chain)
return finish
"""


def forged_ticks(lab: Lab, *, settings: Mapping[str, object] | None = None, wait_s: float = _EFFECT_S) -> Verdict:
    """Put forged rq jobs that call other functions into the queues of the ticks."""
    found = Verdict("E", "forged rq jobs")
    with scene(lab, nodes=NODES, settings=settings) as there:
        there.start()
        canaries = [there.folder / f"canary-{number}" for number in range(len(calls(there.folder)))]
        with redis.Redis.from_url(there.redis.url) as client:
            for tick in ("cycle", "maintenance"):
                for name, arguments in calls(there.folder):
                    push(client, tick, name, arguments)
        within(lambda: there.said("rq", "tick"), within_s=wait_s)
        create(lab.kube, "default", job("after", workers=1))
        started = within(lambda: stage(there, "after") == "Running", within_s=60)
        ran = [path.name for path in canaries if path.exists()]
        found.told(forged=2 * len(canaries), ran=len(ran), said=len(there.said("rq", "tick")))
        found.expect(not ran, f"forged jobs ran code: {ran}")
        found.expect(bool(started), "no job was scheduled after the forged ones")
        found.expect(bool(there.said("rq", "tick")), "nothing was said of the forged jobs")
    return found


def calls(folder: Path) -> list[tuple[str, list[Any]]]:
    """The calls of the forged jobs: each creates its own file if it runs."""

    def touch(number: int) -> str:
        return f"touch {folder / f'canary-{number}'}"

    return [
        ("os.system", [touch(0)]),
        ("subprocess.check_call", [["touch", str(folder / "canary-1")]]),
        ("builtins.exec", [f"open({str(folder / 'canary-2')!r}, 'w')"]),
        ("pathlib.Path.touch", [str(folder / "canary-3")]),
        ("arranger.workers.members.ticks.os.system", [touch(4)]),
    ]


def push(client: "redis.Redis[bytes]", tick: str, name: str, arguments: list[Any]) -> None:
    """Put a job that calls `name` at the head of a tick's queue."""
    queue = f"arranger:default:{tick}"
    forged = rq.job.Job.create(
        name, args=arguments, connection=client, serializer=rq.serializers.JSONSerializer, origin=queue
    )
    forged.set_status(rq.job.JobStatus.QUEUED)
    forged.save()
    client.lpush(f"rq:queue:{queue}", forged.id)


def forged_entries(lab: Lab, *, settings: Mapping[str, object] | None = None, wait_s: float = _EFFECT_S) -> Verdict:
    """Append entries in which foreign pods belong to a job that never existed."""
    found = Verdict("E", "forged entries")
    with scene(lab, nodes=NODES, settings=settings) as there:
        there.start()
        there.namespace("strangers")
        pods = [stranger(there, f"database-{number}") for number in range(4)]
        create(lab.kube, "default", job("ours", workers=1))
        eventually("ours runs", lambda: stage(there, "ours") == "Running")
        with redis.Redis.from_url(there.redis.url) as client:
            term = last_term(client, "pod")
            for number, pod in enumerate(pods):
                forge(client, [pod_seen(pod, term=term)], seq=number + 1)
        time.sleep(wait_s)
        left = {item["metadata"]["uid"] for item in there.kube.request("GET", "/api/v1/pods")[1]["items"]}
        gone = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] not in left]
        found.told(forged=len(pods), deleted=len(gone))
        found.expect(not gone, f"strangers' pods were deleted: {gone}")
        create(lab.kube, "default", job("after", workers=1))
        found.expect(
            bool(within(lambda: stage(there, "after") == "Running", within_s=60)),
            "no job starts after the forged entries",
        )
        found.faults += there.tracebacks()
    return found


def forge(client: "redis.Redis[bytes]", events: list[list[Any]], *, seq: int) -> None:
    """Append a batch of an unknown writer."""
    payload = msgspec.msgpack.encode(["forger", seq, time.time_ns() // 10**6, events])
    client.eval(_APPEND, 2, f"{_LOG}log", f"{_LOG}meta", payload, len(events))


def last_term(client: "redis.Redis[bytes]", kind: str) -> int:
    """The offset of a watch's newest claim, which is the current term."""
    for number, fields in client.xrevrange(f"{_LOG}log"):
        events = msgspec.msgpack.decode(fields[b"p"])[3]
        last = int(number.partition(b"-")[0])
        for index, event in enumerate(events):
            if event[0].startswith("WatchClaimed.") and event[1] == kind:
                return int(last - len(events) + 1 + index)
    raise AssertionError(f"nobody has claimed the watch of {kind}")


def pod_seen(pod: dict[str, Any], *, term: int) -> list[Any]:
    """A pod as the watcher would record it, but with a nonexistent job as its owner."""
    metadata, spec = pod["metadata"], pod["spec"]
    owner = [f"never-was-{metadata['uid']}", 0, "learner", True, 0]
    about = [metadata["namespace"], metadata["name"], metadata["uid"], metadata["resourceVersion"], spec["nodeName"]]
    return ["PodSeen.1", term, *about, "Running", [["cpu", 100], ["pods", 1]], owner, True, False]


def stage(there: Scene, name: str, namespace: str = "default") -> str:
    """A job's present stage; empty if it has none or doesn't exist."""
    code, found = there.kube.request("GET", f"{tyjobs(namespace)}/{name}", check=False)
    return str((found.get("status") or {}).get("stage", "")) if code == 200 else ""


def stranger(
    there: Scene, name: str, *, namespace: str = "strangers", node: str = "node-0", **metadata: object
) -> dict[str, Any]:
    """Create a running foreign pod. Returns it as the API server has it."""
    container = {"name": "main", "image": "stranger:1", "resources": {"requests": {"cpu": "100m"}}}
    body = {"metadata": {"name": name, **metadata}, "spec": {"nodeName": node, "containers": [container]}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    there.kube.request("POST", path, body)

    def running() -> dict[str, Any] | None:
        pod = there.kube.request("GET", f"{path}/{name}")[1]
        return pod if (pod.get("status") or {}).get("phase") == "Running" else None

    return eventually(f"{name} runs", running) or {}


def forged_pods(
    lab: Lab, *, jobs: int = 6, epochs: int = 3, settings: Mapping[str, object] | None = None, wait_s: float = _EFFECT_S
) -> Verdict:
    """Create pods with the names, labels and owners of our pods in other namespaces, then lose the log."""
    found = Verdict("F", "forged pods in a new epoch")
    with scene(lab, nodes=NODES, settings=settings) as there:
        there.start()
        for namespace in STRANGERS:
            there.namespace(namespace)
        names = [f"ours-{number}" for number in range(jobs)]
        for name in names:
            create(lab.kube, "default", job(name, workers=2))
        eventually("ours run", lambda: all(stage(there, name) == "Running" for name in names))
        ours = {
            pod["metadata"]["uid"]: pod
            for pod in there.kube.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]
        }
        addresses = leaders(there, names)
        for index, pod in enumerate(ours.values()):
            doubles(there, pod, node=f"node-{index % 4}")
        for _ in range(epochs):
            lose_log(there)
            there.wait_ready()
            time.sleep(wait_s)
        left = {item["metadata"]["uid"] for item in there.kube.request("GET", "/api/v1/pods")[1]["items"]}
        gone = [pod["metadata"]["name"] for uid, pod in ours.items() if uid not in left]
        told = {
            event.object["status"]["leaderAddress"]
            for event in there.history.since(0)
            if event.kind == "job" and (event.object.get("status") or {}).get("leaderAddress")
        }
        found.told(pods=len(ours), forged=2 * len(ours), deleted=len(gone), wrong_addresses=len(told - addresses))
        found.expect(not gone, f"running pods of ours were deleted: {gone}")
        found.expect(told <= addresses, f"statuses told addresses that no leader had: {told - addresses}")
        stages = {name: stage(there, name) for name in names}
        found.expect(set(stages.values()) == {"Running"}, f"jobs didn't run on: {stages}")
        found.faults += there.tracebacks()
    return found


def leaders(there: Scene, names: list[str]) -> set[str]:
    """The present addresses of the leaders."""
    items = there.kube.request("GET", "/api/v1/namespaces/default/pods?labelSelector=arranger.dev/role=leader")[1][
        "items"
    ]
    return {pod["status"]["podIP"] for pod in items if pod["metadata"]["labels"]["arranger.dev/job"] in names}


def doubles(there: Scene, pod: dict[str, Any], *, node: str) -> None:
    """Create a pod with the same name, labels and owner in each foreign namespace."""
    metadata = {"labels": pod["metadata"]["labels"], "ownerReferences": pod["metadata"]["ownerReferences"]}
    for namespace in STRANGERS:
        stranger(there, pod["metadata"]["name"], namespace=namespace, node=node, **metadata)


def lose_log(there: Scene) -> None:
    """Empty Redis while the watcher has no right to list TYJobs. It gets the right back after it listed the pods."""
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/arranger-watcher"
    rules = there.kube.request("GET", role)[1]["rules"]
    without = [rule for rule in rules if "tyjobs" not in rule["resources"]]
    there.kube.request("PATCH", role, {"rules": without}, content_type=MERGE)
    time.sleep(1.0)  # the API server caches rights
    there.redis.command("FLUSHALL")

    def listed() -> bool:
        return any(event.kind == "ListingEnded" and event.fields[0] == "pod" for event in log_events(there))

    eventually("the pods are listed", listed, every_s=0.3)
    there.kube.request("PATCH", role, {"rules": rules}, content_type=MERGE)
