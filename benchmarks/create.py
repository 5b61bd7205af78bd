"""Pods created through the whole path, against a bare loop that creates the same bodies on the same API server.

The path: TYJobs are created; the watcher sees them, the scheduler places them, the controller starts them, the
applier writes statuses and creates pods. No kubelets run: the benchmark gives leaders, and nobody else, an address,
which is all that workers wait for. The bare loop runs alone, without workers or watches, on bodies encoded in advance,
with as many requests in flight; it is counted from its first request to its last answer.

A few large jobs are counted from the first pod to the last, so the round trip through the leaders' addresses is in it.
Many small jobs are counted from the first TYJob to the last pod: their TYJobs and statuses are most of the work.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
import msgspec

from arranger.events.redis_connection import connect
from arranger.kube.cluster import PODS, TYJOBS, Object
from arranger.kube.manifests import pod_manifest
from benchmarks.parts import ApiServer, add_nodes, api_server, cpu_s, tyjob, workers
from benchmarks.report import Figure
from tests.servers import real_redis

IN_FLIGHT = 64
JSON = {"Content-Type": "application/json"}
#: On two cores a second process folds the same log once more and gains nothing.
MIX = (("watcher", "controller", "scheduler", "applier", "maintenance"),)
#: What a leader's kubelet reports, as far as Arranger needs it.
ADDRESSED = {
    "status": {
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
}  # fmt: skip
_LIMIT_S = 300.0
#: After this time every process has seen the others' heartbeats, and they share the jobs.
_SHARED_S = 4.0
#: Pods are counted this often: a watch of them all would cost the server more.
_LOOK_S = 0.05


@dataclass(frozen=True)
class Size:
    """How much of it."""

    name: str
    #: How many jobs, and the workers of each.
    jobs: tuple[tuple[int, int], ...]
    nodes: int
    rounds: int
    #: Counted from the first TYJob on, not from the first pod.
    from_apply: bool
    at_least: float | None = None

    @property
    def pods(self) -> int:
        """Pods of one round, leaders included."""
        return sum(jobs * (workers + 1) for jobs, workers in self.jobs)

    @property
    def what(self) -> str:
        """Its jobs in words."""
        return " and ".join(f"{jobs:,} job{'s' * (jobs > 1)} of 1+{workers:,}" for jobs, workers in self.jobs)

    def tyjobs(self) -> list[Object]:
        """Its jobs; those of different sizes alternate as far as they last."""
        kinds = [[workers] * jobs for jobs, workers in self.jobs]
        order = sorted((at / len(kind), workers) for kind in kinds for at, workers in enumerate(kind))
        return [tyjob(f"job-{number}", workers) for number, (_, workers) in enumerate(order)]


@dataclass(frozen=True)
class Round:
    """One round through Arranger: seconds from first to last pod, from the first apply to the last pod, and processor
    time of its processes and of the API server with etcd."""

    created_s: float
    applied_s: float
    cpu_s: float
    server_s: float


_LARGE = Size(name="large", jobs=((4, 500),), nodes=50, rounds=6, from_apply=False, at_least=0.7)
_SMALL = Size(name="small", jobs=((300, 3),), nodes=300, rounds=3, from_apply=True)
_MIXED = Size(name="mixed", jobs=((2, 300), (20, 20), (100, 3)), nodes=300, rounds=3, from_apply=True)
_QUICK = Size(name="quick", jobs=((2, 10), (1, 3)), nodes=2, rounds=1, from_apply=False)


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    sizes = (_LARGE, _SMALL, _MIXED) if not quick else (_QUICK,)
    return [figure for size in sizes for figure in asyncio.run(_run(size, real=not quick))]


async def _run(size: Size, *, real: bool) -> list[Figure]:
    with real_redis() as redis:
        async with api_server(real=real) as api:
            await add_nodes(api.cluster, size.nodes)
            await bare_loop(api, size)  # warms the server up
            bare = [await bare_loop(api, size)]
            ours: list[Round] = []
            for _ in range(size.rounds):
                ours.append(await through_arranger(api, redis.url, size))
                bare.append(await bare_loop(api, size))
    # Each round is compared with the loops before and after it, so that what drifts drifts for both.
    took = [one.applied_s if size.from_apply else one.created_s for one in ours]
    ratios = [(before[0] + after[0]) / 2 / own_s for before, own_s, after in zip(bare, took, bare[1:], strict=False)]
    rate = size.pods / statistics.median(took)
    bare_rate = size.pods / statistics.median(took_s for took_s, _ in bare)
    own_cpu_s = statistics.median(one.cpu_s for one in ours)
    bare_cpu_s = statistics.median(spent_s for _, spent_s in bare)
    where = "real API server" if real else "embedded cluster"
    what = f"{size.what}, {where}, median of {size.rounds}"
    figures = [
        Figure(name="pods through the whole path", value=rate, unit="/s", note=what),
        Figure(name="bare loop, same bodies", value=bare_rate, unit="/s", note=f"aiohttp, {IN_FLIGHT} in flight"),
        Figure(
            name="ratio to the bare loop", value=statistics.median(ratios), at_least=size.at_least,
            note="each round: " + ", ".join(f"{ratio:.2f}" for ratio in ratios),
        ),
        Figure(name="from first apply to last pod", value=statistics.median(one.applied_s for one in ours), unit="s"),
        Figure(name="workers' CPU a pod", value=1e6 * own_cpu_s / size.pods, unit="µs"),
        Figure(name="bare loop's CPU a pod", value=1e6 * bare_cpu_s / size.pods, unit="µs"),
    ]  # fmt: skip
    return [msgspec.structs.replace(figure, name=f"{size.name} jobs: {figure.name}") for figure in figures]


# --- through Arranger --------------------------------------------------------------------------------------


async def through_arranger(
    api: ApiServer,
    redis_url: str,
    size: Size,
    *,
    mix: Sequence[Sequence[str]] = MIX,
    beside: contextlib.AbstractAsyncContextManager[object] | None = None,
) -> Round:
    """One round on an empty log, by processes with these roles; all its pods and jobs are gone afterwards. `beside` is
    entered once they are ready."""
    async with contextlib.AsyncExitStack() as stack:
        processes = await stack.enter_async_context(workers(mix, redis_url=redis_url, kubeconfig=api.kubeconfig))
        session = await stack.enter_async_context(api.session(8))
        for process in processes:
            await process.ready()
        if len(mix) > 1:
            await asyncio.sleep(_SHARED_S)
        if beside is not None:
            await stack.enter_async_context(beside)
        version = await pods_version(session)
        first_s: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        kubelet = asyncio.create_task(_address_leaders(api, session, version, first_s))
        own_s, server_s = sum(process.cpu_s() for process in processes), cpu_s(*api.pids)
        applied_s = time.monotonic()
        await apply(api, size.tyjobs())
        async with asyncio.timeout(_LIMIT_S):
            began_s, last_s = await _while_runs(kubelet, _both(first_s, session, size.pods))
        own_s = sum(process.cpu_s() for process in processes) - own_s
        server_s = cpu_s(*api.pids) - server_s
        kubelet.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await kubelet
    await clear(api)
    client = connect(redis_url)
    await client.flushall()
    await client.aclose()
    return Round(last_s - began_s, last_s - applied_s, own_s, server_s)


async def _both(first_s: asyncio.Future[float], session: aiohttp.ClientSession, pods: int) -> tuple[float, float]:
    """When the first leader was seen, and when there were all pods."""
    return await first_s, await _last(session, pods)


async def _while_runs(
    task: asyncio.Task[None], work: Coroutine[object, object, tuple[float, float]]
) -> tuple[float, float]:
    """What the work finds. Raises what ended the task, without which the work would never end."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            task.result()
            raise RuntimeError("the watch of leaders has ended, so no leader gets an address any more")
        return working.result()
    finally:
        working.cancel()


