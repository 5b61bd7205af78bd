"""The complete search for pods with rules about each other: several searches share its steps.

Each of them is complete by itself, but each is soon lost in other questions than the others. Better nodes by the
policy's order are tried first; then those that the other groups can use the least.
"""

from arranger.scheduling.join_search import JoinSearch
from arranger.scheduling.ordered_search import OrderedSearch
from arranger.scheduling.packing import BoundReached, Steps, once
from arranger.scheduling.rules import Answer, Kind, RulesQuestion

#: The searches, whether by the policy's order, and the percentage of the steps that each has at most.
_Plan = tuple[tuple[type[OrderedSearch], bool, int], ...]
_PLAN: _Plan = ((OrderedSearch, True, 75), (OrderedSearch, False, 100))
#: The same if rules ask to join others and none asks to spread. On 17,000 random clusters with such rules
#: (`tests/exhaustive.py`), within 20,000 steps, 7 quorums are missed instead of 18, and fewer steps are used.
_JOINING: _Plan = ((JoinSearch, True, 40), (JoinSearch, False, 15), (OrderedSearch, False, 100))


def place_by_rules(question: RulesQuestion, limit: int) -> Answer:
    """Search within `limit` steps."""
    return once(question.digest, limit, lambda: _answer(question, limit))


def _answer(question: RulesQuestion, limit: int) -> Answer:
    kinds = {rule.kind for rule in question.rules}
    used = 0
    for search, by_policy, share in _JOINING if Kind.JOIN in kinds and Kind.SPREAD not in kinds else _PLAN:
        steps = Steps(min(limit * share // 100, limit - used))
        try:
            return Answer(search(question, steps, by_policy=by_policy).pods(), used + steps.used)
        except BoundReached:
            used += steps.used
    return Answer(None, limit, complete=False)
