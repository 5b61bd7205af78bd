"""Time that stands still for some and not for others: a log's server that hangs, processes that are all paused at once,
and appends that stay on their way until another has claimed the watch. And what may not come of it: no epoch begins
while the log has lost nothing, and no task outlives its role.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arranger.errors import ArrangerError
from arranger.events import kinds as k
from arranger.events.codec import decode_batch
from arranger.events.redis_connection import ANSWER_TIMEOUT_S
from arranger.kube.cluster import TYJOBS
from arranger.workers.observed import ahead_of_log
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

_STALL_S = (5.0, 40.0)
_PAUSE_S = (5.0, 60.0)


class Stalls:
    """Lets the log's server hang and all processes pause, and holds appends back."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} stalls")
        self._comes = self._chance.random() < 0.7
        self._pace_s = self._chance.choice((15.0, 40.0, 90.0))
        self.stalled = False
        self._goes_on = asyncio.Event()
        #: What clients have sent to the server that hangs and given up: it is carried out when the server goes on.
        self._backlog: list[Callable[[], Awaitable[None]]] = []
        #: Watch → appends that are on their way until another process claims it.
        self._held: dict[str, list[Callable[[], Awaitable[None]]]] = {}

    async def run(self) -> None:
        """One disaster after the other, until the faults stop."""
        while self._comes and self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / self._pace_s))
            if self._world.faults.on:
                await self._chance.choice((self._stall, self._stall, self._pause_all, self._stop_one))()

    async def _stall(self) -> None:
        self.stalled = True
        self._goes_on.clear()
        self._world.faults.hit("store stalled")
        self._world.step("stalls", "the log's server hangs")
        await asyncio.sleep(self._chance.uniform(*_STALL_S))
        await self.end()

    async def end(self) -> None:
        """The server goes on, with what it has received meanwhile first."""
        if self.stalled:
            self._world.step("stalls", "the log's server goes on")
        self.stalled = False
        backlog, self._backlog = self._backlog, []
        self._chance.shuffle(backlog)
        for effect in backlog:
            await effect()
        self._goes_on.set()

    async def _pause_all(self) -> None:
        """SIGSTOP for all at once; they go on in any order, once every lease has run out or before."""
        self._world.faults.hit("all processes paused together")
        paused_s = self._chance.uniform(*_PAUSE_S)
        for process in list(self._world.processes):
            process.pause(paused_s + self._chance.uniform(0.0, 3.0), "with all others")
        await asyncio.sleep(paused_s)

    async def _stop_one(self) -> None:
        if self._world.processes:
            self._world.faults.hit("process told to end")
            self._chance.choice(self._world.processes).stop()

    # --- what clients meet ---------------------------------------------------------------------------------

    async def passed(self, effect: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Wait while the server hangs; False when the client gave up first. Then its request is carried out later, or
        never reached the server."""
        if not self.stalled:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._goes_on.wait()
        if self.stalled and effect is not None and self._chance.random() < 0.5:
            self._world.faults.hit("store stalled: a write is taken later")
            self._backlog.append(effect)
        return not self.stalled

    def hold(self, watch: str, effect: Callable[[], Awaitable[None]]) -> None:
        """Keep an append on its way until another process has claimed the watch."""
        self._held.setdefault(watch, []).append(effect)

    async def claimed(self, watch: str) -> None:
        """A claim was appended and isn't answered yet: what was on its way lands now."""
        for effect in self._held.pop(watch, []):
            self._world.faults.hit("append of an ousted writer lands after the claim")
            await effect()

    async def landing(self, what: str, append: Awaitable[Any]) -> None:
        """Carry out an append whose client is no longer there to hear of it."""
        try:
            appended = await append
            self._world.step("stalls", f"{what} lands at {appended.first}-{appended.last}")
        except ArrangerError as problem:
            self._world.step("stalls", f"{what} lands: {type(problem).__name__}")

    # --- what may not come of it ---------------------------------------------------------------------------

    def check_epoch(self, first: bytes, *, lost_something: bool) -> None:
        """Only a loss begins an epoch: of entries, or of a status that an earlier epoch's applier stored too late."""
        (begun,) = decode_batch(first, 1).events
        assert isinstance(begun, k.EpochBegun)
        index = self._world.home.index
        if lost_something or index is None or begun.previous != index.start.epoch:
            return
        if begun.reason.startswith("no usable snapshot") and self._world.upgrade.other_layout:
            return
        state = self._world.oracle.state
        jobs = self._world.store.collection(TYJOBS).objects.values()
        shown = any(ahead_of_log(stored.object, state, adopts=False) for stored in jobs)
        if len(self._world.oracle.epochs) < 2 or not shown:
            raise Violation(f"epoch {begun.epoch} begins and the log has lost nothing: {begun.reason}")

    def check_tasks(self, process: "SimulatedProcess", kind: str) -> None:
        """Who appends for a watch is the only one in its process."""
        for name in (f"watch-{kind}", f"observe-{kind}"):
            found = [task for task in process.owner.running() if task.get_name() == name]
            if len(found) > 1:
                raise Violation(f"{process.name} has {len(found)} tasks {name}: one has outlived its role")

    def check_ended(self, process: "SimulatedProcess") -> None:
        """Nothing of a process that has drained goes on."""
        left = sorted(task.get_name() for task in process.owner.running() if task is not asyncio.current_task())
        if left:
            raise Violation(f"{process.name} has drained, and {left} go on")
