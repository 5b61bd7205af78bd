"""What an applier knows of a job beyond the projection, and one look at a job."""

import math
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.projections.jobs import JobRecord
from arranger.workers.follower import Follower
from arranger.workers.reporter import Told


class Refusals(msgspec.Struct):
    """How the pod of one slot was refused in one attempt."""

    #: The words of the last refusal that the log was told.
    told: str = ""
    tries: int = 0
    #: The tries since the log knows that the pod is refused on the node that the slot has now.
    in_a_row: int = 0
    #: Since when an object of an earlier job has the pod's name.
    leftover_s: float | None = None


class Progress(msgspec.Struct):
    """Of one job: the effects on their way, and the status as it is stored."""

    digest: str = ""
    urgent: str = ""
    #: When this process last stored the status, and the resourceVersion that the TYJob got by it ("" if outdated).
    written_s: float = -math.inf
    resource_version: str = ""
    #: The resourceVersion that the watch had shown when the status was stored; what it shows now, and since when.
    based_on: str = ""
    seen: tuple[str, float] = ("", 0.0)
    #: Conflicts since the status was last stored.
    conflicts: int = 0
    told: Told = msgspec.field(default_factory=Told)
    #: The status that the API server finds invalid for this TYJob as it is, and since when.
    invalid: tuple[str, str] = ("", "")
    invalid_s: float = 0.0
    #: (attempt, slot) or UID → until when an effect on it is not repeated.
    settling: dict[Any, float] = msgspec.field(default_factory=dict)
    #: (attempt, slot) → how its pod was refused.
    refusals: dict[Any, Refusals] = msgspec.field(default_factory=dict)
    template: Object | None = None
    #: The version at which the job was found in passing, and when: it is on its way to the next decision.
    passing: tuple[int, float] = (0, 0.0)
    #: The attempt in which the leader's Service was last made or found; -1 for none.
    served: int = -1
    #: The position in the queue that was stored last.
    position: int | None = None
    #: Since when pods of the job are there and the job is not in the projection; None while it is.
    orphaned_s: float | None = None


class Look:
    """One look at a job; `version` is the job's version when the look began."""

    def __init__(self, follower: Follower, job: JobRecord, progress: Progress) -> None:
        self._follower = follower
        self.job = job
        self.progress = progress
        self.version = job.version

    def current(self) -> bool:
        """Whether nothing was decided on the job since the look began, and its epoch hasn't ended."""
        return self.job.version == self.version and self._follower.state.jobs.get(self.job.uid) is self.job
