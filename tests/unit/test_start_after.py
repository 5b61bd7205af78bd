"""`startAfter`: which workers are created when, and what is told of those that wait."""

import pytest

from arranger.kube.translate import job_status_seen
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.messages.faults import faults_text
from arranger.model.job import RestartPolicy, RestartScope, Stage
from arranger.model.tyjob import job_spec
from arranger.model.validation import validate
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.awaited import What, awaited, awaited_text
from tests.unit.tyjob_table import GONE, SETS, tyjob_with
from tests.world import Edited, World, shape

LEADER, TRAINER, ROLLOUT = 0, 1, 2
SETS_OF_TWO = [("trainer", 2, shape(cpu=1)), ("rollout", 2, shape(cpu=1))]


def staged(**job: object) -> tuple[World, JobRecord]:
    """A leader and two sets of two workers on one node, of which the trainers start after the rollout workers: all
    have nodes, and the leader has an address but isn't ready."""
    world = World()
    world.node("n1", cpu=8)
    fields = {"workers": SETS_OF_TWO, "start_after": {"trainer": ROLLOUT}, "min_workers": 4, **job}
    record = world.job("verl", **fields)  # type: ignore[arg-type]
    world.cycle()
    if record.valid_spec.has_leader:
        world.run_pod(record, (LEADER, 0), "n1", ready=False)
    return world, record


def to_create(world: World, job: JobRecord) -> list[tuple[int, int]]:
    return [slot for slot, _ in desired_pods(world.state, job).create]


def run(world: World, job: JobRecord, *slots: tuple[int, int], ready: bool = True) -> None:
    for slot in slots:
        if slot not in job.bound:
            world.run_pod(job, slot, job.placements[slot], ready=ready)
        world.change_pod(job.bound[slot], ready=ready)


def message(world: World, job: JobRecord) -> str:
    text: str = desired_status(world.state, job)["message"]
    return text


@pytest.mark.parametrize("equals", [False, True])
def test_a_set_starts_once_all_placed_workers_of_another_are_ready(equals: bool) -> None:
    world, job = staged(equals=equals)
    assert to_create(world, job) == [(ROLLOUT, 0), (ROLLOUT, 1)]
    assert message(world, job).endswith("waits until 4 workers are ready; set trainer starts once set rollout is ready")
    assert len(job.placements) == 4 + (not equals)
    run(world, job, (ROLLOUT, 0))
    run(world, job, (ROLLOUT, 1), ready=False)
    assert to_create(world, job) == []
    run(world, job, (ROLLOUT, 1))
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1)]
    assert "starts once" not in message(world, job)


def test_a_minimum_is_enough() -> None:
    world, job = staged(minimums={"rollout": 1})
    run(world, job, (ROLLOUT, 1))
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1), (ROLLOUT, 0)]


def test_a_set_may_start_after_the_leader_is_ready() -> None:
    world, job = staged(start_after={"trainer": LEADER})
    assert to_create(world, job) == [(ROLLOUT, 0), (ROLLOUT, 1)]
    assert message(world, job).endswith("; set trainer starts once the leader is ready")
    run(world, job, (LEADER, 0))
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1), (ROLLOUT, 0), (ROLLOUT, 1)]


def test_no_worker_starts_before_the_leader_has_an_address() -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("verl", workers=[SETS_OF_TWO[0], ("rollout", 0, shape(cpu=1))], start_after={"trainer": ROLLOUT})
    world.cycle()
    assert to_create(world, job) == [(LEADER, 0)]
    world.run_pod(job, (LEADER, 0), "n1", ip="")
    assert to_create(world, job) == []
    world.change_pod(job.bound[(LEADER, 0)], ip="10.0.0.1")
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1)]  # nobody is left to wait for


def test_what_becomes_unready_later_stops_nobody() -> None:
    world, job = staged()
    run(world, job, (ROLLOUT, 0), (ROLLOUT, 1))
    run(world, job, (TRAINER, 0))
    run(world, job, (ROLLOUT, 0), (ROLLOUT, 1), ready=False)
    assert to_create(world, job) == [(TRAINER, 1)]
    world.pod_gone(job.bound[(TRAINER, 0)])
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1)]


def test_pods_that_wait_keep_their_nodes() -> None:
    world, job = staged()
    assert world.used("n1") == 5000
    other = world.job("other", leader=shape(cpu=4))
    world.cycle()
    assert not other.placements and (TRAINER, 0) in job.placements


def test_finished_workers_count_as_ready() -> None:
    world, job = staged()
    run(world, job, (ROLLOUT, 0), (ROLLOUT, 1), ready=False)
    for index in (0, 1):
        world.change_pod(job.bound[(ROLLOUT, index)], phase="Succeeded")
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1)]


