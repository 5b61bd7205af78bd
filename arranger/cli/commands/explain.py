"""`arranger explain`: show why a job waits, or why its pods are on their nodes."""

import asyncio
import functools
import shlex
from typing import Any

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    NotFound,
    before_beginning,
    begin_without,
    did_you_mean,
    feed,
    job_index_of,
    job_label,
    namespace_and_name,
    opened,
    point_option,
    present_ms,
    unknown_job,
)
from arranger.cli.inputs.start_forecast import with_forecast
from arranger.cli.rendering.explain_page import Page
from arranger.cli.rendering.output import local_time, output_option, print_json, say
from arranger.errors import UsageError
from arranger.events.log import Log
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.plugins import installed
from arranger.projections.state import State
from arranger.replay.explain.answer import Explanation, explanation, jobs_named, nearest, pod_names
from arranger.replay.explain.job_history import Asked, JobHistories
from arranger.replay.explain.story import Story
from arranger.replay.explain.waiting import Helped
from arranger.replay.reading.describe import as_object, label
from arranger.replay.reading.history import END, Point
from arranger.settings import Settings


@click.command()
@click.argument("job", metavar="[NAMESPACE/]JOB")
@log_options
@click.option("-n", "--namespace", metavar="NAME", help="The job's namespace. [default: the one that has the job]")
@click.option("--pod", metavar="NAME", help="Explain why this pod of the job is on its node.")
@click.option("--node", metavar="NAME", help="Compare this node: show why a pod isn't there, or can't go there.")
@point_option("--at", "Explain the job as of this point. [default: the end of the log]")
@click.option("--scores", is_flag=True, help="Show the scores of the nodes that could take a pod.")
@click.option("--all", "everything", is_flag=True, help="Show complete tables and lists, however long.")
@output_option
def command(target: str | None, settings: Settings, output: str, job: str, at: Point | None, **options: Any) -> None:
    r"""Say what happened to a job and why, why it waits, or why its pods are where they are, with the offsets.

    The first sentence says how the job stands. For a waiting job, a cycle is run at the point that --at names, to find
    what it lacks, and more cycles to find what would give it nodes. It says when the job is expected to start, and
    whether that is promised or a forecast. For a job with nodes, the cycles that placed it are run again. At the end is
    the job's life, and how long it was in each state.

    \b
      arranger explain train                              the job of that name, now
      arranger explain team-a/train --log run.log --at 1234
      arranger explain train --pod train-actors-3 -o json
      arranger explain train --pod train-actors-3 --node n7    why that node and not n7
      arranger explain train --scores                     with the scores of the nodes
    """
    given, name = namespace_and_name(job)
    namespace = options["namespace"]
    if given is not None and namespace not in (None, given):
        raise UsageError(
            f"job {job!r} names another namespace than --namespace {namespace}", hint="leave one of them out"
        )
    asked = Asked(name, namespace if given is None else given, options["pod"] or "", options["node"] or "")
    answer = asyncio.run(_explain(target, settings, asked, at or END))
    if output == "json":
        print_json({**as_object(answer), "time": local_time(answer.time_ms)})
    else:
        Page(answer, again=_again(), everything=options["everything"], scores=options["scores"]).print()


def _again() -> str:
    """The command line for the same question at another point, up to the value of `--at`."""
    context = click.get_current_context()
    words = [*context.command_path.split(), context.params["job"]]
    for option in ("target", "cluster", "config", "namespace"):
        if context.params.get(option):
            words += ["--log" if option == "target" else f"--{option}", str(context.params[option])]
    return shlex.join(words) + " --at"


