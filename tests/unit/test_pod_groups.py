"""Groups of pods that no TYJob owns: decided whole, bound whole, and only what can't be bound is placed again."""

import re
from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.messages.prerequisites import prerequisites_text
from arranger.model.config import CycleConfig
from arranger.model.job import PlacedPods, Replacement, ScheduleState, Slot, Stage
from arranger.model.pod import GroupAsked, PodToPlace
from arranger.model.queue import Preemption
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import JOBS
from arranger.projections.state import Changes, State
from arranger.replay.explain.answer import explanation, pod_names
from arranger.replay.explain.awaited import What
from arranger.replay.explain.job_index import JobIndex
from arranger.replay.explain.story import Deletion
from arranger.replay.export.concerning import Concerning
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.reading.describe import message_of
from arranger.replay.what_if.hypothesis import job_gone, supposed
from arranger.scheduling.cycle import VERSIONS, take_cycle
from tests.unit.replay_worlds import histories_of, verified
from tests.world import World, shape


def grouped(count: int, *, least: int = 0, cpu: float = 2, nodes: int = 2, **pod: Any) -> tuple[World, JobRecord]:
    """Nodes `n1`, `n2`, …, and the group `train` of the pods `p0`, `p1`, …, all of which it needs if `least` is 0."""
    world = World()
    for number in range(1, nodes + 1):
        world.node(f"n{number}", cpu=cpu)
    for number in range(count):
        job = member(world, number, least=least or count, **pod)
    return world, job


def member(world: World, number: int, node: str = "", *, least: int, **more: Any) -> JobRecord:
    return world.pod_to_place(f"p{number}", node, group="train", least=least, **more)


def bind(world: World, job: JobRecord, *numbers: int) -> None:
    """These pods are seen on the nodes that were decided for them."""
    for number in numbers:
        slot = job.slots.members[f"uid-p{number}"]
        member(world, number, job.placements[slot], least=job.valid_spec.min_workers)


def stages(world: World) -> list[str]:
    return [of.seen.name + " " + of.stage for of in world.state.jobs.values()]


def test_a_group_is_decided_whole_and_runs_once_all_were_seen_on_their_nodes() -> None:
    world, job = grouped(4)
    assert (job.uid, job.seen.name) == ("group:default/train", "group:train")
    world.cycle()
    assert job.stage == Stage.STARTING and sorted(job.placements.values()) == ["n1", "n1", "n2", "n2"]
    assert world.used("n1") == 2000
    bind(world, job, 0, 1, 2)
    assert job.stage == Stage.STARTING
    validate(world.state)
    bind(world, job, 3)
    assert (job.stage, job.schedule_state) == (Stage.RUNNING, ScheduleState.SUCCEED)
    assert (world.used("n1"), world.used("n2")) == (2000, 2000)
    validate(world.state)
    assert world.cycle() == () and world.control() == []


def test_a_group_holds_nothing_until_its_quorum_fits() -> None:
    world, job = grouped(5)
    world.cycle()
    assert not job.placements and job.waits is not None and world.used("n1") == world.used("n2") == 0
    single = world.pod_to_place("web")
    world.cycle()
    assert single.placements, "it takes nothing from others while it waits"


def test_two_groups_never_keep_a_part_of_the_room_each() -> None:
    world = World()
    world.node("n1", cpu=4)
    for number in range(3):
        first = world.pod_to_place(f"a{number}", group="a", least=3, created=number)
        second = world.pod_to_place(f"b{number}", group="b", least=3, created=number)
    world.cycle()
    assert [len(first.placements), len(second.placements)] == [3, 0]


def test_a_group_with_too_few_pods_isnt_tried_and_says_how_many_it_lacks() -> None:
    world, job = grouped(2, least=4)
    assert world.cycle() == () and job.waits is None
    assert prerequisites_text(world.state, job) == "waits for 2 more pods of its group, which needs 4 and has 2"
    member(world, 2, least=4)
    assert world.cycle() == ()
    member(world, 3, least=4)
    world.cycle()
    assert len(job.placements) == 4 and prerequisites_text(world.state, job) == ""


def test_pods_beyond_the_minimum_follow_as_far_as_there_is_room() -> None:
    world, job = grouped(5, least=2)
    world.cycle()
    assert (len(job.placements), job.schedule_state) == (4, ScheduleState.PARTLY)
    bind(world, job, 0, 1, 2, 3)
    assert job.stage == Stage.RUNNING
    world.node("n3")
    world.cycle()
    bind(world, job, 4)
    assert job.bound.keys() == {(1, number) for number in range(5)} and job.schedule_state == ScheduleState.SUCCEED
    validate(world.state)


