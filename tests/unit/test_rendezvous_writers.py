"""The Services and the members file of a job: made before its pods, kept while it runs, and never taken from others."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.kube.cluster import CONFIG_MAPS, PODS, SERVICES, TYJOBS, ApiError, Object, Resource
from arranger.kube.translate import pod_seen
from arranger.model.job import Stage
from arranger.projections.state import State
from arranger.sandbox.direct import DirectCluster
from arranger.workers.applying.effects.progress import StateReplaced
from tests.unit.test_applier import JOB, Scene

KINDS = (PODS, SERVICES, CONFIG_MAPS)


class Stopped(SystemClock):
    """Time passes when a test says so."""

    passed_s = 0.0

    def monotonic_s(self) -> float:
        return self.passed_s


class Noted(DirectCluster):
    """The API server, the requests that it got, and what it answers to the next one of a kind."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.store)
        self.asked: list[str] = []
        self.refusals: dict[str, ApiError] = {}

    def _note(self, verb: str, resource: Resource) -> None:
        asked = f"{verb} {resource.plural}"
        if resource in KINDS:
            self.asked.append(asked)
        if asked in self.refusals:
            raise self.refusals.pop(asked)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self._note("get", resource)
        return await super().get(resource, namespace, name)

    async def create(self, resource: Resource, namespace: str | None, body: Any, **more: Any) -> Object:
        self._note("create", resource)
        return await super().create(resource, namespace, body, **more)

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Any, **more: Any) -> Object:
        self._note("patch", resource)
        return await super().patch(resource, namespace, name, body, **more)


class Told:
    """A writer that keeps what it should append."""

    def __init__(self) -> None:
        self.events: list[k.Event] = []

    async def append(self, events: Sequence[k.Event]) -> None:
        self.events.extend(events)


class Running:
    """A job with a members file, and an applier that looks at it when told."""

    def __init__(self) -> None:
        job: Any = copy.deepcopy(JOB)
        job["spec"] |= {
            "leaderService": True,
            "workerSets": [
                {
                    "name": "actors",
                    "counts": 2,
                    "rendezvous": {"membersFile": True},
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
                }
            ],
        }
        self.clock = Stopped()
        self.scene = Scene(self.clock, job)
        self.cluster = self.scene.applier._effects.cluster = Noted(self.scene)
        self.told = self.scene.applier._pods.creation._writer = Told()  # type: ignore[assignment]
        self.scene.world.cycle()
        if self.scene.job.stage == Stage.PENDING:
            self.scene.decide(Stage.STARTING)

    async def look(self, *, after_s: float = 0.0) -> list[str]:
        """The requests that a look at the job makes."""
        self.clock.passed_s += after_s
        self.cluster.asked = []
        await self.scene.applier._pods.reconciler.reconcile(self.scene.look())
        return self.cluster.asked

    def shows(self, name: str, **changes: Any) -> None:
        """The watch shows a pod, which runs and is ready, but for the changes."""
        status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
        self.scene.store.patch(PODS, "default", name, {"status": {**status, **changes}}, subresource="status")
        seen = pod_seen(self.scene.decoded(PODS, "default", name), self.scene.world.terms[k.Watched.POD])
        self.scene.world.say(seen)

    async def begun(self) -> "Running":
        """The leader and both workers run, and the file shows it."""
        await self.look()
        self.shows("j-learner-0")
        await self.look(after_s=5.0)
        self.shows("j-actors-0")
        self.shows("j-actors-1")
        await self.look(after_s=5.0)
        return self

    def file(self) -> Any:
        return json.loads(self.scene.decoded(CONFIG_MAPS, "default", "j-members")["data"]["members.json"])

    @property
    def due_s(self) -> float | None:
        planned_s = self.scene.applier._queue._planned.get(self.scene.job.uid)
        return planned_s - self.clock.passed_s if planned_s is not None else None


async def test_services_and_the_file_are_there_before_the_first_pod() -> None:
    running = Running()
    asked = await running.look()
    assert [each for each in asked if each.startswith("create")] == [
        "create services",
        "create services",
        "create configmaps",
        "create pods",
    ]
    assert [of["ready"] for of in running.file()["sets"]] == [[0], [0, 0]]
    for name in ("j", "j-learner"):
        assert running.scene.decoded(SERVICES, "default", name)["spec"]["clusterIP"] == "None"


async def test_the_file_shows_pods_as_they_come_and_go() -> None:
    running = await Running().begun()
    assert [of["ready"] for of in running.file()["sets"]] == [[1], [1, 1]]
    running.shows("j-actors-1", phase="Failed")
    assert await running.look(after_s=5.0) == ["patch configmaps"]
    assert [of["addresses"] for of in running.file()["sets"]] == [["10.0.0.7"], ["10.0.0.7", ""]]
    running.scene.store.patch(TYJOBS, "default", "j", {"spec": {"workerSets": more(running, 4)}})
    running.scene.observe()
    running.scene.world.cycle()
    asked = await running.look(after_s=5.0)
    assert sorted(asked) == ["create pods", "create pods", "patch configmaps"]
    assert running.file()["sets"][1]["placed"] == [1, 1, 1, 1]


def more(running: Running, counts: int) -> list[Any]:
    [workers] = running.scene.decoded(TYJOBS, "default", "j")["spec"]["workerSets"]
    return [{**workers, "counts": counts}]


