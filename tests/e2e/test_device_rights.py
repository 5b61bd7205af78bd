"""The rights of deploy/devices on a real API server, which asks for more than one of them to allocate a claim."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.kube.client import HttpCluster
from arranger.kube.cluster import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, ApiError
from arranger.kube.config import find_access
from arranger.kube.devices import FINALIZER, allocation_of, own_claim, resource_claim_seen
from arranger.kube.translate import job_seen
from arranger.model.pod import PodOwner
from arranger.workers.applying.effects.deletions import delete_claim
from tests.device_objects import claim, claim_template
from tests.devices import on
from tests.e2e.harness import apply, eventually
from tests.e2e.test_deploy_manifests import DEPLOY, account_kubeconfig, given_rights, may
from tests.helm import NAMESPACE, of_kind
from tests.servers import RealKube

APPLIER = "arranger-applier"
JOB = job_seen({"metadata": {"name": "j", "namespace": "default", "uid": "u"}, "spec": {}}, 0, with_status=False)
RIGHTS = (DEPLOY / "devices" / "rights.yaml").read_text()


@pytest.fixture
def kube(kube_server: RealKube) -> Iterator[RealKube]:
    """A server with the applier's account, and a claim."""
    kube_server.clear()
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": APPLIER, "namespace": NAMESPACE}}
    apply(kube_server, own, account, claim("c"), claim_template("gpu"))
    yield kube_server
    kube_server.kubectl("delete", "resourceclaims,resourceclaimtemplates", "--all")


async def allocate(access: Path) -> int:
    """Give the claim a device as the applier does, and make and delete one from the template; returns the code with
    which that was refused."""
    cluster = HttpCluster(find_access(access))
    try:
        live = await cluster.get(RESOURCE_CLAIMS, "default", "c")
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"metadata": {"finalizers": [FINALIZER]}})
        status = {"allocation": allocation_of(on("n1", "gpu-0", request="gpu"), live, [])}
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"status": status}, subresource="status")
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"status": {"allocation": None}}, subresource="status")
        await cluster.patch(RESOURCE_CLAIMS, "default", "c", {"metadata": {"finalizers": None}})
        template = await cluster.get(RESOURCE_CLAIM_TEMPLATES, "default", "gpu")
        made = own_claim(template, JOB, PodOwner(JOB.uid, 0, "actors", False, 3), "gpu")
        await cluster.create(RESOURCE_CLAIMS, "default", made)
        seen = resource_claim_seen(await cluster.get(RESOURCE_CLAIMS, "default", "j-actors-3.gpu"), 0)
        assert await delete_claim(cluster, seen, JOB.uid)
    except ApiError as refused:
        return refused.code
    finally:
        await cluster.close()
    return 0


def without(right: str) -> str:
    """The rights but those on one resource, or but one verb on it."""
    found: list[dict[str, Any]] = list(yaml.safe_load_all(RIGHTS))
    verb, _, resource = right.rpartition(" ")
    for role in of_kind(found, "ClusterRole").values():
        each = [{**rule, "resources": [of]} for rule in role["rules"] for of in rule["resources"]]
        for rule in each:
            if rule["resources"] == [resource]:
                rule["verbs"] = [of for of in rule["verbs"] if verb and of != verb]
        role["rules"] = [rule for rule in each if rule["verbs"]]
    return yaml.safe_dump_all(found)


RESOURCES = ["resourceclaims", "resourceclaims/status", "resourceclaims/binding", "resourceclaimtemplates"]
VERBS = [f"{verb} resourceclaims" for verb in ("get", "patch", "create", "delete")]


@pytest.mark.parametrize("lacking", ["", *RESOURCES, *VERBS])
def test_an_applier_makes_claims_and_gives_them_devices_with_exactly_these_rights(
    kube: RealKube, tmp_path: Path, lacking: str
) -> None:
    with given_rights(kube, without(lacking)):
        eventually("the rights are known", lambda: may(kube, APPLIER, "get", RESOURCE_CLAIMS.group, "deviceclasses"))
        code = asyncio.run(allocate(account_kubeconfig(kube, APPLIER, tmp_path)))
    for name in kube.kubectl("get", "resourceclaims", "-o", "name").stdout.split():
        kube.kubectl("patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert code == {"": 0, "resourceclaims/binding": 422}.get(lacking, 403)
