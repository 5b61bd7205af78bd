"""Shared by the commands that read a log: open it, find the state to begin with, and read with a progress bar.

Nothing here writes to a log. Messages and progress go to standard error, so that output can be piped.
"""

import asyncio
import gc
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from arranger.cli.inputs.log_options import given_epoch
from arranger.cli.inputs.progress import progress as progress  # noqa: PLC0414 - commands have it from here
from arranger.cli.inputs.server import access_of, found_server
from arranger.cli.rendering.output import duration, local_time, say
from arranger.clock import SystemClock
from arranger.errors import ArrangerError, DamagedEntry, LogError, LogUnavailable, TooOld, UsageError
from arranger.events.file_log import Copyable, FileLog
from arranger.events.key_source import log_keys
from arranger.events.log import Entry, Log, Position, StoredSnapshot, entries
from arranger.events.open_log import open_log
from arranger.messages.prerequisites import without_pods_texts
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.pods_to_place import group_name, name_of_group
from arranger.points import is_point, parse_at, parse_duration
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.explain.job_index import JobIndex
from arranger.replay.reading.history import END, Journey, Point, Span
from arranger.settings import Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Made = TypeVar("_Made")

#: A state, and the position from which to continue reading.
Begun = tuple[State, Position]

#: A running Arranger appends something more often than this.
_QUIET_MS = 120_000

#: The same as in a worker process (`workers/process.py`).
GC_THRESHOLDS = (10_000, 20, 100)

_ENTRIES_A_READ = 1000

AT_ALLOWED = (
    "an offset such as 1234, a time such as 2026-05-04T10:30:00, 10:30, 10:30:15.250 or 'yesterday 15:00', "
    "'10m ago' or -10m, start or end"
)


class NotFound(ArrangerError):
    """The log has no such job or pod. The hint has similar names."""


class TextType(click.ParamType):  # type: ignore[type-arg]  # generic for type checkers only
    """The type of an option whose value the function `read` parses. If that raises `ValueError`, click's error contains
    the words `otherwise` and names the flag."""

    def __init__(self, name: str, read: Callable[[str], Any], otherwise: str) -> None:
        self.name = name
        self.read = read
        self._otherwise = otherwise

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # click also converts values that are converted already
        try:
            return self.read(value)
        except ValueError:
            self.fail(f"{value!r} is {self._otherwise}", param, ctx)


def _at_now(text: str) -> Point:
    """As `parse_at`, at the present time."""
    return parse_at(text, now_ms=SystemClock().now_ms())


#: The type of `--at` and similar options; the value is a `Point`.
AT_TYPE = TextType("offset|time", _at_now, f"not a point in the log; allowed: {AT_ALLOWED}")
#: The type of durations; the value is in milliseconds.
DURATION_TYPE = TextType("duration", parse_duration, "not a duration; allowed: such as 90s, 30m, 1h30m or 2d")


def until_hint(text: str) -> str:
    """The hint for a point that was given to an option `--to` which names a file; empty for another text."""
    return f"; --to names a file: for the end of the part, use --until {shlex.quote(text)}" if is_point(text) else ""


def point_option(name: str, text: str) -> Callable[[_Command], _Command]:
    """An option whose value is a point of the log; its parameter is a `Point` or None.

    A batch is never split: an offset in the middle of a batch means the end of the batch."""
    if name == "--at":
        text = f"{text} A batch is never split: an offset in a batch means the end of that batch."
    ends = name in ("--at", "--to")  # there, the end is what is meant without the option

    def given(_context: click.Context, _option: click.Parameter, point: Point | None) -> Point | None:
        return None if ends and point == END else point

    return click.option(name, type=AT_TYPE, callback=given, metavar="OFFSET|TIME", help=text)


def resource_option(use: str) -> Callable[[_Command], _Command]:
    """The option `--resource`, with what it is used for."""
    text = f"The resource {use}, such as cpu. [default: the GPUs of all vendors, or cpu if there are none]"
    return click.option("--resource", default="", metavar="NAME", help=text)


@asynccontextmanager
async def opened(target: str | None, settings: Settings) -> AsyncIterator[Copyable]:
    """Open the target log, or that of the settings, for reading only."""
    try:
        log = await _open(target, settings)
    except LogUnavailable as problem:
        if target is not None:
            raise
        hint = f"{problem.hint} --log URL|FILE or ARRANGER_REDIS_URL names another log".lstrip()
        raise LogUnavailable(problem.message, hint=hint) from problem
    thresholds = gc.get_threshold()
    # Reading and folding create no reference cycles, and collecting them would take an eighth of the time.
    gc.set_threshold(*GC_THRESHOLDS)
    if isinstance(log, FileLog) and log.torn:
        say(f"arranger: the last entry of {log.read_from()} is cut off, and isn't read", err=True)
    try:
        yield log
    except NotFound as problem:
        hint = problem.hint + (_earlier_log(target) if isinstance(log, FileLog) else "")
        raise NotFound(problem.message, hint=hint) from problem
    finally:
        gc.set_threshold(*thresholds)
        await log.close()


