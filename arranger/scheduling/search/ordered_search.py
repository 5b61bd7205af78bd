"""A complete search for pods with rules about each other: depth-first, pod by pod, with backtracking.

It is complete because it tries every group on every node, in every order that may matter. It saves work where that
changes nothing:

- A state that was visited before, with as many pods of each group on equal nodes, leads nowhere.
- Of equal nodes with equal pods only one is tried, because the other leads to the same state.
- Order matters only for groups whose rules further pods may ease (affinity, topology spread), and for groups whose pods
  those rules count. All others are placed group by group (`PlacingPhase`), by how scarce their nodes are.
- A state is left if too few nodes are left for some group.

A wrong choice at the beginning may take very long to leave, so the search can be begun again in other orders (`order`).
"""

import hashlib
from collections.abc import Hashable, Iterator
from enum import IntEnum

from arranger.scheduling.search.packing import StepCount
from arranger.scheduling.search.rules import RuleKind, RulesQuestion, allows

#: The order of groups and nodes: the best nodes by the policy first; or the scarcest groups first, on the nodes that
#: others can use the least. Each larger number is another order without a meaning, the same on any machine.
BY_POLICY, BY_SCARCITY = 0, 1
#: (group, node) checks in one step, and steps for a state, however few its checks are.
CHECKS = 1
STATE = 15


class PlacingPhase(IntEnum):
    """When the pods of a group are placed: before all others, in any order with others, or after all others."""

    FIRST = 0
    IN_ANY_ORDER = 1
    LAST = 2


Choices = Iterator[tuple[int, int]]


