"""When certificates expire, as a process reads it from real servers with TLS."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arranger.clock import SystemClock
from arranger.events.redis_connection import connect
from arranger.kube.client import HttpCluster
from arranger.kube.config import find_access
from arranger.metrics import Metrics
from arranger.workers.flow.cancelling import end
from arranger.workers.health.certificates import Certificates as Looks
from tests.conftest import _required
from tests.parts import parts
from tests.sentinels import watched_redis
from tests.servers import Certificates, RealKube, RealRedis, TlsFront, free_port


class Turning(SystemClock):
    """A clock whose sleeper is woken by hand."""

    def __init__(self) -> None:
        self.asleep, self.woken = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.woken.clear()
        self.asleep.set()
        await self.woken.wait()

    async def turn(self) -> None:
        """Let the next look happen."""
        self.asleep.clear()
        self.woken.set()
        await self.asleep.wait()


def made(folder: Path, *, days: int) -> Certificates:
    folder.mkdir()
    return Certificates(folder, days=days)


@pytest.fixture
def front(redis_server: RealRedis, tmp_path: Path) -> Iterator[TlsFront]:
    """A Redis with TLS whose certificate expires in three days."""
    certificates = made(tmp_path / "old", days=3)
    front = TlsFront(certificates, port=free_port(), target_port=redis_server.port)
    yield front
    front.close()


def days_left(metrics: Metrics) -> Callable[[str], float | None]:
    def of(name: str) -> float | None:
        at_s = metrics.registry.get_sample_value(
            "arranger_certificate_expiration_timestamp_seconds", {"certificate": name}
        )
        return at_s and round((at_s - time.time()) / 86_400, 2)

    return of


async def test_a_renewed_certificate_is_seen_although_connections_stay_open(front: TlsFront, tmp_path: Path) -> None:
    newer = made(tmp_path / "new", days=20)
    both = tmp_path / "both.crt"
    both.write_bytes((tmp_path / "old" / "ca.crt").read_bytes() + newer.ca_file.read_bytes())
    client, clock = connect(f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={both}"), Turning()
    of = parts(redis=client, clock=clock)
    left = days_left(of.metrics)
    assert await client.ping()
    looking = asyncio.create_task(Looks(of).run())
    await clock.asleep.wait()
    assert (left("redis"), left("sentinel"), left("api-server")) == (3, None, None)
    front.renew(newer)
    await clock.turn()
    assert left("redis") == 20
    front.close()  # nothing answers: what is known stays
    await clock.turn()
    assert left("redis") == 20 and not looking.done()
    await end([looking])
    await client.aclose()


async def looked(of: str, **given: object) -> float | None:
    """The days that are left, after one look."""
    clock = Turning()
    made = parts(clock=clock, **given)
    looking = asyncio.create_task(Looks(made).run())
    await clock.asleep.wait()
    await end([looking])
    return days_left(made.metrics)(of)


async def test_without_tls_or_without_verification_nothing_is_reported(
    front: TlsFront, redis_server: RealRedis
) -> None:
    lax = f"rediss://127.0.0.1:{front.port}/0?ssl_cert_reqs=none&ssl_check_hostname=false"
    for url in (redis_server.url, lax):
        client = connect(url)
        assert await client.ping()
        assert await looked("redis", redis=client) is None
        await client.aclose()


async def test_the_certificates_of_the_primary_and_of_the_sentinels_are_reported() -> None:
    with _required(), watched_redis() as group:
        client = connect(group.url(tls=True))
        assert await looked("redis", redis=client) == await looked("sentinel", redis=client) == 30
        await client.aclose()


async def test_the_certificate_of_the_api_server_is_reported(kube_server: RealKube, redis_server: RealRedis) -> None:
    cluster, client = HttpCluster(find_access(str(kube_server.kubeconfig), None)), connect(redis_server.url)
    assert await looked("api-server", redis=client, cluster=cluster) == pytest.approx(30, abs=1)
    await client.aclose()
    await cluster.close()
