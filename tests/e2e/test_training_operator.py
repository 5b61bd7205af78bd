"""The demo of the article on Coscheduling with the real training-operator: of two TFJobs only one fits as a whole. By
kube-scheduler alone each may get a part of the nodes, and both wait for ever. The same with PyTorchJobs and MPIJobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import group_uid
from tests.build_servers import TRAINING_OPERATOR
from tests.e2e.harness import PODS, apply, eventually
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
)
from tests.operators import training_operator
from tests.pod_groups import CUSTOM
from tests.servers import MERGE, RealKube

OF_JOB = "training.kubeflow.org/job-name"


class Kind(NamedTuple):
    """A kind of job: its name, the fields of its spec, the container that the operator looks for, the role beside the
    workers, and the end of the name of the pod whose end is that of the job."""

    kind: str
    replicas: str
    container: str
    role: str
    main_pod: str

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def path(self) -> str:
        return f"/apis/kubeflow.org/v1/namespaces/default/{self.plural}"


TF = Kind("TFJob", "tfReplicaSpecs", "tensorflow", "PS", "worker-0")
PYTORCH = Kind("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master", "master-0")
MPI = Kind("MPIJob", "mpiReplicaSpecs", "mpi", "Launcher", "launcher")
MODES = {
    "labels": Mode("", "arranger", "arranger", GroupKind.LABELS),
    "coscheduling": Mode("arranger", "", "arranger", GroupKind.COSCHEDULING),
    "coscheduling-named": Mode("scheduler-plugins", "arranger", "arranger", GroupKind.COSCHEDULING),
    "coscheduling-unnamed": Mode("scheduler-plugins", "", "arranger,scheduler-plugins", GroupKind.COSCHEDULING),
    "volcano-named": Mode("volcano", "arranger", "arranger", GroupKind.VOLCANO),
    "volcano-unnamed": Mode("volcano", "", "arranger,volcano", GroupKind.VOLCANO),
}
#: A TFJob in each mode. Its article needs no PodGroup, and the others are made by the same code of the operator.
CASES = [(TF, mode) for mode in MODES]
CASES += [(kind, mode) for kind in (PYTORCH, MPI) for mode in ("coscheduling", "volcano-named")]


@pytest.fixture(scope="module")
def server() -> Iterator[RealKube]:
    with cluster_with(TRAINING_OPERATOR) as kube:
        yield kube


@pytest.fixture
def kube(server: RealKube) -> Iterator[RealKube]:
    yield server
    clear(server, ",".join(of.plural for of in (TF, PYTORCH, MPI)), OF_JOB)


def job(kind: Kind, name: str, mode: Mode) -> dict[str, Any]:
    """A job like the TFJob of the article: one pod without a GPU, and workers."""
    roles = {kind.role: (1, 0), "Worker": (WORKERS, 1)}
    replicas = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": template(name, mode, container=kind.container, gpus=gpus),
        }
        for role, (count, gpus) in roles.items()
    }
    spec = {"runPolicy": {"cleanPodPolicy": "All"}, kind.replicas: replicas}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind.kind, "metadata": metadata, "spec": spec}


def condition(kube: RealKube, kind: Kind, name: str) -> str:
    """What training-operator says of a job: the last of its conditions that hold."""
    conditions = kube.request("GET", f"{kind.path}/{name}")[1].get("status", {}).get("conditions") or ()
    return next((of["type"] for of in reversed(conditions) if of["status"] == "True"), "")


def end(kube: RealKube, kind: Kind, name: str, label: str) -> None:
    """Let the pod succeed whose end is that of the job, and wait until the operator has cleaned up."""
    status = {"name": kind.container, "image": "trainer:1", "imageID": "", "ready": False, "restartCount": 0}
    status |= {"state": {"terminated": {"exitCode": 0}}}
    body = {"status": {"phase": "Succeeded", "containerStatuses": [status]}}
    kube.request("PATCH", f"{PODS}/{name}-{kind.main_pod}/status", body, content_type=MERGE)
    eventually(f"{name} has succeeded", lambda: condition(kube, kind, name) == "Succeeded")
    eventually(f"the pods of {name} are gone", lambda: not pods_with(kube, label))


@pytest.mark.parametrize(("kind", "row"), CASES, ids=[f"{kind.kind}-{row}" for kind, row in CASES])
def test_of_two_jobs_that_dont_fit_together_one_runs_whole_and_then_the_other(
    kube: RealKube, kind: Kind, row: str, tmp_path: Path
) -> None:
    mode = MODES[row]
    # Of an MPIJob that was deleted, a garbage collector would delete more than pods: no other job has its name.
    labels = {name: f"{OF_JOB}={name}" for name in (f"smoke-{row}-1", f"smoke-{row}-2")}
    with in_mode(kube, mode, training_operator, tmp_path) as redis_url:
        apply(kube, *[job(kind, name, mode) for name in labels])
        first, second = first_of(kube, labels)
        eventually("the operator says so", lambda: condition(kube, kind, first) == "Running")
        assert condition(kube, kind, second) == "Created"
        end(kube, kind, first, labels[first])
        eventually("then the other runs whole", lambda: runs_whole(kube, labels[second]))
        end(kube, kind, second, labels[second])
        placed = first_placed(Running(kube, redis_url))
        of_both = {name: placed[group_uid("default", name, mode.groups)] for name in labels}
        assert of_both == dict.fromkeys(labels, PODS_OF_ALL), "each got all its nodes by one decision"
        what = "the operator has deleted the PodGroups of jobs that have ended"
        eventually(what, lambda: not any(kube.request("GET", of.path("default"))[1]["items"] for of in CUSTOM.values()))
