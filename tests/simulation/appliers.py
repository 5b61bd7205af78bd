"""What appliers owe on an API server that is slow for a while, or fails some requests: trials at the end of a run.

Many jobs that only wait have their first statuses soon after the server has become fast, because nothing else is to do.
And a job whose pods need several tries each starts soon, because each look creates one more.
"""

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from arranger.kube.cluster import TYJOBS, ClusterUnavailable
from arranger.model.config import Provisioning
from arranger.sandbox.store import DeleteOptions
from tests.simulation.faults import SLOW, SOME_FAIL
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The server is this slow for this long before more jobs come, in seconds; the number of jobs for each applier. Once it
#: is fast, each has its first status within ten seconds.
_SLOW_S, _SLOW_FOR_S, _JOBS, _TOLD_WITHIN_S = 1.0, 4.0, 60, 10.0
#: Each of so many pods has one failure more than the one before. A delay is a second at most while looks get further.
_PODS, _STARTS_WITHIN_S = 8, 30.0
_WAITS, _STARTS = "told-", "gets-further"


class Appliers:
    """The trials of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        chance, often = random.Random(f"{world.seed} appliers"), world.faults.often
        self._slow = chance.random() < 0.2 or often(SLOW)
        self._some_fail = chance.random() < 0.5 or often(SOME_FAIL)
        self._takes_s = 0.0
        #: Name of a pod → how many of its creations failed.
        self._failed = Counter[str]()

    async def answer(self, what: str, about: str) -> None:
        """The server answers a write, late or not at all. Raises `ClusterUnavailable`."""
        if self._takes_s:
            await asyncio.sleep(self._takes_s)
        name, _, number = about.rpartition("-")
        if what == "create pods" and name == f"{_STARTS}-w" and self._failed[about] < int(number):
            self._failed[about] += 1
            self._world.faults.hit(SOME_FAIL)
            raise ClusterUnavailable(f"simulated: no connection for {what}")

    async def run(self) -> None:
        """One trial after the other. Raises `Violation`."""
        state = self._world.oracle.state
        if self._slow and not state.quotas and self._world.settings.provisioning == Provisioning.NONE:
            await self._slow_for_a_while()
        if self._some_fail and not state.quotas:
            await self._some_requests_fail()

    async def _slow_for_a_while(self) -> None:
        """Many jobs come that fit nowhere while the server is slow."""
        self._takes_s = _SLOW_S
        appliers = sum("applier" in process.roles for process in self._world.processes)
        names = [f"{_WAITS}{number}" for number in range(_JOBS * appliers)]
        for name in names[::2]:
            self._create(name, 1, "1000")
        await asyncio.sleep(_SLOW_FOR_S)
        for name in names[1::2]:  # now each applier knows how long a status takes
            self._create(name, 1, "1000")
        await asyncio.sleep(2 * _SLOW_S)
        self._takes_s = 0.0
        self._world.faults.hit(SLOW)
        await asyncio.sleep(_TOLD_WITHIN_S)
        jobs = self._world.store.collection(TYJOBS).objects
        untold = [name for name in names if "stage" not in (jobs["default", name].object.get("status") or {})]
        for name in names:
            self._world.store.delete(TYJOBS, "default", name)
        if untold:
            raise Violation(f"{len(untold)} jobs have no status {_TOLD_WITHIN_S:.0f} s after the server was slow")

    async def _some_requests_fail(self) -> None:
        """The first creations of most pods of a job fail."""
        uid = self._create(_STARTS, _PODS, "0")
        for _ in range(int(2 * _STARTS_WITHIN_S)):
            await asyncio.sleep(0.5)
            job = self._world.oracle.state.jobs.get(uid)
            if job is None or len(job.bound) == _PODS:
                break
        else:
            if job is not None and job.bound:
                found = f"{len(job.bound)} of {_PODS} pods after {_STARTS_WITHIN_S:.0f} s"
                raise Violation(f"a job whose looks get further has {found}", job=uid)
        self._world.store.delete(TYJOBS, "default", _STARTS, DeleteOptions())

    def _create(self, name: str, count: int, cpu: str) -> str:
        """Create a job of so many workers; returns its UID."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
        if cpu == "0":
            del container["resources"]
        workers: dict[str, Any] = {
            "name": "w", "counts": count, "minCount": count, "template": {"spec": {"containers": [container]}},
        }  # fmt: skip
        spec = {"priority": 10, "workerSets": [workers]}
        body = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}
        stored = self._world.store.create(TYJOBS, "default", body).stored
        self._world.user.names[stored.uid] = name
        self._world.step("appliers", f"creates {name} [{stored.uid}]")
        return stored.uid
