"""Pods that nobody has seen, of places that were given up while those were being created: their room is kept."""

import pytest

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.pod import PodOwner
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import ASSUMED_MS
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.explain.waiting import explain_waiting
from arranger.replay.what_if.hypothesis import say
from arranger.scheduling.cycle import Cycles
from tests.unit.replay_worlds import explained, histories_of
from tests.world import Edited, World, shape, starting

LEADER = (0, 0)


def rescheduled() -> tuple[World, k.JobSeen]:
    """The job `ppo` was scheduled again before anybody saw the leader's pod of its first attempt."""
    world, job = starting(cpu=2, leader=shape(cpu=2))
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    assert not job.placements and world.used("n1") == 2000
    return world, job.seen


def test_the_room_of_a_pod_that_may_come_is_given_to_nobody_for_a_while() -> None:
    world, _ = rescheduled()
    other = world.job("other", leader=shape(cpu=2), priority=9)
    world.pass_time(ASSUMED_MS / 1000 - 0.001)
    world.cycle()
    assert not other.placements and other.waits is not None
    world.pass_time(0.001)
    world.cycle()  # time alone frees it: nothing else was said
    assert other.placements == {LEADER: "n1"}
    validate(world.state)


def test_who_looks_only_when_something_has_changed_looks_again_when_nobody_waits_for_the_pod_any_more() -> None:
    world, _ = rescheduled()
    cycles = Cycles()
    world.say(*cycles.take(world.state, world.config, world.now_ms))  # that it waits
    assert cycles.take(world.state, world.config, world.now_ms) == ()
    world.pass_time(ASSUMED_MS / 1000)
    assert [type(event) for event in cycles.take(world.state, world.config, world.now_ms)] == [k.CycleTaken, k.Placed]


def test_a_pod_that_comes_late_takes_its_room_over_and_gives_it_back_when_it_is_gone() -> None:
    world, seen = rescheduled()
    uid = world.pod("ppo-learner-0", "n1", cpu=2, owner=PodOwner(seen.uid, 0, "learner", True, 0))
    assert not world.state.assumed and world.used("n1") == 2000
    world.pod_gone(uid)
    assert world.used("n1") == 0
    validate(world.state)


def scheduled_again() -> tuple[World, JobRecord]:
    """A job that lost its place on n1 before its pod was seen there: the pod may still come, and its room is kept."""
    world = World(config=CycleConfig())
    world.node("n1", cpu=2)
    job = world.job("ppo", leader=shape(cpu=2))
    world.cycle()
    world.control()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    return world, job


def test_no_queue_counts_a_pod_that_may_come() -> None:
    """Where a worker was replaced after a drain, its queue seemed to use twice as much, and others took room back."""
    world, job = scheduled_again()
    world.node("n2", cpu=2)
    assert not world.state.queue_use.own.get("default", {}).get("cpu", 0)
    world.cycle()
    assert job.placements == {LEADER: "n2"} and world.used("n1") == 2000, "the pod may still come to n1"
    assert world.state.queue_use.own["default"]["cpu"] == 2000
    assert world.state.queue_totals == world.state.queue_use.own
    validate(world.state)
    assert snapshot.encode(snapshot.restore(snapshot.encode(world.state))) == snapshot.encode(world.state)
    world.wait_for_late_pods()
    assert world.used("n1") == 0 and world.state.queue_use.own["default"]["cpu"] == 2000
    validate(world.state)


def test_a_job_that_is_scheduled_again_does_not_wait_for_its_own_pods_at_the_limit_of_its_queue() -> None:
    world = World(config=CycleConfig())
    world.queue("capped", capability=(("cpu", 2000),))
    world.node("n1", cpu=2)
    job = world.job("ppo", leader=shape(cpu=2), of_queue="capped")
    world.cycle()
    world.control()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    assert world.state.assumed
    world.node("n2", cpu=2)
    world.cycle()
    assert job.placements == {LEADER: "n2"}
    validate(world.state)


def test_room_is_kept_only_for_what_may_have_been_created() -> None:
    world, job = starting(cpu=4, workers=3, min_workers=3)
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.FAILED, StageReason.AS_RECORDED))
    assert [owner.leader for owner, _ in world.state.assumed] == [True] and world.used("n1") == 1000

    world, job = starting(cpu=4, workers=3, min_workers=3)
    world.settle()
    world.pod_gone(job.bound[LEADER])
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.LEADER_LOST))
    assert not world.state.assumed
    validate(world.state)


