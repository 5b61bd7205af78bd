"""The placeholders of waiting jobs: unbound pods that show an autoscaler which nodes a quorum lacks.

They are followed from the observations of pods. A placeholder has no slot of its job, so it counts nowhere as a worker.
"""

from collections.abc import Callable
from typing import Any

from arranger.events import kinds as k
from arranger.model.provisioning import held_for
from arranger.projections.folding.provisioning import adopt_requests
from arranger.projections.state import State

_Apply = Callable[[Any, int, Any], None]


def followed(apply: _Apply) -> _Apply:
    """How the fold applies the observation of a pod that is there, with the placeholders kept up to date."""

    def applied(fold: Any, offset: int, event: k.PodSeen) -> None:
        state: State = fold.state
        old = state.pods.get(event.uid)
        apply(fold, offset, event)
        new = state.pods.get(event.uid)
        if new is old:
            return
        if old is not None:
            forget_placeholder(fold, old)
        if new is not None:
            _changed(fold, note_placeholder(state, new))

    return applied


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
    job_uid = held_for(pod.traits.labels) if pod.owner is None else ""
    of_job = fold.state.placeholders.get(job_uid)
    if of_job is not None and of_job.pop(pod.uid, None) is not None and not of_job:
        del fold.state.placeholders[job_uid]
    _changed(fold, job_uid)
