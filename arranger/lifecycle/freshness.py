"""Up to when a watch has to have told everything, before time alone may decide something that can't be undone.

A projection may be late by any time: nobody watched, or the log's server was away. Then a deadline is over, and nothing
tells yet that the pods had ended before it. Or a node counts as lost that came back in time, or a job that was ready in
time gives its nodes up. So such a decision waits until the log says that everything which happened until its time has
been observed (`WatchHeard`). The watchers make sure of that as soon as a decision waits for it.
"""

from collections.abc import Iterator

from arranger.events.kinds import Watched
from arranger.lifecycle.awaited_room import awaited_until_ms
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.replacements import settled_ms
from arranger.lifecycle.stages import pod_without_image
from arranger.lifecycle.start_timeouts import start_due_ms
from arranger.model.config import CycleConfig
from arranger.model.job import ACTIVE, Stage
from arranger.projections.cluster.nodes import UP
from arranger.projections.derived.deadlines import deadline_of
from arranger.projections.folding.giving_up import gives_up_ms
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

#: While the image of a pod can't be pulled, its watch is made sure of this often.
_IMAGES_MS = 5_000


def awaited_ms(state: State, kind: Watched, cycles: CycleConfig, config: LifecycleConfig, time_ms: int) -> int:
    """Up to when everything must have been observed for the decisions that are due at `time_ms`, in milliseconds since
    1970; 0 if nothing waits for that."""
    if kind not in (Watched.POD, Watched.NODE):
        return 0
    of_kind = _of_pods(state, time_ms) if kind == Watched.POD else _of_nodes(state, cycles, time_ms)
    found = max((due_ms for due_ms in _of_both(state, config, time_ms) if due_ms <= time_ms), default=0)
    return found if (found := max(found, of_kind)) > state.heard_ms(kind) else 0


def _of_both(state: State, config: LifecycleConfig, time_ms: int) -> Iterator[int]:
    """When jobs may lose nodes or pods by time alone (`State.known_ms`)."""
    nodes = state.nodes
    for down_ms, holders in zip(nodes.down_ms, nodes.holders, strict=True):
        if holders and down_ms != UP:
            yield down_ms + config.node_lost_after_ms
    for job in state.jobs.values():  # ten thousand of them each second
        if job.placements or job.times.short_ms:  # one that runs may have given up the last of its workers
            yield from _of_job(state, job, config, time_ms)


def _of_job(state: State, job: JobRecord, config: LifecycleConfig, time_ms: int) -> Iterator[int]:
    if job.stage not in ACTIVE:
        until_ms = awaited_until_ms(job)
        if until_ms is not None:
            yield until_ms
        return
    if job.times.short_ms:
        yield job.times.short_ms + config.quorum_ms
    if job.sets:
        yield from settled_ms(job, config)
    if job.stage == Stage.STARTING:
        yield from start_due_ms(state, job, config, time_ms)


def _of_pods(state: State, time_ms: int) -> int:
    latest_ms = 0
    for job in state.jobs.values():  # ten thousand of them each second
        if job.stage not in ACTIVE or job.spec is None or job.of_pods:
            continue
        if job.spec.deadline_s is not None:
            due_ms = deadline_of(job)
            if due_ms is not None and latest_ms < due_ms <= time_ms:
                latest_ms = due_ms
        if pod_without_image(state, job) is not None:
            latest_ms = max(latest_ms, time_ms - _IMAGES_MS)
    return latest_ms


def _of_nodes(state: State, config: CycleConfig, time_ms: int) -> int:
    waiting = [job for job in state.jobs.values() if job.active and job.waits is not None and not job.placements]
    given_up = [gives_up_ms(state, job, config) for job in waiting if job.waits and job.waits.shortage.infeasible]
    return max((due_ms for due_ms in given_up if due_ms is not None and due_ms <= time_ms), default=0)
