"""The device writer: gives resource claims the devices that were decided for them, and reserves them for pods. It takes
the devices from a claim again that keep its only pod from other nodes.

Claims are read before they are written: they keep configurations for drivers that the log doesn't have. Each write
names the resourceVersion that was read, so it changes no claim that somebody else has changed since.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from arranger.events.devices import ResourceClaimSeen
from arranger.events.kinds import PodSeen
from arranger.kube.cluster import DEVICE_CLASSES, RESOURCE_CLAIMS, ApiError, Object
from arranger.kube.devices import FINALIZER, allocation_of, resource_claim_seen
from arranger.logs import log_event
from arranger.model.devices import Allocation
from arranger.model.reasons import ReasonKind
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.devices import decided_for, needs_of
from arranger.workers.applying.effects.carrying_out import SETTLE_S, together
from arranger.workers.applying.effects.creation import ALLOCATE, Creation
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look

_log = logging.getLogger(__name__)

#: The effect in metrics.
DEALLOCATE = "deallocate"

Placed = Sequence[tuple[SlotKey, str]]


class _Rewritten(Exception):
    """The API server refuses to add the finalizer to a claim. It compares a claim's configuration as text with what it
    writes again for a patch, which differs if the claim was made from JSON with spaces. The claim goes without the
    finalizer then: it gets its devices, and is only not kept if somebody deletes it."""


class DeviceWriter(JobWriter):
    """Writes devices into claims, and the pods for which they are reserved."""

    def __init__(self, means: Means, creation: Creation) -> None:
        super().__init__(means)
        self._creation = creation

    # --- devices for pods with nodes -----------------------------------------------------------------------

    async def with_devices(
        self, look: Look, slots: Placed, pods: Mapping[SlotKey, PodSeen]
    ) -> list[tuple[SlotKey, str]]:
        """Those of these slots with their nodes whose pods may use all of their claims, which have their devices."""
        users: dict[str, list[SlotKey]] = {}
        for slot, _ in slots:
            for need in needs_of(look.job.valid_spec.groups[slot[0]].shape):
                users.setdefault(need.claim, []).append(slot)
        done = await together([self._reserve(look, claim, of, pods) for claim, of in users.items()])
        lacking = {slot for of, is_so in zip(users.values(), done, strict=True) if not is_so for slot in of}
        return [(slot, node) for slot, node in slots if slot not in lacking]

    async def _reserve(self, look: Look, claim: str, slots: list[SlotKey], pods: Mapping[SlotKey, PodSeen]) -> bool:
        state, namespace = self._follower.state, look.job.seen.namespace
        seen = state.devices.claims.get((namespace, claim))
        if seen is None:
            return self._later(look)
        facts, uids = seen.facts, {pods[slot].uid for slot in slots}
        if facts.allocation is not None and uids.issubset(facts.reserved):
            return True
        decided = facts.allocation or decided_for(state, namespace, claim, state.time_ms)
        if decided is None:
            return self._later(look)
        return await self.allocate(look, seen, decided, slots[0], [pods[slot] for slot in slots])

    async def allocate(
        self, look: Look, seen: ResourceClaimSeen, decided: Allocation, slot: SlotKey, pods: Sequence[PodSeen]
    ) -> bool:
        """See to it that a claim has these devices and is reserved for these pods, the first of which is in `slot`;
        returns whether that is so."""
        return await self._effects.carry_out(
            ALLOCATE, seen.namespace, lambda: self._allocated(look, seen, decided, slot, pods)
        )

    async def _allocated(
        self, look: Look, seen: ResourceClaimSeen, decided: Allocation, slot: SlotKey, pods: Sequence[PodSeen]
    ) -> bool:
        """Write the devices of a claim and reserve it for these pods, as far as it doesn't say that already."""
        try:
            live = await self._effects.cluster.get(RESOURCE_CLAIMS, seen.namespace, seen.name)
            there = resource_claim_seen(live, 0)
            has = there.facts.allocation
            if there.uid != seen.uid or there.facts.deleting or (has is not None and has != decided):
                return self._later(look)
            status = await self._status(live, None if has is not None else decided, pods)
            if status is None:
                return True
            for body, subresource in (_kept(live), ""), ({"status": status}, "status"):
                if body is None:
                    continue
                if not self._counts(look):  # changed while this effect was queued
                    return self._later(look)
                with suppress(_Rewritten):
                    live = await self._write(seen, live, body, subresource)
        except ApiError as refused:
            if refused.busy:
                raise
            if refused.code in (404, 409):  # the watch shows the change
                return self._later(look)
            if slot in look.job.bound and not look.job.of_pods:  # nothing can be decided for a pod that has its node
                log_event(_log, "a resource claim can't be written", level=logging.WARNING, problem=refused)
                self._queue.look_again(look.job.uid, SETTLE_S)
            else:
                await self._creation.refused(look, slot, refused, ALLOCATE)
            return False
        return True

    async def _status(self, live: Object, decided: Allocation | None, pods: Sequence[PodSeen]) -> Object | None:
        """What a claim's status lacks: the decided devices (None: it has them) and these pods; None for nothing."""
        reserved = (live.get("status") or {}).get("reservedFor") or []
        uids = {of.get("uid") for of in reserved}
        more = [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in pods if pod.uid not in uids]
        if decided is None and not more:
            return None
        status: Object = {"reservedFor": [*reserved, *more]}
        if decided is not None:
            requests = live["spec"]["devices"]["requests"]
            named = dict.fromkeys((of.get("exactly") or {}).get("deviceClassName") or "" for of in requests)
            classes = [await self._effects.cluster.get(DEVICE_CLASSES, None, name) for name in named if name]
            status["allocation"] = allocation_of(decided, live, classes)
        return status

    async def _write(self, seen: ResourceClaimSeen, live: Object, body: Object, subresource: str) -> Object:
        version = {"uid": seen.uid, "resourceVersion": live["metadata"]["resourceVersion"]}
        body = {**body, "metadata": {**body.get("metadata", {}), **version}}
        try:
            return await self._effects.cluster.patch(
                RESOURCE_CLAIMS, seen.namespace, seen.name, body, subresource=subresource
            )
        except ApiError as refused:
            if refused.code == 422 and not subresource:
                raise _Rewritten from refused
            raise

    # --- devices that keep a pod from its nodes ------------------------------------------------------------

    async def release(self, look: Look, pods: Sequence[PodSeen]) -> None:
        """Take the devices from claims that keep the pods of a record from all nodes where it would fit, if no other
        pod may use them, so that the next cycle may give the claims others."""
        job, waits = look.job, look.job.waits
        if waits is None or job.placements:
            return
        names = {of.name for of, _ in waits.shortage.reasons if of.kind == ReasonKind.DEVICES_ELSEWHERE}
        claims = [self._follower.state.devices.claims.get((job.seen.namespace, name)) for name in sorted(names)]
        uids = {pod.uid for pod in pods}
        due = [of for of in claims if of is not None and self._is_idle(job, of, uids)]
        carry_out, namespace = self._effects.carry_out, job.seen.namespace
        await together([carry_out(DEALLOCATE, namespace, partial(self._deallocated, look, of)) for of in due])

    def _is_idle(self, job: JobRecord, claim: ResourceClaimSeen, uids: set[str]) -> bool:
        """Whether a claim has devices that none but these pods may use, and no other record has nodes for it."""
        if claim.facts.allocation is None or not uids.issuperset(claim.facts.reserved):
            return False
        others = [of for of in self._follower.state.jobs.values() if of.spec is not None and of.placements]
        return not any(
            of.seen.namespace == claim.namespace and need.claim == claim.name and not need.own
            for of in others
            for group in of.valid_spec.groups
            for need in needs_of(group.shape)
        )

    async def _deallocated(self, look: Look, claim: ResourceClaimSeen) -> bool:
        if not self._counts(look):
            return self._later(look)
        version = {"metadata": {"resourceVersion": claim.resource_version}}
        try:
            await self._write(claim, version, {"status": {"allocation": None, "reservedFor": None}}, "status")
        except ApiError as refused:
            if refused.busy:
                raise
            return self._later(look) if refused.code in (404, 409) else False
        return True


def _kept(live: Object) -> Object | None:
    """The patch that keeps a claim from being deleted while it has devices; None if it is kept already."""
    finalizers = live["metadata"].get("finalizers") or []
    return None if FINALIZER in finalizers else {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
