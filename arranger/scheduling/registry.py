"""Which policies and filters a cycle can use: those that come with Arranger, and those that other packages add."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arranger.scheduling.filters import FILTERS, Filter
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.policies.binpack import BinPack, Gang
from arranger.scheduling.policies.job_affinity import JobAffinity, JobAntiAffinity
from arranger.scheduling.policies.leader_first import LeaderFirst
from arranger.scheduling.policies.min_fragment import MinFragment
from arranger.scheduling.policies.queues import DRF, Priority, QueuePolicy


@dataclass(frozen=True)
class Policies:
    """Queue and pod policies by name, and the filters in the order in which a node's refusal is counted."""

    queue: Mapping[str, QueuePolicy]
    pod: Mapping[str, PodPolicy]
    filters: Sequence[Filter]

    def versions(self) -> tuple[tuple[str, int], ...]:
        """`(name, version)` of everything, sorted: what a cycle records."""
        every: list[QueuePolicy | PodPolicy | Filter] = [*self.queue.values(), *self.pod.values(), *self.filters]
        return tuple(sorted((one.name, one.version) for one in every))


def policies(
    queue: Sequence[QueuePolicy] = (), pod: Sequence[PodPolicy] = (), filters: Sequence[Filter] = ()
) -> Policies:
    """The built-in ones and these."""
    queues: list[QueuePolicy] = [Priority(), DRF(), *queue]
    pods: list[PodPolicy] = [
        Gang(), BinPack(), LeaderFirst(), MinFragment(), JobAffinity(), JobAntiAffinity(), *pod,
    ]  # fmt: skip
    return Policies({one.name: one for one in queues}, {one.name: one for one in pods}, (*FILTERS, *filters))


BUILT_IN = policies()
