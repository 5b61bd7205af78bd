"""An applier's knowledge of a job beyond the projection, and one look at a job."""

import math
from typing import Any

import msgspec

from arranger.kube.cluster import Object
from arranger.model.job import ScheduleState
from arranger.model.reasons import Reason
from arranger.projections.jobs.records import JobRecord
from arranger.workers.log.follower import Follower


class ToldEvents(msgspec.Struct):
    """The Events of one job that this process has recorded."""

    #: `based_on` of the last reported decision on the stage; 0 for the beginning of the job or of its epoch.
    step: int | None = None
    waiting: tuple[ScheduleState | Reason, ...] = ()
    refused: str = ""
    #: The queue that the job can't use, "" for none: its writer knows the state.
    queue: str = ""
    #: The jobs that have to end first, a PriorityClass that isn't known, and that queue.
    before: tuple[str, ...] = ()
    #: The pods that this process bound and that aren't reported yet, each with its name, its UID and its node.
    bound: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    #: Of a group of pods that no TYJob owns: the name and the UID of the pod that its Events are on.
    about: tuple[str, str] = ("", "")
    #: How many pods such a group lacks, in words; "" if it lacks none.
    lacking: str = ""
    lacked: str = ""
    #: From whom the job takes room, "" for nobody, and what was reported of that.
    taking: str = ""
    taken: str = ""
    #: Which pods hang, "" for none, and what was reported of that.
    hanging: str = ""
    hung: str = ""
    #: Which pod its kubelet can't start, and why, "" for none; and whether that was reported. A kubelet goes on trying,
    #: and each time gives one of several reasons.
    stuck: str = ""
    stuck_told: bool = False
    #: What was reported of variables that the pods won't have, and of labels that another scheduler reads, by subject.
    warned: dict[str, str] = msgspec.field(default_factory=dict)
    replacements: int = 0
    #: The generation of the TYJob in which its worker sets were last scaled.
    scaled: int = 0
    #: How often each updated Event was recorded, by its name.
    times: dict[str, int] = msgspec.field(default_factory=dict)


class Refusals(msgspec.Struct):
    """The refusals of one slot's pod in one attempt."""

    #: The message of the last refusal that was recorded in the log.
    told: str = ""
    tries: int = 0
    #: Tries since the log recorded that the pod is refused on the slot's present node.
    in_a_row: int = 0
    #: Since when an object of an earlier job has the pod's name.
    leftover_s: float | None = None


class MembersFile(msgspec.Struct):
    """The ConfigMap with a job's members file, as this process knows it."""

    #: The attempt in which it was last created or found; -1 for none.
    attempt: int = -1
    #: Its UID and resourceVersion ("" if unknown or outdated), and the digest of its content.
    uid: str = ""
    version: str = ""
    digest: bytes = b""
    #: When it was last read, and from when on it is compared again.
    checked_s: float = -math.inf
    due_s: float = -math.inf


class SelectedNode(msgspec.Struct):
    """A node that was selected for a claim, the claim's resourceVersion before that, and until when it isn't selected
    again although no watch has shown it."""

    node: str
    version: str
    until_s: float


class Progress(msgspec.Struct):
    """The progress of one job: its effects in flight, and the status as stored."""

    #: The status stored last: its digest, and what was news in it (`news_of`).
    digest: str = ""
    news: tuple[object, ...] = ()
    #: Whether that status told that the job's quorum is ready.
    ready: bool = False
    #: When this process last stored the status, and the resourceVersion that the TYJob got by it ("" if outdated).
    written_s: float = -math.inf
    #: When the next status has its turn that can wait; None if it has none yet.
    turn_s: float | None = None
    resource_version: str = ""
    #: The resourceVersion that the watch showed when the status was stored; the one that it shows now, and since when.
    based_on: str = ""
    seen: tuple[str, float] = ("", 0.0)
    #: The resourceVersion on which a status was last refused because the TYJob has a later one, and when that was.
    outdated: str = ""
    outdated_s: float = -math.inf
    told: ToldEvents = msgspec.field(default_factory=ToldEvents)
    #: The status that the API server found invalid, the resourceVersion of the TYJob then, and when that was.
    invalid: tuple[str, str] = ("", "")
    invalid_s: float = 0.0
    #: (attempt, slot) or UID → until when an effect on it is not repeated.
    settling: dict[Any, float] = msgspec.field(default_factory=dict)
    #: UID of a pod → how often its eviction was refused.
    evictions: dict[str, int] = msgspec.field(default_factory=dict)
    #: (attempt, slot) → how its pod was refused.
    refusals: dict[Any, Refusals] = msgspec.field(default_factory=dict)
    #: UID of a claim → the node that this process selected for it.
    selected: dict[str, SelectedNode] = msgspec.field(default_factory=dict)
    #: The TYJob with its pod templates, as last read or stored; None once every pod is there.
    template: Object | None = None
    #: From when on a group of pods is told that it lacks some; infinite if it lacks none, or has just been told.
    lacking_s: float = math.inf
    #: The version at which the job was expected to get its next decision at once, and since when.
    passing: tuple[int, float] = (0, 0.0)
    #: The attempt in which the Services were last created or found (-1 for none), and when they were last looked for.
    served: int = -1
    served_s: float = -math.inf
    #: The UID of the job's ProvisioningRequest whose PodTemplates were created or found.
    requested: str = ""
    #: The UIDs of the placeholders that say that they are Unschedulable.
    unschedulable: dict[str, None] = msgspec.field(default_factory=dict)
    members: MembersFile = msgspec.field(default_factory=MembersFile)
    #: The generation of which a dry run was done last, how often in a row it failed or was refused, and from when on it
    #: is repeated.
    dry_runs: tuple[int, int, float] = (0, 0, 0.0)
    #: The position in the queue that was stored last.
    position: int | None = None
    #: Since when pods of the job exist without the job being in the projection; None otherwise.
    orphaned_s: float | None = None

    def forget_earlier(self, job: JobRecord, now_s: float) -> None:
        """Forget effects that have settled, and what was refused in earlier attempts."""
        self.settling = {
            key: until_s
            for key, until_s in self.settling.items()
            if now_s < until_s and not (isinstance(key, tuple) and key[1] in job.bound)
        }
        self.refusals = {key: kept for key, kept in self.refusals.items() if key[0] == job.attempt}


class StateReplaced(Exception):
    """The follower has begun again from a snapshot since a look began, so the look has another state's job."""


class Look:
    """One look at a job; `version` is the job's version when the look began."""

    def __init__(self, follower: Follower, job: JobRecord, progress: Progress) -> None:
        self._follower = follower
        self._state = follower.state
        self._job = job
        self.progress = progress
        self.version = job.version

    @property
    def job(self) -> JobRecord:
        """The job. Raises `StateReplaced`: beside another state, what an old record lacks would be taken for gone."""
        if self._follower.state is not self._state:
            raise StateReplaced(f"the state of job {self._job.uid} was read anew")
        return self._job

    def current(self) -> bool:
        """Whether nothing was decided on the job since the look began, and its epoch hasn't ended."""
        return self._job.version == self.version and self._follower.state.jobs.get(self._job.uid) is self._job
