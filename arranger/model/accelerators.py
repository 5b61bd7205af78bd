"""Which resources are accelerators, such as GPUs, TPUs and NPUs: devices that do the work of a job, one by one.

Any extended resource is one, unless its name says that it is something else. So a new vendor's device is scored,
counted and shown without a change here. Parts of a device that a device plugin offers beside the devices themselves
(memory, cores, shares in percent) aren't devices, and counting them too would count each device twice.
"""

import re
from functools import lru_cache

#: Domains of resources that are no accelerators: network cards, and devices of the operating system.
_OTHER_DOMAINS = frozenset({
    "devices.kubevirt.io", "github.com", "k8s.cni.cncf.io", "mellanox.com", "networking.gke.io", "openshift.io",
    "qat.intel.com", "rdma", "sgx.intel.com", "smarter-devices", "squat.ai", "vpc.amazonaws.com",
})  # fmt: skip
#: The domain of Kubernetes' own resources.
_OWN = "kubernetes.io"
#: What such names have somewhere: kinds of network cards, and other devices.
_OTHER_PARTS = re.compile(r"sriov|rdma|roce|dpdk|netdev|hostdev|infiniband|mlnx|vhost|macvtap")
#: Their words: network cards, devices of the operating system, offload engines, and parts of accelerators.
_OTHER_WORDS = re.compile(
    r"(?<![a-z])(efa|eni|hca|ib|nics?|vfs?|ptp|fuse|kvm|tun|tap|usb|video|serial|qat|sgx|epc|enclave|dsa|iaa"
    r"|percentage|monitoring|tiles?)(?![a-z])"
)
#: Their ends. One device has much of it.
_PARTS = re.compile(r"(ib|mem|memory|core|cores)(?![a-z])")


@lru_cache(maxsize=4096)
def is_accelerator(resource: str) -> bool:
    """Whether a resource of this name is a kind of accelerator."""
    domain, _, name = resource.lower().rpartition("/")
    if not domain or not name or domain in _OTHER_DOMAINS or domain == _OWN or domain.endswith(f".{_OWN}"):
        return False
    return not (_OTHER_PARTS.search(name) or _OTHER_WORDS.search(name) or _PARTS.search(name))
