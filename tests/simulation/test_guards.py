"""A deliberately broken rule is caught: one guard at a time is turned off, and the simulation must notice."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future

import pytest

from tests.session_end import SIMULATED
from tests.simulation.guard_seeds import seeds_until_noticed
from tests.simulation.guards import GUARDS

#: Seeds run at a lower priority than all other tests, so a result may take long.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def begun(executor: Executor) -> Iterator[dict[str, Future[int]]]:
    """All guards at once, each in its own process."""
    begun = {guard: executor.submit(seeds_until_noticed, guard) for guard in GUARDS}
    yield begun
    needed = {guard: future.result() for guard, future in begun.items() if future.done() and not future.cancelled()}
    more = [f"{guard} ({seeds})" for guard, seeds in needed.items() if seeds > 1]
    if more:
        SIMULATED.append(f"guards that their recorded run missed, and the seeds that they needed: {', '.join(more)}")


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_turned_off_is_noticed(begun: dict[str, Future[int]], guard: str) -> None:
    assert begun[guard].result(), f"nobody notices that {guard} isn't checked"