def _earlier_log(target: str | None) -> str:
    """The log of the demo before, which `arranger demo` keeps beside the new one, as a part of a hint."""
    earlier = Path(f"{target}.before")
    return f"; the log before this one is {earlier}" if earlier.is_file() else ""


def is_torn(log: Copyable) -> bool:
    """Whether a log in a file ends within an entry."""
    return isinstance(log, FileLog) and log.torn


async def _open(target: str | None, settings: Settings) -> Copyable:
    epoch = given_epoch()
    keys = log_keys(settings.log_key)
    server = await found_server(target, settings)
    if not server:
        url = target or settings.redis_url
        return await open_log(url, settings.cluster, archive=settings.archive_url, epoch=epoch, keys=keys)
    if epoch is not None:
        raise UsageError("--epoch: only an archive has earlier epochs", hint="name it with --log in place of --server")
    from arranger.web.remote_log import opened_remote  # slow to import, and other logs don't need it

    return await opened_remote(server, access_of(settings), keys)


async def _usable(log: Log, make: Callable[[StoredSnapshot], _Made], *, at_most: int | None) -> AsyncIterator[_Made]:
    """The results of `make` for the log's usable snapshots, newest first. Unusable snapshots are reported and skipped.
    Of several with the same defect, for example all those of another version, only the first is reported."""
    said = ""
    while True:
        try:
            stored = await log.newest_snapshot(at_most=at_most)
            if stored is None:
                return
            at_most = stored.position.offset - 1
            made = make(stored)
        except DamagedEntry as problem:
            say(f"arranger: {problem}", err=True)
            at_most = problem.offset - 1
            continue
        except snapshot.UnusableSnapshot as problem:
            if str(problem) != said:
                said = str(problem)
                say(f"arranger: a snapshot isn't used: {said}", err=True)
            continue
        yield made


def snapshots(log: Log, *, at_most: int | None = None) -> AsyncIterator[tuple[State, Position]]:
    """The log's usable snapshots, restored, newest first."""
    return _usable(log, lambda stored: (snapshot.restore(stored.content), stored.position), at_most=at_most)


async def newest_before(log: Log, point: Point) -> int | None:
    """An upper limit for the offset of a point's nearest snapshot, as far as known without reading snapshots."""
    if point.time_ms is None:
        return point.offset
    marks = await log.snapshot_marks()
    return max((mark.offset for mark in marks if mark.time_ms is None or mark.time_ms <= point.time_ms), default=-1)


async def begin(log: Log, point: Point) -> tuple[State, Position]:
    """The nearest state at or before a point to begin a fold with: a snapshot, or the start of the log."""
    at_most = await newest_before(log, point)
    async for state, position in snapshots(log, at_most=at_most):
        if point.covers(state):
            if point.time_ms is not None and state.offset >= await end_offset(log):
                _say_if_later(log, point, state.time_ms)
            return state, position
    start = await log.start()
    if start.offset == 0:
        return State(), start
    trimmed = f"the log was trimmed up to offset {start.offset}, and it holds no snapshot"
    if point == Point():
        other = "use the version of Arranger that runs there; what was trimmed is in the archive, if there is one"
        raise LogError(f"{trimmed} that this version can use", hint=other)
    raise TooOld(f"{trimmed} before the requested point", hint="use a later point")


async def begin_without(log: Log, point: Point, name: str) -> tuple[State, Position]:
    """The newest state at or before a point that doesn't mention this name, or else the oldest state available."""

    def without_it(stored: StoredSnapshot) -> tuple[State, Position] | None:
        if snapshot.mentions(stored.content, name):
            return None
        state = snapshot.restore(stored.content)
        return (state, stored.position) if point.covers(state) else None

    async for found in _usable(log, without_it, at_most=await newest_before(log, point)):
        if found is not None:
            return found
    return await begin_early(log, None)


async def begin_early(log: Log, offset: int | None) -> tuple[State, Position]:
    """As `begin` for an offset (None: the very first one). If it is out of reach, the oldest state available.

    A snapshot may remain for a while after the entries behind it were trimmed. It is then no possible beginning.
    """
    start = await log.start()
    if offset is not None:
        found = await anext(snapshots(log, at_most=offset), None)
        if found is not None and found[1].offset >= start.offset:
            return found
    if start.offset == 0:
        return State(), start
    for mark in await log.snapshot_marks():
        if mark.offset >= start.offset:
            found = await anext(snapshots(log, at_most=mark.offset), None)
            if found is not None and found[1].offset == mark.offset:
                return found
    raise LogError(
        f"the log was trimmed up to offset {start.offset}, and it holds no snapshot to begin with",
        hint="wait for the next snapshot",
    )


