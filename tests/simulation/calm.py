"""Calm worlds, in which every expectation comes true: no fault happens, no node changes, and each job ends before it is
expected to. Small jobs come without end, and large ones need most of the nodes. So every reservation with a known start
must be kept (`promises`). In those that are about limits, the large ones need most of what a queue may use instead.
"""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import TYJOBS, ApiError
from arranger.model.job import ENDED
from arranger.sandbox.nodes import NodeTemplate
from tests.simulation.faults import LIMITED

if TYPE_CHECKING:
    from tests.simulation.world import World

#: In a run that is about this, the world is calm.
CALM = "calm"
NODES = [NodeTemplate(f"n{number}", cpu="4", pods=12) for number in range(4)]
_SMALL = tuple(f"small{number}" for number in range(8))
_LARGE = ("large0", "large1")
_PACE_S = 1.0
#: How long the pods of small jobs run, in seconds: some for a short time, so that they may go before a large job.
_SMALL_RUN_S, _LARGE_RUN_S = (2, 2, 4, 30, 45), (5, 15)
#: How much longer a job is expected to run, in seconds: it has its nodes before its pods run, and after they have
#: ended, until that is seen.
_MARGIN_S = 6
#: The part of the small jobs that have further workers, which they don't need in order to run or to succeed.
_GROWS = 0.4


class CalmUser:
    """Creates the jobs of a calm world, and deletes those that have ended, until the run has had its steps."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} calm")
        self._growth = random.Random(f"{world.seed} growth")
        self._limited = world.faults.often(LIMITED)
        self.names: dict[str, str] = {}

    async def run(self) -> None:
        """Act until the run has had its steps."""
        while self._world.steps < self._world.limit:
            jobs = self._world.store.collection(TYJOBS).objects
            name = self._chance.choice((*_SMALL, *_LARGE))
            with suppress(ApiError):
                if ("default", name) not in jobs:
                    self._create(name)
                elif (jobs["default", name].object.get("status") or {}).get("stage") in ENDED:
                    self._world.store.delete(TYJOBS, "default", name)
                    self._world.step("user", f"deletes {name}")
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))

    def _create(self, name: str) -> None:
        chance, large = self._chance, name in _LARGE
        count, cpu = (chance.choice((3, 4)), "4") if large else (chance.choice((1, 1, 2)), chance.choice("12"))
        if large and self._limited:
            cpu = "2"  # there are always nodes for it
        run_s = chance.choice(_LARGE_RUN_S if large else _SMALL_RUN_S)
        requests = {"cpu": cpu}
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        notes = {"sandbox.arranger.dev/run-seconds": str(run_s)}
        told = {"expectedRuntimeSeconds": run_s + _MARGIN_S} if large or chance.random() < 0.9 else {}
        template = {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
        sets = [{"name": "w", "counts": count, "minCount": count, "template": template}]
        if not large and self._growth.random() < _GROWS:
            sets.append({"name": "more", "counts": 2, "template": template})
        spec: dict[str, Any] = {
            "minWorkersNum": count,
            "workerSets": sets,
            "successPolicy": {"type": "Sets", "sets": ["w"]},
            **told,
        }
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self.names[stored.uid] = name
        self._world.step("user", f"creates {name} [{stored.uid}]: {count} of {cpu} for {run_s} s")


def calm_down(world: "World") -> None:
    """Let no fault happen in a world that hasn't begun."""
    world.faults.on = False
    world.skews_ms = dict.fromkeys(world.skews_ms, 0)
    world.quotas.comes = world.limit_ranges.comes = world.room.crowded = world.room.forges = False
    world.queues.calm_down()
