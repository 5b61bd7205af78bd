"""Pods that can't start, and pods that hang in Terminating, on good and on lost nodes.

While the faults last, kubelets can't start a pod for a while, don't end it for a while, and a finalizer keeps pods on
lost nodes. At the end, trials with deadlines: a quorum that can't start gives its nodes up, and a pod that hangs is
named and, on a lost node, left behind. A node that is back in time costs no job its pods, however late watches tell it,
and a leader that succeeds in time makes a failed worker nobody's. A worker that somebody deletes ends the others.
"""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import NODES, PODS, TYJOBS, ApiError, Object
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.desired import desired_status
from arranger.model.job import PREEMPTED, Stage
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.sandbox.store import ApiRefusal, DeleteOptions
from tests.simulation.endings import RIVAL
from tests.simulation.faults import BACK_UNSEEN, CUT, STARTS, SUCCESS_UNSEEN
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

UNABLE, LINGERS, KEPT = STARTS
ORDER = "a set starts after another group"
#: How long such a pod can't start, or doesn't end, in seconds: some beyond the bounds of the simulation.
_LONG_S = (3.0, 20.0, 90.0)
_REASONS = ("ErrImagePull", "CreateContainerConfigError", "CreateContainerError")
#: Stands for a kubelet that never confirms a deletion.
_KEEPS = "example.com/keeps"
#: `start_ms` is 30 s here and `node_lost_after_ms` a minute; clocks differ, and a sweep takes 5 s.
_HOLDS_S, _WAITS_S = 75.0, 130.0
_RUNS_WITHIN_S = 60.0
#: After so long a node counts as lost. Watches of nodes are late for longer than what is left of it.
_LOST_S, _LATE_S = LifecycleConfig().node_lost_after_ms / 1000, 15.0


