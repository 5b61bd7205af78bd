"""Bisect: the event at which a condition starts to hold is named exactly, whatever lies around it."""

from collections.abc import Callable

import pytest

from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.model.config import ANY_ACCELERATOR, CycleConfig
from arranger.model.node import Taint
from arranger.model.pod import PodRules, PodTerm, PodTraits, Requirement
from arranger.projections.jobs.parts import LEADER
from arranger.projections.state import State
from arranger.replay.bisect import job_conditions, node_conditions
from arranger.replay.bisect.conditions import All, Condition, Negated
from arranger.replay.bisect.cycle_conditions import QuorumFits, WouldBePlaced
from arranger.replay.bisect.jobs_by_name import JobsByName
from arranger.replay.bisect.search import Alternative, ConditionRun, FoundEvent, Refinement, Search, first_disagreement
from arranger.replay.reading.history import Point, Span
from arranger.replay.reading.verify import Survey, Verification
from arranger.replay.what_if.overrides import Overrides
from tests.unit.replay_worlds import contended, crowded
from tests.world import World, shape

Make = Callable[[State], Condition]


def sought(
    world: World, make: Make, *, last: bool = False, span: Span | None = None
) -> tuple[ConditionRun, FoundEvent | None]:
    """When the condition held over the log, and the event at which it starts to hold."""
    state = State()
    search = Search(state, [make(state)], span or Span(), first_only=not last)
    for entry in world.entries:
        if not search.feed(entry):
            break
    (run,) = search.runs
    if not run.starts:
        return run, None
    state = State()
    refinement = Refinement(state, make(state), run.last if last else run.first)
    for entry in world.entries:
        if not refinement.feed(entry):
            break
    return run, refinement.found


def found_event(world: World, make: Make, *, last: bool = False) -> k.Event:
    _, found = sought(world, make, last=last)
    assert found is not None
    return found.event.event


def blocked(world: World, name: str) -> FoundEvent | None:
    """What blocks a job's quorum for want of room."""
    return sought(world, lambda _: Negated(QuorumFits(job(world, name), CycleConfig())), last=True)[1]


def passed_over(world: World, name: str) -> FoundEvent | None:
    """What keeps a job from being placed, others before it included."""

    def make(_: State) -> Condition:
        return Negated(WouldBePlaced(QuorumFits(job(world, name), CycleConfig())))

    return sought(world, make, last=True)[1]


def job(world: World, name: str) -> k.JobSeen:
    """The newest job of that name, as it was first seen."""
    jobs_by_name = JobsByName(name, State())
    for entry in world.entries:
        jobs_by_name.feed(entry)
    return [*jobs_by_name.jobs.values()][-1].seen


def two_nodes() -> World:
    """Two nodes of 4 GPUs, and a stranger's pods that come and go on a third without any."""
    world = World()
    world.node("n1", gpus=4)
    world.node("n2", gpus=4)
    world.node("n3")
    noise(world)
    return world


def noise(world: World) -> None:
    """Things happen that have no bearing on GPUs."""
    for number in range(3):
        world.pass_time(1)
        uid = world.pod(f"stranger-{number}", "n3", cpu=1)
        world.change_pod(uid, ready=False)
        world.pod_gone(uid)
    world.cycle()


def waiting_job(world: World) -> None:
    """A job of two pods with 4 GPUs each, which nobody has room for any more."""
    noise(world)
    whole = shape(cpu=1, gpus=4)
    world.job("train", leader=whole, workers=1, worker=whole, min_workers=1, created=world.now_ms)
    world.settle()
    noise(world)
    assert not world.state.jobs["uid-train"].placements


# --- what blocks a job ---------------------------------------------------------------------------------------


def _cordon(world: World) -> None:
    world.node("n2", gpus=4, cordoned=True)


def _taint(world: World) -> None:
    world.node("n2", gpus=4, taints=[Taint("maintenance", "", "NoSchedule")])


def _not_ready(world: World) -> None:
    world.node("n2", gpus=4, ready=False)


