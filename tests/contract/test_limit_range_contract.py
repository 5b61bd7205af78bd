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


BOUNDS = (
    of_containers(
        min={"cpu": "1", "memory": "1Mi"},
        max={"cpu": "4", "nvidia.com/gpu": "2"},
        maxLimitRequestRatio={"cpu": "2"},
        default={"cpu": "2", "memory": "64Mi", "nvidia.com/gpu": "1"},
    ),
    {"type": "Pod", "min": {"memory": "2Mi"}, "max": {"cpu": "6"}},
)


def gpu(count: int) -> Object:
    return container(limits={"nvidia.com/gpu": str(count)})


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"containers": [gpu(3)]}, ["maximum nvidia.com/gpu usage per Container is 2, but limit is 3"]),
        (
            {"containers": [container(limits={"cpu": "5"})]},
            ["maximum cpu usage per Container is 4, but limit is 5"],
        ),
        (
            {"containers": [container(requests={"cpu": "500m"})]},
            ["minimum cpu usage per Container is 1, but request is 500m", "but provided ratio is 4.000000"],
        ),
        (
            {"containers": [container(limits={"cpu": "500m", "memory": "100Ki"})]},
            ["minimum cpu usage per Container is 1, but request is 500m", "per Container is 1Mi, but request is 100Ki"],
        ),
        (
            {"containers": [container(requests={"cpu": "1"}, limits={"cpu": "3"})]},
            ["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        ),
        (
            {"containers": [container(requests={"cpu": "0"})]},
            ["cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"],
        ),
        (
            {"containers": [gpu(1) | {"name": name} for name in "abcd"]},
            ["maximum cpu usage per Pod is 6, but limit is 8"],
        ),
        (
            {"containers": [gpu(1)], "initContainers": [container(limits={"cpu": "5"}) | {"name": "init"}]},
            ["maximum cpu usage per Container is 4, but limit is 5"],
        ),
        (
            {"containers": [container(limits={"memory": "1Mi"})]},
            ["minimum memory usage per Pod is 2Mi, but request is 1Mi"],
        ),
    ],
)
async def test_pods_outside_of_the_bounds_are_refused(subject: Subject, spec: Object, why: list[str]) -> None:  # noqa: F811
    async with subject.open() as place:
        await limited(place, *BOUNDS)
        name = unique("pod")
        with refused(403, "Forbidden", f'pods "{name}" is forbidden: ', *why):
            await place.cluster.create(PODS, place.namespace, pod(name, **spec))
        with refused(404, "NotFound"):
            await place.cluster.get(PODS, place.namespace, name)


async def test_a_bound_without_a_default_asks_for_an_amount(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await limited(place, {"type": "Pod", "min": {"cpu": "1"}, "max": {"memory": "1Gi"}})
        words = "minimum cpu usage per Pod is 1.  No request is specified", "No limit is specified"
        with refused(403, "Forbidden", *words):
            await place.cluster.create(PODS, place.namespace, pod(unique("pod")))
        fits = container(requests={"cpu": "1"}, limits={"memory": "1Gi"})
        assert await place.cluster.create(PODS, place.namespace, pod(unique("pod"), containers=[fits]))


async def test_a_pod_within_the_bounds_is_created(subject: Subject) -> None:  # noqa: F811
    async with subject.open() as place:
        await limited(place, *BOUNDS)
        assert await place.cluster.create(PODS, place.namespace, pod(unique("pod"), containers=[gpu(2)]))
