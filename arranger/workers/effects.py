"""The effects of an applier on the cluster: whether it may have any, and how many it has at once."""

import asyncio
from collections.abc import Awaitable, Callable

from arranger.clock import Clock
from arranger.errors import ClusterError
from arranger.kube.cluster import Cluster
from arranger.metrics import Metrics
from arranger.workers.follower import Follower
from arranger.workers.identity import ClusterIdentity, ForeignCluster
from arranger.workers.timekeeping import is_right

#: An effect that the API server took is not repeated for so long, while the watch hasn't shown it yet.
SETTLE_S = 10.0
#: How soon to look again with a projection that wasn't fresh.
STALE_S = 0.2


class Effects:
    """The cluster, and `in_flight` slots for requests to it. `identity` tells whether the cluster is the log's."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        follower: Follower,
        clock: Clock,
        metrics: Metrics,
        identity: ClusterIdentity | None,
        in_flight: int,
    ) -> None:
        self.cluster = cluster
        self.follower = follower
        self.clock = clock
        self.identity = identity
        self._metrics = metrics
        self._slots = asyncio.Semaphore(in_flight)

    def allowed(self) -> bool:
        """Whether this process knows what is so, what time it is and whose log it reads: with the log away, or after a
        pause, its state may be long past; by a wrong clock jobs expire and nodes are lost too early; and what another
        cluster's log wants is none of our API server's business."""
        known = self.identity is None or self.identity.ours(self.follower.cluster)
        return known and self.follower.fresh() and is_right(self.clock)

    async def carry_out(self, name: str, effect: Callable[[], Awaitable[bool]]) -> bool:
        """Carry out one effect in one of the slots, and count it; ended while it waits for one, it never begins."""
        async with self._slots:
            if self.identity is not None and self.identity.foreign(self.follower.cluster):
                raise ForeignCluster(self.identity.uid, self.follower.cluster)
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
