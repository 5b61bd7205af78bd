"""The cluster as it would be without a preemption: whether its beneficiary would have nodes by now.

Its victims' pods are still on their nodes, and so are those of later victims: what another preemption frees isn't free
by itself. Who got nodes by these preemptions waits. Whoever came since to a node on which a victim would still be is
supposed to use as much of what is free elsewhere. Whether the beneficiary gets its quorum then is for the rules of
scheduling to say: a cycle that takes no room gives the jobs before it their turns, and then this one. So limits of
queues, guarantees, ResourceQuotas, reservations and the rules of nodes count.

A cycle costs much more than a sum of amounts, which comes first: without free amounts, nobody is asked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, JobSpec
from arranger.model.pod import PodOwner
from arranger.projections.cluster.nodes import Amounts, Requests
from arranger.projections.folding.slots import forget_assumed
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, exists, holds, requests_of
from arranger.projections.queues.use import JOBS
from arranger.projections.state import Assumed, Changes, State
from arranger.replay.what_if.hypothesis import job_gone, pods_gone, retold, supposed
from arranger.scheduling import Policies, TooLarge, turn_of

#: For how long the pods that are put back stay, in milliseconds: longer than any cycle looks.
_FOR_EVER_MS = 1 << 60
#: Before the UID of a beneficiary that waits again.
_AGAIN = "again-"


class Lost(NamedTuple):
    """A pod that a victim lost: its owner, its slot, its node, what it requests, and the queue of its job."""

    owner: PodOwner
    slot: SlotKey
    node: str
    requests: Requests
    queue: str


class Taken(NamedTuple):
    """A preemption: the UID of its beneficiary, the pods that were lost, and the UIDs of victims that lost all, some
    with the time at which they would have ended (milliseconds since 1970)."""

    uid: str
    lost: tuple[Lost, ...]
    whole: frozenset[str]
    ends_ms: Mapping[str, int]


class _Kept(NamedTuple):
    """A pod that is put back, and the queue that counts it."""

    owner: PodOwner
    node: str
    requests: Requests
    queue: str


class Without(NamedTuple):
    """What is different without some preemptions: the jobs (UIDs) whose pods are taken out, those of them that wait for
    nodes, and the pods that are put back."""

    gone: tuple[str, ...]
    waiting: tuple[str, ...]
    kept: tuple[_Kept, ...]


def without(state: State, preemptions: Sequence[Taken]) -> Without:
    """The difference without these preemptions, in the order of the log. The first one's beneficiary has no pods."""
    first = preemptions[0].uid
    lost: dict[str, dict[SlotKey, Lost]] = {}
    whole: set[str] = set()
    waiting: dict[str, None] = {}
    for of in preemptions:
        if of.uid not in lost:
            waiting[of.uid] = None
        for pod in of.lost:
            uid = pod.owner.job_uid
            if uid != first and uid not in waiting and uid not in whole:
                lost.setdefault(uid, {}).setdefault(pod.slot, pod)
        whole |= of.whole & lost.keys()
    ended = _ended(preemptions, state.time_ms)
    there = {uid: pods for uid, pods in lost.items() if uid not in ended}
    kept = [one for uid, pods in there.items() for one in _kept(state, uid, pods, whole=uid in whole)]
    return Without((*waiting, *lost), tuple(waiting), tuple(kept))


def _ended(preemptions: Sequence[Taken], time_ms: int) -> set[str]:
    """The victims that would have ended by now. Of one that lost all several times, the first run counts, with which it
    would have gone on."""
    first: dict[str, int | None] = {}
    for of in preemptions:
        for uid in of.whole:
            first.setdefault(uid, of.ends_ms.get(uid))
    return {uid for uid, end_ms in first.items() if end_ms is not None and end_ms <= time_ms}


