"""The rules of who gives room to whom, beside the product's own, on the state on which a cycle was taken."""

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes, PreemptionKind, Victim
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, CleanPodPolicy, Stage
from arranger.model.node import NodeFacts
from arranger.model.pod import TERMINAL, Phase
from arranger.model.queue import DEFAULT_SPEC, Preemption, PreemptionMode, QueueSpec, QueueState
from arranger.model.quota import LimitKind
from arranger.projections import snapshot
from arranger.projections.derived.awaited_room import refused_by_dry_run, takes_none
from arranger.projections.derived.departing import ends_by_itself, hanging
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, by_group, expand, holds, is_quorum
from arranger.projections.jobs.worker_groups import parted, with_whole
from arranger.projections.state import Changes, State
from arranger.projections.verdicts.ownership import awaits_own_pods
from arranger.projections.verdicts.preemption import leaves
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.queues.limits import QueueLimits
from arranger.scheduling.queues.offer import offered
from arranger.scheduling.queues.policies import seniority
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.queues.standing import QueueStanding
from arranger.scheduling.queues.waiting import considered, waiting_jobs
from arranger.scheduling.queues.waiting import turns as queue_turns
from arranger.scheduling.room.backfill import Backfill
from arranger.scheduling.room.guests import may_be_guest
from arranger.scheduling.room.kept_limits import KeptLimits
from arranger.scheduling.room.preemption import PreemptionSearch
from arranger.scheduling.room.reservations import Reservations
from arranger.scheduling.room.vacating import Vacating, leaving
from arranger.scheduling.search.placer import Placer
from tests.simulation.queue_rules import KEPT, beyond_limits, name_of, use_of_queues, way_of

#: All parts of so few units are tried: there are 31 of five.
_UNITS = 5
_WHO = "rules of room"
#: What the part of a queue's own jobs begins with.
_OWN = "own jobs of "
#: The stages in which a guest is asked to leave: one that is itself to get room from others isn't there yet.
_ASKED = (Stage.STARTING, Stage.RUNNING)
Decision = k.Placed | k.Preempted
#: A job, slots of it, and whether these are all that it has.
Unit = tuple[JobRecord, tuple[SlotKey, ...], bool]


def broken(state: State, cycle: k.CycleTaken, events: Sequence[k.Event]) -> Iterator[tuple[str, str]]:
    """(UID of the beneficiary, the problem) of each preemption of a cycle that breaks a rule. `state` is that on which
    the cycle was taken, `events` are those of the cycle."""
    before: list[Decision] = []
    for event in events:
        if isinstance(event, k.Preempted):
            job = state.jobs[event.placed.job_uid]
            yield from ((job.uid, problem) for problem in _forbidden(state, cycle, job, event, before))
            reserved = [of for of in events if isinstance(of, k.Reserved)]  # they hold room from their turns on
            after = folded(state, (cycle, *before, *reserved))
            yield from ((job.uid, problem) for problem in _broken_terms(state, cycle, after, job, event))
            placed = {(of.job_uid, pods.node) for of in before if isinstance(of, k.Placed) for pods in of.pods}
            # What is reserved on a node gets smaller once an awaited job has pods there, but only for the next cycle.
            # So does what is kept for guarantees once a job takes room that pods of no queue leave, because the cluster
            # offers more then.
            smaller = any(
                (uid, pods.node) in placed
                for of in after.reservations.values()
                for uid in of.decided.awaits
                for pods in of.decided.pods
            )
            offers_more = QueueLimits(state.queue_tree).guaranteed and any(isinstance(of, k.Preempted) for of in before)
            # A pod that was never seen keeps no room on an overbooked node: its kubelet would refuse it. Two pods of a
            # slot keep the room of one there. A cycle learns that of a victim's pods only afterwards.
            victims = [victim for of in before if isinstance(of, k.Preempted) for victim in of.victims]
            kept_none = any(_crowded(state, victim) or _twice(state, victim) for victim in victims)
            if not smaller and not offers_more and not kept_none:
                yield from ((job.uid, problem) for problem in _too_much(after, cycle, event, _done(before)))
        if isinstance(event, Decision):
            yield from _in_the_way(state, cycle, event, before, events)
            before.append(event)


def _broken_terms(state: State, cycle: k.CycleTaken, after: State, job: JobRecord, event: k.Preempted) -> Iterator[str]:
    """What is wrong with a beneficiary as a guest, or because it is none. `after` has the reservations of its turn."""
    hosts, rest = event.placed.hosts, dict[str, None]()
    victims = {of.job_uid: None for of in event.victims if not of.kind.of_guest}
    for uid, known in after.reservations.items():
        host, decided = state.jobs[uid], known.decided
        awaited = [of for of in decided.awaits if of in victims]
        if not awaited:
            continue
        if uid in hosts and not decided.start_ms:
            rest |= dict.fromkeys(awaited)
            if _takes_at_once(host, cycle):
                yield f"takes room of {awaited[0]} as a guest of {host.seen.name}, which may take it at once"
            continue
        there = decided.based_on == host.version and all(state.nodes.has(pods.node) for pods in decided.pods)
        before_it = name_of(state, host) == name_of(state, job) and seniority(host) < seniority(job)
        if there and before_it and uid != job.uid and not host.placements:
            yield f"takes room of {awaited[0]}, for whose end {host.seen.name} waits, which comes first"
    others = [uid for uid in victims if not state.jobs[uid].slots.hosts]
    if hosts and others and not rest:
        yield "becomes a guest in room of jobs that are none: its host may start there at once"


def _takes_at_once(host: JobRecord, cycle: k.CycleTaken) -> bool:
    """Whether a job takes room as soon as the API server has shown that it takes its pods, so that nobody else may
    until then whose end it awaits."""
    return cycle.config.dry_run and host.dry_run is None and not host.of_pods


