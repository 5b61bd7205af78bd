"""What a what-if found, for programs: both plans, and the continuations of both."""

import msgspec

from arranger.replay.what_if.one_cycle import CyclePlan, JobDifference, JobPlan
from arranger.replay.what_if.utilisation import Figures, Likeness, Utilisation

#: The maximum number of starts in an answer.
STARTS = 1_000


class ContinuedStart(msgspec.Struct, frozen=True):
    """When the quorum of a job's attempt gets its nodes in each continuation, in milliseconds since 1970, and how long
    it waited; None if it doesn't get them within that continuation."""

    job: str
    attempt: int
    as_it_was_ms: int | None = msgspec.field(name="asItWasMs")
    what_if_ms: int | None = msgspec.field(name="whatIfMs")
    as_it_was_wait_ms: int | None = msgspec.field(name="asItWasWaitMs")
    what_if_wait_ms: int | None = msgspec.field(name="whatIfWaitMs")


def other_starts(one: Utilisation, other: Utilisation) -> tuple[ContinuedStart, ...]:
    """The starts that differ between two continuations, the earliest first; `STARTS` at most."""
    names = {**one.names, **other.names}
    found = []
    for key in {**one.starts, **other.starts}:
        times = (one.starts.get(key), other.starts.get(key))
        if times[0] != times[1]:
            earliest_ms = min(moment for moment in times if moment is not None)
            waited = (one.waited.get(key), other.waited.get(key))
            found.append((earliest_ms, ContinuedStart(names[key[0]], key[1], *times, *waited)))
    found.sort(key=lambda of: (of[0], of[1].job, of[1].attempt))
    return tuple(start for _, start in found[:STARTS])


def untried(one: CyclePlan, other: CyclePlan) -> tuple[str, ...]:
    """The jobs that in both plans would take room, but for a dry run of their pods that is still to come."""
    others = {job.job for job in other.jobs if job.untried}
    return tuple(job.job for job in one.jobs if job.untried and job.job in others)


class Continuations(msgspec.Struct, frozen=True):
    """The continuations of both plans, how close the unchanged one is to the log, and the starts that differ."""

    as_it_was: Figures = msgspec.field(name="asItWas")
    what_if: Figures = msgspec.field(name="whatIf")
    likeness_to_log: Likeness = msgspec.field(name="likenessToLog")
    starts: tuple[ContinuedStart, ...]


class WhatIf(msgspec.Struct, frozen=True):
    """Both plans, on the state at the offset `base`. `cycle` is the offset of a recorded cycle, 0 for none, and
    `reproduced` says whether the first plan equals its record. `otherwise` has the changes in words, and `edits` those
    of the state. `until` is None if nothing was continued. `supposed` are the jobs whose pods the API server is
    supposed to take in a dry run, because they would take room only with the changes."""

    base: int
    cycle: int
    time_ms: int
    otherwise: str
    edits: list[str]
    reproduced: bool | None
    as_it_was: CyclePlan = msgspec.field(name="asItWas")
    what_if: CyclePlan = msgspec.field(name="whatIf")
    differences: tuple[JobDifference, ...]
    until: Continuations | None
    supposed: tuple[str, ...] = ()
    #: The job that is changed by name.
    changed_job: str = ""
    #: What jobs get a moment later, as `one_cycle.after_dry_runs` says.
    after_dry_runs: tuple[JobPlan, ...] = ()
