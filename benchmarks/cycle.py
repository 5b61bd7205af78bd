"""The scheduling engine on 5,000 nodes, decision only, in one thread: the sizes that it is meant for, and its growth.

Times are the thread's own CPU time, the least of several cycles on the same state, so that a busy machine shows little.
Every figure in pods a second counts the whole cycle, events with node names included. The naive scan that the ratio
compares with looks at every node for each pod, and nothing but resources.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup, Topology, TopologyScope
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape, Toleration
from arranger.projections.state import State
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.cycle import VERSIONS, Cycles, take_cycle
from arranger.scheduling.policies.base import PlacementRequest
from arranger.scheduling.policies.most_allocated import MostAllocated
from benchmarks.report import Figure
from benchmarks.workload import GIB, TOLD_MS, History, uid

_CONFIG = CycleConfig(versions=VERSIONS)
_LEADER = PodShape((("cpu", 4_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 1)))
_WORKER = PodShape((("cpu", 2_000), ("memory", 8 * GIB)))
_TIMES = 5

#: One job: its leader, its worker, how many workers, and its pod policy.
Job = tuple[PodShape, PodShape, int, str]


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes, scale = (50, 100) if quick else (5_000, 1)
    return [
        *_equal_pods(nodes, 10_000 // scale),
        *_gangs(nodes, 2_250 // scale),
        *_large_jobs(nodes, 10, 5_000 // scale),
        *_topologies(nodes, 2 * nodes),
        *_nothing_new(nodes, 10_000 // scale),
        *_growth(nodes, 10_000 // scale, 500 // scale),
    ]


def _equal_pods(nodes: int, pods: int) -> list[Figure]:
    figures = []
    cluster = _cluster(nodes)
    few = pods // 20
    naive_s = _least(lambda: _scan(cluster([]), [_LEADER] + [_WORKER] * few)) / (few + 1)
    ours = _by_node(take_cycle(cluster([(_LEADER, _WORKER, few, "")]), _CONFIG, TOLD_MS))
    same = ours == _scan(cluster([]), [_LEADER] + [_WORKER] * few)
    for policy, words, least in (
        ("MostAllocated", "packing", 1e6),
        ("JobAntiAffinity", "spreading", 1e6),
        ("MinFragment", "balancing", None),
        ("JobAffinity", "keeping together", None),
    ):
        seconds, placed = _timed(cluster([(_LEADER, _WORKER, pods, policy)]))
        name = f"{pods:,} equal pods, {words}"
        figures.append(Figure(name=name, value=placed / seconds, unit="pods/s", at_least=least, note=policy))
        if policy == "MostAllocated":
            ratio = naive_s * placed / seconds
            figures.append(Figure(name="  times faster than a scan for each pod", value=ratio))
            figures.append(Figure(name="  same nodes as the scan", value=float(same), at_least=1.0))
    return figures


def _gangs(nodes: int, gangs: int) -> list[Figure]:
    alike = _cluster(nodes)([(_LEADER, _WORKER, 3, "")] * gangs)
    different = _cluster(nodes, mixed=True)([_different(number) for number in range(gangs)])
    seconds, placed = _timed(alike)
    figures = [_rate(f"{gangs:,} jobs of 1+3, all alike", placed / seconds, 200_000, placed)]
    seconds, placed = _timed(different)
    return [*figures, _rate(f"{gangs:,} jobs of 1+3, no two alike", placed / seconds, 20_000, placed)]


def _large_jobs(nodes: int, jobs: int, workers: int) -> list[Figure]:
    seconds, placed = _timed(_cluster(nodes)([(_LEADER, _WORKER, workers, "")] * jobs))
    return [_rate(f"{jobs} jobs of {workers:,} workers", placed / seconds, 1e6, placed)]


def _topologies(nodes: int, pods: int) -> list[Figure]:
    """Pods of half a node's GPUs on all the nodes, in groups that each need a domain: racks of 16, blocks of 256."""
    figures = []
    for size, domain, least in ((8, "rack", 200_000), (64, "block", None)):
        seconds, placed = _timed(_in_racks(nodes, pods, size))
        name = f"{pods:,} pods in groups of {size}, each in a {domain}"
        note = f"{placed:,} pods placed"
        figures.append(Figure(name=name, value=placed / seconds, unit="pods/s", at_least=least, note=note))
    waiting = _in_racks(nodes, 1024, 1024)
    waiting_s = _least(lambda: take_cycle(waiting, _CONFIG, TOLD_MS))
    return [
        *figures,
        Figure(name="a group that no domain takes", value=1000 * waiting_s, unit="ms", note=f"{nodes:,} nodes"),
    ]


