"""How much less a job may ask for: the least change first, with what it may take from others; and if nothing is free,
with how much it would wait for room and not fail."""

import pytest

from arranger.model.node import Taint
from arranger.replay.explain.remedies import Remedy
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import world as preempting
from tests.world import GIB, World, shape

GPU = "nvidia.com/gpu"
WAITS = "; then it waits for room"


def asking(world: World, job: str = "j") -> list[Remedy]:
    """The changes of the requests that help a job."""
    waiting = explained(world.entries, job).waiting
    assert waiting is not None
    return [one for one in waiting.remedies if " asking for " in one.text]


def told(world: World, job: str = "j") -> list[tuple[str, int]]:
    return [(one.text, one.pods) for one in asking(world, job)]


def taken(nodes: int = 2, *, priority: int = 3, gpus: int = 8) -> World:
    """Nodes of 8 GPUs, of each of which a job has some."""
    of = preempting(nodes, gpus=8, cpu=64)
    for number in range(nodes):
        of.job(f"hog{number}", leader=shape(cpu=1, gpus=gpus), priority=priority)
        of.settle()
        of.pass_time(10)
    return of


def test_a_job_may_ask_for_what_it_would_take_from_others_if_nothing_is_free() -> None:
    of = taken()
    of.job("j", leader=shape(cpu=1, gpus=12), priority=5)
    of.cycle()
    [one] = asking(of)
    assert one.text.startswith(f"learner asking for 8 {GPU} instead of 12; it would take room from default/hog")
    assert one.pods == 1 and len(one.room_from) == 1 and not one.then_feasible


def test_a_job_may_ask_for_what_it_would_take_from_others_if_a_part_is_free() -> None:
    of = taken(gpus=6)
    of.job("j", leader=shape(cpu=1, gpus=12), priority=5)
    of.cycle()
    other, one = asking(of)
    assert one.text.startswith(f"learner asking for 8 {GPU} instead of 12; it would take room from default/hog")
    assert (other.text, other.room_from) == (f"learner asking for 2 {GPU} instead of 12", ())


@pytest.mark.parametrize(("low", "most"), [(2, 4), (3, 5), (4, 6)])
def test_a_job_may_ask_for_the_free_part_and_that_of_lower_priority_together(low: int, most: int) -> None:
    of = preempting(1, gpus=8, cpu=64)
    of.job("high", leader=shape(cpu=1, gpus=6 - low), priority=9)
    of.job("low", leader=shape(cpu=1, gpus=low), priority=3)
    of.settle()
    of.pass_time(10)
    of.job("j", leader=shape(cpu=1, gpus=8), priority=5)
    of.cycle()
    other, one = asking(of)
    assert other.text == f"learner asking for 2 {GPU} instead of 8"
    assert one.text.startswith(f"learner asking for {most} {GPU} instead of 8; it would take room from default/low")


def test_a_job_that_never_fits_is_told_with_how_much_it_would_wait() -> None:
    of = taken(priority=7)
    of.job("j", leader=shape(cpu=1, gpus=64), priority=5)
    of.cycle()
    assert told(of) == [(f"learner asking for 8 {GPU} instead of 64{WAITS}", 0)]
    assert asking(of)[0].then_feasible


def test_it_is_told_with_how_much_it_starts_at_once_too() -> None:
    of = taken(priority=7, gpus=6)
    of.job("j", leader=shape(cpu=1, gpus=12), priority=5)
    of.cycle()
    assert told(of) == [
        (f"learner asking for 2 {GPU} instead of 12", 1),
        (f"learner asking for 8 {GPU} instead of 12{WAITS}", 0),
    ]


def test_a_gang_that_never_fits_is_told_with_how_much_of_each_pod_it_would_wait() -> None:
    of = taken(priority=7)
    of.job("j", leader=shape(cpu=1, gpus=16), workers=2, worker=shape(cpu=1, gpus=16), min_workers=2, priority=5)
    of.cycle()
    assert told(of) == [(f"learner and actors asking for 4 {GPU} instead of 16{WAITS}", 0)]


def test_a_job_that_has_to_wait_in_any_case_is_told_nothing_of_waiting() -> None:
    of = taken(priority=7)
    of.job("j", leader=shape(cpu=1, gpus=8), priority=5)
    of.cycle()
    assert told(of) == []


def test_the_memory_of_the_largest_node_comes_before_what_is_free() -> None:
    of = World()
    of.node("n1", cpu=16, memory=64 * GIB)
    of.node("n2", cpu=16, memory=32 * GIB)
    of.pod("stranger", "n1", cpu=1, memory=40 * GIB)
    of.job("j", leader=shape(cpu=1, memory=100 * GIB))
    of.cycle()
    assert told(of) == [
        ("learner asking for 32Gi memory instead of 100Gi", 1),
        (f"learner asking for 64Gi memory instead of 100Gi{WAITS}", 0),
    ]


