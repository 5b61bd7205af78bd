"""Row E3: an API server of which a part of the requests fails or is cut: jobs go on, and their ends are soon seen."""

import contextlib
import json
import random
import ssl
import time
from collections import Counter
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import LoopThread, job
from tests.servers import free_port
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import Programs, Stream, percentile
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(4)]
#: The most that half of the jobs may wait for their pods, and the longest that an ended leader may show Running.
P50_S, ENDED_S = 4.0, 30.0
#: Headers that belong to one connection.
_HOP = ("connection", "transfer-encoding", "content-length", "content-encoding", "host", "keep-alive")


class FlakyApi:
    """A proxy to an API server. It answers a part of the requests with an error (half of them after they had their
    effect), and cuts another part. Clients speak plain HTTP to it."""

    def __init__(self, target: str, tls: ssl.SSLContext, *, seed: int = 7) -> None:
        self.port = free_port()
        #: The parts of the requests that fail and that are cut.
        self.fails, self.cuts = 0.0, 0.0
        self.outcomes: Counter[str] = Counter()
        self._target = target
        self._tls = tls
        self._random = random.Random(seed)
        self._thread = LoopThread()

    def __enter__(self) -> "FlakyApi":
        self._thread.call(self._open())
        return self

    def __exit__(self, *of_error: object) -> None:
        self._thread.call(self._close())
        self._thread.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        drawn = self._random.random()
        fate = "fails" if drawn < self.fails else "cut" if drawn < self.fails + self.cuts else "passes"
        self.outcomes[fate] += 1
        if fate != "passes":
            if self._random.random() < 0.5:
                async with self._forward(request, await request.read()):
                    pass
            if fate == "cut" and request.transport is not None:
                request.transport.abort()
            failure = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": 500,
                "reason": "InternalError",
            }
            return web.Response(status=500, text=json.dumps({**failure, "message": "etcdserver: request timed out"}))
        async with self._forward(request, await request.read()) as found:
            answer = web.StreamResponse(status=found.status, headers=_kept(found.headers))
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):  # either side may go
                await answer.prepare(request)
                async for chunk in found.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
            return answer

    def _forward(self, request: web.Request, body: bytes) -> "aiohttp.client._RequestContextManager":
        return self._session.request(
            request.method, self._target + request.raw_path, data=body or None, headers=_kept(request.headers)
        )


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}


def flaky_api(
    lab: Lab,
    *,
    fails: float = 0.3,
    cuts: float = 0.1,
    lasts_s: float = 90.0,
    every_s: float = 1.0,
    settings: Mapping[str, object] | None = None,
    timed: bool = True,
) -> Verdict:
    """For `lasts_s`, these parts of all requests fail and are cut, while a tenant creates a job every `every_s`.
    Measure how long jobs wait for their pods, and how long ended leaders show Running."""
    found = Verdict("E3", "API server that fails now and then")
    tls = ssl.create_default_context(cafile=str(lab.kube.ca_file))
    with (
        FlakyApi(lab.kube.server, tls) as api,
        scene(lab, nodes=NODES, settings=settings) as there,
    ):
        there.start("watcher", "decider", "applier", api_url=api.url)
        with Programs(lab.kube, there.history, work_s=0.5):
            stream = Stream(lab.kube, "default", lambda name: job(name, workers=2), every_s=every_s, pods=3, prefix="s")
            stream.start()
            time.sleep(5.0)
            began_s = time.monotonic()
            api.fails, api.cuts = fails, cuts
            time.sleep(lasts_s)
            api.fails, api.cuts = 0.0, 0.0
            ended_s = time.monotonic()
            stream.stop()
            within(lambda: len(_shown(there)[1]) >= len(stream.asked), within_s=90, every_s=0.5)
        waits = [wait for wait in stream.waits(there.history) if began_s <= wait.asked_s < ended_s]
        lasted = [wait.lasted_s(time.monotonic()) for wait in waits]
        ends, shown = _shown(there)
        late = [shown.get(name, time.monotonic()) - at for name, at in ends.items()]
        found.told(
            jobs=len(waits), p50_s=percentile(lasted, 50), p99_s=percentile(lasted, 99),
            ended_p50_s=percentile(late, 50), ended_longest_s=max(late, default=0.0),
            **{f"requests_{fate}": count for fate, count in sorted(api.outcomes.items())},
        )  # fmt: skip
        found.expect(len(shown) >= len(stream.asked), f"{len(stream.asked) - len(shown)} jobs didn't come to their end")
        if timed:
            found.expect(percentile(lasted, 50) <= P50_S, f"p50 is more than {P50_S:.0f} s")
            found.expect(max(late, default=0.0) <= ENDED_S, f"an ended leader showed Running for {max(late):.0f} s")
        found.faults += there.tracebacks()
    return found


def _shown(there: Scene) -> tuple[dict[str, float], dict[str, float]]:
    """By job: when its leader had succeeded, and when its status said so."""
    ends: dict[str, float] = {}
    shown: dict[str, float] = {}
    for event in there.history.since(0):
        status = event.object.get("status") or {}
        labels = event.object["metadata"].get("labels") or {}
        if event.kind == "pod" and labels.get("arranger.dev/role") == "leader" and status.get("phase") == "Succeeded":
            ends.setdefault(labels["arranger.dev/job"], event.at)
        if event.kind == "job" and status.get("stage") == "Succeeded":
            shown.setdefault(event.name, event.at)
    return ends, shown
