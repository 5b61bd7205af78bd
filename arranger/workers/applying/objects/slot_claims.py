"""The resource claims of TYJobs' pods: those that a template names, and those that Arranger makes for each pod from a
ResourceClaimTemplate.

A claim is made, it gets its devices, its pod is made, and it is reserved for the pod. Each step waits until the watch
has shown the one before, so the log knows of each claim with devices before a pod uses it. A claim that no pod uses or
is to use is deleted, and Kubernetes takes its devices from it.
"""

import logging
from collections.abc import Sequence
from functools import partial

from arranger.events.devices import ResourceClaimSeen
from arranger.events.kinds import PodSeen
from arranger.kube.cluster import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, ApiError
from arranger.kube.devices import own_claim
from arranger.logs import log_event
from arranger.model.names import name_in_slot, own_claim_name
from arranger.model.pod import TERMINAL, DeviceNeeds
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.observed.devices import allocation_for, claim_for, needs_of, uses_devices
from arranger.projections.observed.slot_devices import needless_claims
from arranger.workers.applying.effects.carrying_out import together
from arranger.workers.applying.effects.creation import ALLOCATE, Creation
from arranger.workers.applying.effects.deletions import delete_claim
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.objects.device_writer import DEALLOCATE, DeviceWriter

_log = logging.getLogger(__name__)


