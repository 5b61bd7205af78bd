"""Going away: marks on objects that are being deleted, finalizers, owners and their dependents."""

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import PODS, Object, Resource
from arranger.sandbox.history import Stored
from arranger.sandbox.status import FieldError

if TYPE_CHECKING:
    from arranger.sandbox.store import DeleteOptions

#: The finalizer of an object that waits for its dependents to go first.
FOREGROUND = "foregroundDeletion"

#: Where an object is: resource (group, plural), namespace, name.
Spot = tuple[tuple[str, str], str, str]


def owners(obj: Object) -> list[dict[str, Any]]:
    """The owner references of an object."""
    references: list[dict[str, Any]] = obj["metadata"].get("ownerReferences") or []
    return references


class Dependents:
    """Who refers to whom as its owner, by the owner's UID."""

    def __init__(self) -> None:
        self._places: dict[str, dict[Spot, bool]] = {}

    def replace(self, resource: tuple[str, str], old: Stored | None, new: Stored | None) -> None:
        """Note that an object has another state, is new, or is gone."""
        before = owners(old.object) if old is not None else []
        after = owners(new.object) if new is not None else []
        some = new or old
        if some is None or before == after:
            return
        place = (resource, some.namespace, some.name)
        for reference in before:
            places = self._places.get(reference["uid"], {})
            places.pop(place, None)
            if not places:
                self._places.pop(reference["uid"], None)
        for reference in after:
            self._places.setdefault(reference["uid"], {})[place] = reference.get("blockOwnerDeletion", False)

    def of(self, uid: str) -> list[Spot]:
        """Where the dependents of an object are."""
        return list(self._places.get(uid, ()))

    def blocking(self, uid: str) -> bool:
        """Whether a dependent keeps its owner from going in foreground deletion."""
        return any(self._places.get(uid, {}).values())


def added_finalizers(new: Object, old: Object) -> list[FieldError]:
    """Finalizers that an update adds although the object is being deleted."""
    before = old["metadata"].get("finalizers") or []
    added = [name for name in new["metadata"].get("finalizers") or [] if name not in before]
    if not added:
        return []
    listed = ", ".join(f'"{name}"' for name in added)
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    return [FieldError("metadata.finalizers", f"Forbidden: {why}", "FieldValueForbidden")]


def may_go(obj: Object) -> bool:
    """Whether a marked object has nothing left to wait for."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _grace_s(obj: Object, resource: Resource, asked_s: int | None) -> int:
    """How long the object may take to stop; only a pod that is on a node and hasn't ended takes any time."""
    if resource != PODS or not obj["spec"].get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace_s: int = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked_s is None else asked_s
    return max(0, grace_s)


def marked(
    obj: Object, resource: Resource, options: "DeleteOptions", timestamp: Callable[[], str], now_s: int
) -> Object:
    """The object with the marks of a deletion; unchanged when it already has marks that come due earlier."""
    metadata = dict(obj["metadata"])
    grace_s = _grace_s(obj, resource, options.grace_s)
    if "deletionTimestamp" in metadata:
        if metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:
            return obj
    elif "generation" in metadata:
        metadata["generation"] += 1
    due = datetime.datetime.fromtimestamp(now_s + grace_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata["deletionTimestamp"] = due if grace_s else timestamp()
    metadata["deletionGracePeriodSeconds"] = grace_s
    if options.propagation == "Foreground":
        metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or []), FOREGROUND]))
    if resource.kind == "Namespace":
        del metadata["deletionGracePeriodSeconds"]
        return {**obj, "metadata": metadata, "status": {"phase": "Terminating"}}
    return {**obj, "metadata": metadata}
