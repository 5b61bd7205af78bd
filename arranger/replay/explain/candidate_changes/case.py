"""The waiting job that changes are sought for: its story, the cycle's inputs, and what its next pod lacks."""

from dataclasses import dataclass

from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.model.pod import PodShape
from arranger.model.quota import QuotaLack
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.cluster_context import ClusterContext, Edit
from arranger.replay.explain.story import Story
from arranger.scheduling import Policies


@dataclass(frozen=True)
class Lack:
    """What a waiting job lacks: the group whose next pod finds no node, and what of its requests nodes lack that
    nothing else rules out; or what a quota doesn't leave, and then no node was looked at."""

    group: int
    resources: tuple[str, ...]
    candidates: frozenset[str]
    lacks: tuple[tuple[str, int, int], ...]
    missing: int
    quota: QuotaLack | None = None


@dataclass(frozen=True)
class Case:
    """A waiting job at the end of its story, and by what cycles are taken there."""

    story: Story
    job: JobRecord
    config: CycleConfig
    policies: Policies
    lack: Lack | None
    ahead: tuple[JobRecord, ...]

    @property
    def state(self) -> State:
        return self.story.state

    @property
    def around(self) -> ClusterContext:
        return self.story.around

    @property
    def spec(self) -> JobSpec:
        return self.job.valid_spec

    @property
    def shape(self) -> PodShape:
        return self.spec.groups[self.lack.group if self.lack is not None else 0].shape

    def edits(self, job: JobRecord) -> list[Edit]:
        return self.around.edits.get(job.uid, [])
