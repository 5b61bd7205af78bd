"""Take devices from resource claims after hypothetical events, of which no controller of Kubernetes knows."""

from collections.abc import Iterator, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.events.devices import ResourceClaimSeen
from arranger.model.pod import TERMINAL
from arranger.projections.state import State


def freed(state: State, events: Sequence[k.Event]) -> Iterator[ResourceClaimSeen]:
    """The claims without their devices from which the last pods go with these events, or whose TYJob goes."""
    table, term = state.devices, state.terms.get(k.Watched.RESOURCE_CLAIM, 0)
    pods = {event.uid for event in events if k.is_gone(event, k.Watched.POD)}
    pods |= {event.uid for event in events if isinstance(event, k.PodSeen) and event.phase in TERMINAL}
    jobs = {event.uid for event in events if k.is_gone(event, k.Watched.JOB)}
    for _, claim in sorted(table.claims.items()) if table.holders and (pods or jobs) else ():
        facts, owner = claim.facts, claim.facts.owner
        unused = pods.issuperset(facts.reserved) if facts.reserved else owner is not None and owner.job_uid in jobs
        if facts.allocation is not None and unused:
            without = msgspec.structs.replace(facts, allocation=None, reserved=())
            yield msgspec.structs.replace(claim, term=term, facts=without)
