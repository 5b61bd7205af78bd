"""The rules by which an export replaces names of resource claims, devices, their classes, drivers and pools.

Selectors become names as a whole, and what devices have is left out: the log has which devices a selector selects.
"""

from collections.abc import Callable
from typing import Any, Protocol

from arranger.events import devices as d
from arranger.model import devices as de
from arranger.model import pod as p
from arranger.model.pod import DeviceLackKind
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.cluster import device_table as dt


class DeviceNames(Protocol):
    """What replaces names (`Pseudonyms`)."""

    def name(self, sort: str, name: str) -> str: ...
    def job_uid(self, uid: str) -> str: ...
    def walk(self, value: Any) -> Any: ...


Rule = Callable[[Any, Any], Any]

#: Sort of name → prefix of its pseudonyms.
SORTS = {
    "resourceclaim": "rc", "resourceclaimtemplate": "rct",
    "deviceclass": "dc", "resourceslice": "rs", "pool": "pool", "device": "dev", "request": "r",
    "selector": "cel",
}  # fmt: skip

#: The reasons of nodes whose name is a resource claim's.
OF_DEVICES = frozenset(
    {
        *(ReasonKind(kind.value) for kind in DeviceLackKind),
        *(ReasonKind.DEVICES_ELSEWHERE, ReasonKind.INSUFFICIENT_DEVICES),
    }
)


_TEMPLATE = "resourceclaimtemplate"
#: Reason → the sort of its second name.
_OTHER_NAME = {
    ReasonKind.DEVICE_CLASS_MISSING: "deviceclass",
    ReasonKind.INSUFFICIENT_DEVICES: "deviceclass",
    ReasonKind.CLAIM_TEMPLATE_MISSING: _TEMPLATE,
}


def _keep(_: DeviceNames, value: Any) -> Any:
    return value


def _nothing(_: DeviceNames, _value: Any) -> str:
    return ""


def _named(sort: str) -> Rule:
    return lambda names, value: names.name(sort, value)


def _selectors(names: DeviceNames, selectors: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(names.name("selector", of) for of in selectors)


def _selected(names: DeviceNames, selected: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {names.name("selector", of): indices for of, indices in selected.items()}


def reason(names: DeviceNames, of: Reason) -> tuple[str, str]:
    """The two names of a reason that is about a resource claim."""
    sort = _OTHER_NAME.get(of.kind)
    return names.name("resourceclaim", of.name), names.name(sort, of.of) if sort else of.of


def needs(names: DeviceNames, of: p.DeviceNeeds) -> p.DeviceNeeds:
    """What a resource claim requires. What it asks for beyond what Arranger allocates is no name."""
    sort = _OTHER_NAME.get(ReasonKind(of.lack.value)) if of.lack is not None else None
    name, claim = names.name(sort, of.name) if sort else of.name, names.name("resourceclaim", of.claim)
    return p.DeviceNeeds(claim, of.lack, name, names.walk(of.asked), of.allocated, names.walk(of.terms), of.own)


def entries(names: DeviceNames, of: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The resource claims of a pod."""
    return tuple((names.name("resourceclaim", entry), names.name("resourceclaim", claim)) for entry, claim in of)


def templates(names: DeviceNames, of: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The resource claims that pods have from templates."""
    return tuple((names.name("resourceclaim", entry), names.name(_TEMPLATE, name)) for entry, name in of)


#: As `pseudonyms.RULES`.
RULES: dict[type[Any], dict[str, Rule]] = {
    d.SliceMatches: {"slice_uid": _keep, "resource_version": _keep},
    d.DevicesMatched: {"selectors": _selectors},
    de.DeviceValue: {"name": _nothing, "kind": _keep, "value": _nothing},
    p.DevicesAsked: {"request": _named("request"), "device_class": _named("deviceclass"), "selectors": _selectors},
    dt.Holding: {
        "namespace": _named("namespace"),
        "records": lambda names, uids: tuple(sorted(names.job_uid(uid) for uid in uids)),
    },
    dt.Matches: {"resource_version": _keep, "selected": _selected},
}


def _by_uid(names: DeviceNames, of: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((uid, names.walk(one)) for uid, one in of)


#: The same for fields of a snapshot.
OF_STATES: dict[str, Rule] = {
    "cluster": _named("cluster"),
    "matches": _by_uid,
    "decided": _by_uid,
    "unread": _selectors,
}
