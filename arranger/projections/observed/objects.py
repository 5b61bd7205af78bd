"""The objects of each watched kind that the projection has as they were observed last, in one table of tables.

Nodes, pods and TYJobs aren't among them: the projection makes more of these. What a change of an object means for jobs
stands where the kind is folded (`volumes`, `devices`, `queues` and others); who only looks for objects, compares them,
lists or forgets them, reads this table. A kind that isn't in it has its objects in `State.plain`.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from arranger.events.devices import ResourceClaimSeen
from arranger.events.kinds import GROUP_KINDS, SEEN, ObjectGone, ObjectSeen, Watched, watch_of
from arranger.model.pods_to_place import group_uid
from arranger.projections.state import Changes, State

_name = attrgetter("name")
_name_in_namespace = attrgetter("namespace", "name")


def _plain_name(event: Any) -> str:
    """The name, with its namespace if the kind has any."""
    namespace = getattr(event, "namespace", "")
    name: str = event.name
    return f"{namespace}/{name}" if namespace else name


def _group(event: Any) -> str:
    kind = GROUP_KINDS[event.kind] if type(event) is ObjectGone else event.group_kind
    return group_uid(event.namespace, event.name, kind)


class _Kept(NamedTuple):
    """Where the state has the objects of a kind. `key` is the key of an observation or a deletion there. With `within`,
    the state has a table for each value of that, and none that is empty."""

    table: Callable[[State], dict[Any, Any]]
    key: Callable[[Any], Any] = _name
    within: Callable[[Any], Any] | None = None


#: Where objects are of which nobody asks for more than the one of a name.
_PLAIN = _Kept(attrgetter("plain"), _plain_name, watch_of)
_KEPT: dict[Watched, _Kept] = {
    Watched.QUOTA: _Kept(attrgetter("quotas"), within=attrgetter("namespace")),
    Watched.LIMIT_RANGE: _Kept(attrgetter("limit_ranges"), within=attrgetter("namespace")),
    Watched.PROVISIONING: _Kept(attrgetter("seen_requests"), within=attrgetter("job_uid")),
    Watched.QUEUE: _Kept(attrgetter("queues")),
    Watched.NAMESPACE: _Kept(attrgetter("namespaces")),
    **dict.fromkeys(GROUP_KINDS, _Kept(attrgetter("pod_groups"), _group)),
    Watched.CLAIM: _Kept(attrgetter("volumes.claims"), _name_in_namespace),
    Watched.VOLUME: _Kept(attrgetter("volumes.volumes")),
    Watched.STORAGE_CLASS: _Kept(attrgetter("volumes.classes")),
    Watched.CSI_NODE: _Kept(attrgetter("volumes.csi_nodes")),
    Watched.RESOURCE_SLICE: _Kept(attrgetter("devices.slices")),
    Watched.DEVICE_CLASS: _Kept(attrgetter("devices.classes")),
    Watched.RESOURCE_CLAIM: _Kept(attrgetter("devices.claims"), _name_in_namespace),
    Watched.RESOURCE_CLAIM_TEMPLATE: _Kept(attrgetter("devices.templates"), _name_in_namespace),
}

#: The kinds of these objects.
KINDS = tuple([kind for kind in Watched if kind not in (Watched.NODE, Watched.POD, Watched.JOB)])
#: How an object is observed → where it is. Quotas come with each of many pods.
_KEPT_SEEN: dict[type, _Kept] = {SEEN[kind]: _KEPT.get(kind, _PLAIN) for kind in KINDS}


def see(state: State, event: ObjectSeen, _changes: Changes) -> None:
    """Fold an observation from which nothing else follows."""
    put(state, event)


def forget(state: State, event: ObjectGone, _changes: Changes) -> None:
    """Fold a deletion from which nothing else follows."""
    drop(state, event)


def find(state: State, event: ObjectSeen | ObjectGone) -> Any:
    """The object of the same kind and name as an observed or a deleted one; None if the projection has none."""
    kept, table = _of(state, event)
    return table.get(kept.key(event))


def put(state: State, event: ObjectSeen) -> Any:
    """Have an object as it was observed; returns it as it was before, None if it wasn't there."""
    kept, table = _of(state, event, make=True)
    key = kept.key(event)
    old, table[key] = table.get(key), event
    return old


def restore(state: State, event: ObjectSeen) -> None:
    """As `put`, with what follows from resource claims: which devices they have, and for whom they were made."""
    if isinstance(event, ResourceClaimSeen):
        state.devices.put_claim(event)
    else:
        put(state, event)


def drop(state: State, event: ObjectGone) -> Any:
    """Forget a deleted object; returns it as it was. None if the projection has none, or another one of that name."""
    known = find(state, event)
    if known is None or known.uid != event.uid:
        return None
    kept, table = _of(state, event)
    del table[kept.key(event)]
    if kept.within is not None and not table:
        del kept.table(state)[kept.within(event)]
    return known


def clear(state: State, kind: Watched) -> None:
    """Forget all objects of a kind, but PodGroups: the records of pods have these."""
    kept = _KEPT.get(kind)
    if kept is None:
        state.plain.pop(kind, None)
    elif kind not in GROUP_KINDS:
        kept.table(state).clear()


def every(state: State, kind: Watched) -> Iterator[Any]:
    """The objects of a kind, in a fixed order."""
    kept = _KEPT.get(kind)
    table = kept.table(state) if kept is not None else state.plain.get(kind, {})
    for _, of in sorted(table.items()):
        if kept is not None and kept.within is not None:
            yield from (each for _, each in sorted(of.items()))
        elif kind not in GROUP_KINDS or of.group_kind == GROUP_KINDS[kind]:
            yield of


def _of(state: State, event: ObjectSeen | ObjectGone, *, make: bool = False) -> tuple[_Kept, dict[Any, Any]]:
    kept = _KEPT.get(event.kind, _PLAIN) if type(event) is ObjectGone else _KEPT_SEEN[type(event)]
    table = kept.table(state)
    if kept.within is None:
        return kept, table
    outer = kept.within(event)
    inner = table.get(outer)
    if inner is None:
        inner = {}
        if make:
            table[outer] = inner
    return kept, inner
