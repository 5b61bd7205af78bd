"""What it costs the workers that 50 clients watch live (`/api/v1/live` of `arranger serve`) while 1,000 jobs run.

Rounds alternate, each on an empty log: alone, and watched. A watched round is compared with the rounds before and
after it. The server and the clients are two processes at the lowest priority, because in a cluster they run elsewhere:
what is left is what one more reader of the log costs the workers. A quick run leaves them at the priority of everything
else, because a busy machine would let them wait for minutes. `python -m benchmarks.watching URL COUNT FILE` are
the clients. After SIGTERM, once each has got what any had got by then, FILE gets a JSON list of how many events each
has got. (The workers go on for minutes to write statuses without news, at intervals.)
"""

import asyncio
import contextlib
import os
import signal
import statistics
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.create import Round, Size, through_arranger
from benchmarks.parts import ApiServer, add_nodes, api_server, cpu_s, scratch_folder
from benchmarks.report import Figure
from tests.servers import free_port, real_redis

_CLIENTS = 50
_SIZE = Size(name="watched", jobs=((1_000, 1),), nodes=300, rounds=9, from_apply=True)
_QUICK = Size(name="quick", jobs=((3, 1),), nodes=2, rounds=1, from_apply=True)
_LOWEST = 19
_READY_S = 180.0
#: So long a client may take at the end until it has what another client has got.
_LATE_S = 60.0


class _Watched(msgspec.Struct):
    """What the server and the clients did in one round: their processor time, and the events that each client got."""

    server_s: float = 0.0
    clients_s: float = 0.0
    events: list[int] = []


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    return asyncio.run(_run(_QUICK if quick else _SIZE, 3 if quick else _CLIENTS, real=not quick))


async def _run(size: Size, clients: int, *, real: bool) -> list[Figure]:
    with real_redis() as redis:
        async with api_server(real=real) as api:
            await add_nodes(api.cluster, size.nodes)
            if real:
                await through_arranger(api, redis.url, size)  # warms the servers up
            alone = [await through_arranger(api, redis.url, size)]
            watched: list[tuple[Round, _Watched]] = []
            for _ in range(size.rounds):
                watched.append(await _watched_round(api, redis.url, size, clients, _LOWEST if real else 0))
                alone.append(await through_arranger(api, redis.url, size))
    return _figures(size, alone, watched, clients)


def _figures(size: Size, alone: list[Round], watched: list[tuple[Round, _Watched]], clients: int) -> list[Figure]:
    jobs = sum(count for count, _ in size.jobs)

    def a_job_us(spent_s: Iterable[float]) -> float:
        return 1e6 * statistics.median(spent_s) / jobs

    spent, took = (
        [getattr(one, name) / ((getattr(a, name) + getattr(b, name)) / 2) for a, (one, _), b in rounds]
        for name in ("cpu_s", "applied_s")
        for rounds in [[*zip(alone, watched, alone[1:], strict=False)]]
    )
    least = min(count for _, beside in watched for count in beside.events)
    note = f"{clients} clients, {size.what}"
    return [
        Figure(name="jobs alone", value=jobs / statistics.median(one.applied_s for one in alone), unit="/s", note=note),
        Figure(name="jobs watched", value=jobs / statistics.median(one.applied_s for one, _ in watched), unit="/s"),
        Figure(name="workers' CPU a job alone", value=a_job_us(one.cpu_s for one in alone), unit="µs"),
        Figure(
            name="ratio of workers' CPU, watched to alone", value=statistics.median(spent), at_most=1.03,
            note="each round: " + ", ".join(f"{ratio:.3f}" for ratio in spent),
        ),
        Figure(
            name="ratio of time, watched to alone", value=statistics.median(took),
            note="two cores for everything; each round: " + ", ".join(f"{ratio:.3f}" for ratio in took),
        ),
        Figure(name="server's CPU a job", value=a_job_us(w.server_s for _, w in watched), unit="µs"),
        Figure(name="clients' CPU a job", value=a_job_us(w.clients_s for _, w in watched), unit="µs"),
        Figure(name="events that each client got, at least", value=least, at_least=float(2 * jobs)),
    ]  # fmt: skip


async def _watched_round(api: ApiServer, redis_url: str, size: Size, clients: int, nice: int) -> tuple[Round, _Watched]:
    found = _Watched()
    return await through_arranger(api, redis_url, size, beside=_watching(redis_url, clients, nice, found)), found


@contextlib.asynccontextmanager
async def _watching(redis_url: str, clients: int, nice: int, found: _Watched) -> AsyncIterator[None]:
    """A server and its clients, all of which watch."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ARRANGER_")}
    url = f"http://127.0.0.1:{(port := free_port())}/api/v1/live"
    with scratch_folder() as folder:
        counts = Path(folder) / "counts.json"
        serve = ("-m", "arranger.cli.main", "serve", "--log", redis_url, "--port", str(port))
        async with _process(environ, nice, *serve) as server:
            await _first_line(server)
            watch = ("-m", "benchmarks.watching", url, str(clients), str(counts))
            async with _process(environ, nice, *watch) as watchers:
                await _first_line(watchers)
                before_s = cpu_s(server.pid), cpu_s(watchers.pid)
                yield
                found.server_s, found.clients_s = (
                    cpu_s(process.pid) - since_s for process, since_s in zip((server, watchers), before_s, strict=True)
                )
            found.events = msgspec.json.decode(counts.read_bytes(), type=list[int])


@contextlib.asynccontextmanager
async def _process(environ: dict[str, str], nice: int, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process at this priority (0 to 19, the lowest), terminated afterwards."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", str(nice), sys.executable, *words),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _first_line(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(_READY_S):
        if not await process.stdout.readline():
            raise RuntimeError("the server or its clients ended while starting")


# --- the clients -------------------------------------------------------------------------------------------


async def _clients(url: str, count: int) -> list[int]:
    """How many events each of so many clients got until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    counts, begun = [0] * count, [asyncio.Event() for _ in range(count)]
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def watch(number: int) -> None:
            while True:
                async with session.get(url) as answer:
                    if answer.status != 200:  # it is still reading the log
                        await asyncio.sleep(0.1)
                        continue
                    begun[number].set()
                    async for chunk in answer.content.iter_any():
                        counts[number] += chunk.count(b"id: ")
                raise RuntimeError("the stream ended")

        tasks = [asyncio.create_task(watch(number)) for number in range(count)]
        for one in begun:
            await one.wait()
        print("all watch", flush=True)
        await stopped.wait()
        most = max(counts)
        async with asyncio.timeout(_LATE_S):
            while min(counts) < most:  # noqa: ASYNC110  # fifty clients change the counts
                await asyncio.sleep(0.05)
        if any(task.done() for task in tasks):
            raise RuntimeError("a client lost its stream")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return counts


if __name__ == "__main__":
    Path(sys.argv[3]).write_bytes(msgspec.json.encode(asyncio.run(_clients(sys.argv[1], int(sys.argv[2])))))
