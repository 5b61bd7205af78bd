"""Queues at one point of the log: the tree, one queue in detail, and who holds what."""

from collections.abc import Mapping

import msgspec

from arranger.events.kinds import Watched
from arranger.messages.queues import state_text
from arranger.model.config import CycleConfig
from arranger.model.pod import gpus_of
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import known_priority, own_priority, submitter_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.reading.describe import label, message_of
from arranger.replay.reading.queue_fields import other_fields
from arranger.scheduling import (
    BUILT_IN,
    HolderKind,
    HolderView,
    Policies,
    QueueView,
    holders,
    positions,
    queues_view,
    recorded_order,
)

#: Resource → amount, units as in `PodShape`.
Sums = dict[str, int]

#: In place of a resource's name: the GPUs of all vendors.
GPUS = "gpus"


class QueueLine(msgspec.Struct, frozen=True):
    """One queue. `state` is Open, Closed or Unusable, and `message` says why it isn't open, or what else is wrong.
    Without an object, as `default` by default, it is not `created`. Amounts and counts of jobs include the queues below
    it; `own_waiting` and `own_running` don't. `usage` is empty without a half-life. `fields` are the other fields that
    differ from their defaults, by name and in words."""

    name: str
    parent: str
    depth: int
    created: bool
    state: str
    message: str
    weight: int
    used: Sums
    share: Sums
    demand: Sums
    guarantee: Sums
    deserved: Sums
    capability: Sums
    waiting: int
    running: int
    own_waiting: int
    own_running: int
    usage: Sums
    fields: dict[str, str] = {}


class QueueList(msgspec.Struct, frozen=True):
    """All queues, each after its parent; `total` is what the nodes offer to jobs. `refused` is the HTTP status with
    which the API server refuses to list queues, 0 if it doesn't. `leaving` is what pods use that fill no slot of their
    job any more and leave: no queue has it in `used`. `others` is what pods of other programs hold, beside `total`."""

    offset: int
    epoch: int
    time_ms: int
    total: Sums
    queues: tuple[QueueLine, ...]
    refused: int = 0
    leaving: Sums = {}
    others: Sums = {}


class WaitingJob(msgspec.Struct, frozen=True):
    """A job without nodes. `position` is among those of its queue that may get nodes now, from 1; 0 if it may not.
    `priority` is the one that counts in its queue, and `own_priority` that of the job."""

    position: int
    job: str
    queue: str
    submitter: str
    priority: int | None
    own_priority: int | None
    message: str


class QueueDetail(msgspec.Struct, frozen=True):
    """One queue: what it has, who holds it, the largest holders of GPUs first, and which jobs wait, in their order;
    all with the queues below it. `total` and `others` are as in `QueueList`."""

    offset: int
    epoch: int
    time_ms: int
    total: Sums
    queue: QueueLine
    below: tuple[QueueLine, ...]
    holders: tuple[HolderView, ...]
    waiting: tuple[WaitingJob, ...]
    others: Sums = {}


class QueueHoldings(msgspec.Struct, frozen=True):
    """Who holds what, the largest holders of the `resource` first. A holder without a name is all pods that fill no
    slot of a job. `total` has what pods of other programs hold too, as the holders do."""

    offset: int
    epoch: int
    time_ms: int
    by: HolderKind
    resource: str
    total: Sums
    holders: tuple[HolderView, ...]


def queue_list(state: State) -> QueueList:
    view = queues_view(state)
    lines = tuple(_line(of) for of in view.queues.values())
    refused = state.unwatched.get(Watched.QUEUE, 0)
    leaving = next((of.amounts for of in holders(state, HolderKind.QUEUE) if of.leaving), {})
    return QueueList(state.offset, state.epoch, state.time_ms, view.total, lines, refused, leaving, _others(state))


