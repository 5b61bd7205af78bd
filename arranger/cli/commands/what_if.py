"""`arranger what-if`: repeat a past cycle with another policy or configuration, or with other jobs, nodes or queues."""

import asyncio
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from arranger.cli.inputs.alternative import other_configuration
from arranger.cli.inputs.cycle_at import cycle_at
from arranger.cli.inputs.flags import AMOUNT_TYPE, completing
from arranger.cli.inputs.reading import (
    AT_ALLOWED,
    AT_TYPE,
    DURATION_TYPE,
    NotFound,
    TextType,
    end_offset,
    feed,
    opened,
    point_option,
    progress,
)
from arranger.cli.inputs.variation import Otherwise, job_edit
from arranger.cli.rendering.output import local_time, output_option, print_json
from arranger.cli.rendering.plot import check_plot, plot
from arranger.cli.rendering.what_if_page import Sequel, WhatIfAnswer
from arranger.errors import LogError, UsageError
from arranger.events.log import Log, Position
from arranger.model.config import CycleConfig
from arranger.plugins import inventory
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.reading.history import END, Point
from arranger.replay.reading.recording import Recording
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.one_cycle import Inputs, Variation, after_dry_runs, changed_plan, take_plan, vary
from arranger.replay.what_if.overrides import Overrides
from arranger.replay.what_if.utilisation import Meter, Utilisation, likeness, typical_pods
from arranger.scheduling import Mix, Policies
from arranger.settings import Settings

_DRAINED = "drained"


class Until(msgspec.Struct, frozen=True):
    """How far to continue: to a point of the log, for a duration, or (with neither) until no further event is due."""

    at: Point | None = None
    span_ms: int | None = None


def _until(text: str) -> Until:
    if text == _DRAINED:
        return Until()
    try:
        return Until(span_ms=DURATION_TYPE.read(text))
    except ValueError:
        return Until(at=AT_TYPE.read(text))


@click.command("what-if")
@other_configuration
@point_option("--at", "Re-run the cycle recorded at this point, or run a new one there. [default: the end of the log]")
@click.option(
    "--with", "manifests", multiple=True, metavar="FILE", help="Add or change these TYJobs, Nodes, Pods and Queues."
)
@click.option(
    "--with-node",
    "copies",
    multiple=True,
    metavar="NODE",
    help="Add a copy of this node, without its pods and devices.",
)
@click.option("--without", "jobs", multiple=True, metavar="[NS/]JOB", help="Leave out this job and its pods.")
@click.option("--without-node", "nodes", multiple=True, metavar="NODE", help="Leave out this node and its pods.")
@click.option("--without-queue", "queues", multiple=True, metavar="QUEUE", help="Leave out this queue.")
@click.option("--job", metavar="[NS/]JOB", help="Change this job by --priority, --queue and --gpus.")
@click.option("--priority", type=click.IntRange(1, 10), metavar="N", help="With --job: its priority, 1 to 10.")
@click.option("--queue", metavar="QUEUE", help="With --job: its queue.")
@click.option(
    "--gpus",
    type=AMOUNT_TYPE,
    metavar="N",
    help="With --job: GPUs of each of its pods that asks for any.",
)
@click.option(
    "--until",
    type=TextType("until", _until, f"not an end; allowed: a duration such as 2h, {_DRAINED}, or {AT_ALLOWED}"),
    shell_complete=completing(lambda: [_DRAINED]),
    metavar="OFFSET|TIME|DURATION|drained",
    help="Continue both runs up to this point, for this long (2h), or until nothing more happens.",
)
@click.option(
    "--lasting",
    type=DURATION_TYPE,
    metavar="DURATION",
    help="With --until: how long an attempt lasts if its end isn't in the log. Its deadline ends it in any case. "
    "[default: to the end of the run]",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --until: plot both runs over time to FILE.png or FILE.svg. Needs matplotlib.",
)
@click.option("--all", "everything", is_flag=True, help="Also show jobs for which the plans agree.")
@output_option
def command(target: str | None, settings: Settings, other: Overrides, output: str, **options: Any) -> None:
    r"""Re-run a past cycle as it was and with changes, and show both plans side by side.

    If --at is the offset of a cycle or of one of its decisions, that cycle runs again on the same state as before. At
    any other point, a new cycle runs on the state there, with the configuration of the last cycle before that point.

    A policy given with --queue-policy or --policy applies to the jobs that name none, or, with --every-job, to all
    jobs. If a TYJob in the FILE of --with exists at that point, it gets the spec in FILE. --job changes one job
    without a file; pods that have nodes keep them. If a Node in FILE exists, it
    gets the labels and amounts in FILE, and keeps its other labels and amounts. It also keeps its taints, its
    conditions and its field unschedulable, unless FILE sets them. A Node with a metadata.uid, as `kubectl get -o yaml`
    prints it, replaces the existing node, and a Queue always replaces the existing queue. A new TYJob without
    creationTimestamp counts as created at that point. The output lists all edits.

    --preemption Off takes no room back. --backfill Off lets any job go before one with a reservation, --backfill Known
    only those that are expected to end before it starts, and --backfill Guests also those that leave again for it.

    With --until, both plans continue as runs: one without changes, and one with them. TYJobs, nodes and other owners'
    pods that appear later in the log appear in both runs at the same times. A cycle runs after each change. Each
    attempt of a job holds its nodes for as long as it did in the log, from its placement to the end of its last pod.
    The output compares how long jobs wait, how many GPUs are in use, how many are idle in fragments that typical pods
    with GPUs can't use, and when the last job ends. It also shows how closely the run without changes matches the log.

    \b
      arranger what-if --at 4711 --queue-policy DRF          the cycle at offset 4711, under DRF
      arranger what-if --at "10m ago" --without team-a/train --log run.log
      arranger what-if --job team-a/train --priority 7 --gpus 4
      arranger what-if --with my-job.yaml --with-node n3     one more job and a node like n3, now
      arranger what-if --at "2h ago" --preemption Off --until 2h
      arranger what-if --with queue.yaml --until 2h          another weight or capability, for two hours
      arranger what-if --at 4711 --policy LeaderFirst --until drained --plot both.png
    """
    _check(options)
    without = (options["jobs"], options["nodes"], options["queues"])
    otherwise = Otherwise(
        other,
        options["manifests"],
        *without,
        copies=options["copies"],
        schedulers=settings.schedulers,
        edit=job_edit(options),
    )
    asked = _Asked(options["at"], otherwise, options["until"], options["lasting"])
    answer = asyncio.run(_what_if(target, settings, asked))
    if options["picture"] is not None and answer.sequel is not None:
        plot(options["picture"], [("without changes", answer.sequel.one), ("what if", answer.sequel.other)])
    if output == "json":
        print_json(answer.json())
    else:
        answer.print(everything=options["everything"])


