"""Find the changes to the cluster, the queue or the job that would give a waiting job its nodes. Each is tried in a
cycle, with the same answers of the API server as `arranger what-if` supposes: both say the same of a change. The events
that a successful change reverts are those that keep the job waiting.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from arranger.model.text import counted
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.case import Case
from arranger.replay.explain.candidate_changes.change import Change, Join, Steps
from arranger.replay.explain.candidate_changes.families import families
from arranger.replay.explain.shortfall import untried_jobs
from arranger.replay.reading.describe import room_from
from arranger.replay.what_if.hypothesis import answered, supposed
from arranger.replay.what_if.one_cycle import Turns
from arranger.scheduling import PlacementTry, take_cycle, turns_to

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
    into the queue. `undoes` is the offset of the event that it reverts, 0 if none is known, and `undone` describes it.
    `several`: it reverts several events, of which `undoes` is the newest, and reverting that one alone doesn't help.
    `room_from`: the jobs from which the cycle takes the room, in words; the text names the first of them."""

    kind: str
    text: str
    pods: int
    undoes: int
    undone: str
    several: bool = False
    room_from: tuple[str, ...] = ()


class Blocker(msgspec.Struct, frozen=True):
    """An event without which a cycle would give the job nodes now."""

    offset: int
    text: str


class Sought(msgspec.Struct, frozen=True):
    """The changes that help, the cheapest first, and the number of tried changes. `untried` counts further changes of
    kinds of which at least one helps; there were too many to try them all."""

    found: tuple[Remedy, ...] = ()
    tried: int = 0
    untried: int = 0


def remedies(case: Case) -> Sought:
    search = _Search(case)
    of_kinds: list[tuple[list[Remedy], Sequence[Change]]] = []
    for family in families(case):
        if family.least:
            of_kinds.append((search.least(family.alone), ()))
            continue
        found = search.alone(family.alone[:_ALONE])
        of_kinds.append((found, family.alone[_ALONE:] if found else ()))
        if not found and family.together is not None and len(family.alone) > 1:
            found += search.together(family.alone[:_TOGETHER], family.together)
    # All kinds were tried. The remaining cycles are for more changes of the kinds that help.
    for found, more in of_kinds:
        found.extend(search.alone(more))
    return Sought(tuple(one for found, _ in of_kinds for one in found), search.tried, search.untried)


def blockers(case: Case, found: Sequence[Remedy]) -> tuple[tuple[Blocker, ...], tuple[Blocker, ...]]:
    """The events that the remedies revert, the newest first: those since the job's creation, and earlier ones."""
    since = case.story.created_at or case.story.began
    alone = [remedy for remedy in reversed(found) if remedy.undoes and remedy.pods and not remedy.several]
    texts = {remedy.undoes: remedy.undone for remedy in alone}
    events = [Blocker(offset, texts[offset]) for offset in sorted(texts, reverse=True)]
    return tuple(one for one in events if one.offset >= since), tuple(one for one in events if one.offset < since)


@dataclass(frozen=True)
class _Outcome:
    """What a cycle with a change does: the number of the job's `pods` that it places (-1 if it isn't in the queue), the
    jobs that give room to it, in words, and how many of the added nodes go to how many jobs ahead of it."""

    pods: int = -1
    givers: tuple[str, ...] = ()
    nodes_ahead: int = 0
    jobs_ahead: int = 0

    @property
    def ahead_text(self) -> str:
        if not self.nodes_ahead:
            return ""
        nodes = "one" if self.nodes_ahead == 1 else self.nodes_ahead
        jobs = "a job" if self.jobs_ahead == 1 else f"{self.jobs_ahead} jobs"
        return f" ({nodes} of them for {jobs} ahead of it)"


def _taken_by_others(state: State, added: Set[str], tries: Iterable[PlacementTry], uid: str) -> tuple[int, int]:
    """How many of the added nodes have pods of jobs ahead and none of this one, and how many such jobs there are."""
    rows = {state.nodes.rows[name] for name in added if state.nodes.has(name)}
    if not rows:
        return 0, 0
    used = {one.job.uid: rows.intersection(piece.row for piece in one.pieces) for one in tries}
    others = {other: on - used.get(uid, set()) for other, on in used.items() if other != uid}
    return len(set().union(*others.values())), sum(map(bool, others.values()))


