"""Observing: how soon a change at the API server is in a worker's projection, and how fast a listing is taken in.

Latency: this process creates pods on a real API server at a fixed rate, each of which is one observation; another, a
watcher, notes when it had folded what. From the server's answer to the write (which is about when its watch event goes
out) to the fold; the time from sending the write is given too, which has the server's own work in it. What was folded
under which offset is read from the log afterwards.

Intake: a watcher lists from a canned server that only sends bytes, so that it isn't the API server that is measured.
From the ListingBegun to the ListingEnded in the log, each page translated, compared, appended and folded. A loop that
fetches and decodes the same pages and does nothing with them is measured next to it.
"""

import asyncio
import bisect
import contextlib
import gc
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from arranger.events import kinds as k
from arranger.events.log import Entry, entries
from arranger.events.redis_log import RedisLog
from arranger.kube.cluster import PODS
from benchmarks.create import IN_FLIGHT, JSON
from benchmarks.parts import ApiServer, add_nodes, api_server, scratch_folder, tyjob, workers
from benchmarks.report import Figure
from tests.servers import real_redis

_LIMIT_S = 120.0
_PAGE = 500
_CATCH_UP_S = 0.01


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion")


class _Created(msgspec.Struct):
    metadata: _Metadata


_created = msgspec.json.Decoder(_Created)


@dataclass
class _Writes:
    """When each write was sent and answered, by the resourceVersion that it got; wall clock, seconds."""

    sent: dict[str, float] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)
    took_s: float = 0.0


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    if quick:
        return asyncio.run(_both(real=False, rate=100, created=50, listed=1_000))
    return asyncio.run(_both(real=True, rate=1_000, created=10_000, listed=50_000))


async def _both(*, real: bool, rate: int, created: int, listed: int) -> list[Figure]:
    return [*await _intake(listed), *await _latency(real=real, rate=rate, created=created)]


# --- latency -----------------------------------------------------------------------------------------------


async def _latency(*, real: bool, rate: int, created: int) -> list[Figure]:
    with real_redis() as redis, scratch_folder() as folder:
        notes = Path(folder) / "folded.json"
        async with api_server(real=real) as api:
            await add_nodes(api.cluster, 2)
            follow = ("-m", "benchmarks.following", str(notes), "watcher")
            async with workers([follow], program=(), redis_url=redis.url, kubeconfig=api.kubeconfig) as (worker,):
                await worker.ready()
                writes = await _write(api, rate=rate, created=created)
                await asyncio.sleep(1.0)
        log = RedisLog(redis.url, "default", read_only=True)
        found = [entry async for entry in entries(log, await log.start())]
        await log.close()
        folded: list[tuple[float, int]] = msgspec.json.decode(notes.read_bytes())
    answered = _lags(found, folded, writes.answered)
    sent = _lags(found, folded, writes.sent)
    reached = f"{created / writes.took_s:,.0f} a second" + (f" of {rate:,} wanted" if real else "")
    what = f"{len(answered):,} pods created, {reached}"
    return [
        Figure(name="answer to fold, median", value=_percentile(answered, 50), unit="ms", note=what),
        Figure(name="answer to fold, p99", value=_percentile(answered, 99), unit="ms", at_most=100),
        Figure(name="write sent to fold, p99", value=_percentile(sent, 99), unit="ms"),
    ]


async def _write(api: ApiServer, *, rate: int, created: int) -> _Writes:
    """Create pods at a fixed rate, waiting for no answer unless too many are owed. What a stall missed isn't made up
    for by a burst, beyond a few milliseconds' worth."""
    writes = _Writes()
    spec = tyjob("unused", 1)["spec"]["leader"]["template"]["spec"]
    slots = asyncio.Semaphore(IN_FLIGHT)
    async with api.session(IN_FLIGHT) as session, asyncio.TaskGroup() as group:

        async def create(number: int) -> None:
            pod = {"metadata": {"name": f"pod-{number}"}, "spec": {**spec, "nodeName": f"node-{number % 2:04}"}}
            sent = time.time()
            async with session.post(
                "api/v1/namespaces/default/pods", data=msgspec.json.encode(pod), headers=JSON
            ) as answer:
                answer.raise_for_status()
                version = _created.decode(await answer.read()).metadata.version
            writes.sent[version], writes.answered[version] = sent, time.time()
            slots.release()

        began_s = due_s = time.monotonic()
        for number in range(created):
            await slots.acquire()
            due_s = max(due_s + 1 / rate, time.monotonic() - _CATCH_UP_S)
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            group.create_task(create(number))
    writes.took_s = time.monotonic() - began_s
    return writes


