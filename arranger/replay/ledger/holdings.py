"""What all jobs hold, and of that, what counts for whom: one account for all waiting jobs for which the same counts.

What a job holds counts for those that wait, unless it has nothing on the nodes that are open to their next pod. Its
pods that fill no slot any more and still have a node are its own, too: it was suspended or deleted, ended, failed or
starts again, and they leave. What the slots of the waiting job itself hold doesn't count, and what its guests do
doesn't either: they leave as soon as it can start.

Only resources that the job lacks count. Who has much of another one is in nobody's way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from arranger.model.accelerators import is_accelerator
from arranger.model.pod import PodShape
from arranger.projections.cluster.nodes import PODS
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import submitter_of
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.state import State
from arranger.replay.explain.full_nodes import open_names
from arranger.replay.ledger.accounts import Account
from arranger.replay.reading.describe import label

#: The UID under which all pods are counted that are of no job.
OTHERS = ""
#: Stands for all accelerators together, of any vendor and kind, as if they were one resource.
GPUS = "GPUs"


class Holder(msgspec.Struct, frozen=True):
    """A job that holds room, and whose it is. Without names: all other pods."""

    queue: str = ""
    user: str = ""
    job: str = ""


class Counting(NamedTuple):
    """What counts for a waiting job. `apart` is its UID if slots of it have nodes or it has guests, else empty. `shape`
    has what selects the nodes of its next pod; None: all nodes count. `resources`: what it lacks; of a later one
    only while nobody holds any of those before it."""

    apart: str
    shape: PodShape | None
    resources: tuple[str, ...]


#: Resource → amount, in the units of `PodShape`, of `PODS` the number of pods.
_Sums = Counter[str]


class _Held(msgspec.Struct):
    """What a job holds. `slots`: for itself (no hosts), or as a guest in the room that is reserved for hosts (UIDs).
    `leaving`: by its pods that fill no slot, and by those that may still appear for a slot that it gave up. `nodes` are
    those of all of them."""

    slots: dict[tuple[str, ...], _Sums] = msgspec.field(default_factory=dict)
    leaving: _Sums = msgspec.field(default_factory=Counter)
    nodes: frozenset[str] = frozenset()

    @property
    def anything(self) -> bool:
        return bool(self.slots or self.leaving)


_NOTHING = _Held()


class _Kept(msgspec.Struct):
    """An account, how many waits read it, and the names of the nodes that count; None: all do."""

    account: Account
    names: frozenset[str] | None
    users: int = 0


class Holdings:
    """What jobs hold. `look` is called after every fold with the touched jobs."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        #: UID → how many parts it has as a host.
        self._guests: Counter[str] = Counter()
        #: What jobs hold together, and what all other pods do.
        self._ours: _Sums = Counter()
        self._others: _Sums = Counter()
        #: The jobs (UIDs) for whose pods that may still appear room is kept: it ends without a change of the job.
        self._assumed: dict[str, None] = {}
        self._accounts: dict[Counting, _Kept] = {}
        #: Of whose accounts nobody may have any use.
        self._left: dict[Counting, None] = {}
        self._changes = -1
        self._facts: object = None
        #: By UID, also of jobs that hold nothing any more, or nothing yet.
        self.holders: dict[str, Holder] = {OTHERS: Holder()}
        #: UID → when the job got the nodes that it holds, in milliseconds.
        self._began_ms: dict[str, int] = {}

    def begin(self, state: State) -> None:
        """Look at all jobs for the first time, and at pods whose TYJob isn't there any more."""
        self.look(state, list(dict.fromkeys((*state.jobs, *state.pods_of))))
        jobs = state.jobs
        self._began_ms = {uid: jobs[uid].began_ms if uid in jobs else 0 for uid in self._began_ms}

    def look(self, state: State, uids: Iterable[str]) -> list[str]:
        """Update the touched jobs, and all other pods together. Answers which jobs (UIDs) have got
        their first guest or lost their last one."""
        for counting in self._left:
            if not self._accounts[counting].users:
                del self._accounts[counting]
        self._left.clear()
        if state.nodes.facts_version is not self._facts:
            self._facts = state.nodes.facts_version
            self._open_others(state)
        assumed = dict.fromkeys(pod.owner.job_uid for pod in state.assumed.values())
        touched = dict.fromkeys(chain(uids, self._assumed, assumed))
        self._assumed = assumed
        found, ours = list[str](), self._ours.copy()
        for uid in touched:
            found += self._look(state, uid)
        if state.nodes.changes != self._changes or self._ours != ours:
            self._changes = state.nodes.changes
            self._count_others(state)
        return found

    def know(self, state: State, job: JobRecord) -> None:
        """Remember who a job is that holds room, or for which room is kept."""
        self.holders[job.uid] = Holder(queue_of(state, job), submitter_of(job), label(job))

    def counting(self, uid: str, shape: PodShape | None, resources: tuple[str, ...]) -> Counting:
        """What counts for a job now, if it waits for room for a pod of this shape, and lacks these resources."""
        apart = uid if self._held.get(uid, _NOTHING).slots or self._guests[uid] else ""
        if shape is None:
            return Counting(apart, None, resources)
        selects = PodShape((), shape.node_selector, shape.tolerations, shape.required_terms)
        return Counting(apart, selects, resources)

    def use(self, counting: Counting, state: State, time_ms: int) -> Account:
        """The account of what counts, as it is from this time on if nobody used it before. `leave` it again."""
        kept = self._accounts.get(counting)
        if kept is None:
            account = Account(time_ms, len(counting.resources))
            names = open_names(state.nodes, counting.shape) if counting.shape is not None else None
            kept = self._accounts[counting] = _Kept(account, names)
            for uid in (*self._held, OTHERS):
                self._tell(counting, kept, uid, time_ms)
        kept.users += 1
        return kept.account

    def leave(self, counting: Counting) -> None:
        """One wait less reads the account. It is kept up to the next `look`: the wait may go on in another piece."""
        self._accounts[counting].users -= 1
        self._left[counting] = None

    def _look(self, state: State, uid: str) -> list[str]:
        job, had, has = state.jobs.get(uid), self._held.get(uid, _NOTHING), _held_by(state, uid)
        if has.anything and job is not None:
            self.know(state, job)
        elif has.anything:
            self.holders.setdefault(uid, Holder(job=uid))  # of a TYJob that was deleted before the part that is read
        if has == had:
            return []
        if not had.anything:
            self._began_ms[uid] = state.time_ms
        self._held[uid] = has
        if not has.anything:
            del self._held[uid], self._began_ms[uid]
        found = self._replace(had, has)
        for counting, kept in self._accounts.items():
            self._tell(counting, kept, uid, state.time_ms)
        return found

    def _replace(self, had: _Held, has: _Held) -> list[str]:
        """Count this of a job instead of that. Answers whose first guests, or last ones, they are."""
        hosts = dict.fromkeys(chain.from_iterable((*had.slots, *has.slots)))
        hosted = [of for of in hosts if self._guests[of]]
        for of, sums in had.slots.items():
            self._ours.subtract(sums)
            self._guests.subtract(of)
        for of, sums in has.slots.items():
            self._ours.update(sums)
            self._guests.update(of)
        self._ours.subtract(had.leaving)
        self._ours.update(has.leaving)
        return [of for of in hosts if bool(self._guests[of]) != (of in hosted)]

    def _tell(self, counting: Counting, kept: _Kept, uid: str, time_ms: int) -> None:
        """Have an account know what counts of that which a job holds, or all other pods do."""
        sums, began_ms = self._others, 0
        if uid != OTHERS:
            sums, began_ms = self._counted(counting, kept.names, uid), self._began_ms.get(uid, 0)
        kept.account.set(uid, tuple(_of(sums, name) for name in counting.resources), began_ms, time_ms)

    def _counted(self, counting: Counting, names: frozenset[str] | None, uid: str) -> _Sums:
        held, total = self._held.get(uid, _NOTHING), _Sums()
        if names is not None and names.isdisjoint(held.nodes):
            return total
        total.update(held.leaving)
        for hosts, sums in held.slots.items() if uid != counting.apart else ():
            if counting.apart not in hosts:
                total.update(sums)
        return total

    def _open_others(self, state: State) -> None:
        """Find the nodes that count again, and who holds room there."""
        for counting, kept in self._accounts.items():
            names = open_names(state.nodes, counting.shape) if counting.shape is not None else None
            if names != kept.names:
                kept.names = names
                for uid in self._held:
                    self._tell(counting, kept, uid, state.time_ms)

    def _count_others(self, state: State) -> None:
        nodes = state.nodes
        used = nodes.used[nodes.by_name()].sum(axis=0) if len(nodes.by_name()) else ()
        there = {name: int(used[column]) for name, column in nodes.columns.items() if len(used)}
        self._others = Counter({name: max(amount - self._ours[name], 0) for name, amount in there.items()})
        for counting, kept in self._accounts.items():
            self._tell(counting, kept, OTHERS, state.time_ms)


