"""ResourceSlices, DeviceClasses, ResourceClaims and ResourceClaimTemplates in files."""

from collections.abc import Callable

from arranger.events import kinds as k
from arranger.kube.devices import (
    device_class_seen,
    resource_claim_seen,
    resource_claim_template_seen,
    resource_slice_seen,
)

_GROUP = "resource.k8s.io"

#: (kind, group) → whether it is namespaced.
KINDS = {
    ("ResourceSlice", _GROUP): False,
    ("DeviceClass", _GROUP): False,
    ("ResourceClaim", _GROUP): True,
    ("ResourceClaimTemplate", _GROUP): True,
}

#: Kind → how it is observed.
OBSERVED: dict[str, tuple[Callable[..., k.Event], k.Watched]] = {
    "ResourceSlice": (resource_slice_seen, k.Watched.RESOURCE_SLICE),
    "DeviceClass": (device_class_seen, k.Watched.DEVICE_CLASS),
    "ResourceClaim": (resource_claim_seen, k.Watched.RESOURCE_CLAIM),
    "ResourceClaimTemplate": (resource_claim_template_seen, k.Watched.RESOURCE_CLAIM_TEMPLATE),
}
