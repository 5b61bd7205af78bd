"""The watcher: lists and watches one kind of object and appends what it sees, with its place in the same step.

One watcher per kind is active (a lease); taking over is a `WatchClaimed` in the log, whose offset is the term, so
that a paused predecessor's late observations are void. It goes on from the stored resourceVersion, or lists: then it
compares the listing with the projection and appends only what differs, what has gone included.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress

import msgspec

from arranger.clock import Clock
from arranger.errors import EpochLost, LogUnavailable
from arranger.events import kinds as k
from arranger.events.log import Cursor
from arranger.kube.cluster import NODES, PODS, TYJOBS, ApiError, Change, Cluster, ClusterUnavailable, Expired, Object
from arranger.kube.translate import job_seen, job_status_seen, node_seen, pod_seen
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.model.checks import Check
from arranger.model.job import ENDED, Stage
from arranger.model.validation import TYJOB
from arranger.projections.state import State
from arranger.workers.backoff import Backoff
from arranger.workers.ending import end
from arranger.workers.follower import Follower, Writer
from arranger.workers.membership import Lease

_log = logging.getLogger(__name__)

RESOURCES = {k.Watched.NODE: NODES, k.Watched.POD: PODS, k.Watched.JOB: TYJOBS}

#: Changes that come this close together share one batch. The first after a silence goes at once.
_GATHER_S = 0.01

#: Stages in the order in which an attempt comes to them.
_ORDER: dict[str, int] = {
    Stage.PENDING: 0,
    Stage.RESCHEDULING: 0,
    Stage.STARTING: 1,
    Stage.RUNNING: 2,
    Stage.SUCCEEDED: 3,
    Stage.FAILED: 3,
}

Seen = k.NodeSeen | k.PodSeen | k.JobSeen


class Watcher:
    """Observes one kind of object, whenever it holds the kind's lease."""

    def __init__(
        self,
        kind: k.Watched,
        *,
        cluster: Cluster,
        follower: Follower,
        writer: Writer,
        lease: Lease,
        clock: Clock,
        metrics: Metrics,
        member_id: str,
        lease_s: float,
        relist_s: float,
        checks: Check = TYJOB,
    ) -> None:
        self._kind = kind
        self._cluster = cluster
        self._follower = follower
        self._writer = writer
        self._lease = lease
        self._clock = clock
        self._metrics = metrics
        self._member_id = member_id
        self._lease_s = lease_s
        self._relist_s = relist_s
        #: What a valid TYJob is, with the names of the policies installed.
        self._checks = checks
        self._term = 0
        #: The term before ours: what its cursor says can be gone on from.
        self._before = 0
        self._listed_s = 0.0
        #: Why the API server isn't heard now; empty when it is, or when another process watches this kind.
        self.problem = ""

    async def run(self) -> None:
        """Watch for as long as the lease is ours, stand by otherwise, until cancelled."""
        backoff = Backoff(self._clock)
        while True:
            try:
                if await self._lease.acquire():
                    await self._while_leased()
                backoff.reset()
                await self._clock.sleep(self._lease_s / 5)
            except LogUnavailable:
                await backoff.wait()
            except asyncio.CancelledError:
                with suppress(LogUnavailable):
                    await self._lease.release()
                raise

    async def _while_leased(self) -> None:
        active = asyncio.create_task(self._active(), name=f"watch-{self._kind}")
        try:
            while not active.done():
                await asyncio.wait([active], timeout=self._lease_s / 3)
                with suppress(LogUnavailable):  # without Redis nothing can be appended either
                    if not await self._lease.acquire():
                        log_event(_log, "another process took over the watch", kind=self._kind)
                        return
            await active
        finally:
            await end([active])
            self._metrics.forget(self._kind)

    async def _active(self) -> None:
        """Claim, then list and watch; a new epoch means a new claim."""
        backoff = Backoff(self._clock)
        while True:
            epoch = self._follower.state.epoch
            try:
                self._before = self._follower.state.terms.get(self._kind, 0)
                claimed = await self._writer.append_and_fold([k.WatchClaimed(self._kind, self._member_id)])
                self._term = claimed.first
                log_event(_log, "watching", kind=self._kind, term=self._term, epoch=epoch)
                await self._observe_in(epoch)
                if not await self._lease.acquire():
                    return
            except EpochLost:
                await self._follower.epoch_ended(epoch)
                backoff.reset()
            except (ClusterUnavailable, ApiError) as problem:
                self.problem = str(problem)
                log_event(_log, "the API server isn't heard", level=logging.WARNING, kind=self._kind, problem=problem)
                await backoff.wait()

    async def _observe_in(self, epoch: int) -> None:
        """Observe until the epoch or our term has ended, which a watch that appends void observations wouldn't notice.

        A term ends by the claim of another, who may have lost the lease since: then nobody would be heard.
        """
        observing = asyncio.create_task(self._observe(), name=f"observe-{self._kind}")
        ending = asyncio.create_task(
            self._follower.until(lambda state: (state.epoch, state.terms.get(self._kind)) != (epoch, self._term))
        )
        try:
            await asyncio.wait([observing, ending], return_when=asyncio.FIRST_COMPLETED)
            if observing.done():
                await observing
        finally:
            await end([observing, ending])
        if self._follower.state.epoch != epoch:
            raise EpochLost(f"epoch {epoch} has ended")
        log_event(_log, "another process claimed the watch", kind=self._kind, term=self._term)

    async def _observe(self) -> None:
        """Go on where the last watcher stopped, or list; then watch. Ends only by an exception."""
        listed = self._follower.state.listed.get(self._kind, False)
        version = (listed and await self._resumable()) or await self._list("first listing")
        self._listed_s = self._clock.monotonic_s()  # who goes on from a cursor compares later too
        backoff = Backoff(self._clock)
        while True:
            try:
                if self._clock.monotonic_s() - self._listed_s > self._relist_s:
                    version = await self._list("periodic comparison")
                version = await self._watch(version)
                self.problem = ""
                backoff.reset()
            except Expired:
                version = await self._list("resourceVersion too old")
            except ClusterUnavailable as problem:
                self.problem = str(problem)
                log_event(_log, "watch broke off", level=logging.WARNING, kind=self._kind, problem=problem)
                await backoff.wait()

    async def _resumable(self) -> str:
        """The resourceVersion up to which the watcher before us has appended; empty when it isn't known.

        One that has lost its lease without noticing may have stored its own: that is void like what came with it.
        """
        term, _, version = (await self._follower.log.cursor(self._kind) or "").partition(":")
        return version if term == str(self._before) else ""

    def _cursor(self, version: str) -> Cursor:
        return Cursor(self._kind, f"{self._term}:{version}")

    async def _hold_log_to(self, items: Sequence[Object], *, listing: bool) -> None:
        """Notice a log that has lost its tail while nobody ran who had read it: a TYJob's status is ahead of it then.

        A status is written after the decision that it shows was folded, so the log as it is now must hold that. Where
        it doesn't, a new epoch begins, which takes the jobs over from their statuses. Raises `EpochLost`.
        """
        if self._kind != k.Watched.JOB:
            return
        state = self._follower.state
        suspects = [item for item in items if ahead_of_log(item, state, adopts=listing)]
        if not suspects or not await self._follower.catch_up():
            return
        names = [item["metadata"]["name"] for item in suspects if ahead_of_log(item, state, adopts=listing)]
        if names:
            reason = f"the status of TYJob {names[0]} shows a decision that the log doesn't hold: its tail was lost"
            log_event(_log, "the log has lost its tail", level=logging.WARNING, reason=reason)
            await self._follower.log.begin_epoch(lost=state.epoch, reason=reason, told_ms=self._clock.now_ms())
            raise EpochLost(reason)

    # --- listing -------------------------------------------------------------------------------------------

    async def _list(self, reason: str) -> str:
        """Append what differs between the API server and the projection; answers where to watch from."""
        self._metrics.relists.labels(self._kind, reason).inc()
        while True:
            with suppress(Expired):  # the listing outlived its continuation
                return await self._list_once(reason)

    async def _list_once(self, reason: str) -> str:
        await self._writer.append_and_fold([k.ListingBegun(self._kind, self._term)])
        there: set[str] = set()
        version = ""
        async with aclosing(self._cluster.listing(RESOURCES[self._kind])) as pages:
            async for page in pages:
                version = page.resource_version
                await self._hold_log_to(page.items, listing=True)
                seen = [self._translate(item, with_status=True) for item in page.items]
                there.update(event.uid for event in seen)
                news = [event for event in seen if not self._known(event)]
                if news:
                    await self._append(news)
        gone = [event for uid, event in projected(self._follower.state, self._kind, self._term) if uid not in there]
        ended = k.ListingEnded(self._kind, self._term, version)
        await self._writer.append_and_fold([*gone, ended], cursor=self._cursor(version))
        self._listed_s = self._clock.monotonic_s()
        self._metrics.heard(self._kind)
        self.problem = ""
        log_event(_log, "listed", kind=self._kind, objects=len(there), gone=len(gone), reason=reason)
        return version

    # --- watching ------------------------------------------------------------------------------------------

    async def _watch(self, version: str) -> str:
        """One watch, until the server ends it; answers where the next one begins."""
        async with aclosing(self._cluster.watch(RESOURCES[self._kind], version)) as batches:
            async for changes in batches:
                self._metrics.heard(self._kind)
                self.problem = ""
                version = changes[-1].resource_version or version
                there = [change.object for change in changes if change.type in ("ADDED", "MODIFIED")]
                await self._hold_log_to(there, listing=False)
                events = self._news(changes)
                if events:
                    await self._append(events, cursor=self._cursor(version))
                    await self._clock.sleep(_GATHER_S)
        return version

    def _news(self, changes: Sequence[Change]) -> list[k.Event]:
        """The observations in some changes, without those that only repeat what the projection holds."""
        events: list[k.Event] = []
        touched: set[str] = set()
        for change in changes:
            if change.type == "BOOKMARK":
                continue
            seen = self._translate(change.object, with_status=change.type == "ADDED")
            if change.type == "DELETED":
                events.append(gone_event(seen))
            elif seen.uid in touched or not self._known(seen):
                events.append(seen)
            touched.add(seen.uid)
        return events

    async def _append(self, events: Sequence[k.Event], cursor: Cursor | None = None) -> None:
        # Folded before the next comparison, so that "known" means known and not merely on its way.
        await self._writer.append_and_fold(events, cursor=cursor)
        self._metrics.observations.labels(self._kind).inc(len(events))

    def _translate(self, item: Object, *, with_status: bool) -> Seen:
        if self._kind == k.Watched.NODE:
            return node_seen(item, self._term)
        if self._kind == k.Watched.POD:
            return _without_far_owner(pod_seen(item, self._term), self._follower.state)
        return job_seen(item, self._term, with_status=with_status, checks=self._checks)

    def _known(self, event: Seen) -> bool:
        """Whether the projection holds just this; the term aside, and a resourceVersion that says no more."""
        state = self._follower.state
        if isinstance(event, k.NodeSeen):
            row = state.nodes.rows.get(event.name)
            return row is not None and (state.nodes.uids[row], state.nodes.facts[row]) == (event.uid, event.facts)
        if isinstance(event, k.PodSeen):
            pod = state.pods.get(event.uid)
            return pod is not None and _same(pod, event, ("term", "resource_version"))
        job = state.jobs.get(event.uid)
        # Who writes a status must know the TYJob's resourceVersion.
        return job is not None and _same(job.seen, event, ("term", "status"))


