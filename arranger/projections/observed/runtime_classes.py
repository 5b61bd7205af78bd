"""What RuntimeClasses and LimitRanges add to the pods of TYJobs: the shapes of jobs have that, kept up to date here.

Admission adds it to a pod once its node is decided. So a plan without it would put pods on nodes that lack the runtime,
and would count too little.
"""

from collections.abc import Iterator

import msgspec

from arranger.events.kinds import Watched
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import NO_DEFAULTS, LimitDefaults, OwnNeeds, PodShape, RuntimeNeeds, lowest_qos
from arranger.model.template import Requests, needs_with, qos_with
from arranger.projections.derived import job_indexes
from arranger.projections.derived.queue_counts import count_jobs
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import Changes, State

_NOTHING = RuntimeNeeds()


def spec_with_admission(state: State, spec: JobSpec, namespace: str) -> JobSpec:
    """The spec, as its TYJob gives it, whose shapes have what LimitRanges of the namespace and RuntimeClasses add."""
    if not classes_of(spec) and namespace not in state.limit_ranges:
        return spec
    return _again(state, spec, namespace)


def _again(state: State, spec: JobSpec, namespace: str) -> JobSpec:
    """The spec with what is added now, in place of what was added before."""
    names, defaults = classes_of(spec), _defaults(state, namespace)
    groups = tuple([_resolved(state, group, defaults) for group in spec.groups])
    missing = tuple([name for name in names if name not in state.runtime_classes]) if _watched(state) else ()
    declared = [group.declared for group in groups if group.declared is not None]
    qos = lowest_qos([qos_with(of, defaults) for of in declared]) if declared else spec.qos
    return msgspec.structs.replace(spec, groups=groups, missing_runtimes=missing, qos=qos)


def _defaults(state: State, namespace: str) -> LimitDefaults:
    """What the LimitRanges of a namespace add. Of several, the API server takes any: the largest count."""
    there = [of.defaults for of in state.limit_ranges.get(namespace, {}).values()]
    if len(there) <= 1:
        return there[0] if there else NO_DEFAULTS
    return LimitDefaults(_largest([of.requests for of in there]), _largest([of.limits for of in there]))


def _largest(of: list[Requests]) -> Requests:
    found: dict[str, int] = {}
    for amounts in of:
        for name, amount in amounts:
            found[name] = max(amount, found.get(name, 0))
    return tuple(sorted(found.items()))


def classes_of(spec: JobSpec) -> list[str]:
    """The RuntimeClasses that a job's templates name, each once."""
    return list(dict.fromkeys([group.shape.runtime_class for group in spec.groups if group.shape.runtime_class]))


def added_by_admission(state: State, job: JobRecord, number: int) -> Iterator[tuple[str, tuple[str, ...], Requests]]:
    """What is added to the requests of each pod of a job's group: the kind and the names of the objects that add it,
    and the amounts. Unknown for pods that no TYJob owns: these are seen with it."""
    group = job.valid_spec.groups[number]
    if group.declared is not None:
        bare = dict(needs_with(group.declared, NO_DEFAULTS)[0])
        whole = needs_with(group.declared, _defaults(state, job.seen.namespace))[0]
        if added := _more(whole, bare):
            there = state.limit_ranges.get(job.seen.namespace, {})
            # Of several that have a default of a resource, the plan counts the largest.
            defaults = _defaults(state, job.seen.namespace).requests
            largest = {of for of in defaults if of[0] in dict(added)}
            names = sorted(name for name, of in there.items() if not largest.isdisjoint(of.defaults.requests))
            yield "LimitRange", tuple(names), added
    seen = state.runtime_classes.get(group.shape.runtime_class)
    if seen is not None and (added := _more(seen.needs.overhead, dict(group.shape.overhead))):
        yield "RuntimeClass", (seen.name,), added


def _more(amounts: Requests, than: dict[str, int]) -> Requests:
    return tuple([(name, more) for name, amount in amounts if (more := amount - than.get(name, 0)) > 0])