class _Search:
    """Takes cycles with changes, up to the allowed number."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._untried = _untried_now(case)
        nodes = max(len(case.state.nodes.by_name()), 1)
        self._left = max(_FEWEST_TRIES, min(TRIES, TRIES * _SMALL // nodes))
        self.tried = self.untried = 0
        self._now = self._cycle(Change("", "")).pods

    def alone(self, changes: Sequence[Change]) -> list[Remedy]:
        tried = min(len(changes), self._left)
        self.untried += len(changes) - tried
        return [remedy for change in changes[:tried] for remedy in self._tried(change)]

    def least(self, changes: Sequence[Change]) -> list[Remedy]:
        """The first change that helps, of a list in which every change does more than the one before."""
        return self._least(changes)[1]

    def together(self, changes: Sequence[Change], join: Join) -> list[Remedy]:
        """Join as many changes as needed, from the first on, and leave out those that aren't needed."""
        last, found = self._least(Steps(len(changes) - 1, lambda number: join(changes[: number + 2])))
        parts = list(changes[: last + 2]) if found else []
        for part in list(parts) if len(parts) <= _THINNED else ():
            fewer = [other for other in parts if other is not part]
            helps = self._tried(join(fewer) if len(fewer) > 1 else fewer[0]) if fewer else []
            if helps:
                found, parts = helps, fewer
        return found

    def _least(self, changes: Sequence[Change]) -> tuple[int, list[Remedy]]:
        best = self._tried(changes[-1]) if changes else []
        if not best:
            return 0, []
        low, high = 0, len(changes) - 1
        self._left = max(self._left, high.bit_length())  # a search that has begun is finished: else it isn't the least
        while low < high:
            middle = (low + high) // 2
            helps = self._tried(changes[middle])
            if helps:
                best, high = helps, middle
            else:
                low = middle + 1
        return low, best

    def _tried(self, change: Change) -> list[Remedy]:
        if self._left <= 0:
            return []
        self._left -= 1
        self.tried += 1
        outcome = self._cycle(change)
        pods, givers = outcome.pods, outcome.givers
        if pods <= self._now:
            return []
        alone = replace(change, events=change.alone)
        several = change.several and not (change.alone and self._cycle(alone).pods > self._now)
        more = pods - max(self._now, 0)
        text = change.text + outcome.ahead_text
        if givers:
            named, more_givers = "; ".join(givers[:_NAMED]), counted(len(givers) - _NAMED, "other job")
            named += f"; and {more_givers}" if len(givers) > _NAMED else ""
            text = f"{change.taking or f'{text}; it would'} take room from {named}"
        return [Remedy(change.kind, text, more, change.undoes, change.undone, several, givers)]

    def _cycle(self, change: Change) -> "_Outcome":
        case = self._case
        time_ms = change.time_ms or case.state.time_ms
        config, uid = change.config or case.config, case.job.uid

        def take(state: State) -> tuple[_Outcome, list[str]]:
            tries = turns_to(state, uid, config, time_ms, policies=case.policies, further=True)
            tried = next((one for one in tries if one.job.uid == uid), None)
            if tried is None:
                return _Outcome(), []
            givers = room_from(tried.preempted, state) if tried.preempted is not None else ()
            return _Outcome(tried.pods, givers, *_taken_by_others(state, change.added, tries, uid)), untried_jobs(tries)

        return answered(supposed(case.state, change.events), case.state, self._untried, take, supposed)[0]


def _untried_now(case: Case) -> list[str]:
    """The jobs that would take room in a cycle without changes, but for a dry run that is still to come."""
    if not case.config.dry_run or not case.state.synced:
        return []
    if case.untried is not None:
        return list(case.untried)
    turns = Turns()
    take_cycle(case.state, case.config, case.state.time_ms, turns, policies=case.policies)
    return untried_jobs(turns.tries.values())
