"""One scheduling cycle: (projection, configuration, time told) → the decisions, as events.

A pure function: the same inputs give the same events, byte for byte, which is what `arranger verify` holds it to.
The state is only read; what the cycle places is held in its own view. A quorum is placed whole or not at all, and
what a failed attempt held is free again at once.
"""

from dataclasses import dataclass, field

from arranger.events.kinds import CycleTaken, Event, Placed, Waits
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, JobSpec, ScheduleState
from arranger.projections.jobs import LEADER, JobRecord, PlaceKey, compact
from arranger.projections.nodes import Amounts
from arranger.projections.state import State
from arranger.scheduling import queue
from arranger.scheduling.filters import Filters
from arranger.scheduling.policies import binpack
from arranger.scheduling.view import ClusterView

GANG = "Gang"

#: Name and version of every policy here; recorded with each cycle.
VERSIONS = ((binpack.NAME, binpack.VERSION), (GANG, 1), (queue.NAME, queue.VERSION))


@dataclass(slots=True)
class _Shortage:
    """Where placing a job stopped: the group whose next pod found no node, and why not, node by node."""

    group: int
    reasons: tuple[tuple[str, int], ...]
    found_room: int
    asked: int
    infeasible: bool = False


@dataclass(slots=True)
class _Attempt:
    """What the cycle does for one job."""

    job: JobRecord
    placed: dict[PlaceKey, str] = field(default_factory=dict)
    taken: list[tuple[int, Amounts, int]] = field(default_factory=list)
    shortage: _Shortage | None = None
    quorum_stands: bool = False


class Witness:
    """Looks on while a cycle is taken, to explain it. Both calls must leave the view as they found it."""

    def placing(
        self,
        job: JobRecord,
        group: int,
        *,
        indices: list[int],
        chosen: list[tuple[int, int]],
        view: ClusterView,
        filters: Filters,
    ) -> None:
        """These indices get the chosen `(row, pods)`, in this order; nothing of it is held in the view yet."""

    def fell_short(
        self, job: JobRecord, group: int, *, found: int, asked: int, view: ClusterView, filters: Filters
    ) -> None:
        """The group's next pod found no node, after `found` of `asked` pods did; those are held in the view."""


def take_cycle(state: State, config: CycleConfig, told_ms: int, witness: Witness | None = None) -> tuple[Event, ...]:
    """All events of one cycle on `state`, or nothing when there is nothing to say."""
    jobs = queue.waiting(state)
    if not jobs or not state.synced:
        return ()
    cycle = _Cycle(state, config, witness)
    attempts: dict[str, _Attempt] = {}
    for level in queue.levels(jobs):
        for job in level:
            attempts[job.uid] = cycle.place_quorum(job)
        for job in level:
            cycle.place_further(attempts[job.uid])
    decisions = [event for job in jobs for event in _decisions(attempts[job.uid], config, told_ms)]
    return (CycleTaken(state.offset, told_ms, config), *decisions) if decisions else ()


class _Cycle:
    """The working view of one cycle."""

    def __init__(self, state: State, config: CycleConfig, witness: Witness | None) -> None:
        self._config = config
        self._witness = witness
        self._view = ClusterView(state.nodes)
        self._filters = Filters(self._view)
        self._empty: tuple[ClusterView, Filters] | None = None
        self._infeasible_specs: dict[JobSpec, bool] = {}

    def place_quorum(self, job: JobRecord) -> _Attempt:
        """Place what the job's quorum still lacks, whole or not at all."""
        attempt = _Attempt(job)
        mark = self._view.mark()
        shortage = self._place(self._view, self._filters, attempt, quorum(job, self._config))
        attempt.quorum_stands = shortage is None
        if shortage is not None:
            self._view.give_back(mark, attempt.taken)
            attempt.placed.clear()
            # A job that has nodes ran on them: whatever its quorum has grown to since, it can wait for more.
            shortage.infeasible = not job.placements and self._infeasible(job)
            attempt.shortage = shortage
        return attempt

    def place_further(self, attempt: _Attempt) -> None:
        """Place pods beyond a standing quorum as room allows, one set after the other."""
        if not attempt.quorum_stands:
            return
        for group, indices in _further(attempt).items():
            shortage = self._place(self._view, self._filters, attempt, {group: indices})
            attempt.shortage = attempt.shortage or shortage

    def _place(
        self, view: ClusterView, filters: Filters, attempt: _Attempt, needs: dict[int, list[int]]
    ) -> _Shortage | None:
        """Place the needed indices group by group; stops at the first group that finds too little room."""
        spec = attempt.job.spec
        assert spec is not None
        found = 0
        for group, indices in needs.items():
            shape = spec.groups[group].shape
            request = view.request(shape)
            rest = iter(indices)
            chosen = binpack.fill(view, filters.room(shape), shape, len(indices), self._config)
            witness = self._witness if view is self._view else None
            if witness is not None:
                witness.placing(attempt.job, group, indices=indices, chosen=chosen, view=view, filters=filters)
            for row, count in chosen:
                view.take(row, request, count)
                attempt.taken.append((row, request, count))
                found += count
                for _ in range(count):
                    attempt.placed[(group, next(rest))] = view.names[row]
            if next(rest, None) is not None:
                asked = sum(len(wanted) for wanted in needs.values())
                if witness is not None:
                    witness.fell_short(attempt.job, group, found=found, asked=asked, view=view, filters=filters)
                reasons = filters.reasons(shape) if view is self._view else ()  # an empty cluster's are told to nobody
                return _Shortage(group, reasons, found, asked)
        return None

    def _infeasible(self, job: JobRecord) -> bool:
        """Whether the quorum would not even fit the present nodes with nothing on them and all of them healthy."""
        assert job.spec is not None
        known = self._infeasible_specs.get(job.spec)
        if known is None:
            if self._empty is None:
                view = self._view.emptied()
                self._empty = (view, Filters(view, ignore_health=True))
            view, filters = self._empty
            scratch = _Attempt(job)
            mark = view.mark()
            known = self._place(view, filters, scratch, quorum(job, self._config, afresh=True)) is not None
            view.give_back(mark, scratch.taken)
            self._infeasible_specs[job.spec] = known
        return known


