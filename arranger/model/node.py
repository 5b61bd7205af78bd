"""A node as the scheduler sees it: its capacity and the pods that it refuses."""

import msgspec


class Taint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One taint: key, value and effect (NoSchedule, PreferNoSchedule or NoExecute)."""

    key: str
    value: str
    effect: str


class NodeFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node's facts. `allocatable` are sorted `(resource name, amount)` pairs, units as in `PodShape`, including
    `pods`; `labels` are sorted pairs."""

    allocatable: tuple[tuple[str, int], ...]
    ready: bool
    cordoned: bool
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()

    @property
    def takes_pods(self) -> bool:
        """Whether new pods may come: the node is ready and not cordoned. Taints aren't looked at: they say whose."""
        return self.ready and not self.cordoned
