"""Random clusters as Kubernetes objects: nodes, pods on them, and a pod without a node, which is the last object.

Few names and values are used, so that rules meet what they are about. Everything follows from the seed.
"""

from random import Random
from typing import Any

from tests.oracle.devices import Devices

Object = dict[str, Any]

HOSTNAME, ZONE, REGION = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_DISKS, _APPS, _TRACKS = ("ssd", "hdd"), ("web", "db", "train"), ("stable", "canary")
_NAMESPACES = {"default": {}, "blue": {"team": "blue"}, "green": {"team": "green", "tier": "low"}}
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_TAINTS = ("dedicated", "spot")
_DRIVER = "csi.example.com"
_CLASSES = ("now", "late", "late-in-a")
#: A cluster has about half of these: with all of them, hardly a node would pass the first filters.
_THEMES = (
    "taints", "cordons", "selectors", "node affinity", "pod affinity", "spread", "volumes", "ports", "scarcity",
    "devices",
)  # fmt: skip


def cluster(seed: int) -> list[Object]:
    """The objects of a cluster; the last one is the pod to be placed."""
    objects = _Cluster(Random(seed)).objects()
    for number, one in enumerate(objects, start=1):
        one["metadata"]["resourceVersion"] = str(number)
    return objects


class _Cluster:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._names = [f"node-{number}" for number in range(chance.randint(1, 9))]
        self._themes = {theme: chance.random() < 0.45 for theme in _THEMES}
        self._with_volumes = self._themes["volumes"]
        self._volumes: list[Object] = []
        self._claims: list[Object] = []
        self._devices = Devices(chance, self._names, [*_NAMESPACES]) if self._themes["devices"] else None

    def objects(self) -> list[Object]:
        nodes = [self._node(name) for name in self._names]
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            for name, labels in _NAMESPACES.items()
        ]
        if self._with_volumes:
            self._make_volumes()
        placed = [self._placed(number) for number in range(self._chance.randint(0, 4 * len(nodes)))]
        asking = self._pod("asking", self._chance.choice([*_NAMESPACES]))
        asking["spec"]["schedulerName"] = "arranger"
        if self._rarely(0.05):
            asking["spec"]["tolerations"] = [{"operator": "Exists"}]
        storage = [*self._classes(), *self._csi_nodes()] if self._with_volumes else []
        devices = self._devices.objects(asking) if self._devices is not None else []
        return [*namespaces, *nodes, *storage, *devices, *self._volumes, *self._claims, *placed, asking]

    def _rarely(self, share: float, theme: str = "") -> bool:
        return self._chance.random() < share and self._themes.get(theme, True)

    # --- nodes ---------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> Object:
        labels = {HOSTNAME: name, "disk": self._chance.choice(_DISKS), "cores": str(self._chance.choice((4, 8, 16)))}
        if not self._rarely(0.15):
            labels[ZONE] = self._chance.choice(("a", "b", "c"))
            labels[REGION] = "r"
        if self._rarely(0.1):
            labels["cores"] = "many"
        if self._rarely(0.1):
            del labels["disk"]
        amounts = {
            "cpu": f"{self._chance.choice((2, 4, 8))}",
            "memory": "8Gi",
            "pods": str(self._chance.choice((3, 10) if self._themes["scarcity"] else (110,))),
        }
        if self._rarely(0.5):
            amounts["nvidia.com/gpu"] = str(self._chance.choice((0, 2, 8)))
        if self._rarely(0.2):
            amounts["hugepages-2Mi"] = "64Mi"
        if self._rarely(0.3):
            amounts["ephemeral-storage"] = "10Gi"
        taints = [
            {"key": key, "effect": self._chance.choice(_EFFECTS)} | ({"value": "yes"} if self._rarely(0.7) else {})
            for key in _TAINTS
            if self._rarely(0.3, "taints")
        ]
        spec: Object = {"taints": taints} if taints else {}
        if self._rarely(0.2, "cordons"):
            spec["unschedulable"] = True
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        return {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": spec, "status": status,
        }  # fmt: skip

    # --- pods ----------------------------------------------------------------------------------------------------

    def _placed(self, number: int) -> Object:
        pod = self._pod(f"pod-{number}", self._chance.choice([*_NAMESPACES]))
        pod["spec"]["nodeName"] = self._chance.choice(self._names)
        pod["status"] = {"phase": "Running"}
        if self._rarely(0.1):
            pod["status"]["phase"] = self._chance.choice(("Succeeded", "Failed"))
        if self._rarely(0.1):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self._rarely(0.3, "scarcity"):
            self._resize(pod)
        return pod

    def _resize(self, pod: Object) -> None:
        """Show what the containers hold while their requests are being changed, or where the kubelet refuses that."""
        spec, status = pod["spec"], pod["status"]
        for side, field in (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")):
            status[field] = [
                {"name": one["name"], "image": "x", "imageID": "", "ready": True, "restartCount": 0} | self._holds()
                for one in spec.get(side, ())
            ]
        if "resources" in spec:
            status |= self._holds()
        conditions = [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
            {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
            {"type": "PodResizeInProgress", "status": "True"},
        ]
        if not self._rarely(0.3):
            status["conditions"] = self._chance.sample(conditions, self._chance.randint(1, 2))

    def _holds(self) -> Object:
        amounts = [{"cpu": self._chance.choice(("10m", "300m", "1500m", "4"))} for _ in range(2)]
        found: Object = (
            {"resources": {"requests": amounts[0]} if self._rarely(0.8) else {}} if self._rarely(0.7) else {}
        )
        return found | ({"allocatedResources": amounts[1]} if self._rarely(0.7) else {})

    def _pod(self, name: str, namespace: str) -> Object:
        labels = {"app": self._chance.choice(_APPS)}
        if self._rarely(0.5):
            labels["track"] = self._chance.choice(_TRACKS)
        spec: Object = {"containers": [self._container(0)]}
        if self._rarely(0.3):
            spec["containers"].append(self._container(1))
        if self._rarely(0.3):
            first = self._container(2)
            if self._rarely(0.4):
                first["restartPolicy"] = "Always"
            spec["initContainers"] = [first]
        if self._rarely(0.2, "scarcity"):
            spec["overhead"] = {"cpu": "250m"}
        if self._rarely(0.1, "scarcity"):
            spec["resources"] = {"requests": {"cpu": self._chance.choice(("500m", "3"))}}
        if self._rarely(0.3, "selectors"):
            spec["nodeSelector"] = {"disk": self._chance.choice(_DISKS)}
        if self._rarely(0.5, "taints"):
            spec["tolerations"] = [self._toleration() for _ in range(self._chance.randint(1, 2))]
        affinity = self._affinity(namespace)
        if affinity:
            spec["affinity"] = affinity
        if self._rarely(0.6, "spread"):
            spec["topologySpreadConstraints"] = [self._spread() for _ in range(self._chance.randint(1, 2))]
        if self._with_volumes and self._rarely(0.6):
            spec["volumes"] = [self._volume(namespace) for _ in range(self._chance.randint(1, 2))]
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
        status = {"phase": "Pending"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def _container(self, number: int) -> Object:
        requests = {
            "cpu": self._chance.choice(("100m", "500m", "1", "2") if self._themes["scarcity"] else ("10m", "50m"))
        }
        if self._rarely(0.5, "scarcity"):
            requests["memory"] = self._chance.choice(("128Mi", "2Gi"))
        if self._rarely(0.3, "scarcity"):
            requests["nvidia.com/gpu"] = self._chance.choice(("1", "4"))
        if self._rarely(0.1, "scarcity"):
            requests["hugepages-2Mi"] = "32Mi"
        if self._rarely(0.2, "scarcity"):
            requests["ephemeral-storage"] = "4Gi"
        if self._rarely(0.05):
            requests = {}
        one: Object = {"name": f"c{number}", "image": "x", "resources": {"requests": requests}}
        if self._rarely(0.5, "ports"):
            port: Object = {"containerPort": 80, "protocol": self._chance.choice(("TCP", "UDP"))}
            port["hostPort"] = self._chance.choice((80, 90))
            if self._rarely(0.4):
                port["hostIP"] = self._chance.choice(("127.0.0.1", "0.0.0.0"))
            one["ports"] = [port]
        return one

    def _toleration(self) -> Object:
        key, found = self._chance.choice(_TAINTS), dict[str, Any]()
        if self._rarely(0.5):
            found = {"key": key, "operator": "Exists"}
        else:
            found = {"key": key, "operator": "Equal", "value": self._chance.choice(("yes", "no"))}
        if self._rarely(0.5):
            found["effect"] = self._chance.choice(_EFFECTS)
        return found

    # --- affinity ------------------------------------------------------------------------------------------------

    def _affinity(self, namespace: str) -> Object:
        found: Object = {}
        if self._rarely(0.5, "node affinity"):
            terms = [self._node_term() for _ in range(self._chance.randint(1, 2))]
            found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        for kind, share in (("podAffinity", 0.3), ("podAntiAffinity", 0.5)):
            if self._rarely(share, "pod affinity"):
                terms = [self._pod_term(namespace) for _ in range(self._chance.randint(1, 2))]
                found[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        return found

    def _node_term(self) -> Object:
        if self._rarely(0.05):
            return {}
        if self._rarely(0.15):
            names = self._chance.sample(self._names, k=1)
            operator = self._chance.choice(("In", "NotIn"))
            return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": names}]}
        return self._expressions()

    def _expressions(self) -> Object:
        return {"matchExpressions": [self._requirement() for _ in range(self._chance.randint(1, 2))]}

    def _requirement(self) -> Object:
        operator = self._chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "cores", "operator": operator, "values": [str(self._chance.choice((4, 6, 8, 16)))]}
        key, values = self._chance.choice((("disk", _DISKS), (ZONE, ("a", "b", "z")), ("cores", ("4", "8"))))
        of = (
            {"values": self._chance.sample(values, k=self._chance.randint(1, 2))} if operator in ("In", "NotIn") else {}
        )
        return {"key": key, "operator": operator, **of}

    def _selector(self, *, empty: float = 0.1) -> Object:
        if self._rarely(empty):
            return {}
        if self._rarely(0.5):
            return {"matchLabels": {"app": self._chance.choice(_APPS)}}
        operator = self._chance.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        of = {"values": [self._chance.choice(_TRACKS)]} if operator in ("In", "NotIn") else {}
        return {"matchExpressions": [{"key": "track", "operator": operator, **of}]}

    def _pod_term(self, namespace: str) -> Object:
        term: Object = {"topologyKey": self._chance.choice((HOSTNAME, ZONE, "disk"))}
        if not self._rarely(0.05):
            term["labelSelector"] = self._selector()
        if self._rarely(0.3):
            term["namespaces"] = self._chance.sample([*_NAMESPACES], k=self._chance.randint(1, 2))
        if self._rarely(0.3):
            team = {"matchLabels": {"team": self._chance.choice(("blue", "green", "red"))}}
            term["namespaceSelector"] = self._chance.choice(({}, team))
        return term

    def _spread(self) -> Object:
        found: Object = {
            "maxSkew": self._chance.choice((1, 1, 2)),
            "topologyKey": self._chance.choice((HOSTNAME, ZONE)),
            "whenUnsatisfiable": self._chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        }
        if not self._rarely(0.05):
            found["labelSelector"] = self._selector(empty=0)  # docs/scope.md says how both differ there
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self._rarely(0.2):
            found["minDomains"] = self._chance.choice((1, 3))
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self._rarely(0.3):
                found[policy] = self._chance.choice(("Honor", "Ignore"))
        if "labelSelector" in found and self._rarely(0.15):
            found["matchLabelKeys"] = ["track"]
        return found

    # --- volumes -------------------------------------------------------------------------------------------------

    def _make_volumes(self) -> None:
        for number in range(self._chance.randint(2, 6)):
            namespace = self._chance.choice([*_NAMESPACES])
            name = f"claim-{number}"
            modes = [self._chance.choice(("ReadWriteOnce", "ReadWriteOncePod"))]
            spec: Object = {"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}}
            phase = "Pending"
            if self._rarely(0.6):
                spec |= {"volumeName": f"volume-{number}", "storageClassName": "now"}
                phase = "Bound"
                self._volumes.append(self._persistent(number, namespace, name, modes))
            else:
                spec["storageClassName"] = self._chance.choice((*_CLASSES, "unknown"))
            metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
            if phase == "Bound":
                metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            self._claims.append(
                {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec,
                    "status": {"phase": phase},
                }
            )  # fmt: skip

    def _persistent(self, number: int, namespace: str, claim: str, modes: list[str]) -> Object:
        spec: Object = {
            "accessModes": modes, "capacity": {"storage": "1Gi"}, "storageClassName": "now",
            "csi": {"driver": _DRIVER, "volumeHandle": f"handle-{number}"},
            "claimRef": {"namespace": namespace, "name": claim, "uid": f"uid-{claim}"},
        }  # fmt: skip
        metadata: Object = {"name": f"volume-{number}", "uid": f"uid-volume-{number}"}
        if self._rarely(0.4):
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [self._expressions()]}}
        if self._rarely(0.7):
            metadata["labels"] = {ZONE: self._chance.choice(("a", "a__b", "z"))}
        status = {"phase": "Bound"}
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}

    def _volume(self, namespace: str) -> Object:
        names = [one["metadata"]["name"] for one in self._claims if one["metadata"]["namespace"] == namespace]
        name = self._chance.choice([*names * 8, "missing"])
        return {"name": f"v{self._chance.randint(0, 10**9)}", "persistentVolumeClaim": {"claimName": name}}

    def _classes(self) -> list[Object]:
        found = []
        for name in _CLASSES:
            of: Object = {
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name, "uid": name},
                "provisioner": _DRIVER, "volumeBindingMode": "Immediate" if name == "now" else "WaitForFirstConsumer",
            }  # fmt: skip
            if name == "late-in-a":
                of["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
            found.append(of)
        return found

    def _csi_nodes(self) -> list[Object]:
        found = []
        for name in self._names:
            driver: Object = {"name": _DRIVER, "nodeID": name}
            if self._rarely(0.5):
                driver["allocatable"] = {"count": self._chance.choice((1, 2))}
            found.append(
                {
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name, "uid": name},
                    "spec": {"drivers": [driver]},
                }
            )  # fmt: skip
        return found
