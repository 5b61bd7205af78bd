"""One scheduling cycle: (projection, configuration, time) → the decisions, as events.

The cycle is a pure function: equal inputs give equal events, byte for byte, and `arranger verify` relies on that. It
only reads the state; its placements exist in its own view.
"""

import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from arranger.events.facts import BeyondLimit, LackOfNodes, Objected, ShortageFacts
from arranger.events.kinds import CycleTaken, Event, Placed, Waits, Watched
from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState
from arranger.projections.folding.giving_up import gives_up_ms
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.filters.refusals import next_end_ms
from arranger.scheduling.placing.kept import KeptRankings
from arranger.scheduling.placing.placement_try import CycleObserver, Piece, PlacementTry, Shortage, lack_of_nodes
from arranger.scheduling.queues import waiting as queue
from arranger.scheduling.queues.policies import Turn
from arranger.scheduling.queues.registry import BUILT_IN, Policies
from arranger.scheduling.queues.standing import QueueTurns
from arranger.scheduling.room.cycle_room import Room
from arranger.scheduling.room.infeasible_jobs import InfeasibleJobs
from arranger.scheduling.room.short_jobs import ShortJobs
from arranger.scheduling.room.too_large import TooLarge
from arranger.scheduling.search.placer import Placer

#: The groups of a job whose quorum can't have pods of other sets than it asks for: a leader and a worker set.
_OF_ONE_SET = 2
#: Name and version of every built-in policy and filter.
VERSIONS = BUILT_IN.versions()


class Plan(msgspec.Struct, frozen=True):
    """The events of a cycle (maybe none). If there are none, `due_ms` is when a new cycle has some because of the time
    alone. `nodes_ms`, always: when jobs may get nodes because of the time, as others are no longer kept from giving
    room, say."""

    events: tuple[Event, ...]
    due_ms: float = math.inf
    nodes_ms: float = math.inf


def take_cycle(
    state: State,
    config: CycleConfig,
    time_ms: int,
    observer: CycleObserver | None = None,
    *,
    policies: Policies = BUILT_IN,
) -> tuple[Event, ...]:
    """The events of one cycle on `state`; none if the cycle has nothing to record."""
    return _plan(state, config, time_ms, policies, observer=observer).events


def turn_of(
    state: State,
    uid: str,
    config: CycleConfig,
    time_ms: int,
    *,
    policies: Policies = BUILT_IN,
    too_large: TooLarge | None = None,
) -> PlacementTry | None:
    """What a cycle would do for one job's quorum, after serving the jobs before it. None if there is no try of it: the
    job isn't in the queue, the state isn't complete yet (`State.synced`), the job waits for its own pods of an earlier
    attempt, it gives room to a job before it, or, with `too_large`, it certainly gets no nodes."""
    tries = turns_to(state, uid, config, time_ms, policies=policies, too_large=too_large)
    return next((tried for tried in tries if tried.job.uid == uid), None)


def turns_to(
    state: State,
    uid: str,
    config: CycleConfig,
    time_ms: int,
    *,
    policies: Policies = BUILT_IN,
    whole_job: bool = False,
    too_large: TooLarge | None = None,
) -> list[PlacementTry]:
    """What a cycle would do for the jobs before this one and for its quorum (with `whole_job`: for all its pods).

    Empty if the job isn't in the queue, or the state isn't complete yet; without the job itself where there is no try
    of it (see `turn_of`). The result doesn't depend on the jobs behind it, nor on most of those that get
    nothing, so they are skipped. With `too_large`, more of these are.
    """
    return _turns_up_to(state, uid, config, time_ms, policies, whole_job=whole_job, too_large=too_large)[0]


def reserves_for(state: State, uid: str, config: CycleConfig, time_ms: int, *, policies: Policies = BUILT_IN) -> bool:
    """Whether a cycle would record a new or another reservation for one job."""
    _, room = _turns_up_to(state, uid, config, time_ms, policies)
    return room is not None and any(reserved.job_uid == uid for reserved in room.reservations.events()[0])


def _turns_up_to(
    state: State,
    uid: str,
    config: CycleConfig,
    time_ms: int,
    policies: Policies,
    *,
    whole_job: bool = False,
    too_large: TooLarge | None = None,
) -> tuple[list[PlacementTry], Room | None]:
    """As `turns_to`, with the room of that cycle if the job has a turn."""
    jobs = queue.waiting_jobs(state, time_ms, by_qos=config.qos_order)
    if not state.synced or all(job.uid != uid for job in jobs):
        return [], None
    placer = Placer(state, config, policies, time_ms=time_ms)
    jobs, over = queue.considered(state, jobs)
    tries = [placer.left_out(job, lack) for job, lack in over if job.uid == uid]
    if tries:
        return tries, None
    turns = queue.turns(state, jobs, config, policies, placer.shares, time_ms=time_ms)
    room = Room.of(state, placer, jobs)._replace(too_large=too_large, asked=uid)
    return _take_turns(placer, turns, room, until=uid, whole_job=whole_job), room


