"""The tasks of a Volcano PodGroup (`minTaskMember`): its quorum has so many pods of each."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.kube.translate import pod_seen
from arranger.lifecycle.pod_group_status import desired_group_status
from arranger.messages.prerequisites import prerequisites_text
from arranger.model.job import Stage
from arranger.model.pod import GroupKind
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.unit.replay_worlds import verified
from tests.unit.test_translate_pods_to_place import pod
from tests.world import World, shape


def member(world: World, name: str, task: str, node: str = "", *, cpu: float = 1, **asked: Any) -> JobRecord:
    """A pod of the task, whose labels have its index, as Volcano makes them."""
    of = shape(cpu=cpu, labels={"volcano.sh/task-index": name})
    return world.pod_to_place(name, node, of=of, group="train", group_kind=GroupKind.VOLCANO, task=task, **asked)


def tasks(world: World, least: int, **of: int) -> None:
    world.pod_group("train", least, kind=GroupKind.VOLCANO, tasks=tuple(sorted(of.items())))


def placed(world: World, job: JobRecord) -> list[str]:
    """The names of the pods that have nodes."""
    return sorted(job.pod_name(slot) for slot in job.placements)


def nodes(*cpu: float) -> World:
    world = World()
    for number, amount in enumerate(cpu):
        world.node(f"n{number}", cpu=amount)
    return world


def test_a_group_with_too_few_pods_of_a_task_isnt_tried_and_says_so() -> None:
    world = nodes(8)
    for name in ("w0", "w1", "w2"):
        job = member(world, name, "worker")
    tasks(world, 3, ps=1, worker=2)
    world.cycle()
    assert not job.placements and prerequisites_text(world.state, job) == "waits for 1 more pod of its task ps"
    (group,) = world.state.pod_groups.values()
    status = desired_group_status(world.state, group, {job.uid: Counter()})
    assert status is not None and status.conditions[0][2] == "NotEnoughPodsOfTask"
    member(world, "ps0", "ps")
    world.cycle()
    assert placed(world, job) == ["ps0", "w0", "w1", "w2"]
    validate(world.state)


def test_the_quorum_has_the_pods_of_each_task_although_others_would_be_enough() -> None:
    world = nodes(3)
    for name in ("w0", "w1", "w2"):
        job = member(world, name, "worker")
    member(world, "ps0", "ps")
    tasks(world, 2, ps=1, worker=1)
    world.cycle()
    assert "ps0" in placed(world, job) and len(job.placements) == 3
    validate(world.state)


def test_nothing_is_placed_where_a_task_has_no_room() -> None:
    world = nodes(3)
    for name in ("w0", "w1", "w2"):
        job = member(world, name, "worker")
    member(world, "ps0", "ps", cpu=8)
    tasks(world, 2, ps=1, worker=1)
    world.cycle()
    assert not job.placements and job.waits is not None


def test_a_gated_pod_doesnt_count_for_its_task() -> None:
    world = nodes(8)
    member(world, "ps0", "ps", gates=("later",))
    for name in ("w0", "w1"):
        job = member(world, name, "worker")
    tasks(world, 2, ps=1, worker=1)
    world.cycle()
    assert not job.placements
    member(world, "ps0", "ps")
    world.cycle()
    assert len(job.placements) == 3
    validate(world.state)


def test_a_group_runs_once_its_tasks_have_their_pods_on_nodes() -> None:
    world = nodes(8)
    job = member(world, "w0", "worker", "n0")
    member(world, "w1", "worker", "n0")
    tasks(world, 2, ps=1, worker=1)
    member(world, "ps0", "ps")
    assert job.stage == Stage.STARTING
    member(world, "ps0", "ps", "n0")
    assert job.stage == Stage.RUNNING
    validate(world.state)


def test_tasks_that_need_more_pods_than_the_group_are_ignored_as_by_volcano() -> None:
    world = nodes(8)
    for name in ("w0", "w1"):
        job = member(world, name, "worker")
    tasks(world, 2, ps=2, worker=2)
    world.cycle()
    assert len(job.placements) == 2


@pytest.mark.parametrize(("annotation", "task"), [("volcano.sh/task-spec", "ps"), ("other", "")])
def test_a_pod_names_its_task(annotation: str, task: str) -> None:
    named = {"scheduling.k8s.io/group-name": "a", annotation: "ps"}
    asks = pod_seen(pod(metadata={"annotations": named}), 1, ("arranger",)).asks
    assert asks is not None and asks.task == task
    alone = pod_seen(pod(metadata={"annotations": {annotation: "ps"}}), 1, ("arranger",)).asks
    assert alone is not None and alone.task == ""


STEP = st.tuples(st.sampled_from(["come", "go", "end", "gate"]), st.sampled_from(["ps", "worker", ""]))


@given(st.lists(STEP, min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(0, 2), st.integers(0, 2))
def test_whatever_comes_and_goes_no_quorum_lacks_a_pod_of_a_task(
    steps: list[tuple[str, str]], chance: random.Random, ps: int, workers: int
) -> None:
    world, there = nodes(3, 2), {}
    tasks(world, 4, ps=ps, worker=workers)
    for number, (what, task) in enumerate(steps):
        if what in ("come", "gate") or not there:
            there[f"p{number}"] = task
            member(world, f"p{number}", task, gates=("g",) if what == "gate" else ())
        else:
            name = chance.choice(sorted(there))
            of = there.pop(name)
            if what == "end":
                labels = {"volcano.sh/task-index": name}
                asked: dict[str, Any] = {"group": "train", "group_kind": GroupKind.VOLCANO, "task": of}
                world.pod_asking(name, of=shape(cpu=1, labels=labels), phase="Succeeded", **asked)
            else:
                world.pod_gone(f"uid-{name}")
        validate(world.state)
        world.cycle()
        for job in world.state.jobs.values():
            counts = {name: 0 for name in ("ps", "worker", "")}
            for group, _ in [*job.placements, *job.slots.finished]:
                counts[job.valid_spec.groups[group].task] += 1
            assert not job.placements or (counts["ps"] >= ps and counts["worker"] >= workers)
        restored = snapshot.restore(snapshot.encode(world.state))
        assert snapshot.digest(restored) == world.digest()
    report = verified(world.entries)
    assert report.sound and report.cycles == report.identical
