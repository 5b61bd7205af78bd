"""The output of `arranger forecast`, for people, programs and spreadsheets."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from arranger.cli.rendering.output import (
    Times,
    ToldTime,
    duration,
    local_time,
    print_csv,
    print_table,
    print_text,
    say,
)
from arranger.model.text import counted, few
from arranger.replay.explain.room_words import GUESSED
from arranger.replay.forecast.score import HorizonScore, Score
from arranger.replay.forecast.starts import Forecast, JobForecast, JobStart, JobStarts, Unknown
from arranger.replay.reading.describe import as_object

#: How many rows of a table are shown without `--all`.
_SHOWN = 30
#: How many names a sentence has.
_NAMED = 3

_WHY = {
    Unknown.ENDLESS: "jobs that may never end hold room",
    Unknown.NEVER: "it doesn't fit even when all other jobs have ended",
    Unknown.GUARANTEES: "even when all other jobs have ended, the guarantees of other queues leave too little for it",
    Unknown.LIMIT: "even when all other jobs have ended, a quota or a limit of its queue leaves too little for it",
    Unknown.HELD: "something other than room keeps it",
    Unknown.QUEUE: "it can't use its queue",
    Unknown.INFEASIBLE: "its quorum would not fit even if nothing else ran",
    Unknown.REFUSED: "the API server refuses its pods",
    Unknown.DEPENDENCY_OVERDUE: "job {job} is expected to reach its deadline, and this job fails then",
    Unknown.DEPENDENCY_FAILS: "job {job} is expected to fail, and this job fails then",
    Unknown.LATER: "after the time that was looked at",
}


class ForecastAnswer(msgspec.Struct):
    """The answer of `arranger forecast`; `jobs` are those that were asked for."""

    found: Forecast
    jobs: Sequence[JobForecast]

    def json(self) -> dict[str, Any]:
        found = self.found
        answer = JobStarts(
            found.offset, found.time_ms, [JobStart.of(one) for one in self.jobs], found.waiting, found.endless
        )
        return {**as_object(answer), "time": local_time(found.time_ms)}

    def csv(self) -> None:
        columns = ("queue_position", "job", "expected_ms", "earliest_ms", "latest_ms", "why_unknown", "guess")
        print_csv(
            columns,
            [
                (one.queue_position, one.job, one.expected_ms or "", one.earliest_ms or "", one.latest_ms or "",
                 one.why or "", int(one.guess))
                for one in self.jobs
            ],
        )  # fmt: skip

    def print(self, *, everything: bool) -> None:
        found = self.found
        if not self.jobs:
            say("no job waits to start")
            return
        shown = self.jobs if everything else self.jobs[:_SHOWN]
        columns = ("#", "job", "expected", "in", "likely from", "likely until", "note")
        moments = [(one.expected_ms, one.earliest_ms, one.latest_ms, one.promised_ms) for one in shown]
        times = Times.of(chain.from_iterable(moments))
        print_table(columns, [self._cells(one, times) for one in shown], right=("#", "in"), times=times)
        if len(shown) < len(self.jobs):
            print_text(f"and {len(self.jobs) - len(shown)} more: --all shows all of them")
        say()
        print_text(f"as of {local_time(found.time_ms)}, offset {found.offset}, if no jobs, nodes or failures come")
        if len(found.jobs) < found.waiting:
            left = found.waiting - len(found.jobs)
            print_text(f"{counted(left, 'job')} behind them left out: --first looks at more")
        if found.endless and any(one.guess or one.why == Unknown.ENDLESS for one in self.jobs):  # nothing else waits
            print_text(
                f"nothing is known of the end of {few(found.endless, _NAMED)}: {GUESSED}, and a start after such a job "
                "is a guess"
            )

    def _cells(self, one: JobForecast, times: Times) -> tuple[object, ...]:
        left_ms = max(one.expected_ms - self.found.time_ms, 0)
        return (
            one.queue_position,
            one.job,
            ToldTime(one.expected_ms) if one.expected_ms else "unknown",
            duration(left_ms) if one.expected_ms else "-",
            ToldTime(one.earliest_ms) if one.earliest_ms else "unknown",
            ToldTime(one.latest_ms) if one.latest_ms else "unknown",
            "; ".join(self._notes(one, times)),
        )

    def _notes(self, one: JobForecast, times: Times) -> Iterator[str]:
        """Why a time is unknown or a guess, and what a reservation says instead."""
        endless = one.why == Unknown.ENDLESS
        if one.guess:
            yield f"a guess: {_WHY[Unknown.ENDLESS] if endless else 'it supposes that jobs end that may never end'}"
        if one.why is not None and not (one.guess and endless):
            yield _WHY[one.why].format(job=one.failing)
        if one.promised_ms and one.promised_ms != one.expected_ms:
            over = one.promised_ms <= self.found.time_ms
            yield f"its reservation {'said' if over else 'says'} {times.text(one.promised_ms)}"


class Scores(msgspec.Struct):
    """The answer of `arranger forecast --score`."""

    found: Score

    def json(self) -> dict[str, Any]:
        rows = [{"horizon": _name(row), **as_object(row)} for row in self.found.horizons]
        return {**as_object(self.found), "horizons": rows, "total": as_object(self.found.total)}

    def csv(self) -> None:
        columns = ("horizon", "number", "median_ms", "p90_ms", "inside", "open_ended")
        print_csv(columns, [_values(row, _name(row)) for row in self._rows()])

    def _rows(self) -> list[HorizonScore]:
        return [row for row in self.found.horizons if row.number]

    def print(self) -> None:
        found = self.found
        if not found.total.number:
            say("no forecast has come true yet, or failed to, in this part of the log")
        else:
            columns = (
                "forecast for",
                "forecasts",
                "median error",
                "90% error",
                "in the range",
                "without a latest start",
            )
            rows = [_cells(row, _name(row)) for row in self._rows()]
            print_table(columns, [*rows, _cells(found.total, "all")], right=columns[1:])
            say()
        where = (
            f"made again at {counted(found.points, 'time')} of the log" if found.made_again else "as the log has them"
        )
        print_text(
            f"forecasts {where}; without an error: {found.unknown} of an unknown start, {found.withdrawn} of jobs that "
            f"were changed or left, {found.waiting} of jobs that still wait"
        )


def _values(row: HorizonScore, name: str) -> tuple[object, ...]:
    return (name, row.number, row.median_ms, row.p90_ms, row.inside, row.open_ended)


def _cells(row: HorizonScore, name: str) -> tuple[object, ...]:
    inside = f"{row.inside / row.number:.0%}"
    return (name, row.number, duration(row.median_ms), duration(row.p90_ms), inside, row.open_ended)


def _name(row: HorizonScore) -> str:
    return f"less than {_limit(row.below_ms)}" if row.below_ms is not None else "later"


def _limit(span_ms: int) -> str:
    return f"{span_ms // 3_600_000} h" if span_ms >= 3_600_000 else f"{span_ms // 60_000} min"
