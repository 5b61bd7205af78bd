"""`arranger explain`: why a job waits, or why its pods are where they are."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from arranger.cli.output import At, duration, local_time, output_option, print_json, print_table
from arranger.cli.reading import begin, begin_early, feed, log_options, opened, point_of, point_option, snapshots
from arranger.errors import ArrangerError, UsageError
from arranger.events.log import Log, Position
from arranger.plugins import installed
from arranger.projections.jobs import JobRecord, PlaceKey
from arranger.projections.state import State
from arranger.replay.choices import MOST, Choices, Ranked
from arranger.replay.describe import label
from arranger.replay.explain import (
    Explanation,
    Roster,
    explanation,
    jobs_named,
    nearest_pods,
    place_of_pod,
    wanted_placements,
)
from arranger.replay.history import Journey, Point
from arranger.replay.story import Moment, Spell, Story
from arranger.replay.waiting import Ahead, Taker, Waiting
from arranger.scheduling.filters import amount
from arranger.settings import Settings

#: Lines of a timeline, or jobs ahead, that a table shows at each end of a longer one.
_SHOWN = 20


class NotFound(ArrangerError):
    """No such job or pod in the log, with the nearest names."""


@click.command()
@click.argument("job", metavar="[NAMESPACE/]JOB")
@log_options
@click.option("-n", "--namespace", metavar="NAME", help="The job's namespace. [default: whichever has the job]")
@click.option("--pod", metavar="NAME", help="Why this one of its pods is where it is.")
@point_option("--at", "Explain it as of this point. [default: the end of the log]")
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
        _print(answer)


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
    roster = Roster()
    await feed(log, await log.start(), roster.feed, until=asked.point, doing="looking for the job")
    gone = [
        entry
        for (namespace, name), entry in roster.jobs.items()
        if name == asked.name and asked.namespace in (None, namespace)
    ]
    if not gone:
        close = roster.nearest(asked.name)
        hint = f"did you mean {' or '.join(close)}?" if close else "arranger replay lists the jobs"
        raise NotFound(f"the log knows no job {asked.label!r} up to there", hint=hint)
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


def _print(answer: Explanation) -> None:
    job = answer.standing
    click.echo(f"{job.job} at offset {answer.offset} of epoch {answer.epoch}, {local_time(answer.told_ms)}")
    rows = [
        ("stage", f"{job.stage} for {duration(max(answer.told_ms - job.stage_since_ms, 0))}"),
        ("schedule", f"{job.schedule_state} for {duration(max(answer.told_ms - job.scheduled_since_ms, 0))}"),
        ("pods", f"{job.pods_placed} of {job.pods_wanted} have nodes, {job.pods_seen} were seen"),
        ("attempt", f"{job.attempt}, {job.restarts} restarts"),
        ("message", job.message or "-"),
        ("nodes", job.allocation or "-"),
    ]
    for name, text in rows:
        click.echo(f"  {name:<9} {text}")
    if answer.waiting is not None:
        _print_waiting(answer.waiting)
    _print_choices(answer)
    if answer.rejected:
        click.echo("\nDecisions about it that took no effect")
        print_table(
            ("offset", "time", "kind", "why", "said"),
            [(m.offset, local_time(m.told_ms), m.kind, m.reason, m.text) for m in answer.rejected],
            right=("offset",),
        )
    click.echo("\nTime in each state")
    print_table(
        ("since", "offset", "for", "stage", "schedule", "waiting for"),
        map(_spell_cells, answer.spells),
        right=("offset", "for"),
    )
    click.echo("\nIts life" + (f" since offset {answer.began}" if answer.began else ""))
    _print_cut(
        ("offset", "time", "kind", "subject", "verdict", "text"),
        answer.timeline,
        _moment_cells,
        f"arranger events --job {job.job}",
    )


def _print_waiting(waiting: Waiting) -> None:
    click.echo(f"\nWhy it waits: {waiting.why}")
    short = waiting.shortfall
    if short is not None and short.closest is not None:
        click.echo(f"  closest node  {short.closest.node}: {short.closest.text}")
    if waiting.infeasible_since_ms:
        since, until = local_time(waiting.infeasible_since_ms), local_time(waiting.fails_at_ms)
        click.echo(f"  infeasible    since {since} no empty cluster of these nodes could hold it; it fails at {until}")
    if waiting.place:
        keys = f"priority {waiting.priority}, created {local_time(waiting.created_ms)}"
        click.echo(
            f"  queue         place {waiting.place} of {waiting.queue_length} by {waiting.queue_policy} ({keys})"
        )
    if waiting.ahead:
        click.echo("\nAhead of it in the queue")
        _print_cut(("place", "job", "because of", "gets"), waiting.ahead, _ahead_cells, "arranger replay")
    if waiting.takers:
        click.echo(f"\nDecisions that took {' and '.join(short.resources if short else ())} on nodes that it may use")
        print_table(
            ("offset", "time", "job", "took", "on", "now"), map(_taker_cells, waiting.takers), right=("offset",)
        )
    if waiting.holders:
        click.echo("\nHeld there without a decision in this reading")
        rows = [(holder.who, _amounts(holder.amounts), ", ".join(holder.nodes)) for holder in waiting.holders]
        print_table(("who", "holds", "on"), rows)


def _print_choices(answer: Explanation) -> None:
    if answer.unexplained:
        click.echo(f"\n{answer.unexplained} placements were decided before the oldest state that this log can give")
    if answer.other_versions:
        click.echo(
            f"\n{answer.other_versions} placements were decided by policy versions that aren't installed here; "
            "arranger verify names them"
        )
    for choice in answer.choices:
        click.echo(f"\nWhy {choice.pod} is on {choice.node}: {choice.why}")
        click.echo(
            f"  placed at offset {choice.offset} by the cycle at offset {choice.cycle}, taken on offset {choice.base} "
            f"at {local_time(choice.told_ms)}; onto the same node in this step: {choice.together}"
        )
        refused = ", ".join(f"{count} {reason}" for reason, count in choice.refused)
        click.echo(
            f"  {choice.passed} of {choice.nodes} nodes could take it" + (f"; not: {refused}" if refused else "")
        )
        if choice.retaken_on != choice.node:
            click.echo(
                f"  taken again, it comes to {choice.retaken_on}: the record can't be repeated (arranger verify)"
            )
        print_table(("node", "score", "terms"), map(_ranked_cells, choice.ranking), right=("score",))
    if len(answer.choices) == MOST:
        click.echo(f"\nThe first {MOST} choices are shown; --pod explains any other")


def _print_cut(columns: Sequence[str], items: Sequence[Any], cells: Any, all_of_them: str) -> None:
    """A table of the first and the last, where there are many."""
    right = tuple(name for name in ("offset", "place") if name in columns)
    if len(items) <= 2 * _SHOWN + 5:
        print_table(columns, map(cells, items), right=right)
        return
    rows = [cells(item) for item in (*items[:_SHOWN], *items[-_SHOWN:])]
    rows.insert(_SHOWN, ("…", *[""] * (len(columns) - 2), f"{len(items) - 2 * _SHOWN} more: {all_of_them}"))
    print_table(columns, rows, right=right)


def _ahead_cells(ahead: Ahead) -> tuple[object, ...]:
    return (ahead.place, ahead.job, ahead.decided_by, ahead.gets)


def _taker_cells(taker: Taker) -> tuple[object, ...]:
    now = ("holds it" if taker.holds else "has given it back") + (
        "" if taker.since_created else ", since before it came"
    )
    nodes = ", ".join(taker.nodes[:3]) + (f" and {len(taker.nodes) - 3} more" if len(taker.nodes) > 3 else "")
    return (taker.offset, local_time(taker.told_ms), taker.job, _amounts(taker.amounts), nodes, now)


def _amounts(amounts: dict[str, int]) -> str:
    return ", ".join(f"{amount(name, value)} {name}" for name, value in amounts.items())


def _ranked_cells(ranked: Ranked) -> tuple[object, ...]:
    terms = ", ".join(f"{term.weight} × {term.shown} {term.name}" for term in ranked.terms)
    return (ranked.node, f"{ranked.score:.4f}", terms or "no requested resource has a weight")


def _spell_cells(spell: Spell) -> tuple[object, ...]:
    span = duration(max(spell.until_ms - spell.since_ms, 0)) + (" so far" if spell.lasts else "")
    return (local_time(spell.since_ms), spell.since_offset, span, spell.stage, spell.schedule_state, spell.waiting_for)


def _moment_cells(moment: Moment) -> tuple[object, ...]:
    text = f"{moment.reason}: {moment.text}" if moment.reason else moment.text
    return (moment.offset, local_time(moment.told_ms), moment.kind, moment.subject, moment.verdict, text)
