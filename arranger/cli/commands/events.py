"""`arranger events`: list and follow the events of a log."""

import asyncio
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    NotFound,
    begin_at_span,
    feed,
    job_index_of,
    opened,
    point_option,
    span_in,
    span_of,
    unknown_job,
    unknown_node,
)
from arranger.cli.inputs.variation import unknown_queue
from arranger.cli.rendering.log_line import as_json
from arranger.cli.rendering.output import Times, ToldTime, fitting, output_option, print_json_lines, print_table, say
from arranger.events import kinds
from arranger.events.log import Entry, Log, Position
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.text import one_line
from arranger.replay.reading.history import END, Span
from arranger.replay.reading.listing import EventFilter, EventLine, Listing
from arranger.settings import Settings

#: How long one read waits for new events with `--follow`.
_WAIT_S = 1.0
#: Rows of one table, or lines printed at once. So a long list starts at once and needs little memory.
_AT_ONCE = {"table": 5000, "json": 500}
_COLUMNS = ("offset", "time", "kind", "subject", "verdict", "text")
#: Column widths of rows that are printed one at a time: piped, and on a terminal.
_FOLLOW_WIDTHS = (7, 29, 15, 28, 8)
_FOLLOW_FITTING = (6, 12, 15, 28, 8, 30)


#: What tables called a kind once, in lower case → its name.
_FORMER_NAMES = {"tookroom": "Preempted"}


class KindType(click.Choice[str]):
    """A kind of event by name; the case of letters doesn't matter."""

    def __init__(self) -> None:
        super().__init__(kinds.KIND_NAMES, case_sensitive=False)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The kind with its proper capitals. Otherwise fails with click's error, which names the flag."""
        names = {name.lower(): str(name) for name in self.choices}
        kind = names.get(value.lower()) or _FORMER_NAMES.get(value.lower())
        if kind is None:
            close = near_names(value, names.values())
            hint = f"did you mean {close[0]}? " if close else ""
            self.fail(f"no kind {value!r}: {hint}allowed: {', '.join(self.choices)}", param, ctx)
        return kind


@click.command()
@log_options
@point_option("--from", "The first event to list. [default: the first in the log]")
@point_option("--to", "The last event to list. [default: the last]")
@click.option(
    "--job", default="", metavar="[NS/]NAME", help="Only events about this job, its pods, and the decisions on it."
)
@click.option("--node", default="", metavar="NAME", help="Only events about this node, its pods, and placements on it.")
@click.option("--pod", default="", metavar="[NS/]NAME", help="Only events about this pod.")
@click.option(
    "--queue", default="", metavar="NAME", help="Only events about this queue, and about the jobs that belong to it."
)
@click.option(
    "--kind",
    "chosen",
    multiple=True,
    type=KindType(),
    metavar="KIND",
    help="Only events of this kind: NodeSeen, Placed, Waits, StageDecided …; can be given several times.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep listing new events until interrupted.")
@output_option
def command(target: str | None, settings: Settings, follow: bool, output: str, **options: Any) -> None:
    r"""List the event log: offset, time, kind, subject and content of each event, and the verdict on decisions.

    Each decision is accepted or rejected at its own offset; only the events before it count. JSON output has one object
    per line.

    \b
      arranger events --job team-a/train --log run.log    one job's life
      arranger events --kind Placed --from "10m ago"      recent placements
      arranger events --follow -o json                    everything as it happens
    """
    if follow and options["to"] is not None:
        raise click.UsageError("--follow never ends: leave out --to")
    asked = EventFilter(
        span=span_of(options["from"], options["to"]),
        job=options["job"],
        node=options["node"],
        pod=options["pod"],
        kinds=tuple(options["chosen"]),
        queue=options["queue"],
    )
    asyncio.run(_list(target, settings, asked, follow=follow, output=output))


