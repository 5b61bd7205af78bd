"""The recipes: each example is accepted as it is, runs on both clusters, and its pods find each other."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, cluster_of
from tests.e2e.harness import MERGE, eventually, pods_of, status_of
from tests.e2e.pod_processes import CORE, command_of, environment_of, expanded, pod_processes
from tests.servers import REPOSITORY, KubeServer

RECIPES = sorted((REPOSITORY / "docs" / "recipes").glob("*.yaml"))
NODES = [NodeTemplate(f"node-{number}", cpu="64", memory="512Gi", gpus=8) for number in range(5)]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=BOTH)
def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A cluster of five nodes with eight GPUs each, and one process with all roles."""
    with cluster_of(request, tmp_path_factory.mktemp("recipes"), *NODES) as cluster:
        yield cluster.kube


@contextlib.contextmanager
def running(kube: KubeServer, recipe: str) -> Iterator[str]:
    """The job of a recipe, from `kubectl apply` until all its pods are ready; its name."""
    path = REPOSITORY / "docs" / "recipes" / f"{recipe}.yaml"
    kube.kubectl("apply", "--dry-run=server", "-f", str(path))
    kube.kubectl("apply", "-f", str(path))
    name: str = yaml.safe_load(path.read_text())["metadata"]["name"]
    kube.kubectl("wait", f"tyj/{name}", "--for=condition=Running", "--timeout=120s")
    try:
        eventually("all workers are ready", lambda: all_ready(status_of(kube, name)))
        yield name
    finally:
        kube.kubectl("delete", "tyj", name, "--timeout=120s")
        eventually(f"the pods of {name} are gone", lambda: not pods_of(kube, name))
        for kind in ("configmaps", "services"):  # a bare API server has no garbage collector
            kube.kubectl("delete", kind, "-l", f"arranger.dev/job={name}")


def all_ready(status: dict[str, Any]) -> bool:
    return bool(status["readyWorkers"] == status["totalWorkers"])


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES])
def test_a_recipe_is_accepted_and_runs_with_all_its_pods(kube: KubeServer, recipe: str) -> None:
    with running(kube, recipe) as name:
        pods = pods_of(kube, name)
        spec = yaml.safe_load((REPOSITORY / "docs" / "recipes" / f"{recipe}.yaml").read_text())["spec"]
        workers = sum(of["counts"] * of.get("groupSize", 1) for of in spec["workerSets"])
        assert len(pods) == ("leader" in spec) + workers
        for pod in pods:
            container, environment = pod["spec"]["containers"][0], environment_of(pod)
            texts = [*container.get("command", ()), *container.get("args", ())]
            assert not [text for text in texts if "$(" in expanded(text, environment)], "a variable isn't set"
        _, shown = kube.kubectl("get", "tyj", name).stdout.splitlines()
        page = (REPOSITORY / "docs" / "recipes" / f"{recipe}.md").read_text()
        assert shown.split()[:4] in [line.split()[:4] for line in page.splitlines()], "the page shows another row"


def test_torchruns_nodes_connect_to_rank_0_and_see_each_other(kube: KubeServer, tmp_path: Path) -> None:
    with running(kube, "torchrun-static") as name, pod_processes(kube, name, tmp_path) as processes:
        pods = [pod["metadata"]["name"] for pod in pods_of(kube, name)]
        processes.until("every node knows the world", lambda: all(processes.said(pod, "world") for pod in pods))
        assert [processes.said(pod, "world") for pod in pods] == [[[0, 1, 2, 3]]] * 4
        body = {"status": {"phase": "Failed", "reason": "NCCL"}}
        kube.request("PATCH", f"{CORE}/pods/{pods[1]}/status", body, content_type=MERGE)
        again = [f"{pod}-r1" for pod in pods]  # all of them: no rank can be replaced alone
        processes.until("every node knows the next world", lambda: all(processes.said(pod, "world") for pod in again))
        assert [processes.said(pod, "world") for pod in again] == [[[0, 1, 2, 3]]] * 4
        eventually("the job is running again", lambda: all_ready(status_of(kube, name)))


