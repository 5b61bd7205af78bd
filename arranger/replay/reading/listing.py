"""List the events of a log that pass a filter, each with its subject, its content in words and its verdict.

Verdicts result from folding, so the listing of a segment needs the state before the segment.
"""

from typing import Any

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.names import pod_name
from arranger.model.queue import DEFAULT_QUEUE
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import Changes, State
from arranger.replay.reading.describe import (
    SEEN_AGAIN,
    as_object,
    decided_for,
    describe,
    job_uid_of,
    label,
    nodes_of,
    placed_in,
    victims_of,
)
from arranger.replay.reading.history import Span, advance
from arranger.replay.reading.verdicts import Judged, fold_noting

#: The watches of objects whose subject is a job, or nothing.
_OF_JOBS = {
    *(k.Watched.JOB, k.Watched.PROVISIONING, *k.GROUP_KINDS),
    *(k.Watched.CLAIM, k.Watched.RESOURCE_CLAIM, k.Watched.RESOURCE_CLAIM_TEMPLATE),
}


class EventFilter(msgspec.Struct, frozen=True):
    """The filter for events; an empty field doesn't restrict them. `job` is a name or namespace/name, `queue` selects a
    Queue and the jobs that belong to it at the event. `kinds` have no version."""

    span: Span = Span()
    job: str = ""
    node: str = ""
    pod: str = ""
    kinds: tuple[str, ...] = ()
    queue: str = ""


class EventLine(msgspec.Struct, frozen=True):
    """One event of the listing. `subject` is the object or the watched kind that it is about."""

    offset: int
    time_ms: int
    writer: str
    kind: str
    subject: str
    job: str
    verdict: str
    reason: str
    text: str
    event: k.Event


class ListedEvent(msgspec.Struct, frozen=True):
    """A `EventLine` for programs. `event` has the fields of the event's kind by name."""

    offset: int
    time_ms: int
    writer: str
    kind: str
    subject: str
    job: str
    verdict: str
    reason: str
    text: str
    event: dict[str, Any]

    @classmethod
    def of(cls, line: EventLine) -> "ListedEvent":
        return cls(**{**msgspec.structs.asdict(line), "event": as_object(line.event)})


