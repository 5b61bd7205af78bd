"""What the claims of pods require of nodes: the shapes of jobs have that, kept up to date here.

The rules are those of kube-scheduler 1.36 (plugins VolumeBinding, VolumeZone, NodeVolumeLimits and VolumeRestrictions),
with one restriction: a claim that waits for its first pod gets a volume from the provisioner of its class, never one
that was made by hand.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from arranger.events import volumes as v
from arranger.events.kinds import OF_VOLUMES, ObjectGone, Watched
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import (
    PASSING,
    Attachment,
    ClaimLack,
    ClaimLackKind,
    Ephemeral,
    NodeTerms,
    PodClaims,
    PodShape,
    Reach,
    Requirement,
    VolumeNeeds,
)
from arranger.model.selectors import node_satisfies
from arranger.model.volumes import (
    BOUND,
    LOST,
    NO_PROVISIONER,
    ONE_POD,
    ZONE_LABELS,
    ZONES_APART,
    ClaimFacts,
    ClassFacts,
)
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed import objects
from arranger.projections.observed.claims import ClaimKind, Concerns, every_job, with_rules
from arranger.projections.state import Changes, State


def volumes_known(state: State) -> bool:
    """Whether volumes decide on nodes: they are watched, and each of their kinds has been listed."""
    return state.with_volumes and all([state.listed.get(kind, False) for kind in OF_VOLUMES])


# --- the shapes of jobs -------------------------------------------------------------------------------------------


def _used(spec: JobSpec) -> bool:
    """Whether some pod of the job names a claim."""
    return any([group.shape.claims is not None for group in spec.groups])


def _resolved(state: State, group: PodGroup, namespace: str) -> PodGroup:
    claims = group.shape.claims
    if claims is None:
        return group
    needs = _needs(state, namespace, claims) if volumes_known(state) else None
    exclusive, attachments = of_claims(state, namespace, claims.names)
    if needs is not None:
        attachments += _own(state, claims)
    return with_rules(group, needs, exclusive=exclusive, attachments=attachments)


CLAIMS = ClaimKind(volumes_known, _used, _resolved)


def of_claims(state: State, namespace: str, claims: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Attachment, ...]]:
    """What a pod that names these claims has as in `PodRules`: `exclusive` and `attachments`."""
    if not claims or not volumes_known(state):
        return (), ()
    return exclusive_of(state, namespace, claims), attachments_of(state, namespace, claims)


def exclusive_of(state: State, namespace: str, claims: tuple[str, ...]) -> tuple[str, ...]:
    """The claims that only one pod may use."""
    seen = [(name, state.volumes.claims.get((namespace, name))) for name in claims]
    return tuple([name for name, of in seen if of is not None and ONE_POD in of.facts.access_modes])


def attachments_of(state: State, namespace: str, claims: tuple[str, ...]) -> tuple[Attachment, ...]:
    """The volumes of these claims that count towards a limit of some node, sorted, each once."""
    found = [state.volumes.attachment(namespace, name) for name in claims]
    limited = {of: None for of in found if of is not None and state.volumes.limits(of.driver)}
    return tuple(sorted(limited))


def _own(state: State, claims: PodClaims) -> tuple[Attachment, ...]:
    """The volumes that each pod has for itself, as far as they count towards a limit."""
    classes = [_class_of(state, of.storage_class) for of in claims.ephemeral]
    drivers = [of.provisioner for of in classes if of is not None and state.volumes.limits(of.provisioner)]
    return tuple([Attachment(driver, "") for driver in sorted(drivers)])


def _needs(state: State, namespace: str, claims: PodClaims) -> VolumeNeeds:
    found: list[ClaimLack | Reach | None] = [
        _of_claim(state, name, state.volumes.claims.get((namespace, name))) for name in claims.names
    ]
    found += [_of_ephemeral(state, of) for of in claims.ephemeral]
    lacks = [of for of in found if isinstance(of, ClaimLack)]
    return VolumeNeeds(lacks[0] if lacks else None, tuple([of for of in found if isinstance(of, Reach)]))


def _of_claim(state: State, name: str, seen: v.ClaimSeen | None) -> ClaimLack | Reach:
    if seen is None:
        return ClaimLack(ClaimLackKind.MISSING, name)
    facts = seen.facts
    if facts.deleting:
        return ClaimLack(ClaimLackKind.DELETING, name)
    if facts.phase == LOST:
        return ClaimLack(ClaimLackKind.LOST, name, facts.volume)
    if facts.phase == BOUND:
        volume = state.volumes.volumes.get(facts.volume)
        if volume is None:
            return ClaimLack(ClaimLackKind.NO_VOLUME, name, facts.volume)
        return Reach(name, volume.facts.affinity, volume.facts.zones)
    return _unbound(state, name, facts)


def _unbound(state: State, name: str, facts: ClaimFacts) -> ClaimLack | Reach:
    if facts.volume:
        return ClaimLack(ClaimLackKind.BINDING, name, facts.volume)
    if not facts.storage_class:
        return ClaimLack(ClaimLackKind.UNBOUND, name, facts.storage_class or "")
    seen = state.volumes.classes.get(facts.storage_class)
    if seen is None:
        return ClaimLack(ClaimLackKind.NO_CLASS, name, facts.storage_class)
    if not seen.facts.waits:
        return ClaimLack(ClaimLackKind.UNBOUND, name, facts.storage_class)
    if seen.facts.provisioner == NO_PROVISIONER:
        return ClaimLack(ClaimLackKind.NO_PROVISIONER, name, facts.storage_class)
    return Reach(name, _on(facts.selected_node, seen.facts.topologies), bound=False)


def _on(node: str, terms: NodeTerms | None) -> NodeTerms | None:
    """The terms on the node for which a volume is being made, if it is."""
    if not node:
        return terms
    only = Requirement("metadata.name", "In", (node,), field=True)
    return tuple((*term, only) for term in terms) if terms is not None else ((only,),)


def _of_ephemeral(state: State, volume: Ephemeral) -> ClaimLack | Reach | None:
    """What a claim requires that each pod gets when it is made; nothing if its volume is one that was made by hand."""
    found, name = _class_of(state, volume.storage_class), volume.storage_class or ""
    if found is None:
        return ClaimLack(ClaimLackKind.NO_CLASS, volume.name, name) if name else None
    if found.waits and found.provisioner == NO_PROVISIONER:
        return ClaimLack(ClaimLackKind.NO_PROVISIONER, volume.name, name)
    return Reach(volume.name, found.topologies, bound=False)


def _class_of(state: State, name: str | None) -> ClassFacts | None:
    """The class of this name; for None, the default one."""
    classes = state.volumes.classes
    if name is None:
        return next((classes[of].facts for of in sorted(classes) if classes[of].facts.is_default), None)
    return classes[name].facts if name in classes else None


# --- pods with nodes ----------------------------------------------------------------------------------------------


def out_of_reach(state: State, shape: PodShape, node: str) -> str:
    """The first claim with which a pod of this shape can't start on an existing node; "" without one. A volume that is
    still to be made for a node is no obstacle yet, and neither is what passes by itself."""
    if shape.volumes is None:
        return ""
    if shape.volumes.lack is not None and shape.volumes.lack.kind not in PASSING:
        return shape.volumes.lack.claim
    labels = dict(state.nodes.facts[state.nodes.rows[node]].labels)
    return next((of.claim for of in shape.volumes.reaches if of.bound and not _reached(of, labels, node)), "")


def _reached(reach: Reach, labels: Mapping[str, str], node: str) -> bool:
    if reach.terms is not None and not node_satisfies(reach.terms, labels, node):
        return False
    if not any([key in labels for key in ZONE_LABELS]):
        return True  # the whole cluster may be one zone
    return all([labels.get(key, labels.get(ZONE_LABELS[key])) in of.split(ZONES_APART) for key, of in reach.zones])


def waits_for_volumes(job: JobRecord, group: int) -> bool:
    """Whether pods of a group can't start yet, because a claim of theirs has no volume that is known."""
    needs = job.valid_spec.groups[group].shape.volumes
    if needs is None or needs.lack is not None:
        return needs is not None
    own = job.valid_spec.groups[group].shape.claims
    return any([not of.bound and own is not None and of.claim in own.names for of in needs.reaches])


