"""Jobs that have nodes which other pods are still to leave, and the room that they wait for."""

from collections.abc import Mapping

from arranger.events.kinds import Preempted
from arranger.projections.jobs import JobRecord, requests_of
from arranger.projections.nodes import Amounts, Requests
from arranger.projections.state import State


def await_room(state: State, job: JobRecord, event: Preempted | None) -> None:
    """Record by which decision others are still to leave the job's nodes; None if that is over."""
    job.slots.room = event
    if event is not None:
        state.awaiting[job.uid] = None
    else:
        state.awaiting.pop(job.uid, None)


def awaited_on(state: State, node: str) -> Mapping[str, Amounts]:
    """The room on a node that jobs got from others, which are still to leave it, by node. It is no reason to take room
    from the pods that stay."""
    found: dict[str, Amounts] = {}
    for uid in state.awaiting:
        job = state.jobs[uid]
        for slot, at in job.placements.items():
            if at == node:
                amounts = state.nodes.vector(requests_of(job, slot))
                found[node] = found[node] + amounts if node in found else amounts
    return found


def overbooked(state: State, node: str, requests: Requests) -> bool:
    """Whether a node has more in use than it can give of what these requests name, which are counted already. Room that
    jobs still wait for there is not in use: it is for pods that come only once others have left."""
    return state.nodes.overbooked(node, requests, awaited_on(state, node).get(node, 0) if state.awaiting else 0)
