"""Jobs of thousands of pods in the whole system, with faults and far fewer steps per pod than small jobs have."""

import asyncio
from typing import Any

import pytest

from arranger.kube.cluster import PODS, TYJOBS
from arranger.model.job import Stage
from arranger.sandbox.nodes import NodeTemplate
from tests.simulation.actors import Machines
from tests.simulation.world import World

#: Pods that one node holds.
_A_NODE = 250


class _OneJob:
    """A user who creates one job with many workers."""

    def __init__(self, world: World, workers: int) -> None:
        self._world = world
        self._workers = workers
        self.names: dict[str, str] = {}

    async def run(self) -> None:
        requests = {"cpu": "100m"}
        template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}}
        spec = {
            "minWorkersNum": self._workers,
            "leader": {"name": "learner", "template": template},
            "workerSets": [{"name": "actors", "counts": self._workers, "template": template}],
        }
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": "large"}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self.names[stored.uid] = "large"
        self._world.step("user", "creates large")
        await asyncio.Event().wait()


def _runs_whole(world: World, workers: int) -> None:
    """Settle only once the job runs: a back-off is not a good end here."""
    unsettled = world.checks.unsettled

    def until_it_runs() -> list[tuple[str, str]]:
        jobs = list(world.oracle.state.jobs.values())  # none at the beginning of an epoch
        runs = [(job.stage, len(job.bound)) == (Stage.RUNNING, workers + 1) for job in jobs] == [True]
        told = [f"it is {job.stage} with {len(job.bound)} pods" for job in jobs]
        return unsettled() or ([] if runs else [("", f"it doesn't run: {told}")])

    world.checks.unsettled = until_it_runs  # type: ignore[method-assign]


def _world_of(workers: int, *, faults: bool) -> World:
    world = World(1)
    nodes = [NodeTemplate(f"n{n}", cpu="64", pods=_A_NODE) for n in range(workers // _A_NODE + 2)]
    world.machines = Machines(world, nodes)
    user: Any = _OneJob(world, workers)
    world.user = user
    # A quota or a queue that never admits so many pods would give a good end without a running job.
    world.quotas.comes = world.queues.comes = world.room.crowded = world.room.forges = False
    world.faults.on = faults
    return world


@pytest.mark.parametrize(("workers", "steps"), [(1000, 2000)])
def test_a_job_of_a_thousand_runs_whole_whatever_happened_while_it_started(workers: int, steps: int) -> None:
    world = _world_of(workers, faults=True)
    _runs_whole(world, workers)
    world.run(steps)
    [job] = world.oracle.state.jobs.values()
    assert (job.stage, len(job.bound)) == (Stage.RUNNING, workers + 1)
    assert len(world.store.collection(PODS).objects) >= workers + 1