def _check(options: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for options that need another one, and if a plot can't be made."""
    for name, flag in (("lasting", "--lasting"), ("picture", "--plot")):
        if options[name] is not None and options["until"] is None:
            raise click.UsageError(f"{flag} needs --until")
    if options["picture"] is not None:
        check_plot(options["picture"])


class _Asked(msgspec.Struct, frozen=True):
    """The point, the changes there, and how far to continue."""

    at: Point | None
    otherwise: Otherwise
    until: Until | None
    lasting_ms: int | None


async def _what_if(target: str | None, settings: Settings, asked: _Asked) -> WhatIfAnswer:
    policies = inventory().policies
    async with opened(target, settings) as log:
        inputs, record, state, position = await cycle_at(log, asked.at)
        content = snapshot.encode(state)
        changed = snapshot.restore(content)
        edits: list[str] = []
        try:
            variation = asked.otherwise.variation(changed, inputs.time_ms, edits)
        except NotFound as problem:
            if not inputs.cycle:
                raise
            which = f"{problem.message}, on whose state the cycle at offset {inputs.cycle} was taken"
            raise NotFound(which, hint=problem.hint) from problem
        recording = await _read_on(log, position, content, asked, inputs) if asked.until is not None else None
    had = policies.closest(inputs.config)
    usual = had.usable(inputs.config)
    one, events = take_plan(state, usual, inputs.time_ms, policies=had)
    vary(changed, variation, inputs.time_ms)
    config, by = variation.overrides.of(inputs.config, policies)
    other, supposed = changed_plan(changed, state, one, config, by)
    same = events == record if record is not None else None
    later = after_dry_runs(changed, state, one, other, config=config, policies=by)
    answer = WhatIfAnswer(
        inputs,
        asked.otherwise.words(state),
        one,
        other,
        same,
        edits,
        supposed,
        asked.otherwise.changed_job(state),
        later,
    )
    if recording is not None:
        answer.lasting_ms = asked.lasting_ms
        future = Future(recording.observations, recording.intervals, asked.lasting_ms)
        horizon_ms = _horizon_ms(asked, inputs, recording)
        typical = typical_pods(recording.shapes(state))
        go_on = functools.partial(_go_on, inputs=inputs, future=future, horizon_ms=horizon_ms, typical=typical)
        as_it_was, what_if = go_on(state, usual, had, Variation()), go_on(changed, config, by, variation)
        alike = likeness(recording.starts(as_it_was.end_ms), as_it_was.starts)
        answer.sequel = Sequel(as_it_was, what_if, alike, drained=asked.until == Until())
    return answer


def _go_on(
    state: State,
    config: CycleConfig,
    policies: Policies,
    variation: Variation,
    *,
    inputs: Inputs,
    future: Future,
    horizon_ms: int | None,
    typical: Mix,
) -> Utilisation:
    meter, begin_ms = Meter(typical, inputs.time_ms), inputs.time_ms
    continuation = Continuation(
        state, future, config, meter, begin_ms=begin_ms, until_ms=horizon_ms, variation=variation, policies=policies
    )
    doing = "continuing with changes" if variation else "continuing as it was"
    with progress(doing, len(future.observations)) as moved:
        return continuation.run(moved, cycle_first=bool(inputs.cycle))


async def _read_on(log: Log, after: Position, content: bytes, asked: _Asked, inputs: Inputs) -> Recording:
    """Record the log after the position to its end, because the ends of jobs may come after the horizon."""
    assert asked.until is not None
    offset = asked.until.at.offset if asked.until.at is not None else None
    if asked.until.at == END:
        offset = await end_offset(log)
    recording = Recording(snapshot.restore(content), begin_ms=inputs.time_ms, until_offset=offset)
    await feed(log, after, recording.feed, until=END, doing="reading the later events")
    recording.finish()
    return recording


def _horizon_ms(asked: _Asked, inputs: Inputs, recording: Recording) -> int | None:
    until = asked.until
    assert until is not None
    if until.span_ms is not None:
        return inputs.time_ms + until.span_ms
    if until.at is None:
        return None
    moment_ms = until.at.time_ms or recording.until_time_ms
    if not moment_ms:
        raise LogError(f"--until: the log has no offset {until.at.offset} after the point", hint="use a later one")
    if moment_ms < inputs.time_ms:
        raise UsageError(f"--until: {local_time(moment_ms)} is before the point, {local_time(inputs.time_ms)}")
    return moment_ms
