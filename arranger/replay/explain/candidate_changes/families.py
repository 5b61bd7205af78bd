"""The families of changes that are tried for a waiting job, ordered by their cost for the job's user."""

from collections.abc import Iterator
from dataclasses import replace

from arranger.projections.derived.queue_membership import kept_out
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Family, join_all
from arranger.replay.explain.candidate_changes.job import (
    as_guest,
    as_preemptible,
    looser_topologies,
    meant_labels,
    own_edits,
    raised_quotas,
    shorter_runs,
    without_selectors,
)
from arranger.replay.explain.candidate_changes.late_pods import once_lapsed
from arranger.replay.explain.candidate_changes.nodes import more_nodes, node_families, refusals
from arranger.replay.explain.candidate_changes.occupants import (
    capacity,
    departed,
    leaving,
    other_pods,
    preemptible,
    users_of_quota,
)
from arranger.replay.explain.candidate_changes.other_queues import other_queues
from arranger.replay.explain.candidate_changes.queue import (
    ahead,
    configurations,
    edits_ahead,
    more_reservations,
    out_of_queue,
    priorities,
)
from arranger.replay.explain.candidate_changes.queue_objects import (
    borrowing,
    less_usage,
    lowered_guarantees,
    more_considered,
    raised_for_others_too,
    raised_queues,
    reverted,
    usable,
)
from arranger.replay.explain.candidate_changes.quorum import smaller_quorums
from arranger.replay.explain.candidate_changes.requests import smaller_requests
from arranger.replay.explain.candidate_changes.shares import deserving, heavier, way_of
from arranger.replay.explain.candidate_changes.taking import allowed, reclaimable
from arranger.replay.explain.candidate_changes.unknown_resources import respelt
from arranger.scheduling import Bars, bars


def families(case: WaitingCase) -> Iterator[Family]:
    """All families in the order of the attempts: the cheapest for the job's user first."""
    if case.lack is None:
        yield Family([*out_of_queue(case), *usable(case)])
        if kept_out(case.state, case.job) is not None:
            yield Family(list(other_queues(case)))
        return
    if case.lack.objection is not None:
        return  # what would change a plugin's mind, only the plugin knows
    if case.lack.quota is not None:
        yield from _beyond_quota(case)
        return
    misspelt = bool(respelt(case)[1])
    if misspelt:
        yield _nodes(case)
    yield Family(list(meant_labels(case)))
    yield Family(list(refusals(case)), least=True)
    yield Family(list(shorter_runs(case)), least=True)
    yield Family(list(as_guest(case)))
    yield Family(list(leaving(case)))
    yield Family(list(once_lapsed(case)), least=True)
    yield from node_families(case)
    yield Family(list(own_edits(case)))
    yield Family(reverted(case))
    yield Family(list(edits_ahead(case)))
    yield Family(list(configurations(case)))
    yield Family(more_reservations(case), reserves=True)
    yield Family(list(other_queues(case)))
    yield Family(list(other_pods(case)), join_all("pod", "when these are gone: "))
    yield Family(list(departed(case)))
    yield Family(capacity(case), join_all("capacity", "when these end: "))
    yield from _by_rules(case)
    yield from smaller_quorums(case)
    yield Family(list(without_selectors(case)))
    yield looser_topologies(case)
    yield smaller_requests(case)
    if not misspelt:
        yield _nodes(case)


def _nodes(case: WaitingCase) -> Family:
    """One node more, or as many as pods have none, may help where more of them would all go to a job ahead."""
    assert case.lack is not None
    return Family(more_nodes(case), least=True, early=tuple(sorted({0, case.lack.missing - 1})))


def _beyond_quota(case: WaitingCase) -> Iterator[Family]:
    """Where a quota or a queue is short, nodes don't help: raise its limit, free some of it, or request less."""
    yield Family(list(as_preemptible(case)) or list(as_guest(case)))
    yield Family(list(once_lapsed(case)), least=True)
    yield Family(list(raised_quotas(case)))
    yield replace(raised_queues(case), otherwise=lambda: raised_for_others_too(case))
    yield Family(list(borrowing(case)))
    yield Family(more_considered(case), least=True)
    yield lowered_guarantees(case)
    yield Family(list(own_edits(case)))
    yield Family(reverted(case))
    yield Family(list(edits_ahead(case)))
    yield Family(list(other_queues(case)))
    yield Family(list(users_of_quota(case)), join_all("capacity", "when these end: "))
    yield from _by_rules(case)
    yield from smaller_quorums(case)
    yield smaller_requests(case)


def _by_rules(case: WaitingCase) -> Iterator[Family]:
    """Let others give room to the job, or let it have its turn before them."""
    kept = bars(case.state, case.job, case.config, case.state.time_ms, policies=case.policies)
    yield Family(list(preemptible(case, kept.non_preemptible)), join_all("occupant", "preemptible true of "))
    yield Family(list(allowed(case)))
    yield Family(list(reclaimable(case)), join_all("queue", "reclaimable true of queues "))
    yield from _in_turn(case, kept)


def _in_turn(case: WaitingCase, kept: Bars) -> Iterator[Family]:
    """Let the job have its turn before others: by priority, without them, or by the weights, the shares and the use of
    queues."""
    yield Family(priorities(case), least=True)
    yield Family(ahead(case))
    for name in way_of(case, kept.above):
        yield heavier(case, name)
    yield deserving(case, kept.above)
    yield Family(less_usage(case), least=True)
