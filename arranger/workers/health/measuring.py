"""Measures the cluster for its metrics, in one process at a time.

The maintenance processes agree on that process as they do on shares, so that the sums over all processes are right. A
measurement of a large cluster takes tenths of a second, so it rests in between.
"""

import logging

from prometheus_client import Gauge

from arranger.errors import LogUnavailable
from arranger.logs import log_event
from arranger.workers.flow.pacing import Rests
from arranger.workers.health.status import StoreStatus, read_store
from arranger.workers.log.cluster_measures import ClusterMeasures, MeasuredQueues, NodePools
from arranger.workers.parts import Parts

_log = logging.getLogger(__name__)

#: The role whose processes measure, and the key that one of them owns.
ROLE, KEY = "maintenance", "measures"
#: The rest after a measurement, and longer where that takes long: this many times as long.
_EVERY_S, _TIMES_AS_LONG = 15.0, 50.0
#: Until there is something to measure.
_AGAIN_S = 1.0
#: The number of jobs that are looked at before other tasks can run.
JOBS_AT_ONCE = 200


class Measuring:
    """Keeps the metrics of jobs and GPUs, if this process measures the cluster."""

    def __init__(self, parts: Parts) -> None:
        self._follower = parts.follower
        self._membership = parts.membership
        self._redis = parts.redis
        self._metrics = parts.metrics
        self._clock = parts.clock
        self._pools = NodePools(parts.settings.pool_label)
        self._queues = MeasuredQueues()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            rest_s = _AGAIN_S
            if self._membership.owns(KEY, ROLE):
                try:
                    rest_s = await self._once()
                except Exception as problem:  # a defect of the metrics must not end the process
                    log_event(_log, "a measurement failed", level=logging.ERROR, exc_info=problem)
            else:
                self._metrics.forget_cluster()
            await self._clock.sleep(rest_s)

    async def _once(self) -> float:
        """Measure what can be measured now; returns the seconds until the next time."""
        store = await self._store()
        measured, took_s = None, 0.0
        if self._follower.state.synced and self._follower.fresh():
            rests = Rests(self._clock)
            measured = await self._measure(rests)
            took_s = rests.worked_s
            self._metrics.measure_seconds.observe(took_s)
        self._metrics.forget_cluster()
        if store is not None:
            self._metrics.redis_memory.labels("used").set(store.used_bytes)
            self._metrics.redis_memory.labels("limit").set(store.max_bytes)
        if measured is None or not self._membership.owns(KEY, ROLE):  # the rests took a while
            return _AGAIN_S
        self._report(measured)
        return max(_EVERY_S, took_s * _TIMES_AS_LONG)

    async def _store(self) -> StoreStatus | None:
        """The state of Redis; None if it can't be read."""
        try:
            return await read_store(self._redis)
        except LogUnavailable:
            return None

    async def _measure(self, rests: Rests) -> ClusterMeasures | None:
        """Measure the projection; None if another one has replaced it meanwhile."""
        state = self._follower.state
        measures = ClusterMeasures(state, self._pools, self._queues)
        for number, job in enumerate(list(state.jobs.values()), start=1):
            if job.uid in state.jobs:
                measures.add(job)
            if not number % JOBS_AT_ONCE:
                await rests.after_step()
                if self._follower.state is not state:
                    return None
        measures.finish()
        return measures

    def _report(self, measured: ClusterMeasures) -> None:
        metrics = self._metrics
        by_two = (
            (metrics.jobs, measured.jobs),
            (metrics.waiting_jobs, measured.waiting),
            (metrics.gpus_used, measured.used),
            (metrics.gpus_reserved, measured.reserved),
        )
        for gauge, values in by_two:
            for labels, value in values.items():
                gauge.labels(*labels).set(value)
        by_pool: tuple[tuple[Gauge, dict[str, int] | dict[str, float]], ...] = (
            (metrics.gpus, measured.there),
            (metrics.gpus_idle, measured.idle),
            (metrics.gpus_reserved_idle, measured.reserved_idle),
            (metrics.gpus_fragmented, measured.fragmented),
        )
        for gauge, amounts in by_pool:
            for pool, amount in amounts.items():
                gauge.labels(pool).set(amount)