def span_of(first: Point | None, last: Point | None, *, names: tuple[str, str] = ("--from", "--to")) -> Span:
    """The segment between two points. Raises `UsageError` if it would end before it begins. An offset and a time can't
    be compared without the log. A program that names the time of the last event takes it from an earlier moment than
    that of which a time such as `1s ago` is."""
    if first is not None and first.offset is None and first.time_ms and last is not None and last.offset is not None:
        first = Point(time_ms=min(first.time_ms, last.time_ms or first.time_ms))
    for unit in ("offset", "time_ms"):
        ends: tuple[Any, Any] = getattr(first, unit, None), getattr(last, unit, None)
        if None not in ends and ends[0] > ends[1]:
            told = f": {ends[0]} > {ends[1]}" if unit == "offset" else ""
            raise UsageError(f"{names[0]} is after {names[1]}{told}", hint="exchange them")
    return Span(first, last or END)


async def span_in(log: Log, span: Span) -> Span:
    """The segment in this log: from its end on means with its last event. Raises `LogError` if the log ends before the
    segment begins."""
    if span.first is None or (end := await end_offset(log)) == 0:
        return span
    if (span.first.offset or 0) > end:
        raise _not_yet(span.first.offset, end)
    return Span(Point(offset=end), span.last) if span.first == END else span


async def begin_at_span(log: Log, span: Span) -> Begun:
    """The state to begin a fold with so that all events of the segment get verdicts, as far as possible."""
    return await (begin(log, span.first) if span.first is not None else begin_early(log, None))


async def position_before(log: Log, point: Point | None) -> Position:
    """A position at or before a point from which the log can be read without folding."""
    moment_ms = point.time_ms if point is not None else None
    start = await log.start()

    def early(stored: StoredSnapshot) -> Position | None:
        if stored.position.offset < start.offset:  # the entries behind it were trimmed
            return None
        return stored.position if moment_ms is None or snapshot.time_ms(stored.content) <= moment_ms else None

    at_most = await newest_before(log, point) if point is not None else -1
    async for position in _usable(log, early, at_most=at_most):
        if position is not None:
            return position
    return start


async def feed(
    log: Log, after: Position, take: Callable[[Entry], object], *, until: Point, doing: str, beyond: bool = False
) -> Position:
    """Pass every entry after a position to `take`, up to a point, or until `take` returns False. Returns the position
    of the last entry that it passed.

    Raises `LogError` if the log ends before the requested offset, and the errors of reading. With `beyond`, these
    include what stands after the end of the log, where something else wrote it: running processes meet that, too.
    """
    last = until.offset if until.offset is not None else await end_offset(log)
    reached = shown = after.offset
    time_ms, last_taken = 0, None
    with progress(doing, last - after.offset, first=after.offset) as moved:
        while reached < last and (found := await log.read(after, limit=min(last - reached, _ENTRIES_A_READ))):
            for entry in found:
                if until.before(entry) or take(entry) is False:
                    return _behind(last_taken, after)
                last_taken, reached, time_ms = entry, entry.last, max(time_ms, entry.batch.time_ms)
                if reached >= last:
                    break
            after = Position(after.epoch, reached, entry.chain)
            moved(reached - shown)
            shown = reached
            await asyncio.sleep(0)  # a file's entries are there at once, and who asks may have gone
        if beyond and until == END:
            await log.read(after)
    if time_ms:
        _say_if_later(log, until, time_ms)
    if until.offset is not None and reached < until.offset:
        raise _not_yet(last, reached)
    return after


def _not_yet(offset: int | None, end: int) -> LogError:
    return LogError(f"the log has no offset {offset} yet, it ends at {end}", hint="use an earlier point")


def _behind(entry: Entry | None, began: Position) -> Position:
    """The position behind an entry; without one, the position with which reading began."""
    return began if entry is None else Position(began.epoch, entry.last, entry.chain)


async def journey_to(log: Log, point: Point, *, doing: str) -> tuple[Journey, Position]:
    """What was folded up to a point, and the position from which to continue reading.

    Raises `LogError` if the log ends before the point, or begins after it.
    """
    state, position = await begin(log, point)
    journey = Journey(state, point)
    await feed(log, position, journey.feed, until=point, doing=doing)
    if not state.offset:
        raise await before_beginning(log)
    return journey, journey.position(position)


async def stand_at(log: Log, point: Point, *, doing: str) -> Begun:
    """The state at a point, and the position from which to continue reading. Raises as `journey_to` does."""
    journey, position = await journey_to(log, point, doing=doing)
    return journey.state, position


