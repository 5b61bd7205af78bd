"""Cases of public bug reports on a real API server: real processes decide what is right."""

from pathlib import Path

import pytest

from tests.further_cases import FURTHER
from tests.live_cases import live
from tests.reported_cases import CASES, NOW_MS, Case, is_right
from tests.servers import RealKube, RealRedis

_FLAGS = {"--backfill": "backfill"}


@pytest.mark.parametrize("case", [*CASES, *(case for case in FURTHER if case.live)], ids=lambda case: case.name)
def test_a_case_is_decided_rightly(case: Case, kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    objects = [item for each in case.objects for item in each]
    settings = {_FLAGS[name]: value for name, value in zip(case.flags[::2], case.flags[1::2], strict=True)}
    with live(kube, redis, objects, tmp_path, now_ms=NOW_MS, **settings) as there:
        outcome = there.settled()
    for name, expected in case.plan.items():
        assert is_right(expected, outcome.nodes.get(name, [])), (case.right, outcome)
    if isinstance(case.give, int):
        assert len(outcome.gave) == case.give, (case.right, outcome)
    else:
        assert outcome.gave == case.give, (case.right, outcome)
