"""`arranger upgrade-check`: whether this version can go on with what another one left, before processes of it start.

For the log, it begins where a process of this version would begin, by the same function, and reads everything after
that. It names the processes of other releases that run beside it, by their heartbeats. With `--with-cluster`, it
compares the definitions in the cluster with this version's, and reads every stored status.
"""

import asyncio
from collections.abc import Iterator

import click
import msgspec

from arranger import __version__
from arranger.cli.inputs.flags import with_settings
from arranger.cli.inputs.log_options import target_options
from arranger.cli.inputs.reading import (
    feed,
    opened,
)
from arranger.cli.inputs.server import found_server
from arranger.cli.rendering.output import output_option, print_json, print_text
from arranger.errors import DamagedEntry, ForgedEntry, LogError, UnknownEvent
from arranger.events.log import Entry, Log
from arranger.events.redis_connection import connect
from arranger.events.redis_urls import SCHEMES, scheme_of
from arranger.kube.client import HttpCluster
from arranger.kube.compatibility import CrdVerdict, Definition, Statuses, check_definitions, check_statuses
from arranger.kube.config import find_access
from arranger.plugins import inventory
from arranger.projections.formats.layouts import LAYOUT, READ, UnusableSnapshot, layout_of
from arranger.replay.reading.history import END
from arranger.settings import Settings
from arranger.workers.log.beginning import HistoryGone, LaterVersionAtWork, find_beginning
from arranger.workers.members.membership import read_members

#: Verdict → what happens if processes of this version start.
_CONSEQUENCES = {
    "readable": "this version can go on with this log",
    "later-version": "its processes would wait and change nothing: run the later version",
    "unknown-event": "its processes would end at that event again and again: run the version that wrote it",
    "forged": "its processes would wait before that entry, which isn't authentic: compare log_key first",
    "damaged": "its processes would end at that entry again and again: docs/operations.md, When something is missing "
    "or broken, says how to go on",
    "history-gone": "its processes would begin a new epoch: jobs are adopted from their status, their history is lost",
}


#: Verdict on a definition → what to do.
_OF_DEFINITIONS = {
    CrdVerdict.CURRENT: "it has all that this version needs",
    CrdVerdict.LATER: "it has all that this version needs, and more",
    CrdVerdict.OLDER: "apply this version's first, because the API server drops or refuses the rest: "
    "arranger crd | kubectl apply --server-side --force-conflicts -f -",
    CrdVerdict.MISSING: "apply it first: arranger crd | kubectl apply --server-side -f -",
    CrdVerdict.DELETED: "it is being deleted with all its objects: save them, let its finalizers end, and apply this "
    "version's: arranger crd | kubectl apply --server-side -f -",
    CrdVerdict.BLOCKED: "the API server would refuse this version's: stay with the later release, or store all objects "
    "in an older version and remove that one from status.storedVersions",
}


class StoredLayout(msgspec.Struct, frozen=True):
    """One snapshot: its offset, and its layout, which is None if the snapshot is damaged."""

    offset: int
    layout: int | None


class RunningProcess(msgspec.Struct, frozen=True):
    """A running process: its release ("" for one that doesn't report it), and the latest layout that it reads."""

    id: str
    roles: tuple[str, ...]
    version: str
    layout: int


class UpgradeReport(msgspec.Struct, frozen=True):
    """What was found. `begins` and `reads_to` are offsets: where a process would begin, and the last one it can read.
    Both are None if it can't begin."""

    version: str
    layouts_read: tuple[int, ...]
    snapshots: tuple[StoredLayout, ...]
    verdict: str
    problem: str = ""
    begins: int | None = None
    reads_to: int | None = None
    #: Only if the log is in Redis.
    processes: tuple[RunningProcess, ...] = ()
    #: Only with `--with-cluster`.
    definitions: tuple[Definition, ...] = ()
    statuses: Statuses | None = None

    @property
    def well(self) -> bool:
        there = all(each.verdict in (CrdVerdict.CURRENT, CrdVerdict.LATER) for each in self.definitions)
        return self.verdict == "readable" and there and (self.statuses is None or not self.statuses.unreadable)


@click.command()
@target_options
@with_settings("cluster", "archive_url", "kubeconfig", "context")
@click.option("--with-cluster", is_flag=True, help="Also check the definitions and the TYJobs in the cluster.")
@output_option
def command(target: str | None, settings: Settings, *, with_cluster: bool, output: str) -> int:
    r"""Say whether this version can go on with a log and its snapshots, and what happens if not.

    Run it with the version that you want to upgrade to, or go back to. Exit status 0: it can. 1: it can't, something
    has to be done first, or the log or the API server can't be reached. 2: wrong usage. The command writes nothing.

    \b
      arranger upgrade-check                      the log in Redis, and the processes that run
      arranger upgrade-check --with-cluster       the same, and the cluster of the kubeconfig
      arranger upgrade-check --log run.log        a log file, an export or an archive
    """
    answer = asyncio.run(_check(target, settings, with_cluster=with_cluster))
    if output == "json":
        print_json({**msgspec.to_builtins(answer), "consequence": _CONSEQUENCES[answer.verdict], "well": answer.well})
    else:
        _print(answer)
    return 0 if answer.well else 1


