"""What one measurement of jobs and GPUs for the metrics costs: processor time, and the longest portion of it.

A process with the role maintenance measures every 15 seconds, and its other tasks run between the portions. Half of the
work depends on the pods that have nodes, and half on the reasons of waiting jobs, so both are measured. All times are
the thread's own, the least of some runs.
"""

import time
from collections.abc import Iterable
from itertools import islice

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.model.pod import PodShape
from arranger.model.reasons import insufficient
from arranger.projections.state import State
from arranger.workers.health.measuring import JOBS_AT_ONCE
from arranger.workers.log.cluster_measures import ClusterMeasures, MeasuredQueues, NodePools
from benchmarks.report import Figure
from benchmarks.workload import History

_TIMES = 5
_WORKERS = 9
_POD = PodShape((("cpu", 500), ("nvidia.com/gpu", 1)))


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes, jobs = (50, 100) if quick else (5_000, 10_000)
    note = f"{nodes:,} nodes, {jobs:,} jobs"
    placed, waiting = _placed(nodes, jobs), _waiting(nodes, jobs)
    pods = jobs * (_WORKERS + 1)
    right = sum(_measured(placed)[2].used.values()) == pods and sum(_measured(waiting)[2].waiting.values()) == jobs
    return [
        *_figures(placed, f"{note} with {pods:,} pods", "pods with nodes"),
        *_figures(waiting, f"{note} that wait", "waiting jobs"),
        Figure(name="  every pod and every job is counted", value=float(right), at_least=1.0),
    ]


def _figures(state: State, note: str, what: str) -> Iterable[Figure]:
    whole_s, portion_s, _ = zip(*(_measured(state) for _ in range(_TIMES)), strict=True)
    yield Figure(name=f"{what}, whole", value=1000 * min(whole_s), unit="ms", at_most=500, note=note)
    yield Figure(name=f"{what}, longest portion", value=1000 * min(portion_s), unit="ms", at_most=20)


def _measured(state: State) -> tuple[float, float, ClusterMeasures]:
    """The processor time of a measurement, as `Measuring` divides it, that of its longest portion, in seconds, and the
    measurement."""
    measures = ClusterMeasures(state, NodePools(), MeasuredQueues())
    jobs, portions = iter(list(state.jobs.values())), []
    while some := list(islice(jobs, JOBS_AT_ONCE)):
        began_s = time.thread_time()
        for job in some:
            measures.add(job)
        portions.append(time.thread_time() - began_s)
    began_s = time.thread_time()
    measures.finish()
    portions.append(time.thread_time() - began_s)
    return sum(portions), max(portions), measures


def _history(nodes: int, jobs: int) -> tuple[State, list[str]]:
    history = History()
    names = history.nodes(nodes)
    history.jobs(jobs, _WORKERS, leader=_POD, worker=_POD)
    history.listed()
    return history.state(), names


def _placed(nodes: int, jobs: int) -> State:
    """Every slot has a node; the pods' own observations don't matter here."""
    state, names = _history(nodes, jobs)
    slots = [(0, 0), *((1, index) for index in range(_WORKERS))]
    for number, job in enumerate(state.jobs.values()):
        for index, slot in enumerate(slots):
            job.slots.nodes[slot] = names[(number * len(slots) + index) % nodes]
    return state


def _waiting(nodes: int, jobs: int) -> State:
    """Every job waits for room, as a cycle has recorded."""
    state, _ = _history(nodes, jobs)
    shortage = LackOfNodes(0, _WORKERS + 1, ((insufficient("nvidia.com/gpu", 1, 0), nodes),), group="actors")
    for job in state.jobs.values():
        job.waits = k.Waits(job.uid, job.version, job.schedule_state, shortage)
    return state
