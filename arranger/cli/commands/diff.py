"""`arranger diff`: show the changes between two points of a log, or between two plans."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    AT_TYPE,
    as_of,
    feed,
    opened,
)
from arranger.cli.inputs.with_config import stand_with_config
from arranger.cli.rendering.output import local_time, output_option, print_json, print_table, print_text, say
from arranger.cli.rendering.plans import print_jobs, print_summary
from arranger.errors import UsageError
from arranger.events.kinds import kind_of
from arranger.events.log import Entry, Log, Position
from arranger.model.text import few
from arranger.plugins import installed
from arranger.replay.reading.difference import ChangedObjects, Difference, Picture, difference, picture
from arranger.replay.reading.history import Point
from arranger.replay.what_if.one_cycle import CyclePlan, JobPlan, differences
from arranger.replay.what_if.simulation import JobOutcome, PlacedPod
from arranger.settings import Settings

#: The number of names shown of a group of jobs or nodes, and of a queue.
_NAMED = 6
#: A time before now, which begins like a flag.
_AGO = re.compile(r"-\d[\d.a-z]*")


class _Diff(click.Command):
    """Takes -5m for a point in time, as options do, and not for flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"{of[1:]} ago" if _AGO.fullmatch(of) else of for of in args])


@click.command(cls=_Diff)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@log_options
@output_option
def command(target: str | None, settings: Settings, one: str, other: str, output: str) -> None:
    r"""Show what changed from A to B: two points of the log, or two plans.

    A point is an offset or a time, as for the option --at of other commands. For each job, diff shows changes of the
    stage, the schedule, the nodes that the job got and left, and the reason why the job waits. For each node, it shows
    changes of health, taints, labels, capacity and use; for each queue, of its fields, use, share, demand and jobs. It
    also shows the order of the waiting jobs. It groups jobs, queues and nodes that changed in the same way.

    Plans are files that `arranger what-if -o json` or `arranger simulate -o json` wrote. From a what-if, diff takes the
    plan with the changes. For each job on which the plans differ, diff shows the job's outcome in both. To compare a
    cycle with the same cycle under another policy, run `arranger what-if --at OFFSET --queue-policy NAME`.

    \b
      arranger diff 1000 2000 --log run.log
      arranger diff "2h ago" "1h ago" -o json
      arranger diff -2h -1h                               the same times
      arranger diff before.json after.json                two plans
    """
    files = [Path(name) for name in (one, other)]
    if all(path.is_file() for path in files):
        _diff_plans(files, output)
        return
    points = []
    for name, path in zip((one, other), files, strict=True):
        if path.is_file() or path.suffix == ".json":
            hint = "name two points, or two files" if path.is_file() else "arranger what-if -o json writes one"
            raise UsageError(
                f"{name} is {'a file' if path.is_file() else 'no file'}, and the other isn't one", hint=hint
            )
        points.append(AT_TYPE.convert(name, None, None))
    found = asyncio.run(_diff(target, settings, points))
    if output == "json":
        times = {"beforeTime": local_time(found.before[1]), "afterTime": local_time(found.after[1])}
        print_json({**msgspec.to_builtins(found), **times})
    else:
        _print(found)


async def _diff(target: str | None, settings: Settings, points: Sequence[Point]) -> Difference:
    """The changes from the state at the first point to that at the second; either point may be earlier."""
    async with opened(target, settings) as log:
        first = await _picture(log, points[0])
        second = await _picture(log, points[1])
        between = Counter[str]()

        def count(entry: Entry) -> None:
            between.update(map(kind_of, entry.batch.events))

        low, high = sorted((first[0].offset, second[0].offset))
        start = first[1] if first[0].offset <= second[0].offset else second[1]
        if low < high:
            await feed(log, start, count, until=Point(offset=high), doing="counting the events between")
    return difference(first[0], second[0], between)


