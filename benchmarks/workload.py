"""Synthetic clusters, as the events that a watcher would append: the same ones every time."""

from collections.abc import Iterator

from arranger.events import kinds as k
from arranger.events.codec import decode_batch, encode_batch
from arranger.events.log import Entry
from arranger.events.log_keys import next_chain
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.node import NodeFacts
from arranger.model.pod import PodOwner, PodShape
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State

GIB = 1 << 30
TOLD_MS = 1_700_000_000_000
#: Events of one batch, about what a page of a listing gives.
_BATCH = 500
_ZONES = 5


class History:
    """Batches written one after the other, and the state that they fold to."""

    def __init__(self) -> None:
        self.batches: list[k.Batch] = []
        self.offset = 0
        self.say(k.EpochBegun(1, 0, "benchmark"))
        self.terms = {kind: self.say(k.WatchClaimed(kind, "benchmark")) for kind in k.Watched}

    def say(self, *events: k.Event) -> int:
        """One batch; answers the offset of its first event."""
        first = self.offset + 1
        self.batches.append(k.Batch("benchmark", len(self.batches) + 1, TOLD_MS, events))
        self.offset += len(events)
        return first

    def nodes(self, count: int) -> list[str]:
        """Nodes as in `node_facts`; answers their names."""
        names = [f"node-{number:05}" for number in range(count)]
        term = self.terms[k.Watched.NODE]
        self._say_in_batches(
            [
                k.NodeSeen(term, name, uid("node", number), str(number), node_facts(name, number))
                for number, name in enumerate(names)
            ]
        )
        return names

    def pods(self, count: int, nodes: list[str], *, jobs: int = 0) -> None:
        """Running pods spread over the nodes; the first half of them in turn of `jobs`, the others strangers'."""
        self._say_in_batches([pod_seen(self.terms[k.Watched.POD], n, nodes, count, jobs) for n in range(count)])

    def jobs(self, count: int, workers: int, *, leader: PodShape, worker: PodShape) -> None:
        """Waiting TYJobs of one leader and `workers` workers, all needed."""
        groups = (PodGroup("learner", 1, leader), PodGroup("actors", workers, worker))
        spec = JobSpec(groups, workers, 5, "", "", 3, CleanPodPolicy.ALL, False)
        term = self.terms[k.Watched.JOB]
        self._say_in_batches(
            [
                k.JobSeen(
                    term, "default", f"job-{n:05}", uid("job", n), str(n), 1, TOLD_MS + n, False, spec, (), ""
                )
                for n in range(count)
            ]
        )  # fmt: skip

    def listed(self) -> None:
        """Every kind has been listed in full."""
        for kind in k.Watched:
            self.say(k.ListingEnded(kind, self.terms[kind], "1"))

    def entries(self) -> Iterator[Entry]:
        """The batches as a reader gets them."""
        last, chain = 0, ""
        for batch in self.batches:
            first, last = last + 1, last + len(batch.events)
            chain = next_chain(chain, encode_batch(batch))
            yield Entry(first, last, chain, batch)

    def state(self) -> State:
        """What all of it folds to."""
        state, changes = State(), Changes()
        for entry in self.entries():
            apply_entry(state, entry, changes)
        return state

    def _say_in_batches(self, events: list[k.Event]) -> None:
        for begin in range(0, len(events), _BATCH):
            self.say(*events[begin : begin + _BATCH])


def node_facts(name: str, number: int) -> NodeFacts:
    """A node of 64 cores, 256 GiB and 8 GPUs with the labels that nodes have."""
    amounts = (("cpu", 64_000), ("ephemeral-storage", 500 * GIB), ("memory", 256 * GIB), ("nvidia.com/gpu", 8))
    labels = (
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "gpu-8"),
        ("topology.kubernetes.io/zone", f"zone-{number % _ZONES}"),
    )
    return NodeFacts((*amounts, ("pods", 110)), ready=True, cordoned=False, labels=labels)


def pod_seen(term: int, number: int, nodes: list[str], count: int, jobs: int, *, round_: int = 0) -> k.PodSeen:
    """Pod `number` of `count`, seen for the `round_`-th time (each differs from the one before)."""
    owner = None
    if jobs and number < count // 2:
        owner = PodOwner(uid("job", number % jobs), 0, "actors", False, number // jobs)
    return k.PodSeen(
        term, "default", f"job-{number % max(jobs, 1):05}-actors-{number // max(jobs, 1)}", uid("pod", number),
        str(10_000 + round_ * count + number), nodes[number % len(nodes)], "Running",
        (("cpu", 500), ("memory", 2 * GIB)), owner, round_ % 2 == 0, False,
        ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
    )  # fmt: skip


def uid(kind: str, number: int) -> str:
    """A UID as long as Kubernetes' own."""
    return f"{ {'node': 1, 'pod': 2, 'job': 3}[kind]:08}-0000-4000-8000-{number:012}"


def decoded(batches: list[k.Batch], last: int) -> Iterator[Entry]:
    """The batches after an offset as a reader gets them: with objects of their own."""
    for batch in batches:
        first, last = last + 1, last + len(batch.events)
        yield Entry(first, last, "", decode_batch(encode_batch(batch), first))
