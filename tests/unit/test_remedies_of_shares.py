"""What would let a job take room that the shares of queues, the limit of its own, or the jobs that run keep from it."""

from typing import Any

import msgspec
import pytest

from arranger.model.queue import Preemption, PreemptionMode
from arranger.projections.jobs.records import JobRecord
from tests.unit.replay_worlds import explained, gpu_job, with_room_rules
from tests.world import World, shape

GPU = "nvidia.com/gpu"
#: The only node has so many GPUs.
ALL = 12


def cluster(nodes: int = 1) -> World:
    world = with_room_rules()
    for number in range(1, nodes + 1):
        world.node(f"n{number}", cpu=64, gpus=ALL)
    world.watch_queues()
    return world


def runs(world: World, name: str, workers: int, queue: str, **spec: Any) -> JobRecord:
    job = gpu_job(world, name, workers, of_queue=queue, **spec)
    world.settle()
    world.pass_time(10)
    return job


def waits(world: World, name: str, workers: int, queue: str, **spec: Any) -> JobRecord:
    job = gpu_job(world, name, workers, of_queue=queue, **spec)
    world.cycle()
    assert not job.placements
    return job


def takes_none(world: World, name: str) -> dict[str, tuple[str, ...]]:
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return {str(of.kind): of.jobs for of in waiting.takes_none}


def helps(world: World, name: str) -> list[str]:
    waiting = explained(world.entries, name).waiting
    assert waiting is not None
    return [of.text for of in waiting.remedies]


# --- a limit of its own queue ----------------------------------------------------------------------------------------


def full_of_others(**limit: Any) -> World:
    """Another queue has the whole node, far above its share, but for a pod of the job's queue, which is at a limit."""
    world = cluster()
    world.queue("p", **limit)
    world.queue("c")
    runs(world, "p0", 1, "p")
    runs(world, "c1", ALL - 1, "c", least=2)
    return world


@pytest.mark.parametrize("limit", [{"max_running": 1}, {"capability": ((GPU, 3),)}], ids=["maxRunning", "capability"])
def test_others_that_would_give_room_arent_told_to_have_too_little_while_a_limit_keeps_it(
    limit: dict[str, object],
) -> None:
    world = full_of_others(**limit)
    waits(world, "p1", 3, "p")
    assert any("raise" in of and "take room from default/c1" in of for of in helps(world, "p1"))
    assert takes_none(world, "p1") == {"NotLower": ("default/p0",)}


def test_nobody_is_named_if_no_job_counts_within_the_limit() -> None:
    world = cluster()
    world.queue("p", max_running=0)
    world.queue("c")
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "p1", 3, "p")
    assert takes_none(world, "p1") == {}


def test_only_jobs_that_use_what_the_limit_is_about_are_named() -> None:
    world = full_of_others(capability=((GPU, 3),))
    world.job("cpus", workers=1, worker=shape(cpu=1), min_workers=1, equals=True, of_queue="p")
    world.settle()
    waits(world, "p1", 3, "p")
    assert takes_none(world, "p1") == {"NotLower": ("default/p0",)}


def test_if_jobs_may_give_what_the_limit_lacks_the_others_are_told_too() -> None:
    world = cluster()
    world.queue("p", max_running=1)
    world.queue("c", reclaimable=False)
    runs(world, "p0", 1, "p", priority=1)
    runs(world, "c1", ALL - 1, "c")
    waits(world, "p1", 3, "p", priority=9)
    assert takes_none(world, "p1") == {"TooLittle": ("default/p0",), "NotReclaimable": ("default/c1",)}


# --- the share of its own queue --------------------------------------------------------------------------------------


def above_its_share(*, deserved: int = 0, **spec: Any) -> World:
    """Two queues may have 6 GPUs each; the first job of `b`, whose queue uses nothing, needs 8."""
    world = cluster()
    world.queue("b", deserved=((GPU, deserved),) if deserved else (), **spec)
    world.queue("c", deserved=((GPU, deserved),) if deserved else ())
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "b1", 8, "b")
    assert takes_none(world, "b1") == {"AboveShare": ("default/c1",)}
    return world


def test_the_first_job_in_the_order_is_told_which_weight_lets_its_queue_reclaim() -> None:
    told = [of for of in helps(above_its_share(), "b1") if of.startswith("weight")]
    assert len(told) == 1
    assert told[0].startswith("weight 2 of queue b instead of 1; it would take room from default/c1 (Surplus, 8 pods")


