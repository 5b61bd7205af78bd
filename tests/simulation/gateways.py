"""The access of every worker process to the log, the cluster and Redis; most faults happen here.

The log and the cluster are the real in-memory ones; the membership and the leases are the real classes on a Redis that
supports their three scripts. A killed process stops within the call; a paused one continues there later.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError

from arranger.errors import ArrangerError, LogUnavailable, WritesRefused
from arranger.events.codec import decode_batch
from arranger.events.fence import CLAIM, Fence
from arranger.events.kinds import Batch, EpochBegun, Placed, Preempted, WorkersReplaced, kind_of
from arranger.events.log import Appended, Entry, Position, StoredSnapshot
from arranger.events.redis_connection import ANSWER_TIMEOUT_S
from arranger.kube.cluster import (
    PODS,
    ApiError,
    ClusterUnavailable,
    Expired,
    ListPage,
    Object,
    Resource,
    WatchEvent,
    always,
)
from arranger.model.job import Replacement
from arranger.projections.state import State
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.members import membership
from tests.memory_log import HeldWatch, MemoryHome, MemoryLog
from tests.simulation.faults import RACES, STAYING
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

_Answer = TypeVar("_Answer")

#: The errors of a server that is full, and of one that is a replica.
OOM = "OOM command not allowed when used memory > 'maxmemory'."
#: The error of one at its limit, which accepts small writes.
NEARLY_FULL = "OOM command not allowed when used memory > 'maxmemory', at the limit."
#: The memory of the server, in bytes.
LIMIT = 100 * 2**20
READONLY = "READONLY You can't write against a read only replica."

#: The bound on clock errors: small differences and jumps stay within it, and larger errors are reported.
CLOCK_BOUND_MS = 30_000

#: The limit of what a lost tail may remove.
LOST_EVENTS = 40


class Home(MemoryHome):
    """The log's server. The oracle receives every write at once; a lost tail also reverts the watches."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._lost_something = False
        super().__init__(now_ms=world.clock.now_ms)

    def begin(self, epoch: int, first: bytes) -> None:
        self._check_begin(first)
        (begun,) = decode_batch(first, 1).events
        assert isinstance(begun, EpochBegun)
        if not begun.cluster:
            self._world.elsewhere.leaves()  # no process knows the log's cluster any more
        self._world.oracle.begin(epoch, first)
        self._watches_before: list[dict[str, HeldWatch]] = []
        super().begin(epoch, first)

    def add(self, payload: bytes, count: int) -> Any:
        self._watches_before.append(dict(self.watches))
        stored = super().add(payload, count)
        self._world.oracle.add(stored)
        return stored

    def _check_begin(self, first: bytes) -> None:
        try:
            self._world.stalls.check_epoch(first, lost_something=self._lost_something)
        except Violation as violation:
            self._world.fail(violation, None)
        self._lost_something = False

    def lose_tail(self, after: int) -> None:
        whole = len(self.stored)
        super().lose_tail(after)
        lost = whole - len(self.stored)
        if lost:
            self._lost_something = True
            self.watches = self._watches_before[-lost]
            del self._watches_before[-lost:]
            assert self.index is not None
            self._world.oracle.lose_after(self.index.end.offset)

    def lose_everything(self) -> None:
        super().lose_everything()
        self._lost_something = True
        self._world.oracle.lose_everything()


class Gateway:
    """The crashes and pauses of one process, shared by its log and its cluster."""

    def __init__(self, world: "World", process: "SimulatedProcess") -> None:
        self.world = world
        self.process = process

    async def passage(self, when: str, what: str) -> None:
        """A point before or after an effect, at which the process may be killed or paused."""
        faults = self.world.faults
        if faults.at(f"crash {when} {what}"):
            self.process.crash(f"{when} {what}")
            await asyncio.Event().wait()
        if faults.at(f"pause {when} {what}"):
            self.process.pause(self.world.chance.uniform(0.5, 25.0), f"{when} {what}")
            await asyncio.sleep(0)

    async def latency(self) -> None:
        """Mostly short, sometimes long, often none."""
        draw = self.world.chance.random()
        try:
            if draw < 0.6:
                await asyncio.sleep(draw * 0.02)
            elif draw > 0.99:
                await asyncio.sleep(self.world.chance.uniform(0.1, 3.0))
        except asyncio.CancelledError:
            if not self.world.faults.at("cancellation swallowed"):
                raise
            self.world.step(self.process.name, "a cancellation is swallowed")


