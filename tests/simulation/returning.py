"""Nobody takes room that it would give back at once: to a job of its queue with a higher priority that only waits for
its own pods to leave.

The rule asks the product what the next cycle would decide if these pods had left.
"""

from collections.abc import Iterator, Sequence

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.projections.verdicts.ownership import awaits_own_pods, earlier_pods
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.waiting import waiting_jobs
from tests.simulation.queue_rules import name_of
from tests.simulation.room_rules import folded, priority_of
from tests.simulation.upgrades import EVERY

_WHO = "rules of room"
#: What a cycle decides about room.
_DECIDES = (k.CycleTaken, k.Placed, k.Preempted, k.Reserved)


def given_back(state: State, cycle: k.CycleTaken, events: Sequence[k.Event]) -> Iterator[tuple[str, str]]:
    """(UID, the problem) of each job that takes room in a cycle and would lose all of it in the next one, if the own
    pods of another job had left until then. `state` is that on which the cycle was taken, `events` are those of it."""
    awaiting = [job for job in waiting_jobs(state, cycle.time_ms) if awaits_own_pods(state, job)]
    for event in events:
        if not isinstance(event, k.Preempted):
            continue
        job = state.jobs[event.placed.job_uid]
        if not all(victim.kind.of_guest for victim in event.victims):  # these came on the terms that they leave for it
            for other in awaiting:
                if _comes_first(state, other, job) and job.uid in _gives_to(state, cycle, events, other):
                    yield job.uid, f"takes room that {other.seen.name} takes as soon as its own pods have left"
        awaiting += [state.jobs[victim.job_uid] for victim in event.victims if victim.kind.whole]


def _comes_first(state: State, other: JobRecord, job: JobRecord) -> bool:
    return name_of(state, other) == name_of(state, job) and priority_of(state, other) > priority_of(state, job)


def _gives_to(state: State, cycle: k.CycleTaken, events: Sequence[k.Event], job: JobRecord) -> list[str]:
    """The jobs (UIDs) that would give all of their room to this one, if its own pods had left after these events."""
    after = folded(state, [of for of in events if isinstance(of, _DECIDES)])
    term = after.terms[k.Watched.POD]
    gone = tuple(
        k.ObjectGone(k.Watched.POD, term, pod.namespace, pod.name, pod.uid)
        for pod in earlier_pods(after, after.jobs[job.uid])
    )
    if gone:
        batch = k.Batch(_WHO, 1, after.time_ms, gone)
        apply_entry(after, Entry(after.offset + 1, after.offset + len(gone), "", batch), Changes())
    decided = take_cycle(after, cycle.config, after.time_ms, policies=EVERY.recorded(cycle.config))
    takes = [of for of in decided if isinstance(of, k.Preempted) and of.placed.job_uid == job.uid]
    return [victim.job_uid for of in takes for victim in of.victims if victim.kind.whole]
