"""Cases of gangs from Coscheduling's integration tests and issue threads, restated as pod groups of all kinds: the pods
may come in any order, and before or after their PodGroup."""

import random
from typing import Any, NamedTuple

import pytest

from arranger.model.pod import GroupKind, PodShape
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.unit.test_scenarios import bare_node
from tests.world import World, shape


class Gang(NamedTuple):
    """So many equal pods of a group, and how many of them are needed at once."""

    pods: int
    of: PodShape
    least: int
    priority: int = 5


class Case(NamedTuple):
    """Nodes by name, gangs in the order of their submission, and how many pods of each get nodes."""

    nodes: dict[str, dict[str, Any]]
    gangs: dict[str, Gang]
    placed: dict[str, int]


SMALL, LARGE = shape(memory=50), shape(memory=100)
ONE = {"n": {"memory": 300, "pods": 32}}
CASES = {
    "the first fits, and the second gets no part of what is left": Case(
        ONE, {"j1": Gang(3, SMALL, 3), "j2": Gang(4, LARGE, 4)}, {"j1": 3, "j2": 0}
    ),
    "the higher priority goes first": Case(
        ONE, {"low": Gang(3, LARGE, 3), "high": Gang(3, SMALL, 3, 9)}, {"low": 0, "high": 3}
    ),
    "one that doesn't fit doesn't block a later pod": Case(
        {"n1": {"cpu": 6}, "n2": {"cpu": 2}, "n3": {"cpu": 2}, "n4": {"cpu": 2}},
        {"big": Gang(6, shape(cpu=4), 6), "small": Gang(1, shape(cpu=2), 1)},
        {"big": 0, "small": 1},
    ),
    "what a failed one held is free again": Case(
        {"n1": {"cpu": 9}},
        {"g": Gang(10, shape(cpu=1), 10), "s": Gang(1, shape(cpu=9), 1)},
        {"g": 0, "s": 1},
    ),
    "two that each fit alone don't hold a half each": Case(
        {f"n{number}": {"cpu": 1} for number in range(4)},
        {"g1": Gang(3, shape(cpu=1), 3), "g2": Gang(3, shape(cpu=1), 3)},
        {"g1": 3, "g2": 0},
    ),
    "further pods fill what is left": Case(
        {"n1": {"cpu": 5}},
        {"g1": Gang(4, shape(cpu=1), 2), "g2": Gang(2, shape(cpu=1), 2)},
        {"g1": 3, "g2": 2},
    ),
}


@pytest.mark.parametrize("kind", GroupKind, ids=lambda kind: kind or "labels")
@pytest.mark.parametrize("name", CASES)
def test_gangs_of_pods_are_placed_as_gangs_of_jobs(name: str, kind: GroupKind) -> None:
    case = CASES[name]
    for seed in range(5):
        world = World()
        for node, amounts in case.nodes.items():
            bare_node(world, node, **amounts)
        _arrive(world, case, kind, random.Random(f"{name} {seed}"))
        world.cycle()
        jobs: dict[str, JobRecord] = {job.seen.name: job for job in world.state.jobs.values()}
        assert {gang: len(jobs[f"group:{gang}"].placements) for gang in case.gangs} == case.placed
        validate(world.state)


def _arrive(world: World, case: Case, kind: GroupKind, chance: random.Random) -> None:
    """The pods and the PodGroups come in an order by chance; their times of creation say who was first."""
    steps = [(gang, number) for gang, of in case.gangs.items() for number in range(of.pods)]
    steps += [(gang, -1) for gang in case.gangs] if kind else []
    chance.shuffle(steps)
    for gang, number in steps:
        of = case.gangs[gang]
        if number < 0:
            world.pod_group(gang, of.least, kind=kind)
        else:
            asked: dict[str, Any] = {"created": list(case.gangs).index(gang), "priority": of.priority}
            world.pod_to_place(f"{gang}-{number}", of=of.of, group=gang, least=of.least, group_kind=kind, **asked)
