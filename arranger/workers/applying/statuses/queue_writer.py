"""The queue writer: a part of the applier that keeps the status and the metrics of Queues as the projection has them.

It looks at all queues together at intervals, because each job that gets nodes changes the shares of all. Nothing else
depends on a Queue's status: only people read it.
"""

import logging
from collections.abc import Callable, Iterable

from arranger.errors import ClusterError
from arranger.kube.cluster import QUEUES, Object
from arranger.kube.translate import queue_status_digest
from arranger.logs import log_event
from arranger.model.pod import gpus_of
from arranger.model.quantity import CPU
from arranger.model.text import rfc3339
from arranger.scheduling import QueuesView, queues_view
from arranger.workers.applying.effects.carrying_out import SETTLE_S, Effects
from arranger.workers.applying.statuses.queue_status import queue_status, status_patch
from arranger.workers.applying.statuses.status_rounds import StatusRounds, StoredStatus

_log = logging.getLogger(__name__)

#: At most so many queues have metrics.
_MEASURED = 100


class _Progress(StoredStatus):
    """As the status, the Queue as the API server last returned it; None if unknown or outdated."""

    stored: Object | None = None


class QueueWriter(StatusRounds[_Progress]):
    """Stores the statuses of this member's share of the Queues. `owns` says whether a UID is in it (for the metrics of
    `default` without an object, its name)."""

    _kind, _unknown = "queue", _Progress

    def __init__(self, effects: Effects, owns: Callable[[str], bool]) -> None:
        super().__init__(effects, owns)
        self._metrics = effects.parts.metrics
        self._view = QueuesView({}, {})
        #: The epoch, the offset and the time of the view.
        self._seen = (0, 0, 0)

    def clear(self) -> None:
        super().clear()
        self._seen = (0, 0, 0)

    def _round(self) -> None:
        self._metrics.forget_queues()
        super()._round()

    def _look(self) -> None:
        super()._look()
        self._measure()

    def _objects(self) -> Iterable[tuple[str, str]]:
        """Those of the queues, whose view is brought up to date."""
        state = self._follower.state
        time_ms = state.lapsed_ms(self._clock.now_ms())  # with no event, a pod that was still awaited may have lapsed
        if state.queues and self._seen != (state.epoch, state.offset, time_ms):
            self._view, self._seen = queues_view(state.as_of(time_ms)), (state.epoch, state.offset, time_ms)
        return [(of.uid, name) for name, of in state.queues.items()]

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
        """Those wait longest whose amounts alone changed, and that were written last."""
        name, progress = self._names[uid], self._progress[uid]
        seen = self._follower.state.queues[name]
        settling = self._clock.monotonic_s() - progress.written_s < SETTLE_S
        known = progress.digest if settling else seen.status_digest
        status = queue_status(self._view.queues[name], seen.generation)
        if queue_status_digest(status) == known or self._retries.rest_s(uid, version=0):
            return None
        return (_news(status) == progress.news, progress.written_s)

    async def _write(self, uid: str, progress: _Progress) -> tuple[str, tuple[str, ...]] | None:
        name = self._names.get(uid, "")
        seen = self._follower.state.queues.get(name)
        if seen is None or seen.uid != uid:
            return None  # changed while this effect was queued
        cluster, stored = self._effects.cluster, progress.stored
        progress.stored = None  # unknown if the write fails
        if stored is None:
            stored = await cluster.get(QUEUES, None, name)
        of, known = self._view.queues.get(name), self._follower.state.queues.get(name)
        if of is None or known is None or not known.uid == uid == stored["metadata"]["uid"]:
            return None  # deleted while it was read, or another one of that name, which the watch hasn't shown yet
        status = queue_status(of, seen.generation)
        patch = status_patch(status, stored.get("status") or {}, rfc3339(self._clock.now_ms()))
        condition = {"uid": uid, "resourceVersion": stored["metadata"]["resourceVersion"]}
        body = {"metadata": condition, "status": patch}
        progress.stored = await cluster.patch(QUEUES, None, name, body, subresource="status")
        return queue_status_digest(status), _news(status)

    def _complain(self, uid: str, problem: ClusterError) -> None:
        log_event(_log, "a queue's status is tried again", level=logging.WARNING, queue=uid, problem=problem)


def _news(status: Object) -> tuple[str, ...]:
    """What users of a queue must know soon: whether it can be used, and why not."""
    ready = status["conditions"][0]
    return (status["state"], ready["reason"], ready["message"])