def test_a_running_job_tells_which_set_still_waits() -> None:
    world, job = staged(min_workers=1)
    run(world, job, (LEADER, 0), (ROLLOUT, 0))
    world.control()
    assert job.stage == Stage.RUNNING and message(world, job) == "set trainer starts once set rollout is ready"
    assert awaited(world.state, job).what == What.READINESS and awaited_text(awaited(world.state, job))
    run(world, job, (ROLLOUT, 1))
    assert awaited(world.state, job).what == What.NOTHING


def test_a_job_that_lacks_nodes_tells_of_both() -> None:
    world = World()
    world.node("n1", cpu=3)
    sets = [SETS_OF_TWO[0], ("rollout", 1, shape(gpus=1))]
    job = world.job("verl", workers=sets, start_after={"trainer": ROLLOUT})  # its leader is a quorum
    world.settle()
    assert job.stage == Stage.RUNNING and to_create(world, job) == []
    said = message(world, job)
    assert "rollout: 0 of 1 nodes fit" in said and said.endswith("; set trainer starts once set rollout is ready")


def test_each_attempt_waits_again() -> None:
    world, job = staged(restart={"trainer": RestartPolicy(RestartScope.JOB, limit=3)})
    world.settle()
    assert job.stage == Stage.RUNNING
    world.change_pod(job.bound[(TRAINER, 0)], phase="Failed")
    world.pass_time(60)
    world.control()
    assert job.stage == Stage.RESCHEDULING
    while world.apply():
        pass
    world.wait_for_back_offs()
    world.cycle()
    world.run_pod(job, (LEADER, 0), "n1")
    assert to_create(world, job) == [(ROLLOUT, 0), (ROLLOUT, 1)]


def test_fewer_workers_may_make_a_set_ready() -> None:
    world = World()
    world.node("n1", cpu=8)
    edited = Edited(world, workers=SETS_OF_TWO, start_after={"trainer": ROLLOUT}, equals=True)
    job = edited.job
    world.cycle()
    run(world, job, (ROLLOUT, 0))
    assert to_create(world, job) == [(ROLLOUT, 1)]
    edited.edit(workers=[SETS_OF_TWO[0], ("rollout", 1, shape(cpu=1))])
    assert to_create(world, job) == [(TRAINER, 0), (TRAINER, 1)]


def test_another_epoch_does_not_stop_what_has_started() -> None:
    world, job = staged()
    run(world, job, (ROLLOUT, 0), (ROLLOUT, 1))
    run(world, job, (TRAINER, 0))
    run(world, job, (ROLLOUT, 0), ready=False)
    status, another = desired_status(world.state, job), World()
    another.node("n1", cpu=8)
    adopted = another.job(
        "verl", workers=SETS_OF_TWO, start_after={"trainer": ROLLOUT}, min_workers=4,
        status=job_status_seen(status, job.valid_spec),
    )  # fmt: skip
    for slot, pod in world.pods_of(job).items():
        another.run_pod(adopted, slot, pod.node)
        another.change_pod(adopted.bound[slot], ready=pod.ready)
    assert to_create(another, adopted) == [(TRAINER, 1)]
    restored = snapshot.restore(snapshot.encode(another.state))
    assert [slot for slot, _ in desired_pods(restored, restored.jobs[adopted.uid]).create] == [(TRAINER, 1)]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["evaluators", "replay", "actors"], "'actors' would start after itself"),
        (["LeaderAddress", "replay", "evaluators"], "'evaluators' would start after itself"),
        (["evaluators", "replay", "LeaderReady"], ""),
        (["evaluators", "LeaderReady", "evaluators"], ""),
    ],
)
def test_cycles_of_any_length_are_refused(names: list[str], refused: str) -> None:
    sets = [{**of, "startAfter": name} for of, name in zip(SETS, names, strict=True)]
    said = faults_text(validate(tyjob_with({"spec/workerSets": sets})))
    assert bool(said) == bool(refused) and refused in said


def test_the_spec_says_what_a_set_starts_after() -> None:
    names = ("LeaderAddress", "LeaderReady", "actors")
    sets = [{**of, "startAfter": name} for of, name in zip(SETS, names, strict=True)]
    found = job_spec(tyjob_with({"spec/workerSets": sets}))
    assert [of.start_after for of in found.groups] == [None, None, 0, 1]
    equals = job_spec(
        tyjob_with({"spec/leader": GONE, "spec/workerSets": [{**SETS[0], "startAfter": "replay"}, *SETS[1:]]})
    )
    assert [of.start_after for of in equals.groups] == [None, 3, None, None]
