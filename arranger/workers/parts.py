"""The objects that the roles of one process share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import redis.asyncio

from arranger.clock import Clock
from arranger.events.redis_log import RedisLog
from arranger.kube.cluster import Cluster
from arranger.metrics import Metrics
from arranger.plugins import Installed
from arranger.settings import Settings
from arranger.workers.flow.effect_times import EffectTimes
from arranger.workers.log.cluster_hold import ClusterHold
from arranger.workers.log.follower import Follower
from arranger.workers.log.identity import ClusterIdentity
from arranger.workers.log.writer import Writer
from arranger.workers.members.membership import Lease, Membership
from arranger.workers.members.problems import MemberProblems
from arranger.workers.members.ticks import Ticker
from arranger.workers.members.timekeeping import Timekeeper


@dataclass(frozen=True, kw_only=True)
class Answering:
    """How an analyst answers: by a program with its environment, within limits; and which question words ask ("" for
    words that are none)."""

    program: Sequence[str]
    environment: Mapping[str, str]
    question_of: Callable[[Sequence[str]], str]
    time_s: float = 600.0
    #: The program limits itself below that, so that it can say so.
    memory_bytes: int = 12 << 30


@dataclass(kw_only=True)
class Parts:
    """The parts of a process. The roles decide and stamp by `time`, which raises `ClockOff` while `clock` is wrong.

    `cluster` is None for a process whose roles need no API server. `identity` checks that it is the log's cluster.
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
    #: Whether the log holds that cluster; None if nobody asks, as in tests of a single role.
    hold: ClusterHold | None = None
    #: None for a process that is no analyst.
    answering: Answering | None = None
    effect_times: EffectTimes = field(init=False)

    def __post_init__(self) -> None:
        self.effect_times = EffectTimes(self.clock)

    def writer(self, role: str) -> Writer:
        return Writer(self.follower, name=f"{role}@{self.member_id}", clock=self.time, metrics=self.metrics)

    def lease(self, name: str) -> Lease:
        """A lease for work that only one process of the cluster does at a time."""
        holder, lease_s = self.member_id, self.settings.lease_s
        return Lease(
            self.redis, cluster=self.settings.cluster, name=name, holder=holder, clock=self.clock, lease_s=lease_s
        )

    def may_write(self) -> bool:
        """Whether this process knows the time and the log's cluster, and the log holds that. With a wrong clock, jobs
        expire and nodes are lost too early; another cluster's log must not affect our API server, and two logs must not
        affect one."""
        holds = self.hold is None or self.hold.held
        return self.time.right and holds and (self.identity is None or self.identity.ours(self.follower.cluster))
