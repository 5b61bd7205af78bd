"""Why a quorum that fits nowhere takes no room from jobs that run: for each of them the first thing that forbids it."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import msgspec

from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.queue import DEFAULT_SPEC, Preemption, PreemptionMode
from arranger.model.quota import LEFT_BY_JOBS, LimitKind, QuotaLack
from arranger.projections.cluster.nodes import PODS
from arranger.projections.derived.awaited_room import refused_by_dry_run, took_in_vain, untried
from arranger.projections.derived.queue_counts import queue_of, sum_by_group
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.placing.quotas import Quotas
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.queues.policies import seniority
from arranger.scheduling.queues.registry import BUILT_IN, Policies
from arranger.scheduling.queues.waiting import in_order, waiting_jobs
from arranger.scheduling.room.candidates import Candidates, ShareLine, least_runtime_ms
from arranger.scheduling.room.cycle_room import Room
from arranger.scheduling.room.guests import leaves_in_time, may_be_guest, with_reservation
from arranger.scheduling.search.placer import Placer

_BEGUN = (Stage.STARTING, Stage.RUNNING)
_ALLOWED = PreemptionMode.ALLOWED
#: So many of the jobs before one are placed before it.
_BEFORE = 50


class NoRoomKind(StrEnum):
    """What forbids it. About the quorum: room is taken back nowhere (OFF) or not for its queue (QUEUE_NEVER), it lacks
    a quota (QUOTA) or would fit no empty cluster (INFEASIBLE), it would fit but for room that is reserved for others
    (RESERVED), it fits once pods have left that leave anyway, or are about to finish (COMES), its queue has more than a
    limit allows, which those with nodes keep (OVER_LIMIT), or its job has nodes already (HAS_NODES).

    About jobs that run where its pods may run: they don't have a lower priority in its queue; a part of `preemption`
    forbids it for its queue: PRIORITY_NEVER and RECLAIM_NEVER to take whole jobs of its queue or anything of others,
    SURPLUS_NEVER to take what alone puts queues of others above their shares; they aren't preemptible,
    they haven't run for as long as their queue says (TOO_YOUNG) or, on nodes that they took, the configuration
    (JUST_TOOK); and of other queues: with the quorum, its own queue or one above it would be above its share, those
    aren't above theirs, they aren't reclaimable, or they don't exist or have a problem (UNUSABLE); of a queue with
    others below it, its own jobs would be above their part of its share (OWN_ABOVE_SHARE), or aren't above it
    (OWN_WITHIN_SHARE). AWAITED: the reservations of jobs before it wait for their end. RETURNING: jobs before it may
    take that as soon as their own pods have left. TOO_LITTLE: all that others may give isn't enough. NOBODY: no job
    with some of what it lacks runs there. IN_VAIN: the job took room and didn't start. REFUSED: the API server refused
    a pod of it in a dry run.
    """

    OFF = "Off"
    QUEUE_NEVER = "QueueNever"
    QUOTA = "Quota"
    INFEASIBLE = "Infeasible"
    RESERVED = "Reserved"
    COMES = "Comes"
    OVER_LIMIT = "OverLimit"
    HAS_NODES = "HasNodes"
    NOT_LOWER = "NotLower"
    PRIORITY_NEVER = "PriorityNever"
    RECLAIM_NEVER = "ReclaimNever"
    SURPLUS_NEVER = "SurplusNever"
    NOT_PREEMPTIBLE = "NotPreemptible"
    TOO_YOUNG = "TooYoung"
    JUST_TOOK = "JustTook"
    ABOVE_SHARE = "AboveShare"
    OWN_ABOVE_SHARE = "OwnAboveShare"
    WITHIN_SHARE = "WithinShare"
    OWN_WITHIN_SHARE = "OwnWithinShare"
    NOT_RECLAIMABLE = "NotReclaimable"
    UNUSABLE = "Unusable"
    AWAITED = "Awaited"
    RETURNING = "Returning"
    TOO_LITTLE = "TooLittle"
    NOBODY = "Nobody"
    IN_VAIN = "InVain"
    REFUSED = "Refused"


class NoRoom(msgspec.Struct, frozen=True):
    """One reason, with the UIDs of the jobs that it is about. `until_ms` is when the first of them has run for long
    enough, in milliseconds since 1970; 0 for other kinds. `above` is the queue that would be above its share, if that
    isn't the quorum's own but one above it, and `resources` are those of which it would be. `hosts` are the jobs (UIDs)
    whose reservations wait for the end of all of these, or that come back for room."""

    kind: NoRoomKind
    jobs: tuple[str, ...] = ()
    until_ms: int = 0
    above: str = ""
    resources: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Bars(NamedTuple):
    """What keeps room of others from a quorum and might be changed: the queues on its path that would be `above` their
    shares with it, each with what it would use of these resources, and the jobs (UIDs) that aren't preemptible."""

    above: Mapping[str, ByResource] = {}
    non_preemptible: tuple[str, ...] = ()