def queue_detail(state: State, name: str, config: CycleConfig, policies: Policies = BUILT_IN) -> QueueDetail | None:
    """None if there is no such queue, and no job names it. `config` has the settings of the last cycle."""
    view = queues_view(state)
    queue = view.queues.get(name)
    if queue is None:
        return None
    below, others = tuple(_line(of) for of in view.queues.values() if name in of.path[1:]), _others(state)
    found = largest_first(holders(state, HolderKind.JOB, within=name), default_resource(view.total, others))
    waiting = tuple(_waiting(state, {name, *(of.name for of in below)}, recorded_order(state, config, policies)))
    return QueueDetail(
        state.offset, state.epoch, state.time_ms, view.total, _line(queue), below, found, waiting, others
    )


def holdings(state: State, by: HolderKind, resource: str = "") -> QueueHoldings:
    """`resource` is a name or `GPUS`; if empty, the GPUs of a cluster that has any, else the cpu."""
    view, others = queues_view(state), _others(state)
    resource = resource or default_resource(view.total, others)
    found = largest_first(holders(state, by), resource)
    total = {name: view.total.get(name, 0) + others.get(name, 0) for name in {**view.total, **others}}
    return QueueHoldings(state.offset, state.epoch, state.time_ms, by, resource, total, found)


def default_resource(total: Mapping[str, int], others: Mapping[str, int]) -> str:
    """The resource that people ask for first: the GPUs of a cluster that has any, else the cpu. Those that pods of
    other programs hold (`others`) are not in the `total` for jobs, and are there."""
    return GPUS if gpus_of(total.items()) or gpus_of(others.items()) else "cpu"


def _others(state: State) -> Sums:
    """What pods of other programs hold."""
    return dict(state.queue_use.others_total)


def amount_of(amounts: Mapping[str, int], resource: str) -> int:
    """The amount of a resource, or the GPUs of all vendors."""
    return gpus_of(amounts.items()) if resource == GPUS else amounts.get(resource, 0)


def largest_first(found: list[HolderView], resource: str) -> tuple[HolderView, ...]:
    """Holders by the amount of a resource; the one without a name comes last."""
    return tuple(sorted(found, key=lambda of: (not of.name, -amount_of(of.amounts, resource), of.name)))


def _line(view: QueueView) -> QueueLine:
    spec = view.spec
    return QueueLine(
        name=view.name,
        parent=spec.parent if spec is not None else "",
        depth=view.depth,
        created=view.created,
        state=view.state,
        message=state_text(view.name, view.problem, closed=view.closed, exists=view.exists),
        weight=spec.weight if spec is not None else 0,
        used=view.used,
        share=view.share,
        demand=view.demand,
        guarantee=dict(spec.guarantee) if spec is not None else {},
        deserved=dict(spec.deserved) if spec is not None else {},
        capability=dict(spec.capability) if spec is not None else {},
        waiting=view.waiting,
        running=view.running,
        own_waiting=view.own_waiting,
        own_running=view.own_running,
        usage=view.usage,
        fields=other_fields(spec) if spec is not None else {},
    )


def _waiting(state: State, queues: set[str], order: list[JobRecord]) -> list[WaitingJob]:
    """The waiting jobs of these queues: those that may get nodes in the order of all jobs, then the others by name."""
    place = positions(state, order)
    ahead = {job.uid: number for number, job in enumerate(order)}
    jobs = [job for job in state.jobs.values() if _waits(job) and queue_of(state, job) in queues]
    jobs.sort(key=lambda job: (ahead.get(job.uid, len(ahead)), job.seen.namespace, job.seen.name, job.uid))
    return [
        WaitingJob(
            position=place[job.uid][1] if job.uid in place else 0,
            job=label(job),
            queue=queue_of(state, job),
            submitter=submitter_of(job),
            priority=known_priority(state, job),
            own_priority=own_priority(job),
            message=message_of(state, job),
        )
        for job in jobs
    ]


def _waits(job: JobRecord) -> bool:
    return job.active and not job.stands_still and not job.placements
