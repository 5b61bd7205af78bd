"""LimitRanges, and what they add to pods, held against a real API server and the embedded one alike."""

from typing import Any

import pytest

from arranger.kube.cluster import LIMIT_RANGES, PODS, Object
from arranger.kube.translate import limit_range_seen
from arranger.model.template import declared_needs, effective_limits, effective_requests, needs_with, qos_with
from tests.contract.test_cluster_contract import (  # noqa: F401 - fixtures
    Place,
    Subject,
    pod,
    refused,
    subject,
    unique,
)

pytestmark = pytest.mark.timeout(120)


async def limited(place: Place, *items: Object) -> Object:
    """A new LimitRange as it is stored."""
    name = unique("limits")
    given = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": list(items)}}
    return await place.cluster.create(LIMIT_RANGES, place.namespace, given)


def of_containers(**more: Any) -> Object:
    return {"type": "Container", **more}


def container(**resources: Any) -> Object:
    return {"name": "main", "image": "image", "resources": resources}


@pytest.mark.parametrize(
    ("given", "default", "request_"),
    [
        ({"defaultRequest": {"cpu": "4"}}, None, {"cpu": "4"}),
        ({"default": {"cpu": "4"}}, {"cpu": "4"}, {"cpu": "4"}),
        ({"max": {"cpu": "5000m"}}, {"cpu": "5"}, {"cpu": "5"}),
        ({"min": {"cpu": "1"}}, None, {"cpu": "1"}),
        ({"min": {"cpu": "1"}, "max": {"cpu": "5"}}, {"cpu": "5"}, {"cpu": "5"}),
        (
            {"min": {"cpu": "1"}, "max": {"memory": "2Gi"}, "default": {"cpu": "3"}, "defaultRequest": {"cpu": "2"}},
            {"cpu": "3", "memory": "2Gi"},
            {"cpu": "2", "memory": "2Gi"},
        ),
    ],
)
async def test_defaults_follow_from_each_other_and_from_bounds(
    subject: Subject,  # noqa: F811
    given: Object,
    default: Object | None,
    request_: Object,
) -> None:
    async with subject.open() as place:
        stored = await limited(place, of_containers(**given), {"type": "Pod", "max": {"cpu": "9"}})
        of, other = stored["spec"]["limits"]
        assert (of.get("default"), of.get("defaultRequest")) == (default, request_)
        assert other == {"type": "Pod", "max": {"cpu": "9"}}


DEFAULTS = of_containers(
    default={"cpu": "3", "memory": "2Gi", "example.org/x": "1"}, defaultRequest={"cpu": "2", "memory": "1Gi"}
)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container()]},
        {"containers": [container(requests={"cpu": "1"})]},
        {"containers": [container(requests={"cpu": "0"})]},
        {"containers": [container(requests={"cpu": "0"}, limits={"cpu": "1", "memory": "1Gi"})]},
        {"containers": [container(limits={"cpu": "1", "memory": "1Gi"})]},
        {"containers": [container(limits={"cpu": "2500m"})]},
        {"containers": [container(limits={"cpu": "4"}, requests={"memory": "3Mi"})]},
        {"containers": [container(requests={"cpu": "1"}), container() | {"name": "other"}]},
        {"containers": [container(requests={"cpu": "1"})], "initContainers": [container() | {"name": "init"}]},
        {
            "containers": [container(requests={"cpu": "1"})],
            "initContainers": [container() | {"name": "sidecar", "restartPolicy": "Always"}],
        },
    ],
)
async def test_containers_get_what_they_dont_name_and_plans_have_it(subject: Subject, spec: Object) -> None:  # noqa: F811
    async with subject.open() as place:
        seen = limit_range_seen(await limited(place, DEFAULTS), 1)
        created = await place.cluster.create(PODS, place.namespace, pod(unique("pod"), **spec))
        found = effective_requests(created["spec"]), effective_limits(created["spec"])
        assert found == needs_with(declared_needs(spec), seen.defaults)
        assert created["status"]["qosClass"] == qos_with(declared_needs(spec), seen.defaults)


async def test_a_container_has_its_own_limit_as_its_request_and_not_the_default(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await limited(place, of_containers(defaultRequest={"cpu": "1"}))
        asked = pod(unique("pod"), containers=[container(limits={"cpu": "2"})])
        created = await place.cluster.create(PODS, place.namespace, asked)
        assert created["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
        assert created["status"]["qosClass"] == "Burstable"


async def test_a_pod_that_names_less_for_itself_than_its_containers_get_is_refused(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await limited(place, of_containers(defaultRequest={"cpu": "4"}))
        asked = pod(unique("pod"), resources={"requests": {"cpu": "1"}})
        with refused(422, "Invalid", "must be greater than or equal to aggregate container requests of 4"):
            await place.cluster.create(PODS, place.namespace, asked)


async def test_a_namespace_without_a_limit_range_isnt_limited_by_another(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place, subject.open() as other:
        await limited(other, of_containers(defaultRequest={"cpu": "4"}))
        created = await place.cluster.create(PODS, place.namespace, pod(unique("pod")))
        assert created["spec"]["containers"][0]["resources"] == {}


async def test_a_malformed_amount_is_refused(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        with refused(400, "BadRequest", "cannot be handled as a LimitRange"):
            await limited(place, of_containers(defaultRequest={"cpu": "four"}))
