"""Rules among the pods of one quorum, as plain numbers: the question of a search, and its answer."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class RuleKind(StrEnum):
    """What a rule demands: no counted pod in the domain, one in the domain, or no more than in the emptiest domain."""

    APART = "Apart"
    JOIN = "Join"
    SPREAD = "Spread"


@dataclass(frozen=True, slots=True)
class GroupRule:
    """A rule of the pods of one group. `domains` (terms × nodes) number the domains of a topology, 0 for nodes in none.
    `counts` (terms × domains) are the counted pods that are there already. `counted` are the groups whose pods count,
    `own` whether a pod of the group itself does.

    For `SPREAD`, pods count on the nodes in `on`; `emptiest` are the domains whose least count is compared, none if it
    is 0 anyway; and the difference may be `skew`.
    """

    kind: RuleKind
    group: int
    domains: tuple[tuple[int, ...], ...]
    counts: tuple[tuple[int, ...], ...]
    counted: frozenset[int]
    own: bool = False
    on: frozenset[int] = frozenset()
    emptiest: tuple[int, ...] = ()
    skew: int = 0

    @property
    def eased(self) -> bool:
        """Whether further pods may open nodes."""
        return self.kind != RuleKind.APART


@dataclass(frozen=True)
class RulesQuestion:
    """Whether `asked` pods of k groups fit n nodes, with at least `least` and at most `caps` pods of each group, under
    these rules.

    `requests` has the amounts of one pod by group, `free` those of the nodes. `open` says by group which nodes take its
    pods as far as resources and the quorum's own pods don't matter; they are in the policy's order. With quotas, the
    pods' `uses` by group may add up to `left`.
    """

    requests: tuple[tuple[int, ...], ...]
    caps: tuple[int, ...]
    free: tuple[tuple[int, ...], ...]
    open: tuple[tuple[int, ...], ...]
    rules: tuple[GroupRule, ...]
    asked: int
    least: tuple[int, ...]
    uses: tuple[tuple[int, ...], ...] = ()
    left: tuple[int, ...] = ()

    @cached_property
    def digest(self) -> bytes:
        """16 bytes, equal for equal questions."""
        rules = [(*map(repr, (r.kind, r.group, r.domains, r.counts, r.own, r.emptiest, r.skew)),
                  sorted(r.counted), sorted(r.on)) for r in self.rules]  # fmt: skip
        parts = (self.requests, self.caps, self.free, self.open, self.asked, self.least, self.uses, self.left, rules)
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Group and node of each pod, in an order that the rules allow; None if none was found. `complete`: then there is
    none. `steps` is the cost, which the answer to a repeated question has, too."""

    pods: tuple[tuple[int, int], ...] | None
    steps: int
    complete: bool = True


def allows(rule: GroupRule, counts: list[list[int]], node: int) -> bool:
    """Whether a rule lets a pod of its group onto a node, with these counts in place of the question's."""
    domain, first = rule.domains[0][node], counts[0]
    if rule.kind == RuleKind.APART:
        return not domain or not first[domain]
    if rule.kind == RuleKind.SPREAD:
        least = min([first[of] for of in rule.emptiest], default=0)
        return domain > 0 and first[domain] + rule.own - least <= rule.skew
    here = [(of[node], of_term) for of, of_term in zip(rule.domains, counts, strict=True)]
    if not all(of for of, _ in here):
        return False
    return all(of_term[of] for of, of_term in here) or (rule.own and not any(any(of_term[1:]) for of_term in counts))