def placed_on(batch: Batch) -> list[str]:
    """The nodes that a cycle gives pods to."""
    placed = [event.placed if isinstance(event, Preempted) else event for event in batch.events]
    return [pods.node for event in placed if isinstance(event, Placed) for pods in event.pods]


def staying_on(batch: Batch, state: State) -> list[str]:
    """The nodes that keep failed workers' slots."""
    found = []
    for event in batch.events:
        job = state.jobs.get(event.job_uid) if isinstance(event, WorkersReplaced) else None
        if isinstance(event, WorkersReplaced) and job is not None:
            same = [worker.slot for worker in event.workers if worker.how == Replacement.SAME_NODE]
            slots = [(slot.group, slot.index) for slot in same]
            found += [job.placements[slot] for slot in slots if slot in job.placements]
    return found


class FaultyLog(MemoryLog):
    """A client of the log whose server can be unavailable, lose responses, or be killed."""

    def __init__(self, gateway: Gateway, home: Home, now_ms: Callable[[], int]) -> None:
        super().__init__(home, now_ms=now_ms, clock_bound_ms=CLOCK_BOUND_MS)
        self._gateway = gateway
        self._world = gateway.world

    def _reach(self, site: str) -> None:
        if self._world.log_away or self._world.faults.at(site):
            raise LogUnavailable("simulated: no connection to the log")

    def _takes_writes(self, *, frees: bool = False) -> None:
        """A full server accepts only writes that free memory, a replica none."""
        trouble = self._world.log_trouble
        if trouble == READONLY or (trouble in (OOM, NEARLY_FULL) and not frees):
            raise WritesRefused(f"Redis at simulated can't do that now: {trouble}")

    async def _slowly(self) -> bool:
        """Simulate a slow server; returns whether its response is too late for the client."""
        if not self._world.log_slow:
            return False
        takes_s = self._world.chance.uniform(0.2, 1.2 * ANSWER_TIMEOUT_S)
        await asyncio.sleep(min(takes_s, ANSWER_TIMEOUT_S))
        return takes_s > ANSWER_TIMEOUT_S

    def _answered(self, late: bool) -> None:
        if late:
            self._world.faults.hit("log slow: no answer in time")
            raise LogUnavailable("simulated: Timeout reading from the log")

    async def open(self) -> Position:
        self._reach("read unavailable")
        return await super().open()

    async def append(self, batch: Batch, *, epoch: int, fence: Fence | None = None) -> Appended:
        gate = self._gateway
        await gate.latency()
        await gate.passage("before", "append")
        await self._close_nodes_of(batch)
        await self._world.topologies.race(batch)
        await self._world.coming.race(batch)
        self._reach("append unavailable")
        self._takes_writes()
        late = await self._slowly()
        await self._sent(batch, epoch, fence)
        if fence is not None:
            self._check_tasks(fence.watch)
        kinds = ",".join(kind_of(event) for event in batch.events[:6])
        try:
            appended = await super().append(batch, epoch=epoch, fence=fence)
        except ArrangerError as problem:
            self._world.step(
                gate.process.name, f"append {kinds} as {batch.writer}#{batch.seq}: {type(problem).__name__}"
            )
            raise
        again = " again" if appended.duplicate else ""
        span = f"{appended.first}-{appended.last}"
        self._world.step(gate.process.name, f"append {kinds} as {batch.writer}#{batch.seq} at {span}{again}")
        if fence is not None and fence.term == CLAIM:
            await self._world.stalls.claimed(fence.watch)
        await gate.passage("after", "append")
        self._answered(late)
        if self._world.faults.at("append answer lost"):
            raise LogUnavailable("simulated: the answer of the append was lost")
        await gate.latency()
        return appended

    async def _close_nodes_of(self, batch: Batch) -> None:
        """Close a node to which a decision in flight assigns pods; mostly the log records the closing first."""
        for site, nodes in zip(RACES, (placed_on(batch), staying_on(batch, self._world.oracle.state)), strict=True):
            if nodes and self._world.faults.at(site):
                self._world.machines.close(self._world.chance.choice(nodes))
                await asyncio.sleep(self._world.chance.uniform(0.02, 1.0))
            elif nodes and site == STAYING and self._world.trials.closes(batch, nodes[0]):
                await asyncio.sleep(1.0)

    async def _sent(self, batch: Batch, epoch: int, fence: Fence | None) -> None:
        """The batch is in flight: it may stay there, or arrive at a server that hangs. Its sender may be paused
        meanwhile, for longer than its leases."""
        stalls, gate = self._world.stalls, self._gateway
        what = f"{batch.writer}#{batch.seq} under term {fence.term}" if fence is not None else ""

        async def land() -> None:
            client = MemoryLog(self.home, clock_bound_ms=CLOCK_BOUND_MS)
            client._seen._last = seen
            await stalls.landing(what or f"{batch.writer}#{batch.seq}", client.append(batch, epoch=epoch, fence=fence))

        seen = self._seen._last
        if fence is not None and fence.term != CLAIM and self._world.faults.at("append held in flight"):
            stalls.hold(fence.watch, land)
            gate.process.pause(self._world.chance.uniform(6.0, 30.0), f"with {what} in flight")
            await asyncio.sleep(0)
            raise LogUnavailable("simulated: Timeout reading from the log")
        if not await stalls.passed(land):
            raise LogUnavailable("simulated: Timeout reading from the log")

    def _check_tasks(self, watch: str) -> None:
        try:
            self._world.stalls.check_tasks(self._gateway.process, watch)
        except Violation as violation:
            self._world.fail(violation, None)

    async def _goes_on(self) -> None:
        """Wait for a server that hangs, for as long as a client does."""
        if not await self._world.stalls.passed():
            raise LogUnavailable("simulated: Timeout reading from the log")

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        self._reach("read unavailable")
        await self._gateway.latency()
        await self._goes_on()
        found = await super().read(after, limit=limit, wait_s=wait_s)
        await self._goes_on()
        found = self._world.upgrade.readable(found, self._gateway.process)
        self._answered(await self._slowly())
        self._reach("read unavailable")
        return found

    async def end(self) -> Position:
        self._reach("read unavailable")
        await self._goes_on()
        return await super().end()

    async def start(self) -> Position:
        self._reach("read unavailable")
        await self._goes_on()
        return await super().start()

    async def begin_epoch(
        self, *, lost: int, reason: str, time_ms: int, fence: Fence | None = None, cluster: str = ""
    ) -> Position:
        self._reach("append unavailable")
        self._takes_writes()
        await self._gateway.latency()
        await self._goes_on()
        position = await super().begin_epoch(lost=lost, reason=reason, time_ms=time_ms, fence=fence, cluster=cluster)
        self._world.step(self._gateway.process.name, f"epoch {position.epoch} after {lost}: {reason}")
        return position

    async def put_snapshot(self, snapshot: StoredSnapshot) -> None:
        await self._gateway.passage("before", "snapshot")
        self._reach("append unavailable")
        self._takes_writes()
        await self._goes_on()
        await super().put_snapshot(snapshot)
        self._world.upgrade.stored(snapshot, self._gateway.process.version)
        self._world.oracle.snapshot(snapshot)
        self._world.step(self._gateway.process.name, f"snapshot at {snapshot.position.offset}")
        await self._gateway.passage("after", "snapshot")

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        self._reach("read unavailable")
        await self._gateway.latency()
        await self._goes_on()
        found = await super().newest_snapshot(at_most=at_most)
        return self._world.upgrade.restored(found, self._gateway.process.version)

    async def trim(self, before: int, *, epoch: int) -> int:
        await self._gateway.passage("before", "trim")
        self._reach("append unavailable")
        self._takes_writes(frees=True)
        await self._goes_on()
        gone = await super().trim(before, epoch=epoch)
        if gone:
            self._world.step(self._gateway.process.name, f"trim {gone} entries before {before}")
        await self._gateway.passage("after", "trim")
        return gone


