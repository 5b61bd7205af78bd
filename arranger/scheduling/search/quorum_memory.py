"""One cycle's results for the quorums that it tried: the last placement, and failures. Thousands of jobs may wait, and
many of them are identical."""

from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter

import msgspec
import numpy as np

from arranger.events.facts import LackOfNodes
from arranger.model.job import JobSpec, PodGroup
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.neighbours import neighbour_of
from arranger.scheduling.filters.refusals import wary_groups
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.placing.quotas import UNLIMITED
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.queues.dominant_shares import pods_by_group


@dataclass(slots=True)
class _Repeat:
    """The last quorum, if a rule that would choose the same node again placed all of it on one node."""

    spec: Hashable
    row: int
    total: Amounts
    pieces: list[Piece]
    content: int


@dataclass(slots=True)
class _Last:
    """The last quorum, if it failed. `job` is the last one that failed for its reason, and `alike` is None if a limit
    may have been that. The reason is kept, not the try: that may be told another one later in its turn."""

    policy: PodPolicy
    groups: tuple[PodGroup, ...]
    shortage: Shortage
    job: JobRecord
    alike: Hashable
    content: int


class QuorumMemory:
    """Results for the quorums of one cycle, by the inputs that determine them. Identical jobs have equal results."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._failed: dict[Hashable, tuple[int, Shortage]] = {}
        self._beside_limits: dict[Hashable, tuple[int, LackOfNodes | None]] = {}
        self._repeat: _Repeat | None = None
        self._last: _Last | None = None

    # --- identical jobs ------------------------------------------------------------------------------------

    def alike(self, job: JobRecord, groups: tuple[PodGroup, ...] | None = None) -> Hashable:
        """Everything that determines whether a job's quorum fits now, but the limits of its namespace and queue. What
        these leave changes only together with the view. `groups` are those of its try, if it has one."""
        if groups is None:
            groups = wary_groups(job, self._placing.config, self._placing.time_ms)
        spec, special = _without_queue(job.valid_spec), self._special(job, groups)
        return (spec, special) if special else spec

    def asks_the_same(self, job: JobRecord) -> Hashable:
        """As `alike`, whatever the job's priority. Not for what a cycle searches for: the recorded steps count each
        priority."""
        groups = wary_groups(job, self._placing.config, self._placing.time_ms)
        return (_asked(job.valid_spec), self._special(job, groups))

    def _special(self, job: JobRecord, groups: tuple[PodGroup, ...]) -> tuple[Hashable, ...]:
        """What determines a job's nodes beside its spec: slots that need none, nodes that it avoids, and its name where
        rules among pods apply."""
        placing, slots = self._placing, job.slots
        if slots.given_up or slots.finished or groups is not job.valid_spec.groups:
            over = (tuple(sorted(slots.given_up)), tuple(sorted(slots.finished)))
            return (groups, over, job.seen.namespace, job.seen.name)
        if placing.view.neighbours is not None:
            for number, group in enumerate(job.valid_spec.groups):
                if placing.concerned(group.shape, neighbour_of(job, number)):
                    return (job.seen.namespace, job.seen.name)
        return ()

    # --- quorums that failed -------------------------------------------------------------------------------

    def failed(self, key: Hashable) -> Shortage | None:
        """Why an identical quorum failed, if the view hasn't changed since."""
        known = self._failed.get(key)
        return known[1] if known is not None and known[0] == self._placing.view.content else None

    def keep_failed(self, key: Hashable, shortage: Shortage) -> None:
        """Keep the shortage of a quorum whose placements were undone."""
        self._failed[key] = (self._placing.view.content, shortage)

    def beside_limits(self, key: Hashable) -> tuple[LackOfNodes | None] | None:
        """Why the nodes have too little for a quorum that asks the same, whatever limits say, if they do; None if that
        isn't known, or the view has changed since."""
        known = self._beside_limits.get(key)
        return known[1:] if known is not None and known[0] == self._placing.view.content else None

    def keep_beside_limits(self, key: Hashable, lack: LackOfNodes | None) -> None:
        """Keep why the nodes have too little for a quorum, None for enough."""
        self._beside_limits[key] = (self._placing.view.content, lack)

    def keep_last(self, tried: PlacementTry) -> None:
        """Keep the try of the last quorum if it failed."""
        self._last, job, quota = None, tried.job, tried.shortage.quota if tried.shortage is not None else None
        alone = self._placing.view.neighbours is None and self._placing.observer is None
        objected = tried.shortage is not None and tried.shortage.objection is not None  # which concerns one job alone
        if alone and tried.shortage is not None and not objected and _has_nothing(job):
            room = quota is None and self._placing.quotas.tight(job) == UNLIMITED
            alike = _without_queue(job.valid_spec) if room else None
            self._last = _Last(tried.policy, tried.groups, tried.shortage, job, alike, self._placing.view.content)

    def fails_as_the_last(self, job: JobRecord) -> PlacementTry | None:
        """A failed try of a job, if the last quorum failed and this one must for the same reason: both have the same
        limits, or the limits leave enough for both."""
        last = self._last
        if last is None or last.content != self._placing.view.content or not _has_nothing(job):
            return None
        if job.spec != last.job.spec or job.seen.namespace != last.job.seen.namespace:
            quotas = self._placing.quotas
            if last.alike is None or _without_queue(job.valid_spec) != last.alike:
                return None
            if quotas.full(job) is not None or quotas.tight(job) != UNLIMITED:
                return None
            last.job = job
        return PlacementTry(job, last.policy, last.groups, shortage=last.shortage)

    # --- the last quorum -----------------------------------------------------------------------------------

    def keep_placed(self, tried: PlacementTry) -> None:
        """Keep a quorum that a local, rising score placed on one node: it would place an equal job's there too.

        Since then the node's scores for all these pods have only risen, and no other node has changed. So while the
        whole quorum fits there, placing one by one would choose that node again for each of its pods.
        """
        policy, view = tried.policy, self._placing.view
        rows = {piece.row for piece in tried.pieces}
        self._repeat = None
        if not (policy.local and policy.rising) or len(rows) != 1 or tried.job.placements or self._placing.observer:
            return
        if not tried.as_given:
            return
        if self._special(tried.job, tried.groups):
            return
        total = np.zeros(view.free.shape[1], np.int64)
        for chosen, amounts in tried.taken:
            total += amounts * sum(count for _, count in chosen)
        self._repeat = _Repeat(_without_queue(tried.job.valid_spec), rows.pop(), total, tried.pieces, view.content)

    def again(self, tried: PlacementTry) -> bool:
        """Place an equal job's quorum where the last one went, if all of it fits there."""
        repeat, view, quotas = self._repeat, self._placing.view, self._placing.quotas
        if repeat is None or repeat.content != view.content or tried.job.placements:
            return False
        if _without_queue(tried.job.valid_spec) != repeat.spec:
            return False
        asked = repeat.total > 0
        if (repeat.total > view.free[repeat.row])[asked].any():
            return False
        if self._special(tried.job, tried.groups):
            return False
        pods = pods_by_group(repeat.pieces)
        if quotas.lack(tried.job, pods) is not None:
            return False
        for group, count in pods.items():
            quotas.take(tried.job, group, count)
        view.take([(repeat.row, 1)], repeat.total)
        repeat.content = view.content
        if view.neighbours is not None:
            for piece in repeat.pieces:
                pod = neighbour_of(tried.job, piece.group)
                view.neighbours.place(pod, [(piece.row, len(piece.indices))], view.content)
        tried.taken.append(([(repeat.row, 1)], repeat.total))
        tried.pieces = list(repeat.pieces)
        tried.quorum_stands = True
        return True


def _has_nothing(job: JobRecord) -> bool:
    """Whether a job has no nodes, none that it avoids, and no slots that need none: its spec determines its nodes."""
    slots = job.slots
    return not (slots.nodes or slots.given_up or slots.finished or job.refusals or job.sets)


#: The field of a spec that says nothing about nodes except by limits.
_QUEUE = JobSpec.__struct_fields__.index("queue")
#: Equal for the specs of jobs that differ in nothing but their queues and priorities.
_asked = attrgetter(*(name for name in JobSpec.__struct_fields__ if name not in ("queue", "priority")))


def _without_queue(spec: JobSpec) -> Hashable:
    """Equal for the specs of jobs that differ in nothing but their queues."""
    if not spec.queue:
        return spec
    fields = msgspec.structs.astuple(spec)
    return fields[:_QUEUE] + fields[_QUEUE + 1 :]