def test_the_least_weight_that_is_enough_is_named() -> None:
    world = cluster()
    world.queue("b")
    world.queue("c")
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "b1", 9, "b")
    [told] = [of for of in helps(world, "b1") if of.startswith("weight")]
    assert told.startswith("weight 3 of queue b instead of 1;"), "and not 4, the next power of two"


def test_a_queue_need_deserve_only_what_weights_do_not_give_it() -> None:
    world = cluster()
    world.queue("b")
    world.queue("c")
    world.queue("d", deserved=((GPU, 2),))
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "b1", 8, "b")
    [told] = [of for of in helps(world, "b1") if of.startswith("deserved")]
    assert told.startswith(f"deserved 3 {GPU} of queue b; it would"), "half of the rest is its own, in whole GPUs"


def test_it_is_told_what_its_queue_would_have_to_deserve_if_queues_deserve_something() -> None:
    told = [of for of in helps(above_its_share(deserved=4), "b1") if of.startswith("deserved")]
    assert len(told) == 1
    assert told[0].startswith(f"deserved 7 {GPU} of queue b instead of 4; it would take room from default/c1")
    assert not any(of.startswith("deserved") for of in helps(above_its_share(), "b1"))


def test_what_its_queue_uses_counts_in_what_it_would_have_to_deserve() -> None:
    world = cluster()
    world.queue("b")
    world.queue("c", deserved=((GPU, 2),))
    runs(world, "b0", 2, "b")
    runs(world, "c1", ALL - 2, "c", least=2)
    world.queue("d")
    waits(world, "b1", 8, "b")
    assert any(of.startswith(f"deserved 9 {GPU} of queue b; it would") for of in helps(world, "b1"))


def test_a_queue_is_not_told_to_deserve_more_than_the_capability_of_one_above_it() -> None:
    for most in (8, 7):
        world = cluster()
        world.queue("org", deserved=((GPU, 4),), capability=((GPU, most),))
        world.queue("b", parent="org")
        world.queue("c", deserved=((GPU, 4),))
        runs(world, "c1", ALL, "c", least=2)
        waits(world, "b1", 8, "b")
        assert any(of.startswith("deserved") for of in helps(world, "b1")) == (most == 8)


def test_queues_above_its_own_deserve_more_too() -> None:
    world = cluster()
    world.queue("org", deserved=((GPU, 5),))
    world.queue("b", parent="org", deserved=((GPU, 1),))
    world.queue("s", parent="org", weight=3)
    world.queue("c", deserved=((GPU, 4),))
    runs(world, "s1", 4, "s")
    runs(world, "c1", ALL - 4, "c", least=2)
    waits(world, "s2", 8, "s")
    waits(world, "b1", 6, "b")
    told = (
        f"deserved 5 {GPU} of queue b instead of 1 and deserved 6 {GPU} of queue org instead of 5; it would take room"
    )
    assert any(of.startswith(told) for of in helps(world, "b1"))


def test_a_queue_deserves_no_more_where_it_is_enough_that_those_above_it_do() -> None:
    world = cluster()
    world.queue("org", deserved=((GPU, 5),))
    world.queue("b", parent="org", deserved=((GPU, 4),))
    world.queue("c", deserved=((GPU, 4),))
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "b1", 8, "b")
    [told] = [of for of in helps(world, "b1") if of.startswith("deserved")]
    assert told.startswith(f"deserved 8 {GPU} of queue org instead of 5; it would take room")


def test_a_queue_within_its_share_is_not_told_to_be_heavier() -> None:
    world = cluster()
    world.queue("b")
    world.queue("c", reclaimable=False)
    runs(world, "c1", ALL, "c", least=2)
    waits(world, "b1", 4, "b")
    waiting = explained(world.entries, "b1").waiting
    assert waiting is not None and not any("queue b" in of.text for of in waiting.remedies)


# --- jobs that aren't preemptible ------------------------------------------------------------------------------------