def test_a_pod_that_comes_later_joins_a_running_group() -> None:
    world, job = grouped(2, nodes=3)
    world.cycle()
    bind(world, job, 0, 1)
    member(world, 2, least=2)
    world.cycle()
    assert len(job.placements) == 3 and job.stage == Stage.RUNNING
    validate(world.state)


def test_a_failed_binding_places_only_the_unbound_pods_again() -> None:
    world, job = grouped(3, nodes=3, cpu=1)
    world.cycle()
    bind(world, job, 0, 1)
    lost = job.placements[1, 2]
    world.node(lost, cpu=1, cordoned=True)
    world.node("n4", cpu=1)
    (decided,) = world.control()
    assert isinstance(decided, k.WorkersReplaced)
    assert [(of.slot, of.how) for of in decided.workers] == [(Slot(1, 2), Replacement.ELSEWHERE)]
    assert job.placements.keys() == {(1, 0), (1, 1)} and job.attempt == 0
    validate(world.state)
    world.cycle()
    assert job.placements[1, 2] == "n4"
    bind(world, job, 2)
    assert job.stage == Stage.RUNNING
    validate(world.state)


def test_before_any_pod_was_bound_the_whole_group_gets_other_nodes() -> None:
    world, job = grouped(2, cpu=1)
    world.cycle()
    world.node("n2", cpu=1, cordoned=True)
    (decided,) = world.control()
    assert isinstance(decided, k.StageDecided) and decided.reason == StageReason.NODE_CLOSED and not job.placements
    world.node("n3", cpu=1)
    world.wait_for_late_pods()
    world.cycle()
    assert sorted(job.placements.values()) == ["n1", "n3"] and job.attempt == 1


@pytest.mark.parametrize("bound", [0, 1])
def test_a_binding_that_is_refused_for_too_long_gives_the_node_up(bound: int) -> None:
    world, job = grouped(2, nodes=3, cpu=1)
    world.cycle()
    bind(world, job, *range(bound))
    slot = Slot(1, 1)
    world.say(k.EffectFailed(job.uid, job.attempt, "bind", slot, 403, "Forbidden", "may not", False, 1))
    assert world.control() == []
    world.pass_time(world.lifecycle.refused_ms / 1000)
    (decided,) = world.control()
    assert isinstance(decided, k.WorkersReplaced if bound else k.StageDecided) and decided.back_off_ms
    assert len(job.placements) == bound
    world.wait_for_back_offs()
    world.cycle()
    assert len(job.placements) == 2
    validate(world.state)


def test_a_late_binding_counts_where_it_was_done() -> None:
    """The applier bound a pod after the decision on its node was taken back."""
    world, job = grouped(2, cpu=1)
    world.cycle()
    first = job.placements[1, 0]
    world.node("n3", cpu=1)
    world.node(first, cpu=1, cordoned=True)
    world.control()
    member(world, 0, first, least=2)
    assert (job.bound, job.placements[1, 0], job.stage) == ({(1, 0): "uid-p0"}, first, Stage.STARTING)
    validate(world.state)
    world.wait_for_late_pods()
    world.cycle()
    assert len(job.placements) == 2 and world.used(first) == 1000


def test_no_decision_takes_a_bound_pod_out_of_its_slot() -> None:
    world, job = grouped(2)
    world.cycle()
    bind(world, job, 0)
    ended = k.EndedWorker(Slot(1, 0), "uid-p0", Replacement.ELSEWHERE, False)
    for decided in (
        k.WorkersReplaced(job.uid, job.version, 0, (ended,), ()),
        k.StageDecided(job.uid, job.version, 0, Stage.RESCHEDULING, StageReason.NODE_LOST),
    ):
        world.say(decided)
        assert not world.changes.verdicts[-1].accepted and job.bound


def test_the_slot_of_a_pod_that_is_gone_is_for_the_next_one() -> None:
    world, job = grouped(3, nodes=3)
    world.cycle()
    bind(world, job, 0, 1, 2)
    world.pod_gone("uid-p1")
    assert job.slots.given_up == {(1, 1): None} and len(job.placements) == 2
    assert "given up" not in message_of(world.state, job), "nobody gave up anything: a pod may still come"
    assert prerequisites_text(world.state, job) == "", "it runs with those that it has"
    validate(world.state)
    member(world, 7, least=3)
    assert job.slots.members["uid-p7"] == (1, 1)
    world.cycle()
    bind(world, job, 7)
    assert len(job.bound) == 3
    validate(world.state)


