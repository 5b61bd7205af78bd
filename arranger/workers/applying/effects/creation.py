"""Creates the pods, Services and members files of jobs, interprets "already exists", and handles refusals.

Every creation is safe to repeat: "already exists" counts as success only if the owner's UID is the job's.
"""

import logging
from functools import partial

from arranger.events.kinds import EffectFailed
from arranger.kube.cluster import PODS, RESOURCE_CLAIMS, TYJOBS, ApiError, Object, Resource, Withdrawn
from arranger.kube.devices import resource_claim_seen
from arranger.kube.translate import pod_seen
from arranger.logs import log_event
from arranger.model.job import Slot
from arranger.model.names import LABEL_PREFIX
from arranger.projections.jobs.parts import SlotKey
from arranger.workers.applying.effects.carrying_out import STALE_S
from arranger.workers.applying.effects.job_writer import JobWriter, Means, texts_of
from arranger.workers.applying.effects.progress import Look, Refusals
from arranger.workers.flow.backoff import Backoff

_log = logging.getLogger(__name__)

#: The effects on resource claims in metrics, and in an `EffectFailed`.
ALLOCATE = "allocate"
#: Kind of object that is made for a slot → the effect in metrics.
_EFFECTS = {PODS: "create", RESOURCE_CLAIMS: ALLOCATE}

#: Delay before a refused slot is tried again: more than once within `refused_grace_s`. From the third refusal on the
#: delay doubles each time, up to a bound, because such a refusal is hardly temporary.
_REFUSED_S, _LONGEST_REFUSED_S = 2.0, 30.0
#: Added to a timer, which rounding might otherwise fire just before its deadline.
_LATER_S = 0.01
#: The remains of an earlier job of the same name are reported after this time.
_LEFTOVER_S = 10.0
#: Phrases in the API server's message when admission refuses or can't be reached.
_ADMISSION = ("admission webhook ", "failed calling webhook ", "ValidatingAdmissionPolicy ")


