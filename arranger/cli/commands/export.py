"""`arranger export`: write a log, a segment of it, or the part that concerns one job, into one portable file."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from arranger import __version__
from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.playing import played
from arranger.cli.inputs.reading import (
    NotFound,
    begin,
    begin_early,
    end_offset,
    feed,
    job_index_of,
    job_label,
    namespace_and_name,
    opened,
    point_option,
    position_before,
    progress,
    span_in,
    span_of,
    unknown_job,
    until_hint,
)
from arranger.cli.rendering.output import duration, local_time, output_option, print_json, print_text
from arranger.cli.rendering.playback_page import document, facts
from arranger.errors import LogError, UsageError
from arranger.events.blob_stores import ZipWriter
from arranger.events.codec import StoredEntry, encode_batch, signed_snapshot
from arranger.events.file_log import Copyable
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.events.log_keys import UNKEYED, next_chain
from arranger.events.segments import encode_snapshot_file
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.export.concerning import Concerning
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.reading.history import END, Journey, Point, Span
from arranger.settings import Settings
from arranger.workers.log.archive_writer import ArchiveWriter, Source

#: Events in one segment of an export, and between two of its snapshots.
_A_SEGMENT = 100_000

#: The file for a job whose first offset is at most this begins at the log's start.
FROM_THE_START = 100_000


class _Asked(msgspec.Struct):
    """The requested part of the log."""

    job: str
    namespace: str | None
    span: Span
    hashed: bool


class FinishedExport(msgspec.Struct, frozen=True):
    """A finished export."""

    file: str
    bytes: int
    epoch: int
    first: int
    last: int
    first_time_ms: int
    last_time_ms: int
    hashed: bool
    #: The last offset of the source log.
    log_ends: int = 0
    #: The requested job, and its pseudonym in the file; empty without a job, or if it keeps its name.
    job: str = ""
    job_there: str = ""


@click.command()
@log_options
@click.option(
    "--to",
    "target_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write. The command never overwrites a file.",
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page for a browser instead, which plays the part of the log without any server.",
)
@click.option(
    "--job", default="", metavar="[NS/]NAME", help="Only the life of this job, with everything that competed with it."
)
@point_option("--from", "The first event to export. [default: the first in the log]")
@point_option("--until", "The last event to export. [default: the last]")
@click.option(
    "--hash-names",
    is_flag=True,
    help="Replace the names of nodes, pods, jobs, namespaces and labels, and leave out messages.",
)
@output_option
def command(
    target: str | None, settings: Settings, *, target_file: Path | None, html_file: Path | None, job: str,
    hash_names: bool, output: str, **points: Point | None,
) -> None:  # fmt: skip
    r"""Write a log, or a part of it, to one file, for example for a bug report. Other commands read it with --log.

    With --job, the export covers the life of this job and some time before it. It begins with the first event about the
    oldest job that existed when this job was created, but at most 100,000 events before that. Where that is among the
    first 100,000 events of a log that has them all, a file (not a page) begins with the first of them: then other
    versions of Arranger can read it, too. The export ends with the last event about this job, or at the end of the log
    if the job hasn't ended. It contains the state before the first of
    these events, and all events of this time, because other jobs and pods compete with the job.

    A log never contains environment variables or image names, and of annotations only arranger.dev/queue,
    arranger.dev/last-checkpoint and arranger.dev/created-by. With --hash-names, the export contains pseudonyms such as
    n-000123 instead of names. The pseudonyms have the same order as the names, because the scheduler breaks ties by
    this order. If you also use --job, the command prints the job's pseudonym. The file doesn't say which pseudonym that
    is.

    With --html, the file is a page that a browser opens without a server and without any request. It plays the events:
    when jobs waited and ran, what was decided, and why each job waited, in the words of "arranger explain".

    \b
      arranger export --job team-a/train --to train.arranger
      arranger export --from "1h ago" --to hour.arranger --hash-names
      arranger explain train --log train.arranger         the same result from the file
      arranger export --from "1h ago" --html hour.html    a page to look at and to send
    """
    file = target_file or html_file
    if file is None:
        raise click.UsageError("one of --to FILE and --html FILE is needed")
    if target_file and html_file:
        raise _given_both(target_file)
    if file.exists():
        raise UsageError(f"{file} already exists", hint="use another name: nothing is overwritten")
    first, last = points["from"], points["until"]
    if job and (first or last):
        raise click.UsageError("--job selects the events: leave out --from and --until")
    namespace, name = namespace_and_name(job)
    asked = _Asked(name, namespace, span_of(first, last, names=("--from", "--until")), hash_names)
    made = asyncio.run((_export_page if html_file else _export)(target, settings, asked, file))
    if output == "json":
        print_json(made)
    else:
        _tell(made)


def _given_both(target_file: Path) -> click.UsageError:
    """Other commands have `--to` for a point."""
    told = f"--to FILE and --html FILE are both given, and only one file can be made{until_hint(str(target_file))}"
    return click.UsageError(told)


def _tell(made: FinishedExport) -> None:
    lasted = duration(max(0, made.last_time_ms - made.first_time_ms))
    print_text(f"{made.file}: offsets {made.first} to {made.last} of epoch {made.epoch}, {made.bytes:,} bytes")
    print_text(f"{lasted} from {local_time(made.first_time_ms)}{', names replaced' if made.hashed else ''}")
    if made.job and made.last < made.log_ends:
        print_text(f"the log continues to offset {made.log_ends}, but no event after {made.last} concerns {made.job}")
    if made.job_there:
        print_text(f"{made.job} is called {made.job_there} in the file (only this output says so)")


async def _export(target: str | None, settings: Settings, asked: _Asked, file: Path) -> FinishedExport:
    async with opened(target, settings) as log:
        part = await _part(log, asked)
        writer = ZipWriter(file)
        try:
            times_ms, there = await _write(log, writer, asked, part)
            writer.finish()
        except BaseException:
            writer.give_up()
            raise
        after, ends = part.after, await end_offset(log)
        return FinishedExport(
            str(file),
            writer.size,
            after.epoch,
            after.offset + 1,
            part.until,
            *times_ms,
            asked.hashed,
            ends,
            part.job,
            there,
        )


async def _export_page(target: str | None, settings: Settings, asked: _Asked, file: Path) -> FinishedExport:
    content = document(b"{}")  # without the console's build, nothing is read
    async with opened(target, settings) as log:
        part = await _part(log, asked, page=True)
        if part.state is None:
            part.state, part.after = await begin_early(log, None)
        state, after, there = part.state, part.after, ""
        if asked.hashed:
            renamed = _Renamed(log, part)
            state = await renamed.collect() or State()
            there = renamed.job(part.job) if part.job else ""
            playback, explanations = await played(log, after, state, part.until, there, changed=renamed.entry)
        else:
            playback, explanations = await played(log, after, state, part.until, part.job)
        content = document(facts(playback, explanations))
        _write_new(file, content)
        return FinishedExport(
            str(file),
            len(content),
            after.epoch,
            playback.first,
            playback.last,
            playback.first_ms,
            playback.last_ms,
            asked.hashed,
            await end_offset(log),
            part.job,
            there,
        )


def _write_new(file: Path, content: bytes) -> None:
    """Write a file that isn't there yet. Raises `UsageError`."""
    try:
        with file.open("xb") as there:
            there.write(content)
    except FileExistsError:
        raise UsageError(f"{file} is there already", hint="give another name: nothing is overwritten") from None
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}") from error


