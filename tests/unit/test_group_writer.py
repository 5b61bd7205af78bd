"""The group writer: what it stores in PodGroups of Volcano and Kubernetes, when it writes and when it doesn't."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import NATIVE_GROUPS, PODS, VOLCANO_GROUPS, VOLCANO_JOBS, ApiError, Object, Resource
from arranger.kube.pod_groups import pod_group_seen
from arranger.kube.translate import pod_seen
from arranger.model.pod import GroupKind
from arranger.projections.state import Changes
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import custom_kinds
from arranger.sandbox.store import Store
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.carrying_out import Effects
from arranger.workers.applying.statuses.group_writer import GroupWriter
from tests.parts import parts
from tests.pod_groups import (
    TF_JOBS,
    definition,
    job_definition,
    naming,
    native_definition,
    native_group,
    owned,
    pod_group,
    training_definition,
    training_job,
    volcano_job,
)
from tests.stores import store_of_jobs
from tests.unit.test_applier import Everyone, Following, until
from tests.unit.test_queue_writer import Share
from tests.world import World


class Counting(DirectCluster):
    """A cluster that notes what is patched and which Jobs are read, and refuses the next patches."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.patches: list[Mapping[str, Any]] = []
        self.jobs_read = 0
        self.problems: list[Exception] = []
        #: What happens once before a patch is taken.
        self.before: Callable[[], object] | None = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self.jobs_read += resource in (VOLCANO_JOBS, TF_JOBS)
        return await super().get(resource, namespace, name)

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


class Scene:
    """A store with the PodGroup `train` of a kind, a log that has seen it and a node of four CPUs, and a writer that
    looks at it often."""

    def __init__(
        self,
        kind: GroupKind,
        *,
        least: int = 2,
        job: str = "",
        native: Resource = NATIVE_GROUPS[0],
        owner: Object | None = None,
        schedulers: str = "arranger",
    ) -> None:
        self.kind = kind
        self.store = store_of_jobs()
        if kind == GroupKind.VOLCANO:
            self.resource = VOLCANO_GROUPS
            self._serve(definition(kind), job_definition(), training_definition(TF_JOBS))
            made = pod_group("train", kind, least)
            if owner is not None:
                made = owned(made, self.store.create(TF_JOBS, "default", owner).stored.object)
            if job:
                made = owned(made, self.store.create(VOLCANO_JOBS, "default", volcano_job("train", job)).stored.object)
        else:
            self.resource = native
            made = native_group(native, "train", least)
            self._serve(native_definition(native))
        self.store.create(self.resource, "default", made)
        self.cluster = Counting(self.store)
        self.world = World()
        self.world.node("n1", cpu=4)
        self.share = Share()
        self.following: Any = Following(self.world.state)
        self.parts = parts(
            cluster=self.cluster, follower=self.following, settings={"api_in_flight": 8, "scheduler_names": schedulers}
        )
        self.writer = GroupWriter(Effects(self.parts), self.share.owns)
        self.observe()

    def _serve(self, *definitions: Object) -> None:
        for kinds in map(custom_kinds, definitions):
            self.store.collections[kinds[0].key] = Collection(kinds, 1000)

    def come(self, *names: str, cpu: int = 1) -> None:
        """Pods that name the PodGroup come."""
        for name in names:
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
            made: Object = {
                "metadata": {"name": name},
                "spec": {"schedulerName": "arranger", "containers": [container]},
            }
            if self.kind == GroupKind.VOLCANO:
                naming(made, "train", self.kind)
            else:
                made["spec"]["schedulingGroup"] = {"podGroupName": "train"}
            self.store.create(PODS, "default", made)
        self.observe()

    def turn(self, phase: str, *names: str) -> None:
        """Pods enter a phase."""
        for name in names:
            self.store.patch(PODS, "default", name, {"status": {"phase": phase}}, subresource="status")
        self.observe()

    def leave(self, *names: str) -> None:
        """Pods are deleted."""
        for name in names:
            self.world.pod_gone(self.store.get(PODS, "default", name).uid)
            self.store.delete(PODS, "default", name, DeleteOptions(grace_s=0))
        self.observe()

    def bind(self) -> None:
        """A cycle places the pods, and each is bound."""
        self.world.cycle()
        (job,) = self.world.state.jobs.values()
        for slot, node in sorted(job.placements.items()):
            self.store.bind("default", job.pod_name(slot), node)
        self.observe()

    def observe(self) -> None:
        """The watches show the PodGroup and the pods as they are now."""
        term = self.world.watch_groups(self.kind)
        self.world.say(pod_group_seen(self.kind, self.group, term))
        for stored in self.store.collection(PODS).objects.values():
            self.world.say(pod_seen(msgspec.json.decode(stored.raw), self.world.terms[k.Watched.POD], ("arranger",)))

    @property
    def group(self) -> Object:
        found: Object = msgspec.json.decode(self.store.get(self.resource, "default", "train").raw)
        return found

    @property
    def status(self) -> Object:
        return self.group.get("status") or {}

    @property
    def phase(self) -> object:
        return self.status.get("phase")

    @property
    def condition(self) -> tuple[object, ...]:
        found = [of for of in self.status.get("conditions") or () if of["type"] != "example.com/Checked"]
        return tuple(found[0][name] for name in ("type", "status", "reason", "message")) if found else ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.writer.begin()
        try:
            yield
        finally:
            await self.writer.end()

    async def rest(self) -> None:
        """Some looks happen."""
        self.observe()
        await self.rest_unseen()

    async def rest_unseen(self) -> None:
        """The same, and no watch shows anything new."""
        await asyncio.sleep(0.15)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.workers.applying.statuses.status_rounds._EVERY_S", 0.02)


