"""The rules by which an export replaces names of claims, volumes, storage classes and CSI drivers, with those of
devices."""

from collections.abc import Callable
from typing import Any, Protocol

from arranger.events import volumes as v
from arranger.events.kinds import Watched
from arranger.model import pod as p
from arranger.model import volumes as vo
from arranger.model.pod import ClaimLackKind
from arranger.model.reasons import Reason, ReasonKind
from arranger.replay.export import device_rules


class VolumeNames(Protocol):
    """What replaces names (`Pseudonyms`)."""

    def name(self, sort: str, name: str) -> str: ...
    def labels(self, labels: p.Labels) -> p.Labels: ...
    def job_uid(self, uid: str) -> str: ...
    def walk(self, value: Any) -> Any: ...


Rule = Callable[[Any, Any], Any]

_CLAIM, _VOLUME, _CLASS = Watched.CLAIM, Watched.VOLUME, Watched.STORAGE_CLASS
#: Sort of name → prefix of its pseudonyms.
SORTS = {_CLAIM: "pvc", _VOLUME: "pv", _CLASS: "sc", "driver": "d", **device_rules.SORTS}

#: Why no node can have a pod with a claim, and the sort of the other name in that; reasons of nodes have the same.
_OTHER_NAME = {
    ClaimLackKind.LOST: _VOLUME,
    ClaimLackKind.BINDING: _VOLUME,
    ClaimLackKind.NO_VOLUME: _VOLUME,
    ClaimLackKind.UNBOUND: _CLASS,
    ClaimLackKind.NO_CLASS: _CLASS,
    ClaimLackKind.NO_PROVISIONER: _CLASS,
}
#: The reasons of nodes whose name is a claim's.
OF_CLAIMS = frozenset(
    {
        *(ReasonKind(kind.value) for kind in ClaimLackKind),
        *device_rules.OF_DEVICES,
        *(ReasonKind.CLAIM_IN_USE, ReasonKind.VOLUME_AFFINITY, ReasonKind.VOLUME_ZONE, ReasonKind.CLASS_TOPOLOGY),
    }
)


def _named(sort: str) -> Rule:
    return lambda names, value: names.name(sort, value)


def _claims(names: VolumeNames, claims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names.name(_CLAIM, one) for one in claims))


def _driver(names: VolumeNames, driver: str) -> str:
    return driver if driver == vo.NO_PROVISIONER else names.name("driver", driver)


def _limits(names: VolumeNames, limits: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((names.name("driver", driver), count) for driver, count in limits))


def _attached(names: VolumeNames, volume: str) -> str:
    """Which volume it is: one of this handle, that of a claim, or each pod's own."""
    namespace, _, name = volume.partition("/")
    if not volume:
        return volume
    return f"{names.name('namespace', namespace)}/{names.name(_CLAIM if namespace else _VOLUME, name)}"


def lack(names: VolumeNames, of: p.ClaimLack) -> p.ClaimLack:
    sort = _OTHER_NAME.get(of.kind)
    return p.ClaimLack(of.kind, names.name(_CLAIM, of.claim), names.name(sort, of.name) if sort else of.name)


def claim_reason(names: VolumeNames, reason: Reason) -> tuple[str, str]:
    """The two names of a reason that is about a claim, or about a driver's limit."""
    if reason.kind in device_rules.OF_DEVICES:
        return device_rules.reason(names, reason)
    if reason.kind == ReasonKind.VOLUME_LIMIT:
        return names.name("driver", reason.name), reason.of
    sort = _OTHER_NAME.get(ClaimLackKind(reason.kind.value)) if reason.kind.value in _LACKS else None
    return names.name(_CLAIM, reason.name), names.name(sort, reason.of) if sort else reason.of


_LACKS = frozenset(kind.value for kind in ClaimLackKind)

#: As `pseudonyms.RULES`.
RULES: dict[type[Any], dict[str, Rule]] = {
    v.CSINodeSeen: {"name": _named("node"), "limits": _limits},
    vo.ClassFacts: {"provisioner": _driver},
    p.PodRules: {"exclusive": _claims},
    p.Attachment: {"driver": _driver, "volume": _attached},
    p.Ephemeral: {"name": _named(_CLAIM), "storage_class": _named(_CLASS)},
    p.PodClaims: {"names": _claims, "devices": device_rules.entries, "templates": device_rules.templates},
    p.Reach: {"claim": _named(_CLAIM), "zones": lambda names, labels: names.labels(labels)},
    **device_rules.RULES,
}


def _selected(
    names: VolumeNames, of: tuple[tuple[tuple[str, str], int], ...]
) -> tuple[tuple[tuple[str, str], int], ...]:
    """When a node was selected for claims, by the namespace and the name of each."""
    found = [((names.name("namespace", where), names.name(_CLAIM, name)), time_ms) for (where, name), time_ms in of]
    return tuple(sorted(found))


def claims(names: VolumeNames, of: tuple[str, ...]) -> tuple[str, ...]:
    """The claims that a pod names."""
    return _claims(names, of)


#: Types → how a value of them is replaced as a whole.
SPECIAL: dict[type[Any], Rule] = {p.ClaimLack: lack, p.DeviceNeeds: device_rules.needs}


#: As `RULES`, for fields of a snapshot.
OF_STATES: dict[str, Rule] = {"selected_ms": _selected, **device_rules.OF_STATES}
