"""Bisect: the event at which a condition starts to hold.

Few conditions are monotone: capacity comes and goes, and jobs start and stop waiting. So this is not a binary search
but one fold over the segment that evaluates the condition after every entry. It is exact and as fast as the fold.
Conditions are evaluated at the ends of entries, because readers never see part of an entry. A condition *starts* to
hold at an entry if it doesn't hold before it but holds after it. `Refinement` then finds the event in that entry.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.job import ScheduleState
from arranger.projections import snapshot
from arranger.projections.fold import apply_by_event
from arranger.projections.state import Changes, State
from arranger.replay.bisect.conditions import Condition, Facts
from arranger.replay.bisect.job_conditions import facts_of_job
from arranger.replay.bisect.node_conditions import facts_of_node
from arranger.replay.reading.describe import decided_for, job_uid_of, label_of, nodes_of, placed_in, victims_of
from arranger.replay.reading.history import Point, Span, advance
from arranger.replay.reading.listing import EventFilter, EventLine, Listing
from arranger.replay.reading.verify import PlanDifference, Survey, cycle_in, difference, plan_digest
from arranger.replay.what_if.overrides import Overrides
from arranger.scheduling import BUILT_IN, Policies, take_cycle

#: At most this many of the nodes that an event names are shown before and after it.
_NODES_SHOWN = 4

#: Follows the name of a job if it isn't the newest job of that name.
EARLIER = " (an earlier job of that name)"


class ConditionRun(msgspec.Struct):
    """When one condition held in a segment. Entries are given by their first offset, 0 for none. The condition started
    to hold first at `first` and last at `last`, and last stopped at `ended`. `over` are the completed intervals,
    each with the entry where it began and the last offset at which the condition held. `held_before`: the condition
    already held at `began`, the offset at which the segment was entered.

    A condition can't be evaluated in every state. `asked` is the first offset at which it was evaluated, -1 if never;
    `unasked` is the entry since which it can't be evaluated any more."""

    held_before: bool = False
    holds: bool = False
    starts: int = 0
    first: int = 0
    last: int = 0
    ended: int = 0
    began: int = -1
    asked: int = -1
    unasked: int = 0
    over: list[tuple[int, int]] = []

    def cease(self, first: int) -> None:
        """The condition no longer holds from the entry that begins at this offset."""
        begun_before = self.held_before and not self.over
        self.over.append((max(self.began, self.asked) + 1 if begun_before else self.last, first - 1))
        self.ended = first


class Search:
    """Folds the entries and records at which entries of the segment each condition starts to hold."""

    def __init__(self, state: State, conditions: Sequence[Condition], span: Span, *, first_only: bool) -> None:
        self.state = state
        self.runs = [ConditionRun() for _ in conditions]
        self._conditions = conditions
        self._span = span
        self._first_only = first_only

    def feed(self, entry: Entry) -> bool:
        """Fold one entry. Returns False once the search is complete. Raises `DamagedEntry`."""
        inside = self._span.meets(entry)
        if inside and self.runs[0].began < 0:
            self._enter()
        for condition in self._conditions:
            condition.note(entry)
        advance(self.state, entry, Changes())
        if inside:
            for condition, run in zip(self._conditions, self.runs, strict=True):
                self._ask(condition, run, entry)
        return not (self._first_only and self.runs[0].starts)

    def _enter(self) -> None:
        for condition, run in zip(self._conditions, self.runs, strict=True):
            run.began = self.state.offset
            self._first(condition, run)

    def _first(self, condition: Condition, run: ConditionRun) -> None:
        if condition.means_something(self.state):
            run.held_before = run.holds = condition.holds(self.state)
            run.asked = self.state.offset

    def _ask(self, condition: Condition, run: ConditionRun, entry: Entry) -> None:
        if run.asked < 0:
            self._first(condition, run)
            return
        if not condition.means_something(self.state):
            run.unasked = run.unasked or entry.first
            return
        run.unasked = 0
        held, run.holds = run.holds, condition.holds(self.state)
        if run.holds and not held:
            run.starts += 1
            run.first = run.first or entry.first
            run.last = entry.first
        elif held and not run.holds:
            run.cease(entry.first)


