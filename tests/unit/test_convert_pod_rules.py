# ruff: noqa: E501  # a case a line
"""Rules about other pods that select by labels of the source's operator keep their meaning in a TYJob."""

import copy
import json
from typing import Any

import pytest

from arranger.convert import Conversion, NoteKind, converted, documents
from arranger.model.names import known_labels
from arranger.model.selectors import selector_of, selects

Json = dict[str, Any]
KUBEFLOW, JOBSET, LWS = "training.kubeflow.org", "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
HOST = "kubernetes.io/hostname"
POD: Json = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def source(kind: str, pod: Json) -> Json:
    """An object named `x` of this kind; the pods of one of its parts are of this template."""
    spec: Json = {
        "PyTorchJob": {"pytorchReplicaSpecs": {"Master": {"template": POD}, "Worker": {"replicas": 3, "template": pod}}},
        "TFJob": {"tfReplicaSpecs": {"PS": {"template": POD}, "Worker": {"replicas": 3, "template": pod}}},
        "MPIJob": {"mpiReplicaSpecs": {"Launcher": {"template": POD}, "Worker": {"replicas": 3, "template": pod}}},
        "JobSet": {
            "replicatedJobs": [
                {"name": "first", "replicas": 1, "template": {"spec": {"template": POD}}},
                {"name": "w", "replicas": 1, "dependsOn": [{"name": "first", "status": "Complete"}], "template": {"spec": {"parallelism": 3, "completions": 3, "template": pod}}},
            ]
        },
        "LeaderWorkerSet": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": pod}},
        "VolcanoJob": {"minAvailable": 4, "tasks": [{"name": "a", "replicas": 1, "template": POD}, {"name": "w", "replicas": 3, "template": pod}]},
        "RayCluster": {"headGroupSpec": {"rayStartParams": {}, "template": POD}, "workerGroupSpecs": [{"groupName": "Big_W", "replicas": 3, "rayStartParams": {}, "template": pod}]},
        "Job": {"parallelism": 3, "completions": 3, "template": {"spec": {**pod["spec"], "restartPolicy": "Never"}}},
    }[kind]  # fmt: skip
    version = {
        **dict.fromkeys(("PyTorchJob", "TFJob"), "kubeflow.org/v1"), "MPIJob": "kubeflow.org/v2beta1", "JobSet": "jobset.x-k8s.io/v1alpha2",
        "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "VolcanoJob": "batch.volcano.sh/v1alpha1", "RayCluster": "ray.io/v1", "Job": "batch/v1",
    }[kind]  # fmt: skip
    return copy.deepcopy(
        {"apiVersion": version, "kind": kind.removeprefix("Volcano"), "metadata": {"name": "x"}, "spec": spec}
    )


def conversion(kind: str, rule: Json, field: str = "anti") -> Conversion:
    """What comes of an object with this rule in the pods of its workers."""
    term = {"topologyKey": HOST, **rule}
    rules: Json = {
        "anti": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}},
        "preferred": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}},
        "spread": {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}]},
    }[field]  # fmt: skip
    (found,) = converted(documents("f.yaml", json.dumps(source(kind, {"spec": {**POD["spec"], **rules}})).encode()))
    assert isinstance(found, Conversion)
    assert not found.faults
    return found


def rule_of(found: Conversion) -> Json:
    """The one rule of the last worker set that has one."""
    templates = [of["template"]["spec"] for job in found.objects for of in job["spec"]["workerSets"]]
    rules: list[Json] = []
    for spec in templates:
        rules += spec.get("topologySpreadConstraints") or []
        for of_kind in (spec.get("affinity") or {}).values():
            rules += of_kind.get("requiredDuringSchedulingIgnoredDuringExecution") or []
            rules += [
                of["podAffinityTerm"] for of in of_kind.get("preferredDuringSchedulingIgnoredDuringExecution") or []
            ]
    return rules[-1]


