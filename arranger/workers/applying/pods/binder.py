"""The binder: binds pods that no TYJob owns, alone or with their group, to the nodes that were decided for them, and
says in each pod why it waits.

A pod is never patched but in its status: the condition `PodScheduled`, which autoscalers and people look for. The
binding names the pod's UID, and the API server refuses it for a pod that has a node, so a pod is bound once, however
many appliers try.
"""

import logging
import math
from collections.abc import Sequence
from functools import partial

from arranger.errors import ClusterError
from arranger.events.kinds import PodSeen
from arranger.kube.cluster import PODS, ApiError, Object, Withdrawn
from arranger.lifecycle.replacements import closed
from arranger.logs import log_event
from arranger.messages.prerequisites import prerequisites_text
from arranger.messages.shortages import waits_text
from arranger.model.job import Stage
from arranger.model.pods_to_place import SLOT, pod_of
from arranger.model.text import one_line, rfc3339
from arranger.projections.derived.queue_membership import queue_out_of_reach
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.workers.applying.effects.carrying_out import STALE_S, together
from arranger.workers.applying.effects.creation import Creation, passes
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.objects.pod_needs import PodNeeds
from arranger.workers.applying.statuses.reports import Reports

_log = logging.getLogger(__name__)

#: The effects in metrics, and in an `EffectFailed`.
BIND = "bind"
_TELL = "tell"

#: A group is told that it lacks pods at most this often, and once it has lacked some for this long: most get theirs at
#: once, and telling costs the API server two requests for each pod.
_LACKING_S = 1.0

#: The condition of a pod that says whether it has a node, and the reason while it has none.
_SCHEDULED, _UNSCHEDULABLE = "PodScheduled", "Unschedulable"
#: The limit of its message, in characters.
_LONGEST = 1000


