"""The rights of deploy/devices on a real API server, which asks for more than one of them to allocate a claim."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import RESOURCE_CLAIMS, ApiError
from arranger.kube.config import find_access
from arranger.kube.devices import FINALIZER, allocation_of
from tests.device_objects import claim
from tests.devices import on
from tests.e2e.harness import apply, eventually
from tests.e2e.test_deploy_manifests import DEPLOY, account_kubeconfig, given_rights, may
from tests.helm import NAMESPACE, of_kind
from tests.servers import RealKube

APPLIER = "arranger-applier"
RIGHTS = (DEPLOY / "devices" / "rights.yaml").read_text()


@pytest.fixture
def kube(kube_server: RealKube) -> Iterator[RealKube]:
    """A server with the applier's account, and a claim."""
    kube_server.clear()
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": APPLIER, "namespace": NAMESPACE}}
    apply(kube_server, own, account, claim("c"))
    yield kube_server
    kube_server.kubectl("delete", "resourceclaim", "c")


async def allocate(access: Path) -> int:
    """Give the claim a device as the applier does; returns the code with which that was refused."""
    cluster = HttpCluster(find_access(access))
    try:
        live = await cluster.get(RESOURCE_CLAIMS, "default", "c")
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"metadata": {"finalizers": [FINALIZER]}})
        status = {"allocation": allocation_of(on("n1", "gpu-0", request="gpu"), live, [])}
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"status": status}, subresource="status")
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"status": {"allocation": None}}, subresource="status")
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"metadata": {"finalizers": None}})
    except ApiError as refused:
        return refused.code
    finally:
        await cluster.close()
    return 0


def without(right: str) -> str:
    """The rights but those on one resource."""
    found: list[dict[str, Any]] = list(yaml.safe_load_all(RIGHTS))
    for role in of_kind(found, "ClusterRole").values():
        for rule in role["rules"]:
            rule["resources"] = [of for of in rule["resources"] if of != right]
        role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    return yaml.safe_dump_all(found)


@pytest.mark.parametrize("lacking", ["", "resourceclaims", "resourceclaims/status", "resourceclaims/binding"])
def test_an_applier_gives_a_claim_its_devices_with_exactly_these_rights(
    kube: RealKube, tmp_path: Path, lacking: str
) -> None:
    with given_rights(kube, without(lacking)):
        eventually("the rights are known", lambda: may(kube, APPLIER, "get", RESOURCE_CLAIMS.group, "deviceclasses"))
        code = asyncio.run(allocate(account_kubeconfig(kube, APPLIER, tmp_path)))
    kube.kubectl("patch", "resourceclaim", "c", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert code == {"": 0, "resourceclaims/binding": 422}.get(lacking, 403)
