"""Jobs over simulated time: the real fold and the real cycle on a virtual clock, with jobs that run for a known time.

All pods of a job run as soon as a cycle places them, those that give room are gone at once, and its user deletes the
job when its time is over. Who uses this
decides when jobs are submitted, and when cycles are taken.
"""

import heapq
from collections.abc import Callable

from arranger.events.kinds import Placed, Preempted
from arranger.lifecycle.stages import next_decision
from arranger.model.config import CycleConfig
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import Cycles
from tests.world import World


class JobsOverTime:
    """A world whose jobs run and end. Nodes, queues and waiting jobs are observed by `world`; times are its times."""

    def __init__(
        self,
        config: CycleConfig,
        *,
        ended: Callable[[JobRecord], object],
        gave: Callable[[JobRecord], object] = lambda job: None,
    ) -> None:
        """`ended` is called with each job that is over, at that time, `gave` with each that gave room to another."""
        self.world = World(config=config)
        self._cycles = Cycles()
        self._ended = ended
        self._gave = gave
        #: The ends of running jobs: (time in ms, name, UID). Ended jobs may still be in it.
        self._ends: list[tuple[int, str, str]] = []

    def next_end_ms(self) -> int | None:
        """The time of the next end; None if no job runs."""
        while self._ends and self._ends[0][2] not in self.world.state.jobs:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def end_due(self) -> None:
        """End the jobs that have run for their time."""
        while (due_ms := self.next_end_ms()) is not None and due_ms <= self.world.now_ms:
            self.end(self.world.state.jobs[self._ends[0][2]])

    def cycle(self, lasts_ms: Callable[[JobRecord], int]) -> list[JobRecord]:
        """Take a cycle, and let the pods that it places run. Returns their jobs, which last for `lasts_ms`."""
        world = self.world
        events = self._cycles.take(world.state, world.config, world.now_ms)
        if events:
            world.say(*events)
        taken = [event for event in events if isinstance(event, Preempted)]
        for uid in [uid for event in taken for of in event.victims for uid in world.state.pods_of.get(of.job_uid, {})]:
            world.pod_gone(uid)
        victims = {of.job_uid: world.state.jobs[of.job_uid] for event in taken for of in event.victims}
        gone = {uid: job for uid, job in victims.items() if not job.placements}
        self._ends = [of for of in self._ends if of[2] not in gone]
        heapq.heapify(self._ends)
        for job in gone.values():
            self._gave(job)
        gets = [*(event for event in events if isinstance(event, Placed)), *(event.placed for event in taken)]
        placed = [world.state.jobs[event.job_uid] for event in gets]
        for job in placed:
            self._decide(job)
            for slot, node in job.placements.items():
                world.run_pod(job, slot, node)
            self._decide(job)
            heapq.heappush(self._ends, (world.now_ms + lasts_ms(job), job.seen.name, job.uid))
        return placed

    def end(self, job: JobRecord) -> None:
        """A job's pods end, if it has any, and then its user deletes it."""
        pods = [*job.bound.values()]
        for uid in pods:
            self.world.change_pod(uid, phase="Succeeded", ready=False)
        self._decide(job)
        for uid in pods:
            self.world.pod_gone(uid)
        self.world.job_gone(job)
        self._ended(job)

    def forget(self) -> None:
        """Drop the log so far, which must not have a rejected decision."""
        assert all(verdict.accepted for verdict in self.world.verdicts)
        self.world.entries.clear()
        self.world.verdicts.clear()

    def _decide(self, job: JobRecord) -> None:
        world = self.world
        while (decided := next_decision(world.state, job, world.lifecycle, world.now_ms)) is not None:
            world.say(decided)
