"""One job's life, collected in one reading of the log: everything that concerned it, how long it was in each state
and what it waited for then, the decisions that placed it, and those that gave nodes to others meanwhile.
"""

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, PlacedPods, ScheduleState, Stage
from arranger.projections.fold import SUPERSEDED
from arranger.projections.jobs import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.describe import SEEN_AGAIN, describe, label
from arranger.replay.verdicts import ACCEPTED, REJECTED, Judged, fold_judged
from arranger.scheduling.queue import old_pods

#: How a spell says that nodes were waited for; the reasons follow.
FOR_QUORUM = "nodes for its quorum: "
FOR_FURTHER = "nodes for further pods: "


class Moment(msgspec.Struct, frozen=True):
    """Something that concerned the job: an observation, a decision with its verdict, or an outcome. `again`: the job
    was seen with nothing changed. `superseded`: of a cycle that another overtook, as is usual with several schedulers.
    """

    offset: int
    told_ms: int
    kind: str
    subject: str
    text: str
    verdict: str
    reason: str
    again: bool = False
    superseded: bool = False


class Spell(msgspec.Struct):
    """A time in one state. `until_ms` is that of the point asked about where the state still lasts (`lasts`)."""

    stage: str
    schedule_state: str
    waiting_for: str
    since_offset: int
    since_ms: int
    until_ms: int
    lasts: bool = True


class Placement(msgspec.Struct, frozen=True):
    """An accepted `Placed`: its own offset, and the inputs of the cycle that decided it."""

    offset: int
    cycle: int
    base: int
    cycle_told_ms: int
    config: CycleConfig
    told_ms: int
    job: str
    job_uid: str
    attempt: int
    spec: JobSpec
    pods: tuple[PlacedPods, ...]


class Story:
    """Folds what it is fed and keeps what concerns one job, by UID, up to the last entry fed."""

    def __init__(self, state: State, uid: str) -> None:
        self.state = state
        self.uid = uid
        #: Where this reading began: 0 unless it began at a snapshot.
        self.began = state.offset
        self.moments: list[Moment] = []
        self.spells: list[Spell] = []
        self.placements: list[Placement] = []
        #: Of other jobs, by UID: since this one came, and those from before whose job was still there then.
        self._others: dict[str, list[Placement]] = {}
        self.created_at = 0
        #: The configuration of the last cycle in the log.
        self.config: CycleConfig | None = None

    def feed(self, entry: Entry) -> None:
        """Take in one entry. Raises `DamagedEntry`."""
        changes = Changes()
        found = fold_judged(self.state, entry, changes, self._wanted)
        cycle: tuple[int, k.CycleTaken] | None = None
        for judged in found:
            event = judged.event
            if isinstance(event, k.CycleTaken):
                cycle = judged.offset, event
                self.config = event.config
                continue
            if isinstance(event, k.Placed) and judged.verdict == ACCEPTED and cycle is not None:
                self._keep_placement(judged, event, cycle, entry.batch.told_ms)
            if judged.job_uid == self.uid:
                self._keep_moment(judged, entry.batch.told_ms)
            elif isinstance(event, k.JobGone) and not self.created_at:
                self._others.pop(event.uid, None)
        if self.uid in changes.jobs:
            self._keep_spell(entry)

    def finish(self) -> None:
        """Nothing more is fed: the last spell lasts until the state's time."""
        if self.spells and self.spells[-1].lasts:
            self.spells[-1].until_ms = self.state.told_ms

    @property
    def others(self) -> list[Placement]:
        """The decisions that placed other jobs, in the order of the log: all since this job came, and from before
        that those of jobs which were still there."""
        return sorted((one for of_job in self._others.values() for one in of_job), key=lambda one: one.offset)

    @property
    def rejected(self) -> list[Moment]:
        """The decisions about the job that took no effect."""
        return [moment for moment in self.moments if moment.verdict == REJECTED]

    def _wanted(self, event: k.Event, job_uid: str) -> bool:
        return job_uid == self.uid or isinstance(event, (k.CycleTaken, k.Placed, k.JobGone))

    def _keep_placement(self, judged: Judged, event: k.Placed, cycle: tuple[int, k.CycleTaken], told_ms: int) -> None:
        job = self.state.jobs.get(event.job_uid)
        if job is None or job.spec is None:
            return
        at, taken = cycle
        placement = Placement(
            offset=judged.offset,
            cycle=at,
            base=taken.base,
            cycle_told_ms=taken.told_ms,
            config=taken.config,
            told_ms=told_ms,
            job=label(job),
            job_uid=job.uid,
            attempt=event.attempt,
            spec=job.spec,
            pods=event.pods,
        )
        kept = self.placements if job.uid == self.uid else self._others.setdefault(job.uid, [])
        kept.append(placement)

    def _keep_moment(self, judged: Judged, told_ms: int) -> None:
        event = judged.event
        if not self.created_at and isinstance(event, k.JobSeen):
            self.created_at = judged.offset
        pod = event if isinstance(event, (k.PodSeen, k.PodGone)) else None
        subject = pod.name if pod is not None else ""
        kind, text = k.kind_of(event), SEEN_AGAIN if judged.again else describe(event, self.state)
        superseded = judged.verdict == REJECTED and judged.reason.startswith(SUPERSEDED)
        self.moments.append(
            Moment(
                judged.offset,
                told_ms,
                kind,
                subject,
                text,
                judged.verdict,
                judged.reason,
                again=judged.again,
                superseded=superseded,
            )
        )

    def _keep_spell(self, entry: Entry) -> None:
        job = self.state.jobs.get(self.uid)
        last = self.spells[-1] if self.spells else None
        now_ms = self.state.told_ms
        if job is None:
            if last is not None and last.lasts:
                last.until_ms, last.lasts = now_ms, False
            return
        stage, schedule_state, waiting_for = str(job.stage), str(job.schedule_state), waits_for(self.state, job)
        if last is not None and (last.stage, last.schedule_state, last.waiting_for) == (
            stage,
            schedule_state,
            waiting_for,
        ):
            return
        if last is not None:
            last.until_ms, last.lasts = now_ms, False
        self.spells.append(Spell(stage, schedule_state, waiting_for, entry.first, now_ms, now_ms))


def waits_for(state: State, job: JobRecord) -> str:
    """What a job waits for, in words without numbers, so that equal words mean the same; empty if for nothing."""
    if job.ended or not job.active:
        return ""
    if job.stage == Stage.RESCHEDULING and old_pods(state, job):
        return "the pods of its earlier attempt to be gone"
    if job.stage in (Stage.PENDING, Stage.RESCHEDULING):
        if job.schedule_state != ScheduleState.UNSCHEDULED:
            return "its controller"
        if job.waits is None:
            return "a first scheduling cycle"
        return FOR_QUORUM + _kinds(job.waits)
    if job.stage == Stage.STARTING:
        return "enough ready workers" if job.leader_address else "its leader's address"
    if job.schedule_state == ScheduleState.PARTLY and job.waits is not None:
        return FOR_FURTHER + _kinds(job.waits)
    return ""


def _kinds(waits: k.Waits) -> str:
    """The reasons without their numbers."""
    return ", ".join(reason.split(" (")[0] for reason, _ in waits.reasons) or "there are none"
