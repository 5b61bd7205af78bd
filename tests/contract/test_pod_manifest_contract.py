"""A real API server takes the pods that are made from a TYJob, and what it makes of them reads as it was planned."""

from typing import Any

import pytest

from arranger.kube.cluster import CONFIG_MAPS, PODS, SERVICES, TYJOBS
from arranger.kube.manifests import pod_manifest
from arranger.kube.rendezvous import job_service, leader_service, members_map
from arranger.kube.translate import job_seen, pod_seen, status_digest
from arranger.model.allocations import encode_allocations
from arranger.model.faults import FaultKind
from arranger.model.job import PlacedPods
from arranger.model.validation import refused_later
from tests.servers import MERGE, RealKube
from tests.unit.tyjob_table import LEADER, NODE_TERMS, template, tyjob_with

LIMITED = {"requests": {"cpu": "1", "memory": "1.5Gi"}, "limits": {"nvidia.com/gpu": 2, "memory": "2Gi", "cpu": 2}}

TEMPLATES: dict[str, dict[str, Any]] = {
    "one container": {},
    "limits that stand in for requests": {f"{LEADER}/containers/0/resources": LIMITED},
    "a limit alone": {f"{LEADER}/containers/0/resources": {"limits": {"cpu": "1500m", "ephemeral-storage": "1e9"}}},
    "a sidecar and an init container": {
        f"{LEADER}/initContainers": [
            {"name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m"}}},
            {"name": "init", "image": "i", "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "9Gi"}}},
        ]
    },
    "pod-level resources": {f"{LEADER}/resources": {"requests": {"cpu": "7"}, "limits": {"memory": "8Gi"}}},
    "a shared volume": {"spec/volumes": [{"name": "data", "emptyDir": {}}]},
    "variables that refer to Arranger's": {
        f"{LEADER}/containers/0/env": [{"name": "URL", "value": "$(TYJOB_NAME)"}, {"name": "TYJOB_ROLE", "value": "x"}]
    },
    "a node chosen by affinity": {
        NODE_TERMS: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]},
        f"{LEADER}/tolerations": [{"operator": "Exists"}],
    },
}


@pytest.mark.parametrize("changes", TEMPLATES.values(), ids=list(TEMPLATES))
def test_pods_are_accepted_and_hold_what_was_planned(kube_server: RealKube, changes: dict[str, Any]) -> None:
    namespace = kube_server.fresh_namespace()
    _, job = kube_server.request("POST", TYJOBS.path(namespace), tyjob_with(changes))
    spec = job_seen(job, 1, with_status=False).spec
    assert spec is not None
    for group, index, attempt, address in ((0, 0, 0, None), (1, 1, 2, "10.0.0.1")):
        manifest = pod_manifest(job, group=group, index=index, attempt=attempt, node="n1", leader_address=address)
        _, created = kube_server.request("POST", PODS.path(namespace), manifest)
        seen = pod_seen(created, 1)
        assert seen.requests == spec.groups[group].shape.requests
        assert seen.owner is not None
        assert seen.owner.job_uid == job["metadata"]["uid"]
        assert (seen.owner.group_name, seen.owner.index) == (spec.groups[group].name, index)
        assert (seen.owner.attempt, seen.owner.leader) == (attempt, group == 0)
        assert (seen.node, seen.phase) == ("n1", "Pending")


