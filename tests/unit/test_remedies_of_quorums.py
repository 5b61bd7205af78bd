"""How much smaller the quorum of a job may be: minWorkersNum, minCounts of its sets, or both, as users write them."""

import pytest

from arranger.model.job import GANG
from tests.unit.replay_worlds import explained
from tests.world import World, shape

WHOLE = shape(cpu=1, gpus=8)


def cluster(nodes: int = 4) -> World:
    world = World()
    for number in range(1, nodes + 1):
        world.node(f"n{number}", cpu=64, gpus=8)
    return world


def told(world: World, job: str = "j") -> list[tuple[str, int]]:
    """The smaller quorums that help a job, with the pods that get nodes."""
    waiting = explained(world.entries, job).waiting
    assert waiting is not None
    return [(one.text, one.pods) for one in waiting.remedies if "min" in one.text or "policy" in one.text]


def few(world: World, name: str = "j", workers: int = 5, **spec: object) -> list[tuple[str, int]]:
    """What helps a job of a leader and workers that each need a node of four."""
    world.job(name, leader=WHOLE, workers=workers, worker=WHOLE, **spec)  # type: ignore[arg-type]
    world.cycle()
    return told(world, name)


IF_SET = "(and minWorkersNum 3, if that is set)"


def test_minWorkersNum_alone_is_lowered_where_it_alone_is_too_large() -> None:
    assert few(cluster(), min_workers=5) == [("minWorkersNum 3 instead of 5", 4)]


def test_the_minCount_of_a_set_is_lowered() -> None:
    world = cluster()
    assert few(world, minimums={"actors": 5}) == [(f"minCount 3 instead of 5 of worker set actors {IF_SET}", 4)]
    job = world.job("j", leader=WHOLE, workers=5, worker=WHOLE, minimums={"actors": 3})
    world.cycle()
    assert len(job.placements) == 4, "it does what it says"


def test_both_are_lowered_where_minWorkersNum_is_larger() -> None:
    said = "minCount 3 instead of 4 of worker set actors and minWorkersNum 3 instead of 5"
    assert few(cluster(), min_workers=5, minimums={"actors": 4}) == [(said, 4)]


def test_minWorkersNum_is_lowered_first() -> None:
    assert few(cluster(), min_workers=5, minimums={"actors": 2}) == [("minWorkersNum 3 instead of 5", 4)]


def test_a_minCount_counts_worker_groups() -> None:
    world = cluster(5)
    spec = {"workers": 6, "minimums": {"actors": 6}, "group_size": 2}
    assert few(world, **spec) == [  # type: ignore[arg-type]
        ("minCount 2 instead of 3 of worker set actors (and minWorkersNum 4, if that is set)", 5)
    ]


def test_of_several_sets_that_is_lowered_whose_pod_finds_no_node() -> None:
    world = cluster()
    sets = [("actors", 2, WHOLE), ("critics", 3, WHOLE)]
    world.job("j", leader=WHOLE, workers=sets, minimums={"actors": 2, "critics": 3})
    world.cycle()
    assert told(world) == [(f"minCount 1 instead of 3 of worker set critics {IF_SET}", 4)]


def test_further_sets_are_lowered_where_one_is_not_enough() -> None:
    world = cluster(2)
    sets = [("actors", 2, WHOLE), ("critics", 3, WHOLE)]
    world.job("j", leader=WHOLE, workers=sets, minimums={"actors": 2, "critics": 3})
    world.cycle()
    assert told(world) == [
        (
            "minCount 0 instead of 2 of worker set actors and minCount 1 instead of 3 of worker set critics (and "
            "minWorkersNum 1, if that is set)",
            2,
        )
    ]


OF_POOL = shape(cpu=40, selector={"pool": "m"})