def _in_the_way(
    state: State, cycle: k.CycleTaken, event: Decision, before: Sequence[Decision], every: Sequence[k.Event]
) -> Iterator[tuple[str, str]]:
    """The jobs in whose way somebody becomes a guest that can start without their guests in this cycle, which decides
    `every`, and `before` this."""
    placed = event if isinstance(event, k.Placed) else event.placed
    if state.jobs[placed.job_uid].placements:  # further pods have their turns after the quorums of other jobs
        before = [of for of in every if isinstance(of, Decision) and of is not event]
    hosts = [uid for uid in placed.hosts if uid in state.reservations and not state.jobs[uid].placements]
    for uid in hosts:
        starts = {state.reservations[uid].decided.start_ms}
        starts.update(of.start_ms for of in every if isinstance(of, k.Reserved) and of.job_uid == uid and of.pods)
        if all(leaves_late(state.jobs[placed.job_uid], cycle.time_ms, start_ms) for start_ms in starts):
            yield uid, f"{placed.job_uid} becomes a guest of {uid}, and can't leave before that is expected to start"
        # A guest because of a limit of queues may use a quota. What others got before leaves still less of it.
        grown = Counter(group for group, _ in expand(placed.pods)) if state.jobs[placed.job_uid].placements else None
        if not state.queue_tree.limited and _uses_its_quota(state, cycle, placed.job_uid, uid, grown):
            yield uid, f"{placed.job_uid} becomes a guest of {uid}, and uses a quota that this needs"
    if any(isinstance(of, k.Preempted) for of in before):
        return
    # A job that gets its first reservation in this cycle has this room from its turn on. So has one whose reservation
    # moves; that its turn was before shows where it is a host on nodes that only the new reservation has.
    on, first, moved = {pods.node for pods in placed.pods}, list[k.Event](), list[k.Event]()
    for of in every:
        if isinstance(of, k.Reserved) and of.pods:
            known = state.reservations.get(of.job_uid)
            had = {pods.node for pods in known.decided.pods} if known is not None else set[str]()
            its_turn_was = known is None or (of.job_uid in placed.hosts and on.isdisjoint(had))
            (first if its_turn_was else moved).append(of)
    # Nothing shows whether the turns of the others whose reservations move were before: either may be so.
    afters = [folded(state, (cycle, *first, *more, *before)) for more in ([], moved)[: 1 + bool(moved)] if hosts]
    # A cycle asks whether a host may start once, which may be before the turns of those that others' room went to.
    afters += [folded(state, (cycle, *first))] if hosts and state.jobs[placed.job_uid].placements else []
    for uid in hosts:
        if all(uid in of.reservations and _may_start(of, cycle, of.jobs[uid], alone=False) for of in afters):
            yield uid, f"{placed.job_uid} becomes a guest of {uid}, which can start without its guests"


def taken_before(state: State, cycle: k.CycleTaken, events: Sequence[k.Event]) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each job that gets nodes in a cycle, though one before it in its queue would have got them
    by itself, as soon as those have left who leave anyway. `state` is that on which the cycle was taken."""
    placed = {of.job_uid: of for of in events if isinstance(of, k.Placed)}
    first = [of for uid, of in placed.items() if not state.jobs[uid].placements]
    if not first or any(isinstance(of, k.Preempted) for of in events):
        return
    told = {of.job_uid: of for of in events if isinstance(of, k.Waits)}
    for job in waiting_jobs(state, cycle.time_ms):
        waits = told.get(job.uid, job.waits)
        if job.uid in placed or waits is None or not isinstance(waits.shortage, LackOfNodes):
            continue
        if job.placements or awaits_own_pods(state, job) or takes_none(job, cycle.config):
            continue
        quotas = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms).placing.quotas
        if quotas.of_queues or quotas.limits(job):
            continue  # limits that others use for good aren't kept
        for of in first:
            behind = _is_behind(state, state.jobs[of.job_uid], job)
            if behind and _fits_until(state, cycle, job, events, of):
                yield of.job_uid, f"gets nodes that {job.seen.name} would have got by itself, which comes before it"


def _fits_until(state: State, cycle: k.CycleTaken, job: JobRecord, events: Sequence[k.Event], last: k.Placed) -> bool:
    """Whether a quorum fits once those have left who leave anyway, beside all that a cycle has reserved, but for the
    room of the last of its placements. Only room is kept, neither a claim that one pod alone may use nor else what pods
    are to each other."""
    reserved = [of for of in events if isinstance(of, k.Reserved)]
    before = [cycle, *reserved, *(of for of in events[: events.index(last)] if isinstance(of, k.Placed))]
    after = folded(state, before)
    fitted = _may_start(after, cycle, job, alone=False, guests=False, replaced=False)
    return fitted and not _may_start(after, cycle, job, guests=False, taken=last)


def _is_behind(state: State, job: JobRecord, other: JobRecord) -> bool:
    """Whether a job is behind another one in its queue."""
    return name_of(state, job) == name_of(state, other) and seniority(other) < seniority(as_counted(state, job))


def _crowded(state: State, victim: Victim) -> bool:
    """Whether a victim has a pod on a node that is overbooked."""
    nodes, groups = state.nodes, state.jobs[victim.job_uid].valid_spec.groups
    there = [pods for pods in victim.pods if nodes.has(pods.node)]
    return any(nodes.overbooked(pods.node, groups[pods.group].shape.requests) for pods in there)


def _twice(state: State, victim: Victim) -> bool:
    """Whether a slot of a victim has room for two pods on its node: an earlier one, which was never seen, may come."""
    job = state.jobs[victim.job_uid]
    return any((job.owner_of(slot), node) in state.assumed for slot, node in expand(victim.pods).items())


def folded(state: State, events: Sequence[k.Event], changes: Changes | None = None) -> State:
    """Another state, with these events of a cycle after it."""
    other = snapshot.restore(snapshot.encode(state))
    taken_ms = max(event.time_ms for event in events if isinstance(event, k.CycleTaken))
    batch = k.Batch(_WHO, 1, max(state.time_ms, taken_ms), tuple(events))
    apply_entry(other, Entry(state.offset + 1, state.offset + len(events), "", batch), changes or Changes())
    return other


def could_take(state: State, config: CycleConfig, time_ms: int) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each waiting job that would fit if all that it may take room from in its queue gave it."""
    cycle = k.CycleTaken(state.offset, time_ms, config)
    jobs, _ = considered(state, waiting_jobs(state, time_ms))
    over = {name for name, of in beyond_limits(state) if not of.startswith(KEPT)}
    for job in jobs:
        allowed = _modes(state, cycle, job)
        if job.stage not in (Stage.PENDING, Stage.RESCHEDULING) or job.placements or job.suspended:
            continue
        if awaits_own_pods(state, job):
            continue
        if PreemptionKind.PRIORITY not in allowed or not job.valid_spec.preempts or job.quorum_placed():
            continue  # a group whose minimum has finished takes no room for the rest of it
        if not over.isdisjoint(way_of(state, name_of(state, job))):
            continue  # those with nodes keep them where a limit was lowered
        if job.taken is not None and job.taken.in_vain is not None:
            continue  # `vain` checks whether that is so
        if refused_by_dry_run(job):
            continue  # others would give room in vain
        lower = [of for of in _lower(state, cycle, job) if of.placements and not _young(state, cycle, of)]
        if not may_be_guest(job, cycle.config):  # it takes none that another job waits for, at whatever time
            others = [of.decided for uid, of in state.reservations.items() if uid != job.uid]
            lower = [of for of in lower if not any(of.uid in decided.awaits for decided in others)]
        if lower and _fits(state, cycle, job, [(of, tuple(of.placements), True) for of in lower], leave=False):
            yield job.uid, f"{job.seen.name} waits, though {[of.seen.name for of in lower]} may give it room"
            continue
        if not cycle.config.guests or not job.valid_spec.preemptible or job.of_pods:
            continue
        closed = {
            uid for uid in state.reservations if uid != job.uid and _is_closed(state, cycle, job, state.jobs[uid])
        }
        guests = [
            of for of in _lower(state, cycle, job, guests=True) if of.slots.hosts and closed.isdisjoint(of.slots.hosts)
        ]
        lower = [of for of in guests if not _young(state, cycle, of)]
        units = [(of, tuple(of.placements), True) for of in lower]
        if lower and _fits(state, cycle, job, units, leave=False, as_guest=True):
            yield job.uid, f"{job.seen.name} waits, though {[of.seen.name for of in lower]} may give it a guest's room"


