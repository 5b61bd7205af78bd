"""The ResourceQuotas of namespaces, as observed."""

from arranger.events.kinds import ObjectGone, QuotaSeen
from arranger.projections.observed import objects
from arranger.projections.state import Changes, State


def see_quota(state: State, event: QuotaSeen, changes: Changes) -> None:
    """Record a quota. A cycle can find more only if it leaves more than before."""
    old = objects.put(state, event)
    if old is None or (old.hard, old.used, old.scopes) != (event.hard, event.used, event.scopes):
        state.scheduling_changes += 1
        if old is not None and leaves_more(old, event):
            changes.schedulable = True


def forget_quota(state: State, event: ObjectGone, changes: Changes) -> None:
    if objects.drop(state, event) is not None:
        state.scheduling_changes += 1
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
