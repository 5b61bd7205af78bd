"""Claims, volumes, storage classes and CSINodes: what is read of them, and how they are watched."""

import time
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.events import volumes as v
from arranger.kube.cluster import CLAIMS, CSI_NODES, PODS, STORAGE_CLASSES, VOLUMES, Resource
from arranger.kube.translate import pod_seen
from arranger.kube.volumes import claim_seen, csi_node_seen, storage_class_seen, volume_seen
from arranger.model.pod import NO_TRAITS, Ephemeral, PodClaims, Requirement
from arranger.model.template import pod_shape
from arranger.model.volumes import ClaimFacts, ClassFacts, VolumeFacts
from arranger.projections.state import State
from arranger.replay.reading.describe import describe
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from tests.unit.test_pod_group_watcher import observations
from tests.unit.test_watcher import POD, watching
from tests.volumes import ZONE, within

SPEC = {
    "containers": [{"name": "main"}],
    "volumes": [
        {"name": "b", "persistentVolumeClaim": {"claimName": "two"}},
        {"name": "again", "persistentVolumeClaim": {"claimName": "two", "readOnly": True}},
        {"name": "a", "persistentVolumeClaim": {"claimName": "one"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
        {"name": "any", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "empty", "emptyDir": {}},
    ],
}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}, **more}


def test_a_template_names_claims_and_the_classes_of_ephemeral_volumes() -> None:
    claims = pod_shape(SPEC).claims
    assert claims == PodClaims(("one", "two"), (Ephemeral("scratch", "fast"), Ephemeral("any")))
    assert pod_shape({"containers": [], "volumes": [{"name": "empty", "emptyDir": {}}]}).claims is None
    assert pod_shape({"containers": []}).claims is None


def test_a_pods_ephemeral_volumes_have_claims_of_its_name() -> None:
    names = ("one", "two", "web-any", "web-scratch")
    assert pod_shape(SPEC, name="web").claims == PodClaims(names)
    pod = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {**SPEC, "schedulerName": "arranger"},
    }
    assert pod_seen(pod, 1).traits == NO_TRAITS, "claims are recorded only while volumes are watched"
    seen = pod_seen(pod, 1, ("arranger",), with_volumes=True)
    assert seen.traits.claims == names
    assert seen.asks is not None and seen.asks.shape.claims == PodClaims(names)


def test_what_a_claim_says() -> None:
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeName": "pv"}
    claim = named("data", spec=spec, status={"phase": "Bound"})
    claim["metadata"] |= {"namespace": "team", "annotations": {"volume.kubernetes.io/selected-node": "n1"}}
    facts = ClaimFacts("Bound", "pv", "fast", ("ReadWriteOnce",), False, "n1")
    assert claim_seen(claim, 3) == v.ClaimSeen(3, "team", "data", "uid-data", "7", facts)
    assert claim_seen(named("data"), 3).facts == ClaimFacts("")
    claim["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    claim["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "old"}
    facts = claim_seen(claim, 3).facts
    assert (facts.deleting, facts.storage_class, facts.selected_node) == (True, "old", "")


def test_what_a_volume_says() -> None:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}, "csi": {"driver": "d", "volumeHandle": "h"}}
    volume = named("pv", spec=spec)
    volume["metadata"]["labels"] = {ZONE: "z1", "app": "a"}
    assert volume_seen(volume, 3).facts == VolumeFacts(within(ZONE, "z1"), ((ZONE, "z1"),), "d", "h")
    assert volume_seen(named("pv"), 3).facts == VolumeFacts()