class OrderedSearch:
    """One depth-first search, as a stack of the pods placed so far with the choices for the pod after each."""

    def __init__(self, question: RulesQuestion, steps: StepCount, *, order: int) -> None:
        self._question, self._steps, self._order = question, steps, order
        groups = range(len(question.caps))
        nodes = len(question.free) * (len(question.rules) + 1) + 2 * sum(map(len, question.open))
        steps.spend(STATE + nodes // CHECKS)
        self._free = [list(of_node) for of_node in question.free]
        self._left = list(question.caps)
        self._quota = list(question.left)
        self._counts = [[list(of_term) for of_term in rule.counts] for rule in question.rules]
        rules = list(enumerate(question.rules))
        self._apart = [[at for at, rule in rules if rule.group == group and not rule.eased] for group in groups]
        self._easing = [[at for at, rule in rules if rule.group == group and rule.eased] for group in groups]
        #: Rules by which a domain takes one pod of the group at most.
        self._alone = [[at for at in self._apart[group] if group in question.rules[at].counted] for group in groups]
        self._counting = [[at for at, rule in rules if group in rule.counted] for group in groups]
        self._exact = sum(question.caps) == question.asked
        self._phase = [_phase(question, group) for group in groups]
        #: The resources of each group that count, as their numbers and amounts.
        self._asks = [[(at, amount) for at, amount in enumerate(of) if amount] for of in question.requests]
        #: The pods of each group that fit each node beside the pods there, by resources alone; and their sums.
        self._room = [{node: self._fits(group, self._free[node]) for node in question.open[group]} for group in groups]
        self._rooms = [sum(room.values()) for room in self._room]
        self._turn = self._turns()
        self._class = _classes(question)
        #: Node → pods of each group there.
        self._there = [(0,) * len(question.caps)] * len(question.free)
        #: The present state, equal for states that differ only by equal nodes: the sum of the nodes' numbers.
        self._state = 0
        mixed = range(len(question.free)) if order > BY_SCARCITY else ()
        self._mixed_nodes = [_mixed(order, "node", node) for node in mixed]
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._visited: set[int] = set()

    def pods(self) -> tuple[tuple[int, int], ...] | None:
        """The pods in their order; None if there is no way. Raises `BoundReached`."""
        placed: list[tuple[int, int]] = []
        undo: list[tuple[int, tuple[int, ...]]] = []
        levels: list[Choices] = [self._choices(0)]
        while levels:
            choice = next(levels[-1], None)
            if choice is None:
                levels.pop()
            else:
                placed.append(choice)
                undo.append((self._state, self._there[choice[1]]))
                self._move(*choice, 1)
                if len(placed) < self._question.asked:
                    levels.append(self._choices(len(placed)))
                    continue
                if (found := self._in_order(placed)) is not None:
                    return found
            if placed:
                group, node = placed.pop()
                self._move(group, node, -1)
                self._state, self._there[node] = undo.pop()
        return None

    def _in_order(self, placed: list[tuple[int, int]]) -> tuple[tuple[int, int], ...] | None:
        """All pods in an order that the rules allow; None if there is none."""
        return tuple(placed)

    def _move(self, group: int, node: int, sign: int) -> None:
        """Place a pod (1) or take it back (-1)."""
        question, free = self._question, self._free[node]
        for at, amount in self._asks[group]:
            free[at] -= sign * amount
        for at, use in enumerate(question.uses[group] if question.uses else ()):
            self._quota[at] -= sign * use
        self._left[group] -= sign
        for at in self._counting[group]:
            rule = question.rules[at]
            if rule.kind != RuleKind.SPREAD or node in rule.on:
                for domains, counts in zip(rule.domains, self._counts[at], strict=True):
                    counts[domains[node]] += sign
        for other, room in enumerate(self._room):
            if node in room:
                fits = self._fits(other, free)
                self._rooms[other] += fits - room[node]
                room[node] = fits
        if sign > 0:
            self._state, self._there[node] = self._after(group, node)

    def _after(self, group: int, node: int) -> tuple[int, tuple[int, ...]]:
        """The state with one more pod, and the pods of each group on its node."""
        here = self._there[node]
        more = (*here[:group], here[group] + 1, *here[group + 1 :])
        kind = self._class[node]
        return self._state - self._number(kind, here) + self._number(kind, more), more

    def _number(self, kind: int, here: tuple[int, ...]) -> int:
        """A number of 128 bits for a node of a class with such pods: sums of them are as good as unique."""
        number = self._numbers.get((kind, here))
        if number is None:
            digest = hashlib.blake2b(repr((kind, here)).encode(), digest_size=16).digest()
            number = self._numbers[kind, here] = int.from_bytes(digest) if any(here) else 0
        return number

    def _fits(self, group: int, free: list[int]) -> int:
        room = self._question.caps[group]
        for at, amount in self._asks[group]:
            room = min(room, free[at] // amount)
        return room

    # --- the choices at a state ----------------------------------------------------------------------------

    def _choices(self, placed: int) -> Choices:
        """The next pods to try, each as group and node; none if the state leads nowhere."""
        self._steps.spend(STATE)
        missing = self._question.asked - placed
        if not self._may_end_well(missing):
            return
        lacking = self._lacking()
        groups = self._open_groups()
        if sum(lacking.values()) >= missing:  # without the least of each group, a quorum isn't whole
            groups = [group for group in groups if group in lacking]
        nodes = {group: self._nodes(group) for group in groups}
        fits = {group: self._most(group, of_group) for group, of_group in nodes.items()}
        if sum(fits.values()) < missing or any(fits.get(group, 0) < lack for group, lack in lacking.items()):
            return
        for group in self._next_groups(groups):
            for node in self._in_turn(group, nodes):
                if self._comes_now(group, node):
                    state = self._after(group, node)[0]
                    if state not in self._visited:
                        self._visited.add(state)
                        yield group, node

    def _lacking(self) -> dict[int, int]:
        """Group → how many pods of it still have to come, for groups with fewer than their least."""
        question = self._question
        lacks = [
            left - (cap - least) for left, cap, least in zip(self._left, question.caps, question.least, strict=True)
        ]
        return {group: lack for group, lack in enumerate(lacks) if lack > 0}

    def _may_end_well(self, missing: int) -> bool:
        """Whether so many further pods may satisfy all rules; False only if they surely can't."""
        return True

    def _comes_now(self, group: int, node: int) -> bool:
        """Whether the rules that other pods ease let a pod onto the node now."""
        return self._allows(self._easing[group], node)

    def _turns(self) -> list[int]:
        """The turn of each group if not all pods are needed: a group is closed when a pod of a later turn is placed.
        The groups in any order have one turn. In the other phases groups of which some must be there come first, and
        among several the scarcest."""
        caps, least = self._question.caps, self._question.least
        keys = [
            (self._phase[group],)
            if self._phase[group] == PlacingPhase.IN_ANY_ORDER
            else (self._phase[group], not least[group], self._rank(group), group)
            for group in range(len(caps))
        ]
        ranked = sorted(set(keys))
        return [ranked.index(key) for key in keys]

    def _rank(self, group: int) -> int:
        """The rank of a group, the first one first: how many pods more than it has left find room."""
        if self._order > BY_SCARCITY:
            return _mixed(self._order, "group", group)
        return self._rooms[group] - self._left[group]

    def _open_groups(self) -> list[int]:
        """The groups with pods to place that aren't closed."""
        groups = [group for group, left in enumerate(self._left) if left]
        if self._exact:
            return groups
        caps = self._question.caps
        now = max((turn for turn, left, cap in zip(self._turn, self._left, caps, strict=True) if left < cap), default=0)
        return [group for group in groups if self._turn[group] >= now]

    def _nodes(self, group: int) -> list[int]:
        """The nodes that may take a pod of the group, now or when further pods ease its rules; best first."""
        if not self._within_quotas(group):
            return []
        self._steps.spend(len(self._question.open[group]) // CHECKS)
        room, rules = self._room[group], self._apart[group]
        for at in self._easing[group]:
            rule = self._question.rules[at]
            if rule.kind == RuleKind.JOIN and not any([self._left[other] for other in rule.counted]):
                rules = [*rules, at]  # no pod to come can ease it
        nodes = [node for node in self._question.open[group] if room[node] and self._allows(rules, node)]
        for at in self._easing[group]:
            rule = self._question.rules[at]
            if rule.kind == RuleKind.SPREAD:
                domains, counts = rule.domains[0], self._counts[at][0]
                most = rule.skew + self._least_later(at) - rule.own
                nodes = [node for node in nodes if domains[node] and counts[domains[node]] <= most]
        return nodes

    def _least_later(self, at: int) -> int:
        """How many pods the emptiest domain of a topology spread may have at the end, at most."""
        rule, counts = self._question.rules[at], self._counts[at][0]
        if not rule.emptiest:
            return 0
        self._steps.spend(sum([len(self._room[group]) for group in rule.counted]) // CHECKS)
        rooms = dict.fromkeys(rule.emptiest, 0)
        for group in rule.counted:
            for node, room in self._room[group].items() if self._left[group] else ():
                if node in rule.on and rule.domains[0][node] in rooms:
                    rooms[rule.domains[0][node]] += room
        missing = self._question.asked - sum(self._question.caps) + sum(self._left)
        coming = min(missing, sum([self._left[group] for group in rule.counted]))
        least, most = min([counts[of] for of in rooms]), min([counts[of] + room for of, room in rooms.items()])
        while least < most and sum([max(least + 1 - counts[of], 0) for of in rooms]) <= coming:
            least += 1
        return least

    def _most(self, group: int, nodes: list[int]) -> int:
        """The most pods of the group that may still find nodes."""
        room, left = self._room[group], self._left[group]
        most = min(left, sum([room[node] for node in nodes]))
        for at in self._alone[group]:
            domains = self._question.rules[at].domains[0]
            within = {domains[node] for node in nodes}
            beyond = sum([room[node] for node in nodes if not domains[node]]) if 0 in within else 0
            most = min(most, len(within - {0}) + beyond)
        return most

    def _within_quotas(self, group: int) -> bool:
        uses = self._question.uses
        return not uses or all(use <= left for use, left in zip(uses[group], self._quota, strict=True) if use)

    def _next_groups(self, groups: list[int]) -> list[int]:
        """The groups to try next, of those that aren't closed."""
        ranks = {group: self._rank(group) for group in groups}
        by_policy = self._order == BY_POLICY
        if not self._exact:
            return sorted(ranks, key=lambda group: (self._turn[group], not by_policy and ranks[group]))
        turn = min((self._phase[group] for group in groups), default=PlacingPhase.LAST)
        now = [group for group in groups if self._phase[group] == turn]
        if turn != PlacingPhase.IN_ANY_ORDER:
            return [min(now, key=ranks.__getitem__)]
        return now if by_policy else sorted(now, key=ranks.__getitem__)

    def _in_turn(self, group: int, nodes: dict[int, list[int]]) -> list[int]:
        """The nodes for a pod of the group, those to try first first."""
        if self._order == BY_POLICY:
            return nodes[group]
        if self._order > BY_SCARCITY:
            return sorted(nodes[group], key=self._mixed_nodes.__getitem__)
        others = [self._room[other] for other in nodes if other != group]
        return sorted(nodes[group], key=lambda node: sum([room.get(node, 0) for room in others]))

    def _allows(self, rules: list[int], node: int) -> bool:
        """Whether these rules let a pod of their group onto the node now."""
        return all([allows(self._question.rules[at], self._counts[at], node) for at in rules])


def _phase(question: RulesQuestion, group: int) -> PlacingPhase:
    eased = [rule for rule in question.rules if rule.eased and group in (rule.group, *rule.counted)]
    if not eased:
        return PlacingPhase.LAST
    # Its pods only open nodes for others, so they may as well come before them.
    gives = all(rule.group != group and rule.kind == RuleKind.JOIN and not rule.own for rule in eased)
    return PlacingPhase.FIRST if gives else PlacingPhase.IN_ANY_ORDER


def _mixed(order: int, kind: str, number: int) -> int:
    """A number that says nothing, for an order that is as good as any other."""
    return int.from_bytes(hashlib.blake2b(f"{order} {kind} {number}".encode(), digest_size=8).digest())


def _classes(question: RulesQuestion) -> list[int]:
    """A number for each node, the same for nodes that differ in nothing but being different domains by themselves."""
    numbers: dict[Hashable, int] = {}
    opened = [frozenset(nodes) for nodes in question.open]
    sizes = [[_sizes(domains) for domains in rule.domains] for rule in question.rules]
    found = []
    for node, free in enumerate(question.free):
        memberships: list[Hashable] = []
        for rule, of_rule in zip(question.rules, sizes, strict=True):
            for domains, counts, size in zip(rule.domains, rule.counts, of_rule, strict=True):
                domain = domains[node]
                alone = (-1, counts[domain], domain in rule.emptiest) if domain and size[domain] == 1 else domain
                memberships.append((alone, node in rule.on))
        kind = (free, tuple(node in of_group for of_group in opened), tuple(memberships))
        found.append(numbers.setdefault(kind, len(numbers)))
    return found


def _sizes(domains: tuple[int, ...]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for domain in domains:
        sizes[domain] = sizes.get(domain, 0) + 1
    return sizes
