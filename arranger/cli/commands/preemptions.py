"""`arranger preemptions`: list who gave room to whom, what it cost, what it gained, and what afterwards showed."""

import asyncio
from typing import Any

import click

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    DURATION_TYPE,
    as_of,
    feed,
    opened,
    point_option,
    span_in,
    span_of,
)
from arranger.cli.inputs.with_config import begin_with_config
from arranger.cli.rendering.ledger_page import Preemptions
from arranger.cli.rendering.output import csv_output_option, print_json
from arranger.replay.ledger.preemptions import PreemptionLedger
from arranger.replay.reading.history import END, Span
from arranger.settings import Settings

_WITHIN_MS = 600_000


@click.command()
@log_options
@point_option("--from", "The first preemption to list. [default: the first in the log]")
@point_option("--to", "The last preemption to list. [default: the last]")
@click.option(
    "--within",
    type=DURATION_TYPE,
    metavar="DURATION",
    help="Call a preemption needless only if its room became free by itself within this time. [default: 10m]",
)
@click.option("--all", "everything", is_flag=True, help="List all preemptions, and not only the last 30.")
@csv_output_option
def command(target: str | None, settings: Settings, output: str, **options: Any) -> None:
    r"""List the preemptions: jobs that gave room to another one.

    Each row names the job that got the room, the jobs that gave it and how (Surplus: workers above a quorum; Priority:
    a whole job of lower priority; Reclaim: a job of a queue above its share), and the work that they lost, in GPU
    hours. BEGAN AFTER is how long the job then waited until it began. AGAIN AFTER is how long each victim waited until
    its quorum had nodes again. A job that lost the room again without having been Running took it in vain: the list
    says so, with the reason, unless another job took it, its user suspended it, or a node was closed or lost before
    others had left it. FREE BY ITSELF is the time after which the job would have got nodes without the
    preemption, and without those after it: a scheduling cycle is asked, with its limits, guarantees and reservations,
    for at most an hour ahead. It is an estimate: a job that gave all its room would have ended when its deadline or its
    expectedRuntimeSeconds said, and all other jobs end when they did, as does one that somebody deletes, also if that
    was because of the preemption. Of many preemptions at once, each is looked at in larger steps, so the time may be
    too long, up to 3.5 times. A preemption was needless if that came within ten minutes (or --within), and the job's
    GPUs would have waited for it no longer than the GPU time that was lost. To find all this, the command reads the log
    to its end.

    A second list has the guests: jobs that used room which was reserved for others, until these could start (Left), the
    guest ended (Ended), or nobody had the room reserved any more (Stays).

    \b
      arranger preemptions                                all of them
      arranger preemptions --from "1d ago" --within 5m    today's, and which of them were needless
      arranger preemptions --log run.log -o csv           one row for each victim, for a spreadsheet
    """
    span = span_of(options["from"], options["to"])
    ledger = asyncio.run(_read(target, settings, span))
    answer = Preemptions(ledger.found, ledger.guests, options["within"] or _WITHIN_MS)
    if output == "json":
        print_json(answer.json())
    elif output == "csv":
        answer.csv()
    else:
        answer.print(everything=options["everything"])


async def _read(target: str | None, settings: Settings, span: Span) -> PreemptionLedger:
    async with opened(target, settings) as log:
        span = await span_in(log, span)
        state, position, config = await begin_with_config(log, span)
        ledger = PreemptionLedger(state, span, config)
        after = await feed(log, position, ledger.feed, until=END, doing="reading the log")
        # It counts up to the end, unless the server says until when.
        until = span.last if None not in (span.last.offset, span.last.time_ms) else END
        ledger.state.time_ms = (await as_of(log, until, after))(ledger.state.time_ms)
        return ledger
