"""What the claims of pods require of nodes follows from other objects, for volumes as for devices: the shapes of jobs
have it, and are resolved again when such an object changes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from arranger.model.job import JobSpec, PodGroup
from arranger.model.pod import PodRules, VolumeNeeds
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State

_NO_RULES = PodRules()
#: Whether a change concerns a job.
Concerns = Callable[[JobRecord], bool]


class ClaimKind(NamedTuple):
    """Claims of volumes, or of devices. `known` says whether they decide on nodes, and `used` whether a job has some;
    `resolved` is a group of pods in a namespace whose shape says what its claims require now."""

    known: Callable[[State], bool]
    used: Callable[[JobSpec], bool]
    resolved: Callable[[State, PodGroup, str], PodGroup]

    def spec(self, state: State, spec: JobSpec, namespace: str) -> JobSpec:
        """The spec whose shapes say what their claims require now."""
        if not self.used(spec):
            return spec
        groups = tuple([self.resolved(state, group, namespace) for group in spec.groups])
        return msgspec.structs.replace(spec, groups=groups)

    def resolve_all(self, state: State) -> None:
        """Bring what all claims require up to date."""
        for job in state.jobs.values():
            if job.spec is not None:
                job.spec = self.spec(state, job.spec, job.seen.namespace)

    def changed(self, state: State, changes: Changes, concerns: Concerns) -> None:
        """Bring the jobs that a change concerns up to date; during a first listing, its end does so once for all."""
        state.scheduling_changes += 1
        changes.schedulable = True
        for job in state.jobs.values() if self.known(state) else ():
            if job.spec is not None and self.used(job.spec) and concerns(job):
                job.spec = self.spec(state, job.spec, job.seen.namespace)
                changes.jobs[job.uid] = None


def every_job(_job: JobRecord) -> bool:
    return True


def with_rules(group: PodGroup, volumes: VolumeNeeds | None, **rules: Any) -> PodGroup:
    """The group whose shape has these needs and these fields of its rules; the same object if it has them already."""
    found = msgspec.structs.replace(group.shape.rules or _NO_RULES, **rules)
    shape = msgspec.structs.replace(group.shape, volumes=volumes, rules=None if found == _NO_RULES else found)
    return group if shape == group.shape else msgspec.structs.replace(group, shape=shape)
