"""Which jobs lack nodes, kept from one cycle to the next: most of thousands of jobs have all of theirs, or wait as
before, and a cycle doesn't look at those again."""

from collections.abc import Iterable

from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.room.infeasible_jobs import InfeasibleJobs

#: After so many changes that no cycle has asked for, the next one looks at all jobs.
_MOST = 20_000


class ShortJobs:
    """The jobs of one state that lack nodes, as far as somebody tells which jobs change."""

    def __init__(self, *, told: bool = False) -> None:
        """`told`: whether somebody surely tells of changes, from the beginning on."""
        self._state: State | None = None
        self._told = told
        #: UID → jobs that lack nodes, and those that have changed since that was looked at.
        self._short: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        #: Those of them that are not left out.
        self._tried: dict[str, None] = {}
        self._left_out: InfeasibleJobs | None = None

    def note(self, changed: Iterable[str]) -> None:
        """These jobs (UIDs) have changed, are new, or are gone. Whoever tells of some must tell of all of them."""
        self._told = True
        self._changed.update(dict.fromkeys(changed))
        if len(self._changed) > _MOST:  # e.g. in a process that leaves cycles to others
            self._state, self._changed = None, {}

    def of(self, state: State, left_out: InfeasibleJobs | None = None) -> list[JobRecord] | None:
        """The jobs that lack nodes, without those that are left out; None if nobody tells which ones change."""
        if not self._told:
            return None
        if state is not self._state:
            self._state, self._short, self._tried, self._changed = state, {}, {}, dict.fromkeys(state.jobs)
            self._left_out = None
        for uid in self._changed:
            job = state.jobs.get(uid)
            if job is not None and not job.ended and len(job.placements) < job.pods_desired():
                self._short[uid] = self._tried[uid] = None
            else:
                self._short.pop(uid, None)
                self._tried.pop(uid, None)
        self._changed = {}
        if left_out is not None:
            self._leave_out(left_out)
        uids = self._short if left_out is None else self._tried
        return [state.jobs[uid] for uid in uids if uid in state.jobs]

    def _leave_out(self, left_out: InfeasibleJobs) -> None:
        """Leave these out, and no others."""
        moved = left_out.moved()
        if left_out is not self._left_out:
            self._left_out, self._tried = left_out, dict(self._short)
            moved = left_out.uids
        for uid in moved:
            if uid in left_out.uids:
                self._tried.pop(uid, None)
            elif uid in self._short:
                self._tried[uid] = None