def test_what_a_class_says() -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1", "z2"]}]}]
    of_class = named("fast", provisioner="p", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topologies)
    of_class["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    terms = ((Requirement(ZONE, "In", ("z1", "z2")),),)
    assert storage_class_seen(of_class, 3).facts == ClassFacts("p", True, terms, True)
    assert storage_class_seen(named("slow", provisioner="p", allowedTopologies=[]), 3).facts == ClassFacts("p")


def test_what_a_csi_node_says() -> None:
    drivers = [{"name": "z", "allocatable": {"count": 3}}, {"name": "a"}, {"name": "b", "allocatable": {"count": 0}}]
    assert csi_node_seen(named("n1", spec={"drivers": drivers}), 3).limits == (("b", 0), ("z", 3))
    assert csi_node_seen(named("n1", spec={"drivers": None}), 3).limits == ()


WORDS = {
    v.ClaimSeen(1, "n", "c", "u", "1", ClaimFacts("Pending", "", "fast", ("ReadWriteOnce",), True, "n1")): (
        "Pending, ReadWriteOnce, StorageClass fast, to be made for node n1, being deleted"
    ),
    v.ClaimSeen(1, "n", "c", "u", "1", ClaimFacts("Bound", "pv")): "Bound, volume pv",
    v.VolumeSeen(1, "pv", "u", "1", VolumeFacts()): "any node",
    v.VolumeSeen(1, "pv", "u", "1", VolumeFacts(within(ZONE, "a", "b"), ((ZONE, "a"),), "d", "h")): (
        f"nodes with {ZONE} In a,b, {ZONE}=a, of CSI driver d"
    ),
    v.StorageClassSeen(1, "fast", "u", "1", ClassFacts("p", True, within(ZONE, "a"), True)): (
        f"provisioner p, waits for the first consumer, nodes with {ZONE} In a, the default"
    ),
    v.StorageClassSeen(1, "slow", "u", "1", ClassFacts("p")): "provisioner p, binds immediately",
    v.CSINodeSeen(1, "n1", "u", "1", (("d", 2),)): "d: at most 2 volumes",
    v.CSINodeSeen(1, "n1", "u", "1", ()): "no limits",
    k.ObjectGone(k.Watched.CLAIM, 1, "n", "c", "u"): "gone",
}


@pytest.mark.parametrize("event", WORDS)
def test_an_observation_in_words(event: k.Event) -> None:
    assert describe(event, State()) == WORDS[event]


OBJECTS: dict[k.Watched, tuple[Resource, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    k.Watched.CLAIM: (
        CLAIMS,
        {"spec": {"accessModes": ["ReadWriteOnce"]}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}},
    ),
    k.Watched.VOLUME: (
        VOLUMES,
        {"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"labels": {ZONE: "z1"}}},
    ),
    k.Watched.STORAGE_CLASS: (
        STORAGE_CLASSES,
        {"provisioner": "p"},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}},
    ),
    k.Watched.CSI_NODE: (
        CSI_NODES,
        {"spec": {"drivers": []}},
        {"metadata": {"labels": {"a": "b"}}},
        {"spec": {"drivers": [{"name": "d", "nodeID": "n1", "allocatable": {"count": 1}}]}},
    ),
}


@pytest.mark.parametrize("kind", OBJECTS)
async def test_objects_come_change_and_go_and_what_decides_nothing_makes_no_event(kind: k.Watched) -> None:
    resource, made, irrelevant, change = OBJECTS[kind]
    namespace = "default" if resource.namespaced else None
    async with watching(kind, DirectCluster(Store(now=time.time))) as scene:
        there = scene.follower.state.volumes

        def known() -> int:
            return sum(map(len, (there.claims, there.volumes, there.classes, there.csi_nodes)))

        await scene.cluster.create(resource, namespace, {"metadata": {"name": "one"}, **made})
        await scene.until(lambda: known() == 1)
        await scene.cluster.patch(resource, namespace, "one", irrelevant)
        await scene.cluster.patch(resource, namespace, "one", change)
        await scene.cluster.delete(resource, namespace, "one")
        await scene.until(lambda: known() == 0)
        seen = [k.kind_of(event) for event in await observations(scene) if k.watch_of(event) == kind]
        name = seen[0].removesuffix("Seen")
        # The version of a claim is the precondition of what an applier writes to it.
        versions = [f"{name}Seen"] if kind == k.Watched.CLAIM else []
        assert seen == [f"{name}Seen", *versions, f"{name}Seen", f"{name}Gone"]


async def test_without_the_setting_no_claims_of_pods_are_recorded() -> None:
    async with watching(k.Watched.POD) as scene:
        body = {**POD, "metadata": {"namespace": "default", "name": "web"}}
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        await scene.cluster.create(PODS, "default", {**body, "spec": {**body["spec"], "volumes": volumes}})
        await scene.until(lambda: scene.names() == ["web"])
        assert not scene.follower.state.with_volumes
        assert [pod.traits.claims for pod in scene.follower.state.pods.values()] == [()]
