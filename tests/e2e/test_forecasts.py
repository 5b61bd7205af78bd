"""Forecasts of when waiting jobs start, end to end on both clusters, with kubectl."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.both_clusters import BOTH, Cluster, cluster_of
from tests.e2e.harness import apply, await_stage, eventually, job, status_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one node with 8 cpu, whose process makes a forecast each second."""
    with cluster_of(request, tmp_path, NodeTemplate("node-1", cpu="8"), forecast_every_s="1") as running:
        yield running


def test_kubectl_shows_when_a_job_without_a_reservation_is_expected_to_start(cluster: Cluster) -> None:
    kube = cluster.kube
    apply(kube, job("first", workers=7, priority=9, expectedRuntimeSeconds=3600))
    await_stage(kube, "Running", "first")
    apply(kube, job("second", workers=7, priority=8, expectedRuntimeSeconds=1800))
    eventually("its start is promised", lambda: "expectedStartTime" in status_of(kube, "second"))
    apply(kube, job("third", workers=7, priority=7))
    eventually("its start is forecast", lambda: "expectedStartTime" in status_of(kube, "third"))
    second, third = (datetime.fromisoformat(status_of(kube, name)["expectedStartTime"]) for name in ("second", "third"))
    assert abs(third - second - timedelta(seconds=1800)) < timedelta(seconds=60), "once the second one has ended"
    shown = kube.kubectl("get", "tyj", "third", "-o", "jsonpath={.status.expectedStartTime}").stdout
    assert datetime.fromisoformat(shown) == third
