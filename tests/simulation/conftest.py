"""The pool that runs the simulation's seeds while pytest requests one after the other."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from tests.session_end import SIMULATED
from tests.simulation.run import pool
from tests.simulation.seeds import Running

#: The simulation runs at a lower priority, because other tests depend on the response times of servers. At the lowest
#: one it would never end beside other work on the machine.
_NICENESS = 7


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    """Processes for the simulation: `JOBS`, or one per core."""
    with pool(int(os.environ.get("JOBS") or 0), niceness=_NICENESS) as processes:
        yield processes


@pytest.fixture(scope="session")
def simulated(executor: Executor, request: pytest.FixtureRequest) -> Iterator[Running]:
    """All seeds that this session's tests request."""
    asking = [item for item in request.session.items if "simulated" in getattr(item, "fixturenames", ())]
    asked = [item.callspec.params for item in asking if hasattr(item, "callspec")]
    fixed = dict.fromkeys(params["seed"] for params in asked if "seed" in params)
    running = Running(executor, fixed, sum("fresh" in params for params in asked))
    yield running
    SIMULATED.extend(running.summary())
