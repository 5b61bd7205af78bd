"""Priority and fairness of a real API server: deploy/flow-control gives Arranger a level without tenants' clients."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import REPOSITORY, RealKube, real_kube

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

FLOWS = REPOSITORY / "deploy" / "flow-control" / "flows.yaml"


@pytest.fixture(scope="module")
def kube() -> Iterator[RealKube]:
    with real_kube() as server:
        server.kubectl("create", "namespace", "arranger-system")
        for name in ("arranger-watcher", "arranger-applier", "pipeline"):
            server.kubectl("create", "serviceaccount", name, "--namespace=arranger-system")
        yield server


def level_of(kube: RealKube, account: str) -> str:
    """The priority level in which the API server counts a request of a ServiceAccount."""
    user = f"system:serviceaccount:arranger-system:{account}"
    groups = ("system:serviceaccounts", "system:serviceaccounts:arranger-system", "system:authenticated")
    done = kube.kubectl(
        f"--as={user}", *(f"--as-group={group}" for group in groups), "-v=8", "get", "--raw", "/version", check=False
    )
    (uid,) = {
        line.rpartition(":")[2].strip(' "')
        for line in done.stderr.splitlines()
        if "x-kubernetes-pf-prioritylevel-uid" in line.lower()
    }
    levels = json.loads(kube.kubectl("get", "prioritylevelconfigurations", "--output=json").stdout)["items"]
    names: dict[str, Any] = {level["metadata"]["uid"]: level["metadata"]["name"] for level in levels}
    return str(names[uid])


def test_arrangers_requests_have_a_level_of_their_own_and_those_of_other_accounts_do_not(kube: RealKube) -> None:
    for account in ("arranger-watcher", "arranger-applier", "pipeline"):
        assert level_of(kube, account) == "workload-low"
    kube.kubectl("apply", "-f", str(FLOWS))
    kube.kubectl("wait", "--for=jsonpath={.status.conditions[0].status}=False", "flowschema/arranger", "--timeout=30s")
    assert {level_of(kube, account) for account in ("arranger-watcher", "arranger-applier")} == {"arranger"}
    assert level_of(kube, "pipeline") == "workload-low"
    schema = json.loads(kube.kubectl("get", "flowschema", "arranger", "--output=json").stdout)
    dangling = {of["type"]: of["status"] for of in schema["status"]["conditions"]}
    assert dangling == {"Dangling": "False"}, "the level exists"
