"""A job with a reservation starts no later than it was first promised, as long as what was expected comes true.

A promise begins with a reservation that has a known start, of a job before which no other one has a reservation. It is
kept if the job gets its nodes in the first cycle at or after that start, or in an earlier one. It is void as soon as
the log shows one of these:

- A job that was expected to have left by then still has pods (`OUTLIVED`). Of a job that had nodes already, the
  expectation at the time of the promise counts, of others that of the cycle that placed them: with guests only their
  deadlines, because what a job behind expects of itself is no excuse.
- A node closes, goes or becomes smaller, or a pod of no TYJob comes to one (`NODES`).
- A job before it in the order gets nodes or a reservation, in a cycle on the state before its entry (`BEFORE_IT`).
- Somebody else than a cycle on the state before its entry gives nodes to a job (`STALE`).
- The job is edited, suspended, deleted or kept out of its queue, it backs off, or the API server refuses its pods
  (`ITSELF`).
- Queues, namespaces, priority classes, quotas or LimitRanges change (`RULES`).
- A job of another queue gets nodes while it would lift its own queue above its share (`BEYOND`).
- Room of a given-up slot is kept for a pod that may still come (`ASSUMED`).

No promise begins where limits of queues or quotas could keep the job from nodes that are free.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.node import NodeFacts
from arranger.projections.derived.awaited_room import refused_by_dry_run
from arranger.projections.derived.deadlines import deadline_left_ms
from arranger.projections.derived.departing import ends_by_itself
from arranger.projections.derived.expected_ends import expected_end, expected_runtime_ms
from arranger.projections.derived.queue_counts import is_other
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.state import State, Verdict
from arranger.projections.verdicts.ownership import attributed, awaits_own_pods
from arranger.scheduling import queues_view
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.waiting import in_order
from arranger.scheduling.room.vacating import leaving
from tests.simulation.queue_rules import name_of, way_of
from tests.simulation.room_rules import Decision, edited, less, spec_of

#: The sites of promises that are kept, without and with jobs behind that got nodes meanwhile.
KEPT, PASSED = "a reserved job starts as promised", "a reserved job starts as promised after others behind it"
OUTLIVED, NODES, BEFORE_IT, STALE = "outlived", "nodes", "one before it", "stale"
ITSELF, RULES, ASSUMED, LOST, BEYOND = "itself", "rules", "assumed", "the log is lost", "beyond its share"
#: The watches of what rules are made of.
_RULES = (k.Watched.QUEUE, k.Watched.NAMESPACE, k.Watched.PRIORITY_CLASS, k.Watched.QUOTA, k.Watched.LIMIT_RANGE)
#: So long a job counts as one that is about to end after one of its workers has finished.
_FINISHING_MS = 30_000


@dataclass
class Promise:
    """A start that was promised, in milliseconds since 1970."""

    start_ms: int
    seen: k.JobSeen
    #: (UID, attempt) → until when its pods were expected to have left, of each job with nodes that is to leave before.
    ends: dict[tuple[str, int], int]
    #: Whether a job behind got nodes meanwhile.
    passed: bool = False


@dataclass
class Before:
    """What is needed of the state before an entry; `order` has the jobs that waited then, as a cycle sees them."""

    order: list[str]
    run_ms: dict[str, int | None]
    facts: dict[str, NodeFacts | None]
    rules: tuple[object, ...]
    #: The jobs with promises that would lift a queue on their way above its share.
    beyond: dict[str, None]


class Promises:
    """Follows the promises of a log, entry by entry."""

    def __init__(self, config: CycleConfig, *, hit: Callable[[str], None]) -> None:
        """`hit` is called with `KEPT` or `PASSED` for each promise that is kept."""
        self._config = config
        self._hit = hit
        #: The number of promises that were kept, and of those of them for which a job behind got nodes meanwhile.
        self.kept = self.passed = 0
        #: How much later than promised a job got its nodes at most, in milliseconds.
        self.late_ms = 0
        self.void: Counter[str] = Counter()
        self._open: dict[str, Promise] = {}

    def forget(self) -> None:
        """The log, or its end, is lost."""
        for uid in [*self._open]:
            self._let_go(uid, LOST)

    def _let_go(self, uid: str, why: str) -> None:
        del self._open[uid]
        self.void[why] += 1

    def before(self, state: State, entry: Entry) -> Before | None:
        """Called before an entry is folded."""
        events, cycle = entry.batch.events, cycle_of(entry)
        if not self._open and not any(isinstance(event, k.Reserved) for event in events):
            return None
        names = [event.name for event in events if k.seen_or_gone(event, k.NodeSeen)]
        facts = {name: state.nodes.facts_of(name) for name in names}
        order, run_ms, beyond = [], dict[str, int | None](), dict[str, None]()
        if cycle is not None:
            order = [job.uid for job in in_order(state, cycle.config, time_ms=cycle.time_ms)]
            jobs = [state.jobs[uid] for uid in _placed(events) if uid in state.jobs]
            run_ms = {job.uid: _to_run_ms(state, job, cycle) for job in jobs}
            promised = {*self._open, *(event.job_uid for event in events if isinstance(event, k.Reserved))}
            exceeding = (uid for uid in sorted(promised) if uid in state.jobs and _exceeds(state, state.jobs[uid]))
            beyond = dict.fromkeys(exceeding)
        return Before(order, run_ms, facts, _rules(state) if _changes_rules(events) else (), beyond)

    def after(
        self, state: State, entry: Entry, verdicts: Mapping[int, Verdict], before: Before | None
    ) -> tuple[str, str]:
        """Called after an entry is folded; returns UID and problem of a job that isn't served as promised."""
        if before is None:
            return "", ""
        numbered = enumerate(entry.batch.events, start=entry.first)
        accepted = [event for at, event in numbered if at not in verdicts or verdicts[at].accepted]
        cycle = cycle_of(entry)
        for uid, promise in [*self._open.items()]:
            job = state.jobs.get(uid)
            if job is not None and job.placements:
                self._keep(state, uid, promise)
            elif why := _why_void(state, accepted, before, promise, cycle):
                self._let_go(uid, why)
            elif cycle is not None:
                _note_placed(promise, state, accepted, before, cycle)
        if cycle is not None:
            self._begin(state, cycle, accepted, before)
        return self._judge(state)

    def _keep(self, state: State, uid: str, promise: Promise) -> None:
        del self._open[uid]
        self.kept += 1
        self.passed += promise.passed
        self._hit(PASSED if promise.passed else KEPT)
        self.late_ms = max(self.late_ms, state.time_ms - promise.start_ms)

    def _begin(self, state: State, cycle: k.CycleTaken, accepted: Sequence[k.Event], before: Before) -> None:
        """Note the promises of a cycle."""
        for event in accepted:
            if not isinstance(event, k.Reserved) or not event.start_ms or event.job_uid in self._open:
                continue
            job = state.jobs[event.job_uid]
            passed_by = _beyond(state, job, before, _placed(accepted))
            if _first(state, job.uid, before.order) and not _limited(state, job) and not passed_by:
                promise = Promise(event.start_ms, job.seen, _ends(state, event.start_ms, cycle))
                self._open[job.uid] = promise
                _note_placed(promise, state, accepted, before, cycle)

    def _judge(self, state: State) -> tuple[str, str]:
        """The first job that a cycle at the present time gives no nodes, although its time has come."""
        for uid, promise in [*self._open.items()]:
            if state.time_ms < promise.start_ms or not state.synced:
                continue
            why = _outlived(state, promise) or (ASSUMED if state.assumed else "")
            if not why and (_still_there(state) or awaits_own_pods(state, state.jobs[uid])):
                why = OUTLIVED
            if why:
                self._let_go(uid, why)
                continue
            served = _placed(take_cycle(state, self._config, state.time_ms))
            order = [job.uid for job in in_order(state, self._config)]
            if uid not in order:
                self._let_go(uid, ITSELF)
            elif any(of in order[: order.index(uid)] for of in served):
                self._let_go(uid, BEFORE_IT)
            elif self._config.dry_run and state.jobs[uid].dry_run is None and _takes_room(state, uid):
                continue  # nobody is asked to leave before its pods have been tried
            elif _takes_room(state, uid) and _some_finish(state):
                continue  # nobody is asked to leave for what comes within seconds (decision 81)
            elif uid not in served and refused_by_dry_run(state.jobs[uid]):
                self._let_go(uid, ITSELF)
            elif uid not in served:
                late_ms = state.time_ms - promise.start_ms
                return uid, f"{promise.seen.name} was promised nodes {late_ms} ms ago, and a cycle gives it none"
        return "", ""


