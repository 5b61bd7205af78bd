"""What the resource claims of pods require of nodes: the shapes of their records have that, kept up to date here.

The devices of a claim that pods name are decided with the first of these; the claim has them in its status before the
pod is bound or made. Until that is observed, the decision holds them, as long as a record that got nodes with it has
them. Claims that pods of TYJobs have for themselves are made for devices that were decided (`slot_devices`).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from arranger.events import devices as d
from arranger.events.kinds import OF_DEVICES, ObjectGone, Placed, Watched
from arranger.model.devices import Allocation, DecidedDevices, DeviceId, ResourceClaimFacts
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import DeviceLackKind, DeviceNeeds, DevicesAsked, NodeTerms, PodClaims, PodShape
from arranger.model.selectors import node_satisfies
from arranger.projections.cluster.device_table import Holding, Matches
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed import objects, slot_devices
from arranger.projections.observed.claims import ClaimKind, Concerns, every_job, with_rules
from arranger.projections.state import ASSUMED_MS, Changes, State

_NO_CLAIMS = PodClaims()


def devices_known(state: State) -> bool:
    """Whether devices can be allocated: they are watched, and each of their kinds has been listed."""
    return state.with_devices and all([state.listed.get(kind, False) for kind in OF_DEVICES])


# --- the shapes of records ----------------------------------------------------------------------------------------


def uses_devices(spec: JobSpec) -> bool:
    """Whether some pod of the record names a resource claim."""
    claims = [group.shape.claims for group in spec.groups]
    return any([of is not None and bool(of.devices or of.templates) for of in claims])


def _resolved(state: State, group: PodGroup, namespace: str) -> PodGroup:
    claims = group.shape.claims or _NO_CLAIMS
    needs = [_needs(state, namespace, entry, claim) for entry, claim in claims.devices]
    needs += [_own_needs(state, namespace, entry, template) for entry, template in claims.templates]
    return with_rules(group, group.shape.volumes, devices=tuple(needs))


CLAIMS = ClaimKind(devices_known, uses_devices, _resolved)


def _needs(state: State, namespace: str, entry: str, name: str) -> DeviceNeeds:
    if (unknown := _unknown(state, name or entry, OF_DEVICES)) is not None:
        return unknown
    if not name:
        return DeviceNeeds(entry, DeviceLackKind.NOT_MADE)
    seen = state.devices.claims.get((namespace, name))
    if seen is None or seen.facts.owner is not None:  # one that was made for a pod is this pod's alone
        return DeviceNeeds(name, DeviceLackKind.MISSING)
    facts = seen.facts
    if facts.deleting:
        return DeviceNeeds(name, DeviceLackKind.DELETING)
    if facts.allocation is not None:
        return DeviceNeeds(name, allocated=True, terms=facts.allocation.terms)
    return _unallocated(state, name, facts)


def _own_needs(state: State, namespace: str, entry: str, template: str) -> DeviceNeeds:
    """What a claim requires that each pod has for itself."""
    unknown = _unknown(state, entry, (*OF_DEVICES, Watched.RESOURCE_CLAIM_TEMPLATE))
    seen = state.devices.templates.get((namespace, template))
    if unknown is not None or seen is None:
        lack = unknown or DeviceNeeds(entry, DeviceLackKind.NO_TEMPLATE, template)
        return msgspec.structs.replace(lack, own=True)
    need = _unallocated(state, entry, seen.facts)
    return msgspec.structs.replace(need, own=True, name=need.name if need.lack is not None else seen.uid)


def _unknown(state: State, claim: str, kinds: Sequence[Watched]) -> DeviceNeeds | None:
    """The lack of a claim while no devices are allocated, or one of these kinds isn't known; else None."""
    if not state.with_devices:
        return DeviceNeeds(claim, DeviceLackKind.OFF)
    unknown = next((kind for kind in kinds if not state.listed.get(kind, False)), None)
    if unknown is None:
        return None
    return DeviceNeeds(claim, DeviceLackKind.UNKNOWN, f"{unknown}s" if unknown[-1] != "s" else f"{unknown}es")


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
    if holding.decided.slot is not None:
        return slot_devices.is_held(state, holding, time_ms)
    return time_ms < holding.until_ms or _relied_on(state, holding)