def test_workers_that_are_not_wanted_any_more_while_they_are_created_keep_their_room_for_a_while() -> None:
    world = World()
    world.node("n1", cpu=6)
    elastic = Edited(world, workers=2, min_workers=1)
    world.settle()
    job = elastic.edit(workers=5)
    world.cycle()
    assert len(job.placements) == 6
    elastic.edit(workers=3)
    assert [owner.index for owner, _ in world.state.assumed] == [3, 4] and world.used("n1") == 6000
    validate(world.state)
    elastic.edit(workers=5)  # it grows again: these places are other rooms until those pods are there or aren't
    world.cycle()
    assert len(job.placements) == 4
    world.wait_for_late_pods()
    world.settle()
    assert len(job.bound) == 6 and not world.state.assumed
    validate(world.state)


def placed_twice() -> tuple[World, JobRecord]:
    """A job whose second worker was placed on `n1`, given up and placed on `n2`; no pod of it was seen."""
    world = World()
    world.node("n1", cpu=3)
    elastic = Edited(world, workers=1, min_workers=1)
    world.settle()
    elastic.edit(workers=2)
    world.cycle()
    elastic.edit(workers=1)
    world.node("n2", cpu=3)
    job = elastic.edit(workers=2)
    world.cycle()
    assert job.placements[1, 1] == "n2" and (1, 1) not in job.bound
    return world, job


@pytest.mark.parametrize("seen_on", ["n1", "n2"])
def test_a_slot_that_got_another_node_meanwhile_may_have_its_pod_on_either(seen_on: str) -> None:
    world, job = placed_twice()
    world.job_gone(job)
    assert [at for _, at in world.state.assumed] == ["n1", "n2"]
    [owner] = {owner for owner, _ in world.state.assumed}
    world.pod(f"{job.seen.name}-{owner.group_name}-1", seen_on, owner=owner)
    assert [at for _, at in world.state.assumed] == [at for at in ("n1", "n2") if at != seen_on]
    validate(world.state)


def test_a_deleted_jobs_late_pods_keep_their_room_too() -> None:
    world, job = starting(cpu=2, leader=shape(cpu=2))
    world.job_gone(job)
    assert world.used("n1") == 2000
    world.wait_for_late_pods()
    assert world.used("n1") == 0 and not world.state.assumed


def test_a_snapshot_holds_them_in_an_order_that_every_process_shares() -> None:
    world, job = starting(cpu=5, workers=4, min_workers=4)
    uid = world.run_pod(job, LEADER, "n1")
    world.control()
    assert job.bound == {LEADER: uid} and job.leader.address
    restored = World()
    restored.state = snapshot.restore(snapshot.encode(world.state))
    decided = k.StageDecided(job.uid, job.version, 0, Stage.FAILED, StageReason.AS_RECORDED)
    for one in (world, restored):
        one.now_ms = 1_800_000_000_000
        one.say(decided)
    assert len(world.state.assumed) == 4
    assert snapshot.encode(restored.state) == snapshot.encode(world.state)
    assert snapshot.encode(snapshot.restore(snapshot.encode(world.state))) == snapshot.encode(world.state)


def test_what_is_only_supposed_makes_nobody_wait_for_pods() -> None:
    world, job = starting(cpu=2, leader=shape(cpu=2))
    changes = say(
        world.state,
        world.now_ms,
        [k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED)],
    )
    assert changes.schedulable and not world.state.assumed and not world.state.nodes.used.any()
    assert job.stage == Stage.RESCHEDULING


def test_explain_names_them_among_those_who_have_the_room() -> None:
    world, _ = rescheduled()
    world.job("other", leader=shape(cpu=2), priority=9)
    world.cycle()
    waiting = explained(world.entries, "other").waiting
    assert waiting is not None
    [holder] = waiting.holders
    assert (holder.who, holder.amounts) == (
        "pods of job default/ppo, first attempt, that may still appear",
        {"cpu": 2000},
    )
    assert holder.nodes == ("n1",)


def offered(world: World, name: str, later_ms: int = 0) -> list[tuple[str, int]]:
    """What explain offers a job, with the pods that get nodes."""
    histories = histories_of(world.entries, name)
    histories.finish(lambda last_ms: last_ms + later_ms)
    story = histories.stories[f"uid-{name}"]
    waiting = explain_waiting(story, story.state.jobs[f"uid-{name}"])
    assert waiting is not None
    return [(one.text, one.pods) for one in waiting.remedies]


UNTIL = "when no room is kept there any more for pods of default/ppo that may still appear"