def cycle_of(entry: Entry) -> k.CycleTaken | None:
    """The cycle of an entry, if it was taken by a scheduler on the state before the entry."""
    cycle = next((event for event in entry.batch.events if isinstance(event, k.CycleTaken)), None)
    fresh = cycle is not None and cycle.base == entry.first - 1 and entry.batch.writer.startswith("scheduler@")
    return cycle if fresh else None


def _placed(events: Sequence[k.Event]) -> list[str]:
    """The jobs to which these events give nodes, by UID."""
    return [(of.placed if isinstance(of, k.Preempted) else of).job_uid for of in events if isinstance(of, Decision)]


# --- what makes a promise void -----------------------------------------------------------------------------


def _why_void(
    state: State, accepted: Sequence[k.Event], before: Before, promise: Promise, cycle: k.CycleTaken | None
) -> str:
    """Which condition of a promise an entry broke; empty if none."""
    uid = promise.seen.uid
    job, placed = state.jobs.get(uid), _placed(accepted)
    if job is None or not job.active or job.suspended or edited(promise.seen, job.seen):
        return ITSELF
    if before.rules and before.rules != _rules(state):
        return RULES
    if any(less(facts, state.nodes.facts_of(name)) for name, facts in before.facts.items()):
        return NODES
    if any(isinstance(of, k.PodSeen) and of.node and attributed(state, of).owner is None for of in accepted):
        return NODES
    if placed and cycle is None:
        return STALE
    if _beyond(state, job, before, placed):
        return BEYOND
    if cycle is not None and uid not in before.order:
        return ITSELF
    first = cycle is None or _first(state, uid, before.order, placed)
    return "" if first else BEFORE_IT