def _relied_on(state: State, holding: Holding) -> bool:
    return any([_relies(state.jobs.get(uid), holding.decided.claim) for uid in holding.records])


def let_go(state: State, job: JobRecord, time_ms: int) -> None:
    """Keep the devices for a while for which a record had nodes until now: the claims may have them already."""
    if not job.placements:
        _let_claims_go(state, job, range(len(job.spec.groups) if job.spec is not None else 0), time_ms)


def let_slot_go(state: State, job: JobRecord, slot: SlotKey, time_ms: int, *, unseen: bool) -> None:
    """The same for a slot of a TYJob. `unseen`: its pod may have been made without being observed."""
    if not state.devices.decided:
        return
    slot_devices.let_go(state, job, slot, time_ms, unseen=unseen)
    if job.spec is not None and slot[0] < len(job.spec.groups):
        _let_claims_go(state, job, (slot[0],), time_ms)


def _let_claims_go(state: State, job: JobRecord, groups: Sequence[int], time_ms: int) -> None:
    """Keep the devices for a while of claims that pods of these groups name, and for which the record has no nodes."""
    if not state.devices.decided or job.spec is None:
        return
    named = [of.devices for group in groups if (of := job.spec.groups[group].shape.claims) is not None]
    for claim in dict.fromkeys(claim for of in named for _, claim in of):
        seen = state.devices.claims.get((job.seen.namespace, claim))
        holding = state.devices.decided.get(seen.uid) if seen is not None else None
        if seen is not None and holding is not None and job.uid in holding.records and not _relied_on(state, holding):
            state.devices.decided[seen.uid] = msgspec.structs.replace(holding, until_ms=time_ms + ASSUMED_MS)


def _relies(job: JobRecord | None, claim: str) -> bool:
    if job is None or job.spec is None or not job.placements:
        return False
    groups = [group for group, of in enumerate(job.spec.groups) if _names(of.shape, claim)]
    return any(slot[0] in groups for slot in job.placements)  # most often it is the first one


def _names(shape: PodShape, claim: str) -> bool:
    return any([need.claim == claim and not need.own for need in needs_of(shape)])


def decided_for(state: State, namespace: str, claim: str, time_ms: int) -> Allocation | None:
    """The devices that are held for a claim which hasn't been observed with any."""
    seen = state.devices.claims.get((namespace, claim))
    holding = state.devices.decided.get(seen.uid) if seen is not None else None
    return holding.decided.allocation if holding is not None and held(state, holding, time_ms) else None


def without_devices(state: State, job: JobRecord, event: Placed, slots: Collection[SlotKey], time_ms: int) -> str:
    """Why the claims of a placement of these slots can't have their devices, as text; empty if they can."""
    named = {of.claim for of in event.devices if of.slot is None}
    own = {(of.slot.group, of.slot.index, of.claim, of.uid) for of in event.devices if of.slot is not None}
    groups = sorted({group for group, _ in slots})
    needs = {group: needs_of(job.valid_spec.groups[group].shape) for group in groups}
    for need in [need for group in groups for need in needs[group]]:
        if need.lack is not None or not (need.own or need.allocated or need.claim in named):
            return f"resource claim {need.claim} gets no devices"
    for group, index in slots:
        for need in needs[group]:
            if need.own and (group, index, need.claim, need.name) not in own:
                return f"resource claim {need.claim} of a pod gets no devices"
    return _not_to_be_had(state, job, event, time_ms)


