"""The queue writer: a part of the applier that keeps the status and the metrics of Queues as the projection has them.

It looks at all queues together at intervals, because each job that gets nodes changes the shares of all. The members
share the queues as they share the jobs. Nothing else depends on a Queue's status: only people read it.
"""

import logging
import math
from collections.abc import Callable

import msgspec

from arranger.errors import ClockOff, ClusterError
from arranger.kube.cluster import QUEUES, ApiError, Object
from arranger.kube.translate import queue_status_digest
from arranger.logs import log_event
from arranger.model.pod import gpus_of
from arranger.model.quantity import CPU
from arranger.model.text import rfc3339
from arranger.scheduling import QueuesView, queues_view
from arranger.workers.applying.effects import SETTLE_S, Effects
from arranger.workers.applying.queue_status import queue_status, status_patch
from arranger.workers.flow.retries import Retries
from arranger.workers.flow.work_queue import WorkQueue

_log = logging.getLogger(__name__)

#: A status is written at most this often, and rarer where the look at all queues takes long: this many times as long.
_EVERY_S, _TIMES_AS_LONG = 1.0, 20.0
#: So many statuses are written at once at most: each costs the API server as much as several pods, and is an event in
#: the log. Those wait longest whose amounts alone changed, and that were written last.
_AT_ONCE = 20
#: At most so many queues have metrics.
_MEASURED = 100
#: A status that the API server found invalid, or doesn't let us write, is tried again after this time.
_REFUSED_S = 60.0


class _Progress(msgspec.Struct):
    """What this process knows of one Queue beyond the projection."""

    #: The Queue as the API server last returned it; None if unknown or outdated.
    stored: Object | None = None
    #: The status that this process stored last: its digest, what was news in it (`_news`), and when.
    digest: str = ""
    news: tuple[str, ...] = ()
    written_s: float = -math.inf


