"""Kubernetes' controller of resource claims: kube-controller-manager's own on a real API server, and a stand-in on the
embedded one. It makes claims for pods from templates, and takes devices from claims whose pods have ended or are gone.
Unlike the stand-in, it also reserves claims for pods that were made with a node."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tests.servers import Daemon, KubeServer, RealKube, claim_controller_binary

_RESOURCES = "/apis/resource.k8s.io/v1/namespaces/default"
_PODS = "/api/v1/namespaces/default/pods"
_PATCH = "application/merge-patch+json"


@contextlib.contextmanager
def claim_controller(kube: KubeServer) -> Iterator[None]:
    """The controller works as long as the context lasts, the stand-in on the namespace `default`."""
    with _real(kube) if isinstance(kube, RealKube) else _stand_in(kube):
        yield


@contextlib.contextmanager
def _real(kube: RealKube) -> Iterator[None]:
    argv = [str(claim_controller_binary()), str(kube.kubeconfig)]
    # Pods wait for the controller, so nothing need wait for it here.
    daemon = Daemon("claim-controller", argv, folder=kube.home, ready=lambda: True)
    try:
        daemon.start()
        yield
    finally:
        daemon.stop(kill=True)


@contextlib.contextmanager
def _stand_in(kube: KubeServer) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.1):
            pods = kube.request("GET", _PODS)[1]["items"]
            for pod in pods:
                _make_claims(kube, pod)
            alive = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
            uids = {pod["metadata"]["uid"] for pod in alive}
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
    """Take pods that are gone from a claim, and the devices if none is left; then let it go if it is being deleted."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    path, version = f"{_RESOURCES}/resourceclaims/{metadata['name']}", {"resourceVersion": metadata["resourceVersion"]}
    reserved = status.get("reservedFor") or []
    left = [of for of in reserved if of["uid"] in uids]
    if left != reserved or (status.get("allocation") and not left and metadata.get("deletionTimestamp")):
        changed = {"reservedFor": left} if left else {"allocation": None, "reservedFor": None}
        _patch(kube, f"{path}/status", {"metadata": version, "status": changed})
    elif not left and not status.get("allocation") and metadata.get("deletionTimestamp"):
        _patch(kube, path, {"metadata": {"finalizers": None}})


def _patch(kube: KubeServer, path: str, body: dict[str, Any]) -> None:
    kube.request("PATCH", path, body, content_type=_PATCH, check=False)