class Listing:
    """Folds entries and returns the lines that pass the filter."""

    def __init__(self, state: State, asked: EventFilter) -> None:
        self.state = state
        #: The number of lines returned so far.
        self.found = 0
        self._filter = asked
        #: Labels of all jobs that were seen, because events about a job continue after its deletion.
        self._labels = {uid: label(job) for uid, job in state.jobs.items()}
        #: The names of all queues and nodes that were seen.
        self._queues_seen = {DEFAULT_QUEUE, *state.queues}
        self._nodes_seen = set(state.nodes.rows)
        #: Where a pod is asked for, the names of all pods that were seen or placed, alone and with the namespace.
        self.pods_seen: set[str] = set()
        if asked.pod:
            for pod in state.pods.values():
                self.pods_seen |= {pod.name, f"{pod.namespace}/{pod.name}"}

    def feed(self, entry: Entry) -> list[EventLine]:
        """Fold one entry. Raises `DamagedEntry`."""
        for event in entry.batch.events:
            if isinstance(event, k.JobSeen):
                self._labels[event.uid] = f"{event.namespace}/{event.name}"
            elif isinstance(event, k.QueueSeen):
                self._queues_seen.add(event.name)
            elif isinstance(event, k.NodeSeen):
                self._nodes_seen.add(event.name)
            if self._filter.pod:
                self.pods_seen.update(self._pods(event))
        if not self._filter.span.meets(entry):
            advance(self.state, entry, Changes())
            return []
        numbers = [number for number, event in enumerate(entry.batch.events) if self._asked_for(event)]
        judged = fold_noting(self.state, entry, Changes(), numbers)
        lines = [self._line(one, entry) for one in judged if self._filter.span.holds(entry, one.offset)]
        self.found += len(lines)
        return lines

    def knows(self, job: str) -> bool:
        """Whether a job of this name, or namespace/name, was seen."""
        return any(_named(job, label) for label in self._labels.values())

    def knows_queue(self, name: str) -> bool:
        """Whether a queue of this name was seen, or a present job names it."""
        return name in self._queues_seen or any(queue_of(self.state, job) == name for job in self.state.jobs.values())

    def knows_node(self, name: str) -> bool:
        """Whether a node of this name was seen."""
        return name in self._nodes_seen

    def _asked_for(self, event: k.Event) -> bool:
        """Whether an event passes the filter, before it is folded."""
        asked = self._filter
        if asked.kinds and k.kind_of(event) not in asked.kinds:
            return False
        if asked.job and not any(_named(asked.job, self._labels.get(uid, "")) for uid in self._jobs(event)):
            return False
        if asked.node and asked.node not in nodes_of(event, self.state):
            return False
        if asked.queue and asked.queue not in self._queues(event):
            return False
        return not asked.pod or asked.pod in self._pods(event)

    def _jobs(self, event: k.Event) -> tuple[str, ...]:
        """The UIDs of the jobs that an event is about: also of those that it takes nodes from."""
        return job_uid_of(event, self.state), *victims_of(event)

    def _queues(self, event: k.Event) -> list[str]:
        """The queue that an event is about, or to which its job belongs; two of a job that goes to another queue."""
        if k.seen_or_gone(event, k.QueueSeen):
            return [event.name]
        jobs = [self.state.jobs.get(uid) for uid in self._jobs(event)]
        found = [queue_of(self.state, job) for job in jobs if job is not None]
        if isinstance(event, k.JobSeen):
            found.append(queue_of(self.state, JobRecord(event, event.spec, 0)))
        return found

    def _pods(self, event: k.Event) -> tuple[str, ...]:
        """The names of the pods that an event is about or places."""
        if k.seen_or_gone(event, k.PodSeen):
            return (event.name, f"{event.namespace}/{event.name}")
        placed = placed_in(event)
        slots: list[SlotKey] = []
        if placed is not None:
            slots = list(expand(placed.pods))
        elif isinstance(event, k.EffectFailed) and event.slot is not None:
            slots = [(event.slot.group, event.slot.index)]
        names = self._pod_names(decided_for(event), slots, getattr(placed or event, "attempt", 0))
        for victim in event.victims if isinstance(event, k.Preempted) else ():
            names += self._pod_names(victim.job_uid, [*expand(victim.pods)], victim.attempt)
        return tuple(names)

    def _pod_names(self, uid: str, slots: list[SlotKey], attempt: int) -> list[str]:
        """The names of the pods of a job's slots in an attempt."""
        job = self.state.jobs.get(uid)
        if job is None or job.spec is None:
            return []
        groups, before = job.spec.groups, job.slots.failed_before
        return [
            pod_name(job.seen.name, groups[group].name, index, attempt, before.get((group, index), 0))
            for group, index in slots
            if group < len(groups)
        ]

    def _line(self, judged: Judged, entry: Entry) -> EventLine:
        event = judged.event
        job = self._labels.get(judged.job_uid, judged.job_uid)
        return EventLine(
            offset=judged.offset,
            time_ms=entry.batch.time_ms,
            writer=entry.batch.writer,
            kind=k.kind_of(event),
            subject=self._subject(event, job),
            job=job,
            verdict=judged.verdict,
            reason=judged.reason,
            text=SEEN_AGAIN
            if judged.again
            else describe(event, self.state) + (f", was {judged.was}" if judged.was else ""),
            event=event,
        )

    @staticmethod
    def _subject(event: k.Event, job: str) -> str:
        watch = k.watch_of(event)
        if watch is not None and watch not in _OF_JOBS:
            namespace, name = getattr(event, "namespace", ""), getattr(event, "name", "")
            return f"{namespace}/{name}" if namespace else name
        if isinstance(event, (k.WatchClaimed, k.ListingBegun, k.ListingEnded, k.WatchHeard)):
            return str(event.kind)
        return job


def _named(asked: str, label: str) -> bool:
    return asked in (label, label.partition("/")[2])
