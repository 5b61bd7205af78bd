"""What a queue's jobs may have at most: its capability and those above it, what others are guaranteed, `maxRunning`."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.messages.shortages import kind_text, quota_text, shortage_text
from arranger.model.job import ScheduleState, Stage
from arranger.model.node import Taint
from arranger.model.queue import QueueSpec, QueueState
from arranger.model.quota import LimitKind, QuotaLack
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, compact
from arranger.projections.state import State
from arranger.scheduling.cycle import Cycles, take_cycle
from arranger.scheduling.queues.limits import QueueRoom
from tests.reasons import lacking_quota
from tests.world import World, shape

GPU = "nvidia.com/gpu"
ONE_GPU = shape(cpu=1, gpus=1)


def world(gpus: int = 32) -> World:
    made = World()
    made.node("n1", cpu=256, gpus=gpus)
    return made


def job(there: World, name: str, of_queue: str, workers: int, **more: Any) -> JobRecord:
    """A job whose workers ask for a GPU each, and whose leader for none."""
    quorum = more.pop("min_workers", workers)
    return there.job(name, of_queue=of_queue, workers=workers, min_workers=quorum, worker=ONE_GPU, **more)


def lack(of: JobRecord) -> QuotaLack | None:
    assert of.waits is not None
    return lacking_quota(of.waits)


def gpus(of: JobRecord) -> int:
    return sum(group != 0 for group, _ in of.placements)


# --- capability ---------------------------------------------------------------------------------------------


def test_a_quorum_beyond_the_capability_holds_nothing_and_says_which_queue_lacks_what() -> None:
    there = world()
    there.queue("research", capability=((GPU, 8),))
    first, second = job(there, "a", "research", 6), job(there, "b", "research", 4, created=1)
    there.cycle()
    assert (gpus(first), gpus(second)) == (6, 0)
    assert second.waits is not None and second.waits.schedule_state == ScheduleState.UNSCHEDULED
    assert lack(second) == QuotaLack("", GPU, 4, 2, 8, "research", LimitKind.CAPABILITY)
    reason = Reason(ReasonKind.CAPABILITY, GPU, needed=4, free=2, queue="research", limit=8)
    assert second.waits.shortage.reasons == ((reason, 1),)
    text = f"0 of 5 required pods fit; queue research has too little {GPU} (needs 4, 2 left of its capability 8)"
    assert shortage_text(second.waits.shortage) == text
    assert kind_text(reason) == f"queue research has too little {GPU}" and reason.about("capability research")
    there.job_gone(first)
    there.wait_for_late_pods()
    there.cycle()
    assert gpus(second) == 4


def test_a_quorum_beyond_the_whole_capability_says_that_it_never_fits() -> None:
    there = world()
    there.queue("research", capability=((GPU, 2),))
    first = job(there, "a", "research", 4)
    there.cycle()
    found = lack(first)
    assert found is not None and found.never and not first.waits.shortage.infeasible  # type: ignore[union-attr]
    assert quota_text(found).endswith("; even an empty queue can't hold it")


def test_further_pods_heed_what_other_jobs_of_the_queue_took_since_the_quorum() -> None:
    there = world()
    there.queue("research", capability=((GPU, 6),))
    first, second = job(there, "a", "research", 6, min_workers=2), job(there, "b", "research", 2, created=1)
    there.cycle()
    assert (gpus(first), gpus(second)) == (4, 2)


def test_further_pods_go_up_to_the_capability() -> None:
    there = world()
    there.queue("research", capability=((GPU, 3),))
    first = job(there, "a", "research", 8, min_workers=1)
    there.cycle()
    assert gpus(first) == 3
    assert lack(first) == QuotaLack("", GPU, 1, 0, 3, "research", LimitKind.CAPABILITY)


def test_the_capability_of_a_queue_counts_those_below_it() -> None:
    there = world()
    there.queue("all", capability=((GPU, 6),))
    there.queue("rl", parent="all")
    there.queue("vision", parent="all", capability=((GPU, 5),))
    first, second = job(there, "a", "rl", 4), job(there, "b", "vision", 4, created=1)
    third = job(there, "c", "all", 1, created=2)
    other = job(there, "d", "default", 4, created=3)
    there.cycle()
    assert [gpus(of) for of in (first, second, third, other)] == [4, 0, 1, 4]
    assert lack(second) == QuotaLack("", GPU, 4, 2, 6, "all", LimitKind.CAPABILITY)


def test_a_capability_of_zero_allows_jobs_that_ask_for_none_of_it() -> None:
    there = world()
    there.queue("rl", capability=((GPU, 0),))
    first, second = job(there, "a", "rl", 1), there.job("b", of_queue="rl")
    there.cycle()
    assert gpus(first) == 0 and len(second.placements) == 1


def test_a_raised_capability_is_news_for_the_cycles() -> None:
    there, cycles = world(), Cycles()
    there.queue("rl", capability=((GPU, 1),))
    first = job(there, "a", "rl", 2)
    there.say(*cycles.take(there.state, there.config, there.now_ms))
    assert cycles.take(there.state, there.config, there.now_ms) == ()
    there.queue("rl", capability=((GPU, 2),))
    there.say(*cycles.take(there.state, there.config, there.now_ms))
    assert gpus(first) == 2


def test_equal_jobs_of_two_queues_are_not_taken_for_each_other() -> None:
    there = world()
    there.queue("rl", capability=((GPU, 1),))
    there.queue("vision", capability=((GPU, 8),))
    of = {name: job(there, f"{name}-{at}", name, 2, created=at) for at, name in enumerate(("rl", "vision"))}
    there.cycle()
    assert gpus(of["rl"]) == 0 and gpus(of["vision"]) == 2


# --- guarantees ---------------------------------------------------------------------------------------------


def test_what_is_guaranteed_to_another_queue_is_not_given() -> None:
    there = world(gpus=8)
    there.queue("robots", guarantee=((GPU, 3),))
    first = job(there, "a", "default", 6)
    there.cycle()
    assert gpus(first) == 0
    assert lack(first) == QuotaLack("", GPU, 6, 5, 8, "", LimitKind.GUARANTEES)
    text = f"the guarantees of other queues leave too little {GPU} (needs 6, 5 left of the 8 that the nodes offer)"
    assert first.waits is not None and shortage_text(first.waits.shortage) == f"0 of 7 required pods fit; {text}"
    second = job(there, "b", "default", 5)
    third = job(there, "c", "robots", 3)
    there.cycle()
    assert (gpus(second), gpus(third)) == (5, 3)


def test_a_guarantee_within_a_capability_is_held_there() -> None:
    there = world(gpus=32)
    there.queue("all", capability=((GPU, 8),))
    there.queue("rl", parent="all", guarantee=((GPU, 3),))
    there.queue("vision", parent="all")
    first = job(there, "a", "vision", 6)
    there.cycle()
    assert lack(first) == QuotaLack("", GPU, 6, 5, 8, "all", LimitKind.GUARANTEES)
    assert quota_text(lack(first)).endswith("left of the capability 8 of queue all)")  # type: ignore[arg-type]
    second = job(there, "b", "vision", 5)
    there.cycle()
    assert gpus(second) == 5


def test_a_guarantee_is_kept_where_nodes_have_gone() -> None:
    """What lies within a guarantee is held already, so the guarantees of others don't keep it."""
    there = world(gpus=4)
    there.queue("rl", guarantee=((GPU, 3),))
    there.queue("vision", guarantee=((GPU, 3),))
    first, second = job(there, "a", "rl", 3), job(there, "b", "default", 1)
    there.cycle()
    assert (gpus(first), gpus(second)) == (3, 0)