def quorum(job: JobRecord, config: CycleConfig, *, afresh: bool = False) -> dict[int, list[int]]:
    """Group → indices that the quorum still needs (`afresh`: as if nothing were placed), the leader first.

    The quorum is the leader and `min_workers` workers, worker sets in the order given; under Gang every pod.
    """
    spec = job.spec
    assert spec is not None
    gang = (spec.pod_policy or config.pod_policy) == GANG
    placed = {} if afresh else job.placements
    needs: dict[int, list[int]] = {} if LEADER in placed else {LEADER_GROUP: [0]}
    missing = (spec.total_workers if gang else spec.min_workers) - sum(1 for group, _ in placed if group)
    for number, group in enumerate(spec.groups[1:], start=1):
        free = [index for index in range(group.count) if (number, index) not in placed][: max(missing, 0)]
        if free:
            needs[number] = free
            missing -= len(free)
    return needs


def _further(attempt: _Attempt) -> dict[int, list[int]]:
    spec = attempt.job.spec
    assert spec is not None
    return {
        number: free
        for number, group in enumerate(spec.groups)
        if (
            free := [
                index
                for index in range(group.count)
                if (number, index) not in attempt.job.placements and (number, index) not in attempt.placed
            ]
        )
    }


def _decisions(attempt: _Attempt, config: CycleConfig, told_ms: int) -> list[Event]:
    """The events for one job. A reason goes before the placement, which makes the version it is based on old."""
    job = attempt.job
    events: list[Event] = []
    if attempt.shortage is not None:
        waits = _waits(attempt, attempt.shortage, config, told_ms)
        if _is_news(job, waits, config, told_ms):
            events.append(waits)
    if attempt.placed:
        whole = len(job.placements) + len(attempt.placed) == job.pods_wanted()
        state = ScheduleState.SUCCEED if whole else ScheduleState.PARTLY
        nodes = len(set(attempt.placed.values()))
        message = f"{len(attempt.placed)} pods placed on {nodes} node{'s' if nodes > 1 else ''}"
        events.append(Placed(job.uid, job.version, job.attempt, state, compact(attempt.placed), message))
    return events


def _waits(attempt: _Attempt, shortage: _Shortage, config: CycleConfig, told_ms: int) -> Waits:
    job = attempt.job
    assert job.spec is not None
    state = ScheduleState.PARTLY if attempt.quorum_stands or job.placements else ScheduleState.UNSCHEDULED
    if shortage.infeasible and job.infeasible_since_ms:
        overdue = told_ms - job.infeasible_since_ms >= config.infeasible_grace_ms
        state = ScheduleState.FAILED if overdue else state
    message = _describe(job.spec.groups[shortage.group].name, shortage, whole=not attempt.quorum_stands)
    return Waits(job.uid, job.version, state, shortage.infeasible, shortage.group, shortage.reasons, message)


def _describe(group: str, shortage: _Shortage, *, whole: bool) -> str:
    """One line for the user: what lacks, and the nodes counted by reason."""
    nodes = sum(count for _, count in shortage.reasons)
    counted = ", ".join(f"{count} {reason}" for reason, count in shortage.reasons) or "there are none"
    found = f"{shortage.found_room} of {shortage.asked}"
    head = f"{found} pods find room together" if whole else f"{found} further pods placed"
    tail = "; even an empty cluster of these nodes can't hold it" if shortage.infeasible else ""
    return f"{head}; no node for {group}: {nodes} node{'' if nodes == 1 else 's'}: {counted}{tail}"


def _is_news(job: JobRecord, waits: Waits, config: CycleConfig, told_ms: int) -> bool:
    """Whether a reason is worth an event: another kind of reason at once, other numbers after a while."""
    old = job.waits
    if old is None:
        return True
    kinds = [reason.split(" (")[0] for reason, _ in waits.reasons]
    same = (old.schedule_state, old.infeasible, old.group) == (waits.schedule_state, waits.infeasible, waits.group)
    if not same or [reason.split(" (")[0] for reason, _ in old.reasons] != kinds:
        return True
    return old.message != waits.message and told_ms - job.waits_since_ms >= config.reasons_refresh_ms
