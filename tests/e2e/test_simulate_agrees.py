"""The placements on a real API server equal the forecast of `arranger simulate` for the same nodes, pods and jobs."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from arranger.model.validation import BUILT_IN_POLICIES
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import PODS, TYJOBS, apply, arranger, eventually, fleet, kubelets
from tests.servers import RealKube, RealRedis

NODES = 200
JOBS = 60
ZONES = 4
INFRA = {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}
SPOT = {"key": "spot", "value": "true", "effect": "PreferNoSchedule"}
SIZES = (("16", "64Gi", 0), ("32", "128Gi", 2), ("64", "256Gi", 4), ("96", "384Gi", 8))


def nodes() -> Iterator[NodeTemplate]:
    """Nodes of mixed sizes and zones; every seventh is reserved for infrastructure, every eleventh better avoided."""
    for number in range(NODES):
        cpu, memory, gpus = SIZES[number % len(SIZES)]
        labels = {"zone": f"z{number % ZONES}", "topology.kubernetes.io/zone": f"z{number // 5 % ZONES}"}
        taints = (*((INFRA,) if number % 7 == 3 else ()), *((SPOT,) if number % 11 == 5 else ()))
        yield NodeTemplate(
            f"node-{number:03}", cpu=cpu, memory=memory, gpus=gpus, labels=labels, taints=taints, pods=12
        )


def template(chance: Random, *, leader: bool) -> dict[str, Any]:
    """A pod of random size; some pods restrict their nodes."""
    gpus = chance.choice((0, 1, 2, 4, 8) if leader else (0, 1, 1, 2, 4))
    requests: dict[str, Any] = {"cpu": f"{chance.randint(1, 40) * 250}m", "memory": f"{chance.randint(1, 48)}Gi"}
    resources: dict[str, Any] = {"requests": requests}
    if gpus:
        requests["nvidia.com/gpu"] = str(gpus)
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "trainer:1", "resources": resources}]}
    if chance.random() < 0.2:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": f"z{chance.randrange(ZONES)}"}
    if chance.random() < 0.3:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if chance.random() < 0.2:
        term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [f"z{chance.randrange(ZONES)}"]}]}
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"spec": spec}


def jobs(chance: Random) -> Iterator[dict[str, Any]]:
    """Jobs with every queue and pod policy and without; gangs and elastic jobs; more than the cluster has room for."""
    for number in range(JOBS):
        sets = [
            {"name": name, "counts": chance.randint(1, 9), "template": template(chance, leader=False)}
            for name in ("actors", "envs")[: chance.randint(1, 2)]
        ]
        workers = sum(one["counts"] for one in sets)
        policy = {
            "jobQueuePolicy": (None, *BUILT_IN_POLICIES.queue)[number % 3],
            "basicPolicy": (None, *BUILT_IN_POLICIES.pod)[number % (1 + len(BUILT_IN_POLICIES.pod))],
        }
        yield {
            "apiVersion": "arranger.dev/v1",
            "kind": "TYJob",
            "metadata": {"name": f"job-{number:02}", "namespace": "default"},
            "spec": {
                "priority": chance.randint(1, 10),
                "minWorkersNum": chance.randint(0, workers),
                "leader": {"name": "learner", "template": template(chance, leader=True)},
                "workerSets": sets,
                "schedulerPolicy": {name: value for name, value in policy.items() if value},
            },
        }


def stranger(number: int) -> dict[str, Any]:
    """A foreign pod with a fixed node."""
    resources = {"requests": {"cpu": "5", "memory": "20Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"stranger-{number}", "namespace": "default"},
        "spec": {
            "nodeName": f"node-{number * 9:03}",
            "containers": [{"name": "main", "image": "other:1", "resources": resources}],
        },
    }


def to_place(chance: Random, name: str, group: str = "", least: int = 0) -> dict[str, Any]:
    """A pod that no TYJob owns and that names Arranger, perhaps of a group that its labels make."""
    prefix = "pod-group.scheduling.sigs.k8s.io/"
    labels = {f"{prefix}name": group, f"{prefix}min-available": str(least)} if group else {}
    resources = {"requests": {"cpu": f"{chance.randint(1, 9) * 100}m", "memory": f"{chance.randint(1, 4)}Gi"}}
    containers = [{"name": "main", "image": "server:1", "resources": resources}]
    spec = {"schedulerName": "arranger", "containers": containers}
    metadata = {"name": name, "namespace": "default", "labels": {"to-place": "true", **labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pods_to_place(chance: Random) -> Iterator[dict[str, Any]]:
    """Single pods, and groups of which one is never whole. They are small, because jobs go first."""
    yield from (to_place(chance, f"single-{number}") for number in range(8))
    for group, least in (("trio", 3), ("pair", 2), ("never", 4)):
        yield from (to_place(chance, f"{group}-{number}", group, least) for number in range(3))


def placed_pods(kube: RealKube) -> dict[str, str]:
    """Name → node of our existing pods, and of those that Arranger places for others."""
    items = [
        item
        for label in ("arranger.dev/job", "to-place")
        for item in kube.request("GET", f"{PODS}?labelSelector={label}")[1]["items"]
    ]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in items if pod["spec"].get("nodeName")}


def test_pods_get_what_the_simulation_said(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    with kubelets(kube, *nodes()):
        kube.kubectl("cordon", "node-010", "node-011", "node-150")
        apply(kube, *(stranger(number) for number in range(20)))
        apply(kube, *jobs(Random(60)), *pods_to_place(Random(61)))
        running = "--field-selector=status.phase=Running"
        eventually(
            "the strangers' pods run",
            lambda: len(kube.kubectl("get", "pods", running, "-o", "name").stdout.split()) == 20,
        )
        taken = tmp_path / "cluster.yaml"
        taken.write_text(kube.kubectl("get", "nodes,pods,tyj", "--all-namespaces", "-o", "yaml").stdout)

        told = arranger("simulate", str(taken), "-o", "json")
        assert (told.returncode, told.stderr) == (0, "")
        plan = json.loads(told.stdout)
        expected = {pod["pod"]: pod["node"] for job in plan["jobs"] for pod in job["placed"]}
        states = {job["name"]: job["scheduleState"] for job in plan["jobs"]}
        of_jobs = {name: state for name, state in states.items() if ":" not in name}
        _is_worth_comparing(plan, expected, of_jobs)
        assert {"single-0", "trio-2"} < expected.keys() and "never-0" not in expected

        with fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
            workers.start()
            eventually(f"{len(expected)} pods are there", lambda: len(placed_pods(kube)) >= len(expected))
            assert placed_pods(kube) == expected

            def told_states() -> dict[str, str]:
                items = kube.request("GET", TYJOBS)[1]["items"]
                return {item["metadata"]["name"]: item.get("status", {}).get("scheduleState", "") for item in items}

            eventually("the statuses tell the same", lambda: told_states() == of_jobs)
            (worker,) = workers.workers.values()
            assert worker.stop() == 0
        assert placed_pods(kube) == expected
        verified = arranger("verify", "--log", redis.url, "-o", "json")
        report = json.loads(verified.stdout)
        assert (verified.returncode, report["different"]) == (0, 0)
        assert report["identical"] == report["cycles"] > 0


def _is_worth_comparing(plan: dict[str, Any], expected: dict[str, str], states: dict[str, str]) -> None:
    """Check that the cluster is so full that order and policies matter, and that every kind of outcome occurs."""
    assert len(states) == JOBS
    assert set(states.values()) == {"ScheduledSucceed", "ScheduledPartly", "Unscheduled"}
    assert len(expected) > 150
    assert len(set(expected.values())) > 80
    for job in plan["jobs"]:
        assert {sum(reason["nodes"] for reason in pod["reasons"]) for pod in job["unplaced"]} <= {NODES}
