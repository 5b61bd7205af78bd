"""Jobs compete for room: some worlds are crowded with jobs of different priorities, most of them with surplus workers.
While a job waits for the room that others give it, it is disturbed in every way: jobs and nodes change and go, pods
hang, and the log is lost.
"""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import QUEUES, TYJOBS, ApiError, Object
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.status import ApiRefusal
from tests.simulation.queues import queue
from tests.simulation.rogue import Rogue

if TYPE_CHECKING:
    from tests.simulation.world import World

_NAMES = tuple(f"crowd{number}" for number in range(5))
#: In a run that is about this, jobs come and compete in any case, and often.
CROWD = "preempted: priority"
#: Runs about jobs of two sets whose quorums may be any of their workers, beside pods that need most of a node.
TWO_SETS = "two sets"
#: How often it is looked whether a job awaits room, in seconds, and how probably one is disturbed then.
_LOOKS_S, _DISTURBED = 0.2, 0.05
#: How often a second writer looks whether a cycle would take room now.
_FORGED_S = 1.0
#: Two queues of equal weight that nothing limits. First jobs of one come and go, and it gets more than its share; then
#: those of the other, and so on. A turn lasts this long, in seconds. The jobs of one keep their room for a while.
_PAIR, _TURN_S, _KEPT_S = ("left", "right"), (20.0, 60.0), 8
#: Pods that hang do so for this long, in seconds: some beyond the bound, which ends 90 s after the cycle.
_HANGS_S = (5.0, 40.0, 160.0)
DELETED = "a job that awaits room is deleted"
SUSPENDED = "a job that awaits room is suspended"
EDITED = "a job that awaits room is edited"
VICTIM = "a job that gave room is deleted while its pods leave"
CLOSED = "a node closes while its room is awaited"
GONE = "a node is deleted while its room is awaited"
HANGS = "a pod that gives room hangs"


