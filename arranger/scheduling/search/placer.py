"""Place jobs one by one on one cycle's view: each quorum completely or not at all, further pods as room allows.

`cycle` decides the order of jobs. `placing/pods` places pods and undoes placements, `quorum_search` tries the ways to
place a quorum, and `quorum_memory` reuses the results for identical jobs.
"""

from collections.abc import Hashable, Mapping, Sequence

from arranger.events.facts import BeyondLimit, LackOfNodes
from arranger.model.config import CycleConfig
from arranger.model.devices import DecidedDevices
from arranger.model.job import LEADER_GROUP, PlacedPods, Slot
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.derived.departing import ends_by_itself
from arranger.projections.jobs.records import JobRecord, runs
from arranger.projections.observed.devices import needs_of
from arranger.projections.state import State
from arranger.scheduling.filters.refusals import wary_groups
from arranger.scheduling.placing.consents import Consents
from arranger.scheduling.placing.kept import KeptRankings
from arranger.scheduling.placing.needs import Needs, awaits_set, free_indices, in_start_order, pods_of, quorum_needs
from arranger.scheduling.placing.placement_try import CycleObserver, Piece, PlacementTry, Shortage, lack_of_nodes
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.queues.dominant_shares import Shares
from arranger.scheduling.queues.registry import Policies
from arranger.scheduling.search.empty_cluster import EmptyCluster
from arranger.scheduling.search.quorum_memory import QuorumMemory
from arranger.scheduling.search.quorum_search import QuorumSearch

#: For how many different quorums that a limit keeps waiting a cycle asks what the nodes have: each costs as much as one
#: that lacks nodes, and there may be thousands.
SOUGHT = 200


