"""Queues and namespaces in the projection."""

from collections.abc import Callable

from arranger.events.kinds import (
    LimitRangeSeen,
    NamespaceSeen,
    ObjectGone,
    QueueSeen,
    RuntimeClassSeen,
    Watched,
)
from arranger.projections.derived.queue_counts import count_jobs, follow_limits, limits_non_preemptible
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed import objects
from arranger.projections.observed.namespace_terms import select_again
from arranger.projections.observed.runtime_classes import resolve_limits, resolve_runtimes
from arranger.projections.state import Changes, State


def see_queue(state: State, event: QueueSeen, changes: Changes) -> None:
    old = objects.put(state, event)
    if old is None or (old.spec, old.faults) != (event.spec, event.faults):
        if limits_non_preemptible(old) != limits_non_preemptible(event):
            follow_limits(state)
        _queues_changed(state, changes)


def forget_queue(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        follow_limits(state)
        state.queue_use.forget_deleted(state.queues.keys())
        _queues_changed(state, changes)


def see_namespace(state: State, event: NamespaceSeen, changes: Changes) -> None:
    old = state.namespaces.get(event.name)
    moved = _jobs_in(state, event.name) if event.queue != (old.queue if old is not None else "") else []
    count_jobs(state, moved, -1)
    state.namespaces[event.name] = event
    count_jobs(state, moved, 1)
    if old is None or (old.labels, old.queue) != (event.labels, event.queue):
        _namespace_changed(state, event.name, changes)


def forget_namespace(state: State, event: ObjectGone, changes: Changes) -> None:
    known = state.namespaces.get(event.name)
    if known is not None and known.uid == event.uid:
        moved = _jobs_in(state, event.name) if known.queue else []
        count_jobs(state, moved, -1)
        del state.namespaces[event.name]
        count_jobs(state, moved, 1)
        _namespace_changed(state, event.name, changes)


def see_runtime_class(state: State, event: RuntimeClassSeen, changes: Changes) -> None:
    objects.put(state, event)
    resolve_runtimes(state, changes, event.name)


def forget_runtime_class(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        resolve_runtimes(state, changes, event.name)


def see_limit_range(state: State, event: LimitRangeSeen, changes: Changes) -> None:
    objects.put(state, event)
    resolve_limits(state, {event.namespace}, changes)


def forget_limit_range(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        resolve_limits(state, {event.namespace}, changes)


def _queues_changed(state: State, changes: Changes) -> None:
    state.tree_changed()
    _touch(state, Watched.QUEUE, changes, lambda job: not job.placements)


def _namespace_changed(state: State, name: str, changes: Changes) -> None:
    if state.listed.get(Watched.NAMESPACE, False):  # else the end of the listing does that, once for all of them
        select_again(state)
    _touch(state, Watched.NAMESPACE, changes, lambda job: job.seen.namespace == name)


def _jobs_in(state: State, name: str) -> list[JobRecord]:
    """The jobs of a namespace that have nodes."""
    return [job for job in state.jobs.values() if job.placements and job.seen.namespace == name]


def _touch(state: State, kind: Watched, changes: Changes, concerns: Callable[[JobRecord], bool]) -> None:
    """Note that jobs may be placed now that couldn't be before, or no longer. The end of a listing touches all jobs, so
    the objects in a first listing needn't."""
    state.scheduling_changes += 1
    changes.schedulable = True
    if state.listed.get(kind, False):
        changes.jobs.update((job.uid, None) for job in state.jobs.values() if job.active and concerns(job))
