"""The applier: brings the cluster in line with the accepted decisions, and reports when it can't.

For each of its jobs it compares the desired state with the projection and closes the difference. It writes the status
first: the status lists every allocation before its first pod exists, so that a lost log can be rebuilt from the
cluster.
"""

import logging

from arranger.errors import ClockOff, ClusterError, EpochLost
from arranger.kube.translate import status_digest
from arranger.lifecycle.desired import desired_status, expires_ms
from arranger.logs import log_event
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes
from arranger.projections.verdicts.ownership import namespace_of
from arranger.workers.applying.effects.carrying_out import SETTLE_S, STALE_S, Effects, Tally, tallied
from arranger.workers.applying.effects.deletions import delete_expired
from arranger.workers.applying.effects.job_writer import Means
from arranger.workers.applying.effects.progress import Look, Progress, StateReplaced
from arranger.workers.applying.pods.job_pods import JobPods
from arranger.workers.applying.statuses.all_statuses import AllStatuses
from arranger.workers.flow.retries import Retries
from arranger.workers.flow.work_queue import KeyQueue
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

ROLE = "applier"
#: A look at a job takes about a microsecond per pod. The applier then leaves the job alone for this long per pod, so
#: that 5,000 workers whose pods change all the time cost a few percent of a processor, not all of it.
_REST_A_POD_S = 20e-6
#: A shorter pause isn't worth a timer.
_LEAST_REST_S = 0.002
#: After this many looks have begun, other tasks run: the end of a listing touches all jobs, and 10,000 looks would
#: keep them waiting for a second.
_AT_ONCE = 50