async def test_an_applier_begins_to_look_once_there_is_a_group_whose_status_is_written() -> None:
    scene = Scene(GroupKind.VOLCANO, job="arranger")
    state, known = scene.world.state, dict(scene.world.state.pod_groups)
    state.pod_groups.clear()
    applier = Applier(parts(cluster=scene.cluster, follower=scene.following, membership=Everyone()))
    task = asyncio.create_task(applier.run())
    await scene.rest_unseen()
    assert applier._statuses._groups._task is None
    state.pod_groups |= known
    applier.changed(Changes())
    await until(lambda: scene.phase == "Inqueue")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert applier._statuses._groups._task is None


async def test_a_volcano_job_that_names_arranger_is_let_in_and_those_of_other_schedulers_are_not() -> None:
    ours, others = Scene(GroupKind.VOLCANO, job="arranger"), Scene(GroupKind.VOLCANO, job="volcano")
    async with ours.running(), others.running():
        await until(lambda: ours.phase == "Inqueue")
        await until(lambda: others.cluster.jobs_read == 1)
        await ours.rest()
        await others.rest()
        assert (ours.cluster.jobs_read, len(ours.cluster.patches)) == (1, 1)
        assert (others.cluster.jobs_read, others.cluster.patches) == (1, [])


@pytest.mark.parametrize(
    ("named", "schedulers", "let_in"),
    [
        ("arranger", "arranger", True),
        ("volcano", "arranger", False),
        ("", "arranger", False),  # training-operator then writes volcano into the pods
        ("volcano", "arranger,volcano", True),
        ("", "arranger,volcano", True),
        ("other", "arranger,volcano", False),
    ],
)
async def test_a_group_of_volcano_is_let_in_if_arranger_places_the_pods_that_its_owner_will_make(
    named: str, schedulers: str, let_in: bool
) -> None:
    """training-operator makes no pod of a TFJob before its PodGroup's phase isn't Pending any more."""
    scene = Scene(GroupKind.VOLCANO, owner=training_job("train", named), schedulers=schedulers)
    async with scene.running():
        await until(lambda: scene.cluster.jobs_read == 1)
        await scene.rest()
    assert (scene.phase, scene.cluster.jobs_read) == ("Inqueue" if let_in else None, 1)


@pytest.mark.parametrize("owner", [None, {"apiVersion": "example.com/v1", "kind": "Sweep"}])
async def test_a_group_whose_owner_says_nothing_is_let_in_if_arranger_is_volcanos_scheduler(
    owner: Object | None,
) -> None:
    ours, others = (Scene(GroupKind.VOLCANO, schedulers=names) for names in ("arranger,volcano", "arranger"))
    for scene in (ours, others):
        refs = {"ownerReferences": [{**owner, "name": "a", "uid": "u"}]} if owner is not None else {}
        scene.store.patch(scene.resource, "default", "train", {"metadata": refs})
        scene.observe()
    async with ours.running(), others.running():
        await until(lambda: ours.phase == "Inqueue")
        await others.rest()
        assert others.cluster.patches == []


