"""What would be lost if pods ended now, and the checkpoints that count."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.job import JobStatusSeen, PlacedPods
from arranger.model.pod import PodTimes
from arranger.projections import snapshot
from arranger.projections.derived.work_at_risk import checkpoint_ms, lost_ms
from arranger.projections.jobs.records import JobRecord
from arranger.replay.reading.describe import describe
from arranger.workers.watching.observed import known
from tests.unit.replay_worlds import ROOM, gpu_job
from tests.world import World, shape

#: How long the job has had its nodes.
RAN_MS = 100_000


def running(**spec: object) -> tuple[World, JobRecord]:
    """A job of a leader with one GPU and three workers with two each."""
    world = World()
    for number in range(4):
        world.node(f"n{number}", cpu=64, gpus=8)
    worker = spec.pop("worker", shape(cpu=1, gpus=2))
    job = world.job("ppo", leader=shape(cpu=1, gpus=1), worker=worker, workers=3, min_workers=3, **spec)  # type: ignore[arg-type]
    world.settle()
    assert job.stage == "Running" and len(job.bound) == 4
    world.pass_time((job.began_ms + RAN_MS - world.now_ms) / 1000)
    return world, job


def test_without_a_checkpoint_it_is_the_time_since_the_start_for_each_gpu() -> None:
    world, job = running()
    assert lost_ms(world.state, job, job.bound, world.now_ms) == 7 * RAN_MS
    assert lost_ms(world.state, job, [(0, 0)], world.now_ms) == RAN_MS
    assert lost_ms(world.state, job, [(1, 2), (1, 0)], world.now_ms) == 4 * RAN_MS
    assert lost_ms(world.state, job, [], world.now_ms) == 0
    assert lost_ms(world.state, job, [(1, 7)], world.now_ms) == 0


def test_a_pod_that_started_later_loses_only_the_time_since_then() -> None:
    """A worker lost its node, which another job then had for a while, and came back: only what it did since is lost."""
    world, job = running()
    started_ms = world.now_ms - 20_000
    world.change_pod(job.bound[1, 2], times=PodTimes(started_ms=started_ms))
    assert lost_ms(world.state, job, [(1, 2)], world.now_ms) == 2 * 20_000
    assert lost_ms(world.state, job, job.bound, world.now_ms) == 5 * RAN_MS + 2 * 20_000
    assert lost_ms(world.state, job, [(1, 2)], started_ms - 1) == 0, "a kubelet's clock may be ahead"
    world.change_pod(job.bound[1, 1], times=PodTimes(started_ms=job.began_ms - 999))
    assert lost_ms(world.state, job, [(1, 1)], world.now_ms) == 2 * RAN_MS, "it tells whole seconds"


def test_a_cycle_records_what_is_lost_since_each_pod_started() -> None:
    world = World(config=ROOM)
    world.node("n1", cpu=16, gpus=4)
    low = gpu_job(world, "low", 3, priority=1)
    world.settle()
    world.pass_time(200)
    world.change_pod(low.bound[1, 0], times=PodTimes(started_ms=world.now_ms - 20_000))
    world.change_pod(low.bound[1, 1], times=PodTimes(started_ms=world.now_ms - 160_000))
    gpu_job(world, "high", 4, priority=9)
    events = world.cycle()
    [taken] = [event for event in events if isinstance(event, k.Preempted)]
    [victim] = taken.victims
    assert victim.lost_ms == 380_000


def test_without_gpus_nothing_is_lost() -> None:
    world, job = running(worker=shape(cpu=9))
    assert lost_ms(world.state, job, [(1, 0), (1, 1)], world.now_ms) == 0


def test_gpus_of_every_vendor_count() -> None:
    world = World()
    world.node("n0", cpu=64, gpus=8, **{"amd.com/gpu": 4})
    leader = msgspec.structs.replace(shape(cpu=1), requests=(("amd.com/gpu", 2), ("cpu", 1), ("nvidia.com/gpu", 3)))
    job = world.job("ppo", leader=leader)
    world.settle()
    assert lost_ms(world.state, job, [(0, 0)], job.began_ms + 10) == 50


@pytest.mark.parametrize("where", ["job", "leader", "worker"])
def test_since_the_last_checkpoint_of_the_job_or_of_any_of_its_pods(where: str) -> None:
    world, job = running()
    at_ms = world.now_ms - 30_000
    if where == "job":
        world.job("ppo", leader=shape(cpu=1, gpus=1), worker=shape(cpu=1, gpus=2), workers=3, min_workers=3,
                  checkpoint_ms=at_ms)  # fmt: skip
    else:
        world.change_pod(job.bound[(0, 0) if where == "leader" else (1, 1)], checkpoint_ms=at_ms)
    assert checkpoint_ms(world.state, job, world.now_ms) == at_ms
    assert lost_ms(world.state, job, job.bound, world.now_ms) == 7 * 30_000
    world.change_pod(job.bound[1, 2], checkpoint_ms=at_ms - 20_000)  # an older one doesn't count
    assert lost_ms(world.state, job, job.bound, world.now_ms) == 7 * 30_000


def test_a_checkpoint_before_the_start_does_not_count() -> None:
    world, job = running()
    world.change_pod(job.bound[0, 0], checkpoint_ms=job.began_ms - 1)
    assert lost_ms(world.state, job, job.bound, world.now_ms) == 7 * RAN_MS


def test_a_checkpoint_in_the_future_is_one_now() -> None:
    world, job = running()
    world.change_pod(job.bound[0, 0], checkpoint_ms=world.now_ms + 10_000)
    assert lost_ms(world.state, job, job.bound, world.now_ms) == 0
    assert lost_ms(world.state, job, job.bound, world.now_ms + 5_000) == 0
    assert lost_ms(world.state, job, job.bound, world.now_ms + 12_000) == 7 * 2_000


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_pod_that_does_not_run_has_nothing_to_lose(phase: str) -> None:
    world, job = running()
    world.change_pod(job.bound[1, 0], phase=phase)
    slots = list(job.bound)
    assert lost_ms(world.state, job, slots, world.now_ms) == 5 * RAN_MS


def test_slots_without_a_pod_have_nothing_to_lose() -> None:
    world = World()
    world.node("n0", cpu=64, gpus=8)
    job = world.job("ppo", leader=shape(cpu=1, gpus=1))
    assert job.began_ms == 0
    world.cycle()
    assert job.placements and lost_ms(world.state, job, job.placements, world.now_ms + 10) == 0


def test_a_new_attempt_has_nothing_from_the_last_one_to_lose() -> None:
    world, job = running(restart_limit=9)
    before_ms = job.began_ms
    world.change_pod(job.bound[0, 0], phase="Failed", ready=False)
    world.settle()
    assert (job.stage, job.began_ms) == ("Rescheduling", 0)
    world.wait_for_back_offs()
    world.settle()
    assert (job.attempt, job.stage) == (1, "Running")
    assert job.began_ms > before_ms + RAN_MS
    assert lost_ms(world.state, job, [(0, 0)], job.began_ms + 7) == 7


def test_a_new_epoch_knows_the_start_from_the_status() -> None:
    world = World()
    world.node("n0", cpu=64, gpus=8)
    since_ms = world.now_ms - 500_000
    status = JobStatusSeen(
        "Running", "ScheduledSucceed", 0, 0, "", (PlacedPods("n0", 0, ((0, 0),)),), start_ms=since_ms - 9_000,
        turned=(("Running", True, since_ms + 9_000), ("Scheduled", True, since_ms)),
    )  # fmt: skip
    job = world.job("ppo", leader=shape(cpu=1, gpus=1), status=status)
    assert job.began_ms == since_ms


def test_a_checkpoint_is_news_and_changes_nothing_that_decisions_depend_on() -> None:
    world, job = running()
    version, changes = job.version, world.state.scheduling_changes
    pod = world.state.pods[job.bound[1, 1]]
    with_checkpoint = msgspec.structs.replace(pod, checkpoint_ms=world.now_ms - 5)
    assert known(world.state, pod) and not known(world.state, with_checkpoint)
    world.say(with_checkpoint)
    assert known(world.state, with_checkpoint)
    again = msgspec.structs.replace(job.seen, checkpoint_ms=world.now_ms - 3)
    assert not known(world.state, again)
    world.say(again)
    assert known(world.state, again)
    assert (job.version, world.state.scheduling_changes) == (version, changes)
    assert checkpoint_ms(world.state, job, world.now_ms) == world.now_ms - 3
    restored = snapshot.restore(snapshot.encode(world.state))
    assert checkpoint_ms(restored, restored.jobs[job.uid], world.now_ms) == world.now_ms - 3
    assert "last checkpoint 20" in describe(with_checkpoint, world.state)
    assert "last checkpoint 20" in describe(again, world.state)


def test_a_pod_that_only_claims_to_be_the_jobs_tells_no_checkpoint() -> None:
    world, job = running()
    owner = world.state.pods[job.bound[0, 0]].owner
    uid = world.pod("stranger", "n0", owner=owner, cpu=1)
    world.change_pod(uid, owner=owner, checkpoint_ms=world.now_ms)
    assert world.state.pods[uid].checkpoint_ms == 0
    assert checkpoint_ms(world.state, job, world.now_ms) == 0


def test_observations_of_older_logs_have_no_checkpoint() -> None:
    world, job = running()
    for event in (job.seen, world.state.pods[job.bound[0, 0]]):
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(event))[:-1]
        assert msgspec.convert(fields, type(event), strict=False) == event
        assert isinstance(event, k.JobSeen | k.PodSeen) and event.checkpoint_ms == 0


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.permutations([(0, 0), (1, 0), (1, 1), (1, 2)]))
def test_the_sum_is_that_of_the_pods_and_never_negative(
    later_ms: int, checkpoint: int, slots: list[tuple[int, int]]
) -> None:
    world, job = SHARED
    time_ms = job.began_ms + later_ms
    world.change_pod(job.bound[1, 1], checkpoint_ms=job.began_ms + checkpoint)
    single = [lost_ms(world.state, job, [slot], time_ms) for slot in slots]
    assert lost_ms(world.state, job, slots, time_ms) == sum(single)
    assert all(0 <= of <= 2 * max(later_ms, 0) for of in single)


SHARED = running()
