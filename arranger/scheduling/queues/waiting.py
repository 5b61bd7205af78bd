"""The jobs that need nodes in this cycle, and the queue policy of each."""

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Generator
from itertools import groupby
from operator import attrgetter

import msgspec

from arranger.model.config import CycleConfig
from arranger.model.job import HANGS_AFTER_MS, ScheduleState, Stage
from arranger.model.pod import QosClass
from arranger.model.queue import DEFAULT_QUEUE
from arranger.model.quota import LimitKind, QuotaLack
from arranger.model.steps import Steps
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import Known, counted_priority, denied
from arranger.projections.jobs.records import JobRecord, by_group
from arranger.projections.jobs.worker_groups import parted
from arranger.projections.queues.use import JOBS
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import awaits_own_pods, earlier_gone_ms
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.queues.demand import never_fits
from arranger.scheduling.queues.dominant_shares import Shares
from arranger.scheduling.queues.policies import JobQueue, MergedQueues, Priority, QueueSegment, seniority
from arranger.scheduling.queues.registry import BUILT_IN, Policies
from arranger.scheduling.queues.standing import KeptQueues, QueueStanding, QueueTurns


def waiting_jobs(state: State, time_ms: int, *, by_qos: bool = False) -> list[JobRecord]:
    """Jobs with slots that may get nodes at that time, or as soon as their own pods of an earlier attempt have left, by
    UID; jobs in back-off are left out. Their specs have the priority that counts in their queues, and the rank of their
    QoS class if that orders equals (`by_qos`)."""
    return waiting(state, time_ms, by_qos=by_qos)[0]


def waiting(
    state: State, time_ms: int, short: list[JobRecord] | None = None, *, by_qos: bool = False
) -> tuple[list[JobRecord], float]:
    """The waiting jobs, and when one more or one less waits because of the time, in milliseconds; infinite for never.
    `short` are the active jobs that lack nodes, if these are known."""
    return _not_in_back_off(state, _wanting(state, short), time_ms, by_qos=by_qos)


def _not_in_back_off(
    state: State, wanting: list[JobRecord], time_ms: int, *, by_qos: bool
) -> tuple[list[JobRecord], float]:
    """`waiting`, of the jobs that may get nodes now or after a back-off."""
    jobs, next_ms = [], math.inf
    for job in sorted(wanting, key=_by_uid):
        not_before_ms, until_ms = job.not_before_ms, math.inf
        if not_before_ms > time_ms:
            next_ms = min(next_ms, not_before_ms)
            continue
        if awaits_own_pods(state, job):
            until_ms = earlier_gone_ms(state, job) + HANGS_AFTER_MS
        if until_ms > time_ms:
            jobs.append(job)
            next_ms = min(next_ms, until_ms)
    if by_qos or any([spec.max_priority is not None for spec in state.queue_tree.specs.values()]):
        jobs = [_as_counted(state, job, by_qos=by_qos) for job in jobs]
    return jobs, next_ms


#: The ranks of QoS classes. A class that isn't known is as good as the best.
_RANKS: dict[QosClass | None, int] = {None: 0} | {of: rank for rank, of in enumerate(QosClass)}


def _as_counted(state: State, job: JobRecord, *, by_qos: bool) -> JobRecord:
    spec, priority = job.valid_spec, counted_priority(state, job)
    rank = _RANKS[spec.qos] if by_qos else 0
    if (priority, rank) == (spec.priority, spec.qos_rank):
        return job
    return dataclasses.replace(job, spec=msgspec.structs.replace(spec, priority=priority, qos_rank=rank))


def number_told(state: State, jobs: Collection[JobRecord]) -> int:
    """Of how many of the waiting jobs cycles tell why they wait: not of those that wait for their own pods."""
    return sum(not awaits_own_pods(state, job) for job in jobs)


