"""A rolling upgrade: processes of an old and a new version work together for a while, on the same code.

What a new version may have changed is put between a process and the log: snapshots of another layout, which the other
version doesn't use; events that the old one doesn't know, at which its fold stops on purpose and its process ends; and
one more filter, so that cycles are recorded under other versions.
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
from arranger.model.pod import PodShape
from arranger.projections import snapshot
from arranger.scheduling.filters import Filter, Mask
from arranger.scheduling.registry import BUILT_IN, Policies, policies
from arranger.scheduling.view import ClusterView

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

OLD, NEW = 1, 2
#: A process whose fold has stopped drains for so long at most.
_DRAINS_S = 3.0


class _RefusesNothing(Filter):
    """What the new version has and the old one hasn't."""

    name: ClassVar[str] = "Upgraded"
    version: ClassVar[int] = 1

    def question(self, shape: PodShape) -> Hashable:
        return None

    def passes(self, view: ClusterView, shape: PodShape) -> Mask:
        return np.ones(len(view), bool)

    def reason(self, view: ClusterView, shape: PodShape, row: int) -> str:
        return "upgraded"


#: Everything that either version has: whoever takes cycles again needs both.
EVERY = policies(filters=(_RefusesNothing(),))


class Upgrade:
    """Which version each place for a process has, and what the versions don't have in common in this run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} upgrade")
        self._comes = chance.random() < 0.5
        self._other_layout = chance.random() < 0.5
        self._new_events = chance.random() < 0.5
        self._versions: dict[int, int] = {}
        #: (epoch, offset) → version of the process that stored the snapshot there.
        self._stored_by: dict[tuple[int, int], int] = {}

    def of_slot(self, slot: int) -> int:
        """The version that a process starts with in this place."""
        return self._versions.get(slot, OLD)

    def policies_of(self, version: int) -> Policies:
        """What a process of this version has installed."""
        return EVERY if version == NEW else BUILT_IN

    async def run(self) -> None:
        """Some time after the beginning, one place after the other gets the new version."""
        world = self._world
        if not self._comes:
            return
        await asyncio.sleep(self._chance.uniform(20.0, 120.0))
        if not world.faults.on:
            return
        world.faults.hit("rolling upgrade")
        world.step("upgrade", "begins")
        for slot in sorted(process.slot for process in [*world.processes, *world.graveyard] if process.life == 1):
            self._versions[slot] = NEW
            for process in [each for each in world.processes if each.slot == slot and each.version == OLD]:
                process.crash("rolling upgrade")
            await asyncio.sleep(self._chance.uniform(0.3, 15.0))
        world.step("upgrade", "is done")

    # --- snapshots -----------------------------------------------------------------------------------------

    def stored(self, stored: StoredSnapshot, version: int) -> None:
        """A process of this version has stored a snapshot."""
        self._stored_by[stored.position.epoch, stored.position.offset] = version

    def restored(self, stored: StoredSnapshot | None, version: int) -> StoredSnapshot | None:
        """The snapshot as a process of this version finds it: with another layout, if it has another."""
        if stored is None or not self._other_layout:
            return stored
        if self._stored_by.get((stored.position.epoch, stored.position.offset), version) == version:
            return stored
        self._world.faults.hit("snapshot of another layout")
        return StoredSnapshot(stored.position, msgspec.msgpack.encode([snapshot.LAYOUT + 1]))

    # --- events that the old version doesn't know ----------------------------------------------------------

    def readable(self, entries: Sequence[Entry], process: "SimulatedProcess") -> Sequence[Entry]:
        """What a process can decode of some entries. Raises `UnknownEvent` if it can't the first."""
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
        _, _, name = entry.batch.writer.partition("@")
        writer = next((each for each in [*self._world.processes, *self._world.graveyard] if each.name == name), None)
        if writer is None or writer.version == OLD:
            return None
        return next((at for at, event in enumerate(entry.batch.events) if type(event) is k.StageDecided), None)

    def ends(self, process: "SimulatedProcess", problem: BaseException | None) -> bool:
        """Whether a process ends as it should, because it met what it doesn't know; it drains, and another comes."""
        if not isinstance(problem, UnknownEvent) or process.version == NEW:
            return False

        def gone() -> None:
            if not process.owner.dead and process in self._world.processes:
                process.crash("at an event that it doesn't know")

        self._world.later(self._chance.uniform(0.0, _DRAINS_S), gone)
        return True
