"""One job's life: the events about it, the time in each state and what it waited for, the decisions that placed it or
other jobs meanwhile, and the causes of each unusual decision.
"""

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import ShortageFacts
from arranger.events.log import Entry
from arranger.lifecycle.images import ImageWaits
from arranger.model.job import Stage
from arranger.model.reasons import ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.awaited import Awaited, awaited, awaited_text, began_ms, waits_to_start
from arranger.replay.explain.causes import RESTARTED, Consequence, PodHistories, shortage_in
from arranger.replay.explain.cluster_context import ClusterContext, Placement
from arranger.replay.explain.taken_room import Giving, Promise, RoomTaking, giving, promise, taking
from arranger.replay.reading.describe import SEEN_AGAIN, describe
from arranger.replay.reading.edits import changed
from arranger.replay.reading.verdicts import ACCEPTED, Judged


class Deletion(msgspec.Struct, frozen=True):
    """The event by which the log has it that the job is gone. `phase` is that in which the last pod of a record of
    pods of others ended; empty if that pod, or the job, was deleted."""

    offset: int
    time_ms: int
    phase: str = ""


class StoryEvent(msgspec.Struct, frozen=True):
    """An event about the job: an observation, a decision with its verdict, or an outcome. `again`: the job was seen
    unchanged. `superseded`: the decision is of a superseded cycle, which is usual with several schedulers.
    """

    offset: int
    time_ms: int
    kind: str
    subject: str
    text: str
    verdict: str
    reason: str
    again: bool = False
    superseded: bool = False
    #: The facts of the text if it explains why the job has no nodes.
    shortage: ShortageFacts | None = None


class Interval(msgspec.Struct):
    """A time in one state. `lasts`: the state continues, and `until_ms` is the time of the point. `waiting_for` is
    `awaited` in words."""

    stage: str
    schedule_state: str
    waiting_for: str
    awaited: Awaited
    since_offset: int
    since_ms: int
    until_ms: int
    lasts: bool = True


