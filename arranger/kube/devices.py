"""From ResourceSlices, DeviceClasses and ResourceClaims, as JSON, to observations, and from decided devices to the
allocation of a claim. Pure functions of the object.

Objects come from the API server, so they are well-typed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arranger.events.devices import DeviceClassSeen, ResourceClaimSeen, ResourceClaimTemplateSeen, ResourceSliceSeen
from arranger.events.kinds import JobSeen
from arranger.kube.cluster import RESOURCE_CLAIMS
from arranger.kube.owners import identity_of, owner_reference
from arranger.kube.translate import controlling_job
from arranger.model.devices import (
    MOST_DEVICES,
    AllocatedDevice,
    Allocation,
    DeviceFacts,
    DeviceId,
    DeviceRequest,
    DeviceValue,
    ResourceClaimFacts,
    SliceFacts,
)
from arranger.model.names import CLAIM_LABEL, name_in_slot, own_claim_name, owner_of, pod_labels
from arranger.model.pod import NodeTerms, PodOwner
from arranger.model.template import node_terms

Json = Mapping[str, Any]

#: The finalizer that keeps a claim while it has devices; whoever takes them from it removes it.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: A device with one of these can't simply be given to one claim.
_NOT_WHOLE = ("consumesCounters", "allowMultipleAllocations", "bindsToNode", "bindingConditions", "nodeName",
              "nodeSelector", "allNodes")  # fmt: skip
_KEPT_OFF = ("NoSchedule", "NoExecute")
_ALL, _EXACTLY = "All", "ExactCount"


def resource_slice_seen(of: Json, term: int) -> ResourceSliceSeen:
    spec = of.get("spec") or {}
    pool, driver = spec.get("pool") or {}, spec.get("driver") or ""
    selector = spec.get("nodeSelector")
    facts = SliceFacts(
        driver=driver,
        pool=pool.get("name") or "",
        generation=pool.get("generation") or 0,
        slices=pool.get("resourceSliceCount") or 0,
        node=spec.get("nodeName") or "",
        terms=None if selector is None else node_terms(selector),
        devices=tuple(
            _device(device, driver, whole=not spec.get("perDeviceNodeSelection"))
            for device in spec.get("devices") or ()
        ),
    )
    return ResourceSliceSeen(*_head(of["metadata"], term), facts)


def _device(device: Json, driver: str, *, whole: bool) -> DeviceFacts:
    tainted = any(taint.get("effect") in _KEPT_OFF for taint in device.get("taints") or ())
    whole = whole and not tainted and not any(device.get(field) for field in _NOT_WHOLE)
    return DeviceFacts(device["name"], tuple(sorted(_values(device, driver), key=lambda of: of.name)), whole)


def _values(device: Json, driver: str) -> Iterator[DeviceValue]:
    for name, attribute in (device.get("attributes") or {}).items():
        for kind in ("string", "int", "bool", "version"):
            if attribute.get(kind) is not None:
                yield DeviceValue(_qualified(name, driver), kind, attribute[kind])
    for name, capacity in (device.get("capacity") or {}).items():
        yield DeviceValue(_qualified(name, driver), "quantity", str(capacity.get("value") or "0"))


def _qualified(name: str, driver: str) -> str:
    """A name without a domain has that of the driver."""
    return name if "/" in name else f"{driver}/{name}"


def device_class_seen(of: Json, term: int) -> DeviceClassSeen:
    return DeviceClassSeen(*_head(of["metadata"], term), _selectors(of.get("spec") or {}))


def resource_claim_seen(claim: Json, term: int) -> ResourceClaimSeen:
    metadata, status = claim["metadata"], claim.get("status") or {}
    requests, beyond = _asked(claim.get("spec") or {})
    allocation, (owner, entry) = status.get("allocation"), _pod_of(metadata)
    facts = ResourceClaimFacts(
        requests=requests,
        beyond=beyond,
        deleting=bool(metadata.get("deletionTimestamp")),
        allocation=None if allocation is None else _allocation(allocation),
        reserved=tuple(sorted(of.get("uid") or "" for of in status.get("reservedFor") or ())),
        owner=owner,
        entry=entry,
    )
    return ResourceClaimSeen(term, *_where(metadata), facts)


def resource_claim_template_seen(of: Json, term: int) -> ResourceClaimTemplateSeen:
    facts = ResourceClaimFacts(*_asked((of.get("spec") or {}).get("spec") or {}))
    return ResourceClaimTemplateSeen(term, *_where(of["metadata"]), facts)


def _where(metadata: Json) -> tuple[str, str, str, str]:
    """Namespace, name, UID and resourceVersion."""
    version = metadata.get("resourceVersion") or ""
    return metadata.get("namespace") or "", metadata["name"], metadata.get("uid") or "", version


def _pod_of(metadata: Json) -> tuple[PodOwner | None, str]:
    """The slot of the pod of a TYJob for which Arranger made a claim, and the pod's name for the claim, by its owner,
    labels and name; None and "" for any other claim."""
    labels, job = metadata.get("labels") or {}, controlling_job(metadata)
    entry = labels.get(CLAIM_LABEL) or ""
    if job is None or not entry:
        return None, ""
    pod = metadata["name"].removesuffix(own_claim_name("", entry))
    owner = owner_of(pod, labels, job=job.get("name") or "", job_uid=job["uid"])
    return (owner, entry) if owner is not None and own_claim_name(pod, entry) == metadata["name"] else (None, "")


def own_claim(template: Json, job: JobSeen, owner: PodOwner, entry: str) -> dict[str, Any]:
    """The claim from a ResourceClaimTemplate that the pod of this slot has for itself. It is kept until it has lost its
    devices, like each claim with some."""
    spec, pod = template["spec"], name_in_slot(job.name, owner)
    own = spec.get("metadata") or {}
    labels = pod_labels(
        job.name, owner.group_name, leader=owner.leader, index=owner.index, attempt=owner.attempt,
        failed_before=owner.failed_before,
    )  # fmt: skip
    metadata = {
        "name": own_claim_name(pod, entry),
        "namespace": job.namespace,
        "labels": {**(own.get("labels") or {}), **labels, CLAIM_LABEL: entry},
        "ownerReferences": [owner_reference(identity_of(job))],
        "finalizers": [FINALIZER],
        **({"annotations": own["annotations"]} if own.get("annotations") else {}),
    }
    kind = {"apiVersion": RESOURCE_CLAIMS.api_version, "kind": RESOURCE_CLAIMS.kind}
    return {**kind, "metadata": metadata, "spec": spec["spec"]}


def _asked(spec: Json) -> tuple[tuple[DeviceRequest, ...], str]:
    """The requests of a claim's spec, and what is beyond them."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    return tuple(_request(of) for of in requests), _beyond(devices, requests)


