"""Small jobs of a queue never stop coming, and a larger one in front of them lacks nothing but a limit of it."""

import msgspec
import pytest

from arranger.events.facts import BeyondLimit
from arranger.lifecycle.desired import desired_status
from arranger.messages.readiness import guest_text
from arranger.model.config import CycleConfig
from arranger.model.queue import NonPreemptible, Preemption
from arranger.model.quota import LimitKind
from arranger.projections.jobs.records import JobRecord
from arranger.projections.snapshot import encode, restore
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.search.placer import Placer
from tests.unit.replay_worlds import explained
from tests.world import World, shape

FOUR = shape(gpus=4)
GPUS = "nvidia.com/gpu"


def at_its_limit(
    *, runners: int = 2, apart_s: int = 60, reservations: int = 1, preemptible: bool = True, **limits: object
) -> tuple[World, list[JobRecord], JobRecord]:
    """Ten nodes of four GPUs. So many jobs run in a queue that is at its limit; a larger one waits in it for eight, and
    is `preemptible` or not."""
    world = World(
        config=CycleConfig(
            preemption=Preemption(), reservations=reservations, reservation_refresh_ms=30_000, guests=reservations > 0
        )
    )
    for number in range(10):
        world.node(f"n{number}", gpus=4)
    world.queue("limited", **(limits or {"capability": ((GPUS, 8),)}))
    running = [
        world.job(
            f"runner-{number}", leader=FOUR, of_queue="limited", expected_s=60 + apart_s * number, preemptible=False
        )
        for number in range(runners)
    ]
    world.settle()
    assert all(of.placements for of in running)
    large = world.job(
        "large", equals=True, workers=2, worker=FOUR, min_workers=2, of_queue="limited", created=world.now_ms,
        preemptible=preemptible,
    )  # fmt: skip
    world.settle()
    assert isinstance(large.waits.shortage, BeyondLimit)
    return world, running, large


def small(world: World, name: str, **of: object) -> JobRecord:
    job = world.job(name, leader=FOUR, of_queue=of.pop("of_queue", "limited"), created=world.now_ms, **of)
    for _ in range(3):
        world.settle()
        world.pass_time(1)
    return job


def end(world: World, job: JobRecord) -> None:
    for pod in world.pods_of(job).values():
        world.change_pod(pod.uid, phase="Succeeded")
    for _ in range(40):
        world.settle()
        world.pass_time(1)


def test_small_jobs_leave_when_the_limit_is_enough_for_the_one_in_front() -> None:
    world, running, large = at_its_limit()
    end(world, running[0])
    first = small(world, "first")
    assert first.slots.hosts == (large.uid,) and first.placements  # what is left isn't idle meanwhile
    end(world, running[1])
    assert len(large.placements) == 2 and not first.placements


def test_small_jobs_dont_pass_it_as_they_come_and_go() -> None:
    world, running, large = at_its_limit()
    end(world, running[0])
    for number in range(4):
        end(world, small(world, f"small-{number}"))
    end(world, running[1])
    last = small(world, "last")
    assert len(large.placements) == 2 and not last.placements


def test_without_reservations_no_limit_is_kept_and_whoever_fits_starts() -> None:
    world, running, _ = at_its_limit(reservations=0)
    end(world, running[0])
    first = small(world, "first", preemptible=False)
    assert first.placements and not world.state.kept_limits


def test_so_with_the_number_of_running_jobs() -> None:
    world, running, large = at_its_limit(runners=1, max_running=1)
    end(world, running[0])
    assert len(large.placements) == 2


def test_who_cant_be_a_guest_waits_and_is_told_for_whom() -> None:
    world, running, large = at_its_limit()
    end(world, running[0])
    first = small(world, "first", preemptible=False)
    assert not first.placements
    shortage = first.waits.shortage
    assert isinstance(shortage, BeyondLimit) and shortage.kept_by == (large.uid,)
    assert (shortage.quota.needed, shortage.quota.left) == (4, 0)
    end(world, running[1])
    assert len(large.placements) == 2


def test_who_ends_before_may_start() -> None:
    world, running, _ = at_its_limit()
    end(world, running[0])
    first = small(world, "first", preemptible=False, deadline_s=5)
    assert first.placements and not first.slots.hosts


def test_enough_for_both_by_then_is_no_reason_to_wait() -> None:
    world, running, large = at_its_limit(runners=3, apart_s=0, capability=((GPUS, 12),))
    end(world, running[0])
    first = small(world, "first", preemptible=False)
    assert first.placements and not first.slots.hosts
    end(world, running[1])
    end(world, running[2])
    assert len(large.placements) == 2 and first.placements