async def _check(target: str | None, settings: Settings, *, with_cluster: bool) -> UpgradeReport:
    answer = await _check_log(target, settings)
    url = target or settings.redis_url
    if scheme_of(url) in SCHEMES and not await found_server(target, settings):
        answer = msgspec.structs.replace(answer, processes=await _processes(url, settings.cluster))
    if with_cluster:
        cluster = HttpCluster(find_access(settings.kubeconfig or None, settings.context or None))
        try:
            policies = inventory().names
            found = await check_definitions(cluster, policies)
            there = found[0].verdict != CrdVerdict.MISSING
            statuses = await check_statuses(cluster, policies) if there else None
        finally:
            await cluster.close()
        answer = msgspec.structs.replace(answer, definitions=found, statuses=statuses)
    return answer


async def _processes(url: str, cluster: str) -> tuple[RunningProcess, ...]:
    async with connect(url) as client:
        members = await read_members(client, cluster)
    return tuple(RunningProcess(one.id, one.roles, one.version, one.layout) for one, _ in members.values())


async def _check_log(target: str | None, settings: Settings) -> UpgradeReport:
    async with opened(target, settings) as log:
        answer = UpgradeReport(__version__, READ, await _snapshots(log), "readable")
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
            await feed(log, position, take, until=END, doing="reading the log", beyond=True)
        except UnknownEvent as problem:
            verdict, problem_there = "unknown-event", problem.message
        except ForgedEntry as problem:
            verdict, problem_there = "forged", problem.message
        except DamagedEntry as problem:
            verdict, problem_there = "damaged", problem.message
        return msgspec.structs.replace(
            answer, verdict=verdict, problem=problem_there, begins=position.offset, reads_to=reached
        )


async def _snapshots(log: Log) -> tuple[StoredLayout, ...]:
    found = []
    for mark in await log.snapshot_marks():
        try:
            stored = await log.newest_snapshot(at_most=mark.offset)
            layout = layout_of(stored.content) if stored is not None else None
        except (UnusableSnapshot, LogError):
            layout = None
        found.append(StoredLayout(mark.offset, layout))
    return tuple(found)


def _print(answer: UpgradeReport) -> None:
    print_text(f"Arranger {answer.version} reads snapshots of the layouts {', '.join(map(str, answer.layouts_read))}")
    for found in answer.snapshots:
        print_text(f"snapshot at offset {found.offset}: {_layout_words(found.layout)}")
    if answer.begins is not None:
        print_text(f"a process begins at offset {answer.begins} and reads up to offset {answer.reads_to}")
    if answer.problem:
        print_text(answer.problem)
    print_text(_CONSEQUENCES[answer.verdict])
    for line in (*_beside(answer), *map(_definition_words, answer.definitions)):
        print_text(line)
    if answer.statuses is not None:
        read = answer.statuses
        print_text(f"TYJobs that can't be taken over as they are: {read.unreadable} of {read.jobs}")
        for job in read.problems:
            print_text(f"  {job.namespace}/{job.name}: {job.problem}")


def _beside(answer: UpgradeReport) -> Iterator[str]:
    """What happens while processes of other releases run beside this one."""
    if earlier := [each.id for each in answer.processes if each.layout < LAYOUT]:
        yield f"processes of an earlier layout run: {', '.join(earlier)}"
        yield "  this version stores no snapshot until they have been gone for upgrade_grace_s, and trims nothing"
    if later := [each.id for each in answer.processes if each.layout > LAYOUT]:
        yield f"processes of a later layout run: {', '.join(later)}"
        yield "  this version can't read their snapshots, and they store some once it hasn't run for upgrade_grace_s"
    if releases := sorted({each.version or "unknown" for each in answer.processes} - {answer.version}):
        yield f"processes of other releases run ({', '.join(releases)}): one that meets an event of another ends there"


def _definition_words(found: Definition) -> str:
    words = f"definition {found.name}: {found.verdict}"
    if found.lacks:
        words += f", without {', '.join(found.lacks)}"
    elif found.verdict == CrdVerdict.BLOCKED:
        words += f" by {', '.join(found.beyond)}"
    return f"{words}: {_OF_DEFINITIONS[found.verdict]}"


def _layout_words(layout: int | None) -> str:
    if layout is None:
        return "damaged"
    if layout > LAYOUT:
        return f"layout {layout}, of a later version"
    return f"layout {layout}" if layout in READ else f"layout {layout}, which isn't read any more"
