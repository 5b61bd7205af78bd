"""The effect of taints on pods."""

from collections.abc import Iterable

from arranger.model.node import Taint
from arranger.model.pod import PodShape, Toleration

#: What a cordoned node has.
_CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
#: Taints with these prefixes follow a node's state: not-ready, unreachable, unschedulable, disk-pressure …
_HEALTH_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


def untolerated(taints: Iterable[Taint], shape: PodShape) -> Taint | None:
    """The first taint that keeps the pod away (NoSchedule, NoExecute), None if there is none."""
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(t, taint) for t in shape.tolerations):
            return taint
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def kept_off_by_cordon(shape: PodShape) -> bool:
    """Whether a cordon keeps a pod away: it doesn't if the pod tolerates the taint that Kubernetes sets with it."""
    return not any(tolerates(toleration, _CORDON) for toleration in shape.tolerations)


def given(taints: Iterable[Taint]) -> Iterable[Taint]:
    """The taints that users set, without those by which Kubernetes marks a node as unhealthy."""
    return (taint for taint in taints if not taint.key.startswith(_HEALTH_TAINTS))


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
