"""The judge of `python -m tests.preempt_soak` sees each kind of violation, and nothing else."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.history import Event
from tests.preempt_soak.judge import Judge
from tests.trial.readings import LogEvent

_NOW_MS = 1_700_000_000_000
_HIGH, _LOW, _OTHER = "uid-high", "uid-low", "uid-other"
#: What the log has if job high gets node-1 from job low: its leader has index 0 in group 0, its worker in group 1.
_LOWS_PODS = [["node-1", 0, [[0, 0]]], ["node-1", 1, [[0, 0]]]]


class Story:
    """Tells a judge what happens on the cluster and in the log, in this order."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self._events: list[Event] = []
        self._logged: list[LogEvent] = []
        self._version = 0
        self.judge = Judge(self, self)  # type: ignore[arg-type]
        node = {"metadata": {"name": "node-1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
        self._see("node", "ADDED", node)
        self.job(_LOW, priority=1)
        self.job(_HIGH, priority=9)

    def take(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken

    def read(self) -> Iterator[LogEvent]:
        taken, self._logged = self._logged, []
        return iter(taken)

    def _see(self, kind: str, change: str, item: dict[str, Any]) -> None:
        self._version += 1
        self._events.append(Event(self._version, kind, change, item, time.monotonic()))

    def log(self, kind: str, *fields: Any) -> int:
        offset = self.judge.counts["events"] + len(self._logged) + 1
        self._logged.append(LogEvent(offset, "writer", _NOW_MS, kind, list(fields)))
        self.judge.step()
        return offset

    def job(self, uid: str, *, change: str = "ADDED", stage: str = "", restarts: int = 0, **spec: Any) -> None:
        template = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 4}}}]}}
        sets = [{"name": "actors", "template": template}]
        asked = {"queue": "research", "priority": 1, "leader": {"template": template}, "workerSets": sets, **spec}
        status = {"stage": stage, "attempt": 0, "restarts": restarts}
        metadata = {"uid": uid, "name": uid.removeprefix("uid-")}
        self._see("job", change, {"metadata": metadata, "spec": asked, "status": status})
        self.judge.step()

    def pod(self, uid: str, *, worker: bool, change: str = "ADDED", deleting: bool = False, phase: str = "") -> None:
        role = {"worker-set": "actors"} if worker else {}
        labels = {"attempt": "0", "index": "0", **role}
        metadata: dict[str, Any] = {
            "uid": f"{uid} {worker}", "name": f"{uid} {worker}", "creationTimestamp": "2023-11-14T22:13:21Z",
            "labels": {f"arranger.dev/{key}": value for key, value in labels.items()},
            "ownerReferences": [{"kind": "TYJob", "uid": uid}],
        }  # fmt: skip
        if deleting:
            metadata |= {"deletionTimestamp": "2023-11-14T22:13:30Z", "deletionGracePeriodSeconds": 2}
        containers = [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]
        spec = {"nodeName": "node-1", "terminationGracePeriodSeconds": 2, "containers": containers}
        self._see("pod", change, {"metadata": metadata, "spec": spec, "status": {"phase": phase}})
        self.judge.step()

    def pods(self, uid: str, **given: Any) -> None:
        """Both pods of a job, which fill the node."""
        for worker in (False, True):
            self.pod(uid, worker=worker, **given)

    def preempted(self, *, kind: str = "Priority", base: int = 0, based_on: int = 0) -> int:
        self.log("CycleTaken", base, _NOW_MS, [])
        placed = ["Placed.1", _HIGH, based_on, 0, "ScheduledSucceed", _LOWS_PODS]
        return self.log("Preempted", placed, [[_LOW, 0, 0, kind, _LOWS_PODS, 0]], [], [], _NOW_MS + 20_000)

    def started(self, offset: int) -> None:
        self.log("StageDecided", _HIGH, offset, 0, "Starting", "Scheduled")

    def faults(self, *effective: int) -> str:
        self.judge.finish(effective)
        return "\n".join(self.judge.faults)


def _right(story: Story) -> int:
    """Job low gives its room to job high, which starts once the room is free."""
    story.pods(_LOW, phase="Running")
    offset = story.preempted()
    story.pods(_LOW, deleting=True, phase="Running")
    story.pods(_LOW, change="DELETED", deleting=True, phase="Running")
    story.started(offset)
    story.pods(_HIGH)
    return offset


def test_a_preemption_as_decided_is_no_fault() -> None:
    story = Story()
    assert story.faults(_right(story)) == ""
    assert story.judge.counts["deleted_for_priority"] == 2
    assert story.judge.counts["rooms_starting"] == 1


def test_pods_of_ended_and_deleted_jobs_and_of_failed_leaders_may_be_deleted() -> None:
    story = Story()
    story.pods(_LOW, phase="Running")
    story.job(_LOW, change="MODIFIED", stage="Succeeded")
    story.pods(_LOW, deleting=True, phase="Running")
    story.pods(_LOW, change="DELETED", deleting=True)
    story.pods(_HIGH)
    story.job(_HIGH, change="DELETED")
    story.pods(_HIGH, change="DELETED")
    story.job(_OTHER, priority=1)
    story.pod(_OTHER, worker=True)
    story.pod(_OTHER, worker=False, phase="Failed")
    story.pods(_OTHER, deleting=True)
    story.job(_OTHER, change="MODIFIED", stage="Starting", restarts=1)
    assert story.faults() == ""


