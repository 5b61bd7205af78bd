"""Which jobs lack nodes, kept from one cycle to the next: most of thousands of jobs have all of theirs, or wait as
before, and a cycle doesn't look at those again."""

from collections.abc import Container, Iterable

from arranger.projections.jobs import JobRecord
from arranger.projections.state import State

#: After so many changes that no cycle has asked for, the next one looks at all jobs.
_MOST = 20_000


class ShortJobs:
    """The jobs of one state that lack nodes, as far as somebody tells which jobs change."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._told = False
        #: UID → jobs that lack nodes, and those that have changed since that was looked at.
        self._short: dict[str, None] = {}
        self._changed: dict[str, None] = {}

    def note(self, changed: Iterable[str]) -> None:
        """These jobs (UIDs) have changed, are new, or are gone. Whoever tells of some must tell of all of them."""
        self._told = True
        self._changed.update(dict.fromkeys(changed))
        if len(self._changed) > _MOST:  # e.g. in a process that leaves cycles to others
            self._state, self._changed = None, {}

    def of(self, state: State, without: Container[str] = ()) -> list[JobRecord] | None:
        """The jobs that lack nodes, except for some; None if nobody tells which ones change."""
        if not self._told:
            return None
        if state is not self._state:
            self._state, self._short, self._changed = state, {}, dict.fromkeys(state.jobs)
        for uid in self._changed:
            job = state.jobs.get(uid)
            if job is not None and not job.ended and len(job.placements) < job.pods_desired():
                self._short[uid] = None
            else:
                self._short.pop(uid, None)
        self._changed = {}
        return [state.jobs[uid] for uid in self._short if uid not in without and uid in state.jobs]
