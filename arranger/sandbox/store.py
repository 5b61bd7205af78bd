"""The API's semantics in memory: without HTTP, clock or randomness of its own.

One counter gives every write its resourceVersion, like etcd's revision. Stored objects are never changed: a write
stores a new state. The store keeps the objects that it receives, so callers must pass fresh ones.
"""

import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from arranger.kube.cluster import (
    CRDS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    RUNTIME_CLASSES,
    Object,
    Resource,
)
from arranger.sandbox import admission, garbage, quota
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.bounds import hold_bounds
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.history import Collection, Event, Stored, Watch
from arranger.sandbox.kinds import BUILT_IN, ServedKind, custom_kinds, established
from arranger.sandbox.listing import ListedPage, Pages, Selection
from arranger.sandbox.patching import APPLY, MERGE, patched, strategic_merge
from arranger.sandbox.scaling import rescaled
from arranger.sandbox.status import (
    ApiRefusal,
    FieldError,
    already_exists,
    conflict,
    forbidden,
    invalid,
    no_such_resource,
    not_found,
)

#: Larger objects don't fit in etcd.
OBJECT_LIMIT_BYTES = 1_572_864
_ETERNAL = ("default", "kube-system", "kube-public")
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PLAIN = WriteOptions()
_BACKGROUND = DeleteOptions()


class WriteResult(msgspec.Struct, frozen=True):
    """The result of a write. `created` or `removed` is its effect; `warnings` are for the response's header."""

    stored: Stored
    created: bool = False
    removed: bool = False
    warnings: tuple[str, ...] = ()


