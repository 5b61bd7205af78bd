"""A quorum whose pods have rules about each other, as the question that `rules_search` answers.

The cycle's filters say which nodes each group may use as far as the quorum's own pods don't matter. The rest becomes
rules over numbered domains, with the pods that are counted there already. Domains without such nodes are left out, so
a change elsewhere leads to the same question.
"""

from collections.abc import Iterator

import numpy as np

from arranger.model.pod import PodRules, PodTerm, SpreadRule
from arranger.scheduling.cluster.neighbours import Neighbour, PortTakers, Question, SelectedPods, selected_by, within
from arranger.scheduling.filters.nodes import Counts
from arranger.scheduling.filters.pods import TopologySpread, domains_of
from arranger.scheduling.placing.needs import Quorum
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.search.rules import Arrangement, GroupRule, RuleKind, RulesQuestion

_NO_RULES = PodRules()
_SPREAD = TopologySpread()


def interact(placing: Placing, tried: PlacementTry, quorum: Quorum) -> bool:
    """Whether a pod of the quorum may change which nodes take another one, other than by its requests."""
    pods = {group: placing.pod(tried.job, group) for group in quorum.indices}
    for group, pod in pods.items():
        rules = tried.groups[group].shape.rules
        if rules is None or pod is None:
            continue
        if any(question.matches(other) for question in _about(rules, pod) for other in pods.values() if other):
            return True
    return False


def _about(rules: PodRules, pod: Neighbour) -> Iterator[Question]:
    """Which pods the rules look at."""
    yield from (PortTakers(port) for port in rules.host_ports)
    yield from (selected_by(term, pod) for term in rules.anti_affinity)
    yield from (_spread_over(rule, pod) for rule in rules.spread)
    if rules.affinity:
        yield joined(rules.affinity, pod)


def joined(terms: tuple[PodTerm, ...], pod: Neighbour) -> SelectedPods:
    """The pods that this one must join."""
    return SelectedPods(tuple((within(term, pod.namespace), term.selector) for term in terms))


def _spread_over(rule: SpreadRule, pod: Neighbour) -> SelectedPods:
    return SelectedPods((((pod.namespace,), rule.selector),), staying=True)


