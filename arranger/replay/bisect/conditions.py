"""Conditions on a state, for finding the event at which one starts to hold: on a job, on a node, and whether a job
would find room or be placed.

A condition is asked of the state after every entry, so each is a few look-ups; those that would need a scheduling cycle
ask for one only when something has changed that it depends on.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP
from arranger.projections.jobs import JobRecord
from arranger.projections.nodes import Amounts
from arranger.projections.state import State
from arranger.replay.reading.describe import label
from arranger.scheduling import queue
from arranger.scheduling.cycle import describe_shortage, turn_of
from arranger.scheduling.filters import Filters, amount
from arranger.scheduling.placer import Placer, pod_policy
from arranger.scheduling.registry import BUILT_IN, Policies
from arranger.scheduling.view import ClusterView, Mask

#: What a state says of one thing, by name.
Facts = dict[str, str]

#: Signs of comparisons as the user types them, the longer ones first.
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip


class Condition(ABC):
    """Something that holds in a state or doesn't."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What holds, in words."""

    @property
    def denied(self) -> str:
        """That it doesn't hold, in words."""
        return f"not: {self.text}"

    def note(self, entry: Entry) -> None:  # noqa: B027  # most have nothing to note
        """An entry that is about to be folded, for conditions that depend on more than the state."""

    def means_something(self, state: State) -> bool:
        """Whether it can be asked of this state. Where it can't, it is taken to be as it was before."""
        return True

    @abstractmethod
    def holds(self, state: State) -> bool:
        """Whether it holds in this state."""

    def facts(self, state: State) -> Facts:
        """What the state says of the condition's subject, to be shown before and after."""
        return {}

    @property
    def subject(self) -> str:
        """The job or node that it is about, as `facts` are headed."""
        return ""

    @property
    def job_uid(self) -> str:
        """The UID of the job that it is about, empty if it is about none."""
        return ""


class Negated(Condition):
    """That another condition doesn't hold."""

    def __init__(self, of: Condition) -> None:
        self.of = of

    @property
    def text(self) -> str:
        """The opposite of the other."""
        return self.of.denied

    @property
    def denied(self) -> str:
        """The other."""
        return self.of.text

    def note(self, entry: Entry) -> None:
        """Hand it on."""
        self.of.note(entry)

    def means_something(self, state: State) -> bool:
        """By the other."""
        return self.of.means_something(state)

    def holds(self, state: State) -> bool:
        """By what the state says."""
        return not self.of.holds(state)

    def facts(self, state: State) -> Facts:
        """The subject's."""
        return self.of.facts(state)

    @property
    def subject(self) -> str:
        """The job or node."""
        return self.of.subject

    @property
    def job_uid(self) -> str:
        """The job's."""
        return self.of.job_uid


class All(Condition):
    """That several conditions hold at once."""

    def __init__(self, of: Sequence[Condition]) -> None:
        self.of = of

    @property
    def text(self) -> str:
        """All of them."""
        return " and ".join(one.text for one in self.of)

    def note(self, entry: Entry) -> None:
        """Hand it on."""
        for one in self.of:
            one.note(entry)

    def means_something(self, state: State) -> bool:
        """Whether all of them do."""
        return all(one.means_something(state) for one in self.of)

    def holds(self, state: State) -> bool:
        """By what the state says."""
        return all([one.holds(state) for one in self.of])

    def facts(self, state: State) -> Facts:
        """The subject's."""
        return {name: text for one in self.of for name, text in one.facts(state).items()}

    @property
    def subject(self) -> str:
        """The job or node."""
        return self.of[0].subject

    @property
    def job_uid(self) -> str:
        """The job's."""
        return self.of[0].job_uid


# --- jobs ----------------------------------------------------------------------------------------------------


class FirstSeen(msgspec.Struct, frozen=True):
    """A job as it was first seen, the offset of that, 0 where it was there already, and the first offset of the entry
    in which it was gone, 0 while it is there."""

    seen: k.JobSeen
    came: int
    went: int = 0


