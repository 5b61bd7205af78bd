"""The applier among others of its kind: late, raced, or in an epoch that has just been lost."""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from arranger.clock import Clock, SystemClock
from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.kube.cluster import CRDS, NODES, PODS, SERVICES, TYJOBS, ApiError, Object, Resource, always
from arranger.kube.translate import job_seen, node_seen, pod_seen, status_digest
from arranger.lifecycle.desired import desired_status
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState, Stage
from arranger.model.queue import QueueState
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import message_of
from arranger.sandbox import validation
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.listing import Selection
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress, StateReplaced
from arranger.workers.applying.statuses.status_writer import _STATUS_FIELDS, QueuePositions
from tests.clocks import HOUR_MS, SetClock, compared
from tests.parts import parts
from tests.servers import tyjob_definition
from tests.stores import store_of_jobs
from tests.world import World, shape

JOB = {
    "apiVersion": "arranger.dev/v1",
    "kind": "TYJob",
    "metadata": {"name": "j", "namespace": "default"},
    "spec": {
        "minWorkersNum": 0,
        "leader": {"name": "learner", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        "workerSets": [],
    },
}

_WORKERS = {"name": "actors", "counts": 2, "template": JOB["spec"]["leader"]["template"]}
_WITH_WORKERS = {**JOB, "spec": {**JOB["spec"], "minWorkersNum": 2, "workerSets": [_WORKERS]}}


class Raced(DirectCluster):
    """A cluster where something happens during a status patch: once before it is taken, once after."""

    before: Callable[[], None] | None = None
    after: Callable[[], object] | None = None
    #: The stages that were written.
    told: list[str] | None = None
    #: How often a TYJob was read.
    reads = 0
    #: The versions of the resource in which that was tried.
    versions: list[str] | None = None
    #: Deletions that were refused because the object isn't what was meant.
    conflicts = 0
    #: What happens once while a creation is on its way.
    creating: Callable[[], None] | None = None
    #: What happens once before a deletion is taken.
    deleting: Callable[[], object] | None = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self.reads += resource == TYJOBS
        return await super().get(resource, namespace, name)

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        creating, self.creating = self.creating, None
        if creating is not None:
            creating()
        return await super().create(resource, namespace, body)

    async def delete(self, resource: Resource, namespace: str | None, name: str, **options: Any) -> None:
        deleting, self.deleting = self.deleting, None
        if deleting is not None:
            deleting()
        try:
            await super().delete(resource, namespace, name, **options)
        except ApiError as refused:
            self.conflicts += refused.code == 409
            raise

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        if self.versions is not None and subresource == "status":
            self.versions.append(resource.version)
        if self.told is not None and subresource == "status":
            self.told.append(body["status"]["stage"])
        before, self.before = self.before, None
        if before is not None:
            before()
        answer = await super().patch(resource, namespace, name, body, subresource=subresource)
        after, self.after = self.after, None
        if after is not None:
            after()
        return answer


class Following:
    """A follower that is where the test puts it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.is_fresh = True

    def fresh(self) -> bool:
        return self.is_fresh

    @property
    def cluster(self) -> str:
        return self.state.cluster


class Everyone:
    """A membership whose every share is ours."""

    def owns(self, key: str, role: str) -> bool:
        return True


class Nobody:
    """A membership of which we have no share."""

    def owns(self, key: str, role: str) -> bool:
        return False


class Scene:
    """A store with a node and one TYJob, a log that has seen them, and an applier."""

    def __init__(self, clock: Clock | None = None, job: Object = JOB) -> None:
        self.store = store_of_jobs()
        status = {"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        self.store.create(NODES, "", {"metadata": {"name": "n1"}, "status": status})
        self.store.patch(NODES, "", "n1", {"spec": {"taints": None}})
        self.store.create(TYJOBS, "default", msgspec.json.decode(msgspec.json.encode(job)))
        self.cluster = Raced(self.store)
        self.world = World()
        self.observe()
        self.following = Following(self.world.state)
        self.parts = parts(
            cluster=self.cluster,
            follower=self.following,
            membership=Everyone(),
            clock=clock or SystemClock(),
            settings={"api_in_flight": 8},
        )
        self.applier = Applier(self.parts)

    def observe(self) -> JobRecord:
        """The watch brings the node and the TYJob as they are now."""
        terms = self.world.terms
        node = self.decoded(NODES, "", "n1")
        item = self.decoded(TYJOBS, "default", "j")
        self.world.say(node_seen(node, terms[k.Watched.NODE]), job_seen(item, terms[k.Watched.JOB], with_status=True))
        return self.world.state.jobs[item["metadata"]["uid"]]

    @property
    def job(self) -> JobRecord:
        return next(iter(self.world.state.jobs.values()))

    def look(self) -> Look:
        """A look at the job as it is now."""
        progress = self.applier._progress.setdefault(self.job.uid, Progress())
        return Look(self.following, self.job, progress)  # type: ignore[arg-type]

    def decide(self, stage: Stage) -> None:
        job = self.job
        self.world.say(k.StageDecided(job.uid, job.version, job.attempt, stage, StageReason.AS_RECORDED))

    def tried(self) -> None:
        """A cycle has found no nodes for the job."""
        job = self.job
        waits = k.Waits(job.uid, job.version, ScheduleState.UNSCHEDULED, LackOfNodes(0, 1, group="learner"))
        self.world.say(k.CycleTaken(self.world.state.offset, self.world.now_ms, CycleConfig()), waits)

    def decoded(self, resource: Resource, namespace: str, name: str) -> Object:
        found: Object = msgspec.json.decode(self.store.get(resource, namespace, name).raw)
        return found

    def stored_stage(self) -> str:
        found: str = (self.decoded(TYJOBS, "default", "j").get("status") or {}).get("stage", "")
        return found

    def stored_ready(self) -> str:
        conditions = self.decoded(TYJOBS, "default", "j")["status"]["conditions"]
        return str({one["type"]: one["status"] for one in conditions}["Ready"])

    def store_stage(self, stage: Stage) -> None:
        """Another applier stores a status."""
        self.store.patch(TYJOBS, "default", "j", {"status": {"stage": stage}}, subresource="status")

    def tell_its_end(self) -> None:
        """The job, which is to be kept for no time, has ended and its status says so: its deletion comes next."""
        self.store.patch(TYJOBS, "default", "j", {"spec": {"ttlSecondsAfterFinished": 0}})
        self.observe()
        self.decide(Stage.SUCCEEDED)
        status = desired_status(self.world.state, self.job)
        self.store.patch(TYJOBS, "default", "j", {"status": status}, subresource="status")
        self.observe()

    def gone(self) -> bool:
        """Whether the TYJob was deleted; if not, the watch shows it as it is now."""
        if not self.store.page(TYJOBS, Selection(), limit=10, continuation="").items:
            return True
        self.applier.changed(Changes(jobs={self.observe().uid: None}))
        return False

    def pods(self) -> list[str]:
        return [
            stored.object["metadata"]["name"]
            for stored in self.store.page(PODS, Selection(), limit=10, continuation="").items
        ]

    def run_pod(self, name: str) -> None:
        """The pod runs and is ready, and the watch shows it."""
        status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
        self.store.patch(PODS, "default", name, {"status": status}, subresource="status")
        self.world.say(pod_seen(self.decoded(PODS, "default", name), self.world.terms[k.Watched.POD]))
        self.applier.changed(Changes(jobs={self.job.uid: None}))

    @contextlib.asynccontextmanager
    async def running(self, uid: str = "") -> AsyncIterator[None]:
        task = asyncio.create_task(self.applier.run())
        self.applier.changed(Changes(jobs={uid or self.job.uid: None}))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not look():  # noqa: ASYNC110 - what is looked at knows of no event
            await asyncio.sleep(0.01)


async def test_an_applier_that_is_behind_never_takes_a_status_back() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    scene.store_stage(Stage.RUNNING)  # by another applier, and this one hasn't folded it
    async with scene.running():
        await asyncio.sleep(0.5)
        assert scene.stored_stage() == "Running"
        assert scene.pods() == []  # the status that explains them isn't known to stand
        scene.decide(Stage.RUNNING)
        scene.observe()
        scene.decide(Stage.SUCCEEDED)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Succeeded")


async def test_a_status_that_changed_while_ours_was_on_its_way_is_not_overwritten() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    scene.cluster.before = lambda: scene.store_stage(Stage.RUNNING)
    async with scene.running():
        await until(lambda: scene.cluster.before is None)
        await asyncio.sleep(0.3)
    assert scene.stored_stage() == "Running"


async def test_a_status_that_waited_for_its_turn_while_others_went_on_is_not_stored() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    slots = contextlib.AsyncExitStack()
    for _ in range(8):  # every slot is taken: by creations that an admission webhook lets wait
        await slots.enter_async_context(scene.applier._effects._slots.slot("default"))
    async with scene.running():
        await asyncio.sleep(0.1)
        scene.decide(Stage.RUNNING)  # by another controller, and another applier stores it
        scene.store_stage(Stage.RUNNING)
        scene.observe()
        await slots.aclose()
        seen: list[str] = []
        scene.cluster.after = lambda: seen.append(scene.stored_stage())
        await asyncio.sleep(0.3)
        assert scene.stored_stage() == "Running" and "Starting" not in seen


async def test_several_stages_in_a_row_are_stored_without_waiting_for_the_watch() -> None:
    scene = Scene()
    scene.world.cycle()
    async with scene.running():
        for stage in (Stage.STARTING, Stage.RUNNING, Stage.SUCCEEDED):
            scene.decide(stage)
            scene.applier.changed(Changes(jobs={scene.job.uid: None}))
            await until(lambda stage=stage: scene.stored_stage() == stage)  # type: ignore[misc]


async def test_a_job_about_which_more_is_decided_at_once_is_told_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    stored: list[str] = []
    scene.cluster.told = stored
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._PASSING_S", 30.0)
    async with scene.running():
        await asyncio.sleep(0.1)  # new, and the next cycle will say more of it
        assert stored == []
        scene.world.cycle()
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Starting")
    assert stored == ["Starting"]


async def test_a_job_that_starts_at_once_costs_two_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._STARTING_S", 3600.0)
    scene = Scene(job=_WITH_WORKERS)
    stored: list[str] = []
    scene.cluster.told = stored
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.run_pod("j-learner-0")
        await until(lambda: len(scene.pods()) == 3)  # their leader's address waits for no status
        for name in ("j-actors-0", "j-actors-1"):
            scene.run_pod(name)
            await asyncio.sleep(0.05)
        scene.decide(Stage.RUNNING)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Running")
    assert stored == ["Starting", "Running"] and scene.cluster.reads == 0
    status = scene.decoded(TYJOBS, "default", "j")["status"]
    assert status["leaderAddress"] == "10.0.0.7" and status["ready"] == "2/2"


@pytest.mark.parametrize(("apart_s", "statuses"), [(0.0, 3), (3600.0, 2)])
async def test_statuses_without_news_take_turns_as_far_apart_as_the_last_one_took(
    monkeypatch: pytest.MonkeyPatch, apart_s: float, statuses: int
) -> None:
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._STARTING_S", 0.0)
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._TIMES_AS_LONG", 1e9)
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._APART_S", apart_s)
    scene = Scene(job=_WITH_WORKERS)
    stored: list[str] = []
    scene.cluster.told = stored
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.run_pod("j-learner-0")  # the first has its turn at once
        await until(lambda: len(scene.pods()) == 3 and len(stored) >= 2)
        scene.run_pod("j-actors-0")
        await until(lambda: len(stored) >= statuses)
        await asyncio.sleep(0.1)
    assert stored == ["Starting"] * statuses


async def test_a_starting_job_whose_pod_cannot_start_is_told_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._STARTING_S", 3600.0)
    scene = Scene()
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        waiting = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
        scene.store.patch(
            PODS, "default", "j-learner-0", {"status": {"containerStatuses": waiting}}, subresource="status"
        )
        scene.world.say(pod_seen(scene.decoded(PODS, "default", "j-learner-0"), scene.world.terms[k.Watched.POD]))
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: "no such image" in scene.decoded(TYJOBS, "default", "j")["status"]["message"])


async def test_events_delay_neither_pods_nor_statuses() -> None:
    scene = Scene()
    asked = asyncio.Event()

    async def never(job: JobRecord, told: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    scene.applier._statuses.reports._reporter.report = never  # type: ignore[method-assign]
    scene.world.cycle()
    async with scene.running():
        await asked.wait()
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.decide(Stage.RUNNING)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Running")


async def test_a_status_is_not_stored_again_and_again_while_a_late_watch_has_not_shown_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    stored: list[str] = []
    scene.cluster.told = stored
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer.SETTLE_S", 0.05)
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._COUNTS_S", 0.0)
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: bool(stored))
        for _ in range(10):  # the server is busy, and its watch behind
            await asyncio.sleep(0.03)
            scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        assert stored == ["Starting"]
        scene.store_stage(Stage.PENDING)  # somebody else overwrites it, and the watch shows that
        scene.observe()
        for _ in range(4):
            scene.applier.changed(Changes(jobs={scene.job.uid: None}))
            await asyncio.sleep(0.03)
        await until(lambda: scene.stored_stage() == "Starting")


async def test_a_change_of_readiness_does_not_wait_for_a_busy_server_as_counts_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._COUNTS_S", 0.0)
    monkeypatch.setattr(
        "arranger.workers.applying.statuses.status_writer._TIMES_AS_LONG", 1e9
    )  # then counts wait for half a minute
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.run_pod("j-learner-0")
        scene.decide(Stage.RUNNING)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Running")
        for ready in (False, True):
            scene.world.change_pod(scene.job.bound[0, 0], ready=ready)
            scene.applier.changed(Changes(jobs={scene.job.uid: None}))
            await until(lambda ready=ready: scene.stored_ready() == str(ready))  # type: ignore[misc]


async def test_a_status_follows_at_once_a_node_that_is_deleted_comes_back_or_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not only when the node counts as lost, a minute later."""
    scene = Scene()
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._COUNTS_S", 0.0)
    monkeypatch.setattr("arranger.workers.flow.work_queue.SWEEP_S", 1e9)
    uid, told = scene.decoded(NODES, "", "n1")["metadata"]["uid"], "it lasted as long as in the log"

    async def stored(message: str) -> None:
        scene.applier.changed(scene.world.changes)
        await until(lambda: scene.decoded(TYJOBS, "default", "j").get("status", {}).get("message") == message)

    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.run_pod("j-learner-0")
        scene.decide(Stage.RUNNING)
        await stored(told)
        scene.world.node_gone("n1", uid=uid)
        await stored(f"{told}; node n1 of its pods is gone")
        scene.world.node("n1", ready=False)
        await stored(f"{told}; node n1 of its pods is not ready")
        scene.world.node("n1")
        await stored(told)


def test_the_gpus_of_a_deleted_node_are_in_no_status_and_its_message_names_the_node_as_explain_does() -> None:
    world = World()
    world.node("n1", gpus=1)
    world.node("n2", gpus=2)
    job = world.job("j", leader=shape(gpus=1), workers=2, worker=shape(gpus=1), min_workers=1)
    world.settle()
    assert desired_status(world.state, job)["gpus"] == 3
    world.node_gone("n2")
    status = desired_status(world.state, job)
    assert status["gpus"] == 1 and status["message"].endswith("; node n2 of its pods is gone")
    assert status["message"] == message_of(world.state, job)
    world.node("n2", gpus=2, ready=False)
    assert desired_status(world.state, job)["gpus"] == 3, "it may come back, and its pods with it"


def test_the_gpus_of_a_worker_that_failed_and_waits_for_its_next_pod_are_in_no_status() -> None:
    """Its room isn't kept: another job may get it."""
    world = World()
    world.node("n1", gpus=2)
    job = world.job("j", leader=shape(cpu=1), workers=2, worker=shape(gpus=1), min_workers=0)
    world.settle()
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False)
    assert world.used("n1", "nvidia.com/gpu") == desired_status(world.state, job)["gpus"] == 1
    other = world.job("other", leader=shape(gpus=1))
    world.cycle()
    assert other.placements == {(0, 0): "n1"} and job.placements[1, 0] == "n1"
    assert world.used("n1", "nvidia.com/gpu") == 2 and desired_status(world.state, job)["gpus"] == 1


