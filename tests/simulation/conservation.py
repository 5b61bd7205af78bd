"""No job waits without need: after a cycle, one without an order, of each waiting job alone, finds no nodes for it.

A cycle only ever takes room. So a job that fits after it fitted at its own turn, whatever the order was. Only jobs that
give room to another one may free some at once, for pods that don't exist yet, or as the use of their queue. So after a
cycle with preemptions, a job waits without need only if it also fits in the state that the cycle's other decisions lead
to. Pods that leave anyway count as use of nobody's queue, until a decision names them: then guarantees leave more than
the cycle knew. The next cycle has no such excuse.
"""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from arranger.events.facts import BeyondLimit
from arranger.events.kinds import CycleTaken, Event, Placed, Preempted, Reserved, Waits
from arranger.model.job import Stage
from arranger.model.quota import LimitKind
from arranger.model.reasons import ReasonKind
from arranger.model.stages import StageReason
from arranger.projections.derived.departing import ends_by_itself
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import denied
from arranger.projections.jobs.records import JobRecord, expand, requests_of
from arranger.projections.state import Changes, State
from arranger.projections.verdicts.ownership import awaits_own_pods
from arranger.replay.what_if.hypothesis import queue_seen
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.queues.waiting import waiting_jobs
from arranger.scheduling.search.complete_search import holds_volumes_or_devices
from arranger.scheduling.search.placer import Placer
from tests.reasons import lacking_quota
from tests.simulation.queue_rules import crowded, hopeless, of_guarantee, untrue_guarantee, unusable
from tests.simulation.room_rules import by_seniority, folded, hold_for_others, limits_kept


def needless(
    state: State, cycle: CycleTaken, begun: Collection[str], *, before: State | None, events: Sequence[Event]
) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each job that waits without need, in the state after a cycle with these events. `begun` are
    the jobs that got their first nodes in it, or that it found infeasible: they counted as waiting jobs of their
    queues. `before` is the state on which it was taken, if it has preemptions."""
    for job in state.jobs.values():
        if job.active and not job.stands_still and job.stage in (Stage.PENDING, Stage.RESCHEDULING):
            why, denial = unusable(state, job), denied(state, job)
            if bool(why) != (denial is not None):
                yield job.uid, f"is it kept out of its queue? {why or 'no'}; but the projection: {denial}"
    waiting = waiting_jobs(state, cycle.time_ms)
    preempted = [event for event in events if isinstance(event, Preempted)]
    moved = any(isinstance(event, Placed | Preempted | Reserved) for event in events)
    losers = {of.job_uid: of.kind for event in preempted for of in event.victims}
    without = _without_victims(before, events) if before is not None else state
    told_now = {event.job_uid for event in events if isinstance(event, Waits)}  # other reasons may be out of date
    placed = {event.job_uid for event in events if isinstance(event, Placed)}
    smaller = any(not placed.isdisjoint(of.decided.awaits) for of in state.reservations.values())
    # Who has just been found hopeless counted until then.
    known = [job.uid for job in waiting if hopeless(job) and job.uid not in told_now]
    counted = {*begun, *(job.uid for job in waiting if not job.placements)}.difference(known)
    for job in waiting:
        if job.uid in losers:  # it has no turn in this cycle, and its reason is that it gave room
            told = job.decided.reason if job.decided is not None else ""
            if losers[job.uid].whole and told != StageReason.PREEMPTED:
                yield job.uid, f"a job gave room to another one, and its reason is {told}"
        elif awaits_own_pods(state, job):
            keeps = cycle.config.reservations and not moved and job.uid not in state.reservations
            if keeps and _gets_nodes(state, cycle, job) and not crowded(state, job, counted):
                yield job.uid, "nothing is kept for a job that would get nodes but for its own pods, which leave"
        elif not job.placements and job.waits is None and not ends_by_itself(state, job, cycle.time_ms):
            yield job.uid, "a job waits without a reason"
        elif job.uid in told_now and not moved and (untrue := _untrue_guarantee(state, cycle, job)):
            yield job.uid, f"a job waits for the guarantees of other queues, and {untrue}"
        elif (
            # What the cycle decided may make what is reserved smaller, for the next one. A job that has just got nodes
            # elsewhere is lent reserved room by the next one too.
            not (moved and (smaller or _reserved(job) or (state.reservations and job.uid not in told_now - placed)))
            # Where no complete search follows, less room may lead to a way that was missed before.
            and (not moved or _is_searched_for(job))
            # A job that takes room uses what its queue is guaranteed, which was kept for it until then. ResourceQuotas
            # count it beside its victims, for the rest of the cycle.
            and not (preempted and of_quota(job))
            and _fits(state, cycle, job)
            and (job.placements or not crowded(state, job, counted))
            and _fits(state, cycle, job, in_turn=True)
            and (without is state or (without is not None and _fits(without, cycle, without.jobs[job.uid])))
        ):
            yield job.uid, f"a job waits, though a cycle of this job alone places it: {job.waits}"


def _without_victims(before: State, events: Sequence[Event]) -> State | None:
    """The state after a cycle if its victims kept their room and its beneficiaries had theirs as well; None if others
    got what the use of queues lost with the victims."""
    changes = Changes()
    state = folded(before, [event for event in events if isinstance(event, CycleTaken | Placed | Waits)], changes)
    if not all(verdict.accepted for verdict in changes.verdicts):
        return None
    for event in events:
        placed = event.placed if isinstance(event, Preempted) else None
        for slot, node in expand(placed.pods).items() if placed is not None else ():
            requests = requests_of(state.jobs[placed.job_uid], slot)
            state.nodes.hold(node, requests)
            state.queue_use.add(queue_of(state, state.jobs[placed.job_uid]), requests, 1)
    return state


def _reserved(job: JobRecord) -> bool:
    """Whether a job waits because room is reserved for others, or a limit kept."""
    shortage = job.waits.shortage if job.waits is not None else None
    if shortage is None or (isinstance(shortage, BeyondLimit) and shortage.kept_by):
        return shortage is not None
    return any(reason.kind == ReasonKind.RESERVED for reason, _ in shortage.reasons)


def _is_searched_for(job: JobRecord) -> bool:
    """Whether a complete search looks for the job's quorum: none knows of volumes that its pods may share."""
    return sum(of.count for of in job.valid_spec.groups if holds_volumes_or_devices(of.shape)) <= 1


