"""Kubernetes Events on TYJobs: the history that `kubectl describe tyj` shows.

Each decision on the stage has one Event, and so has each change of the counts of worker sets. Within a stage, one Event
each shows for which jobs and which PriorityClass the job waits, why it waits for nodes, the end of that wait, replaced
workers, pods that the API server refuses, from whom the job takes room, and variables that its pods won't have. It is
updated when something other than numbers changes (the status has the numbers). A name depends only on the Event's
subject, so two appliers, or one after a restart, update the same Event. Names begin with the time of the decision,
because Events are listed by name and their times have seconds only: so a listing is in order. Events are for people: a
failure to record one is logged and never delays anything else.
"""

import logging
from typing import Any

from arranger.clock import Clock
from arranger.errors import ClusterError
from arranger.kube.cluster import EVENTS, PODS, TYJOBS, Cluster
from arranger.logs import log_event
from arranger.messages.decisions import gives_up, replaced_text, scaled_text, stage_text
from arranger.messages.prerequisites import short_text
from arranger.messages.readiness import labels_text, unset_text
from arranger.messages.shortages import waits_text
from arranger.model.job import ENDED, ScheduleState, Stage
from arranger.model.pods_to_place import pod_of
from arranger.model.text import one_line, rfc3339
from arranger.projections.derived.dependencies import awaited_jobs
from arranger.projections.jobs.parts import STEPS_KEPT
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.priorities import lacks_class
from arranger.projections.observed.runtime_classes import missing_classes
from arranger.workers.applying.effects.progress import ToldEvents

_log = logging.getLogger(__name__)

#: Kubernetes refuses Events with longer messages, in bytes.
_MESSAGE_LIMIT = 1000

_NORMAL, _WARNING = "Normal", "Warning"

#: The subjects of updated Events, as a part of their names.
_WAITING = "waiting"
_WHOLE = "whole"
_WORKERS = "workers"
_GIVEN_UP = "given-up"
_REFUSED = "refused"
_BEFORE = "before"
_TAKING = "taking"
_BOUND = "bound"
_LACKING = "lacking"
_HANGING = "hanging"
_STUCK = "stuck"
_UNSET = "unset"
_LABELS = "labels"

#: The order of Events with the same time in their names; those about a stage come after its own.
_ORDER = {Stage.PENDING: 0, Stage.RESCHEDULING: 0, Stage.STARTING: 3, Stage.RUNNING: 6}
_LAST = 9
_WITHIN = {
    "": 0,
    _BEFORE: 1,
    _WAITING: 1,
    _WORKERS: 1,
    _REFUSED: 1,
    _TAKING: 1,
    _LACKING: 1,
    _HANGING: 1,
    _STUCK: 1,
    _UNSET: 1,
    _LABELS: 1,
    _GIVEN_UP: 2,
    _WHOLE: 2,
    _BOUND: 2,
}


def step_of(job: JobRecord) -> int:
    """`based_on` of the decision behind a job's stage, as in `ToldEvents.step`."""
    return job.steps[-1][0].based_on if job.steps else 0


def scaled_in(job: JobRecord) -> int:
    """The generation of the TYJob in which its worker sets were last scaled, as in `ToldEvents.scaled`."""
    return job.times.scaled[-1].generation if job.times.scaled else 0


