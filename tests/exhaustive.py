"""Whether a quorum fits a small cluster, by trying everything; and random small clusters to compare the scheduler with.

    python -m tests.exhaustive --clusters 20000 --nodes 12 --pods 12

The check shares only the model with the scheduler: resources, rules among pods and quotas are implemented again, one
node and one pod at a time. It is slow and simple. It gives up after `states` states, which happens only to some jobs
with rules that don't fit.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from arranger.model.config import CycleConfig
from arranger.model.node import Taint
from arranger.model.pod import (
    HostPort,
    PodRules,
    PodShape,
    PodTerm,
    PodTraits,
    Requirement,
    SpreadRule,
    Toleration,
)
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import SEARCH_NODES
from tests.random_clusters import ALL_POLICIES
from tests.world import World, shape

#: What the pods of a random job may ask for beyond resources.
KINDS = ("plain", "selectors", "taints", "quotas", "ports", "affinity", "anti-affinity", "spread", "all rules")
HOST, ZONE = "kubernetes.io/hostname", "zone"

#: Pods of one group on each node, group by group.
_Counts = tuple[tuple[int, ...], ...]


def searching(steps: int = 1_000_000, *, small: int = 0) -> CycleConfig:
    """A configuration with the complete search; `small` is how many nodes aren't a small cluster (`search_nodes`)."""
    return CycleConfig(versions=VERSIONS, search_steps=steps, search_nodes=small)


# --- random clusters ------------------------------------------------------------------------------------------------


