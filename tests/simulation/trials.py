"""Trials of liveness with deadlines at the end of a run, because faults could delay it earlier.

A job whose pods are refused makes room for a job of another namespace, and is scheduled again. A job that lacks a part
of its quorum releases the other part. A worker that fails repeatedly on its node goes elsewhere, and so does one whose
node closes before it is replaced. Nobody gives room
again and again to a job whose pods kubelets refuse.
"""

import asyncio
import random
from typing import TYPE_CHECKING

from arranger.events.kinds import Batch
from arranger.kube.cluster import NODES, PODS, TYJOBS, Object
from arranger.model.job import Stage
from arranger.projections.state import State
from tests.simulation.conservation import of_quota
from tests.simulation.denials import TEAM
from tests.simulation.faults import STAYING
from tests.simulation.gateways import CLOCK_BOUND_MS
from tests.simulation.invariants import Violation
from tests.simulation.vain import REFUSED

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How long a job may keep nodes after the log recorded the refusal of its pods: 5 s of grace, and the decision.
_HOLDS_S = 8.0
#: The length of the trial, the creation of the other job in it, and the time to notice a lifted refusal.
_TRIAL_S = 100.0
_OTHER_COMES_S = 40.0
_COMES_AGAIN_S = 400.0
#: A job lacks nodes for a part of its quorum: `quorum_ms` is 40 s here, clocks differ by a minute, and a sweep is 5 s.
_SHORT_S = 120.0
#: A failed worker has been replaced by then, and a node that closed meanwhile opens again.
_REPLACED_S = 20.0
#: A job whose pods kubelets refuse avoids the node for a minute each time, and backs off.
_DISTURBED_S = 240.0


