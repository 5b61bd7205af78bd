"""The API's semantics in memory: no HTTP, no clock and no chance of its own.

One counter gives every write its resourceVersion, as etcd's revision does. Stored objects are never changed, a
write stores a new state; what comes in belongs to the store from then on, so callers hand over fresh objects.
"""

import datetime
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from arranger.kube.cluster import CRDS, PODS, Object, Resource
from arranger.sandbox import builtin, garbage
from arranger.sandbox.history import Event, History, Stored, Watch
from arranger.sandbox.kinds import BUILT_IN, NAMESPACES, Kind, custom_kind
from arranger.sandbox.listing import Listing, Pages, Selection
from arranger.sandbox.patching import json_patch, merge_patch, strategic_merge
from arranger.sandbox.status import (
    FieldError,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    modified,
    no_such_resource,
    not_found,
    unsupported_media_type,
)

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

#: Objects above this many bytes don't fit in etcd.
OBJECT_LIMIT_BYTES = 1_572_864
_ETERNAL = ("default", "kube-system", "kube-public")
_KEPT_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_EMPTY: tuple[object, ...] = ({}, [], None, "")


class WriteOptions(msgspec.Struct, frozen=True):
    """How to write: `dry_run` stores nothing; `strictness` (Ignore, Warn, Strict) is for unknown fields."""

    dry_run: bool = False
    strictness: str = "Warn"


class DeleteOptions(msgspec.Struct, frozen=True):
    """How to delete: conditions, the grace in seconds (None: the object's own), and what happens to dependents."""

    uid: str | None = None
    resource_version: str | None = None
    grace_s: int | None = None
    propagation: str = "Background"
    dry_run: bool = False


_PLAIN = WriteOptions()
_BACKGROUND = DeleteOptions()


class Answer(msgspec.Struct, frozen=True):
    """What a write answers. `created` or `removed` say what it did; `warnings` go into the response's header."""

    stored: Stored
    created: bool = False
    removed: bool = False
    warnings: tuple[str, ...] = ()


class Collection:
    """All objects of one resource, by namespace and name, and their history."""

    def __init__(self, kind: Kind, history_limit: int) -> None:
        self.kind = kind
        self.objects: dict[tuple[str, str], Stored] = {}
        self.history = History(history_limit)