@pytest.mark.parametrize("below", ["", "all"])
def test_a_guarantee_is_kept_where_another_queue_uses_more_than_its_lowered_capability(below: str) -> None:
    there = world(gpus=32)
    there.queue("all")
    there.queue("vision", parent=below, capability=((GPU, 24),))
    there.queue("rl", guarantee=((GPU, 8),))
    first, second = job(there, "a", "vision", 24), job(there, "b", "default", 8, created=1)
    for most in (24, 16):
        there.queue("vision", parent=below, capability=((GPU, most),))
        there.cycle()
        assert (gpus(first), gpus(second)) == (24, 0)
        assert lack(second) == QuotaLack("", GPU, 8, 0, 32, "", LimitKind.GUARANTEES)
    third = job(there, "c", "rl", 8, created=2)
    there.cycle()
    assert (gpus(second), gpus(third)) == (0, 8)


@pytest.mark.parametrize("of_queue", ["rl", "default"])
def test_a_guarantee_that_is_used_up_keeps_nothing_from_anybody(of_queue: str) -> None:
    """The room is taken, not kept: a job of the queue itself and one of another queue lack nodes."""
    there = world(gpus=8)
    there.queue("rl", guarantee=((GPU, 3),))
    job(there, "first", "rl", 4)
    there.cycle()
    second = job(there, "second", of_queue, 5, created=1)
    there.cycle()
    assert lack(second) is None and second.waits is not None
    [(reason, nodes)] = second.waits.shortage.reasons
    assert (reason.kind, reason.name, nodes) == (ReasonKind.INSUFFICIENT, GPU, 1)
    assert (second.waits.shortage.found, second.waits.shortage.asked) == (5, 6)  # the leader and the four that fit


