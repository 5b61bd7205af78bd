"""Conditions on a cycle's result: whether a job's quorum fits alone, and whether the job gets nodes in its turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.text import few
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.derived import job_indexes
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.bisect.conditions import Condition, Facts
from arranger.replay.bisect.job_conditions import facts_of_job
from arranger.replay.reading.describe import label
from arranger.scheduling import (
    BUILT_IN,
    Policies,
    QuorumAlone,
    facts_of,
    heeds_others,
    in_order,
    place_alone,
    turn_of,
    waiting_jobs,
)


class QuorumFits(Condition):
    """Holds where a job's quorum would fit if no job came before it, or where the quorum already has nodes. Its cycles
    use the configuration of the last recorded cycle. Before the job's creation, the job is taken as it was when `first`
    seen.

    The inputs are compared by value, not by change count, because most changes leave the amounts equal in the end.
    """

    def __init__(self, first: k.JobSeen, config: CycleConfig, policies: Policies = BUILT_IN) -> None:
        """`config` has the settings of the last cycle before the search."""
        self.name = f"{first.namespace}/{first.name}"
        text, denied = f"the quorum of {self.name} fits", f"the quorum of {self.name} doesn't fit"
        super().__init__(text, subject=f"job {self.name}", job_uid=first.uid, denied=denied)
        self._first = first
        self._installed = policies
        self._recorded = config
        self._usable()
        self._used: Amounts = np.zeros((0, 0), np.int64)
        self._changes = -1
        self._asked: tuple[Any, ...] = ()
        self._answer = False
        self._alone = QuorumAlone()
        #: The number of evaluations: an equal number means that no input has changed.
        self.times = 0

    def note(self, entry: Entry) -> None:
        for event in entry.batch.events:
            if type(event) is k.CycleTaken and event.config != self._recorded:
                self._recorded = event.config
                self._usable()

    def job(self, state: State) -> JobRecord:
        """The job in this state, or as a new job if the state doesn't have it."""
        return state.jobs.get(self.job_uid) or JobRecord(self._first, self._first.spec, 0)

    def _usable(self) -> None:
        self.policies = self._installed.closest(self._recorded)
        self.config = self.policies.usable(self._recorded)

    def means_something(self, state: State) -> bool:
        """From the end of the listings, because room is unknown before, to the job's end, because it needs none
        then."""
        return state.synced and not self.job(state).ended

    def facts(self, state: State) -> Facts:
        job = self.job(state)
        facts = facts_of_job(state, job.uid)
        if job.spec is None or job.ended or job.quorum_placed():
            return facts
        with _there(state, job):
            tried = place_alone(state, job, self.config, self.policies)
        facts["its quorum alone"] = (
            shortage_text(facts_of(tried, tried.shortage)) if tried.shortage is not None else "fits"
        )
        if job.uid in state.jobs:
            facts["ahead in the queue"] = _ahead(state, job, self.config, self.policies)
        return facts

    def holds(self, state: State) -> bool:
        job = self.job(state)
        if job.quorum_placed():
            return True
        if job.spec is None or job.ended or not state.synced:
            return False
        if not self._known(state, job):
            self.times += 1
            with _there(state, job):
                self._answer = self._alone.fits(state, job, self.config, self.policies)
        return self._answer

    def _known(self, state: State, job: JobRecord) -> bool:
        """Whether all inputs are the same as in the last evaluation."""
        nodes = state.nodes
        asked = (
            nodes.facts_version,
            self.config,
            job.spec,
            len(job.placements),
            job.attempt,
            state.time_ms if job.avoids else 0,
            state.scheduling_changes if heeds_others(state, job) else 0,
        )
        known = asked == self._asked
        if nodes.changes != self._changes or not known:
            known &= np.array_equal(nodes.used, self._used)
            if not known:
                self._used = nodes.used.copy()
            self._changes = nodes.changes
        self._asked = asked
        return known


class WouldBePlaced(Condition):
    """Holds where a cycle would place a job's quorum: it fits even after the jobs before it in the queue."""

    def __init__(self, room: QuorumFits) -> None:
        quorum = f"the quorum of {room.name}"
        text, denied = f"a cycle would place {quorum}", f"a cycle wouldn't place {quorum}"
        super().__init__(text, subject=room.subject, job_uid=room.job_uid, denied=denied, of=[room])
        self._room = room
        self._asked: tuple[Any, ...] = ()
        self._answer = False

    def holds(self, state: State) -> bool:
        job = self._room.job(state)
        if job.quorum_placed():
            return True
        if not self._room.holds(state):
            return False
        waiting = waiting_jobs(state, state.time_ms)
        others = [(one.uid, one.version) for one in waiting if one.uid != job.uid]
        if job.uid in state.jobs and len(others) == len(waiting):
            return False  # it isn't in the queue
        if not others and job.active and not job.stands_still:
            return True
        asked = (
            self._room.times,
            others,
            self._room.config,
            state.scheduling_changes if heeds_others(state, job) else 0,
        )
        if asked != self._asked:
            self._asked = asked
            self._answer = self._in_turn(state, job)
        return self._answer

    def _in_turn(self, state: State, job: JobRecord) -> bool:
        with _there(state, job):
            tried = turn_of(state, job.uid, self._room.config, state.time_ms, policies=self._room.policies)
        return tried is not None and tried.quorum_stands


@contextmanager
def _there(state: State, job: JobRecord) -> Iterator[None]:
    """Have the job in a state from before it came, inside a `with` block: its rules about other pods count."""
    if job.uid in state.jobs:
        yield
        return
    state.jobs[job.uid] = job
    job_indexes.enter(state, job)
    try:
        yield
    finally:
        job_indexes.leave(state, job)
        del state.jobs[job.uid]


def _ahead(state: State, job: JobRecord, config: CycleConfig, policies: Policies) -> str:
    order = in_order(state, config, policies)
    position = next((at for at, other in enumerate(order) if other.uid == job.uid), None)
    if position is None:
        return "it isn't in the queue"
    return few([label(other) for other in order[:position]], 3) or "nobody"