class Store:
    """An in-memory cluster state. `now` gives seconds since 1970, `new_uid` unique IDs.

    `history_limit` is how many changes of each resource a watch may lag behind, at least.
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
        self.collections = {kind.key: Collection(kind, history_limit) for kind in BUILT_IN}
        self._pages = Pages(now)
        self._dependents = garbage.Dependents()
        self._deleting: set[tuple[tuple[str, str], str, str]] = set()
        for name in (*_ETERNAL, "kube-node-lease"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    # Reading

    def collection(self, resource: Resource) -> Collection:
        """The objects of a resource; `Refusal` 404 when it isn't served."""
        found = self.collections.get((resource.group, resource.plural))
        if found is None or found.kind.resource.version != resource.version:
            raise no_such_resource()
        return found

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """One object; `Refusal` 404."""
        stored = self.collection(resource).objects.get((namespace, name))
        if stored is None:
            raise not_found(resource.plural, resource.group, name)
        return stored

    def page(
        self, resource: Resource, selection: Selection, *, limit: int = 0, continuation: str = "", at_least: str = ""
    ) -> Listing:
        """A consistent page of objects; `Refusal` 410 when the continuation is forgotten."""
        collection = self.collection(resource)
        self._reached(at_least)
        if continuation:
            return self._pages.more(continuation, limit)
        items = list(self._selected(collection, selection))
        return self._pages.first(items, self.version, limit)

    def watch(
        self, resource: Resource, selection: Selection, since: str, wake: Callable[[], None], *, initial: bool = False
    ) -> Watch:
        """The changes after a resourceVersion; without one (or 0, or `initial`) everything there is comes first."""
        collection = self.collection(resource)
        version = parsed_version(since)
        matches = selection.matches()
        everything = initial or version == 0
        if everything:
            self._reached(since)
            items = list(self._selected(collection, selection))
            return Watch(collection.history, collection.history.end, initial=items, matches=matches, wake=wake)
        position = collection.history.position(version)
        return Watch(collection.history, position, initial=[], matches=matches, wake=wake)

    def _reached(self, wanted: str) -> None:
        version = parsed_version(wanted)
        if version > self.version:
            raise Refusal(
                504,
                "Timeout",
                f"Timeout: Too large resource version: {version}, current: {self.version}",
                {
                    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                    "retryAfterSeconds": 1,
                },
            )

    def _selected(self, collection: Collection, selection: Selection) -> Iterator[Stored]:
        matches = selection.matches()
        for key in sorted(collection.objects):
            stored = collection.objects[key]
            if matches is None or matches(stored.object):
                yield stored

    def compact(self) -> None:
        """Forget all history and every open listing: what asks for older things gets 410, as after a compaction."""
        for collection in self.collections.values():
            collection.history.forget()
        self._pages.clear()

    # Writing

    def timestamp(self) -> str:
        """The time now, as Kubernetes writes it."""
        return datetime.datetime.fromtimestamp(int(self._now()), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def create(self, resource: Resource, namespace: str, body: Object, options: WriteOptions = _PLAIN) -> Answer:
        """Create an object. 404 without its namespace, 409 when the name is taken, 422 when it is invalid."""
        collection = self.collection(resource)
        kind = collection.kind
        body = _identified(kind, body)
        metadata = body["metadata"]
        if metadata.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        self._place(kind, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._new_uid().replace("-", "")[-5:]
        self._open_for_writing(kind, namespace, metadata.get("name", ""))
        warnings = _unknown(kind, body, options)
        if kind.has_status and not kind.typed:
            body.pop("status", None)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(name, None)
        metadata |= {"uid": self._new_uid(), "creationTimestamp": self.timestamp()}
        if kind.counts_generations:
            metadata["generation"] = 1
        self._check(kind, body, None)
        key = (namespace if kind.resource.namespaced else "", metadata["name"])
        if key in collection.objects:
            raise already_exists(resource.plural, resource.group, metadata["name"])
        body["metadata"] = _clean(metadata)
        stored = self._commit(collection, key, body, None, dry_run=options.dry_run)
        return Answer(stored, created=True, warnings=warnings)

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Object,
        *,
        subresource: str = "",
        options: WriteOptions = _PLAIN,
    ) -> Answer:
        """Replace an object or its status. 409 when it has changed since the resourceVersion in the body."""
        collection = self.collection(resource)
        old = self.get(resource, namespace, name)
        body = _identified(collection.kind, body)
        self._place(collection.kind, namespace, body["metadata"])
        _hold_identity(old, body)
        if not body["metadata"].get("resourceVersion") and not collection.kind.typed:
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
    ) -> Answer:
        """Patch an object or its status; a server-side apply creates it when it isn't there."""
        collection = self.collection(resource)
        kind = collection.kind
        if media_type == APPLY and (namespace, name) not in collection.objects and not subresource:
            return self.create(resource, namespace, body, options)
        old = self.get(resource, namespace, name)
        if media_type == JSON_PATCH:
            new = json_patch(old.object, body)
        elif (media_type == STRATEGIC and kind.typed) or (media_type == APPLY and kind.typed):
            new = strategic_merge(old.object, body)
        elif media_type in (MERGE, APPLY):
            new = merge_patch(old.object, body)
        else:
            accepted = [JSON_PATCH, MERGE, STRATEGIC, APPLY] if kind.typed else [JSON_PATCH, MERGE, APPLY]
            raise unsupported_media_type(accepted)
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise bad_request("the patch leaves no object")
        return self._write(collection, old, new, subresource, options)

    def _write(
        self, collection: Collection, old: Stored, new: Object, subresource: str, options: WriteOptions
    ) -> Answer:
        kind, resource = collection.kind, collection.kind.resource
        _hold_identity(old, new)
        metadata = dict(new["metadata"])
        if metadata.get("resourceVersion") not in (None, "", "0", str(old.version)):
            raise modified(resource.plural, resource.group, old.name)
        # The status of a custom resource is written whatever else the body says.
        only_status = subresource == "status" and not kind.typed
        if metadata.get("uid") not in (None, "", old.uid) and not only_status:
            error = FieldError("metadata.uid", f'Invalid value: "{metadata["uid"]}": field is immutable')
            raise invalid(resource.kind, resource.group, old.name, [error])
        new = _separated(kind, old.object, new, metadata, subresource)
        if not kind.typed:
            # Pruning and defaulting work in place, and a patch shares what it didn't change with the old state.
            new = msgspec.json.decode(msgspec.json.encode(new))
        warnings = _unknown(kind, new, options)
        self._check(kind, new, old.object)
        if new == old.object:
            return Answer(old, warnings=warnings)
        if kind.counts_generations and _content(new, kind) != _content(old.object, kind):
            new["metadata"]["generation"] = old.object["metadata"].get("generation", 0) + 1
        key = (old.namespace, old.name)
        if garbage.may_go(new):
            return Answer(self._remove(collection, old, new, dry_run=options.dry_run), removed=True, warnings=warnings)
        return Answer(self._commit(collection, key, new, old, dry_run=options.dry_run), warnings=warnings)

    def _place(self, kind: Kind, namespace: str, metadata: dict[str, Any]) -> None:
        if not kind.resource.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", namespace) != namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(message)

    def _open_for_writing(self, kind: Kind, namespace: str, name: str) -> None:
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

    def _check(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Fill in defaults and refuse what is invalid."""
        resource = kind.resource
        found = builtin.metadata_errors(new["metadata"], resource.kind)
        if kind.schema is not None:
            kind.schema.default(new)
            found = kind.schema.verdict(new, old, found)
        elif old is None:
            if resource.kind in builtin.DEFAULTS:
                builtin.DEFAULTS[resource.kind](new)
            if resource.kind in builtin.CHECKS:
                found += builtin.CHECKS[resource.kind](new)
        elif resource.kind == "Pod":
            found += builtin.pod_update_errors(new, old)
        if old is not None and "deletionTimestamp" in old["metadata"]:
            found += garbage.added_finalizers(new, old)
        if resource == CRDS and not found:
            found += _definition_errors(new)
        if found:
            raise invalid(resource.kind, resource.group, new["metadata"].get("name", ""), found)

    def _commit(
        self, collection: Collection, key: tuple[str, str], obj: Object, old: Stored | None, *, dry_run: bool
    ) -> Stored:
        if dry_run:
            metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
            return Stored(collection.kind, {**obj, "metadata": metadata}, 0)
        if collection.kind.resource == CRDS:
            obj = self._serve(obj)
        stored = self._stamped(collection.kind, obj)
        if len(stored.raw) > OBJECT_LIMIT_BYTES:
            raise Refusal(500, "", "etcdserver: request is too large")
        self.version = stored.version
        collection.objects[key] = stored
        self._dependents.replace(collection.kind.key, old, stored)
        collection.history.append(Event("MODIFIED" if old else "ADDED", stored, old))
        if old is None and self._is_orphan(stored):
            self._drop(stored, "Background")
        return stored

    def _stamped(self, kind: Kind, obj: Object) -> Stored:
        version = self.version + 1
        metadata = {**obj["metadata"], "resourceVersion": str(version)}
        return Stored(kind, {**obj, "metadata": metadata}, version)

    # Subresources of pods

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Bind a pod to a node; 409 when it has one."""
        pod = self.get(PODS, namespace, name)
        if bound := pod.object["spec"].get("nodeName"):
            raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{bound}"')
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.timestamp()}
        spec = {**pod.object["spec"], "nodeName": node}
        status = strategic_merge(pod.object["status"], {"conditions": [condition]})
        collection = self.collections[("", "pods")]
        self._commit(collection, (namespace, name), {**pod.object, "spec": spec, "status": status}, pod, dry_run=False)

    # Deleting

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions = _BACKGROUND) -> Answer:
        """Delete an object, at once or as soon as its kubelet, finalizers or dependents allow.

        409 when a condition of the options doesn't hold.
        """
        collection = self.collection(resource)
        old = self.get(resource, namespace, name)
        _hold_conditions(collection.kind, old, options)
        if resource == NAMESPACES and name in _ETERNAL:
            raise forbidden("namespaces", "", name, "this namespace may not be deleted")
        new = garbage.marked(old.object, resource, options, self.timestamp, int(self._now()))
        if garbage.may_go(new) and not self._waits(resource, old, options):
            # Only a pod carries the marks of its deletion when it goes at once, in a change of its own before the end.
            last = new if resource == PODS else old.object
            if resource == PODS and new != old.object and not options.dry_run:
                old = self._commit(collection, (old.namespace, old.name), new, old, dry_run=False)
            return Answer(
                self._remove(collection, old, last, dry_run=options.dry_run, how=options.propagation), removed=True
            )
        if new == old.object:
            return Answer(old)
        stored = self._commit(collection, (old.namespace, old.name), new, old, dry_run=options.dry_run)
        if not options.dry_run:
            self._follow_up(stored)
        current = collection.objects.get((old.namespace, old.name))
        return Answer(stored, removed=current is None)

    def delete_collection(self, resource: Resource, selection: Selection, options: DeleteOptions) -> list[Stored]:
        """Delete everything selected; the objects as they were answered one by one."""
        chosen = list(self._selected(self.collection(resource), selection))
        return [self.delete(resource, stored.namespace, stored.name, options).stored for stored in chosen]

    def _waits(self, resource: Resource, old: Stored, options: DeleteOptions) -> bool:
        """Whether something must be emptied before the object can go."""
        if resource == NAMESPACES:
            return True
        return options.propagation == "Foreground" and self._dependents.blocking(old.uid)

    def _follow_up(self, stored: Stored) -> None:
        """Do for a marked object what controllers do: empty the namespace, delete the dependents first."""
        if stored.kind.resource == NAMESPACES:
            self._empty(stored.name)
        elif _waits_for_dependents(stored):
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
        home = self.collections[NAMESPACES.group, NAMESPACES.plural]
        stored = home.objects.get(("", namespace))
        if stored is None or "deletionTimestamp" not in stored.object["metadata"]:
            return
        if not any(key[0] == namespace for each in self.collections.values() for key in each.objects):
            self._remove(home, stored, stored.object, dry_run=False)

    def _remove(
        self, collection: Collection, old: Stored, last: Object, *, dry_run: bool, how: str = "Background"
    ) -> Stored:
        """Take an object away for good, and what belongs to it."""
        stored = self._stamped(collection.kind, last)
        if dry_run:
            return stored
        self.version = stored.version
        del collection.objects[(old.namespace, old.name)]
        self._dependents.replace(collection.kind.key, old, None)
        collection.history.append(Event("DELETED", stored, old))
        if collection.kind.resource == CRDS:
            self._withdraw(old.object)
        if how == "Orphan":
            self._release(stored)
        else:
            self._drop_dependents(stored)
        for owner in garbage.owners(old.object):
            if (above := self._owner(old, owner)) is not None and _waits_for_dependents(above):
                self._drop_dependents(above)  # some may have been created since its deletion
                self._finish_foreground(above)
        if old.namespace:
            self._close_namespace(old.namespace)
        return stored

    # Owners and dependents

    def _owner(self, stored: Stored, reference: dict[str, Any]) -> Stored | None:
        collection = self._owner_collection(reference)
        if collection is None:
            return None
        home = stored.namespace if collection.kind.resource.namespaced else ""
        owner = collection.objects.get((home, reference["name"]))
        return owner if owner is not None and owner.uid == reference["uid"] else None

    def _owner_collection(self, reference: dict[str, Any]) -> Collection | None:
        group, _, version = str(reference["apiVersion"]).rpartition("/")
        for collection in self.collections.values():
            resource = collection.kind.resource
            if (resource.group, resource.version, resource.kind) == (group, version, reference["kind"]):
                return collection
        return None

    def _is_orphan(self, stored: Stored) -> bool:
        """Whether every owner of the object is known to be gone."""
        references = garbage.owners(stored.object)
        if not references or any(self._owner_collection(each) is None for each in references):
            return False
        return all(self._owner(stored, each) is None for each in references)

    def _drop(self, stored: Stored, propagation: str) -> None:
        """Delete a dependent, unless another owner of it lives on: then only the reference goes."""
        resource = stored.kind.resource
        living = [each for each in garbage.owners(stored.object) if self._owner(stored, each) is not None]
        living = [each for each in living if not self._is_leaving(stored, each)]
        if living:
            self._refer(stored, living)
        else:
            self.delete(resource, stored.namespace, stored.name, DeleteOptions(uid=stored.uid, propagation=propagation))

    def _is_leaving(self, stored: Stored, reference: dict[str, Any]) -> bool:
        owner = self._owner(stored, reference)
        return owner is not None and _waits_for_dependents(owner)

    def _refer(self, stored: Stored, references: list[dict[str, Any]]) -> None:
        """Set the owner references of an object."""
        metadata = {name: value for name, value in stored.object["metadata"].items() if name != "ownerReferences"}
        if references:
            metadata["ownerReferences"] = references
        collection = self.collections[stored.kind.key]
        key = (stored.namespace, stored.name)
        self._commit(collection, key, {**stored.object, "metadata": metadata}, stored, dry_run=False)

    def _dependent(self, place: garbage.Spot) -> Stored | None:
        collection = self.collections.get(place[0])
        return collection.objects.get((place[1], place[2])) if collection is not None else None

    def _drop_dependents(self, owner: Stored) -> None:
        for place in self._dependents.of(owner.uid):
            if (stored := self._dependent(place)) is not None:
                self._drop(stored, "Background")

    def _release(self, owner: Stored) -> None:
        for place in self._dependents.of(owner.uid):
            if (stored := self._dependent(place)) is not None:
                kept = [each for each in garbage.owners(stored.object) if each["uid"] != owner.uid]
                self._refer(stored, kept)

    def _finish_foreground(self, owner: Stored) -> None:
        """Let an owner go that only waited for its dependents; the last of them may have taken it along."""
        current = self.collections[owner.kind.key].objects.get((owner.namespace, owner.name))
        if current is None or current.uid != owner.uid:
            return
        owner = current
        if not _waits_for_dependents(owner) or self._dependents.blocking(owner.uid):
            return
        finalizers = owner.object["metadata"]["finalizers"]
        metadata = {
            **owner.object["metadata"],
            "finalizers": [each for each in finalizers if each != garbage.FOREGROUND],
        }
        self._write(
            self.collections[owner.kind.key], owner, {**owner.object, "metadata": _clean(metadata)}, "", WriteOptions()
        )

    # Custom resources

    def _serve(self, crd: Object) -> Object:
        """Serve what a CRD defines; the CRD with the status that says so."""
        kind = custom_kind(crd)
        existing = self.collections.get(kind.key)
        if existing is None:
            self.collections[kind.key] = Collection(kind, self._history_limit)
        else:
            existing.kind = kind
        moment = self.timestamp()
        conditions = [
            {"type": name, "status": "True", "lastTransitionTime": moment, "reason": reason, "message": message}
            for name, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        names = crd["spec"]["names"]
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
        crd["spec"].setdefault("conversion", {"strategy": "None"})
        if existing is not None and "status" in crd and crd["status"].get("conditions"):
            return crd
        status = {"conditions": conditions, "acceptedNames": names, "storedVersions": [kind.resource.version]}
        return {**crd, "status": status}

    def _withdraw(self, crd: Object) -> None:
        key = (crd["spec"]["group"], crd["spec"]["names"]["plural"])
        collection = self.collections[key]
        for namespace, name in sorted(collection.objects):
            self.delete(collection.kind.resource, namespace, name)
        del self.collections[key]


def _waits_for_dependents(stored: Stored) -> bool:
    return garbage.FOREGROUND in (stored.object["metadata"].get("finalizers") or [])


def parsed_version(text: str) -> int:
    """A resourceVersion as a number, 0 for none; `Refusal` when it isn't one."""
    if text and not text.isdecimal():
        raise Refusal(
            500, "", f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text or 0)


def _identified(kind: Kind, body: Object) -> Object:
    """The body with its kind in front and metadata of its own; `Refusal` 400 for another kind's object."""
    resource = kind.resource
    given = body.get("apiVersion")
    if given not in (None, "", resource.api_version):
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({resource.api_version})"
        )
    if not kind.typed and not (body.get("kind") and given):
        shown = msgspec.json.encode(body).decode()
        why = f"Object 'Kind' is missing in '{shown}' ({shown[:33]} ...)"
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why}")
    if body.get("kind") not in (None, "", resource.kind):
        name = (body.get("metadata") or {}).get("name", "")
        error = FieldError("kind", f'Invalid value: "{body["kind"]}": must be {resource.kind}')
        raise invalid(body["kind"], resource.group, name, [error])
    metadata = {} if body.get("metadata") is None else body["metadata"]
    builtin.hold_metadata_types(metadata, resource.kind, resource.version)
    head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": dict(metadata)}
    rest = {name: value for name, value in body.items() if name not in head}
    return head | (builtin.without_nulls(rest) if kind.typed else rest)