def considered(state: State, jobs: list[JobRecord]) -> tuple[list[JobRecord], list[tuple[JobRecord, QuotaLack]]]:
    """The jobs that a cycle seeks nodes for, and the others with the queue that has too many waiting jobs before them,
    in the order of seniority. Jobs that have nodes don't count, nor those of which earlier cycles found that nothing
    could hold them: they would keep all others out for good."""
    tree = state.queue_tree
    most = {name: spec.max_waiting for name, spec in tree.specs.items() if spec.max_waiting is not None}
    over: list[tuple[JobRecord, QuotaLack]] = []
    waiting: Counter[str] = Counter()
    for job in sorted(jobs, key=seniority) if most else ():
        path = tree.paths.get(queue_of(state, job), ())
        full = [name for name in path if name in most and waiting[name] >= most[name]]
        if job.placements or never_fits(job):
            continue
        if full:
            over.append((job, QuotaLack("", JOBS, 1, 0, most[full[0]], full[0], LimitKind.MAX_WAITING)))
        else:
            waiting.update(path)
    left_out = {job.uid for job, _ in over}
    return [job for job in jobs if job.uid not in left_out], over


def _wanting(state: State, short: list[JobRecord] | None = None) -> list[JobRecord]:
    if short is None:
        # Most of the thousands of jobs have all their nodes, so the cheapest check for that comes first.
        short = [job for job in state.jobs.values() if len(job.placements) < job.pods_desired()]
    known: Known = {}
    return [job for job in short if _wants_nodes(state, job, known)]


def _by_uid(job: JobRecord) -> str:
    return job.seen.uid


def turns(
    state: State,
    jobs: list[JobRecord],
    config: CycleConfig,
    policies: Policies,
    shares: Shares,
    *,
    time_ms: int,
    kept: KeptQueues | None = None,
) -> QueueTurns:
    """The jobs' turns. Without Queues, all jobs are in one line."""
    if not state.queues:
        return QueueTurns({DEFAULT_QUEUE: _merged(jobs, config, policies, shares)}, None)
    standing = QueueStanding(state, jobs, time_ms, kept)

    lines = {
        line: _merged(of_line, config, policies, shares, standing.policy(line))
        for line, of_line in standing.lines.items()
    }
    first_jobs = {line: seniority(turn.job) for line, of in lines.items() if (turn := of.head()) is not None}
    return QueueTurns(lines, standing.order(first_jobs))


def _merged(
    jobs: list[JobRecord], config: CycleConfig, policies: Policies, shares: Shares, of_queue: str = ""
) -> JobQueue:
    levels = in_line(jobs, config, policies, of_queue)
    if len(levels) == 1 and len(levels[0]) == 1:
        [[(name, of_segment)]] = levels
        return policies.queue[name].queue(of_segment, shares)
    return MergedQueues(
        [QueueSegment(policies.queue[name].queue(of_segment, shares), len(of_segment)) for name, of_segment in level]
        for level in levels
    )


def in_line(
    jobs: list[JobRecord], config: CycleConfig, policies: Policies, of_queue: str = ""
) -> list[list[tuple[str, list[JobRecord]]]]:
    """The jobs in levels and segments, each segment with the policy that gives its jobs their turns: that of their
    queue, else the one that they name, else the configured one; policies that aren't installed don't count.

    Jobs with a single policy are one segment. Otherwise the jobs form one line by seniority. The line is divided into
    levels by priority, and each level into segments where the policy changes. So a policy decides only among jobs that
    no job of another policy separates.
    """
    if of_queue in policies.queue:
        return [[(of_queue, jobs)]] if jobs else []
    if len(set(map(_named_policy, jobs))) < 2:  # the common case
        return [[(policies.queue_policy_name(jobs[0], config), jobs)]] if jobs else []
    names = {job.uid: policies.queue_policy_name(job, config) for job in jobs}
    if len(set(names.values())) < 2:
        return [[(name, jobs)] for name in names.values()][:1]
    levels = groupby(sorted(jobs, key=seniority), key=_priority)
    return [[(name, list(of)) for name, of in groupby(level, key=lambda job: names[job.uid])] for _, level in levels]


