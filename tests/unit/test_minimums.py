"""`minCount`: the workers of a set that a quorum needs, from the placement to the end of the job."""

import pytest

from arranger.events import kinds as k
from arranger.lifecycle.desired import desired_status
from arranger.messages.decisions import stage_text
from arranger.model.job import PlacedPods, RestartPolicy, RestartScope, ScheduleState, Slot, Stage
from arranger.model.stages import StageReason
from arranger.model.tyjob import job_spec
from arranger.projections.jobs.records import JobRecord
from arranger.replay.reading.edits import changed
from tests.unit.tyjob_table import tyjob_with
from tests.world import Edited, World, shape

GPU, CPU = shape(cpu=1, gpus=1), shape(cpu=1)
TRAINERS, ROLLOUTS = 1, 2
SETS = [("trainer", 4, GPU), ("rollout", 8, CPU)]


def verl(world: World, **more: object) -> JobRecord:
    """A leader, four trainers with a GPU each, all of them needed, and eight rollout workers, one of them needed."""
    fields = {"minimums": {"trainer": 4, "rollout": 1}, **more}
    return world.job("verl", workers=SETS, **fields)  # type: ignore[arg-type]


def running(**more: object) -> tuple[World, JobRecord]:
    """The same, running on three nodes with two GPUs each."""
    world = World()
    for number in range(3):
        world.node(f"n{number}", cpu=8, gpus=2)
    job = verl(world, **more)
    world.settle()
    assert job.stage == Stage.RUNNING and of_sets(job) == [4, 8]
    return world, job


def of_sets(job: JobRecord) -> list[int]:
    """The pods with nodes of the trainers and of the rollout workers."""
    return [sum(group == number for group, _ in job.placements) for number in (TRAINERS, ROLLOUTS)]


def fail(world: World, job: JobRecord, group: int, *indices: int) -> None:
    for index in indices:
        world.change_pod(job.bound[(group, index)], phase="Failed", ready=False)


# --- placement ------------------------------------------------------------------------------------------------------


def test_a_job_without_its_trainers_waits_and_holds_nothing() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=3)
    job = verl(world)
    world.settle()
    assert job.stage == Stage.PENDING and not job.placements and job.waits is not None
    assert job.waits.shortage.group == "trainer"
    world.node("n2", cpu=4, gpus=1)
    world.settle()
    assert job.stage == Stage.RUNNING and of_sets(job) == [4, 8]


def test_a_quorum_takes_the_minimum_of_each_set_and_the_rest_of_any() -> None:
    world = World()
    world.node("n1", cpu=6, gpus=2)
    job = verl(world, minimums={"trainer": 2, "rollout": 1}, min_workers=5)
    world.settle()
    assert job.stage == Stage.RUNNING and of_sets(job) == [2, 3]
    assert job.schedule_state == ScheduleState.PARTLY


