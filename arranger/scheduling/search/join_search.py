"""A complete search for pods that ask to join others: first the nodes of all pods, then their order.

Because a pod joins others only when one of them is there, order matters, and `ordered_search` tries the orders one by
one. Here group after group gets nodes, and a pod may come to a domain before those that it is to join, as long as they
may still come. At the end an order is looked for, which is quick: a further pod never closes a node to a pod that joins
others, except to the first of a group that joins itself and may begin alone while nobody else is there.
"""

from collections import Counter
from collections.abc import Sequence

from arranger.scheduling.search.ordered_search import CHECKS, OrderedSearch
from arranger.scheduling.search.packing import StepCount
from arranger.scheduling.search.rules import GroupRule, RuleKind, RulesQuestion, allows

_Pods = tuple[tuple[int, int], ...]


class JoinSearch(OrderedSearch):
    """One such search, for a question without topology spread."""

    def __init__(self, question: RulesQuestion, steps: StepCount, *, order: int) -> None:
        self._joins = [(at, rule) for at, rule in enumerate(question.rules) if rule.kind == RuleKind.JOIN]
        #: The rules by which a pod may come first, because there is nobody yet whom it is to join.
        self._beginning = {at for at, rule in self._joins if rule.own and _nobody(rule.counts)}
        #: By group: node → its pods there.
        self._pods: list[dict[int, int]] = [{} for _ in question.caps]
        super().__init__(question, steps, order=order)

    def _move(self, group: int, node: int, sign: int) -> None:
        there = self._pods[group]
        there[node] = there.get(node, 0) + sign
        if not there[node]:
            del there[node]
        super()._move(group, node, sign)

    def _turns(self) -> list[int]:
        """One group after the other: those that others join come before them where that is possible, and among several
        the scarcest."""
        turns, left = [0] * len(self._rooms), set(range(len(self._rooms)))
        while left:
            joined = {rule.group for _, rule in self._joins if (rule.counted - {rule.group}) & left}
            among = left - joined or left
            group = min(among, key=lambda group: (self._rank(group), group))
            turns[group] = len(turns) - len(left)
            left.remove(group)
        return turns

    def _next_groups(self, groups: list[int]) -> list[int]:
        ordered = sorted(groups, key=self._turn.__getitem__)
        return ordered[:1] if self._exact else ordered

    def _comes_now(self, group: int, node: int) -> bool:
        return True  # `_nodes` has looked at all rules

    def _nodes(self, group: int) -> list[int]:
        """The nodes that may take a pod of the group, if other pods may still come there that it is to join."""
        if not self._within_quotas(group):
            return []
        self._steps.spend(len(self._question.open[group]) // CHECKS)
        room, rules = self._room[group], self._apart[group]
        coming = {other for other in self._open_groups() if other != group}
        nodes = [node for node in self._question.open[group] if room[node] and self._allows(rules, node)]
        for at in self._easing[group]:
            rule = self._question.rules[at]
            if not (rule.counted & coming or at in self._beginning):
                nodes = [node for node in nodes if self._allows([at], node)]
            else:
                nodes = [node for node in nodes if all(domains[node] for domains in rule.domains)]
        return nodes

    def _may_end_well(self, missing: int) -> bool:
        """Whether each pod that is to join others has some, or some may still come."""
        coming = set(self._open_groups()) if missing else set()
        joins = [(at, rule) for at, rule in self._joins if self._pods[rule.group]]
        self._steps.spend(sum([len(self._pods[rule.group]) for _, rule in joins]) // CHECKS)
        return all(self._may_be_joined(at, rule, coming, missing) for at, rule in joins)

    def _may_be_joined(self, at: int, rule: GroupRule, coming: set[int], missing: int) -> bool:
        pods = self._pods[rule.group]
        others = (rule.counted - {rule.group}) & coming
        begins = at in self._beginning
        for domains, counts in zip(rule.domains, self._counts[at], strict=True):
            own: dict[int, int] = {}
            for node, count in pods.items():
                domain = domains[node]
                own[domain] = own.get(domain, 0) + (count if rule.own else 0)
            alone = [domain for domain, count in own.items() if counts[domain] <= count]
            if len(alone) <= begins:
                continue
            if len(alone) - begins > min(missing, sum([self._left[other] for other in others])):
                return False
            self._steps.spend(sum([len(self._room[other]) for other in others]) // CHECKS)
            reached = {domains[node] for other in others for node, room in self._room[other].items() if room}
            if len([domain for domain in alone if domain not in reached]) > begins:
                return False
        return True

    # --- an order ------------------------------------------------------------------------------------------

    def _in_order(self, placed: list[tuple[int, int]]) -> _Pods | None:
        if not self._may_end_well(0):
            return None
        return _Order(self._question, self._joins, self._steps).of(Counter(placed))


class _Order:
    """Looks for an order of pods that have nodes. Only pods that would end another's chance to begin alone are tried in
    several orders; all others come as soon as they may."""

    def __init__(self, question: RulesQuestion, joins: list[tuple[int, GroupRule]], steps: StepCount) -> None:
        self._joins, self._steps = joins, steps
        self._counts = [[list(of_term) for of_term in rule.counts] for rule in question.rules]
        self._found: list[tuple[int, int]] = []

    def of(self, left: Counter[tuple[int, int]]) -> _Pods | None:
        """The pods, by group and node, in such an order."""
        return tuple(self._found) if self._place(dict(left)) else None

    def _place(self, left: dict[tuple[int, int], int]) -> bool:
        mark = len(self._found)
        while True:
            self._steps.spend(len(left))
            ending = self._ending({group for group, _ in left})
            harmless = [pod for pod in left if pod[0] not in ending and self._allowed(*pod)]
            if not harmless:
                break
            for pod in harmless:
                for _ in range(left.pop(pod)):
                    self._put(*pod, 1)
        if not left:
            return True
        for pod in [pod for pod in left if pod[0] in ending and self._allowed(*pod)]:
            self._put(*pod, 1)
            rest = {**left, pod: left[pod] - 1}
            if self._place({pod: count for pod, count in rest.items() if count}):
                return True
            self._put(*self._found[-1], -1)
        while len(self._found) > mark:
            self._put(*self._found[-1], -1)
        return False

    def _ending(self, groups: set[int]) -> set[int]:
        """The groups whose pods end the chance of one of these groups to begin alone."""
        found: set[int] = set()
        for at, rule in self._joins:
            if rule.own and rule.group in groups and _nobody(self._counts[at]):
                found |= rule.counted
        return found

    def _allowed(self, group: int, node: int) -> bool:
        return all(allows(rule, self._counts[at], node) for at, rule in self._joins if rule.group == group)

    def _put(self, group: int, node: int, sign: int) -> None:
        if sign > 0:
            self._found.append((group, node))
        else:
            self._found.pop()
        for at, rule in self._joins:
            if group in rule.counted:
                for domains, counts in zip(rule.domains, self._counts[at], strict=True):
                    counts[domains[node]] += sign


def _nobody(counts: Sequence[Sequence[int]]) -> bool:
    """Whether no pod is counted in any domain."""
    return not any(any(of_term[1:]) for of_term in counts)
