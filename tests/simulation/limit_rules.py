"""What is kept of a limit for one job isn't used by others behind it, unless they leave for it."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from arranger.events import kinds as k
from arranger.model.job import LEADER_GROUP, ScheduleState
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.derived.expected_ends import leaves_by_ms
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord, by_group, compact, expand, is_quorum
from arranger.projections.jobs.worker_groups import parted
from arranger.projections.state import State
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.placing.quotas import Quotas
from arranger.scheduling.queues.policies import seniority
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.room.guests import may_be_guest
from arranger.scheduling.room.reservations import Reservations
from arranger.scheduling.room.vacating import Vacating
from arranger.scheduling.search.placer import Placer
from tests.simulation.room_rules import folded


def passed_at_limits(state: State, cycle: k.CycleTaken, events: Sequence[k.Event]) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each job whose quorum gets nodes in a cycle and uses what a job before it in its queue
    needs of a limit that is kept for it, though it is no guest of that one, and not expected to leave in time; and of
    each job that has a limit kept for it without reservations. `state` is that on which the cycle was taken."""
    placed = [of for of in events if isinstance(of, k.Placed)]
    kept = {of.job_uid: of.limit is not None for of in events if isinstance(of, k.LimitKept)}
    if not cycle.config.reservations:
        yield from ((uid, "has a limit kept for it, and nothing is to be") for uid, keeps in kept.items() if keeps)
    if any(isinstance(of, k.Preempted) for of in events):
        return
    for uid in state.kept_limits:
        host = state.jobs[uid]
        if not kept.get(uid, True) or any(of.job_uid == uid for of in placed):
            continue
        for of in placed:
            job = state.jobs[of.job_uid]
            behind = queue_of(state, job) == queue_of(state, host) and seniority(host) < seniority(job)
            if not job.placements and behind and uid not in of.hosts and _delays(state, cycle, events, of, host):
                yield of.job_uid, f"uses a limit that is kept for {host.seen.name}, and is no guest"


def _delays(state: State, cycle: k.CycleTaken, events: Sequence[k.Event], placed: k.Placed, host: JobRecord) -> bool:
    """Whether a limit is enough for a host as others end, and no more beside what was placed last."""
    # Further pods have their turns after the quorums of other jobs.
    quorums = [of for of in events if isinstance(of, k.Placed) and not state.jobs[of.job_uid].placements]
    before = takewhile(lambda of: of is not placed, quorums)
    after = folded(state, [cycle, *before, _quorum_of(state.jobs[placed.job_uid], placed)])
    placer = Placer(after, cycle.config, BUILT_IN, time_ms=cycle.time_ms)
    quotas, vacating = placer.placing.quotas, Vacating(after, placer.placing)
    job, left = after.jobs[placed.job_uid], [after.jobs[placed.job_uid]]
    _leave(quotas, vacating, left)
    start_ms = 0.0 if _lack(quotas, host, cycle) is None else None
    for end_ms, of in Reservations(after, placer, []).ends.before(after.jobs[host.uid]):
        if start_ms is not None and end_ms > max(start_ms, cycle.time_ms):
            break
        if of is not job:
            left.append(of)
            _leave(quotas, vacating, [of])
            start_ms = end_ms if start_ms is None and _lack(quotas, host, cycle) is None else start_ms
    leaves_ms = leaves_by_ms(after, job, cycle.config, cycle.time_ms)
    if start_ms is None or (leaves_ms is not None and leaves_ms <= start_ms):
        return False
    quotas.release(*vacating.use_of(job), -1)
    lack = _lack(quotas, host, cycle)
    # Guarantees leave too little where the nodes offer too little, too, and who can't be a guest uses free nodes.
    return lack is not None and (lack.limit != LimitKind.GUARANTEES or may_be_guest(job, cycle.config))


def _quorum_of(job: JobRecord, placed: k.Placed) -> k.Placed:
    """The placement of a quorum alone, of as few and small pods as it can have: workers above it may use a limit, and
    are surplus."""
    groups, slots = job.valid_spec.groups, expand(placed.pods)
    for slot in sorted(slots, key=lambda slot: (groups[slot[0]].shape.requests, slot), reverse=True):
        rest = {of: node for of, node in slots.items() if of != slot}
        enough = all(had >= least for had, least in zip(by_group(job.valid_spec, rest), job.least, strict=True))
        if slot[0] != LEADER_GROUP and enough and is_quorum(job.valid_spec, rest) and not parted(job.valid_spec, rest):
            slots = rest
    if placed.devices or len(slots) == len(expand(placed.pods)):
        return placed
    return replace(placed, schedule_state=ScheduleState.PARTLY, pods=compact(slots))


def _leave(quotas: Quotas, vacating: Vacating, jobs: Sequence[JobRecord]) -> None:
    for of in jobs:
        quotas.release(*vacating.use_of(of), 1)


def _lack(quotas: Quotas, host: JobRecord, cycle: k.CycleTaken) -> QuotaLack | None:
    needs = pods_of(quorum_needs(host, BUILT_IN.pod_policy(host, cycle.config)))
    return quotas.full(host) or quotas.lack(host, needs)
