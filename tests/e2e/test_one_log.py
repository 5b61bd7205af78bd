"""Two installations of Arranger on one Kubernetes cluster: one works, and the other says which one does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    Fleet,
    Worker,
    apply,
    arranger,
    await_stage,
    epoch_of,
    eventually,
    finish_jobs,
    fleet,
    job,
    kubelets,
    pods_of,
    status_of,
)
from tests.servers import RealKube, RealRedis

_ALL = ("watcher", "controller", "scheduler", "applier", "maintenance")


@pytest.fixture
def canary(kube: RealKube, redis: RealRedis, tmp_path: Path) -> Iterator[Fleet]:
    """Another installation, with a log of its own."""
    (tmp_path / "canary").mkdir()
    fleet = Fleet(redis_url=redis.url, kubeconfig=kube.kubeconfig, folder=tmp_path / "canary", cluster="canary")
    yield fleet
    fleet.close()


def uids(kube: RealKube, *names: str) -> set[str]:
    return {pod["metadata"]["uid"] for name in names for pod in pods_of(kube, name)}


def told_by(worker: Worker, words: str) -> str:
    """What /readyz says once it says these words."""

    def look() -> str:
        code, said = worker.get("/readyz")
        return said if code == 503 and words in said else ""

    return eventually(f"{worker.name} says {words!r}", look)


def status(redis: RealRedis, cluster: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        arranger("status", "--log", redis.url, "--cluster", cluster, "-o", "json").stdout
    )
    return found


def test_a_second_installation_writes_nothing_and_takes_over_when_the_first_hands_the_cluster_over(
    kube: RealKube, redis: RealRedis, canary: Fleet, tmp_path: Path
) -> None:
    with kubelets(kube, NodeTemplate("n1", cpu="16")), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as ours:
        (first,) = ours.start(_ALL)
        apply(kube, job("a"))
        await_stage(kube, "Running", "a")
        epoch, there = epoch_of(redis), uids(kube, "a")
        assert status_of(kube, "a")["log"] == "default"

        (second,) = canary.start(_ALL, wait=False)
        (decider,) = canary.start(("controller", "scheduler", "maintenance"), wait=False)
        said = told_by(second, "holds this cluster")
        assert f"default@{epoch}" in told_by(decider, "holds this cluster"), "it isn't connected to the API server"
        assert f"default@{epoch}" in said and "arranger hand-over --to canary" in said
        apply(kube, job("b"))
        await_stage(kube, "Running", "b")
        eventually(
            "status says so", lambda: "holds its Kubernetes cluster" in json.dumps(status(redis, "canary")), every_s=1.0
        )
        assert status(redis, "canary")["log"]["events"] == 1  # type: ignore[index]
        assert epoch_of(redis) == epoch and uids(kube, "a") == there, "nothing began again"

        flags = ("--kubeconfig", str(kube.kubeconfig))
        assert f"default@{epoch}" in arranger("hand-over", *flags).stdout
        handed = arranger("hand-over", *flags, "--to", "canary")
        assert handed.returncode == 0, handed.stderr
        second.wait_ready()
        decider.wait_ready()
        told_by(first, "another log, canary@")
        there |= uids(kube, "b")
        assert uids(kube, "a", "b") == there, "the jobs run on as they are"
        apply(kube, job("c"))
        await_stage(kube, "Running", "c")
        assert status_of(kube, "c")["log"] == "canary" and epoch_of(redis) == epoch
        finish_jobs(kube, "a", "b", "c")


def test_an_install_whose_redis_is_lost_goes_on_and_one_of_another_name_never_does(
    kube: RealKube, redis: RealRedis, canary: Fleet, tmp_path: Path
) -> None:
    """All processes and the log are gone at once: nobody remembers, and the name decides."""
    with kubelets(kube, NodeTemplate("n1", cpu="16")), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as ours:
        (first,) = ours.start(_ALL)
        (second,) = canary.start(_ALL, wait=False)
        apply(kube, job("a"))
        await_stage(kube, "Running", "a")
        there = uids(kube, "a")
        first.kill()
        redis.command(
            "EVAL",
            "for _, key in ipairs(redis.call('KEYS', 'arranger:{default}:*')) do redis.call('DEL', key) end",
            "0",
        )
        (again,) = ours.start(_ALL, wait=False)
        again.wait_ready()
        assert second.get("/readyz")[0] == 503 and uids(kube, "a") == there
        finish_jobs(kube, "a")
