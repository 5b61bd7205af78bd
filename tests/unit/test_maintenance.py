"""Maintenance: snapshots when they are due, and nothing trimmed that a snapshot or a live member still needs."""

import pytest

from arranger.clock import SystemClock
from arranger.errors import EntriesTrimmed, EpochLost
from arranger.events import kinds as k
from arranger.events.log import StoredSnapshot
from arranger.metrics import Metrics
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.workers.log.follower import Follower
from arranger.workers.log.writer import Writer
from arranger.workers.maintaining.layout_guard import LayoutGuard
from arranger.workers.maintaining.maintenance import Maintenance
from arranger.workers.members.membership import ROLES, Member
from arranger.workers.members.problems import MemberProblem, MemberProblems, ProblemKind
from tests.earlier_layout import EARLIER, in_earlier_layout
from tests.members import HandClock
from tests.memory_log import MemoryHome, MemoryLog
from tests.parts import parts

#: The layouts that members read in the middle of an upgrade.
ROLLING = (snapshot.LAYOUT, EARLIER)


class Members:
    """The slowest member is where the test says."""

    slowest: int | None = 1_000_000
    layout = snapshot.LAYOUT
    #: The layouts that the live members read.
    layouts: tuple[int, ...] = (snapshot.LAYOUT,)

    async def live(self) -> tuple[Member, ...]:
        return tuple(Member(f"m{at}", ROLES, 1, 1, 0, layout=layout) for at, layout in enumerate(self.layouts))

    async def slowest_offset(self, epoch: int) -> int | None:
        return self.slowest


class Scene:
    """A log that one process follows and maintains."""

    def __init__(self, *, every_events: int = 10, keep_events: int = 0, upgrade_grace_s: int = 0) -> None:
        clock = self.clock = HandClock()
        metrics = Metrics(clock)
        self.log = MemoryLog(MemoryHome())
        self.members = Members()
        self.follower = Follower(self.log, clock=clock, metrics=metrics, reader="test")
        self.writer = Writer(self.follower, name="w", clock=clock, metrics=metrics)
        self.maintenance = Maintenance(
            known := parts(
                follower=self.follower, membership=self.members, clock=clock, metrics=metrics,
                settings={"snapshot_every_events": every_events, "snapshot_every_s": 3600, "keep_events": keep_events,
                          "upgrade_grace_s": upgrade_grace_s},
            ), LayoutGuard(known),
        )  # fmt: skip

    async def begin(self) -> None:
        await self.follower.start()
        self.maintenance.epoch_began()
        claims = [k.WatchClaimed(kind, "w") for kind in k.Watched]
        await self.say(*claims)
        terms = self.follower.state.terms
        await self.say(*(k.ListingEnded(kind, terms[kind], "1") for kind in k.Watched))

    async def say(self, *events: k.Event) -> None:
        await self.writer.append(list(events))
        while await self.follower._step(wait_s=0.0):
            pass

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.say(k.EffectFailed(f"j{number}", 0, "create", None, 500, "", "", permanent=False))


async def test_a_snapshot_is_stored_once_so_many_events_came_and_equals_the_state() -> None:
    scene = Scene(every_events=2 * len(k.Watched) + 5)
    await scene.begin()
    await scene.maintenance.maintain()
    assert await scene.log.newest_snapshot() is None
    await scene.fill(10)
    await scene.maintenance.maintain()
    stored = await scene.log.newest_snapshot()
    assert stored is not None and stored.position == scene.follower.position
    assert snapshot.digest(snapshot.restore(stored.content)) == snapshot.digest(scene.follower.state)


async def test_the_log_is_trimmed_behind_the_snapshot_and_a_late_reader_starts_from_it() -> None:
    scene = Scene()
    await scene.begin()
    first = await scene.log.start()
    await scene.fill(10)
    await scene.maintenance.maintain()
    with pytest.raises(EntriesTrimmed):
        await scene.log.read(first)
    clock = SystemClock()
    late = Follower(scene.log, clock=clock, metrics=Metrics(clock), reader="late")
    await late.start()
    assert snapshot.digest(late.state) == snapshot.digest(scene.follower.state)


async def test_what_a_live_member_has_not_folded_stays() -> None:
    scene = Scene()
    await scene.begin()
    await scene.fill(10)
    scene.members.slowest = 5
    await scene.maintenance.maintain()
    assert (await scene.log.start()).offset < 5
    scene.members.slowest = None  # nobody is known to be alive, ourselves included: no reason to drop anything
    await scene.fill(10)
    await scene.maintenance.maintain()
    assert (await scene.log.start()).offset < 5


async def test_the_newest_events_stay_whatever_the_snapshot_holds() -> None:
    scene = Scene(keep_events=1000)
    await scene.begin()
    await scene.fill(20)
    await scene.maintenance.maintain()
    assert (await scene.log.start()).offset == 0


async def test_without_a_snapshot_nothing_is_trimmed() -> None:
    scene = Scene(every_events=1_000_000)
    await scene.begin()
    await scene.fill(20)
    await scene.maintenance.maintain()
    assert (await scene.log.start()).offset == 0


# --- snapshots that processes of an earlier release couldn't read ---------------------------------------------------


async def test_while_a_member_of_an_earlier_release_lives_its_snapshot_stays_the_newest_and_nothing_is_trimmed() -> (
    None
):
    scene = Scene()
    await scene.begin()
    scene.members.layouts = ROLLING
    await scene.fill(30)
    await scene.maintenance.maintain()
    assert await scene.log.newest_snapshot() is None and (await scene.log.start()).offset == 0


