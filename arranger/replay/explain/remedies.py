"""Find the changes to the cluster, the queue or the job that would give a waiting job its nodes. Each is tried in a
cycle, with the same answers of the API server as `arranger what-if` supposes: both say the same of a change. The events
that a successful change reverts are those that keep the job waiting.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import msgspec

from arranger.events import kinds as k
from arranger.model.text import counted
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps, Family, Join, names_text
from arranger.replay.explain.candidate_changes.families import families
from arranger.replay.explain.candidate_changes.nodes import NODE_KINDS
from arranger.replay.explain.shortfall import untried_jobs
from arranger.replay.reading.describe import label, placed_in, room_from
from arranger.replay.what_if.hypothesis import answered, supposed
from arranger.replay.what_if.one_cycle import TriesByJob
from arranger.scheduling import PlacementTry, reserves_for, take_cycle, turns_to

#: The maximum number of cycles to find remedies in a cluster of up to `_SMALL` nodes. A larger cluster gets fewer.
TRIES = 80
_SMALL = 500
_FEWEST_TRIES = 24
#: The number of single changes of one kind that are tried before the next kind.
_ALONE = 4
#: The maximum number of changes of one kind that are joined. If at most `_THINNED` help together, the search tries to
#: leave out each of them.
_TOGETHER = 64
_THINNED = 12
#: So many jobs that would give room are named.
_NAMED = 4


class Remedy(msgspec.Struct, frozen=True):
    """A change with which a cycle at that point places `pods` more pods of the job; 0 if the change only puts the job
    into the queue, or if with it (`then_feasible`) the job only waits for room that an empty cluster of these nodes
    has, as it didn't have before. `undoes` is the offset of the event that it reverts, 0 if none is known, and `undone`
    describes it. `several`: it reverts several events, of which `undoes` is the newest, and reverting that one alone
    doesn't help. `room_from`: the jobs from which the cycle takes the room, in words; the text names the first of them.
    `lost_ms`: the work that those lose, in GPU-milliseconds. `then_reserved`: the job only gets a reservation."""

    kind: str
    text: str
    pods: int
    undoes: int
    undone: str
    several: bool = False
    room_from: tuple[str, ...] = ()
    then_feasible: bool = False
    lost_ms: int = 0
    then_reserved: bool = False

    @property
    def gives(self) -> bool:
        """Whether the job gets nodes with the change, now or once there is room, and not only a place in the queue."""
        return self.pods > 0 or self.then_feasible or self.then_reserved

    @property
    def opens_since_before(self) -> bool:
        """Whether it opens nodes that were closed before the first event that was read."""
        return self.kind in NODE_KINDS and self.pods > 0 and not self.undoes


class Blocker(msgspec.Struct, frozen=True):
    """An event without which a cycle would give the job nodes now."""

    offset: int
    text: str


class Sought(msgspec.Struct, frozen=True):
    """The changes that help, those first that take no room from others, then by the work that others lose, else the
    cheapest for the job's user first; and the number of tried changes. `untried` counts further changes of
    kinds of which at least one helps; there were too many to try them all."""

    found: tuple[Remedy, ...] = ()
    tried: int = 0
    untried: int = 0


def remedies(case: WaitingCase) -> Sought:
    search = _Search(case)
    of_kinds: list[tuple[list[_Helps], Sequence[Change]]] = []
    for family in families(case):
        if family.least or family.reserves:
            found = search.reserving(family) if family.reserves else search.least(family)
            if not found and family.otherwise is not None and (change := family.otherwise()) is not None:
                found = search.alone([change])
            of_kinds.append((found, ()))
            continue
        found = search.alone(family.alone[:_ALONE])
        of_kinds.append((found, family.alone[_ALONE:] if found else ()))
        if not found and family.together is not None and len(family.alone) > 1:
            found += search.together(family.alone[:_TOGETHER], family.together)
        found += search.feasible(family) if not found else []
    # All kinds were tried. The remaining cycles are for more changes of the kinds that help.
    for found, more in of_kinds:
        found.extend(search.alone(more))
    found = sorted(chain.from_iterable(of for of, _ in of_kinds), key=lambda one: (bool(one.room_from), one.lost_ms))
    return Sought(tuple(map(search.told, found)), search.tried, search.untried)


def blockers(case: WaitingCase, found: Sequence[Remedy]) -> tuple[tuple[Blocker, ...], tuple[Blocker, ...]]:
    """The events that the remedies revert, the newest first: those since the job's creation, and earlier ones."""
    since = case.story.created_at or case.story.began
    alone = [remedy for remedy in reversed(found) if remedy.undoes and remedy.pods and not remedy.several]
    texts = {remedy.undoes: remedy.undone for remedy in alone}
    events = [Blocker(offset, texts[offset]) for offset in sorted(texts, reverse=True)]
    return tuple(one for one in events if one.offset >= since), tuple(one for one in events if one.offset < since)