def _of(sums: Mapping[str, int], resource: str) -> int:
    if resource != GPUS:
        return sums.get(resource, 0)
    return sum(amount for name, amount in sums.items() if is_accelerator(name))


def _held_by(state: State, uid: str) -> _Held:
    """What the slots of a job hold, and its other pods."""
    job = state.jobs.get(uid)
    slots, nodes = dict[tuple[str, ...], _Sums](), set[str]()
    pods = state.pods_of.get(uid, {})
    rest = set(pods)
    if job is not None and job.spec is not None:
        slots, rest = _slots_of(job), pods.keys() - job.bound.values()
        nodes.update(job.placements.values())
    others = [(pods[of].node, pods[of].requests) for of in rest if holds(pods[of])]
    others += [(pod.node, pod.requests) for pod in state.assumed.values() if pod.owner.job_uid == uid]
    leaving = _Sums()
    for node, requests in others:
        nodes.add(node)
        leaving.update(dict(requests))
        leaving[PODS] += 1
    return _Held(slots, leaving, frozenset(nodes))


def _slots_of(job: JobRecord) -> dict[tuple[str, ...], _Sums]:
    """What a job's slots with nodes hold, by whose guests they are."""
    hosts, lent, groups = job.slots.hosts, job.slots.lent, job.valid_spec.groups
    pods = Counter((hosts or lent.get(slot, ()), slot[0]) for slot in job.placements)
    found: dict[tuple[str, ...], _Sums] = {}
    for (of, group), count in pods.items():
        sums = found.setdefault(of, Counter())
        sums.update({name: amount * count for name, amount in groups[group].shape.requests})
        sums[PODS] += count
    return found