def random_world(
    rng: random.Random,
    *,
    nodes: int,
    pods: int,
    kind: str,
    policy: str,
    config: CycleConfig = searching(),  # noqa: B008  # it never changes
    with_minimums: bool = False,
    with_worker_groups: bool = False,
) -> tuple[World, JobRecord]:
    """A cluster of up to so many nodes, and one job whose quorum has up to so many pods and is about as large as the
    cluster; on request, with minimums of some of its worker sets, or with worker groups of which the minimums say how
    many are needed."""
    world = World(config=config)
    count = rng.randint(1, nodes)
    for number in range(count):
        labels = {HOST: f"n{number:02}", ZONE: f"z{rng.randrange(3)}", "disk": rng.choice(["ssd", "hdd"])}
        if rng.random() < 0.1:
            del labels[ZONE]
        taints = [Taint("infra", "", "NoSchedule")] if kind == "taints" and rng.random() < 0.4 else []
        world.node(f"n{number:02}", cpu=rng.randint(1, 8), gpus=rng.choice([0, 0, 1, 2, 4]), labels=labels,
                   taints=taints, pods=rng.choice([110, 110, 2, 3]))  # fmt: skip
    if kind not in ("plain", "selectors", "taints", "quotas"):
        for number in range(rng.randint(0, 2)):
            rules = _rules(rng, kind) or PodRules()
            traits = PodTraits((("app", rng.choice("ab")),), rules.host_ports, rules.anti_affinity)
            world.pod(f"s{number}", f"n{rng.randrange(count):02}", traits=traits, cpu=rng.choice([0.0, 1.0]))
    if kind == "quotas":
        world.quota("q", {"requests.cpu": rng.randint(4, 20) * 1000, "requests.nvidia.com/gpu": rng.randint(0, 6)})
    left = rng.randint(1, pods - 1)
    sets = []
    while left > 0 and len(sets) < 4:
        of_set = rng.randint(1, left)
        sets.append((f"s{len(sets)}", of_set, _shape(rng, kind)))
        left -= of_set
    total = sum(of_set for _, of_set, _ in sets)
    minimums = {name: rng.randint(0, of_set) for name, of_set, _ in sets if with_minimums and rng.random() < 0.3}
    least, sizes = rng.randint((total + 1) // 2, total), {}
    if with_worker_groups:
        sizes = {name: rng.choice([size for size in (1, 2, 3) if not of_set % size]) for name, of_set, _ in sets}
        minimums = {name: rng.randint(0, of_set // sizes[name]) * sizes[name] for name, of_set, _ in sets}
        least = sum(minimums.values())
    job = world.job("j", leader=_shape(rng, kind), workers=sets, min_workers=least, minimums=minimums,
                    group_sizes=sizes, policy=policy)  # fmt: skip
    return world, job


def _shape(rng: random.Random, kind: str) -> PodShape:
    selector = {"disk": rng.choice(["ssd", "hdd"])} if kind != "plain" and rng.random() < 0.3 else None
    tolerations = [Toleration("infra", "Exists", "", "")] if kind == "taints" and rng.random() < 0.5 else []
    asking = kind not in ("plain", "selectors", "taints", "quotas")
    return shape(cpu=rng.randint(1, 4), gpus=rng.choice([0, 0, 0, 1, 2]), selector=selector, tolerations=tolerations,
                 labels={"app": rng.choice("ab")} if asking else None,
                 rules=_rules(rng, kind) if asking else None)  # fmt: skip


def _rules(rng: random.Random, kind: str) -> PodRules | None:
    if rng.random() < 0.4:
        return None

    def term() -> PodTerm:
        return PodTerm(rng.choice([HOST, ZONE]), (Requirement("app", "In", (rng.choice("ab"),)),))

    of = rng.choice(KINDS[4:8]) if kind == "all rules" else kind
    match of:
        case "ports":
            return PodRules(host_ports=(HostPort(rng.choice([80, 81])),))
        case "affinity":
            return PodRules(affinity=(term(),))
        case "anti-affinity":
            return PodRules(anti_affinity=(term(),))
        case _:
            one = term()
            return PodRules(spread=(SpreadRule(one.topology_key, rng.randint(1, 2), one.selector),))


# --- the check ------------------------------------------------------------------------------------------------------


class Exhaustive:
    """One job without nodes on a world's present state."""

    def __init__(self, world: World, job: JobRecord, states: int = 1 << 62) -> None:
        nodes, spec = world.state.nodes, job.spec
        assert spec is not None and not job.placements
        names = [name for name in sorted(nodes.rows) if nodes.has(name)]
        facts = [nodes.facts[nodes.rows[name]] for name in names]
        self.labels = [dict(of.labels) for of in facts]
        self.taints = [of.taints for of in facts]
        amounts = [nodes.amounts(nodes.rows[name]) for name in names]
        self.free = [{name: there - used for name, (used, there) in of.items()} for of in amounts]
        self.foreign = [(names.index(pod.node), pod.traits) for pod in world.state.pods.values() if pod.node in names]
        self.groups = spec.groups
        self.traits = [_traits(group.shape) for group in spec.groups]
        self.counts = [group.count for group in spec.groups]
        workers = spec.total_workers if job.valid_spec.pod_policy == "Gang" else spec.min_workers
        self.asked = 1 + workers
        self.least = [1, *(group.min_count for group in spec.groups[1:])]
        self.quotas = [dict(quota.hard) for of in world.state.quotas.values() for quota in of.values()]
        self.states = states
        self._seen: set[_Counts] = set()

    def fits(self) -> bool | None:
        """Whether the quorum fits; None if it isn't known after so many states."""
        if not self._fits_by_nodes():
            return False  # rules among pods only take nodes away
        rules = any(group.shape.rules is not None for group in self.groups)
        if not rules and not any(traits.anti_affinity for _, traits in self.foreign):
            return True
        try:
            return self._fits_by_pods(tuple((0,) * len(self.free) for _ in self.groups))
        except TimeoutError:
            return None

    def _enough(self, placed: Sequence[int]) -> bool:
        """Whether some of the placed pods are a quorum that the quotas allow."""
        for chosen in product(*(range(count + 1) for count in placed)) if self.quotas else [placed]:
            if not self._lacking(chosen) and sum(chosen) >= self.asked and self._allowed_by_quotas(chosen):
                return True
        return False

    def _lacking(self, placed: Sequence[int]) -> int:
        return sum(max(least - count, 0) for least, count in zip(self.least, placed, strict=True))

    def _allowed_by_quotas(self, chosen: Sequence[int]) -> bool:
        used: Counter[str] = Counter()
        for group, count in zip(self.groups, chosen, strict=True):
            used.update({f"requests.{name}": value * count for name, value in group.shape.requests})
        return all(used[name] <= limit for hard in self.quotas for name, limit in hard.items())

    # --- without rules among pods: node by node ------------------------------------------------------------

    def _fits_by_nodes(self) -> bool:
        reached = {(0,) * len(self.groups)}
        for node in range(len(self.free)):
            ways = list(self._ways(node))
            more = {
                tuple(min(a + b, most) for a, b, most in zip(placed, way, self.counts, strict=True))
                for placed in reached
                for way in ways
            }
            reached = {one for one in more if one[0] <= 1}
        return any(self._enough(placed) for placed in reached)

    def _ways(self, node: int) -> Iterator[tuple[int, ...]]:
        """Everything that fits one empty node."""
        most = [self._room(group, node) for group in range(len(self.groups))]
        for way in product(*(range(count + 1) for count in most)):
            if self._holds(node, way):
                yield way

    def _room(self, group: int, node: int) -> int:
        if not self._open(group, node):
            return 0
        room = 0
        while room < self.counts[group] and self._holds(
            node, [(room + 1) * (g == group) for g in range(len(self.groups))]
        ):
            room += 1
        return room

    def _holds(self, node: int, way: Sequence[int]) -> bool:
        used: Counter[str] = Counter({"pods": sum(way)})
        for group, count in zip(self.groups, way, strict=True):
            for name, value in group.shape.requests:
                used[name] += value * count
        return all(value <= self.free[node].get(name, 0) for name, value in used.items() if value)

    def _open(self, group: int, node: int) -> bool:
        of = self.groups[group].shape
        if any(self.labels[node].get(key) != value for key, value in of.node_selector):
            return False
        return all(any(each.key == taint.key for each in of.tolerations) for taint in self.taints[node])

    # --- with rules: pod by pod, in every order ------------------------------------------------------------

    def _fits_by_pods(self, counts: _Counts) -> bool:
        placed = [sum(of) for of in counts]
        lacking, missing = self._lacking(placed), self.asked - sum(placed)
        if missing <= 0:
            return self._enough(placed)
        if counts in self._seen:
            return False
        self._seen.add(counts)
        if len(self._seen) > self.states:
            raise TimeoutError
        there = self.foreign + [
            (node, self.traits[group]) for group, of in enumerate(counts) for node, count in enumerate(of) if count
            for _ in range(count)
        ]  # fmt: skip
        for group in range(len(self.groups)):
            if placed[group] == self.counts[group] or (lacking >= missing and placed[group] >= self.least[group]):
                continue
            for node in range(len(self.free)):
                way = [of[node] + (g == group) for g, of in enumerate(counts)]
                if self._open(group, node) and self._holds(node, way) and self._allows(group, node, there):
                    row = list(counts[group])
                    row[node] += 1
                    if self._fits_by_pods((*counts[:group], tuple(row), *counts[group + 1 :])):
                        return True
        return False

    def _allows(self, group: int, node: int, there: Sequence[tuple[int, PodTraits]]) -> bool:
        """Whether the rules among pods let a pod of the group onto the node."""
        own, rules = self.traits[group], self.groups[group].shape.rules or PodRules()
        for other, traits in there:
            if other == node and any(a.port == b.port for a in own.host_ports for b in traits.host_ports):
                return False
            mine = any(_selects(term, traits) and self._together(term, node, other) for term in own.anti_affinity)
            theirs = any(_selects(term, own) and self._together(term, node, other) for term in traits.anti_affinity)
            if mine or theirs:
                return False
        return self._joins(rules.affinity, own, node, there) and all(
            self._spreads(group, rule, own, node, there) for rule in rules.spread
        )

    def _together(self, term: PodTerm, node: int, other: int) -> bool:
        domain = self.labels[node].get(term.topology_key)
        return domain is not None and self.labels[other].get(term.topology_key) == domain

    def _joins(
        self, terms: Sequence[PodTerm], own: PodTraits, node: int, there: Sequence[tuple[int, PodTraits]]
    ) -> bool:
        for term in terms:
            if term.topology_key not in self.labels[node]:
                return False
            matching = [other for other, traits in there if _selects(term, traits)]
            if any(self._together(term, node, other) for other in matching):
                continue
            if not _selects(term, own) or any(term.topology_key in self.labels[other] for other in matching):
                return False
        return True

    def _spreads(
        self, group: int, rule: SpreadRule, own: PodTraits, node: int, there: Sequence[tuple[int, PodTraits]]
    ) -> bool:
        key, of = rule.topology_key, self.groups[group].shape
        if key not in self.labels[node]:
            return False
        counted = [
            n for n, labels in enumerate(self.labels)
            if all(r.topology_key in labels for r in (of.rules or PodRules()).spread)
            and all(labels.get(label) == value for label, value in of.node_selector)
        ]  # fmt: skip
        pods = Counter({self.labels[n][key]: 0 for n in counted})
        for other, traits in there:
            if other in counted and _selects(rule, traits):
                pods[self.labels[other][key]] += 1
        return pods[self.labels[node][key]] + _selects(rule, own) - min(pods.values()) <= rule.max_skew


def _traits(of: PodShape) -> PodTraits:
    rules = of.rules or PodRules()
    return PodTraits(of.labels, rules.host_ports, rules.anti_affinity)


def _selects(term: PodTerm | SpreadRule, traits: PodTraits) -> bool:
    """The selectors here have one requirement `In`."""
    labels = dict(traits.labels)
    return all(labels.get(asked.key) in asked.values for asked in term.selector or ())


# --- many clusters --------------------------------------------------------------------------------------------------


def main(args: Sequence[str]) -> int:
    """Compare the scheduler with the check on many clusters, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    numbers = {"clusters": 2000, "nodes": 12, "pods": 12, "seed": 0, "steps": 20_000, "states": 200_000}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--minimums", action="store_true", help="with minimums of some worker sets")
    parser.add_argument("--worker-groups", action="store_true", help="with worker groups of several sizes")
    told = parser.parse_args(args)
    totals: dict[str, Counter[str]] = {}
    spent: dict[str, list[float]] = {}
    for number in range(told.clusters):
        kind, policy, world, job = _drawn(told, number)
        begin_s = time.perf_counter()
        world.cycle()
        spent.setdefault(kind, []).append(time.perf_counter() - begin_s)
        here = totals.setdefault(kind, Counter())
        here["clusters"] += 1
        searched = job.waits.shortage.searched if job.waits is not None else 0
        if job.placements:
            here["placed"] += 1
            continue
        fits = Exhaustive(*_drawn(told, number)[2:], states=told.states).fits()
        here["gave up" if searched else "said no"] += 1
        here["unknown"] += fits is None
        if fits:
            here["missed"] += 1
            here["missed and said no"] += not searched
            print(f"missed: seed {told.seed}, number {number}, {kind}, {policy}", flush=True)
    for kind, here in totals.items():
        times = sorted(spent[kind])
        print(f"{kind}: {dict(here)}; cycles: mean {1000 * sum(times) / len(times):.1f} ms, "
              f"99 % {1000 * times[len(times) * 99 // 100]:.1f} ms, longest {1000 * times[-1]:.1f} ms")  # fmt: skip
    return int(any(here["missed and said no"] for here in totals.values()))


def _drawn(told: argparse.Namespace, number: int) -> tuple[str, str, World, JobRecord]:
    """The kind, the policy and the world of a number."""
    rng = random.Random(f"{told.seed}-{number}")
    kind, policy = rng.choice(told.kinds.split(",")), rng.choice(ALL_POLICIES)
    config = searching(told.steps, small=SEARCH_NODES)
    return kind, policy, *random_world(rng, nodes=told.nodes, pods=told.pods, kind=kind, policy=policy,
                                       config=config, with_minimums=told.minimums,
                                       with_worker_groups=told.worker_groups)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