_HALF = 128 * 1024
#: Annotations, labels and the node selector of a leader, in part beyond what a pod may have.
OF_PODS: dict[str, dict[str, Any]] = {
    "annotations of 256 KiB": {"annotations": {"a": "x" * (_HALF - 1), "b": "y" * (_HALF - 1)}},
    "annotations above 256 KiB": {"annotations": {"a": "x" * (_HALF - 1), "b": "y" * _HALF}},
    "annotations of 256 Ki characters": {"annotations": {"a": "ä" * _HALF}},
    "names of annotations": {"annotations": {"Example.ORG/Some-Name_1.2": "", "a" * 63: "", "x.y/" + "b" * 63: ""}},
    "an annotation's name with a space": {"annotations": {"a b": ""}},
    "an annotation's name of 64": {"annotations": {"a" * 64: ""}},
    "an annotation without a name": {"annotations": {"x/": ""}},
    "an annotation with two slashes": {"annotations": {"a/b/c": ""}},
    "a label's name": {"labels": {"example.org/Some-Name_1.2": "v", "-".join("ab"): ""}},
    "a label's prefix in capitals": {"labels": {"Example.org/a": "v"}},
    "a label's prefix of 254": {"labels": {"p." * 126 + "pp" + "/a": "v"}},
    "a label's prefix of 253": {"labels": {"p." * 126 + "p" + "/a": "v"}},
    "a label's name that ends with a dot": {"labels": {"a.": "v"}},
    "a label's name with a line break": {"labels": {"a\n": "v"}},
    "a node selector": {"selector": {"topology.kubernetes.io/zone": "a", "b": ""}},
    "a node selector's value with a space": {"selector": {"zone": "a b"}},
    "a node selector's value of 64": {"selector": {"zone": "a" * 64}},
    "a node selector's name with a star": {"selector": {"*": "a"}},
}


@pytest.mark.parametrize("given", OF_PODS.values(), ids=list(OF_PODS))
def test_what_the_api_server_refuses_in_a_pod_is_a_fault_of_the_tyjob(
    kube_server: RealKube, given: dict[str, Any]
) -> None:
    namespace = kube_server.fresh_namespace()
    names = {"annotations": "metadata/annotations", "labels": "metadata/labels", "selector": "spec/nodeSelector"}
    _, job = kube_server.request("POST", TYJOBS.path(namespace), tyjob_with({}))
    for name, value in given.items():
        part, field = names[name].split("/")
        job["spec"]["leader"]["template"].setdefault(part, {})[field] = value
    manifest = pod_manifest(job, group=0, index=0, attempt=0, node="n1", leader_address=None)
    code, answer = kube_server.request("POST", PODS.path(namespace), manifest, check=False)
    faults = refused_later(job)
    assert code == (422 if faults else 201), answer.get("message")
    assert all(fault.field.rpartition(".")[2] in answer["message"] for fault in faults)


@pytest.mark.parametrize(("size", "fits"), [(1_000, True), (43_000, True), (46_800, False)])
def test_a_pod_that_is_too_large_with_arrangers_variables_is_a_fault_of_the_tyjob(
    kube_server: RealKube, size: int, fits: bool
) -> None:
    """Each of 64 containers has the variable TYJOB_SETS, which grows with the worker sets."""
    namespace = kube_server.fresh_namespace()
    sets = [{"name": f"workers-{number}", "counts": 2, "template": template(cpu=1)} for number in range(15)]
    there = [{"name": f"c{number}", "image": "i", "args": ["x" * size]} for number in range(32)]
    before = [{"name": f"i{number}", "image": "i"} for number in range(32)]
    given = tyjob_with({"spec/workerSets": sets, f"{LEADER}/containers": there, f"{LEADER}/initContainers": before})
    _, job = kube_server.request("POST", TYJOBS.path(namespace), given)
    manifest = pod_manifest(job, group=0, index=0, attempt=0, node="n1", leader_address=None)
    code, answer = kube_server.request("POST", PODS.path(namespace), manifest, check=False)
    assert (code == 201) == fits, answer.get("message")
    faults = [(fault.kind, fault.field) for fault in refused_later(job)]
    assert faults == ([] if fits else [(FaultKind.POD_TOO_LARGE, "spec.leader.template")])
    if not fits:
        assert "too large" in answer["message"]


def test_a_leaders_service_is_taken_as_it_is_without_an_address_or_ports(kube_server: RealKube) -> None:
    namespace = kube_server.fresh_namespace()
    _, job = kube_server.request("POST", TYJOBS.path(namespace), tyjob_with({"spec/leaderService": True}))
    service = leader_service(job["metadata"], "learner")
    _, created = kube_server.request("POST", f"{SERVICES.path(namespace)}?fieldValidation=Strict", service)
    assert created["spec"]["clusterIPs"] == ["None"]
    assert "ports" not in created["spec"]
    code, answer = kube_server.request("POST", SERVICES.path(namespace), service, check=False)
    assert (code, answer["reason"]) == (409, "AlreadyExists")


