"""The binder: pods of others get the node that was decided, once, or say why they wait."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.facts import NodeLost, PodsRefused
from arranger.kube.cluster import EVENTS, PODS, ApiError, Object, Withdrawn, always
from arranger.kube.translate import pod_seen
from arranger.model.job import Stage
from arranger.model.pods_to_place import SLOT, record_of
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress
from tests.parts import parts
from tests.stores import store_of_jobs
from tests.unit.test_applier import Everyone, Following, until
from tests.world import World


class Ahead(SystemClock):
    """A clock that a test sets ahead."""

    passed_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_s


class Binding(DirectCluster):
    """A cluster that counts bindings and patches. The next bindings are refused with these errors, `late` happens
    during one, and `telling` during a patch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.bindings = self.patches = 0
        self.refusals: list[ApiError] = []
        self.late: Callable[[], None] | None = None
        self.telling: Callable[[], None] | None = None

    async def patch(self, *arguments: Any, **more: Any) -> Object:
        self.patches += 1
        if self.telling is not None:
            self.telling()
        return await super().patch(*arguments, **more)

    async def bind(self, namespace: str, name: str, *, uid: str, node: str, still: Callable[[], bool] = always) -> None:
        self.bindings += 1
        if self.late is not None:
            self.late()
        if self.refusals:
            raise self.refusals.pop(0)
        await super().bind(namespace, name, uid=uid, node=node, still=still)


class Writer:
    """A writer whose events the projection has at once."""

    def __init__(self, world: World) -> None:
        self.written: list[k.Event] = []
        self._world = world

    async def append(self, events: list[k.Event]) -> None:
        self.written.extend(events)
        self._world.say(*events)


class Looking:
    """An applier and the record of the pods that it binds."""

    applier: Applier
    following: Following

    @property
    def record(self) -> JobRecord:
        raise NotImplementedError

    async def look(self) -> None:
        """The applier looks at the record once."""
        progress = self.applier._progress.setdefault(self.record.uid, Progress())
        await self.applier._pods.binder.look(Look(self.following, self.record, progress))  # type: ignore[arg-type]

    async def run(self, until_so: Callable[[], bool]) -> None:
        """The applier runs until something is so."""
        task = asyncio.create_task(self.applier.run())
        self.applier.changed(Changes(jobs={self.record.uid: None}))
        await until(until_so)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Scene(Looking):
    """A store with the pod `web` that names Arranger, a log that has seen it and a node, and an applier."""

    def __init__(self, *, cpu: float = 4, **spec: Any) -> None:
        self.store = store_of_jobs()
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        made = {"schedulerName": "arranger", "containers": [container], **spec}
        self.store.create(PODS, "default", {"metadata": {"name": "web"}, "spec": made})
        self.cluster = Binding(self.store)
        self.world = World()
        self.world.node("n1", cpu=cpu)
        self.observe()
        self.following = Following(self.world.state)
        self.parts = parts(cluster=self.cluster, follower=self.following, membership=Everyone())
        self.applier = Applier(self.parts)

    @property
    def pod(self) -> Object:
        found: Object = msgspec.json.decode(self.store.get(PODS, "default", "web").raw)
        return found

    @property
    def record(self) -> JobRecord:
        return self.world.state.jobs[record_of(self.pod["metadata"]["uid"])]

    @property
    def condition(self) -> Object:
        conditions = self.pod["status"].get("conditions") or ()
        return next((of for of in conditions if of["type"] == "PodScheduled"), {})

    def observe(self) -> None:
        self.world.say(pod_seen(self.pod, self.world.terms[k.Watched.POD], ("arranger",)))

    def events(self) -> dict[str, Object]:
        """Reason → Event."""
        found = self.store.page(EVENTS, Selection(), limit=20, continuation="").items
        return {of.object["reason"]: of.object for of in found}


async def test_a_pod_is_bound_to_its_node_and_an_event_says_so() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.run(lambda: "Scheduled" in scene.events())
    assert scene.pod["spec"]["nodeName"] == "n1"
    event = scene.events()["Scheduled"]
    assert (event["message"], event["type"]) == ("bound default/web to n1", "Normal")
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["uid"]) == ("Pod", "web", scene.pod["metadata"]["uid"])


