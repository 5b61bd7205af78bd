"""One simulated world: an API server with kubelets, a log, worker processes, users, and one seed for all of it.

`World(seed).run(steps)` runs that many steps with faults, then stops the faults and waits until the world is settled,
or raises `Violation`. A step is one event that reached the log, the API server or a machine: a write, a listing, a
user's action, a crash. Every event is a line of the trace, and the trace's digest distinguishes runs.
"""

import asyncio
import gc
import hashlib
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import msgspec

from arranger.events.kinds import Watched
from arranger.events.log import Entry
from arranger.kube.sources import SOURCES
from arranger.plugins import Installed
from arranger.projections.formats import layouts
from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import ServedKind, custom_kinds
from arranger.sandbox.status import FieldError
from arranger.sandbox.store import Store
from arranger.sandbox.validation import Schema
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from arranger.workers.applying import applier
from arranger.workers.applying.applier import Applier
from arranger.workers.deciding import forecaster
from arranger.workers.flow import backoff
from arranger.workers.flow.cancelling import end
from arranger.workers.health.http import Health
from arranger.workers.health_report import HealthReport
from arranger.workers.log.beginning import HistoryGone
from arranger.workers.log.cluster_hold import ClusterHold
from arranger.workers.log.follower import Follower
from arranger.workers.log.identity import ClusterIdentity
from arranger.workers.members.membership import Membership
from arranger.workers.members.problems import MemberProblems
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.parts import Parts
from arranger.workers.roles import END_S, Roles
from tests.earlier_layout import BRIDGES
from tests.servers import CLUSTER_LOG_CRD, definition_of, tyjob_definition
from tests.simulation.actors import Caretaker, Disasters, Machines, User
from tests.simulation.appliers import Appliers
from tests.simulation.autoscalers import Autoscaler
from tests.simulation.bad_nodes import BadNodes
from tests.simulation.belongings import Belongings
from tests.simulation.bindings import Bindings
from tests.simulation.calm import CALM, NODES, CalmUser, calm_down
from tests.simulation.claims import Claims
from tests.simulation.classes import Classes
from tests.simulation.clocks import Clocks
from tests.simulation.coming import Coming
from tests.simulation.denials import Denials
from tests.simulation.dependencies import Dependencies
from tests.simulation.elsewhere import Elsewhere
from tests.simulation.endings import Endings
from tests.simulation.faults import ANSWERS, BELONGINGS, FORGERIES, ROGUE, Faults
from tests.simulation.forecasts import Forecasts
from tests.simulation.forgeries import Forger
from tests.simulation.gateways import CLOCK_BOUND_MS, FaultyCluster, FaultyLog, Gateway, Home, SimulatedRedis
from tests.simulation.invariants import Checks, Oracle, Violation
from tests.simulation.limit_ranges import LimitRanges
from tests.simulation.loop import Owner, SimulatedClock, VirtualLoop
from tests.simulation.others import Others
from tests.simulation.pod_groups import PodGroups
from tests.simulation.queues import Queues
from tests.simulation.quotas import Quotas
from tests.simulation.refusals import Refusals
from tests.simulation.rogue import Rogue
from tests.simulation.room import Room
from tests.simulation.room_record import RoomRecord
from tests.simulation.second import Second
from tests.simulation.stalls import Stalls
from tests.simulation.starts import Starts
from tests.simulation.topologies import Topologies
from tests.simulation.trials import Trials
from tests.simulation.upgrades import Upgrade
from tests.simulation.vain import Vain
from tests.simulation.windows import Windows

ROLES = ("watcher", "controller", "scheduler", "applier", "maintenance")
#: The shipped settings, with shorter periods and lower limits, because a run takes minutes and has few events.
SETTINGS = Settings(
    cluster="sim", clock_bound_s=CLOCK_BOUND_MS / 1000, infeasible_grace_s=20, quorum_grace_s=40, image_grace_s=15,
    start_grace_s=30,
    relist_s=20, snapshot_every_events=100, snapshot_every_s=20, keep_events=30, fair_share_half_life_s=60,
)  # fmt: skip
#: The time to settle after the faults stopped, in virtual seconds: a refused watch is tried again after 300 s, and a
#: job that was refused meanwhile backs off for as long. A job whose pods fail by their own fault may do so twice.
_SETTLES_WITHIN_S = 1100.0
#: How long jobs keep nodes that they took from others in the worlds, in seconds.
_LEAST_S = (0, 0, 0, 10)
#: In such a part of the runs nothing is kept for jobs in front.
_WITHOUT = 0.05
#: The part of the runs in calm worlds.
_CALM = 0.05
#: The number of changes of a resource that a watch may lag behind.
_HISTORY = 400
#: The number of steps between comparisons of projections.
_COMPARE_EVERY = 100


