"""All statuses and Events that an applier writes."""

import asyncio
from collections.abc import Awaitable

from arranger.workers.applying.effects.job_writer import Means
from arranger.workers.applying.statuses.group_writer import GroupWriter
from arranger.workers.applying.statuses.queue_writer import QueueWriter
from arranger.workers.applying.statuses.reports import Reports
from arranger.workers.applying.statuses.status_writer import StatusWriter


class AllStatuses:
    """`jobs` stores a job's status when it is looked at, and `reports` records its Events soon after. Those of Queues
    and PodGroups are kept meanwhile, as far as they are in this member's share of `role`."""

    def __init__(self, means: Means, role: str) -> None:
        effects, membership = means.effects, means.effects.parts.membership
        self.reports = Reports(effects, lambda: len(membership.seen(role)))
        self.jobs = StatusWriter(means, self.reports)
        self._queues = QueueWriter(effects, lambda uid: membership.owns(uid, role))
        self._groups = GroupWriter(effects, lambda uid: membership.owns(uid, role))
        self._tasks: list[asyncio.Task[None]] = []

    def changed(self) -> None:
        """The projection has changed."""
        if self._tasks:
            self._groups.begin()

    def clear(self) -> None:
        """Discard everything derived from an earlier epoch."""
        for writer in (self.jobs, self.reports, self._queues, self._groups):
            writer.clear()

    def begin(self) -> None:
        """Keep the statuses from now on."""
        work = {
            "reports": self.reports.run(),
            "queue-statuses": self._queues.run(),
            "queue-positions": self.jobs.positions.run(),
            "first-statuses": self.jobs.run(),
        }
        self._tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
        self._groups.begin()

    async def end(self, looks: Awaitable[None]) -> None:
        """Begin no more of them, and let effects in flight finish, those of `looks` as well. Events that aren't
        recorded yet are dropped."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, looks, return_exceptions=True)
        await self._groups.end()