async def test_a_group_of_volcano_that_nobody_owns_and_no_pod_names_is_left_alone() -> None:
    scene = Scene(GroupKind.VOLCANO)
    async with scene.running():
        await scene.rest()
    assert scene.cluster.patches == [] and scene.cluster.jobs_read == 0


async def test_the_phase_of_a_group_of_volcano_follows_its_pods_to_their_end() -> None:
    scene = Scene(GroupKind.VOLCANO, least=2)
    scene.come("a")
    async with scene.running():
        await until(lambda: scene.condition != ())
        waits = "waits for 1 more pod of its group, which needs 2 and has 1"
        assert (scene.phase, scene.condition) == ("Inqueue", ("Unschedulable", "True", "NotEnoughTasks", waits))
        scene.come("b")
        scene.bind()
        await until(lambda: scene.phase == "Running")
        assert scene.condition[:3] == ("Scheduled", "True", "Scheduled")
        scene.turn("Running", "a", "b")
        await until(lambda: scene.status["running"] == 2)
        scene.turn("Failed", "a")
        scene.turn("Succeeded", "b")
        await until(lambda: scene.phase == "Completed")
    assert [scene.status[name] for name in ("running", "succeeded", "failed")] == [0, 1, 1]
    assert scene.group["spec"] == {"minMember": 2}


@pytest.mark.parametrize("job", ["", "arranger"])
async def test_the_status_of_a_group_of_volcano_follows_it_to_nothing(job: str) -> None:
    scene = Scene(GroupKind.VOLCANO, least=2, job=job)
    scene.come("a", "b")
    scene.bind()
    async with scene.running():
        scene.turn("Running", "a", "b")
        await until(lambda: scene.status.get("running") == 2)
        if job:  # another process knows by the Volcano Job whose group it is
            await scene.writer.end()
            scene.writer = GroupWriter(Effects(scene.parts), scene.share.owns)
            scene.writer.begin()
        scene.leave("a", "b")
        await until(lambda: scene.phase == "Inqueue")
        assert scene.condition == () and scene.status["running"] == 0


async def test_a_group_of_volcano_that_runs_without_pods_of_arranger_is_left_alone() -> None:
    alone, others = Scene(GroupKind.VOLCANO), Scene(GroupKind.VOLCANO, job="volcano")
    for scene in (alone, others):
        scene.store.patch(scene.resource, "default", "train", {"status": {"phase": "Running", "running": 2}})
        async with scene.running():
            await scene.rest()
        assert scene.status == {"phase": "Running", "running": 2}


async def test_a_group_of_volcano_without_room_says_which_resources_lack() -> None:
    scene = Scene(GroupKind.VOLCANO, least=2)
    scene.come("a", "b", cpu=3)
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.condition != ())
    assert scene.condition[2] == "NotEnoughResources" and "insufficient cpu" in str(scene.condition[3])


@pytest.mark.parametrize(
    ("native", "condition"),
    [(of, "PodGroupScheduled" if of.version == "v1alpha2" else "PodGroupInitiallyScheduled") for of in NATIVE_GROUPS],
    ids=lambda of: getattr(of, "version", ""),
)
async def test_a_group_of_kubernetes_says_why_it_waits_and_stays_scheduled_once_it_was(
    native: Resource, condition: str
) -> None:
    scene = Scene(GroupKind.NATIVE, native=native)
    checked = {"type": "example.com/Checked", "status": "True"}
    scene.store.patch(scene.resource, "default", "train", {"status": {"conditions": [checked]}}, subresource="status")
    scene.come("a", "b", cpu=3)
    scene.world.cycle()
    async with scene.running():
        await until(lambda: scene.condition != ())
        assert scene.condition[:3] == (condition, "False", "Unschedulable")
        assert "insufficient cpu" in str(scene.condition[3])
        scene.world.node("n2", cpu=4)
        scene.bind()
        await until(lambda: scene.condition[1] == "True")
        assert scene.condition == (condition, "True", "Scheduled", "")
        scene.come("c", cpu=9)
        scene.world.cycle()
        writes = len(scene.cluster.patches)
        await scene.rest()
        assert len(scene.cluster.patches) == writes
    assert checked in scene.status["conditions"], "conditions of others stay"
    ours = scene.status["conditions"][-1]
    assert ours["lastTransitionTime"] and ours["observedGeneration"] == scene.group["metadata"]["generation"]


