"""The two versions of TYJobs: v1 for users, v1status for the statuses that Arranger writes, on real and embedded."""

import json
from pathlib import Path
from typing import Any

import pytest

from arranger.kube.cluster import TYJOB_STATUSES, TYJOBS, Object
from tests.contract.test_cluster_contract import (  # noqa: F401 - fixtures
    Place,
    Subject,
    changes_until,
    listed,
    now,
    refused,
    subject,
    tyjob,
)
from tests.e2e.harness import EmbeddedKube
from tests.servers import KubeServer

pytestmark = pytest.mark.timeout(120)


async def with_status(place: Place, status: dict[str, Any]) -> Object:
    """The status of the job `a`, stored in the version for statuses."""
    return await place.cluster.patch(TYJOB_STATUSES, place.namespace, "a", {"status": status}, subresource="status")


async def test_a_status_of_either_version_is_the_same_objects_status(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, tyjob("a", priority=3))
        written = await with_status(place, {"stage": "Running"})
        assert (written["apiVersion"], written["kind"]) == ("arranger.dev/v1status", "TYJob")
        assert written["spec"] == created["spec"]
        read = await place.cluster.get(TYJOBS, place.namespace, "a")
        assert read["apiVersion"] == "arranger.dev/v1" and read["status"] == {"stage": "Running"}
        for name in ("uid", "generation", "resourceVersion"):
            assert read["metadata"][name] == written["metadata"][name]
        assert read["metadata"]["generation"] == created["metadata"]["generation"]
        assert await with_status(place, {"stage": "Running"}) == written  # nothing new


async def test_every_version_lists_and_watches_all_objects_as_its_own(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        start = await now(place.cluster, TYJOB_STATUSES)
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await with_status(place, {"stage": "Running"})
        await place.cluster.delete(TYJOB_STATUSES, place.namespace, "a")
        await place.cluster.create(TYJOBS, place.namespace, tyjob("b"))
        for resource in (TYJOBS, TYJOB_STATUSES):
            changes = await changes_until(place, resource, start, count=4)
            assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
            assert {change.object["apiVersion"] for change in changes} == {resource.api_version}
            assert await listed(place.cluster, resource, place.namespace) == ["b"]
            assert (await place.cluster.get(resource, place.namespace, "b"))["apiVersion"] == resource.api_version


async def test_the_version_for_statuses_checks_no_status_but_v1_shows_only_fields_of_its_own(
    subject: Subject,  # noqa: F811
) -> None:
    async with subject.open() as place:
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await with_status(place, {"stage": "Nowhere", "noSuchField": 1})
        assert (await place.cluster.get(TYJOBS, place.namespace, "a"))["status"] == {"stage": "Nowhere"}


async def test_no_job_is_created_in_the_version_for_statuses(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        job = {**tyjob("a"), "apiVersion": "arranger.dev/v1status"}
        with refused(422, "Invalid", "create TYJobs as arranger.dev/v1;"):
            await place.cluster.create(TYJOB_STATUSES, place.namespace, job)
        assert await listed(place.cluster, TYJOBS, place.namespace) == []


#: Ways to change a spec. The last but one exchanges a field for another, and the last one for an unknown one.
_CHANGES: list[dict[str, Any]] = [
    {"priority": 99},
    {"priority": None},
    {"leader": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}},
    {"workerSets": []},
    {"suspend": True},
    {"priority": None, "queue": "other"},
    {"priority": None, "noSuchField": 5},
]


@pytest.mark.parametrize("change", _CHANGES, ids="+".join)
async def test_no_spec_is_changed_in_the_version_for_statuses(
    change: dict[str, Any],
    subject: Subject,  # noqa: F811
) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, tyjob("a", priority=3))
        with refused(422, "Invalid", "spec", "change TYJobs as arranger.dev/v1;"):
            await place.cluster.patch(TYJOB_STATUSES, place.namespace, "a", {"spec": change})
        with refused(422, "Invalid", "spec: Required value"):
            await place.cluster.patch(TYJOB_STATUSES, place.namespace, "a", {"spec": None})
        assert (await place.cluster.get(TYJOBS, place.namespace, "a")) == created


async def test_a_started_job_keeps_its_template_whichever_version_told_the_start(
    subject: Subject,  # noqa: F811
) -> None:
    async with subject.open() as place:
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await with_status(place, {"stage": "Running"})
        template = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
        with refused(422, "Invalid", "spec.leader", "can't be changed once the job has started"):
            await place.cluster.patch(TYJOBS, place.namespace, "a", {"spec": {"leader": {"template": template}}})
        # The status that is written along is ignored, and neither version's spec is.
        both = {"spec": {"priority": 5}, "status": {"stage": "Succeeded"}}
        written = await place.cluster.patch(TYJOB_STATUSES, place.namespace, "a", both, subresource="status")
        assert (written["spec"].get("priority", 0), written["status"]["stage"]) == (0, "Succeeded")


async def test_a_version_conflicts_with_a_change_through_the_other(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await place.cluster.patch(TYJOBS, place.namespace, "a", {"spec": {"priority": 2}})
        based_on = {"resourceVersion": created["metadata"]["resourceVersion"]}
        patch = {"metadata": based_on, "status": {"stage": "Running"}}
        with refused(409, "Conflict"):
            await place.cluster.patch(TYJOB_STATUSES, place.namespace, "a", patch, subresource="status")
        with refused(404, "NotFound", '"b"'):
            await place.cluster.patch(TYJOB_STATUSES, place.namespace, "b", {"status": {}}, subresource="status")


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.real), "embedded"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A server for kubectl, of either kind."""
    if request.param == "real":
        yield request.getfixturevalue("kube_server")
        return
    embedded = EmbeddedKube(tmp_path)
    yield embedded
    embedded.close()


def test_clients_prefer_v1(server: KubeServer) -> None:
    group = server.request("GET", "/apis/arranger.dev")[1]
    assert [each["version"] for each in group["versions"]] == ["v1", "v1status"]
    assert group["preferredVersion"]["version"] == "v1"
    [told, status] = server.request("GET", "/apis/arranger.dev/v1status")[1]["resources"]
    assert (told["name"], status["name"]) == ("tyjobs", "tyjobs/status")
    assert server.request("GET", "/apis/arranger.dev/v1status/tyjobs/a/scale", check=False)[0] == 404
    explained = server.kubectl("explain", "tyjobs.spec").stdout
    assert "VERSION:    v1\n" in explained and "workerSets" in explained
    found = json.loads(server.kubectl("get", "tyjobs", "-o", "json").stdout)
    assert {item["apiVersion"] for item in found["items"]} <= {"arranger.dev/v1"}
    assert "tyjobs" in server.kubectl("api-resources", "--api-group=arranger.dev").stdout
