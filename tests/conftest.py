"""Fixtures that all tests share: real servers, and coroutine tests that asyncio runs."""

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from arranger.cli.inputs import start_forecast
from arranger.projections import snapshot
from arranger.projections.state import Changes, State
from arranger.replay.what_if import hypothesis as supposing
from arranger.web import starts
from tests.depth import extent
from tests.oracle.judging import Oracle, oracle
from tests.servers import (
    RealKube,
    RealRedis,
    ServersUnavailable,
    in_ci,
    oracle_binary,
    prometheus_binary,
    real_kube,
    real_redis,
)
from tests.session_end import hand_over, take_over, tell

REAL_FIXTURES = {"redis_server", "own_redis", "kube_server", "promtool", "prometheus", "scheduler_oracle"}
_FIRST = (
    "tests/simulation/test_simulation",
    "tests/simulation/test_guards",
    "tests/e2e/test_kubectl_life",
    "tests/e2e/test_operator_trial",
    "tests/e2e/test_recipes",
    "tests/e2e/test_chaos",
    "tests/e2e/",
    "tests/simulation/",
    "tests/contract/",
)

#: Files with long tests that share no servers but those of the worker.
_ALONE = ("tests/e2e/test_operator_trial", "tests/e2e/test_trouble", "tests/unit/test_benchmarks")

# How long an example takes says nothing on a busy machine.
hypothesis.settings.register_profile("house", deadline=None, max_examples=extent(100, soak=1000))
hypothesis.settings.load_profile("house")


def pytest_configure() -> None:
    """Make the output independent of the terminal in which the tests run."""
    os.environ.pop("COLUMNS", None)
    # The API servers, etcd and kubectl are Go programs. With less garbage collection, for some hundred MB a server, an
    # idle API server takes 2.7 % of a processor instead of 3.7 %, and starts with a seventh less of its time.
    os.environ.setdefault("GOGC", "400")
    # A process of Arranger starts in a fifth less of its time if OpenBLAS starts no threads, and OpenSSL doesn't read
    # all public authorities, which nothing here trusts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("SSL_CERT_FILE", os.devnull)
    # The modules and the thousands of tests that are collected stay: no collection of garbage needs to look at them.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use a real server. Workers of pytest-xdist begin with the simulation and its guards, whose
    processes have a lower priority than all others and use the time in which these wait, and with the tests that take
    longest."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((at for at, each in enumerate(_FIRST) if each in item.nodeid), len(_FIRST)))
    for item in items:
        if REAL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("real")


class _ByCluster(LoadFileScheduling):
    """Gives a worker of pytest-xdist the tests of a file together, but those of each kind of cluster apart: they share
    nothing. Of files whose tests share nothing at all, it gives each test alone."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_ALONE):
            return nodeid
        return nodeid.partition("::")[0] + next((kind for kind in ("[real", "[embedded") if kind in nodeid), "")

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker that has ended; returns the test that ended it. pytest-xdist would run that test again and
        again, in each worker that takes the place of the last one."""
        units = self.assigned_work[node]
        left = [(unit, test) for unit in units.values() for test, complete in unit.items() if not complete]
        if left:
            unit, crashed = left[0]
            unit[crashed] = True
        for scope in [scope for scope, unit in units.items() if all(unit.values())]:
            del units[scope]
        super().remove_node(node)
        return left[0][1] if left else None

    def schedule(self) -> None:
        """Distribute the tests, also to a worker that takes another one's place. A worker runs the last test that it
        has once it knows that no other comes, which pytest-xdist doesn't tell such a worker."""
        super().schedule()
        for node in self.nodes if not self.workqueue else ():
            if not node.shutting_down:
                node.shutdown()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByCluster:
    return _ByCluster(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests, each in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    hand_over(session)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Called when a worker of pytest-xdist has ended."""
    take_over(node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tell(terminalreporter)


@contextlib.contextmanager
def _required() -> Iterator[None]:
    """Turns a missing real server into a loud skip, or into a failure with CI=true."""
    try:
        yield
    except ServersUnavailable as error:
        if in_ci():
            pytest.fail(f"NO REAL SERVER: {error}", pytrace=False)
        pytest.skip(f"NO REAL SERVER: {error}")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast for which somebody waits is given up after a moment. How far it comes by then depends on the machine,
    and what a test sees must not."""
    for module in (start_forecast, starts):
        monkeypatch.setattr(module, "_LIMIT_S", 60.0)


#: A state with more jobs than that isn't compared: encoding it takes too long.
_COMPARED = 40


@pytest.fixture(autouse=True)
def hypotheses_are_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is folded into a hypothesis changes nothing of the state that it is about: a process that goes on with that
    would judge later decisions otherwise than all others. The two share all that the events aren't known to touch."""
    fork, fold = supposing._fork, supposing._fold
    last: list[tuple[State, State, bytes]] = []

    def forked(state: State, *args: Any, **words: Any) -> State:
        copied = fork(state, *args, **words)
        last[:] = [(copied, state, snapshot.encode(state))] if len(state.jobs) <= _COMPARED else []
        return copied

    def folded(state: State, *args: Any) -> Changes:
        changes = fold(state, *args)
        for copied, original, content in last:
            assert copied is not state or snapshot.encode(original) == content
        return changes

    monkeypatch.setattr(supposing, "_fork", forked)
    monkeypatch.setattr(supposing, "_fold", folded)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Remove the handlers that a command sets for its process. The next test would log to the streams of this one,
    which are closed: for each message `logging` then prints a traceback."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler and one not in before]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def promtool() -> Path:
    """The tool that checks rules of Prometheus."""
    with _required():
        return prometheus_binary("promtool")


@pytest.fixture
def scheduler_oracle() -> Iterator[Oracle]:
    """kube-scheduler's own filters."""
    with _required(), oracle(oracle_binary()) as scheduler:
        yield scheduler


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RealRedis]:
    """A real Redis without password or TLS, shared by the session: use a separate database or separate keys."""
    with _required(), real_redis() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RealRedis]:
    """A real Redis for one test, which may stop, fill and empty it; a stop loses its data."""
    with _required(), real_redis() as server:
        yield server


@pytest.fixture
def cluster() -> str:
    """The name of a cluster for which no other test has keys in the shared Redis."""
    return f"c{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def kube_server() -> Iterator[RealKube]:
    """A real API server with the TYJob definition, shared by the session: use `fresh_namespace()` or `clear()`."""
    with _required(), real_kube() as server:
        server.install_crd()
        yield server
