"""The scale subresource of TYJobs, held against a real API server and the embedded one alike."""

from collections.abc import Iterator
from typing import Any

import pytest

from arranger.kube.cluster import TYJOBS
from tests.conftest import _required
from tests.e2e.harness import EmbeddedKube
from tests.servers import MERGE, KubeServer, RealKube
from tests.unit.tyjob_table import tyjob_with

JSON_PATCH = "application/json-patch+json"
NAME = "scaled"


class Scaled:
    """A TYJob, and requests to its scale."""

    def __init__(self, server: KubeServer, namespace: str) -> None:
        self._server = server
        self.namespace = namespace
        self._path = f"{TYJOBS.path(namespace)}/{NAME}"

    def create(self, **spec: Any) -> None:
        job = tyjob_with({"metadata": {"name": NAME}, **{f"spec/{name}": value for name, value in spec.items()}})
        self._server.request("POST", TYJOBS.path(self.namespace), job)

    def ask(self, method: str, body: Any = None, content_type: str = "application/json") -> tuple[int, dict[str, Any]]:
        return self._server.request(method, f"{self._path}/scale", body, content_type=content_type, check=False)

    def patch(self, body: Any, content_type: str = MERGE) -> tuple[int, dict[str, Any]]:
        return self.ask("PATCH", body, content_type)

    def scale(self, replicas: int | None, **metadata: str) -> dict[str, Any]:
        """A whole scale, to be put."""
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": NAME, "namespace": self.namespace, **metadata},
            "spec": {} if replicas is None else {"replicas": replicas},
        }

    def job(self) -> dict[str, Any]:
        return self._server.request("GET", self._path)[1]

    def report(self, **status: Any) -> None:
        """Write the job's status."""
        self._server.request("PATCH", f"{self._path}/status", {"status": status}, content_type=MERGE)

    def kubectl(self, *arguments: str) -> tuple[int, str]:
        done = self._server.kubectl("-n", self.namespace, *arguments, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKube]:
    with _required():
        kube = EmbeddedKube(tmp_path_factory.mktemp("scale"))
    yield kube
    kube.close()


@pytest.fixture(params=["real", "embedded"])
def job(request: pytest.FixtureRequest) -> Scaled:
    if request.param == "real":
        real: RealKube = request.getfixturevalue("kube_server")
        return Scaled(real, real.fresh_namespace())
    kube: EmbeddedKube = request.getfixturevalue("embedded")
    namespace = f"n{len(kube.request('GET', '/api/v1/namespaces')[1]['items'])}"
    kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    return Scaled(kube, namespace)


def says(answer: tuple[int, dict[str, Any]]) -> tuple[int, str, str]:
    """The code, reason and message of a refusal."""
    code, body = answer
    return code, body.get("reason", ""), body.get("message", "")


def test_a_scale_shows_the_number_and_what_the_status_has(job: Scaled) -> None:
    job.create(replicas=3)
    code, scale = job.ask("GET")
    metadata = job.job()["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert code == 200 and scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept},
        "spec": {"replicas": 3},
        "status": {"replicas": 0},
    }
    job.report(replicas=2, selector="a=b")
    assert job.ask("GET")[1]["status"] == {"replicas": 2, "selector": "a=b"}


def test_a_job_without_the_number_can_be_scaled_but_shows_no_scale(job: Scaled) -> None:
    job.create()
    missing = 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'
    assert says(job.ask("GET")) == (500, "InternalError", missing)
    empty = 'the spec replicas field ".spec.replicas" cannot be empty'
    assert says(job.patch({"metadata": {"labels": {"a": "b"}}})) == (400, "BadRequest", empty)
    code, scale = job.patch({"spec": {"replicas": 4}})
    assert (code, scale["spec"], job.job()["spec"]["replicas"]) == (200, {"replicas": 4}, 4)
    assert job.ask("GET")[1]["spec"] == {"replicas": 4}


def test_a_scale_is_patched_or_replaced_and_nothing_else_of_the_job_changes(job: Scaled) -> None:
    job.create(replicas=3)
    before = job.job()
    assert job.patch({"spec": {"replicas": 4}, "status": {"replicas": 9}})[1]["spec"] == {"replicas": 4}
    step = {"op": "replace", "path": "/spec/replicas", "value": 5}
    assert job.patch([step], JSON_PATCH)[1]["spec"] == {"replicas": 5}
    assert job.ask("PUT", job.scale(6))[1]["spec"] == {"replicas": 6}
    after = job.job()
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 3
    assert after["spec"] == {**before["spec"], "replicas": 6} and "status" not in after


