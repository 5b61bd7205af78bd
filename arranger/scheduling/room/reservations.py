"""Room that is kept for the first jobs that only lack room: when and where their quorums fit as others end, and who may
still go before them.

A reservation is made as in EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995; Mu'alem and Feitelson,
IEEE TPDS 12(6), 2001), for whole quorums and nodes instead of processors: jobs that run end one after the other, at the
times at which they are expected to, until the quorum fits. Jobs of which nothing is expected end after all others, the
one that began first before the next; then the time of the start is unknown, and the nodes are reserved all the same.

The first jobs are those whose turns come first. But a policy that prefers small jobs would keep a large one waiting for
as long as they come. So within a queue a new reservation is for the job of the highest priority, and of these for the
oldest, and it holds against all others, also if their turns come before.

A job behind takes from the reserved nodes only what is left once the quorum is there (`backfill`). If its deadline ends
it before the reservation begins, it may use all that is free now. Any other may use it as a guest: it leaves as soon as
the job with the reservation can start with its room (`PreemptionSearch.ask_guests`). Pods of a job that has other nodes
are lent such room by themselves (`lend`). So no room is idle because it is reserved, and no job behind delays the
start, because nothing that a job only expects of itself counts here. (Without guests it does, as nobody else could use
the room.)

A job that waits for nothing but its own pods of an earlier attempt has a reservation too, without guests: it starts
within seconds (`waits_for_own_pods`). A guest that keeps its queue within its share stays, where its host would lift
its own above it (`ShareRules.stays`).
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain
from operator import attrgetter, itemgetter
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from arranger.events.kinds import PodSeen, Reserved
from arranger.model.config import CycleConfig
from arranger.model.job import DEFAULT_GRACE_S, PlacedPods, Stage
from arranger.model.pod import PodShape
from arranger.model.reasons import ReasonKind
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.cluster.openness import closed_to_new
from arranger.projections.derived.awaited_room import takes_none, untried
from arranger.projections.derived.expected_ends import expected_end, expected_runtime_ms, leaves_by_ms
from arranger.projections.derived.queue_counts import is_other, queue_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Reservation, State
from arranger.scheduling.cluster.view import add_to, fitting
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.queues.known_jobs import RowRooms
from arranger.scheduling.queues.policies import Rank, seniority
from arranger.scheduling.room.departures import Departures
from arranger.scheduling.room.vacating import Vacated, Vacating, grace_ms, held_by
from arranger.scheduling.search.placer import Placer

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)
#: How many quorums of a cycle are tried beside those who leave anyway.
_MOST_DEPARTURE_SEARCHES = 16

#: `PreemptionSearch.make_room`.
MakeRoom = Callable[[PlacementTry, Callable[[], Collection[str]]], PlacementTry | None]


class ShareRules(Protocol):
    """What decides between a job behind and those with reservations."""

    def fits_without_guests(self, job: JobRecord) -> bool:
        """Whether a job with a reservation can start without its guests."""

    def comes_first(
        self, job: JobRecord, pods: Mapping[int, int] | None, reserved: tuple[JobRecord, Mapping[int, int]]
    ) -> bool:
        """Whether so many pods of a job's groups, None for its quorum, come before a job for whose pods room is
        reserved, by the shares of their queues."""

    def stays(self, guest: JobRecord, host: JobRecord) -> bool:
        """Whether a guest needn't leave for its host now, by the shares of their queues."""

    def staying(self, host: JobRecord) -> frozenset[str]:
        """The guests of a job (UIDs) that needn't leave for it now."""


class _Alone:
    """No other job's shares and turns are looked at."""

    def fits_without_guests(self, _: JobRecord) -> bool:
        return False

    def comes_first(self, *_: object) -> bool:
        return False

    def stays(self, *_: object) -> bool:
        return False

    def staying(self, _: JobRecord) -> frozenset[str]:
        return frozenset()


class HeldRoom(NamedTuple):
    """What is held for one reservation."""

    #: What is taken out of the view, by row.
    rooms: RowRooms
    #: What others are still to leave for it on the same rows.
    left: Amounts
    #: The start and the awaited jobs (UIDs), as in `Reserved`.
    start_ms: int
    awaits: tuple[str, ...]
    #: UID → all jobs that are to leave.
    leave: dict[str, JobRecord]
    #: The part of `rooms` that pods use which were lent it. It is held beside them, because it is free for nobody else
    #: once they have left.
    lent: Amounts

    @property
    def beside_lent(self) -> "HeldRoom":
        """Only what is held beside pods that were lent it."""
        return self._replace(rooms=RowRooms(self.rooms.rows, self.lent))


class OpenRoom(NamedTuple):
    """The reserved room that a job might use, by row of the view: of the jobs (UIDs) before which it comes, where any
    job may give it more, and all of it, where at most these guests (UIDs) do."""

    hosts: tuple[str, ...]
    first: Amounts
    every: Amounts
    guests: Collection[str]


class _Found(NamedTuple):
    """When and where a quorum fits, the jobs on these nodes that end before, and when the last of all has ended."""

    start_ms: int
    pods: tuple[PlacedPods, ...]
    awaits: tuple[str, ...]
    ends_ms: float

    @property
    def decided(self) -> tuple[int, tuple[PlacedPods, ...], tuple[str, ...]]:
        """What a decision says of it."""
        return self.start_ms, self.pods, self.awaits


def may_be_guest(job: JobRecord, config: CycleConfig) -> bool:
    """Whether a job may use reserved room until others need it."""
    return config.guests and job.valid_spec.preemptible and not job.of_pods


def with_reservation(state: State, uid: str) -> tuple[JobRecord, dict[int, int]]:
    """A job that may have a reservation, and for how many pods of its groups that is."""
    known = state.reservations.get(uid)
    return state.jobs[uid], known.pods if known is not None else {}


def _has_room(tried: PlacementTry) -> bool:
    """Whether a quorum has nodes, or a permit holds it back."""
    return tried.quorum_stands or (tried.shortage is not None and tried.shortage.objection is not None)


