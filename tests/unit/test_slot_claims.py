"""Resource claims of TYJobs' pods: made, given their devices, reserved and deleted, in this order, each step again."""

from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TYJOBS,
    ApiError,
    Object,
    Resource,
)
from arranger.kube.devices import (
    FINALIZER,
    device_class_seen,
    resource_claim_seen,
    resource_claim_template_seen,
    resource_slice_seen,
)
from arranger.kube.translate import job_seen, node_seen, pod_seen
from arranger.messages.readiness import claims_text
from arranger.projections.jobs.records import JobRecord
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.listing import Selection
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress
from arranger.workers.deciding.device_matcher import matches
from tests.device_objects import claim, claim_template, device_class, slice_of
from tests.parts import parts
from tests.stores import store_of_jobs
from tests.unit.test_applier import Everyone, Following
from tests.unit.test_claim_writer import Recorded, WorldClock
from tests.world import World

SEEN: dict[Resource, tuple[k.Watched, Any]] = {
    NODES: (k.Watched.NODE, node_seen),
    RESOURCE_SLICES: (k.Watched.RESOURCE_SLICE, resource_slice_seen),
    DEVICE_CLASSES: (k.Watched.DEVICE_CLASS, device_class_seen),
    RESOURCE_CLAIMS: (k.Watched.RESOURCE_CLAIM, resource_claim_seen),
    RESOURCE_CLAIM_TEMPLATES: (k.Watched.RESOURCE_CLAIM_TEMPLATE, resource_claim_template_seen),
}
OWN, SHARED = {"resourceClaimTemplateName": "gpu"}, {"resourceClaimName": "shared"}


def tyjob(entry: Object, workers: int, kept: int) -> Object:
    containers = [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]
    template = {"spec": {"containers": containers, "resourceClaims": [{"name": "gpu", **entry}]}}
    sets = [{"name": "w", "counts": workers, "startAfter": "LeaderReady", "template": template}] if workers else []
    leader = {"name": "learner", "template": template}
    spec = {"minWorkersNum": 0, "leader": leader, "workerSets": sets, "keepFailedPods": kept}
    return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": "j"}, "spec": spec}


