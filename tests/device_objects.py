"""ResourceSlices, DeviceClasses and ResourceClaims as JSON, as an API server takes them."""

from typing import Any

Object = dict[str, Any]

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
#: An opaque configuration for the driver.
CONFIG = {"opaque": {"driver": DRIVER, "parameters": {"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig"}}}


def slice_of(node: str, *devices: str, model: str = "A100") -> Object:
    """The pool of a node, with these devices."""
    found = [
        {
            "name": device,
            "attributes": {"model": {"string": model}, "driverVersion": {"version": "1.2.3"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for device in devices
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": found}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec}


def device_class(name: str = "gpu") -> Object:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector], "config": [CONFIG]},
    }


def claim_spec(count: int = 1, *, expression: str = "", device_class: str = "gpu") -> Object:
    exactly: Object = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], "config": [CONFIG]}}


def claim_template(name: str, count: int = 1, *, expression: str = "", device_class: str = "gpu") -> Object:
    spec = claim_spec(count, expression=expression, device_class=device_class)
    kind = {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}}
    return {**kind, "spec": {"metadata": {"labels": {"of": "template"}}, "spec": spec}}


def claim(name: str, count: int = 1, *, expression: str = "", device_class: str = "gpu") -> Object:
    spec = claim_spec(count, expression=expression, device_class=device_class)
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
