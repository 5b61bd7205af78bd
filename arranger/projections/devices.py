"""What the resource claims of pods require of nodes: the shapes of their records have that, kept up to date here.

Only pods that no TYJob owns have such shapes. The devices of a claim are decided with the first pod that names it; the
claim has them in its status before the pod gets its node. Until that is observed, the decision holds them, as long as
a record that got nodes with it has them.
"""

from collections.abc import Callable, Set
from typing import Any

import msgspec

from arranger.events import devices as d
from arranger.events.kinds import OF_DEVICES, Placed, Watched
from arranger.model.devices import Allocation, DeviceId, ResourceClaimFacts
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import DeviceLackKind, DeviceNeeds, DevicesAsked, NodeTerms, PodRules, PodShape
from arranger.model.selectors import node_satisfies
from arranger.projections.device_table import Holding, Matches
from arranger.projections.jobs import JobRecord
from arranger.projections.state import ASSUMED_MS, Changes, State

_NO_RULES = PodRules()


def devices_known(state: State) -> bool:
    """Whether devices can be allocated: they are watched, and each of their kinds has been listed."""
    return state.with_devices and all([state.listed.get(kind, False) for kind in OF_DEVICES])


# --- the shapes of records ----------------------------------------------------------------------------------------


def spec_with_devices(state: State, spec: JobSpec, namespace: str) -> JobSpec:
    """The spec whose shapes say what their resource claims require now."""
    if not uses_devices(spec):
        return spec
    return msgspec.structs.replace(spec, groups=tuple(_resolved(state, group, namespace) for group in spec.groups))


def uses_devices(spec: JobSpec) -> bool:
    """Whether some pod of the record names a resource claim."""
    return any([group.shape.claims is not None and bool(group.shape.claims.devices) for group in spec.groups])


def _resolved(state: State, group: PodGroup, namespace: str) -> PodGroup:
    shape = group.shape
    named = shape.claims.devices if shape.claims is not None else ()
    needs = tuple(_needs(state, namespace, entry, claim) for entry, claim in named)
    rules = msgspec.structs.replace(shape.rules or _NO_RULES, devices=needs)
    if rules == (shape.rules or _NO_RULES):
        return group
    found = msgspec.structs.replace(shape, rules=None if rules == _NO_RULES else rules)
    return msgspec.structs.replace(group, shape=found)


def _needs(state: State, namespace: str, entry: str, name: str) -> DeviceNeeds:
    if not devices_known(state):
        unknown = next((kind for kind in OF_DEVICES if not state.listed.get(kind, False)), OF_DEVICES[0])
        return DeviceNeeds(
            name or entry, DeviceLackKind.UNKNOWN, f"{unknown}s" if unknown[-1] != "s" else f"{unknown}es"
        )
    if not name:
        return DeviceNeeds(entry, DeviceLackKind.NOT_MADE)
    seen = state.devices.claims.get((namespace, name))
    if seen is None:
        return DeviceNeeds(name, DeviceLackKind.MISSING)
    facts = seen.facts
    if facts.deleting:
        return DeviceNeeds(name, DeviceLackKind.DELETING)
    if facts.allocation is not None:
        return DeviceNeeds(name, allocated=True, terms=facts.allocation.terms)
    return _unallocated(state, name, facts)


def _unallocated(state: State, name: str, facts: ResourceClaimFacts) -> DeviceNeeds:
    if facts.beyond:
        return DeviceNeeds(name, DeviceLackKind.BEYOND, facts.beyond)
    classes = state.devices.classes
    for of in facts.requests:
        if of.device_class not in classes:
            return DeviceNeeds(name, DeviceLackKind.NO_CLASS, of.device_class)
    asked = [
        DevicesAsked(of.name, of.device_class, classes[of.device_class].selectors + of.selectors, of.count)
        for of in facts.requests
    ]
    if any([selector in state.devices.unread for of in asked for selector in of.selectors]):
        return DeviceNeeds(name, DeviceLackKind.BEYOND, "a selector that it can't evaluate")
    return DeviceNeeds(name, asked=tuple(asked))


# --- decisions ----------------------------------------------------------------------------------------------------


def needs_of(shape: PodShape) -> tuple[DeviceNeeds, ...]:
    """What the resource claims of a pod require."""
    return shape.rules.devices if shape.rules is not None else ()


def held(state: State, holding: Holding, time_ms: int) -> bool:
    """Whether decided devices are still held: a record that got nodes with them has such nodes, or had them until a
    moment ago."""
    return time_ms < holding.until_ms or _relied_on(state, holding)


def _relied_on(state: State, holding: Holding) -> bool:
    return any([_relies(state.jobs.get(uid), holding.decided.claim) for uid in holding.records])


