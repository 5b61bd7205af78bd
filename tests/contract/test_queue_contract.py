"""A real API server and the embedded cluster give the same verdict on each Queue of the table, naming the same field.

`tests/unit/test_queue_rules.py` holds the own check to the same table.
"""

import contextlib
import json
from typing import Any

import pytest

from arranger.kube.cluster import CRDS, QUEUES
from arranger.kube.translate import status_digest
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from tests.contract.test_tyjob_validation_contract import Refused, names, refusal
from tests.servers import MERGE, QUEUE_CRD, RealKube, definition_of
from tests.unit.queue_table import BAD, EVERY_FIELD, GOOD, GPU, queue
from tests.unit.tyjob_table import Bad, Good, Object


class Server:
    """What these tests ask of a server; refusals raise `Refused`."""

    def apply(self, queue: Object) -> None:
        """Check the Queue strictly, and store nothing."""
        raise NotImplementedError

    def create(self, queue: Object) -> None:
        raise NotImplementedError

    def change(self, name: str, patch: Object, *, subresource: str = "") -> Object:
        """Merge a patch into the Queue, or into its status; returns the whole object."""
        raise NotImplementedError


class Real(Server):
    """A kube-apiserver."""

    def __init__(self, server: RealKube) -> None:
        self._server = server

    def apply(self, queue: Object) -> None:
        self._ask("POST", "?dryRun=All&fieldValidation=Strict", queue, "application/json")

    def create(self, queue: Object) -> None:
        self._server.request("DELETE", f"{QUEUES.path()}/{queue['metadata']['name']}", check=False)
        self._ask("POST", "", queue, "application/json")

    def change(self, name: str, patch: Object, *, subresource: str = "") -> Object:
        below = f"/{name}/{subresource}" if subresource else f"/{name}"
        return self._ask("PATCH", below, patch, MERGE)

    def _ask(self, method: str, below: str, body: Object, content_type: str) -> Object:
        path = f"{QUEUES.path()}{below}"
        code, answer = self._server.request(method, path, body, content_type=content_type, check=False)
        if code >= 400:
            raise Refused(answer["message"])
        return answer


class Embedded(Server):
    """The embedded cluster's store, with the CRD of the repository."""

    def __init__(self) -> None:
        self._store = Store(now=lambda: 1_700_000_000.0)
        self._store.create(CRDS, "", definition_of(QUEUE_CRD))

    def apply(self, queue: Object) -> None:
        self._create(queue, dry_run=True)

    def create(self, queue: Object) -> None:
        with contextlib.suppress(ApiRefusal):
            self._store.delete(QUEUES, "", queue["metadata"]["name"])
        self._create(queue, dry_run=False)

    def _create(self, queue: Object, *, dry_run: bool) -> None:
        options = WriteOptions(dry_run=dry_run, strictness="Strict")
        try:
            self._store.create(QUEUES, "", _own(queue), options)
        except ApiRefusal as refused:
            raise Refused(refused.detail) from refused

    def change(self, name: str, patch: Object, *, subresource: str = "") -> Object:
        try:
            answer = self._store.patch(QUEUES, "", name, _own(patch), subresource=subresource)
        except ApiRefusal as refused:
            raise Refused(refused.detail) from refused
        return json.loads(answer.stored.raw)  # type: ignore[no-any-return]


def _own(body: Object) -> Any:
    return json.loads(json.dumps(body))


@pytest.fixture(params=["embedded", "real"], scope="module")
def server(request: pytest.FixtureRequest) -> Server:
    return Embedded() if request.param == "embedded" else Real(request.getfixturevalue("kube_server"))


@pytest.mark.parametrize("good", GOOD, ids=lambda row: row.case)
def test_a_good_queue_is_accepted(server: Server, good: Good) -> None:
    assert refusal(lambda: server.apply(good.tyjob)) == ""


@pytest.mark.parametrize("bad", BAD, ids=lambda row: row.case)
def test_a_bad_queue_is_refused_naming_the_field(server: Server, bad: Bad) -> None:
    message = refusal(lambda: server.apply(bad.tyjob))
    assert names(message, bad.field)
    assert bad.says in message


STATUS: Object = {
    "state": "Open",
    "used": {"cpu": "2500m", GPU: 4},
    "share": {GPU: "8"},
    "demand": {GPU: "16"},
    "usage": {GPU: "1200"},
    "gpus": 4,
    "gpuShare": 8,
    "waiting": 3,
    "running": 2,
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "reason": "Open",
            "message": "",
        }
    ],
}


def test_a_queue_is_stored_as_it_was_written_and_its_status_keeps_every_field(server: Server) -> None:
    server.create(queue("kept", **EVERY_FIELD))
    kept = server.change("kept", {"status": STATUS}, subresource="status")
    assert kept["spec"] == EVERY_FIELD and kept["metadata"]["generation"] == 1
    assert kept["status"] == STATUS and status_digest(kept["status"]) == status_digest(STATUS)
    assert server.change("kept", {"spec": {"state": "Open"}})["metadata"]["generation"] == 2
    server.create(queue("bare"))
    bare = server.change("bare", {"spec": {"parent": "kept"}})
    assert bare["spec"] == {"parent": "kept", "weight": 1}  # the only default, which the table of queues shows


def test_a_change_is_refused_as_a_creation_is(server: Server) -> None:
    server.create(queue("strict", capability={"cpu": 2}))
    message = refusal(lambda: server.change("strict", {"spec": {"deserved": {"cpu": 3}}}))
    assert names(message, "spec.deserved") and "cpu must not be above capability, which is 2, but is 3" in message