def _fewer_gpus(world: World) -> None:
    world.node("n2", gpus=3)


def _node_gone(world: World) -> None:
    world.node_gone("n2")


def _stranger(world: World) -> None:
    world.pod("intruder", "n1", gpus=1)


@pytest.mark.parametrize("cause", [_cordon, _taint, _not_ready, _fewer_gpus, _node_gone, _stranger])
def test_what_happened_to_a_node_before_the_job_came_is_named_as_what_blocks_it(
    cause: Callable[[World], None],
) -> None:
    world = two_nodes()
    cause(world)
    offset = world.state.offset
    waiting_job(world)
    found = blocked(world, "train")
    assert found is not None and found.event.offset == offset
    assert passed_over(world, "train") == found
    assert any(change.what == "its quorum alone" and change.before == "fits" for change in found.changed)


def test_a_pod_that_the_job_may_not_join_blocks_it_though_it_came_before() -> None:
    world = World()
    world.node("n1", gpus=4, labels={"zone": "a"})
    world.pass_time(1)
    world.pod("other", "n1", traits=PodTraits((("app", "a"),)), cpu=1)
    offset = world.state.offset
    alone = PodRules(anti_affinity=(PodTerm("zone", (Requirement("app", "In", ("a",)),)),))
    world.pass_time(1)
    world.job("train", leader=shape(gpus=1, rules=alone))
    found = blocked(world, "train")
    assert found is not None and found.event.offset == offset
    found = passed_over(world, "train")
    assert found is not None and found.event.offset == offset


def test_room_that_came_and_went_again_is_no_answer() -> None:
    world = two_nodes()
    _cordon(world)
    world.node("n2", gpus=4)
    noise(world)
    _taint(world)
    world.node("n2", gpus=4)
    uid = world.pod("intruder", "n1", gpus=1)
    world.pod_gone(uid)
    _fewer_gpus(world)
    offset = world.state.offset
    world.node("n1", gpus=4, labels={"zone": "a"})
    waiting_job(world)
    found = blocked(world, "train")
    assert found is not None and found.event.offset == offset


def test_a_competing_decision_is_named_though_its_batch_holds_others() -> None:
    world = two_nodes()
    one = shape(cpu=1)
    world.job("before", leader=one, created=1)
    world.job("rival", leader=shape(cpu=1, gpus=1), created=2)
    world.job("behind", leader=one, created=3)
    world.cycle()
    placed = world.entries[-1]
    assert len(placed.batch.events) == 4
    waiting_job(world)
    found = blocked(world, "train")
    assert found is not None
    assert found.event.event == placed.batch.events[2]
    assert found.event.subject == "default/rival" and found.event.verdict == "accepted"
    assert found.batch == (placed.first, placed.last)


def test_an_edit_that_makes_the_quorum_larger_is_what_blocks_the_job() -> None:
    world = two_nodes()
    whole = shape(cpu=1, gpus=4)
    world.job("train", leader=whole, workers=3, worker=whole, min_workers=1)
    world.job("train", leader=whole, workers=3, worker=whole, min_workers=3, generation=2)
    offset = world.state.offset
    world.settle()
    found = blocked(world, "train")
    assert found is not None and found.event.offset == offset
    assert any("3 workers" in change.after for change in found.changed if change.what == "spec")


def test_a_raised_priority_of_another_job_is_why_a_cycle_passes_over_one_that_has_room() -> None:
    world = two_nodes()
    whole = shape(cpu=1, gpus=4)
    world.job("train", leader=whole, workers=1, worker=whole, min_workers=1, priority=6)
    world.job("rival", leader=whole, priority=5)
    world.job("rival", leader=whole, priority=9, generation=2)
    offset = world.state.offset
    world.pod_gone(world.pod("stranger", "n3", cpu=1))
    assert QuorumFits(job(world, "train"), CycleConfig()).holds(world.state)
    found = passed_over(world, "train")
    assert found is not None and found.event.offset == offset
    (turn,) = [change for change in found.changed if change.what == "ahead in the queue"]
    assert (turn.before, turn.after) == ("nobody", "default/rival")
    world.cycle()
    taken = blocked(world, "train")
    assert taken is not None and taken.event.subject == "default/rival" and taken.event.kind == "Placed"