class Story:
    """Collects the events about one job, by UID. `state` is the state that the reader folds."""

    def __init__(self, state: State, uid: str, around: ClusterContext, *, began: int, log_ms: int = 0) -> None:
        """`log_ms` is the time at which reading began; 0 if it isn't known."""
        self.state = state
        self.uid = uid
        self.around = around
        #: The offset at which reading began: 0 unless it began at a snapshot.
        self.began = began
        self._log_ms = log_ms
        self.moments: list[StoryEvent] = []
        self.intervals: list[Interval] = []
        self.placements: list[Placement] = []
        #: Decisions outside the job's normal course, with their causes.
        self.consequences: list[Consequence] = []
        self.pod_histories = PodHistories(uid, around)
        #: Pod name → (the UID seen last, the offset of its deletion, 0 if it exists).
        self._pods: dict[str, tuple[str, int]] = {}
        #: Offsets of the last accepted `Waits` and the last accepted stage decision; 0 if none was read.
        self.waits_at = 0
        self.decided_at = 0
        self.created_at = 0
        #: When the job was first seen, if it waited then; it may have been created earlier.
        self.seen_ms = 0
        #: Room that others gave to the job, that it gave to others, and that was kept for it, in log order.
        self.takings: list[RoomTaking] = []
        self.givings: list[Giving] = []
        self.promises: list[Promise] = []
        #: Since when the image that the job can't run without can't be pulled; None if it can, or there is none.
        self.no_image_ms: int | None = None
        self._images = ImageWaits()

    def note(self, judged: Judged, time_ms: int) -> None:
        """Record an event about the job, after it was folded."""
        event, offset = judged.event, judged.offset
        job = self.state.jobs.get(self.uid)
        if isinstance(event, k.JobSeen):
            self.created_at = self.created_at or offset
            self.pod_histories.job_seen(offset, time_ms)
            self.consequences += self.pod_histories.edited(offset, time_ms, job, self.state)
        elif isinstance(event, k.PodSeen) and event.asks is not None:
            self.created_at = self.created_at or offset
        elif isinstance(event, k.PodSeen):
            self.consequences += self.pod_histories.seen(offset, time_ms, event, job, self.state)
        elif k.is_gone(event, k.Watched.POD):
            self.pod_histories.pod_gone(offset, time_ms, event.uid)
        elif isinstance(event, k.PodsTried):
            pass
        elif isinstance(event, k.EffectFailed):
            self.pod_histories.effect_failed(offset, time_ms, event)
        elif judged.verdict == ACCEPTED:
            self._note_decision(offset, time_ms, event, job)
        self._keep_moment(judged, time_ms)

    def _note_decision(self, offset: int, time_ms: int, event: k.Event, job: JobRecord | None) -> None:
        if isinstance(event, k.Preempted):
            self._note_preempted(offset, time_ms, event, job)
        elif isinstance(event, k.Reserved):
            self.promises.append(promise(offset, time_ms, event, self.state))
        elif isinstance(event, k.Placed):
            self._placed(time_ms, event)
            if job is not None and job.decided == k.start(self.uid, event.based_on, event.attempt):
                self.decided_at = offset
                self.pod_histories.started(offset, time_ms)
        elif isinstance(event, k.Waits):
            self.waits_at = offset
            self.pod_histories.waits(offset, time_ms, event)
        elif isinstance(event, (k.StageDecided, k.WorkersReplaced)):
            if isinstance(event, k.StageDecided):
                self.decided_at = offset
                self._room_ends(time_ms, begun=event.stage == Stage.STARTING)
            consequence = self.pod_histories.decided(offset, time_ms, event, job, self.state)
            if consequence is not None:
                self._answered(consequence)
                self.consequences.append(consequence)

    def _placed(self, time_ms: int, event: k.Placed) -> None:
        """Record nodes that the job got; a victim with a quorum of them doesn't wait any more."""
        self.pod_histories.placed(event)
        if self.givings and self.givings[-1].whole and not self.givings[-1].again_ms:
            self.givings[-1].again_ms = time_ms

    def _note_preempted(self, offset: int, time_ms: int, event: k.Preempted, job: JobRecord | None) -> None:
        """Record that the job got room of others, or gave room."""
        taken = taking(offset, time_ms, event, self.state)
        if taken.uid == self.uid:
            self._room_ends(time_ms, begun=False)
            self.takings.append(taken)
            self._placed(time_ms, event.placed)
            return
        self.givings.append(giving(taken, self.uid))
        if self.givings[-1].whole:
            self._room_ends(time_ms, begun=False)
            self.decided_at = offset
        self.consequences.append(self.pod_histories.gave_room(offset, time_ms, self.givings[-1], job, self.state))

    def _room_ends(self, time_ms: int, *, begun: bool) -> None:
        """Record that the job began on nodes that others left, or gave them back."""
        if self.takings:
            self.takings[-1].ends(time_ms, begun=begun)

    def _answered(self, decided: Consequence) -> None:
        """Drop restarts that caused this decision, because it lists them as causes."""
        causes, told = [cause.offset for cause in decided.causes], self.consequences
        while told and told[-1].reason == RESTARTED and told[-1].offset in causes:
            told.pop()

    def finish(self) -> None:
        """The events are complete: the last interval continues until the state's time."""
        if self.intervals and self.intervals[-1].lasts:
            self.intervals[-1].until_ms = self.state.time_ms

    @property
    def others(self) -> list[Placement]:
        """The decisions that placed other jobs, in log order: all since this job's creation, and earlier ones of jobs
        that still existed then."""
        found = [
            one
            for uid, of_job in self.around.placements.items()
            if uid != self.uid
            for one in of_job
            if one.offset > self.created_at or self.around.gone.get(uid, self.created_at) >= self.created_at
        ]
        return sorted(found, key=lambda one: one.offset)

    def _keep_moment(self, judged: Judged, time_ms: int) -> None:
        event = judged.event
        subject = event.name if k.seen_or_gone(event, k.PodSeen) else ""
        text = SEEN_AGAIN if judged.again else self._text(judged.offset, event)
        what = (k.kind_of(event), subject, text, judged.verdict, judged.reason, judged.again, judged.superseded)
        self.moments.append(StoryEvent(judged.offset, time_ms, *what, shortage_in(event)))

    def _text(self, offset: int, event: k.Event) -> str:
        """The event in words; of an edit, with the changes."""
        text = describe(event, self.state)
        if isinstance(event, k.JobSeen):
            before = next((one.before for one in self.around.edits.get(self.uid, []) if one.offset == offset), None)
            if before is not None and event.spec is not None:
                return f"edited: {changed(before, event.spec)}; {text}"
        elif isinstance(event, k.PodSeen):
            uid, gone = self._pods.get(event.name, ("", 0))
            self._pods[event.name] = (event.uid, gone if uid == event.uid else 0)
            if uid and uid != event.uid:
                after = f" after the one that was deleted at offset {gone}" if gone else ""
                return f"{text}, a new pod{after}"
        elif k.is_gone(event, k.Watched.POD):
            uid, _ = self._pods.get(event.name, ("", 0))
            if uid in ("", event.uid):
                self._pods[event.name] = (event.uid, offset)
            return "it is gone"
        return text

    @property
    def meets_reserved(self) -> bool:
        """Whether room that is reserved for others is in the job's way now."""
        reasons = self.intervals[-1].awaited.reasons if self.intervals else ()
        return any(reason.kind == ReasonKind.RESERVED for reason in reasons)

    def keep_interval(self, entry: Entry) -> None:
        """Update the intervals after the fold of an entry that touched the job, or what is reserved."""
        job = self.state.jobs.get(self.uid)
        last = self.intervals[-1] if self.intervals else None
        now_ms = self.state.time_ms
        if self.takings:
            self.takings[-1].follow(job, now_ms)
        self.no_image_ms = self._images.since_ms(self.state, job, now_ms) if job is not None else None
        if job is None:
            if last is not None and last.lasts:
                last.until_ms, last.lasts = now_ms, False
            return
        stage, schedule_state, what = str(job.stage), str(job.schedule_state), awaited(self.state, job)
        if last is not None and (last.stage, last.schedule_state, last.awaited) == (stage, schedule_state, what):
            return
        if last is not None:
            last.until_ms, last.lasts = now_ms, False
        since_ms = now_ms
        if last is None and self.created_at and waits_to_start(stage, what):
            self.seen_ms, since_ms = now_ms, began_ms(job, now_ms, self._log_ms)
        self.intervals.append(Interval(stage, schedule_state, awaited_text(what), what, entry.first, since_ms, now_ms))
