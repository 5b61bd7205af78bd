"""What the pods of a job need: claims with volumes and devices, Services and a members file."""

from collections.abc import Sequence

from arranger.projections.jobs.parts import SlotKey
from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.effects.job_writer import Means
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.objects.claim_writer import ClaimWriter
from arranger.workers.applying.objects.device_writer import DeviceWriter
from arranger.workers.applying.objects.members_writer import MembersWriter
from arranger.workers.applying.objects.service_writer import ServiceWriter
from arranger.workers.applying.objects.slot_claims import SlotClaims


class PodNeeds:
    """The writers of the objects that pods need. Pods of others have only `volumes` and `devices` of them."""

    def __init__(self, means: Means, creation: Creation) -> None:
        self.volumes = ClaimWriter(means, creation)
        self.devices = DeviceWriter(means, creation)
        self._claims = SlotClaims(means, creation, self.devices)
        self._services = ServiceWriter(means, creation)
        self._members = MembersWriter(means, creation)

    async def with_claims(self, look: Look, slots: Sequence[tuple[SlotKey, str]]) -> list[tuple[SlotKey, str]]:
        """Those of these slots with their nodes whose claims all have their volumes and devices. None of them once the
        look isn't current any more."""
        found = await self.volumes.with_volumes(look, slots)
        return await self._claims.with_devices(look, found) if look.current() else []

    async def ensure(self, look: Look) -> bool:
        """Create everything else that the pods of this attempt need; returns whether it exists."""
        return await self._services.ensure(look) and await self._members.ensure(look)

    async def keep(self, look: Look) -> None:
        """Bring the objects up to date that pods which exist need, and delete those that none needs any more."""
        for writer in (self._services, self._members, self.volumes, self._claims):
            await writer.keep(look)
