"""A cluster of either kind for the tests of a file, with nodes and one process that has all roles."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.e2e.collector import garbage_collector
from tests.e2e.harness import EmbeddedKube, Fleet, Kubelets, fleet, kubelets
from tests.servers import KubeServer, RealRedis, real_redis

#: The parameters of a fixture that runs its tests on both.
BOTH = ["real", "embedded"]


class Cluster(NamedTuple):
    """A running cluster and the log of its jobs."""

    kube: KubeServer
    kubelets: Kubelets
    redis: RealRedis
    fleet: Fleet

    @property
    def redis_url(self) -> str:
        return self.redis.url

    def restart_without_log(self) -> None:
        """Kill the process, lose the log, and start the process again."""
        (worker,) = self.fleet.workers.values()
        worker.kill()
        assert self.redis.command("FLUSHALL").startswith(b"+OK")
        worker.start()
        worker.wait_ready()


@contextlib.contextmanager
def cluster_of(
    request: pytest.FixtureRequest, folder: Path, *nodes: NodeTemplate, stop_s: float = 0.2, **settings: object
) -> Iterator[Cluster]:
    """The cluster that the fixture's parameter asks for; all of it ends with the tests. Its pods take `stop_s` to stop,
    and its process has these settings."""
    with contextlib.ExitStack() as stack:
        server: KubeServer
        if request.param == "real":
            server = request.getfixturevalue("kube_server")
            server.clear()  # type: ignore[attr-defined]
            stack.callback(server.clear)  # type: ignore[attr-defined]
            stack.enter_context(garbage_collector(server))
        else:
            stack.enter_context(_required())
            server = EmbeddedKube(folder)
            stack.callback(server.close)
        redis = stack.enter_context(real_redis())
        running = stack.enter_context(kubelets(server, *nodes, stop_s=stop_s))
        workers = stack.enter_context(fleet(redis_url=redis.url, kube=server, folder=folder, **settings))
        workers.start()
        yield Cluster(server, running, redis, workers)
