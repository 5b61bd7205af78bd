"""The edit of one job of `arranger what-if --job`: another priority, queue or number of GPUs, without a file."""

import msgspec

from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.model.accelerators import is_accelerator
from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import PodShape, gpus_of
from arranger.projections.jobs.records import JobRecord
from arranger.replay.reading.describe import label
from arranger.replay.reading.edits import changed

_Amounts = tuple[tuple[str, int], ...]


class JobEdit(msgspec.Struct, frozen=True):
    """A job by name, and what it has otherwise; None: as it is. `gpus` is for each of its pods that asks for GPUs."""

    job: str
    priority: int | None = None
    queue: str | None = None
    gpus: int | None = None

    @property
    def words(self) -> str:
        given = (("priority", self.priority), ("queue", self.queue), ("GPUs a pod", self.gpus))
        return "with " + ", ".join(f"{name} {value}" for name, value in given if value is not None)

    def seen(self, job: JobRecord) -> tuple[k.JobSeen, str]:
        """The observation of this job after the edit, and the edit in words. Raises `UsageError` for a job that can't
        be edited so."""
        before = job.seen.spec
        if job.of_pods:
            raise UsageError(f"{label(job)} is no TYJob, and can't be changed")
        if before is None or not job.active:
            raise UsageError(f"job {label(job)} has ended or is invalid there, and can't be changed")
        after = self._spec(before, label(job))
        words = changed(before, after) if after != before else "nothing is changed"
        seen = msgspec.structs.replace(job.seen, spec=after, faults=(), generation=job.seen.generation + 1, status=None)
        return seen, f"job {label(job)}: {words}"

    def _spec(self, spec: JobSpec, name: str) -> JobSpec:
        if self.priority is not None:
            # A TYJob has a priority of its own or a class, never both.
            spec = msgspec.structs.replace(spec, priority=self.priority, priority_class="", priority_known=True)
        if self.queue is not None:
            spec = msgspec.structs.replace(spec, queue=self.queue)
        if self.gpus is not None:
            if not any(gpus_of(group.shape.requests) for group in spec.groups):
                raise UsageError(f"no pod of job {name} asks for GPUs, so their number can't be changed")
            groups = tuple(_with_gpus(group, self.gpus, name) for group in spec.groups)
            spec = msgspec.structs.replace(spec, groups=groups)
        return spec


def _with_gpus(group: PodGroup, gpus: int, job: str) -> PodGroup:
    if sum(is_accelerator(name) for name, _ in group.shape.requests) > 1:
        raise UsageError(f"pods of {group.name} of job {job} ask for several kinds of GPUs", hint="use --with FILE")
    limits = _amounts(group.traits.limits, gpus)
    return msgspec.structs.replace(
        group, shape=_shape(group.shape, gpus), traits=msgspec.structs.replace(group.traits, limits=limits)
    )


def _shape(shape: PodShape, gpus: int) -> PodShape:
    return msgspec.structs.replace(shape, requests=_amounts(shape.requests, gpus))


def _amounts(amounts: _Amounts, gpus: int) -> _Amounts:
    return tuple((name, gpus if is_accelerator(name) else value) for name, value in amounts)
