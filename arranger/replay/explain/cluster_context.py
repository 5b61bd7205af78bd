"""Events around a job while the log is read: placements of other jobs, changes of nodes, specs, queues, namespaces and
configurations, and foreign pods. Each is kept with its offset, so that an explanation can name the event that keeps a
job waiting.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, JobSpec, PlacedPods
from arranger.model.names import POD_PREFIX, pod_name
from arranger.model.node import NodeFacts
from arranger.model.pod import PodOwner
from arranger.model.pods_to_place import pod_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import holds
from arranger.projections.state import State
from arranger.replay.explain.turns import Order

#: The number of changes that are kept for each node, queue and namespace, the newest ones.
_TURNS_KEPT = 8
#: The number of deleted pods that are kept, because the affinity of a waiting job may require one of them.
_GONE_KEPT = 1000


_Value = TypeVar("_Value")


class ChangedValue(msgspec.Struct, Generic[_Value], frozen=True):
    """An event that changed a value, and the value before and after it."""

    offset: int
    time_ms: int
    before: _Value
    after: _Value


#: A node's facts changed; None means that the node doesn't exist.
Turn = ChangedValue[NodeFacts | None]
#: A TYJob's spec changed after it was first seen; None is an invalid spec.
Edit = ChangedValue[JobSpec | None]
#: A queue's spec or faults changed; None means that the queue doesn't exist.
QueueEdit = ChangedValue[k.QueueSeen | None]
#: A namespace's labels or queue changed; None means that the namespace doesn't exist.
NamespaceEdit = ChangedValue[k.NamespaceSeen | None]


class ForeignPod(msgspec.Struct, frozen=True):
    """A foreign pod, when it was first seen on a node."""

    offset: int
    time_ms: int
    name: str


class Placement(msgspec.Struct, frozen=True):
    """An accepted `Placed`: its own offset, and the record `taken` of the cycle that decided it, at offset `cycle`."""

    offset: int
    cycle: int
    taken: k.CycleTaken
    time_ms: int
    job: str
    job_uid: str
    attempt: int
    spec: JobSpec
    pods: tuple[PlacedPods, ...]
    #: As in `SlotTable`.
    failed_before: dict[SlotKey, int] = {}
    names: dict[SlotKey, str] = {}
    #: Where the job and those that the stories are about stood in the order of its cycle; empty if none of those waited
    #: for nodes, None if the order isn't known.
    order: Order | None = None
    #: Other jobs gave room for it.
    took_room: bool = False

    def pod_name(self, slot: SlotKey) -> str:
        """The name of the pod of a slot of its job, which it may have placed."""
        (group, index), name = slot, self.job.partition("/")[2]
        if slot in self.names:
            return self.names[slot]
        if self.job_uid.startswith(POD_PREFIX):
            return pod_of(name)
        return pod_name(name, self.spec.groups[group].name, index, self.attempt, self.failed_before.get(slot, 0))

    def slot_of(self, pod: k.PodSeen) -> SlotKey | None:
        """The slot that the pod claims, if it is of the attempt of this placement."""
        owner = pod.owner
        if owner is None or owner.attempt != self.attempt:
            return None
        groups = [(group.name, number == LEADER_GROUP) for number, group in enumerate(self.spec.groups)]
        claimed = (owner.group_name, owner.leader)
        return (groups.index(claimed), owner.index) if claimed in groups else None


class ClusterContext:
    """Records events. The caller passes each event before it is folded."""

    def __init__(self, config: CycleConfig | None) -> None:
        """`config` has the settings of the last cycle before the events; None before the first one."""
        #: By node name, oldest first.
        self.turns: dict[str, list[Turn]] = {}
        #: By job UID, oldest first.
        self.edits: dict[str, list[Edit]] = {}
        #: By name, oldest first.
        self.queue_edits: dict[str, list[QueueEdit]] = {}
        self.namespace_edits: dict[str, list[NamespaceEdit]] = {}
        #: Cycles whose configuration differs from that of the cycle before.
        self.configured: list[ChangedValue[CycleConfig]] = []
        #: The configuration of the last accepted cycle; the defaults before the first one.
        self.config = config or CycleConfig()
        #: Whether a cycle, or whoever began, has told it.
        self.is_configured = config is not None
        #: UID of a foreign pod → the offset at which it was first seen on a node.
        self.came: dict[str, int] = {}
        #: Node → the foreign pod that was first seen there last.
        self.last_on: dict[str, ForeignPod] = {}
        #: Deleted pods as they were last seen, with the offsets of their deletion.
        self.departed: deque[tuple[int, k.PodSeen]] = deque(maxlen=_GONE_KEPT)
        #: By job UID; without jobs that were deleted before the story began.
        self.placements: dict[str, list[Placement]] = {}
        #: (job UID, attempt) → by name of the group and index, the offset at which the last pod ended or was deleted.
        self.freed: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        #: UID of a job → the offset at which it was first seen.
        self.arrived: dict[str, int] = {}
        #: UID of a deleted job → the offset of its deletion.
        self.gone: dict[str, int] = {}

    def node(self, offset: int, time_ms: int, state: State, event: k.NodeSeen | k.ObjectGone) -> None:
        if state.terms.get(k.Watched.NODE) != event.term:
            return
        before, after = state.nodes.facts_of(event.name), event.facts if isinstance(event, k.NodeSeen) else None
        _note(self.turns, event.name, state, Turn(offset, time_ms, before, after), lambda facts: facts)

    def job(self, offset: int, time_ms: int, state: State, event: k.JobSeen) -> None:
        """A job was seen. This is an edit if the job was known with another spec."""
        known = state.jobs.get(event.uid)
        edits = self.edits.get(event.uid)
        if edits and edits[-1].offset > state.offset:
            before: JobSpec | None = edits[-1].after
        elif known is None:
            self.arrived.setdefault(event.uid, offset)
            return
        else:
            before = known.seen.spec
        if before is not event.spec and before != event.spec:
            self.edits.setdefault(event.uid, []).append(Edit(offset, time_ms, before, event.spec))

    def queue(self, offset: int, time_ms: int, state: State, event: k.QueueSeen | k.ObjectGone) -> None:
        if state.terms.get(k.Watched.QUEUE) == event.term:
            known, after = state.queues.get(event.name), event if isinstance(event, k.QueueSeen) else None
            _note(self.queue_edits, event.name, state, ChangedValue(offset, time_ms, known, after), _of_queue)

    def namespace(self, offset: int, time_ms: int, state: State, event: k.NamespaceSeen | k.ObjectGone) -> None:
        if state.terms.get(k.Watched.NAMESPACE) == event.term:
            known, after = state.namespaces.get(event.name), event if isinstance(event, k.NamespaceSeen) else None
            _note(self.namespace_edits, event.name, state, ChangedValue(offset, time_ms, known, after), _of_namespace)

    def cycle(self, offset: int, time_ms: int, config: CycleConfig) -> None:
        if self.is_configured and self.config != config:
            self.configured.append(ChangedValue(offset, time_ms, self.config, config))
        self.config, self.is_configured = config, True

    def pod_came(self, offset: int, time_ms: int, event: k.PodSeen) -> None:
        """A foreign pod was first seen on a node."""
        self.came[event.uid] = offset
        self.last_on[event.node] = ForeignPod(offset, time_ms, f"{event.namespace}/{event.name}")

    def pod_ended(self, offset: int, state: State, event: k.PodSeen) -> None:
        """A job's pod was seen as succeeded or failed."""
        pod = state.pods.get(event.uid)
        if pod is not None and holds(pod) and pod.owner is not None:
            self._freed(offset, pod.owner)

    def forget(self, job_uid: str) -> None:
        """Drop a deleted job that has nothing to do with a story."""
        for placement in self.placements.pop(job_uid, ()):
            self.freed.pop((job_uid, placement.attempt), None)

    def _freed(self, offset: int, owner: PodOwner) -> None:
        if owner.job_uid in self.placements:
            self.freed.setdefault((owner.job_uid, owner.attempt), {})[owner.group_name, owner.index] = offset

    def pod_gone(self, offset: int, state: State, event: k.ObjectGone) -> None:
        pod = state.pods.get(event.uid)
        if pod is None:
            return
        if pod.owner is None:
            self.came.pop(event.uid, None)
        elif holds(pod):
            self._freed(offset, pod.owner)
        if pod.node and pod.traits.labels:
            self.departed.append((offset, pod))


def _note(
    edits: dict[str, list[ChangedValue[_Value]]],
    name: str,
    state: State,
    found: ChangedValue[_Value],
    content: Callable[[_Value], object],
) -> None:
    """Keep a change, unless the content stays. `found.before` is that of the state, which is before this entry."""
    of_name = edits.get(name, [])
    if of_name and of_name[-1].offset > state.offset:
        found = msgspec.structs.replace(found, before=of_name[-1].after)
    if content(found.before) != content(found.after):
        edits[name] = [*of_name[1 - _TURNS_KEPT :], found]


def _of_queue(seen: k.QueueSeen | None) -> object:
    return seen and (seen.spec, seen.faults)


def _of_namespace(seen: k.NamespaceSeen | None) -> object:
    return seen and (seen.labels, seen.queue)
