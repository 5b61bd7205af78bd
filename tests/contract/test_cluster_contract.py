"""What workers may rely on from a cluster, held against a real API server and the embedded ones alike.

Where they disagree, the real one is right. Garbage collection by owner references is the work of a controller manager,
which the bare API server of these tests doesn't have, so only the embedded clusters are asked for that.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    TYJOBS,
    ApiError,
    Cluster,
    Expired,
    Object,
    Resource,
    WatchEvent,
    Withdrawn,
)
from arranger.kube.config import find_access
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.embedded import EmbeddedCluster
from tests.servers import CRD_FILES, RealKube
from tests.stores import store_of_jobs

pytestmark = pytest.mark.timeout(120)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """A cluster under test, a namespace that is this test's own, and a way to make its history expire."""

    cluster: Cluster
    namespace: str
    forget_history: Callable[[], None]


class RealSubject:
    """The HTTP client on a real API server."""

    def __init__(self, server: RealKube) -> None:
        self.server = server

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Place]:
        """A client for one test."""
        cluster = HttpCluster(find_access(self.server.kubeconfig))
        try:
            namespace = await asyncio.to_thread(self.server.fresh_namespace)
            yield Place(cluster, namespace, self.server.forget_history)
        finally:
            await cluster.close()


class EmbeddedSubject:
    """The HTTP client on the embedded cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Place]:
        """An embedded cluster for one test, without nodes, so that no simulated kubelet meddles."""
        async with EmbeddedCluster(crds=CRD_FILES, bookmark_s=2) as embedded:
            cluster = HttpCluster(find_access(embedded.kubeconfig(self._folder / "kubeconfig")))
            try:
                embedded.store.create(NAMESPACES, "", {"metadata": {"name": "test"}})
                yield Place(cluster, "test", embedded.store.compact)
            finally:
                await cluster.close()


class DirectSubject:
    """The in-memory client on the embedded cluster's store."""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Place]:
        """A store for one test."""
        store = store_of_jobs(time.time)
        store.create(NAMESPACES, "", {"metadata": {"name": "test"}})
        yield Place(DirectCluster(store), "test", store.compact)


class Subject(Protocol):
    """Something that is held to the contract."""

    def open(self) -> contextlib.AbstractAsyncContextManager[Place]:
        """A cluster for one test, in that test's event loop."""
        ...


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.real), "embedded", "direct"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    """Whatever is held to the contract."""
    if request.param == "real":
        return RealSubject(request.getfixturevalue("kube_server"))
    return EmbeddedSubject(tmp_path) if request.param == "embedded" else DirectSubject()


@pytest.fixture(params=["embedded", "direct"])
def collector(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    """Whatever collects garbage; the bare API server, without a controller manager, doesn't."""
    return EmbeddedSubject(tmp_path) if request.param == "embedded" else DirectSubject()


def unique(prefix: str) -> str:
    """A name that no other test of this session uses, for what lives outside namespaces."""
    return f"{prefix}-{next(_numbers)}"


def pod(name: str, *, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod of one container, on a node if one is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "image"}], **({"nodeName": node} if node else {}), **spec},
    }


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def tyjob(name: str, **spec: Any) -> Object:
    """A TYJob of a leader and one set of two workers; `spec` overrides."""

    def template() -> Object:
        return {"spec": {"containers": [{"name": "main", "image": "image"}]}}

    return {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": name},
        "spec": {
            "leader": {"name": "leader", "template": template()},
            "workerSets": [{"name": "actor", "counts": 2, "template": template()}],
            **spec,
        },
    }


def version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])


async def now(cluster: Cluster, resource: Resource) -> str:
    """The resourceVersion of the present."""
    return [page.resource_version async for page in cluster.listing(resource)][-1]


async def listed(cluster: Cluster, resource: Resource, namespace: str) -> list[str]:
    """The names in one namespace."""
    pages = [page async for page in cluster.listing(resource)]
    items = [item for page in pages for item in page.items]
    return sorted(item["metadata"]["name"] for item in items if item["metadata"].get("namespace") == namespace)


async def gone(place: Place, resource: Resource, name: str) -> None:
    """Wait until an object isn't there any more."""
    for _ in range(1000):
        if name not in await listed(place.cluster, resource, place.namespace):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"{name} is still there")


async def changes_until(place: Place, resource: Resource, start: str, *, count: int) -> list[WatchEvent]:
    """The first so many changes of this test's namespace after a version, bookmarks left out."""
    seen: list[WatchEvent] = []
    async for changes in place.cluster.watch(resource, start, timeout_s=30):
        for change in changes:
            if change.type != "BOOKMARK" and change.object["metadata"].get("namespace") == place.namespace:
                seen.append(change)
        if len(seen) >= count:
            break
    return seen


