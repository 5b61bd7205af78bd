"""Queues and namespaces of the simulated world: they come, change and go, and some jobs are in unusable queues."""

import asyncio
import random
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml

from arranger.kube.cluster import NAMESPACES, QUEUES, TYJOBS, ApiError
from arranger.kube.crd import queue_crd
from arranger.kube.translate import queue_status_digest
from arranger.model.queue import DEFAULT_QUEUE, QUEUE_ANNOTATION
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import Kind, custom_kind
from arranger.sandbox.status import Refusal
from arranger.scheduling import queues_view
from arranger.workers.queue_status import queue_status
from tests.simulation.rogue import Rogue

if TYPE_CHECKING:
    from tests.simulation.world import World

_NAMES = ("all", "rl", "vision", DEFAULT_QUEUE)
_SPACES = ("default", "team")
#: Fields that change the order of jobs, or which of them are considered.
_OTHERS = {
    "maxWaiting": (1, 2),
    "maxPriority": (0, 3),
    "jobQueuePolicy": ("Priority", "DRF"),
    "userFairness": (True,),
    "deserved": ({"cpu": 2},),
}
_PACE_S = 5.0
_HISTORY = 100


@lru_cache(maxsize=1)
def _kind() -> Kind:
    return custom_kind(yaml.safe_load(queue_crd()))


class Queues:
    """Changes queues and namespaces at random, where the definition of Queues is installed; at the end every queue can
    be used."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} queues")
        self._comes = chance.random() < 0.4
        if self._comes:
            world.store.collections[_kind().key] = Collection(_kind(), _HISTORY)

    @property
    def served(self) -> bool:
        """Whether the API server knows queues."""
        return self._comes

    def draw(self) -> dict[str, Any]:
        """A part of a new job's spec."""
        return {"queue": self._chance.choice(_NAMES)} if self._comes and self._chance.random() < 0.4 else {}

    def labels(self) -> dict[str, Any]:
        """A part of a new job's metadata: its submitter, for some."""
        return {"labels": {"arranger.dev/user": self._chance.choice("ab")}} if self._chance.random() < 0.2 else {}

    async def run(self) -> None:
        """Make one change after the other until the faults stop."""
        chance = self._chance
        rogue = Rogue(self._world, chance)
        acts = (self._change, self._change, self._go, self._annotate, self._move)
        while self._comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            if self._chance.random() < 0.3:
                if not self._world.log_away and self._world.home.index is not None:
                    await chance.choice((rogue.outside_its_queue, rogue.beyond_its_queue))()
                continue
            with suppress(ApiError, Refusal):
                self._chance.choice(acts)()

    def end(self) -> None:
        """Let every job use its queue: all are open, without a parent, and for all namespaces, which name none."""
        store = self._world.store
        for name in _NAMES if self._comes else ():
            if ("", name) in store.collection(QUEUES).objects:
                store.delete(QUEUES, "", name)
            store.create(QUEUES, "", _queue(name, {}))
        for name in _SPACES if self._comes else ():
            if ("", name) in store.collection(NAMESPACES).objects:
                store.patch(NAMESPACES, "", name, {"metadata": {"annotations": {QUEUE_ANNOTATION: None}}})

    def unsettled(self) -> list[tuple[str, str]]:
        """("", the problem): a Queue whose status shows something else than the projection."""
        state, stored = self._world.oracle.state, self._world.store.collection(QUEUES).objects if self._comes else {}
        views = queues_view(state).queues if stored else {}
        found = []
        for (_, name), each in sorted(stored.items()):
            seen, status = state.queues.get(name), each.object.get("status") or {}
            desired = queue_status(views[name], seen.generation) if seen is not None else {}
            if queue_status_digest(status) != queue_status_digest(desired):
                found.append(("", f"the status of queue {name} shows something else"))
        return found

    def _change(self) -> None:
        """Create a queue, or replace its spec by another one, which may have any parent and be closed."""
        store, chance, name = self._world.store, self._chance, self._chance.choice(_NAMES)
        spec: dict[str, Any] = {"weight": chance.randrange(1, 4)}
        if chance.random() < 0.4:
            spec["parent"] = chance.choice([*(of for of in _NAMES if of != name), "missing"])
        if chance.random() < 0.25:
            spec["state"] = "Closed"
        if chance.random() < 0.3:
            rules = ({"names": [chance.choice(_SPACES)]}, {"selector": {"matchLabels": {"of": "a"}}}, {"selector": {}})
            spec["namespaces"] = chance.choice(rules)
        if chance.random() < 0.3:
            spec["capability"] = {"cpu": chance.randrange(1, 9)}
        if chance.random() < 0.2:
            spec["guarantee"] = {"cpu": 1}
        if chance.random() < 0.2:
            spec["maxRunning"] = chance.randrange(3)
        for field, values in _OTHERS.items():
            if chance.random() < 0.2:
                spec[field] = chance.choice(values)
        old = store.collection(QUEUES).objects.get(("", name))
        if old is None:
            store.create(QUEUES, "", _queue(name, spec))
            self._did("a queue comes", f"queue {name} is {spec}")
        else:
            gone = dict.fromkeys(old.object["spec"])
            store.patch(QUEUES, "", name, {"spec": {**gone, **spec}})
            self._did("a queue changes", f"queue {name} is now {spec}")

    def _go(self) -> None:
        name = self._chance.choice(_NAMES)
        self._world.store.delete(QUEUES, "", name)
        self._did("a queue goes", f"queue {name} goes")

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


def _queue(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
