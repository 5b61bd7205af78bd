"""What every home of the log must do: one suite over memory, a file, fakeredis and a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.errors import (
    ClockOff,
    DamagedEntry,
    EntriesTrimmed,
    EpochLost,
    OutdatedAppend,
    UnknownEvent,
    WatchSuperseded,
)
from arranger.events.fence import CLAIM, Fence
from arranger.events.kinds import Batch, EpochBegun, ObjectGone, WatchClaimed, Watched
from arranger.events.log import Appended, Log, Position, StoredSnapshot, entries
from arranger.events.log_keys import UNKEYED
from tests.contract.log_homes import KEYS, Home, InFile, InMemory, ahead, fake_redis, in_redis_at

REAL = [pytest.param(kind, marks=pytest.mark.real) for kind in ("redis", "signed-redis")]
EVERYWHERE = ["memory", "file", "fakeredis", *REAL]
MANY_WRITERS = ["memory", "fakeredis", *REAL]


class Place:
    """Makes a fresh home of the kind that the test runs on."""

    def __init__(self, kind: str, folder: Path, url: str) -> None:
        self._kind, self._folder, self._url = kind, folder, url

    @asynccontextmanager
    async def home(self) -> AsyncIterator[Home]:
        home: Any
        if self._kind == "memory":
            home = InMemory()
        elif self._kind == "file":
            home = InFile(self._folder)
        elif self._kind == "fakeredis":
            home = await fake_redis()
        else:
            home = in_redis_at(self._url, KEYS if self._kind == "signed-redis" else UNKEYED)
            await home.lose_everything()
        try:
            yield home
        finally:
            await home.close()


@pytest.fixture(params=EVERYWHERE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    # Database 9, so that emptying it touches nobody else's keys.
    real = request.param.endswith("redis") and request.param != "fakeredis"
    url = f"redis://127.0.0.1:{request.getfixturevalue('redis_server').port}/9" if real else ""
    return Place(request.param, tmp_path, url)


many_writers = pytest.mark.parametrize("place", MANY_WRITERS, indirect=True)


def unsigned(stored: StoredSnapshot | None) -> StoredSnapshot | None:
    """A snapshot without the signature that a home with a key adds."""
    return msgspec.structs.replace(stored, signature="") if stored is not None else None


def gone(*names: str) -> tuple[ObjectGone, ...]:
    return tuple(ObjectGone(Watched.NODE, 1, "", name, "uid") for name in names)


def batch(seq: int, *names: str, writer: str = "w") -> Batch:
    return Batch(writer, seq, 1_000 + seq, gone(*(names or (f"n{seq}",))))


async def fill(log: Log, sizes: tuple[int, ...], *, writer: str = "w") -> Position:
    """An open log with batches of these sizes after the first event; answers the start of the epoch."""
    begun = await log.open()
    for seq, size in enumerate(sizes, 1):
        await log.append(batch(seq, *(f"n{seq}-{i}" for i in range(size)), writer=writer), epoch=begun.epoch)
    return Position(begun.epoch, 0, "")


async def read_all(log: Log, after: Position) -> list[tuple[int, int]]:
    return [(entry.first, entry.last) async for entry in entries(log, after)]


# --- appending and reading ----------------------------------------------------------------------------------


async def test_an_empty_home_gets_its_first_epoch_with_its_first_event(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        (first,) = await log.read(Position(begun.epoch, 0, ""))
        assert (first.first, first.last, first.chain) == (1, 1, begun.chain)
        assert first.batch.events == (EpochBegun(begun.epoch, 0, "the log was empty"),)
        assert await log.open() == begun == await log.end()
        assert await log.start() == Position(begun.epoch, 0, "")


async def test_batches_come_back_whole_in_order_with_their_offsets(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        written = [batch(1, "a"), batch(2, "b", "c", "d"), batch(3, "e", "f")]
        spans = [(a.first, a.last) for a in [await log.append(one, epoch=begun.epoch) for one in written]]

        found = await log.read(begun)

        assert spans == [(2, 2), (3, 5), (6, 7)] == [(entry.first, entry.last) for entry in found]
        assert [entry.batch for entry in found] == written
        assert await log.end() == Position(begun.epoch, 7, found[-1].chain)
        assert list(await log.read(await log.end())) == []


async def test_another_client_reads_the_same_from_every_end_of_an_entry(place: Place) -> None:
    async with place.home() as home:
        origin = await fill(home.log(), (1, 3, 2, 1))
        reader = home.log()
        whole = await reader.read(origin)
        for number, entry in enumerate(whole):
            assert await reader.read(Position(origin.epoch, entry.last, entry.chain)) == whole[number + 1 :]
            assert list(await reader.read(origin, limit=number + 1)) == list(whole[: number + 1])


async def test_a_position_inside_a_batch_is_in_no_log(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (3, 1))
        (_, entry, _) = await log.read(origin)
        with pytest.raises(EpochLost):
            await log.read(Position(origin.epoch, entry.last - 1, entry.chain))


async def test_entries_go_up_to_the_one_that_holds_the_offset(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (1, 3, 2))
        for until, last in ((1, 1), (2, 2), (3, 5), (5, 5), (6, 7), (99, 7)):
            assert [entry async for entry in entries(log, origin, until=until)][-1].last == last
        assert await read_all(log, origin) == [(1, 1), (2, 2), (3, 5), (6, 7)]


async def test_one_read_holds_a_bounded_number_of_events_or_one_entry(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (6_000, 6_000, 15_000, 1))
        sizes, after = [], origin
        while found := await log.read(after):
            sizes.append(sum(len(entry.batch.events) for entry in found))
            after = Position(origin.epoch, found[-1].last, found[-1].chain)
        assert sum(sizes) == 27_002
        assert max(sizes) == 15_000


async def test_a_waiting_reader_gets_what_is_appended_meanwhile(place: Place) -> None:
    async with place.home() as home:
        log, reader = home.log(), home.log()
        begun = await log.open()
        reading = asyncio.create_task(reader.read(begun, wait_s=30))
        await asyncio.sleep(0.05)
        await log.append(batch(1), epoch=begun.epoch)
        assert [entry.last for entry in await reading] == [2]
        assert list(await reader.read(await log.end(), wait_s=0.01)) == []


# --- the fence around a watch -------------------------------------------------------------------------------


def claiming(seq: int, *, writer: str = "w") -> Batch:
    return Batch(writer, seq, 1_000 + seq, (WatchClaimed(Watched.NODE, writer),))


async def claim(log: Log, seq: int, *, writer: str = "w", watch: str = "nodes") -> Appended:
    """Claim a watch; the answer has the cursor that its earlier terms left."""
    return await log.append(claiming(seq, writer=writer), epoch=(await log.end()).epoch, fence=Fence(watch, CLAIM))


async def test_a_claim_returns_the_cursor_that_the_term_before_it_stored(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        nodes, pods = await claim(log, 1), await claim(log, 2, watch="pods")
        assert (nodes.first, nodes.cursor, pods.first, pods.cursor) == (2, "", 3, "")
        await log.append(batch(3), epoch=begun.epoch, fence=Fence("nodes", 2, "41"))
        await log.append(batch(4), epoch=begun.epoch, fence=Fence("pods", 3, "é: 7"))
        await log.append(batch(5), epoch=begun.epoch, fence=Fence("nodes", 2))
        await log.append(batch(6), epoch=begun.epoch)
        assert (await claim(log, 7)).cursor == "41"
        assert (await claim(log, 8, watch="pods")).cursor == "é: 7"


async def test_a_claim_keeps_the_cursor_for_the_next_one(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "41"))
        assert [(await claim(log, seq)).cursor for seq in (3, 4)] == ["41", "41"]


@pytest.mark.parametrize("cursor", ["99", ""])
async def test_an_append_under_a_superseded_term_is_refused_whole(place: Place, cursor: str) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "41"))
        await claim(log, 3)
        end = await log.end()
        with pytest.raises(WatchSuperseded, match=r"nodes .* term 2: its current term is 4"):
            await log.append(batch(4), epoch=begun.epoch, fence=Fence("nodes", 2, cursor))
        assert await log.end() == end
        assert not (await log.append(batch(4), epoch=begun.epoch, fence=Fence("nodes", 4))).duplicate
        assert (await claim(log, 5)).cursor == "41"


async def test_a_term_that_nobody_has_claimed_is_refused(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        with pytest.raises(WatchSuperseded, match=r"pods .* term 2: nobody has claimed it"):
            await log.append(batch(2), epoch=begun.epoch, fence=Fence("pods", 2, "9"))


async def test_an_append_that_was_taken_before_the_next_claim_is_recognised_after_it(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        fence = Fence("nodes", 2, "41")
        await log.append(batch(2), epoch=begun.epoch, fence=fence)
        await claim(log, 1, writer="another")
        again = await log.append(batch(2), epoch=begun.epoch, fence=fence)
        assert (again.first, again.duplicate) == (3, True)


async def test_a_claim_repeated_after_a_lost_answer_returns_the_same_while_it_is_current(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "41"))
        first, again = await claim(log, 3), await claim(log, 3)
        assert (first.first, first.cursor, first.duplicate) == (4, "41", False)
        assert (again.first, again.cursor, again.duplicate) == (4, "41", True)
        await claim(log, 1, writer="another")
        late = await claim(log, 3)
        assert (late.first, late.cursor, late.duplicate) == (4, "", True)
        with pytest.raises(WatchSuperseded):
            await log.append(batch(4), epoch=begun.epoch, fence=Fence("nodes", late.first))


async def test_a_refused_append_stores_no_cursor(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 4)
        await log.append(batch(5), epoch=begun.epoch, fence=Fence("nodes", 2, "1"))
        with pytest.raises(EpochLost):
            await log.append(batch(6), epoch=begun.epoch - 1, fence=Fence("nodes", 2, "2"))
        with pytest.raises(OutdatedAppend):
            await log.append(batch(4), epoch=begun.epoch, fence=Fence("nodes", 2, "2"))
        assert (await log.append(batch(5), epoch=begun.epoch, fence=Fence("nodes", 2, "2"))).duplicate
        assert (await log.end()).offset == 3
        assert (await claim(log, 6)).cursor == "1"


@many_writers
async def test_of_two_watchers_at_once_none_moves_the_cursor_after_the_claim_of_the_other(place: Place) -> None:
    """The one that was paused appends while the other claims: its cursor is in the claim's answer, or refused."""
    async with place.home() as home:
        one, two = home.log(), home.log()
        begun = await one.open()
        await two.open()
        term = (await claim(one, 1)).first
        for seq in range(2, 22):
            append = one.append(batch(seq), epoch=begun.epoch, fence=Fence("nodes", term, str(seq)))
            appended, claimed = await asyncio.gather(append, claim(two, seq, writer="another"), return_exceptions=True)
            assert isinstance(claimed, Appended)
            assert (claimed.cursor == str(seq)) == isinstance(appended, Appended)
            term = (await claim(one, seq, writer="w2")).first


