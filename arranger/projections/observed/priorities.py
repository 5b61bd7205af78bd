"""The priority of jobs that name a PriorityClass: the class's value when the job was first observed with it.

As with pods, a class that changes later, or is deleted, changes no job that has a value of it.
"""

import msgspec

from arranger.events.kinds import PriorityClassSeen
from arranger.model.job import JobSpec
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed import objects
from arranger.projections.state import Changes, State


def resolved(state: State, spec: JobSpec, before: JobSpec | None = None) -> JobSpec:
    """The spec with its priority, as far as that is known: the one that it had `before` of the same class, else the
    class's present value."""
    if spec.priority_known:
        return spec
    if before is not None and before.priority_known and before.priority_class == spec.priority_class:
        return with_priority(spec, before.priority)
    of_class = state.priority_classes.get(spec.priority_class)
    return spec if of_class is None else with_priority(spec, of_class.value)


def lacks_class(job: JobRecord) -> bool:
    """Whether a job waits for its PriorityClass, whose value isn't known."""
    return job.active and not job.stands_still and not job.valid_spec.priority_known


def with_priority(spec: JobSpec, priority: int) -> JobSpec:
    return msgspec.structs.replace(spec, priority=priority, priority_known=True)


def see_class(state: State, event: PriorityClassSeen, changes: Changes) -> None:
    """Record a class, and give its value to the jobs that wait for it."""
    objects.put(state, event)
    for job in state.jobs.values():
        spec = job.spec
        if spec is not None and not spec.priority_known and spec.priority_class == event.name:
            job.spec = with_priority(spec, event.value)
            changes.jobs[job.uid] = None
            changes.schedulable = True
            state.scheduling_changes += 1
