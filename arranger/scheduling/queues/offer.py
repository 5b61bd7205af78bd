"""What the cluster offers to the jobs of all queues: shares divide it, and guarantees are kept from it.

It is what the open nodes have, those that are ready and not cordoned, whatever their taints: nodes of GPUs often have
one that all of their pods tolerate. What pods of other programs hold there is nobody's share and fulfils no guarantee,
as in KAI's division of resources; nor what pods hold there that run on after the end of their job. So the offer stays
the same while a job ends, whichever of its pods have ended, and whichever still hold their room. What jobs hold on a
node beyond what it offers is in the offer too, as it is in their use: on a node that isn't open, has lost a GPU, or
whose device plugin restarts. So they take nothing from the other nodes, and lose no share for it. What no queue counts
isn't in the offer there: an assumed pod, or a job whose pods show its success. Else others would get as much on the
other nodes, and with it what is guaranteed.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np

from arranger.events.kinds import PodSeen
from arranger.projections.cluster.nodes import NOWHERE, PODS, NodeTable, Requests
from arranger.projections.cluster.remembered import remembered
from arranger.projections.derived.departing import hanging
from arranger.projections.jobs.records import requests_of
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import kept_pods, leaves


def offered(state: State, time_ms: int) -> Mapping[str, int]:
    """Resource → the amount, in its unit, of every resource that some present node has. What a node had once counts no
    more: a projection that began at a snapshot doesn't know of it. What is held beyond an open node's amounts is
    offered, and what pods hold that should be gone by `time_ms` (milliseconds since 1970) isn't."""
    nodes, others = state.nodes, state.queue_use.others
    opened = _opened(nodes)
    found = dict(remembered(nodes.facts_version, "offered", lambda: _provided(nodes)))
    _add(found, state.queue_use.others_total.items(), -1)
    behind = [pod for pod in _left_behind(state, time_ms) if pod.node in opened]
    for pod in behind:
        _add(found, pod.requests, -1)
    held = _held_where_short(state, opened, others, behind)
    for name, amounts in held.items():
        there = nodes.allocatable[nodes.rows[name]] if name in opened else np.zeros(len(nodes.columns), np.int64)
        for resource, amount in amounts.items():
            if resource in found:
                found[resource] += max(amount - int(there[nodes.columns[resource]]), 0)
    return {name: max(amount, 0) for name, amount in found.items()}


def closed_nodes(nodes: NodeTable) -> frozenset[str]:
    """The names of the nodes that aren't open and on which something is held: what leaves there isn't offered."""
    opened = _opened(nodes)
    if len(opened) == len(nodes.rows):
        return frozenset()  # as nearly always
    return frozenset([name for name, row in nodes.rows.items() if name not in opened and nodes.holders[row]])


def _opened(nodes: NodeTable) -> frozenset[str]:
    return remembered(nodes.facts_version, "open", lambda: _open(nodes))


def _left_behind(state: State, time_ms: int) -> Iterator[PodSeen]:
    """The pods that count in no queue any more and hang, or that their ended jobs keep: their room is nobody's, as that
    of other programs' pods."""
    pods = (state.pods[uid] for uid in hanging(state, time_ms, 0)) if state.deleting or state.orphaned else ()
    yield from (pod for pod in pods if leaves(state, pod))
    yield from kept_pods(state)


def _held_where_short(
    state: State, opened: Set[str], others: Mapping[str, Mapping[str, int]], behind: Iterable[PodSeen]
) -> Mapping[str, dict[str, int]]:
    """Node → what pods of other programs, those left behind and slots of jobs hold there, of the nodes that offer less
    than is used there: not open, or overbooked."""
    nodes = state.nodes
    over = _overbooked(nodes)
    short = {
        name: row for name, row in nodes.rows.items() if nodes.holders[row] and (name not in opened or row in over)
    }
    held = {name: dict(others.get(name, _NOTHING)) for name in short}
    for pod in behind:
        if pod.node in held:
            _count(held[pod.node], pod.requests)
    with_ours = {name for name, row in short.items() if _has_ours(nodes, row, held[name])}
    for node, requests in _held_on(state, with_ours) if with_ours else ():
        _count(held[node], requests)
    return held


def _count(amounts: dict[str, int], requests: Requests) -> None:
    for resource, amount in requests:
        amounts[resource] = amounts.get(resource, 0) + amount


def _overbooked(nodes: NodeTable) -> Set[int]:
    """The rows where more of some resource is used than there is."""
    beyond = nodes.used > nodes.allocatable
    beyond[:, nodes.columns[PODS]] = False
    return frozenset(np.flatnonzero(beyond.any(axis=1)).tolist())


_NOTHING: Mapping[str, int] = {}


def _add(found: dict[str, int], amounts: Iterable[tuple[str, int]], sign: int) -> None:
    for resource, amount in amounts:
        if resource in found:
            found[resource] += sign * amount


def _has_ours(nodes: NodeTable, row: int, others: Mapping[str, int]) -> bool:
    """Whether more is used on a row than what pods of other programs use there."""
    return any(used > others.get(name, 0) for name, (used, _) in nodes.amounts(row).items() if name != PODS)


def _held_on(state: State, names: Set[str]) -> Iterator[tuple[str, Requests]]:
    """The requests of each slot on these nodes that its queue counts, with its node."""
    for job in state.jobs.values():
        if job.slots.done or names.isdisjoint(job.placements.values()):  # as those of most jobs
            continue
        for slot, node in job.placements.items():
            if node in names:
                yield node, requests_of(job, slot)


def _provided(nodes: NodeTable) -> Mapping[str, int]:
    """The resources that some present node has, with the amounts of the open ones."""
    rows, facts = nodes.by_name(), nodes.facts
    has = nodes.allocatable[rows]
    sums = has[np.array([facts[row].takes_pods for row in rows.tolist()], np.bool_)].sum(axis=0).tolist()
    columns = [(name, column) for name, column in nodes.columns.items() if name not in (NOWHERE, PODS)]
    return {name: sums[column] for name, column in columns if has[:, column].any()}


def _open(nodes: NodeTable) -> frozenset[str]:
    """The names of the open nodes."""
    names, facts = nodes.names, nodes.facts
    return frozenset([names[row] for row in nodes.by_name().tolist() if facts[row].takes_pods])
