"""Chaos on real processes: hundreds of jobs, three controllers and three appliers, which are killed in turn.

The API server and Redis are real. Every few seconds a process is killed with SIGKILL and restarted a moment later, as a
Deployment would. The test judges by its own watch, which runs from the beginning.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import PODS, TYJOBS, ApiError, ClusterUnavailable, Object
from arranger.kube.config import find_access
from arranger.sandbox.nodes import NodeTemplate
from tests.depth import extent
from tests.e2e.harness import (
    Fleet,
    LoopThread,
    Worker,
    arranger,
    end_offset,
    eventually,
    fleet,
    job,
    kubelets,
    stages,
)
from tests.e2e.history import History
from tests.e2e.test_whole_path import folded
from tests.servers import RealKube, RealRedis

JOBS = extent(100, soak=500)
#: One of this many jobs has a failing leader: the job is restarted once and then fails.
EVERY_FAILING = 25
REPLICAS = {"watcher": 2, "controller": 3, "scheduler": 2, "applier": 3, "maintenance": 2}
#: The roles to kill in turn: a controller and an applier every five seconds, the others every ten.
VICTIMS = ("controller", "applier", "watcher", "controller", "applier", "scheduler", "maintenance")
ROUND_S = 10.0
KILLING_S = extent(30.0, soak=60.0)
#: The time from a kill to the new process, as a kubelet needs it to restart a container.
BACK_AFTER_S = 2.0
#: How long a leader runs after its job is Running.
WORK_S = 3.0
#: On an idle machine, everything ends much sooner.
PATIENCE_S = 900.0


def the_job(number: int) -> dict[str, Any]:
    """A job of a leader and one worker. Some leaders fail, and their jobs may restart once."""
    if number % EVERY_FAILING:
        return job(f"job-{number:03}", workers=1)
    return job(f"fails-{number:03}", workers=1, restartLimit=1, keepFailedPods=0)


def fails(name: str) -> bool:
    """Whether the leaders of this job fail."""
    return name.startswith("fails")


class Users:
    """Creates the jobs, and simulates the leaders' programs, which end some time after their job is Running.

    It reads the test's own record of the cluster, so each job costs the API server only one write.
    """

    def __init__(self, kube: RealKube, history: History) -> None:
        self._history = history
        self._read = 0
        self._thread = LoopThread()
        self._cluster = HttpCluster(find_access(kube.kubeconfig))
        self._leaders: dict[str, str] = {}
        #: (job UID, attempt) of jobs that were seen Running, and the end times of some of their leaders.
        self._running: set[tuple[str, int]] = set()
        self._due: dict[tuple[str, str], float] = {}
        #: The error that ended the watch early.
        self._problem: Exception | None = None
        self._stopping = threading.Event()
        #: Job name → stage.
        self.stages: dict[str, str] = {}
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def create(self, jobs: Sequence[Object]) -> None:
        """Create jobs, four at a time."""

        async def some(of_them: Sequence[Object]) -> None:
            await asyncio.gather(*(_done(partial(self._cluster.create, TYJOBS, "default", one)) for one in of_them))

        for begin in range(0, len(jobs), 4):
            self._thread.call(some(jobs[begin : begin + 4]))

    @property
    def ended(self) -> int:
        """The number of ended jobs."""
        assert self._problem is None, repr(self._problem)
        return sum(stage in ("Succeeded", "Failed") for stage in list(self.stages.values()))

    def close(self) -> None:
        self._stopping.set()
        self._watching.join()
        self._thread.call(self._cluster.close())
        self._thread.close()

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(0.1):
                self._look()
        except Exception as problem:
            self._problem = problem

    def _look(self) -> None:
        news = self._history.since(self._read)
        self._read += len(news)
        for event in news:
            labels = event.object["metadata"].get("labels") or {}
            if event.kind == "job":
                self._see(event.object, event.at)
            elif event.type == "ADDED" and labels.get("arranger.dev/role") == "leader":
                self._leaders[event.object["metadata"]["ownerReferences"][0]["uid"]] = event.name
        due = [one for one, at in self._due.items() if at <= time.monotonic() and one[0] in self._leaders]
        for one in due:
            del self._due[one]
        if due:
            self._thread.call(self._end([(self._leaders[uid], phase) for uid, phase in due]))

    def _see(self, found: Object, at: float) -> None:
        name, uid, status = found["metadata"]["name"], found["metadata"]["uid"], found.get("status") or {}
        self.stages[name] = stage = status.get("stage", "")
        attempt = (uid, status.get("attempt", 0))
        if stage == "Running" and attempt not in self._running:
            self._running.add(attempt)
            self._due[uid, "Failed" if fails(name) else "Succeeded"] = at + WORK_S

    async def _end(self, leaders: Sequence[tuple[str, str]]) -> None:
        ended = {name: {"status": {"phase": phase}} for name, phase in leaders}
        patch = partial(self._cluster.patch, PODS, "default", subresource="status")
        await asyncio.gather(*(_done(partial(patch, name, body)) for name, body in ended.items()))


async def _done(request: Callable[[], Awaitable[Object]]) -> None:
    """Repeat a request until a busy server has handled it. An object that already exists or is deleted is fine."""
    while True:
        try:
            await request()
            return
        except ApiError as refused:
            if refused.code in (404, 409):
                return
            assert refused.code == 429 or refused.code >= 500, str(refused)
        except ClusterUnavailable:
            pass
        await asyncio.sleep(0.5)


class Killer:
    """Kills one process after the other, those of a role in turn, and restarts each a moment later."""

    def __init__(self, workers: Fleet) -> None:
        self._workers = workers
        self._dead: list[tuple[float, Worker]] = []
        self.kills: Counter[str] = Counter()

    def kill(self, role: str) -> None:
        """Kill the next process of the role."""
        of_role = self._workers.of_role(role)
        victim = of_role[self.kills[role] % len(of_role)]
        assert victim.running, f"{victim.name} has ended by itself:\n{victim.log_end()}"
        victim.kill()
        self.kills[role] += 1
        self._dead.append((time.monotonic() + BACK_AFTER_S, victim))

    def bring_back(self, *, all_of_them: bool = False) -> None:
        """Restart the processes that are due."""
        due = [one for one in self._dead if one[0] <= time.monotonic() or all_of_them]
        for one in due:
            self._dead.remove(one)
            one[1].start()

    def rage(self) -> None:
        """Kill for `KILLING_S`."""
        began_s = time.monotonic()
        number = 0
        while time.monotonic() - began_s < KILLING_S:
            self.kill(VICTIMS[number % len(VICTIMS)])
            number += 1
            next_s = began_s + number * ROUND_S / len(VICTIMS)
            while time.monotonic() < next_s:
                self.bring_back()
                time.sleep(0.1)
        self.bring_back(all_of_them=True)


def status(redis: RealRedis) -> dict[str, Any]:
    """The JSON output of `arranger status`."""
    done = arranger("status", "--log", redis.url, "--output", "json")
    assert done.returncode in (0, 1), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["well"] == (done.returncode == 0)
    return answer


def await_shares(redis: RealRedis, count: int) -> dict[str, dict[str, int]]:
    """Wait until `count` controllers and appliers share all jobs, and each has some."""
    found: dict[str, dict[str, int]] = {}

    def look() -> bool:
        answer = status(redis)
        for role in ("controller", "applier"):
            found[role] = {m["id"]: m["shares"][role]["jobs"] for m in answer["members"] if role in m["shares"]}
        whole = all(sum(of_role.values()) == answer["jobs"] > 0 for of_role in found.values())
        return whole and all(len(of_role) == count and min(of_role.values()) > 0 for of_role in found.values())

    eventually(f"{count} controllers and {count} appliers share the jobs", look, every_s=0.5)
    return found


def told(redis: RealRedis, history: History, name: str) -> str:
    """What the cluster and the log have on a job, for a failed assertion."""
    explained = arranger("explain", name, "--log", redis.url, "--all")
    return f"{history.story(name)}\n{explained.stdout}{explained.stderr}"


@contextlib.contextmanager
def users(kube: RealKube, history: History) -> Iterator[Users]:
    found = Users(kube, history)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.timeout(1500)
def test_jobs_end_right_while_processes_of_every_role_are_killed(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    jobs = [the_job(number) for number in range(JOBS)]
    names = [one["metadata"]["name"] for one in jobs]
    nodes = [NodeTemplate(f"node-{number:02}", cpu="10") for number in range(16)]
    history = History(kube.kubeconfig)
    history.start()
    with (
        kubelets(kube, *nodes),
        users(kube, history) as outside,
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path, reasons_a_second=5) as workers,
    ):
        workers.start(*[(role,) for role, count in REPLICAS.items() for _ in range(count)])
        outside.create(jobs[:100])
        whole = await_shares(redis, 3)
        killer = Killer(workers)
        killer.kill("controller")
        killer.kill("applier")
        left = await_shares(redis, 2)
        for role, of_role in left.items():
            assert of_role.keys() < whole[role].keys(), "those that are left took the others' jobs over"
        killer.bring_back(all_of_them=True)
        creating = threading.Thread(target=outside.create, args=(jobs[100:],), daemon=True)
        creating.start()
        killer.rage()
        creating.join()
        eventually("every job has ended", lambda: outside.ended == JOBS, within_s=PATIENCE_S)
        eventually("the ended jobs' pods are cleaned", lambda: not kube.request("GET", "/api/v1/pods")[1]["items"])
        for worker in workers.workers.values():
            worker.wait_ready()
        at_rest = await_shares(redis, 3)
        assert eventually("nothing is missing", lambda: status(redis)["well"], every_s=0.5)
        history.stop()

    assert min(killer.kills[role] for role in REPLICAS) >= KILLING_S / ROUND_S
    for role, of_role in at_rest.items():
        assert not of_role.keys() & whole[role].keys(), f"every {role} was killed and replaced"
        assert sum(of_role.values()) == JOBS
    assert stages(kube) == {name: "Failed" if fails(name) else "Succeeded" for name in names}
    faults = history.faults()
    assert not faults, "\n".join([*faults, *(told(redis, history, name) for name in names if name in str(faults))])
    verified = arranger("verify", "--log", redis.url, "--output", "json")
    report = json.loads(verified.stdout)
    assert verified.returncode == 0 and report["sound"], verified
    assert report["identical"] == report["cycles"] > 0 and report["decisions"] >= JOBS
    end = end_offset(redis)
    from_start = folded(redis, "start", end, hash_seed=1)
    from_snapshot = folded(redis, "snapshot", end, hash_seed=2)
    assert from_start[0] == 0 and from_snapshot[0] > 0
    assert from_start[1:] == from_snapshot[1:] and from_start[1] == end
