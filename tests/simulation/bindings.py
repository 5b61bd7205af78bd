"""Bindings of pods that no TYJob owns, of which some fail while others of the same group are done: they fail before
they reach the API server, are refused, or are done without an answer; their pod goes, sometimes for one of the same
name, another scheduler takes it, or its node closes.

The log decides a quorum as a whole. So whatever fails afterwards, pods that were bound stay on their nodes, and the
others of their group are placed again.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from arranger.events import kinds as k
from arranger.kube.cluster import NODES, PODS, ApiError, ClusterUnavailable
from arranger.model.pods_to_place import SLOT, pod_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.sandbox.garbage import DeleteOptions
from tests.simulation.faults import HALF_WAY, NO_WAY_ON

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How a binding fails → how often, of those that do.
_HOWS = {
    "500 before": 3,
    "409": 3,
    "403": 3,
    "no connection": 3,
    "time-out after": 6,
    "the pod goes": 2,
    "another pod has the name": 2,
    "another scheduler takes the pod": 1,
}
#: How often a binding fails, in the runs in which few do and in the others.
_SELDOM, _OFTEN = 0.19, 0.4
#: How often a node then closes to the rest of the group, and for how long bindings to it fail meanwhile.
_CLOSES, _CLOSES_WITHIN_S = 0.3, 10.0


class Bindings:
    """Lets bindings fail, and checks what becomes of the other pods of their group."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} bindings")
        self._rate = _OFTEN if chance.random() < 0.5 or world.faults.often(HALF_WAY) else _SELDOM
        #: Record → how many of its bindings were done, and how many failed.
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        #: Record → the node of its last binding that failed.
        self._failed_on: dict[str, str] = {}
        #: Node → until when all bindings to it fail, because it closes.
        self._fails_until_s: dict[str, float] = {}
        #: UIDs of the pods that another scheduler bound.
        self.taken: set[str] = set()

    def before(self, name: str, uid: str, record: str, node: str) -> str:
        """A binding to this node is on its way. Returns how it fails once it is done; empty if it doesn't."""
        closes = self._fails_until_s.get(node, 0.0) > self._world.loop.time()
        if not self._world.faults.on or (not closes and self._chance.random() >= self._rate):
            return ""
        [how] = ["500 before"] if closes else self._chance.choices([*_HOWS], [*_HOWS.values()])
        stored = self._world.store.collection(PODS).objects.get(("default", name))
        self._world.faults.hit(f"bind pods: {how}")
        if how != "time-out after":
            self._failed_on[record] = node
            self._count(self._failed, record)
        if how == "500 before":
            raise ApiError(500, "InternalError", "simulated: etcd has no leader")
        if how == "409":
            raise ApiError(409, "Conflict", "simulated: the pod is being changed")
        if how == "403":
            raise ApiError(403, "Forbidden", "simulated: no right to create pods/binding")
        if how == "no connection":
            raise ClusterUnavailable("simulated: no connection for bind pods")
        if how == "the pod goes" and stored is not None and stored.uid == uid:
            self._world.store.delete(PODS, "default", name, DeleteOptions(grace_s=0))
        elif how == "another pod has the name" and stored is not None and stored.uid == uid:
            self._world.store.delete(PODS, "default", name, DeleteOptions(grace_s=0))
            self._world.others.come_again(stored.object)
        elif how == "another scheduler takes the pod" and stored is not None and stored.uid == uid:
            self._take(name, uid)
        return how

    def _take(self, name: str, uid: str) -> None:
        nodes = sorted(name for _, name in self._world.store.collection(NODES).objects)
        if nodes:
            self._world.store.bind("default", name, self._chance.choice(nodes), uid=uid)
            self.taken.add(uid)

    def after(self, how: str, record: str) -> None:
        """A binding is done."""
        self._count(self._done, record)
        if how == "time-out after":
            raise ClusterUnavailable("simulated: the answer to a binding was lost")

    def _count(self, counts: Counter[str], record: str) -> None:
        counts[record] += 1
        job = self._world.oracle.state.jobs.get(record)
        if job is not None and job.of_group and self._done[record] and self._failed[record]:
            self._world.faults.hit(HALF_WAY)
            if self._failed_on[record] not in self._fails_until_s and self._chance.random() < _CLOSES:
                self._world.faults.hit(NO_WAY_ON)
                machines, node = self._world.machines, self._failed_on[record]
                self._fails_until_s[node] = self._world.loop.time() + _CLOSES_WITHIN_S
                self._chance.choice((machines.close, machines.exchange))(node)


def bound_before(state: State, events: Sequence[k.Event]) -> dict[str, dict[str, str]]:
    """Record → UID → node of its bound pods, for an entry of decisions alone; empty for others. Victims give room."""
    if not all(isinstance(event, k.Decision) for event in events):
        return {}
    victims = {of.job_uid for event in events if isinstance(event, k.Preempted) for of in event.victims}
    records = (job for job in state.jobs.values() if job.of_pods and job.bound and job.uid not in victims)
    return {job.uid: _bound(job) for job in records}


def moved(state: State, before: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """(Record, the problem) of the first pod that was on a node and that a decision took from it; empty if there is
    none."""
    for uid, pods in before.items():
        job = state.jobs.get(uid)
        if job is None or _bound(job) != pods:
            return uid, f"a decision moved pods that were bound: {pods}, now {job and _bound(job)}"
    return "", ""


def _bound(job: JobRecord) -> dict[str, str]:
    return {uid: job.placements[slot] for slot, uid in job.bound.items()}


def in_log(state: State, record: str, uid: str, node: str, time_ms: int) -> bool:
    """Whether the log keeps room for a pod of others on a node: it is placed, was seen, or is assumed there."""
    job, seen = state.jobs.get(record), state.pods.get(uid)
    if seen is not None and seen.node == node:
        return True
    slot = next((slot for slot, of in pods_of(job).items() if of == uid), None) if job is not None else None
    if job is None or slot is None:
        return False
    claimed = (record, job.valid_spec.groups[slot[0]].name, slot[1])
    return job.placements.get(slot) == node or any(
        (of.owner.job_uid, of.owner.group_name, of.owner.index) == claimed
        for of in state.assumed.values()
        if of.node == node and of.until_ms > time_ms
    )


def pods_of(job: JobRecord) -> dict[SlotKey, str]:
    """Slot → UID of the pod that has it, of a record of pods of others."""
    return {slot: uid for uid, slot in job.slots.members.items()} if job.of_group else {SLOT: pod_of(job.uid)}
