"""The projection: everything that the log has said so far, as of one offset.

`State` is changed by `fold.apply_entry` alone. Whoever decides only reads it. What a fold touched is told through
`Changes`, which is not part of the state: it only spares the readers a full look.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from arranger.events.kinds import PodSeen, QuotaSeen, Watched
from arranger.model.pod import PodOwner
from arranger.projections.consistency import Inconsistency, inconsistencies
from arranger.projections.jobs import JobRecord
from arranger.projections.nodes import NodeTable, Requests

#: Without these nobody decides anything.
_NEEDED = (Watched.NODE, Watched.POD, Watched.JOB)


class InconsistentState(ValueError):
    """A state at odds with itself; `found` says in what."""

    def __init__(self, found: Sequence[Inconsistency]) -> None:
        super().__init__("\n".join(map(str, found)))
        self.found = found


@dataclass(slots=True)
class Verdict:
    """Whether a decision took effect at its own offset, and if not, why not."""

    offset: int
    kind: str
    accepted: bool
    reason: str = ""
    #: Its cycle was taken on a state that another cycle had left behind.
    superseded: bool = False


@dataclass(slots=True)
class Changes:
    """What folding some entries touched: jobs by UID in order of first touch, and the verdicts on decisions."""

    jobs: dict[str, None] = field(default_factory=dict)
    #: A job that may now be placed, or room that a waiting job may now use.
    schedulable: bool = False
    verdicts: list[Verdict] = field(default_factory=list)


class Assumed(msgspec.Struct, frozen=True, array_like=True):
    """A pod that nobody has seen, of a slot that was given up while it was being created: it may be on its way, or run
    and the watch be late. Its room is kept for it until it is seen, or until `until_ms` (milliseconds since 1970)."""

    owner: PodOwner
    node: str
    requests: Requests
    until_ms: int


@dataclass(slots=True, repr=False)
class State:
    """The cluster and the jobs as the log has them at `offset` of `epoch`.

    `time_ms` is the latest time that any event told. `pods` are by UID, `pods_of` those of our jobs by job UID,
    `repelling` those that keep other pods away (required anti-affinity). `terms` hold each watched kind's current
    term, `listed` the kinds listed in full in this epoch.
    """

    epoch: int = 0
    offset: int = 0
    time_ms: int = 0
    nodes: NodeTable = field(default_factory=NodeTable)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    pods_of: dict[str, dict[str, PodSeen]] = field(default_factory=dict)
    repelling: dict[str, PodSeen] = field(default_factory=dict)
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    #: By slot, in the order in which they end.
    assumed: dict[PodOwner, Assumed] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)
    listed: dict[str, bool] = field(default_factory=dict)
    last_cycle: int = 0
    #: Counts the changes of jobs that a cycle looks at. This process's own, no part of what was said: with
    #: `nodes.changes` it tells whether a cycle would find anything new.
    job_changes: int = 0
    #: Kind of decision → [accepted, rejected].
    verdicts: dict[str, list[int]] = field(default_factory=dict)
    #: Namespace → name → ResourceQuota; only namespaces that have one.
    quotas: dict[str, dict[str, QuotaSeen]] = field(default_factory=dict)
    #: Kinds that the API server doesn't let be watched, with the HTTP status that says so.
    unwatched: dict[str, int] = field(default_factory=dict)
    #: The Kubernetes cluster whose log this is, by the UID of its namespace kube-system; empty while nobody has told.
    cluster: str = ""
    #: Whether a pod is a job's only with the namespace, name and node of its slot (`WatchClaimed.exact_slots`).
    exact_slots: bool = False
    #: Whether a leader's address is what its pod shows (`WatchClaimed.pod_addresses`).
    pod_addresses: bool = False

    def __repr__(self) -> str:
        # In short: asyncio asks for it when a coroutine has returned a state, and a whole cluster takes a second.
        return f"<State at offset {self.offset} of epoch {self.epoch}>"

    @property
    def synced(self) -> bool:
        """Every kind has been listed in this epoch. Before that nobody may decide: absence says nothing yet.

        Quotas count only once somebody watches them, because older logs don't have them, and not while the API server
        refuses them: then its refusal of a pod is all that is known.
        """
        if not all(self.listed.get(kind, False) for kind in _NEEDED):
            return False
        quota = Watched.QUOTA
        return quota not in self.terms or self.listed.get(quota, False) or quota in self.unwatched

    def validate(self) -> None:
        """Raise `InconsistentState` unless the state is consistent; slow for a large one."""
        if found := [*inconsistencies(self)]:
            raise InconsistentState(found)

    def foreign(self, cluster: str) -> bool:
        """Whether a Kubernetes cluster is known to be another than the log's; one that isn't known is not."""
        return bool(cluster and self.cluster) and cluster != self.cluster

    def assumed_until(self, time_ms: int) -> Iterator[Assumed]:
        """The assumed pods that aren't waited for any more at a time, which the next entry of the log forgets."""
        for pod in self.assumed.values():
            if pod.until_ms > time_ms:
                return
            yield pod

    def find_job(self, namespace: str, name: str) -> JobRecord | None:
        """The job of that name that is not being deleted, else the newest of that name, else None."""
        found = [j for j in self.jobs.values() if j.seen.name == name and j.seen.namespace == namespace]
        return max(found, key=lambda j: (not j.seen.deleting, j.seen.created_ms, j.uid), default=None)