class FaultyCluster(DirectCluster):
    """A client of the API server whose every call can fail before or after its effect."""

    def __init__(self, gateway: Gateway, store: Store) -> None:
        super().__init__(store, clock=gateway.process.clock)
        self._gateway = gateway
        self._world = gateway.world
        self._resets = 0

    def connect(self, store: Store, *, reset: bool = False) -> None:
        """Send new requests to another API server; `reset` also breaks the open watches."""
        self._store = store
        self._resets += reset

    def _connected(self, what: str) -> None:
        if self._world.api_away or self._world.faults.at(f"{what}: no connection"):
            raise ClusterUnavailable(f"simulated: no connection for {what}")

    def _refuse(self, what: str) -> None:
        at = self._world.faults.at
        if at(f"{what}: 500 before"):
            raise ApiError(500, "InternalError", "simulated: etcd has no leader")
        if at(f"{what}: 429"):
            raise ApiError(429, "TooManyRequests", "simulated: slow down", retry_after_s=1.0)
        if at(f"{what}: 409"):
            raise ApiError(409, "Conflict", "simulated: the object has been modified")
        if at(f"{what}: 403"):
            raise ApiError(403, "Forbidden", "simulated: exceeded quota")

    async def _write(
        self, what: str, about: str, namespace: str | None, effect: Callable[[], Awaitable[_Answer]]
    ) -> _Answer:
        gate, name = self._gateway, self._gateway.process.name
        await gate.latency()
        await gate.passage("before", what)
        try:
            self._connected(what)
            self._refuse(what)
            await self._world.appliers.answer(what, about)
            await self._world.refusals.judge(what, namespace or "")
            await self._world.denials.judge(what, namespace or "", about.partition(" ")[0])
            answer = await effect()
        except ArrangerError as problem:
            self._world.step(name, f"{what} {about}: {problem.message[:90]}")
            raise
        self._world.step(name, f"{what} {about}")
        await gate.passage("after", what)
        if self._world.faults.at(f"{what}: time-out after"):
            raise ClusterUnavailable(f"simulated: the answer to {what} was lost")
        if self._world.faults.at(f"{what}: 500 after"):
            raise ApiError(500, "InternalError", "simulated: failed after the effect")
        await gate.latency()
        return answer

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        await self._gateway.latency()
        self._connected(f"get {resource.plural}")
        found = await super().get(resource, namespace, name)
        await self._gateway.latency()
        return found

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, still: Callable[[], bool] = always
    ) -> Object:
        """`still` isn't checked again: a process may be stopped right after its check."""
        name = body["metadata"]["name"]
        parent, claims, problem, lacking = super().create, self._world.claims, "", list[str]()
        if resource == PODS:
            known, pod = self._gateway.process.follower.state, dict(body)
            problem = claims.unreached(known, pod, pod["spec"].get("nodeName", ""))
            lacking = claims.lacking(known, pod)

        async def effect() -> Object:
            if wrong := problem or claims.too_early(lacking):
                raise Violation(f"pod {name} is created, though {wrong}")
            return await parent(resource, namespace, body)

        return await self._write(f"create {resource.plural}", name, namespace, effect)

    async def try_create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """A dry run is judged as a creation is, and nothing is stored."""
        what, parent = f"create {resource.plural}", super().try_create
        await self._gateway.latency()
        self._connected(what)
        self._refuse(what)
        await self._world.refusals.judge(what, namespace or "")
        await self._world.denials.judge(what, namespace or "", body["metadata"]["name"])
        before = self._world.store.version
        await parent(resource, namespace, body)
        if self._world.store.version != before:
            raise Violation("a dry run changed something")
        await self._gateway.latency()

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        parent = super().patch
        self._world.checks.worker_patches(resource, namespace or "", name, subresource, body)
        status = body.get("status") or {}
        told = f"{name} {status['stage']} attempt {status['attempt']}" if "stage" in status else name
        return await self._write(
            f"patch {resource.plural}",
            told,
            namespace,
            lambda: parent(resource, namespace, name, body, subresource=subresource),
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """What a process may delete is judged by what it knows when it asks: a request can't be taken back."""
        parent, process, checks = super().delete, self._gateway.process, self._world.checks
        knows = checks.forged.get(uid or "") in process.follower.state.jobs
        graceful = resource == PODS and grace_s != 0
        problem = self._world.room_record.deleted(process, uid or "") if graceful else ""

        async def effect() -> None:
            checks.worker_deletes(resource, namespace or "", name, uid, knows=knows)
            if problem:
                raise Violation(problem)
            if grace_s == 0 and uid is not None:
                self._world.clocks.check_force(self._gateway.process, uid)
            await parent(resource, namespace, name, uid=uid, resource_version=resource_version, grace_s=grace_s)

        await self._write(f"delete {resource.plural}", name, namespace, effect)

    async def bind(self, namespace: str, name: str, *, uid: str, node: str, still: Callable[[], bool] = always) -> None:
        """`still` isn't checked again, as in `create`."""
        parent, others, bindings = super().bind, self._world.others, self._world.bindings
        claims, known = self._world.claims, self._gateway.process.follower.state
        problem, lacking = claims.unreached(known, others.pod(uid), node), claims.lacking(known, others.pod(uid))

        async def effect() -> None:
            record = others.record(uid)
            if wrong := problem or claims.too_early(lacking):
                raise Violation(f"pod {name} is bound, though {wrong}")
            how = bindings.before(name, uid, record, node)
            await parent(namespace, name, uid=uid, node=node)
            if undecided := others.undecided(name, node):
                raise Violation(undecided)
            bindings.after(how, record)

        await self._write("bind pods", f"{name} to {node}", namespace, effect)

    async def listing(self, resource: Resource, *, limit: int = 500, at: str = "") -> AsyncGenerator[ListPage, None]:
        await self._gateway.latency()
        self._connected(f"list {resource.plural}")
        self._world.quotas.judge_reading(resource.plural)
        self._world.limit_ranges.judge_reading(resource.plural)
        pages = 0
        async for page in super().listing(resource, limit=3 if resource == PODS else limit, at=at):
            yield page
            pages += 1
            await self._gateway.latency()
            if self._world.faults.at(f"list {resource.plural}: 410"):
                raise Expired(410, "Expired", "simulated: the continuation is too old")
            self._connected(f"list {resource.plural}")
        moment = f" as of {at}" if at else ""
        self._world.step(self._gateway.process.name, f"list {resource.plural} in {pages} pages{moment}")

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_s: float = 300.0,
        accepted: Callable[[], object] = always,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        what, world = f"watch {resource.plural}", self._world
        await self._gateway.latency()
        self._connected(what)
        if world.faults.at(f"{what}: 410"):
            raise Expired(410, "Expired", "simulated: too old resource version")
        until_s, resets = min(world.chance.uniform(5.0, 20.0), timeout_s), self._resets
        async with aclosing(super().watch(resource, resource_version, timeout_s=until_s, accepted=accepted)) as batches:
            async for batch in batches:
                if world.api_away or self._resets > resets:
                    raise ClusterUnavailable("simulated: the connection was reset")
                if world.faults.at(f"{what}: ended"):
                    return
                if world.faults.at(f"{what}: broken"):
                    raise ClusterUnavailable("simulated: the connection was reset")
                if world.faults.at(f"{what}: silent"):
                    await asyncio.sleep(30.0)
                    raise ClusterUnavailable("simulated: nothing was heard for 30 s")
                if world.faults.at(f"{what}: late"):
                    await asyncio.sleep(world.chance.uniform(0.3, 8.0))
                if (late_s := world.late_until_s.get(resource.plural, 0.0) - world.loop.time()) > 0:
                    await asyncio.sleep(late_s)
                if world.faults.at("pause with news in hand"):
                    self._gateway.process.pause(world.chance.uniform(6.0, 30.0), f"with news of {resource.plural}")
                    await asyncio.sleep(0)
                if told := self._mangled(what, batch):
                    yield told

    def _mangled(self, what: str, batch: list[WatchEvent]) -> list[WatchEvent]:
        if self._world.faults.at(f"{what}: dropped"):
            batch = list(batch)
            del batch[self._world.chance.randrange(len(batch))]
        if batch and self._world.faults.at(f"{what}: doubled"):
            batch = batch * 2 if self._world.chance.random() < 0.5 else [each for each in batch for _ in range(2)]
        return batch


class SimulatedRedis:
    """The part of Redis that membership and leases use: their scripts, on the server's own clock."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._members: dict[str, tuple[float, Any]] = {}
        self._leases: dict[str, tuple[float, str]] = {}

    def register_script(self, script: str) -> Callable[..., Awaitable[Any]]:
        """The script as a coroutine function."""
        body = {
            membership._BEAT: self._beat,
            membership._TAKE: self._take,
            membership._GIVE_BACK: self._give_back,
        }[script]

        async def run(*, keys: list[str], args: list[Any]) -> Any:
            if self._world.log_away or self._world.faults.at("lease unavailable"):
                raise RedisConnectionError("simulated: no connection")

            async def land() -> None:
                with suppress(RedisError):
                    body(keys[0], *args)

            if not await self._world.stalls.passed(land):
                raise RedisConnectionError("simulated: Timeout reading from the server")
            answer = body(keys[0], *args)
            if self._world.log_slow:
                await asyncio.sleep(self._world.chance.uniform(0.1, 3.0))
            return answer

        return run

    async def info(self, _section: str) -> dict[str, Any]:
        """What the server says of its memory."""
        if self._world.log_away:
            raise RedisConnectionError("simulated: no connection")
        used = LIMIT if self._world.log_trouble in (OOM, NEARLY_FULL) else LIMIT // 2
        return {"maxmemory": LIMIT, "used_memory": used, "maxmemory_policy": "noeviction"}

    def _takes_writes(self, *, frees: bool = False) -> None:
        """As in a script on a server: the first command that writes, or that needs memory, is refused."""
        trouble = self._world.log_trouble
        if trouble == READONLY:
            raise ReadOnlyError(trouble)
        if trouble == OOM and not frees:
            raise OutOfMemoryError(trouble)

    def _beat(self, _key: str, member: str, record: Any, valid_ms: int) -> list[Any]:
        now_s = self._world.loop.time()
        if valid_ms >= 0:
            self._takes_writes(frees=valid_ms == 0)
        if valid_ms > 0:
            self._members[member] = (now_s + valid_ms / 1000, record)
        elif valid_ms == 0:
            self._members.pop(member, None)
        self._members = {name: kept for name, kept in self._members.items() if kept[0] > now_s}
        told = b"%d" % self._world.clock.now_ms()
        return [told, *(record for _, record in self._members.values())]

    def _take(self, key: str, holder: str, valid_ms: int) -> int:
        now_s = self._world.loop.time()
        until_s, other = self._leases.get(key, (0.0, ""))
        if until_s > now_s and other != holder:
            return 0
        self._takes_writes(frees=until_s > now_s)  # a renewal needs no memory
        self._leases[key] = (now_s + valid_ms / 1000, holder)
        return 1

    def _give_back(self, key: str, holder: str) -> int:
        if self._leases.get(key, (0.0, ""))[1] != holder:
            return 0
        self._takes_writes(frees=True)
        del self._leases[key]
        return 1

    def forget(self) -> None:
        """Forget members and leases, as FLUSHALL does."""
        self._members.clear()
        self._leases.clear()