def selected(found: Conversion, rule: Json) -> list[str]:
    """The parts of the TYJobs, as JOB/PART, whose pods the rule selects."""
    requirements = selector_of(rule["labelSelector"])
    parts = [(job["metadata"]["name"], of["name"], of is job["spec"].get("leader")) for job in found.objects for of in (*([job["spec"]["leader"]] if "leader" in job["spec"] else []), *job["spec"]["workerSets"])]  # fmt: skip
    return sorted(f"{job}/{part}" for job, part, leader in parts if selects(requirements, known_labels(job, part, leader=leader)))  # fmt: skip


KEPT: list[tuple[str, Json, list[str]]] = [
    ("PyTorchJob", {"matchLabels": {f"{KUBEFLOW}/job-name": "x"}}, ["x/master", "x/worker"]),
    ("PyTorchJob", {"matchLabels": {f"{KUBEFLOW}/replica-type": "worker"}}, ["x/worker"]),
    ("PyTorchJob", {"matchLabels": {f"{KUBEFLOW}/replica-type": "master", f"{KUBEFLOW}/job-name": "x"}}, ["x/master"]),
    ("PyTorchJob", {"matchLabels": {f"{KUBEFLOW}/job-role": "master"}}, ["x/master"]),
    ("PyTorchJob", {"matchLabels": {f"{KUBEFLOW}/operator-name": "pytorchjob-controller"}}, ["x/master", "x/worker"]),
    ("PyTorchJob", {"matchExpressions": [{"key": f"{KUBEFLOW}/replica-type", "operator": "NotIn", "values": ["master"]}]}, ["x/worker"]),
    ("PyTorchJob", {"matchExpressions": [{"key": f"{KUBEFLOW}/job-name", "operator": "Exists"}]}, ["x/master", "x/worker"]),
    ("PyTorchJob", {"matchExpressions": [{"key": f"{KUBEFLOW}/job-name", "operator": "DoesNotExist"}]}, []),
    ("PyTorchJob", {"matchExpressions": [{"key": f"{KUBEFLOW}/job-name", "operator": "In", "values": ["x", "other"]}]}, ["x/master", "x/worker"]),
    ("PyTorchJob", {"matchLabels": {"job-name": "x"}}, ["x/master", "x/worker"]),
    ("TFJob", {"matchLabels": {f"{KUBEFLOW}/job-name": "x", f"{KUBEFLOW}/replica-type": "ps"}}, ["x/ps"]),
    ("MPIJob", {"matchLabels": {f"{KUBEFLOW}/job-name": "x", f"{KUBEFLOW}/job-role": "worker"}}, ["x/worker"]),
    ("JobSet", {"matchLabels": {f"{JOBSET}/jobset-name": "x"}}, ["x-before-1/first", "x/w"]),
    ("JobSet", {"matchLabels": {f"{JOBSET}/replicatedjob-name": "w"}}, ["x/w"]),
    ("JobSet", {"matchLabels": {"batch.kubernetes.io/job-name": "x-w-0"}}, ["x/w"]),
    ("LeaderWorkerSet", {"matchLabels": {f"{LWS}/name": "x"}}, ["x-0/leader", "x-0/worker", "x-1/leader", "x-1/worker"]),
    ("LeaderWorkerSet", {"matchLabels": {f"{LWS}/name": "x", f"{LWS}/group-index": "1"}}, ["x-1/leader", "x-1/worker"]),
    ("LeaderWorkerSet", {"matchLabels": {f"{LWS}/worker-index": "0"}}, ["x-0/leader", "x-1/leader"]),
    ("VolcanoJob", {"matchLabels": {"volcano.sh/job-name": "x"}}, ["x/a", "x/w"]),
    ("VolcanoJob", {"matchLabels": {"volcano.sh/job-name": "x", "volcano.sh/job-namespace": "default", "volcano.sh/task-spec": "w"}}, ["x/w"]),
    ("RayCluster", {"matchLabels": {"ray.io/cluster": "x"}}, ["x/big-w", "x/head"]),
    ("RayCluster", {"matchLabels": {"ray.io/group": "Big_W"}}, ["x/big-w"]),
    ("RayCluster", {"matchLabels": {"ray.io/group": "headgroup"}}, ["x/head"]),
    ("RayCluster", {"matchLabels": {"ray.io/node-type": "worker", "ray.io/is-ray-node": "yes"}}, ["x/big-w"]),
    ("RayCluster", {"matchLabels": {"ray.io/identifier": "x-head"}}, ["x/head"]),
    ("RayCluster", {"matchLabels": {"app.kubernetes.io/name": "kuberay"}}, ["x/big-w", "x/head"]),
    ("Job", {"matchLabels": {"job-name": "x"}}, ["x/worker"]),
    ("Job", {"matchExpressions": [{"key": "batch.kubernetes.io/controller-uid", "operator": "Exists"}]}, ["x/worker"]),
]  # fmt: skip