class Reporter:
    """Records Events. The caller keeps one `told` for each job."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        #: How many Events were written, or tried to be.
        self.writes = 0

    async def report(self, job: JobRecord, told: ToldEvents) -> None:
        """Report a new stage, replaced workers, refused pods and a new kind of shortage, once stored."""
        if job.of_pods:
            await self._report_pod(job, told)
            return
        if job.replaced.times > told.replacements:
            told.replacements = job.replaced.times
            message = replaced_text(job.replaced.causes, job.spec, job.slots.names)
            if gives_up(job.replaced.causes):
                await self._update(job, told, _GIVEN_UP, reason="WorkersGivenUp", message=message)
            else:
                await self._update(job, told, _WORKERS, reason="WorkersReplaced", message=message)
        if told.step != step_of(job):
            await self._tell_steps(job, told)
        if told.scaled != scaled_in(job):
            await self._tell_scalings(job, told)
        refusal = job.refusal()
        refused = refusal.message if refusal is not None and not refusal.permanent else ""
        if refused != told.refused:
            told.refused = refused
            if refused:
                await self._update(job, told, _REFUSED, reason="FailedCreate", message=refused)
        if told.taking != told.taken:
            told.taken = told.taking
            if told.taking:
                await self._update(job, told, _TAKING, reason="Preempting", message=told.taking, kind=_NORMAL)
        if told.hanging != told.hung:
            told.hung = told.hanging
            if told.hanging:
                await self._update(job, told, _HANGING, reason="PodHangs", message=told.hanging)
        await self._tell_stuck(job, told)
        await self._tell_warnings(job, told)
        await self._tell_before(job, told)
        await self._tell_waiting(job, told)

    async def _report_pod(self, job: JobRecord, told: ToldEvents) -> None:
        """Report that a pod was bound that no TYJob owns, that it can't be, or why it waits."""
        if told.bound:
            bound, told.bound = told.bound, []
            for name, uid, node in bound:
                told.about = name, uid
                message = f"bound {job.seen.namespace}/{name} to {node}"
                await self._update(job, told, _BOUND, reason="Scheduled", message=message, kind=_NORMAL)
            return
        if job.of_group and not told.about[0]:
            told.about = min((job.slots.names[slot], uid) for uid, slot in job.slots.members.items())
        refusal = job.refusal()
        refused = refusal.message if refusal is not None else ""
        if refused != told.refused:
            told.refused = refused
            if refused:
                await self._update(job, told, _REFUSED, reason="FailedBinding", message=refused)
        if told.lacking and told.lacking != told.lacked:
            await self._update(job, told, _LACKING, reason="WaitsForPods", message=told.lacking, kind=_NORMAL)
        told.lacked = told.lacking
        await self._tell_before(job, told)
        await self._tell_waiting(job, told)

    async def _tell_steps(self, job: JobRecord, told: ToldEvents) -> None:
        """Report every decision on the stage since the last reported one, but none of an earlier epoch."""
        last, told.step, steps = told.step, step_of(job), job.steps
        told.times.clear()
        if last is None and not job.adopted_at and not job.seen.faults and len(steps) < STEPS_KEPT:
            created_ms = job.seen.created_ms
            name = _name(job, Stage.PENDING, created_ms)
            message = f"Pending: accepted; {short_text(job, queue=told.queue) or 'waits for the next scheduling cycle'}"
            await self._create(job, name, reason="Accepted", message=message, time_ms=created_ms)
        for decided, time_ms in steps:
            if last is None or decided.based_on > last:
                stage = Stage(decided.stage)
                name, message = _name(job, stage, time_ms), f"{stage}: {stage_text(decided)}"
                if decided.back_off_ms:
                    message += f"; scheduled again from {rfc3339(time_ms + decided.back_off_ms + 999)}"
                kind = _WARNING if stage in (Stage.FAILED, Stage.RESCHEDULING) else _NORMAL
                await self._create(job, name, reason=decided.reason, message=message, time_ms=time_ms, kind=kind)

    async def _tell_scalings(self, job: JobRecord, told: ToldEvents) -> None:
        """Report every change of counts since the last reported one."""
        last, told.scaled = told.scaled, scaled_in(job)
        for scaled in job.times.scaled:
            if scaled.generation > last and job.spec is not None:
                name = f"{job.seen.name}.{scaled.time_ms:011x}.1-scaled-{scaled.generation}.{job.uid[:8]}"
                message = scaled_text(scaled.sets, job.spec)
                await self._create(job, name, reason="Scaled", message=message, time_ms=scaled.time_ms)

    async def _tell_stuck(self, job: JobRecord, told: ToldEvents) -> None:
        """Report that a kubelet can't start a pod, once for all pods that it can't start at a time."""
        first = bool(told.stuck) and not told.stuck_told
        told.stuck_told = bool(told.stuck)
        if first:
            await self._update(job, told, _STUCK, reason="PodCannotStart", message=told.stuck)

    async def _tell_warnings(self, job: JobRecord, told: ToldEvents) -> None:
        """Report variables that its pods won't have, and labels that another scheduler reads."""
        unset, labels, warned = unset_text(job), labels_text(job), told.warned
        told.warned = {_UNSET: unset, _LABELS: labels}
        if unset not in ("", warned.get(_UNSET)) and not job.ended:
            await self._update(job, told, _UNSET, reason="UnsetVariable", message=unset)
        if labels not in ("", warned.get(_LABELS)) and not job.ended:
            await self._update(job, told, _LABELS, reason="KueueLabel", message=labels)

    async def _tell_before(self, job: JobRecord, told: ToldEvents) -> None:
        """Report for which jobs it waits, for which classes, and for which queue."""
        jobs = tuple(of.name for of in awaited_jobs(job))
        of_class = (job.valid_spec.priority_class,) if lacks_class(job) else ()
        runtimes = tuple(f"RuntimeClass {name}" for name in missing_classes(job))
        before = (*jobs, *of_class, *runtimes, *([f"queue {told.queue}"] if told.queue else []))
        if before == told.before:
            return
        told.before = before
        text = short_text(job, queue=told.queue)
        if jobs:
            await self._update(job, told, _BEFORE, reason="WaitsForJobs", message=text, kind=_NORMAL)
        elif of_class:
            await self._update(job, told, _BEFORE, reason="WaitsForPriorityClass", message=text, kind=_NORMAL)
        elif runtimes:
            await self._update(job, told, _BEFORE, reason="WaitsForRuntimeClass", message=text, kind=_NORMAL)
        elif before:
            await self._update(job, told, _BEFORE, reason="WaitsForQueue", message=text, kind=_NORMAL)

    async def _tell_waiting(self, job: JobRecord, told: ToldEvents) -> None:
        if job.ended or job.waits is None or job.schedule_state == ScheduleState.SUCCEED:
            waited, told.waiting = told.waiting, ()
            whole = job.schedule_state == ScheduleState.SUCCEED and job.stage in (Stage.STARTING, Stage.RUNNING)
            if whole and ScheduleState.PARTLY in waited:
                await self._update(
                    job, told, _WHOLE, reason="FullyScheduled", message="every pod has a node now", kind=_NORMAL
                )
            return
        kinds = (job.schedule_state, *job.waits.shortage.kinds())
        if kinds != told.waiting:
            told.waiting = kinds
            message = waits_text(job)
            if not await self._update(job, told, _WAITING, reason="FailedScheduling", message=message):
                told.waiting = ()

    async def _update(
        self, job: JobRecord, told: ToldEvents, about: str, *, reason: str, message: str, kind: str = _WARNING
    ) -> bool:
        """Record an Event, or update it with the present message. Returns False if a new one couldn't be recorded."""
        ended = about in (_WORKERS, _GIVEN_UP)
        stage, since_ms = _replaced_in(job) if ended else (job.stage, job.times.stage_ms)
        name, now_ms = _name(job, stage, since_ms, about, told.about), self._clock.now_ms()
        if ended:
            now_ms = job.replaced.time_ms
        times = told.times.get(name, 0)
        pod = told.about
        if not times and await self._create(
            job, name, reason=reason, message=message, time_ms=now_ms, kind=kind, pod=pod
        ):
            told.times[name] = 1
            return True
        told.times[name] = max(times, 1) + 1
        change = {"message": _shown(message), "count": told.times[name], "lastTimestamp": rfc3339(now_ms)}
        try:
            self.writes += 1
            await self._cluster.patch(EVENTS, job.seen.namespace, name, change)
        except ClusterError as problem:
            if getattr(problem, "code", 0) == 404:  # expired in the API server
                return await self._create(job, name, reason=reason, message=message, time_ms=now_ms, kind=kind, pod=pod)
            self._complain(job, problem)
        return True

    async def _create(
        self,
        job: JobRecord,
        name: str,
        *,
        reason: str,
        message: str,
        time_ms: int,
        kind: str = _NORMAL,
        pod: tuple[str, str] = ("", ""),
    ) -> bool:
        """Record an Event; returns False if one of that name exists already, or it can't be recorded."""
        seen, told = job.seen, rfc3339(time_ms)
        event: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": (PODS if job.of_pods else TYJOBS).api_version,
                "kind": (PODS if job.of_pods else TYJOBS).kind,
                "namespace": seen.namespace,
                "name": pod[0] or pod_of(seen.name),
                "uid": pod[1] or pod_of(job.uid),
            },
            "reason": one_line(reason),
            "message": _shown(message),
            "type": kind,
            "source": {"component": "arranger"},
            "firstTimestamp": told,
            "lastTimestamp": told,
            "count": 1,
        }
        try:
            self.writes += 1
            await self._cluster.create(EVENTS, seen.namespace, event)
        except ClusterError as problem:
            if getattr(problem, "code", 0) != 409:
                self._complain(job, problem)
            return False
        return True

    def _complain(self, job: JobRecord, problem: ClusterError) -> None:
        log_event(_log, "an Event isn't recorded", level=logging.WARNING, job=job.seen.name, problem=problem)


def _shown(message: str) -> str:
    """A message, which may contain foreign text, in the form that an Event accepts."""
    return one_line(message).encode()[:_MESSAGE_LIMIT].decode(errors="ignore")


def _name(job: JobRecord, stage: Stage, since_ms: int, about: str = "", pod: tuple[str, str] = ("", "")) -> str:
    """The name of an Event on a stage or on a subject within it; names sort in the order of the Events."""
    order = f"{_ORDER.get(stage, _LAST) + _WITHIN[about]:x}"
    name, uid = pod[0] or pod_of(job.seen.name), pod[1] or pod_of(job.uid)
    return f"{name}.{since_ms:011x}.{order}-{about or stage.lower()}.{uid[:8]}"


def _replaced_in(job: JobRecord) -> tuple[Stage, int]:
    """The stage in which workers were last replaced, and when it began; never an ended stage."""
    found = [(Stage(step.stage), since_ms) for step, since_ms in job.steps if since_ms <= job.replaced.time_ms]
    lasting = [(stage, since_ms) for stage, since_ms in found if stage not in ENDED]
    return lasting[-1] if lasting else (job.stage, job.times.stage_ms)
