"""Limits of queues that are kept for jobs in front: those with reserved room, and in each queue the first of those that
wait for a limit alone (`capability`, `maxRunning`, guarantees of other queues, what jobs that can't be preempted may
use).

Without that, small jobs would use each part of a limit that becomes free, and a large one would wait for as long as
they come. As in reserved room, a job behind may use a limit that is kept as a guest: it leaves as soon as the job in
front can start without it, wherever its nodes are. One that can't be a guest may use what is left at the start of the
job in front, or all if its deadline ends it before. Nobody uses what the job in front is about to get, because others
leave anyway.

Who comes first by the shares of the queues, or is more senior in the same queue, isn't behind. Who comes first only by
what its victims give may use as much of a limit as these leave.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import NamedTuple

from arranger.events.facts import BeyondLimit
from arranger.events.kinds import LimitKept
from arranger.model.quota import LEFT_BY_ENDS, LimitName, QuotaLack
from arranger.projections.derived.expected_ends import leaves_by_ms
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import KeptLimit, State
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.quotas import Use
from arranger.scheduling.queues.dominant_shares import pods_by_group
from arranger.scheduling.queues.policies import seniority
from arranger.scheduling.room.backfill import Backfill
from arranger.scheduling.room.guests import leaves_in_time, may_be_guest, with_reservation
from arranger.scheduling.room.reservation_search import MOST_STAYING
from arranger.scheduling.room.reservations import Reservations, may_have_reservation
from arranger.scheduling.search.placer import Placer


class _Host(NamedTuple):
    """A job for which a limit is kept: so many pods of its groups, and whether room is reserved for them."""

    job: JobRecord
    needs: Mapping[int, int]
    reserved: bool


class _Start(NamedTuple):
    """When a limit is enough for a host, 0 for an unknown time, what others leave of it by then, and which of them
    (UIDs) end by then."""

    ms: int
    others_leave: tuple[Use, ...]
    awaits: tuple[str, ...] = ()


class KeptLimits:
    """The limits that are kept in one cycle, in the order of the jobs' turns."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        waiting: list[JobRecord],
        *,
        reservations: Reservations,
        backfill: Backfill,
    ) -> None:
        self._state = state
        self._config = placer.placing.config
        self._placer = placer
        self._quotas = placer.placing.quotas
        #: Whether a queue limits its jobs at all.
        self.of_queues = self._quotas.of_queues
        self._waiting = waiting
        self._held = reservations.held
        self._ends = reservations.ends
        self._backfill = backfill
        self._vacating = reservations.vacating
        self._share_rules = reservations.guests.share_rules
        self._time_ms = placer.placing.time_ms
        #: UID → jobs that have had their turns.
        self._turned: dict[str, None] = {}
        #: UID → those of them whose quorums have nodes.
        self._served: dict[str, None] = {}
        #: When another time until which a limit is kept is to be told although nothing changes, in milliseconds.
        self.due_ms = math.inf
        #: UID and which of its guests stay → whether that job can start without the others.
        self._may_starts: dict[tuple[str, frozenset[str]], bool] = {}
        #: UID → what a job with nodes leaves of the limits of its queue.
        self._uses: dict[str, Use] = {}
        #: UID → when the limit is enough for that job; None if it never is.
        self._starts: dict[str, _Start | None] = {}
        #: Queue → the most senior of its waiting jobs that lack a limit alone, which jobs leave as they end: at first
        #: as the last cycles found, then as jobs have their turns.
        self._first: dict[str, tuple[JobRecord, LimitName]] = {}
        for job in waiting if self.of_queues else ():
            shortage = job.waits.shortage if job.waits is not None else None
            if isinstance(shortage, BeyondLimit) and not shortage.kept_by:
                self._enter_if_left(job, shortage.quota)

    def _enter_if_left(self, job: JobRecord, lack: QuotaLack) -> None:
        """A job lacks a limit alone: keep it for the job if others leave it as they end."""
        if lack.limit in LEFT_BY_ENDS and not lack.never and may_have_reservation(job, self._config):
            self._enter(job, lack.name)

    def _enter(self, job: JobRecord, limit: LimitName) -> None:
        """Keep a limit for a job, if it is the most senior one in its queue."""
        if not self._config.reservations:
            return  # whoever fits may start before others
        before = self._first.get(queue := queue_of(self._state, job))
        if before is None or seniority(job) < seniority(before[0]):
            self._first[queue] = job, limit

    def turned(self, tried: PlacementTry) -> None:
        """A job had its turn, and its quorum has nodes or not."""
        if not self.of_queues:
            return
        job, shortage = tried.job, tried.shortage
        self.count_turn(job)
        if tried.quorum_stands:
            self._served[job.uid] = None
        if shortage is None or tried.quorum_stands:
            return
        kept = self._state.kept_limits.get(job.uid)
        if shortage.quota is not None and not shortage.of_kept_limit:
            self._enter_if_left(job, shortage.quota)
            return
        room = shortage.of_nodes and not shortage.infeasible and job.uid not in self._held
        if kept is not None and kept.decided.limit is not None and room:
            self._enter(job, kept.decided.limit)  # it lacks room by now, and none is reserved for it

    def count_turn(self, job: JobRecord) -> None:
        """A job had its turn. If it lacks room alone, as one does that surely gets none, nothing else follows from it:
        no limit is kept for it any more as for a job whose turn is still to come."""
        if not self.of_queues:
            return
        self._turned[job.uid] = None
        if self._first:
            first = self._first.get(queue := queue_of(self._state, job))
            if first is not None and first[0] is job:
                del self._first[queue]

    def events(self) -> tuple[list[LimitKept], list[LimitKept]]:
        """What is kept from now on, and what isn't any more."""
        made, before = list[LimitKept](), self._state.kept_limits
        if not self.of_queues and not before:
            return [], []
        first = sorted([job for job, _ in self._first.values()], key=attrgetter("uid"))
        kept = {job.uid for job in first if job.uid not in self._turned}
        for job in first:
            start = self._start(self._host(job)) if job.uid in self._turned else None
            if start is not None:
                kept.add(job.uid)
                made += self._event(job, start, before.get(job.uid))
        return made, [LimitKept(uid, self._state.jobs[uid].version) for uid in self._over(kept)]

    def _over(self, kept: set[str]) -> list[str]:
        """The jobs (UIDs) for which nothing is kept any more: they lack something else, or don't wait. Who gets nodes
        has nothing kept anyway."""
        gone = [uid for uid in sorted(self._state.kept_limits) if uid not in kept and uid not in self._served]
        waiting = {job.uid for job in self._waiting} if gone else set[str]()
        return [uid for uid in gone if uid in self._turned or uid not in waiting]

    def _event(self, job: JobRecord, start: _Start, kept: KeptLimit | None) -> Iterator[LimitKept]:
        """What is to be recorded: that a limit is kept, or until when it is by now, of one that is `kept` already. A
        time that moves is told with some delay, since each event costs the log some bytes."""
        _, limit = self._first[queue_of(self._state, job)]
        decided = LimitKept(job.uid, job.version, limit, start.ms, start.awaits)
        if kept is None:
            yield decided
            return
        before, jobs = kept.decided, self._state.jobs
        awaits = tuple(uid for uid in before.awaits if uid in jobs and jobs[uid].placements)
        if (before.based_on, before.limit, awaits) != (job.version, limit, start.awaits):
            yield decided
        elif before.start_ms != start.ms:
            due_ms = kept.time_ms + self._config.reservation_refresh_ms
            if self._time_ms >= due_ms:
                yield decided
            else:
                self.due_ms = min(self.due_ms, due_ms)

    def beyond(self, job: JobRecord) -> PlacementTry | None:
        """The try of a quorum that may not use a limit because it is kept for a job in front; None if it may, or has
        too little left anyway."""
        if not self.of_queues or job.placements or not (self._held or self._first):
            return None
        pods = self._quorum_of(job)
        return self._kept_from(job, pods) if self._suffices(job, pods) else None

    def beyond_placed(self, tried: PlacementTry) -> PlacementTry | None:
        """As `beyond`, of a quorum that has just been placed with pods of other worker sets than was asked there."""
        job = tried.job
        if not self.of_queues or job.placements or not (self._held or self._first):
            return None
        pods = pods_by_group(tried.pieces)
        if pods == self._quorum_of(job):
            return None
        with self._quotas.before(job, pods):
            return self._kept_from(job, pods)

    def _kept_from(self, job: JobRecord, pods: Mapping[int, int]) -> PlacementTry | None:
        for host in self._in_front_of(job):
            lack = self._lack_beside(job, pods, host)
            if lack is not None:
                return self._placer.left_out(job, lack, kept_by=(host.job.uid,))
        return None

    @contextmanager
    def closed(self, job: JobRecord) -> Iterator[tuple[str, ...]]:
        """Meanwhile a quorum may use of limits that are kept what those in front don't need and what its victims leave.
        The queues of those in front; none if it doesn't come before each of them by what its victims give."""
        pods = self._quorum_of(job)
        hosts = [host for host in self._in_front_of(job) if self._lack_beside(job, pods, host) is not None]
        first = all(self._share_rules.comes_first_by_victims(job, (host.job, host.needs)) for host in hosts)
        with ExitStack() as kept:
            for host in hosts if first else ():
                if (lack := self._lack_beside(job, pods, host)) is not None:
                    kept.enter_context(self._quotas.with_only(lack))
            yield tuple(dict.fromkeys(queue_of(self._state, host.job) for host in hosts)) if first else ()

    def _lack_beside(self, job: JobRecord, pods: Mapping[int, int], host: _Host) -> QuotaLack | None:
        """What a quorum of so many pods of its groups that isn't the host's guest lacks of a limit that is kept for
        that one."""
        if self._may_start(host):
            others_leave = tuple[Use, ...]()  # it must be enough for both now
        elif (start := self._start_during(job, host)) is None or self._becomes_guest(job, host, start):
            return None
        else:
            others_leave = start.others_leave
        return self._quotas.lack_beside(job, pods, host.job, host.needs, others_leave)

    def _start_during(self, job: JobRecord, host: _Host) -> _Start | None:
        """The start of a host, if a job that gets nodes now may still have them then; None if not, or if the limit is
        never enough for the host."""
        start = self._start(host)
        if start is None:
            return None
        end_ms = leaves_by_ms(self._state, job, self._config, self._time_ms)
        return None if end_ms is not None and end_ms <= start.ms else start

    def _becomes_guest(self, job: JobRecord, host: _Host, start: _Start) -> bool:
        """Whether a job that gets nodes now is a guest of this host."""
        may = may_be_guest(job, self._config) and leaves_in_time(job, start.ms, self._time_ms)
        return may and job.uid not in host.job.slots.asked

    def mark_as_guest(self, tried: PlacementTry) -> None:
        """A quorum that got nodes is the guest of those for whom what it uses of a limit is kept."""
        job = tried.job
        if not self.of_queues or job.placements or not (self._held or self._first):
            return
        if not may_be_guest(job, self._config):
            return
        pods = pods_by_group(tried.pieces)
        for host in self._in_front_of(job):
            if host.job.uid in tried.hosts or self._may_start(host):
                continue
            start = self._start_during(job, host)
            if start is not None and self._quotas.keep_from(host.job, host.needs, job, pods, start.others_leave):
                tried.hosts += (host.job.uid,)

    def _in_front_of(self, job: JobRecord) -> Iterator[_Host]:
        """Those in front of a job for whom limits of its queue may be kept."""
        queue = queue_of(self._state, job)
        for uid in [*self._held]:
            other, needs = with_reservation(self._state, uid)
            host = _Host(other, needs, reserved=True) if needs else self._host(other, reserved=True)
            if other is not job and not self._share_rules.comes_first(job, None, (other, host.needs)):
                yield host
        for name, (other, _) in [*self._first.items()]:
            behind = seniority(other) < seniority(job) if name == queue else other.uid in self._turned
            if not behind or other is job or other.uid in self._held:
                continue
            host = self._host(other)
            if not self._share_rules.comes_first(job, None, (other, host.needs)):
                yield host

    def _host(self, job: JobRecord, *, reserved: bool = False) -> _Host:
        return _Host(job, self._quorum_of(job), reserved)

    def _quorum_of(self, job: JobRecord) -> dict[int, int]:
        return pods_of(quorum_needs(job, self._placer.placing.policies.pod_policy(job, self._config)))

    def _may_start(self, host: _Host) -> bool:
        if host.reserved:
            return self._backfill.may_start(host.job.uid)
        key = (host.job.uid, self._share_rules.staying(host.job))
        if key not in self._may_starts:
            self._may_starts[key] = self._share_rules.fits_without_guests(host.job)
        return self._may_starts[key]

    def _start(self, host: _Host) -> _Start | None:
        uid = host.job.uid
        if uid not in self._starts:
            self._starts[uid] = self._reserved_start(uid) if host.reserved else self._enough(host)
        return self._starts[uid]

    def _reserved_start(self, uid: str) -> _Start:
        held = self._held[uid]
        return _Start(held.start_ms, tuple([self._use(other) for other in held.leave.values() if other.placements]))

    def _enough(self, host: _Host) -> _Start | None:
        """When a limit is enough for a host that waits for nothing else, as others end; None if it never is. Guests
        that needn't leave by then end as others do."""
        staying: frozenset[str] = frozenset()
        for _ in range(MOST_STAYING):
            start = self._enough_beside(host, staying)
            over = self._ends.ended_by(host.job, start.ms, start.awaits) if start is not None else ()
            more = self._ends.staying(host.job, over) if start is not None else staying
            if more <= staying:
                break
            staying |= more
        return start

    def _enough_beside(self, host: _Host, staying: frozenset[str]) -> _Start | None:
        """The same, where these guests (UIDs) of the host stay until they end. Jobs of queues that share nothing with
        the host's are needed only where guarantees leave too little of the nodes."""
        ends, paths = self._ends.before(host.job, staying), self._state.queue_tree.paths
        own_path = paths.get(queue_of(self._state, host.job), ())
        near = {name for name, path in paths.items() if not set(own_path).isdisjoint(path)}
        lack = self._quotas.full(host.job) or self._quotas.lack(host.job, host.needs)
        near |= self._quotas.lending(lack) if lack is not None else set()
        sharing = [end for end in ends if queue_of(self._state, end[1]) in near]
        return self._enough_of(host, sharing, staying) or self._enough_of(host, ends, staying)

    def _enough_of(self, host: _Host, ends: list[tuple[float, JobRecord]], staying: frozenset[str]) -> _Start | None:
        gone, start_ms = list[JobRecord](), None
        for end_ms, job in [(0.0, None), *ends]:
            if start_ms is not None and (start_ms == math.inf or end_ms > max(start_ms, self._time_ms)):
                break
            if job is not None:
                gone.append(job)
                self._quotas.release(*self._use(job), 1)
            if start_ms is None and self._suffices(host.job, host.needs):
                start_ms = end_ms
        awaits = self._needed(host, gone, staying) if start_ms is not None else []
        for job in gone:
            self._quotas.release(*self._use(job), -1)
        if start_ms is None:
            return None
        others_leave = tuple([self._use(job) for job in gone])
        return _Start(int(start_ms) if start_ms < math.inf else 0, others_leave, tuple(awaits))

    def _needed(self, host: _Host, gone: list[JobRecord], staying: frozenset[str]) -> list[str]:
        """Those of the jobs that have left without whose end a limit isn't enough for a host. Guests leave when they
        are asked to, but these that are `staying`."""
        needed, stay = list[str](), list[JobRecord]()
        for job in gone:
            self._quotas.release(*self._use(job), -1)
            stay.append(job)
            if not self._suffices(host.job, host.needs):
                self._quotas.release(*self._use(stay.pop()), 1)
                is_asked = host.job.uid in job.slots.hosts and job.uid not in staying
                needed += [job.uid] if not is_asked else []
        for job in stay:
            self._quotas.release(*self._use(job), 1)
        return needed

    def _suffices(self, job: JobRecord, needs: Mapping[int, int]) -> bool:
        return self._quotas.full(job) is None and self._quotas.lack(job, needs) is None

    def _use(self, job: JobRecord) -> Use:
        if job.uid not in self._uses:
            self._uses[job.uid] = self._vacating.use_of(job)
        return self._uses[job.uid]