class Guarded:
    """A guard over a log with any snapshot, or with none."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.members = Members()
        self.problems = MemberProblems(self.clock)
        self.log = MemoryLog(MemoryHome())
        self.guard = LayoutGuard(
            parts(membership=self.members, clock=self.clock, problems=self.problems, settings={"upgrade_grace_s": 360})
        )

    async def allows(self, *layouts: int, after_s: float = 0) -> bool:
        self.members.layouts = layouts or (snapshot.LAYOUT,)
        self.clock.now_s += after_s
        return await self.guard.allows(self.log)

    async def trimmed(self) -> None:
        """The log doesn't begin at its first event."""
        begun = await self.log.open()
        said = k.Batch("w", 1, 0, (k.EffectFailed("j", 0, "create", None, 500, "", "", permanent=False),))
        end = await self.log.append(said, epoch=begun.epoch)
        await self.log.trim(end.first, epoch=begun.epoch)
        assert (await self.log.start()).offset > 0

    async def store(self, content: bytes) -> None:
        await self.log.put_snapshot(StoredSnapshot(await self.log.open(), content))


async def test_some_time_passes_after_an_earlier_release_was_seen_because_one_that_starts_is_no_member_yet() -> None:
    scene = Guarded()
    await scene.trimmed()
    await scene.store(snapshot.encode(State(epoch=1)))
    assert await scene.allows()
    assert not await scene.allows(*ROLLING) and not await scene.allows(after_s=359) and await scene.allows(after_s=1)


@pytest.mark.parametrize("content", [b"", b"no snapshot", in_earlier_layout(snapshot.encode(State(epoch=1)))])
async def test_without_a_snapshot_of_this_release_processes_of_an_earlier_one_may_be_restarting(content: bytes) -> None:
    scene = Guarded()
    await scene.trimmed()
    if content:
        await scene.store(content)
    assert not await scene.allows() and not await scene.allows(after_s=359) and await scene.allows(after_s=1)


async def test_a_new_epoch_has_a_snapshot_soon_although_its_log_has_none_of_this_release_yet() -> None:
    scene = Scene(every_events=100_000, upgrade_grace_s=1800)
    await scene.begin()
    await scene.log.put_snapshot(StoredSnapshot(scene.follower.position, snapshot.encode(scene.follower.state)))
    scene.clock.now_s += 60
    await scene.maintenance.maintain()
    assert scene.maintenance._stored_offset > 0
    scene.log.home.lose_everything()
    await scene.follower._begin_again(EpochLost("the log was emptied"))
    await scene.begin()
    scene.clock.now_s += 20
    await scene.maintenance.maintain()
    assert await scene.log.newest_snapshot() is None, "another epoch may follow at once"
    scene.clock.now_s += 20
    await scene.maintenance.maintain()
    assert await scene.log.newest_snapshot() is not None


async def test_where_this_release_has_stored_a_snapshot_already_nobody_is_waited_for() -> None:
    scene = Guarded()
    await scene.trimmed()
    await scene.store(snapshot.encode(State(epoch=1)))
    assert await scene.allows()


async def test_a_fresh_installation_has_a_snapshot_at_once_and_is_trimmed_once_no_earlier_release_may_start() -> None:
    """Whoever starts in a log that begins at its first event needs no snapshot."""
    scene = Scene(upgrade_grace_s=1800)
    await scene.begin()
    await scene.fill(30)
    await scene.maintenance.maintain()
    stored = await scene.log.newest_snapshot()
    assert stored is not None and (await scene.log.start()).offset == 0
    scene.clock.now_s += 1799
    await scene.maintenance.maintain()
    assert (await scene.log.start()).offset == 0
    scene.clock.now_s += 1
    await scene.maintenance.maintain()
    assert 0 < (await scene.log.start()).offset <= stored.position.offset


async def test_a_process_that_has_just_started_stores_the_first_snapshot_of_a_new_epoch_too() -> None:
    scene = Scene(upgrade_grace_s=1800)
    await scene.begin()
    scene.log.home.lose_everything()
    await scene.follower._begin_again(EpochLost("the log was emptied"))
    await scene.begin()
    await scene.fill(30)
    await scene.maintenance.maintain()
    assert await scene.log.newest_snapshot() is not None and (await scene.log.start()).offset == 0


async def test_an_early_snapshot_is_no_sign_that_no_earlier_release_may_start() -> None:
    first = Scene(upgrade_grace_s=1800)
    await first.begin()
    await first.fill(30)
    await first.maintenance.maintain()
    again = Guarded()
    again.log = first.log
    assert await again.guard.allows(again.log) and not await again.guard.may_trim(again.log)
    again.clock.now_s += 360
    assert await again.guard.may_trim(again.log)


async def test_a_wait_longer_than_an_upgrade_takes_is_a_problem_that_names_the_member() -> None:
    scene = Guarded()
    await scene.trimmed()
    assert not await scene.allows(*ROLLING) and not await scene.allows(*ROLLING, after_s=350)
    assert scene.problems.present() == ()
    assert not await scene.allows(*ROLLING, after_s=20)
    assert scene.problems.present() == (MemberProblem(ProblemKind.SNAPSHOTS_WAIT, "m1", lasts_ms=370_000),)
    assert not await scene.allows() and scene.problems.present() == ()
