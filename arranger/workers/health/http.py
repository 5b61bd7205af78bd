"""Health and metrics over HTTP: `/healthz`, `/readyz` and `/metrics`, read-only, on loopback by default.

`/healthz` returns 503 when the process can't recover by itself: after the fold stopped, or a watch went silent. Any
response shows that the event loop runs. `/readyz` returns 200 only while everything this process needs is connected and
caught up. Its body lists each check with its reason.
"""

import errno
import logging
from collections.abc import Iterable

import msgspec
from aiohttp import web

from arranger.errors import UsageError
from arranger.logs import log_event, tell_malformed_requests_briefly
from arranger.metrics import Metrics

_log = logging.getLogger(__name__)

#: A connection without a whole request is closed after this time.
_REQUEST_S = 75.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition of health; `reason` says why it fails. `vital`: a failure calls for a restart. Not `needed`: the
    process does its work nevertheless, and stays ready."""

    ok: bool
    reason: str
    vital: bool
    needed: bool = True


#: An expected check before its first report.
_UNREPORTED = Check(ok=False, reason="not reported yet", vital=False)


class Health:
    """The checks that the roles of this process report. Those in `expected` are not ok until they are reported."""

    def __init__(self, expected: Iterable[str], metrics: Metrics) -> None:
        self._metrics = metrics
        self._checks = dict.fromkeys(expected, _UNREPORTED)
        self._tell()

    def set(
        self, name: str, ok: bool, reason: str = "", *, vital: bool = False, passing: bool = True, needed: bool = True
    ) -> None:
        """Report a check. Changes are logged, so the log shows when and why a process became unready.

        Not `passing`: a failure won't resolve itself while the process starts, so the first report of it is logged too.
        """
        before, check = self._checks.get(name), Check(ok, "" if ok else reason, vital, needed)
        if check == before:
            return
        self._checks[name] = check
        if before is None or before.ok != ok or (before is _UNREPORTED and not ok and not passing):
            if ok:
                log_event(_log, "check passes", check=name)
            else:
                log_event(_log, "check fails", level=logging.WARNING, check=name, reason=reason)
        self._tell()

    @property
    def ready(self) -> bool:
        return all(check.ok for check in self._checks.values() if check.needed)

    @property
    def alive(self) -> bool:
        return all(check.ok for check in self._checks.values() if check.vital)

    def checks(self, *, vital_only: bool = False) -> dict[str, Check]:
        return {name: c for name, c in sorted(self._checks.items()) if c.vital or not vital_only}

    def _tell(self) -> None:
        self._metrics.ready.set(1 if self.ready else 0)
        for name, check in self._checks.items():
            self._metrics.check.labels(name).set(1 if check.ok else 0)


class HttpServer:
    """The HTTP server of one process, which runs from `start` to `stop`."""

    def __init__(self, health: Health, metrics: Metrics, *, host: str, port: int) -> None:
        self._health = health
        self._metrics = metrics
        self._host = host
        self._asked_port = port
        #: The port that it listens on; 0 before `start`.
        self.port = 0
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._exposition)
        tell_malformed_requests_briefly()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=_REQUEST_S)

    async def start(self) -> None:
        """Listen. Raises `UsageError` if the address is unavailable."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._asked_port)
        try:
            await site.start()
        except OSError as problem:
            await self._runner.cleanup()
            raise self._unusable(problem) from problem
        self.port = self._runner.addresses[0][1]
        log_event(_log, "listening", url=f"http://{self._host}:{self.port}", paths="/healthz /readyz /metrics")

    async def stop(self) -> None:
        """Stop listening; running requests get a second to finish."""
        await self._runner.cleanup()

    def _unusable(self, problem: OSError) -> UsageError:
        if problem.errno == errno.EADDRINUSE:
            return UsageError(
                f"http_port: port {self._asked_port} of {self._host} is in use",
                hint="choose another with --http-port; 0 takes any free one",
            )
        if problem.errno == errno.EACCES:
            return UsageError(
                f"http_port: this user may not listen on port {self._asked_port}", hint="choose one above 1023"
            )
        return UsageError(
            f"http_host: can't listen on {self._host!r}: {problem.strerror or problem}",
            hint="allowed: an IP address or host name of this machine",
        )

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text="Arranger: /healthz /readyz /metrics\n")

    async def _healthz(self, request: web.Request) -> web.Response:
        return _answer(self._health.alive, self._health.checks(vital_only=True))

    async def _readyz(self, request: web.Request) -> web.Response:
        return _answer(self._health.ready, self._health.checks())

    async def _exposition(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": _METRICS_TYPE})


def _answer(ok: bool, checks: dict[str, Check]) -> web.Response:
    body = {"ok": ok, "checks": checks}
    return web.Response(
        body=msgspec.json.encode(body) + b"\n", status=200 if ok else 503, content_type="application/json"
    )
