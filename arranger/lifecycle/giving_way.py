"""Jobs that gave room to others, and jobs that got it: which pods leave for that, and what is told about it."""

from arranger.events.facts import PreemptedPods
from arranger.events.kinds import PodSeen
from arranger.lifecycle.awaited_room import awaited_pods
from arranger.model.text import counted, rfc3339
from arranger.projections.derived.jobs_ahead import are_estimated
from arranger.projections.folding.forecasts import expected_start, others_may_delay
from arranger.projections.jobs.records import JobRecord, expand, holds
from arranger.projections.state import State

#: How many victims an Event names.
_NAMED = 3


def gives_way(job: JobRecord, pod: PodSeen) -> bool:
    """Whether a pod of the job is to be deleted because the job was preempted: as a whole, or this worker."""
    if job.preempted:
        return pod.owner is not None and pod.owner.attempt == job.attempt - 1
    causes = job.replaced.causes
    if pod.uid not in job.retired or not causes or not isinstance(causes[0], PreemptedPods):
        return False
    return pod.uid not in job.bound.values()


def unevicted_text(state: State, job: JobRecord) -> str:
    """Why pods that should leave the job, or its nodes, can't be evicted; empty if they can."""
    room, found = job.slots.room, []
    for uid in (job.uid, *(victim.job_uid for victim in (room.victims if room is not None else ()))):
        of = state.jobs.get(uid)
        failed = of.slots.unevicted if of is not None else None
        if of is not None and failed is not None and _some_stay(state, of):
            found.append(f"eviction refused: {failed.message}")
    return found[0] if found else ""


def _some_stay(state: State, job: JobRecord) -> bool:
    """Whether a pod that is to be evicted isn't being deleted yet."""
    return any(gives_way(job, pod) and not pod.deleting for pod in state.pods_of.get(job.uid, {}).values())


def vacated_text(state: State, job: JobRecord) -> str:
    """The pods that have to leave a job's nodes before it starts; empty for a job that waits for none."""
    if job.slots.room is None:
        return ""
    nodes = set(job.placements.values())
    pods = [pod for pod in awaited_pods(state, job) if pod.node in nodes and holds(pod)]
    preempted = [
        of.uid for pod in pods if pod.owner and (of := state.jobs.get(pod.owner.job_uid)) and gives_way(of, pod)
    ]
    of_jobs = f" of {counted(len(set(preempted)), 'preempted job')}" if preempted else ""
    if not pods:
        said = "has nodes, and waits for their room"
    elif len(preempted) in (0, len(pods)):
        said = f"has nodes, and waits for {counted(len(pods), 'pod')}{of_jobs} to leave them"
    else:
        said = f"has nodes, and waits for {len(pods)} pods to leave them, {len(preempted)} of them{of_jobs}"
    return "; ".join(part for part in (said, unevicted_text(state, job)) if part)


def taking_text(state: State, job: JobRecord) -> str:
    """From whom a job takes room; empty if it takes none."""
    room = job.slots.room
    if room is None or not room.victims:
        return ""
    named = [(state.jobs.get(victim.job_uid), victim) for victim in room.victims[:_NAMED]]
    told = [
        f"{counted(len(expand(victim.pods)), 'pod')} of job {of.seen.name} of namespace {of.seen.namespace}"
        for of, victim in named
        if of is not None
    ]
    more = len(room.victims) - len(told)
    others = [f"{more} more jobs" if more > 1 else "another job"] if more else []
    return f"has nodes, once these have left them: {', '.join([*told, *others])}"


def expected_start_ms(state: State, job: JobRecord) -> int:
    """When a waiting job is expected to start, as its reservation or a forecast says; 0 if that is unknown."""
    expected = expected_start(state, job)
    return expected.start_ms if expected is not None else 0


def expected_start_text(state: State, job: JobRecord) -> str:
    """As `expected_start_ms`, for people: a guess is called that, as is a reservation's time that follows from earlier
    runs alone an estimate; and one that others may delay is the earliest. Empty if it is unknown."""
    expected = expected_start(state, job)
    if expected is None:
        return ""
    if expected.forecast is not None:
        return f"{rfc3339(expected.start_ms)}{' (a guess)' if expected.guess else ''}"
    reservation = state.reservations.get(job.uid)
    estimated = reservation is not None and are_estimated(state, reservation.decided.awaits)
    how = f"{' (estimated)' if estimated else ''}{' or later' if others_may_delay(state, job) else ''}"
    return f"{rfc3339(expected.start_ms)}{how}"


def preempted_text(decided: str, expected: str) -> str:
    """By whom a job was preempted, and from when on it may expect room; `expected` is empty if that is unknown."""
    return f"{decided}; expected to start at {expected}" if expected else decided
