"""When waiting jobs are expected to start: what their reservations promise, and what was forecast for the others.

A reservation counts the ends of the jobs that hold its room alone. Where others may take that room, or stay in it, it
promises nothing, and is mostly too early. A forecast knows of their turns, so its time counts there.

No decision depends on a forecast. It is told to people, and compared with what came.
"""

import math
from collections.abc import Collection

import msgspec

from arranger.events.kinds import StartForecast
from arranger.projections.derived.awaited_room import refused_by_dry_run, refused_when_started
from arranger.projections.derived.deadlines import deadline_of
from arranger.projections.derived.jobs_ahead import in_the_way
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.run_times import usual_run_time_ms
from arranger.projections.state import Changes, Forecasted, Reservation, State
from arranger.projections.verdicts.judging import outdated

#: A start that is forecast again is recorded if it moved by more than this time, in milliseconds …
_MOVED_MS = 10_000
#: … and by more than this part of how far away it is.
_MOVED_PART = 10


class ExpectedStart(msgspec.Struct, frozen=True):
    """When a waiting job is expected to start, in milliseconds since 1970. `forecast` has the range, and is None if the
    time is that of a reservation."""

    start_ms: int
    forecast: Forecasted | None

    @property
    def guess(self) -> bool:
        """Whether it supposes the end of a job of whose end nothing is known."""
        return self.forecast is not None and (self.forecast.decided.guess or not self.forecast.decided.latest_ms)


def expected_start(state: State, job: JobRecord) -> ExpectedStart | None:
    """When a waiting job is expected to start: as its reservation promises, else as was forecast for it since it last
    changed, else as its reservation says; None if that is unknown, or if the API server refuses its pods. Where a
    reservation waits for ends of which nothing is known, a forecast is but a guess. One that is older than the
    reservation counts only if it is later: before its reserved room is there, hardly any job starts."""
    if refused_by_dry_run(job) or refused_when_started(job):
        return None
    forecasted, reservation = _forecasted(state, job), state.reservations.get(job.uid)
    if reservation is None or not (reservation.decided.start_ms or reservation.decided.awaits):
        return forecasted
    start_ms = reservation.decided.start_ms
    if not start_ms:
        return None
    counts = forecasted is not None and _says_more_than(forecasted, reservation) and not promises_start(state, job)
    return forecasted if counts else ExpectedStart(start_ms, None)


def _says_more_than(forecasted: ExpectedStart, reservation: Reservation) -> bool:
    made = forecasted.forecast
    newer = made is not None and made.time_ms >= reservation.time_ms
    return newer or forecasted.start_ms > reservation.decided.start_ms


def _forecasted(state: State, job: JobRecord) -> ExpectedStart | None:
    """What was forecast for a job since it last changed."""
    known = state.forecasts.get(job.uid)
    if known is None or known.decided.based_on != job.version or not known.decided.expected_ms:
        return None
    return ExpectedStart(known.decided.expected_ms, known)


def promises_start(state: State, job: JobRecord) -> bool:
    """Whether a job's reservation says when it starts, and nobody may take the room before, or stay there. Else a
    forecast knows more."""
    reservation = state.reservations.get(job.uid)
    return reservation is not None and bool(reservation.decided.start_ms) and not others_may_delay(state, job)


def others_may_delay(state: State, job: JobRecord) -> bool:
    """Whether others may take the room that is reserved for a job, or stay there."""
    return next(in_the_way(state, job), None) is not None


def to_record(state: State, event: StartForecast, time_ms: int) -> StartForecast | None:
    """What the log is to hold of a forecast: nothing if it says hardly more than the last one. Where a reservation
    promises the start, the last one is withdrawn: the status is written again, since what others do doesn't lead to
    that."""
    job, known = state.jobs[event.job_uid], state.forecasts.get(event.job_uid)
    if job.placements:
        return None
    if promises_start(state, job):
        if known is None or not known.decided.expected_ms:
            return None
        event = StartForecast(job.uid, job.version, 0, 0, 0)
    return event if says_more(known, event, time_ms) else None


def no_forecast(state: State, event: StartForecast) -> str:
    """Why a forecast isn't valid for its job; empty if it is."""
    job = state.jobs.get(event.job_uid)
    if refused := outdated(job, event.based_on, None):
        return refused
    return "it has nodes already" if job is not None and job.placements else ""