def test_the_guarantee_of_a_jobs_own_queue_keeps_nothing_from_it() -> None:
    there = world(gpus=8)
    there.queue("rl", guarantee=((GPU, 6),))
    job(there, "first", "default", 2)
    there.cycle()
    second = job(there, "second", "rl", 7, created=1)
    there.cycle()
    assert lack(second) is None


def test_room_that_would_not_be_enough_without_guarantees_lacks_on_nodes() -> None:
    """One GPU is kept idle, but with it the job wouldn't fit, either."""
    there = world(gpus=8)
    there.queue("rl", guarantee=((GPU, 1),))
    job(there, "first", "default", 4)
    there.cycle()
    second, third = job(there, "second", "default", 5, created=1), job(there, "third", "default", 4, created=2)
    there.cycle()
    assert lack(second) is None
    assert lack(third) == QuotaLack("", GPU, 4, 3, 8, "", LimitKind.GUARANTEES)


def test_room_that_no_node_has_in_one_piece_lacks_on_nodes_whatever_is_guaranteed() -> None:
    """Six GPUs are free, three of them on each node: without guarantees, a pod of five wouldn't fit, either."""
    there = world(gpus=8)
    there.node("n2", cpu=256, gpus=8)
    there.queue("rl", guarantee=((GPU, 4),))
    large = shape(cpu=1, gpus=5)
    for name in ("first", "second"):
        there.job(name, of_queue="default", worker=large, workers=1, min_workers=1)
    there.cycle()
    third = there.job("third", of_queue="default", worker=large, workers=1, min_workers=1)
    there.cycle()
    assert lack(third) is None and third.waits is not None
    [(reason, nodes)] = third.waits.shortage.reasons
    assert (reason.kind, reason.name, nodes) == (ReasonKind.INSUFFICIENT, GPU, 2)


def test_room_on_a_closed_node_lacks_on_nodes_whatever_is_guaranteed() -> None:
    """Its amounts are offered, because there may be jobs that tolerate its taint."""
    there = world(gpus=4)
    there.node("n2", cpu=256, gpus=8, taints=(Taint("kept", "", "NoSchedule"),))
    there.queue("rl", guarantee=((GPU, 6),))
    job(there, "first", "default", 3)
    there.cycle()
    second = job(there, "second", "default", 4, created=1)
    there.cycle()
    assert lack(second) is None


def test_a_guarantee_within_a_capability_is_no_reason_where_nodes_lack() -> None:
    there = world(gpus=4)
    there.queue("all", capability=((GPU, 4),))
    there.queue("rl", parent="all", guarantee=((GPU, 2),))
    there.queue("other", parent="all")
    job(there, "first", "default", 2)
    there.cycle()
    second = job(there, "second", "other", 3, created=1)
    there.cycle()
    assert lack(second) is None


@pytest.mark.parametrize("closed", ["rl", "all"])
def test_nothing_is_kept_for_a_closed_queue(closed: str) -> None:
    there = world(gpus=8)
    state = {closed: {"state": QueueState.CLOSED}}
    there.queue("all", **state.get("all", {}))
    there.queue("rl", parent="all", guarantee=((GPU, 6),), **state.get("rl", {}))
    first = job(there, "first", "default", 8)
    there.cycle()
    assert gpus(first) == 8


