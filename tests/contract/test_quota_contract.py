"""What an API server makes of ResourceQuotas: pods beyond them are refused, in words that Arranger's users read.

A bare API server counts what is used when a pod is created, but nothing that a quota controller does: these tests write
the status that one would write, which the embedded cluster does by itself.
"""

import asyncio
from typing import Any

import pytest

from arranger.kube.cluster import PODS, QUOTAS, ApiError, Object
from tests.contract.test_cluster_contract import Place, Subject, pod, refused, subject  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(120)
Amounts = dict[str, str]


def asking(name: str, requests: Amounts | None = None, limits: Amounts | None = None, **spec: Any) -> Object:
    """A pod of one container with these resources."""
    found = pod(name, **spec)
    found["spec"]["containers"][0]["resources"] = {"requests": requests or {}, "limits": limits or {}}
    return found


async def with_quota(place: Place, name: str, hard: Amounts, used: Amounts, **spec: Any) -> None:
    """A quota, with the status that its controller would give it."""
    await place.cluster.create(QUOTAS, place.namespace, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
    status = {"hard": hard, "used": used}
    await place.cluster.patch(QUOTAS, place.namespace, name, {"status": status}, subresource="status")


async def refusal(place: Place, body: Object) -> ApiError:
    """What is said to a pod once admission has heard of the quota."""
    name = body["metadata"]["name"]
    for attempt in range(500):
        body["metadata"]["name"] = f"{name}-{attempt}"
        try:
            await place.cluster.create(PODS, place.namespace, body)
        except ApiError as error:
            return error
        await place.cluster.delete(PODS, place.namespace, body["metadata"]["name"], grace_s=0)
        await asyncio.sleep(0.02)
    pytest.fail("nobody refused it")


async def used(place: Place, name: str) -> Amounts:
    found: Amounts = (await place.cluster.get(QUOTAS, place.namespace, name))["status"]["used"]
    return found


async def test_a_pod_beyond_a_quota_is_refused_and_told_what_is_used(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        hard = {"requests.cpu": "1500m", "requests.memory": "4Gi", "pods": "9", "requests.example.com/gpu": "1"}
        nothing = dict.fromkeys(hard, "0")
        await with_quota(place, "compute", hard, nothing)
        asked = {"cpu": "2", "memory": "1Gi", "example.com/gpu": "2"}
        error = await refusal(place, asking("large", asked, {"example.com/gpu": "2"}))
        assert (error.code, error.reason) == (403, "Forbidden")
        assert error.detail.partition(" is forbidden: ")[2] == (
            "exceeded quota: compute, requested: requests.cpu=2,requests.example.com/gpu=2, "
            "used: requests.cpu=0,requests.example.com/gpu=0, limited: requests.cpu=1500m,requests.example.com/gpu=1"
        )
        assert await used(place, "compute") == nothing


async def test_a_pod_counts_from_the_moment_in_which_it_is_created(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await with_quota(place, "few", {"pods": "1", "limits.cpu": "8"}, {"pods": "0", "limits.cpu": "0"})
        await refusal(place, asking("over", {}, {"cpu": "9"}))
        await place.cluster.create(PODS, place.namespace, asking("first", {}, {"cpu": "1"}))
        assert await used(place, "few") == {"pods": "1", "limits.cpu": "1"}
        with refused(403, "Forbidden", "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"):
            await place.cluster.create(PODS, place.namespace, asking("second", {}, {"cpu": "1"}))
        with refused(403, "Forbidden", "exceeded quota: few"):  # and not 409: admission comes first
            await place.cluster.create(PODS, place.namespace, asking("first", {}, {"cpu": "1"}))


async def test_what_a_quota_names_every_container_must_declare(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        hard = {"limits.cpu": "8", "requests.memory": "8Gi"}
        await with_quota(place, "compute", hard, dict.fromkeys(hard, "0"))
        error = await refusal(place, asking("plain"))
        assert error.code == 403
        expected = "failed quota: compute: must specify limits.cpu for: main; requests.memory for: main"
        assert error.detail.partition(" is forbidden: ")[2] == expected


async def test_a_quota_that_nobody_has_counted_refuses_every_pod(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        body = {"metadata": {"name": "new"}, "spec": {"hard": {"pods": "5"}}}
        await place.cluster.create(QUOTAS, place.namespace, body)
        status = {"hard": {"pods": "5", "requests.cpu": "1"}, "used": {"pods": "5", "requests.cpu": None}}
        await place.cluster.patch(QUOTAS, place.namespace, "new", {"status": status}, subresource="status")
        if (await place.cluster.get(QUOTAS, place.namespace, "new"))["status"]["hard"] == {"pods": "5"}:
            return  # it is counted at once here
        error = await refusal(place, asking("any", {"cpu": "1"}))
        assert error.detail.endswith("status unknown for quota: new, resources: pods,requests.cpu")


@pytest.mark.parametrize(
    ("scopes", "covered", "free"),
    [
        ({"scopes": ["BestEffort"]}, asking("p"), asking("q", {"cpu": "1"})),
        ({"scopes": ["NotBestEffort"]}, asking("p", {"cpu": "1"}), asking("q")),
        ({"scopes": ["Terminating"]}, asking("p", activeDeadlineSeconds=5), asking("q")),
        ({"scopes": ["NotTerminating"]}, asking("p"), asking("q", activeDeadlineSeconds=5)),
    ],
)
async def test_a_quota_of_a_scope_counts_only_its_pods(
    subject: Subject,  # noqa: F811
    scopes: dict[str, Any],
    covered: Object,
    free: Object,
) -> None:
    async with subject.open() as place:
        await with_quota(place, "some", {"pods": "0"}, {"pods": "0"}, **scopes)
        assert (await refusal(place, covered)).code == 403
        await place.cluster.create(PODS, place.namespace, free)


async def test_a_resource_that_a_pod_does_not_use_may_be_overdrawn(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        hard = {"requests.example.com/gpu": "0", "pods": "5", "requests.cpu": "1"}
        await with_quota(place, "over", hard, dict.fromkeys(hard, "0"))
        await refusal(place, asking("over", {"cpu": "2"}))
        await place.cluster.create(PODS, place.namespace, asking("small", {"cpu": "1"}))
        assert await used(place, "over") == {"requests.example.com/gpu": "0", "pods": "1", "requests.cpu": "1"}


async def test_a_dry_run_is_judged_as_a_creation_and_neither_stored_nor_counted(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await with_quota(place, "compute", {"limits.cpu": "4"}, {"limits.cpu": "0"})
        refusal_of = await refusal(place, asking("first"))
        with pytest.raises(ApiError) as tried:
            await place.cluster.try_create(PODS, place.namespace, asking("without"))
        assert (tried.value.code, tried.value.reason) == (403, "Forbidden")
        told = [error.detail.partition(" is forbidden: ")[2] for error in (refusal_of, tried.value)]
        assert told[0] == told[1] == "failed quota: compute: must specify limits.cpu for: main"
        await place.cluster.try_create(PODS, place.namespace, asking("with", limits={"cpu": "1"}))
        with pytest.raises(ApiError) as absent:
            await place.cluster.get(PODS, place.namespace, "with")
        assert absent.value.code == 404 and await used(place, "compute") == {"limits.cpu": "0"}
        await place.cluster.create(PODS, place.namespace, asking("with", limits={"cpu": "1"}))
        with pytest.raises(ApiError) as taken:
            await place.cluster.try_create(PODS, place.namespace, asking("with", limits={"cpu": "1"}))
        assert (taken.value.code, taken.value.reason) == (409, "AlreadyExists")
        with pytest.raises(ApiError) as invalid:
            await place.cluster.try_create(PODS, place.namespace, {**pod("bad"), "spec": {"containers": []}})
        assert invalid.value.code == 422
