"""Fold entries with a verdict on every event: whether a decision took effect, and whether an observation was void."""

from collections.abc import Sequence

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import job_uid_of, what_it_was
from arranger.replay.reading.history import advance

ACCEPTED = "accepted"
REJECTED = "rejected"
#: The verdict on an observation by a watcher whose term was over.
VOID = "void"


class Judged(msgspec.Struct):
    """An event with its verdict. `verdict` is empty for an outcome and for a valid observation. `job_uid` is the job
    that the event is about. `again`: a job or a queue was seen without a change that decisions depend on, as after
    every write of its status. `was` describes a deleted object as last known. `superseded`: the event is of a
    superseded cycle."""

    offset: int
    event: k.Event
    job_uid: str
    again: bool
    was: str
    verdict: str = ""
    reason: str = ""
    superseded: bool = False


def fold_noting(state: State, entry: Entry, changes: Changes, numbers: Sequence[int]) -> list[Judged]:
    """Fold one entry. Returns its events of these numbers (ascending, from 0), with their verdicts."""
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
    """For each event of an entry, why it is void: its term was over, or it is a claim for another cluster. Empty for
    valid events. `state` is as before the entry."""
    terms, found = state.terms, []
    for offset, event in enumerate(entry.batch.events, start=entry.first):
        why, watched = "", k.watch_of(event)
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
    """Whether a job or a queue was seen without a change that decisions depend on. `state` is as before the event."""
    if isinstance(event, k.QueueSeen):
        queue = state.queues.get(event.name)
        return queue is not None and (queue.uid, queue.spec, queue.faults) == (event.uid, event.spec, event.faults)
    job = state.jobs.get(event.uid) if isinstance(event, k.JobSeen) else None
    if job is None or not isinstance(event, k.JobSeen):
        return False
    return _matters(job.seen) == _matters(event)


def _matters(seen: k.JobSeen) -> tuple[object, ...]:
    """What decisions depend on."""
    return seen.spec, seen.faults, seen.deleting, seen.checkpoint_ms, seen.user, seen.permits
