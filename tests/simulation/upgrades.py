"""A rolling upgrade: processes of an old and a new version work together for a while, on the same code.

The differences of a new version are put between a process and the log: snapshots of another layout, events unknown to
the old version (its fold stops there on purpose and its process ends), and one more filter, so that cycles record other
versions.

The new version reads the old one's snapshots over a bridge (`tests.earlier_layout`). A draw decides how the old version
takes the new one's. A *rude* old version treats them as damaged, as the release before bridges did: the new version
must not store any while an old one runs or may start. A *patient* one recognises a later layout, and the new version
stores at once: the old one must wait. No process may begin an epoch while the log has a snapshot that some process can
restore.
"""

import asyncio
import random
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from arranger.errors import UnknownEvent
from arranger.events import kinds as k
from arranger.events.log import Entry, StoredSnapshot
from arranger.kube.cluster import TYJOBS
from arranger.model.pod import PodShape
from arranger.projections import snapshot
from arranger.scheduling.cluster.view import ClusterView
from arranger.scheduling.filters.nodes import Filter, Mask
from arranger.scheduling.queues.registry import BUILT_IN, Policies, policies_with
from arranger.workers.maintaining.layout_guard import LayoutGuard
from tests.earlier_layout import EARLIER, in_earlier_layout

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

OLD, NEW = 1, 2
#: The latest layouts that the old and the new version read.
_LAYOUTS = {OLD: EARLIER, NEW: snapshot.LAYOUT}
#: How long a new version waits for old ones that may start: longer than any process is down, paused or without a log,
#: and, if old ones end at unknown events before they are members, longer than the upgrade.
_GRACE_S, _LONG_GRACE_S = 120.0, 900.0
#: The longest drain of a process whose fold has stopped.
_DRAINS_S = 3.0


class _RefusesNothing(Filter):
    """A filter that only the new version has."""

    name: ClassVar[str] = "Upgraded"
    version: ClassVar[int] = 1

    def question(self, shape: PodShape) -> Hashable:
        return None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        return np.ones(len(view), bool)

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> str:
        return "upgraded"


#: The policies of both versions: repeating cycles needs them all.
EVERY = policies_with(filters=(_RefusesNothing(),))