async def test_a_job_that_nobody_decides_on_is_told_so_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr("arranger.workers.applying.statuses.status_writer._PASSING_S", 0.2)
    async with scene.running():
        await until(lambda: scene.stored_stage() == "Pending")
        scene.world.cycle()
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.decoded(TYJOBS, "default", "j")["status"]["scheduleState"] == "ScheduledSucceed")


async def test_a_status_refused_as_outdated_is_not_tried_again_before_the_watch_shows_the_later_version() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    scene.store.patch(TYJOBS, "default", "j", {"metadata": {"annotations": {"edited": "yes"}}})
    stored: list[str] = []
    scene.cluster.told = stored
    async with scene.running():
        for _ in range(20):
            await asyncio.sleep(0.05)
            scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        assert stored == ["Starting"]
        scene.observe()
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Starting")
    assert stored == ["Starting", "Starting"]


async def test_an_edit_of_the_job_by_its_user_does_not_stop_its_status() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: scene.stored_stage() == "Starting")
        scene.store.patch(TYJOBS, "default", "j", {"metadata": {"annotations": {"note": "mine"}}})
        scene.decide(Stage.RUNNING)
        scene.observe()
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Running")


async def test_nothing_is_created_by_a_decision_of_an_epoch_that_was_lost_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)

    def lose_the_log() -> None:
        scene.following.state = State()
        scene.applier.epoch_began()

    scene.cluster.after = lose_the_log
    async with scene.running():
        await until(lambda: scene.cluster.after is None)
        await asyncio.sleep(0.3)
    assert scene.stored_stage() == "Starting"
    assert scene.pods() == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_pod_that_the_state_knows_only_since_it_was_read_anew_is_not_deleted() -> None:
    scene = Scene()
    scene.observe()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    earlier = snapshot.restore(snapshot.encode(scene.world.state))
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
    scene.world.say(pod_seen(scene.decoded(PODS, "default", "j-learner-0"), scene.world.terms[k.Watched.POD]))
    now, scene.following.state = scene.following.state, earlier
    look = Look(scene.following, earlier.jobs[scene.job.uid], Progress())  # type: ignore[arg-type]
    scene.following.state = now  # from a snapshot, because the process was paused and the log is trimmed
    with pytest.raises(StateReplaced):
        await scene.applier._pods.reconciler.reconcile(look)
    assert scene.pods() == ["j-learner-0"]


