"""The queue writer: what it stores, when it writes and when it doesn't, alone and among others of its kind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import CRDS, QUEUES, ApiError, ClusterUnavailable, Object, Resource
from arranger.kube.translate import queue_seen, queue_status_digest
from arranger.model.queue import QueueState
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.scheduling import queues_view
from arranger.workers.applying.effects.carrying_out import Effects
from arranger.workers.applying.statuses.queue_status import queue_status, status_patch
from arranger.workers.applying.statuses.queue_writer import QueueWriter
from tests.parts import parts
from tests.servers import QUEUE_CRD, definition_of
from tests.unit.queue_table import GPU, queue
from tests.unit.test_applier import Following, until
from tests.world import World, shape

EARLY, LATE = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"


def status(world: World, name: str) -> Object:
    return queue_status(queues_view(world.state).queues[name], 3)


def test_a_status_has_the_amounts_that_a_queue_uses_demands_or_claims() -> None:
    there = World()
    there.node("n1", cpu=8, gpus=8)
    there.queue("a", capability=(("example.com/link", 2), (GPU, 4)))
    assert status(there, "a")["used"] == {"example.com/link": "0", GPU: "0"}
    there.job("j", leader=shape(cpu=0.5, gpus=1), workers=2, of_queue="a")
    there.settle()
    there.job("further", leader=shape(gpus=3), of_queue="a")
    there.job("large", leader=shape(gpus=9), of_queue="a")  # which no node could hold, so it demands nothing
    there.settle()
    found = status(there, "a")
    assert found == {
        "state": "Open",
        "used": {"cpu": "1500m", "example.com/link": "0", GPU: "3"},
        "share": {"cpu": "1500m", "example.com/link": "0", GPU: "4"},
        "demand": {"cpu": "1500m", "example.com/link": "0", GPU: "6"},
        "gpus": 3,
        "gpuShare": 4,
        "waiting": 2,
        "running": 1,
        "observedGeneration": 3,
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 3, "reason": "Open", "message": ""},
        ],
    }  # fmt: skip


def test_a_status_has_what_was_used_before_to_about_one_percent() -> None:
    there = World()
    there.node("n1", cpu=800, gpus=8)
    there.queue("above")
    there.queue("a", parent="above")
    there.config = msgspec.structs.replace(there.config, half_life_ms=3_600_000)
    there.job("j", leader=shape(cpu=777, gpus=5), of_queue="a")
    there.settle()
    there.pass_time(10 * 3600)
    there.node("n1", cpu=800, gpus=8)
    for name in ("above", "a"):
        assert status(there, name)["usage"] == {"cpu": "770048m", GPU: "5"}
    there.config = msgspec.structs.replace(there.config, half_life_ms=0)
    there.job("k", leader=shape(cpu=1), of_queue="a")
    there.settle()
    assert "usage" not in status(there, "a")


@pytest.mark.parametrize(
    ("fields", "state", "ready", "reason", "message"),
    [
        ({}, "Open", "True", "Open", ""),
        ({"state": QueueState.CLOSED}, "Closed", "False", "Closed",
         "closed: arranger queue open a opens it"),
        ({"parent": "shut"}, "Closed", "False", "Closed",
         "closed, because shut is: arranger queue open shut opens that one"),
        ({"parent": "none"}, "Unusable", "False", "UnknownParent",
         "queue a is below none, which doesn't exist: create it, or edit spec.parent"),
        ({"invalid": "spec"}, "Unusable", "False", "Invalid", "queue a is invalid: edit it"),
        ({"parent": "small", "deserved": ((GPU, 3),)}, "Open", "True", "AboveParent",
         "deserved of nvidia.com/gpu is 3, above that of the parent small, which is 2"),
    ],
)  # fmt: skip
def test_a_status_says_whether_the_queue_can_be_used(
    fields: dict[str, Any], state: str, ready: str, reason: str, message: str
) -> None:
    there = World()
    there.queue("shut", state=QueueState.CLOSED)
    there.queue("small", capability=((GPU, 2),))
    there.queue("a", **fields)
    found = status(there, "a")
    condition = found["conditions"][0]
    assert (found["state"], condition["status"], condition["reason"]) == (state, ready, reason)
    assert condition["message"] == message


def test_a_guarantee_says_that_all_guarantees_are_above_what_the_nodes_offer() -> None:
    there = World()
    there.node("n1", cpu=8, gpus=8)
    there.queue("above", guarantee=((GPU, 6),), capability=((GPU, 7),))
    there.queue("below", parent="above", guarantee=((GPU, 8),))
    there.queue("big", guarantee=((GPU, 3), ("example.com/none", 9)))
    there.queue("plain")
    there.job("j", leader=shape(gpus=8), of_queue="plain")
    said = {name: status(there, name)["conditions"][0] for name in ("above", "below", "big", "plain")}
    message = (
        "the guarantees of all open queues add up to 9 nvidia.com/gpu, above the 8 that the nodes offer, so jobs get "
        "none beyond the guarantee of their queue: lower guarantees"
    )
    told = [(of["status"], of["reason"], of["message"]) for of in said.values()]
    assert told[0] == told[2] == ("True", "AboveCluster", message)
    assert (told[1][1], told[3]) == ("AboveParent", ("True", "Open", ""))
    there.node("n2", cpu=8, gpus=1)
    assert status(there, "big")["conditions"][0]["reason"] == "Open"


def test_a_resource_that_is_probably_misspelt_is_named_with_the_one_that_was_meant() -> None:
    there = World()
    there.queue("early", capability=(("nvdia.com/gpu", 4),))
    assert status(there, "early")["conditions"][0]["reason"] == "Open", "there are no nodes to compare with"
    there.node("n1", cpu=8, gpus=8)
    there.queue("cased", guarantee=(("NVIDIA.com/gpu", 4),), capability=((GPU, 4),))
    there.queue("other", capability=(("amd.com/gpu", 4), ("example.com/licence", 4), ("ephemeral-storage", 1)))
    there.queue("below", parent="none", capability=(("nvdia.com/gpu", 4),))
    said = [status(there, name)["conditions"][0] for name in ("early", "cased", "other", "below")]
    assert [(of["status"], of["reason"]) for of in said] == [
        ("True", "UnknownResource"), ("True", "UnknownResource"), ("True", "Open"), ("False", "UnknownParent"),
    ]  # fmt: skip
    assert said[0]["message"] == "capability is of nvdia.com/gpu, which no node has: did you mean nvidia.com/gpu?"
    assert said[1]["message"] == "guarantee is of NVIDIA.com/gpu, which no node has: did you mean nvidia.com/gpu?"
    there.node("n2", cpu=8, **{"nvdia.com/gpu": 1})
    assert status(there, "early")["conditions"][0]["reason"] == "Open"


def test_a_patch_clears_what_is_no_more_and_keeps_the_time_of_a_condition_that_stays() -> None:
    there = World()
    there.queue("a")
    now = status(there, "a")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": EARLY, "reason": "AboveParent", "message": "m"}
    patch = status_patch(now, {"used": {GPU: "3"}, "usage": {GPU: "3"}, "conditions": [ready]}, LATE)
    assert patch["used"] == {GPU: None} and patch["usage"] is None and patch["share"] == {}
    assert patch["conditions"][0] == now["conditions"][0] | {"lastTransitionTime": EARLY}
    ready["status"] = "False"
    assert status_patch(now, {"conditions": [ready]}, LATE)["conditions"][0]["lastTransitionTime"] == LATE


def test_the_digest_of_a_status_ignores_only_the_times_of_its_conditions() -> None:
    there = World()
    there.queue("a")
    now = status(there, "a")
    early, late = (status_patch(now, {}, time) for time in (EARLY, LATE))
    assert queue_status_digest(early) == queue_status_digest(late) == queue_status_digest(now) != ""
    early["conditions"][0]["status"] = "False"
    assert queue_status_digest(early) != queue_status_digest(late)
    odd = {"conditions": ["text", {"type": "Ready"}]}
    assert queue_status_digest(odd) == queue_status_digest({"conditions": [{"type": "Ready"}]})
    assert queue_status_digest({}) == queue_status_digest({"conditions": None}) == ""


class Watched(DirectCluster):
    """A cluster that counts the requests about queues, and refuses or delays the next patches."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gets = 0
        #: What happens once while the next read is under way.
        self.while_read: Callable[[], object] | None = None
        self.patches: list[Mapping[str, Any]] = []
        #: Raised by the next patches, one each.
        self.problems: list[Exception] = []
        #: What happens once before a patch is taken.
        self.before: Callable[[], object] | None = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self.gets += 1
        found = await super().get(resource, namespace, name)
        meanwhile, self.while_read = self.while_read, None
        if meanwhile is not None:
            meanwhile()
            await asyncio.sleep(0.1)
        return found

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        self.patches.append(body)
        before, self.before = self.before, None
        if before is not None:
            before()
        if self.problems:
            raise self.problems.pop(0)
        return await super().patch(resource, namespace, name, body, subresource=subresource)