def _unknown(kind: Kind, body: Object, options: WriteOptions) -> tuple[str, ...]:
    """Remove unknown fields; warnings about them, or `Refusal` 400 when the request is strict."""
    metadata = body["metadata"]
    unknown = [f"metadata.{name}" for name in metadata if name not in builtin.METADATA_FIELDS]
    for name in ("managedFields", "selfLink", *(path.partition(".")[2] for path in unknown)):
        metadata.pop(name, None)
    if kind.schema is not None:
        unknown += kind.schema.prune(body)
    else:
        unknown += builtin.unknown_fields(kind.resource.kind, body)
    told = tuple(f'unknown field "{path}"' for path in sorted(unknown))
    if told and options.strictness == "Strict":
        name, version = kind.resource.kind, kind.resource.version
        raise bad_request(
            f'{name} in version "{version}" cannot be handled as a {name}: strict decoding error: {", ".join(told)}'
        )
    return told if options.strictness == "Warn" else ()


def _clean(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if value not in _EMPTY}


def _separated(kind: Kind, old: Object, new: Object, metadata: dict[str, Any], subresource: str) -> Object:
    """The object to write: status writes touch only the status, others everything but the status."""
    if subresource == "status":
        status = new.get("status")
        kept = dict(old) if status is None else {**old, "status": status}
        return {**kept, "metadata": dict(old["metadata"])}
    for name in _KEPT_METADATA:
        metadata.pop(name, None)
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]
    metadata |= {"name": old["metadata"]["name"], "resourceVersion": old["metadata"]["resourceVersion"]}
    whole = {**new, "kind": old["kind"], "apiVersion": old["apiVersion"], "metadata": _clean(metadata)}
    if kind.has_status:
        whole.pop("status", None)
        if "status" in old:
            whole["status"] = old["status"]
    if not kind.typed:
        return whole
    settled: Object = builtin.without_nulls(whole)
    if kind.resource == PODS:
        builtin.settle_pod(settled)
    return settled