class Cycles:
    """The cycles of one process. A cycle is skipped if the last one had no events and its inputs haven't changed. Other
    cycles begin with what `KeptRankings` has of the one before.

    Without `too_large`, the events are those of `take_cycle`; with it the placements are, but reasons are missing.
    """

    def __init__(self, policies: Policies = BUILT_IN, too_large: TooLarge | None = None) -> None:
        """With `too_large`, jobs that surely get nothing aren't tried; `note` must then be told of all changes."""
        self._policies = policies
        self._too_large = too_large
        self._state: State | None = None
        self._question: tuple[Any, ...] = ()
        self._time_ms, self._until_ms = 0, 0.0
        #: As in the last cycle's `Plan`.
        self.nodes_ms = math.inf
        self._kept = KeptRankings()
        self._infeasible = InfeasibleJobs()
        self._short = ShortJobs(told=too_large is not None)

    def note(self, changed: Collection[str]) -> None:
        """These jobs (UIDs) have changed, are new, or are gone. A caller that tells of some must tell of all of them;
        then a cycle doesn't look at all jobs."""
        self._short.note(changed)
        self._infeasible.forget(changed)

    def take(self, state: State, config: CycleConfig, time_ms: int) -> tuple[Event, ...]:
        """The events of a cycle now; none if it has nothing to record, or would have had nothing and is skipped."""
        question = (state.nodes.changes, state.scheduling_changes, config)
        # Assumed pods end as time passes, so a clock that was set back asks another question.
        in_time = self._time_ms <= time_ms < self._until_ms
        if state is self._state and question == self._question and in_time:
            return ()
        # A cycle that fails, e.g. in a plugin's policy, leaves nothing behind.
        kept, self._kept, infeasible, self._infeasible = self._kept, KeptRankings(), self._infeasible, InfeasibleJobs()
        infeasible.begin(state, config, self._policies, time_ms)
        plan = None
        if infeasible and state.synced:
            plan = self._plan_without_infeasible(infeasible, state, config, time_ms, kept=kept)
        if plan is None:
            short = self._short.of(state)
            # Only a cycle that tries all jobs finds the infeasible ones, and only who learns of changes may keep them.
            keep = short is not None and self._too_large is None
            plan = _plan(
                state, config, time_ms, self._policies,
                kept=kept, too_large=self._too_large, short=short, infeasible=infeasible if keep else None,
            )  # fmt: skip
        self._kept, self._infeasible = kept, infeasible
        self._state = state if not plan.events else None
        self._question, self._time_ms, self._until_ms = question, time_ms, plan.due_ms
        self.nodes_ms = plan.nodes_ms
        return plan.events

    def _plan_without_infeasible(
        self, infeasible: InfeasibleJobs, state: State, config: CycleConfig, time_ms: int, *, kept: KeptRankings
    ) -> Plan | None:
        """The plan if infeasible jobs aren't tried; None if it might be another one."""
        placer = Placer(state, config, self._policies, time_ms=time_ms, kept=kept)
        reasons = _Reasons(state, config, time_ms, waiting=0)  # it only tells what is recorded already
        if infeasible.renew(placer, reasons.told):
            short = self._short.of(state, left_out=infeasible)
            jobs, next_ms = queue.waiting(state, time_ms, short, by_qos=config.qos_order)
            if infeasible.apart_from(jobs):
                found = _try_all(state, placer, jobs, kept=kept, others_waiting=len(infeasible))
                infeasible.keep(placer, found.tries, found.reasons.gives_up_ms)
                return _plan_of(state, found, min(next_ms, infeasible.due_ms))
        infeasible.clear()
        return None


