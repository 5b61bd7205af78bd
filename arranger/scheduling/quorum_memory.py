"""What one cycle remembers of the quorums that it tried: where the last one went, which fit nowhere, and which never
could. Thousands of jobs may wait, and many of them are alike."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from arranger.model.job import JobSpec
from arranger.projections.jobs import JobRecord
from arranger.projections.nodes import Amounts
from arranger.scheduling.filters import Filters
from arranger.scheduling.needs import lacks_room
from arranger.scheduling.neighbours import neighbour_of
from arranger.scheduling.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.placing import Placing
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.refusals import wary_groups
from arranger.scheduling.view import ClusterView


@dataclass(slots=True)
class _Repeat:
    """The last quorum, when all of it went to one node by a rule that would choose the same again."""

    spec: JobSpec
    row: int
    total: Amounts
    pieces: list[Piece]
    content: int


class QuorumMemory:
    """Quorums of one cycle by what decides about them: a job that is alike has the same answer."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._empty: tuple[ClusterView, Filters] | None = None
        self._infeasible: dict[Hashable, bool] = {}
        self._failed: dict[Hashable, tuple[int, Shortage]] = {}
        self._repeat: _Repeat | None = None

    # --- jobs alike ----------------------------------------------------------------------------------------

    def key(self, job: JobRecord) -> Hashable:
        """What decides whether a job's quorum fits now."""
        # A quota is its namespace's, and what it leaves changes only together with what the view holds.
        return (self._alike(job), job.seen.namespace) if self._placing.quotas.limits(job) else self._alike(job)

    def _alike(self, job: JobRecord) -> Hashable:
        """What decides where a job's pods may go: the spec, and who they are where other pods have a say in it."""
        placing = self._placing
        groups = wary_groups(job, placing.config, placing.time_ms)
        if job.slots.given_up or groups is not job.valid_spec.groups:
            return (job.valid_spec, groups, tuple(sorted(job.slots.given_up)), job.seen.namespace, job.seen.name)
        if placing.view.neighbours is not None:
            for number, group in enumerate(job.valid_spec.groups):
                if placing.concerned(group.shape, neighbour_of(job, number)):
                    return (job.valid_spec, job.seen.namespace, job.seen.name)
        return job.valid_spec

    # --- quorums that failed -------------------------------------------------------------------------------

    def failed(self, key: Hashable) -> Shortage | None:
        """Why a quorum that is alike failed, if nothing has changed in the view since."""
        known = self._failed.get(key)
        return known[1] if known is not None and known[0] == self._placing.view.content else None

    def keep_failed(self, key: Hashable, shortage: Shortage) -> None:
        """A quorum failed; all of it is given back."""
        self._failed[key] = (self._placing.view.content, shortage)

    def never_fits(self, job: JobRecord, policy: PodPolicy) -> bool:
        """Whether the quorum would not even fit the present nodes with nothing on them and all of them healthy."""
        alike = self._alike(job)
        known = self._infeasible.get(alike)
        if known is None:
            known = self._infeasible[alike] = self._judged_on_facts(job, policy, alike)
        return known

    def _judged_on_facts(self, job: JobRecord, policy: PodPolicy, alike: Hashable) -> bool:
        """Without other pods that have a say in it, this follows from the nodes' facts: a job that waits for long is
        asked about in every cycle."""
        view, of_policies = self._placing.view, self._placing.policies.filters
        if view.neighbours is not None:
            return self._lacks_room(job, policy)
        filters = tuple((of.name, of.version) for of in of_policies)
        return view.derived(("lacks room", filters, policy.whole, alike), lambda: self._lacks_room(job, policy))

    def _lacks_room(self, job: JobRecord, policy: PodPolicy) -> bool:
        if self._empty is None:
            view = self._placing.view.emptied()
            self._empty = (view, Filters(view, self._placing.policies.filters, ignore_health=True))
        return lacks_room(*self._empty, job, policy)

    # --- the last quorum -----------------------------------------------------------------------------------

    def keep_placed(self, tried: PlacementTry) -> None:
        """Keep a quorum that went to one node by a local, rising score: an equal job's would go there too.

        Its node has only risen since in the scores of all its pods, and no other node has changed: while the whole
        quorum fits there, one by one would choose that node again for each of its pods.
        """
        policy, view = tried.policy, self._placing.view
        rows = {piece.row for piece in tried.pieces}
        self._repeat = None
        if not (policy.local and policy.rising) or len(rows) != 1 or tried.job.placements or self._placing.observer:
            return
        if not tried.as_given:
            return
        if self._alike(tried.job) is not tried.job.valid_spec:
            return
        total = np.zeros(view.free.shape[1], np.int64)
        for chosen, amounts in tried.taken:
            total += amounts * sum(count for _, count in chosen)
        self._repeat = _Repeat(tried.job.valid_spec, rows.pop(), total, tried.pieces, view.content)

    def again(self, tried: PlacementTry) -> bool:
        """Place an equal job's quorum where the last one went, if all of it fits there."""
        repeat, view, quotas = self._repeat, self._placing.view, self._placing.quotas
        if repeat is None or repeat.content != view.content or tried.job.placements:
            return False
        if tried.job.spec is not repeat.spec and tried.job.spec != repeat.spec:
            return False
        asked = repeat.total > 0
        if (repeat.total > view.free[repeat.row])[asked].any():
            return False
        if self._alike(tried.job) is not tried.job.spec:
            return False
        pods = _by_group(repeat.pieces)
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


def _by_group(pieces: list[Piece]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for piece in pieces:
        counts[piece.group] = counts.get(piece.group, 0) + len(piece.indices)
    return counts
