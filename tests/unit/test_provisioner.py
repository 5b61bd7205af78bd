"""The provisioner: a job asks a stand-in of an autoscaler for nodes, from none, and takes its requests back."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import (
    NODES,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    TYJOBS,
    ApiError,
    Object,
    Resource,
    always,
)
from arranger.kube.provisioning import CLASS, CONSUMES, NUMBER_LABEL, provisioning_seen
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.provisioning import DEFAULT_CLASS, NodesAnswer, Provisioning
from arranger.model.validation import TYJOB
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.replay.reading.describe import describe
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import custom_kinds
from arranger.sandbox.listing import Selection
from arranger.scheduling.cycle import VERSIONS
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Progress
from arranger.workers.watching.observed import Translation, known, projected
from tests.parts import parts
from tests.provisioning import DEFINITION, Autoscaler, PendingAutoscaler, condition
from tests.stores import store_of_jobs
from tests.unit.test_applier import Everyone, Following
from tests.world import World

WATCHED: dict[k.Watched, Resource] = {
    k.Watched.NODE: NODES,
    k.Watched.POD: PODS,
    k.Watched.JOB: TYJOBS,
    k.Watched.PROVISIONING: PROVISIONING_REQUESTS,
}
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
TEMPLATE = {"metadata": {"labels": {"app": "rl"}}, "spec": {"nodeSelector": {"pool": "gpu"}, "containers": [CONTAINER]}}
JOB: Object = {
    "apiVersion": TYJOBS.api_version,
    "kind": TYJOBS.kind,
    "metadata": {"name": "j"},
    "spec": {
        "leader": {"name": "learner", "template": TEMPLATE},
        "workerSets": [{"name": "actors", "counts": 3, "template": TEMPLATE}],
        "minWorkersNum": 2,
    },
}


class Refusing(DirectCluster):
    """A cluster that refuses to create objects of a kind."""

    refused: Resource | None = None

    async def create(self, resource: Resource, namespace: Any, body: Any, *, still: Callable[[], bool] = always) -> Any:
        if resource == self.refused:
            raise ApiError(403, "Forbidden", "not you")
        return await super().create(resource, namespace, body, still=still)


class Appended:
    """A writer that keeps what is appended."""

    def __init__(self) -> None:
        self.events: list[k.Event] = []

    async def append(self, events: list[k.Event]) -> None:
        self.events += events


class Scene:
    """A store without nodes and with one TYJob, its log, an applier and an autoscaler."""

    def __init__(self, *, fails: int = 0, of: Provisioning = Provisioning.REQUEST) -> None:
        self.store = store_of_jobs(time.time)
        kinds = custom_kinds(DEFINITION)
        self.store.collections[kinds[0].key] = Collection(kinds, 1000)
        self.store.create(TYJOBS, "default", msgspec.json.decode(msgspec.json.encode(JOB)))
        self.cluster = Refusing(self.store)
        pending = of == Provisioning.PENDING
        self.autoscaler = PendingAutoscaler(self.cluster) if pending else Autoscaler(self.cluster, fails=fails)
        self.world = World(config=CycleConfig(versions=VERSIONS, provisioning=of))
        self.world.lifecycle = LifecycleConfig(provisioning=of)
        self.world._watch(k.Watched.PROVISIONING)
        self.following = Following(self.world.state)
        settings = {"provisioning": of.value}
        given = {"follower": self.following, "membership": Everyone(), "settings": settings}
        self.refusals = Appended()
        self.applier = Applier(parts(cluster=self.cluster, writer=self.refusals, **given))
        self.observe()

    @property
    def job(self) -> JobRecord:
        return next(iter(self.world.state.jobs.values()))

    def there(self, resource: Resource) -> list[Object]:
        found = self.store.page(resource, Selection(), limit=100, continuation="").items
        return [msgspec.json.decode(stored.raw) for stored in found]

    def observe(self) -> None:
        """The watches bring everything as it is now."""
        for kind, resource in WATCHED.items():
            term, items = self.world.terms[kind], self.there(resource)
            seen = [Translation(kind, term, TYJOB).seen(item, self.world.state) for item in items]
            uids = {event.uid for event in seen}
            gone = [event for uid, event in projected(self.world.state, kind, term) if uid not in uids]
            events = [event for event in seen if not known(self.world.state, event)] + gone
            if events:
                self.world.say(*events)

    async def step(self, *, autoscales: bool = True) -> None:
        """Every role works once."""
        while self.world.cycle() or self.world.control():
            pass
        validate(self.world.state)
        job = self.job
        await self.applier._look(job.uid, job)
        if autoscales:
            await self.autoscaler.look()
        self.observe()

    async def until(self, is_so: Callable[[], bool], **how: Any) -> None:
        for _ in range(30):
            if is_so():
                return
            await self.step(**how)
        raise AssertionError("still not so")

    def names(self) -> list[str]:
        return sorted(of["metadata"]["name"] for of in self.there(PROVISIONING_REQUESTS))

    def run_pods(self) -> None:
        for pod in self.there(PODS):
            status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
            self.store.patch(PODS, "default", pod["metadata"]["name"], {"status": status}, subresource="status")
        self.observe()


async def test_a_job_starts_from_no_node_and_is_never_split_over_half_of_its_nodes() -> None:
    scene = Scene()
    await scene.until(lambda: bool(scene.there(NODES)))
    while len(scene.there(NODES)) < 3:
        await scene.step()
        assert not scene.there(PODS) and not scene.job.placements
    await scene.until(lambda: scene.job.stage == Stage.STARTING and len(scene.there(PODS)) == 1)
    scene.run_pods()  # the leader, and then the workers
    await scene.until(lambda: len(scene.there(PODS)) == 3)
    (name,) = scene.names()
    for pod in scene.there(PODS):
        annotations = pod["metadata"]["annotations"]
        assert (annotations[CONSUMES], annotations[CLASS]) == (name, DEFAULT_CLASS)
    scene.run_pods()
    await scene.until(lambda: scene.job.stage == Stage.RUNNING)
    await scene.step()
    assert scene.names() == [name], "its pods name it"


async def test_a_request_names_the_pods_of_the_quorum_as_they_will_be() -> None:
    scene = Scene()
    await scene.until(lambda: len(scene.there(POD_TEMPLATES)) == 2, autoscales=False)
    (request,) = scene.there(PROVISIONING_REQUESTS)
    owner = request["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TYJob", scene.job.uid, True)
    name = request["metadata"]["name"]
    sets = [{"podTemplateRef": {"name": f"{name}-{group}"}, "count": count} for group, count in ((0, 1), (1, 2))]
    assert request["spec"] == {"provisioningClassName": DEFAULT_CLASS, "podSets": sets}
    for template in scene.there(POD_TEMPLATES):
        assert template["metadata"]["ownerReferences"][0]["uid"] == request["metadata"]["uid"]
        of = template["template"]
        assert of["spec"]["nodeSelector"] == {"pool": "gpu"} and "nodeName" not in of["spec"]
        assert of["metadata"]["labels"]["app"] == "rl" and of["metadata"]["labels"]["arranger.dev/job"] == "j"


async def test_a_failed_request_is_replaced_by_another_one() -> None:
    scene = Scene(fails=1)
    await scene.until(lambda: scene.autoscaler.fails == 0)
    (first,) = scene.names()
    await scene.step()
    assert scene.names() == [first] and "no capacity" in str(scene.there(TYJOBS)[0]["status"]["message"])
    scene.world.pass_time(10)
    await scene.until(lambda: first not in scene.names())
    await scene.until(lambda: scene.job.stage == Stage.STARTING)
    assert len(scene.names()) == 1


@pytest.mark.parametrize("how", ["suspended", "placed", "ended"])
async def test_a_request_that_is_not_needed_any_more_is_deleted(how: str) -> None:
    scene = Scene()
    await scene.until(lambda: bool(scene.there(POD_TEMPLATES)), autoscales=False)
    if how == "placed":
        status = {"allocatable": {"cpu": "64", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}
        scene.store.create(NODES, "", {"metadata": {"name": "n", "labels": {"pool": "gpu"}}, "status": status})
        scene.store.patch(NODES, "", "n", {"spec": {"taints": None}})
    else:
        field = "suspend" if how == "suspended" else "terminating"
        scene.store.patch(TYJOBS, "default", "j", {"spec": {field: True}})
    scene.observe()
    await scene.until(lambda: not scene.names(), autoscales=False)
    assert (scene.job.stage == Stage.STARTING) == (how == "placed")


async def test_a_request_that_somebody_deletes_is_made_anew_and_one_of_others_is_left_alone() -> None:
    scene = Scene()
    spec = {"provisioningClassName": "of.others", "podSets": [{"count": 1, "podTemplateRef": {"name": "t"}}]}
    kind = {"apiVersion": PROVISIONING_REQUESTS.api_version, "kind": PROVISIONING_REQUESTS.kind}
    others = {**kind, "metadata": {"name": "others"}, "spec": spec}
    await scene.cluster.create(PROVISIONING_REQUESTS, "default", others)
    scene.observe()
    assert not scene.world.state.seen_requests, "the log has only those of jobs"
    await scene.until(lambda: len(scene.names()) == 2, autoscales=False)
    (ours,) = [name for name in scene.names() if name != "others"]
    await scene.step(autoscales=False)
    await scene.cluster.delete(PROVISIONING_REQUESTS, "default", ours)
    scene.observe()
    await scene.until(lambda: len(scene.names()) == 2, autoscales=False)
    assert "others" in scene.names() and ours not in scene.names()


@pytest.mark.parametrize("refused", [PROVISIONING_REQUESTS, POD_TEMPLATES])
async def test_a_request_that_the_api_server_refuses_failed_and_is_made_again(refused: Resource) -> None:
    scene = Scene()
    scene.cluster.refused = refused
    await scene.until(lambda: bool(scene.refusals.events), autoscales=False)
    scene.world.say(*scene.refusals.events)
    for _ in range(3):
        await scene.step(autoscales=False)
    assert len(scene.refusals.events) == 1, "it is told once"
    assert "the API server refuses it: not you" in str(scene.there(TYJOBS)[0]["status"]["message"])
    scene.world.pass_time(10)
    scene.cluster.refused = None
    await scene.until(lambda: scene.job.stage == Stage.STARTING)
    (name,) = scene.names()
    assert name.endswith("-2")


async def test_another_applier_finds_what_the_first_one_has_made() -> None:
    scene = Scene()
    await scene.until(lambda: bool(scene.there(PROVISIONING_REQUESTS)), autoscales=False)
    for of in scene.there(POD_TEMPLATES):  # the first one died before it had made them
        await scene.cluster.delete(POD_TEMPLATES, "default", of["metadata"]["name"])
    scene.applier._progress[scene.job.uid] = Progress()
    await scene.until(lambda: len(scene.there(POD_TEMPLATES)) == 2, autoscales=False)
    assert len(scene.names()) == 1


def seen(*conditions: Object, owner: Object | None = None, number: str = "3") -> k.ProvisioningSeen:
    job = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": "of-j", "controller": True}
    metadata = {"name": "r", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {NUMBER_LABEL: number}}
    return provisioning_seen(
        {
            "metadata": {**metadata, "ownerReferences": [owner or job]},
            "spec": {"provisioningClassName": "c"},
            "status": {"conditions": list(conditions)},
        },
        5,
    )


@pytest.mark.parametrize(
    ("kinds", "answer"),
    [
        ((), NodesAnswer.NONE),
        (("Accepted",), NodesAnswer.ACCEPTED),
        (("Accepted", "Provisioned"), NodesAnswer.PROVISIONED),
        (("Accepted", "Provisioned", "BookingExpired"), NodesAnswer.BOOKING_EXPIRED),
        (("Provisioned", "CapacityRevoked"), NodesAnswer.CAPACITY_REVOKED),
        (("Accepted", "Failed"), NodesAnswer.FAILED),
        (("Unknown",), NodesAnswer.NONE),
    ],
)
def test_the_last_word_among_the_conditions_is_the_answer(kinds: tuple[str, ...], answer: NodesAnswer) -> None:
    told = [condition(kind, f"of {kind}")["status"]["conditions"][0] for kind in kinds]
    not_so = {"type": "Failed", "status": "False", "message": ""}
    found = seen(*told, not_so)
    assert (found.job_uid, found.number, found.class_name, found.answer) == ("of-j", 3, "c", answer)
    assert found.message == (f"of {answer}" if answer else "")


@pytest.mark.parametrize("number", ["", "x", "-1", "²", "9" * 20])
def test_a_request_without_a_right_number_is_of_others(number: str) -> None:
    assert (seen(number=number).job_uid, seen(number=number).number) == ("", 0)
    other = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "of-j", "controller": True}
    assert seen(owner=other).job_uid == ""


def test_the_events_say_what_was_asked_and_answered() -> None:
    scene = Scene()
    scene.world.cycle()
    (asked,) = scene.world.control()
    words = f"request 1 to an autoscaler, of class {DEFAULT_CLASS}: nodes for 1 learner, 2 actors"
    assert describe(asked, scene.world.state) == words
    failed = seen(condition("Failed", "no capacity")["status"]["conditions"][0])
    assert describe(failed, scene.world.state) == "class c, Failed: no capacity"