class Rules:
    """The question for one quorum. `rooms` says by group how many of its pods each node takes at most."""

    def __init__(self, placing: Placing, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Counts]) -> None:
        self._placing, self._tried, self._quorum = placing, tried, quorum
        self._groups = list(quorum.indices)
        self._pods = [placing.pod(tried.job, group) for group in self._groups]
        self._rooms = rooms
        #: The row of each of the question's nodes.
        self._rows = np.flatnonzero(np.any([rooms[group] > 0 for group in self._groups], axis=0))

    def question(self) -> RulesQuestion:
        """The question."""
        placing, quorum = self._placing, self._quorum
        shapes = [self._tried.groups[group].shape for group in self._groups]
        requests = np.stack([placing.view.request(shape) for shape in shapes])
        columns = np.flatnonzero(requests.any(axis=0))
        caps = [len(quorum.indices[group]) for group in self._groups]
        free = placing.view.free[self._rows][:, columns].astype(np.int64)
        most = np.array(caps) @ requests[:, columns]
        uses: list[list[int]] = []
        left: list[int] = []
        if placing.quotas.limits(self._tried.job):
            uses, left = placing.quotas.remainders(self._tried.job, self._groups)
        return RulesQuestion(
            requests=tuple(map(tuple, requests[:, columns].tolist())),
            caps=tuple(caps),
            free=tuple(map(tuple, np.clip(free, 0, most).tolist())),
            open=tuple(tuple(self._in_order(group)) for group in self._groups),
            rules=tuple(self._rules()),
            asked=quorum.asked,
            least=tuple(quorum.least.get(group, 0) for group in self._groups),
            uses=tuple(zip(*uses, strict=True)),
            left=tuple(left),
        )

    def placed(self, answer: Arrangement) -> list[tuple[int, int]]:
        """Group and row of each pod."""
        rows = self._rows.tolist()
        return [(self._groups[group], rows[node]) for group, node in answer.pods or ()]

    def _in_order(self, group: int) -> list[int]:
        """The nodes that may take pods of the group, best first by the policy's score now."""
        placing, policy = self._placing, self._tried.policy
        request = placing.request(placing.filters, self._tried, group, 1)
        scores = request.preferring(policy.scores(placing.view, request, placing.config))[self._rows]
        order = np.argsort(-scores, kind="stable")
        found: list[int] = order[self._rooms[group][self._rows[order]] > 0].tolist()
        return found

    # --- rules ---------------------------------------------------------------------------------------------

    def _rules(self) -> Iterator[GroupRule]:
        for number, group in enumerate(self._groups):
            rules = self._tried.groups[group].shape.rules or _NO_RULES
            yield from self._ports(number, rules)
            for term in rules.anti_affinity:
                yield from self._apart(number, term)
            if rules.affinity:
                yield self._join(number, rules.affinity)
            yield from (self._spread(number, rule) for rule in rules.spread)

    def _matching(self, *questions: Question) -> frozenset[int]:
        """The groups whose pods one of the questions matches."""
        return frozenset(
            number
            for number, pod in enumerate(self._pods)
            if pod is not None and any(question.matches(pod) for question in questions)
        )

    def _ports(self, number: int, rules: PodRules) -> Iterator[GroupRule]:
        counted = self._matching(*map(PortTakers, rules.host_ports))
        if counted:
            nodes = tuple(range(1, len(self._rows) + 1))
            yield GroupRule(RuleKind.APART, number, (nodes,), ((0,) * (len(nodes) + 1),), counted)

    def _apart(self, number: int, term: PodTerm) -> Iterator[GroupRule]:
        """The rule among the quorum's pods, in both directions; other pods have closed their nodes already."""
        counted = self._matching(selected_by(term, self._pod(number)))
        if counted:
            domains = self._domains(term.topology_key)
            none = ((0,) * (max(domains, default=0) + 1),)
            yield GroupRule(RuleKind.APART, number, (domains,), none, counted)
            for other in sorted(counted - {number}):
                yield GroupRule(RuleKind.APART, other, (domains,), none, frozenset({number}))

    def _join(self, number: int, terms: tuple[PodTerm, ...]) -> GroupRule:
        selected = joined(terms, self._pod(number))
        counted = self._matching(selected)
        domains, counts = [], []
        for term in terms:
            of_rows = self._neighbours_count(selected)
            codes = domains_of(self._placing.view, term.topology_key)
            every = np.bincount(codes, weights=of_rows, minlength=1).astype(np.int64)
            every[0] = 0
            of_nodes = self._domains(term.topology_key)
            here = self._of_domains(of_nodes, every[codes[self._rows]])
            # A last domain without nodes of the question has the pods elsewhere: a pod that matches its own terms may
            # be the first only if there is none anywhere.
            elsewhere = int(every.sum()) - sum(here)
            domains.append(of_nodes)
            counts.append((*here, elsewhere))
        return GroupRule(RuleKind.JOIN, number, tuple(domains), tuple(counts), counted, own=number in counted)

    def _spread(self, number: int, rule: SpreadRule) -> GroupRule:
        view, pod = self._placing.view, self._pod(number)
        shape = self._tried.groups[self._groups[number]].shape
        selected = _spread_over(rule, pod)
        on = _SPREAD.spread_over(view, shape, rule)
        codes = domains_of(view, rule.topology_key)
        every = np.bincount(codes, weights=self._neighbours_count(selected) * on, minlength=1).astype(np.int64)
        of_nodes = self._domains(rule.topology_key)
        here = self._of_domains(of_nodes, every[codes[self._rows]])
        seen = np.flatnonzero(np.bincount(codes[on]))
        numbers = dict(zip(codes[self._rows].tolist(), of_nodes, strict=True))
        emptiest: list[int] = []
        if len(seen) >= max(rule.min_domains, 1):
            emptiest = sorted(numbers[code] for code in seen.tolist() if code in numbers)
            others = [int(every[code]) for code in seen.tolist() if code not in numbers]
            if others:
                emptiest.append(len(here))
                here = (*here, min(others))
        counted = self._matching(selected)
        nodes = frozenset(np.flatnonzero(on[self._rows]).tolist())
        return GroupRule(
            RuleKind.SPREAD,
            number,
            (of_nodes,),
            (here,),
            counted,
            number in counted,
            nodes,
            tuple(emptiest),
            rule.max_skew,
        )

    def _pod(self, number: int) -> Neighbour:
        pod = self._pods[number]
        assert pod is not None
        return pod

    def _neighbours_count(self, selected: SelectedPods) -> Counts:
        neighbours = self._placing.view.neighbours
        assert neighbours is not None
        return neighbours.count(selected)

    def _domains(self, key: str) -> tuple[int, ...]:
        """The domains of the question's nodes, numbered from 1 in the order of nodes; 0 for none."""
        numbers: dict[int, int] = {0: 0}
        codes = domains_of(self._placing.view, key)[self._rows].tolist()
        return tuple(numbers.setdefault(code, len(numbers)) for code in codes)

    def _of_domains(self, domains: tuple[int, ...], of_nodes: Counts) -> tuple[int, ...]:
        """Values by domain number from values by node, 0 for no domain."""
        values = dict(zip(domains, of_nodes.tolist(), strict=True))
        return tuple(values[number] if number else 0 for number in range(max(domains, default=0) + 1))