class Namesakes:
    """Reads on, folding nothing, and keeps the jobs of a name, `name` or `namespace/name`. Each is a job of its own:
    who asks by the name means the newest."""

    def __init__(self, wanted: str, state: State) -> None:
        self._namespace, _, self._name = wanted.rpartition("/")
        #: By UID, in the order in which they came.
        self._jobs: dict[str, FirstSeen] = {}
        for job in sorted(state.jobs.values(), key=lambda job: (not job.seen.deleting, job.seen.created_ms, job.uid)):
            self._note(job.seen, 0)

    def feed(self, entry: Entry) -> None:
        """Take in one entry. Raises `UsageError` when two namespaces have a job of that name."""
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if type(event) is k.JobSeen:
                self._note(event, offset)
            elif type(event) is k.JobGone and event.uid in self._jobs:
                self._jobs[event.uid] = msgspec.structs.replace(self._jobs[event.uid], went=entry.first)

    @property
    def all(self) -> tuple[FirstSeen, ...]:
        """All jobs of that name, the newest last."""
        return tuple(self._jobs.values())

    def _note(self, seen: k.JobSeen, offset: int) -> None:
        if seen.name != self._name or self._namespace not in ("", seen.namespace) or seen.uid in self._jobs:
            return
        self._jobs[seen.uid] = FirstSeen(seen, offset)
        namespaces = sorted({job.seen.namespace for job in self._jobs.values()})
        if len(namespaces) > 1:
            places = ", ".join(f"{namespace}/{self._name}" for namespace in namespaces)
            raise UsageError(f"there are several jobs {self._name!r}: {places}", hint="say which as NAMESPACE/NAME")


class JobIs(Condition):
    """That a job is there and is as `test` says."""

    def __init__(self, job: k.JobSeen, text: str, test: Callable[[JobRecord], bool]) -> None:
        self._job = job
        self._test = test
        self._text = text

    @property
    def text(self) -> str:
        """What it is about and what is asked."""
        return f"{self.subject} {self._text}"

    def holds(self, state: State) -> bool:
        """By what the state says."""
        job = state.jobs.get(self._job.uid)
        return job is not None and self._test(job)

    def facts(self, state: State) -> Facts:
        """The subject's."""
        return facts_of_job(state, self._job.uid)

    @property
    def subject(self) -> str:
        """The job or node."""
        return f"job {self._job.namespace}/{self._job.name}"

    @property
    def job_uid(self) -> str:
        """The job's."""
        return self._job.uid


def in_stage(job: k.JobSeen, stage: str) -> Condition:
    """The job's stage is this one."""
    return JobIs(job, f"is {stage}", lambda job: job.stage == stage)


def in_schedule_state(job: k.JobSeen, schedule_state: str) -> Condition:
    """The job's schedule state is this one."""
    return JobIs(job, f"is {schedule_state}", lambda job: job.schedule_state == schedule_state)


def waits(job: k.JobSeen, reason: str = "") -> Condition:
    """A cycle said why the job, or the rest of it, waits, and it still does; the reason holds this text."""
    sought = reason.lower()

    def test(job: JobRecord) -> bool:
        if job.waits is None or job.ended or len(job.placements) >= job.pods_wanted():
            return False
        return not sought or sought in job.waits.message.lower()

    return JobIs(job, f"waits because of {reason!r}" if reason else "waits", test)


def placed(job: k.JobSeen) -> Condition:
    """The job's quorum has nodes."""
    return JobIs(job, "has nodes for its quorum", JobRecord.quorum_placed)


class Hopeless(JobIs):
    """A cycle said that not even an empty cluster could hold the job's quorum, and nothing has changed that."""

    def __init__(self, job: k.JobSeen) -> None:
        super().__init__(job, "is infeasible", lambda job: job.waits is not None and job.waits.infeasible)

    def means_something(self, state: State) -> bool:
        """Until the job has ended."""
        job = state.jobs.get(self._job.uid)
        return job is not None and not job.ended


def there(job: k.JobSeen) -> Condition:
    """The job is there."""
    return JobIs(job, "is there", lambda job: True)