def test_no_pod_may_fill_a_slot_without_one() -> None:
    world, job = grouped(3, least=1)
    world.pod_gone("uid-p1")
    world.say(
        k.CycleTaken(world.state.offset, 0, world.config),
        k.Placed(job.uid, job.version, 0, ScheduleState.PARTLY, (PlacedPods("n1", 1, ((0, 1),)),)),
    )
    assert not job.placements


def test_pods_that_have_finished_count_towards_the_minimum() -> None:
    world, job = grouped(3, nodes=2)
    world.cycle()
    bind(world, job, 0, 1, 2)
    world.change_pod("uid-p0", phase="Succeeded")
    world.change_pod("uid-p1", phase="Failed")
    validate(world.state)
    member(world, 3, least=3)
    world.cycle()
    assert job.placements.keys() == {(1, 1), (1, 2)} and job.pods_lacking == 0
    bind(world, job, 3)
    for number in (2, 3):
        world.change_pod(f"uid-p{number}", phase="Succeeded")
    assert world.state.jobs == {} and world.used("n1") == 0
    validate(world.state)
    for number in (0, 2, 3):
        world.pod_gone(f"uid-p{number}")
    assert world.state.finished == {} and world.state.queue_use.own == {}
    validate(world.state)


def test_a_group_whose_minimum_has_finished_is_starting_until_its_next_pod_is_bound() -> None:
    world, job = grouped(2, least=1)
    world.cycle()
    bind(world, job, 0, 1)
    world.change_pod("uid-p0", phase="Succeeded")
    world.pod_gone("uid-p1")
    validate(world.state)
    member(world, 2, least=1)
    job = member(world, 3, least=1)
    world.cycle()
    member(world, 2, least=1, deleting=True)
    assert (job.stage, len(job.placements)) == (Stage.STARTING, 1)
    validate(world.state)


def test_pods_with_resource_claims_dont_count_towards_their_groups_minimum() -> None:
    world, job = grouped(2, claims=("gpu",))
    assert world.cycle() == () and not job.placements
    assert prerequisites_text(world.state, job).endswith("2 pods of it can't be placed because of resource claims")


def test_gated_pods_dont_count_until_their_gates_are_gone() -> None:
    world, job = grouped(2, gates=("example.com/later",))
    assert world.cycle() == ()
    assert prerequisites_text(world.state, job).endswith("2 pods of it can't be placed because of scheduling gates")
    member(world, 0, least=2)
    assert world.cycle() == ()
    member(world, 1, least=2)
    world.cycle()
    assert len(job.placements) == 2
    validate(world.state)


def test_a_group_that_falls_below_its_minimum_before_it_was_bound_gives_its_nodes_back() -> None:
    world, job = grouped(2)
    world.cycle()
    member(world, 0, least=2, deleting=True)
    assert (job.placements, job.stage) == ({}, Stage.PENDING)
    validate(world.state)
    world.pod_gone("uid-p0")
    world.wait_for_late_pods()
    assert world.used("n1") == world.used("n2") == 0 and world.cycle() == ()


def test_pods_of_different_shapes_are_groups_of_one_record() -> None:
    world = World()
    world.node("n1", cpu=8)
    world.pod_to_place("driver", group="train", least=3, of=shape(cpu=3))
    for number in range(2):
        job = member(world, number, least=3)
    assert [(of.name, of.count) for of in job.valid_spec.groups[1:]] == [("pod", 1), ("pod-2", 2)]
    world.cycle()
    assert job.placements.keys() == {(1, 0), (2, 0), (2, 1)} and world.used("n1") == 5000
    member(world, 0, least=3, of=shape(cpu=3))  # it was resized before it was bound
    assert job.slots.members["uid-p0"] == (1, 1)
    validate(world.state)


def test_a_group_has_the_lowest_priority_and_the_first_time_of_its_pods() -> None:
    world = World()
    world.node("n1", cpu=2)
    world.pod_to_place("a0", group="a", least=2, priority=9, created=5)
    low = world.pod_to_place("a1", group="a", least=2, priority=1, created=7)
    assert (low.valid_spec.priority, low.seen.created_ms) == (1, 5)
    high = world.pod_to_place("b0", group="b", least=1, priority=5, created=9, of=shape(cpu=2))
    world.cycle()
    assert high.placements and not low.placements


