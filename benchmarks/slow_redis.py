"""A Redis that is far away: from a TYJob to all of its pods, with and without a delay of 250 ms each way.

Arranger's own processes, the embedded cluster with simulated kubelets, and a private Redis behind a proxy on loopback.
The proxy delays what passes and limits nothing else. Jobs come one after the other.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from arranger.kube.cluster import PODS, TYJOBS
from arranger.sandbox.embedded import EmbeddedCluster
from arranger.sandbox.nodes import NodeTemplate
from arranger.sandbox.redis_server import private_redis
from arranger.workers.members.membership import ROLES
from benchmarks.parts import scratch_folder, tyjob, workers
from benchmarks.report import Figure
from tests.servers import CRD_FILES

#: Each way, in seconds: a round trip takes twice as long.
_DELAY_S = 0.25
_WORKERS = 2
#: Two processes with all roles, as in the demo; and one for each role with a second scheduler.
_MIXES = {"two processes": [(), ()], "six processes": [*((role,) for role in ROLES), ("scheduler",)]}
_LIMIT_S = 120.0


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    jobs = 2 if quick else 20
    found: list[Figure] = []
    for name, mix in list(_MIXES.items())[: 1 if quick else None]:
        near = asyncio.run(_measure(mix, jobs=jobs, delay_s=0.0))
        far = asyncio.run(_measure(mix, jobs=jobs, delay_s=0.01 if quick else _DELAY_S))
        found += [
            Figure(name=f"{name}, Redis near: p50", value=statistics.median(near), unit="s", note=_each(near)),
            Figure(
                name=f"{name}, round trips of 500 ms: p50", value=statistics.median(far), unit="s", at_most=4.0,
                note=_each(far),
            ),
        ]  # fmt: skip
    return found


def _each(took_s: list[float]) -> str:
    return f"least {min(took_s):.2f}, most {max(took_s):.2f}"


async def _measure(mix: Sequence[Sequence[str]], *, jobs: int, delay_s: float) -> list[float]:
    """Seconds from each of so many TYJobs to the last of its pods, which the kubelets run then."""
    nodes = [NodeTemplate(f"node-{number}", cpu="64", memory="256Gi") for number in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        url = (await stack.enter_async_context(private_redis())).url
        url = await stack.enter_async_context(delayed(url, delay_s))
        cluster = await stack.enter_async_context(EmbeddedCluster(crds=CRD_FILES, nodes=nodes))
        folder = Path(stack.enter_context(scratch_folder()))
        kubeconfig = cluster.kubeconfig(folder / "kubeconfig")
        processes = await stack.enter_async_context(workers(mix, redis_url=url, kubeconfig=kubeconfig))
        for process in processes:
            await process.ready()
        await asyncio.sleep(4 * delay_s)
        return [await _one(cluster, f"job-{number}", delay_s) for number in range(jobs)]


async def _one(cluster: EmbeddedCluster, name: str, delay_s: float) -> float:
    """Seconds until all pods of a job are there; then the job is deleted, and all is quiet again."""
    pods = cluster.store.collection(PODS).objects
    began_s = time.monotonic()
    await cluster.direct.create(TYJOBS, "default", tyjob(name, _WORKERS))
    async with asyncio.timeout(_LIMIT_S):
        while sum(pod.startswith(f"{name}-") for _, pod in pods) <= _WORKERS:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        took_s = time.monotonic() - began_s
        await cluster.direct.delete(TYJOBS, "default", name)
        while pods:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.2 + 4 * delay_s)
    return took_s


@contextlib.asynccontextmanager
async def delayed(url: str, delay_s: float) -> AsyncIterator[str]:
    """The URL of a proxy to a server on TCP; what passes comes `delay_s` seconds later, each way."""
    parts = urlsplit(url)
    served: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        there, back = await asyncio.open_connection(parts.hostname, parts.port)
        with contextlib.suppress(asyncio.CancelledError):  # at the end, of which the server would print a traceback
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, back, delay_s))
                group.create_task(_pass_on(there, writer, delay_s))
        served.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield parts._replace(netloc=f"127.0.0.1:{port}").geturl()
    finally:
        server.close()
        for task in list(served):
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Copy until the end, each piece so many seconds after it came."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def write() -> None:
        while True:
            due_s, piece = await pieces.get()
            await asyncio.sleep(due_s - time.monotonic())
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        writer.close()

    with contextlib.suppress(ConnectionError):
        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            while True:
                piece = b""
                with contextlib.suppress(ConnectionError):
                    piece = await reader.read(65536)
                await pieces.put((time.monotonic() + delay_s, piece))
                if not piece:
                    break
