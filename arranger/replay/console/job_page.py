"""One job at a point of the log: the events about it up to there, and its pods."""

from array import array
from collections.abc import Iterable

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.near_names import did_you_mean, near_names
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import known_priority, own_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import describe, job_uid_of, label, room_given, victims_of

#: How many events about jobs are remembered, and how many an answer has.
_EVENTS, MOST_OF_A_JOB = 4_000_000, 500


class LifeEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An event about the job. `time` in seconds since 1970. A `rejected` decision had no effect. `gives`: it is a
    decision that takes nodes from this job, for another one."""

    at: int
    time: float
    kind: str
    words: str
    rejected: bool = False
    gives: bool = False


class JobPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod of the job. It has been in this phase since the event at the offset `at`, as far as the life shows it."""

    name: str
    role: str
    node: str
    phase: str
    exit_code: int | None
    since: float | None
    at: int | None


class JobPage(msgspec.Struct, frozen=True, rename="camel"):
    """A job after the event at the offset `at`, whose `time` is in seconds since 1970. `stage` is None if it is gone.
    `priority` is the one that counts in its queue, `own_priority` the job's own. `left` is how many older events aren't
    shown. `complete`: the point is the one that was asked for, not an earlier one."""

    job: str
    namespace: str
    name: str
    queue: str
    priority: int | None
    own_priority: int | None
    stage: str | None
    submitted: float | None
    attempt: int
    life: tuple[LifeEvent, ...]
    pods: tuple[JobPod, ...]
    left: int = 0
    at: int = 0
    time: float = 0.0
    complete: bool = True


class JobEvents:
    """Where the events about each job are. Call `before` with each entry before its fold, and `after` it."""

    def __init__(self) -> None:
        #: UID → the offsets of the events about the job, negative for a rejected decision.
        self._offsets: dict[str, array[int]] = {}
        #: The jobs as they were seen last, also those that are gone: what the words of events need.
        self.seen = State()
        #: namespace/name → the UIDs of that name, in the order of the log.
        self._uids: dict[str, list[str]] = {}
        self._count = 0
        self._of_entry: list[tuple[int, str]] = []

    def begin(self, state: State) -> None:
        """Know the jobs of the state with which reading begins."""
        self._see(state, state.jobs)

    def before(self, entry: Entry, state: State) -> None:
        """Note which events of the entry are about jobs."""
        found = self._of_entry = []
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            uid = job_uid_of(event, state)
            if uid:
                found.append((offset, uid))
            found += [(offset, victim) for victim in victims_of(event) if victim != uid]

    def after(self, state: State, changes: Changes) -> None:
        """Keep them, with the verdicts on decisions."""
        self._see(state, changes.jobs)
        rejected = {of.offset: None for of in changes.verdicts if not of.accepted}
        for offset, uid in self._of_entry:
            self._offsets.setdefault(uid, array("q")).append(-offset if offset in rejected else offset)
        self._count += len(self._of_entry)
        while self._count > _EVENTS and len(self._offsets) > 1:
            oldest = next(iter(self._offsets))
            self._count -= len(self._offsets.pop(oldest))
            self._forget(oldest)

    def find(self, name: str, at: int) -> tuple[str, str]:
        """The label and the UID of the newest job of a name, or namespace/name, that was seen up to an offset; empty if
        there is none."""
        names = [name] if "/" in name else [one for one in self._uids if one.rpartition("/")[2] == name]
        there = [(one, uid) for one in names for uid in self._uids.get(one, ()) if self._first(uid) <= at]
        return there[-1] if there else ("", "")

    def meant(self, name: str, at: int) -> str:
        """A hint with the labels of jobs that were seen up to an offset and whose name is similar to this one, or to
        that of this namespace/name; empty if there are none. Of a job that came later, it says when."""
        named = (uids for one, uids in self._uids.items() if name in (one, one.rpartition("/")[2]))
        if came := [self._first(uid) for uids in named for uid in uids]:
            return f"it has it from event {min(came)} on"
        there = [one for one, uids in self._uids.items() if any(self._first(uid) <= at for uid in uids)]
        names = {one: one.rpartition("/")[2] for one in sorted(there)}
        close = near_names(name.rpartition("/")[2], set(names.values()), most=3)
        return did_you_mean([one for desired in close for one, known in names.items() if known == desired])

    def _first(self, uid: str) -> int:
        """The offset of the first event about a job; 0 if it was seen before reading began."""
        known = self._offsets.get(uid)
        return abs(known[0]) if known else 0

    def offsets(self, uid: str, at: int) -> list[int]:
        """The offsets of the events about a job up to a point, negative for a rejected decision."""
        return [offset for offset in self._offsets.get(uid, ()) if abs(offset) <= at]

    def _see(self, state: State, uids: Iterable[str]) -> None:
        for uid in uids:
            job, known = state.jobs.get(uid), self.seen.jobs.get(uid)
            if job is None or (known is not None and known.seen is job.seen and known.spec is job.spec):
                continue
            if known is None:
                self._uids.setdefault(label(job), []).append(uid)
            self.seen.jobs[uid] = JobRecord(job.seen, job.spec, 0)

    def _forget(self, uid: str) -> None:
        job = self.seen.jobs.pop(uid, None)
        if job is not None:
            self._uids[label(job)].remove(uid)


