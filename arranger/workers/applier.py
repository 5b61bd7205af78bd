"""The applier: makes the cluster what the accepted decisions want, and tells when it can't.

For each of its jobs it compares what should exist with what the projection shows and closes the difference. The
status goes first: it names every allocation before the first pod of it exists, so that a lost log can be rebuilt
from the cluster. Every effect is safe to repeat; "already exists" counts only if the owner's UID is ours.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from arranger.clock import Clock
from arranger.errors import ClockOff, ClusterError, EpochLost
from arranger.events.kinds import EffectFailed, PodSeen
from arranger.kube.cluster import PODS, SERVICES, TYJOBS, ApiError, Cluster, Object, Resource
from arranger.kube.manifests import leader_service, pod_manifest
from arranger.kube.translate import QUEUE_POSITION, pod_seen, status_digest
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.wanted import expires_ms, orphans, wanted_pods, wanted_status
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.model.job import Place
from arranger.model.names import LABEL_PREFIX, job_name
from arranger.model.text import one_line
from arranger.projections.jobs import LEADER, JobRecord, PlaceKey
from arranger.projections.state import Changes, State
from arranger.workers.deletions import Deletion, delete_expired, delete_pod, is_there
from arranger.workers.follower import Follower, Writer
from arranger.workers.identity import ClusterIdentity, ForeignCluster
from arranger.workers.membership import Membership
from arranger.workers.reporter import Reporter, Told, step_of
from arranger.workers.retries import Retries
from arranger.workers.timekeeping import is_right

_log = logging.getLogger(__name__)

ROLE = "applier"
#: All jobs are looked at this often: shares change hands, and an effect may have been lost.
_SWEEP_S = 5.0
#: How soon to look again with a projection that wasn't fresh.
_STALE_S = 0.2
#: An effect that the API server took is not repeated for so long, while the watch hasn't shown it yet.
_SETTLE_S = 10.0
#: After a conflict, the watch is given so long to show what was changed; longer after each further one, up to a sweep.
_CONFLICT_S = 0.1
#: A place whose pod was refused is tried again after so long: more than once within `refused_grace_s`. From the third
#: refusal on each wait is twice as long, up to a bound: what stays refused so long isn't passing.
_REFUSED_S, _LONGEST_REFUSED_S = 2.0, 30.0
#: By so much a timer is later than what it waits for, which else may be some rounding away still.
_LATER_S = 0.01
#: Pods whose TYJob is gone are Kubernetes' to delete for this long, in seconds, and ours after it.
_COLLECTED_S = 10.0
#: What is left of an earlier job of the same name is told when it has stood in the way for so long.
_LEFTOVER_S = 10.0
#: What the API server found invalid is tried again after so long.
_HOPELESS_S = 60.0
#: Looking at a job costs about a microsecond a pod, so a job rests after each look for this long a pod: a job of 5,000
#: workers whose pods change all the time costs a few percent of a processor, not all of it.
_REST_A_POD_S = 20e-6
#: A shorter rest isn't worth a timer.
_LEAST_REST_S = 0.002
#: A job about which more is decided in a moment is told so once: its status waits for that so long.
_PASSING_S = 1.0
#: Statuses that differ in counts alone are written at most this often.
_COUNTS_S = 0.5

#: What the log keeps of the words of a refusal, in characters: webhooks say in it whatever they like.
_LONGEST_REASON, _LONGEST_DETAIL = 100, 500

#: What the API server says when admission refuses, or can't be asked.
_ADMISSION = ("admission webhook ", "failed calling webhook ", "ValidatingAdmissionPolicy ")

#: Every field of the status; a merge patch clears one only if it is named.
_STATUS_FIELDS = (
    "stage", "scheduleState", "attempt", "restarts", "restartsOfEarlierPods", "leaderAddress", "totalWorkers",
    "readyWorkers", "ready", "allocations", "workers", "message", "conditions", "observedGeneration", "startTime",
    "completionTime", QUEUE_POSITION,
)  # fmt: skip
#: Jobs up to this place in the queue are told when it changes; all of them would be a storm.
_NEAR = 10
#: The order of the queue is worked out at most this often.
_QUEUE_S = 5.0
#: What a new epoch needs to take a job over, and what a user waits for: written at once.
_URGENT_FIELDS = (
    "stage", "scheduleState", "attempt", "restartsOfEarlierPods", "leaderAddress", "allocations", "message",
    "observedGeneration",
)  # fmt: skip
_URGENT_OF_A_SET = ("restartsOfEarlierPods", "givenUp")


class _Progress(msgspec.Struct):
    """What this process knows of one job beyond the projection: effects on their way, and the status as stored."""

    digest: str = ""
    urgent: str = ""
    #: When the status was last stored by us, and the resourceVersion that the TYJob got by it ("" if outdated).
    written_s: float = -_SETTLE_S
    resource_version: str = ""
    #: The resourceVersion that the watch had shown when the status was stored; what it shows now, and since when.
    based_on: str = ""
    seen: tuple[str, float] = ("", 0.0)
    #: Conflicts since the status was last stored.
    conflicts: int = 0
    told: Told = msgspec.field(default_factory=Told)
    #: The status that the API server finds invalid for this TYJob as it is, and since when.
    invalid: tuple[str, str] = ("", "")
    invalid_s: float = 0.0
    #: (attempt, place) or pod UID → when the API server took the effect.
    settling: dict[Any, float] = msgspec.field(default_factory=dict)
    #: (attempt, place) → why its pod was refused, as it was told last.
    refused: dict[Any, str] = msgspec.field(default_factory=dict)
    #: (attempt, place) → how often its pod was refused.
    tries: dict[Any, int] = msgspec.field(default_factory=dict)
    #: (attempt, place) → the same since the log knows that the pod is refused on the node that the place has now.
    in_a_row: dict[Any, int] = msgspec.field(default_factory=dict)
    #: (attempt, place) → since when something of an earlier job that goes has its name.
    leftover: dict[Any, float] = msgspec.field(default_factory=dict)
    template: Object | None = None
    #: The version at which the job was found in passing, and when: it is on its way to the next decision.
    passing: tuple[int, float] = (0, 0.0)
    #: The attempt in which the leader's Service was last made or found; -1 for none.
    served: int = -1
    #: The place in the queue that was stored last.
    position: int | None = None
    #: Since when pods of the job are there and the job is not in the projection; None while it is.
    orphaned_s: float | None = None


class _Queue:
    """Places in the queue, worked out anew once in a while."""

    def __init__(self, order: Callable[[State], list[JobRecord]] | None) -> None:
        self._order = order
        self._places: dict[str, int] = {}
        self._since_s = -math.inf

    def position(self, state: State, job: JobRecord, now_s: float) -> int | None:
        """The place of a job without any nodes, from 1; None if it isn't in the queue."""
        if self._order is None or job.placements or job.ended or job.suspended:
            return None
        if now_s - self._since_s >= _QUEUE_S:
            self._places = {of.uid: place for place, of in enumerate(self._order(state), start=1)}
            self._since_s = now_s
        return self._places.get(job.uid)