async def test_an_unchanged_file_is_not_written_and_a_changed_one_at_most_once_a_second() -> None:
    running = await Running().begun()
    for _ in range(10):
        assert await running.look(after_s=2.0) == []
    running.shows("j-actors-0", conditions=[])
    assert await running.look(after_s=1.0) == ["patch configmaps"]
    running.shows("j-actors-0")
    assert await running.look(after_s=0.3) == []
    assert running.due_s == pytest.approx(0.7)
    assert await running.look(after_s=0.8) == ["patch configmaps"]


async def test_what_somebody_deleted_is_made_again() -> None:
    running = await Running().begun()
    for resource, name in ((SERVICES, "j"), (SERVICES, "j-learner"), (CONFIG_MAPS, "j-members")):
        running.scene.store.delete(resource, "default", name)
    await running.look(after_s=61.0)
    await running.look(after_s=2.0)
    assert [of["ready"] for of in running.file()["sets"]] == [[1], [1, 1]]
    assert running.scene.decoded(SERVICES, "default", "j")["spec"]["selector"] == {"arranger.dev/job": "j"}
    running.scene.store.delete(CONFIG_MAPS, "default", "j-members")
    running.shows("j-actors-0", conditions=[])
    assert await running.look(after_s=2.0) == ["patch configmaps"]  # which finds it gone
    assert 0 < (running.due_s or 0.0) <= 1.0
    assert await running.look(after_s=2.0) == ["get configmaps", "create configmaps"]
    assert running.file()["sets"][1]["ready"] == [0, 1]


async def test_a_file_that_somebody_changed_is_put_right_and_other_keys_are_left() -> None:
    running = await Running().begun()
    changed = {"data": {"members.json": "{}", "mine": "a"}}
    running.scene.store.patch(CONFIG_MAPS, "default", "j-members", changed)
    running.shows("j-actors-0", conditions=[])
    assert await running.look(after_s=2.0) == ["patch configmaps"]  # a conflict: it isn't what was written last
    assert await running.look(after_s=2.0) == ["get configmaps", "patch configmaps"]
    assert running.file()["sets"][1]["ready"] == [0, 1]
    assert running.scene.decoded(CONFIG_MAPS, "default", "j-members")["data"]["mine"] == "a"


async def test_another_process_goes_on_with_the_file_that_it_finds() -> None:
    running = await Running().begun()
    running.scene.applier._progress.clear()
    before = running.scene.decoded(CONFIG_MAPS, "default", "j-members")
    assert "patch configmaps" not in await running.look(after_s=2.0)
    assert running.scene.decoded(CONFIG_MAPS, "default", "j-members") == before
    running.shows("j-actors-0", conditions=[])
    assert await running.look(after_s=2.0) == ["patch configmaps"]


@pytest.mark.parametrize(("resource", "name"), [(SERVICES, "j"), (CONFIG_MAPS, "j-members")])
async def test_what_is_not_the_jobs_is_never_changed_and_told(resource: Resource, name: str) -> None:
    running = Running()
    running.scene.store.create(resource, "default", {"metadata": {"name": name}, "data": {"a": "b"}})
    before = running.scene.decoded(resource, "default", name)
    assert "create pods" not in await running.look()
    assert running.scene.decoded(resource, "default", name) == before
    [failed] = running.told.events  # type: ignore[attr-defined]
    assert f"a {resource.kind.lower()} named {name} exists that isn't this job's" in failed.message
    assert not failed.permanent


async def test_a_file_that_was_taken_over_while_the_job_runs_is_left_to_its_new_owner() -> None:
    running = await Running().begun()
    running.scene.store.delete(CONFIG_MAPS, "default", "j-members")
    running.scene.store.create(CONFIG_MAPS, "default", {"metadata": {"name": "j-members"}, "data": {"a": "b"}})
    running.shows("j-actors-0", conditions=[])
    for _ in range(4):
        await running.look(after_s=61.0)
    assert running.scene.decoded(CONFIG_MAPS, "default", "j-members")["data"] == {"a": "b"}


@pytest.mark.parametrize("code", [403, 413, 422])
async def test_a_refused_file_rests_and_delays_no_pod(code: int) -> None:
    running = await Running().begun()
    running.shows("j-actors-0", conditions=[])
    running.cluster.refusals["patch configmaps"] = ApiError(code, "Refused", "no")
    assert await running.look(after_s=2.0) == ["patch configmaps"]
    assert await running.look(after_s=2.0) == []
    await running.look(after_s=61.0)
    assert running.file()["sets"][1]["ready"] == [0, 1]


async def test_a_file_of_another_attempt_is_brought_up_to_date_before_its_first_pod() -> None:
    running = await Running().begun()
    running.scene.decide(Stage.RESCHEDULING)
    await running.look()
    for uid in list(running.scene.world.state.pods):
        name = running.scene.world.state.pods[uid].name
        running.scene.store.delete(PODS, "default", name)
        running.scene.world.pod_gone(uid)
    running.scene.world.cycle()
    asked = await running.look(after_s=1.0)
    assert asked.index("patch configmaps") < asked.index("create pods")
    assert running.file()["attempt"] == 1
    assert running.file()["sets"][1]["addresses"] == ["", ""]


async def test_a_job_of_an_ended_epoch_has_its_members_file_left_alone() -> None:
    """The epoch ended while the look waited for an effect: the job's pods are not in the present projection."""
    running = await Running().begun()
    look = running.scene.look()
    running.cluster.asked = []
    running.clock.passed_s += 5.0
    running.scene.applier._follower.state = State()
    with pytest.raises(StateReplaced):
        await running.scene.applier._pods.reconciler._needs._members.keep(look)
    assert not running.cluster.asked
