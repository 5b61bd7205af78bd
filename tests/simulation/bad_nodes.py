"""Nodes that worker sets avoid, because a worker failed there repeatedly: no cycle soon places another one there."""

from typing import TYPE_CHECKING

from arranger.events import kinds as k
from arranger.model.job import Replacement
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord

if TYPE_CHECKING:
    from tests.simulation.world import World


class BadNodes:
    """Knows which nodes workers were moved away from, from the accepted decisions alone."""

    def __init__(self, world: "World") -> None:
        self._world = world
        #: (Job's UID, worker set) → node → when a worker was moved away from there.
        self._left: dict[tuple[str, str], dict[str, int]] = {}

    def forget(self) -> None:
        """The log lost its end: what it doesn't know binds no cycle."""
        self._left.clear()

    def left(self, event: k.WorkersReplaced, job: JobRecord, nodes: dict[SlotKey, str], time_ms: int) -> None:
        """Note workers that were moved away. `nodes` are those of the slots before."""
        for worker in event.workers:
            if worker.failures and worker.how == Replacement.ELSEWHERE and job.spec is not None:
                of_set = self._left.setdefault((job.uid, job.spec.groups[worker.slot.group].name), {})
                of_set[nodes[worker.slot.group, worker.slot.index]] = time_ms
                self._world.faults.hit("a worker leaves a node on which it failed repeatedly")

    def returns(self, job: JobRecord, group: int, node: str, cycle_time_ms: int) -> bool:
        """Whether a cycle places a worker on a node that its set avoids."""
        since_ms = self._left.get((job.uid, job.valid_spec.groups[group].name), {}).get(node)
        return since_ms is not None and cycle_time_ms < since_ms + self._world.cycle_config.refusal_avoid_ms