def test_what_no_nodes_can_hold_says_what_they_lack_whatever_is_guaranteed() -> None:
    there = world(gpus=8)
    there.queue("rl", guarantee=((GPU, 3),))
    nowhere = shape(cpu=1, gpus=6, selector={"gpu": "none"})
    first = there.job("a", of_queue="default", worker=nowhere, workers=1, min_workers=1)
    there.cycle()
    assert lack(first) is None and first.waits is not None and first.waits.shortage.infeasible
    assert [reason.kind for reason, _ in first.waits.shortage.reasons] == [ReasonKind.NODE_SELECTOR]


def test_further_pods_lack_nodes_where_nothing_is_kept() -> None:
    there = world(gpus=8)
    there.queue("rl", guarantee=((GPU, 3),))
    job(there, "first", "rl", 3)
    there.cycle()
    second = job(there, "second", "default", 7, min_workers=2, created=1)
    there.cycle()
    assert gpus(second) == 5 and lack(second) is None and second.waits is not None and second.waits.shortage.further


def test_a_quorum_that_no_nodes_can_hold_is_infeasible_whatever_is_guaranteed() -> None:
    there = world(gpus=4)
    there.queue("rl", guarantee=((GPU, 3),))
    first = job(there, "a", "default", 5)
    there.cycle()
    assert first.waits is not None and first.waits.shortage.infeasible
    assert shortage_text(first.waits.shortage).startswith("even an empty cluster of these nodes can't hold it: 5 of 6 ")


# --- maxRunning ---------------------------------------------------------------------------------------------


def test_more_jobs_than_max_running_wait() -> None:
    there = world()
    there.queue("all", max_running=2)
    there.queue("rl", parent="all", max_running=1)
    jobs = [job(there, f"{of}-{at}", of, 1, created=at) for at, of in enumerate(("rl", "rl", "all"))]
    late = job(there, "d", "all", 1, created=9)
    there.cycle()
    assert [gpus(of) for of in (*jobs, late)] == [1, 0, 1, 0]
    assert lack(jobs[1]) == QuotaLack("", "", 1, 0, 1, "rl", LimitKind.MAX_RUNNING)
    assert lack(late) == QuotaLack("", "", 1, 0, 2, "all", LimitKind.MAX_RUNNING)
    assert late.waits is not None
    text = "0 of 2 required pods fit; queue all has as many jobs with nodes as its maxRunning (2)"
    assert shortage_text(late.waits.shortage) == text


def test_max_running_does_not_limit_further_pods() -> None:
    there = world(gpus=2)
    there.queue("rl", max_running=1)
    first = job(there, "a", "rl", 4, min_workers=1)
    there.cycle()
    assert gpus(first) == 2
    there.node("n1", cpu=256, gpus=4)
    there.cycle()
    assert gpus(first) == 4


def test_a_job_that_has_no_nodes_any_more_leaves_its_place_to_others() -> None:
    """One of its workers has finished, which is its quorum, and the other fits nowhere."""
    there = world(gpus=2)
    there.queue("rl", max_running=1)
    sets = [("done", 1, shape(gpus=1)), ("never", 1, shape(gpus=1, selector={"zone": "none"}))]
    first = there.job("a", workers=sets, min_workers=1, of_queue="rl", equals=True, created=1)
    there.settle()
    there.run_pod(first, (1, 0), "n0", phase="Succeeded")
    assert (first.stage, first.placements) == (Stage.RUNNING, {})
    second = job(there, "b", "rl", 1, created=2)
    third = job(there, "c", "rl", 1, created=3)
    there.cycle()
    assert [gpus(of) for of in (second, third)] == [1, 0]


def test_a_job_that_has_no_nodes_any_more_waits_for_a_place() -> None:
    there = world(gpus=2)
    there.queue("rl", max_running=1)
    sets = [("done", 1, shape(gpus=1)), ("next", 1, shape(gpus=1, selector={"zone": "a"}))]
    first = there.job("a", workers=sets, min_workers=1, of_queue="rl", equals=True, created=1)
    there.settle()
    there.run_pod(first, (1, 0), "n0", phase="Succeeded")
    second = job(there, "b", "rl", 1, created=2)
    there.cycle()
    there.node("n1", cpu=8, gpus=8, labels={"zone": "a"})
    third = job(there, "c", "rl", 1, created=3)
    there.cycle()
    assert [gpus(of) for of in (first, second, third)] == [0, 1, 0]
    validate(there.state)


