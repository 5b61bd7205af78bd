"""A part of a log as facts that a page without a server plays: the lines of the console's charts, every state that each
job was in, with the words of `arranger explain`, and what was decided.

It takes two passes. `PlaybackIndex` finds the states. `PointExplainer` explains those that lasted longest, because each
takes some cycles, in each of which all jobs that wait get a turn. Times of steps and of what happened are in
milliseconds since 1970.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import known_priority, own_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.console.gantt import Gantt, GanttIndex
from arranger.replay.console.moment import gpus_held
from arranger.replay.console.node_gantt import NodeGantt
from arranger.replay.console.series import Series, SeriesIndex
from arranger.replay.console.timeline import Timeline, TimelineIndex
from arranger.replay.explain.answer import Explanation, explanation
from arranger.replay.explain.awaited import What, awaited, awaited_text
from arranger.replay.explain.job_history import EVERY_JOB, AskedJob, JobHistories
from arranger.replay.reading.describe import describe, label, label_of, message_of, victims_of
from arranger.replay.reading.verdicts import ACCEPTED, VOID, Judged, fold_noting
from arranger.scheduling import BUILT_IN, Policies

#: How many of the longest waits are explained in their middle.
_OPENINGS = 3
#: The most states that are explained, those in which jobs wait first, and of them the longest.
EXPLAINED = 200
#: The most jobs that wait at the states that are explained, added up. Each of them takes about 12 ms.
_WAITING = 2_000
#: The most samples of the lines, and the most steps and happenings together: a page with more would be slow.
_SAMPLES, MOST = 2_000, 100_000

#: Decisions that are told. A forecast of a start changes nothing.
_DECISIONS = (
    k.Placed, k.Preempted, k.Reserved, k.LimitKept, k.Waits, k.StageDecided, k.WorkersReplaced, k.NodesRequested,
)  # fmt: skip


class Step(NamedTuple):
    """A state of a job from the entry that ends at the offset `at`. `stage`, `waiting_for` and `message` are indices
    into `Playback.texts`, in the words of `arranger explain`, and so is the `queue`; the job is gone where the stage is
    empty. `priority` is the one that counts in the queue, `own_priority` the job's own, None if
    that isn't known."""

    at: int
    time_ms: int
    stage: int
    waiting_for: int
    message: int
    pods_placed: int
    pods_desired: int | None
    gpus: int
    queue: int
    priority: int | None
    own_priority: int | None


class Happening(NamedTuple):
    """An event that changed something. `kind` and `words` are indices into `Playback.texts`, `jobs` into
    `Playback.jobs`; `subject` is that of events that aren't about a job, a node or a queue, as an index into texts."""

    at: int
    time_ms: int
    kind: int
    words: int
    jobs: tuple[int, ...]
    subject: int


class PlayedJob(msgspec.Struct, rename="camel"):
    """A job by its name, with its states in log order, and those of later jobs of that name."""

    job: str
    steps: list[Step] = []


class Playback(msgspec.Struct, frozen=True, rename="camel"):
    """The events from `first` to `last` of `epoch`. `job` is the one that was asked for, if any."""

    epoch: int
    first: int
    last: int
    first_ms: int
    last_ms: int
    timeline: Timeline
    series: Series
    gantt: Gantt
    nodes: NodeGantt
    jobs: tuple[PlayedJob, ...]
    happenings: tuple[Happening, ...]
    texts: tuple[str, ...]
    job: str = ""


class TooLong(ValueError):
    """The part of the log has more changes than a page plays."""


class _Interval(msgspec.Struct):
    """A state of a job while the log is read, how long it lasted, and how many jobs waited then, to choose those that
    are explained."""

    uid: str
    job: str
    at: int
    since_ms: int
    waits: bool
    waiting: int
    until_ms: int = -1


