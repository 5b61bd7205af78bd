"""Trials at the end of a run: room that comes by itself or doesn't, and a claim that may still come.

The pods of a job show its end before a decision says so, while another job waits for its room: nobody gives that job
room. And a pod that is being deleted never goes: once its grace period and the bound are over, who waits for its room
takes other room. A claim that isn't there may still come, so a job that names it doesn't fail.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Any

from arranger.events import kinds as k
from arranger.kube.cluster import TYJOBS, Object
from arranger.model.job import ScheduleState, Stage
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from tests.simulation.faults import ENDS, LACKS, STAYS, WITH_CLAIMS
from tests.simulation.invariants import Violation
from tests.simulation.trials import with_room

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The leader of a job that ends runs for this long. The others are there by then.
_RUNS_S = 20.0
_STARTS_WITHIN_S = 15.0
#: Meanwhile a cycle comes.
_DECIDED_AFTER_S = 3.0
#: After a job ended, the longest grace period of its pods and the bound for late kubelets are over within this time.
_LEAVES_WITHIN_S = 60.0
#: The grace period of a pod that never goes (30 s), the bound (60 s), two wrong clocks, and some cycles.
_TAKES_WITHIN_S = 125.0
#: Longer than an infeasible job waits until it fails (`infeasible_grace_s`), beside wrong clocks.
_LACKS_S = 45.0


class Coming:
    """The trials of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        chance, often = random.Random(f"{world.seed} coming"), world.faults.often
        self._ends = chance.random() < 0.5 or often(ENDS)
        self._stays = chance.random() < 0.3 or often(STAYS)
        self._lacks = world.claims.comes and (chance.random() < 0.4 or often(WITH_CLAIMS))
        #: Names of pods that no kubelet ends.
        self._kept: set[str] = set()
        #: The job (UID) on whose stage no decision arrives for a while.
        self._undecided = ""

    async def keep(self, pod: str) -> None:
        """Wait for as long as no kubelet ends this pod."""
        while pod in self._kept:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)

    async def race(self, batch: k.Batch) -> None:
        """Delay a decision on the stage of a job that ends: a cycle comes before it."""
        if any(isinstance(event, k.StageDecided) and event.job_uid == self._undecided for event in batch.events):
            await asyncio.sleep(_DECIDED_AFTER_S)

    async def run(self) -> None:
        """One trial after the other. Raises `Violation`."""
        if self._ends and not self._state.quotas:
            await self._ends_while_another_waits()
        if self._stays and not self._state.quotas:
            await self._stays_while_another_waits()
        if self._lacks and not self._state.quotas:
            await self._lacks_a_claim()

    @property
    def _state(self) -> State:
        return self._world.oracle.state

    async def _ends_while_another_waits(self) -> None:
        """A job has two nodes, one of low priority a third one, and one that waits needs the first node and one of the
        other two. Once the leader on the first one has succeeded, only the third one seems to be lacking for a moment:
        the second one comes by itself."""
        spots = self._spots()[-3:]
        if len(spots) < 3:
            return
        (third, third_cpu), (second, second_cpu), (first, first_cpu) = spots
        led = _template([first], first_cpu, {"sandbox.arranger.dev/run-seconds": str(_RUNS_S)})
        ends = self._create("comes-ends", 10, _template([second], second_cpu), leader=led)
        gives = self._create("comes-gives", 1, _template([third], third_cpu))
        if await self._start(ends, gives):
            waiting = _template([second, third], min(second_cpu, third_cpu))
            self._undecided = ends
            waits = self._create("comes-waits", 10, waiting, leader=_template([first], first_cpu))
            for _ in range(int(2 * (_RUNS_S + _LEAVES_WITHIN_S))):
                await asyncio.sleep(0.5)
                if (job := self._job(waits)) is not None and job.placements:
                    self._world.faults.hit(ENDS)  # each cycle is checked (`room_rules`)
                    break
        self._delete("comes-ends", "comes-gives", "comes-waits")

    async def _stays_while_another_waits(self) -> None:
        """A job is deleted and its pod never goes, one of low priority has another node, and one that waits needs
        either: it doesn't wait for the pod for ever."""
        spots = self._spots()[-2:]
        if len(spots) < 2:
            return
        (second, second_cpu), (first, first_cpu) = spots
        stays = self._create("comes-stays", 10, _template([first], first_cpu))
        gives = self._create("comes-gives", 1, _template([second], second_cpu))
        if await self._start(stays, gives):
            pods = [self._state.pods[uid].name for uid in self._state.jobs[stays].bound.values()]
            self._kept.update(pods)
            self._delete("comes-stays")
            self._world.faults.hit(STAYS)
            waits = self._create("comes-waits", 10, _template([first, second], min(first_cpu, second_cpu)))
            for _ in range(int(2 * _TAKES_WITHIN_S)):
                await asyncio.sleep(0.5)
                job, other = self._job(waits), self._job(gives)
                if (
                    other is None
                    or not other.placements
                    or other.slots.hosts
                    or self._state.reservations.keys() - {waits}
                ):
                    break  # somebody has its room, or is to have it
            else:
                if job is not None and not job.placements:
                    raise Violation(f"a job waits {_TAKES_WITHIN_S:.0f} s for a pod that hangs", job=waits)
            self._kept.difference_update(pods)
        self._delete("comes-gives", "comes-waits")

    def _spots(self) -> list[tuple[str, int]]:
        """As `with_room`, without the nodes of jobs, which might give room too."""
        used = {node for job in self._state.jobs.values() for node in job.placements.values()}
        return [spot for spot in with_room(self._state) if spot[0] not in used]

    async def _lacks_a_claim(self) -> None:
        """A job names a claim that isn't there, for longer than an infeasible job waits: the claim may still come."""
        template = _template([each.name for each in self._world.machines.templates], 0)
        template["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "comes-late"}}]
        uid = self._create("comes-claim", 10, template)
        self._world.faults.hit(LACKS)
        await asyncio.sleep(_LACKS_S)
        job = self._job(uid)
        if job is not None and (job.schedule_state == ScheduleState.FAILED or job.placements):
            raise Violation(f"a job whose claim may still come is {job.schedule_state}", job=uid)
        self._delete("comes-claim")

    async def _start(self, *uids: str) -> bool:
        """Whether these jobs run soon."""
        for _ in range(int(2 * _STARTS_WITHIN_S)):
            await asyncio.sleep(0.5)
            jobs = [self._job(uid) for uid in uids]
            if all(job is not None and job.stage == Stage.RUNNING for job in jobs):
                return True
        return False  # others have taken the room

    def _job(self, uid: str) -> JobRecord | None:
        return self._state.jobs.get(uid)

    def _create(self, name: str, priority: int, worker: Object, *, leader: Object | None = None) -> str:
        """Create a job of one worker; returns its UID."""
        spec: dict[str, Any] = {
            "priority": priority,
            "workerSets": [{"name": "w", "counts": 1, "minCount": 1, "template": worker}],
        }
        if leader is not None:
            spec["leader"] = {"name": "learner", "template": leader}
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self._world.user.names[stored.uid] = name
        self._world.step("coming", f"creates {name} [{stored.uid}]")
        return stored.uid

    def _delete(self, *names: str) -> None:
        for name in names:
            if ("default", name) in self._world.store.collection(TYJOBS).objects:
                self._world.store.delete(TYJOBS, "default", name)
                self._world.step("coming", f"deletes {name}")


def _template(nodes: list[str], cpu: int, notes: dict[str, str] | None = None) -> Object:
    """The template of a pod that needs so many cpus of one of these nodes."""
    asked = {"cpu": str(cpu)}
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    container = {"name": "c", "image": "i", "resources": {"requests": asked, "limits": asked}}
    return {"metadata": {"annotations": notes or {}}, "spec": {"containers": [container], "affinity": affinity}}