class Share:
    """A membership whose share a test sets."""

    ours = True

    def owns(self, uid: str) -> bool:
        return self.ours


class Scene:
    """A store with one Queue, a log that has seen it, and a writer that looks at it often."""

    def __init__(self) -> None:
        self.store = Store(now=lambda: 1_700_000_000.0)
        self.store.create(CRDS, "", definition_of(QUEUE_CRD))
        self.store.create(QUEUES, "", msgspec.json.decode(msgspec.json.encode(queue("a"))))
        self.cluster = Watched(self.store)
        self.world = World()
        self.world.node("n1", cpu=8, gpus=8)
        self.observe()
        self.share = Share()
        following: Any = Following(self.world.state)
        self.parts = parts(cluster=self.cluster, follower=following, settings={"api_in_flight": 8})
        self.writer = QueueWriter(Effects(self.parts), self.share.owns)

    def observe(self) -> None:
        """The watch shows the Queue as it is now."""
        self.world.say(queue_seen(self.stored(), self.world.watch_queues()))

    def stored(self) -> Object:
        found: Object = msgspec.json.decode(self.store.get(QUEUES, "", "a").raw)
        return found

    def waiting(self) -> object:
        return (self.stored().get("status") or {}).get("waiting")

    def submit(self, name: str) -> None:
        self.world.job(name, leader=shape(gpus=9), of_queue="a")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.writer.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr("arranger.workers.applying.statuses.status_rounds._EVERY_S", 0.02)
    return Scene()