def _plan(
    state: State,
    config: CycleConfig,
    time_ms: int,
    policies: Policies,
    *,
    observer: CycleObserver | None = None,
    kept: KeptRankings | None = None,
    too_large: TooLarge | None = None,
    short: list[JobRecord] | None = None,
    infeasible: InfeasibleJobs | None = None,
) -> Plan:
    """The plan after a try of each waiting job. `infeasible` then knows for which of them that was in vain for good."""
    jobs, next_ms = queue.waiting(state, time_ms, short, by_qos=config.qos_order)
    if not (jobs or state.reservations or state.kept_limits) or not state.synced:
        return Plan((), next_ms, next_ms)
    placer = Placer(state, config, policies, time_ms=time_ms, observer=observer, kept=kept)
    found = _try_all(state, placer, jobs, kept=kept, too_large=too_large)
    if infeasible is not None and infeasible.apart_from(jobs):
        infeasible.keep(placer, found.tries, found.reasons.gives_up_ms)
    return _plan_of(state, found, next_ms)


class _Found(NamedTuple):
    """What a cycle found out when it gave the jobs their turns."""

    placer: Placer
    reasons: "_Reasons"
    room: Room
    tries: list[PlacementTry]


def _try_all(
    state: State,
    placer: Placer,
    jobs: list[JobRecord],
    *,
    kept: KeptRankings | None,
    too_large: TooLarge | None = None,
    others_waiting: int = 0,
) -> _Found:
    """Give these waiting jobs their turns; so many others wait as well."""
    config, policies, time_ms = placer.placing.config, placer.placing.policies, placer.placing.time_ms
    reasons = _Reasons(state, config, time_ms, waiting=queue.number_told(state, jobs) + others_waiting)
    jobs, over = queue.considered(state, jobs)
    queues = kept.queues if kept is not None else None
    turns = queue.turns(state, jobs, config, policies, placer.shares, time_ms=time_ms, kept=queues)
    room = Room.of(state, placer, jobs, sought=kept.sought if kept is not None else None)
    tries = _take_turns(placer, turns, room._replace(too_large=too_large), reasons)
    return _Found(placer, reasons, room, tries + [placer.left_out(job, lack) for job, lack in over])


def _plan_of(state: State, found: _Found, next_ms: float) -> Plan:
    """The decisions, or when there may be some because of the time; at `next_ms`, others may be tried."""
    placer, reasons, room, tries = found
    config, time_ms = reasons.config, reasons.time_ms
    decisions = [event for tried in tries if not tried.told for event in _decisions(placer, tried, reasons)]
    (reserved, ended), (limits_kept, limits_released) = room.reservations.events(), room.limits.events()
    # In this order a guest's placement comes while something is kept for its host.
    decisions = [*reserved, *limits_kept, *decisions, *ended, *limits_released]
    assumed_ms = (pod.until_ms for pod in state.assumed.values() if pod.until_ms > time_ms)
    lapse_ms = (holding.until_ms for holding in state.devices.decided.values() if holding.until_ms > time_ms)
    # Assumed pods are in the order of their ends.
    nodes_ms = min([room.preemption.due_ms, next_ms, next(assumed_ms, math.inf), *lapse_ms, *_opens_ms(tries, reasons)])
    if decisions or room.reservations.confirmed:
        return Plan((CycleTaken(state.offset, time_ms, config, placer.search_steps), *decisions), nodes_ms=nodes_ms)
    due_ms = min(
        [nodes_ms, room.reservations.due_ms, room.limits.due_ms, *(_due_ms(tried, reasons) for tried in tries)]
    )
    return Plan((), due_ms, nodes_ms)