class Placer:
    """One cycle's placements, job by job. `time_ms` defaults to the state's time, `kept` to nothing."""

    def __init__(
        self,
        state: State,
        config: CycleConfig,
        policies: Policies,
        *,
        time_ms: int | None = None,
        observer: CycleObserver | None = None,
        kept: KeptRankings | None = None,
    ) -> None:
        time_ms = state.time_ms if time_ms is None else time_ms
        kept = KeptRankings() if kept is None else kept
        self.placing = Placing(state, config, policies, time_ms=time_ms, observer=observer, kept=kept)
        self._state = state
        self._search = QuorumSearch(self.placing)
        self._memory = QuorumMemory(self.placing)
        self._empty = EmptyCluster(self.placing, self._memory.asks_the_same)
        self._consents = Consents(state, self.placing)
        #: For how many quorums it was asked what nodes have beside limits.
        self._sought = 0
        self.view = self.placing.view
        self.shares = Shares(self.view)

    def quorum(self, job: JobRecord) -> PlacementTry:
        """Place all the missing pods of the job's quorum, or none of them."""
        kept_room = self._consents.lift(job)
        if (refused := self._refused(job)) is not None:
            return refused
        if (failed := self._memory.fails_as_the_last(job)) is not None:
            return failed
        tried = self.begin(job)
        if (full := self.placing.quotas.full(job) or self._too_little(job)) is not None:
            tried.shortage = self._limit_shortage(tried, quorum_needs(job, tried.policy), full)
        elif not self._consents.asks_permits:
            if not self._memory.again(tried):
                self._place(tried)
        else:
            mark = self.placing.mark()
            tried.quorum_stands = bool(kept_room) and self._consents.place_again(tried, kept_room)
            if not tried.quorum_stands:
                self._place(tried)
            if (held := self.held_back(tried)) is not None:
                self.placing.undo(tried, mark)
                self.record_hold(tried, held)
        if tried.pieces:  # a quorum of workers that have all finished needs no nodes
            self.placing.quotas.begin(job)
        self._memory.keep_last(tried)
        return tried

    def take_back(self, tried: PlacementTry, mark: tuple[int, int]) -> None:
        """Undo a quorum without nodes before, which was placed since this mark of the view."""
        self.placing.undo(tried, mark)
        self.placing.quotas.never_began(tried.job)

    def _refused(self, job: JobRecord) -> PlacementTry | None:
        """The try of a job whose quorum a group check refuses. One that has nodes was asked about before."""
        if job.placements or not self._consents.asks_checks:
            return None
        tried = self.begin(job)
        tried.shortage = self._consents.refusal(tried, pods_of(quorum_needs(job, tried.policy)))
        return tried if tried.shortage is not None else None

    def held_back(self, tried: PlacementTry, *, may_keep: bool = True) -> Shortage | None:
        """Why a permit holds a placed quorum back; None if none does. With `may_keep`, its room may be kept."""
        if not tried.quorum_stands or tried.job.placements or not self._consents.asks_permits:
            return None
        return self._consents.hold_back(tried, self.placed_pods(tried), may_keep=may_keep)

    def record_hold(self, tried: PlacementTry, held: Shortage) -> None:
        """Say in a try that it was held back, after its placements were undone. From now on its room is kept, if the
        permit says that."""
        tried.shortage, tried.quorum_stands, tried.as_given, tried.by_search = held, False, False, False
        self._consents.keep(tried, held)

    def _place(self, tried: PlacementTry) -> None:
        job, memory = tried.job, self._memory
        alike, tight = memory.alike(job, tried.groups), self.placing.quotas.tight(job)
        # Most queues have room for a whole job. Then equal jobs of other queues have the same result.
        key = (alike, tight) if any(tight) else alike
        again = not job.placements and self.placing.observer is None
        if again and (known := memory.failed(key)) is not None:
            tried.shortage = known
            return
        shortage = self._seek(tried, alike, key, limited=any(tight))
        tried.quorum_stands = shortage is None
        if shortage is None:
            memory.keep_placed(tried)
            return
        tried.shortage = shortage
        if not job.placements:
            memory.keep_failed(key, shortage)

    def _seek(self, tried: PlacementTry, alike: Hashable, key: Hashable, *, limited: bool) -> Shortage | None:
        """Place the quorum, or say why not."""
        needs = quorum_needs(tried.job, tried.policy)
        lack = self._beyond_quota(tried, needs) if limited else None
        shortage = self._limit_or_node_shortage(tried, needs, lack) if lack is not None else None
        if (never := self._still_infeasible(tried, needs, alike, shortage)) is not None:
            return never
        if shortage is None:
            shortage = self._search.place(tried, needs, None if tried.job.placements else key)
        return (self._infeasible(tried, alike, shortage) or shortage) if shortage is not None else None

    def _still_infeasible(
        self, tried: PlacementTry, needs: Needs, alike: Hashable, shortage: Shortage | None
    ) -> Shortage | None:
        """As `_infeasible`, for a job that is infeasible as recorded: then nothing is searched for it."""
        waits = tried.job.waits
        if waits is None or not waits.shortage.infeasible:
            return None
        if self.placing.observer is not None and shortage is None:
            # For the observer alone, which sees which nodes refuse the pods now; the result isn't used.
            mark = self.placing.mark()
            self._search.simply(tried, needs)
            self.placing.undo(tried, mark)
        return self._infeasible(tried, alike, shortage)

    def _infeasible(self, tried: PlacementTry, alike: Hashable, shortage: Shortage | None) -> Shortage | None:
        """Why the nodes can never hold the quorum; None if they might. One beyond a quota or a capability waits for
        that, and one with nodes has run on them: if its quorum has grown since, it waits."""
        limited = shortage is not None and shortage.quota is not None and shortage.quota.limit != LimitKind.GUARANTEES
        return None if limited or tried.job.placements else self._empty.shortage(tried, alike)

    def on_empty_nodes(self, job: JobRecord) -> PlacementTry:
        """A try without placements, with why the quorum certainly wouldn't fit an empty cluster of these nodes,
        whatever limits say; without a shortage if it might."""
        tried = self.begin(job)
        tried.shortage = self._empty.shortage(tried, self._memory.alike(job, tried.groups))
        return tried

    def never_fits(self, job: JobRecord) -> bool:
        """Whether not even an empty cluster of these nodes could hold the quorum."""
        return self.on_empty_nodes(job).shortage is not None

    def alike(self, job: JobRecord) -> Hashable:
        """Everything that determines whether a job's quorum fits now, but limits."""
        return self._memory.alike(job)

    def asks_the_same(self, job: JobRecord) -> Hashable:
        """As `alike`, whatever the job's priority; see `QuorumMemory.asks_the_same`."""
        return self._memory.asks_the_same(job)

    def may_count_steps(self, job: JobRecord) -> bool:
        """As `CompleteSearch.may_count`."""
        return self._search.may_count(job)

    def lacks_nodes_alone(self, job: JobRecord) -> bool:
        """Whether a job without nodes would lack nothing but nodes if they had too little room for its quorum."""
        quotas = self.placing.quotas
        if self._consents.asks_checks or self._consents.asks_permits or job.valid_spec.min_resources:
            return False
        if not quotas.limits(job):
            return True
        policy = self.placing.policies.pod_policy(job, self.placing.config)
        lack = quotas.full(job) or quotas.lack(job, pods_of(quorum_needs(job, policy)))
        # Of several worker sets, others than the first may be within the limits.
        return len(job.valid_spec.groups) <= 2 and (lack is None or quotas.of_guarantees(lack))

    def left_out(self, job: JobRecord, lack: QuotaLack, kept_by: tuple[str, ...] = ()) -> PlacementTry:
        """The try of a job that no nodes are sought for, because of its queue, or because a limit is kept for others
        (UIDs)."""
        tried = self.begin(job)
        tried.shortage = self._limit_shortage(tried, quorum_needs(job, tried.policy), lack)
        tried.shortage.kept_by = kept_by
        return tried

    @property
    def search_steps(self) -> int:
        """The steps of all complete searches for quorums so far."""
        return self._search.steps

    def fits(self, job: JobRecord) -> bool:
        """Whether the job's quorum would fit now. The view stays unchanged."""
        mark = self.placing.mark()
        tried = self.without_memory(job)
        if tried is not None:
            self.placing.undo(tried, mark)
        return tried is not None

    def without_memory(self, job: JobRecord) -> PlacementTry | None:
        """Place the job's quorum on the view, whatever became of equal ones; None, with the view as before, if it
        doesn't fit. Other than `quorum`, it asks no plugins, uses no room that a permit keeps, and doesn't count the
        job as begun."""
        if not self.within_limits(job):
            return None
        tried = self.begin(job)
        needs, mark = quorum_needs(job, tried.policy), self.placing.mark()
        if self._search.place(tried, needs) is None:
            tried.quorum_stands = True
            return tried
        self.placing.undo(tried, mark)
        return None

    def within_limits(self, job: JobRecord, pods: Mapping[int, int] | None = None) -> bool:
        """Whether all that limits a quorum beside single nodes leaves it enough: of so many pods of its groups, or else
        of those that need least."""
        if self.placing.quotas.full(job) is not None or self._too_little(job) is not None:
            return False
        if pods is not None:
            return self.placing.quotas.lack(job, pods) is None
        tried = self.begin(job)
        return self._beyond_quota(tried, quorum_needs(job, tried.policy)) is None

    def begin(self, job: JobRecord) -> PlacementTry:
        """A try that has placed nothing yet."""
        config = self.placing.config
        groups = wary_groups(job, config, self.placing.time_ms)
        return PlacementTry(job, self.placing.policies.pod_policy(job, config), groups)

    def _too_little(self, job: JobRecord) -> QuotaLack | None:
        """What all nodes together have less of than a pod group without nodes says that it needs."""
        for name, needed in job.valid_spec.min_resources if not job.placements else ():
            if (left := self.view.free_in_all(name)) < needed:
                return QuotaLack("", name, needed, left, 0, limit=LimitKind.MIN_RESOURCES)
        return None

    def _beyond_quota(self, tried: PlacementTry, needs: Needs) -> QuotaLack | None:
        """The lack if quotas or the queue rule out every choice of workers for the quorum."""
        job, quotas = tried.job, self.placing.quotas
        if not quotas.limits(job):
            return None
        pods = pods_of(needs)
        free = free_indices(job, range(1, len(tried.groups)))
        any_set = not tried.policy.whole and len(free) > 1 and not job.valid_spec.has_worker_groups
        return quotas.least(job, pods, free) if any_set else quotas.lack(job, pods)

    def _limit_or_node_shortage(self, tried: PlacementTry, needs: Needs, lack: QuotaLack) -> Shortage:
        """The shortage of a whole quorum for such a lack: that of nodes, where it wouldn't fit without guarantees,
        either."""
        quotas = self.placing.quotas
        if not quotas.of_guarantees(lack):
            return self._limit_shortage(tried, needs, lack)
        mark = self.placing.mark()
        with quotas.without_guarantees():
            shortage = self._search.simply(tried, needs)
            self.placing.undo(tried, mark)
        # Nodes may have the room all the same: that of ended pods counts as use of their queue until their job's end.
        return shortage or self._limit_shortage(tried, needs, lack)

    def _limit_shortage(self, tried: PlacementTry, needs: Needs, lack: QuotaLack) -> Shortage:
        """The shortage of a whole quorum for such a lack."""
        asked = sum(len(indices) for indices in needs.values())
        nodes = self._nodes_beside(tried.job, needs) if self.placing.seeks_without(lack) else None
        group = min(needs, default=LEADER_GROUP)
        return self.placing.short_of_quota(tried, group, lack, found=0, asked=asked, nodes=nodes)

    def _nodes_beside(self, job: JobRecord, needs: Needs) -> LackOfNodes | None:
        """Why the nodes have too little for a quorum whatever limits say, as far as the simple ways tell; None if they
        have enough. Once `SOUGHT` different quorums were asked for, what is recorded stays."""
        placing, memory = self.placing, self._memory
        key = memory.asks_the_same(job) if not job.placements else None
        if key is not None and (known := memory.beside_limits(key)) is not None:
            return known[0]
        self._sought += 1
        if self._sought > SOUGHT:
            recorded = job.waits.shortage if job.waits is not None else None
            return recorded.nodes if isinstance(recorded, BeyondLimit) else None
        tried, mark = self.begin(job), placing.mark()
        with placing.unobserved(), placing.quotas.lifted():
            shortage = self._search.simply(tried, needs)
            placing.undo(tried, mark)
        lack = lack_of_nodes(tried, shortage) if shortage is not None else None
        if key is not None:
            memory.keep_beside_limits(key, lack)
        return lack

    def further(self, tried: PlacementTry, pods: int | None) -> bool:
        """Place about `pods` pods (None: all) beyond a placed quorum, set by set: rounded up to whole worker groups.

        Returns whether some were placed and more remain to be tried.
        """
        if tried.left is None:
            tried.left = self._left(tried)
        placing, begun = self.placing, bool(tried.pieces)
        while tried.left:
            group, (indices, asked) = next(iter(tried.left.items()))
            if awaits_set(tried.job, group, tried.pieces):
                del tried.left[group]
                continue
            size = tried.groups[group].group_size
            desired = indices if pods is None else indices[: -(-pods // size) * size]
            placed, short = placing.place_whole(tried, group, desired, asked - len(indices), asked)
            rest = indices[placed:]
            if placed and not begun:
                placing.quotas.begin(tried.job)
                begun = True
            if short is not None:
                counts = (placed + asked - len(indices), asked)
                tried.shortage = tried.shortage or self._node_shortage_of_further(
                    short, tried, group, rest[:size], counts
                )
            if placed == len(desired) and rest:
                tried.left[group] = (rest, asked)
            else:
                del tried.left[group]
            if pods is not None and placed:
                return bool(tried.left)
        return False

    def _node_shortage_of_further(
        self, short: Shortage, tried: PlacementTry, group: int, indices: Sequence[int], counts: tuple[int, int]
    ) -> Shortage:
        """The shortage of further pods: that of nodes, where these wouldn't fit without guarantees, either. `counts` as
        in `place_whole`."""
        placing = self.placing
        if short.quota is None or not placing.quotas.of_guarantees(short.quota):
            return short
        mark, pieces, taken = placing.mark(), len(tried.pieces), len(tried.taken)
        with placing.quotas.without_guarantees():
            placed, found = placing.place_whole(tried, group, indices, *counts)
            placing.undo(tried, mark, pieces, taken)
        return found if not placed and found is not None and found.of_nodes else short

    def may_grow(self, tried: PlacementTry, group: int) -> bool:
        """Whether further pods of a group would fit now; a whole worker group of them is enough. The view stays
        unchanged."""
        placing, size = self.placing, tried.groups[group].group_size
        indices = free_indices(tried.job, (group,), tried.pieces).get(group, ())[:size]
        with placing.unobserved():
            mark, pieces, taken = placing.mark(), len(tried.pieces), len(tried.taken)
            placed, _ = placing.place_whole(tried, group, indices, 0, len(indices))
            placing.undo(tried, mark, pieces, taken)
        return placed > 0

    def _left(self, tried: PlacementTry) -> dict[int, tuple[Sequence[int], int]]:
        """Group → the further pods to place, and how many there are. Empty if the job's pods show that it ends, or if
        it would be one job too many for its queue; then `tried.shortage` is set."""
        if ends_by_itself(self._state, tried.job, self.placing.time_ms):
            return {}
        free = free_indices(tried.job, in_start_order(tried.job.valid_spec), tried.pieces)
        full = self.placing.quotas.full(tried.job) if not tried.pieces else None
        if full is None:
            return {group: (indices, len(indices)) for group, indices in free.items()}
        if free:
            asked = sum(map(len, free.values()))
            tried.shortage = self.placing.short_of_quota(tried, min(free), full, found=0, asked=asked)
        return {}

    def placed_pods(self, tried: PlacementTry) -> tuple[PlacedPods, ...]:
        """The try's placements as an event records them: by node name, then group, indices in runs."""
        pieces: dict[tuple[int, int], list[Piece]] = {}
        for piece in tried.pieces:
            pieces.setdefault((piece.row, piece.group), []).append(piece)
        names = self.view.names
        return tuple(PlacedPods(names[row], group, _merged(pieces[row, group])) for row, group in sorted(pieces))

    def take_devices(self, tried: PlacementTry) -> tuple[DecidedDevices, ...]:
        """The devices that the claims of the try's pods get by its placements, by the names of the claims; then those
        of the claims that pods have for themselves, by slot. Takes the latter: call it once for a try."""
        groups, namespace = {piece.group for piece in tried.pieces}, tried.job.seen.namespace
        needs = [need for group in sorted(groups) for need in needs_of(tried.groups[group].shape)]
        room = self.view.neighbours.devices if self.view.neighbours is not None else None
        if not needs or room is None:
            return ()
        claims = sorted({need.claim for need in needs if not need.allocated and not need.own})
        found = [room.decision(namespace, claim) for claim in claims]
        own: dict[tuple[int, int], list[DecidedDevices]] = {}
        for piece in tried.pieces:
            of_pod = needs_of(tried.groups[piece.group].shape)
            # There may be fewer allocations than pods or claims: a pod without claims of its own gets none, and where
            # its room counts on another pod's leaving, that one still holds the devices.
            of_slots = zip(piece.indices, room.given(namespace, of_pod, piece.row, len(piece.indices)), strict=False)
            for index, allocations in of_slots:
                named = zip([need for need in of_pod if need.own], allocations, strict=False)
                slot = Slot(piece.group, index)
                own[piece.group, index] = [
                    DecidedDevices(need.claim, need.name, allocation, slot) for need, allocation in named
                ]
        shared = (decided for decided in found if decided is not None)
        return (*shared, *(decided for slot in sorted(own) for decided in own[slot]))


def _merged(pieces: list[Piece]) -> tuple[tuple[int, int], ...]:
    if len(pieces) == 1 and isinstance(pieces[0].indices, range):
        return ((pieces[0].indices[0], pieces[0].indices[-1]),)
    return runs(sorted(index for piece in pieces for index in piece.indices))
