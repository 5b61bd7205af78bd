"""For how long jobs run in a forecast: in the expected case, and in the best and the worst case that is likely.

| of the job is known | at best | expected | at worst |
| --- | --- | --- | --- |
| a deadline | a tenth of what is left | the deadline, or its own expectation | the deadline |
| what its spec expects | a tenth of what is left | that | twice that |
| run times of its kind | what one in ten took | what half of them took | twice what nine of ten took |
| nothing | it ends at once | what half of all jobs took, else as long again | it never ends |

A job that is expected to run until its deadline, or whose deadline is over, fails then, but for the first case at best.
All others succeed, those with a deadline by then.

Of run times, only those count that are longer than the job has run already. A job that has outlived its expectation may
end at once. It is expected to end as `projections.expected_ends` says, and at worst twice as late.

A tenth: what users estimate is too long, and the part of it that jobs use is spread nearly evenly over all parts
(Mu'alem and Feitelson, IEEE TPDS 12(6), 2001), so one job in ten uses less than a tenth. Earlier jobs of the same user
predict better than the user does (Tsafrir, Etsion and Feitelson, IEEE TPDS 18(6), 2007, with their mean).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from arranger.model.config import CycleConfig
from arranger.projections.derived.deadlines import overdue
from arranger.projections.derived.expected_ends import (
    EndSource,
    ExpectedEnd,
    expected_end,
    expected_runtime_ms,
    reaches_deadline,
)
from arranger.projections.jobs.records import JobRecord
from arranger.projections.jobs.run_times import times_of_kind
from arranger.projections.state import State
from arranger.replay.what_if.continuation import Lasting

#: At best a job whose end may come at any time ends after this time, in milliseconds.
_SOON_MS = 1_000
#: With fewer run times of all kinds, they say nothing of another job.
_ALL_NEEDED = 10
#: A forecast of more than so many jobs with nodes lets those end together that end at nearly the same time.
EXACT_UP_TO = 500
#: Their ends are then so many times as far away as they are apart, at least.
_APART = 8


class EndScenario(StrEnum):
    """How the running jobs go on."""

    EXPECTED = "Expected"
    BEST = "Best"
    WORST = "Worst"


class _Known(NamedTuple):
    """What is known of a job's end, from now on: when it comes, whether an expectation is over, and a hard limit."""

    left_ms: int
    outlived: bool
    limit_ms: int | None


class Ends:
    """The ends of all jobs in one case of a forecast from `begin_ms` on. `all_times`: run times of earlier jobs of all
    kinds, in milliseconds. Without `guesses`, a job of which nothing is known never ends."""

    def __init__(
        self,
        case: EndScenario,
        config: CycleConfig,
        *,
        begin_ms: int,
        all_times: Sequence[int] = (),
        exact: bool = True,
        guesses: bool = True,
    ) -> None:
        self.case = case
        self._guesses = guesses
        self._config = config
        self.begin_ms = begin_ms
        self._all_times = sorted(all_times) if len(all_times) >= _ALL_NEEDED else []
        self._exact = exact
        #: When the first job ends of whose end nothing is known, in milliseconds since 1970; 0 if none does.
        self.guessed_ms = 0

    def lasts_ms(self, state: State, job: JobRecord, now_ms: int) -> int | None:
        """For how long a job with nodes runs from now on, in milliseconds; None if it never ends."""
        known = self._known(state, job, now_ms)
        left_ms = self._left_ms(state, job, known, now_ms)
        if known is None and left_ms is not None:
            self.guessed_ms = min(self.guessed_ms or now_ms + left_ms, now_ms + left_ms)
        if left_ms is None or self._exact:
            return left_ms
        after_ms = now_ms - self.begin_ms + left_ms
        apart_ms = 1 << max((after_ms // _APART).bit_length() - 1, 0)
        return -(-after_ms // apart_ms) * apart_ms - (now_ms - self.begin_ms)

    def lasts(self, state: State, job: JobRecord, now_ms: int) -> Lasting:
        """As `lasts_ms`, and whether its deadline ends the job then."""
        late = self.case != EndScenario.BEST or overdue(job, now_ms)
        return Lasting(self.lasts_ms(state, job, now_ms), late and reaches_deadline(state, job, self._config, now_ms))

    def _left_ms(self, state: State, job: JobRecord, known: _Known | None, now_ms: int) -> int | None:
        age_ms = max(now_ms - job.began_ms, 0) if job.began_ms else 0
        if known is None:
            return self._of_unknown(age_ms)
        times = self._times(state, job)
        longer = sorted(time_ms - age_ms for time_ms in times if time_ms > age_ms)
        if self.case == EndScenario.WORST:
            return known.limit_ms if known.limit_ms is not None else age_ms + 2 * known.left_ms
        if longer:
            return _quantile(longer, 50 if self.case == EndScenario.EXPECTED else 10)
        if self.case == EndScenario.EXPECTED:
            return known.left_ms
        return _SOON_MS if known.outlived or times else max(known.left_ms // 10, _SOON_MS)

    def _known(self, state: State, job: JobRecord, now_ms: int) -> _Known | None:
        limit_ms = None
        if job.spec is not None and job.spec.deadline_s is not None:
            began_ms = job.times.start_ms or now_ms
            limit_ms = max(began_ms + job.spec.deadline_s * 1000 - now_ms, _SOON_MS)
        end = expected_end(state, job, self._config, now_ms)
        if end is None:
            run_ms = expected_runtime_ms(state, job, self._config, now_ms) if not job.began_ms else None
            return None if run_ms is None else _Known(run_ms, outlived=False, limit_ms=limit_ms)
        limit_ms = end.end_ms - now_ms if _over(end) else limit_ms
        return _Known(end.end_ms - now_ms, end.outlived, limit_ms)

    def _times(self, state: State, job: JobRecord) -> tuple[int, ...]:
        """The run times of earlier jobs that say most of this one; none if the job itself says something."""
        spec = job.valid_spec
        if spec.expected_s is not None or spec.deadline_s is not None or not self._config.learned_runtimes:
            return ()
        return times_of_kind(state.run_times, job)

    def _of_unknown(self, age_ms: int) -> int | None:
        """For how long a job runs of which nothing is known, after `age_ms` with nodes."""
        if self.case == EndScenario.WORST or not self._guesses:
            return None
        if self.case == EndScenario.BEST:
            return _SOON_MS
        longer = [time_ms - age_ms for time_ms in self._all_times if time_ms > age_ms]
        if longer and self._config.learned_runtimes:
            return _quantile(longer, 50)
        return max(age_ms, _SOON_MS) if age_ms else None


def _over(end: ExpectedEnd) -> bool:
    """Whether a job's deadline is over, and it is being ended."""
    return end.source == EndSource.DEADLINE and end.outlived


def _quantile(ordered: Sequence[int], percent: int) -> int:
    """The quantile by the nearest rank."""
    return ordered[max(-(-percent * len(ordered) // 100), 1) - 1]
