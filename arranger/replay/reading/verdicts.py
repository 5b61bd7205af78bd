"""Folding with a verdict on every event: which decisions took effect, and which observations were void."""

from collections.abc import Callable, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import job_uid_of, what_it_was
from arranger.replay.reading.history import advance

ACCEPTED = "accepted"
REJECTED = "rejected"
#: An observation by a watcher whose term was over.
VOID = "void"


class Judged(msgspec.Struct):
    """An event at its offset, and what became of it. `verdict` is empty where there is nothing to judge: a sound
    observation, an outcome. `job_uid` names the job that it is about. `again`: a job seen with nothing changed that
    decisions depend on, as after every write of its status. `was`: what is gone, as it was known before.
    `superseded`: of a cycle that another overtook."""

    offset: int
    event: k.Event
    job_uid: str
    again: bool
    was: str
    verdict: str = ""
    reason: str = ""
    superseded: bool = False


Asked = Callable[[k.Event, str], bool]


def fold_judged(state: State, entry: Entry, changes: Changes, asked: Asked) -> list[Judged]:
    """Fold one entry; answers those of its events that are `asked(event, job UID)`, with their verdicts."""
    numbers = [number for number, event in enumerate(entry.batch.events) if asked(event, job_uid_of(event, state))]
    return fold_noting(state, entry, changes, numbers)


def fold_noting(state: State, entry: Entry, changes: Changes, numbers: Sequence[int]) -> list[Judged]:
    """Fold one entry; answers its events of these numbers, ascending from 0, with their verdicts."""
    events, void = entry.batch.events, void_reasons(state, entry)
    found = [_judged(entry.first + number, events[number], void[number], state) for number in numbers]
    known = len(changes.verdicts)
    advance(state, entry, changes)
    verdicts = {verdict.offset: verdict for verdict in changes.verdicts[known:]}
    for judged in found:
        verdict = verdicts.get(judged.offset)
        if verdict is not None:
            judged.verdict = ACCEPTED if verdict.accepted else REJECTED
            judged.reason, judged.superseded = verdict.reason, verdict.superseded
    return found


def _judged(offset: int, event: k.Event, void: str, state: State) -> Judged:
    uid, seen_again, was = job_uid_of(event, state), again(event, state), what_it_was(event, state)
    return Judged(offset, event, uid, seen_again, was, VOID if void else "", void)


def void_reasons(state: State, entry: Entry) -> list[str]:
    """Of each event of an entry why it is void: observed under a term that was over, or claimed for another cluster;
    empty for one that isn't. `state` is that before the entry."""
    terms, found = state.terms, []
    for offset, event in enumerate(entry.batch.events, start=entry.first):
        why, watched = "", k.WATCHED.get(type(event))
        if isinstance(event, k.WatchClaimed):
            if state.foreign(event.cluster):
                why = "its watcher watches another Kubernetes cluster"
            else:
                terms = {**terms, event.kind: offset}
        elif watched is not None and event.term != terms.get(watched):  # type: ignore[union-attr]
            why = "its watcher's term was over"
        found.append(why)
    return found


def again(event: k.Event, state: State) -> bool:
    """Whether a job is seen with nothing changed that decisions depend on; `state` is that before the event."""
    job = state.jobs.get(event.uid) if isinstance(event, k.JobSeen) else None
    if job is None or not isinstance(event, k.JobSeen):
        return False
    seen = job.seen
    return (seen.spec, seen.invalid, seen.deleting) == (event.spec, event.invalid, event.deleting)
