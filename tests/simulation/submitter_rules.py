"""In a queue with `userFairness`, nobody starts before a job whose submitter uses less: counted anew for the oracle."""

from collections.abc import Iterator, Mapping, Sequence

from arranger.events import kinds as k
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.state import State
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.queues.offer import offered
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.queues.waiting import waiting_jobs
from arranger.scheduling.search.placer import Placer
from tests.simulation.room_rules import folded


def passed_by_submitters(state: State, cycle: k.CycleTaken, events: Sequence[k.Event]) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each job that gets its first nodes in a cycle because room or a limit is kept for it,
    although another one could have them whose submitter uses no more with it. `state` is that on which the cycle was
    taken. Where others have reservations too, these may be what keeps the other job waiting."""
    placed = [event for event in events if isinstance(event, k.Placed) and not state.jobs[event.job_uid].placements]
    kept = {**state.reservations, **state.kept_limits}
    if any(isinstance(event, k.Preempted) for event in events):
        return
    got = {event.job_uid for event in events if isinstance(event, k.Placed)}
    for event in placed:
        job, queue = state.jobs[event.job_uid], queue_of(state, state.jobs[event.job_uid])
        spec = state.queue_tree.specs.get(queue)
        if {*kept} != {job.uid} or spec is None or not spec.user_fairness or queue not in state.queue_tree.paths:
            continue
        theirs = _of(state, queue, _submitter(job))
        without = None
        for other in waiting_jobs(state, cycle.time_ms):
            same = queue_of(state, other) != queue or _submitter(other) == _submitter(job)
            if same or other.placements or other.uid in got or not _no_more(state, cycle, other, theirs):
                continue
            if without is None:
                without = folded(state, [cycle, *(of for of in events if isinstance(of, k.Placed) and of is not event)])
            placer = Placer(without, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
            if placer.quorum(without.jobs[other.uid]).quorum_stands:
                yield job.uid, f"starts before {other.seen.name}, whose submitter in the queue uses less"


def _no_more(state: State, cycle: k.CycleTaken, job: JobRecord, theirs: Mapping[str, int]) -> bool:
    """Whether a job's submitter has no more with it than others have, by dominant shares."""
    mine = _of(state, queue_of(state, job), _submitter(job))
    for group, pods in pods_of(quorum_needs(job, BUILT_IN.pod_policy(job, cycle.config))).items():
        for resource, amount in job.valid_spec.groups[group].shape.requests:
            mine[resource] = mine.get(resource, 0) + amount * pods
    total = offered(state, cycle.time_ms)
    return _dominant(mine, total) <= _dominant(theirs, total)


def _dominant(amounts: Mapping[str, int], total: Mapping[str, int]) -> float:
    parts = [amount / total[name] if total.get(name) else 1.0 for name, amount in amounts.items() if amount]
    return max(parts, default=0.0)


def _submitter(job: JobRecord) -> str:
    return job.seen.user or job.seen.namespace


def _of(state: State, queue: str, submitter: str) -> dict[str, int]:
    """What the jobs of a submitter have in a queue, but of those that have succeeded."""
    found: dict[str, int] = {}
    for job in state.jobs.values():
        if queue_of(state, job) == queue and _submitter(job) == submitter and not job.slots.done:
            for slot in job.placements:
                for resource, amount in requests_of(job, slot):
                    found[resource] = found.get(resource, 0) + amount
    return found