class Creation(JobWriter):
    """Creates objects for slots, and appends an `EffectFailed` for those that the API server refuses."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        # Random delays, so that slots refused together aren't retried together.
        self._chance = Backoff(self._clock, first_s=0.5, longest_s=0.5)

    async def create(self, look: Look, slot: SlotKey, resource: Resource, body: Object) -> bool:
        """Create the pod of a slot, or for the leader's slot what all pods need; True once it exists and is ours."""
        name = _EFFECTS.get(resource, "serve")
        return await self._effects.carry_out(
            name, look.job.seen.namespace, lambda: self._create(look, slot, resource, body)
        )

    async def _create(self, look: Look, slot: SlotKey, resource: Resource, body: Object) -> bool:
        if not self._counts(look):  # changed while this effect was queued
            return self._later(look)
        try:
            still = partial(self._counts, look)
            await self._effects.cluster.create(resource, look.job.seen.namespace, body, still=still)
            return True
        except Withdrawn:
            return self._later(look)
        except ApiError as refused:
            if refused.code == 409 and refused.reason == "AlreadyExists":
                return await self._ours(
                    look, slot, resource, body["metadata"]["name"], body.get("spec", {}).get("nodeName")
                )
            if passes(refused):
                raise
            await self.refused(look, slot, refused, _told_as(resource))
            return False

    async def _ours(self, look: Look, slot: SlotKey, resource: Resource, name: str, node: str | None) -> bool:
        """Handle an existing object of that name: ours by owner UID, or foreign and never touched. Our pod must also
        have its slot's labels, or no watcher recognizes it; on a wrong node it must be deleted first."""
        job = look.job
        try:
            there = await self._effects.cluster.get(resource, job.seen.namespace, name)
        except ApiError as refused:
            if refused.code == 404:  # it was just deleted
                return self._later(look)
            raise
        owners = there["metadata"].get("ownerReferences") or ()
        mine = any(owner.get("uid") == job.uid for owner in owners)
        late = mine and node is not None and there["spec"].get("nodeName") != node
        going = late or bool(there["metadata"].get("deletionTimestamp"))
        jobs = self._follower.state.jobs
        passing = any(owner.get("kind") == TYJOBS.kind and owner.get("uid") not in jobs for owner in owners)
        kind = resource.kind.lower()
        if mine and not going:
            if _is_recognized(resource, there):
                return True
            what = f"the labels {LABEL_PREFIX}* of {kind} {name} were changed; delete it"
        elif not going and not passing:
            what = f"a {kind} named {name} exists that isn't this job's; rename or delete it"
        elif self._awaited(look, slot):  # of an earlier job of this name, or being deleted
            return False
        else:
            what = f"a {kind} named {name} of an earlier job hasn't gone; delete it if it doesn't go"
        await self.refused(look, slot, ApiError(409, "AlreadyExists", what), _told_as(resource))
        return False

    def _awaited(self, look: Look, slot: SlotKey) -> bool:
        """Whether the remains of an earlier job may still be deleted without help."""
        refusals, now_s = _refusals(look, slot), self._clock.monotonic_s()
        if refusals.leftover_s is None:
            refusals.leftover_s = now_s
        waited_s = now_s - refusals.leftover_s
        if waited_s >= _LEFTOVER_S:
            return False
        # The intervals grow with the time waited so far.
        self._queue.look_again(look.job.uid, max(waited_s / 2, STALE_S))
        return True

    async def refused(self, look: Look, slot: SlotKey, refused: ApiError, effect: str = "create") -> None:
        """Record a new refusal of an effect in the log, and retry after a delay unless it is permanent."""
        job, identity = look.job, self._effects.parts.identity
        if identity is not None:  # a refusal by another cluster at this address doesn't concern the job
            await identity.confirm(self._follower.cluster)
        permanent = refused.code in (400, 422) and not _by_admission(refused)
        reason, detail = texts_of(refused)
        refusals, key = _refusals(look, slot), (job.attempt, slot)
        unknown = slot in job.placements and slot not in job.slots.refused_ms
        refusals.tries += 1
        in_a_row = refusals.in_a_row = 1 if unknown else refusals.in_a_row + 1
        failed = EffectFailed(
            job.uid, job.attempt, effect, Slot(*slot), refused.code, reason, detail, permanent, refusals.tries
        )  # fmt: skip
        log_event(
            _log, "the API server refuses an object of a job", level=logging.WARNING, job=job.seen.name, problem=refused
        )
        if job.failure is None or unknown or refusals.told != failed.message:
            await self._writer.append([failed])
            refusals.told = failed.message
        if not permanent:
            # The recorded event touches the job: without this delay, two such slots would alternate without end.
            rest_s = min(_REFUSED_S * 2.0 ** max(min(in_a_row, 9) - 2, 0), _LONGEST_REFUSED_S)
            rest_s *= 1.0 if in_a_row <= 2 else 0.5 + self._chance.next_s()
            look.progress.settling[key] = self._clock.monotonic_s() + rest_s
            self._queue.look_again(job.uid, rest_s + _LATER_S)


def _told_as(resource: Resource) -> str:
    """The effect in an `EffectFailed` about an object of this kind."""
    return ALLOCATE if resource == RESOURCE_CLAIMS else "create"


def _is_recognized(resource: Resource, there: Object) -> bool:
    """Whether a watcher finds the slot of an object of a job in its labels, as far as it needs it."""
    if resource == RESOURCE_CLAIMS:
        return resource_claim_seen(there, 0).facts.owner is not None
    return resource != PODS or pod_seen(there, 0).owner is not None


def _refusals(look: Look, slot: SlotKey) -> Refusals:
    return look.progress.refusals.setdefault((look.job.attempt, slot), Refusals())


def passes(refused: ApiError) -> bool:
    """Whether a refusal is due to a busy or broken API server: the same request may be taken later."""
    return refused.code == 429 or (refused.code >= 500 and not _by_admission(refused))


def _by_admission(refused: ApiError) -> bool:
    """Whether a webhook or an admission policy caused the refusal, whatever its code: its verdict can change by itself,
    and an unreachable webhook stays so for too long to retry without a record."""
    return any(words in refused.detail for words in _ADMISSION)