async def test_an_epoch_begins_on_behalf_of_a_watch_only_under_its_current_term(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        for seq in (1, 2):
            await claim(log, seq)
        end = await log.end()
        with pytest.raises(WatchSuperseded):
            await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=0, fence=Fence("nodes", 2))
        assert await log.end() == end
        fence = Fence("nodes", 3)
        assert (await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=0, fence=fence)).epoch == end.epoch + 1
        present = await log.begin_epoch(lost=begun.epoch, reason="late", time_ms=0, fence=Fence("nodes", 2))
        assert present.epoch == end.epoch + 1  # it has begun: nothing is refused


# --- identity of a batch ------------------------------------------------------------------------------------


async def test_the_same_batch_is_appended_once(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        first = await log.append(batch(1, "a", "b"), epoch=begun.epoch)
        await log.append(batch(1, writer="another"), epoch=begun.epoch)
        again = await log.append(batch(1, "a", "b"), epoch=begun.epoch)
        assert (first.first, first.last, first.duplicate) == (2, 3, False)
        assert (again.first, again.last, again.duplicate) == (2, 3, True)
        assert (await log.end()).offset == 4


async def test_an_appended_batch_comes_back_as_a_reader_gets_it(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        first = await log.append(batch(1, "a", "b"), epoch=begun.epoch)
        second = await log.append(batch(2, "c"), epoch=begun.epoch, fence=Fence("nodes", CLAIM))
        assert [first.entry, second.entry] == await log.read(begun)
        assert first.entry is not None
        assert (first.chain_before, second.chain_before) == (begun.chain, first.entry.chain)
        again = await log.append(batch(2, "c"), epoch=begun.epoch, fence=Fence("nodes", CLAIM))
        assert (again.entry, again.chain_before) == (None, "")


async def test_the_same_batch_appended_by_many_at_once_is_appended_once(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        clients = [home.log() for _ in range(8)] if home.many_writers else [log] * 8
        answers = await asyncio.gather(*(client.append(batch(1, "a", "b"), epoch=begun.epoch) for client in clients))
        assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 7
        assert {(answer.first, answer.last) for answer in answers} == {(2, 3)}
        assert (await log.end()).offset == 3


@many_writers
async def test_many_writers_at_once_lose_and_mix_nothing(place: Place) -> None:
    async with place.home() as home:
        begun = await home.log().open()

        async def write(writer: str) -> None:
            log = home.log()
            for seq in range(1, 11):
                await log.append(batch(seq, f"{seq}", f"{seq}", writer=writer), epoch=begun.epoch)

        await asyncio.gather(*(write(f"w{number}") for number in range(4)))
        found = await home.log().read(begun)
        assert [entry.first for entry in found] == list(range(2, 82, 2))
        for number in range(4):
            assert [e.batch.seq for e in found if e.batch.writer == f"w{number}"] == list(range(1, 11))


async def test_an_earlier_batch_of_a_writer_is_refused(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        await fill(log, (1, 1, 1))
        with pytest.raises(OutdatedAppend, match="2 after 3"):
            await log.append(batch(2), epoch=(await log.end()).epoch)


# --- the time of an entry ------------------------------------------------------------------------------------

BOUND_MS = 10_000
HOUR_MS = 3_600_000


CLAIMED = WatchClaimed(Watched.POD, "w")


def told(seq: int, *events: Any, ahead_ms: int = 0, writer: str = "w") -> Batch:
    return Batch(writer, seq, ahead(ahead_ms)(), events or gone(f"n{seq}"))


@many_writers
@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 12_000, -12_000])
async def test_an_entry_whose_time_is_off_from_the_stores_own_is_refused_whole(place: Place, ahead_ms: int) -> None:
    async with place.home() as home:
        log = home.log(clock_bound_ms=BOUND_MS)
        epoch = (await log.open()).epoch
        term = (await log.append(told(1, CLAIMED), epoch=epoch, fence=Fence("pod", CLAIM))).first
        await log.append(told(2), epoch=epoch, fence=Fence("pod", term, "41"))
        before = await log.end()
        for fence in (None, Fence("pod", CLAIM), Fence("pod", term, "99")):
            with pytest.raises(ClockOff) as refused:
                await log.append(told(3, CLAIMED, ahead_ms=ahead_ms), epoch=epoch, fence=fence)
            assert refused.value.offset_ms == pytest.approx(ahead_ms, abs=1_000)
        assert await log.end() == before
        # The same batch with another time is taken, and the watch is as it was.
        again = await log.append(told(3), epoch=epoch, fence=Fence("pod", term))
        assert not again.duplicate
        assert (await log.append(told(4, CLAIMED), epoch=epoch, fence=Fence("pod", CLAIM))).cursor == "41"


@many_writers
@pytest.mark.parametrize("ahead_ms", [0, 8_000, -8_000])
async def test_an_entry_within_the_bound_is_taken_with_its_own_time(place: Place, ahead_ms: int) -> None:
    async with place.home() as home:
        log = home.log(clock_bound_ms=BOUND_MS, ahead_ms=ahead_ms)
        begun = await log.open()
        batch = told(1, ahead_ms=ahead_ms)
        await log.append(batch, epoch=begun.epoch)
        (entry,) = await log.read(begun)
        assert entry.batch == batch


@many_writers
async def test_a_batch_that_was_appended_is_recognised_whatever_time_it_tells_now(place: Place) -> None:
    async with place.home() as home:
        log = home.log(clock_bound_ms=BOUND_MS)
        epoch = (await log.open()).epoch
        once = await log.append(told(1), epoch=epoch)
        again = await log.append(told(1, ahead_ms=HOUR_MS), epoch=epoch)
        assert again.duplicate and (again.first, again.last) == (once.first, once.last)


@many_writers
@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_a_wrong_clock_begins_no_epoch_and_joins_one_that_another_began(place: Place, ahead_ms: int) -> None:
    async with place.home() as home:
        wrong = home.log(clock_bound_ms=BOUND_MS, ahead_ms=ahead_ms)
        with pytest.raises(ClockOff):
            await wrong.open()
        right = home.log(clock_bound_ms=BOUND_MS)
        first = await right.open()
        assert await wrong.open() == first
        with pytest.raises(ClockOff):
            await wrong.begin_epoch(lost=first.epoch, reason="lost", time_ms=ahead(ahead_ms)())
        assert await right.end() == first
        second = await right.begin_epoch(lost=first.epoch, reason="lost", time_ms=ahead(0)() + 1)
        assert await wrong.begin_epoch(lost=first.epoch, reason="lost", time_ms=ahead(ahead_ms)()) == second


@many_writers
async def test_who_gives_no_bound_tells_any_time(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        epoch = (await log.open()).epoch
        assert (await log.append(batch(1), epoch=epoch)).last == 2


# --- epochs and losses --------------------------------------------------------------------------------------


async def test_a_new_epoch_begins_once_whoever_calls(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "1"))
        await log.put_snapshot(StoredSnapshot(await log.end(), b"old"))
        others = [home.log() for _ in range(3)] if home.many_writers else [log] * 3

        ends = [await one.begin_epoch(lost=begun.epoch, reason="test", time_ms=0) for one in (log, *others)]

        assert {end.epoch for end in ends} == {begun.epoch + 1}
        assert {end.offset for end in ends} == {1}
        (first,) = await log.read(Position(begun.epoch + 1, 0, ""))
        assert first.batch.events == (EpochBegun(begun.epoch + 1, begun.epoch, "test"),)
        assert await log.newest_snapshot() is None
        assert not (await log.append(batch(1), epoch=begun.epoch + 1)).duplicate
        with pytest.raises(WatchSuperseded):
            await log.append(batch(2), epoch=begun.epoch + 1, fence=Fence("nodes", 2, "2"))
        assert (await claim(log, 3)).cursor == ""


async def test_an_epoch_is_numbered_by_the_time_told_when_that_is_later(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        later = begun.epoch + 1_000_000
        assert (await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=later)).epoch == later
        assert (await log.begin_epoch(lost=begun.epoch, reason="late", time_ms=later + 5)).epoch == later


async def test_two_that_find_an_epoch_gone_one_after_the_other_begin_two_of_different_numbers(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        ahead = (await log.open()).epoch + 1_000_000  # begun by a clock that is ahead of all others
        first = await log.begin_epoch(lost=ahead, reason="emptied", time_ms=5_007)
        await home.lose_everything()
        second = await log.begin_epoch(lost=ahead, reason="emptied again", time_ms=5_019)
        assert ahead < first.epoch < second.epoch


async def test_the_old_epoch_is_lost_to_readers_and_writers(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=1)
        for lost in (log.read(begun), log.append(batch(1), epoch=begun.epoch), log.trim(1, epoch=begun.epoch)):
            with pytest.raises(EpochLost):
                await lost
        with pytest.raises(EpochLost):
            await log.put_snapshot(StoredSnapshot(begun, b""))


async def test_a_waiting_reader_notices_a_new_epoch(place: Place) -> None:
    async with place.home() as home:
        log, reader = home.log(), home.log()
        begun = await log.open()
        reading = asyncio.create_task(reader.read(begun, wait_s=30))
        await asyncio.sleep(0.05)
        await log.begin_epoch(lost=begun.epoch, reason="test", time_ms=1)
        with pytest.raises(EpochLost):
            await reading


async def test_a_waiting_reader_notices_that_everything_was_lost(place: Place) -> None:
    async with place.home() as home:
        log, reader = home.log(), home.log()
        begun = await log.open()
        reading = asyncio.create_task(reader.read(begun, wait_s=30))
        await asyncio.sleep(0.05)
        await home.lose_everything()
        with pytest.raises(EpochLost):
            await reading


async def test_after_everything_was_lost_nothing_works_until_a_new_epoch_begins(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await log.append(batch(1), epoch=begun.epoch)
        await home.lose_everything()
        for lost in (log.end(), log.start(), log.read(begun), log.append(batch(2), epoch=begun.epoch)):
            with pytest.raises(EpochLost):
                await lost
        present = await log.begin_epoch(lost=begun.epoch, reason="emptied", time_ms=0)
        assert (present.epoch, present.offset) == (begun.epoch + 1, 1)
        assert (await log.append(batch(2), epoch=present.epoch)).first == 2


async def test_a_lost_tail_is_noticed_by_its_reader_and_its_writer(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (1, 1, 1))
        end = await log.end()
        await home.lose_tail(after=2)
        with pytest.raises(EpochLost):
            await home.log().read(end)
        with pytest.raises(EpochLost):
            await log.append(batch(4), epoch=origin.epoch)
        assert (await log.begin_epoch(lost=origin.epoch, reason="tail lost", time_ms=1)).offset == 1


@many_writers
async def test_who_has_asked_only_for_the_end_since_its_tail_was_lost_is_noticed_too(place: Place) -> None:
    """What it decides rests on events that are gone, however far the log has come meanwhile."""
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (1, 1, 1))
        await home.lose_tail(after=2)
        await fill(home.log(), (2, 2), writer="another")
        assert (await log.end()).offset == 6
        with pytest.raises(EpochLost):
            await log.append(batch(4), epoch=origin.epoch)


@many_writers
@pytest.mark.parametrize("rewritten", [(1, 1), (1, 1, 1), (2,), (3,)], ids=str)
async def test_a_tail_that_was_lost_and_written_again_is_noticed(place: Place, rewritten: tuple[int, ...]) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (1, 1, 1))
        end = await log.end()
        await home.lose_tail(after=2)
        await fill(home.log(), rewritten, writer="another")
        with pytest.raises(EpochLost):
            await home.log().read(end)
        with pytest.raises(EpochLost):
            await log.append(batch(4), epoch=origin.epoch)


@many_writers
async def test_who_began_at_a_snapshot_whose_offset_the_log_has_lost_is_noticed_too(place: Place) -> None:
    """It has read nothing before that, and the log may have come to any length meanwhile."""
    async with place.home() as home:
        origin = await fill(home.log(), (1, 1, 1))
        end = await home.log().end()
        log = home.log()  # goes on from a snapshot as of the end
        await home.lose_tail(after=2)
        await fill(home.log(), (2, 2), writer="another")
        with pytest.raises(EpochLost):
            await log.read(end)
        with pytest.raises(EpochLost):
            await log.append(batch(4), epoch=origin.epoch)


async def test_a_snapshot_of_a_lost_tail_is_refused(place: Place) -> None:
    """Who began at it would go on from events that the log doesn't have."""
    async with place.home() as home:
        log = home.log()
        await fill(log, (1, 1, 1))
        snapshot = StoredSnapshot(await log.end(), b"x")
        await home.lose_tail(after=2)
        with pytest.raises(EpochLost):
            await log.put_snapshot(snapshot)
        assert await log.newest_snapshot() is None


@many_writers
async def test_a_snapshot_of_a_tail_that_was_written_again_is_refused(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        await fill(log, (1, 1, 1))
        snapshot = StoredSnapshot(await log.end(), b"x")
        await home.lose_tail(after=2)
        await fill(home.log(), (1, 1, 1), writer="another")
        with pytest.raises(EpochLost):
            await log.put_snapshot(snapshot)
        assert await log.newest_snapshot() is None


@many_writers
async def test_what_is_appended_after_a_snapshot_was_read_rests_on_it(place: Place) -> None:
    """The log may lose the snapshot's tail before the first read after it."""
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (1, 1, 1))
        await log.put_snapshot(StoredSnapshot(await log.end(), b"x"))
        other = home.log()
        assert await other.newest_snapshot() is not None
        await home.lose_tail(after=2)
        with pytest.raises(EpochLost):
            await other.append(batch(1, writer="another"), epoch=origin.epoch)


# --- damage -------------------------------------------------------------------------------------------------


async def test_a_damaged_entry_is_refused_with_its_offset_after_the_sound_ones(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3, 1))
        await home.damage(last=6)
        reader = home.log()
        sound = await reader.read(origin)
        assert [entry.last for entry in sound] == [1, 3]
        with pytest.raises(DamagedEntry) as raised:
            await reader.read(Position(origin.epoch, 3, sound[-1].chain))
        assert raised.value.offset == 4


async def test_a_missing_entry_is_damage_where_it_stood(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3, 1))
        await home.remove(last=6)
        reader = home.log()
        sound = await reader.read(origin)
        with pytest.raises(DamagedEntry) as raised:
            await reader.read(Position(origin.epoch, 3, sound[-1].chain))
        assert raised.value.offset == 4