def kept_by_borrowers(
    state: State, config: CycleConfig, time_ms: int, events: Sequence[k.Event] = ()
) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of a job that would be the first to get nodes without reservations, from others that give it
    room, and that keeps its queues within their shares by that, beside all those that have a reservation and borrow.
    The cycle on this state gives nodes to nobody, and decides these `events`. A first reservation is kept from all
    until the next cycle, which is at once, and is asked the same."""
    made = [of.job_uid for of in events if isinstance(of, k.Reserved) and of.pods]
    if not state.reservations.keys() >= {*made} or state.queue_tree.limited or not config.reservations:
        return
    decided = take_cycle(state, msgspec.structs.replace(config, reservations=0), time_ms)
    first = next((of for of in decided if isinstance(of, Decision)), None)
    if not isinstance(first, k.Preempted) or any(victim.kind.of_guest for victim in first.victims):
        return
    cycle, job = k.CycleTaken(state.offset, time_ms, config), state.jobs[first.placed.job_uid]
    hosts = [state.jobs[uid] for uid in state.reservations if uid != job.uid]
    if hosts and all(_is_borrower_beside(state, cycle, host, first) for host in hosts):
        names = [host.seen.name for host in hosts]
        yield job.uid, f"{job.seen.name} takes no room back because of the reservations of {names}, which borrow"


def _is_borrower_beside(state: State, cycle: k.CycleTaken, host: JobRecord, event: k.Preempted) -> bool:
    """Whether a job with a reservation would lift its queue above its share, and a decision leaves those of its
    beneficiary within theirs, below the first queue that both share."""
    job = state.jobs[event.placed.job_uid]
    if awaits_own_pods(state, host):
        return False  # its room is kept whatever its share
    standing, asked = _shares(state, cycle), Counter[str]()
    own, other = line_of(state, name_of(state, job)), line_of(state, name_of(state, host))
    alone, of_host = [name for name in own if name not in other], [name for name in other if name not in own]
    resources = {
        name for group, _ in expand(event.placed.pods) for name, amount in job.valid_spec.groups[group].shape.requests
        if amount and name in standing.total
    }  # fmt: skip
    known = state.reservations.get(host.uid)
    needs = known.pods if known is not None else pods_of(quorum_needs(host, BUILT_IN.pod_policy(host, cycle.config)))
    for group, pods in needs.items():
        asked.update({of: amount * pods for of, amount in host.valid_spec.groups[group].shape.requests})

    def above(used: dict[str, Counter[str]], name: str, more: Counter[str], names: Iterable[str]) -> bool:
        share = _share_of(state, standing, name)
        return any(_in(used, name, of) + more[of] > share[of] for of in names)

    before, after = _use(state, (), all_pods=True), _use(state, (event,), all_pods=True)
    asks = [of for of, amount in asked.items() if amount and of in standing.total]
    keeps = bool(alone) and not any(above(after, name, Counter(), resources) for name in alone)
    return keeps and bool(of_host) and all(above(before, name, asked, asks) for name in of_host)


def misjudged_offer(state: State, time_ms: int) -> str:
    """How what the nodes offer to queues differs from what it is, added up node by node; empty if it doesn't. On a node
    that has or offers less than is used there, what jobs hold is in it, so that nobody loses a share for that; except
    where all their pods have ended, for the moment until they have. Beyond what queues use it is at most what the open
    nodes have left beside that: on another node nobody gets what isn't used there."""
    ours, others = _counted(state), defaultdict[str, Counter[str]](Counter)
    for pod in state.pods.values():
        if pod.node and pod.owner is None and pod.asks is None and pod.phase not in TERMINAL:
            others[pod.node].update(dict(pod.requests))
    for uid in hanging(state, time_ms, 0):
        pod, facts = state.pods[uid], state.nodes.facts_of(state.pods[uid].node)
        if leaves(state, pod) and facts is not None and facts.ready and not facts.cordoned:  # its room is nobody's
            others[pod.node].update(dict(pod.requests))
    for pod in state.pods.values():
        job, facts = state.jobs.get(pod.owner.job_uid) if pod.owner else None, state.nodes.facts_of(pod.node)
        ended = job is not None and job.ended and not leaves(state, pod) and not job.placements
        if ended and pod.phase not in TERMINAL and facts is not None and facts.ready and not facts.cordoned:
            others[pod.node].update(dict(pod.requests))  # its job keeps it
    total, left_over, offer = Counter[str](), Counter[str](), offered(state, time_ms)
    for name, row in state.nodes.rows.items():
        facts, amounts = state.nodes.facts_of(name), state.nodes.amounts(row)
        has = dict(facts.allocatable) if facts is not None and facts.ready and not facts.cordoned else {}
        left_over.update({of: max(has.get(of, 0) - others[name][of] - ours[name][of], 0) for of in offer})
        if all(used <= others[name][of] for of, (used, _) in amounts.items() if of != "pods"):
            ours.pop(name, None)
        short = not has or any(used > has.get(of, 0) for of, (used, _) in amounts.items() if of != "pods")
        for of in offer:
            left = has.get(of, 0) - others[name][of]
            total[of] += max(left, ours[name][of]) if short else left
    wrong = {of: (amount, max(total[of], 0)) for of, amount in offer.items() if amount != max(total[of], 0)}
    if wrong:
        return f"what the nodes offer to queues isn't what they have, or what jobs hold: {wrong}"
    used = sum(map(Counter[str], state.queue_use.own.values()), Counter[str]())
    beyond = {of: (offer[of], used[of], left) for of, left in left_over.items() if offer[of] - used[of] > left}
    return f"more is offered than what queues use and open nodes have left: {beyond}" if beyond else ""