class FactChange(msgspec.Struct, frozen=True):
    """One fact that the event changed, before and after it. A value is empty if the state has no such fact."""

    subject: str
    what: str
    before: str
    after: str


class FoundEvent(msgspec.Struct, frozen=True):
    """The event at which the condition starts to hold, the first and last offset of its batch, and the facts that it
    changed. `of_same_name`: the event is about another job of the same name as the one in question."""

    event: EventLine
    batch: tuple[int, int]
    changed: tuple[FactChange, ...]
    of_same_name: bool = False


class Refinement:
    """Folds up to the entry `at` in which a condition starts to hold, and finds the event in that entry.

    `state` must precede the entry, and the condition must already have noted the entries up to `state`.
    """

    def __init__(self, state: State, condition: Condition, at: int) -> None:
        self.found: FoundEvent | None = None
        self._condition = condition
        self._listing = Listing(state, EventFilter(span=Span(first=Point(offset=at))))
        self._at = at

    def feed(self, entry: Entry) -> bool:
        """Fold one entry. Returns False when the event was found. Raises `DamagedEntry`."""
        self._condition.note(entry)
        if entry.first != self._at:
            self._listing.feed(entry)
            return True
        content = snapshot.encode(self._listing.state)
        number = self._number(snapshot.restore(content), entry) if len(entry.batch.events) > 1 else 0
        changed = self._changed(snapshot.restore(content), entry, number)
        uid = job_uid_of(entry.batch.events[number], self._listing.state)
        line = self._listing.feed(entry)[number]
        of_same_name = self._is_of_same_name(uid, line.job)
        self.found = FoundEvent(line, (entry.first, entry.last), tuple(changed), of_same_name)
        return False

    def _is_of_same_name(self, uid: str, name: str) -> bool:
        """Whether this is another job with the name of the condition's job."""
        asked = self._condition
        return bool(uid and asked.job_uid) and uid != asked.job_uid and f"job {name}" == asked.subject

    def _number(self, state: State, entry: Entry) -> int:
        """The index, from 0, of the last event of the entry that makes the condition hold."""
        found, held = len(entry.batch.events) - 1, False
        for offset in apply_by_event(state, entry, Changes()):
            if not self._condition.means_something(state):
                continue
            holds = self._condition.holds(state)
            if holds and not held:
                found = offset - entry.first
            held = holds
        return found

    def _changed(self, state: State, entry: Entry, number: int) -> list[FactChange]:
        event = entry.batch.events[number]
        about = self._about(state, event)
        before = self._facts(state, about)
        for offset in apply_by_event(state, entry, Changes()):
            if offset == entry.first + number - 1:
                about = self._about(state, event)
                before = self._facts(state, about)
            if offset == entry.first + number:
                return _differences(before, self._facts(state, about))
        return []

    def _about(self, state: State, event: k.Event) -> "_About":
        """What the event is about. `state` is as before it: a pod that it deletes is known only there."""
        uid, subject = job_uid_of(event, state), ""
        if uid:
            seen = k.seen_or_gone(event, k.JobSeen)
            name = f"{event.namespace}/{event.name}" if seen else label_of(state, uid)  # type: ignore[union-attr]
            subject = f"job {name}{EARLIER if self._is_of_same_name(uid, name) else ''}"
        return _About(uid, subject, nodes_of(event, state)[:_NODES_SHOWN])

    def _facts(self, state: State, about: "_About") -> dict[str, Facts]:
        """The facts about the condition's subject and about the job and the nodes of an event."""
        facts = {self._condition.subject: self._condition.facts(state)}
        if about.job_uid:
            facts.setdefault(about.job, facts_of_job(state, about.job_uid))
        for node in about.nodes:
            facts.setdefault(f"node {node}", facts_of_node(state, node))
        return facts


class _About(NamedTuple):
    """What an event is about: the UID of a job, empty for none, its name as the subject of facts, and nodes."""

    job_uid: str
    job: str
    nodes: tuple[str, ...]


