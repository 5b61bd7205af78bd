"""The complete search for pods with rules about each other: several searches share its steps.

Each of them is complete by itself, but each is soon lost in other questions than the others. A search that has made a
wrong choice at its beginning may need all steps to leave it, and another one then finds a way almost at once. So short
searches in several orders come first, that of the policy before the others, and then longer ones.
"""

from collections.abc import Iterator

from arranger.scheduling.search.join_search import JoinSearch
from arranger.scheduling.search.ordered_search import BY_POLICY, STATE, OrderedSearch
from arranger.scheduling.search.packing import BoundReached, StepCount, once
from arranger.scheduling.search.rules import Arrangement, RuleKind, RulesQuestion

#: The percentage of the steps for all short searches, and for one. A short search has the steps to place all pods at
#: least so many times, so there are few of them, or none, in large clusters.
SHORT_ONES, SHORT = 56, 4
DESCENTS = 2
#: How many of the short searches come before the long ones.
FEW = 2
#: The percentage of the rest for the long search that looks for nodes first, if there is one.
NODES_FIRST = 40

_Planned = tuple[type[OrderedSearch], int, int]


def place_by_rules(question: RulesQuestion, limit: int) -> Arrangement:
    """Search within `limit` steps."""
    return once(question.digest, limit, lambda: _answer(question, limit))


def _answer(question: RulesQuestion, limit: int) -> Arrangement:
    used = 0
    for search, order, most in _plan(question, limit):
        steps = StepCount(min(most, limit - used))
        try:
            return Arrangement(search(question, steps, order=order).pods(), used + steps.used)
        except BoundReached:
            used += steps.used
    return Arrangement(None, limit, complete=False)


def _plan(question: RulesQuestion, limit: int) -> Iterator[_Planned]:
    """The searches, their orders, and their most steps."""
    kinds = {rule.kind for rule in question.rules}
    joining = RuleKind.JOIN in kinds and RuleKind.SPREAD not in kinds
    searches: list[type[OrderedSearch]] = [JoinSearch, OrderedSearch] if joining else [OrderedSearch]
    descent = (question.asked + 1) * (STATE + sum(map(len, question.open)))
    short = max(limit * SHORT // 100, DESCENTS * descent)
    number = limit * SHORT_ONES // 100 // short
    short_ones = [(searches[at % len(searches)], at // len(searches), short) for at in range(number)]
    rest = limit - number * short
    yield from short_ones[:FEW]
    if joining:
        yield JoinSearch, BY_POLICY, rest * NODES_FIRST // 100
        rest -= rest * NODES_FIRST // 100
    yield OrderedSearch, BY_POLICY, rest
    yield from short_ones[FEW:]