def claims_to_provision(state: State, job: JobRecord, group: int) -> list[v.ClaimSeen]:
    """The claims that pods of a group name whose volumes are to be made for the node of the first of them."""
    shape = job.valid_spec.groups[group].shape
    if shape.volumes is None or shape.claims is None:
        return []
    waiting = [of.claim for of in shape.volumes.reaches if not of.bound and of.claim in shape.claims.names]
    return [state.volumes.claims[job.seen.namespace, name] for name in waiting]


def claims_of_pods(state: State, job: JobRecord) -> list[tuple[v.ClaimSeen, SlotKey, str]]:
    """The claims that pods of a TYJob have for themselves and for whose volumes no node was selected, each with the
    slot and the node of its pod."""
    if job.of_pods or job.spec is None or not volumes_known(state):
        return []
    own = [(of.shape.claims.ephemeral if of.shape.claims is not None else ()) for of in job.spec.groups]
    found = []
    for slot, uid in job.bound.items() if any(own) else ():
        pod = state.pods[uid]
        names = [f"{pod.name}-{volume.name}" for volume in own[slot[0]]]
        claims = [state.volumes.claims.get((pod.namespace, name)) for name in names]
        found += [(of, slot, pod.node) for of in claims if of is not None and _is_asked_for(state, of.facts)]
    return found


