"""Keeps the placeholders of a job that waits for nodes, and deletes them once it doesn't.

A placeholder is made, then told Unschedulable, which autoscalers look for. It goes before the job's own pods come, so
no autoscaler counts both.
"""

from functools import partial

from arranger.events.kinds import PodSeen
from arranger.kube.cluster import PODS
from arranger.kube.placeholders import placeholder_manifest
from arranger.lifecycle.provisioning import lacks_nodes
from arranger.model.provisioning import Provisioning, placeholder_names
from arranger.projections.folding.provisioning import present_request, way_of
from arranger.projections.jobs.parts import ASK
from arranger.projections.state import NodesRequest
from arranger.workers.applying.effects.carrying_out import together
from arranger.workers.applying.effects.deletions import delete_pod
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look
from arranger.workers.applying.effects.templates import Templates
from arranger.workers.applying.pods.binder import Binder
from arranger.workers.applying.pods.provisioner import TAKE_BACK, Provisioner

#: The effect in metrics.
_TELL = "tell"


class Placeholders(JobWriter):
    """Makes the placeholders of jobs match the accepted decisions."""

    def __init__(self, means: Means, templates: Templates, provisioner: Provisioner, binder: Binder) -> None:
        super().__init__(means)
        self._templates = templates
        self._provisioner = provisioner
        self._binder = binder
        self._default = Provisioning(self._effects.parts.settings.provisioning)

    async def look(self, look: Look) -> None:
        """Delete the placeholders that the job doesn't need, make those that it lacks, and tell all of them."""
        job, state = look.job, self._follower.state
        request = self._desired(look)
        seen = sorted([(pod.name, pod) for pod in state.placeholders.get(job.uid, {}).values()], key=lambda of: of[0])
        if not state.synced or (request is None and not seen):
            return
        number, pods = (request.decided.number, request.decided.pods) if request is not None else (0, ())
        desired = placeholder_names(job.seen.name, job.uid, number, pods)
        surplus = [pod for name, pod in seen if not pod.deleting and (name not in desired or pod.node)]
        await together([self._delete(look, pod) for pod in surplus])
        told = look.progress.unschedulable
        look.progress.unschedulable = {pod.uid: None for _, pod in seen if pod.uid in told}
        if request is None:
            return
        await together(
            [self._tell(look, pod) for name, pod in seen if name in desired and not (pod.deleting or pod.node)]
        )
        there = dict(seen)
        await self._create(look, request, {name: group for name, group in desired.items() if name not in there})

    def _desired(self, look: Look) -> NodesRequest | None:
        """The job's request by placeholders, while the job waits for nothing but nodes."""
        job, state = look.job, self._follower.state
        request = present_request(state, job)
        if request is None or not job.active or job.stands_still or not request.answer.under_way:
            return None
        ways = (request.decided.how, way_of(state, job, self._default))
        return request if ways == (Provisioning.PENDING,) * 2 and lacks_nodes(state, job) else None

    async def _create(self, look: Look, request: NodesRequest, missing: dict[str, int]) -> None:
        """Create these placeholders, the first one alone: where it is refused, the others are too."""
        due = {name: group for name, group in missing.items() if self._may_repeat(look, name)}
        template = await self._templates.of(look) if due else None
        if template is None or not look.current():
            return
        bodies = [
            placeholder_manifest(template, name, group=group, number=request.decided.number)
            for name, group in due.items()
        ]
        for name in due:
            self._settle(look, name)
        create = [partial(self._provisioner.created, look, request, PODS, body) for body in bodies]
        namespace = look.job.seen.namespace
        if await self._effects.carry_out(ASK, namespace, create[0]):
            await together([self._effects.carry_out(ASK, namespace, of) for of in create[1:]])

    async def _tell(self, look: Look, pod: PodSeen) -> bool:
        if pod.uid in look.progress.unschedulable:
            return True
        message = f"a placeholder for a pod of TYJob {look.job.seen.name}, which waits for nodes"
        done = await self._effects.carry_out(
            _TELL, pod.namespace, partial(self._binder.told, pod, message, look.job.uid)
        )
        if done:
            look.progress.unschedulable[pod.uid] = None
        return done

    async def _delete(self, look: Look, pod: PodSeen) -> bool:
        if not self._may_repeat(look, pod.uid):
            return False
        delete = partial(delete_pod, self._effects.cluster, pod, look.job.uid, force=True)
        done = await self._effects.carry_out(TAKE_BACK, pod.namespace, delete)
        self._settle(look, pod.uid)
        return done
