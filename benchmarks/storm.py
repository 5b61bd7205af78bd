"""How long a job waits for its pods while another tenant storms, beside what the API server alone makes of that.

The measured jobs of 1+3 come one after the other, as in `latency`. The tenant (`storming`) storms in a namespace of
its own, in four ways: it has twenty TYJobs of 1.25 MB; it creates TYJobs that fit nowhere at a bounded rate; it has
10,000 of them, which name 65,000 pods; and it creates them as fast as the API server takes them. It edits 50 of them,
one every 100 ms, except for the large ones. The *bare client* is the floor: without Arranger, it makes by hand the
requests that such a job needs, one after the other, once its watch of TYJobs shows the job, under the same storms.
What its latency rises by, nobody behind the API server can help.
"""

import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import msgspec

from arranger.kube.cluster import NAMESPACES, PODS, TYJOB_STATUSES, TYJOBS, Object
from arranger.kube.manifests import pod_manifest
from benchmarks.create import ADDRESSED
from benchmarks.latency import WORKERS, arranger, waited_s
from benchmarks.parts import ApiServer, add_nodes, api_server, cpu_s, tyjob
from benchmarks.report import Figure
from benchmarks.storming import Storm
from tests.servers import real_redis

_TIMES = 2.0
#: A storm lasts this long before the first job is measured under it.
_RISES_S = 3.0
#: A part ends after so many seconds if it has measured the least number of jobs by then.
_LASTS_S = 60.0


@dataclass(frozen=True)
class Size:
    """How much of it: nodes, the most and the least measured jobs of each part, the least pause before each in seconds,
    and the storms."""

    nodes: int
    jobs: int
    least: int
    pause_s: float
    storms: tuple[Storm, ...]


