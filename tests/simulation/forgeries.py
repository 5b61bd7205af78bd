"""Forgeries: a user with rights in some namespaces forges pods, and one with access to the log forges observations.

Forged pods have the owner reference and the labels of a TYJob. The API server accepts them, and its garbage collector
is late here, so they remain until their TYJob is deleted. They use room and end by themselves.
"""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from arranger.events import kinds as k
from arranger.kube.cluster import NODES, PODS, TYJOBS, ApiError, Object
from arranger.model.names import owner_of, pod_labels, pod_name
from arranger.model.pod import PodOwner
from arranger.projections.jobs.records import JobRecord
from tests.memory_log import MemoryLog
from tests.simulation.invariants import Violation
from tests.simulation.rogue import jobs_substance

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A namespace without jobs.
_FAR = "kube-public"
#: The limit of forged pods in a run: each uses room for a while.
_MOST = 10
_LASTS_S = (3.0, 40.0)


class Forger:
    """Creates forged pods and appends forged observations of pods."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(world.chance.getrandbits(64))
        self._count = self._seq = 0

    async def run(self) -> None:
        """Forge something now and then, until the faults stop."""
        acts = (self._far_pod, self._far_pod, self._renamed_pod, self._misplaced_pod)
        entries = (self._seen_far, self._seen_of_nobody, self._seen_of_an_earlier_attempt)
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / 4.0))
            if not self._world.faults.on:
                return
            if self._chance.random() < 0.6:
                with suppress(ApiError):
                    self._chance.choice(acts)()
            elif not self._world.log_away and self._world.home.index is not None:
                await self._chance.choice(entries)()

    # --- pods ------------------------------------------------------------------------------------------------

    def _some_job(self) -> Object | None:
        found = self._world.store.collection(TYJOBS).objects
        jobs = [found[key].object for key in sorted(found)]
        return self._chance.choice(jobs) if jobs else None

    def _slot(self, job: Object) -> tuple[str, bool, int, int] | None:
        """Group, leader flag, index and attempt of a slot of a job, mostly of its present attempt."""
        spec, status = job["spec"], job.get("status")
        attempt = status.get("attempt", 0) if isinstance(status, dict) else 0
        if self._chance.random() < 0.2:
            attempt += self._chance.choice((-1, 1))
        try:
            names = [(spec["leader"]["name"], True, 1)] if "leader" in spec else []
            names += [(each["name"], False, int(each["counts"])) for each in spec.get("workerSets") or ()]
        except (KeyError, TypeError, ValueError, AttributeError):  # a wild spec
            return None
        name, leader, count = self._chance.choice(names or [("", False, 0)])
        if attempt < 0 or count < 1 or not isinstance(name, str):
            return None
        return name, leader, self._chance.randrange(count), attempt

    def _nodes(self) -> list[str]:
        return sorted(name for _, name in self._world.store.collection(NODES).objects)

    def _forge(self, job: Object, *, namespace: str, named: str, node: str, site: str, ours: bool) -> None:
        """Create a pod that claims a slot of a job; the garbage collector doesn't check it at creation."""
        slot = self._slot(job)
        if slot is None or self._count >= _MOST or not node:
            return
        group, leader, index, attempt = slot
        name = pod_name(named, group, index, attempt)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}
        body = {
            "metadata": {
                "name": name,
                "labels": pod_labels(named, group, leader=leader, index=index, attempt=attempt),
                "annotations": {"sandbox.arranger.dev/run-seconds": f"{self._chance.uniform(*_LASTS_S):.1f}"},
            },
            "spec": {"nodeName": node, "containers": [container], "restartPolicy": "Never"},
        }
        uid = self._world.store.create(PODS, namespace, body).stored.uid
        self._count += 1
        owner = {
            "apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": named, "uid": job["metadata"]["uid"],
            "controller": True,
        }  # fmt: skip
        self._world.checks.forged[uid] = "" if ours else job["metadata"]["uid"]
        self._world.store.patch(PODS, namespace, name, {"metadata": {"ownerReferences": [owner]}})
        self._world.faults.hit(site)
        self._world.step("forger", f"creates {namespace}/{name} on {node} [{job['metadata']['uid']}]")

    def _far_pod(self) -> None:
        """Forge a pod in another namespace. If its job is new, the pod is observed first."""
        job = self._some_job()
        if job is not None and self._nodes():
            self._forge(
                job, namespace=_FAR, named=job["metadata"]["name"], node=self._chance.choice(self._nodes()),
                site="forged pod in another namespace", ours=False,
            )  # fmt: skip

    def _renamed_pod(self) -> None:
        """Forge a pod in the job's namespace, under the name of another job's pod."""
        job = self._some_job()
        if job is not None and self._nodes():
            self._forge(
                job, namespace=job["metadata"]["namespace"], named="forged", node=self._chance.choice(self._nodes()),
                site="forged pod under another name", ours=False,
            )  # fmt: skip

    def _misplaced_pod(self) -> None:
        """Forge a pod under the name of a slot, on a node that wasn't decided for its job: it must be deleted."""
        job = self._some_job()
        if job is None:
            return
        record = self._world.oracle.state.jobs.get(job["metadata"]["uid"])
        decided = set(record.placements.values()) if record is not None else set()
        nodes = [node for node in self._nodes() if node not in decided]
        if nodes and record is not None and record.placements:
            self._forge(
                job, namespace=job["metadata"]["namespace"], named=job["metadata"]["name"],
                node=self._chance.choice(nodes), site="forged pod on another node", ours=True,
            )  # fmt: skip

    # --- observations ----------------------------------------------------------------------------------------

    def _record(self) -> JobRecord | None:
        jobs = self._world.oracle.state.jobs
        found = [jobs[uid] for uid in sorted(jobs) if jobs[uid].spec is not None]
        return self._chance.choice(found) if found else None

    def _strangers(self) -> list[k.PodSeen]:
        """Live foreign pods that the log has."""
        pods = self._world.oracle.state.pods
        return [pods[uid] for _, uid in sorted(self._world.checks.strangers.items()) if uid in pods]

    async def _append(self, site: str, seen: k.PodSeen, *, touches_no_job: bool) -> None:
        """Append an observation under the current term."""
        oracle = self._world.oracle
        if k.Watched.POD not in oracle.state.terms:
            return
        before = jobs_substance(oracle.state)
        self._seq += 1
        event = msgspec.structs.replace(seen, term=oracle.state.terms[k.Watched.POD])
        batch = k.Batch("forger", self._seq, oracle.state.time_ms, (event,))
        await MemoryLog(self._world.home).append(batch, epoch=oracle.state.epoch)
        self._world.faults.hit(site)
        self._world.step("forger", f"appends {site}")
        if touches_no_job and jobs_substance(oracle.state) != before:
            self._world.fail(Violation(f"{site} changed a job: {event}"), None)

    async def _seen_far(self) -> None:
        """Forge the observation of a leader that never existed, in another namespace, with an address."""
        job = self._record()
        if job is None or job.spec is None or not job.spec.has_leader:
            return
        group, seen = job.spec.groups[0], job.seen
        owner = PodOwner(job.uid, job.attempt, group.name, True, 0)
        name = pod_name(seen.name, group.name, 0, job.attempt)
        node = job.placements.get((0, 0), "")
        pod = k.PodSeen(
            0, _FAR, name, f"forged-{self._seq}", "1", node, "Running", (), owner, True, False, ip="6.6.6.6"
        )  # fmt: skip
        await self._append("forged observation: another namespace", pod, touches_no_job=True)

    async def _seen_of_nobody(self) -> None:
        """Forge the observation of a foreign pod as one of a TYJob that never existed."""
        if strangers := self._strangers():
            pod = self._chance.choice(strangers)
            owner = PodOwner(f"never-{self._seq}", 0, "learner", True, 0)
            await self._append(
                "forged observation: left behind", msgspec.structs.replace(pod, owner=owner), touches_no_job=True
            )

    async def _seen_of_an_earlier_attempt(self) -> None:
        """Forge the observation of a foreign pod with a slot's name as one of an earlier attempt."""
        for pod in self._strangers():
            for job in self._world.oracle.state.jobs.values():
                owner = _claim(pod, job)
                if owner is not None and owner.attempt < job.attempt:
                    site = "forged observation: an earlier attempt"
                    await self._append(site, msgspec.structs.replace(pod, owner=owner), touches_no_job=False)
                    return


def _claim(pod: k.PodSeen, job: JobRecord) -> PodOwner | None:
    """The slot of a job that a pod's name belongs to, in any attempt."""
    if job.spec is None or pod.namespace != job.seen.namespace:
        return None
    for number, group in enumerate(job.spec.groups):
        for index in range(group.count):
            for attempt in range(job.attempt):
                labels = pod_labels(job.seen.name, group.name, leader=number == 0, index=index, attempt=attempt)
                owner = owner_of(pod.name, labels, job=job.seen.name, job_uid=job.uid)
                if owner is not None:
                    return owner
    return None
