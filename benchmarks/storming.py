"""`python -m benchmarks.storming KUBECONFIG NAMESPACE CLIENTS RATE`: a tenant that storms, until it is terminated.

So many clients create TYJobs that fit on no node, one request after the other: as fast as the API server takes them, or
together RATE in a second if that isn't 0. One more client edits the first 50 of them in turn, one every 100 ms. It is a
process of its own, so that it takes no time of the client that measures.
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

_WORKERS = 3
#: No node has as many.
_GPUS = 1_000
_EDITED = 50
_EDIT_S = 0.1
_MERGE = {"Content-Type": "application/merge-patch+json"}


async def _storm(kubeconfig: Path, namespace: str, clients: int, rate: float) -> None:
    api = ApiServer(kubeconfig)
    numbers, began_s = itertools.count(), time.monotonic()
    path = f"apis/{TYJOBS.api_version}/namespaces/{namespace}/tyjobs"
    async with api.session(clients + 1) as session:

        async def create() -> None:
            for number in numbers:
                if rate:
                    await asyncio.sleep(began_s + number / rate - time.monotonic())
                job = tyjob(f"storm-{number}", _WORKERS, gpus=_GPUS)
                job["metadata"]["namespace"] = namespace
                async with session.post(path, data=msgspec.json.encode(job), headers=JSON) as answer:
                    await answer.read()
                    answer.raise_for_status()

        await asyncio.gather(_edit(session, path), *(create() for _ in range(clients)))


async def _edit(session: aiohttp.ClientSession, path: str) -> None:
    """Give one of the first jobs another priority, again and again."""
    chance = random.Random(1)
    for number in itertools.cycle(range(_EDITED)):
        await asyncio.sleep(_EDIT_S)
        body = msgspec.json.encode({"spec": {"priority": chance.randint(1, 10)}})
        async with session.patch(f"{path}/storm-{number}", data=body, headers=_MERGE) as answer:
            await answer.read()  # 404 before there are as many


if __name__ == "__main__":
    asyncio.run(_storm(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