class Store:
    """An in-memory cluster state. `now` returns seconds since 1970, `new_uid` unique IDs.

    `history_limit` is the minimum number of changes of each resource that a watch may lag behind.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        history_limit: int = 20_000,
    ) -> None:
        self._now = now
        self._new_uid = new_uid
        self._history_limit = history_limit
        self.version = 1
        self.collections = {kind.key: Collection([kind], history_limit) for kind in BUILT_IN}
        self._pages = Pages(now)
        self._ownership = garbage.Ownership(self.collections)
        self._counts_quotas = True
        for name in (*_ETERNAL, "kube-node-lease"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES.items():
            self.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    # Reading

    def collection(self, resource: Resource) -> Collection:
        """The objects of a resource; raises `ApiRefusal` 404 if it isn't served."""
        return self._served(resource)[0]

    def _served(self, resource: Resource) -> tuple[Collection, ServedKind]:
        found = self.collections.get((resource.group, resource.plural))
        kind = None if found is None else found.version(resource.version)
        if found is None or kind is None:
            raise no_such_resource()
        return found, kind

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """One object, in the version of the resource; raises `ApiRefusal` 404 if it doesn't exist."""
        collection, kind = self._served(resource)
        stored = collection.objects.get((namespace, name))
        if stored is None:
            raise not_found(resource.plural, resource.group, name)
        return stored.seen_as(kind)

    def page(
        self,
        resource: Resource,
        selection: Selection,
        *,
        limit: int = 0,
        continuation: str = "",
        at_least: str = "",
        exactly: str = "",
    ) -> ListedPage:
        """A consistent page of objects, as they are or were `exactly` at a resourceVersion.

        Raises `ApiRefusal` 410 if the continuation, or the state at that version, is forgotten.
        """
        collection, kind = self._served(resource)
        self._reached(at_least or exactly)
        if continuation:
            return self._pages.more(continuation, limit)
        version = parsed_version(exactly) or self.version
        objects = collection.objects if version == self.version else collection.at(version)
        items = [stored.seen_as(kind) for stored in self._selected(objects, selection)]
        return self._pages.first(items, version, limit)

    def watch(
        self, resource: Resource, selection: Selection, since: str, wake: Callable[[], None], *, initial: bool = False
    ) -> Watch:
        """The changes after a resourceVersion; without one (or 0, or `initial`), all existing objects come first."""
        collection, kind = self._served(resource)
        version = parsed_version(since)
        matches = selection.matches()
        if initial or version == 0:
            self._reached(since)
            items = self._selected(collection.objects, selection)
            position = collection.history.end
        else:
            items, position = [], collection.history.position(version)
        return Watch(collection.history, position, kind=kind, initial=items, matches=matches, wake=wake)

    def _reached(self, expected: str) -> None:
        version = parsed_version(expected)
        if version > self.version:
            message = f"Timeout: Too large resource version: {version}, current: {self.version}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise ApiRefusal(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})

    def _selected(self, objects: dict[tuple[str, str], Stored], selection: Selection) -> list[Stored]:
        matches = selection.matches()
        found = (objects[key] for key in sorted(objects))
        return [stored for stored in found if matches is None or matches(stored.object)]

    def compact(self) -> None:
        """Forget all history and every open listing: requests for older versions get 410, as after a compaction."""
        for collection in self.collections.values():
            collection.history.forget()
        self._pages.clear()

    # Writing

    def _timestamp(self) -> str:
        return garbage.timestamp(int(self._now()))

    def create(self, resource: Resource, namespace: str, body: Object, options: WriteOptions = _PLAIN) -> WriteResult:
        """Create an object. 404 without its namespace, 409 if the name is taken, 422 if the object is invalid."""
        collection, kind = self._served(resource)
        body = admission.identified(kind, body)
        metadata = body["metadata"]
        if metadata.get("resourceVersion"):
            raise ApiRefusal(500, "", "resourceVersion should not be set on objects to be created")
        admission.place(kind, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._new_uid().replace("-", "")[-5:]
        self._open_for_writing(kind, namespace, metadata.get("name", ""))
        warnings = admission.drop_unknown(kind, body, options)
        if kind.has_status and not kind.typed:
            body.pop("status", None)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(name, None)
        metadata |= {"uid": self._new_uid(), "creationTimestamp": self._timestamp()}
        if kind.counts_generations:
            metadata["generation"] = 1
        if resource == PODS:
            admission.prioritise(body, self._named(PRIORITY_CLASSES))
            admission.limit(body, self._limit_ranges(namespace))
            admission.run_in_class(body, self._named(RUNTIME_CLASSES))
        admission.check(kind, body, None)
        key = (namespace if kind.resource.namespaced else "", metadata["name"])
        charged: list[tuple[Stored, Object]] = []
        if resource == PODS:  # an already existing one is refused with 403 and not with 409, as on a real server
            hold_bounds(body, self._limit_ranges(namespace))
            charged = quota.admit(self._within(QUOTAS, namespace), body)
        if key in collection.objects:
            raise already_exists(resource.plural, resource.group, metadata["name"])
        body["metadata"] = admission.clean(metadata)
        for of_quota, counted in charged:
            self._commit(self.collection(QUOTAS), counted, of_quota, dry_run=options.dry_run)
        stored = self._commit(collection, body, None, dry_run=options.dry_run)
        self._count_quotas(resource, namespace)
        return WriteResult(stored.seen_as(kind), created=True, warnings=warnings)

    def _limit_ranges(self, namespace: str) -> list[Object]:
        return [of.object for of in self._within(LIMIT_RANGES, namespace)]

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Object,
        *,
        subresource: str = "",
        options: WriteOptions = _PLAIN,
    ) -> WriteResult:
        """Replace an object or its status. 409 if it has changed since the resourceVersion in the body."""
        collection, kind = self._served(resource)
        old = self.get(resource, namespace, name)
        body = admission.identified(kind, body)
        admission.place(kind, namespace, body["metadata"])
        admission.hold_identity(old, body)
        if not body["metadata"].get("resourceVersion") and not kind.typed:
            error = FieldError("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid(resource.plural, resource.group, name, [error])
        return self._write(collection, old, body, subresource, options)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        *,
        media_type: str = MERGE,
        subresource: str = "",
        options: WriteOptions = _PLAIN,
    ) -> WriteResult:
        """Patch an object or its status; a server-side apply creates a missing object."""
        collection, kind = self._served(resource)
        if media_type == APPLY and (namespace, name) not in collection.objects and not subresource:
            return self.create(resource, namespace, body, options)
        old = self.get(resource, namespace, name)
        new = patched(old.object, body, media_type, typed=kind.typed)
        return self._write(collection, old, new, subresource, options)

    def scale(
        self, resource: Resource, namespace: str, name: str, body: Any, *, media_type: str = "", options: WriteOptions
    ) -> WriteResult:
        """Write the number in an object's scale: a whole scale, or a patch of one in a media type."""
        old = self.get(resource, namespace, name)
        return self._write(self.collection(resource), old, rescaled(old, body, media_type), "", options)

    def _write(
        self, collection: Collection, old: Stored, new: Object, subresource: str, options: WriteOptions
    ) -> WriteResult:
        """Store a change of an object, which `old` is in the version of the request."""
        resource = old.kind.resource
        kind = collection.version(resource.version) or old.kind  # its definition may have changed since
        before = collection.objects[(old.namespace, old.name)]
        admission.hold_identity(old, new)
        metadata = dict(new["metadata"])
        if metadata.get("resourceVersion") not in (None, "", "0", str(old.version)):
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(resource.plural, resource.group, old.name, why)
        # The status of a custom resource is written whatever the rest of the body.
        only_status = subresource == "status" and not kind.typed
        if metadata.get("uid") not in (None, "", old.uid) and not only_status:
            error = FieldError("metadata.uid", f'Invalid value: "{metadata["uid"]}": field is immutable')
            raise invalid(resource.kind, resource.group, old.name, [error])
        new = admission.separated(kind, old.object, new, metadata, subresource)
        if not kind.typed:
            # Pruning and defaulting modify in place, and a patch shares unchanged parts with the old state.
            new = msgspec.json.decode(msgspec.json.encode(new))
        warnings = admission.drop_unknown(kind, new, options)
        admission.check(kind, new, old.object)
        if new == old.object:
            return WriteResult(old, warnings=warnings)
        if kind.counts_generations and admission.content(new, kind) != admission.content(old.object, kind):
            new["metadata"]["generation"] = old.object["metadata"].get("generation", 0) + 1
        if garbage.may_go(new):
            stored = self._remove(collection, before, new, dry_run=options.dry_run)
            return WriteResult(stored.seen_as(kind), removed=True, warnings=warnings)
        stored = self._commit(collection, new, before, dry_run=options.dry_run)
        if not options.dry_run:
            self._count_quotas(resource, old.namespace)
        return WriteResult(stored.seen_as(kind), warnings=warnings)

    # Quotas

    def _within(self, resource: Resource, namespace: str) -> list[Stored]:
        objects = self.collection(resource).objects
        return [objects[key] for key in sorted(objects) if key[0] == namespace]

    def _named(self, resource: Resource) -> dict[str, Object]:
        return {of.name: of.object for of in self._within(resource, "")}

    def quota_controller(self, *, works: bool) -> None:
        """Turn the updates of quota statuses on or off; while they are off, only admission counts new pods."""
        self._counts_quotas = works
        for namespace in sorted({namespace for namespace, _ in self.collection(QUOTAS).objects}):
            self._count_quotas(QUOTAS, namespace)

    def _count_quotas(self, changed: Resource, namespace: str) -> None:
        """Update the statuses of a namespace's quotas after a change of a pod or of a quota there."""
        if not self._counts_quotas or changed not in (PODS, QUOTAS):
            return
        if not (quotas := self._within(QUOTAS, namespace)):
            return
        pods = [stored.object for stored in self._within(PODS, namespace)]
        for stored in quotas:
            counted = quota.counted(stored.object, pods)
            if counted != stored.object:
                self._commit(self.collection(QUOTAS), counted, stored)

    def _open_for_writing(self, kind: ServedKind, namespace: str, name: str) -> None:
        if not kind.resource.namespaced:
            return
        home = self.get(NAMESPACES, "", namespace)
        if "deletionTimestamp" in home.object["metadata"]:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind.resource.plural, kind.resource.group, name, why, causes=[cause])

    def _commit(self, collection: Collection, obj: Object, old: Stored | None, *, dry_run: bool = False) -> Stored:
        if dry_run:
            metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
            return Stored(collection.kind, collection.kept({**obj, "metadata": metadata}), 0)
        if collection.kind.resource == CRDS:
            obj = self._serve(obj)
        stored = Stored.stamped(collection.kind, collection.kept(obj), self.version + 1)
        if len(stored.raw) > OBJECT_LIMIT_BYTES:
            raise ApiRefusal(500, "", "etcdserver: request is too large")
        self.version = stored.version
        # Under its old key, even if a patch has removed the namespace from its metadata.
        place = old or stored
        collection.objects[(place.namespace, place.name)] = stored
        self._ownership.replace(collection.kind.key, old, stored)
        collection.history.append(Event("MODIFIED" if old else "ADDED", stored, old))
        if old is None and self._ownership.is_orphan(stored):
            self._drop(stored)
        return stored

    # Subresources of pods

    def bind(self, namespace: str, name: str, node: str, *, uid: str | None = None) -> None:
        """Bind a pod to a node; 409 if it isn't the one of this UID, is bound or gated, or is being deleted."""
        pod = self.get(PODS, namespace, name)
        if uid not in (None, pod.uid):
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.uid}"
            raise conflict("pods/binding", "", name, why)
        if "deletionTimestamp" in pod.object["metadata"]:
            raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
        if bound := pod.object["spec"].get("nodeName"):
            raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{bound}"')
        if pod.object["spec"].get("schedulingGates"):
            raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._timestamp()}
        spec = {**pod.object["spec"], "nodeName": node}
        status = strategic_merge(pod.object["status"], {"conditions": [condition]})
        self._commit(self.collection(PODS), {**pod.object, "spec": spec, "status": status}, pod)

    # Deleting

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions = _BACKGROUND
    ) -> WriteResult:
        """Delete an object, at once or as soon as its kubelet, finalizers or dependents allow.

        409 if a condition of the options doesn't hold.
        """
        collection, kind = self._served(resource)
        old = self.get(collection.kind.resource, namespace, name)
        garbage.hold_conditions(collection.kind, old, options)
        if resource == NAMESPACES and name in _ETERNAL:
            raise forbidden("namespaces", "", name, "this namespace may not be deleted")
        new = garbage.marked(old.object, resource, options, int(self._now()))
        # Dependents or contents may have to be deleted before the object.
        waits = resource == NAMESPACES or (options.propagation == "Foreground" and self._ownership.blocking(old))
        if garbage.may_go(new) and not waits:
            # Of objects deleted at once, only a pod first gets the marks of its deletion, in a separate change.
            last = new if resource == PODS else old.object
            if resource == PODS and new != old.object and not options.dry_run:
                old = self._commit(collection, new, old)
            stored = self._remove(collection, old, last, dry_run=options.dry_run, how=options.propagation)
            return WriteResult(stored.seen_as(kind), removed=True)
        if new == old.object:
            return WriteResult(old.seen_as(kind))
        stored = self._commit(collection, new, old, dry_run=options.dry_run)
        if not options.dry_run:
            self._follow_up(stored)
        return WriteResult(stored.seen_as(kind), removed=(old.namespace, old.name) not in collection.objects)

    def delete_collection(self, resource: Resource, selection: Selection, options: DeleteOptions) -> list[Stored]:
        """Delete everything selected; returns the objects of the single deletions."""
        chosen = self._selected(self.collection(resource).objects, selection)
        return [self.delete(resource, stored.namespace, stored.name, options).stored for stored in chosen]

    def _follow_up(self, stored: Stored) -> None:
        """Act as the controllers for a marked object: empty the namespace, delete the dependents first."""
        if stored.kind.resource == NAMESPACES:
            self._empty(stored.name)
        elif garbage.waits_for_dependents(stored):
            self._drop_dependents(stored)
            self._finish_foreground(stored)

    def _empty(self, namespace: str) -> None:
        for collection in list(self.collections.values()):
            if collection.kind.resource.namespaced:
                for home, name in sorted(collection.objects):
                    if home == namespace and (home, name) in collection.objects:
                        self.delete(collection.kind.resource, home, name)
        self._close_namespace(namespace)

    def _close_namespace(self, namespace: str) -> None:
        home = self.collection(NAMESPACES)
        stored = home.objects.get(("", namespace))
        if stored is None or "deletionTimestamp" not in stored.object["metadata"]:
            return
        if not any(key[0] == namespace for each in self.collections.values() for key in each.objects):
            self._remove(home, stored, stored.object)

    def _remove(
        self, collection: Collection, old: Stored, last: Object, *, dry_run: bool = False, how: str = "Background"
    ) -> Stored:
        """Remove an object and its dependents."""
        stored = Stored.stamped(collection.kind, collection.kept(last), self.version + 1)
        if dry_run:
            return stored
        self.version = stored.version
        del collection.objects[(old.namespace, old.name)]
        self._ownership.replace(collection.kind.key, old, None)
        collection.history.append(Event("DELETED", stored, old))
        if collection.kind.resource == CRDS:
            self._withdraw(old.object)
        self._count_quotas(collection.kind.resource, old.namespace)
        if how == "Orphan":
            self._release(stored)
        else:
            self._drop_dependents(stored)
        for owner in garbage.owners(old.object):
            if (above := self._ownership.owner(old, owner)) is not None and garbage.waits_for_dependents(above):
                self._drop_dependents(above)  # some may have been created since its deletion
                self._finish_foreground(above)
        if old.namespace:
            self._close_namespace(old.namespace)
        return stored

    # Owners and dependents

    def _drop(self, stored: Stored) -> None:
        """Delete a dependent, or only its reference if another of its owners stays."""
        if staying := self._ownership.staying(stored):
            self._refer(stored, staying)
        else:
            self.delete(stored.kind.resource, stored.namespace, stored.name, DeleteOptions(uid=stored.uid))

    def _refer(self, stored: Stored, references: list[dict[str, Any]]) -> None:
        metadata = {name: value for name, value in stored.object["metadata"].items() if name != "ownerReferences"}
        if references:
            metadata["ownerReferences"] = references
        self._commit(self.collections[stored.kind.key], {**stored.object, "metadata": metadata}, stored)

    def _drop_dependents(self, owner: Stored) -> None:
        for stored in self._ownership.dependents(owner):
            self._drop(stored)

    def _release(self, owner: Stored) -> None:
        for stored in self._ownership.dependents(owner):
            self._refer(stored, [each for each in garbage.owners(stored.object) if each["uid"] != owner.uid])

    def _finish_foreground(self, owner: Stored) -> None:
        """Remove an owner that only waited for its dependents; the last of them may have removed it already."""
        collection = self.collections[owner.kind.key]
        current = collection.objects.get((owner.namespace, owner.name))
        if current is None or current.uid != owner.uid:
            return
        if not garbage.waits_for_dependents(current) or self._ownership.blocking(current):
            return
        metadata = current.object["metadata"]
        left = [each for each in metadata["finalizers"] if each != garbage.FOREGROUND]
        changed = {**current.object, "metadata": admission.clean({**metadata, "finalizers": left})}
        self._write(collection, current, changed, "", _PLAIN)

    # Custom resources

    def _serve(self, crd: Object) -> Object:
        """Serve the resource that a CRD defines; returns the CRD with a corresponding status."""
        kinds = custom_kinds(crd)
        existing = self.collections.get(kinds[0].key)
        if existing is None:
            self.collections[kinds[0].key] = Collection(kinds, self._history_limit)
        else:
            existing.kinds = kinds
        return established(crd, kinds[0], self._timestamp(), served_before=existing is not None)

    def _withdraw(self, crd: Object) -> None:
        key = (crd["spec"]["group"], crd["spec"]["names"]["plural"])
        collection = self.collections[key]
        for namespace, name in sorted(collection.objects):
            self.delete(collection.kind.resource, namespace, name)
        del self.collections[key]


def parsed_version(text: str) -> int:
    """A resourceVersion as a number, 0 for none; raises `ApiRefusal` if it is malformed."""
    if text and not text.isdecimal():
        why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiRefusal(500, "", f'resourceVersion: Invalid value: "{text}": {why}')
    return int(text or 0)
