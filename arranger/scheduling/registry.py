"""Which policies and filters a cycle can use: those that come with Arranger, and those that other packages add."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from arranger.model.config import CycleConfig
from arranger.projections.jobs import JobRecord
from arranger.scheduling.filters import FILTERS, Filter
from arranger.scheduling.pod_filters import POD_FILTERS
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.policies.binpack import BinPack, Gang
from arranger.scheduling.policies.fragment_gradient import FragmentGradient
from arranger.scheduling.policies.job_affinity import JobAffinity, JobAntiAffinity
from arranger.scheduling.policies.leader_first import LeaderFirst
from arranger.scheduling.policies.min_fragment import MinFragment
from arranger.scheduling.policies.queues import DRF, Priority, QueuePolicy
from arranger.scheduling.refusals import REFUSED_RECENTLY

Policy = QueuePolicy | PodPolicy | Filter


@dataclass(frozen=True)
class Policies:
    """Queue and pod policies by name, and the filters in the order in which a node's refusal is counted."""

    queue: Mapping[str, QueuePolicy]
    pod: Mapping[str, PodPolicy]
    filters: Sequence[Filter]

    def versions(self) -> tuple[tuple[str, int], ...]:
        """`(name, version)` of everything, sorted: what a cycle records."""
        every: list[Policy] = [*self.queue.values(), *self.pod.values(), *self.filters]
        return tuple(sorted((one.name, one.version) for one in every))

    def missing(self, config: CycleConfig) -> tuple[tuple[str, int], ...]:
        """The versions that a recorded configuration names and that aren't here: such a cycle can't be taken again."""
        here = self.versions()
        return tuple(version for version in config.versions if version not in here)

    def recorded(self, config: CycleConfig) -> "Policies":
        """Those of them that a recorded cycle had: a filter that was added since would change what it comes to.

        All of them for a configuration that names none. None of the recorded ones may be missing.
        """
        if not config.versions or config.versions == self.versions():
            return self

        def had(one: Policy) -> bool:
            return (one.name, one.version) in config.versions

        return Policies(
            {name: one for name, one in self.queue.items() if had(one)},
            {name: one for name, one in self.pod.items() if had(one)},
            tuple(one for one in self.filters if had(one)),
        )

    def closest(self, config: CycleConfig) -> "Policies":
        """Those of them that a recorded cycle had, or all of them where one that it had isn't here."""
        return self if self.missing(config) else self.recorded(config)

    def pod_policy(self, job: JobRecord, config: CycleConfig) -> PodPolicy:
        """The pod policy that a job goes by: its own, or the configured default if it names none that is installed."""
        return self.pod.get(job.valid_spec.pod_policy) or self.pod[config.pod_policy]

    def queue_policy_name(self, job: JobRecord, config: CycleConfig) -> str:
        """The name of the queue policy that a job goes by, found in the same way."""
        return job.valid_spec.queue_policy if job.valid_spec.queue_policy in self.queue else config.queue_policy

    def usable(self, config: CycleConfig) -> CycleConfig:
        """The configuration, with the built-in defaults where it names ones that aren't here."""
        plain = CycleConfig()
        return msgspec.structs.replace(
            config,
            queue_policy=config.queue_policy if config.queue_policy in self.queue else plain.queue_policy,
            pod_policy=config.pod_policy if config.pod_policy in self.pod else plain.pod_policy,
        )


def policies_with(
    queue: Sequence[QueuePolicy] = (), pod: Sequence[PodPolicy] = (), filters: Sequence[Filter] = ()
) -> Policies:
    """The built-in ones and these."""
    queues: list[QueuePolicy] = [Priority(), DRF(), *queue]
    pods: list[PodPolicy] = [
        Gang(), BinPack(), LeaderFirst(), MinFragment(), JobAffinity(), JobAntiAffinity(), FragmentGradient(), *pod,
    ]  # fmt: skip
    return Policies(
        {one.name: one for one in queues},
        {one.name: one for one in pods},
        (*FILTERS, REFUSED_RECENTLY, *POD_FILTERS, *filters),
    )


BUILT_IN = policies_with()
