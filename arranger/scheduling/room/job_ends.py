"""When the jobs with nodes end, as far as that is known, one after the other."""

import math
from bisect import bisect_right
from collections.abc import Collection
from functools import cached_property
from operator import attrgetter, itemgetter

from arranger.model.config import CycleConfig
from arranger.projections.derived.expected_ends import expected_end, expected_runtime_ms
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.room.guests import Guests
from arranger.scheduling.room.vacating import Vacating


class JobEnds:
    """The jobs with nodes, and when they are expected to end, in that order, as one cycle knows it. Unknown ends are
    infinite; of these, the job that began first comes first. Who ends by itself leaves now."""

    def __init__(self, state: State, config: CycleConfig, time_ms: int, vacating: Vacating, guests: Guests) -> None:
        self._state = state
        self._config = config
        self._time_ms = time_ms
        self._vacating = vacating
        self._guests = guests

    @property
    def hosts(self) -> set[str]:
        """As `Guests.hosts`."""
        return self._guests.hosts

    def before(self, host: JobRecord, staying: Collection[str] | None = None) -> list[tuple[float, JobRecord]]:
        """All of them, where this job is to get their room: its guests leave when they are asked to, but those of them
        that are `staying` (UIDs), or by default needn't leave now."""
        if host.uid not in self._guests.hosts:
            return self._all
        if staying is None:
            staying = self.staying(host, ())
        leaving = {job.uid for _, job in self._all if self._guests.may_leave_for(job, host.uid)} - {*staying}
        guests = [job for _, job in self._all if job.uid in leaving]
        others = [(end_ms, job) for end_ms, job in self._all if job.uid not in leaving]
        at = bisect_right(others, self._time_ms, key=itemgetter(0))
        return [*others[:at], *((self._time_ms, job) for job in guests), *others[at:]]

    def staying(self, host: JobRecord, ended: Collection[str]) -> frozenset[str]:
        """The guests of a job (UIDs) that needn't leave for it once these jobs (UIDs) have ended."""
        if host.uid not in self._guests.hosts:
            return frozenset()
        return frozenset([guest.uid for guest in self._guests.after(host, ended)[1]])

    def leaving(self, host: JobRecord, ended: Collection[str]) -> list[JobRecord]:
        """Its other guests."""
        return self._guests.after(host, ended)[0] if host.uid in self._guests.hosts else []

    def ended_by(self, host: JobRecord, start_ms: int, awaits: Collection[str]) -> frozenset[str]:
        """Who has ended by the start of a job (UIDs) that awaits these: they, and whoever is expected to end by then,
        or at all if the start is 0, unknown. It matters for guests of the job alone."""
        if host.uid not in self._guests.hosts:
            return frozenset()
        by_ms = max(start_ms, self._time_ms) if start_ms else math.inf
        ended = [job.uid for end_ms, job in self._all if end_ms <= by_ms and end_ms < math.inf]
        return frozenset([*ended, *(uid for uid in awaits if uid in self._state.jobs)])

    @cached_property
    def now(self) -> list[tuple[float, JobRecord]]:
        """The jobs that leave now."""
        return [(float(self._time_ms), job) for job in sorted(self._vacating.ending, key=attrgetter("uid"))]

    @cached_property
    def _all(self) -> list[tuple[float, JobRecord]]:
        found, ending = [], {job.uid for job in self._vacating.ending}
        for job in self._state.jobs.values():
            if job.placements:
                found.append((self._time_ms if job.uid in ending else self.end_ms(job), job.began_ms, job.uid, job))
        found.sort()  # no two have the same UID
        return [(end_ms, job) for end_ms, _, _, job in found]

    def end_ms(self, job: JobRecord) -> float:
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
