"""The order of a cycle with Queues: the queue that is furthest below its share is next, inside by its own rules."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from arranger.events import kinds as k
from arranger.messages.shortages import shortage_text
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling import in_order, queues_view, turn_of
from arranger.scheduling.queues.standing import QueueStanding
from arranger.scheduling.queues.waiting import waiting_jobs
from tests.reasons import lacking_quota
from tests.unit.test_preemption import CONFIG as PREEMPTION
from tests.unit.test_queue_merge import Draw, drawn, world_of
from tests.world import World, shape

GPU = "nvidia.com/gpu"


def world(gpus: int = 8) -> World:
    made = World()
    made.node("n1", cpu=256, gpus=gpus)
    return made


def job(there: World, name: str, of_queue: str = "", *, gpus: int = 1, created: int = 0, **more: Any) -> JobRecord:
    """A job of one pod with so many GPUs and no CPU."""
    return there.job(name, of_queue=of_queue, leader=shape(gpus=gpus), created=created, **more)


def placed(there: World) -> list[str]:
    return sorted(job.seen.name for job in there.state.jobs.values() if job.placements)


def order(there: World) -> list[str]:
    return [job.seen.name for job in in_order(there.state, there.config)]


def test_queues_take_turns_by_their_shares_although_one_has_older_jobs() -> None:
    there = world(gpus=6)
    there.queue("a", weight=2)
    there.queue("b")
    for at in range(6):
        job(there, f"a{at}", "a", created=at)
        job(there, f"b{at}", "b", created=100 + at, priority=9)
    there.cycle()
    assert placed(there) == ["a0", "a1", "a2", "a3", "b0", "b1"]


def test_a_queue_above_its_share_comes_last() -> None:
    there = world(gpus=4)
    job(there, "first", "a", gpus=3)
    there.queue("a")
    there.queue("b")
    there.cycle()
    job(there, "older", "a", created=1)
    job(there, "newer", "b", created=2)
    there.cycle()
    assert placed(there) == ["first", "newer"]


def one_of_each(there: World, name: str, of_queue: str, created: int) -> JobRecord:
    return there.job(name, of_queue=of_queue, leader=shape(cpu=1, gpus=1), created=created)


def test_a_queue_that_is_entitled_to_no_gpu_comes_after_one_within_its_share() -> None:
    """It uses no GPU and nothing of its share of CPU, so its ratio was 0: it took a GPU that another deserves, and gave
    it back at once."""
    there = world(gpus=4)
    there.queue("borrows")
    there.queue("deserves", deserved=((GPU, 4),))
    for at in range(2):
        one_of_each(there, f"first{at}", "deserves", created=at)
    there.cycle()
    for at in range(3):
        one_of_each(there, f"guest{at}", "borrows", created=10 + at)
    for at in range(2):
        one_of_each(there, f"then{at}", "deserves", created=20 + at)
    assert order(there)[:2] == ["then0", "then1"]
    there.cycle()
    assert placed(there) == ["first0", "first1", "then0", "then1"]


def test_a_queue_whose_share_is_less_than_a_unit_is_not_last() -> None:
    """Of three equal queues and two GPUs, the last one by name has no unit. The first job goes first (decision 57)."""
    there = world(gpus=2)
    for at, name in enumerate(("c", "b", "a")):
        there.queue(name)
        one_of_each(there, f"of-{name}", name, created=at)
    assert order(there) == ["of-c", "of-b", "of-a"]


def test_jobs_that_can_never_run_do_not_hold_back_the_others_of_their_queue() -> None:
    """A queue with a capability of 0 is entitled to no GPU, whoever requests one."""
    there = world(gpus=4)
    there.queue("a", capability=((GPU, 0),))
    there.queue("b")
    one_of_each(there, "never", "a", created=9)
    there.job("older", of_queue="a", leader=shape(cpu=1), created=1)
    there.job("newer", of_queue="b", leader=shape(cpu=1), created=2)
    assert order(there)[0] == "older"


def test_further_pods_of_one_queue_do_not_take_the_share_of_another() -> None:
    there = world(gpus=64)
    for name in ("a", "b"):
        there.queue(name)
        there.job(name, of_queue=name, leader=shape(cpu=1), workers=60, worker=shape(gpus=1), min_workers=1)
    there.cycle()
    found = [len(job.placements) - 1 for job in there.state.jobs.values()]
    assert sum(found) == 64 and abs(found[0] - found[1]) <= 2 * (61 // 16)


def test_a_job_that_does_not_fit_blocks_neither_its_queue_nor_another() -> None:
    there = world(gpus=4)
    there.queue("a", weight=9)
    there.queue("b")
    job(there, "large", "a", gpus=5)
    job(there, "small", "a", created=1)
    job(there, "other", "b", created=2)
    there.cycle()
    assert placed(there) == ["other", "small"]


def test_without_queues_the_order_is_that_of_all_jobs_whatever_they_name() -> None:
    there = world()
    job(there, "b", created=1)
    job(there, "a", created=2)
    job(there, "c", created=3, priority=9)
    assert order(there) == ["c", "b", "a"]


def test_the_order_in_a_queue_is_that_of_its_policy() -> None:
    there = world()
    for of in ("", "rl"):
        job(there, f"large{of}", of, gpus=4, created=1)
        job(there, f"small{of}", of, gpus=1, created=2, queue="Priority")
    there.queue("rl", queue_policy="DRF")
    found = order(there)
    assert [name for name in found if name.endswith("rl")] == ["smallrl", "largerl"]
    assert [name for name in found if not name.endswith("rl")] == ["large", "small"]


@pytest.mark.parametrize("children", [False, True])
def test_submitters_take_turns_before_the_policy(children: bool) -> None:
    there = world(gpus=4)
    there.queue("rl", user_fairness=True)
    if children:
        there.queue("below", parent="rl")
    for at in range(4):
        job(there, f"ann{at}", "rl", user="ann", created=at, priority=9)
        job(there, f"ben{at}", "rl", user="ben", created=100 + at)
    there.cycle()
    assert placed(there) == ["ann0", "ann1", "ben0", "ben1"]
    there.node("n1", cpu=256, gpus=6)
    there.job_gone(there.state.jobs["uid-ben0"])
    there.wait_for_late_pods()
    there.cycle()
    assert placed(there) == ["ann0", "ann1", "ann2", "ben1", "ben2", "ben3"]


def test_submitters_of_one_queue_do_not_weigh_on_another() -> None:
    there = world(gpus=6)
    there.queue("rl", user_fairness=True)
    there.queue("vision")
    for at in range(6):
        job(there, f"rl{at}", "rl", user=f"user{at}", created=at)
        job(there, f"vision{at}", "vision", created=100 + at)
    there.cycle()
    assert sum(name.startswith("rl") for name in placed(there)) == 3


def test_the_priority_counts_up_to_the_queues_max_priority() -> None:
    there = world(gpus=1)
    there.queue("rl", max_priority=5)
    job(there, "boastful", "rl", priority=100, created=2)
    job(there, "older", "rl", priority=5, created=1)
    assert order(there) == ["older", "boastful"]
    assert [job.valid_spec.priority for job in waiting_jobs(there.state, there.now_ms)] == [5, 5]
    assert there.state.jobs["uid-boastful"].valid_spec.priority == 100


def test_jobs_over_max_waiting_are_told_and_considered_when_there_is_room() -> None:
    there = world(gpus=4)
    there.queue("rl", max_waiting=1)
    job(there, "other", "default")
    there.cycle()
    stuck = job(there, "stuck", "rl", gpus=4, priority=9)
    later = job(there, "later", "rl")
    there.cycle()
    assert placed(there) == ["other"]
    assert later.waits is not None and stuck.waits is not None
    text = "0 of 1 required pods fit; queue rl has as many earlier waiting jobs as its maxWaiting (1)"
    assert shortage_text(later.waits.shortage) == text
    assert order(there) == ["stuck", "later"]
    tried = turn_of(there.state, later.uid, there.config, there.now_ms)
    assert tried is not None and tried.shortage is not None and tried.shortage.quota is not None
    there.job_gone(stuck)
    there.cycle()
    assert placed(there) == ["later", "other"]


@pytest.mark.parametrize("limits", [{}, {"capability": (("nvidia.com/gpu", 4),)}])
def test_a_job_that_nothing_could_hold_keeps_no_others_out_of_max_waiting(limits: dict[str, Any]) -> None:
    there = world(gpus=16 if limits else 4)
    there.queue("rl", max_waiting=1, **limits)
    stuck = job(there, "stuck", "rl", gpus=9, priority=9)
    job(there, "later", "rl")
    there.cycle()
    assert placed(there) == []
    there.cycle()  # the first one found out about it
    assert placed(there) == ["later"]
    assert stuck.waits is not None
    reason = stuck.waits.shortage
    job(there, "last", "rl")
    there.cycle()
    assert placed(there) == ["last", "later"] and stuck.waits.shortage == reason  # it is considered all the same
    there.queue("rl", max_waiting=1)
    there.node("n2", cpu=256, gpus=16)
    there.cycle()
    assert placed(there) == ["last", "later", "stuck"]


def test_max_waiting_counts_the_queues_below_and_no_jobs_with_nodes() -> None:
    there = world(gpus=1)
    there.queue("all", max_waiting=1)
    there.queue("rl", parent="all")
    first = there.job("first", of_queue="rl", leader=shape(gpus=1), workers=2, worker=shape(gpus=1))
    there.cycle()
    assert len(first.placements) == 1
    job(there, "second", "all", created=1)
    third = job(there, "third", "rl", created=2)
    there.cycle()
    lack = lacking_quota(third.waits)
    assert lack is not None and lack.queue == "all"
    there.node("n1", cpu=256, gpus=8)
    there.cycle()
    assert placed(there) == ["first", "second"]  # the third one is considered from the next cycle on
    there.cycle()
    assert placed(there) == ["first", "second", "third"]


def test_a_running_job_whose_queue_is_gone_gets_its_further_pods() -> None:
    there = world(gpus=1)
    there.queue("rl")
    there.queue("other")
    first = there.job("first", of_queue="rl", leader=shape(gpus=1), workers=2, worker=shape(gpus=1))
    there.cycle()
    there.queue_gone("rl")
    there.node("n1", cpu=256, gpus=8)
    there.cycle()
    assert len(first.placements) == 3


def test_the_standing_of_a_queue_has_what_it_uses_demands_and_is_entitled_to() -> None:
    there = world(gpus=8)
    there.queue("all", deserved=((GPU, 6),))
    there.queue("rl", parent="all", user_fairness=True)
    there.queue("vision", parent="all")
    job(there, "a", "rl", gpus=2, user="ann")
    there.cycle()
    job(there, "b", "rl", gpus=3, user="ben")
    job(there, "c", "vision", gpus=7)
    job(there, "d", "default", gpus=7)
    view = queues_view(there.state).queues
    shown = [(of.used.get(GPU), of.share[GPU], of.demand[GPU], of.waiting, of.running) for of in view.values()]
    assert [*view] == ["all", "rl", "vision", "default"]
    assert shown == [(2, 7, 12, 2, 1), (2, 4, 5, 1, 1), (None, 3, 7, 1, 0), (None, 1, 7, 1, 0)]
    standing = QueueStanding(there.state, waiting_jobs(there.state, there.now_ms), there.now_ms)
    shares = {name: of[GPU] for name, of in standing.shares.items()}
    assert {name: shares[name] for name in ("all", "default", "rl", "vision")} == {
        "all": 7, "default": 1, "rl": 4, "vision": 3,
    }  # fmt: skip
    assert shares["rl/ann"] == 2 and shares["rl/ben"] == 2
    assert standing.used["rl/ann"] == {GPU: 2}


@settings(max_examples=40, deadline=None)
@given(drawn)
def test_a_single_queue_orders_its_jobs_as_a_cluster_without_queues(draws: list[Draw]) -> None:
    without, single = world_of(draws), world_of(draws)
    single.queue("default")
    assert order(single) == order(without)
    found = [[event for event in there.cycle() if isinstance(event, k.Placed | k.Waits)] for there in (single, without)]
    assert [_what(event) for event in found[0]] == [_what(event) for event in found[1]]


def _what(event: k.Placed | k.Waits) -> tuple[str, object]:
    return event.job_uid, event.pods if isinstance(event, k.Placed) else event.shortage


def shares(there: World) -> dict[str, int]:
    return {name: view.share.get(GPU, 0) for name, view in queues_view(there.state).queues.items() if name != "default"}


def by_capability(there: World) -> None:
    there.queue("stuck", capability=((GPU, 14),))
    there.job("never", of_queue="stuck", workers=2, worker=shape(cpu=1, gpus=8), min_workers=2, equals=True)


def by_selector(there: World) -> None:
    there.queue("stuck")
    there.job("never", of_queue="stuck", leader=shape(cpu=1, gpus=8, selector={"gpu": "none"}))


def by_max_running(there: World) -> None:
    there.queue("stuck", max_running=0)
    for at in range(3):
        there.job(f"never{at}", of_queue="stuck", leader=shape(cpu=1, gpus=8))


@pytest.mark.parametrize("blocked", [by_capability, by_selector, by_max_running])
def test_jobs_that_cannot_start_take_no_share_from_others(blocked: Callable[[World], None]) -> None:
    """A forgotten job that its queue could never hold kept others from what they could have taken back."""
    there = World(config=PREEMPTION)
    for at in range(6):
        there.node(f"n{at}", cpu=64, gpus=8)
    there.queue("b")
    there.queue("c")
    there.job("fills", of_queue="c", workers=48, worker=shape(cpu=1, gpus=1), min_workers=2, equals=True)
    there.settle()
    blocked(there)
    there.cycle()
    there.job("takes", of_queue="b", workers=3, worker=shape(cpu=1, gpus=8), min_workers=3, equals=True)
    assert shares(there) == {"b": 24, "c": 24, "stuck": 0}
    there.settle()
    assert len(there.state.jobs["uid-takes"].placements) == 3


def test_of_a_queue_with_room_for_one_more_job_the_first_one_demands() -> None:
    there = world(gpus=8)
    there.queue("a", max_running=1)
    there.queue("b")
    for at in range(3):
        one_of_each(there, f"a{at}", "a", created=at)
    there.job("b0", of_queue="b", leader=shape(cpu=1, gpus=8))
    assert shares(there) == {"a": 1, "b": 7}


def test_a_job_that_may_take_the_place_of_one_of_lower_priority_demands_although_its_queue_is_full() -> None:
    there = world(gpus=8)
    there.queue("a", max_running=1)
    there.queue("b")
    one_of_each(there, "runs", "a", created=1)
    there.settle()
    there.job("before", of_queue="a", leader=shape(cpu=1, gpus=2), priority=9, created=3)
    there.job("behind", of_queue="a", leader=shape(cpu=1, gpus=4), created=2)
    there.job("b0", of_queue="b", leader=shape(cpu=1, gpus=8))
    assert shares(there) == {"a": 3, "b": 5}
