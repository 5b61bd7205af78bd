"""One resource: its objects, the recent changes in them, and the watches that read these."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec

from arranger.kube.cluster import Object
from arranger.sandbox.kinds import ServedKind
from arranger.sandbox.selectors import Matches
from arranger.sandbox.status import too_old


class Stored:
    """One state of one object: immutable once stored, and encoded once. `version` is its resourceVersion."""

    __slots__ = ("kind", "name", "namespace", "object", "raw", "uid", "version")

    def __init__(self, kind: ServedKind, obj: Object, version: int) -> None:
        self.kind = kind
        self.object = obj
        self.version = version
        self.raw = msgspec.json.encode(obj)
        #: Empty for cluster-wide resources.
        self.namespace: str = obj["metadata"].get("namespace", "")
        self.name: str = obj["metadata"]["name"]
        self.uid: str = obj["metadata"]["uid"]

    @classmethod
    def stamped(cls, kind: ServedKind, obj: Object, version: int) -> "Stored":
        """A copy of the object with this version in its metadata, as a stored state."""
        return cls(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}, version)

    def seen_as(self, kind: ServedKind) -> "Stored":
        """The state in another version of its resource: only the `apiVersion` differs."""
        if kind is self.kind or kind.resource == self.kind.resource:
            return self
        return Stored(kind, {**self.object, "apiVersion": kind.resource.api_version}, self.version)


class Event:
    """One change as watches see it: `type` is ADDED, MODIFIED or DELETED; `before` is the state that it replaced."""

    __slots__ = ("_line", "before", "stored", "type")

    def __init__(self, kind: str, stored: Stored, before: Stored | None = None) -> None:
        self.type = kind
        self.stored = stored
        self.before = before
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The event in its wire format; encoded once for all watches."""
        if self._line is None:
            self._line = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.stored.raw)
        return self._line

    def seen_as(self, kind: ServedKind) -> "Event":
        """The event for a watch of another version of the resource."""
        stored = self.stored.seen_as(kind)
        return self if stored is self.stored else Event(self.type, stored, self.before)


class History:
    """The last changes of one resource, at least `limit` of them, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[Event] = []
        #: The number of forgotten events, and the resourceVersion of the last of them.
        self.forgotten = 0
        self.floor = 0
        self.readers: dict[Callable[[], None], None] = {}

    @property
    def end(self) -> int:
        return self.forgotten + len(self._events)

    def append(self, event: Event) -> None:
        """Append an event and wake its waiting readers."""
        self._events.append(event)
        if len(self._events) >= 2 * self._limit:
            self.forget(self._limit)
        for wake in list(self.readers):
            wake()

    def forget(self, keep: int = 0) -> None:
        """Forget all but the last `keep` events: watches from before them get 410."""
        gone = len(self._events) - keep
        if gone > 0:
            self.floor = self._events[gone - 1].stored.version
            del self._events[:gone]
            self.forgotten += gone

    def position(self, version: int) -> int:
        """The position of the changes after a resourceVersion; raises `Refusal` 410 if some of them are forgotten."""
        if version < self.floor:
            raise too_old(version, self.floor)
        return self.forgotten + bisect_right(self._events, version, key=lambda event: event.stored.version)

    def since(self, position: int) -> list[Event]:
        """The events from a position on; raises `Refusal` 410 if the reader was too slow."""
        if position < self.forgotten:
            raise too_old(position, self.floor)
        return self._events[position - self.forgotten :]


def seen_through(event: Event, matches: Matches) -> Event | None:
    """How an event looks to a watch with a selector: an object that enters is added, one that leaves deleted."""
    after = event.type != "DELETED" and matches(event.stored.object)
    before = event.before is not None and matches(event.before.object)
    if event.type == "DELETED":
        return event if before or matches(event.stored.object) else None
    if after:
        return event if before or event.type == "ADDED" else Event("ADDED", event.stored, event.before)
    if before and event.before is not None:
        # The last state in the selection, with the version of the change that removed it.
        last = Stored.stamped(event.before.kind, event.before.object, event.stored.version)
        return Event("DELETED", last, event.before)
    return None


class Watch:
    """A reader of one resource's history, from a position on. `wake` is called whenever new events may exist.

    `kind` is the version of the resource in which it sees the objects.
    """

    def __init__(
        self,
        history: History,
        position: int,
        *,
        kind: ServedKind,
        initial: list[Stored],
        matches: Matches | None,
        wake: Callable[[], None],
    ) -> None:
        self._history = history
        self._position = position
        self._kind = kind
        self._initial = initial
        self._matches = matches
        self._wake = wake
        history.readers[wake] = None

    def take(self) -> list[Event]:
        """All new events; raises `Refusal` 410 if this watch has fallen behind the history."""
        events = self._history.since(self._position)
        self._position += len(events)
        if self._matches is not None and events:
            matches = self._matches
            events = [seen for event in events if (seen := seen_through(event, matches)) is not None]
        if self._initial:
            events = [Event("ADDED", stored) for stored in self._initial] + events
            self._initial = []
        return [event.seen_as(self._kind) for event in events]

    def close(self) -> None:
        self._history.readers.pop(self._wake, None)


class Collection:
    """All objects of one resource, by namespace and name, and their history.

    `kinds` are the resource in each served version. Objects are stored in the first one, which is `kind`.
    """

    def __init__(self, kinds: Sequence[ServedKind], history_limit: int) -> None:
        self.kinds = kinds
        self.objects: dict[tuple[str, str], Stored] = {}
        self.history = History(history_limit)

    @property
    def kind(self) -> ServedKind:
        return self.kinds[0]

    def version(self, name: str) -> ServedKind | None:
        """The resource in the version of this name; None if that isn't served."""
        return next((kind for kind in self.kinds if kind.resource.version == name), None)

    def kept(self, obj: Object) -> Object:
        """An object of any version as it is stored: without the fields that the stored version doesn't have."""
        kind = self.kind
        if obj["apiVersion"] == kind.resource.api_version:
            return obj
        kept: Object = msgspec.json.decode(msgspec.json.encode({**obj, "apiVersion": kind.resource.api_version}))
        if kind.schema is not None:
            kind.schema.prune(kept)
        return kept

    def at(self, version: int) -> dict[tuple[str, str], Stored]:
        """The objects as of a resourceVersion; raises `Refusal` 410 if that is forgotten."""
        objects = dict(self.objects)
        for event in reversed(self.history.since(self.history.position(version))):
            key = (event.stored.namespace, event.stored.name)
            if event.before is not None:
                objects[key] = event.before
            else:
                del objects[key]
        return objects