class _Part(msgspec.Struct):
    """The part after a position up to the offset `until`, with the state at the position, None if it isn't available.
    `job` is the requested job as NAMESPACE/NAME, empty for none."""

    after: Position
    until: int
    state: State | None
    job: str = ""


async def _part(log: Copyable, asked: _Asked, *, page: bool = False) -> _Part:
    start, end, job = (await span_in(log, asked.span)).first, await _offset_at(log, asked.span.last), ""
    if asked.job:
        job, first, end = await _of_job(log, asked)
        # A file from the log's start needs no snapshot, so versions with another snapshot layout can read it.
        near = not page and first <= FROM_THE_START and (await log.start()).offset == 0
        start = Point(offset=first - 1) if not near else None
    if start is None:
        position = await log.start()
        return _Part(position, end, await _state_there(log, position), job)
    # The requested offset is the first one in the export, so the state must be the one before it.
    before = Point(offset=start.offset - 1) if start.offset is not None and not asked.job else start
    state, position = await (begin_early(log, before.offset) if before.offset is not None else begin(log, before))
    journey = Journey(state, before)

    def go_on(entry: Entry) -> bool:
        """Fold one entry, unless the point is in it or before it."""
        return (before.offset is None or entry.last <= before.offset) and journey.feed(entry)

    if position.offset < end:
        await feed(log, position, go_on, until=before, doing="going to the beginning")
    position = journey.position(position)
    if position.offset >= end:
        raise LogError("there are no events between these points", hint="use an earlier --from or a later --until")
    return _Part(position, end, state, job)


async def _state_there(log: Copyable, position: Position) -> State | None:
    if position.offset == 0:
        return State()
    stored = await log.newest_snapshot(at_most=position.offset)
    if stored is None or stored.position.offset != position.offset:
        return None
    try:
        return snapshot.restore(stored.content)
    except snapshot.UnusableSnapshot:
        return None


