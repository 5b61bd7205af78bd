"""What jobs with a rendezvous have beside their pods, in the simulated world: Services and members files. Users delete
them, change them and take their names; at a good end each shows its job as it is.
"""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import CONFIG_MAPS, SERVICES, TYJOBS, ApiError, Object, Resource
from arranger.lifecycle.members import has_members_file, members_text
from arranger.model.names import members_name
from arranger.projections.jobs.records import JobRecord
from tests.simulation.faults import BELONGINGS

if TYPE_CHECKING:
    from tests.simulation.world import World

_PACE_S = 10.0
#: How often a user takes a name in one run: the job of that name never starts.
_TAKEN = 1


class Belongings:
    """Draws the rendezvous of jobs, and what users do to what follows from it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} belongings")
        self._taken = 0
        self._ended = False

    def draw(self, sets: list[Any]) -> None:
        """Give worker sets a rendezvous, or none."""
        chance = self._chance
        if chance.random() < 0.3:
            return
        for each in sets:
            if chance.random() < 0.8:
                each["rendezvous"] = {"scope": chance.choice(("Set", "Set", "Job")), "port": 29500}
                each["rendezvous"] |= {"membersFile": True} if chance.random() < 0.85 else {}

    async def run(self) -> None:
        """Act until the faults stop."""
        acts = ((self._delete_file, 3), (self._edit_file, 3), (self._delete_service, 2), (self._take, 1))
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            [act] = self._chance.choices([act for act, _ in acts], [weight for _, weight in acts])
            if self._world.faults.on:
                with suppress(ApiError):
                    act()

    def serve(self) -> None:
        """Create a job that runs until the end of the run, on any node that takes another pod."""
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        workers = {"name": "w", "counts": 1, "template": template, "rendezvous": {"membersFile": True}}
        spec = {"minWorkersNum": 1, "leader": {"name": "learner", "template": template}, "workerSets": [workers]}
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": "served"}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self._world.user.names[stored.uid] = "served"
        self._world.step("user", f"creates served [{stored.uid}]")

    def end(self) -> None:
        """The last thing that users do, once: what they change and delete must be put right."""
        if self._ended:
            return
        self._ended = True
        for resource in (CONFIG_MAPS, SERVICES):
            for namespace, name in self._owned(resource):
                if self._chance.random() < 0.5 or self._world.faults.often(*BELONGINGS):
                    self._world.store.delete(resource, namespace, name)
                elif resource == CONFIG_MAPS:
                    self._world.store.patch(resource, namespace, name, {"data": {"members.json": "{}"}})

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("user", what)

    def _owned(self, resource: Resource) -> list[tuple[str, str]]:
        """The namespace and name of each object that belongs to a TYJob."""
        found = self._world.store.collection(resource).objects
        return [key for key in sorted(found) if _job_of(found[key].object)]

    def _delete_file(self) -> None:
        if owned := self._owned(CONFIG_MAPS):
            namespace, name = self._chance.choice(owned)
            self._world.store.delete(CONFIG_MAPS, namespace, name)
            self._did("user deletes a members file", f"deletes the ConfigMap {name}")

    def _edit_file(self) -> None:
        if owned := self._owned(CONFIG_MAPS):
            namespace, name = self._chance.choice(owned)
            self._world.store.patch(CONFIG_MAPS, namespace, name, {"data": {"members.json": "{}"}})
            self._did("user edits a members file", f"edits the ConfigMap {name}")

    def _delete_service(self) -> None:
        if owned := self._owned(SERVICES):
            namespace, name = self._chance.choice(owned)
            self._world.store.delete(SERVICES, namespace, name)
            self._did("user deletes a Service", f"deletes the Service {name}")

    def _take(self) -> None:
        """Create a ConfigMap or a Service under a name that a job will need."""
        jobs = sorted(self._world.store.collection(TYJOBS).objects)
        if not jobs or self._taken >= _TAKEN:
            return
        namespace, job = self._chance.choice(jobs)
        resource, name = self._chance.choice(((CONFIG_MAPS, members_name(job)), (SERVICES, job)))
        self._world.store.create(resource, namespace, {"metadata": {"name": name}, "data": {}})
        self._taken += 1
        self._did("a stranger takes a members file's or a Service's name", f"takes {resource.kind} {name}")

    def unsettled(self) -> list[tuple[str, str]]:
        """(Job UID, the problem): a running job whose Service is missing, or whose file shows something else."""
        state = self._world.oracle.state
        found = []
        for job in state.jobs.values():
            if not (job.active and job.bound and job.spec is not None and job.spec.has_rendezvous):
                continue
            if not self._there(job, SERVICES, job.seen.name):
                found.append((job.uid, f"{job.seen.name} has no Service"))
            file = self._there(job, CONFIG_MAPS, members_name(job.seen.name)) if has_members_file(job) else None
            if has_members_file(job) and file is None:
                found.append((job.uid, f"{job.seen.name} has no members file"))
            elif file is not None and _job_of(file) and file["data"]["members.json"] != members_text(state, job):
                found.append((job.uid, f"the members file of {job.seen.name} shows something else"))
        return found

    def _there(self, job: JobRecord, resource: Resource, name: str) -> Object | None:
        stored = self._world.store.collection(resource).objects.get((job.seen.namespace, name))
        return stored.object if stored is not None else None


def _job_of(item: Object) -> str:
    """The UID of the TYJob that an object belongs to; empty for none."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner["kind"] == TYJOBS.kind), "")


def may_patch(world: "World", resource: Resource, namespace: str, name: str, uid: str) -> bool:
    """Whether a worker may patch the ConfigMap with a UID: it is missing, or is the members file of a TYJob of its
    namespace, or the patch is for another one of that name, so the API server refuses it."""
    stored = world.store.collection(resource).objects.get((namespace, name))
    return stored is None or bool(_job_of(stored.object)) or stored.object["metadata"]["uid"] != uid
