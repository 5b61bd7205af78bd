"""Folding with a verdict on every event: which decisions took effect, and which observations were void."""

from collections.abc import Callable

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.state import Changes, State
from arranger.replay.describe import job_uid_of
from arranger.replay.history import advance

ACCEPTED = "accepted"
REJECTED = "rejected"
#: An observation by a watcher whose term was over.
VOID = "void"

_WATCHED: dict[type, k.Watched] = {
    k.NodeSeen: k.Watched.NODE,
    k.NodeGone: k.Watched.NODE,
    k.PodSeen: k.Watched.POD,
    k.PodGone: k.Watched.POD,
    k.JobSeen: k.Watched.JOB,
    k.JobGone: k.Watched.JOB,
}


class Judged(msgspec.Struct):
    """An event at its offset, and what became of it. `verdict` is empty where there is nothing to judge: a sound
    observation, an outcome. `job_uid` names the job that it is about. `again`: a job seen with nothing changed that
    decisions depend on, as after every write of its status."""

    offset: int
    event: k.Event
    job_uid: str
    again: bool
    verdict: str = ""
    reason: str = ""


Wanted = Callable[[k.Event, str], bool]


def fold_judged(state: State, entry: Entry, changes: Changes, wanted: Wanted) -> list[Judged]:
    """Fold one entry; answers those of its events that are `wanted(event, job UID)`, with their verdicts."""
    found: list[Judged] = []
    terms = state.terms
    for number, event in enumerate(entry.batch.events):
        if type(event) is k.WatchClaimed:
            terms = {**terms, event.kind: entry.first + number}
        uid = job_uid_of(event, state)
        if wanted(event, uid):
            found.append(Judged(entry.first + number, event, uid, _again(event, state)))
            watched = _WATCHED.get(type(event))
            if watched is not None and terms.get(watched) != event.term:  # type: ignore[union-attr]
                found[-1].verdict, found[-1].reason = VOID, "its watcher's term was over"
    known = len(changes.verdicts)
    advance(state, entry, changes)
    verdicts = {verdict.offset: verdict for verdict in changes.verdicts[known:]}
    for judged in found:
        verdict = verdicts.get(judged.offset)
        if verdict is not None:
            judged.verdict = ACCEPTED if verdict.accepted else REJECTED
            judged.reason = verdict.reason
    return found


def _again(event: k.Event, state: State) -> bool:
    job = state.jobs.get(event.uid) if isinstance(event, k.JobSeen) else None
    if job is None or not isinstance(event, k.JobSeen):
        return False
    seen = job.seen
    return (seen.spec, seen.invalid, seen.deleting) == (event.spec, event.invalid, event.deleting)
