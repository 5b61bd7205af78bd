"""The pool that runs the simulation's seeds while pytest asks for one after the other, and what the summary says."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from tests.simulation.run import pool
from tests.simulation.seeds import Running

_SUMMARY: list[str] = []


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    """Processes for the simulation: as many as `JOBS` says, or as there are cores."""
    with pool(int(os.environ.get("JOBS") or 0)) as processes:
        yield processes


@pytest.fixture(scope="session")
def simulated(executor: Executor, request: pytest.FixtureRequest) -> Iterator[Running]:
    """All seeds that this session's tests ask for."""
    asking = [item for item in request.session.items if "simulated" in getattr(item, "fixturenames", ())]
    seeds = dict.fromkeys(item.callspec.params["seed"] for item in asking if hasattr(item, "callspec"))
    running = Running(executor, seeds)
    yield running
    _SUMMARY.extend(running.summary())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the fresh seeds, also when all passed: nobody knows them otherwise."""
    if _SUMMARY:
        terminalreporter.section("simulation")
        for line in _SUMMARY:
            terminalreporter.write_line(line)
