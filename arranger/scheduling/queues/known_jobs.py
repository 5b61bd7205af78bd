"""What each job with nodes uses and would lose, whoever asks for its room. It is kept from one cycle to the next.

A search for room looks at every job that runs, and few of them change between two searches. What depends on one job
alone is therefore found once, and again only if the job or one of its pods has changed. A job's slots change only with
its version or with what is seen of its pods.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from arranger.model.job import Stage
from arranger.projections.cluster.nodes import Amounts, NodeTable
from arranger.projections.derived.deadlines import overdue
from arranger.projections.derived.departing import ends_by_itself
from arranger.projections.derived.queue_counts import queue_of, sum_of
from arranger.projections.derived.work_at_risk import lost_since, newest_checkpoint_ms, working
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.view import Levels, Rows, add_to
from arranger.scheduling.queues.fair_shares import ByResource

_BEGUN = (Stage.STARTING, Stage.RUNNING)
#: Pods that lose their nodes together, one such unit after the other.
Units = tuple[tuple[SlotKey, ...], ...]


class Spare(NamedTuple):
    """What a job can spare if it keeps all that it has elsewhere: node → units there that its quorum doesn't need then;
    and the nodes where these are more than its surplus there."""

    units: Mapping[str, Units]
    more: tuple[str, ...]


class RowRooms(NamedTuple):
    """Rows of the view, each once, with amounts: rows × resources."""

    rows: Rows
    amounts: Amounts

    @classmethod
    def of(cls, rooms: dict[int, Amounts]) -> "RowRooms":
        """As arrays, which are quickly put together."""
        amounts = [*rooms.values()]
        return cls(np.array([*rooms], np.int64), np.array(amounts) if amounts else np.zeros((0, 0), np.int64))


class KnownPart:
    """Some slots of a job. Most of what is known of them is found when somebody first needs it."""

    def __init__(self, state: State, job: JobRecord, slots: tuple[SlotKey, ...]) -> None:
        self._state = state
        self._job = job
        self.slots = slots
        #: The room that their pods use, once somebody has found it.
        self.rooms: RowRooms | None = None

    @cached_property
    def amounts(self) -> ByResource:
        """What they request together."""
        return sum_of(self._job, self.slots)

    @cached_property
    def working(self) -> dict[int, int]:
        """The GPUs of those of their pods that have work to lose, by when these started."""
        return working(self._state, self._job, self.slots)


class KnownJob:
    """One job as it is now. Times are in milliseconds since 1970."""

    def __init__(self, state: State, job: JobRecord, content: tuple[Any, ...], queue: str, time_ms: int) -> None:
        self._state = state
        self.job = job
        #: What changes whenever something changes that the rest follows from, and when that was last compared.
        self.content = content
        self.turn = 0
        self.queue = queue
        self.began_ms, self.room_since_ms = job.began_ms, job.room_since_ms
        #: Whether it gives up its nodes by itself.
        self.ends = ends_by_itself(state, job, time_ms)
        #: Whether it may give room at all, once it has run for long enough.
        begun = job.stage in _BEGUN or job.awaits_room
        self.may_give = begun and not self.ends and job.valid_spec.preemptible
        #: The units above the quorum, once somebody has found them.
        self.surplus: Units | None = None
        #: The same for what it can spare on each node.
        self.spare: Spare | None = None
        self._parts: dict[tuple[SlotKey, ...], KnownPart] = {}

    @cached_property
    def slots(self) -> tuple[SlotKey, ...]:
        """Its slots with nodes, in order."""
        return tuple(sorted(self.job.placements))

    @cached_property
    def _safe_ms(self) -> int:
        """Work that was done before this time isn't lost."""
        return max(self.began_ms, newest_checkpoint_ms(self._state, self.job))

    @cached_property
    def whole(self) -> KnownPart:
        """What is known of all its slots with nodes."""
        return KnownPart(self._state, self.job, self.slots)

    def part(self, slots: tuple[SlotKey, ...]) -> KnownPart:
        """What is known of some of its slots with nodes."""
        if len(slots) == len(self.job.slots.nodes):
            return self.whole
        found = self._parts.get(slots)
        if found is None:
            found = self._parts[slots] = KnownPart(self._state, self.job, slots)
        return found

    def lost_ms(self, part: KnownPart, time_ms: int) -> int:
        """GPU-milliseconds of work that would be lost with some of its slots at this time, as in `work_at_risk`."""
        return lost_since(part.working, self._safe_ms, time_ms)


class KnownJobs:
    """The jobs that were looked at, by UID. A job is compared with what is known of it once in each turn, when somebody
    first asks for it."""

    def __init__(self) -> None:
        self._jobs: dict[str, KnownJob] = {}
        self._state: State | None = None
        #: What all of them follow from beside their own content.
        self._nodes: NodeTable | None = None
        self._facts: tuple[object, int] = (None, 0)
        self._turn = 0
        self._time_ms = 0
        #: Jobs with what all their pods use, and the sum of that: nodes × resources.
        self._summed: tuple[dict[KnownJob, RowRooms], Levels] | None = None

    def renew(self, state: State, time_ms: int) -> None:
        """A turn begins at this time: jobs may have changed since the last one."""
        nodes = state.nodes
        facts = (nodes.names_version, len(nodes.columns))
        same = nodes is self._nodes and facts[0] is self._facts[0] and facts[1:] == self._facts[1:]
        if not same or state is not self._state:
            self._jobs, self._summed = {}, None
        elif len(self._jobs) > 2 * len(state.jobs):
            self._jobs = {uid: known for uid, known in self._jobs.items() if uid in state.jobs}
        self._state, self._nodes, self._facts = state, nodes, facts
        self._turn += 1
        self._time_ms = time_ms

    def of(self, job: JobRecord) -> KnownJob:
        """What is known of a job."""
        known = self._jobs.get(job.seen.uid)
        if known is not None and known.turn == self._turn and known.job is job:
            return known
        state = self._state
        assert state is not None, "a turn has begun"
        queue = queue_of(state, job)
        limited = job.spec is not None and job.spec.deadline_s is not None
        over = limited and overdue(job, self._time_ms)
        content = (job.seen, job.spec, job.version, job.stage, job.began_ms, queue, job.slots.pod_changes, over)
        if known is None or known.job is not job or known.content != content:
            known = self._jobs[job.seen.uid] = KnownJob(state, job, content, queue, self._time_ms)
        known.turn = self._turn
        return known

    def sum_of(self, jobs: Iterable[KnownJob], size: tuple[int, int], rooms: Callable[[KnownJob], RowRooms]) -> Levels:
        """What all pods of these jobs use together, by row of the view and resource, as many as `size` says. Only that
        is added and taken away in which it differs from the last time: `rooms` may find something else for the same job
        once one of its pods hangs. Don't modify it."""
        now = {of: rooms(of) for of in jobs}
        before, levels = self._summed if self._summed is not None else ({}, np.zeros(size))
        gone = [had for of, had in before.items() if now.get(of) is not had]
        new = [has for of, has in now.items() if before.get(of) is not has]
        for parts, sign in ((gone, -1), (new, 1)):
            found = [each for each in parts if len(each.rows)]
            if found:
                rows, amounts = np.concatenate([of.rows for of in found]), np.concatenate([of.amounts for of in found])
                add_to(levels, rows, amounts, sign)
        self._summed = (now, levels)
        return levels
