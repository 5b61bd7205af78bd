"""`arranger top`: show who holds GPUs, by queue, namespace, user or job."""

import asyncio
from typing import Any

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    point_option,
    resource_option,
)
from arranger.cli.inputs.with_config import seen_at
from arranger.cli.rendering.output import local_time, output_option, print_json
from arranger.cli.rendering.queue_page import print_holdings
from arranger.replay.reading.history import Point
from arranger.replay.reading.queues import holdings
from arranger.scheduling import HolderKind
from arranger.settings import Settings


@click.command()
@log_options
@point_option("--at", "The point to show. [default: the end of the log]")
@click.option(
    "--by",
    type=click.Choice([str(kind) for kind in HolderKind]),
    default=str(HolderKind.QUEUE),
    show_default=True,
    help="Whose jobs are added up. A job's user is the value of its label arranger.dev/user, or its namespace if it "
    "has no such label.",
)
@resource_option("to rank by")
@click.option("--all", "everything", is_flag=True, help="Show all holders, and not only the largest 30.")
@output_option
def command(target: str | None, settings: Settings, at: Point | None, by: str, **options: Any) -> None:
    r"""Show who holds GPUs, the largest holders first: queues, namespaces, users or jobs.

    A job holds what its pods with nodes request. The row of a queue counts its own jobs, and not those of the queues
    below it. The last rows count the pods that fill no slot of a job: those that leave, whose room another job may have
    already, and those of other owners.

    \b
      arranger top                                        by queue, now
      arranger top --by user --at "1h ago"                by submitter, an hour ago
      arranger top --by job --resource cpu --log run.log  jobs by their cpu, at the end of a log file
      arranger top --by namespace -o json | jq '.holders[0]'

    \b
    14 of 16 GPUs are in use:
      $ arranger top
      QUEUE         JOBS  PODS  GPUS  OF ALL   CPU  MEMORY
      robots           1     9     9     56%    18    36Gi
      plans            1     3     3     19%     6    12Gi
      vision           1     2     2     12%     4     8Gi
      (other pods)     -     1     0      0%  500m       0
    """
    state = asyncio.run(seen_at(target, settings, at)).seen
    found = holdings(state, HolderKind(by), options["resource"])
    if options["output"] == "json":
        print_json({**msgspec.to_builtins(found), "time": local_time(found.time_ms)})
    else:
        print_holdings(found, everything=options["everything"])
