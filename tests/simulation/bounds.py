"""Bounds on the workers' memory once all work is done: backlogs are empty, and collections have only present objects.

Any collection that grows with history fails here: with deleted jobs and pods, ended attempts, former members, or
abandoned tasks.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from arranger.projections.jobs.parts import SetRecord
from arranger.projections.state import State

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

#: Tasks of one idle process: its roles, their watches, and the tasks in which each of these waits.
_TASKS = 120
#: Waiters for the fold in one process: the watcher of each kind waits for the end of its term.
_WAITERS = 19
#: Events that the log may have when maintenance keeps up: its reserve, its tolerance, and some in flight.
_EVENTS = 600
#: Batches whose identity the log's server remembers.
_WRITERS = 10_000


def overgrown(world: "World") -> list[str]:
    """Every exceeded bound, as text."""
    found = [*_of_log(world), *_of_state(world.oracle.state)]
    tasks = Counter(owner.name for task in asyncio.all_tasks() if (owner := task.owner) is not None)  # type: ignore[attr-defined]
    for process in world.processes:
        if tasks[process.name] > _TASKS:
            found.append(f"{process.name} has {tasks[process.name]} tasks")
        found += [f"{process.name}: {text}" for text in _of_process(process)]
    return found


def _of_log(world: "World") -> Iterator[str]:
    held = sum(entry.count for entry in world.home.stored)
    maintained = any("maintenance" in process.roles for process in world.processes)
    if maintained and held > _EVENTS:
        yield f"the log holds {held} events, which nobody trims"
    if len(world.home.writers) > _WRITERS:
        yield f"the log remembers {len(world.home.writers)} writers"
    for process in world.processes:
        gone = {member.id for member in process.membership.seen()} - {each.name for each in world.processes}
        if gone:
            yield f"{process.name} believes that {sorted(gone)} live"


def _of_state(state: State) -> Iterator[str]:
    """The projection has present objects only."""
    for uid, pods in state.pods_of.items():
        if not pods:
            yield f"no pods of job {uid} are kept as an empty table"
        elif uid not in state.jobs:
            yield f"pods of job {uid} are kept, which is gone"
    nodes = state.nodes
    empty = [name for name, row in nodes.rows.items() if not nodes.present(row) and not nodes.holders[row]]
    if empty:
        yield f"rows of nodes {empty} are kept, which are gone and hold nothing"
    for job in state.jobs.values():
        if job.spec is None:
            continue
        groups = {group.name for group in job.spec.groups}
        known_sets = {name for name, of_set in job.sets.items() if of_set != SetRecord()}
        if not groups >= known_sets:
            yield f"job {job.seen.name} keeps records of sets that it hasn't: {sorted(known_sets - groups)}"
        if not state.pods.keys() >= job.retired.keys():
            yield f"job {job.seen.name} keeps retired pods that are gone"
        known = {name for name, row in nodes.rows.items() if nodes.present(row)}
        if len(job.refusals.keys() - known) > 8:
            yield f"job {job.seen.name} remembers refusals of nodes that are gone"


def _of_process(process: "SimulatedProcess") -> Iterator[str]:
    state = process.follower.state
    waiters = len(process.follower._advanced._waiters)  # type: ignore[attr-defined]
    if waiters > _WAITERS:
        yield f"{waiters} wait for the fold"
    there = state.jobs.keys() | state.pods_of.keys()
    for name, role in process.roles_at_work.following.items():
        queue = getattr(role, "_queue", None)
        if queue is None:
            continue
        if queue._running:
            yield f"the {name} still works on {list(queue._running)}"
        if (queue._touched.keys() | queue._again.keys() | queue._planned.keys()) - there:
            yield f"the {name}'s queue has jobs that are gone"
    applier = process.applier
    if applier is None:
        return
    if applier._progress.keys() - there:
        yield "the applier keeps progress of jobs that are gone"
    for uid, progress in applier._progress.items():
        job = state.jobs.get(uid)
        if job is None or job.spec is None:
            continue
        old = [key for key in progress.refusals if key[0] != job.attempt]
        if old:
            yield f"the applier keeps refusals of earlier attempts of {job.seen.name}"
        if len(progress.settling) > job.pods_desired() + 8:
            yield f"the applier lets {len(progress.settling)} effects of {job.seen.name} settle"
