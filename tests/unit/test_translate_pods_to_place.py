"""What is observed of a pod that names Arranger as its scheduler, and of all others."""

from typing import Any

import pytest

from arranger.kube.translate import pod_seen
from arranger.model.pod import GroupAsked, PodToPlace, Toleration
from arranger.projections.state import State
from arranger.replay.reading.describe import describe
from tests.world import shape

#: 2026-11-20 00:00 UTC.
CREATED_MS = 1_795_132_800_000

_GROUP, _MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}


def pod(*, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    asked = {"schedulerName": "arranger", "containers": [CONTAINER], **spec}
    return {"metadata": {"name": "web", "namespace": "default", "uid": "u", **(metadata or {})}, "spec": asked}


def test_a_pod_that_names_arranger_says_all_that_its_node_depends_on() -> None:
    toleration = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    made = pod(
        metadata={
            "labels": {"app": "db", "arranger.dev/user": "ann"},
            "annotations": {"arranger.dev/queue": "fast"},
            "creationTimestamp": "2026-11-20T00:00:00Z",
        },
        nodeSelector={"pool": "b"},
        tolerations=[toleration],
        priority=7,
        preemptionPolicy="Never",
        schedulingGates=[{"name": "example.com/later"}],
        terminationGracePeriodSeconds=5,
        resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}],
    )
    of = shape(
        cpu=2, selector={"pool": "b"}, labels={"app": "db", "arranger.dev/user": "ann"},
        tolerations=[Toleration("a", "Exists", "", "NoSchedule")],
    )  # fmt: skip
    seen = pod_seen(made, 1, ("arranger",))
    assert seen.asks == PodToPlace(of, 7, ("example.com/later",), CREATED_MS, "fast", "ann", 5, False, claims=("gpu",))
    assert (
        describe(seen, State())
        == "Pending, to be placed with priority 7: 2 cpu; gated by example.com/later; with the resource claims gpu"
    )


def test_other_pods_ask_for_nothing() -> None:
    owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": "of-j", "controller": True}
    labels = {
        "arranger.dev/job": "j",
        "arranger.dev/role": "leader",
        "arranger.dev/index": "0",
        "arranger.dev/attempt": "0",
    }
    ours = pod(metadata={"name": "j-learner-0", "ownerReferences": [owner], "labels": labels})
    assert pod_seen(ours, 1, ("arranger",)).owner is not None and pod_seen(ours, 1, ("arranger",)).asks is None
    assert pod_seen(pod(schedulerName="default-scheduler"), 1, ("arranger",)).asks is None
    assert pod_seen(pod(schedulerName=""), 1, ()).asks is None
    assert pod_seen(pod(), 1).asks is None


def test_another_name_may_be_arrangers() -> None:
    assert pod_seen(pod(schedulerName="batch"), 1, ("batch",)).asks is not None


@pytest.mark.parametrize(
    ("least", "group"),
    [
        ("3", GroupAsked("train", 3)),
        *((bad, None) for bad in ("", "0", "-1", "three", "1.5", "9" * 20)),
    ],
)
def test_two_labels_make_a_group_and_a_wrong_minimum_makes_none(least: str, group: GroupAsked | None) -> None:
    labels = {_GROUP: "train", _MINIMUM: least}
    asks = pod_seen(pod(metadata={"labels": labels}), 1, ("arranger",)).asks
    assert asks is not None and asks.group == group


def test_a_minimum_without_a_name_makes_no_group() -> None:
    asks = pod_seen(pod(metadata={"labels": {_MINIMUM: "3"}}), 1, ("arranger",)).asks
    assert asks is not None and asks.group is None


def test_an_observation_says_which_group_the_pod_is_in() -> None:
    seen = pod_seen(pod(metadata={"labels": {_GROUP: "train", _MINIMUM: "3"}}), 1, ("arranger",))
    assert describe(seen, State()).endswith("2 cpu; in the group train of at least 3 pods")


def test_a_pod_whose_resize_is_refused_asks_for_what_it_holds() -> None:
    pod = {
        "metadata": {"name": "web", "uid": "u"},
        "spec": {
            "schedulerName": "arranger", "nodeName": "n1",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "10"}}}],
        },
        "status": {
            "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        },
    }  # fmt: skip
    seen = pod_seen(pod, 1, ("arranger",))
    assert seen.asks is not None
    assert seen.requests == seen.asks.shape.requests == (("cpu", 1000),)
