"""Changes of a job's own spec that would help it: labels that it selects by, and requests."""

import pytest

from arranger.model.job import GANG
from tests.unit.replay_worlds import explained
from tests.world import World, shape

HOST = "kubernetes.io/hostname"


def helps(world: World, job: str = "j", kind: str = "spec") -> list[str]:
    """The texts of the changes of a kind that help a job."""
    waiting = explained(world.entries, job).waiting
    assert waiting is not None
    return [one.text for one in waiting.remedies if one.kind == kind]


def cluster(nodes: int = 3, *, gpus: int = 8, **labels: str) -> World:
    world = World()
    for number in range(1, nodes + 1):
        world.node(f"n{number}", gpus=gpus, labels={HOST: f"n{number}", **labels})
    return world


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ({"gpu-type": "A100"}, "nodeSelector gpu-type=a100 instead of gpu-type=A100"),
        ({"gpu-typ": "a100"}, "nodeSelector gpu-type=a100 instead of gpu-typ=a100"),
        ({"gpu-type": "h200"}, "nodeSelector gpu-type=a100 instead of gpu-type=h200"),
        ({HOST: "nl"}, f"nodeSelector {HOST}=n1 instead of {HOST}=nl"),
        ({"pool": "rl"}, "nodeSelector without pool=rl"),
    ],
)
def test_a_label_that_was_probably_meant_is_named(selector: dict[str, str], said: str) -> None:
    world = cluster(**{"gpu-type": "a100"})
    world.job("j", leader=shape(gpus=1, selector=selector))
    world.cycle()
    assert said in helps(world)


def test_no_node_is_told_to_be_another_and_none_to_lose_a_label() -> None:
    world = cluster(**{"gpu-type": "a100"})
    world.job("j", leader=shape(gpus=1, selector={HOST: "n9"}))
    world.job("k", leader=shape(gpus=1, selector={"gpu-type": "h100"}))
    world.job("l", leader=shape(gpus=1, selector={"team": "rl"}))
    world.cycle()
    assert helps(world, "j", "label") == helps(world, "k", "label") == []
    assert "label n1 team=rl" in helps(world, "l", "label")


def test_what_a_node_was_labelled_before_may_come_back() -> None:
    world = cluster(1, **{"gpu-type": "h100"})
    world.node("n1", gpus=8, labels={HOST: "n1", "gpu-type": "spare"})
    world.job("j", leader=shape(gpus=1, selector={"gpu-type": "h100"}))
    world.cycle()
    assert helps(world, kind="label") == ["label n1 gpu-type=h100"]


def test_if_the_requests_of_several_groups_are_too_large_all_of_them_are_lowered() -> None:
    world = cluster()
    world.job("j", leader=shape(gpus=9), workers=2, worker=shape(gpus=9), min_workers=2)
    world.cycle()
    assert helps(world) == ["learner and actors asking for 8 nvidia.com/gpu instead of 9"]


def test_if_the_request_of_one_group_is_too_large_no_other_is_lowered() -> None:
    world = cluster()
    world.job("j", leader=shape(gpus=9), workers=2, worker=shape(gpus=8), min_workers=2)
    world.cycle()
    assert helps(world) == ["learner asking for 8 nvidia.com/gpu instead of 9"]


@pytest.mark.parametrize("policy", ["", GANG])
def test_pods_that_would_fit_if_they_shared_nodes_are_told_how_much_each_may_ask_for(policy: str) -> None:
    world = cluster(2)
    world.job("j", leader=shape(gpus=8), workers=2, worker=shape(gpus=8), min_workers=2, policy=policy)
    world.cycle()
    assert "actors asking for 4 nvidia.com/gpu instead of 8" in helps(world)


@pytest.mark.parametrize("policy", ["", GANG])
def test_of_pods_that_would_fit_on_one_node_each_is_told_how_much_it_may_ask_for(policy: str) -> None:
    world = cluster(1)
    world.job("j", leader=shape(gpus=8), workers=3, worker=shape(gpus=8), min_workers=3, policy=policy)
    world.cycle()
    assert "learner and actors asking for 2 nvidia.com/gpu instead of 8" in helps(world)


def test_nodes_that_a_job_ahead_would_take_if_there_were_more_of_them_still_help() -> None:
    world = cluster(4)
    world.job("toomany", leader=shape(gpus=8), workers=8, worker=shape(gpus=8), min_workers=8, created=1)
    world.job("j", leader=shape(gpus=9), workers=2, worker=shape(gpus=9), min_workers=2, created=2)
    world.cycle()
    assert len(helps(world, kind="node")) == 1 and helps(world, kind="node")[0].startswith("3 more nodes like n4")


def test_where_a_node_takes_no_more_pods_no_request_is_lowered() -> None:
    """`explain` failed there: no pod requests pods."""
    world = World()
    world.node("n1", cpu=8, pods=1)
    world.job("first", leader=shape(cpu=1))
    world.settle()
    world.job("j", leader=shape(cpu=1))
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and not [of for of in waiting.remedies if "asking for" in of.text]
