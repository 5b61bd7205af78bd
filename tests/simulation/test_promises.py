"""Calm worlds: every reservation with a known start is kept, and jobs behind go first without a delay."""

import pytest

from tests.simulation.calm import CALM
from tests.simulation.world import World

#: A cycle is taken each second, and its entry follows at once.
CYCLE_MS = 1_000


@pytest.mark.parametrize("seed", range(2))
def test_in_a_calm_world_every_reserved_job_starts_as_promised(seed: int) -> None:
    world = World(seed, {CALM: 1.0})
    world.run(1200)
    promises = world.oracle.promises
    assert promises.kept > 3 and promises.passed > 0, "the check is vacuous"
    assert promises.late_ms <= CYCLE_MS
    assert promises.kept > 2 * promises.void.total(), "an expectation of a calm world isn't true"
