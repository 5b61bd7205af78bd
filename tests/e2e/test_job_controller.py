"""Jobs of kube-controller-manager's own Job controller on a real API server, mixed with TYJobs and in every kind of
group. The controller makes Kubernetes' own PodGroups for Indexed Jobs, which needs two feature gates in 1.36."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import group_uid
from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.e2e.harness import apply, arranger, eventually, fleet, job, kubelets, pod_template, stages
from tests.e2e.test_every_pod import WAIT
from tests.pod_groups import CUSTOM, definition, naming, pod_group
from tests.servers import REPOSITORY, Daemon, RealKube, job_controller_binary, real_kube, real_redis

GATES = "--feature-gates=GenericWorkload=true,WorkloadWithJob=true"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NATIVE_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
POD_LIST = "/api/v1/namespaces/default/pods"
RUN_S = 0.2
#: Jobs of each sort; those in groups are as many for each kind of PodGroup made by hand.
INDEXED, PLAIN, IN_GROUPS, TYJOBS = 20, 14, 8, 10


class Running(NamedTuple):
    """An API server with the Job controller, and the log of the process that places its pods."""

    kube: RealKube
    redis_url: str


@contextlib.contextmanager
def job_controller(kube: RealKube) -> Iterator[Daemon]:
    """The Job controller of kube-controller-manager."""
    argv = [str(job_controller_binary()), str(kube.kubeconfig)]
    # Jobs wait for the controller, so nothing need wait for it here.
    daemon = Daemon("job-controller", argv, folder=kube.home, ready=lambda: True)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop(kill=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A cluster of four nodes, on which a third of the Jobs has room at a time, with all kinds of PodGroups."""
    nodes = [NodeTemplate(f"node-{number}", cpu="12", memory="64Gi") for number in range(4)]
    with _required(), contextlib.ExitStack() as stack:
        job_controller_binary()
        kube = stack.enter_context(real_kube(GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"))
        kube.install_crd()
        apply(kube, *map(definition, CUSTOM))
        for of in CUSTOM.values():
            kube.kubectl("wait", "--for=condition=Established", f"crd/{of.plural}.{of.group}", *WAIT)
        redis = stack.enter_context(real_redis())
        stack.enter_context(job_controller(kube))
        stack.enter_context(kubelets(kube, *nodes, stop_s=0.2))
        folder = tmp_path_factory.mktemp("jobs")
        stack.enter_context(fleet(redis_url=redis.url, kube=kube, folder=folder)).start()
        yield Running(kube, redis.url)


def batch_job(name: str, pods: int, *, at_once: int | None = None, **spec: Any) -> dict[str, Any]:
    """A Job of so many pods."""
    template = pod_template(run_s=RUN_S)
    template["spec"] |= {"schedulerName": "arranger", "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"parallelism": at_once or pods, "completions": pods, "template": template} | spec,
    }


def in_group(name: str, kind: GroupKind) -> list[dict[str, Any]]:
    """A Job of three pods that name a PodGroup, and the PodGroup, which needs all three."""
    made = batch_job(name, 3)
    naming(made["spec"]["template"], name, kind)
    made["spec"]["template"]["metadata"]["annotations"] |= pod_template(run_s=RUN_S)["metadata"]["annotations"]
    return [pod_group(name, kind, 3), made]


def complete(kube: RealKube) -> dict[str, str]:
    """Job → how it ended, `Complete` or `Failed`, of those that have ended."""
    ends = {}
    for found in kube.request("GET", JOBS)[1]["items"]:
        for condition in found["status"].get("conditions") or ():
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                ends[found["metadata"]["name"]] = condition["type"]
    return ends


def first_placed(running: Running) -> dict[str, int]:
    """UID of a group → how many of its pods the first decision on it gave nodes."""
    told = arranger("events", "--kind", "Placed", "-o", "json", "--log", running.redis_url)
    assert told.returncode == 0, told.stderr
    found: dict[str, int] = {}
    for line in map(json.loads, told.stdout.splitlines()):
        if line["verdict"] == "accepted":
            runs = [of for node in line["event"]["pods"] for of in node["indices"]]
            found.setdefault(line["event"]["job_uid"], sum(last - first + 1 for first, last in runs))
    return found


def test_fifty_jobs_and_tyjobs_run_to_their_end(running: Running) -> None:
    kube = running.kube
    mixed: list[dict[str, Any]] = []
    mixed += [batch_job(f"indexed-{n}", 3, completionMode="Indexed") for n in range(INDEXED)]
    mixed += [batch_job(f"plain-{n}", 4, at_once=2) for n in range(PLAIN)]
    for kind in CUSTOM:
        for n in range(IN_GROUPS):
            mixed += in_group(f"{kind.name.lower()}-{n}", kind)
    mixed += [job(f"tyjob-{n}", workers=2, run_s=RUN_S) for n in range(TYJOBS)]
    apply(kube, *mixed)
    jobs = {of["metadata"]["name"] for of in mixed if of["kind"] == "Job"}
    assert len(jobs) == 50
    eventually("all Jobs have ended", lambda: complete(kube).keys() >= jobs, every_s=0.5)
    assert set(complete(kube).values()) == {"Complete"}
    eventually("all TYJobs have succeeded", lambda: Counter(stages(kube).values()) == {"Succeeded": TYJOBS})
    made = {of["metadata"]["name"]: of for of in kube.request("GET", NATIVE_GROUPS)[1]["items"]}
    owners = {of["metadata"]["ownerReferences"][0]["name"] for of in made.values()}
    assert owners == {f"indexed-{n}" for n in range(INDEXED)}, "the controller makes one for each Indexed Job"
    assert {of["spec"]["schedulingPolicy"]["gang"]["minCount"] for of in made.values()} == {3}
    pods = kube.request("GET", POD_LIST)[1]["items"]
    named = Counter(of["spec"].get("schedulingGroup", {}).get("podGroupName") for of in pods)
    assert {named[name] for name in made} == {3}
    groups = [(name, GroupKind.NATIVE) for name in made]
    groups += [(f"{kind.name.lower()}-{n}", kind) for kind in CUSTOM for n in range(IN_GROUPS)]
    placed = first_placed(running)
    assert {placed[group_uid("default", name, kind)] for name, kind in groups} == {3}, "each got its nodes whole"


def test_the_example_of_labels_runs_whole(running: Running) -> None:
    kube = running.kube
    kube.kubectl("apply", "-f", str(REPOSITORY / "examples" / "pods" / "parameter-servers.yaml"))
    names = {"mnist-ps", "mnist-worker"}
    eventually("both Jobs have ended", lambda: complete(kube).keys() >= names)
    assert {complete(kube)[name] for name in names} == {"Complete"}
    assert first_placed(running)[group_uid("default", "mnist", GroupKind.LABELS)] == 6
