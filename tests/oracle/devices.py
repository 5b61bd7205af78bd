"""Random devices of a cluster as Kubernetes objects: slices, classes, and claims, some of which have some already."""

from random import Random
from typing import Any

Object = dict[str, Any]

_API = "resource.k8s.io/v1"
_GPUS, _NICS = "gpu.example.com", "nic.example.com"
_ZONE = "topology.kubernetes.io/zone"
#: Name → selectors.
_CLASSES = {
    "gpu": [f'device.driver == "{_GPUS}"'],
    "large": [f'device.driver == "{_GPUS}"', f'device.capacity["{_GPUS}"].memory.isGreaterThan(quantity("60Gi"))'],
    "any": [],
}
_SELECTORS = (
    f'device.attributes["{_GPUS}"].model == "A100"',
    f'device.attributes["{_GPUS}"].cores >= 8',
    f'device.capacity["{_GPUS}"].memory.compareTo(quantity("80Gi")) >= 0',
    f'device.attributes["{_GPUS}"].version.compareTo(semver("2.0.0")) < 0',
    f'"model" in device.attributes["{_GPUS}"] && device.attributes["{_GPUS}"].model in ["H100", "B200"]',
    f'device.driver == "{_NICS}"',
)


class Devices:
    """The devices of one cluster, with claims in these namespaces."""

    def __init__(self, chance: Random, nodes: list[str], namespaces: list[str]) -> None:
        self._chance = chance
        self._nodes = nodes
        self._namespaces = namespaces
        #: (Slice, name) of each device that a claim may have.
        self._free: list[tuple[Object, str]] = []

    def objects(self, asking: Object) -> list[Object]:
        """All objects. The pod that asks gets claims."""
        classes = [
            {
                "apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name, "uid": name},
                "spec": {"selectors": [{"cel": {"expression": of}} for of in selectors]},
            }
            for name, selectors in _CLASSES.items()
        ]  # fmt: skip
        slices = [*self._slices()]
        claims = [self._claim(number) for number in range(self._chance.randint(1, 6))]
        self._ask(asking, claims)
        return [*classes, *slices, *claims]

    def _rarely(self, share: float) -> bool:
        return self._chance.random() < share

    # --- slices --------------------------------------------------------------------------------------------------

    def _slices(self) -> list[Object]:
        found = []
        for node in self._nodes:
            if self._rarely(0.8):
                found += self._pool(node, _GPUS, {"nodeName": node})
        if self._rarely(0.4):
            term = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [self._chance.choice("ab")]}]}
            reach = self._chance.choice(({"nodeSelector": {"nodeSelectorTerms": [term]}}, {"allNodes": True}))
            found += self._pool("fabric", _NICS, reach)
        return found

    def _pool(self, pool: str, driver: str, reach: Object) -> list[Object]:
        """The slices of a pool: one, two, one of two, or one with an earlier one that doesn't count any more."""
        kind = self._chance.choices(("one", "two", "one of two", "renewed"), (6, 2, 1, 1))[0]
        slices = [self._slice(f"{pool}-0", pool, driver, reach, 2 if kind == "renewed" else 1)]
        slices[0]["spec"]["pool"]["resourceSliceCount"] = 2 if kind in ("two", "one of two") else 1
        if kind in ("two", "renewed"):
            slices.append(self._slice(f"{pool}-1", pool, driver, reach, 1))
            slices[1]["spec"]["pool"]["resourceSliceCount"] = 2 if kind == "two" else 1
        current = slices if kind == "two" else slices[:1]
        self._free += [(of, device["name"]) for of in current for device in of["spec"]["devices"]]
        return slices

    def _slice(self, name: str, pool: str, driver: str, reach: Object, generation: int) -> Object:
        devices = [self._device(f"{name}-{number}", driver) for number in range(self._chance.randint(1, 3))]
        of = {"name": pool, "generation": generation}
        spec = {"driver": driver, "pool": of, "devices": devices, **reach}
        return {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": name, "uid": name}, "spec": spec}

    def _device(self, name: str, driver: str) -> Object:
        found: Object = {"name": name}
        if driver == _GPUS:
            attributes: Object = {"model": {"string": self._chance.choice(("A100", "H100"))}}
            if self._rarely(0.6):
                attributes["cores"] = {"int": self._chance.choice((4, 8, 16))}
            if self._rarely(0.6):
                attributes["version"] = {"version": self._chance.choice(("1.2.3", "2.0.0-rc.1", "2.0.0", "10.0.0"))}
            found["attributes"] = attributes
            if not self._rarely(0.1):
                found["capacity"] = {"memory": {"value": self._chance.choice(("40Gi", "80Gi", "81920Mi"))}}
        if self._rarely(0.15):
            found["taints"] = [{"key": "broken", "effect": self._chance.choice(("NoSchedule", "NoExecute", "None"))}]
        return found

    # --- claims --------------------------------------------------------------------------------------------------

    def _claim(self, number: int) -> Object:
        name = f"devices-{number}"
        requests = [self._request(f"r{at}") for at in range(self._chance.choice((1, 1, 2)))]
        metadata: Object = {"name": name, "namespace": self._chance.choice(self._namespaces), "uid": f"uid-{name}"}
        if self._rarely(0.05):
            metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/kept"]}
        spec = {"devices": {"requests": requests}}
        claim: Object = {"apiVersion": _API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        if self._free and self._rarely(0.4):
            claim["status"] = self._allocated()
        return claim

    def _request(self, name: str) -> Object:
        exactly: Object = {"deviceClassName": self._chance.choice([*_CLASSES] * 4 + ["absent"])}
        exactly["allocationMode"] = "All" if self._rarely(0.2) else "ExactCount"
        if exactly["allocationMode"] == "ExactCount":
            exactly["count"] = self._chance.choice((1, 1, 2, 3))
        if self._rarely(0.5):
            count = self._chance.choice((1, 1, 2))
            exactly["selectors"] = [{"cel": {"expression": of}} for of in self._chance.sample(_SELECTORS, count)]
        return {"name": name, "exactly": exactly}

    def _allocated(self) -> Object:
        """The status of a claim that has devices of one slice."""
        of, _ = self._chance.choice(self._free)
        there = [device for slice_, device in self._free if slice_ is of]
        taken = self._chance.sample(there, self._chance.randint(1, len(there)))
        self._free = [(slice_, device) for slice_, device in self._free if slice_ is not of or device not in taken]
        spec = of["spec"]
        results = [
            {"request": "r0", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device}
            for device in taken
        ]
        allocation: Object = {"devices": {"results": results}}
        if "nodeName" in spec:
            fields = [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
        elif "nodeSelector" in spec:
            allocation["nodeSelector"] = spec["nodeSelector"]
        users = [{"resource": "pods", "name": f"user-{at}", "uid": f"uid-user-{at}"} for at in range(2)]
        return {"allocation": allocation, "reservedFor": users[: self._chance.randint(0, 2)]}

    def _ask(self, pod: Object, claims: list[Object]) -> None:
        """Let the pod name claims, some of which are its own, made from a template."""
        metadata, spec = pod["metadata"], pod["spec"]
        there = [of for of in claims if of["metadata"]["namespace"] == metadata["namespace"]]
        named, made = [], []
        for at, of in enumerate(self._chance.sample(there, min(len(there), self._chance.choice((1, 1, 2))))):
            name, claim = f"c{at}", of["metadata"]["name"]
            if self._rarely(0.2):
                named.append({"name": name, "resourceClaimTemplateName": "template"})
                owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
                of["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
                if not self._rarely(0.2):
                    made.append({"name": name, "resourceClaimName": claim})
            else:
                named.append({"name": name, "resourceClaimName": claim})
        if self._rarely(0.05):
            named.append({"name": "lost", "resourceClaimName": "missing"})
        if named:
            spec["resourceClaims"] = named
            pod["status"]["resourceClaimStatuses"] = made
