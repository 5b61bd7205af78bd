"""`arranger replay`: show the cluster as Arranger saw it at a point of the log."""

import asyncio

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    point_option,
)
from arranger.cli.inputs.with_config import seen_at
from arranger.cli.rendering.output import local_time, output_option, print_json, say
from arranger.cli.rendering.overview_page import print_overview
from arranger.plugins import installed
from arranger.projections import snapshot
from arranger.replay.reading.history import Point
from arranger.replay.reading.overview import overview
from arranger.settings import Settings


@click.command()
@log_options
@point_option("--at", "The point to show. [default: the end of the log]")
@click.option("--all", "everything", is_flag=True, help="Show all jobs and nodes, however many, with whole messages.")
@click.option("--digest-only", is_flag=True, help="Print only the offset and the digest of the state there.")
@output_option
def command(
    target: str | None, settings: Settings, *, at: Point | None, everything: bool, digest_only: bool, output: str
) -> None:
    r"""Show the cluster as Arranger saw it at a point of the log: totals, jobs in queue order, nodes and their use.

    As many jobs and nodes are shown as fit on a screen; --all shows the rest. The command folds the log up to that
    point, from the nearest snapshot. Resources that a decision has assigned count as used, even before they are seen in
    use. So do the resources of other owners' pods; the output names the largest of those pods.

    \b
      arranger replay                                     the end of the log in Redis
      arranger replay --log run.log --at 1234             a file, after the event at offset 1234
      arranger replay --at "10m ago" -o json              ten minutes ago
    """
    state, seen, config = asyncio.run(seen_at(target, settings, at))
    if digest_only:
        digest = snapshot.digest(state)
        if output == "json":
            print_json({"offset": state.offset, "epoch": state.epoch, "digest": digest})
        else:
            say(f"{state.offset} {digest}")
        return
    found = overview(state, config, installed(), seen=seen)
    if output == "json":
        print_json({**msgspec.to_builtins(found), "time": local_time(found.time_ms)})
    else:
        print_overview(found, everything=everything)
