"""One process: any mix of roles around one projection, from the first connection to the drained end.

Order matters twice. Nothing decides before the log is folded, and at the end the roles stop before the follower does,
so that what is in flight can still be seen to arrive.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from arranger.clock import Clock, SystemClock
from arranger.errors import ClockOff, ClusterError, DamagedEntry, LogUnavailable, UsageError
from arranger.events.kinds import Watched
from arranger.events.redis_connection import connect
from arranger.events.redis_log import RedisLog
from arranger.events.shelves import shelf_at
from arranger.kube.client import HttpCluster
from arranger.kube.cluster import TYJOBS, ApiError, Cluster
from arranger.kube.config import find_access
from arranger.lifecycle.config import LifecycleConfig
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.model.validation import tyjob_checks
from arranger.plugins import inventory
from arranger.scheduling import in_order
from arranger.settings import Settings
from arranger.workers import applier, controller, maintenance, scheduler
from arranger.workers.archiver import Archiver
from arranger.workers.archiving import Archiving
from arranger.workers.ending import end
from arranger.workers.follower import Follower, Writer
from arranger.workers.http import Health, HttpServer
from arranger.workers.identity import ClusterIdentity, ForeignCluster, refusal
from arranger.workers.layout_guard import LayoutGuard
from arranger.workers.member_problems import MemberProblems, ProblemKind
from arranger.workers.membership import ROLES, Lease, Membership
from arranger.workers.ticks import Handler, Ticker, TickLoop
from arranger.workers.timekeeping import Timekeeper
from arranger.workers.watcher import Watcher

_log = logging.getLogger(__name__)

#: The API server is asked whether it answers this often.
_ASK_API_S = 10.0
#: Python looks for garbage cycles after so many new objects, and at all of them after 20 × 100 such looks. Ours are
#: freed by counting references; with the usual numbers a large projection is walked through again and again.
_GC_THRESHOLDS = (10_000, 20, 100)
#: What is said of the API server before it was asked.
_NOT_ASKED = "not asked yet"
#: A watch that has said nothing for so long is beyond mending itself: the process is to be restarted.
_DEAF_S = 300.0
#: How long a task may take to end once the process has told it to, and has nothing to wait for otherwise.
_END_S = 5.0


class Process:
    """The roles of one process and what they share."""

    def __init__(self, settings: Settings, roles: Sequence[str], *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._installed = inventory()
        self._roles = tuple(role for role in ROLES if role in roles)
        self._clock = clock or SystemClock()
        self.member_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        bound_ms = round(settings.clock_bound_s * 1000)
        #: What the roles decide and stamp by: it gives no time while our clock is wrong.
        self._time = Timekeeper(self._clock, bound_ms=bound_ms)
        self.metrics = Metrics(self._clock)
        self._redis = connect(settings.redis_url)
        self._stream = RedisLog(
            settings.redis_url, settings.cluster, now_ms=self._clock.now_ms, clock_bound_ms=bound_ms
        )
        self.follower = Follower(
            self._stream,
            clock=self._clock,
            metrics=self.metrics,
            reader=",".join(self._roles),
        )
        self._membership = Membership(
            self._redis,
            cluster=settings.cluster,
            member_id=self.member_id,
            roles=self._roles,
            clock=self._clock,
            heartbeat_s=settings.heartbeat_s,
            timekeeper=self._time,
            writes=self.follower.writes,
        )
        self._cluster: Cluster | None = None
        self._identity: ClusterIdentity | None = None
        self._watchers: dict[Watched, Watcher] = {}
        self._api_problem = _NOT_ASKED
        self._tasks: list[asyncio.Task[None]] = []
        self._ticks: TickLoop | None = None
        self.health = Health(["log", "clock", "fold"], self.metrics)
        #: What the other members, and `arranger status`, are told of this process.
        self.problems = MemberProblems(self._clock)

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, or until the fold can't go on (raised). `UsageError`: bad settings."""
        settings = self._settings
        gc.set_threshold(*_GC_THRESHOLDS)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        if {"watcher", "applier"} & set(self._roles):
            access = find_access(settings.kubeconfig or None, settings.context or None)
            self._cluster = HttpCluster(access, on_request=self.metrics.request, clock=self._clock)
            self._identity = ClusterIdentity(self._cluster)
        server = HttpServer(self.health, self.metrics, host=settings.http_host, port=settings.http_port)
        await server.start()
        try:
            await self._until(stop)
        finally:
            await server.stop()
            if self._cluster is not None:
                await self._cluster.close()
            await self.follower.log.close()
            await self._redis.aclose()

    async def _until(self, stop: asyncio.Event) -> None:
        """Start, work, and drain once told to stop."""
        report = asyncio.create_task(self._report(), name="report")
        stopping = asyncio.create_task(stop.wait())
        starting = asyncio.create_task(self._start(), name="start")
        following: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            starting.result()
            following.append(asyncio.create_task(self.follower.run(), name="follow"))
            await self._first_end([*following, stopping, *self._tasks])
            log_event(_log, "draining", within_s=self._settings.drain_s)
        finally:
            # A start that has missed the first word may have started every role meanwhile: they are drained too.
            _tell_late(await end([starting], within_s=_END_S))
            try:
                if self._tasks:
                    await self._drain()
            finally:
                _tell_late(await end([*following, stopping, report], within_s=_END_S))

    async def _start(self) -> None:
        """Connect, fold what is there, and start the roles."""
        log_event(_log, "starting", member=self.member_id, roles=",".join(self._roles))
        comparing = asyncio.create_task(self._membership.compare_clocks(), name="compare-clocks")
        try:  # at once: a log that is empty waits for a right clock
            await self.follower.start()
            await comparing
        finally:
            await end([comparing])
        # Another member's share begins the moment that we are seen, so join only once the log is folded.
        await self._joined()
        handlers: dict[str, Handler] = {}
        for role in self._roles:
            handlers |= getattr(self, f"_start_{role}")()
        self._run(self._membership.run(), "heartbeat")
        if self._cluster is not None and self._identity is not None:
            self._run(self._ask_api(self._cluster, self._identity), "ask-api")
        if not handlers:
            return
        self._ticks = TickLoop(
            self._settings.redis_url,
            cluster=self._settings.cluster,
            member_id=self.member_id,
            handlers=handlers,
            loop=asyncio.get_running_loop(),
            told=lambda tick, result: self.metrics.ticks.labels(tick, result).inc(),
            dropped=lambda tick: self.metrics.ticks_dropped.labels(tick).inc(),
        )
        self._ticks.start()

    async def _joined(self) -> None:
        self._membership.progress(self.follower.state.epoch, self.follower.state.offset)
        with suppress(LogUnavailable):  # the heartbeat goes on trying
            await self._membership.join()

    def _start_watcher(self) -> dict[str, Handler]:
        assert self._cluster is not None
        for kind in Watched:
            watcher = Watcher(
                kind,
                cluster=self._cluster,
                follower=self.follower,
                writer=self._writer(f"watcher-{kind}"),
                lease=Lease(
                    self._redis,
                    cluster=self._settings.cluster,
                    name=f"watch-{kind}",
                    holder=self.member_id,
                    clock=self._clock,
                    lease_s=self._settings.lease_s,
                ),
                clock=self._time,
                metrics=self.metrics,
                member_id=self.member_id,
                lease_s=self._settings.lease_s,
                relist_s=self._settings.relist_s,
                checks=tyjob_checks(self._installed.names),
                identity=self._identity,
            )
            self._watchers[kind] = watcher
            self._run(watcher.run(), f"watcher-{kind}")
        return {}

    def _start_controller(self) -> dict[str, Handler]:
        role = controller.Controller(
            follower=self.follower,
            writer=self._writer(controller.ROLE),
            membership=self._membership,
            config=LifecycleConfig(
                image_grace_ms=self._settings.image_grace_s * 1000,
                lost_ms=self._settings.lost_node_s * 1000,
                quorum_ms=self._settings.quorum_grace_s * 1000,
                refused_ms=self._settings.refused_grace_s * 1000,
            ),
            clock=self._time,
        )
        self.follower.listen(role)
        self._run(role.run(), controller.ROLE)
        return {}

    def _start_scheduler(self) -> dict[str, Handler]:
        role = scheduler.Scheduler(
            follower=self.follower,
            writer=self._writer("scheduler"),
            membership=self._membership,
            config=self._settings.cycle_config(self._installed.policies.versions()),
            clock=self._time,
            metrics=self.metrics,
            policies=self._installed.policies,
        )
        self.follower.listen(role)
        self._run(role.run(), scheduler.ROLE)
        ticker = Ticker(self._redis, cluster=self._settings.cluster, clock=self._clock)
        self._run(ticker.run(scheduler.TICK, self._settings.cycle_period_s), "cycle-ticks")
        return {scheduler.TICK: role.cycle}

    def _start_applier(self) -> dict[str, Handler]:
        assert self._cluster is not None
        config = self._settings.cycle_config(self._installed.policies.versions())
        role = applier.Applier(
            cluster=self._cluster,
            follower=self.follower,
            writer=self._writer(applier.ROLE),
            membership=self._membership,
            clock=self._time,
            metrics=self.metrics,
            in_flight=self._settings.api_in_flight,
            lost_ms=self._settings.lost_node_s * 1000,
            order=partial(in_order, config=config, policies=self._installed.policies),
            identity=self._identity,
        )
        self.follower.listen(role)
        self._run(role.run(), applier.ROLE)
        return {}

    def _start_maintenance(self) -> dict[str, Handler]:
        archiver = self._start_archiving() if self._settings.archive_url else None
        role = maintenance.Maintenance(
            follower=self.follower,
            membership=self._membership,
            clock=self._clock,
            metrics=self.metrics,
            every_events=self._settings.snapshot_every_events,
            every_s=self._settings.snapshot_every_s,
            keep_events=self._settings.keep_events,
            archiver=archiver,
            guard=LayoutGuard(
                self._membership,
                clock=self._clock,
                problems=self.problems,
                grace_s=self._settings.upgrade_grace_s,
            ),
        )
        self.follower.listen(role)
        ticker = Ticker(self._redis, cluster=self._settings.cluster, clock=self._clock)
        self._run(ticker.run(maintenance.TICK, maintenance.PERIOD_S), "maintenance-ticks")
        return {maintenance.TICK: role.maintain}

    def _start_archiving(self) -> Archiver:
        settings = self._settings
        shelf = shelf_at(settings.archive_url, settings.cluster)
        archiver = Archiver(shelf, every_events=settings.archive_every_events)
        lease = Lease(
            self._redis,
            cluster=settings.cluster,
            name="archive",
            holder=self.member_id,
            clock=self._clock,
            lease_s=settings.lease_s,
        )
        archiving = Archiving(
            archiver,
            follower=self.follower,
            source=self._stream,
            old=self._stream,
            alone=lease,
            clock=self._clock,
            metrics=self.metrics,
            every_events=settings.archive_every_events,
            every_s=settings.archive_every_s,
            problems=self.problems,
        )
        self._run(archiving.run(), "archive")
        return archiver

    def _writer(self, role: str) -> Writer:
        name = f"{role}@{self.member_id}"
        return Writer(self.follower, name=name, clock=self._time, metrics=self.metrics)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    # --- health --------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Tell health and the other members how far we are, once a second."""
        while True:
            self._tell_health()
            await self.follower.measure_lag()
            await self._clock.sleep(1.0 if self.health.ready else 0.1)

    def _tell_health(self) -> None:
        follower = self.follower
        self.health.set("log", follower.connected, "the log in Redis can't be reached")
        self._tell_clock()
        self._tell_writes()
        if follower.stopped is not None:
            self.health.set("fold", False, str(follower.stopped), vital=True)
        elif follower.refused is not None:
            self.health.set("fold", False, str(follower.refused))
        else:
            self.health.set("fold", follower.caught_up, "the projection isn't caught up with the log", vital=False)
        if self._identity is not None:
            self.health.set("api", not self._api_problem, self._api_problem)
            unheard = bool(self._api_problem) and self._api_problem != _NOT_ASKED
            self.problems.tell(ProblemKind.API, unheard, cause=self._api_problem)
            self._tell_cluster(self._identity)
        for kind, watcher in self._watchers.items():
            age_s = self.metrics.heard_age_s(kind) or 0.0
            problem = watcher.problem or (f"silent for {age_s:.0f} s" if age_s > _DEAF_S else "")
            self.health.set(f"watch-{kind}", not problem, problem, vital=age_s > _DEAF_S)
            silent_s = age_s if age_s > _DEAF_S else 0.0
            self.problems.tell(ProblemKind.WATCH, bool(problem), subject=kind, cause=watcher.problem, since_s=silent_s)
        self._membership.progress(
            follower.state.epoch, follower.state.offset, lag=follower.lag, problems=self.problems.present()
        )

    def _tell_writes(self) -> None:
        """Whether Redis takes what we write. Not ready without: what is decided here arrives nowhere."""
        refused = self.follower.writes.problem
        self.health.set("writes", refused is None, str(refused))
        self.problems.tell(ProblemKind.WRITES_REFUSED, refused is not None, cause=str(refused or ""))

    def _tell_clock(self) -> None:
        """Whether our clock is right, and how far it is off if not."""
        offset_ms, right = self._time.offset_ms(), self._time.right
        self.metrics.clock_offset.set((offset_ms or 0) / 1000)
        if offset_ms is not None:  # "not reported yet" before: the first comparison is told if it finds us wrong
            self.health.set("clock", right, str(ClockOff(offset_ms)), passing=False)
        self.problems.tell(ProblemKind.CLOCK, offset_ms is not None and not right, off_ms=offset_ms or 0)

    def _tell_cluster(self, identity: ClusterIdentity) -> None:
        """Whether the log is that of the cluster that we are connected to; the others do our share while it isn't."""
        of_log = self.follower.cluster
        foreign = identity.foreign(of_log)
        self.health.set("cluster", not foreign, str(ForeignCluster(identity.uid, of_log)))
        self.problems.tell(ProblemKind.CLUSTER, foreign, subject=identity.uid)
        self._membership.stand_aside(foreign)

    async def _ask_api(self, cluster: Cluster, identity: ClusterIdentity) -> None:
        """Whether the API server answers, serves TYJobs, and is that of the log's cluster.

        Raises `UsageError` at its first answer if it isn't: this process was started wrongly. Later its roles only stop
        writing, because what answers at that address may be mended.
        """
        started = False
        while True:
            self._api_problem = await self._problem_of_api(cluster, identity)
            if identity.uid and not started:
                started, of_log = True, self.follower.cluster
                if identity.foreign(of_log):
                    raise refusal(self._settings.cluster, connected=identity.uid, of_log=of_log)
            await self._clock.sleep(_ASK_API_S if not self._api_problem else 1.0)

    async def _problem_of_api(self, cluster: Cluster, identity: ClusterIdentity) -> str:
        """What is wrong with the API server's answers; empty if nothing is."""
        try:
            await identity.ask()
        except ClusterError:
            return identity.problem
        try:
            async with aclosing(cluster.listing(TYJOBS, limit=1)) as pages:
                await anext(aiter(pages))
        except ApiError as refused:
            missing = "the TYJob resource isn't installed: arranger crd | kubectl apply -f -"
            return missing if refused.code == 404 else str(refused)
        except ClusterError as problem:
            return str(problem)
        return ""

    # --- the end -------------------------------------------------------------------------------------------

    async def _first_end(self, tasks: list[Any]) -> None:
        """Wait for the first task that ends, and raise what it ended with: none but the stop should."""
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            problem = task.exception()
            if isinstance(problem, DamagedEntry):
                self._tell_health()
            if problem is not None:
                raise problem

    async def _drain(self) -> None:
        """Take nothing new, let what is in flight end, leave the members."""
        if self._ticks is not None:
            await self._ticks.stop(drain_s=self._settings.drain_s)
        # The applier, once told, lets its effects in flight end; everyone else just ends.
        draining = [task for task in self._tasks if task.get_name() == applier.ROLE]
        late = await end(self._tasks, once=draining, within_s=self._settings.drain_s, again_s=1.0)
        _tell_late(late)
        _tell_late(await end(late, within_s=_END_S))  # effects that aren't finished now never will be
        with suppress(LogUnavailable):
            await self._membership.leave()


def _tell_late(tasks: Sequence[asyncio.Task[Any]]) -> None:
    if tasks:
        names = ", ".join(sorted(task.get_name() for task in tasks))
        log_event(_log, "not drained in time", level=logging.WARNING, tasks=names)


def checked_roles(names: Sequence[str]) -> tuple[str, ...]:
    """The roles named, all of them if none is. Raises `UsageError` for a name that is no role."""
    for name in names:
        if name not in ROLES:
            raise UsageError(f"no role {name!r}", hint="roles are " + ", ".join(ROLES))
    return tuple(names) or ROLES
