"""The effects of an applier on the cluster: whether they are allowed, and how many run at once."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from arranger.errors import ClusterError
from arranger.workers.flow.request_slots import RequestSlots
from arranger.workers.log.cluster_hold import NotHolder
from arranger.workers.log.identity import ForeignCluster
from arranger.workers.parts import Parts

#: An accepted effect is not repeated for this long while the watch hasn't shown it yet.
SETTLE_S = 10.0
#: Delay before another look if the projection wasn't fresh.
STALE_S = 0.2

#: What this task and those that it began have carried out.
_tally: ContextVar["Tally | None"] = ContextVar("tally", default=None)


class Tally:
    """How many effects were carried out, and the names of those that failed."""

    def __init__(self) -> None:
        self.done = 0
        self.failed: set[str] = set()


@contextmanager
def tallied() -> Generator[Tally, None, None]:
    """Count the effects of this task, and of those that it begins meanwhile."""
    tally = Tally()
    token = _tally.set(tally)
    try:
        yield tally
    finally:
        _tally.reset(token)


class Effects:
    """The cluster, with a limited number of concurrent requests."""

    def __init__(self, parts: Parts) -> None:
        assert parts.cluster is not None
        self.cluster = parts.cluster
        self.parts = parts
        self._metrics = parts.metrics
        self._slots = RequestSlots(parts.time, parts.settings.api_in_flight)

    @property
    def idle(self) -> bool:
        """Whether few requests are in flight."""
        return self._slots.idle

    def allowed(self) -> bool:
        """Whether this process may write and its state is fresh: without the log, or after a pause, it may be
        outdated."""
        hold = self.parts.hold
        return self.parts.follower.fresh() and self.parts.may_write() and (hold is None or hold.fresh())

    async def carry_out(self, name: str, namespace: str, effect: Callable[[], Awaitable[bool]]) -> bool:
        """Carry out and count one effect in a request slot of its namespace ("" for none). If cancelled while it waits
        for a slot, it never begins."""
        async with self._slots.slot(namespace):
            identity, of_log = self.parts.identity, self.parts.follower.cluster
            if identity is not None and identity.foreign(of_log):
                raise ForeignCluster(identity.uid, of_log)
            if self.parts.hold is not None and not self.parts.hold.held:
                raise NotHolder(self.parts.hold.problem)
            self._metrics.effects_in_flight.inc()
            try:
                with self.parts.effect_times.timed():
                    done = await effect()
                self._metrics.effects.labels(name, "ok" if done else "refused").inc()
                if done and (tally := _tally.get()) is not None:
                    tally.done += 1
                return done
            except ClusterError:
                self._metrics.effects.labels(name, "failed").inc()
                if (tally := _tally.get()) is not None:
                    tally.failed.add(name)
                raise
            finally:
                self._metrics.effects_in_flight.dec()


async def together(effects: Sequence[Awaitable[bool]]) -> list[bool]:
    """Run all at once; raise the first error after every one has ended. Returns what each of them did."""
    results = await asyncio.gather(*effects, return_exceptions=True)
    done: list[bool] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