def facts_of_job(state: State, uid: str) -> Facts:
    """What a state says of a job."""
    job = state.jobs.get(uid)
    if job is None:
        return {"job": "not there"}
    facts = {
        "stage": str(job.stage),
        "schedule": str(job.schedule_state),
        "pods": f"{len(job.placements)} of {job.pods_wanted()} have nodes",
        "attempt": str(job.attempt),
    }
    if job.spec is not None:
        facts["spec"] = f"priority {job.spec.priority}, quorum of the leader and {job.spec.min_workers} workers"
        facts["spec"] += ", suspended" if job.spec.suspend else ""
    if job.waits is not None and len(job.placements) < job.pods_wanted():
        facts["waits"] = job.waits.message
    return facts


# --- nodes ---------------------------------------------------------------------------------------------------


class NodeIs(Condition):
    """That a node is there (or held by pods) and its row in the table is as `test` says."""

    def __init__(self, name: str, text: str, test: Callable[[State, int], bool]) -> None:
        self._name = name
        self._test = test
        self._text = text

    @property
    def text(self) -> str:
        """What it is about and what is asked."""
        return f"node {self._name} {self._text}"

    def holds(self, state: State) -> bool:
        """By what the state says."""
        row = state.nodes.rows.get(self._name)
        return row is not None and state.nodes.present(row) and self._test(state, row)

    def facts(self, state: State) -> Facts:
        """The subject's."""
        return facts_of_node(state, self._name)

    @property
    def subject(self) -> str:
        """The job or node."""
        return f"node {self._name}"


def cordoned(node: str) -> Condition:
    """The node is cordoned."""
    return NodeIs(node, "is cordoned", lambda state, row: state.nodes.facts[row].cordoned)


def not_ready(node: str) -> Condition:
    """The node is there and not ready."""
    return NodeIs(node, "is not ready", lambda state, row: not state.nodes.facts[row].ready)


def tainted(node: str, key: str = "") -> Condition:
    """The node has a taint, of this key if one is given."""
    text = f"has a taint {key}" if key else "has a taint"
    return NodeIs(node, text, lambda state, row: any(key in ("", taint.key) for taint in state.nodes.facts[row].taints))


def node_there(node: str) -> Condition:
    """The node is there."""
    return NodeIs(node, "is there", lambda state, row: True)


def free(node: str, resource: str, sign: str, wanted: int) -> Condition:
    """What is free of a resource on the node, in its unit, compares so; `*/gpu` is every resource that ends so."""
    compare = COMPARISONS[sign]

    def test(state: State, row: int) -> bool:
        amounts = state.nodes.amounts(row).items()
        return compare(sum(there_is - used for name, (used, there_is) in amounts if _is(name, resource)), wanted)

    return NodeIs(node, f"has {resource} free {sign} {amount(resource, wanted)}", test)


def _is(name: str, resource: str) -> bool:
    return name.endswith("/gpu") if resource == "*/gpu" else name == resource


def facts_of_node(state: State, name: str) -> Facts:
    """What a state says of a node."""
    nodes = state.nodes
    row = nodes.rows.get(name)
    if row is None or not nodes.present(row):
        return {"node": "not there"}
    of_node = nodes.facts[row]
    health = "ready" if of_node.ready else "not ready"
    facts = {"health": health + (", cordoned" if of_node.cordoned else "")}
    facts["taints"] = (
        ", ".join(f"{t.key}{'=' if t.value else ''}{t.value}:{t.effect}" for t in of_node.taints) or "none"
    )
    for resource, (used, there_is) in nodes.amounts(row).items():
        facts[f"{resource} free"] = f"{amount(resource, max(there_is - used, 0))} of {amount(resource, there_is)}"
    return facts


# --- what a cycle would do -----------------------------------------------------------------------------------


class Prospect(msgspec.Struct, frozen=True):
    """A job that is asked about at any time: before it came, as it was when it was first seen."""

    first: k.JobSeen
    policies: Policies = BUILT_IN

    @property
    def name(self) -> str:
        """The job as people name it."""
        return f"{self.first.namespace}/{self.first.name}"

    def job(self, state: State) -> JobRecord:
        """The job in this state, or as it would be had it just come."""
        return state.jobs.get(self.first.uid) or JobRecord(self.first, self.first.spec, 0)


