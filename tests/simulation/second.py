"""A second installation of Arranger on our cluster: all its roles at work, on a log of its own and under another name.

While our log holds the cluster, it writes nothing there and decides nothing. If somebody deletes the ClusterLog, our
log takes the cluster again.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.errors import LogError
from arranger.kube.cluster import CLUSTER_LOGS, ApiError, Object, Resource, always
from arranger.kube.cluster_logs import NAME
from arranger.plugins import Installed
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.status import ApiRefusal
from arranger.scheduling import BUILT_IN
from arranger.workers.log.cluster_hold import ClusterHold
from arranger.workers.log.follower import Follower
from arranger.workers.log.identity import ClusterIdentity
from arranger.workers.members.membership import Membership
from arranger.workers.members.problems import MemberProblems
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.parts import Parts
from arranger.workers.roles import Roles
from tests.memory_log import MemoryHome, MemoryLog
from tests.simulation.invariants import Violation
from tests.simulation.loop import Owner, SimulatedClock

if TYPE_CHECKING:
    from arranger.settings import Settings
    from tests.simulation.world import World

_ROLES = ("watcher", "controller", "scheduler", "applier")
#: In a run that is about this fault, the second installation comes soon and often.
SECOND = "a second installation"


class _Watched(DirectCluster):
    """The second installation's client of our API server. It may ask for everything, and write nothing."""

    def __init__(self, world: "World", clock: SimulatedClock) -> None:
        super().__init__(world.store, clock=clock)
        self._world = world

    def _refuse(self, what: str) -> None:
        problem = Violation(f"a second installation would {what}, though our log holds the cluster")
        self._world.fail(problem, None)
        raise ApiError(403, "Forbidden", str(problem))

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        self._refuse(f"create {resource.plural}")
        raise AssertionError

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        self._refuse(f"patch {resource.plural} {name}")
        raise AssertionError

    async def delete(self, resource: Resource, namespace: str | None, name: str, **_: Any) -> None:
        self._refuse(f"delete {resource.plural} {name}")

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        self._refuse(f"evict pod {name}")

    async def bind(self, namespace: str, name: str, *, uid: str, node: str, still: Callable[[], bool] = always) -> None:
        self._refuse(f"bind pod {name}")


class _Ticks:
    """Ticks of the second installation: its scheduler has a cycle now and then."""

    def __init__(self) -> None:
        self._due = asyncio.Event()

    async def push(self, _tick: str) -> bool:
        self._due.set()
        return True

    async def run(self, tick: str, period_s: float) -> None:
        while True:
            await self.push(tick)
            await asyncio.sleep(period_s)

    async def work(self, handlers: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Handle every tick whenever one is due."""
        while True:
            await self._due.wait()
            self._due.clear()
            for handler in handlers.values():
                await handler()


class Second:
    """The second installation and its faults."""

    def __init__(self, world: "World", settings: "Settings") -> None:
        self._world = world
        self._settings = msgspec.structs.replace(settings, cluster="canary")
        self._chance = random.Random(f"{world.seed} second")
        self._comes = world.faults.often(SECOND) or self._chance.random() < 0.2
        self._pace_s = 5.0 if world.faults.often(SECOND) else 60.0
        #: What has run, each installation for itself.
        self.owners: list[Owner] = []

    async def run(self) -> None:
        """Start it now and then, for a while, until the faults stop; or delete the ClusterLog while it isn't there."""
        while self._comes and self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / self._pace_s))
            if not self._world.faults.on or self._holder() is None:
                continue
            if self._chance.random() < 0.2:
                self._world.faults.hit("the ClusterLog is deleted")
                self._world.step("second", "somebody deletes the ClusterLog")
                self._world.store.delete(CLUSTER_LOGS, "", NAME)
            else:
                await self._is_there()

    def _holder(self) -> str | None:
        """The name of the log that holds the cluster."""
        with suppress(ApiRefusal):
            return str(self._world.store.get(CLUSTER_LOGS, "", NAME).object["holders"][0]["log"])
        return None

    async def _is_there(self) -> None:
        world = self._world
        world.faults.hit(SECOND)
        world.step("second", "a second installation starts")
        self.owners.append(owner := Owner("second"))
        home, clock = MemoryHome(now_ms=world.clock.now_ms), SimulatedClock(world.loop)
        try:
            world.loop.create_task(self._starts(home, clock, owner), name="second start", context=owner.context())
            await asyncio.sleep(self._chance.choice((3.0, 15.0, 90.0)))
        finally:
            if not world.closing:  # or the end of the run waits for its tasks
                world.loop.kill(owner)
        if home.index is not None and (offset := home.index.end.offset) > 1:
            world.fail(Violation(f"a second installation has {offset} events, though our log holds the cluster"), None)
        world.step("second", "the second installation is gone")

    async def _starts(self, home: MemoryHome, clock: SimulatedClock, owner: Owner) -> None:
        from tests.simulation.gateways import CLOCK_BOUND_MS, SimulatedRedis
        from tests.simulation.world import SILENT

        world = self._world
        time = Timekeeper(clock, bound_ms=CLOCK_BOUND_MS)
        log: Any = MemoryLog(home, now_ms=clock.now_ms)
        follower = Follower(log, clock=clock, metrics=SILENT, reader="second", member="second")
        cluster, redis, ticks = _Watched(world, clock), SimulatedRedis(world), _Ticks()
        identity = ClusterIdentity(cluster)
        membership = Membership(
            redis,  # type: ignore[arg-type]
            cluster="canary", member_id="second", roles=_ROLES, clock=clock, heartbeat_s=self._settings.heartbeat_s,
            timekeeper=time, writes=follower.writes,
        )  # fmt: skip
        hold = ClusterHold(cluster, "canary", namespace="", claims=True, log=follower, identity=identity, clock=clock)
        parts = Parts(
            settings=self._settings, installed=Installed(BUILT_IN, ()), member_id="second", redis=redis, stream=log,
            follower=follower, membership=membership, clock=clock, time=time, metrics=SILENT,
            problems=MemberProblems(clock), ticker=ticks, cluster=cluster, identity=identity, hold=hold,
        )  # type: ignore[arg-type]  # fmt: skip

        def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
            return world.loop.create_task(work, name=f"second {name}", context=owner.context())

        with suppress(LogError):
            handlers = await Roles(parts, spawn).start(_ROLES)
            spawn(ticks.work(handlers), "ticks")
            spawn(follower.run(), "follow")
