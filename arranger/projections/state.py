"""The projection: the result of all log entries up to one offset.

Only `fold.apply_entry` changes a `State`; decisions only read it. `Changes` reports what a fold touched. It is not part
of the state: it only saves its readers a full scan.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from arranger.events.kinds import (
    NEEDED,
    OPTIONAL,
    SETTING_OF,
    LimitKept,
    LimitRangeSeen,
    NamespaceSeen,
    NodesRequested,
    PodGroupSeen,
    PodSeen,
    PriorityClassSeen,
    ProvisioningSeen,
    QueueSeen,
    QuotaSeen,
    Reserved,
    RuntimeClassSeen,
    StartForecast,
    Watched,
)
from arranger.model.pod import TERMINAL, PodOwner
from arranger.model.provisioning import NodesAnswer
from arranger.projections.cluster.device_table import DeviceTable
from arranger.projections.cluster.nodes import NodeTable, Requests
from arranger.projections.cluster.volume_table import VolumeTable
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.run_times import RunTimes
from arranger.projections.queues.tree import QueueTree, queue_tree
from arranger.projections.queues.use import QueueUse

_NONE: Mapping[str, Any] = MappingProxyType({})

#: Later than any time, in milliseconds since 1970, and than any offset.
_FOREVER = 1 << 60


@dataclass(slots=True)
class Verdict:
    """Whether a decision took effect at its own offset, and if not, why not."""

    offset: int
    kind: str
    accepted: bool
    reason: str = ""
    #: Its cycle was taken on a state older than another cycle.
    superseded: bool = False


@dataclass(slots=True)
class Changes:
    """The effect of folding some entries: touched jobs by UID, in order of first touch, and verdicts on decisions."""

    jobs: dict[str, None] = field(default_factory=dict)
    #: Nodes that are gone, not ready, or ready again. The jobs with pods there aren't touched: there may be many.
    nodes: set[str] = field(default_factory=set)
    #: A job may now be placed, or a waiting job may use room that became free.
    schedulable: bool = False
    verdicts: list[Verdict] = field(default_factory=list)


class KeptLimit(msgspec.Struct, frozen=True, array_like=True):
    """The limit that is kept for a waiting job at present, and when that was decided, in milliseconds since 1970."""

    decided: LimitKept
    time_ms: int


class Reservation(msgspec.Struct, frozen=True, array_like=True):
    """The present reservation of a waiting job, when it was decided or last found to be as before, and the start that
    was first expected (milliseconds since 1970; 0 if it was unknown). `since_ms` is when the first one in a row was
    decided."""

    decided: Reserved
    time_ms: int
    first_ms: int
    since_ms: int = 0

    @property
    def pods(self) -> dict[int, int]:
        """Group → the number of its pods for which it is."""
        found: dict[int, int] = {}
        for of in self.decided.pods:
            found[of.group] = found.get(of.group, 0) + sum(last - first + 1 for first, last in of.indices)
        return found


class Forecasted(msgspec.Struct, frozen=True, array_like=True):
    """The last forecast for a waiting job, and when it was made, in milliseconds since 1970."""

    decided: StartForecast
    time_ms: int


class NodesRequest(msgspec.Struct, frozen=True, array_like=True):
    """The last request for nodes of a job, when it was decided, how many before it failed in a row, and the answer with
    its time (milliseconds since 1970; 0 without one). `over`: it isn't needed any more."""

    decided: NodesRequested
    time_ms: int
    failures: int = 0
    answer: NodesAnswer = NodesAnswer.NONE
    answered_ms: int = 0
    message: str = ""
    over: bool = False


#: How long the room of a given-up slot is kept for its pod, if the pod was being created and was never seen.
ASSUMED_MS = 10_000


class Assumed(msgspec.Struct, frozen=True, array_like=True):
    """An unobserved pod of a slot that was released while the pod was being created: its creation may be pending, or
    the watch may be late. Its room is kept until it is observed, or until `until_ms` (milliseconds since 1970).
    No queue counts it: a pod that comes late is deleted, and no queue counts pods that leave."""

    owner: PodOwner
    node: str
    requests: Requests
    until_ms: int