def test_a_job_that_no_cycle_looks_at_would_not_be_placed_though_there_is_room() -> None:
    world = two_nodes()
    train = world.job("train", leader=shape(gpus=1))
    world.settle()
    leader = train.bound[LEADER]
    world.change_pod(leader, phase="Failed", ready=False)
    world.control()
    offset = world.state.offset
    assert train.attempt == 1 and leader in world.state.pods, "its earlier pod is still there"
    found = passed_over(world, "train")
    assert found is not None and found.event.offset == offset
    world.pod_gone(leader)
    world.wait_for_back_offs()
    world.wait_for_late_pods()
    assert passed_over(world, "train") == found
    assert WouldBePlaced(QuorumFits(job(world, "train"), CycleConfig())).holds(world.state)


def test_a_job_that_backs_off_would_not_be_placed_before_its_time() -> None:
    world = two_nodes()
    train = world.job("train", leader=shape(gpus=1))
    world.settle()
    world.change_pod(train.bound[LEADER], phase="Failed", ready=False)
    world.control()
    world.apply()
    would = WouldBePlaced(QuorumFits(job(world, "train"), CycleConfig()))
    assert not would.holds(world.state)
    world.wait_for_back_offs()
    world.say(k.ListingBegun(k.Watched.NODE, world.terms[k.Watched.NODE]))
    assert would.holds(world.state)


def test_nothing_is_named_for_a_job_that_no_state_had_room_for() -> None:
    world = two_nodes()
    world.job("never", leader=shape(gpus=64))
    world.settle()
    run, found = sought(world, lambda _: Negated(QuorumFits(job(world, "never"), CycleConfig())), last=True)
    assert found is None and run.held_before and run.holds


def test_a_job_with_its_nodes_or_at_its_end_is_blocked_by_nothing() -> None:
    world = two_nodes()
    world.job("train", leader=shape(gpus=4))
    world.settle()
    world.pod("late", "n2", gpus=4)
    room = QuorumFits(job(world, "train"), CycleConfig())
    assert room.holds(world.state)


def test_an_answer_is_kept_only_while_nothing_has_changed_that_it_depends_on() -> None:
    world = two_nodes()
    whole = shape(cpu=1, gpus=4)
    world.job("train", leader=whole, workers=1, worker=whole, min_workers=1)
    of = job(world, "train")
    kept = QuorumFits(of, CycleConfig())
    for change in (_cordon, noise, _fewer_gpus, lambda w: w.node("n2", gpus=4), _stranger, noise, _node_gone):
        change(world)
        assert kept.holds(world.state) == QuorumFits(of, CycleConfig()).holds(world.state)


# --- plain conditions ----------------------------------------------------------------------------------------


def test_the_first_start_is_named_and_the_last_on_request() -> None:
    world = two_nodes()
    for _ in range(3):
        _cordon(world)
        world.node("n2", gpus=4)
    offsets = [
        entry.first
        for entry in world.entries
        if isinstance(entry.batch.events[0], k.NodeSeen) and entry.batch.events[0].facts.cordoned
    ]
    run, found = sought(world, lambda _: node_conditions.cordoned("n2"))
    assert found is not None and found.event.offset == offsets[0]
    run, found = sought(world, lambda _: node_conditions.cordoned("n2"), last=True)
    assert found is not None and found.event.offset == offsets[-1]
    assert (run.starts, run.holds) == (3, False)


def test_only_a_start_within_the_stretch_counts() -> None:
    world = two_nodes()
    _cordon(world)
    first = world.state.offset
    noise(world)
    run, found = sought(world, lambda _: node_conditions.cordoned("n2"), span=Span(Point(offset=first + 1)))
    assert found is None and run.held_before and run.began == first
    run, found = sought(
        world, lambda _: node_conditions.cordoned("n2"), span=Span(Point(offset=first), Point(offset=first))
    )
    assert found is not None and found.event.offset == first


