"""Evictions of preempted pods: deletions that PodDisruptionBudgets may refuse, which are then tried again later."""

import logging

from arranger.events.kinds import EffectFailed, PodSeen
from arranger.kube.cluster import ApiError
from arranger.logs import log_event
from arranger.projections.jobs.parts import EVICT
from arranger.workers.applying.effects.carrying_out import SETTLE_S
from arranger.workers.applying.effects.deletions import evict_pod
from arranger.workers.applying.effects.job_writer import JobWriter, texts_of
from arranger.workers.applying.effects.progress import Look

_log = logging.getLogger(__name__)

#: A refused eviction is tried again after this time, twice as long after each further refusal, up to the limit.
_FIRST_S, _LONGEST_S = 1.0, 20.0
#: How messages begin in which the API server names a PodDisruptionBudget.
_BUDGETS = ("disruption budget", "PodDisruptionBudget")


class Evictions(JobWriter):
    """Evicts pods, and records why the API server refuses that."""

    async def evict(self, look: Look, pod: PodSeen) -> bool:
        """Evict a pod of the job, unless that is decided again meanwhile; returns whether the pod is being deleted."""
        job, progress = look.job, look.progress
        try:
            done = await self._effects.carry_out(
                EVICT, pod.namespace, lambda: evict_pod(self._effects.cluster, pod, job.uid, still=look.current)
            )
        except ApiError as refused:
            if not _lasting(refused):
                raise
            await self._refused(look, pod, refused)
            return False
        progress.evictions.pop(pod.uid, None)
        if done or look.current():
            progress.settling[pod.uid] = self._clock.monotonic_s() + SETTLE_S
        return done

    async def _refused(self, look: Look, pod: PodSeen, refused: ApiError) -> None:
        """Record a new refusal in the log, and try again after a delay."""
        job, progress = look.job, look.progress
        tries = progress.evictions[pod.uid] = progress.evictions.get(pod.uid, 0) + 1
        self._settle(look, pod.uid, min(_FIRST_S * 2.0 ** min(tries - 1, 9), _LONGEST_S))
        reason, message = texts_of(refused)
        known = job.slots.unevicted
        if known is not None and known.message == message:
            return
        told = {"pod": f"{pod.namespace}/{pod.name}", "problem": refused}
        log_event(_log, "the API server refuses an eviction", level=logging.WARNING, job=job.seen.name, **told)
        failed = EffectFailed(job.uid, job.attempt, EVICT, None, refused.code, reason, message, False, tries)
        await self._writer.append([failed])


def _lasting(refused: ApiError) -> bool:
    """Whether a refusal is about this pod, and not about a busy or broken API server."""
    return refused.code == 403 or any(words in refused.detail for words in _BUDGETS)
