"""A learner that writes checkpoints, as a real process, on both clusters: it is preempted because it loses the least,
and goes on from where it was asked to stop."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from arranger.model.names import CHECKPOINT_ANNOTATION
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import PATIENCE_S, PODS, apply, await_stage, job, pods_of, status_of
from tests.servers import MERGE, REPOSITORY, KubeServer
from tests.unit.queue_table import GPU

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one node with two GPUs, whose pods take three seconds to stop."""
    with cluster_of(request, tmp_path, NodeTemplate("node-1", cpu="8", gpus=2), stop_s=3.0) as running:
        yield running


class Learner:
    """The program of a job's leader: it runs while the leader's pod does, and gets SIGTERM when that is deleted. Its
    checkpoints are told in an annotation of the pod."""

    def __init__(self, kube: KubeServer, name: str, folder: Path) -> None:
        self._kube, self._name = kube, name
        self.checkpoint = folder / f"{name}.json"
        self._output = folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._uid = self._told = ""

    def follow(self) -> None:
        """Do what a kubelet does, as the pods are now."""
        pods = [pod for pod in pods_of(self._kube, self._name) if pod["status"].get("phase") == "Running"]
        going = any("deletionTimestamp" in pod["metadata"] for pod in pods if pod["metadata"]["uid"] == self._uid)
        if self._process is not None and going:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None
        fresh = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if self._process is None and fresh and fresh[0]["metadata"]["uid"] != self._uid:
            self._uid = fresh[0]["metadata"]["uid"]
            argv = [sys.executable, "-m", "tests.standins.learner", str(self.checkpoint)]
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=output)
        if self._process is not None and fresh and self.checkpoint.exists():
            self._tell(fresh[0]["metadata"]["name"])

    def _tell(self, pod: str) -> None:
        moment = json.loads(self.checkpoint.read_text())["time"]
        told = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if told != self._told:
            self._told = told
            change = {"metadata": {"annotations": {CHECKPOINT_ANNOTATION: told}}}
            self._kube.request("PATCH", f"{PODS}/{pod}", change, content_type=MERGE)

    def until(self, what: str, look: Any) -> None:
        """Follow until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not look():
            self.follow()
            assert time.monotonic() < deadline, f"still not: {what}"
            time.sleep(0.1)

    def said(self, what: str) -> list[int]:
        written = self._output.read_text().splitlines() if self._output.exists() else []
        return [line[what] for line in map(json.loads, written) if what in line]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def with_gpu(made: dict[str, Any]) -> dict[str, Any]:
    container = made["spec"]["leader"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {GPU: "1"}
    return made


def test_the_job_with_the_last_checkpoint_is_preempted_and_goes_on_from_it(cluster: Cluster, tmp_path: Path) -> None:
    kube = cluster.kube
    learner = Learner(kube, "saves", tmp_path)
    try:
        apply(kube, with_gpu(job("saves", workers=0, priority=1)))
        learner.until("it has begun", lambda: learner.said("began") == [0])
        began_s = time.monotonic()
        learner.until("it is older than the other", lambda: time.monotonic() - began_s > 3)
        apply(kube, with_gpu(job("saves-nothing", workers=0, priority=1)))
        await_stage(kube, "Running", "saves-nothing")
        began_s = time.monotonic()
        learner.until("both have work to lose", lambda: time.monotonic() - began_s > 5)
        before = json.loads(learner.checkpoint.read_text())["step"]
        apply(kube, with_gpu(job("high", workers=0, priority=9)))
        learner.until("the other runs", lambda: status_of(kube, "high").get("stage") == "Running")
        assert status_of(kube, "saves")["stage"] == "Rescheduling"
        assert status_of(kube, "saves-nothing")["stage"] == "Running"
        [stopped] = learner.said("stopped")
        assert stopped >= before > 0, "it was asked to stop, and had time to save its work"
        kube.kubectl("delete", "tyj", "high")
        learner.until("it is back", lambda: len(learner.said("began")) == 2)
        assert learner.said("began") == [0, stopped], "nothing is lost"
        learner.until("it runs", lambda: status_of(kube, "saves")["stage"] == "Running")
        assert (status_of(kube, "saves")["attempt"], status_of(kube, "saves")["restarts"]) == (1, 0)
    finally:
        learner.close()