def given_away(state: State, time_ms: int) -> Counter[str] | None:
    """Resource → how much more than the nodes offer is used and kept for guarantees together. No cycle lifts it. None
    where a node has less than is used there: that a part of it leaves lessens the offer only for the next cycle; and
    where a job with nodes is in a queue without a way to the root, which no limit keeps from more. Nothing is kept for
    closed queues, so that others may use room of pods that have ended, which their queue counts until that is decided.
    """
    closed = {name for name in state.queues if spec_of(state, name).state == QueueState.CLOSED}
    ways = {name: way_of(state, name) for name in state.queues if spec_of(state, name).guarantee}
    names = [name for name, way in ways.items() if way and closed.isdisjoint(way)]
    if not all(way_of(state, name_of(state, job)) for job in state.jobs.values() if job.placements):
        return None
    amounts = [state.nodes.amounts(row) for row in state.nodes.rows.values()] if names else []
    if any(used > has for of in amounts for name, (used, has) in of.items() if name != "pods"):
        return None
    used, kept, offer = use_of_queues(state), Counter[str](), offered(state, time_ms)
    for resource in dict.fromkeys(of for name in names for of, _ in spec_of(state, name).guarantee):

        def held(name: str, of: str = resource) -> int:
            below = [other for other in state.queues if spec_of(state, other).parent == name and way_of(state, other)]
            mine = used.get(name, Counter())[of]
            inside = mine + sum(held(other) - used.get(other, Counter())[of] for other in below)
            spec = spec_of(state, name)
            promised = dict(spec.guarantee).get(of, 0) if closed.isdisjoint(way_of(state, name)) else 0
            return max(mine, min(max(inside, promised), dict(spec.capability).get(of, sys.maxsize)))

        total = sum(own.get(resource, 0) for own in state.queue_use.own.values())
        tops = [name for name in state.queues if way_of(state, name) == [name]]
        more = sum(held(name) - used.get(name, Counter())[resource] for name in tops)
        kept[resource] = max(total + more - offer.get(resource, 0), 0)
    return kept


def _counted(state: State) -> dict[str, Counter[str]]:
    """Node → what queues count there."""
    found = defaultdict[str, Counter[str]](Counter)
    for job in state.jobs.values():
        for (group, _), node in () if job.slots.done else job.placements.items():
            found[node].update(dict(job.valid_spec.groups[group].shape.requests))
    return found


# --- who may give room -------------------------------------------------------------------------------------


def spec_of(state: State, name: str) -> QueueSpec:
    """The spec of a queue with a way to the root."""
    seen = state.queues.get(name)
    return seen.spec if seen is not None and seen.spec is not None else DEFAULT_SPEC


def priority_of(state: State, job: JobRecord) -> int:
    """The priority that counts in the job's queue."""
    limits = [spec_of(state, name).max_priority for name in way_of(state, name_of(state, job))]
    return min([job.valid_spec.priority, *(limit for limit in limits if limit is not None)])


def _forbidden(
    state: State, cycle: k.CycleTaken, job: JobRecord, event: k.Preempted, before: Sequence[Decision]
) -> Iterator[str]:
    """Why a job may not take room as an event says."""
    queue = name_of(state, job)
    allowed = _allowed(cycle.config, spec_of(state, queue))
    guests = [of for of in event.victims if of.kind.of_guest]
    victims = [of for of in event.victims if of not in guests]
    for victim in guests:
        of = state.jobs[victim.job_uid]
        slots, lent = expand(victim.pods).keys(), with_whole(of.valid_spec, of.slots.lent_by(job.uid))
        is_one = job.uid in of.slots.hosts or (slots <= lent if not victim.kind.whole else lent)
        if not is_one or not state.is_host(job.uid):
            yield f"{of.seen.name} ({of.uid}) leaves for {job.seen.name} as a guest, and is none"
        elif job.uid in of.slots.hosts and _comes_before(state, cycle, of, job, before):
            yield f"{of.seen.name} ({of.uid}) leaves for {job.seen.name}, which would lift its queue above its share"
    reclaimed = [of for of in victims if name_of(state, state.jobs[of.job_uid]) != queue]
    if reclaimed and (above := _above_its_share(state, cycle, job, event, before)):
        yield f"a job reclaims room for queue {above}, which is above its share with it"
    for pod in (state.pods[uid] for uid in event.leaving if uid in state.pods):
        if not pod.deleting and _is_kept(state, pod):
            yield f"{job.seen.name} counts on the room of pod {pod.name}, which its job keeps"
    for victim in victims:
        of = state.jobs[victim.job_uid]
        young = _young(state, cycle, of) if victim.kind.whole else ""
        why = (
            _protected(state, cycle.time_ms, of)
            or young
            or _over(state, of)
            or (f"{victim.kind} is Never" if victim.kind not in allowed else "")
        )
        if victim in reclaimed:
            why = why or _not_reclaimable(state, cycle, job, victim, before)
            if victim.kind == PreemptionKind.PRIORITY or PreemptionKind.RECLAIM not in allowed:
                why = why or "it is of another queue"
        elif victim.kind == PreemptionKind.RECLAIM or priority_of(state, of) >= priority_of(state, job):
            why = why or f"its priority is {priority_of(state, of)}, that of the other {priority_of(state, job)}"
        if why:
            yield f"{of.seen.name} ({of.uid}) gives room to {job.seen.name}, though {why}"


def _comes_before(
    state: State, cycle: k.CycleTaken, guest: JobRecord, host: JobRecord, before: Sequence[Decision]
) -> bool:
    """Whether a guest keeps its queue within its share, and its host would lift its own above."""
    standing, used = _shares(state, cycle), _use(state, before, all_pods=True)
    own, other = line_of(state, name_of(state, guest)), line_of(state, name_of(state, host))
    alone, of_host = [name for name in own if name not in other], [name for name in other if name not in own]
    holds, asked = Counter[str](), Counter[str]()
    for group, _ in guest.placements:
        holds.update(dict(guest.valid_spec.groups[group].shape.requests))
    known = state.reservations.get(host.uid)
    needs = known.pods if known is not None else pods_of(quorum_needs(host, BUILT_IN.pod_policy(host, cycle.config)))
    for group, pods in needs.items():
        asked.update({of: amount * pods for of, amount in host.valid_spec.groups[group].shape.requests})

    def is_above(name: str, amounts: Counter[str], more: Counter[str]) -> bool:
        share = _share_of(state, standing, name)
        return any(_in(used, name, of) + more[of] > share[of] for of in amounts if amounts[of] and of in standing.total)

    keeps = bool(alone) and not any(is_above(name, holds, Counter()) for name in alone)
    return keeps and bool(of_host) and all(is_above(name, asked, asked) for name in of_host)


