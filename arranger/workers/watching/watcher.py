"""The watcher: observes one kind of object whenever it holds the kind's lease, and claims the kind in the log.

One watcher per kind is active (a lease). A takeover is a `WatchClaimed` in the log, whose offset is the term. From then
on the log refuses a predecessor's late appends (`events/fence.py`), and it returns the resourceVersion to continue
from. The observer (`observer.py`) does the work under a term, and none of its tasks outlives the term.
"""

import asyncio
import logging
from contextlib import suppress

from arranger.errors import ClockOff, EpochLost, LogUnavailable, WatchSuperseded
from arranger.events import kinds as k
from arranger.events.fence import CLAIM, Fence
from arranger.events.log import Appended
from arranger.kube.cluster import ApiError, ClusterUnavailable
from arranger.logs import log_event
from arranger.workers.flow.backoff import Backoff
from arranger.workers.flow.cancelling import end
from arranger.workers.log.identity import ForeignCluster
from arranger.workers.parts import Parts
from arranger.workers.watching.observer import Observer

_log = logging.getLogger(__name__)

#: Delay before checking again whether the identity of the cluster is known.
_UNKNOWN_S = 0.1


class Watcher:
    """Observes one kind of object, whenever it holds the kind's lease."""

    def __init__(self, kind: k.Watched, parts: Parts) -> None:
        self._kind = kind
        self._parts = parts
        self._identity = parts.identity
        self._follower = parts.follower
        self._writer = parts.writer(f"watcher-{kind}")
        self._lease = parts.lease(f"watch-{kind}")
        self._clock = parts.time
        self._lease_s = parts.settings.lease_s
        #: Why the API server can't be observed now; empty if it can, or if another process watches this kind.
        self.problem = ""

    async def run(self) -> None:
        """Watch while the lease is ours, stand by otherwise, until cancelled. A process that may not write leaves the
        watch to other processes."""
        backoff = Backoff(self._clock)
        while True:
            try:
                if self._parts.may_write() and await self._lease.acquire():
                    await self._while_leased()
                    if not self._parts.may_write():
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

    async def _while_leased(self) -> None:
        active = asyncio.create_task(self._active(), name=f"watch-{self._kind}")
        try:
            while not active.done():
                await asyncio.wait([active], timeout=self._lease_s / 3)
                if not self._parts.may_write():
                    return
                with suppress(LogUnavailable):  # without Redis nothing can be appended either
                    if not await self._lease.acquire():
                        log_event(_log, "another process took over the watch", kind=self._kind)
                        return
            with suppress(ClockOff, ForeignCluster):
                await active
        finally:
            await end([active])
            self._parts.metrics.forget(self._kind)
            self.problem = ""  # of the watch that has ended

    async def _active(self) -> None:
        """Claim, then list and watch; a new epoch requires a new claim."""
        backoff = Backoff(self._clock)
        while True:
            epoch = self._follower.state.epoch
            if not self._parts.may_write():  # a new log, which says of no cluster yet that it is its own, isn't ours
                return
            try:
                cluster = self._identity.uid if self._identity else ""
                claim = k.claim(
                    self._kind,
                    self._parts.member_id,
                    cluster,
                    with_volumes=self._parts.settings.volumes,
                    with_devices=self._parts.settings.devices,
                )
                claimed = await self._writer.append_and_fold([claim], fence=Fence(self._kind, CLAIM))
                if not self._parts.may_write():  # the log has just become another cluster's: this claim is void
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
                log_event(_log, "the API server sends nothing", level=logging.WARNING, kind=self._kind, problem=problem)
                await backoff.wait()

    async def _observe_in(self, epoch: int, claimed: Appended) -> None:
        """Observe until the epoch or our term has ended, which a watch that has nothing to append wouldn't notice.

        Another process's claim ends a term. It may have lost the lease since; then no process would watch.
        """
        term = claimed.first
        observer = Observer(self._kind, self._parts, self._writer, claimed, tell_problem=self._tell_problem)
        observing = asyncio.create_task(observer.run(), name=f"observe-{self._kind}")
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

    def _tell_problem(self, problem: str) -> None:
        self.problem = problem
