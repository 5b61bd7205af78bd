"""Jobs that name a PriorityClass: its value when they are first seen with it, and the wait for one that isn't there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.kube.cluster import WatchEvent
from arranger.kube.manifests import pod_manifest
from arranger.lifecycle.desired import desired_status
from arranger.model.job import JobStatusSeen, Stage
from arranger.model.tyjob import job_spec
from arranger.model.validation import TYJOB
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.replay.bisect.job_conditions import facts_of_job
from arranger.replay.console.moment import moment
from arranger.workers.watching.observed import Translation, projected
from tests.commands import Run, to_file
from tests.unit.replay_worlds import explained
from tests.unit.tyjob_table import tyjob_with
from tests.world import Edited, World, shape

CLASS = "spec/priorityClassName"
OF_TEMPLATE = "spec/leader/template/spec/priorityClassName"


def world(**classes: int) -> World:
    """A world with room for one pod and these classes."""
    made = World()
    made.node("n1", cpu=1)
    made.watch_classes()
    for name, value in classes.items():
        made.priority_class(name, value)
    return made


def test_the_value_of_a_class_is_not_known_from_the_tyjob_alone() -> None:
    spec = job_spec(tyjob_with({CLASS: "high"}))
    assert (spec.priority, spec.priority_class, spec.priority_known) == (0, "high", False)
    plain = job_spec(tyjob_with({}))
    assert (plain.priority, plain.priority_class, plain.priority_known) == (5, "", True)


def test_pods_get_the_class_unless_their_template_names_another() -> None:
    job = tyjob_with({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, CLASS: "high", OF_TEMPLATE: "low"})
    pods = [pod_manifest(job, group=of, index=0, attempt=0, node="n", leader_address="ip") for of in (0, 1)]
    assert [pod["spec"]["priorityClassName"] for pod in pods] == ["low", "high"]
    assert [group.traits.priority_class for group in job_spec(job).groups] == ["low", "high"]


@pytest.mark.parametrize("early", [True, False])
def test_the_value_of_the_class_orders_the_queue(early: bool) -> None:
    there = world(**({"high": 1000} if early else {}))
    plain = there.job("plain", priority=10, created=1)
    classed = there.job("classed", priority_class="high", created=2)
    if not early:
        assert not classed.valid_spec.priority_known
        there.priority_class("high", 1000)
    there.cycle()
    assert (classed.stage, plain.stage) == (Stage.STARTING, Stage.PENDING)
    assert (classed.valid_spec.priority, desired_status(there.state, classed)["priority"]) == (1000, 1000)


def test_a_job_without_its_class_waits_holds_nothing_and_says_for_what() -> None:
    there = world(low=1)
    job = there.job("j", priority_class="high")
    there.settle()
    status = desired_status(there.state, job)
    waits = "waits for PriorityClass high, which doesn't exist: create it, or edit spec.priorityClassName"
    assert (job.stage, job.placements, status["message"], "priority" in status) == (Stage.PENDING, {}, waits, False)
    assert next(of for of in status["conditions"] if of["type"] == "Scheduled")["message"] == waits
    there.say(k.WatchRefused(k.Watched.PRIORITY_CLASS, there.watch_classes(), 403))
    assert there.state.synced and "doesn't let Arranger list them (403)" in desired_status(there.state, job)["message"]
    there.priority_class("high", 7)
    there.settle()
    assert (job.stage, job.valid_spec.priority) == (Stage.RUNNING, 7)


def test_a_job_keeps_the_value_that_its_class_had() -> None:
    there = world(high=1000)
    edited = Edited(there, priority_class="high", worker=shape(cpu=1))
    there.priority_class_gone("high")
    there.priority_class("high", 5, uid="another")
    edited.edit(min_workers=0)
    assert edited.job.valid_spec.priority == 1000
    assert there.job("later", priority_class="high").valid_spec.priority == 5
    edited.edit(priority_class="none")
    assert not edited.job.valid_spec.priority_known
    edited.edit(priority_class="", priority=3)
    assert edited.job.valid_spec.priority == 3
    validate(there.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(there.state))) == snapshot.digest(there.state)


def test_a_new_epoch_takes_the_value_of_a_started_job_from_its_status() -> None:
    there = world(high=5)
    status = JobStatusSeen("Running", "ScheduledSucceed", 0, 0, "", (), priority=1000)
    assert there.job("j", priority_class="high", status=status).valid_spec.priority == 1000
    waiting = msgspec.structs.replace(status, stage="Pending")
    assert there.job("i", priority_class="high", status=waiting).valid_spec.priority == 5


def test_the_deletion_of_an_earlier_class_of_the_name_changes_nothing() -> None:
    there = world(high=5)
    there.priority_class("high", 6, uid="second")
    there.priority_class_gone("high")
    assert there.state.priority_classes["high"].value == 6


def test_classes_are_observed_once_and_their_deletion_too() -> None:
    there = world(high=5)
    item = {"metadata": {"name": "high", "uid": "uid-high", "resourceVersion": "9"}, "value": 5}
    kind, term = k.Watched.PRIORITY_CLASS, there.watch_classes()

    def told(type_: str, of: dict[str, object]) -> list[k.Event]:
        return Translation(kind, term, TYJOB).news([WatchEvent(type_, of, "9", 0)], there.state)

    assert told("MODIFIED", item) == []
    assert told("MODIFIED", {**item, "value": 7}) == [k.PriorityClassSeen(term, "high", "uid-high", "9", 7)]
    gone = k.ObjectGone(k.Watched.PRIORITY_CLASS, term, "", "high", "uid-high")
    assert told("DELETED", item) == [gone] and projected(there.state, kind, term) == [("uid-high", gone)]


def answered(capsys: pytest.CaptureFixture[str], *log: str) -> Any:
    """The only job, as `arranger replay` tells programs of it."""
    [job] = msgspec.json.decode(Run(capsys, "replay", *log, "--output", "json").out)["jobs"]
    return job


def test_a_priority_that_is_not_known_is_never_shown_as_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job whose PriorityClass doesn't exist was shown with priority 0."""
    world = World()
    world.watch_classes()
    world.queue("q", max_priority=3)
    world.node("n1", cpu=4)
    job = world.job("ppo", priority_class="gone", of_queue="q")
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    for command in (["replay"], ["queue", "q"]):
        [row] = [line for line in Run(capsys, *command, *log).out.splitlines() if "default/ppo " in line]
        assert " unknown " in row and "PriorityClass gone, which doesn't exist" in row
    told = answered(capsys, *log)
    assert (told["priority"], told["own_priority"]) == (None, None)
    assert explained(world.entries, "ppo").standing.priority is None
    assert "priority unknown" in facts_of_job(world.state, job.uid)["spec"]
    [line] = moment(world.state).jobs
    assert (line.priority, line.own_priority) == (None, None)
    world.priority_class("gone", 7)
    log = to_file(world.entries, tmp_path / "known.log")
    told = answered(capsys, *log)
    assert (told["priority"], told["own_priority"]) == (3, 7)
