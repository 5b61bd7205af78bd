"""Pods that no TYJob owns and that name Arranger as their scheduler: alone or in groups they come, wait, run, end and
go beside the jobs.

Safety: such a pod is bound only to a node that an accepted decision gave it or its group, and no worker ever deletes
one. Liveness: at the end each one that has no gate is on a node, or waits for a reason and says so. A group may then
have lost too many pods for its minimum.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import PODS, ApiError, Object
from arranger.model.job import Stage
from arranger.model.pod import GroupKind
from arranger.model.pods_to_place import SLOT, group_uid, record_of
from arranger.model.provisioning import NO_SCHEDULER
from arranger.projections.derived.queue_membership import kept_out
from arranger.projections.jobs.records import JobRecord
from arranger.sandbox.garbage import DeleteOptions
from tests.simulation.calm import CALM
from tests.simulation.faults import HALF_WAY, WITH_CLAIMS
from tests.simulation.pod_groups import LABEL, group_record

if TYPE_CHECKING:
    from tests.simulation.world import World

SCHEDULER = "arranger"
#: The most of them that are there at once.
_MOST = 6
#: How often pods come as a group, and the labels that make one.
_GROUPED = 0.5
_GROUP, _MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
#: The mean time between two changes, in most runs and in those about groups.
_PACE_S, _OFTEN_S = 2.5, 1.0
_LASTS_S = (2.0, 60.0)


class Others:
    """Makes these pods, deletes some, and removes their gates."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} others")
        self._half_way = world.faults.often(HALF_WAY)
        about = self._half_way or world.faults.often(WITH_CLAIMS)
        self.comes = (chance.random() < 0.4 or about) and not world.faults.often(CALM)
        self._made = 0

    async def run(self) -> None:
        """Make one change after the other until the faults stop."""
        while self.comes:
            await asyncio.sleep(self._chance.expovariate(1 / (_OFTEN_S if self._half_way else _PACE_S)))
            if not self._world.faults.on:
                return
            with suppress(ApiError):
                self._chance.choice((self._come, self._come, self._remove, self._open))()

    def end(self) -> None:
        """No pod keeps a gate."""
        for pod in self._pods():
            self._open(pod)

    def _pods(self) -> list[Object]:
        found = self._world.store.collection(PODS).objects
        pods = [stored.object for _, stored in sorted(found.items())]
        return [pod for pod in pods if pod["spec"].get("schedulerName") == SCHEDULER]

    def _come(self) -> None:
        """A pod comes, or a group of some pods that needs most of them, or one more pod of a group that is there."""
        chance = self._chance
        if len(self._pods()) >= _MOST:
            return
        if chance.random() >= (1.0 if self._half_way else _GROUPED):
            self._create({})
            return
        labelled = [pod["metadata"].get("labels") or {} for pod in self._pods()]
        there = [labels for labels in labelled if _GROUP in labels or LABEL in labels]
        if there and chance.random() < 0.5:
            self._create(dict(chance.choice(there)))
            return
        size = chance.randrange(2, 4)
        name, least = f"group{self._made}", chance.randrange(size - 1, size + 1)
        labels = self._world.pod_groups.named({_GROUP: name, _MINIMUM: str(least)}, name, least)
        for _ in range(size):
            self._create(labels)

    def _create(self, labels: Mapping[str, str]) -> None:
        chance = self._chance
        self._made += 1
        cpu = str(chance.randrange(1, 4))
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        lasts = {"sandbox.arranger.dev/run-seconds": f"{chance.uniform(*_LASTS_S):.1f}"}
        spec: dict[str, Any] = {
            "schedulerName": SCHEDULER,
            "containers": [container],
            "restartPolicy": "Never",
            "priority": chance.randrange(0, 12),
            "preemptionPolicy": chance.choice(("PreemptLowerPriority", "Never")),
        }
        if chance.random() < 0.25:
            spec["schedulingGates"] = [{"name": "example.com/later"}]
        if self._world.claims.names_one():
            spec["volumes"] = self._world.claims.volumes()
        if chance.random() < 0.2:
            spec["nodeSelector"] = {"kubernetes.io/hostname": f"n{chance.randrange(3)}"}
        name = f"other{self._made}"
        body = {"metadata": {"name": name, "annotations": lasts, "labels": dict(labels)}, "spec": spec}
        made = self._world.store.create(PODS, "default", body).stored
        self._world.step("others", f"create {name} [{record_of_pod(made.object)}] of {cpu}")

    def come_again(self, pod: Object) -> None:
        """Another pod comes with the name of one that is gone, and asks for the same."""
        metadata, spec = pod["metadata"], {**pod["spec"]}
        spec.pop("nodeName", None)
        kept = {key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata}
        self._world.store.create(PODS, "default", {"metadata": kept, "spec": spec})
        self._world.step("others", f"create another {metadata['name']} [{record_of_pod(pod)}]")

    def _remove(self) -> None:
        pods = self._pods()
        if not pods:
            return
        metadata = self._chance.choice(pods)["metadata"]
        grace_s = self._chance.choice((None, 0))
        self._world.store.delete(PODS, "default", metadata["name"], DeleteOptions(grace_s=grace_s))
        self._world.step("others", f"delete {metadata['name']} [{record_of_pod({'metadata': metadata})}]")

    def _open(self, pod: Object | None = None) -> None:
        gated = [of for of in self._pods() if of["spec"].get("schedulingGates")]
        pod = pod or (self._chance.choice(gated) if gated else None)
        if pod is not None and pod["spec"].get("schedulingGates"):
            name = pod["metadata"]["name"]
            self._world.store.patch(PODS, "default", name, {"spec": {"schedulingGates": None}})
            self._world.step("others", f"open {name}")

    # --- safety ---------------------------------------------------------------------------------------------

    def record(self, uid: str) -> str:
        """The UID of the record of the pod with this UID; empty if it isn't there."""
        return record_of_pod(pod) if (pod := self.pod(uid)) is not None else ""

    def pod(self, uid: str) -> Object | None:
        """The pod with this UID, if it is there."""
        return next((pod for pod in self._pods() if pod["metadata"]["uid"] == uid), None)

    def undecided(self, name: str, node: str) -> str:
        """What is wrong with the pod of this name, which was just bound, as text; empty if nothing is."""
        uid = self._world.store.get(PODS, "default", name).uid
        if node not in self._world.oracle.given.get(uid, ()):
            return f"pod {uid} is bound to {node} without an accepted decision"
        return ""

    def may_tell(self, name: str, body: Mapping[str, Any]) -> bool:
        """Whether a change of a status is one that says why a pod of these waits, as it was when it was read."""
        known = self._world.store.collection(PODS).objects.get(("default", name))
        ours = known is None or known.object["spec"].get("schedulerName") in (SCHEDULER, NO_SCHEDULER)
        held = set(body["metadata"]) == {"uid", "resourceVersion"}
        return ours and held and set(body) == {"metadata", "status"} and set(body["status"]) == {"conditions"}

    # --- liveness ------------------------------------------------------------------------------------------

    def unsettled(self) -> list[tuple[str, str]]:
        """(UID of a record, the problem); empty at a good end."""
        found, state = [], self._world.oracle.state
        for pod in self._pods():
            uid, name = record_of_pod(pod), pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            job = state.jobs.get(uid)
            if job is None:
                found.append((uid, f"pod {name} has no record"))
            elif pod["spec"].get("nodeName"):
                if job.stage != Stage.RUNNING and not (job.of_group and job.stage == Stage.STARTING):
                    found.append((uid, f"pod {name} is bound, and its record is {job.stage}"))
            elif problem := self._waits_wrongly(pod, job):
                found.append((uid, f"pod {name} {problem}"))
        return found

    def _waits_wrongly(self, pod: Object, job: JobRecord) -> str:
        """What is wrong with a pod that has no node; empty if nothing is."""
        outside = kept_out(self._world.oracle.state, job)
        slot = job.slots.members.get(pod["metadata"]["uid"], SLOT)
        if slot in job.placements:
            return "isn't bound"
        if job.waits is None and outside is None and not job.pods_lacking:
            return "waits for no reason"
        conditions = {of["type"]: of for of in pod["status"].get("conditions") or ()}
        reason = conditions.get("PodScheduled", {}).get("reason")
        return "" if reason == "Unschedulable" else f"doesn't say why it waits: {conditions}"


def record_of_pod(pod: Mapping[str, Any]) -> str:
    """The UID of the record of a pod, alone or with its group."""
    if of_object := group_record(pod["metadata"]):
        return of_object
    group = (pod["metadata"].get("labels") or {}).get(_GROUP)
    return group_uid("default", group, GroupKind.LABELS) if group else record_of(pod["metadata"]["uid"])
