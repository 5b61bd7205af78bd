"""The example of docs/client.md, from top to bottom, on the embedded cluster with Arranger and a server of the API."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import Cluster, cluster_of
from tests.servers import REPOSITORY


@pytest.fixture(params=["embedded"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_of(request, tmp_path, NodeTemplate("node-1", cpu="4")) as running:
        yield running


@pytest.fixture
def server(cluster: Cluster) -> Iterator[str]:
    """The address of `arranger serve` on the cluster's log."""
    argv = [sys.executable, "-m", "arranger.cli.main", "serve", "--port=0", f"--log={cluster.redis_url}"]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://[\w.:]+", process.stdout.readline())
    assert found
    yield found[0]
    process.send_signal(signal.SIGTERM)
    process.wait(30)


def test_the_example_runs_from_top_to_bottom(cluster: Cluster, server: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kube.kubeconfig), "ARRANGER_SERVER": server}
    argv = [sys.executable, "-W", "error", str(REPOSITORY / "examples" / "client.py")]
    done = subprocess.run(
        argv, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "notebook Pending" and lines[1].startswith("Running")
    assert lines[2].split() == ["kubectl", "logs", "notebook-learner-0", "#", "the", "leader", "node-1"]
    assert "3 workers are ready" in lines and "['default']" in lines
    assert [line.split()[1] for line in lines[-3:]].count("StageDecided") and "Placed" in done.stdout