_BY_RULES = (PreemptionKind.SURPLUS, PreemptionKind.PRIORITY, PreemptionKind.RECLAIM)


def _allowed(config: CycleConfig, spec: QueueSpec) -> list[PreemptionKind]:
    """The ways in which jobs of a queue may take room."""
    both = [config.preemption or Preemption(*[PreemptionMode.NEVER] * 3), spec.preemption]
    return [kind for kind in _BY_RULES if all(getattr(of, kind.lower()) == PreemptionMode.ALLOWED for of in both)]


def _is_kept(state: State, pod: k.PodSeen) -> bool:
    """Whether a pod of the last attempt of an ended job stays, because the job cleans none up."""
    of = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
    if of is None or pod.owner is None or of.spec is None or of.seen.deleting or not of.ended:
        return False
    cleans = of.spec.clean_pod_policy != CleanPodPolicy.NONE
    return not cleans and pod.owner.attempt == of.attempt and not of.replaced_before(pod.owner)


def _protected(state: State, time_ms: int, of: JobRecord) -> str:
    """Why a job gives no room to any other; empty if it may."""
    waits = of.slots.room is not None  # for room that others give it: it has nothing to lose
    runs_s = (time_ms - _since_ms(of)) / 1000
    least_s = 0 if waits else spec_of(state, name_of(state, of)).min_runtime_s or 0
    if not of.active or of.stands_still or not (waits or of.stage in (Stage.STARTING, Stage.RUNNING)):
        return f"it is {of.stage}, and may be about to end"
    if not of.valid_spec.preemptible:
        return "it isn't preemptible"
    return f"it has run for {runs_s} s of {least_s}" if runs_s < least_s else ""


def _since_ms(of: JobRecord) -> int:
    """Since when a job has its nodes for itself: of those that others had to leave, since it began there."""
    begun = next((since_ms for event, since_ms in reversed(of.steps) if event.stage == Stage.STARTING), 0)
    return max(of.began_ms, begun) if of.slots.took else of.began_ms


def _over(state: State, of: JobRecord) -> str:
    """Why a job isn't asked for room because its leader's pod shows that it has succeeded; empty if it doesn't."""
    leader = state.pods.get(of.bound.get((0, 0), ""))
    if leader is None or leader.phase != Phase.SUCCEEDED or leader.reason or not of.valid_spec.ends_with_leader:
        return ""
    return "its leader has finished, so it would run again"


def _young(state: State, cycle: k.CycleTaken, of: JobRecord) -> str:
    """Why a job that took its nodes doesn't give its quorum yet, as the configuration says; empty if it may."""
    runs_ms, least_ms = cycle.time_ms - _since_ms(of), cycle.config.min_runtime_ms
    own_s = spec_of(state, name_of(state, of)).min_runtime_s
    kept = own_s is None and of.slots.took and of.slots.room is None
    return f"it took its nodes and has run for {runs_ms} ms of {least_ms}" if kept and runs_ms < least_ms else ""


# --- shares ------------------------------------------------------------------------------------------------


def _shares(state: State, cycle: k.CycleTaken) -> QueueStanding:
    jobs, _ = considered(state, waiting_jobs(state, cycle.time_ms))
    return QueueStanding(state, jobs, cycle.time_ms)


def line_of(state: State, queue: str) -> list[str]:
    """The way from the jobs of a queue to the root. If other queues are below this one, its own jobs have a part beside
    theirs, as if they were in one more of them: the first name on their way."""
    way = way_of(state, queue)
    divided = any(spec_of(state, name).parent == queue and way_of(state, name) for name in state.queues)
    return [_OWN + queue, *way] if way and divided else way


def _share_of(state: State, standing: QueueStanding, name: str) -> Counter[str]:
    """What a queue is entitled to, or the own jobs of a queue: all that those below it aren't."""
    queue = name.removeprefix(_OWN)
    share = Counter(standing.shares.get(queue, {}))
    for other in state.queues if name != queue else ():
        if spec_of(state, other).parent == queue:
            share.subtract(Counter(standing.shares.get(other, {})))
    return share


def _use(state: State, decisions: Sequence[Decision], *, all_pods: bool) -> dict[str, Counter[str]]:
    """Queue, or the own jobs of one → what it and those below it use after the first decisions of a cycle: with
    `all_pods` with all of them, else without those of jobs that took no room. Their further pods may have got nodes
    only later in the cycle."""
    used: dict[str, Counter[str]] = {}
    for holder in state.jobs.values():
        _count(state, used, holder, holder.placements, 1)
    for of in decisions:
        placed = of.placed if isinstance(of, k.Preempted) else of
        given = [(placed.job_uid, expand(placed.pods), 1)] if all_pods or of is not placed else []
        taken = [(victim.job_uid, expand(victim.pods), -1) for victim in getattr(of, "victims", ())]
        for uid, slots, sign in [*given, *taken]:
            _count(state, used, state.jobs[uid], slots, sign)
    return used


def _count(state: State, used: dict[str, Counter[str]], of: JobRecord, slots: Iterable[SlotKey], sign: int) -> None:
    """Add what these slots of a job request to the use of all that is on its way. A job whose pods show its success
    uses nothing of its queue any more."""
    for name in () if of.slots.done else line_of(state, name_of(state, of)):
        for group, _ in slots:
            for resource, amount in of.valid_spec.groups[group].shape.requests:
                used.setdefault(name, Counter())[resource] += sign * amount


def _above_its_share(
    state: State, cycle: k.CycleTaken, job: JobRecord, event: k.Preempted, before: Sequence[Decision]
) -> str:
    """The first queue on a job's way that its quorum lifts above its share, below all that it shares with a queue that
    it reclaims from; empty if none. What jobs below a queue on its way give it is that of this queue no more."""
    standing = _shares(state, cycle)
    used, asked = _use(state, before, all_pods=False), Counter[str]()
    for group, _ in expand(event.placed.pods):
        asked.update(dict(job.valid_spec.groups[group].shape.requests))
    own, queues = name_of(state, job), dict[str, None]()
    for victim in event.victims:
        of = state.jobs[victim.job_uid]
        queues[name_of(state, of)] = None
        if not victim.kind.of_guest:
            _count(state, used, of, expand(victim.pods), -1)
    ways = [line_of(state, queue) for queue in queues if queue != own]
    for name in line_of(state, own):
        if any(name not in way for way in ways):
            share = _share_of(state, standing, name)
            over = [of for of in asked if of in standing.total and asked[of] + _in(used, name, of) > share[of]]
            if over:
                return f"{name} ({over})"
    return ""


