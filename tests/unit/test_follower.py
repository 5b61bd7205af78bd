"""The follower: one fold that keeps up with the log, whatever happens to it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from arranger.clock import Clock, SystemClock
from arranger.errors import ClockOff, DamagedEntry, EpochLost, LogUnavailable
from arranger.events import kinds as k
from arranger.events.log import Appended, Entry, Position, StoredSnapshot
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.workers.log.follower import Follower
from arranger.workers.log.writer import Writer
from tests.clocks import HOUR_MS, SetClock, compared
from tests.memory_log import MemoryHome, MemoryLog


def node(name: str) -> k.Event:
    return k.EffectFailed(name, 0, "create", None, 500, "", "", permanent=False)


def made(log: MemoryLog) -> tuple[Follower, Writer]:
    clock = SystemClock()
    metrics = Metrics(clock)
    follower = Follower(log, clock=clock, metrics=metrics, reader="test")
    return follower, Writer(follower, name="w", clock=clock, metrics=metrics)


def run(scenario: Callable[[MemoryHome, Follower, Writer], Awaitable[None]]) -> None:
    async def whole() -> None:
        home = MemoryHome()
        follower, writer = made(MemoryLog(home))
        await follower.start()
        following = asyncio.create_task(follower.run())
        try:
            await scenario(home, follower, writer)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    asyncio.run(asyncio.wait_for(whole(), 30))


def test_what_is_appended_is_folded() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        appended = await writer.append_and_fold([node("a"), node("b")])
        assert (appended.first, appended.last) == (2, 3)
        assert follower.state.offset == 3

    run(scenario)


def test_a_projection_that_is_read_bit_by_bit_changes_only_afterwards() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        state = follower.state
        async with follower.still:
            for name in "ab":
                await writer.append([node(name)])
            for _ in range(100):
                await asyncio.sleep(0)
            assert state.offset == 1
        assert await follower.folded(state.epoch, 3)
        other, _ = made(MemoryLog(home))
        await other.start()
        assert snapshot.encode(follower.state) == snapshot.encode(other.state)

    run(scenario)


def test_an_emptied_log_begins_a_new_epoch_and_an_empty_projection() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        await writer.append_and_fold([k.WatchClaimed(k.Watched.NODE, "w")])
        old = follower.state.epoch
        home.lose_everything()
        assert not await follower.folded(old, 99)
        assert follower.state.offset == 1 and not follower.state.terms
        await writer.append_and_fold([node("a")])

    run(scenario)


def test_a_lost_tail_begins_a_new_epoch() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        for name in "abc":
            await writer.append_and_fold([node(name)])
        old = follower.state.epoch
        home.lose_tail(after=2)
        with pytest.raises(EpochLost):
            while True:
                await writer.append_and_fold([node("d")])
                if follower.state.epoch != old:
                    raise EpochLost("followed by the fold")
        assert not await follower.folded(old, 99)

    run(scenario)


def test_a_trimmed_log_without_a_usable_snapshot_begins_a_new_epoch() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        for name in "abc":
            await writer.append_and_fold([node(name)])
        epoch, position = follower.state.epoch, follower.position
        await follower.log.put_snapshot(StoredSnapshot(position, b"of another layout"))
        await follower.log.trim(position.offset, epoch=epoch)
        late, _ = made(MemoryLog(home))
        await late.start()
        assert late.state.epoch != epoch

    run(scenario)


class Overtaken(MemoryLog):
    """A client that is paused after each reading of a snapshot, while others store a newer one and trim behind it."""

    def __init__(self, home: MemoryHome, others: Follower, writer: Writer, *, times: int) -> None:
        super().__init__(home)
        self._others, self._writer, self._times = others, writer, times

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        found = await super().newest_snapshot(at_most=at_most)
        if self._times:
            self._times -= 1
            await self._writer.append_and_fold([node("a"), node("b")])
            position, log = self._others.position, self._others.log
            await log.put_snapshot(StoredSnapshot(position, snapshot.encode(self._others.state)))
            await log.trim(position.offset + 1, epoch=position.epoch)
        return found


@pytest.mark.parametrize("times", [1, 2, 5])
def test_who_is_paused_after_each_reading_of_a_snapshot_begins_no_epoch(times: int) -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        late, _ = made(Overtaken(home, follower, writer, times=times))
        await late.start()
        assert (late.state.epoch, late.state.offset) == (follower.state.epoch, follower.state.offset)


def later_layout() -> bytes:
    """What a later version stored."""
    return msgspec.msgpack.encode([snapshot.LAYOUT + 1, "whatever"])


@pytest.mark.parametrize("content", [later_layout(), b"damaged", msgspec.msgpack.encode([3])])
def test_where_the_newest_snapshot_cant_be_used_an_older_one_is(content: bytes) -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        for name in "abc":
            await writer.append_and_fold([node(name)])
        position = follower.position
        await follower.log.put_snapshot(StoredSnapshot(position, snapshot.encode(follower.state)))
        await follower.log.trim(position.offset, epoch=position.epoch)
        await writer.append_and_fold([k.WatchClaimed(k.Watched.NODE, "w")])
        await follower.log.put_snapshot(StoredSnapshot(follower.position, content))
        late, _ = made(MemoryLog(home))
        await late.start()
        assert snapshot.digest(late.state) == snapshot.digest(follower.state)

    run(scenario)


def test_a_log_that_only_a_later_version_can_go_on_with_is_left_alone_until_there_is_a_snapshot_to_begin_with() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        for name in "abc":
            await writer.append_and_fold([node(name)])
        position = follower.position
        await follower.log.put_snapshot(StoredSnapshot(position, later_layout()))
        await follower.log.trim(position.offset, epoch=position.epoch)
        late, _ = made(MemoryLog(home))
        starting = asyncio.create_task(late.start())
        while late.refused is None:  # noqa: ASYNC110 - nothing tells of it but the check of health
            await asyncio.sleep(0)
        assert f"layout {snapshot.LAYOUT + 1}" in str(late.refused) and not starting.done()
        assert (await follower.log.end()).epoch == position.epoch
        await follower.log.put_snapshot(StoredSnapshot(position, snapshot.encode(follower.state)))
        await starting
        assert late.refused is None and late.state.epoch == position.epoch

    run(scenario)


def test_a_process_that_slept_until_only_a_later_version_can_go_on_waits_too() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        late, _ = made(MemoryLog(home))
        await late.start()
        for name in "abc":
            await writer.append_and_fold([node(name)])
        position = follower.position
        await follower.log.put_snapshot(StoredSnapshot(position, later_layout()))
        await follower.log.trim(position.offset, epoch=position.epoch)
        following = asyncio.create_task(late.run())
        while late.refused is None:  # noqa: ASYNC110 - nothing tells of it but the check of health
            await asyncio.sleep(0)
        assert (await follower.log.end()).epoch == position.epoch and not late.caught_up
        await follower.log.put_snapshot(StoredSnapshot(position, snapshot.encode(follower.state)))
        assert await late.folded(position.epoch, position.offset) and late.refused is None
        following.cancel()

    run(scenario)


def test_a_start_from_a_snapshot_equals_the_fold_from_the_start() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        await writer.append_and_fold([k.WatchClaimed(k.Watched.NODE, "w"), node("a")])
        await follower.log.put_snapshot(StoredSnapshot(follower.position, snapshot.encode(follower.state)))
        await follower.log.trim(follower.position.offset + 1, epoch=follower.state.epoch)
        await writer.append_and_fold([k.WatchClaimed(k.Watched.POD, "w")])
        late, _ = made(MemoryLog(home))
        await late.start()
        assert snapshot.digest(late.state) == snapshot.digest(follower.state)

    run(scenario)


@pytest.mark.parametrize("others", [1, 2, 3])
def test_a_batch_of_ours_that_the_log_lost_before_we_read_it_ends_the_epoch(others: int) -> None:
    """Others have appended in its place, and that is read before the answer to our append comes."""

    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        append, stranger = follower.log.append, MemoryLog(home)
        await stranger.open()
        epoch = follower.state.epoch

        async def lost(batch: k.Batch, **options: Any) -> Appended:
            appended = await append(batch, **options)
            home.lose_tail(appended.first - 1)
            for seq, count in enumerate((others, 3), start=1):
                batch = k.Batch("stranger", seq, 0, tuple(node(f"s{number}") for number in range(count)))
                last = (await stranger.append(batch, epoch=epoch)).last
                if seq == 1:
                    await follower.folded(epoch, last)
            return appended

        follower.log.append = lost  # type: ignore[method-assign]
        with pytest.raises(EpochLost):
            await writer.append_and_fold([node("b"), node("c")])
        await asyncio.wait_for(follower.epoch_ended(epoch), 5)

    run(scenario)


class _Unreadable(MemoryLog):
    """A log with an entry at which reading fails."""

    async def read(self, *args: object, **kwargs: object) -> Sequence:  # type: ignore[override,type-arg]
        raise DamagedEntry(7, "cut off")


def test_a_damaged_entry_stops_the_fold_for_good_with_its_offset() -> None:
    async def whole() -> None:
        follower, _ = made(_Unreadable())
        await follower.log.open()
        with pytest.raises(DamagedEntry, match="offset 7"):
            await follower.run()
        assert follower.stopped is not None and follower.stopped.offset == 7

    asyncio.run(whole())


def test_a_log_trimmed_behind_a_snapshot_that_was_lost_with_its_tail_begins_a_new_epoch() -> None:
    async def scenario(home: MemoryHome, follower: Follower, writer: Writer) -> None:
        for number in range(9):
            await writer.append_and_fold([node(str(number))])
            if number in (2, 6):
                content = snapshot.encode(follower.state)
                await follower.log.put_snapshot(StoredSnapshot(follower.position, content))
        await follower.log.trim(6, epoch=follower.state.epoch)
        home.lose_tail(7)  # and with it the newer snapshot
        other, _ = made(MemoryLog(home))
        await other.start()
        assert other.state.epoch > 1
        assert other.state.offset == 1

    run(scenario)


class Refusing(MemoryLog):
    """A log whose first appends are refused for the reasons given, some of them after they were carried out."""

    def __init__(self, *problems: Exception, carried_out: bool = False) -> None:
        super().__init__()
        self.problems = list(problems)
        self.carried_out = carried_out
        self.stamps: list[int] = []

    async def append(self, batch: k.Batch, **options: Any) -> Appended:
        self.stamps.append(batch.time_ms)
        if not self.problems or self.carried_out:
            appended = await super().append(batch, **options)
        if self.problems:
            raise self.problems.pop(0)
        return appended


def writing(log: MemoryLog, clock: Clock) -> tuple[Follower, Writer]:
    follower = Follower(log, clock=SystemClock(), metrics=Metrics(clock), reader="test")
    return follower, Writer(follower, name="w", clock=clock, metrics=Metrics(clock))


async def test_a_batch_that_waited_is_stamped_with_the_time_of_each_try() -> None:
    log = Refusing(LogUnavailable("away"), ClockOff(-30_000), carried_out=True)
    clock = SetClock()
    follower, writer = writing(log, compared(clock))
    await follower.start()
    appended = await writer.append([node("a")])
    assert len(log.stamps) == 3 and log.stamps == sorted(set(log.stamps))
    assert appended.duplicate, "the first try was carried out, whatever its answer"


async def test_a_batch_that_the_log_finds_off_again_and_again_is_given_back() -> None:
    log = Refusing(*[ClockOff(12_000)] * 9)
    follower, writer = writing(log, SetClock())
    await follower.start()
    with pytest.raises(ClockOff):
        await writer.append([node("a")])
    assert len(log.problems) == 5


async def test_what_was_decided_by_a_wrong_clock_is_never_appended() -> None:
    clock, log = SetClock(), Refusing()
    follower, writer = writing(log, compared(clock))
    await follower.start()
    clock.ahead_ms = HOUR_MS
    with pytest.raises(ClockOff):
        await writer.append([node("a")])
    clock.ahead_ms = 0
    assert log.stamps == []


async def test_a_batch_on_its_way_when_the_clock_goes_wrong_is_given_back() -> None:
    clock = SetClock()
    log = Refusing(LogUnavailable("away"))
    follower, writer = writing(log, compared(clock))
    await follower.start()

    async def append() -> None:
        await writer.append([node("a")])

    task = asyncio.create_task(append())
    await asyncio.sleep(0)
    clock.ahead_ms = -HOUR_MS
    with pytest.raises(ClockOff):
        await task
    assert len(log.stamps) == 1


class Paused(SystemClock):
    """A clock that a pause of the process moves on."""

    def __init__(self) -> None:
        self.passed_s = 100.0

    def monotonic_s(self) -> float:
        return self.passed_s


class AnswersBefore(MemoryLog):
    """A log whose answers come in before a pause of the process and are looked at after it."""

    def __init__(self, home: MemoryHome, clock: Paused) -> None:
        super().__init__(home)
        self.clock = clock
        self.pauses: list[float] = []

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        found = await super().read(after, limit=limit, wait_s=0.0)
        self.clock.passed_s += self.pauses.pop() if self.pauses else 0.0
        return found


def test_what_was_read_before_a_pause_does_not_make_a_projection_fresh() -> None:
    async def scenario() -> None:
        clock, home = Paused(), MemoryHome()
        log = AnswersBefore(home, clock)
        follower = Follower(log, clock=clock, metrics=Metrics(clock), reader="test")
        await follower.start()
        assert follower.fresh()
        log.pauses.append(10.0)
        await follower._step(wait_s=0.0)
        assert not follower.fresh()
        await follower._step(wait_s=0.0)
        assert follower.fresh()

    asyncio.run(scenario())


def test_a_projection_is_not_fresh_after_a_pause_in_which_others_took_over() -> None:
    async def scenario() -> None:
        clock = Paused()
        for gone_s, fresh in ((9.0, True), (3.0, False)):
            log = AnswersBefore(MemoryHome(), clock)
            follower = Follower(log, clock=clock, metrics=Metrics(clock), reader="test", gone_s=gone_s)
            await follower.start()
            assert follower.fresh()
            clock.passed_s += 3.0
            assert follower.fresh() == fresh

    asyncio.run(scenario())


def test_a_projection_that_is_far_behind_is_not_fresh_before_it_has_read_to_the_end() -> None:
    async def scenario() -> None:
        clock, home = Paused(), MemoryHome()
        follower = Follower(MemoryLog(home), clock=clock, metrics=Metrics(clock), reader="test")
        await follower.start()
        other = Follower(MemoryLog(home), clock=clock, metrics=Metrics(clock), reader="other")
        await other.start()
        writer = Writer(other, name="w", clock=clock, metrics=Metrics(clock))
        for number in range(300):
            await writer.append([node(str(number))])
        clock.passed_s += 10.0
        await follower._step(wait_s=0.0)
        assert not follower.fresh() and follower.state.offset < 301
        await follower._step(wait_s=0.0)
        assert follower.fresh() and follower.state.offset == 301

    asyncio.run(scenario())


class _SetClock(SystemClock):
    """A monotonic clock that is set by hand."""

    at_s = 100.0

    def monotonic_s(self) -> float:
        return self.at_s


def test_lag_counts_from_when_an_event_was_known_and_not_from_the_silence_before_it() -> None:
    async def whole() -> None:
        home, clock = MemoryHome(), _SetClock()
        metrics = Metrics(clock)
        follower = Follower(MemoryLog(home), clock=clock, metrics=metrics, reader="test")
        await follower.start()
        elsewhere = Follower(MemoryLog(home), clock=clock, metrics=metrics, reader="another process")
        await elsewhere.start()
        other = Writer(elsewhere, name="w", clock=clock, metrics=metrics)
        lags = []

        async def measure() -> None:
            await follower.measure_lag()
            lags.append(follower.lag)

        await measure()
        clock.at_s += 3600  # a long silence, and then an event
        await other.append([node("a"), node("b")])
        await measure()
        clock.at_s += 5
        await other.append([node("c")])
        await measure()
        await follower._step(wait_s=0.0)
        await measure()
        await other.append([node("d")])
        await measure()
        clock.at_s += 3
        home.lose_tail(follower.state.offset)  # such as an entry that wasn't authentic, and was removed
        await measure()
        home.lose_everything()
        await MemoryLog(home).begin_epoch(lost=follower.state.epoch, reason="test", time_ms=0)
        await measure()
        clock.at_s += 7
        await measure()
        assert lags == [(0, 0.0), (2, 0.0), (3, 5.0), (0, 0.0), (1, 0.0), (0, 0.0), (1, 0.0), (1, 7.0)]

    asyncio.run(asyncio.wait_for(whole(), 30))


class Busy(MemoryLog):
    """A log to which another process appends before each read, once it is busy."""

    busy = False

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        if self.busy:
            await asyncio.sleep(0.001)
            end = await self.end()
            await self.append(k.Batch("busy", end.offset, 0, (node("n"),)), epoch=end.epoch)
        return await super().read(after, limit=limit, wait_s=wait_s)


async def test_a_projection_catches_up_with_a_log_that_never_rests() -> None:
    log = Busy(MemoryHome())
    follower, _ = made(log)
    await follower.start()
    log.busy, follower.caught_up = True, False  # as after a new epoch
    following = asyncio.create_task(follower.run())
    for _ in range(100):
        await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert follower.caught_up and follower.state.offset > 1


async def test_a_process_starts_on_a_log_that_never_rests() -> None:
    log = Busy(MemoryHome())
    follower, _ = made(log)
    await MemoryLog(log.home).begin_epoch(lost=0, reason="test", time_ms=0)
    log.busy = True
    await asyncio.wait_for(follower.start(), 5)
    assert follower.caught_up and follower.fresh() and follower.state.offset > 1
