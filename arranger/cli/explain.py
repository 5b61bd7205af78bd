"""`arranger explain`: why a job waits, or why its pods are where they are."""

import asyncio
import shlex
from typing import Any

import click
import msgspec

from arranger.cli.explain_page import Page
from arranger.cli.output import At, local_time, output_option, print_json
from arranger.cli.reading import (
    NotFound,
    before_beginning,
    begin,
    begin_early,
    feed,
    log_options,
    opened,
    point_of,
    point_option,
    roster_of,
    snapshots,
    unknown_job,
)
from arranger.errors import UsageError
from arranger.events.log import Log, Position
from arranger.plugins import installed
from arranger.projections.jobs import JobRecord, PlaceKey
from arranger.projections.state import State
from arranger.replay.choices import Choices
from arranger.replay.describe import label
from arranger.replay.explain import (
    Explanation,
    explanation,
    jobs_named,
    nearest_pods,
    place_of_pod,
    wanted_placements,
)
from arranger.replay.history import Journey, Point
from arranger.replay.story import Story
from arranger.settings import Settings


@click.command()
@click.argument("job", metavar="[NAMESPACE/]JOB")
@log_options
@click.option("-n", "--namespace", metavar="NAME", help="The job's namespace. [default: whichever has the job]")
@click.option("--pod", metavar="NAME", help="Why this one of its pods is where it is.")
@point_option("--at", "Explain it as of this point. [default: the end of the log]")
@click.option("--all", "everything", is_flag=True, help="Leave nothing out of the tables, and cut no long list.")
@output_option
def command(target: str | None, settings: Settings, output: str, job: str, at: At | None, **options: Any) -> None:
    r"""Say why a job waits, or why each of its pods is where it is, with the decisions and their offsets.

    A cycle is taken at that point to say what the job lacks there; the cycles that placed it are taken again for the
    scores of the nodes. Then its life: what happened to it, and how long it was in each state.

    \b
      arranger explain train                              the job of that name, now
      arranger explain team-a/train --log run.log --at 1234
      arranger explain train --pod train-actors-3 -o json
    """
    place, slash, name = job.rpartition("/")
    namespace = options["namespace"]
    if slash and namespace not in (None, place):
        raise UsageError(
            f"job {job!r} names another namespace than --namespace {namespace}", hint="leave one of them out"
        )
    seeker = _Seeker(name, place if slash else namespace, point_of(at), options["pod"])
    answer = asyncio.run(_explain(target, settings, seeker))
    if output == "json":
        print_json({**msgspec.to_builtins(answer), "time": local_time(answer.told_ms)})
    else:
        Page(answer, again=_again(), everything=options["everything"]).print()


def _again() -> str:
    """The command line that asks the same of another point, up to the value of --at."""
    context = click.get_current_context()
    words = [*context.command_path.split(), context.params["job"]]
    for option in ("target", "cluster", "config", "namespace"):
        if context.params.get(option):
            words += ["--log" if option == "target" else f"--{option}", str(context.params[option])]
    return shlex.join(words) + " --at"


class _Seeker(msgspec.Struct):
    """What is asked for."""

    name: str
    namespace: str | None
    point: Point
    pod: str | None

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


async def _explain(target: str | None, settings: Settings, asked: _Seeker) -> Explanation:
    async with opened(target, settings) as log:
        uid = await _find(log, asked)
        state, position = await _before_job(log, asked.point, uid)
        story = Story(state, uid)
        await feed(log, position, story.feed, until=asked.point, doing="reading the job's life")
        story.finish()
        job = story.state.jobs.get(uid)
        if job is None:
            raise NotFound(
                f"job {asked.label!r} was never seen to last",
                hint=f"arranger events --job {asked.label} shows what was",
            )
        choices = await _choices(log, story, job, asked.pod)
        return explanation(story, job, choices, policies=installed())


async def _find(log: Log, asked: _Seeker) -> str:
    """The job's UID. A job that is gone at the end of the log is explained as of just before it went."""
    state, position = await begin(log, asked.point)
    journey = Journey(state, asked.point)
    await feed(log, position, journey.feed, until=asked.point, doing="going to the point")
    found = jobs_named(journey.state, asked.name, asked.namespace)
    if len(found) > 1:
        places = ", ".join(label(job) for job in found)
        raise UsageError(f"there are several jobs {asked.name!r}: {places}", hint="say which with --namespace")
    if found:
        return found[0].uid
    if not journey.state.offset:
        raise await before_beginning(log)
    roster = await roster_of(log, asked.point)
    gone = [
        entry
        for (namespace, name), entry in roster.jobs.items()
        if name == asked.name and asked.namespace in (None, namespace)
    ]
    if not gone:
        raise unknown_job(asked.label, roster)
    uid, went = max(gone, key=lambda job: job[1])
    click.echo(f"arranger: the job was deleted at offset {went}; this is how it stood just before", err=True)
    asked.point = Point(offset=went - 1)
    return uid


async def _before_job(log: Log, point: Point, uid: str) -> tuple[State, Position]:
    """The newest state from before the job came; else the oldest there is."""
    async for state, position in snapshots(log, at_most=point.offset):
        if point.covers(state) and uid not in state.jobs:
            return state, position
    return await begin_early(log, None)


async def _choices(log: Log, story: Story, job: JobRecord, pod: str | None) -> Choices | None:
    """The story's placements explained, each at the base of its cycle; None when there are none."""
    place: PlaceKey | None = None
    attempt = job.attempt
    if pod is not None:
        known = place_of_pod(story, job, pod)
        if known is None:
            close = nearest_pods(story, job, pod)
            hint = f"did you mean {' or '.join(close)}?" if close else ""
            raise NotFound(f"job {label(job)} has no pod {pod!r}", hint=hint)
        place, attempt = known
    placements = wanted_placements(story, place, attempt)
    if not placements:
        return None
    state, position = await begin_early(log, min(placement.base for placement in placements))
    choices = Choices(state, placements, place=place, policies=installed())
    until = Point(offset=max(choices.last_base, position.offset))
    await feed(log, position, choices.feed, until=until, doing="taking its cycles again")
    return choices
