"""The devices, their classes and claims of a cluster, as observed while devices are allocated, and the decisions on
them that the cluster doesn't show yet."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from arranger.events.devices import DeviceClassSeen, ResourceClaimSeen, ResourceClaimTemplateSeen, ResourceSliceSeen
from arranger.model.devices import DecidedDevices, DeviceId
from arranger.model.pod import PodOwner
from arranger.projections.jobs.parts import SlotKey


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """Devices that were decided for a claim of a namespace, and the UIDs of the records that got nodes with them. Once
    none of these has such nodes any more, the devices are kept until `until_ms` (milliseconds since 1970): the claim
    may have them without being observed yet.

    Devices for a slot are held as long as it has its node: a pod that takes the place of a failed one there gets them
    again. `until_ms` is 0 until the slot loses its node."""

    namespace: str
    decided: DecidedDevices
    records: tuple[str, ...]
    until_ms: int = 0


class Matches(msgspec.Struct, frozen=True, array_like=True):
    """Selector → the indices of the devices that it selects in a slice at this resourceVersion."""

    resource_version: str
    selected: dict[str, tuple[int, ...]]


@dataclass(slots=True)
class DeviceTable:
    """`claims` and `templates` by namespace and name, slices and classes by name, `matches` by UID of the slice,
    `decided` by UID of the claim, or by the decision for the devices of a slot. `holders` are the UIDs of the claims
    that have a device, sorted, by device: they follow from the claims. More than one is another program's mistake.
    `reserved` are the keys in `decided` by device. `own` are the claims that were made for pods, by the UID of the job
    and then by slot and entry, and `of_slots` the keys in `decided` for slots, by the UID of the job and by slot."""

    slices: dict[str, ResourceSliceSeen] = field(default_factory=dict)
    classes: dict[str, DeviceClassSeen] = field(default_factory=dict)
    claims: dict[tuple[str, str], ResourceClaimSeen] = field(default_factory=dict)
    matches: dict[str, Matches] = field(default_factory=dict)
    decided: dict[str, Holding] = field(default_factory=dict)
    holders: dict[DeviceId, tuple[str, ...]] = field(default_factory=dict)
    reserved: dict[DeviceId, str] = field(default_factory=dict)
    #: The selectors that nobody can evaluate.
    unread: dict[str, None] = field(default_factory=dict)
    templates: dict[tuple[str, str], ResourceClaimTemplateSeen] = field(default_factory=dict)
    own: dict[str, dict[tuple[PodOwner, str], tuple[str, str]]] = field(default_factory=dict)
    of_slots: dict[str, dict[SlotKey, tuple[str, ...]]] = field(default_factory=dict)
    #: What follows from slices, classes, claims and matches is the same as long as this is. It belongs to this process,
    #: not to the projected state; copies share it until they change.
    version: object = field(default_factory=object, compare=False)

    def copy(self) -> "DeviceTable":
        """An independent table with the same content."""
        slices, classes, claims = dict(self.slices), dict(self.classes), dict(self.claims)
        rest = (dict(self.matches), dict(self.decided), dict(self.holders), dict(self.reserved), dict(self.unread))
        own = {uid: dict(of) for uid, of in self.own.items()}
        of_slots = {uid: dict(of) for uid, of in self.of_slots.items()}
        return DeviceTable(slices, classes, claims, *rest, dict(self.templates), own, of_slots, self.version)

    def put_claim(self, event: ResourceClaimSeen) -> None:
        self.drop_claim((event.namespace, event.name))
        self.claims[event.namespace, event.name] = event
        if event.facts.owner is not None:
            of_job = self.own.setdefault(event.facts.owner.job_uid, {})
            of_job[event.facts.owner, event.facts.entry] = (event.namespace, event.name)
        for of in event.facts.allocation.devices if event.facts.allocation is not None else ():
            self.holders[of.device] = tuple(sorted({*self.holders.get(of.device, ()), event.uid}))

    def drop_claim(self, key: tuple[str, str]) -> None:
        old = self.claims.pop(key, None)
        if old is not None and old.facts.owner is not None:
            of_job = self.own.get(old.facts.owner.job_uid, {})
            if of_job.get((old.facts.owner, old.facts.entry)) == key:
                del of_job[old.facts.owner, old.facts.entry]
                if not of_job:
                    del self.own[old.facts.owner.job_uid]
        if old is not None and old.facts.allocation is not None:
            for of in old.facts.allocation.devices:
                left = tuple([uid for uid in self.holders.pop(of.device, ()) if uid != old.uid])
                if left:
                    self.holders[of.device] = left

    def put_decided(self, uid: str, holding: Holding) -> None:
        """Note what was decided for a claim. Decisions that had one of these devices are over."""
        self.drop_decided(uid)
        for of in holding.decided.allocation.devices:
            if of.device in self.reserved:
                self.drop_decided(self.reserved[of.device])
            self.reserved[of.device] = uid
        self.decided[uid] = holding
        slot = holding.decided.slot
        if slot is not None and not holding.until_ms:
            of_job = self.of_slots.setdefault(holding.records[0], {})
            of_job[slot.group, slot.index] = tuple(sorted({*of_job.get((slot.group, slot.index), ()), uid}))

    def drop_decided(self, uid: str) -> None:
        old = self.decided.pop(uid, None)
        for of in old.decided.allocation.devices if old is not None else ():
            if self.reserved.get(of.device) == uid:
                del self.reserved[of.device]
        if old is not None and old.decided.slot is not None and not old.until_ms:
            job, slot = old.records[0], (old.decided.slot.group, old.decided.slot.index)
            left = tuple([key for key in self.of_slots[job].pop(slot) if key != uid])
            if left:
                self.of_slots[job][slot] = left
            elif not self.of_slots[job]:
                del self.of_slots[job]

    def newest_slices(self) -> tuple[list[ResourceSliceSeen], list[ResourceSliceSeen]]:
        """The slices of complete pools in their newest generations, by name, and those of pools that lack some."""
        newest: dict[tuple[str, str], list[ResourceSliceSeen]] = {}
        for name in sorted(self.slices):
            of = self.slices[name]
            parts = newest.setdefault((of.facts.driver, of.facts.pool), [])
            if parts and parts[0].facts.generation < of.facts.generation:
                parts.clear()
            if not parts or parts[0].facts.generation == of.facts.generation:
                parts.append(of)
        every = [(of, len(parts) == of.facts.slices) for parts in newest.values() for of in parts]
        return [of for of, whole in every if whole], [of for of, whole in every if not whole]

    def selectors(self) -> list[str]:
        """The selectors of classes, templates, and claims without devices that weren't made from these, each once."""
        found = {selector for of in self.classes.values() for selector in of.selectors}
        facts = [of.facts for of in self.claims.values()] + [of.facts for of in self.templates.values()]
        for claim in facts:
            if claim.allocation is None and claim.owner is None:
                found.update(selector for of in claim.requests for selector in of.selectors)
        return sorted(found)

    def unmatched(self) -> Iterator[tuple[ResourceSliceSeen, list[str]]]:
        """Slices with the selectors of which it isn't known yet what they select there."""
        selectors = self.selectors()
        for _, of in sorted(self.slices.items()):
            known = self.matches.get(of.uid)
            current = known is not None and known.resource_version == of.resource_version
            there = known.selected if known is not None and current else {}
            if lacking := [selector for selector in selectors if selector not in there]:
                yield of, lacking
