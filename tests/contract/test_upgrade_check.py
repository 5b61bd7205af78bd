"""`arranger upgrade-check` on a real Redis and a real API server."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import arranger
from arranger.events.redis_log import RedisLog
from arranger.projections.formats.layouts import LAYOUT
from tests.commands import Run
from tests.members import connected, member
from tests.servers import RealKube, RealRedis
from tests.unit.tyjob_table import tyjob

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


async def begun(server: RealRedis, cluster: str, layouts: tuple[int, ...], version: str) -> None:
    """A log, and a process for each layout that has sent a heartbeat."""
    log = RedisLog(server.url, cluster)
    await log.open()
    await log.close()
    async with connected(server) as client:
        for layout in layouts:
            joined = member(client, cluster, f"reads-{layout}")
            joined._told = msgspec.structs.replace(joined._told, layout=layout, version=version)
            await joined.join()


@pytest.mark.parametrize(
    ("layouts", "version", "told"),
    [
        ((LAYOUT,), arranger.__version__, []),
        ((LAYOUT - 1, LAYOUT), "0.0.9", ["an earlier layout run: reads-", "other releases run (0.0.9)"]),
        ((LAYOUT + 1,), "", ["a later layout run: reads-", "other releases run (unknown)"]),
    ],
)
def test_processes_of_other_releases_are_named(
    redis_server: RealRedis, cluster: str, capsys: pytest.CaptureFixture[str],
    layouts: tuple[int, ...], version: str, told: list[str],
) -> None:  # fmt: skip
    asyncio.run(begun(redis_server, cluster, layouts, version))
    done = Run(capsys, "upgrade-check", "--log", redis_server.url, "--cluster", cluster)
    assert done.status == 0
    assert [words in done.out for words in told] == [True] * len(told)
    assert done.out.count(" run: ") + done.out.count("releases run (") == len(told)


def check(capsys: pytest.CaptureFixture[str], redis: RealRedis, cluster: str, kubeconfig: Path) -> Any:
    words = ("--log", redis.url, "--cluster", cluster, "--with-cluster", "--kubeconfig", str(kubeconfig))
    return Run(capsys, "upgrade-check", *words, "-o", "json")


def test_the_definitions_that_a_real_server_stores_are_current_and_its_jobs_are_read(
    kube_server: RealKube, redis_server: RealRedis, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(begun(redis_server, cluster, (LAYOUT,), arranger.__version__))
    # Another test's job on the same server may have a status that can't be read.
    kube_server.clear()
    namespace = kube_server.fresh_namespace()
    kube_server.request("POST", f"/apis/arranger.dev/v1/namespaces/{namespace}/tyjobs", tyjob())
    done = check(capsys, redis_server, cluster, kube_server.kubeconfig)
    assert [found["verdict"] for found in done.json["definitions"]] == ["current"] * 3
    assert done.json["statuses"] == {"jobs": 1, "unreadable": 0, "problems": []}
    assert done.status == 0 and done.json["well"]


def test_who_may_not_read_definitions_is_told_so(
    kube_server: RealKube, redis_server: RealRedis, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(begun(redis_server, cluster, (), ""))
    done = check(capsys, redis_server, cluster, kube_server.stranger_kubeconfig)
    assert done.status == 1 and "customresourcedefinitions" in done.err