def _without_far_owner(pod: k.PodSeen, state: State) -> k.PodSeen:
    """A pod as it was seen, nobody's if it names a job of another namespace as its owner: no API server looks whether
    that is there, and the pod would fill the job's place until the garbage collector takes it."""
    job = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
    if job is None or job.seen.namespace == pod.namespace:
        return pod
    return msgspec.structs.replace(pod, owner=None)


def ahead_of_log(item: Object, state: State, *, adopts: bool) -> bool:
    """Whether a TYJob's status shows a stage or an attempt that the projection hasn't come to.

    A job that isn't in the projection is adopted with its status from a listing; otherwise it can't have one yet.
    """
    job = state.jobs.get(item["metadata"]["uid"])
    status = item.get("status")
    shown = job_status_seen(status, None) if isinstance(status, dict) else None
    if shown is None or shown.stage not in _ORDER:
        return False
    if job is None:
        return not adopts
    if shown.stage in ENDED:
        return shown.stage != job.stage  # final, whatever else was decided since
    return (shown.attempt, _ORDER[shown.stage]) > (job.attempt, _ORDER[job.stage])


def _same(old: k.PodSeen | k.JobSeen, new: k.PodSeen | k.JobSeen, aside: tuple[str, ...]) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in old.__struct_fields__ if name not in aside)


