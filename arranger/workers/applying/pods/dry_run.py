"""Dry runs: whether the API server would take the pods of a job, before others give room for them.

A cycle that would take room for a job records that its pods are untried, and a job with a reservation may take room at
the next chance: an answer that came only then would let jobs behind it go first. The applier asks the API server, by a
dry run that stores nothing, for one pod of each group, and records the result. It is asked once for each generation of
a job; if a pod was refused, again after half a minute and more and more rarely, because a webhook, a permission or a
LimitRange may have changed. A cycle never waits for the API server.

Some refusals say nothing of the pods: those of webhooks that take no dry runs, and those of quotas that are used up,
which the scheduler counts itself. If the API server fails again and again, the pods count as taken: to create them
shows more.
"""

from arranger.events.kinds import PodsTried
from arranger.kube.cluster import PODS, ApiError, Object
from arranger.kube.manifests import pod_manifest
from arranger.lifecycle.refusals import tries_pods
from arranger.model.job import LEADER_GROUP, Slot
from arranger.model.queue import PreemptionMode
from arranger.projections.jobs.records import JobRecord
from arranger.workers.applying.effects.job_writer import JobWriter, texts_of
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.effects.templates import Templates

#: The first pause after a refusal, and the longest one.
_AGAIN_S, _LONGEST_S = 30.0, 300.0
#: After so many failed requests the pods count as taken.
_FAILURES = 3
#: Phrases in the API server's message that say nothing of the pods.
_UNSURE = ("exceeded quota:", "does not support dry run")


class DryRun(JobWriter):
    """Tries the pods of the jobs that others would give room to."""

    async def look(self, look: Look, templates: Templates) -> None:
        """Try the pods of a job if that is due."""
        job, progress = look.job, look.progress
        if not tries_pods(job, in_front=self._is_in_front(job)) or not look.current():
            return
        generation, times, again_s = progress.dry_runs
        if generation != job.seen.generation:
            times, again_s = 0, 0.0
        if self._waits(look, again_s - self._clock.monotonic_s()):
            return
        template = await templates.of(look)
        nodes = self._follower.state.nodes
        node = min((name for name in nodes.rows if nodes.has(name)), default="")
        if template is None or not node or not look.current():
            return
        progress.dry_runs = (job.seen.generation, times + 1, 0.0)
        found = await self._tried(look, template, node, last=times + 1 >= _FAILURES)
        rest_s = min(_AGAIN_S * 2.0 ** min(times, 8), _LONGEST_S)
        progress.dry_runs = (job.seen.generation, times + 1, self._clock.monotonic_s() + rest_s)
        if found.slot is not None:
            self._queue.look_again(job.uid, rest_s)
        if look.current() and found != job.dry_run:
            await self._writer.append([found])

    def _is_in_front(self, job: JobRecord) -> bool:
        """Whether a job has a reservation, where jobs may take room at all."""
        may = PreemptionMode.ALLOWED in self._effects.parts.settings.preemption.values()
        return may and job.uid in self._follower.state.reservations

    async def _tried(self, look: Look, template: Object, node: str, *, last: bool) -> PodsTried:
        """The result for the first pod of each group. With `last`, pods that can't be tried count as taken."""
        job = look.job
        for number, group in enumerate(job.valid_spec.groups):
            if not group.count:
                continue
            address = None if number == LEADER_GROUP else ""
            pod = pod_manifest(template, group=number, index=0, attempt=job.attempt, node=node, leader_address=address)
            refused = await self._refused(job.seen.namespace, pod, last=last)
            if refused is not None:
                return PodsTried(job.uid, job.seen.generation, Slot(number, 0), refused.code, *texts_of(refused))
        return PodsTried(job.uid, job.seen.generation)

    async def _refused(self, namespace: str, pod: Object, *, last: bool) -> ApiError | None:
        """Why the API server refuses a pod; None if it takes it, or nothing is known of that."""
        found: list[ApiError] = []

        async def effect() -> bool:
            try:
                await self._effects.cluster.try_create(PODS, namespace, pod)
            except ApiError as refused:
                unsure = refused.code == 409 or any(words in refused.detail for words in _UNSURE)
                if refused.code == 429 or (refused.code >= 500 and "admission webhook " not in refused.detail):
                    if not last:
                        raise
                    unsure = True
                if not unsure:
                    found.append(refused)
            return not found

        await self._effects.carry_out("try", namespace, effect)
        return found[0] if found else None
