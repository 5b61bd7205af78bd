"""`arranger bisect`: find the event at which a condition starts to hold, or the first cycle with different plans."""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from arranger.cli.inputs.alternative import other_configuration
from arranger.cli.inputs.reading import (
    Begun,
    NotFound,
    begin,
    begin_at_span,
    begin_early,
    feed,
    job_index_of,
    opened,
    point_option,
    position_before,
    span_in,
    span_of,
    unknown_job_at,
    unknown_node,
)
from arranger.cli.inputs.variation import queues_in, unknown_queue
from arranger.cli.inputs.with_config import begin_with_config
from arranger.cli.rendering.bisect_page import BisectAnswer, ToldCondition
from arranger.cli.rendering.output import output_option, print_json, print_text, say
from arranger.errors import UsageError
from arranger.events import kinds as k
from arranger.events.log import Log
from arranger.messages.faults import faults_text
from arranger.model.job import ScheduleState, Stage
from arranger.model.quantity import QuantityError, amount
from arranger.model.text import counted
from arranger.plugins import installed
from arranger.replay.bisect import job_conditions, node_conditions
from arranger.replay.bisect.conditions import All, Condition, Negated
from arranger.replay.bisect.cycle_conditions import QuorumFits, WouldBePlaced
from arranger.replay.bisect.jobs_by_name import FirstSeen, JobsByName
from arranger.replay.bisect.search import Alternative, ConditionRun, FoundEvent, Refinement, Search, first_disagreement
from arranger.replay.reading.history import Point, Span
from arranger.replay.reading.verify import PlanDifference, Survey
from arranger.replay.what_if.overrides import OtherQueues, Overrides
from arranger.settings import Settings

#: Parameters that test a job or a node.
_JOB_TESTS = (
    "stage",
    "schedule",
    "waits",
    "reason",
    "placed",
    "fits",
    "would_place",
    "blocked",
    "preempted",
    "reserved",
)
_NODE_TESTS = ("cordoned", "tainted", "not_ready", "free_gpu", "free")
_COMPARISON = re.compile(r"\s*(<=|>=|<|>|=)\s*(\S+)\s*")

#: Makes the condition that a job's quorum fits, which begins with the settings of the last cycle before the search.
_Fits = Callable[[k.JobSeen], QuorumFits]
#: Option → the condition on a job that it names, made from the job as first seen and the option's value.
_JOB_CONDITIONS: dict[str, Callable[[k.JobSeen, Any, _Fits], Condition]] = {
    "stage": lambda job, stage, _: job_conditions.in_stage(job, stage),
    "schedule": lambda job, state, _: job_conditions.in_schedule_state(job, state),
    "waits": lambda job, reason, _: job_conditions.waits(job, reason),
    "placed": lambda job, *_: job_conditions.placed(job),
    "fits": lambda job, _, fits: fits(job),
    "would_place": lambda job, _, fits: WouldBePlaced(fits(job)),
    "preempted": lambda job, *_: job_conditions.preempted(job),
    "reserved": lambda job, *_: job_conditions.RoomIsReserved(job),
    "gone": lambda job, *_: Negated(job_conditions.there(job)),
}
#: The same for conditions on a node, made from its name.
_NODE_CONDITIONS: dict[str, Callable[[str, Any], Condition]] = {
    "cordoned": lambda node, _: node_conditions.cordoned(node),
    "tainted": node_conditions.tainted,
    "not_ready": lambda node, _: node_conditions.not_ready(node),
    "free": lambda node, text: node_conditions.free(node, *_comparison("free", text)),
    "free_gpu": lambda node, text: node_conditions.free(node, *_comparison("free_gpu", text)),
    "gone": lambda node, _: Negated(node_conditions.node_there(node)),
}


def _choice(values: type[Stage] | type[ScheduleState]) -> click.Choice[str]:
    return click.Choice([str(value) for value in values], case_sensitive=False)