def _beyond(state: State, job: JobRecord, before: Before, placed: Sequence[str]) -> bool:
    """Whether jobs of other queues get nodes while this one would lift its own queue above its share."""
    return job.uid in before.beyond and any(name_of(state, state.jobs[of]) != name_of(state, job) for of in placed)


def _first(state: State, uid: str, order: Sequence[str], placed: Sequence[str] = ()) -> bool:
    """Whether no job before this one has a reservation, or is among the placed ones."""
    if uid not in order:
        return False
    ahead = dict.fromkeys(order[: order.index(uid)])
    return not any(of in ahead for of in (*state.reservations, *placed))


def _limited(state: State, job: JobRecord) -> bool:
    """Whether limits could keep a job from nodes that are free."""
    ways = [spec_of(state, name) for name in way_of(state, name_of(state, job))]
    of_way = any(spec.limited or spec.max_waiting is not None for spec in ways)
    guaranteed = any(seen.spec is not None and seen.spec.guarantee for seen in state.queues.values())
    return of_way or guaranteed or bool(state.quotas.get(job.seen.namespace))


def _exceeds(state: State, job: JobRecord) -> bool:
    """Whether a waiting job would lift its queue, or one above it, above its share."""
    views, amounts = queues_view(state).queues, Counter[str]()
    for group in job.valid_spec.groups:
        for resource, amount in group.shape.requests:
            amounts[resource] += amount * group.count
    ways = [views[name] for name in way_of(state, name_of(state, job)) if name in views]
    return any(of.used.get(one, 0) + amount > of.share.get(one, 0) for of in ways for one, amount in amounts.items())


def _changes_rules(events: Sequence[k.Event]) -> bool:
    return any(isinstance(event, k.WatchRefused) or k.watch_of(event) in _RULES for event in events)


