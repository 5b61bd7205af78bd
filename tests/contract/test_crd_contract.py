"""The TYJob resource definition on a real API server."""

import pytest
import yaml

from arranger.kube.crd import tyjob_crd
from tests.crd_schema import CORE, made
from tests.servers import RealKube

#: What all annotations of an object together may hold.
ANNOTATIONS_LIMIT = 262_144
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_the_schema_of_templates_is_what_the_api_server_publishes(kube_server: RealKube) -> None:
    version = kube_server.request("GET", "/version")[1]["gitVersion"]
    for path, text in made(kube_server.request("GET", CORE)[1], version).items():
        assert path.read_text() == text, f"{path.name} isn't what `python -m tests.crd_schema` writes"


def test_what_arranger_crd_prints_can_be_applied_by_the_client_and_by_the_server(kube_server: RealKube) -> None:
    kube_server.kubectl("apply", "-f", "-", stdin=tyjob_crd())
    kube_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=tyjob_crd())
    answer = kube_server.kubectl("get", "crd", "tyjobs.arranger.dev", "-o", "yaml").stdout
    metadata = yaml.load(answer, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["metadata"]
    # With room for what is still to come.
    assert len(metadata["annotations"][LAST_APPLIED]) < 0.85 * ANNOTATIONS_LIMIT


@pytest.mark.parametrize(
    ("field", "shows"),
    [
        ("spec.leader.template.spec", "tolerations"),
        ("spec.workerSets.template.spec.containers", "imagePullPolicy"),
        ("spec.volumes", "persistentVolumeClaim"),
    ],
)
def test_kubectl_explains_what_a_template_may_have(kube_server: RealKube, field: str, shows: str) -> None:
    assert shows in kube_server.kubectl("explain", f"tyjobs.{field}").stdout