def _in_racks(nodes: int, pods: int, size: int) -> State:
    history = History()
    amounts = (("cpu", 64_000), ("memory", 256 * GIB), ("nvidia.com/gpu", 8), ("pods", 110))
    term = history.terms[k.Watched.NODE]
    labels = [(("block", str(number // 256)), ("rack", str(number // 16))) for number in range(nodes)]
    for begin in range(0, nodes, 500):
        history.say(
            *(
                k.NodeSeen(term, f"node-{n:05}", uid("node", n), "1", NodeFacts(amounts, True, False, labels[n]))
                for n in range(begin, min(begin + 500, nodes))
            )
        )
    worker, topology = PodShape((("cpu", 8_000), ("nvidia.com/gpu", 4))), Topology(("rack", "block"))
    topology = msgspec.structs.replace(topology, within=TopologyScope.GROUP)
    actors = PodGroup("actors", pods // size * size, worker, group_size=size, topology=topology)
    groups = (PodGroup("learner", 1, PodShape((("cpu", 4_000),))), actors)
    spec = JobSpec(groups, actors.count, 5, "", "", 3, CleanPodPolicy.ALL, False)
    term = history.terms[k.Watched.JOB]
    history.say(k.JobSeen(term, "default", "job", uid("job", 0), "1", 1, TOLD_MS, False, spec, (), ""))
    history.listed()
    return history.state()


def _nothing_new(nodes: int, jobs: int) -> list[Figure]:
    """A cycle in which as many jobs wait as before, each of another size, and nothing has changed."""
    history, names = _history(nodes, mixed=False)
    history.pods(20 * nodes, names)
    state = _with_jobs(history, [(PodShape((("cpu", 65_000 + n),)), _WORKER, 3, "") for n in range(jobs)])
    cycles = Cycles()
    first_s = _spent(lambda: _told(state, cycles.take(state, _CONFIG, TOLD_MS)))
    again_s = _spent(lambda: cycles.take(state, _CONFIG, TOLD_MS))
    idle_s = _least(lambda: cycles.take(state, _CONFIG, TOLD_MS))
    note = f"{nodes:,} nodes, {20 * nodes:,} pods"
    return [
        Figure(name=f"{jobs:,} jobs of all sizes that don't fit", value=1000 * first_s, unit="ms", note=note),
        Figure(name="  evaluated again after a change", value=1000 * again_s, unit="ms"),
        Figure(name="  nothing new", value=1000 * idle_s, unit="ms", at_most=50),
    ]


def _growth(nodes: int, pods: int, gangs: int) -> list[Figure]:
    """How the time grows with nodes, with equal pods, and with pods that differ: ratios for twice as many."""

    def spent(count: int, jobs: list[Job], *, mixed: bool = False) -> float:
        return _timed(_cluster(count, mixed=mixed)(jobs))[0]

    different = [_different(number) for number in range(2 * gangs)]
    few, many = (spent(n, different[:gangs], mixed=True) for n in (nodes, 2 * nodes))
    once, twice = (spent(nodes, [(_LEADER, _WORKER, n, "")]) for n in (pods, 2 * pods))
    half, all_of_them = (spent(nodes, different[:n], mixed=True) for n in (gangs, 2 * gangs))
    return [
        Figure(name="twice the nodes: time a gang", value=many / few, unit="times", at_most=2.2),
        Figure(name="twice the equal pods: time", value=twice / once, unit="times", at_most=1.2),
        Figure(name="twice the different pods: time", value=all_of_them / half, unit="times", at_most=2.2),
    ]


def _rate(name: str, value: float, least: float, placed: int) -> Figure:
    return Figure(name=name, value=value, unit="pods/s", at_least=least, note=f"{placed:,} pods placed")


# --- worlds ------------------------------------------------------------------------------------------------------


def _cluster(nodes: int, *, mixed: bool = False) -> Callable[[Sequence[Job]], State]:
    def with_jobs(jobs: Sequence[Job]) -> State:
        return _with_jobs(_history(nodes, mixed=mixed)[0], jobs)

    return with_jobs


def _history(nodes: int, *, mixed: bool) -> tuple[History, list[str]]:
    """Empty nodes; `mixed`: in seven pools, every second one with a taint of five."""
    history = History()
    if not mixed:
        return history, history.nodes(nodes)
    amounts = (("cpu", 64_000), ("memory", 256 * GIB), ("nvidia.com/gpu", 8), ("pods", 110))
    names = [f"node-{number:05}" for number in range(nodes)]
    history.say(
        *(
            k.NodeSeen(
                history.terms[k.Watched.NODE], name, uid("node", n), "1",
                NodeFacts(
                    amounts, ready=True, cordoned=False, labels=(("pool", str(n % 7)),),
                    taints=(Taint("team", str(n % 5), "NoSchedule"),) if n % 2 else (),
                ),
            )
            for n, name in enumerate(names)
        )
    )  # fmt: skip
    return history, names


def _with_jobs(history: History, jobs: Sequence[Job]) -> State:
    term = history.terms[k.Watched.JOB]
    for begin in range(0, len(jobs), 500):
        history.say(
            *(
                k.JobSeen(
                    term, "default", f"job-{n:05}", uid("job", n), str(n), 1, TOLD_MS + n, False, _spec(job), (), ""
                )
                for n, job in enumerate(jobs[begin : begin + 500], start=begin)
            )
        )  # fmt: skip
    history.listed()
    return history.state()


def _spec(job: Job) -> JobSpec:
    leader, worker, count, policy = job
    groups = (PodGroup("learner", 1, leader), PodGroup("actors", count, worker))
    return JobSpec(groups, count, 5, "", policy, 3, CleanPodPolicy.ALL, False)


def _different(number: int) -> Job:
    """A job that asks for other amounts than all others; every second one has a selector and a toleration."""
    choosy = bool(number % 2)
    selector = (("pool", str(number % 7)),) if choosy else ()
    tolerations = (Toleration("team", "Equal", str(number % 5), ""),) if choosy else ()
    leader = (("cpu", 1_000 + number), ("memory", GIB + 1_000 * number), ("nvidia.com/gpu", 1))
    worker = (("cpu", 500 + number), ("memory", GIB // 2 + 997 * number))
    return PodShape(leader, selector, tolerations), PodShape(worker, selector, tolerations), 3, ""


def _told(state: State, events: tuple[k.Event, ...]) -> None:
    """Hold the reasons as known, as the fold would, without what it costs."""
    for event in events:
        if isinstance(event, k.Waits):
            state.jobs[event.job_uid].waits = event


# --- time --------------------------------------------------------------------------------------------------------


def _timed(state: State) -> tuple[float, int]:
    """Seconds of a cycle on a state, and the pods that it places."""
    pods = _by_node(take_cycle(state, _CONFIG, TOLD_MS)).total()
    return _least(lambda: take_cycle(state, _CONFIG, TOLD_MS)), pods


def _by_node(events: Sequence[k.Event]) -> Counter[str]:
    """How many pods each node gets."""
    pods: Counter[str] = Counter()
    for event in events:
        for placed in event.pods if isinstance(event, k.Placed) else ():
            pods[placed.node] += sum(last - first + 1 for first, last in placed.indices)
    return pods


def _least(work: Callable[[], object]) -> float:
    return min(_spent(work) for _ in range(_TIMES))


def _spent(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return max(time.thread_time() - began_s, 1e-9)


def _scan(state: State, shapes: Sequence[PodShape]) -> Counter[str]:
    """One pod at a time, all nodes looked at for each; answers the pods by node."""
    view = ClusterView(state.nodes)
    pods: Counter[str] = Counter()
    for shape in shapes:
        request = view.request(shape)
        fits = (view.free >= request).all(axis=1)
        scores = np.where(fits, MostAllocated().scores(view, PlacementRequest(shape, 1, leader=False), _CONFIG), -1)
        row = int(scores.argmax())
        view.take([(row, 1)], request)
        pods[view.names[row]] += 1
    return pods