class _Silent:
    """Metrics that are discarded."""

    def __getattr__(self, name: str) -> "_Silent":
        return self

    def __call__(self, *args: object, **more: object) -> "_Silent":
        return self


SILENT: Any = _Silent()


class _Missed:
    """A watcher's count of differences that its comparisons found. Each was lost in transit, or forged, which only a
    few faults cause; or another cluster has answered the watch, whose versions differ; or the process is about to
    notice that it is in a lost tail of the log."""

    def __init__(self, process: "SimulatedProcess") -> None:
        self._process = process
        self._world = process.world
        self._site = ""

    def labels(self, kind: Watched) -> "_Missed":
        self._site = f"watch {SOURCES[kind].resource.plural}: dropped"
        return self

    def inc(self, number: int) -> None:
        at, home = self._process.follower.position, self._world.home
        in_log = any((entry.last, entry.chain) == (at.offset, at.chain) for entry in home.stored)
        if in_log and not any(self._world.faults.hits[site] for site in (self._site, *FORGERIES, *ANSWERS)):
            self._world.fail(Violation(f"a comparison finds {number} objects, and never: {self._site}"), None)


class _Metrics(_Silent):
    """The metrics of a process; the findings of its comparisons are checked."""

    def __init__(self, process: "SimulatedProcess") -> None:
        self.missed_observations = _Missed(process)

    def heard_age_s(self, kind: Watched) -> None:
        """Discard it."""


class Problems(logging.Handler):
    """Treats every error that the workers log as a violation."""

    def __init__(self, world: "World") -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "the fold stops":  # its task ends with the reason, which is checked there
            return
        problem = record.exc_info[1] if record.exc_info else None
        self._world.fail(Violation(f"an error was logged: {record.getMessage()} {problem!r}"), problem)