async def as_of(log: Log, point: Point, after: Position) -> Callable[[int], int]:
    """Up to when an answer about a point counts, given the time of the last event up to there: `Point.as_of_ms`.
    `after` is the position of that event."""
    goes_on = point.offset is None and point.time_ms is not None and bool(await log.read(after, limit=1))
    now_ms = SystemClock().now_ms() if log.live else None

    def as_of_ms(last_ms: int) -> int:
        found_ms = point.as_of_ms(last_ms, now_ms=now_ms, goes_on=goes_on)
        if point == END and found_ms - last_ms > _QUIET_MS:
            ago = duration(found_ms - last_ms)
            say(f"arranger: the log's last event is of {local_time(last_ms)}, {ago} ago; times are as of now", err=True)
        return found_ms

    return as_of_ms


_SAID_LATER = f"{__name__}.said_later"


def _say_if_later(log: Log, point: Point, end_ms: int) -> None:
    """Report, once per command, that a time is after the last event in the log; with a live log, only one to come."""
    context = click.get_current_context(silent=True)
    if point.time_ms is None or context is None or context.meta.get(_SAID_LATER):
        return
    if point.time_ms <= (max(end_ms, SystemClock().now_ms()) if log.live else end_ms):
        return
    context.meta[_SAID_LATER] = True
    say(f"arranger: the log ends at {local_time(end_ms)}, before the requested time; this is its end", err=True)


async def end_offset(log: Log) -> int:
    """The last offset to read: that of the log's end, or of the first damaged entry, so that reading reports it."""
    try:
        return (await log.end()).offset
    except DamagedEntry as damage:
        return damage.offset


async def before_beginning(log: Log) -> LogError:
    """The error for a point before the first event; it names the beginning of the log."""
    async for entry in entries(log, await log.start()):
        begins = f"the log begins at offset {entry.first}, {local_time(entry.batch.time_ms)}"
        return LogError("the log has no events up to that point", hint=begins)
    return LogError("the log has no events yet", hint="run workers, or arranger demo")


async def job_index_of(log: Log, until: Point) -> JobIndex:
    """All jobs that the log mentions up to a point, without those in its trimmed part."""
    job_index = JobIndex()
    await feed(log, await log.start(), job_index.feed, until=until, doing="looking for the job")
    return job_index


async def unknown_job_at(
    log: Log, point: Point, name: str, job_index: JobIndex, *, owner: str = "", state: State | None = None
) -> NotFound:
    """The error for a job that isn't in the log up to a point; it says since when the log has it if it came later, and
    of a PodGroup of the state at the point that it has no pods."""
    namespace, alone = namespace_and_name(name)
    if state is not None and (texts := without_pods_texts(state, namespace, alone)) is not None:
        return NotFound(texts[0], hint=texts[1])
    came = (await job_index_of(log, END)).came if point != END and not owner else {}
    later = [at for (within, known), at in came.items() if known == alone and namespace in (None, within)]
    if not later:
        return unknown_job(name, job_index, owner=owner)
    return NotFound(f"the log has no job {name!r} up to that point", hint=f"it has it from event {min(later)} on")


#: What stands before the name of a pod group.
_POD_GROUP = "podgroup"


def namespace_and_name(text: str) -> tuple[str | None, str]:
    """The parts of [NAMESPACE/]NAME; None means any namespace. A name after `podgroup/` is that of a pod group."""
    namespace, slash, name = text.rpartition("/")
    within, of_namespace, kind = namespace.rpartition("/")
    if kind == _POD_GROUP:
        return (within if of_namespace else None), group_name(name)
    return (namespace if slash else None), name


def job_label(namespace: str | None, name: str) -> str:
    """The reverse of `namespace_and_name`."""
    return f"{namespace}/{name}" if namespace else name


_NOT_SEEN = "was it refused at apply? arranger replay lists the jobs; if the cluster has it, look at arranger status"


def unknown_job(name: str, job_index: JobIndex, *, owner: str = "") -> NotFound:
    """The error for a job that isn't in the log, `name` or `namespace/name`. `owner` is the job that has a pod of that
    name."""
    alone = name.rpartition("/")[2]
    hint = did_you_mean(job_index.nearest(alone), _NOT_SEEN)
    if alone in job_index.groups:
        namespace, group = job_index.groups[alone]
        within = f"{namespace}/{_POD_GROUP}/{name_of_group(group)}"
        hint = f"the pod is placed with its group: arranger explain {within}"
    if owner:
        hint = f"it is a pod of job {owner}: arranger explain {owner} --pod {alone}"
    return NotFound(f"the log has no job {name!r} up to that point", hint=hint)


def unknown_node(name: str, state: State) -> NotFound:
    """The error for a node that a state doesn't have."""
    hint = did_you_mean(near_names(name, state.nodes.rows, most=3), "arranger replay lists the nodes")
    return NotFound(f"there is no node {name!r} at offset {state.offset}", hint=hint)