async def test_an_ended_job_is_deleted_when_its_ttl_is_over_and_not_before() -> None:
    scene = Scene()
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"ttlSecondsAfterFinished": 2_000_000_000}})
    scene.observe()
    scene.decide(Stage.SUCCEEDED)
    async with scene.running():
        await until(lambda: scene.stored_stage() == "Succeeded")
        await asyncio.sleep(0.2)
        assert scene.stored_stage() == "Succeeded"
        scene.store.patch(TYJOBS, "default", "j", {"spec": {"ttlSecondsAfterFinished": 1}})
        await until(scene.gone)


async def test_a_job_that_ends_while_a_pod_is_created_is_not_deleted_before_its_status_says_so() -> None:
    scene = Scene()
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"ttlSecondsAfterFinished": 0}})
    scene.observe()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    deleted_as: list[str] = []

    def end() -> None:
        scene.decide(Stage.SUCCEEDED)
        scene.cluster.deleting = lambda: deleted_as.append(scene.stored_stage())

    scene.cluster.creating = end
    async with scene.running():
        await until(lambda: scene.cluster.creating is None)
        await asyncio.sleep(0.2)
        assert deleted_as == []
        await until(scene.gone)
    assert deleted_as == ["Succeeded"]


async def test_a_job_that_is_to_be_kept_for_longer_at_the_last_moment_is_kept() -> None:
    scene = Scene()
    scene.tell_its_end()
    kept = {"spec": {"ttlSecondsAfterFinished": 2_000_000_000}}
    scene.cluster.deleting = lambda: scene.store.patch(TYJOBS, "default", "j", kept)
    async with scene.running():
        await until(lambda: scene.cluster.conflicts == 1)
        await asyncio.sleep(0.1)
    assert scene.stored_stage() == "Succeeded"


