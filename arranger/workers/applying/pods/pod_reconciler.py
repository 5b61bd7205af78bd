"""The pod reconciler: creates the missing pods of a job, and deletes its surplus pods."""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from arranger.events.kinds import PodSeen
from arranger.kube.cluster import PODS, Object
from arranger.kube.manifests import pod_manifest
from arranger.kube.provisioning import consuming
from arranger.lifecycle.desired import desired_pods, orphans
from arranger.lifecycle.giving_way import gives_way
from arranger.logs import log_event
from arranger.model.job import Stage
from arranger.model.names import job_name
from arranger.projections.folding.provisioning import name_of, provided_by
from arranger.projections.jobs.parts import SlotKey
from arranger.workers.applying.effects.carrying_out import SETTLE_S, together
from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.effects.deletions import delete_pod, is_there
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look, Progress
from arranger.workers.applying.effects.templates import Templates
from arranger.workers.applying.objects.pod_needs import PodNeeds
from arranger.workers.applying.pods.dry_run import DryRun
from arranger.workers.applying.pods.evictions import Evictions

_log = logging.getLogger(__name__)

#: Kubernetes deletes the pods of a deleted TYJob within this many seconds; after that, the applier does.
_COLLECTED_S = 10.0


class PodReconciler(JobWriter):
    """Makes the pods of a job match its accepted decisions."""

    def __init__(self, means: Means, creation: Creation, needs: PodNeeds, templates: Templates) -> None:
        super().__init__(means)
        self._creation = creation
        self._needs = needs
        self._templates = templates
        self._evictions = Evictions(means)
        self._dry_run = DryRun(means)
        settings = self._effects.parts.settings
        self._evicts, self._lost_ms = settings.evict, settings.lost_node_s * 1000

    async def reconcile(self, look: Look) -> None:
        """Close the difference between the desired pods and those in the projection."""
        job, progress, now_s = look.job, look.progress, self._clock.monotonic_s()
        progress.forget_earlier(job, now_s)
        state = self._follower.state
        desired = desired_pods(state, job, now_ms=self._clock.now_ms(), node_lost_after_ms=self._lost_ms)
        effects: list[Awaitable[bool]] = []
        create = self._due(look, desired.create, now_s)
        if create:
            create = await self._needs.with_claims(look, create)
            if not look.current():
                return
        if create:
            template = await self._templates.of(look)
            if template is None or not look.current():
                return
            prepared = await self._needs.ensure(look)
            if not look.current():
                return
            if prepared:
                effects += [self._create(look, slot, node, template) for slot, node in create]
        effects += [
            self._leave(look, pod, force=pods is desired.force)
            for pods in (desired.delete, desired.force)
            for pod in pods
            if pod.uid not in progress.settling
        ]
        if job.stage == Stage.RUNNING and not effects and len(job.bound) == len(job.placements):
            progress.template = None
        await together(effects)
        await self._dry_run.look(look, self._templates)
        await self._needs.keep(look)

    def _due(self, look: Look, create: Sequence[tuple[SlotKey, str]], now_s: float) -> list[tuple[SlotKey, str]]:
        """The pods that may be created now. A look for another reason uses up the plan for those that were refused, so
        they are planned again."""
        settling, refusals, attempt = look.progress.settling, look.progress.refusals, look.job.attempt
        keys = [(attempt, slot) for slot, _ in create]
        refused_s = [settling[key] for key in keys if key in settling and key in refusals]
        if refused_s:
            self._queue.look_again(look.job.uid, max(min(refused_s) - now_s, 0.0))
        return [(slot, node) for slot, node in create if (attempt, slot) not in settling]

    async def _create(self, look: Look, slot: SlotKey, node: str, template: Object) -> bool:
        if not look.current():  # decided again while this waited: another attempt has other nodes
            return False
        job, (group, index) = look.job, slot
        attempt, address, before = job.attempt, job.leader.address, job.slots.failed_before.get(slot, 0)
        pod = pod_manifest(
            template, group=group, index=index, attempt=attempt, node=node, leader_address=address, failed_before=before
        )
        provided = provided_by(self._follower.state, job)
        if provided is not None:
            pod = consuming(pod, name_of(job, provided), provided.decided.class_name)
        done = await self._creation.create(look, slot, PODS, pod)
        if done:
            look.progress.settling[(attempt, slot)] = self._clock.monotonic_s() + SETTLE_S
        return done

    async def _leave(self, look: Look, pod: PodSeen, *, force: bool) -> bool:
        """Delete a pod of the job, or evict one that gives room, where that is set; unless the job is decided again
        while this waits or the pod is read: it may have a slot by then, and the next look finds whether it is to go."""
        if self._evicts and not force and gives_way(look.job, pod):
            return await self._evictions.evict(look, pod)
        return await self._delete(look.job.uid, look.progress, pod, force=force, still=look.current)

    async def _delete(
        self, job_uid: str, progress: Progress, pod: PodSeen, *, force: bool, still: Callable[[], bool]
    ) -> bool:
        delete = partial(delete_pod, self._effects.cluster, pod, job_uid, force=force, still=still)
        done = await self._effects.carry_out("delete", pod.namespace, delete)
        if done or still():
            progress.settling[pod.uid] = self._clock.monotonic_s() + SETTLE_S
        return done

    async def delete_orphans(self, uid: str, progress: Progress) -> None:
        """Delete the pods of a deleted TYJob, after a check of the API server: the log alone isn't enough."""
        gone = orphans(self._follower.state, uid, now_ms=self._clock.now_ms(), node_lost_after_ms=self._lost_ms)
        pods = [(pod, force) for chosen, force in ((gone.delete, False), (gone.force, True)) for pod in chosen]
        now_s = self._clock.monotonic_s()
        if progress.orphaned_s is None:
            progress.orphaned_s = now_s
        if pods and now_s < progress.orphaned_s + _COLLECTED_S:
            # Or the TYJob is new, and its watch is behind that of the pods.
            self._queue.look_again(uid, progress.orphaned_s + _COLLECTED_S - now_s)
            return
        pods = [(pod, force) for pod, force in pods if progress.settling.get(pod.uid, -math.inf) <= now_s]
        names = ((pod.namespace, job_name(pod.name, pod.owner)) for pod, _ in pods if pod.owner is not None)
        for namespace, name in dict.fromkeys(names):
            if await is_there(self._effects.cluster, namespace, name, uid):
                log_event(_log, "a TYJob that the log has lost is there", level=logging.WARNING, job=name, uid=uid)
                return

        def unknown() -> bool:
            """Whether the log still doesn't have the TYJob, which its watch may have recorded since."""
            return uid not in self._follower.state.jobs

        await together([self._delete(uid, progress, pod, force=force, still=unknown) for pod, force in pods])
