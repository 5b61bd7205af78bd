"""`arranger events`: list and follow the log."""

import asyncio
from collections.abc import Iterable
from typing import Any, get_args

import click
import msgspec

from arranger.cli.output import local_time, output_option, print_json_lines, print_table
from arranger.cli.reading import begin_at_span, feed, log_options, opened, point_option, span_of
from arranger.events import kinds
from arranger.events.log import Entry, Log, Position
from arranger.replay.describe import as_object
from arranger.replay.history import END
from arranger.replay.listing import Filter, Line, Listing
from arranger.settings import Settings

#: How long one read waits for news while following.
_WAIT_S = 1.0
#: Rows of one table: a long list is several, so that it begins at once and needs little memory.
_AT_ONCE = 5000
_COLUMNS = ("offset", "time", "kind", "subject", "verdict", "text")
#: Widths of a row that is printed before the next ones are known.
_FOLLOW_WIDTHS = (7, 29, 15, 28, 8)


@click.command()
@log_options
@point_option("--from", "The first event to list. [default: the first there is]")
@point_option("--to", "The last event to list. [default: the last]")
@click.option("--job", default="", metavar="[NS/]NAME", help="Only events about this job, its pods and decisions.")
@click.option("--node", default="", metavar="NAME", help="Only events about this node, and pods and decisions on it.")
@click.option("--pod", default="", metavar="[NS/]NAME", help="Only events about this pod.")
@click.option(
    "--kind",
    "chosen",
    multiple=True,
    type=click.Choice([kind.__name__ for kind in get_args(kinds.Event)], case_sensitive=False),
    metavar="KIND",
    help="Only events of this kind: NodeSeen, Placed, Waits, StageDecided …; may be given several times.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until interrupted.")
@output_option
def command(target: str | None, settings: Settings, follow: bool, output: str, **options: Any) -> None:
    r"""List the event log: offset, time, kind, what it is about, the verdict on decisions, and what it says.

    A decision is accepted or rejected at its own offset, by folding what came before. JSON is one object a line.

    \b
      arranger events --job team-a/train --log run.log    one job's life
      arranger events --kind Placed --from "10m ago"      recent placements
      arranger events --follow -o json                    everything as it happens
    """
    if follow and options["to"] is not None:
        raise click.UsageError("--follow goes on for ever: leave out --to")
    wanted = Filter(
        span=span_of(options["from"], options["to"]),
        job=options["job"],
        node=options["node"],
        pod=options["pod"],
        kinds=tuple(options["chosen"]),
    )
    asyncio.run(_list(target, settings, wanted, follow=follow, output=output))


async def _list(target: str | None, settings: Settings, wanted: Filter, *, follow: bool, output: str) -> None:
    async with opened(target, settings) as log:
        state, position = await begin_at_span(log, wanted.span)
        listing = Listing(state, wanted)
        lines: list[Line] = []
        last = position

        def show(*, all_of_them: bool) -> None:
            if lines and (all_of_them or len(lines) >= _AT_ONCE):
                print_table(_COLUMNS, map(_cells, lines), right=("offset",))
                lines.clear()

        def take(entry: Entry) -> None:
            nonlocal last
            last = Position(last.epoch, entry.last, entry.chain)
            found = listing.feed(entry)
            if follow or output == "json":
                _print_now(found, output)
            else:
                lines.extend(found)
                show(all_of_them=False)

        if follow and output == "table":
            _print_row([column.upper() for column in _COLUMNS])
        try:
            doing = "reading the log" if output == "table" and not follow else ""
            await feed(log, position, take, until=wanted.span.last or END, doing=doing)
        finally:
            show(all_of_them=True)
        if not listing.found and not follow:
            click.echo("arranger: no such events", err=True)
        if follow:
            await _follow(log, last, listing, output)


async def _follow(log: Log, after: Position, listing: Listing, output: str) -> None:
    while True:
        for entry in await log.read(after, wait_s=_WAIT_S):
            after = Position(after.epoch, entry.last, entry.chain)
            _print_now(listing.feed(entry), output)


def _print_now(lines: Iterable[Line], output: str) -> None:
    if output == "json":
        print_json_lines(as_json(line) for line in lines)
        return
    for line in lines:
        _print_row(_cells(line))


def _print_row(cells: Iterable[object]) -> None:
    offset, *middle, text = map(str, cells)
    padded = (cell.ljust(width) for cell, width in zip(middle, _FOLLOW_WIDTHS[1:], strict=True))
    click.echo("  ".join((offset.rjust(_FOLLOW_WIDTHS[0]), *padded, text)).rstrip())


def _cells(line: Line) -> tuple[object, ...]:
    text = f"{line.reason}: {line.text}" if line.reason else line.text
    return (line.offset, local_time(line.told_ms), line.kind, line.subject, line.verdict, text)


def as_json(line: Line) -> dict[str, Any]:
    """The line as an object, its time readable too."""
    return {**msgspec.structs.asdict(line), "time": local_time(line.told_ms), "event": as_object(line.event)}
