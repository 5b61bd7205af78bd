"""The devices of pods that have resource claims of their own: each pod of a TYJob's template that names a
ResourceClaimTemplate.

A slot has its devices as it has its node: from the decision on, and as long as it has the node. So a pod that takes the
place of a failed one there gets them again, although Kubernetes took them from the claim when the first one ended.
"""

from collections.abc import Iterator

import msgspec

from arranger.events.devices import ResourceClaimSeen
from arranger.events.kinds import Placed
from arranger.model.devices import Allocation, DecidedDevices
from arranger.model.pod import TERMINAL, DeviceNeeds
from arranger.projections.cluster.device_table import Holding
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import ASSUMED_MS, State


def is_held(state: State, holding: Holding, time_ms: int) -> bool:
    """Whether the devices of a slot are held: it has its node, or had it until a moment ago."""
    if holding.until_ms:
        return time_ms < holding.until_ms
    job, slot = state.jobs.get(holding.records[0]), holding.decided.slot
    return job is not None and slot is not None and (slot.group, slot.index) in job.placements


def hold(state: State, job: JobRecord, event: Placed) -> None:
    """Hold the devices that an accepted placement gives to slots."""
    table = state.devices
    lapsed = [key for key, of in table.decided.items() if of.decided.slot is not None and _is_over(state, of)]
    for key in lapsed:
        table.drop_decided(key)
    for number, of in enumerate(event.devices):
        if of.slot is not None:
            key = f"{job.uid}/{of.slot.group}/{of.slot.index}/{number}/{event.based_on}"
            table.put_decided(key, Holding(job.seen.namespace, of, (job.uid,)))


def _is_over(state: State, holding: Holding) -> bool:
    return not is_held(state, holding, state.time_ms)


def let_go(state: State, job: JobRecord, slot: SlotKey, time_ms: int, *, unseen: bool) -> None:
    """Release the devices of a slot that has lost its node. If `unseen`, its claims may have got devices that weren't
    observed yet: those are kept for a while. Else they are held as long as the claims are seen to have them."""
    table = state.devices
    for key in table.of_slots.get(job.uid, {}).get(slot, ()):
        holding = table.decided[key]
        devices = holding.decided.allocation.devices
        table.drop_decided(key)
        if unseen and not all([of.device in table.holders for of in devices]):
            table.put_decided(key, msgspec.structs.replace(holding, until_ms=time_ms + ASSUMED_MS))


def holdings(state: State, job: JobRecord) -> list[tuple[str, Holding]]:
    """The devices that the slots of a job hold."""
    table = state.devices
    return [(key, table.decided[key]) for keys in table.of_slots.get(job.uid, {}).values() for key in keys]


def hold_again(state: State, job: JobRecord, before: list[tuple[str, Holding]]) -> None:
    """Hold the devices again of slots that have their nodes again."""
    for key, of in before:
        slot = of.decided.slot
        if slot is not None and (slot.group, slot.index) in job.placements:
            state.devices.put_decided(key, of)


def decided_for(state: State, job: JobRecord, slot: SlotKey, entry: str) -> DecidedDevices | None:
    """The devices that a slot holds for a claim."""
    table = state.devices
    keys = table.of_slots.get(job.uid, {}).get(slot, ())
    found = [table.decided[key].decided for key in keys]
    return next((of for of in found if of.claim == entry), None)


def claim_of(state: State, job: JobRecord, slot: SlotKey, entry: str) -> ResourceClaimSeen | None:
    """The claim that was made for the present pod of a slot, or for its next one, if it is observed."""
    key = state.devices.own.get(job.uid, {}).get((job.owner_of(slot), entry))
    return state.devices.claims[key] if key is not None and key[0] == job.seen.namespace else None


def allocation_of(state: State, job: JobRecord, slot: SlotKey, need: DeviceNeeds) -> Allocation | None:
    """The devices of a slot for a claim. Without a decision on them, they are those that the claim has: a job that was
    adopted from its status has no decisions. A decision for another template is void if no claim was made from it."""
    decided, claim = decided_for(state, job, slot, need.claim), claim_of(state, job, slot, need.claim)
    if decided is None:
        return claim.facts.allocation if claim is not None else None
    return decided.allocation if claim is not None or decided.uid == need.name else None


def needless_claims(state: State, job: JobRecord) -> Iterator[ResourceClaimSeen]:
    """The claims that were made for pods of a job and that no pod uses or is to use. They are deleted: nobody takes
    devices from a claim that wasn't reserved for a pod."""
    table = state.devices
    pods = state.pods_of.get(job.uid, {}).values()
    alive = {pod.owner for pod in pods if pod.phase not in TERMINAL} if table.own.get(job.uid) else set()
    for (owner, entry), key in table.own.get(job.uid, {}).items():
        claim = table.claims[key]
        if claim.facts.deleting or owner in alive or key[0] != job.seen.namespace:
            continue
        slot = job.slot_of(owner) if not job.ended else None
        if slot is None or slot not in job.placements:
            yield claim
            continue
        decided, has = decided_for(state, job, slot, entry), claim.facts.allocation
        if decided is not None and has is not None and has != decided.allocation:
            yield claim