def _in(used: dict[str, Counter[str]], name: str, resource: str) -> int:
    return used.get(name, Counter[str]())[resource]


def _not_reclaimable(
    state: State, cycle: k.CycleTaken, job: JobRecord, victim: Victim, before: Sequence[Decision]
) -> str:
    """Why nothing may be reclaimed from a victim's queue; empty if something may."""
    own, way = line_of(state, name_of(state, job)), line_of(state, name_of(state, state.jobs[victim.job_uid]))
    others, standing = [name for name in way if name not in own], _shares(state, cycle)
    if not others or not [name for name in own if name not in way]:
        return "a queue on one of the ways doesn't lead to the root"
    if kept := [name for name in others if not spec_of(state, name.removeprefix(_OWN)).reclaimable]:
        return f"queue {kept[0]} isn't reclaimable"
    used, done = _use(state, before, all_pods=True), _done(before)
    # What a job gives up anyway is no reason to take something of others in its queue.
    ending = [of for of in state.jobs.values() if of.placements and ends_by_itself(state, of, cycle.time_ms)]
    for of in ending:
        _count(state, used, of, of.placements, -1)
    if victim.kind == PreemptionKind.RECLAIM:
        givers = [of for of in _givers(state, cycle) if of not in ending]
        spare = [unit for unit in _surplus_of(state, cycle, givers) if unit[0].uid not in done]
        for of, slots, _ in spare:
            _count(state, used, of, slots, -1)
    resources = [name for group in job.valid_spec.groups for name, amount in group.shape.requests if amount]
    for of in resources:
        if all(_in(used, name, of) > _share_of(state, standing, name)[of] for name in others):
            return ""
    return f"no queue of {others} is above its share"


# --- how much room -----------------------------------------------------------------------------------------


def _done(decisions: Sequence[Decision]) -> set[str]:
    """The jobs that got nodes or gave room in a cycle. They give none after that in the same cycle."""
    victims = [victim for of in decisions if isinstance(of, k.Preempted) for victim in of.victims]
    placed = [of.placed if isinstance(of, k.Preempted) else of for of in decisions]
    return {*[victim.job_uid for victim in victims], *[of.job_uid for of in placed]}


def _too_much(state: State, cycle: k.CycleTaken, event: k.Preempted, done: Collection[str]) -> Iterator[str]:
    """Why a smaller part of the victims would do, in the state before the decision; jobs that are `done` give none."""
    job = state.jobs[event.placed.job_uid]
    orders = (None, by_seniority(state, cycle), _turns_before(state, cycle, job))
    if all(_may_start(state, cycle, job, alone=False, guests=False, turns=turns) for turns in orders):
        yield f"{job.seen.name} takes room, though enough comes by itself"
    units = [unit for victim in event.victims for unit in _units(state, victim)]
    of_lower = [unit for unit in _surplus(state, cycle, job) if unit[0].uid not in done]
    surplus = of_lower if PreemptionKind.SURPLUS in _modes(state, cycle, job) else []
    # Who takes room that is to be left to its host does so beside what is held for that, and guests alone give it any.
    guest = bool(event.placed.hosts) and all(state.jobs[of.job_uid].slots.hosts for of in event.victims)
    kinds = () if guest else (PreemptionKind.PRIORITY, PreemptionKind.RECLAIM)
    whole = [victim for victim in event.victims if victim.kind in kinds]
    if whole and surplus and _fits(state, cycle, job, surplus):
        yield f"{job.seen.name} takes room from whole jobs, though the surplus of {len(surplus)} would do"
    for node in sorted(state.nodes.rows) if whole and surplus else ():
        spare = _surplus_of(state, cycle, [of for of in _lower(state, cycle, job) if of.uid not in done], node)
        if spare and _fits(state, cycle, job, spare):
            names = [(of.seen.name, slots) for of, slots, _ in spare]
            yield f"{job.seen.name} takes room from whole jobs, though {names} on {node} would do"
    if len(units) > _UNITS:
        return
    for count in range(len(units)):
        for part in itertools.combinations(units, count):
            if _fits(state, cycle, job, part, as_guest=guest):
                names = [(of.seen.name, slots) for of, slots, _ in part]
                yield f"{job.seen.name} takes room from {len(units)}, though {names or 'nobody'} would do"
                return


def by_seniority(state: State, cycle: k.CycleTaken) -> list[JobRecord]:
    """The waiting jobs, the most senior first."""
    return sorted(waiting_jobs(state, cycle.time_ms), key=seniority)


def _turns_before(state: State, cycle: k.CycleTaken, job: JobRecord) -> list[JobRecord]:
    """The jobs whose turns are before another one's, in their order, while nobody gets anything: between queues, shares
    decide that."""
    placer = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
    jobs, _ = considered(state, waiting_jobs(state, cycle.time_ms, by_qos=cycle.config.qos_order))
    turns = queue_turns(state, jobs, cycle.config, BUILT_IN, placer.shares, time_ms=cycle.time_ms)
    found = list[JobRecord]()
    while (turn := turns.head()) is not None and turn.job.uid != job.uid:
        found.append(turn.job)
        turns.taken(more=False, job=turn.job, pieces=[])
    return found


def _modes(state: State, cycle: k.CycleTaken, job: JobRecord) -> list[PreemptionKind]:
    return _allowed(cycle.config, spec_of(state, name_of(state, job)))


def _units(state: State, victim: Victim) -> list[Unit]:
    """What a victim loses, in the smallest parts that can be spared alone."""
    of, slots = state.jobs[victim.job_uid], tuple(expand(victim.pods))
    if victim.kind.whole:
        return [(of, slots, True)]
    return [(of, unit, False) for unit in _groups(of, slots)]


def _groups(of: JobRecord, slots: Collection[SlotKey]) -> list[tuple[SlotKey, ...]]:
    """Slots by worker group, the one with the highest first index first."""
    found: dict[tuple[int, int], list[SlotKey]] = {}
    for group, index in sorted(slots, key=lambda slot: (-slot[1], -slot[0])):
        found.setdefault((group, of.valid_spec.groups[group].worker_group(index)[0]), []).append((group, index))
    return [tuple(found[unit]) for unit in sorted(found, key=lambda unit: (-unit[1], -unit[0]))]


def _surplus(state: State, cycle: k.CycleTaken, job: JobRecord) -> list[Unit]:
    """All workers above their quorums, of jobs in the same queue whose priority is lower."""
    return _surplus_of(state, cycle, _lower(state, cycle, job))


