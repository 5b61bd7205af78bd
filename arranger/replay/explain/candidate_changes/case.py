"""The waiting job that needs a change: its story, the inputs of a cycle, and what its next pod lacks."""

from collections.abc import Mapping
from dataclasses import dataclass

from arranger.events.facts import Objection, UnitLack
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.model.pod import PodShape
from arranger.model.quota import QuotaLack
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain.cluster_context import ClusterContext, Edit
from arranger.replay.explain.story import Story
from arranger.scheduling import Policies

#: The kind of a change that comes without anybody's doing: pods that leave are gone.
LEAVING = "leaving"


@dataclass(frozen=True)
class Lack:
    """What a waiting job lacks. The next pod of `group` finds no node: `resources` are those of its requests that the
    `candidates` lack, nodes that nothing else rules out. `lacks` is what the closest of them lacks: (resource, needed,
    free). With `quota`, the quota lacks them and no node was checked."""

    group: int
    resources: tuple[str, ...]
    candidates: frozenset[str]
    lacks: tuple[tuple[str, int, int], ...]
    missing: int
    quota: QuotaLack | None = None
    #: The unit of a topology that no domain takes.
    topology: UnitLack | None = None
    #: What a plugin has against the quorum.
    objection: Objection | None = None
    #: Of a job that no cluster of these nodes could hold: as `lacks`, of the nodes without pods.
    of_empty: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class WaitingCase:
    """A job that waits in a cycle: the state that the cycle is taken on, at that state's time, with the configuration
    and the policies for it. `story` is the job's story, which goes on to the point of the explanation."""

    story: Story
    state: State
    job: JobRecord
    config: CycleConfig
    policies: Policies
    lack: Lack | None
    ahead: tuple[JobRecord, ...]
    #: The jobs that would take room in that cycle, but for a dry run that is still to come; None if it wasn't taken.
    untried: tuple[str, ...] | None = None
    #: Job UID → how many of its pods that cycle places; None if it wasn't taken.
    given: Mapping[str, int] | None = None
    #: Of a recorded cycle that is taken again: the UIDs of the jobs ahead that are still ahead after it.
    still_ahead: frozenset[str] | None = None
    #: The state of the explanation, if the cycle is taken on an earlier one.
    after: State | None = None

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