@pytest.mark.parametrize("field", ["anti", "preferred", "spread"])
@pytest.mark.parametrize(("kind", "selector", "parts"), KEPT)
def test_a_rule_selects_the_same_pods_by_arrangers_labels(
    kind: str, selector: Json, parts: list[str], field: str
) -> None:
    found = conversion(kind, {"labelSelector": selector}, field)
    assert selected(found, rule_of(found)) == parts
    said = [
        note for note in found.notes if "abelSelector" in note.path and "which is this object alone" not in note.text
    ]
    given = len(selector.get("matchLabels") or ()) + len(selector.get("matchExpressions") or ())
    parts_with_it = 2 if kind == "LeaderWorkerSet" else 1
    assert given <= len(said) <= given * parts_with_it
    assert {note.kind for note in said} == {NoteKind.CHANGED}
    assert all("selects by" in note.text and "arranger.dev/" in note.text for note in said)


SAME_AS_ITSELF = [
    ("Job", "controller-uid", {"arranger.dev/job": "x"}),
    ("PyTorchJob", f"{KUBEFLOW}/replica-type", {"arranger.dev/worker-set": "worker"}),
    ("LeaderWorkerSet", f"{LWS}/group-key", {"arranger.dev/job": "x-1"}),
    ("VolcanoJob", "volcano.sh/task-spec", {"arranger.dev/worker-set": "w"}),
]


@pytest.mark.parametrize(("kind", "key", "labels"), SAME_AS_ITSELF)
def test_keys_that_must_match_the_pods_own_are_those_of_arranger(kind: str, key: str, labels: dict[str, str]) -> None:
    rule = rule_of(conversion(kind, {"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": [key]}))
    assert rule["labelSelector"] == {"matchLabels": {"app": "a", **labels}}
    assert "matchLabelKeys" not in rule
    ((name, value),) = labels.items()
    rule = rule_of(conversion(kind, {"labelSelector": {}, "mismatchLabelKeys": [key, "app"]}))
    assert rule["labelSelector"] == {"matchExpressions": [{"key": name, "operator": "NotIn", "values": [value]}]}
    assert rule["mismatchLabelKeys"] == ["app"]


LOST: list[tuple[str, Json, str]] = [
    ("PyTorchJob", {"matchLabels": {f"{KUBEFLOW}/replica-index": "0"}}, "selects none"),
    ("JobSet", {"matchExpressions": [{"key": f"{JOBSET}/job-key", "operator": "Exists"}]}, "selects none"),
    ("VolcanoJob", {"matchExpressions": [{"key": "volcano.sh/task-index", "operator": "NotIn", "values": ["0"]}]}, "leaves none out"),
    ("RayCluster", {"matchExpressions": [{"key": "ray.io/group", "operator": "In", "values": ["Big_W", "headgroup"]}]}, "selects none"),
    ("LeaderWorkerSet", {"matchLabels": {f"{LWS}/worker-index": "1"}}, "selects none"),
    ("Job", {"matchLabels": {"batch.kubernetes.io/job-completion-index": "0"}}, "selects none"),
    ("Job", {"matchLabels": {"kueue.x-k8s.io/podset": "main"}}, "selects none"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "selector", "words"), LOST)