class Applier:
    """Carries out the decisions on the jobs that are this member's share."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        follower: Follower,
        writer: Writer,
        membership: Membership,
        clock: Clock,
        metrics: Metrics,
        in_flight: int,
        lost_ms: int = LifecycleConfig().lost_ms,
        order: Callable[[State], list[JobRecord]] | None = None,
        identity: ClusterIdentity | None = None,
    ) -> None:
        """`order` gives the waiting jobs in the order of the queue, for `status.queuePosition`.

        `identity` tells whether the cluster is the log's; without one it is taken for it.
        """
        self._cluster = cluster
        self._follower = follower
        self._writer = writer
        self._membership = membership
        self._clock = clock
        self._metrics = metrics
        self._lost_ms = lost_ms
        self._identity = identity
        self._queue = _Queue(order)
        self._reporter = Reporter(cluster, clock)
        self._slots = asyncio.Semaphore(in_flight)
        self._touched: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, _Progress] = {}
        self._again: dict[str, asyncio.TimerHandle] = {}
        self._retries = Retries(clock)

    def changed(self, changes: Changes) -> None:
        """Look at what was touched."""
        self._touched.update(changes.jobs)
        if changes.jobs:
            self._woken.set()

    def epoch_began(self) -> None:
        """Nothing derived from another projection counts any more."""
        self._touched.clear()
        self._progress.clear()
        self._retries.clear()

    async def run(self) -> None:
        """Apply until cancelled; then what is in flight is let finish."""
        swept_s = self._clock.monotonic_s()
        try:
            while True:
                try:
                    async with asyncio.timeout(_SWEEP_S):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                self._woken.clear()
                if self._clock.monotonic_s() - swept_s >= _SWEEP_S:
                    self._sweep()
                    swept_s = self._clock.monotonic_s()
                self._start_touched()
        finally:
            for handle in self._again.values():
                handle.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _sweep(self) -> None:
        state = self._follower.state
        self._touched.update(dict.fromkeys([*state.jobs, *(uid for uid in state.pods_of if uid not in state.jobs)]))
        for uid in [uid for uid in self._progress if uid not in state.jobs and uid not in state.pods_of]:
            del self._progress[uid]
        for uid in [uid for uid in self._retries.failing() if uid not in state.jobs and uid not in state.pods_of]:
            self._retries.forget(uid)

    def _start_touched(self) -> None:
        """One task a job at a time; a job that is touched while its task runs is looked at again after it.

        One whose effects failed is looked at when it has rested.
        """
        if not self._follower.state.synced:
            return
        for uid in [uid for uid in self._touched if uid not in self._running]:
            del self._touched[uid]
            if self._membership.owns(uid, ROLE):
                rest_s = self._retries.rest_s(uid, version=self._version(uid))
                if rest_s > 0:
                    self._look_again(uid, rest_s)
                    continue
                task = asyncio.create_task(self._mend(uid), name=f"apply-{uid}")
                self._running[uid] = task
                task.add_done_callback(lambda _, uid=uid: self._finished(uid))  # type: ignore[misc]
            else:
                self._progress.pop(uid, None)  # what was known of it is outdated when the share comes back
                self._retries.forget(uid)

    def _finished(self, uid: str) -> None:
        del self._running[uid]
        if uid in self._touched:
            self._woken.set()

    def _version(self, uid: str) -> int:
        """The version of a job as the projection has it; 0 for one that is gone."""
        job = self._follower.state.jobs.get(uid)
        return job.version if job is not None else 0

    def _look_again(self, uid: str, after_s: float) -> None:
        """Look at a job in a while, or sooner if that was said before."""

        def touch() -> None:
            self._again.pop(uid, None)
            self._touched[uid] = None
            self._woken.set()

        loop = asyncio.get_running_loop()
        planned = self._again.get(uid)
        if planned is not None:
            if planned.when() <= loop.time() + after_s:
                return
            planned.cancel()
        self._again[uid] = loop.call_later(after_s, touch)

    # --- one job -------------------------------------------------------------------------------------------

    async def _mend(self, uid: str) -> None:
        """Close the difference for one job as the projection shows it now, then let a large one rest."""
        job = self._follower.state.jobs.get(uid)
        await self._close(uid, job)
        rest_s = len(job.placements) * _REST_A_POD_S if job is not None else 0.0
        if rest_s > _LEAST_REST_S:
            await self._clock.sleep(rest_s)

    async def _close(self, uid: str, job: JobRecord | None) -> None:
        """One look at one job, and the effects that follow from it."""
        if not self._may_act():
            self._look_again(uid, _STALE_S)
            return
        version = job.version if job is not None else 0
        try:
            if job is None:
                await self._delete_orphans(uid)
            elif job.seen.deleting:
                await self._mend_pods(job, self._progress.setdefault(uid, _Progress()))
            else:
                progress = self._progress.setdefault(uid, _Progress())
                progress.orphaned_s = None
                if await self._status_stands(job, progress):
                    await self._mend_pods(job, progress)
                    await self._expire(job, progress)
            self._retries.forget(uid)
        except ClockOff:  # since we began
            self._look_again(uid, _STALE_S)
        except (ClusterError, EpochLost) as problem:
            log_event(_log, "an effect is tried again", level=logging.WARNING, job=uid, problem=problem)
            self._rest(uid, version, asked_s=getattr(problem, "retry_after_s", 0.0))
        except Exception as problem:
            log_event(_log, "applying failed", level=logging.ERROR, exc_info=problem, job=uid)
            self._rest(uid, version)

    def _rest(self, uid: str, version: int, *, asked_s: float = 0.0) -> None:
        """Look at a job whose effects failed again once it has rested."""
        self._look_again(uid, self._retries.failed(uid, version=version, asked_s=asked_s))

    def _may_act(self) -> bool:
        """Whether this process knows what is so, what time it is and whose log it reads: with the log away, or after a
        pause, its state may be long past; by a wrong clock jobs expire and nodes are lost too early; and what another
        cluster's log wants is none of our API server's business."""
        known = self._identity is None or self._identity.ours(self._follower.cluster)
        return known and self._follower.fresh() and is_right(self._clock)

    async def _delete_orphans(self, uid: str) -> None:
        """Delete what a TYJob left behind, if it is gone: the log alone is no reason to delete its pods."""
        gone = orphans(self._follower.state, uid, now_ms=self._clock.now_ms(), lost_ms=self._lost_ms)
        pods = [(pod, force) for chosen, force in ((gone.delete, False), (gone.force, True)) for pod in chosen]
        progress = self._progress.setdefault(uid, _Progress())
        now_s = self._clock.monotonic_s()
        if progress.orphaned_s is None:
            progress.orphaned_s = now_s
        if pods and now_s < progress.orphaned_s + _COLLECTED_S:
            # Or the TYJob is new, and its watch is later than that of the pods.
            self._look_again(uid, progress.orphaned_s + _COLLECTED_S - now_s)
            return
        settling = progress.settling
        pods = [(pod, force) for pod, force in pods if now_s - settling.get(pod.uid, -_SETTLE_S) >= _SETTLE_S]
        names = ((pod.namespace, job_name(pod.name, pod.owner)) for pod, _ in pods if pod.owner is not None)
        for namespace, name in dict.fromkeys(names):
            if await is_there(self._cluster, namespace, name, uid):
                log_event(_log, "a TYJob that the log has lost is there", level=logging.WARNING, job=name, uid=uid)
                return
        await self._together([self._delete(uid, pod, force=force, orphan=True) for pod, force in pods])

    async def _delete_pod(self, uid: str, pod: PodSeen, *, force: bool, orphan: bool) -> bool:
        """Delete a pod that belongs to this TYJob; False if it doesn't, or changes all the time."""
        # Whose TYJob is gone is no orphan any more once the log has seen the TYJob, whose watch may be late.
        deletion = await delete_pod(
            self._cluster, pod, uid, force=force, still=lambda: not orphan or uid not in self._follower.state.jobs
        )
        if deletion == Deletion.NOT_OURS:
            log_event(
                _log, "a pod that isn't the job's is not deleted", level=logging.WARNING,
                pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, job=uid,
            )  # fmt: skip
        return deletion in (Deletion.DELETED, Deletion.GONE)

    async def _status_stands(self, job: JobRecord, progress: _Progress) -> bool:
        """Store the status that explains the wanted pods; True once the projection's present one is stored."""
        now_s = self._clock.monotonic_s()
        if _in_passing(job) and self._passes(job, progress, now_s):
            return False
        status = wanted_status(self._follower.state, job)
        digest = status_digest(status)
        unseen = digest == progress.digest and not self._settled(job, progress, now_s)
        status[QUEUE_POSITION] = position = self._queue.position(self._follower.state, job, now_s)
        moved = position is not None and position <= _NEAR and position != progress.position
        if (digest == job.seen.status_digest or unseen) and not moved:
            progress.told.step = progress.told.step or step_of(job)
            return True
        urgent = _key(status)
        wait_s = progress.written_s + _COUNTS_S - now_s
        if urgent == progress.urgent and wait_s > 0:
            self._look_again(job.uid, wait_s)
            return True  # only counts differ
        if (digest, job.seen.resource_version) == progress.invalid and now_s - progress.invalid_s < _HOPELESS_S:
            return False
        version, based_on = job.version, job.seen.resource_version
        known = progress.resource_version or job.seen.resource_version
        if not await self._effect("status", lambda: self._patch_status(job, status, progress, known=known)):
            return False
        progress.digest, progress.urgent, progress.written_s = digest, urgent, self._clock.monotonic_s()
        progress.based_on = based_on
        progress.position = position
        await self._reporter.report(job, progress.told)
        if not self._still(job, version):  # decided anew meanwhile: that status isn't stored yet
            self._look_again(job.uid, 0.0)
            return False
        return True

    def _settled(self, job: JobRecord, progress: _Progress, now_s: float) -> bool:
        """Whether the watch has had its time to show the status that was stored last.

        It hasn't while it shows nothing new of the job, or does step by step: a watch that is late is a busy server's,
        and the same status again would make that later still.
        """
        seen = job.seen.resource_version
        if seen == progress.based_on:
            return False
        if seen != progress.seen[0]:
            progress.seen = (seen, now_s)
        return now_s - max(progress.written_s, progress.seen[1]) >= _SETTLE_S

    def _passes(self, job: JobRecord, progress: _Progress, now_s: float) -> bool:
        """Whether the next decision on a job in passing may still be awaited."""
        if progress.passing[0] != job.version:
            progress.passing = (job.version, now_s)
        left_s = progress.passing[1] + _PASSING_S - now_s
        if left_s > 0:
            self._look_again(job.uid, left_s)
        return left_s > 0

    async def _expire(self, job: JobRecord, progress: _Progress) -> None:
        """Delete the ended TYJob itself once it was kept for as long as it asks; its pods follow it.

        Only one whose end its own status has told, and only as it was seen: who changed it since may want to keep it.
        """
        due_ms = expires_ms(job)
        if due_ms is None or job.uid in progress.settling:
            return
        wait_s = (due_ms - self._clock.now_ms()) / 1000
        if wait_s > 0:
            if wait_s < _SWEEP_S:
                self._look_again(job.uid, wait_s)
            return
        seen = job.seen
        if seen.status_digest != status_digest(wanted_status(self._follower.state, job)):
            return  # not stored, or not seen, yet: either is looked at again

        async def delete() -> bool:
            assert job.spec is not None and job.spec.ttl_s is not None
            deletion = await delete_expired(
                self._cluster, seen.namespace, seen.name, job.uid, ttl_s=job.spec.ttl_s, now_ms=self._clock.now_ms()
            )
            return deletion in (Deletion.DELETED, Deletion.GONE)

        await self._effect("expire", delete)
        progress.settling[job.uid] = self._clock.monotonic_s()

    def _still(self, job: JobRecord, version: int) -> bool:
        """Whether the job is as it was at that version: nothing decided anew, and its epoch hasn't ended."""
        return job.version == version and self._follower.state.jobs.get(job.uid) is job

    async def _patch_status(self, job: JobRecord, status: Object, progress: _Progress, *, known: str) -> bool:
        """Store a status unless the TYJob has changed since what we know of it: only then is ours the later one.

        Whatever changed it stands in the log behind the decisions that it shows. Who has folded that far may write.
        `known` is the resourceVersion that was known when the status was made, which may wait for its turn since.
        """
        seen = job.seen
        body = {
            "metadata": {"uid": job.uid, "resourceVersion": known},  # never the status of another job of that name
            "status": {name: status.get(name) for name in _STATUS_FIELDS},
        }
        try:
            stored = await self._cluster.patch(TYJOBS, seen.namespace, seen.name, body, subresource="status")
        except ApiError as refused:
            if refused.code == 409:
                progress.resource_version = ""
                self._look_again(job.uid, min(_CONFLICT_S * 2**progress.conflicts, _SWEEP_S))
                progress.conflicts += 1
            if refused.code == 422:  # an object older than its schema may be beyond any write: then an Event tells it
                progress.invalid = (status_digest(status), seen.resource_version)
                progress.invalid_s = self._clock.monotonic_s()
                log_event(_log, "a status is refused", level=logging.WARNING, job=seen.name, problem=refused)
                await self._reporter.report(job, progress.told)
            if refused.code in (404, 409, 422):
                return False
            raise
        progress.resource_version = stored["metadata"]["resourceVersion"]
        progress.conflicts = 0
        return True

    async def _mend_pods(self, job: JobRecord, progress: _Progress) -> None:
        version = job.version
        state = self._follower.state
        now_s = self._clock.monotonic_s()
        progress.settling = {
            key: since_s
            for key, since_s in progress.settling.items()
            if now_s - since_s < _SETTLE_S and not (isinstance(key, tuple) and key[1] in job.bound)
        }
        for known in (progress.refused, progress.tries, progress.in_a_row, progress.leftover):
            for key in [key for key in known if key[0] != job.attempt]:
                del known[key]
        wanted = wanted_pods(state, job, now_ms=self._clock.now_ms(), lost_ms=self._lost_ms)
        effects: list[Awaitable[bool]] = []
        create = [(place, node) for place, node in wanted.create if (job.attempt, place) not in progress.settling]
        if create:
            template = await self._template(job, progress)
            if template is None or not self._still(job, version):
                return
            if not await self._service_stands(job, version, template, progress):
                return
            effects += [
                self._create(job, place, node, version=version, template=template, progress=progress)
                for place, node in create
            ]
        effects += [
            self._delete(job.uid, pod, force=pods is wanted.force)
            for pods in (wanted.delete, wanted.force)
            for pod in pods
            if pod.uid not in progress.settling
        ]
        await self._together(effects)

    async def _template(self, job: JobRecord, progress: _Progress) -> Object | None:
        """The TYJob itself, whose templates the pods are made from, just as the log has seen it: for other templates
        nobody has decided on room. None if it is another one now."""
        held = progress.template
        if held is None or held["metadata"]["generation"] != job.seen.generation:
            try:
                held = await self._cluster.get(TYJOBS, job.seen.namespace, job.seen.name)
            except ApiError as refused:
                if refused.code == 404:
                    return None
                raise
            progress.template = held
        if held["metadata"]["uid"] != job.uid:
            return None
        if held["metadata"]["generation"] != job.seen.generation:
            self._look_again(job.uid, _STALE_S)
            return None
        return held

    async def _together(self, effects: list[Awaitable[bool]]) -> None:
        """All at once; the first fault is raised when every one has ended."""
        for result in await asyncio.gather(*effects, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _service_stands(self, job: JobRecord, version: int, template: Object, progress: _Progress) -> bool:
        """Have the Service that the job asks for before any of its pods, once in each attempt; False if it isn't there,
        or if the job was decided anew meanwhile."""
        service = leader_service(template)
        key = (job.attempt, LEADER)
        if service is None or progress.served == job.attempt:
            return True
        if key in progress.settling:  # refused a moment ago
            return False
        attempt = job.attempt

        async def create() -> bool:
            return await self._create_object(job, version, LEADER, SERVICES, service)

        if not await self._effect("serve", create):
            return False
        progress.served = attempt
        return self._still(job, version)

    # --- effects -------------------------------------------------------------------------------------------

    async def _effect(self, name: str, effect: Callable[[], Awaitable[bool]]) -> bool:
        """Carry out one effect in one of the slots, and count it; ended while it waits for one, it never begins."""
        async with self._slots:
            if self._identity is not None and self._identity.foreign(self._follower.cluster):
                raise ForeignCluster(self._identity.uid, self._follower.cluster)
            self._metrics.effects_in_flight.inc()
            try:
                done = await effect()
                self._metrics.effects.labels(name, "ok" if done else "refused").inc()
                return done
            except ClusterError:
                self._metrics.effects.labels(name, "failed").inc()
                raise
            finally:
                self._metrics.effects_in_flight.dec()

    async def _create(
        self, job: JobRecord, place: PlaceKey, node: str, *, version: int, template: Object, progress: _Progress
    ) -> bool:
        if not self._still(job, version):  # this begins later than it was wanted: another attempt has other nodes
            return False
        attempt = job.attempt
        pod = pod_manifest(
            template, group=place[0], index=place[1], attempt=attempt, node=node, leader_address=job.leader_address
        )
        if await self._effect("create", lambda: self._create_object(job, version, place, PODS, pod)):
            progress.settling[(attempt, place)] = self._clock.monotonic_s()
            return True
        return False

    async def _create_object(
        self, job: JobRecord, version: int, place: PlaceKey, resource: Resource, body: Object
    ) -> bool:
        """Create the pod of a place, or for the leader's place its Service."""
        namespace = job.seen.namespace
        if not self._still(job, version) or not self._may_act():  # while it waited for its turn
            self._look_again(job.uid, _STALE_S)
            return False
        try:
            await self._cluster.create(resource, namespace, body)
            return True
        except ApiError as refused:
            if refused.code == 409 and refused.reason == "AlreadyExists":
                node = body["spec"].get("nodeName")
                return await self._ours(job, place, resource, body["metadata"]["name"], node=node)
            if refused.code == 429 or (refused.code >= 500 and not _by_admission(refused)):
                raise
            await self._refused(job, place, refused)
            return False

    async def _ours(
        self, job: JobRecord, place: PlaceKey, resource: Resource, name: str, *, node: str | None = None
    ) -> bool:
        """An object of that name exists: ours by owner UID, or a stranger's, which we never touch. A pod must tell
        its place too, else nobody will ever see it there, and be on the node decided: another one has to go first."""
        try:
            there = await self._cluster.get(resource, job.seen.namespace, name)
        except ApiError as refused:
            if refused.code == 404:  # it has just gone
                self._look_again(job.uid, 0.2)
                return False
            raise
        owners = there["metadata"].get("ownerReferences") or ()
        mine = any(owner.get("uid") == job.uid for owner in owners)
        late = mine and node is not None and there["spec"].get("nodeName") != node
        going = late or bool(there["metadata"].get("deletionTimestamp"))
        if mine and not going:
            if resource != PODS or pod_seen(there, 0).owner is not None:
                return True
            what = f"the labels {LABEL_PREFIX}* of pod {name} were changed; delete it"
            await self._refused(job, place, ApiError(409, "AlreadyExists", what))
            return False
        jobs = self._follower.state.jobs
        passing = any(owner.get("kind") == TYJOBS.kind and owner.get("uid") not in jobs for owner in owners)
        if not going and not passing:
            what = f"a {resource.kind.lower()} named {name} exists that isn't this job's; rename or delete it"
            await self._refused(job, place, ApiError(409, "AlreadyExists", what))
        else:  # that of an earlier job of this name, or one that is going
            leftover = self._progress.setdefault(job.uid, _Progress()).leftover
            now_s = self._clock.monotonic_s()
            waited_s = now_s - leftover.setdefault((job.attempt, place), now_s)
            if waited_s >= _LEFTOVER_S:
                what = (
                    f"a {resource.kind.lower()} named {name} of an earlier job hasn't gone; delete it if it doesn't go"
                )
                await self._refused(job, place, ApiError(409, "AlreadyExists", what))
            else:  # ever later: what hasn't gone by now may take as long again
                self._look_again(job.uid, max(waited_s / 2, _STALE_S))
        return False

    async def _refused(self, job: JobRecord, place: PlaceKey, refused: ApiError) -> None:
        """Tell the log, once for each place, and go on trying after a while unless it can't help."""
        if self._identity is not None:  # what another cluster refuses at this address says nothing of the job
            await self._identity.confirm(self._follower.cluster)
        permanent = refused.code in (400, 422) and not _by_admission(refused)
        reason, detail = one_line(refused.reason)[:_LONGEST_REASON], one_line(refused.detail)[:_LONGEST_DETAIL]
        progress, key = self._progress.setdefault(job.uid, _Progress()), (job.attempt, place)
        unknown = place in job.placements and place not in job.refused_places
        tries = progress.tries[key] = progress.tries.get(key, 0) + 1
        in_a_row = progress.in_a_row[key] = 1 if unknown else progress.in_a_row.get(key, 0) + 1
        failed = EffectFailed(
            job.uid, job.attempt, "create", Place(*place), refused.code, reason, detail, permanent, tries
        )  # fmt: skip
        log_event(_log, "the API server refuses a pod", level=logging.WARNING, job=job.seen.name, problem=refused)
        if job.failure is None or unknown or progress.refused.get(key) != failed.message:
            await self._writer.append([failed])
            progress.refused[key] = failed.message
        if not permanent:
            # What was told touches the job: without this rest, two such places would be told in turn without end.
            rest_s = min(_REFUSED_S * 2.0 ** max(min(in_a_row, 9) - 2, 0), _LONGEST_REFUSED_S)
            rest_s = rest_s if in_a_row <= 2 else self._retries.spread_s(rest_s)
            progress.settling[key] = self._clock.monotonic_s() - _SETTLE_S + rest_s
            self._look_again(job.uid, rest_s + _LATER_S)

    async def _delete(self, job_uid: str, pod: PodSeen, *, force: bool = False, orphan: bool = False) -> bool:
        done = await self._effect("delete", partial(self._delete_pod, job_uid, pod, force=force, orphan=orphan))
        self._progress.setdefault(job_uid, _Progress()).settling[pod.uid] = self._clock.monotonic_s()
        return done


def _by_admission(refused: ApiError) -> bool:
    """Whether a webhook or an admission policy is the cause, whatever its code: what they want changes by itself, and a
    webhook that is away stays so for longer than a request is worth repeating without a word."""
    return any(words in refused.detail for words in _ADMISSION)


def _in_passing(job: JobRecord) -> bool:
    """Whether a decision follows at once where all is well: on a job that is new.

    It has no pods to create or delete yet, and each status costs the API server as much as a pod.
    """
    return job.active and job.decided is None and job.waits is None and not job.seen.status_digest


def _key(status: Object) -> str:
    """What of a status must not wait; message numbers and counts may."""
    of_sets = [[of_set.get(name) for name in _URGENT_OF_A_SET] for of_set in status.get("workers", ())]
    return msgspec.json.encode([*(status.get(name) for name in _URGENT_FIELDS), of_sets]).decode()
