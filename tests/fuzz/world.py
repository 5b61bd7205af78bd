"""The real workers on an API server that takes any TYJob, as one without the schema would.

`hold(jobs)` creates the jobs and, among them, a good one of its own, lets the workers do what they do on a virtual
clock, and tells what is wrong at the end: a worker that ended or logged an error, a good job that doesn't run, a bad
one that isn't Failed with a message that names a field.
"""

import asyncio
import copy
import itertools
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec

from arranger.events.kinds import Watched
from arranger.kube.cluster import CRDS, NAMESPACES, TYJOBS
from arranger.kube.translate import reported
from arranger.messages.faults import faults_text
from arranger.model.validation import validate
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.history import Stored
from arranger.sandbox.kubelet import SimulatedKubelets
from arranger.sandbox.nodes import NodeTemplate
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from arranger.workers.applying import applier
from arranger.workers.applying.applier import Applier
from arranger.workers.deciding import controller
from arranger.workers.deciding.controller import Controller
from arranger.workers.deciding.scheduler import TICK, Scheduler
from arranger.workers.flow import backoff
from arranger.workers.log.follower import Follower
from arranger.workers.watching.watcher import Watcher
from tests.memory_log import MemoryHome, MemoryLog
from tests.parts import parts
from tests.simulation.loop import SimulatedClock, VirtualLoop
from tests.unit.tyjob_table import Object, tyjob_with

