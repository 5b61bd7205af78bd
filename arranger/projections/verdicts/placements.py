"""Whether a decided placement is valid at its own offset, by the rules that its cycle names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from arranger.events.kinds import Placed
from arranger.model.config import CycleConfig
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.cluster.openness import closed_to_new
from arranger.projections.derived.queue_membership import against_its_queue
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.devices import without_devices
from arranger.projections.queues.use import NOTHING_FREED, Use
from arranger.projections.state import State
from arranger.projections.verdicts.judging import Need, lacking, misplaced, need_of, sharing_no_domain, too_early


class Freed(NamedTuple):
    """Room that counts as free: by node, and what the own jobs of queues will not use any more."""

    nodes: Mapping[str, Amounts]
    queues: Use


NOTHING = Freed(MappingProxyType({}), NOTHING_FREED)


def judged(
    state: State,
    job: JobRecord,
    event: Placed,
    desired: dict[SlotKey, str],
    *,
    config: CycleConfig,
    time_ms: int,
    freed: Freed = NOTHING,
) -> tuple[str, Need | None]:
    """Why a placement of these slots is invalid at this time (empty if it isn't), and the room that it asks for, once
    known."""
    nodes, need = state.nodes, None
    refused = too_early(job) or misplaced(job, desired, config)
    if not refused and desired:
        need = need_of(nodes, job, desired)
        refused = lacking(nodes, job, desired, need, freed.nodes)
    if not refused:
        refused = closed_to_new(nodes, job.valid_spec, event.pods)
    if not refused:
        refused = sharing_no_domain(nodes, job, desired)
    if not refused and (state.with_devices or not job.of_pods):
        refused = without_devices(state, job, event, desired, time_ms)
    return refused or against_its_queue(state, job, desired, freed.queues), need
