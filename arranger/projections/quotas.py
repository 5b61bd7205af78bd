"""The ResourceQuotas of namespaces, as observed."""

from arranger.events.kinds import ObjectGone, QuotaSeen
from arranger.projections.state import Changes, State


def see_quota(state: State, event: QuotaSeen, changes: Changes) -> None:
    """Record a quota. A cycle can find more only if it leaves more than before."""
    of_namespace = state.quotas.setdefault(event.namespace, {})
    old = of_namespace.get(event.name)
    of_namespace[event.name] = event
    if old is None or (old.hard, old.used, old.scopes) != (event.hard, event.used, event.scopes):
        state.job_changes += 1
        if old is not None and leaves_more(old, event):
            changes.schedulable = True


def forget_quota(state: State, event: ObjectGone, changes: Changes) -> None:
    of_namespace = state.quotas.get(event.namespace, {})
    if event.name in of_namespace and of_namespace[event.name].uid == event.uid:
        del of_namespace[event.name]
        if not of_namespace:
            del state.quotas[event.namespace]
        state.job_changes += 1
        changes.schedulable = True


def leaves_more(old: QuotaSeen, new: QuotaSeen) -> bool:
    """Whether the new quota may admit pods that the old one didn't: a limit rose, or the usage fell."""
    if old.scopes != new.scopes:
        return True
    hard, used, was_used = dict(new.hard), dict(new.used), dict(old.used)
    return any(
        name not in hard
        or hard[name] > limit
        or (name in used and (name not in was_used or used[name] < was_used[name]))
        for name, limit in old.hard
    )
