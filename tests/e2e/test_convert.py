"""What `arranger convert` makes of other manifests runs: each shape of `tests/convert` on one embedded cluster."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.convert.whole_input import NO_NAMESPACE
from arranger.kube.cluster import QUEUES
from arranger.sandbox.nodes import NodeTemplate
from arranger.sandbox.pod_run import PREFIX
from tests.e2e.both_clusters import cluster_of
from tests.e2e.harness import TYJOBS, arranger, eventually, pods_of
from tests.e2e.pod_processes import environment_of, expanded
from tests.servers import REPOSITORY, KubeServer

#: The host name of a pod and its subdomain, as programs name them.
HOST = re.compile(r"(?<![\w.-])([a-z][a-z0-9-]*-\d+)\.([a-z][a-z0-9-]*)(?![\w-])")
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


def job_in(queue: str) -> dict[str, Any]:
    """A job of one small pod in a queue."""
    container = {"name": "main", "image": "registry.example/one:1", "resources": {"requests": {"cpu": "250m"}}}
    workers = {"name": "worker", "counts": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queue": queue, "workerSets": [workers]}
    return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": f"in-{queue}"}, "spec": spec}


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_each_shape_becomes_tyjobs_that_run_with_all_their_pods_and_queues_whose_jobs_run(
    kube: KubeServer, path: Path, tmp_path: Path
) -> None:
    made = tmp_path / "tyjobs.yaml"
    result = arranger("convert", str(path), "--to", str(made))
    assert result.returncode == 0, result.stderr
    objects = list(yaml.safe_load_all(made.read_text()))
    specs = {of["metadata"]["name"]: of["spec"] for of in objects if of["kind"] == "Queue"}
    queues = [name for name, spec in specs.items() if spec.get("namespaces") != NO_NAMESPACE]
    (tmp_path / "in_queues.yaml").write_text(yaml.safe_dump_all(map(job_in, specs)))
    names = [of["metadata"]["name"] for of in objects if of["kind"] == "TYJob"] + [f"in-{name}" for name in queues]
    kube.kubectl("apply", "-f", str(made))
    if specs:
        kube.kubectl("apply", "-f", str(tmp_path / "in_queues.yaml"))

    def waiting() -> dict[str, str]:
        jobs = {job["metadata"]["name"]: job for job in kube.request("GET", TYJOBS)[1]["items"]}
        return {name: (jobs[name].get("status") or {}).get("message", "") for name in names if not runs(jobs[name])}

    def unusable() -> set[str]:
        found = kube.request("GET", QUEUES.path())[1]["items"]
        return {*specs} - {of["metadata"]["name"] for of in found if (of.get("status") or {}).get("state") == "Open"}

    def kept_out() -> list[str]:
        jobs = {job["metadata"]["name"]: job for job in kube.request("GET", TYJOBS)[1]["items"]}
        status = [jobs[f"in-{name}"].get("status") or {} for name in specs if name not in queues]
        return [of.get("message", "") for of in status]

    left = names
    try:
        eventually("all run", lambda: not waiting() and not unusable())
        left = []
    finally:
        if left:
            print(waiting(), unusable())
    # Nobody can submit to a Cohort, nor to its Queue.
    eventually("the others are kept out", lambda: all("spec.namespaces" in said for said in kept_out()))
    for name in names:
        for pod in pods_of(kube, name):
            container, environment = pod["spec"]["containers"][0], environment_of(pod)
            texts = [*container.get("command", ()), *container.get("args", ())]
            texts += [variable.get("value", "") for variable in container["env"]]
            assert not [text for text in texts if "$(TYJOB" in expanded(text, environment)], "a variable isn't set"
    pods = [pod for name in names for pod in pods_of(kube, name)]
    texts = [json.dumps([pod["spec"], pod["metadata"].get("annotations")]).replace("\\n", " ") for pod in pods]
    named = {of for text in texts for of in HOST.findall(text)}
    known = {(of["hostname"], of["subdomain"]) for pod in pods if "subdomain" in (of := pod["spec"])}
    assert {(host, job) for host, job in named if job in names} <= known, "a host that no pod has"
    kube.kubectl("delete", "tyj", "--all", "--wait=false")
    kube.kubectl("delete", "tyq", "--all", "--wait=false")


#: Shape, the template of the pods that end, their exit code, and how the job ends.
ENDS = [
    ("volcano.vc-mpi", "spec.tasks.0.template", 0, "Succeeded"),
    ("volcano.vc-pytorch", "spec.tasks.1.template", 0, "Succeeded"),
    ("volcano.vc-generated-", "spec.tasks.0.template", 1, "Failed"),
    ("kubeflow.pt-simple", "spec.pytorchReplicaSpecs.Master.template", 0, "Succeeded"),
    ("kubeflow.pt-alone", "spec.pytorchReplicaSpecs.Master.template", 1, "Failed"),
    ("kubeflow.tf-ps", "spec.tfReplicaSpecs.Worker.template", 0, "Succeeded"),
    ("kubeflow.mpi-pi", "spec.mpiReplicaSpecs.Launcher.template", 0, "Succeeded"),
    ("ray.rj-sample", "spec.rayClusterSpec.headGroupSpec.template", 0, "Succeeded"),
    ("ray.rj-sample", "spec.rayClusterSpec.headGroupSpec.template", 1, "Failed"),
    ("jobset.js-driver", "spec.replicatedJobs.0.template.spec.template", 0, "Succeeded"),
    ("jobset.js-pytorch", "spec.replicatedJobs.0.template.spec.template", 1, "Failed"),
    ("job.job-pi", "spec.template", 0, "Succeeded"),
    ("job.job-indexed", "spec.template", 0, "Succeeded"),
]


def test_jobs_end_as_the_policies_of_their_sources_say(kube: KubeServer, tmp_path: Path) -> None:
    ends = {}
    for number, (shape, path, code, stage) in enumerate(ENDS):
        file, _, name = shape.partition(".")
        manifests = yaml.safe_load_all((REPOSITORY / "tests" / "convert" / f"{file}.yaml").read_text())
        value = next(of for of in manifests if name in of["metadata"].values())
        value["metadata"] = {"name": f"end-{number}"}
        template = value
        for step in path.split("."):
            template = template[int(step) if step.isdecimal() else step]
        # A pod that ends before the others are ready would end a job that never ran.
        notes = {f"{PREFIX}run-seconds": "2", f"{PREFIX}exit-code": str(code)}
        template["metadata"] = {"annotations": notes}
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(value))
        ends[f"end-{number}"] = stage
    result = arranger("convert", str(tmp_path), "--to", str(made := tmp_path / "made"))
    assert result.returncode == 0, result.stderr
    kube.kubectl("apply", "-f", str(made))

    def found() -> dict[str, str]:
        jobs = {job["metadata"]["name"]: job.get("status") or {} for job in kube.request("GET", TYJOBS)[1]["items"]}
        return {name: f"{jobs[name].get('stage')} {jobs[name].get('message')}" for name in ends}

    try:
        eventually("all end", lambda: all(found()[name].startswith(stage) for name, stage in ends.items()))
    except AssertionError:
        print({name: of for name, of in found().items() if not of.startswith(ends[name])})
        raise
    kube.kubectl("delete", "tyj", "--all", "--wait=false")