class PlaybackIndex:
    """Call `feed` with each entry after those that `state` has. Nobody else may change the state. `job` is the one that
    was asked for, as NAMESPACE/NAME."""

    def __init__(self, state: State, job: str = "") -> None:
        self.state = state
        self._job = job
        self._began = state.offset
        self._first_ms = 0
        self._timeline, self._series, self._gantt = TimelineIndex(state), SeriesIndex(), GanttIndex()
        self._texts: dict[str, int] = {}
        self._jobs: dict[str, PlayedJob] = {}
        self._numbers: dict[str, int] = {}
        self._happenings: list[Happening] = []
        self._intervals: list[_Interval] = []
        self._lasting: dict[str, _Interval] = {}
        #: The jobs that wait now.
        self._waiting: dict[str, None] = {}
        self._last: dict[str, tuple[str, Step]] = {}
        self._series.note(state, state.jobs)
        self._gantt.note(state, dict.fromkeys(state.jobs))
        if state.offset:
            self._note_jobs(state.jobs)

    def feed(self, entry: Entry) -> None:
        """Fold one entry. Raises `DamagedEntry`, and `TooLong`."""
        state, changes, events = self.state, Changes(), entry.batch.events
        told = [number for number, event in enumerate(events) if self._tells(event)]
        labels = {uid: label_of(state, uid) for event in events for uid in _gone(event)}
        judged = fold_noting(state, entry, changes, told)
        self._first_ms = self._first_ms or state.time_ms
        self._timeline.note(entry, state, changes)
        self._series.note(state, changes.jobs)
        # The edit of a queue or of a namespace changes queues and priorities of jobs that it doesn't touch.
        wide = any(k.seen_or_gone(event, k.QueueSeen) or k.seen_or_gone(event, k.NamespaceSeen) for event in events)
        touched = changes.jobs | dict.fromkeys(state.jobs) if wide else changes.jobs
        self._gantt.note(state, touched)
        self._note_jobs(touched)
        for one in judged:
            self._happened(one, labels)
        if len(self._happenings) + len(self._intervals) > MOST:
            raise TooLong(f"there are more than {MOST:,} changes up to offset {entry.last}")

    # --- states --------------------------------------------------------------------------------------------

    def _note_jobs(self, uids: Iterable[str]) -> None:
        for uid in uids:
            job, known = self.state.jobs.get(uid), self._last.get(uid)
            if job is not None:
                name, step = label(job), self._step(job)
            elif known is not None:
                name, step = known[0], self._gone(known[1])
            else:
                continue
            if known is not None and known[1][2:] == step[2:]:
                continue
            if job is not None:
                self._last[uid] = name, step
            else:
                del self._last[uid]
            self._played(name).steps.append(step)
            self._interval(uid, job)

    def _gone(self, last: Step) -> Step:
        """The state of a job that was deleted: its queue and its priorities are its last ones."""
        none = self._text("")
        return Step(self.state.offset, self.state.time_ms, none, none, none, 0, 0, 0, *last[8:])

    def _step(self, job: JobRecord) -> Step:
        state = self.state
        return Step(
            state.offset,
            state.time_ms,
            self._text(str(job.stage)),
            self._text(awaited_text(awaited(state, job))),
            self._text(message_of(state, job)),
            len(job.placements),
            job.pods_told(),
            gpus_held(job),
            self._text(queue_of(state, job)),
            known_priority(state, job),
            own_priority(job),
        )

    def _interval(self, uid: str, job: JobRecord | None) -> None:
        last = self._lasting.pop(uid, None)
        self._waiting.pop(uid, None)
        if last is not None:
            last.until_ms = self.state.time_ms
        if job is None:
            return
        waits = not job.ended and len(job.placements) < job.pods_desired()
        cycled = waits and awaited(self.state, job).what != What.FIRST_CYCLE
        if waits:
            self._waiting[uid] = None
        at, now_ms = self.state.offset, self.state.time_ms
        self._lasting[uid] = _Interval(uid, label(job), at, now_ms, cycled, len(self._waiting))
        self._intervals.append(self._lasting[uid])

    # --- what happened -------------------------------------------------------------------------------------

    def _tells(self, event: k.Event) -> bool:
        """Whether an event may be told. The state is that before its entry."""
        if isinstance(event, k.NodeSeen):
            row = self.state.nodes.rows.get(event.name)
            if row is None:
                return self.state.synced
            before, now = self.state.nodes.facts[row], event.facts
            return (before.ready, before.cordoned) != (now.ready, now.cordoned)
        gone = k.is_gone(event, k.Watched.JOB, k.Watched.NODE, k.Watched.QUEUE)
        return gone or isinstance(event, (*_DECISIONS, k.JobSeen, k.QueueSeen))

    def _happened(self, judged: Judged, labels: dict[str, str]) -> None:
        event = judged.event
        decided = isinstance(event, _DECISIONS)
        if judged.again or judged.verdict == VOID or (decided and judged.verdict != ACCEPTED):
            return
        uids = dict.fromkeys(uid for uid in (judged.job_uid, *victims_of(event)) if uid)
        names = [labels.get(uid) or label_of(self.state, uid) for uid in uids]
        jobs = tuple(self._number(name) for name in names if name in self._jobs)
        subject = "" if uids else getattr(event, "name", "")
        words = judged.was if k.is_gone(event, k.Watched.JOB) and judged.was else describe(event, self.state)
        kind = self._text(k.kind_of(event))
        at = (judged.offset, self.state.time_ms, kind, self._text(words), jobs, self._text(subject))
        self._happenings.append(Happening(*at))

    # --- the result ----------------------------------------------------------------------------------------

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _played(self, name: str) -> PlayedJob:
        if name not in self._jobs:
            self._jobs[name] = PlayedJob(name, steps=[])
            self._number(name)
        return self._jobs[name]

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def playback(self) -> Playback:
        state = self.state
        return Playback(
            epoch=state.epoch,
            first=self._began + 1,
            last=state.offset,
            first_ms=self._first_ms,
            last_ms=state.time_ms,
            timeline=self._timeline.timeline(400, complete=True),
            series=self._series.series(_SAMPLES, state, complete=True),
            gantt=self._gantt.gantt(self._first_ms, state.time_ms, complete=True),
            nodes=self._gantt.nodes.gantt(self._first_ms, state.time_ms, complete=True),
            jobs=tuple(self._jobs.values()),
            happenings=tuple(self._happenings),
            texts=tuple(self._texts),
            job=self._job,
        )

    def to_explain(self, most: int = EXPLAINED) -> dict[int, list[str]]:
        """The offsets at which jobs shall be explained, with their UIDs: at the beginning of states, and once more in
        the middle of the longest waits, where the page may open. Those of the asked job come first."""
        now_ms = self.state.time_ms

        def rank(interval: _Interval) -> tuple[bool, bool, int]:
            long_ms = (interval.until_ms if interval.until_ms >= 0 else now_ms) - interval.since_ms
            return interval.job != self._job, not interval.waits, -long_ms

        found: dict[int, list[str]] = {}
        # A state that passed within the same millisecond is never seen.
        lasted = [one for one in self._intervals if one.until_ms != one.since_ms]
        ranked = sorted(lasted, key=rank)[:most]
        upto = list(accumulate(interval.waiting for interval in ranked))
        ranked = ranked[: max(bisect_right(upto, _WAITING), 1)]
        for interval in ranked:
            found.setdefault(interval.at, []).append(interval.uid)
        for interval in ranked[:_OPENINGS]:
            until_ms = interval.until_ms if interval.until_ms >= 0 else now_ms
            middle = self._timeline.offset_at((interval.since_ms + until_ms) // 2)
            if interval.waits and middle > interval.at:
                found.setdefault(middle, []).append(interval.uid)
        return found


def _gone(event: k.Event) -> Iterator[str]:
    if k.is_gone(event, k.Watched.JOB):
        yield event.uid


class PointExplainer:
    """Explains jobs at some offsets, as `arranger explain` does there. Call `feed` with each entry after those that
    `state` has, and `finish` at the end. `config` has the settings of the last cycle up to the state. `told` is
    called with each explanation, without the job's life up to there."""

    def __init__(
        self,
        state: State,
        config: CycleConfig,
        asked: dict[int, list[str]],
        told: Callable[[Explanation], Any],
        *,
        policies: Policies = BUILT_IN,
    ) -> None:
        # No pod has an empty name, so no placement is repeated.
        every = AskedJob(EVERY_JOB, pod=EVERY_JOB)
        self._histories = JobHistories(state, every, config, policies=policies, folded=self._folded)
        self._asked, self._told, self._policies = asked, told, policies
        self.finish = self._histories.finish
        #: The offset at which jobs are explained → the cycle that is recorded there.
        self._cycles: dict[int, k.CycleTaken] = {}
        if state.offset in asked:
            self._folded()

    def feed(self, entry: Entry) -> None:
        """Raises `DamagedEntry`."""
        for event in entry.batch.events if entry.last in self._asked else ():
            if isinstance(event, k.CycleTaken):
                self._cycles[entry.last] = event
                self._histories.keep(event.base)
        self._histories.feed(entry)

    def _folded(self) -> None:
        histories = self._histories
        cycle = self._cycles.get(histories.state.offset)
        recorded = histories.kept(cycle.base, cycle.time_ms) if cycle is not None else None
        for uid in self._asked.get(histories.state.offset, ()):
            story, job = histories.stories.get(uid), histories.state.jobs.get(uid)
            if story is not None and job is not None:
                retaken = histories.retaken(uid, job.attempt)
                found = explanation(story, job, retaken, policies=self._policies, recorded=recorded)
                self._told(msgspec.structs.replace(found, rejected=(), intervals=(), timeline=()))