def let_go(state: State, job: JobRecord, time_ms: int) -> None:
    """Keep the devices for a while for which a record had nodes until now: the claims may have them already."""
    if not state.devices.decided or job.placements or job.spec is None:
        return
    for claim in _claims(job.spec):
        seen = state.devices.claims.get((job.seen.namespace, claim))
        holding = state.devices.decided.get(seen.uid) if seen is not None else None
        if seen is not None and holding is not None and job.uid in holding.records and not _relied_on(state, holding):
            state.devices.decided[seen.uid] = msgspec.structs.replace(holding, until_ms=time_ms + ASSUMED_MS)


def _claims(spec: JobSpec) -> dict[str, None]:
    """The resource claims that pods of a record name."""
    named = [of.shape.claims.devices for of in spec.groups if of.shape.claims is not None]
    return dict.fromkeys(claim for of in named for _, claim in of)


def _relies(job: JobRecord | None, claim: str) -> bool:
    if job is None or job.spec is None or not job.placements:
        return False
    groups = [group for group, of in enumerate(job.spec.groups) if _names(of.shape, claim)]
    return any([slot[0] in groups for slot in job.placements])


def _names(shape: PodShape, claim: str) -> bool:
    return any([need.claim == claim for need in needs_of(shape)])


def decided_for(state: State, namespace: str, claim: str, time_ms: int) -> Allocation | None:
    """The devices that are held for a claim which hasn't been observed with any."""
    seen = state.devices.claims.get((namespace, claim))
    holding = state.devices.decided.get(seen.uid) if seen is not None else None
    return holding.decided.allocation if holding is not None and held(state, holding, time_ms) else None


def without_devices(state: State, job: JobRecord, event: Placed, groups: Set[int], time_ms: int) -> str:
    """Why the claims of a placement of pods of these groups can't have their devices, as text; empty if they can."""
    for need in [need for group in sorted(groups) for need in needs_of(job.valid_spec.groups[group].shape)]:
        if need.lack is not None or not (need.allocated or any([of.claim == need.claim for of in event.devices])):
            return f"resource claim {need.claim} gets no devices"
    table, taken = state.devices, set[DeviceId]()
    for of in event.devices:
        seen = table.claims.get((job.seen.namespace, of.claim))
        if seen is None or seen.uid != of.uid or seen.facts.deleting:
            return f"resource claim {of.claim} is gone"
        before = table.decided.get(of.uid)
        if before is not None and before.decided != of and held(state, before, time_ms):
            return f"resource claim {of.claim} was decided to have other devices"
        if seen.facts.allocation is not None:
            return f"resource claim {of.claim} has devices already"
        for one in of.allocation.devices:
            if one.device in taken or _is_anothers(state, of.uid, one.device, time_ms):
                return f"device {one.device.device} of {one.device.driver} is another claim's"
            taken.add(one.device)
    return ""


def _is_anothers(state: State, claim: str, device: DeviceId, time_ms: int) -> bool:
    """Whether a claim other than the one with this UID has a device, or is to have it."""
    table = state.devices
    if table.holders.get(device, (claim,)) != (claim,):
        return True
    other = table.reserved.get(device, claim)
    return other != claim and held(state, table.decided[other], time_ms)


def hold_devices(state: State, job: JobRecord, event: Placed) -> None:
    """Hold the devices of an accepted placement."""
    for of in event.devices:
        before = state.devices.decided.get(of.uid)
        records = before.records if before is not None and before.decided == of else ()
        holding = Holding(job.seen.namespace, of, tuple(sorted({*records, job.uid})))
        state.devices.put_decided(of.uid, holding)


def devices_out_of_reach(state: State, job: JobRecord, shape: PodShape, node: str) -> str:
    """The first resource claim with which a pod of this shape can't start on an existing node; "" without one."""
    for need in needs_of(shape):
        if need.lack == DeviceLackKind.UNKNOWN:
            continue  # nothing is known of it, and the pod waits
        if need.lack is not None:
            return need.claim
        found = decided_for(state, job.seen.namespace, need.claim, state.time_ms) if not need.allocated else None
        if not need.allocated and found is None:
            return need.claim
        if not _reaches(state, need.terms if found is None else found.terms, node):
            return need.claim
    return ""


def _reaches(state: State, terms: NodeTerms | None, node: str) -> bool:
    if terms is None:
        return True
    return node_satisfies(terms, dict(state.nodes.facts[state.nodes.rows[node]].labels), node)


# --- observations -------------------------------------------------------------------------------------------------


def see_claim(state: State, event: d.ResourceClaimSeen, changes: Changes) -> None:
    table, key = state.devices, (event.namespace, event.name)
    old = table.claims.get(key)
    table.put_claim(event)
    if old is not None and (old.uid != event.uid or event.facts.allocation is not None):
        table.drop_decided(old.uid)
    if old is None or (old.uid, old.facts) != (event.uid, event.facts):
        _changed(state, changes, key)