async def test_another_job_of_the_name_is_not_deleted_for_the_ended_ones_ttl() -> None:
    scene = Scene()
    scene.tell_its_end()
    scene.store.delete(TYJOBS, "default", "j")
    scene.store.create(TYJOBS, "default", msgspec.json.decode(msgspec.json.encode(JOB)))
    async with scene.running():
        await asyncio.sleep(0.3)
    assert scene.decoded(TYJOBS, "default", "j")["metadata"]["uid"] != scene.job.uid


async def test_no_pod_is_made_from_a_template_that_the_log_has_not_seen() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    # Another applier has stored the status. The room that was decided is for what the log knows. A server with our
    # schema refuses other requests now; this one stands for one without, and for any edit.
    scene.store.patch(
        TYJOBS, "default", "j", {"status": desired_status(scene.world.state, scene.job)}, subresource="status"
    )
    scene.observe()
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"priority": 9}})
    async with scene.running():
        await asyncio.sleep(0.3)
        assert scene.pods() == []
        scene.observe()
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.pods() == ["j-learner-0"])


async def test_the_status_is_stored_before_the_pod_exists() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    seen: list[tuple[list[str], str]] = []
    scene.cluster.after = lambda: seen.append((scene.pods(), scene.stored_stage()))
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
    assert seen == [([], "Starting")]


def at_once(order: list[JobRecord]) -> Generator[None, None, list[JobRecord]]:
    """An order that is worked out in one step."""
    yield from ()
    return order


async def test_the_place_in_the_queue_is_shown_for_the_first_places_only() -> None:
    scene = Scene()
    scene.tried()
    order: list[JobRecord] = [scene.job]
    scene.applier._statuses.jobs.positions = positions = QueuePositions(SystemClock(), lambda: at_once(order))
    others = [scene.world.job(f"other-{number}") for number in range(20)]

    def shown() -> int | None:
        status: Object = scene.decoded(TYJOBS, "default", "j").get("status") or {}
        return status.get("queuePosition")

    async def look() -> None:
        scene.observe()  # the status that was stored
        positions._again_s = -math.inf
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))

    async with scene.running():
        await until(lambda: shown() == 1)
        order[:] = [*others[:4], scene.job]
        await look()
        await until(lambda: shown() == 5)
        order[:] = [*others[:15], scene.job]
        await look()
        await until(lambda: shown() is None)  # far back: what it was would be false
        order[:] = [scene.job]
        await look()
        await until(lambda: shown() == 1)
        scene.world.cycle()
        scene.decide(Stage.STARTING)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Starting" and shown() is None)


