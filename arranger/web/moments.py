"""Answers the console's questions about points of the log, from an index in memory and snapshots between its points.

It works in a process of its own (`moment_process`), or in the caller's where nobody else is delayed.
"""

import asyncio
import contextlib
import functools
import gc
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from arranger.errors import DamagedEntry, EntriesTrimmed, EpochLost, LogError, LogUnavailable, UsageError
from arranger.events.archive import ArchiveLog
from arranger.events.file_log import FileLog
from arranger.events.kinds import Event
from arranger.events.log import Entry, Log, Position
from arranger.model.config import CycleConfig
from arranger.model.text import safe_json
from arranger.plugins import installed
from arranger.points import parse_at
from arranger.projections import snapshot
from arranger.projections.state import Changes, State
from arranger.replay.console.job_page import MOST_OF_A_JOB, LifeEvent, job_page, life_event
from arranger.replay.console.log_index import LogIndex
from arranger.replay.console.moment import moment, standings
from arranger.replay.console.snapshots import continuing
from arranger.replay.reading.history import END, Point, advance, config_in
from arranger.web.damage import until_gone
from arranger.web.refusals import refuse
from arranger.web.starts import starts_soon
from arranger.workers.log.last_config import last_config

#: How long the index is built, or a state folded, without a look at who asks, in seconds.
_SLICE_S = 0.02
_WAIT_S, _RETRY_S = 1.0, 2.0
#: How long a question about an epoch waits that isn't the log's here, in seconds.
_OTHER_EPOCH_S = 5.0
#: How long the index gives way to questions after each such part: those that never end may not stop it.
_GIVE_WAY_S = 0.05
#: The answers about the end of the log in which assumed pods count.
_LASTING = ("moment", "series")
#: How many states of points that were asked for are kept, to go on from them.
_LATEST = 4
#: A file that has grown is taken for one that goes on for so long after it, in seconds.
_WRITTEN_S = 600.0
#: Of how many jobs the events are kept that were read for their pages.
_HISTORIES = 4
#: A log's own snapshot is used only if it saves folding so many events: it takes longer to restore than one in memory.
_WORTH = 20_000
_ENTRIES_A_READ = 1000

Values = Mapping[str, str]


@dataclass(slots=True)
class _Warm:
    """A state that was folded for a question, its position, the offset up to which it may be folded on, and the
    settings of the last cycle, as far as they are known."""

    state: State
    position: Position
    until: int
    config: CycleConfig | None = None


async def attended() -> bool:
    """That some process may work on the log: for one of which nothing else is known."""
    return True


