"""The oldest Kubernetes that Arranger works on, and one between it and the usual one: real API servers of both, or of
the one that KUBERNETES_VERSION names.

Everything else is tested on the usual one. Here is what may differ between releases: whether the definitions and the
manifests are taken, what kubectl says about wrong fields, and the requests that each role makes in a job's life.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from arranger.kube.crd import older_definitions
from arranger.sandbox.nodes import NodeTemplate
from tests.build_servers import OLDER_KUBERNETES, release
from tests.conftest import _required
from tests.e2e.both_clusters import Cluster
from tests.e2e.collector import garbage_collector
from tests.e2e.harness import (
    apply,
    await_stage,
    eventually,
    finish_jobs,
    fleet,
    job,
    kubelets,
    pod_template,
    pods_of,
    status_of,
    verified,
)
from tests.older_definitions import FOLDER, patch_of, patched
from tests.servers import REPOSITORY, documents, kubernetes_under_test, real_kube, real_redis

WAIT = "--timeout=120s"


@pytest.fixture(scope="module", params=[of] if (of := kubernetes_under_test("")) else OLDER_KUBERNETES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server of this release with a node, and one process with all roles."""
    folder = tmp_path_factory.mktemp("version")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_required())
        kube = stack.enter_context(real_kube(version=request.param))
        assert kube.request("GET", "/version")[1]["gitVersion"] == f"v{request.param}"
        kube.kubectl("apply", "-k", str(manifests(folder, request.param)))
        kube.await_definitions()
        stack.enter_context(garbage_collector(kube))
        redis = stack.enter_context(real_redis())
        running = stack.enter_context(kubelets(kube, NodeTemplate("node-1", cpu="8")))
        workers = stack.enter_context(fleet(redis_url=redis.url, kube=kube, folder=folder))
        workers.start()
        yield Cluster(kube, running, redis, workers)


def manifests(folder: Path, version: str) -> Path:
    """A kustomization for a Kubernetes, as docs/operations.md says."""
    made = folder / "kustomization"
    made.mkdir()
    deploy = REPOSITORY / "deploy"
    parts = {"resources": [deploy], "components": [deploy / "older-kubernetes"] if release(version) < (1, 36) else []}
    written = {name: [os.path.relpath(path, made) for path in paths] for name, paths in parts.items()}
    (made / "kustomization.yaml").write_text(yaml.safe_dump({"kind": "Kustomization", **written}))
    return made


def test_both_ways_to_get_the_older_definitions_give_the_same(cluster: Cluster, tmp_path: Path) -> None:
    built = documents(cluster.kube.kubectl("kustomize", str(manifests(tmp_path, OLDER_KUBERNETES[0]))).stdout)
    printed = documents(older_definitions())
    for definition in printed:
        (same,) = [each for each in built if each["metadata"]["name"] == definition["metadata"]["name"]]
        assert same["spec"] == definition["spec"]
    assert [patch_of(file) for file in patched()] == [(FOLDER / file.name).read_text() for file in patched()]


def test_a_wrong_field_is_refused_with_its_name_and_the_allowed_values(cluster: Cluster) -> None:
    wrong = [
        ("cleanPodPolicy", "Some", 'supported values: "Running", "All", "None"'),
        ("restartLimit", -1, "equal to 0"),
    ]
    for field, value, words in wrong:
        body = str(job("wrong", **{field: value}))
        refused = cluster.kube.kubectl("apply", "-f", "-", stdin=body, check=False)
        assert refused.returncode and f"spec.{field}" in refused.stderr and words in refused.stderr, refused.stderr


def test_what_the_older_definition_does_not_check_arranger_checks(cluster: Cluster) -> None:
    if release(cluster.kube.request("GET", "/version")[1]["gitVersion"].removeprefix("v")) >= (1, 36):
        pytest.skip("the present definition checks it")
    wrong = job("wrong", workers=0)
    container = wrong["spec"]["leader"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    apply(cluster.kube, wrong)
    await_stage(cluster.kube, "Failed", "wrong")
    message = status_of(cluster.kube, "wrong")["message"]
    assert "containers[0].resources.requests" in message and "cpu must not be above its limit of 1, here 2" in message
    cluster.kube.kubectl("delete", "tyj", "wrong", WAIT)


def test_a_job_lives_through_edits_and_ends(cluster: Cluster) -> None:
    kube = cluster.kube
    apply(kube, job("ppo", workers=2))
    await_stage(kube, "Running", "ppo")
    kube.kubectl("scale", "tyj", "ppo", "--replicas=3")
    eventually("a third worker is ready", lambda: status_of(kube, "ppo").get("readyWorkers") == 3)
    kube.kubectl("patch", "tyj", "ppo", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    kube.kubectl("wait", "--for=condition=Suspended", "tyj/ppo", WAIT)
    eventually("its pods are gone", lambda: not pods_of(kube, "ppo"))
    kube.kubectl("patch", "tyj", "ppo", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    await_stage(kube, "Running", "ppo")
    finish_jobs(kube, "ppo")
    await_stage(kube, "Succeeded", "ppo")
    kube.kubectl("delete", "tyj", "ppo", WAIT)
    assert verified(cluster.redis_url)


def test_pods_of_others_are_bound(cluster: Cluster) -> None:
    group = {"pod-group.scheduling.sigs.k8s.io/name": "train", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    spec = pod_template()["spec"] | {"schedulerName": "arranger"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": of},
            "spec": spec,
        }
        for name, of in (("alone", {}), ("first", group), ("second", group))
    ]
    apply(cluster.kube, *pods)
    cluster.kube.kubectl("wait", "--for=condition=Ready", "pod/alone", "pod/first", "pod/second", WAIT)
    cluster.kube.kubectl("delete", "pods", "--all", WAIT)