def _nobodys_pod(story: Story) -> None:
    story.pods(_LOW, phase="Running")
    story.pods(_LOW, deleting=True, phase="Running")


def _deleted_before_the_end(story: Story) -> None:
    _nobodys_pod(story)
    story.job(_LOW, change="MODIFIED", stage="Succeeded")


def _superseded(story: Story) -> None:
    story.pods(_LOW, phase="Running")
    story.log("CycleTaken", 5, _NOW_MS, [])
    story.preempted(base=0)
    story.pods(_LOW, deleting=True, phase="Running")


def _named_once_deleted_twice(story: Story) -> int:
    offset = _right(story)
    story.pods(_HIGH, change="DELETED", phase="Succeeded")
    story.job(_HIGH, change="DELETED")
    story.pods(_LOW, phase="Running")
    story.pods(_LOW, deleting=True, phase="Running")
    return offset


def _without_grace(story: Story) -> int:
    story.pods(_LOW, phase="Running")
    offset = story.preempted()
    story.pods(_LOW, change="DELETED", phase="Running")
    story.started(offset)
    return offset


def _too_soon(story: Story) -> int:
    story.pods(_LOW, phase="Running")
    offset = story.preempted()
    story.started(offset)
    story.pods(_LOW, deleting=True, phase="Running")
    story.pods(_HIGH)
    return offset


def _third_job(story: Story) -> int:
    story.pods(_LOW, phase="Running")
    offset = story.preempted()
    story.pods(_LOW, deleting=True, phase="Running")
    story.pods(_LOW, change="DELETED", deleting=True, phase="Running")
    story.job(_OTHER, priority=9)
    story.pod(_OTHER, worker=False)
    story.started(offset)
    return offset


def _equal_priority(story: Story) -> int:
    story.job(_OTHER, priority=9)
    story.log("CycleTaken", 0, _NOW_MS, [])
    placed = ["Placed.1", _HIGH, 0, 0, "ScheduledSucceed", _LOWS_PODS]
    offset = story.log("Preempted", placed, [[_OTHER, 0, 0, "Priority", _LOWS_PODS, 0]], [], [], _NOW_MS + 20_000)
    story.started(offset)
    return offset


def _not_preemptible(story: Story) -> int:
    story.job(_OTHER, priority=1, preemptible=False)
    story.log("CycleTaken", 0, _NOW_MS, [])
    placed = ["Placed.1", _HIGH, 0, 0, "ScheduledSucceed", _LOWS_PODS]
    return story.log("Preempted", placed, [[_OTHER, 0, 0, "Surplus", _LOWS_PODS, 0]], [], [], _NOW_MS + 20_000)


def _room_taken(story: Story) -> None:
    story.log("StageDecided", _LOW, 0, 0, "Rescheduling", "RoomTaken")


def _counted(story: Story) -> None:
    story.job(_LOW, change="MODIFIED", stage="Rescheduling", restarts=1)


def _gap(story: Story) -> None:
    story.gaps.append("pod: too old")


@pytest.mark.parametrize(
    ("tell", "fault"),
    [
        (_nobodys_pod, "for no reason"),
        (_deleted_before_the_end, "for no reason"),
        (_superseded, "for no reason"),
        (_named_once_deleted_twice, "for no reason"),
        (_without_grace, "without its grace period of 2 s"),
        (_too_soon, "pods hold 12 of 8 GPUs of node-1"),
        (_third_job, "comes to room on node-1 that is kept"),
        (_equal_priority, "though its priority is 9, that of the other 9"),
        (_not_preemptible, "though it isn't preemptible"),
        (lambda story: story.preempted(kind="Reclaim"), "though it is of the same queue"),
        (lambda story: story.preempted(), "was neither used nor given back"),
        (_room_taken, "a job loses its nodes at offset 1 for RoomTaken"),
        (_counted, "counts 1 restarts, and its leader never failed"),
        (_gap, "too old"),
    ],
)
def test_each_violation_is_found(tell: Callable[[Story], int | None], fault: str) -> None:
    story = Story()
    offset = tell(story)
    assert fault in story.faults(offset or 0)


def test_pods_deleted_for_a_decision_that_took_no_effect_are_found() -> None:
    story = Story()
    _right(story)
    assert "for decisions that took no effect" in story.faults()


def test_room_of_a_decision_that_took_no_effect_is_kept_for_nobody() -> None:
    story = Story()
    _third_job(story)
    assert "that is kept" not in story.faults()


def test_a_decision_that_a_later_cycle_ignores_took_no_effect() -> None:
    story = Story()
    offset = story.preempted()
    story.log("CycleTaken", offset, _NOW_MS, [])
    story.log("Placed", _HIGH, 0, 0, "ScheduledSucceed", _LOWS_PODS)
    assert "another decision ignored it" in story.faults(offset)
