"""The watcher: has one kind of object observed whenever it holds the kind's lease, and claims the kind in the log.

One watcher per kind is active (a lease); taking over is a `WatchClaimed` in the log, whose offset is the term. The log
refuses a predecessor's late appends from then on (`events/fence.py`) and returns the resourceVersion to go on from.
What is done under a term is the observer's (`observer.py`), and no task of it outlives the term.
"""

import asyncio
import logging
from contextlib import suppress

from arranger.clock import Clock
from arranger.errors import ClockOff, EpochLost, LogUnavailable, WatchSuperseded
from arranger.events import kinds as k
from arranger.events.fence import CLAIM, Fence
from arranger.events.log import Appended
from arranger.kube.cluster import ApiError, Cluster, ClusterUnavailable, Watchable
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.model.checks import Check
from arranger.model.validation import TYJOB
from arranger.workers.backoff import Backoff
from arranger.workers.ending import end
from arranger.workers.follower import Follower, Writer
from arranger.workers.identity import ClusterIdentity, ConfirmedCluster, ForeignCluster
from arranger.workers.membership import Lease
from arranger.workers.observer import Observer
from arranger.workers.timekeeping import is_right

_log = logging.getLogger(__name__)

#: How soon to look again whether it is known by now which cluster this is.
_UNKNOWN_S = 0.1


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
        identity: ClusterIdentity | None = None,
    ) -> None:
        """`identity` tells whether the cluster is the log's; without one it is taken for it."""
        self._kind = kind
        self._identity = identity
        self._cluster: Watchable = cluster
        if identity is not None:
            self._cluster = ConfirmedCluster(cluster, identity, lambda: follower.cluster)
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
        #: Why the API server isn't heard now; empty when it is, or when another process watches this kind.
        self.problem = ""

    async def run(self) -> None:
        """Watch for as long as the lease is ours, stand by otherwise, until cancelled. What may not write leaves the
        watch to others."""
        backoff = Backoff(self._clock)
        while True:
            try:
                if self._may_write() and await self._lease.acquire():
                    await self._while_leased()
                    if not self._may_write():
                        await self._lease.release()
                backoff.reset()
                known = self._identity is None or self._identity.uid
                await self._clock.sleep(self._lease_s / 5 if known else _UNKNOWN_S)
            except LogUnavailable:
                await backoff.wait()
            except asyncio.CancelledError:
                with suppress(LogUnavailable):
                    await self._lease.release()
                raise

    def _may_write(self) -> bool:
        identity = self._identity
        return is_right(self._clock) and (identity is None or identity.ours(self._follower.cluster))

    async def _while_leased(self) -> None:
        active = asyncio.create_task(self._active(), name=f"watch-{self._kind}")
        try:
            while not active.done():
                await asyncio.wait([active], timeout=self._lease_s / 3)
                if not self._may_write():
                    return
                with suppress(LogUnavailable):  # without Redis nothing can be appended either
                    if not await self._lease.acquire():
                        log_event(_log, "another process took over the watch", kind=self._kind)
                        return
            with suppress(ClockOff, ForeignCluster):
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
                cluster = self._identity.uid if self._identity else ""
                claim = k.claim(self._kind, self._member_id, cluster)
                claimed = await self._writer.append_and_fold([claim], fence=Fence(self._kind, CLAIM))
                if not self._may_write():  # the log is another cluster's since a moment ago: this claim is void
                    return
                log_event(_log, "watching", kind=self._kind, term=claimed.first, epoch=epoch)
                await self._observe_in(epoch, claimed)
                if not await self._lease.acquire():
                    return
            except EpochLost:
                await self._follower.epoch_ended(epoch)
                backoff.reset()
            except (ClusterUnavailable, ApiError) as problem:
                self.problem = str(problem)
                log_event(_log, "the API server isn't heard", level=logging.WARNING, kind=self._kind, problem=problem)
                await backoff.wait()

    async def _observe_in(self, epoch: int, claimed: Appended) -> None:
        """Observe until the epoch or our term has ended, which a watch that has nothing to append wouldn't notice.

        A term ends by the claim of another, who may have lost the lease since: then nobody would be heard.
        """
        term = claimed.first
        observing = asyncio.create_task(self._observer(claimed).run(), name=f"observe-{self._kind}")
        ending = asyncio.create_task(
            self._follower.until(lambda state: (state.epoch, state.terms.get(self._kind)) != (epoch, term)),
            name=f"term-{self._kind}",
        )
        try:
            await asyncio.wait([observing, ending], return_when=asyncio.FIRST_COMPLETED)
            if observing.done():
                with suppress(WatchSuperseded):
                    await observing
        finally:
            await end([observing, ending])
        if self._follower.state.epoch != epoch:
            raise EpochLost(f"epoch {epoch} has ended")
        log_event(_log, "another process claimed the watch", kind=self._kind, term=term)

    def _observer(self, claimed: Appended) -> Observer:
        return Observer(
            self._kind,
            term=claimed.first,
            cursor=claimed.cursor,
            cluster=self._cluster,
            cluster_uid=self._identity.uid if self._identity is not None else "",
            follower=self._follower,
            writer=self._writer,
            clock=self._clock,
            metrics=self._metrics,
            relist_s=self._relist_s,
            checks=self._checks,
            tell_problem=self._tell_problem,
        )

    def _tell_problem(self, problem: str) -> None:
        self.problem = problem