class Binder(JobWriter):
    """Makes pods that no TYJob owns match the accepted decisions."""

    def __init__(self, means: Means, creation: Creation, needs: PodNeeds, reports: Reports) -> None:
        super().__init__(means)
        self._creation = creation
        self._reports = reports
        self._volumes, self._devices = needs.volumes, needs.devices

    async def look(self, look: Look) -> None:
        """Bind each pod of a record that has a node which it can still use, and let the others say why they wait."""
        job, waiting = look.job, self._waiting(look.job)
        look.progress.forget_earlier(job, self._clock.monotonic_s())
        if not job.pods_lacking:
            look.progress.lacking_s = math.inf
        begun = job.stage in (Stage.STARTING, Stage.RUNNING)
        placed = {slot: pod for slot, pod in waiting.items() if begun and slot in job.placements}
        untold = [pod for slot, pod in waiting.items() if slot not in placed]
        if untold:
            await self._devices.release(look, untold)
            await self._tell(look, untold)
            if not look.current():  # changed while that was told
                self._later(look)
                return
        due = [(slot, look.job.placements[slot]) for slot in placed if self._may_bind(look, slot)]
        ready = await self._volumes.with_volumes(look, due)
        if look.current():
            ready = await self._devices.with_devices(look, ready, placed)
        if not look.current():
            self._later(look)
            return
        await together([self._bind(look, slot, placed[slot], node) for slot, node in ready])

    def _waiting(self, job: JobRecord) -> dict[SlotKey, PodSeen]:
        """The pods of a record without a node that may get one, in the order of their slots."""
        pods, slots = self._follower.state.pods, job.slots
        found = {slot: uid for uid, slot in slots.members.items()} if job.of_group else {SLOT: pod_of(job.uid)}
        there = {slot: pods[uid] for slot, uid in sorted(found.items()) if uid in pods and slot not in slots.given_up}
        return {slot: pod for slot, pod in there.items() if not pod.node and not pod.deleting}

    def _may_bind(self, look: Look, slot: SlotKey) -> bool:
        job = look.job
        return self._may_repeat(look, (job.attempt, slot)) and not closed(self._follower.state, job, slot)

    async def _bind(self, look: Look, slot: SlotKey, pod: PodSeen, node: str) -> bool:
        job, told = look.job, look.progress.told
        done = await self._effects.carry_out(BIND, pod.namespace, lambda: self._bound(look, slot, pod, node))
        if done:
            told.bound.append((pod.name, pod.uid, node))
            self._reports.report(job, told)
        return done

    async def _bound(self, look: Look, slot: SlotKey, pod: PodSeen, node: str) -> bool:
        """Bind a pod; returns whether that was done here."""
        if not self._counts(look):  # changed while this effect was queued
            return self._later(look)
        still = partial(self._counts, look)
        try:
            await self._effects.cluster.bind(pod.namespace, pod.name, uid=pod.uid, node=node, still=still)
        except Withdrawn:
            return self._later(look)
        except ApiError as refused:
            if passes(refused):
                raise
            # With these codes it has a node, is gated or being deleted, or is another one. The watch shows which, and
            # the decision isn't current any more then.
            self._settle(look, (look.job.attempt, slot))
            if refused.code not in (404, 409):
                await self._creation.refused(look, slot, refused, BIND)
            return False
        self._settle(look, (look.job.attempt, slot))
        return True

    # --- words ---------------------------------------------------------------------------------------------

    async def _tell(self, look: Look, pods: Sequence[PodSeen]) -> None:
        """Say in each of these pods of a record why it waits, and in an Event on the first of them, when something
        other than numbers has changed. The API server tells a gated pod so."""
        job, state, progress = look.job, self._follower.state, look.progress
        if job.stands_still and all([pod.asks is not None and pod.asks.gates for pod in pods]):
            return
        progress.told.queue = queue_out_of_reach(state, job)
        message = prerequisites_text(state, job)
        progress.told.lacking = message if job.pods_lacking else ""
        news: tuple[object, ...] = (message,)
        if not message and job.waits is not None:
            message = waits_text(job)
            news = (*job.waits.shortage.kinds(), job.waits.shortage.infeasible)
        if not message:  # without a message, the next cycle gives it a node or a reason
            return
        news += tuple([pod.uid for pod in pods])
        if news == progress.news or self._lacks_for_now(look):
            return
        text = one_line(message)[:_LONGEST]
        tells = [self._effects.carry_out(_TELL, pod.namespace, partial(self.told, pod, text, job.uid)) for pod in pods]
        if all(await together(tells)):
            progress.news, progress.lacking_s = news, math.inf
            progress.told.about = (pods[0].name, pods[0].uid)
            self._reports.report(job, progress.told)

    def _lacks_for_now(self, look: Look) -> bool:
        """Whether a group lacks pods, but isn't told so yet; then it is looked at again."""
        progress, now_s = look.progress, self._clock.monotonic_s()
        if not look.job.pods_lacking:
            return False
        progress.lacking_s = min(progress.lacking_s, now_s + _LACKING_S)
        return self._waits(look, progress.lacking_s - now_s)

    async def told(self, pod: PodSeen, message: str, record: str) -> bool:
        """Write the condition unless the pod has it already; returns whether the pod has it now.

        The API server replaces the whole list of conditions, so the others are written back as they were just read, on
        the condition that the pod hasn't changed since.
        """
        cluster = self._effects.cluster
        try:
            live = await cluster.get(PODS, pod.namespace, pod.name)
            if live["metadata"]["uid"] != pod.uid or live["spec"].get("nodeName"):
                return False
            conditions = _with_reason(live, message, rfc3339(self._clock.now_ms()))
            if conditions is None:
                return True
            body = {
                "metadata": {"uid": pod.uid, "resourceVersion": live["metadata"]["resourceVersion"]},
                "status": {"conditions": conditions},
            }
            await cluster.patch(PODS, pod.namespace, pod.name, body, subresource="status")
        except ApiError as refused:
            if refused.busy:
                raise
            if refused.code not in (404, 409):
                _complain(pod, refused)
                return True  # it isn't tried again for the same words
            self._queue.look_again(record, STALE_S)
            return False
        return True


def _with_reason(live: Object, message: str, now: str) -> list[Object] | None:
    """The conditions of a pod, with this reason why it has no node; None if it has it already."""
    conditions = (live.get("status") or {}).get("conditions") or []
    old: Object = next((of for of in conditions if of.get("type") == _SCHEDULED), {})
    waits = {"type": _SCHEDULED, "status": "False", "reason": _UNSCHEDULABLE, "message": message}
    if all(old.get(name) == value for name, value in waits.items()):
        return None
    since = old.get("lastTransitionTime") if old.get("status") == "False" else None
    others = [of for of in conditions if of.get("type") != _SCHEDULED]
    return [*others, {**waits, "lastTransitionTime": since or now}]


def _complain(pod: PodSeen, problem: ClusterError) -> None:
    told = {"pod": f"{pod.namespace}/{pod.name}", "problem": problem}
    log_event(_log, "a pod isn't told why it waits", level=logging.WARNING, **told)
