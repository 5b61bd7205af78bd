"""Deletion: its options, the marks on objects that are being deleted, finalizers, owners and their dependents."""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from arranger.kube.cluster import PODS, Object, Resource
from arranger.sandbox.history import Collection, Stored
from arranger.sandbox.kinds import ServedKind
from arranger.sandbox.status import FieldError, conflict

#: The finalizer of an object whose dependents must be deleted first.
FOREGROUND = "foregroundDeletion"

#: The location of an object: resource (group, plural), namespace, name.
_Spot = tuple[tuple[str, str], str, str]


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of a deletion: conditions, grace in seconds (None: the object's own), and the treatment of dependents."""

    uid: str | None = None
    resource_version: str | None = None
    grace_s: int | None = None
    propagation: str = "Background"
    dry_run: bool = False


def owners(obj: Object) -> list[dict[str, Any]]:
    return obj["metadata"].get("ownerReferences") or []


class Ownership:
    """Ownership among the objects of all collections, by their owner references."""

    def __init__(self, collections: Mapping[tuple[str, str], Collection]) -> None:
        self._collections = collections
        #: By the owner's UID: its dependents, and whether each blocks the owner's foreground deletion.
        self._dependents: dict[str, dict[_Spot, bool]] = {}

    def replace(self, resource: tuple[str, str], old: Stored | None, new: Stored | None) -> None:
        """Record that an object has changed, was created or was deleted."""
        before = owners(old.object) if old is not None else []
        after = owners(new.object) if new is not None else []
        some = new or old
        if some is None or before == after:
            return
        dependent = (resource, some.namespace, some.name)
        for reference in before:
            dependents = self._dependents.get(reference["uid"], {})
            dependents.pop(dependent, None)
            if not dependents:
                self._dependents.pop(reference["uid"], None)
        for reference in after:
            self._dependents.setdefault(reference["uid"], {})[dependent] = reference.get("blockOwnerDeletion", False)

    def blocking(self, owner: Stored) -> bool:
        """Whether a dependent blocks its owner's foreground deletion."""
        return any(self._dependents.get(owner.uid, {}).values())

    def dependents(self, owner: Stored) -> Iterator[Stored]:
        """An object's present dependents, each in its latest state; those deleted during the iteration are left out."""
        for key, namespace, name in list(self._dependents.get(owner.uid, ())):
            collection = self._collections.get(key)
            stored = collection.objects.get((namespace, name)) if collection is not None else None
            if stored is not None:
                yield stored

    def owner(self, stored: Stored, reference: dict[str, Any]) -> Stored | None:
        """The object that a reference of this one names; None if it doesn't exist."""
        collection = self._owner_collection(reference)
        if collection is None:
            return None
        home = stored.namespace if collection.kind.resource.namespaced else ""
        owner = collection.objects.get((home, reference["name"]))
        return owner if owner is not None and owner.uid == reference["uid"] else None

    def _owner_collection(self, reference: dict[str, Any]) -> Collection | None:
        group, _, version = str(reference["apiVersion"]).rpartition("/")
        for collection in self._collections.values():
            resource = collection.kind.resource
            if (resource.group, resource.kind) == (group, reference["kind"]) and collection.version(version):
                return collection
        return None

    def is_orphan(self, stored: Stored) -> bool:
        """Whether every owner of the object is known to be deleted."""
        references = owners(stored.object)
        if not references or any(self._owner_collection(each) is None for each in references):
            return False
        return all(self.owner(stored, each) is None for each in references)

    def staying(self, stored: Stored) -> list[dict[str, Any]]:
        """The references of an object to existing owners that aren't waiting for its deletion."""
        found = ((reference, self.owner(stored, reference)) for reference in owners(stored.object))
        return [reference for reference, owner in found if owner is not None and not waits_for_dependents(owner)]


def waits_for_dependents(stored: Stored) -> bool:
    """Whether the object is deleted after its dependents: foreground deletion."""
    return FOREGROUND in (stored.object["metadata"].get("finalizers") or [])


def added_finalizers(new: Object, old: Object) -> Iterator[FieldError]:
    """Errors for finalizers that an update adds although the object is being deleted."""
    before = old["metadata"].get("finalizers") or []
    added = [name for name in new["metadata"].get("finalizers") or [] if name not in before]
    if added:
        listed = ", ".join(f'"{name}"' for name in added)
        what = "no new finalizers can be added if the object is being deleted, found new finalizers"
        yield FieldError("metadata.finalizers", f"Forbidden: {what} []string{{{listed}}}", "FieldValueForbidden")


def may_go(obj: Object) -> bool:
    """Whether a marked object can be removed now."""
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not held


def _grace_s(obj: Object, resource: Resource, asked_s: int | None) -> int:
    """The time in which the object may stop; it is 0 except for a pod that is on a node and hasn't ended."""
    if resource != PODS or not obj["spec"].get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace_s: int = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked_s is None else asked_s
    return max(0, grace_s)


def hold_conditions(kind: ServedKind, old: Stored, options: DeleteOptions) -> None:
    """Refuse, with 409, a deletion that was meant for another object or another state of the object."""
    resource = kind.resource
    held = (
        ("UID", options.uid, old.uid, "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, str(old.version), "modified"),
    )
    for what, asked, present, told in held:
        if asked not in (None, present):
            why = f"the {what} in the precondition ({asked}) does not match the {what} in record ({present})."
            why += f" The object might have been {told}"
            raise conflict(resource.kind, resource.group, old.name, why)


def timestamp(moment_s: int) -> str:
    """Seconds since 1970 in Kubernetes' time format."""
    return datetime.datetime.fromtimestamp(moment_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def marked(obj: Object, resource: Resource, options: DeleteOptions, now_s: int) -> Object:
    """The object with the marks of a deletion; unchanged if it already has marks with an earlier deadline."""
    metadata = dict(obj["metadata"])
    grace_s = _grace_s(obj, resource, options.grace_s)
    if "deletionTimestamp" in metadata:
        if metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:
            return obj
    elif "generation" in metadata:
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = timestamp(now_s + grace_s)
    metadata["deletionGracePeriodSeconds"] = grace_s
    if options.propagation == "Foreground":
        metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or []), FOREGROUND]))
    if resource.kind == "Namespace":
        del metadata["deletionGracePeriodSeconds"]
        return {**obj, "metadata": metadata, "status": {"phase": "Terminating"}}
    return {**obj, "metadata": metadata}