@click.command()
@other_configuration
@click.option("--with", "manifests", multiple=True, metavar="FILE", help="Re-run the cycles with these Queues.")
@click.option("--without-queue", "queues", multiple=True, metavar="QUEUE", help="Re-run the cycles without this queue.")
@point_option("--from", "Search from this point. [default: the first event in the log]")
@point_option("--to", "Search up to this point. [default: the last event]")
@click.option("--job", metavar="[NS/]NAME", help="Search for a condition on this job:")
@click.option("--stage", type=_choice(Stage), help="… the job is in this stage.")
@click.option("--schedule", type=_choice(ScheduleState), help="… the job is in this schedule state.")
@click.option("--waits", is_flag=True, help="… a cycle gave a reason why the job, or the rest of it, waits.")
@click.option(
    "--reason",
    metavar="TEXT",
    help="… the job waits for a reason of this kind (such as Insufficient) or on this subject (such as gpu).",
)
@click.option("--placed", is_flag=True, help="… its quorum has nodes.")
@click.option("--preempted", is_flag=True, help="… it gave all its room to another job, and got no nodes since.")
@click.option("--reserved", is_flag=True, help="… room is reserved for it.")
@click.option("--fits", is_flag=True, help="… its quorum fits if no job goes before it. The check runs cycles.")
@click.option(
    "--would-place", is_flag=True, help="… a cycle would place its quorum in the job's turn. The check runs cycles."
)
@click.option(
    "--blocked",
    is_flag=True,
    help="… its quorum is blocked (--not --fits or --not --would-place). Finds the event since which it has been.",
)
@click.option("--node", metavar="NAME", help="Search for a condition on this node:")
@click.option("--cordoned", is_flag=True, help="… the node is cordoned.")
@click.option(
    "--tainted", is_flag=False, flag_value="", metavar="[KEY]", help="… the node has a taint, with this key if given."
)
@click.option("--not-ready", is_flag=True, help="… the node is not ready.")
@click.option(
    "--free-gpu", metavar="'<N'", help="… the node has this many free GPUs, as in '<2'; the signs are < <= = >= >."
)
@click.option("--free", metavar="'RESOURCE<N'", help="… the node has this much of a resource free, as in 'memory<4Gi'.")
@click.option("--gone", is_flag=True, help="… the job or node doesn't exist: it isn't there any more, or not yet.")
@click.option("--not", "negated", is_flag=True, help="Find where the condition stops holding.")
@click.option("--last", is_flag=True, help="Find the last event at which the condition starts to hold, not the first.")
@click.option(
    "--plans",
    "plans",
    nargs=2,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE FILE",
    help="Compare the plans of two versions, in files that `arranger verify --plans FILE` wrote.",
)
@output_option
def command(target: str | None, settings: Settings, other: Overrides, output: str, **options: Any) -> int:
    r"""Find the event at which a condition starts to hold, or the first cycle with a different result.

    With --job or --node, bisect checks every state from --from to --to in one fold, so it also finds a condition that
    held only for a while. It reports the first event at which the condition starts to hold, and what that event
    changed. With --last or --blocked it reports the last such event, whether the condition still holds at the end, and
    at what other times it held. What blocked the job first may be gone by now, and something else block it: explain
    says what does. It checks a condition at the end of each batch, and then names the event in that batch.
    For the time before a job appeared, it uses the job's first spec to find what the job would get. For the time before
    every kind of object was listed, and after the job ended, it doesn't check what the job would get. If several jobs
    had the same name, bisect takes the newest of them up to --to.

    With another configuration (--queue-policy, --preemption, --config and others) or other queues (--with,
    --without-queue), bisect re-runs every recorded cycle that took effect. It reports the first one that gives a job
    other nodes. It compares neither the reasons of waiting jobs nor the order of the queue: what-if shows both.

    Exit status: 0 if bisect found an event or a cycle, 1 if not.

    \b
      arranger bisect --job train --blocked                the event since which train hasn't fitted
      arranger bisect --job train --blocked --to "1h ago"  the same, as of an hour ago
      arranger bisect --job train --stage Rescheduling --log run.log
      arranger bisect --job train --preempted --last       when it last lost its room to another job
      arranger bisect --node n7 --free-gpu '<2' --from "1h ago"
      arranger bisect --queue-policy DRF -o json           the first cycle that DRF decides differently
      arranger bisect --without-queue vision               the first cycle that differs without that queue
    """
    manifests, gone = options.pop("manifests"), tuple(options.pop("queues"))
    other = msgspec.structs.replace(other, queues=OtherQueues(queues_in(manifests) if manifests else (), gone))
    asked = _Question(options)
    if options["plans"] is not None:
        return _print_plans(options["plans"], output)
    asked.check_subject(other)
    span = span_of(options["from"], options["to"])
    if other:
        return asyncio.run(_alternative(target, settings, other, span, output))
    return _print_answer(asyncio.run(_seek(target, settings, asked, span)), output)


