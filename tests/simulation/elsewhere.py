"""Another Kubernetes cluster whose processes use the same log: a process of ours is started on it, it responds for a
while at the address of our cluster, or its claim gets into the log. No object of ours may be deleted because of it, and
none of its objects may be taken for ours.
"""

import asyncio
import random
from typing import TYPE_CHECKING

from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.events.fence import CLAIM, Fence
from arranger.kube.cluster import CLUSTER_LOGS, NAMESPACES, NODES, PODS, TYJOBS, Object
from arranger.sandbox.history import Collection
from arranger.sandbox.store import Store
from arranger.workers.log.identity import SYSTEM
from tests.memory_log import MemoryLog
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

#: A log of this length identifies its cluster even after losing its tail.
_KNOWN_AT = 120
#: The slot of a process of the other cluster, beyond our slots.
_SLOT = 9
#: The kinds that are watched: nobody asks for nodes here.
_KINDS = tuple(kind for kind in k.Watched if kind != k.Watched.PROVISIONING)
#: In a run that is about this fault, the other cluster does nothing else.
BREAKS = "another cluster answers, and open watches break"


class Elsewhere:
    """The other cluster and its faults."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} elsewhere")
        self._comes = self._chance.random() < 0.5 or world.faults.often(BREAKS)
        self._pace_s = 5.0 if world.faults.often(BREAKS) else 30.0
        self._seq = 0
        self.store = Store(now=lambda: world.clock.now_ms() / 1000, new_uid=self._uid, history_limit=100)
        self._fill()

    def _uid(self) -> str:
        return f"elsewhere-{self._chance.getrandbits(64):016x}"

    def _fill(self) -> None:
        """Create nodes, a pod and TYJobs with the same names as ours."""
        for kinds in (self._world.store.collection(of).kinds for of in (TYJOBS, CLUSTER_LOGS)):
            self.store.collections[kinds[0].key] = Collection(kinds, 100)
        status = {"allocatable": {"cpu": "64", "pods": "100"}, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in ("n0", "m1"):
            self.store.create(NODES, "", {"metadata": {"name": name}, "status": status})
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {"nodeName": "n0", "containers": [container]}
        self.store.create(PODS, "default", {"metadata": {"name": "job0-learner-0"}, "spec": spec})
        leader = {"name": "learner", "template": {"spec": {"containers": [container]}}}
        for name in ("job0", "job1"):
            job: Object = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}}
            self.store.create(
                TYJOBS, "default", {**job, "spec": {"minWorkersNum": 0, "leader": leader, "workerSets": []}}
            )
            running = {"status": {"stage": "Running", "attempt": 3}}
            self.store.patch(TYJOBS, "default", name, running, subresource="status")

    @property
    def uid(self) -> str:
        """The UID that identifies the other cluster."""
        return self.store.get(NAMESPACES, "", SYSTEM).uid

    @property
    def our_uid(self) -> str:
        """The UID that identifies our cluster."""
        return self._world.store.get(NAMESPACES, "", SYSTEM).uid

    async def run(self) -> None:
        """Cause a fault once in a while, until the faults stop."""
        acts = (self._answers, self._starts, self._claims)
        while self._comes and self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / self._pace_s))
            state = self._world.oracle.state
            known = self._world.home.index is not None and state.cluster and state.offset > _KNOWN_AT
            if self._world.faults.on and known:
                await (self._answers if self._world.faults.often(BREAKS) else self._chance.choice(acts))()

    # --- faults --------------------------------------------------------------------------------------------

    async def _answers(self) -> None:
        """Connect one of our processes to the other cluster. Open watches continue, or break at their next event."""
        world = self._world
        process = self._chance.choice(world.processes) if world.processes else None
        if process is None or process.identity is None or not process.follower.state.cluster:
            return  # a process that hasn't read the log yet would take an emptied one for its own cluster's
        reset = world.faults.often(BREAKS) or self._chance.random() < 0.5
        how = BREAKS if reset else "another cluster answers"
        world.faults.hit(how)
        world.step("elsewhere", f"{process.name}: {how}")
        process.cluster.connect(self.store, reset=reset)
        await asyncio.sleep(self._chance.choice((0.5, 5.0, 30.0)) * self._chance.uniform(0.3, 1.0))
        process.cluster.connect(world.store)
        world.step("elsewhere", f"our cluster answers {process.name} again")

    async def _starts(self) -> None:
        """Start a process on the other cluster under our name, for a while."""
        if any(process.slot == _SLOT for process in self._world.processes):
            return
        self._world.faults.hit("another cluster's process")
        self._world.upgrade.latest_in(_SLOT)
        self._world.launch(_SLOT, ("watcher", "applier"), self._seq + 1)
        self._seq += 1

    def refused(self, process: "SimulatedProcess", problem: BaseException | None) -> bool:
        """Whether a process ends correctly: it was started on another cluster's log, or the other cluster responded to
        a process of ours at its start, which is then restarted."""
        if not isinstance(problem, UsageError):
            return False
        if not process.owner.dead and process in self._world.processes:
            if process.slot == _SLOT:
                self._world.faults.hit("another cluster's process is refused")
            process.crash("refused: the log is another cluster's")
        return True

    async def _claims(self) -> None:
        """Append a claim of the other cluster and its watcher's observations: all of it is void."""
        world = self._world
        if world.log_away:
            return
        kind, state = self._chance.choice(_KINDS), world.oracle.state
        epoch, terms = state.epoch, dict(state.terms)
        log = MemoryLog(world.home)
        claimed = await log.append(
            self._batch(k.WatchClaimed(kind, "elsewhere", self.uid)), epoch=epoch, fence=Fence(kind, CLAIM)
        )
        fence = Fence(kind, claimed.first, "999999")
        gone = [
            k.ObjectGone(k.Watched.POD, claimed.first, pod.namespace, pod.name, pod.uid) for pod in state.pods.values()
        ]
        if kind == k.Watched.POD and self._chance.random() < 0.5:
            await log.append(self._batch(*gone, k.ListingEnded(kind, claimed.first, "9")), epoch=epoch, fence=fence)
        world.faults.hit("another cluster's claim")
        world.step("elsewhere", f"claims {kind} under term {claimed.first}")
        if state.terms != terms or state.cluster != self.our_uid:
            world.fail(Violation(f"the claim of another cluster counts: {state.terms} of {state.cluster}"), None)

    def _batch(self, *events: k.Event) -> k.Batch:
        self._seq += 1
        return k.Batch("elsewhere", self._seq, self._world.oracle.state.time_ms, events)

    def leaves(self) -> None:
        """Remove the other cluster, and every process started on it."""
        for process in [each for each in self._world.processes if each.slot == _SLOT]:
            process.crash("the other cluster leaves")

    # --- checks --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the log is ours and the projection has no object of the other cluster."""
        state = self._world.oracle.state
        if state.cluster not in ("", self.our_uid):
            raise Violation(f"the log is the cluster's {state.cluster}")
        theirs = [uid for uid in (*state.pods, *state.jobs, *state.nodes.uids) if uid.startswith("elsewhere-")]
        if theirs:
            raise Violation(f"objects of another cluster are in the projection: {theirs}")
