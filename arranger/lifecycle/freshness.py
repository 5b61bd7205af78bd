"""Up to when a watch has to have told everything, before time alone may decide something that can't be undone.

A projection may be late by any time: nobody watched, or the log's server was away. Then a deadline is over, and nothing
tells yet that the pods had ended before it. So such a decision waits until the log says that everything which happened
until its time has been observed (`WatchHeard`). The watcher makes sure of that as soon as a decision waits for it.
"""

from arranger.events.kinds import Watched
from arranger.lifecycle.stages import pod_without_image
from arranger.model.config import CycleConfig
from arranger.model.job import ACTIVE
from arranger.projections.deadlines import deadline_of
from arranger.projections.giving_up import gives_up_ms
from arranger.projections.state import State

#: While the image of a pod can't be pulled, its watch is made sure of this often.
_IMAGES_MS = 5_000


def awaited_ms(state: State, kind: Watched, config: CycleConfig, time_ms: int) -> int:
    """Up to when everything must have been observed for the decisions that are due at `time_ms`, in milliseconds since
    1970; 0 if nothing waits for that."""
    if kind == Watched.POD:
        found = _of_pods(state, time_ms)
    elif kind == Watched.NODE:
        found = _of_nodes(state, config, time_ms)
    else:
        found = 0
    return found if found > state.heard_ms(kind) else 0


def _of_pods(state: State, time_ms: int) -> int:
    latest_ms = 0
    for job in state.jobs.values():  # ten thousand of them each second
        if job.stage not in ACTIVE or job.spec is None or job.of_pods:
            continue
        if job.spec.deadline_s is not None:
            due_ms = deadline_of(state, job)
            if due_ms is not None and latest_ms < due_ms <= time_ms:
                latest_ms = due_ms
        if pod_without_image(state, job) is not None:
            latest_ms = max(latest_ms, time_ms - _IMAGES_MS)
    return latest_ms


def _of_nodes(state: State, config: CycleConfig, time_ms: int) -> int:
    waiting = [job for job in state.jobs.values() if job.active and job.waits is not None and not job.placements]
    given_up = [gives_up_ms(state, job, config) for job in waiting if job.waits and job.waits.shortage.infeasible]
    return max((due_ms for due_ms in given_up if due_ms is not None and due_ms <= time_ms), default=0)