@dataclass(frozen=True)
class _Outcome:
    """What a cycle with a change does: the number of the job's `pods` that it places (-1 if it isn't in the queue), the
    jobs that give room to it, in words, the work that they lose in GPU-milliseconds, and what tells to whom added nodes
    go instead, in words. `asks_first`: a job ahead of it waits for the answer of a dry run, and then takes room before
    it. `supposed`: nobody has asked yet whether the API server takes the job's own pods. `infeasible`: not even an
    empty cluster of the nodes could hold the job."""

    pods: int = -1
    givers: tuple[str, ...] = ()
    lost_ms: int = 0
    ahead_text: Callable[[], str] = str
    asks_first: bool = False
    supposed: bool = False
    infeasible: bool = False


class _Helps(NamedTuple):
    """A change that helps, and what a cycle with it does, or what is to be told of it. Only those that remain at the
    end of the search are told in full, which takes further cycles."""

    change: Change
    outcome: _Outcome
    remedy: Remedy | None = None

    @property
    def room_from(self) -> tuple[str, ...]:
        """As in `Remedy`."""
        return self.outcome.givers

    @property
    def lost_ms(self) -> int:
        """As in `Remedy`."""
        return self.outcome.lost_ms


def _on_added(
    state: State, added: Set[str], tries: Iterable[PlacementTry], uid: str
) -> list[tuple[JobRecord, set[int]]]:
    """The other jobs that use added nodes on which this one has no pods, and the rows of these nodes."""
    rows = {state.nodes.rows[name] for name in added if state.nodes.has(name)}
    used = [(one.job, rows.intersection(piece.row for piece in one.pieces)) for one in tries] if rows else []
    own = next((on for job, on in used if job.uid == uid), set[int]())
    return [(job, on - own) for job, on in used if job.uid != uid and on - own]


def _of(jobs: Sequence[str], one: str, several: str) -> str:
    return one if len(jobs) == 1 else several


def _ahead_text(case: WaitingCase, others: Sequence[tuple[JobRecord, set[int]]]) -> str:
    """How many added nodes go to other jobs, and to which, in words. Only those count as ahead that still are after the
    recorded cycle that is taken again."""
    if not others:
        return ""
    count, before = len(set[int]().union(*(on for _, on in others))), {job.uid for job in case.ahead}
    still = before if case.still_ahead is None else before & case.still_ahead
    were = [label(job) for job, _ in others if job.uid in before - still]
    first = [label(job) for job, _ in others if job.uid not in before]
    ahead = len(others) - len(were) - len(first)
    whom = (
        (ahead, f"{'a job' if ahead == 1 else f'{ahead} jobs'} ahead of it"),
        (were, f"{names_text(were)}, which {_of(were, 'was', 'were')} ahead of it before this cycle"),
        (first, f"{names_text(first)}, which then {_of(first, 'goes', 'go')} first"),
    )
    return f" ({'one' if count == 1 else count} of them for {' and '.join(text for some, text in whom if some)})"


def _placed(events: Iterable[k.Event]) -> Counter[str]:
    """Job UID → how many of its pods the events of a cycle place."""
    return Counter({of.job_uid: len(expand(of.pods)) for of in map(placed_in, events) if of is not None})


