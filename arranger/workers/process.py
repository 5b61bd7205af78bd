"""One process: any mix of roles around one projection, from the first connection to the end of the drain.

At the end the roles stop before the follower does, so that effects in flight can still be observed.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from arranger.clock import SystemClock
from arranger.errors import DamagedEntry, UsageError
from arranger.events.key_source import log_keys
from arranger.events.redis_connection import connect
from arranger.events.redis_log import RedisLog
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.plugins import inventory
from arranger.settings import Settings
from arranger.workers.flow.cancelling import end
from arranger.workers.health.certificates import Certificates
from arranger.workers.health.connecting import connect_cluster
from arranger.workers.health.http import Health, HttpServer
from arranger.workers.health.measuring import ROLE as MEASURING_ROLE
from arranger.workers.health.measuring import Measuring
from arranger.workers.health_report import HealthReport
from arranger.workers.log.follower import Follower
from arranger.workers.members.membership import ANALYST, MISSED_BEATS, ROLES, Membership
from arranger.workers.members.problems import MemberProblems
from arranger.workers.members.ticks import Ticker, TickLoop
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.parts import Answering, Parts
from arranger.workers.roles import END_S, Roles, Task, tell_late

_log = logging.getLogger(__name__)

#: Python collects garbage after this many new objects, those of 5 collections again, and fully after 5 × 400 of them.
#: Reference counting frees our objects; with the default thresholds, a large projection is traversed again and again.
#: A collection of all objects of 20 others takes 50 ms, for which everything waits.
_GC_THRESHOLDS = (10_000, 5, 400)


class Process:
    """The roles of one process and what they share."""

    def __init__(self, settings: Settings, roles: Sequence[str], answering: Answering | None = None) -> None:
        """`answering` is for an analyst."""
        self._settings = settings
        self._roles = tuple(role for role in (*ROLES, ANALYST) if role in roles)
        clock = SystemClock()
        member_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        bound_ms = round(settings.clock_bound_s * 1000)
        time, metrics, client = Timekeeper(clock, bound_ms=bound_ms), Metrics(clock), connect(settings.redis_url)
        keys = log_keys(settings.log_key)
        stream = RedisLog(settings.redis_url, settings.cluster, now_ms=clock.now_ms, clock_bound_ms=bound_ms, keys=keys)
        gone_s, names = settings.heartbeat_s * MISSED_BEATS, {"reader": ",".join(self._roles), "member": member_id}
        self.follower = Follower(stream, clock=clock, metrics=metrics, gone_s=gone_s, **names)
        membership = Membership(
            client,
            cluster=settings.cluster,
            member_id=member_id,
            roles=self._roles,
            clock=clock,
            heartbeat_s=settings.heartbeat_s,
            timekeeper=time,
            writes=self.follower.writes,
        )
        self._parts = Parts(
            settings=settings,
            installed=inventory(),
            member_id=member_id,
            redis=client,
            stream=stream,
            follower=self.follower,
            membership=membership,
            clock=clock,
            time=time,
            metrics=metrics,
            problems=MemberProblems(clock),
            ticker=Ticker(client, cluster=settings.cluster, clock=time, keys=keys),
            cluster=None,
            identity=None,
            answering=answering,
        )
        self._health = Health(["log", "clock", "fold"], metrics)
        self._ticks: TickLoop | None = None

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT. Raises `UsageError` for bad settings, and the error that stops the fold."""
        parts, settings = self._parts, self._settings
        gc.set_threshold(*_GC_THRESHOLDS)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        connect_cluster(parts, self._roles)
        server = HttpServer(self._health, parts.metrics, host=settings.http_host, port=settings.http_port)
        await server.start()
        try:
            roles = Roles(parts, _task)
            await self._until(stop, roles, HealthReport(parts, roles, self._health))
        finally:
            await server.stop()
            if parts.cluster is not None:
                await parts.cluster.close()
            await parts.stream.close()
            await parts.redis.aclose()

    async def _until(self, stop: asyncio.Event, roles: Roles, report: HealthReport) -> None:
        """Start, work, and drain after the stop signal."""
        reporting = _task(report.run(), "report")
        stopping = asyncio.create_task(stop.wait())
        starting = _task(self._start(roles), "start")
        following: list[Task] = []
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            starting.result()
            following.append(_task(self.follower.run(), "follow"))
            await _first_end([*following, stopping, *roles.tasks.values()], report)
            log_event(_log, "draining", within_s=self._settings.drain_s)
        finally:
            # A start that missed its first cancellation may have started every role meanwhile: they are drained too.
            tell_late(await end([starting], within_s=END_S))
            try:
                if self._ticks is not None:
                    await self._ticks.stop(drain_s=self._settings.drain_s)
                if roles.tasks:
                    await roles.drain()
            finally:
                tell_late(await end([*following, stopping, reporting], within_s=END_S))

    async def _start(self, roles: Roles) -> None:
        """Start the roles, and the tick loop if a role of this process handles ticks."""
        log_event(_log, "starting", member=self._parts.member_id, roles=",".join(self._roles))
        handlers = await roles.start(self._roles)
        roles.tasks["certificates"] = _task(Certificates(self._parts).run(), "certificates")
        if MEASURING_ROLE in self._roles:
            roles.tasks["measuring"] = _task(Measuring(self._parts).run(), "measuring")
        if not handlers:
            return
        metrics = self._parts.metrics
        metrics.expect_ticks(handlers)
        self._ticks = TickLoop(
            self._settings.redis_url,
            cluster=self._settings.cluster,
            member_id=self._parts.member_id,
            handlers=handlers,
            loop=asyncio.get_running_loop(),
            told=lambda tick, result: metrics.ticks.labels(tick, result).inc(),
            dropped=lambda tick: metrics.ticks_dropped.labels(tick).inc(),
            keys=self._parts.stream.keys,
            clock=self._parts.time,
        )
        self._ticks.start()


def _task(work: Coroutine[Any, Any, None], name: str) -> Task:
    return asyncio.create_task(work, name=name)


async def _first_end(tasks: Iterable[Task], report: HealthReport) -> None:
    """Wait for the first task that ends, and raise its exception: only the stop should end."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        problem = task.exception()
        if isinstance(problem, DamagedEntry):
            report.tell()
        if problem is not None:
            raise problem


def checked_roles(names: Sequence[str]) -> tuple[str, ...]:
    """The named roles, or all but the analyst if none is named. Raises `UsageError` for an unknown role."""
    for name in names:
        if name not in (*ROLES, ANALYST):
            raise UsageError(f"no role {name!r}", hint="roles are " + ", ".join((*ROLES, ANALYST)))
    return tuple(names) or ROLES
