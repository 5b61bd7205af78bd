"""One scheduling cycle on a large cluster, against placing one pod at a time with a full scan for each.

The scan that it is compared with is numpy's too, filters nothing but resources and records nothing, so what the ratio
leaves out is to the scan's advantage. Both must choose the same nodes.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from arranger.events.kinds import Placed, Waits
from arranger.model.config import CycleConfig
from arranger.model.pod import PodShape
from arranger.projections.jobs import expand
from arranger.projections.state import State
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.scheduling.policies.base import Ask
from arranger.scheduling.policies.binpack import BinPack
from arranger.scheduling.view import ClusterView
from benchmarks.report import Figure
from benchmarks.workload import GIB, TOLD_MS, History

_WORKER = PodShape((("cpu", 2_000), ("memory", 8 * GIB)))
_LEADER = PodShape((("cpu", 4_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 1)))
_HUGE = PodShape((("cpu", 65_000),))
_T = TypeVar("_T")
_CONFIG = CycleConfig(versions=VERSIONS)


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes, pods, gangs, waiting = (50, 100, 20, 100) if quick else (5_000, 10_000, 2_000, 10_000)
    one = _cluster(nodes, jobs=1, workers=pods, worker=_WORKER)
    one_s, events = _timed(lambda: take_cycle(one, _CONFIG, TOLD_MS))
    ours = Counter(node for event in events if isinstance(event, Placed) for node in expand(event.pods).values())
    scan_s, scanned = _timed(lambda: _one_at_a_time(one, [_LEADER] + [_WORKER] * pods))
    many = _cluster(nodes, jobs=gangs, workers=3, worker=_WORKER)
    many_s, events = _timed(lambda: take_cycle(many, _CONFIG, TOLD_MS))
    placed = sum(isinstance(event, Placed) for event in events)
    stuck = _cluster(nodes, jobs=waiting, workers=3, worker=_HUGE)
    first_s, events = _timed(lambda: take_cycle(stuck, _CONFIG, TOLD_MS))
    for event in events:  # the reasons are known now, so the next cycle has nothing new to say
        if isinstance(event, Waits):
            stuck.jobs[event.job_uid].waits = event
    idle_s, events = _timed(lambda: take_cycle(stuck, _CONFIG, TOLD_MS + 1))
    return [
        Figure(name=f"{pods:,} equal pods", value=1000 * one_s, unit="ms", note=f"one job on {nodes:,} nodes"),
        Figure(name="the same, a scan for each pod", value=1000 * scan_s, unit="ms", note="numpy, resources alone"),
        Figure(name="times faster than the scan", value=scan_s / one_s),
        Figure(name="same nodes as the scan", value=float(ours == scanned), at_least=1.0),
        Figure(name=f"{gangs:,} gangs of 1+3", value=1000 * many_s, unit="ms", note=f"{placed:,} of them placed"),
        Figure(name="a gang", value=1e6 * many_s / gangs, unit="µs"),
        Figure(name=f"{waiting:,} jobs that don't fit", value=1000 * first_s, unit="ms", note="reasons recorded"),
        Figure(name="again, nothing new", value=1000 * idle_s, unit="ms", note=f"{len(events)} events"),
    ]


def _cluster(nodes: int, *, jobs: int, workers: int, worker: PodShape) -> State:
    history = History()
    names = history.nodes(nodes)
    history.pods(nodes, names)
    history.jobs(jobs, workers, leader=_LEADER, worker=worker)
    history.listed()
    return history.state()


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    began_s = time.perf_counter()
    result = work()
    return time.perf_counter() - began_s, result


def _one_at_a_time(state: State, shapes: list[PodShape]) -> Counter[str]:
    """The pods by node when each pod looks at every node anew."""
    view = ClusterView(state.nodes)
    chosen: Counter[str] = Counter()
    for shape in shapes:
        request = view.request(shape)
        fits = (view.free >= request).all(axis=1)
        scores = np.where(fits, BinPack().scores(view, Ask(shape, 1, leader=False), _CONFIG), -1)
        row = int(scores.argmax())
        view.take([(row, 1)], request)
        chosen[view.names[row]] += 1
    return chosen