@contextlib.contextmanager
def refused(code: int, reason: str, *words: str):  # type: ignore[no-untyped-def]
    """The call inside is refused with this code and reason, and a message that has these words."""
    with pytest.raises(ApiError) as caught:
        yield
    assert (caught.value.code, caught.value.reason) == (code, reason), str(caught.value)
    for word in words:
        assert word in caught.value.detail


async def test_a_created_object_has_an_identity_and_reads_back_the_same(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(PODS, place.namespace, pod("a", labels={"x": "y"}))
        assert created["metadata"]["uid"] and version(created) and created["metadata"]["creationTimestamp"]
        assert created["metadata"]["namespace"] == place.namespace
        assert created["apiVersion"] == "v1" and created["kind"] == "Pod"
        assert created["status"]["phase"] == "Pending"
        assert await place.cluster.get(PODS, place.namespace, "a") == created


async def test_a_taken_name_is_refused(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(PODS, place.namespace, pod("a"))
        with refused(409, "AlreadyExists", '"a"'):
            await place.cluster.create(PODS, place.namespace, pod("a", labels={"other": "yes"}))


async def test_a_creation_that_is_no_longer_wanted_at_the_last_moment_creates_nothing(subject: Subject) -> None:
    async with subject.open() as place:
        with pytest.raises(Withdrawn):
            await place.cluster.create(PODS, place.namespace, pod("a"), still=lambda: False)
        with refused(404, "NotFound", '"a"'):
            await place.cluster.get(PODS, place.namespace, "a")
        await place.cluster.create(PODS, place.namespace, pod("a"), still=lambda: True)


async def test_whoever_is_stopped_before_the_body_of_a_request_is_written_is_asked_again_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, wanted = aiohttp.ClientRequest.send, [True]

    async def stopped_meanwhile(request: aiohttp.ClientRequest, connection: Any) -> Any:
        wanted[0] = False
        return await send(request, connection)

    async with EmbeddedSubject(tmp_path).open() as place:
        with monkeypatch.context() as patched:
            patched.setattr(aiohttp.ClientRequest, "send", stopped_meanwhile)
            with pytest.raises(Withdrawn):
                await place.cluster.create(PODS, place.namespace, pod("a"), still=lambda: wanted[0])
        with refused(404, "NotFound", '"a"'):
            await place.cluster.get(PODS, place.namespace, "a")
        await place.cluster.create(PODS, place.namespace, pod("a"), still=lambda: True)


async def test_whoever_is_stopped_while_a_connection_comes_about_is_asked_again_before_the_request_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, wanted = aiohttp.TCPConnector.connect, [True]

    async def stopped_meanwhile(*given: Any) -> Any:
        connection = await connect(*given)
        wanted[0] = False
        return connection

    async with EmbeddedSubject(tmp_path).open() as place:
        monkeypatch.setattr(aiohttp.TCPConnector, "connect", stopped_meanwhile)
        with pytest.raises(Withdrawn):
            await place.cluster.create(PODS, place.namespace, pod("a"), still=lambda: wanted[0])
        with refused(404, "NotFound", '"a"'):
            await place.cluster.get(PODS, place.namespace, "a")


async def test_what_is_not_there_is_not_found_by_any_verb(subject: Subject) -> None:
    async with subject.open() as place:
        with refused(404, "NotFound", '"a"'):
            await place.cluster.get(PODS, place.namespace, "a")
        with refused(404, "NotFound"):
            await place.cluster.patch(PODS, place.namespace, "a", {"metadata": {"labels": {"x": "y"}}})
        with refused(404, "NotFound"):
            await place.cluster.patch(PODS, place.namespace, "a", {"status": {}}, subresource="status")
        with refused(404, "NotFound"):
            await place.cluster.delete(PODS, place.namespace, "a")


async def test_a_namespace_that_is_not_there_takes_nothing(subject: Subject) -> None:
    async with subject.open() as place:
        with refused(404, "NotFound", "no-such-namespace"):
            await place.cluster.create(PODS, "no-such-namespace", pod("a"))
        with refused(404, "NotFound", "no-such-namespace"):
            await place.cluster.create(TYJOBS, "no-such-namespace", tyjob("a"))


async def test_an_invalid_object_is_refused_with_the_field(subject: Subject) -> None:
    async with subject.open() as place:
        broken = pod("a")
        broken["spec"]["containers"] = []
        with refused(422, "Invalid", "spec.containers"):
            await place.cluster.create(PODS, place.namespace, broken)
        with refused(422, "Invalid", "metadata.name"):
            await place.cluster.create(PODS, place.namespace, pod("Not_A_Name"))


async def test_an_object_of_no_namespace_is_created_read_changed_and_deleted(subject: Subject) -> None:
    async with subject.open() as place:
        name = unique("node")
        created = await place.cluster.create(NODES, None, node(name))
        assert "namespace" not in created["metadata"]
        cordoned = await place.cluster.patch(NODES, None, name, {"spec": {"unschedulable": True}})
        assert cordoned["spec"]["unschedulable"] is True
        free = {"capacity": {"cpu": "8", "nvidia.com/gpu": "4"}, "allocatable": {"cpu": "7500m", "nvidia.com/gpu": "4"}}
        await place.cluster.patch(NODES, None, name, {"status": free}, subresource="status")
        assert (await place.cluster.get(NODES, None, name))["status"]["allocatable"]["cpu"] == "7500m"
        await place.cluster.delete(NODES, None, name)
        with refused(404, "NotFound"):
            await place.cluster.get(NODES, None, name)


async def test_a_tyjob_gets_the_defaults_of_its_schema(subject: Subject) -> None:
    async with subject.open() as place:
        spec = (await place.cluster.create(TYJOBS, place.namespace, tyjob("a")))["spec"]
        expected = {"restartLimit": 3, "cleanPodPolicy": None, "minWorkersNum": None, "priority": None}
        expected["terminating"] = False
        assert {key: spec.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"priority": 11}, ["spec.priority", "10"]),
        ({"priority": "high"}, ["spec.priority", "integer"]),
        ({"cleanPodPolicy": "Some"}, ["spec.cleanPodPolicy", "Running", "All", "None"]),
        ({"minWorkersNum": 3}, ["spec.minWorkersNum", "must not be above the sum"]),
        ({"workerSets": [{"name": "actors"}]}, ["spec.workerSets", "template"]),
        ({"leader": {"name": "leader", "template": {"spec": {"containers": []}}}}, ["containers"]),
    ],
)
async def test_a_tyjob_with_a_wrong_field_is_refused_naming_it_and_what_is_allowed(
    subject: Subject, spec: dict[str, Any], words: list[str]
) -> None:
    async with subject.open() as place:
        with refused(422, "Invalid", *words):
            await place.cluster.create(TYJOBS, place.namespace, tyjob("a", **spec))
        assert await listed(place.cluster, TYJOBS, place.namespace) == []


