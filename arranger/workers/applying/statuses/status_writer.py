"""The status writer: stores the TYJob's status that explains the pods, before any of these pods is created.

A decision, and a problem that users can act on, are written at once. Everything else changes often and is written at
intervals: counts, the queue position, and what a starting job waits for. Whether the quorum is ready is written soon,
but a probe that flaps causes no more writes than counts do. A status costs the API server as much as
several pods, so a job that starts at once gets two: `Starting` with its allocations, and `Running`. Jobs that only wait
get theirs in turns once there are many of them in a namespace, because no pod waits for it. Their first ones come
sooner while the process has little else to do.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Generator, Sequence

from arranger.clock import Clock
from arranger.kube.cluster import TYJOB_STATUSES, TYJOBS, ApiError, Object
from arranger.kube.translate import LOG, QUEUE_POSITION, status_digest
from arranger.lifecycle.desired import desired_status, news_of
from arranger.lifecycle.giving_way import taking_text
from arranger.logs import log_event
from arranger.messages.departures import hanging_text
from arranger.messages.readiness import stuck_text
from arranger.model.job import Stage
from arranger.model.steps import Steps
from arranger.projections.derived.queue_membership import queue_out_of_reach
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling import order_in_steps
from arranger.workers.applying.effects.carrying_out import SETTLE_S
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look, Progress
from arranger.workers.applying.statuses.reports import Reports
from arranger.workers.flow.pacing import Pace, Rests, only_waits
from arranger.workers.flow.work_queue import SWEEP_S

_log = logging.getLogger(__name__)

#: After a conflict, the watch may have shown the change already: this soon after, its version is tried.
_CONFLICT_S = 0.1
#: A status that the API server found invalid is tried again after this time.
_INVALID_S = 60.0
#: If the TYJob definition is older than the version for statuses, that version is tried again after this time.
_OLDER_S = 60.0
#: If the next decision on a job is imminent, its status waits this long, so that both are written at once.
_PASSING_S = 1.0
#: A status without news is written at most this often: for a starting job, and for any other one. A starting job that
#: becomes Running within that time needs no status between.
_STARTING_S, _COUNTS_S = 5.0, 1.0
#: Of all jobs together, one such status is written in this many times as long as a status takes, where that is less
#: than the limit. Pods and decisions are worth more than counts, above all on a busy API server.
_TIMES_AS_LONG, _APART_S = 4.0, 2.0
#: The same of the jobs of a namespace that only wait, for their statuses with news, after this many at once.
_WAITING_TIMES_AS_LONG, _WAITING_AT_ONCE = 8.0, 20
#: First statuses whose turns are brought forward are as far apart as a status takes, between these bounds.
_FIRST_APART_S = (0.005, 0.03)
#: All their statuses but the first ones are this far apart at least: somebody may edit many jobs again and again.
_WAITING_AGAIN_S = 0.25
#: How long a status takes is averaged over about so many. Paced by the last one alone, some would come in bursts.
_AVERAGED = 16
#: Jobs up to this position in the queue have it in their status, and get a new one when it changes. For all jobs that
#: would be a storm, and a position of a while ago is false.
_NEAR = 10
#: The order of the queue is computed at most this often, or for a job that it lacks, and in a large cluster at most in
#: half a percent of the time. If that took longer than `_QUEUE_AT_ONCE_S`, the next time it is spread.
_QUEUE_S, _QUEUE_OF_NEW_S, _QUEUE_TIMES, _QUEUE_AT_ONCE_S = 5.0, 0.5, 200.0, 0.02

#: Every field of the status; a merge patch clears one only if it is named.
_STATUS_FIELDS = (
    "stage", "scheduleState", "attempt", "restarts", "restartsOfEarlierPods", "leaderAddress", "leaderFinished",
    "totalWorkers", "readyWorkers", "ready", "allocations", "workers", "message", "conditions", "observedGeneration",
    "startTime", "completionTime", "lastFailures", "gpus", "replicas", "selector", "priority", "after",
    "restartsInWindow", "expectedStartTime", "expectedStart", "activeSecondsOfEarlierAttempts", QUEUE_POSITION, LOG,
)  # fmt: skip


class QueuePositions:
    """Positions in the queue, worked out periodically. `order` yields while it has more to do, and returns the waiting
    jobs in their order. That of a short queue is worked out when somebody asks, and that of a long one by `run`."""

    def __init__(self, clock: Clock, order: Callable[[], Generator[None, None, Sequence[JobRecord]]]) -> None:
        self._clock = clock
        self._order = order
        self._positions: dict[str, int] = {}
        #: When they may be worked out again: for a job that has one, and for a job that has none yet.
        self._again_s = self._again_of_new_s = -math.inf
        self._took_s = 0.0
        self._asked = asyncio.Event()

    def of(self, state: State, job: JobRecord) -> int | None:
        """The position of a job without any nodes, from 1 to `_NEAR`; None if it is behind these or isn't in the queue,
        or no cycle has tried it: most jobs get nodes by their first one, and of jobs that come at once, not all are
        known before it."""
        if job.waits is None or job.placements or job.ended or job.suspended or queue_out_of_reach(state, job):
            return None
        if self._clock.monotonic_s() >= (self._again_s if job.uid in self._positions else self._again_of_new_s):
            if self._took_s > _QUEUE_AT_ONCE_S:
                self._again_s = self._again_of_new_s = math.inf
                self._asked.set()
            else:
                began_s = self._clock.monotonic_s()
                try:
                    self._rank(Steps(self._order()).finish())
                finally:
                    self._took(self._clock.monotonic_s() - began_s)
        position = self._positions.get(job.uid)
        return position if position is not None and position <= _NEAR else None

    async def run(self) -> None:
        """Work out the positions in a long queue whenever they are asked for and it is time, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            rests, steps = Rests(self._clock), Steps(self._order())
            try:
                for _ in steps:
                    await rests.after_step()
                self._rank(steps.result)
            except Exception as problem:  # e.g. in a plugin's policy: the next time tries again
                log_event(_log, "the order of the queue failed", level=logging.ERROR, exc_info=problem)
            finally:
                self._took(rests.worked_s)

    def _rank(self, order: Sequence[JobRecord]) -> None:
        self._positions = {of.uid: position for position, of in enumerate(order, start=1)}

    def _took(self, took_s: float) -> None:
        self._took_s = took_s
        now_s, spared_s = self._clock.monotonic_s(), _QUEUE_TIMES * took_s
        self._again_s, self._again_of_new_s = now_s + max(_QUEUE_S, spared_s), now_s + max(_QUEUE_OF_NEW_S, spared_s)