class _Configured(Condition):
    """A condition that takes cycles: by the configuration of the last one recorded."""

    def __init__(self, prospect: Prospect, config: CycleConfig | None) -> None:
        self._prospect = prospect
        self._recorded = config or CycleConfig()
        self._usable()

    def note(self, entry: Entry) -> None:
        """The configuration, where it changed."""
        for event in entry.batch.events:
            if type(event) is k.CycleTaken and event.config != self._recorded:
                self._recorded = event.config
                self._usable()

    def _usable(self) -> None:
        policies = self._prospect.policies
        self._policies = policies if policies.missing(self._recorded) else policies.recorded(self._recorded)
        self._config = self._policies.usable(self._recorded)

    def means_something(self, state: State) -> bool:
        """Once everything has been listed, because nobody knows of room before that, and until the job has ended: it
        needs none then."""
        return state.synced and not self._prospect.job(state).ended

    def facts(self, state: State) -> Facts:
        """The subject's."""
        job = self._prospect.job(state)
        facts = facts_of_job(state, job.uid)
        if job.spec is None or job.ended or job.quorum_placed():
            return facts
        attempt = Placer(state, self._config, self._policies).quorum(job)
        shortage = attempt.shortage
        facts["its quorum alone"] = (
            describe_shortage(job.spec.groups[shortage.group].name, shortage, whole=True)
            if shortage is not None
            else "finds room"
        )
        if job.uid in state.jobs:
            facts["ahead in the queue"] = _ahead(state, job, self._config, self._policies)
        return facts

    @property
    def subject(self) -> str:
        """The job or node."""
        return f"job {self._prospect.name}"

    @property
    def job_uid(self) -> str:
        """The job's."""
        return self._prospect.first.uid


class FindsRoom(_Configured):
    """That a job's quorum would find room if nobody went before it. Holds too where it has its nodes.

    What it depends on is compared, not counted: most events move nothing for good.
    """

    def __init__(self, prospect: Prospect, config: CycleConfig | None = None) -> None:
        super().__init__(prospect, config)
        self._used: Amounts = np.zeros((0, 0), np.int64)
        self._changes = -1
        self._asked: tuple[Any, ...] = ()
        self._answer = False
        self._bounds = _Bounds()
        #: How often it was asked anew: an equal number means that room has not changed.
        self.times = 0

    @property
    def text(self) -> str:
        """That there is room."""
        return f"the quorum of {self._prospect.name} finds room"

    @property
    def denied(self) -> str:
        """That there is none."""
        return f"the quorum of {self._prospect.name} finds no room"

    def holds(self, state: State) -> bool:
        """By what the state says."""
        job = self._prospect.job(state)
        if job.quorum_placed():
            return True
        if job.spec is None or job.ended or not state.synced:
            return False
        if not self._known(state, job):
            self.times += 1
            sure = self._bounds.answer(state, job, self._config, self._policies)
            self._answer = Placer(state, self._config, self._policies).fits(job) if sure is None else sure
        return self._answer

    def _known(self, state: State, job: JobRecord) -> bool:
        """Whether nothing has changed since the last answer that it depends on."""
        nodes = state.nodes
        asked = (
            nodes.facts_version,
            self._config,
            job.spec,
            len(job.placements),
            job.attempt,
            state.told_ms if job.refusals else 0,
            state.job_changes if _heeds_others(state, job) else 0,
        )
        known = asked == self._asked
        if nodes.changes != self._changes or not known:
            known &= np.array_equal(nodes.used, self._used)
            if not known:
                self._used = nodes.used.copy()
            self._changes = nodes.changes
        self._asked = asked
        return known