async def apply(api: ApiServer, jobs: Sequence[Object]) -> None:
    """Create these TYJobs, sixteen at a time."""
    queue = iter(jobs)

    async def create() -> None:
        for job in queue:
            await api.cluster.create(TYJOBS, "default", job)

    await asyncio.gather(*(create() for _ in range(16)))


async def pods_version(session: aiohttp.ClientSession) -> str:
    """The version from which a watch of pods can begin."""
    async with session.get("api/v1/pods", params={"limit": "1"}) as answer:
        return str((await answer.json())["metadata"]["resourceVersion"])


async def watch_pods(
    session: aiohttp.ClientSession, version: str, selector: Mapping[str, str]
) -> AsyncGenerator[bytes, None]:
    """The lines of a watch of pods, undecoded. There may be no news for long."""
    query = {"watch": "1", "resourceVersion": version, **selector}
    rest = b""
    async with session.get("api/v1/pods", params=query, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line


async def _last(session: aiohttp.ClientSession, pods: int) -> float:
    """When there were so many pods, to the next look: pessimistic by at most the time between two."""
    while True:
        async with session.get("api/v1/pods", params={"limit": "1"}) as answer:
            listing = await answer.json()
        if len(listing["items"]) + listing["metadata"].get("remainingItemCount", 0) >= pods:
            return time.monotonic()
        await asyncio.sleep(_LOOK_S)


async def _address_leaders(
    api: ApiServer, session: aiohttp.ClientSession, version: str, first_s: asyncio.Future[float]
) -> None:
    """All the kubelet that a leader needs: it runs and has an address. `first_s` is when the first leader was seen."""
    selector = {"labelSelector": "arranger.dev/role=leader"}
    async with contextlib.aclosing(watch_pods(session, version, selector)) as lines:
        async for line in lines:
            if line.startswith(b'{"type":"ADDED"'):
                if not first_s.done():
                    first_s.set_result(time.monotonic())
                name = msgspec.json.decode(line)["object"]["metadata"]["name"]
                await api.cluster.patch(PODS, "default", name, ADDRESSED, subresource="status")


# --- the bare loop -----------------------------------------------------------------------------------------


async def bare_loop(api: ApiServer, size: Size, *, keep: bool = False) -> tuple[float, float]:
    """Seconds, and seconds of CPU in this process, to create the same pods with nothing else going on. They are deleted
    afterwards unless `keep`."""
    encoded = [msgspec.json.encode(body) for body in bodies(size)]
    async with api.session(IN_FLIGHT) as session:
        began_s, spent_s = time.monotonic(), time.process_time()
        await post_pods(session, encoded)
        took = time.monotonic() - began_s, time.process_time() - spent_s
    if not keep:
        await clear(api)
    return took


async def post_pods(session: aiohttp.ClientSession, encoded: Sequence[bytes]) -> None:
    """Create these pods with as many requests in flight as Arranger has."""
    queue = iter(encoded)

    async def create() -> None:
        for body in queue:
            async with session.post("api/v1/namespaces/default/pods", data=body, headers=JSON) as answer:
                await answer.read()
                answer.raise_for_status()

    await asyncio.gather(*(create() for _ in range(IN_FLIGHT)))


def bodies(size: Size) -> list[Object]:
    """The very pods that Arranger creates for these jobs."""
    found: list[Object] = []
    for number, job in enumerate(size.tyjobs()):
        job["metadata"]["uid"] = f"00000000-0000-0000-0000-{number:012}"
        slots = [(0, 0), *((1, index) for index in range(job["spec"]["workerSets"][0]["counts"]))]
        found += [
            pod_manifest(
                job, group=group, index=index, attempt=0, node=f"node-{len(found) // 110 % size.nodes:04}",
                leader_address="10.0.0.1",
            )
            for group, index in slots
        ]  # fmt: skip
    return found


async def _deleted(session: aiohttp.ClientSession, path: str, params: Mapping[str, str]) -> int:
    """The HTTP status of the answer to deleting a collection."""
    async with session.delete(path, params=params, timeout=aiohttp.ClientTimeout(total=_LIMIT_S)) as answer:
        await answer.read()
        return answer.status


async def clear(api: ApiServer) -> None:
    """Delete all jobs and pods, at once, and wait until they are gone."""
    at_once = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
    async with api.session(4) as session:
        for path in (f"apis/{TYJOBS.api_version}/namespaces/default/tyjobs", "api/v1/namespaces/default/pods"):
            # A server that takes longer than a minute for thousands of them answers 504 and has deleted a part.
            while (status := await _deleted(session, path, at_once)) == HTTPStatus.GATEWAY_TIMEOUT:
                pass
            if status >= HTTPStatus.BAD_REQUEST:
                raise RuntimeError(f"DELETE {path} was answered with {status}")
        while True:
            async with session.get("api/v1/pods", params={"limit": "1"}) as answer:
                if not (await answer.json())["items"]:
                    return
            await asyncio.sleep(0.1)
