"""`nonPreemptible: WithinDeserved` of a queue: jobs that can't be preempted use at most what the queue deserves."""

from typing import Any

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.messages.shortages import quota_text, shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState
from arranger.model.queue import NonPreemptible, Preemption, QueueSpec
from arranger.model.quota import LimitKind, QuotaLack
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord, compact
from arranger.scheduling import NoRoomKind, queues_view, why_no_room
from arranger.scheduling.cycle import VERSIONS, Cycles
from arranger.scheduling.queues.demand import beyond_limits
from arranger.scheduling.queues.standing import QueueStanding
from tests.reasons import lacking_quota
from tests.unit.test_queue_limits import GPU, ONE_GPU, world
from tests.unit.test_queue_limits import job as any_job
from tests.world import World

PREEMPTING = CycleConfig(versions=VERSIONS, preemption=Preemption(), room_bound_ms=60_000)
WITHIN = NonPreemptible.WITHIN_DESERVED


def job(there: World, name: str, of_queue: str, workers: int, **more: Any) -> JobRecord:
    """A job whose workers ask for a GPU each, and whose leader for none; it can't be preempted."""
    return any_job(there, name, of_queue, workers, **{"preemptible": False} | more)


def gpus(of: JobRecord) -> int:
    return sum(group != 0 for group, _ in of.placements)


def lack(of: JobRecord) -> QuotaLack | None:
    assert of.waits is not None
    return lacking_quota(of.waits)


def deserving(amount: int, **more: Any) -> dict[str, Any]:
    return {"deserved": ((GPU, amount),), "non_preemptible": WITHIN} | more


# --- what is placed -----------------------------------------------------------------------------------------


def test_jobs_that_cannot_be_preempted_get_what_the_queue_deserves_and_others_what_is_free() -> None:
    there = world()
    there.queue("research", **deserving(8))
    first, second = job(there, "a", "research", 6), job(there, "b", "research", 4, created=1)
    other = job(there, "c", "research", 20, created=2, preemptible=True)
    there.cycle()
    assert [gpus(of) for of in (first, second, other)] == [6, 0, 20]
    assert lack(second) == QuotaLack("", GPU, 4, 2, 8, "research", LimitKind.NON_PREEMPTIBLE)
    reason = Reason(ReasonKind.NON_PREEMPTIBLE, GPU, needed=4, free=2, queue="research", limit=8)
    assert second.waits is not None and second.waits.shortage.reasons == ((reason, 1),)
    text = (
        f"0 of 5 required pods fit; queue research has too little {GPU} for jobs that can't be preempted (needs 4, 2 "
        "left of its deserved 8: its nonPreemptible is WithinDeserved)"
    )
    assert shortage_text(second.waits.shortage) == text
    there.job_gone(first)
    there.wait_for_late_pods()
    there.cycle()
    assert gpus(second) == 4
    validate(there.state)


def test_without_the_option_they_borrow() -> None:
    there = world()
    there.queue("research", deserved=((GPU, 8),))
    first = job(there, "a", "research", 20)
    there.cycle()
    assert gpus(first) == 20 and not there.state.queue_use.non_preemptible


def test_resources_that_the_queue_does_not_deserve_are_not_limited() -> None:
    there = world()
    there.queue("research", deserved=(("memory", 1 << 40),), non_preemptible=WITHIN)
    first = job(there, "a", "research", 20)
    there.cycle()
    assert gpus(first) == 20


def test_a_quorum_beyond_all_that_the_queue_deserves_never_fits() -> None:
    there = world()
    there.queue("research", **deserving(2))
    first = job(there, "a", "research", 4)
    there.cycle()
    found = lack(first)
    assert found is not None and found.never and quota_text(found).endswith("; even an empty queue can't hold it")


def test_further_pods_go_up_to_what_the_queue_deserves() -> None:
    there = world()
    there.queue("research", **deserving(3))
    first = job(there, "a", "research", 8, min_workers=1)
    there.cycle()
    assert gpus(first) == 3 and first.schedule_state == ScheduleState.PARTLY
    assert lack(first) == QuotaLack("", GPU, 1, 0, 3, "research", LimitKind.NON_PREEMPTIBLE)