class Ticks:
    """The part of rq: at most one tick of each name waits, and the first process that asks gets it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._waiting: dict[str, int] = {}
        self._pushed = asyncio.Event()

    async def push(self, tick: str) -> bool:
        """As `Ticker.push`."""
        faults, chance = self._world.faults, self._world.chance
        if self._world.log_away or self._world.log_trouble or self._world.stalls.stalled or faults.at("tick lost"):
            return False
        if faults.at("tick late"):
            await asyncio.sleep(chance.uniform(0.5, 5.0))
        if self._waiting.get(tick) and not faults.at("tick doubled"):
            return False
        self._waiting[tick] = self._waiting.get(tick, 0) + 1
        self._pushed.set()
        self._pushed = asyncio.Event()
        return True

    async def run(self, tick: str, period_s: float) -> None:
        """As `Ticker.run`."""
        while True:
            await self.push(tick)
            await asyncio.sleep(period_s)

    async def work(self, handlers: dict[str, Callable[[], Awaitable[None]]]) -> None:
        """Handle ticks one after the other without end, as a `TickLoop` does."""
        while True:
            names = [name for name in handlers if self._waiting.get(name)]
            if not names:
                await self._pushed.wait()
                continue
            self._waiting[names[0]] -= 1
            await handlers[names[0]]()


class _Follower(Follower):
    """The fold of a process; its last resort is checked."""

    def __init__(self, process: "SimulatedProcess", log: FaultyLog) -> None:
        super().__init__(log, clock=process.clock, metrics=SILENT, reader=process.name, member=process.name)
        self._process = process

    async def _begin_without_history(self, gone: HistoryGone) -> None:
        world = self._process.world
        offset = world.upgrade.readable_offset()
        if offset is not None:
            name = self._process.name
            world.fail(Violation(f"{name} begins an epoch, though there is a snapshot at offset {offset}"), None)
        await super()._begin_without_history(gone)


class SimulatedProcess:
    """One worker process: the real roles, composed by `workers.roles` as those of `arranger run`."""

    def __init__(self, world: "World", slot: int, roles: tuple[str, ...], life: int) -> None:
        self.world, self.slot, self.roles, self.life = world, slot, roles, life
        self.name = f"p{slot}-{life}"
        self.version = world.upgrade.of_slot(slot)
        self.owner = Owner(self.name)
        self.clock = SimulatedClock(world.loop, skew_ms=world.skews_ms.get(slot, 0))
        self.gateway = Gateway(world, self)
        self.follower = _Follower(self, FaultyLog(self.gateway, world.home, self.clock.now_ms))
        self.cluster = FaultyCluster(self.gateway, world.store if slot in world.skews_ms else world.elsewhere.store)
        self.identity = ClusterIdentity(self.cluster) if {"watcher", "applier"} & set(roles) else None
        time = Timekeeper(self.clock, bound_ms=CLOCK_BOUND_MS)
        self.membership = Membership(
            world.redis,  # type: ignore[arg-type]
            cluster=SETTINGS.cluster, member_id=self.name, roles=roles, clock=self.clock,
            heartbeat_s=SETTINGS.heartbeat_s, timekeeper=time, writes=self.follower.writes,
            layout=world.upgrade.layout_of(self.version),
        )  # fmt: skip
        parts = Parts(
            settings=world.forecasts.settings(world.settings),
            installed=Installed(world.upgrade.policies_of(self.version), ()), member_id=self.name,
            redis=world.redis, stream=self.follower.log, follower=self.follower,  # type: ignore[arg-type]
            membership=self.membership, clock=self.clock, time=time, metrics=_Metrics(self),  # type: ignore[arg-type]
            problems=MemberProblems(self.clock), ticker=world.ticks,  # type: ignore[arg-type]
            cluster=self.cluster if self.identity is not None else None, identity=self.identity,
        )  # fmt: skip
        if self.identity is not None:
            parts.hold = ClusterHold(
                self.cluster, SETTINGS.cluster, namespace="", claims="watcher" in roles, log=self.follower,
                identity=self.identity, clock=self.clock,
            )  # fmt: skip
        self.roles_at_work = Roles(parts, self._run)
        world.upgrade.guards(self.roles_at_work.guard)
        self.health = Health(["log", "clock", "fold"], SILENT)
        self.report = HealthReport(parts, self.roles_at_work, self.health)
        self.tasks: list[asyncio.Task[Any]] = []
        self.stopping = False

    @property
    def applier(self) -> Applier | None:
        """The applier, once the process has one."""
        return self.roles_at_work.following.get(applier.ROLE)  # type: ignore[return-value]

    def start(self) -> None:
        """Begin as a newly started process."""
        self.world.clocks.starts(self)
        self.world.step(self.name, f"starts as {','.join(self.roles)}")
        self._run(self._main(), "main")

    def _run(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self.world.loop.create_task(work, name=f"{self.name} {name}", context=self.owner.context())
        task.add_done_callback(self._ended)
        self.tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self.stopping and (task.cancelled() or task.exception() is None):
            return
        if not task.cancelled() and self.world.upgrade.ends(self, task.exception()):
            return
        if not task.cancelled() and self.world.elsewhere.refused(self, task.exception()):
            return
        if self.world.closing or task.get_name().endswith(" main"):
            problem = None if task.cancelled() else task.exception()
            if problem is None or self.world.closing:
                return
        problem = None if task.cancelled() else task.exception()
        self.world.fail(Violation(f"{task.get_name()} ended with {problem!r}"), problem)

    async def _main(self) -> None:
        self._run(self.report.run(), "report")
        handlers = await self.roles_at_work.start(self.roles)
        if handlers:
            self._run(self.world.ticks.work(handlers), "ticks")
        self._run(self.follower.run(), "follow")

    # --- faults --------------------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        """Whether it is neither paused nor killed, nor told to end."""
        return not (self.owner.paused or self.owner.dead or self.stopping)

    @property
    def takes_writes(self) -> bool:
        """Whether `/readyz` doesn't say that the log's server refuses writes."""
        check = self.health.checks().get("writes")
        return check is None or check.ok

    def stop(self) -> None:
        """SIGTERM: drain; another process takes the slot a while later."""
        if not self.stopping:
            self.stopping = True
            self.world.step(self.name, "is told to end")
            self._run(self._drain(), "drain")

    async def _drain(self) -> None:
        main, *others = self.tasks[:-1]
        await end([main], within_s=END_S)
        ticks = [task for task in others if task.get_name().endswith(" ticks")]
        await end(ticks, within_s=END_S)
        await self.roles_at_work.drain()
        await end([task for task in self.tasks if task is not asyncio.current_task()], within_s=END_S)
        await asyncio.sleep(0.1)
        self.world.stalls.check_ended(self)
        self.world.step(self.name, "has drained")
        self.world.replace(self)

    def crash(self, where: str) -> None:
        """kill -9 here and now; another process takes the slot a while later."""
        self.world.step(self.name, f"CRASH {where}")
        self.world.loop.kill(self.owner)
        self.world.replace(self)

    def pause(self, seconds: float, where: str) -> None:
        """SIGSTOP here and now, SIGCONT after a while."""
        self.world.step(self.name, f"PAUSE of {seconds:.1f} s {where}")
        self.owner.paused = True
        self.world.later(seconds, self.resume)

    def resume(self) -> None:
        """SIGCONT."""
        if self.owner.paused and not self.owner.dead:
            self.world.step(self.name, "goes on")
            self.world.loop.resume(self.owner)


class _CheckedOnce:
    """The TYJob's schema, which checks an equal spec only once: nearly all writes concern the status alone."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._good: set[bytes] = set()
        #: Whether every object is accepted, as by a server without this schema.
        self.off = False

    def _known(self, obj: dict[str, Any]) -> bool:
        return self.off or msgspec.json.encode(obj["spec"]) in self._good

    def prune(self, obj: dict[str, Any]) -> list[str]:
        return [] if self._known(obj) else self._schema.prune(obj)

    def default(self, obj: dict[str, Any]) -> None:
        if not self._known(obj):
            self._schema.default(obj)

    def verdict(self, new: dict[str, Any], old: dict[str, Any] | None, found: list[FieldError]) -> list[FieldError]:
        if self.off:
            self._good.add(msgspec.json.encode(new["spec"]))  # an unchanged spec stays valid
        if self.off or (old is not None and new["spec"] == old["spec"] and self._known(new)):
            return found
        errors = self._schema.verdict(new, old, found)
        if not errors:
            self._good.add(msgspec.json.encode(new["spec"]))
        return errors