def of_quota(job: JobRecord) -> bool:
    """Whether a job waits because of what other queues are guaranteed, or because of a ResourceQuota."""
    lack = lacking_quota(job.waits)
    return lack is not None and lack.limit in (LimitKind.GUARANTEES, LimitKind.QUOTA)


def _untrue_guarantee(state: State, cycle: CycleTaken, job: JobRecord) -> str:
    """As `untrue_guarantee`, where it is known too that the nodes have what the job needs. Reservations of others count
    for nothing: they don't hold against a job before them, or within its share (decision 66)."""
    if (untrue := untrue_guarantee(state, job)) or job.placements or not of_guarantee(job):
        return untrue
    specs = [(name, seen.spec) for name, seen in state.queues.items() if seen.spec is not None and seen.spec.guarantee]
    without = [queue_seen(state, name, msgspec.structs.replace(spec, guarantee=())) for name, spec in specs]
    other = folded(state, (cycle, *without))
    alone = Placer(other, cycle.config, BUILT_IN, time_ms=cycle.time_ms).quorum(other.jobs[job.uid])
    return "" if alone.quorum_stands else "without them it gets no nodes, either"


def _fits(state: State, cycle: CycleTaken, job: JobRecord, *, in_turn: bool = False) -> bool:
    """Whether a cycle of this job alone gives it nodes, beside the reservations of others or as their guest; `in_turn`
    with those before it one after the other."""
    as_guest = cycle.config.guests and job.valid_spec.preemptible and not job.of_pods
    return _gets_nodes(state, cycle, job, in_turn=in_turn) or (
        as_guest and _gets_nodes(state, cycle, job, as_guest=True, in_turn=in_turn)
    )


def _gets_nodes(
    state: State, cycle: CycleTaken, job: JobRecord, *, as_guest: bool = False, in_turn: bool = False
) -> bool:
    placer = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
    # A guest may use what is reserved for later.
    held = hold_for_others(
        state, placer, cycle, job, due=as_guest, turns=by_seniority(state, cycle) if in_turn else None
    )
    if limits_kept(state, placer, cycle, held).beyond(job) is not None:
        return False
    tried = placer.quorum(job)
    if tried.quorum_stands and not tried.pieces:
        hosts = [(state.jobs[uid], of.pods) for uid, of in state.reservations.items() if as_guest and uid != job.uid]
        with placer.placing.quotas.kept_for(hosts, job):
            placer.further(tried, None)
    return bool(tried.pieces)