class _Reasons:
    """The reasons why jobs get no nodes in one cycle, and whether each of them is recorded now."""

    def __init__(self, state: State, config: CycleConfig, time_ms: int, *, waiting: int) -> None:
        self._state = state
        self.config = config
        self.time_ms = time_ms
        self._apart_ms = config.reasons_apart_ms(waiting)
        #: How many more changed reasons this cycle may record.
        self._left = config.reasons_a_second or waiting
        #: The last shortage, which equal jobs share, and its facts.
        self._shortage: Shortage | None = None
        self._facts: ShortageFacts | None = None

    def news(self, tried: PlacementTry, shortage: Shortage) -> Waits | None:
        """The event, if the reason is to be recorded now."""
        job, replace_age_ms = tried.job, self.replace_age_ms(tried, shortage)
        at_once = replace_age_ms < 0
        if not at_once and (not self._left or self.time_ms - job.times.waits_ms < replace_age_ms):
            return None
        self._left -= not at_once
        return Waits(job.uid, job.version, self._schedule_state(tried, shortage), self._facts_of(tried, shortage))

    def told(self, tried: PlacementTry) -> bool:
        """Whether the shortage of a try is recorded already."""
        return tried.shortage is not None and self.replace_age_ms(tried, tried.shortage) == math.inf

    def replace_age_ms(self, tried: PlacementTry, shortage: Shortage) -> float:
        """The age at which the recorded reason is replaced, in milliseconds: as soon as the number of waiting jobs
        allows for another kind of reason, a moment later for other numbers, infinite for an equal reason. It is
        negative, so at once, if none is recorded yet; for another state, infeasibility, dry run or hold of a permit;
        and for another kind while reasons aren't limited."""
        old = tried.job.waits
        if old is None or old.schedule_state != self._schedule_state(tried, shortage):
            return -math.inf
        was, found = old.shortage, self._facts_of(tried, shortage)
        if was == found or was.amounts() == found.amounts():  # the common case, found without sorting
            return math.inf
        if (was.infeasible, was.untried, _hold(was)) != (found.infeasible, found.untried, _hold(found)):
            return -math.inf
        if _about(was) != _about(found) or was.kinds() != found.kinds():
            return self._apart_ms or -math.inf
        return max(self.config.reasons_refresh_ms, self._apart_ms)

    def _schedule_state(self, tried: PlacementTry, shortage: Shortage) -> ScheduleState:
        job = tried.job
        due_ms = self.gives_up_ms(job) if shortage.infeasible else None
        heard_ms = self._state.heard_ms(Watched.NODE)
        if due_ms is not None and min(self.time_ms, heard_ms) >= due_ms:
            return ScheduleState.FAILED
        return ScheduleState.PARTLY if tried.quorum_stands or job.placements else ScheduleState.UNSCHEDULED

    def gives_up_ms(self, job: JobRecord) -> int | None:
        """When the job is given up if it is infeasible."""
        return gives_up_ms(self._state, job, self.config)

    def _facts_of(self, tried: PlacementTry, shortage: Shortage) -> ShortageFacts:
        if self._facts is None or shortage is not self._shortage:
            self._shortage, self._facts = shortage, facts_of(tried, shortage)
        return self._facts


def _hold(shortage: ShortageFacts) -> tuple[object, ...]:
    """What permits hold a quorum back with."""
    return shortage.objection.hold if isinstance(shortage, Objected) else ()


def _about(shortage: ShortageFacts) -> tuple[object, ...]:
    """Which group lacks nodes, and whether in a domain of a topology."""
    return (shortage.group, shortage.topology is None) if isinstance(shortage, LackOfNodes) else ()


def _opens_ms(tries: list[PlacementTry], reasons: _Reasons) -> Iterator[float]:
    """When jobs avoid one of their nodes no longer, or nothing holds their quorums back; few jobs have such a time."""
    for tried in tries:
        shortage = tried.shortage
        if shortage is not None and shortage.objection is not None and shortage.objection.until_ms > reasons.time_ms:
            yield shortage.objection.until_ms
        if tried.job.avoids:
            yield next_end_ms(tried.job, reasons.config, reasons.time_ms)


def _due_ms(tried: PlacementTry, reasons: _Reasons) -> float:
    """When passing time alone makes a new reason due for a job, in milliseconds; infinite if it never does."""
    job, shortage = tried.job, tried.shortage
    if shortage is None:
        return math.inf
    gives_up_ms = reasons.gives_up_ms(job) if shortage.infeasible else None
    due_ms = job.times.waits_ms + reasons.replace_age_ms(tried, shortage)
    return (
        min(due_ms, gives_up_ms) if gives_up_ms is not None and job.schedule_state != ScheduleState.FAILED else due_ms
    )


def _take_turns(
    placer: Placer,
    turns: QueueTurns,
    room: Room,
    reasons: _Reasons | None = None,
    *,
    until: str = "",
    whole_job: bool = False,
) -> list[PlacementTry]:
    """Give the jobs their turns, up to the quorum of the job `until` (with `whole_job`: to its last pod). Returns the
    tries in the order of the first turns, with `told` if there are `reasons`, and without those of jobs that give room
    to others."""
    tries: dict[str, PlacementTry] = {}
    while (turn := turns.head()) is not None:
        uid = turn.job.uid
        more, pieces = _take_turn(placer, turn, tries, room)
        tried = tries.get(uid)
        if reasons is not None and turn.quorum and not more and tried is not None and tried.shortage is not None:
            # Asked here, not in a second pass over all tries: the job's data is still in the processor's cache.
            tried.told = reasons.told(tried)
        if uid == until and not (whole_job and more):
            break
        turns.taken(more=more, job=turn.job, pieces=pieces)
    victims = room.preemption.victims
    return [tried for uid, tried in tries.items() if uid == until or uid not in victims]