def test_the_limit_of_a_queue_counts_the_jobs_of_those_below_it() -> None:
    there = world()
    there.queue("all", **deserving(6))
    there.queue("rl", parent="all")
    there.queue("vision", parent="all", **deserving(5))
    first, second = job(there, "a", "rl", 4), job(there, "b", "vision", 4, created=1)
    third, other = job(there, "c", "all", 1, created=2), job(there, "d", "default", 4, created=3)
    borrowing = job(there, "e", "vision", 9, created=4, preemptible=True)
    there.cycle()
    assert [gpus(of) for of in (first, second, third, other, borrowing)] == [4, 0, 1, 4, 9]
    assert lack(second) == QuotaLack("", GPU, 4, 2, 6, "all", LimitKind.NON_PREEMPTIBLE)


def test_equal_jobs_of_which_one_can_be_preempted_are_not_taken_for_each_other() -> None:
    there = world()
    there.queue("research", **deserving(2))
    jobs = [
        job(there, f"j{number}", "research", 2, created=number, preemptible=bool(number % 2)) for number in range(6)
    ]
    there.cycle()
    assert [gpus(of) for of in jobs] == [2, 2, 0, 2, 0, 2]


def test_the_cycles_of_a_process_notice_the_option_as_soon_as_it_changes() -> None:
    there, cycles = world(), Cycles()
    there.queue("research", **deserving(4))
    first = job(there, "a", "research", 6)
    there.say(*cycles.take(there.state, there.config, there.now_ms))
    assert cycles.take(there.state, there.config, there.now_ms) == () and gpus(first) == 0
    there.queue("research", **deserving(4) | {"non_preemptible": NonPreemptible.MAY_BORROW})
    there.say(*cycles.take(there.state, there.config, there.now_ms))
    assert gpus(first) == 6


# --- edits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", ["option", "deserved", "preemptible"])
def test_what_has_nodes_keeps_them_after_an_edit_and_only_new_room_is_refused(edit: str) -> None:
    there = world()
    before = {"option": QueueSpec(deserved=((GPU, 4),)), "deserved": QueueSpec(**deserving(9))}
    there.queue("research", before.get(edit, QueueSpec(**deserving(4))))
    first = job(there, "a", "research", 6, preemptible=edit == "preemptible")
    there.cycle()
    assert gpus(first) == 6
    if edit == "preemptible":
        job(there, "a", "research", 6, preemptible=False, generation=2)
    else:
        there.queue("research", **deserving(4))
    second = job(there, "b", "research", 1, created=1)
    may_borrow = job(there, "c", "research", 3, created=2, preemptible=True)
    there.cycle()
    assert [gpus(of) for of in (first, second, may_borrow)] == [6, 0, 3]
    assert lack(second) == QuotaLack("", GPU, 1, -2, 4, "research", LimitKind.NON_PREEMPTIBLE)
    validate(there.state)
    job(there, "a", "research", 6, preemptible=True, generation=3)
    there.cycle()
    assert gpus(second) == 1
    validate(there.state)


def test_what_is_counted_is_that_of_the_jobs_also_after_a_restore_and_a_queue_that_goes() -> None:
    there = world()
    there.queue("research", **deserving(8))
    there.queue("vision", **deserving(8))
    job(there, "a", "research", 6)
    job(there, "b", "vision", 6, preemptible=True)
    there.cycle()
    assert there.state.queue_use.non_preemptible == {"research": {f"!{GPU}": 6, "!cpu": 7000}}
    restored = snapshot.restore(snapshot.encode(there.state))
    assert restored.queue_use.non_preemptible == there.state.queue_use.non_preemptible
    there.queue_gone("research")
    validate(there.state)
    there.queue("vision")
    assert there.state.queue_use.non_preemptible is None
    validate(there.state)
    there.queue("research", **deserving(8))
    validate(there.state)
    assert there.state.queue_use.non_preemptible


def test_no_table_shows_what_is_counted_once_more() -> None:
    there = world()
    there.queue("research", **deserving(8))
    job(there, "a", "research", 6)
    there.cycle()
    view = queues_view(there.state).queues["research"]
    assert dict(view.used) == dict(view.demand) == {"cpu": 7000, GPU: 6}