class StatusWriter(JobWriter):
    """Stores statuses, and has each reported in Events once it is stored."""

    def __init__(self, means: Means, reports: Reports) -> None:
        super().__init__(means)
        parts = self._effects.parts
        policies = parts.installed.policies
        config = parts.settings.cycle_config(policies.versions())
        #: `run` is for their owner.
        self.positions = QueuePositions(
            parts.time, lambda: order_in_steps(parts.follower.state, config=config, policies=policies)
        )
        self._reports, self._lifecycle = reports, parts.settings.lifecycle_config()
        self._log_name = parts.hold.name if parts.hold is not None else parts.settings.cluster
        #: How long a status takes on average; at first, about what one takes on a busy API server.
        self._took_s = 0.02
        self._counts_pace, self._waiting_pace = Pace(), Pace(at_once=_WAITING_AT_ONCE)
        self._again_pace = Pace(at_once=_WAITING_AT_ONCE)
        #: Jobs whose first status waits for its turn, the first one first; and whether there are any.
        self._first: dict[str, Progress] = {}
        self._some = asyncio.Event()
        #: Until when statuses are written as v1, because the TYJob definition has no version for them.
        self._older_until_s = -math.inf

    def clear(self) -> None:
        """Forget who waits: another epoch has begun."""
        self._first.clear()
        self._some.clear()

    async def run(self) -> None:
        """While this process is idle, bring the turns of first statuses forward, one after another, until cancelled.

        A turn is fixed by how long statuses took when it was given, and by all who waited then. While nothing else is
        to do, nobody is helped by waiting that long.
        """
        while True:
            await self._some.wait()
            await self._clock.sleep(min(max(self._took_s, _FIRST_APART_S[0]), _FIRST_APART_S[1]))
            now_s = self._clock.monotonic_s()
            while self._first and self._effects.idle:
                uid = next(iter(self._first))
                progress = self._first.pop(uid)
                if progress.turn_s is not None and progress.turn_s > now_s:
                    progress.turn_s = now_s
                    self._queue.look_again(uid, 0.0)
                    break
            if not self._first:
                self._some.clear()

    async def ensure_stored(self, look: Look) -> bool:
        """Store the status that explains the desired pods; returns True once the projection's present one is stored."""
        job, progress, now_s = look.job, look.progress, self._clock.monotonic_s()
        if (_in_passing(job) and self._passes(look, now_s)) or self._waits_for_first(look, now_s):
            return False
        state = self._follower.state
        status = desired_status(state, job, self._lifecycle)
        progress.told.queue, progress.told.taking = queue_out_of_reach(state, job), taking_text(state, job)
        progress.told.stuck = stuck_text(state, job)
        progress.told.hanging = hanging_text(state, job, self._clock.now_ms())
        digest = status_digest(status)
        unseen = digest == progress.digest and not self._settled(look, now_s)
        status[QUEUE_POSITION] = position = self.positions.of(state, job)
        moved = position != progress.position
        if (digest == job.seen.status_digest or unseen) and not moved:
            self._reports.reported(job, progress.told)
            return True
        news, ready = news_of(state, job), job.quorum_ready
        same = news == progress.news
        waits = self._waits_without_news(look, now_s) if same else only_waits(job) and self._waits_for_turn(look, now_s)
        if waits:
            return same
        seen_version = job.seen.resource_version
        if (digest, seen_version) == progress.invalid and now_s - progress.invalid_s < _INVALID_S:
            return False
        known = progress.resource_version or seen_version
        if known == progress.outdated and now_s - progress.outdated_s < SWEEP_S:
            return False  # the watch shows the later version soon; until then the same write is refused again
        if not await self._effects.carry_out("status", job.seen.namespace, lambda: self._patch(look, status, known)):
            return False
        progress.digest, progress.news, progress.written_s = digest, news, self._clock.monotonic_s()
        progress.ready, progress.turn_s = ready, None
        progress.based_on, progress.position = seen_version, position
        self._reports.report(job, progress.told)
        if not look.current():  # decided again meanwhile: that status isn't stored yet
            self._queue.look_again(job.uid, 0.0)
            return False
        return True

    def _waits_without_news(self, look: Look, now_s: float) -> bool:
        """Whether a status without news waits; the job is then looked at again. Once it is due, it gets its turn. A
        quorum that became ready, or isn't any more, needs no turn."""
        progress = look.progress
        due_s = progress.written_s + (_STARTING_S if look.job.stage == Stage.STARTING else _COUNTS_S)
        if due_s <= now_s and look.job.quorum_ready == progress.ready:
            if progress.turn_s is None:
                progress.turn_s = self._next_s(look.job, now_s)
            due_s = progress.turn_s
        return self._waits(look, due_s - now_s)

    def _waits_for_first(self, look: Look, now_s: float) -> bool:
        """Whether the first status of a job that only waits hasn't its turn yet, whatever it will say."""
        progress = look.progress
        first = progress.turn_s is not None and not progress.news
        return first and only_waits(look.job) and self._waits_for_turn(look, now_s)

    def _waits_for_turn(self, look: Look, now_s: float) -> bool:
        """Whether the status of a job that only waits hasn't its turn yet; the job is then looked at again."""
        progress = look.progress
        if progress.turn_s is None:
            progress.turn_s = self._next_s(look.job, now_s)
            if progress.turn_s > now_s and not progress.news:
                self._first[look.job.uid] = progress
                self._some.set()
        return self._waits(look, progress.turn_s - now_s)

    def _next_s(self, job: JobRecord, now_s: float) -> float:
        """The turn of a status that can wait."""
        if not only_waits(job):
            pace, apart_s = self._counts_pace, _TIMES_AS_LONG * self._took_s
        elif not job.seen.status_digest:
            pace, apart_s = self._waiting_pace, _WAITING_TIMES_AS_LONG * self._took_s
        else:
            pace, apart_s = self._again_pace, max(_WAITING_TIMES_AS_LONG * self._took_s, _WAITING_AGAIN_S)
        return pace.next_s(job.seen.namespace, now_s, min(apart_s, _APART_S))

    def _passes(self, look: Look, now_s: float) -> bool:
        """Whether to wait longer for the imminent decision on a new job."""
        if look.progress.passing[0] != look.version:
            look.progress.passing = (look.version, now_s)
        return self._waits(look, look.progress.passing[1] + _PASSING_S - now_s)

    def _settled(self, look: Look, now_s: float) -> bool:
        """Whether the watch has had enough time to show the status that was stored last.

        It hasn't while it shows nothing new of the job, or does step by step: a late watch means a busy server, and the
        same status again would delay it further.
        """
        seen, progress = look.job.seen.resource_version, look.progress
        if seen == progress.based_on:
            return False
        if seen != progress.seen[0]:
            progress.seen = (seen, now_s)
        return now_s - max(progress.written_s, progress.seen[1]) >= SETTLE_S

    async def _patch(self, look: Look, status: Object, known: str) -> bool:
        """Store a status unless the TYJob has changed since the version that we know: only then is ours the later one.

        Every such change is in the log after the decisions that it shows, so a process that has folded that far may
        write. `known` is the resourceVersion known when the status was made, which may have waited for its turn since.
        """
        job, progress = look.job, look.progress
        seen = job.seen
        body = {
            "metadata": {"uid": job.uid, "resourceVersion": known},  # protects another job of that name
            "status": {**{name: status.get(name) for name in _STATUS_FIELDS}, LOG: self._log_name},
        }
        began_s = self._clock.monotonic_s()
        try:
            stored = await self._store(seen.namespace, seen.name, body)
            self._took_s += (self._clock.monotonic_s() - began_s - self._took_s) / _AVERAGED
        except ApiError as refused:
            if refused.code == 409:
                progress.resource_version = ""
                progress.outdated, progress.outdated_s = known, self._clock.monotonic_s()
                self._queue.look_again(job.uid, _CONFLICT_S)
            if refused.code == 422:  # an object older than its schema may refuse any write: an Event reports it
                progress.invalid = (status_digest(status), seen.resource_version)
                progress.invalid_s = self._clock.monotonic_s()
                log_event(_log, "a status is refused", level=logging.WARNING, job=seen.name, problem=refused)
                self._reports.report(job, progress.told)
            if refused.code in (404, 409, 422):
                return False
            raise
        progress.resource_version = stored["metadata"]["resourceVersion"]
        if job.stage == Stage.STARTING:
            progress.template = stored  # its pods are next, so that they need no GET of the TYJob
        return True

    async def _store(self, namespace: str, name: str, body: Object) -> Object:
        """Store a status in the version for statuses, or as v1 while the TYJob definition doesn't have that version, or
        if that version refuses it: then v1 has the last word."""
        patch, now_s = self._effects.cluster.patch, self._clock.monotonic_s()
        if now_s < self._older_until_s:
            return await patch(TYJOBS, namespace, name, body, subresource="status")
        try:
            return await patch(TYJOB_STATUSES, namespace, name, body, subresource="status")
        except ApiError as refused:
            if refused.code not in (404, 422):
                raise
            code = refused.code
        # After a 404, either the version or the job doesn't exist: as v1, a job that doesn't is a 404 again.
        stored = await patch(TYJOBS, namespace, name, body, subresource="status")
        if code == 404:
            self._older_until_s = now_s + _OLDER_S
            log_event(_log, "the TYJob definition is older than this release", level=logging.WARNING)
        return stored


def _in_passing(job: JobRecord) -> bool:
    """Whether the next decision follows at once unless something is wrong: the job is new.

    It has no pods to create or delete yet, and each status costs the API server as much as a pod.
    """
    return job.active and job.decided is None and job.waits is None and not job.seen.status_digest
