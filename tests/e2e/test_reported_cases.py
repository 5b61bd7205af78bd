"""Cases of public bug reports on a real API server: real processes decide what is right."""

import time
from pathlib import Path

import pytest

from arranger.model.text import rfc3339
from tests.further_cases import FURTHER
from tests.live_cases import live
from tests.reported_cases import CASES, NOW_MS, Case, is_right
from tests.servers import MERGE, RealKube, RealRedis

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


_ELASTIC = next(case for case in FURTHER if case.name == "further workers in reserved room")


def _ends(kube: RealKube, pod: str) -> None:
    """The pod's program has finished well."""
    done = {"terminated": {"exitCode": 0, "finishedAt": rfc3339(time.time_ns() // 10**6)}}
    of_container = {"name": "c", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": done}
    status = {"phase": "Succeeded", "containerStatuses": [of_container]}
    kube.request("PATCH", f"/api/v1/namespaces/default/pods/{pod}/status", {"status": status}, content_type=MERGE)


@pytest.mark.parametrize("least", [1, 2], ids=["surplus", "quorum"])
def test_further_workers_in_reserved_room_leave_once_the_host_can_start(
    least: int, kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    """Their job runs on without them, unless its quorum needs one of them by then: it leaves as a whole."""
    objects = [item for each in _ELASTIC.objects for item in each]
    with live(kube, redis, objects, tmp_path, now_ms=NOW_MS) as there:
        guests = there.settled()
        if least > 1:
            path = "/apis/arranger.dev/v1/namespaces/default/tyjobs/elastic"
            workers = {
                **next(item for item in objects if item["metadata"]["name"] == "elastic")["spec"]["workerSets"][0]
            }
            kube.request("PATCH", path, {"spec": {"workerSets": [workers | {"minCount": least}]}}, content_type=MERGE)
            assert there.settled().gave == set()
        _ends(kube, "endless-w-0")
        outcome = there.settled()
    assert sorted(guests.nodes["elastic"]) == ["n2", "n3"] and not guests.nodes["gang"], guests
    assert sorted(outcome.nodes["gang"]) == ["n1", "n2", "n3"], outcome
    assert outcome.nodes["elastic"] == [], outcome
    assert outcome.gave == ({"elastic"} if least > 1 else set()), outcome