class Alternative:
    """Repeats each recorded cycle at its own base with another configuration or other queues, and finds the first one
    that decides differently. Superseded cycles are left out, because they had no effect.

    `state` must not be after the first base of the survey. A cycle that had nothing to record isn't in the log, so the
    comparison misses what the other configuration would have decided then.
    """

    def __init__(self, state: State, survey: Survey, other: Overrides, policies: Policies = BUILT_IN) -> None:
        self.state = state
        #: Cycles compared so far, including the one that differs.
        self.compared = 0
        #: Cycles left out because they were superseded.
        self.superseded = 0
        #: Cycles left out because they used policy versions that aren't installed.
        self.other_versions = 0
        #: Cycles left out because their base is before the state.
        self.out_of_reach = sum(len(of) for base, of in survey.by_base.items() if base < state.offset)
        self.found: PlanDifference | None = None
        #: The names of all queues that were there when a cycle was taken.
        self.queues: dict[str, None] = {}
        self._survey = survey
        self._other = other
        self._policies = policies
        self._taken: dict[int, tuple[k.Event, ...]] = {}
        self._take()

    def feed(self, entry: Entry) -> bool:
        """Fold one entry. Returns False when a cycle that differs was found. Raises `DamagedEntry`."""
        offset, taken = cycle_in(entry) or (0, None)
        other = self._taken.pop(offset, None)
        if taken is not None and other is not None:
            if taken.base < self.state.last_cycle:
                self.superseded += 1
            else:
                self.compared += 1
                self.found = _disagreement(entry, offset, taken.base, other, self.state)
                if self.found is not None:
                    return False
        advance(self.state, entry, Changes())
        self._take()
        return True

    def _take(self) -> None:
        for cycle in self._survey.by_base.get(self.state.offset, ()):
            if cycle.offset <= self.state.offset:
                continue
            if self._policies.missing(cycle.config):
                self.other_versions += 1
                continue
            config, policies = self._other.of(cycle.config, self._policies)
            self.queues |= dict.fromkeys(self.state.queues)
            with self._other.over(self.state):
                self._taken[cycle.offset] = take_cycle(self.state, config, cycle.time_ms, policies=policies)


def _disagreement(
    entry: Entry, offset: int, base: int, other: tuple[k.Event, ...], state: State
) -> PlanDifference | None:
    """The first job, in recorded order, that gets different nodes or that only one of the two cycles gives up. The
    order of decisions and the reasons for waiting don't count."""
    recorded, by_other = _by_job(entry.batch.events), _by_job(other)
    for uid in dict.fromkeys((*recorded, *by_other)):
        one, two = recorded.get(uid, ()), by_other.get(uid, ())
        if plan_digest(one) != plan_digest(two):
            number = entry.batch.events.index(one[0]) if one else offset - entry.first
            found = difference(entry.first + number, one, two, state)
            return msgspec.structs.replace(found, cycle=offset, base=base)
    return None


def _by_job(events: Iterable[k.Event]) -> dict[str, tuple[k.Event, ...]]:
    found: dict[str, tuple[k.Event, ...]] = {}
    for event in events:
        given_up = isinstance(event, k.Waits) and event.schedule_state == ScheduleState.FAILED
        if given_up or placed_in(event) is not None:
            for uid in (decided_for(event), *victims_of(event)):
                found[uid] = (*found.get(uid, ()), event)
    return found


def first_disagreement(one: Mapping[int, str], other: Mapping[int, str]) -> int | None:
    """The offset of the first cycle for which two tables of plan digests differ; None if there is none. Cycles that
    only one table has don't count."""
    return next((offset for offset in sorted(one) if other.get(offset, one[offset]) != one[offset]), None)


def _differences(before: dict[str, Facts], after: dict[str, Facts]) -> list[FactChange]:
    found = []
    for subject in dict.fromkeys((*before, *after)):
        was, now = before.get(subject, {}), after.get(subject, {})
        for what in dict.fromkeys((*was, *now)):
            if was.get(what) != now.get(what):
                found.append(FactChange(subject, what, was.get(what, ""), now.get(what, "")))
    return found