class Watch(SystemClock):
    """Its time passes only when somebody says so."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


def test_the_order_of_a_short_queue_is_worked_out_at_once_but_seldom() -> None:
    scene, clock, asked = Scene(), Watch(), list[float]()
    scene.tried()

    def order() -> Generator[None, None, list[JobRecord]]:
        asked.append(clock.now_s)
        clock.now_s += 0.015
        yield
        return [scene.job]

    positions = QueuePositions(clock, order)
    while clock.now_s < 12:
        assert positions.of(scene.world.state, scene.job) == 1
        clock.now_s += 1.0
    assert [round(at_s) for at_s in asked] == [0, 5, 10]


def test_a_job_that_no_cycle_has_tried_has_no_position_and_asks_for_none() -> None:
    """Most jobs get nodes by their first cycle; and of jobs at once, the first would be number 1."""
    scene, asked = Scene(), list[int]()

    def order() -> Generator[None, None, list[JobRecord]]:
        asked.append(1)
        yield from ()
        return [scene.job]

    positions = QueuePositions(SystemClock(), order)
    assert positions.of(scene.world.state, scene.job) is None and not asked
    scene.tried()
    assert positions.of(scene.world.state, scene.job) == 1


def test_a_job_that_the_order_lacks_has_it_worked_out_again_soon() -> None:
    scene, clock = Scene(), Watch()
    scene.tried()
    orders = [[], [], [scene.job]]
    positions = QueuePositions(clock, lambda: at_once(orders.pop(0)))
    assert positions.of(scene.world.state, scene.job) is None
    clock.now_s = 0.4
    assert positions.of(scene.world.state, scene.job) is None and len(orders) == 2
    clock.now_s = 0.6
    assert positions.of(scene.world.state, scene.job) is None and len(orders) == 1
    clock.now_s = 1.2
    assert positions.of(scene.world.state, scene.job) == 1
    clock.now_s = 6.1
    assert positions.of(scene.world.state, scene.job) == 1


async def test_the_order_of_a_long_queue_is_worked_out_while_others_work() -> None:
    scene, clock, done = Scene(), Watch(), list[float]()
    scene.tried()
    orders = [[scene.job], [scene.world.job("other"), scene.job]]

    def order() -> Generator[None, None, list[JobRecord]]:
        for _ in range(3):
            done.append(clock.now_s)
            clock.now_s += 0.125
            yield
        return orders.pop(0)

    positions = QueuePositions(clock, order)
    running = asyncio.create_task(positions.run())
    assert positions.of(scene.world.state, scene.job) == 1, "the first time, nobody knows how long it takes"
    assert done == [0.0, 0.125, 0.25]
    clock.now_s = 75.0
    await asyncio.sleep(0)
    assert positions.of(scene.world.state, scene.job) == 1 and len(done) == 3, "not yet"
    clock.now_s = 76.0
    for _ in range(3):
        assert positions.of(scene.world.state, scene.job) == 1, "as it was the last time"
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert done[3:] == [76.0, 76.625, 77.25]
    assert positions.of(scene.world.state, scene.job) == 2
    running.cancel()


def test_a_job_that_is_suspended_leaves_the_queue_at_once() -> None:
    """The queue is worked out once in a while, and nothing would write the suspended job's status again."""
    scene = Scene()
    scene.tried()
    job, positions = scene.job, QueuePositions(SystemClock(), lambda: at_once([scene.job]))
    assert positions.of(scene.world.state, job) == 1
    scene.world.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.PENDING, StageReason.SUSPENDED))
    assert positions.of(scene.world.state, job) is None


def test_a_job_whose_queue_is_closed_or_gone_has_no_position_at_once() -> None:
    scene = Scene()
    scene.tried()
    job, positions = scene.job, QueuePositions(SystemClock(), lambda: at_once([scene.job]))
    assert positions.of(scene.world.state, job) == 1
    scene.world.queue("default", state=QueueState.CLOSED)
    assert positions.of(scene.world.state, job) is None


async def test_a_status_loses_its_position_when_the_job_leaves_the_queue() -> None:
    """Even if the status was stored with the position in the meantime, and nothing else in it changes afterwards."""
    scene = Scene()
    scene.tried()
    order: list[JobRecord] = [scene.job]
    scene.applier._statuses.jobs.positions = positions = QueuePositions(SystemClock(), lambda: at_once(order))

    def shown() -> int | None:
        status: Object = scene.decoded(TYJOBS, "default", "j").get("status") or {}
        return status.get("queuePosition")

    async with scene.running():
        await until(lambda: shown() == 1)
        order.clear()
        scene.observe()  # the status that was stored
        positions._again_s = -math.inf
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: shown() is None)


def test_the_place_in_the_queue_is_no_part_of_what_a_status_is_known_by() -> None:
    status = {"stage": "Pending", "attempt": 0}
    assert status_digest({**status, "queuePosition": 7}) == status_digest(status) != status_digest({"stage": "Pending"})
    assert status_digest({"queuePosition": 1}) == status_digest({}) == ""


class Appended:
    """A writer that only remembers."""

    def __init__(self) -> None:
        self.events: list[k.Event] = []

    async def append(self, events: Sequence[k.Event]) -> None:
        self.events += events