class Trials:
    """The trials of a run, and their findings."""

    def __init__(self, world: "World") -> None:
        self._world = world
        chance = random.Random(f"{world.seed} trials")
        self._refuses, self._raises = chance.random() < 0.4, chance.random() < 0.4
        self._fails = chance.random() < 0.4
        self._disturbs = chance.random() < 0.4 or world.faults.often(REFUSED)
        self._tries_closing = chance.random() < 0.6 or world.faults.often(STAYING)
        #: The job (UID) whose worker's node closes.
        self._closes = ""

    async def run(self) -> None:
        """Run one trial after the other. Raises `Violation`."""
        if self._raises:
            await self._raised_minimum()
        if self._refuses:
            await self._refused_namespace()
        if self._fails:
            await self._bad_node()
        if self._disturbs:
            await self._refused_by_kubelets()
        if self._tries_closing:
            await self._closed_meanwhile()

    def closes(self, batch: Batch, node: str) -> bool:
        """Close a node to which a decision on a worker of the trial leaves it, once; whether it does."""
        if self._closes and any(getattr(event, "job_uid", "") == self._closes for event in batch.events):
            self._closes = ""
            self._world.store.patch(NODES, "", node, {"spec": {"unschedulable": True}})
            self._world.faults.hit(STAYING)
            self._world.step("trials", f"closes {node}")
            return True
        return False

    async def _closed_meanwhile(self) -> None:
        """A worker fails and is to stay on its node, which closes while that decision is on its way."""
        spots = with_room(self._state)[-2:]
        if len(spots) < 2 or self._state.quotas:
            return
        uid = self._create_apart(spots[0][1])
        if (node := await self._runs(uid)) is not None:
            self._closes = uid
            pod = self._state.pods[self._state.jobs[uid].bound[1, 0]]
            ended = {"status": {"phase": "Failed"}}
            self._world.store.patch(PODS, "default", pod.name, ended, subresource="status")
            self._world.step("trials", f"{pod.name} fails on {node}")
            await asyncio.sleep(_REPLACED_S)
            self._closes = ""
            self._world.store.patch(NODES, "", node, {"spec": {"unschedulable": None}})
        self._world.store.delete(TYJOBS, "default", "apart")

    async def _refused_by_kubelets(self) -> None:
        """Kubelets refuse each pod of a job of high priority, and one of low priority has the only room for it: `vain`
        checks that it is disturbed once at most."""
        spot = _roomiest(self._state)
        if spot is None or self._state.quotas:
            return
        giver = self._create("default", "giver", *spot, priority=1)
        for _ in range(60):
            await asyncio.sleep(0.5)
            if (job := self._state.jobs.get(giver)) is not None and job.stage == Stage.RUNNING:
                break
        self._world.vain.always.add(self._create("default", "taker", *spot))
        await asyncio.sleep(_DISTURBED_S)
        self._world.store.delete(TYJOBS, "default", "taker")
        self._world.store.delete(TYJOBS, "default", "giver")

    async def _raised_minimum(self) -> None:
        """Raise the minimum of a starting job above the room: the job must not keep a part of its quorum for long."""
        spot = _roomiest(self._state)
        if spot is None or self._state.quotas:
            return
        uid = self._create("default", "raised", *spot, workers=2)
        for _ in range(20):
            await asyncio.sleep(0.5)
            job = self._state.jobs.get(uid)
            if job is not None and job.stage == Stage.STARTING:
                self._world.store.patch(TYJOBS, "default", "raised", {"spec": {"minWorkersNum": 2}})
                await asyncio.sleep(_SHORT_S)
                job = self._state.jobs[uid]
                if job.stage == Stage.STARTING and job.times.short_ms:
                    raise Violation(f"a job holds a part of its quorum for {_SHORT_S:.0f} s", job=uid)
                break
        self._world.store.delete(TYJOBS, "default", "raised")

    async def _bad_node(self) -> None:
        """A worker fails twice on its node while another runs on a second one, and a third one has room."""
        cpu = min((spot[1] for spot in with_room(self._state)[-3:]), default=0)
        if len(with_room(self._state)) < 3 or self._state.quotas:
            return
        uid = self._create_apart(cpu)
        first = await self._runs(uid)
        for _ in range(2):
            if first is None:
                break  # the leader, or a pod of another owner, has taken the room
            pod = self._state.pods[self._state.jobs[uid].bound[1, 0]]
            ended = {"status": {"phase": "Failed"}}
            self._world.store.patch(PODS, "default", pod.name, ended, subresource="status")
            self._world.step("trials", f"{pod.name} fails on {pod.node}")
            await self._runs(uid, beside=pod.uid)
        self._world.store.delete(TYJOBS, "default", "apart")

    async def _runs(self, uid: str, *, beside: str = "") -> str | None:
        """Wait until both workers run, the first one with another pod; returns its node, None if that takes long."""
        for _ in range(200):
            await asyncio.sleep(0.5)
            job = self._state.jobs.get(uid)
            if job is not None and job.quorum_ready and job.bound.get((1, 0), beside) != beside:
                return job.placements[1, 0]
        return None

    async def _refused_namespace(self) -> None:
        """A job whose pods are refused, and a job of another namespace, need the same room."""
        for _ in range(2):  # differing clocks make back-offs longer and shorter
            await asyncio.sleep(2 * CLOCK_BOUND_MS / 1000)  # all are within the bound; then the log's time is too
            for process in self._world.processes:
                process.clock.skew_ms = 0
        spot = _roomiest(self._state)
        if spot is None or self._state.quotas:  # a quota may keep either job waiting
            return
        self._world.refusals.set(TEAM)
        uid = self._create(TEAM, "refused", *spot)
        other = await self._look_on(uid, spot)
        self._world.refusals.set("")
        if other:
            self._world.store.delete(TYJOBS, "default", "other")
            await self._comes_again(uid, spot)
        self._world.store.delete(TYJOBS, TEAM, "refused")

    @property
    def _state(self) -> State:
        return self._world.oracle.state

    def _create(self, namespace: str, name: str, node: str, cpu: int, *, workers: int = 0, priority: int = 10) -> str:
        """Create a job whose leader needs all the room of a node and whose workers find none there; returns its UID.
        With workers it never runs."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
        template: Object = {"spec": {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}}
        sets = [{"name": "w", "counts": workers, "template": template}] if workers else []
        if workers:
            notes = {"sandbox.arranger.dev/start-seconds": "100000"}
            template = {"metadata": {"annotations": notes}, **template}
        body: Object = {
            "apiVersion": "arranger.dev/v1",
            "kind": "TYJob",
            "metadata": {"name": name},
            "spec": {
                "priority": priority,
                "leader": {"name": "learner", "template": template},
                "workerSets": sets,
                "minWorkersNum": 0,
            },
        }
        stored = self._world.store.create(TYJOBS, namespace, body).stored
        self._world.user.names[stored.uid] = name
        self._world.step("refusals", f"creates {name} [{stored.uid}] for {cpu} cpu of {node}")
        return stored.uid

    def _create_apart(self, cpu: int) -> str:
        """Create a job of two workers that are on different nodes because of their host port; returns its UID."""
        asked = {"cpu": str(cpu)}
        container = {"name": "c", "image": "i", "resources": {"requests": asked, "limits": asked}}
        apart = {**container, "ports": [{"containerPort": 7777, "hostPort": 7777}]}
        leader = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "0"}}}
        spec = {
            "priority": 10,
            "leader": {"name": "learner", "template": {"spec": {"containers": [leader]}}},
            "workerSets": [
                {"name": "w", "counts": 2, "minCount": 2, "restart": {"limit": 9},
                 "template": {"spec": {"containers": [apart], "restartPolicy": "Never"}}},
            ],
        }  # fmt: skip
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": "apart"}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self._world.user.names[stored.uid] = "apart"
        return stored.uid

    async def _look_on(self, uid: str, spot: tuple[str, int]) -> str:
        """Check that the refused job doesn't keep nodes for long, retries less and less often, and that the other job
        runs. Returns the UID of that job, empty if another pod took the room first."""
        held_s, other, began_s = 0.0, "", self._world.loop.time()
        while (passed_s := self._world.loop.time() - began_s) < _TRIAL_S:
            await asyncio.sleep(0.5)
            job = self._state.jobs.get(uid)
            held_s = held_s + 0.5 if job is not None and job.placements and job.slots.refused_ms else 0.0
            if held_s > _HOLDS_S:
                raise Violation(f"a job whose pods are refused holds nodes for {held_s} s", job=uid)
            waits = job is not None and job.back_offs.attempt.times and job.waits is not None
            if not other and waits and _free(self._state, spot[0]) < spot[1]:
                return ""  # another job took the room during the back-off
            if passed_s > _OTHER_COMES_S and not other:
                if job is None or not job.back_offs.attempt.times:
                    return ""
                other = self._create("default", "other", *spot)
        if any(spot[0] == of.node for known in self._state.reservations.values() for of in known.decided.pods):
            return ""  # the room was reserved during the back-off
        found = self._state.jobs.get(other)
        if found is None or found.stage != Stage.RUNNING:
            if found is not None and of_quota(found):
                return ""  # the room that the refused job gave up is left for a guarantee of another queue
            if not self._state.jobs[uid].placements and _free(self._state, spot[0]) < spot[1]:
                return ""
            raise Violation("a job that fits doesn't start beside one whose pods are refused", job=other)
        job = self._state.jobs[uid]
        if job.back_offs.attempt.times < 2 or job.back_offs.attempt.until_ms == 0:
            raise Violation(
                f"a refused job doesn't come again, or with no longer back-off: {job.back_offs.attempt}", job=uid
            )
        return other

    async def _comes_again(self, uid: str, spot: tuple[str, int]) -> None:
        deadline_s = self._world.loop.time() + _COMES_AGAIN_S
        while self._state.jobs[uid].stage != Stage.RUNNING:
            await asyncio.sleep(1.0)
            if self._world.loop.time() > deadline_s:
                if _free(self._state, spot[0]) < spot[1]:
                    return  # others took the room during its back-off
                raise Violation("a job whose pods are no longer refused doesn't start", job=uid)


def _roomiest(state: State) -> tuple[str, int] | None:
    """A healthy node with the most free whole cpus, and their number; None if no node has any."""
    return max(with_room(state), key=lambda spot: (spot[1], spot[0]), default=None)


def with_room(state: State) -> list[tuple[str, int]]:
    """The healthy nodes with free whole cpus, and their number, in ascending order of that."""
    nodes, found = state.nodes, []
    for name, row in nodes.rows.items():
        facts = nodes.facts[row] if nodes.has(name) else None
        if facts is not None and facts.ready and not facts.cordoned and not facts.taints:
            pods_used, pods = nodes.amounts(row).get("pods", (0, 0))
            if pods_used < pods and _free(state, name) > 0:
                found.append((_free(state, name), name))
    return [(name, cpu) for cpu, name in sorted(found)]


def _free(state: State, node: str) -> int:
    """The free whole cpus of a node; 0 for a deleted node."""
    row = state.nodes.rows.get(node)
    used, there = state.nodes.amounts(row).get("cpu", (0, 0)) if row is not None else (0, 0)
    return (there - used) // 1000