@pytest.mark.parametrize("place", MANY_WRITERS[1:], indirect=True)
async def test_a_missing_last_entry_is_damage_where_the_end_is_recorded_beside_the_entries(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3))
        await home.remove(last=6)
        sound = await home.log().read(origin)
        with pytest.raises(DamagedEntry) as raised:
            await home.log().read(Position(origin.epoch, 3, sound[-1].chain))
        assert raised.value.offset == 4


async def test_an_unknown_kind_is_refused_with_its_own_offset(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2,))
        end = await log.end()
        await home.add_raw(
            msgspec.msgpack.encode(["x", 1, 5, [["ObjectGone.1", "node", 1, "", "a", "b"], ["Portent.1", 3]]]), 2
        )
        with pytest.raises(UnknownEvent, match=r"Portent\.1") as raised:
            await home.log().read(end)
        assert raised.value.offset == 5
        assert [entry.last for entry in await home.log().read(origin)] == [1, 3]


# --- trimming and snapshots ---------------------------------------------------------------------------------


async def test_trimming_drops_whole_entries_before_the_offset_and_moves_the_start(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3, 1))
        whole = await log.read(origin)
        assert await log.trim(5, epoch=origin.epoch) == 2
        assert await log.start() == Position(origin.epoch, 3, whole[1].chain)
        assert await home.log().read(await log.start()) == whole[2:]
        assert await log.trim(5, epoch=origin.epoch) == 0
        assert (await log.append(batch(4), epoch=origin.epoch)).first == 8