def _not_to_be_had(state: State, job: JobRecord, event: Placed, time_ms: int) -> str:
    """Why the devices of a placement aren't to be had any more, as text; empty if they are."""
    taken = set[DeviceId]()
    for of in event.devices:
        if of.slot is None and (why := _not_for(state, job, of, time_ms)):
            return why
        for one in of.allocation.devices:
            if one.device in taken or _is_anothers(state, of.uid, one.device, time_ms):
                return f"device {one.device.device} of {one.device.driver} is another claim's"
            taken.add(one.device)
    return ""


def _not_for(state: State, job: JobRecord, of: DecidedDevices, time_ms: int) -> str:
    """Why a claim that pods name doesn't get devices any more, as text; empty if it does."""
    seen = state.devices.claims.get((job.seen.namespace, of.claim))
    if seen is None or seen.uid != of.uid or seen.facts.deleting:
        return f"resource claim {of.claim} is gone"
    before = state.devices.decided.get(of.uid)
    if before is not None and before.decided != of and held(state, before, time_ms):
        return f"resource claim {of.claim} was decided to have other devices"
    return f"resource claim {of.claim} has devices already" if seen.facts.allocation is not None else ""


def _is_anothers(state: State, claim: str, device: DeviceId, time_ms: int) -> bool:
    """Whether a claim other than the one with this UID has a device, or is to have it."""
    table = state.devices
    if table.holders.get(device, (claim,)) != (claim,):
        return True
    other = table.reserved.get(device, claim)
    return other != claim and held(state, table.decided[other], time_ms)


def hold_devices(state: State, job: JobRecord, event: Placed) -> None:
    """Hold the devices of an accepted placement."""
    if event.devices:
        slot_devices.hold(state, job, event)
    for of in [of for of in event.devices if of.slot is None]:
        before = state.devices.decided.get(of.uid)
        records = before.records if before is not None and before.decided == of else ()
        holding = Holding(job.seen.namespace, of, tuple(sorted({*records, job.uid})))
        state.devices.put_decided(of.uid, holding)


def devices_out_of_reach(state: State, job: JobRecord, slot: SlotKey) -> str:
    """The first resource claim with which the pod of a slot can't start on its existing node; "" without one."""
    for need in needs_of(job.valid_spec.groups[slot[0]].shape):
        if need.lack in (DeviceLackKind.UNKNOWN, DeviceLackKind.OFF):
            continue  # nothing is known of it, and the pod waits
        if need.lack is not None:
            return need.claim
        found = allocation_for(state, job, slot, need) if not need.allocated else None
        if not need.allocated and found is None:
            return need.claim
        if not _reaches(state, need.terms if found is None else found.terms, job.placements[slot]):
            return need.claim
    return ""


def allocation_for(state: State, job: JobRecord, slot: SlotKey, need: DeviceNeeds) -> Allocation | None:
    """The devices that a claim of a slot's pod has, or is to have."""
    if need.own:
        return slot_devices.allocation_of(state, job, slot, need)
    seen = claim_for(state, job, slot, need)
    if seen is not None and seen.facts.allocation is not None:
        return seen.facts.allocation
    return decided_for(state, job.seen.namespace, need.claim, state.time_ms)


def claim_for(state: State, job: JobRecord, slot: SlotKey, need: DeviceNeeds) -> d.ResourceClaimSeen | None:
    """A claim of a slot's pod, if it is observed."""
    if need.own:
        return slot_devices.claim_of(state, job, slot, need.claim)
    return state.devices.claims.get((job.seen.namespace, need.claim))


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
        _changed(state, changes, _about(old, event))


def forget_claim(state: State, event: ObjectGone, changes: Changes) -> None:
    key = (event.namespace, event.name)
    known = state.devices.claims.get(key)
    if known is not None and known.uid == event.uid:
        state.devices.drop_claim(key)
        state.devices.drop_decided(event.uid)
        _changed(state, changes, _about(known))


