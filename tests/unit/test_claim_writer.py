"""Claims that wait for their first pod: a node is selected, and a pod comes once its volume is there."""

from typing import Any

import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.kube.cluster import CLAIMS, NODES, PODS, STORAGE_CLASSES, TYJOBS, VOLUMES, ApiError, Object, Resource
from arranger.kube.translate import job_seen, node_seen, pod_seen
from arranger.kube.volumes import SELECTED_NODE, claim_seen, storage_class_seen, volume_seen
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.messages.readiness import claims_text
from arranger.model.job import Stage
from arranger.model.pods_to_place import record_of
from arranger.model.stages import StageReason
from arranger.model.text import rfc3339
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.awaited import What, awaited
from arranger.replay.reading.describe import message_of
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress
from arranger.workers.applying.objects import claim_writer
from tests.parts import parts
from tests.provisioner import CLASS, claim, provision
from tests.stores import store_of_jobs
from tests.unit.test_applier import Everyone, Following
from tests.volumes import VolumeWorld

VOLUMES_OF_POD = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
SPEC = {"containers": [{"name": "c", "image": "i"}], "volumes": VOLUMES_OF_POD}
OWN_VOLUME = [{"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}]


def tyjob(volumes: list[Any]) -> Object:
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    leader = {"name": "learner", "template": {"spec": spec}}
    return {"metadata": {"name": "j"}, "spec": {"minWorkersNum": 0, "leader": leader, "workerSets": []}}


class Recorded:
    """The applier's writer, which appends to the world's log at once."""

    def __init__(self, world: VolumeWorld) -> None:
        self.world = world

    async def append(self, events: list[k.Event]) -> None:
        self.world.say(*events)


class WorldClock(SystemClock):
    """Shows the time of a world."""

    def __init__(self, world: VolumeWorld) -> None:
        self.world = world

    def now_ms(self) -> int:
        return self.world.now_ms


class Scene:
    """Nodes n1 and n2, a claim `data`, the pod `web` or the TYJob `j` that names it, and an applier."""

    def __init__(self, *, of_pods: bool, volumes: list[Any] = VOLUMES_OF_POD) -> None:
        self.of_pods = of_pods
        self.store = store_of_jobs()
        status = {"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n1", "n2"):
            self.store.create(NODES, "", {"metadata": {"name": name}, "status": status})
            self.store.patch(NODES, "", name, {"spec": {"taints": None}})
        self.store.create(STORAGE_CLASSES, "", CLASS)
        self.store.create(CLAIMS, "default", claim("data"))
        if of_pods:
            spec = {**SPEC, "schedulerName": "arranger"}
            self.store.create(PODS, "default", {"metadata": {"name": "web"}, "spec": spec})
        else:
            self.store.create(TYJOBS, "default", {"apiVersion": "arranger.dev/v1", "kind": "TYJob", **tyjob(volumes)})
        self.cluster = DirectCluster(self.store)
        self.world = VolumeWorld()
        self.observe()
        self.following = Following(self.world.state)
        self.applier = self.applier_with()

    def applier_with(self, **settings: Any) -> Applier:
        given = {"cluster": self.cluster, "follower": self.following, "membership": Everyone()}
        clock, writer = WorldClock(self.world), Recorded(self.world)
        return Applier(parts(clock=clock, writer=writer, settings=settings, **given))

    def items(self, resource: Resource) -> list[Object]:
        return [of.object for of in self.store.page(resource, Selection(), limit=20, continuation="").items]

    def observe(self) -> None:
        """The watches bring all objects as they are now."""
        terms, say = self.world.terms, self.world.say
        for node in self.items(NODES):
            say(node_seen(node, terms[k.Watched.NODE]))
        for of_class in self.items(STORAGE_CLASSES):
            say(storage_class_seen(of_class, terms[k.Watched.STORAGE_CLASS]))
        for volume in self.items(VOLUMES):
            say(volume_seen(volume, terms[k.Watched.VOLUME]))
        for one in self.items(CLAIMS):
            say(claim_seen(one, terms[k.Watched.CLAIM]))
        for pod in self.items(PODS):
            say(pod_seen(pod, terms[k.Watched.POD], ("arranger",), with_volumes=True))
        for job in self.items(TYJOBS):
            say(job_seen(job, terms[k.Watched.JOB], with_status=True))

    @property
    def record(self) -> JobRecord:
        jobs = self.world.state.jobs
        return jobs[record_of(self.items(PODS)[0]["metadata"]["uid"])] if self.of_pods else next(iter(jobs.values()))

    def decide(self) -> None:
        """A cycle and the controllers decide."""
        self.world.cycle()
        self.world.control()

    async def look(self) -> None:
        progress = self.applier._progress.setdefault(self.record.uid, Progress())
        look = Look(self.following, self.record, progress)  # type: ignore[arg-type]
        await (self.applier._pods.binder.look(look) if self.of_pods else self.applier._pods.reconciler.reconcile(look))

    def selected(self) -> str:
        return str((self.items(CLAIMS)[0]["metadata"].get("annotations") or {}).get(SELECTED_NODE) or "")

    def on(self) -> list[str]:
        """The nodes of the pods that have one."""
        return [pod["spec"]["nodeName"] for pod in self.items(PODS) if pod["spec"].get("nodeName")]


@pytest.fixture(params=[True, False], ids=["a pod to place", "a TYJob"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(of_pods=request.param)


async def test_a_pod_comes_once_the_volume_was_made_for_its_node(scene: Scene) -> None:
    scene.decide()
    (node,) = scene.record.placements.values()
    await scene.look()
    assert (scene.selected(), scene.on()) == (node, []), "no pod before its volume"
    version = scene.items(CLAIMS)[0]["metadata"]["resourceVersion"]
    await scene.look()
    assert scene.items(CLAIMS)[0]["metadata"]["resourceVersion"] == version, "not repeated before the watch shows it"
    scene.observe()
    await scene.look()
    assert scene.on() == []
    assert await provision(scene.cluster) == 1
    scene.observe()
    await scene.look()
    assert scene.on() == [node]


async def test_a_claim_that_is_being_bound_and_a_volume_that_no_watch_shows_yet_close_no_node(scene: Scene) -> None:
    scene.decide()
    nodes = scene.record.placements.copy()
    await scene.look()
    scene.observe()
    await provision(scene.cluster)
    (bound,), claims = scene.items(CLAIMS), scene.world.terms[k.Watched.CLAIM]
    for one in ({**bound, "status": {"phase": "Pending"}}, bound):  # the volume's watch is behind
        scene.world.say(claim_seen(one, claims))
        assert scene.world.control() == []
        await scene.look()
        assert scene.on() == [] and scene.record.placements == nodes
    scene.observe()
    await scene.look()
    assert scene.on() == list(nodes.values())


async def test_a_provisioner_that_refuses_a_node_makes_the_scheduler_choose_another(scene: Scene) -> None:
    scene.decide()
    (first,) = scene.record.placements.values()
    await scene.look()
    scene.observe()
    assert await provision(scene.cluster, full=[first]) == 1
    scene.observe()
    await scene.look()
    assert scene.record.failure is not None
    assert scene.record.failure.message == f"no volume could be made for claim data on node {first}"
    await scene.look()
    assert scene.selected() == "", "the node isn't asked for again"
    scene.world.control()
    assert not scene.record.placements
    scene.world.wait_for_back_offs()
    scene.decide()
    (second,) = scene.record.placements.values()
    assert second != first
    await scene.look()
    assert scene.selected() == second
    assert await provision(scene.cluster, full=[first]) == 1
    scene.observe()
    await scene.look()
    assert scene.on() == [second]


async def test_a_provisioner_that_says_nothing_in_time_loses_the_node(scene: Scene) -> None:
    scene.decide()
    (first,) = scene.record.placements.values()
    await scene.look()
    scene.observe()
    for seconds, selected in ((599, first), (1, "")):
        scene.world.pass_time(seconds)
        await scene.look()
        assert scene.selected() == selected
    failure = scene.record.failure
    assert failure is not None and (failure.effect, failure.code, failure.reason) == ("provision", 0, "VolumeTimeout")
    assert failure.message == f"claim data wasn't bound on node {first} within 600 s"
    await scene.look()
    assert scene.selected() == "", "told once, and the node isn't asked for again"
    scene.observe()
    scene.world.control()
    assert not scene.record.placements
    assert scene.record.decided is not None and "wasn't bound on node" in stage_text(scene.record.decided)
    scene.world.wait_for_back_offs()
    scene.decide()
    (second,) = scene.record.placements.values()
    assert second != first
    await scene.look()
    assert scene.selected() == second and scene.record.failure is None
    await provision(scene.cluster)
    scene.observe()
    await scene.look()
    assert scene.on() == [second]


async def test_a_volume_that_comes_too_late_is_followed_by_its_pod(scene: Scene) -> None:
    scene.decide()
    (first,) = scene.record.placements.values()
    await scene.look()
    scene.observe()
    (asked,) = scene.items(CLAIMS)
    scene.world.pass_time(600)
    await scene.look()
    assert scene.selected() == ""
    scene.store.patch(CLAIMS, "default", "data", {"metadata": {"annotations": asked["metadata"]["annotations"]}})
    await provision(scene.cluster)  # it began before the node was given up
    scene.observe()
    scene.world.control()
    scene.world.pass_time(120)  # the node is avoided for a while
    scene.world.wait_for_back_offs()
    scene.decide()
    await scene.look()
    assert scene.on() == [first]


async def test_a_node_that_another_one_selected_in_vain_is_replaced_by_that_of_the_pod(scene: Scene) -> None:
    scene.decide()
    (own,) = scene.record.placements.values()
    (other,) = {"n1", "n2"} - {own}
    scene.store.patch(CLAIMS, "default", "data", {"metadata": {"annotations": {SELECTED_NODE: other}}})
    scene.observe()
    await scene.look()
    assert scene.selected() == other
    scene.world.pass_time(600)
    await scene.look()
    assert scene.selected() == "" and scene.record.failure is None
    scene.observe()
    await scene.look()
    assert scene.selected() == own


async def test_without_a_limit_a_node_is_never_given_up(scene: Scene) -> None:
    scene.applier = scene.applier_with(volume_timeout_s=0)
    scene.decide()
    await scene.look()
    scene.observe()
    scene.world.pass_time(10**6)
    await scene.look()
    assert scene.selected() and scene.record.failure is None


async def test_it_is_told_which_claim_is_waited_for_on_which_node_and_since_when(scene: Scene) -> None:
    scene.decide()
    (node,) = scene.record.placements.values()
    assert claims_text(scene.world.state, scene.record) == f"waits until claim data is to be bound on node {node}"
    await scene.look()
    scene.observe()
    since = rfc3339(scene.world.state.time_ms)
    scene.world.pass_time(60)
    scene.observe()  # it is seen again as it was
    told = f"waits for claim data to be bound on node {node}, since {since}"
    assert claims_text(scene.world.state, scene.record) == message_of(scene.world.state, scene.record) == told
    if not scene.of_pods:
        assert desired_status(scene.world.state, scene.record)["message"] == told
    assert awaited(scene.world.state, scene.record).what == What.VOLUMES
    restored = snapshot.restore(snapshot.encode(scene.world.state))
    assert claims_text(restored, restored.jobs[scene.record.uid]) == told
    assert snapshot.digest(restored) == snapshot.digest(scene.world.state)
    await provision(scene.cluster)
    scene.observe()
    assert claims_text(scene.world.state, scene.record) == "" and not scene.world.state.volumes.selected_ms


async def test_a_node_is_selected_again_if_no_watch_shows_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_writer, "SETTLE_S", 0.0)
    scene.decide()
    await scene.look()
    selected = scene.selected()
    await scene.look()  # refused, because the claim has changed: the watch will show it
    assert scene.selected() == selected and scene.record.failure is None


async def test_a_claim_that_is_deleted_in_between_gives_the_nodes_back_and_loses_nothing(scene: Scene) -> None:
    scene.decide()
    await scene.look()
    uid = scene.items(CLAIMS)[0]["metadata"]["uid"]
    scene.store.delete(CLAIMS, "default", "data")
    await scene.look()
    scene.world.claim_gone("data", uid=uid)
    scene.world.control()
    assert not scene.record.placements and scene.on() == []
    assert scene.record.decided is not None and scene.record.decided.reason == StageReason.NODE_CLOSED
    assert "can't be used with claim data any more" in stage_text(scene.record.decided)
    scene.store.create(CLAIMS, "default", claim("data"))
    scene.observe()
    scene.world.wait_for_back_offs()
    scene.decide()
    await scene.look()
    assert scene.selected() and scene.record.stage == Stage.STARTING


async def test_a_node_that_another_one_selected_is_taken_once_the_volume_is_there(scene: Scene) -> None:
    scene.decide()
    (first,) = scene.record.placements.values()
    (other,) = {"n1", "n2"} - {first}
    scene.store.patch(CLAIMS, "default", "data", {"metadata": {"annotations": {SELECTED_NODE: other}}})
    await scene.look()
    assert scene.selected() == other, "the claim isn't as it was observed"
    scene.observe()
    await provision(scene.cluster)
    scene.observe()
    await scene.look()
    assert scene.on() == []
    scene.world.control()
    scene.world.wait_for_back_offs()
    scene.decide()
    await scene.look()
    assert scene.on() == [other]


async def test_a_refused_right_is_told_and_given_up_like_that_of_a_pod(scene: Scene) -> None:
    async def refuse(*_: Any, **__: Any) -> Object:
        raise ApiError(403, "Forbidden", "cannot patch persistentvolumeclaims")

    scene.decide()
    scene.cluster.patch = refuse  # type: ignore[method-assign]
    await scene.look()
    failure = scene.record.failure
    assert failure is not None and (failure.effect, failure.code) == ("provision", 403)
    assert scene.record.placements, "it may be given meanwhile"


async def test_the_own_volume_of_a_running_pod_is_made_for_its_node() -> None:
    scene = Scene(of_pods=False, volumes=OWN_VOLUME)
    scene.decide()
    await scene.look()
    (node,) = scene.on()
    (pod,) = scene.items(PODS)
    own = claim(f"{pod['metadata']['name']}-own")
    scene.store.delete(CLAIMS, "default", "data")
    scene.store.create(CLAIMS, "default", own)  # as the controller of ephemeral volumes does
    scene.observe()
    await scene.look()
    assert scene.selected() == node


async def test_a_tyjob_that_was_never_valid_has_no_claims_to_serve() -> None:
    scene = Scene(of_pods=False)
    metadata, unnamed = {"name": "wrong", "namespace": "default", "uid": "wrong", "generation": 1}, {"spec": SPEC}
    leader = {"name": "no DNS label", "template": unnamed}
    wrong = {"metadata": metadata, "spec": {"minWorkersNum": 0, "leader": leader, "workerSets": []}}
    scene.world.say(job_seen(wrong, scene.world.terms[k.Watched.JOB], with_status=True))
    job = scene.world.state.jobs["wrong"]
    assert job.spec is None
    await scene.applier._pods.reconciler.reconcile(Look(scene.following, job, Progress()))  # type: ignore[arg-type]
    assert not scene.items(PODS)
