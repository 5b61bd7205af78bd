"""Plain pods that name their scheduler, bound by Arranger and by kube-scheduler on one real API server, in turn.

Both get the same pods on the same nodes: first each pod alone, then gangs of four, which are Kubernetes' own PodGroups.
Time counts from the first request for a pod until every pod has a node, and processor time over the same span. Before
that, each scheduler binds some other pods: it has then listed the cluster, and it has its connections, as the
submitter of the pods has its own. kube-scheduler has no client limit on its requests.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from arranger.events.redis_connection import connect
from arranger.kube.cluster import Object, Resource
from benchmarks.create import IN_FLIGHT, MIX, clear, post_pods
from benchmarks.parts import ApiServer, add_nodes, api_server, cpu_s, workers
from benchmarks.peers import Took, all_have_nodes, kube_scheduler
from benchmarks.report import Figure
from tests.servers import real_redis, scheduler_binary

_ROUNDS = 5
_PODS, _NODES = 2_000, 1_000
#: The pods that come before the measured ones; they stay.
_FIRST_PODS = 128
_QUICK_PODS, _QUICK_NODES = 20, 2
_GANG = 4
#: What the API server and kube-scheduler need for PodGroups.
_SERVED = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
_GATES = ("--feature-gates=GenericWorkload=true,GangScheduling=true",)
_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
ARRANGER, KUBE_SCHEDULER = "Arranger", "kube-scheduler"


def run(*, quick: bool) -> list[Figure]:
    """The benchmark; `quick` has Arranger alone, on the embedded cluster."""
    if quick:
        return asyncio.run(_compare(_QUICK_PODS, _QUICK_NODES, 1, None))
    program = scheduler_binary()
    each = asyncio.run(_compare(_PODS, _NODES, _ROUNDS, program))
    return [*each, *asyncio.run(_compare(_PODS, _NODES, _ROUNDS, program, gang=_GANG))]


async def _compare(pods: int, nodes: int, rounds: int, program: Path | None, *, gang: int = 0) -> list[Figure]:
    took: dict[str, list[Took]] = {ARRANGER: []}
    if program is not None:
        took[KUBE_SCHEDULER] = []
    with real_redis() as redis:
        async with api_server(*(_SERVED if gang else ()), real=program is not None) as api:
            await add_nodes(api.cluster, nodes)
            for number in range((_FIRST_PODS + pods) // gang if gang else 0):
                await api.cluster.create(_GROUPS, "default", _group(number, gang))
            for number in range(rounds):
                # Each begins every other round: the second one finds what the first one left, such as Events.
                for name in list(took)[:: -1 if number % 2 else 1]:
                    if name == ARRANGER:
                        took[name].append(await _arranger(api, redis.url, pods, gang))
                    elif program is not None:
                        took[name].append(await _kube_scheduler(api, program, pods, gang))
    what, at_least = (f"{pods:,} pods in gangs of {gang}", 2.0) if gang else (f"{pods:,} plain pods", 1.0)
    return _figures(what, pods, took, at_least=at_least)


async def _arranger(api: ApiServer, redis_url: str, pods: int, gang: int) -> Took:
    """One round on an empty log."""
    async with workers(MIX, redis_url=redis_url, kubeconfig=api.kubeconfig) as processes:
        for process in processes:
            await process.ready()
        made = _pods(pods, "arranger", gang)
        one = await _bound(api, made, lambda: sum(process.cpu_s() for process in processes))
    await clear(api)
    client = connect(redis_url)
    await client.flushall()
    await client.aclose()
    return one


async def _kube_scheduler(api: ApiServer, program: Path, pods: int, gang: int) -> Took:
    """One round by kube-scheduler, with its gang scheduling if there are gangs."""
    with kube_scheduler(api, program, *(_GATES if gang else ())) as daemon:
        one = await _bound(api, _pods(pods, "default-scheduler", gang), lambda: cpu_s(daemon.pid))
    await clear(api)
    return one


async def _bound(api: ApiServer, encoded: Sequence[bytes], spent_s: Callable[[], float]) -> Took:
    """Create the pods and wait until all have nodes, the first ones before the others, which are measured. `spent_s` is
    the processor time of the scheduler so far."""
    async with api.session(IN_FLIGHT) as session:
        await post_pods(session, encoded[:_FIRST_PODS])
        await all_have_nodes(api)
        own_s, server_s, began_s = spent_s(), cpu_s(*api.pids), time.monotonic()
        await post_pods(session, encoded[_FIRST_PODS:])
        await all_have_nodes(api)
    return Took(time.monotonic() - began_s, cpu_s(*api.pids) - server_s, spent_s() - own_s)


def _pods(count: int, scheduler: str, gang: int) -> list[bytes]:
    """So many pods to measure, and those before them, as JSON, in gangs of so many; 0: each alone."""
    made = [_pod(number, scheduler) for number in range(_FIRST_PODS + count)]
    for number, pod in enumerate(made):
        if gang:
            pod["spec"]["schedulingGroup"] = {"podGroupName": f"gang-{number // gang:04}"}
    return [msgspec.json.encode(pod) for pod in made]


def _group(number: int, gang: int) -> Object:
    return {
        "apiVersion": _GROUPS.api_version,
        "kind": _GROUPS.kind,
        "metadata": {"name": f"gang-{number:04}", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": gang}}},
    }


def _pod(number: int, scheduler: str) -> Object:
    requests = {"cpu": "100m", "memory": "256Mi"}
    container = {"name": "main", "image": "registry.example/rl:1", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def _figures(what: str, pods: int, took: Mapping[str, list[Took]], *, at_least: float) -> list[Figure]:
    figures = []
    for name, rounds in took.items():
        rates = [pods / one.seconds for one in rounds]
        spread = f"median of {len(rates)}, {min(rates):.0f} to {max(rates):.0f}"
        rate = statistics.median(rates)
        figures.append(Figure(name=f"{what}, {name}: bound", value=rate, unit="/s", note=spread))
        own_us, server_us = (
            1e6 * statistics.median(of) / pods
            for of in ([one.own_s for one in rounds], [one.server_s for one in rounds])
        )
        figures.append(Figure(name="  its own CPU a pod", value=own_us, unit="µs"))
        if server_us:
            figures.append(Figure(name="  API server's and etcd's CPU a pod", value=server_us, unit="µs"))
    if KUBE_SCHEDULER in took:
        both = list(zip(took[ARRANGER], took[KUBE_SCHEDULER], strict=True))
        rates = [theirs.seconds / ours.seconds for ours, theirs in both]
        figures.append(_ratio("Arranger's rate to kube-scheduler's", rates, at_least=at_least))
        cpu = [(theirs.own_s + theirs.server_s) / (ours.own_s + ours.server_s) for ours, theirs in both]
        figures.append(_ratio("kube-scheduler's CPU to Arranger's, with the API server's", cpu))
    return figures


def _ratio(what: str, ratios: Sequence[float], *, at_least: float | None = None) -> Figure:
    each = "each round: " + ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return Figure(name=f"  {what}", value=statistics.median(ratios), at_least=at_least, note=each)