async def test_unknown_fields_of_a_tyjob_are_dropped_and_a_template_keeps_its_own(subject: Subject) -> None:
    async with subject.open() as place:
        body = tyjob("a", nonsense=1)
        body["spec"]["leader"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
        body["spec"]["leader"]["template"]["spec"]["hostNetwork"] = True
        spec = (await place.cluster.create(TYJOBS, place.namespace, body))["spec"]
        assert "nonsense" not in spec
        assert spec["leader"]["template"]["spec"]["hostNetwork"] is True
        assert spec["leader"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]


async def test_a_status_given_at_creation_is_dropped(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, {**tyjob("a"), "status": {"stage": "Running"}})
        assert "status" not in created


async def test_a_merge_patch_sets_replaces_and_removes(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(PODS, place.namespace, pod("a", labels={"keep": "1", "change": "1", "drop": "1"}))
        patch = {"metadata": {"labels": {"change": "2", "drop": None, "new": "3"}}}
        patched = await place.cluster.patch(PODS, place.namespace, "a", patch)
        assert patched["metadata"]["labels"] == {"keep": "1", "change": "2", "new": "3"}


async def test_a_write_that_changes_nothing_keeps_the_version_and_is_not_watched(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, tyjob("a", priority=7))
        same = await place.cluster.patch(TYJOBS, place.namespace, "a", {"spec": {"priority": 7}})
        assert version(same) == version(created)
        status = {"status": {"stage": "Pending", "totalWorkers": 2}}
        first = await place.cluster.patch(TYJOBS, place.namespace, "a", status, subresource="status")
        assert version(first) != version(created)
        again = await place.cluster.patch(TYJOBS, place.namespace, "a", status, subresource="status")
        assert version(again) == version(first)
        last = await place.cluster.patch(TYJOBS, place.namespace, "a", {"spec": {"priority": 8}})
        changes = await changes_until(place, TYJOBS, version(created), count=2)
        assert [change.resource_version for change in changes] == [version(first), version(last)]


async def test_spec_and_status_do_not_reach_into_each_other(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, tyjob("a", priority=7))
        assert created["metadata"]["generation"] == 1
        both = {"spec": {"priority": 8}, "status": {"stage": "Pending"}}
        by_status = await place.cluster.patch(TYJOBS, place.namespace, "a", both, subresource="status")
        assert (by_status["spec"]["priority"], by_status["status"]["stage"]) == (7, "Pending")
        assert by_status["metadata"]["generation"] == 1
        other = {"spec": {"priority": 9}, "status": {"stage": "Running"}}
        by_spec = await place.cluster.patch(TYJOBS, place.namespace, "a", other)
        assert (by_spec["spec"]["priority"], by_spec["status"]["stage"]) == (9, "Pending")
        assert by_spec["metadata"]["generation"] == 2
        labels = {"metadata": {"labels": {"x": "y"}}}
        assert (await place.cluster.patch(TYJOBS, place.namespace, "a", labels))["metadata"]["generation"] == 2


async def test_a_service_has_a_name_that_is_a_dns_label(subject: Subject) -> None:
    async with subject.open() as place:
        spec = {"clusterIP": "None", "selector": {"a": "b"}, "publishNotReadyAddresses": True}
        for name in ("j" * 64, "a.b", "-a"):
            with refused(422, "Invalid", "metadata.name"):
                await place.cluster.create(SERVICES, place.namespace, {"metadata": {"name": name}, "spec": spec})
        made = await place.cluster.create(SERVICES, place.namespace, {"metadata": {"name": "j" * 63}, "spec": spec})
        assert made["spec"]["publishNotReadyAddresses"] is True
        assert made["spec"]["selector"] == {"a": "b"}


async def test_a_config_map_holds_a_mebibyte_and_is_patched_by_those_who_know_it(subject: Subject) -> None:
    async with subject.open() as place:
        cluster, namespace = place.cluster, place.namespace
        full = {"metadata": {"name": "c"}, "data": {"k": "x" * 1024 * 1024}}
        made = await cluster.create(CONFIG_MAPS, namespace, full)
        assert made["data"] == full["data"]
        with refused(422, "Invalid", "1048576 bytes"):
            await cluster.patch(CONFIG_MAPS, namespace, "c", {"data": {"more": "x"}})
        with refused(422, "Invalid", "1048576 bytes"):
            await cluster.create(
                CONFIG_MAPS, namespace, {"metadata": {"name": "d"}, "data": {"k": "x" * (1024 * 1024 + 1)}}
            )
        known = {"uid": made["metadata"]["uid"], "resourceVersion": version(made)}
        later = await cluster.patch(CONFIG_MAPS, namespace, "c", {"metadata": known, "data": {"k": "y"}})
        assert later["data"] == {"k": "y"}
        with refused(409, "Conflict"):
            await cluster.patch(CONFIG_MAPS, namespace, "c", {"metadata": known, "data": {"k": "z"}})


async def test_a_host_name_of_a_pod_is_a_dns_label(subject: Subject) -> None:
    async with subject.open() as place:
        for field in ("hostname", "subdomain"):
            for name in ("w" * 64, "a.b", "-a"):
                with refused(422, "Invalid", f"spec.{field}"):
                    await place.cluster.create(PODS, place.namespace, pod("p", **{field: name}))
        made = await place.cluster.create(PODS, place.namespace, pod("p", hostname="w" * 63, subdomain="0job"))
        assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("w" * 63, "0job")


async def test_a_pods_status_is_written_through_its_subresource_alone(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(PODS, place.namespace, pod("a", node="n"))
        running = {"status": {"phase": "Running", "podIP": "10.1.2.3"}}
        ignored = await place.cluster.patch(PODS, place.namespace, "a", running)
        assert ignored["status"]["phase"] == "Pending"
        written = await place.cluster.patch(PODS, place.namespace, "a", running, subresource="status")
        assert (written["status"]["phase"], written["status"]["podIP"]) == ("Running", "10.1.2.3")


async def test_an_invalid_status_is_refused(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        with refused(422, "Invalid", "status.stage", "Pending"):
            await place.cluster.patch(
                TYJOBS, place.namespace, "a", {"status": {"stage": "Nowhere"}}, subresource="status"
            )


async def test_a_started_job_keeps_its_template(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        template = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
        change = {"spec": {"leader": {"template": template}}}
        await place.cluster.patch(TYJOBS, place.namespace, "a", change)
        await place.cluster.patch(TYJOBS, place.namespace, "a", {"status": {"stage": "Running"}}, subresource="status")
        template["spec"]["containers"][0]["image"] = "third"
        with refused(422, "Invalid", "spec.leader", "can't be changed once the job has started"):
            await place.cluster.patch(TYJOBS, place.namespace, "a", change)
        assert (await place.cluster.patch(TYJOBS, place.namespace, "a", {"spec": {"priority": 2}}))["spec"][
            "priority"
        ] == 2


async def test_a_patch_that_names_an_old_version_conflicts(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        current = await place.cluster.patch(TYJOBS, place.namespace, "a", {"spec": {"priority": 2}})
        for subresource, change in (("", {"spec": {"priority": 3}}), ("status", {"status": {"stage": "Pending"}})):
            patch = {"metadata": {"resourceVersion": version(created)}, **change}
            with refused(409, "Conflict"):
                await place.cluster.patch(TYJOBS, place.namespace, "a", patch, subresource=subresource)
        patch = {"metadata": {"resourceVersion": version(current)}, "spec": {"priority": 3}}
        assert (await place.cluster.patch(TYJOBS, place.namespace, "a", patch))["spec"]["priority"] == 3


async def test_a_uid_guards_a_patch_of_the_object_but_not_of_its_status(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        wrong = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}
        with refused(422, "Invalid", "metadata.uid"):
            await place.cluster.patch(TYJOBS, place.namespace, "a", {**wrong, "spec": {"priority": 3}})
        # Only a resourceVersion keeps a status from being written to a later object of the same name.
        status = {**wrong, "status": {"stage": "Pending"}}
        written = await place.cluster.patch(TYJOBS, place.namespace, "a", status, subresource="status")
        assert written["status"]["stage"] == "Pending"


async def test_only_the_object_of_the_given_uid_is_deleted(subject: Subject) -> None:
    async with subject.open() as place:
        first = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        with refused(409, "Conflict"):
            await place.cluster.delete(TYJOBS, place.namespace, "a", uid="00000000-0000-0000-0000-000000000000")
        await place.cluster.delete(TYJOBS, place.namespace, "a", uid=first["metadata"]["uid"])
        second = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        with refused(409, "Conflict"):
            await place.cluster.delete(TYJOBS, place.namespace, "a", uid=first["metadata"]["uid"])
        assert (await place.cluster.get(TYJOBS, place.namespace, "a"))["metadata"]["uid"] == second["metadata"]["uid"]


async def test_only_the_object_at_the_given_version_is_deleted(subject: Subject) -> None:
    async with subject.open() as place:
        first = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        change = {"metadata": {"labels": {"seen": "no"}}}
        second = await place.cluster.patch(TYJOBS, place.namespace, "a", change)
        uid, versions = first["metadata"]["uid"], [each["metadata"]["resourceVersion"] for each in (first, second)]
        with refused(409, "Conflict"):
            await place.cluster.delete(TYJOBS, place.namespace, "a", uid=uid, resource_version=versions[0])
        await place.cluster.delete(TYJOBS, place.namespace, "a", uid=uid, resource_version=versions[1])
        with refused(404, "NotFound"):
            await place.cluster.get(TYJOBS, place.namespace, "a")


async def test_an_unbound_pod_is_deleted_at_once(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(PODS, place.namespace, pod("a"))
        await place.cluster.delete(PODS, place.namespace, "a")
        assert await listed(place.cluster, PODS, place.namespace) == []


async def test_an_ended_pod_is_deleted_at_once(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(PODS, place.namespace, pod("a", node="n"))
        await place.cluster.patch(PODS, place.namespace, "a", {"status": {"phase": "Failed"}}, subresource="status")
        await place.cluster.delete(PODS, place.namespace, "a")
        assert await listed(place.cluster, PODS, place.namespace) == []


async def test_a_bound_pod_is_asked_to_go_and_stays_until_its_node_lets_it_go(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(PODS, place.namespace, pod("a", node=unique("no-such-node")))
        await place.cluster.delete(PODS, place.namespace, "a")
        leaving = await place.cluster.get(PODS, place.namespace, "a")
        assert leaving["metadata"]["deletionTimestamp"]
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
        assert version(leaving) != version(created)
        await place.cluster.delete(PODS, place.namespace, "a")
        assert version(await place.cluster.get(PODS, place.namespace, "a")) == version(leaving)
        await place.cluster.delete(PODS, place.namespace, "a", grace_s=0, uid=created["metadata"]["uid"])
        with refused(404, "NotFound"):
            await place.cluster.get(PODS, place.namespace, "a")
        changes = await changes_until(place, PODS, version(created), count=3)
        assert [change.type for change in changes] == ["MODIFIED", "MODIFIED", "DELETED"]
        periods = [change.object["metadata"]["deletionGracePeriodSeconds"] for change in changes]
        assert periods == [30, 0, 0]


async def test_a_grace_period_can_be_given_and_shortened(subject: Subject) -> None:
    async with subject.open() as place:
        await place.cluster.create(PODS, place.namespace, pod("a", node=unique("no-such-node")))
        await place.cluster.delete(PODS, place.namespace, "a", grace_s=600)
        first = await place.cluster.get(PODS, place.namespace, "a")
        assert first["metadata"]["deletionGracePeriodSeconds"] == 600
        await place.cluster.delete(PODS, place.namespace, "a", grace_s=300)
        second = await place.cluster.get(PODS, place.namespace, "a")
        assert second["metadata"]["deletionGracePeriodSeconds"] == 300
        await place.cluster.delete(PODS, place.namespace, "a", grace_s=0)


async def test_a_finalizer_holds_a_deleted_object_until_it_is_removed(subject: Subject) -> None:
    async with subject.open() as place:
        body = tyjob("a")
        body["metadata"]["finalizers"] = ["example.com/hold"]
        created = await place.cluster.create(TYJOBS, place.namespace, body)
        await place.cluster.delete(TYJOBS, place.namespace, "a")
        held = await place.cluster.get(TYJOBS, place.namespace, "a")
        assert held["metadata"]["deletionTimestamp"]
        with refused(409, "AlreadyExists"):
            await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await place.cluster.patch(TYJOBS, place.namespace, "a", {"metadata": {"finalizers": None}})
        with refused(404, "NotFound"):
            await place.cluster.get(TYJOBS, place.namespace, "a")
        changes = await changes_until(place, TYJOBS, version(created), count=2)
        assert [change.type for change in changes] == ["MODIFIED", "DELETED"]


async def test_pages_show_one_moment_and_every_object_once(subject: Subject) -> None:
    async with subject.open() as place:
        names = [f"p{number}" for number in range(7)]
        for name in names:
            await place.cluster.create(PODS, place.namespace, pod(name))
        seen: list[str] = []
        versions = set()
        async for page in place.cluster.listing(PODS, limit=2):
            assert len(page.items) <= 2
            versions.add(page.resource_version)
            items = [item for item in page.items if item["metadata"]["namespace"] == place.namespace]
            seen += [item["metadata"]["name"] for item in items]
            if len(versions) == 1 and "later" not in names:
                names.append("later")
                await place.cluster.create(PODS, place.namespace, pod("later"))
                await place.cluster.delete(PODS, place.namespace, "p6")
        assert seen == names[:7]
        assert len(versions) == 1
        assert await listed(place.cluster, PODS, place.namespace) == ["later", *names[:6]]


async def test_a_listing_that_outlived_its_history_has_expired(subject: Subject) -> None:
    async with subject.open() as place:
        for number in range(3):
            await place.cluster.create(PODS, place.namespace, pod(f"p{number}"))
        pages = place.cluster.listing(PODS, limit=1)
        await anext(pages)
        await place.cluster.create(PODS, place.namespace, pod("later"))
        await asyncio.to_thread(place.forget_history)
        with pytest.raises(Expired):
            await anext(pages)


async def test_a_listing_at_a_version_shows_what_was_there_then(subject: Subject) -> None:
    async with subject.open() as place:
        for number in range(4):
            await place.cluster.create(TYJOBS, place.namespace, tyjob(f"j{number}"))
        before = await items_at(place, "")
        moment = await now(place.cluster, TYJOBS)
        await place.cluster.create(TYJOBS, place.namespace, tyjob("later"))
        await place.cluster.patch(TYJOBS, place.namespace, "j1", {"metadata": {"labels": {"x": "y"}}})
        await place.cluster.delete(TYJOBS, place.namespace, "j2")
        await place.cluster.create(TYJOBS, place.namespace, tyjob("j2"))
        assert [name for name, _ in before] == ["j0", "j1", "j2", "j3"]
        assert await items_at(place, moment) == before != await items_at(place, "")


async def items_at(place: Place, moment: str) -> list[tuple[str, str]]:
    """Names and versions of the test's TYJobs at a moment, read in pages of two."""
    found = []
    async for page in place.cluster.listing(TYJOBS, limit=2, at=moment):
        assert moment in ("", page.resource_version)
        found += [item["metadata"] for item in page.items]
    return [(each["name"], each["resourceVersion"]) for each in found if each["namespace"] == place.namespace]


async def test_a_listing_at_a_version_that_is_forgotten_has_expired(subject: Subject) -> None:
    async with subject.open() as place:
        moment = await now(place.cluster, PODS)
        for number in range(3):
            await place.cluster.create(PODS, place.namespace, pod(f"p{number}"))
        await asyncio.to_thread(place.forget_history)
        with pytest.raises(Expired):
            async for _ in place.cluster.listing(PODS, at=moment):
                pass


async def test_a_watch_from_a_version_sees_everything_after_it_in_order(subject: Subject) -> None:
    async with subject.open() as place:
        start = await now(place.cluster, TYJOBS)
        written = []
        for number in range(20):
            name = f"j{number}"
            created = await place.cluster.create(TYJOBS, place.namespace, tyjob(name))
            patched = await place.cluster.patch(TYJOBS, place.namespace, name, {"metadata": {"labels": {"x": "y"}}})
            await place.cluster.delete(TYJOBS, place.namespace, name)
            written += [("ADDED", created), ("MODIFIED", patched), ("DELETED", patched)]
        changes = await changes_until(place, TYJOBS, start, count=60)
        assert [change.type for change in changes] == [kind for kind, _ in written]
        for change, (kind, item) in zip(changes, written, strict=True):
            assert change.object["metadata"]["uid"] == item["metadata"]["uid"]
            assert change.object["metadata"].get("labels") == item["metadata"].get("labels")
            assert change.resource_version == version(change.object)
            # A deletion has a version of its own, so that a watch can go on after it.
            assert (change.resource_version == version(item)) == (kind != "DELETED")
            assert change.object["kind"] == "TYJob" and change.object["apiVersion"] == "arranger.dev/v1"
        middle = changes[29].resource_version
        later = await changes_until(place, TYJOBS, middle, count=30)
        assert [change.resource_version for change in later] == [change.resource_version for change in changes[30:]]


async def test_a_pods_end_is_announced_by_a_change_before_it(subject: Subject) -> None:
    async with subject.open() as place:
        created = await place.cluster.create(PODS, place.namespace, pod("a"))
        await place.cluster.delete(PODS, place.namespace, "a", grace_s=0)
        changes = await changes_until(place, PODS, version(created), count=2)
        assert [change.type for change in changes] == ["MODIFIED", "DELETED"]
        assert all(change.object["metadata"]["deletionTimestamp"] for change in changes)
        assert changes[0].resource_version != changes[1].resource_version


async def test_a_watch_sees_what_happens_while_it_is_open(subject: Subject) -> None:
    async with subject.open() as place:
        start = await now(place.cluster, TYJOBS)
        watching = asyncio.create_task(changes_until(place, TYJOBS, start, count=2))
        await asyncio.sleep(0.2)
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await place.cluster.patch(TYJOBS, place.namespace, "a", {"status": {"stage": "Pending"}}, subresource="status")
        changes = await watching
        assert [change.type for change in changes] == ["ADDED", "MODIFIED"]
        assert changes[1].object["status"] == {"stage": "Pending"}
        assert changes[0].received_ms <= changes[1].received_ms


async def a_bookmark(place: Place, start: str) -> str:
    """The version of the last bookmark of a watch on pods that ends after its time. An API server sends one 2 s before
    the end, or none if it is too busy in these 2 s, so watch again then."""
    for _attempt in range(10):
        changes = [change async for batch in place.cluster.watch(PODS, start, timeout_s=10) for change in batch]
        if versions := [change.resource_version for change in changes if change.type == "BOOKMARK"]:
            return versions[-1]
    raise AssertionError("ten watches ended without a bookmark")


async def test_a_watch_ends_after_its_time_with_a_bookmark_of_the_present(subject: Subject) -> None:
    async with subject.open() as place:
        start = await now(place.cluster, PODS)
        # Nothing happens to pods, yet the bookmark moves on, so that a quiet watch doesn't expire.
        other = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        bookmark = await a_bookmark(place, start)
        assert int(bookmark) >= int(version(other))
        created = await place.cluster.create(PODS, place.namespace, pod("a"))
        later = await changes_until(place, PODS, bookmark, count=1)
        assert [change.resource_version for change in later] == [version(created)]


async def test_a_watch_is_accepted_though_nothing_changes(subject: Subject) -> None:
    async with subject.open() as place:
        accepted = asyncio.Event()
        watch = place.cluster.watch(PODS, await now(place.cluster, PODS), timeout_s=60, accepted=accepted.set)
        changes = asyncio.ensure_future(anext(watch))
        await asyncio.wait_for(accepted.wait(), 20)
        changes.cancel()
        await asyncio.gather(changes, return_exceptions=True)
        await watch.aclose()


async def test_a_watch_from_a_version_too_old_has_expired(subject: Subject) -> None:
    async with subject.open() as place:
        old = await place.cluster.create(PODS, place.namespace, pod("a"))
        await place.cluster.create(PODS, place.namespace, pod("between"))
        await asyncio.to_thread(place.forget_history)
        for too_old in (version(old), "1"):
            with pytest.raises(Expired):
                async for _ in place.cluster.watch(PODS, too_old, timeout_s=5):
                    pass
        start = await now(place.cluster, PODS)
        created = await place.cluster.create(PODS, place.namespace, pod("b"))
        assert [c.resource_version for c in await changes_until(place, PODS, start, count=1)] == [version(created)]


async def test_an_object_of_a_megabyte_is_written_listed_and_watched(subject: Subject) -> None:
    async with subject.open() as place:
        start = await now(place.cluster, TYJOBS)
        body = tyjob("a")
        body["spec"]["leader"]["template"]["spec"]["containers"][0]["args"] = ["x" * 1_300_000]
        await place.cluster.create(TYJOBS, place.namespace, body)
        [change] = await changes_until(place, TYJOBS, start, count=1)
        assert len(change.object["spec"]["leader"]["template"]["spec"]["containers"][0]["args"][0]) == 1_300_000
        assert await listed(place.cluster, TYJOBS, place.namespace) == ["a"]
        await place.cluster.delete(TYJOBS, place.namespace, "a")


async def test_a_hundred_writers_at_once_get_a_hundred_versions(subject: Subject) -> None:
    async with subject.open() as place:
        start = await now(place.cluster, PODS)
        writes = [place.cluster.create(PODS, place.namespace, pod(f"p{number}")) for number in range(100)]
        created = await asyncio.gather(*writes)
        assert len({version(item) for item in created}) == 100
        changes = await changes_until(place, PODS, start, count=100)
        assert sorted(c.resource_version for c in changes) == sorted(version(item) for item in created)


async def test_of_writers_who_want_one_name_one_gets_it(subject: Subject) -> None:
    async with subject.open() as place:
        writes = [place.cluster.create(PODS, place.namespace, pod("a", labels={"by": str(n)})) for n in range(10)]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        refusals = [answer for answer in answers if isinstance(answer, ApiError)]
        assert [refusal.reason for refusal in refusals] == ["AlreadyExists"] * 9


async def test_an_event_tells_of_an_object(subject: Subject) -> None:
    async with subject.open() as place:
        job = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        event = {
            "metadata": {"name": "a.1"},
            "involvedObject": {
                "apiVersion": "arranger.dev/v1",
                "kind": "TYJob",
                "namespace": place.namespace,
                "name": "a",
                "uid": job["metadata"]["uid"],
            },
            "reason": "Unscheduled",
            "message": "no node has 8 GPUs free",
            "type": "Warning",
            "count": 1,
        }
        await place.cluster.create(EVENTS, place.namespace, event)
        patched = await place.cluster.patch(EVENTS, place.namespace, "a.1", {"count": 2})
        assert (patched["count"], patched["message"]) == (2, "no node has 8 GPUs free")


async def test_what_an_owner_owns_goes_with_it_and_nothing_else(collector: Subject) -> None:
    async with collector.open() as place:
        job = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        for name, uid in (("owned", job["metadata"]["uid"]), ("free", None)):
            body = pod(name)
            if uid:
                owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "a", "uid": uid}
                body["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
            await place.cluster.create(PODS, place.namespace, body)
        await place.cluster.delete(TYJOBS, place.namespace, "a")
        await gone(place, PODS, "owned")
        assert await listed(place.cluster, PODS, place.namespace) == ["free"]


async def test_what_is_created_for_an_owner_already_gone_goes_too(collector: Subject) -> None:
    async with collector.open() as place:
        old = await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        await place.cluster.delete(TYJOBS, place.namespace, "a")
        await place.cluster.create(TYJOBS, place.namespace, tyjob("a"))
        body = pod("late")
        owner = {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "a", "uid": old["metadata"]["uid"]}
        body["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        await place.cluster.create(PODS, place.namespace, body)
        await gone(place, PODS, "late")