def missing_classes(job: JobRecord) -> tuple[str, ...]:
    """The RuntimeClasses that a job waits for, because they don't exist."""
    return job.valid_spec.missing_runtimes if job.active and not job.stands_still else ()


def contradicted(state: State, job: JobRecord) -> list[tuple[str, str, str, str]]:
    """(RuntimeClass, key, value in the template, value in the class) where the nodeSelector of a template contradicts
    that of its class. The API server refuses such pods."""
    found: dict[tuple[str, str, str, str], None] = {}
    for group in job.valid_spec.groups if job.spec is not None else ():
        shape, seen = group.shape, state.runtime_classes.get(group.shape.runtime_class)
        if seen is not None and shape.own is not None:
            own = dict(shape.own.node_selector)
            other = [(key, value) for key, value in seen.needs.node_selector if own.get(key, value) != value]
            found.update(dict.fromkeys((seen.name, key, own[key], value) for key, value in other))
    return list(found)


def _watched(state: State) -> bool:
    """Whether a class that isn't known isn't there. Where they aren't watched, admission decides alone."""
    kind = Watched.RUNTIME_CLASS
    return state.listed.get(kind, False) and kind not in state.unwatched


def _resolved(state: State, group: PodGroup, defaults: LimitDefaults) -> PodGroup:
    shape, requests, traits = group.shape, None, group.traits
    seen = state.runtime_classes.get(shape.runtime_class) if shape.runtime_class else None
    if group.declared is not None:
        requests, limits = needs_with(group.declared, defaults)
        traits = msgspec.structs.replace(traits, limits=limits)
    found = _with_needs(shape, requests, seen.needs if seen is not None else _NOTHING)
    if (found, traits) == (shape, group.traits):
        return group
    return msgspec.structs.replace(group, shape=found, traits=traits)


def _with_needs(shape: PodShape, asked: Requests | None, needs: RuntimeNeeds) -> PodShape:
    """The shape with what a class adds to what the pod has asked for, in place of what was added before."""
    own = shape.own or OwnNeeds(shape.requests, shape.node_selector, shape.tolerations)
    asked = own.requests if asked is None else asked
    requests, there = dict(asked), dict(shape.overhead)
    for name, amount in needs.overhead:
        requests[name] = requests.get(name, 0) + max(amount - there.get(name, 0), 0)
    return msgspec.structs.replace(
        shape,
        requests=tuple(sorted(requests.items())),
        # A pod whose selector contradicts that of its class is refused, and no node has both values.
        node_selector=tuple(sorted({*own.node_selector, *needs.node_selector})),
        tolerations=tuple(dict.fromkeys((*own.tolerations, *needs.tolerations))),
        own=None if needs == _NOTHING and asked == own.requests else own,
    )


def resolve_runtimes(state: State, changes: Changes | None = None, name: str = "") -> None:
    """Bring up to date what the jobs that name a class, or any, ask for."""
    for job in state.jobs.values():
        if job.spec is not None and (names := classes_of(job.spec)) and (not name or name in names):
            _resolve(state, job, changes)


def resolve_limits(state: State, namespaces: set[str], changes: Changes | None = None) -> None:
    """Bring up to date what the jobs of these namespaces ask for."""
    for job in state.jobs.values():
        if job.seen.namespace in namespaces:
            _resolve(state, job, changes)


def _resolve(state: State, job: JobRecord, changes: Changes | None) -> None:
    """Bring up to date what a job asks for. Room that was decided for pods that aren't seen yet becomes what they will
    have."""
    before = job.spec
    if before is None or job.of_pods or (spec := _again(state, before, job.seen.namespace)) == before:
        return
    unseen = [(slot, node) for slot, node in job.placements.items() if slot not in job.bound]
    for slot, node in unseen:
        state.nodes.release(node, requests_of(job, slot))
    count_jobs(state, [job], -1)
    job.spec = spec
    job_indexes.follow(state, job, before)
    count_jobs(state, [job], 1)
    for slot, node in unseen:
        state.nodes.hold(node, requests_of(job, slot))
    state.scheduling_changes += 1
    if changes is not None:
        changes.jobs[job.uid] = None
        changes.schedulable = True