@pytest.mark.parametrize("before", [-1, 0, 1])
async def test_before_the_first_event_there_is_nothing_to_trim(place: Place, before: int) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3))
        assert await log.trim(before, epoch=origin.epoch) == 0
        assert await log.start() == origin
        with pytest.raises(EpochLost):
            await log.trim(before, epoch=origin.epoch + 1)


async def test_a_reader_of_trimmed_entries_is_told_so_and_keeps_its_epoch(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3, 1))
        await log.trim(5, epoch=origin.epoch)
        with pytest.raises(EntriesTrimmed):
            await log.read(origin)
        assert not issubclass(EntriesTrimmed, EpochLost)


async def test_a_reader_beside_appends_and_trimming_meets_no_damage(place: Place) -> None:
    async with place.home() as home:
        log, reader = home.log(), home.log()
        begun = await log.open()

        async def write() -> None:
            for seq in range(1, 301):
                last = (await log.append(batch(seq, "a", "b"), epoch=begun.epoch)).last
                await log.trim(last, epoch=begun.epoch)
                await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        after = begun
        while after.offset < 601:
            try:
                found = await reader.read(after, wait_s=0.01)
            except EntriesTrimmed:
                after = await reader.start()
                continue
            await asyncio.sleep(0)
            assert [entry.first for entry in found] == [after.offset + 1 + 2 * number for number in range(len(found))]
            after = Position(begun.epoch, found[-1].last, found[-1].chain) if found else after
        await writing
        assert after == await log.end()