async def test_a_binding_is_not_repeated_before_the_watch_shows_it() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.look()
    await scene.look()
    assert scene.cluster.bindings == 1


async def test_a_binding_whose_decision_was_taken_back_meanwhile_is_not_sent() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.late = lambda: (scene.world.node("n1", cordoned=True), scene.world.control(), None)[-1]
    await scene.look()
    assert scene.cluster.bindings == 1 and "nodeName" not in scene.pod["spec"]


async def test_nothing_is_bound_while_the_state_is_not_fresh() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.following.is_fresh = False
    await scene.look()
    assert scene.cluster.bindings == 0


async def test_a_node_that_closed_gets_no_pod_even_before_that_was_decided() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.world.node("n1", cordoned=True)
    await scene.look()
    assert scene.cluster.bindings == 0


async def test_a_pod_that_another_bound_is_left_to_the_watch() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.store.bind("default", "web", "n9")
    await scene.look()
    assert scene.record.failure is None
    scene.observe()
    assert scene.record.placements == {SLOT: "n9"}


async def test_a_refused_binding_is_recorded_tried_again_and_then_gives_the_node_up() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.applier._pods.creation._writer = writer = Writer(scene.world)  # type: ignore[assignment]
    scene.cluster.refusals = [ApiError(403, "Forbidden", "may not create pods/binding")]
    await scene.look()
    (failed,) = writer.written
    assert isinstance(failed, k.EffectFailed) and (failed.effect, failed.code) == ("bind", 403)
    assert scene.world.control() == []
    scene.world.pass_time(scene.world.lifecycle.refused_ms / 1000)
    (decided,) = scene.world.control()
    assert isinstance(decided, k.StageDecided) and decided.back_off_ms and not scene.record.placements
    assert scene.world.cycle() == ()
    scene.world.wait_for_back_offs()
    scene.world.cycle()
    await scene.look()
    assert scene.pod["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize("problem", [ApiError(429, "TooManyRequests", "wait"), ApiError(500, "InternalError", "oh")])
async def test_a_busy_server_is_asked_again(problem: ApiError) -> None:
    scene = Scene()
    scene.world.cycle()
    scene.cluster.refusals = [problem]
    with pytest.raises(ApiError):
        await scene.look()
    await scene.look()
    assert scene.pod["spec"]["nodeName"] == "n1"


async def test_a_waiting_pod_says_why_in_its_condition_and_in_an_event() -> None:
    scene = Scene(cpu=0.5)
    scene.world.cycle()
    await scene.run(lambda: "FailedScheduling" in scene.events())
    found = scene.condition
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    assert "insufficient cpu (needs 1, at most 500m free)" in found["message"]
    assert scene.events()["FailedScheduling"]["message"] == found["message"]
    assert scene.events()["FailedScheduling"]["involvedObject"]["name"] == "web"


async def test_conditions_of_others_stay_and_equal_words_are_written_once() -> None:
    scene = Scene(cpu=0.5)
    mine = {"type": "example.com/Checked", "status": "True"}
    scene.store.patch(PODS, "default", "web", {"status": {"conditions": [mine]}}, subresource="status")
    scene.world.cycle()
    await scene.look()
    version = scene.pod["metadata"]["resourceVersion"]
    assert {of["type"] for of in scene.pod["status"]["conditions"]} == {"example.com/Checked", "PodScheduled"}
    scene.applier._progress.clear()  # another process, or this one after a restart
    await scene.look()
    assert scene.pod["metadata"]["resourceVersion"] == version


async def test_a_pod_that_cannot_use_its_queue_says_so() -> None:
    scene = Scene()
    scene.world.watch_queues()
    scene.world.namespace("default", queue="robots")
    assert scene.world.cycle() == ()
    await scene.run(lambda: "WaitsForQueue" in scene.events())
    assert (
        "waits for queue robots, which the annotation arranger.dev/queue of namespace default names and"
        in scene.condition["message"]
    )


async def test_a_gated_pod_keeps_the_words_of_the_api_server() -> None:
    scene = Scene(schedulingGates=[{"name": "example.com/later"}])
    scene.world.cycle()
    await scene.look()
    assert scene.condition["reason"] == "SchedulingGated" and scene.cluster.bindings == 0


async def test_a_pod_with_resource_claims_is_told_that_nobody_allocates_them() -> None:
    scene = Scene(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    assert scene.world.cycle() == ()
    await scene.run(lambda: "message" in scene.condition)
    assert scene.condition["reason"] == "Unschedulable" and scene.cluster.bindings == 0
    assert "1 resource claim (gpu), and the setting devices is off" in scene.condition["message"]


async def test_a_pod_of_others_is_never_deleted() -> None:
    scene = Scene()
    scene.world.cycle()
    await scene.run(lambda: "nodeName" in scene.pod["spec"])
    scene.observe()
    scene.applier.changed(Changes(jobs={scene.record.uid: None}))
    await scene.run(lambda: True)
    assert "deletionTimestamp" not in scene.pod["metadata"]


async def test_a_request_that_is_not_needed_any_more_is_not_sent() -> None:
    scene = Scene()
    uid = scene.pod["metadata"]["uid"]
    with pytest.raises(Withdrawn):
        await DirectCluster(scene.store).bind("default", "web", uid=uid, node="n1", still=lambda: False)
    assert "nodeName" not in scene.pod["spec"]


# --- groups ------------------------------------------------------------------------------------------------------


class Group(Looking):
    """A store with the pods `p0`, `p1`, … of the group `train`, which needs `least` of them, and an applier."""

    def __init__(self, count: int, *, least: int) -> None:
        self.store = store_of_jobs()
        self.least = least
        self.cluster = Binding(self.store)
        self.world = World()
        self.world.node("n1", cpu=4)
        for number in range(count):
            self.come(number)
        self.observe()
        following = Following(self.world.state)
        self.following = following
        self.clock = Ahead()
        made = parts(cluster=self.cluster, follower=following, membership=Everyone(), clock=self.clock)
        self.applier = Applier(made)

    def come(self, number: int) -> None:
        labels = {
            "pod-group.scheduling.sigs.k8s.io/name": "train",
            "pod-group.scheduling.sigs.k8s.io/min-available": str(self.least),
        }
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "arranger", "containers": [container]}
        self.store.create(PODS, "default", {"metadata": {"name": f"p{number}", "labels": labels}, "spec": spec})

    @property
    def pods(self) -> dict[str, Object]:
        found = self.store.collection(PODS).objects
        return {name: stored.object for (_, name), stored in sorted(found.items())}

    @property
    def record(self) -> JobRecord:
        return self.world.state.jobs["group:default/train"]

    def nodes(self) -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in self.pods.values()]

    def messages(self) -> list[str]:
        """The messages of their conditions PodScheduled that have one: a bound pod's has none."""
        conditions = [of for pod in self.pods.values() for of in pod["status"].get("conditions") or ()]
        return [of["message"] for of in conditions if of["type"] == "PodScheduled" and of.get("message")]

    def observe(self) -> None:
        for pod in self.pods.values():
            self.world.say(pod_seen(pod, self.world.terms[k.Watched.POD], ("arranger",)))

    def events(self) -> list[Object]:
        return [of.object for of in self.store.page(EVENTS, Selection(), limit=20, continuation="").items]


