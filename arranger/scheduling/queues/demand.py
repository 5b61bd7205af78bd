"""What waiting jobs demand for their queues: nothing if limits keep them from nodes whatever others give, and of what
can't be preempted no more than a queue lets such jobs use.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from arranger.events.facts import BeyondLimit
from arranger.projections.derived.queue_counts import least_requested, queue_of
from arranger.projections.derived.queue_membership import counted_priority
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import non_preemptible_amounts, resource_of
from arranger.projections.state import State
from arranger.scheduling.queues.fair_shares import ByResource
from arranger.scheduling.queues.policies import seniority


def beyond_limits(state: State, jobs: Iterable[JobRecord]) -> dict[str, None]:
    """UID → the waiting jobs that limits keep from nodes whatever others give: those that not even an empty cluster,
    queue or namespace could hold, as the last cycles found, and those beyond the `maxRunning` of a queue on their way,
    or beyond what it lets jobs use that can't be preempted, the most junior ones. If they counted as demand, others
    would have less for it, and nobody more."""
    waiting = [job for job in jobs if not job.placements]
    never = {job.uid: None for job in waiting if never_fits(job)}
    return never | _beyond_queues(state, [job for job in waiting if job.uid not in never])


def _beyond_queues(state: State, waiting: list[JobRecord]) -> dict[str, None]:
    """Those that have no place beside running jobs of at least their priority: others of the queue may give theirs, but
    for those that can't be preempted."""
    tree, found, non_preemptible = state.queue_tree, dict[str, None](), NonPreemptibleLeft(state)
    most = {name: spec.max_running for name, spec in tree.specs.items() if spec.max_running is not None}
    if not most and not non_preemptible.limits:
        return found
    running = _priorities_running(state, most)
    for job in sorted(waiting, key=seniority):  # no priority is lower than the next one
        limited = [name for name in tree.paths.get(queue_of(state, job), ()) if name in most]
        full = any(_at_least(running[name], job.valid_spec.priority) >= most[name] for name in limited)
        if full or not non_preemptible.takes(job):
            found[job.uid] = None
        else:
            most.update({name: most[name] - 1 for name in limited})
    return found


class NonPreemptibleLeft:
    """What queues leave of what their jobs may use that can't be preempted. These keep it, whoever asks."""

    def __init__(self, state: State) -> None:
        self._state = state
        specs = state.queue_tree.specs if state.queue_use.non_preemptible is not None else {}
        limited = {name: spec.most_non_preemptible for name, spec in specs.items()}
        #: Queue → resource → amount; maybe less than 0.
        self._left = {name: _left_of(state.queue_totals.get(name, {}), most) for name, most in limited.items() if most}

    @property
    def limits(self) -> bool:
        """Whether some queue limits it."""
        return bool(self._left)

    def limited(self, jobs: Iterable[JobRecord]) -> dict[str, None]:
        """UID → those of these jobs that a queue on their way limits."""
        return {job.uid: None for job in jobs if self._of(job)} if self._left else {}

    def takes(self, job: JobRecord) -> bool:
        """Whether enough is left for the smallest quorum of a job, which then has it; it is, for what goes on."""
        of_way = self._of(job) if self._left and not job.slots.finished else []
        needs = {name: of for name, of in least_requested(job.valid_spec).items() if of} if of_way else {}
        fits = all(amount <= left.get(name, amount) for left in of_way for name, amount in needs.items())
        if fits:
            self.take(job, needs)
        return fits

    def take(self, job: JobRecord, amounts: dict[str, int]) -> dict[str, int]:
        """As much of these amounts as is left, which the job then has."""
        of_way, taken = self._of(job) if self._left else [], amounts
        for left in of_way:
            taken = {name: min(amount, max(left.get(name, amount), 0)) for name, amount in taken.items()}
        for left in of_way:
            left.update({name: left[name] - amount for name, amount in taken.items() if name in left})
        return taken

    def _of(self, job: JobRecord) -> list[dict[str, int]]:
        way = self._state.queue_tree.paths.get(queue_of(self._state, job), ()) if not job.valid_spec.preemptible else ()
        return [self._left[name] for name in way if name in self._left]


def _left_of(used: ByResource, most: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {resource_of(name): amount - used.get(name, 0) for name, amount in non_preemptible_amounts(most)}


def _priorities_running(state: State, names: Iterable[str]) -> dict[str, list[int]]:
    """Queue → the priorities of the jobs with nodes in it and below it, in ascending order."""
    found: dict[str, list[int]] = {name: [] for name in names}
    for job in state.jobs.values():
        for name in state.queue_tree.paths.get(queue_of(state, job), ()) if job.placements else ():
            if name in found:
                found[name].append(counted_priority(state, job))
    return {name: sorted(of) for name, of in found.items()}


def _at_least(priorities: Sequence[int], least: int) -> int:
    """How many of these priorities, in ascending order, are no lower."""
    return len(priorities) - bisect_left(priorities, least)


def never_fits(job: JobRecord) -> bool:
    """Whether not even an empty cluster, queue or namespace could hold a job, as the last cycles found."""
    shortage = job.waits.shortage if job.waits is not None else None
    if isinstance(shortage, BeyondLimit):
        return shortage.quota.never
    return shortage is not None and shortage.infeasible