class QueueWriter:
    """Stores the statuses of this member's share of the Queues. `owns` says whether a UID is in it (for the metrics of
    `default` without an object, its name)."""

    def __init__(self, effects: Effects, owns: Callable[[str], bool]) -> None:
        self._effects = effects
        self._owns = owns
        self._follower = effects.parts.follower
        self._clock = effects.parts.time
        self._metrics = effects.parts.metrics
        self._retries = Retries(effects.parts.time)
        #: By UID, as `_names` and `_progress`.
        self._queue = WorkQueue(effects.parts.time, lambda: ())
        self._names: dict[str, str] = {}
        self._progress: dict[str, _Progress] = {}
        self._view = QueuesView({}, {})
        #: The epoch, the offset and the time of the view.
        self._seen = (0, 0, 0)

    def clear(self) -> None:
        """Discard everything derived from an earlier epoch."""
        self._queue.clear()
        self._progress.clear()
        self._retries.clear()
        self._seen = (0, 0, 0)

    async def run(self) -> None:
        """Keep the statuses until cancelled; then let writes in flight finish."""
        rest_s = _EVERY_S
        try:
            while True:
                await self._clock.sleep(rest_s)
                began_s = self._clock.monotonic_s()
                self._metrics.forget_queues()
                if self._follower.state.synced and self._effects.allowed():
                    self._look()
                    self._measure()
                rest_s = max(_EVERY_S, (self._clock.monotonic_s() - began_s) * _TIMES_AS_LONG)
        finally:
            await self._queue.finish()

    def _look(self) -> None:
        """Begin to write each status of this member's share that differs from the stored one."""
        state = self._follower.state
        time_ms = state.lapsed_ms(self._clock.now_ms())  # with no event, a pod that was still awaited may have lapsed
        if state.queues and self._seen != (state.epoch, state.offset, time_ms):
            self._view, self._seen = queues_view(state.as_of(time_ms)), (state.epoch, state.offset, time_ms)
        self._names = {of.uid: name for name, of in state.queues.items() if self._owns(of.uid)}
        for uid in [uid for uid in (*self._progress, *self._retries.failing()) if uid not in self._names]:
            self._progress.pop(uid, None)
            self._retries.forget(uid)
        differ = [(*turn, uid) for uid in self._names if (turn := self._turn(uid)) is not None]
        self._queue.touch([uid for *_, uid in sorted(differ)[:_AT_ONCE]])
        for uid in self._queue.take():
            self._queue.start(uid, self._mend(uid), name=f"queue-{uid}")

    def _measure(self) -> None:
        """Report the queues of this member's share; of many queues, those nearest to the root."""
        queues = [of for of in self._view.queues.values() if of.exists] if self._follower.state.queues else []
        for of in sorted(queues, key=lambda of: (not of.depth, of.depth, of.name))[:_MEASURED]:
            if self._owns(of.uid or of.name):
                gpus = (gpus_of(of.used.items()), gpus_of(of.share.items()), gpus_of(of.demand.items()))
                used, share, demand = (amounts.get(CPU, 0) / 1000 for amounts in (of.used, of.share, of.demand))
                amounts = {"gpu": gpus, CPU: (used, share, demand)}
                self._metrics.queue(of.name, amounts, waiting=of.waiting, running=of.running)

    def _turn(self, uid: str) -> tuple[bool, float] | None:
        """When the status has its turn among others, the lowest first; None if it is stored, as far as known, or its
        last write just failed. What this process stored last counts until the watch has had the time to show it."""
        name, progress = self._names[uid], self._progress.setdefault(uid, _Progress())
        seen = self._follower.state.queues[name]
        settling = self._clock.monotonic_s() - progress.written_s < SETTLE_S
        known = progress.digest if settling else seen.status_digest
        status = queue_status(self._view.queues[name], seen.generation)
        if queue_status_digest(status) == known or self._retries.rest_s(uid, version=0):
            return None
        return (_news(status) == progress.news, progress.written_s)

    async def _mend(self, uid: str) -> None:
        try:
            await self._effects.carry_out("queue-status", "", lambda: self._write(uid))
            self._retries.forget(uid)
        except ClockOff:
            return  # until the clock is right again, nothing is looked at
        except ClusterError as problem:
            log_event(_log, "a queue's status is tried again", level=logging.WARNING, queue=uid, problem=problem)
            refused = isinstance(problem, ApiError) and problem.code in (403, 422)
            asked_s = _REFUSED_S if refused else getattr(problem, "retry_after_s", 0.0)
            self._retries.failed(uid, version=0, asked_s=asked_s)

    async def _write(self, uid: str) -> bool:
        """Store the present status, only if nobody has changed the Queue since it was last read or written here."""
        name, progress = self._names.get(uid, ""), self._progress.get(uid)
        seen = self._follower.state.queues.get(name)
        if seen is None or seen.uid != uid or progress is None or not self._effects.allowed():
            return False  # changed while this effect was queued
        cluster, stored = self._effects.cluster, progress.stored
        progress.stored = None  # unknown if the write fails
        try:
            if stored is None:
                stored = await cluster.get(QUEUES, None, name)
            of, known = self._view.queues.get(name), self._follower.state.queues.get(name)
            if of is None or known is None or not known.uid == uid == stored["metadata"]["uid"]:
                return False  # deleted while it was read, or another one of that name, which the watch hasn't shown yet
            status = queue_status(of, seen.generation)
            patch = status_patch(status, stored.get("status") or {}, rfc3339(self._clock.now_ms()))
            condition = {"uid": uid, "resourceVersion": stored["metadata"]["resourceVersion"]}
            body = {"metadata": condition, "status": patch}
            progress.stored = await cluster.patch(QUEUES, None, name, body, subresource="status")
        except ApiError as refused:
            if refused.code in (404, 409):  # deleted or changed meanwhile
                return False
            raise
        progress.digest, progress.news = queue_status_digest(status), _news(status)
        progress.written_s = self._clock.monotonic_s()
        return True


def _news(status: Object) -> tuple[str, ...]:
    """What users of a queue must know soon: whether it can be used, and why not."""
    ready = status["conditions"][0]
    return (status["state"], ready["reason"], ready["message"])