class _Question:
    """The checked search options."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.job: str = options["job"] or ""
        self.node: str = options["node"] or ""
        self._given = {name: value for name, value in options.items() if value not in (None, False)}
        tests = self._given.keys() & {*_JOB_TESTS, *_NODE_TESTS}
        if options["waits"] or options["reason"]:  # one condition
            self._given["waits"] = options["reason"] or ""
        strange = tests & set(_NODE_TESTS if self.job else _JOB_TESTS)
        if strange and (self.job or self.node):
            flag = "--" + min(strange).replace("_", "-")
            raise click.UsageError(f"{flag} is for {'--node' if self.job else '--job'}")
        if (self.job or self.node) and not tests and not options["gone"]:
            subject, usual = ("--job", "--blocked") if self.job else ("--node", "--cordoned")
            names = (*(_JOB_TESTS if self.job else _NODE_TESTS), "gone")
            flags = ", ".join("--" + name.replace("_", "-") for name in names)
            raise click.UsageError(f"{subject} needs a condition, usually {usual}: one of {flags}")
        self.blocked: bool = options["blocked"]
        if self.blocked and (len(tests) > 1 or options["gone"] or options["negated"]):
            raise click.UsageError("--blocked can't be used with other conditions")
        self.hypothetical = bool(tests & {"fits", "would_place", "blocked"})
        self.last: bool = options["last"] or self.blocked
        for name in ("free", "free_gpu"):
            if options[name] is not None:
                _comparison(name, options[name])

    def check_subject(self, other: Overrides) -> None:
        """Raise `click.UsageError` if the options name no subject, or more than one."""
        if other and (self.job or self.node):
            raise click.UsageError("--job and --node find events, the other options find cycles: leave one out")
        if not other and bool(self.job) == bool(self.node):
            known = "--job or --node with a condition, another configuration, changes of queues, or --plans"
            raise click.UsageError(f"name what to find: {known}")

    def conditions(self, job: k.JobSeen | None, fits: _Fits) -> list[Condition]:
        """New conditions for one pass over the log. `job` is the job as first seen, None for a node."""
        if job is not None and self.blocked:
            return [Negated(fits(job)), Negated(WouldBePlaced(fits(job))), job_conditions.Infeasible(job)]
        given = self._given
        if job is not None:
            all_of = [make(job, given[name], fits) for name, make in _JOB_CONDITIONS.items() if name in given]
        else:
            all_of = [make(self.node, given[name]) for name, make in _NODE_CONDITIONS.items() if name in given]
        one = all_of[0] if len(all_of) == 1 else All(all_of)
        return [Negated(one) if self.options["negated"] else one]


def _comparison(name: str, text: str) -> tuple[str, str, int]:
    """Resource, sign and amount of `--free-gpu '<2'` and `--free 'memory<4Gi'`."""
    resource, rest = node_conditions.GPUS, text
    if name == "free":
        resource = re.split(r"[<>=]", text, maxsplit=1)[0].strip()
        rest = text[text.find(resource) + len(resource) :]
    matched = _COMPARISON.fullmatch(rest)
    flag = "--" + name.replace("_", "-")
    example = "'memory<4Gi'" if name == "free" else "'<2'"
    if matched is None or not resource:
        raise UsageError(
            f"{flag}: {text!r} can't be used", hint=f"allowed: < <= = >= or > and an amount, as in {example}"
        )
    try:
        return resource, matched.group(1), amount(resource, matched.group(2))
    except QuantityError as problem:
        raise UsageError(f"{flag}: {text!r} can't be used: {problem}", hint=f"as in {example}") from problem


# --- events --------------------------------------------------------------------------------------------------


async def _seek(target: str | None, settings: Settings, asked: _Question, span: Span) -> BisectAnswer:
    async with opened(target, settings) as log:
        span = await span_in(log, span)
        job = await _job(log, asked, span) if asked.job else None
        if job is not None and asked.hypothetical:
            span = _while_there(asked, job, span)
        seen = job.seen if job is not None else None
        state, position, config = await begin_with_config(log, span)
        fits = partial(QuorumFits, config=config, policies=installed())
        made = asked.conditions(seen, fits)
        search = Search(state, made, span, first_only=not asked.last)
        await feed(log, position, search.feed, until=span.last, doing="searching")
        which, run = _chosen(search.runs[:2])
        answer = BisectAnswer(
            ToldCondition(made[which].text, run), search.state.offset, last=asked.last, blocked=asked.blocked
        )
        if job is not None and asked.hypothetical:
            answer.came = job.came
            answer.ended = job.seen.uid in search.state.jobs and search.state.jobs[job.seen.uid].ended
        if asked.blocked and search.runs[2].holds:
            answer.infeasible = search.runs[2].last
        if asked.node and not run.starts and not run.held_before and asked.node not in search.state.nodes.rows:
            raise unknown_node(asked.node, search.state)
        if not answer.to_be_told(run):
            return answer
        at = run.last if asked.last else run.first
        early = begin_at_span(log, span) if asked.hypothetical else begin(log, Point(offset=at - 1))
        answer.told.found = await _refinement(log, await early, asked.conditions(seen, fits)[which], at)
        other = search.runs[1] if asked.blocked and which == 0 else run
        if other.last != run.last and answer.to_be_told(other):
            found = await _refinement(log, await begin_at_span(log, span), asked.conditions(seen, fits)[1], other.last)
            answer.also = ToldCondition(made[1].text, other, found)
        return answer


def _print_answer(answer: BisectAnswer, output: str) -> int:
    if output == "json":
        print_json(answer.json())
    else:
        answer.print()
    return 0 if answer.found is not None else 1


def _chosen(runs: Sequence[ConditionRun]) -> tuple[int, ConditionRun]:
    """The decisive condition and its number: the first that holds at the end, or else the one that held last."""
    for number, run in enumerate(runs):
        if run.holds:
            return number, run
    return max(enumerate(runs), key=lambda pair: (pair[1].ended, -pair[0]))


async def _refinement(log: Log, begun: Begun, condition: Condition, at: int) -> FoundEvent:
    """The event in the entry `at`. A condition that takes cycles must be `begun` as early as the search."""
    state, position = begun
    refinement = Refinement(state, condition, at)
    await feed(log, position, refinement.feed, until=Point(offset=at), doing="looking closer")
    assert refinement.found is not None
    return refinement.found


async def _job(log: Log, asked: _Question, span: Span) -> FirstSeen:
    """The newest job of the requested name, up to the end of the segment. Prints a note if there are several."""
    state, position = await begin_early(log, None)
    jobs_by_name = JobsByName(asked.job, state)
    await feed(log, position, jobs_by_name.feed, until=span.last, doing="looking for the job")
    if not jobs_by_name.jobs:
        raise await unknown_job_at(log, span.last, asked.job, await job_index_of(log, span.last))
    *earlier, newest = jobs_by_name.jobs.values()
    if earlier:
        others = f"{counted(len(earlier), 'earlier job')} of that name"
        text = f"this is about the job {asked.job} that was created at offset {newest.came}, not about {others}"
        say(f"arranger: {text}; use --to {newest.came - 1} for the one before", err=True)
    return newest


def _while_there(asked: _Question, job: FirstSeen, span: Span) -> Span:
    """The segment up to the job's deletion. Raises `NotFound` for a job that was never valid."""
    if job.seen.spec is None:
        raise NotFound(
            f"job {asked.job!r} was never valid: {faults_text(job.seen.faults)}", hint="there is nothing to place"
        )
    if not job.went:
        return span
    say(f"arranger: the job was deleted at offset {job.went}; the search ends just before", err=True)
    return Span(span.first, Point(offset=job.went - 1))


