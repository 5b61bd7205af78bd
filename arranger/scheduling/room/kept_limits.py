"""Limits of queues that are kept for jobs in front: those with reserved room, and in each queue the first of those that
wait for a limit alone (`capability`, `maxRunning`, guarantees of other queues).

Without that, small jobs would use each part of a limit that becomes free, and a large one would wait for as long as
they come. As in reserved room, a job behind may use a limit that is kept as a guest: it leaves as soon as the job in
front can start without it, wherever its nodes are. One that can't be a guest may use what is left at the start of the
job in front, or all if its deadline ends it before. Nobody uses what the job in front is about to get, because others
leave anyway.

Who comes first by the shares of the queues, or is more senior in the same queue, isn't behind.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from arranger.events.facts import BeyondLimit
from arranger.events.kinds import LimitKept
from arranger.model.quota import LEFT_BY_JOBS, LimitName, QuotaLack
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
from arranger.scheduling.room.reservations import Reservations, may_have_reservation
from arranger.scheduling.search.placer import Placer


class _Host(NamedTuple):
    """A job for which a limit is kept: so many pods of its groups, and whether room is reserved for them."""

    job: JobRecord
    needs: Mapping[int, int]
    reserved: bool


class _Start(NamedTuple):
    """When a limit is enough for a host, 0 for an unknown time, what those use of it who have left by then, and which
    of them (UIDs) end by then."""

    ms: int
    left: tuple[Use, ...]
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

    @cached_property
    def _first(self) -> dict[str, tuple[JobRecord, LimitName]]:
        """Queue → the most senior of its waiting jobs that lack a limit alone, which jobs leave as they end."""
        found = dict[str, tuple[JobRecord, LimitName]]()
        for job in self._waiting if self._config.reservations and self._quotas.of_queues else ():
            shortage = job.waits.shortage if job.waits is not None else None
            if isinstance(shortage, BeyondLimit) and not shortage.kept_by:
                self._enter(found, job, shortage.quota)
        return found

    def _enter(self, first: dict[str, tuple[JobRecord, LimitName]], job: JobRecord, lack: QuotaLack) -> None:
        if lack.limit in LEFT_BY_JOBS and not lack.never and may_have_reservation(job, self._config):
            self._put(first, job, lack.name)

    def _put(self, first: dict[str, tuple[JobRecord, LimitName]], job: JobRecord, limit: LimitName) -> None:
        before = first.get(queue := queue_of(self._state, job))
        if before is None or seniority(job) < seniority(before[0]):
            first[queue] = job, limit

    def turned(self, tried: PlacementTry) -> None:
        """A job had its turn, and its quorum has nodes or not."""
        if not self._quotas.of_queues:
            return
        job, shortage = tried.job, tried.shortage
        self.count_turn(job)
        if tried.quorum_stands:
            self._served[job.uid] = None
        if shortage is None or tried.quorum_stands:
            return
        known = self._state.kept_limits.get(job.uid)
        if shortage.quota is not None and not shortage.kept_by:
            self._enter(self._first, job, shortage.quota)
            return
        room = shortage.of_nodes and not shortage.infeasible and job.uid not in self._held
        if known is not None and known.decided.limit is not None and room:
            self._put(self._first, job, known.decided.limit)  # it lacks room by now, and none is reserved for it

    def count_turn(self, job: JobRecord) -> None:
        """A job had its turn. If it lacks room alone, as one does that surely gets none, nothing else follows from it:
        no limit is kept for it any more as for a job whose turn is still to come."""
        if not self._quotas.of_queues:
            return
        self._turned[job.uid] = None
        first = self._first.get(queue := queue_of(self._state, job))
        if first is not None and first[0] is job:
            del self._first[queue]

    def events(self) -> tuple[list[LimitKept], list[LimitKept]]:
        """What is kept from now on, and what isn't any more."""
        made, known = list[LimitKept](), self._state.kept_limits
        if not self._quotas.of_queues and not known:
            return [], []
        first = sorted([job for job, _ in self._first.values()], key=attrgetter("uid"))
        kept = {job.uid for job in first if job.uid not in self._turned}
        for job in first:
            start = self._start(self._host(job)) if job.uid in self._turned else None
            if start is not None:
                kept.add(job.uid)
                made += self._event(job, start, known.get(job.uid))
        return made, [LimitKept(uid, self._state.jobs[uid].version) for uid in self._over(kept)]

    def _over(self, kept: set[str]) -> list[str]:
        """The jobs (UIDs) for which nothing is kept any more: they lack something else, or don't wait. Who gets nodes
        has nothing kept anyway."""
        gone = [uid for uid in sorted(self._state.kept_limits) if uid not in kept and uid not in self._served]
        waiting = {job.uid for job in self._waiting} if gone else set[str]()
        return [uid for uid in gone if uid in self._turned or uid not in waiting]

    def _event(self, job: JobRecord, start: _Start, known: KeptLimit | None) -> Iterator[LimitKept]:
        """What is to be recorded: that a limit is kept, or until when it is by now. A time that moves is told with some
        delay, since each event costs the log some bytes."""
        _, limit = self._first[queue_of(self._state, job)]
        decided = LimitKept(job.uid, job.version, limit, start.ms, start.awaits)
        if known is None:
            yield decided
            return
        before, jobs = known.decided, self._state.jobs
        awaits = tuple(uid for uid in before.awaits if uid in jobs and jobs[uid].placements)
        if (before.based_on, before.limit, awaits) != (job.version, limit, start.awaits):
            yield decided
        elif before.start_ms != start.ms:
            due_ms = known.time_ms + self._config.reservation_refresh_ms
            if self._time_ms >= due_ms:
                yield decided
            else:
                self.due_ms = min(self.due_ms, due_ms)

    def beyond(self, job: JobRecord) -> PlacementTry | None:
        """The try of a quorum that may not use a limit because it is kept for a job in front; None if it may, or has
        too little left anyway."""
        if not self._quotas.of_queues or job.placements or not (self._held or self._first):
            return None
        policy = self._placer.placing.policies.pod_policy(job, self._config)
        if not self._suffices(job, pods_of(quorum_needs(job, policy))):
            return None
        for host in self._before(job):
            left = self._left_for(job, host)
            lack = self._quotas.lack_beside(job, policy, host.job, host.needs, left) if left is not None else None
            if lack is not None:
                return self._placer.left_out(job, lack, kept_by=(host.job.uid,))
        return None

    def _left_for(self, job: JobRecord, host: _Host) -> tuple[Use, ...] | None:
        """What others leave of a limit before it is to be enough for both, a host and a job that isn't its guest; None
        if the job may use it."""
        if self._may_start(host):
            return ()
        start = self._start(host)
        if start is None or self._ends_in_time(job, start):
            return None
        guest = may_be_guest(job, self._config) and leaves_in_time(job, start.ms, self._time_ms)
        return None if guest and job.uid not in host.job.slots.asked else start.left

    def mark_as_guest(self, tried: PlacementTry) -> None:
        """A quorum that got nodes is the guest of those for whom what it uses of a limit is kept."""
        job = tried.job
        if not self._quotas.of_queues or job.placements or not (self._held or self._first):
            return
        if not may_be_guest(job, self._config):
            return
        pods = pods_by_group(tried.pieces)
        for host in self._before(job):
            if host.job.uid in tried.hosts or self._may_start(host):
                continue
            start = self._start(host)
            if start is None or self._ends_in_time(job, start):
                continue
            if self._quotas.keep_from(host.job, host.needs, job, pods, start.left):
                tried.hosts += (host.job.uid,)

    def _before(self, job: JobRecord) -> Iterator[_Host]:
        """Those in front of a job for whom limits of its queue may be kept."""
        queue = queue_of(self._state, job)
        for uid in [*self._held]:
            of, needs = with_reservation(self._state, uid)
            host = _Host(of, needs, reserved=True) if needs else self._host(of, reserved=True)
            if of is not job and not self._share_rules.comes_first(job, None, (of, host.needs)):
                yield host
        for name, (of, _) in [*self._first.items()]:
            behind = seniority(of) < seniority(job) if name == queue else of.uid in self._turned
            if not behind or of is job or of.uid in self._held:
                continue
            host = self._host(of)
            if not self._share_rules.comes_first(job, None, (of, host.needs)):
                yield host

    def _host(self, job: JobRecord, *, reserved: bool = False) -> _Host:
        policy = self._placer.placing.policies.pod_policy(job, self._config)
        return _Host(job, pods_of(quorum_needs(job, policy)), reserved)

    def _may_start(self, host: _Host) -> bool:
        if host.reserved:
            return self._backfill.may_start(host.job.uid)
        key = (host.job.uid, self._share_rules.staying(host.job))
        known = self._may_starts.get(key)
        if known is None:
            known = self._may_starts[key] = self._share_rules.fits_without_guests(host.job)
        return known

    def _ends_in_time(self, job: JobRecord, start: _Start) -> bool:
        end_ms = leaves_by_ms(self._state, job, self._config, self._time_ms)
        return end_ms is not None and end_ms <= start.ms

    def _start(self, host: _Host) -> _Start | None:
        uid = host.job.uid
        if uid not in self._starts:
            self._starts[uid] = self._reserved_start(uid) if host.reserved else self._enough(host)
        return self._starts[uid]

    def _reserved_start(self, uid: str) -> _Start:
        start_ms, leave = self._held[uid].start_ms, self._held[uid].leave.values()
        return _Start(start_ms, tuple([self._use(of) for of in leave if of.placements]))

    def _enough(self, host: _Host) -> _Start | None:
        """When a limit is enough for a host that waits for nothing else, as others end; None if it never is. Jobs of
        queues that share nothing with the host's but what nodes offer beside guarantees are needed least often."""
        ends, paths = self._ends.before(host.job), self._state.queue_tree.paths
        way = paths.get(queue_of(self._state, host.job), ())
        near = {name for name, path in paths.items() if not set(way).isdisjoint(path)}
        sharing = [of for of in ends if queue_of(self._state, of[1]) in near]
        return self._enough_of(host, sharing) or self._enough_of(host, ends)

    def _enough_of(self, host: _Host, ends: list[tuple[float, JobRecord]]) -> _Start | None:
        gone, found = list[JobRecord](), None
        for end_ms, of in [(0.0, None), *ends]:
            if found is not None and (found == math.inf or end_ms > max(found, self._time_ms)):
                break
            if of is not None:
                gone.append(of)
                self._quotas.release(*self._use(of), 1)
            if found is None and self._suffices(host.job, host.needs):
                found = end_ms
        awaits = self._needed(host, gone) if found is not None else []
        for of in gone:
            self._quotas.release(*self._use(of), -1)
        if found is None:
            return None
        left = tuple([self._use(of) for of in gone])
        return _Start(int(found) if found < math.inf else 0, left, tuple(awaits))

    def _needed(self, host: _Host, gone: list[JobRecord]) -> list[str]:
        """Those of the jobs that have left without whose end a limit isn't enough for a host. Guests leave when they
        are asked to."""
        found, stay = list[str](), list[JobRecord]()
        for of in gone:
            self._quotas.release(*self._use(of), -1)
            stay.append(of)
            if not self._suffices(host.job, host.needs):
                self._quotas.release(*self._use(stay.pop()), 1)
                found += [of.uid] if host.job.uid not in of.slots.hosts else []
        for of in stay:
            self._quotas.release(*self._use(of), 1)
        return found

    def _suffices(self, job: JobRecord, needs: Mapping[int, int]) -> bool:
        return self._quotas.full(job) is None and self._quotas.lack(job, needs) is None

    def _use(self, job: JobRecord) -> Use:
        known = self._uses.get(job.uid)
        if known is None:
            known = self._uses[job.uid] = self._vacating.use_of(job)
        return known