class Upgrade:
    """The version of each process slot, and the differences between the versions in this run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} upgrade")
        self._comes = chance.random() < 0.5
        self.other_layout = chance.random() < 0.5
        self._new_events = chance.random() < 0.5
        self._patient = chance.random() < 0.5
        self._versions: dict[int, int] = {}
        #: Every slot has the new version, including slots that are used later.
        self._done = False
        #: The upgrade is done, or doesn't come.
        self._over = False
        self._guards: list[LayoutGuard] = []
        #: (epoch, offset) → version of the process that stored the snapshot there.
        self._stored_by: dict[tuple[int, int], int] = {}

    def of_slot(self, slot: int) -> int:
        """The version with which a process starts in this slot."""
        return self._versions.get(slot, NEW if self._done else OLD)

    def latest_in(self, slot: int) -> None:
        """Set this slot to the latest version that already runs."""
        self._versions[slot] = max([OLD, *self._versions.values()])

    def policies_of(self, version: int) -> Policies:
        """The installed policies of a process of this version."""
        return EVERY if version == NEW else BUILT_IN

    async def run(self) -> None:
        """Some time after the beginning, upgrade one slot after the other."""
        world = self._world
        if not self._comes:
            return
        await asyncio.sleep(self._chance.uniform(20.0, 120.0))
        if not world.faults.on:
            self._end()  # the run was too short for it
            return
        world.faults.hit("rolling upgrade")
        world.step("upgrade", "begins")
        for slot in sorted(process.slot for process in [*world.processes, *world.graveyard] if process.life == 1):
            self._versions[slot] = NEW
            for process in [each for each in world.processes if each.slot == slot and each.version == OLD]:
                process.crash("rolling upgrade")
            await asyncio.sleep(self._chance.uniform(0.3, 15.0))
            await self._old_ones_start()
        self._done = True
        self._end()
        world.step("upgrade", "is done")

    def _end(self) -> None:
        """From now on, no process of the old version starts."""
        self._over = True
        for guard in self._guards:
            guard.grace_s = self._grace_s()

    async def _old_ones_start(self) -> None:
        """During the upgrade, start processes of the old version again now and then."""
        world = self._world
        while world.faults.on and self._chance.random() < 0.6:
            old = [process for process in world.processes if process.version == OLD and not process.owner.dead]
            if old:
                world.faults.hit("an old version starts during the upgrade")
                self._chance.choice(old).crash("in the middle of the upgrade")
            await asyncio.sleep(self._chance.uniform(5.0, 40.0))

    async def definition(self) -> None:
        """In some runs the TYJob definition is older at first: without the version for statuses."""
        world, chance = self._world, random.Random(f"{self._world.seed} definition")
        collection = world.store.collection(TYJOBS)
        if chance.random() < 0.7:
            return
        world.faults.hit("an older TYJob definition")
        kinds, collection.kinds = collection.kinds, collection.kinds[:1]
        await asyncio.sleep(chance.uniform(20.0, 200.0))
        collection.kinds = kinds
        world.step("upgrade", "the TYJob definition is the new one")

    # --- snapshots -----------------------------------------------------------------------------------------

    def stored(self, stored: StoredSnapshot, version: int) -> None:
        """Record that a process of this version stored a snapshot."""
        self._stored_by[stored.position.epoch, stored.position.offset] = version

    def restored(self, stored: StoredSnapshot | None, version: int) -> StoredSnapshot | None:
        """The snapshot as a process of this version finds it, with the layout of the version that stored it."""
        if stored is None or not self.other_layout:
            return stored
        # A rude old version reads only the newest snapshot.
        newest = self._world.home.snapshots[-1] if version == OLD and not self._patient else stored
        if self._stored_by.get((newest.position.epoch, newest.position.offset), version) == version:
            return stored
        self._world.faults.hit("snapshot of another layout")
        return StoredSnapshot(stored.position, self._as_seen(stored.content, version))

    def _as_seen(self, content: bytes, version: int) -> bytes:
        """The other version's snapshot as one of this version sees it."""
        if version == NEW:
            return in_earlier_layout(content)
        return msgspec.msgpack.encode([snapshot.LAYOUT + 1]) if self._patient else b"of another layout"

    def layout_of(self, version: int) -> int:
        """The layout that a process of this version reports to the others."""
        return _LAYOUTS[version] if self._careful else snapshot.LAYOUT

    @property
    def _careful(self) -> bool:
        """Whether the new version must wait with its snapshots."""
        return self._comes and self.other_layout and not self._patient

    def _grace_s(self) -> float:
        if not self._careful:
            return 0.0
        return _LONG_GRACE_S if self._new_events and not self._over else _GRACE_S

    def guards(self, guard: LayoutGuard) -> None:
        """Set how long a process waits before it stores a snapshot that other processes can't read."""
        guard.grace_s = self._grace_s()
        self._guards.append(guard)

    def readable_offset(self) -> int | None:
        """The offset of a snapshot that some process can restore; None if the log has none."""
        home = self._world.home
        ends = {(entry.last, entry.chain) for entry in home.stored}
        start = home.index.start if home.index is not None else None
        for stored in home.snapshots:
            at = (stored.position.offset, stored.position.chain)
            if start is not None and (at in ends or at == (start.offset, start.chain)):
                return at[0]
        return None

    # --- events that the old version doesn't know ----------------------------------------------------------

    def readable(self, entries: Sequence[Entry], process: "SimulatedProcess") -> Sequence[Entry]:
        """The entries that a process can decode. Raises `UnknownEvent` if it can't decode the first."""
        if process.version == NEW or not self._new_events:
            return entries
        for number, entry in enumerate(entries):
            unknown = self._unknown(entry)
            if unknown is not None and number:
                return entries[:number]
            if unknown is not None:
                self._world.faults.hit("an event that an old version doesn't know")
                raise UnknownEvent(entry.first + unknown, f"kind {k.kind_of(entry.batch.events[unknown])}.next")
        return entries

    def _unknown(self, entry: Entry) -> int | None:
        """The first event of an entry that only the new version knows: those on stages that it wrote."""
        writer = self._world.writer_of(entry)
        if writer is None or writer.version == OLD:
            return None
        return next((at for at, event in enumerate(entry.batch.events) if type(event) is k.StageDecided), None)

    def ends(self, process: "SimulatedProcess", problem: BaseException | None) -> bool:
        """Whether a process ends correctly, at an unknown event; it drains, and another process replaces it."""
        if not isinstance(problem, UnknownEvent) or process.version == NEW:
            return False

        def gone() -> None:
            if not process.owner.dead and process in self._world.processes:
                process.crash("at an event that it doesn't know")

        self._world.later(self._chance.uniform(0.0, _DRAINS_S), gone)
        return True