def _lags(found: list[Entry], folded: list[tuple[float, int]], since: dict[str, float]) -> list[float]:
    """Milliseconds from each write to the fold of its observation, ascending."""
    offsets = [offset for _, offset in folded]
    lags: list[float] = []
    for entry in found:
        for number, event in enumerate(entry.batch.events):
            if isinstance(event, k.PodSeen) and event.resource_version in since:
                at_s, _ = folded[bisect.bisect_left(offsets, entry.first + number)]
                lags.append(1000 * (at_s - since[event.resource_version]))
    return sorted(lags)


def _percentile(ascending: list[float], percent: int) -> float:
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)]


# --- intake ------------------------------------------------------------------------------------------------


async def _intake(pods: int) -> list[Figure]:
    with real_redis() as redis, scratch_folder() as folder:
        async with _canned(pods, Path(folder)) as api:
            bare_s = await _read_only(api)
            log = RedisLog(redis.url, "default")
            async with workers([("watcher",)], redis_url=redis.url, kubeconfig=api.kubeconfig) as (worker,):
                await worker.ready()
                async with asyncio.timeout(_LIMIT_S):
                    taken_s = await _listing_s(log, pods)
                resident_mb = worker.memory_mb()
            await log.close()
    return [
        Figure(name="listing taken in", value=pods / taken_s, unit="pods/s", at_least=10_000, note=f"{pods:,} pods"),
        Figure(
            name="listing read and decoded only", value=pods / bare_s, unit="pods/s", note="same pages, same client"
        ),
        Figure(name="ratio to reading only", value=bare_s / taken_s),
        Figure(name="watcher's resident memory then", value=resident_mb, unit="MB", at_most=300),
    ]


@contextlib.asynccontextmanager
async def _canned(pods: int, folder: Path) -> AsyncIterator[ApiServer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.canned", str(pods), str(_PAGE)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        kubeconfig = folder / "kubeconfig"
        document = {
            "clusters": [{"name": "canned", "cluster": {"server": url}}],
            "users": [{"name": "canned", "user": {}}],
            "contexts": [{"name": "canned", "context": {"cluster": "canned", "user": "canned"}}],
            "current-context": "canned",
        }
        kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
        api = ApiServer(kubeconfig)
        try:
            yield api
        finally:
            await api.cluster.close()
    finally:
        process.terminate()
        await process.wait()


async def _read_only(api: ApiServer) -> float:
    """Seconds of the better of two times: the first meets a server that has just started."""
    took_s: list[float] = []
    gc.disable()
    for _ in range(2):
        began_s = time.monotonic()
        async for _ in api.cluster.listing(PODS):
            pass
        took_s.append(time.monotonic() - began_s)
    gc.enable()
    return min(took_s)


async def _listing_s(log: RedisLog, pods: int) -> float:
    """Seconds between the beginning and the end of the pods' listing, as the watcher's batches tell them."""
    await log.open()
    time_ms: dict[type, int] = {}
    seen = 0
    position = await log.start()
    while k.ListingEnded not in time_ms:
        for entry in await log.read(position, wait_s=1.0):
            position = msgspec.structs.replace(position, offset=entry.last, chain=entry.chain)
            for event in entry.batch.events:
                seen += isinstance(event, k.PodSeen)
                if isinstance(event, k.ListingBegun | k.ListingEnded) and event.kind == k.Watched.POD:
                    time_ms[type(event)] = entry.batch.time_ms
    if seen != pods:
        raise RuntimeError(f"{seen} of {pods} pods were taken in")
    return (time_ms[k.ListingEnded] - time_ms[k.ListingBegun]) / 1000