@dataclass(frozen=True)
class Part:
    """The seconds that each job waited, how many TYJobs of the storm there were then, and the processors that the API
    server with etcd and Arranger used meanwhile."""

    took_s: list[float]
    stormed: int
    server_cpus: float
    own_cpus: float

    @property
    def p50_ms(self) -> float:
        """The median."""
        return 1e3 * statistics.median(self.took_s)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile."""
        return 1e3 * sorted(self.took_s)[(len(self.took_s) * 99 + 99) // 100 - 1]


def _storms(rate: float, jobs: int, large: int) -> tuple[Storm, ...]:
    return (
        Storm(name="large TYJobs", jobs=large, clients=1, bytes=1_250_000, edits=False),
        Storm(name="bounded storm", rate=rate),
        Storm(name="standing storm", jobs=jobs, workers=(5, 6)),
        Storm(name="storm"),
    )


_SIZE = Size(nodes=100, jobs=200, least=10, pause_s=0.1, storms=_storms(10.0, 10_000, 20))
_QUICK = Size(nodes=3, jobs=2, least=2, pause_s=0.1, storms=_storms(5.0, 10, 2))

#: The seconds that a job of this name takes.
_Measure = Callable[[str], Awaitable[float]]


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    return asyncio.run(_run(_QUICK if quick else _SIZE, real=not quick))


async def _run(size: Size, *, real: bool) -> list[Figure]:
    async with api_server(real=real) as api:
        await add_nodes(api.cluster, size.nodes)
        async with _watching(api) as seen:
            floor = await _parts(api, size, lambda name: _by_hand(api, name, seen))
    with real_redis() as redis:
        async with api_server(real=real) as api:
            await add_nodes(api.cluster, size.nodes)
            async with arranger(api, redis.url) as (process, watched):
                ours = await _parts(api, size, lambda name: waited_s(api, watched, name), process.pid)
    where = "real API server" if real else "embedded cluster"
    figures = _figures("a job", ours, f"jobs of 1+{WORKERS}, {where}", at_most=_TIMES)
    return figures + _figures("bare client", floor, "times the same requests by hand, without Arranger", at_most=None)


def _figures(name: str, parts: dict[str, Part], note: str, *, at_most: float | None) -> list[Figure]:
    quiet = parts["quiet"]
    figures = [
        Figure(name=f"{name}, quiet: p50", value=quiet.p50_ms, unit="ms", note=f"{len(quiet.took_s)} {note}"),
        Figure(name=f"{name}, quiet: p99", value=quiet.p99_ms, unit="ms"),
    ]
    for storm, part in list(parts.items())[1:]:
        used = f"{part.server_cpus:.2f} processors for the API server, {part.own_cpus:.2f} for Arranger"
        note = f"{len(part.took_s)} of them; {part.stormed:,} TYJobs; {used}"
        figures += [
            Figure(name=f"{name}, {storm}: p50", value=part.p50_ms, unit="ms", note=note),
            Figure(name=f"{name}, {storm}: p99", value=part.p99_ms, unit="ms"),
            Figure(name=f"{name}, {storm}: p50 to quiet", value=part.p50_ms / quiet.p50_ms, at_most=at_most),
            Figure(name=f"{name}, {storm}: p99 to quiet", value=part.p99_ms / quiet.p99_ms, at_most=at_most),
        ]
    return figures


async def _parts(api: ApiServer, size: Size, measure: _Measure, *pids: int) -> dict[str, Part]:
    """Measure without a storm, and under each of them."""
    parts: dict[str, Part] = {}
    for storm in (None, *size.storms):
        async with contextlib.AsyncExitStack() as stack:
            if storm is not None:
                await stack.enter_async_context(_raging(api, storm))
            began_s, server_s, own_s = time.monotonic(), cpu_s(*api.pids), cpu_s(*pids)
            name = "quiet" if storm is None else storm.name
            took_s = await _one_by_one(measure, name.lower().replace(" ", "-"), size)
            lasted_s = time.monotonic() - began_s
            server_cpus, own_cpus = (cpu_s(*api.pids) - server_s) / lasted_s, (cpu_s(*pids) - own_s) / lasted_s
            parts[name] = Part(took_s, await _stormed(api), server_cpus, own_cpus)
    return parts


async def _one_by_one(measure: _Measure, name: str, size: Size) -> list[float]:
    """The seconds of jobs that come at random moments, one after the other, for as long as a part may last."""
    chance, took, until_s = random.Random(1), [], time.monotonic() + _LASTS_S
    while len(took) <= size.jobs and (len(took) <= size.least or time.monotonic() < until_s):
        await asyncio.sleep(size.pause_s * (1 + 2 * chance.random()))
        took.append(await measure(f"{name}-{len(took)}"))
    return took[1:]  # the first one warms up


@contextlib.asynccontextmanager
async def _raging(api: ApiServer, storm: Storm) -> AsyncIterator[None]:
    """A storm in a namespace of its own. Large TYJobs are deleted afterwards: others' listings would have them."""
    namespace = storm.name.lower().replace(" ", "-")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await api.cluster.create(NAMESPACES, None, body)
    arguments = ("-m", "benchmarks.storming", str(api.kubeconfig), namespace, msgspec.json.encode(storm).decode())
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        if storm.jobs and not storm.bytes:
            await process.stdout.readline()
        elif not storm.bytes:
            await asyncio.sleep(_RISES_S)
        yield
        if process.returncode is not None:
            raise RuntimeError(f"the storm ended with status {process.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
    if storm.bytes:
        path = f"apis/{TYJOBS.api_version}/namespaces/{namespace}/tyjobs"
        async with api.session(1) as session, session.delete(path) as answer:
            await answer.read()


async def _stormed(api: ApiServer) -> int:
    """How many TYJobs there are."""
    async with api.session(1) as session, session.get(f"apis/{TYJOBS.api_version}/tyjobs", params={"limit": "1"}) as it:
        listing = await it.json()
    return len(listing["items"]) + int(listing["metadata"].get("remainingItemCount", 0))


# --- the bare client ---------------------------------------------------------------------------------------


class _Metadata(msgspec.Struct):
    name: str
    namespace: str


class _Watched(msgspec.Struct):
    metadata: _Metadata


class _Change(msgspec.Struct):
    type: str
    object: _Watched


@contextlib.asynccontextmanager
async def _watching(api: ApiServer) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    """Watch TYJobs, as whoever decides on them must; gives what waits until the watch shows one of this name."""
    shown: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
    path, forever = f"apis/{TYJOBS.api_version}/tyjobs", aiohttp.ClientTimeout(total=None)

    async def read(session: aiohttp.ClientSession, version: str) -> None:
        query, rest = {"watch": "1", "resourceVersion": version}, b""
        async with session.get(path, params=query, timeout=forever) as answer:
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for metadata in [msgspec.json.decode(line, type=_Change).object.metadata for line in lines]:
                    if metadata.namespace == "default":
                        shown[metadata.name].set()

    async with api.session(2) as session:
        async with session.get(path) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        reads = asyncio.create_task(read(session, version))
        try:
            yield lambda name: shown[name].wait()
        finally:
            reads.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reads


async def _by_hand(api: ApiServer, name: str, seen: Callable[[str], Awaitable[object]]) -> float:
    """The seconds for a TYJob that a watch shows, its status, its leader, the leader's address, and its workers at
    once."""
    began_s = time.monotonic()
    job = await api.cluster.create(TYJOBS, "default", tyjob(name, WORKERS))
    async with asyncio.timeout(60.0):
        await seen(name)
    starting = {"status": {"stage": "Starting", "message": "starts"}}
    await api.cluster.patch(TYJOB_STATUSES, "default", name, starting, subresource="status")
    leader = await api.cluster.create(PODS, "default", _pod(job, 0, 0))
    await api.cluster.patch(PODS, "default", leader["metadata"]["name"], ADDRESSED, subresource="status")
    workers = [api.cluster.create(PODS, "default", _pod(job, 1, index)) for index in range(WORKERS)]
    await asyncio.gather(*workers)
    return time.monotonic() - began_s


def _pod(job: Object, group: int, index: int) -> Object:
    return pod_manifest(job, group=group, index=index, attempt=0, node="node-0000", leader_address="10.0.0.1")
