"""The log loses everything or its tail, or is unreachable for a while: jobs and pods keep running."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    Fleet,
    Leaders,
    apply,
    await_stage,
    epoch_of,
    eventually,
    finish_jobs,
    finish_leader,
    fleet,
    job,
    kubelets,
    pods_of,
    stages,
)
from tests.e2e.history import History
from tests.servers import RealKube, RealRedis

NODES = [NodeTemplate(f"node-{number}", cpu="8") for number in range(4)]
NAMES = [f"job-{number}" for number in range(5)]


@dataclass
class Scene:
    """Two processes with all roles, simulated nodes, and the API server's history."""

    kube: RealKube
    redis: RealRedis
    fleet: Fleet
    history: History

    def created(self) -> int:
        return len(self.history.created())

    def deleted(self) -> list[str]:
        return [e.name for e in self.history.events() if e.kind == "pod" and e.type == "DELETED"]

    def wait_ready(self) -> None:
        for worker in self.fleet.workers.values():
            worker.wait_ready()


@pytest.fixture
def scene(kube: RealKube, redis: RealRedis, tmp_path: Path) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(kubelets(kube, *NODES))
        workers = stack.enter_context(fleet(redis_url=redis.url, kube=kube, folder=tmp_path))
        workers.start((), ())
        history = History(kube.kubeconfig)
        history.start()
        yield Scene(kube, redis, workers, history)
        history.stop()


def run_five(scene: Scene) -> None:
    """Start five endless jobs of a leader and three workers, and wait until all are Running."""
    apply(scene.kube, *[job(name, workers=3) for name in NAMES])
    await_stage(scene.kube, "Running", *NAMES)


def end_well(scene: Scene, names: list[str] = NAMES) -> None:
    """Check that no pod was deleted, end the leaders, and check the history."""
    assert scene.deleted() == []
    assert scene.created() == 4 * len(names)
    assert {scene.history.stages(name)[-1] for name in names} == {"Running"}
    finish_jobs(scene.kube, *names)
    assert scene.history.faults() == []


def await_created(scene: Scene, pods: int, leaders: Leaders) -> None:
    """Wait until `pods` pods have been created, while jobs end."""
    eventually(f"{pods} pods were created", lambda: leaders.all_ended() or scene.created() >= pods, every_s=0.01)


def await_epoch_after(scene: Scene, old: int) -> None:
    """Wait for another epoch."""
    eventually("a new epoch begins", lambda: epoch_of(scene.redis) > old)


def await_new_epoch(scene: Scene, old: int) -> None:
    """Wait for another epoch in which every process is ready again."""
    await_epoch_after(scene, old)
    for worker in scene.fleet.workers.values():
        eventually(
            f"{worker.name} follows the new epoch",
            lambda worker=worker: worker.metrics()["arranger_epoch"] == epoch_of(scene.redis),  # type: ignore[misc]
        )
    scene.wait_ready()


def test_an_emptied_redis_costs_no_running_pod(scene: Scene) -> None:
    run_five(scene)
    old = epoch_of(scene.redis)
    assert scene.redis.command("FLUSHALL").startswith(b"+OK")
    await_new_epoch(scene, old)
    apply(scene.kube, job("later", workers=1))
    await_stage(scene.kube, "Running", "later")  # everything was listed and decided on again
    assert len(pods_of(scene.kube, "later")) == 2
    scene.kube.kubectl("delete", "tyj", "later")
    eventually("its pods are gone", lambda: not pods_of(scene.kube, "later"))
    assert [len(pods_of(scene.kube, name)) for name in NAMES] == [4] * 5
    finish_jobs(scene.kube, *NAMES)
    assert scene.created() == 4 * 5 + 2
    assert scene.history.faults() == []
    assert scene.history.stages(NAMES[0])[-2:] == ["Running", "Succeeded"]


def test_a_log_lost_again_and_again_while_jobs_start_and_end(scene: Scene) -> None:
    names = [f"job-{number}" for number in range(8)]
    apply(scene.kube, *[job(name, workers=4) for name in names])
    leaders = Leaders(scene.kube)
    for pods in (2, 14, 25, 39):
        await_created(scene, pods, leaders)
        old = epoch_of(scene.redis)
        scene.redis.command("FLUSHALL")
        await_epoch_after(scene, old)
    eventually("every job has ended", leaders.all_ended)
    await_stage(scene.kube, "Succeeded", *names)
    eventually("all pods are cleaned", lambda: not any(pods_of(scene.kube, name) for name in names))
    assert scene.history.faults() == []


def test_a_redis_that_is_away_for_a_while_loses_nothing(scene: Scene) -> None:
    run_five(scene)
    old = epoch_of(scene.redis)
    scene.redis.stop()
    apply(scene.kube, job("meanwhile", workers=3))
    for worker in scene.fleet.workers.values():
        eventually(f"{worker.name} says so", lambda worker=worker: worker.get("/readyz")[0] == 503)  # type: ignore[misc]
        assert worker.get("/healthz")[0] == 200  # a restart wouldn't help
    assert scene.kube.request("GET", "/apis/arranger.dev/v1/tyjobs")[0] == 200
    scene.redis.start()
    scene.wait_ready()
    await_stage(scene.kube, "Running", "meanwhile")
    assert epoch_of(scene.redis) == old
    end_well(scene, [*NAMES, "meanwhile"])


def test_a_redis_that_lost_its_tail_begins_a_new_epoch(scene: Scene, tmp_path: Path) -> None:
    folder, copy = scene.redis.daemon.log_path.parent, tmp_path / "older"
    apply(scene.kube, *[job(name, workers=3) for name in NAMES[:2]])
    await_stage(scene.kube, "Running", *NAMES[:2])
    eventually("the append-only file is written", lambda: list(folder.glob("appendonly*")))
    shutil.copytree(folder, copy)
    apply(scene.kube, *[job(name, workers=3) for name in NAMES[2:]])
    await_stage(scene.kube, "Running", *NAMES)
    old = epoch_of(scene.redis)
    scene.redis.stop(kill=True)
    for there in folder.glob("appendonly*"):
        if there.is_dir():
            shutil.rmtree(there)
            shutil.copytree(copy / there.name, there)
        else:
            shutil.copy(copy / there.name, there)
    scene.redis.start()
    await_new_epoch(scene, old)
    end_well(scene)


def test_a_log_lost_while_no_worker_runs_is_begun_again(scene: Scene) -> None:
    run_five(scene)
    for worker in scene.fleet.workers.values():
        assert worker.stop() == 0
    scene.redis.command("FLUSHALL")
    finish_leader(scene.kube, NAMES[0])
    for worker in scene.fleet.workers.values():
        worker.start()
    scene.wait_ready()
    await_stage(scene.kube, "Succeeded", NAMES[0])
    assert stages(scene.kube) == {NAMES[0]: "Succeeded"} | dict.fromkeys(NAMES[1:], "Running")
    eventually("its pods are cleaned", lambda: not pods_of(scene.kube, NAMES[0]))
    for name in NAMES[1:]:
        finish_leader(scene.kube, name)
    await_stage(scene.kube, "Succeeded", *NAMES)
    assert scene.history.faults() == []