@pytest.mark.parametrize(
    ("make", "kind", "of"),
    [
        (lambda job: job_conditions.in_stage(job("small"), "Running"), k.StageDecided, "uid-small"),
        (lambda job: job_conditions.placed(job("default/wide")), k.Placed, "uid-wide"),
        (lambda job: job_conditions.waits(job("big")), k.Waits, "uid-big"),
        (lambda job: job_conditions.waits(job("never"), "INSUFFICIENT"), k.Waits, "uid-never"),
        (lambda job: job_conditions.waits(job("never"), "Nvidia"), k.Waits, "uid-never"),
        (lambda job: job_conditions.Infeasible(job("never")), k.Waits, "uid-never"),
        (lambda job: job_conditions.in_schedule_state(job("small"), "ScheduledSucceed"), k.Placed, "uid-small"),
    ],
)
def test_conditions_on_jobs_name_the_decision(
    make: Callable[[Callable[[str], k.JobSeen]], Condition], kind: type, of: str
) -> None:
    world = crowded()
    event = found_event(world, lambda _: make(lambda name: job(world, name)))
    assert isinstance(event, kind) and event.job_uid == of  # type: ignore[attr-defined]


def test_free_room_on_a_node_is_compared_in_its_unit() -> None:
    world = crowded()
    event = found_event(world, lambda _: node_conditions.free("n2", ANY_ACCELERATOR, "<", 4))
    assert isinstance(event, k.Placed) and event.job_uid == "uid-small"
    assert isinstance(found_event(world, lambda _: node_conditions.free("n2", "nvidia.com/gpu", "=", 0)), k.Placed)
    run, found = sought(world, lambda _: node_conditions.free("n2", "cpu", "<=", 1000))
    assert found is None and not run.starts


def test_several_conditions_hold_at_once_from_the_later_on() -> None:
    world = two_nodes()
    _taint(world)
    world.node("n2", gpus=4, taints=[Taint("maintenance", "", "NoSchedule")], cordoned=True)
    offset = world.state.offset
    _, found = sought(
        world, lambda _: All([node_conditions.tainted("n2", "maintenance"), node_conditions.cordoned("n2")])
    )
    assert found is not None and found.event.offset == offset


def test_a_job_of_that_name_in_two_namespaces_has_to_be_told_apart() -> None:
    world = two_nodes()
    world.job("train", namespace="a", uid="1")
    world.job("train", namespace="b", uid="2")
    with pytest.raises(UsageError, match="a/train, b/train"):
        job(world, "train")
    assert isinstance(found_event(world, lambda _: job_conditions.there(job(world, "b/train"))), k.JobSeen)


def used_twice() -> World:
    """Two jobs `train`, one after the other: the first held all GPUs until it was deleted, the second has them now."""
    world = two_nodes()
    whole = shape(cpu=1, gpus=4)
    for uid in ("uid-one", "uid-two"):
        one = world.job("train", uid=uid, leader=whole, workers=1, worker=whole, min_workers=1, created=world.now_ms)
        world.settle()
        assert len(one.placements) == 2
        if uid == "uid-one":
            world.job_gone(one)
            for pod in [pod for pod, seen in world.state.pods.items() if seen.owner is not None]:
                world.pod_gone(pod)
        world.pass_time(1)
    return world


def test_a_job_is_one_job_though_its_name_was_used_before() -> None:
    world = used_twice()
    for make in (job_conditions.placed, lambda seen: job_conditions.in_stage(seen, "Running")):
        event = found_event(world, lambda _, make=make: make(job(world, "train")))  # type: ignore[misc]
        assert event.job_uid == "uid-two"  # type: ignore[attr-defined]


