"""ResourceSlices, DeviceClasses and ResourceClaims, held against a real API server and the embedded one alike: what is
written of an allocation is accepted, and is what is read of it."""

from typing import Any

import pytest

from arranger.kube.cluster import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TYJOBS,
    Cluster,
    Object,
    Resource,
)
from arranger.kube.devices import (
    FINALIZER,
    allocation_of,
    device_class_seen,
    own_claim,
    resource_claim_seen,
    resource_claim_template_seen,
    resource_slice_seen,
)
from arranger.kube.manifests import pod_manifest
from arranger.kube.translate import job_seen
from arranger.model.devices import AllocatedDevice, Allocation, DeviceFacts, DeviceId, DeviceRequest, ResourceClaimFacts
from arranger.model.pod import PodOwner
from arranger.workers.applying.effects.deletions import delete_claim
from tests.contract.test_cluster_contract import (  # noqa: F401 - fixtures
    Subject,
    refused,
    subject,
    unique,
)
from tests.device_objects import DRIVER, claim, claim_template, device_class, slice_of
from tests.devices import on
from tests.unit.tyjob_table import tyjob
from tests.volumes import ZONE, within

pytestmark = pytest.mark.timeout(120)
_DECIDED = on("n1", "gpu-0", "gpu-1", request="gpu")
_POD = {"resource": "pods", "name": "web", "uid": "uid-web"}


async def listed(cluster: Cluster, resource: Resource) -> list[str]:
    return [item["metadata"]["name"] async for page in cluster.listing(resource) for item in page.items]


