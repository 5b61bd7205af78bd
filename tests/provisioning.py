"""ProvisioningRequests for tests: their definition, and a stand-in of the autoscaler that answers them."""

from contextlib import suppress
from typing import Any

from arranger.kube.cluster import NODES, POD_TEMPLATES, PODS, PROVISIONING_REQUESTS, ApiError, Cluster, Object
from arranger.model.quantity import amount

#: The CustomResourceDefinition, with the checks of the autoscaler's own that concern what Arranger writes.
_POD_SET = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 1},
        "podTemplateRef": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    },
}
_SPEC = {
    "type": "object",
    "required": ["podSets", "provisioningClassName"],
    "properties": {
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": _POD_SET},
        "provisioningClassName": {
            "type": "string", "maxLength": 253,
            "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        },
    },
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
}  # fmt: skip
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{PROVISIONING_REQUESTS.plural}.{PROVISIONING_REQUESTS.group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": PROVISIONING_REQUESTS.group,
        "scope": "Namespaced",
        "names": {
            "plural": PROVISIONING_REQUESTS.plural, "singular": "provisioningrequest",
            "kind": PROVISIONING_REQUESTS.kind, "shortNames": ["provreq"],
        },
        "versions": [
            {
                "name": PROVISIONING_REQUESTS.version, "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": _SPEC,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}  # fmt: skip


def condition(kind: str, message: str = "") -> Object:
    """The status of a ProvisioningRequest with this condition."""
    found = {"type": kind, "status": "True", "reason": kind, "message": message}
    return {"status": {"conditions": [{**found, "lastTransitionTime": "2026-11-23T10:00:00Z"}]}}


class Autoscaler:
    """It looks at the requests whenever it is told to. It accepts one once its PodTemplates are there. At a later look
    it answers, and then it adds a node for each pod, one at each look, with the requests of the pod's container."""

    def __init__(self, cluster: Cluster, *, fails: int = 0) -> None:
        self._cluster = cluster
        #: How many further requests fail.
        self.fails = fails
        self._told: dict[str, str] = {}
        self._coming: dict[str, list[Object]] = {}

    async def look(self) -> None:
        """One look at all requests."""
        async for page in self._cluster.listing(PROVISIONING_REQUESTS):
            for request in page.items:
                await self._take(request)

    async def _take(self, request: Object) -> None:
        name, told = request["metadata"]["name"], self._told.get(request["metadata"]["uid"], "")
        if not told:
            with suppress(ApiError):
                self._coming[name] = await self._nodes(request)
                await self._tell(request, "Accepted")
        elif told == "Accepted" and self.fails:
            self.fails -= 1
            await self._tell(request, "Failed", "no capacity")
        elif told == "Accepted":
            await self._tell(request, "Provisioned")
        elif told == "Provisioned" and self._coming[name]:
            node = await self._cluster.create(NODES, None, self._coming[name].pop())
            await self._cluster.patch(NODES, None, node["metadata"]["name"], {"spec": {"taints": None}})  # it is ready

    async def _tell(self, request: Object, kind: str, message: str = "") -> None:
        self._told[request["metadata"]["uid"]] = kind
        of = request["metadata"]
        body = condition(kind, message)
        await self._cluster.patch(PROVISIONING_REQUESTS, of["namespace"], of["name"], body, subresource="status")

    async def _nodes(self, request: Object) -> list[Object]:
        """The nodes for a request. Raises `ApiError` 404 while a PodTemplate isn't there."""
        found: list[Object] = []
        for pods in request["spec"]["podSets"]:
            namespace, named = request["metadata"]["namespace"], pods["podTemplateRef"]["name"]
            spec = (await self._cluster.get(POD_TEMPLATES, namespace, named))["template"]["spec"]
            amounts = spec["containers"][0]["resources"]["requests"]
            for index in range(pods["count"]):
                found.append(_node(f"{named}-{index}", amounts, spec.get("nodeSelector") or {}))
        return found


class PendingAutoscaler:
    """It looks, as cluster-autoscaler and Karpenter do, for pods without a node, without scheduling gates, and with the
    condition PodScheduled that is False because they are Unschedulable. Those that don't fit beside each other on the
    nodes that are there get a node each, one at each look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.added = 0

    async def look(self) -> None:
        """One look at all pods and nodes."""
        pods = [of async for page in self._cluster.listing(PODS) for of in page.items]
        nodes = [of async for page in self._cluster.listing(NODES) for of in page.items]
        used = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
        free = [node for node in nodes if node["metadata"]["name"] not in used]  # each node has room for one pod
        for pod in sorted(filter(_unschedulable, pods), key=lambda of: str(of["metadata"]["name"])):
            fits = next((node for node in free if _fits(pod, node)), None)
            if fits is None:
                await self._add(pod["spec"])
                return
            free.remove(fits)

    async def _add(self, spec: Object) -> None:
        self.added += 1
        amounts = spec["containers"][0]["resources"]["requests"]
        node = _node(f"added-{self.added}", amounts, spec.get("nodeSelector") or {})
        await self._cluster.create(NODES, None, node)
        await self._cluster.patch(NODES, None, node["metadata"]["name"], {"spec": {"taints": None}})  # it is ready


def _unschedulable(pod: Object) -> bool:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    conditions = (pod.get("status") or {}).get("conditions") or []
    told = any(waits.items() <= of.items() for of in conditions)
    return told and not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")


def _fits(pod: Object, node: Object) -> bool:
    labels, room = node["metadata"].get("labels") or {}, node["status"]["allocatable"]
    selected = (pod["spec"].get("nodeSelector") or {}).items() <= labels.items()
    asked = pod["spec"]["containers"][0]["resources"]["requests"]
    return selected and all(amount(name, of) <= amount(name, room.get(name, "0")) for name, of in asked.items())


def _node(name: str, amounts: dict[str, Any], labels: dict[str, str]) -> Object:
    status = {
        "allocatable": {**amounts, "pods": "1", "memory": "1Gi"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-23T10:00:00Z"}],
    }
    return {"metadata": {"name": name, "labels": labels}, "status": status}
