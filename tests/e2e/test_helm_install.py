"""Helm on an empty real API server: installed, upgraded and rolled back under running jobs, and removed.

No kubelet runs here. `Installation` does what kubelets and the Deployments' controller would do: it starts the bundled
Redis and the processes with the arguments, the environment and the accounts that the Deployments in the API server
say, and replaces those whose template has changed, the new one before the old one.
"""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.e2e.harness import Worker, apply, await_stage, eventually, finish_leader, job, kubelets, pods_of, status_of
from tests.helm import CHART, NAMESPACE, Helm
from tests.servers import REPOSITORY, RealKube, RealRedis, helm_binary, real_kube, real_redis

VALUES = ("replicas=1", "redis.bundled.enabled=true", "queues[0].name=team", "queues[0].spec.weight=2")
CORE = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


@pytest.fixture
def empty() -> Iterator[RealKube]:
    """A real API server of this test alone, without the definitions of TYJobs and Queues."""
    with _required():
        helm_binary()
        with real_kube() as server:
            yield server


class Installation:
    """The processes of a release."""

    def __init__(self, kube: RealKube, redis: RealRedis, folder: Path) -> None:
        self._kube = kube
        self._redis = redis
        self._folder = folder
        self._templates: dict[str, str] = {}
        self._ever: list[Worker] = []
        self.workers: dict[str, Worker] = {}

    def roll(self) -> list[str]:
        """Start the processes of Deployments with a new template, then stop their old ones. Returns the names."""
        found = self._kube.request("GET", DEPLOYMENTS)[1]["items"]
        templates = {item["metadata"]["name"]: json.dumps(item["spec"]["template"], sort_keys=True) for item in found}
        changed = [item for item in found if templates[item["metadata"]["name"]] != self._templates.get(name_of(item))]
        started = {name_of(item): self._started(item["spec"]["template"]["spec"], name_of(item)) for item in changed}
        for name, worker in started.items():
            worker.wait_ready()
            if name in self.workers:
                assert self.workers[name].stop() == 0, self.workers[name].log_end()
            self.workers[name] = worker
        self._templates = templates
        return sorted(started)

    def stop(self) -> None:
        """What kubelets do when the Deployments are gone."""
        for worker in self.workers.values():
            assert worker.stop() == 0, worker.log_end()
        self.workers.clear()
        self._templates.clear()

    def close(self) -> None:
        for worker in self._ever:
            worker.close()

    def settings(self) -> dict[str, str]:
        """The settings in the cluster."""
        found: dict[str, str] = self._kube.request("GET", f"{CORE}/configmaps/arranger-settings")[1]["data"]
        return found

    def _started(self, pod: dict[str, Any], name: str) -> Worker:
        container = pod["containers"][0]
        # Each pod has addresses of its own, and the processes of a test share one.
        arguments = [*container["args"][1:], "--http-host", "127.0.0.1", "--http-port", "0"]
        environment = {**self._environment(container), "HOME": str(self._folder), "KUBECONFIG": ""}
        if pod["automountServiceAccountToken"]:
            arguments += ["--kubeconfig", str(self._kubeconfig(pod["serviceAccountName"]))]
        worker = Worker(f"{name}-{len(self._ever)}", arguments, folder=self._folder, environment=environment)
        self._ever.append(worker)
        worker.start()
        return worker

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        """What a kubelet makes of `envFrom` and `env`. The host of Redis has a name in a cluster alone."""
        assert [list(each) for each in container["envFrom"]] == [["configMapRef"]]
        found = dict(self.settings())
        for each in container["env"]:
            reference = each["valueFrom"]["secretKeyRef"]
            value = secret(self._kube, reference["name"]).get(reference["key"])
            assert value is not None or reference.get("optional"), reference
            if value is not None:
                found[each["name"]] = value.replace("@arranger-redis:6379", f"@127.0.0.1:{self._redis.port}")
        return found

    def _kubeconfig(self, account: str) -> Path:
        """A kubeconfig with a token of a ServiceAccount."""
        document = yaml.safe_load(self._kube.kubeconfig.read_text())
        token = self._kube.kubectl("create", "token", account, "--namespace", NAMESPACE).stdout.strip()
        document["users"][0]["user"] = {"token": token}
        path = self._folder / f"{account}-kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path


def name_of(item: dict[str, Any]) -> str:
    name: str = item["metadata"]["name"]
    return name


def secret(kube: RealKube, name: str) -> dict[str, str]:
    """The entries of a Secret; empty if it doesn't exist."""
    data = kube.request("GET", f"{CORE}/secrets/{name}", check=False)[1].get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def pods(kube: RealKube, name: str) -> dict[str, str]:
    """The pods of a job: name → UID. One that was made anew has another UID."""
    return {name_of(pod): pod["metadata"]["uid"] for pod in pods_of(kube, name)}


