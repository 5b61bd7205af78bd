"""A real API server and the embedded cluster give the same verdict on each TYJob of the table, naming the same field.

`tests/unit/test_tyjob_validation.py` holds the controller's own check to the same table.
"""

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from arranger.kube.cluster import CRDS, NAMESPACES, TYJOBS
from arranger.kube.translate import status_digest
from arranger.model.validation import validate
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from tests.servers import MERGE, RealKube, tyjob_definition
from tests.unit.tyjob_table import (
    BAD,
    CHANGES,
    GOOD,
    LIMIT,
    REQUEST,
    UNSEEN_CHANGES,
    Bad,
    Change,
    Good,
    Object,
    tyjob,
    tyjob_with,
)

STRICT = WriteOptions(strictness="Strict")


class Refused(Exception):
    """The server's message."""


class Server(Protocol):
    """What these tests ask of a server; refusals raise `Refused`."""

    def apply(self, tyjob: Object) -> None:
        """Check the TYJob as `kubectl apply` does, strictly, and store nothing."""
        ...

    def create(self, tyjob: Object) -> None:
        """Create the TYJob in an empty namespace."""
        ...

    def change(self, name: str, patch: Object, *, subresource: str = "") -> Object:
        """Merge a patch into the TYJob created last, or into its status; answers the whole object."""
        ...


class Real:
    """A kube-apiserver."""

    def __init__(self, server: RealKube) -> None:
        self._server = server
        self._namespace = ""

    def apply(self, tyjob: Object) -> None:
        self._namespace = "default"
        self._ask("POST", "?dryRun=All&fieldValidation=Strict", tyjob, "application/json")

    def kubectl_apply(self, *tyjobs: Object) -> None:
        """As `apply`, through kubectl, which takes longer than all the rest."""
        documents = "\n---\n".join(json.dumps(tyjob) for tyjob in tyjobs)
        done = self._server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=documents, check=False)
        if done.returncode:
            raise Refused(done.stderr)

    def create(self, tyjob: Object) -> None:
        self._namespace = self._server.fresh_namespace()
        self._ask("POST", "", tyjob, "application/json")

    def change(self, name: str, patch: Object, *, subresource: str = "") -> Object:
        below = f"/{name}/{subresource}" if subresource else f"/{name}"
        return self._ask("PATCH", below, patch, MERGE)

    def _ask(self, method: str, below: str, body: Object, content_type: str) -> Object:
        path = f"{TYJOBS.path(self._namespace)}{below}"
        code, answer = self._server.request(method, path, body, content_type=content_type, check=False)
        if code >= 400:
            raise Refused(answer["message"])
        return answer


class Embedded:
    """The embedded cluster's store, with the CRD of the repository."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._store = Store(now=lambda: 1_700_000_000.0, new_uid=lambda: f"uid-{next(self._numbers)}")
        self._store.create(CRDS, "", tyjob_definition())
        self._namespace = "default"

    def apply(self, tyjob: Object) -> None:
        options = WriteOptions(dry_run=True, strictness="Strict")
        self._asked(lambda: self._store.create(TYJOBS, "default", _own(tyjob), options))

    def create(self, tyjob: Object) -> None:
        self._namespace = f"test-{next(self._numbers)}"
        self._store.create(NAMESPACES, "", {"metadata": {"name": self._namespace}})
        self._asked(lambda: self._store.create(TYJOBS, self._namespace, _own(tyjob), STRICT))

    def change(self, name: str, patch: Object, *, subresource: str = "") -> Object:
        where = (TYJOBS, self._namespace, name, _own(patch))
        answer = self._asked(lambda: self._store.patch(*where, subresource=subresource))
        return json.loads(answer.stored.raw)

    @staticmethod
    def _asked(request: Callable[[], Any]) -> Any:
        try:
            return request()
        except ApiRefusal as refusal:
            raise Refused(refusal.detail) from refusal


def _own(body: Object) -> Object:
    copy: Object = json.loads(json.dumps(body))
    return copy


@pytest.fixture
def real(kube_server: RealKube) -> Real:
    return Real(kube_server)


@pytest.fixture(scope="module")
def embedded() -> Embedded:
    return Embedded()


@pytest.fixture(params=["embedded", "real"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def refusal(request: Callable[[], object]) -> str:
    """What the server refuses the request with; empty when it doesn't."""
    try:
        request()
    except Refused as refused:
        return str(refused)
    return ""


def names(message: str, field: str) -> bool:
    """Whether a refusal names this field: alone, in a list, as unknown, or as one of a number's format."""
    named = rf"(^|[ \[]){re.escape(field)}: | with format int\d\d in {re.escape(field)}\b"
    return bool(re.search(named, message)) or f'unknown field "{field}"' in message


@pytest.mark.parametrize("good", GOOD, ids=lambda row: row.case)
def test_a_good_job_is_accepted(server: Server, good: Good) -> None:
    assert refusal(lambda: server.apply(good.tyjob)) == ""


@pytest.mark.parametrize("bad", BAD, ids=lambda row: row.case)
def test_a_bad_job_is_refused_naming_the_field(server: Server, bad: Bad) -> None:
    message = refusal(lambda: server.apply(bad.tyjob))
    assert names(message, bad.field)
    assert bad.says in message


def test_kubectl_shows_what_the_server_says(real: Real) -> None:
    assert refusal(lambda: real.kubectl_apply(*(row.tyjob for row in GOOD))) == ""
    for way in ("must be of type", "Required value", "greater than or equal to", "there is no leader", "unknown field"):
        bad = next(row for row in BAD if way in row.says)
        message = refusal(lambda: real.kubectl_apply(bad.tyjob))  # noqa: B023
        assert names(message, bad.field) and bad.says in message