async def test_a_status_is_written_once_until_it_changes(scene: Scene) -> None:
    async with scene.running():
        await until(lambda: scene.waiting() == 0)
        await asyncio.sleep(0.2)  # the watch is late
        scene.observe()
        await asyncio.sleep(0.2)
        assert (scene.cluster.gets, len(scene.cluster.patches)) == (1, 1)
        transition = scene.stored()["status"]["conditions"][0]["lastTransitionTime"]
        scene.submit("j")
        await until(lambda: scene.waiting() == 1)
        assert (scene.cluster.gets, len(scene.cluster.patches)) == (1, 2)
        assert scene.stored()["status"]["conditions"][0]["lastTransitionTime"] == transition
    assert scene.parts.metrics.registry.get_sample_value(
        "arranger_effects_total", {"effect": "queue-status", "result": "ok"}
    ) == 2  # fmt: skip


async def test_another_process_finds_the_status_as_it_should_be_and_writes_nothing(scene: Scene) -> None:
    async with scene.running():
        await until(lambda: scene.waiting() == 0)
    scene.observe()
    scene.cluster.patches.clear()
    scene.writer = QueueWriter(Effects(scene.parts), scene.share.owns)
    async with scene.running():
        await asyncio.sleep(0.2)
    assert scene.cluster.patches == []


async def test_what_belongs_to_others_or_may_not_be_written_is_left_alone(scene: Scene) -> None:
    scene.share.ours = False
    following: Any = scene.parts.follower
    async with scene.running():
        await asyncio.sleep(0.1)
        following.is_fresh, scene.share.ours = False, True
        await asyncio.sleep(0.1)
        assert (scene.cluster.gets, scene.cluster.patches) == (0, [])
        following.is_fresh = True
        await until(lambda: scene.waiting() == 0)
        scene.share.ours = False
        scene.submit("j")
        await asyncio.sleep(0.1)
        assert scene.waiting() == 0


async def test_a_queue_that_changed_meanwhile_is_read_again(scene: Scene) -> None:
    def edit() -> None:
        scene.store.patch(QUEUES, "", "a", {"spec": {"weight": 2}})

    scene.cluster.before = edit
    async with scene.running():
        await until(lambda: scene.waiting() == 0)
    assert scene.cluster.gets == 2 and scene.stored()["spec"]["weight"] == 2


async def test_a_queue_that_was_replaced_gets_the_status_only_once_the_watch_shows_it(scene: Scene) -> None:
    def replace() -> None:
        scene.store.delete(QUEUES, "", "a")
        scene.store.create(QUEUES, "", msgspec.json.decode(msgspec.json.encode(queue("a"))))

    scene.cluster.before = replace
    async with scene.running():
        await asyncio.sleep(0.2)
        assert scene.stored().get("status") is None
        scene.world.say(
            k.ObjectGone(
                k.Watched.QUEUE, scene.world.watch_queues(), "", "a", next(iter(scene.world.state.queues.values())).uid
            )
        )
        scene.observe()
        await until(lambda: scene.waiting() == 0)