class _Reading:
    """One pass over the log up to a point, for one question."""

    def __init__(self, state: State, asked: Asked) -> None:
        #: Deleted jobs of the name: the offset of the deletion, and the explanation just before it.
        self.gone: list[tuple[int, Explanation | NotFound]] = []
        self.job_histories = JobHistories(state, asked, policies=installed(), leaving=self._leaving)
        self._asked = asked

    def answer(self) -> Explanation | None:
        """The explanation of the job that exists at the end, or else of the last deleted one; None if there is none."""
        found = jobs_named(self.job_histories.state, self._asked.name, self._asked.namespace)
        if len(found) > 1:
            labels = ", ".join(label(job) for job in found)
            hint = "choose one with --namespace"
            raise UsageError(f"there are several jobs {self._asked.name!r}: {labels}", hint=hint)
        if found:
            return self._explained(self.job_histories.stories[found[0].uid])
        if not self.gone:
            return None
        went, answer = self.gone[-1]
        if isinstance(answer, NotFound):
            raise answer
        _say_gone(went)
        return answer

    def _leaving(self, story: Story, offset: int) -> None:
        try:
            self.gone.append((offset, self._explained(story)))
        except NotFound as problem:
            self.gone.append((offset, problem))

    def _explained(self, story: Story) -> Explanation:
        job, pod = story.state.jobs[story.uid], self._asked.pod
        if pod and pod not in (known := pod_names(story, job)):
            raise NotFound(f"job {label(job)} has no pod {pod!r}", hint=did_you_mean(nearest(pod, known)))
        retaken = self.job_histories.retaken(job.uid, None if pod else job.attempt)
        return explanation(story, job, retaken, policies=installed(), node=self._asked.node)

    def with_forecast(self, answer: Explanation) -> Explanation:
        """With a forecast of the start, if the job exists at the end and the log has none."""
        story = self.job_histories.stories.get(answer.standing.uid)
        return answer if story is None else with_forecast(answer, story.state, story.around.config)


async def _explain(target: str | None, settings: Settings, asked: Asked, point: Point) -> Explanation:
    async with opened(target, settings) as log:
        reading = await _read(log, asked, point)
        answer = reading.answer()
        if answer is not None:
            return await _with_what_would_have_helped(log, asked, reading.with_forecast(answer))
        # The job may have been deleted before the snapshot from which this pass began.
        went = await _last_gone(log, asked, point, reading.job_histories.state)
        answer = (await _read(log, asked, Point(offset=went - 1))).answer()
        if answer is None:
            name = job_label(asked.namespace, asked.name)
            raise NotFound(
                f"no state of the log has job {name!r}", hint=f"arranger events --job {name} lists its events"
            )
        _say_gone(went)
        return answer


async def _with_what_would_have_helped(log: Log, asked: Asked, answer: Explanation) -> Explanation:
    """With the changes that would have given a job nodes that failed for want of them, tried while it waited."""
    waits = [one for one in answer.waited if not one.further]
    if answer.standing.stage != Stage.FAILED or answer.standing.reason != StageReason.UNSCHEDULABLE or not waits:
        return answer
    then = (await _read(log, asked, Point(offset=waits[-1].offset))).answer()
    if then is None or then.waiting is None or then.standing.uid != answer.standing.uid:
        return answer
    helped = Helped(then.offset, then.waiting.remedies, then.waiting.tried)
    return msgspec.structs.replace(answer, would_have_helped=helped)


async def _read(log: Log, asked: Asked, point: Point) -> _Reading:
    state, position = await begin_without(log, point, asked.name)
    reading = _Reading(state, asked)
    await feed(log, position, reading.job_histories.feed, until=point, doing="reading the job's life")
    reading.job_histories.finish(functools.partial(present_ms, log, point))
    return reading


async def _last_gone(log: Log, asked: Asked, point: Point, state: State) -> int:
    """The offset at which the last job of that name was deleted. Raises `NotFound` if there was none."""
    if not state.offset:
        raise await before_beginning(log)
    job_index = await job_index_of(log, point)
    gone = [
        went
        for (namespace, name), went in job_index.jobs.items()
        if name == asked.name and asked.namespace in (None, namespace)
    ]
    if not gone:
        raise unknown_job(job_label(asked.namespace, asked.name), job_index)
    return max(gone)


def _say_gone(went: int) -> None:
    say(f"arranger: the job was deleted at offset {went}; this is its state just before", err=True)