def _rules(state: State) -> tuple[object, ...]:
    """What users and administrators say on queues, namespaces, priority classes, quotas and LimitRanges."""
    queues = [(name, seen.spec) for name, seen in sorted(state.queues.items())]
    spaces = [(name, of.labels, of.queue) for name, of in sorted(state.namespaces.items())]
    classes = [(name, of.value) for name, of in sorted(state.priority_classes.items())]
    quotas = [(name, [*of.values()]) for name, of in sorted(state.quotas.items())]
    limits = [(name, [*of.values()]) for name, of in sorted(state.limit_ranges.items())]
    return queues, spaces, classes, quotas, limits


# --- what is expected --------------------------------------------------------------------------------------


def _ends(state: State, start_ms: int, cycle: k.CycleTaken) -> dict[tuple[str, int], int]:
    """The expected ends until a start, of the jobs that had nodes before a cycle."""
    found = {}
    for job in state.jobs.values():
        end = expected_end(state, job, cycle.config, cycle.time_ms) if job.placements else None
        end_ms = end.end_ms if end is not None else _end_after_others(state, job, cycle)
        if end_ms is not None and end_ms <= start_ms:
            found[job.uid, job.attempt] = end_ms
    return found


def _end_after_others(state: State, job: JobRecord, cycle: k.CycleTaken) -> int | None:
    """The expected end of a job that took room and starts once others have left within their grace periods."""
    room, run_ms = job.slots.room, expected_runtime_ms(state, job, cycle.config, cycle.time_ms)
    if room is None or run_ms is None:
        return None
    return max(cycle.time_ms, room.until_ms - cycle.config.room_bound_ms) + run_ms


def _to_run_ms(state: State, job: JobRecord, cycle: k.CycleTaken) -> int | None:
    """How long a job that a cycle gives nodes may run so that others can count on its end."""
    if cycle.config.guests:
        return deadline_left_ms(job, cycle.time_ms) if job.spec is not None else None
    return expected_runtime_ms(state, job, cycle.config, cycle.time_ms)


def _note_placed(
    promise: Promise, state: State, accepted: Sequence[k.Event], before: Before, cycle: k.CycleTaken
) -> None:
    """Note until when those are expected to leave that a cycle gave nodes."""
    for uid in _placed(accepted):
        run_ms = before.run_ms.get(uid)
        promise.passed = promise.passed or uid in before.order
        if run_ms is not None and cycle.time_ms + run_ms <= promise.start_ms:
            promise.ends[uid, state.jobs[uid].attempt] = cycle.time_ms + run_ms


def _outlived(state: State, promise: Promise) -> str:
    """Whether pods are there that were expected to have left by now."""
    late = [of for of, end_ms in promise.ends.items() if end_ms <= state.time_ms]
    pods = [(pod.owner.job_uid, pod.owner.attempt) for pod in state.pods.values() if pod.owner and holds(pod)]
    held = [(job.uid, job.attempt) for job in state.jobs.values() if job.placements]
    return OUTLIVED if any(of in late for of in (*pods, *held)) else ""


def _takes_room(state: State, uid: str) -> bool:
    """Whether guests of a job, or others, would give room to it."""
    waits = state.jobs[uid].waits
    guests = any(uid in job.slots.hosts and job.placements for job in state.jobs.values())
    return guests or (waits is not None and waits.shortage.untried)


def _some_finish(state: State) -> bool:
    """Whether a job counts as one that is about to end: a worker of it has finished, and no longer ago than 30 s."""
    finishing = (of for of in state.jobs.values() if of.placements and of.slots.finished)
    return any(0 <= state.time_ms - of.times.finished_ms < _FINISHING_MS for of in finishing)


def _still_there(state: State) -> bool:
    """Whether pods haven't left yet that were expected to leave within their grace periods."""
    others = any(is_other(state.pods[uid]) for uid in state.deleting)
    return (
        others
        or bool(leaving(state))
        or any(of.placements and ends_by_itself(state, of, state.time_ms) for of in state.jobs.values())
    )
