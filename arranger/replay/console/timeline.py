"""The whole log on one line: how many events there were when, marks of what went wrong, and where decisions are."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.messages.decisions import gives_up
from arranger.messages.readiness import ending_text
from arranger.model.job import Stage
from arranger.model.pod import Phase
from arranger.projections.jobs.records import asked_record
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import label, label_of

#: How many entries are kept with their times: those of a month with an entry each second nearly. And how many marks of
#: each kind are kept at most; an answer has as many marks of all kinds.
_POINTS, _MARKS = 2_000_000, 2_000
#: How many decisions are kept, the latest ones.
_DECISIONS = 2_000_000

#: A node that was ready isn't any more, or is cordoned; a job gave room, has a pod that failed and isn't being deleted,
#: runs below its quorum, lost pods while it ran on, for others or for good, has to start again, or failed.
_KINDS = (
    *("nodeLost", "nodeCordoned", "preempted", "podFailed", "belowQuorum"),
    *("workersReplaced", "workersGivenUp", "jobRescheduled", "jobFailed"),
)
#: A job that has its quorum for no longer than this between two falls is in one loop of crashes, which is marked once.
_LOOP_MS = 300_000
#: The watches of pods and of TYJobs are apart by no more than this: a job that is found to be deleted so soon after its
#: pods left lost them because of that.
_APART_MS = 10_000

_STAGES = {Stage.RESCHEDULING: "jobRescheduled", Stage.FAILED: "jobFailed"}


class Mark(msgspec.Struct, frozen=True, rename="camel"):
    """Something that went wrong, or that somebody did to a node: a kind of `_KINDS`. `time` in seconds since 1970.
    `subjects` are the names of the node, or of the jobs to which it happened, as namespace/name."""

    at: int
    time: float
    kind: str
    subjects: tuple[str, ...] = ()


class Bucket(msgspec.Struct, frozen=True, rename="camel"):
    """An equal part of the time: its number of events, the offset of the last one up to its end, the end of the part,
    and how many of the events gave jobs nodes, or took them from others."""

    at: int
    time: float
    events: int
    decisions: int = 0


class Timeline(msgspec.Struct, frozen=True, rename="camel"):
    """The log from `first` to `last`. `buckets` and `marks` are those of the span of time that was asked about. Of a
    long log, marks are thinned. `complete`: all of it is read. `busiest` is the offset after which most jobs waited or
    ran at once, 0 if none did. `stored`: its last event may be its end, because it is a file or an archive, or because
    no process works on it and no job waits or runs. `decided` has the offsets of the first and the last decision; 0
    without one."""

    first: int
    last: int
    first_time: float
    last_time: float
    buckets: tuple[Bucket, ...]
    marks: tuple[Mark, ...]
    complete: bool = True
    busiest: int = 0
    stored: bool = False
    decided: tuple[int, int] = (0, 0)


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """An event that gave a job nodes, or took them from others."""

    at: int
    time: float


class Thinned:
    """Offsets with times (milliseconds) in order: of more than so many, the last one in each of equal parts of the
    time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._first_ms, self._width_ms = 0, 0
        self.offsets, self.times_ms = array("q"), array("q")

    def add(self, offset: int, time_ms: int) -> None:
        if not self.offsets:
            self._first_ms = time_ms
        elif self._width_ms and self._number(time_ms) == self._number(self.times_ms[-1]):
            self.offsets[-1], self.times_ms[-1] = offset, time_ms
            return
        self.offsets.append(offset)
        self.times_ms.append(time_ms)
        if len(self.offsets) > self._most:
            self._width_ms = max(2 * self._width_ms, 1)
            while 2 * self._number(time_ms) >= self._most:
                self._width_ms *= 2
            offsets, times_ms, before = array("q"), array("q"), -1
            for at, ms in zip(self.offsets, self.times_ms, strict=True):
                if (number := self._number(ms)) == before:
                    offsets[-1], times_ms[-1] = at, ms
                else:
                    offsets.append(at)
                    times_ms.append(ms)
                before = number
            self.offsets, self.times_ms = offsets, times_ms

    def _number(self, time_ms: int) -> int:
        """The number of the part in which a time is."""
        return (time_ms - self._first_ms) // self._width_ms

    def remove(self, offset: int) -> None:
        """Remove an offset, if it is among them."""
        number = bisect_left(self.offsets, offset)
        if number < len(self.offsets) and self.offsets[number] == offset:
            del self.offsets[number], self.times_ms[number]

    def thinned(self, most: int, since_ms: int, until_ms: int) -> tuple[Sequence[int], Sequence[int]]:
        """At most so many of those in a span of time, and their times."""
        found = Thinned(most)
        there = slice(bisect_left(self.times_ms, since_ms), bisect_right(self.times_ms, until_ms))
        for offset, time_ms in zip(self.offsets[there], self.times_ms[there], strict=True):
            found.add(offset, time_ms)
        return found.offsets, found.times_ms