class Applier:
    """Carries out the decisions on this member's share of the jobs."""

    def __init__(self, parts: Parts) -> None:
        self._follower = parts.follower
        self._membership = parts.membership
        self._clock = parts.time
        self._progress: dict[str, Progress] = {}
        self._retries = Retries(parts.time)
        self._queue = KeyQueue(
            parts.time,
            self._sweep,
            namespace_of=lambda uid: namespace_of(parts.follower.state, uid),
            passed=parts.metrics.look_seconds.labels(ROLE).inc,
        )
        self._effects = Effects(parts)
        means = Means(self._effects, self._queue, parts.writer(ROLE))
        self._statuses = AllStatuses(means, ROLE)
        self._pods = JobPods(means, self._statuses.reports)

    def changed(self, changes: Changes) -> None:
        self._queue.touch(changes.jobs)
        if changes.nodes:  # the statuses of jobs there tell of it
            jobs = self._follower.state.jobs.values()
            self._queue.touch([job.uid for job in jobs if not changes.nodes.isdisjoint(job.placements.values())])
        self._statuses.changed()

    def epoch_began(self) -> None:
        """Discard everything derived from the earlier projection."""
        self._queue.clear()
        self._statuses.clear()
        self._progress.clear()
        self._retries.clear()

    async def run(self) -> None:
        """Apply until cancelled; then let effects in flight finish. Kubernetes Events that aren't
        written yet are dropped."""
        self._statuses.begin()
        try:
            while True:
                await self._queue.wait()
                if self._follower.state.synced:
                    self._start()
        finally:
            await self._statuses.end(self._queue.finish())

    def _sweep(self) -> dict[str, None]:
        """Every job, and every deleted one with remaining pods: the keys of a sweep, with which the progress of all
        others is forgotten."""
        known = dict.fromkeys([*self._follower.state.jobs, *self._follower.state.pods_of])
        for uid in [uid for uid in (*self._progress, *self._retries.failing()) if uid not in known]:
            self._forget(uid)
        return known

    def _forget(self, uid: str) -> None:
        self._progress.pop(uid, None)
        self._retries.forget(uid)

    def _start(self) -> None:
        """Look at this share's touched jobs, except those in back-off because their effects failed."""
        for uid in self._queue.take(_AT_ONCE):
            if not self._membership.owns(uid, ROLE):
                self._forget(uid)  # what is known of it would be outdated once the share comes back
                continue
            job = self._follower.state.jobs.get(uid)
            rest_s = self._retries.rest_s(uid, version=job.version if job is not None else 0)
            if rest_s > 0:
                self._queue.look_again(uid, rest_s)
            else:
                self._queue.start(uid, self._mend(uid), name=f"apply-{uid}")

    async def _mend(self, uid: str) -> None:
        """Close the difference for one job as the projection shows it now, then pause if the job is large."""
        job = self._follower.state.jobs.get(uid)
        if not self._effects.allowed():
            self._queue.look_again(uid, STALE_S)
        else:
            await self._try(uid, job)
        rest_s = len(job.placements) * _REST_A_POD_S if job is not None else 0.0
        if rest_s > _LEAST_REST_S:
            await self._clock.sleep(rest_s)

    async def _try(self, uid: str, job: JobRecord | None) -> None:
        """Look at one job once and carry out the resulting effects. A failure puts the job into back-off."""
        version = job.version if job is not None else 0
        with tallied() as tally:
            try:
                await self._look(uid, job)
                self._retries.forget(uid)
                if tally.done:
                    self._retries.succeeded()
            except (ClockOff, StateReplaced):  # during the look
                self._queue.look_again(uid, STALE_S)
            except (ClusterError, EpochLost) as problem:
                log_event(_log, "an effect is tried again", level=logging.WARNING, job=uid, problem=problem)
                self._again(uid, version, tally, getattr(problem, "retry_after_s", 0.0))
            except Exception as problem:
                log_event(_log, "applying failed", level=logging.ERROR, exc_info=problem, job=uid)
                self._again(uid, version, tally)

    def _again(self, uid: str, version: int, tally: Tally, retry_after_s: float = 0.0) -> None:
        """Look again after a failure. On an API server that fails now and then, each look gets further than the last
        one: the next delay is longer only if nothing was achieved and the same effects failed before."""
        rest_s = self._retries.failed(
            uid, version=version, asked_s=retry_after_s, progressed=tally.done > 0, what=tally.failed
        )
        self._queue.look_again(uid, rest_s)

    async def _look(self, uid: str, job: JobRecord | None) -> None:
        progress = self._progress.setdefault(uid, Progress())
        if job is None:
            await self._pods.reconciler.delete_orphans(uid, progress)
            return
        look = Look(self._follower, job, progress)
        if job.of_pods:
            await self._pods.binder.look(look)
            return
        if job.seen.deleting:
            await self._pods.reconciler.reconcile(look)
            return
        progress.orphaned_s = None
        if await self._statuses.jobs.ensure_stored(look):
            await self._pods.look(look)
            if look.current():
                await self._expire(look)

    async def _expire(self, look: Look) -> None:
        """Delete the ended TYJob after its TTL; garbage collection deletes its pods.

        It must be as observed, and its stored status must show the end: a later change may be meant to keep it.
        """
        job, settling = look.job, look.progress.settling
        due_ms = expires_ms(job)
        if due_ms is None or job.uid in settling:  # `reconcile` dropped what has lapsed, in this look
            return
        wait_s = (due_ms - self._clock.now_ms()) / 1000
        if wait_s > 0:
            self._queue.look_again(job.uid, wait_s)
            return
        if job.seen.status_digest != status_digest(desired_status(self._follower.state, job)):
            return  # not stored or not observed yet; either triggers another look
        assert job.spec is not None and job.spec.ttl_s is not None
        seen, ttl_s, cluster = job.seen, job.spec.ttl_s, self._effects.cluster
        await self._effects.carry_out(
            "expire",
            seen.namespace,
            lambda: delete_expired(
                cluster, seen.namespace, seen.name, job.uid, ttl_s=ttl_s, now_ms=self._clock.now_ms()
            ),
        )
        # Also if it was refused, because the TYJob is gone or has changed: the first sweep after `SETTLE_S` asks again.
        settling[job.uid] = self._clock.monotonic_s() + SETTLE_S
