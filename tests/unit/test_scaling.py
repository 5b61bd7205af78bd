"""The scaled set: `replicas` in place of its counts, what the scale subresource shows, and the Events of scaling."""

from typing import Any

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.kube.cluster import EVENTS, Object
from arranger.kube.manifests import pod_manifest
from arranger.kube.translate import job_seen
from arranger.lifecycle.desired import desired_status
from arranger.model.job import JobSpec, Stage
from arranger.model.tyjob import job_spec
from arranger.projections.consistency import validate
from arranger.projections.jobs.parts import STEPS_KEPT
from arranger.projections.jobs.records import JobRecord
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.sandbox.store import Store
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reporter import Reporter
from tests.unit.tyjob_table import template, tyjob_with
from tests.world import Edited, World, shape

SETS = [
    {"name": "actors", "counts": 4, "template": template(cpu="1")},
    {"name": "critics", "template": template(cpu="2")},
]
METADATA = {"metadata": {"name": "train", "namespace": "team", "uid": "ju"}}


def job_with(**spec: Any) -> Object:
    return tyjob_with({**METADATA, "spec/workerSets": SETS, **{f"spec/{name}": of for name, of in spec.items()}})


def counts(spec: JobSpec) -> list[int]:
    return [group.count for group in spec.groups[1:]]


@pytest.mark.parametrize(
    ("spec", "expected", "scaled"),
    [
        ({}, [4, 1], 1),
        ({"replicas": 7}, [7, 1], 1),
        ({"replicas": 0}, [0, 1], 1),
        ({"replicas": 7, "scaledSet": "critics"}, [4, 7], 2),
        ({"scaledSet": "critics"}, [4, 1], 2),
        ({"replicas": None, "scaledSet": None}, [4, 1], 1),
    ],
)
def test_replicas_count_the_scaled_set_alone(spec: dict[str, Any], expected: list[int], scaled: int) -> None:
    made = job_spec(job_with(**spec))
    assert (counts(made), made.scaled) == (expected, scaled)


def test_a_job_of_a_leader_alone_has_nothing_to_scale() -> None:
    assert job_spec(tyjob_with({"spec/workerSets": [], "spec/minWorkersNum": 0})).scaled == 0


def test_the_quorum_of_a_set_is_judged_by_its_replicas() -> None:
    seen = job_seen(job_with(replicas=3, minWorkersNum=5), 1, with_status=False)
    assert [(fault.field, fault.limits) for fault in seen.faults] == [("spec.replicas", ("4", "5"))]


def test_pods_are_told_of_the_replicas() -> None:
    job = job_with(replicas=2)
    manifest = pod_manifest(job, group=2, index=0, attempt=0, node="n", leader_address="10.0.0.1")
    told = {entry["name"]: entry["value"] for entry in manifest["spec"]["containers"][0]["env"]}
    assert (told["TYJOB_WORKER_COUNT"], told["TYJOB_RANK"], told["TYJOB_WORLD_SIZE"]) == ("1", "3", "4")
    assert [of["count"] for of in msgspec.json.decode(told["TYJOB_SETS"])] == [2, 1]


# --- a running job -----------------------------------------------------------------------------------------


def running(**spec: object) -> Edited:
    world = World()
    world.node("n1", cpu=16)
    edited = Edited(world, **{"workers": 2, "min_workers": 0, **spec})
    world.settle()
    assert edited.job.stage == Stage.RUNNING
    return edited


def shown(edited: Edited) -> tuple[int, str]:
    status = desired_status(edited.world.state, edited.job)
    return status["replicas"], status["selector"]


def test_the_status_shows_the_pods_of_the_scaled_set_and_how_to_select_them() -> None:
    edited = running(workers=[("actors", 3, shape(cpu=1)), ("critics", 1, shape(cpu=1))])
    selector = "arranger.dev/job=ppo,arranger.dev/role=worker,arranger.dev/worker-set="
    assert shown(edited) == (3, f"{selector}actors")
    edited.world.change_pod(edited.job.bound[1, 0], deleting=True)
    edited.world.change_pod(edited.job.bound[1, 1], phase="Failed", ready=False)
    assert shown(edited) == (1, f"{selector}actors")
    edited.edit(scaled=2)
    assert shown(edited) == (1, f"{selector}critics")