def test_the_number_zero_is_left_out_of_a_scale(job: Scaled) -> None:
    job.create(replicas=1, minWorkersNum=0)
    assert job.ask("PUT", job.scale(None))[1]["spec"] == {}
    assert (job.job()["spec"]["replicas"], job.ask("GET")[1]["spec"]) == (0, {})


def test_a_scale_of_another_version_or_another_job_is_refused(job: Scaled) -> None:
    job.create(replicas=3)
    version = job.ask("GET")[1]["metadata"]["resourceVersion"]
    assert job.ask("PUT", job.scale(4, resourceVersion=version))[0] == 200
    code, reason, message = says(job.ask("PUT", job.scale(5, resourceVersion=version)))
    assert (code, reason) == (409, "Conflict") and "the object has been modified" in message
    code, reason, message = says(job.ask("PUT", job.scale(5, uid="another")))
    assert (code, reason) == (409, "Conflict") and "UID in precondition: another" in message
    assert says(job.ask("PUT", job.scale(5, name="other")))[:2] == (400, "BadRequest")
    assert says(job.ask("PUT", {**job.scale(5), "kind": "TYJob"}))[:2] == (400, "BadRequest")
    assert job.job()["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    ("replicas", "field", "words"),
    [
        (1, "spec.replicas", "must not be below minCount of worker set 'actors', which is 2, but is 1"),
        (2, "spec.replicas", "at least 3, so that all worker sets together have minWorkersNum, which is 3, but is 2"),
        (10001, "spec.replicas", "should be less than or equal to 10000"),
        (-1, "spec.replicas", "should be greater than or equal to 0"),
    ],
)
def test_a_wrong_number_is_refused_naming_the_field(job: Scaled, replicas: int, field: str, words: str) -> None:
    job.create(replicas=4, minWorkersNum=3, **{"workerSets/0/minCount": 2})
    for answer in (job.patch({"spec": {"replicas": replicas}}), job.ask("PUT", job.scale(replicas))):
        assert says(answer)[:2] == (422, "Invalid")
        causes = [cause for cause in answer[1]["details"]["causes"] if cause["field"] == field]
        assert causes and words in causes[0]["message"]
    assert job.job()["spec"]["replicas"] == 4


def test_other_methods_and_patches_are_refused(job: Scaled) -> None:
    assert says(job.ask("GET"))[:2] == (404, "NotFound")
    assert says(job.patch({"spec": {"replicas": 2}}))[:2] == (404, "NotFound")
    job.create(replicas=3)
    assert job.ask("DELETE")[0] == job.ask("POST", job.scale(4))[0] == 405
    assert job.patch({"spec": {"replicas": 2}}, "application/strategic-merge-patch+json")[0] == 415
    assert job.patch([{"op": "test", "path": "/spec/replicas", "value": 9}], JSON_PATCH)[0] == 422
    assert job.patch({"spec": {"replicas": "4"}})[0] == 422


def test_kubectl_scales_with_and_without_the_number_in_the_manifest(job: Scaled) -> None:
    job.create()
    assert job.kubectl("scale", f"tyj/{NAME}", "--replicas=4") == (0, f"tyjob.arranger.dev/{NAME} scaled\n")
    code, output = job.kubectl("scale", f"tyj/{NAME}", "--replicas=5", "--current-replicas=3")
    assert (code, output) == (1, "error: Expected replicas to be 3, was 4\n")
    assert job.kubectl("scale", f"tyj/{NAME}", "--replicas=5", "--current-replicas=4")[0] == 0
    assert job.job()["spec"]["replicas"] == 5
    head, row = job.kubectl("get", f"tyj/{NAME}", "--subresource=scale")[1].splitlines()
    assert (head.split(), row.split()[:3]) == (["NAME", "DESIRED", "AVAILABLE", "AGE"], [NAME, "5", "0"])
    code, output = job.kubectl("scale", f"tyj/{NAME}", "--replicas=0")
    assert code == 1 and "must be at least 1, so that all worker sets together have minWorkersNum" in output
    job.report(stage="Succeeded")
    code, output = job.kubectl("scale", f"tyj/{NAME}", "--replicas=4")
    assert code == 1 and "a job that has ended can't be scaled" in output
