"""The rules by which an export replaces names of claims, volumes, storage classes and CSI drivers, with those of
devices."""

from collections.abc import Callable
from typing import Any, Protocol

from arranger.events import volumes as v
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

#: Sort of name → prefix of its pseudonyms.
SORTS = {"claim": "pvc", "volume": "pv", "storage class": "sc", "driver": "d", **device_rules.SORTS}

#: Why no node can have a pod with a claim, and the sort of the other name in that; reasons of nodes have the same.
_OTHER_NAME = {
    ClaimLackKind.LOST: "volume",
    ClaimLackKind.BINDING: "volume",
    ClaimLackKind.NO_VOLUME: "volume",
    ClaimLackKind.UNBOUND: "storage class",
    ClaimLackKind.NO_CLASS: "storage class",
    ClaimLackKind.NO_PROVISIONER: "storage class",
}
#: The reasons of nodes whose name is a claim's.
OF_CLAIMS = frozenset(
    {
        *(ReasonKind(kind.value) for kind in ClaimLackKind),
        *device_rules.OF_DEVICES,
        *(ReasonKind.CLAIM_IN_USE, ReasonKind.VOLUME_AFFINITY, ReasonKind.VOLUME_ZONE, ReasonKind.CLASS_TOPOLOGY),
    }
)


def _keep(_: VolumeNames, value: Any) -> Any:
    return value


def _named(sort: str) -> Rule:
    return lambda names, value: names.name(sort, value)


def _optional_class(names: VolumeNames, name: str | None) -> str | None:
    return None if name is None else names.name("storage class", name)


def _claims(names: VolumeNames, claims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names.name("claim", one) for one in claims))


def _driver(names: VolumeNames, driver: str) -> str:
    return driver if driver == vo.NO_PROVISIONER else names.name("driver", driver)


def _limits(names: VolumeNames, limits: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((names.name("driver", driver), count) for driver, count in limits))


def _attached(names: VolumeNames, volume: str) -> str:
    """Which volume it is: one of this handle, that of a claim, or each pod's own."""
    namespace, _, name = volume.partition("/")
    if not volume:
        return volume
    return f"{names.name('namespace', namespace)}/{names.name('claim' if namespace else 'volume', name)}"


def lack(names: VolumeNames, of: p.ClaimLack) -> p.ClaimLack:
    sort = _OTHER_NAME.get(of.kind)
    return p.ClaimLack(of.kind, names.name("claim", of.claim), names.name(sort, of.name) if sort else of.name)


def claim_reason(names: VolumeNames, reason: Reason) -> tuple[str, str]:
    """The two names of a reason that is about a claim, or about a driver's limit."""
    if reason.kind in device_rules.OF_DEVICES:
        return device_rules.reason(names, reason)
    if reason.kind == ReasonKind.VOLUME_LIMIT:
        return names.name("driver", reason.name), reason.of
    sort = _OTHER_NAME.get(ClaimLackKind(reason.kind.value)) if reason.kind.value in _LACKS else None
    return names.name("claim", reason.name), names.name(sort, reason.of) if sort else reason.of


_LACKS = frozenset(kind.value for kind in ClaimLackKind)
_UIDS: dict[str, Rule] = {"uid": _keep, "resource_version": _keep}

#: As `pseudonyms.RULES`.
RULES: dict[type[Any], dict[str, Rule]] = {
    v.ClaimSeen: {"name": _named("claim"), "namespace": _named("namespace"), **_UIDS},
    v.VolumeSeen: {"name": _named("volume"), **_UIDS},
    v.StorageClassSeen: {"name": _named("storage class"), **_UIDS},
    v.CSINodeSeen: {"name": _named("node"), **_UIDS, "limits": _limits},
    vo.ClaimFacts: {
        "phase": _keep,
        "volume": _named("volume"),
        "storage_class": _optional_class,
        "access_modes": _keep,
        "selected_node": _named("node"),
    },
    vo.VolumeFacts: {
        "zones": lambda names, labels: names.labels(labels),
        "driver": _named("driver"),
        "handle": _named("volume"),
    },
    vo.ClassFacts: {"provisioner": _driver},
    p.PodRules: {"exclusive": _claims},
    p.Attachment: {"driver": _driver, "volume": _attached},
    p.Ephemeral: {"name": _named("claim"), "storage_class": _optional_class},
    p.PodClaims: {"names": _claims, "devices": device_rules.entries, "templates": device_rules.templates},
    p.Reach: {"claim": _named("claim"), "zones": lambda names, labels: names.labels(labels)},
    **device_rules.RULES,
}


def _selected(
    names: VolumeNames, of: tuple[tuple[tuple[str, str], int], ...]
) -> tuple[tuple[tuple[str, str], int], ...]:
    """When a node was selected for claims, by the namespace and the name of each."""
    found = [((names.name("namespace", where), names.name("claim", name)), time_ms) for (where, name), time_ms in of]
    return tuple(sorted(found))


def claims(names: VolumeNames, of: tuple[str, ...]) -> tuple[str, ...]:
    """The claims that a pod names."""
    return _claims(names, of)


#: Types → how a value of them is replaced as a whole.
SPECIAL: dict[type[Any], Rule] = {p.ClaimLack: lack, p.DeviceNeeds: device_rules.needs}


#: As `RULES`, for fields of a snapshot.
OF_STATES: dict[str, Rule] = {"selected_ms": _selected, **device_rules.OF_STATES}
