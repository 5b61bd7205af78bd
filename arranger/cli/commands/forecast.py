"""`arranger forecast`: when each waiting job would start, and how good earlier forecasts were."""

import asyncio
from typing import Any

import click
import msgspec

from arranger.cli.inputs.asked_forecasts import asked_of
from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    DURATION_TYPE,
    as_of,
    feed,
    opened,
    point_option,
    progress,
    span_in,
    span_of,
)
from arranger.cli.inputs.with_config import begin_with_config, stand_with_config
from arranger.cli.rendering.forecast_page import ForecastAnswer, Scores
from arranger.cli.rendering.output import csv_output_option, print_json
from arranger.errors import LogError
from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.plugins import inventory
from arranger.replay.forecast.score import Scorer
from arranger.replay.forecast.starts import forecast
from arranger.replay.reading.history import END, Point, Span
from arranger.settings import Settings

#: How many waiting jobs are looked at, unless asked otherwise.
_FIRST = 1_000
#: At how many times a log without forecasts is scored.
_POINTS = 20
#: From so many starts to be found on, a progress bar is worth it.
_LONG = 500


@click.command()
@log_options
@click.argument("jobs", nargs=-1, metavar="[[NS/]JOB]...")
@point_option("--at", "Forecast as of this point. [default: the end of the log]")
@click.option(
    "--until", "until_ms", type=DURATION_TYPE, metavar="DURATION", help="Look no further ahead than this, such as 6h."
)
@click.option(
    "--first",
    type=click.IntRange(min=1),
    default=_FIRST,
    show_default=True,
    metavar="N",
    help="Look at this many waiting jobs, in the order of the queue, and leave out those behind them.",
)
@click.option("--score", is_flag=True, help="Compare the forecasts of the log with the actual starts.")
@point_option("--from", "With --score: judge forecasts from this point on. [default: the first event in the log]")
@point_option("--to", "With --score: judge them up to this point. [default: the last event]")
@click.option(
    "--points",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --score: make forecasts again at this many times instead. [default: 20, if the log has none]",
)
@click.option("--all", "everything", is_flag=True, help="Show all jobs, and not only the first 30.")
@csv_output_option
def command(target: str | None, settings: Settings, output: str, **options: Any) -> None:
    r"""Say when each waiting job would start.

    The scheduler's own cycle runs again and again on a copy of the state. Jobs end when they are expected to: by
    activeDeadlineSeconds, by expectedRuntimeSeconds, or as earlier jobs of the same user and image did. No new job
    comes, no node comes or goes, and nothing fails.

    LIKELY FROM and LIKELY UNTIL are the range: the same with ends that are as early, and as late, as is likely. Neither
    is a bound. A job about which nothing is known may never end. It is then taken to run as long again as it has run,
    or as half of the earlier jobs did: a start that needs its end is a guess, and has no likely latest time.

    With --score, the forecasts of the log are compared with the actual starts: the median and the 90 % quantile of
    the error, grouped by how far away the start was, and how often the start was in the range.

    \b
      arranger forecast                                now
      arranger forecast team-a/train                   one job
      arranger forecast --at 10:30 --until 6h          what one would have said then, for six hours
      arranger forecast --score --from "1d ago"        how good the forecasts of the last day were
      arranger forecast --score --points 50 -o csv     made again at fifty times, for a spreadsheet
    """
    _check(options)
    answer: ForecastAnswer | Scores
    if options["score"]:
        answer = asyncio.run(_scores(target, settings, options))
    else:
        answer = asyncio.run(_starts(target, settings, options))
    if output == "json":
        print_json(answer.json())
    elif output == "csv":
        answer.csv()
    elif isinstance(answer, ForecastAnswer):
        answer.print(everything=options["everything"])
    else:
        answer.print()


def _check(options: dict[str, Any]) -> None:
    """Raise `click.UsageError` for options that don't go together."""
    alone, scored = ("at", "until_ms", "jobs"), ("from", "to", "points")
    wrong = [name for name in (alone if options["score"] else scored) if options[name]]
    if wrong:
        name = wrong[0].removesuffix("_ms")
        flag = "a job" if name == "jobs" else f"--{name}"
        raise click.UsageError(f"{flag} can't be used with --score" if options["score"] else f"{flag} needs --score")


async def _starts(target: str | None, settings: Settings, options: dict[str, Any]) -> ForecastAnswer:
    point = options["at"] or END
    async with opened(target, settings) as log:
        state, last, config = await stand_with_config(log, point, doing="going to the point")
        state.time_ms = (await as_of(log, point, last))(state.time_ms)
    if not state.synced:
        hint = "use a later point"
        raise LogError(f"not everything had been listed yet at offset {state.offset}, so no cycle could run", hint=hint)
    until_ms = options["until_ms"]
    policies, first = inventory().policies.closest(config), options["first"]
    horizon_ms = state.time_ms + until_ms if until_ms is not None else None
    total = 3 * min(first, len(state.jobs))
    with progress("looking ahead", total, worth=_LONG) as moved:
        found = forecast(
            state, config, state.time_ms, first=first, until_ms=horizon_ms, policies=policies, moved=moved
        )  # fmt: skip
    return ForecastAnswer(found, asked_of(found, options["jobs"], state))


class _Survey(msgspec.Struct):
    """The times of the entries in a part of a log, in milliseconds since 1970 and ascending, and whether there are
    forecasts among them."""

    span: Span
    times: list[int] = []
    has_forecasts: bool = False

    def feed(self, entry: Entry) -> None:
        self.has_forecasts |= any(type(event) is k.StartForecast for event in entry.batch.events)
        if self.span.meets(entry) and entry.batch.time_ms > (self.times[-1] if self.times else 0):
            self.times.append(entry.batch.time_ms)

    def moments(self, points: int) -> list[int]:
        """So many of these times, with equally many others between them: more where more happens."""
        count = len(self.times)
        points = min(points, count)
        return [self.times[count * number // points] for number in range(points)]


async def _scores(target: str | None, settings: Settings, options: dict[str, Any]) -> Scores:
    async with opened(target, settings) as log:
        span = await span_in(log, span_of(options["from"], options["to"]))
        survey = _Survey(span)
        state, position, config = await begin_with_config(log, span)
        await feed(log, position, survey.feed, until=span.last, doing="looking for forecasts")
        again = options["points"] is not None or not survey.has_forecasts
        moments = survey.moments(options["points"] or _POINTS) if again else None
        policies = inventory().policies
        scorer = Scorer(state, span, config, moments=moments, first=options["first"], policies=policies)
        await feed(log, position, scorer.feed, until=Point(), doing="reading the log")
    return Scores(scorer.score())