@contextlib.contextmanager
def installation(kube: RealKube, folder: Path) -> Iterator[Installation]:
    """The bundled Redis with the password that the chart made, and the processes of the release."""
    with real_redis(password=secret(kube, "arranger-redis")["password"], appendonly=True) as redis:
        running = Installation(kube, redis, folder)
        try:
            running.roll()
            yield running
        finally:
            running.close()


def install(helm: Helm, kube: RealKube) -> None:
    """The commands of docs/operations.md for trying things out."""
    kube.kubectl("apply", "-f", str(REPOSITORY / "deploy" / "base" / "namespace.yaml"))
    values = [part for value in VALUES for part in ("--set", value)]
    helm.run("install", "arranger", str(CHART), "--namespace", NAMESPACE, *values)


def test_installed_upgraded_rolled_back_and_removed_while_jobs_run(empty: RealKube, tmp_path: Path) -> None:
    helm = Helm(tmp_path, empty.kubeconfig)
    install(helm, empty)
    password = secret(empty, "arranger-redis")
    with installation(empty, tmp_path) as arranger, kubelets(empty, NodeTemplate("n1", cpu="16")):
        assert len(arranger.workers) == 3
        apply(empty, job("long"))
        await_stage(empty, "Running", "long")
        held = pods(empty, "long")
        assert len(held) == 3

        upgrade(helm, empty, "settings.queue_policy=DRF")
        assert len(arranger.roll()) == 3
        assert arranger.settings()["ARRANGER_QUEUE_POLICY"] == "DRF"
        apply(empty, job("after-upgrade"))
        await_stage(empty, "Running", "after-upgrade")

        helm.run("rollback", "arranger", "1", "--namespace", NAMESPACE)
        assert len(arranger.roll()) == 3
        assert "ARRANGER_QUEUE_POLICY" not in arranger.settings()
        assert secret(empty, "arranger-redis") == password
        apply(empty, job("after-rollback", run_s=0))
        await_stage(empty, "Succeeded", "after-rollback")
        await_undisturbed(empty, held)

        left(helm, empty, arranger)
        assert pods(empty, "long") == held

        # The same release again takes up what the first one left.
        install(helm, empty)
        assert secret(empty, "arranger-redis") == password
        assert len(arranger.roll()) == 3
        await_undisturbed(empty, held)
        finish_leader(empty, "long")
        await_stage(empty, "Succeeded", "long")


def upgrade(helm: Helm, kube: RealKube, *values: str) -> None:
    """The commands of docs/operations.md for an upgrade: the definitions, which Helm leaves alone, and the release."""
    definitions = helm.run("show", "crds", str(CHART)).stdout
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=definitions)
    changes = [part for value in values for part in ("--set", value)]
    helm.run("upgrade", "arranger", str(CHART), "--namespace", NAMESPACE, "--reset-then-reuse-values", *changes)


def await_undisturbed(kube: RealKube, held: dict[str, str]) -> None:
    """The first job still runs, in its first attempt and with its first pods."""
    await_stage(kube, "Running", "long")
    assert pods(kube, "long") == held
    assert status_of(kube, "long").get("restarts", 0) == 0


def left(helm: Helm, kube: RealKube, arranger: Installation) -> None:
    """Uninstall the release: what gives Arranger rights and runs it goes, what belongs to users stays."""
    helm.run("uninstall", "arranger", "--namespace", NAMESPACE)
    arranger.stop()
    ours = ("--selector", "app.kubernetes.io/part-of=arranger", "--all-namespaces", "--output", "name")
    kinds = "deploy,sts,cm,secret,svc,sa,pdb,netpol,clusterrole,clusterrolebinding,validatingadmissionpolicy,queues"
    eventually(
        "only these stay",
        lambda: (
            sorted(kube.kubectl("get", kinds, *ours).stdout.split())
            == ["queue.arranger.dev/team", "secret/arranger-redis"]
        ),
    )
    definitions = kube.kubectl("get", "crd", "--output", "name").stdout.split()
    assert {name.partition("/")[2] for name in definitions} == {
        *("tyjobs.arranger.dev", "queues.arranger.dev", "clusterlogs.arranger.dev")
    }
    assert sorted(kube.kubectl("get", "tyj", "--output", "name").stdout.split()) == [
        "tyjob.arranger.dev/after-rollback",
        "tyjob.arranger.dev/after-upgrade",
        "tyjob.arranger.dev/long",
    ]