async def test_a_condition_of_an_earlier_version_makes_way_for_the_present_one() -> None:
    scene = Scene(GroupKind.NATIVE)
    earlier = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "of 1.36"}
    scene.store.patch(scene.resource, "default", "train", {"status": {"conditions": [earlier]}}, subresource="status")
    scene.come("a", "b")
    scene.bind()
    async with scene.running():
        await until(lambda: scene.condition[1] == "True")
    assert [of["type"] for of in scene.status["conditions"]] == ["PodGroupInitiallyScheduled"]


async def test_another_process_finds_the_status_as_it_should_be_and_writes_nothing() -> None:
    scene = Scene(GroupKind.VOLCANO)
    scene.come("a")
    async with scene.running():
        await until(lambda: scene.phase == "Inqueue")
    scene.observe()
    scene.cluster.patches.clear()
    scene.writer = GroupWriter(Effects(scene.parts), scene.share.owns)
    async with scene.running():
        await scene.rest()
    assert scene.cluster.patches == []


async def test_words_alone_wait_for_their_turn_and_a_condition_keeps_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(GroupKind.NATIVE, least=3)
    scene.come("a")
    async with scene.running():
        await until(lambda: scene.condition != ())
        since = scene.status["conditions"][0]["lastTransitionTime"]
        scene.come("b")
        await scene.rest()
        assert "has 1" in str(scene.condition[3])
        monkeypatch.setattr("arranger.workers.applying.statuses.group_writer._WORDS_S", 0.0)
        await until(lambda: "has 2" in str(scene.condition[3]))
    assert scene.status["conditions"][0]["lastTransitionTime"] == since


async def test_what_another_scheduler_writes_is_written_again_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SETTLE_S", 0.0), ("_OTHERS_S", 0.0)):
        monkeypatch.setattr(f"arranger.workers.applying.statuses.group_writer.{name}", value)
    scene = Scene(GroupKind.VOLCANO)
    scene.come("a")

    def disturb() -> None:
        scene.store.patch(scene.resource, "default", "train", {"status": {"phase": "Pending"}})
        scene.observe()

    async with scene.running():
        await until(lambda: scene.phase == "Inqueue")
        scene.observe()
        disturb()
        await until(lambda: scene.phase == "Inqueue")
        scene.observe()
        monkeypatch.setattr("arranger.workers.applying.statuses.group_writer._OTHERS_S", 100.0)
        disturb()
        await scene.rest()
        assert scene.phase == "Pending"
        scene.come("b")
        scene.bind()
        await until(lambda: scene.phase == "Running")  # news are written at once


async def test_what_belongs_to_others_or_may_not_be_written_is_left_alone() -> None:
    scene = Scene(GroupKind.VOLCANO)
    scene.come("a")
    scene.share.ours = False
    async with scene.running():
        await scene.rest()
        scene.following.is_fresh, scene.share.ours = False, True
        await scene.rest()
        assert scene.cluster.patches == []
        scene.following.is_fresh = True
        await until(lambda: scene.phase == "Inqueue")


async def test_nothing_is_written_without_a_name_of_a_scheduler() -> None:
    scene = Scene(GroupKind.VOLCANO, job="arranger")
    quiet = parts(cluster=scene.cluster, follower=scene.following, settings={"scheduler_names": ""})
    scene.writer = GroupWriter(Effects(quiet), scene.share.owns)
    async with scene.running():
        await scene.rest()
    assert scene.cluster.patches == [] and scene.cluster.jobs_read == 0


async def test_a_group_that_changed_meanwhile_is_read_again() -> None:
    scene = Scene(GroupKind.VOLCANO)
    scene.come("a")
    scene.cluster.before = lambda: scene.store.patch(scene.resource, "default", "train", {"spec": {"queue": "q"}})
    async with scene.running():
        await until(lambda: scene.phase == "Inqueue")
    assert len(scene.cluster.patches) == 2 and scene.group["spec"]["queue"] == "q"


@pytest.mark.parametrize("code", [403, 422])
async def test_a_refused_status_rests(code: int) -> None:
    scene = Scene(GroupKind.VOLCANO)
    scene.come("a")
    scene.cluster.problems = [ApiError(code, "Refused", "no right, or another schema")]
    async with scene.running():
        await until(lambda: bool(scene.cluster.patches))
        scene.come("b")
        await scene.rest()
        assert len(scene.cluster.patches) == 1
        scene.writer.clear()
        await until(lambda: scene.phase == "Inqueue")
