"""What the judge of a run keeps of pods and TYJobs. It reads the objects itself, without Arranger's code."""

import datetime
from dataclasses import dataclass, field
from typing import Any

from tests.preempt_soak.crowd import GPU

ENDED = ("Succeeded", "Failed")
_LABEL = "arranger.dev/"


@dataclass
class Job:
    """A TYJob: what its user asked for, and the resourceVersions (0: not yet) of its end and of its deletion."""

    uid: str
    name: str
    queue: str
    priority: int
    preemptible: bool
    sets: tuple[str, ...]
    #: Group (0 is the leader) → GPUs of one of its pods.
    gpus: dict[int, int]
    stage: str = ""
    attempt: int = 0
    restarts: int = 0
    ended_at: int = 0
    gone_at: int = 0
    #: Attempt → the resourceVersion at which its leader failed.
    failed_at: dict[int, int] = field(default_factory=dict)
    #: More than 0 if its leader ever failed.
    failures: int = 0
    #: What happened to it, line by line, for people.
    story: list[str] = field(default_factory=list)

    @staticmethod
    def of(item: dict[str, Any]) -> "Job":
        metadata, spec = item["metadata"], item["spec"]
        sets = spec.get("workerSets") or []
        gpus = {group: _gpus(of["template"]["spec"]) for group, of in enumerate([spec["leader"], *sets])}
        asked = (spec["queue"], spec["priority"], spec.get("preemptible", True))
        return Job(metadata["uid"], metadata["name"], *asked, tuple(of["name"] for of in sets), gpus)

    @property
    def live(self) -> bool:
        return not self.ended_at and not self.gone_at

    def see(self, item: dict[str, Any], version: int) -> bool:
        """Take over a newer status; returns whether the stage or the attempt changed."""
        status = item.get("status") or {}
        before = (self.stage, self.attempt)
        self.stage, self.attempt = status.get("stage", ""), status.get("attempt", 0)
        self.restarts = status.get("restarts", 0)
        if self.stage in ENDED and not self.ended_at:
            self.ended_at = version
        return before != (self.stage, self.attempt)

    def see_leader(self, status: dict[str, Any], attempt: int, version: int) -> None:
        """Note the failures of its leader's pod."""
        self.failures += sum(of.get("restartCount", 0) for of in status.get("containerStatuses") or ())
        if status.get("phase") == "Failed":
            self.failures += 1
            self.failed_at.setdefault(attempt, version)


@dataclass
class Pod:
    """A pod of a TYJob: where it is and whose slot it fills. `deleted_at` is the resourceVersion at which its deletion
    was asked for, 0 if it wasn't."""

    uid: str
    name: str
    node: str
    gpus: int
    job_uid: str
    attempt: int
    set: str
    index: int
    grace_s: int
    created_ms: int
    phase: str = ""
    deleted_at: int = 0

    @staticmethod
    def of(item: dict[str, Any]) -> "Pod":
        metadata, spec = item["metadata"], item["spec"]
        labels = {key.removeprefix(_LABEL): value for key, value in metadata["labels"].items()}
        owner = next(of["uid"] for of in metadata["ownerReferences"] if of["kind"] == "TYJob")
        slot = (int(labels["attempt"]), labels.get("worker-set", ""), int(labels["index"]))
        times = (spec["terminationGracePeriodSeconds"], time_ms(metadata["creationTimestamp"]))
        return Pod(metadata["uid"], metadata["name"], spec["nodeName"], _gpus(spec), owner, *slot, *times)

    @property
    def holds(self) -> bool:
        """Whether it uses its node's GPUs: until it has ended or is gone, also while it terminates."""
        return self.phase not in ENDED


def _gpus(spec: dict[str, Any]) -> int:
    """The GPUs of a pod with this spec."""
    return sum(int((of.get("resources") or {}).get("limits", {}).get(GPU, 0)) for of in spec["containers"])


def time_ms(text: str) -> int:
    """A Kubernetes time in milliseconds since 1970."""
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