def _givers(state: State, cycle: k.CycleTaken) -> list[JobRecord]:
    """The jobs that may give room to any other."""
    return [of for of in state.jobs.values() if of.spec is not None and not _protected(state, cycle.time_ms, of)]


def _surplus_of(state: State, cycle: k.CycleTaken, jobs: Iterable[JobRecord], node: str = "") -> list[Unit]:
    """All workers of these jobs above their quorums, or as many of those on a node as the quorums can spare. The
    others of a worker set may look for its first pod by name."""
    found: list[Unit] = []
    for of in jobs:
        waits = not of.quorum_placed() or of.slots.room is not None
        if BUILT_IN.pod_policy(of, cycle.config).whole or waits:
            continue
        left, groups = set(of.provided), of.valid_spec.groups
        for unit in _groups(of, [slot for slot in of.placements if slot[0] != LEADER_GROUP]):
            group, index = min(unit)
            there = not node or node in [of.placements[slot] for slot in unit]
            looked_for = node and index == 0 and groups[group].rendezvous is not None
            if there and not looked_for and not needs(of, unit, left):
                left -= {*unit}
                found.append((of, unit, False))
    return found


def needs(of: JobRecord, slots: Iterable[SlotKey], there: Collection[SlotKey]) -> bool:
    """Whether a job's quorum needs some of these slots, beside the others that are there."""
    rest = {*there}.difference(slots)
    before, after = by_group(of.valid_spec, there), by_group(of.valid_spec, rest)
    lacks = any(has < min(few, had) for has, few, had in zip(after, of.least, before, strict=True))
    return lacks or not is_quorum(of.valid_spec, rest) or bool(parted(of.valid_spec, rest))


def _lower(state: State, cycle: k.CycleTaken, job: JobRecord, *, guests: bool = False) -> list[JobRecord]:
    """The jobs in a job's queue that may give it room, because their priority is lower. Those for whose end another
    job's reservation waits, and its guests, may not, if that job's turn is before; with `guests`, its guests may."""
    others = {uid: known.decided for uid, known in state.reservations.items() if uid != job.uid}
    no_guests = [of for uid, of in others.items() if of.start_ms or _takes_at_once(state.jobs[uid], cycle)]
    awaited = {uid: None for decided in no_guests for uid in decided.awaits}
    if cycle.config.guests and not guests:
        awaited.update({of.uid: None for of in state.jobs.values() if not others.keys().isdisjoint(of.slots.hosts)})
    return [
        of
        for of in state.jobs.values()
        if of.uid not in awaited
        and not (of.spec is None or _protected(state, cycle.time_ms, of) or name_of(state, of) != name_of(state, job))
        and priority_of(state, of) < priority_of(state, job)
    ]


def _fits(
    state: State,
    cycle: k.CycleTaken,
    job: JobRecord,
    units: Sequence[Unit],
    *,
    leave: bool = True,
    as_guest: bool = False,
) -> bool:
    """Whether a quorum fits once these units have left, and with `leave` all pods that leave anyway, beside what is
    reserved for others or as their guest."""
    placer = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
    hold_for_others(state, placer, cycle, job, due=as_guest)
    vacating = Vacating(state, placer.placing)
    if leave:
        stay = hanging(state, cycle.time_ms, cycle.config.room_bound_ms)
        vacating.release(vacating.of_pods([pod for pod in leaving(state) if pod.uid not in stay]))
    for of, slots, whole in units:
        vacating.release(vacating.of_job(of, slots, whole=whole))
    return placer.fits(as_counted(state, job))


def _preempting(state: State, placer: Placer, cycle: k.CycleTaken) -> PreemptionSearch:
    jobs, _ = considered(state, waiting_jobs(state, cycle.time_ms))
    return PreemptionSearch(state, placer, jobs)


def hold_for_others(
    state: State,
    placer: Placer,
    cycle: k.CycleTaken,
    job: JobRecord,
    *,
    due: bool = False,
    left: bool = False,
    turns: Sequence[JobRecord] | None = None,
) -> Reservations:
    """Take the reservations of other jobs out of the placer's view; with `due` only those whose guest the job can't be:
    of jobs that can start with them once their guests have left, and those who leave anyway, or that are expected to
    start before the job could have left again; and what those before it are to get that fit as soon as those have left
    who leave anyway. With `left`, also what those are still to leave for them whose end they await: that isn't there
    for another job. Each of those before it gets its room as if its turn were the first, or with `turns` one after the
    other, in that order: who comes later may then get it elsewhere, or none."""
    others = _preempting(state, placer, cycle)
    reservations = Reservations(state, placer, [], share_rules=others)
    held, search = reservations.held, reservations._search
    ahead = []
    for other in waiting_jobs(state, cycle.time_ms):
        # Further pods have their turns after the quorums of other jobs. By shares, a less senior job may be before.
        by_shares = BUILT_IN.queue_policy_name(other, cycle.config) != "Priority"
        before = job.placements or name_of(state, other) != name_of(state, job) or seniority(other) < seniority(job)
        before = before or by_shares
        if other.uid != job.uid and not other.placements and (before or other.uid in state.reservations):
            ahead.append(other)
    if turns is not None:
        some = {other.uid: None for other in ahead}
        ahead = [other for other in turns if other.uid in some]
    coming = {} if turns is not None else {other.uid: search.after_departures(other) for other in ahead}
    for uid, reservation in state.reservations.items():
        decided, other = reservation.decided, state.jobs[uid]
        present = decided.based_on == other.version and all(state.nodes.has(of.node) for of in decided.pods)
        if uid != job.uid and present:
            held.hold(other, decided, coming.get(uid))
    search._tried_after_departures = 0
    for other in ahead:
        if other.uid not in held:  # or beside what was held before its turn
            found, again = coming.get(other.uid), search.after_departures(other)
            first = found or again
            if first is not None:
                held.hold(other, first, again if found is not None else None)
    for uid in [*held] if due else ():
        if uid in state.reservations and not coming.get(uid) and not _is_closed(state, cycle, job, state.jobs[uid]):
            held.release(uid)
    for each in held.values() if left else ():
        placer.view.hold(each.rooms.rows, each.to_come)
    return reservations