def test_a_node_to_be_uncordoned_is_offered_with_the_end_of_what_is_kept_there() -> None:
    """For ten seconds after a drain, nobody was told that an uncordoned node would do, nor for whom its room is."""
    world, job = scheduled_again()
    world.node("n1", cpu=2, cordoned=True)
    world.cycle()
    assert world.state.assumed and not job.placements
    assert offered(world, "ppo", 1_000)[0] == (f"uncordon n1, in 9 s, {UNTIL}", 1)
    assert offered(world, "ppo", ASSUMED_MS + 1_000)[0] == ("uncordon n1", 1)


def drained(*, nodes: int = 1) -> tuple[World, JobRecord]:
    """A running job with workers on nodes that were drained, beside a full node; they have no other nodes yet."""
    world, cpu = World(), 4 // nodes
    names = [f"n{number}" for number in range(1, nodes + 1)]
    for name in names:
        world.node(name, cpu=cpu)
    world.node("z", cpu=1)
    job = world.job("ppo", workers=4)
    world.settle()
    assert job.placements[LEADER] == "z" and len(job.placements) == 5
    for name in names:
        world.node(name, cpu=cpu, cordoned=True)
    for slot in sorted(job.bound)[1:]:
        world.pod_gone(job.bound[slot])
    world.control()
    world.cycle()
    assert len(world.state.assumed) == 4 and len(job.placements) == 1
    return world, job


def test_after_a_drain_the_job_is_kept_by_closed_nodes_and_the_cordon_is_no_event_without_which_it_had_nodes() -> None:
    world, _ = drained()
    assert offered(world, "ppo", 4_000)[0] == (f"uncordon n1, in 6 s, {UNTIL}", 4)
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None and waiting.in_queue is not None
    assert waiting.in_queue.kept_by == KeptBy.CLOSED_NODES
    [remedy] = [one for one in waiting.remedies if one.kind == "uncordon"]
    assert remedy.undone == "n1 was cordoned" and remedy.several
    assert not waiting.blockers and not waiting.earlier


def test_several_drained_nodes_that_are_needed_together_are_offered_so() -> None:
    world, _ = drained(nodes=2)
    world.job("other", workers=4, worker=shape(cpu=1), min_workers=4, equals=True, priority=9)
    world.cycle()
    assert offered(world, "other", 1_000)[0] == (f"uncordon n2 and n1, in 9 s, {UNTIL}", 4)


def test_the_end_of_what_is_kept_on_an_open_node_is_offered_too() -> None:
    world, _ = rescheduled()
    world.job("other", leader=shape(cpu=2), priority=9)
    world.cycle()
    said = "in 9 s, when no room is kept any more for pods of default/ppo that may still appear"
    assert offered(world, "other", 1_000)[0] == (said, 1)
    [job] = [of for of in world.state.jobs.values() if of.seen.name == "ppo"]
    world.job_gone(job)
    assert offered(world, "other", 1_000)[0] == (said.replace("default/ppo", "a deleted job"), 1)


def test_no_later_end_is_awaited_than_is_enough() -> None:
    world = World()
    world.node("n1", cpu=6)
    elastic = Edited(world, workers=5, min_workers=1)
    world.settle()
    elastic.edit(workers=1)
    world.apply()
    elastic.edit(workers=5)
    world.cycle()
    for workers in (4, 3):
        elastic.edit(workers=workers)
        world.pass_time(2)
    world.job("other", leader=shape(cpu=2), priority=9)
    world.cycle()
    assert len({of.until_ms for of in world.state.assumed.values()}) == 2
    world.say(k.ListingBegun(k.Watched.NODE, world.terms[k.Watched.NODE]))
    assert offered(world, "other")[0][0].startswith("in 8 s, when no room is kept any more for pods of default/ppo")
    world.job("small", leader=shape(cpu=1), priority=9)
    world.job_gone(world.state.jobs["uid-other"])
    world.cycle()
    assert offered(world, "small")[0][0].startswith("in 6 s, when no room is kept any more")


def test_the_end_of_what_a_quota_counts_is_offered() -> None:
    world = World(config=CycleConfig())
    world.node("n1", cpu=4)
    world.quota("q", {"pods": 1})
    job = world.job("ppo", leader=shape(cpu=2))
    world.cycle()
    world.control()
    world.say(k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.AS_RECORDED))
    world.cycle()
    assert not job.placements
    said = "in 9 s, when no room is kept any more for pods of default/ppo that may still appear"
    assert (said, 1) in offered(world, "ppo", 1_000)