#: Digits, suffixes and sizes at and beyond what an API server keeps exactly.
ODD_QUANTITIES = (
    0, 1, 10**18, 2**63 - 1, "0", "00.", "+1", "1.0000000000000000001", "1n", "0.1n", "2e-10", "1e-99", "1.5e0", "0e5",
    "1e18", "1e19", "1E", "8E", "9E", "1Ti", "1Pi", "7Ei", "8Ei", "16Ei", "1.5Ki", "0.0001Ki", "1e64", "1e99", "1e100",
    "100000000000000000", "1000000000000000000", "9223372036854775808", "12345678901234567890123456789012",
    "999999999999999999e5", "9999999999999999999e5", "0.0000000001", ".5e1",
)  # fmt: skip


def test_requests_and_limits_are_compared_as_a_real_api_server_compares_them(real: Real, embedded: Embedded) -> None:
    chance = random.Random(7)
    differ = []
    for _ in range(300):
        resource = chance.choice(("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"))
        request, limit = chance.choice(ODD_QUANTITIES), chance.choice(ODD_QUANTITIES)
        job = tyjob_with({REQUEST: {resource: request}, LIMIT: {resource: limit}})
        verdicts = [
            bool(validate(_own(job))),
            bool(refusal(lambda job=job: embedded.apply(job))),
            bool(refusal(lambda job=job: real.apply(job))),
        ]
        if len(set(verdicts)) > 1:
            differ.append(f"{resource} {request} of {limit}: own, embedded, real: {verdicts}")
    assert differ == []


@pytest.mark.parametrize("change", [*CHANGES, *UNSEEN_CHANGES], ids=lambda row: row.case)
def test_a_started_job_can_be_changed_only_where_it_is_elastic(server: Server, change: Change) -> None:
    name = change.before["metadata"]["name"]
    server.create(change.before)
    if change.stage:
        server.change(name, {"status": {"stage": change.stage}}, subresource="status")
    # A merge patch can't say "this field is gone" but with a null.
    gone = {field: None for field in change.before["spec"] if field not in change.after["spec"]}
    message = refusal(lambda: server.change(name, {"spec": {**change.after["spec"], **gone}}))
    if change.field:
        assert names(message, change.field)
        assert "can't be changed once the job has started" in message
    else:
        assert message == ""


@pytest.mark.parametrize("stage", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_cannot_be_scaled(server: Server, stage: str) -> None:
    server.create(tyjob_with({"spec/replicas": 2}))
    assert refusal(lambda: server.change("job", {"spec": {"replicas": 3}}, subresource="scale")) == ""
    server.change("job", {"status": {"stage": stage}}, subresource="status")
    counts = [{**workers, "counts": 7} for workers in tyjob()["spec"]["workerSets"]]
    for field, change, subresource in (
        ("spec.replicas", {"replicas": 4}, "scale"),
        ("spec.replicas", {"replicas": 4}, ""),
        ("spec.replicas", {"replicas": None}, ""),
        ("spec.workerSets", {"workerSets": counts}, ""),
    ):
        message = refusal(lambda spec=change, at=subresource: server.change("job", {"spec": spec}, subresource=at))
        assert names(message, field) and "a job that has ended can't be scaled" in message
    assert refusal(lambda: server.change("job", {"spec": {"replicas": 3, "priority": 9}})) == ""


@pytest.mark.parametrize("status", [{"stage": "Running"}, {"stage": "Starting", "message": "x"}, {"stage": None}, None])
def test_a_status_of_a_started_job_may_change_in_every_way(server: Server, status: Object | None) -> None:
    """The rules about started jobs read the stage of both statuses, which either may lack."""
    server.create(tyjob())
    server.change("job", {"status": {"stage": "Starting"}}, subresource="status")
    assert refusal(lambda: server.change("job", {"status": status}, subresource="status")) == ""


STATUS: Object = {
    "stage": "Running",
    "scheduleState": "ScheduledPartly",
    "restarts": 0,
    "attempt": 0,
    "leaderAddress": "",
    "totalWorkers": 8,
    "readyWorkers": 3,
    "ready": "3/8",
    "message": "5 workers wait",
    "observedGeneration": 1,
    "startTime": "2026-01-02T03:04:05Z",
    "completionTime": None,
    "allocations": [{"node": "n1", "leader": True, "workers": [{"set": "actors", "indices": "0-2"}]}],
    "workers": [{"name": "actors", "total": 8, "ready": 3, "failed": 0, "restarts": 0}],
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "reason": "Quorum",
            "message": "",
            "observedGeneration": 1,
        }
    ],
}


def test_a_status_keeps_every_field_and_its_digest_on_the_way_through_the_server(server: Server) -> None:
    server.create(tyjob())
    kept = server.change("job", {"status": STATUS}, subresource="status")["status"]
    assert status_digest(kept) == status_digest(STATUS)


def test_a_stage_that_there_is_not_is_refused(server: Server) -> None:
    server.create(tyjob())
    message = refusal(lambda: server.change("job", {"status": {"stage": "Lost"}}, subresource="status"))
    assert names(message, "status.stage")
    assert "Unsupported value" in message


@pytest.mark.parametrize("counts", [0, -1])
def test_counts_that_are_too_low_are_refused_by_one_sentence(server: Server, counts: int) -> None:
    for more in ({}, {"spec/workerSets/0/minCount": 1}, {"spec/minWorkersNum": 5}):
        with pytest.raises(Refused) as refused:
            server.apply(tyjob_with({"spec/workerSets/0/counts": counts, **more}))
        assert str(refused.value).endswith(
            f"spec.workerSets[0].counts: Invalid value: {counts}: spec.workerSets[0].counts in body should be greater "
            "than or equal to 1"
        ), refused.value