async def test_all_pods_of_a_group_are_bound_and_an_event_on_each_says_so() -> None:
    group = Group(3, least=3)
    group.world.cycle()
    await group.run(lambda: len(group.events()) == 3)
    assert group.nodes() == ["n1", "n1", "n1"] and group.cluster.bindings == 3
    about = {(of["involvedObject"]["name"], of["reason"], of["message"]) for of in group.events()}
    assert about == {(name, "Scheduled", f"bound default/{name} to n1") for name in ("p0", "p1", "p2")}
    group.observe()
    assert group.record.stage == Stage.RUNNING


async def test_only_the_pods_of_a_group_that_werent_bound_are_bound_again() -> None:
    group = Group(3, least=3)
    group.world.cycle()
    group.cluster.refusals = [ApiError(500, "InternalError", "oh")]
    with pytest.raises(ApiError):
        await group.look()
    assert group.nodes() == ["", "n1", "n1"], "the others were bound nevertheless"
    group.observe()
    assert group.record.placements.keys() == {(1, 0), (1, 1), (1, 2)} and group.record.stage == Stage.STARTING
    await group.look()
    assert group.nodes() == ["n1", "n1", "n1"] and group.cluster.bindings == 4


async def test_a_group_that_loses_its_nodes_while_its_first_pod_is_bound_has_no_other_bound() -> None:
    group = Group(3, least=3)
    group.world.cycle()

    def lost() -> None:
        job, group.cluster.late = group.record, None
        facts = NodeLost("n1", gone=True, leaderless=True)
        reason = StageReason.NODE_LOST
        group.world.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.RESCHEDULING, reason, facts))

    group.cluster.late = lost
    await group.look()
    assert group.cluster.bindings == 1 and not group.record.placements


