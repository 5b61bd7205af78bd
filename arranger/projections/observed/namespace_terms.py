"""Which namespaces a `namespaceSelector` selects: the terms of pods and jobs have their names, kept up to date here."""

import msgspec

from arranger.events.kinds import OF_VOLUMES, SETTING_OF, PodSeen, Watched
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import PodTerm
from arranger.model.selectors import selects
from arranger.projections.observed import devices, volumes
from arranger.projections.observed.runtime_classes import resolve_runtimes, spec_with_admission
from arranger.projections.state import State

Terms = tuple[PodTerm, ...]


def resolved_spec(state: State, spec: JobSpec, namespace: str) -> JobSpec:
    """The spec of a job in this namespace with everything that follows from other objects than the job: the namespaces
    that its pods' terms select, what LimitRanges and RuntimeClasses add, and what their claims of volumes and devices
    require."""
    spec = spec_with_selected(state, spec_with_admission(state, spec, namespace))
    return devices.CLAIMS.spec(state, volumes.CLAIMS.spec(state, spec, namespace), namespace)


def spec_with_selected(state: State, spec: JobSpec) -> JobSpec:
    """The spec whose pods' terms have the namespaces that they select now."""
    if not any([_of_group(group) for group in spec.groups]):
        return spec
    return msgspec.structs.replace(spec, groups=tuple(_resolved(state, group) for group in spec.groups))


def pod_with_selected(state: State, pod: PodSeen) -> PodSeen:
    """The pod whose terms have the namespaces that they select now; the same object if they do already."""
    terms = pod.traits.anti_affinity
    found = _terms(state, terms) if _selective(terms) else terms
    if found == terms:
        return pod
    return msgspec.structs.replace(pod, traits=msgspec.structs.replace(pod.traits, anti_affinity=found))


def note_repelling(state: State, pod: PodSeen) -> PodSeen:
    """The pod with the namespaces that its terms select, noted among those that keep others away if it does."""
    if not pod.traits.anti_affinity:
        state.repelling.pop(pod.uid, None)
        return pod
    state.repelling[pod.uid] = pod = pod_with_selected(state, pod)
    return pod


def note_listed(state: State, kind: Watched) -> None:
    """Bring up to date what follows from objects of a kind that has been listed in full."""
    if kind == Watched.NAMESPACE:
        select_again(state)
    elif kind == Watched.RUNTIME_CLASS:
        resolve_runtimes(state)
    elif kind in OF_VOLUMES:
        volumes.CLAIMS.resolve_all(state)
    elif SETTING_OF.get(kind) == "devices":
        devices.CLAIMS.resolve_all(state)


def take_claims(state: State, *, with_volumes: bool, with_devices: bool) -> None:
    """Let volumes decide on nodes, and allocate devices, from now on or no more. All pods are listed again if that
    changes: which claims they name isn't known."""
    before, now = (state.with_volumes, state.with_devices), (with_volumes, with_devices)
    state.with_volumes, state.with_devices = now
    for claims, was_so, is_so in zip((volumes.CLAIMS, devices.CLAIMS), before, now, strict=True):
        if was_so != is_so:
            state.listed[Watched.POD] = False
            claims.resolve_all(state)


def select_again(state: State) -> None:
    """Bring all terms up to date after namespaces have changed."""
    for job in state.jobs.values():
        if job.spec is not None:
            job.spec = spec_with_selected(state, job.spec)
    for uid, pod in list(state.repelling.items()):
        found = pod_with_selected(state, pod)
        if found is not pod:
            state.pods[uid] = state.repelling[uid] = found
            if pod.owner is not None:
                state.pods_of[pod.owner.job_uid][uid] = found


def _selective(terms: Terms) -> bool:
    return any([term.namespace_selector is not None for term in terms])


def _of_group(group: PodGroup) -> bool:
    rules = group.shape.rules
    return rules is not None and (_selective(rules.affinity) or _selective(rules.anti_affinity))


def _resolved(state: State, group: PodGroup) -> PodGroup:
    rules = group.shape.rules
    if rules is None or not _of_group(group):
        return group
    affinity, anti_affinity = _terms(state, rules.affinity), _terms(state, rules.anti_affinity)
    if (affinity, anti_affinity) == (rules.affinity, rules.anti_affinity):
        return group
    rules = msgspec.structs.replace(rules, affinity=affinity, anti_affinity=anti_affinity)
    return msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, rules=rules))


def _terms(state: State, terms: Terms) -> Terms:
    return tuple(_term(state, term) for term in terms)


def _term(state: State, term: PodTerm) -> PodTerm:
    if term.namespace_selector is None:
        return term
    spaces = state.namespaces
    found = (name for name in sorted(spaces) if selects(term.namespace_selector, dict(spaces[name].labels)))
    return msgspec.structs.replace(term, selected=tuple(found))