async def written(cluster: Cluster, where: str, live: Object, status: Any) -> Object:
    """A claim's status, written on the condition that the claim is as it was read."""
    metadata = {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
    body = {"metadata": metadata, "status": status}
    return await cluster.patch(RESOURCE_CLAIMS, where, live["metadata"]["name"], body, subresource="status")


async def test_a_slice_and_a_class_are_read_as_they_were_made(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, name = place.cluster, unique("slice")
        body = {**slice_of("n1", "gpu-0", "gpu-1"), "metadata": {"name": name}}
        body["spec"]["devices"][1]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        facts = resource_slice_seen(await cluster.create(RESOURCE_SLICES, None, body), 1).facts
        assert (facts.driver, facts.pool, facts.node, facts.slices) == (DRIVER, "n1", "n1", 1)
        first, second = facts.devices
        assert isinstance(first, DeviceFacts) and (first.whole, second.whole) == (True, False)
        assert [(of.name, of.value) for of in first.values] == [
            (f"{DRIVER}/driverVersion", "1.2.3"),
            (f"{DRIVER}/memory", "80Gi"),
            (f"{DRIVER}/model", "A100"),
        ]
        assert name in await listed(cluster, RESOURCE_SLICES)
        await cluster.delete(RESOURCE_SLICES, None, name)
        of_class = unique("gpu")
        made = await cluster.create(DEVICE_CLASSES, None, device_class(of_class))
        assert device_class_seen(made, 1).selectors == (f'device.driver == "{DRIVER}"',)
        assert of_class in await listed(cluster, DEVICE_CLASSES)
        await cluster.delete(DEVICE_CLASSES, None, of_class)


async def test_a_claim_gets_its_devices_and_pods_and_loses_them_again(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, where = place.cluster, place.namespace
        made = await cluster.create(RESOURCE_CLAIMS, where, claim("gpu", 2, expression="true"))
        request = DeviceRequest("gpu", "gpu", ("true",), 2)
        assert resource_claim_seen(made, 1).facts == ResourceClaimFacts((request,))
        allocation = allocation_of(_DECIDED, made, [device_class()])
        given = await written(cluster, where, made, {"allocation": allocation, "reservedFor": [_POD]})
        facts = resource_claim_seen(given, 1).facts
        assert (facts.allocation, facts.reserved) == (_DECIDED, ("uid-web",))
        sources = [of["source"] for of in given["status"]["allocation"]["devices"]["config"]]
        assert sources == ["FromClass", "FromClaim"]
        with refused(409, "Conflict", ""):
            await written(cluster, where, made, {"reservedFor": []})
        more = {"reservedFor": [_POD, {**_POD, "name": "other", "uid": "uid-other"}]}
        shared = await written(cluster, where, given, more)
        assert resource_claim_seen(shared, 1).facts.reserved == ("uid-other", "uid-web")
        released = await written(cluster, where, shared, {"allocation": None, "reservedFor": None})
        assert resource_claim_seen(released, 1).facts == ResourceClaimFacts((request,))
        assert "gpu" in await listed(cluster, RESOURCE_CLAIMS)
        await cluster.delete(RESOURCE_CLAIMS, where, "gpu")
        with refused(404, "NotFound", ""):
            await written(cluster, where, released, {"allocation": allocation})


async def test_devices_that_other_nodes_reach_too_are_accepted(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, where = place.cluster, place.namespace
        for name, terms in (("some", within(ZONE, "z1")), ("all", None)):
            made = await cluster.create(RESOURCE_CLAIMS, where, claim(name))
            device = AllocatedDevice("gpu", DeviceId(DRIVER, "network", "nic-0"))
            decided = Allocation((device,), terms)
            given = await written(cluster, where, made, {"allocation": allocation_of(decided, made, [])})
            assert resource_claim_seen(given, 1).facts.allocation == decided
            await cluster.delete(RESOURCE_CLAIMS, where, name)


async def test_a_claim_with_the_finalizer_is_kept_until_it_has_lost_its_devices(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, where = place.cluster, place.namespace
        made = await cluster.create(RESOURCE_CLAIMS, where, claim("kept"))
        version = made["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version, "finalizers": [FINALIZER]}}
        kept = await cluster.patch(RESOURCE_CLAIMS, where, "kept", body)
        await written(cluster, where, kept, {"allocation": allocation_of(_DECIDED, made, [])} | {"reservedFor": [_POD]})
        await cluster.delete(RESOURCE_CLAIMS, where, "kept")
        leaving = await cluster.get(RESOURCE_CLAIMS, where, "kept")
        facts = resource_claim_seen(leaving, 1).facts
        assert facts.deleting and facts.allocation == _DECIDED
        await written(cluster, where, leaving, {"allocation": None, "reservedFor": None})
        await cluster.patch(RESOURCE_CLAIMS, where, "kept", {"metadata": {"finalizers": None}})
        with refused(404, "NotFound", ""):
            await cluster.get(RESOURCE_CLAIMS, where, "kept")


@pytest.mark.parametrize("leader", [True, False])
async def test_a_claim_made_from_a_template_is_that_of_its_pod(subject: Subject, leader: bool) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, where = place.cluster, place.namespace
        template = await cluster.create(RESOURCE_CLAIM_TEMPLATES, where, claim_template("gpu", 2, expression="true"))
        seen = resource_claim_template_seen(template, 1)
        assert seen.facts == ResourceClaimFacts((DeviceRequest("gpu", "gpu", ("true",), 2),))
        assert "gpu" in await listed(cluster, RESOURCE_CLAIM_TEMPLATES)
        job = job_seen(await cluster.create(TYJOBS, where, tyjob("j")), 1, with_status=False)
        uid = job.uid
        owner = PodOwner(uid, 2, "learner", True, 0) if leader else PodOwner(uid, 2, "actors", False, 7, 1)
        body = own_claim(template, job, owner, "gpu")
        made = await cluster.create(RESOURCE_CLAIMS, where, body)
        facts = resource_claim_seen(made, 1).facts
        assert (facts.owner, facts.entry, facts.requests) == (owner, "gpu", seen.facts.requests)
        assert made["metadata"]["labels"]["of"] == "template"
        assert made["metadata"]["name"] == ("j-learner-0-r2.gpu" if leader else "j-actors-7-r2-f1.gpu")
        with refused(409, "AlreadyExists", ""):
            await cluster.create(RESOURCE_CLAIMS, where, body)
        allocation = allocation_of(_DECIDED, made, [device_class()])
        given = await written(cluster, where, made, {"allocation": allocation, "reservedFor": []})
        await written(cluster, where, given, {"reservedFor": [_POD]})
        assert not await delete_claim(cluster, resource_claim_seen(given, 1), uid), "it was reserved meanwhile"
        there = await cluster.get(RESOURCE_CLAIMS, where, made["metadata"]["name"])
        assert not await delete_claim(cluster, resource_claim_seen(there, 1), "another"), "it isn't this job's"
        assert await delete_claim(cluster, resource_claim_seen(there, 1), uid)
        leaving = await cluster.get(RESOURCE_CLAIMS, where, made["metadata"]["name"])
        facts = resource_claim_seen(leaving, 1).facts
        assert facts.deleting and facts.allocation == _DECIDED, "it is kept until it has lost its devices"
        await written(cluster, where, leaving, {"allocation": None, "reservedFor": None})
        await cluster.patch(RESOURCE_CLAIMS, where, made["metadata"]["name"], {"metadata": {"finalizers": None}})
        assert await listed(cluster, RESOURCE_CLAIMS) == []


async def test_a_pod_with_a_node_names_its_claim_and_is_accepted(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        cluster, where = place.cluster, place.namespace
        containers = [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]
        entries = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        template = {"spec": {"containers": containers, "resourceClaims": entries}}
        job = tyjob("j")
        job["spec"]["leader"]["template"] = template
        job = await cluster.create(TYJOBS, where, job)
        pod = pod_manifest(job, group=0, index=0, attempt=0, node="n1", leader_address=None)
        made = await cluster.create(PODS, where, pod)
        assert made["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimName": "j-learner-0.gpu"}]
        await cluster.delete(PODS, where, "j-learner-0", grace_s=0)