async def test_two_places_refused_in_turn_are_told_once_each_and_rest_before_they_are_tried_again() -> None:
    scene = Scene()
    look = scene.look()
    writer = scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    for _ in range(3):
        for index in (0, 1):
            refused = ApiError(409, "AlreadyExists", f"a pod named j-w-{index} exists")
            await scene.applier._pods.creation.refused(look, (1, index), refused)
            scene.world.say(writer.events[-1])
    assert len(writer.events) == 2
    assert set(look.progress.settling) == {(0, (1, 0)), (0, (1, 1))}


async def test_a_refused_pod_is_tried_again_in_time_whatever_the_job_is_looked_at_for_before() -> None:
    """A look for another reason uses up the plan for the refused pod. It was tried again with the next sweep only, when
    its nodes had been given up."""
    scene = Scene()
    look = scene.look()
    scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    await scene.applier._pods.creation.refused(look, (1, 0), ApiError(403, "Forbidden", "exceeded quota"))
    planned, now_s = scene.applier._queue._planned, scene.applier._clock.monotonic_s()
    planned.clear()  # as the queue does when it looks at the job
    assert scene.applier._pods.reconciler._due(look, [((1, 0), "n1"), ((1, 1), "n1")], now_s) == [((1, 1), "n1")]
    assert 1.0 < planned[look.job.uid] - now_s <= 2.1


async def test_a_refusal_that_the_log_has_forgotten_is_told_again_with_how_often_it_was_tried() -> None:
    """Room of a refused pod was given up and found again in the same attempt: the log must hear of it again."""
    scene = Scene()
    look = scene.look()
    job = look.job
    job.placements[(1, 0)] = "n1"
    writer = scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    refused = ApiError(403, "Forbidden", "exceeded quota")
    await scene.applier._pods.creation.refused(look, (1, 0), refused)
    scene.world.say(writer.events[-1])
    await scene.applier._pods.creation.refused(look, (1, 0), refused)
    assert len(writer.events) == 1 and job.slots.refused_ms
    job.slots.refused_ms.clear()
    await scene.applier._pods.creation.refused(look, (1, 0), refused)
    assert [event.tries for event in writer.events] == [1, 3]


async def test_what_an_earlier_job_of_the_name_left_behind_is_told_when_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    writer = scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    scene.store.create(TYJOBS, "default", {**JOB, "metadata": {"name": "earlier"}})  # of which our log knows no more
    uid = scene.decoded(TYJOBS, "default", "earlier")["metadata"]["uid"]
    owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "earlier", "uid": uid}
    left = {
        "metadata": {"name": "j-learner-0", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    scene.store.create(PODS, "default", left)
    pod, look = scene.decoded(PODS, "default", "j-learner-0"), scene.look()
    assert not await scene.applier._pods.creation._ours(look, (0, 0), PODS, pod["metadata"]["name"], None)
    assert writer.events == []  # a moment ago: it may be on its way
    monkeypatch.setattr("arranger.workers.applying.effects.creation._LEFTOVER_S", 0.0)
    assert not await scene.applier._pods.creation._ours(look, (0, 0), PODS, pod["metadata"]["name"], None)
    [told] = writer.events
    assert isinstance(told, k.EffectFailed)
    text = "a pod named j-learner-0 of an earlier job hasn't gone; delete it if it doesn't go"
    assert (told.message, told.permanent) == (text, False)


async def test_a_pod_of_the_job_whose_labels_somebody_changed_is_told_not_waited_for() -> None:
    """The projection takes it for nobody's, so its place looks empty, and its name is taken."""
    scene = Scene()
    writer = scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
        scene.store.patch(PODS, "default", "j-learner-0", {"metadata": {"labels": {"arranger.dev/index": "7"}}})
        scene.applier._progress[scene.job.uid].settling.clear()
        await until(lambda: bool(scene.gone() or writer.events))
    [told] = writer.events
    assert isinstance(told, k.EffectFailed) and not told.permanent
    assert told.message == "the labels arranger.dev/* of pod j-learner-0 were changed; delete it"


async def test_what_was_refused_in_an_earlier_attempt_is_forgotten() -> None:
    scene = Scene()
    scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    await scene.applier._pods.creation.refused(scene.look(), (0, 0), ApiError(403, "Forbidden", "exceeded quota"))
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    scene.decide(Stage.RESCHEDULING)
    async with scene.running():
        await until(lambda: not scene.applier._progress[scene.job.uid].refusals)


async def test_a_job_that_is_no_longer_ours_is_forgotten() -> None:
    scene = Scene()
    async with scene.running():
        await until(lambda: scene.stored_stage() == "Pending")
        assert scene.job.uid in scene.applier._progress
        scene.applier._membership = Nobody()  # type: ignore[assignment]
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: not scene.applier._progress)


_DENIED = 'admission webhook "policy.example.dev" denied the request: the image is not signed'
_AWAY = 'Internal error occurred: failed calling webhook "policy.example.dev": context deadline exceeded'


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [(400, "", _DENIED), (403, "Forbidden", _DENIED), (422, "Invalid", _DENIED), (500, "InternalError", _AWAY)],
)
async def test_what_admission_refuses_is_told_and_tried_again_and_never_fails_the_job(
    code: int, reason: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    writer = scene.applier._pods.creation._writer = Appended()  # type: ignore[assignment]
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    create = scene.cluster.create

    async def denied(resource: Resource, namespace: str | None, body: Mapping[str, Any], **asked: Any) -> Object:
        if resource == PODS:
            raise ApiError(code, reason, message)
        return await create(resource, namespace, body, **asked)

    monkeypatch.setattr(scene.cluster, "create", denied)
    async with scene.running():
        await until(lambda: bool(writer.events))
    [told] = writer.events
    assert isinstance(told, k.EffectFailed)
    assert (told.permanent, told.message) == (False, message)
    scene.world.say(told)
    assert desired_status(scene.world.state, scene.job)["message"] == f"create refused: {message}"


async def test_a_creation_that_begins_after_the_job_was_decided_again_is_dropped() -> None:
    scene = Scene()
    scene.observe()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    template = scene.decoded(TYJOBS, "default", "j")
    creation = scene.applier._pods.reconciler._create(scene.look(), (0, 0), "n1", template)
    scene.decide(Stage.RESCHEDULING)  # the coroutine is there and has not begun
    assert not await creation
    assert scene.pods() == []


@pytest.mark.parametrize("evict", [False, True], ids=["deletion", "eviction"])
async def test_a_pod_that_gets_a_slot_again_while_its_deletion_waits_is_not_deleted(
    evict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.observe()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
    pod = pod_seen(scene.decoded(PODS, "default", "j-learner-0"), scene.world.terms[k.Watched.POD])
    scene.world.say(pod)
    reconciler, look = scene.applier._pods.reconciler, scene.look()
    monkeypatch.setattr(reconciler, "_evicts", evict)
    monkeypatch.setattr("arranger.workers.applying.pods.pod_reconciler.gives_way", lambda *_: evict)
    read = scene.cluster.get

    async def paused(resource: Resource, namespace: str | None, name: str) -> Object:
        """The process is paused as it reads the pod; the log was lost meanwhile, and the job has adopted its pods."""
        found = await read(resource, namespace, name)
        scene.following.state = snapshot.restore(snapshot.encode(scene.world.state))
        return found

    monkeypatch.setattr(scene.cluster, "get", paused)
    assert not await reconciler._leave(look, pod, force=False)
    assert "deletionTimestamp" not in scene.decoded(PODS, "default", "j-learner-0")["metadata"]
    assert pod.uid not in look.progress.settling  # the next look may find that it is to go all the same


async def test_an_applier_that_has_not_read_the_log_for_long_does_nothing_until_it_has() -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    scene.following.is_fresh = False
    async with scene.running():
        await asyncio.sleep(0.5)
        assert scene.stored_stage() == "" and scene.pods() == []
        scene.following.is_fresh = True
        await until(lambda: len(scene.pods()) == 1)


async def test_an_applier_whose_clock_is_wrong_does_nothing_until_it_is_right() -> None:
    clock = SetClock()
    scene = Scene(compared(clock))
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    clock.ahead_ms = HOUR_MS
    async with scene.running():
        await asyncio.sleep(0.5)
        assert scene.stored_stage() == "" and scene.pods() == []
        clock.ahead_ms = 0
        await until(lambda: len(scene.pods()) == 1)


async def test_no_job_goes_early_by_a_clock_that_jumps_while_its_status_is_stored() -> None:
    clock = SetClock()
    scene = Scene(compared(clock))
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"ttlSecondsAfterFinished": 1800}})
    scene.observe()
    scene.decide(Stage.SUCCEEDED)

    def jump() -> None:
        clock.ahead_ms = HOUR_MS
        scene.observe()

    scene.cluster.after = jump
    async with scene.running():
        await until(lambda: clock.ahead_ms != 0)
        await asyncio.sleep(0.5)
        assert not scene.gone()


