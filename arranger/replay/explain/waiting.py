"""Explain why a job waits, from a cycle that is taken at the point of the explanation."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import ShortageFacts
from arranger.messages.provisioning import request_text
from arranger.messages.shortages import (
    beside_limit_text,
    beside_text,
    counted_of,
    domains_text,
    fits_text,
    never_text,
    no_guest_text,
    nodes_text,
    objection_text,
    quota_text,
    set_text,
)
from arranger.model.config import CycleConfig
from arranger.model.reasons import ReasonKind
from arranger.model.text import counted
from arranger.projections.folding.giving_up import gives_up_ms, infeasible_since_ms
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import State
from arranger.replay.explain.ahead import Ahead, QueueKeys, jobs_ahead
from arranger.replay.explain.candidate_changes.case import LEAVING, Lack, WaitingCase
from arranger.replay.explain.holders import CapacityHolder, Taker, who_has_it
from arranger.replay.explain.in_queue import InQueue, KeptBy, Passed, in_queue, once_each, placed_since
from arranger.replay.explain.outside_queue import never_fits, position_of, why_not, without_try
from arranger.replay.explain.remedies import Blocker, Remedy, Sought, blockers, remedies
from arranger.replay.explain.shortfall import Added, Shortfall, ShortfallObserver, added_to
from arranger.replay.explain.story import Story
from arranger.replay.explain.taken_room import KeptFor, TakesNone, kept_for_others, limit_kept_for, takes_none
from arranger.replay.reading.describe import placed_in, room_from
from arranger.scheduling import BUILT_IN, Policies, in_order, policy_of, take_cycle


class Waiting(msgspec.Struct, frozen=True):
    """Why a job, or a part of it, has no nodes yet. `position` in the queue counts from 1; 0 if the job isn't in the
    queue, and then `why` gives the reason. From `infeasible_since_ms` not even an empty cluster of these nodes has room
    for the quorum, and the first cycle from `fails_at_ms` gives the job up; both are 0 for a feasible job. `gets` is
    the number of pods that a cycle would place now. `blockers` are events since the job's creation without which it
    would have more nodes, newest first; `earlier` are those before. `remedies` are the changes that help among `tried`
    ones; there are `untried` more of the same kinds. `in_queue` is its standing in its queue, and `passed_by` are the
    other jobs that got nodes since it waits, newest first, each once; none for a job that isn't in the queue."""

    why: str
    position: int
    queue_length: int
    queue_policy: str
    priority: int
    created_ms: int
    ahead: tuple[Ahead, ...]
    shortfall: Shortfall | None
    takers: tuple[Taker, ...]
    holders: tuple[CapacityHolder, ...]
    infeasible_since_ms: int
    fails_at_ms: int
    blockers: tuple[Blocker, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    tried: int = 0
    earlier: tuple[Blocker, ...] = ()
    gets: int = 0
    untried: int = 0
    in_queue: InQueue | None = None
    passed_by: tuple[Passed, ...] = ()
    #: The jobs that would give it room in a cycle now, in words.
    room_from: tuple[str, ...] = ()
    #: Reservations of other jobs, if room that is kept is in its way, or the jobs for which a limit is kept.
    reserved: tuple[KeptFor, ...] = ()
    #: Why a cycle takes no room from others for it.
    takes_none: tuple[TakesNone, ...] = ()
    #: What became of its request for nodes, in words; empty without one.
    request: str = ""
    #: What admission adds to the requests of the pod that finds no node.
    added: tuple[Added, ...] = ()
    #: Of a job that isn't in the queue: why not even an empty cluster of these nodes will hold it once it is; None if
    #: one might, or if cycles have said so before.
    never_fits: ShortageFacts | None = None

    @property
    def lacks_event(self) -> bool:
        """Whether no event was found that keeps it waiting, and one that wasn't read may: a decision that gave others
        the room, or a change of a node."""
        unread = bool(self.holders) or any(one.opens_since_before for one in self.remedies)
        return unread and not (self.blockers or self.earlier)


class Helped(msgspec.Struct, frozen=True):
    """The changes that would have given a failed job nodes while it waited, of those that were `tried` at `offset`."""

    offset: int
    remedies: tuple[Remedy, ...]
    tried: int


def explain_waiting(
    story: Story, job: JobRecord, policies: Policies = BUILT_IN, *, node: str = "", recorded: State | None = None
) -> Waiting | None:
    """Why this job waits at the end of the story, by a cycle as recorded last; None if it needs no more nodes.

    Where the story ends with a recorded cycle, `recorded` is the state that it was taken on, at its time. The changes
    that help are then those with which that cycle gives the job nodes: what-if repeats the same one."""
    state, spec = story.state.as_of(story.state.time_ms), job.spec
    if spec is None or job.ended or len(job.placements) >= job.pods_desired():
        return None
    policies, config = policies.nearest(story.around.config)
    waiting = in_order(state, config, policies)
    position = position_of(state, waiting, job)
    observer = ShortfallObserver(job.uid, node)
    given, givers = _given(state, config, policies, observer) if position else ({}, ())
    shortfall, gets = observer.shortfall, given.get(job.uid, 0)
    before, counted_job = tuple(waiting[: max(position - 1, 0)]), waiting[position - 1] if position else job
    untried = tuple(observer.untried) if position else None
    case = WaitingCase(
        story, state, job, config, policies, _lack(observer), before, untried, given=given if position else None
    )
    if recorded is not None:
        sought = _sought_then(case, recorded)
    else:
        sought = remedies(case) if state.synced and (shortfall is not None or not position) else Sought()
    takers, holders = who_has_it(story, shortfall)
    since, earlier = blockers(case, sought.found)
    placed = placed_since(story, job)
    found = Waiting(
        why=_taken_text(gets, givers) if givers else _why(state, job, position, shortfall, gets),
        position=position,
        queue_length=len(waiting),
        queue_policy=policy_of(state, job, config, policies),
        priority=counted_job.valid_spec.priority,
        created_ms=job.seen.created_ms,
        ahead=jobs_ahead(before, counted_job, given, QueueKeys(state, waiting, config, policies)),
        shortfall=shortfall,
        takers=takers,
        holders=holders,
        infeasible_since_ms=infeasible_since_ms(job),
        fails_at_ms=gives_up_ms(state, job, config) or 0,
        blockers=since,
        remedies=sought.found,
        tried=sought.tried,
        earlier=earlier,
        gets=gets,
        untried=sought.untried,
        in_queue=in_queue(case, waiting, shortfall, _no_room(shortfall, placed, since, sought.found)),
        passed_by=once_each(placed),
    )
    return _with_room(found, case, givers)


def _sought_then(case: WaitingCase, state: State) -> Sought:
    """The changes with which a recorded cycle would give the job nodes. `state` is what it was taken on."""
    job, observer = state.jobs.get(case.job.uid), ShortfallObserver(case.job.uid)
    if job is None or job.spec is None or not state.synced:
        return Sought()
    waiting = in_order(state, case.config, case.policies)
    position, untried, given = position_of(state, waiting, job), None, None
    if position:
        given, _ = _given(state, case.config, case.policies, observer)
        if observer.shortfall is None:
            return Sought()
        untried = tuple(observer.untried)
    before, lack = tuple(waiting[: max(position - 1, 0)]), _lack(observer)
    still = frozenset(other.uid for other in case.ahead)
    then = replace(case, state=state, job=job, ahead=before, lack=lack, untried=untried, given=given)
    return remedies(replace(then, still_ahead=still, after=case.state))


def _with_room(found: Waiting, case: WaitingCase, givers: tuple[str, ...]) -> Waiting:
    """With those who would give room to the job, who passed it in the queue, the room that is kept from it, and why it
    takes none."""
    short, uid = found.shortfall, case.job.uid
    return msgspec.structs.replace(
        found,
        room_from=givers,
        passed_by=found.passed_by if found.position else (),  # who isn't in the queue is passed by nobody
        request=request_text(case.state, case.job),
        added=added_to(case.state, case.job, short) if short is not None else (),
        reserved=_reserved(case.state, uid, short) if short is not None else (),
        takes_none=_takes_none(case, found) if found.position and not found.gets else (),
        never_fits=never_fits(case) if not (found.position or found.infeasible_since_ms) else None,
    )


def _reserved(state: State, uid: str, short: Shortfall) -> tuple[KeptFor, ...]:
    if short.quota is not None:
        return limit_kept_for(state, short.kept_by)
    return kept_for_others(state, uid, short.kept_by) if _meets_reserved(short) else ()


def _no_room(
    short: Shortfall | None, placed: Sequence[Passed], since: Sequence[Blocker], found: Sequence[Remedy]
) -> KeptBy:
    """Why no nodes have enough for the job: they never could, or pods that leave still hold the room, or one of the
    decisions that keep the job waiting gave nodes to a job behind it."""
    if short is not None and short.infeasible:
        return KeptBy.INFEASIBLE
    if any(one.kind == LEAVING for one in found):
        return KeptBy.LEAVING
    behind = {one.offset for one in placed if one.behind}
    return KeptBy.ROOM if behind.isdisjoint(one.offset for one in since) else KeptBy.OVERTAKEN


def _meets_reserved(shortfall: Shortfall) -> bool:
    """Whether room that is kept for another job is in the way."""
    return any(of.kind == ReasonKind.RESERVED for of, _ in shortfall.reasons)


def _takes_none(case: WaitingCase, found: Waiting) -> tuple[TakesNone, ...]:
    """Why a cycle takes no room for the job; empty if it lacks nothing, or cycles take none."""
    shortfall = found.shortfall
    if shortfall is None or shortfall.objection is not None:
        return ()
    if case.config.preemption is None or case.job.placements:
        return ()
    reserved = found.in_queue is not None and found.in_queue.kept_by == KeptBy.RESERVED
    lacks = (shortfall.quota, shortfall.resources, bool(infeasible_since_ms(case.job)), reserved)
    return takes_none(case.state, case.job, case.config, case.policies, lacks)


def _given(
    state: State, config: CycleConfig, policies: Policies, observer: ShortfallObserver
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Job UID → how many of its pods a cycle would place now; and the jobs that would give room to the observed one."""
    events = take_cycle(state, config, state.time_ms, observer, policies=policies)
    given = {placed.job_uid: len(expand(placed.pods)) for placed in map(placed_in, events) if placed is not None}
    taken = (of for of in events if isinstance(of, k.Preempted) and of.placed.job_uid == observer.uid)
    return given, next((room_from(of, state) for of in taken), ())


def _lack(observer: ShortfallObserver) -> Lack | None:
    """What the job lacks beside the present pods; if it is infeasible, with what it lacks without them."""
    final, now = observer.shortfall, observer.now
    if now is None:
        return None
    return Lack(
        now.group_number,
        now.resources,
        frozenset(now.candidates),
        _lacks(now),
        now.asked - now.found,
        now.quota,
        now.topology,
        now.objection,
        _lacks(final) if final is not None and final.infeasible else (),
    )


def _lacks(shortfall: Shortfall) -> tuple[tuple[str, int, int], ...]:
    """What the closest node lacks, if nothing else rules it out."""
    closest = shortfall.closest
    return closest.lacks if closest is not None and closest.node in shortfall.candidates else ()


def _taken_text(gets: int, givers: tuple[str, ...]) -> str:
    """In words, that a cycle would take room for the job."""
    return f"the next scheduling cycle takes room for it ({counted(gets, 'pod')}) from {'; '.join(givers)}"


def _why(state: State, job: JobRecord, position: int, shortfall: Shortfall | None, gets: int) -> str:
    if shortfall is not None:
        alone, own = shortfall.topology is not None, gets or shortfall.found
        others, further = shortfall.others, shortfall.further
        shape = job.valid_spec.groups[shortfall.group_number].shape
        name = set_text(job, shortfall.group)
        lack = nodes_text(name, shortfall.reasons, alone=alone, shape=shape)
        if shortfall.objection is not None:
            lack = objection_text(shortfall.objection)
        elif shortfall.topology is not None:
            lack = domains_text(shortfall.topology, name, lack, own=own, others=others, further=further or bool(gets))
        elif shortfall.quota is not None:
            lack = beside_text(own, others) + quota_text(shortfall.quota, kept=bool(shortfall.kept_by))
            lack += _beside_limit(job, shortfall)
        else:
            lack = beside_text(own, others) + lack
        of = counted_of(name, shortfall.quota)
        head = fits_text(shortfall.found, shortfall.asked, further=further, of=of, searched=shortfall.searched)
        head = f"{never_text(infeasible=shortfall.infeasible)}{head}"
        tail = no_guest_text(no_guest=shortfall.no_guest, leaves_late=shortfall.leaves_late)
        return f"{_room(job, gets) if gets else head}; {lack}{tail}"
    if not state.synced:
        return "not everything has been listed in this epoch yet, so there are no decisions"
    if position:
        return _room(job, gets) if gets else without_try(state, job)
    return why_not(state, job)


def _beside_limit(job: JobRecord, shortfall: Shortfall) -> str:
    """Why the nodes have too little as well, in words."""
    nodes = shortfall.beside_limit
    if nodes is None:
        return ""
    shape = next(of.shape for of in job.valid_spec.groups if of.name == nodes.group)
    return beside_limit_text(msgspec.structs.replace(nodes, group=set_text(job, nodes.group)), shape)


def _room(job: JobRecord, gets: int) -> str:
    """In words, that a cycle would place the job now, with the number of pods."""
    lacks = job.pods_desired() - len(job.placements)
    what = ("the rest of it" if job.placements else "it") + f" ({counted(gets, 'pod')})"
    if gets < lacks:
        what = f"{gets} of the {lacks} pods that have no node" if job.placements else f"{gets} of its {lacks} pods"
    return f"there is room for it now: the next scheduling cycle places {what}"