@lru_cache(maxsize=1)
def _tyjob_versions() -> list[ServedKind]:
    return custom_kinds(tyjob_definition())


def _tyjob_kinds() -> list[ServedKind]:
    """Both versions of TYJobs; the schema of the one for statuses is small, and checks as on a server."""
    kind, for_statuses = _tyjob_versions()
    return [msgspec.structs.replace(kind, schema=_CheckedOnce(kind.schema)), for_statuses]  # type: ignore[arg-type]


class World:
    """The simulated world, and its run."""

    def __init__(self, seed: int, often: Mapping[str, float] = MappingProxyType({})) -> None:
        """A run about the faults in `often`: they come in any case, and often. An actor that decides on a fault itself
        ignores the rate that is given there. Of the other runs, a few are calm."""
        self.seed = seed
        if not often and random.Random(f"{seed} is calm").random() < _CALM:
            often = {CALM: 1.0}
        self.chance = random.Random(seed)
        self.loop = VirtualLoop(random.Random(self.chance.getrandbits(64)))
        self.faults = Faults(random.Random(self.chance.getrandbits(64)), often)
        self.steps = 0
        self.limit = 0
        self.trace: list[str] = []
        self.jobs: dict[str, str] = {}
        self._digest = hashlib.blake2b(digest_size=16)
        self._failure: Violation | None = None
        self.closing = False
        self.log_away = self.api_away = self.log_slow = False
        self.log_trouble = ""
        #: Plural of a kind → until when its watches tell nothing, in seconds of the loop.
        self.late_until_s: dict[str, float] = {}
        self.clock = SimulatedClock(self.loop)
        self.claims = Claims(self)
        self.autoscaler = Autoscaler(self)
        self.settings = msgspec.structs.replace(
            SETTINGS,
            volumes=self.claims.comes,
            provisioning=self.autoscaler.way.value,
            min_runtime_s=_LEAST_S[seed % len(_LEAST_S)],
            backfill="Off" if random.Random(f"{seed} has no reservations").random() < _WITHOUT else SETTINGS.backfill,
        )
        self.cycle_config = self.settings.cycle_config(VERSIONS)
        self.forecasts = Forecasts(self)
        self.loop.thread_takes_s = self.forecasts.takes_s
        self.oracle = Oracle(self)
        self.home = Home(self)
        self.store = Store(now=self._now_s, new_uid=self._uid, history_limit=_HISTORY)
        kinds = _tyjob_kinds()
        self.schema: Any = kinds[0].schema
        self.store.collections[kinds[0].key] = Collection(kinds, _HISTORY)
        logs = custom_kinds(definition_of(CLUSTER_LOG_CRD))
        self.store.collections[logs[0].key] = Collection(logs, _HISTORY)
        self.redis = SimulatedRedis(self)
        self.skews_ms = self._skews()
        self.clocks = Clocks(self)
        self.elsewhere = Elsewhere(self)
        self.second = Second(self, SETTINGS)
        self.stalls = Stalls(self)
        self.denials = Denials(self)
        self.quotas = Quotas(self)
        self.classes = Classes(self)
        self.limit_ranges = LimitRanges(self)
        self.queues = Queues(self)
        self.others = Others(self)
        self.bindings = Bindings(self)
        self.pod_groups = PodGroups(self, _HISTORY)
        self.dependencies = Dependencies(self)
        self.bad_nodes = BadNodes(self)
        self.windows = Windows(self)
        #: The numbers of the batches of all rogues, which have one name.
        self.rogue_batches = itertools.count(1)
        self.endings = Endings(self)
        self.topologies = Topologies(self)
        self.belongings = Belongings(self)
        self.refusals = Refusals(self)
        self.room_record = RoomRecord(self)
        self.room = Room(self)
        self.vain = Vain(self)
        self.trials = Trials(self)
        self.starts = Starts(self)
        self.coming = Coming(self)
        self.appliers = Appliers(self)
        self.upgrade = Upgrade(self)
        self.checks = Checks(self)
        self.ticks = Ticks(self)
        self.processes: list[SimulatedProcess] = []
        self.graveyard: list[SimulatedProcess] = []
        self._others: list[asyncio.Task[Any]] = []
        calm = self.faults.often(CALM)
        self.machines = Machines(self, NODES if calm else None)
        self.user: User | CalmUser = CalmUser(self) if calm else User(self)
        if calm:
            calm_down(self)
        self.disasters = Disasters(self)

    def _now_s(self) -> float:
        return self.clock.now_ms() / 1000

    def _uid(self) -> str:
        text = f"{self.chance.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _skews(self) -> dict[int, int]:
        """The clock error of each of our process slots."""
        if self.chance.random() < 0.5:
            return dict.fromkeys(range(4), 0)
        self.faults.hit("clock differs")
        return {slot: self.chance.randrange(-5_000, 5_000) for slot in range(4)}

    # --- events --------------------------------------------------------------------------------------------

    def step(self, actor: str, what: str) -> None:
        """Record an event in the trace, and check all invariants."""
        self.steps += 1
        line = f"{self.steps:5} {self.loop.time() - 1000:9.3f} {actor:8} {what}"
        self.trace.append(line)
        self._digest.update(line.encode())
        story = self.oracle.story
        if story:
            for uid, text in story:
                self.trace.append(f"{text}  [{uid}]")
            story.clear()
        for process in self.processes:
            self.clocks.look(process)
        try:
            self.checks.after_step()
            self.elsewhere.check()
            if self.steps % _COMPARE_EVERY == 0:
                self.checks.projections_agree()
                self.checks.strangers_stand()
        except Violation as violation:
            self.fail(violation, None)

    def fail(self, violation: Violation, cause: BaseException | None) -> None:
        """Remember the first violation; the run ends at once."""
        if self._failure is None and not self.closing:
            self._failure = violation
            violation.__cause__ = cause

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after a while, even if processes are killed or paused then."""
        self.loop.call_later(seconds, action, context=Owner("world").context())

    def spawn(self, work: Coroutine[Any, Any, Any], name: str, owner: Owner | None = None) -> None:
        """Run an actor until the end of the run."""

        def ended(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and (problem := task.exception()) is not None:
                self.fail(Violation(f"the actor {name} ended with {problem!r}"), problem)

        task = self.loop.create_task(work, name=name, context=(owner or Owner(name)).context())
        task.add_done_callback(ended)
        self._others.append(task)

    def replace(self, dead: SimulatedProcess) -> None:
        """Replace a dead process by another one, a while later."""
        self.processes.remove(dead)
        self.graveyard.append(dead)
        if dead.slot not in self.skews_ms:
            return  # of another cluster
        successor = (dead.slot, dead.roles, dead.life + 1)
        delay_s = self.chance.choice((0.3, 2.0, 8.0, 20.0)) * self.chance.uniform(0.5, 1.0) if self.faults.on else 0.5
        self.later(delay_s, lambda: self.launch(*successor))

    def writer_of(self, entry: Entry) -> SimulatedProcess | None:
        """The process that appended an entry; None if it was nobody of ours."""
        _, _, name = entry.batch.writer.partition("@")
        return next((each for each in [*self.processes, *self.graveyard] if each.name == name), None)

    def launch(self, slot: int, roles: tuple[str, ...], life: int) -> None:
        """Start a process."""
        process = SimulatedProcess(self, slot, roles, life)
        self.processes.append(process)
        process.start()

    # --- the run -------------------------------------------------------------------------------------------

    def run(self, steps: int) -> str:
        """The whole run; returns the digest of its trace. Raises `Violation`."""
        self.limit = steps
        random_module = SimpleNamespace(Random=lambda: random.Random(self.chance.getrandbits(64)))
        problems = Problems(self)
        logger = logging.getLogger("arranger")
        before = (logger.level, logger.propagate)
        logger.addHandler(problems)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        collecting = gc.isenabled()
        gc.disable()
        self.loop.after_each = self._stop_if_failed
        self.loop.set_exception_handler(self._unhandled)
        try:
            with (
                mock.patch.object(backoff, "random", random_module),
                mock.patch.object(forecaster, "forecast", self.forecasts.forecast),
                mock.patch.object(forecaster, "processor_s", lambda: 0.0),  # that of a machine isn't reproducible
                mock.patch.dict(layouts._BRIDGES, BRIDGES),
            ):
                self.loop.run_until_complete(self.loop.create_task(self._whole(), context=Owner("world").context()))
        finally:
            self._close()
            logger.removeHandler(problems)
            logger.setLevel(before[0])  # which clears what loggers have cached, as an assignment wouldn't
            logger.propagate = before[1]
            if collecting:
                gc.enable()
        return self._digest.hexdigest()

    def _stop_if_failed(self) -> None:
        if self._failure is not None and not self.closing:
            raise self._failure

    def _unhandled(self, _loop: Any, context: dict[str, Any]) -> None:
        if not self.closing:
            self.fail(
                Violation(f"unhandled: {context.get('message')} {context.get('exception')!r}"), context.get("exception")
            )

    async def _whole(self) -> None:
        await self._begin()
        while self.steps < self.limit:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)
        self.step("world", "FAULTS STOP")
        await self._end_faults()
        if self.faults.often(*BELONGINGS):
            self.belongings.serve()
        await self._settle()
        if self.queues.open():
            await self._settle()
        await self.trials.run()
        await self.starts.run()
        await self.coming.run()
        await self.appliers.run()
        await self._settle()
        self.checks.strangers_stand()
        self.checks.projections_agree()
        self.oracle.verify_snapshots()

    async def _begin(self) -> None:
        await self.machines.start()
        self.claims.begin()
        self.autoscaler.begin(_HISTORY)
        count = self.chance.choice((1, 2, 3, 3))
        for slot in range(count):
            roles = (
                ROLES if slot < 2 else self.chance.choice((ROLES, ("controller", "applier"), ("scheduler", "watcher")))
            )
            self.launch(slot, tuple(roles), 1)
        self.spawn(self.user.run(), "user")
        self.spawn(self.machines.run(), "machines")
        self.spawn(Caretaker(self).run(), "caretaker")
        if self.chance.random() < 0.6 or self.faults.often(*ROGUE):
            self.spawn(Rogue(self).run(), "rogue")
        if self.chance.random() < 0.6:
            self.spawn(Forger(self).run(), "forger")
        self.spawn(self.disasters.run(), "disasters")
        self.spawn(self.clocks.run(), "clocks")
        self.spawn(self.elsewhere.run(), "elsewhere")
        self.spawn(self.second.run(), "second")
        self.spawn(self.stalls.run(), "stalls")
        self.spawn(self.upgrade.run(), "upgrade")
        self.spawn(self.upgrade.definition(), "definition")
        self.spawn(self.denials.run(), "denials")
        self.spawn(self.refusals.run(), "refusals")
        self.spawn(self.denials.delete_namespaces(), "namespaces")
        self.spawn(self.quotas.run(), "quotas")
        self.spawn(self.classes.run(), "classes")
        self.spawn(self.limit_ranges.run(), "limit ranges")
        self.spawn(self.queues.run(), "queues")
        self.spawn(self.others.run(), "others")
        self.spawn(self.pod_groups.run(), "pod groups")
        self.spawn(self.claims.run(), "claims")
        self.spawn(self.claims.serve(), "provisioner")
        self.spawn(self.autoscaler.run(), "autoscaler's others")
        self.spawn(self.autoscaler.serve(), "autoscaler")
        self.spawn(self.dependencies.run(), "dependencies")
        self.spawn(self.topologies.run(), "topologies")
        self.spawn(self.belongings.run(), "belongings")
        self.spawn(self.room.run(), "room")
        self.spawn(self.room.crowd(), "crowd")
        self.spawn(self.room.forge(), "forged room")

    async def _end_faults(self) -> None:
        self.faults.on = False
        self._log_and_api_are_well()
        await self.stalls.end()
        for process in self.processes:
            process.resume()
        self.clocks.mend_all()
        self.elsewhere.leaves()
        for process in self.processes:
            process.cluster.connect(self.store)
        self.quotas.end()
        self.classes.end()
        self.limit_ranges.end()
        self.queues.end()
        self.others.end()
        self.pod_groups.end()
        self.claims.end()
        self.topologies.heal()
        self.starts.heal()
        await self.machines.heal()

    def _log_and_api_are_well(self) -> None:
        self.log_away = self.api_away = self.log_slow = False
        self.log_trouble = ""

    async def _settle(self) -> None:
        deadline_s = self.loop.time() + _SETTLES_WITHIN_S
        good = 0
        while good < 2:
            await asyncio.sleep(3.0)
            unsettled = self.checks.unsettled()
            good = 0 if unsettled else good + 1
            if good == 1:
                self.belongings.end()
            if self.loop.time() > deadline_s:
                told = "; ".join(text for _, text in unsettled[:5])
                raise Violation(
                    f"not settled {_SETTLES_WITHIN_S:.0f} s after the faults stopped: {told}", job=unsettled[0][0]
                )

    def _close(self) -> None:
        """End every task in order, also of dead processes, so that none is left to the garbage collector."""
        self.closing = True
        self.faults.on = False
        self._log_and_api_are_well()
        self.loop.after_each = lambda: None
        for owner in [*(process.owner for process in [*self.processes, *self.graveyard]), *self.second.owners]:
            self.loop.resume(owner)
        self.loop.resume(self.machines.owner)
        deadline_s = self.loop.time() + 1000.0
        while (tasks := asyncio.all_tasks(self.loop)) and self.loop.time() < deadline_s:
            for task in sorted(tasks, key=lambda task: task.number):  # type: ignore[attr-defined]
                task.cancel()
            with suppress(BaseException):
                self.loop.run_until_complete(asyncio.sleep(1.0))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    # --- reporting -----------------------------------------------------------------------------------------

    def story(self, job: str, lines: int = 60) -> str:
        """The trace's lines about one job (its UID), or its last lines if no job is concerned."""
        name = self.user.names.get(job, "")
        if not job:
            return "\n".join(self.trace[-lines:])
        told = [
            line
            for line in self.trace
            if job in line or (name and f" {name}" in line) or line.split()[2:3] == ["CRASH"]
        ]
        return f"the story of {name} ({job}):\n" + "\n".join(told[-lines:])
