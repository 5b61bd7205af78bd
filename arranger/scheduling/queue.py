"""Which jobs want nodes in this cycle, and by which queue policy each goes."""

import math
from itertools import groupby

from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState, Stage
from arranger.projections.jobs import JobRecord
from arranger.projections.ownership import has_earlier_pods
from arranger.projections.state import State
from arranger.scheduling.policies.queues import MergedQueues, Segment, seniority
from arranger.scheduling.registry import BUILT_IN, Policies
from arranger.scheduling.shares import Shares
from arranger.scheduling.view import ClusterView


def waiting_jobs(state: State, time_ms: int) -> list[JobRecord]:
    """Jobs with places that have no node yet and are to get some at that time, by UID: none that backs off."""
    return [job for job in _wanting(state) if job.not_before_ms <= time_ms]


def next_ms(state: State, time_ms: int) -> float:
    """When the first of the jobs that back off at that time comes again, told in milliseconds; infinite without any."""
    return min((job.not_before_ms for job in _wanting(state) if job.not_before_ms > time_ms), default=math.inf)


def _wanting(state: State) -> list[JobRecord]:
    # Most jobs have all their nodes: what shows that is asked first, of thousands of jobs in every cycle.
    short = [job for job in state.jobs.values() if len(job.placements) < job.pods_desired()]
    return sorted([job for job in short if _wants_nodes(state, job)], key=_by_uid)


def _by_uid(job: JobRecord) -> str:
    return job.seen.uid


def queues(jobs: list[JobRecord], config: CycleConfig, policies: Policies, shares: Shares) -> MergedQueues:
    """The jobs' turns. A job that names no policy, or one that isn't installed here, goes by the configured default."""
    return MergedQueues(
        [Segment(policies.queue[name].queue(of_segment, shares), len(of_segment)) for name, of_segment in level]
        for level in in_line(jobs, config, policies)
    )


def in_line(jobs: list[JobRecord], config: CycleConfig, policies: Policies) -> list[list[tuple[str, list[JobRecord]]]]:
    """The jobs by the policies that give them their turns, in levels and segments.

    Where all go by one policy, all are one segment. Else they stand in one line by seniority, and the line is cut into
    its priorities, and each of these where the policy changes. So a policy decides among jobs only where none of
    another policy stands between them.
    """
    names = {job.uid: policies.queue_policy_name(job, config) for job in jobs}
    if len(set(names.values())) < 2:
        return [[(name, jobs)] for name in sorted(set(names.values()))]
    levels = groupby(sorted(jobs, key=seniority), key=_priority)
    return [[(name, list(of)) for name, of in groupby(level, key=lambda job: names[job.uid])] for _, level in levels]


def _priority(job: JobRecord) -> int:
    return job.valid_spec.priority


def in_order(
    state: State, config: CycleConfig, policies: Policies = BUILT_IN, *, time_ms: int | None = None
) -> list[JobRecord]:
    """The waiting jobs in the order in which they would have their first turns, if nobody got anything. `time_ms` is
    the state's own time unless another is given."""
    view = ClusterView(state.nodes)
    turns = queues(waiting_jobs(state, state.time_ms if time_ms is None else time_ms), config, policies, Shares(view))
    order: list[JobRecord] = []
    while (turn := turns.head()) is not None:
        order.append(turn.job)
        turns.taken(more=False)
    return order


def _wants_nodes(state: State, job: JobRecord) -> bool:
    """Whether a job that lacks nodes is to get some now."""
    if not job.active or job.stands_still or job.schedule_state == ScheduleState.FAILED:
        return False
    return job.stage in (Stage.STARTING, Stage.RUNNING) or not has_earlier_pods(state, job)
