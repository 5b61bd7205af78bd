"""What becomes of objects that were valid before their definition got stricter, on a real API server and the embedded
one alike: an unchanged field isn't checked again."""

import time
from pathlib import Path
from typing import Any

import pytest

from arranger.kube.cluster import CRDS, Resource
from tests.conftest import _required
from tests.e2e.harness import EmbeddedKube
from tests.servers import MERGE, KubeServer

THINGS = Resource("example.com", "v1", "things", "Thing")


def definition(most: int) -> dict[str, Any]:
    """A definition of things whose `spec.size` and `state.size` are numbers up to this one."""
    size = {"type": "object", "properties": {"size": {"type": "integer", "maximum": most}, "name": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": size, "state": size}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    metadata = {"name": "things.example.com"}
    return {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": metadata, "spec": spec}


@pytest.fixture(params=["real", "embedded"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "real":
        yield request.getfixturevalue("kube_server")
        return
    with _required():
        kube = EmbeddedKube(tmp_path)
    yield kube
    kube.close()


def eventually(server: KubeServer, method: str, path: str, body: Any, expected: int) -> dict[str, Any]:
    """The answer once its code is the expected one: a new definition counts after a moment."""
    deadline_s = time.monotonic() + 60
    while True:
        kind = MERGE if method == "PATCH" else "application/json"
        code, answer = server.request(method, path, body, content_type=kind, check=False)
        if code == expected:
            return answer
        assert time.monotonic() < deadline_s, (code, answer)
        time.sleep(0.05)


def test_a_field_that_has_not_changed_is_not_checked_again(server: KubeServer) -> None:
    server.request("POST", CRDS.path(), definition(9))
    try:
        whole, one = THINGS.path("default"), THINGS.path("default", "a")
        body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
        eventually(server, "POST", whole, {**body, "spec": {"size": 5}, "state": {"size": 5}}, 201)
        server.request("PATCH", CRDS.path(None, "things.example.com"), definition(3), content_type=MERGE)
        new = {**body, "metadata": {"generateName": "b"}, "spec": {"size": 5}}
        eventually(server, "POST", whole, new, 422)
        changed = eventually(server, "PATCH", one, {"state": {"size": 2}}, 200)
        assert (changed["spec"], changed["state"]) == ({"size": 5}, {"size": 2})
        refused = eventually(server, "PATCH", one, {"spec": {"size": 6}}, 422)
        assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.size"]
    finally:
        server.request("DELETE", CRDS.path(None, "things.example.com"))
