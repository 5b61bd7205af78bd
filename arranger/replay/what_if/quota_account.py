"""Compute the use of quotas after hypothetical events, because no controller of Kubernetes counts hypothetical pods.

The new use is the old one, less that of pods that were deleted or have ended, plus that of new pods.
"""

from collections.abc import Sequence

import msgspec

from arranger.events import kinds as k
from arranger.model.pod import TERMINAL
from arranger.model.quota import covers, usage, used_by
from arranger.projections.state import State


def accounted(state: State, events: Sequence[k.Event]) -> tuple[k.Event, ...]:
    """These events, which aren't folded yet, followed by the quotas as they are after them."""
    quotas = {(one.namespace, one.name): one for of in state.quotas.values() for one in of.values()}
    quotas |= {(one.namespace, one.name): one for one in events if isinstance(one, k.QuotaSeen)}
    for event in events:
        if k.is_gone(event, k.Watched.QUOTA):
            quotas.pop((event.namespace, event.name), None)
    if not quotas:
        return tuple(events)
    changed: dict[tuple[str, str], k.QuotaSeen] = {}
    pods: dict[str, k.PodSeen | None] = {}
    for event in events:
        if k.seen_or_gone(event, k.PodSeen):
            old = pods[event.uid] if event.uid in pods else state.pods.get(event.uid)
            new = pods[event.uid] = event if isinstance(event, k.PodSeen) else None
            for key, quota in quotas.items():
                if key[0] == event.namespace:
                    now = _moved(state, changed.get(key, quota), old, new)
                    if now is not None:
                        changed[key] = now
    term = state.terms.get(k.Watched.QUOTA, 0)
    return (*events, *(msgspec.structs.replace(changed[key], term=term) for key in sorted(changed)))


def as_counted(seen: k.QuotaSeen, there: k.QuotaSeen) -> k.QuotaSeen:
    """A new observation of a quota with the use that was counted here, for the resources that it limits."""
    used = dict(seen.used) | {name: value for name, value in there.used if name in dict(seen.hard)}
    return msgspec.structs.replace(seen, used=tuple(sorted(used.items())))


def _moved(state: State, quota: k.QuotaSeen, old: k.PodSeen | None, new: k.PodSeen | None) -> k.QuotaSeen | None:
    before, after = _uses(state, quota, old), _uses(state, quota, new)
    if before == after:
        return None
    used = tuple((name, max(value - before.get(name, 0) + after.get(name, 0), 0)) for name, value in quota.used)
    return msgspec.structs.replace(quota, used=used)


def _uses(state: State, quota: k.QuotaSeen, pod: k.PodSeen | None) -> dict[str, int]:
    """What a pod uses of a quota. The limits and the scopes of a foreign pod are unknown."""
    if pod is None or pod.phase in TERMINAL:
        return {}
    job = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
    if job is not None and job.spec is not None and pod.owner is not None:
        for group in job.spec.groups:
            if group.name == pod.owner.group_name:
                return dict(used_by(group)) if covers(quota.scopes, group) else {}
    return {} if quota.scopes else usage(pod.requests)