class Room:
    """Brings jobs that compete, and disturbs those that wait for room."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} room")
        self.crowded = self._chance.random() < 0.6 or world.faults.often(CROWD)
        self._hangs = self._chance.choice((0.0, 0.1, 0.4))
        self._pace_s = 0.5 if world.faults.often(CROWD) else 1.2
        self._disturbs = self._chance.random() < 0.8
        self.forges = self._chance.random() < 0.5
        self._turn, self._turn_ends_s = 0, 0.0
        self._sets = random.Random(f"{world.seed} two sets")
        self._two_sets = world.faults.often(TWO_SETS)

    def draw(self) -> dict[str, Any]:
        """A part of a new job's spec."""
        found: dict[str, Any] = {"preemptible": False} if self._chance.random() < 0.15 else {}
        return found | ({"expectedRuntimeSeconds": 30} if self._chance.random() < 0.1 else {})

    async def hang(self, pod: str) -> None:
        """The kubelet of a pod that gives room doesn't end it for a while, if it likes."""
        if not self._of_victim(pod) or self._chance.random() >= self._hangs:
            return
        self._world.step("room", f"pod {pod} hangs")
        self._world.faults.hit(HANGS)
        until_s = self._world.loop.time() + self._chance.choice(_HANGS_S)
        while self._world.faults.on and self._world.loop.time() < until_s:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)

    def _of_victim(self, pod: str) -> bool:
        return any(pod in of.pods for of in self._world.room_record.awaited.values())

    async def forge(self) -> None:
        """Let a second writer decide on too little room now and then, until the faults stop."""
        rogue = Rogue(self._world, self._chance)
        while self.forges and self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / _FORGED_S))
            if self._world.faults.on and not self._world.log_away and self._world.home.index is not None:
                await rogue.too_little_room()

    # --- a crowd -------------------------------------------------------------------------------------------

    async def crowd(self) -> None:
        """Create jobs that compete, change and delete them, until the faults stop."""
        chance, paired = self._chance, self._world.queues.comes
        for name in _PAIR if self.crowded and paired else ():
            kept_s = _KEPT_S if name == _PAIR[1] else 0
            self._world.store.create(QUEUES, "", queue(name, {"weight": 1, "minRuntimeSeconds": kept_s}))
        while self.crowded and self._world.faults.on:
            await asyncio.sleep(chance.expovariate(1 / self._pace_s))
            of = self._whose_turn() if paired and chance.random() < 0.8 else ""
            name = f"{of}{chance.randrange(4)}" if of else chance.choice(_NAMES)
            jobs = self._world.store.collection(TYJOBS).objects
            with suppress(ApiError, ApiRefusal):
                if ("default", name) not in jobs:
                    self._create(name, {"queue": of} if of else self._world.queues.draw())
                elif chance.random() < 0.3:
                    self._patch(name, {"priority": chance.randrange(1, 11)}, "user edits priority")
                elif chance.random() < 0.4 or "stage" not in jobs["default", name].object.get("status", {}):
                    continue
                else:
                    self._world.store.delete(TYJOBS, "default", name)
                    self._did("user deletes a job", f"deletes {name}")

    def _create(self, name: str, of_queue: dict[str, Any]) -> None:
        chance = self._chance
        count, requests = chance.randrange(1, 6), {"cpu": str(chance.choice((1, 1, 2, 3)))}
        if chance.random() < 0.15:
            requests["nvidia.com/gpu"] = "1"
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        template: Object = {"spec": {"containers": [container]}}
        if chance.random() < 0.3:
            notes = {"sandbox.arranger.dev/run-seconds": f"{chance.uniform(10, 90):.1f}"}
            template["metadata"] = {"annotations": notes}
        spec: dict[str, Any] = {
            "priority": chance.randrange(1, 11),
            "minWorkersNum": chance.randrange(1, count + 1),
            "cleanPodPolicy": chance.choice(("Running", "None")),
            "workerSets": [{"name": "w", "counts": count, "template": template}],
            "successPolicy": {"type": "AllWorkers"},
            **of_queue,
            **self.draw(),
            **(self._of_two_sets() if self._two_sets else {}),
        }
        self._world.topologies.bind(spec)
        stored = self._world.store.create(
            TYJOBS,
            "default",
            {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec},
        ).stored
        self._world.user.names[stored.uid] = name
        self._world.step("room", f"creates {name} [{stored.uid}] {spec['minWorkersNum']} of {count}")

    def _of_two_sets(self) -> dict[str, Any]:
        """A part of a job's spec: two sets of small pods with a small quorum, or one large pod."""
        large = self._sets.random() < 0.5
        requests = {"cpu": str(self._sets.choice((4, 6, 8))) if large else "1"}
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        template: Object = {"spec": {"containers": [container]}}
        counts = [1] if large else [self._sets.randrange(2, 6), self._sets.randrange(1, 5)]
        names = zip("wv", counts, strict=False)
        sets = [{"name": name, "counts": count, "template": template} for name, count in names]
        return {"minWorkersNum": 1 if large else self._sets.randrange(1, 4), "workerSets": sets}

    def _whose_turn(self) -> str:
        """The queue of the pair whose jobs come now."""
        if self._world.loop.time() >= self._turn_ends_s:
            self._turn = 1 - self._turn
            self._turn_ends_s = self._world.loop.time() + self._chance.uniform(*_TURN_S)
        return _PAIR[self._turn]

    # --- disturbances --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Disturb one job that waits for room after the other, until the faults stop."""
        acts = (self._delete, self._suspend, self._edit, self._delete_victim, self._close, self._remove, self._lose)
        while self._disturbs and self._world.faults.on:
            await asyncio.sleep(_LOOKS_S)
            awaited = self._world.room_record.awaited
            if awaited and self._world.faults.on and self._chance.random() < _DISTURBED:
                with suppress(ApiError, ApiRefusal):
                    self._chance.choice(acts)(self._chance.choice([*awaited]))

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("room", what)

    def _found(self, uid: str) -> tuple[str, str]:
        """Namespace and name of a TYJob."""
        objects = self._world.store.collection(TYJOBS).objects
        for (namespace, name), stored in sorted(objects.items()):
            if stored.uid == uid:
                return namespace, name
        raise ApiError(404, "NotFound", f"TYJob {uid} is gone")

    def _patch(self, name: str, spec: dict[str, Any], site: str, namespace: str = "default") -> None:
        self._world.store.patch(TYJOBS, namespace, name, {"spec": spec})
        self._did(site, f"edits {name} {spec}")

    def _delete(self, uid: str) -> None:
        namespace, name = self._found(uid)
        propagation = self._chance.choice(("Background", "Foreground"))
        self._world.store.delete(TYJOBS, namespace, name, DeleteOptions(propagation=propagation))
        self._did(DELETED, f"deletes {name}, which awaits room")

    def _suspend(self, uid: str) -> None:
        namespace, name = self._found(uid)
        self._patch(name, {"suspend": True}, SUSPENDED, namespace)

    def _edit(self, uid: str) -> None:
        namespace, name = self._found(uid)
        change = self._chance.choice(({"priority": self._chance.randrange(1, 11)}, {"minWorkersNum": 0}))
        self._patch(name, change, EDITED, namespace)

    def _delete_victim(self, uid: str) -> None:
        victims = self._world.room_record.awaited[uid].event.victims
        if victims:
            namespace, name = self._found(self._chance.choice(victims).job_uid)
            self._world.store.delete(TYJOBS, namespace, name)
            self._did(VICTIM, f"deletes {name}, which gives room")

    def _close(self, uid: str) -> None:
        self._world.machines.close(self._node(uid))
        self._world.faults.hit(CLOSED)

    def _remove(self, uid: str) -> None:
        self._world.machines.remove(self._node(uid))
        self._world.faults.hit(GONE)

    def _node(self, uid: str) -> str:
        return self._chance.choice(sorted(self._world.room_record.awaited[uid].nodes))

    def _lose(self, uid: str) -> None:
        """Lose the log, or its end with the decision."""
        world = self._world
        after = world.room_record.awaited[uid].offset - 1
        if self._chance.random() < 0.5 or world.home.index is None:
            return
        if self._chance.random() < 0.5 and world.home.index.start.offset <= after:
            world.home.lose_tail(after)
            self._did("log lost its tail", f"the log lost what came after {after}")
        else:
            world.elsewhere.leaves()
            world.home.lose_everything()
            world.redis.forget()
            self._did("log emptied", "the log is empty")
