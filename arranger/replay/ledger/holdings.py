"""What all jobs hold, and of that, what counts for whom: one account for all waiting jobs for which the same counts.

What a job holds counts for those that wait, unless it has nothing on the nodes that are open to their next pod. What
the waiting job itself holds doesn't, and what its guests do doesn't either: they leave as soon as it can start.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import msgspec

from arranger.model.pod import PodShape, gpus_of
from arranger.projections.cluster.nodes import PODS
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import submitter_of
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import State
from arranger.replay.explain.full_nodes import open_names
from arranger.replay.ledger.accounts import NONE, Account, Amounts, changed
from arranger.replay.reading.describe import label

#: The UID under which all pods are counted that fill no slot of a job.
OTHERS = ""


class Holder(msgspec.Struct, frozen=True):
    """A job that holds room, and whose it is. Without names: all other pods."""

    queue: str = ""
    user: str = ""
    job: str = ""


class Counting(NamedTuple):
    """What counts for a waiting job. `apart` is its UID if it holds something itself or has guests, else empty. `shape`
    has what selects the nodes of its next pod; None: all nodes count. `of_gpus`: its GPUs are what it waits with."""

    apart: str
    shape: PodShape | None
    of_gpus: bool


#: What a job holds for itself (no hosts), or as a guest in the room that is reserved for hosts (UIDs).
_Parts = dict[tuple[str, ...], Amounts]


class _Kept(msgspec.Struct):
    """An account, how many waits read it, and the names of the nodes that count; None: all do."""

    account: Account
    names: frozenset[str] | None
    users: int = 0


class Holdings:
    """What jobs hold. `look` is called after every fold with the touched jobs."""

    def __init__(self) -> None:
        self._parts: dict[str, _Parts] = {}
        #: UID → how many parts it has as a host.
        self._guests: Counter[str] = Counter()
        #: What jobs hold together, and what all other pods do.
        self._ours = self._others = NONE
        self._accounts: dict[Counting, _Kept] = {}
        #: Of whose accounts nobody may have any use.
        self._left: dict[Counting, None] = {}
        self._changes = -1
        self._facts: object = None
        #: By UID, also of jobs that hold nothing any more, or nothing yet.
        self.holders: dict[str, Holder] = {OTHERS: Holder()}
        #: UID → when the job got the nodes that it holds, in milliseconds.
        self._began_ms: dict[str, int] = {}
        #: UID → the nodes that the job holds room on.
        self._nodes: dict[str, frozenset[str]] = {}

    def begin(self, state: State) -> None:
        """Look at all jobs for the first time."""
        self.look(state, list(state.jobs))
        self._began_ms = {uid: state.jobs[uid].began_ms for uid in self._began_ms}

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
        found = list(chain.from_iterable([self._look(state, uid) for uid in uids]))
        if state.nodes.changes != self._changes:
            self._changes = state.nodes.changes
            self._count_others(state)
        return found

    def know(self, state: State, job: JobRecord) -> None:
        """Remember who a job is that holds room, or for which room is kept."""
        self.holders[job.uid] = Holder(queue_of(state, job), submitter_of(job), label(job))

    def counting(self, uid: str, shape: PodShape | None, *, of_gpus: bool) -> Counting:
        """What counts for a job now, if it waits for room for a pod of this shape."""
        apart = uid if uid in self._parts or self._guests[uid] else ""
        if shape is None:
            return Counting(apart, None, of_gpus)
        selects = PodShape((), shape.node_selector, shape.tolerations, shape.required_terms)
        return Counting(apart, selects, of_gpus)

    def use(self, counting: Counting, state: State, time_ms: int) -> Account:
        """The account of what counts, as it is from this time on if nobody used it before. `leave` it again."""
        kept = self._accounts.get(counting)
        if kept is None:
            account = Account(time_ms, of_gpus=counting.of_gpus)
            names = open_names(state.nodes, counting.shape) if counting.shape is not None else None
            kept = self._accounts[counting] = _Kept(account, names)
            for uid in (*self._parts, OTHERS):
                self._tell(counting, kept, uid, time_ms)
        kept.users += 1
        return kept.account

    def leave(self, counting: Counting) -> None:
        """One wait less reads the account. It is kept up to the next `look`: the wait may go on in another piece."""
        self._accounts[counting].users -= 1
        self._left[counting] = None

    def _look(self, state: State, uid: str) -> list[str]:
        job, had, nodes = state.jobs.get(uid), self._parts.get(uid, {}), frozenset[str]()
        parts = _parts_of(job) if job is not None else {}
        if job is not None and parts:
            self.know(state, job)
            nodes = frozenset(job.placements.values())
        if parts == had and nodes == self._nodes.get(uid, nodes):
            return []
        if not had:
            self._began_ms[uid] = state.time_ms
        self._parts[uid], self._nodes[uid] = parts, nodes
        if not parts:
            del self._parts[uid], self._nodes[uid], self._began_ms[uid]
        found = self._replace(had, parts)
        for counting, kept in self._accounts.items():
            self._tell(counting, kept, uid, state.time_ms)
        return found

    def _replace(self, had: _Parts, has: _Parts) -> list[str]:
        """Count these parts of a job instead of those. Answers whose first guests, or last ones, they are."""
        hosts = dict.fromkeys(chain.from_iterable((*had, *has)))
        hosted = [of for of in hosts if self._guests[of]]
        for of, amounts in had.items():
            self._ours = changed(self._ours, amounts, NONE)
            self._guests.subtract(of)
        for of, amounts in has.items():
            self._ours = changed(self._ours, NONE, amounts)
            self._guests.update(of)
        return [of for of in hosts if bool(self._guests[of]) != (of in hosted)]

    def _tell(self, counting: Counting, kept: _Kept, uid: str, time_ms: int) -> None:
        """Have an account know what counts of that which a job holds, or all other pods do."""
        amounts, began_ms = self._others, 0
        if uid != OTHERS:
            amounts, began_ms = self._counted(counting, kept.names, uid), self._began_ms.get(uid, 0)
        kept.account.set(uid, amounts, began_ms, time_ms)

    def _counted(self, counting: Counting, names: frozenset[str] | None, uid: str) -> Amounts:
        parts = self._parts.get(uid)
        if parts is None or uid == counting.apart or (names is not None and names.isdisjoint(self._nodes[uid])):
            return NONE
        total = NONE
        for hosts, amounts in parts.items():
            if counting.apart not in hosts:
                total = changed(total, NONE, amounts)
        return total

    def _open_others(self, state: State) -> None:
        """Find the nodes that count again, and who holds room there."""
        for counting, kept in self._accounts.items():
            names = open_names(state.nodes, counting.shape) if counting.shape is not None else None
            if names != kept.names:
                kept.names = names
                for uid in self._parts:
                    self._tell(counting, kept, uid, state.time_ms)

    def _count_others(self, state: State) -> None:
        nodes = state.nodes
        used = nodes.used[nodes.by_name()].sum(axis=0) if len(nodes.by_name()) else ()
        totals = {name: int(used[column]) for name, column in nodes.columns.items() if len(used)}
        there = (gpus_of(totals.items()), totals.get("cpu", 0), totals.get(PODS, 0))
        gpus, cpu, pods = (max(in_all - ours, 0) for in_all, ours in zip(there, self._ours, strict=True))
        self._others = (gpus, cpu, pods)
        for counting, kept in self._accounts.items():
            self._tell(counting, kept, OTHERS, state.time_ms)


def _parts_of(job: JobRecord) -> _Parts:
    """The GPUs, the millicores and the number of a job's slots with nodes, by whose guests they are."""
    found: _Parts = {}
    for slot in job.placements if job.spec is not None else ():
        hosts, requests = job.slots.hosts or job.slots.lent.get(slot, ()), requests_of(job, slot)
        cpu = next((amount for name, amount in requests if name == "cpu"), 0)
        found[hosts] = changed(found.get(hosts, NONE), NONE, (gpus_of(requests), cpu, 1))
    return found
