"""A state says what is wrong with it, and tells the story of the job concerned."""

from collections.abc import Callable

import msgspec
import pytest

from arranger.model.job import Stage
from arranger.model.pod import Phase
from arranger.projections.consistency import InconsistentState, validate
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.run_times import JobKind
from tests.world import World


def running() -> World:
    world = World()
    world.node("n1", cpu=8)
    world.job("ppo", workers=2, min_workers=2)
    world.settle()
    validate(world.state)
    return world


def half_a_quorum(world: World) -> None:
    job = world.state.jobs["uid-ppo"]
    job.stage = Stage.PENDING
    del job.placements[LEADER], job.bound[LEADER]


def failed_unnoticed(world: World) -> None:
    uid = world.state.jobs["uid-ppo"].bound[1, 0]
    world.state.pods[uid] = msgspec.structs.replace(world.state.pods[uid], phase=Phase.FAILED)


TAMPERED: dict[str, Callable[[World], object]] = {
    "counts {'cpu': 2000": lambda world: world.state.nodes.release("n1", (("cpu", 1000),)),
    "it has ended and has slots": lambda world: setattr(world.state.jobs["uid-ppo"], "stage", Stage.FAILED),
    "it hasn't started and holds a part of its quorum": half_a_quorum,
    "pods fill slots without a node: [(0, 0)]": lambda world: world.state.jobs["uid-ppo"].placements.pop(LEADER),
    "isn't there": lambda world: world.state.pods.pop(world.state.jobs["uid-ppo"].bound[LEADER]),
    "pods count as not running in slots {}, and those are {(1, 0): <Phase.FAILED: 'Failed'>}": failed_unnoticed,
    "a pod fills two slots": lambda world: world.state.jobs["uid-ppo"].bound.update({(1, 0): "x", (1, 1): "x"}),
    "the tree of queues isn't that of the queues": lambda world: world.state.queue_tree.paths.pop("default"),
    "run times are kept of jobs without an image": lambda world: world.state.run_times.update(
        {JobKind("ann", "", ""): (1,)}
    ),
    "run times are kept of jobs without an image or a submitter": lambda world: world.state.run_times.update(
        {JobKind("ann", "default", "i"): (1,)}
    ),
    "these can't be the run times of the last jobs": lambda world: world.state.run_times.update(
        {JobKind("ann", "", "i"): (0,) * 33}
    ),
    "run times of 1001 kinds of jobs are kept": lambda world: world.state.run_times.update(
        {JobKind("ann", "", str(number)): (number,) for number in range(1001)}
    ),
    "claims another": lambda world: setattr(world.state.jobs["uid-ppo"], "attempt", 7),
    "its condition Ready": lambda world: world.state.jobs["uid-ppo"].times.turned.pop("Ready"),
}


@pytest.mark.parametrize("problem", TAMPERED)
def test_a_state_that_was_tampered_with_says_in_what(problem: str) -> None:
    world = running()
    TAMPERED[problem](world)
    with pytest.raises(InconsistentState) as raised:
        validate(world.state)
    assert problem in str(raised.value)


def test_the_story_of_the_job_concerned_is_told() -> None:
    world = running()
    world.state.jobs["uid-ppo"].stage = Stage.SUCCEEDED
    with pytest.raises(InconsistentState) as raised:
        validate(world.state)
    found = raised.value.found[0]
    assert found.job_uid == "uid-ppo" and found.story[0] == "job default/ppo, UID uid-ppo"
    assert [line.partition(": ")[2] for line in found.story[-2:]] == [
        f"Starting (Scheduled), based on {world.state.jobs['uid-ppo'].steps[0][0].based_on}",
        f"Running (WorkersReady), based on {world.state.jobs['uid-ppo'].steps[1][0].based_on}",
    ]
