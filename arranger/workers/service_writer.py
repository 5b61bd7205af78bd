"""The service writer: creates the Service that a job requests, before any pod of an attempt."""

from arranger.kube.cluster import SERVICES, Object
from arranger.kube.manifests import leader_service
from arranger.projections.jobs import LEADER
from arranger.workers.creation import Creation
from arranger.workers.progress import Look


class ServiceWriter:
    """Creates the leaders' Services, once per attempt."""

    def __init__(self, creation: Creation) -> None:
        self._creation = creation

    async def stands(self, look: Look, template: Object) -> bool:
        """Whether the Service exists or isn't requested, and the job wasn't decided on again meanwhile."""
        service, attempt, progress = leader_service(template), look.job.attempt, look.progress
        if service is None or progress.served == attempt:
            return True
        if (attempt, LEADER) in progress.settling:  # refused a moment ago
            return False
        if not await self._creation.create(look, LEADER, SERVICES, service):
            return False
        progress.served = attempt
        return look.current()
