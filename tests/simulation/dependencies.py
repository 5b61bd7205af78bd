"""Jobs of the simulated world that wait for others: for jobs that exist, come later or never, and for each other."""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import TYJOBS, ApiError, Object
from arranger.model.job import OnFailure
from arranger.projections.jobs.records import JobRecord
from tests.simulation.forecasts import IN_VAIN
from tests.simulation.rogue import Rogue

if TYPE_CHECKING:
    from tests.simulation.world import World

_PACE_S = 6.0


class Dependencies:
    """Lets jobs wait for others, edits that, and decides too early on their nodes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} dependencies")
        self._comes = chance.random() < 0.4 or world.faults.often(IN_VAIN)

    def draw(self, names: list[str]) -> dict[str, Any]:
        """A part of a new job's spec; empty for a job that waits for nobody."""
        chosen = self.choose(names)
        return {"after": chosen} if chosen else {}

    def choose(self, names: list[str]) -> list[dict[str, Any]]:
        """For whom a job waits; empty for nobody."""
        if not self._comes or self._chance.random() < 0.6:
            return []
        self._world.faults.hit("a job waits for others")
        chosen = self._chance.sample(names, min(self._chance.choice((1, 1, 2)), len(names)))
        meanings = ({}, {"onFailure": "Fail"}, {"onFailure": "Ignore"})
        return [{"name": name, **self._chance.choice(meanings)} for name in chosen]

    async def run(self) -> None:
        """Edit for whom a job waits, or decide too early on its nodes, until the faults stop."""
        rogue = Rogue(self._world, self._chance)
        while self._comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            if self._chance.random() < 0.3:
                with suppress(ApiError):
                    self._edit()
            elif not self._world.log_away and self._world.home.index is not None:
                await rogue.too_early()

    def _edit(self) -> None:
        found = self._world.store.collection(TYJOBS).objects
        waiting = [key for key in sorted(found) if found[key].object["spec"].get("after")]
        if waiting:
            namespace, name = self._chance.choice(waiting)
            others = [other for home, other in sorted(found) if home == namespace and other != name]
            self._world.store.patch(TYJOBS, namespace, name, {"spec": {"after": self.choose(others)}})
            self._world.faults.hit("user edits for whom a job waits")
            self._world.step("dependencies", f"edits for whom {name} waits")

    def waits_rightly(self, job: JobRecord) -> bool:
        """Whether one of the jobs that a job waits for hasn't ended, or isn't there, according to the store alone."""
        for of in job.spec.unmet if job.spec is not None else ():
            stage = _stage(self._world, job.seen.namespace, of.name)
            if stage != "Succeeded" and not (stage == "Failed" and of.on_failure == OnFailure.IGNORE):
                return stage != "Failed"
        return False


def _stage(world: "World", namespace: str, name: str) -> str:
    stored = world.store.collection(TYJOBS).objects.get((namespace, name))
    status: Object = (stored.object.get("status") if stored is not None else None) or {}
    return str(status.get("stage", ""))