class _Search:
    """Takes cycles with changes, up to the allowed number."""

    def __init__(self, case: WaitingCase) -> None:
        self._case = case
        self._untried = _untried_now(case)
        nodes = max(len(case.state.nodes.by_name()), 1)
        self._left = max(_FEWEST_TRIES, min(TRIES, TRIES * _SMALL // nodes))
        self.tried = self.untried = 0
        self._given = Counter(case.given) if case.given is not None else None
        unchanged = self._cycle(Change("", ""))
        self._now, self._infeasible = unchanged.pods, unchanged.infeasible
        #: Text of a change that was tried → whether the job is infeasible with it.
        self._infeasible_with: dict[str, bool] = {}

    def alone(self, changes: Sequence[Change]) -> list[_Helps]:
        tried = min(len(changes), self._left)
        self.untried += len(changes) - tried
        return [remedy for change in changes[:tried] for remedy in self._tried_by_steps(change)]

    def _tried_by_steps(self, change: Change) -> list[_Helps]:
        found, following = self._tried(change), change.further
        while not found and following is not None:
            change, found, following = following, self._tried(following), following.further
        return self._lesser(change, found)

    def _lesser(self, change: Change, found: list[_Helps]) -> list[_Helps]:
        """What does least of the same as a change that helps, and takes room from no more jobs."""

        def tried(lesser: Change) -> list[_Helps]:
            return [one for one in self._tried(lesser) if len(one.room_from) <= len(found[0].room_from)]

        return found and (self._least(change.lesser, helping=tried)[1] or found)

    def least(self, family: Family) -> list[_Helps]:
        """The first change that helps, of a list in which every change does more than the one before."""
        last, found = self._least_of_each(family)
        if found and found[0].room_from and family.whole:
            whole = self._tried(family.alone[-1])
            if whole and len(whole[0].room_from) < len(found[0].room_from):
                return [*whole, *found]
        if found and found[0].room_from and family.from_none is not None:
            found = [*found, *self._from_none(family, family.from_none)]
        if family.feasible and self._infeasible:
            found = [*found, *self._feasible(family, last if found else -1)]
        return found

    def _least_of_each(self, family: Family) -> tuple[int, list[_Helps]]:
        """The place in the family of the first change that helps, and that change, or what is found from there on."""
        place, found = self._least(family.alone, family.early)
        return place, self._going_on(family, place, found)

    def _going_on(
        self, of: Family, last: int, found: list[_Helps], helping: Callable[[Change], list[_Helps]] | None = None
    ) -> list[_Helps]:
        """What is sought after a change at that place."""
        while found and of.then is not None:
            of = of.then(last)
            last, less = self._least(of.alone, of.early, helping, known=found if of.goes_on else ())
            found = less or found
        return found

    def _from_none(self, family: Family, likely: int) -> list[_Helps]:
        """The first change of a list that helps and takes no room from others, or the likely one if it does that."""

        def tried(change: Change) -> list[_Helps]:
            return [one for one in self._tried(change) if not one.room_from]

        place, found = likely, tried(family.alone[likely])
        if not found:
            place, found = self._least(family.alone, family.early[1:], tried)
        return self._going_on(family, place, found, tried)

    def _feasible(self, family: Family, helps: int) -> list[_Helps]:
        """The first change of a list with which an empty cluster could hold the job, unless it is the one at the place
        `helps`, which gives it nodes."""
        at, feasible = self._least(family.alone, family.early, self._then_feasible)
        return feasible if at != helps else []

    def _then_feasible(self, change: Change) -> list[_Helps]:
        """A change with which an empty cluster could hold the job."""
        if change.text not in self._infeasible_with:
            self._tried(change)
        if self._infeasible_with.get(change.text, True):
            return []
        text = f"{change.text}; then it waits for room"
        remedy = Remedy(change.kind, text, 0, change.undoes, change.undone, then_feasible=True)
        return [_Helps(change, _Outcome(), remedy)]

    def feasible(self, family: Family) -> list[_Helps]:
        """The first change of a family that gives no nodes with which an empty cluster could hold the job, or the
        fewest of them together."""
        if not (family.feasible and self._infeasible):
            return []
        changes = family.alone[:_ALONE]
        found = next(filter(None, map(self._then_feasible, changes)), [])
        if not found and family.together is not None and len(changes) > 1:
            found = self.together(family.alone[:_TOGETHER], family.together, self._then_feasible)
        return found

    def reserving(self, family: Family) -> list[_Helps]:
        """The first change of a list with which a cycle reserves room for the job."""
        case = self._case

        def tried(change: Change) -> list[_Helps]:
            if self._left <= 0:
                return []
            self._left -= 1
            self.tried += 1
            config = change.config or case.config
            if not reserves_for(case.state, case.job.uid, config, case.state.time_ms, policies=case.policies):
                return []
            return [_Helps(change, _Outcome(), Remedy(change.kind, change.text, 0, 0, "", then_reserved=True))]

        return self._least(family.alone, helping=tried)[1]

    def together(
        self, changes: Sequence[Change], join: Join, helping: Callable[[Change], list[_Helps]] | None = None
    ) -> list[_Helps]:
        """Join as many changes as needed, from the first on, and leave out those that aren't needed."""
        helping = helping or self._tried
        steps = ChangeSteps(len(changes) - 1, lambda number: join(changes[: number + 2]))
        last, found = self._least(steps, helping=helping)
        parts = list(changes[: last + 2]) if found else []

        def joined(some: Sequence[Change]) -> Change:
            return join(some) if len(some) > 1 else some[0]

        for part in list(parts) if len(parts) <= _THINNED else ():
            fewer = [other for other in parts if other is not part]
            helps = helping(joined(fewer)) if fewer else []
            if helps:
                found, parts = helps, fewer
        return self._lesser(joined(parts), found) if parts else found

    def _least(
        self,
        changes: Sequence[Change],
        early: Sequence[int] = (),
        helping: Callable[[Change], list[_Helps]] | None = None,
        known: Sequence[_Helps] = (),
    ) -> tuple[int, list[_Helps]]:
        """The first change that helps, and where it is. `known` is what the last one does, where that is known."""
        helping = helping or self._tried
        low, high, best = 0, len(changes) - 1, list[_Helps]()
        for at in [at for at in early if at < high]:
            if best := helping(changes[at]):
                high = at
                break
            low = at + 1
        best = best or list(known) or (helping(changes[-1]) if changes else [])
        if not best:
            return 0, []
        self._left = max(self._left, high.bit_length())  # a search that has begun is finished: else it isn't the least
        while low < high:
            middle = (low + high) // 2
            helps = helping(changes[middle])
            if helps:
                best, high = helps, middle
            else:
                low = middle + 1
        return low, best

    def _tried(self, change: Change) -> list[_Helps]:
        if self._left <= 0:
            return []
        self._left -= 1
        self.tried += 1
        outcome = self._cycle(change)
        self._infeasible_with[change.text] = outcome.infeasible
        if outcome.pods > self._now and outcome.asks_first:  # a job ahead takes room as soon as its dry run is made
            outcome = self._cycle(change, asked=True)
        return [_Helps(change, outcome)] if outcome.pods > self._now else []

    def told(self, helps: _Helps) -> Remedy:
        """A change that helps, with what it costs others."""
        if helps.remedy is not None:
            return helps.remedy
        change, outcome = helps.change, helps.outcome
        pods, givers = outcome.pods, outcome.givers
        alone = replace(change, events=change.alone)
        several = change.several and not (change.alone and self._cycle(alone).pods > self._now)
        more = pods - max(self._now, 0)
        text = change.text + outcome.ahead_text()
        if givers:
            named, more_givers = "; ".join(givers[:_NAMED]), counted(len(givers) - _NAMED, "other job")
            named += f"; and {more_givers}" if len(givers) > _NAMED else ""
            text = f"{change.taking or f'{text}; it would'} take room from {named}"
        if costs := self._costs(change):
            text += f"{', and' if givers else '; it would take'} nodes that otherwise {costs}"
        if outcome.supposed:
            text += "; once a dry run has shown that the API server takes its pods"
        return Remedy(change.kind, text, more, change.undoes, change.undone, several, givers, lost_ms=outcome.lost_ms)

    def _costs(self, change: Change) -> str:
        """The jobs that a cycle gives nodes, and with the change fewer or none, in words."""
        case = self._case
        if self._given is None:
            events = take_cycle(case.state, case.config, case.state.time_ms, policies=case.policies)
            self._given = _placed(events)
        given = {uid: pods for uid, pods in self._given.items() if uid != case.job.uid}
        if not given:
            return ""
        time_ms, config = change.time_ms or case.state.time_ms, change.config or case.config

        def take(state: State) -> tuple[tuple[State, Counter[str]], list[str]]:
            turns = TriesByJob()
            events = take_cycle(state, config, time_ms, turns, policies=case.policies)
            return (state, _placed(events)), untried_jobs(turns.tries.values())

        (state, gets), _ = answered(supposed(case.state, change.events), case.state, self._untried, take, supposed)
        less = [
            f"{label(case.state.jobs[uid])} gets ({counted(pods - gets[uid], 'pod')})"
            for uid, pods in given.items()
            if gets[uid] < pods and uid in state.jobs
        ]
        more = [counted(len(less) - _NAMED, "other job") + " get"] if len(less) > _NAMED else []
        return " and ".join([*less[:_NAMED], *more])

    def _added_for(self, state: State, change: Change, tries: Sequence[PlacementTry], *, pods: int) -> str:
        """For which other jobs added nodes are, in words: those whose turns come before that in which this one gets its
        `pods`. Its quorum's comes before those of jobs behind it."""
        case, uid = self._case, self._case.job.uid
        if pods <= self._now:
            return ""
        if self._now <= 0 and not case.job.quorum_placed():
            time_ms, config = change.time_ms or case.state.time_ms, change.config or case.config
            tries = turns_to(state, uid, config, time_ms, policies=case.policies)
        return _ahead_text(case, _on_added(state, change.added, tries, uid))

    def _cycle(self, change: Change, *, asked: bool = False) -> "_Outcome":
        """With `asked`, the API server has taken the pods of all other jobs in a dry run."""
        case = self._case
        time_ms = change.time_ms or case.state.time_ms
        config, uid, own = change.config or case.config, case.job.uid, label(case.job)

        def take(state: State) -> tuple[_Outcome, list[str]]:
            tries = turns_to(state, uid, config, time_ms, policies=case.policies, whole_job=True)
            tried = next((one for one in tries if one.job.uid == uid), None)
            if tried is None:
                return _Outcome(), []
            taking = tried.preempted
            givers = room_from(taking, state) if taking is not None else ()
            untried = untried_jobs(tries)
            first = any(name in waits and name != own for name in untried)
            never = tried.shortage is not None and tried.shortage.infeasible
            return _Outcome(
                tried.pods,
                givers,
                sum(victim.lost_ms for victim in taking.victims) if taking is not None else 0,
                partial(self._added_for, state, change, tries, pods=tried.pods) if change.added else str,
                first,
                infeasible=never,
            ), untried

        waits = [name for name in self._untried if not asked or name == own]
        found, names = answered(supposed(case.state, change.events), case.state, waits, take, supposed)
        return replace(found, supposed=bool(found.givers) and own in names)


def _untried_now(case: WaitingCase) -> list[str]:
    """The jobs that would take room in a cycle without changes, but for a dry run that is still to come."""
    if not case.config.dry_run or not case.state.synced:
        return []
    if case.untried is not None:
        return list(case.untried)
    turns = TriesByJob()
    take_cycle(case.state, case.config, case.state.time_ms, turns, policies=case.policies)
    return untried_jobs(turns.tries.values())
