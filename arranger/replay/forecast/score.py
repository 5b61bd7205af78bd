"""What was forecast against what came: the error of the expected start, and how often the start was in the range.

A forecast counts once its job has started. Its horizon is how far away the expected start was when it was made. If the
job was suspended, edited, deleted or ended before, the forecast counts as withdrawn. A job that still waits at the end
of the log has no error yet. Both are only counted.
"""

from collections.abc import Sequence

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.projections.jobs.records import has_started
from arranger.projections.state import Changes, State
from arranger.replay.forecast.starts import forecast
from arranger.replay.reading.history import Span, advance, config_in
from arranger.scheduling import BUILT_IN, Policies

#: The upper limits of the horizons, in milliseconds; None for all that are further away.
HORIZONS_MS: tuple[int | None, ...] = (60_000, 600_000, 3_600_000, 21_600_000, None)


class MadeForecast(msgspec.Struct, frozen=True):
    """A forecast of one job, made at `made_ms`; times in milliseconds since 1970, 0 for unknown ones."""

    uid: str
    made_ms: int
    expected_ms: int
    earliest_ms: int
    latest_ms: int


class ScoredStart(msgspec.Struct, frozen=True):
    """A forecast and the start that came."""

    made: MadeForecast
    start_ms: int

    @property
    def error_ms(self) -> int:
        return abs(self.start_ms - self.made.expected_ms)

    @property
    def inside(self) -> bool:
        """Whether the start was in the range. It may be as late as it likes if the latest start was unknown."""
        latest_ms = self.made.latest_ms
        return self.made.earliest_ms <= self.start_ms and (not latest_ms or self.start_ms <= latest_ms)


class HorizonScore(msgspec.Struct, frozen=True):
    """The forecasts of one horizon, up to `below_ms` (None: no limit). Errors are absolute, in milliseconds: the median
    and the 90 % quantile by the nearest rank, 0 without forecasts. `inside` of them had the start in their range;
    `open_ended` had no latest start."""

    below_ms: int | None
    number: int
    median_ms: int
    p90_ms: int
    inside: int
    open_ended: int


class Score(msgspec.Struct, frozen=True):
    """The horizons, all forecasts together, and those without an error: `unknown` had no expected start, of `withdrawn`
    the job was changed or left, and of `waiting` it still waits. `made_again`: they aren't those of the log, but were
    made now, as of `points` times of the log."""

    horizons: tuple[HorizonScore, ...]
    total: HorizonScore
    unknown: int
    withdrawn: int
    waiting: int
    points: int
    made_again: bool


class Scorer:
    """Folds entries and compares. `config` has the settings of the last cycle up to the state. With `moments`
    (milliseconds since 1970, ascending), forecasts are made as of these times for the first so many jobs; otherwise
    those in the log are judged."""

    def __init__(
        self,
        state: State,
        span: Span,
        config: CycleConfig,
        *,
        moments: Sequence[int] | None = None,
        first: int = 100,
        policies: Policies = BUILT_IN,
    ) -> None:
        self._state = state
        self._span = span
        self._made_again = moments is not None
        self._moments = list(moments or ())
        self._first = first
        self._policies = policies
        self._config = config
        #: Job UID → its generation, and the forecasts that are open.
        self._open: dict[str, tuple[int, list[MadeForecast]]] = {}
        self.came: list[ScoredStart] = []
        self._unknown = self._withdrawn = self._points = 0

    def feed(self, entry: Entry) -> None:
        """Fold one entry. Raises `DamagedEntry`."""
        while self._moments and self._moments[0] < entry.batch.time_ms:
            self._make(self._moments.pop(0))
        changes = Changes()
        advance(self._state, entry, changes)
        self._config = config_in(entry, self._state) or self._config
        for uid in changes.jobs:
            self._look(uid)
        if not self._made_again and self._span.meets(entry):
            self._take(entry, [of.offset for of in changes.verdicts if of.accepted and of.kind == "StartForecast"])

    def _take(self, entry: Entry, offsets: Sequence[int]) -> None:
        """Take the forecasts that the log has at these offsets."""
        for offset in offsets:
            event = entry.batch.events[offset - entry.first]
            if isinstance(event, k.StartForecast):
                times = (self._state.time_ms, event.expected_ms, event.earliest_ms, event.latest_ms)
                self._note(MadeForecast(event.job_uid, *times))

    def _make(self, moment_ms: int) -> None:
        """Make forecasts as of a time that no entry has reached yet."""
        if not self._state.synced:
            return
        time_ms = max(moment_ms, self._state.time_ms)
        found = forecast(self._state, self._config, time_ms, first=self._first, policies=self._policies)
        self._points += bool(found.jobs)
        for one in found.jobs:
            self._note(MadeForecast(one.uid, time_ms, one.expected_ms, one.earliest_ms, one.latest_ms))

    def _note(self, made: MadeForecast) -> None:
        job = self._state.jobs[made.uid]
        if not made.expected_ms:
            self._unknown += 1
        else:
            self._open.setdefault(made.uid, (job.seen.generation, []))[1].append(made)

    def _look(self, uid: str) -> None:
        """Close the forecasts of a job that has started, or for which they don't hold any more."""
        if uid not in self._open:
            return
        job, (generation, made) = self._state.jobs.get(uid), self._open[uid]
        if job is None or not job.active or job.stands_still or job.seen.generation != generation:
            self._withdrawn += len(made)
        elif has_started(job):
            self.came += [ScoredStart(one, self._state.time_ms) for one in made]
        else:
            return
        del self._open[uid]

    def score(self) -> Score:
        """The comparison so far."""
        return Score(
            horizons=by_horizon(self.came),
            total=_scored(None, self.came),
            unknown=self._unknown,
            withdrawn=self._withdrawn,
            waiting=sum(len(made) for _, made in self._open.values()),
            points=self._points,
            made_again=self._made_again,
        )


def by_horizon(came: Sequence[ScoredStart]) -> tuple[HorizonScore, ...]:
    """The score of each of `HORIZONS_MS`."""
    return tuple(_of(came, number) for number in range(len(HORIZONS_MS)))


def _of(came: Sequence[ScoredStart], number: int) -> HorizonScore:
    below_ms = HORIZONS_MS[number]
    least_ms = HORIZONS_MS[number - 1] or 0 if number else -1
    of = [one for one in came if least_ms <= (away_ms := one.made.expected_ms - one.made.made_ms)
          and (below_ms is None or away_ms < below_ms)]  # fmt: skip
    return _scored(below_ms, of)


def _scored(below_ms: int | None, came: Sequence[ScoredStart]) -> HorizonScore:
    errors = sorted(one.error_ms for one in came)
    return HorizonScore(
        below_ms=below_ms,
        number=len(errors),
        median_ms=_quantile(errors, 50),
        p90_ms=_quantile(errors, 90),
        inside=sum(one.inside for one in came),
        open_ended=sum(not one.made.latest_ms for one in came),
    )


def _quantile(ordered: Sequence[int], percent: int) -> int:
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else 0