def test_no_set_is_lowered_further_than_to_what_fits_beside_the_others() -> None:
    """Of a job whose two sets both lack nodes, the first one was lowered to nothing before the second was looked at."""
    world = cluster(3)
    for number in range(1, 4):
        world.node(f"m{number}", cpu=64, labels={"pool": "m"})
    sets = [("actors", 5, WHOLE), ("critics", 5, OF_POOL)]
    world.job("j", workers=sets, equals=True, minimums={"actors": 5, "critics": 5})
    world.cycle()
    said = (
        "minCount 3 instead of 5 of worker set actors and minCount 3 instead of 5 of worker set critics (and "
        "minWorkersNum 6, if that is set)"
    )
    assert told(world) == [(said, 6)]


def test_many_sets_take_few_cycles() -> None:
    world = cluster(12)
    sets = [(f"s{number}", 4, shape(cpu=1) if number else WHOLE) for number in range(30)]
    sets[3] = ("s3", 64, WHOLE)
    world.job("j", workers=sets, equals=True, minimums={name: count for name, count, _ in sets})
    world.cycle()
    said = "minCount 8 instead of 64 of worker set s3 (and minWorkersNum 124, if that is set)"
    assert said in [text for text, _ in told(world)]
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.tried < 80


def test_minWorkersNum_stays_where_a_minCount_alone_is_too_large() -> None:
    world = cluster()
    sets = [("actors", 5, WHOLE), ("critics", 5, shape(cpu=1))]
    spec = {"leader": WHOLE, "workers": sets, "minimums": {"actors": 4}}
    world.job("j", min_workers=6, **spec)
    world.cycle()
    assert told(world)[1:] == [("minCount 3 instead of 4 of worker set actors", 9)]
    job = world.job("j", min_workers=6, **{**spec, "minimums": {"actors": 3}})
    world.cycle()
    assert len(job.placements) == 9, "it does what it says"


def test_as_many_of_any_set_may_be_enough() -> None:
    world = cluster()
    world.node("n5", cpu=64, gpus=4)
    sets = [("actors", 2, WHOLE), ("critics", 3, WHOLE), ("judges", 2, shape(cpu=1, gpus=1))]
    world.job("j", leader=WHOLE, workers=sets, minimums={"actors": 2, "critics": 2})
    world.cycle()
    assert told(world)[0] == ("minWorkersNum 4 without a minCount of each set", 6)


@pytest.mark.parametrize("min_workers", [3, 5])
def test_a_gang_may_need_another_policy_and_fewer_workers(min_workers: int) -> None:
    fewer = "" if min_workers == 3 else " and minWorkersNum 3 instead of 5"
    found = few(cluster(), min_workers=min_workers, policy=GANG)
    assert found == [(f"pod policy BinPack instead of Gang{fewer}", 4)]


def test_a_gang_that_needs_no_workers_may_need_another_policy_alone() -> None:
    assert few(cluster(), policy=GANG) == [("pod policy BinPack instead of Gang", 4)]


def test_a_gang_with_minCounts_needs_fewer_of_them() -> None:
    said = f"pod policy BinPack instead of Gang and minCount 3 instead of 5 of worker set actors {IF_SET}"
    assert few(cluster(), minimums={"actors": 5}, policy=GANG) == [(said, 4)]


def test_a_set_that_others_start_after_stays_in_the_quorum() -> None:
    world = cluster()
    sets = [("actors", 3, WHOLE), ("critics", 3, WHOLE)]
    world.job("j", leader=WHOLE, workers=sets, minimums={"actors": 3, "critics": 3}, start_after={"critics": 1})
    world.cycle()
    assert told(world) == [(f"minCount 0 instead of 3 of worker set critics {IF_SET}", 4)]


def test_a_large_job_takes_few_cycles() -> None:
    world = cluster()
    job = world.job("j", leader=WHOLE, workers=9000, worker=WHOLE, minimums={"actors": 9000})
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert job.waits is not None and waiting is not None and waiting.tried < 60
    assert told(world)[0][0].startswith("minCount 3 instead of 9000 of worker set actors ")
