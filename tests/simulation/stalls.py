"""Stalls: the log's server hangs, all processes are paused at once, or appends stay in flight until another process
claims the watch. The checks are that no epoch begins while the log has lost nothing, and that no task outlives its
role.
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
from arranger.workers.watching.observed import ahead_of_log
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

_STALL_S = (5.0, 40.0)
_PAUSE_S = (5.0, 60.0)


class Stalls:
    """Lets the log's server hang, pauses all processes, and delays appends."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} stalls")
        self._comes = self._chance.random() < 0.7
        self._pace_s = self._chance.choice((15.0, 40.0, 90.0))
        self.stalled = False
        self._goes_on = asyncio.Event()
        #: Requests to the hanging server that clients gave up on: the server executes them when it resumes.
        self._backlog: list[Callable[[], Awaitable[None]]] = []
        #: Watch → appends that stay in flight until another process claims it.
        self._held: dict[str, list[Callable[[], Awaitable[None]]]] = {}

    async def run(self) -> None:
        """Cause one stall after the other, until the faults stop."""
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
        """Resume the server; it first executes the requests received meanwhile."""
        if self.stalled:
            self._world.step("stalls", "the log's server goes on")
        self.stalled = False
        backlog, self._backlog = self._backlog, []
        self._chance.shuffle(backlog)
        for effect in backlog:
            await effect()
        self._goes_on.set()

    async def _pause_all(self) -> None:
        """SIGSTOP all at once; they resume in any order, before or after every lease has expired."""
        self._world.faults.hit("all processes paused together")
        paused_s = self._chance.uniform(*_PAUSE_S)
        for process in list(self._world.processes):
            process.pause(paused_s + self._chance.uniform(0.0, 3.0), "with all others")
        await asyncio.sleep(paused_s)

    async def _stop_one(self) -> None:
        if self._world.processes:
            self._world.faults.hit("process told to end")
            self._chance.choice(self._world.processes).stop()

    # --- effects on clients --------------------------------------------------------------------------------

    async def passed(self, effect: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Wait while the server hangs; False if the client gave up first. Then its request is executed later, or never
        reached the server."""
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
        """Keep an append in flight until another process has claimed the watch."""
        self._held.setdefault(watch, []).append(effect)

    async def claimed(self, watch: str) -> None:
        """Land the appends in flight after a claim was appended, before its response."""
        for effect in self._held.pop(watch, []):
            self._world.faults.hit("append of an ousted writer lands after the claim")
            await effect()

    async def landing(self, what: str, append: Awaitable[Any]) -> None:
        """Execute an append whose client no longer waits for the response."""
        try:
            appended = await append
            self._world.step("stalls", f"{what} lands at {appended.first}-{appended.last}")
        except ArrangerError as problem:
            self._world.step("stalls", f"{what} lands: {type(problem).__name__}")

    # --- checks --------------------------------------------------------------------------------------------

    def check_epoch(self, first: bytes, *, lost_something: bool) -> None:
        """Check that an epoch begins only after a loss of entries, or of a status that an earlier epoch stored late.

        An epoch may have begun twice with equal bytes, and the log was emptied between. Who read the first one finds
        that the second one has lost its entries.
        """
        (begun,) = decode_batch(first, 1).events
        assert isinstance(begun, k.EpochBegun)
        index = self._world.home.index
        if lost_something or index is None or begun.previous != index.start.epoch:
            return
        if self._world.oracle.epochs.count(begun.previous) > 1:
            return
        if begun.reason.startswith("no usable snapshot") and self._world.upgrade.other_layout:
            return
        if len(self._world.oracle.epochs) < 2 or not self._status_ahead():
            raise Violation(f"epoch {begun.epoch} begins and the log has lost nothing: {begun.reason}")

    def _status_ahead(self) -> bool:
        """Whether a TYJob's status shows more than the log holds: as it is stored now, or in a change that no watch has
        recorded yet, of a TYJob that may be deleted since."""
        state, jobs = self._world.oracle.state, self._world.store.collection(TYJOBS)
        recorded = max((int(job.seen.resource_version) for job in state.jobs.values() if not job.of_pods), default=0)
        changes = [event.stored for event in jobs.history.since(jobs.history.forgotten)]
        late = [each for each in changes if each.version > recorded and each.object["metadata"]["uid"] in state.jobs]
        return any(ahead_of_log(each.object, state, adopts=False) for each in (*jobs.objects.values(), *late))

    def check_tasks(self, process: "SimulatedProcess", kind: str) -> None:
        """Check that only one task of the process appends for a watch."""
        for name in (f"watch-{kind}", f"observe-{kind}"):
            found = [task for task in process.owner.running() if task.get_name() == name]
            if len(found) > 1:
                raise Violation(f"{process.name} has {len(found)} tasks {name}: one has outlived its role")

    def check_ended(self, process: "SimulatedProcess") -> None:
        """Check that no task of a drained process continues."""
        left = sorted(task.get_name() for task in process.owner.running() if task is not asyncio.current_task())
        if left:
            raise Violation(f"{process.name} has drained, and {left} go on")