async def _offset_at(log: Copyable, point: Point) -> int:
    """The end of the last entry that begins at or before a point."""
    end = await end_offset(log)
    if point.offset is None and point.time_ms is None:
        return end
    if point.offset is not None and point.offset > end:
        raise LogError(f"the log has no offset {point.offset} yet, it ends at {end}", hint="use an earlier point")
    after = await position_before(log, point)
    reached = after.offset

    def take(entry: Entry) -> None:
        nonlocal reached
        reached = entry.last

    await feed(log, after, take, until=point, doing="finding the end")
    return reached


async def _of_job(log: Copyable, asked: _Asked) -> tuple[str, int, int]:
    """The newest job of the requested name as NAMESPACE/NAME, with the first and last offset of its segment."""
    concerning = Concerning(asked.job, asked.namespace)
    await feed(log, await log.start(), concerning.feed, until=END, doing="looking for the job")
    if not concerning.found:
        raise unknown_job(job_label(asked.namespace, asked.job), await job_index_of(log, END))
    spans = {namespace: (first, last) for namespace, first, last in concerning.found.values()}
    if len(spans) > 1:
        known = ", ".join(f"{namespace}/{asked.job}" for namespace in sorted(spans))
        raise NotFound(f"there are several jobs {asked.job!r}: {known}", hint="choose one with --job NAMESPACE/NAME")
    ((namespace, (first, end)),) = spans.items()
    return f"{namespace}/{asked.job}", first, end


class _Renamed:
    """Reads the part of the log without names."""

    def __init__(self, log: Copyable, part: _Part) -> None:
        self._log = log
        self._part = part
        self._names = Pseudonyms()
        #: The position up to which the log was read, and the chain of the changed entries.
        self._read = part.after
        self._chain = part.after.chain

    async def collect(self) -> State | None:
        """Collect all names of the part, and return the state at its beginning without names."""
        part, names, image = self._part, self._names, None
        if part.state is not None and part.after.offset:
            image = snapshot.image_of(snapshot.encode(part.state))
            names.walk(image)
        end = Point(offset=part.until)
        await feed(self._log, part.after, lambda entry: names.batch(entry.batch), until=end, doing="collecting names")
        names.begin()
        return snapshot.restore(snapshot.encode_image(names.walk(image))) if image is not None else part.state

    def entry(self, entry: Entry) -> Entry:
        """The entry without names, after `collect`."""
        return msgspec.structs.replace(entry, batch=self._names.batch(entry.batch))

    def job(self, label: str) -> str:
        """The pseudonym of a job, given as NAMESPACE/NAME."""
        namespace, _, name = label.rpartition("/")
        return f"{self._names.name('namespace', namespace)}/{self._names.name('job', name)}"

    async def read(self, _: Position, limit: int) -> Sequence[StoredEntry]:
        found = []
        for entry in await self._log.read(self._read, limit=limit):
            if entry.last > self._part.until:
                break
            payload = encode_batch(self._names.batch(entry.batch))
            self._chain = next_chain(self._chain, payload)
            found.append(StoredEntry(entry.last, len(entry.batch.events), self._chain, payload))
            self._read = Position(self._read.epoch, entry.last, entry.chain)
        return found


async def _write(log: Copyable, writer: ZipWriter, asked: _Asked, part: _Part) -> tuple[tuple[int, int], str]:
    """Write the snapshot before the part, the part, and snapshots within it. Returns the first and the last time, and
    the pseudonym of the requested job, empty if it has none."""
    after, state, there = part.after, part.state, ""

    source: Source = lambda position, limit: log.read_stored(position, limit=limit)  # noqa: E731
    if asked.hashed:
        renamed = _Renamed(log, part)
        state = await renamed.collect()
        source = renamed.read
        there = renamed.job(part.job) if part.job else ""
    # Other names make other entries, which nobody signed.
    keys = UNKEYED if asked.hashed else log.keys
    if state is not None and after.offset:
        before = signed_snapshot(StoredSnapshot(after, snapshot.encode(state)), keys)
        name, content = encode_snapshot_file(before, state.time_ms)
        writer.put(name, content)
    archive_writer = ArchiveWriter(writer, every_events=_A_SEGMENT, keys=keys)
    times_ms: list[int] = []
    done = after.offset
    with progress("exporting", part.until - after.offset) as moved:
        async for put in archive_writer.archive(source, after, part.until, state=state):
            moved(put.position.offset - done)
            done = put.position.offset
            times_ms += put.times_ms
    about = {"by": f"arranger {__version__}", "job": bool(asked.job), "hashed": asked.hashed}
    writer.put("about.json", msgspec.json.encode(about))
    return (times_ms[0], max(times_ms)), there