def forget_start(state: State, uid: str, changes: Changes) -> None:
    """Forget when a job was expected to start: it has nodes, has entered another stage, or is gone."""
    end_reservation(state, uid, changes)
    end_limit(state, uid, changes)
    state.forecasts.pop(uid, None)


def note_known_end(state: State, job: JobRecord, time_ms: int) -> None:
    """A job that is no guest gets nodes: that is news if it may leave them before a reservation begins. The cycle that
    decided it made or revised its reservations without it."""
    spec = job.valid_spec
    known_s = [seconds for seconds in (spec.deadline_s, spec.expected_s) if seconds is not None]
    run_ms = min(known_s) * 1000 if known_s else usual_run_time_ms(state.run_times, job)
    starts = (of.decided.start_ms for uid, of in state.reservations.items() if uid != job.uid)
    if run_ms is not None and any(not start_ms or start_ms > time_ms + run_ms for start_ms in starts):
        state.note_room()


def note_later_end(state: State, job: JobRecord, before_ms: int | None) -> None:
    """A job may run longer than to the deadline that it had. Where it got room that was reserved already, because it
    would have left before, it is a guest from now on: else everybody could keep that by an edit."""
    deadline_ms, nodes = deadline_of(job), set(job.placements.values())
    end_ms = deadline_ms if deadline_ms is not None else math.inf
    if before_ms is None or not job.valid_spec.preemptible:
        return
    for uid, of in state.reservations.items():
        later = of.since_ms <= job.began_ms and before_ms <= of.decided.start_ms < end_ms
        there = not nodes.isdisjoint(pods.node for pods in of.decided.pods)
        if later and there and uid not in (job.uid, *job.slots.hosts):
            job.slots.hosts += (uid,)


def end_reservation(state: State, uid: str, changes: Changes) -> None:
    """A job has no reservation any more."""
    if state.reservations.pop(uid, None) is not None:
        state.note_room()
        _end_guests(state, uid, changes)


def end_limit(state: State, uid: str, changes: Changes) -> None:
    """No limit is kept for a job any more."""
    if state.kept_limits.pop(uid, None) is not None:
        _end_guests(state, uid, changes)


def touch_awaited(state: State, host: str, before: Collection[str], changes: Changes) -> None:
    """The guests of a job are touched for whose ends it waits now, or did before (UIDs), and not both: it is told
    whether they are guests."""
    for uid in sorted({*before} ^ {*state.awaited_by(host)}):
        if uid in state.jobs and host in state.jobs[uid].slots.hosts:
            changes.jobs[uid] = None


def _end_guests(state: State, uid: str, changes: Changes) -> None:
    """A job for which nothing is kept any more has no guests: who uses that wasn't told of a later reservation."""
    if state.is_host(uid):
        return
    for job in state.jobs.values():
        slots = job.slots
        if uid in slots.hosts or slots.lent_by(uid):
            slots.hosts = tuple(host for host in slots.hosts if host != uid)
            lent = {slot: tuple(host for host in hosts if host != uid) for slot, hosts in slots.lent.items()}
            slots.lent = {slot: hosts for slot, hosts in lent.items() if hosts}
            changes.jobs[job.uid] = None


def says_more(known: Forecasted | None, event: StartForecast, time_ms: int) -> bool:
    """Whether a forecast of `time_ms` is worth an event, because it differs from the last one. Small differences don't
    count, because each event costs the log some bytes and the API server a status."""
    if known is None or (known.decided.based_on, known.decided.guess) != (event.based_on, event.guess):
        return True
    return any(
        _moved(was_ms, is_ms, time_ms)
        for was_ms, is_ms in (
            (known.decided.expected_ms, event.expected_ms),
            (known.decided.latest_ms, event.latest_ms),
        )
    )


def _moved(was_ms: int, is_ms: int, time_ms: int) -> bool:
    if not was_ms or not is_ms:
        return bool(was_ms) != bool(is_ms)
    away_ms = max(was_ms, is_ms) - time_ms
    return abs(was_ms - is_ms) > max(_MOVED_MS, away_ms // _MOVED_PART)
