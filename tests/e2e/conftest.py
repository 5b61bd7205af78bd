"""Fixtures of the end-to-end tests: a separate Redis, and an API server without objects of other tests."""

from collections.abc import Iterator

import pytest

from tests.conftest import _required
from tests.servers import RealKube, RealRedis, real_redis


@pytest.fixture
def redis() -> Iterator[RealRedis]:
    """A real Redis for this test only, which may stop and empty it. Its data survives a stop."""
    with _required(), real_redis(appendonly=True) as server:
        yield server


@pytest.fixture
def kube(kube_server: RealKube) -> Iterator[RealKube]:
    """The session's real API server without any job, pod or node."""
    kube_server.clear()
    yield kube_server
    kube_server.clear()