def test_an_elastic_job_sees_its_nodes_come_and_go(kube: KubeServer, tmp_path: Path) -> None:
    with running(kube, "torchrun-elastic") as name, pod_processes(kube, name, tmp_path) as processes:
        host, first = f"{name}-host-0", f"{name}-nodes-0"

        def sees(world: list[int]) -> bool:
            """Whether the host and its first node know this world, and read as many ready pods in the file."""
            return all(
                processes.said(pod, what)[-1:] == [of]
                for pod in (host, first)
                for what, of in (("world", world), ("ready", len(world)))
            )

        processes.until("all eight nodes are there", lambda: sees(list(range(8))))
        for counts in (1, 3, 1):  # and the host: two nodes, four, and two again
            kube.kubectl("scale", "tyj", name, f"--replicas={counts}")
            processes.until(f"{counts + 1} nodes are there", lambda: sees(list(range(counts + 1))))  # noqa: B023
        assert status_of(kube, name)["attempt"] == 0
        assert {environment_of(pod)["TYJOB_ATTEMPT"] for pod in pods_of(kube, name)} == {"0"}


def test_vllms_engines_meet_begin_again_and_scale_as_a_whole(kube: KubeServer, tmp_path: Path) -> None:
    def engines() -> dict[str, str]:
        """The name and UID of each pod of an engine."""
        pods = [pod["metadata"] for pod in pods_of(kube, name)]
        return {of["name"]: of["uid"] for of in pods if of["labels"]["arranger.dev/role"] == "worker"}

    with running(kube, "vllm") as name, pod_processes(kube, name, tmp_path) as processes:
        first, second = (tuple(f"{name}-engine-{index}" for index in of) for of in ((0, 1), (2, 3)))

        def met(times: int) -> bool:
            """Whether the pods of the first engine have met so often, and those of the second once."""
            worlds = [processes.said(pod, "world") for pod in (*first, *second)]
            return worlds == [[[0, 1]] * times] * 2 + [[[2, 3]]] * 2

        processes.until("both engines have met", lambda: met(1))
        before = engines()
        kube.kubectl("delete", "pod", first[1])
        processes.until("the first engine has met again", lambda: met(2))
        assert [pod for pod, uid in engines().items() if before[pod] == uid] == [*second]
        kube.kubectl("scale", "tyj", name, "--replicas=3")
        eventually("half an engine gets no node", lambda: (
            "1 of 2 further pods of engine fit; beside it, engine:" in (told := status_of(kube, name))["message"]
            and told["replicas"] == 2
        ))  # fmt: skip
        kube.kubectl("scale", "tyj", name, "--replicas=1")
        eventually("one engine is left", lambda: [*engines()] == [*first] and status_of(kube, name)["replicas"] == 1)
        assert status_of(kube, name)["attempt"] == 0


def test_rays_workers_join_the_head_and_jax_has_its_coordinator(kube: KubeServer, tmp_path: Path) -> None:
    with running(kube, "ray") as name, pod_processes(kube, name, tmp_path) as processes:
        workers = [pod for pod in pods_of(kube, name) if pod["metadata"]["labels"]["arranger.dev/role"] == "worker"]
        joins = [command_of(pod) for pod in workers]
        assert [command[2] for command in joins] == ["--address=head-0.ray.default.svc:6379"] * 6
        names = [pod["metadata"]["name"] for pod in pods_of(kube, name)]
        everyone = [list(range(7))]
        processes.until("the head has all workers", lambda: all(
            processes.said(pod, "cluster")[-1:] == everyone for pod in names
        ))  # fmt: skip
    with running(kube, "jax") as name:
        told = [environment_of(pod) for pod in pods_of(kube, name)]
        assert {(each["MASTER_ADDR"], each["NNODES"]) for each in told} == {("processes-0.jax.default.svc", "4")}
        assert sorted(each["NODE_RANK"] for each in told) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("configmaps", "ray-members", "a configmap named ray-members exists that isn't this job's"),
        ("services", "ray", "a service named ray exists that isn't this job's"),
    ],
)
def test_a_name_that_is_taken_is_left_alone_and_the_job_says_so(
    kube: KubeServer, kind: str, name: str, words: str
) -> None:
    spec = {"spec": {"clusterIP": "None"}} if kind == "services" else {"data": {"theirs": "yes"}}
    foreign = {"apiVersion": "v1", "metadata": {"name": name}, **spec}
    made = kube.request("POST", f"{CORE}/{kind}", foreign)[1]
    kube.kubectl("apply", "-f", str(REPOSITORY / "docs" / "recipes" / "ray.yaml"))
    eventually("the job says why it waits", lambda: words in status_of(kube, "ray").get("message", ""))
    assert kube.request("GET", f"{CORE}/{kind}/{name}")[1]["metadata"] == made["metadata"]
    kube.request("DELETE", f"{CORE}/{kind}/{name}")
    with running(kube, "ray"):
        assert kube.request("GET", f"{CORE}/{kind}/{name}")[1]["metadata"]["ownerReferences"][0]["name"] == "ray"
