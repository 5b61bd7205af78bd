"""Limits of the leader's restarts within a window: more restarts than that are never decided on."""

import random
from typing import TYPE_CHECKING, Any

from arranger.events import kinds as k
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A failure is observed before the decision on it, and a process that decides may pause between.
_SLACK_MS = 30_000


class Windows:
    """Gives leaders such limits, and checks the decisions on their failures."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} windows")
        self._comes = chance.random() < 0.4
        #: Job's UID → when its leader's restarts were decided on in this epoch.
        self._times: dict[str, list[int]] = {}

    def draw(self) -> dict[str, Any]:
        """A part of a new job's leader; empty for one that has no limit of its own."""
        if not self._comes or self._chance.random() < 0.5:
            return {}
        self._world.faults.hit("a leader's restarts count within a window")
        return {"restart": {"limit": self._chance.randrange(3), "windowSeconds": self._chance.choice((60, 300))}}

    def forget(self) -> None:
        """The log lost its end, and so some failures."""
        self._times.clear()

    def too_many(self, event: k.StageDecided, job: JobRecord, time_ms: int) -> bool:
        """Whether a decision restarts a leader too often. In the time of one window lie parts of two at most."""
        policy = job.spec.restart_of(0) if job.spec is not None else None
        if event.reason != StageReason.LEADER_FAILED or policy is None or policy.window_s is None:
            return False
        times = self._times.setdefault(job.uid, [])
        times.append(time_ms)
        first = times[-1 - 2 * policy.limit] if len(times) > 2 * policy.limit else None
        return first is not None and (not policy.limit or time_ms - first < policy.window_s * 1000 - _SLACK_MS)

    def fails_forever(self, job: JobRecord) -> bool:
        """Whether pods of the job fail and may do so without end: then it waits for the end of a back-off."""
        reason = job.decided.reason if job.decided is not None else None
        if job.spec is None:
            return False
        if reason == StageReason.LEADER_FAILED:
            return job.spec.restart_of(0).window_s is not None
        policies = [job.spec.restart_of(group) for group in range(1, len(job.spec.groups))]
        return reason == StageReason.WORKER_ENDED and any(of.window_s is not None for of in policies)
