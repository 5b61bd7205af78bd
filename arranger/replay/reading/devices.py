"""Observations of ResourceSlices, DeviceClasses and ResourceClaims, and decided devices, in words."""

from typing import Any

from arranger.events import devices as d
from arranger.model.devices import Allocation, DecidedDevices, ResourceClaimFacts
from arranger.model.job import LEADER_GROUP, Slot
from arranger.model.text import counted
from arranger.replay.reading.volumes import terms_text


def _slice(event: d.ResourceSliceSeen, _state: object) -> str:
    facts = event.facts
    where = f"node {facts.node}" if facts.node else "any node"
    if not facts.node and facts.terms is not None:
        where = f"nodes with {terms_text(facts.terms)}"
    apart = sum(not of.whole for of in facts.devices)
    more = [f"{apart} of them not to be allocated"] if apart else []
    devices = f"{counted(len(facts.devices), 'device')} of {facts.driver}, pool {facts.pool}"
    return ", ".join([devices, *more, f"generation {facts.generation}", where])


def _class(event: d.DeviceClassSeen, _state: object) -> str:
    return " and ".join(event.selectors) or "every device"


def _template(event: d.ResourceClaimTemplateSeen, _state: object) -> str:
    return ", ".join(_asked(event.facts))


def _asked(facts: ResourceClaimFacts) -> list[str]:
    parts = [f"{of.name}: {of.count or 'all'} of {of.device_class}" for of in facts.requests]
    return parts + ([f"with {facts.beyond}"] if facts.beyond else [])


def _claim(event: d.ResourceClaimSeen, _state: object) -> str:
    facts = event.facts
    parts = _asked(facts)
    parts += [devices_text(facts.allocation)] if facts.allocation is not None else ["no devices yet"]
    parts += [f"reserved for {counted(len(facts.reserved), 'pod')}"] if facts.reserved else []
    return ", ".join([*parts, *(["being deleted"] if facts.deleting else [])])


def devices_text(of: Allocation) -> str:
    """The devices of a claim: "device gpu-0 of gpu.example.com (pool n1)"."""
    found = (f"{one.device.device} of {one.device.driver} (pool {one.device.pool})" for one in of.devices)
    return f"device{'s' if len(of.devices) != 1 else ''} {', '.join(found)}".strip()


def decided_text(devices: tuple[DecidedDevices, ...]) -> str:
    """What claims get by a placement, after a semicolon; empty for nothing."""
    return "".join(f"; resource claim {of.claim}{_pod(of.slot)}: {devices_text(of.allocation)}" for of in devices)


def _pod(slot: Slot | None) -> str:
    """For which pod alone a claim is made; empty if pods name the claim."""
    if slot is None:
        return ""
    return " of the leader" if slot.group == LEADER_GROUP else f" of pod {slot.index} of set {slot.group}"


def _matched(event: d.DevicesMatched, _state: object) -> str:
    return f"{counted(len(event.selectors), 'selector')} evaluated for {counted(len(event.slices), 'slice')}"


#: Kind of observation → its words.
WORDS: dict[type, Any] = {
    d.ResourceSliceSeen: _slice,
    d.DeviceClassSeen: _class,
    d.ResourceClaimSeen: _claim,
    d.ResourceClaimTemplateSeen: _template,
    d.DevicesMatched: _matched,
}