def test_a_job_of_the_longest_names_has_its_service_host_names_and_members_file(kube_server: RealKube) -> None:
    namespace = kube_server.fresh_namespace()
    sets = [{"name": "w" * 24, "counts": 9999, "template": template(cpu=1)}]
    sets[0]["rendezvous"] = {"scope": "Job", "membersFile": True}
    _, job = kube_server.request(
        "POST",
        TYJOBS.path(namespace),
        tyjob_with({"metadata/name": "j" * 26, "spec/leader/name": "l" * 24, "spec/workerSets": sets}),
    )
    strict = "fieldValidation=Strict"
    for group, index in ((0, 0), (1, 9998)):
        manifest = pod_manifest(job, group=group, index=index, attempt=9, node="n1", leader_address="10.0.0.1")
        _, created = kube_server.request("POST", f"{PODS.path(namespace)}?{strict}", manifest)
        assert created["spec"]["subdomain"] == "j" * 26
    assert created["spec"]["hostname"] == f"{'w' * 24}-9998"
    kube_server.request("POST", f"{SERVICES.path(namespace)}?{strict}", job_service(job["metadata"]))
    kube_server.request("POST", f"{CONFIG_MAPS.path(namespace)}?{strict}", members_map(job["metadata"], "{}"))


def test_the_status_of_a_job_of_5000_workers_on_as_many_nodes_is_kept(kube_server: RealKube) -> None:
    namespace = kube_server.fresh_namespace()
    big = tyjob_with({"spec/workerSets": [{"name": "actors", "counts": 5000, "template": template(cpu=1)}]})
    kube_server.request("POST", TYJOBS.path(namespace), big)
    placed = tuple(PlacedPods(f"ip-10-0-{n:05}.eu-central-1.compute.internal", 1, ((n, n),)) for n in range(5000))
    status = {"stage": "Running", "allocations": encode_allocations(placed, ("learner", "actors"))}
    _, job = kube_server.request(
        "PATCH",
        TYJOBS.path(namespace, "job", "status"),
        {"status": status},
        content_type=MERGE,
    )
    seen = job_seen(job, 1, with_status=True)
    assert seen.status is not None
    assert seen.status.allocations == placed
    assert seen.status_digest == status_digest(status)


def test_kubectl_shows_a_job_in_the_columns_of_its_definition(kube_server: RealKube) -> None:
    namespace = kube_server.fresh_namespace()
    kube_server.request("POST", TYJOBS.path(namespace), tyjob_with({}))
    status: dict[str, Any] = {
        "stage": "Running",
        "scheduleState": "ScheduledPartly",
        "ready": "3/8",
        "leaderAddress": "10.0.0.7",
    }
    status |= {"gpus": 16, "queuePosition": 4, "priority": 5}
    kube_server.request(
        "PATCH",
        TYJOBS.path(namespace, "job", "status"),
        {"status": {**status, "restarts": 2, "message": "5 workers wait"}},
        content_type=MERGE,
    )
    narrow = kube_server.kubectl("get", "tyj", "-n", namespace).stdout.splitlines()
    assert narrow[0].split() == ["NAME", "STAGE", "READY", "GPUS", "POSITION", "STARTED", "AGE"]
    assert narrow[1].split()[:5] == ["job", "Running", "3/8", "16", "4"]
    wide = kube_server.kubectl("get", "tyj", "-n", namespace, "-o", "wide").stdout.splitlines()
    columns = ["SCHEDULE", "PRIORITY", "LEADER", "ADDRESS", "RESTARTS", "EXPECTED", "START", "MESSAGE"]
    assert wide[0].split()[7:] == columns
    assert wide[1].split()[-7:] == ["ScheduledPartly", "5", "10.0.0.7", "2", "5", "workers", "wait"]
