"""Health and metrics as a kubelet and Prometheus see them."""

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest

from arranger.clock import SystemClock
from arranger.errors import UsageError
from arranger.metrics import Metrics
from arranger.workers.health import http
from arranger.workers.health.http import Health, HttpServer


class SteppedClock(SystemClock):
    """A monotonic clock that moves when told to."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def monotonic_s(self) -> float:
        return self.at_s


@contextlib.asynccontextmanager
async def serving(health: Health, metrics: Metrics) -> AsyncIterator[HttpServer]:
    server = HttpServer(health, metrics, host="127.0.0.1", port=0)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def get(server: HttpServer, path: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    return await asyncio.to_thread(fetch)


async def test_a_process_is_ready_when_everything_it_expects_has_reported() -> None:
    metrics = Metrics(SystemClock())
    health = Health(["redis", "api"], metrics)
    async with serving(health, metrics) as server:
        status, body = await get(server, "/readyz")
        assert status == 503
        assert json.loads(body)["checks"]["api"] == {"ok": False, "reason": "not reported yet", "vital": False}
        health.set("redis", True)
        health.set("api", False, "connection refused")
        status, body = await get(server, "/readyz")
        assert (status, json.loads(body)["checks"]["api"]["reason"]) == (503, "connection refused")
        health.set("api", True)
        status, body = await get(server, "/readyz")
        assert (status, json.loads(body)["ok"]) == (200, True)


async def test_losing_redis_makes_a_process_unready_but_not_dead() -> None:
    metrics = Metrics(SystemClock())
    health = Health([], metrics)
    health.set("redis", False, "connection refused")
    async with serving(health, metrics) as server:
        assert (await get(server, "/readyz"))[0] == 503
        assert (await get(server, "/healthz"))[0] == 200


async def test_a_stopped_fold_makes_a_process_dead_with_its_reason() -> None:
    metrics = Metrics(SystemClock())
    health = Health([], metrics)
    async with serving(health, metrics) as server:
        health.set("fold", False, "log entry at offset 7 can't be read", vital=True)
        status, body = await get(server, "/healthz")
        assert status == 503
        assert json.loads(body)["checks"]["fold"]["reason"] == "log entry at offset 7 can't be read"


async def test_metrics_are_in_prometheus_format() -> None:
    clock = SteppedClock()
    metrics = Metrics(clock)
    metrics.lag("controller", events=3, seconds=0.5)
    metrics.events.labels("PodSeen").inc(4)
    metrics.decisions.labels("Placed", "accepted").inc()
    metrics.request(verb="create", resource="pods", code=201, seconds=0.004)
    metrics.heard("pod")
    clock.at_s += 12
    async with serving(Health([], metrics), metrics) as server:
        status, body = await get(server, "/metrics")
    assert status == 200
    lines = set(body.splitlines())
    assert {
        'arranger_lag_events{reader="controller"} 3.0',
        'arranger_events_appended_total{kind="PodSeen"} 4.0',
        'arranger_decisions_folded_total{kind="Placed",verdict="accepted"} 1.0',
        'arranger_api_requests_total{code="201",resource="pods",verb="create"} 1.0',
        'arranger_watch_heard_age_seconds{kind="pod"} 12.0',
        "arranger_ready 1.0",
    } <= lines


async def test_a_watch_given_up_tells_no_age() -> None:
    metrics = Metrics(SteppedClock())
    metrics.heard("pod")
    metrics.forget("pod")
    assert metrics.heard_age_s("pod") is None
    assert b'arranger_watch_heard_age_seconds{kind="pod"}' not in metrics.exposition()


async def test_a_port_in_use_is_one_clear_line() -> None:
    metrics = Metrics(SystemClock())
    async with serving(Health([], metrics), metrics) as first:
        second = HttpServer(Health([], metrics), metrics, host="127.0.0.1", port=first.port)
        with pytest.raises(UsageError, match=rf"http_port: port {first.port} of 127.0.0.1 is in use .*--http-port"):
            await second.start()


async def test_a_foreign_address_is_one_clear_line() -> None:
    metrics = Metrics(SystemClock())
    server = HttpServer(Health([], metrics), metrics, host="192.0.2.1", port=0)
    with pytest.raises(UsageError, match=r"http_host: can't listen on '192.0.2.1'"):
        await server.start()


def test_a_check_that_fails_at_its_first_report_is_logged_if_it_wont_pass_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    health = Health(["log", "clock"], Metrics(SystemClock()))
    health.set("log", False, "not connected yet")
    assert not caplog.records
    health.set("clock", False, "an hour ahead", passing=False)
    health.set("clock", False, "two hours ahead", passing=False)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", "check fails")]


async def test_half_a_request_is_closed_and_keeps_no_whole_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_S", 0.5)
    async with serving(Health([], Metrics(SystemClock())), Metrics(SystemClock())) as server:
        halves = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(50)]
        for _, writer in halves[1:]:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: ")
        assert (await get(server, "/readyz"))[0] == 200
        async with asyncio.timeout(30):
            assert [await reader.read() for reader, _ in halves] == [b""] * len(halves)
        for _, writer in halves:
            writer.close()