def life_event(offset: int, entry: Entry, uid: str, seen: State) -> LifeEvent:
    """The event at an offset (negative for a rejected decision) of an entry, in the words for the job's own page.
    `seen`: of `JobEvents`."""
    event = entry.batch.events[abs(offset) - entry.first]
    words, gives = describe(event, seen), uid in victims_of(event)
    if isinstance(event, k.Preempted) and gives:
        words = room_given(event, uid, seen)
    if k.seen_or_gone(event, k.PodSeen):
        words = f"{event.name}: {words}"
    return LifeEvent(abs(offset), entry.batch.time_ms / 1000, k.kind_of(event), words, offset < 0, gives)


def job_page(state: State, known: str, uid: str, life: list[tuple[LifeEvent, k.Event]], left: int) -> JobPage:
    """The page of a job (namespace/name) from the state at the point and the job's events."""
    namespace, _, name = known.partition("/")
    job = state.jobs.get(uid)
    told, at, time_s = tuple(one for one, _ in life), state.offset, state.time_ms / 1000
    if job is None:
        return JobPage(known, namespace, name, "", 0, 0, None, None, 0, told, (), left, at, time_s)
    return JobPage(
        job=known,
        namespace=namespace,
        name=name,
        queue=queue_of(state, job),
        priority=known_priority(state, job),
        own_priority=own_priority(job),
        stage=str(job.stage),
        submitted=job.seen.created_ms / 1000,
        attempt=job.attempt,
        life=told,
        pods=tuple(_pods(state, job, life)),
        left=left,
        at=at,
        time=time_s,
    )


def _pods(state: State, job: JobRecord, life: list[tuple[LifeEvent, k.Event]]) -> list[JobPod]:
    since: dict[str, tuple[str, LifeEvent]] = {}
    for told, event in life:
        if isinstance(event, k.PodSeen) and since.get(event.uid, ("",))[0] != event.phase:
            since[event.uid] = (event.phase, told)
    found = []
    for pod in state.pods_of.get(job.uid, {}).values():
        known = since.get(pod.uid)
        told_at = known[1] if known is not None and known[0] == pod.phase else None
        exit_code = pod.ended.exit_code if pod.ended is not None else None
        where = (told_at.time, told_at.at) if told_at is not None else (None, None)
        role = pod.owner.group_name if pod.owner is not None else ""
        found.append(JobPod(pod.name, role, pod.node, pod.phase, exit_code, *where))
    return sorted(found, key=lambda pod: pod.name)