# --- cycles --------------------------------------------------------------------------------------------------


async def _alternative(target: str | None, settings: Settings, other: Overrides, span: Span, output: str) -> int:
    async with opened(target, settings) as log:
        span = await span_in(log, span)
        survey = Survey(span)
        after = await position_before(log, span.first)
        await feed(log, after, survey.feed, until=span.last, doing="finding the cycles")
        state, position = await begin_early(log, survey.first_base)
        alternative = Alternative(state, survey, other, installed())
        until = Point(offset=max(survey.reached, position.offset))
        await feed(
            log, position, alternative.feed, until=until, doing="running the cycles with the other configuration"
        )
    for name in other.queues.gone if alternative.found is None else ():
        if name not in alternative.queues:
            raise unknown_queue(name, alternative.state)
    if output == "json":
        print_json(
            {
                "other": other.given,
                "queues": other.queues.words,
                "compared": alternative.compared,
                "superseded": alternative.superseded,
                "otherVersions": alternative.other_versions,
                "found": alternative.found,
            }
        )
    else:
        _print_alternative(alternative, other)
    return 0 if alternative.found is not None else 1


def _print_alternative(alternative: Alternative, other: Overrides) -> None:
    found = alternative.found
    if alternative.out_of_reach:
        print_text(f"left out: {counted(alternative.out_of_reach, 'cycle')} before the oldest state in this log")
    if alternative.other_versions:
        what = counted(alternative.other_versions, "cycle")
        print_text(f"left out: {what} with policy versions that aren't installed here")
    if alternative.superseded:
        print_text(
            f"left out: {counted(alternative.superseded, 'cycle')} without effect, because another cycle came first"
        )
    changes = other.text if other.text.startswith("without ") else f"with {other.text}"
    if found is None:
        print_text(
            f"{alternative.compared} cycles compared: {changes}, each gives the same pods the same nodes (the "
            f"order in the queue isn't compared)"
        )
        return
    print_text(
        f"{alternative.compared} cycles compared: {changes}, the cycle at offset {found.cycle}, on the state "
        f"at offset {found.base}, is the first with another result"
    )
    _print_difference(found)
    print_text(f"Both plans side by side: arranger what-if --at {found.cycle} with the same options")


def _print_difference(found: PlanDifference) -> None:
    print_text(f"  decision  {found.kind}{f' on job {found.job}' if found.job else ''}")
    print_text(f"  recorded  {found.recorded or '-'}", indent=12)
    print_text(f"  other     {found.retaken or '-'}", indent=12)


def _print_plans(files: tuple[Path, Path], output: str) -> int:
    one, other = (_plans_of(path) for path in files)
    common = [offset for offset in one if offset in other]
    found = first_disagreement(one, other)
    if output == "json":
        print_json({"compared": len(common), "found": found})
    elif found is None:
        print_text(f"{len(common)} cycles are in both files, with the same plans")
    else:
        print_text(f"the cycle at offset {found} is the first of {len(common)} in both files whose plans differ")
        print_text(f"To see both: arranger verify --from {found} --to {found}, with each version")
    return 0 if found is not None else 1


class _PlanLine(msgspec.Struct):
    cycle: int
    digest: str


def _plans_of(path: Path) -> dict[int, str]:
    try:
        lines = msgspec.json.Decoder(_PlanLine).decode_lines(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} has no plans: {problem}", hint="arranger verify --plans FILE writes it") from problem
    return {line.cycle: line.digest for line in lines}
