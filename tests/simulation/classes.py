"""PriorityClasses of the simulated world: they appear and are deleted, and come again with another value."""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from arranger.kube.cluster import PRIORITY_CLASSES, ApiError

if TYPE_CHECKING:
    from tests.simulation.world import World

_NAMES = ("urgent", "cheap")
_PACE_S = 10.0


class Classes:
    """Creates and deletes classes; at the end all exist, so that no job waits for one."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} classes")
        self._comes = chance.random() < 0.4

    def choose(self) -> str:
        """The class of a new job; empty for none."""
        return self._chance.choice(_NAMES) if self._comes and self._chance.random() < 0.3 else ""

    async def run(self) -> None:
        """Make one change after the other until the faults stop."""
        while self._comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            with suppress(ApiError):
                self._change(self._chance.choice(_NAMES))

    def end(self) -> None:
        for name in _NAMES:
            if self._comes and ("", name) not in self._world.store.collection(PRIORITY_CLASSES).objects:
                self._change(name)

    def _change(self, name: str) -> None:
        store = self._world.store
        if ("", name) in store.collection(PRIORITY_CLASSES).objects:
            store.delete(PRIORITY_CLASSES, "", name)
            self._did("a priority class goes", f"priority class {name} goes")
        else:
            value = self._chance.choice((-5, 0, 3, 1000))
            store.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})
            self._did("a priority class comes", f"priority class {name} is {value}")

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("classes", what)