GOOD_NAME = "the-good-one"
#: The good job runs, and bad ones have failed, within so many virtual seconds.
_WITHIN_S = 60
#: Keeps all others off the good job's node, so that whatever waits there waits for a worker, not for room.
_KEPT = {"key": "fuzz.test/good", "value": "yes", "effect": "NoSchedule"}
_LOOSE: Object = {
    "served": True,
    "subresources": {"status": {}},
    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
_CRD: Object = {
    "metadata": {"name": "tyjobs.arranger.dev"},
    "spec": {
        "group": "arranger.dev",
        "scope": "Namespaced",
        "names": {"kind": "TYJob", "listKind": "TYJobList", "plural": "tyjobs", "singular": "tyjob"},
        "versions": [{**_LOOSE, "name": "v1", "storage": True}, {**_LOOSE, "name": "v1status", "storage": False}],
    },
}


class _Everyone:
    """Metrics that nobody reads, a membership of one, and a lease that is always held."""

    held = True

    def __getattr__(self, name: str) -> "_Everyone":
        return self

    def __call__(self, *args: object, **more: object) -> "_Everyone":
        return self

    def owns(self, key: str, role: str) -> bool:
        """Every job is this process's share."""
        return True

    async def acquire(self) -> bool:
        """The lease."""
        return True

    async def release(self) -> None:
        """The lease."""


ANY: Any = _Everyone()


class _Ticks:
    """rq's part: a tick that is pushed is handled."""

    def __init__(self) -> None:
        self._pushed = asyncio.Event()

    async def push(self, tick: str) -> bool:
        """As `Ticker.push`."""
        self._pushed.set()
        return True

    async def run(self, tick: str, period_s: float) -> None:
        """As `Ticker.run`."""
        while True:
            self._pushed.set()
            await asyncio.sleep(period_s)

    async def work(self, handler: Callable[[], Awaitable[None]]) -> None:
        """Handle ticks one after the other."""
        while True:
            await self._pushed.wait()
            self._pushed.clear()
            await handler()


class _Errors(logging.Handler):
    """Whatever the workers log as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        self.found.append(f"an error was logged: {record.getMessage()} {problem!r}")


class Outcome(msgspec.Struct):
    """What is wrong with the workers after they have seen some jobs, and how many jobs ended in which stage."""

    wrong: list[str]
    stages: Counter[str]


def hold(jobs: Sequence[Object], *, seed: int) -> Outcome:
    """Have the workers see these jobs."""
    chance = random.Random(seed)
    errors = _Errors()
    logger = logging.getLogger("arranger")
    before = (logger.level, logger.propagate)
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    loop = VirtualLoop(chance)
    loop.set_exception_handler(lambda _, context: errors.found.append(f"unhandled: {context}"))
    randomness = SimpleNamespace(Random=lambda: random.Random(chance.getrandbits(64)))
    try:
        with mock.patch.object(backoff, "random", randomness):
            outcome = loop.run_until_complete(_World(loop).hold(jobs))
    finally:
        loop.close()
        logger.removeHandler(errors)
        logger.setLevel(before[0])  # which clears what loggers have cached, as an assignment wouldn't
        logger.propagate = before[1]
    outcome.wrong[:0] = errors.found
    return outcome


class _World:
    """One process with every role, one cluster with two nodes: a small one for all, a large one for the good job."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._clock = SimulatedClock(loop)
        numbers = itertools.count(1)
        self.store = Store(now=lambda: self._clock.now_ms() / 1000, new_uid=lambda: f"uid-{next(numbers)}")
        self.store.create(CRDS, "", copy.deepcopy(_CRD))
        self._log = MemoryLog(MemoryHome(), now_ms=self._clock.now_ms)
        self._follower = Follower(self._log, clock=self._clock, metrics=ANY, reader="fuzz")
        self._tasks: list[asyncio.Task[Any]] = []
        nodes = [
            NodeTemplate("small", cpu="8", memory="64Gi", pods=20),
            NodeTemplate("good", cpu="8", memory="64Gi", pods=20, taints=(_KEPT,)),
        ]
        self._kubelets = SimulatedKubelets(DirectCluster(self.store, clock=self._clock), nodes=nodes, clock=self._clock)

    async def hold(self, jobs: Sequence[Object]) -> Outcome:
        """Everything, to the end."""
        await self._kubelets.start()
        await self._follower.start()
        self._start()
        created = self._created(jobs)
        try:
            for _ in range(_WITHIN_S):
                await asyncio.sleep(1.0)
                wrong = self._wrong(created)
                if not wrong:
                    break
            ended = [f"{task.get_name()} ended" for task in self._tasks if task.done()]
            return Outcome(wrong + ended, Counter(_status(stored).get("stage", "") for stored in self._jobs()))
        finally:
            await self._kubelets.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        self._tasks.append(self._loop.create_task(work, name=name))

    def _start(self) -> None:
        follower, cluster = self._follower, DirectCluster(self.store, clock=self._clock)
        known = parts(
            follower=follower, cluster=cluster, clock=self._clock, membership=ANY, metrics=ANY, member_id="fuzz",
            lease=ANY, settings={"lease_s": 5, "relist_s": 300, "api_in_flight": 8},
        )  # fmt: skip
        for kind in Watched:
            watcher = Watcher(kind, known)
            self._run(watcher.run(), f"watcher-{kind}")
        deciding, placing, applying, ticks = Controller(known), Scheduler(known), Applier(known), _Ticks()
        for role, name in ((deciding, controller.ROLE), (placing, "scheduler"), (applying, applier.ROLE)):
            follower.listen(role)
            self._run(role.run(), name)
        self._run(ticks.work(placing.cycle), "ticks")
        self._run(ticks.run(TICK, 1.0), "cycle-ticks")
        self._run(follower.run(), "follow")

    def _created(self, jobs: Sequence[Object]) -> dict[str, list[str]]:
        """Create all, the good one in their middle; by UID of a bad one, the fields that its message may name."""
        wrong: dict[str, list[str]] = {}
        for number, job in enumerate(jobs):
            if number == len(jobs) // 2:
                self._create("good", _good())
            # Names are the cluster's to keep apart: each job has a namespace of its own.
            try:
                stored = self._create(f"ns{number}", _without_blank_tolerations(job))
            except ApiRefusal as refusal:
                if "too large" not in refusal.detail:
                    raise
                continue  # no API server stores it, whatever its schema
            errors = validate(stored.object)
            if errors:
                wrong[stored.uid] = [error.field for error in errors]
                wrong[stored.uid].append(faults_text(reported(errors)))
        return wrong

    def _create(self, namespace: str, job: Object) -> Stored:
        self.store.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        return self.store.create(TYJOBS, namespace, msgspec.json.decode(msgspec.json.encode(job))).stored

    def _wrong(self, bad: dict[str, list[str]]) -> list[str]:
        return [told for stored in self._jobs() if (told := _problem(stored, bad))]

    def _jobs(self) -> list[Stored]:
        return list(self.store.collection(TYJOBS).objects.values())


def _problem(stored: Stored, bad: dict[str, list[str]]) -> str:
    """What isn't as it has to be with one job in the end."""
    status = _status(stored)
    stage, message = status.get("stage"), status.get("message") or ""
    if stored.name == GOOD_NAME:
        return "" if stage == "Running" else f"the good job is {stage}: {message}"
    if stored.uid in bad:
        *fields, _ = bad[stored.uid]
        told = (" ".join(field.split()) for field in fields)  # as in a message, which is one line
        named = any(field and field in message for field in told)
        return "" if stage == "Failed" and named else f"a bad job is {stage}: {message!r}, wrong are {fields[:3]}"
    judged = stage and (stage != "Failed" or message)
    return "" if judged else f"{stored.namespace}: a job without a verdict is {stage}: {message}"


def _status(stored: Stored) -> Object:
    status = stored.object.get("status")
    return status if isinstance(status, dict) else {}


def _without_blank_tolerations(value: Any) -> Any:
    """The job, but for tolerations of every taint there is."""
    if isinstance(value, dict):
        return {name: _without_blank_tolerations(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    kept = [part for part in value if not (isinstance(part, dict) and not part.get("key") and "operator" in part)]
    return [_without_blank_tolerations(part) for part in kept]


def _good() -> Object:
    tolerated = {"tolerations": [{**_KEPT, "operator": "Equal"}]}
    good = tyjob_with({"metadata/name": GOOD_NAME})
    for group in (good["spec"]["leader"], *good["spec"]["workerSets"]):
        group["template"]["spec"] |= {**tolerated, "nodeSelector": {"kubernetes.io/hostname": "good"}}
    return good