def forget_claim(state: State, event: d.ResourceClaimGone, changes: Changes) -> None:
    key = (event.namespace, event.name)
    known = state.devices.claims.get(key)
    if known is not None and known.uid == event.uid:
        state.devices.drop_claim(key)
        state.devices.drop_decided(event.uid)
        _changed(state, changes, key)


def see_slice(state: State, event: d.ResourceSliceSeen, changes: Changes) -> None:
    old, state.devices.slices[event.name] = state.devices.slices.get(event.name), event
    if old is not None and (old.uid, old.resource_version) != (event.uid, event.resource_version):
        state.devices.matches.pop(old.uid, None)
    _noted(state, changes)


def forget_slice(state: State, event: d.ResourceSliceGone, changes: Changes) -> None:
    known = state.devices.slices.get(event.name)
    if known is not None and known.uid == event.uid:
        del state.devices.slices[event.name]
        state.devices.matches.pop(event.uid, None)
        _noted(state, changes)


def see_class(state: State, event: d.DeviceClassSeen, changes: Changes) -> None:
    state.devices.classes[event.name] = event
    _changed(state, changes, None)


def forget_class(state: State, event: d.DeviceClassGone, changes: Changes) -> None:
    known = state.devices.classes.get(event.name)
    if known is not None and known.uid == event.uid:
        del state.devices.classes[event.name]
        _changed(state, changes, None)


def take_matches(state: State, event: d.DevicesMatched, changes: Changes) -> None:
    """Note what selectors select, and forget those that nobody asks for any more."""
    asked, unread = set(state.devices.selectors()), state.devices.unread
    found_unread = sorted(asked & {*unread, *(event.selectors[at] for at in event.unread if at < len(event.selectors))})
    state.devices.unread = dict.fromkeys(found_unread)
    versions = {of.uid: of.resource_version for of in state.devices.slices.values()}
    for of in event.slices:
        if versions.get(of.slice_uid) != of.resource_version or len(of.devices) != len(event.selectors):
            continue
        known = state.devices.matches.get(of.slice_uid)
        before = known.selected if known is not None else {}
        found = {**before, **dict(zip(event.selectors, of.devices, strict=True))}
        kept = {selector: found[selector] for selector in sorted(found) if selector in asked}
        state.devices.matches[of.slice_uid] = Matches(of.resource_version, kept)
    if [*unread] != found_unread:
        _changed(state, changes, None)
    else:
        _noted(state, changes)


def forget_devices(state: State, kind: Watched) -> None:
    """Forget all objects of a kind that the API server refuses to show; without one kind, no device is allocated."""
    table = state.devices
    if kind == Watched.RESOURCE_SLICE:
        table.slices.clear()
        table.matches.clear()
    elif kind == Watched.DEVICE_CLASS:
        table.classes.clear()
    else:
        table.claims.clear()
        table.holders.clear()
        table.decided.clear()
        table.reserved.clear()
    table.version = object()
    resolve_devices(state)


def take_devices(state: State, *, with_devices: bool) -> None:
    """Allocate devices from now on, or no more. All pods are listed again then: which claims they name isn't known."""
    if state.with_devices != with_devices:
        state.with_devices = with_devices
        state.listed[Watched.POD] = False
        resolve_devices(state)


def resolve_devices(state: State) -> None:
    """Bring what all resource claims require up to date."""
    for job in state.jobs.values():
        _resolve(state, job)


def _resolve(state: State, job: JobRecord) -> None:
    if job.spec is not None:
        job.spec = spec_with_devices(state, job.spec, job.seen.namespace)


def _noted(state: State, changes: Changes) -> None:
    state.devices.version = object()
    state.job_changes += 1
    changes.schedulable = True


def _changed(state: State, changes: Changes, key: tuple[str, str] | None) -> None:
    """Bring the records that name a claim (None: any) up to date; during a first listing, its end does so once."""
    _noted(state, changes)
    if not devices_known(state):
        return
    for job in state.jobs.values():
        if job.spec is not None and uses_devices(job.spec) and (key is None or _uses(job, key)):
            _resolve(state, job)
            changes.jobs[job.uid] = None


def _uses(job: JobRecord, key: tuple[str, str]) -> bool:
    namespace, name = key
    if job.seen.namespace != namespace:
        return False
    claims = [group.shape.claims for group in job.valid_spec.groups]
    return any([of is not None and any(claim == name for _, claim in of.devices) for of in claims])


#: Observation of an object of devices → how it is folded.
OBSERVATIONS: dict[type, Callable[[State, Any, Changes], None]] = {
    d.ResourceClaimSeen: see_claim,
    d.ResourceClaimGone: forget_claim,
    d.ResourceSliceSeen: see_slice,
    d.ResourceSliceGone: forget_slice,
    d.DeviceClassSeen: see_class,
    d.DeviceClassGone: forget_class,
}
