"""Queues and namespaces of the simulated world: they come, change and go, also under jobs that run, and some jobs are
in unusable queues."""

import asyncio
import random
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import NAMESPACES, QUEUES, TYJOBS, ApiError
from arranger.kube.translate import queue_status_digest
from arranger.model.queue import DEFAULT_QUEUE, QUEUE_ANNOTATION
from arranger.projections.queues.use import JOBS
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import ServedKind, custom_kinds
from arranger.sandbox.status import ApiRefusal
from arranger.scheduling import queues_view
from arranger.workers.applying.statuses.queue_status import queue_status
from tests.servers import QUEUE_CRD, definition_of
from tests.simulation.faults import LIMITED, SUBMITTERS, WITHIN_DESERVED
from tests.simulation.rogue import Rogue

if TYPE_CHECKING:
    from tests.simulation.world import World

_NAMES = ("all", "rl", "vision", DEFAULT_QUEUE)
#: The queues that keep jobs from borrowing, in which most jobs are.
_KEEPING = (DEFAULT_QUEUE, DEFAULT_QUEUE, "all", "rl")
_SPACES = ("default", "team")
#: Field → how probable it is in a queue.
_ODDS = {
    "parent": 0.4,
    "state": 0.25,
    "namespaces": 0.3,
    "capability": 0.3,
    "guarantee": 0.2,
    "deserved": 0.2,
    "maxRunning": 0.2,
    "maxWaiting": 0.2,
    "maxPriority": 0.2,
    "jobQueuePolicy": 0.2,
    "userFairness": 0.2,
    "reclaimable": 0.15,
    "minRuntimeSeconds": 0.2,
    "preemption": 0.2,
}
_OF_AUTOSCALERS = {"provisioning": 0.3, "scheduledFailed": 0.1}
_VALUES: dict[str, tuple[Any, ...]] = {
    "state": ("Closed",),
    "namespaces": (
        *({"names": [name]} for name in _SPACES),
        {"selector": {"matchLabels": {"of": "a"}}},
        {"selector": {}},
    ),
    "guarantee": ({"cpu": 1},),
    "deserved": ({"cpu": 2},),
    "maxRunning": (0, 1, 2),
    "maxWaiting": (1, 2),
    "maxPriority": (0, 3),
    "jobQueuePolicy": ("Priority", "DRF"),
    "userFairness": (True,),
    "reclaimable": (False,),
    "minRuntimeSeconds": (5, 60),
    "provisioning": ("None", "Request", "Pending"),
    "scheduledFailed": ("AfterGrace", "Never"),
    "preemption": ({"surplus": "Never"}, {"priority": "Never"}, {"reclaim": "Never"}),
}
#: In a run that is about this, there are queues in any case, and most forbid a way in which room may be taken.
MODES = "preempted: reclaim"
#: Runs about one of these have queues.
_ABOUT = (MODES, LIMITED, SUBMITTERS, WITHIN_DESERVED)
_PACE_S = 5.0
_HISTORY = 100
#: What the jobs of a calm world may use of its nodes, in cpu: as much as a large one needs.
_LIMIT = 8


@lru_cache(maxsize=1)
def _kind() -> ServedKind:
    return custom_kinds(definition_of(QUEUE_CRD))[0]