def test_a_rule_by_a_label_for_which_nothing_stands_is_to_do(kind: str, selector: Json, words: str) -> None:
    found = conversion(kind, {"labelSelector": selector})
    assert rule_of(found)["labelSelector"] == selector
    notes = {
        (note.path.partition(".labelSelector")[0].rpartition(".")[2], note.kind)
        for note in found.notes
        if words in note.text
    }
    assert notes == {("requiredDuringSchedulingIgnoredDuringExecution[0]", NoteKind.TO_DO)}


def test_keys_for_which_nothing_stands_are_to_do() -> None:
    found = conversion(
        "Job", {"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["kueue.x-k8s.io/podset"]}
    )
    (note,) = [note for note in found.notes if note.path.endswith("matchLabelKeys[0]")]
    assert (note.kind, "has no effect" in note.text) == (NoteKind.TO_DO, True)


def test_rules_by_labels_of_the_template_stay_as_they_are() -> None:
    pod = copy.deepcopy(POD) | {"metadata": {"labels": {"app": "a", "app.kubernetes.io/name": "kuberay"}}}
    selector = {"matchLabels": {"app": "a", "app.kubernetes.io/name": "kuberay"}}
    pod["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": HOST, "labelSelector": selector}
    ]
    (found,) = converted(documents("f.yaml", json.dumps(source("RayCluster", pod)).encode()))
    assert isinstance(found, Conversion)
    assert rule_of(found)["labelSelector"] == selector
    assert not [note for note in found.notes if "abelSelector" in note.path]


@pytest.mark.parametrize(
    ("kind", "labels", "alone"),
    [
        ("PyTorchJob", {f"{KUBEFLOW}/replica-type": "worker"}, ["x"]),
        ("PyTorchJob", {f"{KUBEFLOW}/replica-type": "worker", f"{KUBEFLOW}/job-name": "other"}, None),
        (
            "PyTorchJob",
            {f"{KUBEFLOW}/replica-type": "worker", f"{KUBEFLOW}/operator-name": "pytorchjob-controller"},
            ["x"],
        ),
        ("PyTorchJob", {f"{KUBEFLOW}/job-name": "x"}, None),
        ("RayCluster", {"ray.io/node-type": "worker"}, ["x"]),
        ("LeaderWorkerSet", {f"{LWS}/worker-index": "0"}, ["x-0", "x-1"]),
        ("JobSet", {f"{JOBSET}/replicatedjob-name": "w"}, ["x-before-1", "x"]),
    ],
)
def test_a_part_without_the_name_of_its_job_is_one_of_this_object(
    kind: str, labels: Json, alone: list[str] | None
) -> None:
    """Another TYJob, of another kind in the source, has a worker set of that name too."""
    found = conversion(kind, {"labelSelector": {"matchLabels": labels}})
    requirements = selector_of(rule_of(found)["labelSelector"])
    others = [known_labels("else", part, leader=part == "leader") for part in ("worker", "leader", "w", "big-w")]
    assert not [of for of in others if selects(requirements, of)]
    notes = {note.text for note in found.notes if "which is this object alone" in note.text}
    assert len(notes) == int(alone is not None)
    for name in alone or ():
        assert name in next(iter(notes))


def test_a_part_of_all_jobs_but_its_own_stays_so() -> None:
    rule = {"labelSelector": {"matchLabels": {f"{KUBEFLOW}/replica-type": "worker"}}}
    found = conversion("PyTorchJob", rule | {"mismatchLabelKeys": [f"{KUBEFLOW}/job-name"]})
    requirements = selector_of(rule_of(found)["labelSelector"])
    assert not selects(requirements, known_labels("x", "worker", leader=False))
    assert selects(requirements, known_labels("else", "worker", leader=False))
