"""`arranger upgrade-check`: whether this version can go on with a log and its snapshots, before processes of it start.

It begins where a process of this version would begin, by the same function, and reads everything after that.
"""

import asyncio

import click
import msgspec

from arranger import __version__
from arranger.cli.inputs.reading import feed, log_options, opened
from arranger.cli.rendering.output import output_option, print_json, print_text
from arranger.errors import DamagedEntry, ForgedEntry, LogError, UnknownEvent
from arranger.events.log import Entry, Log
from arranger.projections.layouts import LAYOUT, READ, UnusableSnapshot, layout_of
from arranger.replay.reading.history import END
from arranger.settings import Settings
from arranger.workers.beginning import HistoryGone, LaterVersionAtWork, find_beginning

#: Verdict → what happens if processes of this version start.
_CONSEQUENCES = {
    "readable": "this version can go on with this log",
    "later-version": "its processes would wait and change nothing: run the later version",
    "unknown-event": "its processes would end at that event again and again: run the version that wrote it",
    "forged": "its processes would wait before that entry, which isn't authentic: compare log_key first",
    "damaged": "its processes would end at that entry again and again: restore Redis from a backup",
    "history-gone": "its processes would begin a new epoch: jobs are adopted from their status, their history is lost",
}


class Found(msgspec.Struct, frozen=True):
    """One snapshot: its offset, and its layout, which is None if the snapshot is damaged."""

    offset: int
    layout: int | None


class Answer(msgspec.Struct, frozen=True):
    """What was found. `begins` and `reads_to` are offsets: where a process would begin, and the last one it can read.
    Both are None if it can't begin."""

    version: str
    layouts_read: tuple[int, ...]
    snapshots: tuple[Found, ...]
    verdict: str
    problem: str = ""
    begins: int | None = None
    reads_to: int | None = None


@click.command()
@log_options
@output_option
def command(target: str | None, settings: Settings, output: str) -> int:
    r"""Say whether this version can go on with a log and its snapshots, and what happens if not.

    Run it with the version that you want to upgrade to, or go back to. Exit status 0: it can. 1: it can't, or the log
    can't be reached. 2: wrong usage. The command never writes to the log. It doesn't look at the definitions in the
    cluster.

    \b
      arranger upgrade-check                      the log in Redis
      arranger upgrade-check --log run.log        a log file, an export or an archive
    """
    answer = asyncio.run(_check(target, settings))
    if output == "json":
        print_json({**msgspec.to_builtins(answer), "consequence": _CONSEQUENCES[answer.verdict]})
    else:
        _print(answer)
    return 0 if answer.verdict == "readable" else 1


async def _check(target: str | None, settings: Settings) -> Answer:
    async with opened(target, settings) as log:
        answer = Answer(__version__, READ, await _snapshots(log), "readable")
        try:
            _, position = await find_beginning(log)
        except LaterVersionAtWork as problem:
            return msgspec.structs.replace(answer, verdict="later-version", problem=problem.message)
        except HistoryGone as problem:
            return msgspec.structs.replace(answer, verdict="history-gone", problem=problem.message)
        verdict, problem_there, reached = "readable", "", position.offset

        def take(entry: Entry) -> None:
            nonlocal reached
            reached = entry.last

        try:
            await feed(log, position, take, until=END, doing="reading the log")
        except UnknownEvent as problem:
            verdict, problem_there = "unknown-event", problem.message
        except ForgedEntry as problem:
            verdict, problem_there = "forged", problem.message
        except DamagedEntry as problem:
            verdict, problem_there = "damaged", problem.message
        return msgspec.structs.replace(
            answer, verdict=verdict, problem=problem_there, begins=position.offset, reads_to=reached
        )


async def _snapshots(log: Log) -> tuple[Found, ...]:
    found = []
    for mark in await log.snapshot_marks():
        try:
            stored = await log.newest_snapshot(at_most=mark.offset)
            layout = layout_of(stored.content) if stored is not None else None
        except (UnusableSnapshot, LogError):
            layout = None
        found.append(Found(mark.offset, layout))
    return tuple(found)


def _print(answer: Answer) -> None:
    print_text(f"Arranger {answer.version} reads snapshots of the layouts {', '.join(map(str, answer.layouts_read))}")
    for found in answer.snapshots:
        print_text(f"snapshot at offset {found.offset}: {_layout_words(found.layout)}")
    if answer.begins is not None:
        print_text(f"a process begins at offset {answer.begins} and reads up to offset {answer.reads_to}")
    if answer.problem:
        print_text(answer.problem)
    print_text(_CONSEQUENCES[answer.verdict])


def _layout_words(layout: int | None) -> str:
    if layout is None:
        return "damaged"
    if layout > LAYOUT:
        return f"layout {layout}, of a later version"
    return f"layout {layout}" if layout in READ else f"layout {layout}, which isn't read any more"