@pytest.mark.parametrize("policy", ["Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "MostAllocated"])
def test_each_policy_knows_the_minimums(policy: str) -> None:
    world = World()
    world.node("n1", cpu=2, gpus=1)
    world.node("n2", cpu=4, gpus=3)
    job = verl(world, policy=policy)
    world.cycle()
    assert of_sets(job) == ([0, 0] if policy == "Gang" else [4, 1])


def test_a_placement_without_the_minimum_of_a_set_is_rejected() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    job = verl(world)
    pods = tuple(PlacedPods("n1", group, ((0, last),)) for group, last in ((0, 0), (TRAINERS, 2), (ROLLOUTS, 7)))
    cycle = k.CycleTaken(world.state.offset, world.now_ms, world.config)
    world.say(cycle, k.Placed(job.uid, job.version, 0, ScheduleState.PARTLY, pods))
    assert world.verdict("Placed").reason == "the quorum is not whole: 4 workers of trainer needed"
    assert not job.placements


# --- the life of the job --------------------------------------------------------------------------------------------


def test_a_job_runs_when_the_minimum_of_each_set_is_ready() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    job = verl(world)
    world.cycle()
    world.control()
    slots = sorted(job.placements)
    for slot in slots:
        if slot != (TRAINERS, 3):
            world.run_pod(job, slot, "n1")
    assert not world.control()
    message = desired_status(world.state, job)["message"]
    assert message == "the leader runs; waits until 5 workers (4 of trainer, 1 of rollout) are ready"
    world.run_pod(job, (TRAINERS, 3), "n1")
    world.control()
    assert job.stage == Stage.RUNNING


def test_a_lost_trainer_without_room_elsewhere_begins_a_new_attempt() -> None:
    world, job = running()
    node = job.placements[(TRAINERS, 3)]
    lost = sum(slot[0] == TRAINERS and at == node for slot, at in job.placements.items())
    assert job.placements[(0, 0)] != node
    world.node_gone(node)
    for pod in [pod for pod in world.state.pods.values() if pod.node == node]:
        world.pod_gone(pod.uid)
    world.control()
    assert job.stage == Stage.RESCHEDULING and job.decided is not None
    assert job.decided.reason == StageReason.WORKERS_LOST
    assert f"{lost} workers were lost (node {node} is gone), minCount of trainer is 4" in stage_text(job.decided)


def test_a_trainer_beyond_its_restarts_fails_the_job_and_a_rollout_worker_does_not() -> None:
    world, job = running(restart_limit=0)
    fail(world, job, ROLLOUTS, 0, 1)
    world.pass_time(10)
    world.settle()
    assert job.stage == Stage.RUNNING and sorted(job.slots.given_up) == [(ROLLOUTS, 0), (ROLLOUTS, 1)]
    fail(world, job, TRAINERS, 2)
    world.pass_time(10)
    world.settle()
    assert job.stage == Stage.FAILED and job.decided is not None
    assert stage_text(job.decided) == "1 worker is given up (restartLimit is 0) and minCount of trainer is 4"


def test_refused_workers_give_up_their_nodes_unless_their_set_needs_them() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    edited = Edited(world, workers=SETS, minimums={"trainer": 3, "rollout": 1})
    job = edited.job
    world.cycle()
    refused = [(TRAINERS, 3), (ROLLOUTS, 6), (ROLLOUTS, 7)]
    for slot in sorted(job.placements):
        if slot not in refused:
            world.run_pod(job, slot, "n1")
    world.control()
    assert job.stage == Stage.RUNNING
    edited.edit(minimums={"trainer": 4, "rollout": 1})
    for slot in refused:
        world.say(k.EffectFailed(job.uid, 0, "create", Slot(*slot), 403, "Forbidden", "quota", False, tries=1))
    world.pass_time(world.lifecycle.refused_ms / 1000)
    world.control()
    assert of_sets(job) == [4, 6]


def test_the_minimum_of_a_set_can_be_edited_while_the_job_runs() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=3)
    edited = Edited(world, workers=SETS, minimums={"trainer": 4})
    world.settle()
    assert edited.job.stage == Stage.PENDING and edited.job.spec is not None
    before = edited.job.spec
    edited.edit(minimums={"trainer": 3}, restart={"rollout": RestartPolicy(RestartScope.SET, limit=1, window_s=60)})
    world.settle()
    assert edited.job.stage == Stage.RUNNING and of_sets(edited.job) == [3, 8]
    assert changed(before, edited.job.spec) == (
        "minWorkersNum 4 → 3, trainer minCount 4 → 3, rollout restart Worker, limit 3 → Set, limit 1 in 60 s"
    )


# --- the spec -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "minimums", "found"),
    [
        (None, (None, None), 1),
        (None, (2, None), 2),
        (None, (2, 1), 3),
        (None, (0, None), 0),
        (1, (2, 1), 3),
        (4, (2, 1), 4),
        (0, (None, None), 0),
    ],
)
def test_a_quorum_has_at_least_the_minimums_of_its_sets(
    least: int | None, minimums: tuple[int | None, ...], found: int
) -> None:
    template = tyjob_with({})["spec"]["workerSets"][0]["template"]
    sets = [{"name": f"s{number}", "counts": 3, "minCount": of, "template": template}
            for number, of in enumerate(minimums)]  # fmt: skip
    spec = job_spec(tyjob_with({"spec/workerSets": sets, "spec/minWorkersNum": least}))
    assert spec.min_workers == found
    assert [group.min_count for group in spec.groups] == [0, *(of or 0 for of in minimums)]
