"""The served resources, and the properties of each: names, subresources, schema, columns.

The built-in ones are a table; every created CustomResourceDefinition adds one.
"""

from typing import Any

import msgspec

from arranger.kube.cluster import (
    CLAIMS,
    CONFIG_MAPS,
    CRDS,
    CSI_NODES,
    DEVICE_CLASSES,
    EVENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_TEMPLATES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    SERVICES,
    STORAGE_CLASSES,
    VOLUMES,
    Object,
    Resource,
)
from arranger.sandbox.status import FieldError
from arranger.sandbox.validation import Schema


class Column(msgspec.Struct, frozen=True):
    """One printer column of a custom resource; `priority` above 0 shows it with `-o wide` only."""

    name: str
    type: str
    path: str
    description: str = ""
    format: str = ""
    priority: int = 0


class ScalePaths(msgspec.Struct, frozen=True):
    """Where a custom resource has what its scale shows: the wanted and the present number, and a selector."""

    spec: str
    status: str
    selector: str = ""


class ServedKind(msgspec.Struct, frozen=True, eq=False):
    """A served resource.

    `typed`: the server itself knows the fields (no nulls, strategic merge); `counts_generations`:
    `metadata.generation` grows with the spec; `scale`: it has that subresource.
    """

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    typed: bool = True
    counts_generations: bool = False
    schema: Schema | None = None
    columns: tuple[Column, ...] = ()
    scale: ScalePaths | None = None

    @property
    def subresources(self) -> frozenset[str]:
        """The subresources that a custom resource may have."""
        has = {"status": self.has_status, "scale": self.scale is not None}
        return frozenset(name for name, is_so in has.items() if is_so)

    @property
    def key(self) -> tuple[str, str]:
        return (self.resource.group, self.resource.plural)

    @property
    def head(self) -> bytes:
        """The beginning of each stored object's JSON; lists of built-in kinds omit it from their items."""
        names = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        return msgspec.json.encode(names)[:-1] + b","


SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")

BUILT_IN = (
    ServedKind(NAMESPACES, "namespace", ("ns",), has_status=True),
    ServedKind(NODES, "node", ("no",), has_status=True),
    ServedKind(PODS, "pod", ("po",), ("all",), has_status=True, counts_generations=True),
    ServedKind(EVENTS, "event", ("ev",)),
    ServedKind(CONFIG_MAPS, "configmap", ("cm",)),
    ServedKind(SECRETS, "secret"),
    ServedKind(SERVICE_ACCOUNTS, "serviceaccount", ("sa",)),
    ServedKind(SERVICES, "service", ("svc",), ("all",), has_status=True),
    ServedKind(POD_TEMPLATES, "podtemplate"),
    ServedKind(QUOTAS, "resourcequota", ("quota",), has_status=True),
    ServedKind(LIMIT_RANGES, "limitrange", ("limits",)),
    ServedKind(LEASES, "lease"),
    ServedKind(POD_DISRUPTION_BUDGETS, "poddisruptionbudget", ("pdb",), has_status=True, counts_generations=True),
    ServedKind(PRIORITY_CLASSES, "priorityclass", ("pc",), counts_generations=True),
    ServedKind(RUNTIME_CLASSES, "runtimeclass"),
    ServedKind(CLAIMS, "persistentvolumeclaim", ("pvc",), has_status=True),
    ServedKind(VOLUMES, "persistentvolume", ("pv",), has_status=True),
    ServedKind(STORAGE_CLASSES, "storageclass", ("sc",)),
    ServedKind(CSI_NODES, "csinode"),
    ServedKind(RESOURCE_SLICES, "resourceslice", counts_generations=True),
    ServedKind(DEVICE_CLASSES, "deviceclass", counts_generations=True),
    ServedKind(RESOURCE_CLAIMS, "resourceclaim", has_status=True),
    ServedKind(RESOURCE_CLAIM_TEMPLATES, "resourceclaimtemplate"),
    ServedKind(CRDS, "customresourcedefinition", ("crd", "crds"), ("api-extensions",), True, counts_generations=True),
)


def _column(declared: dict[str, Any]) -> Column:
    path = declared["jsonPath"]
    return Column(
        declared["name"],
        declared["type"],
        path,
        declared.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        declared.get("format", ""),
        declared.get("priority", 0),
    )


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def custom_kinds(crd: dict[str, Any]) -> list[ServedKind]:
    """The kind in each version that a CRD serves, the stored one first. Raises `ValueError` for an unusable schema."""
    served = [each for each in crd["spec"].get("versions") or [] if each.get("served")]
    if not any(each.get("storage") for each in served):
        raise ValueError("spec.versions: one version must be served and stored")
    return [_custom_kind(crd["spec"], each) for each in sorted(served, key=lambda each: not each.get("storage"))]


def _custom_kind(spec: dict[str, Any], version: dict[str, Any]) -> ServedKind:
    names = spec["names"]
    namespaced = spec["scope"] == "Namespaced"
    declared = version.get("additionalPrinterColumns") or [_AGE]
    subresources = version.get("subresources") or {}
    return ServedKind(
        Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced),
        names.get("singular") or names["kind"].lower(),
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        has_status="status" in subresources,
        typed=False,
        counts_generations=True,
        schema=Schema(version["schema"]["openAPIV3Schema"]),
        columns=tuple(_column(column) for column in declared),
        scale=_scale_paths(subresources["scale"]) if "scale" in subresources else None,
    )


def _scale_paths(declared: dict[str, str]) -> ScalePaths:
    return ScalePaths(
        declared["specReplicasPath"], declared["statusReplicasPath"], declared.get("labelSelectorPath", "")
    )


def definition_errors(crd: Object) -> list[FieldError]:
    try:
        kind = custom_kinds(crd)[0]
    except (KeyError, TypeError, AttributeError) as error:
        return [FieldError("spec", f"Required value: {error}", "FieldValueRequired")]
    except ValueError as error:
        return [FieldError("spec.versions[0].schema", f"Invalid value: compilation failed: {error}")]
    expected = f"{kind.resource.plural}.{kind.resource.group}"
    name = crd["metadata"].get("name")
    if name != expected:
        return [FieldError("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group')]
    return []


def established(crd: Object, kind: ServedKind, moment: str, *, served_before: bool) -> Object:
    """The CRD as it is stored while its kind is served: with its names filled in and a status with the present time.

    A kind that was `served_before` this write keeps its status.
    """
    names = crd["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    crd["spec"].setdefault("conversion", {"strategy": "None"})
    if served_before and "status" in crd and crd["status"].get("conditions"):
        return crd
    conditions = [
        {"type": name, "status": "True", "lastTransitionTime": moment, "reason": reason, "message": message}
        for name, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    status = {"conditions": conditions, "acceptedNames": names, "storedVersions": [kind.resource.version]}
    return {**crd, "status": status}