# --- for any tree -------------------------------------------------------------------------------------------

_amount = st.integers(0, 12)


@st.composite
def trees(draw: st.DrawFn) -> World:
    """Queues with capabilities and guarantees, and jobs of them and of none. Nothing is kept for jobs in front."""
    there = world(gpus=draw(st.integers(1, 16)))
    there.config = msgspec.structs.replace(there.config, reservations=0)
    names = ["default", "a", "b", "c", "d"]
    for at, name in enumerate(names[1:], start=1):
        parent = draw(st.sampled_from(["", *names[1:at]]))
        most = draw(st.none() | _amount)
        promised = draw(st.integers(0, 4 if most is None else min(most, 4)))
        there.queue(
            name,
            parent=parent,
            capability=((GPU, most),) if most is not None else (),
            guarantee=((GPU, promised),) if promised else (),
            max_running=draw(st.none() | st.none() | st.integers(0, 3)),
        )
    for at in range(draw(st.integers(1, 9))):
        workers = draw(st.integers(1, 5))
        job(
            there,
            f"j{at}",
            draw(st.sampled_from(names)),
            workers,
            min_workers=draw(st.integers(1, workers)),
            created=at,
        )
    return there


def held(state: State, name: str = "") -> int:
    """How many GPUs a queue and those below it hold, used or only guaranteed; without a name, all queues."""
    tree, spec = state.queue_tree, state.queue_tree.specs.get(name, QueueSpec())
    inside = state.queue_use.own.get(name, {}).get(GPU, 0) + sum(held(state, of) for of in tree.children.get(name, ()))
    used = state.queue_totals.get(name, {}).get(GPU, 0)
    return max(used, min(max(inside, dict(spec.guarantee).get(GPU, 0)), dict(spec.capability).get(GPU, 1 << 40)))


def lower_capability(there: World, data: st.DataObject) -> None:
    """Users lower the capability of a queue, perhaps below what it uses. Its guarantee stays as they state it, not as
    the tree cuts it: a lower one would give others more."""
    name = data.draw(st.sampled_from(sorted(there.state.queue_tree.specs)))
    seen = there.state.queues.get(name)
    spec = (seen.spec if seen is not None else None) or QueueSpec()
    least = dict(spec.guarantee).get(GPU, 0)
    most = data.draw(st.integers(least, max(dict(spec.capability).get(GPU, 12), least)))
    there.queue(
        name,
        parent=spec.parent,
        capability=((GPU, most),),
        guarantee=spec.guarantee,
        max_running=spec.max_running,
    )


@settings(max_examples=60, deadline=None)
@given(trees(), st.data())
def test_no_queue_is_ever_above_its_capability_and_nothing_that_may_be_placed_waits(there: World, data: Any) -> None:
    most = max(held(there.state), int(there.state.nodes.allocatable[:, there.state.nodes.columns[GPU]].sum()))
    for round_ in range(3):
        if round_ == 1:
            lower_capability(there, data)
        before = {name: dict(of) for name, of in there.state.queue_totals.items()}
        there.cycle()
        assert held(there.state) <= most
        rejected = [verdict for verdict in there.verdicts if not verdict.accepted]
        assert not rejected
        state = there.state
        for name, spec in state.queue_tree.specs.items():
            used = state.queue_totals.get(name, {})
            for resource, limit in spec.capability:
                assert used.get(resource, 0) <= max(limit, before.get(name, {}).get(resource, 0))
            assert spec.max_running is None or used.get("", 0) <= spec.max_running
        free = there.state.nodes.allocatable.sum(axis=0) - there.state.nodes.used.sum(axis=0)
        room = QueueRoom(state, state.time_ms)
        for of in state.jobs.values():
            name = of.valid_spec.queue
            left = min([int(free[state.nodes.columns[GPU]]), *(limit.left for limit in room.limits(name, GPU))])
            if not of.placements:
                assert of.valid_spec.min_workers > left or room.full(name) is not None
            elif of.pods_desired() > len(of.placements):
                assert left <= 0
        again = take_cycle(state, there.config, there.now_ms)
        assert not any(isinstance(event, k.Placed) for event in again)
        ending = data.draw(st.sampled_from(sorted(state.jobs)))
        there.say(
            k.ObjectGone(k.Watched.JOB, there.terms[k.Watched.JOB], "default", state.jobs[ending].seen.name, ending)
        )
        if not there.state.jobs:
            return