class Queues:
    """Changes queues and namespaces at random, where the definition of Queues is installed. At the end of some runs the
    queues first stay as they are, and jobs wait for them; then every queue can be used."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} queues")
        self._modes = world.faults.often(MODES)
        self.comes = chance.random() < 0.5 or any(map(world.faults.often, _ABOUT))
        self._calm = False
        self._stays = chance.random() < 0.5
        self._odds = _ODDS | (_OF_AUTOSCALERS if world.autoscaler.comes else {})
        #: What concerns jobs that can't be preempted, in some runs.
        self._kept = random.Random(f"{world.seed} non-preemptible")
        self._keeps = self._kept.random() < 0.25 or world.faults.often(WITHIN_DESERVED)
        #: Limits for which jobs wait, in some runs.
        self._tight = random.Random(f"{world.seed} limits")
        self._tightens = self._tight.random() < 0.25 or world.faults.often(LIMITED)
        #: In some runs all jobs name one of two submitters, who take turns in every queue.
        self._users = random.Random(f"{world.seed} submitters")
        self._in_turn = self._users.random() < 0.1 or world.faults.often(SUBMITTERS)
        self._open = False
        if self.comes:
            world.store.collections[_kind().key] = Collection([_kind()], _HISTORY)

    def calm_down(self) -> None:
        """Let no queue change before the end. In a run about limits there is one, for which large jobs wait."""
        self._calm = True
        self.comes = self._world.faults.often(LIMITED)
        if self.comes:
            self._world.store.create(QUEUES, "", queue(DEFAULT_QUEUE, {"capability": {"cpu": _LIMIT}}))

    @property
    def served(self) -> bool:
        """Whether the API server knows queues."""
        return self.comes

    def draw(self) -> dict[str, Any]:
        """A part of a new job's spec."""
        found = {"queue": self._chance.choice(_NAMES)} if self.comes and self._chance.random() < 0.4 else {}
        return found | ({"preemptible": False} if self._keeps and self._kept.random() < 0.5 else {})

    def labels(self) -> dict[str, Any]:
        """A part of a new job's metadata: its submitter, for some."""
        if self._in_turn:
            return {"labels": {"arranger.dev/user": self._users.choice("ab")}}
        return {"labels": {"arranger.dev/user": self._chance.choice("ab")}} if self._chance.random() < 0.2 else {}

    async def run(self) -> None:
        """Make one change after the other until the faults stop."""
        chance = self._chance
        rogue = Rogue(self._world, chance)
        acts = (self._change, self._change, self._edit, self._edit, self._go, self._again, self._annotate, self._move)
        while self.comes and not self._calm:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            if self._chance.random() < 0.3:
                if not self._world.log_away and self._world.home.index is not None:
                    await chance.choice((rogue.outside_its_queue, rogue.beyond_its_queue))()
                continue
            with suppress(ApiError, ApiRefusal):
                if self._tightens and self._tight.random() < 0.5:
                    self._tighten()
                    continue
                (self._kept.choice((self._keep, self._let_go)) if self._is_about_kept() else chance.choice(acts))()

    def end(self) -> None:
        """Let every job use its queue, in some runs only after all has settled (`open`)."""
        if not self._stays:
            self.open()

    def open(self) -> bool:
        """Let every job use its queue: all are open, without a parent and for all namespaces, which name none. Returns
        whether that is news."""
        store, opens = self._world.store, self.comes and not self._open
        self._open = True
        for name in _NAMES if opens else ():
            if ("", name) in store.collection(QUEUES).objects:
                store.delete(QUEUES, "", name)
            store.create(QUEUES, "", queue(name, {}))
        for name in _SPACES if opens else ():
            if ("", name) in store.collection(NAMESPACES).objects:
                store.patch(NAMESPACES, "", name, {"metadata": {"annotations": {QUEUE_ANNOTATION: None}}})
        return opens

    def unsettled(self) -> list[tuple[str, str]]:
        """("", the problem): a Queue whose status shows something else than the projection. Its past usage is left out:
        with so short a half-life, it has changed before it is written."""
        state, stored = self._world.oracle.state, self._world.store.collection(QUEUES).objects if self.comes else {}
        views = queues_view(state).queues if stored else {}
        found = []
        for (_, name), each in sorted(stored.items()):
            seen, status = state.queues.get(name), each.object.get("status") or {}
            desired = queue_status(views[name], seen.generation) if seen is not None else {}
            if queue_status_digest(status | {"usage": None}) != queue_status_digest(desired | {"usage": None}):
                found.append(("", f"the status of queue {name} shows something else"))
        return found

    def _change(self) -> None:
        """Create a queue, or replace its spec by another one, which may have any parent and be closed."""
        name = self._chance.choice(_NAMES)
        spec: dict[str, Any] = {"weight": self._chance.randrange(1, 4)}
        for field, odds in self._odds.items():
            if self._chance.random() < odds or (self._modes and field == "preemption"):
                spec[field] = self._value(field, name)
        spec |= self._turns()
        old = self._world.store.collection(QUEUES).objects.get(("", name))
        if old is None:
            self._world.store.create(QUEUES, "", queue(name, spec))
            self._did("a queue comes", f"queue {name} is {spec}")
        else:
            self._patch(name, {**dict.fromkeys(old.object["spec"]), **spec})

    def _edit(self) -> None:
        """Change or remove one field of a queue, rather of one whose jobs have nodes."""
        there = sorted(name for _, name in self._world.store.collection(QUEUES).objects)
        used = [name for name in there if self._use(name)]
        if there:
            name = self._chance.choice(used or there)
            field = self._chance.choice(("weight", *self._odds))
            removed = field != "weight" and self._chance.random() < 0.3
            self._patch(name, {field: None if removed else self._value(field, name)})

    def _is_about_kept(self) -> bool:
        return self._keeps and self._kept.random() < 0.5

    def _keep(self) -> None:
        """Let jobs of a queue that can't be preempted use what it deserves, or as much as they like."""
        name, value = self._kept.choice(_KEEPING), self._kept.choice(("WithinDeserved", "WithinDeserved", "MayBorrow"))
        fields = {"deserved": {"cpu": self._kept.randrange(1, 4)}, "nonPreemptible": value}
        if ("", name) in self._world.store.collection(QUEUES).objects:
            self._patch(name, fields)
        else:
            self._world.store.create(QUEUES, "", queue(name, fields))
            self._did("a queue comes", f"queue {name} is {fields}")
        if value == "WithinDeserved":
            self._world.faults.hit(WITHIN_DESERVED)

    def _tighten(self) -> None:
        """Limit a queue in which most jobs are to what a few of them use."""
        name, most = self._tight.choice((DEFAULT_QUEUE, DEFAULT_QUEUE, "rl")), self._tight.randrange(1, 5)
        fields = self._tight.choice(({"capability": {"cpu": most}}, {"maxRunning": most})) | self._turns()
        if ("", name) in self._world.store.collection(QUEUES).objects:
            self._patch(name, {"parent": None, "state": None, **fields})
        else:
            self._world.store.create(QUEUES, "", queue(name, fields))
            self._did("a queue comes", f"queue {name} is {fields}")
        self._world.faults.hit(LIMITED)

    def _turns(self) -> dict[str, Any]:
        """What lets the submitters of a queue take turns, in a run where they do."""
        if self._in_turn:
            self._world.faults.hit(SUBMITTERS)
        return {"userFairness": True} if self._in_turn else {}

    def _let_go(self) -> None:
        """Edit whether a job can be preempted."""
        found = self._world.store.collection(TYJOBS).objects
        if found:
            namespace, name = self._kept.choice(sorted(found))
            value = self._kept.random() < 0.5
            self._world.store.patch(TYJOBS, namespace, name, {"spec": {"preemptible": value}})
            self._did("user edits whether a job can be preempted", f"{name} gets preemptible {value}")

    def _value(self, field: str, name: str) -> Any:
        """Some value of a field of a queue."""
        chance = self._chance
        if field == "weight":
            return chance.randrange(1, 4)
        if field == "parent":
            return chance.choice([*(of for of in _NAMES if of != name), "missing"])
        if field == "capability":
            return chance.choice(({"cpu": chance.randrange(1, 9)}, {"nvidia.com/gpu": chance.randrange(2)}))
        return chance.choice(_VALUES[field])

    def _patch(self, name: str, fields: dict[str, Any]) -> None:
        self._world.store.patch(QUEUES, "", name, {"spec": fields})
        used, cpu = self._use(name), (fields.get("capability") or {}).get("cpu")
        limits = {JOBS: fields.get("maxRunning"), "cpu": None if cpu is None else 1000 * cpu}
        if any(limit is not None and used.get(of, 0) > limit for of, limit in limits.items()):
            self._world.faults.hit("a queue's limit falls below what is used")
        if used and fields.get("state") == "Closed":
            self._world.faults.hit("a queue closes under running jobs")
        self._did("a queue changes", f"queue {name} gets {fields}")

    def _use(self, name: str) -> dict[str, int]:
        """What the jobs of a queue itself use, according to the log."""
        return self._world.oracle.state.queue_use.own.get(name, {})

    def _go(self) -> None:
        name = self._chance.choice(_NAMES)
        used = self._use(name)
        self._world.store.delete(QUEUES, "", name)
        if used:
            self._world.faults.hit("a queue goes under running jobs")
        self._did("a queue goes", f"queue {name} goes")

    def _again(self) -> None:
        """Delete a queue and create another one of its name at once, which no watch need show apart."""
        name = self._chance.choice(_NAMES)
        self._world.store.delete(QUEUES, "", name)
        self._world.store.create(QUEUES, "", queue(name, {"weight": self._chance.randrange(1, 4)}))
        self._did("a queue's name is used again at once", f"queue {name} goes and comes")

    def _annotate(self) -> None:
        """Change the label of a namespace, and its queue."""
        chance, name = self._chance, self._chance.choice(_SPACES)
        queue = chance.choice((None, None, *_NAMES, "missing"))
        metadata = {"labels": {"of": chance.choice((None, "a", "b"))}, "annotations": {QUEUE_ANNOTATION: queue}}
        self._world.store.patch(NAMESPACES, "", name, {"metadata": metadata})
        self._did("a namespace changes", f"namespace {name} gets {metadata}")

    def _move(self) -> None:
        """Let a job go to another queue, which the API server refuses for some."""
        found = self._world.store.collection(TYJOBS).objects
        if found:
            namespace, name = self._chance.choice(sorted(found))
            queue = self._chance.choice((None, *_NAMES))
            self._world.store.patch(TYJOBS, namespace, name, {"spec": {"queue": queue}})
            self._did("user moves a job to another queue", f"{name} goes to queue {queue}")

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("queues", what)


def queue(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A Queue of this name and spec."""
    return {"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