class SlotClaims(JobWriter):
    """Makes the claims of TYJobs' pods match the accepted decisions."""

    def __init__(self, means: Means, creation: Creation, devices: DeviceWriter) -> None:
        super().__init__(means)
        self._creation = creation
        self._devices = devices

    async def with_devices(self, look: Look, slots: Sequence[tuple[SlotKey, str]]) -> list[tuple[SlotKey, str]]:
        """Those of these slots with their nodes whose claims all have their devices. The others take a step on."""
        found: list[tuple[SlotKey, str]] = []
        due: dict[str, tuple[SlotKey, DeviceNeeds]] = {}
        for slot, node in slots:
            needs = needs_of(look.job.valid_spec.groups[slot[0]].shape)
            lacking = [need for need in needs if not self._has_devices(look, slot, need)]
            due |= {self._name(look, slot, need): (slot, need) for need in lacking}
            if not lacking:
                found.append((slot, node))
        await together([self._go_on(look, *of) for of in due.values() if self._is_due(look, *of)])
        return found

    async def keep(self, look: Look) -> None:
        """Reserve claims for the pods that there are, and delete the claims that none needs."""
        job = look.job
        if job.seen.deleting or not look.current() or not self._follower.state.with_devices:
            return  # garbage collection deletes its claims, or nothing is known of them
        users: dict[str, tuple[SlotKey, DeviceNeeds, list[PodSeen]]] = {}
        if job.spec is not None and uses_devices(job.spec):
            for slot, uid in job.bound.items():
                pod = self._follower.state.pods[uid]
                gone = pod.phase in TERMINAL or pod.deleting
                for need in needs_of(job.spec.groups[slot[0]].shape) if not gone else ():
                    claim = claim_for(self._follower.state, job, slot, need)
                    if claim is not None and not claim.facts.deleting and uid not in claim.facts.reserved:
                        users.setdefault(claim.name, (slot, need, []))[2].append(pod)
        effects = [self._reserve(look, *of) for of in users.values() if self._is_due(look, *of[:2])]
        needless = [*needless_claims(self._follower.state, job)]
        effects += [self._delete(look, of) for of in needless if self._may_repeat(look, _key(of.name, of))]
        await together(effects)

    def _name(self, look: Look, slot: SlotKey, need: DeviceNeeds) -> str:
        if not need.own:
            return need.claim
        return own_claim_name(name_in_slot(look.job.seen.name, look.job.owner_of(slot)), need.claim)

    def _has_devices(self, look: Look, slot: SlotKey, need: DeviceNeeds) -> bool:
        """Whether the claim is seen to have the devices that it is to have: it may still be that of an earlier pod."""
        state = self._follower.state
        claim = claim_for(state, look.job, slot, need)
        if claim is None or claim.facts.deleting or claim.facts.allocation is None:
            return False
        return claim.facts.allocation == allocation_for(state, look.job, slot, need)

    async def _go_on(self, look: Look, slot: SlotKey, need: DeviceNeeds) -> bool:
        """Make a claim, or give it its devices. A claim that has other ones is that of an earlier pod, and is deleted
        once that is gone; a device that another claim has is that of an earlier pod of the slot, and is awaited."""
        state = self._follower.state
        claim, decided = claim_for(state, look.job, slot, need), allocation_for(state, look.job, slot, need)
        key = self._key_of(look, slot, need)
        if claim is None:
            return need.own and self._settled(look, key, await self._make(look, slot, need))
        if claim.facts.deleting or claim.facts.allocation is not None or decided is None:
            return False
        holders = [state.devices.holders.get(of.device, ()) for of in decided.devices]
        if any(set(of) - {claim.uid} for of in holders):
            return False
        return self._settled(look, key, await self._devices.allocate(look, claim, decided, slot, ()))

    async def _make(self, look: Look, slot: SlotKey, need: DeviceNeeds) -> bool:
        """Create the claim of a slot's pod from its template."""
        job, state = look.job, self._follower.state
        claims = job.valid_spec.groups[slot[0]].shape.claims
        names = dict(claims.templates) if claims is not None else {}
        seen = state.devices.templates.get((job.seen.namespace, names.get(need.claim, "")))
        if seen is None:
            return False
        try:
            template = await self._effects.cluster.get(RESOURCE_CLAIM_TEMPLATES, seen.namespace, seen.name)
        except ApiError as refused:
            if refused.busy:
                raise
            if refused.code == 404:
                return self._later(look)
            await self._creation.refused(look, slot, refused, ALLOCATE)
            return False
        if template["metadata"]["uid"] != seen.uid:
            return self._later(look)
        body = own_claim(template, job.seen, job.owner_of(slot), need.claim)
        return await self._creation.create(look, slot, RESOURCE_CLAIMS, body)

    async def _reserve(self, look: Look, slot: SlotKey, need: DeviceNeeds, pods: Sequence[PodSeen]) -> bool:
        """Reserve a claim for pods. One from which Kubernetes has taken the devices because an earlier pod has ended
        gets them again."""
        state = self._follower.state
        claim, decided = claim_for(state, look.job, slot, need), allocation_for(state, look.job, slot, need)
        if claim is None or decided is None:
            return False
        key = self._key_of(look, slot, need)
        return self._settled(look, key, await self._devices.allocate(look, claim, decided, slot, pods))

    async def _delete(self, look: Look, claim: ResourceClaimSeen) -> bool:
        async def delete() -> bool:
            try:
                still = partial(self._counts, look)
                return await delete_claim(self._effects.cluster, claim, look.job.uid, still=still)
            except ApiError as refused:
                if refused.busy:
                    raise
                told = {"claim": f"{claim.namespace}/{claim.name}", "problem": refused}
                log_event(_log, "a resource claim can't be deleted", level=logging.WARNING, **told)
                return False

        done = await self._effects.carry_out(DEALLOCATE, claim.namespace, delete)
        self._settled(look, _key(claim.name, claim), True)
        return done

    # --- effects whose outcome the watch hasn't shown yet --------------------------------------------------

    def _is_due(self, look: Look, slot: SlotKey, need: DeviceNeeds) -> bool:
        key = self._key_of(look, slot, need)
        if claim_for(self._follower.state, look.job, slot, need) is not None:  # another one of this name may be made
            look.progress.settling.pop(_key(self._name(look, slot, need), None), None)
        return self._may_repeat(look, key)

    def _key_of(self, look: Look, slot: SlotKey, need: DeviceNeeds) -> str:
        return _key(self._name(look, slot, need), claim_for(self._follower.state, look.job, slot, need))

    def _settled(self, look: Look, key: str, done: bool) -> bool:
        if done:
            self._settle(look, key)
        return done


def _key(name: str, seen: ResourceClaimSeen | None) -> str:
    """What settles with an effect on a claim, until the watch shows the claim's next version."""
    return f"resource claim {name} {seen.resource_version if seen is not None else ''}"