class Noting(DirectCluster):
    """A cluster that notes the writes of claims and pods in their order. The next ones may be refused like this, before
    or after they were carried out: an applier that ends in between sees neither."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.writes: list[str] = []
        self.refusals: dict[str, list[ApiError]] = {}
        self.lost: set[str] = set()

    def _begin(self, what: str) -> None:
        if self.refusals.get(what):
            raise self.refusals[what].pop(0)
        self.writes.append(what)

    def _end(self, what: str) -> None:
        if what in self.lost:
            self.lost.remove(what)
            raise Killed

    async def create(self, resource: Resource, namespace: str | None, body: Any, **more: Any) -> Object:
        what = f"create {body['metadata']['name']}"
        self._begin(what)
        found = await super().create(resource, namespace, body, **more)
        self._end(what)
        return found

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Any, *, subresource: str = ""
    ) -> Object:
        what = f"patch {name}{f'/{subresource}' if subresource else ''}"
        self._begin(what)
        found = await super().patch(resource, namespace, name, body, subresource=subresource)
        self._end(what)
        return found

    async def delete(self, resource: Resource, namespace: str | None, name: str, **more: Any) -> None:
        self._begin(f"delete {name}")
        await super().delete(resource, namespace, name, **more)
        self._end(f"delete {name}")


class Killed(BaseException):
    """The applier ended."""


class Scene:
    """Nodes n1 and n2 with two devices each, the TYJob `j` whose pods have or share claims, and an applier."""

    def __init__(self, entry: Object = OWN, workers: int = 0, kept: int = 0) -> None:
        self.store = store_of_jobs()
        status = {"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n1", "n2"):
            self.store.create(NODES, "", {"metadata": {"name": name}, "status": status})
            self.store.patch(NODES, "", name, {"spec": {"taints": None}})
            self.store.create(RESOURCE_SLICES, "", slice_of(name, "gpu-0", "gpu-1"))
        self.store.create(DEVICE_CLASSES, "", device_class())
        self.store.create(RESOURCE_CLAIM_TEMPLATES, "default", claim_template("gpu"))
        self.store.create(RESOURCE_CLAIMS, "default", claim("shared"))
        self.store.create(TYJOBS, "default", tyjob(entry, workers, kept))
        self.cluster = Noting(self.store)
        self.world = World()
        pods = self.world.terms[k.Watched.POD] = self.world.say(k.claim(k.Watched.POD, "test", with_devices=True))
        for kind in (*k.OF_DEVICES, k.Watched.RESOURCE_CLAIM_TEMPLATE):
            self.world._watch(kind)
        self.world.say(k.ListingEnded(k.Watched.POD, pods, "1"))
        self.observe()
        self.following = Following(self.world.state)
        self.start()

    def start(self) -> None:
        """Start an applier that knows nothing but the log."""
        clock, writer = WorldClock(self.world), Recorded(self.world)  # type: ignore[arg-type]
        given: dict[str, Any] = {"cluster": self.cluster, "follower": self.following, "membership": Everyone()}
        self.applier = Applier(parts(clock=clock, writer=writer, **given))

    def items(self, resource: Resource) -> list[Object]:
        return [of.object for of in self.store.page(resource, Selection(), limit=20, continuation="").items]

    def observe(self) -> None:
        """The watches bring all objects as they are now, and what their selectors select."""
        terms, say = self.world.terms, self.world.say
        for resource, (kind, seen) in SEEN.items():
            for item in self.items(resource):
                say(seen(item, terms[kind]))
        there = {item["metadata"]["uid"] for item in (*self.items(RESOURCE_CLAIMS), *self.items(PODS))}
        for of in [of for of in self.world.state.devices.claims.values() if of.uid not in there]:
            say(k.ObjectGone(k.Watched.RESOURCE_CLAIM, terms[k.Watched.RESOURCE_CLAIM], of.namespace, of.name, of.uid))
        for uid in [uid for uid in self.world.state.pods if uid not in there]:
            self.world.pod_gone(uid)
        for pod in self.items(PODS):
            say(pod_seen(pod, terms[k.Watched.POD], ("arranger",), with_devices=True))
        for job in self.items(TYJOBS):
            say(job_seen(job, terms[k.Watched.JOB], with_status=True))
        if found := matches(self.world.state):
            say(*found)

    @property
    def record(self) -> JobRecord:
        return next(iter(self.world.state.jobs.values()))

    async def look(self) -> None:
        progress = self.applier._progress.setdefault(self.record.uid, Progress())
        await self.applier._pods.reconciler.reconcile(Look(self.following, self.record, progress))  # type: ignore[arg-type]

    async def settle(self, rounds: int = 20) -> None:
        """Looks and observations until two of them change nothing."""
        for _ in range(rounds):
            before = len(self.cluster.writes)
            for _ in range(2):
                await self.look()
                self.observe()
            if len(self.cluster.writes) == before:
                return
        raise AssertionError(self.cluster.writes)

    def claim(self, name: str) -> Object:
        return self.store.get(RESOURCE_CLAIMS, "default", name).object

    def devices(self) -> dict[str, list[str]]:
        """The devices of all claims that have some."""
        found = {}
        for item in self.items(RESOURCE_CLAIMS):
            allocation = (item.get("status") or {}).get("allocation") or {}
            if results := allocation.get("devices", {}).get("results"):
                found[item["metadata"]["name"]] = [f"{of['pool']}/{of['device']}" for of in results]
        return found

    def uid(self, pod: str) -> str:
        return str(self.store.get(PODS, "default", pod).object["metadata"]["uid"])

    def reserved(self, claim: str) -> list[str]:
        """The UIDs of the pods that may use a claim."""
        return [of["uid"] for of in self.claim(claim)["status"].get("reservedFor", ())]

    def set_pod(self, name: str, **status: Any) -> None:
        self.store.patch(PODS, "default", name, {"status": status}, subresource="status")

    def ready(self, name: str) -> None:
        self.set_pod(name, phase="Running", podIP="10.0.0.1", conditions=[{"type": "Ready", "status": "True"}])

    def collect(self) -> None:
        """Kubernetes takes devices from claims whose pods are gone or have ended, and lets deleted claims go."""
        ended = ("Succeeded", "Failed")
        pods = {pod["metadata"]["uid"] for pod in self.items(PODS) if pod["status"].get("phase") not in ended}
        for item in self.items(RESOURCE_CLAIMS):
            reserved = (item.get("status") or {}).get("reservedFor") or []
            left = [of for of in reserved if of["uid"] in pods]
            name, leaves = item["metadata"]["name"], bool(item["metadata"].get("deletionTimestamp"))
            if left != reserved or (leaves and not left):
                status = {"reservedFor": left} if left else {"allocation": None, "reservedFor": None}
                self.store.patch(RESOURCE_CLAIMS, "default", name, {"status": status}, subresource="status")
                self.store.patch(RESOURCE_CLAIMS, "default", name, {"metadata": {} if left else {"finalizers": None}})


async def test_a_claim_is_made_and_has_its_devices_before_its_pod_and_is_reserved_after() -> None:
    scene = Scene()
    scene.world.cycle()
    for steps in (["create j-learner-0.gpu"], ["patch j-learner-0.gpu/status"], ["create j-learner-0"]):
        scene.cluster.writes.clear()
        await scene.look()
        await scene.look()
        assert scene.cluster.writes == steps, "one step, once, until the watch has shown it"
        scene.observe()
    await scene.settle()
    made = scene.claim("j-learner-0.gpu")
    pod = scene.items(PODS)[0]
    assert pod["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimName": "j-learner-0.gpu"}]
    assert made["status"]["reservedFor"] == [{"resource": "pods", "name": "j-learner-0", "uid": pod["metadata"]["uid"]}]
    assert made["metadata"]["finalizers"] == [FINALIZER] and made["metadata"]["labels"]["of"] == "template"
    assert made["metadata"]["ownerReferences"][0]["uid"] == scene.record.uid
    node = pod["spec"]["nodeName"]
    assert scene.devices() == {"j-learner-0.gpu": [f"{node}/gpu-0"]}
    assert [of["source"] for of in made["status"]["allocation"]["devices"]["config"]] == ["FromClass", "FromClaim"]


async def test_while_a_claim_has_no_devices_the_job_says_for_what_its_pod_waits() -> None:
    scene = Scene()
    scene.world.cycle()
    words = "waits until resource claim gpu of pod j-learner-0 has its devices"
    assert claims_text(scene.world.state, scene.record) == words
    await scene.settle()
    assert claims_text(scene.world.state, scene.record) == ""


@pytest.mark.parametrize("lost", ["create j-learner-0.gpu", "patch j-learner-0.gpu/status", "create j-learner-0"])
async def test_an_applier_that_ends_between_two_steps_loses_and_doubles_nothing(lost: str) -> None:
    """It ended after the API server has carried its request out; the next applier knows nothing of it."""
    scene = Scene()
    scene.world.cycle()
    scene.cluster.lost.add(lost)
    with pytest.raises((Killed, BaseExceptionGroup)):
        await scene.settle()
    scene.start()
    await scene.settle()
    assert scene.cluster.writes.count("patch j-learner-0.gpu/status") == 2, "its devices, and its pod"
    assert len(scene.items(PODS)) == 1 and [*scene.devices()] == ["j-learner-0.gpu"]
    assert scene.reserved("j-learner-0.gpu") == [scene.uid("j-learner-0")] and scene.record.failure is None


async def test_pods_that_share_a_claim_wait_for_its_devices_and_are_all_reserved() -> None:
    scene = Scene(SHARED, workers=2)
    scene.world.cycle()
    await scene.settle()
    assert [of["metadata"]["name"] for of in scene.items(PODS)] == ["j-learner-0"]
    scene.ready("j-learner-0")
    scene.observe()
    scene.world.control()
    await scene.settle()
    pods = scene.items(PODS)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1 and len(pods) == 3
    reserved = {of["uid"] for of in scene.claim("shared")["status"]["reservedFor"]}
    assert reserved == {pod["metadata"]["uid"] for pod in pods}


async def test_a_worker_on_another_node_gets_a_new_claim_once_the_one_of_its_pod_is_gone() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.settle()
    scene.collect()
    first = scene.claim("j-learner-0.gpu")
    node = scene.items(PODS)[0]["spec"]["nodeName"]
    scene.store.patch(NODES, "", node, {"spec": {"unschedulable": True}})
    scene.set_pod("j-learner-0", phase="Failed", reason="Evicted")
    scene.observe()
    scene.world.control()
    scene.world.wait_for_back_offs()
    await scene.settle()
    scene.collect()
    scene.observe()
    assert not scene.devices() and not scene.items(PODS)
    scene.world.cycle()
    await scene.settle()
    (pod,) = scene.items(PODS)
    assert pod["spec"]["nodeName"] != node
    (name,) = scene.devices()
    assert name == f"{pod['metadata']['name']}.gpu" and scene.claim(name)["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_claim_of_an_earlier_pod_is_awaited_and_not_used_for_other_devices() -> None:
    scene = Scene(workers=1)
    scene.world.cycle()
    await scene.settle()
    scene.ready("j-learner-0")
    scene.observe()
    scene.world.control()
    await scene.settle()
    scene.ready("j-w-0")
    scene.observe()
    scene.world.control()
    worker = next(pod for pod in scene.items(PODS) if pod["metadata"]["name"] == "j-w-0")
    before, node = scene.claim("j-w-0.gpu"), worker["spec"]["nodeName"]
    scene.store.patch(NODES, "", node, {"spec": {"unschedulable": True}})
    scene.store.delete(PODS, "default", "j-w-0", DeleteOptions(grace_s=0))
    scene.observe()
    for _ in range(4):
        scene.world.control()
        scene.world.wait_for_back_offs()
        scene.world.cycle()
        await scene.settle()
        scene.collect()
        scene.observe()
    pods = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in scene.items(PODS)}
    assert pods["j-w-0"] != node and scene.devices()["j-w-0.gpu"] == [f"{pods['j-w-0']}/gpu-0"]
    assert scene.claim("j-w-0.gpu")["metadata"]["uid"] != before["metadata"]["uid"]
    assert scene.reserved("j-w-0.gpu") == [scene.uid("j-w-0")]


@pytest.mark.parametrize(("kept", "name"), [(0, "j-w-0"), (1, "j-w-0-f1")])
async def test_a_pod_in_the_place_of_a_failed_one_gets_its_devices_again(kept: int, name: str) -> None:
    scene = Scene(workers=1, kept=kept)
    scene.world.cycle()
    await scene.settle()
    scene.ready("j-learner-0")
    scene.observe()
    scene.world.control()
    await scene.settle()
    scene.ready("j-w-0")
    scene.observe()
    scene.world.control()
    before, failed = scene.devices()["j-w-0.gpu"], scene.uid("j-w-0")
    scene.set_pod("j-w-0", phase="Failed", conditions=[])
    scene.observe()
    scene.world.pass_time(120)
    scene.world.control()
    await scene.settle()
    assert len(scene.items(PODS)) == 2, "a pod with another claim waits until that of the failed one has no devices"
    for _ in range(3):
        scene.collect()
        scene.observe()
        await scene.settle()
    assert scene.devices()[f"{name}.gpu"] == before and len(scene.devices()) == 2
    assert scene.reserved(f"{name}.gpu") == [scene.uid(name)] != [failed]


async def test_the_claims_of_an_ended_job_are_deleted_once_its_pods_are_gone() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.settle()
    scene.set_pod("j-learner-0", phase="Succeeded")
    scene.observe()
    scene.world.control()
    assert scene.record.ended
    await scene.settle()
    scene.collect()
    assert [of["metadata"]["name"] for of in scene.items(RESOURCE_CLAIMS)] == ["shared"]


async def test_a_claim_that_was_made_and_is_needed_no_more_is_deleted() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.look()
    scene.observe()
    await scene.look()
    assert scene.devices() and not scene.items(PODS)
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"suspend": True}})
    scene.observe()
    scene.world.control()
    await scene.settle()
    scene.collect()
    assert not scene.devices() and "delete j-learner-0.gpu" in scene.cluster.writes


async def test_a_claim_of_that_name_that_isnt_the_jobs_is_left_alone_and_the_job_says_so() -> None:
    scene = Scene()
    scene.store.create(RESOURCE_CLAIMS, "default", claim("j-learner-0.gpu"))
    scene.observe()
    scene.world.cycle()
    before = scene.claim("j-learner-0.gpu")
    await scene.look()
    failure = scene.record.failure
    assert failure is not None and (failure.effect, failure.code) == ("allocate", 409)
    assert "a resourceclaim named j-learner-0.gpu exists that isn't this job's" in failure.message
    assert scene.claim("j-learner-0.gpu") == before and not scene.items(PODS)


@pytest.mark.parametrize("what", ["create j-learner-0.gpu", "patch j-learner-0.gpu/status"])
async def test_a_claim_that_may_not_be_made_or_written_is_told_in_the_log(what: str) -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.refusals[what] = [ApiError(403, "Forbidden", "no rights")]
    await scene.settle()
    failure = scene.record.failure
    assert failure is not None and (failure.effect, failure.code) == ("allocate", 403) and not scene.items(PODS)


async def test_a_template_that_was_made_anew_counts_once_the_watch_has_shown_it() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.store.delete(RESOURCE_CLAIM_TEMPLATES, "default", "gpu")
    await scene.look()
    scene.store.create(RESOURCE_CLAIM_TEMPLATES, "default", claim_template("gpu", 2))
    await scene.look()
    assert not scene.cluster.writes
    scene.observe()
    scene.world.control()
    scene.world.wait_for_back_offs()
    scene.world.cycle()
    await scene.settle()
    assert len(scene.items(PODS)) == 1


async def test_a_claim_that_was_reserved_again_meanwhile_isnt_deleted() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.settle()
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"terminating": True}})
    scene.observe()
    scene.world.control()
    scene.store.delete(PODS, "default", "j-learner-0", DeleteOptions(grace_s=0))
    scene.observe()
    other = {"resource": "pods", "name": "other", "uid": "u"}
    scene.store.patch(
        RESOURCE_CLAIMS, "default", "j-learner-0.gpu", {"status": {"reservedFor": [other]}}, subresource="status"
    )
    await scene.look()
    assert not scene.claim("j-learner-0.gpu")["metadata"].get("deletionTimestamp")


async def test_a_claim_that_may_not_be_deleted_keeps_the_applier_from_nothing_else() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.settle()
    scene.set_pod("j-learner-0", phase="Succeeded")
    scene.observe()
    scene.world.control()
    scene.cluster.refusals["delete j-learner-0.gpu"] = [ApiError(403, "Forbidden", "no rights")]
    await scene.settle()
    assert scene.cluster.refusals["delete j-learner-0.gpu"] == []
    assert scene.devices() and "delete j-learner-0.gpu" not in scene.cluster.writes


async def test_without_the_setting_claims_are_left_as_they_are() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.settle()
    pods = scene.world.terms[k.Watched.POD] = scene.world.say(k.claim(k.Watched.POD, "test"))
    scene.world.say(k.ListingEnded(k.Watched.POD, pods, "1"))
    scene.set_pod("j-learner-0", phase="Succeeded")
    scene.observe()
    scene.world.control()
    assert scene.record.ended
    before = scene.claim("j-learner-0.gpu")
    await scene.settle()
    assert scene.claim("j-learner-0.gpu") == before
