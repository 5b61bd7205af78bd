"""The jobs that need nodes in this cycle, and the queue policy of each."""

import math
from itertools import groupby

from arranger.model.config import CycleConfig
from arranger.model.job import ScheduleState, Stage
from arranger.projections.jobs import JobRecord
from arranger.projections.ownership import has_earlier_pods
from arranger.projections.queue_membership import kept_out
from arranger.projections.state import State
from arranger.projections.worker_groups import parted
from arranger.scheduling.policies.queues import MergedQueues, Segment, seniority
from arranger.scheduling.registry import BUILT_IN, Policies
from arranger.scheduling.shares import Shares
from arranger.scheduling.view import ClusterView


def waiting_jobs(state: State, time_ms: int) -> list[JobRecord]:
    """Jobs with slots that may get nodes at that time, by UID; jobs in back-off are left out."""
    return [job for job in _wanting(state) if job.not_before_ms <= time_ms]


def next_ms(state: State, time_ms: int) -> float:
    """When the first job in back-off at that time may get nodes again, in milliseconds; infinite without any."""
    return min((job.not_before_ms for job in _wanting(state) if job.not_before_ms > time_ms), default=math.inf)


def _wanting(state: State) -> list[JobRecord]:
    # Most of the thousands of jobs have all their nodes, so the cheapest check for that comes first.
    short = [job for job in state.jobs.values() if len(job.placements) < job.pods_desired()]
    return sorted([job for job in short if _wants_nodes(state, job)], key=_by_uid)


def _by_uid(job: JobRecord) -> str:
    return job.seen.uid


def queues(jobs: list[JobRecord], config: CycleConfig, policies: Policies, shares: Shares) -> MergedQueues:
    """The jobs' turns. A job that names no policy, or one that isn't installed, uses the configured default."""
    return MergedQueues(
        [Segment(policies.queue[name].queue(of_segment, shares), len(of_segment)) for name, of_segment in level]
        for level in in_line(jobs, config, policies)
    )


def in_line(jobs: list[JobRecord], config: CycleConfig, policies: Policies) -> list[list[tuple[str, list[JobRecord]]]]:
    """The jobs in levels and segments, each segment with the policy that gives its jobs their turns.

    Jobs with a single policy are one segment. Otherwise the jobs form one line by seniority. The line is divided into
    levels by priority, and each level into segments where the policy changes. So a policy decides only among jobs that
    no job of another policy separates.
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
    """The waiting jobs in the order of their first turns, as if none of them got nodes. `time_ms` defaults to the
    state's time."""
    view = ClusterView(state.nodes)
    turns = queues(waiting_jobs(state, state.time_ms if time_ms is None else time_ms), config, policies, Shares(view))
    order: list[JobRecord] = []
    while (turn := turns.head()) is not None:
        order.append(turn.job)
        turns.taken(more=False)
    return order


def _wants_nodes(state: State, job: JobRecord) -> bool:
    """Whether a job that lacks nodes may get some now."""
    if not job.active or job.stands_still or job.schedule_state == ScheduleState.FAILED:
        return False
    if not job.valid_spec.priority_known or job.valid_spec.unmet or kept_out(state, job) is not None:
        return False
    if parted(job.valid_spec, job.provided):
        return False  # the controller first releases what is left of a worker group
    return job.stage in (Stage.STARTING, Stage.RUNNING) or not has_earlier_pods(state, job)
