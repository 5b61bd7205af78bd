"""The placeholders of waiting jobs: unbound pods that show an autoscaler which nodes a quorum lacks.

They are followed from the observations of pods. A placeholder has no slot of its job, so it counts nowhere as a worker.
"""

from typing import Any

from arranger.events import kinds as k
from arranger.model.provisioning import held_for
from arranger.projections.folding.provisioning import adopt_requests
from arranger.projections.state import State


def follow_placeholder(fold: Any, old: k.PodSeen | None, new: k.PodSeen) -> None:
    """Another observation takes the place of this one, or is the first of the pod."""
    if old is not None:
        if not fold.state.placeholders and old.traits is new.traits:
            return
        forget_placeholder(fold, old)
    _changed(fold, note_placeholder(fold.state, new))


def _changed(fold: Any, job_uid: str) -> None:
    job = fold.state.jobs.get(job_uid) if job_uid else None
    if job is not None:
        adopt_requests(fold.state, job, fold.time_ms)
        fold.changes.jobs[job_uid] = None


def note_placeholder(state: State, pod: k.PodSeen) -> str:
    """Keep the pod if it is a placeholder; returns the UID of its job, or nothing."""
    job_uid = held_for(pod.traits.labels) if pod.owner is None else ""
    if job_uid:
        state.placeholders.setdefault(job_uid, {})[pod.uid] = pod
    return job_uid


def forget_placeholder(fold: Any, pod: k.PodSeen) -> None:
    """The pod is gone, or another observation takes the place of this one."""
    if not fold.state.placeholders:
        return
    job_uid = held_for(pod.traits.labels) if pod.owner is None else ""
    of_job = fold.state.placeholders.get(job_uid)
    if of_job is not None and of_job.pop(pod.uid, None) is not None and not of_job:
        del fold.state.placeholders[job_uid]
    _changed(fold, job_uid)