#: A job by UID, what forbids to take its room, and from when that is over, 0 if that isn't known.
_Kind = tuple[str, NoRoomKind, int]


def why_no_room(
    state: State,
    job: JobRecord,
    config: CycleConfig,
    time_ms: int,
    *,
    lacks: QuotaLack | None,
    infeasible: bool,
    reserved: bool = False,
    short: Collection[str] = (),
    policies: Policies = BUILT_IN,
) -> tuple[NoRoom, ...]:
    """Why others give no room to a quorum that a cycle doesn't place. `lacks` is what it lacks of a limit, None for
    nodes, and `short` are the resources that these lack: only jobs with some of them count, all if it is empty.
    `reserved`: it would fit but for room that is reserved for others. Nothing is found where a limit of a queue keeps
    the quorum from nodes, and no job that runs counts there."""
    waiting = waiting_jobs(state, time_ms, by_qos=config.qos_order)
    candidates = Candidates(state, config, policies, waiting, time_ms)
    rules = candidates.rules(queue_of(state, job))
    about_quorum: dict[NoRoomKind, Callable[[], bool]] = {
        NoRoomKind.HAS_NODES: lambda: bool(job.placements),
        NoRoomKind.INFEASIBLE: lambda: infeasible,
        NoRoomKind.QUOTA: lambda: not _gives_way(lacks),
        NoRoomKind.RESERVED: lambda: reserved,
        NoRoomKind.COMES: lambda: _comes(state, job, config, time_ms, policies),
        NoRoomKind.OVER_LIMIT: lambda: _over_limit(state, job, time_ms, lacks),
        NoRoomKind.OFF: lambda: _none_of(config.preemption),
        NoRoomKind.QUEUE_NEVER: lambda: _none_of(rules),
        NoRoomKind.REFUSED: lambda: config.dry_run and refused_by_dry_run(job),
        NoRoomKind.IN_VAIN: lambda: took_in_vain(job),
    }
    kind = next((kind for kind, holds in about_quorum.items() if holds()), None)
    if kind is not None or rules is None:
        return (NoRoom(kind or NoRoomKind.QUEUE_NEVER),)
    needs = quorum_needs(job, policies.pod_policy(job, config))
    asked = sum_by_group(job, pods_of(needs))
    there = _open_nodes(state, job, config, time_ms, policies) if lacks is None else None
    placer = Placer(state, config, policies, time_ms=time_ms)
    room = Room.of(state, placer, waiting)
    line, awaited = _line(candidates, room, job, asked), _awaited(state, job, room, config)
    found: dict[tuple[NoRoomKind, str, tuple[str, ...]], dict[str, int]] = {}
    find = partial(_kinds, state, job, config, rules, line, candidates=candidates, time_ms=time_ms)
    kinds = list(find(awaited=awaited, staying=room.preemption.staying(job)))
    kinds, returning = _left(state, job, room, _within(state, lacks, kinds))
    for uid, kind, until_ms in kinds:
        of = state.jobs[uid]
        if there is not None and (there.isdisjoint(of.placements.values()) or not _has_some(of, short)):
            continue
        hosts = _hosts(awaited, returning, uid, kind)
        found.setdefault((kind, _above(state, job, of, line, kind), hosts), {})[uid] = until_ms
    if not found and lacks is None:
        return (NoRoom(NoRoomKind.NOBODY),)
    return tuple(
        NoRoom(kind, tuple(jobs), min(jobs.values()), above, _above_of(line, queue_of(state, job), kind, above), hosts)
        for (kind, above, hosts), jobs in sorted(found.items(), key=lambda of: (_rank(of[0][0]), *of[0][1:]))
    )