class _Bounds:
    """Says at once that a quorum surely finds room, or surely doesn't, where only resources decide: counts of pods a
    node, kept while no node's facts change. What lies between is a cycle's to say."""

    def __init__(self) -> None:
        self._asked: tuple[Any, ...] = ()
        self._masks: list[Mask] = []

    def answer(self, state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> bool | None:
        """Whether the quorum finds room; None if that isn't plain to see."""
        policy, nodes = pod_policy(job, config, policies), state.nodes
        if job.refusals or job.placements or job.given_up or _heeds_others(state, job):
            return None
        if policy.name not in BUILT_IN.pod or job.spec is None:
            return None  # another package's policy may leave room unused
        groups = job.spec.groups
        asked = (nodes.facts_version, job.spec, policies)
        if asked != self._asked:
            filters = Filters(ClusterView(nodes), policies.filters)
            self._asked, self._masks = asked, [filters.static(group.shape) for group in groups]
        vectors = [nodes.vector(group.shape.requests) for group in groups]
        free = nodes.free()[nodes.by_name()]
        rooms = [int((_pods(free, vector) * mask).sum()) for vector, mask in zip(vectors, self._masks, strict=True)]
        workers = job.spec.total_workers if policy.whole else job.spec.min_workers
        possible = sum(min(group.count, room) for group, room in zip(groups[1:], rooms[1:], strict=True))
        if not rooms[LEADER_GROUP] or possible < workers:
            return False
        # Every pod takes at most the place of one that is as large as the largest in every resource.
        everywhere = np.logical_and.reduce(self._masks)
        surely = int((_pods(free, np.maximum.reduce(vectors)) * everywhere).sum())
        return True if surely >= 1 + workers else None


def _pods(free: Amounts, vector: Amounts) -> Amounts:
    """How many pods of these amounts each row takes."""
    columns = np.flatnonzero(vector)
    found: Amounts = (np.maximum(free[:, columns], 0) // vector[columns]).min(axis=1)
    return found


class WouldBePlaced(_Configured):
    """That a cycle would place a job's quorum: it finds room, and does so after those before it in the queue."""

    def __init__(self, prospect: Prospect, room: FindsRoom, config: CycleConfig | None = None) -> None:
        super().__init__(prospect, config)
        self._room = room
        self._asked: tuple[Any, ...] = ()
        self._answer = False

    @property
    def text(self) -> str:
        """That it gets its nodes."""
        return f"a cycle would place the quorum of {self._prospect.name}"

    @property
    def denied(self) -> str:
        """That it gets none."""
        return f"a cycle wouldn't place the quorum of {self._prospect.name}"

    def note(self, entry: Entry) -> None:
        """The configuration, where it changed."""
        super().note(entry)
        self._room.note(entry)

    def holds(self, state: State) -> bool:
        """By what the state says."""
        job = self._prospect.job(state)
        if job.quorum_placed():
            return True
        if not self._room.holds(state):
            return False
        waiting = queue.waiting(state, state.told_ms)
        others = [(one.uid, one.version) for one in waiting if one.uid != job.uid]
        if job.uid in state.jobs and len(others) == len(waiting):
            return False  # no cycle looks at it
        if not others and job.active and not job.stands_still:
            return True
        asked = (self._room.times, others, self._config, state.job_changes if _heeds_others(state, job) else 0)
        if asked != self._asked:
            self._asked = asked
            self._answer = self._in_turn(state, job)
        return self._answer

    def _in_turn(self, state: State, job: JobRecord) -> bool:
        only_for_now = job.uid not in state.jobs
        if only_for_now:
            state.jobs[job.uid] = job
        try:
            attempt = turn_of(state, job.uid, self._config, state.told_ms, policies=self._policies)
        finally:
            if only_for_now:
                del state.jobs[job.uid]
        return attempt is not None and attempt.quorum_stands


def _heeds_others(state: State, job: JobRecord) -> bool:
    """Whether other pods have a say in where the job's may go, or quotas in whether they, or those before them, may."""
    groups = job.spec.groups if job.spec is not None else ()
    return bool(state.repelling or state.quotas) or any(group.shape.rules is not None for group in groups)


def _ahead(state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> str:
    order = queue.in_order(state, config, policies)
    names = [label(other) for other in order]
    place = next((at for at, other in enumerate(order) if other.uid == job.uid), None)
    if place is None:
        return "it isn't in the queue"
    shown = ", ".join(names[:3]) + (f" and {place - 3} more" if place > 3 else "")
    return shown if place and place > 3 else ", ".join(names[:place]) or "nobody"
