"""Raised limits that are enough for jobs ahead too, which would take what the job itself lacks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps
from arranger.replay.reading.describe import placed_in
from arranger.replay.what_if import hypothesis
from arranger.scheduling import take_cycle


def for_others_too(
    case: WaitingCase, others: Sequence[JobRecord], raised: Callable[[Sequence[JobRecord]], Change | None]
) -> Change | None:
    """What `raised` makes of some of the jobs ahead, for all of them. It is enough to raise a limit for those that then
    get nodes, for the fewest of them, the first of `others` first: some may never start, whatever is raised. None if it
    raises nothing."""

    def told(some: Sequence[JobRecord]) -> Change | None:
        change = raised(some)
        ahead = "a job" if len(some) == 1 else f"{len(some)} jobs"
        return replace(change, text=f"{change.text}, for {ahead} ahead of it too") if change is not None else None

    whole = told(others) if others else None
    if whole is None:
        return None

    @cache
    def served() -> Sequence[JobRecord]:
        then = hypothesis.supposed(case.state, whole.events)
        placed = map(placed_in, take_cycle(then, case.config, case.state.time_ms, policies=case.policies))
        uids = {of.job_uid for of in placed if of is not None}
        return [job for job in others if job.uid in uids] or others

    return replace(whole, lesser=ChangeSteps(len(others), lambda number: told(served()[: number + 1]) or whole))
