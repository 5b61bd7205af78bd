"""A second writer of void decisions and observations: parts of quorums, without room, late or superseded."""

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes
from arranger.model.job import PlacedPods, Replacement, ScheduleState, Stage, TopologyMode, TopologyScope
from arranger.model.queue import DEFAULT_QUEUE, NonPreemptible
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import beyond_its_queue, kept_out
from arranger.projections.jobs.parts import LEADER, SlotKey
from arranger.projections.jobs.records import JobRecord, compact, expand
from arranger.projections.state import State
from arranger.projections.verdicts.judging import lacking
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.placing.needs import free_indices
from tests.memory_log import MemoryLog
from tests.simulation import worker_groups
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


#: In a run that is about this fault, the second writer does nothing else.
GROUPS = "two writers: part of a worker group"

#: The limits of a queue that has none.
_UNLIMITED: dict[str, Any] = {
    "guarantee": (), "capability": (), "max_running": None, "non_preemptible": NonPreemptible.MAY_BORROW,
}  # fmt: skip


class Rogue:
    """A second writer that is late, outdated or wrong: its batches must have no effect."""

    def __init__(self, world: "World", chance: random.Random | None = None) -> None:
        self._world = world
        self._chance = chance or random.Random(world.chance.getrandbits(64))

    async def run(self) -> None:
        """Append something void now and then, until the faults stop."""
        faults = self._world.faults
        acts = (
            self._part_of_a_quorum,
            self._part_of_a_worker_group,
            self._no_room,
            self._scattered,
            self._closed,
            self._closed,  # rarely a worker still runs there when the log records it
            self._old_term,
            self._old_version,
            self._old_cycle,
        )
        pace_s = 3.0
        if faults.often(GROUPS):
            acts, pace_s = (self._part_of_a_worker_group,), 0.5
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / pace_s))
            if self._world.faults.on and not self._world.log_away and self._world.home.index is not None:
                await self._chance.choice(acts)()

    async def _say(self, site: str, *events: k.Event) -> None:
        oracle = self._world.oracle
        epoch, before = oracle.state.epoch, _substance(oracle.state)
        number = next(self._world.rogue_batches)
        batch = k.Batch("rogue", number, oracle.state.time_ms, events)  # another time alone would have an effect
        await MemoryLog(self._world.home).append(batch, epoch=epoch)
        self._world.faults.hit(site)
        self._world.step("rogue", f"appends {site}")
        if _substance(oracle.state) != before:
            self._world.fail(Violation(f"{site} had an effect: {events}"), None)

    def _waiting(self) -> list[JobRecord]:
        return [job for job in self._world.oracle.state.jobs.values() if job.active and not job.placements]

    def _nodes(self) -> list[str]:
        nodes = self._world.oracle.state.nodes
        return [name for name, row in sorted(nodes.rows.items()) if nodes.present(row)]

    def _cycle(self) -> k.CycleTaken:
        state = self._world.oracle.state
        return k.CycleTaken(max(state.offset, state.last_cycle), state.time_ms, self._world.cycle_config)

    async def _part_of_a_quorum(self) -> None:
        jobs = [job for job in self._waiting() if job.spec is not None and job.spec.min_workers]
        if jobs and self._nodes():
            job = self._chance.choice(jobs)
            pods = (PlacedPods(self._chance.choice(self._nodes()), 0, ((0, 0),)),)
            placed = k.Placed(job.uid, job.version, job.attempt, ScheduleState.PARTLY, pods)
            await self._say("two writers: part of a quorum", self._cycle(), placed)

    async def _part_of_a_worker_group(self) -> None:
        """One pod of a worker group gets a node that has room for it, or one of its pods is replaced alone."""
        state, chance, site = self._world.oracle.state, self._chance, GROUPS
        jobs = [
            job for job in state.jobs.values() if job.active and job.placements and job.valid_spec.has_worker_groups
        ]
        for job in chance.sample(jobs, len(jobs)):
            sized = [number for number, of in enumerate(job.valid_spec.groups) if of.group_size > 1]
            for group, indices in free_indices(job, sized).items():
                fits = [node for node in self._nodes() if not lacking(state.nodes, job, {(group, indices[0]): node})]
                for node in chance.sample(fits, min(len(fits), 1)):
                    pods = (PlacedPods(node, group, ((indices[0], indices[0]),)),)
                    placed = k.Placed(job.uid, job.version, job.attempt, ScheduleState.PARTLY, pods)
                    await self._say(site, self._cycle(), placed)
                    return
        for job in chance.sample(jobs, len(jobs)):
            for group, indices in worker_groups.of(job, job.placements):
                slots = [(group, index) for index in indices if (group, index) in job.placements]
                if len(slots) > 1:
                    slot = chance.choice(slots)
                    alone = (k.EndedWorker(k.Slot(*slot), job.bound.get(slot, ""), Replacement.ELSEWHERE, False),)
                    decided = k.WorkersReplaced(job.uid, job.version, job.attempt, alone, ())
                    await self._say(site, decided)
                    return

    async def _no_room(self) -> None:
        nodes = self._world.oracle.state.nodes
        for job in self._waiting():
            assert job.spec is not None
            cpu = sum(dict(group.shape.requests).get("cpu", 0) * group.count for group in job.spec.groups)
            full = [name for name in self._nodes() if nodes.free()[nodes.rows[name], nodes.columns["cpu"]] < cpu]
            if full and cpu:  # pods that request nothing fit on an overbooked node
                node = self._chance.choice(full)
                groups = enumerate(job.spec.groups)
                pods = tuple(PlacedPods(node, number, ((0, group.count - 1),)) for number, group in groups)
                placed = k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, pods)
                await self._say("two writers: no room", self._cycle(), placed)
                return

    async def too_early(self) -> None:
        """Place a job that waits for others, as a cycle would that doesn't know of them."""
        jobs = [job for job in self._waiting() if job.spec is not None and job.spec.unmet]
        if not jobs:
            return
        uid, state = self._chance.choice(jobs).uid, snapshot.restore(snapshot.encode(self._world.oracle.state))
        state.jobs[uid].spec = msgspec.structs.replace(state.jobs[uid].valid_spec, after=())
        for event in take_cycle(state, self._world.cycle_config, state.time_ms):
            if isinstance(event, k.Placed) and event.job_uid == uid:
                await self._say("two writers: a job that waits for another", self._cycle(), event)

    async def too_late(self, uid: str) -> None:
        """A job fails, or begins again, that has just succeeded."""
        world = self._world
        job = world.oracle.state.jobs.get(uid)
        if job is None or world.log_away or world.home.index is None:
            return
        if not world.endings.has_succeeded(world.oracle.state, uid) or job.stage not in (Stage.STARTING, Stage.RUNNING):
            return
        ends = ((Stage.FAILED, StageReason.WORKERS_FAILED), (Stage.RESCHEDULING, StageReason.NODE_LOST))
        stage, reason = self._chance.choice(ends)
        await self._say(
            "two writers: the failure of a success", k.StageDecided(uid, job.version, job.attempt, stage, reason)
        )

    async def outside_its_queue(self) -> None:
        """Place a job that can't use its queue, as a cycle would that doesn't know of queues."""
        oracle = self._world.oracle.state
        jobs = [job for job in self._waiting() if kept_out(oracle, job) is not None]
        if not jobs:
            return
        uid, state = self._chance.choice(jobs).uid, snapshot.restore(snapshot.encode(oracle))
        state.jobs[uid].spec = msgspec.structs.replace(state.jobs[uid].valid_spec, queue=DEFAULT_QUEUE)
        state.queues.clear()
        state.tree_changed()
        for event in take_cycle(state, self._world.cycle_config, state.time_ms):
            if isinstance(event, k.Placed) and event.job_uid == uid:
                await self._say("two writers: a job that can't use its queue", self._cycle(), event)

    async def beyond_its_queue(self) -> None:
        """Place a job beyond its queue's limits, as a cycle would that doesn't know of them."""
        oracle = self._world.oracle.state
        ways = {job.uid: oracle.queue_tree.paths.get(queue_of(oracle, job), ()) for job in self._waiting()}
        uids = [uid for uid, way in ways.items() if any(oracle.queue_tree.specs[name].limited for name in way)]
        if not uids:
            return
        uid, state = self._chance.choice(uids), snapshot.restore(snapshot.encode(oracle))
        for name, seen in state.queues.items():
            spec = seen.spec and msgspec.structs.replace(seen.spec, **_UNLIMITED)
            state.queues[name] = msgspec.structs.replace(seen, spec=spec)
        state.tree_changed()
        for event in take_cycle(state, self._world.cycle_config, state.time_ms):
            if not isinstance(event, k.Placed) or event.job_uid != uid:
                continue
            if beyond_its_queue(oracle, oracle.jobs[uid], expand(event.pods)):
                await self._say("two writers: more than a queue may have", self._cycle(), event)

    async def _scattered(self) -> None:
        """Decide on nodes of several domains for a job whose topology is required."""
        nodes, names = self._world.oracle.state.nodes, self._nodes()
        if len(names) < 2:
            return
        first, last = (dict(nodes.facts[nodes.rows[name]].labels) for name in (names[0], names[-1]))
        for job in self._waiting():
            spec = job.valid_spec
            of_sets = [spec.topology_of(number) for number, group in enumerate(spec.groups) if group.count > 1]
            of_sets = [of for of in of_sets if of is not None and of.within == TopologyScope.SET]
            required = [
                of for of in (spec.whole_topology, *of_sets) if of is not None and of.mode == TopologyMode.REQUIRED
            ]
            if sum(group.count for group in spec.groups) < 2 or not required:
                continue
            paths = [path for of in required for path in of.paths() if path[0] in first]
            if any([first.get(key) for key in path] == [last.get(key) for key in path] for path in paths):
                continue
            slots = [(number, index) for number, group in enumerate(spec.groups) for index in range(group.count)]
            pods = tuple(
                PlacedPods(names[-(at % 2)], number, ((index, index),)) for at, (number, index) in enumerate(slots)
            )
            placed = k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, pods)
            await self._say("two writers: scattered pods", self._cycle(), placed)
            return

    async def _closed(self) -> None:
        """Decide that a worker keeps its node after that was closed to it."""
        state = self._world.oracle.state
        found = [(uid, slot) for uid, job in state.jobs.items() for slot in _workers_there(job)]
        if not found:
            return
        uid, slot = self._chance.choice(found)
        node, pod = state.jobs[uid].placements[slot], state.jobs[uid].bound[slot]
        self._world.machines.cordon(node)
        if await self._cordoned(node):
            current = self._world.oracle.state.jobs.get(uid)
            if current is not None and current.placements.get(slot) == node and current.bound.get(slot) == pod:
                stays = (k.EndedWorker(k.Slot(*slot), pod, Replacement.SAME_NODE, True),)
                decided = k.WorkersReplaced(uid, current.version, current.attempt, stays, ())
                await self._say("two writers: a closed node", decided)

    async def _cordoned(self, node: str) -> bool:
        """Wait for the log to record a node's cordon; returns whether it does so in time."""
        for _ in range(40):
            await asyncio.sleep(0.3)
            nodes = self._world.oracle.state.nodes
            if nodes.has(node) and nodes.facts[nodes.rows[node]].cordoned:
                return not self._world.log_away and self._world.home.index is not None
        return False

    async def too_little_room(self) -> None:
        """Let too few give room to a job: one victim less than a cycle names, or one that keeps a pod."""
        state = self._world.oracle.state
        events = take_cycle(state, self._world.cycle_config, state.time_ms)
        found = next((event for event in events if isinstance(event, k.Preempted)), None)
        others_too = any(isinstance(event, k.Placed | k.Reserved) for event in events) or state.reservations
        guaranteed = any(spec.guarantee for spec in state.queue_tree.specs.values())
        if found is None or others_too or guaranteed:
            return  # a victim may be due to what others got, reserved or are guaranteed: the fold doesn't judge that
        *others, last = found.victims
        slots = expand(last.pods)
        if len(slots) > 1 and last.kind.whole and self._chance.random() < 0.5:
            slots.popitem()
            others.append(msgspec.structs.replace(last, pods=compact(slots)))
        less = msgspec.structs.replace(found, victims=tuple(others))
        await self._say("two writers: too little room", self._cycle(), less)

    async def _old_term(self) -> None:
        state = self._world.oracle.state
        if state.pods and state.terms.get(k.Watched.POD):
            pod = state.pods[self._chance.choice(sorted(state.pods))]
            gone = k.ObjectGone(k.Watched.POD, state.terms[k.Watched.POD] - 1, pod.namespace, pod.name, pod.uid)
            await self._say("two writers: an old term", gone)

    async def _old_version(self) -> None:
        jobs = [job for job in self._world.oracle.state.jobs.values() if not job.ended]
        if jobs:
            job = self._chance.choice(jobs)
            decided = k.StageDecided(job.uid, job.version - 1, job.attempt, Stage.FAILED, StageReason.AS_RECORDED)
            await self._say("two writers: an old version", decided)

    async def _old_cycle(self) -> None:
        state = self._world.oracle.state
        jobs, nodes = self._waiting(), self._nodes()
        if state.last_cycle and jobs and nodes:
            job, cycle = self._chance.choice(jobs), msgspec.structs.replace(self._cycle(), base=state.last_cycle - 1)
            assert job.spec is not None
            groups = enumerate(job.spec.groups)
            pods = tuple(
                PlacedPods(nodes[number % len(nodes)], number, ((0, group.count - 1),)) for number, group in groups
            )
            placed = k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, pods)
            # Waiting pods rarely have room; a reason would be valid in either case.
            waits = k.Waits(job.uid, job.version, job.schedule_state, LackOfNodes(0, 1, group="learner"))
            await self._say("two writers: a superseded cycle", cycle, waits, placed)


def _workers_there(job: JobRecord) -> list[SlotKey]:
    """Slots of workers that could be replaced alone."""
    alone = [slot for slot in job.bound if slot != LEADER and not worker_groups.of(job, [slot])]
    return sorted(slot for slot in alone if slot in job.placements)


def jobs_substance(state: State) -> Any:
    """The parts of jobs that decisions and observations change."""
    return [
        (uid, job.stage, job.attempt, job.version, dict(job.placements), dict(job.bound), job.waits)
        for uid, job in state.jobs.items()
    ]


def _substance(state: State) -> Any:
    """The parts of the state that decisions and observations change, without the counts of verdicts."""
    return jobs_substance(state), sorted(state.pods)
