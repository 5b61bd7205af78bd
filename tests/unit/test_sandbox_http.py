"""The HTTP front of the embedded cluster: what clients other than ours ask of it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from arranger.kube.cluster import NODES
from arranger.kube.cluster import PODS as PODS_RESOURCE
from arranger.sandbox.embedded import EmbeddedCluster
from arranger.sandbox.http import REQUEST_LIMIT_BYTES
from arranger.sandbox.tables import duration

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
CRDS = Path(__file__).resolve().parents[2] / "crds"
CRD = CRDS / "tyjob.yaml"
PODS = "/api/v1/namespaces/default/pods"


class Client:
    """Raw requests with the token."""

    def __init__(self, cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self._session = session

    async def call(
        self, method: str, path: str, body: Any = None, *, accept: str = "application/json", token: str | None = None
    ) -> tuple[int, Any]:
        headers = {"Accept": accept, "Authorization": f"Bearer {token or self.cluster.token}"}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        async with self._session.request(method, self.cluster.url + path, data=data, headers=headers) as response:
            raw = await response.read()
            return response.status, msgspec.json.decode(raw) if response.content_type == "application/json" else raw

    async def lines(self, path: str, count: int, *, accept: str = "application/json") -> list[Any]:
        """The first lines of a watch."""
        headers = {"Accept": accept, "Authorization": f"Bearer {self.cluster.token}"}
        async with asyncio.timeout(20), self._session.get(self.cluster.url + path, headers=headers) as response:
            return [msgspec.json.decode(await response.content.readline()) for _ in range(count)]


@contextlib.asynccontextmanager
async def serving(crd: Path = CRD) -> AsyncIterator[Client]:
    async with EmbeddedCluster(crds=[crd]) as cluster, aiohttp.ClientSession() as session:
        yield Client(cluster, session)


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def test_a_change_at_the_moment_at_which_a_watch_ends_is_in_it_or_in_the_next_one() -> None:
    async with serving() as client:
        _, listing = await client.call("GET", PODS)
        version = listing["metadata"]["resourceVersion"]

        async def watched(since: str) -> list[Any]:
            query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={since}"
            headers = {"Authorization": f"Bearer {client.cluster.token}"}
            session = aiohttp.ClientSession(headers=headers)
            async with session, session.get(client.cluster.url + PODS + query) as response:
                return [msgspec.json.decode(line) async for line in response.content]

        watching = asyncio.create_task(watched(version))
        await asyncio.sleep(0.7)
        # The loop is held up beyond the end of the watch. So the change and the end are handled in one round of it.
        time.sleep(0.5)  # noqa: ASYNC251
        store = client.cluster.store
        asyncio.get_running_loop().call_soon(lambda: store.create(PODS_RESOURCE, "default", pod("late")))
        lines = await watching
        lines += await watched(lines[-1]["object"]["metadata"]["resourceVersion"])
        assert [line["object"]["metadata"]["name"] for line in lines if line["type"] == "ADDED"] == ["late"]


async def test_nothing_but_health_is_answered_without_the_token() -> None:
    async with serving() as client:
        status, answer = await client.call("GET", PODS, token="wrong")
        assert (status, answer["reason"]) == (401, "Unauthorized")
        assert await client.call("GET", "/healthz", token="wrong") == (200, b"ok")
        assert (await client.call("GET", f"/{client.cluster.token}{PODS}", token="wrong"))[0] == 200


async def test_refusals_are_status_objects() -> None:
    async with serving() as client:
        status, answer = await client.call("GET", f"{PODS}/nope")
        assert status == answer["code"] == 404
        assert answer["message"] == 'pods "nope" not found'
        assert (await client.call("GET", "/apis/nope.dev/v1/things"))[0] == 404
        assert (await client.call("PUT", PODS, {}))[0] == 405


async def test_a_method_that_a_path_does_not_have_is_not_allowed_and_changes_nothing() -> None:
    async with serving() as client:
        await client.call("POST", PODS, pod("a"))
        wrong = [
            ("POST", "/api"),
            ("GET", f"{PODS}/a/binding"),
            ("PUT", f"{PODS}/a/log"),
            ("DELETE", f"{PODS}/a/status"),
        ]
        for method, path in wrong:
            status, answer = await client.call(method, path)
            assert (status, answer["reason"]) == (405, "MethodNotAllowed")
        assert (await client.call("GET", f"{PODS}/a"))[0] == 200


@pytest.mark.parametrize("way", ["exec?command=ls", "attach", "portforward?ports=8080"])
async def test_whoever_connects_to_a_pod_is_told_that_it_is_simulated(way: str) -> None:
    async with serving() as client:
        await client.call("POST", PODS, pod("a"))
        for method in ("GET", "POST"):
            status, answer = await client.call(method, f"{PODS}/a/{way}")
            assert status == 400 and answer["message"].startswith("pod a is simulated: no program runs in it")
            assert (await client.call(method, f"{PODS}/b/{way}"))[0] == 404


async def test_a_path_may_end_with_a_slash() -> None:
    async with serving() as client:
        for path in ("/api", "/apis", "/apis/arranger.dev/v1", PODS):
            assert await client.call("GET", f"{path}/") == await client.call("GET", path)


async def test_an_unknown_path_is_a_status_within_a_known_group_and_plain_text_elsewhere() -> None:
    async with serving() as client:
        for path in ("/api/v1/things", "/apis/arranger.dev/v1/namespaces/default/tyjobs/j/nope"):
            status, answer = await client.call("GET", path)
            assert (status, answer["message"]) == (404, "the server could not find the requested resource")
        for path in ("/nope", "/api/v2/pods", "/apis/nope.dev/v1/things"):
            assert await client.call("GET", path) == (404, b"404 page not found\n")


async def test_a_request_beyond_the_limit_is_refused() -> None:
    async with serving() as client:
        status, answer = await client.call("POST", PODS, pod("a" * REQUEST_LIMIT_BYTES))
        assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_body_too_deep_to_be_read_is_a_bad_request() -> None:
    async with serving() as client:
        status, answer = await client.call(
            "POST", PODS, msgspec.Raw(b'{"spec":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
        )
        assert (status, answer["reason"]) == (400, "BadRequest")


async def test_items_of_a_built_in_list_leave_out_their_kind() -> None:
    async with serving() as client:
        await client.call("POST", PODS, pod("a"))
        _, listed = await client.call("GET", PODS)
        assert listed["kind"] == "PodList"
        assert "kind" not in listed["items"][0]
        assert listed["items"][0]["metadata"]["name"] == "a"


async def test_a_watch_begins_with_what_is_there_and_says_when_that_is_over() -> None:
    async with serving() as client:
        await client.call("POST", PODS, pod("a"))
        query = "?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        added, bookmark = await client.lines(PODS + query, 2)
        assert (added["type"], added["object"]["kind"]) == ("ADDED", "Pod")
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_a_forgotten_version_gets_an_error_event() -> None:
    async with serving() as client:
        await client.call("POST", PODS, pod("a"))
        client.cluster.store.compact()
        (error,) = await client.lines(PODS + "?watch=1&resourceVersion=1", 1)
        assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_table_of_custom_resources_has_the_columns_of_their_definition() -> None:
    async with serving() as client:
        path = "/apis/arranger.dev/v1/namespaces/default/tyjobs"
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        job = {
            "apiVersion": "arranger.dev/v1",
            "kind": "TYJob",
            "metadata": {"name": "j"},
            "spec": {"leader": {"name": "l", "template": template}, "workerSets": [], "minWorkersNum": 0},
        }
        assert (await client.call("POST", path, job))[0] == 201
        _, table = await client.call("GET", path, accept=TABLE)
        columns = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
        assert columns == ["Name", "Stage", "Ready", "GPUs", "Position", "Started", "Age"]
        assert table["rows"][0]["cells"][0] == "j"
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_the_table_of_queues_has_the_weight_that_applies_where_none_is_set() -> None:
    async with serving(CRDS / "queue.yaml") as client:
        path = "/apis/arranger.dev/v1/queues"
        made = {"apiVersion": "arranger.dev/v1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}
        assert (await client.call("POST", path, made))[0] == 201
        _, table = await client.call("GET", path, accept=TABLE)
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert table["rows"][0]["cells"][columns.index("Weight")] == 1


async def test_a_watched_table_has_its_head_once() -> None:
    async with serving() as client:
        await client.call("POST", PODS, pod("a"))
        await client.call("POST", PODS, pod("b"))
        first, second = await client.lines(PODS + "?watch=1", 2, accept=TABLE)
        assert first["object"]["columnDefinitions"]
        assert second["object"]["columnDefinitions"] is None


async def test_a_definition_is_described_for_clients() -> None:
    async with serving() as client:
        _, groups = await client.call("GET", "/apis")
        assert "arranger.dev" in [group["name"] for group in groups["groups"]]
        _, document = await client.call("GET", "/openapi/v3/apis/arranger.dev/v1")
        schema = document["components"]["schemas"]["dev.arranger.v1.TYJob"]
        assert schema["x-kubernetes-group-version-kind"] == [
            {"group": "arranger.dev", "version": "v1", "kind": "TYJob"}
        ]
        patch = document["paths"]["/apis/arranger.dev/v1/namespaces/{namespace}/tyjobs/{name}"]["patch"]
        assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]


async def test_the_kubeconfig_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with serving() as client:
        path = client.cluster.kubeconfig(tmp_path / "kubeconfig")
        assert path.stat().st_mode & 0o077 == 0
        assert client.cluster.token in path.read_text()


async def test_stopping_ends_open_watches() -> None:
    async with serving() as client:
        watching = asyncio.create_task(client.lines(NODES.path() + "?watch=1", 1))
        await asyncio.sleep(0)
    (ended,) = await asyncio.gather(watching, return_exceptions=True)
    assert isinstance(ended, BaseException)


def test_durations_read_as_kubectl_writes_them() -> None:
    shown = [duration(seconds) for seconds in (0, 119, 120, 185, 3600, 7 * 3600 + 60, 12 * 3600, 3 * 86400, 9 * 86400)]
    assert shown == ["0s", "119s", "2m", "3m5s", "60m", "7h1m", "12h", "3d", "9d"]
