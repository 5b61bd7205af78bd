"""`python -m benchmarks.storming KUBECONFIG NAMESPACE STORM`: a tenant that storms, until it is terminated.

Its clients create TYJobs that fit on no node, one request after the other. If their number is bounded, it says in a
line when they are there. One more client edits the first 50 of them in turn, one every 100 ms: from then on, or if
there is no bound, from the beginning. It is a process of its own, so that it takes no time of the client that
measures. STORM is a `Storm` as JSON.
"""

import asyncio
import itertools
import random
import sys
import time
from pathlib import Path

import aiohttp
import msgspec

from arranger.kube.cluster import TYJOBS
from benchmarks.create import JSON
from benchmarks.parts import ApiServer, tyjob

#: No node has as many.
_GPUS = 1_000
_EDITED = 50
_EDIT_S = 0.1
_MERGE = {"Content-Type": "application/merge-patch+json"}
#: The environment of a container that makes a TYJob large: variables of this many bytes each.
_VARIABLE = 10_000


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """How many TYJobs are created, 0 for no end, in how many a second, 0 for as fast as the API server takes them. Each
    has one of these numbers of workers, in turn, and at least so many bytes; `edits` says whether some are edited."""

    name: str
    jobs: int = 0
    rate: float = 0.0
    clients: int = 4
    workers: tuple[int, ...] = (3,)
    bytes: int = 0
    edits: bool = True


async def _rage(kubeconfig: Path, namespace: str, storm: Storm) -> None:
    api = ApiServer(kubeconfig)
    path = f"apis/{TYJOBS.api_version}/namespaces/{namespace}/tyjobs"
    async with api.session(storm.clients + 1) as session:
        if storm.jobs:
            await _create(session, path, namespace, storm)
            print("created", flush=True)
            await _edit(session, path, storm)
        else:
            await asyncio.gather(_edit(session, path, storm), _create(session, path, namespace, storm))


async def _create(session: aiohttp.ClientSession, path: str, namespace: str, storm: Storm) -> None:
    numbers, began_s = iter(range(storm.jobs) if storm.jobs else itertools.count()), time.monotonic()

    async def create() -> None:
        for number in numbers:
            if storm.rate:
                await asyncio.sleep(began_s + number / storm.rate - time.monotonic())
            body = _job(namespace, storm, number)
            async with session.post(path, data=body, headers=JSON) as answer:
                await answer.read()
                answer.raise_for_status()

    await asyncio.gather(*(create() for _ in range(storm.clients)))


def _job(namespace: str, storm: Storm, number: int) -> bytes:
    job = tyjob(f"storm-{number}", storm.workers[number % len(storm.workers)], gpus=_GPUS)
    job["metadata"]["namespace"] = namespace
    environment = job["spec"]["leader"]["template"]["spec"]["containers"][0]["env"]
    # The pod templates of `tyjob` are one object, which JSON has twice.
    for variable in range(-(-storm.bytes // (2 * _VARIABLE))):
        environment.append({"name": f"LARGE_{variable}", "value": "x" * _VARIABLE})
    return msgspec.json.encode(job)


async def _edit(session: aiohttp.ClientSession, path: str, storm: Storm) -> None:
    """Give one of the first jobs another priority, again and again."""
    chance = random.Random(1)
    for number in itertools.cycle(range(_EDITED)):
        await asyncio.sleep(_EDIT_S)
        if storm.edits:
            body = msgspec.json.encode({"spec": {"priority": chance.randint(1, 10)}})
            async with session.patch(f"{path}/storm-{number}", data=body, headers=_MERGE) as answer:
                await answer.read()  # 404 before there are as many


if __name__ == "__main__":
    asyncio.run(_rage(Path(sys.argv[1]), sys.argv[2], msgspec.json.decode(sys.argv[3], type=Storm)))
