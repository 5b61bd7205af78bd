"""The service writer: creates the Services of a job before any pod of an attempt, and again if one is gone."""

import logging
from functools import partial

from arranger.kube.cluster import SERVICES, ApiError, Object, Withdrawn
from arranger.kube.owners import identity_of
from arranger.kube.rendezvous import job_service, leader_service
from arranger.logs import log_event
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord
from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look

_log = logging.getLogger(__name__)

#: The Services of a job with a rendezvous are looked for this often while it runs: pods may look names up at any time.
_CHECK_S = 60.0


class ServiceWriter(JobWriter):
    """Creates the Services of leaders and of jobs."""

    def __init__(self, means: Means, creation: Creation) -> None:
        super().__init__(means)
        self._creation = creation

    async def ensure(self, look: Look) -> bool:
        """Create this attempt's Services, if any are requested; returns whether they exist, and nothing was decided on
        the job meanwhile."""
        job, progress = look.job, look.progress
        services = _services(job)
        if not services or progress.served == job.attempt:
            return True
        for service in services:
            if not await self._creation.create(look, min(job.placements), SERVICES, service):
                return False
        progress.served, progress.served_s = job.attempt, self._clock.monotonic_s()
        return look.current()

    async def keep(self, look: Look) -> None:
        """Create a Service again that was deleted while the job runs."""
        job, progress, now_s = look.job, look.progress, self._clock.monotonic_s()
        running = job.active and job.stage in (Stage.STARTING, Stage.RUNNING) and job.bound
        if not running or not job.valid_spec.has_rendezvous or now_s - progress.served_s < _CHECK_S:
            return
        progress.served_s = now_s
        for service in _services(job):
            await self._effects.carry_out("serve", look.job.seen.namespace, partial(self._again, look, service))

    async def _again(self, look: Look, service: Object) -> bool:
        cluster, namespace, name = self._effects.cluster, look.job.seen.namespace, service["metadata"]["name"]
        try:
            await cluster.get(SERVICES, namespace, name)
            return True
        except ApiError as refused:
            if refused.code != 404:
                raise
        try:
            await cluster.create(SERVICES, namespace, service, still=look.current)
        except Withdrawn:
            return False
        except ApiError as refused:
            if refused.busy:
                raise
            log_event(_log, "a Service is refused", level=logging.WARNING, job=look.job.seen.name, problem=refused)
            return False
        return True


def _services(job: JobRecord) -> list[Object]:
    """The Services that a job requests."""
    spec, metadata = job.valid_spec, identity_of(job.seen)
    found = [leader_service(metadata, spec.groups[0].name)] if spec.leader_service else []
    return [*found, job_service(metadata)] if spec.has_rendezvous else found