def test_of_several_lacking_resources_the_empty_node_has_the_amounts() -> None:
    of = taken(priority=7)
    of.job("j", leader=shape(cpu=100, gpus=12), priority=5)
    of.cycle()
    assert told(of) == [(f"learner asking for 64 cpu instead of 100, 8 {GPU} instead of 12{WAITS}", 0)]


def test_the_search_for_an_amount_takes_few_cycles() -> None:
    of = preempting(1, gpus=4096, cpu=64)
    of.pod("stranger", "n0", gpus=4096 - 37)
    of.job("j", leader=shape(cpu=1, gpus=5000))
    of.cycle()
    waiting = explained(of.entries, "j").waiting
    assert waiting is not None and waiting.tried < 30
    assert told(of) == [
        (f"learner asking for 37 {GPU} instead of 5000", 1),
        (f"learner asking for 4096 {GPU} instead of 5000{WAITS}", 0),
    ]


def limited(left: int) -> World:
    """A namespace whose quota has so many GPUs left, and a job of two workers that ask for four each."""
    of = World()
    of.node("n1", cpu=64, gpus=32)
    of.quota("few", {f"requests.{GPU}": left, "requests.cpu": 16_000})
    of.job("j", leader=shape(cpu=1), workers=2, worker=shape(cpu=4, gpus=4), min_workers=2)
    of.cycle()
    return of


def test_a_job_that_its_quota_could_never_give_enough_may_ask_for_less() -> None:
    of = limited(6)
    assert told(of) == [(f"actors asking for 3 {GPU} instead of 4", 3)]
    of.job("j", leader=shape(cpu=1), workers=2, worker=shape(cpu=4, gpus=3), min_workers=2)
    of.cycle()
    assert len(of.state.jobs["uid-j"].placements) == 3


def test_a_quota_that_is_short_of_cpu_may_be_asked_for_half_of_it() -> None:
    of = World()
    of.node("n1", cpu=64)
    of.quota("few", {"requests.cpu": 11_000})
    of.job("j", leader=shape(cpu=8), workers=2, worker=shape(cpu=8), min_workers=2)
    of.cycle()
    assert told(of) == [("learner asking for 2 cpu instead of 8 and actors asking for 4 cpu instead of 8", 3)]


def test_where_a_quota_limits_the_number_of_pods_no_request_is_lowered() -> None:
    of = World()
    of.node("n1", cpu=64)
    of.quota("few", {"pods": 2})
    of.job("j", leader=shape(cpu=8), workers=2, worker=shape(cpu=8), min_workers=2)
    of.cycle()
    assert told(of) == []


@pytest.mark.parametrize("tainted", [1, 2])
def test_a_job_that_never_fits_is_told_which_nodes_to_open(tainted: int) -> None:
    of = preempting(4, gpus=8, cpu=64)
    of.job("runs", leader=shape(cpu=1, gpus=1), priority=7, preemptible=False)
    of.settle()
    for number in range(4 - tainted, 4):
        of.node(f"n{number}", cpu=64, gpus=8, taints=[Taint("k", "v", "NoSchedule")])
    of.job("j", workers=4, worker=shape(cpu=1, gpus=8), min_workers=4, equals=True, priority=5)
    of.cycle()
    waiting = explained(of.entries, "j").waiting
    assert waiting is not None and waiting.infeasible_since_ms
    [one] = [one for one in waiting.remedies if one.kind == "taint"]
    words = "remove taint k=v:NoSchedule from n3, or tolerate it" if tainted == 1 else "remove the taints of n3 and n2"
    assert (one.text, one.pods, one.then_feasible) == (f"{words}{WAITS}", 0, True)


def test_of_several_sets_each_is_lowered_no_further_than_it_needs_to_be() -> None:
    """Neither the learner alone nor the actors alone may ask for so little that all of them fit."""
    of = World()
    of.node("n1", cpu=64, gpus=8)
    of.node("n2", cpu=64, gpus=8)
    of.job("j", leader=shape(cpu=1, gpus=12), workers=2, worker=shape(cpu=1, gpus=10), min_workers=2)
    of.cycle()
    assert told(of) == [(f"learner asking for 8 {GPU} instead of 12 and actors asking for 4 {GPU} instead of 10", 3)]


def test_a_set_that_asks_for_little_keeps_it() -> None:
    of = World()
    of.node("n1", cpu=64, gpus=8)
    of.job("j", leader=shape(cpu=1, gpus=3), workers=2, worker=shape(cpu=1, gpus=4), min_workers=2)
    of.cycle()
    before = told(of)
    assert before == [(f"actors asking for 2 {GPU} instead of 4", 3)]
