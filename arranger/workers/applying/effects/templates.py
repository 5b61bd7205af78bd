"""The TYJobs with their pod templates, which the log doesn't have: read when objects are made of them."""

from arranger.kube.cluster import TYJOBS, ApiError, Object
from arranger.workers.applying.effects.carrying_out import STALE_S
from arranger.workers.applying.effects.job_writer import JobWriter
from arranger.workers.applying.effects.progress import Look


class Templates(JobWriter):
    """Reads TYJobs, each once for as long as its generation stays."""

    async def of(self, look: Look) -> Object | None:
        """The TYJob with the pod templates, in the generation that the log has seen: room was decided on for those
        templates only. None if the object or its generation is another one now."""
        job, held = look.job, look.progress.template
        if held is None or held["metadata"]["generation"] != job.seen.generation:
            try:
                held = await self._effects.cluster.get(TYJOBS, job.seen.namespace, job.seen.name)
            except ApiError as refused:
                if refused.code == 404:
                    return None
                raise
            look.progress.template = held
        if held["metadata"]["uid"] != job.uid:
            return None
        if held["metadata"]["generation"] != job.seen.generation:
            self._queue.look_again(job.uid, STALE_S)
            return None
        return held