@pytest.mark.parametrize("of", [{"of_queue": "other"}, {"priority": 9}])
def test_other_queues_and_those_in_front_are_free(of: dict[str, object]) -> None:
    world, running, _ = at_its_limit()
    world.queue("other")
    end(world, running[0])
    first = small(world, "first", **of)
    assert first.placements and not first.slots.hosts


def test_workers_above_the_least_give_way() -> None:
    world, running, large = at_its_limit(runners=2, capability=((GPUS, 12),))
    growing = world.job(
        "growing", leader=FOUR, workers=2, worker=FOUR, min_workers=0, of_queue="limited", created=world.now_ms + 1
    )
    for _ in range(3):
        world.settle()
        world.pass_time(1)
    end(world, running[0])
    assert len(large.placements) == 2 and len(growing.placements) <= 1


def test_all_say_for_whom_a_limit_is_kept() -> None:
    world, running, _ = at_its_limit()
    end(world, running[0])
    fixed = small(world, "fixed", preemptible=False)
    said = (
        "0 of 1 required pods fit; queue limited has too little nvidia.com/gpu (needs 4, 0 left of its capability 8)"
        "; what is left is kept for a job ahead of it"
    )
    assert desired_status(world.state, fixed)["message"] == f"{said}; the limit is kept for job default/large"
    waiting = explained(world.entries, "fixed").waiting
    assert waiting is not None and waiting.why == said
    assert [(one.job, one.nodes) for one in waiting.reserved] == [("default/large", ())]
    how = "preemptible true instead of false, as a guest by a limit that is kept for a job before it, which leaves once"
    assert [of.pods for of in waiting.remedies if of.text.startswith(how)] == [1]
    limit = explained(world.entries, "large").kept_limit
    assert limit is not None and limit.awaits == ("default/runner-1",) and limit.start_ms
    assert limit.text == "nvidia.com/gpu of the capability of queue limited"
    guest = small(world, "guest")
    told = "uses a limit of its queue that is kept for job default/large, and gives it back as soon as that is enough"
    assert guest_text(world.state, guest).startswith(told)


def test_a_restored_state_decides_the_same() -> None:
    world, running, _ = at_its_limit()
    end(world, running[0])
    small(world, "guest")
    restored = restore(encode(world.state))
    assert restored.kept_limits == world.state.kept_limits and restored.kept_limits
    assert take_cycle(restored, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)


def test_a_quorum_of_another_set_than_the_first_passes_nobody() -> None:
    world, running, large = at_its_limit()
    end(world, running[0])
    sets = [("wide", 1, shape(gpus=8)), ("narrow", 1, FOUR)]  # the quorum is either of them
    either = world.job(
        "either", equals=True, workers=sets, min_workers=1, of_queue="limited", created=world.now_ms, preemptible=False
    )
    world.settle()
    assert not either.placements
    shortage = either.waits.shortage
    assert isinstance(shortage, BeyondLimit) and shortage.kept_by == (large.uid,)
    end(world, running[1])
    assert len(large.placements) == 2


def test_what_jobs_that_cant_be_preempted_may_use_is_kept_as_well() -> None:
    world, running, large = at_its_limit(
        deserved=((GPUS, 8),), non_preemptible=NonPreemptible.WITHIN_DESERVED, preemptible=False
    )
    assert large.waits.shortage.quota.limit == LimitKind.NON_PREEMPTIBLE
    end(world, running[0])
    first = small(world, "first", preemptible=False)
    assert not first.placements and first.waits.shortage.kept_by == (large.uid,)
    limit = explained(world.entries, "large").kept_limit
    assert limit is not None and limit.awaits == ("default/runner-1",)
    assert limit.text == f"{GPUS} for jobs that can't be preempted of what queue limited deserves"
    assert small(world, "free").placements  # one that can be preempted uses nothing of it
    end(world, running[1])
    assert len(large.placements) == 2


@pytest.mark.parametrize(
    "limits",
    [{"capability": ((GPUS, 8),)}, {"deserved": ((GPUS, 8),), "non_preemptible": NonPreemptible.WITHIN_DESERVED}],
)
def test_meanwhile_a_limit_leaves_what_is_said(limits: dict[str, object]) -> None:
    world, running, large = at_its_limit(preemptible=False, **limits)
    end(world, running[0])
    quotas = Placer(world.state, world.config, BUILT_IN, time_ms=world.now_ms).placing.quotas
    lack = large.waits.shortage.quota
    for left in (0, 2):
        with quotas.with_only(msgspec.structs.replace(lack, left=left)):
            assert quotas.lack(large, {1: 2}) == msgspec.structs.replace(lack, left=left)
    assert quotas.lack(large, {1: 2}).left == 4
