"""What `arranger convert` makes of other manifests runs: each shape of `tests/convert` on one embedded cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import cluster_of
from tests.e2e.harness import TYJOBS, arranger, eventually, pods_of
from tests.e2e.pod_processes import environment_of, expanded
from tests.servers import REPOSITORY, KubeServer

SHAPES = sorted((REPOSITORY / "tests" / "convert").glob("*.yaml"))
NODES = [
    NodeTemplate(f"node-{number}", cpu="64", memory="512Gi", gpus=8, labels={"example.com/rack": f"rack-{number % 2}"})
    for number in range(6)
]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=["embedded"])
def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    with cluster_of(request, tmp_path_factory.mktemp("convert"), *NODES) as cluster:
        yield cluster.kube


def runs(job: dict[str, Any]) -> bool:
    """Whether a job runs with all its pods, or has succeeded."""
    status = job.get("status") or {}
    whole = status.get("readyWorkers") == status.get("totalWorkers")
    return status.get("stage") == "Succeeded" or (status.get("stage") == "Running" and whole)


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_each_shape_becomes_tyjobs_that_run_with_all_their_pods(kube: KubeServer, path: Path, tmp_path: Path) -> None:
    made = tmp_path / "tyjobs.yaml"
    result = arranger("convert", str(path), "--to", str(made))
    assert result.returncode == 0, result.stderr
    names = [of["metadata"]["name"] for of in yaml.safe_load_all(made.read_text()) if of["kind"] == "TYJob"]
    kube.kubectl("apply", "-f", str(made))

    def waiting() -> dict[str, str]:
        jobs = {job["metadata"]["name"]: job for job in kube.request("GET", TYJOBS)[1]["items"]}
        return {name: (jobs[name].get("status") or {}).get("message", "") for name in names if not runs(jobs[name])}

    left = names
    try:
        eventually("all run", lambda: not waiting(), within_s=60)
        left = []
    finally:
        if left:
            print(waiting())
    for name in names:
        for pod in pods_of(kube, name):
            container, environment = pod["spec"]["containers"][0], environment_of(pod)
            texts = [*container.get("command", ()), *container.get("args", ())]
            texts += [variable.get("value", "") for variable in container["env"]]
            assert not [text for text in texts if "$(TYJOB" in expanded(text, environment)], "a variable isn't set"
    kube.kubectl("delete", "tyj", "--all", "--wait=false")