class Reservations:
    """The reservations of one cycle, in the order of the jobs' turns."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        waiting: list[JobRecord],
        *,
        share_rules: ShareRules | None = None,
        sought: dict[str, int] | None = None,
    ) -> None:
        """`share_rules` decide in a cycle between jobs behind and those with reservations. `sought` has the UIDs of the
        jobs whose starts this process sought in earlier cycles, each with the table's `changes` then."""
        self._sought = sought if sought is not None else {}
        self._state = state
        self._share_rules: ShareRules = share_rules if share_rules is not None else _Alone()
        self._waiting = waiting
        self._config = config = placer.placing.config
        self._placer = placer
        self._time_ms = placer.placing.time_ms
        self._vacating = Vacating(state, placer.placing)
        #: UID → jobs that have had their turns.
        self._turned: dict[str, None] = {}
        #: How many jobs may still get their first reservation, and how many of those that go before others with one.
        of_others = [uid for uid in state.reservations if not self._vacating.own_gone_ms(state.jobs[uid])]
        self._grants_left = max(config.reservations - len(of_others), 0)
        self._grants_left_before = config.reservations
        #: UID → what is held for that job at the moment.
        self._held: dict[str, HeldRoom] = {}
        #: The content of the view, and of which jobs what is held is put back → the content without it.
        self._lifted: dict[tuple[object, ...], int] = {}
        #: The content of the view, a pod and how many of a quorum lack room → who keeps it out.
        self._keep_out: dict[tuple[int, PodShape, int], tuple[str, ...]] = {}
        #: UID → jobs whose reservations were held elsewhere than they are, before their turns.
        self._moved: dict[str, None] = {}
        #: UID and which of its guests stay → whether that job can start with what is held for it, without the others.
        self._may_starts: dict[tuple[str, frozenset[str]], bool] = {}
        #: UID → jobs for which no end is to be recorded: the reservation goes on, or `Placed` ends it in the fold.
        self._needs_no_end: dict[str, None] = {}
        #: The queues in which jobs got their first reservations in this cycle.
        self._queues_granted: set[str] = set()
        #: UID → whether the quorum fits at all as others end.
        self._fits: dict[str, bool] = {}
        #: The rows of the pods that got nodes in this cycle. Only the next one knows when they leave.
        self._used: dict[int, None] = {}
        self._events: list[Reserved] = []
        #: How many quorums were tried beside those who leave anyway, and what determines which of them didn't fit.
        self._departure_searches = 0
        self._no_fit_after_departures: set[Hashable] = set()
        #: Whether a reservation was revised and is as before. The cycle is recorded, so that the next one knows it.
        self.confirmed = False
        #: When a reservation is to be revised although nothing changes, in milliseconds.
        self.due_ms = math.inf

    def events(self) -> tuple[list[Reserved], list[Reserved]]:
        """The new and changed reservations, and the end of those whose jobs don't lack room alone any more."""
        over = [uid for uid in sorted(self._state.reservations) if uid not in self._needs_no_end]
        for uid in [uid for uid in self._sought if uid not in self._needs_no_end]:
            del self._sought[uid]
        return self._events, [Reserved(uid, self._state.jobs[uid].version, 0, ()) for uid in over]

    @property
    def held(self) -> Mapping[str, HeldRoom]:
        """UID → what is held for that job at the moment."""
        return self._held

    def served(self, job: JobRecord) -> None:
        """A job got its nodes, which ends its reservation by itself."""
        self._needs_no_end[job.uid] = None

    def count_used(self, pieces: Iterable[Piece]) -> None:
        """A job got these pods in this cycle."""
        self._used.update(dict.fromkeys(piece.row for piece in pieces))

    def begin(self, job: JobRecord) -> None:
        """A job's turn begins. More senior ones in its queue keep what is reserved for them, although their turns may
        come later, and the job itself may use what is held for it. So may it what is held only because less senior ones
        had their turns already."""
        if not self._state.reservations:
            return
        ahead = [uid for uid in self._held if uid not in self._turned or job.uid in self._moved]
        of_juniors = [
            uid
            for uid in ahead
            if self._queue(job) == self._queue(of := self._state.jobs[uid]) and seniority(job) < seniority(of)
        ]
        for uid in (job.uid, *of_juniors):
            held = self._held.pop(uid, None)
            if held is not None:
                self._placer.view.hold(*held.rooms, sign=-1)
        for other in self._later:
            waits = other.uid not in self._turned and other.uid not in self._held
            if waits and seniority(other) < seniority(job) and self._queue(other) == self._queue(job):
                self.hold(other, self._as_of_now(other))
        self._turned[job.uid] = None

    def _as_of_now(self, job: JobRecord) -> Reserved:
        """The reservation of a job whose turn is still to come: moved, if news of room let it start sooner. Then less
        senior ones give way to it in its turn, though they had theirs."""
        decided = self._state.reservations[job.uid].decided
        found = self._known_sooner(job, decided)
        if found is None:
            return decided
        self._moved[job.uid] = None
        return Reserved(job.uid, job.version, *found.decided)

    def _queue(self, job: JobRecord) -> str:
        return queue_of(self._state, job)

    @cached_property
    def _later(self) -> list[JobRecord]:
        """The waiting jobs whose reservation is for the job and the nodes as they are."""
        known, nodes, found = self._state.reservations, self._state.nodes, []
        for job in self._waiting:
            if job.uid in known and not job.placements:
                decided = known[job.uid].decided
                if decided.based_on == job.version and all(nodes.has(of.node) for of in decided.pods):
                    found.append(job)
        return found

    def awaited(self, tried: PlacementTry) -> dict[str, None]:
        """UID → jobs for whose ends those wait that have a reservation and are before the present turn; and the guests
        in the room that is held. They give no room to a quorum behind: what they leave is for those. If the time of a
        reservation isn't known, jobs may use such room until then, as guests."""
        found = self._awaited(tried)
        for uid in self._held_against(tried):
            found.update(dict.fromkeys(job.uid for job in self._guests.get(uid, ())))
        return found

    def _awaited(self, tried: PlacementTry) -> dict[str, None]:
        """As `awaited`, without guests. Who may be a guest takes their room as one if the time isn't known."""
        held = self._held_against(tried)
        free = self._open_to_guests(tried.job) if may_be_guest(tried.job, self._config) else {}
        hosts = {uid for uid in free if not untried(self._state.jobs[uid], self._config)}
        return {uid: None for host, of in held.items() if of.start_ms or host not in hosts for uid in of.awaits}

    def _note_terms(self, found: PlacementTry, against: Mapping[str, HeldRoom]) -> None:
        """A quorum that takes room which is to be left to others with reservations is their guest there."""
        if found.preempted is None:
            return
        victims = {of.job_uid for of in found.preempted.victims}
        found.hosts = tuple(uid for uid, of in against.items() if not victims.isdisjoint(of.awaits))
        if found.hosts:
            decided = found.preempted
            found.preempted = replace(decided, placed=replace(decided.placed, hosts=found.hosts))

    def _held_against(self, tried: PlacementTry) -> dict[str, HeldRoom]:
        """What is held by those before which this quorum doesn't come by the shares of their queues."""
        known = ((uid, of, with_reservation(self._state, uid)) for uid, of in self._held.items())
        return {uid: of for uid, of, reserved in known if not self._share_rules.comes_first(tried.job, None, reserved)}

    @cached_property
    def _hosting(self) -> set[str]:
        """The UIDs of the jobs in whose reserved room there are guests, or some pods of other jobs."""
        every = self._state.jobs.values()
        return {uid for job in every if job.placements for uid in chain(job.slots.hosts, *job.slots.lent.values())}

    def _is_guest(self, job: JobRecord, host: str) -> bool:
        """Whether a job leaves as soon as this one can start without it. A guest leaves only for a host that waits: one
        that runs and has lost its nodes could start before the guest is gone."""
        of = self._state.jobs.get(host)
        return host in job.slots.hosts and (
            of is None or (of.stage in _WAITING and not self._share_rules.stays(job, of))
        )

    @cached_property
    def _guests(self) -> dict[str, list[JobRecord]]:
        """UID → the guests of that job."""
        found: dict[str, list[JobRecord]] = {}
        for job in self._state.jobs.values() if self._config.guests else ():
            for uid in job.slots.hosts if job.placements else ():
                if self._is_guest(job, uid):
                    found.setdefault(uid, []).append(job)
        return found

    def may_reserve(self, job: JobRecord) -> bool:
        """Whether a job has a reservation or may get one."""
        return job.uid in self._state.reservations or self._grants_left > 0 or self._goes_before(job)

    def may_keep(self, job: JobRecord) -> bool:
        """Whether room may be kept for a job that gets none: by a reservation, or where others leave."""
        return self.may_reserve(job) or (self._departure_searches < _MOST_DEPARTURE_SEARCHES and self._somebody_leaves)

    def open_to(self, job: JobRecord) -> OpenRoom | None:
        """The reserved room that a job without nodes might use in its turn; None if its turn tells first. Who may start
        without guests is asked as in its turn: once of each host."""
        nothing = np.zeros_like(self._placer.view.free, np.int64)
        if not self._held:
            return OpenRoom((), nothing, nothing, {})
        may, late = self._config.guests and not job.of_pods, not self._leaves_all_in_time(job)
        if may and (late or not job.valid_spec.preemptible):
            return None
        end_ms = leaves_by_ms(self._state, job, self._config, self._time_ms)
        free = self._open_to_guests(job) if may else {}
        hosts, first, every = list[str](), nothing, nothing.copy()
        for uid, of in self._held.items():
            comes_first = self._share_rules.comes_first(job, None, with_reservation(self._state, uid))
            opens = comes_first or uid in free or (end_ms is not None and end_ms <= of.start_ms)
            every[of.rooms.rows] += of.rooms.amounts if opens else of.lent
            if comes_first:
                hosts.append(uid)
                first[of.rooms.rows] += of.rooms.amounts
        guests = {of.uid: None for uid in free for of in self._guests.get(uid, ())}
        return OpenRoom(tuple(hosts), first, every, guests)

    def _leaves_all_in_time(self, job: JobRecord) -> bool:
        return all(self.leaves_in_time(job, of.start_ms) for of in self._held.values())

    # --- jobs that get one ----------------------------------------------------------------------------------

    def reserve(self, tried: PlacementTry) -> None:
        """Reserve room for a quorum that lacks nothing else, if its job may have a reservation."""
        job, shortage = tried.job, tried.shortage
        known = self._state.reservations.get(job.uid)
        if shortage is None or not self._lacks_room(tried, shortage) or not self.is_eligible(job):
            return
        coming = self._fit_after_departures(job)
        decided = known.decided if known is not None else None
        if not self._config.reservations or (known is None and not self._grant(job)):
            self._hold_after_departures(job, coming)
            return
        if known is None or decided is None or self._outdated(job, known):
            found = self._search(job)
            self._fits[job.uid] = found is not None
            if found is None:
                self._hold_after_departures(job, coming)
                return
            self._sought[job.uid] = self._state.nodes.changes
            if known is None:
                self._queues_granted.add(self._queue(job))
                self._holders.setdefault(self._queue(job), []).append(seniority(job))
            decided = self._decide(Reserved(job.uid, job.version, *found.decided, self._outlived(known)), known)
            self._note_due(decided, self._time_ms)
        elif (other := self._elsewhere(job, decided)) is not None:
            self._sought[job.uid] = self._state.nodes.changes
            decided = self._decide(Reserved(job.uid, job.version, *other.decided, self._outlived(known)), known)
            self._note_due(decided, self._time_ms)
        else:
            self._note_due(decided, known.time_ms)
            self._note_changes(decided, known.time_ms)
        self._needs_no_end[job.uid] = None
        self.hold(job, decided, coming)

    def _lacks_room(self, tried: PlacementTry, shortage: Shortage) -> bool:
        """Whether a quorum lacks nothing but room, or a limit of its queue as long as its guests use that too: they
        leave for it."""
        if shortage.of_nodes:
            return not shortage.infeasible
        guests = self._guests.get(tried.job.uid, ())
        if not guests or shortage.quota is None:
            return False
        left = [self._vacating.use_of(of) for of in guests]
        return self._placer.placing.quotas.suffice_without(left, tried.job, tried.policy, shortage.quota)

    def _fit_after_departures(self, job: JobRecord) -> _Found | None:
        """Where a quorum fits once those have left who leave anyway, but what they leave for jobs before it; None if it
        doesn't."""
        content = self._placer.view.content
        if self._departure_searches >= _MOST_DEPARTURE_SEARCHES or not self._somebody_leaves:
            return None
        if (key := (self._placer.alike(job), content)) in self._no_fit_after_departures:
            return None
        self._departure_searches += 1
        self._hold_all(1)
        found = self._search(job, self._ending)
        self._hold_all(-1, content)
        if found is None:
            self._no_fit_after_departures.add(key)
        return found

    @cached_property
    def _ending(self) -> list[tuple[float, JobRecord]]:
        """The jobs that leave now, as in `_ends_of_all`."""
        return [(float(self._time_ms), of) for of in sorted(self._vacating.ending, key=attrgetter("uid"))]

    @cached_property
    def _somebody_leaves(self) -> bool:
        """Whether room is to come that nobody was asked for."""
        return bool(self._state.assumed or self._going or self._ending)

    def _hold_after_departures(self, job: JobRecord, coming: _Found | None) -> None:
        """A job without a reservation keeps what it is to get as soon as those have left who leave anyway: who started
        there would be asked to leave at once."""
        if coming is not None:
            self.hold(job, Reserved(job.uid, job.version, self._time_ms, coming.pods, coming.awaits))

    def waits_for_own_pods(self, job: JobRecord) -> bool:
        """Whether a job waits for its own pods of an earlier attempt. Then what its quorum would get in its turn
        without them and others that leave is reserved: who started there would soon give it up again."""
        gone_ms = self._vacating.own_gone_ms(job)
        found = (self._on_own_nodes(job) or self._search(job, [])) if gone_ms and self._config.reservations else None
        if found is not None:
            decided = Reserved(job.uid, job.version, max(found.start_ms, gone_ms), found.pods)
            known = self._state.reservations.get(job.uid)
            if known is None or not self._is_as_before(decided, known.decided):
                self._events.append(decided)
            self._needs_no_end[job.uid] = None
            self.hold(job, decided)
        return bool(gone_ms)

    def _on_own_nodes(self, job: JobRecord) -> _Found | None:
        """When and where a quorum fits on the nodes that its own pods are to leave, and on room that others leave: so
        nobody waits for what is free now; None if it doesn't."""
        view, content = self._placer.view, self._placer.view.content
        rows = view.node_index.rows()
        own = [rows[pod.node] for pod in self._vacating.own_pods(job) if pod.node in rows]
        if not own:
            return None
        others = np.delete(np.arange(len(view)), own)
        free = np.maximum(view.free[others].astype(np.int64), 0)
        view.hold(others, free)
        found = self._search(job, [])
        view.hold(others, free, content, sign=-1)
        return found

    def _sooner(self, job: JobRecord, decided: Reserved) -> _Found | None:
        """Where the quorum fits sooner than was known, after news of room; None if it doesn't. A reservation that moved
        without that would leave to others what has become free for it."""
        if not self._state.room_news:
            return None
        self.confirmed = True  # it is recorded that the news are known
        return self._known_sooner(job, decided)

    def _known_sooner(self, job: JobRecord, decided: Reserved) -> _Found | None:
        found = self._search(job) if self._state.room_news else None
        sooner = found is not None and found.start_ms and not 0 < decided.start_ms <= found.start_ms
        return found if sooner else None

    def _elsewhere(self, job: JobRecord, decided: Reserved) -> _Found | None:
        """As `_sooner`, or when and where the quorum fits if others got its reserved room; None if neither is so, or it
        fits nowhere."""
        return self._sooner(job, decided) or (self._search(job) if self._reserved_room_is_gone(job, decided) else None)

    def _grant(self, job: JobRecord) -> bool:
        """Give a job a first reservation if it may have one: as one of so many, or before others that have one."""
        one_more = self._grants_left > 0
        if not (one_more or self._goes_before(job)) or self._leaves_it(job):
            return False
        if one_more:
            self._grants_left -= 1
        else:
            self._grants_left_before -= 1
        return True

    def _goes_before(self, job: JobRecord) -> bool:
        """Whether a job is before one with a reservation in its queue, and not behind so many others: the first jobs
        have one, also if they came later. Those that had one keep it, with their guests."""
        if not self._grants_left_before:
            return False
        holders, rank = self._holders.get(self._queue(job), []), seniority(job)
        before = sum(other < rank for other in holders)
        return before < min(len(holders), self._config.reservations)

    @cached_property
    def _holders(self) -> dict[str, list[Rank]]:
        """Queue → the `seniority` of its waiting jobs with reservations."""
        found: dict[str, list[Rank]] = {}
        for job in (self._state.jobs[uid] for uid in self._state.reservations):
            if not job.placements:
                found.setdefault(self._queue(job), []).append(seniority(job))
        return found

    @cached_property
    def _seniors(self) -> dict[str, JobRecord]:
        """Queue → the most senior of its jobs without a reservation that lack room alone, as the last cycles found."""
        found: dict[str, JobRecord] = {}
        for job in sorted(self._waiting, key=seniority):
            shortage = job.waits.shortage if job.waits is not None else None
            if shortage is None or not shortage.of_nodes or shortage.infeasible or not self.is_eligible(job):
                continue
            if job.uid not in self._state.reservations:
                found.setdefault(self._queue(job), job)
        return found

    def _leaves_it(self, job: JobRecord) -> bool:
        """Whether another job in its queue is more senior, and could have a reservation. That one gets it in its own
        turn."""
        first = self._seniors.get(self._queue(job))
        if first is None or seniority(first) >= seniority(job):
            return False
        if first.uid not in self._fits:
            self._fits[first.uid] = self._search(first) is not None
        return self._fits[first.uid]

    def is_eligible(self, job: JobRecord) -> bool:
        """Whether a job that lacks room may have a reservation: it has no nodes, and others would leave for it."""
        return not job.placements and not takes_none(job, self._config)

    def _note_due(self, decided: Reserved, time_ms: int) -> None:
        refresh_ms = time_ms + self._config.reservation_refresh_ms
        if decided.start_ms:
            self.due_ms = min(self.due_ms, max(decided.start_ms, refresh_ms))

    def _note_changes(self, decided: Reserved, time_ms: int) -> None:
        """A reservation is revised as soon as it may be if the room of nodes has changed since."""
        if self._sought.get(decided.job_uid) != self._state.nodes.changes:
            self.due_ms = min(self.due_ms, time_ms + self._config.reservation_refresh_ms)

    def _outdated(self, job: JobRecord, known: Reservation) -> bool:
        """Whether a reservation is to be revised: it is old enough, the job was edited, its nodes closed, or another
        job of the queue has one now."""
        nodes, decided = self._state.nodes, known.decided
        if decided.based_on != job.version or not all(nodes.has(of.node) for of in decided.pods):
            return True
        if closed_to_new(nodes, job.valid_spec, decided.pods):
            return True
        if self._queue(job) in self._queues_granted:
            return True
        return self._is_old(known)

    def _is_old(self, known: Reservation) -> bool:
        return self._time_ms - known.time_ms >= self._config.reservation_refresh_ms

    def _reserved_room_is_gone(self, job: JobRecord, decided: Reserved) -> bool:
        """Whether pods that stay have got room that was reserved for a quorum: it lacks some there, whoever else has a
        reservation, even once those have left for which it waits, those who leave now, and those who end by its start.
        A search counts no more, so it finds something else."""
        view = self._placer.view
        needed, leave = self._needed_for(job, decided.pods), self._leave_for(job, decided.awaits)
        rows = np.flatnonzero(needed.any(axis=1))
        needed = needed[rows]
        lacks = needed - view.free_with_held[rows] - self._soon[rows]
        lacks -= self._rooms_of(self._vacating.of_whole(of) for of in leave.values() if of.placements)[rows]

        def short() -> set[int]:
            return set(rows[((needed > 0) & (lacks > 0)).any(axis=1)].tolist()) - self._used.keys()

        nodes = {view.names[row] for row in short()}
        if nodes:
            lacks -= self._rooms_of(self._left_by(job, nodes, decided.start_ms, leave))[rows]
        return bool(nodes and short())

    def _left_by(self, host: JobRecord, nodes: set[str], start_ms: int, known: Collection[str]) -> Iterable[Vacated]:
        """What those jobs on these nodes, but the `known` ones, leave by the start of a reservation, 0 for any time."""
        ending = {of.uid for of in self._vacating.ending}
        for job in self._state.jobs.values():
            if job.uid in known or nodes.isdisjoint(job.placements.values()):
                continue
            end_ms = self._end_ms(job)
            if job.uid in ending or (end_ms < math.inf and end_ms <= max(start_ms or end_ms, self._time_ms)):
                yield self._vacating.of_whole(job)
            elif slots := job.slots.lent_by(host.uid):
                yield self._part(job, slots, whole=False)

    @cached_property
    def _soon(self) -> Amounts:
        """What those leave, by row of the view, who leave now, and what is kept for pods that may come."""
        return self._rooms_of([self._vacating.of_pods(self._going), *self._vacating.of_assumed()])

    def _decide(self, decided: Reserved, known: Reservation | None) -> Reserved:
        """Record a reservation, unless it says nothing new."""
        if known is not None and self._is_as_before(decided, known.decided):
            self.confirmed |= self._is_old(known)
            return known.decided
        self._events.append(decided)
        return decided

    def _is_as_before(self, decided: Reserved, before: Reserved) -> bool:
        """Whether a reservation says nothing new. A start that has come stays one."""
        come = 0 < before.start_ms <= self._time_ms and 0 < decided.start_ms <= self._time_ms
        return before == (replace(decided, start_ms=before.start_ms) if come else decided)

    def _outlived(self, known: Reservation | None) -> tuple[str, ...]:
        """The jobs that a reservation waits for and that have run for longer than expected."""
        found = []
        for uid in known.decided.awaits if known is not None else ():
            job = self._state.jobs.get(uid)
            end = expected_end(self._state, job, self._config, self._time_ms) if job is not None else None
            if end is not None and end.outlived:
                found.append(uid)
        return tuple(found)

    def _search(self, job: JobRecord, ends: list[tuple[float, JobRecord]] | None = None) -> _Found | None:
        """When and where the quorum fits as others end, in the order of these `ends` or of all; None if it doesn't fit
        even then. With these ends alone, what all others are still to leave for the jobs before it isn't there, and
        isn't held for those either.

        Pods that leave anyway are the first to have left. If the quorum then waits for their grace periods, it is
        sought once more with them in the order of time: others may end before."""
        placing = self._placer.placing
        observer, placing.observer = placing.observer, None
        content, of_all = self._placer.view.content, ends is None
        if of_all:
            self._hold_all(1)
        ends = ends if ends is not None else self.ends(job)
        found = self._as_others_leave(job, ends)
        if found is not None and of_all and self._going and found.ends_ms < found.start_ms:
            later = self._as_others_leave(job, ends, late=True)
            found = later if later is not None and 0 < later.start_ms < found.start_ms else found
        if of_all:
            self._hold_all(-1, content)
        placing.observer = observer
        return found

    def _as_others_leave(
        self, job: JobRecord, ends: list[tuple[float, JobRecord]], *, late: bool = False
    ) -> _Found | None:
        """As `_search`; if `late`, pods that leave anyway do so when their grace periods are over. Room that is kept
        for pods that may come is kept for seconds."""
        placing = self._placer.placing
        lent = {of.uid: slots for _, of in ends if (slots := of.slots.lent_by(job.uid))}
        going = self._by_time() if late else [(self._time_ms, self._going)]
        first = [self._vacating.of_pods(pods) for end_ms, pods in going if end_ms <= self._time_ms]
        first += self._vacating.of_assumed()
        first += [self._part(of, lent[of.uid], whole=False) for _, of in ends if of.uid in lent]
        more = [of for of in going if of[0] > self._time_ms]
        steps: list[tuple[float, JobRecord | list[PodSeen]]] = [*merge(ends, more, key=itemgetter(0))]

        def vacated(of: JobRecord | list[PodSeen]) -> Vacated:
            if isinstance(of, list):
                return self._vacating.of_pods(of)
            return self._without(of, lent[of.uid]) if of.uid in lent else self._vacating.of_whole(of)

        rest = (vacated(of) for _, of in steps)
        departures = Departures(self._placer, self._vacating, job, chain(first, rest))
        enough, found = departures.enough(), None
        if enough is not None:
            departures.go_to(enough)
            mark = placing.mark()
            tried = self._placer.without_memory(job)
            assert tried is not None, "the quorum has just fitted"
            found = self._as_found(job, tried, steps[: max(enough - len(first), 0)], [] if late else self._going)
            placing.undo(tried, mark)
        departures.go_to(0)
        return found

    @cached_property
    def _going(self) -> list[PodSeen]:
        """The pods that leave anyway and aren't of jobs with nodes: of others only those that are to be gone soon."""
        leaving = self._vacating.leaving
        return [*leaving, *(pod for pod in self._vacating.deleted(leaving) if is_other(pod))]

    def _part(self, job: JobRecord, slots: Iterable[SlotKey], *, whole: bool) -> Vacated:
        """What these slots of a job leave; with `whole` it has no nodes any more."""
        return self._vacating.of_job(job, tuple(sorted(slots)), whole=whole)

    def _without(self, job: JobRecord, gone: set[SlotKey]) -> Vacated:
        """What a job leaves that has no nodes any more, once these slots have left."""
        return self._part(job, job.placements.keys() - gone, whole=True)

    def _hold_all(self, sign: int, content: int | None = None) -> None:
        """While room for a further reservation is sought, take out of the view what others are still to leave for those
        before it; with the sign -1 put it back."""
        for held in self._held.values():
            self._placer.view.hold(held.rooms.rows, held.left, content, sign=sign)

    def ends(self, host: JobRecord) -> list[tuple[float, JobRecord]]:
        """As `_ends_of_all`, but guests of the job that is to get their room leave when they are asked to."""
        if host.uid not in self._hosting:
            return self._ends_of_all
        guests = [job for _, job in self._ends_of_all if self._is_guest(job, host.uid)]
        others = [(end_ms, job) for end_ms, job in self._ends_of_all if not self._is_guest(job, host.uid)]
        at = bisect_right(others, self._time_ms, key=itemgetter(0))
        return [*others[:at], *((self._time_ms, job) for job in guests), *others[at:]]

    @cached_property
    def _ends_of_all(self) -> list[tuple[float, JobRecord]]:
        """The jobs with nodes, and when they are expected to end, in that order; the unknown ends are infinite, and who
        ends by itself leaves now."""
        found, ending = [], {job.uid for job in self._vacating.ending}
        for job in self._state.jobs.values():
            if job.placements:
                found.append((self._time_ms if job.uid in ending else self._end_ms(job), job.began_ms, job.uid, job))
        found.sort()  # no two have the same UID
        return [(end_ms, job) for end_ms, _, _, job in found]

    def _end_ms(self, job: JobRecord) -> float:
        """When a job with nodes is expected to end, infinite for an unknown end. One that took them starts once the
        pods of others have left, for which they have their grace periods."""
        end = expected_end(self._state, job, self._config, self._time_ms)
        if end is not None:
            return end.end_ms
        room = job.slots.room
        run_ms = expected_runtime_ms(self._state, job, self._config, self._time_ms) if room is not None else None
        if room is None or run_ms is None:
            return math.inf
        return max(self._time_ms, room.until_ms - self._config.room_bound_ms) + run_ms

    def _as_found(
        self,
        host: JobRecord,
        tried: PlacementTry,
        steps: list[tuple[float, JobRecord | list[PodSeen]]],
        going: list[PodSeen],
    ) -> _Found:
        """What was found after these have left, and these pods before them."""
        pods = self._placer.placed_pods(tried)
        nodes = {of.node for of in pods}
        # Guests leave when they are asked to, and they come and go.
        jobs = [of for _, of in steps if isinstance(of, JobRecord) and not self._is_guest(of, host.uid)]
        there = [job for job in jobs if not nodes.isdisjoint(job.placements.values())]
        awaited = {job.uid: None for job in self._needed(host, there, nodes)}
        ends_ms = steps[-1][0] if steps else 0
        last_ms = max(ends_ms, self._left_ms(host, nodes, awaited, going, lent=not steps))
        return _Found(int(last_ms) if last_ms < math.inf else 0, pods, tuple(awaited), ends_ms)

    def _by_time(self) -> list[tuple[float, list[PodSeen]]]:
        """The pods that leave anyway, by the time at which their grace periods are over."""
        found: dict[float, list[PodSeen]] = {}
        for pod in self._going:
            found.setdefault(float(self._vacating.left_by_ms([pod])), []).append(pod)
        return sorted(found.items())

    def _needed(self, host: JobRecord, jobs: list[JobRecord], nodes: Iterable[str]) -> list[JobRecord]:
        """Those of these jobs with pods on the nodes of a quorum, which is on the view, without whose end it lacks
        room."""
        state, view, limited = self._state, self._placer.view, self._placer.placing.quotas.of_queues
        if view.neighbours is not None or state.with_volumes or state.with_devices:
            return jobs  # they may be in its way otherwise than by their room
        rows, found = view.node_index.rows(), list[JobRecord]()
        spare = {rows[node]: view.free[rows[node]].copy() for node in nodes}
        asked = np.logical_or.reduce([view.request(group.shape) > 0 for group in host.valid_spec.groups])
        for job in jobs:
            rooms = self._vacating.of_whole(job).rooms
            here = [(row, rooms.amounts[at]) for at, row in enumerate(rooms.rows.tolist()) if row in spare]
            enough = all((amounts <= spare[row])[asked].all() for row, amounts in here)
            if not enough or (limited and self._queue(job) == self._queue(host)):
                found.append(job)
                continue
            for row, amounts in here:
                spare[row] -= amounts
        return found

    def _left_ms(
        self,
        host: JobRecord,
        nodes: Collection[str],
        awaited: Collection[str],
        pods: Sequence[PodSeen],
        *,
        lent: bool,
    ) -> int:
        """When those have left these nodes who leave now: pods that leave anyway, jobs of those awaited that end by
        themselves, with `lent` the pods that were lent room of the host, and what is kept for pods that may come."""
        going = [*pods]
        for job in self._vacating.ending:
            going += held_by(self._state, job, job.placements) if job.uid in awaited else ()
        slots = [(of, slot) for of in self._state.jobs.values() for slot in of.slots.lent_by(host.uid) if lent]
        return max(
            self._time_ms + (grace_ms(self._state, slots, ()) if slots else 0),
            self._vacating.left_by_ms(pod for pod in going if pod.node in nodes),
            *(of.until_ms for of in self._state.assumed.values() if of.node in nodes),
        )

    def hold(self, job: JobRecord, decided: Reserved, coming: _Found | None = None, *, ended: bool = False) -> None:
        """Take out of the view what the reservation needs of what is free now: all but what those leave who end
        before, or are guests. What pods leave that are on their way out isn't free yet, but it is held too, because a
        job behind counts on it when it takes room: a node then has less than nothing free. `coming` is held beside it:
        where the quorum is to fit before, once those have left who leave anyway. With `ended`, jobs that end by
        themselves have left."""
        view, start_ms, awaits = self._placer.view, decided.start_ms, decided.awaits
        needed, leave = self._needed_for(job, decided.pods), self._leave_for(job, awaits, ended=ended)
        kept = np.maximum(needed - self._left_for(leave), 0)
        if coming is not None:
            start_ms, awaits = self._time_ms, (*awaits, *(of for of in coming.awaits if of not in awaits))
            before = self._needed_for(job, coming.pods)
            kept = np.maximum(kept, before - self._left_for({uid: self._state.jobs[uid] for uid in coming.awaits}))
            needed, leave = np.maximum(needed, before), self._leave_for(job, awaits, ended=ended)
        held = np.flatnonzero(needed.any(axis=1))
        in_all, amounts = needed[held], kept[held]
        lent = np.minimum(amounts, self._lent_to(job.uid, leave)[held])
        view.hold(held, amounts)
        self._held[job.uid] = HeldRoom(RowRooms(held, amounts), in_all - amounts, start_ms, awaits, leave, lent)

    def _leave_for(self, job: JobRecord, awaits: Iterable[str], *, ended: bool = False) -> dict[str, JobRecord]:
        """UID → the jobs that leave for a job: those whose ends it awaits, and its guests."""
        gone = {of.uid for of in self._vacating.ending} if ended else ()
        leave = {uid: self._state.jobs[uid] for uid in awaits if uid in self._state.jobs and uid not in gone}
        return leave | {guest.uid: guest for guest in self._guests.get(job.uid, ())}

    def _needed_for(self, job: JobRecord, pods: Iterable[PlacedPods]) -> Amounts:
        """What these pods of a job need, by row of the view."""
        view = self._placer.view
        rows, needed = view.node_index.rows(), np.zeros_like(view.free)
        each = [view.amounts(group.shape.requests) for group in job.valid_spec.groups]
        amounts = [(rows[of.node], each[of.group] * sum(b - a + 1 for a, b in of.indices)) for of in pods]
        if amounts:
            add_to(needed, np.array([row for row, _ in amounts], np.int64), np.array([of for _, of in amounts]))
        return needed.astype(np.int64)

    def _left_for(self, leave: dict[str, JobRecord]) -> Amounts:
        """What these jobs leave, by row of the view: without what others with reservations count on already, since the
        same job may leave for several."""
        gone = self._rooms_of(self._vacating.of_whole(of) for of in leave.values() if of.placements)
        if not self._held or not leave:
            return gone
        every = {**leave}
        for other in self._held.values():
            every.update(other.leave)
        in_all = self._rooms_of(self._vacating.of_whole(of) for of in every.values() if of.placements)
        for other in self._held.values():
            in_all[other.rooms.rows] -= other.left
        return np.minimum(gone, np.maximum(in_all, 0))

    def _lent_to(self, host: str, leave: Collection[str]) -> Amounts:
        """What pods use that were lent room of this job, by row of the view, and that isn't counted for another one.
        Those of the jobs that leave as a whole don't count."""
        lent = self._rooms_of(
            self._part(of, slots, whole=False)
            for of in (self._state.jobs.values() if host in self._hosting else ())
            if of.uid not in leave and (slots := of.slots.lent_by(host))
        )
        for other in self._held.values():
            lent[other.rooms.rows] -= other.lent
        return np.maximum(lent, 0)

    def _rooms_of(self, vacated: Iterable[Vacated]) -> Amounts:
        return self._vacating.in_all(vacated)

    # --- jobs behind ----------------------------------------------------------------------------------------

    def backfill(self, tried: PlacementTry) -> PlacementTry | None:
        """The quorum of a failed try, placed in reserved room that it leaves in time, or as a guest, or held back by a
        permit; None if it has none. Then the try says what it lacks in the room that is open to it, and who keeps the
        rest."""
        job = tried.job
        if not self._held or tried.shortage is None or not tried.shortage.of_nodes or tried.shortage.infeasible:
            return None
        in_time = None if job.placements else self._in_held_room(job, self._open_for_good(tried, None))
        if in_time is not None and _has_room(in_time):
            return in_time
        guest = self._as_guest(job)
        if guest is not None and _has_room(guest):
            return guest
        for again in (in_time, guest):
            tried.shortage = _in_open_room(tried.shortage, again.shortage if again is not None else None)
        self._note_no_guest(job, tried.shortage)
        if len(self._state.reservations) > 1 or self._held.keys() - self._state.reservations.keys():
            tried.shortage.kept_by = self._keeping_out(job, tried.shortage)
        return None

    def _keeping_out(self, job: JobRecord, shortage: Shortage) -> tuple[str, ...]:
        """The jobs whose reserved room is in the way of a quorum: those of which each alone keeps all that it lacks,
        else those of which each keeps room for a pod of the group that lacks it, else all on the nodes for that
        group."""
        if not _is_in_the_way(shortage):
            return ()
        view, shape = self._placer.view, job.valid_spec.groups[shortage.group].shape
        lacks = shortage.asked - shortage.found
        key = (view.content, shape, lacks)
        if key not in self._keep_out:
            nodes, free = self._placer.placing.filters.static(shape), fitting(view, shape)
            more = {}
            for uid, held in self._held.items():
                kept = np.zeros_like(view.free)
                kept[held.rooms.rows] = held.rooms.amounts
                more[uid] = int(((fitting(view, shape, -kept) - free) * nodes).sum())
            all_of_it = [uid for uid, pods in more.items() if pods >= lacks]
            there = [uid for uid, held in self._held.items() if nodes[held.rooms.rows].any()]
            self._keep_out[key] = tuple(all_of_it or [uid for uid, pods in more.items() if pods] or there)
        return self._keep_out[key]

    def lend(self, tried: PlacementTry, pods: int | None) -> bool:
        """Place pods beyond a quorum as `Placer.further`, in reserved room. The job loses them, or all that it has if
        its quorum is a guest, once those with the reservations need their room."""
        job, known, done, more = tried.job, tried.shortage, len(tried.pieces), False
        if not self._held or not self._config.guests or job.of_pods:
            return False
        if tried.hosts:
            return self._lend(tried, pods)
        if known is None or not known.of_nodes:
            return False
        left = tried.groups[known.group].count - sum(group == known.group for group, _ in job.placements)
        asked = {known.group: left if pods is None else min(left, pods)}
        more = self._further(tried, pods, self._open_for_good(tried, asked))
        if len(tried.pieces) == done and job.valid_spec.preemptible:
            more = self._lend(tried, pods)
        if len(tried.pieces) == done and tried.shortage is not None:
            self._note_why_not_lent(tried, tried.shortage)
        return more

    def _note_why_not_lent(self, tried: PlacementTry, told: Shortage) -> None:
        """Say of further pods whether they are no guests where they would fit because their job isn't preemptible, and
        who keeps them out."""
        job = tried.job
        if not job.valid_spec.preemptible and _is_in_the_way(told):
            told.no_guest = self._would_grow(tried, told.group, self._open_to_guests(job))
        if len(self._state.reservations) > 1:
            told.kept_by = self._keeping_out(job, told)

    def _lend(self, tried: PlacementTry, pods: int | None) -> bool:
        done, known = len(tried.pieces), tried.shortage
        is_guest = bool(tried.hosts)
        free = self._open_to_guests(tried.job, quorum=False)
        hosts, quotas = [with_reservation(self._state, uid) for uid in free], self._placer.placing.quotas
        with quotas.kept_for(hosts, tried.job):
            more = self._further(tried, pods, free)
        short = tried.shortage
        if short is not None and short.quota is not None:
            each = {short.group: tried.groups[short.group].group_size}
            if quotas.lack(tried.job, each) is None:  # they lack nothing but what is kept of it for the hosts
                tried.shortage = known
        if len(tried.pieces) > done:
            self._note_hosts(tried, free)
            self._occupy(tried, tried.pieces[done:] if is_guest else [])
        return more

    def _further(self, tried: PlacementTry, pods: int | None, free: dict[str, HeldRoom]) -> bool:
        """As `Placer.further`, with this reserved room. If nothing is placed, nothing has changed but the reason: what
        the pods lack in the room that is open to them."""
        if not free:
            return False
        before, known, done = self._put_back(free), tried.shortage, len(tried.pieces)
        tried.left, tried.shortage = None, None
        more = self._placer.further(tried, pods)
        placed = len(tried.pieces) > done
        if not placed:
            tried.shortage = _in_open_room(known, tried.shortage) if known is not None else None
        self._take_out(free, None if placed else before)
        return more

    def beside_borrowers(self, tried: PlacementTry, make_room: MakeRoom) -> PlacementTry | None:
        """The quorum of a failed try, where others give it room; None if they don't. What is reserved for those before
        which it comes by the shares of their queues is free for it, also as pods leave it. Jobs for whose ends others
        wait that have a reservation give no room, or as in `awaited`."""
        against = self._held_against(tried)
        free = {uid: of for uid, of in self._held.items() if uid not in against}
        before = self._put_back(free) if free else None
        found = make_room(tried, lambda: self.awaited(tried))
        if free:
            self._take_out(free, None if found is not None and found.quorum_stands else before)
        if found is not None:
            self._note_terms(found, against)
        return found

    def among_guests(self, tried: PlacementTry, make_room: MakeRoom) -> PlacementTry | None:
        """The quorum of a failed try as a guest, where guests give it their room; None if they don't. Between guests,
        the same rules hold as between other jobs. Nobody else gives it any: its host might start in that, and would
        take it back at once."""
        job = tried.job
        if not may_be_guest(job, self._config):
            return None
        free = self._open_to_guests(job) if not self._hosting.isdisjoint(self._held) else {}
        guests = {of.uid for uid in free for of in self._guests.get(uid, ())}
        # In the room of a guest of several, the job would be in the way of those whose guest it can't be.
        guests -= {of.uid for uid in self._held if uid not in free for of in self._guests.get(uid, ())}
        if not guests:
            return None
        before = self._put_back(free)

        def kept() -> dict[str, None]:
            stay = [of.uid for of in self._state.jobs.values() if of.placements and of.uid not in guests]
            return {**self._awaited(tried), **dict.fromkeys(stay)}

        found = make_room(tried, kept)
        placed = found is not None and found.quorum_stands
        self._take_out(free, None if placed else before)
        if found is not None and found.preempted is not None:
            self._note_hosts(found, free)
            decided = found.preempted
            found.preempted = replace(decided, placed=replace(decided.placed, hosts=found.hosts))
        return found

    def _open_for_good(self, tried: PlacementTry, pods: Mapping[int, int] | None) -> dict[str, HeldRoom]:
        """The reserved room that a job may use without being a guest, for so many more pods of its groups, None for its
        quorum: what it will have left before the reservation begins, and all where its queue comes first. Of the rest,
        what is held beside pods that were lent it."""
        job = tried.job
        end_ms = leaves_by_ms(self._state, job, self._config, self._time_ms)
        whole = {uid for uid, of in self._held.items() if end_ms is not None and end_ms <= of.start_ms}
        if tried.shortage is not None and _is_in_the_way(tried.shortage):
            behind = [uid for uid in self._held if uid not in whole]
            whole |= {
                uid for uid in behind if self._share_rules.comes_first(job, pods, with_reservation(self._state, uid))
            }
        open_to_it = ((uid, of if uid in whole else of.beside_lent) for uid, of in self._held.items())
        return {uid: of for uid, of in open_to_it if uid in whole or of.rooms.amounts.any()}

    def _note_no_guest(self, job: JobRecord, shortage: Shortage) -> None:
        """Say of a job whether it is no guest where it would fit because it isn't preemptible, or leaves too late."""
        if not self._config.guests or job.of_pods or not _is_in_the_way(shortage):
            return
        if not job.valid_spec.preemptible:
            shortage.no_guest = self._would_fit(job, self._open_to_guests(job))
        elif not self._leaves_all_in_time(job):
            shortage.leaves_late = self._would_fit(job, self._open_to_guests(job, late=True))

    def _as_guest(self, job: JobRecord) -> PlacementTry | None:
        if not may_be_guest(job, self._config):
            return None
        free = self._open_to_guests(job)
        found = self._in_held_room(job, free)
        if found is not None and found.quorum_stands:
            self._note_hosts(found, free)
            self._occupy(found, found.pieces)
        return found

    def _occupy(self, tried: PlacementTry, pieces: list[Piece]) -> None:
        """Hold no room beside these pods of a new guest that they leave when it is needed: `hold` says the same of them
        from the next cycle on."""
        view, groups = self._placer.view, tried.job.valid_spec.groups
        if not pieces:
            return
        used = np.zeros_like(view.free)
        each = [view.amounts(groups[piece.group].shape.requests) * len(piece.indices) for piece in pieces]
        add_to(used, np.array([piece.row for piece in pieces], np.int64), np.array(each))
        for uid in tried.hosts:
            held = self._held[uid]
            rows, amounts = held.rooms
            less = np.minimum(amounts, used[rows].astype(np.int64))
            used[rows] -= less
            view.hold(rows, less, sign=-1)
            self._held[uid] = held._replace(
                rooms=RowRooms(rows, amounts - less),
                left=held.left + less,
                lent=np.minimum(held.lent, amounts - less),
            )

    def _would_fit(self, job: JobRecord, free: dict[str, HeldRoom]) -> bool:
        """Whether the quorum of a job would have room with this reserved room. Nothing changes."""
        if not free:
            return False
        placing = self._placer.placing
        observer, placing.observer = placing.observer, None
        before, mark = self._put_back(free), placing.mark()
        tried = self._placer.quorum(job)
        placing.undo(tried, mark)
        self._take_out(free, before)
        placing.observer = observer
        return tried.quorum_stands

    def _would_grow(self, tried: PlacementTry, group: int, free: dict[str, HeldRoom]) -> bool:
        """As `_would_fit`, for further pods of a group."""
        if not free:
            return False
        before = self._put_back(free)
        grows = self._placer.may_grow(tried, group)
        self._take_out(free, before)
        return grows

    def _note_hosts(self, tried: PlacementTry, free: Collection[str]) -> None:
        """Say in a try in whose reserved room it is, of those open to it."""
        rows = {piece.row for piece in tried.pieces}
        found = [uid for uid, of in self._held.items() if not rows.isdisjoint(of.rooms.rows.tolist())]
        tried.hosts = tuple(uid for uid in found if uid in free or uid in tried.hosts)

    def _open_to_guests(self, job: JobRecord, *, late: bool = False, quorum: bool = True) -> dict[str, HeldRoom]:
        """The reserved room in which a job may be a guest. Who starts in room that the job in front can use now would
        be asked to leave at once, and be in its way if its turn is still to come. So would who starts in room of a job
        that only waits for its own pods, and who can't leave before a start that is known, but `late`; and whose
        `quorum` uses a ResourceQuota that the job in front needs, because that counts pods until they are gone."""
        jobs = self._state.jobs
        held = {
            uid: of
            for uid, of in self._held.items()
            if job.uid not in jobs[uid].slots.asked and not self._vacating.own_gone_ms(jobs[uid])
        }
        held = {uid: of for uid, of in held.items() if late or self.leaves_in_time(job, of.start_ms)}
        if quorum and not job.placements and self._placer.placing.quotas.limits(job):
            held = {uid: of for uid, of in held.items() if not self._needs_its_quota(uid, job)}
        return {uid: of for uid, of in held.items() if not self.may_start(uid)}

    def _needs_its_quota(self, uid: str, job: JobRecord) -> bool:
        """Whether a job with reserved room needs what another one's quorum would use of a quota of their namespace."""
        placing, (host, needs) = self._placer.placing, with_reservation(self._state, uid)
        policy = placing.policies.pod_policy(job, self._config)
        return placing.quotas.quota_keeps_from(host, needs, job, policy)

    def leaves_in_time(self, job: JobRecord, start_ms: int) -> bool:
        """Whether the grace periods of a job that gets nodes now would be over before a start, 0 for an unknown one, or
        are no longer than usual: room would be idle before each start if those counted."""
        grace_s = max((of.grace_s for of in job.valid_spec.groups if of.count), default=0)
        return not start_ms or grace_s <= DEFAULT_GRACE_S or self._time_ms + grace_s * 1000 < start_ms

    def may_start(self, uid: str) -> bool:
        """Whether the job for which room is held can start with it without its guests. In a cycle, there is more room
        later on only where other guests stay, because queues have got more, so this is asked once of each."""
        key = (uid, self._share_rules.staying(self._state.jobs[uid]))
        known = self._may_starts.get(key)
        if known is None:
            view, rooms = self._placer.view, self._held[uid].rooms
            before = view.content
            view.hold(*rooms, sign=-1)
            known = self._may_starts[key] = self._share_rules.fits_without_guests(self._state.jobs[uid])
            view.hold(*rooms, before)
        return known

    def _in_held_room(self, job: JobRecord, free: dict[str, HeldRoom]) -> PlacementTry | None:
        """A try to place the quorum of a job with this reserved room; None without any."""
        if not free:
            return None
        before = self._put_back(free)
        again = self._placer.quorum(job)
        self._take_out(free, None if again.quorum_stands else before)
        return again

    def _put_back(self, free: dict[str, HeldRoom]) -> int:
        """Put what is held for these on the view; returns the number of the content before."""
        view = self._placer.view
        whole = tuple(of is self._held[uid] for uid, of in free.items())
        before, key = view.content, (view.content, *free, whole)
        view.hold(*_all_of(free), self._lifted.get(key), sign=-1)
        self._lifted[key] = view.content
        return before

    def _take_out(self, free: dict[str, HeldRoom], before: int | None) -> None:
        """Hold it again. `before` is the number of the content then, if nothing else has changed."""
        self._placer.view.hold(*_all_of(free), before)


def _in_open_room(known: Shortage, again: Shortage | None) -> Shortage:
    """What to tell of pods: the shortage of another try, with reserved room that is open to them, if there was one.
    Once they lack no room but a limit, that keeps them out, whatever room is in the way of a later try."""
    return known if again is None or not known.of_nodes else again


def _is_in_the_way(shortage: Shortage) -> bool:
    """Whether reserved room is in a job's way."""
    return any(reason.kind == ReasonKind.RESERVED for reason, _ in shortage.reasons)


def _all_of(held: dict[str, HeldRoom]) -> RowRooms:
    rooms = [of.rooms for of in held.values()]
    return RowRooms(np.concatenate([of.rows for of in rooms]), np.concatenate([of.amounts for of in rooms]))
