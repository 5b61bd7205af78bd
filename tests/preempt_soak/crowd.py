"""Users who keep a small cluster full: jobs of several priorities and queues, so that some must always give room.

Some arrive in tides: they have a share while they are there, and others borrow it in between. Some users delete their
jobs, and some jobs fail.
"""

import contextlib
import http.client
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from arranger.sandbox.nodes import NodeTemplate
from tests.servers import RealKube
from tests.trial.streams import Job, tyjobs
from tests.unit.queue_table import queue

GPU = "nvidia.com/gpu"
NODES = [NodeTemplate(f"node-{number}", cpu="64", gpus=8) for number in range(6)]
#: What takes no room itself and is kept out by room alone has only its reservation.
_PATIENT = {"surplus": "Never", "priority": "Never", "reclaim": "Never"}
QUEUES = (
    queue("research"),
    queue("products", minRuntimeSeconds=2),
    queue("batch", preemption=_PATIENT),
)
_NAMESPACE = "default"
#: The tide of products comes for the first part of each period, in seconds.
_TIDE_S, _PERIOD_S = 18.0, 40.0
#: How often a user deletes a job that has not ended, on average, in seconds.
_DELETED_EVERY_S = 15.0


@dataclass(frozen=True)
class Class:
    """One kind of jobs: how many of them there are at most, how often one arrives, and what they are like.

    `workers`, `run_s` and `every_s` are ranges; `spare` is how many of the workers the quorum doesn't need. `fails` is
    the part of these jobs whose leaders fail.
    """

    name: str
    queue: str
    priority: tuple[int, ...]
    most: int
    every_s: tuple[float, float]
    workers: tuple[int, int]
    run_s: tuple[float, float]
    gpus: tuple[int, ...] = (2,)
    spare: int = 0
    preemptible: bool = True
    tide: bool = False
    fails: float = 0.0


CLASSES = (
    Class("elastic", "research", (1, 2), 6, (0.5, 2.0), (3, 6), (25, 50), spare=3),
    Class("gang", "research", (3, 4), 3, (1.0, 4.0), (1, 3), (10, 20), gpus=(1, 2), fails=0.1),
    Class("firm", "research", (2,), 1, (5.0, 15.0), (0, 1), (5, 10), gpus=(1,), preemptible=False),
    Class("high", "research", (8, 9), 2, (2.0, 5.0), (2, 5), (3, 6), gpus=(2, 4)),
    Class("tide", "products", (1, 5), 3, (0.5, 2.0), (2, 4), (5, 12), tide=True),
    Class("large", "batch", (5,), 1, (8.0, 20.0), (5, 6), (3, 6)),
)


class Crowd:
    """Creates and deletes jobs, one step after the other."""

    def __init__(self, kube: RealKube, chance: random.Random) -> None:
        self._kube = kube
        self._chance = chance
        self._made = 0
        self._next_s = dict.fromkeys((of.name for of in CLASSES), 0.0)
        self._delete_s = _DELETED_EVERY_S

    def prepare(self) -> None:
        """Create the queues."""
        for one in QUEUES:
            self._kube.request("POST", "/apis/arranger.dev/v1/queues", one)

    def step(self, now_s: float, live: Callable[[], Collection[str]]) -> None:
        """Do what is due at `now_s`, in seconds since the begin. `live` has the names of jobs that haven't ended."""
        due = [of for of in CLASSES if self._next_s[of.name] <= now_s]
        if not due and now_s < self._delete_s:
            return
        names = sorted(live())
        for of in due:
            self._next_s[of.name] = now_s + self._chance.uniform(*of.every_s)
            here = sum(name.startswith(of.name) for name in names)
            if here < of.most and (not of.tide or now_s % _PERIOD_S < _TIDE_S):
                self._request("POST", tyjobs(_NAMESPACE), self._job(of))
        if now_s >= self._delete_s:
            self._delete_s = now_s + self._chance.uniform(0, 2 * _DELETED_EVERY_S)
            if names:
                self._request("DELETE", f"{tyjobs(_NAMESPACE)}/{self._chance.choice(names)}")

    def _request(self, method: str, path: str, body: Job | None = None) -> None:
        """Ask once; on a busy machine the server may refuse that, and a job may be gone already."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            code, answer = self._kube.request(method, path, body, check=False)
            assert code in (200, 201, 404, 429) or code >= 500, answer

    def _job(self, of: Class) -> Job:
        self._made += 1
        name = f"{of.name}-{self._made:05}"
        run_s, workers = self._chance.uniform(*of.run_s), self._chance.randint(*of.workers)
        gpus, fails = self._chance.choice(of.gpus), self._chance.random() < of.fails
        leader = self._template(gpus, run_s=round(run_s, 1), exit_code=1 if fails else 0)
        if fails and self._chance.random() < 0.5:  # then its pod fails, and isn't restarted in place
            leader["spec"]["restartPolicy"] = "Never"
        actors = {"name": "actors", "counts": workers, "template": self._template(gpus)}
        spec: dict[str, Any] = {
            "queue": of.queue,
            "priority": self._chance.choice(of.priority),
            "minWorkersNum": max(0, workers - of.spare),
            "leader": {"name": "learner", "template": leader},
            "workerSets": [actors] if workers else [],
            "cleanPodPolicy": "All",
            "restartLimit": 1,
            "ttlSecondsAfterFinished": self._chance.choice((3, 20)),
            "preemptible": of.preemptible,
        }
        if self._chance.random() < 0.8:
            spec["expectedRuntimeSeconds"] = round(run_s) + 2
        return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": {"name": name}, "spec": spec}

    def _template(self, gpus: int, *, run_s: float | None = None, exit_code: int = 0) -> dict[str, Any]:
        notes = {"start-seconds": self._chance.choice(("0", "0", "0.3", "1.5")), "exit-code": str(exit_code)}
        if run_s is not None:
            notes["run-seconds"] = str(run_s)
        container = {"name": "main", "image": "trainer:1", "resources": {"limits": {GPU: gpus}}}
        return {
            "metadata": {"annotations": {f"sandbox.arranger.dev/{key}": value for key, value in notes.items()}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": self._chance.choice((1, 2))},
        }
