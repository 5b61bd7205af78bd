"""A stand-in for Kubernetes' controller of resource claims: it makes claims for pods from templates, and takes devices
from claims whose pods are gone."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tests.servers import KubeServer

_RESOURCES = "/apis/resource.k8s.io/v1/namespaces/default"
_PODS = "/api/v1/namespaces/default/pods"
_PATCH = "application/merge-patch+json"


@contextlib.contextmanager
def claim_controller(kube: KubeServer) -> Iterator[None]:
    """The controller works on the namespace `default` as long as the context lasts."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.1):
            pods = kube.request("GET", _PODS)[1]["items"]
            for pod in pods:
                _make_claims(kube, pod)
            uids = {pod["metadata"]["uid"] for pod in pods}
            for claim in kube.request("GET", f"{_RESOURCES}/resourceclaims")[1]["items"]:
                _release(kube, claim, uids)

    thread = threading.Thread(target=work, name="claim-controller")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _make_claims(kube: KubeServer, pod: dict[str, Any]) -> None:
    """Make the claims that a pod has no status for yet."""
    name, there = pod["metadata"]["name"], pod.get("status", {}).get("resourceClaimStatuses") or []
    entries = [of for of in pod["spec"].get("resourceClaims") or () if of.get("resourceClaimTemplateName")]
    lacking = [of for of in entries if of["name"] not in {one["name"] for one in there}]
    for entry in lacking:
        path = f"{_RESOURCES}/resourceclaimtemplates/{entry['resourceClaimTemplateName']}"
        template = kube.request("GET", path)[1]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
        made = f"{name}-{entry['name']}"
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": made, "ownerReferences": [owner]},
            "spec": template["spec"]["spec"],
        }
        kube.request("POST", f"{_RESOURCES}/resourceclaims", body, check=False)
        there = [*there, {"name": entry["name"], "resourceClaimName": made}]
    if lacking:
        _patch(kube, f"{_PODS}/{name}/status", {"status": {"resourceClaimStatuses": there}})


def _release(kube: KubeServer, claim: dict[str, Any], uids: set[str]) -> None:
    """Take the devices from a claim whose pods are gone, and let it go if it is being deleted."""
    status, path = claim.get("status") or {}, f"{_RESOURCES}/resourceclaims/{claim['metadata']['name']}"
    reserved = status.get("reservedFor") or []
    if not reserved or any(of["uid"] in uids for of in reserved):
        return
    version = {"resourceVersion": claim["metadata"]["resourceVersion"]}
    _patch(kube, f"{path}/status", {"metadata": version, "status": {"allocation": None, "reservedFor": None}})
    _patch(kube, path, {"metadata": {"finalizers": None}})


def _patch(kube: KubeServer, path: str, body: dict[str, Any]) -> None:
    kube.request("PATCH", path, body, content_type=_PATCH, check=False)
