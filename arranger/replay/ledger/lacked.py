"""Which resources a job lacks that waits for room: who holds any of these is asked, and nobody else."""

from arranger.events.facts import BeyondLimit, LackOfNodes, nodes_lack
from arranger.model.accelerators import is_accelerator
from arranger.model.pod import PodShape
from arranger.model.quota import LimitKind
from arranger.model.reasons import ReasonCounts, ReasonKind
from arranger.projections.cluster.nodes import PODS
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.full_nodes import shape_of, too_small
from arranger.replay.ledger.holdings import GPUS


def next_shape(job: JobRecord) -> PodShape | None:
    """The shape of the pod for which the last cycle found no node."""
    nodes = _nodes(job)
    return shape_of(job, nodes.group) if nodes is not None else None


def lacked(state: State, job: JobRecord, *, of_gpus: bool) -> tuple[str, ...]:
    """What the job lacks, as the last cycle said: first what most nodes lack that are large enough, and of equals
    accelerators. If nodes refuse it only for other reasons (a rack with too few of them), all that is held is in its
    way: GPUs, if it waits with any, else cpu, else pods."""
    short, nodes, shape = job.waits.shortage if job.waits is not None else None, _nodes(job), next_shape(job)
    found = list[str]()
    if isinstance(short, BeyondLimit) and short.quota.limit == LimitKind.MIN_RESOURCES:
        found.append(short.quota.resource)
    if nodes is not None and shape is not None:
        found += _of_nodes(state, shape, nodes.reasons)
    return tuple(dict.fromkeys(found)) or ((GPUS,) if of_gpus else ()) + ("cpu", PODS)


def _of_nodes(state: State, shape: PodShape, reasons: ReasonCounts) -> list[str]:
    """The resources that nodes lack, without those that only nodes lack that have too little of it when empty, unless
    there are no others."""
    counts = {of.name: nodes for of, nodes in reasons if of.kind == ReasonKind.INSUFFICIENT and not of.absent}
    if len(counts) > 1:
        left = {name: nodes - too_small(state.nodes, shape, name) for name, nodes in counts.items()}
        counts = {name: nodes for name, nodes in left.items() if nodes > 0} or counts
    return sorted(counts, key=lambda name: (-counts[name], not is_accelerator(name), name))


def _nodes(job: JobRecord) -> LackOfNodes | None:
    return nodes_lack(job.waits.shortage) if job.waits is not None and job.spec is not None else None