def _request(of: Json) -> DeviceRequest:
    exactly = of.get("exactly") or {}
    count = 0 if exactly.get("allocationMode") == _ALL else exactly.get("count") or 1
    return DeviceRequest(of.get("name") or "", exactly.get("deviceClassName") or "", _selectors(exactly), count)


def _selectors(of: Json) -> tuple[str, ...]:
    return tuple((selector.get("cel") or {}).get("expression") or "" for selector in of.get("selectors") or ())


def _beyond(devices: Json, requests: Sequence[Json]) -> str:
    """The first field by which a claim asks for more than exact counts or all devices of classes."""
    if devices.get("constraints"):
        return "constraints"
    for of in requests:
        exactly = of.get("exactly") or {}
        if not exactly:
            return "firstAvailable"
        if (mode := exactly.get("allocationMode") or _EXACTLY) not in (_ALL, _EXACTLY):
            return f"allocationMode {mode}"
        if field := next((field for field in ("adminAccess", "capacity") if exactly.get(field)), ""):
            return field
    count = sum(_request(of).count for of in requests)
    return f"more than {MOST_DEVICES} devices" if count > MOST_DEVICES else ""


def _allocation(of: Json) -> Allocation:
    selector, results = of.get("nodeSelector"), (of.get("devices") or {}).get("results") or ()
    devices = [
        AllocatedDevice(one.get("request") or "", DeviceId(one["driver"], one["pool"], one["device"]))
        for one in results
        if not one.get("adminAccess")  # it takes the device from nobody
    ]
    return Allocation(tuple(devices), None if selector is None else node_terms(selector))


def allocation_of(decided: Allocation, claim: Json, classes: Sequence[Json]) -> dict[str, Any]:
    """The allocation of a claim as its status has it: the devices, and the configuration that their driver gets, that
    of the classes before that of the claim."""
    devices = (claim.get("spec") or {}).get("devices") or {}
    configs = []
    for request in devices.get("requests") or ():
        named = (request.get("exactly") or {}).get("deviceClassName")
        for of in classes:
            if of["metadata"]["name"] == named:
                given = (of.get("spec") or {}).get("config") or ()
                configs += [{**one, "source": "FromClass", "requests": [request["name"]]} for one in given]
    configs += [{**one, "source": "FromClaim"} for one in devices.get("config") or ()]
    results = [
        {"request": of.request, "driver": of.device.driver, "pool": of.device.pool, "device": of.device.device}
        for of in decided.devices
    ]
    found: dict[str, Any] = {"devices": {"results": results, **({"config": configs} if configs else {})}}
    return found if decided.terms is None else {**found, "nodeSelector": _node_selector(decided.terms)}


def _node_selector(terms: NodeTerms) -> dict[str, Any]:
    found = []
    for term in terms:
        said: dict[str, Any] = {}
        for one in term:
            of = {"key": one.key, "operator": one.operator, **({"values": [*one.values]} if one.values else {})}
            said.setdefault("matchFields" if one.field else "matchExpressions", []).append(of)
        found.append(said)
    return {"nodeSelectorTerms": found}


def _head(metadata: Json, term: int) -> tuple[int, str, str, str]:
    """Term, name, UID and resourceVersion."""
    return term, metadata["name"], metadata.get("uid") or "", metadata.get("resourceVersion") or ""