def test_a_group_counts_once_as_a_job_of_its_queue() -> None:
    world, job = grouped(2, of_queue="small")
    world.queue("small")
    world.cycle()
    assert world.state.queue_use.own == {"small": {JOBS: 1, "cpu": 2000}}
    bind_in_queue = [member(world, number, "n1", least=2, of_queue="small") for number in (0, 1)]
    assert bind_in_queue[0] is job and world.state.queue_use.own == {"small": {JOBS: 1, "cpu": 2000}}
    validate(world.state)


def test_a_job_of_lower_priority_gives_room_to_a_whole_group() -> None:
    world = World(config=CycleConfig(versions=VERSIONS, preemption=Preemption()))
    world.node("n1", cpu=4)
    victim = world.job("ppo", leader=shape(cpu=4), priority=5)
    world.settle()
    for number in range(3):
        job = member(world, number, least=3, priority=9)
    world.cycle()
    assert victim.stage == Stage.RESCHEDULING
    assert (job.stage, len(job.placements)) == (Stage.PENDING, 3)
    validate(world.state)
    world.apply()
    world.control()
    assert (job.stage, job.attempt) == (Stage.STARTING, 0)
    validate(world.state)


def test_a_group_whose_only_pod_with_a_node_goes_waits_for_no_room() -> None:
    world = World(config=CycleConfig(versions=VERSIONS, preemption=Preemption()))
    world.node("n1", cpu=4)
    victim = world.job("ppo", leader=shape(cpu=4), priority=5)
    world.settle()
    member(world, 0, least=1, priority=9)
    job = member(world, 1, least=1, priority=9, gates=("example.com/later",))
    world.cycle()
    assert victim.stage == Stage.RESCHEDULING and list(job.placements) == [job.slots.members["uid-p0"]]
    world.pod_gone("uid-p0")
    assert (job.stage, job.placements, job.slots.room) == (Stage.PENDING, {}, None)
    validate(world.state)


def test_a_pod_that_others_bind_early_begins_its_group() -> None:
    """The rest of the quorum is then decided beside it."""
    world, job = grouped(3, nodes=2)
    member(world, 1, "n2", least=3)
    assert (job.stage, job.bound) == (Stage.STARTING, {(1, 1): "uid-p1"})
    validate(world.state)
    world.cycle()
    assert len(job.placements) == 3
    validate(world.state)


def test_a_pod_may_change_its_group() -> None:
    world, job = grouped(2)
    world.cycle()
    bind(world, job, 0)
    other = world.pod_to_place("p0", job.placements[1, 0], group="other", least=1)
    assert other is not job and other.bound and job.slots.members.keys() == {"uid-p1"}
    alone = world.pod_to_place("p1")
    assert alone.uid == "pod:uid-p1" and stages(world) == ["group:other Running", "pod:p1 Pending"]
    validate(world.state)


def test_a_forged_observation_may_give_a_pod_another_name() -> None:
    world, job = grouped(2)
    world.pod_asking("other", group="train", least=2, uid="uid-p0")
    assert job.slots.members["uid-p0"] == (1, 0) and job.pod_name((1, 0)) == "other"
    validate(world.state)


def test_groups_of_one_name_in_two_namespaces_are_two() -> None:
    world = World()
    world.node("n1")
    first = world.pod_to_place("a", group="train", least=2)
    second = world.pod_to_place("b", group="train", least=2, namespace="other")
    assert first is not second and world.cycle() == ()


def test_every_cycle_with_groups_is_a_function_of_its_inputs() -> None:
    world, job = grouped(3, least=2)
    for _ in range(2):
        again = snapshot.restore(snapshot.encode(world.state))
        assert take_cycle(again, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)
        assert again.jobs[job.uid] == job
        world.cycle()
    bind(world, job, 0)
    assert snapshot.encode(snapshot.restore(snapshot.encode(world.state))) == snapshot.encode(world.state)


def test_a_new_epoch_finds_a_group_in_any_order_of_its_pods() -> None:
    for order in ((0, 1, 2), (2, 1, 0)):
        world = World()
        world.node("n1", cpu=2)
        for number in order:
            phase = "Succeeded" if number == 0 else "Running"
            world.pod_asking(f"p{number}", "n1", group="train", least=3, phase=phase)
        job = world.state.jobs["group:default/train"]
        assert (job.stage, job.pods_lacking, len(job.bound)) == (Stage.RUNNING, 0, 2)
        validate(world.state)


def test_a_group_can_be_supposed_gone() -> None:
    world, job = grouped(2)
    world.cycle()
    bind(world, job, 0)
    without = supposed(world.state, job_gone(job, world.state))
    assert without.jobs == {} and job.bound
    validate(without)
    validate(world.state)