def bars(state: State, job: JobRecord, config: CycleConfig, time_ms: int, *, policies: Policies = BUILT_IN) -> Bars:
    """As `why_no_room`, without any search: some of these may give no room even if that is changed."""
    candidates = Candidates(state, config, policies, waiting_jobs(state, time_ms, by_qos=config.qos_order), time_ms)
    rules = candidates.rules(queue_of(state, job))
    if rules is None or job.placements or not job.valid_spec.preempts or took_in_vain(job):
        return Bars()
    line = candidates.line(job, sum_by_group(job, pods_of(quorum_needs(job, policies.pod_policy(job, config)))), {})
    find = partial(_kinds, state, job, config, rules, line, candidates=candidates, time_ms=time_ms)
    kinds = list(find(awaited=(), staying=()))
    above = line.above if any(kind == NoRoomKind.ABOVE_SHARE for _, kind, _ in kinds) else {}
    return Bars(above, tuple(uid for uid, kind, _ in kinds if kind == NoRoomKind.NOT_PREEMPTIBLE))


def _within(state: State, lacks: QuotaLack | None, kinds: list[_Kind]) -> list[_Kind]:
    """Those of the jobs that matter to a quorum: beyond a limit of its queue, only jobs that use what it limits, until
    one of them may give room."""
    if lacks is None or lacks.limit not in (LimitKind.CAPABILITY, LimitKind.MAX_RUNNING):
        return kinds
    resources = () if lacks.limit == LimitKind.MAX_RUNNING else (lacks.resource,)
    below = {name for name, path in state.queue_tree.paths.items() if lacks.queue in path}
    using = {uid for uid, _, _ in kinds if _has_some(state.jobs[uid], resources)}
    counted = [of for of in kinds if of[0] in using and queue_of(state, state.jobs[of[0]]) in below]
    return kinds if any(kind == NoRoomKind.TOO_LITTLE for _, kind, _ in counted) else counted


def _left(state: State, job: JobRecord, room: Room, kinds: list[_Kind]) -> tuple[list[_Kind], tuple[str, ...]]:
    """The same, where what jobs might give but for that is left to others that come back for room, and these (UIDs)."""
    returning = tuple(other.uid for other in room.returning.before(job))
    if not returning:
        return kinds, ()
    found = list[_Kind]()
    for uid, kind, until_ms in kinds:
        is_left = kind == NoRoomKind.TOO_LITTLE and job.uid not in state.jobs[uid].slots.hosts
        found.append((uid, NoRoomKind.RETURNING if is_left else kind, until_ms))
    return found, returning


def _above(state: State, job: JobRecord, of: JobRecord, line: ShareLine, kind: NoRoomKind) -> str:
    """The queue above the job's own that would be above its share, if that is why another job gives it no room."""
    above = line.first_above(queue_of(state, of)) if kind == NoRoomKind.ABOVE_SHARE else ""
    return above if above != queue_of(state, job) else ""


def _hosts(
    awaited: Mapping[str, tuple[str, ...]], returning: tuple[str, ...], uid: str, kind: NoRoomKind
) -> tuple[str, ...]:
    """The jobs whose reservations wait for the end of another one, or to which its room is left, if that is why it
    gives none."""
    if kind == NoRoomKind.RETURNING:
        return returning
    return awaited[uid] if kind == NoRoomKind.AWAITED else ()


def _above_of(line: ShareLine, own: str, kind: NoRoomKind, above: str) -> tuple[str, ...]:
    return tuple(line.above.get(above or own, ())) if kind == NoRoomKind.ABOVE_SHARE else ()


