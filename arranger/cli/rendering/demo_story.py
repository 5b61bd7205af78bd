"""The demo as a story: a line for each thing that it is there to show, as soon as the log has it, with the log's times.

Told are gangs that wait and why, room that is taken back, pods that fail while their job runs on, jobs that fail, and
queues that use more than they deserve.
"""

from collections.abc import Callable, Iterator

from arranger.cli.rendering.output import duration
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.messages.decisions import stage_text
from arranger.messages.shortages import waits_text
from arranger.model.job import Stage
from arranger.model.pod import Phase, gpus_of
from arranger.model.stages import StageReason
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.explain.room_words import gave_text
from arranger.replay.explain.taken_room import taking
from arranger.replay.forecast.starts import waits_to_start
from arranger.replay.reading.history import advance
from arranger.replay.reading.verdicts import ACCEPTED, Judged, fold_noting
from arranger.scheduling import queues_view

_TOLD = (k.Waits, k.Preempted, k.StageDecided, k.PodSeen)


class LongestWait:
    """Folds entries of a log from its beginning, and finds where a job (UID) waited longest for one recorded reason."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._state = State()
        #: The reason for which the job waits now, since when, and as of which offset.
        self._now: tuple[k.Waits, int, int] | None = None
        self._longest: tuple[int, int] | None = None

    def feed(self, entry: Entry) -> None:
        advance(self._state, entry, Changes())
        job = self._state.jobs.get(self._uid)
        waits = job.waits if job is not None and waits_to_start(job) else None
        if waits is (self._now[0] if self._now is not None else None):
            return
        self._longest = self._over()
        self._now = (waits, self._state.time_ms, entry.last) if waits is not None else None

    def _over(self) -> tuple[int, int] | None:
        if self._now is None:
            return self._longest
        _, since_ms, at = self._now
        span_ms = self._state.time_ms - since_ms
        return (span_ms, at) if self._longest is None or span_ms > self._longest[0] else self._longest

    @property
    def at(self) -> int | None:
        """The offset as of which the job waits for that reason; None if it never waited for one."""
        found = self._over()
        return found[1] if found is not None else None


class DemoStory:
    """Folds entries of a log from its beginning, and tells what is new in each. `shows_all` says of a job's name
    whether what is shown beside the story has all of its pods: statuses come later than the log, and a line that says
    so waits for them (`shown`)."""

    def __init__(self, shows_all: Callable[[str], bool] = lambda _: True) -> None:
        self._shows_all = shows_all
        self._state = State()
        #: Job UID → how its wait is called when it is over, of those that were told to wait.
        self._waits: dict[str, str] = {}
        #: Job UID → since when it is Pending or Rescheduling, in milliseconds since 1970, and how long its last such
        #: wait took: until its quorum had nodes. `arranger explain` counts the same.
        self._waiting: dict[str, int] = {}
        self._waited_ms: dict[str, int] = {}
        #: Job UID → when the first of its pods ended that are being replaced.
        self._replaces: dict[str, int] = {}
        #: Name of a job that has all of its pods again, which isn't shown yet → the line.
        self._whole: dict[str, str] = {}
        self.room_taken = False
        self._failed: set[str] = set()
        self._borrowers: set[str] = set()

    def feed(self, entry: Entry) -> Iterator[str]:
        """The news of an entry, a line each."""
        numbers = [number for number, event in enumerate(entry.batch.events) if isinstance(event, _TOLD)]
        changes = Changes()
        for judged in fold_noting(self._state, entry, changes, numbers):
            job = self._state.jobs.get(judged.job_uid)
            if job is not None and isinstance(judged.event, k.PodSeen):
                yield from self._seen(judged.event, job, entry.batch.time_ms)
            elif job is not None and judged.verdict == ACCEPTED:
                yield from self._told(judged, job, entry.batch.time_ms)
        self._time_waits(changes)
        self._whole_again(changes, entry.batch.time_ms)
        yield from self.shown()
        if any(isinstance(event, k.Placed) for event in entry.batch.events):
            yield from self._borrowing()

    def shown(self) -> Iterator[str]:
        """The lines that waited for what they say to be shown."""
        for name in [name for name in self._whole if self._shows_all(name)]:
            yield self._whole.pop(name)

    def _told(self, judged: Judged, job: JobRecord, time_ms: int) -> Iterator[str]:
        name, event = job.seen.name, judged.event
        if isinstance(event, k.Waits):
            if not job.placements and not event.shortage.infeasible and job.uid not in self._waits:
                self._waits[job.uid] = "it waited"
                pods = job.valid_spec.groups[0].count + job.valid_spec.min_workers
                gang = f"{pods} pods of it start together or not at all: " if pods > 1 else ""
                yield f"{name} waits: {gang}{waits_text(job)}"
        elif isinstance(event, k.Preempted):
            self.room_taken = True
            taken = taking(judged.offset, time_ms, event, self._state)
            self._waits |= {gave.uid: "it waited again" for gave in taken.victims}
            yield f"{name} of queue {taken.queue} takes room back from {', '.join(map(gave_text, taken.victims))}"
        elif isinstance(event, k.StageDecided):
            yield from self._entered(event, job, time_ms)

    def _seen(self, pod: k.PodSeen, job: JobRecord, time_ms: int) -> Iterator[str]:
        if pod.phase == Phase.FAILED and pod.uid not in self._failed and job.stage == Stage.RUNNING:
            self._failed.add(pod.uid)
            self._replaces.setdefault(job.uid, time_ms)
            yield f"{job.seen.name} runs on without pod {pod.name}, which failed; another one follows"

    def _entered(self, event: k.StageDecided, job: JobRecord, time_ms: int) -> Iterator[str]:
        name = job.seen.name
        if event.stage == Stage.RUNNING and job.uid in self._waits:
            yield f"{name} runs; {self._waits.pop(job.uid)} for {duration(self._waited_ms.get(job.uid, 0))}"
        elif event.stage == Stage.FAILED:
            yield f"{name} failed: {stage_text(event)}"
        elif event.stage == Stage.RESCHEDULING and event.reason != StageReason.PREEMPTED:
            self._waits[job.uid] = "it waited again"
            yield f"{name} starts again: {stage_text(event)}"

    def _time_waits(self, changes: Changes) -> None:
        for uid in changes.jobs:
            job = self._state.jobs.get(uid)
            if job is None:
                continue
            if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
                self._waiting.setdefault(uid, job.times.stage_ms)
            elif uid in self._waiting:
                self._waited_ms[uid] = job.times.stage_ms - self._waiting.pop(uid)

    def _whole_again(self, changes: Changes, time_ms: int) -> None:
        """Note the jobs all of whose pods are ready again."""
        for uid in changes.jobs:
            job = self._state.jobs.get(uid)
            if uid in self._replaces and (job is None or job.ended):
                del self._replaces[uid]
            elif uid in self._replaces and job is not None and sum(job.ready) == job.pods_desired():
                after = duration(time_ms - self._replaces.pop(uid))
                self._whole[job.seen.name] = f"{job.seen.name} has all of its pods again, after {after}"

    def _borrowing(self) -> Iterator[str]:
        """The queues that use more GPUs than they deserve, each once."""
        for queue in queues_view(self._state).queues.values():
            deserved = gpus_of(queue.spec.deserved) if queue.spec is not None else 0
            used = gpus_of(queue.used.items())
            if deserved and used > deserved and queue.name not in self._borrowers:
                self._borrowers.add(queue.name)
                yield f"queue {queue.name} uses {used} GPUs, and borrows {used - deserved} of them from others"