def _kept(state: State, uid: str, lost: dict[SlotKey, Lost], *, whole: bool) -> Iterator[_Kept]:
    """The pods that a victim would have: those that it lost, and those that it has besides."""
    job = state.jobs.get(uid)
    for slot, pod in lost.items():
        if _would_stay(job, slot) and state.nodes.has(pod.node):
            yield _Kept(pod.owner, pod.node, pod.requests, pod.queue)
    queue = next(pod.queue for pod in lost.values())
    for number, (of, node, requests) in enumerate(used_by(state, uid) if not whole else ()):
        if of is None or job is None:
            yield _Kept(PodOwner(uid, 0, "", False, number), node, requests, queue)
        elif of not in lost:
            yield _Kept(job.owner_of(of), node, requests, queue)


def _would_stay(job: JobRecord | None, slot: SlotKey) -> bool:
    """Whether a victim's pod would still be there: until its job ends, stands still or is deleted, or its slot has done
    its part or isn't asked for any more."""
    if job is None or not job.active or job.stands_still:
        return False
    return exists(job.valid_spec, slot) and not job.slots.over(slot)


def used_by(state: State, uid: str) -> Iterator[tuple[SlotKey | None, str, Requests]]:
    """What the nodes count as used for a job, by slot and node: its pods, of any attempt, that haven't ended, pods that
    may exist unseen, and slots that wait for their pods. A slot whose pod has ended uses nothing, and a job that was
    deleted may still have pods, of no slot."""
    job = state.jobs.get(uid)
    groups = job.spec.groups if job is not None and job.spec is not None else ()
    numbers = {(group.name, number == LEADER_GROUP): number for number, group in enumerate(groups)}

    def slot_of(owner: PodOwner | None) -> SlotKey | None:
        group = numbers.get((owner.group_name, owner.leader)) if owner is not None else None
        return (group, owner.index) if owner is not None and group is not None else None

    for pod in state.pods_of.get(uid, {}).values():
        if holds(pod):
            yield slot_of(pod.owner), pod.node, pod.requests
    for assumed in state.assumed.values():
        if assumed.owner.job_uid == uid:
            yield slot_of(assumed.owner), assumed.node, assumed.requests
    if job is not None:
        for slot, node in job.placements.items():
            if slot not in job.bound:
                yield slot, node, requests_of(job, slot)


# --- by amounts --------------------------------------------------------------------------------------------


class FreeAmounts:
    """What the nodes that take pods have free in a state, for all preemptions that are looked at in it."""

    def __init__(self, state: State) -> None:
        nodes = state.nodes
        rows = [row for row in nodes.by_name().tolist() if nodes.facts[row].takes_pods]
        self._state = state
        self._free = nodes.free()[rows]
        self._at = {nodes.names[row]: number for number, row in enumerate(rows)}
        #: Job UID → what it uses there, as (node's number, amounts).
        self._used: dict[str, list[tuple[int, Amounts]]] = {}

    def fit(self, of: Without, spec: JobSpec) -> bool:
        """Whether a quorum fits: if not, no cycle places it. Whoever came since to nodes on which the victims would
        still be would have had to go elsewhere: that much isn't free there."""
        nodes, free = self._state.nodes, self._free.copy()
        for uid in of.gone:
            for number, amounts in self._used_by(uid):
                free[number][: len(amounts)] += amounts
        beyond = np.minimum(free, 0)
        for pod in of.kept:
            if pod.node in self._at:
                amounts = nodes.vector(pod.requests)
                free[self._at[pod.node]][: len(amounts)] -= amounts
        if not _moved(free, (beyond - np.minimum(free, 0)).sum(axis=0)):
            return False
        return fits_amounts(spec, free, [nodes.vector(group.shape.requests) for group in spec.groups])

    def _used_by(self, uid: str) -> list[tuple[int, Amounts]]:
        found = self._used.get(uid)
        if found is None:
            used = used_by(self._state, uid)
            found = [(self._at[node], self._state.nodes.vector(of)) for _, node, of in used if node in self._at]
            self._used[uid] = found
        return found


def _moved(free: Amounts, amounts: Amounts) -> bool:
    """Take these amounts, by resource, from what nodes have free, by node and resource: from those with the least
    first. False if there is too little."""
    for column in np.flatnonzero(amounts).tolist():
        left = int(amounts[column])
        for row in np.argsort(free[:, column], kind="stable").tolist():
            taken = min(max(int(free[row, column]), 0), left)
            free[row, column] -= taken
            left -= taken
        if left:
            return False
    return True