async def _list(target: str | None, settings: Settings, asked: EventFilter, *, follow: bool, output: str) -> None:
    async with opened(target, settings) as log:
        asked = msgspec.structs.replace(asked, span=await span_in(log, asked.span))
        state, position = await begin_at_span(log, asked.span)
        listing = Listing(state, asked)
        lines: list[EventLine] = []
        last = position
        printer = _Printer(output)

        def show(*, all_of_them: bool) -> None:
            if lines and (all_of_them or len(lines) >= _AT_ONCE[output]):
                printer.many(lines)
                lines.clear()

        def take(entry: Entry) -> None:
            nonlocal last
            last = Position(last.epoch, entry.last, entry.chain)
            found = listing.feed(entry)
            if follow:
                printer.now(found)
            else:
                lines.extend(found)
                show(all_of_them=False)

        if follow:
            printer.begin()
        try:
            doing = "reading the log" if output == "table" and not follow else ""
            await feed(log, position, take, until=asked.span.last, doing=doing)
        finally:
            show(all_of_them=True)
        if follow:
            await _follow(log, last, listing, printer)
        elif not listing.found:
            await _say_nothing_found(log, listing, asked)


async def _follow(log: Log, after: Position, listing: Listing, printer: "_Printer") -> None:
    while True:
        for entry in await log.read(after, wait_s=_WAIT_S):
            after = Position(after.epoch, entry.last, entry.chain)
            printer.now(listing.feed(entry))


async def _say_nothing_found(log: Log, listing: Listing, asked: EventFilter) -> None:
    """Report that no events were found. Raises `NotFound` if the log doesn't have the job at all, nor, where all of it
    was read, the queue, the node or the pod."""
    if asked.job and not listing.knows(asked.job):
        job_index = await job_index_of(log, END)
        within, _, name = asked.job.rpartition("/")
        if not any(known == name and within in ("", namespace) for namespace, known in job_index.jobs):
            raise unknown_job(asked.job, job_index)
    if asked.span == Span():
        if asked.queue and not listing.knows_queue(asked.queue):
            raise unknown_queue(asked.queue, listing.state)
        if asked.node and not listing.knows_node(asked.node):
            raise unknown_node(asked.node, listing.state)
        if asked.pod and asked.pod not in listing.pods_seen:
            close = near_names(asked.pod, listing.pods_seen, most=3)
            raise NotFound(f"the log has no pod {asked.pod!r}", hint=did_you_mean(close))
    say("arranger: no such events", err=True)


class _Printer:
    """Prints lines as tables, or one at a time."""

    def __init__(self, output: str) -> None:
        self._json = output == "json"
        self._fitting = fitting()
        self._said = ""

    def many(self, lines: list[EventLine]) -> None:
        if self._json:
            self.now(lines)
            return
        print_table(_COLUMNS, map(_cells, lines), right=("offset",), times=self._times(lines))

    def begin(self) -> None:
        """Print the column names before lines that are printed one at a time."""
        if not self._json:
            self._row([column.upper() for column in _COLUMNS])

    def now(self, lines: Iterable[EventLine]) -> None:
        if self._json:
            print_json_lines(as_json(line) for line in lines)
            return
        for line in lines:
            cells = _cells(line)
            if self._fitting:
                cells = (cells[0], self._times([line]).text(line.time_ms), *cells[2:])
            self._row([one_line(str(cell)) for cell in cells])

    def _times(self, lines: list[EventLine]) -> Times:
        """The format for the times of these lines. On a terminal, a changed date is printed first."""
        times = Times.of(line.time_ms for line in lines)
        if self._fitting and times.heading not in ("", self._said):
            say(times.heading)
            self._said = times.heading
        return times

    def _row(self, cells: list[str]) -> None:
        if self._fitting:
            from arranger.cli.rendering.terminal import Layout, terminal_width

            for line in Layout(_FOLLOW_FITTING, width=terminal_width(), right=(0,)).row(cells):
                say(line)
            return
        offset, *middle, text = cells
        padded = (cell.ljust(width) for cell, width in zip(middle, _FOLLOW_WIDTHS[1:], strict=True))
        say("  ".join((offset.rjust(_FOLLOW_WIDTHS[0]), *padded, text)).rstrip())


def _cells(line: EventLine) -> tuple[object, ...]:
    text = f"{line.reason}: {line.text}" if line.reason else line.text
    return (line.offset, ToldTime(line.time_ms), line.kind, line.subject, line.verdict, text)