async def test_a_pod_that_was_made_free_of_its_deleted_job_stays_though_the_watch_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arranger.workers.applying.pods.pod_reconciler._COLLECTED_S", 0.0)
    scene = Scene()
    uid, term = scene.job.uid, scene.world.terms[k.Watched.POD]
    owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": uid, "controller": True}
    names = {"job": "j", "role": "leader", "index": "0", "attempt": "0"}
    labels = {f"arranger.dev/{name}": value for name, value in names.items()}
    body = {
        "metadata": {"name": "j-learner-0", "ownerReferences": [owner], "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x"}]},
    }
    scene.world.say(pod_seen(scene.store.create(PODS, "default", body).stored.object, term))
    scene.store.delete(TYJOBS, "default", "j", DeleteOptions(propagation="Orphan"))
    scene.world.job_gone(scene.job)
    async with scene.running(uid):
        await until(lambda: uid in scene.applier._progress and bool(scene.applier._progress[uid].settling))
        assert "deletionTimestamp" not in scene.decoded(PODS, "default", "j-learner-0")["metadata"]
        # What changed without being news is in the way of nothing.
        again = {**body["metadata"], "name": "j-learner-0-r1", "labels": {**labels, "arranger.dev/attempt": "1"}}
        other = scene.store.create(PODS, "default", {**body, "metadata": again}).stored.object
        scene.store.patch(PODS, "default", "j-learner-0-r1", {"metadata": {"annotations": {"a": "b"}}})
        scene.world.say(pod_seen(other, term))
        scene.applier.changed(Changes(jobs={uid: None}))
        await until(lambda: "deletionTimestamp" in scene.decoded(PODS, "default", "j-learner-0-r1")["metadata"])
        assert "deletionTimestamp" not in scene.decoded(PODS, "default", "j-learner-0")["metadata"]


def served(*, owner: str = "") -> Scene:
    """A job that asks for a Service and is about to start; with `owner`, that name has a Service of another already."""
    scene = Scene()
    scene.store.patch(TYJOBS, "default", "j", {"spec": {"leaderService": True}})
    scene.observe()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    if owner:
        owners = [{"apiVersion": "arranger.dev/v1", "kind": owner, "name": "j", "uid": "uid-of-another"}]
        scene.store.create(SERVICES, "default", {"metadata": {"name": "j-learner", "ownerReferences": owners}})
    return scene


async def test_the_leaders_service_stands_before_its_pod() -> None:
    scene = served()
    there: list[list[str]] = []
    create = scene.cluster.create

    async def noted(resource: Resource, namespace: str | None, body: Mapping[str, Any], **asked: Any) -> Object:
        if resource in (PODS, SERVICES):
            there.append([resource.kind, body["metadata"]["name"]])
        return await create(resource, namespace, body, **asked)

    scene.cluster.create = noted  # type: ignore[method-assign]
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
    assert there == [["Service", "j-learner"], ["Pod", "j-learner-0"]]
    assert scene.decoded(SERVICES, "default", "j-learner")["metadata"]["ownerReferences"][0]["uid"] == scene.job.uid


