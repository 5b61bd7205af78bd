"""Room for a quorum that fits nowhere: which other jobs give it, and where the quorum then goes.

The search is greedy, with reprieve, as kube-scheduler's: candidates give room in their order (`candidates`) until the
quorum fits, and then whoever turns out not to be needed is spared, those first from whom it would have been taken last.
So no smaller part of the victims would do, unless so many were in the quorum's way that the rest of them leave untried
(`victims`). A few other sets are compared with it. The quorum is placed on the nodes as
the victims leave them, by the same policies and rules as any other. If it fits once those have left who leave anyway,
nobody gives room: it waits for them. These are pods that are being deleted, those of jobs that end or are suspended,
and those of jobs that gave room earlier in the cycle. Pods that may still come, and whose room is kept meanwhile, count
as such too (decision 14).
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice

import numpy as np

from arranger.events.facts import Spared, Victim
from arranger.events.kinds import Placed, PodSeen, Preempted
from arranger.model.job import ScheduleState, Stage
from arranger.model.quota import LEFT_BY_JOBS
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.derived.awaited_room import assumed_on, untried
from arranger.projections.derived.queue_counts import least_requested, queue_of, sum_by_group, sum_of
from arranger.projections.folding.slots import may_come
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, compact, expand
from arranger.projections.state import State
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.queues.dominant_shares import pods_by_group
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.room.bound import RoomBound
from arranger.scheduling.room.candidates import Candidate, Candidates
from arranger.scheduling.room.vacating import Vacated, Vacating, by_uid, grace_ms, held_by
from arranger.scheduling.room.victims import OTHERS, RoomOutcome, RoomSearch, Unit, least_harm
from arranger.scheduling.search.placer import Placer

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)
#: How many quorums of a cycle get room, or would get it after a dry run. The others have their turns in later cycles.
_MOST_SERVED = 16
#: On so many nodes, one after the other, it is tried to free just that one for a quorum. Among workers that quorums
#: can spare, so many also come first in one search.
_MOST_SINGLE_NODES = 8
#: How many times room is sought for a quorum, each time for what the workers request that were placed the last time.
_MOST_REQUESTS = 2


class LeavingAnyway:
    """The room that comes without anybody being asked for it in this cycle any more. It stays as it is: once another
    job has given room in the cycle, another one of these takes its place."""

    def __init__(
        self,
        state: State,
        vacating: Vacating,
        *,
        victims: Collection[str] = (),
        left: Sequence[Vacated] = (),
        departing: Sequence[PodSeen] = (),
        comes_ms: float = math.inf,
    ) -> None:
        """`victims` (UIDs) gave room in the cycle so far, `left` is what they leave, and `departing` are their pods,
        which hold it until then."""
        self._state = state
        self._vacating = vacating
        self._victims = victims
        self._left = left
        self._departing = departing
        #: Until when jobs count as about to end, if nothing changes before, in milliseconds. `within_seconds` sets it
        #: as it is first read. Until then nothing here depends on it, and it is that of the one before, or infinite.
        self.comes_ms = comes_ms

    @property
    def pods(self) -> list[PodSeen]:
        """The pods whose room is in `counted_on`, by UID. A decision may name them as those that it waits for."""
        return sorted([*self._vacating.leaving, *self._departing], key=by_uid)

    @cached_property
    def counted_on(self) -> list[Vacated]:
        """The room on which the search for victims counts: of `pods`, and what is kept for pods that may still come,
        because the end of that is known, and is sooner than that of most grace periods."""
        vacating = self._vacating
        return [vacating.of_pods(vacating.leaving), *vacating.of_assumed(), *self._left]

    @cached_property
    def by_itself(self) -> list[Vacated]:
        """What comes by itself too: of jobs that give up their nodes, whoever wants them, and of other pods that are
        being deleted. No decision counts on it, but if it is enough for a quorum, nobody gives any room."""
        vacating = self._vacating
        deleted = vacating.of_pods(vacating.deleted([*vacating.leaving, *self._departing]))
        return [*map(vacating.of_whole, vacating.ending), deleted]

    @cached_property
    def within_seconds(self) -> list[Vacated]:
        """The same, and what probably comes within seconds: of jobs whose workers finish one after the other."""
        finishing = {uid: by_ms for uid, by_ms in self._vacating.finishing.items() if uid not in self._victims}
        self.comes_ms = min(finishing.values(), default=math.inf)
        return [*self.by_itself, *(self._vacating.of_whole(self._state.jobs[uid]) for uid in finishing)]

    @cached_property
    def rooms(self) -> Amounts:
        """All of this, by row of the view."""
        return self._vacating.in_all([*self.counted_on, *self.within_seconds])


@dataclass
class _SinceMove:
    """What was found since a job gave room or got nodes: what their queues use is the same until the next one does."""

    #: What determines the candidates for a quorum without looking at them → what all of them leave, and UID → these.
    givers: dict[Hashable, tuple[Amounts, dict[str, JobRecord]]] = field(default_factory=dict)
    #: Whether pods come before a reservation: what determines that → the answer.
    comes_first: dict[Hashable, bool] = field(default_factory=dict)
    #: Host (UID), and who has ended by then (UIDs) → `PreemptionSearch.staying`.
    staying: dict[tuple[str, frozenset[str]], frozenset[str]] = field(default_factory=dict)


class PreemptionSearch:
    """The searches of one cycle. `waiting` are its waiting jobs."""

    def __init__(self, state: State, placer: Placer, waiting: list[JobRecord]) -> None:
        placing = placer.placing
        self._state = state
        self._config = config = placing.config
        self._placer = placer
        self._time_ms = placing.time_ms
        self._candidates = Candidates(state, config, placing.policies, waiting, placing.time_ms, jobs=placing.jobs)
        self._bound_ms = config.room_bound_ms
        self._vacating = Vacating(state, placing)
        #: How many quorums got room in this cycle, or would after a dry run. Failed searches don't count.
        self._served = 0
        #: What determines whether a quorum gets room → the content of the view when it got none.
        self._failed: dict[Hashable, int] = {}
        #: What determines the candidates for a quorum → what all of them leave, nodes × resources.
        self._given: dict[Hashable, Amounts] = {}
        #: What determines whether a quorum surely gets no room → the content of the view, and whether it did.
        self._lacking: dict[Hashable, tuple[int, bool]] = {}
        self._bounds: dict[Hashable, RoomBound] = {}
        #: What determines a quorum → what it requests at least.
        self._asked: dict[Hashable, Amounts] = {}
        self._rows = np.arange(len(placer.view))
        self._since_move = _SinceMove()
        #: Host (UID) → its guests, those together that stay or leave together.
        self._alike: dict[str, list[list[JobRecord]]] = {}
        #: UID → jobs that got nodes in this cycle. They give none up in it.
        self._placed: dict[str, None] = {}
        #: UID → jobs that gave room in this cycle. They get none in it.
        self.victims: dict[str, None] = {}
        #: Those of them that gave all of theirs.
        self.displaced: dict[str, JobRecord] = {}
        #: The room that they leave. Their queues don't count it any more.
        self._left: list[Vacated] = []
        #: Their pods, which hold it until then.
        self._departing: list[PodSeen] = []
        self._anyway = LeavingAnyway(state, self._vacating)
        #: Queue → what its own jobs got in this cycle, less what they gave: without what `_got` still has.
        self._counted: dict[str, dict[str, int]] = {}
        #: Jobs with what they got. Most cycles never ask what it adds up to.
        self._got: list[tuple[JobRecord, Sequence[Piece]]] = []
        #: Host (UID) → UID → its guests of this cycle, with what they got.
        self._lent: dict[str, dict[str, tuple[JobRecord, list[Piece]]]] = {}

    @property
    def due_ms(self) -> float:
        """The time at which another job may give room, or room isn't expected to come any more, if nothing changes
        before."""
        return min(self._candidates.due_ms, self._vacating.next_hanging_ms, self._anyway.comes_ms)

    def got_nodes(self, tried: PlacementTry, pieces: Sequence[Piece]) -> None:
        """A job got these nodes in this cycle."""
        job = tried.job
        self._since_move = _SinceMove()
        self._placed[job.uid] = None
        self._got.append((job, pieces))
        # Record this cycle's guests by host. A job whose room others still have to leave is no guest yet.
        for uid in dict.fromkeys((*tried.hosts, *job.slots.hosts)) if tried.preempted is None else ():
            self._lent.setdefault(uid, {}).setdefault(job.uid, (job, []))[1].extend(pieces)

    @property
    def _use(self) -> dict[str, dict[str, int]]:
        """Queue → what its own jobs got in this cycle, less what they gave."""
        self._count_got()
        return self._counted

    def _count_got(self) -> None:
        """Count what jobs got since that was last asked for."""
        for job, pieces in self._got:
            amounts = sum_by_group(job, pods_by_group(pieces))
            self._add(self._counted, job, amounts)
            self._candidates.submitters.count(job, amounts)
        self._got.clear()

    def _add(self, use: dict[str, dict[str, int]], job: JobRecord, amounts: ByResource, sign: int = 1) -> None:
        of_queue = use.setdefault(queue_of(self._state, job), {})
        for resource, amount in amounts.items():
            of_queue[resource] = of_queue.get(resource, 0) + amount * sign

    def standing_of(self, job: JobRecord) -> tuple[int, str]:
        """The priority of a job that counts in its queue, and the queue."""
        return self._candidates.standing_of(job)

    def may_make_room(self, job: JobRecord) -> bool:
        """Whether a job may take room from anybody, found quickly."""
        return job.valid_spec.preempts and self._candidates.may_be_some(job)

    def lacks_with(self, job: JobRecord, more_room: Amounts) -> bool:
        """Whether the quorum of a job without nodes surely lacks room on the view with so much more, by row, and no
        search for it would count steps."""
        return job.valid_spec.whole_topology is None and self._lacks(job, more_room)

    def surely_lacks(self, job: JobRecord, more_room: tuple[Hashable, Amounts] | None = None) -> bool:
        """Whether the quorum of a job without nodes would lack room even once all have left who leave anyway or might
        be asked to, and no search for it would count steps: then none need be made. `more_room` would be free too, by
        row; with it comes what determines it."""
        if not self._is_bounded(job):
            return False
        key = (*self._candidates.standing_of(job), self._placer.alike(job), more_room and more_room[0])
        content, lacks = self._lacking.get(key, (None, False))
        if content != self._placer.view.content:
            given = self._givers_to(job)[0] + self._anyway.rooms
            lacks = self._lacks(job, given if more_room is None else given + more_room[1])
            self._lacking[key] = (self._placer.view.content, lacks)
        return lacks

    def _lacks_without(self, job: JobRecord, may_not_give: Collection[str]) -> bool:
        """As `surely_lacks`, where these jobs (UIDs) give no room."""
        if not self._is_bounded(job):
            return False
        may_not_give = {**dict.fromkeys(may_not_give), **self._placed, **self.victims}
        may = [giver for uid, giver in self._givers_to(job)[1].items() if uid not in may_not_give]
        return self._lacks(job, self._left_by(may) + self._anyway.rooms)

    def lacks_among(self, job: JobRecord, guests: Collection[str], more_room: Amounts) -> bool:
        """As `surely_lacks`, where only these jobs (UIDs) may give room. The job must be bounded (`_is_bounded`): ask
        this only once `surely_lacks` has said True of it."""
        jobs = self._givers_to(job)[1]
        may = [jobs[uid] for uid in guests if uid in jobs]
        return self._lacks(job, self._left_by(may) + self._anyway.rooms + more_room)

    def _is_bounded(self, job: JobRecord) -> bool:
        """Whether it is known of everything that might give room to a quorum how much that is."""
        return not (self._state.is_host(job.uid) or job.placements or job.valid_spec.whole_topology is not None)

    def _amounts_of(self, job: JobRecord) -> ByResource:
        """What the quorum of a job requests, before its workers are chosen."""
        policy = self._placer.placing.policies.pod_policy(job, self._config)
        return sum_by_group(job, pods_of(quorum_needs(job, policy)))

    def _givers_to(self, job: JobRecord) -> tuple[Amounts, dict[str, JobRecord]]:
        """What all candidates for the quorum of a job without nodes leave together, and UID → those. Equal quorums have
        the same until a job gets nodes, or gives room."""
        givers, alike = self._since_move.givers, (*self._candidates.standing_of(job), self._placer.alike(job))
        if alike not in givers:
            asked = self._amounts_of(job)
            _, jobs = self._candidates.every(job, asked, self._use)
            givers[alike] = (self._given_by_all(job, asked), {giver.uid: giver for giver in jobs})
        return givers[alike]

    def _lacks(self, job: JobRecord, given: Amounts) -> bool:
        """Whether the quorum of a job without nodes surely doesn't fit the view with so much more, by row. Most ask for
        more than all nodes have together."""
        alike, view, alone = self._placer.alike(job), self._placer.view, self._placer.may_count_steps(job)
        if not alone and not job.provided:
            asked = self._asked.get(alike)
            if asked is None:
                asked = self._asked[alike] = view.amounts(tuple(least_requested(job.valid_spec).items()))
            if (asked > np.maximum(view.free + given, 0).sum(axis=0)).any():
                return True
        bound = self._bounds.get(alike)
        if bound is None:
            bound = self._bounds[alike] = RoomBound(self._placer, job)
        return bound.lacks(self._rows, given, alone=alone)

    def make_room(
        self,
        tried: PlacementTry,
        may_not_give: Callable[[], Collection[str]],
        beside_queues: tuple[str, ...] = (),
    ) -> PlacementTry | None:
        """The quorum of a failed try, placed where others give it room, its guests first; None if nobody does. But for
        guests, no job in `may_not_give` (UIDs) does. Afterwards the view has the quorum and its victims on it, because
        the room is free only later. For each of `beside_queues`, the queues on the quorum's path that aren't on that
        one's too must stay within their shares, with the quorum and without what the victims give. If a permit holds
        the quorum back, nobody gives room, and the try says so."""
        job, view = tried.job, self._placer.view
        if not self._may_be_remedied(tried) or not self.may_make_room(job):
            return None
        # Which reserved room is open to it: to a job with a reservation its own, so that its UID is the key; to all
        # others by whether they may be guests.
        guesthood: Hashable = job.uid if job.uid in self._state.reservations else job.valid_spec.preemptible
        kept_by = tried.shortage.kept_by if tried.shortage is not None and tried.shortage.of_kept_limit else ()
        key = (*self._candidates.standing_of(job), self._placer.alike(job), guesthood, beside_queues, kept_by)
        if self._failed.get(key) == view.content or self.surely_lacks(job) or self._lacks_without(job, may_not_give()):
            return None
        found = self._search(tried, lambda: self._from_candidates(tried, may_not_give, beside_queues))
        if found is None:
            if tried.shortage is not None and tried.shortage.untried:
                self._served += 1
            else:
                self._failed[key] = view.content
        return found

    def ask_guests(self, tried: PlacementTry) -> PlacementTry | None:
        """The quorum of a failed try, placed where its guests give back their room, or limits of its queue; None if it
        doesn't fit even then. As in `make_room`, just those leave that it needs."""
        job = tried.job
        if not self._state.is_host(job.uid) or not self._may_be_remedied(tried):
            return None
        guests = self._guests(job, {**self._placed, **self.victims})
        if not guests:
            return None
        return self._search(tried, lambda: self._among_guests(job, guests))

    def _among_guests(self, job: JobRecord, guests: list[Candidate]) -> RoomOutcome | None:
        """Who leaves of a job's guests. Where a whole job would, the search is repeated with what they can spare on
        the nodes of the outcome. A job's surplus is its workers of the highest indices, wherever they are: on these
        nodes it could spare others, of lower indices."""
        search = partial(least_harm, self._placer, self._vacating, job)
        outcome = search(guests)
        if outcome is None or not outcome.whole:
            return outcome
        least, names = outcome.harm, self._placer.view.names
        near = self._guests(job, {**self._placed, **self.victims}, {names[of.row] for of in outcome.tried.pieces})
        self._undo(outcome)
        found = search(near)
        if found is not None and found.harm < least:
            return found
        self._undo(found)
        return search(guests)

    def _may_be_remedied(self, tried: PlacementTry) -> bool:
        """Whether a quorum fails for a reason that others can remedy, and fewer quorums than may be have got room in
        this cycle. False for a suspended job that is about to be resumed: its room is sought after its controller's
        decision on that, which would take nodes away again. False also for a job that runs, even if it holds no
        nodes: only one that waits doesn't start before the others have left."""
        shortage, job = tried.shortage, tried.job
        if shortage is None or shortage.infeasible or self._served >= _MOST_SERVED:
            return False
        if job.placements or job.suspended or job.stage not in _WAITING or shortage.objection is not None:
            return False
        if shortage.quota is None:
            return True
        if self._placer.placing.quotas.over(job):
            return False  # else one small job might end many, until the queue is within its limit
        return shortage.quota.limit in LEFT_BY_JOBS

    def _search(self, tried: PlacementTry, find: Callable[[], RoomOutcome | None]) -> PlacementTry | None:
        """Place the quorum of a failed try with what `find` finds once those have left who leave anyway, and let the
        victims give their room. The result is the placed try, or one whose shortage is a permit's objection: then
        nobody gives room. It is None if `find` finds nobody, if nobody need be found because enough room comes by
        itself, or if a dry run has to come first: of these, only that leaves `tried.shortage.untried`."""
        job, found, placing = tried.job, None, self._placer.placing
        with placing.unobserved(), self._vacating.released(self._anyway.counted_on):
            outcome = None if self._fits_without(job, self._anyway.within_seconds) else find()
            if outcome is not None:
                found = outcome.tried
                if (held := self._placer.held_back(found, may_keep=False)) is not None:
                    outcome.undo(placing, self._vacating)
                    self._placer.record_hold(found, held)
                elif untried(job, self._config):
                    outcome.undo(placing, self._vacating)
                    found, tried.shortage = None, _untried(tried.shortage)
                else:
                    self._decide(outcome)
        if found is not None and found.quorum_stands:
            self._served += 1
            placing.quotas.begin(job)
        return found

    def _from_candidates(
        self, tried: PlacementTry, may_not_give: Callable[[], Collection[str]], beside_queues: tuple[str, ...]
    ) -> RoomOutcome | None:
        """Who gives room to a quorum by the rules of queues and priorities; the rest as in `make_room`."""
        job = tried.job
        asked = sum_by_group(job, pods_of(quorum_needs(job, tried.policy)))
        guests = self._guests(job, {**self._placed, **self.victims})
        helpful = self._helpful(job, asked, guests)
        if helpful is None:
            return None
        of_guests = [of.job.uid for of in guests if of.kind.whole]  # others may give more than what was lent
        taken = {**self._placed, **self.victims, **dict.fromkeys(may_not_give()), **dict.fromkeys(of_guests)}
        return self._within_shares(job, asked, taken, helpful, guests, beside_queues=beside_queues)

    def _decide(self, outcome: RoomOutcome) -> None:
        """The victims give their room."""
        outcome.tried.preempted = self._event(outcome, self._anyway.pods)
        for unit in outcome.victims:
            self._give(unit)
        self._since_move = _SinceMove()
        self._anyway = LeavingAnyway(  # the victims' pods may have been a part of it
            self._state,
            self._vacating,
            victims=self.victims,
            left=self._left,
            departing=self._departing,
            comes_ms=self._anyway.comes_ms,
        )

    def comes_by_itself(self, job: JobRecord, before: Iterable[JobRecord], hold: Callable[[JobRecord], None]) -> bool:
        """Whether a quorum that fits nowhere fits once those have left who leave anyway, so nobody gives it room, and
        the jobs `before` it, at which a cycle looks first, have theirs. This uses up the view and the placer: both must
        be made for this question alone."""
        place, reserved = self._placer.without_memory, list[JobRecord]()
        for other in before:  # those that fit now have their nodes
            placed = place(other) is not None
            if not placed and other.uid in self._state.reservations:
                reserved.append(other)
        for vacated in (*self._anyway.counted_on, *self._anyway.within_seconds):
            self._vacating.release(vacated)
        for other in reserved:  # those with reservations get nodes then, or have what `hold` keeps for them
            if place(other) is None:
                hold(other)
        return self._placer.fits(job)

    def fits_without_candidates(self, job: JobRecord, asked: ByResource) -> bool:
        """Whether a quorum that requests `asked` fits once all have left who might give it room, however much their
        queues give then."""
        _, jobs = self._candidates.every(job, asked, self._use)
        return self._fits_without(job, [*self._anyway.counted_on, *map(self._vacating.of_whole, jobs)])

    def fits_without_guests(self, job: JobRecord) -> bool:
        """Whether the quorum of a job with a reservation fits once its guests have left, and those who leave anyway.
        Those of this cycle leave too, in the next one: what they got may be the reason that other guests can't stay."""
        guests = self._guests(job, self.victims)
        vacated = [*self._anyway.counted_on, *self._anyway.by_itself]
        whole = {guest.job.uid: None for guest in guests if guest.kind.whole}
        for guest in guests:
            if guest.kind.whole or guest.job.uid not in whole:
                slots = tuple(chain.from_iterable(guest.units))
                vacated.append(self._vacating.of_job(guest.job, slots, whole=guest.kind.whole))
        if lent := self._lent.get(job.uid):
            stay = self.staying(job)
            vacated += [self._vacating.of_pieces(*got) for uid, got in lent.items() if uid not in stay]
        return self._fits_without(job, vacated)

    def comes_first(
        self, job: JobRecord, pods: Mapping[int, int] | None, reserved: tuple[JobRecord, Mapping[int, int]]
    ) -> bool:
        """Whether so many pods of a job's groups, None for its quorum, keep its queue within its share, and a job for
        whose pods room is reserved would lift its own above: once that has started, others could take the room back.
        Within a queue with `userFairness`, its submitters decide instead."""
        host, of_host = reserved
        queue, other = queue_of(self._state, job), queue_of(self._state, host)
        if not of_host or (queue == other and queue not in self._candidates.submitters.queues):
            return False
        policy = self._placer.placing.policies.pod_policy(job, self._config)
        amounts = sum_by_group(job, pods_of(quorum_needs(job, policy)) if pods is None else dict(pods))
        if queue == other:
            return self._comes_first_in_queue(job, amounts, host)
        found, key = self._since_move.comes_first, (queue, tuple(sorted(amounts.items())), host.uid)
        if key not in found:
            keeps = self._candidates.line(job, amounts, self._use).keeps_below(other)
            found[key] = keeps and self._borrows(host, of_host, queue)
        return found[key]

    def _comes_first_in_queue(self, job: JobRecord, amounts: ByResource, host: JobRecord) -> bool:
        self._count_got()
        return self._candidates.submitters.comes_first(job, amounts, host)

    def comes_first_by_victims(self, job: JobRecord, reserved: tuple[JobRecord, Mapping[int, int]]) -> bool:
        """Whether the quorum of a job comes before another one as in `comes_first` once those give it room from which
        it may take some nearer in the tree: without what these give, it would lift a queue above its share that is on
        its own path alone. `make_room` then says whether they do."""
        host, of_host = reserved
        priority, queue = self._candidates.standing_of(job)
        other = queue_of(self._state, host)
        if queue == other or not of_host or not self.may_make_room(job):
            return False
        amounts = self._amounts_of(job)
        found, key = self._since_move.comes_first, (queue, priority, tuple(sorted(amounts.items())), host.uid)
        if key not in found:
            found[key] = self._borrows(host, of_host, queue) and self._candidates.line_beyond(
                job, amounts, self._use, beside_queues=(other,)
            ).keeps_below(other)
        return found[key]

    def _borrows(self, host: JobRecord, pods: Mapping[int, int], other: str) -> bool:
        """Whether so many pods of a host's groups would lift its queue above its share, apart from another one."""
        return self._candidates.line(host, sum_by_group(host, pods), self._use).exceeds(other)

    def stays(self, guest: JobRecord, host: JobRecord, ended: frozenset[str] = frozenset()) -> bool:
        """Whether a guest needn't leave for its host: what it has keeps its queue within its share by now, or once
        these jobs (UIDs) have `ended`, and the host would lift its own above, so that the guest could take the room
        back. Never within one queue."""
        queue, other = queue_of(self._state, guest), queue_of(self._state, host)
        reservation = self._state.reservations.get(host.uid)
        if queue == other:
            return False
        policy = self._placer.placing.policies.pod_policy(host, self._config)
        of_host = reservation.pods if reservation is not None else pods_of(quorum_needs(host, policy))
        amounts, use = sum_of(guest, guest.placements.keys()), self._use_without(ended)
        without = {**use, queue: dict(use.get(queue, {}))}
        self._add(without, guest, amounts, -1)
        keeps = self._candidates.line(guest, amounts, without, ended=ended).keeps_below(other)
        line = self._candidates.line(host, sum_by_group(host, of_host), use, ended=ended) if keeps else None
        return line is not None and line.exceeds(queue)

    def _use_without(self, ended: frozenset[str]) -> dict[str, dict[str, int]]:
        """As `_use`, less what these jobs (UIDs) have that are to have ended: those whose use a queue counts."""
        counted = [self._state.jobs[uid] for uid in sorted(ended) if uid not in self.victims]
        use = {queue: dict(amounts) for queue, amounts in self._use.items()} if counted else self._use
        for job in [job for job in counted if not job.slots.done]:
            self._add(use, job, sum_of(job, job.placements.keys()), -1)
        return use

    def staying(self, host: JobRecord, ended: frozenset[str] = frozenset()) -> frozenset[str]:
        """The guests of a job (UIDs) that needn't leave for it by now, or once these jobs (UIDs) have `ended`."""
        found, key = self._since_move.staying, (host.uid, ended)
        if key not in found:
            stay = [alike for alike in self._alike_guests(host) if self.stays(alike[0], host, ended)]
            found[key] = frozenset([guest.uid for guest in chain.from_iterable(stay)])
        return found[key]

    def _alike_guests(self, host: JobRecord) -> list[list[JobRecord]]:
        """The guests of a job, those together that have the same queue and resources: `stays` compares what all of the
        queue uses of these with its share."""
        found = self._alike.get(host.uid)
        if found is None:
            alike: dict[Hashable, list[JobRecord]] = {}
            for guest in {guest.job.uid: guest.job for guest in self._candidates.guests(host, ())}.values():
                if host.uid in guest.slots.hosts:
                    amounts = sum_of(guest, guest.placements.keys())
                    used = frozenset(resource for resource, amount in amounts.items() if amount)
                    alike.setdefault((queue_of(self._state, guest), used), []).append(guest)
            found = self._alike[host.uid] = [*alike.values()]
        return found

    def _guests(self, host: JobRecord, taken: Collection[str], nodes: Collection[str] | None = None) -> list[Candidate]:
        """Who has to leave as a guest of this job now; `nodes` as in `Candidates.guests`."""
        found = self._candidates.guests(host, taken, nodes)
        stay = self.staying(host) if found else ()
        return [guest for guest in found if guest.job.uid not in stay]

    def _fits_without(self, job: JobRecord, vacated: list[Vacated]) -> bool:
        """Whether the quorum fits once these pods have left."""
        with self._placer.placing.unobserved(), self._vacating.released(vacated):
            return self._placer.fits(job)

    def _within_shares(
        self,
        job: JobRecord,
        asked: ByResource,
        taken: Collection[str],
        helpful: dict[str, None],
        guests: Sequence[Candidate],
        *,
        beside_queues: tuple[str, ...],
    ) -> RoomOutcome | None:
        """As `_best_of_searches`, and the shares of queues hold for the workers that are placed. First they are judged
        by what the quorum's first workers request. If worker sets differ, others may be placed, and may request more:
        if the shares don't hold with that, room is sought again for what these request, `_MOST_REQUESTS` times in all.
        """
        search = partial(
            self._best_of_searches, job, taken=taken, helpful=helpful, guests=guests, beside_queues=beside_queues
        )
        for _ in range(_MOST_REQUESTS):
            outcome = search(asked, near_first=False)
            if (
                beside_queues
                and outcome is not None
                and not self._keeps_shares(job, self._got_by(outcome), outcome, beside_queues)
            ):
                self._undo(outcome)
                outcome = None
            if outcome is None and (beside_queues or self._candidates.near_helps(job, asked, self._use)):
                outcome = search(asked, near_first=True)
            if outcome is None:
                return None
            asked = self._got_by(outcome)
            if self._keeps_shares(job, asked, outcome, beside_queues):
                return outcome
            self._undo(outcome)
        return None

    def _got_by(self, outcome: RoomOutcome) -> ByResource:
        """What the pods of a quorum that is placed request."""
        return sum_of(outcome.tried.job, expand(self._placer.placed_pods(outcome.tried)))

    def _keeps_shares(
        self, job: JobRecord, asked: ByResource, outcome: RoomOutcome, beside_queues: Iterable[str]
    ) -> bool:
        """Whether, with a quorum that requests `asked` and without what its victims give, the queues on its path stay
        within their shares: for each queue from which it reclaims, and each of `beside_queues`, those that aren't on
        the path of that one too."""
        victims = outcome.victims
        queues = dict.fromkeys(
            [*beside_queues, *(unit.candidate.queue for unit in victims if unit.candidate.reclaimed)]
        )
        if not queues:
            return True
        line, given = self._candidates.line(job, asked, self._use), dict[str, tuple[Candidate, set[SlotKey]]]()
        for unit in victims:
            if not unit.candidate.kind.of_guest:
                given.setdefault(unit.candidate.job.uid, (unit.candidate, set()))[1].update(unit.slots)
        for candidate, slots in given.values():
            line.near_give(candidate.queue, sum_of(candidate.job, slots))
        return not any(line.own_above(queue) for queue in queues)

    def _best_of_searches(
        self,
        job: JobRecord,
        asked: ByResource,
        taken: Collection[str],
        helpful: dict[str, None],
        guests: Sequence[Candidate],
        *,
        near_first: bool,
        beside_queues: Collection[str],
    ) -> RoomOutcome | None:
        """Who gives room to a quorum that requests `asked`, its guests before all others, without the jobs in `taken`;
        None if nobody does. `near_first` and `beside_queues` are as in `Candidates.of`.

        Where whole jobs would leave, or nobody, the search is repeated with all workers that quorums can spare on some
        nodes. A job's surplus is its workers of the highest indices, wherever they are: on these nodes it could spare
        others, of lower indices.

        What other queues may give ends at their shares, and the first candidates may use that up in vain: on nodes that
        they can't free. Then the search is repeated with those on helpful nodes, and on some of these alone, then on
        some that are helpful with jobs of the quorum's own queue.

        If pods that leave change nothing but room, only those on the `helpful` nodes are asked at all.
        """
        only = helpful if self._vacating.by_room_alone else None
        search = partial(
            self._one_search, job, asked, taken, guests=guests, near_first=near_first, beside_queues=beside_queues
        )
        outcome = search(only)
        kept_by_shares = self._candidates.kept_by_shares  # as that search left it; the next one overwrites it
        if outcome is None or outcome.whole:
            outcome = self._improved(outcome, search, only, self._spare_nodes(outcome, job, asked, taken, helpful))
        if outcome is None and kept_by_shares:
            found = map(search, self._nodes_to_free(job, asked, taken))
            outcome = next((each for each in found if each is not None), None)
        return outcome

    def _nodes_to_free(self, job: JobRecord, asked: ByResource, taken: Collection[str]) -> Iterator[dict[str, None]]:
        """The nodes for searches among the jobs there: where a pod of the quorum fits once all jobs have left from
        which it may reclaim, first all of these nodes together, then some of them one at a time. Then some, one at a
        time too, where it fits only if those of its own queue have left as well that may give it room."""
        others = self._candidates.jobs_of_others(job, asked, self._use, taken)
        helpful = dict.fromkeys(self._vacating.helpful_nodes(job, [(other, other.placements) for other in others]))
        _, jobs = self._candidates.every(job, asked, self._use)  # those of its own queue may have some of the room too
        jobs = [giver for giver in jobs if giver.uid not in taken]
        more = self._vacating.helpful_nodes(job, [(giver, giver.placements) for giver in jobs]) if others else []
        if helpful:
            yield helpful
        for node in [*helpful, *[node for node in more if node not in helpful]][:_MOST_SINGLE_NODES]:
            yield {node: None}

    def _spare_nodes(
        self,
        outcome: RoomOutcome | None,
        job: JobRecord,
        asked: ByResource,
        taken: Collection[str],
        helpful: dict[str, None],
    ) -> list[dict[str, None]]:
        """The nodes for searches among workers that quorums can spare there, after a search with this outcome. Where
        these are more than surplus, and leave room for a pod of the quorum: at most `_MOST_SINGLE_NODES` such nodes,
        those where the fewest leave. One search has them before all others, then each is searched alone. Then those of
        the outcome, if a job on them needn't leave as a whole."""
        view, levels = self._placer.view, self._placer.view.free
        found, whole, nodes = list[dict[str, None]](), list[Candidate](), dict[str, None]()
        if outcome is not None:
            whole = outcome.whole
            levels = outcome.free_before(view)
            nodes = dict.fromkeys(sorted([view.names[piece.row] for piece in outcome.tried.pieces]))
        spare = self._candidates.spare_on_nodes(job, asked, self._use, taken)
        freed = self._vacating.helpful_nodes(job, chain.from_iterable(spare.values()), levels)
        pods = {node: sum(len(slots) for _, slots in spare[node]) for node in freed if node in spare}
        first = sorted([node for node in pods if node in helpful], key=pods.__getitem__)[:_MOST_SINGLE_NODES]
        if first:
            others: Iterable[str] = helpful if self._vacating.by_room_alone else view.names  # both by name
            found = [dict.fromkeys([*first, *others]), *({node: None} for node in first)]
        if any(self._candidates.can_spare(candidate.job, nodes) for candidate in whole):
            found.append(nodes)
        return found

    def _improved(
        self,
        outcome: RoomOutcome | None,
        search: Callable[..., RoomOutcome | None],
        only: dict[str, None] | None,
        others: list[dict[str, None]],
    ) -> RoomOutcome | None:
        """What a search found on the nodes in `only`, or what does less harm, found on some of the others."""
        if not others:
            return outcome
        least = outcome.harm if outcome is not None else None
        self._undo(outcome)
        best, spare = only, False
        for nodes in others:
            found = search(nodes, spare=True)
            if found is not None and (least is None or found.harm < least):
                best, spare, least = nodes, True, found.harm
                if not least[0]:  # no whole job leaves: good enough
                    return found
            self._undo(found)
        return search(best, spare=spare) if least is not None else None

    def _undo(self, outcome: RoomOutcome | None) -> None:
        if outcome is not None:
            outcome.undo(self._placer.placing, self._vacating)

    def _one_search(
        self,
        job: JobRecord,
        asked: ByResource,
        taken: Collection[str],
        nodes: dict[str, None] | None,
        *,
        guests: Sequence[Candidate],
        near_first: bool,
        beside_queues: Collection[str],
        spare: bool = False,
    ) -> RoomOutcome | None:
        """The best of a few searches among the guests and the candidates (`Candidates.of`) on these nodes, None for
        all. With `near_first` a single one: it takes the candidates as they come, nearest to the quorum first."""
        others = self._candidates.of(
            job, asked, self._use, taken, nodes=nodes, spare=spare, near_first=near_first, beside_queues=beside_queues
        )
        candidates = chain(guests, others)
        if not near_first:
            return least_harm(self._placer, self._vacating, job, candidates)
        return RoomSearch(self._placer, self._vacating, job).among(candidates)

    def _give(self, unit: Unit) -> None:
        """Record that the unit gives its room. All of it is on the view again until its pods have left, but its queue
        no longer counts it. What its pods hold, and its slots to which no pod can come, is added to what leaves anyway:
        later searches count on that. Slots whose pods may still come keep their room for the rest of the cycle, because
        a later decision can't name these pods as leaving.
        """
        victim = unit.candidate.job
        self._vacating.take_again(unit.vacated, use=False)
        unseen = [slot for slot in unit.slots if slot not in victim.bound]
        empty = tuple([slot for slot in unseen if not may_come(victim, slot, victim.stage)])
        pods = held_by(self._state, victim, unit.slots)
        self._left += [self._vacating.of_pods(pods), self._vacating.of_job(victim, empty, whole=False)._replace(use=())]
        self._departing += pods
        self.victims[victim.uid] = None
        if unit.candidate.kind.whole:
            self.displaced[victim.uid] = victim
        amounts = sum_of(victim, unit.slots)
        self._add(self._counted, victim, amounts, -1)
        self._candidates.submitters.count(victim, amounts, -1)

    def _helpful(self, job: JobRecord, asked: ByResource, guests: Sequence[Candidate]) -> dict[str, None] | None:
        """The nodes on which a pod of a quorum may fit without all candidates and its guests; None if it surely doesn't
        fit even then. Quorums with the same candidates share what these leave."""
        view, given = self._placer.view, self._given_by_all(job, asked)
        if guests:
            given = given + self._left_by({guest.job.uid: guest.job for guest in guests}.values())
        bound = RoomBound(self._placer, job)
        if bound.lacks(self._rows, given):
            return None
        return {view.names[row]: None for row in np.flatnonzero(bound.helpful(self._rows, given)).tolist()}

    def _left_by(self, jobs: Iterable[JobRecord]) -> Amounts:
        return self._vacating.in_all(map(self._vacating.of_whole, jobs))

    def _given_by_all(self, job: JobRecord, asked: ByResource) -> Amounts:
        """What all candidates for a quorum leave together, by row of the view."""
        key, jobs = self._candidates.every(job, asked, self._use)
        given = self._given.get(key)
        if given is None:
            given = self._given[key] = self._vacating.sum_of(jobs).astype(np.int64)
        return given

    def _event(self, outcome: RoomOutcome, pods: list[PodSeen]) -> Preempted:
        job, tried = outcome.tried.job, outcome.tried
        nodes = {self._placer.view.names[piece.row] for piece in tried.pieces}
        whole = tried.pods == job.pods_desired()
        state = ScheduleState.SUCCEED if whole else ScheduleState.PARTLY
        pods_placed, devices = self._placer.placed_pods(tried), self._placer.take_devices(tried)
        placed = Placed(job.uid, job.version, job.attempt, state, pods_placed, devices)
        needed = [pod for pod in pods if pod.node in nodes]
        begun = [unit for unit in outcome.victims if not unit.candidate.job.awaits_room]  # others have no pods to leave
        slots = [(unit.candidate.job, slot) for unit in begun for slot in unit.slots]
        left_ms = self._time_ms + grace_ms(self._state, slots, needed)
        until_ms = max([left_ms, *(of.until_ms for of in assumed_on(self._state, nodes))]) + self._bound_ms
        uids = tuple(pod.uid for pod in needed)
        return Preempted(placed, self._victims_of(outcome), self._spared(outcome), uids, until_ms)

    def _victims_of(self, outcome: RoomOutcome) -> tuple[Victim, ...]:
        """The victims, each once, in the order in which they give room."""
        slots: dict[str, dict[SlotKey, str]] = {}
        kinds: dict[str, Candidate] = {}
        for unit in outcome.victims:
            victim = unit.candidate.job
            slots.setdefault(victim.uid, {}).update({slot: victim.placements[slot] for slot in unit.slots})
            kinds[victim.uid] = unit.candidate  # of a whole job, this is the last
        found = []
        for uid, given in slots.items():
            victim, kind = kinds[uid].job, kinds[uid].kind
            lost = self._candidates.lost_ms(victim, given)
            found.append(Victim(uid, victim.version, victim.attempt, kind, compact(given), lost))
        return tuple(found)

    def _spared(self, outcome: RoomOutcome) -> tuple[Spared, ...]:
        """Who gives no room although it might have, the first few."""
        victims = {unit.candidate.job.uid for unit in outcome.victims}
        found: dict[str, Spared] = {}
        for needless, units in ((True, outcome.spared), (False, outcome.others)):
            for unit in units:
                uid, candidate = unit.candidate.job.uid, unit.candidate
                if uid not in victims and uid not in found:
                    found[uid] = Spared(uid, candidate.kind, candidate.lost_ms, needless)
        return tuple(islice(found.values(), OTHERS))


def _untried(shortage: Shortage | None) -> Shortage | None:
    """The shortage of a quorum to which others would give room once its pods have been tried; equal jobs share one."""
    return replace(shortage, untried=True) if shortage is not None else None