async def test_what_was_refused_before_a_group_got_other_nodes_is_forgotten() -> None:
    group = Group(3, least=3)
    group.world.cycle()
    group.applier._pods.creation._writer = Writer(group.world)  # type: ignore[assignment]
    group.cluster.refusals = [ApiError(403, "Forbidden", "oh")]
    await group.look()
    job, progress = group.record, group.applier._progress[group.record.uid]
    assert [key[0] for key in progress.refusals] == [0]
    facts, reason = PodsRefused("oh"), StageReason.QUORUM_REFUSED
    group.world.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.RESCHEDULING, reason, facts))
    group.clock.passed_s += 60
    await group.look()
    assert group.record.attempt == 1 and not progress.refusals and not progress.settling


async def test_each_pod_of_a_group_that_lacks_pods_says_how_many() -> None:
    group = Group(2, least=4)
    assert group.world.cycle() == ()
    await group.run(lambda: bool(group.events()))
    words = "waits for 2 more pods of its group, which needs 4 and has 2"
    assert group.messages() == [words, words]
    (event,) = group.events()
    assert (event["reason"], event["message"], event["involvedObject"]["name"]) == ("WaitsForPods", words, "p0")
    group.come(2)
    group.observe()
    await group.look()
    assert group.messages() == [words, words], "at most once a second"
    group.clock.passed_s += 1
    await group.look()
    assert group.messages() == ["waits for 1 more pod of its group, which needs 4 and has 3"] * 3


async def test_a_group_that_gets_its_pods_at_once_is_never_told_that_it_lacked_some() -> None:
    group = Group(1, least=3)
    for number in (1, 2):
        await group.look()
        group.clock.passed_s += 0.4
        group.come(number)
        group.observe()
    group.world.cycle()
    await group.run(lambda: len(group.events()) == 3)
    assert (group.cluster.patches, group.nodes()) == (0, ["n1", "n1", "n1"])
    assert {of["reason"] for of in group.events()} == {"Scheduled"}


async def test_a_group_whose_pods_come_one_by_one_says_within_a_second_how_many_it_lacks() -> None:
    group = Group(1, least=5)
    for number in (1, 2, 3):
        await group.look()
        group.clock.passed_s += 0.4
        group.come(number)
        group.observe()
    await group.look()
    assert group.messages() == ["waits for 1 more pod of its group, which needs 5 and has 4"] * 4


async def test_each_pod_of_a_group_without_room_says_why_it_waits() -> None:
    group = Group(5, least=5)
    group.world.cycle()
    await group.run(lambda: bool(group.events()))
    assert len(group.messages()) == 5 and all("insufficient cpu" in of for of in group.messages())
    (event,) = group.events()
    assert (event["reason"], event["involvedObject"]["name"]) == ("FailedScheduling", "p0")


async def test_the_pods_beyond_the_quorum_say_why_they_wait_while_the_others_are_bound() -> None:
    group = Group(5, least=2)
    group.world.cycle()
    await group.look()
    assert sorted(group.nodes()) == ["", "n1", "n1", "n1", "n1"] and len(group.messages()) == 1
    assert "insufficient cpu" in group.messages()[0]


async def test_a_group_that_loses_its_nodes_while_a_pod_is_told_why_it_waits_binds_none() -> None:
    group = Group(5, least=2)
    group.world.cycle()

    def lose() -> None:
        group.cluster.telling = None
        group.world.node_gone("n1")
        group.world.control()
        assert not group.record.placements

    group.cluster.telling = lose
    await group.look()
    assert group.cluster.telling is None and group.cluster.bindings == 0