def policy_of(state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> str:
    """The name of the policy that gives a job its turn among those of its queue, as in `in_line`."""
    spec = state.queue_tree.specs.get(queue_of(state, job))
    of_queue = spec.queue_policy if spec is not None else ""
    return of_queue if of_queue in policies.queue else policies.queue_policy_name(job, config)


_priority = attrgetter("spec.priority")
_named_policy = attrgetter("spec.queue_policy")


#: The order of the queue is worked out in steps of so many jobs.
_JOBS_A_STEP = 200


def in_order(
    state: State, config: CycleConfig, policies: Policies = BUILT_IN, *, time_ms: int | None = None
) -> list[JobRecord]:
    """The waiting jobs in the order of their first turns, as if none of them got nodes, and last those over their
    queue's `maxWaiting`. `time_ms` defaults to the state's time."""
    return Steps(order_in_steps(state, config, policies, time_ms=time_ms)).finish()


def in_order_among(
    state: State, uids: Collection[str], config: CycleConfig, policies: Policies = BUILT_IN, *, time_ms: int
) -> list[JobRecord]:
    """As `in_order`, but only these jobs. Where it is seniority alone that decides among them, nobody else is looked
    at."""
    there = [job for job in map(state.jobs.get, uids) if job is not None and job.spec is not None]
    if not _by_seniority_alone(state, there, config, policies):
        return [job for job in in_order(state, config, policies, time_ms=time_ms) if job.uid in uids]
    short = [job for job in there if len(job.placements) < job.pods_desired()]
    return sorted(waiting(state, time_ms, short, by_qos=config.qos_order)[0], key=seniority)


def _by_seniority_alone(state: State, jobs: list[JobRecord], config: CycleConfig, policies: Policies) -> bool:
    """Whether the order among jobs depends on nothing else: neither on shares, of jobs, submitters or queues, nor on
    how many jobs may wait."""
    tree, names = state.queue_tree, {queue_of(state, job) for job in jobs}
    path = [tree.specs[name] for queue in names for name in (queue, *tree.paths.get(queue, ())) if name in tree.specs]
    limited = any(spec.user_fairness or spec.max_waiting is not None for spec in path)
    named = {policy_of(state, job, config, policies) for job in jobs}
    return len(names) < 2 and not limited and named <= {Priority.name}


def recorded_order(state: State, config: CycleConfig, policies: Policies) -> list[JobRecord]:
    """As `in_order`, by the settings of a recorded cycle, of whose policies some may not be installed. People read the
    order of the queue by those of the last cycle."""
    nearest, usable = policies.nearest(config)
    return in_order(state, usable, nearest)


def order_in_steps(
    state: State, config: CycleConfig, policies: Policies = BUILT_IN, *, time_ms: int | None = None
) -> Generator[None, None, list[JobRecord]]:
    """As `in_order`, in short steps, for a process that has other work. Between the steps, the state may change: then
    each job has its place as of one of these moments."""
    time_ms = state.time_ms if time_ms is None else time_ms
    known: Known = {}
    wanting: list[JobRecord] = []
    for number, job in enumerate(list(state.jobs.values()), start=1):
        if len(job.placements) < job.pods_desired() and _wants_nodes(state, job, known):
            wanting.append(job)
        if not number % _JOBS_A_STEP:
            yield
    wanting = [job for job in wanting if job.active and state.jobs.get(job.uid) is job]
    jobs = _not_in_back_off(state, wanting, time_ms, by_qos=config.qos_order)[0]
    yield
    jobs, over = considered(state, jobs)
    of_all = turns(state, jobs, config, policies, Shares(ClusterView(state.nodes)), time_ms=time_ms)
    yield
    order: list[JobRecord] = []
    while (turn := of_all.head()) is not None:
        order.append(turn.job)
        of_all.taken(more=False, job=turn.job)
        if not len(order) % _JOBS_A_STEP:
            yield
    return [*order, *(job for job, _ in over)]


def _wants_nodes(state: State, job: JobRecord, known: Known) -> bool:
    """Whether a job that lacks nodes may get some now. Every cycle asks that of every job that waits."""
    if not job.active or job.stands_still or job.schedule_state == ScheduleState.FAILED or job.slots.room is not None:
        return False
    spec, begun = job.valid_spec, job.stage in _BEGUN
    if not spec.classes_known or (spec.after and spec.unmet) or (not begun and denied(state, job, known)):
        return False
    if job.of_pods and job.pods_lacking:
        return False
    # The controller first releases what is left of a worker group, or fails the job.
    return not (parted(spec, job.provided) or _too_few_left(job))


_BEGUN = (Stage.STARTING, Stage.RUNNING)


def _too_few_left(job: JobRecord) -> bool:
    """Whether the pods of slots that aren't given up can't be a quorum."""
    if not job.slots.given_up:
        return False
    spec = job.valid_spec
    given_up = by_group(spec, job.slots.given_up)
    return spec.workers_missing([group.count - lost for group, lost in zip(spec.groups, given_up, strict=True)]) > 0