def see_template(state: State, event: d.ResourceClaimTemplateSeen, changes: Changes) -> None:
    key = (event.namespace, event.name)
    old = objects.put(state, event)
    if old is None or (old.uid, old.facts) != (event.uid, event.facts):
        _changed(state, changes, lambda job: _of_template(job, key))


def forget_template(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        _changed(state, changes, lambda job: _of_template(job, (event.namespace, event.name)))


def see_slice(state: State, event: d.ResourceSliceSeen, changes: Changes) -> None:
    old = objects.put(state, event)
    if old is not None and (old.uid, old.resource_version) != (event.uid, event.resource_version):
        state.devices.matches.pop(old.uid, None)
    _noted(state, changes)


def forget_slice(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        state.devices.matches.pop(event.uid, None)
        _noted(state, changes)


def see_class(state: State, event: d.DeviceClassSeen, changes: Changes) -> None:
    objects.put(state, event)
    _changed(state, changes, every_job)


def forget_class(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        _changed(state, changes, every_job)


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
        _changed(state, changes, every_job)
    else:
        _noted(state, changes)


def forget_devices(state: State, kind: Watched) -> None:
    """Forget all objects of a kind that the API server refuses to show; without one kind, no device is allocated."""
    table = state.devices
    objects.clear(state, kind)
    if kind == Watched.RESOURCE_SLICE:
        table.matches.clear()
    elif kind == Watched.RESOURCE_CLAIM:
        table.holders.clear()
        table.decided.clear()
        table.reserved.clear()
        table.own.clear()
        table.of_slots.clear()
    table.version = object()
    CLAIMS.resolve_all(state)


def _noted(state: State, changes: Changes) -> None:
    state.devices.version = object()
    state.scheduling_changes += 1
    changes.schedulable = True


def _about(*claims: d.ResourceClaimSeen | None) -> str | Concerns:
    """Which records a claim concerns: the job for whose pod it was made, by its UID, or those that name it."""
    seen = [of for of in claims if of is not None][-1]
    owners = {of.facts.owner.job_uid if of.facts.owner is not None else "" for of in claims if of is not None}
    uid = owners.pop()
    return uid if uid and not owners else lambda job: _uses(job, (seen.namespace, seen.name)) or job.uid in owners


def _changed(state: State, changes: Changes, concerns: str | Concerns) -> None:
    """Bring the records that a change concerns up to date. A claim that was made for a pod changes no shape."""
    if not isinstance(concerns, str):
        state.devices.version = object()
        CLAIMS.changed(state, changes, concerns)
        return
    _noted(state, changes)
    if devices_known(state) and concerns in state.jobs:
        changes.jobs[concerns] = None


def _uses(job: JobRecord, key: tuple[str, str]) -> bool:
    namespace, name = key
    if job.seen.namespace != namespace:
        return False
    claims = [group.shape.claims for group in job.valid_spec.groups]
    return any([of is not None and any(claim == name for _, claim in of.devices) for of in claims])


def _of_template(job: JobRecord, key: tuple[str, str]) -> bool:
    """Whether pods of a job have claims from a template."""
    claims = [group.shape.claims for group in job.valid_spec.groups]
    named = [template for of in claims if of is not None for _, template in of.templates]
    return job.seen.namespace == key[0] and key[1] in named


#: Observation of an object of devices → how it is folded.
SEEN: dict[type, Callable[[State, Any, Changes], None]] = {
    d.ResourceClaimSeen: see_claim,
    d.ResourceClaimTemplateSeen: see_template,
    d.ResourceSliceSeen: see_slice,
    d.DeviceClassSeen: see_class,
}
#: Watch → how the deletion of one of its objects is folded.
GONE: dict[Watched, Callable[[State, ObjectGone, Changes], None]] = {
    Watched.RESOURCE_CLAIM: forget_claim,
    Watched.RESOURCE_CLAIM_TEMPLATE: forget_template,
    Watched.RESOURCE_SLICE: forget_slice,
    Watched.DEVICE_CLASS: forget_class,
}
