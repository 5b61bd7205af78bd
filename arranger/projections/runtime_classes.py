"""What RuntimeClasses add to the pods of TYJobs: the shapes of jobs have that, kept up to date here.

Admission adds it to a pod once its node is decided. So a plan without it would put pods on nodes that lack the runtime,
and would count too little.
"""

import msgspec

from arranger.events.kinds import Watched
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import OwnNeeds, PodShape, RuntimeNeeds
from arranger.projections import job_indexes
from arranger.projections.jobs import JobRecord, requests_of
from arranger.projections.queue_use import count_jobs
from arranger.projections.state import Changes, State

_NOTHING = RuntimeNeeds()


def spec_with_runtimes(state: State, spec: JobSpec) -> JobSpec:
    """The spec whose shapes have what their RuntimeClasses add now."""
    names = classes_of(spec)
    if not names:
        return spec
    groups = tuple([_resolved(state, group) for group in spec.groups])
    missing = tuple([name for name in names if name not in state.runtime_classes]) if _watched(state) else ()
    return msgspec.structs.replace(spec, groups=groups, missing_runtimes=missing)


def classes_of(spec: JobSpec) -> list[str]:
    """The RuntimeClasses that a job's templates name, each once."""
    return list(dict.fromkeys([group.shape.runtime_class for group in spec.groups if group.shape.runtime_class]))


def missing_classes(job: JobRecord) -> tuple[str, ...]:
    """The RuntimeClasses that a job waits for, because they don't exist."""
    return job.valid_spec.missing_runtimes if job.active and not job.stands_still else ()


def _watched(state: State) -> bool:
    """Whether a class that isn't known isn't there. Where they aren't watched, admission decides alone."""
    kind = Watched.RUNTIME_CLASS
    return state.listed.get(kind, False) and kind not in state.unwatched


def _resolved(state: State, group: PodGroup) -> PodGroup:
    shape = group.shape
    seen = state.runtime_classes.get(shape.runtime_class) if shape.runtime_class else None
    found = _with_needs(shape, seen.needs if seen is not None else _NOTHING)
    return group if found == shape else msgspec.structs.replace(group, shape=found)


def _with_needs(shape: PodShape, needs: RuntimeNeeds) -> PodShape:
    """The shape with what a class adds, in place of what was added before."""
    own = shape.own or OwnNeeds(shape.requests, shape.node_selector, shape.tolerations)
    requests, there = dict(own.requests), dict(shape.overhead)
    for name, amount in needs.overhead:
        requests[name] = requests.get(name, 0) + max(amount - there.get(name, 0), 0)
    return msgspec.structs.replace(
        shape,
        requests=tuple(sorted(requests.items())),
        # A pod whose selector contradicts that of its class is refused, and no node has both values.
        node_selector=tuple(sorted({*own.node_selector, *needs.node_selector})),
        tolerations=tuple(dict.fromkeys((*own.tolerations, *needs.tolerations))),
        own=None if needs == _NOTHING else own,
    )


def resolve_runtimes(state: State, changes: Changes | None = None, name: str = "") -> None:
    """Bring up to date what the jobs that name a class, or any, ask for. Room that was decided for pods that aren't
    seen yet becomes what they will have."""
    for job in state.jobs.values():
        before = job.spec
        if before is None or job.of_pods or not (names := classes_of(before)) or (name and name not in names):
            continue
        spec = spec_with_runtimes(state, before)
        if spec == before:
            continue
        unseen = [(slot, node) for slot, node in job.placements.items() if slot not in job.bound]
        for slot, node in unseen:
            state.nodes.release(node, requests_of(job, slot))
        count_jobs(state, [job], -1)
        job.spec = spec
        job_indexes.follow(state, job, before)
        count_jobs(state, [job], 1)
        for slot, node in unseen:
            state.nodes.hold(node, requests_of(job, slot))
        state.job_changes += 1
        if changes is not None:
            changes.jobs[job.uid] = None
            changes.schedulable = True
