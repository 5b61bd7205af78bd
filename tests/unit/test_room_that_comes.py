"""Nobody gives room that comes by itself, and nobody waits for room that doesn't come."""

import itertools
from collections.abc import Callable

import pytest

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.model.pod import PodTimes
from arranger.model.stages import StageReason
from arranger.scheduling.cycle import Cycles
from tests.unit.test_preemption import GPU, SMALL, preempted, running, waiting, world
from tests.world import World, shape

NODE = shape(cpu=1, gpus=4)


def see(of: World, uid: str, **changes: object) -> None:
    """Observe a pod as it is, with some changes."""
    pod = of.state.pods[uid]
    fields = {name: getattr(pod, name) for name in pod.__struct_fields__} | changes
    of.say(k.PodSeen(**(fields | {"resource_version": pod.resource_version + "0"})))


def ending() -> tuple[World, k.JobSeen]:
    """Two nodes of a job whose leader is about to end, one of an elastic job of low priority, and a job of high
    priority that needs two nodes: that of the elastic job is worth something to it only while one of the others is
    free already and the other isn't yet."""
    of = world(nodes=3)
    first = of.job("first", leader=NODE, workers=1, worker=NODE, min_workers=1, priority=9)
    of.settle()
    running(of, "elastic", 4, least=1, priority=1)
    high = of.job("high", workers=2, worker=NODE, min_workers=2, equals=True, priority=9)
    assert first.stage == Stage.RUNNING and preempted(of) is None
    return of, high.seen


def step_of(of: World) -> dict[str, Callable[[], object]]:
    """What happens when the first job ends, in an order that nobody knows."""
    leader, worker = of.state.jobs["uid-first"].bound[0, 0], of.state.jobs["uid-first"].bound[1, 0]
    return {
        "leader seen": lambda: see(of, leader, phase="Succeeded", ready=False),
        "decided": of.control,
        "worker deleted": lambda: see(of, worker, deleting=True, times=PodTimes(of.now_ms + 30_000)),
        "worker gone": lambda: of.pod_gone(worker) if worker in of.state.pods else None,
    }


ORDERS = [
    order
    for order in itertools.permutations(["leader seen", "decided", "worker deleted", "worker gone"])
    if order.index("leader seen") < order.index("worker deleted") < order.index("worker gone")
]


@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_in_every_order_of_observations_decisions_and_cycles_nobody_gives_room_that_comes(
    order: tuple[str, ...],
) -> None:
    of, high = ending()
    steps = step_of(of)
    for name in order:
        steps[name]()
        assert preempted(of) is None, f"after {name}"
    of.settle()
    of.wait_for_late_pods()
    of.settle()
    assert of.state.jobs[high.uid].stage == Stage.RUNNING
    assert of.state.jobs["uid-elastic"].stage == Stage.RUNNING
    assert len(of.state.jobs["uid-elastic"].placements) == 4


def test_a_job_that_ends_by_itself_gives_no_room_either() -> None:
    """It may be the one that loses the least."""
    of = world(nodes=2)
    low = of.job("low", leader=SMALL, workers=4, worker=GPU, min_workers=4, priority=1)
    of.settle()
    running(of, "other", 4, priority=2)
    see(of, low.bound[0, 0], phase="Succeeded", ready=False)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None
    of.control()
    assert low.stage == Stage.SUCCEEDED and preempted(of) is None


def test_a_job_whose_deadline_is_over_leaves_by_itself() -> None:
    """Several end together, and the cycle comes between the decisions on them."""
    of = world(nodes=3)
    ends = [running(of, f"ends-{number}", 4, priority=9, deadline_s=60) for number in range(2)]
    low = running(of, "low", 4, priority=1)
    waiting(of, "high", 8, priority=8)
    of.pass_time(60)
    of.hear()
    of.say(k.StageDecided(ends[0].uid, ends[0].version, 0, Stage.FAILED, StageReason.DEADLINE_EXCEEDED))
    assert [each.stage for each in ends] == [Stage.FAILED, Stage.RUNNING] and preempted(of) is None
    of.settle()
    assert of.state.jobs["uid-high"].placements and low.stage == Stage.RUNNING


def test_a_pod_that_hangs_is_no_reason_to_wait() -> None:
    of = world(nodes=2)
    old = running(of, "old", 4, priority=1)
    uids = list(old.bound.values())
    low = running(of, "low", 4, priority=2)
    for uid in uids:
        see(of, uid, deleting=True, ready=False, times=PodTimes(of.now_ms + 30_000))
    of.job("old", deleting=True, equals=True, workers=4, worker=GPU, min_workers=4)
    of.control()
    waiting(of, "high", 4, priority=9)
    cycles = Cycles()
    while events := cycles.take(of.state, of.config, of.now_ms):
        assert not [event for event in events if isinstance(event, k.Preempted)]
        of.say(*events)
    of.pass_time(89)  # the grace period, and most of the bound
    assert not cycles.take(of.state, of.config, of.now_ms)
    of.pass_time(1)
    [decision] = [e for e in cycles.take(of.state, of.config, of.now_ms) if isinstance(e, k.Preempted)]
    assert [victim.job_uid for victim in decision.victims] == [low.uid]
    assert decision.leaving == ()


def test_a_victim_whose_pods_hang_is_none() -> None:
    """Its room wouldn't come, so another job gives room."""
    of = world(nodes=2)
    hangs = running(of, "hangs", 4, priority=1)
    low = running(of, "low", 4, priority=2)
    for uid in hangs.bound.values():
        see(of, uid, deleting=True, ready=False, times=PodTimes(of.now_ms - 61_000))
    waiting(of, "high", 4, priority=9)
    decision = preempted(of)
    assert decision is not None and [victim.job_uid for victim in decision.victims] == [low.uid]


def test_a_pod_of_another_owner_that_leaves_is_waited_for() -> None:
    of = world(nodes=2)
    other = of.pod("other", "n0", gpus=4, deleting=True, times=PodTimes(of.now_ms + 60_000))
    running(of, "low", 4, priority=2)
    waiting(of, "high", 4, priority=9)
    assert preempted(of) is None
    of.pod_gone(other)
    of.settle()
    assert of.state.jobs["uid-high"].stage == Stage.RUNNING