async def _picture(log: Log, point: Point) -> tuple[Picture, Position]:
    state, last, config = await stand_with_config(log, point, doing="going to the point")
    return picture(state.as_of((await as_of(log, point, last))(state.time_ms)), config, installed()), last


def _print(found: Difference) -> None:
    for name, (offset, time_ms) in (("before", found.before), ("after", found.after)):
        print_text(f"{name:6}  offset {offset}, {local_time(time_ms)}", indent=8)
    counted = Counter(found.events)
    told = ", ".join(f"{count} {kind}" for kind, count in counted.most_common())
    print_text(f"between {counted.total()} events{f': {told}' if told else ''}", indent=8)
    say()
    _print_changed("job", found.jobs)
    say()
    _print_queue(found)
    if found.queues:
        say()
        _print_changed("queue", found.queues)
    say()
    _print_changed("node", found.nodes)


def _print_changed(kind: str, groups: Sequence[ChangedObjects]) -> None:
    rows = [
        (few(group.names, _NAMED) if not number else "", change.what, change.before or "-", change.after or "-")
        for group in groups
        for number, change in enumerate(group.changes)
    ]
    print_table((kind, "what", "before", "after"), rows, empty=f"no {kind} changed")


def _print_queue(found: Difference) -> None:
    rows = [
        (name, len(jobs), few(jobs, _NAMED) or "-")
        for name, jobs in (("before", found.queue_before), ("after", found.queue_after))
    ]
    print_table(("queue", "jobs", "in order"), rows, right=("jobs",))
    if found.moved:
        print_text(f"these changed their order: {few(found.moved, _NAMED)}")


# --- plans ---------------------------------------------------------------------------------------------------


def _diff_plans(files: Sequence[Path], output: str) -> None:
    one, other = (_plan(path) for path in files)
    if output == "json":
        print_json({"one": one, "other": other, "differences": differences(one, other)})
        return
    for name, path in zip("AB", files, strict=True):
        print_text(f"{name}  {path}", indent=3)
    say()
    print_summary(one, other, ("A", "B"))
    say()
    print_jobs(one, other, everything=False, heads=("A", "B"))


class _PlanFile(msgspec.Struct):
    """The compared parts of the JSON output of either command."""

    whatIf: CyclePlan | None = None  # the name in the JSON
    jobs: tuple[JobOutcome, ...] | None = None


def _plan(path: Path) -> CyclePlan:
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_PlanFile)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} has no plan: {problem}", hint=_WRITTEN_BY) from problem
    if read.whatIf is not None:
        return read.whatIf
    if read.jobs is not None:
        return _simulated(read.jobs)
    raise UsageError(f"{path} has no plan", hint=_WRITTEN_BY)


_WRITTEN_BY = "arranger what-if -o json and arranger simulate -o json write plans"


def _simulated(jobs: Sequence[JobOutcome]) -> CyclePlan:
    plans = tuple(
        JobPlan(
            job=f"{job.namespace}/{job.name}",
            queue=job.queue_position,
            priority=0,
            queue_policy="",
            desired=len(job.placed) + len(job.unplaced),
            held=0,
            placed=len(job.placed),
            nodes=_by_node(job.placed),
            waits=job.message if job.unplaced else "",
        )
        for job in jobs
    )
    return CyclePlan(
        offset=0,
        time_ms=0,
        queue_policy="",
        pod_policy="",
        weights=(),
        pods=sum(plan.placed for plan in plans),
        given="",
        quorums=sum(bool(plan.placed) for plan in plans),
        waiting=sum(bool(plan.waits) for plan in plans),
        jobs=plans,
    )


def _by_node(pods: Sequence[PlacedPod]) -> dict[str, str]:
    nodes: dict[str, list[str]] = {}
    for pod in pods:
        nodes.setdefault(pod.node, []).append(pod.pod)
    return {node: ", ".join(names) for node, names in sorted(nodes.items())}
