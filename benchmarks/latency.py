"""How long a job waits from its creation until all of its pods have nodes.

In a quiet cluster, one job after the other; and in a full one, where 2,000 jobs wait for GPUs that other pods hold, and
the measured jobs ask for none. Time counts from the request that creates the TYJob until a watch has shown the last of
its pods, which have their nodes from the beginning. Leaders, and nobody else, get an address (see `create`).
"""

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import msgspec

from arranger.kube.cluster import PODS, TYJOBS, Object
from benchmarks.create import ADDRESSED, IN_FLIGHT, MIX, apply, clear, pods_version, post_pods, watch_pods
from benchmarks.parts import ApiServer, WorkerProcess, add_nodes, api_server, tyjob, workers
from benchmarks.report import Figure
from tests.servers import real_redis

WORKERS = 3
_GPUS = 8
_LIMIT_S = 60.0
#: A calm system uses less than this share of one processor, in each second.
_CALM = 0.15
_SETTLE_LIMIT_S = 300.0


@dataclass(frozen=True)
class Size:
    """How much of it."""

    nodes: int
    jobs: int
    waiting: int
    #: The least pause before each job, and for how long the system must be calm before the next part, in seconds.
    pause_s: float
    calm_s: int


_SIZE = Size(nodes=1_000, jobs=50, waiting=2_000, pause_s=0.5, calm_s=3)
_QUICK = Size(nodes=5, jobs=2, waiting=5, pause_s=0.1, calm_s=1)


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    size = _QUICK if quick else _SIZE
    return asyncio.run(_run(size, real=not quick))


async def _run(size: Size, *, real: bool) -> list[Figure]:
    with real_redis() as redis:
        async with api_server(real=real) as api:
            names = await add_nodes(api.cluster, size.nodes, gpus=_GPUS)
            async with arranger(api, redis.url) as (process, watched):
                quiet = await _one_by_one(api, watched, "quiet", size)
                async with api.session(IN_FLIGHT) as session:
                    await post_pods(session, [msgspec.json.encode(_filler(name)) for name in names])
                await apply(api, [tyjob(f"waiting-{number}", WORKERS, gpus=1) for number in range(size.waiting)])
                settled_s = await _settled(process, size.calm_s)
                full = await _one_by_one(api, watched, "full", size)
            await clear(api)
    where = "real API server" if real else "embedded cluster"
    what = f"{size.jobs} jobs of 1+{WORKERS}, {size.nodes:,} nodes, {where}"
    beside = f"{size.waiting:,} jobs wait for GPUs"
    return [
        *_figures("one job in a quiet cluster", quiet, what, p50_ms=60.0, p99_ms=250.0),
        Figure(name="until a full cluster is calm", value=settled_s, unit="s", note=beside),
        *_figures("one job in a full cluster", full, beside, p50_ms=None, p99_ms=1000.0),
    ]


def _figures(name: str, took_s: list[float], note: str, *, p50_ms: float | None, p99_ms: float) -> list[Figure]:
    ordered = sorted(took_s)
    p99 = ordered[(len(ordered) * 99 + 99) // 100 - 1]
    return [
        Figure(name=f"{name}: p50", value=1e3 * statistics.median(ordered), unit="ms", at_most=p50_ms, note=note),
        Figure(name=f"{name}: p99", value=1e3 * p99, unit="ms", at_most=p99_ms),
    ]


# --- jobs, one after the other -----------------------------------------------------------------------------


@dataclass
class Watched:
    """When the pods of each job were seen first, by the job's name."""

    seen_s: dict[str, list[float]] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.asynccontextmanager
async def arranger(api: ApiServer, redis_url: str) -> AsyncIterator[tuple[WorkerProcess, Watched]]:
    """A process with all roles, and a watch of its pods that gives leaders their addresses."""
    async with workers(MIX, redis_url=redis_url, kubeconfig=api.kubeconfig) as (process,), api.session(8) as session:
        await process.ready()
        watched = Watched()
        watch = asyncio.create_task(_watch(api, session, await pods_version(session), watched))
        try:
            yield process, watched
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch


async def _watch(api: ApiServer, session: aiohttp.ClientSession, version: str, watched: Watched) -> None:
    addressing: set[asyncio.Task[Object]] = set()
    async with contextlib.aclosing(watch_pods(session, version, {"labelSelector": "arranger.dev/role"})) as lines:
        async for line in lines:
            if line.startswith(b'{"type":"ADDED"'):
                now_s, metadata = time.monotonic(), msgspec.json.decode(line)["object"]["metadata"]
                watched.seen_s.setdefault(metadata["labels"]["arranger.dev/job"], []).append(now_s)
                watched.news.set()
                if metadata["labels"]["arranger.dev/role"] == "leader":
                    patch = api.cluster.patch(PODS, "default", metadata["name"], ADDRESSED, subresource="status")
                    task = asyncio.create_task(patch)
                    addressing.add(task)
                    task.add_done_callback(addressing.discard)


async def _one_by_one(api: ApiServer, watched: Watched, name: str, size: Size) -> list[float]:
    """Seconds that each of these jobs waited, created at random moments, one after the other."""
    chance, took = random.Random(1), []
    for number in range(size.jobs + 1):
        await asyncio.sleep(size.pause_s * (1 + 2 * chance.random()))
        took.append(await waited_s(api, watched, f"{name}-{number}"))
    return took[1:]  # the first one warms up


async def waited_s(api: ApiServer, watched: Watched, job: str) -> float:
    """Seconds from the creation of a job of this name until all of its pods were seen."""
    began_s = time.monotonic()
    await api.cluster.create(TYJOBS, "default", tyjob(job, WORKERS))
    async with asyncio.timeout(_LIMIT_S):
        while len(watched.seen_s.get(job, ())) <= WORKERS:
            watched.news.clear()
            await watched.news.wait()
    return watched.seen_s[job][-1] - began_s


# --- a full cluster ----------------------------------------------------------------------------------------


def _filler(node: str) -> dict[str, object]:
    """A pod that holds all GPUs of a node."""
    gpus = {"nvidia.com/gpu": str(_GPUS)}
    container = {"name": "main", "image": "registry.example/fill:1", "resources": {"requests": gpus, "limits": gpus}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"filler-{node}"},
        "spec": {"nodeName": node, "containers": [container]},
    }  # fmt: skip


async def _settled(process: WorkerProcess, calm_s: int) -> float:
    """Seconds until the process needs little processor time."""
    began_s, calm = time.monotonic(), 0
    async with asyncio.timeout(_SETTLE_LIMIT_S):
        while calm < calm_s:
            before_s = process.cpu_s()
            await asyncio.sleep(1)
            calm = calm + 1 if process.cpu_s() - before_s < _CALM else 0
    return time.monotonic() - began_s - calm_s