def _content(obj: Object, kind: Kind) -> Object:
    ignored = ("metadata", "status") if kind.has_status else ("metadata",)
    return {name: value for name, value in obj.items() if name not in ignored}


def _hold_identity(old: Stored, new: Object) -> None:
    """Refuse a write that would make another object of it."""
    resource, metadata = old.kind.resource, new["metadata"]
    builtin.hold_metadata_types(metadata, resource.kind, resource.version)
    if metadata.get("name", old.name) != old.name:
        message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({old.name})"
        raise bad_request(message)
    if metadata.get("namespace", old.namespace) != old.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    for name, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if new.get(name, expected) != expected:
            error = FieldError(name, f'Invalid value: "{new[name]}": must be {expected}')
            raise invalid(resource.kind, resource.group, old.name, [error])


def _hold_conditions(kind: Kind, old: Stored, options: DeleteOptions) -> None:
    resource = kind.resource
    if options.uid not in (None, old.uid):
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({old.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.kind, resource.group, old.name, why)
    if options.resource_version not in (None, str(old.version)):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({old.version}). The object might have been modified"
        )
        raise conflict(resource.kind, resource.group, old.name, why)


def _definition_errors(crd: Object) -> list[FieldError]:
    try:
        kind = custom_kind(crd)
    except (KeyError, TypeError, AttributeError) as error:
        return [FieldError("spec", f"Required value: {error}", "FieldValueRequired")]
    except ValueError as error:
        return [FieldError("spec.versions[0].schema", f"Invalid value: compilation failed: {error}")]
    expected = f"{kind.resource.plural}.{kind.resource.group}"
    name = crd["metadata"].get("name")
    if name != expected:
        return [FieldError("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group')]
    return []
