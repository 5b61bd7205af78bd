"""Racks and blocks of the simulated world: nodes have their labels, jobs ask for one domain, and nodes are moved."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.kube.cluster import NODES, ApiError, Object
from arranger.model.job import TopologyMode, TopologyScope
from arranger.projections.jobs.records import JobRecord, SlotKey, expand
from arranger.projections.state import State
from tests.simulation.faults import TOPOLOGIES

if TYPE_CHECKING:
    from tests.simulation.world import World

RACK, BLOCK = "x.io/rack", "x.io/block"
_MOVED, RACE = TOPOLOGIES
_PACE_S = 20.0


class Topologies:
    """Gives nodes their labels and jobs their topologies, and moves nodes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} topologies")
        self._comes = chance.random() < 0.5 or world.faults.often(RACE)
        if self._comes:
            world.faults.rates.setdefault(RACE, 0.1)
        #: Whether racks are numbered within their block, so that racks of several blocks have equal labels.
        self._numbered = random.Random(f"{world.seed} racks").random() < 0.5
        self._moved: dict[str, dict[str, str]] = {}
        self._crowd = random.Random(f"{world.seed} crowds in one domain")
        self._binds = self._crowd.random() < 0.3 or world.faults.often(RACE)

    def labels(self, number: int) -> dict[str, str]:
        """The labels of a node: of two in a rack, and two racks in a block; a few have none."""
        if not self._comes or self._chance.random() < 0.1:
            return {}
        rack = number // 2
        return {RACK: f"r{rack % 2 if self._numbered else rack}", BLOCK: f"b{number // 4}"}

    def draw(self, spec: Object) -> None:
        """Give a job and its worker sets topologies, or none."""
        chance = self._chance
        often = self._world.faults.often(RACE)
        if not self._comes or (chance.random() < 0.4 and not often):
            return
        if chance.random() < 0.6 or often:
            spec["topology"] = self._topology(tuple(TopologyScope))
        for each in spec.get("workerSets") or ():
            if chance.random() < 0.4:
                each["topology"] = self._topology((TopologyScope.SET, TopologyScope.GROUP))

    def bind(self, spec: Object) -> None:
        """In some worlds, bind many jobs of a crowd to one domain. Where it is full, their workers run in turns."""
        if self._comes and self._binds and self._crowd.random() < 0.5:
            spec["topology"] = {"levels": [self._crowd.choice((RACK, BLOCK))], "mode": "Required"}
            for each in spec["workerSets"]:
                notes = each["template"].setdefault("metadata", {}).setdefault("annotations", {})
                notes.setdefault("sandbox.arranger.dev/run-seconds", f"{self._crowd.uniform(5, 30):.1f}")

    def _topology(self, scopes: tuple[TopologyScope, ...]) -> Object:
        found: dict[str, Any] = {"levels": list(self._chance.choice(((RACK,), (BLOCK,), (RACK, BLOCK), (RACK, BLOCK))))}
        found |= {"mode": self._chance.choice(("Required", "Required", "Preferred"))}
        return found | ({"within": self._chance.choice(scopes).value} if self._chance.random() < 0.7 else {})

    async def run(self) -> None:
        """Move one node after the other until the faults stop."""
        while self._comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            self._move(self._chance.choice([node.name for node in self._world.machines.templates]), _MOVED)

    async def race(self, batch: k.Batch) -> None:
        """Move a node on which a cycle in flight places pods of a topology; mostly the log records that first."""
        jobs = self._world.oracle.state.jobs
        nodes = sorted(
            pods.node
            for event in batch.events
            if isinstance(event, k.Placed) and event.job_uid in jobs and jobs[event.job_uid].valid_spec.has_topology
            for pods in event.pods
        )
        if self._comes and nodes and self._world.faults.at(RACE):
            self._move(self._chance.choice(nodes), RACE)
            await asyncio.sleep(self._chance.uniform(0.02, 1.0))

    def _move(self, node: str, site: str) -> None:
        rack, block = self._chance.randrange(2 if self._numbered else 9), self._chance.randrange(9)
        labels = {RACK: f"r{rack}", BLOCK: f"b{block}"}
        with suppress(ApiError):
            self._world.store.patch(NODES, "", node, {"metadata": {"labels": labels}})
            self._world.faults.hit(site)
            self._world.step("topologies", f"moves {node} to {labels}")
            self._moved[node] = labels

    def heal(self) -> None:
        """Move every node back."""
        for node in self._world.machines.templates:
            if self._moved.pop(node.name, None) is not None:
                back = {key: node.labels.get(key) for key in (RACK, BLOCK)}
                with suppress(ApiError):
                    self._world.store.patch(NODES, "", node.name, {"metadata": {"labels": back}})


def scattered(state: State, job: JobRecord, event: k.Placed) -> str:
    """The pods of a decision that share no domain of a required topology with the others of their unit, as text."""
    spec, decided = job.valid_spec, expand(event.pods)
    units: list[tuple[str, tuple[str, ...], list[SlotKey]]] = []
    of_job = spec.topology
    if of_job is not None and of_job.within == "Job" and of_job.mode == TopologyMode.REQUIRED:
        units.append((spec.groups[0].name, of_job.levels, list(job.placements)))
    for number, group in enumerate(spec.groups[1:], start=1):
        of_set = group.topology or (of_job if of_job is not None and of_job.within != "Job" else None)
        if of_set is not None and of_set.mode == TopologyMode.REQUIRED:
            size = group.group_size if of_set.within == "Group" else max(group.count, 1)
            for first in range(0, group.count, size):
                slots = [slot for slot in job.placements if slot[0] == number and first <= slot[1] < first + size]
                units.append((group.name, of_set.levels, slots))
    for name, levels, slots in units:
        if any(slot in decided for slot in slots) and not _together(
            state, {job.placements[slot] for slot in slots}, levels
        ):
            return f"pods of {name} share no domain of {levels}: {sorted(job.placements.items())}"
    return ""


def joins_nobody(job: JobRecord, event: k.Waits) -> str:
    """The pods that wait beyond a quorum to join others of their job in a domain, although none is there, as text: the
    others have finished, so each domain with room for a single pod would do."""
    found = event.shortage
    if not isinstance(found, LackOfNodes) or not found.further or job.placements:
        return ""
    unit = found.topology
    sizes = {group.name: group.group_size for group in job.valid_spec.groups}
    if unit is None or unit.within != TopologyScope.JOB or sizes.get(found.group, 0) != 1:
        return ""
    if all(level.most < unit.pods for level in unit.levels):
        return ""  # no domain has room for it
    return f"{unit.pods} pods of {found.group}, {unit.levels}"


def _together(state: State, nodes: Iterable[str], levels: Sequence[str]) -> bool:
    """Whether all nodes have one value of some level's label, and share what they have of those of wider levels."""
    labels = [dict(of.labels) for node in nodes if (of := state.nodes.facts_of(node)) is not None]
    for level, key in enumerate(levels):
        alike = all(labels[0].get(wider) == of.get(wider) for of in labels for wider in levels[level:])
        if labels and alike and key in labels[0]:
            return True
    return not labels