class Starts:
    """The faults and the trials of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} starts")
        faults = world.faults
        self._rates = {site: chance.choice((0.0, 0.03, 0.1)) for site in STARTS}
        self._rates |= {site: 0.3 for site in STARTS if faults.often(site)}
        self._tries_unable = chance.random() < 0.4 or faults.often(UNABLE)
        self._tries_order = chance.random() < 0.4 or faults.often(ORDER)
        self._tries_hanging = chance.random() < 0.4 or faults.often(KEPT)
        more = random.Random(f"{world.seed} more starts")
        self._tries_back = more.random() < 0.4 or faults.often(BACK_UNSEEN)
        self._tries_success = more.random() < 0.4 or faults.often(SUCCESS_UNSEEN, RIVAL)
        self._tries_cut = more.random() < 0.4 or faults.often(CUT)

    def _happens(self, site: str) -> bool:
        happens = self._world.faults.on and self._chance.random() < self._rates[site]
        if happens:
            self._world.faults.hit(site)
        return happens

    # --- faults --------------------------------------------------------------------------------------------

    def why_unable(self) -> str:
        """Why a pod can't start now; "" if it can."""
        return self._chance.choice(_REASONS) if self._happens(UNABLE) else ""

    async def end_of_hindrance(self) -> None:
        """Wait until it can."""
        await self._while()

    async def linger(self, pod: str) -> None:
        """The kubelet of a pod doesn't end it for a while, if it likes."""
        if self._happens(LINGERS):
            self._world.step("starts", f"pod {pod} hangs")
            await self._while()

    async def _while(self) -> None:
        until_s = self._world.loop.time() + self._chance.choice(_LONG_S)
        while self._world.faults.on and self._world.loop.time() < until_s:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)

    def node_lost(self, node: str) -> None:
        """A finalizer keeps a pod on a node that is lost, if it likes."""
        pods = [
            stored.object
            for stored in self._world.store.collection(PODS).objects.values()
            if stored.object["spec"].get("nodeName") == node and stored.object["metadata"].get("ownerReferences")
        ]
        for pod in sorted(pods, key=lambda of: of["metadata"]["uid"]):
            if self._happens(KEPT):
                self._keep(pod["metadata"]["namespace"], pod["metadata"]["name"], [_KEEPS])

    def heal(self) -> None:
        """No pod is kept any more."""
        for (namespace, name), stored in list(self._world.store.collection(PODS).objects.items()):
            if _KEEPS in (stored.object["metadata"].get("finalizers") or ()):
                self._keep(namespace, name, None)

    def _keep(self, namespace: str, name: str, finalizers: list[str] | None) -> None:
        with suppress(ApiError, ApiRefusal):
            self._world.store.patch(PODS, namespace, name, {"metadata": {"finalizers": finalizers}})
            self._world.step("starts", f"pod {name} {'is kept' if finalizers else 'is kept no more'}")

    # --- trials --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """One trial after the other. Raises `Violation`."""
        if self._state.quotas:
            return
        if self._tries_unable:
            await self._unable_quorum()
        if self._tries_order:
            await self._awaited_set_without_room()
        if self._tries_hanging:
            await self._pod_on_lost_node()
        if self._tries_back:
            await self._node_back_in_time()
        if self._tries_success:
            await self._success_seen_late()
            await self._success_has_rival()
        if self._tries_cut:
            for scope in ("Set", "Job"):
                await self._deleted_worker(scope)

    @property
    def _state(self) -> State:
        return self._world.oracle.state

    async def _unable_quorum(self) -> None:
        """A worker can't start beside a good leader: they don't hold their nodes for long."""
        uid = self._create("unable", {"sandbox.arranger.dev/fail": self._chance.choice(_REASONS)}, leader=True)
        held_s, passed_s = 0.0, 0.0
        while passed_s < 2 * _HOLDS_S:
            await asyncio.sleep(0.5)
            passed_s += 0.5
            job = self._job(uid)
            if job is not None and job.attempt:
                break
            held_s = held_s + 0.5 if job is not None and job.stage == Stage.STARTING else 0.0
            if held_s > _HOLDS_S:
                raise Violation(f"a quorum that can't start holds its nodes for {held_s:.0f} s", job=uid)
        job = self._job(uid)
        gave_room = job is not None and PREEMPTED in job.times.turned
        if job is not None and job.attempt and not job.back_offs.attempt.times and not gave_room:
            raise Violation("a quorum that couldn't start doesn't back off", job=uid)
        self._world.store.delete(TYJOBS, "default", "unable")

    async def _awaited_set_without_room(self) -> None:
        """A set that another one starts after fits no node: neither gets any, which is checked at each placement."""
        uid = self._create("ordered", {}, leader=False, after="1000")
        await asyncio.sleep(10.0)
        if (job := self._job(uid)) is not None and job.placements:
            raise Violation("a set has nodes that waits for one without room", job=uid)
        self._world.store.delete(TYJOBS, "default", "ordered")

    async def _pod_on_lost_node(self) -> None:
        """The node of a pod is lost, and the pod hangs there: it is named, and the job goes on without it."""
        uid = self._create("hangs", {}, leader=False)
        job = await self._ready(uid)
        if job is not None:
            await self._lose_node_of(self._state.pods[job.bound[1, 0]].name, job.placements[1, 0], uid)
        self._world.store.delete(TYJOBS, "default", "hangs")

    async def _ready(self, uid: str) -> JobRecord | None:
        """The job once its quorum is ready; None if that doesn't come."""
        for _ in range(int(2 * _RUNS_WITHIN_S)):
            await asyncio.sleep(0.5)
            if (job := self._job(uid)) is None or job.quorum_ready:
                return job
        return None

    async def _node_back_in_time(self) -> None:
        """A lost node is back before it counts as lost, and watches tell of it only later: its pod stays."""
        uid = self._create("stays", {}, leader=False)
        job = await self._ready(uid)
        if job is not None:
            node, pod = job.placements[1, 0], job.bound[1, 0]
            await self._world.machines.lose(node, soon_back=True)
            await asyncio.sleep(_LOST_S - 5.0)
            self._world.late_until_s[NODES.plural] = self._world.loop.time() + _LATE_S
            await self._world.machines.find(node)
            self._world.faults.hit(BACK_UNSEEN)
            await asyncio.sleep(_LATE_S + 5.0)
            job = self._job(uid)
            if job is not None and job.bound.get((1, 0)) != pod and PREEMPTED not in job.times.turned:
                raise Violation(f"a job lost its pod on {node}, which was back in time", job=uid)
        self._world.store.delete(TYJOBS, "default", "stays")

    async def _success_seen_late(self) -> None:
        """A worker fails that may not be restarted, and within the time that others wait for news of the leader it
        succeeds, of which the watch tells later: the job has succeeded."""
        ends = {"sandbox.arranger.dev/run-seconds": "12"}
        fails = {"sandbox.arranger.dev/run-seconds": "10.5", "sandbox.arranger.dev/failures": "1"}
        uid = self._create("succeeds", fails, leader=True, led=ends, limit=0)
        job = await self._ready(uid)
        for _ in range(400):
            await asyncio.sleep(0.05)
            if job is not None and job.failing:
                self._world.late_until_s[PODS.plural] = self._world.loop.time() + _LATE_S
                self._world.faults.hit(SUCCESS_UNSEEN)
                await asyncio.sleep(_LATE_S + 5.0)
                break
        job = self._job(uid)
        if job is not None and job.stage == Stage.FAILED:
            raise Violation("a job failed whose leader had succeeded", job=uid)
        self._world.store.delete(TYJOBS, "default", "succeeds")

    async def _success_has_rival(self) -> None:
        """Another writer lets a job fail as soon as the log shows its success: it has succeeded nevertheless."""
        uid = self._create("wins", {}, leader=True, led={"sandbox.arranger.dev/run-seconds": "3"})
        self._world.endings.with_rival[uid] = None
        for _ in range(int(2 * _RUNS_WITHIN_S)):
            await asyncio.sleep(0.5)
            if (job := self._job(uid)) is None or job.ended:
                break
        self._world.store.delete(TYJOBS, "default", "wins")

    async def _deleted_worker(self, scope: str) -> None:
        """Somebody deletes a worker's pod: that is an end, so the others begin again too."""
        name = f"cut-{scope.lower()}"
        uid = self._create(name, {}, leader=False, count=2, scope=scope)
        job = await self._ready(uid)
        if job is not None:
            before, attempt = set(job.bound.values()), job.attempt
            self._world.store.delete(PODS, "default", self._state.pods[job.bound[1, 0]].name, DeleteOptions(grace_s=1))
            self._world.faults.hit(CUT)
            for _ in range(int(2 * _RUNS_WITHIN_S)):
                await asyncio.sleep(0.5)
                job = self._job(uid)
                if job is None or (job.quorum_ready and not before & set(job.bound.values())):
                    break
            # While its pods leave, another job may take its room, which is a new attempt too.
            as_asked = job is None or PREEMPTED in job.times.turned or (scope == "Job") == (job.attempt > attempt)
            if not as_asked or (job is not None and before & set(job.bound.values())):
                raise Violation(f"a worker was deleted, and others of its {scope} go on", job=uid)
        self._world.store.delete(TYJOBS, "default", name)

    async def _lose_node_of(self, pod: str, node: str, uid: str) -> None:
        attempt = self._state.jobs[uid].attempt
        self._keep("default", pod, [_KEEPS])
        await self._world.machines.lose(node)
        self._world.store.delete(PODS, "default", pod, DeleteOptions(grace_s=1))
        self._world.faults.hit(KEPT)
        waited_s, named = 0.0, True
        for _ in range(int(4 * _WAITS_S)):
            await asyncio.sleep(0.5)
            job = self._job(uid)
            waits = job is not None and job.attempt > attempt and not job.left_behind and not job.placements
            waited_s = waited_s + 0.5 if waits and job is not None else 0.0
            if waits and job is not None:
                named = named and pod in desired_status(self._state, job)["message"]
            if waited_s > _WAITS_S / 2 or not named:
                break
            if job is not None and job.left_behind:
                break
        self._keep("default", pod, None)
        await self._world.machines.find(node)
        if not named:
            raise Violation("a job waits for a pod that hangs and doesn't name it", job=uid)
        if waited_s > _WAITS_S / 2:
            raise Violation(f"a job waits {waited_s:.0f} s for a pod that hangs on a lost node", job=uid)

    def _job(self, uid: str) -> JobRecord | None:
        return self._state.jobs.get(uid)

    def _create(
        self, name: str, notes: dict[str, str], *, leader: bool, after: str = "", led: Object | None = None,
        limit: int | None = None, count: int = 1, scope: str = "Job",
    ) -> str:  # fmt: skip
        """Create a job of `count` workers, which restart the whole job or their set; returns its UID. With `after`, the
        worker starts after another set, whose worker asks for so many cpus. `led` are annotations of the leader."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
        template: Object = {"spec": {"containers": [container]}}
        worker: Object = {"metadata": {"annotations": notes}, **template}
        restart: Object = {"scope": scope, **({"limit": limit} if limit is not None else {})}
        workers = {"name": "w", "counts": count, "minCount": count, "restart": restart, "template": worker}
        spec: dict[str, Any] = {"priority": 10, "workerSets": [workers]}
        if after:
            asked = {"requests": {"cpu": after}, "limits": {"cpu": after}}
            large = {"spec": {"containers": [{"name": "c", "image": "i", "resources": asked}]}}
            workers |= {"minCount": 0, "startAfter": "large"}
            spec |= {"workerSets": [workers, {"name": "large", "counts": 1, "template": large}], "minWorkersNum": 1}
        if leader:
            spec["leader"] = {"name": "learner", "template": {"metadata": {"annotations": led or {}}, **template}}
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self._world.user.names[stored.uid] = name
        self._world.step("starts", f"creates {name} [{stored.uid}]")
        return stored.uid
