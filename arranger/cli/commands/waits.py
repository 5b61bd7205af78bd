"""`arranger waits`: attribute the time that jobs waited to its causes."""

import asyncio
from typing import Any

import click

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    as_of,
    feed,
    opened,
    point_option,
    span_in,
    span_of,
)
from arranger.cli.inputs.with_config import begin_with_config
from arranger.cli.rendering.ledger_page import WaitsAnswer
from arranger.cli.rendering.output import csv_output_option, print_json
from arranger.plugins import inventory
from arranger.replay.ledger.waits import WaitLedger, rows_of
from arranger.replay.reading.history import Span
from arranger.settings import Settings


@click.command()
@log_options
@point_option("--from", "Count from this point. [default: the first event in the log]")
@point_option("--to", "Count up to this point. [default: the end of the log; of a live log, now]")
@click.option(
    "--by",
    type=click.Choice(["queue", "user", "namespace", "day", "job"]),
    default="queue",
    show_default=True,
    help="Whose waiting is added up. Days are in UTC; the user is the one of a job's label, else its namespace.",
)
@click.option(
    "--held-by",
    type=click.Choice(["queue", "user", "job"]),
    default="queue",
    show_default=True,
    help="How to name those who held the room: by queue, user or job.",
)
@click.option("--all", "everything", is_flag=True, help="Show all rows, and not only the first 30.")
@csv_output_option
def command(target: str | None, settings: Settings, output: str, **options: Any) -> None:
    r"""Say what jobs waited for, and who held the room.

    A job waits from its creation, or from when it is scheduled again, until it starts; time in which it is suspended
    doesn't count. Every millisecond has a cause, as the log recorded it, and is counted times the GPUs of the job's
    quorum: a job of 8 GPUs that waits for an hour waited 8 GPU hours. The parts sum exactly to the whole. While the
    nodes couldn't hold the quorum even without any pods, it could have used no GPUs: such time has no GPU hours.

    If nodes refuse the job for different reasons, each such node counts the same, but for those that are too small for
    the pod, full of the job's own pods, or closed (cordoned, not ready, or with a taint that the pod doesn't tolerate)
    and full of the pods of others. Room is attributed to those who held it meanwhile on any node where the job may run,
    in proportion to what they held of the resource that it lacked; pods that leave count for the job whose they are,
    also if it is suspended, has ended or was deleted. Room that they got while the job already waited has the cause
    Order, and not Room.

    \b
      arranger waits                                   by queue, and by the queues that held the room
      arranger waits --by user --from "1d ago"         whose jobs waited since yesterday, and for what
      arranger waits --by job --held-by job --all      who waited for whom
      arranger waits --by day --log run.log -o csv     day by day, for a spreadsheet
    """
    span = span_of(options["from"], options["to"])
    answer = asyncio.run(_read(target, settings, span, options["by"], options["held_by"]))
    if output == "json":
        print_json(answer.json())
    elif output == "csv":
        answer.csv()
    else:
        answer.print(everything=options["everything"])


async def _read(target: str | None, settings: Settings, span: Span, by: str, held_by: str) -> WaitsAnswer:
    async with opened(target, settings) as log:
        span = await span_in(log, span)
        state, position, config = await begin_with_config(log, span)
        ledger = WaitLedger(state, span, config, inventory().policies)
        after = await feed(log, position, ledger.feed, until=span.last, doing="reading the log")
        ledger.finish((await as_of(log, span.last, after))(ledger.state.time_ms))
    rows = rows_of(ledger.lines, by, held_by)
    return WaitsAnswer(by, held_by, ledger.begin_ms, ledger.end_ms, ledger.wait_ms, ledger.gpu_ms, rows)
