"""How the observation and the deletion of each kind of objects change the projection, and the refusal of their watch.

Those of which nothing but the object follows need no entry here (`objects`). PodGroups and the requests for nodes are
folded with the records of jobs.
"""

from collections.abc import Callable
from typing import Any

from arranger.events import kinds as k
from arranger.events.kinds import OF_VOLUMES, SETTING_OF, Watched
from arranger.projections.derived.awaited_room import quota_changed
from arranger.projections.derived.queue_counts import count_all, follow_limits, pods_of_others
from arranger.projections.folding.provisioning import forget_requests
from arranger.projections.observed import devices, objects, queues, volumes
from arranger.projections.observed.devices import forget_devices
from arranger.projections.observed.namespace_terms import select_again
from arranger.projections.observed.priorities import see_class
from arranger.projections.observed.quotas import forget_quota, see_quota
from arranger.projections.observed.runtime_classes import resolve_limits, resolve_runtimes
from arranger.projections.observed.volumes import forget_volumes
from arranger.projections.state import Changes, State

_Apply = Callable[[State, Any, Changes], None]


def _before(
    note: Callable[[State, Any, Changes], None], apply: Callable[[State, Any, Changes], None]
) -> Callable[[State, Any, Changes], None]:
    """The fold of an observation, after `note` has compared it with the state."""

    def noted(state: State, event: Any, changes: Changes) -> None:
        note(state, event, changes)
        apply(state, event, changes)

    return noted


#: Observation of an object → how it is folded.
SEEN: dict[type, _Apply] = {
    **{k.SEEN[kind]: objects.see for kind in objects.KINDS},
    k.QuotaSeen: _before(quota_changed, see_quota),
    k.PriorityClassSeen: see_class,
    k.LimitRangeSeen: queues.see_limit_range,
    k.RuntimeClassSeen: queues.see_runtime_class,
    k.QueueSeen: queues.see_queue,
    k.NamespaceSeen: queues.see_namespace,
    **volumes.SEEN,
    **devices.SEEN,
}
#: Watch → how the deletion of one of its objects is folded.
GONE: dict[Watched, _Apply] = {
    **dict.fromkeys(objects.KINDS, objects.forget),
    Watched.QUOTA: _before(quota_changed, forget_quota),
    Watched.LIMIT_RANGE: queues.forget_limit_range,
    Watched.RUNTIME_CLASS: queues.forget_runtime_class,
    Watched.QUEUE: queues.forget_queue,
    Watched.NAMESPACE: queues.forget_namespace,
    **volumes.GONE,
    **devices.GONE,
}


def forget_refused(state: State, kind: Watched) -> None:
    """Forget all objects of an optional kind that the API server refuses to show: their present content is unknown."""
    if kind in OF_VOLUMES:
        forget_volumes(state, kind)
    elif SETTING_OF.get(kind) == "devices":
        forget_devices(state, kind)
    elif kind in objects.KINDS:
        limited = {*state.limit_ranges}
        objects.clear(state, kind)
        if kind == Watched.RUNTIME_CLASS:
            resolve_runtimes(state)
        elif kind == Watched.LIMIT_RANGE:
            resolve_limits(state, limited)
        elif kind == Watched.QUEUE:
            follow_limits(state)
            state.tree_changed()
        elif kind == Watched.PROVISIONING:
            forget_requests(state)
        elif kind == Watched.NAMESPACE:
            count_all(state, pods_of_others(state))
            select_again(state)