async def test_a_service_that_is_there_already_is_ours_by_its_owner() -> None:
    scene = served()
    owners = [{"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "j", "uid": scene.job.uid}]
    scene.store.create(SERVICES, "default", {"metadata": {"name": "j-learner", "ownerReferences": owners}})
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])


async def test_a_strangers_service_is_left_alone_and_told_and_no_pod_is_made() -> None:
    scene = served(owner="Other")
    told: list[k.Event] = []

    class Told:
        async def append(self, events: Sequence[k.Event]) -> None:
            told.extend(events)

    scene.applier._pods.creation._writer = Told()  # type: ignore[assignment]
    async with scene.running():
        await until(lambda: bool(told))
        assert scene.pods() == []
    [failed] = told
    assert isinstance(failed, k.EffectFailed)
    assert "a service named j-learner exists that isn't this job's" in failed.message
    assert not failed.permanent
    assert scene.decoded(SERVICES, "default", "j-learner")["metadata"]["ownerReferences"][0]["kind"] == "Other"


async def test_the_service_of_an_earlier_job_of_the_name_is_not_taken_for_ours() -> None:
    scene = served(owner="TYJob")  # the collector is about to take it away
    async with scene.running():
        await until(lambda: scene.pods() == ["j-learner-0"])
    assert scene.decoded(SERVICES, "default", "j-learner")["metadata"]["ownerReferences"][0]["uid"] == scene.job.uid


@pytest.fixture
def without_ratcheting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that checks unchanged fields again, as those before Kubernetes 1.30 do."""
    monkeypatch.setattr(validation, "_same", lambda *_: False)


@pytest.mark.usefixtures("without_ratcheting")
async def test_a_status_is_stored_in_the_version_for_statuses_whatever_the_spec_is() -> None:
    """The schema of v1, which is checked for every status otherwise, may be stricter than when the job was created."""
    scene = Scene()
    strict = tyjob_definition()
    spec = strict["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["minWorkersNum"]["minimum"] = 1
    scene.store.create(CRDS, "", strict)
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: scene.stored_stage() == "Starting")
    with pytest.raises(ApiError, match="minWorkersNum"):
        scene.store_stage(Stage.RUNNING)


async def test_an_older_definition_gets_statuses_as_v1_until_it_has_their_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    definition = tyjob_definition()
    versions = definition["spec"]["versions"]
    definition["spec"]["versions"] = versions[:1]
    versions_seen = scene.cluster.versions = []
    scene.store.create(CRDS, "", definition)
    scene.world.cycle()
    async with scene.running():
        scene.decide(Stage.STARTING)
        await until(lambda: scene.stored_stage() == "Starting")
        scene.decide(Stage.RUNNING)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Running")
        assert versions_seen == ["v1status", "v1", "v1"]
        [told] = [record for record in caplog.records if "older than this release" in record.message]
        assert told.levelno == logging.WARNING
        scene.store.patch(CRDS, "", "tyjobs.arranger.dev", {"spec": {"versions": versions}})
        scene.applier._statuses.jobs._older_until_s = 0.0  # a minute later
        scene.decide(Stage.SUCCEEDED)
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await until(lambda: scene.stored_stage() == "Succeeded")
    assert versions_seen == ["v1status", "v1", "v1", "v1status"]


@pytest.mark.usefixtures("without_ratcheting")
async def test_a_status_that_an_older_definition_refuses_is_told_and_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As v1 an object older than its schema may accept no status; only Events then tell users of the job."""
    scene = Scene()
    definition = tyjob_definition()
    del definition["spec"]["versions"][1]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["minWorkersNum"]["minimum"] = 1
    scene.store.create(CRDS, "", definition)
    versions = scene.cluster.versions = []
    told: list[str] = []
    monkeypatch.setattr(scene.applier._statuses.jobs._reports, "report", lambda job, _: told.append(job.seen.name))
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: bool(told))
        scene.applier.changed(Changes(jobs={scene.job.uid: None}))
        await asyncio.sleep(0.2)
    assert (told, versions, scene.stored_stage(), scene.pods()) == (["j"], ["v1status", "v1"], "", [])


async def test_a_status_that_its_version_refuses_is_stored_as_v1(caplog: pytest.LogCaptureFixture) -> None:
    """An API server may find that the spec of an object that was forced past the schema isn't equal to itself."""
    scene = Scene()
    definition = tyjob_definition()
    [rule] = definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "x-kubernetes-validations"
    ]
    rule["rule"] = "self != oldSelf"
    scene.store.create(CRDS, "", definition)
    versions = scene.cluster.versions = []
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    async with scene.running():
        await until(lambda: scene.stored_stage() == "Starting")
    assert versions == ["v1status", "v1"]
    assert "older than this release" not in caplog.text


async def test_a_job_that_is_gone_says_nothing_about_the_definition(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.world.cycle()
    scene.decide(Stage.STARTING)
    scene.cluster.before = lambda: scene.store.delete(TYJOBS, "default", "j")  # type: ignore[assignment,func-returns-value]
    async with scene.running():
        await until(lambda: scene.cluster.before is None)
        await asyncio.sleep(0.1)
    assert scene.applier._statuses.jobs._older_until_s == -math.inf and scene.pods() == []
    assert "older than this release" not in caplog.text


def test_a_status_clears_every_field_that_the_definition_has() -> None:
    definition = tyjob_definition()
    status = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert sorted(_STATUS_FIELDS) == sorted(status["properties"])
