"""Failovers of a Redis that Sentinels watch, under load; `python -m tests.failovers` kills more often."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import _required
from tests.depth import extent
from tests.failovers import LAGS_S, fail_overs
from tests.sentinels import WatchedRedis, watched_redis
from tests.servers import RealKube


@pytest.fixture
def group() -> Iterator[WatchedRedis]:
    with _required(), watched_redis() as running:
        yield running


@pytest.mark.timeout(600)
def test_a_primary_that_is_killed_again_and_again_costs_no_pod(
    kube: RealKube, group: WatchedRedis, tmp_path: Path
) -> None:
    result = fail_overs(kube, group, tmp_path, LAGS_S[: extent(3, soak=10)])
    assert result.faults == []
    assert sum(kill.lost for kill in result.kills) > 0
