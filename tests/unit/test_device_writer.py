"""The device writer: a claim has its devices and is reserved for a pod before the pod is bound."""

from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiError,
    Object,
    Resource,
)
from arranger.kube.devices import FINALIZER, device_class_seen, resource_claim_seen, resource_slice_seen
from arranger.kube.translate import node_seen, pod_seen
from arranger.model.job import Stage
from arranger.model.pods_to_place import record_of
from arranger.projections.jobs.records import JobRecord
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress
from arranger.workers.deciding.device_matcher import matches
from tests.device_objects import claim, device_class, slice_of
from tests.parts import parts
from tests.stores import store_of_jobs
from tests.unit.test_applier import Everyone, Following
from tests.unit.test_claim_writer import Recorded
from tests.world import World

SEEN: dict[Resource, tuple[k.Watched, Any]] = {
    NODES: (k.Watched.NODE, node_seen),
    RESOURCE_SLICES: (k.Watched.RESOURCE_SLICE, resource_slice_seen),
    DEVICE_CLASSES: (k.Watched.DEVICE_CLASS, device_class_seen),
    RESOURCE_CLAIMS: (k.Watched.RESOURCE_CLAIM, resource_claim_seen),
}


class Noting(DirectCluster):
    """A cluster that notes the writes in their order. The next patches of a subresource are refused like this."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.writes: list[str] = []
        self.refusals: dict[str, list[ApiError]] = {"": [], "status": []}

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Any, *, subresource: str = ""
    ) -> Object:
        if resource == RESOURCE_CLAIMS:
            if self.refusals[subresource]:
                raise self.refusals[subresource].pop(0)
            self.writes.append(f"{name}{f'/{subresource}' if subresource else ''}")
        return await super().patch(resource, namespace, name, body, subresource=subresource)

    async def bind(self, namespace: str, name: str, **more: Any) -> None:
        self.writes.append(f"bind {name}")
        await super().bind(namespace, name, **more)


class Scene:
    """Nodes n1 and n2 with a device each, the claim `gpu`, and a pod `web` that names it."""

    def __init__(self) -> None:
        self.store = store_of_jobs()
        status = {"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n1", "n2"):
            self.store.create(NODES, "", {"metadata": {"name": name}, "status": status})
            self.store.patch(NODES, "", name, {"spec": {"taints": None}})
            self.store.create(RESOURCE_SLICES, "", slice_of(name, "gpu-0"))
        self.store.create(DEVICE_CLASSES, "", device_class())
        self.store.create(RESOURCE_CLAIMS, "default", claim("gpu"))
        self.pod("web")
        self.cluster = Noting(self.store)
        self.world = World()
        pods = self.world.terms[k.Watched.POD] = self.world.say(k.claim(k.Watched.POD, "test", with_devices=True))
        for kind in (*k.OF_DEVICES, k.Watched.RESOURCE_CLAIM_TEMPLATE):
            self.world._watch(kind)
        self.world.say(k.ListingEnded(k.Watched.POD, pods, "1"))
        self.observe()
        self.following, writer = Following(self.world.state), Recorded(self.world)  # type: ignore[arg-type]
        given = parts(cluster=self.cluster, follower=self.following, membership=Everyone(), writer=writer)
        self.applier = Applier(given)

    def pod(self, name: str, claim: str = "gpu") -> None:
        entry = {"name": "gpu", "resourceClaimName": claim}
        spec = {
            "containers": [{"name": "c", "image": "i"}],
            "schedulerName": "arranger",
            "resourceClaims": [entry],
        }
        self.store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})

    def items(self, resource: Resource) -> list[Object]:
        return [of.object for of in self.store.page(resource, Selection(), limit=20, continuation="").items]

    def observe(self) -> None:
        """The watches bring all objects as they are now, and what their selectors select."""
        for resource, (kind, seen) in SEEN.items():
            for item in self.items(resource):
                self.world.say(seen(item, self.world.terms[kind]))
        there = {item["metadata"]["uid"] for item in self.items(RESOURCE_CLAIMS)}
        for of in [of for of in self.world.state.devices.claims.values() if of.uid not in there]:
            term = self.world.terms[k.Watched.RESOURCE_CLAIM]
            self.world.say(k.ObjectGone(k.Watched.RESOURCE_CLAIM, term, of.namespace, of.name, of.uid))
        for pod in self.items(PODS):
            self.world.say(pod_seen(pod, self.world.terms[k.Watched.POD], ("arranger",), with_devices=True))
        if found := matches(self.world.state):
            self.world.say(*found)

    def record(self, name: str = "web") -> JobRecord:
        uid = self.store.get(PODS, "default", name).object["metadata"]["uid"]
        return self.world.state.jobs[record_of(uid)]

    async def look(self, name: str = "web") -> None:
        record = self.record(name)
        progress = self.applier._progress.setdefault(record.uid, Progress())
        await self.applier._pods.binder.look(Look(self.following, record, progress))  # type: ignore[arg-type]

    def claim(self, name: str = "gpu") -> Object:
        return self.store.get(RESOURCE_CLAIMS, "default", name).object

    def node_of(self, name: str = "web") -> str:
        return str(self.store.get(PODS, "default", name).object["spec"].get("nodeName", ""))


async def test_a_claim_has_its_devices_and_is_reserved_and_kept_before_its_pod_is_bound() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.look()
    assert scene.cluster.writes == ["gpu", "gpu/status", "bind web"]
    claim = scene.claim()
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    uid = scene.store.get(PODS, "default", "web").object["metadata"]["uid"]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "web", "uid": uid}]
    allocation = claim["status"]["allocation"]
    (result,) = allocation["devices"]["results"]
    assert result == {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert [of["source"] for of in allocation["devices"]["config"]] == ["FromClass", "FromClaim"]
    assert scene.node_of() == "n1"
    scene.observe()
    assert scene.record().stage == Stage.RUNNING and not scene.world.state.devices.decided


async def test_the_second_pod_of_a_claim_is_reserved_beside_the_first_and_gets_its_node() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.look()
    scene.pod("second")
    scene.observe()
    scene.world.cycle()
    await scene.look("second")
    assert scene.node_of("second") == "n1" and len(scene.claim()["status"]["reservedFor"]) == 2
    assert scene.cluster.writes[3:] == ["gpu/status", "bind second"]


async def test_what_was_written_before_a_restart_is_not_written_again() -> None:
    scene = Scene()
    scene.world.cycle()
    record = scene.record()
    node, slot = next(iter(record.placements.values())), next(iter(record.placements))
    pod = scene.world.state.pods[scene.store.get(PODS, "default", "web").object["metadata"]["uid"]]
    look = Look(scene.following, record, Progress())  # type: ignore[arg-type]
    writer = scene.applier._pods.binder._devices
    assert await writer.with_devices(look, [(slot, node)], {slot: pod}) == [(slot, node)]
    again = await writer.with_devices(look, [(slot, node)], {slot: pod})
    assert again == [(slot, node)] and scene.cluster.writes == ["gpu", "gpu/status"]


async def test_a_pod_isnt_bound_while_its_claim_isnt_written_and_is_tried_again() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.refusals["status"] = [ApiError(409, "Conflict", "changed")]
    await scene.look()
    assert scene.cluster.writes == ["gpu"] and not scene.node_of()
    await scene.look()
    assert scene.node_of() == "n1"


async def test_a_claim_that_may_not_be_written_is_told_in_the_log() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.refusals[""] = [ApiError(403, "Forbidden", "no rights")]
    await scene.look()
    failure = scene.record().failure
    assert failure is not None and (failure.effect, failure.code) == ("allocate", 403) and not scene.node_of()


async def test_a_claim_to_which_the_finalizer_cant_be_added_gets_its_devices_all_the_same() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.refusals[""] = [ApiError(422, "Invalid", "spec: Invalid value: field is immutable")]
    await scene.look()
    assert scene.cluster.writes == ["gpu/status", "bind web"]
    assert scene.claim()["status"]["allocation"] and "finalizers" not in scene.claim()["metadata"]


async def test_a_claim_deleted_after_the_decision_loses_nothing() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.store.delete(RESOURCE_CLAIMS, "default", "gpu")
    await scene.look()
    assert scene.cluster.writes == [] and not scene.node_of(), "the claim isn't there"
    scene.observe()
    scene.world.control()
    assert not scene.record().placements
    scene.store.create(RESOURCE_CLAIMS, "default", claim("gpu"))
    scene.observe()
    scene.world.wait_for_back_offs()
    scene.world.cycle()
    await scene.look()
    assert scene.node_of() == "n1" and scene.claim()["status"]["reservedFor"]


async def test_devices_that_somebody_else_gave_the_claim_first_stay() -> None:
    scene = Scene()
    scene.world.cycle()
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n2", "device": "gpu-0"}
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}
    status = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}
    scene.store.patch(RESOURCE_CLAIMS, "default", "gpu", {"status": status}, subresource="status")
    await scene.look()
    assert scene.cluster.writes == [] and not scene.node_of()
    scene.observe()
    scene.world.control()
    scene.world.wait_for_back_offs()
    scene.world.cycle()
    await scene.look()
    assert scene.node_of() == "n2"


async def test_devices_on_a_node_that_is_gone_are_taken_from_a_claim_that_no_other_pod_uses() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.refusals["status"] = []
    record = scene.record()
    slot, pod = next(iter(record.placements)), scene.world.state.pods[record.uid.removeprefix("pod:")]
    look = Look(scene.following, record, Progress())  # type: ignore[arg-type]
    await scene.applier._pods.binder._devices.with_devices(look, [(slot, "n1")], {slot: pod})
    scene.store.delete(NODES, "", "n1")
    scene.observe()
    scene.world.node_gone("n1", uid=scene.world.state.nodes.uids[scene.world.state.nodes.rows["n1"]])
    scene.world.control()
    scene.world.wait_for_back_offs()
    scene.world.cycle()
    assert scene.record().waits is not None, "its claim has devices that no node reaches"
    await scene.look()
    assert not scene.claim().get("status", {}).get("allocation")
    scene.observe()
    scene.world.cycle()
    await scene.look()
    assert scene.node_of() == "n2"


@pytest.mark.parametrize("other", ["reserved", "placed"])
async def test_devices_that_another_pod_may_use_are_left_where_they_are(other: str) -> None:
    scene = Scene()
    scene.world.cycle()
    if other == "reserved":
        await scene.look()
        scene.observe()
    scene.store.patch(NODES, "", "n1", {"spec": {"unschedulable": True}})
    scene.pod("second")
    scene.observe()
    scene.world.cycle()
    before = scene.claim()
    await scene.look("second")
    assert scene.claim() == before and not scene.node_of("second")