@pytest.mark.parametrize("most", [2, 3])
def test_every_way_to_place_a_quorum_heeds_the_capability(most: int) -> None:
    """The complete search chooses among several worker sets, of which only one has pods that the queue has room for."""
    there = world()
    there.queue("rl", capability=((GPU, most),))
    sets = [("large", 4, shape(cpu=1, gpus=2)), ("small", 4, shape(cpu=1, gpus=1))]
    of = there.job("a", of_queue="rl", workers=sets, min_workers=most)
    there.cycle()
    assert sorted(group for group, _ in of.placements) == [0, *[2] * most]


# --- verdicts -----------------------------------------------------------------------------------------------


def decided(there: World, *jobs: JobRecord) -> list[str]:
    """Place all pods of jobs in a cycle that doesn't know of queues' limits; returns the reasons of the refusals."""
    pods = [
        compact({(g, i): "n1" for g, of in enumerate(job.valid_spec.groups) for i in range(of.count)}) for job in jobs
    ]
    placed = [
        k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, of)
        for job, of in zip(jobs, pods, strict=True)
    ]
    there.say(k.CycleTaken(there.state.offset, there.now_ms, there.config), *placed)
    return [verdict.reason for verdict in there.verdicts[-len(jobs) :]]


def test_a_placement_beyond_the_capability_is_rejected_at_its_own_offset() -> None:
    there = world()
    there.queue("all", capability=((GPU, 5),))
    there.queue("rl", parent="all")
    first, second, third = job(there, "a", "rl", 4), job(there, "b", "rl", 2), job(there, "c", "all", 1)
    assert decided(there, first, second, third) == ["", f"queue all has too little {GPU}: 4 + 2 of 5", ""]
    assert (gpus(first), gpus(second), gpus(third)) == (4, 0, 1)
    assert second.stage == Stage.PENDING


def test_a_placement_of_more_jobs_than_max_running_is_rejected() -> None:
    there = world()
    there.queue("rl", max_running=1)
    first, second = job(there, "a", "rl", 1), job(there, "b", "rl", 1)
    assert decided(there, first, second) == ["", "queue rl has 1 jobs with nodes, and maxRunning 1"]


@pytest.mark.parametrize("limit", [{"capability": (("cpu", 1000),)}, {"max_running": 1}])
def test_a_queue_counts_no_job_whose_pods_show_its_success(limit: dict[str, Any]) -> None:
    """Else jobs of other queues would take its room before those of its own, which wait for the decision."""
    there = World()
    there.node("n1", cpu=1)
    there.queue("rl", **limit)
    there.queue("other")
    first = there.job("first", of_queue="rl")
    there.settle()
    second, third = there.job("second", of_queue="rl", priority=9), there.job("third", of_queue="other", priority=3)
    there.cycle()
    there.change_pod(first.bound[0, 0], phase="Succeeded", ready=False)
    assert first.stage == Stage.RUNNING and not there.state.queue_use.own.get("rl")
    validate(there.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(there.state))) == snapshot.digest(there.state)
    there.cycle()
    assert second.placements and not third.placements
    there.settle()
    assert (first.stage, second.stage) == (Stage.SUCCEEDED, Stage.RUNNING)
    validate(there.state)


def test_further_pods_that_no_node_has_room_for_dont_wait_for_guarantees() -> None:
    there = World()
    there.node("n0", cpu=16, gpus=4)
    there.queue("kept", guarantee=(("nvidia.com/gpu", 2),))
    there.queue("other")
    there.job("own", leader=shape(gpus=2), of_queue="kept")
    grows = there.job("grows", leader=shape(cpu=1), workers=3, worker=shape(gpus=1), min_workers=1, of_queue="other")
    there.settle()
    assert len(grows.placements) == 3 and grows.waits is not None
    assert isinstance(grows.waits.shortage, LackOfNodes)
