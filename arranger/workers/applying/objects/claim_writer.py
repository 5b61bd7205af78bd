"""The claim writer: has volumes made for claims that wait for their first pod, where their pods are to run.

Such a claim gets the annotation `volume.kubernetes.io/selected-node`, for which provisioners wait; a pod is created, or
bound, once each of its claims has a volume. A provisioner that can't make a volume for the node removes the annotation.
If it says nothing for `volume_timeout_s`, the annotation is removed here. In both cases the log then has an
`EffectFailed`, and the pod gets another node. A volume that is made for the first node after all binds the claim, and
then the pod follows it.
"""

from collections.abc import Sequence

from arranger.events.kinds import EffectFailed
from arranger.events.volumes import ClaimSeen
from arranger.kube.cluster import CLAIMS, ApiError
from arranger.kube.volumes import SELECTED_NODE
from arranger.model.job import Slot
from arranger.projections.jobs.parts import PROVISION, SlotKey
from arranger.projections.observed.volumes import claims_of_pods, claims_to_provision, waits_for_volumes
from arranger.workers.applying.effects.carrying_out import SETTLE_S, together
from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look, SelectedNode

#: The reason of an `EffectFailed` for a node for which a provisioner made no volume.
_NOT_PROVISIONED = "NotProvisioned"
#: The same, if it said nothing in time.
_TIMED_OUT = "VolumeTimeout"


class ClaimWriter(JobWriter):
    """Selects nodes for the claims of jobs and of pods to place."""

    def __init__(self, means: Means, creation: Creation) -> None:
        super().__init__(means)
        self._creation = creation

    async def with_volumes(self, look: Look, slots: Sequence[tuple[SlotKey, str]]) -> list[tuple[SlotKey, str]]:
        """Those of these slots with their nodes whose claims all have volumes. For the others, the node of the first
        slot that names a claim is selected."""
        found: list[tuple[SlotKey, str]] = []
        asked: dict[str, tuple[ClaimSeen, SlotKey, str]] = {}
        for slot, node in slots:
            if not waits_for_volumes(look.job, slot[0]):
                found.append((slot, node))
                continue
            for claim in claims_to_provision(self._follower.state, look.job, slot[0]):
                asked.setdefault(claim.uid, (claim, slot, node))
        selected = look.progress.selected
        for uid in [uid for uid in selected if uid not in asked]:
            del selected[uid]
        await together([self._ask(look, *of) for of in asked.values()])
        return found

    async def keep(self, look: Look) -> None:
        """Select nodes for the claims that pods of a job have for themselves, which were made with the pods."""
        claims = claims_of_pods(self._follower.state, look.job)
        due = [of for of in claims if self._may_repeat(look, of[0].uid)]
        for claim, _, _ in due:
            self._settle(look, claim.uid)
        await together([self._select(look, *of) for of in due])

    async def _ask(self, look: Look, claim: ClaimSeen, slot: SlotKey, node: str) -> bool:
        """Select the node for a claim, unless that was done; and tell when its provisioner has refused the node."""
        job, selected = look.job, look.progress.selected
        if job.slots.refused_ms.get(slot) == 0:
            return False
        if claim.facts.selected_node:
            await self._give_up_late(look, claim, slot, node)
            return False
        before, now_s = selected.get(claim.uid), self._clock.monotonic_s()
        if before is not None and before.version != claim.resource_version:
            del selected[claim.uid]
            message = f"no volume could be made for claim {claim.name} on node {before.node}"
            await self._refuse(look, slot, _NOT_PROVISIONED, message)
            return False
        if before is not None and self._waits(look, before.until_s - now_s):
            return False
        if await self._select(look, claim, slot, node):
            selected[claim.uid] = SelectedNode(node, claim.resource_version, now_s + SETTLE_S)
            self._queue.look_again(job.uid, SETTLE_S)
        return False

    async def _give_up_late(self, look: Look, claim: ClaimSeen, slot: SlotKey, node: str) -> None:
        """Give up a node that was selected for too long, and with it that of the slot if it is the same. The log has
        since when it is selected, so this survives the process."""
        limit_s, key = self._effects.parts.settings.volume_timeout_s, (claim.namespace, claim.name)
        since_ms = self._follower.state.volumes.selected_ms.get(key)
        if not limit_s or since_ms is None:
            return
        left_s = limit_s - (self._clock.now_ms() - since_ms) / 1000
        if not self._waits(look, left_s) and await self._select(look, claim, slot, None):
            look.progress.selected.pop(claim.uid, None)
            if claim.facts.selected_node != node:  # somebody else's choice; the watch shows that it is gone
                return
            message = f"claim {claim.name} wasn't bound on node {node} within {limit_s} s"
            await self._refuse(look, slot, _TIMED_OUT, message)

    async def _refuse(self, look: Look, slot: SlotKey, reason: str, message: str) -> None:
        job = look.job
        failed = EffectFailed(job.uid, job.attempt, PROVISION, Slot(*slot), 0, reason, message, False, tries=1)
        await self._writer.append([failed])

    async def _select(self, look: Look, claim: ClaimSeen, slot: SlotKey, node: str | None) -> bool:
        return await self._effects.carry_out(
            PROVISION, claim.namespace, lambda: self._selected(look, claim, slot, node)
        )

    async def _selected(self, look: Look, claim: ClaimSeen, slot: SlotKey, node: str | None) -> bool:
        """Write the annotation to the claim as it was observed, or with None remove it; returns whether that was done
        here."""
        if not self._counts(look):  # changed while this effect was queued
            return self._later(look)
        metadata = {"uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {SELECTED_NODE: node}}
        try:
            await self._effects.cluster.patch(CLAIMS, claim.namespace, claim.name, {"metadata": metadata})
        except ApiError as refused:
            if refused.busy:
                raise
            if refused.code in (404, 409):  # the watch shows the change
                return self._later(look)
            if slot in look.job.bound:  # nothing can be decided for a pod that has its node
                self._queue.look_again(look.job.uid, SETTLE_S)
            else:
                await self._creation.refused(look, slot, refused, PROVISION)
            return False
        return True
