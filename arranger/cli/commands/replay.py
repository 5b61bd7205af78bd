"""`arranger replay`: show the cluster as Arranger saw it at a point of the log."""

import asyncio

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    point_option,
    state_at,
)
from arranger.cli.rendering.output import (
    local_time,
    output_option,
    print_json,
    print_table,
    print_text,
    resource_columns,
    say,
)
from arranger.model.quantity import amount_text
from arranger.model.text import counted
from arranger.plugins import installed
from arranger.projections import snapshot
from arranger.replay.reading.describe import amounts_text
from arranger.replay.reading.history import Point
from arranger.replay.reading.overview import JobLine, NodeLine, Overview, overview
from arranger.settings import Settings


@click.command()
@log_options
@point_option("--at", "The point to show. [default: the end of the log]")
@click.option("--digest-only", is_flag=True, help="Print only the offset and the digest of the state there.")
@output_option
def command(target: str | None, settings: Settings, at: Point | None, digest_only: bool, output: str) -> None:
    r"""Show the cluster as Arranger saw it at a point of the log: jobs in queue order, nodes and their use.

    The command folds the log up to that point, from the nearest snapshot. Resources that a decision has assigned count
    as used, even before they are seen in use. So do the resources of other owners' pods; the output names the largest
    of those pods.

    \b
      arranger replay                                     the end of the log in Redis
      arranger replay --log run.log --at 1234             a file, after the event at offset 1234
      arranger replay --at "10m ago" -o json              ten minutes ago
    """
    state = asyncio.run(state_at(target, settings, at))
    if digest_only:
        digest = snapshot.digest(state)
        if output == "json":
            print_json({"offset": state.offset, "epoch": state.epoch, "digest": digest})
        else:
            say(f"{state.offset} {digest}")
        return
    seen = overview(state, installed())
    if output == "json":
        print_json({**msgspec.to_builtins(seen), "time": local_time(seen.time_ms)})
    else:
        _print(seen)


def _print(seen: Overview) -> None:
    print_text(
        f"offset {seen.offset} of epoch {seen.epoch}, {local_time(seen.time_ms)}, digest {seen.digest}", indent=2
    )
    if not seen.synced:
        print_text("not everything had been listed in this epoch yet, so there were no decisions")
    say()
    print_table(
        ("position", "job", "stage", "schedule", "priority", "attempt", "pods", "message"),
        [_job_cells(job) for job in seen.jobs],
        right=("position", "priority", "attempt"),
        empty="no jobs",
    )
    say()
    resources = resource_columns(name for node in seen.nodes for name in node.used)
    print_table(
        ("node", "health", *resources),
        [_node_cells(node, resources) for node in seen.nodes],
        right=resources,
        empty="no nodes",
    )
    if seen.other_pods:
        say()
        print_text(_others(seen))


def _others(seen: Overview) -> str:
    """The use by foreign pods in words, with the largest ones by name."""
    named = [
        f"{pod.namespace}/{pod.name} ({amounts_text(tuple(pod.holds.items()))} on {pod.node})"
        for pod in seen.largest_other_pods
    ]
    more = seen.other_pods - len(named)
    be, hold = ("is", "holds") if seen.other_pods == 1 else ("are", "hold")
    return (
        f"{counted(seen.other_pods, 'pod')} that {be} not Arranger's also {hold} resources: "
        f"{', '.join(named)}{f' and {more} smaller' if more else ''}"
    )


def _job_cells(job: JobLine) -> tuple[object, ...]:
    pods = f"{job.pods_seen} seen, {job.pods_placed} placed of {job.pods_desired}"
    name = f"{job.namespace}/{job.name}"
    return (job.queue or "-", name, job.stage, job.schedule_state, job.priority, job.attempt, pods, job.message)


def _node_cells(node: NodeLine, resources: tuple[str, ...]) -> tuple[object, ...]:
    health = "gone" if not node.present else "ready" if node.ready else "not ready"
    health += ", cordoned" if node.cordoned else ""
    health += "".join(f", taint {taint}" for taint in node.taints)
    use = (
        f"{amount_text(name, node.used.get(name, 0))}/{amount_text(name, node.allocatable.get(name, 0))}"
        if name in node.used
        else "-"
        for name in resources
    )
    return (node.name, health, *use)
