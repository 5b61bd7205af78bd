"""The roles of one process: the parts of each, how they start, and how they drain.

Every process is composed here, both for `arranger run` and for the simulation. Order matters twice: no role decides
before the log is folded, and the process joins the members only then, because its share of the jobs begins with that.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from arranger.errors import LogUnavailable
from arranger.events.blob_stores import blob_store_at
from arranger.events.kinds import SETTING_OF, Watched
from arranger.logs import log_event
from arranger.model.provisioning import Provisioning
from arranger.projections.folding.provisioning import anybody_asks
from arranger.projections.queues.tree import QueueTree
from arranger.projections.state import Changes
from arranger.workers.analysis import analyst
from arranger.workers.applying import applier
from arranger.workers.deciding import controller, forecaster, scheduler
from arranger.workers.flow.cancelling import end
from arranger.workers.health.api_check import ApiCheck
from arranger.workers.log.archive_writer import ArchiveWriter
from arranger.workers.maintaining import maintenance
from arranger.workers.maintaining.archive_role import ArchiveRole
from arranger.workers.maintaining.layout_guard import LayoutGuard
from arranger.workers.members.ticks import Handler
from arranger.workers.parts import Parts
from arranger.workers.watching.watcher import Watcher

_log = logging.getLogger(__name__)

#: The time limit for a cancelled task to end if it has nothing to finish.
END_S = 5.0

Task = asyncio.Task[Any]
_Following = controller.Controller | scheduler.Scheduler | applier.Applier


class Roles:
    """The roles of one process. `spawn` starts a task under a name."""

    def __init__(self, parts: Parts, spawn: Callable[[Coroutine[Any, Any, None], str], Task]) -> None:
        self._parts = parts
        self._spawn = spawn
        self.tasks: dict[str, Task] = {}
        self.watchers: dict[Watched, Watcher] = {}
        #: The roles that follow the projection, by name.
        self.following: dict[str, _Following] = {}
        self.guard = LayoutGuard(parts)
        #: None for a process whose roles need no API server.
        self.api = ApiCheck(parts, parts.identity) if parts.identity is not None else None

    async def start(self, names: Sequence[str]) -> dict[str, Handler]:
        """Fold the log, join the members, and start these roles; returns the handler of each tick."""
        parts = self._parts
        if self.api is not None:
            self.api.watches = "watcher" in names and not parts.settings.namespace
        comparing = asyncio.create_task(parts.membership.compare_clocks(), name="compare-clocks")
        try:  # concurrently: an empty log waits for a right clock
            await parts.follower.start()
            await comparing
        finally:
            await end([comparing])
        parts.membership.progress(parts.follower.state.epoch, parts.follower.state.offset)
        with suppress(LogUnavailable):  # the heartbeat tries again
            await parts.membership.join()
        handlers: dict[str, Handler] = {}
        for name in names:
            handlers |= getattr(self, f"_start_{name}")() or {}
        self._run(parts.membership.run(), "heartbeat")
        if self.api is not None:
            self._run(self.api.run(), "ask-api")
        return handlers

    async def drain(self) -> None:
        """Take no new work, let effects in flight end, and leave the members."""
        # A cancelled applier finishes its effects in flight, an analyst its question; every other task just ends.
        once = [task for name, task in self.tasks.items() if name in (applier.ROLE, analyst.ROLE)]
        late = await end(self.tasks.values(), once=once, within_s=self._parts.settings.drain_s, again_s=1.0)
        tell_late(late)
        tell_late(await end(late, within_s=END_S))  # cancels unfinished effects
        with suppress(LogUnavailable):
            await self._parts.membership.leave()

    def _start_watcher(self) -> None:
        for kind in Watched:
            setting = SETTING_OF.get(kind, "")
            if kind != Watched.PROVISIONING and (not setting or getattr(self._parts.settings, setting)):
                self._watch(kind)
        self._parts.follower.listen(OnceAsked(self._parts, lambda: self._watch(Watched.PROVISIONING)))

    def _watch(self, kind: Watched) -> None:
        watcher = self.watchers[kind] = Watcher(kind, self._parts)
        self._run(watcher.run(), f"watcher-{kind}")

    def _start_controller(self) -> None:
        self._follow(controller.ROLE, controller.Controller(self._parts))

    def _start_scheduler(self) -> dict[str, Handler]:
        role = scheduler.Scheduler(self._parts)
        self._follow(scheduler.ROLE, role)
        self._run(self._parts.ticker.run(scheduler.TICK, self._parts.settings.cycle_period_s), "cycle-ticks")
        return {scheduler.TICK: role.tick, **self._start_forecaster(role)}

    def _start_forecaster(self, cycles: scheduler.Scheduler) -> dict[str, Handler]:
        every_s = self._parts.settings.forecast_every_s
        if not every_s:
            return {}
        role = forecaster.Forecaster(self._parts, in_cycle=lambda: cycles.in_cycle)
        self._run(role.run(), forecaster.ROLE)
        self._run(self._parts.ticker.run(forecaster.TICK, every_s), "forecast-ticks")
        return {forecaster.TICK: role.tick}

    def _start_analyst(self) -> None:
        parts, settings = self._parts, self._parts.settings
        assert parts.answering is not None
        role = analyst.Analyst(
            settings.redis_url,
            cluster=settings.cluster,
            member_id=parts.member_id,
            answering=parts.answering,
            loop=asyncio.get_running_loop(),
            keys=parts.stream.keys,
            clock=parts.time,
            metrics=parts.metrics,
        )
        self._run(role.run(drain_s=max(0.0, settings.drain_s - 3.0)), analyst.ROLE)
        self._run(analyst.measure(parts.redis, settings.cluster, parts.clock, parts.metrics), "questions")

    def _start_applier(self) -> None:
        self._follow(applier.ROLE, applier.Applier(self._parts))

    def _start_maintenance(self) -> dict[str, Handler]:
        parts = self._parts
        archive_writer = self._start_archive_role() if parts.settings.archive_url else None
        role = maintenance.Maintenance(parts, self.guard, archive_writer)
        parts.follower.listen(role)
        self._run(parts.ticker.run(maintenance.TICK, maintenance.PERIOD_S), "maintenance-ticks")
        return {maintenance.TICK: role.maintain}

    def _start_archive_role(self) -> ArchiveWriter:
        settings = self._parts.settings
        blob_store = blob_store_at(settings.archive_url, settings.cluster)
        archive_writer = ArchiveWriter(
            blob_store, every_events=settings.archive_every_events, keys=self._parts.stream.keys
        )
        self._run(ArchiveRole(self._parts, archive_writer).run(), "archive")
        return archive_writer

    def _follow(self, name: str, role: _Following) -> None:
        self.following[name] = role
        self._parts.follower.listen(role)
        self._run(role.run(), name)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks[name] = self._spawn(work, name)


class OnceAsked:
    """Begins the watch of requests for nodes once any queue, or the configuration, wants them. One that was begun goes
    on in all processes, because nothing is decided until all kinds that were claimed are listed."""

    def __init__(self, parts: Parts, begin: Callable[[], None]) -> None:
        self._follower = parts.follower
        self._default = Provisioning(parts.settings.provisioning)
        self._begin: Callable[[], None] | None = begin
        self._tree: QueueTree | None = None
        self._look()

    def changed(self, _changes: Changes) -> None:
        self._look()

    def epoch_began(self) -> None:
        self._look()

    def _look(self) -> None:
        state = self._follower.state
        tree, claimed = state.queue_tree, Watched.PROVISIONING in state.terms
        if self._begin is None or (tree is self._tree and not claimed):
            return
        self._tree = tree
        if claimed or anybody_asks(tree, self._default):
            self._begin()
            self._begin = None


def tell_late(tasks: Sequence[Task]) -> None:
    """Log the tasks that haven't ended in time, if any."""
    if tasks:
        names = ", ".join(sorted(task.get_name() for task in tasks))
        log_event(_log, "not drained in time", level=logging.WARNING, tasks=names)
