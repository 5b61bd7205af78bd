"""`arranger verify`: repeat every recorded cycle and compare the results byte for byte."""

import asyncio
import json
from typing import IO

import click
import msgspec

from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import (
    begin_early,
    feed,
    is_torn,
    opened,
    point_option,
    position_before,
    span_in,
    span_of,
)
from arranger.cli.rendering.authenticity_words import AUTHENTICITY
from arranger.cli.rendering.output import output_option, print_json, print_text, say
from arranger.errors import DamagedEntry
from arranger.events.log_keys import Authenticity
from arranger.model.text import counted
from arranger.plugins import installed
from arranger.replay.reading.history import END, Point, Span
from arranger.replay.reading.verify import PlanDifference, Report, Survey, Verification
from arranger.settings import Settings


@click.command()
@log_options
@point_option("--from", "Verify cycles from this point. [default: the first]")
@point_option("--to", "Verify cycles up to this point. [default: the last]")
@click.option(
    "--plans",
    type=click.File("w", lazy=False),
    metavar="FILE",
    help="Write the digest of every plan that this version makes. arranger bisect --plans compares two such files.",
)
@output_option
def command(target: str | None, settings: Settings, output: str, plans: IO[str] | None, **points: Point | None) -> int:
    r"""Re-run every recorded cycle from its own inputs, and compare the results byte for byte.

    Exit status 0: every cycle gave an identical result. 1: a cycle differs, a cycle ran with policy versions that
    aren't installed here, or the log is damaged or cut off. The command shows the first difference. It never writes to
    the log. With a key (ARRANGER_LOG_KEY) it checks the signatures too; then a log without any also has the exit status
    1.

    \b
      arranger verify                                     the log in Redis
      arranger verify --log run.log --from 5000           a file, from offset 5000 on
      arranger verify --from "1h ago" -o json
    """
    span = span_of(points["from"], points["to"])
    report, damage, known = asyncio.run(_verify(target, settings, span, plans))
    # A file without signatures proves nothing to somebody who has the key.
    unsigned = bool(settings.log_key) and known < Authenticity.PARTLY
    if output == "json":
        found = {
            "damage": str(damage) if damage else None,
            "authenticity": known.name.lower(),
            "sound": report.sound and damage is None,
        }
        print_json({**msgspec.to_builtins(report), **found})
    else:
        _print(report, damage)
        if known or settings.log_key:
            print_text(AUTHENTICITY[known])
    if damage is not None:
        raise damage
    return 0 if report.sound and not unsigned else 1


async def _verify(
    target: str | None, settings: Settings, span: Span, plans: IO[str] | None
) -> tuple[Report, DamagedEntry | None, Authenticity]:
    policies = installed()

    def plan(cycle: int, digest: str) -> None:
        if plans is not None:
            plans.write(f"{json.dumps({'cycle': cycle, 'digest': digest})}\n")

    async with opened(target, settings) as log:
        span = await span_in(log, span)
        survey = Survey(span)
        damage: DamagedEntry | None = None
        try:
            after = await position_before(log, span.first)
            await feed(log, after, survey.feed, until=span.last, doing="finding the cycles", beyond=True)
        except DamagedEntry as found:
            damage = found  # everything before it is still verified
        state, position = await begin_early(log, survey.first_base)
        verification = Verification(state, survey, policies=policies, plan=plan if plans is not None else None)
        try:
            until = Point(offset=max(survey.reached, position.offset))
            await feed(log, position, verification.feed, until=until, doing="running the cycles again")
        except DamagedEntry as found:
            damage = damage or found
        if damage is None and span.last == END and is_torn(log):
            damage = DamagedEntry((await log.end()).offset + 1, "the file ends within it, so it was cut off")
        return verification.report, damage, log.authenticity


def _print(report: Report, damage: DamagedEntry | None) -> None:
    print_text(
        f"{report.cycles} cycles with {report.decisions} decisions: {report.identical} identical, "
        f"{report.different} different ({report.events_folded} events folded)"
    )
    if report.out_of_reach:
        print_text(f"not checked: {counted(report.out_of_reach, 'cycle')} before the oldest state in this log")
    unknown = report.first_other_version
    if unknown is not None:
        missing = ", ".join(f"{name} {version}" for name, version in unknown.missing)
        print_text(
            f"not checked: {counted(report.other_versions, 'cycle')} with policy versions that aren't installed here. "
            f"The first is the cycle at offset {unknown.cycle}, with {missing}; "
            "install the version of Arranger, or the package, that has them"
        )
    if report.stray_decisions:
        print_text(f"{report.stray_decisions} decisions are outside of any cycle")
    if report.first_difference is not None:
        _print_difference(report.first_difference)
    if report.sound and damage is None:
        print_text("every cycle is identical" if report.cycles else "there is no cycle to verify")


def _print_difference(found: PlanDifference) -> None:
    where = f"the cycle at offset {found.cycle}, on the state at offset {found.base}" if found.cycle else "no cycle"
    say()
    print_text(f"The first difference: {where}")
    print_text(f"  decision  {found.kind} at offset {found.offset}{f' on job {found.job}' if found.job else ''}")
    print_text(f"  what      {found.what}", indent=12)
    print_text(f"  recorded  {found.recorded or '-'}", indent=12)
    print_text(f"  repeated  {found.retaken or '-'}", indent=12)
    for name, (recorded, retaken) in found.fields.items():
        print_text(f"  field {name}: recorded {json.dumps(recorded)}, repeated {json.dumps(retaken)}")
    print_text(f"To see the state before it: arranger replay --at {found.base or found.offset}")
