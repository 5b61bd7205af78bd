"""The real operator of KubeRay: of two RayClusters only one fits as a whole, with its head and all workers."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import group_uid
from tests.build_servers import KUBERAY
from tests.e2e.harness import apply, eventually
from tests.e2e.test_job_controller import Running, first_placed
from tests.e2e.two_gangs import (
    PODS_OF_ALL,
    WORKERS,
    Mode,
    clear,
    cluster_with,
    first_of,
    in_mode,
    pods_with,
    runs_whole,
    template,
    waits_whole,
)
from tests.operators import kuberay
from tests.servers import MERGE, RealKube

CLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"
OF_CLUSTER = "ray.io/cluster"
NAMES = {name: f"{OF_CLUSTER}={name}" for name in ("rollouts", "rollouts-2")}

MODES = {
    "labels": Mode("", "arranger", "arranger", GroupKind.LABELS),
    "coscheduling": Mode("scheduler-plugins", "", "arranger,scheduler-plugins-scheduler", GroupKind.COSCHEDULING),
    "volcano": Mode("volcano", "", "arranger,volcano", GroupKind.VOLCANO),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RealKube]:
    with cluster_with(KUBERAY) as kube:
        yield kube


@pytest.fixture
def kube(server: RealKube) -> Iterator[RealKube]:
    yield server
    clear(server, "rayclusters", OF_CLUSTER)


def ray_cluster(name: str, mode: Mode, *, workers: int = WORKERS) -> dict[str, Any]:
    """A RayCluster of a head and so many workers, which needs all of them to begin."""
    head = {"rayStartParams": {}, "template": template(name, mode, container="ray-head", least=workers + 1)}
    of_workers = {
        "groupName": "gpus",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": 10,
        "rayStartParams": {},
        "template": template(name, mode, container="ray-worker", gpus=1, least=workers + 1),
    }
    labels = {"ray.io/gang-scheduling-enabled": "true"} if mode.groups == GroupKind.COSCHEDULING else {}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [of_workers]},
    }


def group_of(name: str, mode: Mode) -> str:
    """The record of a RayCluster's group; KubeRay names PodGroups of Volcano in its own way."""
    return group_uid("default", f"ray-{name}-pg" if mode.groups == GroupKind.VOLCANO else name, mode.groups)


def scale(kube: RealKube, name: str, workers: int) -> None:
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}]
    kube.kubectl("patch", "raycluster", name, "--type=json", "-p", json.dumps(patch))


def phases(kube: RealKube, name: str) -> Counter[str]:
    return Counter(of["status"]["phase"] for of in pods_with(kube, f"{OF_CLUSTER}={name}"))


def suspend(kube: RealKube, name: str, *, suspended: bool) -> None:
    kube.request("PATCH", f"{CLUSTERS}/{name}", {"spec": {"suspend": suspended}}, content_type=MERGE)


def state(kube: RealKube, name: str) -> str:
    """What KubeRay says of a RayCluster: `ready` once all of its pods are."""
    found: str = kube.request("GET", f"{CLUSTERS}/{name}")[1].get("status", {}).get("state", "")
    return found


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_of_two_rayclusters_that_dont_fit_together_one_runs_whole_and_then_the_other(
    kube: RealKube, mode: Mode, tmp_path: Path
) -> None:
    with in_mode(kube, mode, kuberay, tmp_path) as redis_url:
        apply(kube, *[ray_cluster(name, mode) for name in NAMES])
        first, second = first_of(kube, NAMES)
        eventually("KubeRay says so", lambda: state(kube, first) == "ready")
        assert state(kube, second) != "ready"
        suspend(kube, first, suspended=True)
        eventually("then the other runs whole", lambda: runs_whole(kube, NAMES[second]))
        eventually("all pods of the first are gone", lambda: not pods_with(kube, NAMES[first]))
        suspend(kube, first, suspended=False)
        eventually("what is resumed waits whole", lambda: waits_whole(kube, NAMES[first]))
        suspend(kube, second, suspended=True)
        eventually("and runs whole", lambda: runs_whole(kube, NAMES[first]))
        placed = first_placed(Running(kube, redis_url))
        of_both = {name: placed[group_of(name, mode)] for name in NAMES}
        assert of_both == dict.fromkeys(NAMES, PODS_OF_ALL), "each got all its nodes by one decision"


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_raycluster_that_runs_gets_further_workers_as_far_as_there_is_room(
    kube: RealKube, mode: Mode, tmp_path: Path
) -> None:
    with in_mode(kube, mode, kuberay, tmp_path):
        apply(kube, ray_cluster("rollouts", mode, workers=2))
        eventually("it runs whole", lambda: phases(kube, "rollouts") == Counter(Running=3))
        scale(kube, "rollouts", WORKERS)
        eventually("further workers run", lambda: phases(kube, "rollouts") == Counter(Running=PODS_OF_ALL))
        scale(kube, "rollouts", WORKERS + 2)
        grown = Counter(Running=PODS_OF_ALL, Pending=2)
        eventually("those without room wait, and the others run on", lambda: phases(kube, "rollouts") == grown)
        scale(kube, "rollouts", 1)
        eventually("it has shrunk", lambda: phases(kube, "rollouts") == Counter(Running=2))
        apply(kube, ray_cluster("rollouts-2", mode, workers=3))
        eventually("another one gets the room", lambda: phases(kube, "rollouts-2") == Counter(Running=4))