# --- room of others -----------------------------------------------------------------------------------------


def crowded() -> World:
    """8 GPUs, all of which vision uses: twice what it deserves."""
    there = World(config=PREEMPTING)
    there.node("n1", cpu=256, gpus=8)
    there.queue("research", **deserving(4))
    there.queue("vision", deserved=((GPU, 4),))
    for number in range(4):
        job(there, f"v{number}", "vision", 2, preemptible=True)
    there.settle()
    there.pass_time(10)
    return there


def test_a_job_within_what_its_queue_deserves_takes_room() -> None:
    there = crowded()
    taker = job(there, "t", "research", 4)
    assert [len(event.victims) for event in there.cycle() if isinstance(event, k.Preempted)] == [2]
    assert gpus(taker) == 4
    validate(there.state)


def test_a_job_beyond_it_takes_no_room_in_vain_and_says_why() -> None:
    there = crowded()
    first = job(there, "t", "research", 3)
    there.settle()
    second = job(there, "u", "research", 2, priority=9)
    assert not any(isinstance(event, k.Preempted) for event in there.cycle())
    assert gpus(first) == 3 and gpus(second) == 0
    lacks = lack(second)
    assert lacks == QuotaLack("", GPU, 2, 1, 4, "research", LimitKind.NON_PREEMPTIBLE)
    [why] = why_no_room(there.state, second, there.config, there.now_ms, lacks=lacks, infeasible=False)
    assert why.kind == NoRoomKind.QUOTA


# --- the verdict --------------------------------------------------------------------------------------------


def test_a_placement_beyond_the_limit_is_refused_when_it_is_read() -> None:
    there = world()
    there.queue("research", **deserving(4))
    first = job(there, "a", "research", 6)
    slots = {(0, 0): "n1"} | {(1, index): "n1" for index in range(6)}
    placed = k.Placed(first.uid, first.version, first.attempt, ScheduleState.SUCCEED, compact(slots))
    taken = k.CycleTaken(there.state.offset, there.now_ms, there.config)
    there.say(taken, placed)
    assert not first.placements and "can't be preempted: 0 + 6 of 4" in there.verdict("Placed").reason
    there.queue("research", **deserving(6))
    there.say(msgspec.structs.replace(taken, base=there.state.offset), placed)
    assert gpus(first) == 6


# --- who can't start demands nothing ------------------------------------------------------------------------


def test_jobs_beyond_what_is_left_of_the_limit_demand_nothing_the_most_junior_ones_first() -> None:
    there = world()
    there.queue("research", **deserving(8))
    job(there, "a", "research", 6)
    there.cycle()
    large = job(there, "large", "research", 3, created=1)
    small, next_one = job(there, "small", "research", 2, created=2), job(there, "next", "research", 1, created=3)
    borrowing = job(there, "borrowing", "research", 30, created=4, preemptible=True)
    beyond = beyond_limits(there.state, [large, small, next_one, borrowing])
    assert list(beyond) == [large.uid, next_one.uid]


def test_a_job_that_needs_nothing_of_a_resource_that_is_used_up_demands_the_others() -> None:
    there = world()
    there.queue("research", QueueSpec(deserved=((GPU, 8),)))
    job(there, "a", "research", 6)
    there.cycle()
    there.queue("research", **deserving(4))
    without = there.job("b", of_queue="research", workers=2, worker=ONE_GPU, preemptible=False)
    assert not beyond_limits(there.state, [without])


def test_further_pods_beyond_the_limit_demand_nothing() -> None:
    """Else they would lift the share of their queue, and lower those of others."""
    there = world(gpus=16)
    there.queue("research", **deserving(4))
    there.queue("vision", deserved=((GPU, 4),))
    elastic = job(there, "a", "research", 16, min_workers=1)
    job(there, "b", "vision", 12, preemptible=True)
    there.cycle()
    assert gpus(elastic) == 4
    fresh = job(there, "c", "research", 16, min_workers=1, created=1)
    standing = QueueStanding(there.state, [elastic, fresh], there.now_ms)
    assert (standing.shares["research"][GPU], standing.shares["vision"][GPU]) == (4, 12)
