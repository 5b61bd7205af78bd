"""The policies and filters that a cycle can use: the built-in ones, and those that other packages add, with their group
checks and permits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from arranger.model.config import CycleConfig
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.filters.devices import DYNAMIC_RESOURCES
from arranger.scheduling.filters.nodes import FILTERS, Filter
from arranger.scheduling.filters.pods import POD_FILTERS
from arranger.scheduling.filters.refusals import REFUSED_RECENTLY
from arranger.scheduling.filters.volumes import VOLUME_BINDING, VOLUME_POD_FILTERS
from arranger.scheduling.policies.base import PodPolicy
from arranger.scheduling.policies.binpack import BinPack, Gang
from arranger.scheduling.policies.consent import GroupCheck, Permit
from arranger.scheduling.policies.fragment_gradient import FragmentGradient
from arranger.scheduling.policies.job_affinity import JobAffinity, JobAntiAffinity
from arranger.scheduling.policies.leader_first import LeaderFirst
from arranger.scheduling.policies.min_fragment import MinFragment
from arranger.scheduling.policies.most_allocated import MostAllocated
from arranger.scheduling.queues.policies import DRF, Priority, QueuePolicy

Policy = QueuePolicy | PodPolicy | Filter | GroupCheck | Permit


@dataclass(frozen=True)
class Policies:
    """Queue and pod policies by name, the filters in the order in which a node's refusal is counted, and the group
    checks and permits in the order in which they are asked."""

    queue: Mapping[str, QueuePolicy]
    pod: Mapping[str, PodPolicy]
    filters: Sequence[Filter]
    checks: Sequence[GroupCheck] = ()
    permits: Sequence[Permit] = ()

    def versions(self) -> tuple[tuple[str, int], ...]:
        """`(name, version)` of everything, sorted, as a cycle records it."""
        every: list[Policy] = [
            *self.queue.values(), *self.pod.values(), *self.filters, *self.checks, *self.permits
        ]  # fmt: skip
        return tuple(sorted((one.name, one.version) for one in every))

    def missing(self, config: CycleConfig) -> tuple[tuple[str, int], ...]:
        """The recorded versions that aren't installed. If there are any, the cycle can't be repeated."""
        here = self.versions()
        return tuple(version for version in config.versions if version not in here)

    def recorded(self, config: CycleConfig) -> "Policies":
        """The policies and filters of a recorded cycle: a filter that was added since would change its result.

        A configuration that names no versions gets all of them. No recorded version may be missing.
        """
        if not config.versions or config.versions == self.versions():
            return self

        def had(one: Policy) -> bool:
            return (one.name, one.version) in config.versions

        return Policies(
            {name: one for name, one in self.queue.items() if had(one)},
            {name: one for name, one in self.pod.items() if had(one)},
            tuple(one for one in self.filters if had(one)),
            tuple(one for one in self.checks if had(one)),
            tuple(one for one in self.permits if had(one)),
        )

    def closest(self, config: CycleConfig) -> "Policies":
        """As `recorded`, but all of them if a recorded version is missing."""
        return self if self.missing(config) else self.recorded(config)

    def nearest(self, config: CycleConfig) -> tuple["Policies", CycleConfig]:
        """The policies and the configuration that are nearest to a recorded cycle's, of which some may be missing."""
        policies = self.closest(config)
        return policies, policies.usable(config)

    def pod_policy(self, job: JobRecord, config: CycleConfig) -> PodPolicy:
        """The job's own pod policy, or the configured default if the job names none that is installed."""
        return self.pod.get(job.valid_spec.pod_policy) or self.pod[config.pod_policy]

    def queue_policy_name(self, job: JobRecord, config: CycleConfig) -> str:
        """The name of the job's queue policy, chosen as in `pod_policy`."""
        return job.valid_spec.queue_policy if job.valid_spec.queue_policy in self.queue else config.queue_policy

    def usable(self, config: CycleConfig) -> CycleConfig:
        """The configuration, with the built-in defaults for policies that aren't installed."""
        plain = CycleConfig()
        return msgspec.structs.replace(
            config,
            queue_policy=config.queue_policy if config.queue_policy in self.queue else plain.queue_policy,
            pod_policy=config.pod_policy if config.pod_policy in self.pod else plain.pod_policy,
        )


def policies_with(
    queue: Sequence[QueuePolicy] = (),
    pod: Sequence[PodPolicy] = (),
    filters: Sequence[Filter] = (),
    *,
    checks: Sequence[GroupCheck] = (),
    permits: Sequence[Permit] = (),
) -> Policies:
    """The built-in policies and filters, followed by these."""
    queues: list[QueuePolicy] = [Priority(), DRF(), *queue]
    pods: list[PodPolicy] = [
        Gang(), BinPack(), LeaderFirst(), MinFragment(), JobAffinity(), JobAntiAffinity(), MostAllocated(),
        FragmentGradient(), *pod,
    ]  # fmt: skip
    return Policies(
        {one.name: one for one in queues},
        {one.name: one for one in pods},
        (*FILTERS, VOLUME_BINDING, REFUSED_RECENTLY, *POD_FILTERS, *VOLUME_POD_FILTERS, DYNAMIC_RESOURCES, *filters),
        tuple(checks),
        tuple(permits),
    )


BUILT_IN = policies_with()
