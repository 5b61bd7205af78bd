"""Two Kubernetes clusters under one cluster name: the second one's process doesn't start, and nothing is deleted."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    EmbeddedKube,
    Fleet,
    apply,
    arranger,
    await_stage,
    finish_jobs,
    fleet,
    job,
    kubelets,
    pods_of,
)
from tests.servers import KubeServer, RealKube, RealRedis

SYSTEM = "/api/v1/namespaces/kube-system"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EmbeddedKube]:
    """Another cluster."""
    (tmp_path / "other").mkdir()
    server = EmbeddedKube(tmp_path / "other")
    yield server
    server.close()


def uid_of(kube: KubeServer) -> str:
    uid: str = kube.request("GET", SYSTEM)[1]["metadata"]["uid"]
    return uid


def test_a_process_of_another_cluster_under_the_same_name_does_not_start_and_nothing_is_deleted_for_it(
    kube: RealKube, other: EmbeddedKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, NodeTemplate("n1", cpu="8")), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as ours:
        ours.start(("watcher", "applier"), ("controller", "scheduler", "maintenance"))
        apply(kube, job("a"), job("b"))
        await_stage(kube, "Running", "a", "b")
        there = {pod["metadata"]["uid"] for name in "ab" for pod in pods_of(kube, name)}
        assert len(there) == 6
        theirs = Fleet(redis_url=redis.url, kubeconfig=other.kubeconfig, folder=tmp_path / "other")
        try:
            started = theirs.start(("watcher",), ("applier",), (), wait=False)
            for worker in started:
                assert worker.wait() == 2
                told = worker.log_end()
                assert (
                    "belongs to another Kubernetes cluster" in told and uid_of(kube) in told and uid_of(other) in told
                )
        finally:
            theirs.close()
        status = json.loads(arranger("status", "--log", redis.url, "-o", "json").stdout)
        assert status["log"]["ofCluster"] == uid_of(kube)
        assert {pod["metadata"]["uid"] for name in "ab" for pod in pods_of(kube, name)} == there
        finish_jobs(kube, "a", "b")


def test_nobody_works_on_the_imported_log_of_another_cluster(
    kube: RealKube, other: EmbeddedKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, NodeTemplate("n1", cpu="8")), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as ours:
        ours.start()
        apply(kube, job("a", run_s=0.1))
        await_stage(kube, "Succeeded", "a")
        exports = {"export": (), "hidden": ("--hash-names",)}
        for name, flags in exports.items():
            assert arranger("export", "--to", str(tmp_path / name), "--log", redis.url, *flags).returncode == 0
    told = {name: arranger("events", "--log", str(tmp_path / name), "-o", "json").stdout for name in exports}
    assert uid_of(kube) in told["export"] and "WatchClaimed" in told["hidden"] and uid_of(kube) not in told["hidden"]
    for name in exports:
        loaded = arranger("import", str(tmp_path / name), "--to", redis.url, "--cluster", name)
        assert loaded.returncode == 0, loaded.stderr
        flags = ("--redis", redis.url, "--cluster", name, "--http-port", "0")
        began = arranger("run", *flags, "--kubeconfig", str(other.kubeconfig))
        assert began.returncode == 2 and "another Kubernetes cluster" in began.stdout + began.stderr
