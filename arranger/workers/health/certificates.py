"""Looks now and then when the certificates of Redis, its Sentinels and the API server expire, for the metrics."""

import logging
from collections.abc import Sequence

from arranger.errors import ArrangerError
from arranger.events.redis_connection import tls_sentinels, tls_server
from arranger.kube.client import HttpCluster
from arranger.logs import log_event
from arranger.tls import TlsServer, expiry_s
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

#: How often certificates are looked at. The alert on a certificate goes so soon after its renewal.
_EVERY_S = 600.0


class Certificates:
    """Keeps the metric of the certificates that this process relies on."""

    def __init__(self, parts: Parts) -> None:
        self._redis = parts.redis
        self._cluster = parts.cluster
        self._expires = parts.metrics.certificate_expires
        self._clock = parts.clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for name in ("redis", "sentinel", "api-server"):
                await self._look(name)
            await self._clock.sleep(_EVERY_S)

    async def _look(self, name: str) -> None:
        """Report which of these servers' certificates expires first, and when. If one can't be reached or has expired,
        the last value stays; the checks of the process say what it can't reach."""
        try:
            found = [await expiry_s(server) for server in await self._servers(name)]
        except (ArrangerError, OSError):
            return
        except Exception as problem:  # a defect of the metrics must not end the process
            log_event(_log, "a look at a certificate failed", level=logging.ERROR, of=name, exc_info=problem)
            return
        if known := [at_s for at_s in found if at_s is not None]:
            self._expires.labels(name).set(min(known))

    async def _servers(self, name: str) -> Sequence[TlsServer]:
        if name == "sentinel":
            return tls_sentinels(self._redis)
        if name == "redis":
            server = await tls_server(self._redis)
        else:
            server = await self._cluster.tls_server() if isinstance(self._cluster, HttpCluster) else None
        return () if server is None else (server,)