def test_a_log_of_single_pods_folds_as_before() -> None:
    """An observation of the version before has no group."""
    world = World()
    world.node("n1")
    job = world.pod_to_place("web")
    asks = world.state.pods["uid-web"].asks
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(asks))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:-1]), type=PodToPlace) == asks
    assert job.uid == "pod:uid-web" and not job.of_group and job.slots.members == {}
    assert GroupAsked("a", 1) == GroupAsked("a", 1)


# --- what is told of a group -------------------------------------------------------------------------------------


def lived() -> tuple[World, JobRecord]:
    """A group that waited for its third pod, was bound in part, placed again in part, and runs."""
    world, job = grouped(2, least=3, cpu=1, nodes=3)
    world.cycle()
    member(world, 2, least=3)
    world.cycle()
    bind(world, job, 0, 1)
    world.node(job.placements[1, 2], cpu=1, cordoned=True)
    world.control()
    world.node("n4", cpu=1)
    world.cycle()
    bind(world, job, 2)
    assert job.stage == Stage.RUNNING
    return world, job


def test_a_log_with_a_group_is_explained_by_the_groups_name() -> None:
    world, job = lived()
    histories = histories_of(world.entries, "group:train")
    story = histories.stories[job.uid]
    told = explanation(story, story.state.jobs[job.uid], histories.retaken(job.uid, 0))
    standing = told.standing
    assert (standing.job, standing.stage) == ("default/group:train", "Running")
    assert (standing.pods_placed, standing.pods_present, standing.min_workers) == (3, 3, 3)
    assert What.MORE_PODS in [interval.awaited.what for interval in told.intervals]
    assert {of.pod for of in told.placement_explanations} == {"p0", "p1", "p2"}
    assert {of.pod: of.node for of in told.placement_explanations if of.lasts}["p2"] == "n4"
    assert list(pod_names(story, job)) == ["p0", "p1", "p2"]
    words = [standing.allocation, *(of.together for of in told.placement_explanations)]
    words += [*(of.text for of in told.timeline), *(of.message for of in told.consequences)]
    assert not [text for text in words if re.search(r"\b(pod|worker|actors?) ?-?\d", text)], "slots for names"
    assert sorted(standing.allocation.replace(";", ",").split(", ")) == ["n1: p0", "n2: p1", "n4: p2"]
    replaced = [of.message for of in told.consequences if of.what == "Replaced"]
    assert replaced and all("p2" in text for text in replaced)


def test_a_log_with_a_group_verifies() -> None:
    world, _ = lived()
    report = verified(world.entries)
    assert report.sound and 0 < report.cycles == report.identical


def test_the_index_of_names_has_a_group_until_its_last_pod_has_ended() -> None:
    world, _ = lived()
    index = JobIndex()
    for entry in world.entries:
        index.feed(entry)
    assert index.jobs == {("default", "group:train"): None}
    before = len(world.entries)
    world.change_pod("uid-p0", phase="Succeeded")
    world.pod_gone("uid-p1")
    world.change_pod("uid-p2", phase="Failed")
    for entry in world.entries[before:]:
        assert index.jobs == {("default", "group:train"): None}
        index.feed(entry)
    went = world.entries[-1]
    deletion = Deletion(went.last, went.batch.time_ms, "Failed")
    assert index.jobs == {("default", "group:train"): (deletion, went.first - 1)}


def test_an_export_of_a_group_reaches_from_its_first_pod_to_its_last() -> None:
    world, job = lived()
    began = next(entry.first for entry in world.entries if any(isinstance(of, k.PodSeen) for of in entry.batch.events))
    for number in range(3):
        world.pod_gone(f"uid-p{number}")
    ended = world.entries[-1].last
    world.node("later")
    found = Concerning("group:train", None)
    for entry in world.entries:
        found.feed(entry)
    assert found.found == {job.uid: ("default", began, ended)}


def test_an_export_without_names_decides_on_groups_as_before() -> None:
    world, _ = lived()
    names = Pseudonyms()
    for entry in world.entries:
        names.batch(entry.batch)
    names.begin()
    state, changes = State(), Changes()
    for entry in world.entries:
        apply_entry(state, Entry(entry.first, entry.last, "", names.batch(entry.batch)), changes)
    assert all(of.accepted for of in changes.verdicts)
    (job,) = state.jobs.values()
    assert job.uid == "group:ns-0001/g-0001" and job.seen.name == "group:g-0001" and job.stage == Stage.RUNNING
    assert b"train" not in snapshot.encode(state)
