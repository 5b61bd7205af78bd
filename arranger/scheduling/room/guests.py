"""Guests: who uses reserved room, or a limit that is kept, until the job in front needs it, which is their host; and
the rules that decide between the two by the shares of their queues."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Protocol

from arranger.model.config import CycleConfig
from arranger.model.job import DEFAULT_GRACE_S, Stage
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

_BEGUN = (Stage.STARTING, Stage.RUNNING)
_WAITING = (Stage.PENDING, Stage.RESCHEDULING)


class ShareRules(Protocol):
    """What decides between a job behind and those with reservations."""

    def fits_without_guests(self, job: JobRecord) -> bool:
        """Whether a job with a reservation can start without its guests."""

    def comes_first(
        self, job: JobRecord, pods: Mapping[int, int] | None, reserved: tuple[JobRecord, Mapping[int, int]]
    ) -> bool:
        """Whether so many pods of a job's groups, None for its quorum, come before a job for whose pods room is
        reserved, by the shares of their queues."""

    def comes_first_by_victims(self, job: JobRecord, reserved: tuple[JobRecord, Mapping[int, int]]) -> bool:
        """Whether a job's quorum comes before such a job once others give it room."""

    def stays(self, guest: JobRecord, host: JobRecord, ended: frozenset[str] = frozenset()) -> bool:
        """Whether a guest needn't leave for its host now, or once these jobs (UIDs) have `ended`, by the shares of
        their queues."""

    def staying(self, host: JobRecord, ended: frozenset[str] = frozenset()) -> frozenset[str]:
        """The guests of a job (UIDs) that needn't leave for it now, or once these jobs (UIDs) have `ended`."""


class _Alone:
    """No other job's shares and turns are looked at."""

    def fits_without_guests(self, _: JobRecord) -> bool:
        return False

    def comes_first(self, *_: object) -> bool:
        return False

    def comes_first_by_victims(self, *_: object) -> bool:
        return False

    def stays(self, *_: object) -> bool:
        return False

    def staying(self, *_: object) -> frozenset[str]:
        return frozenset()


def may_be_guest(job: JobRecord, config: CycleConfig) -> bool:
    """Whether a job may use reserved room until others need it."""
    return config.guests and job.valid_spec.preemptible and not job.of_pods


def with_reservation(state: State, uid: str) -> tuple[JobRecord, dict[int, int]]:
    """A job that may have a reservation, and for how many pods of its groups that is."""
    reservation = state.reservations.get(uid)
    return state.jobs[uid], reservation.pods if reservation is not None else {}


def leaves_in_time(job: JobRecord, start_ms: int, time_ms: int) -> bool:
    """Whether the grace periods of a job that gets nodes now would be over before a start, 0 for an unknown one, or
    are no longer than usual: room would be idle before each start if those counted."""
    grace_s = max((group.grace_s for group in job.valid_spec.groups if group.count), default=0)
    return not start_ms or grace_s <= DEFAULT_GRACE_S or time_ms + grace_s * 1000 < start_ms


class Guests:
    """The guests of one cycle."""

    def __init__(self, state: State, config: CycleConfig, share_rules: ShareRules | None) -> None:
        """Without `share_rules`, no other job's shares are looked at."""
        self._state = state
        self._config = config
        self.share_rules: ShareRules = share_rules if share_rules is not None else _Alone()

    def of(self, host: str) -> Sequence[JobRecord]:
        """The guests of the job with this UID."""
        return self._by_host.get(host, ())

    @cached_property
    def _by_host(self) -> dict[str, list[JobRecord]]:
        leaving = {uid: [job for job in jobs if self.leaves_for(job, uid)] for uid, jobs in self._may_leave.items()}
        return {uid: jobs for uid, jobs in leaving.items() if jobs}

    @cached_property
    def _may_leave(self) -> dict[str, list[JobRecord]]:
        """Host (UID) → its guests, those too that needn't leave now."""
        found: dict[str, list[JobRecord]] = {}
        for job in self._state.jobs.values() if self._config.guests else ():
            for uid in job.slots.hosts if job.placements else ():
                if self.may_leave_for(job, uid):
                    found.setdefault(uid, []).append(job)
        return found

    def after(self, host: JobRecord, ended: Collection[str]) -> tuple[list[JobRecord], list[JobRecord]]:
        """The guests of a job that leave for it, and those that needn't, once these jobs (UIDs) have ended: their
        queues use less then, so a guest that lifts its queue above its share now may be within it."""
        guests = [guest for guest in self._may_leave.get(host.uid, ()) if guest.uid not in ended]
        own = queue_of(self._state, host)
        if all(queue_of(self._state, guest) == own for guest in guests):
            return guests, []
        gone, rules = frozenset(ended), self.share_rules
        begun = rules.staying(host, gone)
        stay = {
            guest.uid: guest
            for guest in guests
            if guest.uid in begun or (guest.stage not in _BEGUN and rules.stays(guest, host, gone))
        }
        return [guest for guest in guests if guest.uid not in stay], [*stay.values()]

    @cached_property
    def hosts(self) -> set[str]:
        """The UIDs of the jobs in whose reserved room there are guests, or some pods of other jobs."""
        with_nodes = [job for job in self._state.jobs.values() if job.placements]
        return {uid for job in with_nodes for uid in chain(job.slots.hosts, *job.slots.lent.values())}

    def leaves_for(self, job: JobRecord, host: str) -> bool:
        """Whether a job leaves as soon as the one with this UID can start without it. A guest leaves only for a host
        that waits: one that runs and has lost its nodes could start before the guest is gone."""
        waits = self._state.jobs.get(host)
        return self.may_leave_for(job, host) and (waits is None or not self.share_rules.stays(job, waits))

    def may_leave_for(self, job: JobRecord, host: str) -> bool:
        """The same of a guest that may be one that needn't leave, by the shares of queues."""
        waits = self._state.jobs.get(host)
        return host in job.slots.hosts and (waits is None or waits.stage in _WAITING)
