"""The whole system in simulation: fixed seeds with all faults, the same trace twice, and every fault site hit."""

from collections import Counter

import pytest

from tests.simulation.faults import SITES
from tests.simulation.invariants import Violation
from tests.simulation.run import told
from tests.simulation.world import World

#: Seeds that run on every `make test`, and how long each runs with faults.
SEEDS = range(60)
STEPS = 1000

_HITS: Counter[str] = Counter()


def run(seed: int, steps: int = STEPS) -> str:
    """One seed; the digest of its trace."""
    world = World(seed)
    try:
        return world.run(steps)
    except Violation as violation:
        pytest.fail(told(world, violation), pytrace=False)
    finally:
        _HITS.update(world.faults.hits)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_is_safe_while_faults_last_and_well_after_they_stop(seed: int) -> None:
    run(seed)


def test_every_fault_site_is_hit_by_the_fixed_seeds(request: pytest.FixtureRequest) -> None:
    ran = sum("test_all_is_safe" in item.name for item in request.session.items)
    if ran < len(SEEDS):
        pytest.skip("needs all fixed seeds in the same run")
    assert [site for site in SITES if not _HITS[site]] == []


def test_one_seed_gives_the_same_trace_twice() -> None:
    assert run(3, 600) == run(3, 600)


def test_two_seeds_give_different_traces() -> None:
    assert run(3, 200) != run(4, 200)
