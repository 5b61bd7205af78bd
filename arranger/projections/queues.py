"""Queues and namespaces in the projection."""

from collections.abc import Callable

from arranger.events.kinds import (
    GROUP_KINDS,
    OF_VOLUMES,
    SETTING_OF,
    LimitRangeSeen,
    NamespaceSeen,
    ObjectGone,
    QueueSeen,
    RuntimeClassSeen,
    Watched,
)
from arranger.projections import objects
from arranger.projections.devices import forget_devices
from arranger.projections.jobs import JobRecord
from arranger.projections.namespace_terms import select_again
from arranger.projections.provisioning import forget_requests
from arranger.projections.queue_counts import count_all, count_jobs, pods_of_others
from arranger.projections.runtime_classes import resolve_limits, resolve_runtimes
from arranger.projections.state import Changes, State
from arranger.projections.volumes import forget_volumes


def see_queue(state: State, event: QueueSeen, changes: Changes) -> None:
    old = objects.put(state, event)
    if old is None or (old.spec, old.faults) != (event.spec, event.faults):
        _queues_changed(state, changes)


def forget_queue(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
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


def forget_refused(state: State, kind: Watched) -> None:
    """Forget all objects of an optional kind that the API server refuses to show: their present content is unknown."""
    if kind in OF_VOLUMES:
        forget_volumes(state, kind)
    elif SETTING_OF.get(kind) == "devices":
        forget_devices(state, kind)
    elif kind in objects.KINDS and kind not in GROUP_KINDS:
        limited = {*state.limit_ranges}
        objects.clear(state, kind)
        if kind == Watched.RUNTIME_CLASS:
            resolve_runtimes(state)
        elif kind == Watched.LIMIT_RANGE:
            resolve_limits(state, limited)
        elif kind == Watched.QUEUE:
            state.tree_changed()
        elif kind == Watched.PROVISIONING:
            forget_requests(state)
        elif kind == Watched.NAMESPACE:
            count_all(state, pods_of_others(state))
            select_again(state)


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
    state.job_changes += 1
    changes.schedulable = True
    if state.listed.get(kind, False):
        changes.jobs.update((job.uid, None) for job in state.jobs.values() if job.active and concerns(job))
