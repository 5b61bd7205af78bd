"""A deliberately broken rule is caught: one guard at a time is turned off, and the simulation must notice."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future

import pytest

from tests.simulation.guards import GUARDS, seeds_until_caught

#: Seeds run at a lower priority than all other tests, so a result may take long.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def begun(executor: Executor) -> Iterator[dict[str, Future[tuple[int, str]]]]:
    """All guards at once, each in its own process."""
    yield {guard: executor.submit(seeds_until_caught, guard) for guard in GUARDS}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_turned_off_is_noticed(begun: dict[str, Future[tuple[int, str]]], guard: str) -> None:
    seeds, _ = begun[guard].result()
    assert seeds, f"nobody notices that {guard} isn't checked"