class Moments:
    """Call `follow` in a task; `answer` works from its first step on. `attended` tells whether a process works on the
    log."""

    def __init__(self, log: Log, attended: Callable[[], Awaitable[bool]] = attended) -> None:
        self._log = log
        if isinstance(log, ArchiveLog):
            log.revisited = True
        self._attended = attended
        self._index: LogIndex | None = None
        self._epoch = self._end = 0
        #: The end of the log when it was opened, and when it was seen to have grown since.
        self._opened_end = 0
        self._grew_s: float | None = None
        self._asking = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._begun = asyncio.Event()
        #: Set once what is asked first can be answered.
        self.ready = asyncio.Event()
        self._latest: OrderedDict[int, _Warm] = OrderedDict()
        #: UID of a job → offset → the event about it there.
        self._histories: OrderedDict[str, dict[int, tuple[LifeEvent, Event]]] = OrderedDict()
        self._turn = asyncio.Lock()
        #: Why nothing new is read, empty if all is well.
        self.problem = ""
        self._answers: dict[str, Callable[[LogIndex, Values], Awaitable[object]]] = {
            "moment": self._moment,
            "standings": self._standings,
            "timeline": self._timeline,
            "series": self._series,
            "gantt": self._gantt,
            "node-gantt": self._node_gantt,
            "decision": self._decision,
            "job": self._job,
        }

    @property
    def complete(self) -> bool:
        """Whether the index reaches the end of the log that was last seen."""
        return self._index is not None and self._index.position.offset >= self._end

    async def follow(self) -> None:
        """Read until cancelled. Waits at an entry that can't be read."""
        while True:
            try:
                if self._index is None:
                    await self._begin()
                await self._step()
            except (EpochLost, EntriesTrimmed):
                self._forget()
            except DamagedEntry as problem:
                self.problem = str(problem)
                await until_gone(self._log, self._epoch, problem)
                self._forget()
            except LogUnavailable as problem:
                self.problem = str(problem)
                await asyncio.sleep(_RETRY_S)
            except LogError as problem:
                self.problem = str(problem)
                self._forget()
                await asyncio.sleep(_RETRY_S)
            except UsageError as problem:
                if not self._epoch:
                    raise
                self.problem = str(problem)  # its file was moved away, or is none: another comes
                await asyncio.sleep(_RETRY_S)

    async def answer(self, name: str, values: Values, *, end: int = 0, epoch: int = 0) -> tuple[bytes, bool]:
        """The answer as JSON, and whether it is about all of the log up to the offset `end`, or the end that was last
        seen. With an epoch, it is about the log of that epoch and no other. Raises `Refusal`, and errors of the log."""
        self._asking += 1
        self._idle.clear()
        try:
            async with self._turn:
                if self._index is None and self.problem:
                    refuse("ServiceUnavailable", self.problem, hint="try again soon")
                await self._in_epoch(epoch)
                assert self._index is not None
                self._end = max(self._end, end)
                found = await self._answers[name](self._index, values)
                final = getattr(found, "complete", self.complete or name == "moment")
                # Whether a log that has grown goes on is another question later.
                final = final and (name != "timeline" or self._grew_s is None)
                if name in _LASTING and "at" not in values:  # with no event, room that is kept is given back
                    final = final and not self._index.state.assumed
                return safe_json(msgspec.json.encode(found)), final
        finally:
            self._asking -= 1
            if not self._asking:
                self._idle.set()

    async def _in_epoch(self, epoch: int) -> None:
        """Wait until the index is that of an epoch: whoever asks may have learnt before this that there is another log
        now, or after it. 0: of any. Raises `Refusal` if it takes long."""
        until_s = time.monotonic() + _OTHER_EPOCH_S
        await self._begun.wait()
        while epoch and self._epoch != epoch:
            if time.monotonic() > until_s:
                refuse("ServiceUnavailable", "the log is another one now, and is read again", hint="try again soon")
            await asyncio.sleep(_GIVE_WAY_S)
            await self._begun.wait()

    # --- the index -----------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        end = await self._log.open()
        state, position = await _oldest(self._log)
        if position.epoch != end.epoch:
            raise EpochLost("another log took its place while it was opened")
        self._epoch = end.epoch
        state.epoch = state.epoch or position.epoch
        config = await last_config(self._log, state, position) if state.last_cycle else None
        self._index, self._end, self.problem = LogIndex(state, position, config), end.offset, ""
        self._opened_end, self._grew_s = end.offset, None
        self._begun.set()
        marks = await self._log.snapshot_marks()
        if marks and 0 <= end.offset - marks[-1].offset <= _WORTH:  # what is asked first, ready when it is asked
            async with self._turn:
                await self._at(self._index, end.offset)
        self.ready.set()
        await asyncio.sleep(_GIVE_WAY_S)  # whoever waits for it asks now

    async def _step(self) -> None:
        assert self._index is not None
        index, since_s = self._index, time.monotonic()
        entries = await self._log.read(index.position, limit=_ENTRIES_A_READ, wait_s=_WAIT_S)
        if not entries and time.monotonic() - since_s < _WAIT_S:
            await asyncio.sleep(_WAIT_S)  # an archive doesn't wait for entries
        if entries and entries[-1].last > self._opened_end:  # before anybody is told of the new end
            self._grew_s = time.monotonic()
        for entry in entries:
            index.feed(entry)
            if time.monotonic() - since_s > _SLICE_S:
                await asyncio.sleep(0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GIVE_WAY_S):
                        await self._idle.wait()
                since_s = time.monotonic()
        self._end = max(self._end, index.position.offset)

    def _forget(self) -> None:
        self._index, self._end = None, 0
        self._latest.clear()
        self._histories.clear()
        self._begun.clear()

    # --- states --------------------------------------------------------------------------------------------

    async def _at(self, index: LogIndex, at: int) -> State:
        """The state after the event at an offset. Nobody may change it."""
        return (await self._warm(index, at)).state

    async def _warm(self, index: LogIndex, at: int) -> _Warm:
        await self._has(index, at)
        if at < index.began or at < 1:
            refuse("Expired", f"the log begins after offset {index.began}", hint="use a later point")
        warm = self._latest.pop(at, None)
        if warm is None:
            warm = await self._nearest(index, at)
            try:
                await _fold(self._log, warm, at)
            except asyncio.CancelledError:
                self._keep(warm.position.offset, warm)  # the next question may go on from here
                raise
        self._keep(at, warm)
        return warm

    async def _config(self, index: LogIndex, warm: _Warm) -> CycleConfig:
        """The settings of the last cycle up to a state."""
        last = warm.state.last_cycle
        config = warm.config or index.config(last) or await last_config(self._log, warm.state, warm.position)
        warm.config = config if last else None  # without a cycle, those of the first one that comes
        return config

    async def _has(self, index: LogIndex, at: int) -> None:
        """Refuse an offset that the log doesn't have."""
        if at > max(self._end, index.position.offset):
            self._end = (await self._log.end()).offset
            if at > self._end:
                refuse("NotFound", f"the log has no offset {at} yet, it ends at {self._end}")

    def _keep(self, at: int, warm: _Warm) -> None:
        self._latest[at] = warm
        if len(self._latest) > _LATEST:
            self._latest.popitem(last=False)

    async def _nearest(self, index: LogIndex, at: int) -> "_Warm":
        """A state at or before an offset that can be folded on up to there."""
        kept = index.snapshots.nearest(at)
        assert kept is not None
        behind = [
            of for of, warm in self._latest.items() if kept.position.offset <= warm.position.offset <= at <= warm.until
        ]
        if behind:
            return self._latest.pop(max(behind))
        if at - kept.position.offset > _WORTH:
            stored = await self._log.newest_snapshot(at_most=at)
            if stored is not None and stored.position.offset > kept.position.offset + _WORTH:
                with contextlib.suppress(snapshot.UnusableSnapshot):
                    return _Warm(_restored(stored.content), stored.position, sys.maxsize)
        until = index.snapshots.until(kept) or index.position.offset
        if at > until:
            return _Warm(continuing(kept, whole=True), kept.position, sys.maxsize)
        return _Warm(continuing(kept), kept.position, until)

    # --- answers -------------------------------------------------------------------------------------------

    async def _moment(self, index: LogIndex, values: Values) -> object:
        at, point = self._point(index, values)
        state = await self._at(index, at)
        return moment(self._present(state) if point == END else _as_of(state, point))

    def _present(self, state: State) -> State:
        """The end of the log: of a live one, without the pods that aren't awaited any more now. Its time is that of
        the last change, so that the answer stays the same until the next one."""
        return state.as_of(state.lapsed_ms(self._now_ms()))

    async def _standings(self, index: LogIndex, values: Values) -> object:
        at, point = self._point(index, values)
        complete = at <= index.position.offset
        warm = await self._warm(index, at)
        state, config = _as_of(warm.state, point), await self._config(index, warm)
        made = functools.partial(starts_soon, state, config)
        return standings(state, config, index.gantt.gpu_ms, installed(), complete=complete, made=made)

    def _point(self, index: LogIndex, values: Values) -> tuple[int, Point]:
        """The offset that is asked about, and the point."""
        point = parse_at(values["at"], now_ms=0) if "at" in values else END
        return max(self._end, index.position.offset) if point.offset is None else point.offset, point

    async def _timeline(self, index: LogIndex, values: Values) -> object:
        return index.timeline.timeline(
            int(values.get("buckets", 400)),
            complete=self.complete,
            busiest=index.series.busiest,
            stored=await self._has_ended(index.state),
            **_span(values),
        )

    async def _has_ended(self, state: State) -> bool:
        """Whether the log's last event may be its end. Where nobody works on a log, but jobs wait or run, somebody has
        to see how they stand."""
        if isinstance(self._log, FileLog | ArchiveLog):
            return self._grew_s is None or time.monotonic() - self._grew_s > _WRITTEN_S
        return not await self._attended() and not any(job.active for job in state.jobs.values())

    async def _series(self, index: LogIndex, values: Values) -> object:
        points = int(values.get("points", 300))
        now_ms = self._now_ms()
        return index.series.series(points, index.state, complete=self.complete, now_ms=now_ms, **_span(values))

    def _now_ms(self) -> int:
        """The present time, which is that of the end of a log to which others write; 0 for one that has ended."""
        return int(time.time() * 1000) if self._log.live else 0

    async def _decision(self, index: LogIndex, values: Values) -> object:
        after, before = values.get("after"), values.get("before")
        if (after is None) == (before is None):
            refuse("BadRequest", "decision has either the parameter after or the parameter before")
        found = index.timeline.decision(
            after=int(after) if after is not None else None, before=int(before) if before is not None else None
        )
        if found is None:
            refuse("NotFound", "the log has no such decision")
        return found

    async def _gantt(self, index: LogIndex, values: Values) -> object:
        return index.gantt.gantt(*_span_ms(index, values), complete=self.complete)

    async def _node_gantt(self, index: LogIndex, values: Values) -> object:
        return index.gantt.nodes.gantt(*_span_ms(index, values), complete=self.complete)

    async def _job(self, index: LogIndex, values: Values) -> object:
        """The job's page at the point, or, while the index is on its way there, at the latest point that it has
        reached: an answer about each new end of a log that grows fast would never be done."""
        asked, point = self._point(index, values)
        await self._has(index, asked)
        at = min(asked, index.position.offset)
        label, uid = index.jobs.find(values["job"], at)
        if not uid and at < asked:
            refuse("ServiceUnavailable", f"the log is read up to offset {at} so far", hint="try again soon")
        if not uid:
            hint = index.jobs.meant(values["job"], at)
            refuse("NotFound", f"the log has no job {values['job']!r} up to that point", hint=hint)
        state = await self._at(index, at)
        offsets = index.jobs.offsets(uid, at)
        life = await self._life(index, uid, offsets[-MOST_OF_A_JOB:])
        seen = _as_of(state, point if at == asked else END)
        page = job_page(seen, label, uid, life, max(len(offsets) - MOST_OF_A_JOB, 0))
        return msgspec.structs.replace(page, complete=at == asked)

    async def _life(self, index: LogIndex, uid: str, offsets: list[int]) -> list[tuple[LifeEvent, Event]]:
        """The events about a job at these offsets; the log is read from the snapshots before them. What is read is
        kept, also if the question is taken back: the next one, about a later point, needs little more."""
        kept = self._histories.pop(uid, {})
        found = self._histories[uid] = {offset: kept[offset] for offset in offsets if offset in kept}
        if len(self._histories) > _HISTORIES:
            self._histories.popitem(last=False)
        entries: Sequence[Entry] = ()
        for offset in offsets:
            if offset in found:
                continue
            at = abs(offset)
            entries = await self._entries_at(index, at, entries)
            if not entries:
                break
            entry = next(one for one in entries if one.last >= at)
            found[offset] = (life_event(offset, entry, uid, index.jobs.seen), entry.batch.events[at - entry.first])
        return [found[offset] for offset in offsets if offset in found]

    async def _entries_at(self, index: LogIndex, at: int, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Entries with that of an offset: those that were read for an earlier one, or the next ones; none if the log
        ends before."""
        kept = index.snapshots.nearest(at - 1)
        assert kept is not None
        while not entries or entries[-1].last < at:
            position = kept.position
            if entries and entries[-1].last > position.offset:
                position = Position(position.epoch, entries[-1].last, entries[-1].chain)
            await asyncio.sleep(0)  # a file's entries are there at once, and who asks may have gone
            entries = await self._log.read(position, limit=_ENTRIES_A_READ)
            if not entries:
                break
        return entries


def _as_of(state: State, point: Point) -> State:
    """The state at the time up to which an answer about the point counts. While it is used, nobody may fold the given
    one on."""
    return state.as_of(point.as_of_ms(state.time_ms, now_ms=None, goes_on=True))


def _span(values: Values) -> dict[str, int]:
    """A span of time that is given in milliseconds since 1970."""
    names = {"sinceMs": "since_ms", "untilMs": "until_ms"}
    return {name: int(values[given]) for given, name in names.items() if given in values}


def _span_ms(index: LogIndex, values: Values) -> tuple[int, int]:
    """The time from one offset to another, or a span of time that is given, in milliseconds since 1970."""
    first, last = int(values.get("from", index.timeline.first)), int(values.get("to", index.timeline.last))
    span = _span(values)
    begin_ms = span.get("since_ms", index.timeline.time_ms(first))
    until_ms = min(span.get("until_ms", index.timeline.time_ms(last)), index.timeline.time_ms(index.timeline.last))
    return begin_ms, max(until_ms, begin_ms)


async def _oldest(log: Log) -> tuple[State, Position]:
    """The state with which a pass over the log begins: an empty one, or the oldest usable snapshot of a trimmed log."""
    start = await log.start()
    if start.offset == 0:
        return State(epoch=start.epoch), start
    for mark in await log.snapshot_marks():
        stored = await log.newest_snapshot(at_most=mark.offset) if mark.offset >= start.offset else None
        if stored is not None and stored.position.offset >= start.offset:
            try:
                return _restored(stored.content), stored.position
            except snapshot.UnusableSnapshot:
                continue
    raise LogError(f"the log begins at offset {start.offset}, and has no usable snapshot")


def _restored(content: bytes) -> State:
    """The state of a snapshot. Nothing in it is garbage, so the collector looks at it neither now nor later: now, that
    would take a tenth of the time until the first picture. Raises `UnusableSnapshot`."""
    gc.disable()
    try:
        return snapshot.restore(content)
    finally:
        gc.freeze()
        gc.enable()


async def _fold(log: Log, warm: _Warm, at: int) -> None:
    """Fold up to the entry that has the offset. Others have a turn every `_SLICE_S`, so that it can be cancelled."""
    since_s = time.monotonic()
    while warm.position.offset < at:
        entries = await log.read(warm.position, limit=min(at - warm.position.offset, _ENTRIES_A_READ))
        if not entries:
            return
        for entry in entries:
            if entry.first > at:
                return
            advance(warm.state, entry, Changes())
            warm.config = config_in(entry, warm.state) or warm.config
            warm.position = Position(warm.position.epoch, entry.last, entry.chain)
            if time.monotonic() - since_s > _SLICE_S:
                await asyncio.sleep(0)
                since_s = time.monotonic()
