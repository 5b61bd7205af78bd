"""Arranger beside its peers on one real API server: a bare loop that creates the same pods, and kube-scheduler.

The systems take turns, round by round, so that what drifts drifts for all. kube-scheduler, built with the API server,
gets plain pods without gangs, and no client limit on its requests. Leaders, and nobody else, get an address (see
`create`). Time counts from the first request of the submitter until every pod has a node. On few cores all of them
compete with the API server, so processor time a pod says more than pods a second, and ratios within a round say more
than either.
"""

import asyncio
import contextlib
import ssl
import statistics
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from benchmarks.create import IN_FLIGHT, Size, bare_loop, bodies, clear, post_pods, through_arranger
from benchmarks.parts import ApiServer, add_nodes, api_server, cpu_s, scratch_folder
from benchmarks.report import Figure
from tests.servers import Daemon, free_port, real_redis, scheduler_binary

_LIMIT_S = 300.0
_LOOK_S = 0.05
_QPS = 5_000

_SIZES = (
    Size(name="1,000 jobs of 1+3", jobs=((1_000, 3),), nodes=1_000, rounds=3, from_apply=True, at_least=1 / 2.2),
    Size(name="4 jobs of 1+500", jobs=((4, 500),), nodes=1_000, rounds=3, from_apply=True, at_least=0.9),
    Size(name="1 job of 1+9,999", jobs=((1, 9_999),), nodes=1_000, rounds=3, from_apply=True, at_least=0.9),
)
_QUICK = Size(name="2 jobs of 1+10", jobs=((2, 10),), nodes=2, rounds=1, from_apply=True)


class Took(msgspec.Struct, frozen=True):
    """One round of one system: seconds until all pods had nodes, and processor time of the API server with etcd and of
    the system itself, in seconds."""

    seconds: float
    server_s: float
    own_s: float


def run(*, quick: bool) -> list[Figure]:
    """The benchmark; `quick` compares with the bare loop alone, on the embedded cluster."""
    if quick:
        return asyncio.run(_compare(_QUICK, None))
    program = scheduler_binary()
    return [figure for size in _SIZES for figure in asyncio.run(_compare(size, program))]


async def _compare(size: Size, program: Path | None) -> list[Figure]:
    rounds: dict[str, list[Took]] = {"bare loop": [], "Arranger": []}
    if program is not None:
        rounds["kube-scheduler"] = []
    with real_redis() as redis:
        async with api_server(real=program is not None) as api:
            await add_nodes(api.cluster, size.nodes)
            await bare_loop(api, size)  # warms the server up
            for _ in range(size.rounds):
                rounds["bare loop"].append(await _bare(api, size))
                rounds["Arranger"].append(await _ours(api, redis.url, size))
                if program is not None:
                    rounds["kube-scheduler"].append(await _kube_scheduler(api, size, program))
    return [figure for name in rounds for figure in _figures(size, name, rounds)]


def _figures(size: Size, name: str, rounds: Mapping[str, list[Took]]) -> Iterator[Figure]:
    took = rounds[name]
    seconds = [one.seconds for one in took]
    what = f"{size.name}, {name}"
    spread = f"median of {len(took)}, {min(seconds):.1f} to {max(seconds):.1f} s"
    yield Figure(name=f"{what}: until all pods have nodes", value=statistics.median(seconds), unit="s", note=spread)
    if name != "bare loop":
        ratios = [bare.seconds / own.seconds for bare, own in zip(rounds["bare loop"], took, strict=True)]
        goal = size.at_least if name == "Arranger" else None
        yield Figure(name="  ratio to the bare loop", value=statistics.median(ratios), at_least=goal)
    server_us, own_us = (
        1e6 * statistics.median(of) / size.pods for of in ([t.server_s for t in took], [t.own_s for t in took])
    )
    if server_us:
        yield Figure(name="  API server's and etcd's CPU a pod", value=server_us, unit="µs")
    yield Figure(name="  its own CPU a pod", value=own_us, unit="µs")


async def _bare(api: ApiServer, size: Size) -> Took:
    server_s = cpu_s(*api.pids)
    seconds, own_s = await bare_loop(api, size, keep=True)
    took = Took(seconds, cpu_s(*api.pids) - server_s, own_s)
    await clear(api)
    return took


async def _ours(api: ApiServer, redis_url: str, size: Size) -> Took:
    one = await through_arranger(api, redis_url, size)
    return Took(one.applied_s, one.server_s, one.cpu_s)


async def _kube_scheduler(api: ApiServer, size: Size, program: Path) -> Took:
    encoded = []
    for body in bodies(size):
        del body["spec"]["nodeName"]
        encoded.append(msgspec.json.encode(body))
    with kube_scheduler(api, program) as daemon:
        own_s, server_s, began_s = cpu_s(daemon.pid), cpu_s(*api.pids), time.monotonic()
        async with api.session(IN_FLIGHT) as session:
            await post_pods(session, encoded)
        await all_have_nodes(api)
        took = Took(time.monotonic() - began_s, cpu_s(*api.pids) - server_s, cpu_s(daemon.pid) - own_s)
    await clear(api)
    return took


async def all_have_nodes(api: ApiServer) -> None:
    """Wait until no pod is without a node. Raises `TimeoutError` after five minutes."""
    unassigned = {"fieldSelector": "spec.nodeName=", "limit": "1"}
    async with asyncio.timeout(_LIMIT_S), api.session(1) as session:
        while True:
            async with session.get("api/v1/pods", params=unassigned) as answer:
                if not (await answer.json())["items"]:
                    return
            await asyncio.sleep(_LOOK_S)


@contextlib.contextmanager
def kube_scheduler(api: ApiServer, program: Path, *flags: str) -> Iterator[Daemon]:
    """A running kube-scheduler, with its default profile and further flags."""
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    port = free_port()

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", timeout=2, context=blind) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with scratch_folder() as folder:
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(api.kubeconfig), "qps": _QPS, "burst": _QPS},
            "leaderElection": {"leaderElect": False},
        }
        path = Path(folder) / "kube-scheduler.json"
        path.write_bytes(msgspec.json.encode(configuration))
        argv = [str(program), f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
        argv += [f"--cert-dir={folder}/certificates", *flags]
        daemon = Daemon("kube-scheduler", argv, folder=Path(folder), ready=ready)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()
