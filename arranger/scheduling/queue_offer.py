"""What the cluster offers to the jobs of all queues: shares divide it, and guarantees are kept from it.

It is what the ready nodes have, without what pods of other programs hold there: that is nobody's share and fulfils no
guarantee, as in KAI's division of resources. So it stays the same while a job ends, whichever of its pods have ended,
and whichever still hold their room. A job on a node that isn't ready keeps what it has: both its use and the offer have
it, so it takes nothing from the ready nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from arranger.projections.jobs import requests_of
from arranger.projections.nodes import NOWHERE, PODS, NodeTable, Requests
from arranger.projections.state import State
from arranger.scheduling.remembered import remembered


def offered(state: State) -> Mapping[str, int]:
    """Resource → the amount, in its unit, of every resource that some present node has. What a node had once counts no
    more: a projection that began at a snapshot doesn't know of it."""
    nodes, others = state.nodes, state.queue_use.others
    ready = remembered(nodes.facts_version, "ready", lambda: _ready(nodes))
    found = dict(remembered(nodes.facts_version, "offered", lambda: _provided(nodes, ready)))
    away = {name: row for name, row in nodes.rows.items() if nodes.holders[row] and name not in ready}
    _add(found, state.queue_use.others_total.items(), -1)
    for name in away:
        _add(found, others.get(name, {}).items(), 1)
    if any(_has_ours(nodes, row, others.get(name, {})) for name, row in away.items()):
        for requests in _held_on(state, away.keys()):
            _add(found, requests, 1)
    return {name: max(amount, 0) for name, amount in found.items()}


def _add(found: dict[str, int], amounts: Iterable[tuple[str, int]], sign: int) -> None:
    for resource, amount in amounts:
        if resource in found:
            found[resource] += sign * amount


def _has_ours(nodes: NodeTable, row: int, others: Mapping[str, int]) -> bool:
    """Whether more is used on a row than what pods of other programs use there."""
    return any(used > others.get(name, 0) for name, (used, _) in nodes.amounts(row).items() if name != PODS)


def _held_on(state: State, names: Set[str]) -> Iterator[Requests]:
    """The requests of each slot, and of each assumed pod, on these nodes."""
    for job in state.jobs.values():
        for slot, node in job.placements.items():
            if node in names:
                yield requests_of(job, slot)
    for assumed in state.assumed.values():
        if assumed.node in names:
            yield assumed.requests


def _provided(nodes: NodeTable, ready: Set[str]) -> Mapping[str, int]:
    """The resources that some present node has, with the amounts of the ready ones."""
    has = nodes.allocatable[nodes.by_name()]
    sums = nodes.allocatable[sorted(nodes.rows[name] for name in ready)].sum(axis=0).tolist()
    columns = [(name, column) for name, column in nodes.columns.items() if name not in (NOWHERE, PODS)]
    return {name: sums[column] for name, column in columns if has[:, column].any()}


def _ready(nodes: NodeTable) -> frozenset[str]:
    """The names of the ready nodes."""
    return frozenset(name for name, row in nodes.rows.items() if nodes.facts[row].ready and nodes.present(row))