async def test_a_queue_that_goes_and_comes_while_it_is_read_gets_its_status_afterwards(scene: Scene) -> None:
    def go() -> None:
        scene.store.delete(QUEUES, "", "a")
        scene.world.say(
            k.ObjectGone(k.Watched.QUEUE, scene.world.watch_queues(), "", "a", scene.world.state.queues["a"].uid)
        )

    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
    scene.world.queue("b")  # not in the store: its status fails
    scene.cluster.while_read = go
    look = scene.writer._look
    async with scene.running():
        await until(lambda: bool(scene.writer._names))
        scene.writer._look = lambda: None  # type: ignore[method-assign]  # a slow process looks only later
        await until(lambda: "a" not in scene.world.state.queues)
        await asyncio.sleep(0.2)
        assert (scene.cluster.patches, problems) == ([], [])
        scene.writer._look = look  # type: ignore[method-assign]
        await asyncio.sleep(0.2)
        assert (scene.cluster.patches, problems) == ([], [])
        scene.store.create(QUEUES, "", msgspec.json.decode(msgspec.json.encode(queue("a"))))
        scene.observe()
        await until(lambda: scene.waiting() == 0)


async def test_a_status_that_fails_is_tried_again_with_growing_delays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arranger.workers.flow.retries._FIRST_S", 0.05)
    scene.cluster.problems = [
        ClusterUnavailable("away"),
        ClusterUnavailable("away"),
        ApiError(500, "InternalError", "no"),
    ]
    async with scene.running():
        await until(lambda: scene.waiting() == 0)
    assert len(scene.cluster.patches) == 4


@pytest.mark.parametrize("code", [403, 422])
async def test_a_refused_status_rests_although_the_queue_changes(scene: Scene, code: int) -> None:
    scene.cluster.problems = [ApiError(code, "Refused", "no right, or older than its schema")]
    async with scene.running():
        await until(lambda: bool(scene.cluster.patches))
        scene.submit("j")
        await asyncio.sleep(0.2)
        assert len(scene.cluster.patches) == 1
        scene.writer.clear()
        await until(lambda: scene.waiting() == 1)


async def test_default_gets_a_status_once_it_is_an_object(scene: Scene) -> None:
    async with scene.running():
        await until(lambda: scene.waiting() == 0)
        await asyncio.sleep(0.1)
        assert len(scene.cluster.patches) == 1
        default = queue("default")
        scene.store.create(QUEUES, "", msgspec.json.decode(msgspec.json.encode(default)))
        stored = msgspec.json.decode(scene.store.get(QUEUES, "", "default").raw)
        scene.world.say(queue_seen(stored, scene.world.watch_queues()))
        await until(lambda: len(scene.cluster.patches) == 2)


async def test_the_queues_of_ones_share_are_measured(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.world.job("j", leader=shape(cpu=0.5, gpus=1), workers=2, of_queue="a")
    scene.world.settle()
    scene.submit("large")
    value = scene.parts.metrics.registry.get_sample_value

    def measured(name: str, queue: str = "a", **labels: str) -> float | None:
        return value(f"arranger_queue_{name}", {"queue": queue, **labels})

    async with scene.running():
        await until(lambda: measured("used", resource="gpu") == 3)
        assert [measured(name, resource="gpu") for name in ("share", "demand")] == [8, 12]
        assert [measured(name, resource="cpu") for name in ("used", "share", "demand")] == [1.5, 1.5, 1.5]
        assert [measured(name) for name in ("waiting_jobs", "running_jobs")] == [1, 1]
        assert measured("running_jobs", "default") == 0
        scene.share.ours = False
        await until(lambda: measured("used", resource="gpu") is None)
        scene.share.ours = True
        monkeypatch.setattr("arranger.workers.applying.statuses.queue_writer._MEASURED", 1)
        await until(lambda: measured("running_jobs") == 1)
        assert measured("running_jobs", "default") is None


async def test_of_many_statuses_news_go_first_and_then_the_one_that_waited_longest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arranger.workers.applying.statuses.status_rounds._AT_ONCE", 1)
    term = scene.world.watch_queues()
    for name in ("b", "c", "d"):
        scene.store.create(QUEUES, "", msgspec.json.decode(msgspec.json.encode(queue(name))))
        scene.world.say(queue_seen(msgspec.json.decode(scene.store.get(QUEUES, "", name).raw), term))

    def written() -> list[str]:
        uids = {of.uid: name for name, of in scene.world.state.queues.items()}
        return [uids[body["metadata"]["uid"]] for body in scene.cluster.patches]

    async with scene.running():
        await until(lambda: len(scene.cluster.patches) == 4)
        first = written()
        assert sorted(first) == ["a", "b", "c", "d"]
        scene.cluster.patches.clear()
        for name in "abcd":
            scene.world.job(name, leader=shape(gpus=9), of_queue=name)
        last = first[-1]
        closed = scene.store.patch(QUEUES, "", last, {"spec": {"state": "Closed"}}).stored
        scene.world.say(queue_seen(msgspec.json.decode(closed.raw), scene.world.watch_queues()))
        await until(lambda: len(scene.cluster.patches) >= 5)  # the closed one twice: its resourceVersion was another
    assert written()[0] == last and [name for name in written() if name != last] == first[:-1]
