"""`arranger explain`: show why a job waits, or why its pods are on their nodes."""

import asyncio
import shlex
from typing import Any

import click

from arranger.cli.inputs.explainer import Explainer, as_json
from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import namespace_and_name, opened, point_option
from arranger.cli.rendering.explain_page import ExplanationPrinter
from arranger.cli.rendering.output import output_option, print_json
from arranger.errors import UsageError
from arranger.replay.explain.answer import Explanation
from arranger.replay.explain.job_history import AskedJob
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
    asked = AskedJob(name, namespace if given is None else given, options["pod"] or "", options["node"] or "")
    answer = asyncio.run(_explain(target, settings, asked, at or END))
    if output == "json":
        print_json(as_json(answer))
    else:
        ExplanationPrinter(answer, again=_again(), everything=options["everything"], scores=options["scores"]).print()


def _again() -> str:
    """The command line for the same question at another point, up to the value of `--at`."""
    context = click.get_current_context()
    words = [*context.command_path.split(), context.params["job"]]
    for option in ("target", "cluster", "config", "namespace"):
        if context.params.get(option):
            words += ["--log" if option == "target" else f"--{option}", str(context.params[option])]
    return shlex.join(words) + " --at"


async def _explain(target: str | None, settings: Settings, asked: AskedJob, point: Point) -> Explanation:
    async with opened(target, settings) as log:
        return await Explainer(log).explain(asked, point)