@dataclass(slots=True, repr=False)
class State:
    """The cluster and the jobs as the log has them at `offset` of `epoch`.

    `time_ms` is the latest time of any entry. `pods` are by UID, `pods_of` those of our jobs by job UID, `repelling`
    those that keep other pods away (required anti-affinity). `deleting` has the UIDs of those that are being deleted;
    it follows from the pods. `terms` has each watched kind's current term, `listed` the kinds listed in full in this
    epoch.
    """

    epoch: int = 0
    offset: int = 0
    time_ms: int = 0
    nodes: NodeTable = field(default_factory=NodeTable)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    pods_of: dict[str, dict[str, PodSeen]] = field(default_factory=dict)
    repelling: dict[str, PodSeen] = field(default_factory=dict)
    deleting: dict[str, None] = field(default_factory=dict)
    #: UID of the record of a group of pods that no TYJob owns → the UIDs of those that have succeeded. It follows from
    #: the pods, and is there without the record, too.
    finished: dict[str, dict[str, None]] = field(default_factory=dict)
    #: The PodGroups by the UID of the record that their pods have.
    pod_groups: dict[str, PodGroupSeen] = field(default_factory=dict)
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    #: By slot and node, in the order in which they end.
    assumed: dict[tuple[PodOwner, str], Assumed] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)
    listed: dict[str, bool] = field(default_factory=dict)
    last_cycle: int = 0
    #: Counts the changes of jobs that matter to a cycle. It belongs to this process, not to the projected state: with
    #: `nodes.changes` it shows whether a cycle could find anything new.
    scheduling_changes: int = 0
    #: Kind of decision → [accepted, rejected].
    verdicts: dict[str, list[int]] = field(default_factory=dict)
    #: Namespace → name → ResourceQuota; only namespaces that have one.
    quotas: dict[str, dict[str, QuotaSeen]] = field(default_factory=dict)
    #: The objects of each kind of which only the name is asked for: kind → name → object, the name with its
    #: namespace if the kind has any; only kinds that have some.
    plain: dict[Watched, dict[str, Any]] = field(default_factory=dict)
    #: Namespace → name → LimitRange; only namespaces that have one.
    limit_ranges: dict[str, dict[str, LimitRangeSeen]] = field(default_factory=dict)
    #: By name, as observed; `queues/tree` also has the queue `default` if nobody created it.
    queues: dict[str, QueueSeen] = field(default_factory=dict)
    namespaces: dict[str, NamespaceSeen] = field(default_factory=dict)
    #: Kinds whose watch the API server refuses, with the HTTP status of the refusal.
    unwatched: dict[str, int] = field(default_factory=dict)
    #: The Kubernetes cluster of this log, by the UID of its namespace kube-system; empty while unknown.
    cluster: str = ""
    #: Kind → up to when the log has all of its changes, in milliseconds since 1970.
    heard: dict[str, int] = field(default_factory=dict)
    #: Whether volumes decide on nodes (`WatchClaimed.volumes`), and what is known of them.
    with_volumes: bool = False
    volumes: VolumeTable = field(default_factory=VolumeTable)
    #: Whether devices are allocated (`WatchClaimed.devices`), and what is known of them.
    with_devices: bool = False
    devices: DeviceTable = field(default_factory=DeviceTable)
    #: (Namespace, name) → the UIDs of the jobs of that name, and of those that wait for it. They follow from the jobs,
    #: so a snapshot doesn't have them.
    named: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    dependents: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    #: The jobs whose pods have rules about other pods, or claims, which may turn out to have some.
    with_rules: dict[str, None] = field(default_factory=dict)
    #: UID of a TYJob that isn't there and whose pods are → since when, in milliseconds since 1970.
    orphaned: dict[str, int] = field(default_factory=dict)
    #: The jobs whose nodes others are still to leave (`SlotTable.room`); it follows from the jobs.
    awaiting: dict[str, None] = field(default_factory=dict)
    #: The jobs that took room and haven't been Running with it (`JobRecord.taken`); it follows from the jobs too.
    takers: dict[str, None] = field(default_factory=dict)
    #: The offset of the last entry by which room comes or leaves otherwise than was known before, if no cycle knows it
    #: yet, else 0: what is reserved is to be sought again.
    room_news: int = 0
    #: By the UID of the job.
    reservations: dict[str, Reservation] = field(default_factory=dict)
    #: By the UID of the job.
    kept_limits: dict[str, KeptLimit] = field(default_factory=dict)
    #: By the UID of the job; a forecast of an earlier version of the job doesn't count.
    forecasts: dict[str, Forecasted] = field(default_factory=dict)
    #: By the UID of the job, which may be one that has ended.
    requests: dict[str, NodesRequest] = field(default_factory=dict)
    #: UID of the job → name → its ProvisioningRequest, as observed.
    seen_requests: dict[str, dict[str, ProvisioningSeen]] = field(default_factory=dict)
    #: UID of the job → UID of the pod → its placeholder. They follow from the pods, so a snapshot doesn't have them.
    placeholders: dict[str, dict[str, PodSeen]] = field(default_factory=dict)
    #: What the jobs of each queue use.
    queue_use: QueueUse = field(default_factory=QueueUse)
    #: How long jobs of each kind ran.
    run_times: RunTimes = field(default_factory=dict)

    #: The tree of the queues, which follows from them; None until it is needed after a change.
    _tree: QueueTree | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        # Short, because asyncio calls it when a coroutine returned a state, and a whole cluster takes a second.
        return f"<State at offset {self.offset} of epoch {self.epoch}>"

    @property
    def priority_classes(self) -> Mapping[str, PriorityClassSeen]:
        """By name."""
        return self.plain.get(Watched.PRIORITY_CLASS, _NONE)

    @property
    def runtime_classes(self) -> Mapping[str, RuntimeClassSeen]:
        """By name."""
        return self.plain.get(Watched.RUNTIME_CLASS, _NONE)

    @property
    def synced(self) -> bool:
        """Whether every kind was listed in this epoch. Before that no decision is made: absence proves nothing yet.

        Optional kinds are needed only once they are watched, and not while the API server refuses their watch: then
        only refusals of pods reveal quotas, jobs wait for their classes, the only queue is `default`, and namespaces
        have neither labels nor queues. While volumes decide, their kinds are needed at once, and those of devices while
        these are allocated.
        """
        listed, unwatched = self.listed, self.unwatched
        if not all([listed.get(kind) for kind in NEEDED]):
            return False
        absent = [kind for kind in OPTIONAL if not listed.get(kind) and kind not in unwatched]
        return not any([self.watches(kind) for kind in absent])

    def watches(self, kind: Watched) -> bool:
        """Whether a kind is watched: with its setting alone, or once a watcher has claimed it."""
        settings = {"volumes": self.with_volumes, "devices": self.with_devices}
        if kind in SETTING_OF and not settings[SETTING_OF[kind]]:
            return False
        return kind in self.terms or kind in SETTING_OF

    @property
    def queue_tree(self) -> QueueTree:
        """The queues as a tree, with what is wrong with each. Don't modify it."""
        if self._tree is None:
            self._tree = queue_tree(self.queues)
        return self._tree

    @property
    def queue_totals(self) -> Mapping[str, Mapping[str, int]]:
        """Queue → what its jobs and those of the queues below it use, as in `QueueUse`. Don't modify it."""
        return self.queue_use.totals(self.queue_tree.paths)

    def is_host(self, uid: str) -> bool:
        """Whether something is kept for a job that others may use as its guests: room, or a limit."""
        return uid in self.reservations or uid in self.kept_limits

    def awaits_end(self, host: str, uid: str) -> bool:
        """Whether the reservation of a job, or the limit that is kept for it, waits for the end of another one. A guest
        for whose end its host waits needn't leave: its queue is within its share by then, and the host would lift its
        own above."""
        return uid in self.awaited_by(host)

    def awaited_by(self, host: str) -> tuple[str, ...]:
        """The jobs for whose ends these wait."""
        reservation, limit = self.reservations.get(host), self.kept_limits.get(host)
        room = reservation.decided.awaits if reservation is not None else ()
        return (*room, *(limit.decided.awaits if limit is not None else ()))

    def note_room(self) -> None:
        """Note that room comes or leaves otherwise than was known before the present entry. `date_room_news` follows at
        its end."""
        self.room_news = _FOREVER

    def date_room_news(self, last: int) -> None:
        """Give the news of the entry that ends at this offset, if there are any, that offset."""
        if self.room_news == _FOREVER:
            self.room_news = last

    def note_deleting(self, pod: PodSeen) -> None:
        """Keep whether a pod is being deleted."""
        if pod.deleting:
            self.deleting[pod.uid] = None
        else:
            self.deleting.pop(pod.uid, None)

    def tree_changed(self) -> None:
        """Note that a queue has changed."""
        self._tree = None

    def heard_ms(self, kind: Watched) -> int:
        """Up to when all changes of a kind are known, in milliseconds since 1970; 0 if no watch has told."""
        return self.heard.get(kind, 0)

    def known_ms(self, time_ms: int) -> int:
        """Up to when all changes of pods and nodes are known, at the latest `time_ms`, in milliseconds since 1970. What
        takes nodes or pods from a job by time alone counts up to here: on a view that is late, what it waits for may
        have happened long ago."""
        return min(time_ms, self.heard_ms(Watched.POD), self.heard_ms(Watched.NODE))

    def is_lost(self, node: str, lost_after_ms: int, time_ms: int) -> bool:
        """Whether a node has been down for so long, and nothing that happened until then is unknown."""
        return self.nodes.down_for_ms(node, self.known_ms(time_ms)) >= lost_after_ms

    def hear_all(self) -> None:
        """Let all changes be known at any time: for a state that has no watches."""
        self.heard = dict.fromkeys(Watched, _FOREVER)

    def foreign(self, cluster: str) -> bool:
        """Whether a Kubernetes cluster is known to differ from the log's; an unknown one isn't."""
        return bool(cluster and self.cluster) and cluster != self.cluster

    def assumed_until(self, time_ms: int) -> Iterator[Assumed]:
        """The assumed pods whose time has ended at `time_ms`; the next entry of the log drops them."""
        for pod in self.assumed.values():
            if pod.until_ms > time_ms:
                return
            yield pod

    def forget_assumed(self, pods: Iterable[Assumed]) -> None:
        """Give back the room of assumed pods."""
        for pod in pods:
            del self.assumed[pod.owner, pod.node]
            self.nodes.release(pod.node, pod.requests)

    def lapsed_ms(self, time_ms: int) -> int:
        """When the last assumed pod lapsed up to a time; without one, the time of the last entry (milliseconds since
        1970). Between this time and `time_ms` nothing lapses."""
        return max((pod.until_ms for pod in self.assumed_until(time_ms)), default=self.time_ms)

    def as_of(self, time_ms: int) -> "State":
        """The state as people read it at a time after its last entry (milliseconds since 1970): as an entry without
        events would leave it then. Time alone ends an assumed pod, so that one whose time is over counts nowhere. It
        shares with this state what didn't change: nobody may fold either while it is used."""
        time_ms = max(time_ms, self.time_ms)
        lapsed = list(self.assumed_until(time_ms))
        if time_ms == self.time_ms and not lapsed:  # who reads it may have given it the later time already
            return self
        _ = self.queue_tree  # made once for both
        seen = replace(self, time_ms=time_ms)
        if lapsed:
            seen.nodes, seen.queue_use, seen.assumed = self.nodes.copy(), self.queue_use.copy(), dict(self.assumed)
            seen.queue_use.time_ms = time_ms
            seen.forget_assumed(lapsed)
        return seen

    def slots_in_use(self, job: JobRecord) -> Iterator[SlotKey]:
        """The slots of a job that use room: not those whose node was deleted, or whose pod has ended. Until that is
        replaced, the slot keeps its node, and its place in the queue, but the room is free to others."""
        gone = {node for node in dict.fromkeys(job.placements.values()) if not self.nodes.has(node)}
        ended = {slot for slot, phase in job.slots.not_running.items() if phase in TERMINAL}
        return (slot for slot, node in job.placements.items() if node not in gone and slot not in ended)

    def find_job(self, namespace: str, name: str) -> JobRecord | None:
        """The job of that name that is not being deleted, else the newest of that name, else None."""
        found = [self.jobs[uid] for uid in self.named.get((namespace, name), ())]
        return max(found, key=lambda j: (not j.seen.deleting, j.seen.created_ms, j.uid), default=None)