def test_the_decision_on_an_earlier_job_of_the_name_is_told_as_that_jobs() -> None:
    found = blocked(used_twice(), "train")
    assert found is not None and found.of_same_name
    assert isinstance(found.event.event, k.Placed) and found.event.event.job_uid == "uid-one"
    changed = {(change.subject, change.what): change.after for change in found.changed}
    assert changed["job default/train (an earlier job of that name)", "pods"] == "2 of 2 have nodes"
    assert changed["job default/train", "its quorum alone"].startswith("0 of 2 required pods fit; ")


def test_each_time_that_a_condition_held_is_kept() -> None:
    world = two_nodes()
    offsets = []
    for cordoned in (True, False, True, False, True):
        world.node("n2", gpus=4, cordoned=cordoned)
        offsets.append(world.state.offset)
        noise(world)
    run, _ = sought(world, lambda _: node_conditions.cordoned("n2"), last=True)
    assert run.over == [(offsets[0], offsets[1] - 1), (offsets[2], offsets[3] - 1)]
    assert run.holds and run.last == offsets[4]
    run, _ = sought(world, lambda _: node_conditions.cordoned("n2"), last=True, span=Span(Point(offset=offsets[0] + 1)))
    assert run.held_before and run.over[0] == (offsets[0] + 1, offsets[1] - 1)


# --- cycles --------------------------------------------------------------------------------------------------


def alternative(world: World, other: Overrides) -> Alternative:
    survey = Survey(Span())
    for entry in world.entries:
        survey.feed(entry)
    found = Alternative(State(), survey, other)
    for entry in world.entries:
        if not found.feed(entry):
            break
    return found


def test_the_first_cycle_that_another_queue_policy_decides_otherwise_is_found() -> None:
    world = contended()
    found = alternative(world, Overrides(queue_policy="DRF")).found
    assert found is not None
    entry = next(entry for entry in world.entries if entry.first == found.cycle)
    assert any(isinstance(event, k.Placed) and event.job_uid == "uid-large" for event in entry.batch.events)
    assert found.job in ("default/large", "default/small")


def test_a_superseded_cycle_is_not_among_those_compared() -> None:
    world = contended()
    cycle = next(entry.batch for entry in world.entries if isinstance(entry.batch.events[0], k.CycleTaken))
    before = alternative(world, Overrides(queue_policy="Priority"))
    world.say(*cycle.events)
    after = alternative(world, Overrides(queue_policy="Priority"))
    assert (before.superseded, after.superseded) == (0, 1) and after.compared == before.compared


def test_another_policy_for_every_job_is_compared_without_touching_what_is_folded() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("early", leader=shape(gpus=1))
    world.settle()
    world.job("large", leader=shape(gpus=3), created=1, queue="Priority")
    world.job("small", leader=shape(gpus=2), created=2, queue="Priority")
    world.settle()
    assert alternative(world, Overrides(queue_policy="DRF")).found is None
    found = alternative(world, Overrides(queue_policy="DRF", every_job=True))
    assert found.found is not None and found.found.job in ("default/large", "default/small")


def test_the_recorded_configuration_decides_every_cycle_as_recorded() -> None:
    for world in (contended(), crowded()):
        same = alternative(world, Overrides(queue_policy="Priority", pod_policy="BinPack"))
        assert same.found is None and same.compared > 1


def test_two_tables_of_plan_digests_are_compared_cycle_by_cycle() -> None:
    world = crowded()
    survey = Survey(Span())
    for entry in world.entries:
        survey.feed(entry)
    plans: dict[int, str] = {}
    verification = Verification(State(), survey, plan=plans.__setitem__)
    for entry in world.entries:
        verification.feed(entry)
    assert len(plans) == verification.report.cycles
    assert first_disagreement(plans, plans) is None
    later = sorted(plans)[1:]
    other = {**plans, **dict.fromkeys(later, "another")}
    assert first_disagreement(plans, other) == first_disagreement(other, plans) == later[0]
    assert first_disagreement(plans, {later[1]: plans[later[1]]}) is None
