"""What the roles of one process share."""

from dataclasses import dataclass

import redis.asyncio

from arranger.clock import Clock
from arranger.events.redis_log import RedisLog
from arranger.kube.cluster import Cluster
from arranger.metrics import Metrics
from arranger.plugins import Installed
from arranger.settings import Settings
from arranger.workers.follower import Follower, Writer
from arranger.workers.identity import ClusterIdentity
from arranger.workers.member_problems import MemberProblems
from arranger.workers.membership import Lease, Membership
from arranger.workers.ticks import Ticker
from arranger.workers.timekeeping import Timekeeper


@dataclass(kw_only=True)
class Parts:
    """The parts of a process. The roles decide and stamp by `time`, which gives none while `clock` is wrong.

    `cluster` is None for a process whose roles need no API server. `identity` tells whether it is the log's cluster.
    """

    settings: Settings
    installed: Installed
    member_id: str
    redis: redis.asyncio.Redis
    stream: RedisLog
    follower: Follower
    membership: Membership
    clock: Clock
    time: Timekeeper
    metrics: Metrics
    problems: MemberProblems
    ticker: Ticker
    cluster: Cluster | None
    identity: ClusterIdentity | None

    def writer(self, role: str) -> Writer:
        return Writer(self.follower, name=f"{role}@{self.member_id}", clock=self.time, metrics=self.metrics)

    def lease(self, name: str) -> Lease:
        """The right of one process of the cluster to do something alone."""
        holder, lease_s = self.member_id, self.settings.lease_s
        return Lease(
            self.redis, cluster=self.settings.cluster, name=name, holder=holder, clock=self.clock, lease_s=lease_s
        )

    def may_write(self) -> bool:
        """Whether this process knows what time it is and whose log it reads: by a wrong clock jobs expire and nodes are
        lost too early, and what another cluster's log wants is none of our API server's business."""
        return self.time.right and (self.identity is None or self.identity.ours(self.follower.cluster))
