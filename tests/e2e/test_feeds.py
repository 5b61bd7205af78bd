"""A webhook and a collector of traces learn what a real run does with a job, from `kubectl apply` to its end."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.e2e.harness import EmbeddedKube, apply, eventually, fleet, job, kubelets
from tests.servers import REPOSITORY, RealRedis

pytestmark = [pytest.mark.timeout(120), pytest.mark.real]


class Receiver(ThreadingHTTPServer):
    """A webhook that refuses every third request, and a collector of traces."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = 0
        self.events: dict[str, dict[str, Any]] = {}
        self.spans: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stages(self) -> list[str]:
        return [event["data"]["stage"] for event in self.events.values() if "stage" in event["data"]]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        status = 200
        if self.path == "/v1/traces":
            for of in ExportTraceServiceRequest.FromString(content).resource_spans:
                receiver.spans += [span for scope in of.scope_spans for span in scope.spans]
        else:
            receiver.requests += 1
            event = msgspec.json.decode(content)
            if receiver.requests % 3 == 0:
                status = 503
            else:
                receiver.events.setdefault(event["id"], event)
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def feed(redis: RealRedis, log: Path, *words: str, **environment: str) -> Iterator[None]:
    """A process of one of the commands that writes to `log`, and which has to end well."""
    argv = [sys.executable, "-m", "arranger.cli.main", *words, "--redis", redis.url, "--http-port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(argv, cwd=REPOSITORY, env={**os.environ, **environment}, stderr=errors)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_a_job_is_told_of_from_its_apply_to_its_end(redis: RealRedis, receiver: Receiver, tmp_path: Path) -> None:
    with _required():
        embedded = EmbeddedKube(tmp_path)
    logs = [tmp_path / name for name in ("webhook.log", "traces.log")]
    with (
        contextlib.closing(embedded),
        kubelets(embedded, NodeTemplate("n1", cpu="64")),
        fleet(redis_url=redis.url, kube=embedded, folder=tmp_path) as workers,
        feed(redis, logs[0], "webhook", f"{receiver.url}/events"),
        feed(redis, logs[1], "traces", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_BSP_SCHEDULE_DELAY="100"),
    ):
        workers.start(("watcher", "controller", "scheduler", "applier"))
        eventually("the webhook hears where it begins", lambda: len(receiver.events) == 1)
        eventually("both follow the log", lambda: all("check passes" in log.read_text() for log in logs))
        apply(embedded, job("train", workers=2, run_s=1))
        eventually("the webhook hears of the end", lambda: receiver.stages()[-1:] == ["Succeeded"])
        spans = eventually("the trace is whole", lambda: receiver.spans if len(receiver.spans) >= 10 else None)
    assert receiver.stages() == ["Pending", "Starting", "Running", "Succeeded"]
    assert {event["subject"] for event in list(receiver.events.values())[1:]} == {"default/train"}
    assert len({span.trace_id for span in spans}) == 1
    (root,) = [span for span in spans if not span.parent_span_id]
    assert all(root.start_time_unix_nano <= span.start_time_unix_nano for span in spans)
