"""Room that comes by itself, and room that was to come and doesn't.

A pod that is being deleted has until the end of its grace period (`PodTimes.leave_by_ms`) and a bound more, since a
kubelet may be late. One that is still there then hangs: it holds its room as any other pod does, and nobody knows for
how long. So does a pod whose TYJob is gone and that nobody deletes: garbage collection stands still.
"""

import math
from collections.abc import Iterable
from itertools import chain

from arranger.events.kinds import PodSeen
from arranger.model.job import DEFAULT_GRACE_S, LEADER_GROUP, Stage
from arranger.model.pod import TERMINAL
from arranger.projections.derived.deadlines import overdue
from arranger.projections.jobs.records import JobRecord, ended_well
from arranger.projections.state import State

_LEADER = (LEADER_GROUP, 0)

#: Pods whose TYJob is gone are deleted within this time, by garbage collection or an applier, in milliseconds.
_COLLECTED_MS = 60_000
#: For so long after one of its workers has finished, the others are expected to finish too, in milliseconds: as long as
#: whoever gave room instead would usually have to leave it.
FINISHING_MS = DEFAULT_GRACE_S * 1000
#: A kubelet's clock may be ahead by so much.
_AHEAD_MS = 1_000


def gone_by_ms(pod: PodSeen, bound_ms: int) -> float:
    """Until when a pod that is being deleted is expected to be gone, in milliseconds since 1970: infinite for other
    pods, and for those of which it isn't known when they are to be gone."""
    return pod.times.leave_by_ms + bound_ms if pod.deleting and pod.times.leave_by_ms else math.inf


def leave_by_ms(state: State, pod: PodSeen, time_ms: int) -> int:
    """The end of a pod's grace period, which begins at `time_ms` unless the pod is being deleted already."""
    if pod.deleting and pod.times.leave_by_ms:
        return pod.times.leave_by_ms
    return time_ms + grace_of(state, pod) * 1000


def grace_of(state: State, pod: PodSeen) -> int:
    """The grace period of a pod, in seconds."""
    job = state.jobs.get(pod.owner.job_uid) if pod.owner is not None else None
    groups = job.spec.groups if job is not None and job.spec is not None else ()
    of_group = (of.grace_s for of in groups if pod.owner is not None and of.name == pod.owner.group_name)
    return next(of_group, DEFAULT_GRACE_S)


def hanging(state: State, time_ms: int, bound_ms: int) -> frozenset[str]:
    """The UIDs of the pods that should be gone by now."""
    found = [uid for uid in state.deleting if gone_by_ms(state.pods[uid], bound_ms) <= time_ms]
    for job_uid, since_ms in state.orphaned.items():
        if since_ms + _COLLECTED_MS + bound_ms <= time_ms:
            found += [uid for uid, pod in state.pods_of[job_uid].items() if not pod.deleting]
    return frozenset(found)


def next_hanging_ms(state: State, time_ms: int, bound_ms: int) -> float:
    """The time at which the grace period of the next pod ends, or the bound after it; infinite if none is to come."""
    due: Iterable[float] = (gone_by_ms(state.pods[uid], of) for uid in state.deleting for of in (0, bound_ms))
    orphans = (since_ms + _COLLECTED_MS + of for since_ms in state.orphaned.values() for of in (0, bound_ms))
    return min([of for of in chain(due, orphans) if of > time_ms], default=math.inf)


def finishes_by_ms(job: JobRecord, time_ms: int) -> int:
    """Until when a job counts as one that is about to end, in milliseconds since 1970: some of its workers have
    finished whose end is the job's, and the last of them not long ago. 0 for others, also where a kubelet's clock is
    ahead."""
    finished_ms = job.times.finished_ms
    if not job.slots.finished or not finished_ms or finished_ms > time_ms + _AHEAD_MS:
        return 0
    if job.stage not in (Stage.STARTING, Stage.RUNNING):
        return 0
    by_ms = finished_ms + FINISHING_MS
    return by_ms if by_ms > time_ms else 0


def ends_by_itself(state: State, job: JobRecord, time_ms: int) -> bool:
    """Whether a job that has nodes gives all of them up, whoever wants them: it is to end, to be suspended or to be
    deleted, or its pods show that its attempt is over, or its deadline is over at `time_ms`, though no decision says so
    yet."""
    if job.stands_still or not job.active or overdue(job, time_ms):
        return True
    if job.stage not in (Stage.STARTING, Stage.RUNNING):
        return False
    if job.succeeded:
        return True
    uid = job.bound.get(_LEADER)
    if uid is None:
        return job.valid_spec.has_leader and bool(job.leader.address) and not job.slots.over(_LEADER)
    leader = state.pods[uid]
    if ended_well(leader):
        return job.valid_spec.ends_with_leader
    return leader.deleting or leader.phase in TERMINAL
