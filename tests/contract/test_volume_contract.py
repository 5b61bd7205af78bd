"""Claims, volumes, storage classes and CSINodes, held against a real API server and the embedded one alike."""

from typing import Any

import pytest

from arranger.kube.cluster import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES, Cluster, Object, Resource
from arranger.kube.volumes import claim_seen, csi_node_seen, storage_class_seen, volume_seen
from arranger.model.volumes import ClaimFacts, ClassFacts, VolumeFacts
from tests.contract.test_cluster_contract import (  # noqa: F401 - fixtures
    Subject,
    refused,
    subject,
    unique,
)
from tests.volumes import ZONE, within

pytestmark = pytest.mark.timeout(120)
_SELECTED = "volume.kubernetes.io/selected-node"
#: A real API server keeps what it deletes until controllers have removed these.
_NO_FINALIZERS: dict[str, Any] = {"metadata": {"finalizers": None}}


def claim(name: str, of_class: str = "fast") -> Object:
    resources = {"requests": {"storage": "1Gi"}}
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class, "resources": resources},
        "status": {"phase": "Bound"},
    }


def volume(name: str) -> Object:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]
    return {
        "metadata": {"name": name, "labels": {ZONE: "z1"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "storageClassName": "fast",
        },
    }


async def listed(cluster: Cluster, resource: Resource) -> list[str]:
    return [item["metadata"]["name"] async for page in cluster.listing(resource) for item in page.items]


async def test_a_claim_is_pending_until_it_is_bound_and_keeps_the_selected_node(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, where = place.cluster, place.namespace
        made = await cluster.create(CLAIMS, where, claim("data"))
        assert claim_seen(made, 1).facts == ClaimFacts("Pending", "", "fast", ("ReadWriteOnce",))
        version = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
        selected = {"metadata": {**version, "annotations": {_SELECTED: "n1"}}}
        now = await cluster.patch(CLAIMS, where, "data", selected)
        assert claim_seen(now, 1).facts.selected_node == "n1"
        given_up = {"metadata": {**version, "annotations": {_SELECTED: None}}}
        for outdated in (selected, given_up):
            with refused(409, "Conflict", ""):
                await cluster.patch(CLAIMS, where, "data", outdated)
        given_up["metadata"] |= {"resourceVersion": now["metadata"]["resourceVersion"]}
        now = await cluster.patch(CLAIMS, where, "data", given_up)
        assert claim_seen(now, 1).facts.selected_node == ""
        selected["metadata"] |= {"resourceVersion": now["metadata"]["resourceVersion"]}
        await cluster.patch(CLAIMS, where, "data", selected)
        await cluster.patch(CLAIMS, where, "data", {"spec": {"volumeName": "pv"}})
        bound = await cluster.patch(CLAIMS, where, "data", {"status": {"phase": "Bound"}}, subresource="status")
        assert claim_seen(bound, 1).facts == ClaimFacts("Bound", "pv", "fast", ("ReadWriteOnce",), False, "n1")
        assert "data" in await listed(cluster, CLAIMS)
        await cluster.delete(CLAIMS, where, "data")


async def test_a_volume_has_its_node_affinity_and_its_driver(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name = unique("pv")
        made = await place.cluster.create(VOLUMES, None, volume(name))
        assert made["status"]["phase"] == "Pending"
        assert volume_seen(made, 1).facts == VolumeFacts(within(ZONE, "z1"), ((ZONE, "z1"),), "d", name)
        assert name in await listed(place.cluster, VOLUMES)
        await place.cluster.delete(VOLUMES, None, name)
        if name in await listed(place.cluster, VOLUMES):
            await place.cluster.patch(VOLUMES, None, name, _NO_FINALIZERS)
        assert name not in await listed(place.cluster, VOLUMES)


async def test_a_class_binds_immediately_unless_it_says_otherwise(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name, other = unique("class"), unique("class")
        topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
        waits = {"volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies}
        made = await place.cluster.create(STORAGE_CLASSES, None, {"metadata": {"name": name}, "provisioner": "d"})
        assert storage_class_seen(made, 1).facts == ClassFacts("d")
        body = {"metadata": {"name": other}, "provisioner": "d", **waits}
        made = await place.cluster.create(STORAGE_CLASSES, None, body)
        assert storage_class_seen(made, 1).facts == ClassFacts("d", True, within(ZONE, "z1"))
        assert {name, other} <= {*await listed(place.cluster, STORAGE_CLASSES)}
        for one in (name, other):
            await place.cluster.delete(STORAGE_CLASSES, None, one)


async def test_a_csi_node_has_the_limits_of_its_drivers(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        name = unique("node")
        drivers = [{"name": "d", "nodeID": name, "topologyKeys": [ZONE], "allocatable": {"count": 2}}]
        body = {"metadata": {"name": name}, "spec": {"drivers": drivers}}
        assert csi_node_seen(await place.cluster.create(CSI_NODES, None, body), 1).limits == (("d", 2),)
        assert name in await listed(place.cluster, CSI_NODES)
        await place.cluster.delete(CSI_NODES, None, name)
