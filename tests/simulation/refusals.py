"""Pod security refuses every pod of a whole namespace for minutes: during the faults, and in the trials afterwards."""

import asyncio
import random
from typing import TYPE_CHECKING

from arranger.kube.cluster import ApiError
from tests.simulation.denials import TEAM

if TYPE_CHECKING:
    from tests.simulation.world import World


class Refusals:
    """Sets and lifts the refusal of a namespace."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} refusals")
        self._refused = ""
        #: Whether this run has this fault.
        self._comes = self._chance.random() < 0.4

    async def judge(self, what: str, namespace: str) -> None:
        """Called before an effect; raises the API server's refusal, if any."""
        if what == "create pods" and namespace == self._refused:
            self._world.faults.hit("a whole namespace is refused")
            raise ApiError(403, "Forbidden", 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation')

    async def run(self) -> None:
        """Set one refusal after the other, until the faults stop."""
        while self._comes and self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / 40.0))
            if not self._world.faults.on:
                return
            self.set(self._chance.choice((TEAM, "default")))
            lasts_s = self._chance.choice((20.0, 60.0, 300.0)) * self._chance.uniform(0.5, 1.0)
            while lasts_s > 0 and self._world.faults.on:
                await asyncio.sleep(1.0)
                lasts_s -= 1.0
            self.set("")

    def set(self, namespace: str) -> None:
        """Refuse every pod of this namespace alone; for an empty name refuse none."""
        self._refused = namespace
        self._world.step("refusals", f"every pod of {namespace} is refused" if namespace else "no namespace is refused")