def _take_turn(placer: Placer, turn: Turn, tries: dict[str, PlacementTry], room: Room) -> tuple[bool, list[Piece]]:
    """Give a job its turn; returns whether it may need another, and what it got."""
    uid = turn.job.uid
    if uid in room.preemption.victims:
        return False, []
    if turn.quorum:
        found = _try_quorum(placer, turn.job, room)
        if found is None:
            return False, []
        tried = tries[uid] = found
        done, more = 0, tried.quorum_stands and tried.preempted is None
    else:
        tried = tries[uid]
        done = len(tried.pieces)
        more = _further(placer, tried, turn.pods, room)
    pieces = tried.pieces[done:]
    if pieces:
        placer.shares.give(turn.job, pieces)
        room.preemption.got_nodes(tried, pieces)
        room.reservations.count_used(pieces)
    return more, pieces


def _try_quorum(placer: Placer, job: JobRecord, room: Room) -> PlacementTry | None:
    """The try of a job's quorum, also with room that is reserved or that others have. None if it isn't tried, because
    it waits for its own pods, or surely gets nothing."""
    if room.surely_none(job, placer):
        return None
    room.reservations.begin(job)
    if room.waits_for_own_pods(job):
        return None
    tried = _quorum_in_open_room(placer, job, room)
    if tried is None:
        return None
    if tried.shortage is not None and tried.shortage.of_kept_limit:
        tried = room.beside_limits(tried) or tried
    elif not tried.quorum_stands:
        tried = room.backfill.quorum(tried) or room.make_room(tried) or tried
    if tried.quorum_stands:
        room.reservations.served(job)
        if tried.preempted is None:
            room.limits.mark_as_guest(tried)
    else:
        room.reservations.reserve(tried)
        if (observer := placer.placing.observer) is not None:
            observer.in_vain(tried)
    room.limits.turned(tried)
    return tried


def _quorum_in_open_room(placer: Placer, job: JobRecord, room: Room) -> PlacementTry | None:
    """The try of a job's quorum in open room. Limits that are kept for others may bar it, as it was asked for, or with
    the pods that got nodes. None if it surely gets nothing."""
    barred = room.limits.beyond(job)
    if barred is not None:
        return barred
    if room.asked and room.in_vain(job, placer):
        return None
    if not room.limits.of_queues or len(job.valid_spec.groups) <= _OF_ONE_SET:
        return placer.quorum(job)
    mark = placer.placing.mark()
    tried = placer.quorum(job)
    barred = room.limits.beyond_placed(tried) if tried.quorum_stands else None
    if barred is None:
        return tried
    placer.take_back(tried, mark)
    return barred


def _further(placer: Placer, tried: PlacementTry, pods: int | None, room: Room) -> bool:
    """Place pods beyond a quorum: in open room, and if none fits there, in reserved room; returns as `Placer.further`.
    A decision's `hosts` are about all of its pods. So if the job had nodes before, its new pods go either all into open
    room or all into reserved room."""
    lent = bool(tried.hosts)
    more = not (lent and tried.job.placements) and placer.further(tried, pods)
    if more or (tried.pieces and not lent):
        return more
    return room.backfill.lend(tried, pods)


def _decisions(placer: Placer, tried: PlacementTry, reasons: _Reasons) -> list[Event]:
    """The events for one job. The reason precedes the placement, which outdates the version that the reason names."""
    job, shortage = tried.job, tried.shortage
    if tried.preempted is not None:
        return [tried.preempted]
    waits = reasons.news(tried, shortage) if shortage is not None else None
    events: list[Event] = [waits] if waits is not None else []
    if tried.pieces:
        pods = placer.placed_pods(tried)
        whole = len(job.placements) + tried.pods == job.pods_desired()
        state = ScheduleState.SUCCEED if whole else ScheduleState.PARTLY
        events.append(Placed(job.uid, job.version, job.attempt, state, pods, placer.take_devices(tried), tried.hosts))
    return events


def facts_of(tried: PlacementTry, shortage: Shortage) -> ShortageFacts:
    """The facts of a shortage, as they are recorded."""
    found, asked, reasons = shortage.found, shortage.asked, shortage.reasons
    if shortage.objection is not None:
        return Objected(found, asked, reasons, objection=shortage.objection)
    if shortage.quota is not None:
        return BeyondLimit(
            found,
            asked,
            reasons,
            further=tried.quorum_stands,
            searched=shortage.searched,
            untried=shortage.untried,
            quota=shortage.quota,
            kept_by=shortage.kept_by,
            nodes=shortage.nodes,
        )
    return lack_of_nodes(tried, shortage)