def limits_kept(state: State, placer: Placer, cycle: k.CycleTaken, reservations: Reservations) -> KeptLimits:
    """The limits that are kept for others once all jobs have had their turns: also for those that lack room by now,
    and have none reserved."""
    waiting, backfill = waiting_jobs(state, cycle.time_ms), Backfill(state, placer, reservations)
    limits = KeptLimits(state, placer, waiting, reservations=reservations, backfill=backfill)
    limits._turned.update(state.kept_limits)
    for job in waiting:
        known = state.kept_limits.get(job.uid)
        limit = known.decided.limit if known is not None else None
        shortage = job.waits.shortage if job.waits is not None else None
        lacks_room = isinstance(shortage, LackOfNodes) and not shortage.infeasible
        if limit is not None and lacks_room and job.uid not in reservations.held:
            limits._enter(job, limit)
    return limits


def _is_closed(state: State, cycle: k.CycleTaken, job: JobRecord, host: JobRecord) -> bool:
    """Whether a job can't be a guest in a host's reserved room."""
    start_ms = state.reservations[host.uid].decided.start_ms
    late = leaves_late(job, cycle.time_ms, start_ms)
    return (
        late
        or job.uid in host.slots.asked
        or (not job.placements and _uses_its_quota(state, cycle, job.uid, host.uid))
        or _may_start(state, cycle, host)
    )


def _uses_its_quota(
    state: State, cycle: k.CycleTaken, uid: str, of_host: str, of_job: Counter[int] | None = None
) -> bool:
    """Whether a ResourceQuota leaves less than a host with reserved room needs once so many pods of a job's groups,
    None for its quorum, use it too. The API server counts the pods of a guest until they are gone, so it would refuse
    those of the host. And as soon as the host lacks a quota, it has no reservation any more (decision 77)."""
    job, host = state.jobs[uid], state.jobs[of_host]
    if job.seen.namespace != host.seen.namespace:
        return False
    quotas = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms).placing.quotas
    needed = pods_of(quorum_needs(job, BUILT_IN.pod_policy(job, cycle.config))) if of_job is None else of_job
    for group, pods in needed.items():
        quotas.take(job, group, pods)
    lacks = quotas.lacks(host, state.reservations[of_host].pods)
    return any(lack.limit == LimitKind.QUOTA for lack in lacks)


def leaves_late(job: JobRecord, time_ms: int, start_ms: int) -> bool:
    """Whether a grace period of a job beyond the usual 30 s is over only after a start; none is if that is unknown."""
    by_ms = [time_ms + of.grace_s * 1000 for of in job.valid_spec.groups if of.count and of.grace_s > 30]
    return start_ms > 0 and max(by_ms, default=0) >= start_ms


def _may_start(
    state: State,
    cycle: k.CycleTaken,
    job: JobRecord,
    *,
    alone: bool = True,
    guests: bool = True,
    replaced: bool = True,
    taken: k.Placed | None = None,
    turns: Sequence[JobRecord] | None = None,
) -> bool:
    """Whether a quorum fits once those have left who leave anyway, assumed pods too, and with `guests` its guests;
    unless it is `alone`, beside the reservations of others, with their `turns` as for `hold_for_others`. What a guest
    of several leaves is held for the others. The room of a placement that is `taken` isn't there. With `replaced`, pods
    leave room too that are being deleted and that their jobs may replace where they are."""
    placer = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
    if not alone:
        hold_for_others(state, placer, cycle, job, left=True, turns=turns)
    if taken is not None:
        _take_room(state, placer, taken)
    vacating = Vacating(state, placer.placing)
    vacating.release(vacating.of_pods(vacating.leaving))
    guests = guests and not takes_none(job, cycle.config)  # else it asks none of them to leave
    goes: dict[str, Unit] = {}
    preempting = _preempting(state, placer, cycle)
    for of in state.jobs.values():
        asked = guests and of.stage in _ASKED
        is_guest, lent = asked and job.uid in of.slots.hosts, of.slots.lent_by(job.uid) if asked else set[SlotKey]()
        if not alone and not state.reservations.keys().isdisjoint({*of.slots.hosts} - {job.uid}):
            is_guest = False
        stays = is_guest and preempting.stays(of, job)
        lent = set() if stays else lent  # who needn't leave isn't asked for a part either
        leaves_now = (is_guest and not stays) or ends_by_itself(state, of, cycle.time_ms)
        if of.placements and (leaves_now or (lent and _needs(placer, of, lent))):
            goes[of.uid] = (of, tuple(sorted(of.placements)), True)
        elif lent:
            goes[of.uid] = (of, tuple(sorted(lent)), False)
    for of, slots, whole in goes.values():
        vacating.release(vacating.of_job(of, slots, whole=whole))
    for each in vacating.of_assumed():
        vacating.release(each)
    leave = [of.bound[slot] for of, slots, _ in goes.values() for slot in slots if slot in of.bound]
    gone = {pod.uid for pod in vacating.leaving}.union(vacating.hanging, leave)
    by_ms = cycle.time_ms + cycle.config.room_bound_ms
    deleted = [state.pods[uid] for uid in state.deleting if uid not in gone]
    others = [pod for pod in deleted if pod.owner is None and 0 < pod.times.leave_by_ms <= by_ms]
    of_slots = [pod for pod in deleted if pod.owner is not None] if replaced else []
    vacating.release(vacating.of_pods([pod for pod in (*others, *of_slots) if holds(pod)]))
    return placer.fits(job)


def _take_room(state: State, placer: Placer, placed: k.Placed) -> None:
    """Take the room of these pods out of the placer's view."""
    rows, groups = placer.view.node_index.rows(), state.jobs[placed.job_uid].valid_spec.groups
    for of in placed.pods:
        amounts = placer.view.amounts(groups[of.group].shape.requests)
        count = sum(last - first + 1 for first, last in of.indices)
        placer.view.hold(np.array([rows[of.node]]), np.array([amounts * count]))


def _needs(placer: Placer, job: JobRecord, slots: Collection[SlotKey]) -> bool:
    """Whether a job can't run without these slots."""
    return placer.begin(job).policy.whole or needs(job, slots, job.provided)


def as_counted(state: State, job: JobRecord) -> JobRecord:
    """A job with the priority that counts in its queue."""
    copied = job.copy()
    copied.spec = msgspec.structs.replace(job.valid_spec, priority=priority_of(state, job))
    return copied


# --- what changed ------------------------------------------------------------------------------------------


def edited(before: k.JobSeen, now: k.JobSeen) -> bool:
    """Whether a user has changed or deleted a TYJob in between."""
    return before.generation != now.generation or before.deleting != now.deleting or before.spec != now.spec


def less(before: NodeFacts | None, now: NodeFacts | None) -> bool:
    """Whether a node is worse than before for a job that is to start there."""
    if before is None or now is None:
        return True
    smaller = [name for name, amount in before.allocatable if dict(now.allocatable).get(name, 0) < amount]
    return bool(smaller) or not now.ready or now.cordoned or before.taints != now.taints