def fits_amounts(spec: JobSpec, free: Amounts, vectors: list[Amounts]) -> bool:
    """Whether a quorum fits these free amounts: the largest pods first, on the first nodes that take them."""
    least = [group.count if number == 0 else group.least for number, group in enumerate(spec.groups)]
    left = spec.min_workers - sum(least[1:])
    for number, group in enumerate(spec.groups[1:], start=1):
        more = max(min(group.count - least[number], left), 0)
        least[number] += more
        left -= more
    for number in sorted(range(len(least)), key=lambda one: -int(vectors[one].sum())):
        columns = np.flatnonzero(vectors[number])
        pods = least[number]
        if not len(columns):
            continue
        asked = vectors[number][columns]
        takes = np.maximum(free[:, columns], 0) // asked
        counts = takes.min(axis=1)
        # The first nodes take as many as they can, until all pods have one.
        counts = np.minimum(counts, np.maximum(pods - (np.cumsum(counts) - counts), 0))
        if counts.sum() < pods:
            return False
        free[:, columns] -= counts[:, None] * asked
    return True


# --- by a cycle --------------------------------------------------------------------------------------------


def would_be_placed(state: State, of: Without, seen: k.JobSeen, config: CycleConfig, policies: Policies) -> bool:
    """Whether a cycle would give the beneficiary, as it was `seen`, its quorum, without taking room from others."""
    config = msgspec.structs.replace(policies.usable(config), preemption=None)
    fork = _supposed(state, of, seen)
    too_large = TooLarge([job for job in fork.jobs.values() if job.active])
    tried = turn_of(fork, _AGAIN + seen.uid, config, fork.time_ms, policies=policies, too_large=too_large)
    return tried is not None and tried.quorum_stands and tried.preempted is None


def _supposed(state: State, of: Without, seen: k.JobSeen) -> State:
    """The state with that difference."""
    gone, back = list[k.Event](), [_again(seen, state)]
    for uid in of.gone:
        job = state.jobs.get(uid)
        gone += job_gone(job, state) if job is not None else pods_gone(state, state.pods_of.get(uid, {}).values())
        if job is not None and job.active and uid != seen.uid:
            back.append(_again(job.seen, state) if uid in of.waiting else _held(job.seen, state))
    fork = supposed(state, [*gone, *back])
    unseen = [pod for pod in fork.assumed.values() if pod.owner.job_uid in of.gone]
    forget_assumed(fork, unseen, Changes())
    _put_back(fork, of.kept)
    return fork


def _again(seen: k.JobSeen, state: State) -> k.JobSeen:
    """The observation of a job that waits anew, under a UID that is no pod's. The jobs that it waited for have ended,
    and may be gone."""
    spec = msgspec.structs.replace(seen.spec, after=()) if seen.spec is not None else None
    return msgspec.structs.replace(
        retold(seen, state), uid=_AGAIN + seen.uid, name=_AGAIN + seen.name, spec=spec, deleting=False, status=None
    )


def _held(seen: k.JobSeen, state: State) -> k.JobSeen:
    """The observation of a victim that gets no nodes beside those that it keeps. With its record, a quota counts its
    pods."""
    spec = msgspec.structs.replace(seen.spec, suspend=True) if seen.spec is not None else None
    return msgspec.structs.replace(retold(seen, state), spec=spec, status=None)


def _put_back(fork: State, kept: Iterable[_Kept]) -> None:
    """Let these pods use their nodes and their queues, as pods that may exist unseen."""
    running: set[str] = set()
    for pod in kept:
        fork.nodes.hold(pod.node, pod.requests)
        fork.assumed[pod.owner, pod.node] = Assumed(pod.owner, pod.node, pod.requests, _FOR_EVER_MS)
        fork.queue_use.add(pod.queue, pod.requests, 1)
        if pod.owner.job_uid not in running:
            running.add(pod.owner.job_uid)
            fork.queue_use.add(pod.queue, ((JOBS, 1),), 1)