def _has_some(job: JobRecord, resources: Collection[str]) -> bool:
    """Whether a pod of the job that has a node requests something of these resources; true of none."""
    groups = {group for group, _ in job.placements}
    asked = (of for group in groups for of in job.valid_spec.groups[group].shape.requests)
    return not resources or PODS in resources or any(name in resources for name, amount in asked if amount)


def _open_nodes(state: State, job: JobRecord, config: CycleConfig, time_ms: int, policies: Policies) -> frozenset[str]:
    """The nodes on which some pod of a job may run if there is room: only jobs there can give it any."""
    placer = Placer(state, config, policies, time_ms=time_ms)
    shapes = dict.fromkeys(group.shape for group in job.valid_spec.groups if group.count)
    masks = [placer.placing.filters.static(shape) for shape in shapes]
    return frozenset(name for row, name in enumerate(placer.view.names) if any(mask[row] for mask in masks))


def _comes(state: State, job: JobRecord, config: CycleConfig, time_ms: int, policies: Policies) -> bool:
    placer = Placer(state, config, policies, time_ms=time_ms)
    order = in_order(state, config, policies, time_ms=time_ms)
    before = list(takewhile(lambda of: of is not job, order))[:_BEFORE]
    room = Room.of(state, placer, order)
    guest = may_be_guest(job, config)

    def hold(of: JobRecord) -> None:
        in_time = guest and leaves_in_time(job, state.reservations[of.uid].decided.start_ms, time_ms)
        if not in_time and not room.preemption.comes_first(job, None, with_reservation(state, of.uid)):
            room.reservations.held.hold(of, state.reservations[of.uid].decided, ended=True)

    return room.preemption.comes_by_itself(job, before, hold)


def _line(candidates: Candidates, room: Room, job: JobRecord, asked: ByResource) -> ShareLine:
    """The line for a quorum that lacks room. Others are closed to it if its queue would be above its share with all
    that it has, unless there is too little room even without those that could bring it down."""
    if candidates.near_helps(job, asked, {}) and not room.preemption.fits_without_candidates(job, asked):
        return candidates.line_beyond(job, asked, {})
    return candidates.line(job, asked, {})


def _gives_way(lacks: QuotaLack | None) -> bool:
    """Whether jobs that run may leave more of what a quorum lacks."""
    return lacks is None or lacks.limit in LEFT_BY_JOBS


def _over_limit(state: State, job: JobRecord, time_ms: int, lacks: QuotaLack | None) -> bool:
    return lacks is not None and Quotas(state, time_ms).over(job)


def _none_of(rules: Preemption | None) -> bool:
    return rules is None or _ALLOWED not in (rules.surplus, rules.priority, rules.reclaim)


def _rank(kind: NoRoomKind) -> int:
    return list(NoRoomKind).index(kind) if kind not in (NoRoomKind.TOO_LITTLE, NoRoomKind.RETURNING) else -1


def _kinds(
    state: State,
    job: JobRecord,
    config: CycleConfig,
    rules: Preemption,
    line: ShareLine,
    *,
    candidates: Candidates,
    awaited: Container[str],
    staying: Container[str],
    time_ms: int,
) -> Iterator[_Kind]:
    """Each job that runs with what forbids to take its room, and from when that is over. One that may give its surplus
    alone is there twice: that isn't enough, and the rest is forbidden. Guests leave for the job whatever forbids it
    else, but those that needn't now (`staying`), or by its start, by the shares of the queues."""
    queue, own = queue_of(state, job), counted_priority(state, job)
    for of in filter(_has_nodes, state.jobs.values()):
        if of.uid == job.uid:
            continue
        if job.uid in of.slots.hosts and of.uid not in staying and not state.awaits_end(job.uid, of.uid):
            yield of.uid, NoRoomKind.TOO_LITTLE, 0
            continue
        of_queue = queue_of(state, of)
        if of_queue != queue:
            kinds = [_of_other(state, rules, line, of_queue)]
        elif counted_priority(state, of) < own:
            kinds = _of_lower(rules, of, candidates)
        else:
            kinds = [NoRoomKind.NOT_LOWER]
        for kind in kinds:
            if kind == NoRoomKind.TOO_LITTLE:
                yield (of.uid, *_kept_itself(state, of, config, awaited, time_ms))
            else:
                yield of.uid, kind, 0