async def test_a_log_trimmed_to_nothing_goes_on_where_it_was(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (2, 3))
        end = await log.end()
        assert await log.trim(100, epoch=origin.epoch) == 3
        assert await log.start() == end == await log.end()
        assert list(await log.read(end)) == []
        assert (await log.append(batch(2, "n2-0", "n2-1", "n2-2"), epoch=origin.epoch)).duplicate
        assert (await log.append(batch(3), epoch=origin.epoch)).first == 7
        assert [entry.first for entry in await home.log().read(end)] == [7]


async def test_watches_and_identities_outlive_trimming(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        await claim(log, 1)
        await log.append(batch(2), epoch=begun.epoch, fence=Fence("nodes", 2, "1"))
        await log.trim(100, epoch=begun.epoch)
        assert (await log.append(batch(2), epoch=begun.epoch)).duplicate
        assert not (await log.append(batch(3), epoch=begun.epoch, fence=Fence("nodes", 2))).duplicate
        assert (await claim(log, 4)).cursor == "1"


async def test_the_newest_three_snapshots_are_kept(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        origin = await fill(log, (9,) * 3)
        assert await log.newest_snapshot() is None
        taken = [StoredSnapshot(Position(origin.epoch, e.last, e.chain), bytes(99)) for e in await log.read(origin)]
        for snapshot in taken:
            await log.put_snapshot(snapshot)
        assert [snapshot.position.offset for snapshot in taken] == [1, 10, 19, 28]
        other = home.log()
        assert unsigned(await other.newest_snapshot()) == taken[3]
        assert unsigned(await other.newest_snapshot(at_most=27)) == taken[2]
        assert unsigned(await other.newest_snapshot(at_most=10)) == taken[1]
        assert await other.newest_snapshot(at_most=9) is None


async def test_a_snapshot_taken_again_replaces_the_one_at_its_offset(place: Place) -> None:
    async with place.home() as home:
        log = home.log()
        begun = await log.open()
        for content in (b"one", b"two"):
            await log.put_snapshot(StoredSnapshot(begun, content))
        assert unsigned(await log.newest_snapshot()) == StoredSnapshot(begun, b"two")