def test_a_job_that_is_not_preemptible_is_named_if_it_would_give_room_otherwise() -> None:
    world = cluster()
    world.queue("a", deserved=((GPU, 6),))
    world.queue("c")
    runs(world, "hog", ALL, "c", least=1, preemptible=False)
    waits(world, "a1", 4, "a")
    assert takes_none(world, "a1") == {"NotPreemptible": ("default/hog",)}
    told = [of for of in helps(world, "a1") if "preemptible" in of]
    assert len(told) == 1
    assert told[0].startswith(
        "preemptible true of default/hog would let it take room from default/hog (Surplus, 4 pods"
    )


def test_several_of_them_are_named_together_if_none_is_enough() -> None:
    world = cluster()
    world.queue("a", deserved=((GPU, 6),))
    world.queue("c")
    for number in range(6):
        runs(world, f"hog{number}", 2, "c", preemptible=False)
    waits(world, "a1", 4, "a")
    [told] = [of for of in helps(world, "a1") if "preemptible" in of]
    assert told.startswith("preemptible true of default/hog") and told.count("(Reclaim, 2 pods") == 2


def test_a_job_of_lower_priority_in_its_queue_is_named_beyond_a_limit_too() -> None:
    world = cluster()
    world.queue("a", max_running=1)
    runs(world, "low", 4, "a", priority=1, preemptible=False)
    waits(world, "a1", 4, "a", priority=9)
    assert any(of.startswith("preemptible true of default/low would let it") for of in helps(world, "a1"))


def test_a_job_that_would_give_no_room_either_way_is_not_named() -> None:
    world = cluster()
    world.queue("a")
    runs(world, "equal", ALL, "a", preemptible=False)
    waits(world, "a1", 4, "a")
    assert not any("preemptible" in of for of in helps(world, "a1"))


# --- what forbids it -------------------------------------------------------------------------------------------------


NEVER = PreemptionMode.NEVER


def forbidden(*, asked: int = 6, reclaimable: bool = True, of_all: Preemption | None = None, **spec: Any) -> World:
    """Another queue has the whole node, and its jobs give no room to a job within its share."""
    world = cluster()
    if of_all is not None:
        world.config = msgspec.structs.replace(world.config, preemption=of_all)
    world.queue("b", **spec)
    world.queue("c", reclaimable=reclaimable)
    runs(world, "c1", ALL, "c")
    waits(world, "b1", asked, "b")
    return world


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"preemption": Preemption(reclaim=NEVER)}, "preemption.reclaim Allowed of queue b"),
        ({"of_all": Preemption(reclaim=NEVER)}, "reclaim Allowed in the setting preemption"),
        (
            {"preemption": Preemption(reclaim=NEVER), "of_all": Preemption(reclaim=NEVER)},
            "preemption.reclaim Allowed of queue b and reclaim Allowed in the setting preemption",
        ),
        ({"reclaimable": False}, "reclaimable true of queue c"),
    ],
)
def test_the_rule_is_told_that_forbids_to_take_room_back(rules: dict[str, Any], said: str) -> None:
    taking = [of for of in helps(forbidden(**rules), "b1") if "llowed" in of or "reclaimable" in of]
    assert len(taking) == 1 and taking[0].startswith(f"{said} would let it take room from default/c1 (")


def test_no_rule_is_told_whose_change_would_not_help() -> None:
    told = helps(forbidden(asked=8, preemption=Preemption(reclaim=NEVER, priority=NEVER)), "b1")
    assert not [of for of in told if "llowed" in of]


def test_a_queue_that_takes_nothing_by_priority_is_told_so() -> None:
    world = cluster()
    world.queue("b", preemption=Preemption(surplus=NEVER, priority=NEVER))
    runs(world, "low", ALL, "b", priority=1)
    waits(world, "high", ALL, "b", priority=9)
    told = [of for of in helps(world, "high") if "llowed" in of]
    assert len(told) == 1 and told[0].startswith("preemption.priority Allowed of queue b would let it take room from")


def test_queues_that_are_not_reclaimable_are_told_together_if_none_is_enough() -> None:
    world = cluster()
    world.queue("b", deserved=((GPU, ALL),))
    for name in ("c", "d"):
        world.queue(name, reclaimable=False)
        runs(world, f"{name}1", ALL // 2, name)
    waits(world, "b1", ALL, "b")
    told = [of for of in helps(world, "b1") if "reclaimable" in of]
    assert len(told) == 1 and told[0].startswith("reclaimable true of queues c; d; it would take room from ")