def test_a_job_without_worker_sets_has_no_scale_in_its_status() -> None:
    edited = running(workers=0)
    assert {"replicas", "selector"}.isdisjoint(desired_status(edited.world.state, edited.job))


def test_a_set_is_scaled_to_nothing_and_back_while_the_job_runs() -> None:
    edited = running(workers=[("actors", 2, shape(cpu=1))])
    for count in (0, 3, 0, 1):
        edited.edit(workers=[("actors", count, shape(cpu=1))])
        edited.world.settle()
        validate(edited.world.state)
        assert sorted(edited.job.bound) == [(0, 0), *((1, index) for index in range(count))]
        assert (edited.job.stage, edited.job.attempt, shown(edited)[0]) == (Stage.RUNNING, 0, count)


def test_a_job_begins_with_an_empty_set() -> None:
    edited = running(workers=[("actors", 0, shape(cpu=1)), ("critics", 2, shape(cpu=1))], min_workers=2)
    assert sorted(edited.job.bound) == [(0, 0), (2, 0), (2, 1)]


# --- Events ------------------------------------------------------------------------------------------------


class Scene:
    """A job, and a reporter that tells of it into a store."""

    def __init__(self, **spec: object) -> None:
        self.edited = running(**spec)
        self.store = Store(now=lambda: 1_700_000_000.0)
        self.reporter = Reporter(DirectCluster(self.store), SystemClock())
        self.told = ToldEvents()

    @property
    def job(self) -> JobRecord:
        return self.edited.job

    async def scalings(self) -> list[str]:
        """What the Events of this reason say, after another report."""
        await self.reporter.report(self.job, self.told)
        stored = self.store.page(EVENTS, Selection()).items
        events = [msgspec.json.decode(item.raw) for item in stored]
        return [event["message"] for event in events if event["reason"] == "Scaled"]


async def test_each_scaling_is_one_event() -> None:
    scene = Scene()
    assert await scene.scalings() == []
    scene.edited.edit(workers=4)
    assert await scene.scalings() == ["actors scaled from 2 to 4"]
    scene.edited.edit(priority=7)
    scene.edited.edit(workers=1)
    assert await scene.scalings() == ["actors scaled from 2 to 4", "actors scaled from 4 to 1"]
    scene.told = ToldEvents()  # another applier
    assert len(await scene.scalings()) == 2


async def test_scalings_that_nobody_reported_yet_are_all_reported() -> None:
    scene = Scene()
    for count in (3, 5):
        scene.edited.edit(workers=count)
    assert await scene.scalings() == ["actors scaled from 2 to 3", "actors scaled from 3 to 5"]
    for count in range(6, 6 + 2 * STEPS_KEPT):
        scene.edited.edit(workers=count)
    assert len(scene.job.times.scaled) == STEPS_KEPT


async def test_one_edit_of_several_sets_is_one_event() -> None:
    scene = Scene(workers=[("actors", 2, shape(cpu=1)), ("critics", 1, shape(cpu=1))])
    scene.edited.edit(workers=[("actors", 0, shape(cpu=1)), ("critics", 3, shape(cpu=1))])
    assert await scene.scalings() == ["actors scaled from 2 to 0; critics scaled from 1 to 3"]


async def test_neither_other_edits_nor_an_ended_job_are_scalings() -> None:
    scene = Scene()
    scene.edited.edit(priority=9)
    scene.edited.edit(terminating=True)
    scene.edited.world.settle()
    assert scene.job.ended
    scene.edited.edit(workers=5)
    assert await scene.scalings() == []


def test_an_edit_in_a_log_of_a_version_without_scaling_changes_counts_and_records_nothing() -> None:
    edited = running(scaled=9)  # there is no such group: the spec is as those versions recorded it
    assert edited.job.valid_spec.scaled == 0
    edited.edit(workers=4)
    assert edited.job.valid_spec.total_workers == 4 and edited.job.times.scaled == ()
