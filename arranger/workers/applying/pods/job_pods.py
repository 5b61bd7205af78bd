"""The pods of jobs, and everything that is made for them."""

from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.effects.job_writer import Means
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.effects.templates import Templates
from arranger.workers.applying.objects.pod_needs import PodNeeds
from arranger.workers.applying.pods.binder import Binder
from arranger.workers.applying.pods.placeholders import Placeholders
from arranger.workers.applying.pods.pod_reconciler import PodReconciler
from arranger.workers.applying.pods.provisioner import Provisioner
from arranger.workers.applying.statuses.reports import Reports


class JobPods:
    """`binder` has the pods that no TYJob owns, and `reconciler` those of TYJobs."""

    def __init__(self, means: Means, reports: Reports) -> None:
        self.creation = Creation(means)
        needs, templates = PodNeeds(means, self.creation), Templates(means)
        self.reconciler = PodReconciler(means, self.creation, needs, templates)
        self.binder = Binder(means, self.creation, needs, reports)
        self._provisioner = Provisioner(means, templates)
        self._placeholders = Placeholders(means, templates, self._provisioner, self.binder)

    async def look(self, look: Look) -> None:
        """Bring the pods of a TYJob in line whose status stands, and ask for the nodes that it waits for."""
        await self._placeholders.look(look)
        await self.reconciler.reconcile(look)
        await self._provisioner.look(look)
