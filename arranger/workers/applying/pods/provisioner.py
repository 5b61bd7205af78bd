"""The provisioner: keeps the ProvisioningRequest of a job that waits for nodes, and deletes those that no job needs.

What is asked was decided in the log. A job whose request somebody else deletes asks again, by another one.
"""

import logging
from functools import partial

from arranger.events.kinds import EffectFailed, ProvisioningSeen, Watched
from arranger.kube.cluster import POD_TEMPLATES, PROVISIONING_REQUESTS, ApiError, Object, Resource, Withdrawn
from arranger.kube.provisioning import request_manifest, template_manifests
from arranger.logs import log_event
from arranger.model.job import Stage
from arranger.model.provisioning import Provisioning
from arranger.projections.folding.provisioning import name_of, present_request, way_of
from arranger.projections.jobs.parts import ASK
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import NodesRequest
from arranger.workers.applying.effects.deletions import delete_request
from arranger.workers.applying.effects.job_writer import JobWriter, Means, texts_of
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.effects.templates import Templates

_log = logging.getLogger(__name__)

#: The effect in metrics.
TAKE_BACK = "take_back"


class Provisioner(JobWriter):
    """Makes the ProvisioningRequests of jobs match the accepted decisions."""

    def __init__(self, means: Means, templates: Templates) -> None:
        super().__init__(means)
        self._templates = templates
        self._default = Provisioning(self._effects.parts.settings.provisioning)

    async def look(self, look: Look) -> None:
        """Create what the job's request needs, and delete its other requests."""
        job, state = look.job, self._follower.state
        if not state.synced or not state.listed.get(Watched.PROVISIONING, False):
            return
        request = self._desired(job)
        name = name_of(job, request) if request is not None else ""
        seen = state.seen_requests.get(job.uid, {})
        for other in [of for _, of in sorted(seen.items()) if of.name != name]:
            await self._delete(look, other)
        waits = job.stage in (Stage.PENDING, Stage.RESCHEDULING)
        if request is None or not waits or not request.answer.under_way or not request.decided.pods:
            return
        if name not in seen:
            await self._create(look, request, PROVISIONING_REQUESTS, "")
        elif look.progress.requested != seen[name].uid:
            await self._create(look, request, POD_TEMPLATES, seen[name].uid)

    def _desired(self, job: JobRecord) -> NodesRequest | None:
        """The job's request, while it needs one. A job that has started needs it for the pods that name it."""
        request = present_request(self._follower.state, job)
        if request is None or not job.active or job.stands_still:
            return None
        waits = job.stage in (Stage.PENDING, Stage.RESCHEDULING)
        if request.decided.how != Provisioning.REQUEST:
            return None
        return None if waits and way_of(self._follower.state, job, self._default) != Provisioning.REQUEST else request

    async def _create(self, look: Look, request: NodesRequest, resource: Resource, request_uid: str) -> None:
        """Create the ProvisioningRequest, or its PodTemplates once it has a UID."""
        key = (resource.kind, request.decided.number, request_uid)
        if not self._may_repeat(look, key):
            return
        template = await self._templates.of(look)
        if template is None or not self._current(look, request):
            return
        bodies = [request_manifest(template, request.decided)]
        if request_uid:
            bodies = template_manifests(template, request.decided, request_uid)
        done = True
        for body in bodies:
            create = partial(self.created, look, request, resource, body)
            done = done and await self._effects.carry_out(ASK, look.job.seen.namespace, create)
        if done and request_uid:
            look.progress.requested = request_uid
        self._settle(look, key)

    async def created(self, look: Look, request: NodesRequest, resource: Resource, body: Object) -> bool:
        """Create an object of a request; returns whether it is there now. A refusal goes into the log."""

        def still() -> bool:
            return self._current(look, request) and self._effects.allowed()

        try:
            await self._effects.cluster.create(resource, look.job.seen.namespace, body, still=still)
        except Withdrawn:
            return False
        except ApiError as refused:
            if refused.busy:
                raise
            if refused.code == 409:  # of an earlier try: its name has the UID of the job, and its number
                return True
            await self._refused(look, resource, refused)
            return False
        return True

    async def _refused(self, look: Look, resource: Resource, refused: ApiError) -> None:
        """Record the refusal in the log. The job asks again, by another request."""
        job = look.job
        told = {"job": job.seen.name, "kind": resource.kind, "problem": refused}
        log_event(_log, "a request for nodes is refused", level=logging.WARNING, **told)
        failed = EffectFailed(job.uid, job.attempt, ASK, None, refused.code, *texts_of(refused), False, 1)
        await self._writer.append([failed])

    async def _delete(self, look: Look, seen: ProvisioningSeen) -> None:
        if self._may_repeat(look, seen.uid):
            delete = partial(delete_request, self._effects.cluster, seen)
            await self._effects.carry_out(TAKE_BACK, seen.namespace, delete)
            self._settle(look, seen.uid)

    def _current(self, look: Look, request: NodesRequest) -> bool:
        """Whether the request wasn't decided on again, answered or given up meanwhile."""
        state = self._follower.state
        return state.jobs.get(look.job.uid) is look.job and state.requests.get(look.job.uid) is request