def _is_asked_for(state: State, facts: ClaimFacts) -> bool:
    """Whether a claim waits for the node of its first pod."""
    if facts.phase in (BOUND, LOST) or facts.deleting or facts.selected_node or facts.volume:
        return False
    of_class = state.volumes.classes.get(facts.storage_class or "")
    return of_class is not None and of_class.facts.waits and of_class.facts.provisioner != NO_PROVISIONER


# --- observations -------------------------------------------------------------------------------------------------


def see_claim(state: State, event: v.ClaimSeen, changes: Changes) -> None:
    key = (event.namespace, event.name)
    old = objects.put(state, event)
    state.volumes.note_selected(old, event, state.queue_use.time_ms)  # that of the entry that is being folded
    if old is None or (old.uid, old.facts) != (event.uid, event.facts):
        CLAIMS.changed(state, changes, _naming(state, key))


def forget_claim(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        key = (event.namespace, event.name)
        state.volumes.selected_ms.pop(key, None)
        CLAIMS.changed(state, changes, _naming(state, key))


def see_by_name(state: State, event: v.SeenByName, changes: Changes) -> None:
    """A volume, a class or a CSINode is there, or has changed."""
    old = objects.put(state, event)
    if old is None or msgspec.structs.replace(old, term=event.term, resource_version=event.resource_version) != event:
        CLAIMS.changed(state, changes, _of_volume(state, event.name) if isinstance(event, v.VolumeSeen) else every_job)


def forget_by_name(state: State, event: ObjectGone, changes: Changes) -> None:
    """A volume, a class or a CSINode is gone."""
    if objects.drop(state, event) is not None:
        CLAIMS.changed(state, changes, _of_volume(state, event.name) if event.kind == Watched.VOLUME else every_job)


def forget_volumes(state: State, kind: Watched) -> None:
    """Forget all objects of a kind that the API server refuses to show; without one kind, none decides on nodes."""
    if kind == Watched.CLAIM:
        state.volumes.selected_ms.clear()
    objects.clear(state, kind)
    CLAIMS.resolve_all(state)


def _naming(state: State, key: tuple[str, str]) -> Concerns:
    """Whether a job names this claim, or has it for one of its pods."""
    namespace, name = key

    def test(job: JobRecord) -> bool:
        if job.seen.namespace != namespace:
            return False
        claims = [group.shape.claims for group in job.valid_spec.groups]
        if any([of is not None and name in of.names for of in claims]):
            return True
        own = any([of is not None and of.ephemeral for of in claims])
        return own and any([name in pod.traits.claims for pod in state.pods_of.get(job.uid, {}).values()])

    return test


def _of_volume(state: State, volume: str) -> Concerns:
    """Whether a job names a claim of this volume."""
    tests = [_naming(state, key) for key, of in state.volumes.claims.items() if of.facts.volume == volume]
    return lambda job: any([test(job) for test in tests])


#: Observation of an object of volumes → how it is folded.
SEEN: dict[type, Callable[[State, Any, Changes], None]] = {
    v.ClaimSeen: see_claim,
    v.VolumeSeen: see_by_name,
    v.StorageClassSeen: see_by_name,
    v.CSINodeSeen: see_by_name,
}
#: Watch → how the deletion of one of its objects is folded.
GONE: dict[Watched, Callable[[State, ObjectGone, Changes], None]] = {
    Watched.CLAIM: forget_claim,
    **dict.fromkeys((Watched.VOLUME, Watched.STORAGE_CLASS, Watched.CSI_NODE), forget_by_name),
}