def projected(state: State, kind: k.Watched, term: int) -> list[tuple[str, k.Event]]:
    """UID and "gone" event of everything of a kind in the projection, in a fixed order."""
    if kind == k.Watched.NODE:
        nodes = state.nodes
        rows = [(name, nodes.uids[row]) for name, row in sorted(nodes.rows.items()) if nodes.present(row)]
        return [(uid, k.NodeGone(term, name, uid)) for name, uid in rows]
    if kind == k.Watched.POD:
        pods = [state.pods[uid] for uid in sorted(state.pods)]
        return [(pod.uid, k.PodGone(term, pod.namespace, pod.name, pod.uid)) for pod in pods]
    jobs = [state.jobs[uid].seen for uid in sorted(state.jobs)]
    return [(job.uid, k.JobGone(term, job.namespace, job.name, job.uid)) for job in jobs]


def gone_event(seen: Seen) -> k.Event:
    """The "gone" event for an object that was deleted."""
    if isinstance(seen, k.NodeSeen):
        return k.NodeGone(seen.term, seen.name, seen.uid)
    if isinstance(seen, k.PodSeen):
        return k.PodGone(seen.term, seen.namespace, seen.name, seen.uid)
    return k.JobGone(seen.term, seen.namespace, seen.name, seen.uid)
