"""Creation of the pods and Services of jobs: what "already exists" means, and what follows when one is refused.

Every creation is safe to repeat: "already exists" counts only if the owner's UID is ours.
"""

import logging

from arranger.events.kinds import EffectFailed
from arranger.kube.cluster import PODS, TYJOBS, ApiError, Object, Resource, Withdrawn
from arranger.kube.translate import pod_seen
from arranger.logs import log_event
from arranger.model.job import Slot
from arranger.model.names import LABEL_PREFIX
from arranger.model.text import one_line
from arranger.projections.jobs import SlotKey
from arranger.workers.backoff import Backoff
from arranger.workers.effects import STALE_S, Effects
from arranger.workers.follower import Writer
from arranger.workers.progress import Look, Refusals
from arranger.workers.work_queue import WorkQueue

_log = logging.getLogger(__name__)

#: A slot whose pod was refused is tried again after so long: more than once within `refused_grace_s`. From the third
#: refusal on each wait is twice as long, up to a bound: what stays refused so long isn't passing.
_REFUSED_S, _LONGEST_REFUSED_S = 2.0, 30.0
#: By so much a timer is later than what it waits for, which else may be some rounding away still.
_LATER_S = 0.01
#: What is left of an earlier job of the same name is told when it has stood in the way for so long.
_LEFTOVER_S = 10.0
#: What the log keeps of the words of a refusal, in characters: webhooks say in it whatever they like.
_LONGEST_REASON, _LONGEST_DETAIL = 100, 500
#: What the API server says when admission refuses, or can't be asked.
_ADMISSION = ("admission webhook ", "failed calling webhook ", "ValidatingAdmissionPolicy ")


class Creation:
    """Creates objects for slots, and appends an `EffectFailed` for each that the API server refuses."""

    def __init__(self, effects: Effects, queue: WorkQueue, writer: Writer) -> None:
        self._effects = effects
        self._queue = queue
        self._writer = writer
        self._clock = effects.parts.time
        # Slots that were refused together don't come again together.
        self._chance = Backoff(self._clock, first_s=0.5, longest_s=0.5)

    async def create(self, look: Look, slot: SlotKey, resource: Resource, body: Object) -> bool:
        """Create the pod of a slot, or for the leader's slot its Service; True once it is there and ours."""
        name = "create" if resource == PODS else "serve"
        return await self._effects.carry_out(name, lambda: self._create(look, slot, resource, body))

    async def _create(self, look: Look, slot: SlotKey, resource: Resource, body: Object) -> bool:
        def still() -> bool:
            return look.current() and self._effects.allowed()

        if not still():  # while it waited for its turn
            return self._later(look)
        try:
            await self._effects.cluster.create(resource, look.job.seen.namespace, body, still=still)
            return True
        except Withdrawn:
            return self._later(look)
        except ApiError as refused:
            if refused.code == 409 and refused.reason == "AlreadyExists":
                return await self._ours(look, slot, resource, body["metadata"]["name"], body["spec"].get("nodeName"))
            if refused.code == 429 or (refused.code >= 500 and not _by_admission(refused)):
                raise
            await self._refused(look, slot, refused)
            return False

    def _later(self, look: Look) -> bool:
        """The projection has gone on, or isn't fresh: look again soon."""
        self._queue.look_again(look.job.uid, STALE_S)
        return False

    async def _ours(self, look: Look, slot: SlotKey, resource: Resource, name: str, node: str | None) -> bool:
        """An object of that name exists: ours by owner UID, or a stranger's, which we never touch. A pod must tell
        its slot too, else nobody will ever see it there, and be on the node decided: another one has to go first."""
        job = look.job
        try:
            there = await self._effects.cluster.get(resource, job.seen.namespace, name)
        except ApiError as refused:
            if refused.code == 404:  # it has just gone
                self._queue.look_again(job.uid, STALE_S)
                return False
            raise
        owners = there["metadata"].get("ownerReferences") or ()
        mine = any(owner.get("uid") == job.uid for owner in owners)
        late = mine and node is not None and there["spec"].get("nodeName") != node
        going = late or bool(there["metadata"].get("deletionTimestamp"))
        jobs = self._effects.parts.follower.state.jobs
        passing = any(owner.get("kind") == TYJOBS.kind and owner.get("uid") not in jobs for owner in owners)
        kind = resource.kind.lower()
        if mine and not going:
            if resource != PODS or pod_seen(there, 0).owner is not None:
                return True
            what = f"the labels {LABEL_PREFIX}* of pod {name} were changed; delete it"
        elif not going and not passing:
            what = f"a {kind} named {name} exists that isn't this job's; rename or delete it"
        elif self._awaited(look, slot):  # that of an earlier job of this name, or one that is going
            return False
        else:
            what = f"a {kind} named {name} of an earlier job hasn't gone; delete it if it doesn't go"
        await self._refused(look, slot, ApiError(409, "AlreadyExists", what))
        return False

    def _awaited(self, look: Look, slot: SlotKey) -> bool:
        """Whether what is left of an earlier job may still go by itself."""
        refusals, now_s = _refusals(look, slot), self._clock.monotonic_s()
        if refusals.leftover_s is None:
            refusals.leftover_s = now_s
        waited_s = now_s - refusals.leftover_s
        if waited_s >= _LEFTOVER_S:
            return False
        # Ever later: what hasn't gone by now may take as long again.
        self._queue.look_again(look.job.uid, max(waited_s / 2, STALE_S))
        return True

    async def _refused(self, look: Look, slot: SlotKey, refused: ApiError) -> None:
        """Tell the log, once for each slot, and go on trying after a while unless it can't help."""
        job, identity = look.job, self._effects.parts.identity
        if identity is not None:  # what another cluster refuses at this address says nothing of the job
            await identity.confirm(self._effects.parts.follower.cluster)
        permanent = refused.code in (400, 422) and not _by_admission(refused)
        reason, detail = one_line(refused.reason)[:_LONGEST_REASON], one_line(refused.detail)[:_LONGEST_DETAIL]
        refusals, key = _refusals(look, slot), (job.attempt, slot)
        unknown = slot in job.placements and slot not in job.slots.refused_ms
        refusals.tries += 1
        in_a_row = refusals.in_a_row = 1 if unknown else refusals.in_a_row + 1
        failed = EffectFailed(
            job.uid, job.attempt, "create", Slot(*slot), refused.code, reason, detail, permanent, refusals.tries
        )  # fmt: skip
        log_event(_log, "the API server refuses a pod", level=logging.WARNING, job=job.seen.name, problem=refused)
        if job.failure is None or unknown or refusals.told != failed.message:
            await self._writer.append([failed])
            refusals.told = failed.message
        if not permanent:
            # What was told touches the job: without this rest, two such slots would be told in turn without end.
            rest_s = min(_REFUSED_S * 2.0 ** max(min(in_a_row, 9) - 2, 0), _LONGEST_REFUSED_S)
            rest_s *= 1.0 if in_a_row <= 2 else 0.5 + self._chance.next_s()
            look.progress.settling[key] = self._clock.monotonic_s() + rest_s
            self._queue.look_again(job.uid, rest_s + _LATER_S)


def _refusals(look: Look, slot: SlotKey) -> Refusals:
    return look.progress.refusals.setdefault((look.job.attempt, slot), Refusals())


def _by_admission(refused: ApiError) -> bool:
    """Whether a webhook or an admission policy is the cause, whatever its code: what they want changes by itself, and a
    webhook that is away stays so for longer than a request is worth repeating without a word."""
    return any(words in refused.detail for words in _ADMISSION)