class TimelineIndex:
    """Call `note` with each entry and what its fold changed. It begins after what is in `state`."""

    def __init__(self, state: State) -> None:
        self.first = self.last = 0
        self._first_ms = self._last_ms = 0
        self._points = Thinned(_POINTS)
        self._marks = {kind: Thinned(_MARKS) for kind in _KINDS}
        #: Kind and offset of a mark → its subjects.
        self._subjects: dict[tuple[str, int], tuple[str, ...]] = {}
        self._decided, self._decided_ms = array("q"), array("q")
        nodes = state.nodes
        there = {nodes.names[row]: nodes.facts[row] for row in nodes.by_name().tolist()}
        self._ready = dict.fromkeys(name for name, facts in there.items() if facts.ready)
        self._cordoned = dict.fromkeys(name for name, facts in there.items() if facts.cordoned)
        #: UIDs of the pods that failed and still exist.
        self._failed = dict.fromkeys(pod.uid for pod in state.pods.values() if pod.phase == Phase.FAILED)
        #: UIDs of the jobs that run below their quorum, or did → when they did last; -1 while they do.
        self._below = dict.fromkeys((uid for uid, job in state.jobs.items() if job.below_quorum), -1)
        #: UID of a job → its marks of times at which pods of it were being deleted: their kinds, offsets and times, and
        #: its label. If the job itself is deleted, that is why.
        self._doubtful: dict[str, list[tuple[str, int, int, str]]] = {}

    def note(self, entry: Entry, state: State, changes: Changes) -> None:
        """Record one entry. `state` is that after it."""
        time_ms = state.time_ms
        if not self.first:
            self.first, self._first_ms = entry.first, time_ms
        self.last, self._last_ms = entry.last, time_ms
        self._points.add(entry.last, time_ms)
        accepted = [verdict.offset for verdict in changes.verdicts if verdict.accepted]
        for offset in accepted:
            self._decision(offset, entry.batch.events[offset - entry.first], state)
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if k.seen_or_gone(event, k.NodeSeen):
                self._node(offset, event, time_ms)
            elif k.seen_or_gone(event, k.PodSeen):
                self._pod(offset, event, state)
        fallen = [uid for uid in changes.jobs if self._falls(uid, state)]
        if fallen:
            self._mark("belowQuorum", entry.last, time_ms, *[label(state.jobs[uid]) for uid in fallen])
        for uid in fallen:
            self._doubt("belowQuorum", entry.last, uid, state)
        for uid in changes.jobs:
            if uid in self._doubtful:
                self._take_back(uid, state)

    def _node(self, offset: int, event: k.NodeSeen | k.ObjectGone, time_ms: int) -> None:
        """Mark a node that was ready and isn't any more, and one that is cordoned."""
        cordoned = isinstance(event, k.NodeSeen) and event.facts.cordoned
        if cordoned and event.name not in self._cordoned:
            self._cordoned[event.name] = None
            self._mark("nodeCordoned", offset, time_ms, event.name)
        elif not cordoned:
            self._cordoned.pop(event.name, None)
        if isinstance(event, k.NodeSeen) and event.facts.ready:
            self._ready[event.name] = None
        elif event.name in self._ready:
            del self._ready[event.name]
            self._mark("nodeLost", offset, time_ms, event.name)

    def _pod(self, offset: int, event: k.PodSeen | k.ObjectGone, state: State) -> None:
        """Mark a pod that failed, of a job that goes on. One that is deleted often ends as Failed, and that is no
        news."""
        if event.term != state.terms.get(k.Watched.POD):
            return  # its watcher's term was over
        if isinstance(event, k.ObjectGone):
            self._failed.pop(event.uid, None)
        elif event.phase == Phase.FAILED and event.uid not in self._failed:
            self._failed[event.uid] = None
            job = state.jobs.get(event.owner.job_uid if event.owner is not None else asked_record(event))
            if state.synced and job is not None and not (job.ended or event.deleting or event.uid in job.retired):
                self._mark("podFailed", offset, state.time_ms, label(job))

    def _falls(self, uid: str, state: State) -> bool:
        """Whether a job has begun to run below its quorum, and not because of a pod that failed, which has a mark."""
        job, was_ms = state.jobs.get(uid), self._below.get(uid)
        if job is None:
            self._below.pop(uid, None)
        elif not job.below_quorum:
            if was_ms == -1:
                self._below[uid] = state.time_ms
        elif was_ms != -1 and not ending_text(state, job):
            self._below[uid] = -1
            loops = was_ms is not None and state.time_ms - was_ms <= _LOOP_MS
            return not loops and Phase.FAILED not in job.slots.not_running.values()
        return False

    def _mark(self, kind: str, offset: int, time_ms: int, *subjects: str) -> None:
        self._marks[kind].add(offset, time_ms)
        self._subjects[kind, offset] = subjects
        if len(self._subjects) > 2 * len(_KINDS) * _MARKS:
            kept = [(of, offset) for of, marks in self._marks.items() for offset in marks.offsets]
            self._subjects = {mark: self._subjects[mark] for mark in kept}

    def _doubt(self, kind: str, offset: int, uid: str, state: State) -> None:
        """Remember a mark of a job if pods of it are being deleted: their watch may be ahead of that of TYJobs."""
        job = state.jobs.get(uid)
        if job is not None and any(pod.deleting for pod in state.pods_of.get(uid, {}).values()):
            self._doubtful.setdefault(uid, []).append((kind, offset, state.time_ms, label(job)))

    def _take_back(self, uid: str, state: State) -> None:
        """Take back what was marked of a job whose pods left, if the job is deleted: nobody disturbed it."""
        job = state.jobs.get(uid)
        if job is not None and not job.seen.deleting:
            return
        for kind, offset, time_ms, name in self._doubtful.pop(uid):
            subjects = self._subjects.get((kind, offset), ())
            if name in subjects and state.time_ms - time_ms <= _APART_MS:
                self._subjects[kind, offset] = left = tuple(of for of in subjects if of != name)
                if not left:
                    self._marks[kind].remove(offset)

    def _decision(self, offset: int, event: k.Event, state: State) -> None:
        time_ms = state.time_ms
        if isinstance(event, (k.Placed, k.Preempted)):
            self._decided.append(offset)
            self._decided_ms.append(time_ms)
            if len(self._decided) > _DECISIONS:
                self._decided, self._decided_ms = self._decided[1000:], self._decided_ms[1000:]
        if isinstance(event, k.Preempted):
            self._mark("preempted", offset, time_ms, *[label_of(state, victim.job_uid) for victim in event.victims])
        elif isinstance(event, k.WorkersReplaced):
            kind = "workersGivenUp" if gives_up(event.causes) else "workersReplaced"
            self._mark(kind, offset, time_ms, label_of(state, event.job_uid))
            self._doubt(kind, offset, event.job_uid, state)
        elif isinstance(event, k.StageDecided) and event.stage in _STAGES:
            self._mark(_STAGES[event.stage], offset, time_ms, label_of(state, event.job_uid))
            self._doubt(_STAGES[event.stage], offset, event.job_uid, state)

    def timeline(
        self,
        buckets: int,
        *,
        complete: bool,
        since_ms: int | None = None,
        until_ms: int | None = None,
        busiest: int = 0,
        stored: bool = False,
    ) -> Timeline:
        """The log in so many equal parts of a span of time, without one of all its time."""
        since_ms = self._first_ms if since_ms is None else since_ms
        until_ms = self._last_ms if until_ms is None else max(until_ms, since_ms)
        marks = [
            Mark(offset, time_ms / 1000, kind, self._subjects[kind, offset])
            for kind, of in self._marks.items()
            for offset, time_ms in zip(*of.thinned(_MARKS // len(_KINDS), since_ms, until_ms), strict=True)
        ]
        marks.sort(key=lambda mark: (mark.at, mark.kind))
        found, times = self._buckets(buckets, since_ms, until_ms), (self._first_ms / 1000, self._last_ms / 1000)
        decided = (self._decided[0], self._decided[-1]) if self._decided else (0, 0)
        return Timeline(self.first, self.last, *times, found, tuple(marks), complete, busiest, stored, decided)

    def _buckets(self, count: int, since_ms: int, until_ms: int) -> tuple[Bucket, ...]:
        if not self.first:
            return ()
        offsets, times_ms = self._points.offsets, self._points.times_ms
        span_ms = max(until_ms - since_ms, 1)
        earlier = bisect_left(times_ms, since_ms)
        found, before = [], offsets[earlier - 1] if earlier else self.first - 1
        decided = bisect_right(self._decided, before)
        for number in range(1, count + 1):
            end_ms = since_ms + span_ms * number // count
            there = bisect_right(times_ms, end_ms)
            at = max(offsets[there - 1] if there else before, before)
            up_to = bisect_right(self._decided, at)
            found.append(Bucket(at, end_ms / 1000, at - before, up_to - decided))
            before, decided = at, up_to
        return tuple(found)

    def decision(self, *, after: int | None = None, before: int | None = None) -> Decision | None:
        """The next decision after an offset, or the last one before an offset; None if there is none."""
        if after is not None:
            number = bisect_right(self._decided, after)
        else:
            number = bisect_left(self._decided, before if before is not None else self.last + 1) - 1
        if not 0 <= number < len(self._decided):
            return None
        return Decision(self._decided[number], self._decided_ms[number] / 1000)

    def offset_at(self, time_ms: int) -> int:
        """The offset of the last entry up to a time; 0 if there is none."""
        there = bisect_right(self._points.times_ms, time_ms)
        return self._points.offsets[there - 1] if there else 0

    def time_ms(self, offset: int) -> int:
        """The time at an offset, in milliseconds."""
        if offset >= self.last:
            return self._last_ms
        number = bisect_left(self._points.offsets, offset)
        return self._points.times_ms[number] if number < len(self._points.offsets) else self._last_ms
