"""The example of docs/client.md, from top to bottom, on the embedded cluster with Arranger and a server of the API."""

import json
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
from tests.notebook import EXAMPLE, NOTEBOOK, notebook
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


def test_the_notebook_has_the_cells_of_the_example() -> None:
    assert json.loads(NOTEBOOK.read_text()) == notebook(EXAMPLE.read_text()), "python -m tests.notebook writes it"


def test_a_notebooks_cell_shows_what_the_example_ends_its_cells_with(cluster: Cluster, server: str) -> None:
    """Cell by cell, in a running event loop, as Jupyter does; the last expression of a cell is shown as HTML."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kube.kubeconfig), "ARRANGER_SERVER": server}
    argv = [sys.executable, "-W", "error", "-m", "tests.notebook", "--run"]
    done = subprocess.run(
        argv, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "default/notebook runs since" in done.stdout
    assert done.stdout.count('<div style="color:inherit') == 4, "the job, its explanation, the queues and what if"


def test_the_example_runs_from_top_to_bottom(cluster: Cluster, server: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kube.kubeconfig), "ARRANGER_SERVER": server}
    argv = [sys.executable, "-W", "error", str(REPOSITORY / "examples" / "client.py")]
    done = subprocess.run(
        argv, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["notebook-learner-0", "(the", "leader)", "node-1"]
    assert "This pod is simulated: it runs no program and has no logs." in lines
    assert "3 workers are ready" in lines and any(line.startswith("Running ") for line in lines)
    assert [line.split()[1] for line in lines[-3:]].count("StageDecided") and "Placed" in done.stdout