def _kept_itself(
    state: State, of: JobRecord, config: CycleConfig, awaited: Container[str], time_ms: int
) -> tuple[NoRoomKind, int]:
    """What about a job forbids to take its room where no rule of queues does, and from when that is over."""
    if not of.valid_spec.preemptible:
        return NoRoomKind.NOT_PREEMPTIBLE, 0
    queue = queue_of(state, of)
    least_ms = 0 if of.awaits_room else least_runtime_ms(state, config, queue, of.slots.took)[1]
    until_ms = of.room_since_ms + least_ms
    if time_ms < until_ms:
        by_queue = state.queue_tree.specs.get(queue, DEFAULT_SPEC).min_runtime_s is not None
        return (NoRoomKind.TOO_YOUNG if by_queue else NoRoomKind.JUST_TOOK), until_ms
    return (NoRoomKind.AWAITED if of.uid in awaited else NoRoomKind.TOO_LITTLE), 0


def _has_nodes(job: JobRecord) -> bool:
    """Whether a job has begun on its nodes, or waits for others to leave them."""
    return bool(job.placements) and (job.stage in _BEGUN or job.awaits_room)


def _awaited(state: State, job: JobRecord, room: Room, config: CycleConfig) -> dict[str, tuple[str, ...]]:
    """The jobs for whose end reservations of others wait, each with these others (UIDs). Those of jobs after it in its
    queue don't count, nor those of jobs before which its quorum comes by the shares of their queues, also by what its
    victims would give; and where it may be a guest, only those whose time is known."""
    found, guest = dict[str, tuple[str, ...]](), may_be_guest(job, config)
    for uid, known in state.reservations.items():
        other = state.jobs[uid]
        after = queue_of(state, other) == queue_of(state, job) and seniority(job) < seniority(other)
        as_guest = guest and not known.decided.start_ms and not untried(other, config)
        if uid == job.uid or after or as_guest:
            continue
        reserved = with_reservation(state, uid)
        if room.preemption.comes_first(job, None, reserved) or room.preemption.comes_first_by_victims(job, reserved):
            continue
        for of in known.decided.awaits:
            found[of] = (*found.get(of, ()), uid)
    return found


def _of_lower(rules: Preemption, of: JobRecord, candidates: Candidates) -> list[NoRoomKind]:
    """For a job of lower priority in the same queue; TOO_LITTLE if nothing forbids to take some of its room."""
    if rules.priority == _ALLOWED:
        return [NoRoomKind.TOO_LITTLE]
    gives = rules.surplus == _ALLOWED and candidates.has_surplus(of)
    return [NoRoomKind.TOO_LITTLE] * gives + [NoRoomKind.PRIORITY_NEVER]


def _of_other(state: State, rules: Preemption, line: ShareLine, queue: str) -> NoRoomKind:
    """For a job of another queue; TOO_LITTLE if nothing forbids it."""
    if rules.reclaim != _ALLOWED:
        return NoRoomKind.RECLAIM_NEVER
    if queue not in state.queue_tree.paths:
        return NoRoomKind.UNUSABLE
    if line.may_reclaim(queue):
        by_surplus = rules.surplus != _ALLOWED and not line.may_reclaim_whole(queue)
        return NoRoomKind.SURPLUS_NEVER if by_surplus else NoRoomKind.TOO_LITTLE
    if line.own_above(queue):
        return NoRoomKind.ABOVE_SHARE if line.first_above(queue) else NoRoomKind.OWN_ABOVE_SHARE
    if line.spared_by_own(queue):
        return NoRoomKind.OWN_WITHIN_SHARE
    specs = state.queue_tree.specs
    closed = any(name in specs and not specs[name].reclaimable for name in state.queue_tree.paths.get(queue, ()))
    return NoRoomKind.NOT_RECLAIMABLE if closed else NoRoomKind.WITHIN_SHARE
