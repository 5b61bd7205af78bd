"""Workers with another package's policies: the API server accepts the names, cycles use them, and `verify` passes."""

import json
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import EmbeddedKube, apply, await_stage, eventually, fleet, job, kubelets, pods_of, status_of
from tests.example_package import install_example, python_path, run
from tests.servers import RealRedis

SETTINGS = {"pod_policy": "WorstFit", "filter_order": "Maintenance,NodeReady"}
POLICIES = {"jobQueuePolicy": "Oldest", "basicPolicy": "WorstFit"}
NODES = (
    NodeTemplate("n1", cpu="64", labels={"example.com/maintenance": "true"}),
    NodeTemplate("n2", cpu="4"),
    NodeTemplate("n3", cpu="32"),
)


def test_workers_go_by_policies_of_another_package(
    redis: RealRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = install_example(tmp_path)
    definition = tmp_path / "crd.yaml"
    definition.write_text(run("arranger.cli.main", "crd", plugins=plugins).stdout)
    monkeypatch.setenv("PYTHONPATH", python_path(plugins))
    kube = EmbeddedKube(tmp_path, crds=[definition])
    try:
        refused = job("refused", schedulerPolicy={"basicPolicy": "BestFit"})
        answer = kube.kubectl("apply", "-f", "-", stdin=json.dumps(refused), check=False)
        assert 'Unsupported value: "BestFit"' in answer.stderr
        assert '"WorstFit"' in answer.stderr
        with (
            kubelets(kube, *NODES),
            fleet(redis_url=redis.url, kube=kube, folder=tmp_path, verify=False, **SETTINGS) as workers,
        ):
            workers.start(["watcher", "controller", "applier", "maintenance"], ["scheduler"])
            apply(kube, job("named", schedulerPolicy=POLICIES), job("default", workers=0))
            await_stage(kube, "Running", "named", "default")
            nodes = {pod["spec"]["nodeName"] for name in ("named", "default") for pod in pods_of(kube, name)}
            assert nodes == {"n3"}
            _held_back_and_refused(kube)
            for worker in workers.workers.values():
                assert worker.stop() == 0
    finally:
        kube.close()
    report = json.loads(run("arranger.cli.main", "verify", "--log", redis.url, "-o", "json", plugins=plugins).stdout)
    assert report["sound"]
    assert report["identical"] == report["cycles"] > 0
    log = ("--log", redis.url, "-o", "json")
    cycles = run("arranger.cli.main", "events", "--kind", "CycleTaken", *log, plugins=plugins).stdout
    assert '"Maintenance","NodeReady"' in cycles.replace(" ", "")
    without = run("arranger.cli.main", "verify", "--log", redis.url, "-o", "json", plugins=None)
    found = json.loads(without.stdout)
    assert (without.returncode, found["other_versions"]) == (1, found["cycles"])
    missing = [["Approval", 1], ["Freeze", 1], ["Maintenance", 2], ["Oldest", 3], ["WorstFit", 1]]
    assert found["first_other_version"]["missing"] == missing


def _held_back_and_refused(kube: EmbeddedKube) -> None:
    """A permit and a group check decide by labels of the namespace, and by an annotation of the job."""
    kube.kubectl("label", "namespace", "default", "example.com/approval=required")
    apply(kube, job("held", workers=0))
    _await_message(kube, "held", "held back by Approval: it isn't approved; its room is kept meanwhile")
    kube.kubectl("annotate", "tyj", "held", "arranger.dev/permits=approved")
    await_stage(kube, "Running", "held")

    kube.kubectl("label", "namespace", "default", "example.com/approval-", "example.com/frozen=true")
    apply(kube, job("refused", workers=0))
    _await_message(kube, "refused", "refused by Freeze: its namespace is frozen")
    kube.kubectl("label", "namespace", "default", "example.com/frozen-")
    await_stage(kube, "Running", "refused")


def _await_message(kube: EmbeddedKube, name: str, told: str) -> None:
    eventually(f"{name}: {told}", lambda: told in str(status_of(kube, name).get("message")))
    assert pods_of(kube, name) == []
