"""Decisions over a very large cluster: 100,000 nodes and 1,000,000 pods in the projection of one process.

The state is folded from the events that a watcher would append, batch by batch, in a process of its own, whose largest
resident memory is the figure. Times are the thread's own CPU time, and the median of several decisions: after each one
its events are folded, as in a scheduler that runs, and the next job arrives.
"""

import json
import resource
import statistics
import subprocess
import sys
import time

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.pod import PodShape
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from arranger.scheduling.cycle import VERSIONS, Cycles
from benchmarks.report import Figure
from benchmarks.workload import GIB, TOLD_MS, node_facts, pod_seen, uid

_CONFIG = CycleConfig(versions=VERSIONS)
_LEADER = PodShape((("cpu", 4_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 1)))
_WORKER = PodShape((("cpu", 2_000), ("memory", 8 * GIB)))
_BATCH = 1_000
_TIMES = 9


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes, pods, equal = (500, 5_000, 100) if quick else (100_000, 1_000_000, 10_000)
    argv = [sys.executable, "-m", "benchmarks.scale", str(nodes), str(pods), str(equal)]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    note = f"{nodes:,} nodes, {pods:,} pods"
    return [
        Figure(name="events folded", value=found["events_a_s"], unit="events/s", note=note),
        Figure(name="resident at most", value=found["most_mb"], unit="MB", at_most=2_500, note=note),
        Figure(name=f"{equal:,} equal pods", value=found["equal_ms"], unit="ms", at_most=60, note="one job, BinPack"),
        Figure(name="a gang of 1+3", value=found["gang_ms"], unit="ms", at_most=1, note="a cycle with one new job"),
        Figure(name="nothing new", value=found["idle_ms"], unit="ms", at_most=1, note="a cycle without a new job"),
    ]  # fmt: skip


class _Cluster:
    """A projection that grows by the events of a watcher and of the cycles taken on it."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.state, self.cycles = State(), Cycles()
        self._jobs = 0
        self.fold(k.EpochBegun(1, 0, "benchmark"))
        self._terms = {kind: self.fold(k.claim(kind, "benchmark")) for kind in k.Watched}
        names = [f"node-{number:06}" for number in range(nodes)]
        for begin in range(0, nodes, _BATCH):
            self.fold(*(self._node(names[n], n) for n in range(begin, min(begin + _BATCH, nodes))))
        term = self._terms[k.Watched.POD]
        for begin in range(0, pods, _BATCH):
            self.fold(*(pod_seen(term, n, names, pods, 0) for n in range(begin, min(begin + _BATCH, pods))))
        for kind in k.Watched:
            self.fold(k.ListingEnded(kind, self._terms[kind], "1"))

    def _node(self, name: str, number: int) -> k.NodeSeen:
        return k.NodeSeen(self._terms[k.Watched.NODE], name, uid("node", number), "1", node_facts(name, number))

    def fold(self, *events: k.Event) -> int:
        """Fold one batch; returns the offset of its first event."""
        first = self.state.offset + 1
        batch = k.Batch("benchmark", first, TOLD_MS, events)
        apply_entry(self.state, Entry(first, first + len(events) - 1, "", batch), Changes())
        return first

    def job(self, workers: int) -> None:
        """A new job of this many workers, all needed."""
        groups = (PodGroup("learner", 1, _LEADER), PodGroup("actors", workers, _WORKER))
        spec = JobSpec(groups, workers, 5, "", "", 3, CleanPodPolicy.ALL, False)
        n, self._jobs = self._jobs, self._jobs + 1
        term = self._terms[k.Watched.JOB]
        self.fold(k.JobSeen(term, "default", f"job-{n}", uid("job", n), "1", 1, TOLD_MS + n, False, spec, (), ""))

    def cycle_ms(self, *, places: int) -> float:
        """Milliseconds of processor time of one cycle, which must place this many pods; its events are folded."""
        began_s = time.thread_time()
        events = self.cycles.take(self.state, _CONFIG, TOLD_MS)
        spent_ms = 1000 * (time.thread_time() - began_s)
        if events:
            self.fold(*events)
        placed = [one for event in events if isinstance(event, k.Placed) for one in event.pods]
        assert sum(last - first + 1 for one in placed for first, last in one.indices) == places
        return spent_ms


def _figures(nodes: int, pods: int, equal: int) -> dict[str, float]:
    began_s = time.thread_time()
    cluster = _Cluster(nodes, pods)
    fold_s = time.thread_time() - began_s
    cluster.job(3)
    cluster.cycle_ms(places=4)  # the first cycle of a process builds the tables that later ones keep
    gang_ms, equal_ms, idle_ms = [], [], []
    for _ in range(_TIMES):
        cluster.job(3)
        gang_ms.append(cluster.cycle_ms(places=4))
        idle_ms.append(cluster.cycle_ms(places=0))
    for _ in range(_TIMES):
        cluster.job(equal - 1)
        equal_ms.append(cluster.cycle_ms(places=equal))
    return {
        "events_a_s": cluster.state.offset / fold_s,
        "most_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "equal_ms": statistics.median(equal_ms),
        "gang_ms": statistics.median(gang_ms),
        "idle_ms": statistics.median(idle_ms),
    }


if __name__ == "__main__":
    print(json.dumps(_figures(*map(int, sys.argv[1:]))))
